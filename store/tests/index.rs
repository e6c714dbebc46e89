//! Finding messages by key, and building the index again, on the real machine. A copy of the directory of a running store
//! is what a kill leaves.

mod support;

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use message::{PhyOffset, StoredMessage, SysFlag, Transaction};
use proptest::prelude::*;
use staticfire_store::{KeyQuery, Put, Store, StoreConfig};
use support::{Text, config, copy_dir, find, on_machine, settle};

const MESSAGES: u32 = 180;
/// Of the settings of the tests.
const SLOTS: usize = 20;
const ENTRIES: usize = 50;
const FILE: usize = 40 + 4 * SLOTS + 20 * ENTRIES;

/// A message with a unique id, two keys of its own and one that all of its queue have.
fn text(number: u32) -> Text {
    let topic = if number.is_multiple_of(5) { "rare" } else { "orders" };
    let properties = format!("KEYS\u{1}k{number} q{}  x{number}\u{2}UNIQ_KEY\u{1}u{number}\u{2}", number % 2);
    Text { properties, ..Text::new(topic, number % 2, number) }
}

/// A store with messages, all dispatched, and where they are.
async fn filled(dir: &Path) -> (Store, Vec<Put>) {
    let store = Store::open(config(dir)).await.unwrap();
    let mut puts = Vec::new();
    for number in 0..MESSAGES {
        puts.push(store.put_when_ready(&text(number).draft()).await.unwrap());
    }
    settle(&store).await;
    (store, puts)
}

/// Each message from `first` on is found by all its keys, and nothing else is.
fn check(store: &Store, puts: &[Put], first: u32) {
    for (number, put) in (first..).zip(&puts[first as usize..]) {
        let topic = &text(number).topic;
        for key in [format!("k{number}"), format!("x{number}"), format!("u{number}")] {
            assert_eq!(find(store, topic, &key), [put.phy], "{key}");
        }
    }
    assert_eq!(find(store, "orders", &format!("k{MESSAGES}")), []);
    assert_eq!(find(store, "rare", "k1"), [], "a key of another topic");
}

/// Opens a store of which something may be wrong: it has every key, before and after new messages and a restart.
async fn expect(dir: &Path, puts: &[Put]) {
    for round in 0..2 {
        let store = Store::open(config(dir)).await.unwrap();
        check(&store, puts, 0);
        let more = Text { properties: format!("UNIQ_KEY\u{1}more{round}\u{2}"), ..text(MESSAGES) };
        let put = store.put_when_ready(&more.draft()).await.unwrap();
        settle(&store).await;
        assert_eq!(find(&store, &more.topic, &format!("more{round}")), [put.phy]);
        store.shutdown().await.unwrap();
    }
}

/// The index files of a store, oldest first.
fn index_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir.join("index")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn contents(dir: &Path) -> Vec<Vec<u8>> {
    index_files(dir).iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn messages_are_found_by_unique_id_and_by_each_key() {
    on_machine(|dir| async move {
        let (store, puts) = filled(&dir).await;
        assert!(index_files(&dir).len() > 12, "{} files", index_files(&dir).len());
        check(&store, &puts, 0);
        store.shutdown().await.unwrap();
        expect(&dir, &puts).await;
    });
}

#[test]
fn of_many_messages_with_a_key_the_latest_are_found_in_order() {
    on_machine(|dir| async move {
        let (store, puts) = filled(&dir).await;
        let of_queue: Vec<PhyOffset> =
            (0..).zip(&puts).filter(|(number, _)| number % 2 == 1 && number % 5 != 0).map(|(_, put)| put.phy).collect();
        let query = KeyQuery { topic: "orders", key: "q1", max_count: 5, begin_ms: 0, end_ms: i64::MAX };
        let phys = |query: &KeyQuery<'_>| -> Vec<PhyOffset> {
            let records = store.query(query).records.into_iter();
            records.map(|record| StoredMessage::decode_all(record).unwrap()[0].phy).collect()
        };
        assert_eq!(phys(&query), of_queue[of_queue.len() - 5..]);
        assert_eq!(phys(&KeyQuery { max_count: 1000, ..query }), of_queue[of_queue.len() - 64..], "maxMsgsNumBatch");
        assert_eq!(phys(&KeyQuery { max_count: 0, ..query }), []);
        let result = store.query(&query);
        assert_eq!((result.index_last_phy, result.index_last_ms), (puts[179].phy, puts[179].store_ms));
        store.shutdown().await.unwrap();
    });
}

