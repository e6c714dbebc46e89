//! Nodes, and how their processes begin and end.

use std::{
    fmt,
    future::Future,
    net::Ipv4Addr,
    path::Path,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use host::{Host, machine::BoxFuture};
use tokio::sync::{Notify, watch};

use crate::{
    clock::NodeClock,
    disk::{CrashReport, Disk, DiskError, Outage},
    machine::SimMachine,
    seed::name_hash,
    side::Side,
    stand::{NodeId, NodeStatus, Place, Stand, StopSignal, Stopped},
    timer::{Timer, TimerClock},
    world::{CutShort, World, lock, nanos},
};

/// What runs on a node. Called once per life.
pub(crate) type Program =
    Arc<dyn Fn(Host, StopSignal) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// Codes of [`Side::Node`].
const NOTE_START: u64 = 1;
const NOTE_END: u64 = 2;
const NOTE_POWER_LOST: u64 = 3;
const NOTE_PAUSE: u64 = 4;
const NOTE_RESUME: u64 = 5;

/// A simulated computer. It outlives the processes on it.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) name: Arc<str>,
    pub(crate) name_hash: u64,
    pub(crate) ip: Ipv4Addr,
    pub(crate) disk: Disk,
    executor: madsim::task::NodeId,
    /// How often tasks of all lives were polled.
    polls: AtomicU64,
    /// Whether the observer hears of each poll.
    polls_watched: AtomicBool,
    /// How many tasks exist, those of dead lives that were not dropped yet included.
    pub(crate) tasks: AtomicUsize,
    /// The life that runs, or 0: the fence that every operation of a life looks at.
    running: AtomicU32,
    /// Leaf lock; see [`World`] for why it spins.
    clock: spin::Mutex<NodeClock>,
    /// Leaf lock.
    state: Mutex<State>,
    life_ended: Notify,
}

#[derive(Default)]
struct State {
    /// The last life that began.
    incarnation: u32,
    paused: bool,
    power_lost: bool,
    program: Option<Program>,
    stop: Option<watch::Sender<bool>>,
    /// How the program of a life ended, if it came to its end.
    exit: Option<(u32, Result<(), String>)>,
}

/// One life of a node.
#[derive(Clone)]
pub(crate) struct Life {
    pub(crate) node: Arc<Node>,
    pub(crate) incarnation: u32,
}

impl Life {
    /// Whether it still runs, paused or not.
    pub(crate) fn is_alive(&self) -> bool {
        self.node.running.load(Ordering::Relaxed) == self.incarnation
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.node.name, self.incarnation)
    }
}

impl Node {
    pub(crate) fn new(
        id: NodeId,
        name: &str,
        ip: Ipv4Addr,
        disk: Disk,
        clock: NodeClock,
        executor: madsim::task::NodeId,
    ) -> Node {
        Node {
            id,
            name: Arc::from(name),
            name_hash: name_hash(name),
            ip,
            disk,
            executor,
            polls: AtomicU64::new(0),
            polls_watched: AtomicBool::new(false),
            tasks: AtomicUsize::new(0),
            running: AtomicU32::new(0),
            clock: spin::Mutex::new(clock),
            state: Mutex::new(State::default()),
            life_ended: Notify::new(),
        }
    }

