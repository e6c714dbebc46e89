//! The store alone on a simulated disk: killed, without power, and without space, under many seeds.
#![cfg(feature = "sim")]

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    net::Ipv4Addr,
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use host::{Host, machine::BoxFuture};
use message::{Draft, PhyOffset, QueueOffset, StoredMessage, SysFlag};
use sim::{
    disk::{DiskError, DiskFault, Hits, Survival},
    run::StoreFiles,
    seed::Seeds,
    stand::{Ended, NodeId, NodeSpec, Observer, Place, Stand, StandConfig, StopSignal, run},
};
use store::{
    FlushDiskType, Flushed, GetRequest, KeyQuery, PutError, Store, StoreConfig, TimeBoundary, WriteBlock,
    audit::{AuditOptions, audit},
};

const SEEDS: std::ops::Range<u64> = 0..4;
const QUEUES: u32 = 3;

/// What outlives the lives of the node.
#[derive(Default)]
struct Shared {
    /// Acknowledged messages: position, queue, offset, number.
    acked: Mutex<Vec<(PhyOffset, u32, QueueOffset, u64)>>,
    /// When each of them was acknowledged.
    acked_ms: Mutex<BTreeMap<u64, i64>>,
    /// When the node was last seen alive, and how far its readers saw then.
    alive: Mutex<(i64, PhyOffset)>,
    /// Acknowledged messages that a kill took.
    taken: Mutex<u32>,
    /// Why a life ended before its time.
    errors: Mutex<Vec<String>>,
    number: Mutex<u64>,
    /// Log files that were let go from memory.
    unlocked: Mutex<Vec<i64>>,
    /// Locks of memory that were refused.
    refused_locks: Mutex<u32>,
}

impl Observer for Shared {
    fn point(&self, _: &Stand, _: &Place, name: &'static str, [value, _]: [i64; 2]) {
        if name == "store.file-unlocked" {
            self.unlocked.lock().unwrap().push(value);
        }
    }

    fn disk_failed(&self, _: &Stand, _: &Place, error: DiskError, _: (&Path, Option<u64>)) {
        *self.refused_locks.lock().unwrap() += u32::from(error == DiskError::Lock);
    }

    fn panicked(&self, _: &Stand, place: &Place, task: &'static str, message: &str) {
        self.errors.lock().unwrap().push(format!("life {} panicked in {task}: {message}", place.incarnation));
    }

    fn exited(&self, _: &Stand, place: &Place, result: &Result<(), String>) {
        if let Err(error) = result {
            self.errors.lock().unwrap().push(format!("life {}: {error}", place.incarnation));
        }
    }
}

impl Shared {
    fn next_number(&self) -> u64 {
        let mut number = self.number.lock().unwrap();
        *number += 1;
        *number
    }
}

fn config(flush: FlushDiskType) -> StoreConfig {
    StoreConfig {
        commit_log_file_bytes: 64 << 10,
        consume_queue_file_bytes: 4000,
        index_slots: 50,
        index_entries: 200,
        flush_disk_type: flush,
        clean_interval: Duration::from_secs(1),
        queue_flush_thorough_interval: Duration::from_secs(3),
        ..StoreConfig::new("/store")
    }
}

/// Messages go into memory first.
fn with_buffers() -> StoreConfig {
    StoreConfig { pool_enabled: true, pool_buffers: 3, ..config(FlushDiskType::Async) }
}

fn draft<'a>(queue_id: u32, body: &'a [u8], properties: &'a str) -> Draft<'a> {
    Draft {
        topic: "orders",
        queue_id,
        flag: 0,
        sys_flag: SysFlag(0),
        born_ms: 1,
        born_host: "10.0.0.9:50000".parse().unwrap(),
        store_host: "10.0.0.1:10911".parse().unwrap(),
        reconsume_times: 0,
        prepared_phy: PhyOffset(0),
        body,
        properties,
    }
}

async fn put(store: &Store, shared: &Shared, body_bytes: usize) -> Result<(), PutError> {
    let number = shared.next_number();
    let queue_id = number as u32 % QUEUES;
    let body = format!("{number:08} {}", "x".repeat(body_bytes));
    let properties = format!("TAGS\u{1}paid\u{2}UNIQ_KEY\u{1}{number}\u{2}");
    let draft = draft(queue_id, body.as_bytes(), &properties);
    let put = store.put_when_ready(&draft).await?;
    if store.durability(put.end()).await == Flushed::Done {
        shared.acked_ms.lock().unwrap().insert(number, Host::current().wall_ms());
        shared.acked.lock().unwrap().push((put.phy, queue_id, put.queue_offset, number));
    }
    Ok(())
}

fn read(store: &Store, queue_id: u32, offset: QueueOffset) -> Vec<StoredMessage> {
    let result =
        store.get(&GetRequest { topic: "orders", queue_id, offset, max_count: 32, max_bytes: 1 << 20, filter: None });
    result.records.into_iter().flat_map(|records| StoredMessage::decode_all(records).unwrap()).collect()
}

/// Queues are dense, and every acknowledged message that was not deleted stands where it was answered and is found by its
/// key.
fn check(store: &Store, shared: &Shared) -> Result<(), String> {
    for queue_id in 0..QUEUES {
        let mut next = store.min_offset("orders", queue_id);
        let max = store.max_offset("orders", queue_id);
        while next < max {
            let messages = read(store, queue_id, next);
            if next == store.min_offset("orders", queue_id) {
                // Files may just be going, and the minimum follows a moment later.
                next = messages.first().map_or(next, |message| message.queue_offset);
            }
            for message in &messages {
                if message.queue_offset != next {
                    return Err(format!("queue {queue_id} has {:?} at {next:?}", message.queue_offset));
                }
                next.0 += 1;
            }
            if messages.is_empty() {
                return Err(format!("queue {queue_id} has nothing at {next:?} of {max:?}"));
            }
        }
    }
    for &(phy, queue_id, offset, number) in &*shared.acked.lock().unwrap() {
        if phy < store.min_phy() {
            continue;
        }
        let found = read(store, queue_id, offset).into_iter().next();
        let right = found.as_ref().is_some_and(|message| {
            message.phy == phy && message.message.body.starts_with(format!("{number:08} ").as_bytes())
        });
        if !right {
            return Err(format!("message {number} is not at {phy:?}, queue {queue_id} {offset:?}: {found:?}"));
        }
        let key = number.to_string();
        let query = KeyQuery { topic: "orders", key: &key, max_count: 8, begin_ms: 0, end_ms: i64::MAX };
        let by_key: Vec<StoredMessage> = store
            .query(&query)
            .records
            .into_iter()
            .flat_map(|record| StoredMessage::decode_all(record).unwrap())
            .collect();
        if by_key.iter().map(|message| message.phy).ne([phy]) {
            return Err(format!("message {number} is found by its key at {by_key:?}, not {phy:?}"));
        }
    }
    Ok(())
}

async fn settle(host: &Host, store: &Store) {
    while store.dispatch_behind_bytes() > 0 {
        host.sleep(Duration::from_millis(10)).await;
    }
}

