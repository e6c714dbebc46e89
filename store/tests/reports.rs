//! Faults that users of RocketMQ have reported, on directories of the real machine. The page `docs/reports.md` says where
//! each of them has its test.

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use message::{PhyOffset, QueueOffset, StoredMessage};
use staticfire_store::{GetStatus, Store, StoreConfig, StoreError};
use support::{Text, config, copy_dir, find, get, on_machine, read_all, settle, snapshot};

const FILE: u64 = 16 << 10;

fn log_file(dir: &Path, index: u64) -> PathBuf {
    dir.join(format!("commitlog/{:020}", index * FILE))
}

fn queue_file(dir: &Path, topic: &str, start: u64) -> PathBuf {
    dir.join(format!("consumequeue/{topic}/0/{start:020}"))
}

fn change(path: &Path, change: impl FnOnce(&mut [u8])) {
    let mut content = fs::read(path).unwrap();
    change(&mut content);
    fs::write(path, content).unwrap();
}

async fn put(store: &Store, topic: &str, count: u32) {
    for number in 0..count {
        store.put_when_ready(&Text::new(topic, 0, number).draft()).await.unwrap();
    }
    settle(store).await;
}

/// A copy of the directory of a running store, which is what a kill leaves; of one that had no checkpoint yet, nothing
/// says how much had been on disk.
fn killed(dir: &Path, name: &str, with_checkpoint: bool) -> PathBuf {
    let copy = dir.with_extension(name);
    copy_dir(dir, &copy);
    if !with_checkpoint {
        fs::write(copy.join("checkpoint"), []).unwrap();
    }
    copy
}

/// The queue has so many units of 20 bytes side by side, and unit `n` points at the message with queue offset `n`.
fn check_units(dir: &Path, store: &Store, topic: &str, count: u64) {
    assert_eq!(store.max_offset(topic, 0), QueueOffset(count));
    let mut units = Vec::new();
    let names = fs::read_dir(dir.join(format!("consumequeue/{topic}/0"))).unwrap();
    let mut names: Vec<PathBuf> = names.map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for path in names {
        units.extend(fs::read(path).unwrap());
    }
    for (index, unit) in (0..count).zip(units.as_chunks::<20>().0) {
        let phy = u64::from_be_bytes(unit[..8].try_into().unwrap());
        let record = store.record_at(PhyOffset(phy)).unwrap_or_else(|| panic!("unit {index} points at {phy}"));
        let message = StoredMessage::decode_all(record).unwrap().remove(0);
        assert_eq!((message.message.topic.as_str(), message.queue_offset.0), (topic, index));
    }
}

#[test]
fn p020_a_missing_unit_is_put_in_its_place_and_a_damaged_record_ends_the_log() {
    on_machine(|dir| async move {
        let running = Store::open(config(&dir)).await.unwrap();
        put(&running, "t", 200).await;
        // (a) The dispatcher was one message behind.
        let behind = killed(&dir, "behind", true);
        change(&queue_file(&behind, "t", 2000), |units| units[99 * 20..].fill(0));
        let store = Store::open(config(&behind)).await.unwrap();
        put(&store, "t", 10).await;
        check_units(&behind, &store, "t", 210);
        store.shutdown().await.unwrap();
        // (b) One byte of the body of record 150 is another one.
        let messages = read_all(&running, "t", 0);
        let bad = messages[150].phy.0;
        let damaged = killed(&dir, "damaged", false);
        change(&log_file(&damaged, bad / FILE), |content| content[(bad % FILE) as usize + 90] ^= 1);
        let store = Store::open(config(&damaged)).await.unwrap();
        assert_eq!((store.max_phy().0, store.max_offset("t", 0)), (bad, QueueOffset(150)));
        put(&store, "t", 10).await;
        check_units(&damaged, &store, "t", 160);
        store.shutdown().await.unwrap();
        // If it had been on disk, and the log is read again, nothing is cut before somebody says so.
        running.shutdown().await.unwrap();
        fs::remove_dir_all(dir.join("consumequeue")).unwrap();
        change(&log_file(&dir, bad / FILE), |content| content[(bad % FILE) as usize + 90] ^= 1);
        let error = Store::open(config(&dir)).await.unwrap_err();
        assert!(matches!(error, StoreError::Damaged { at, .. } if at.0 == bad), "{error}");
        let store = Store::open(StoreConfig { accept_damaged_log: true, ..config(&dir) }).await.unwrap();
        check_units(&dir, &store, "t", 150);
        store.shutdown().await.unwrap();
    });
}

