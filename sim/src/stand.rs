//! The stand as its operator sees it: build nodes, run programs on them, and hurt them.
//!
//! [`run`] simulates on a thread of its own. The supervisor gets a [`Stand`], with which it adds nodes, starts and
//! crashes them, cuts links, and waits in virtual time. Product code on the nodes sees only its [`host::Host`].

use std::{
    collections::BTreeSet,
    future::Future,
    net::Ipv4Addr,
    ops::Range,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use host::{Host, machine::BoxFuture};

use crate::{
    clock::NodeClock,
    disk::{Backup, CrashReport, Disk, DiskError, DiskSettings, Durability, Outage, Timing},
    net::{Impairment, ImpairmentId, ImpairmentKind, NetConfig},
    seed::{Seeds, name_hash},
    stand::node::Node,
    timer::{Timer, TimerClock},
    world::{World, nanos},
};

pub(crate) mod node;

mod run;
mod stamp;

pub use crate::{net::OpenStream, side::Side};
pub use run::run;
pub use stamp::Stamp;

/// A node of the stand: its ordinal, in the order of adding, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Stands for the supervisor and the network itself in the side hash.
    pub const NONE: NodeId = NodeId(u32::MAX);
}

/// What a run starts from.
#[derive(Debug, Clone)]
pub struct StandConfig {
    /// The seeds.
    pub seeds: Seeds,
    /// Virtual time after which the run is ended from outside.
    pub limit: Duration,
    /// The network without impairments.
    pub net: NetConfig,
    /// What the wall clocks show at the start: milliseconds since 1970, UTC.
    pub wall_start_ms: i64,
    /// Planted bugs that are switched on.
    pub mutants: BTreeSet<String>,
    /// More polls than this in one virtual second are a livelock.
    pub polls_per_second_max: u64,
    /// Which events of the side hash to keep in full, by their numbers; for naming a first difference.
    pub side_window: Option<Range<u64>>,
}

impl StandConfig {
    /// The defaults under the seeds of one root: ten virtual minutes, no planted bugs.
    #[must_use]
    pub fn new(seeds: Seeds) -> StandConfig {
        StandConfig {
            seeds,
            limit: Duration::from_secs(600),
            net: NetConfig::default(),
            wall_start_ms: 1_767_225_600_000, // 2026-01-01
            mutants: BTreeSet::new(),
            polls_per_second_max: 2_000_000,
            side_window: None,
        }
    }
}

/// A moment in the life of a node.
#[derive(Debug, Clone)]
pub struct Place {
    /// True time since the run began.
    pub at: Duration,
    /// The node.
    pub node: NodeId,
    /// Its name.
    pub name: Arc<str>,
    /// Its life, from 1.
    pub incarnation: u32,
}

/// What a run tells while it runs. Called on the simulation's thread, in the middle of the task that caused it: it may
/// use the [`Stand`] (a node killed here goes on to its next await, with every operation refused), but not wait.
pub trait Observer: Send + Sync {
    /// Product code passed a point, with its value and what that is about.
    fn point(&self, stand: &Stand, place: &Place, name: &'static str, values: [i64; 2]) {
        let _ = (stand, place, name, values);
    }

    /// A task of a node that [`Stand::watch_polls`] named is about to be polled. If its process is killed here, the poll
    /// does not happen.
    fn polled(&self, stand: &Stand, place: &Place) {
        let _ = (stand, place);
    }

    /// Product code stands at a gate, which [`point`](Observer::point) was told of just before: what it waits for there.
    fn gate(&self, stand: &Stand, place: &Place, name: &'static str) -> Option<BoxFuture<()>> {
        let _ = (stand, place, name);
        None
    }

    /// Product code came, for the first time in the run, to a `host::sometimes!` that holds or to a `host::always!`.
    fn reached(&self, stand: &Stand, place: &Place, name: &'static str) {
        let _ = (stand, place, name);
    }

    /// A `host::always!` does not hold. The run is about to end with [`Ended::Broken`].
    fn broken(&self, stand: &Stand, place: &Place, name: &'static str) {
        let _ = (stand, place, name);
    }

    /// A call on a file went wrong, as faults of the disk wanted it; with the number of the page if it is about one.
    fn disk_failed(&self, stand: &Stand, place: &Place, error: DiskError, at: (&Path, Option<u64>)) {
        let _ = (stand, place, error, at);
    }

