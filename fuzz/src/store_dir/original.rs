//! The stores that are damaged.

use std::{collections::BTreeMap, path::Path, sync::OnceLock};

use store::{Flushed, Store};

use super::{
    config,
    damage::{Node, Tree},
    draft, folder,
};

/// Messages in each store.
const MESSAGES: u32 = 120;

/// The bytes of a checkpoint that the reference writes; those behind it are ours.
const REFERENCE_BYTES: usize = 40;

/// A store before any damage.
pub(super) struct Original {
    pub(super) tree: Tree,
    /// Every message, in the order of the log. All were acknowledged after they were on disk.
    pub(super) kept: Vec<Kept>,
    /// All that stands in the log, by position: whole records, and the heads of blank ones.
    pub(super) pieces: BTreeMap<u64, Vec<u8>>,
    /// Whether its checkpoint says up to where the log was on disk.
    pub(super) knows: bool,
}

/// A message.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) topic: String,
    pub(super) queue_id: u32,
    pub(super) offset: u64,
    pub(super) phy: u64,
    pub(super) record: Vec<u8>,
}

impl Kept {
    pub(super) fn place(&self) -> (String, u32, u64) {
        (self.topic.clone(), self.queue_id, self.offset)
    }
}

/// One that was closed, one that was not, and the same two as the reference leaves them. All have the same messages.
pub(super) fn originals() -> &'static [Original; 4] {
    static ORIGINALS: OnceLock<[Original; 4]> = OnceLock::new();
    ORIGINALS.get_or_init(|| {
        let folder = folder();
        let root = folder.path().join("store");
        let config = config(&root);
        let made = host::real::run("fuzz", |_| async move {
            let store = Store::open(config.clone()).await.expect("a new store opens");
            let mut kept = Vec::new();
            for number in 0..MESSAGES {
                kept.push(put(&store, number).await);
            }
            // Longer than the checkpointer pauses; how far it came does not matter.
            host::Host::current().sleep(config.queue_flush_interval * 20).await;
            let killed = Tree::read(&config.root);
            store.shutdown().await.expect("it closes");
            (kept, killed, Tree::read(&config.root))
        });
        let (kept, killed, closed) = made.expect("nothing panics");
        let by_reference = |tree: &Tree| {
            let mut tree = tree.clone();
            if let Some(Node::File(checkpoint)) = tree.0.get_mut(Path::new("checkpoint")) {
                checkpoint[REFERENCE_BYTES..].fill(0);
            }
            tree
        };
        [(closed.clone(), true), (killed.clone(), true), (by_reference(&closed), false), (by_reference(&killed), false)]
            .map(|(tree, knows)| Original { pieces: pieces(&tree), kept: kept.clone(), tree, knows })
    })
}

async fn put(store: &Store, number: u32) -> Kept {
    let (topic, queue_id) = (if number.is_multiple_of(3) { "TopicA" } else { "TopicB" }, number % 2);
    let body = format!("message {number} {}", "x".repeat(number as usize % 50));
    let put = store.put_when_ready(&draft(topic, queue_id, &body)).await.expect("it is taken");
    assert_eq!(store.durability(put.end()).await, Flushed::Done);
    let record = store.record_at(put.phy).expect("it is there").to_vec();
    Kept { topic: topic.to_owned(), queue_id, offset: put.queue_offset.0, phy: put.phy.0, record }
}

/// Walks through the log by the sizes in it. Source: `spec/store.md` 2.1 and 2.2.
fn pieces(tree: &Tree) -> BTreeMap<u64, Vec<u8>> {
    const BLANK: [u8; 4] = [0xcb, 0xd4, 0x31, 0x94];
    let mut pieces = BTreeMap::new();
    for (path, node) in &tree.0 {
        let Node::File(bytes) = node else { continue };
        let Ok(name) = path.strip_prefix("commitlog") else { continue };
        let start: u64 = name.to_str().and_then(|name| name.parse().ok()).expect("20 digits");
        let mut at = 0;
        while let Some(size) = bytes.get(at..at + 4).map(|size| u32::from_be_bytes(size.try_into().expect("4 bytes")))
            && size > 0
        {
            let is_blank = bytes[at + 4..at + 8] == BLANK;
            let end = at + if is_blank { 8 } else { size as usize };
            pieces.insert(start + at as u64, bytes[at..end].to_vec());
            at += size as usize;
        }
    }
    pieces
}
