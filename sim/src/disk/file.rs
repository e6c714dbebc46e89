//! Open files and mappings of one life.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use host::{
    fs::Advice,
    machine::{BoxFuture, RawFile, RawMapping},
    region::Region,
};

use super::{
    State,
    device::Request,
    errno,
    faults::DiskError,
    handle::{DiskHandle, Surroundings},
    journal::Ino,
    names::Body,
    page_set::pages_of,
    pages::PAGE_BYTES,
};

pub(super) struct SimFile {
    handle: DiskHandle,
    ino: Ino,
    path: PathBuf,
    write: bool,
    /// Its number among all open files of the disk, once it tried to take the lock.
    owner: std::sync::OnceLock<u64>,
    /// How many failed flushes of the file it has told of.
    told: Told,
}

/// How many failed flushes an open file has told of. Shared with its flushes under way.
type Told = Arc<AtomicU64>;

/// One that was opened now: earlier failures are none of its business.
fn told_of_all(handle: &DiskHandle, ino: Ino) -> Told {
    let errors = handle.in_memory(|state| Ok(state.names.inode(ino).flush_errors));
    // Of a life that has ended nobody asks any more.
    Arc::new(AtomicU64::new(errors.unwrap_or(0)))
}

impl SimFile {
    /// `ino` has been opened for it.
    pub(super) fn new(handle: DiskHandle, ino: Ino, path: PathBuf, write: bool) -> SimFile {
        let told = told_of_all(&handle, ino);
        SimFile { handle, ino, path, write, owner: std::sync::OnceLock::new(), told }
    }

    fn check_write(&self) -> io::Result<()> {
        if self.write { Ok(()) } else { Err(errno::error(errno::BAD_HANDLE)) }
    }

    /// Changes a length or blocks, once the device has had its time.
    fn change<C>(&self, change: C) -> BoxFuture<io::Result<()>>
    where
        C: FnOnce(&mut State, &dyn Surroundings) -> io::Result<()> + Send + 'static,
    {
        let (handle, path) = (self.handle.clone(), self.path.clone());
        let changed = self.handle.later(Request::Write { bytes: 0 }, change);
        Box::pin(async move {
            let changed = changed.await;
            tell_if_failed(&handle, DiskError::Write, &path, &changed);
            changed
        })
    }
}

