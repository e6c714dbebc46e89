//! Files.
//!
//! Calls that a device may hold up (open, sync, rename, reserve space) are async. Positioned reads and writes, and
//! everything on a mapping, go through the page cache and are plain calls, as in a broker on a real machine.
//!
//! What is written reaches the page cache: it survives the death of the process, not the loss of power. It is durable
//! after `sync_*` of the file returned; a new, renamed or removed name after [`Files::sync_dir`] of its directory.

use std::{
    fmt, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;

use crate::{
    Host,
    machine::{Machine, RawFile, RawMapping},
};

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenOptions {
    /// May write, and therefore map for writing.
    pub write: bool,
    /// Creates it if it is missing.
    pub create: bool,
    /// Creates it and fails with `AlreadyExists` if it is there.
    pub create_new: bool,
    /// Empties it.
    pub truncate: bool,
}

impl OpenOptions {
    /// For reading only; the file must exist.
    pub const READ: OpenOptions = OpenOptions { write: false, create: false, create_new: false, truncate: false };
    /// For reading and writing; the file must exist.
    pub const WRITE: OpenOptions = OpenOptions { write: true, create: false, create_new: false, truncate: false };
    /// For reading and writing; made if missing.
    pub const CREATE: OpenOptions = OpenOptions { write: true, create: true, create_new: false, truncate: false };
    /// For reading and writing; must not exist.
    pub const CREATE_NEW: OpenOptions = OpenOptions { write: true, create: true, create_new: true, truncate: false };
    /// For reading and writing; made if missing, emptied if not.
    pub const REPLACE: OpenOptions = OpenOptions { write: true, create: true, create_new: false, truncate: true };
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Its name, without the directory. Names that are not UTF-8 are refused by the listing.
    pub name: String,
    /// Whether it is a directory, or a symbolic link to one. A link to nothing is none.
    pub is_dir: bool,
}

/// What stands under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Length in bytes; 0 for a directory.
    pub len: u64,
    /// Wall-clock time of the last change of content, in milliseconds since 1970.
    pub modified_ms: i64,
}

/// How a mapping will be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// At places that do not follow each other: reading ahead is of no use.
    Random,
    /// Soon, all of it.
    WillNeed,
}

/// Space of a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// What files take. With `available` it need not make up the whole: some is kept back for administrators.
    pub used: u64,
    /// What this process may still use.
    pub available: u64,
}

/// The file systems of a node; made by [`Host::files`].
///
/// A symbolic link stands for what it points to, except that [`rename`](Files::rename) and
/// [`remove_file`](Files::remove_file) are about the link. Of one that points to nothing the error says so.
#[derive(Clone)]
pub struct Files {
    machine: Arc<dyn Machine>,
}

impl Files {
    pub(crate) fn new(host: &Host) -> Files {
        Files { machine: Arc::clone(host.machine()) }
    }

    /// Opens or creates a file.
    ///
    /// # Errors
    /// As the operating system reports them; so for all calls of this type.
    pub async fn open(&self, path: impl Into<PathBuf>, options: OpenOptions) -> io::Result<File> {
        self.machine.open(path.into(), options).await.map(|file| File { file: Arc::from(file) })
    }

    /// The entries of a directory, sorted by name.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`; `InvalidData` for a name that is not UTF-8.
    pub async fn read_dir(&self, path: impl Into<PathBuf>) -> io::Result<Vec<DirEntry>> {
        self.machine.read_dir(path.into()).await
    }

    /// What stands under a name.
    ///
    /// # Errors
    /// `NotFound` if nothing does.
    pub async fn metadata(&self, path: impl Into<PathBuf>) -> io::Result<Metadata> {
        self.machine.metadata(path.into()).await
    }

