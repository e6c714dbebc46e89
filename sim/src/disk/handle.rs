//! The calls of one life.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use host::{
    fs::{DirEntry, Metadata, OpenOptions, Space},
    machine::{BoxFuture, RawFile},
};

use super::{
    Disk, State,
    device::{Ends, Request},
    errno,
    faults::DiskError,
    file::SimFile,
    journal::Ino,
    names::{self, Body, Dir},
};

/// What a disk needs of the machine around it.
pub trait Surroundings: Send + Sync {
    /// Virtual nanoseconds since the run began; the same clock for all nodes.
    fn now(&self) -> u64;

    /// Waits until that clock shows `at`. Dropping it cancels the timer.
    fn sleep_until(&self, at: u64) -> BoxFuture<()>;

    /// The node's wall clock, in milliseconds since 1970: stamps changes of files.
    fn wall_ms(&self) -> i64;

    /// A call on a file went wrong, as faults of the disk wanted it; with the number of the page if it is about one.
    fn failed(&self, error: DiskError, path: &Path, page: Option<u64>) {
        let _ = (error, path, page);
    }

    /// The power of the node goes, inside a flush that the fault `key` tore. Called inside a poll of one of its tasks,
    /// with nothing locked.
    fn lose_power(&self, key: u64) {
        let _ = key;
    }

    /// The process touched memory that the device cannot back (SIGBUS): stop the node, as a panic would. Called inside
    /// a poll of one of its tasks, with nothing locked.
    fn die(&self, reason: &str);
}

/// The disk as one life of its node sees it. The methods are those of `host::machine::Machine`, and so are their
/// errors; after the end of the life each of them fails.
///
/// The futures do their work when the device has had its time, not before; one that is dropped half-way did nothing.
#[derive(Clone)]
pub struct DiskHandle {
    disk: Disk,
    life: u64,
    surroundings: Arc<dyn Surroundings>,
}

impl fmt::Debug for DiskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskHandle of life {}", self.life)
    }
}

impl DiskHandle {
    pub(super) fn new(disk: Disk, life: u64, surroundings: Arc<dyn Surroundings>) -> DiskHandle {
        DiskHandle { disk, life, surroundings }
    }

    /// Opens or creates a file.
    pub fn open(&self, path: PathBuf, options: OpenOptions) -> BoxFuture<io::Result<Box<dyn RawFile>>> {
        let changes = options.create || options.create_new || options.truncate;
        let request = if changes { Request::Write { bytes: 0 } } else { Request::Read };
        let this = self.clone();
        let opened = self.later(request, move |state, env| open(state, env, &path, options).map(|ino| (ino, path)));
        Box::pin(async move {
            let (ino, path) = opened.await?;
            Ok(Box::new(SimFile::new(this, ino, path, options.write)) as Box<dyn RawFile>)
        })
    }

    /// The entries of a directory, sorted by name.
    pub fn read_dir(&self, path: PathBuf) -> BoxFuture<io::Result<Vec<DirEntry>>> {
        self.later(Request::Read, move |state, _| state.names.list(state.names.resolve(&path)?))
    }

    /// What stands under a name. Served from memory, so it takes no time.
    pub fn metadata(&self, path: PathBuf) -> BoxFuture<io::Result<Metadata>> {
        let found = self.with(|state| {
            let inode = state.names.inode(state.names.resolve(&path)?);
            let len = inode.content().map_or(0, |content| content.len);
            Ok(Metadata { is_dir: inode.is_dir(), len, modified_ms: inode.modified_ms })
        });
        Box::pin(async { found })
    }

