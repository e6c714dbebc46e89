//! Index files: where the messages of a topic with a certain key are.
//!
//! Each key of a message, its unique id and the words of its `KEYS`, has an entry in the file that is filled at the time;
//! entries of one hash slot are chained from the latest back. The dispatcher writes, behind the consume queues; anyone
//! reads. Like the queues, the index follows from the log, so whatever of it is missing or damaged is built again by
//! [`rebuild`] when the store is opened (SF05, SF11).
//!
//! Source: `spec/store.md` 6.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use host::fs::Files;
use message::{RecordView, Transaction, java_hash_of, property};

use self::{
    file::{IndexFile, name_of_time},
    tail::IndexTail,
};

mod file;
pub(crate) mod rebuild;
mod tail;

pub(crate) use file::{IndexEntry, IndexHeader, IndexShape, parse_name as index_name};

/// Entries and slots written since the last sync, in bytes, from which on a sync is worth its cost before its time.
const FLUSH_BYTES: u64 = 16 << 20;

/// One key of one message, for the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexKey {
    pub(crate) hash: u32,
    /// Where the record starts.
    pub(crate) phy: u64,
    pub(crate) store_ms: i64,
    /// Keys of the same record in front of it.
    pub(crate) nth: u32,
}

/// A moment in the life of the index: every key of every record before `phy` is in it, and no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexMark {
    pub(crate) phy: u64,
    /// Store time of the last record before `phy`.
    pub(crate) store_ms: i64,
    /// Name of the file that was filled then; 0 if there was none.
    pub(crate) file: u64,
    /// Its header.
    pub(crate) header: IndexHeader,
}

/// What the checkpoint says of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexKnown {
    /// Of which all is on disk.
    pub(crate) mark: IndexMark,
    /// Files that end before this position may have been deleted since.
    pub(crate) from: u64,
    /// Fingerprint of the other files before the mark's.
    pub(crate) older: u64,
}

/// All index files of a store.
pub(crate) struct Index {
    files: Files,
    dir: PathBuf,
    shape: IndexShape,
    /// Oldest first; the last one is filled. Leaf lock.
    list: RwLock<Vec<Arc<IndexFile>>>,
    /// Leaf lock.
    mark: Mutex<IndexMark>,
    /// Names of files are not durable yet.
    names_dirty: AtomicBool,
    /// Files that end before this position may be deleted: the checkpoint does not count them.
    deletable_to: AtomicU64,
    /// Something in it turned out to be wrong, so that it must be built again at the next start.
    is_damaged: AtomicBool,
}

impl Index {
    /// Says that the index holds all keys of the records before `mark.phy`, with nothing that is not durable.
    fn new(files: Files, dir: PathBuf, shape: IndexShape, list: Vec<Arc<IndexFile>>, mark: IndexMark) -> Index {
        Index {
            files,
            dir,
            shape,
            list: RwLock::new(list),
            mark: Mutex::new(mark),
            names_dirty: AtomicBool::new(false),
            deletable_to: AtomicU64::new(0),
            is_damaged: AtomicBool::new(false),
        }
    }

    // ---- looking up ----

    /// Shows positions of messages that may have a key of that hash and may have been stored between two times, the
    /// latest entry first, until `take` has enough and says no. A position may be shown twice, and a message may be of
    /// another key, or gone.
    pub(crate) fn find(&self, hash: u32, times: (i64, i64), mut take: impl FnMut(u64) -> bool) {
        for file in self.list().iter().rev() {
            // The times of its first and last message do not bound the others: the clock may have been put back and on again.
            let begin_ms = file.header().begin_ms;
            for link in file.chain(file.shape.slot_of(hash)) {
                let (number, entry) = match link {
                    Ok(link) => link,
                    Err(error) => {
                        self.report(file, &error);
                        break;
                    }
                };
                // Ages are whole seconds, of the first entry not from the begin of the file, and never below 0.
                let from_ms = begin_ms.saturating_add(if number == 1 { 0 } else { i64::from(entry.age_s) * 1000 });
                let is_in_time = from_ms <= times.1 && from_ms.saturating_add(999) >= times.0 || entry.age_s == 0;
                if entry.hash == hash && is_in_time && !take(entry.phy) {
                    return;
                }
            }
        }
    }