    /// Whether anything stands under a name.
    ///
    /// # Errors
    /// If that cannot be told.
    pub async fn exists(&self, path: impl Into<PathBuf>) -> io::Result<bool> {
        match self.metadata(path).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates a directory and its missing parents. Their names are durable after `sync_dir` of each parent.
    ///
    /// # Errors
    /// `NotADirectory` if a file is in the way, `AlreadyExists` if it has the very name.
    pub async fn create_dir_all(&self, path: impl Into<PathBuf>) -> io::Result<()> {
        self.machine.create_dir_all(path.into()).await
    }

    /// Renames a file or directory; a file under the new name is replaced atomically.
    ///
    /// # Errors
    /// `NotFound` and the like.
    pub async fn rename(&self, from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> io::Result<()> {
        self.machine.rename(from.into(), to.into()).await
    }

    /// Gives a file a second name.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken.
    pub async fn hard_link(&self, from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> io::Result<()> {
        self.machine.hard_link(from.into(), to.into()).await
    }

    /// Removes the name of a file. Its data lives until the last handle and mapping are gone.
    ///
    /// # Errors
    /// `NotFound` and the like.
    pub async fn remove_file(&self, path: impl Into<PathBuf>) -> io::Result<()> {
        self.machine.remove_file(path.into()).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `DirectoryNotEmpty` and the like.
    pub async fn remove_dir(&self, path: impl Into<PathBuf>) -> io::Result<()> {
        self.machine.remove_dir(path.into()).await
    }

    /// Makes the entries of a directory durable. While the process has too many files open to do that, it waits.
    ///
    /// # Errors
    /// An I/O error of the device: nothing may be assumed about the entries then.
    pub async fn sync_dir(&self, path: impl Into<PathBuf>) -> io::Result<()> {
        self.machine.sync_dir(path.into()).await
    }

    /// Space of the file system that holds `path`, which must exist.
    ///
    /// # Errors
    /// `NotFound` and the like.
    pub fn space(&self, path: impl AsRef<Path>) -> io::Result<Space> {
        self.machine.space(path.as_ref())
    }

    /// The whole content of a file.
    ///
    /// # Errors
    /// Those of [`open`](Files::open) and of reading.
    pub async fn read(&self, path: impl Into<PathBuf>) -> io::Result<Vec<u8>> {
        let file = self.open(path, OpenOptions::READ).await?;
        let mut content = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
        file.read_exact_at(&mut content, 0)?;
        Ok(content)
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Files of {}", self.machine.node())
    }
}

/// An open file. Clones share it.
#[derive(Clone)]
pub struct File {
    file: Arc<dyn RawFile>,
}

impl File {
    /// Its length in bytes.
    ///
    /// # Errors
    /// As the operating system reports them; so for all calls of this type.
    pub fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    /// Whether it has no bytes.
    ///
    /// # Errors
    /// As [`len`](File::len).
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` from the bytes at `at`, in several reads if the machine gives fewer bytes than it was asked for.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before.
    pub fn read_exact_at(&self, mut buf: &mut [u8], mut at: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.file.read_at(buf, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    buf = &mut buf[count..];
                    at += count as u64;
                }
                // A signal came before the first byte: nothing is wrong with the file.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The first stretch at or behind `at` that may hold anything but zeros; `None` if up to the end of the file there is
    /// none. It tells what was never written from what was, without reading either: zeros that were written count as
    /// data, and a file system that does not know takes everything for data. Reading may turn what was reserved and never
    /// written into data: ask for all stretches first.
    ///
    /// # Errors
    /// As the operating system reports them.
    pub fn next_data(&self, at: u64) -> io::Result<Option<Range<u64>>> {
        self.file.next_data(at)
    }

    /// Writes all of `bytes` at `at` into the page cache, extending the file if needed. After an error a part may have
    /// been written.
    ///
    /// # Errors
    /// `StorageFull` if the device has no room; `WriteZero` if it takes nothing.
    pub fn write_all_at(&self, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.file.write_at(bytes, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    at += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sets the length; new bytes read as zeros. Never shorten a file that is mapped.
    ///
    /// # Errors
    /// `StorageFull` and the like.
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len).await
    }

    /// Reserves blocks for `0..len` and extends the file to `len`, so that writes there cannot lack space.
    ///
    /// # Errors
    /// `StorageFull` if the device has no room.
    pub async fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len).await
    }

    /// Makes content and metadata durable. After an error the unsynced content must be taken for lost: a second call
    /// may succeed without having written it.
    ///
    /// # Errors
    /// An I/O error of the device.
    pub async fn sync_all(&self) -> io::Result<()> {
        self.file.sync(false).await
    }

    /// As [`sync_all`](File::sync_all), without metadata that is not needed to read the content.
    ///
    /// # Errors
    /// An I/O error of the device.
    pub async fn sync_data(&self) -> io::Result<()> {
        self.file.sync(true).await
    }

    /// Takes the exclusive lock without waiting; false if another process holds it. It conflicts with the lock that
    /// Java's `FileChannel.tryLock` takes. Held until all clones are dropped or the process dies.
    ///
    /// # Errors
    /// If the file system has no locks.
    pub fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }

    /// Maps the first `len` bytes for reading and writing. They must exist.
    ///
    /// # Errors
    /// `InvalidInput` if the file is shorter.
    pub async fn map(&self, len: u64) -> io::Result<Mapping> {
        self.file.map(len).await.map(|mapping| Mapping { mapping: Arc::from(mapping) })
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("File")
    }
}

/// A mapped file. Clones share it; it stays usable when the file has lost its name.
///
/// A range that was handed out by [`slice`](Mapping::slice) is never written again, so [`Bytes`] can borrow it.
#[derive(Clone)]
pub struct Mapping {
    mapping: Arc<dyn RawMapping>,
}

impl Mapping {
    /// Its length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "an empty mapping cannot exist")]
    pub fn len(&self) -> u64 {
        self.mapping.len()
    }

    /// Stores `bytes` at `at`, into the page cache. If the device cannot take them, the node dies (SIGBUS).
    ///
    /// # Panics
    /// Outside the mapping, or below a position that was handed out.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.mapping.write(at, bytes);
    }

    /// Shows `from..to` to `look` without handing it out; writers wait meanwhile.
    ///
    /// # Panics
    /// Outside the mapping.
    pub fn with<T>(&self, from: u64, to: u64, look: impl FnOnce(&[u8]) -> T) -> T {
        let mut look = Some(look);
        let mut seen = None;
        self.mapping.with(from, to, &mut |bytes| {
            if let Some(look) = look.take() {
                seen = Some(look(bytes));
            }
        });
        seen.expect("a mapping calls `look` once")
    }

    /// Hands out `from..to` without a copy, and freezes everything below `to` for good.
    ///
    /// # Panics
    /// Outside the mapping.
    #[must_use]
    pub fn slice(&self, from: u64, to: u64) -> Bytes {
        self.mapping.slice(from, to)
    }

    /// Brings the pages of `from..to` into memory, ready to be stored to, so that no later store has to wait for that.
    /// They count as written, with the bytes they have. If the device cannot take them, the node dies (SIGBUS).
    ///
    /// # Errors
    /// Only if the machine is closed.
    ///
    /// # Panics
    /// Outside the mapping.
    pub async fn touch(&self, from: u64, to: u64) -> io::Result<()> {
        self.mapping.touch(from, to).await
    }

    /// Keeps all pages in memory (`mlock`), until [`unlock`](Mapping::unlock) or until the mapping and everything it
    /// handed out are gone. It only makes stores and reads faster.
    ///
    /// # Errors
    /// The process may not lock so much memory (`OutOfMemory`), or none at all (`PermissionDenied`). Nothing is locked
    /// then, or a part.
    pub async fn lock(&self) -> io::Result<()> {
        self.mapping.lock().await
    }

    /// Ends [`lock`](Mapping::lock). Does nothing if it is not locked.
    ///
    /// # Errors
    /// As the operating system reports them.
    pub fn unlock(&self) -> io::Result<()> {
        self.mapping.unlock()
    }

    /// Tells the machine how the mapping will be read (`madvise`). It only makes reads faster.
    ///
    /// # Errors
    /// As the operating system reports them.
    pub fn advise(&self, advice: Advice) -> io::Result<()> {
        self.mapping.advise(advice)
    }

    /// Makes `from..to` durable. After an error the range must be taken for lost, as with [`File::sync_all`].
    ///
    /// # Errors
    /// An I/O error of the device.
    ///
    /// # Panics
    /// Outside the mapping.
    pub async fn sync(&self, from: u64, to: u64) -> io::Result<()> {
        self.mapping.sync(from, to).await
    }

    /// Gives the file a new body of the same length: `0..keep` copied, zeros behind it, nothing frozen. It is durable
    /// when this returns. This mapping, and whatever it handed out, keeps the old bytes.
    ///
    /// The new body replaces whatever stands under the path that the file was opened with. After a crash half-way the
    /// old body or the new one stands there, and `PATH.rewind` may be left beside it, which nobody needs.
    ///
    /// # Errors
    /// I/O errors. If only the directory could not be flushed, the new body stands under the name but may be lost; else
    /// the file has its old body.
    ///
    /// # Panics
    /// If `keep` lies outside the mapping.
    pub async fn rewind(&self, keep: u64) -> io::Result<Mapping> {
        self.mapping.rewind(keep).await.map(|mapping| Mapping { mapping: Arc::from(mapping) })
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping of {} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::machine::{BoxFuture, RawMapping};

    /// A file whose calls are interrupted, then give or take one byte, then two, and so on.
    struct Meagre {
        content: Mutex<Vec<u8>>,
        calls: Mutex<usize>,
    }

    impl Meagre {
        fn file(content: &[u8]) -> (File, Arc<Meagre>) {
            let meagre = Arc::new(Meagre { content: Mutex::new(content.to_vec()), calls: Mutex::new(0) });
            (File { file: Arc::clone(&meagre) as Arc<dyn RawFile> }, meagre)
        }

        fn next(&self) -> io::Result<usize> {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            if *calls % 2 == 1 { Err(io::ErrorKind::Interrupted.into()) } else { Ok(*calls / 2) }
        }
    }

    impl RawFile for Meagre {
        fn len(&self) -> io::Result<u64> {
            Ok(self.content.lock().unwrap().len() as u64)
        }

        fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
            let content = self.content.lock().unwrap();
            let rest = content.get(at as usize..).unwrap_or_default();
            let count = self.next()?.min(buf.len()).min(rest.len());
            buf[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }

        fn next_data(&self, at: u64) -> io::Result<Option<Range<u64>>> {
            Ok(Some(at..u64::MAX))
        }

        fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
            let count = self.next()?.min(bytes.len());
            self.content.lock().unwrap()[at as usize..at as usize + count].copy_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn set_len(&self, _: u64) -> BoxFuture<io::Result<()>> {
            Box::pin(async { Ok(()) })
        }

        fn allocate(&self, _: u64) -> BoxFuture<io::Result<()>> {
            Box::pin(async { Ok(()) })
        }

        fn sync(&self, _: bool) -> BoxFuture<io::Result<()>> {
            Box::pin(async { Ok(()) })
        }

        fn try_lock(&self) -> io::Result<bool> {
            Ok(true)
        }

        fn map(&self, _: u64) -> BoxFuture<io::Result<Box<dyn RawMapping>>> {
            Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
        }
    }

    #[test]
    fn whole_reads_and_writes_go_on_after_short_ones_and_signals() {
        let (file, meagre) = Meagre::file(b"0123456789abcdef");
        let mut bytes = [0; 14];
        file.read_exact_at(&mut bytes, 1).unwrap();
        assert_eq!(&bytes, b"123456789abcde");
        assert!(*meagre.calls.lock().unwrap() > 8);
        assert_eq!(file.read_exact_at(&mut bytes, 8).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        file.write_all_at(b"ABCDEFGHIJKLMN", 1).unwrap();
        assert_eq!(*meagre.content.lock().unwrap(), b"0ABCDEFGHIJKLMNf");
    }
}
