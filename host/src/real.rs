//! The real machine: tokio for tasks, timers and sockets, the operating system's files, the process's chance.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
#[cfg(target_os = "linux")]
use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio::sync::watch;

use crate::{
    Host,
    fs::{DirEntry, Metadata, OpenOptions, Space},
    machine::{BoxFuture, Listener, Machine, RawFile, Stream, TaskControl, Timer},
    region::Region,
    time::Mono,
};

mod files;
mod sockets;

/// Set once in a process that simulates: from then on nothing here opens anything.
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// Makes the real machine refuse to open sockets, files and runtimes in this process from now on, so that a
/// simulation can never fall back to it.
pub fn forbid() {
    FORBIDDEN.store(true, Ordering::SeqCst);
}

fn check_allowed() -> io::Result<()> {
    if FORBIDDEN.load(Ordering::SeqCst) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "this process simulates: the real machine is closed"));
    }
    Ok(())
}

/// The content of a file that nobody writes to, and its length: for tools that look at files at rest. Bytes that were
/// never written are left out at the end. A file that is cut meanwhile ends the process.
///
/// # Errors
/// As the operating system reports them.
pub fn read_at_rest(path: &Path) -> io::Result<(bytes::Bytes, u64)> {
    check_allowed()?;
    files::read_at_rest(path)
}

/// Whether another process holds the lock of a file that [`crate::fs::File::try_lock`] takes, or Java's `tryLock`.
///
/// # Errors
/// As the operating system reports them.
pub fn is_locked(path: &Path) -> io::Result<bool> {
    check_allowed()?;
    files::is_locked(path)
}

/// Why [`run`] ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The machine could not start.
    #[error("cannot start the runtime")]
    Start(#[from] io::Error),
    /// A task panicked, which stops the node. The panic itself has been printed by the panic hook.
    #[error("task `{task}` panicked: {message}")]
    Panicked {
        /// The name that the task was spawned with.
        task: &'static str,
        /// What it panicked with.
        message: String,
    },
}

/// Runs one node on the real machine until `main` ends, then drops the tasks it left behind. The soft limit of open
/// files becomes the hard one.
///
/// # Errors
/// [`RunError::Panicked`] as soon as any task of the node panics.
///
/// # Panics
/// If called inside a tokio runtime.
pub fn run<M, F>(node: &str, main: M) -> Result<F::Output, RunError>
where
    M: FnOnce(Host) -> F,
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    check_allowed()?;
    raise_open_files_max();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (panicked, mut panics) = watch::channel(None);
    let host = Host::new(Arc::new(RealMachine {
        node: node.to_owned(),
        runtime: runtime.handle().clone(),
        booted: Instant::now(),
        #[cfg(target_os = "linux")]
        booted_ns: nanos(clock_gettime(ClockId::Monotonic)),
        chance: std::hash::RandomState::new(),
        panicked,
    }));
    let main = {
        let _entered = host.enter();
        host.spawn("main", main(host.clone()))
    };
    let ended = runtime.block_on(async {
        crate::select! {
            changed = panics.changed() => {
                drop(changed);
                None
            }
            result = main => result.ok(),
        }
    });
    // Tasks that are still running hold sockets and files: they go before the result is given back.
    runtime.shutdown_timeout(Duration::from_secs(10));
    let panic = panics.borrow().clone();
    match (ended, panic) {
        (Some(output), None) => Ok(output),
        (_, Some((task, message))) => Err(RunError::Panicked { task, message }),
        (None, None) => Err(RunError::Panicked { task: "main", message: "aborted".to_owned() }),
    }
}

/// The signals that ask a process to stop: resolves at the first SIGTERM or SIGINT after its first poll. From then on
/// they do not end the process by themselves.
///
/// # Errors
/// If the handlers cannot be installed.
pub async fn stop_signal() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    crate::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

/// Limits the address space of this process from now on, in bytes. What is mapped already stays; whatever asks for more
/// than the rest is refused, which ends the process where it does not expect that.
///
/// # Errors
/// If the limit is above one that was set before and may not be raised.
pub fn limit_address_space(bytes: u64) -> io::Result<()> {
    Ok(setrlimit(Resource::As, Rlimit { current: Some(bytes), maximum: Some(bytes) })?)
}

