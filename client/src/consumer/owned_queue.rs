//! A queue that this member consumes: what it holds of it and how far it got.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use host::time::Mono;
use message::QueueOffset;
use remoting::LogEpoch;
use tokio::sync::{Notify, watch};

use super::{
    MessageView,
    process_queue::{CacheLimits, ProcessQueue},
};
use crate::queue::{MessageQueue, Place};

/// One assigned queue, from the round that added it to the round that drops it.
///
/// It owns the messages held, the position of the next pull and the offset to commit. All of them belong to one log, the
/// one of the last answer to a pull. A generation ends when the queue is dropped or its position is corrected; whatever
/// belongs to an earlier generation changes nothing any more.
pub(crate) struct OwnedQueue {
    pub(crate) queue: MessageQueue,
    /// Leaf lock: nothing else is locked while it is held.
    inner: Mutex<Inner>,
    /// Broker to pull from next, as the last answer suggested; 0 is the master.
    pub(crate) pull_from: AtomicU64,
    /// Woken when messages leave the cache, so that a paused pull looks again.
    pub(crate) room: Notify,
    /// The generation as those see it who wait for its end; `None` once the queue was dropped.
    life: watch::Sender<Option<Generation>>,
}

/// Counts the lives of an owned queue, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generation(u64);

/// What to pull next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NextPull {
    pub(crate) generation: Generation,
    pub(crate) at: Place,
    /// Whether the position was corrected and must be committed before anything is pulled from it.
    pub(crate) commit_first: bool,
}

struct Inner {
    cache: ProcessQueue<MessageView>,
    generation: Generation,
    dropped: bool,
    position: QueueOffset,
    /// The log that all offsets here belong to, if the broker tells.
    epoch: Option<LogEpoch>,
    commit_first: bool,
    /// Where the group goes on: every message below is finished. `None` until that is known.
    consume_offset: Option<QueueOffset>,
    /// What the broker is known to have stored for the group.
    committed: Option<QueueOffset>,
    /// What it had stored when this member took the queue over.
    taken_over: Option<QueueOffset>,
    last_pull: Mono,
    last_consume_ms: i64,
    /// Highest offset of the queue that the broker told of.
    broker_max: Option<QueueOffset>,
}

/// What a person wants to know about one queue of a running consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueProgress {
    /// The queue.
    pub queue: MessageQueue,
    /// Messages that were pulled and are not finished.
    pub cached: usize,
    /// Their bytes.
    pub cached_bytes: u64,
    /// The lowest and the highest offset of them.
    pub cached_bounds: Option<(QueueOffset, QueueOffset)>,
    /// The next message to consume after a restart, as known here; `None` until anything was consumed.
    pub consume_offset: Option<QueueOffset>,
    /// The same as the broker has acknowledged it.
    pub committed: Option<QueueOffset>,
    /// Messages between `consume_offset` and the end of the queue at the last pull.
    pub lag: Option<u64>,
    /// When it was pulled last.
    pub last_pull: Mono,
    /// When a listener finished last, in wall-clock milliseconds; 0 for never.
    pub last_consume_ms: i64,
}

impl OwnedQueue {
    /// A queue that is pulled from `at`, which is what the broker has stored or what stands in for it.
    pub(crate) fn new(queue: MessageQueue, at: Place, stored: Option<QueueOffset>, now: Mono) -> OwnedQueue {
        let generation = Generation(1);
        OwnedQueue {
            queue,
            inner: Mutex::new(Inner {
                cache: ProcessQueue::default(),
                generation,
                dropped: false,
                position: at.offset,
                epoch: at.epoch,
                commit_first: false,
                consume_offset: stored,
                committed: stored,
                taken_over: stored,
                last_pull: now,
                last_consume_ms: 0,
                broker_max: None,
            }),
            pull_from: AtomicU64::new(0),
            room: Notify::new(),
            life: watch::Sender::new(Some(generation)),
        }
    }

    /// What to pull next, `None` once the queue was dropped.
    pub(crate) fn next_pull(&self) -> Option<NextPull> {
        let inner = self.lock();
        let Inner { generation, commit_first, .. } = *inner;
        let at = inner.place(inner.position);
        (!inner.dropped).then_some(NextPull { generation, at, commit_first })
    }

