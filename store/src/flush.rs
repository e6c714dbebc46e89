//! Making the log durable: under sync flush for those who wait, under async flush now and then.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use host::{
    Host,
    time::Mono,
    worker::{Stop, stopped},
};
use tokio::sync::{Notify, oneshot};
use tracing::{error, warn};

use crate::{
    Durability, FlushDiskType, Flushed, StoreConfig, checkpoint::FlushedMark, commit_log::CommitLog, gate::Gate,
    stats::Stats,
};

/// Page by which dirty bytes are counted.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// How much later than usual a flush may begin on a stand.
const LATE: Duration = Duration::from_millis(20);

/// Those who wait for the disk, in the order of their deadlines. One sync serves all that it covers.
pub(crate) struct GroupCommit {
    host: Host,
    log: Arc<CommitLog>,
    gate: Arc<Gate>,
    stats: Arc<Stats>,
    mode: FlushDiskType,
    timeout: Duration,
    /// Leaf lock.
    waiters: Mutex<VecDeque<Waiter>>,
    /// There is something to flush.
    pub(crate) wake: Notify,
    /// There is someone who wants it flushed now.
    demand: Notify,
}

struct Waiter {
    end: u64,
    /// When a message began to wait; `None` for whoever else asks.
    since: Option<Mono>,
    deadline: Mono,
    tell: oneshot::Sender<Flushed>,
}

impl GroupCommit {
    pub(crate) fn new(
        host: &Host,
        log: Arc<CommitLog>,
        gate: Arc<Gate>,
        stats: Arc<Stats>,
        config: &StoreConfig,
    ) -> GroupCommit {
        GroupCommit {
            host: host.clone(),
            log,
            gate,
            stats,
            mode: config.flush_disk_type,
            timeout: config.sync_flush_timeout,
            waiters: Mutex::default(),
            wake: Notify::new(),
            demand: Notify::new(),
        }
    }

    /// See [`crate::Store::durability`].
    pub(crate) fn durability(&self, end: u64) -> Durability {
        if self.mode == FlushDiskType::Async || host::mutant!("ack-before-flush") {
            return Durability::known(Flushed::Done);
        }
        let now = self.host.now();
        let durability = self.wait_for(end, Some(now));
        if durability.now().is_some() {
            self.stats.put_took(now);
        }
        durability
    }

    /// Waits until the log up to `end` is on disk, whatever the settings, and sees to it that this happens now.
    pub(crate) fn demand(&self, end: u64) -> Durability {
        self.wait_for(end, None)
    }

    fn wait_for(&self, end: u64, since: Option<Mono>) -> Durability {
        let (tell, told) = oneshot::channel();
        {
            // Under the lock: whoever flushed up to `end` meanwhile has told its waiters, or will find this one.
            let mut waiters = self.lock();
            if self.log.flushed() >= end {
                return Durability::known(Flushed::Done);
            }
            if self.gate.is_fenced() {
                return Durability::known(Flushed::Failed);
            }
            waiters.push_back(Waiter { end, since, deadline: self.host.now() + self.timeout, tell });
        }
        self.demand.notify_one();
        Durability::waiting(told)
    }

    /// Nothing more is written, because a file failed without which nothing can be made durable. Whoever waits is told.
    pub(crate) fn fence(&self) {
        self.gate.fence();
        self.tell(Flushed::Failed, |_| true);
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.gate.is_fenced()
    }

    /// Tells everyone whose message is on disk.
    fn tell_flushed(&self, flushed: u64) {
        self.tell(Flushed::Done, |waiter| waiter.end <= flushed);
    }

    fn tell(&self, outcome: Flushed, whom: impl Fn(&Waiter) -> bool) {
        let told: Vec<Waiter> = {
            let mut waiters = self.lock();
            let (told, left) = waiters.drain(..).partition(|waiter| whom(waiter));
            *waiters = left;
            Vec::from(told)
        };
        host::sometimes!("store.flush-shared", told.len() > 1);
        for waiter in told {
            if let Some(since) = waiter.since {
                self.stats.put_took(since);
            }
            // Whoever has stopped waiting does not need to know.
            let _ = waiter.tell.send(outcome);
        }
    }

