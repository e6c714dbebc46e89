//! Looking at a disk from outside, without a node: for audits, reports and tests.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use bytes::Bytes;

use super::{
    Disk, State, errno,
    journal::Ino,
    names::{Body, ROOT},
    pages::Content,
};

/// All files of a disk at one moment, by their paths. Contents are copied when the image is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    files: BTreeMap<PathBuf, Vec<u8>>,
    dirs: Vec<PathBuf>,
}

/// The same without the zeros that end a file, for files that are large and mostly empty.
#[derive(Debug, Clone, Default)]
pub struct SparseImage {
    /// What each file holds up to its last page that was ever written, and how long it is.
    pub files: BTreeMap<PathBuf, (Bytes, u64)>,
    /// The directories.
    pub dirs: Vec<PathBuf>,
}

impl SparseImage {
    pub(super) fn current(disk: &Disk) -> SparseImage {
        let state = disk.lock();
        let mut image = SparseImage::default();
        let mut take = |path, content: &Content| {
            image.files.insert(path, (Bytes::from(content.written_bytes()), content.len()));
        };
        walk(&state, ROOT, Path::new("/"), false, &mut image.dirs, &mut take);
        image
    }
}

/// Shows every file to `take`, with its path, and collects the directories.
fn walk(
    state: &State,
    ino: Ino,
    path: &Path,
    durable: bool,
    dirs: &mut Vec<PathBuf>,
    take: &mut impl FnMut(PathBuf, &Content),
) {
    match &state.names.inode(ino).body {
        Body::Dir(dir) => {
            dirs.push(path.to_owned());
            let entries = if durable { &dir.durable } else { &dir.entries };
            for (name, &child) in entries {
                walk(state, child, &path.join(name), durable, dirs, take);
            }
        }
        Body::File(content) => take(path.to_owned(), content),
    }
}

impl Image {
    pub(super) fn current(disk: &Disk) -> Image {
        let state = disk.lock();
        let mut image = Image::default();
        let mut take = |path, content: &Content| drop(image.files.insert(path, content.current_bytes()));
        walk(&state, ROOT, Path::new("/"), false, &mut image.dirs, &mut take);
        image
    }

    pub(super) fn durable(disk: &Disk, now: u64) -> Image {
        let mut state = disk.lock();
        state.settle(now);
        let mut image = Image::default();
        let mut take = |path, content: &Content| drop(image.files.insert(path, content.durable_bytes()));
        walk(&state, ROOT, Path::new("/"), true, &mut image.dirs, &mut take);
        image
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