    /// Store time and position of the last message with a key; 0 without any.
    pub(crate) fn last(&self) -> (i64, u64) {
        self.list().last().map_or((0, 0), |file| {
            let IndexHeader { end_ms, end_phy, .. } = file.header();
            (end_ms, end_phy)
        })
    }

    fn report(&self, file: &IndexFile, error: &io::Error) {
        if !self.is_damaged.swap(true, Ordering::Relaxed) {
            let (error, file) = (error as &dyn std::error::Error, file.path.display());
            tracing::error!(error, %file, "the index is damaged, the next start builds it again");
        }
    }

    // ---- durability ----

    pub(crate) fn mark(&self) -> IndexMark {
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything is not durable.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty_bytes() > 0 || self.names_dirty.load(Ordering::Relaxed)
    }

    /// Whether so much is not durable that it should not wait.
    pub(crate) fn is_pressing(&self) -> bool {
        self.dirty_bytes() >= FLUSH_BYTES
    }

    fn dirty_bytes(&self) -> u64 {
        self.list().iter().map(|file| file.dirty_bytes()).sum()
    }

    /// Makes durable what was written before the call.
    ///
    /// # Errors
    /// A sync failed.
    pub(crate) async fn flush(&self) -> io::Result<()> {
        for file in self.list() {
            file.sync().await?;
        }
        if self.names_dirty.swap(false, Ordering::Relaxed) {
            self.files.sync_dir(&self.dir).await?;
        }
        Ok(())
    }

    /// What the checkpoint may say when all before `mark` is on disk and the log starts at `from`. `None` if the index
    /// must be built again.
    pub(crate) fn known(&self, mark: IndexMark, from: u64) -> Option<IndexKnown> {
        if self.is_damaged.load(Ordering::Relaxed) {
            return None;
        }
        Some(IndexKnown { mark, from, older: fingerprint(&self.list(), from, mark.file) })
    }

    /// Says that a checkpoint with that knowledge is on disk.
    pub(crate) fn checkpointed(&self, known: Option<IndexKnown>) {
        if let Some(known) = known {
            self.deletable_to.store(known.from, Ordering::Relaxed);
        }
    }

    // ---- retention ----

    /// Removes files, the last one excepted, whose messages all lie before `log_start`. Those that the checkpoint counts
    /// stay until the next call, or a crash in between would look like a loss.
    ///
    /// # Errors
    /// The machine refuses; the file is not read any more all the same.
    pub(crate) async fn remove_expired(&self, log_start: u64) -> io::Result<()> {
        let bound = log_start.min(self.deletable_to.load(Ordering::Relaxed));
        while let [oldest, _, ..] = &self.list()[..]
            && oldest.header().end_phy < bound
        {
            self.write_list().retain(|file| !Arc::ptr_eq(file, oldest));
            self.files.remove_file(&oldest.path).await?;
            self.files.sync_dir(&self.dir).await?;
        }
        Ok(())
    }

    fn list(&self) -> Vec<Arc<IndexFile>> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write_list(&self) -> RwLockWriteGuard<'_, Vec<Arc<IndexFile>>> {
        self.list.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the index. Owned by the dispatcher.
pub(crate) struct IndexWriter {
    index: Arc<Index>,
    /// `None` before the first key.
    tail: Option<IndexTail>,
    /// Record and number of the next key that is not in the tail.
    next: (u64, u32),
}

impl IndexWriter {
    /// Adds keys, which are those of consecutive records, each of them with all its keys. Keys that are there already are
    /// left alone, which makes it harmless to dispatch a record twice.
    ///
    /// # Errors
    /// The machine refuses; a part of the keys may have been added. Another call with the same keys adds the rest.
    pub(crate) async fn append(&mut self, keys: &[IndexKey]) -> io::Result<()> {
        for key in keys {
            if (key.phy, key.nth) < self.next {
                continue;
            }
            if self.tail.as_ref().is_none_or(IndexTail::is_full) {
                self.begin_file(key.store_ms).await?;
            }
            self.tail.as_mut().expect("there is a file").insert(key);
            self.next = (key.phy, key.nth + 1);
        }
        self.tail.as_mut().map_or(Ok(()), IndexTail::write)
    }