/// One life: open, compare with what was acknowledged, write until asked to stop, close.
fn life(
    shared: &Arc<Shared>,
    config: StoreConfig,
) -> impl Fn(Host, StopSignal) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync + use<> {
    let shared = Arc::clone(shared);
    move |host, stop| {
        let (shared, config) = (Arc::clone(&shared), config.clone());
        Box::pin(async move {
            let is_sync = config.flush_disk_type == FlushDiskType::Sync;
            let store = Store::open(config).await.map_err(|error| error.to_string())?;
            if is_sync {
                check(&store, &shared)?;
            }
            let mut rng = host.rng("life");
            loop {
                host::select! {
                    () = stop.requested() => break,
                    result = put(&store, &shared, rng.below(900) as usize) => {
                        // Refused: try again later, like a producer.
                        if result.is_err() {
                            host.sleep(Duration::from_millis(200)).await;
                        }
                    }
                }
                if rng.below(2) == 0 {
                    host.sleep(Duration::from_millis(rng.below(12))).await;
                }
            }
            settle(&host, &store).await;
            store.shutdown().await.map_err(|error| error.to_string())
        })
    }
}

/// Runs a stand with one node, and fails if any life went wrong.
fn on_stand<F: Future<Output = ()> + 'static>(
    seed: u64,
    shared: &Arc<Shared>,
    disk_bytes: u64,
    supervisor: impl FnOnce(Stand, NodeId) -> F + Send + 'static,
) {
    simulate(StandConfig::new(Seeds::from_root(seed)), shared, disk_bytes, supervisor);
    let errors = shared.errors.lock().unwrap();
    assert!(errors.is_empty(), "seed {seed}: {errors:?}");
}

fn simulate<F: Future<Output = ()> + 'static>(
    config: StandConfig,
    shared: &Arc<Shared>,
    disk_bytes: u64,
    supervisor: impl FnOnce(Stand, NodeId) -> F + Send + 'static,
) {
    let observer: Arc<dyn Observer> = Arc::<Shared>::clone(shared);
    let run = run(config, observer, move |stand| async move {
        let spec = NodeSpec { disk_bytes, ..NodeSpec::new("broker-a/0", Ipv4Addr::new(10, 0, 0, 1)) };
        let node = stand.add_node(spec).unwrap();
        supervisor(stand, node).await;
    });
    assert_eq!(run.ended, Ended::Finished(()));
}

#[test]
fn under_sync_flush_nothing_acknowledged_is_lost() {
    for seed in SEEDS {
        let shared = Arc::new(Shared::default());
        let program = life(&shared, config(FlushDiskType::Sync));
        on_stand(seed, &shared, 64 << 20, move |stand, node| async move {
            stand.start(node, program);
            for round in 0..8 {
                stand.sleep(Duration::from_millis(300 + 700 * ((seed + round) % 7))).await;
                match (seed + round) % 4 {
                    0 => stand.kill(node),
                    1 => drop(stand.stop(node, Duration::from_secs(10)).await),
                    _ => drop(stand.power_loss(&[node], None, round)),
                }
                stand.sleep(Duration::from_millis(50)).await;
                stand.restart(node);
            }
            stand.sleep(Duration::from_secs(2)).await;
            stand.stop(node, Duration::from_secs(10)).await;
        });
        assert!(shared.acked.lock().unwrap().len() > 300, "seed {seed}: {}", shared.acked.lock().unwrap().len());
    }
}

#[test]
fn power_lost_during_recovery_changes_nothing() {
    for seed in SEEDS {
        let shared = Arc::new(Shared::default());
        let program = life(&shared, config(FlushDiskType::Sync));
        on_stand(seed, &shared, 64 << 20, move |stand, node| async move {
            stand.start(node, program);
            stand.sleep(Duration::from_secs(1)).await;
            for round in 0..15 {
                stand.power_loss(&[node], None, round);
                stand.restart(node);
                stand.sleep(Duration::from_millis(1 + 3 * ((seed + round * 5) % 13))).await;
            }
            stand.sleep(Duration::from_secs(2)).await;
            stand.stop(node, Duration::from_secs(10)).await;
        });
    }
}

#[test]
fn w14_a_full_disk_refuses_writes_and_takes_them_again() {
    fill_the_disk(&config(FlushDiskType::Sync));
}

/// What was acknowledged is in the log, though the disk was full when it was written there.
#[test]
fn w25_buffers_are_written_to_a_full_disk_as_well() {
    fill_the_disk(&with_buffers());
}

fn fill_the_disk(config: &StoreConfig) {
    for seed in SEEDS {
        let shared = Arc::new(Shared::default());
        let told = Arc::clone(&shared);
        let config = config.clone();
        let program = move |host: Host, stop: StopSignal| {
            let (shared, config) = (Arc::clone(&told), config.clone());
            async move {
                let store = Store::open(config).await.map_err(|error| error.to_string())?;
                let mut refused = 0;
                let mut taken_after_that = 0;
                loop {
                    host::select! {
                        () = stop.requested() => break,
                        () = host.sleep(Duration::from_millis(10)) => {}
                    }
                    match put(&store, &shared, 3000).await {
                        Ok(()) => taken_after_that += u32::from(refused > 0),
                        Err(PutError::Blocked(WriteBlock::DiskFull { .. } | WriteBlock::QueuesFailing)) => refused += 1,
                        Err(PutError::CreateFile) => refused += 1,
                        Err(error) => return Err(error.to_string()),
                    }
                }
                settle(&host, &store).await;
                store.shutdown().await.map_err(|error| error.to_string())?;
                check(&store, &shared)?;
                if refused == 0 || taken_after_that == 0 {
                    return Err(format!("{refused} refused, {taken_after_that} taken after that"));
                }
                Ok(())
            }
        };
        on_stand(seed, &shared, 8 << 20, move |stand, node| async move {
            stand.start(node, program);
            for percent in [20, 95, 40, 100, 30] {
                stand.disk(node).fill_percent(percent);
                stand.sleep(Duration::from_secs(70)).await;
            }
            stand.stop(node, Duration::from_secs(10)).await;
        });
    }
}

#[test]
fn under_async_flush_a_loss_of_power_takes_a_tail_and_no_more() {
    for seed in SEEDS {
        let shared = Arc::new(Shared::default());
        let program = life(&shared, config(FlushDiskType::Async));
        on_stand(seed, &shared, 64 << 20, move |stand, node| async move {
            stand.start(node, program);
            for round in 0..4 {
                stand.sleep(Duration::from_millis(1500)).await;
                stand.power_loss(&[node], None, round);
                stand.restart(node);
            }
            stand.sleep(Duration::from_secs(1)).await;
            stand.stop(node, Duration::from_secs(10)).await;
        });
    }
}

