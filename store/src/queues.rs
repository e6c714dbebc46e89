//! All consume queues of a store.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use host::fs::Files;
use indexmap::IndexMap;
use message::PhyOffset;
use tokio::sync::Notify;

use crate::{
    consume_queue::{Bounds, ConsumeQueue},
    entry::CqEntry,
    follow::Group,
};

/// The queues by topic and number, and how far into the log they reach.
///
/// One task appends; anyone reads.
pub(crate) struct ConsumeQueues {
    files: Files,
    root: PathBuf,
    file_bytes: u64,
    /// Leaf lock.
    table: RwLock<IndexMap<String, BTreeMap<u32, Arc<ConsumeQueue>>>>,
    /// Leaf lock.
    mark: Mutex<Mark>,
    /// Position of `mark`, for those who need only that.
    reached: AtomicU64,
    /// Told when `mark` moved or files changed.
    pub(crate) changed: Arc<Notify>,
}

/// A moment in the life of all queues: every record before `phy` has its entry, and no other has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    pub(crate) phy: u64,
    /// Store time of the last record before `phy`.
    pub(crate) store_ms: i64,
    /// Of the queues' ends at that moment.
    pub(crate) fingerprint: u64,
}

/// Why a group of entries cannot be appended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppendError {
    #[error("cannot write the consume queue")]
    Io(#[from] io::Error),
    /// Entries in between are missing.
    #[error("queue {queue_id} of {topic} ends at {end}, the log goes on at {next}")]
    Gap { topic: String, queue_id: u32, end: u64, next: u64 },
}

