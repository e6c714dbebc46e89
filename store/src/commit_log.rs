//! The commit log: all messages of a broker, one behind the other.
//!
//! Appending happens under one short lock, in memory: the record is copied into the mapped file, and its end published.
//! Making it durable, handing it to consume queues and making the next file are tasks that follow. The log does not
//! know what a topic is; it only counts, per queue, the offset that the next message gets.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use host::{Host, fs::Files, time::Mono};
use indexmap::IndexMap;
use message::{BLANK_BYTES, PhyOffset, QueueOffset, RecordView, Stamp, encode_blank, stamp};
use tokio::sync::{Notify, futures::Notified};

mod copied;

use crate::{
    Put, PutError, StoreConfig, WriteBlock,
    log_file::LogFile,
    pool::{BufferPool, Buffers},
    warm_up::{UNLOCK_DELAY, WarmUp},
};

/// The files, the end that appends move, and the end of what is on disk.
///
/// `flushed <= written <=` the end of appends, and all three only grow; the last two differ only with a buffer pool. Owned by the store; appended to by anyone, flushed by one task.
pub(crate) struct CommitLog {
    host: Host,
    files: Files,
    dir: PathBuf,
    file_bytes: u64,
    warm_up: WarmUp,
    /// `None` if messages go into the files at once.
    pool: Option<Arc<BufferPool>>,
    /// Held while buffers are written to files, by one at a time; `tail` is locked meanwhile.
    committing: Mutex<()>,
    /// Oldest first, without holes; the last may be a file that is not in use yet. Leaf lock.
    segments: RwLock<Vec<Arc<LogFile>>>,
    /// Leaf lock.
    tail: Mutex<Tail>,
    /// Everything below was written completely, to the files.
    written: AtomicU64,
    /// Everything below is on disk.
    flushed: AtomicU64,
    /// When the append that is under way began, in nanoseconds since boot; 0 if none is.
    append_begun: AtomicU64,
    /// A deletion may not be durable, and nobody can tell.
    names_unknown: AtomicBool,
    /// Nothing lies before this, because an empty log was begun anew here.
    base: AtomicU64,
    /// `written` moved. Appends tell only once somebody has asked.
    grown: Notify,
    is_followed: AtomicBool,
    /// `flushed` moved.
    pub(crate) synced: Notify,
    /// Someone waits for the next file to be made.
    pub(crate) file_wanted: Notify,
    /// The next file was made, or could not be.
    pub(crate) file_decided: Notify,
}

/// Where appends go. The owner of everything an append changes.
struct Tail {
    /// `None` until the first file of a new store exists.
    active: Option<Arc<LogFile>>,
    end: u64,
    spare: Spare,
    /// By topic and queue, the offset that the next message gets. Only grows with topics in use.
    next_offsets: IndexMap<String, BTreeMap<u32, u64>>,
    /// Of the last record that was appended.
    last_store_ms: i64,
    /// Of the last record that was written.
    written_ms: i64,
    buffers: Buffers,
    /// Full files that are still kept in memory, and until when.
    locked: VecDeque<(Mono, Arc<LogFile>)>,
    /// Bytes behind `end` of a copied record that is not complete yet. Nobody sees them.
    partial: u64,
    /// Where an empty log is to begin anew.
    begin_at: Option<u64>,
    closed: bool,
}

enum Spare {
    NotNeeded,
    Wanted,
    Failed,
    Ready(Arc<LogFile>),
}

/// What recovery found.
pub(crate) struct LogState {
    /// Oldest first, without holes.
    pub(crate) segments: Vec<Arc<LogFile>>,
    /// End of the valid records; everything below is on disk.
    pub(crate) end: u64,
    pub(crate) next_offsets: IndexMap<String, BTreeMap<u32, u64>>,
    pub(crate) last_store_ms: i64,
    /// It ends where a clean exit left it.
    pub(crate) is_continued: bool,
}

/// One encoded record and the queue it belongs to.
pub(crate) struct Entry<'a> {
    pub(crate) topic: &'a str,
    pub(crate) queue_id: u32,
    /// Half messages and rollback marks have no place in their queue.
    pub(crate) counts: bool,
    /// As `Draft::encode` made it.
    pub(crate) record: &'a mut [u8],
}

