//! The stand as its operator sees it: build nodes, run programs on them, and hurt them.
//!
//! [`run`] simulates on a thread of its own. The supervisor gets a [`Stand`], with which it adds nodes, starts and
//! crashes them, cuts links, and waits in virtual time. Product code on the nodes sees only its [`host::Host`].

use std::{collections::BTreeSet, future::Future, net::Ipv4Addr, ops::Range, sync::Arc, time::Duration};

use host::Host;

use crate::{
    disk::{CrashReport, Disk, Durability, Survival, Timing},
    net::{Impairment, ImpairmentId, NetConfig},
    seed::Seeds,
    world::World,
};

pub use crate::world::Side;

/// A node of the stand: its ordinal, in the order of adding, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

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
    /// Whether `host::buggify!` may say yes.
    pub buggify: bool,
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
            buggify: false,
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
    /// Product code passed a point.
    fn point(&self, stand: &Stand, place: &Place, name: &'static str, value: i64) {
        let _ = (stand, place, name, value);
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
    /// How many polls of tasks it took.
    pub polls: u64,
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

/// Simulates until the supervisor ends, on a fresh thread, and then ends every node.
///
/// From the first call on the real machine is closed for this process ([`host::real::forbid`]).
///
/// # Panics
/// If the supervisor panics: with the same panic, after the nodes were ended.
pub fn run<T, S, F>(config: StandConfig, observer: Arc<dyn Observer>, supervisor: S) -> Run<T>
where
    T: Send + 'static,
    S: FnOnce(Stand) -> F + Send + 'static,
    F: Future<Output = T> + 'static,
{
    let _ = (config, observer, supervisor);
    todo!()
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

#[expect(unused_variables, reason = "signatures first")]
impl Stand {
    // ---- time, for the supervisor ----

    /// Time since the run began.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.world.now())
    }

    /// Ends after `duration`.
    pub async fn sleep(&self, duration: Duration) {
        todo!()
    }

    /// Ends at `at`; at once if that has passed.
    pub async fn sleep_until(&self, at: Duration) {
        todo!()
    }

    /// Starts a task of the supervisor. It belongs to no node, and is dropped when the run ends.
    pub fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        todo!()
    }

    /// The seeds of the run.
    #[must_use]
    pub fn seeds(&self) -> &Seeds {
        self.world.seeds()
    }

    /// Hash and number of the cheap events so far.
    #[must_use]
    pub fn side_hash(&self) -> (u128, u64) {
        todo!()
    }

    // ---- nodes ----

    /// Adds a node, powered and without a process.
    ///
    /// # Errors
    /// [`NodeError`] if name or address are taken.
    pub fn add_node(&self, spec: NodeSpec) -> Result<NodeId, NodeError> {
        todo!()
    }

    /// The node of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<NodeId> {
        todo!()
    }

    /// The name of a node.
    #[must_use]
    pub fn name(&self, node: NodeId) -> Arc<str> {
        todo!()
    }

    /// The address of a node.
    #[must_use]
    pub fn ip(&self, node: NodeId) -> Ipv4Addr {
        todo!()
    }

    /// Whether it runs.
    #[must_use]
    pub fn status(&self, node: NodeId) -> NodeStatus {
        todo!()
    }

    /// Lets `host::Host::resolve` know a name.
    pub fn name_address(&self, name: &str, ip: Ipv4Addr) {
        todo!()
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
        todo!()
    }

    /// Starts the program of the last [`start`](Stand::start) again, as a new life.
    ///
    /// # Panics
    /// If the node was never started.
    pub fn restart(&self, node: NodeId) {
        todo!()
    }

    /// Kills the process. The kernel closes its sockets and keeps its files. Nothing happens to a node that is down.
    pub fn kill(&self, node: NodeId) {
        todo!()
    }

    /// Asks the process to stop, and kills it after `grace`. A paused process is resumed first.
    pub async fn stop(&self, node: NodeId, grace: Duration) -> Stopped {
        todo!()
    }

    /// Takes the power from nodes at one moment: no socket says goodbye, and the disks lose by `survival`, which is
    /// drawn if `None`. Tells what each disk lost, in the order of `nodes`.
    pub fn power_loss(&self, nodes: &[NodeId], survival: Option<Survival>) -> Vec<CrashReport> {
        todo!()
    }

    /// Stops the process without its noticing. Its kernel goes on: connections stay, and buffers fill.
    pub fn pause(&self, node: NodeId) {
        todo!()
    }

    /// Lets it go on.
    pub fn resume(&self, node: NodeId) {
        todo!()
    }

    // ---- network ----

    /// Puts an impairment into effect.
    pub fn impair(&self, impairment: Impairment) -> ImpairmentId {
        todo!()
    }

    /// Cuts both directions between two nodes, dropping segments.
    pub fn cut(&self, a: NodeId, b: NodeId) -> [ImpairmentId; 2] {
        todo!()
    }

    /// Ends an impairment. Nothing happens if it has ended.
    pub fn lift(&self, id: ImpairmentId) {
        todo!()
    }

    /// Ends all impairments.
    pub fn lift_all(&self) {
        todo!()
    }

    // ---- clocks and disks ----

    /// The node's wall clock, in milliseconds since 1970.
    #[must_use]
    pub fn wall_ms(&self, node: NodeId) -> i64 {
        todo!()
    }

    /// Sets the wall clock to true wall time plus `offset_ms`, by a step.
    pub fn set_skew(&self, node: NodeId, offset_ms: i64) {
        todo!()
    }

    /// Moves the wall clock by `delta_ms` at once.
    pub fn step_wall(&self, node: NodeId, delta_ms: i64) {
        todo!()
    }

    /// Lets both clocks of the node run fast (or slow, if negative) from now on, by parts per million.
    pub fn set_drift(&self, node: NodeId, ppm: i32) {
        todo!()
    }

    /// The disk of a node, for filling it, slowing it down and looking at it.
    #[must_use]
    pub fn disk(&self, node: NodeId) -> Disk {
        todo!()
    }
}