    /// Creates a directory and its missing parents.
    pub fn create_dir_all(&self, path: PathBuf) -> BoxFuture<io::Result<()>> {
        self.later(Request::Write { bytes: 0 }, move |state, env| {
            let mut missing = Vec::new();
            let mut here: &Path = &path;
            let top = loop {
                match state.names.resolve(here) {
                    Ok(ino) => break ino,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        missing.push(here);
                        here = here.parent().ok_or_else(|| errno::error(errno::NOT_FOUND))?;
                    }
                    Err(error) => return Err(error),
                }
            };
            if !state.names.inode(top).is_dir() {
                let code = if missing.is_empty() { errno::EXISTS } else { errno::NOT_A_DIR };
                return Err(errno::error(code));
            }
            while let Some(path) = missing.pop() {
                state.check_space(1)?;
                let (dir, name) = state.names.place(path)?;
                let moment = state.moment(env.now());
                state.names.create(dir, &name, Body::Dir(Dir::default()), moment.seq, env.wall_ms());
            }
            Ok(())
        })
    }

    /// Renames a file or directory; an existing file under the new name is replaced atomically.
    pub fn rename(&self, from: PathBuf, to: PathBuf) -> BoxFuture<io::Result<()>> {
        self.later(Request::Write { bytes: 0 }, move |state, env| {
            let (from, to) = (state.names.place(&from)?, state.names.place(&to)?);
            let moment = state.moment(env.now());
            state.names.rename(from, to, moment.seq)
        })
    }

    /// Gives a file a second name.
    pub fn hard_link(&self, from: PathBuf, to: PathBuf) -> BoxFuture<io::Result<()>> {
        self.later(Request::Write { bytes: 0 }, move |state, env| {
            let ino = state.names.resolve(&from)?;
            let (dir, name) = state.names.place(&to)?;
            let moment = state.moment(env.now());
            state.names.link(ino, dir, name, moment.seq)
        })
    }

    /// Removes the name of a file.
    pub fn remove_file(&self, path: PathBuf) -> BoxFuture<io::Result<()>> {
        self.remove(path, false)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: PathBuf) -> BoxFuture<io::Result<()>> {
        self.remove(path, true)
    }

    fn remove(&self, path: PathBuf, want_dir: bool) -> BoxFuture<io::Result<()>> {
        self.later(Request::Write { bytes: 0 }, move |state, env| {
            let (dir, name) = state.names.place(&path)?;
            let moment = state.moment(env.now());
            state.names.remove(dir, name, want_dir, moment.seq)
        })
    }

    /// Makes the entries of a directory durable: those changes that were made before the call.
    pub fn sync_dir(&self, path: PathBuf) -> BoxFuture<io::Result<()>> {
        let this = self.clone();
        Box::pin(async move {
            let (dir, start) = this.with(|state| {
                let dir = state.names.resolve(&path)?;
                state.names.dir(dir)?;
                state.names.open_handle(dir);
                Ok((dir, state.seq))
            })?;
            // Closes the directory also if this future is dropped half-way.
            let _open = OpenDir { handle: &this, dir };
            this.wait(Request::Flush { bytes: 0 }).await?;
            this.with(|state| {
                let durability = state.settings.durability;
                state.names.flush_dir(dir, start, durability);
                state.counters.dir_flushes += 1;
                Ok(())
            })
        })
    }

    /// Space of the device.
    ///
    /// # Errors
    /// `NotFound` if `path` does not exist.
    pub fn space(&self, path: &Path) -> io::Result<Space> {
        self.with(|state| {
            state.names.resolve(path)?;
            let total = state.settings.capacity_bytes;
            Ok(Space { used: state.used(), available: total.saturating_sub(state.used()) })
        })
    }

    /// Memory of the process that is locked: refused by what refuses locks of files anywhere.
    pub fn lock_memory(&self) -> BoxFuture<io::Result<()>> {
        let locked = self.lock_pages(Path::new("/memory"));
        Box::pin(async { locked })
    }

    // ---- for files and mappings ----

    /// Memory is never short here, so a lock is nothing but what faults may refuse.
    pub(super) fn lock_pages(&self, path: &Path) -> io::Result<()> {
        let is_refused = self.in_memory(|state| Ok(state.faults.hit(DiskError::Lock, path)))?;
        if is_refused {
            self.surroundings.failed(DiskError::Lock, path, None);
            return Err(errno::error(errno::NO_MEMORY));
        }
        Ok(())
    }

    /// Runs `call` on the state, unless this life has ended or the device is gone.
    pub(super) fn with<T>(&self, call: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        self.check_device()?;
        self.in_memory(call)
    }

    /// The same for what the kernel does without the device.
    pub(super) fn in_memory<T>(&self, call: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.lock();
        if state.life != self.life {
            return Err(errno::life_ended());
        }
        call(&mut state)
    }

    /// EIO if the device is gone. The first such call of a life is told of.
    pub(super) fn check_device(&self) -> io::Result<()> {
        let life = self.life;
        let (is_gone, is_news) = self.in_memory(|state| {
            let is_gone = state.gone_since.is_some();
            Ok((is_gone, is_gone && std::mem::replace(&mut state.told_gone, life) != life))
        })?;
        if is_news {
            self.surroundings.failed(DiskError::Gone, Path::new("/"), None);
        }
        if is_gone { Err(errno::error(errno::IO)) } else { Ok(()) }
    }

    pub(super) fn env(&self) -> &dyn Surroundings {
        &*self.surroundings
    }

    /// Ends when the device has done `request`.
    pub(super) async fn wait(&self, request: Request) -> io::Result<()> {
        let now = self.surroundings.now();
        match self.in_memory(|state| Ok(state.device.request(now, request)))? {
            Ends::At(end) if end > now => self.surroundings.sleep_until(end).await,
            Ends::At(_) => {}
            Ends::AsTold(ticket) => self.wait_for(ticket).await?,
        }
        Ok(())
    }

    /// Waits for a request whose end may come nearer meanwhile.
    async fn wait_for(&self, ticket: u64) -> io::Result<()> {
        loop {
            let mut hastened = std::pin::pin!(self.disk.hastened.notified());
            hastened.as_mut().enable(); // Before the look, or it could come in between.
            let end = self.in_memory(|state| Ok(state.device.end_of(ticket)))?;
            let Some(end) = end.filter(|end| *end > self.surroundings.now()) else { return Ok(()) };
            host::select! {
                () = hastened => {}
                () = self.surroundings.sleep_until(end) => {}
            }
        }
    }

    /// Waits for the device, then runs `call` on the state.
    pub(super) fn later<T, C>(&self, request: Request, call: C) -> BoxFuture<io::Result<T>>
    where
        T: Send + 'static,
        C: FnOnce(&mut State, &dyn Surroundings) -> io::Result<T> + Send + 'static,
    {
        let this = self.clone();
        Box::pin(async move {
            this.wait(request).await?;
            this.with(|state| call(state, &*this.surroundings))
        })
    }
}