impl RawFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        self.handle.with(|state| Ok(state.content(self.ino).len))
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let env = self.handle.env();
        let mut short = false;
        let read = self.handle.with(|state| {
            state.fetch((self.ino, &self.path), at, buf.len() as u64, env.now())?;
            let there = state.content(self.ino).len.saturating_sub(at).min(buf.len() as u64);
            let hit = if there > 1 { state.faults.hit_by(DiskError::ShortRead, &self.path) } else { None };
            let count = hit.map_or(there, |hit| state.faults.short_read(hit, there));
            short = count < there;
            Ok(state.content(self.ino).read(&mut buf[..count as usize], at))
        });
        tell_if_failed(&self.handle, DiskError::Read, &self.path, &read);
        if short {
            env.failed(DiskError::ShortRead, &self.path, None);
        }
        read
    }

    fn next_data(&self, at: u64) -> io::Result<Option<Range<u64>>> {
        self.handle.with(|state| Ok(state.content(self.ino).next_data(at)))
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.check_write()?;
        let env = self.handle.env();
        let mut short = false;
        let written = self.handle.with(|state| {
            if state.faults.hit(DiskError::Write, &self.path) {
                return Err(errno::error(errno::IO));
            }
            let mut bytes = bytes;
            if bytes.len() > 1 && state.faults.hit(DiskError::ShortWrite, &self.path) {
                let count = state.faults.shortness(state.seq).within(1..=bytes.len() as u64 - 1);
                (bytes, short) = (&bytes[..count as usize], true);
            }
            state.names.inode_mut(self.ino).modified_ms = env.wall_ms();
            state.write((self.ino, &self.path), at, bytes, env.now())
        });
        tell_if_failed(&self.handle, DiskError::Write, &self.path, &written);
        if short && written.is_ok() {
            env.failed(DiskError::ShortWrite, &self.path, None);
        }
        written
    }

    fn set_len(&self, len: u64) -> BoxFuture<io::Result<()>> {
        if !self.write {
            // As Linux: EINVAL, not EBADF.
            return Box::pin(async { Err(errno::error(errno::INVALID)) });
        }
        let (ino, path) = (self.ino, self.path.clone());
        self.change(move |state, env| {
            refuse_write(state, &path)?;
            let moment = state.moment(env.now());
            state.content_mut(ino).set_len(len, moment)?;
            state.names.inode_mut(ino).modified_ms = env.wall_ms();
            state.names.recharge(ino);
            Ok(())
        })
    }

    fn allocate(&self, len: u64) -> BoxFuture<io::Result<()>> {
        if let Err(error) = self.check_write() {
            return Box::pin(async { Err(error) });
        }
        let (ino, path) = (self.ino, self.path.clone());
        self.change(move |state, env| {
            refuse_write(state, &path)?;
            state.check_space(state.content(ino).reserve_cost(len))?;
            let moment = state.moment(env.now());
            state.content_mut(ino).reserve(len, moment)?;
            state.names.recharge(ino);
            Ok(())
        })
    }

    fn sync(&self, _data_only: bool) -> BoxFuture<io::Result<()>> {
        // Times of files are durable at once here, so nothing tells the two kinds apart.
        flush(self.handle.clone(), (self.ino, self.path.clone()), Arc::clone(&self.told), 0..u64::MAX)
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.handle.with(|state| {
            let owner = *self.owner.get_or_init(|| {
                state.seq += 1;
                state.seq
            });
            let lock = &mut state.names.inode_mut(self.ino).lock;
            Ok(*lock.get_or_insert(owner) == owner)
        })
    }

    fn map(&self, len: u64) -> BoxFuture<io::Result<Box<dyn RawMapping>>> {
        if !self.write {
            return Box::pin(async { Err(errno::error(errno::ACCESS)) });
        }
        let (handle, ino, path) = (self.handle.clone(), self.ino, self.path.clone());
        let now = self.handle.env().now();
        let mapped = self.handle.with(|state| {
            state.content_mut(ino).revert(now);
            let region = state.content_mut(ino).map(len)?;
            state.names.open_handle(ino);
            state.names.recharge(ino);
            Ok(region)
        });
        let told = told_of_all(&handle, ino);
        let mapping =
            mapped.map(|region| Box::new(SimMapping { handle, ino, path, region, len, told }) as Box<dyn RawMapping>);
        Box::pin(async { mapping })
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let closed = self.handle.in_memory(|state| {
            let inode = state.names.inode_mut(self.ino);
            if inode.lock.is_some() && inode.lock.as_ref() == self.owner.get() {
                inode.lock = None;
            }
            state.names.close_handle(self.ino);
            Ok(())
        });
        // An error says that the life has ended, which closed everything.
        drop(closed);
    }
}

struct SimMapping {
    handle: DiskHandle,
    ino: Ino,
    path: PathBuf,
    /// Longer than the mapping, to leave the file room to grow.
    region: Region,
    len: u64,
    /// How many failed flushes of the file it has told of.
    told: Told,
}

impl SimMapping {
    /// A read through the mapping: the process dies if the device cannot give what is not in the page cache.
    fn fetch(&self, from: u64, to: u64) {
        let env = self.handle.env();
        let fetched = self.handle.with(|state| state.fetch((self.ino, &self.path), from, to - from, env.now()));
        if is_io(&fetched) {
            env.failed(DiskError::Read, &self.path, None);
            env.die(&format!("SIGBUS: {} cannot be read at {from}..{to}", self.path.display()));
        }
    }

    fn check(&self, from: u64, to: u64) {
        assert!(from <= to && to <= self.len, "{from}..{to} outside 0..{}", self.len);
    }
}

impl RawMapping for SimMapping {
    fn len(&self) -> u64 {
        self.len
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.check(at, at.saturating_add(bytes.len() as u64));
        if bytes.is_empty() {
            return;
        }
        let env = self.handle.env();
        let frozen = self.region.frozen();
        let stored = self.handle.with(|state| {
            if at < frozen {
                return Ok(0);
            }
            state.names.inode_mut(self.ino).modified_ms = env.wall_ms();
            state.write((self.ino, &self.path), at, bytes, env.now())
        });
        if is_io(&stored) {
            env.failed(DiskError::Read, &self.path, None);
            env.die(&format!("SIGBUS: {} cannot be read at {at}", self.path.display()));
            return;
        }
        match stored {
            Ok(count) if count == bytes.len() => {}
            Ok(_) if at < frozen => panic!("store to {at} below {frozen}, which readers hold"),
            Err(error) if error.kind() != io::ErrorKind::StorageFull => {} // The life has ended: nothing happens.
            Ok(_) | Err(_) => {
                env.die(&format!("SIGBUS: no space for a mapped store to {}", self.path.display()));
            }
        }
    }

