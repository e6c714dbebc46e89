//! The directory of a store, damaged: it is refused with a reason and its log left as it is, or it opens, gives each
//! message that the damage left whole, takes new ones, and opens again. It never panics and never hangs.
//!
//! A message may only be lost with a part of the log that lies before it, and only if the checkpoint does not say that
//! this part was on disk; or in front of a hole in a log that the reference wrote and did not close.
//!
//! The input says how a store is damaged: which of four stores, and a list of operations; see [`damage`].

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use host::Host;
use message::{Draft, PhyOffset, QueueOffset, RecordView, StoredMessage, SysFlag};
use store::{FlushDiskType, Flushed, GetRequest, KeyQuery, Store, StoreConfig, StoreError, audit};

mod damage;
mod original;

use damage::Tree;
use original::{Kept, Original, originals};

/// Nothing that a store of this size does takes as long.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Length of a file of the log.
const LOG_FILE_BYTES: u64 = 4096;

/// Reads of one queue; each gives at least one message or passes over a file.
const READS_MAX: usize = 2_000;

/// Checks one input.
pub fn check(data: &[u8]) {
    let (&choice, operations) = data.split_first().unwrap_or((&0, &[]));
    let original = &originals()[usize::from(choice) % originals().len()];
    let mut tree = original.tree.clone();
    damage::apply(&mut tree, operations);
    let damage = tree.differences(&original.tree);
    audit::audit(&tree, &audit::AuditOptions::default()).expect("a tree in memory can be read");
    let folder = folder();
    let root = folder.path().join("store");
    tree.write(&root);
    let lives = lives(config(&root), original, tree);
    if let Err(error) = host::real::run("fuzz", |host| in_time(host, lives)) {
        panic!("{error}\nStore {}: {damage}", usize::from(choice) % originals().len());
    }
}

/// A directory for a store, in memory if the machine has a place for that: nobody takes the power away here.
pub(super) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory for a store")
}

pub(super) async fn in_time(host: Host, work: impl Future<Output = ()>) {
    host::select! {
        () = work => {}
        () = host.sleep(TIME_MAX) => panic!("it hangs"),
    }
}

/// Small files, so that a few messages cross their borders.
fn config(root: &Path) -> StoreConfig {
    StoreConfig {
        commit_log_file_bytes: LOG_FILE_BYTES,
        consume_queue_file_bytes: 400,
        index_slots: 10,
        index_entries: 40,
        flush_disk_type: FlushDiskType::Sync,
        queue_flush_interval: Duration::from_millis(1),
        ..StoreConfig::new(root)
    }
}

/// Opens the damaged store, uses it, and opens it again.
async fn lives(config: StoreConfig, original: &'static Original, tree: Tree) {
    let store = match Store::open(config.clone()).await {
        Ok(store) => store,
        Err(error) => return refused(&error, &config.root, original, &tree),
    };
    let mut content = Content::of(&store);
    for kept in must_be_kept(original, &tree) {
        let given = content.messages.get(&kept.place());
        let Kept { topic, queue_id, offset, phy, record } = kept;
        assert!(
            given == Some(record),
            "{offset} of {topic}/{queue_id} at {phy} is lost, though nothing is wrong with it"
        );
    }
    for kept in original.kept.iter().take(3) {
        if let Some(put) = put(&store, kept).await {
            content.messages.insert((kept.topic.clone(), kept.queue_id, put.queue_offset.0), put.record);
        }
    }
    store.shutdown().await.expect("it closes");
    let store = Store::open(config).await.expect("what was closed opens");
    let again = Content::of(&store);
    for (place, record) in &content.messages {
        assert_eq!(again.messages.get(place), Some(record), "{place:?} changed from one life to the next");
    }
    store.shutdown().await.expect("it closes");
}

/// A refusal has a reason, and takes nothing that could be given.
fn refused(error: &StoreError, root: &Path, original: &Original, tree: &Tree) {
    assert!(!error.to_string().is_empty());
    let after = Tree::read(root);
    let lost: Vec<u64> =
        must_be_kept(original, tree).filter(|kept| !after.holds(kept.phy, &kept.record)).map(|kept| kept.phy).collect();
    assert!(lost.is_empty(), "{lost:?} are gone, though: {error}");
    if !matches!(error, StoreError::Io { .. }) {
        for (path, node) in tree.0.iter().filter(|(path, _)| path.starts_with("commitlog")) {
            assert!(after.0.get(path) == Some(node), "{} changed, though: {error}", path.display());
        }
    }
}

/// What a consumer gets from a store.
struct Content {
    /// The records, by topic, queue and offset.
    messages: BTreeMap<(String, u32, u64), Vec<u8>>,
}

