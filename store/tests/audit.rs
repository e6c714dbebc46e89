//! The offline audit: it says nothing about good stores, and names every planted damage.

mod support;

use std::path::{Path, PathBuf};

use staticfire_store::{
    Store,
    audit::{Audit, AuditOptions, audit},
};
use support::{Dir, Text, config, copy_dir, on_machine, settle};

fn look(root: &Path) -> Audit {
    audit_with(root, &of_config())
}

fn audit_with(root: &Path, options: &AuditOptions) -> Audit {
    audit(&Dir(root.to_owned()), options).unwrap()
}

/// How the stores of these tests are configured.
fn of_config() -> AuditOptions {
    AuditOptions::of(&config(Path::new("")))
}

/// A closed store whose log has several files and whose queues have some, too.
async fn filled(root: &Path) {
    let store = Store::open(config(root)).await.unwrap();
    for number in 0..600 {
        let topic = if number % 3 == 0 { "TopicA" } else { "TopicB" };
        store.put_when_ready(&Text::new(topic, number % 2, number).draft()).await.unwrap();
    }
    settle(&store).await;
    store.shutdown().await.unwrap();
}

fn findings(audit: &Audit) -> Vec<String> {
    audit.findings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_good_store_has_no_findings() {
    on_machine(|root| async move {
        filled(&root).await;
        let audit = look(&root);
        assert_eq!(findings(&audit), Vec::<String>::new());
        assert_eq!((audit.records, audit.entries, audit.not_dispatched), (600, 600, 0));
        assert_eq!((audit.queues, audit.is_clean), (4, true));
        assert!(audit.log_files > 2, "{audit:?}");
        // The next life adds to it, and a log that lost its first files is as good.
        let store = Store::open(config(&root)).await.unwrap();
        store.put_when_ready(&Text::new("TopicA", 0, 1).draft()).await.unwrap();
        settle(&store).await;
        assert!(!look(&root).is_clean);
        store.shutdown().await.unwrap();
        std::fs::remove_file(root.join("commitlog/00000000000000000000")).unwrap();
        // Nor does a next file count that was only begun.
        std::fs::write(root.join("commitlog/00000000000000999424"), "").unwrap();
        let audit = look(&root);
        assert_eq!(findings(&audit), Vec::<String>::new());
        assert_eq!(audit.log_start, 16 << 10);
        assert_eq!(audit.entries, 601);
    });
}

#[test]
fn records_without_entries_are_no_damage_before_recovery() {
    on_machine(|root| async move {
        filled(&root).await;
        std::fs::write(root.join("abort"), "1").unwrap();
        for file in std::fs::read_dir(root.join("consumequeue/TopicA/0")).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
        let audit = look(&root);
        assert_eq!(findings(&audit), Vec::<String>::new());
        assert_eq!(audit.not_dispatched, 100);
        let strict = AuditOptions { dispatched: true, ..of_config() };
        let strict = audit_with(&root, &strict);
        assert_eq!(strict.count, 100, "{:#?}", findings(&strict));
    });
}

/// A damage, and the places at which the audit must name it: file, and byte in it.
struct Damage {
    name: &'static str,
    plant: Box<dyn Fn(&Path)>,
    expected: Vec<(String, Option<u64>)>,
}

fn flip(path: &str, at: u64) -> Box<dyn Fn(&Path)> {
    let path = path.to_owned();
    Box::new(move |root| {
        let path = root.join(&path);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at as usize] ^= 0x41;
        std::fs::write(path, bytes).unwrap();
    })
}

/// Where records begin in the first file of the log, as their own sizes say.
fn records_of_first_file(root: &Path) -> Vec<u64> {
    let bytes = std::fs::read(root.join(LOG_0)).unwrap();
    let mut starts = Vec::new();
    let mut at = 0_usize;
    while bytes[at + 4..at + 8] == [0xDA, 0xA3, 0x20, 0xA7] {
        starts.push(at as u64);
        at += u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    }
    starts
}

const LOG_0: &str = "commitlog/00000000000000000000";
const LOG_1: &str = "commitlog/00000000000000016384";
const QUEUE_0: &str = "consumequeue/TopicB/1/00000000000000000000";
/// 20 slots of 4 bytes behind a header of 40; entries of 20 bytes behind them. `spec/store.md` 6.1.
const INDEX_ENTRY_1: u64 = 40 + 20 * 4 + 20;
const QUEUE_1: &str = "consumequeue/TopicB/1/00000000000000002000";

