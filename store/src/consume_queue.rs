//! One consume queue: for each message of one topic and queue, in order, where it is in the log.
//!
//! Entry `i` lies at byte `20 * i` of the queue, in files of fixed length. One task appends (the dispatcher, or
//! recovery before it), by positioned writes, which report a full disk; anyone reads.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use host::fs::{File, Files, OpenOptions};
use message::PhyOffset;
use tokio::sync::Notify;

use crate::{
    entry::CqEntry,
    log_file::{file_name, file_start},
};

const ENTRY: u64 = CqEntry::SIZE_BYTES;

/// Slots that are looked at together where damage is searched for.
const SLOTS_TOGETHER: u64 = 128;

/// The files of one queue and what is valid in them.
pub(crate) struct ConsumeQueue {
    pub(crate) topic: String,
    pub(crate) queue_id: u32,
    dir: PathBuf,
    file_bytes: u64,
    /// Identifies the queue in fingerprints.
    name_hash: u64,
    /// Leaf lock.
    state: Mutex<State>,
    /// Told whenever the queue grew.
    pub(crate) grown: Notify,
}

/// `first_entry <= min <= max` once the queue has files.
struct State {
    /// Oldest first, without holes.
    files: VecDeque<QueueFile>,
    /// First entry whose message still exists.
    min: u64,
    /// Behind the last entry.
    max: u64,
    /// Names under `dir` or above it are not durable yet.
    names_dirty: bool,
}

struct QueueFile {
    start: u64,
    file: File,
    path: PathBuf,
    dirty_bytes: u64,
}

/// A file that was found when the store was opened, of the right length.
pub(crate) struct FoundFile {
    pub(crate) start: u64,
    pub(crate) path: PathBuf,
}

/// What of a queue must be synced, taken from it at one moment.
pub(crate) struct Dirty {
    files: Vec<(u64, File, u64)>,
    names: bool,
}

