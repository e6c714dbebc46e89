//! Writing and reading through the public API, on the real machine.

mod support;

use std::time::Duration;

use message::{PhyOffset, QueueOffset, StoredMessage, SysFlag, Transaction};
use staticfire_store::{
    FlushDiskType, Flushed, GetRequest, GetStatus, MessageFilter, PutError, Store, StoreConfig, TimeBoundary,
    WriteBlock,
};
use support::{Text, config, get, on_machine, read_all, settle};

#[test]
fn what_is_put_is_read_in_order_and_after_a_restart() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        for number in 0..500 {
            let put = store.put_when_ready(&Text::new("orders", number % 3, number).draft()).await.unwrap();
            assert_eq!(put.queue_offset, QueueOffset(u64::from(number / 3)));
        }
        settle(&store).await;
        let before: Vec<StoredMessage> = (0..3).flat_map(|queue| read_all(&store, "orders", queue)).collect();
        assert_eq!(before.len(), 500);
        assert_eq!(before[1].message.body, Text::new("orders", 0, 3).body);
        assert_eq!(store.queues(), [("orders".to_owned(), vec![0, 1, 2])]);
        store.shutdown().await.unwrap();
        assert!(!dir.join("abort").exists());
        let store = Store::open(config(&dir)).await.unwrap();
        let after: Vec<StoredMessage> = (0..3).flat_map(|queue| read_all(&store, "orders", queue)).collect();
        assert_eq!(before, after);
        let put = store.put(&Text::new("orders", 1, 7).draft()).unwrap();
        assert_eq!(put.queue_offset, QueueOffset(167));
        store.shutdown().await.unwrap();
    });
}

#[test]
fn each_place_outside_a_queue_has_its_status() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        let status = |queue_id, offset| {
            let result = get(&store, "orders", queue_id, offset);
            (result.status, result.next.0)
        };
        assert_eq!(status(0, 7), (GetStatus::NoMessageInQueue, 0));
        for number in 0..40 {
            store.put(&Text::new("orders", 0, number).draft()).unwrap();
        }
        settle(&store).await;
        assert_eq!(status(0, 0), (GetStatus::Found, 32));
        assert_eq!(status(0, 39), (GetStatus::Found, 40));
        assert_eq!(status(0, 40), (GetStatus::OffsetOverflowOne, 40));
        assert_eq!(status(0, 41), (GetStatus::OffsetOverflowBadly, 40));
        assert_eq!(status(1, 0), (GetStatus::NoMessageInQueue, 0));
        store.shutdown().await.unwrap();
    });
}

/// Lets one tag pass, and of it only messages with even numbers in their bodies.
struct TagOne {
    even_only: bool,
}

impl MessageFilter for TagOne {
    fn matches_tags_code(&self, tags_code: i64) -> bool {
        tags_code == message::tags_code(Some("t1"))
    }

    fn matches_record(&self, record: &message::RecordView<'_>) -> bool {
        !self.even_only || record.queue_offset.0.is_multiple_of(2)
    }
}

#[test]
fn filters_choose_by_tag_and_by_record() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        for number in 0..40 {
            store.put(&Text::new("orders", 0, number).draft()).unwrap();
        }
        settle(&store).await;
        let read = |offset, even_only| {
            let filter = TagOne { even_only };
            let result = store.get(&GetRequest {
                topic: "orders",
                queue_id: 0,
                offset: QueueOffset(offset),
                max_count: 32,
                max_bytes: 1 << 20,
                filter: Some(&filter),
            });
            (result.status, result.count, result.next.0)
        };
        assert_eq!(read(0, false), (GetStatus::Found, 10, 40));
        assert_eq!(read(0, true), (GetStatus::NoMatchedMessage, 0, 40));
        assert_eq!(read(38, false), (GetStatus::NoMatchedMessage, 0, 40));
        store.shutdown().await.unwrap();
    });
}

#[test]
fn a_read_stops_at_its_limits_but_one_message_always_passes() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        for number in 0..40 {
            store.put(&Text::new("orders", 0, number).draft()).unwrap();
        }
        settle(&store).await;
        let read = |max_count, max_bytes| {
            let offset = QueueOffset(0);
            store.get(&GetRequest { topic: "orders", queue_id: 0, offset, max_count, max_bytes, filter: None })
        };
        assert_eq!(read(5, 1 << 20).count, 5);
        assert_eq!(read(32, 0).count, 1);
        let all = read(32, 1 << 20);
        assert_eq!((all.count, all.records.len()), (32, 1), "records side by side come as one piece");
        store.shutdown().await.unwrap();
    });
}