impl CommitLog {
    pub(crate) fn new(
        host: &Host,
        dir: PathBuf,
        config: &StoreConfig,
        pool: Option<Arc<BufferPool>>,
        state: LogState,
    ) -> CommitLog {
        let warm_up = WarmUp::new(config);
        for file in &state.segments {
            warm_up.advise(&file.mapping, &file.path);
        }
        let active = state.segments.last().filter(|file| state.end < file.end()).cloned();
        let spare = if active.is_some() { Spare::NotNeeded } else { Spare::Wanted };
        let log = CommitLog {
            host: host.clone(),
            files: host.files(),
            dir,
            file_bytes: config.commit_log_file_bytes,
            warm_up,
            pool,
            committing: Mutex::default(),
            segments: RwLock::new(state.segments),
            written: AtomicU64::new(state.end),
            flushed: AtomicU64::new(state.end),
            tail: Mutex::new(Tail {
                active,
                end: state.end,
                spare,
                next_offsets: state.next_offsets,
                last_store_ms: state.last_store_ms,
                written_ms: state.last_store_ms,
                buffers: Buffers::default(),
                locked: VecDeque::new(),
                partial: 0,
                begin_at: None,
                closed: false,
            }),
            append_begun: AtomicU64::new(0),
            names_unknown: AtomicBool::new(false),
            base: AtomicU64::new(0),
            is_followed: AtomicBool::new(false),
            grown: Notify::new(),
            synced: Notify::new(),
            file_wanted: Notify::new(),
            file_decided: Notify::new(),
        };
        log.lock_tail().ask_for_spare(&log);
        log
    }

    // ---- writing ----

    /// Appends records side by side in one file, all or none, and tells where each went, in order.
    ///
    /// # Errors
    /// The log is closed, the next file is missing, or the records do not fit a file.
    pub(crate) fn append(&self, entries: &mut [Entry<'_>], mut told: impl FnMut(Put)) -> Result<(), PutError> {
        let total: u64 = entries.iter().map(|entry| entry.record.len() as u64).sum();
        if total + BLANK_BYTES as u64 > self.file_bytes {
            let reason = format!("{total} bytes do not fit a log file of {} bytes", self.file_bytes);
            return Err(PutError::Illegal { reason });
        }
        let mut tail = self.lock_tail();
        if tail.closed {
            return Err(WriteBlock::Stopped.into());
        }
        let _timed = Timed::begin(self);
        let active = tail.file_for(self, total)?;
        let store_ms = self.host.wall_ms().max(1); // Recovery takes a time of 0 for damage, whatever the clock says.
        for entry in entries {
            let queue_offset =
                QueueOffset(if entry.counts { tail.take_offset(entry.topic, entry.queue_id) } else { 0 });
            let phy = PhyOffset(tail.end);
            stamp(entry.record, Stamp { queue_offset, phy, store_ms });
            let end = tail.end;
            tail.buffers.store(&active, end, entry.record);
            tail.end += entry.record.len() as u64;
            told(Put { phy, size_bytes: entry.record.len() as u32, queue_offset, store_ms });
        }
        tail.last_store_ms = store_ms;
        assert!(tail.end + BLANK_BYTES as u64 <= active.end(), "a file keeps room for its blank record");
        let is_written = tail.buffers.is_empty();
        if is_written {
            tail.publish(self);
        }
        if active.end() - tail.end < self.file_bytes / 2 {
            tail.ask_for_spare(self);
        }
        let is_followed = self.is_followed.load(Ordering::Relaxed);
        drop(tail);
        if is_written {
            if is_followed {
                self.grown.notify_waiters();
            }
            if self.pool.is_some() {
                self.tell_committed();
            }
        }
        Ok(())
    }

    /// With a buffer pool, a kill of the process leaves everything up to here.
    fn tell_committed(&self) {
        host::point!("store.committed", self.written());
    }

    /// Refuses appends from now on; the end does not move any more.
    pub(crate) fn close(&self) {
        self.lock_tail().closed = true;
    }

    /// Writes to the files what is in buffers only. True if there was anything.
    pub(crate) fn commit(&self) -> bool {
        let _one_at_a_time = self.committing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pool) = &self.pool else { return false };
        let written = self.written();
        let (unwritten, end, store_ms) = {
            let tail = self.lock_tail();
            if tail.end == written {
                return false;
            }
            (tail.buffers.unwritten(), tail.end, tail.last_store_ms)
        };
        unwritten.write(written);
        {
            let mut tail = self.lock_tail();
            tail.buffers.forget(end, pool);
            if tail.buffers.is_empty() {
                // The file in use has no buffer: what was appended meanwhile is in it already.
                tail.publish(self);
            } else {
                tail.written_ms = store_ms;
                self.written.store(end, Ordering::Release);
            }
        }
        self.grown.notify_waiters();
        self.tell_committed();
        true
    }

