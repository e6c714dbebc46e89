//! What only a stand can do to a node, and where `Host::current()` may be asked while it does it.

use std::{
    future::Future,
    io::ErrorKind,
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use bytes::Bytes;
use host::{
    Host,
    fs::{File, Mapping, OpenOptions},
    net::TcpListener,
    real::RunError,
    task::JoinError,
};
use sim::{
    disk::{DiskError, DiskFault, Hits, Survival},
    seed::Seeds,
    stand::{Ended, NodeId, NodeStatus, Observer, Place, Stand, StandConfig},
};
use tokio::sync::{Notify, oneshot};

use crate::{
    current::Witness,
    machines::{alone, node},
};

/// What happened, in order. Shared by supervisor and nodes.
type Log<T> = Arc<Mutex<Vec<T>>>;

/// Runs `supervisor` on a stand with one node, in a process of its own.
fn simulate<F>(name: &str, supervisor: impl FnOnce(Stand, NodeId) -> F + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    observe(name, Arc::new(()), supervisor);
}

fn observe<F>(name: &str, observer: Arc<dyn Observer>, supervisor: impl FnOnce(Stand, NodeId) -> F + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    alone(&format!("stand::{name}"), || {
        let run = sim::stand::run(StandConfig::new(Seeds::from_root(7)), observer, move |stand| {
            let node = stand.add_node(node("node/0", 1)).unwrap();
            supervisor(stand, node)
        });
        assert_eq!(run.ended, Ended::Finished(()));
    });
}

const TICK: Duration = Duration::from_millis(100);

/// Starts a node whose program is `life`, and which stays up after that.
fn start<F>(stand: &Stand, node: NodeId, life: impl Fn(Host) -> F + Send + Sync + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    stand.start(node, move |host, stop| {
        let life = life(host);
        async move {
            life.await;
            stop.requested().await;
            Ok(())
        }
    });
}

// ---- files ----

const LEN: u64 = 2 * 4096;

async fn mapped(host: &Host) -> (File, Mapping) {
    let file = host.files().open("/log", OpenOptions::CREATE).await.unwrap();
    file.allocate(LEN).await.unwrap();
    let mapping = file.map(LEN).await.unwrap();
    (file, mapping)
}

#[test]
fn bytes_held_across_kill_and_power_loss_stay() {
    simulate("bytes_held_across_kill_and_power_loss_stay", |stand, node| async move {
        let held: Log<Bytes> = Log::default();
        let hold = Arc::clone(&held);
        start(&stand, node, move |host| {
            let hold = Arc::clone(&hold);
            async move {
                let (file, mapping) = mapped(&host).await;
                // The first life finds zeros, the second what a kill kept, the third what a power loss left.
                let mut before = [0; 1];
                file.read_exact_at(&mut before, 0).unwrap();
                mapping.write(0, &[host.incarnation() as u8; 4096]);
                hold.lock().unwrap().extend([Bytes::copy_from_slice(&before), mapping.slice(0, 4096)]);
                if host.incarnation() == 1 {
                    mapping.sync(0, 4096).await.unwrap();
                    host.files().sync_dir("/").await.unwrap();
                }
            }
        });
        stand.sleep(TICK).await;
        stand.kill(node);
        stand.restart(node);
        stand.sleep(TICK).await;
        stand.power_loss(&[node], Some(Survival::AllOld), 1);
        stand.restart(node);
        stand.sleep(TICK).await;
        let held = held.lock().unwrap();
        assert_eq!(held.len(), 6);
        for (life, found) in [(0, 0), (1, 1), (2, 1)] {
            assert_eq!(held[2 * life][..], [found], "found by life {}", life + 1);
            assert_eq!(held[2 * life + 1][..], [life as u8 + 1; 4096], "held since life {}", life + 1);
        }
    });
}

#[test]
fn a_disk_with_short_reads_and_writes_cannot_be_told_from_another() {
    simulate("a_disk_with_short_reads_and_writes_cannot_be_told_from_another", |stand, node| async move {
        for (key, error) in [(1, DiskError::ShortRead), (2, DiskError::ShortWrite)] {
            let hits = Hits::Chance(1_000_000);
            stand.disk(node).add_fault(key, DiskFault { path: "*".to_owned(), error, hits });
        }
        let done: Log<()> = Log::default();
        let finished = Arc::clone(&done);
        start(&stand, node, move |host| {
            let finished = Arc::clone(&finished);
            async move {
                crate::files::a_file_is_read_and_written_whole_at_any_place(host, "/".into()).await;
                finished.lock().unwrap().push(());
            }
        });
        stand.sleep(TICK).await;
        assert_eq!(done.lock().unwrap().len(), 1);
    });
}

#[test]
fn a_lock_is_freed_by_the_death_of_its_process() {
    simulate("a_lock_is_freed_by_the_death_of_its_process", |stand, node| async move {
        let taken: Log<bool> = Log::default();
        let log = Arc::clone(&taken);
        start(&stand, node, move |host| {
            let log = Arc::clone(&log);
            async move {
                let file = host.files().open("/lock", OpenOptions::CREATE).await.unwrap();
                log.lock().unwrap().push(file.try_lock().unwrap());
                std::future::pending::<()>().await;
            }
        });
        stand.sleep(TICK).await;
        stand.pause(node);
        stand.resume(node);
        stand.kill(node);
        stand.restart(node);
        stand.sleep(TICK).await;
        assert_eq!(*taken.lock().unwrap(), [true, true]);
    });
}

#[test]
fn a_full_disk_refuses_writes_and_kills_who_stores_to_a_hole() {
    let deaths = Arc::new(Deaths::default());
    let told = Arc::clone(&deaths);
    observe("a_full_disk_refuses_writes_and_kills_who_stores_to_a_hole", told, |stand, node| async move {
        let disk = stand.disk(node);
        start(&stand, node, move |host| {
            let disk = disk.clone();
            async move {
                let file = host.files().open("/file", OpenOptions::CREATE).await.unwrap();
                file.set_len(LEN).await.unwrap();
                let mapping = file.map(LEN).await.unwrap();
                disk.fill_percent(100);
                assert_eq!(file.write_all_at(b"x", LEN).unwrap_err().kind(), ErrorKind::StorageFull);
                mapping.write(0, b"no room");
                host.sleep(Duration::ZERO).await;
                unreachable!("the process is dead");
            }
        });
        stand.sleep(TICK).await;
        assert_eq!(stand.status(node), NodeStatus::Down);
        let deaths = deaths.0.lock().unwrap();
        assert_eq!(deaths.len(), 1, "{deaths:?}");
        assert!(deaths[0].contains("SIGBUS"), "{deaths:?}");
    });
}

// ---- lives ----

#[derive(Default)]
struct Deaths(Log<String>);

impl Observer for Deaths {
    fn panicked(&self, _stand: &Stand, place: &Place, task: &'static str, message: &str) {
        self.0.lock().unwrap().push(format!("{}/{} {task}: {message}", place.name, place.incarnation));
    }
}

#[test]
fn a_panic_stops_the_node_and_no_other() {
    let deaths = Arc::new(Deaths::default());
    let told = Arc::clone(&deaths);
    observe("a_panic_stops_the_node_and_no_other", told, |stand, first| async move {
        let second = stand.add_node(node("node/1", 2)).unwrap();
        start(&stand, first, |host| async move {
            let task = host.spawn("faulty", async { panic!("by design") });
            let _: Result<(), _> = task.await;
            host.sleep(Duration::ZERO).await;
            unreachable!("the process is dead");
        });
        start(&stand, second, |_| async {});
        stand.sleep(TICK).await;
        assert_eq!(stand.status(first), NodeStatus::Down);
        assert_eq!(stand.status(second), NodeStatus::Up { incarnation: 1 });
        assert_eq!(*deaths.0.lock().unwrap(), ["node/0/1 faulty: by design"]);
    });
}

/// Everything a life can leave behind in the hands of somebody else.
struct Leaked {
    host: Host,
    file: File,
    mapping: Mapping,
    listener: TcpListener,
}

#[test]
fn handles_of_a_dead_life_are_refused_everything() {
    simulate("handles_of_a_dead_life_are_refused_everything", |stand, node| async move {
        let leak: Arc<Mutex<Option<Leaked>>> = Arc::default();
        let leaks = Arc::clone(&leak);
        start(&stand, node, move |host| {
            let leaks = Arc::clone(&leaks);
            async move {
                if host.incarnation() == 1 {
                    let (file, mapping) = mapped(&host).await;
                    let listener = host.bind("10.0.0.1:9000".parse().unwrap()).await.unwrap();
                    *leaks.lock().unwrap() = Some(Leaked { host, file, mapping, listener });
                }
            }
        });
        stand.sleep(TICK).await;
        let Leaked { host, file, mapping, listener } = leak.lock().unwrap().take().unwrap();
        stand.kill(node);
        stand.restart(node);
        stand.sleep(TICK).await;
        file.write_all_at(b"from the grave", 0).unwrap_err();
        file.sync_all().await.unwrap_err();
        mapping.write(0, b"from the grave");
        mapping.sync(0, LEN).await.unwrap_err();
        mapping.rewind(0).await.unwrap_err();
        host.files().open("/new", OpenOptions::CREATE).await.unwrap_err();
        host.files().space("/").unwrap_err();
        host.bind("10.0.0.1:9001".parse().unwrap()).await.unwrap_err();
        host.connect("10.0.0.1:9000".parse().unwrap()).await.unwrap_err();
        listener.accept().await.unwrap_err();
        let ran = Arc::new(Mutex::new(Vec::new()));
        let witness = Witness(Arc::clone(&ran));
        let task = host.spawn("from the grave", async move { drop(witness) });
        assert_eq!(task.await, Err(JoinError::Cancelled));
        assert_eq!(*ran.lock().unwrap(), [("node/0".to_owned(), 1)], "it was dropped as what it was");
        drop((host, file, mapping, listener));
        let image = stand.disk(node).image();
        assert!(image.read("/new").is_err());
        assert!(image.read("/log").unwrap().iter().all(|&byte| byte == 0));
        assert_eq!(image.files().map(|(path, _)| path).collect::<Vec<_>>(), [Path::new("/log")]);
    });
}

#[test]
fn streams_of_chance_differ_between_lives_and_nodes() {
    simulate("streams_of_chance_differ_between_lives_and_nodes", |stand, first| async move {
        let second = stand.add_node(node("node/1", 2)).unwrap();
        let drawn: Log<u64> = Log::default();
        for node in [first, second] {
            let drawn = Arc::clone(&drawn);
            start(&stand, node, move |host| {
                drawn.lock().unwrap().push(host.rng("stream").next_u64());
                async {}
            });
        }
        stand.sleep(TICK).await;
        stand.restart(first);
        stand.sleep(TICK).await;
        let mut drawn = drawn.lock().unwrap().clone();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 3);
    });
}

