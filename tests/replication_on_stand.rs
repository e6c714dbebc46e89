//! A master and its slave on simulated machines: killed, cut off, and without power, under many seeds.
#![cfg(feature = "sim")]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use broker::{Broker, BrokerConfig};
use bytes::Bytes;
use host::Host;
use message::OffsetMessageId;
use remoting::{
    Client, ClientConfig, Handler, Inbound, Peer, Reply, Request, Response, ResponseCode, SendMessageRequestHeader,
    SendMessageResponseHeader, settings::read_properties,
};
use sim::{
    disk::{Image, Survival},
    seed::Seeds,
    stand::{Ended, NodeId, NodeSpec, Observer, Place, Stand, StandConfig, StopSignal, run},
};

const SEEDS: std::ops::Range<u64> = 0..4;
const FILE_BYTES: u64 = 256 << 10;

const MASTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SLAVE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PRODUCER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);

/// What outlives the lives of the nodes.
#[derive(Default)]
struct Shared {
    /// Acknowledged messages: position and body.
    acked: Mutex<BTreeMap<u64, String>>,
    /// How often each code came.
    codes: Mutex<BTreeMap<i32, u32>>,
    /// Up to where the slave has said that it copied.
    copied: Mutex<u64>,
    /// Points that were passed.
    passed: Mutex<BTreeSet<&'static str>>,
    errors: Mutex<Vec<String>>,
}

impl Observer for Shared {
    fn point(&self, _: &Stand, _: &Place, name: &'static str, [value, _]: [i64; 2]) {
        if name == "ha.append" {
            *self.copied.lock().unwrap() = value as u64;
        }
        self.passed.lock().unwrap().insert(name);
    }

    fn panicked(&self, _: &Stand, place: &Place, task: &'static str, message: &str) {
        self.errors.lock().unwrap().push(format!("{} panicked in {task}: {message}", place.name));
    }

    fn exited(&self, _: &Stand, place: &Place, result: &Result<(), String>) {
        if let Err(error) = result {
            self.errors.lock().unwrap().push(format!("{}: {error}", place.name));
        }
    }

    fn broken(&self, _: &Stand, place: &Place, name: &'static str) {
        self.errors.lock().unwrap().push(format!("{}: {name} does not hold", place.name));
    }
}

struct Nobody;

impl Handler for Nobody {
    fn handle(&self, _: &Peer, _: Inbound) -> Reply {
        Response::success().into()
    }
}

/// The nodes, running.
struct Pair {
    master: NodeId,
    slave: NodeId,
}

fn broker_config(ip: Ipv4Addr, more: &str) -> BrokerConfig {
    let text = format!(
        "storePathRootDir=/store\nlistenPort=10911\nbindAddress={ip}\nmappedFileSizeCommitLog={FILE_BYTES}\n\
         mappedFileSizeConsumeQueue=20000\nmaxHashSlotNum=100\nmaxIndexNum=400\n{more}"
    );
    BrokerConfig::read(read_properties(&text, "test").unwrap()).unwrap().0
}

async fn serve(config: BrokerConfig, stop: StopSignal) -> Result<(), String> {
    let broker = Broker::start(config).await.map_err(|error| error.to_string())?;
    stop.requested().await;
    broker.shutdown().await.map_err(|error| error.to_string())
}

fn header() -> SendMessageRequestHeader {
    SendMessageRequestHeader {
        producer_group: "pg".to_owned(),
        topic: "orders".to_owned(),
        default_topic: "TBW102".to_owned(),
        default_topic_queue_nums: 4,
        queue_id: -1,
        sys_flag: 0,
        born_timestamp: 1,
        flag: 0,
        properties: None,
        reconsume_times: None,
        unit_mode: None,
        max_reconsume_times: None,
        batch: None,
        broker_name: None,
    }
}