    /// Makes everything written so far durable and returns the new flushed position with the store time of the last
    /// record below it. One caller at a time.
    ///
    /// # Errors
    /// A sync failed: nothing may be assumed about the range, and it must not be tried again (SF09).
    pub(crate) async fn flush(&self) -> io::Result<(u64, i64)> {
        let (target, store_ms) = {
            let tail = self.lock_tail();
            (self.written(), tail.written_ms)
        };
        let from = self.flushed();
        assert!(from <= target, "flushed {from} lies beyond written {target}");
        let segments: Vec<Arc<LogFile>> =
            self.read_segments().iter().filter(|file| file.start < target && file.end() > from).cloned().collect();
        host::gate!("store.flushing", target).await;
        for file in segments {
            let (from, to) = (from.max(file.start) - file.start, target.min(file.end()) - file.start);
            file.mapping.sync(from, to).await?;
        }
        self.set_flushed(target);
        Ok((target, store_ms))
    }

    /// Declares everything written so far flushed, without looking: a planted bug.
    pub(crate) fn pretend_flush(&self) -> u64 {
        let target = self.written();
        self.set_flushed(target);
        target
    }

    fn set_flushed(&self, target: u64) {
        host::always!("store.flushed-within-log", target <= self.written());
        self.flushed.store(target, Ordering::Release);
        self.synced.notify_waiters();
        host::point!("store.flushed", target);
    }

    // ---- reading ----

    /// Start of the oldest file.
    pub(crate) fn start(&self) -> u64 {
        self.read_segments().first().map_or_else(|| self.written(), |file| file.start)
    }