#[test]
fn times_of_a_query_are_exact_and_include_both_ends() {
    on_machine(|dir| async move {
        let host = host::Host::current();
        let store = Store::open(config(&dir)).await.unwrap();
        let mut puts = Vec::new();
        for number in 0..8 {
            puts.push(store.put_when_ready(&text(number * 10).draft()).await.unwrap());
            host.sleep(Duration::from_millis(170)).await;
        }
        settle(&store).await;
        let between = |begin_ms, end_ms| {
            let query = KeyQuery { topic: "rare", key: "q0", max_count: 64, begin_ms, end_ms };
            let records = store.query(&query).records.into_iter();
            records.map(|record| StoredMessage::decode_all(record).unwrap()[0].phy).collect::<Vec<_>>()
        };
        for from in 0..puts.len() {
            for to in from..puts.len() {
                let expected: Vec<PhyOffset> = puts[from..=to].iter().map(|put| put.phy).collect();
                assert_eq!(between(puts[from].store_ms, puts[to].store_ms), expected);
            }
        }
        assert_eq!(between(puts[3].store_ms + 1, puts[4].store_ms - 1), []);
        assert_eq!(between(0, puts[0].store_ms - 1), []);
        assert_eq!(between(puts[7].store_ms + 1, i64::MAX), []);
        store.shutdown().await.unwrap();
    });
}

#[test]
fn half_messages_are_indexed_and_rollback_marks_are_not() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        let mut found = Vec::new();
        for (number, transaction) in
            (0..).zip([Transaction::None, Transaction::Prepared, Transaction::Commit, Transaction::Rollback])
        {
            let text = text(number);
            let draft = message::Draft { sys_flag: SysFlag(0).with_transaction(transaction), ..text.draft() };
            store.put_when_ready(&draft).await.unwrap();
            settle(&store).await;
            found.push(find(&store, &text.topic, &format!("u{number}")).len());
        }
        assert_eq!(found, [1, 1, 1, 0]);
        store.shutdown().await.unwrap();
    });
}

#[test]
fn w07_any_missing_part_of_the_index_is_built_again_after_any_exit() {
    on_machine(|dir| async move {
        let (running, puts) = filled(&dir).await;
        let killed = dir.with_extension("killed");
        copy_dir(&dir, &killed);
        running.shutdown().await.unwrap();
        let whole = contents(&dir);
        let copy = dir.with_extension("copy");
        let files = index_files(&dir);
        let name = |at: usize| format!("index/{}", files[at].file_name().unwrap().to_str().unwrap());
        let last = files.len() - 1;
        let damages = [
            vec!["index".to_owned()],
            vec!["checkpoint".to_owned()],
            vec!["checkpoint".to_owned(), "index".to_owned()],
            vec![name(0)],
            vec![name(1)],
            vec![name(last)],
            vec![name(last - 1), name(last)],
            vec![name(0), name(3), name(last), "consumequeue/rare".to_owned()],
        ];
        for source in [&dir, &killed] {
            for damage in &damages {
                copy_dir(source, &copy);
                for victim in damage {
                    let victim = copy.join(victim);
                    if victim.is_dir() { fs::remove_dir_all(victim) } else { fs::remove_file(victim) }.unwrap();
                }
                let store = Store::open(config(&copy)).await.unwrap();
                check(&store, &puts, 0);
                store.shutdown().await.unwrap();
                assert!(contents(&copy) == whole, "{damage:?}: the files are those of a store that lost nothing");
                expect(&copy, &puts).await;
                fs::remove_dir_all(&copy).unwrap();
            }
        }
    });
}

#[test]
fn w07_damaged_index_files_are_built_again_after_any_exit() {
    on_machine(|dir| async move {
        let (running, puts) = filled(&dir).await;
        let killed = dir.with_extension("killed");
        copy_dir(&dir, &killed);
        running.shutdown().await.unwrap();
        let copy = dir.with_extension("copy");
        let last = index_files(&dir).len() - 1;
        let damages: [fn(&mut Vec<u8>); 11] = [
            |content| content.clear(),
            |content| content.truncate(FILE - 20),
            |content| content.push(0),
            |content| content.fill(0),
            |content| content.fill(0xFF),
            |content| content[..40].fill(0),
            |content| content[39] ^= 0x10, // The count.
            |content| content[23] ^= 1,    // The begin.
            |content| content[40..40 + 4 * SLOTS].fill(0),
            |content| content[40 + 4 * SLOTS..].fill(0),
            |content| content.rotate_right(20),
        ];
        for (source, victims) in [(&dir, &[0, 2, last][..]), (&killed, &[1, last])] {
            for &victim in victims {
                for (number, damage) in damages.iter().enumerate() {
                    copy_dir(source, &copy);
                    let path = &index_files(&copy)[victim];
                    let mut content = fs::read(path).unwrap();
                    damage(&mut content);
                    fs::write(path, content).unwrap();
                    let store = Store::open(config(&copy)).await.unwrap();
                    println!("damage {number} of file {victim}");
                    check(&store, &puts, 0);
                    store.shutdown().await.unwrap();
                    fs::remove_dir_all(&copy).unwrap();
                }
            }
        }
    });
}

