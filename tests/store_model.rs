//! Random lives of a store on a simulated disk against a model of a few lines: appends, flushes, rolls, deletions (of
//! what has expired, to make room, by hand), clean stops, kills and losses of power of every style, at any moment.
//!
//! `PROPTEST_CASES=10000 cargo test --test store_model` runs so many cases instead of 256.
#![cfg(feature = "sim")]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use host::Host;
use message::{Draft, PhyOffset, StoredMessage, SysFlag};
use proptest::prelude::*;
use sim::{
    disk::{Durability, Outage, Survival},
    run::StoreFiles,
    seed::Seeds,
    stand::{Ended, NodeId, NodeSpec, Observer, Place, Stand, StandConfig, StopSignal, run},
};
use store::{
    FlushDiskType, Flushed, GetRequest, KeyQuery, Put, PutError, Store, StoreConfig, WriteBlock,
    audit::{AuditOptions, audit},
};
use tokio::sync::Notify;

const LOG_FILE: u64 = 8 << 10;
const TOPICS: u32 = 2;
const QUEUES: u32 = 2;
const HOUR_MS: i64 = 3_600_000;
/// The hour in which expired files are deleted.
const HOUR_OF_DELETION: i64 = 12;
/// Longer than the first look at the disk takes to come, and another one.
const TWO_LOOKS: Duration = Duration::from_secs(85);

#[derive(Debug, Clone)]
enum Op {
    Put {
        queue: (u32, u32),
        count: u32,
        body_bytes: usize,
    },
    Batch {
        queue: (u32, u32),
        count: u32,
        body_bytes: usize,
    },
    Flush,
    /// Messages of a thousand bytes until one stands in another file.
    Roll,
    /// What was written is expired afterwards.
    HourPasses,
    /// Waits for the hour of deletion.
    AwaitHour,
    DeleteByHand,
    /// Something else fills the disk for two looks.
    Fill {
        percent: u8,
    },
}

/// How a life ends: at the end of its last operation, or so many microseconds after the begin of it.
#[derive(Debug, Clone)]
struct End {
    how: How,
    after_us: Option<u32>,
}

#[derive(Debug, Clone)]
enum How {
    Stop,
    Kill,
    /// Pages that were never flushed come out as zeros. Where they show what the block held before, an earlier record may
    /// stand at its own place again: nothing in the format tells it from the one that was lost there.
    PowerLoss {
        survival: Option<Survival>,
    },
    /// A kill, after which consume queues of a topic are gone.
    LoseQueues {
        topic: u32,
    },
    /// A kill, after which all index files are gone.
    LoseIndex,
}

#[derive(Debug, Clone)]
struct Life {
    ops: Vec<Op>,
    end: End,
}

fn lives() -> impl Strategy<Value = Vec<Life>> {
    let queue = || (0..TOPICS, 0..QUEUES);
    let op = prop_oneof![
        6 => (queue(), 1..12_u32, 0..900_usize).prop_map(|(queue, count, body_bytes)| Op::Put { queue, count, body_bytes }),
        2 => (queue(), 1..7_u32, 0..900_usize).prop_map(|(queue, count, body_bytes)| Op::Batch { queue, count, body_bytes }),
        2 => Just(Op::Flush),
        3 => Just(Op::Roll),
        2 => Just(Op::HourPasses),
        1 => Just(Op::AwaitHour),
        2 => Just(Op::DeleteByHand),
        1 => prop::sample::select(vec![80, 88, 94]).prop_map(|percent| Op::Fill { percent }),
    ];
    let survival = prop::sample::select(Survival::NAMES.map(|(_, survival)| survival).to_vec());
    let how = prop_oneof![
        2 => Just(How::Stop),
        3 => Just(How::Kill),
        6 => prop::option::of(survival).prop_map(|survival| How::PowerLoss { survival }),
        1 => (0..TOPICS).prop_map(|topic| How::LoseQueues { topic }),
        1 => Just(How::LoseIndex),
    ];
    let after_us = prop_oneof![
        2 => Just(None),
        2 => (0..3_000_u32).prop_map(Some),
        1 => (3_000..90_000_000_u32).prop_map(Some),
    ];
    let end = (how, after_us).prop_map(|(how, after_us)| End { how, after_us });
    let life = (prop::collection::vec(op, 0..6), end).prop_map(|(ops, end)| Life { ops, end });
    prop::collection::vec(life, 1..6)
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    phy: u64,
    end: u64,
    store_ms: i64,
    queue: (u32, u32),
    offset: u64,
    number: u32,
}