    /// Counts a poll of one of its tasks. True if the observer is to hear of it.
    pub(crate) fn count_poll(&self) -> bool {
        // No atomic addition, which costs as much as the rest of counting: a run has one thread.
        self.polls.store(self.polls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.polls_watched.load(Ordering::Relaxed)
    }

    pub(crate) fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    pub(crate) fn watch_polls(&self) {
        self.polls_watched.store(true, Ordering::Relaxed);
    }

    pub(crate) fn mono(&self, now: u64) -> u64 {
        self.clock.lock().mono(now)
    }

    pub(crate) fn true_time_of(&self, mono: u64) -> u64 {
        self.clock.lock().true_time_of(mono)
    }

    pub(crate) fn wall_ms(&self, now: u64) -> i64 {
        self.clock.lock().wall_ms(now)
    }

    pub(crate) fn with_clock(&self, change: impl FnOnce(&mut NodeClock)) {
        change(&mut self.clock.lock());
    }

    pub(crate) fn status(&self) -> NodeStatus {
        let state = lock(&self.state);
        match (self.running.load(Ordering::Relaxed), state.power_lost, state.paused) {
            (0, true, _) => NodeStatus::PowerLost,
            (0, false, _) => NodeStatus::Down,
            (incarnation, _, true) => NodeStatus::Paused { incarnation },
            (incarnation, _, false) => NodeStatus::Up { incarnation },
        }
    }

    pub(crate) fn set_program(&self, program: Program) {
        lock(&self.state).program = Some(program);
    }

    /// Lets go of what the program holds, which may be the stand itself.
    pub(crate) fn forget_program(&self) {
        let program = lock(&self.state).program.take();
        drop(program);
    }

    /// The life that runs.
    pub(crate) fn life(self: &Arc<Node>) -> Option<Life> {
        let incarnation = self.running.load(Ordering::Relaxed);
        (incarnation > 0).then(|| Life { node: Arc::clone(self), incarnation })
    }

    /// Ends when that life has.
    pub(crate) async fn ended(&self, life: &Life) {
        loop {
            let mut ended = std::pin::pin!(self.life_ended.notified());
            ended.as_mut().enable();
            if !life.is_alive() {
                return;
            }
            ended.await;
        }
    }
}

impl World {
    /// Starts the program of a node as a new life; ends the old one first.
    pub(crate) fn start_life(self: &Arc<World>, node: &Arc<Node>) {
        if let Some(life) = node.life() {
            self.end_life(&life);
        }
        let (asked, signal) = watch::channel(false);
        let (incarnation, program, power_was_lost) = {
            let mut state = lock(&node.state);
            state.incarnation += 1;
            state.paused = false;
            state.stop = Some(asked);
            let power_was_lost = std::mem::take(&mut state.power_lost);
            (state.incarnation, state.program.clone(), power_was_lost)
        };
        let program = program.unwrap_or_else(|| panic!("{} was never started", node.name));
        self.with(|core, now| {
            core.net(now).0.power_on(node.id);
            core.side.add(now, Side::Node, node.id, u64::from(incarnation), NOTE_START);
        });
        if power_was_lost {
            node.with_clock(|clock| clock.boot(self.now()));
        }
        self.executor.restart(node.executor);
        let executor = self.executor.get_node(node.executor).expect("nodes of a run are never removed");
        node.running.store(incarnation, Ordering::Relaxed);
        let life = Life { node: Arc::clone(node), incarnation };
        let host = Host::new(Arc::new(SimMachine::new(self, life.clone(), executor)));
        let main = {
            let (world, host) = (Arc::clone(self), host.clone());
            async move {
                let result = program(host, StopSignal(signal)).await;
                world.exits(&life, result);
                // A process that has ended does nothing more; the executor drops this with the rest of it.
                std::future::pending::<()>().await;
            }
        };
        drop(host.spawn("main", main));
    }

    /// The process of a life is no more: from here on every operation of it is refused, its kernel closes what it
    /// held, and the executor drops its tasks one by one. False if it had ended before.
    pub(crate) fn end_life(&self, life: &Life) -> bool {
        if !self.fence(life) {
            return false;
        }
        self.with(|core, now| {
            core.side.add(now, Side::Node, life.node.id, u64::from(life.incarnation), NOTE_END);
            let (net, mut io) = core.net(now);
            net.process_died(life.node.id, &mut io);
        });
        life.node.disk.kill();
        self.drop_tasks(&life.node);
        true
    }

    /// The power of a node goes, with its process if one runs.
    pub(crate) fn cut_power(&self, node: &Arc<Node>, outage: Outage, crash: u64) -> CrashReport {
        let life = node.life();
        let was_running = life.is_some_and(|life| self.fence(&life));
        lock(&node.state).power_lost = true;
        self.with(|core, now| {
            core.side.add(now, Side::Node, node.id, crash, NOTE_POWER_LOST);
            let (net, mut io) = core.net(now);
            net.power_lost(node.id, &mut io);
        });
        let report = node.disk.power_loss(self.now(), crash, outage);
        self.note(Side::Disk, node.id, report.dirty_pages, report.lost_pages);
        if was_running {
            self.drop_tasks(node);
        }
        report
    }

