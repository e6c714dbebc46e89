//! Master and slave: one log on two brokers. The other end is sometimes a bare socket, which says what no broker would.

mod stage;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD as STANDARD};
use host::{
    Host,
    net::{ReadHalf, TcpListener, TcpStream, WriteHalf},
};
use message::PhyOffset;
use remoting::{Response, ResponseCode};
use stage::{Caller, Names, TIMEOUT, config, pull_from, run, send_to, waiting};
use staticfire_broker::{Broker, BrokerConfig, Replica, ReplicationStatus, SlaveState};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Short pauses, so that silence is noticed soon.
const QUICK: &str = "haSendHeartbeatInterval=200\nhaHousekeepingInterval=2000";

const FILE_BYTES: u64 = 1 << 20;

// ---- what the tests do ----

/// A port that is free with those that a broker takes beside it, given once. It lies below those that the system gives to
/// outgoing connections: one of them could be taken by a client while the broker is down.
#[expect(
    clippy::disallowed_methods,
    reason = "no two test programs have the same process id, and nothing else counts here"
)]
async fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let host = Host::current();
    loop {
        // Test programs that run at the same time begin at different places.
        let offset = std::process::id().wrapping_mul(388).wrapping_add(GIVEN.fetch_add(4, Ordering::Relaxed));
        let port = 10_000 + u16::try_from(offset % 10_000).unwrap();
        let is_free = async |port: u16| host.bind(local(port)).await.is_ok();
        if is_free(port).await && is_free(port + 1).await && is_free(port - 2).await {
            return port;
        }
    }
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn master(folder: &Path, more: &str) -> BrokerConfig {
    config(&folder.join("master"), &format!("{QUICK}\n{more}"))
}

/// A slave of whoever listens on `port`.
fn slave(folder: &Path, port: u16, more: &str) -> BrokerConfig {
    let text = format!("{QUICK}\nbrokerRole=SLAVE\nbrokerId=1\nslaveReadEnable=true\nhaMasterAddress=127.0.0.1:{port}");
    config(&folder.join("slave"), &format!("{text}\n{more}"))
}

/// Waits until `is_so`, and says `what` if that takes too long.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let host = Host::current();
    let deadline = host.now() + 6 * TIMEOUT; // The machine may be busy with other tests.
    while !is_so() {
        assert!(host.now() < deadline, "{what}");
        host.sleep(Duration::from_millis(5)).await;
    }
}

fn replicas(master: &Broker) -> Vec<Replica> {
    match master.replication() {
        ReplicationStatus::Master(replicas) => replicas,
        ReplicationStatus::Slave(state) => panic!("a slave that is {state:?}"),
    }
}

fn state(slave: &Broker) -> SlaveState {
    match slave.replication() {
        ReplicationStatus::Slave(state) => state,
        ReplicationStatus::Master(_) => panic!("a master"),
    }
}

/// Waits until a slave has everything that was sent to its master.
async fn caught_up(master: &Broker, end: u64) {
    until("the slave has not caught up", || {
        replicas(master).iter().any(|replica| replica.copied == Some(PhyOffset(end)))
    })
    .await;
}

async fn send(caller: &Caller, count: usize, body_bytes: usize) {
    for number in 0..count {
        let body = format!("{number:05}{}", "x".repeat(body_bytes));
        assert_eq!(caller.send(send_to("t", &[]), &body).await.code, ResponseCode::SUCCESS);
    }
}

/// Where the log of a broker ends.
async fn end(caller: &Caller) -> u64 {
    let table = caller.ask(remoting::Request::GetBrokerRuntimeInfo(remoting::NoHeader), "").await;
    let table: remoting::body::KvTable = remoting::body::Body::decode(&table.body_bytes()).unwrap();
    table.table["commitLogMaxOffset"].parse().unwrap()
}

/// The bytes of a log up to `end`, from the files.
fn log(folder: &Path, end: u64) -> Vec<u8> {
    let mut names: Vec<_> =
        std::fs::read_dir(folder.join("commitlog")).unwrap().map(|file| file.unwrap().path()).collect();
    names.sort();
    let first: u64 = names[0].file_name().unwrap().to_str().unwrap().parse().unwrap();
    let mut all: Vec<u8> = names.iter().flat_map(|name| std::fs::read(name).unwrap()).collect();
    all.truncate((end - first) as usize);
    all
}