#[test]
fn a_process_that_simulates_may_not_use_the_real_machine() {
    simulate("a_process_that_simulates_may_not_use_the_real_machine", |_, _| async {
        let refused = |result: Result<(), RunError>| match result {
            Err(RunError::Start(error)) => assert_eq!(error.kind(), ErrorKind::Unsupported),
            other => panic!("{other:?}"),
        };
        refused(host::real::run("real", |_| async {}));
    });
}

// ---- the seven places where the host of a task is asked for ----

fn here() -> (String, u32) {
    Host::try_current().map_or(("nobody".to_owned(), 0), |host| (host.node().to_owned(), host.incarnation()))
}

fn life(node: &str, incarnation: u32) -> (String, u32) {
    (node.to_owned(), incarnation)
}

#[test]
fn the_supervisor_is_on_no_node() {
    simulate("the_supervisor_is_on_no_node", |stand, node| async move {
        assert_eq!(here(), life("nobody", 0));
        start(&stand, node, |_| async {});
        stand.sleep(TICK).await;
        assert_eq!(here(), life("nobody", 0));
    });
}

#[test]
fn a_task_and_a_nested_task_are_on_their_node() {
    simulate("a_task_and_a_nested_task_are_on_their_node", |stand, node| async move {
        let (tell, told) = oneshot::channel();
        let tell = Mutex::new(Some(tell));
        start(&stand, node, move |host| {
            let tell = tell.lock().unwrap().take();
            async move {
                let inner = host.spawn("outer", async {
                    let nested = Host::current().spawn("inner", async { here() });
                    [here(), nested.await.unwrap()]
                });
                let seen = inner.await.unwrap();
                tell.unwrap().send((here(), seen)).unwrap();
            }
        });
        let mine = life("node/0", 1);
        assert_eq!(told.await.unwrap(), (mine.clone(), [mine.clone(), mine]));
    });
}