/// A directory that is being flushed.
struct OpenDir<'a> {
    handle: &'a DiskHandle,
    dir: Ino,
}

impl Drop for OpenDir<'_> {
    fn drop(&mut self) {
        let closed = self.handle.in_memory(|state| {
            state.names.close_handle(self.dir);
            Ok(())
        });
        // An error says that the life has ended, which closed everything.
        drop(closed);
    }
}

fn open(state: &mut State, env: &dyn Surroundings, path: &Path, options: OpenOptions) -> io::Result<Ino> {
    let OpenOptions { write, create, create_new, truncate } = options;
    if !write && (create || create_new || truncate) {
        return Err(errno::error(errno::INVALID));
    }
    let found = match state.names.resolve(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && (create || create_new) => None,
        found => Some(found?),
    };
    let ino = match found {
        Some(_) if create_new => return Err(errno::error(errno::EXISTS)),
        Some(ino) if state.names.inode(ino).is_dir() => return Err(errno::error(errno::IS_A_DIR)),
        Some(ino) => {
            if truncate {
                let moment = state.moment(env.now());
                state.content_mut(ino).set_len(0, moment)?;
                state.names.inode_mut(ino).modified_ms = env.wall_ms();
                state.names.recharge(ino);
            }
            ino
        }
        None => {
            state.check_space(1)?;
            let (dir, name) = state.names.place(path)?;
            let moment = state.moment(env.now());
            let content = Box::new(state.new_content());
            state.names.create(dir, &name, names::Body::File(content), moment.seq, env.wall_ms())
        }
    };
    state.names.open_handle(ino);
    Ok(ino)
}