/// First and last offset of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Bounds {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl ConsumeQueue {
    pub(crate) fn new(topic: &str, queue_id: u32, dir: PathBuf, file_bytes: u64) -> ConsumeQueue {
        assert!(file_bytes > 0 && file_bytes.is_multiple_of(ENTRY), "{file_bytes} bytes cut an entry");
        ConsumeQueue {
            topic: topic.to_owned(),
            queue_id,
            dir,
            file_bytes,
            name_hash: topic
                .bytes()
                .chain(queue_id.to_be_bytes())
                .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)),
            state: Mutex::new(State { files: VecDeque::new(), min: 0, max: 0, names_dirty: false }),
            grown: Notify::new(),
        }
    }

    /// Opens files that were found. What is valid in them is decided later, by [`cut`](ConsumeQueue::cut).
    /// If `names_durable`, the last owner has synced their names.
    pub(crate) async fn attach(&self, files: &Files, found: Vec<FoundFile>, names_durable: bool) -> io::Result<()> {
        for FoundFile { start, path } in found {
            let file = files.open(&path, OpenOptions::WRITE).await?;
            let mut state = self.lock();
            state.files.push_back(QueueFile { start, file, path, dirty_bytes: 0 });
            state.min = state.first_entry();
            state.max = state.first_entry();
            state.names_dirty = !names_durable;
        }
        Ok(())
    }

    // ---- reading ----

    pub(crate) fn bounds(&self) -> Bounds {
        let state = self.lock();
        Bounds { min: state.min, max: state.max }
    }

    /// First entry that the files have room for, valid or not.
    pub(crate) fn first_entry(&self) -> u64 {
        self.lock().first_entry()
    }

    /// Behind the last entry that the files have room for.
    pub(crate) fn capacity(&self) -> u64 {
        let state = self.lock();
        state.files.back().map_or(0, |file| (file.start + self.file_bytes) / ENTRY)
    }

    /// Slots `from`, `from + 1`, …, at most `limit`, up to the end of one file; each `None` if it holds no entry.
    /// Whether a slot is valid is for the caller to know.
    ///
    /// # Errors
    /// The machine refuses.
    pub(crate) fn slots(&self, from: u64, limit: usize) -> io::Result<Vec<Option<CqEntry>>> {
        let found = {
            let state = self.lock();
            state.file_of(from * ENTRY, self.file_bytes).map(|index| {
                let file = &state.files[index];
                (file.file.clone(), file.start)
            })
        };
        let Some((file, start)) = found else { return Ok(Vec::new()) };
        let left = (start + self.file_bytes) / ENTRY - from;
        let mut raw = vec![0; left.min(limit as u64) as usize * ENTRY as usize];
        file.read_exact_at(&mut raw, from * ENTRY - start)?;
        let (entries, _) = raw.as_chunks::<{ CqEntry::SIZE_BYTES as usize }>();
        Ok(entries.iter().map(CqEntry::decode).collect())
    }

    /// The slots in front of `index`, not before `from`, as many as are looked at together.
    fn slots_before(&self, index: u64, from: u64) -> io::Result<Vec<Option<CqEntry>>> {
        let start = index.saturating_sub(SLOTS_TOGETHER).max(from).max(self.first_entry()).min(index);
        let mut slots = Vec::new();
        while let at = start + slots.len() as u64
            && at < index
        {
            let piece = self.slots(at, (index - at) as usize)?;
            if piece.is_empty() {
                break; // The file has gone meanwhile.
            }
            slots.extend(piece);
        }
        Ok(slots)
    }

    /// First entry of the file behind the one that holds `index`, or of the queue if `index` lies before it.
    pub(crate) fn next_file_entry(&self, index: u64) -> u64 {
        (index * ENTRY / self.file_bytes + 1).max(self.first_entry() * ENTRY / self.file_bytes) * self.file_bytes
            / ENTRY
    }

    /// Entry `index`, if it is one of a message.
    ///
    /// # Errors
    /// The machine refuses.
    pub(crate) fn entry(&self, index: u64) -> io::Result<Option<CqEntry>> {
        let Bounds { max, .. } = self.bounds();
        if index >= max {
            return Ok(None);
        }
        Ok(self.slots(index, 1)?.first().copied().flatten().filter(|entry| !entry.is_blank()))
    }

    /// The first index in `from..to` for which `is_behind` holds, if it holds for all later ones too; `to` if none.
    pub(crate) fn partition(&self, from: u64, to: u64, is_behind: impl Fn(Option<CqEntry>) -> bool) -> io::Result<u64> {
        let (mut low, mut high) = (from, to);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_behind(self.slots(middle, 1)?.first().copied().flatten()) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }

    // ---- writing ----

    /// Makes the files that entries `from..to` need. A first file starts at the border below `from`, and blank entries
    /// fill it up to there.
    ///
    /// # Errors
    /// The machine refuses; what was made is kept.
    pub(crate) async fn make_room(&self, files: &Files, from: u64, to: u64) -> io::Result<()> {
        loop {
            let next = {
                let state = self.lock();
                match state.files.back() {
                    None => from * ENTRY / self.file_bytes * self.file_bytes,
                    Some(last) if last.start + self.file_bytes < to * ENTRY => last.start + self.file_bytes,
                    Some(_) => return Ok(()),
                }
            };
            files.create_dir_all(&self.dir).await?;
            let path = self.dir.join(file_name(next));
            let file = files.open(&path, OpenOptions::REPLACE).await?;
            file.set_len(self.file_bytes).await?;
            let first_of_queue = self.lock().files.is_empty();
            if first_of_queue && from * ENTRY > next {
                let fill = CqEntry::blank(PhyOffset(0)).encode().repeat((from - next / ENTRY) as usize);
                file.write_all_at(&fill, 0)?;
            }
            let mut state = self.lock();
            state.files.push_back(QueueFile { start: next, file, path, dirty_bytes: self.file_bytes });
            state.names_dirty = true;
            if first_of_queue {
                state.min = from;
                state.max = from;
            }
        }
    }

    /// Writes entries behind the last one. Room must have been made. Returns the change of the fingerprint.
    ///
    /// # Errors
    /// The machine refuses; nothing was appended then.
    pub(crate) fn append(&self, entries: &[CqEntry]) -> io::Result<u64> {
        let mut state = self.lock();
        let before = state.fingerprint(self.name_hash);
        let mut at = state.max * ENTRY;
        let mut raw = Vec::with_capacity(entries.len() * ENTRY as usize);
        for entry in entries {
            raw.extend_from_slice(&entry.encode());
        }
        let mut rest = &raw[..];
        while !rest.is_empty() {
            let index = state.file_of(at, self.file_bytes).expect("room was made for the entries");
            let file = &mut state.files[index];
            let count = (file.start + self.file_bytes - at).min(rest.len() as u64);
            let (now, later) = rest.split_at(count as usize);
            file.file.write_all_at(now, at - file.start)?;
            file.dirty_bytes += count;
            at += count;
            rest = later;
        }
        state.max += entries.len() as u64;
        let after = state.fingerprint(self.name_hash);
        drop(state);
        self.grown.notify_waiters();
        Ok(before ^ after)
    }

    /// Declares that the queue ends at `max`; what lies behind it is overwritten by appends, or erased by
    /// [`seal`](ConsumeQueue::seal).
    pub(crate) fn cut(&self, max: u64) {
        let mut state = self.lock();
        state.max = max;
        state.min = state.min.min(max);
    }

    /// Drops all files, so that the queue can start anew somewhere else. The names go at once, not durably.
    pub(crate) async fn clear(&self, files: &Files) -> io::Result<()> {
        let gone = {
            let mut state = self.lock();
            state.names_dirty = true;
            (state.min, state.max) = (0, 0);
            std::mem::take(&mut state.files)
        };
        for file in gone {
            files.remove_file(&file.path).await?;
        }
        Ok(())
    }

    /// Erases everything behind the end (SF08): later files go, the rest of the last one becomes zeros.
    pub(crate) async fn seal(&self, files: &Files) -> io::Result<()> {
        loop {
            let gone = {
                let mut state = self.lock();
                let end = state.max * ENTRY;
                match state.files.back() {
                    Some(last) if last.start > end => {}
                    // An empty file is kept only where it tells the end of a queue whose messages are all gone.
                    Some(last) if last.start == end && (state.files.len() > 1 || end == 0) => {}
                    _ => break,
                }
                state.names_dirty = true;
                state.files.pop_back()
            };
            let Some(file) = gone else { break };
            files.remove_file(&file.path).await?;
        }
        let mut state = self.lock();
        let end = state.max * ENTRY;
        let Some(last) = state.files.back_mut() else { return Ok(()) };
        let from = end.saturating_sub(last.start);
        if let Some(dirty) = find_dirt(&last.file, from, self.file_bytes)? {
            let zeros = vec![0; (self.file_bytes - dirty) as usize];
            last.file.write_all_at(&zeros, dirty)?;
            last.dirty_bytes += zeros.len() as u64;
        }
        Ok(())
    }

    // ---- durability ----

    /// What must be synced: everything dirty if at least `least_bytes` of one file are, else nothing.
    pub(crate) fn take_dirty(&self, least_bytes: u64) -> Option<Dirty> {
        let mut state = self.lock();
        let bytes = state.files.iter().map(|file| file.dirty_bytes).max().unwrap_or(0);
        if bytes == 0 && !state.names_dirty || bytes < least_bytes {
            return None;
        }
        let names = std::mem::take(&mut state.names_dirty);
        let files = state
            .files
            .iter_mut()
            .filter(|file| file.dirty_bytes > 0)
            .map(|file| (file.start, file.file.clone(), std::mem::take(&mut file.dirty_bytes)))
            .collect();
        Some(Dirty { files, names })
    }

    /// Whether anything is not durable.
    pub(crate) fn is_dirty(&self) -> bool {
        let state = self.lock();
        state.names_dirty || state.files.iter().any(|file| file.dirty_bytes > 0)
    }

    /// Makes durable what [`take_dirty`](ConsumeQueue::take_dirty) gave, but for names: the directories that hold them
    /// are given back, for the caller to sync.
    ///
    /// # Errors
    /// A sync failed: what it covered must be taken for lost.
    pub(crate) async fn sync(&self, dirty: Dirty) -> io::Result<impl Iterator<Item = PathBuf>> {
        for (_, file, _) in dirty.files {
            file.sync_all().await?;
        }
        // The queue may be new, or its topic.
        let depth = if dirty.names { 3 } else { 0 };
        Ok(self.dir.ancestors().take(depth).map(Path::to_owned))
    }

    // ---- retention ----

    /// Raises the minimum to the first entry whose message lies at or behind `log_start`.
    pub(crate) fn correct_min(&self, log_start: u64) -> io::Result<()> {
        let Bounds { min, max } = self.bounds();
        let from = min.max(self.first_entry());
        // Blank entries before the first message have position 0, others that of the next message.
        let counts = |entry: Option<CqEntry>| {
            entry.is_some_and(|entry| entry.phy.0 >= log_start && !(entry.is_blank() && entry.phy.0 == 0))
        };
        let mut found = self.partition(from, max, counts)?;
        // A damaged entry may have misled the search: then one in front of it counts.
        while let before = self.slots_before(found, from)?
            && let Some(earlier) = before.iter().position(|&entry| counts(entry))
        {
            found -= (before.len() - earlier) as u64;
        }
        let mut state = self.lock();
        // Another file may have been removed, but never an entry that counts.
        state.min = state.min.max(found).min(state.max);
        Ok(())
    }

    /// Removes the oldest file if it is not the last and all its messages lie before `log_start`. Returns the change of
    /// the fingerprint if it did.
    ///
    /// # Errors
    /// The machine refuses; the file is not read any more all the same.
    pub(crate) async fn remove_expired(&self, files: &Files, log_start: u64) -> io::Result<Option<u64>> {
        let last_slot = {
            let state = self.lock();
            match state.files.len() {
                0 | 1 => return Ok(None),
                _ => (state.files[0].start + self.file_bytes) / ENTRY - 1,
            }
        };
        let last = self.slots(last_slot, 1)?.first().copied().flatten();
        if last.is_none_or(|entry| entry.phy.0 >= log_start) {
            return Ok(None);
        }
        let (removed, change) = {
            let mut state = self.lock();
            let before = state.fingerprint(self.name_hash);
            let removed = state.files.pop_front().expect("the queue has two files");
            state.min = state.min.max(state.first_entry());
            (removed, before ^ state.fingerprint(self.name_hash))
        };
        files.remove_file(&removed.path).await?;
        files.sync_dir(&self.dir).await?;
        Ok(Some(change))
    }

    /// A number that differs if the queue, its first file or its end differ; 0 for a queue without entries.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.lock().fingerprint(self.name_hash)
    }

    /// As [`fingerprint`](ConsumeQueue::fingerprint), if the queue ended at `max`.
    pub(crate) fn fingerprint_at(&self, max: u64) -> u64 {
        fingerprint(self.name_hash, self.first_entry(), max)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn first_entry(&self) -> u64 {
        self.files.front().map_or(0, |file| file.start / ENTRY)
    }

    fn file_of(&self, at: u64, file_bytes: u64) -> Option<usize> {
        let index = usize::try_from(at.checked_sub(self.files.front()?.start)? / file_bytes).ok()?;
        (index < self.files.len()).then_some(index)
    }

    fn fingerprint(&self, name_hash: u64) -> u64 {
        fingerprint(name_hash, self.first_entry(), self.max)
    }
}

