//! The simulated machine: one life of one node, as its host sees it.
//!
//! Everything handed out holds the [`Life`] it was made in. Once that has ended every operation is refused: the tasks
//! of a dead life are dropped one by one some time after its death, and their destructors must not act any more.

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use host::{
    fs::{DirEntry, Metadata, OpenOptions, Space},
    machine::{BoxFuture, Listener, Machine, RawFile, Stream, TaskControl, Timer as HostTimer},
    region::Region,
    time::Mono,
};
use madsim::{runtime::NodeHandle, task::AbortHandle};

use crate::{
    disk::{DiskError, DiskHandle, Surroundings},
    net,
    seed::{Domain, name_hash},
    stand::node::Life,
    timer::{Timer, TimerClock},
    world::{MeterId, World, lock},
};

const HOST_RNG: Domain = Domain::named("host.rng");
const BUGGIFY_VISIT: Domain = Domain::named("buggify.visit");

/// See the module.
pub(crate) struct SimMachine {
    world: Arc<World>,
    life: Life,
    executor: NodeHandle,
    disk: DiskHandle,
    /// Numbers the tasks of this life.
    tasks: AtomicU64,
    /// How often each `buggify!` was asked. Leaf lock.
    visits: Mutex<BTreeMap<&'static str, u64>>,
}

impl SimMachine {
    /// A new life, which must have been made current already.
    pub(crate) fn new(world: &Arc<World>, life: Life, executor: NodeHandle) -> SimMachine {
        let ground = Ground { world: Arc::downgrade(world), life: life.clone() };
        SimMachine {
            world: Arc::clone(world),
            disk: life.node.disk.attach(Arc::new(ground)),
            life,
            executor,
            tasks: AtomicU64::new(0),
            visits: Mutex::new(BTreeMap::new()),
        }
    }

    /// A number for something of this life.
    fn entity(&self, name: u64) -> u64 {
        self.life.node.name_hash.rotate_left(23) ^ name ^ u64::from(self.life.incarnation).rotate_left(48)
    }
}

impl Machine for SimMachine {
    fn node(&self) -> &str {
        &self.life.node.name
    }

    fn incarnation(&self) -> u32 {
        self.life.incarnation
    }

    fn process_id(&self) -> u32 {
        1_000 * (self.life.node.id.0 + 1) + self.life.incarnation
    }

    fn spawn(&self, name: &'static str, future: BoxFuture<()>) -> Box<dyn TaskControl> {
        if !self.life.is_alive() {
            // Dropped here and now: the task enters its host for that itself.
            return Box::new(NoTask);
        }
        let ordinal = self.tasks.fetch_add(1, Ordering::Relaxed);
        self.life.node.tasks.fetch_add(1, Ordering::Relaxed);
        let node = self.life.node.id;
        let task = Task {
            meter: self.world.spawned(node, ordinal, name),
            world: Arc::clone(&self.world),
            life: self.life.clone(),
            ordinal,
            future,
        };
        Box::new(SimTask(self.executor.spawn(task).abort_handle()))
    }

    fn panicked(&self, task: &'static str, message: &str) {
        self.world.dies(&self.life, task, message);
    }

    fn mono(&self) -> Mono {
        Mono::from_nanos(self.life.node.mono(self.world.now()))
    }

    fn wall_ms(&self) -> i64 {
        self.life.node.wall_ms(self.world.now())
    }

    fn timer(&self, deadline: Mono) -> Box<dyn HostTimer> {
        Box::new(Timer::new(&self.world, TimerClock::Node(self.life.clone()), deadline.as_nanos()))
    }

    fn connect(&self, to: SocketAddr) -> BoxFuture<io::Result<Box<dyn Stream>>> {
        Box::pin(net::connect(Arc::clone(&self.world), self.life.clone(), to))
    }

    fn listen(&self, on: SocketAddr) -> BoxFuture<io::Result<Box<dyn Listener>>> {
        let listening = net::listen(Arc::clone(&self.world), self.life.clone(), on);
        Box::pin(std::future::ready(listening))
    }

    fn lookup(&self, host: String, port: u16) -> BoxFuture<io::Result<Vec<SocketAddr>>> {
        let found = self.world.with(|core, now| core.net(now).0.address_of(&host));
        let addresses = found.map(|ip| vec![SocketAddr::new(IpAddr::V4(ip), port)]);
        let unknown = || io::Error::new(io::ErrorKind::NotFound, format!("no address for host name `{host}`"));
        Box::pin(std::future::ready(addresses.ok_or_else(unknown)))
    }

    fn lock_memory(&self, _region: Region) -> BoxFuture<io::Result<()>> {
        self.disk.lock_memory()
    }

    fn open(&self, path: PathBuf, options: OpenOptions) -> BoxFuture<io::Result<Box<dyn RawFile>>> {
        self.disk.open(path, options)
    }

    fn read_dir(&self, path: PathBuf) -> BoxFuture<io::Result<Vec<DirEntry>>> {
        self.disk.read_dir(path)
    }

    fn metadata(&self, path: PathBuf) -> BoxFuture<io::Result<Metadata>> {
        self.disk.metadata(path)
    }