impl ConsumeQueues {
    pub(crate) fn new(files: Files, root: PathBuf, file_bytes: u64) -> ConsumeQueues {
        ConsumeQueues {
            files,
            root,
            file_bytes,
            table: RwLock::default(),
            mark: Mutex::default(),
            reached: AtomicU64::new(0),
            changed: Arc::default(),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    // ---- looking up ----

    pub(crate) fn find(&self, topic: &str, queue_id: u32) -> Option<Arc<ConsumeQueue>> {
        self.read_table().get(topic).and_then(|queues| queues.get(&queue_id)).cloned()
    }

    /// The queue, which exists in memory only until it gets its first entry.
    pub(crate) fn find_or_make(&self, topic: &str, queue_id: u32) -> Arc<ConsumeQueue> {
        if let Some(queue) = self.find(topic, queue_id) {
            return queue;
        }
        let dir = self.root.join(topic).join(queue_id.to_string());
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let queues = table.entry(topic.to_owned()).or_default();
        Arc::clone(
            queues
                .entry(queue_id)
                .or_insert_with(|| Arc::new(ConsumeQueue::new(topic, queue_id, dir, self.file_bytes))),
        )
    }

    /// All queues, by topic and number.
    pub(crate) fn all(&self) -> Vec<Arc<ConsumeQueue>> {
        let mut all: Vec<_> = self.read_table().values().flat_map(BTreeMap::values).cloned().collect();
        all.sort_by(|a, b| (&a.topic, a.queue_id).cmp(&(&b.topic, b.queue_id)));
        all
    }

    /// The offset that the next message of each queue gets.
    pub(crate) fn next_offsets(&self) -> IndexMap<String, BTreeMap<u32, u64>> {
        let mut next: IndexMap<String, BTreeMap<u32, u64>> = IndexMap::new();
        for queue in self.all() {
            next.entry(queue.topic.clone()).or_default().insert(queue.queue_id, queue.bounds().max);
        }
        next
    }

    // ---- following the log ----

    /// How far the queues reach into the log.
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    pub(crate) fn mark(&self) -> Mark {
        *self.lock_mark()
    }

    /// Appends entries of one queue at their queue offsets. Entries that are there already are left alone, which makes
    /// it harmless to dispatch a record twice. Returns the change of the fingerprint.
    ///
    /// # Errors
    /// See [`AppendError`]; entries before the failing one may have been appended.
    pub(crate) async fn append(&self, group: &Group) -> Result<u64, AppendError> {
        let queue = self.find_or_make(&group.topic, group.queue_id);
        let Bounds { max, .. } = queue.bounds();
        let (first, count) = (group.first.0, group.entries.len() as u64);
        if first > max {
            let (topic, queue_id) = (group.topic.clone(), group.queue_id);
            return Err(AppendError::Gap { topic, queue_id, end: max, next: first });
        }
        let known = (max - first).min(count);
        if known == count {
            return Ok(0);
        }
        queue.make_room(&self.files, max, first + count).await?;
        Ok(queue.append(&group.entries[known as usize..])?)
    }

    /// Fills the gap before `group`, if there is one. Returns the change of the fingerprint.
    pub(crate) async fn fill_up_to(&self, group: &Group) -> io::Result<u64> {
        let max = self.find_or_make(&group.topic, group.queue_id).bounds().max;
        if group.first.0 > max { self.fill_gap(group).await } else { Ok(0) }
    }

    /// Whether so many entries are missing between two offsets that they would fill files.
    pub(crate) fn is_too_far(&self, max: u64, next: u64) -> bool {
        next.saturating_sub(max) > self.file_bytes / CqEntry::SIZE_BYTES
    }

    /// Fills a gap of entries whose messages are lost, so that the queue goes on at `group.first`.
    pub(crate) async fn fill_gap(&self, group: &Group) -> io::Result<u64> {
        let queue = self.find_or_make(&group.topic, group.queue_id);
        let Bounds { max, .. } = queue.bounds();
        let next = group.first.0;
        let change = queue.fingerprint();
        if queue.capacity() == 0 || self.is_too_far(max, next) {
            // No entry to keep, or too many missing: it starts anew at its next message.
            queue.clear(&self.files).await?;
            queue.make_room(&self.files, next, next + 1).await?;
        } else {
            queue.make_room(&self.files, max, next).await?;
            let blank = CqEntry::blank(PhyOffset(group.entries[0].phy.0));
            queue.append(&vec![blank; (next - max) as usize])?;
        }
        Ok(change ^ queue.fingerprint())
    }

    /// Moves the mark: all records before `phy` have their entries, which changed the fingerprint by `change`.
    pub(crate) fn advance(&self, phy: u64, store_ms: Option<i64>, change: u64) {
        {
            let mut mark = self.lock_mark();
            assert!(phy >= mark.phy, "dispatch goes back from {} to {phy}", mark.phy);
            mark.phy = phy;
            mark.store_ms = store_ms.unwrap_or(mark.store_ms);
            mark.fingerprint ^= change;
        }
        self.reached.store(phy, Ordering::Release);
        self.changed.notify_one();
    }

    /// Sets the mark after recovery.
    pub(crate) fn start_at(&self, phy: u64, store_ms: i64) {
        let fingerprint = self.all().iter().fold(0, |sum, queue| sum ^ queue.fingerprint());
        *self.lock_mark() = Mark { phy, store_ms, fingerprint };
        self.reached.store(phy, Ordering::Release);
    }

    /// Makes durable every queue with at least `least_bytes` dirty. True if nothing dirty is left of what was dirty.
    ///
    /// # Errors
    /// A sync failed; the file is named.
    pub(crate) async fn flush(&self, least_bytes: u64) -> io::Result<bool> {
        let mut all_clean = true;
        // Queues of one topic share directories: each is synced once, after all that was made in it.
        let mut dirs = BTreeSet::new();
        for queue in self.all() {
            match queue.take_dirty(least_bytes) {
                Some(dirty) => dirs.extend(queue.sync(dirty).await?),
                None => all_clean &= !queue.is_dirty(),
            }
        }
        for dir in dirs {
            self.files.sync_dir(dir).await?;
        }
        Ok(all_clean)
    }

    // ---- retention ----

    /// Removes the oldest file of a queue if no message in it exists any more. True if it did.
    pub(crate) async fn remove_expired(&self, queue: &ConsumeQueue, log_start: u64) -> io::Result<bool> {
        let Some(change) = queue.remove_expired(&self.files, log_start).await? else { return Ok(false) };
        self.lock_mark().fingerprint ^= change;
        self.changed.notify_one();
        Ok(true)
    }

    fn read_table(&self) -> std::sync::RwLockReadGuard<'_, IndexMap<String, BTreeMap<u32, Arc<ConsumeQueue>>>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_mark(&self) -> std::sync::MutexGuard<'_, Mark> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
