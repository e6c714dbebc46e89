//! Every outcome of a crash of a small store: of all orders of up to four writes and two flushes, each page that was not
//! on disk is old, new or torn, each file that had no name yet is there or not, and what comes out is opened and
//! compared.
#![cfg(feature = "sim")]

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use host::{Host, fs::OpenOptions};
use message::{Draft, PhyOffset, QueueOffset, StoredMessage, SysFlag};
use sim::{
    disk::SparseImage,
    run::StoreFiles,
    seed::Seeds,
    stand::{Ended, NodeId, NodeSpec, Observer, Place, Stand, StandConfig, StopSignal, run},
};
use store::{
    Flushed, GetRequest, KeyQuery, Put, Store, StoreConfig,
    audit::{AuditOptions, audit},
};

const LOG_FILE: u64 = 8 << 10;
const PAGE: usize = 4096;
const SECTOR: usize = 512;
/// The number of the message that follows a crash.
const NEW: usize = 99;
const MOST_WRITES: usize = 4;
const MOST_FLUSHES: usize = 2;

/// What is done before the crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Write,
    Flush,
}

/// All orders of one to four writes and up to two flushes, of which none follows another.
fn orders() -> Vec<Vec<Op>> {
    let mut all = vec![Vec::new()];
    let mut from = 0;
    while from < all.len() {
        let order = all[from].clone();
        from += 1;
        let count = |wanted| order.iter().filter(|op| **op == wanted).count();
        if count(Op::Write) < MOST_WRITES {
            all.push([order.clone(), vec![Op::Write]].concat());
        }
        if count(Op::Flush) < MOST_FLUSHES && order.last() == Some(&Op::Write) {
            all.push([order, vec![Op::Flush]].concat());
        }
    }
    all.retain(|order| order.contains(&Op::Write));
    all
}

/// Nothing becomes durable by itself, so that a flush of the log is all that does.
fn config() -> StoreConfig {
    let never = Duration::from_secs(1 << 20);
    StoreConfig {
        commit_log_file_bytes: LOG_FILE,
        consume_queue_file_bytes: 2000,
        index_slots: 20,
        index_entries: 50,
        flush_interval: never,
        queue_flush_interval: never,
        ..StoreConfig::new("/store")
    }
}

/// What was written before the crash, and what is wrong after one.
#[derive(Default)]
struct Shared {
    puts: Mutex<Vec<Put>>,
    flushed: Mutex<u64>,
    errors: Mutex<Vec<String>>,
}

impl Observer for Shared {
    fn panicked(&self, _: &Stand, place: &Place, task: &'static str, message: &str) {
        self.errors.lock().unwrap().push(format!("life {} panicked in {task}: {message}", place.incarnation));
    }

    fn exited(&self, _: &Stand, place: &Place, result: &Result<(), String>) {
        let told = result.as_ref().err().map(|error| format!("life {}: {error}", place.incarnation));
        self.errors.lock().unwrap().extend(told);
    }
}

/// Message `number`: a record of about 2,100 bytes, so that the second one goes over the border of two pages, and the
/// fourth one is in the second file.
async fn put(store: &Store, number: usize) -> Result<Put, String> {
    let body = format!("{number} {}", "x".repeat(2000));
    let draft = Draft {
        topic: "t",
        queue_id: 0,
        flag: 0,
        sys_flag: SysFlag(0),
        born_ms: 1,
        born_host: "10.0.0.9:50000".parse().unwrap(),
        store_host: "10.0.0.1:10911".parse().unwrap(),
        reconsume_times: 0,
        prepared_phy: PhyOffset(0),
        body: body.as_bytes(),
        properties: &format!("KEYS\u{1}k{number}\u{2}"),
    };
    store.put_when_ready(&draft).await.map_err(|error| error.to_string())
}

async fn settle(host: &Host, store: &Store) {
    while store.dispatch_behind_bytes() > 0 {
        host.sleep(Duration::from_millis(1)).await;
    }
}

/// The life before the crash.
async fn before(host: &Host, shared: &Shared, order: &[Op]) -> Result<(), String> {
    let store = Store::open(config()).await.map_err(|error| error.to_string())?;
    for op in order {
        match op {
            Op::Write => {
                let number = shared.puts.lock().unwrap().len();
                let put = put(&store, number).await?;
                shared.puts.lock().unwrap().push(put);
            }
            Op::Flush => {
                assert_eq!(store.flush().await, Flushed::Done);
                *shared.flushed.lock().unwrap() = store.flushed_phy().0;
            }
        }
    }
    settle(host, &store).await;
    std::future::pending().await
}

