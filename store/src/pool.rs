//! Buffers in front of the log: a message is taken into memory first, and written to its file a little later.
//!
//! An append then never waits for the page cache. The price: what is in a buffer only is gone when the process is
//! killed, acknowledged or not, so nobody but the committer sees it. A buffer belongs to one log file from the first
//! record to the last; a file that finds no free one is written to directly.
//!
//! Source: `spec/store.md` 3.6, 4.4.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use host::{
    Host,
    region::Region,
    worker::{Stop, stopped},
};
use tokio::sync::Notify;
use tracing::warn;

use crate::{
    FlushDiskType, PutError, StoreConfig, StoreError,
    commit_log::CommitLog,
    flush::{GroupCommit, PAGE_BYTES},
    log_file::LogFile,
};

/// How much is written at once, while appends to the same buffer wait.
const PIECE_BYTES: u64 = 256 << 10;

/// The buffers that no file has. Leaf lock.
#[derive(Debug)]
pub(crate) struct BufferPool {
    free: Mutex<Vec<Region>>,
    fails_fast: bool,
}

impl BufferPool {
    /// The buffers, kept in memory if the machine lets them; `None` if the settings want none, or the log is a copy.
    ///
    /// # Errors
    /// The machine has no memory for them.
    pub(crate) async fn new(host: &Host, config: &StoreConfig) -> Result<Option<Arc<BufferPool>>, StoreError> {
        if !config.pool_enabled || config.is_copy {
            return Ok(None);
        }
        if config.flush_disk_type == FlushDiskType::Sync {
            warn!("transientStorePoolEnable does nothing under SYNC_FLUSH: whoever waits for the disk gains nothing");
            return Ok(None);
        }
        let mut free = Vec::new();
        for _ in 0..config.pool_buffers {
            let buffer = Region::anonymous(config.commit_log_file_bytes);
            let buffer = buffer.map_err(StoreError::io("reserve memory for the buffers of", &config.root))?;
            if let Err(error) = host.lock_memory(&buffer).await
                && free.is_empty()
            {
                let error: &dyn std::error::Error = &error;
                warn!(error, "the machine does not keep buffers in memory, writes may be slower");
            }
            free.push(buffer);
        }
        Ok(Some(Arc::new(BufferPool { free: Mutex::new(free), fails_fast: config.pool_fails_fast })))
    }

    /// A buffer for the next file; `None` if the file must do without.
    ///
    /// # Errors
    /// None is free, and the settings want no file without.
    pub(crate) fn take(&self) -> Result<Option<Region>, PutError> {
        let buffer = self.lock().pop();
        host::sometimes!("store.buffers-exhausted", buffer.is_none());
        if buffer.is_none() && self.fails_fast {
            return Err(PutError::NoBuffer);
        }
        Ok(buffer)
    }

    fn give_back(&self, buffers: impl Iterator<Item = Region>) {
        self.lock().extend(buffers);
    }

    /// How many buffers are free.
    pub(crate) fn free(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Region>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file and the buffer that its records are taken into.
#[derive(Debug, Clone)]
struct Buffered {
    file: Arc<LogFile>,
    buffer: Region,
    /// Position in the log behind the last byte in the buffer.
    filled: u64,
}

/// The files whose records may be in memory only, oldest first; only the last is appended to.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    files: VecDeque<Buffered>,
}

impl Buffers {
    /// Whether everything was put into the files themselves.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// From now on records go into `buffer`, for the next file.
    pub(crate) fn push(&mut self, file: Arc<LogFile>, buffer: Region) {
        let filled = file.start;
        self.files.push_back(Buffered { file, buffer, filled });
    }

    /// Puts bytes at `phy` in `file`, or in its buffer if it has one.
    pub(crate) fn store(&mut self, file: &LogFile, phy: u64, bytes: &[u8]) {
        match self.files.back_mut().filter(|last| last.file.start == file.start) {
            Some(last) => {
                last.buffer.write(phy - file.start, bytes);
                last.filled = phy + bytes.len() as u64;
            }
            None => file.mapping.write(phy - file.start, bytes),
        }
    }

    /// What must be written so that files hold everything that is in buffers now.
    pub(crate) fn unwritten(&self) -> Unwritten {
        Unwritten { files: self.files.iter().cloned().collect() }
    }

    /// Forgets the files that end at or before `phy`, of which nothing is in memory only.
    pub(crate) fn forget(&mut self, phy: u64, pool: &BufferPool) {
        let full = self.files.partition_point(|one| one.file.end() <= phy);
        pool.give_back(self.files.drain(..full).map(|one| one.buffer));
    }
}

/// Bytes that are in memory only. Nothing is appended to them; what comes later goes behind them.
pub(crate) struct Unwritten {
    files: Vec<Buffered>,
}

impl Unwritten {
    /// Writes what lies at or behind `from` to the files, where blocks are reserved for it: nothing can be missing
    /// afterwards. Bytes of a buffer that nothing was put into stay out.
    pub(crate) fn write(&self, from: u64) {
        for Buffered { file, buffer, filled } in &self.files {
            let mut at = from.max(file.start);
            while at < *filled {
                let to = (at + PIECE_BYTES).min(*filled);
                buffer.with(at - file.start, to - file.start, |bytes| file.mapping.write(at - file.start, bytes));
                at = to;
            }
        }
    }
}

/// How often buffers are written to their files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommitPace {
    pub(crate) interval: Duration,
    pub(crate) least_pages: u64,
    pub(crate) thorough_interval: Duration,
    /// Each message wakes the committer.
    pub(crate) on_put: bool,
}

/// The one task that writes buffers to their files.
pub(crate) struct Committer {
    pub(crate) host: Host,
    pub(crate) log: Arc<CommitLog>,
    /// Told when something was put into a buffer.
    pub(crate) wake: Arc<Notify>,
    /// Whose flusher is told when something was written.
    pub(crate) group: Arc<GroupCommit>,
    /// The dispatcher's.
    pub(crate) dispatch: Arc<Notify>,
    pub(crate) pace: CommitPace,
}

impl Committer {
    /// Goes on until it is stopped; then it writes what is left.
    pub(crate) async fn run(self, mut stop: Stop) {
        let mut thorough_at = self.host.now();
        loop {
            let is_idle = self.log.uncommitted() == 0;
            host::select! {
                () = stopped(&mut stop) => break,
                () = self.wake.notified(), if is_idle || self.pace.on_put => {
                    if !self.pace.on_put {
                        continue;
                    }
                }
                () = self.host.sleep(self.pace.interval), if !is_idle => {}
            }
            let now = self.host.now();
            let thorough = now >= thorough_at;
            if thorough {
                thorough_at = now + self.pace.thorough_interval;
            }
            if thorough || self.log.uncommitted() / PAGE_BYTES >= self.pace.least_pages {
                self.commit();
            }
        }
        self.commit();
    }

    fn commit(&self) {
        if self.log.commit() {
            self.group.wake.notify_one();
            self.dispatch.notify_one();
        }
    }
}