    fn with(&self, from: u64, to: u64, look: &mut dyn FnMut(&[u8])) {
        self.check(from, to);
        self.fetch(from, to);
        self.region.with(from, to, look);
    }

    fn slice(&self, from: u64, to: u64) -> Bytes {
        self.check(from, to);
        self.fetch(from, to);
        self.region.slice(from, to)
    }

    fn touch(&self, from: u64, to: u64) -> BoxFuture<io::Result<()>> {
        self.check(from, to);
        let mut at = from;
        while at < to {
            // What was handed out is in memory.
            if at >= self.region.frozen() {
                let mut byte = [0];
                self.with(at, at + 1, &mut |bytes| byte.copy_from_slice(bytes));
                self.write(at, &byte);
            }
            at = (at / PAGE_BYTES + 1) * PAGE_BYTES;
        }
        Box::pin(async { Ok(()) })
    }

    fn lock(&self) -> BoxFuture<io::Result<()>> {
        let locked = self.handle.lock_pages(&self.path);
        Box::pin(async { locked })
    }

    fn unlock(&self) -> io::Result<()> {
        Ok(())
    }

    fn advise(&self, _advice: Advice) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self, from: u64, to: u64) -> BoxFuture<io::Result<()>> {
        self.check(from, to);
        let file = (self.ino, self.path.clone());
        flush(self.handle.clone(), file, Arc::clone(&self.told), from / PAGE_BYTES..pages_of(to))
    }

    fn rewind(&self, keep: u64) -> BoxFuture<io::Result<Box<dyn RawMapping>>> {
        self.check(0, keep);
        // The mapping may be dropped before the future ends; its file must not be forgotten meanwhile.
        let held = OpenInode::new(&self.handle, self.ino);
        let rewind =
            Rewind { handle: self.handle.clone(), old: self.ino, path: self.path.clone(), keep, len: self.len };
        Box::pin(async move {
            let _held = held?;
            rewind.run().await
        })
    }
}

impl Drop for SimMapping {
    fn drop(&mut self) {
        let closed = self.handle.in_memory(|state| {
            state.content_mut(self.ino).unmap();
            state.names.close_handle(self.ino);
            Ok(())
        });
        // An error says that the life has ended, which closed everything.
        drop(closed);
    }
}

/// Keeps an inode for as long as something is done to it.
struct OpenInode {
    handle: DiskHandle,
    ino: Ino,
}

impl OpenInode {
    fn new(handle: &DiskHandle, ino: Ino) -> io::Result<OpenInode> {
        handle.in_memory(|state| {
            state.names.open_handle(ino);
            Ok(())
        })?;
        Ok(OpenInode { handle: handle.clone(), ino })
    }
}

impl Drop for OpenInode {
    fn drop(&mut self) {
        let closed = self.handle.in_memory(|state| {
            state.names.close_handle(self.ino);
            Ok(())
        });
        // An error says that the life has ended, which closed everything.
        drop(closed);
    }
}

fn is_io<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.raw_os_error() == Some(errno::IO))
}

fn tell_if_failed<T>(handle: &DiskHandle, error: DiskError, path: &Path, result: &io::Result<T>) {
    if is_io(result) {
        handle.env().failed(error, path, None);
    }
}

/// Fails what changes a length or blocks, if faults want it.
fn refuse_write(state: &mut State, path: &Path) -> io::Result<()> {
    if state.faults.hit(DiskError::Write, path) { Err(errno::error(errno::IO)) } else { Ok(()) }
}