#[test]
fn w13_what_recovery_shows_after_a_failed_flush_stays() {
    let shared = Arc::new(Shared::default());
    let told = Arc::clone(&shared);
    let program = move |host: Host, stop: StopSignal| {
        let shared = Arc::clone(&told);
        async move {
            let store = Store::open(config(FlushDiskType::Sync)).await.map_err(|error| error.to_string())?;
            match host.incarnation() {
                1 => {
                    put(&store, &shared, 20_000).await.map_err(|error| error.to_string())?;
                    host.sleep(Duration::from_secs(2)).await;
                    // Its sync fails; it is longer than a page, so nothing writes its pages again.
                    put(&store, &shared, 20_000).await.map_err(|error| error.to_string())?;
                    assert_eq!(shared.acked.lock().unwrap().len(), 1, "the second one is not acknowledged");
                }
                2 => {
                    let shown: Vec<StoredMessage> =
                        (0..QUEUES).flat_map(|queue| read(&store, queue, QueueOffset(0))).collect();
                    assert_eq!(shown.len(), 2, "the page cache has both");
                    let number = |message: &StoredMessage| {
                        String::from_utf8_lossy(&message.message.body[..8]).parse().expect("bodies begin with it")
                    };
                    *shared.acked.lock().unwrap() = shown
                        .iter()
                        .map(|message| (message.phy, message.queue_id, message.queue_offset, number(message)))
                        .collect();
                }
                _ => check(&store, &shared)?,
            }
            stop.requested().await;
            store.shutdown().await.map_err(|error| error.to_string())
        }
    };
    on_stand(7, &shared, 64 << 20, move |stand, node| async move {
        stand.start(node, program);
        stand.sleep(Duration::from_secs(1)).await;
        let failing = DiskFault { path: "/store/commitlog/*".into(), error: DiskError::Flush, hits: Hits::Nth(1) };
        stand.disk(node).add_fault(1, failing);
        stand.sleep(Duration::from_secs(3)).await;
        stand.kill(node);
        stand.restart(node);
        stand.sleep(Duration::from_secs(2)).await;
        stand.power_loss(&[node], Some(Survival::AllOld), 1);
        stand.restart(node);
        stand.sleep(Duration::from_secs(2)).await;
        stand.stop(node, Duration::from_secs(10)).await;
    });
    assert_eq!(shared.acked.lock().unwrap().len(), 2);
}

/// Entries that cannot be written for some seconds are written then, each at its own offset.
#[test]
fn w03_a_queue_that_could_not_be_written_lacks_no_entry() {
    for seed in SEEDS {
        let shared = Arc::new(Shared::default());
        let program = life(&shared, config(FlushDiskType::Sync));
        on_stand(seed, &shared, 64 << 20, move |stand, node| async move {
            stand.start(node, program);
            for (key, path) in ["/store/consumequeue/*", "/store/index/*"].into_iter().enumerate() {
                stand.sleep(Duration::from_secs(1)).await;
                let failing = DiskFault { path: path.into(), error: DiskError::Write, hits: Hits::Chance(1_000_000) };
                stand.disk(node).add_fault(key as u64, failing);
                stand.sleep(Duration::from_secs(3)).await;
                stand.disk(node).remove_fault(key as u64);
            }
            stand.sleep(Duration::from_secs(2)).await;
            // The next life compares queues and index with what was acknowledged.
            stand.stop(node, Duration::from_secs(10)).await;
            stand.restart(node);
            stand.sleep(Duration::from_secs(1)).await;
            stand.stop(node, Duration::from_secs(10)).await;
        });
        assert!(shared.acked.lock().unwrap().len() > 100, "seed {seed}: {}", shared.acked.lock().unwrap().len());
    }
}

/// The checkpoint only tells the next start where to begin.
#[test]
fn a_checkpoint_that_cannot_be_written_stops_no_message() {
    for seed in SEEDS {
        for error in [DiskError::Write, DiskError::Flush] {
            let shared = Arc::new(Shared::default());
            let program = life(&shared, config(FlushDiskType::Sync));
            let told = Arc::clone(&shared);
            on_stand(seed, &shared, 64 << 20, move |stand, node| async move {
                let acked = || told.acked.lock().unwrap().len();
                stand.start(node, program);
                stand.sleep(Duration::from_secs(1)).await;
                let failing = DiskFault { path: "/store/checkpoint".into(), error, hits: Hits::Chance(1_000_000) };
                stand.disk(node).add_fault(1, failing);
                stand.sleep(Duration::from_secs(4)).await;
                let before = acked();
                stand.sleep(Duration::from_secs(1)).await;
                assert!(acked() > before, "seed {seed}, {error:?}: nothing is acknowledged any more");
                stand.disk(node).remove_fault(1);
                // Each next life compares with what was acknowledged.
                for survival in [Survival::AllOld, Survival::AllNew] {
                    stand.power_loss(&[node], Some(survival), seed);
                    stand.restart(node);
                    stand.sleep(Duration::from_secs(3)).await;
                }
                stand.stop(node, Duration::from_secs(10)).await;
            });
        }
    }
}

/// What a life after a kill could read is there after a loss of power, though nobody had waited for the disk.
#[test]
fn w12_what_recovery_shows_is_on_disk() {
    let shared = Arc::new(Shared::default());
    let told = Arc::clone(&shared);
    let program = move |host: Host, stop: StopSignal| {
        let shared = Arc::clone(&told);
        async move {
            let never = Duration::from_secs(3600);
            let lazy = StoreConfig { flush_interval: never, ..config(FlushDiskType::Async) };
            let store = Store::open(lazy).await.map_err(|error| error.to_string())?;
            if host.incarnation() == 1 {
                for _ in 0..50 {
                    put(&store, &shared, 700).await.map_err(|error| error.to_string())?;
                }
                assert_eq!(store.flushed_phy().0, 0);
            } else {
                check(&store, &shared)?;
            }
            stop.requested().await;
            store.shutdown().await.map_err(|error| error.to_string())
        }
    };
    on_stand(7, &shared, 64 << 20, move |stand, node| async move {
        stand.start(node, program);
        stand.sleep(Duration::from_secs(1)).await;
        stand.kill(node);
        stand.restart(node);
        stand.sleep(Duration::from_secs(1)).await;
        stand.power_loss(&[node], Some(Survival::AllOld), 1);
        stand.restart(node);
        stand.sleep(Duration::from_secs(1)).await;
        stand.stop(node, Duration::from_secs(10)).await;
    });
    assert_eq!(shared.acked.lock().unwrap().len(), 50);
}

#[test]
fn w24_recovery_does_not_ask_a_clock_that_was_put_back() {
    for seed in SEEDS {
        let shared = Arc::new(Shared::default());
        let program = life(&shared, config(FlushDiskType::Sync));
        on_stand(seed, &shared, 64 << 20, move |stand, node| async move {
            stand.start(node, program);
            for round in 0..6 {
                stand.sleep(Duration::from_millis(1200)).await;
                stand.step_wall(node, if round % 2 == 0 { -3_600_000 } else { 1_800_000 });
                stand.sleep(Duration::from_millis(400)).await;
                if round % 3 == 0 {
                    stand.kill(node)
                } else {
                    drop(stand.power_loss(&[node], None, round))
                }
                stand.restart(node);
            }
            stand.sleep(Duration::from_secs(1)).await;
            stand.stop(node, Duration::from_secs(10)).await;
        });
        assert!(shared.acked.lock().unwrap().len() > 100, "seed {seed}: {}", shared.acked.lock().unwrap().len());
    }
}

