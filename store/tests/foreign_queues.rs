//! What the reference may have in its consume queues, and beside them.

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
};

use message::{RecordView, tags_code};
use staticfire_store::{
    GetRequest, MessageFilter, Store, StoreError,
    audit::{AuditOptions, audit},
};
use support::{Dir, Text, config, on_machine, read_all, settle, snapshot};

/// Lets one tag pass.
struct OneTag(&'static str);

impl MessageFilter for OneTag {
    fn matches_tags_code(&self, code: i64) -> bool {
        code == tags_code(Some(self.0))
    }

    fn matches_record(&self, record: &RecordView<'_>) -> bool {
        record.property(message::property::TAGS) == Some(self.0)
    }
}

/// Turns the store into one that the reference left with `enableConsumeQueueExt`: each entry has an address in place of
/// its tags code, and the code stands in a unit of the extension file.
fn extend(dir: &Path, count: u32) {
    let queue = dir.join("consumequeue/orders/0/00000000000000000000");
    let mut entries = fs::read(&queue).unwrap();
    let mut units = Vec::new();
    for entry in entries.chunks_exact_mut(20).take(count as usize) {
        let address = i64::MIN + units.len() as i64;
        units.extend_from_slice(&36_i16.to_be_bytes());
        units.extend_from_slice(&entry[12..]);
        units.extend_from_slice(&1_i64.to_be_bytes());
        units.extend_from_slice(&16_i16.to_be_bytes());
        units.extend_from_slice(&[0xFF; 16]);
        entry[12..].copy_from_slice(&address.to_be_bytes());
    }
    fs::write(&queue, entries).unwrap();
    units.resize(64 << 10, 0);
    let extension = dir.join("consumequeue_ext/orders/0");
    fs::create_dir_all(&extension).unwrap();
    fs::write(extension.join("00000000000000000000"), units).unwrap();
    // The reference's checkpoint says nothing of what staticfire adds to it.
    fs::remove_file(dir.join("checkpoint")).unwrap();
}

/// Entries are made again from the log, so that addresses in them are never needed; the extension stays for whoever can
/// use it.
#[test]
fn messages_of_a_queue_with_an_extension_are_filtered_by_their_tags_and_it_is_kept() {
    on_machine(|dir| async move {
        const COUNT: u32 = 80;
        let store = Store::open(config(&dir)).await.unwrap();
        for number in 0..COUNT {
            store.put_when_ready(&Text::new("orders", 0, number).draft()).await.unwrap();
        }
        settle(&store).await;
        store.shutdown().await.unwrap();
        extend(&dir, COUNT);
        let extension = snapshot(&dir.join("consumequeue_ext"));
        for _ in 0..2 {
            let store = Store::open(config(&dir)).await.unwrap();
            let filter = OneTag("t3");
            let result = store.get(&GetRequest {
                topic: "orders",
                queue_id: 0,
                offset: message::QueueOffset(0),
                max_count: COUNT,
                max_bytes: 1 << 20,
                filter: Some(&filter),
            });
            assert_eq!((result.count, result.next.0), (COUNT / 4, u64::from(COUNT)));
            store.shutdown().await.unwrap();
            assert_eq!(snapshot(&dir.join("consumequeue_ext")), extension);
        }
    });
}

#[test]
fn a_store_with_queues_of_inner_batches_is_refused_and_left_alone() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        store.put(&Text::new("orders", 0, 1).draft()).unwrap();
        store.shutdown().await.unwrap();
        let queue = dir.join("batchconsumequeue/batches/0");
        fs::create_dir_all(&queue).unwrap();
        fs::write(queue.join("00000000000000000000"), [0; 46]).unwrap();
        let before = snapshot(&dir);
        let error = Store::open(config(&dir)).await.unwrap_err();
        assert!(matches!(error, StoreError::Unsupported { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("batchconsumequeue/batches") && text.contains("queue.type=BatchCQ"), "{text}");
        assert_eq!(snapshot(&dir), before);
        fs::remove_dir_all(dir.join("batchconsumequeue/batches")).unwrap();
        Store::open(config(&dir)).await.unwrap().shutdown().await.unwrap();
    });
}

const LOG_FILE: u64 = 16 << 10;

/// Where a message is, and what makes it one of a life of its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    phy: u64,
    size_bytes: u32,
    tags_code: i64,
    offset: u64,
}