    fn fence(&self, life: &Life) -> bool {
        life.node.running.compare_exchange(life.incarnation, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn drop_tasks(&self, node: &Node) {
        let stop = {
            let mut state = lock(&node.state);
            if std::mem::take(&mut state.paused) {
                // Parked tasks would be dropped by the kill itself, with the executor's locks held. This way each gets
                // its turn, on which it finds that it was killed.
                self.executor.resume(node.executor);
            }
            state.stop.take()
        };
        drop(stop);
        self.executor.kill(node.executor);
        node.life_ended.notify_waiters();
    }

    /// The program of a life came to its end.
    fn exits(self: &Arc<World>, life: &Life, result: Result<(), String>) {
        if !life.is_alive() {
            return;
        }
        lock(&life.node.state).exit = Some((life.incarnation, result.clone()));
        let place = self.place(life);
        self.end_life(life);
        Arc::clone(&self.observer).exited(&Stand::of(self), &place, &result);
    }

    /// A task of a life panicked, or the process was killed by a signal.
    pub(crate) fn dies(self: &Arc<World>, life: &Life, task: &'static str, message: &str) {
        let place = self.place(life);
        if self.end_life(life) {
            Arc::clone(&self.observer).panicked(&Stand::of(self), &place, task, message);
        }
    }

    /// A call on a file went wrong.
    pub(crate) fn disk_failed(self: &Arc<World>, life: &Life, error: DiskError, at: (&Path, Option<u64>)) {
        self.observer.disk_failed(&Stand::of(self), &self.place(life), error, at);
    }

    /// The power is to go inside a flush.
    pub(crate) fn flush_torn(self: &Arc<World>, life: &Life, fault: u64) {
        if life.is_alive() {
            self.observer.flush_torn(&Stand::of(self), &self.place(life), fault);
        }
    }

    /// Product code passed a point.
    pub(crate) fn point(self: &Arc<World>, life: &Life, name: &'static str, [value, about]: [i64; 2]) {
        self.note(Side::Point, life.node.id, name_hash(name), (value ^ about.rotate_left(32)).cast_unsigned());
        self.observer.point(&Stand::of(self), &self.place(life), name, [value, about]);
    }

    /// A task of a life is about to be polled, and somebody wants to know.
    pub(crate) fn polled(self: &Arc<World>, life: &Life) {
        self.observer.polled(&Stand::of(self), &self.place(life));
    }

    /// Product code came to a `sometimes!` that holds, or to an `always!`.
    pub(crate) fn reached(self: &Arc<World>, life: &Life, name: &'static str) {
        if self.note_reached(name) {
            self.observer.reached(&Stand::of(self), &self.place(life), name);
        }
    }

    /// An `always!` does not hold: the run ends here.
    pub(crate) fn broken(self: &Arc<World>, life: &Life, name: &'static str) {
        self.observer.broken(&Stand::of(self), &self.place(life), name);
        self.cut_short(CutShort::Broken { node: life.node.id, name });
    }

    /// What to wait for at a gate that product code has reached.
    pub(crate) fn gate(self: &Arc<World>, life: &Life, name: &'static str) -> Option<BoxFuture<()>> {
        self.observer.gate(&Stand::of(self), &self.place(life), name)
    }

    fn place(&self, life: &Life) -> Place {
        Place {
            at: Duration::from_nanos(self.now()),
            node: life.node.id,
            name: Arc::clone(&life.node.name),
            incarnation: life.incarnation,
        }
    }

    pub(crate) fn pause(&self, node: &Arc<Node>) {
        let Some(life) = node.life() else { return };
        lock(&node.state).paused = true;
        self.note(Side::Node, node.id, u64::from(life.incarnation), NOTE_PAUSE);
        self.executor.pause(node.executor);
    }

    pub(crate) fn resume(&self, node: &Arc<Node>) {
        let Some(life) = node.life() else { return };
        if std::mem::take(&mut lock(&node.state).paused) {
            self.note(Side::Node, node.id, u64::from(life.incarnation), NOTE_RESUME);
            self.executor.resume(node.executor);
        }
    }

    /// Asks the program to end, and ends its life if that takes too long.
    pub(crate) async fn stop(self: &Arc<World>, node: &Arc<Node>, grace: Duration) -> Stopped {
        let Some(life) = node.life() else { return Stopped::WasDown };
        self.resume(node);
        if let Some(stop) = &lock(&node.state).stop {
            stop.send_replace(true);
        }
        let give_up = Timer::new(self, TimerClock::True, self.now().saturating_add(nanos(grace)));
        host::select! {
            () = node.ended(&life) => {}
            () = give_up => {
                self.end_life(&life);
            }
        }
        let exit = lock(&node.state).exit.clone();
        match exit {
            Some((incarnation, result)) if incarnation == life.incarnation => Stopped::Exited(result),
            _ => Stopped::Killed,
        }
    }
}