    /// Whether `generation` is the current one and the queue was not dropped.
    pub(crate) fn is_current(&self, generation: Generation) -> bool {
        self.lock().is(generation)
    }

    /// Resolves when `generation` has ended.
    pub(crate) async fn until_ended(&self, generation: Generation) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.life.subscribe().wait_for(|life| *life != Some(generation)).await;
    }

    /// Resolves when the queue was dropped.
    pub(crate) async fn until_dropped(&self) {
        // As above.
        let _ = self.life.subscribe().wait_for(Option::is_none).await;
    }

    /// Takes pulled messages in and goes on from `next`; gives back those that were not held yet. Nothing for an old
    /// generation.
    pub(crate) fn put(
        &self,
        generation: Generation,
        messages: Vec<Arc<MessageView>>,
        next: Place,
    ) -> Vec<Arc<MessageView>> {
        let mut inner = self.lock();
        if !inner.is(generation) {
            return Vec::new();
        }
        inner.go_on_at(next);
        let mut fresh = messages;
        fresh.retain(|message| inner.cache.put(message.queue_offset(), message.size_bytes(), Arc::clone(message)));
        fresh
    }

    /// Notes that a listener begins with these messages; gives back those that are still to be consumed.
    pub(crate) fn start(
        &self,
        generation: Generation,
        messages: Vec<Arc<MessageView>>,
        now: Mono,
    ) -> Vec<Arc<MessageView>> {
        let mut inner = self.lock();
        if !inner.is(generation) {
            return Vec::new();
        }
        let mut due = messages;
        due.retain(|message| inner.cache.start(message.queue_offset(), now));
        due
    }

    /// Whether a message is still held by this generation.
    pub(crate) fn holds(&self, generation: Generation, offset: QueueOffset) -> bool {
        let inner = self.lock();
        inner.is(generation) && inner.cache.contains(offset)
    }

    /// Replaces a message that will be consumed again; false if it is not held any more.
    pub(crate) fn again(&self, generation: Generation, message: &Arc<MessageView>) -> bool {
        let mut inner = self.lock();
        let offset = message.queue_offset();
        let held = inner.is(generation) && inner.cache.contains(offset);
        if held {
            inner.cache.again(offset, Arc::clone(message));
        }
        held
    }

    /// Finishes messages and raises the offset to commit.
    pub(crate) fn finish(&self, generation: Generation, offsets: &[QueueOffset], wall_ms: i64) {
        let mut inner = self.lock();
        if !inner.is(generation) {
            return;
        }
        if let Some(next) = inner.cache.remove(offsets.iter().copied()) {
            inner.raise(next);
        }
        host::always!(
            "client.commit-not-past-pull",
            inner.consume_offset.is_none_or(|offset| offset <= inner.position)
        );
        inner.last_consume_ms = wall_ms;
        drop(inner);
        self.room.notify_one();
    }

    /// Raises the offset to commit beyond messages that are not finished. Only the planted bug does that.
    pub(crate) fn raise_early(&self, next: QueueOffset) {
        self.lock().raise(next);
    }

    /// Nothing is wanted up to `next`: pulling goes on there, and with an empty cache all of it is finished.
    pub(crate) fn caught_up(&self, generation: Generation, next: Place) {
        let mut inner = self.lock();
        if inner.is(generation) {
            inner.go_on_at(next);
            if inner.cache.is_empty() {
                inner.raise(next.offset);
            }
        }
    }

    /// Begins a new generation where the broker says that `generation` must go on, and tells where that is. It is
    /// committed before the next pull. Listeners that run finish without effect.
    ///
    /// Forwards, everything in between is gone. Backwards, the messages held are forgotten too, because those from `to`
    /// on are not what stands there now; but those below are as they were, so it begins with the first of them.
    pub(crate) fn correct(&self, generation: Generation, to: Place) -> Option<QueueOffset> {
        let mut inner = self.lock();
        if !inner.is(generation) {
            return None;
        }
        let is_back = to.offset < inner.position;
        let unfinished = inner.cache.bounds().map(|(lowest, _)| lowest).filter(|_| is_back);
        let offset = unfinished.map_or(to.offset, |lowest| lowest.min(to.offset));
        inner.epoch = to.epoch;
        self.begin(inner, offset);
        Some(offset)
    }

    /// Begins a new generation at the offset that an administrator wants, committed before the next pull.
    pub(crate) fn reset(&self, offset: QueueOffset) {
        let inner = self.lock();
        if !inner.dropped {
            self.begin(inner, offset);
        }
    }

    fn begin(&self, mut inner: MutexGuard<'_, Inner>, position: QueueOffset) {
        inner.cache = ProcessQueue::default();
        inner.generation = Generation(inner.generation.0 + 1);
        inner.position = position;
        inner.commit_first = true;
        inner.consume_offset = Some(position);
        inner.committed = None;
        let generation = inner.generation;
        drop(inner);
        self.life.send_replace(Some(generation));
    }

    /// The broker does not take the corrected position, because its log has been cut again: it is pulled from, so that
    /// the broker corrects it.
    pub(crate) fn pull_uncommitted(&self, generation: Generation) {
        let mut inner = self.lock();
        if inner.is(generation) {
            inner.commit_first = false;
        }
    }

    /// Ends the last generation. Gives back the offset to commit, if there is any: none where this member finished
    /// nothing, because all that could do is undo the commit of another one that owned the queue meanwhile.
    pub(crate) fn drop_queue(&self) -> Option<Place> {
        let mut inner = self.lock();
        inner.dropped = true;
        inner.cache = ProcessQueue::default();
        let finished = inner.consume_offset.filter(|_| inner.consume_offset != inner.taken_over);
        let place = finished.map(|offset| inner.place(offset));
        drop(inner);
        self.life.send_replace(None);
        place
    }

    /// Whether the cache has room for another pull.
    pub(crate) fn has_room(&self, limits: &CacheLimits) -> bool {
        self.lock().cache.limit_hit(limits).is_none()
    }

    /// The lowest message, if its listener has been running for more than `limit`.
    pub(crate) fn overdue(&self, now: Mono, limit: Duration) -> Option<(Generation, Arc<MessageView>)> {
        let inner = self.lock();
        if inner.dropped {
            return None;
        }
        inner.cache.overdue(now, limit).map(|message| (inner.generation, message))
    }

    /// The offset to commit now, above 0, for a pull to carry along.
    pub(crate) fn offset_to_carry(&self) -> Option<QueueOffset> {
        self.lock().consume_offset.filter(|offset| offset.0 > 0)
    }

    /// The offset to commit, if it differs from what is stored or if `all` shall be sent again.
    pub(crate) fn offset_to_commit(&self, all: bool) -> Option<(Generation, Place)> {
        let inner = self.lock();
        let offset = inner.consume_offset.filter(|_| all || inner.consume_offset != inner.committed)?;
        (!inner.dropped).then_some((inner.generation, inner.place(offset)))
    }

    /// Notes that the broker has stored an offset.
    pub(crate) fn committed(&self, generation: Generation, offset: QueueOffset) {
        let mut inner = self.lock();
        if inner.is(generation) {
            inner.committed = Some(offset);
            inner.commit_first = false;
        }
    }

    /// Notes a pull.
    pub(crate) fn pulled(&self, now: Mono) {
        self.lock().last_pull = now;
    }

    /// Notes where a pull is answered best and how far the queue reaches.
    pub(crate) fn heard(&self, suggested_broker: u64, broker_max: QueueOffset) {
        self.pull_from.store(suggested_broker, Ordering::Relaxed);
        self.lock().broker_max = Some(broker_max);
    }

    /// When it was pulled last.
    pub(crate) fn last_pull(&self) -> Mono {
        self.lock().last_pull
    }

    /// A snapshot for people.
    pub(crate) fn progress(&self) -> QueueProgress {
        let inner = self.lock();
        let lag = inner.broker_max.zip(inner.consume_offset).map(|(max, offset)| max.0.saturating_sub(offset.0));
        QueueProgress {
            queue: self.queue.clone(),
            cached: inner.cache.len(),
            cached_bytes: inner.cache.bytes(),
            cached_bounds: inner.cache.bounds(),
            consume_offset: inner.consume_offset,
            committed: inner.committed,
            lag,
            last_pull: inner.last_pull,
            last_consume_ms: inner.last_consume_ms,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Whether `generation` is the current one and the queue was not dropped.
    fn is(&self, generation: Generation) -> bool {
        !self.dropped && self.generation == generation
    }

    fn place(&self, offset: QueueOffset) -> Place {
        Place { offset, epoch: self.epoch }
    }

    /// The broker has answered to the position from its log as it is now, so what is held below it counts there, too.
    fn go_on_at(&mut self, next: Place) {
        self.position = next.offset;
        self.epoch = next.epoch;
    }

    fn raise(&mut self, next: QueueOffset) {
        self.consume_offset = self.consume_offset.max(Some(next));
    }
}

impl std::fmt::Debug for OwnedQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnedQueue({})", self.queue)
    }
}

