//! Random lives of a store against a list of what was put: appends, flushes, clean exits, kills, losses of power with
//! any choice of sectors, and queues and index files that vanish.

mod support;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use message::{PhyOffset, QueueOffset, StoredMessage};
use proptest::prelude::*;
use staticfire_store::{FlushDiskType, Flushed, Store, StoreConfig};
use support::{Text, config, copy_dir, find, on_machine, read_all, settle};

#[derive(Debug, Clone)]
enum Op {
    Put {
        topic: u32,
        queue_id: u32,
        count: u32,
    },
    Batch {
        topic: u32,
        queue_id: u32,
        count: u32,
    },
    Flush,
    CleanRestart,
    Kill,
    /// Every sector that was not on disk is lost or kept by the next bit.
    PowerLoss {
        bits: u64,
    },
    LoseQueues {
        topic: u32,
    },
    LoseIndex {
        nth: usize,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let place = (0..3_u32, 0..2_u32);
    let op = prop_oneof![
        6 => (place.clone(), 1..40_u32).prop_map(|((topic, queue_id), count)| Op::Put { topic, queue_id, count }),
        2 => (place, 1..20_u32).prop_map(|((topic, queue_id), count)| Op::Batch { topic, queue_id, count }),
        2 => Just(Op::Flush),
        1 => Just(Op::CleanRestart),
        1 => Just(Op::Kill),
        3 => any::<u64>().prop_map(|bits| Op::PowerLoss { bits }),
        1 => (0..3_u32).prop_map(|topic| Op::LoseQueues { topic }),
        1 => (0..9_usize).prop_map(|nth| Op::LoseIndex { nth }),
    ];
    prop::collection::vec(op, 1..16)
}

/// What must be there, and what is.
struct Life {
    dir: PathBuf,
    store: Store,
    sync: bool,
    /// In the order of the log.
    put: Vec<(PhyOffset, String, u32, QueueOffset, String)>,
    /// Everything before was on disk when the store was opened.
    opened_at: PhyOffset,
    /// The index files as they were then, which are on disk.
    index_at_open: BTreeMap<PathBuf, Vec<u8>>,
    generation: u32,
    number: u32,
}

/// Nothing becomes durable in the background, so that the test knows what is.
fn quiet(dir: &Path, sync: bool) -> StoreConfig {
    let never = Duration::from_secs(1 << 20);
    StoreConfig {
        flush_disk_type: if sync { FlushDiskType::Sync } else { FlushDiskType::Async },
        flush_interval: never,
        queue_flush_interval: never,
        ..config(dir)
    }
}

impl Life {
    async fn apply(&mut self, op: &Op) {
        match *op {
            Op::Put { topic, queue_id, count } => {
                for text in self.texts(topic, queue_id, count) {
                    let put = self.store.put_when_ready(&text.draft()).await.unwrap();
                    self.put.push((put.phy, text.topic, queue_id, put.queue_offset, text.body));
                }
                self.acknowledge().await;
            }
            Op::Batch { topic, queue_id, count } => {
                let texts = self.texts(topic, queue_id, count);
                let drafts: Vec<_> = texts.iter().map(Text::draft).collect();
                let put = self.store.put_batch_when_ready(&drafts).await.unwrap();
                for (put, text) in put.puts.into_iter().zip(texts) {
                    self.put.push((put.phy, text.topic, queue_id, put.queue_offset, text.body));
                }
                self.acknowledge().await;
            }
            Op::Flush => assert_eq!(self.store.flush().await, Flushed::Done),
            Op::CleanRestart => {
                self.store.shutdown().await.unwrap();
                self.open(self.dir.clone()).await;
            }
            Op::Kill => {
                settle(&self.store).await;
                let copy = self.copy();
                self.open(copy).await;
            }
            Op::PowerLoss { bits } => {
                settle(&self.store).await;
                let flushed = self.store.flushed_phy();
                let copy = self.copy();
                lose_sectors(&copy, flushed, self.opened_at, bits);
                lose_index_sectors(&copy, &self.index_at_open, bits);
                self.open(copy).await;
                let end = self.store.max_phy();
                assert!(end >= flushed, "{end:?} is left of {flushed:?}");
                self.put.retain(|(phy, ..)| *phy < end);
            }
            Op::LoseIndex { nth } => {
                self.store.shutdown().await.unwrap();
                if let Some(file) = files(&self.dir.join("index")).get(nth) {
                    fs::remove_file(file).unwrap();
                }
                self.open(self.dir.clone()).await;
            }
            Op::LoseQueues { topic } => {
                self.store.shutdown().await.unwrap();
                let queues = self.dir.join(format!("consumequeue/topic{topic}"));
                if queues.exists() {
                    fs::remove_dir_all(queues).unwrap();
                }
                self.open(self.dir.clone()).await;
            }
        }
    }

    fn texts(&mut self, topic: u32, queue_id: u32, count: u32) -> Vec<Text> {
        let from = self.number;
        self.number += count;
        (from..from + count).map(|number| Text::new(&format!("topic{topic}"), queue_id, number)).collect()
    }