/// A waker that writes down where it was called, and then wakes another one.
struct Noted {
    log: Log<(String, u32)>,
    inner: Waker,
}

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.log.lock().unwrap().push(here());
        self.inner.wake_by_ref();
    }
}

/// Polls `future` with a waker that notes its calls, and notes where it is polled after the first time.
struct Noting<F> {
    log: Log<(String, u32)>,
    future: Pin<Box<F>>,
    polls: u32,
}

impl<F> Noting<F> {
    fn new(log: &Log<(String, u32)>, future: F) -> Noting<F> {
        Noting { log: Arc::clone(log), future: Box::pin(future), polls: 0 }
    }
}

impl<F: Future> Future for Noting<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.polls += 1;
        if self.polls > 1 {
            self.log.lock().unwrap().push(here());
        }
        let noted = Arc::new(Noted { log: Arc::clone(&self.log), inner: cx.waker().clone() });
        self.future.as_mut().poll(&mut Context::from_waker(&Waker::from(noted)))
    }
}

#[test]
fn a_waker_runs_where_it_is_called_and_its_task_at_home() {
    simulate("a_waker_runs_where_it_is_called_and_its_task_at_home", |stand, first| async move {
        let second = stand.add_node(node("node/1", 2)).unwrap();
        let (log, notify) = (Log::default(), Arc::new(Notify::new()));
        let (waiting, noted) = (Arc::clone(&notify), Arc::clone(&log));
        start(&stand, first, move |_| {
            let (waiting, noted) = (Arc::clone(&waiting), Arc::clone(&noted));
            async move { Noting::new(&noted, waiting.notified()).await }
        });
        stand.sleep(TICK).await;
        start(&stand, second, move |_| {
            let notify = Arc::clone(&notify);
            async move { notify.notify_one() }
        });
        stand.sleep(TICK).await;
        assert_eq!(*log.lock().unwrap(), [life("node/1", 1), life("node/0", 1)]);
    });
}