#[cfg(test)]
mod tests {
    use message::{Message, PhyOffset, StoredMessage, SysFlag};

    use super::*;

    fn view(offset: u64) -> Arc<MessageView> {
        let stored = StoredMessage {
            message: Message::new("t", "body"),
            queue_id: 0,
            queue_offset: QueueOffset(offset),
            phy: PhyOffset(0),
            size_bytes: 0,
            body_crc: 0,
            sys_flag: SysFlag(0),
            born_ms: 0,
            born_host: "10.0.0.1:1".parse().unwrap(),
            store_ms: 0,
            store_host: "10.0.0.1:1".parse().unwrap(),
            reconsume_times: 0,
            prepared_phy: PhyOffset(0),
        };
        Arc::new(MessageView::pulled(stored, &MessageQueue::new("t", "b", 0)).unwrap())
    }

    fn views(offsets: std::ops::Range<u64>) -> Vec<Arc<MessageView>> {
        offsets.map(view).collect()
    }

    /// A place in the log that all tests begin with.
    fn at(offset: u64) -> Place {
        in_epoch(1, offset)
    }

    fn in_epoch(epoch: i64, offset: u64) -> Place {
        Place { offset: QueueOffset(offset), epoch: Some(LogEpoch(epoch)) }
    }

    fn owned(stored: Option<u64>) -> (OwnedQueue, Generation) {
        let stored = stored.map(QueueOffset);
        let position = stored.unwrap_or_default();
        let owned = OwnedQueue::new(MessageQueue::new("t", "b", 0), at(position.0), stored, Mono::default());
        let generation = owned.next_pull().unwrap().generation;
        (owned, generation)
    }