fn assert_same(folder: &Path, end: u64) {
    let (master, slave) = (log(&folder.join("master"), end), log(&folder.join("slave"), end));
    assert!(master.ends_with(&slave) && !slave.is_empty(), "the logs differ");
}

/// One end of a connection.
struct Peer {
    read: ReadHalf,
    write: WriteHalf,
}

impl Peer {
    async fn connect(port: u16) -> Peer {
        Peer::new(Host::current().connect(local(port)).await.unwrap())
    }

    async fn accept(listener: &TcpListener) -> Peer {
        let accepted = Host::current().timeout(TIMEOUT, listener.accept()).await.expect("the slave connects");
        Peer::new(accepted.unwrap().0)
    }

    fn new(stream: TcpStream) -> Peer {
        let (read, write) = stream.into_split();
        Peer { read, write }
    }

    async fn read<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let read = Host::current().timeout(TIMEOUT, self.read.read_exact(&mut bytes)).await;
        read.expect("the other end says something or closes").is_ok().then_some(bytes)
    }

    /// The next report of a slave; `None` if it closed the connection.
    async fn report(&mut self) -> Option<u64> {
        self.read().await.map(u64::from_be_bytes)
    }

    /// The next frame of a master; `None` if it closed the connection.
    async fn frame(&mut self) -> Option<(u64, Vec<u8>)> {
        let at = u64::from_be_bytes(self.read().await?);
        let mut body = vec![0; u32::from_be_bytes(self.read().await?) as usize];
        self.read.read_exact(&mut body).await.ok()?;
        Some((at, body))
    }

    /// The next frame that is no heartbeat.
    async fn data(&mut self) -> (u64, Vec<u8>) {
        loop {
            let frame = self.frame().await.expect("the master goes on");
            if !frame.1.is_empty() {
                return frame;
            }
        }
    }

    async fn say(&mut self, bytes: &[u8]) {
        self.write.write_all(bytes).await.unwrap();
    }

    async fn say_report(&mut self, at: u64) {
        self.say(&at.to_be_bytes()).await;
    }

    async fn say_frame(&mut self, at: u64, body: &[u8]) {
        let header = [&at.to_be_bytes()[..], &(body.len() as u32).to_be_bytes()].concat();
        self.say(&[&header[..], body].concat()).await;
    }

    /// Whether the other end has closed the connection, whatever it said before.
    async fn closes(mut self) -> bool {
        let mut rest = Vec::new();
        Host::current().timeout(TIMEOUT, self.read.read_to_end(&mut rest)).await.is_ok()
    }
}

// ---- two brokers ----

#[test]
fn slave_follows_from_the_start_over_files_and_through_deaths_of_both() {
    run(|_, folder| async move {
        let (folder, port) = (folder.path().to_owned(), free_port().await);
        let settings = master(&folder, &format!("listenPort={port}"));
        let broker = Broker::start(settings.clone()).await.unwrap();
        assert_eq!(broker.replication_addr(), Some(local(port + 1)));
        let caller = Caller::new(broker.local_addr());
        send(&caller, 30, 1000).await;
        let follower = Broker::start(slave(&folder, port + 1, "")).await.unwrap();
        caught_up(&broker, end(&caller).await).await;
        assert_eq!(state(&follower), SlaveState::Following);
        send(&caller, 45, 50_000).await; // Goes on in a third file.
        let reached = end(&caller).await;
        assert!(reached > 2 * FILE_BYTES);
        caught_up(&broker, reached).await;
        assert_same(&folder, reached);

        // The master dies, and comes back.
        drop(broker);
        let broker = Broker::start(settings.clone()).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        send(&caller, 5, 100).await;
        caught_up(&broker, end(&caller).await).await;
        assert_same(&folder, end(&caller).await);

        // The slave dies, and comes back when the master is further.
        drop(follower);
        until("the master has not noticed", || replicas(&broker).is_empty()).await;
        send(&caller, 3, 100_000).await;
        copy_topics(&folder);
        let follower = Broker::start(slave(&folder, port + 1, "")).await.unwrap();
        caught_up(&broker, end(&caller).await).await;
        assert_same(&folder, end(&caller).await);
        let readable = Caller::new(follower.local_addr());
        let last = readable.pull(waiting(pull_from("t", 82), TIMEOUT)).await;
        assert_eq!(last.bodies(), [format!("00002{}", "x".repeat(100_000))]);

        follower.shutdown().await.unwrap();
        broker.shutdown().await.unwrap();
        assert_same(&folder, end_of(&folder.join("slave")));
    });
}

