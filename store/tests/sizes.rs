//! Stores with very many topics, and with very large messages.

mod support;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use message::{PhyOffset, QueueOffset};
use staticfire_store::{
    Flushed, PutError, Store, StoreConfig,
    audit::{AuditOptions, audit},
};
use support::{Dir, Text, any_disk, config, copy_dir, get, on_machine, read_all, settle};

const TOPICS: u32 = 3000;

fn topic(number: u32) -> String {
    format!("topic-{number}")
}

fn many_topics(dir: &Path) -> StoreConfig {
    StoreConfig { commit_log_file_bytes: 64 << 10, ..config(dir) }
}

/// Compares all topics with the two messages that each has got, of which those before the start of the log are gone.
fn check_topics(store: &Store, places: &[[PhyOffset; 2]]) {
    assert_eq!(store.queues().len(), TOPICS as usize);
    for (number, places) in (0..).zip(places) {
        let left: Vec<PhyOffset> = places.iter().copied().filter(|place| *place >= store.min_phy()).collect();
        let topic = topic(number);
        assert_eq!(store.max_offset(&topic, 0), QueueOffset(2), "{topic}");
        assert_eq!(store.min_offset(&topic, 0), QueueOffset(2 - left.len() as u64), "{topic}");
        let found: Vec<PhyOffset> = read_all(store, &topic, 0).iter().map(|message| message.phy).collect();
        assert_eq!(found, left, "{topic}");
    }
}

fn check_audit(config: &StoreConfig, queues: usize, records: Option<u64>) {
    let found = audit(&Dir(config.root.clone()), &AuditOptions::of(config)).unwrap();
    assert_eq!(found.findings, []);
    assert_eq!(found.queues, queues);
    assert!(records.is_none_or(|records| found.records == records), "{found:?}");
}

#[test]
fn a_store_with_thousands_of_topics_is_opened_checked_recovered_and_emptied() {
    on_machine(|dir| async move {
        let store = Store::open(many_topics(&dir)).await.unwrap();
        let mut turns = [Vec::new(), Vec::new()];
        for turn in &mut turns {
            for number in 0..TOPICS {
                turn.push(store.put_when_ready(&Text::new(&topic(number), 0, number).draft()).await.unwrap().phy);
            }
        }
        let [first, second] = turns;
        let places: Vec<[PhyOffset; 2]> =
            first.into_iter().zip(second).map(|(first, second)| [first, second]).collect();
        settle(&store).await;
        check_topics(&store, &places);
        let killed = dir.with_extension("killed");
        copy_dir(&dir, &killed);
        store.shutdown().await.unwrap();
        check_audit(&many_topics(&dir), TOPICS as usize, Some(2 * u64::from(TOPICS)));
        let store = Store::open(many_topics(&dir)).await.unwrap();
        check_topics(&store, &places);
        store.shutdown().await.unwrap();
        let expiring = StoreConfig { file_reserved: Duration::ZERO, delete_when: vec![], ..many_topics(&killed) };
        let store = Store::open(expiring).await.unwrap();
        check_topics(&store, &places);
        empty(&store, &places).await;
        store.shutdown().await.unwrap();
        check_audit(&many_topics(&killed), TOPICS as usize, None);
        let store = Store::open(many_topics(&killed)).await.unwrap();
        check_topics(&store, &places);
        let put = store.put_when_ready(&Text::new(&topic(0), 0, 1).draft()).await.unwrap();
        assert_eq!(put.queue_offset, QueueOffset(2));
        store.shutdown().await.unwrap();
    });
}

/// Lets all files of the log but the last one go, and waits until the queues have followed.
async fn empty(store: &Store, places: &[[PhyOffset; 2]]) {
    let host = host::Host::current();
    let log_end = store.max_phy().0 / (64 << 10) * (64 << 10);
    let count = |number: usize| places[number].iter().filter(|place| **place >= store.min_phy()).count() as u64;
    let has_followed = |number: usize| store.min_offset(&topic(number as u32), 0) == QueueOffset(2 - count(number));
    for _ in 0..600 {
        store.delete_expired_files();
        host.sleep(Duration::from_millis(100)).await;
        if store.min_phy().0 == log_end && (0..places.len()).all(has_followed) {
            return;
        }
    }
    panic!("the log begins at {:?}, its last file at {log_end}", store.min_phy());
}

