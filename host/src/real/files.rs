//! Files of the operating system.

use std::{
    fs::{File, TryLockError},
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use rustix::{
    fs::{FallocateFlags, FlockOperation, SeekFrom},
    io::Errno,
    process::{Flock, FlockType, fcntl_getlk},
};

use super::{check_allowed, wall_ms};
use crate::{
    fs::{Advice, DirEntry, Metadata, OpenOptions, Space},
    machine::{BoxFuture, RawFile, RawMapping},
    region::Region,
};

/// Pause before a directory is opened again that could not be.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// Runs a call that may wait for a device on a thread that may wait.
pub(super) async fn blocking<T, F>(call: F) -> io::Result<T>
where
    F: FnOnce() -> io::Result<T> + Send + 'static,
    T: Send + 'static,
{
    check_allowed()?;
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result,
        Err(error) => Err(io::Error::other(error)),
    }
}

pub(super) async fn open(path: PathBuf, options: OpenOptions) -> io::Result<Box<dyn RawFile>> {
    blocking(move || {
        let file = File::options()
            .read(true)
            .write(options.write)
            .create(options.create)
            .create_new(options.create_new)
            .truncate(options.truncate)
            .open(&path)
            .map_err(|error| of_link(&path, error))?;
        Ok(Box::new(RealFile { file: Arc::new(file), path }) as Box<dyn RawFile>)
    })
    .await
}

pub(super) fn read_at_rest(path: &Path) -> io::Result<(Bytes, u64)> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut end = 0;
    while let Some(data) = next_data(&file, end)? {
        end = data.end;
    }
    Ok((Region::borrow_file(&file, end.min(len))?, len))
}

pub(super) fn is_locked(path: &Path) -> io::Result<bool> {
    let whole = Flock::from(FlockType::WriteLock);
    Ok(fcntl_getlk(File::open(path)?, &whole)?.is_some())
}

pub(super) async fn read_dir(path: PathBuf) -> io::Result<Vec<DirEntry>> {
    blocking(move || {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(|error| of_link(&path, error))? {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|name| {
                io::Error::new(io::ErrorKind::InvalidData, format!("file name {} is not UTF-8", name.display()))
            })?;
            let is_dir = std::fs::metadata(entry.path()).map_or_else(|_| false, |metadata| metadata.is_dir());
            entries.push(DirEntry { name, is_dir });
        }
        entries.sort();
        Ok(entries)
    })
    .await
}

pub(super) async fn metadata(path: PathBuf) -> io::Result<Metadata> {
    blocking(move || {
        let metadata = std::fs::metadata(&path).map_err(|error| of_link(&path, error))?;
        let is_dir = metadata.is_dir();
        let len = if is_dir { 0 } else { metadata.len() };
        Ok(Metadata { is_dir, len, modified_ms: wall_ms(metadata.modified()?) })
    })
    .await
}

pub(super) async fn create_dir_all(path: PathBuf) -> io::Result<()> {
    blocking(move || {
        let made = std::fs::create_dir_all(&path);
        // What is in the way may be a link to nothing, which may be the name of a parent.
        made.map_err(|error| match path.ancestors().find_map(dangling) {
            Some(dangling) => io::Error::new(io::ErrorKind::NotFound, dangling),
            None => error,
        })
    })
    .await
}

/// Says of a name that was not found that it is there, if it is a link to nothing.
fn of_link(path: &Path, error: io::Error) -> io::Error {
    match dangling(path).filter(|_| error.kind() == io::ErrorKind::NotFound) {
        Some(dangling) => io::Error::new(error.kind(), dangling),
        None => error,
    }
}

/// What a name is, if it is a symbolic link whose target is not there.
fn dangling(path: &Path) -> Option<String> {
    let target = std::fs::read_link(path).ok()?;
    let is_gone = std::fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    is_gone.then(|| format!("{} is a symbolic link to {}, which is not there", path.display(), target.display()))
}

/// Flushes a directory. It must be opened for that, and a process that has too many files open cannot: then nothing was
/// flushed and nothing is lost, unlike after a flush that failed, so this goes on when it can.
pub(super) async fn sync_dir(path: PathBuf) -> io::Result<()> {
    let mut told = false;
    let dir = loop {
        let name = path.clone();
        match blocking(move || File::open(name)).await {
            Err(error) if is_shortage(&error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(path = %path.display(), %error, "a directory waits to be flushed");
                }
                tokio::time::sleep(SHORTAGE_PAUSE).await;
            }
            other => break other?,
        }
    };
    blocking(move || dir.sync_all()).await
}