    /// End of what was written.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Ends when what was written has grown after this call.
    pub(crate) fn grown(&self) -> Notified<'_> {
        if !self.is_followed.load(Ordering::Acquire) {
            // Under the lock: an append that did not see this has written before the caller looks how far that is.
            let _tail = self.lock_tail();
            self.is_followed.store(true, Ordering::Release);
        }
        self.grown.notified()
    }

    /// For how long an append has been under way; zero if none is.
    pub(crate) fn append_lock(&self) -> Duration {
        match self.append_begun.load(Ordering::Acquire) {
            0 => Duration::ZERO,
            begun => self.host.now().since(Mono::from_nanos(begun)),
        }
    }

    /// End of what was appended.
    pub(crate) fn appended(&self) -> u64 {
        self.lock_tail().end
    }

    /// Bytes that were appended and are in no file yet.
    pub(crate) fn uncommitted(&self) -> u64 {
        self.appended() - self.written()
    }

    /// Buffers that no file has; `None` without a pool.
    pub(crate) fn free_buffers(&self) -> Option<usize> {
        self.pool.as_ref().map(|pool| pool.free())
    }

    /// End of what is on disk.
    pub(crate) fn flushed(&self) -> u64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// `len` bytes from `phy`, if they were written and lie in one file that still exists.
    pub(crate) fn slice(&self, phy: u64, len: u64) -> Option<Bytes> {
        let to = phy.checked_add(len).filter(|&to| to <= self.written())?;
        let file = self.segment(phy).filter(|file| to <= file.end())?;
        Some(file.mapping.slice(phy - file.start, to - file.start))
    }

    /// The bytes from `phy` up to `bound` or the end of the file, at most `limit`, unless one record needs more.
    pub(crate) fn readable(&self, phy: u64, bound: u64) -> Option<Bytes> {
        let bound = bound.min(self.written());
        let file = self.segment(phy)?;
        let to = bound.min(file.end());
        (phy < to).then(|| file.mapping.slice(phy - file.start, to - file.start))
    }

    /// The whole record that starts at `phy`. `None` if none does.
    pub(crate) fn record(&self, phy: u64) -> Option<Bytes> {
        let rest = self.readable(phy, self.written())?;
        let view = RecordView::parse(&rest).ok().filter(|view| view.phy.0 == phy)?;
        let size = view.size_bytes as usize;
        Some(rest.slice(..size))
    }

    /// Start of the file behind the one that holds `phy`, or the start of the log if `phy` lies before it.
    pub(crate) fn next_file_start(&self, phy: u64) -> u64 {
        self.segment(phy).map_or_else(|| self.start(), |file| file.end())
    }

    fn segment(&self, phy: u64) -> Option<Arc<LogFile>> {
        let segments = self.read_segments();
        let index = usize::try_from(phy.checked_sub(segments.first()?.start)? / self.file_bytes).ok()?;
        segments.get(index).cloned()
    }

    // ---- files ----

    /// Makes the next file if one is wanted. True if one was made.
    ///
    /// # Errors
    /// The machine refuses; whoever waits is told, and the next call tries again.
    pub(crate) async fn make_spare(&self) -> io::Result<bool> {
        let (start, begin_at) = {
            let tail = self.lock_tail();
            match tail.spare {
                Spare::Wanted | Spare::Failed => {}
                Spare::NotNeeded | Spare::Ready(_) => return Ok(false),
            }
            let start = tail.active.as_ref().map_or(tail.end, |active| active.end());
            (tail.begin_at.unwrap_or(start), tail.begin_at)
        };
        let ready = match begin_at {
            Some(start) => self.begin_at(start).await,
            None => Ok(()),
        };
        let made = match ready {
            Ok(()) => LogFile::create(&self.files, &self.dir, start, self.file_bytes, &self.warm_up).await,
            Err(error) => Err(error),
        };
        let made = made.map(|file| {
            host::point!("store.log-file-made", start);
            let file = Arc::new(file);
            // Readers find it before the first record can be in it.
            self.segments.write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&file));
            file
        });
        let result = made.as_ref().map(|_| true).map_err(|error| io::Error::new(error.kind(), error.to_string()));
        self.lock_tail().spare = made.map_or(Spare::Failed, Spare::Ready);
        self.file_decided.notify_waiters();
        result
    }

    /// When the next full file may leave memory. `None` if none is kept there.
    pub(crate) fn next_unlock(&self) -> Option<Mono> {
        self.lock_tail().locked.front().map(|(due, _)| *due)
    }

    /// Lets the machine take back the memory of files that have been full for a while.
    pub(crate) fn unlock_full(&self) {
        let now = self.host.now();
        let due: Vec<Arc<LogFile>> = {
            let mut tail = self.lock_tail();
            let count = tail.locked.partition_point(|(due, _)| *due <= now);
            tail.locked.drain(..count).map(|(_, file)| file).collect()
        };
        for file in due {
            self.warm_up.release(&file.mapping, &file.path);
            host::point!("store.file-unlocked", file.start);
        }
    }

    /// Removes the file that was made ahead, if it was not used. For a clean exit.
    ///
    /// # Errors
    /// The machine refuses.
    pub(crate) async fn drop_spare(&self) -> io::Result<()> {
        let spare = std::mem::replace(&mut self.lock_tail().spare, Spare::NotNeeded);
        let Spare::Ready(file) = spare else { return Ok(()) };
        self.segments.write().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, &file));
        self.files.remove_file(&file.path).await?;
        self.files.sync_dir(&self.dir).await
    }

    /// The oldest file, if it is not the one that is appended to, and the one behind it.
    pub(crate) fn oldest(&self) -> Option<(Arc<LogFile>, Arc<LogFile>)> {
        let active = self.lock_tail().active.as_ref().map(|file| file.start)?;
        let segments = self.read_segments();
        let [oldest, next, ..] = &segments[..] else { return None };
        (oldest.start < active).then(|| (Arc::clone(oldest), Arc::clone(next)))
    }

    /// Removes the oldest file; the removal is durable when this returns. Readers keep what they were given.
    ///
    /// # Errors
    /// The machine refuses; the file is not read any more all the same.
    pub(crate) async fn remove_oldest(&self) -> io::Result<u64> {
        let Some((oldest, _)) = self.oldest() else { return Ok(self.start()) };
        if self.names_unknown.load(Ordering::Acquire) {
            return Err(io::Error::other("a flush of the directory failed, files are deleted again after a restart"));
        }
        match self.files.remove_file(&oldest.path).await {
            // Somebody else removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result?,
        }
        self.segments.write().unwrap_or_else(PoisonError::into_inner).retain(|file| !Arc::ptr_eq(file, &oldest));
        if let Err(error) = self.files.sync_dir(&self.dir).await {
            // This file may come back after a loss of power. With the next one gone too there would be a hole.
            self.names_unknown.store(true, Ordering::Release);
            return Err(error);
        }
        host::point!("store.file-deleted", oldest.start);
        Ok(oldest.end())
    }

    fn read_segments(&self) -> std::sync::RwLockReadGuard<'_, Vec<Arc<LogFile>>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file has its blank, and the next one, which starts at `start`, has no record.
