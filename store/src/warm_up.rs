//! What is done to a log file so that the first writes to it do not wait for the machine.
//!
//! None of it changes a byte. A machine that refuses to lock memory costs speed, so it is told of and nothing more.
//!
//! Source: `spec/store.md` 3.5.

use std::{
    io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use host::fs::{Advice, Mapping};
use tracing::warn;

use crate::{FlushDiskType, StoreConfig, flush::PAGE_BYTES};

/// How long a file stays in memory after the last write to it, for those who read what was just written.
pub(crate) const UNLOCK_DELAY: Duration = Duration::from_secs(6);

/// The settings, and what was told already.
#[derive(Debug)]
pub(crate) struct WarmUp {
    warms: bool,
    /// Bytes between two syncs of the pages that were brought in; `None` without syncs.
    sync_every: Option<u64>,
    reads_ahead: bool,
    told: AtomicBool,
}

impl WarmUp {
    pub(crate) fn new(config: &StoreConfig) -> WarmUp {
        let syncs = config.flush_disk_type == FlushDiskType::Sync;
        WarmUp {
            warms: config.warm_files,
            sync_every: syncs.then(|| config.warm_flush_pages.max(1).saturating_mul(PAGE_BYTES)),
            reads_ahead: config.read_ahead,
            told: AtomicBool::new(false),
        }
    }

    /// Whether files are locked, so that somebody must unlock them.
    pub(crate) fn locks(&self) -> bool {
        self.warms
    }

    /// Says how a file will be read.
    pub(crate) fn advise(&self, mapping: &Mapping, path: &Path) {
        if !self.reads_ahead {
            self.tell(mapping.advise(Advice::Random), path);
        }
    }

    /// Prepares a file that was made just now and has no content yet.
    ///
    /// # Errors
    /// The pages could not be synced.
    pub(crate) async fn prepare(&self, mapping: &Mapping, path: &Path) -> io::Result<()> {
        self.advise(mapping, path);
        if !self.warms {
            return Ok(());
        }
        let len = mapping.len();
        let step = self.sync_every.unwrap_or(len);
        let mut at = 0;
        while at < len {
            let to = at.saturating_add(step).min(len);
            mapping.touch(at, to).await?;
            if self.sync_every.is_some() {
                mapping.sync(at, to).await?;
            }
            at = to;
        }
        let locked = mapping.lock().await;
        host::sometimes!("store.lock-refused", locked.is_err());
        self.tell(locked, path);
        self.tell(mapping.advise(Advice::WillNeed), path);
        Ok(())
    }

    /// Lets a file go that is full.
    pub(crate) fn release(&self, mapping: &Mapping, path: &Path) {
        self.tell(mapping.unlock(), path);
    }

    /// One line is enough: a limit that is too low stays too low.
    fn tell(&self, result: io::Result<()>, path: &Path) {
        if let Err(error) = result
            && !self.told.swap(true, Ordering::Relaxed)
        {
            warn!(
                error = &error as &dyn std::error::Error,
                file = %path.display(),
                "the machine does not keep log files in memory, writes may be slower"
            );
        }
    }
}