/// Sends one message after the other, and keeps what was acknowledged with SUCCESS.
async fn produce(shared: Arc<Shared>, host: Host, stop: StopSignal, checks_copies: bool) -> Result<(), String> {
    let client = Client::new(ClientConfig::default(), Arc::new(Nobody) as Arc<dyn Handler>);
    let mut rng = host.rng("producer");
    for number in 0_u64.. {
        host::select! {
            () = stop.requested() => break,
            () = host.sleep(Duration::from_millis(rng.below(20))) => {}
        }
        let body = format!("message {number:08} {}", "x".repeat(rng.below(3000) as usize));
        let request = Request::SendMessageV2(header());
        let address = format!("{MASTER}:10911");
        let sent = client.invoke(&address, request, Bytes::from(body.clone()), Duration::from_secs(5)).await;
        let Ok(response) = sent else {
            host.sleep(Duration::from_millis(100)).await;
            continue;
        };
        *shared.codes.lock().unwrap().entry(response.code.0).or_default() += 1;
        if response.code != ResponseCode::SUCCESS {
            continue;
        }
        let header: SendMessageResponseHeader = response.decode().map_err(|error| error.to_string())?;
        let id = OffsetMessageId::parse(&header.msg_id).map_err(|error| error.to_string())?;
        let copied = *shared.copied.lock().unwrap();
        if checks_copies && copied <= id.phy.0 {
            return Err(format!("{} was acknowledged, the slave had {copied}", id.phy.0));
        }
        shared.acked.lock().unwrap().insert(id.phy.0, body);
    }
    client.shutdown().await;
    Ok(())
}

/// How a run differs from others.
#[derive(Debug, Clone, Copy)]
struct Variant {
    seed: u64,
    /// A planted bug.
    mutant: Option<&'static str>,
}

impl Variant {
    fn sound(seed: u64) -> Variant {
        Variant { seed, mutant: None }
    }
}

/// Runs a pair and a producer with `settings` for both brokers; `faults` happen to them.
fn simulate<F: Future<Output = ()> + 'static>(
    Variant { seed, mutant }: Variant,
    settings: [&str; 2],
    checks_copies: bool,
    faults: impl FnOnce(Stand, Pair, Arc<Shared>) -> F + Send + 'static,
) -> Arc<Shared> {
    let shared = Arc::new(Shared::default());
    let observer: Arc<dyn Observer> = Arc::<Shared>::clone(&shared);
    let (of_producer, of_faults) = (Arc::clone(&shared), Arc::clone(&shared));
    let master_config = broker_config(MASTER, settings[0]);
    let slave_settings = format!("brokerRole=SLAVE\nbrokerId=1\nhaMasterAddress={MASTER}:10912\n{}", settings[1]);
    let slave_config = broker_config(SLAVE, &slave_settings);
    let mut config = StandConfig::new(Seeds::from_root(seed));
    config.mutants.extend(mutant.map(str::to_owned));
    let run = run(config, observer, move |stand| async move {
        let add = |name: &str, ip| stand.add_node(NodeSpec { disk_bytes: 256 << 20, ..NodeSpec::new(name, ip) });
        let pair = Pair { master: add("broker-a/0", MASTER).unwrap(), slave: add("broker-a/1", SLAVE).unwrap() };
        let producer = add("producer/0", PRODUCER).unwrap();
        stand.start(pair.master, move |_, stop| serve(master_config.clone(), stop));
        stand.start(pair.slave, move |_, stop| serve(slave_config.clone(), stop));
        stand.start(producer, move |host, stop| produce(Arc::clone(&of_producer), host, stop, checks_copies));
        stand.sleep(Duration::from_secs(2)).await;
        faults(stand.clone(), pair, of_faults).await;
        stand.stop(producer, Duration::from_secs(20)).await;
    });
    assert_eq!(run.ended, Ended::Finished(()), "seed {seed}");
    shared
}

fn assert_no_errors(seed: u64, shared: &Shared) {
    let errors = shared.errors.lock().unwrap();
    assert!(errors.is_empty(), "seed {seed}: {errors:?}");
}

/// The bytes of a log by position, from the files of a disk.
fn log(image: &Image) -> BTreeMap<u64, Vec<u8>> {
    let folder = PathBuf::from("/store/commitlog");
    let files = image.files().filter(|(path, _)| path.parent() == Some(&*folder));
    files.map(|(path, bytes)| (path.file_name().unwrap().to_str().unwrap().parse().unwrap(), bytes.to_vec())).collect()
}

