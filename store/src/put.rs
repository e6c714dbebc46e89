//! What a caller gets for a message that was appended.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use message::{PhyOffset, QueueOffset};
use tokio::sync::oneshot;

/// Where a message was stored. It is in the page cache; see [`crate::Store::durability`] for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Put {
    /// Where its record starts.
    pub phy: PhyOffset,
    /// Size of its record.
    pub size_bytes: u32,
    /// Its place in the queue; 0 for half messages and rollback marks, which have none.
    pub queue_offset: QueueOffset,
    /// When it was stored, wall-clock milliseconds.
    pub store_ms: i64,
}

impl Put {
    /// Where its record ends.
    #[must_use]
    pub fn end(&self) -> PhyOffset {
        PhyOffset(self.phy.0 + u64::from(self.size_bytes))
    }
}

/// Where the messages of a batch were stored: one behind the other, with consecutive queue offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchPut {
    /// One per message, in the order of the batch. Never empty.
    pub puts: Vec<Put>,
}

impl BatchPut {
    /// Where the last record ends.
    #[must_use]
    pub fn end(&self) -> PhyOffset {
        self.puts.last().expect("a batch has at least one message").end()
    }
}

/// How waiting for the disk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushed {
    /// It is on disk, or nobody asked for that.
    Done,
    /// It was not confirmed in time (`FLUSH_DISK_TIMEOUT`): it will usually become durable and be consumed.
    TimedOut,
    /// The sync failed (`FLUSH_DISK_TIMEOUT` too): it may or may not be there after a restart.
    Failed,
}

/// Waits until a message is as durable as the settings ask for.
#[derive(Debug)]
pub struct Durability {
    state: State,
}

#[derive(Debug)]
enum State {
    Known(Flushed),
    Waiting(oneshot::Receiver<Flushed>),
}

impl Durability {
    pub(crate) fn known(flushed: Flushed) -> Durability {
        Durability { state: State::Known(flushed) }
    }

    pub(crate) fn waiting(told: oneshot::Receiver<Flushed>) -> Durability {
        Durability { state: State::Waiting(told) }
    }

    /// The outcome, if there is nothing to wait for.
    #[must_use]
    pub fn now(&self) -> Option<Flushed> {
        match self.state {
            State::Known(flushed) => Some(flushed),
            State::Waiting(_) => None,
        }
    }
}

impl Future for Durability {
    type Output = Flushed;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Flushed> {
        match &mut self.state {
            State::Known(flushed) => Poll::Ready(*flushed),
            // The store went away without an answer.
            State::Waiting(told) => Pin::new(told).poll(cx).map(|told| told.unwrap_or(Flushed::Failed)),
        }
    }
}
