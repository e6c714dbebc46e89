//! What one member holds of one queue between pulling and finishing.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use host::time::Mono;
use message::QueueOffset;

/// How much of a queue a consumer may hold before it stops pulling. Source: `spec/client.md` 4.5, 5.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// Messages of one queue. Pulling pauses above this, so one more pull batch may be held. Default 1000.
    pub messages: usize,
    /// Bytes of one queue, counted in whole MiB. Default 100 MiB.
    pub bytes: u64,
    /// Distance between the lowest and the highest offset held of one queue. Default 2000.
    pub span: u64,
}

impl Default for CacheLimits {
    fn default() -> CacheLimits {
        CacheLimits { messages: 1000, bytes: 100 << 20, span: 2000 }
    }
}

/// Which limit stops pulling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitHit {
    Messages,
    Bytes,
    Span,
}

/// The messages that were pulled and are not finished, by queue offset.
///
/// Owned by one generation of one queue: results that come for an earlier generation never reach it.
#[derive(Debug)]
pub(crate) struct ProcessQueue<M> {
    held: BTreeMap<QueueOffset, Held<M>>,
    bytes: u64,
    /// Highest offset that was ever put in.
    highest: Option<QueueOffset>,
}

#[derive(Debug)]
struct Held<M> {
    message: Arc<M>,
    size_bytes: u64,
    /// When the listener began with it; `None` while it waits.
    started: Option<Mono>,
}

impl<M> Default for ProcessQueue<M> {
    fn default() -> ProcessQueue<M> {
        ProcessQueue { held: BTreeMap::new(), bytes: 0, highest: None }
    }
}

impl<M> ProcessQueue<M> {
    /// Takes a message in. False if it is held already, then nothing changes.
    pub(crate) fn put(&mut self, offset: QueueOffset, size_bytes: u64, message: Arc<M>) -> bool {
        if self.held.contains_key(&offset) {
            return false;
        }
        self.held.insert(offset, Held { message, size_bytes, started: None });
        self.bytes += size_bytes;
        self.highest = self.highest.max(Some(offset));
        true
    }

    /// Notes that the listener begins with a message. False if the message is not held any more.
    pub(crate) fn start(&mut self, offset: QueueOffset, now: Mono) -> bool {
        match self.held.get_mut(&offset) {
            Some(held) => {
                held.started = Some(now);
                true
            }
            None => false,
        }
    }

    /// Replaces a held message by a copy that will be consumed again, and counts it as waiting.
    pub(crate) fn again(&mut self, offset: QueueOffset, message: Arc<M>) {
        if let Some(held) = self.held.get_mut(&offset) {
            held.message = message;
            held.started = None;
        }
    }

    /// Finishes messages. The result is where the group goes on from: the lowest offset that is still held, or one
    /// above the highest that ever was. `None` if nothing was held before, so that the result says nothing new.
    pub(crate) fn remove(&mut self, offsets: impl IntoIterator<Item = QueueOffset>) -> Option<QueueOffset> {
        if self.held.is_empty() {
            return None;
        }
        for offset in offsets {
            if let Some(held) = self.held.remove(&offset) {
                self.bytes -= held.size_bytes;
            }
        }
        assert!(!self.held.is_empty() || self.bytes == 0, "an empty queue holds {} bytes", self.bytes);
        self.held.keys().next().copied().or_else(|| self.highest.map(|highest| QueueOffset(highest.0 + 1)))
    }

    /// Whether a message is still held.
    pub(crate) fn contains(&self, offset: QueueOffset) -> bool {
        self.held.contains_key(&offset)
    }