    /// A flush was torn, as the fault `fault` of the disk wanted it: the node must lose its power now. Some of what the
    /// flush was to write is on the device, the rest goes.
    fn flush_torn(&self, stand: &Stand, place: &Place, fault: u64) {
        stand.power_loss(&[place.node], None, fault);
    }

    /// A task panicked (or the process died of a signal); its node has been killed.
    fn panicked(&self, stand: &Stand, place: &Place, task: &'static str, message: &str) {
        let _ = (stand, place, task, message);
    }

    /// The program of a node ended by itself or after a stop; its process is gone.
    fn exited(&self, stand: &Stand, place: &Place, result: &Result<(), String>) {
        let _ = (stand, place, result);
    }
}

/// Listens to nothing.
impl Observer for () {}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended<T> {
    /// The supervisor came to its end, with this.
    Finished(T),
    /// The limit of virtual time was reached.
    TimeLimit,
    /// Nothing could ever happen again: every task waits, and no timer runs.
    Deadlock {
        /// When the last thing happened.
        since: Duration,
    },
    /// Something that product code states to hold always did not.
    Broken {
        /// Where.
        node: Arc<str>,
        /// The name of the `host::always!`.
        name: &'static str,
    },
    /// It did not begin: the process has no room for it.
    NoRoom(String),
    /// Tasks ran without end while time stood nearly still.
    Livelock {
        /// The node with the busiest task, if it was a node's.
        node: Option<Arc<str>>,
        /// The name of the busiest task.
        task: &'static str,
        /// How often that was polled in the last second.
        polls: u64,
    },
}

/// A finished run.
#[derive(Debug, Clone)]
pub struct Run<T> {
    /// How it ended.
    pub ended: Ended<T>,
    /// Virtual time that passed.
    pub elapsed: Duration,
    /// How many polls of tasks of nodes it took.
    pub polls: u64,
    /// How many segments the network carried.
    pub segments: u64,
    /// The cheap events.
    pub side: SideReport,
}

/// A hash over events too many to record; equal for two runs of one seed by one binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SideReport {
    /// Over all events.
    pub hash: u128,
    /// How many.
    pub count: u64,
    /// The hash after every 1,000 events (its lower half).
    pub checkpoints: Vec<u64>,
    /// The events asked for by [`StandConfig::side_window`].
    pub window: Vec<SideEvent>,
}

/// One event of the side hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SideEvent {
    /// Its number, from 0.
    pub index: u64,
    /// True time in nanoseconds.
    pub at: u64,
    /// What it was.
    pub kind: Side,
    /// Where.
    pub node: NodeId,
    /// First value; see [`Side`].
    pub a: u64,
    /// Second value.
    pub b: u64,
}

/// What a node is.
#[derive(Debug, Clone)]
pub struct NodeSpec {
    /// Its name, such as `broker-a/0`; unique.
    pub name: String,
    /// Its one address; unique, not loopback.
    pub ip: Ipv4Addr,
    /// Size of its disk in bytes.
    pub disk_bytes: u64,
    /// What its file system promises.
    pub durability: Durability,
    /// How fast its disk is.
    pub timing: Timing,
}

impl NodeSpec {
    /// A node with a 2 GiB SSD that promises no more than POSIX does.
    #[must_use]
    pub fn new(name: impl Into<String>, ip: Ipv4Addr) -> NodeSpec {
        let (durability, timing) = (Durability::default(), Timing::default());
        NodeSpec { name: name.into(), ip, disk_bytes: 2 << 30, durability, timing }
    }
}

/// Whether a node runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeStatus {
    /// No process, the kernel is up: connects are refused.
    Down,
    /// No power: silence.
    PowerLost,
    /// The process runs.
    Up {
        /// Its life, from 1.
        incarnation: u32,
    },
    /// The process stands still; its kernel goes on.
    Paused {
        /// Its life, from 1.
        incarnation: u32,
    },
}

/// How a stop went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stopped {
    /// The program came to its end within the grace time, with this.
    Exited(Result<(), String>),
    /// It did not, and was killed.
    Killed,
    /// It was not running.
    WasDown,
}

/// Asks a program to end; see [`Stand::start`]. Clones wait for the same.
#[derive(Debug, Clone)]
pub struct StopSignal(tokio::sync::watch::Receiver<bool>);