#[test]
fn p024_empty_last_files_are_dropped_and_other_wrong_lengths_are_refused() {
    on_machine(|dir| async move {
        let running = Store::open(config(&dir)).await.unwrap();
        put(&running, "t", 300).await;
        let last = running.max_phy().0 / FILE;
        assert!(last >= 2);
        running.shutdown().await.unwrap();
        let queue_end = queue_file(&dir, "t", 6000);
        let opens = [(log_file(&dir, last + 1), "log"), (queue_end, "queue")];
        for (path, name) in opens {
            let copy = killed(&dir, name, true);
            fs::write(copy.join(path.strip_prefix(&dir).unwrap()), []).unwrap();
            let store = Store::open(config(&copy)).await.unwrap();
            check_units(&copy, &store, "t", 300);
            put(&store, "t", 1).await;
            check_units(&copy, &store, "t", 301);
            store.shutdown().await.unwrap();
        }
        for (file, len, name) in [(1, 0, "middle"), (last, FILE / 2, "half")] {
            let copy = killed(&dir, name, true);
            let path = log_file(&copy, file);
            let content = fs::read(&path).unwrap();
            fs::write(&path, &content[..len as usize]).unwrap();
            let before = snapshot(&copy);
            let error = Store::open(config(&copy)).await.unwrap_err().to_string();
            let told = format!("`{}` has {len} bytes, mappedFileSizeCommitLog says {FILE}", path.display());
            assert!(error.starts_with(&told), "{error}");
            assert!(snapshot(&copy) == before, "something was changed");
        }
    });
}

#[test]
fn p025_a_copy_of_an_older_record_behind_the_end_is_not_taken_for_a_new_one() {
    on_machine(|dir| async move {
        let running = Store::open(config(&dir)).await.unwrap();
        put(&running, "t", 151).await;
        let end = running.max_phy().0;
        let old = &read_all(&running, "t", 0)[100];
        let (from, size) = ((old.phy.0 % FILE) as usize, old.size_bytes as usize);
        let record = fs::read(log_file(&dir, old.phy.0 / FILE)).unwrap()[from..from + size].to_vec();
        assert!(end % FILE + size as u64 + 8 < FILE, "it fits into the last file");
        let mut one_file_lower = record.clone();
        one_file_lower[28..36].copy_from_slice(&(end - FILE).to_be_bytes());
        for (copied, name) in [(record, "copied"), (one_file_lower, "moved")] {
            for clean in [false, true] {
                let copy = killed(&dir, name, true);
                if clean {
                    fs::remove_file(copy.join("abort")).unwrap();
                }
                let at = (end % FILE) as usize;
                change(&log_file(&copy, end / FILE), |content| content[at..at + size].copy_from_slice(&copied));
                let store = Store::open(config(&copy)).await.unwrap();
                assert_eq!(store.max_phy().0, end);
                check_units(&copy, &store, "t", 151);
                let put = store.put_when_ready(&Text::new("t", 0, 151).draft()).await.unwrap();
                assert_eq!((put.phy.0, put.queue_offset.0), (end, 151));
                settle(&store).await;
                check_units(&copy, &store, "t", 152);
                store.shutdown().await.unwrap();
                fs::remove_dir_all(&copy).unwrap();
            }
        }
        running.shutdown().await.unwrap();
    });
}

