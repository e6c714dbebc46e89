//! The file systems calls of one life.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use host::{
    fs::{DirEntry, Metadata, OpenOptions, Space},
    machine::{BoxFuture, RawFile},
};

/// What a disk needs of the machine around it.
pub trait Surroundings: Send + Sync {
    /// Virtual nanoseconds since the run began; the same clock for all nodes.
    fn now(&self) -> u64;

    /// Waits until that clock shows `at`. Dropping it cancels the timer.
    fn sleep_until(&self, at: u64) -> BoxFuture<()>;

    /// The node's wall clock, in milliseconds since 1970: stamps changes of files.
    fn wall_ms(&self) -> i64;

    /// The process touched memory that the device cannot back (SIGBUS): stop the node, as a panic would. Called inside
    /// a poll of one of its tasks, with nothing locked.
    fn die(&self, reason: &str);
}

/// The disk as one life of its node sees it. The methods are those of `host::machine::Machine`.
#[derive(Clone)]
pub struct DiskHandle {
    surroundings: Arc<dyn Surroundings>,
}

impl DiskHandle {
    pub(super) fn new(surroundings: Arc<dyn Surroundings>) -> DiskHandle {
        DiskHandle { surroundings }
    }

    fn none<T>(&self) -> io::Result<T> {
        let _ = &self.surroundings;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Opens or creates a file.
    pub fn open(&self, _path: PathBuf, _options: OpenOptions) -> BoxFuture<io::Result<Box<dyn RawFile>>> {
        let result = self.none();
        Box::pin(async { result })
    }

    /// The entries of a directory, sorted by name.
    pub fn read_dir(&self, _path: PathBuf) -> BoxFuture<io::Result<Vec<DirEntry>>> {
        let result = self.none();
        Box::pin(async { result })
    }

    /// What stands under a name.
    pub fn metadata(&self, _path: PathBuf) -> BoxFuture<io::Result<Metadata>> {
        let result = self.none();
        Box::pin(async { result })
    }

    /// Creates a directory and its missing parents.
    pub fn create_dir_all(&self, _path: PathBuf) -> BoxFuture<io::Result<()>> {
        let result = self.none();
        Box::pin(async { result })
    }

    /// Renames a file or directory.
    pub fn rename(&self, _from: PathBuf, _to: PathBuf) -> BoxFuture<io::Result<()>> {
        let result = self.none();
        Box::pin(async { result })
    }

    /// Gives a file a second name.
    pub fn hard_link(&self, _from: PathBuf, _to: PathBuf) -> BoxFuture<io::Result<()>> {
        let result = self.none();
        Box::pin(async { result })
    }

    /// Removes the name of a file.
    pub fn remove_file(&self, _path: PathBuf) -> BoxFuture<io::Result<()>> {
        let result = self.none();
        Box::pin(async { result })
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, _path: PathBuf) -> BoxFuture<io::Result<()>> {
        let result = self.none();
        Box::pin(async { result })
    }

    /// Makes the entries of a directory durable.
    pub fn sync_dir(&self, _path: PathBuf) -> BoxFuture<io::Result<()>> {
        let result = self.none();
        Box::pin(async { result })
    }

    /// Space of the device.
    ///
    /// # Errors
    /// `NotFound` if `path` does not exist.
    pub fn space(&self, _path: &Path) -> io::Result<Space> {
        self.none()
    }
}