/// Minutes by which the clock is moved after each round of messages.
const STEPS: [i64; 6] = [-60, 90, -30, -5, -20, 60];
const MINUTE_MS: i64 = 60_000;

/// A message of the rounds: when and where it was stored. Its queue offset is its number.
#[derive(Clone, Copy)]
struct Timed {
    store_ms: i64,
    phy: PhyOffset,
}

/// Compares searches by time with what was stored when.
fn check_times(store: &Store, puts: &[Timed]) -> Result<(), String> {
    let first = puts.iter().position(|put| put.phy >= store.min_phy()).unwrap_or(puts.len());
    let min = store.min_offset("orders", 0).0;
    if (min, store.max_offset("orders", 0).0) != (first as u64, puts.len() as u64) {
        return Err(format!("the queue begins at {min}, its first message is {first}"));
    }
    let left = &puts[first..];
    let mut times: Vec<i64> = puts.iter().step_by(7).map(|put| put.store_ms).collect();
    times.extend([1, i64::MAX - 1]);
    for &begin_ms in &times {
        for end_ms in
            times.iter().flat_map(|&time| [time - 1, time, time.saturating_add(1500)]).filter(|end| begin_ms <= *end)
        {
            let found = store.query(&KeyQuery { topic: "orders", key: "all", max_count: 1000, begin_ms, end_ms });
            let found = found.records.into_iter().flat_map(|record| StoredMessage::decode_all(record).unwrap());
            let is_wanted = |put: &&Timed| (begin_ms..=end_ms).contains(&put.store_ms);
            let wanted: Vec<PhyOffset> = left.iter().filter(is_wanted).map(|put| put.phy).collect();
            let found: Vec<PhyOffset> = found.map(|message| message.phy).collect();
            if found != wanted {
                return Err(format!("{begin_ms}..={end_ms}: {} found, {} wanted", found.len(), wanted.len()));
            }
        }
        // Of several places where the times pass the one that is looked for it is one.
        let lower = store.offset_by_time("orders", 0, begin_ms, TimeBoundary::Lower).0 as usize;
        let is_border = (lower == first || puts[lower - 1].store_ms < begin_ms)
            && (lower == puts.len() || puts[lower].store_ms >= begin_ms);
        let upper = store.offset_by_time("orders", 0, begin_ms, TimeBoundary::Upper).0 as usize;
        let is_last = (upper == first || puts[upper].store_ms <= begin_ms)
            && puts.get(upper + 1).is_none_or(|put| upper == first || put.store_ms > begin_ms);
        if !is_border || !is_last {
            return Err(format!("{begin_ms} is looked for in {first}.. and found at {lower} and {upper}"));
        }
    }
    Ok(())
}

/// Where the log begins when all files have gone that are older than an hour at `now_ms`, as the first message behind each
/// tells, from the oldest on.
fn expected_start(puts: &[Timed], now_ms: i64) -> PhyOffset {
    let bytes = config(FlushDiskType::Sync).commit_log_file_bytes;
    let start = |put: &Timed| put.phy.0 / bytes * bytes;
    let firsts = puts.iter().zip(puts.iter().skip(1)).filter(|(before, put)| start(before) < start(put));
    let expired = firsts.map(|(_, put)| put).take_while(|put| put.store_ms <= now_ms - 60 * MINUTE_MS);
    PhyOffset(expired.last().map_or(0, start))
}

/// Times that go back and forth put nothing out of order that is found by them, recovered or deleted by them.
#[test]
fn a_clock_that_goes_back_and_forth_hides_no_message_and_deletes_none_too_early() {
    let shared = Arc::new(Shared::default());
    let puts = Arc::new(Mutex::new(Vec::<Timed>::new()));
    let program = between_steps(&shared, &puts);
    let hours = StandConfig { limit: Duration::from_secs(7200), ..StandConfig::new(Seeds::from_root(7)) };
    simulate(hours, &shared, 64 << 20, {
        let shared = Arc::clone(&shared);
        move |stand, node| async move {
            stand.start(node, program);
            for (round, minutes) in (1..).zip(STEPS) {
                while *shared.number.lock().unwrap() < round {
                    stand.sleep(Duration::from_millis(100)).await;
                }
                stand.step_wall(node, minutes * MINUTE_MS);
            }
            stand.sleep(Duration::from_secs(5)).await;
            stand.kill(node);
            stand.restart(node);
            stand.sleep(Duration::from_secs(5)).await;
            stand.power_loss(&[node], Some(Survival::AllOld), 1);
            stand.restart(node);
            for minutes in [20, 40] {
                stand.sleep(Duration::from_secs(20)).await;
                stand.step_wall(node, minutes * MINUTE_MS);
                stand.sleep(Duration::from_secs(40)).await;
            }
            stand.stop(node, Duration::from_secs(10)).await;
            assert_eq!(unsound(&stand, node, 200), Vec::<String>::new());
        }
    });
    assert_eq!(*shared.errors.lock().unwrap(), Vec::<String>::new());
    assert_eq!(puts.lock().unwrap().len(), 30 * STEPS.len());
    assert_eq!(*shared.number.lock().unwrap(), 100, "the last life ended before its time");
}

/// A program whose first life stores messages in rounds, after each of which the clock is moved; each life compares what is
/// found, and the third one deletes while the clock is moved.
fn between_steps(
    shared: &Arc<Shared>,
    puts: &Arc<Mutex<Vec<Timed>>>,
) -> impl Fn(Host, StopSignal) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync + use<> {
    let (shared, puts) = (Arc::clone(shared), Arc::clone(puts));
    move |host, stop| {
        let (shared, puts) = (Arc::clone(&shared), Arc::clone(&puts));
        Box::pin(async move {
            let settings = StoreConfig {
                query_max_count: 1000,
                file_reserved: Duration::from_secs(3600),
                delete_when: vec![],
                ..config(FlushDiskType::Sync)
            };
            let store = Store::open(settings).await.map_err(|error| error.to_string())?;
            for round in (0..STEPS.len()).filter(|_| host.incarnation() == 1) {
                for number in 0..30 {
                    let properties = format!("KEYS\u{1}all k{number}\u{2}UNIQ_KEY\u{1}{round}-{number}\u{2}");
                    let put = store.put_when_ready(&draft(0, &[b'x'; 3000], &properties)).await.unwrap();
                    assert_eq!(store.durability(put.end()).await, Flushed::Done);
                    puts.lock().unwrap().push(Timed { store_ms: put.store_ms, phy: put.phy });
                    host.sleep(Duration::from_secs(7)).await;
                }
                *shared.number.lock().unwrap() += 1;
                host.sleep(Duration::from_secs(1)).await;
            }
            settle(&host, &store).await;
            let all = puts.lock().unwrap().clone();
            assert_eq!(store.max_phy(), store.flushed_phy());
            check_times(&store, &all)?;
            if host.incarnation() < 3 {
                stop.requested().await;
            }
            let mut starts = Vec::new();
            loop {
                store.delete_expired_files();
                host::select! {
                    () = stop.requested() => break,
                    () = host.sleep(Duration::from_secs(3)) => {}
                }
                let (start, expected) = (store.min_phy(), expected_start(&all, host.wall_ms()));
                if start > expected {
                    return Err(format!("the log begins at {start:?}, not at {expected:?}"));
                }
                starts.push((start, expected));
            }
            let kept = starts.iter().filter(|(start, expected)| start == expected).map(|(start, _)| *start);
            let kept: BTreeSet<PhyOffset> = kept.collect();
            assert!(kept.len() >= 3 && starts.last().is_some_and(|(start, expected)| start == expected), "{starts:?}");
            check_times(&store, &all)?;
            *shared.number.lock().unwrap() = 100;
            store.shutdown().await.map_err(|error| error.to_string())
        })
    }
}