/// The log was cut before all that is left of a queue: what comes next is read.
#[test]
fn p026_a_queue_that_lost_all_its_units_takes_new_messages_where_it_ended() {
    on_machine(|dir| async move {
        let expiring = StoreConfig { file_reserved: Duration::ZERO, delete_when: vec![], ..config(&dir) };
        let running = Store::open(expiring).await.unwrap();
        put(&running, "a", 40).await;
        put(&running, "b", 300).await;
        running.delete_expired_files();
        while running.min_offset("a", 0) != QueueOffset(40) {
            host::Host::current().sleep(Duration::from_millis(20)).await;
        }
        put(&running, "b", 10).await;
        let cut = running.max_phy().0;
        put(&running, "a", 20).await;
        assert_eq!((running.min_offset("a", 0).0, running.max_offset("a", 0).0), (40, 60));
        let copy = killed(&dir, "killed", false);
        for index in cut / FILE..=running.max_phy().0 / FILE {
            let from = cut.saturating_sub(index * FILE) as usize;
            change(&log_file(&copy, index), |content| content[from..].fill(0));
        }
        let store = Store::open(config(&copy)).await.unwrap();
        assert_eq!(store.max_phy().0, cut);
        assert_eq!((store.min_offset("a", 0).0, store.max_offset("a", 0).0), (40, 40));
        put(&store, "a", 5).await;
        let read: Vec<u64> = read_all(&store, "a", 0).iter().map(|message| message.queue_offset.0).collect();
        assert_eq!(read, [40, 41, 42, 43, 44]);
        store.shutdown().await.unwrap();
        running.shutdown().await.unwrap();
    });
}

#[test]
fn p029_a_lost_last_file_of_a_queue_is_built_again() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        put(&store, "t", 146).await;
        store.shutdown().await.unwrap();
        // It held 46 units.
        fs::remove_file(queue_file(&dir, "t", 2000)).unwrap();
        let store = Store::open(config(&dir)).await.unwrap();
        check_units(&dir, &store, "t", 146);
        put(&store, "t", 10).await;
        check_units(&dir, &store, "t", 156);
        store.shutdown().await.unwrap();
    });
}

#[test]
fn p035_a_queue_whose_messages_are_all_deleted_begins_at_its_end() {
    const FILE_OF_MANY: u64 = 102_400;
    on_machine(|dir| async move {
        let settings = StoreConfig {
            commit_log_file_bytes: FILE_OF_MANY,
            file_reserved: Duration::ZERO,
            delete_when: vec![],
            delete_log_file_pause: Duration::from_millis(1),
            delete_queue_file_pause: Duration::from_millis(1),
            ..config(&dir)
        };
        let store = Store::open(settings).await.unwrap();
        for topic in ["TopicTest1", "TopicTest2", "TopicTest3"] {
            for number in 0..1000 {
                store.put_when_ready(&Text::new(topic, number % 4, number).draft()).await.unwrap();
            }
        }
        settle(&store).await;
        store.delete_expired_files();
        let bounds = |topic, queue| (store.min_offset(topic, queue).0, store.max_offset(topic, queue).0);
        let is_cleaned = |queue| {
            let (min, _) = bounds("TopicTest3", queue);
            let is_there =
                read_all(&store, "TopicTest3", queue).first().is_some_and(|first| first.queue_offset.0 == min);
            // Only the last file is left, and the queues have seen it.
            store.min_phy().0 == store.max_phy().0 / FILE_OF_MANY * FILE_OF_MANY
                && is_there
                && bounds("TopicTest1", queue) == (250, 250)
        };
        while !(0..4).all(is_cleaned) {
            host::Host::current().sleep(Duration::from_millis(20)).await;
        }
        for queue in 0..4 {
            let pulled = get(&store, "TopicTest1", queue, 0);
            assert_eq!((pulled.status, pulled.next, pulled.count), (GetStatus::OffsetTooSmall, QueueOffset(250), 0));
            assert!(find(&store, "TopicTest1", &format!("k{queue}")).is_empty());
            // The others give what is left of them.
            let (min, max) = bounds("TopicTest3", queue);
            assert!(min < max && max == 250, "{min}..{max}");
            assert_eq!(read_all(&store, "TopicTest3", queue).len() as u64, max - min);
        }
        store.shutdown().await.unwrap();
    });
}

#[test]
fn p036_a_fresh_machine_without_a_directory_takes_messages() {
    on_machine(|dir| async move {
        let dir = dir.join("home/store");
        assert!(!dir.exists());
        let store = Store::open(config(&dir)).await.unwrap();
        assert_eq!(store.write_block(), None);
        put(&store, "t", 1).await;
        assert!(store.disk_use().unwrap().used_percent <= 100);
        check_units(&dir, &store, "t", 1);
        store.shutdown().await.unwrap();
    });
}