    async fn acknowledge(&self) {
        assert_eq!(self.store.durability(self.store.max_phy()).await, Flushed::Done);
        if self.sync {
            assert_eq!(self.store.flushed_phy(), self.store.max_phy());
        }
    }

    /// A copy of the directory: what another process would find.
    fn copy(&mut self) -> PathBuf {
        self.generation += 1;
        let copy = self.dir.with_extension(self.generation.to_string());
        copy_dir(&self.dir, &copy);
        copy
    }

    async fn open(&mut self, dir: PathBuf) {
        self.store = Store::open(quiet(&dir, self.sync)).await.unwrap();
        self.dir = dir;
        self.opened_at = self.store.max_phy();
        self.index_at_open = index_contents(&self.dir);
    }

    /// The queues hold exactly what was put and is left, each message at the offset that was answered, and each of them
    /// is found by its key.
    async fn check(&self) {
        settle(&self.store).await;
        for (phy, topic, .., body) in &self.put {
            let key = format!("k{}", body.split(' ').nth(1).unwrap());
            assert_eq!(find(&self.store, topic, &key), [*phy], "{key}");
        }
        for topic in 0..3 {
            for queue_id in 0..2 {
                let topic = format!("topic{topic}");
                let expected: Vec<_> =
                    self.put.iter().filter(|(_, t, q, ..)| (t, *q) == (&topic, queue_id)).cloned().collect();
                let found: Vec<_> = read_all(&self.store, &topic, queue_id).into_iter().map(as_put).collect();
                assert_eq!(found, expected);
                assert!(found.iter().enumerate().all(|(index, put)| put.3.0 == index as u64));
            }
        }
    }
}

fn as_put(message: StoredMessage) -> (PhyOffset, String, u32, QueueOffset, String) {
    let body = String::from_utf8(message.message.body.to_vec()).unwrap();
    (message.phy, message.message.topic, message.queue_id, message.queue_offset, body)
}

/// Loses sectors of the log behind `flushed`, and of all queue files that have entries of records behind `opened_at`.
fn lose_sectors(dir: &Path, flushed: PhyOffset, opened_at: PhyOffset, mut bits: u64) {
    let mut lose = || {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bits >> 62 == 0
    };
    for path in files(&dir.join("commitlog")) {
        let start: u64 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let len = fs::metadata(&path).unwrap().len();
        let from = flushed.0.saturating_sub(start).min(len);
        zero_sectors(&path, from, len, &mut lose);
    }
    for path in files(&dir.join("consumequeue")) {
        let content = fs::read(&path).unwrap();
        let (entries, _) = content.as_chunks::<20>();
        let is_new = |entry: &[u8; 20]| u64::from_be_bytes(entry[..8].try_into().unwrap()) >= opened_at.0;
        if let Some(first) = entries.iter().position(is_new) {
            zero_sectors(&path, first as u64 * 20, content.len() as u64, &mut lose);
        }
    }
}

/// The index files below a directory, by their names.
fn index_contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let read = |path: PathBuf| (PathBuf::from(path.file_name().unwrap()), fs::read(path).unwrap());
    files(&dir.join("index")).into_iter().map(read).collect()
}

/// Of what was written into index files since they were on disk, each sector, length and name may be lost.
fn lose_index_sectors(dir: &Path, on_disk: &BTreeMap<PathBuf, Vec<u8>>, mut bits: u64) {
    let mut lose = |one_in: u64| {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (bits >> 32).is_multiple_of(one_in)
    };
    for path in files(&dir.join("index")) {
        let mut content = fs::read(&path).unwrap();
        match on_disk.get(Path::new(path.file_name().unwrap())) {
            None if lose(3) => fs::remove_file(&path).unwrap(),
            None if lose(3) => fs::write(&path, []).unwrap(),
            old => {
                let old = old.cloned().unwrap_or_else(|| vec![0; content.len()]);
                for (new, old) in content.chunks_mut(512).zip(old.chunks(512)).filter(|_| lose(2)) {
                    new.copy_from_slice(old);
                }
                fs::write(&path, content).unwrap();
            }
        }
    }
}

fn zero_sectors(path: &Path, from: u64, to: u64, lose: &mut impl FnMut() -> bool) {
    let mut content = fs::read(path).unwrap();
    for sector in from / 512..to.div_ceil(512) {
        let (from, to) = (from.max(sector * 512), to.min(sector * 512 + 512));
        if lose() {
            content[from as usize..to as usize].fill(0);
        }
    }
    fs::write(path, content).unwrap();
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { all.extend(files(&path)) } else { all.push(path) }
    }
    all.sort();
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_queues_hold_what_was_put(ops in ops(), sync: bool) {
        on_machine(move |dir| async move {
            let store = Store::open(quiet(&dir, sync)).await.unwrap();
            let (put, opened_at, index_at_open) = (vec![], PhyOffset(0), BTreeMap::new());
            let mut life = Life { dir, store, sync, put, opened_at, index_at_open, generation: 0, number: 0 };
            for op in &ops {
                life.apply(op).await;
                life.check().await;
            }
        });
    }
}