/// One in each part of the first index file.
fn index_damages(root: &Path) -> Vec<Damage> {
    let index = std::fs::read_dir(root.join("index")).unwrap().map(|entry| entry.unwrap().file_name()).min().unwrap();
    let index = format!("index/{}", index.to_str().unwrap());
    let bytes = std::fs::read(root.join(&index)).unwrap();
    let used_slot = (0..20).find(|slot| bytes[40 + slot * 4 + 3] != 0).unwrap() as u64;
    let parts = [
        ("begin time of an index file", 7, 0),
        ("end time", 15, 8),
        ("first position", 23, 16),
        ("last position", 31, 24),
        ("used slots", 35, 32),
        ("slot", 40 + used_slot * 4 + 3, 40 + used_slot * 4),
        ("hash of an entry", INDEX_ENTRY_1 + 3, INDEX_ENTRY_1),
        ("position of an entry", INDEX_ENTRY_1 + 11, INDEX_ENTRY_1),
        ("age of an entry", INDEX_ENTRY_1 + 14, INDEX_ENTRY_1),
        ("link of an entry", INDEX_ENTRY_1 + 18, INDEX_ENTRY_1),
    ];
    let flips = parts.map(|(name, byte, at)| Damage {
        name,
        plant: flip(&index, byte),
        expected: vec![(index.clone(), Some(at))],
    });
    let count = Damage { name: "count of entries", plant: flip(&index, 38), expected: vec![(index.clone(), Some(36))] };
    let whole = index.clone();
    let cut = Damage {
        name: "index file cut",
        plant: Box::new(move |root| cut(&root.join(&whole), 1_000)),
        expected: vec![(index, None)],
    };
    flips.into_iter().chain([count, cut]).collect()
}

/// In each part of the checkpoint: `spec/store.md` 4.6.
fn checkpoint_damages() -> Vec<Damage> {
    const CHECKPOINT: &str = "checkpoint";
    let at = |name, byte: u64, expected: u64| Damage {
        name,
        plant: flip(CHECKPOINT, byte),
        expected: vec![(CHECKPOINT.to_owned(), Some(expected))],
    };
    let number = |name, at: usize, number: i64| Damage {
        name,
        plant: Box::new(move |root| {
            let path = root.join(CHECKPOINT);
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[at..at + 8].copy_from_slice(&number.to_be_bytes());
            std::fs::write(path, bytes).unwrap();
        }),
        expected: vec![(CHECKPOINT.to_owned(), Some(at as u64))],
    };
    vec![
        at("time of the log in the checkpoint", 1, 0),
        at("time of the queues", 9, 8),
        at("time of the index", 17, 16),
        number("time below zero", 0, -1),
        number("position of the master", 24, -2),
        number("confirmed position", 32, i64::MIN),
        at("first slot", 512 + 30, 512),
        at("second slot", 1024 + 100, 1024),
        at("between the parts", 2000, 2000),
        Damage {
            name: "checkpoint cut",
            plant: Box::new(|root| cut(&root.join(CHECKPOINT), 1000)),
            expected: vec![(CHECKPOINT.to_owned(), None)],
        },
        Damage {
            name: "last file of the log gone after a clean exit",
            plant: Box::new(|root| {
                let files: Vec<_> =
                    std::fs::read_dir(root.join("commitlog")).unwrap().map(|e| e.unwrap().path()).collect();
                let has_records = |path: &&PathBuf| std::fs::read(path).unwrap().iter().any(|byte| *byte != 0);
                std::fs::remove_file(files.iter().filter(has_records).max().unwrap()).unwrap();
            }),
            expected: vec![(CHECKPOINT.to_owned(), Some(0))],
        },
    ]
}