#[test]
fn batches_get_consecutive_offsets_in_one_file() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        let texts: Vec<Text> = (0..20).map(|number| Text::new("orders", 0, number)).collect();
        let drafts: Vec<_> = texts.iter().map(Text::draft).collect();
        for round in 0..20 {
            let put = store.put_batch_when_ready(&drafts).await.unwrap();
            let offsets: Vec<u64> = put.puts.iter().map(|put| put.queue_offset.0).collect();
            assert_eq!(offsets, (round * 20..round * 20 + 20).collect::<Vec<_>>());
            assert_eq!(put.puts[0].phy.0 >> 14, put.puts[19].phy.0 >> 14, "one file of 16 KiB");
            assert!(put.puts.windows(2).all(|pair| pair[0].end() == pair[1].phy));
        }
        settle(&store).await;
        assert_eq!(read_all(&store, "orders", 0).len(), 400);
        store.shutdown().await.unwrap();
    });
}

#[test]
fn illegal_messages_are_refused_and_leave_no_trace() {
    on_machine(|dir| async move {
        let store = Store::open(StoreConfig { message_max_bytes: 1000, ..config(&dir) }).await.unwrap();
        let refused = |text: &Text| store.put(&text.draft()).unwrap_err().to_string();
        let plain = || Text::new("orders", 0, 1);
        assert!(refused(&Text { topic: "a b".into(), ..plain() }).contains("holds ` `"));
        assert!(refused(&Text { topic: "t".repeat(128), ..plain() }).contains("at most 127"));
        assert!(refused(&Text { body: "x".repeat(1001), ..plain() }).contains("at most 1000"));
        assert!(refused(&Text { properties: "words".into(), ..plain() }).contains("properties"));
        let long = store.put(&Text { properties: "A\u{1}".repeat(20_000), ..plain() }.draft());
        assert_eq!(long, Err(PutError::PropertiesTooLong { bytes: 40_000, limit: 32767 }));
        let texts = [Text::new("orders", 0, 1), Text::new("orders", 1, 1)];
        assert!(store.put_batch(&[texts[0].draft(), texts[1].draft()]).is_err());
        assert!(store.put_batch(&[]).is_err());
        let huge: Vec<Text> = (0..200).map(|number| Text::new("orders", 0, number)).collect();
        let huge: Vec<_> = huge.iter().map(Text::draft).collect();
        assert!(matches!(store.put_batch(&huge[..100]), Err(PutError::Illegal { .. })));
        assert_eq!(store.max_phy(), PhyOffset(0));
        store.shutdown().await.unwrap();
    });
}

#[test]
fn half_messages_and_rollback_marks_have_no_place_in_their_queue() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        let text = Text::new("orders", 0, 1);
        for transaction in [Transaction::Prepared, Transaction::Rollback, Transaction::Commit, Transaction::None] {
            let draft = message::Draft { sys_flag: SysFlag(0).with_transaction(transaction), ..text.draft() };
            store.put(&draft).unwrap();
        }
        settle(&store).await;
        assert_eq!(store.max_offset("orders", 0), QueueOffset(2));
        store.shutdown().await.unwrap();
    });
}

#[test]
fn under_sync_flush_readers_see_only_what_is_on_disk() {
    on_machine(|dir| async move {
        let store = Store::open(StoreConfig { flush_disk_type: FlushDiskType::Sync, ..config(&dir) }).await.unwrap();
        for number in 0..50 {
            let put = store.put_when_ready(&Text::new("orders", 0, number).draft()).await.unwrap();
            assert_eq!(store.durability(put.end()).await, Flushed::Done);
            assert!(store.flushed_phy() >= put.end());
        }
        assert_eq!(store.durability(store.max_phy()).now(), Some(Flushed::Done));
        store.arrival("orders", 0, QueueOffset(49)).await;
        assert_eq!(store.durable_offset("orders", 0), QueueOffset(50));
        store.shutdown().await.unwrap();
    });
}

#[test]
fn under_async_flush_nobody_waits_unless_asked() {
    on_machine(|dir| async move {
        let never = Duration::from_secs(3600);
        let lazy = StoreConfig { flush_interval: never, flush_thorough_interval: never, ..config(&dir) };
        let store = Store::open(lazy).await.unwrap();
        let put = store.put(&Text::new("orders", 0, 1).draft()).unwrap();
        assert_eq!(store.durability(put.end()).now(), Some(Flushed::Done));
        settle(&store).await;
        assert_eq!(store.durable_offset("orders", 0), QueueOffset(0));
        assert_eq!(store.flush().await, Flushed::Done);
        assert_eq!(store.durable_offset("orders", 0), QueueOffset(1));
        store.shutdown().await.unwrap();
    });
}

