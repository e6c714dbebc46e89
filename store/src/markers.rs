//! The marker files `lock` and `abort`.
//!
//! Source: `spec/store.md` 1.2, obligations SF01 and SF02.

use std::{
    io,
    path::{Path, PathBuf},
};

use host::{
    Host,
    fs::{File, Files, OpenOptions},
};

use crate::StoreError;

/// Keeps other brokers out until it is dropped or the process dies.
#[derive(Debug)]
pub(crate) struct Lock {
    _held: File,
}

impl Lock {
    /// Takes the lock of the store under `root`, before anything else of it is opened.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if someone else has it.
    pub(crate) async fn take(files: &Files, root: &Path) -> Result<Lock, StoreError> {
        let path = root.join("lock");
        let file = files.open(&path, OpenOptions::CREATE).await.map_err(StoreError::io("open", &path))?;
        if !file.try_lock().map_err(StoreError::io("lock", &path))? {
            return Err(StoreError::Locked { root: root.to_owned() });
        }
        if file.is_empty().map_err(StoreError::io("look at", &path))? {
            file.write_all_at(b"lock", 0).map_err(StoreError::io("write", &path))?;
            file.sync_all().await.map_err(StoreError::io("sync", &path))?;
        }
        Ok(Lock { _held: file })
    }
}

/// The file whose presence says that the store is open or was not closed cleanly.
#[derive(Debug)]
pub(crate) struct AbortFile {
    files: Files,
    path: PathBuf,
    process_id: u32,
}

impl AbortFile {
    pub(crate) fn new(host: &Host, root: &Path) -> AbortFile {
        AbortFile { files: host.files(), path: root.join("abort"), process_id: host.process_id() }
    }

    pub(crate) async fn exists(&self) -> Result<bool, StoreError> {
        self.files.exists(&self.path).await.map_err(StoreError::io("look at", &self.path))
    }

    /// Makes it, durable with its name, before anything can be appended.
    pub(crate) async fn create(&self) -> Result<(), StoreError> {
        let make = async {
            let file = self.files.open(&self.path, OpenOptions::REPLACE).await?;
            file.write_all_at(self.process_id.to_string().as_bytes(), 0)?;
            file.sync_all().await?;
            self.files.sync_dir(self.dir()).await
        };
        let made: io::Result<()> = make.await;
        made.map_err(StoreError::io("create", &self.path))
    }

    /// Removes it durably, as the last step of a clean exit.
    pub(crate) async fn remove(&self) -> Result<(), StoreError> {
        self.files.remove_file(&self.path).await.map_err(StoreError::io("remove", &self.path))?;
        self.files.sync_dir(self.dir()).await.map_err(StoreError::io("sync", self.dir()))
    }

    fn dir(&self) -> &Path {
        self.path.parent().expect("the path of the file was joined to the root")
    }
}
