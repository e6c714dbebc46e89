//! A file that follows a table in memory.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use host::{
    Host,
    worker::{Stop, stopped},
};
use serde::{Serialize, de::DeserializeOwned};
use store::config_file::ConfigFile;
use tokio::sync::watch;
use tracing::warn;

/// How soon a file that could not be written is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Couples a table to its file: the table announces changes, one task writes, and others wait for the write.
///
/// A write takes the table as it is when its turn comes, so any number of changes cost one write. The task owns the
/// writing, so nobody who stops waiting can leave a change unwritten.
#[derive(Debug)]
pub(crate) struct TableFile {
    /// The last change of the table.
    wanted: watch::Sender<u64>,
    written: watch::Sender<Written>,
    /// As in `written`, for those who only look: every send does.
    durable: AtomicU64,
}

#[derive(Debug, Clone, Default)]
struct Written {
    /// The last change that a write, failed or not, covered.
    tried: u64,
    /// The last change that the file has.
    durable: u64,
    error: Option<Arc<str>>,
}

/// A change is in memory only.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum SaveError {
    /// The file could not be written; it is tried again.
    #[error("{0}")]
    Write(Arc<str>),
    /// The broker stops.
    #[error("the broker is stopping")]
    Stopped,
}

impl TableFile {
    /// A file that has the table as it is now, which is change 0.
    pub(crate) fn new() -> TableFile {
        TableFile {
            wanted: watch::Sender::new(0),
            written: watch::Sender::new(Written::default()),
            durable: AtomicU64::new(0),
        }
    }

    /// The table changed: `revision` counts the changes.
    pub(crate) fn changed(&self, revision: u64) {
        self.wanted.send_if_modified(|wanted| {
            let is_newer = revision > *wanted;
            *wanted = revision.max(*wanted);
            is_newer
        });
    }

    /// Tells of changes, to whoever follows the table besides the file.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.wanted.subscribe()
    }

    /// Whether the file has the change.
    pub(crate) fn is_saved(&self, revision: u64) -> bool {
        revision <= self.durable.load(Ordering::Acquire)
    }

    /// Ends when the file has the change.
    ///
    /// # Errors
    /// If the first write that covers it failed, or the broker stops before.
    pub(crate) async fn saved(&self, revision: u64) -> Result<(), SaveError> {
        if self.is_saved(revision) {
            return Ok(());
        }
        let mut written = self.written.subscribe();
        let result = written.wait_for(|written| written.tried >= revision).await.map_err(|_| SaveError::Stopped)?;
        if result.durable >= revision {
            return Ok(());
        }
        Err(result.error.clone().map_or(SaveError::Stopped, SaveError::Write))
    }

    /// Writes the table as it is now. `render` gives it, and the change it stands for. False if that failed; the table
    /// file is as before then.
    pub(crate) async fn write<T: Serialize + DeserializeOwned>(
        &self,
        file: &ConfigFile,
        render: &impl Fn() -> (u64, T),
    ) -> bool {
        let (revision, table) = render();
        let error = file.save(&table).await.err();
        if let Some(error) = &error {
            warn!(error = %Chain(error), "cannot save a table");
        }
        let error = error.map(|error| Arc::from(Chain(&error).to_string()));
        self.written.send_modify(|written| {
            written.tried = revision;
            if error.is_none() {
                written.durable = revision;
                self.durable.store(revision, Ordering::Release);
            }
            written.error.clone_from(&error);
        });
        error.is_none()
    }

    /// Writes after every change, until it is told to stop. A write that has begun is not given up.
    pub(crate) async fn follow<T: Serialize + DeserializeOwned>(
        &self,
        host: &Host,
        file: &ConfigFile,
        render: impl Fn() -> (u64, T),
        mut stop: Stop,
    ) {
        let mut wanted = self.wanted.subscribe();
        loop {
            let revision = *wanted.borrow_and_update();
            if !self.is_saved(revision) && !self.write(file, &render).await {
                host::select! {
                    () = stopped(&mut stop) => return,
                    () = host.sleep(RETRY_AFTER) => continue,
                }
            }
            host::select! {
                () = stopped(&mut stop) => return,
                // The sender lives as long as `self`, so this cannot fail.
                changed = wanted.changed() => drop(changed),
            }
        }
    }
}

/// Shows an error with what caused it, in one line.
pub(crate) struct Chain<'a>(pub(crate) &'a dyn std::error::Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use host::worker::Worker;

    use super::*;

    #[test]
    fn waiters_learn_that_their_change_is_saved_or_why_not() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        host::real::run("broker", |_| async move {
            let good = ConfigFile::new(folder.path().join("table.json"));
            let bad = ConfigFile::new(folder.path().join("file/table.json"));
            let table = TableFile::new();
            assert!(table.is_saved(0));
            table.changed(1);
            assert!(!table.write(&bad, &|| (1, 7)).await);
            assert!(matches!(table.saved(1).await, Err(SaveError::Write(_))));
            assert!(table.write(&good, &|| (1, 7)).await);
            table.saved(1).await.unwrap();
            assert_eq!(good.load::<i32>().await.unwrap(), Some(7));
        })
        .unwrap();
    }

    #[test]
    fn follower_writes_what_changed_before_and_after_it_started() {
        let folder = tempfile::tempdir().unwrap();
        host::real::run("broker", |host| async move {
            let file = ConfigFile::new(folder.path().join("table.json"));
            let table = Arc::new(TableFile::new());
            table.changed(1);
            let follower = Arc::clone(&table);
            let task_host = host.clone();
            let worker = Worker::start(&host, "follower", |stop| async move {
                follower.follow(&task_host, &file, || (5, "x".to_owned()), stop).await;
            });
            table.saved(1).await.unwrap();
            table.changed(5);
            table.saved(5).await.unwrap();
            worker.stop().await;
        })
        .unwrap();
    }
}