    fn create_dir_all(&self, path: PathBuf) -> BoxFuture<io::Result<()>> {
        self.disk.create_dir_all(path)
    }

    fn rename(&self, from: PathBuf, to: PathBuf) -> BoxFuture<io::Result<()>> {
        self.disk.rename(from, to)
    }

    fn hard_link(&self, from: PathBuf, to: PathBuf) -> BoxFuture<io::Result<()>> {
        self.disk.hard_link(from, to)
    }

    fn remove_file(&self, path: PathBuf) -> BoxFuture<io::Result<()>> {
        self.disk.remove_file(path)
    }

    fn remove_dir(&self, path: PathBuf) -> BoxFuture<io::Result<()>> {
        self.disk.remove_dir(path)
    }

    fn sync_dir(&self, path: PathBuf) -> BoxFuture<io::Result<()>> {
        self.disk.sync_dir(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.disk.space(path)
    }

    fn refused_memory(&self, bytes: u64) {
        // As Rust does when an allocation fails, which a parent takes for a limit and not for a verdict.
        let size = usize::try_from(bytes).unwrap_or(isize::MAX as usize).min(isize::MAX as usize);
        let layout = std::alloc::Layout::array::<u8>(size).expect("a length that memory may have");
        std::alloc::handle_alloc_error(layout)
    }

    fn draw(&self, stream: u64, counter: u64) -> u64 {
        self.world.seeds.work.draw(HOST_RNG, self.entity(stream), counter).0
    }

    fn point(&self, name: &'static str, value: i64, about: i64) {
        if self.life.is_alive() {
            self.world.point(&self.life, name, [value, about]);
        }
    }

    fn gate(&self, name: &'static str, value: i64) -> Option<BoxFuture<()>> {
        self.point(name, value, 0);
        if self.life.is_alive() {
            self.world.gate(&self.life, name)
        } else {
            // A process that died at this point, or before it, goes no further.
            Some(Box::pin(std::future::pending()))
        }
    }

    fn sometimes(&self, name: &'static str) {
        if self.life.is_alive() {
            self.world.reached(&self.life, name);
        }
    }

    fn always(&self, name: &'static str, holds: bool) {
        if self.life.is_alive() {
            self.world.reached(&self.life, name);
            if !holds {
                self.world.broken(&self.life, name);
            }
        }
    }

    fn buggify(&self, name: &'static str) -> bool {
        let chance_ppm = self.world.buggify.chance_ppm(name);
        if chance_ppm == 0 || !self.life.is_alive() {
            return false;
        }
        let visit = {
            let mut visits = lock(&self.visits);
            let visit = visits.entry(name).or_default();
            *visit += 1;
            *visit
        };
        let says_yes =
            self.world.seeds.work.draw(BUGGIFY_VISIT, self.entity(name_hash(name)), visit).chance(chance_ppm);
        if says_yes {
            self.world.reached(&self.life, name);
        }
        says_yes
    }

    fn mutant(&self, name: &'static str) -> bool {
        self.world.mutants.contains(name)
    }
}

/// A task on the executor: counts its polls. It lets go of its future on the turn that the executor gives it.
struct Task {
    world: Arc<World>,
    life: Life,
    ordinal: u64,
    meter: MeterId,
    future: BoxFuture<()>,
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.world.count_poll(self.life.node.id, self.ordinal, self.meter);
        if self.life.is_alive() && self.life.node.count_poll() {
            self.world.polled(&self.life);
            if !self.life.is_alive() {
                // It died instead of this poll; the executor drops it on its next turn.
                return Poll::Pending;
            }
        }
        self.future.as_mut().poll(cx)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.life.node.tasks.fetch_sub(1, Ordering::Relaxed);
    }
}

struct SimTask(AbortHandle);

impl TaskControl for SimTask {
    fn abort(&self) {
        self.0.abort();
    }
}

/// The control of a task that a dead life wanted to start.
struct NoTask;

impl TaskControl for NoTask {
    fn abort(&self) {}
}

/// What the disk needs of its machine.
struct Ground {
    /// The disk outlives its processes, and must not keep the world of a finished run.
    world: Weak<World>,
    life: Life,
}

impl Ground {
    fn world(&self) -> Arc<World> {
        self.world.upgrade().expect("a disk is used inside its run only")
    }
}

impl Surroundings for Ground {
    fn now(&self) -> u64 {
        self.world.upgrade().map_or(0, |world| world.now())
    }

    fn sleep_until(&self, at: u64) -> BoxFuture<()> {
        Box::pin(Timer::new(&self.world(), TimerClock::True, at))
    }

    fn wall_ms(&self) -> i64 {
        self.world.upgrade().map_or(0, |world| self.life.node.wall_ms(world.now()))
    }

    fn failed(&self, error: DiskError, path: &Path, page: Option<u64>) {
        if let Some(world) = self.world.upgrade() {
            world.disk_failed(&self.life, error, (path, page));
        }
    }

    fn lose_power(&self, key: u64) {
        if let Some(world) = self.world.upgrade() {
            world.flush_torn(&self.life, key);
        }
    }

    fn die(&self, reason: &str) {
        if let Some(world) = self.world.upgrade() {
            world.dies(&self.life, "process", reason);
        }
    }
}