fn fingerprint(name_hash: u64, first_entry: u64, max: u64) -> u64 {
    if max == first_entry {
        return 0;
    }
    // SplitMix64's finaliser, so that sums over queues do not cancel out.
    let mut mixed = name_hash ^ first_entry.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ max.rotate_left(32);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// The first byte in `from..to` of a file that is not zero. What was never written is not read: thousands of queues
/// have files that are almost empty.
pub(crate) fn find_dirt(file: &File, from: u64, to: u64) -> io::Result<Option<u64>> {
    let mut stretches = Vec::new();
    let mut at = from;
    while let Some(data) = file.next_data(at)?.filter(|data| data.start < to) {
        at = data.end;
        stretches.push(data.start..data.end.min(to));
    }
    let mut chunk = vec![0; if stretches.is_empty() { 0 } else { 64 << 10 }];
    for stretch in stretches {
        let mut at = stretch.start;
        while at < stretch.end {
            let count = (stretch.end - at).min(chunk.len() as u64) as usize;
            file.read_exact_at(&mut chunk[..count], at)?;
            if let Some(dirty) = chunk[..count].iter().position(|&byte| byte != 0) {
                return Ok(Some(at + dirty as u64));
            }
            at += count as u64;
        }
    }
    Ok(None)
}

/// Sorts the names of a queue's directory into contiguous files and the rest, which is damaged.
pub(crate) fn contiguous(names: &[String], file_bytes: u64) -> (Vec<u64>, Vec<String>) {
    let mut starts = Vec::new();
    let mut rest = Vec::new();
    for name in names {
        let Some(start) = file_start(name) else { continue };
        let expected = starts.last().map_or(start, |last| last + file_bytes);
        if rest.is_empty() && start == expected && start.is_multiple_of(file_bytes) {
            starts.push(start);
        } else {
            rest.push(name.clone());
        }
    }
    (starts, rest)
}

#[cfg(test)]
mod tests {
    use host::fs::OpenOptions;

    use super::find_dirt;

    /// Reading so much would take hours.
    #[test]
    fn what_was_never_written_is_not_read() {
        const TIB: u64 = 1 << 40;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        host::real::run("test", |host| async move {
            let file = host.files().open(path, OpenOptions::CREATE).await.unwrap();
            file.set_len(TIB).await.unwrap();
            file.write_all_at(&[0, 0, 5], 0).unwrap();
            assert_eq!(find_dirt(&file, 0, TIB).unwrap(), Some(2));
            assert_eq!(find_dirt(&file, 3, TIB).unwrap(), None);
            file.write_all_at(b"x", TIB - 9).unwrap();
            assert_eq!(find_dirt(&file, 3, TIB).unwrap(), Some(TIB - 9));
            assert_eq!(find_dirt(&file, 3, TIB - 9).unwrap(), None);
        })
        .unwrap();
    }
}