/// A file after the crash: `None` if it has no name.
type Outcome = Option<Vec<u8>>;

/// What a crash may leave of one file, its present content, and what of it is on disk, if it has its name there.
fn outcomes_of(now: &[u8], durable: Option<&[u8]>) -> Vec<Outcome> {
    let mut found: Vec<Vec<u8>> = vec![now.to_vec()];
    let old = |at: usize| durable.and_then(|durable| durable.get(at)).copied().unwrap_or(0);
    for page in 0..now.len().div_ceil(PAGE) {
        let range = page * PAGE..now.len().min((page + 1) * PAGE);
        let sectors = range.clone().step_by(SECTOR).map(|start| start..(start + SECTOR).min(range.end));
        let changed: Vec<_> = sectors.filter(|sector| sector.clone().any(|at| now[at] != old(at))).collect();
        let revert = |content: &Vec<u8>, lost: &[std::ops::Range<usize>]| {
            let mut content = content.clone();
            lost.iter().cloned().flatten().for_each(|at| content[at] = old(at));
            content
        };
        if changed.is_empty() {
            continue;
        }
        let mut with_page = Vec::new();
        for content in &found {
            with_page.extend([content.clone(), revert(content, &changed)]);
            if changed.len() > 1 {
                // Torn in the middle of what was changed: one half is there, or the other.
                let (front, back) = changed.split_at(changed.len() / 2);
                with_page.extend([revert(content, back), revert(content, front)]);
            }
        }
        found = with_page;
    }
    let mut outcomes: Vec<Outcome> = found.into_iter().map(Some).collect();
    if durable.is_none() {
        outcomes.extend([None, Some(Vec::new())]);
    }
    outcomes
}

/// Everything that a crash may leave, as the choice of each file by its path.
fn outcomes(now: &BTreeMap<PathBuf, Vec<u8>>, durable: &BTreeMap<PathBuf, Vec<u8>>) -> Vec<BTreeMap<PathBuf, Outcome>> {
    let mut all = vec![BTreeMap::new()];
    for (path, content) in now {
        let of_file = outcomes_of(content, durable.get(path).map(Vec::as_slice));
        let with_file = |chosen: &BTreeMap<PathBuf, Outcome>| {
            let chosen = chosen.clone();
            of_file.clone().into_iter().map(move |outcome| {
                let mut chosen = chosen.clone();
                chosen.insert(path.clone(), outcome);
                chosen
            })
        };
        all = all.iter().flat_map(with_file).collect();
    }
    all
}