/// Offsets of parts in a record: `spec/store.md` 2.1.
fn damages(root: &Path) -> Vec<Damage> {
    let record = records_of_first_file(root)[5];
    let in_log = |name, part: u64| Damage {
        name,
        plant: flip(LOG_0, record + part),
        expected: vec![(LOG_0.to_owned(), Some(record))],
    };
    let in_queue = |name, part: u64| Damage {
        name,
        plant: flip(QUEUE_0, 40 + part),
        expected: vec![(QUEUE_0.to_owned(), Some(40))],
    };
    let whole =
        |name, plant: Box<dyn Fn(&Path)>, path: &str| Damage { name, plant, expected: vec![(path.to_owned(), None)] };
    let mut all = vec![
        in_log("size of a record", 3),
        in_log("magic", 4),
        in_log("CRC of the body", 9),
        in_log("queue id", 15),
        in_log("queue offset", 27),
        in_log("physical offset", 35),
        in_log("length of the body", 87),
        in_log("body", 90),
        in_queue("position in an entry", 7),
        in_queue("size in an entry", 11),
        in_queue("tags code in an entry", 19),
    ];
    all.extend([
        whole("log file cut", Box::new(|root| cut(&root.join(LOG_1), 9_000)), LOG_1),
        whole("queue file cut", Box::new(|root| cut(&root.join(QUEUE_1), 1_010)), QUEUE_1),
        whole("first file of a queue cut between entries", Box::new(|root| cut(&root.join(QUEUE_0), 1_000)), QUEUE_0),
        whole("log file missing", Box::new(|root| std::fs::remove_file(root.join(LOG_1)).unwrap()), LOG_1),
        whole(
            "foreign file",
            Box::new(|root| std::fs::write(root.join("commitlog/notes"), "x").unwrap()),
            "commitlog/notes",
        ),
        Damage {
            name: "log files swapped",
            plant: Box::new(|root| swap(&root.join(LOG_0), &root.join(LOG_1))),
            expected: vec![(LOG_0.to_owned(), Some(0)), (LOG_1.to_owned(), Some(0))],
        },
        Damage {
            name: "queue files swapped",
            plant: Box::new(|root| swap(&root.join(QUEUE_0), &root.join(QUEUE_1))),
            expected: (0..100).map(|entry| (QUEUE_0.to_owned(), Some(entry * 20))).collect(),
        },
        Damage {
            name: "queues of two topics swapped",
            plant: Box::new(|root| {
                swap(&root.join("consumequeue/TopicA/1/00000000000000000000"), &root.join(QUEUE_0));
            }),
            expected: vec![(QUEUE_0.to_owned(), Some(0))],
        },
        Damage {
            name: "page of the log zeroed",
            plant: Box::new(|root| zero(&root.join(LOG_0), 4096..8192)),
            expected: vec![(LOG_0.to_owned(), records_of_first_file(root).into_iter().rfind(|at| *at < 4096))],
        },
        Damage {
            name: "entries zeroed",
            plant: Box::new(|root| zero(&root.join(QUEUE_0), 200..240)),
            expected: vec![(QUEUE_0.to_owned(), Some(200)), (QUEUE_0.to_owned(), Some(220))],
        },
        Damage {
            name: "bytes behind the end of the log",
            plant: Box::new(|root| {
                let last = last_file(&root.join("commitlog"));
                let mut bytes = std::fs::read(&last).unwrap();
                let len = bytes.len();
                bytes[len - 100] = 1;
                std::fs::write(last, bytes).unwrap();
            }),
            expected: Vec::new(),
        },
    ]);
    all
}

fn last_file(dir: &Path) -> PathBuf {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).max().unwrap()
}

fn cut(path: &Path, len: usize) {
    let bytes = std::fs::read(path).unwrap();
    std::fs::write(path, &bytes[..len]).unwrap();
}

fn swap(one: &Path, other: &Path) {
    let aside = one.with_extension("aside");
    std::fs::rename(one, &aside).unwrap();
    std::fs::rename(other, one).unwrap();
    std::fs::rename(aside, other).unwrap();
}

fn zero(path: &Path, range: std::ops::Range<usize>) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[range].fill(0);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn every_planted_damage_is_named_with_its_file_and_its_place() {
    on_machine(|root| async move {
        filled(&root).await;
        for damage in damages(&root).into_iter().chain(index_damages(&root)).chain(checkpoint_damages()) {
            let copy = root.with_file_name("copy");
            copy_dir(&root, &copy);
            (damage.plant)(&copy);
            let audit = audit_with(&copy, &of_config());
            assert!(audit.count > 0, "{}: nothing found", damage.name);
            for (path, at) in damage.expected {
                let is_there =
                    audit.findings.iter().any(|finding| finding.path == Path::new(&path) && finding.at == at);
                assert!(is_there, "{}: not at {path} {at:?}, but {:#?}", damage.name, findings(&audit));
            }
            std::fs::remove_dir_all(&copy).unwrap();
        }
    });
}

#[test]
fn it_goes_on_behind_a_damage() {
    on_machine(|root| async move {
        filled(&root).await;
        let records = records_of_first_file(&root);
        for part in [4, 90] {
            flip(LOG_0, records[5] + part)(&root);
            flip(LOG_0, records[20] + part)(&root);
            let audit = look(&root);
            let in_log: Vec<_> = audit.findings.iter().filter(|finding| finding.path == Path::new(LOG_0)).collect();
            assert_eq!(
                in_log.iter().map(|finding| finding.at).collect::<Vec<_>>(),
                [Some(records[5]), Some(records[20])]
            );
            flip(LOG_0, records[5] + part)(&root);
            flip(LOG_0, records[20] + part)(&root);
        }
        assert_eq!(look(&root).count, 0);
    });
}

#[test]
fn golden_stores_are_sound() {
    let Some(golden) = support::golden() else { return };
    let clean = audit_with(&golden.join("clean-exit/store"), &AuditOptions::default());
    assert_eq!(findings(&clean), Vec::<String>::new());
    assert!(clean.is_clean && clean.records > 900 && clean.index_entries > 900, "{clean:?}");
    let killed = audit_with(&golden.join("killed/store"), &AuditOptions::default());
    assert_eq!(findings(&killed), Vec::<String>::new());
    assert!(!killed.is_clean, "{killed:?}");
}