/// Lets this process have as many files and sockets open as the system allows it: each connection and each file of a
/// queue is one, and what a shell starts with is often 1024.
fn raise_open_files_max() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
    {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

struct RealMachine {
    node: String,
    runtime: tokio::runtime::Handle,
    booted: Instant,
    /// The same moment by the clock of the system that [`Instant`] takes.
    #[cfg(target_os = "linux")]
    booted_ns: u64,
    /// Keyed from the operating system's randomness; its hashes are this machine's draws.
    chance: std::hash::RandomState,
    panicked: watch::Sender<Option<(&'static str, String)>>,
}

#[cfg(target_os = "linux")]
fn nanos(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The moment `at` of a node that booted at `booted`.
fn instant(booted: Instant, at: Mono) -> Instant {
    booted.checked_add(Duration::from_nanos(at.as_nanos())).unwrap_or_else(|| {
        // Beyond what the clock can express: a moment that never comes.
        Instant::now() + Duration::from_secs(60 * 60 * 24 * 365 * 30)
    })
}

impl Machine for RealMachine {
    fn node(&self) -> &str {
        &self.node
    }

    fn incarnation(&self) -> u32 {
        1
    }

    fn process_id(&self) -> u32 {
        std::process::id()
    }

    fn spawn(&self, _name: &'static str, future: BoxFuture<()>) -> Box<dyn TaskControl> {
        Box::new(RealTask(self.runtime.spawn(future).abort_handle()))
    }

    fn panicked(&self, task: &'static str, message: &str) {
        // The first panic is the one to report.
        self.panicked.send_if_modified(|first| {
            let is_first = first.is_none();
            if is_first {
                *first = Some((task, message.to_owned()));
            }
            is_first
        });
    }

    fn mono(&self) -> Mono {
        Mono::from_nanos(u64::try_from(self.booted.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    #[cfg(target_os = "linux")]
    fn mono_coarse(&self) -> Mono {
        let now = nanos(clock_gettime(ClockId::MonotonicCoarse));
        Mono::from_nanos(now.saturating_sub(self.booted_ns))
    }

    fn wall_ms(&self) -> i64 {
        wall_ms(SystemTime::now())
    }

    fn timer(&self, deadline: Mono) -> Box<dyn Timer> {
        let _runtime = self.runtime.enter();
        Box::new(RealTimer {
            booted: self.booted,
            sleep: Box::pin(tokio::time::sleep_until(instant(self.booted, deadline).into())),
        })
    }

    fn connect(&self, to: SocketAddr) -> BoxFuture<io::Result<Box<dyn Stream>>> {
        Box::pin(sockets::connect(to))
    }

    fn listen(&self, on: SocketAddr) -> BoxFuture<io::Result<Box<dyn Listener>>> {
        Box::pin(sockets::listen(on))
    }

    fn lookup(&self, host: String, port: u16) -> BoxFuture<io::Result<Vec<SocketAddr>>> {
        Box::pin(sockets::lookup(host, port))
    }

    fn open(&self, path: PathBuf, options: OpenOptions) -> BoxFuture<io::Result<Box<dyn RawFile>>> {
        Box::pin(files::open(path, options))
    }

    fn read_dir(&self, path: PathBuf) -> BoxFuture<io::Result<Vec<DirEntry>>> {
        Box::pin(files::read_dir(path))
    }

    fn metadata(&self, path: PathBuf) -> BoxFuture<io::Result<Metadata>> {
        Box::pin(files::metadata(path))
    }

    fn create_dir_all(&self, path: PathBuf) -> BoxFuture<io::Result<()>> {
        Box::pin(files::create_dir_all(path))
    }

    fn rename(&self, from: PathBuf, to: PathBuf) -> BoxFuture<io::Result<()>> {
        Box::pin(files::blocking(move || std::fs::rename(from, to)))
    }

    fn hard_link(&self, from: PathBuf, to: PathBuf) -> BoxFuture<io::Result<()>> {
        Box::pin(files::blocking(move || std::fs::hard_link(from, to)))
    }

    fn remove_file(&self, path: PathBuf) -> BoxFuture<io::Result<()>> {
        Box::pin(files::blocking(move || std::fs::remove_file(path)))
    }

    fn remove_dir(&self, path: PathBuf) -> BoxFuture<io::Result<()>> {
        Box::pin(files::blocking(move || std::fs::remove_dir(path)))
    }

    fn sync_dir(&self, path: PathBuf) -> BoxFuture<io::Result<()>> {
        Box::pin(files::sync_dir(path))
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        files::space(path)
    }

    fn open_files_max(&self) -> Option<u64> {
        getrlimit(Resource::Nofile).current
    }

    fn lock_memory(&self, region: Region) -> BoxFuture<io::Result<()>> {
        Box::pin(files::blocking(move || region.lock()))
    }

    fn draw(&self, stream: u64, counter: u64) -> u64 {
        std::hash::BuildHasher::hash_one(&self.chance, (stream, counter))
    }

    fn point(&self, _name: &'static str, _value: i64, _about: i64) {}

    fn buggify(&self, _name: &'static str) -> bool {
        false
    }

    fn mutant(&self, _name: &'static str) -> bool {
        false
    }
}

fn wall_ms(at: SystemTime) -> i64 {
    let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    match at.duration_since(UNIX_EPOCH) {
        Ok(since) => ms(since),
        Err(before) => -ms(before.duration()),
    }
}

struct RealTask(tokio::task::AbortHandle);

impl TaskControl for RealTask {
    fn abort(&self) {
        self.0.abort();
    }
}

struct RealTimer {
    booted: Instant,
    sleep: Pin<Box<tokio::time::Sleep>>,
}

impl Timer for RealTimer {
    fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.sleep.as_mut().poll(cx)
    }

    fn reset(&mut self, deadline: Mono) {
        self.sleep.as_mut().reset(instant(self.booted, deadline).into());
    }
}