/// Messages that are not where they were acknowledged.
fn missing(log: &BTreeMap<u64, Vec<u8>>, acked: &BTreeMap<u64, String>) -> Vec<u64> {
    let is_there = |phy: u64, body: &str| {
        let file = log.get(&(phy / FILE_BYTES * FILE_BYTES));
        let record = file.and_then(|file| file.get((phy % FILE_BYTES) as usize..));
        record.is_some_and(|record| record.windows(body.len()).take(500).any(|bytes| bytes == body.as_bytes()))
    };
    acked.iter().filter(|(phy, body)| !is_there(**phy, body)).map(|(phy, _)| *phy).collect()
}

/// Stops both and compares what they have.
async fn end_equal(seed: u64, stand: &Stand, pair: &Pair, producer: NodeId) -> [BTreeMap<u64, Vec<u8>>; 2] {
    stand.stop(producer, Duration::from_secs(20)).await;
    stand.sleep(Duration::from_secs(15)).await;
    stand.stop(pair.slave, Duration::from_secs(20)).await;
    stand.stop(pair.master, Duration::from_secs(20)).await;
    let logs = [pair.master, pair.slave].map(|node| log(&stand.disk(node).image()));
    assert!(!logs[1].is_empty(), "seed {seed}: the slave has no log");
    for (start, bytes) in &logs[1] {
        assert!(logs[0].get(start) == Some(bytes), "seed {seed}: the logs differ in the file at {start}");
    }
    assert_eq!(logs[0].keys().next_back(), logs[1].keys().next_back(), "seed {seed}");
    logs
}

/// Row 1, 6, 9, 12, 13, 15 of `spec/replication.md` 7, SA: nothing acknowledged is missing on either, and at the
/// acknowledgement the slave had it.
#[test]
fn kills_and_cuts_lose_nothing_that_a_synchronous_master_acknowledged() {
    SEEDS.map(Variant::sound).for_each(kills_and_cuts);
}

fn kills_and_cuts(variant: Variant) {
    let seed = variant.seed;
    let acked = Arc::new(Mutex::new([BTreeMap::new(), BTreeMap::new()]));
    let seen = Arc::clone(&acked);
    let shared = simulate(variant, ["brokerRole=SYNC_MASTER", ""], true, move |stand, pair, _| async move {
        for round in 0..8 {
            match (seed + round) % 4 {
                0 => {
                    stand.kill(pair.master);
                    stand.sleep(Duration::from_millis(500 + 300 * round)).await;
                    stand.restart(pair.master);
                }
                1 => {
                    stand.kill(pair.slave);
                    stand.sleep(Duration::from_millis(200 + 900 * round)).await;
                    stand.restart(pair.slave);
                }
                2 => {
                    let cut = stand.cut(pair.master, pair.slave);
                    stand.sleep(Duration::from_secs(1 + 4 * round)).await;
                    cut.into_iter().for_each(|cut| {
                        stand.lift(cut);
                    });
                }
                _ => {
                    stand.pause(pair.slave);
                    stand.sleep(Duration::from_secs(2 + 3 * round)).await;
                    stand.resume(pair.slave);
                }
            }
            stand.sleep(Duration::from_secs(7)).await;
        }
        let producer = stand.find("producer/0").unwrap();
        *seen.lock().unwrap() = end_equal(seed, &stand, &pair, producer).await;
    });
    assert_no_errors(seed, &shared);
    let messages = shared.acked.lock().unwrap();
    assert!(messages.len() > 500, "seed {seed}: {} of {:?}", messages.len(), shared.codes.lock().unwrap());
    for log in &*acked.lock().unwrap() {
        assert_eq!(missing(log, &messages), [0_u64; 0], "seed {seed}");
    }
}

/// Row 4 with HO06, SS: what was acknowledged is on the disk of the slave, whenever the power goes.
#[test]
fn ho06_what_a_slave_that_flushes_has_reported_is_on_its_disk() {
    SEEDS.map(Variant::sound).for_each(power_losses_of_the_slave);
}

