//! Makes consume queues and the index durable now and then, and writes down how far everything is.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use host::{
    Host,
    worker::{Stop, stopped},
};
use tracing::{error, warn};

use crate::{
    checkpoint::{Base, Checkpoint, FlushedMark, Known},
    commit_log::CommitLog,
    flush::GroupCommit,
    index::{Index, IndexMark},
    queues::{ConsumeQueues, Mark},
};

/// The one task that syncs consume queues and index files and writes the checkpoint.
pub(crate) struct Checkpointer {
    pub(crate) host: Host,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) queues: Arc<ConsumeQueues>,
    /// `None` if messages are not indexed.
    pub(crate) index: Option<Arc<Index>>,
    pub(crate) group: Arc<GroupCommit>,
    pub(crate) flushed: Arc<FlushedMark>,
    pub(crate) checkpoint: Checkpoint,
    /// The checkpoint could not be written when that was tried last.
    pub(crate) is_stuck: bool,
    /// As it stands in the file.
    pub(crate) base: Base,
    /// As it stands in the file.
    pub(crate) known: Known,
    /// The queues' mark of which all entries are on disk.
    pub(crate) durable: Mark,
    /// The index's mark before which all keys are on disk.
    pub(crate) durable_index: Option<IndexMark>,
    pub(crate) pace: QueuePace,
    /// Set if everything was on disk when the task ended.
    pub(crate) ended_clean: Arc<AtomicBool>,
}

/// How often queues are flushed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueuePace {
    pub(crate) interval: Duration,
    /// Dirty bytes below which a queue waits for a thorough pass.
    pub(crate) least_bytes: u64,
    pub(crate) thorough_interval: Duration,
}

impl Checkpointer {
    pub(crate) async fn run(mut self, mut stop: Stop) {
        let mut thorough_at = self.host.now(); // The first pass takes everything.
        let mut all_clean = true;
        loop {
            host::select! {
                () = stopped(&mut stop) => break,
                () = self.queues.changed.notified() => {}
                () = self.host.sleep_until(thorough_at), if !all_clean => {}
            }
            host::select! {
                () = stopped(&mut stop) => break,
                () = self.host.sleep(self.pace.interval) => {}
            }
            let thorough = self.host.now() >= thorough_at;
            match self.pass(if thorough { 0 } else { self.pace.least_bytes }, false).await {
                Ok(clean) => all_clean = clean,
                Err(error) => return self.fail(&error),
            }
            if thorough {
                thorough_at = self.host.now() + self.pace.thorough_interval;
            }
        }
        let caught_up = self.queues.reached() == self.log.written() && self.log.flushed() == self.log.written();
        match self.pass(0, caught_up && !self.group.is_fenced()).await {
            Ok(clean) => self.ended_clean.store(clean && self.known.clean, Ordering::Release),
            Err(error) => self.fail(&error),
        }
    }

    /// Syncs queues with enough dirty bytes, and the index if it has enough or has waited long enough, and writes the
    /// checkpoint if that changes it. True if nothing was left dirty.
    async fn pass(&mut self, least_bytes: u64, clean: bool) -> io::Result<bool> {
        let mark = self.queues.mark(); // Before the syncs, which then cover every entry before it.
        let queues_clean = self.queues.flush(least_bytes).await?;
        if queues_clean {
            self.durable = mark;
        }
        let all_clean = self.flush_index(least_bytes == 0).await? && queues_clean;
        let (flushed, physic_ms) = self.flushed.get();
        let index_ms = self.durable_index.map_or(self.base.index_ms, |mark| mark.store_ms);
        let base = Base { physic_ms, logics_ms: self.durable.store_ms, index_ms, ..self.base };
        let log_start = self.log.start();
        let known = Known {
            flushed,
            // The entries may be on disk while the records are not: what counts is what both agree on.
            queues_durable: self.durable.phy,
            fingerprint: self.durable.fingerprint,
            clean: clean && all_clean,
            index: self.index.as_ref().zip(self.durable_index).and_then(|(index, mark)| index.known(mark, log_start)),
        };
        let is_written = (base, known) == (self.base, self.known) || self.write(base, known).await;
        if let Some(index) = &self.index {
            index.checkpointed(self.known.index);
        }
        Ok(all_clean && is_written)
    }

    /// Writes the checkpoint, and says whether that worked. It only tells the next start where to begin, and any older one
    /// is as true: without it that start reads more of the log, so no message has to wait for it (`spec/store.md` 4.6).
    async fn write(&mut self, base: Base, known: Known) -> bool {
        match self.checkpoint.write(base, known).await {
            Ok(()) => {
                (self.base, self.known) = (base, known);
                self.is_stuck = false;
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_stuck, true) {
                    let path = self.checkpoint.path().display();
                    warn!(error = &error as &dyn std::error::Error, checkpoint = %path, "cannot be written, tried again");
                }
            }
        }
        !self.is_stuck
    }

    /// True if nothing was left dirty.
    async fn flush_index(&mut self, thorough: bool) -> io::Result<bool> {
        let Some(index) = &self.index else { return Ok(true) };
        if !thorough && !index.is_pressing() {
            return Ok(!index.is_dirty());
        }
        let mark = index.mark(); // Before the sync, as above.
        index.flush().await?;
        self.durable_index = Some(mark);
        Ok(true)
    }

    fn fail(&self, error: &io::Error) {
        self.group.fence();
        let error = error as &dyn std::error::Error;
        error!(error, "consume queues or index cannot be made durable, writes end");
    }
}