    #[test]
    fn only_what_is_finished_is_committed() {
        let (owned, generation) = owned(None);
        assert_eq!(owned.put(generation, views(0..3), at(3)).len(), 3);
        assert_eq!(owned.put(generation, views(2..4), at(4)).len(), 1);
        assert_eq!(owned.next_pull().unwrap().at, at(4));
        assert_eq!(owned.offset_to_commit(true), None);
        owned.finish(generation, &[QueueOffset(1)], 5);
        assert_eq!(owned.offset_to_commit(false), Some((generation, at(0))));
        owned.finish(generation, &[QueueOffset(0)], 5);
        assert_eq!(owned.offset_to_carry(), Some(QueueOffset(2)));
        owned.committed(generation, QueueOffset(2));
        assert_eq!(owned.offset_to_commit(false), None);
        assert_eq!(owned.offset_to_commit(true), Some((generation, at(2))));
    }

    #[test]
    fn an_empty_answer_raises_the_offset_only_if_nothing_is_held() {
        let (owned, generation) = owned(Some(5));
        owned.put(generation, views(5..6), at(6));
        owned.caught_up(generation, at(9));
        assert_eq!(owned.progress().consume_offset, Some(QueueOffset(5)));
        owned.finish(generation, &[QueueOffset(5)], 0);
        owned.caught_up(generation, at(9));
        assert_eq!(owned.progress().consume_offset, Some(QueueOffset(9)));
    }

    #[test]
    fn a_corrected_queue_ignores_its_old_generation() {
        let (owned, old) = owned(Some(50));
        owned.put(old, views(50..52), at(52));
        assert_eq!(owned.correct(old, at(10)), Some(QueueOffset(10)));
        owned.finish(old, &[QueueOffset(50), QueueOffset(51)], 0);
        owned.caught_up(old, at(60));
        assert_eq!(owned.correct(old, at(70)), None);
        owned.committed(old, QueueOffset(50));
        assert!(owned.put(old, views(52..53), at(53)).is_empty());
        assert!(owned.start(old, views(50..51), Mono::default()).is_empty());
        let next = owned.next_pull().unwrap();
        assert_eq!((next.at, next.commit_first), (at(10), true));
        owned.committed(next.generation, QueueOffset(10));
        assert!(!owned.next_pull().unwrap().commit_first);
    }