/// The ends of a wait for the disk, and what the last of them means for later messages.
#[test]
fn a_wait_for_the_disk_ends_in_time_and_a_failed_flush_refuses_what_follows() {
    let shared = Arc::new(Shared::default());
    let told = Arc::clone(&shared);
    let program = move |host: Host, stop: StopSignal| {
        let shared = Arc::clone(&told);
        async move {
            let timeout = Duration::from_millis(100);
            let impatient = StoreConfig { sync_flush_timeout: timeout, ..config(FlushDiskType::Sync) };
            let store = Store::open(impatient).await.map_err(|error| error.to_string())?;
            let draft = draft(0, b"body", "");
            let begun = host.now();
            let late = store.put(&draft).unwrap();
            assert_eq!(store.durability(late.end()).await, Flushed::TimedOut);
            let waited = host.now().since(begun);
            assert!(waited >= timeout && waited < timeout + Duration::from_millis(1), "{waited:?}");
            // It is stored all the same.
            host.sleep(Duration::from_secs(30)).await;
            assert_eq!(store.flushed_phy(), late.end());
            assert_eq!(store.durability(late.end()).await, Flushed::Done);
            *shared.number.lock().unwrap() = 1;
            host.sleep(Duration::from_secs(30)).await;
            let failed = store.put(&draft).unwrap();
            assert_eq!(store.durability(failed.end()).await, Flushed::Failed);
            assert_eq!(store.put(&draft), Err(PutError::Blocked(WriteBlock::Fenced)));
            assert_eq!(store.durability(failed.end()).await, Flushed::Failed);
            *shared.number.lock().unwrap() = 2;
            stop.requested().await;
            Ok(())
        }
    };
    let seen = Arc::clone(&shared);
    on_stand(7, &shared, 64 << 20, move |stand, node| async move {
        stand.disk(node).slow(1000, 0);
        stand.start(node, program);
        while *seen.number.lock().unwrap() == 0 {
            stand.sleep(Duration::from_secs(1)).await;
        }
        stand.disk(node).slow(1, 0);
        let failing =
            DiskFault { path: "/store/commitlog/*".into(), error: DiskError::Flush, hits: Hits::Chance(1_000_000) };
        stand.disk(node).add_fault(1, failing);
        stand.sleep(Duration::from_secs(60)).await;
        stand.stop(node, Duration::from_secs(10)).await;
    });
    assert_eq!(*shared.number.lock().unwrap(), 2);
}

/// Whoever waits for the disk is told at once when queues or index fail, whose failure ends all writes, though the log
/// itself is still being flushed.
#[test]
fn whoever_waits_for_the_log_is_told_when_queues_or_index_cannot_be_flushed() {
    for mode in [FlushDiskType::Sync, FlushDiskType::Async] {
        for path in ["/store/consumequeue/*", "/store/index/*"] {
            let shared = Arc::new(Shared::default());
            let program = waiting(&shared, mode);
            let told = Arc::clone(&shared);
            on_stand(7, &shared, 64 << 20, move |stand, node| async move {
                stand.start(node, program);
                let step = async |number| {
                    while *told.number.lock().unwrap() < number {
                        stand.sleep(Duration::from_millis(10)).await;
                    }
                };
                step(1).await;
                // What is small fails soon, what is large takes minutes.
                stand.disk(node).slow(20_000, stand.now().as_nanos() as u64);
                let failing = DiskFault { path: path.into(), error: DiskError::Flush, hits: Hits::Nth(1) };
                stand.disk(node).add_fault(1, failing);
                *told.number.lock().unwrap() = 2;
                step(3).await;
                stand.disk(node).slow(1, stand.now().as_nanos() as u64);
                stand.sleep(Duration::from_secs(10)).await;
                stand.stop(node, Duration::from_secs(10)).await;
            });
            assert_eq!(*shared.number.lock().unwrap(), 3, "{mode:?} {path}");
        }
    }
}

/// A program that has messages wait for the disk when its queues and its index are about to be flushed. With number 1
/// they are, with 2 the disk is slow, with 3 all who waited were told.
fn waiting(
    shared: &Arc<Shared>,
    mode: FlushDiskType,
) -> impl Fn(Host, StopSignal) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync + use<> {
    let shared = Arc::clone(shared);
    move |host, stop| {
        let shared = Arc::clone(&shared);
        Box::pin(async move {
            let soon = Duration::from_secs(5);
            let settings = StoreConfig {
                commit_log_file_bytes: 8 << 20,
                flush_interval: Duration::from_secs(3600),
                sync_flush_timeout: Duration::from_secs(3600),
                queue_flush_interval: soon,
                queue_flush_thorough_interval: soon,
                ..config(mode)
            };
            let store = Arc::new(Store::open(settings).await.map_err(|error| error.to_string())?);
            store.put(&draft(0, b"small", "KEYS\u{1}k\u{2}")).unwrap();
            assert_eq!(store.flush().await, Flushed::Done);
            settle(&host, &store).await;
            *shared.number.lock().unwrap() = 1;
            while *shared.number.lock().unwrap() < 2 {
                host.sleep(Duration::from_millis(10)).await;
            }
            let large = store.put(&draft(1, &vec![b'x'; 4 << 20], "")).unwrap();
            let begun = host.now();
            let waiters: Vec<_> = (0..3)
                .map(|number| {
                    let store = Arc::clone(&store);
                    host.spawn("waiter", async move {
                        match mode {
                            FlushDiskType::Sync if number > 0 => store.durability(large.end()).await,
                            _ => store.flush().await,
                        }
                    })
                })
                .collect();
            for waiter in waiters {
                assert_eq!(waiter.await.unwrap(), Flushed::Failed);
            }
            assert!(store.flushed_phy() < large.end(), "the flush of the log has ended before");
            assert!(host.now().since(begun) < Duration::from_secs(120), "{:?}", host.now().since(begun));
            assert_eq!(store.flush().await, Flushed::Failed);
            assert_eq!(store.put(&draft(0, b"late", "")), Err(PutError::Blocked(WriteBlock::Fenced)));
            *shared.number.lock().unwrap() = 3;
            stop.requested().await;
            store.shutdown().await.map_err(|error| error.to_string())
        })
    }
}

