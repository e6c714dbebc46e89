//! The rules of a read, each as a table: how it ends and where to go on, when it has enough, and when a slave should
//! serve it. Source: `spec/store.md` 10.

mod support;

use std::{path::Path, time::Duration};

use message::QueueOffset;
use staticfire_store::{GetRequest, GetResult, GetStatus, MessageFilter, Store, StoreConfig};
use support::{Text, config, on_machine, read_all, settle};

/// Lets nothing pass.
struct Nothing;

impl MessageFilter for Nothing {
    fn matches_tags_code(&self, _: i64) -> bool {
        false
    }
}

/// A message that is as long as all others with this body.
fn text(topic: &str, body_bytes: usize) -> Text {
    Text { topic: topic.into(), queue_id: 0, body: "x".repeat(body_bytes), properties: "TAGS\u{1}a\u{2}".into() }
}

async fn filled(config: StoreConfig, count: u32, body_bytes: usize) -> Store {
    let store = Store::open(config).await.unwrap();
    for _ in 0..count {
        store.put_when_ready(&text("orders", body_bytes).draft()).await.unwrap();
    }
    settle(&store).await;
    store
}

fn read(store: &Store, topic: &str, offset: u64, (max_count, max_bytes): (u32, u64)) -> GetResult {
    let offset = QueueOffset(offset);
    store.get(&GetRequest { topic, queue_id: 0, offset, max_count, max_bytes, filter: None })
}

/// All but `OffsetFoundNull`, which only a read can see that looks at the bounds of a queue, and then for a file which
/// another thread has removed in between.
#[test]
fn every_end_of_a_read_says_where_to_go_on() {
    on_machine(|dir| async move {
        // Between two deleted files there is time to read.
        let slowly = StoreConfig {
            file_reserved: Duration::ZERO,
            delete_when: vec![],
            delete_log_file_pause: Duration::from_secs(2),
            ..config(&dir)
        };
        let store = filled(slowly, 0, 0).await;
        for _ in 0..10 {
            store.put(&text("old", 100).draft()).unwrap();
        }
        for _ in 0..300 {
            store.put_when_ready(&text("orders", 100).draft()).await.unwrap();
        }
        settle(&store).await;
        let ends = |topic, offset| {
            let result = read(&store, topic, offset, (32, 1 << 20));
            (result.status, result.next.0)
        };
        let unread = |offset| {
            let (topic, offset) = ("orders", QueueOffset(offset));
            let filter = Some(&Nothing as &dyn MessageFilter);
            let result =
                store.get(&GetRequest { topic, queue_id: 0, offset, max_count: 32, max_bytes: 1 << 20, filter });
            (result.status, result.next.0)
        };
        use GetStatus::*;
        assert_eq!(ends("nowhere", 0), (NoMessageInQueue, 0));
        assert_eq!(ends("nowhere", 7), (NoMessageInQueue, 0));
        assert_eq!(ends("orders", 0), (Found, 32));
        assert_eq!(ends("orders", 299), (Found, 300));
        assert_eq!(unread(0), (NoMatchedMessage, 300));
        assert_eq!(unread(299), (NoMatchedMessage, 300));
        assert_eq!(ends("orders", 300), (OffsetOverflowOne, 300));
        assert_eq!(ends("orders", 301), (OffsetOverflowBadly, 300));
        assert_eq!(ends("orders", u64::MAX), (OffsetOverflowBadly, 300));
        store.delete_expired_files();
        while store.min_phy().0 == 0 {
            host::Host::current().sleep(Duration::from_millis(5)).await;
        }
        // The first log file is gone, and the queues do not know it yet.
        assert_eq!(store.min_offset("old", 0), QueueOffset(0));
        assert_eq!(ends("old", 3), (MessageWasRemoving, 10));
        let found = read(&store, "orders", 0, (32, 1 << 20));
        assert_eq!((found.status, found.count), (Found, 32), "those behind the deleted ones are given");
        let min = found.next.0 - 32;
        assert!(min > 0);
        while store.min_offset("old", 0) != QueueOffset(10) {
            host::Host::current().sleep(Duration::from_millis(20)).await;
        }
        // The other queue learns of it after that one, and of the next file when that is gone, too.
        let min_now = loop {
            let first = read_all(&store, "orders", 0)[0].queue_offset.0;
            if ends("orders", 0) == (OffsetTooSmall, first) {
                break first;
            }
            host::Host::current().sleep(Duration::from_millis(20)).await;
        };
        assert!(min_now >= min);
        assert_eq!(ends("orders", min_now - 1), (OffsetTooSmall, min_now));
        assert_eq!(ends("old", 3), (OffsetTooSmall, 10));
        assert_eq!(ends("old", 10), (OffsetOverflowOne, 10));
        store.shutdown().await.unwrap();
    });
}