impl StopSignal {
    /// Ends when the node is asked to stop. Never, if it never is.
    pub async fn requested(&self) {
        let mut asked = self.0.clone();
        if asked.wait_for(|&stop| stop).await.is_err() {
            // The stand forgot this life: it is being dropped.
            std::future::pending::<()>().await;
        }
    }
}

/// The operator's handle of a running simulation. Cheap to clone. All times are true time.
#[derive(Clone)]
pub struct Stand {
    world: Arc<World>,
}

/// A node cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The name is taken.
    #[error("there is a node `{0}` already")]
    NameTaken(String),
    /// The address is taken, or is not one a node can have.
    #[error("{0} is taken or not an address for a node")]
    BadAddress(Ipv4Addr),
}

impl Stand {
    pub(crate) fn of(world: &Arc<World>) -> Stand {
        Stand { world: Arc::clone(world) }
    }

    // ---- time, for the supervisor ----

    /// Time since the run began.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.world.now())
    }

    /// Ends after `duration`.
    pub async fn sleep(&self, duration: Duration) {
        Timer::new(&self.world, TimerClock::True, self.world.now().saturating_add(nanos(duration))).await;
    }

    /// Ends at `at`; at once if that has passed.
    pub async fn sleep_until(&self, at: Duration) {
        Timer::new(&self.world, TimerClock::True, nanos(at)).await;
    }

    /// Starts a task of the supervisor. It belongs to no node, and is dropped when the run ends. A panic in it ends
    /// the run as one of the supervisor does.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        run::spawn(&self.world, future);
    }

    /// The seeds of the run.
    #[must_use]
    pub fn seeds(&self) -> &Seeds {
        &self.world.seeds
    }

    /// Hash and number of the cheap events so far.
    #[must_use]
    pub fn side_hash(&self) -> (u128, u64) {
        self.world.with(|core, _| (core.side.hash(), core.side.count()))
    }

    /// From now on so many of a million visits of these `host::buggify!` say yes, on every node. `key` names it.
    pub fn buggify(&self, key: u64, names: &[String], chance_ppm: u32) {
        self.world.buggify.begin(key, names, chance_ppm);
    }

    /// Ends what [`buggify`](Stand::buggify) began under a key.
    pub fn end_buggify(&self, key: u64) {
        self.world.buggify.end(key);
    }

    /// From now on every `host::buggify!` says no.
    pub fn end_all_buggify(&self) {
        self.world.buggify.end_all();
    }

    // ---- nodes ----

    /// Adds a node, powered and without a process.
    ///
    /// # Errors
    /// [`NodeError`] if name or address are taken.
    pub fn add_node(&self, spec: NodeSpec) -> Result<NodeId, NodeError> {
        let mut nodes = self.world.nodes();
        if nodes.iter().any(|node| *node.name == spec.name) {
            return Err(NodeError::NameTaken(spec.name));
        }
        let unusable = spec.ip.is_loopback() || spec.ip.is_unspecified() || spec.ip.is_multicast();
        if unusable || nodes.iter().any(|node| node.ip == spec.ip) {
            return Err(NodeError::BadAddress(spec.ip));
        }
        let id = NodeId(u32::try_from(nodes.len()).expect("fewer than 2^32 nodes fit into memory"));
        let executor = self.world.executor.create_node().name(spec.name.as_str()).ip(spec.ip.into()).build().id();
        let settings = DiskSettings::new(self.world.seeds.disk, name_hash(&spec.name), spec.disk_bytes);
        let disk = Disk::new(DiskSettings { durability: spec.durability, timing: spec.timing, ..settings });
        let clock = NodeClock::new(self.world.now(), self.true_wall_ns());
        nodes.push(Arc::new(Node::new(id, &spec.name, spec.ip, disk, clock, executor)));
        drop(nodes);
        self.world.with(|core, now| core.net(now).0.add_host(&spec.name, spec.ip));
        Ok(id)
    }

    /// The node of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.world.nodes().iter().find(|node| *node.name == *name).map(|node| node.id)
    }

    /// All nodes, in the order of adding.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        self.world.nodes().iter().map(|node| node.id).collect()
    }

    /// The name of a node.
    ///
    /// # Panics
    /// If it is not a node of this stand; so all methods that take one.
    #[must_use]
    pub fn name(&self, node: NodeId) -> Arc<str> {
        Arc::clone(&self.world.node(node).name)
    }

    /// The address of a node.
    #[must_use]
    pub fn ip(&self, node: NodeId) -> Ipv4Addr {
        self.world.node(node).ip
    }

    /// Whether it runs.
    #[must_use]
    pub fn status(&self, node: NodeId) -> NodeStatus {
        self.world.node(node).status()
    }

    /// Lets the observer hear of every poll of the node's tasks.
    pub fn watch_polls(&self, node: NodeId) {
        self.world.node(node).watch_polls();
    }

    /// How often tasks of the node were polled, over all its lives.
    #[must_use]
    pub fn polls(&self, node: NodeId) -> u64 {
        self.world.node(node).polls()
    }

    /// How many tasks the node has. Those of a process that just died count until they are dropped.
    #[must_use]
    pub fn tasks(&self, node: NodeId) -> usize {
        self.world.node(node).tasks.load(Ordering::Relaxed)
    }

    /// Lets `host::Host::resolve` know a name. Otherwise it knows `localhost` and addresses only.
    pub fn name_address(&self, name: &str, ip: Ipv4Addr) {
        self.world.with(|core, now| core.net(now).0.name_address(name, ip));
    }

    /// Starts a process on the node, with power on if it was lost. A process that is running is killed first.
    ///
    /// `program` is kept for [`restart`](Stand::restart). It should end when its signal asks it to; `Err` says why it
    /// could not start or go on. When it ends, the process and all its tasks are gone.
    pub fn start<P, F>(&self, node: NodeId, program: P)
    where
        P: Fn(Host, StopSignal) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let node = self.world.node(node);
        node.set_program(Arc::new(move |host, signal| Box::pin(program(host, signal))));
        self.world.start_life(&node);
    }

    /// Starts the program of the last [`start`](Stand::start) again, as a new life.
    ///
    /// # Panics
    /// If the node was never started.
    pub fn restart(&self, node: NodeId) {
        self.world.start_life(&self.world.node(node));
    }

    /// Kills the process. The kernel closes its sockets and keeps its files. Nothing happens to a node that is down.
    pub fn kill(&self, node: NodeId) {
        if let Some(life) = self.world.node(node).life() {
            self.world.end_life(&life);
        }
    }

    /// Asks the process to stop, and kills it after `grace`. A paused process is resumed first.
    pub async fn stop(&self, node: NodeId, grace: Duration) -> Stopped {
        self.world.stop(&self.world.node(node), grace).await
    }

    /// Ends when the process that runs now has ended, for whatever reason; at once if none runs.
    pub async fn ended(&self, node: NodeId) {
        let node = self.world.node(node);
        if let Some(life) = node.life() {
            node.ended(&life).await;
        }
    }

    /// Takes the power from nodes at one moment: no socket says goodbye, and the disks lose by `outage`. `crash` keys the draws: a number (or hashed name) of this power loss, unique in the run. Tells
    /// what each disk lost, in the order of `nodes`.
    pub fn power_loss(&self, nodes: &[NodeId], outage: impl Into<Outage>, crash: u64) -> Vec<CrashReport> {
        let outage = outage.into();
        nodes.iter().map(|&node| self.world.cut_power(&self.world.node(node), outage, crash)).collect()
    }

    /// The node loses its power, and gets another disk: an empty one, or one that a backup was put onto.
    pub fn replace_disk(&self, node: NodeId, backup: Option<&Backup>, crash: u64) -> CrashReport {
        let node = self.world.node(node);
        let report = self.world.cut_power(&node, Outage::default(), crash);
        match backup {
            None => node.disk.replace(),
            Some(backup) => node.disk.restore(backup),
        }
        report
    }

    /// Stops the process without its noticing. Its kernel goes on: connections stay, and buffers fill.
    pub fn pause(&self, node: NodeId) {
        self.world.pause(&self.world.node(node));
    }

    /// Lets it go on.
    pub fn resume(&self, node: NodeId) {
        self.world.resume(&self.world.node(node));
    }

    // ---- network ----

    /// Puts an impairment into effect.
    pub fn impair(&self, impairment: Impairment) -> ImpairmentId {
        // Both must exist.
        let _ = (self.world.node(impairment.from), self.world.node(impairment.to));
        self.world.with(|core, now| core.net(now).0.impair(impairment))
    }

    /// Cuts both directions between two nodes, dropping segments.
    pub fn cut(&self, a: NodeId, b: NodeId) -> [ImpairmentId; 2] {
        [(a, b), (b, a)].map(|(from, to)| self.impair(Impairment { from, to, port: None, kind: ImpairmentKind::Drop }))
    }

    /// Ends an impairment. Nothing happens if it has ended. Tells how many segments it has lost or slowed down, or how
    /// many connects it has kept from being answered; 0 for one that cut or held everything.
    pub fn lift(&self, id: ImpairmentId) -> u64 {
        self.world.with(|core, now| {
            let (net, mut io) = core.net(now);
            net.lift(id, &mut io)
        })
    }

    /// Resets every connection that is open between two nodes of a pair, or those to one port: the process at the
    /// second node is told, its peer finds out when it sends, unless the pair stands the other way round as well. Tells
    /// how many connections there were.
    pub fn reset(&self, mut pairs: Vec<(NodeId, NodeId)>, port: Option<u16>) -> u64 {
        pairs.sort_unstable();
        self.world.with(|core, now| {
            let (net, mut io) = core.net(now);
            net.reset(&pairs, port, &mut io)
        })
    }

    /// Ends all impairments.
    pub fn lift_all(&self) {
        for id in self.world.with(|core, now| core.net(now).0.impairments()) {
            self.lift(id);
        }
    }

    /// How many connections exist, those that are being opened or closed included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.world.with(|core, now| core.net(now).0.connections())
    }

    /// The connections that work at both ends, in the order of their opening slots.
    #[must_use]
    pub fn open_streams(&self) -> Vec<OpenStream> {
        self.world.with(|core, now| core.net(now).0.open_streams())
    }

    // ---- clocks and disks ----

    /// The node's wall clock, in milliseconds since 1970.
    #[must_use]
    pub fn wall_ms(&self, node: NodeId) -> i64 {
        self.world.node(node).wall_ms(self.world.now())
    }

    /// What the wall clocks would show if they were right.
    #[must_use]
    pub fn true_wall_ms(&self) -> i64 {
        self.true_wall_ns().div_euclid(1_000_000)
    }

    /// Sets the wall clock to true wall time plus `offset_ms`, by a step. Timers do not notice.
    pub fn set_skew(&self, node: NodeId, offset_ms: i64) {
        let wall = self.true_wall_ns().saturating_add(offset_ms.saturating_mul(1_000_000));
        self.world.node(node).with_clock(|clock| clock.set_wall(self.world.now(), wall));
    }

    /// Moves the wall clock by `delta_ms` at once. Timers do not notice.
    pub fn step_wall(&self, node: NodeId, delta_ms: i64) {
        let delta = delta_ms.saturating_mul(1_000_000);
        self.world.node(node).with_clock(|clock| clock.step_wall(self.world.now(), delta));
    }

    /// Sets the wall clock to so many milliseconds since 1970. Timers do not notice.
    pub fn set_wall(&self, node: NodeId, wall_ms: i64) {
        let wall = wall_ms.saturating_mul(1_000_000);
        self.world.node(node).with_clock(|clock| clock.set_wall(self.world.now(), wall));
    }

    /// Brings the wall clock back to true time by letting it run 500 parts per million too fast or too slow until it is
    /// there.
    pub fn slew(&self, node: NodeId) {
        let wall = self.true_wall_ns();
        self.world.node(node).with_clock(|clock| clock.slew_wall(self.world.now(), wall));
    }

    /// Lets both clocks of the node run fast (or slow, if negative) from now on, by parts per million. Timers that run
    /// move with them.
    ///
    /// # Panics
    /// At -1,000,000 and below: no clock stands still or goes back.
    pub fn set_drift(&self, node: NodeId, ppm: i32) {
        let node = self.world.node(node);
        node.with_clock(|clock| clock.set_rate(self.world.now(), i64::from(ppm) * 1_000));
        self.world.with(|core, _| {
            for (slot, deadline) in core.agenda.timers_of(node.id) {
                core.agenda.move_timer(slot, node.true_time_of(deadline), Some((node.id, deadline)));
            }
        });
    }

    /// The disk of a node, for filling it, slowing it down and looking at it.
    #[must_use]
    pub fn disk(&self, node: NodeId) -> Disk {
        self.world.node(node).disk.clone()
    }

    fn true_wall_ns(&self) -> i64 {
        let passed = i64::try_from(self.world.now()).unwrap_or(i64::MAX);
        self.world.wall_start_ms.saturating_mul(1_000_000).saturating_add(passed)
    }
}