#[test]
fn arrivals_wake_those_who_wait() {
    on_machine(|dir| async move {
        let host = host::Host::current();
        let store = std::sync::Arc::new(Store::open(config(&dir)).await.unwrap());
        let waiting = {
            let store = std::sync::Arc::clone(&store);
            host.spawn("waiter", async move { store.arrival("orders", 5, QueueOffset(1)).await })
        };
        store.put(&Text::new("orders", 5, 1).draft()).unwrap();
        assert!(host.timeout(Duration::from_millis(50), store.arrival("orders", 5, QueueOffset(1))).await.is_err());
        store.put(&Text::new("orders", 5, 2).draft()).unwrap();
        host.timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
        store.shutdown().await.unwrap();
    });
}

#[test]
fn offsets_are_found_by_time() {
    on_machine(|dir| async move {
        let host = host::Host::current();
        let store = Store::open(config(&dir)).await.unwrap();
        let mut times = Vec::new();
        for number in 0..6 {
            times.push(store.put(&Text::new("orders", 0, number).draft()).unwrap().store_ms);
            if number % 2 == 1 {
                host.sleep(Duration::from_millis(3)).await;
            }
        }
        settle(&store).await;
        let find = |time, boundary| store.offset_by_time("orders", 0, time, boundary).0;
        let first_at = |time| times.iter().position(|&at| at >= time).unwrap_or(6) as u64;
        for time in times[0] - 1..=times[5] + 1 {
            assert_eq!(find(time, TimeBoundary::Lower), first_at(time));
            assert_eq!(find(time, TimeBoundary::Upper), first_at(time + 1).saturating_sub(1));
        }
        assert_eq!(store.earliest_store_ms("orders", 0), Some(times[0]));
        assert_eq!(store.store_ms_at("orders", 0, QueueOffset(6)), None);
        assert_eq!(store.offset_by_time("nothing", 0, 5, TimeBoundary::Lower), QueueOffset(0));
        store.shutdown().await.unwrap();
    });
}

#[test]
fn w15_expired_files_go_and_held_bytes_stay() {
    on_machine(|dir| async move {
        let host = host::Host::current();
        let store = Store::open(StoreConfig { file_reserved: Duration::ZERO, delete_when: vec![], ..config(&dir) })
            .await
            .unwrap();
        for number in 0..900 {
            store.put_when_ready(&Text::new("orders", 0, number).draft()).await.unwrap();
        }
        settle(&store).await;
        let held = get(&store, "orders", 0, 0);
        let before = held.records[0].to_vec();
        store.delete_expired_files();
        // Only the file that is written is left, and the queue has followed.
        let mut min = QueueOffset(0);
        while min < QueueOffset(100) || min != store.min_offset("orders", 0) {
            min = store.min_offset("orders", 0);
            host.sleep(Duration::from_millis(1200)).await;
        }
        assert_eq!(held.records[0], before);
        assert_eq!(get(&store, "orders", 0, 0).status, GetStatus::OffsetTooSmall);
        assert_eq!(get(&store, "orders", 0, 0).next, min);
        assert_eq!(read_all(&store, "orders", 0)[0].queue_offset, min);
        assert!(!dir.join("commitlog/00000000000000000000").exists());
        assert!(!dir.join("consumequeue/orders/0/00000000000000000000").exists());
        store.shutdown().await.unwrap();
        let store = Store::open(config(&dir)).await.unwrap();
        assert_eq!(store.min_offset("orders", 0), min);
        assert_eq!(store.max_offset("orders", 0), QueueOffset(900));
        store.shutdown().await.unwrap();
    });
}

#[test]
fn a_stopped_store_refuses_writes_and_still_reads() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        store.put(&Text::new("orders", 0, 1).draft()).unwrap();
        store.shutdown().await.unwrap();
        store.shutdown().await.unwrap();
        let refused = store.put(&Text::new("orders", 0, 1).draft());
        assert_eq!(refused, Err(PutError::Blocked(WriteBlock::Stopped)));
        assert_eq!(read_all(&store, "orders", 0).len(), 1);
    });
}

#[test]
fn delayed_messages_carry_the_time_of_delivery() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        let text = Text { properties: "DELAY\u{1}3\u{2}".into(), ..Text::new(message::SCHEDULE_TOPIC, 2, 1) };
        let put = store.put(&text.draft()).unwrap();
        settle(&store).await;
        let raw = std::fs::read(dir.join("consumequeue/SCHEDULE_TOPIC_XXXX/2/00000000000000000000")).unwrap();
        assert_eq!(raw[12..20], (put.store_ms + 10_000).to_be_bytes());
        store.shutdown().await.unwrap();
    });
}