/// A kill takes the messages of the last moments, which were in memory only, and nothing that anybody had seen.
#[test]
fn a_kill_takes_what_was_in_a_buffer_only() {
    let mut taken = 0;
    for seed in SEEDS {
        let shared = Arc::new(Shared::default());
        let told = Arc::clone(&shared);
        let program = move |host: Host, stop: StopSignal| {
            let shared = Arc::clone(&told);
            async move {
                let store = Store::open(with_buffers()).await.map_err(|error| error.to_string())?;
                let (killed_ms, seen) = *shared.alive.lock().unwrap();
                assert!(store.max_phy() >= seen, "{:?} was shown, the log ends at {:?}", seen, store.max_phy());
                let early = |number: &u64| shared.acked_ms.lock().unwrap()[number] + 401 < killed_ms;
                shared.acked.lock().unwrap().retain(|(phy, _, _, number)| {
                    let is_taken = *phy >= store.max_phy();
                    assert!(!is_taken || !early(number), "message {number} had been there for more than 400 ms");
                    *shared.taken.lock().unwrap() += u32::from(is_taken);
                    !is_taken
                });
                check(&store, &shared)?;
                let mut rng = host.rng("life");
                loop {
                    host::select! {
                        () = stop.requested() => break,
                        result = put(&store, &shared, rng.below(900) as usize) => result.map_err(|error| error.to_string())?,
                    }
                    host.sleep(Duration::from_millis(rng.below(30))).await;
                    *shared.alive.lock().unwrap() = (host.wall_ms(), store.max_phy());
                }
                store.shutdown().await.map_err(|error| error.to_string())
            }
        };
        on_stand(seed, &shared, 64 << 20, move |stand, node| async move {
            stand.start(node, program);
            for round in 0..8 {
                stand.sleep(Duration::from_millis(800 + 317 * ((seed + round) % 7))).await;
                stand.kill(node);
                stand.restart(node);
            }
            stand.sleep(Duration::from_secs(2)).await;
            // A clean exit takes nothing: the next life finds what was acknowledged just before.
            stand.stop(node, Duration::from_secs(10)).await;
            stand.restart(node);
            stand.sleep(Duration::from_secs(1)).await;
            stand.stop(node, Duration::from_secs(10)).await;
        });
        assert!(shared.acked.lock().unwrap().len() > 300, "seed {seed}: {}", shared.acked.lock().unwrap().len());
        taken += *shared.taken.lock().unwrap();
    }
    assert!(taken > 0, "no kill took anything, so nothing was shown");
}

/// Files that are brought into memory page by page hold what others hold, and a machine that locks no memory takes nothing
/// from them.
#[test]
fn warm_files_survive_what_cold_ones_do_though_memory_cannot_be_locked() {
    for seed in SEEDS {
        let shared = Arc::new(Shared::default());
        let warm =
            StoreConfig { warm_files: true, warm_flush_pages: 3, read_ahead: false, ..config(FlushDiskType::Sync) };
        let program = life(&shared, warm);
        on_stand(seed, &shared, 64 << 20, move |stand, node| async move {
            let refused = DiskFault { path: "*".into(), error: DiskError::Lock, hits: Hits::Chance(500_000) };
            stand.disk(node).add_fault(1, refused);
            stand.start(node, program);
            for round in 0..6 {
                stand.sleep(Duration::from_millis(300 + 700 * ((seed + round) % 5))).await;
                match (seed + round) % 3 {
                    0 => stand.kill(node),
                    _ => drop(stand.power_loss(&[node], None, round)),
                }
                stand.restart(node);
            }
            stand.sleep(Duration::from_secs(2)).await;
            stand.stop(node, Duration::from_secs(10)).await;
        });
        assert!(shared.acked.lock().unwrap().len() > 300, "seed {seed}: {}", shared.acked.lock().unwrap().len());
        assert!(*shared.refused_locks.lock().unwrap() > 0, "seed {seed}");
    }
}

#[test]
fn a_full_file_leaves_memory_six_seconds_after_its_last_message() {
    let shared = Arc::new(Shared::default());
    let told = Arc::clone(&shared);
    let program = move |host: Host, stop: StopSignal| {
        let shared = Arc::clone(&told);
        async move {
            let warm = StoreConfig { warm_files: true, ..config(FlushDiskType::Async) };
            let store = Store::open(warm).await.map_err(|error| error.to_string())?;
            while store.max_phy().0 < 64 << 10 {
                put(&store, &shared, 900).await.map_err(|error| error.to_string())?;
            }
            host.sleep(Duration::from_millis(5_900)).await;
            assert!(shared.unlocked.lock().unwrap().is_empty());
            host.sleep(Duration::from_millis(200)).await;
            assert_eq!(*shared.unlocked.lock().unwrap(), [0]);
            stop.requested().await;
            store.shutdown().await.map_err(|error| error.to_string())
        }
    };
    on_stand(7, &shared, 64 << 20, move |stand, node| async move {
        stand.start(node, program);
        stand.sleep(Duration::from_secs(10)).await;
        stand.stop(node, Duration::from_secs(10)).await;
    });
}

/// The name goes at once, the bytes with the last reader, and nobody waits for either.
#[test]
fn w15_a_deleted_file_stays_as_it_was_for_its_readers_and_others_go_meanwhile() {
    let shared = Arc::new(Shared::default());
    let told = Arc::clone(&shared);
    let program = move |host: Host, stop: StopSignal| {
        let shared = Arc::clone(&told);
        async move {
            let expired = StoreConfig { file_reserved: Duration::ZERO, ..config(FlushDiskType::Async) };
            let store = Store::open(expired).await.map_err(|error| error.to_string())?;
            for _ in 0..600 {
                put(&store, &shared, 900).await.map_err(|error| error.to_string())?;
            }
            settle(&host, &store).await;
            let held = store.record_at(PhyOffset(0)).unwrap();
            let before = held.to_vec();
            store.delete_expired_files();
            // Longer than the two minutes after which the reference takes it away from its readers.
            host.sleep(Duration::from_secs(150)).await;
            let files = host.files();
            let names = files.read_dir("/store/commitlog").await.map_err(|error| error.to_string())?;
            assert!(names.len() <= 2, "the file in use and the next one: {names:?}");
            assert_eq!(store.record_at(PhyOffset(0)), None);
            assert_eq!(held[..], before);
            stop.requested().await;
            store.shutdown().await.map_err(|error| error.to_string())
        }
    };
    on_stand(7, &shared, 64 << 20, move |stand, node| async move {
        stand.start(node, program);
        stand.sleep(Duration::from_secs(300)).await;
        stand.stop(node, Duration::from_secs(10)).await;
    });
}