/// Makes pages durable as they are when the future is first polled.
fn flush(
    handle: DiskHandle,
    (ino, path): (Ino, PathBuf),
    told: Told,
    pages: std::ops::Range<u64>,
) -> BoxFuture<io::Result<()>> {
    let held = OpenInode::new(&handle, ino);
    Box::pin(async move {
        let held = held?;
        let now = handle.env().now();
        let (flight, bytes) = handle.in_memory(|state| {
            let start = state.seq;
            let content = state.content_mut(ino);
            content.begin_flush(start);
            let bytes = content.dirty(pages.start, pages.end, now) * PAGE_BYTES;
            Ok((Flight { handle: &handle, ino, start: Some(start) }, bytes))
        })?;
        handle.wait(Request::Flush { bytes }).await?;
        let landed = flight.land(&path, &told, pages);
        let landed = landed.and_then(|landed| handle.check_device().map(|()| landed));
        tell_if_failed(&handle, DiskError::Flush, &path, &landed);
        drop(held);
        let Landed { wrongs, torn_by } = landed?;
        for (error, path, page) in wrongs {
            handle.env().failed(error, &path, page);
        }
        if let Some(fault) = torn_by {
            handle.env().lose_power(fault);
            // Nobody hears how a flush ended that the power went in.
            std::future::pending::<()>().await;
        }
        Ok(())
    })
}

/// A flush under way. Dropped before it lands, it promises nothing.
struct Flight<'a> {
    handle: &'a DiskHandle,
    ino: Ino,
    start: Option<u64>,
}

impl Flight<'_> {
    /// # Errors
    /// This flush failed, or one that the open file has not told of.
    fn land(mut self, path: &Path, told: &AtomicU64, pages: std::ops::Range<u64>) -> io::Result<Landed> {
        let now = self.handle.env().now();
        self.handle.in_memory(|state| {
            let mut landed = Landed::default();
            if let Some(start) = self.start.take() {
                landed = state.land_flush((self.ino, path), start, pages, now);
            }
            let errors = state.names.inode(self.ino).flush_errors;
            if told.swap(errors, Ordering::Relaxed) < errors {
                return Err(errno::error(errno::IO));
            }
            Ok(landed)
        })
    }
}

/// How a flush ended that reports no error.
#[derive(Default)]
pub(super) struct Landed {
    /// What it did wrong all the same, and where.
    pub wrongs: Vec<(DiskError, PathBuf, Option<u64>)>,
    /// The fault that took the power in the middle of it.
    pub torn_by: Option<u64>,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let Some(start) = self.start else { return };
        let cancelled = self.handle.in_memory(|state| {
            state.content_mut(self.ino).cancel_flush(start);
            Ok(())
        });
        // An error says that the life has ended, and its flushes with it.
        drop(cancelled);
    }
}

/// Puts a new file in the place of `old`: `0..keep` copied, zeros up to `len`, everything durable. The steps are those
/// of the real machine, so that a crash between them leaves the same: the old body or the new one under the name, and
/// perhaps a file beside it.
struct Rewind {
    handle: DiskHandle,
    old: Ino,
    path: PathBuf,
    keep: u64,
    len: u64,
}

impl Rewind {
    async fn run(self) -> io::Result<Box<dyn RawMapping>> {
        let mut beside = self.path.clone().into_os_string();
        beside.push(".rewind");
        let beside = PathBuf::from(beside);
        let (ino, region) = self.handle.with(|state| self.prepare(state, &beside))?;
        let (handle, len) = (self.handle.clone(), self.len);
        let told = told_of_all(&handle, ino);
        let mapping = SimMapping { handle, ino, path: self.path.clone(), region, len, told };
        mapping.sync(0, len).await?;
        let renamed = self.handle.with(|state| {
            let (from, to) = (state.names.place(&beside)?, state.names.place(&self.path)?);
            let moment = state.moment(self.handle.env().now());
            state.names.rename(from, to, moment.seq)
        });
        renamed?;
        self.handle.sync_dir(self.path.parent().unwrap_or(Path::new("/")).to_owned()).await?;
        Ok(Box::new(mapping))
    }

    /// Creates the new body beside the file, mapped.
    fn prepare(&self, state: &mut State, beside: &Path) -> io::Result<(Ino, Region)> {
        let (dir, name) = state.names.place(beside)?;
        state.check_space(pages_of(self.len))?;
        state.fetch((self.old, &self.path), 0, self.keep, self.handle.env().now())?;
        let mut kept = vec![0; usize::try_from(self.keep).map_err(io::Error::other)?];
        state.content(self.old).read(&mut kept, 0);
        let mut content = Box::new(state.new_content());
        let env = self.handle.env();
        let moment = state.moment(env.now());
        content.reserve(self.len, moment)?;
        content.write(0, &kept, moment)?;
        let region = content.map(self.len)?;
        let ino = state.names.create(dir, &name, Body::File(content), moment.seq, env.wall_ms());
        state.names.open_handle(ino);
        state.names.recharge(ino);
        Ok((ino, region))
    }
}