#[test]
fn an_intact_index_is_not_touched_by_a_start() {
    on_machine(|dir| async move {
        let (store, puts) = filled(&dir).await;
        store.shutdown().await.unwrap();
        let stamps = |dir: &Path| -> Vec<(u64, i64, i64)> {
            let metadata = index_files(dir).into_iter().map(|path| fs::metadata(path).unwrap());
            metadata.map(|of| (of.ino(), of.mtime(), of.mtime_nsec())).collect()
        };
        let before = stamps(&dir);
        for _ in 0..2 {
            let store = Store::open(config(&dir)).await.unwrap();
            check(&store, &puts, 0);
            store.shutdown().await.unwrap();
            assert_eq!(stamps(&dir), before);
        }
    });
}

#[test]
fn after_a_kill_only_the_file_that_was_filled_is_written() {
    on_machine(|dir| async move {
        let (store, _) = filled(&dir).await;
        store.shutdown().await.unwrap();
        let store = Store::open(config(&dir)).await.unwrap();
        store.put_when_ready(&text(MESSAGES).draft()).await.unwrap();
        settle(&store).await;
        let copy = dir.with_extension("copy");
        copy_dir(&dir, &copy);
        let modified = |path: &PathBuf| (fs::metadata(path).unwrap().ino(), fs::metadata(path).unwrap().mtime_nsec());
        let files = index_files(&copy);
        let before: Vec<_> = files.iter().map(modified).collect();
        let store = Store::open(config(&copy)).await.unwrap();
        let after: Vec<_> = files.iter().map(modified).collect();
        let full = before.len() - 2; // The new message may have begun a file.
        assert_eq!(before[..full], after[..full]);
        assert_eq!(find(&store, &text(MESSAGES).topic, &format!("u{MESSAGES}")).len(), 1);
        store.shutdown().await.unwrap();
    });
}

#[test]
fn index_files_go_with_the_log_and_the_rest_stays() {
    on_machine(|dir| async move {
        let host = host::Host::current();
        let settings = StoreConfig { file_reserved: Duration::ZERO, delete_when: vec![], ..config(&dir) };
        let store = Store::open(settings).await.unwrap();
        let mut puts = Vec::new();
        for number in 0..MESSAGES {
            puts.push(store.put_when_ready(&text(number).draft()).await.unwrap());
        }
        settle(&store).await;
        let files = index_files(&dir);
        let deletes = async || {
            store.delete_expired_files();
            host.sleep(Duration::from_millis(1500)).await;
        };
        // The files that the checkpoint counts stay until it has been written anew.
        while index_files(&dir).len() > 9 {
            deletes().await;
        }
        let first = puts.iter().position(|put| put.phy >= store.min_phy()).unwrap() as u32;
        assert!(first > 60, "{first}");
        check(&store, &puts, first);
        for number in 0..first {
            assert_eq!(find(&store, &text(number).topic, &format!("u{number}")), []);
        }
        let left = index_files(&dir);
        assert_eq!(left, files[files.len() - left.len()..]);
        // A kill now, and a clean end: nothing is missing, and nothing is built again.
        let killed = dir.with_extension("killed");
        copy_dir(&dir, &killed);
        store.shutdown().await.unwrap();
        for dir in [&dir, &killed] {
            let names = |dir: &Path| index_files(dir).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
            let before: Vec<_> = names(dir);
            let store = Store::open(config(dir)).await.unwrap();
            check(&store, &puts, first);
            store.shutdown().await.unwrap();
            assert_eq!(names(dir), before);
        }
    });
}