const MIB: usize = 1 << 20;

fn large(number: u32, bytes: usize) -> Text {
    Text { body: char::from(b'a' + number as u8).to_string().repeat(bytes), ..Text::new("large", 0, number) }
}

/// Messages of the largest size, among small ones, in log files that have room for one, for several, and in buffers.
#[test]
fn messages_of_4_mib_are_kept_through_any_exit() {
    for (file_bytes, pool_enabled) in [(4 * MIB as u64 + 4096, false), (13 * MIB as u64, false), (9 * MIB as u64, true)]
    {
        on_machine(move |dir| async move {
            let settings = |dir: &Path| StoreConfig {
                commit_log_file_bytes: file_bytes,
                pool_enabled,
                pool_buffers: 3,
                sync_flush_timeout: Duration::from_secs(60),
                index_slots: 20,
                index_entries: 50,
                ..any_disk(dir)
            };
            let store = Store::open(settings(&dir)).await.unwrap();
            let texts: Vec<Text> = (0..8)
                .flat_map(|number| [large(number, 4 * MIB), large(number, 100), large(number, 3 * MIB + 7)])
                .collect();
            for text in &texts {
                store.put_when_ready(&text.draft()).await.unwrap();
            }
            let too_large = large(9, 4 * MIB + 1);
            let refused = store.put(&too_large.draft());
            assert!(matches!(refused, Err(PutError::Illegal { .. })), "{refused:?}");
            // What is in a buffer only a kill would take.
            assert_eq!(store.flush().await, Flushed::Done);
            settle(&store).await;
            assert_eq!(get(&store, "large", 0, 0).records.len(), 1, "a message passes, however large");
            let check = |store: &Store| {
                let all = read_all(store, "large", 0);
                assert_eq!(all.len(), texts.len());
                for (message, text) in all.iter().zip(&texts) {
                    assert!(message.message.body == text.body.as_bytes(), "{:?}", message.queue_offset);
                }
            };
            check(&store);
            let killed = dir.with_extension("killed");
            copy_dir(&dir, &killed);
            store.shutdown().await.unwrap();
            for dir in [dir, killed] {
                let store = Store::open(settings(&dir)).await.unwrap();
                check(&store);
                store.shutdown().await.unwrap();
                check_audit(&settings(&dir), 1, Some(texts.len() as u64));
            }
        });
    }
}

/// Log files may be smaller than the largest message: what does not fit is refused, and takes no room.
#[test]
fn a_message_that_no_log_file_has_room_for_is_refused_and_leaves_no_trace() {
    on_machine(|dir: PathBuf| async move {
        let settings = || StoreConfig { commit_log_file_bytes: MIB as u64, ..any_disk(&dir) };
        let store = Store::open(settings()).await.unwrap();
        let first = store.put_when_ready(&large(0, 100).draft()).await.unwrap();
        for bytes in [4 * MIB, MIB, MIB - 60] {
            let text = large(1, bytes);
            for refused in [store.put(&text.draft()), store.put_when_ready(&text.draft()).await] {
                assert!(matches!(refused, Err(PutError::Illegal { .. })), "{bytes}: {refused:?}");
            }
            let refused = store.put_batch(&[large(2, 5).draft(), text.draft()]);
            assert!(matches!(refused, Err(PutError::Illegal { .. })), "{bytes}: {refused:?}");
        }
        assert_eq!(store.max_phy(), first.end());
        let fits = MIB - large(3, 0).draft().size_bytes() - 8;
        let put = store.put_when_ready(&large(3, fits).draft()).await.unwrap();
        assert_eq!((put.phy, put.queue_offset), (PhyOffset(MIB as u64), QueueOffset(1)));
        settle(&store).await;
        store.shutdown().await.unwrap();
        let store = Store::open(settings()).await.unwrap();
        let bodies: Vec<usize> =
            read_all(&store, "large", 0).iter().map(|message| message.message.body.len()).collect();
        assert_eq!(bodies, [100, fits]);
        store.shutdown().await.unwrap();
    });
}