/// 100 messages of one size, of which the last 30 count as recent.
async fn with_thirty_recent(dir: &Path, limits: impl Fn(&mut StoreConfig, u64)) -> Store {
    let store = filled(StoreConfig { commit_log_file_bytes: 64 << 10, ..config(dir) }, 100, 146).await;
    let size = store.max_phy().0 / 100;
    store.shutdown().await.unwrap();
    let mut settings = StoreConfig { commit_log_file_bytes: 64 << 10, ..config(dir) };
    // The memory counts in whole percents.
    assert!((size * 30).is_multiple_of(100), "{size}");
    (settings.memory_bytes, settings.memory_max_percent) = (size * 30, 100);
    limits(&mut settings, size);
    Store::open(settings).await.unwrap()
}

#[test]
fn a_read_has_enough_by_what_is_recent_and_what_is_not() {
    type Limits = (u64, u32, u64, u32);
    const MUCH: u64 = 1 << 20;
    // Limits for recent messages and for older ones, in sizes of a message and in messages; where to read and how much
    // is wanted, in messages and sizes; how many messages that gives.
    const TABLE: [(Limits, u64, (u32, u64), u32); 13] = [
        // As many as are wanted.
        ((MUCH, 32, MUCH, 8), 0, (5, MUCH), 5),
        ((MUCH, 32, MUCH, 8), 80, (15, MUCH), 15),
        // The default numbers.
        ((MUCH, 32, MUCH, 8), 0, (64, MUCH), 8),
        ((MUCH, 32, MUCH, 8), 70, (64, MUCH), 30),
        ((MUCH, 20, MUCH, 8), 70, (64, MUCH), 20),
        // Each message is looked at by itself: six older ones are no reason to stop at the first recent one.
        ((MUCH, 20, MUCH, 8), 64, (64, MUCH), 20),
        ((MUCH, 20, MUCH, 8), 60, (64, MUCH), 8),
        // Bytes, exactly so many.
        ((MUCH, 32, 3, 32), 0, (64, MUCH), 3),
        ((12, 32, 3, 32), 75, (64, MUCH), 12),
        ((12, 32, 3, 32), 69, (64, MUCH), 12),
        ((12, 32, MUCH, 32), 75, (64, 7), 7),
        // One message always passes, and what is wanted may be less than that.
        ((0, 32, 0, 32), 0, (64, MUCH), 1),
        ((0, 32, 0, 32), 99, (64, 0), 1),
    ];
    on_machine(|dir| async move {
        for (number, ((memory, memory_count, disk, disk_count), offset, (count, sizes), expected)) in (0..).zip(TABLE) {
            let dir = dir.with_extension(format!("{number}"));
            let store = with_thirty_recent(&dir, |settings, size| {
                settings.transfer_memory_bytes = memory * size;
                settings.transfer_memory_count = memory_count;
                settings.transfer_disk_bytes = disk * size;
                settings.transfer_disk_count = disk_count;
            })
            .await;
            let size = store.max_phy().0 / 100;
            let result = read(&store, "orders", offset, (count, sizes * size));
            let told = format!("row {number}: {result:?}");
            assert_eq!((result.status, result.count), (GetStatus::Found, expected), "{told}");
            assert_eq!(
                (result.next.0, result.bytes),
                (offset + u64::from(expected), u64::from(expected) * size),
                "{told}"
            );
            store.shutdown().await.unwrap();
        }
    });
}

#[test]
fn a_slave_should_serve_what_ends_before_the_recent_messages() {
    on_machine(|dir| async move {
        let store = with_thirty_recent(&dir, |settings, _| settings.transfer_disk_count = 32).await;
        let table = [
            (0, 8, true),
            (67, 3, true),
            // The last message that was looked at decides.
            (67, 4, false),
            (68, 3, false),
            (70, 1, false),
            (99, 1, false),
            // Nothing was looked at.
            (100, 1, false),
            (101, 1, false),
        ];
        for (offset, count, expected) in table {
            let result = read(&store, "orders", offset, (count, 1 << 20));
            assert_eq!(result.suggest_slave, expected, "{count} from {offset} on: {result:?}");
        }
        store.shutdown().await.unwrap();
    });
}

#[test]
fn a_read_looks_through_as_many_entries_as_are_wanted_and_at_least_those_of_a_block() {
    on_machine(|dir| async move {
        // Ten entries of 20 bytes.
        let store = filled(StoreConfig { filter_max_bytes: 200, ..config(&dir) }, 100, 10).await;
        for (offset, max_count, next) in [(0, 4, 10), (0, 10, 10), (0, 32, 32), (95, 4, 100), (85, 32, 100)] {
            let offset = QueueOffset(offset);
            let filter = Some(&Nothing as &dyn MessageFilter);
            let (topic, max_bytes) = ("orders", 1 << 20);
            let result = store.get(&GetRequest { topic, queue_id: 0, offset, max_count, max_bytes, filter });
            assert_eq!((result.status, result.next.0), (GetStatus::NoMatchedMessage, next), "{offset:?}, {max_count}");
        }
        store.shutdown().await.unwrap();
    });
}