impl Content {
    fn of(store: &Store) -> Content {
        let mut messages = BTreeMap::new();
        for (topic, queues) in store.queues() {
            for queue_id in queues {
                read_queue(store, &topic, queue_id, &mut messages);
            }
            let query = KeyQuery { topic: &topic, key: "k1", max_count: 64, begin_ms: 0, end_ms: i64::MAX };
            for record in store.query(&query).records {
                let found = StoredMessage::decode_all(record).expect("a whole record").remove(0);
                assert_eq!(found.message.topic, topic);
            }
        }
        Content { messages }
    }
}

fn read_queue(store: &Store, topic: &str, queue_id: u32, messages: &mut BTreeMap<(String, u32, u64), Vec<u8>>) {
    let mut offset = store.min_offset(topic, queue_id);
    for _ in 0..READS_MAX {
        if offset >= store.max_offset(topic, queue_id) {
            return;
        }
        let request = GetRequest { topic, queue_id, offset, max_count: 32, max_bytes: 1 << 20, filter: None };
        let result = store.get(&request);
        assert!(result.next > offset, "a consumer does not get beyond {offset:?} of {topic}/{queue_id}: {result:?}");
        for records in result.records {
            let mut at = 0;
            for message in StoredMessage::decode_all(records.clone()).expect("whole records") {
                let size = u32::from_be_bytes(records[at..at + 4].try_into().expect("4 bytes")) as usize;
                assert_eq!((message.message.topic.as_str(), message.queue_id), (topic, queue_id), "of another queue");
                assert!(message.queue_offset >= offset && message.queue_offset < result.next, "{message:?}");
                let place = (topic.to_owned(), queue_id, message.queue_offset.0);
                let before = messages.insert(place, records[at..at + size].to_vec());
                assert!(before.is_none(), "given twice: {message:?}");
                at += size;
            }
        }
        offset = result.next;
    }
    panic!("{topic}/{queue_id} does not end");
}

/// A message that was put.
struct Added {
    queue_offset: QueueOffset,
    record: Vec<u8>,
}

/// Puts a message that must be readable as soon as it is acknowledged; `None` if the store refuses.
async fn put(store: &Store, like: &Kept) -> Option<Added> {
    let put = store.put_when_ready(&draft(&like.topic, like.queue_id, "again")).await.ok()?;
    if store.durability(put.end()).await != Flushed::Done {
        return None;
    }
    let record = store.record_at(put.phy).expect("it was acknowledged").to_vec();
    Some(Added { queue_offset: put.queue_offset, record })
}

fn draft<'a>(topic: &'a str, queue_id: u32, body: &'a str) -> Draft<'a> {
    Draft {
        topic,
        queue_id,
        flag: 0,
        sys_flag: SysFlag(0),
        born_ms: 1,
        born_host: "10.0.0.9:50000".parse().expect("an address"),
        store_host: "10.0.0.1:10911".parse().expect("an address"),
        reconsume_times: 0,
        prepared_phy: PhyOffset(0),
        body: body.as_bytes(),
        properties: "TAGS\u{1}t\u{2}KEYS\u{1}k1 k2\u{2}",
    }
}

/// The messages that are whole, and that nothing in the log stands in the way of: no break, no hole, and no record whose
/// damage gave it their place, which the format has no means to tell.
fn must_be_kept<'a>(original: &'a Original, tree: &'a Tree) -> impl Iterator<Item = &'a Kept> + use<'a> {
    let vouched = original.knows && tree.0.get(Path::new("checkpoint")) == original.tree.0.get(Path::new("checkpoint"));
    let damaged = || original.pieces.iter().filter(|(phy, bytes)| !tree.holds(**phy, bytes));
    let cut = damaged().next().filter(|_| !vouched).map_or(u64::MAX, |(phy, _)| *phy);
    let hole = if vouched || !tree.0.contains_key(Path::new("abort")) { 0 } else { last_hole(tree) };
    let taken: BTreeSet<_> = damaged().filter_map(|(phy, _)| place_of(tree.rest_of_file(*phy)?)).collect();
    original.kept.iter().filter(move |kept| {
        (hole..cut).contains(&kept.phy) && tree.holds(kept.phy, &kept.record) && !taken.contains(&kept.place())
    })
}

/// The place that a record claims.
fn place_of(bytes: &[u8]) -> Option<(String, u32, u64)> {
    let view = RecordView::parse(bytes).ok()?;
    Some((view.topic.to_owned(), view.queue_id, view.queue_offset.0))
}

/// Where the files of the log begin that are behind its last hole.
fn last_hole(tree: &Tree) -> u64 {
    let starts: BTreeSet<u64> =
        tree.0.keys().filter_map(|path| path.strip_prefix("commitlog").ok()?.to_str()?.parse().ok()).collect();
    let is_behind_hole = |start: &&u64| **start > 0 && !starts.contains(&start.saturating_sub(LOG_FILE_BYTES));
    starts.iter().rfind(is_behind_hole).copied().unwrap_or(0)
}