    /// The lowest message, if the listener has been at it for more than `limit`.
    pub(crate) fn overdue(&self, now: Mono, limit: Duration) -> Option<Arc<M>> {
        let (_, held) = self.held.iter().next()?;
        (now.since(held.started?) > limit).then(|| Arc::clone(&held.message))
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The lowest and the highest offset that are held.
    pub(crate) fn bounds(&self) -> Option<(QueueOffset, QueueOffset)> {
        Some((*self.held.keys().next()?, *self.held.keys().next_back()?))
    }

    /// The limit that forbids the next pull, if one does.
    pub(crate) fn limit_hit(&self, limits: &CacheLimits) -> Option<LimitHit> {
        if self.held.len() > limits.messages {
            return Some(LimitHit::Messages);
        }
        if self.bytes >> 20 > limits.bytes >> 20 {
            return Some(LimitHit::Bytes);
        }
        match self.bounds() {
            Some((low, high)) if high.0 - low.0 > limits.span => Some(LimitHit::Span),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(offsets: impl IntoIterator<Item = u64>) -> ProcessQueue<()> {
        let mut queue = ProcessQueue::default();
        for offset in offsets {
            queue.put(QueueOffset(offset), 10, Arc::new(()));
        }
        queue
    }

    fn at(offsets: impl IntoIterator<Item = u64>) -> Vec<QueueOffset> {
        offsets.into_iter().map(QueueOffset).collect()
    }

    #[test]
    fn progress_is_the_lowest_unfinished_message() {
        let mut queue = filled(5..9);
        assert_eq!(queue.remove(at([7, 8])), Some(QueueOffset(5)));
        assert_eq!(queue.remove(at([5])), Some(QueueOffset(6)));
        assert_eq!(queue.remove(at([6])), Some(QueueOffset(9)));
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn removing_from_an_empty_queue_says_nothing() {
        assert_eq!(filled([]).remove(at([1])), None);
    }

    #[test]
    fn a_message_is_held_once() {
        let mut queue = filled([3]);
        assert!(!queue.put(QueueOffset(3), 99, Arc::new(())));
        assert_eq!((queue.len(), queue.bytes()), (1, 10));
    }

    #[test]
    fn each_limit_stops_pulling_only_above_its_value() {
        let limits = CacheLimits { messages: 3, bytes: 1 << 20, span: 10 };
        assert_eq!(filled(0..3).limit_hit(&limits), None);
        assert_eq!(filled(0..4).limit_hit(&limits), Some(LimitHit::Messages));
        assert_eq!(filled([0, 10]).limit_hit(&limits), None);
        assert_eq!(filled([0, 11]).limit_hit(&limits), Some(LimitHit::Span));
        let mut heavy = ProcessQueue::default();
        heavy.put(QueueOffset(0), (2 << 20) - 1, Arc::new(()));
        assert_eq!(heavy.limit_hit(&limits), None);
        heavy.put(QueueOffset(1), 1, Arc::new(()));
        assert_eq!(heavy.limit_hit(&limits), Some(LimitHit::Bytes));
    }

    #[test]
    fn only_the_lowest_message_can_be_overdue() {
        let mut queue = filled([1, 2]);
        let second = |s: u64| Mono::from_nanos(s * 1_000_000_000);
        let limit = Duration::from_secs(10);
        assert!(queue.start(QueueOffset(2), second(1)));
        assert!(queue.overdue(second(100), limit).is_none());
        assert!(queue.start(QueueOffset(1), second(50)));
        assert!(queue.overdue(second(60), limit).is_none());
        assert!(queue.overdue(second(61), limit).is_some());
        assert!(!queue.start(QueueOffset(7), second(1)));
    }

    proptest! {
        #[test]
        fn progress_never_passes_an_unfinished_message(order in Just((0u64..40).collect::<Vec<_>>()).prop_shuffle()) {
            let mut queue = filled(0..40);
            let mut done = std::collections::BTreeSet::new();
            for offset in order {
                let progress = queue.remove([QueueOffset(offset)]).unwrap();
                done.insert(offset);
                let lowest_open = (0..=40).find(|open| !done.contains(open)).unwrap();
                prop_assert_eq!(progress, QueueOffset(lowest_open));
            }
            prop_assert!(queue.is_empty());
        }
    }
}