#[cfg(feature = "mutants")]
#[test]
fn planted_bugs_lose_acknowledged_messages() {
    for mutant in ["ack-before-flush", "flush-without-msync", "recovery-truncates-one-too-many"] {
        let caught = SEEDS.into_iter().any(|seed| {
            let shared = Arc::new(Shared::default());
            let program = life(&shared, config(FlushDiskType::Sync));
            let mut config = StandConfig::new(Seeds::from_root(seed));
            config.mutants.insert(mutant.to_owned());
            simulate(config, &shared, 64 << 20, move |stand, node| async move {
                stand.disk(node).slow(20, 0); // So that the power usually fails between a write and its sync.
                stand.start(node, program);
                for round in 0..4 {
                    stand.sleep(Duration::from_millis(700)).await;
                    stand.power_loss(&[node], None, round);
                    stand.restart(node);
                }
                stand.sleep(Duration::from_millis(700)).await;
            });
            let errors = shared.errors.lock().unwrap();
            errors.iter().any(|error| error.contains("is not at"))
        });
        assert!(caught, "{mutant}");
    }
}

/// Holds the dispatcher of the first life once 60 messages are acknowledged.
struct Holding {
    shared: Arc<Shared>,
}

impl Observer for Holding {
    fn gate(&self, _: &Stand, place: &Place, name: &'static str) -> Option<BoxFuture<()>> {
        let holds = name == "store.dispatching" && place.incarnation == 1;
        let is_there = self.shared.acked.lock().unwrap().len() >= 60;
        (holds && is_there).then(|| Box::pin(std::future::pending()) as BoxFuture<()>)
    }

    fn panicked(&self, stand: &Stand, place: &Place, task: &'static str, message: &str) {
        self.shared.panicked(stand, place, task, message);
    }

    fn exited(&self, stand: &Stand, place: &Place, result: &Result<(), String>) {
        self.shared.exited(stand, place, result);
    }
}

/// What was flushed and not dispatched when the power went is in the queues and in the index after the next start.
#[test]
fn p021_what_was_not_dispatched_at_a_power_cut_is_dispatched_by_the_next_start() {
    let shared = Arc::new(Shared::default());
    let (told, behind) = (Arc::clone(&shared), Arc::new(Mutex::new(0)));
    let seen = Arc::clone(&behind);
    let program = move |host: Host, stop: StopSignal| {
        let (shared, behind) = (Arc::clone(&told), Arc::clone(&seen));
        async move {
            let store = Store::open(config(FlushDiskType::Sync)).await.map_err(|error| error.to_string())?;
            if host.incarnation() == 1 {
                for _ in 0..100 {
                    put(&store, &shared, 100).await.map_err(|error| error.to_string())?;
                }
                host.sleep(Duration::from_secs(1)).await;
                *behind.lock().unwrap() = (0..QUEUES).map(|queue| store.max_offset("orders", queue).0).sum();
            } else {
                check(&store, &shared)?;
                let ends: u64 = (0..QUEUES).map(|queue| store.max_offset("orders", queue).0).sum();
                assert_eq!(ends, 100);
            }
            stop.requested().await;
            store.shutdown().await.map_err(|error| error.to_string())
        }
    };
    let observer: Arc<dyn Observer> = Arc::new(Holding { shared: Arc::clone(&shared) });
    let run = run(StandConfig::new(Seeds::from_root(7)), observer, move |stand| async move {
        let node = stand.add_node(NodeSpec::new("broker-a/0", Ipv4Addr::new(10, 0, 0, 1))).unwrap();
        stand.start(node, program);
        stand.sleep(Duration::from_secs(3)).await;
        stand.power_loss(&[node], Some(Survival::AllOld), 1);
        stand.restart(node);
        stand.sleep(Duration::from_secs(1)).await;
        stand.stop(node, Duration::from_secs(10)).await;
    });
    assert_eq!(run.ended, Ended::Finished(()));
    assert!(shared.errors.lock().unwrap().is_empty(), "{:?}", shared.errors.lock().unwrap());
    assert_eq!(shared.acked.lock().unwrap().len(), 100);
    let behind = *behind.lock().unwrap();
    assert!((55..65).contains(&behind), "{behind} were dispatched before the power went");
}

/// What is wrong with the store of a node that has stopped, with so many entries in an index file.
fn unsound(stand: &Stand, node: NodeId, index_entries: u32) -> Vec<String> {
    let image = stand.disk(node).sparse_image();
    let index_shape = Some((config(FlushDiskType::Async).index_slots, index_entries));
    let options = AuditOptions { index_shape, dispatched: true, ..AuditOptions::default() };
    audit(&StoreFiles(&image), &options).unwrap().findings.iter().map(ToString::to_string).collect()
}

/// Each unit fits the record it points at, however often the power went.
#[test]
fn p022_units_fit_the_log_after_two_losses_of_power() {
    for seed in 0..50 {
        let shared = Arc::new(Shared::default());
        let told = Arc::clone(&shared);
        let program = move |host: Host, stop: StopSignal| {
            let shared = Arc::clone(&told);
            async move {
                let settings = StoreConfig { commit_log_file_bytes: 1 << 20, ..config(FlushDiskType::Async) };
                let store = Store::open(settings).await.map_err(|error| error.to_string())?;
                let mut rng = host.rng("pauses");
                let count = [300, 10_000, 10][host.incarnation() as usize - 1];
                for _ in 0..count {
                    put(&store, &shared, 10).await.map_err(|error| error.to_string())?;
                    if rng.below(100) == 0 {
                        host.sleep(Duration::from_millis(20)).await;
                    }
                }
                settle(&host, &store).await;
                stop.requested().await;
                store.shutdown().await.map_err(|error| error.to_string())
            }
        };
        on_stand(seed, &shared, 64 << 20, move |stand, node| async move {
            stand.start(node, program);
            stand.sleep(Duration::from_millis(20 + 37 * (seed % 11))).await;
            stand.power_loss(&[node], None, 1);
            stand.restart(node);
            stand.sleep(Duration::from_millis(500 + 173 * (seed % 13))).await;
            stand.power_loss(&[node], None, 2);
            stand.restart(node);
            stand.sleep(Duration::from_secs(3)).await;
            stand.stop(node, Duration::from_secs(10)).await;
            assert_eq!(unsound(&stand, node, 200), Vec::<String>::new(), "seed {seed}");
        });
    }
}