/// What a slave asks its master for.
fn copy_topics(folder: &Path) {
    std::fs::create_dir_all(folder.join("slave/config")).unwrap();
    std::fs::copy(folder.join("master/config/topics.json"), folder.join("slave/config/topics.json")).unwrap();
}

/// Where the files end, for a log that ends inside of its last file.
fn end_of(folder: &Path) -> u64 {
    let all = log(folder, u64::MAX);
    all.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1)
}

#[test]
fn slave_that_was_empty_begins_with_the_last_file() {
    run(|_, folder| async move {
        let (folder, port) = (folder.path().to_owned(), free_port().await);
        let broker = Broker::start(master(&folder, &format!("listenPort={port}"))).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        send(&caller, 50, 50_000).await;
        copy_topics(&folder);
        let follower = Broker::start(slave(&folder, port + 1, "")).await.unwrap();
        let reached = end(&caller).await;
        caught_up(&broker, reached).await;
        let bytes = log(&folder.join("slave"), reached).len() as u64;
        assert_eq!(bytes, reached % FILE_BYTES);
        assert_same(&folder, reached);
        // What it does not have, it does not have; the rest is at its offsets.
        let readable = Caller::new(follower.local_addr());
        let last = readable.pull(waiting(pull_from("t", 49), TIMEOUT)).await;
        assert_eq!(last.bodies().len(), 1);
        // It keeps that through a restart.
        follower.shutdown().await.unwrap();
        let follower = Broker::start(slave(&folder, port + 1, "")).await.unwrap();
        send(&caller, 1, 10).await;
        caught_up(&broker, end(&caller).await).await;
        assert_same(&folder, end(&caller).await);
        follower.shutdown().await.unwrap();
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn ho08_slave_that_was_empty_begins_with_the_first_file_if_it_is_told_to() {
    run(|_, folder| async move {
        let (folder, port) = (folder.path().to_owned(), free_port().await);
        let broker = Broker::start(master(&folder, &format!("listenPort={port}"))).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        send(&caller, 50, 50_000).await;
        let names = Names::start().await;
        names.set_master(Some(&broker.local_addr().to_string()));
        let more = format!("haSyncFrom=first-file\n{}", names.setting());
        let follower = Broker::start(slave(&folder, port + 1, &more)).await.unwrap();
        let reached = end(&caller).await;
        caught_up(&broker, reached).await;
        assert!(reached > 2 * FILE_BYTES);
        assert_eq!(log(&folder.join("slave"), reached).len() as u64, reached);
        assert_same(&folder, reached);
        follower.shutdown().await.unwrap();
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn message_of_4_mib_goes_through_frames_of_32_kib() {
    run(|_, folder| async move {
        let (folder, port) = (folder.path().to_owned(), free_port().await);
        let large = |mut config: BrokerConfig| {
            config.store.commit_log_file_bytes = 16 << 20;
            config
        };
        let broker = Broker::start(large(master(&folder, &format!("listenPort={port}")))).await.unwrap();
        let follower = Broker::start(large(slave(&folder, port + 1, "flushDiskType=SYNC_FLUSH"))).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        send(&caller, 2, (4 << 20) - 5).await;
        let reached = end(&caller).await;
        assert!(reached > 8 << 20);
        caught_up(&broker, reached).await;
        assert_same(&folder, reached);
        follower.shutdown().await.unwrap();
        broker.shutdown().await.unwrap();
    });
}

// ---- puts that wait ----

async fn timed(caller: &Caller, properties: &[(&str, &str)]) -> (Response, Duration) {
    let host = Host::current();
    let begun = host.now();
    let sent = caller.send(send_to("t", properties), "x").await;
    (sent, host.now().since(begun))
}

#[test]
fn ho07_synchronous_master_waits_for_a_slave_and_says_so_if_there_is_none() {
    run(|_, folder| async move {
        let (folder, port) = (folder.path().to_owned(), free_port().await);
        let settings = format!("listenPort={port}\nbrokerRole=SYNC_MASTER\nslaveTimeout=3000");
        let broker = Broker::start(master(&folder, &settings)).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        let (alone, took) = timed(&caller, &[]).await;
        assert_eq!(alone.code, ResponseCode::SLAVE_NOT_AVAILABLE);
        assert!(took < Duration::from_millis(2500), "{took:?}");
        assert_eq!(timed(&caller, &[("WAIT", "false")]).await.0.code, ResponseCode::SUCCESS);

        // A slave that has everything so far, and takes no more.
        let mut silent = Peer::connect(port + 1).await;
        let reached = end(&caller).await;
        silent.say_report(reached).await;
        until("the report has not come", || replicas(&broker).iter().any(|slave| slave.is_alive)).await;
        let keep_alive = Host::current().spawn("test.reports", async move {
            loop {
                silent.say_report(reached).await;
                Host::current().sleep(Duration::from_millis(100)).await;
            }
        });
        let (late, took) = timed(&caller, &[]).await;
        assert_eq!(late.code, ResponseCode::FLUSH_SLAVE_TIMEOUT);
        assert!(took >= Duration::from_millis(2990), "{took:?}");
        keep_alive.abort();
        until("the slave is not gone", || replicas(&broker).is_empty()).await;

        let follower = Broker::start(slave(&folder, port + 1, "")).await.unwrap();
        caught_up(&broker, end(&caller).await).await;
        for _ in 0..20 {
            let (sent, took) = timed(&caller, &[]).await;
            assert_eq!(sent.code, ResponseCode::SUCCESS);
            assert!(took < Duration::from_millis(2500), "{took:?}");
        }
        // At that moment the slave had it.
        let reached = end(&caller).await;
        assert_eq!(log(&folder.join("slave"), reached), log(&folder.join("master"), reached));
        follower.shutdown().await.unwrap();
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn asynchronous_master_and_one_that_was_told_to_wait_for_nobody_do_not_wait() {
    run(|_, folder| async move {
        for settings in ["", "brokerRole=SYNC_MASTER\ninSyncReplicas=1"] {
            let broker = Broker::start(master(folder.path(), settings)).await.unwrap();
            let caller = Caller::new(broker.local_addr());
            assert_eq!(timed(&caller, &[]).await.0.code, ResponseCode::SUCCESS);
            broker.shutdown().await.unwrap();
        }
    });
}

/// The later of two positions of one slave counts once.
#[test]
fn ho02_two_connections_of_one_address_are_one_slave_unless_both_report() {
    run(|_, folder| async move {
        let (folder, port) = (folder.path().to_owned(), free_port().await);
        let settings = format!(
            "listenPort={port}\nbrokerRole=SYNC_MASTER\ninSyncReplicas=3\ntotalReplicas=3\n\
                                slaveTimeout=1500\nhaSendHeartbeatInterval=5000\nhaHousekeepingInterval=20000"
        );
        let settings = settings.replace(' ', "");
        let config = config(&folder.join("master"), &settings);
        let broker = Broker::start(config).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        let host = Host::current();
        let mut peers = [Peer::connect(port + 1).await, Peer::connect(port + 1).await];
        caller.send(send_to("t", &[]), "first").await;
        let begin = end(&caller).await;
        for peer in &mut peers {
            peer.say_report(begin).await;
        }
        until("both are there", || replicas(&broker).iter().filter(|slave| slave.is_alive).count() == 2).await;
        let both = async {
            for peer in &mut peers {
                let (at, body) = peer.data().await;
                peer.say_report(at + body.len() as u64).await;
            }
        };
        let (sent, ()) = tokio::join!(caller.send(send_to("t", &[]), "second"), both);
        assert_eq!(sent.code, ResponseCode::SUCCESS, "two slaves have it");

        // The second one falls silent, as after a cut. Its last report is not of the last two seconds.
        host.sleep(Duration::from_millis(2100)).await;
        let [first, _silent] = &mut peers;
        let one = async {
            let (at, body) = first.data().await;
            first.say_report(at + body.len() as u64).await;
        };
        let (sent, ()) = tokio::join!(caller.send(send_to("t", &[]), "third"), one);
        assert_eq!(sent.code, ResponseCode::FLUSH_SLAVE_TIMEOUT, "one slave has it");
        broker.shutdown().await.unwrap();
    });
}

// ---- a master and whoever connects ----

#[test]
fn ho01_reports_that_cannot_be_are_refused_with_the_end_of_the_log() {
    run(|_, folder| async move {
        let port = free_port().await;
        let broker = Broker::start(master(folder.path(), &format!("listenPort={port}"))).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        send(&caller, 3, 10).await;
        let reached = end(&caller).await;
        let mut ahead = Peer::connect(port + 1).await;
        ahead.say_report(reached + 1).await;
        assert_eq!(ahead.frame().await, Some((reached, Vec::new())), "a heartbeat that says where the log ends");
        assert_eq!(ahead.frame().await, None);

        let mut back = Peer::connect(port + 1).await;
        back.say_report(reached).await;
        assert_eq!(back.frame().await, Some((reached, Vec::new())), "a heartbeat after a pause");
        back.say_report(reached - 1).await;
        assert!(back.closes().await);

        let mut garbage = Peer::connect(port + 1).await;
        garbage.say(b"GET / HTTP/1.1\r\n\r\n").await;
        assert!(garbage.closes().await);
        let mut negative = Peer::connect(port + 1).await;
        negative.say(&[0xFF; 8]).await;
        assert!(negative.closes().await);

        // Whoever says nothing is closed, too.
        let begun = Host::current().now();
        assert!(Peer::connect(port + 1).await.closes().await);
        assert!(Host::current().now().since(begun) >= Duration::from_millis(1900));
        assert!(replicas(&broker).is_empty());
        send(&caller, 1, 10).await;
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn ho08_slave_that_is_too_old_is_refused_with_the_start_of_the_log() {
    run(|host, folder| async move {
        let (folder, port) = (folder.path().to_owned(), free_port().await);
        let settings = format!("listenPort={port}\nfileReservedTime=0\ndeleteCommitLogFilesInterval=1");
        let broker = Broker::start(master(&folder, &settings)).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        let follower = Broker::start(slave(&folder, port + 1, "")).await.unwrap();
        send(&caller, 5, 10_000).await;
        caught_up(&broker, end(&caller).await).await;
        follower.shutdown().await.unwrap();
        send(&caller, 60, 50_000).await;
        let delete = remoting::Request::DeleteExpiredCommitLog(remoting::NoHeader);
        caller.ask(delete, "").await;
        let first = folder.join("master/commitlog/00000000000000000000");
        until("the first file is still there", || !first.exists()).await;
        let mut old = Peer::connect(port + 1).await;
        old.say_report(4096).await;
        let (start, body) = old.frame().await.unwrap();
        assert!(start >= FILE_BYTES && start % FILE_BYTES == 0 && body.is_empty());
        assert_eq!(old.frame().await, None);
        let follower = Broker::start(slave(&folder, port + 1, "")).await.unwrap();
        until(
            "the slave does not know",
            || matches!(state(&follower), SlaveState::TooOld { master_start } if master_start.0 >= FILE_BYTES),
        )
        .await;
        host.sleep(Duration::from_millis(300)).await;
        assert!(matches!(state(&follower), SlaveState::TooOld { .. }), "{:?}", state(&follower));
        follower.shutdown().await.unwrap();
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn hw09_flow_control_limits_bytes() {
    run(|host, folder| async move {
        let port = free_port().await;
        let limit = 100_000;
        let settings = format!("listenPort={port}\nhaFlowControlEnable=true\nmaxHaTransferByteInSecond={limit}");
        let broker = Broker::start(master(folder.path(), &settings)).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        send(&caller, 8, 50_000).await;
        let mut peer = Peer::connect(port + 1).await;
        let begun = host.now();
        peer.say_report(0).await;
        let mut got = 0;
        while got < 3 * limit {
            let (at, body) = peer.data().await;
            assert_eq!(at, got);
            got += body.len() as u64;
            peer.say_report(got).await;
        }
        let took = host.now().since(begun);
        assert!(took >= Duration::from_millis(2900), "{got} bytes in {took:?}");
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn slave_that_does_not_read_only_lags() {
    run(|host, folder| async move {
        let port = free_port().await;
        let broker = Broker::start(master(folder.path(), &format!("listenPort={port}"))).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        let mut lazy = Peer::connect(port + 1).await;
        lazy.say_report(0).await;
        let begun = host.now();
        send(&caller, 300, 50_000).await;
        assert!(host.now().since(begun) < TIMEOUT);
        assert!(lazy.closes().await, "it has reported nothing for too long");
        until("its place is free", || replicas(&broker).is_empty()).await;
        broker.shutdown().await.unwrap();
    });
}

// ---- a slave and whoever it connects to ----

/// Log bytes that a master would send: those of a broker that had some messages.
async fn some_log(folder: &Path, count: usize) -> Vec<u8> {
    let folder = folder.join("some");
    let broker = Broker::start(config(&folder, "")).await.unwrap();
    let caller = Caller::new(broker.local_addr());
    send(&caller, count, 1000).await;
    let reached = end(&caller).await;
    broker.shutdown().await.unwrap();
    log(&folder, reached)
}

async fn listen() -> (TcpListener, u16) {
    let listener = Host::current().bind(local(0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// A slave that has copied `bytes` from us, and whom we have left.
async fn primed(folder: &Path, listener: &TcpListener, port: u16, bytes: &[u8], more: &str) -> Broker {
    let follower = Broker::start(slave(folder, port, more)).await.unwrap();
    let mut us = Peer::accept(listener).await;
    assert_eq!(us.report().await, Some(0), "an empty slave says so at once");
    us.say_frame(0, bytes).await;
    while us.report().await.unwrap() < bytes.len() as u64 {}
    follower
}

#[test]
fn ho03_ho04_slave_reports_at_once_and_some_way_back_and_compares() {
    run(|host, folder| async move {
        let bytes = some_log(folder.path(), 20).await;
        let (listener, port) = listen().await;
        let follower = primed(folder.path(), &listener, port, &bytes[..bytes.len() - 100], "haRewindBytes=3000").await;
        let begun = host.now();
        let mut us = Peer::accept(&listener).await;
        let begin = us.report().await.unwrap() as usize;
        assert!(host.now().since(begun) < Duration::from_millis(1000), "the reference waits for 5 s");
        // A record about 3000 bytes before the last whole one ends.
        let record_bytes = bytes.len() / 20;
        assert!(begin.is_multiple_of(record_bytes) && begin >= bytes.len() - record_bytes - 3000, "{begin}");
        // Equal bytes bring it on, in any frames, and only then does it report more.
        us.say_frame(begin as u64, &bytes[begin..begin + 10]).await;
        us.say_frame(begin as u64 + 10, &bytes[begin + 10..begin + 1500]).await;
        assert_eq!(us.report().await, Some(begin as u64), "the same again after a pause");
        us.say_frame(begin as u64 + 1500, &bytes[begin + 1500..]).await;
        let mut last = begin as u64;
        while last < bytes.len() as u64 {
            let report = us.report().await.unwrap();
            assert!(report >= last);
            last = report;
        }
        assert_eq!(state(&follower), SlaveState::Following);
        follower.shutdown().await.unwrap();
        assert_eq!(log(&folder.path().join("slave"), bytes.len() as u64), bytes);
    });
}

#[test]
fn ho04_slave_finds_the_byte_at_which_both_logs_part() {
    run(|_, folder| async move {
        let bytes = some_log(folder.path(), 20).await;
        let (listener, port) = listen().await;
        let follower = primed(folder.path(), &listener, port, &bytes, "").await;
        let mut other = bytes.clone();
        let parted = bytes.len() - 700;
        other[parted] ^= 1;
        for _ in 0..2 {
            let mut us = Peer::accept(&listener).await;
            let begin = us.report().await.unwrap();
            assert!(begin > 0 && begin < parted as u64);
            us.say_frame(begin, &other[begin as usize..]).await;
            while let Some(report) = us.report().await {
                assert_eq!(report, begin, "nothing is reported of a log that is another one");
            }
            let diverged = SlaveState::Diverged { at: PhyOffset(parted as u64) };
            until("it has not noticed", || state(&follower) == diverged).await;
        }
        // The last record is not shown: the master has another one there.
        let reader = Caller::new(follower.local_addr());
        let last = reader.pull(pull_from("t", 18)).await;
        assert_eq!((last.messages.len(), last.header.unwrap().max_offset), (1, 19));
        let hidden = reader.pull(pull_from("t", 19)).await;
        assert_eq!(hidden.response.code, ResponseCode::PULL_NOT_FOUND);
        // With the right bytes all is well again.
        let mut us = Peer::accept(&listener).await;
        let begin = us.report().await.unwrap();
        us.say_frame(begin, &bytes[begin as usize..]).await;
        until("it follows", || state(&follower) == SlaveState::Following).await;
        assert_eq!(reader.pull(pull_from("t", 19)).await.messages.len(), 1, "it is shown again");
        follower.shutdown().await.unwrap();
        assert_eq!(log(&folder.path().join("slave"), bytes.len() as u64), bytes, "both logs are kept");
    });
}

#[test]
fn ho05_slave_that_is_ahead_keeps_what_it_has_and_says_so() {
    run(|_, folder| async move {
        let bytes = some_log(folder.path(), 20).await;
        let (listener, port) = listen().await;
        let follower = primed(folder.path(), &listener, port, &bytes, "haRewindBytes=5000").await;
        let short = bytes.len() / 20 * 18;
        // The reference has nothing to send, and only says so now and then.
        let mut us = Peer::accept(&listener).await;
        let begin = us.report().await.unwrap();
        us.say_frame(begin, &bytes[begin as usize..short]).await;
        us.say_frame(short as u64, &[]).await;
        assert_eq!(us.report().await, Some(begin), "one heartbeat may come before bytes");
        us.say_frame(short as u64, &[]).await;
        let ahead = SlaveState::Ahead { master_end: PhyOffset(short as u64) };
        until("it has not noticed", || state(&follower) == ahead).await;
        while let Some(report) = us.report().await {
            assert_eq!(report, begin);
        }
        // A master of our own tells its end.
        let mut us = Peer::accept(&listener).await;
        assert!(us.report().await.unwrap() > 1000);
        us.say_frame(1000, &[]).await;
        until("it has not noticed", || state(&follower) == SlaveState::Ahead { master_end: PhyOffset(1000) }).await;
        follower.shutdown().await.unwrap();
        assert_eq!(log(&folder.path().join("slave"), bytes.len() as u64), bytes);
    });
}

#[test]
fn ho05_slave_that_is_told_to_gives_up_what_its_master_does_not_have() {
    run(|_, folder| async move {
        let bytes = some_log(folder.path(), 20).await;
        let (listener, port) = listen().await;
        let more = "haRewindBytes=3000\nhaWhenAhead=truncate";
        let follower = primed(folder.path(), &listener, port, &bytes, more).await;
        let short = bytes.len() / 20 * 10;
        // All that is known is that the master ends before everything that would be compared: no reason to cut.
        let mut us = Peer::accept(&listener).await;
        assert!(us.report().await.unwrap() > short as u64);
        us.say_frame(short as u64, &[]).await;
        until("it has not noticed", || state(&follower) == SlaveState::Ahead { master_end: PhyOffset(short as u64) })
            .await;
        // So it looks further back.
        let mut us = Peer::accept(&listener).await;
        let begin = us.report().await.unwrap() as usize;
        assert!(begin > 0 && begin < short, "{begin}");
        us.say_frame(begin as u64, &bytes[begin..short]).await;
        us.say_frame(short as u64, &[]).await;
        us.say_frame(short as u64, &[]).await;
        let settings = Host::current().timeout(TIMEOUT, follower.restart_wanted()).await.expect("it wants to cut");
        assert_eq!(settings.store.cut_at, Some(PhyOffset(short as u64)));
        follower.shutdown().await.unwrap();

        // The master goes on in another way, which is found out in the middle of a record.
        let follower = Broker::start(settings).await.unwrap();
        let mut us = Peer::accept(&listener).await;
        let begin = us.report().await.unwrap() as usize;
        us.say_frame(begin as u64, &bytes[begin..]).await;
        while us.report().await.unwrap() < bytes.len() as u64 {}
        drop(us);
        let mut us = Peer::accept(&listener).await;
        let begin = us.report().await.unwrap() as usize;
        let mut other = bytes.clone();
        let parted = bytes.len() - 700;
        other[parted] ^= 1;
        us.say_frame(begin as u64, &other[begin..]).await;
        let settings = Host::current().timeout(TIMEOUT, follower.restart_wanted()).await.expect("it wants to cut");
        assert_eq!(settings.store.cut_at, Some(PhyOffset((bytes.len() / 20 * 19) as u64)));
        follower.shutdown().await.unwrap();
    });
}

#[test]
fn slave_leaves_a_master_that_is_silent_or_talks_nonsense() {
    run(|host, folder| async move {
        let bytes = some_log(folder.path(), 20).await;
        let (listener, port) = listen().await;
        let follower = primed(folder.path(), &listener, port, &bytes[..5000], "").await;
        let connect = async || {
            let mut us = Peer::accept(&listener).await;
            let begin = us.report().await.unwrap();
            us.say_frame(begin, &bytes[begin as usize..6000]).await;
            while us.report().await.unwrap() < 6000 {}
            us
        };
        // Bytes that do not go on where it is.
        let mut gap = connect().await;
        gap.say_frame(6001, b"x").await;
        assert!(gap.closes().await);
        let mut huge = connect().await;
        huge.say(&[0x11; 12]).await;
        assert!(huge.closes().await);
        let mut no_record = connect().await;
        no_record.say_frame(6000, &[0x5A; 3000]).await;
        assert!(no_record.closes().await);
        until("it says why", || matches!(state(&follower), SlaveState::Failed { .. })).await;
        let begun = host.now();
        assert!(connect().await.closes().await, "it has heard nothing for too long");
        assert!(host.now().since(begun) >= Duration::from_millis(1900));
        // None of that hurt.
        let mut us = connect().await;
        us.say_frame(6000, &bytes[6000..]).await;
        while us.report().await.unwrap() < bytes.len() as u64 {}
        follower.shutdown().await.unwrap();
        assert_eq!(log(&folder.path().join("slave"), bytes.len() as u64), bytes);
    });
}

/// A conversation of the reference's master and slave, with ours as the slave.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test harness says where the data is")]
fn conversation_of_the_reference_gives_its_log() {
    let Ok(golden) = std::env::var("STATICFIRE_GOLDEN") else {
        println!("skipped: STATICFIRE_GOLDEN is not set");
        return;
    };
    let golden = Path::new(&golden).join("apache-5.3.3/ha");
    let stream = std::fs::read_to_string(golden.join("stream.jsonl")).unwrap();
    let expected = std::fs::read(golden.join("master-commitlog-first-16k.bin")).unwrap();
    run(|_, folder| async move {
        let (listener, port) = listen().await;
        let follower = Broker::start(slave(folder.path(), port, "")).await.unwrap();
        let mut us = Peer::accept(&listener).await;
        let mut sent = 0;
        for line in stream.lines() {
            let chunk: serde_json::Value = serde_json::from_str(line).unwrap();
            let bytes = STANDARD.decode(chunk["bytes"].as_str().unwrap()).unwrap();
            if chunk["sender"] == "master" {
                us.say(&bytes).await;
                sent += bytes.len() as u64;
                continue;
            }
            // What their slave reported, ours does sooner or later.
            let wanted = bytes.chunks_exact(8).next_back().unwrap();
            let wanted = u64::from_be_bytes(wanted.try_into().unwrap());
            while us.report().await.unwrap() < wanted {}
        }
        assert!(sent > 15_000);
        until("it follows", || state(&follower) == SlaveState::Following).await;
        follower.shutdown().await.unwrap();
        assert_eq!(log(&folder.path().join("slave"), expected.len() as u64), expected);
    });
}
