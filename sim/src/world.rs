//! What all parts of a run share: true time, the agenda, the side hash, and the one task that drives them.
//!
//! madsim gives the executor and the virtual clock. Its own timers last at least 1 ms and cannot be cancelled, so only
//! the driver uses them: it orders one wake-up for the earliest entry of our [`Agenda`].

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use madsim::{
    runtime::{Handle, NodeHandle},
    time::{Instant, Sleep, TimeHandle},
};
use tokio::sync::Notify;

use crate::{
    net::Net,
    seed::{Seeds, name_hash},
    side::{Side, SideHash},
    stand::{NodeId, Observer, StandConfig, node::Node},
};

pub(crate) mod agenda;
mod buggify;

use agenda::{Agenda, Due};
use buggify::Buggify;

/// One run.
pub(crate) struct World {
    pub(crate) seeds: Seeds,
    pub(crate) mutants: BTreeSet<String>,
    pub(crate) buggify: Buggify,
    pub(crate) wall_start_ms: i64,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) executor: Handle,
    /// The statements of product code that this run came to. Leaf lock.
    reached: Mutex<BTreeSet<&'static str>>,
    /// Where tasks of the supervisor run.
    pub(crate) operator: NodeHandle,
    time: TimeHandle,
    /// The first moment of the run by the executor's clock.
    begin: Instant,
    polls_per_second_max: u64,
    /// All nodes, by ordinal. Leaf lock.
    nodes: Mutex<Vec<Arc<Node>>>,
    /// Everything that changes with each event. Leaf lock: wakers that were collected run after it is released. A run
    /// has one thread, so nobody ever spins; and this is the lock that costs least when nobody waits for it, which shows
    /// where it is taken several times for each event.
    core: spin::Mutex<Core>,
    /// Set once, when the run must end before its supervisor does. Leaf lock.
    cut_short: Mutex<Option<CutShort>>,
    cut_short_now: Notify,
}

/// Why a run ends before its supervisor does.
#[derive(Debug, Clone)]
pub(crate) enum CutShort {
    TimeLimit,
    Deadlock {
        since: u64,
    },
    Livelock {
        node: NodeId,
        task: &'static str,
        polls: u64,
    },
    /// What must always hold did not.
    Broken {
        node: NodeId,
        name: &'static str,
    },
    /// A task of the operator panicked with this.
    Panic(Arc<Mutex<Option<Box<dyn Any + Send>>>>),
}

/// The state behind the world's lock.
pub(crate) struct Core {
    pub(crate) agenda: Agenda,
    pub(crate) net: Net,
    pub(crate) side: SideHash,
    wakers: Vec<Waker>,
    driver: Option<Waker>,
    /// With which wake-ups of the driver are ordered. Only `reset` reaches below madsim's floor of 1 ms.
    wake_up: Sleep,
    closing: bool,
    meter: Meter,
}

/// What a part of the core may touch beside itself.
pub(crate) struct Io<'a> {
    pub(crate) now: u64,
    pub(crate) agenda: &'a mut Agenda,
    pub(crate) side: &'a mut SideHash,
    wakers: &'a mut Vec<Waker>,
}

impl Io<'_> {
    /// Wakes a task once the lock is released.
    pub(crate) fn wake(&mut self, waker: &mut Option<Waker>) {
        self.wakers.extend(waker.take());
    }
}

impl Core {
    /// The network, and what it needs to act.
    pub(crate) fn net(&mut self, now: u64) -> (&mut Net, Io<'_>) {
        let io = Io { now, agenda: &mut self.agenda, side: &mut self.side, wakers: &mut self.wakers };
        (&mut self.net, io)
    }
}