/// What must be there. Everything that was appended stays, except what a loss of power may take, which is all that was
/// never on disk and nothing in front of it, and what was deleted, which is whole files from the oldest on.
#[derive(Default)]
struct Model {
    /// In the order of the log.
    records: Vec<Record>,
    /// The offsets that the next messages get.
    next: BTreeMap<(u32, u32), u64>,
    /// The log is on disk up to here.
    durable: u64,
    /// It begins here, durably.
    start: u64,
    /// The power was lost, and nobody has seen yet what is left.
    is_shaken: bool,
    /// Queues without messages whose files were lost: nothing says any more where they ended.
    forgotten: BTreeSet<(u32, u32)>,
    /// Queues without messages that go on further behind than they must, with where they must.
    further: BTreeMap<(u32, u32), u64>,
    /// What allows deletions in the present life.
    by_hand: bool,
    filled_percent: u8,
    /// When the last file was deleted.
    deleted_ms: Option<i64>,
    number: u32,
}

impl Model {
    /// A store was opened that begins and ends here.
    fn opened(&mut self, start: u64, end: u64) -> Result<(), String> {
        let written = self.records.last().map_or(0, |last| last.end);
        let least = if self.is_shaken { self.durable } else { self.durable.max(written) };
        if end < least {
            return Err(format!("the log ends at {end}, and was on disk up to {least}"));
        }
        for lost in self.records.iter().filter(|record| record.phy >= end) {
            let next = self.next.get_mut(&lost.queue).expect("it has a message");
            *next = lost.offset.min(*next);
        }
        self.records.retain(|record| record.phy < end);
        // A file whose deletion was not on disk may be there or not.
        if ![self.start, self.start + LOG_FILE].contains(&start) {
            return Err(format!("the log begins at {start}, and was deleted up to {}", self.start));
        }
        self.begins_at(start);
        (self.durable, self.is_shaken, self.by_hand, self.filled_percent) = (end, false, false, 0);
        Ok(())
    }

    fn begins_at(&mut self, start: u64) {
        self.start = start;
        self.records.retain(|record| record.phy >= start);
    }

    /// The oldest file was deleted at this time.
    fn deleted(&mut self, start: u64, wall_ms: i64) -> Result<(), String> {
        if start != self.start {
            return Err(format!("the file at {start} went before that at {}", self.start));
        }
        let is_hour = wall_ms.div_euclid(HOUR_MS).rem_euclid(24) == HOUR_OF_DELETION;
        let is_due = (is_hour || self.by_hand || self.filled_percent > 75) && self.has_expired(wall_ms) != Some(false);
        if !is_due && self.filled_percent <= 85 {
            return Err(format!("the file at {start} was deleted at {wall_ms} without need"));
        }
        self.begins_at(start + LOG_FILE);
        self.deleted_ms = Some(wall_ms);
        Ok(())
    }

    /// Whether the oldest file has expired. Its last message is about as old as the first one behind it; `None` if there
    /// is none.
    fn has_expired(&self, wall_ms: i64) -> Option<bool> {
        let behind = self.records.iter().find(|record| record.phy >= self.start + LOG_FILE)?;
        Some(wall_ms - behind.store_ms >= HOUR_MS)
    }

    fn put(&mut self, put: &Put, queue: (u32, u32), number: u32) -> Result<(), String> {
        let next = self.next.entry(queue).or_default();
        if put.queue_offset.0 != *next {
            return Err(format!("message {number} got {:?} of {queue:?}, not {next}", put.queue_offset));
        }
        *next += 1;
        let (phy, end, store_ms) = (put.phy.0, put.end().0, put.store_ms);
        self.records.push(Record { phy, end, store_ms, queue, offset: put.queue_offset.0, number });
        Ok(())
    }

    fn lose_queues(&mut self, topic: u32) {
        let queues = (0..QUEUES).map(|queue_id| (topic, queue_id));
        let is_empty = |queue: &(u32, u32)| !self.records.iter().any(|record| record.queue == *queue);
        self.forgotten.extend(queues.filter(is_empty));
    }
}

/// Longer than it takes from a deleted log file to the next one, or to the queues.
const A_PASS: Duration = Duration::from_secs(1);