/// A clean store as the reference leaves it: queue 0 of `orders` got so many messages, and then others, which begin at
/// offset `again`. The later ones.
async fn begun_again(dir: &Path, (old, again, new): (u64, u64, u64)) -> Vec<Place> {
    let store = Store::open(config(dir)).await.unwrap();
    let mut later = Vec::new();
    for number in 0..old + new {
        let text = Text::new("orders", 0, number as u32);
        let put = store.put_when_ready(&text.draft()).await.unwrap();
        store.put_when_ready(&Text::new("others", 1, number as u32).draft()).await.unwrap();
        if number >= old {
            let tags_code = tags_code(Some(&format!("t{}", number % 4)));
            let (phy, offset) = (put.phy.0, again + number - old);
            later.push(Place { phy, size_bytes: put.size_bytes, tags_code, offset });
        }
    }
    settle(&store).await;
    store.shutdown().await.unwrap();
    for place in &later {
        let path = dir.join(format!("commitlog/{:020}", place.phy / LOG_FILE * LOG_FILE));
        let at = (place.phy % LOG_FILE) as usize + 20;
        let mut log = fs::read(&path).unwrap();
        log[at..at + 8].copy_from_slice(&place.offset.to_be_bytes());
        fs::write(path, log).unwrap();
    }
    fs::remove_file(dir.join("checkpoint")).unwrap();
    later
}

fn queue_of_orders(dir: &Path) -> PathBuf {
    dir.join("consumequeue/orders/0")
}

/// The files of the queue hold these messages only.
fn write_queue(dir: &Path, places: &[Place]) {
    let queue = queue_of_orders(dir);
    fs::remove_dir_all(&queue).unwrap();
    fs::create_dir_all(&queue).unwrap();
    for (number, places) in places.chunks(100).enumerate() {
        let mut entries = Vec::new();
        for place in places {
            entries.extend_from_slice(&place.phy.to_be_bytes());
            entries.extend_from_slice(&place.size_bytes.to_be_bytes());
            entries.extend_from_slice(&place.tags_code.to_be_bytes());
        }
        entries.resize(2000, 0);
        fs::write(queue.join(format!("{:020}", number * 2000)), entries).unwrap();
    }
}

fn places(store: &Store) -> Vec<(u64, u64)> {
    read_all(store, "orders", 0).iter().map(|message| (message.phy.0, message.queue_offset.0)).collect()
}

/// Opens the store, and finds these messages at the end of the queue, behind `before` others.
async fn expect_last(dir: &Path, before: usize, last: &[Place]) {
    for _ in 0..2 {
        let store = Store::open(config(dir)).await.unwrap();
        let found = places(&store);
        let expected: Vec<_> = last.iter().map(|place| (place.phy, place.offset)).collect();
        assert_eq!((found.len() - last.len(), &found[before..]), (before, &expected[..]));
        assert_eq!(read_all(&store, "others", 1).len(), store.max_offset("others", 1).0 as usize);
        store.shutdown().await.unwrap();
    }
}

/// The reference lets the queues of a topic that was deleted and made again begin at 0, while its old messages stay in the
/// log. No message of the new topic may be missing, and no old one come back.
#[test]
fn a_topic_that_was_deleted_and_made_again_holds_its_new_messages() {
    on_machine(|dir| async move {
        for (old, new) in [(1, 1), (150, 1), (150, 40), (3, 250), (150, 150)] {
            for is_clean in [true, false] {
                let later = begun_again(&dir, (old, 0, new)).await;
                write_queue(&dir, &later);
                let found = audit(&Dir(dir.clone()), &AuditOptions::of(&config(&dir))).unwrap().findings;
                assert!(found.is_empty(), "{old} old, {new} new: {found:?}");
                if !is_clean {
                    fs::write(dir.join("abort"), "1").unwrap();
                }
                expect_last(&dir, 0, &later).await;
                fs::remove_dir_all(&dir).unwrap();
            }
        }
    });
}

/// If the files of its queues are missing too, the log says it.
#[test]
fn queues_that_begin_again_in_the_log_are_rebuilt_with_their_later_messages() {
    on_machine(|dir| async move {
        for (old, again, new) in [(150, 0, 40), (3, 0, 250), (150, 0, 2), (150, 140, 40), (150, 100, 2)] {
            let later = begun_again(&dir, (old, again, new)).await;
            fs::remove_dir_all(queue_of_orders(&dir)).unwrap();
            expect_last(&dir, again as usize, &later).await;
            fs::remove_dir_all(&dir).unwrap();
        }
    });
}