fn power_losses_of_the_slave(variant: Variant) {
    let seed = variant.seed;
    let lost = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&lost);
    let flush = ["brokerRole=SYNC_MASTER\nflushDiskType=SYNC_FLUSH", "flushDiskType=SYNC_FLUSH"];
    let shared = simulate(variant, flush, true, move |stand, pair, shared| async move {
        // Every message spends some time in the cache of the slave.
        stand.disk(pair.slave).slow(50, stand.now().as_nanos() as u64);
        for round in 0..4 {
            stand.sleep(Duration::from_millis(1500 + 70 * (seed + round))).await;
            let acked = shared.acked.lock().unwrap().clone();
            stand.power_loss(&[pair.slave], Some(Survival::AllOld), round);
            let missing = missing(&log(&stand.disk(pair.slave).image()), &acked);
            seen.lock().unwrap().extend(missing.into_iter().map(|phy| (round, phy)));
            stand.sleep(Duration::from_millis(500)).await;
            stand.restart(pair.slave);
            stand.sleep(Duration::from_secs(8)).await;
        }
        let producer = stand.find("producer/0").unwrap();
        end_equal(seed, &stand, &pair, producer).await;
    });
    assert_no_errors(seed, &shared);
    let messages = shared.acked.lock().unwrap();
    assert!(messages.len() > 100, "seed {seed}: {} of {:?}", messages.len(), shared.codes.lock().unwrap());
    assert_eq!(*lost.lock().unwrap(), [], "seed {seed}: acknowledged, and not on the disk of the slave");
}

/// HW01: the slave of a master that lost its end is ahead. It must not be believed to have what comes then, and must keep
/// what it has.
#[test]
fn ho05_slave_of_a_master_that_lost_its_end_copies_nothing_into_the_middle() {
    SEEDS.map(Variant::sound).for_each(power_loss_of_the_master);
}

fn power_loss_of_the_master(variant: Variant) {
    let seed = variant.seed;
    let logs = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&logs);
    let lazy = "brokerRole=SYNC_MASTER\nflushIntervalCommitLog=60000\nflushCommitLogThoroughInterval=60000";
    let settings = [lazy, if seed.is_multiple_of(2) { "" } else { "haRewindBytes=1" }];
    let shared = simulate(variant, settings, false, move |stand, pair, _| async move {
        stand.sleep(Duration::from_secs(15)).await;
        // Nothing of the last seconds was on its disk.
        stand.power_loss(&[pair.master], Some(Survival::AllOld), 1);
        stand.sleep(Duration::from_millis(300)).await;
        seen.lock().unwrap().push(log(&stand.disk(pair.slave).image()));
        stand.restart(pair.master);
        stand.sleep(Duration::from_secs(40)).await;
        let images = [pair.master, pair.slave].map(|node| log(&stand.disk(node).image()));
        seen.lock().unwrap().extend(images);
    });
    assert_no_errors(seed, &shared);
    let logs = logs.lock().unwrap();
    let [before, master, after] = &logs[..] else { panic!("three images") };
    let passed = shared.passed.lock().unwrap();
    let noticed = passed.contains("ha.ahead") || passed.contains("ha.diverged");
    let is_prefix = after.iter().all(|(start, bytes)| master.get(start) == Some(bytes));
    assert!(noticed || is_prefix, "seed {seed}: both logs differ and nobody knows");
    assert!(noticed, "seed {seed}: the fault did nothing");
    // What it had it has, to the byte, but for half a record at the end, and nothing else.
    for (start, after) in after {
        let end = after.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let same = before.get(start).is_some_and(|before| before[..end] == after[..end]);
        assert!(end == 0 || same, "seed {seed}: the slave has changed in the file at {start}");
    }
    let messages = shared.acked.lock().unwrap();
    assert_eq!(missing(after, &messages), [0_u64; 0], "seed {seed}: acknowledged, and not on the slave");
    let codes = shared.codes.lock().unwrap();
    assert!(codes.contains_key(&ResponseCode::SLAVE_NOT_AVAILABLE.0), "seed {seed}: {codes:?}");
}

/// The planted bugs of replication, each with the run that must catch it.
#[cfg(feature = "mutants")]
#[test]
fn planted_bugs_are_caught() {
    type Run = fn(Variant);
    let bugs: [(&str, Run); 3] = [
        ("ack-before-copied", kills_and_cuts),
        ("reported-before-copied", power_losses_of_the_slave),
        ("report-beyond-the-end-counts", power_loss_of_the_master),
    ];
    for (mutant, run) in bugs {
        let passes = |seed: u64| std::panic::catch_unwind(|| run(Variant { seed, mutant: Some(mutant) })).is_ok();
        assert!(!SEEDS.clone().all(passes), "nothing notices {mutant}");
    }
}