/// Longer than queues and index may be behind the log, if nothing is written meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// What outlives the lives of the node.
struct Shared {
    lives: Vec<Life>,
    sync: bool,
    model: Mutex<Model>,
    /// What is wrong.
    errors: Mutex<Vec<String>>,
    /// The last operation of a life has begun, or has come to its end.
    begun: Notify,
    finished: Notify,
}

impl Observer for Shared {
    fn point(&self, stand: &Stand, place: &Place, name: &'static str, [value, _]: [i64; 2]) {
        let value = value as u64;
        match name {
            "store.flushed" => {
                let mut model = self.model();
                model.durable = model.durable.max(value);
            }
            "store.file-deleted" => {
                let deleted = self.model().deleted(value, stand.wall_ms(place.node));
                self.errors.lock().unwrap().extend(deleted.err());
            }
            _ => {}
        }
    }

    fn panicked(&self, _: &Stand, place: &Place, task: &'static str, message: &str) {
        self.errors.lock().unwrap().push(format!("life {} panicked in {task}: {message}", place.incarnation));
    }

    fn exited(&self, _: &Stand, place: &Place, result: &Result<(), String>) {
        let told = result.as_ref().err().map(|error| format!("life {}: {error}", place.incarnation));
        self.errors.lock().unwrap().extend(told);
    }
}

fn config(sync: bool) -> StoreConfig {
    StoreConfig {
        commit_log_file_bytes: LOG_FILE,
        consume_queue_file_bytes: 200,
        index_slots: 20,
        index_entries: 50,
        flush_disk_type: if sync { FlushDiskType::Sync } else { FlushDiskType::Async },
        file_reserved: Duration::from_secs(3600),
        delete_when: vec![HOUR_OF_DELETION as u8],
        ..StoreConfig::new("/store")
    }
}

struct Text {
    topic: String,
    queue: (u32, u32),
    number: u32,
    body: String,
    properties: String,
}

impl Text {
    fn draft(&self) -> Draft<'_> {
        Draft {
            topic: &self.topic,
            queue_id: self.queue.1,
            flag: 0,
            sys_flag: SysFlag(0),
            born_ms: 1,
            born_host: "10.0.0.9:50000".parse().unwrap(),
            store_host: "10.0.0.1:10911".parse().unwrap(),
            reconsume_times: 0,
            prepared_phy: PhyOffset(0),
            body: self.body.as_bytes(),
            properties: &self.properties,
        }
    }
}

fn topic(number: u32) -> String {
    format!("topic{number}")
}

/// Messages of a queue as the store gives them: position, offset, and the number that the body begins with.
fn read_all(store: &Store, (of, queue_id): (u32, u32)) -> Result<Vec<(u64, u64, u32)>, String> {
    let (topic, mut all) = (topic(of), Vec::new());
    let mut offset = store.min_offset(&topic, queue_id);
    let max = store.max_offset(&topic, queue_id);
    while offset < max {
        let result =
            store.get(&GetRequest { topic: &topic, queue_id, offset, max_count: 32, max_bytes: 1 << 20, filter: None });
        if result.next <= offset {
            return Err(format!("no progress at {offset:?} of {topic} {queue_id}: {result:?}"));
        }
        for message in result.records.into_iter().flat_map(|records| StoredMessage::decode_all(records).unwrap()) {
            let body = String::from_utf8_lossy(&message.message.body).into_owned();
            let number = body.split(' ').next().unwrap().parse().unwrap();
            all.push((message.phy.0, message.queue_offset.0, number));
        }
        offset = result.next;
    }
    Ok(all)
}

