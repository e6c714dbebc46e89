//! Deleting old files: when they are expired, or when the disk is too full to keep them.
//!
//! Log files go from the oldest on, never the one that is written, nor one with messages that queues do not have yet;
//! each removal is durable before the next (SF12), so no hole can appear. Consume-queue and index files follow. Space is
//! free once the last reader of a file is gone.
//!
//! Source: `spec/store.md` 9.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use host::{
    Host,
    fs::{Files, Space},
    worker::{Stop, stopped},
};
use message::RecordView;
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::{StoreConfig, commit_log::CommitLog, gate::Gate, index::Index, log_file::LogFile, queues::ConsumeQueues};

/// Passes that delete expired files after an administrator asked for it.
const MANUAL_PASSES: u32 = 20;
/// Pause before the first pass, as in the reference.
const FIRST_PASS: std::time::Duration = std::time::Duration::from_secs(60);
const HOUR_MS: i64 = 3_600_000;

/// Watches how full the disk of the commit log is, and with it whether writes are taken.
pub(crate) struct DiskWatch {
    files: Files,
    dir: PathBuf,
    gate: Arc<Gate>,
    warning_percent: u8,
    forcibly_percent: u8,
    /// Asks for a pass now.
    pub(crate) kick: Notify,
    manual_passes: AtomicU32,
}

impl DiskWatch {
    pub(crate) fn new(files: Files, dir: PathBuf, gate: Arc<Gate>, config: &StoreConfig) -> DiskWatch {
        DiskWatch {
            files,
            dir,
            gate,
            warning_percent: config.warning_level(),
            forcibly_percent: config.clean_forcibly_level(),
            kick: Notify::new(),
            manual_passes: AtomicU32::new(0),
        }
    }

    /// Used space in percent, rounded up.
    pub(crate) fn used_percent(&self) -> io::Result<u8> {
        self.files.space(&self.dir).map(used_percent)
    }

    /// Looks, and refuses or takes writes accordingly. `None` if the machine cannot tell.
    pub(crate) fn look(&self) -> Option<u8> {
        match self.used_percent() {
            Ok(used) => {
                if self.gate.set_used_percent(used, self.warning_percent, self.forcibly_percent) {
                    warn!(used, limit = self.warning_percent, "the disk is full, writes are refused");
                    host::point!("store.disk-full", used);
                }
                Some(used)
            }
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "the space of the disk is unknown");
                None
            }
        }
    }

    /// Whether so much is used that files go whether expired or not.
    fn is_pressing(&self, used: u8) -> bool {
        used > self.forcibly_percent
    }

    /// Before a file is made: the timer alone could be too slow.
    pub(crate) fn look_before_growing(&self) {
        if self.look().is_some_and(|used| self.is_pressing(used)) {
            self.kick.notify_one();
        }
    }

    pub(crate) fn delete_manually(&self) {
        self.manual_passes.store(MANUAL_PASSES, Ordering::Relaxed);
        self.kick.notify_one();
    }

    fn take_manual_pass(&self) -> bool {
        self.manual_passes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

/// What files take, of that and what is left for this process: space that is kept back for administrators does not
/// count. Source: `spec/store.md` 9.
fn used_percent(space: Space) -> u8 {
    let (used, usable) = (u128::from(space.used), u128::from(space.available));
    if used + usable == 0 {
        return 100;
    }
    (used * 100).div_ceil(used + usable) as u8
}

/// The one task that deletes files.
pub(crate) struct Cleaner {
    pub(crate) host: Host,
    pub(crate) config: StoreConfig,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) queues: Arc<ConsumeQueues>,
    /// `None` if messages are not indexed.
    pub(crate) index: Option<Arc<Index>>,
    pub(crate) disk: Arc<DiskWatch>,
}

impl Cleaner {
    pub(crate) async fn run(self, mut stop: Stop) {
        let mut pause = FIRST_PASS;
        let mut cleaned_to = 0;
        loop {
            host::select! {
                () = stopped(&mut stop) => return,
                () = self.disk.kick.notified() => {}
                () = self.host.sleep(pause) => {}
            }
            pause = self.config.clean_interval;
            self.looking(self.pass(&mut cleaned_to, &stop)).await;
        }
    }