#[test]
fn other_sizes_build_the_index_anew() {
    on_machine(|dir| async move {
        let (store, puts) = filled(&dir).await;
        store.shutdown().await.unwrap();
        let larger = StoreConfig { index_slots: 100, index_entries: 2000, ..config(&dir) };
        let store = Store::open(larger).await.unwrap();
        check(&store, &puts, 0);
        assert_eq!(index_files(&dir).len(), 1);
        store.shutdown().await.unwrap();
        expect(&dir, &puts).await;
        let error = Store::open(StoreConfig { index_entries: 1, ..config(&dir) }).await.unwrap_err().to_string();
        assert!(error.starts_with("maxIndexNum is 1: "), "{error}");
    });
}

#[test]
fn an_index_that_was_switched_off_is_complete_once_it_is_on_again() {
    on_machine(|dir| async move {
        let off = StoreConfig { message_index: false, ..config(&dir) };
        let (store, mut puts) = filled(&dir).await;
        store.shutdown().await.unwrap();
        let before = contents(&dir);
        let store = Store::open(off).await.unwrap();
        puts.push(store.put_when_ready(&text(MESSAGES).draft()).await.unwrap());
        settle(&store).await;
        assert_eq!(find(&store, "orders", "k1"), []);
        store.shutdown().await.unwrap();
        assert!(contents(&dir) == before);
        let store = Store::open(config(&dir)).await.unwrap();
        check(&store, &puts[..MESSAGES as usize], 0);
        assert_eq!(find(&store, &text(MESSAGES).topic, &format!("u{MESSAGES}")), [puts[MESSAGES as usize].phy]);
        store.shutdown().await.unwrap();
    });
}

#[test]
fn names_that_are_no_times_are_left_alone() {
    on_machine(|dir| async move {
        let (store, puts) = filled(&dir).await;
        store.shutdown().await.unwrap();
        fs::write(dir.join("index/notes.txt"), "x").unwrap();
        fs::create_dir(dir.join("index/20000101000000000")).unwrap();
        expect(&dir, &puts).await;
        assert_eq!(fs::read(dir.join("index/notes.txt")).unwrap(), b"x");
        assert!(dir.join("index/20000101000000000").is_dir());
    });
}

#[test]
fn a_damaged_chain_is_told_and_the_next_start_builds_it_again() {
    on_machine(|dir| async move {
        let (store, puts) = filled(&dir).await;
        store.shutdown().await.unwrap();
        // Some are entries that a start looks at, or stand in their chains.
        let path = index_files(&dir)[5].clone();
        let good = fs::read(&path).unwrap();
        let mut told = 0;
        for entry in (2..ENTRIES).step_by(5) {
            let copy = dir.with_extension("copy");
            copy_dir(&dir, &copy);
            let mut rotten = good.clone();
            rotten[40 + 4 * SLOTS + 20 * entry + 3] ^= 1; // The hash, and with it the slot.
            fs::write(copy.join("index").join(path.file_name().unwrap()), &rotten).unwrap();
            let store = Store::open(config(&copy)).await.unwrap();
            let lost =
                (0..MESSAGES).filter(|number| find(&store, &text(*number).topic, &format!("u{number}")).is_empty());
            told += usize::from(lost.count() > 0);
            store.shutdown().await.unwrap();
            let store = Store::open(config(&copy)).await.unwrap();
            check(&store, &puts, 0);
            store.shutdown().await.unwrap();
            fs::remove_dir_all(&copy).unwrap();
        }
        assert!(told > 0, "the start looks at every entry");
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Whatever stands in the files of an index, the store opens and has every key of what it looks at.
    #[test]
    fn garbage_in_the_index_never_panics(garbage: Vec<u8>, at in 0..FILE, victim in 0..12_usize, kill: bool) {
        on_machine(move |dir| async move {
            let (store, puts) = filled(&dir).await;
            if !kill {
                store.shutdown().await.unwrap();
            }
            let copy = dir.with_extension("copy");
            copy_dir(&dir, &copy);
            let path = &index_files(&copy)[victim];
            let mut content = fs::read(path).unwrap();
            let end = (at + garbage.len()).min(FILE);
            content[at..end].copy_from_slice(&garbage[..end - at]);
            fs::write(path, content).unwrap();
            let store = Store::open(config(&copy)).await.unwrap();
            for number in 0..MESSAGES {
                let found = find(&store, &text(number).topic, &format!("u{number}"));
                assert!(found.is_empty() || found == [puts[number as usize].phy]);
            }
            store.shutdown().await.unwrap();
        });
    }
}