impl Shared {
    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap()
    }

    /// Waits until queues and index follow the log. Its files go first: meanwhile a queue may begin in front of it.
    async fn settle(&self, host: &Host, store: &Store) -> Result<(), String> {
        let begun = host.now();
        while store.dispatch_behind_bytes() > 0 {
            if host.now().since(begun) > PATIENCE {
                return Err(format!(
                    "{} bytes are not dispatched, {:?}",
                    store.dispatch_behind_bytes(),
                    store.write_block()
                ));
            }
            host.sleep(Duration::from_millis(1)).await;
        }
        while self.model().deleted_ms.is_some_and(|at_ms| host.wall_ms() - at_ms < A_PASS.as_millis() as i64) {
            host.sleep(A_PASS).await;
        }
        Ok(())
    }

    /// The queues hold exactly what the model has, each message at the offset that was answered, and each of them is
    /// found by its key.
    async fn check(&self, host: &Host, store: &Store) -> Result<(), String> {
        self.settle(host, store).await?;
        let model = &mut *self.model();
        if store.min_phy().0 != model.start {
            return Err(format!("the log begins at {:?}, not {}", store.min_phy(), model.start));
        }
        for of in (0..TOPICS).flat_map(|topic| (0..QUEUES).map(move |queue_id| (topic, queue_id))) {
            let (name, queue_id) = (topic(of.0), of.1);
            let (min, max) = (store.min_offset(&name, queue_id).0, store.max_offset(&name, queue_id).0);
            let next = model.next.entry(of).or_default();
            let was_next = *next;
            if model.forgotten.remove(&of) && max <= *next {
                *next = max;
            }
            let expected: Vec<_> = model.records.iter().filter(|record| record.queue == of).collect();
            // Its first file may be lost with all its messages, and a later one be there without an entry. Then it goes on
            // there, as it does when its first files were deleted: no offset that anybody has seen is given again.
            // The next loss of power may take that file, too.
            let least = *model.further.get(&of).unwrap_or(next);
            if expected.is_empty() && min == max && max >= least {
                model.further.insert(of, least);
                *next = max;
            }
            let next = *next;
            let first = expected.first().map_or(next, |record| record.offset);
            if (min, max) != (first, next) {
                return Err(format!("{of:?} is {min}..{max}, not {first}..{next} of {was_next}"));
            }
            let found = read_all(store, of)?;
            let expected = expected.iter().map(|record| (record.phy, record.offset, record.number));
            if !expected.clone().eq(found.iter().copied()) {
                return Err(format!("{of:?} has {found:?}, not {:?}", expected.collect::<Vec<_>>()));
            }
            for (phy, _, number) in expected {
                let key = format!("k{number}");
                let query = KeyQuery { topic: &name, key: &key, max_count: 8, begin_ms: 0, end_ms: i64::MAX };
                let by_key = store
                    .query(&query)
                    .records
                    .into_iter()
                    .map(|record| StoredMessage::decode_all(record).unwrap().remove(0).phy.0);
                if by_key.clone().ne([phy]) {
                    return Err(format!("message {number} is found at {:?}, not {phy}", by_key.collect::<Vec<_>>()));
                }
            }
        }
        Ok(())
    }

    fn text(&self, queue: (u32, u32), body_bytes: usize) -> Text {
        let mut model = self.model();
        let number = model.number;
        model.number += 1;
        let body = format!("{number} {}", "x".repeat(body_bytes));
        let properties = format!("TAGS\u{1}t{}\u{2}KEYS\u{1}k{number}\u{2}", number % 4);
        Text { topic: topic(queue.0), queue, number, body, properties }
    }

    async fn put(&self, store: &Store, queue: (u32, u32), body_bytes: usize) -> Result<Put, String> {
        let text = self.text(queue, body_bytes);
        let put = store.put_when_ready(&text.draft()).await.map_err(|error| error.to_string())?;
        self.model().put(&put, queue, text.number)?;
        self.acknowledge(store, put.end()).await?;
        Ok(put)
    }

    /// What is acknowledged under sync flush is on disk.
    async fn acknowledge(&self, store: &Store, end: PhyOffset) -> Result<(), String> {
        let flushed = store.durability(end).await;
        let durable = self.model().durable;
        let is_kept = flushed == Flushed::Done && (!self.sync || durable >= end.0);
        if is_kept { Ok(()) } else { Err(format!("{flushed:?} up to {end:?}, on disk up to {durable}")) }
    }

    async fn apply(&self, host: &Host, (stand, node): (&Stand, NodeId), store: &Store, op: &Op) -> Result<(), String> {
        match *op {
            Op::Put { queue, count, body_bytes } => {
                for _ in 0..count {
                    self.put(store, queue, body_bytes).await?;
                }
            }
            Op::Batch { queue, count, body_bytes } => {
                let texts: Vec<Text> = (0..count).map(|_| self.text(queue, body_bytes)).collect();
                let drafts: Vec<_> = texts.iter().map(Text::draft).collect();
                let batch = store.put_batch_when_ready(&drafts).await.map_err(|error| error.to_string())?;
                for (put, text) in batch.puts.iter().zip(&texts) {
                    self.model().put(put, queue, text.number)?;
                }
                self.acknowledge(store, batch.end()).await?;
            }
            Op::Flush => {
                let end = store.max_phy().0;
                if store.flush().await != Flushed::Done || self.model().durable < end {
                    return Err(format!("flushed up to {end}, on disk up to {}", self.model().durable));
                }
            }
            Op::Roll => {
                let first = self.put(store, (0, 0), 1000).await?;
                while self.put(store, (0, 0), 1000).await?.phy.0 / LOG_FILE == first.phy.0 / LOG_FILE {}
            }
            Op::HourPasses => host.sleep(Duration::from_secs(3601)).await,
            Op::AwaitHour => {
                let now = host.wall_ms();
                let since_hour = (now - HOUR_OF_DELETION * HOUR_MS).rem_euclid(24 * HOUR_MS);
                if since_hour >= HOUR_MS - TWO_LOOKS.as_millis() as i64 {
                    host.sleep(Duration::from_millis((24 * HOUR_MS - since_hour) as u64)).await;
                }
                host.sleep(TWO_LOOKS).await;
                self.nothing_is_due(host)?;
            }
            Op::DeleteByHand => {
                self.model().by_hand = true;
                store.delete_expired_files();
                // More than a batch of files in one pass needs a second one.
                host.sleep(TWO_LOOKS).await;
                self.nothing_is_due(host)?;
            }
            Op::Fill { percent } => self.fill(host, (stand, node), store, percent).await?,
        }
        self.check(host, store).await
    }

    fn nothing_is_due(&self, host: &Host) -> Result<(), String> {
        let model = self.model();
        match model.has_expired(host.wall_ms()) {
            Some(true) => Err(format!("the file at {} was not deleted", model.start)),
            _ => Ok(()),
        }
    }

    async fn fill(
        &self,
        host: &Host,
        (stand, node): (&Stand, NodeId),
        store: &Store,
        percent: u8,
    ) -> Result<(), String> {
        let fill = |percent| {
            self.model().filled_percent = percent;
            stand.disk(node).fill_percent(percent);
        };
        fill(percent);
        host.sleep(TWO_LOOKS).await;
        self.nothing_is_due(host)?;
        if percent > 85 {
            let model = self.model();
            let left = model.records.last().map_or(0, |last| last.phy / LOG_FILE - model.start / LOG_FILE);
            if left > 0 && !store.max_phy().0.is_multiple_of(LOG_FILE) {
                return Err(format!("{left} files are left at {percent} %"));
            }
        }
        let text = self.text((0, 0), 10);
        match (store.put_when_ready(&text.draft()).await, percent > 90) {
            (Err(PutError::Blocked(WriteBlock::DiskFull { .. })), true) => {}
            (Ok(put), false) => {
                self.model().put(&put, (0, 0), text.number)?;
                self.acknowledge(store, put.end()).await?;
            }
            (result, _) => return Err(format!("{result:?} at {percent} %")),
        }
        self.check(host, store).await?;
        fill(0);
        host.sleep(TWO_LOOKS).await;
        self.put(store, (0, 0), 10).await.map(drop)
    }

    /// One life: opens, compares, does what it is to do, compares, and closes when it is asked to.
    async fn live(&self, host: &Host, on: (&Stand, NodeId), stop: StopSignal) -> Result<(), String> {
        let life = &self.lives[host.incarnation() as usize - 1];
        if life.ops.is_empty() {
            self.begun.notify_one();
        }
        let store = Store::open(config(self.sync)).await.map_err(|error| error.to_string())?;
        self.model().opened(store.min_phy().0, store.max_phy().0)?;
        self.check(host, &store).await?;
        for (number, op) in (1..).zip(&life.ops) {
            if number == life.ops.len() {
                self.begun.notify_one();
            }
            self.apply(host, on, &store, op).await.map_err(|error| format!("{op:?}: {error}"))?;
        }
        self.finished.notify_one();
        stop.requested().await;
        store.shutdown().await.map_err(|error| error.to_string())
    }

    /// Lets the lives follow each other, and audits what each clean stop leaves.
    async fn supervise(self: &Arc<Shared>, stand: &Stand, node: NodeId) {
        let (shared, of) = (Arc::clone(self), stand.clone());
        stand.start(node, move |host, stop| {
            let (shared, stand) = (Arc::clone(&shared), of.clone());
            async move { shared.live(&host, (&stand, node), stop).await }
        });
        for (number, life) in self.lives.iter().enumerate() {
            if number > 0 {
                stand.restart(node);
            }
            let moment = if life.end.after_us.is_some() { &self.begun } else { &self.finished };
            host::select! {
                () = moment.notified() => {}
                () = stand.ended(node) => {}
            }
            stand.sleep(Duration::from_micros(life.end.after_us.unwrap_or(0).into())).await;
            if !self.errors.lock().unwrap().is_empty() {
                return;
            }
            self.end(stand, node, &life.end, number).await;
            stand.disk(node).fill_percent(0);
        }
    }

    async fn end(&self, stand: &Stand, node: NodeId, end: &End, number: usize) {
        match end.how {
            How::Stop => {
                stand.stop(node, Duration::from_secs(100_000)).await;
                let image = stand.disk(node).sparse_image();
                let options = AuditOptions { dispatched: true, ..AuditOptions::of(&config(true)) };
                let found = audit(&StoreFiles(&image), &options).unwrap().findings;
                self.errors.lock().unwrap().extend(found.iter().map(|finding| format!("life {number}: {finding}")));
            }
            How::Kill => stand.kill(node),
            How::PowerLoss { survival } => {
                stand.power_loss(&[node], Outage { survival, garbage: false }, number as u64);
                self.model().is_shaken = true;
            }
            How::LoseQueues { topic: of } => {
                stand.kill(node);
                stand.disk(node).lose_files(&format!("/store/consumequeue/{}/*", topic(of)));
                self.model().lose_queues(of);
            }
            How::LoseIndex => {
                stand.kill(node);
                stand.disk(node).lose_files("/store/index/*");
            }
        }
        // What the life was about to do is not done.
        for left in [&self.begun, &self.finished] {
            left.notify_one();
            left.notified().await;
        }
    }
}