    /// Looks at the disk as often as ever while something takes its time: a slow deletion must not hide that the disk
    /// has become full.
    async fn looking(&self, work: impl Future<Output = ()>) {
        let mut work = std::pin::pin!(work);
        loop {
            host::select! {
                () = &mut work => return,
                () = self.host.sleep(self.config.clean_interval) => { self.disk.look(); }
            }
        }
    }

    /// Deletes what is due of the log, and of queues and index what pointed there.
    async fn pass(&self, cleaned_to: &mut u64, stop: &Stop) {
        if let Err(error) = self.clean_log(stop).await {
            warn!(error = &error as &dyn std::error::Error, "log files cannot be deleted");
        }
        let start = self.log.start();
        if start > *cleaned_to {
            match self.clean_queues(start, stop).await {
                Ok(()) => {
                    *cleaned_to = start;
                    self.queues.changed.notify_one(); // The checkpoint says which index files count.
                }
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "consume-queue files cannot be deleted");
                }
            }
        }
        if let Some(index) = &self.index
            && let Err(error) = index.remove_expired(start).await
        {
            warn!(error = &error as &dyn std::error::Error, "index files cannot be deleted");
        }
    }

    async fn clean_log(&self, stop: &Stop) -> io::Result<()> {
        let used = self.disk.look();
        let hour = self.host.wall_ms().div_euclid(HOUR_MS).rem_euclid(24) as u8;
        let forced = self.config.clean_file_forcibly && used.is_some_and(|used| self.disk.is_pressing(used));
        let due = self.config.delete_when.contains(&hour)
            || used.is_none_or(|used| used > self.config.disk_max_used_percent)
            || self.disk.take_manual_pass();
        if !due && !forced {
            return Ok(());
        }
        for _ in 0..self.config.delete_batch_max {
            let Some((oldest, next)) = self.log.oldest().filter(|_| !*stop.borrow()) else { break };
            // Without its file the dispatcher could not go on, and what no consumer could see yet would be lost.
            if oldest.end() > self.queues.reached() || !forced && !self.is_expired(&oldest, &next).await? {
                break;
            }
            let start = self.log.remove_oldest().await?;
            info!(file = oldest.start, start, forced, used, "deleted a log file");
            drop((oldest, next)); // The space is free when nobody holds the file any more.
            self.host.sleep(self.config.delete_log_file_pause).await;
        }
        self.disk.look();
        Ok(())
    }

    /// A file is as old as its last message, which is hardly older than the first of the next file. The time of the
    /// file itself would change with every copy (SF15), so it counts only if nothing else is there.
    async fn is_expired(&self, file: &LogFile, next: &LogFile) -> io::Result<bool> {
        let first =
            next.mapping.with(0, next.mapping.len(), |bytes| RecordView::parse(bytes).map(|view| view.store_ms));
        let stored_ms = match first {
            Ok(stored_ms) => stored_ms,
            Err(_) => self.host.files().metadata(&file.path).await?.modified_ms,
        };
        let age_ms = self.host.wall_ms().saturating_sub(stored_ms);
        Ok(u128::try_from(age_ms).is_ok_and(|age_ms| age_ms >= self.config.file_reserved.as_millis()))
    }

    async fn clean_queues(&self, log_start: u64, stop: &Stop) -> io::Result<()> {
        for queue in self.queues.all() {
            if *stop.borrow() {
                break;
            }
            let mut removed = false;
            while self.queues.remove_expired(&queue, log_start).await? {
                removed = true;
            }
            queue.correct_min(log_start)?;
            if removed {
                self.host.sleep(self.config.delete_queue_file_pause).await;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use host::fs::Space;

    use super::used_percent;

    #[test]
    fn percent_are_rounded_up() {
        assert_eq!(used_percent(Space { used: 851, available: 149 }), 86);
        assert_eq!(used_percent(Space { used: 850, available: 150 }), 85);
        assert_eq!(used_percent(Space { used: 0, available: 1000 }), 0);
        assert_eq!(used_percent(Space { used: 0, available: 0 }), 100);
    }
}