    /// Moves the mark: all records before `phy` have their keys in the index.
    pub(crate) fn advance(&self, phy: u64, store_ms: Option<i64>) {
        let mut mark = self.index.mark.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(phy >= mark.phy, "the index goes back from {} to {phy}", mark.phy);
        mark.phy = phy;
        mark.store_ms = store_ms.unwrap_or(mark.store_ms);
        if let Some(tail) = &self.tail {
            (mark.file, mark.header) = (tail.file.name, tail.header);
        }
    }

    async fn begin_file(&mut self, store_ms: i64) -> io::Result<()> {
        if let Some(tail) = &mut self.tail {
            tail.write()?;
        }
        let previous = self.tail.as_ref().map(|tail| (tail.file.name, tail.header));
        let name = next_name(previous.map(|(name, _)| name), store_ms);
        let Index { files, dir, shape, .. } = &*self.index;
        let file = Arc::new(IndexFile::create(files, dir, name, *shape).await?);
        self.index.names_dirty.store(true, Ordering::Relaxed);
        self.index.write_list().push(Arc::clone(&file));
        self.tail = Some(IndexTail::new(file, previous.map(|(_, header)| header)));
        Ok(())
    }
}

/// The name of a file whose first message has that store time. The reference takes the time of the day; this one is the
/// same when the file is built again. Names must grow, even if the clock was put back.
fn next_name(last: Option<u64>, store_ms: i64) -> u64 {
    name_of_time(store_ms).max(last.map_or(0, |last| last + 1))
}

/// A number that differs if one of the files before `before` that reach to `from` differs.
fn fingerprint(list: &[Arc<IndexFile>], from: u64, before: u64) -> u64 {
    list.iter()
        .filter(|file| file.name < before)
        .map(|file| (file.name, file.header()))
        .filter(|(_, header)| header.end_phy >= from)
        .flat_map(|(name, header)| name.to_be_bytes().into_iter().chain(header.encode()))
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The keys of a record, in the order in which they are indexed: the unique id, then the words of `KEYS`. A rollback mark
/// has none.
pub(crate) fn keys_of<'a>(view: &RecordView<'a>) -> impl Iterator<Item = &'a str> + use<'a> {
    let is_indexed = view.sys_flag.transaction() != Transaction::Rollback;
    let property = |name| if is_indexed { view.property(name) } else { None };
    let words = property(property::KEYS).into_iter().flat_map(|keys| keys.split(' ')).filter(|key| !key.is_empty());
    property(property::UNIQUE_ID).into_iter().chain(words)
}

/// The hash of a key of a topic: that of Java for `topic#key`, without its sign.
pub(crate) fn key_hash(topic: &str, key: &str) -> u32 {
    java_hash_of(&[topic, "#", key]).checked_abs().unwrap_or(0) as u32
}

/// Adds the keys of a record to those of the records before it.
pub(crate) fn push_keys(view: &RecordView<'_>, keys: &mut Vec<IndexKey>) {
    for (nth, key) in (0..).zip(keys_of(view)) {
        keys.push(IndexKey { hash: key_hash(view.topic, key), phy: view.phy.0, store_ms: view.store_ms, nth });
    }
}

#[cfg(test)]
mod tests {
    use super::{key_hash, next_name};

    #[test]
    fn hashes_are_those_of_java_without_their_sign() {
        // The first entry of a store that the reference wrote: 2103532810.
        assert_eq!(key_hash("polygenelubricants", ""), message::java_hash("polygenelubricants#").unsigned_abs());
        assert_eq!(key_hash("Aa", "x"), key_hash("BB", "x"));
        let smallest = key_hash("", "polygenelubricants");
        assert_eq!(smallest, message::java_hash("#polygenelubricants").unsigned_abs());
    }

    #[test]
    fn names_grow_even_if_the_clock_was_put_back() {
        assert_eq!(next_name(None, 0), 19_700_101_000_000_000);
        assert_eq!(next_name(Some(20_261_129_174_419_973), 0), 20_261_129_174_419_974);
        assert_eq!(next_name(Some(19_700_101_000_000_000), 1_795_974_259_973), 20_261_129_174_419_973);
    }
}