fn tell_rolled(start: u64) {
    host::point!("store.log-rolled", start);
}

/// Says that an append is under way, as long as it lives.
struct Timed<'a>(&'a AtomicU64);

impl Timed<'_> {
    fn begin(log: &CommitLog) -> Timed<'_> {
        log.append_begun.store(log.host.now_coarse().as_nanos().max(1), Ordering::Release);
        Timed(&log.append_begun)
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

impl Tail {
    /// The file that takes `bytes` more and a blank record; goes on to the next file if the present one is too full.
    fn file_for(&mut self, log: &CommitLog, bytes: u64) -> Result<Arc<LogFile>, PutError> {
        let room = self.active.as_ref().map_or(0, |active| active.end() - self.end);
        if let Some(active) = &self.active
            && bytes + BLANK_BYTES as u64 <= room
            && !self.rolls_early(room, log.file_bytes)
        {
            return Ok(Arc::clone(active));
        }
        let next = self.ready_spare(log)?;
        // Before a buffer is asked for: that of the present file may be the next one, once it is written.
        if let Some(active) = self.active.as_ref().filter(|_| room > 0) {
            let blank = encode_blank(u32::try_from(room).expect("records end in a file below 4 GiB"));
            self.buffers.store(active, self.end, &blank);
            self.end += room;
            if log.warm_up.locks() {
                self.locked.push_back((log.host.now() + UNLOCK_DELAY, Arc::clone(active)));
            }
            tell_rolled(next.start);
        }
        let buffer = match &log.pool {
            Some(pool) => pool.take()?,
            None => None,
        };
        assert_eq!(self.end, next.start, "the next file starts where the last one ends");
        if let Some(buffer) = buffer {
            if self.buffers.is_empty() {
                self.publish(log);
            }
            self.buffers.push(Arc::clone(&next), buffer);
        }
        self.active = Some(Arc::clone(&next));
        // As in the reference, the file behind the next one is made as soon as the next one is in use.
        self.spare = Spare::NotNeeded;
        self.ask_for_spare(log);
        Ok(next)
    }

    /// The next file, which stays the spare one. If it is not there yet, it is asked for.
    fn ready_spare(&mut self, log: &CommitLog) -> Result<Arc<LogFile>, PutError> {
        match &self.spare {
            Spare::Ready(next) => Ok(Arc::clone(next)),
            Spare::Failed => Err(PutError::CreateFile),
            Spare::NotNeeded | Spare::Wanted => {
                self.ask_for_spare(log);
                Err(PutError::FileNotReady)
            }
        }
    }

    /// On a stand, whether a file that is more than half full counts as full. A blank may stand anywhere behind a record.
    fn rolls_early(&self, room: u64, file_bytes: u64) -> bool {
        matches!(self.spare, Spare::Ready(_)) && room < file_bytes / 2 && host::buggify!("store.rolled-early")
    }

    /// Shows everything that was appended. It must be in the files.
    fn publish(&mut self, log: &CommitLog) {
        self.written_ms = self.last_store_ms;
        log.written.store(self.end, Ordering::Release);
    }

    fn ask_for_spare(&mut self, log: &CommitLog) {
        if matches!(self.spare, Spare::NotNeeded) {
            self.spare = Spare::Wanted;
        }
        if matches!(self.spare, Spare::Wanted) {
            log.file_wanted.notify_one();
        }
    }

    fn take_offset(&mut self, topic: &str, queue_id: u32) -> u64 {
        let queues = match self.next_offsets.get_mut(topic) {
            Some(queues) => queues,
            None => self.next_offsets.entry(topic.to_owned()).or_default(),
        };
        let next = queues.entry(queue_id).or_insert(0);
        *next += 1;
        *next - 1
    }
}