/// Index files that are filled write the checkpoint. It says nothing of queues that are not on disk.
#[test]
fn p023_the_checkpoint_that_the_index_writes_does_not_lead_the_queues() {
    let shared = Arc::new(Shared::default());
    let told = Arc::clone(&shared);
    let program = move |host: Host, stop: StopSignal| {
        let shared = Arc::clone(&told);
        async move {
            let never = Duration::from_secs(1 << 20);
            let settings = StoreConfig {
                index_entries: 20,
                queue_flush_interval: never,
                queue_flush_thorough_interval: never,
                ..config(FlushDiskType::Sync)
            };
            let store = Store::open(settings).await.map_err(|error| error.to_string())?;
            check(&store, &shared)?;
            if host.incarnation() == 1 {
                for _ in 0..200 {
                    put(&store, &shared, 400).await.map_err(|error| error.to_string())?;
                }
                settle(&host, &store).await;
            }
            stop.requested().await;
            store.shutdown().await.map_err(|error| error.to_string())
        }
    };
    on_stand(7, &shared, 64 << 20, move |stand, node| async move {
        stand.start(node, program);
        stand.sleep(Duration::from_secs(4)).await;
        let files = stand.disk(node).image();
        assert!(files.files().filter(|(path, _)| path.starts_with("/store/index")).count() > 5);
        let durable = stand.disk(node).durable_image(stand.now().as_nanos() as u64);
        // Milliseconds of the newest message that is durable in the log, in the queues.
        let checkpoint = durable.read("/store/checkpoint").unwrap();
        let time = |at: usize| i64::from_be_bytes(checkpoint[at..at + 8].try_into().unwrap());
        assert_eq!(time(8), 0, "no queue was flushed; the log was up to {}", time(0));
        stand.power_loss(&[node], Some(Survival::AllOld), 1);
        stand.restart(node);
        stand.sleep(Duration::from_secs(1)).await;
        stand.stop(node, Duration::from_secs(10)).await;
        assert_eq!(unsound(&stand, node, 20), Vec::<String>::new());
    });
    assert_eq!(shared.acked.lock().unwrap().len(), 200);
}

/// A program that sends a hundred messages a second, and tells whether dispatch is not behind for each second.
fn sending(
    shared: &Arc<Shared>,
    lags: &Arc<Mutex<Vec<u64>>>,
) -> impl Fn(Host, StopSignal) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync + use<> {
    let (shared, lags) = (Arc::clone(shared), Arc::clone(lags));
    move |host, stop| {
        let (shared, lags) = (Arc::clone(&shared), Arc::clone(&lags));
        Box::pin(async move {
            let store = Store::open(config(FlushDiskType::Async)).await.map_err(|error| error.to_string())?;
            check(&store, &shared)?;
            for number in 1.. {
                host::select! {
                    () = stop.requested() => break,
                    () = host.sleep(Duration::from_millis(10)) => {}
                }
                // Refused is as good as stored; stored and never seen is not.
                match put(&store, &shared, 20).await {
                    Ok(()) | Err(PutError::Blocked(_)) => {}
                    Err(error) => return Err(error.to_string()),
                }
                if number % 100 == 0 {
                    lags.lock().unwrap().push(store.dispatch_behind_bytes());
                }
            }
            settle(&host, &store).await;
            check(&store, &shared)?;
            store.shutdown().await.map_err(|error| error.to_string())
        })
    }
}

/// One call that fails does not end dispatch. (A panic ends the whole process, here and on a real machine, and the next
/// start dispatches what was left.)
#[test]
fn p027_dispatch_goes_on_after_an_error_and_after_a_crash() {
    let (shared, lags) = (Arc::new(Shared::default()), Arc::new(Mutex::new(Vec::new())));
    let program = sending(&shared, &lags);
    let told = Arc::clone(&lags);
    on_stand(7, &shared, 64 << 20, move |stand, node| async move {
        stand.start(node, program);
        stand.sleep(Duration::from_secs(2)).await;
        let path = "/store/consumequeue/*";
        let failing = DiskFault { path: path.into(), error: DiskError::Write, hits: Hits::Nth(1) };
        stand.disk(node).add_fault(1, failing);
        stand.sleep(Duration::from_secs(15)).await;
        let since_fault: Vec<u64> = told.lock().unwrap().iter().skip(7).copied().collect();
        assert!(since_fault.len() >= 8 && since_fault.iter().all(|behind| *behind < 1000), "{since_fault:?}");
        stand.kill(node);
        stand.restart(node);
        stand.sleep(Duration::from_secs(15)).await;
        stand.stop(node, Duration::from_secs(10)).await;
    });
    assert!(shared.acked.lock().unwrap().len() > 2000, "{}", shared.acked.lock().unwrap().len());
}

/// Index files cannot be made for a minute: few are tried, messages are taken or refused, and in the end all are found.
#[test]
fn p028_an_index_file_that_cannot_be_made_leaves_no_trail_of_files() {
    let (shared, lags) = (Arc::new(Shared::default()), Arc::new(Mutex::new(Vec::new())));
    let program = sending(&shared, &lags);
    on_stand(7, &shared, 64 << 20, move |stand, node| async move {
        let index_files = move |stand: &Stand| {
            let image = stand.disk(node).image();
            image.files().filter(|(path, _)| path.starts_with("/store/index")).count()
        };
        stand.start(node, program);
        stand.sleep(Duration::from_secs(3)).await;
        let before = index_files(&stand);
        let failing =
            DiskFault { path: "/store/index/*".into(), error: DiskError::Write, hits: Hits::Chance(1_000_000) };
        stand.disk(node).add_fault(1, failing);
        stand.sleep(Duration::from_secs(60)).await;
        let after = index_files(&stand);
        assert!(before >= 1 && after <= before + 2, "{before} index files became {after}");
        stand.disk(node).remove_fault(1);
        stand.sleep(Duration::from_secs(10)).await;
        // The program looks for each message by its key before it ends.
        stand.stop(node, Duration::from_secs(10)).await;
        assert!(index_files(&stand) > before);
    });
}

/// Deleting a file takes half a minute, and something else fills the disk meanwhile.
#[test]
fn p030_a_long_deletion_does_not_hide_that_the_disk_is_full() {
    let shared = Arc::new(Shared::default());
    let told = Arc::clone(&shared);
    let program = move |host: Host, stop: StopSignal| {
        let shared = Arc::clone(&told);
        async move {
            let pause = Duration::from_secs(30);
            let settings = StoreConfig {
                clean_interval: Duration::from_secs(10),
                delete_log_file_pause: pause,
                ..config(FlushDiskType::Async)
            };
            let store = Store::open(settings).await.map_err(|error| error.to_string())?;
            for _ in 0..900 {
                put(&store, &shared, 900).await.map_err(|error| error.to_string())?;
            }
            let mut refused_at = Vec::new();
            loop {
                host::select! {
                    () = stop.requested() => break,
                    () = host.sleep(Duration::from_secs(1)) => {}
                }
                if store.write_block().is_some() {
                    refused_at.push(host.now());
                }
            }
            *shared.number.lock().unwrap() = (refused_at[0] - host::time::Mono::default()).as_secs();
            store.shutdown().await.map_err(|error| error.to_string())
        }
    };
    on_stand(7, &shared, 16 << 20, move |stand, node| async move {
        stand.start(node, program);
        // Deletion begins with the first look, a minute after the start, and takes five minutes.
        stand.sleep(Duration::from_secs(30)).await;
        stand.disk(node).fill_percent(87);
        stand.sleep(Duration::from_secs(70)).await;
        assert!(stand.disk(node).image().read("/store/commitlog/00000000000000000000").is_err(), "it deletes");
        stand.disk(node).fill_percent(94);
        stand.sleep(Duration::from_secs(60)).await;
        stand.stop(node, Duration::from_secs(1000)).await;
    });
    let refused_at = *shared.number.lock().unwrap();
    assert!((100..=112).contains(&refused_at), "full from second 100 on, refused from {refused_at} on");
}