/// Counts polls, to find tasks that run in circles.
#[derive(Default)]
struct Meter {
    /// One entry per node and name of task.
    tasks: Vec<TaskMeter>,
    index: BTreeMap<(NodeId, &'static str), MeterId>,
    total: u64,
    last_poll_at: u64,
    /// The virtual second that is being counted.
    second: u64,
    in_second: u64,
}

struct TaskMeter {
    node: NodeId,
    name: &'static str,
    in_second: u64,
}

/// Where the polls of a task are counted.
pub(crate) type MeterId = usize;

impl World {
    pub(crate) fn new(
        config: StandConfig,
        observer: Arc<dyn Observer>,
        executor: Handle,
        (operator, time): (NodeHandle, TimeHandle),
    ) -> World {
        let mut agenda = Agenda::default();
        agenda.limit(u64::try_from(config.limit.as_nanos()).unwrap_or(u64::MAX));
        World {
            seeds: config.seeds,
            mutants: config.mutants,
            buggify: Buggify::default(),
            wall_start_ms: config.wall_start_ms,
            observer,
            executor,
            reached: Mutex::default(),
            operator,
            begin: time.now_instant() - time.elapsed(),
            polls_per_second_max: config.polls_per_second_max,
            nodes: Mutex::new(Vec::new()),
            core: spin::Mutex::new(Core {
                agenda,
                net: Net::new(config.net, config.seeds.net),
                side: SideHash::new(config.side_window),
                wakers: Vec::new(),
                driver: None,
                wake_up: time.sleep(Duration::ZERO),
                closing: false,
                meter: Meter::default(),
            }),
            time,
            cut_short: Mutex::new(None),
            cut_short_now: Notify::new(),
        }
    }

    /// True time: nanoseconds since the run began.
    pub(crate) fn now(&self) -> u64 {
        nanos(self.time.elapsed())
    }

    /// Works on the shared state, then orders what it needs and wakes whom it should. Never call it from inside.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Core, u64) -> R) -> R {
        let now = self.now();
        let mut core = self.core.lock();
        let result = work(&mut core, now);
        if core.driver.is_some()
            && let Some(at) = core.agenda.take_wanted()
        {
            self.order_wake_up(&mut core, at);
        }
        // One waker is the usual case, and then the vector keeps its memory.
        match core.wakers.len() {
            0 => {}
            1 => {
                let waker = core.wakers.pop();
                drop(core);
                waker.into_iter().for_each(Waker::wake);
            }
            _ => {
                let wakers = std::mem::take(&mut core.wakers);
                drop(core);
                wakers.into_iter().for_each(Waker::wake);
            }
        }
        result
    }

    /// Adds a cheap event to the side hash.
    pub(crate) fn note(&self, kind: Side, node: NodeId, a: u64, b: u64) {
        self.with(|core, now| core.side.add(now, kind, node, a, b));
    }

    // ---- nodes ----

