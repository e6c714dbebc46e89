//! The dispatcher follows the log and gives each message its entry in its consume queue, and in the index.
//!
//! It goes up to the end of the log, or under sync flush to the end of what is on disk, so that consumers never see a
//! message that a loss of power could take back. An entry that cannot be written stops it, and with it all writes,
//! until it can: nothing is skipped (SF07).

use std::{sync::Arc, time::Duration};

use host::{
    Host,
    worker::{Stop, stopped},
};
use message::DelayLevels;
use tokio::sync::Notify;
use tracing::{error, info};

use crate::{
    commit_log::CommitLog,
    follow::{Checks, Ended, read_run},
    gate::Gate,
    index::IndexWriter,
    queues::{AppendError, ConsumeQueues},
};

/// Pause after an entry could not be written.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Owned by its task.
pub(crate) struct Dispatcher {
    pub(crate) host: Host,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) queues: Arc<ConsumeQueues>,
    /// `None` if messages are not indexed.
    pub(crate) index: Option<IndexWriter>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) delays: DelayLevels,
    pub(crate) bound: Bound,
    /// The log is a master's: its queues may begin anywhere, and have the gaps that they have there.
    pub(crate) is_copy: bool,
    /// Told when the bound has moved.
    pub(crate) wake: Arc<Notify>,
    /// Change of the queues' fingerprint that belongs to records behind the mark.
    pub(crate) change: u64,
}

/// How far readers may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// To the end of the log.
    Written,
    /// To the end of what is on disk.
    Flushed,
}

impl Bound {
    pub(crate) fn of(self, log: &CommitLog) -> u64 {
        match self {
            Bound::Written => log.written(),
            Bound::Flushed => log.flushed(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum DispatchError {
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error("cannot write the index")]
    Index(#[source] std::io::Error),
    #[error("the log cannot be read at {at}")]
    Log { at: u64, source: Option<message::RecordError> },
}

impl Dispatcher {
    /// Goes on until it is stopped; then it finishes what lies before the bound, if that works.
    pub(crate) async fn run(mut self, mut stop: Stop) {
        loop {
            if let Err(error) = self.catch_up().await {
                if self.gate.set_queues_failing(true) {
                    error!(error = &error as &dyn std::error::Error, "dispatch waits, writes are refused");
                }
                host::select! {
                    () = stopped(&mut stop) => return,
                    () = self.host.sleep(RETRY_PAUSE) => continue,
                }
            }
            if self.gate.set_queues_failing(false) {
                info!("dispatch goes on");
            }
            let at_bound = self.queues.reached() == self.bound.of(&self.log);
            host::select! {
                () = self.wake.notified() => {}
                () = stopped(&mut stop), if at_bound => return,
            }
        }
    }

    async fn catch_up(&mut self) -> Result<(), DispatchError> {
        loop {
            let (at, bound) = (self.queues.reached(), self.bound.of(&self.log));
            host::always!("store.dispatched-within-log", at <= bound);
            if at == bound {
                return Ok(());
            }
            let base = self.log.base();
            if at < base {
                self.advance(base, None);
                continue;
            }
            host::gate!("store.dispatching", at).await;
            let one = host::buggify!("store.dispatched-one-by-one").then(|| self.log.record(at)).flatten();
            let bytes = one.or_else(|| self.log.readable(at, bound)).ok_or(DispatchError::Log { at, source: None })?;
            let run = read_run(&bytes, at, Checks::STRUCTURE, self.index.is_some(), &self.delays);
            for group in &run.groups {
                if self.is_copy {
                    self.change ^= self.queues.fill_up_to(group).await.map_err(AppendError::from)?;
                }
                self.change ^= self.queues.append(group).await?;
            }
            if let Some(index) = &mut self.index {
                index.append(&run.keys).await.map_err(DispatchError::Index)?;
            }
            if run.bytes == 0 {
                let source = match run.ended {
                    Ended::Invalid(source) => Some(source),
                    Ended::More | Ended::Blank { .. } => None,
                };
                return Err(DispatchError::Log { at, source });
            }
            let store_ms = run.last_at.map(|_| run.last_store_ms);
            self.advance(at + run.bytes, store_ms);
        }
    }

    fn advance(&mut self, phy: u64, store_ms: Option<i64>) {
        if let Some(index) = &self.index {
            index.advance(phy, store_ms);
        }
        self.queues.advance(phy, store_ms, std::mem::take(&mut self.change));
    }
}