/// Whether a file could not be opened for want of something that may come back.
fn is_shortage(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

pub(super) fn space(path: &Path) -> io::Result<Space> {
    check_allowed()?;
    let stat = rustix::fs::statvfs(path)?;
    Ok(Space {
        used: stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_frsize),
        available: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

struct RealFile {
    file: Arc<File>,
    path: PathBuf,
}

impl RawFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buf, at)
    }

    fn next_data(&self, at: u64) -> io::Result<Option<Range<u64>>> {
        next_data(&self.file, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.file.write_at(bytes, at)
    }

    fn set_len(&self, len: u64) -> BoxFuture<io::Result<()>> {
        let file = Arc::clone(&self.file);
        Box::pin(blocking(move || file.set_len(len)))
    }

    fn allocate(&self, len: u64) -> BoxFuture<io::Result<()>> {
        let file = Arc::clone(&self.file);
        Box::pin(blocking(move || {
            if len == 0 {
                return Ok(());
            }
            Ok(rustix::fs::fallocate(&*file, FallocateFlags::empty(), 0, len)?)
        }))
    }

    fn sync(&self, data_only: bool) -> BoxFuture<io::Result<()>> {
        let file = Arc::clone(&self.file);
        Box::pin(blocking(move || if data_only { file.sync_data() } else { file.sync_all() }))
    }

    fn try_lock(&self) -> io::Result<bool> {
        // Two locks: `flock` belongs to the open file, so that two brokers in one process exclude each other; the
        // POSIX record lock is the one that Java's FileChannel takes.
        match self.file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        match rustix::fs::fcntl_lock(&*self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::ACCESS | Errno::AGAIN) => {
                self.file.unlock()?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn map(&self, len: u64) -> BoxFuture<io::Result<Box<dyn RawMapping>>> {
        let (file, path) = (Arc::clone(&self.file), self.path.clone());
        Box::pin(blocking(move || {
            let region = Region::map_file(&file, len)?;
            Ok(Box::new(RealMapping { region, path }) as Box<dyn RawMapping>)
        }))
    }
}

/// It moves the position of the open file, which nothing here uses.
fn next_data(file: &File, at: u64) -> io::Result<Option<Range<u64>>> {
    let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => data,
        // Nothing but a hole up to the end, or `at` lies behind it.
        Err(Errno::NXIO) => return Ok(None),
        // The file system cannot tell.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => {
            let len = file.metadata()?.len();
            return Ok((at < len).then_some(at..len));
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Some(data..rustix::fs::seek(file, SeekFrom::Hole(data))?))
}

struct RealMapping {
    region: Region,
    /// Where the file stood when it was opened: a new body goes there.
    path: PathBuf,
}

impl RawMapping for RealMapping {
    fn len(&self) -> u64 {
        self.region.len()
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.region.write(at, bytes);
    }

    fn with(&self, from: u64, to: u64, look: &mut dyn FnMut(&[u8])) {
        self.region.with(from, to, look);
    }

    fn slice(&self, from: u64, to: u64) -> Bytes {
        self.region.slice(from, to)
    }

    fn touch(&self, from: u64, to: u64) -> BoxFuture<io::Result<()>> {
        assert!(from <= to && to <= self.region.len(), "{from}..{to} outside 0..{}", self.region.len());
        let region = self.region.clone();
        Box::pin(blocking(move || {
            region.touch(from, to);
            Ok(())
        }))
    }

    fn lock(&self) -> BoxFuture<io::Result<()>> {
        let region = self.region.clone();
        Box::pin(blocking(move || region.lock()))
    }

    fn unlock(&self) -> io::Result<()> {
        self.region.unlock()
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        self.region.advise(advice)
    }

    fn sync(&self, from: u64, to: u64) -> BoxFuture<io::Result<()>> {
        assert!(from <= to && to <= self.region.len(), "{from}..{to} outside 0..{}", self.region.len());
        let region = self.region.clone();
        Box::pin(blocking(move || region.sync(from, to)))
    }

    fn rewind(&self, keep: u64) -> BoxFuture<io::Result<Box<dyn RawMapping>>> {
        assert!(keep <= self.region.len(), "cannot keep {keep} bytes of {}", self.region.len());
        let (region, path) = (self.region.clone(), self.path.clone());
        Box::pin(blocking(move || rewind(&region, path, keep)))
    }
}

/// Writes the surviving bytes into a new file and puts it in the place of the old one, whose mapping stays as it is.
fn rewind(old: &Region, path: PathBuf, keep: u64) -> io::Result<Box<dyn RawMapping>> {
    let len = old.len();
    let mut name = path.clone().into_os_string();
    name.push(".rewind");
    let beside = PathBuf::from(name);
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&beside)?;
    let result = (|| {
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len)?;
        old.with(0, keep, |bytes| file.write_all_at(bytes, 0))?;
        file.sync_all()?;
        std::fs::rename(&beside, &path)?;
        // The parent of a bare name is the empty path, which cannot be opened.
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()?;
        Region::map_file(&file, len)
    })();
    match result {
        Ok(region) => Ok(Box::new(RealMapping { region, path })),
        Err(error) => {
            // The old body still stands under the name; a leftover beside it would only confuse.
            drop(std::fs::remove_file(&beside));
            Err(error)
        }
    }
}