    pub(crate) fn nodes(&self) -> MutexGuard<'_, Vec<Arc<Node>>> {
        lock(&self.nodes)
    }

    /// # Panics
    /// If no such node was added.
    pub(crate) fn node(&self, id: NodeId) -> Arc<Node> {
        self.nodes().get(id.0 as usize).cloned().unwrap_or_else(|| panic!("{id:?} is not a node of this stand"))
    }

    // ---- polls ----

    pub(crate) fn meter(&self, node: NodeId, name: &'static str) -> MeterId {
        self.with(|core, _| core.meter.of(node, name))
    }

    /// A task starts; tells where its polls are counted.
    pub(crate) fn spawned(&self, node: NodeId, ordinal: u64, name: &'static str) -> MeterId {
        self.with(|core, now| {
            core.side.add(now, Side::Spawn, node, ordinal, name_hash(name));
            core.meter.of(node, name)
        })
    }

    /// A task is about to be polled.
    pub(crate) fn count_poll(&self, node: NodeId, ordinal: u64, meter: MeterId) {
        let livelock = self.with(|core, now| {
            core.side.add(now, Side::Poll, node, ordinal, 0);
            core.meter.count(now, meter, self.polls_per_second_max)
        });
        if let Some(livelock) = livelock {
            self.cut_short(livelock);
        }
    }

    pub(crate) fn polls(&self) -> u64 {
        self.with(|core, _| core.meter.total)
    }

    /// Takes note that the run came to a statement. True for the first time.
    pub(crate) fn note_reached(&self, name: &'static str) -> bool {
        lock(&self.reached).insert(name)
    }

    // ---- the end ----

    /// Ends the run; the first reason counts.
    pub(crate) fn cut_short(&self, reason: CutShort) {
        lock(&self.cut_short).get_or_insert(reason);
        self.cut_short_now.notify_one();
    }

    /// Ends when the run must.
    pub(crate) async fn cut_short_reason(&self) -> CutShort {
        loop {
            if let Some(reason) = lock(&self.cut_short).clone() {
                return reason;
            }
            self.cut_short_now.notified().await;
        }
    }

    /// Lets 1 ms pass, in which killed tasks get the turns on which they are dropped.
    pub(crate) async fn settle(&self) {
        self.time.sleep(Duration::from_millis(1)).await;
    }

    /// Lets the driver come to its end.
    pub(crate) fn close(&self) {
        self.with(|core, _| {
            core.closing = true;
            core.wakers.extend(core.driver.take());
        });
    }

    // ---- the driver ----

    /// The task that makes things happen when they are due; to be spawned once, outside every node.
    pub(crate) fn drive(self: Arc<World>) -> impl Future<Output = ()> + Send {
        std::future::poll_fn(move |cx| self.poll_drive(cx))
    }

    fn poll_drive(&self, cx: &mut Context<'_>) -> Poll<()> {
        let (closing, cut) = self.with(|core, now| {
            if core.closing {
                return (true, None);
            }
            core.driver.get_or_insert_with(|| cx.waker().clone());
            let cut = core.run_due(now);
            core.agenda.after_wake(now);
            (false, cut)
        });
        if let Some(cut) = cut {
            self.cut_short(cut);
        }
        if closing { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Orders a wake-up of the driver.
    fn order_wake_up(&self, core: &mut Core, at: u64) {
        let Some(driver) = &core.driver else { return };
        let mut wake_up = Pin::new(&mut core.wake_up);
        wake_up.as_mut().reset(self.begin + Duration::from_nanos(at));
        if wake_up.poll(&mut Context::from_waker(driver)).is_ready() {
            driver.wake_by_ref();
        }
    }
}

impl Core {
    fn run_due(&mut self, now: u64) -> Option<CutShort> {
        while let Some((seq, due)) = self.agenda.pop_due(now) {
            match due {
                Due::Timer(waker) => {
                    self.side.add(now, Side::Timer, NodeId::NONE, seq, 0);
                    self.wakers.extend(waker);
                }
                Due::Net(event) => {
                    let (net, mut io) = self.net(now);
                    net.handle(event, &mut io);
                }
                Due::Limit if self.agenda.is_empty() => {
                    return Some(CutShort::Deadlock { since: self.meter.last_poll_at });
                }
                Due::Limit => return Some(CutShort::TimeLimit),
            }
        }
        None
    }
}

impl Meter {
    fn of(&mut self, node: NodeId, name: &'static str) -> MeterId {
        *self.index.entry((node, name)).or_insert_with(|| {
            self.tasks.push(TaskMeter { node, name, in_second: 0 });
            self.tasks.len() - 1
        })
    }

    fn count(&mut self, now: u64, id: MeterId, max: u64) -> Option<CutShort> {
        self.total += 1;
        self.last_poll_at = now;
        let second = now / 1_000_000_000;
        if second != self.second {
            self.second = second;
            self.in_second = 0;
            self.tasks.iter_mut().for_each(|task| task.in_second = 0);
        }
        self.in_second += 1;
        self.tasks[id].in_second += 1;
        if self.in_second <= max {
            return None;
        }
        let busiest = self.tasks.iter().max_by_key(|task| task.in_second)?;
        Some(CutShort::Livelock { node: busiest.node, task: busiest.name, polls: busiest.in_second })
    }
}

/// Locks, also after a panic elsewhere: product panics are caught, and no state here is left half-changed by one.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When something ends that was to end at `end`, if what is left of it at `now` takes `new` where it took `old`.
pub(crate) fn hastened(end: u64, now: u64, (new, old): (u64, u64)) -> u64 {
    if end <= now || old == 0 {
        return end;
    }
    let left = (u128::from(end - now) * u128::from(new)).div_ceil(u128::from(old));
    now.saturating_add(u64::try_from(left).unwrap_or(u64::MAX))
}

/// A duration in nanoseconds, as far as 64 bits reach (584 years).
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
