//! What one event of each kind costs.

use std::{
    future::poll_fn,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use host::{Host, fs::OpenOptions};
use sim::{
    history::{Event, Recorder},
    net::{Latency, NetConfig},
    seed::Seeds,
    stand::{self, Ended, NodeSpec, Stand, StandConfig},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{in_turns, nanos_each, table};

/// How often each event happens in one turn.
const EVENTS: u64 = 100_000;

/// Bytes of a record and of a question.
const RECORD_BYTES: usize = 256;

const PAGE_BYTES: u64 = 4096;

/// One line of the table: what it is, and what `spec/simulation.md` 1.12 counts with.
type Cost = (&'static str, &'static str, Box<dyn FnMut()>);

pub fn print() {
    let costs: Vec<Cost> = vec![
        ("poll of a ready task", "77 to 143 ns", Box::new(|| on_node(|_| polls()))),
        ("task spawned and joined", "600 ns", Box::new(|| on_node(tasks))),
        ("sleep of 1 ms", "177 ns", Box::new(|| on_node(sleeps))),
        ("time-out of 30 s around a ready future", "208 ns", Box::new(|| on_node(timeouts))),
        ("segment of 256 B, one way", "at most 600 ns", Box::new(segments)),
        ("256 B appended to a mapping", "130 ns", Box::new(|| on_node(appends))),
        ("first change of a durable page", "500 ns", Box::new(|| on_node(page_copies))),
        ("record of a history, hashed", "100 ns", Box::new(records)),
    ];
    let (mut measurements, mut lines) = (Vec::new(), Vec::new());
    for (name, budget, measurement) in costs {
        lines.push((name, budget));
        measurements.push(measurement);
    }
    let mut shown = table(&["event", "here", "counted with"]);
    for ((name, budget), time) in lines.into_iter().zip(in_turns(&mut measurements)) {
        shown.add_row([name, &format!("{:.0} ns", nanos_each(time, EVENTS)), budget]);
    }
    println!("{shown}");
}

/// A quiet network: latency only, so that the figures are those of the machinery.
pub fn config() -> StandConfig {
    let latency = Latency::Fixed(Duration::from_millis(1));
    let net = NetConfig { latency, extra_max: Duration::ZERO, bandwidth: 0, ..NetConfig::default() };
    StandConfig { net, limit: Duration::from_secs(1_000_000), ..StandConfig::new(Seeds::from_root(7)) }
}

/// Runs a program on the only node of a stand, to its end.
fn on_node<F>(program: impl Fn(Host) -> F + Copy + Send + Sync + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    run(async move |stand| {
        let node = add(&stand, 1);
        ends(&stand, node, program).await;
    });
}

/// Runs a program on a node; it must come to its end.
async fn ends<F>(stand: &Stand, node: stand::NodeId, program: impl Fn(Host) -> F + Copy + Send + Sync + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let has_ended = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&has_ended);
    stand.start(node, move |host, _| {
        let told = Arc::clone(&told);
        async move {
            program(host).await;
            told.store(true, Ordering::Relaxed);
            Ok(())
        }
    });
    stand.ended(node).await;
    assert!(has_ended.load(Ordering::Relaxed), "the program failed: what was measured is something else");
}

/// Runs a supervisor; it must come to its end.
pub fn run<F>(supervisor: impl FnOnce(Stand) -> F + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let run = stand::run(config(), Arc::new(()), supervisor);
    assert!(matches!(run.ended, Ended::Finished(())), "the run was cut short");
}

/// Adds the node `10.0.0.last`.
pub fn add(stand: &Stand, last: u8) -> stand::NodeId {
    let spec = NodeSpec::new(format!("n{last}"), Ipv4Addr::new(10, 0, 0, last));
    stand.add_node(spec).expect("numbers are used once")
}

async fn polls() {
    let mut left = EVENTS;
    poll_fn(|cx| {
        left -= 1;
        if left == 0 {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn tasks(host: Host) {
    for _ in 0..EVENTS {
        host.spawn("one", async {}).await.expect("it ends by itself");
    }
}

async fn sleeps(host: Host) {
    for _ in 0..EVENTS {
        host.sleep(Duration::from_millis(1)).await;
    }
}

async fn timeouts(host: Host) {
    for _ in 0..EVENTS {
        host.timeout(Duration::from_secs(30), async {}).await.expect("it is ready");
    }
}

fn segments() {
    ping_pong(EVENTS / 2);
}

/// Questions and answers between two nodes: twice as many segments.
pub fn ping_pong(rounds: u64) {
    run(async move |stand| {
        let (server, client) = (add(&stand, 1), add(&stand, 2));
        let address = SocketAddr::from(([10, 0, 0, 1], 9_876));
        stand.start(server, move |host, _| async move {
            let listener = host.bind(address).await.map_err(|error| error.to_string())?;
            let (mut stream, _) = listener.accept().await.map_err(|error| error.to_string())?;
            let mut question = [0; RECORD_BYTES];
            while stream.read_exact(&mut question).await.is_ok() {
                stream.write_all(&question).await.map_err(|error| error.to_string())?;
            }
            Ok(())
        });
        let asks = move |host: Host| async move {
            // The listener comes up in the same instant.
            host.sleep(Duration::from_millis(1)).await;
            let mut stream = host.connect(address).await.expect("the server listens");
            let mut answer = [1; RECORD_BYTES];
            for _ in 0..rounds {
                stream.write_all(&[1; RECORD_BYTES]).await.expect("the server is there");
                stream.read_exact(&mut answer).await.expect("the server answers");
            }
        };
        ends(&stand, client, asks).await;
    });
}

async fn appends(host: Host) {
    let bytes = EVENTS * RECORD_BYTES as u64;
    let file = host.files().open("/log", OpenOptions::CREATE).await.expect("the disk is empty");
    file.set_len(bytes).await.expect("the disk has room");
    let log = file.map(bytes).await.expect("the file is that long");
    for record in 0..EVENTS {
        log.write(record * RECORD_BYTES as u64, &[7; RECORD_BYTES]);
    }
}

async fn page_copies(host: Host) {
    const PAGES: u64 = 1_000;
    let file = host.files().open("/log", OpenOptions::CREATE).await.expect("the disk is empty");
    file.set_len(PAGES * PAGE_BYTES).await.expect("the disk has room");
    let log = file.map(PAGES * PAGE_BYTES).await.expect("the file is that long");
    for round in 0..EVENTS / PAGES {
        for page in 0..PAGES {
            log.write(page * PAGE_BYTES, &[round as u8 + 1]);
        }
        log.sync(0, PAGES * PAGE_BYTES).await.expect("the disk is well");
    }
}

fn records() {
    let recorder = Recorder::new(None);
    for record in 0..EVENTS {
        recorder.record(record * 1_000, Some(("broker-a/0", 1)), |_| Event::Append(record * RECORD_BYTES as u64));
    }
    let (history, hash) = recorder.finish().expect("it is kept in memory");
    assert_eq!(history.records.len() as u64, hash.count);
}