#[test]
fn a_timer_wakes_on_no_node_and_its_task_at_home() {
    simulate("a_timer_wakes_on_no_node_and_its_task_at_home", |stand, node| async move {
        let log = Log::default();
        let noted = Arc::clone(&log);
        start(&stand, node, move |host| Noting::new(&noted, async move { host.sleep(TICK / 2).await }));
        stand.sleep(TICK).await;
        assert_eq!(*log.lock().unwrap(), [life("nobody", 0), life("node/0", 1)]);
    });
}

/// A node with one task that waits for ever and tells where it is dropped.
fn start_witness(stand: &Stand, node: NodeId, log: &Log<(String, u32)>) {
    let log = Arc::clone(log);
    start(stand, node, move |host| {
        let witness = Witness(Arc::clone(&log));
        host.spawn("witness", async move {
            let _witness = witness;
            std::future::pending::<()>().await;
        });
        async {}
    });
}

#[test]
fn a_task_is_dropped_at_home_after_a_kill() {
    simulate("a_task_is_dropped_at_home_after_a_kill", |stand, node| async move {
        let log = Log::default();
        start_witness(&stand, node, &log);
        stand.sleep(TICK).await;
        stand.kill(node);
        stand.sleep(TICK).await;
        assert_eq!(*log.lock().unwrap(), [life("node/0", 1)]);
        stand.restart(node);
        stand.sleep(TICK).await;
        stand.power_loss(&[node], None, 1);
        stand.sleep(TICK).await;
        assert_eq!(*log.lock().unwrap(), [life("node/0", 1), life("node/0", 2)]);
    });
}

#[test]
fn a_paused_task_is_dropped_at_home() {
    simulate("a_paused_task_is_dropped_at_home", |stand, node| async move {
        let log = Log::default();
        start_witness(&stand, node, &log);
        stand.sleep(TICK).await;
        stand.pause(node);
        stand.sleep(TICK).await;
        stand.kill(node);
        stand.sleep(TICK).await;
        assert_eq!(*log.lock().unwrap(), [life("node/0", 1)]);
    });
}

#[test]
fn a_task_of_an_old_life_is_dropped_as_such_after_a_restart() {
    simulate("a_task_of_an_old_life_is_dropped_as_such_after_a_restart", |stand, node| async move {
        let log = Log::default();
        start_witness(&stand, node, &log);
        stand.sleep(TICK).await;
        stand.kill(node);
        stand.restart(node);
        assert_eq!(stand.status(node), NodeStatus::Up { incarnation: 2 });
        stand.sleep(TICK).await;
        assert_eq!(*log.lock().unwrap(), [life("node/0", 1)]);
    });
}