    #[test]
    fn a_dropped_queue_hands_over_its_offset_and_does_nothing_more() {
        let (owned, generation) = owned(Some(5));
        owned.put(generation, views(5..8), at(8));
        owned.finish(generation, &[QueueOffset(5)], 0);
        assert_eq!(owned.drop_queue(), Some(at(6)));
        assert!(owned.next_pull().is_none());
        owned.finish(generation, &[QueueOffset(6)], 0);
        assert_eq!(owned.offset_to_commit(true), None);
        owned.reset(QueueOffset(0));
        assert_eq!(owned.correct(generation, at(0)), None);
        assert!(!owned.is_current(generation));
    }

    #[test]
    fn a_queue_of_which_nothing_was_finished_is_dropped_without_a_commit() {
        let (owned, generation) = owned(Some(5));
        owned.put(generation, views(5..8), at(8));
        assert_eq!(owned.drop_queue(), None);
    }

    #[test]
    fn an_answer_from_another_log_moves_everything_into_it() {
        let (owned, generation) = owned(Some(5));
        owned.put(generation, views(5..7), in_epoch(1, 7));
        owned.put(generation, views(7..9), in_epoch(2, 9));
        owned.finish(generation, &[QueueOffset(5)], 0);
        assert_eq!(owned.offset_to_commit(false), Some((generation, in_epoch(2, 6))));
        assert_eq!(owned.next_pull().unwrap().at, in_epoch(2, 9));
        owned.caught_up(generation, Place { offset: QueueOffset(9), epoch: None });
        assert_eq!(owned.drop_queue(), Some(Place { offset: QueueOffset(6), epoch: None }));
    }

    #[test]
    fn a_correction_backwards_begins_with_the_first_message_that_is_not_finished() {
        let corrected = |told: u64| {
            let (owned, generation) = owned(Some(5));
            owned.put(generation, views(5..9), at(9));
            owned.finish(generation, &[QueueOffset(5), QueueOffset(7)], 0);
            let to = owned.correct(generation, in_epoch(2, told));
            let next = owned.next_pull().unwrap();
            assert_eq!((Some(next.at.offset), next.at.epoch), (to, Some(LogEpoch(2))));
            assert_eq!(owned.offset_to_commit(false).unwrap().1, next.at);
            to.unwrap().0
        };
        // 6 and 8 are held. 8 was lost: what stands there now is another message.
        assert_eq!(corrected(8), 6);
        assert_eq!(corrected(6), 6);
        assert_eq!(corrected(3), 3);
        // Forwards, what is held has been deleted.
        assert_eq!(corrected(20), 20);
    }

    #[test]
    fn nothing_held_means_that_all_below_is_finished() {
        let (owned, generation) = owned(Some(5));
        owned.put(generation, views(5..9), at(9));
        owned.finish(generation, &[5, 6, 7, 8].map(QueueOffset), 0);
        assert_eq!(owned.correct(generation, in_epoch(2, 7)), Some(QueueOffset(7)));
    }

    #[test]
    fn a_position_that_cannot_be_committed_is_pulled_from() {
        let (owned, generation) = owned(Some(5));
        owned.correct(generation, in_epoch(2, 3));
        let next = owned.next_pull().unwrap();
        owned.pull_uncommitted(generation);
        assert!(owned.next_pull().unwrap().commit_first, "an old generation changes nothing");
        owned.pull_uncommitted(next.generation);
        assert!(!owned.next_pull().unwrap().commit_first);
    }

    #[test]
    fn a_reset_goes_where_it_is_told_to() {
        let (owned, generation) = owned(Some(5));
        owned.put(generation, views(5..9), at(9));
        owned.reset(QueueOffset(8));
        let next = owned.next_pull().unwrap();
        assert_eq!((next.at, next.commit_first), (at(8), true));
    }
}