/// Runs lives, and tells what was wrong.
fn live(seed: u64, lives: Vec<Life>, sync: bool, durability: Durability) -> Vec<String> {
    let (begun, finished) = (Notify::new(), Notify::new());
    let last = Life { ops: vec![Op::Flush], end: End { how: How::Stop, after_us: None } };
    let lives = lives.into_iter().chain([last.clone(), last]).collect();
    let shared = Arc::new(Shared { lives, sync, model: Mutex::default(), errors: Mutex::default(), begun, finished });
    let observer: Arc<dyn Observer> = Arc::<Shared>::clone(&shared);
    let supervised = Arc::clone(&shared);
    let stand = StandConfig { limit: Duration::from_secs(100 * 24 * 3600), ..StandConfig::new(Seeds::from_root(seed)) };
    let run = run(stand, observer, move |stand| async move {
        let name = NodeSpec::new("broker-a/0", Ipv4Addr::new(10, 0, 0, 1));
        let node = stand.add_node(NodeSpec { disk_bytes: 4 << 20, durability, ..name }).unwrap();
        supervised.supervise(&stand, node).await;
    });
    let errors = std::mem::take(&mut *shared.errors.lock().unwrap());
    match run.ended {
        Ended::Finished(()) => errors,
        ended => errors.into_iter().chain([format!("{ended:?}")]).collect(),
    }
}

/// The disk is so full that files go at once, and the dispatcher has not passed the end of one that is full.
#[test]
fn a_file_stays_until_queues_have_its_messages() {
    let put = |count, body_bytes| Op::Put { queue: (0, 0), count, body_bytes };
    let end = |after_us| End { how: How::Stop, after_us };
    let lives = vec![
        Life { ops: vec![Op::Batch { queue: (0, 0), count: 1, body_bytes: 0 }, put(2, 0)], end: end(None) },
        Life { ops: vec![Op::Roll, put(8, 751), Op::Fill { percent: 88 }], end: end(Some(2520)) },
    ];
    assert_eq!(live(0, lives, true, Durability::Strict), Vec::<String>::new());
}

proptest! {
    #[test]
    fn whatever_happens_the_store_is_as_the_model_has_it(
        seed: u64,
        lives in lives(),
        sync: bool,
        durability in prop::sample::select(vec![
            Durability::Strict,
            Durability::OrderedJournal,
            Durability::DelayedAlloc,
            Durability::RevertOnError,
        ]),
    ) {
        let errors = live(seed, lives, sync, durability);
        prop_assert!(errors.is_empty(), "{errors:#?}");
    }
}
