//! The handle of a machine, and how a task finds the one it runs on.

use std::{
    cell::RefCell,
    fmt,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    fs::Files,
    machine::Machine,
    net::{self, TcpListener, TcpStream},
    rand::Rng,
    task::{self, JoinHandle},
    time::{Elapsed, Mono, Sleep},
};

thread_local! {
    /// The host of the task that this thread is polling or dropping right now.
    static CURRENT: RefCell<Option<Host>> = const { RefCell::new(None) };
}

/// A handle of the machine that a node runs on, tied to one life (incarnation) of that node. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    machine: Arc<dyn Machine>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({}/{})", self.node(), self.incarnation())
    }
}

impl Host {
    /// Wraps a machine. Used by whoever provides one, not by product code.
    #[must_use]
    pub fn new(machine: Arc<dyn Machine>) -> Host {
        Host { machine }
    }

    /// The host of the running task.
    ///
    /// # Panics
    /// Outside a node: on a thread that is neither polling nor dropping a task of one, and has not [entered](Host::enter)
    /// one. There is no fallback to the real machine, because a simulation that leaked into it would not replay.
    #[must_use]
    pub fn current() -> Host {
        Host::try_current().expect("Host::current() outside a node: spawn through a Host, or enter one first")
    }

    /// The host of the running task, or `None` outside a node.
    #[must_use]
    pub fn try_current() -> Option<Host> {
        // No host either while the thread ends and its locals are gone.
        CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
    }

    /// Makes this the current host of the thread until the guard is dropped.
    pub fn enter(&self) -> Entered {
        Entered { previous: swap(Some(self.clone())), not_send: PhantomData }
    }

    /// Wraps a future so that this host is current during each of its polls and during its drop.
    pub fn scope<F: Future>(&self, future: F) -> Scoped<F> {
        Scoped { host: self.clone(), future: Some(Box::pin(future)) }
    }

    /// The name of the node, such as `broker-a/0`; on a real machine whatever it was started with.
    #[must_use]
    pub fn node(&self) -> &str {
        self.machine.node()
    }

    /// Which life of the node this is, from 1.
    #[must_use]
    pub fn incarnation(&self) -> u32 {
        self.machine.incarnation()
    }

    /// A number for the process of this node, as the reference writes it into marker files. On a stand it depends on
    /// node and incarnation only.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.machine.process_id()
    }

    /// How many files and sockets the process of this node may have open at once; `None` if nothing limits it.
    #[must_use]
    pub fn open_files_max(&self) -> Option<u64> {
        self.machine.open_files_max()
    }

    /// The machine itself, for the wrappers of this crate and for those who provide machines.
    #[must_use]
    pub fn machine(&self) -> &Arc<dyn Machine> {
        &self.machine
    }

    // ---- tasks ----

    /// Starts a task of this node. It goes on when the handle is dropped, and ends when the node dies.
    ///
    /// A panic inside stops the whole node, on every machine. `name` appears in reports only.
    pub fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        task::spawn(self, name, future)
    }

    // ---- time ----

    /// Monotonic time of this node. Starts near zero at boot, never goes back.
    #[must_use]
    pub fn now(&self) -> Mono {
        self.machine.mono()
    }

    /// As [`now`](Host::now), up to some 10 ms behind it, at a fraction of its cost: for figures that are taken of every
    /// message.
    #[must_use]
    pub fn now_coarse(&self) -> Mono {
        self.machine.mono_coarse()
    }

    /// Wall-clock time of this node: milliseconds since 1970, UTC. It may be wrong, and it may jump either way.
    #[must_use]
    pub fn wall_ms(&self) -> i64 {
        self.machine.wall_ms()
    }

    /// Ends after `duration` of this node's monotonic time.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }

    /// Ends at `deadline` of this node's monotonic time; at once if that has passed. Dropping it cancels the timer.
    pub fn sleep_until(&self, deadline: Mono) -> Sleep {
        Sleep::new(self, deadline)
    }

    /// Waits for `future`, at most `duration`; the future is dropped when the time is over.
    ///
    /// # Errors
    /// [`Elapsed`] if the time was over first. A future that is ready in the same instant wins.
    pub async fn timeout<F: Future>(&self, duration: Duration, future: F) -> Result<F::Output, Elapsed> {
        let future = std::pin::pin!(future);
        let sleep = self.sleep(duration);
        crate::select! {
            output = future => Ok(output),
            () = sleep => Err(Elapsed),
        }
    }

    // ---- net ----

    /// Opens a TCP connection. Nothing limits the time but the machine's own limit (minutes): wrap it in
    /// [`timeout`](Host::timeout).
    ///
    /// # Errors
    /// As the operating system reports them: refused, timed out, unreachable.
    pub async fn connect(&self, to: std::net::SocketAddr) -> std::io::Result<TcpStream> {
        self.machine.connect(to).await.map(TcpStream::new)
    }

    /// Listens for TCP connections. Port 0 lets the machine choose; `TcpListener::local_addr` tells which.
    ///
    /// # Errors
    /// `AddrInUse`, `AddrNotAvailable` and whatever else the operating system reports.
    pub async fn bind(&self, on: std::net::SocketAddr) -> std::io::Result<TcpListener> {
        self.machine.listen(on).await.map(TcpListener::new)
    }

    /// Turns `host:port` (a name or an IP address) into one address; the first IPv4 address of a name wins.
    ///
    /// # Errors
    /// `InvalidInput` if the text is not of that form, `NotFound` if nobody knows the name.
    pub async fn resolve(&self, address: &str) -> std::io::Result<std::net::SocketAddr> {
        net::resolve(self, address).await
    }

    // ---- files ----

    /// Keeps memory of this process from being swapped out (`mlock`), until the region is gone.
    ///
    /// # Errors
    /// The process may not lock so much memory (`OutOfMemory`), or none at all (`PermissionDenied`).
    pub async fn lock_memory(&self, region: &crate::region::Region) -> std::io::Result<()> {
        self.machine.lock_memory(region.clone()).await
    }

    /// The file systems of this node.
    #[must_use]
    pub fn files(&self) -> Files {
        Files::new(self)
    }

    // ---- chance ----

    /// A source of chance for one entity, such as a producer or one timer loop: the streams of different names do not
    /// influence each other. On a stand the numbers follow from the seed, the node, its incarnation and `stream`.
    #[must_use]
    pub fn rng(&self, stream: &str) -> Rng {
        Rng::new(self, stream)
    }
}

/// Keeps a host current for a thread; see [`Host::enter`].
#[must_use = "the host is left again when this is dropped"]
pub struct Entered {
    previous: Option<Host>,
    /// The guard belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        drop(swap(self.previous.take()));
    }
}

/// A future whose polls and drop happen inside a host; see [`Host::scope`].
pub struct Scoped<F> {
    host: Host,
    /// `None` only while it is being dropped.
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _entered = self.host.enter();
        self.future.as_mut().expect("only a drop takes the future away").as_mut().poll(cx)
    }
}

impl<F> Drop for Scoped<F> {
    fn drop(&mut self) {
        let _entered = self.host.enter();
        self.future = None;
    }
}

/// Makes a host current while `work` runs, which must not panic. It is moved there and back: a task does this at every
/// poll, and another handle would have to be counted.
pub(crate) fn lend<T>(host: &mut Option<Host>, work: impl FnOnce() -> T) -> T {
    let previous = swap(host.take());
    let result = work();
    *host = swap(previous);
    result
}

fn swap(host: Option<Host>) -> Option<Host> {
    CURRENT.try_with(|current| current.replace(host)).ok().flatten()
}