    fn next_deadline(&self) -> Mono {
        self.lock().front().map_or_else(|| self.host.now() + self.timeout, |waiter| waiter.deadline)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiter>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one task that syncs the log.
pub(crate) struct Flusher {
    pub(crate) host: Host,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) group: Arc<GroupCommit>,
    /// The dispatcher's, which may go up to the flushed end.
    pub(crate) dispatch: Arc<Notify>,
    /// The checkpointer's, which writes down how far the log is on disk.
    pub(crate) checkpoint: Arc<Notify>,
    pub(crate) flushed: Arc<FlushedMark>,
}

/// How often async flush works.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlushPace {
    pub(crate) interval: Duration,
    pub(crate) least_pages: u64,
    pub(crate) thorough_interval: Duration,
}

impl Flusher {
    /// Syncs as soon as anything was written, and all that was written meanwhile with the next sync.
    pub(crate) async fn run_sync(self, mut stop: Stop) {
        loop {
            host::select! {
                () = self.group.demand.notified() => {}
                () = self.group.wake.notified() => {}
                () = stopped(&mut stop) => break,
            }
            if host::buggify!("store.flushed-late") {
                self.host.sleep(LATE).await;
            }
            self.flush().await;
        }
        self.flush().await;
    }

    /// Syncs at intervals, once enough is dirty or enough time has passed.
    pub(crate) async fn run_async(self, mut stop: Stop, pace: FlushPace) {
        let mut thorough_at = self.host.now() + pace.thorough_interval;
        loop {
            let is_clean = self.log.written() == self.log.flushed() || self.gate.is_fenced();
            host::select! {
                () = stopped(&mut stop) => break,
                () = self.group.demand.notified() => {
                    self.log.commit(); // What is in memory only is asked for as well.
                    self.flush().await;
                    continue;
                }
                () = self.group.wake.notified(), if is_clean => continue,
                () = self.host.sleep(pace.interval), if !is_clean => {}
            }
            let pages = self.log.written() / PAGE_BYTES - self.log.flushed() / PAGE_BYTES;
            let thorough = self.host.now() >= thorough_at || host::buggify!("store.flushed-early");
            if thorough || pages >= pace.least_pages {
                self.flush().await;
            }
            if thorough {
                thorough_at = self.host.now() + pace.thorough_interval;
            }
        }
        self.flush().await;
    }

    /// One sync of all that was written. Those whose time runs out meanwhile are told so.
    async fn flush(&self) {
        if self.gate.is_fenced() || self.log.flushed() == self.log.written() {
            // Whoever asked just after the last sync covered it has been told; a fence tells everyone.
            return;
        }
        if host::mutant!("flush-without-msync") {
            self.group.tell_flushed(self.log.pretend_flush());
            self.dispatch.notify_one();
            return;
        }
        let mut sync = std::pin::pin!(self.log.flush());
        let result = loop {
            host::select! {
                result = &mut sync => break result,
                () = self.host.sleep_until(self.group.next_deadline()) => {
                    let now = self.host.now();
                    self.group.tell(Flushed::TimedOut, |waiter| waiter.deadline <= now);
                }
            }
        };
        match result {
            Ok((flushed, store_ms)) => {
                self.flushed.set(flushed, store_ms);
                self.group.tell_flushed(flushed);
                self.dispatch.notify_one();
                self.checkpoint.notify_one();
            }
            Err(_) if host::mutant!("flushed-moves-on-flush-error") => {
                self.group.tell_flushed(self.log.pretend_flush());
                self.dispatch.notify_one();
            }
            Err(error) if host::mutant!("retry-flush-after-error") => {
                warn!(error = &error as &dyn std::error::Error, "the commit log cannot be synced, the next sync may");
            }
            Err(error) => {
                // The pages may be gone although they look clean: only a restart can tell (SF09).
                error!(error = &error as &dyn std::error::Error, "the commit log cannot be synced, writes end");
                self.group.fence();
            }
        }
    }
}
