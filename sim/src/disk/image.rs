//! Looking at a disk from outside, without a node: for audits, reports and tests.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use super::{
    Disk, State, errno,
    journal::Ino,
    names::{Body, ROOT},
};

/// All files of a disk at one moment, by their paths. Contents are copied when the image is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    files: BTreeMap<PathBuf, Vec<u8>>,
    dirs: Vec<PathBuf>,
}

impl Image {
    pub(super) fn current(disk: &Disk) -> Image {
        let state = disk.lock();
        let mut image = Image::default();
        image.collect(&state, ROOT, Path::new("/"), None);
        image
    }

    pub(super) fn durable(disk: &Disk, now: u64) -> Image {
        let mut state = disk.lock();
        state.settle(now);
        let mut image = Image::default();
        image.collect(&state, ROOT, Path::new("/"), Some(now));
        image
    }

    fn collect(&mut self, state: &State, ino: Ino, path: &Path, durable_at: Option<u64>) {
        match &state.names.inode(ino).body {
            Body::Dir(dir) => {
                self.dirs.push(path.to_owned());
                let entries = if durable_at.is_some() { &dir.durable } else { &dir.entries };
                for (name, &child) in entries {
                    self.collect(state, child, &path.join(name), durable_at);
                }
            }
            Body::File(content) => {
                let bytes = if durable_at.is_some() { content.durable_bytes() } else { content.current_bytes() };
                self.files.insert(path.to_owned(), bytes);
            }
        }
    }

    /// The files with their contents, sorted by path.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.files.iter().map(|(path, content)| (path.as_path(), content.as_slice()))
    }

    /// The directories, parents before children.
    pub fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.dirs.iter().map(PathBuf::as_path)
    }

    /// The content of one file.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<&[u8]> {
        self.files.get(path.as_ref()).map(Vec::as_slice).ok_or_else(|| errno::error(errno::NOT_FOUND))
    }
}
