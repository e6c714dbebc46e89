//! What a broker counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters since the start. They order nothing, so their updates may be seen in any order.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    puts: AtomicU64,
    puts_failed: AtomicU64,
    gets_found: AtomicU64,
    gets_missed: AtomicU64,
    messages_out: AtomicU64,
}

impl Figures {
    /// Messages were stored by one request.
    pub(crate) fn put(&self, messages: usize) {
        self.puts.fetch_add(messages as u64, Relaxed);
    }

    /// A send was refused.
    pub(crate) fn put_failed(&self) {
        self.puts_failed.fetch_add(1, Relaxed);
    }

    /// A pull was answered with so many messages.
    pub(crate) fn got(&self, messages: u32) {
        let counter = if messages > 0 { &self.gets_found } else { &self.gets_missed };
        counter.fetch_add(1, Relaxed);
        self.messages_out.fetch_add(u64::from(messages), Relaxed);
    }

    /// The counters, for those who report them.
    pub(crate) fn read(&self) -> Counted {
        Counted {
            puts: self.puts.load(Relaxed),
            puts_failed: self.puts_failed.load(Relaxed),
            gets_found: self.gets_found.load(Relaxed),
            gets_missed: self.gets_missed.load(Relaxed),
            messages_out: self.messages_out.load(Relaxed),
        }
    }
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Messages stored.
    pub(crate) puts: u64,
    /// Sends refused.
    pub(crate) puts_failed: u64,
    /// Pulls that were answered with messages.
    pub(crate) gets_found: u64,
    /// Pulls that were answered without.
    pub(crate) gets_missed: u64,
    /// Messages given to consumers.
    pub(crate) messages_out: u64,
}