/// The life after one crash: a prefix of what was written is there, at least what was flushed, and nothing else; the
/// next message follows it.
async fn after(host: &Host, shared: &Shared, found: &BTreeMap<PathBuf, Outcome>) -> Result<(), String> {
    let files = host.files();
    for (path, content) in found.iter().filter_map(|(path, content)| Some((path, content.as_ref()?))) {
        files.create_dir_all(path.parent().unwrap()).await.unwrap();
        let file = files.open(path, OpenOptions::REPLACE).await.unwrap();
        file.write_all_at(content, 0).unwrap();
    }
    let mut puts = shared.puts.lock().unwrap().clone();
    let flushed = *shared.flushed.lock().unwrap();
    // As it was found, and once more with one message behind that.
    for is_new in [false, true] {
        let store = Store::open(config()).await.map_err(|error| error.to_string())?;
        settle(host, &store).await;
        let (end, count) = (store.max_phy().0, store.max_offset("t", 0).0 as usize);
        let left = puts.iter().take_while(|put| put.phy.0 < end).count();
        // A blank record may be there, and nothing behind it.
        let is_border = end.is_multiple_of(LOG_FILE) || puts.iter().any(|put| put.end().0 == end);
        if end < flushed || count != left || !is_border {
            return Err(format!("{count} messages up to {end}, flushed up to {flushed} of {puts:?}"));
        }
        puts.truncate(count);
        for number in 0..count {
            let body = if is_new && number + 1 == count { NEW } else { number };
            let request = GetRequest {
                topic: "t",
                queue_id: 0,
                offset: QueueOffset(number as u64),
                max_count: 1,
                max_bytes: 1 << 20,
                filter: None,
            };
            let read = store.get(&request).records.remove(0);
            let message = StoredMessage::decode_all(read).unwrap().remove(0);
            let key = format!("k{body}");
            let query = KeyQuery { topic: "t", key: &key, max_count: 8, begin_ms: 0, end_ms: i64::MAX };
            let by_key = store.query(&query).records.len();
            if !message.message.body.starts_with(format!("{body} ").as_bytes()) || by_key != 1 {
                return Err(format!("at {number} is {message:?}, {by_key} messages have its key"));
            }
        }
        if !is_new {
            let next = put(&store, NEW).await?;
            if next.queue_offset.0 != count as u64 {
                return Err(format!("the next message of {count} got {:?}", next.queue_offset));
            }
            puts.push(next);
        }
        store.shutdown().await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn content(image: &sim::disk::Image) -> BTreeMap<PathBuf, Vec<u8>> {
    let of_store = |(path, content): (&Path, &[u8])| (path.to_owned(), content.to_vec());
    // The lock has no content that anybody reads.
    image.files().map(of_store).filter(|(path, _)| !path.ends_with("lock")).collect()
}

/// Crashes after one order of operations, in every way; how many there are.
fn crash_after(order: Vec<Op>) -> usize {
    let shared = Arc::new(Shared::default());
    let observer: Arc<dyn Observer> = Arc::<Shared>::clone(&shared);
    let stand = StandConfig { limit: Duration::from_secs(100_000), ..StandConfig::new(Seeds::from_root(7)) };
    let (told, shown) = (Arc::clone(&shared), order.clone());
    let run = run(stand, observer, move |stand| async move {
        let add = |name: &str, last| {
            let spec = NodeSpec { disk_bytes: 4 << 20, ..NodeSpec::new(name, Ipv4Addr::new(10, 0, 0, last)) };
            stand.add_node(NodeSpec { timing: sim::disk::Timing::Instant, ..spec }).unwrap()
        };
        let (first, second) = (add("before/0", 1), add("after/0", 2));
        let shared = Arc::clone(&told);
        stand.start(first, move |host, _: StopSignal| {
            let (shared, order) = (Arc::clone(&shared), order.clone());
            async move { before(&host, &shared, &order).await }
        });
        // Shorter than the time after which dirty pages are written back.
        stand.sleep(Duration::from_millis(900)).await;
        let (now, durable) = images(&stand, first);
        let all = outcomes(&now, &durable);
        let count = all.len();
        for found in all {
            stand.disk(second).replace();
            let (shared, found) = (Arc::clone(&told), Arc::new(found));
            let described = describe(&found, &now);
            stand.start(second, move |host, _: StopSignal| {
                let (shared, found) = (Arc::clone(&shared), Arc::clone(&found));
                async move { after(&host, &shared, &found).await }
            });
            stand.ended(second).await;
            let unsound = unsound(&stand.disk(second).sparse_image());
            let mut errors = told.errors.lock().unwrap();
            errors.extend(unsound);
            if !errors.is_empty() {
                errors.push(described);
                break;
            }
        }
        count
    });
    let errors = shared.errors.lock().unwrap();
    assert!(errors.is_empty(), "{shown:?}: {errors:#?}");
    let Ended::Finished(count) = run.ended else { panic!("{:?}", run.ended) };
    count
}

fn images(stand: &Stand, node: NodeId) -> (BTreeMap<PathBuf, Vec<u8>>, BTreeMap<PathBuf, Vec<u8>>) {
    let disk = stand.disk(node);
    (content(&disk.image()), content(&disk.durable_image(stand.now().as_nanos() as u64)))
}

/// Which files are how, in one line.
fn describe(found: &BTreeMap<PathBuf, Outcome>, now: &BTreeMap<PathBuf, Vec<u8>>) -> String {
    let of_file = |(path, outcome): (&PathBuf, &Outcome)| match outcome {
        None => format!("{} missing", path.display()),
        Some(content) if content == &now[path] => format!("{} new", path.display()),
        Some(content) => {
            let same = content.iter().zip(&now[path]).take_while(|(a, b)| a == b).count();
            format!("{} of {} bytes, other from {same} on", path.display(), content.len())
        }
    };
    found.iter().map(of_file).collect::<Vec<_>>().join("; ")
}

/// What is wrong with a store that was closed.
fn unsound(image: &SparseImage) -> Vec<String> {
    let options = AuditOptions { dispatched: true, ..AuditOptions::of(&config()) };
    audit(&StoreFiles(image), &options).unwrap().findings.iter().map(ToString::to_string).collect()
}

#[test]
fn every_outcome_of_a_crash_of_a_small_store_is_recovered() {
    let orders = orders();
    assert_eq!(orders.len(), 24, "of up to four writes, with a flush behind none, one or two of them");
    let mut outcomes = 0;
    for order in orders {
        outcomes += crash_after(order);
    }
    assert!(outcomes > 2_000, "{outcomes}");
}
