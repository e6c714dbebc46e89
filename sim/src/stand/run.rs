//! One run from its first moment to its last.

use std::{
    any::Any,
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use madsim::runtime::{NodeHandle, Runtime};

use crate::{
    scenario::units::print_size,
    side::SideHash,
    stand::{Ended, NodeId, Observer, Run, Stand, StandConfig, stamp},
    world::{CutShort, MeterId, World, lock},
};

/// Deep enough for the futures of a whole cluster in a debug build; only what is touched takes memory.
const STACK_BYTES: usize = 64 << 20;

/// What a future panicked with.
type Panic = Box<dyn Any + Send>;

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
    host::real::forbid();
    // A fresh thread: madsim seeds std's hash maps for the thread on which a run begins.
    let thread = std::thread::Builder::new()
        .name("stand".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || simulate(config, observer, supervisor));
    match thread {
        Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        Err(error) => {
            let ended = Ended::NoRoom(format!(
                "the memory limit leaves no room for the {} of its stack: {error}",
                print_size(STACK_BYTES as u64)
            ));
            let side = SideHash::new(None).report();
            Run { ended, elapsed: Duration::ZERO, polls: 0, segments: 0, side }
        }
    }
}

fn simulate<T, S, F>(config: StandConfig, observer: Arc<dyn Observer>, supervisor: S) -> Run<T>
where
    S: FnOnce(Stand) -> F,
    F: Future<Output = T>,
{
    let mut settings = madsim::Config::default();
    // Nothing of ours travels over madsim's own network; whatever else does should find it working.
    settings.net.send_latency = Duration::ZERO..Duration::from_micros(1);
    let runtime = Runtime::with_seed_and_config(config.seeds.sched.0, settings);
    let operator = runtime.create_node().name("operator").build();
    let world = {
        // The clock can be had inside the runtime only.
        let time = runtime.block_on(async { madsim::time::TimeHandle::current() });
        Arc::new(World::new(config, observer, runtime.handle().clone(), (operator.clone(), time)))
    };
    let stamped = stamp::begin(&world);
    let (ended, elapsed) = runtime.block_on(supervise(&world, &operator, supervisor));
    drop(stamped);
    drop(runtime);
    match ended {
        Ok(ended) => {
            let polls = world.polls();
            let (segments, side) = world.with(|core, now| (core.net(now).0.segments(), core.side.report()));
            Run { ended, elapsed: Duration::from_nanos(elapsed), polls, segments, side }
        }
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

async fn supervise<T, S, F>(world: &Arc<World>, operator: &NodeHandle, supervisor: S) -> (Result<Ended<T>, Panic>, u64)
where
    S: FnOnce(Stand) -> F,
    F: Future<Output = T>,
{
    let driver = madsim::task::spawn(Arc::clone(world).drive());
    let ended = {
        let supervisor = Watched::new(world, "supervisor", async { supervisor(Stand::of(world)).await });
        host::select! {
            reason = world.cut_short_reason() => cut_short(world, reason),
            finished = supervisor => finished.map(Ended::Finished),
        }
    };
    let elapsed = world.now();
    let nodes = world.nodes().clone();
    for node in nodes {
        if let Some(life) = node.life() {
            world.end_life(&life);
        }
        node.forget_program();
    }
    world.executor.kill(operator.id());
    // Each task is dropped on a turn of its own; what still waits when the runtime goes would leak.
    world.settle().await;
    world.close();
    drop(driver.await);
    (ended, elapsed)
}

fn cut_short<T>(world: &World, reason: CutShort) -> Result<Ended<T>, Panic> {
    match reason {
        CutShort::TimeLimit => Ok(Ended::TimeLimit),
        CutShort::Deadlock { since } => Ok(Ended::Deadlock { since: Duration::from_nanos(since) }),
        CutShort::Livelock { node, task, polls } => {
            let node = (node != NodeId::NONE).then(|| Arc::clone(&world.node(node).name));
            Ok(Ended::Livelock { node, task, polls })
        }
        CutShort::Broken { node, name } => Ok(Ended::Broken { node: Arc::clone(&world.node(node).name), name }),
        CutShort::Panic(panic) => Err(lock(&panic).take().unwrap_or_else(|| Box::new("the operator's task panicked"))),
    }
}

/// Starts a task of the operator.
pub(super) fn spawn(world: &Arc<World>, future: impl Future<Output = ()> + Send + 'static) {
    let task = Watched::new(world, "operator", future);
    let world = Arc::clone(world);
    let operator = world.operator.clone();
    drop(operator.spawn(async move {
        if let Err(panic) = task.await {
            world.cut_short(CutShort::Panic(Arc::new(Mutex::new(Some(panic)))));
        }
    }));
}

/// A future outside every node. Its polls count, and it ends with its panic instead of passing that on to the executor,
/// which would end everything at once.
struct Watched<F> {
    world: Arc<World>,
    meter: MeterId,
    future: Pin<Box<F>>,
}

impl<F: Future> Watched<F> {
    fn new(world: &Arc<World>, name: &'static str, future: F) -> Watched<F> {
        Watched { world: Arc::clone(world), meter: world.meter(NodeId::NONE, name), future: Box::pin(future) }
    }
}

impl<F: Future> Future for Watched<F> {
    type Output = Result<F::Output, Panic>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.world.count_poll(NodeId::NONE, 0, self.meter);
        match std::panic::catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}
