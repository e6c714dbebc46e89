//! Stores that Apache RocketMQ 5.3.3 wrote, found through `STATICFIRE_GOLDEN`.

mod support;

use std::path::{Path, PathBuf};

use base64::Engine as _;
use message::{OffsetMessageId, PhyOffset, QueueOffset, StoredMessage};
use serde_json::Value;
use staticfire_store::{GetStatus, KeyQuery, Store, StoreConfig};
use support::{any_disk, copy_dir, find, get, golden, on_machine, read_all};

fn lines(path: PathBuf) -> Vec<Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn golden_config(root: &Path) -> StoreConfig {
    StoreConfig {
        commit_log_file_bytes: 1 << 20,
        consume_queue_file_bytes: 6000,
        index_slots: 1000,
        index_entries: 4000,
        ..any_disk(root)
    }
}

/// The message at a place that a line of golden data names.
fn message_at(store: &Store, topic: &str, line: &Value, offset: u64) -> StoredMessage {
    let queue_id = line["queueId"].as_u64().unwrap_or(0) as u32;
    let result = get(store, topic, queue_id, offset);
    assert_eq!(result.status, GetStatus::Found, "{line}");
    let message = StoredMessage::decode_all(result.records[0].clone()).unwrap().remove(0);
    assert_eq!(message.queue_offset, QueueOffset(offset));
    message
}

fn text(line: &Value, field: &str) -> String {
    line[field].as_str().unwrap_or_default().to_owned()
}

fn check_sent(store: &Store, line: &Value) {
    let topic = text(line, "topic");
    let first = line["queueOffset"].as_u64().unwrap();
    let (ids, places) = (text(line, "msgId"), text(line, "offsetMsgId"));
    for (index, (id, place)) in ids.split(',').zip(places.split(',')).enumerate() {
        let place = OffsetMessageId::parse(place).unwrap();
        let record = store.record_at(place.phy).unwrap();
        let by_phy = StoredMessage::decode_all(record).unwrap().remove(0);
        // Messages of a batch also carry the properties of the batch behind their own.
        let own = by_phy.message.properties.iter().find(|&(name, _)| name == message::property::UNIQUE_ID);
        assert_eq!(own.map(|(_, value)| value), Some(id), "{line}");
        assert_eq!(by_phy.offset_message_id(), place);
        // A delayed message waits in the schedule topic; its own queue gets a copy when it is due.
        if by_phy.message.topic != topic {
            assert_eq!(by_phy.message.topic, message::SCHEDULE_TOPIC);
            continue;
        }
        let message = message_at(store, &topic, line, first + index as u64);
        assert_eq!(message, by_phy);
        if index > 0 {
            continue; // The line tells tags, keys and length of the first message of a batch only.
        }
        assert_eq!(message.message.tags().unwrap_or("null"), text(line, "tags"), "{line}");
        assert_eq!(message.message.keys().unwrap_or_default(), text(line, "keys"), "{line}");
        let length = message.uncompressed_body(1 << 20).unwrap().len() as u64;
        assert_eq!(Some(length), line["bodyLength"].as_u64(), "{line}");
    }
}

fn check_expected(store: &Store, golden: &Path) {
    let mut sent = 0;
    for line in lines(golden.join("clean-exit/expected.jsonl")) {
        match line["event"].as_str().unwrap() {
            "sent" => {
                check_sent(store, &line);
                sent += 1;
            }
            "consumed" => {
                let topic = match text(&line, "group").as_str() {
                    "CG_order" => "GoldOrder",
                    "CG_bcast" => "GoldDelay",
                    "CG_tx" => "GoldTx",
                    "CG_tag" | "CG_sql" => "GoldTopic",
                    other => panic!("unknown group {other}"),
                };
                // Transactions do not tell their queue: look for the body.
                if topic == "GoldTx" {
                    let all = [read_all(store, topic, 0), read_all(store, topic, 1)].concat();
                    assert!(all.iter().any(|one| one.message.body == text(&line, "body")), "{line}");
                    continue;
                }
                let message = message_at(store, topic, &line, line["queueOffset"].as_u64().unwrap());
                assert_eq!(message.message.body, text(&line, "body"), "{line}");
            }
            "failed" | "tx" | "check" => {}
            other => panic!("unknown event {other}"),
        }
    }
    assert_eq!(sent, 44);
}

#[test]
fn a_cleanly_closed_store_serves_every_message() {
    let Some(golden) = golden() else { return };
    on_machine(|dir| async move {
        copy_dir(&golden.join("clean-exit/store"), &dir);
        for _ in 0..2 {
            let store = Store::open(golden_config(&dir)).await.unwrap();
            check_expected(&store, &golden);
            assert_eq!(store.max_offset("GoldRoll", 0).0 + store.max_offset("GoldRoll", 1).0, 900);
            assert_eq!(read_all(&store, "GoldRoll", 0).len(), 450);
            store.shutdown().await.unwrap();
        }
        assert_eq!(dir_names(&dir.join("index")), dir_names(&golden.join("clean-exit/store/index")));
    });
}

#[test]
fn a_killed_store_recovers_to_what_apache_recovers() {
    let Some(golden) = golden() else { return };
    on_machine(|dir| async move {
        copy_dir(&golden.join("killed/store"), &dir);
        let store = Store::open(golden_config(&dir)).await.unwrap();
        let status = std::fs::read_to_string(golden.join("killed/after-recovery-topicStatus.txt")).unwrap();
        for line in status.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let queue_id = fields[1].parse().unwrap();
            assert_eq!(store.min_offset("GoldRoll", queue_id).to_string(), fields[2]);
            assert_eq!(store.max_offset("GoldRoll", queue_id).to_string(), fields[3]);
        }
        check_expected(&store, &golden);
        check_acked(&store, &golden);
        store.shutdown().await.unwrap();
    });
}

#[test]
fn without_its_queues_a_killed_store_recovers_to_the_same() {
    let Some(golden) = golden() else { return };
    on_machine(|dir| async move {
        for damage in ["consumequeue", "consumequeue/GoldTopic", "consumequeue/GoldRoll/1", "checkpoint"] {
            copy_dir(&golden.join("killed/store"), &dir);
            let victim = dir.join(damage);
            if victim.is_dir() {
                std::fs::remove_dir_all(&victim).unwrap()
            } else {
                std::fs::remove_file(&victim).unwrap()
            }
            let store = Store::open(golden_config(&dir)).await.unwrap();
            check_expected(&store, &golden);
            check_acked(&store, &golden);
            store.shutdown().await.unwrap();
            std::fs::remove_dir_all(&dir).unwrap();
        }
    });
}

#[test]
fn a_store_of_other_settings_is_refused_and_left_alone() {
    let Some(golden) = golden() else { return };
    on_machine(|dir| async move {
        copy_dir(&golden.join("killed/store"), &dir);
        let before = support::snapshot(&dir);
        for config in [
            StoreConfig { commit_log_file_bytes: 2 << 20, ..golden_config(&dir) },
            StoreConfig { commit_log_file_bytes: 1 << 19, ..golden_config(&dir) },
            StoreConfig { consume_queue_file_bytes: 6_000_000, ..golden_config(&dir) },
        ] {
            let error = Store::open(config).await.unwrap_err().to_string();
            assert!(error.contains("mappedFileSize"), "{error}");
        }
        assert_eq!(support::snapshot(&dir), before);
    });
}

/// Header and entries of an index file of the golden settings.
fn index_file(path: &Path) -> (Vec<u8>, Vec<[u8; 20]>) {
    let content = std::fs::read(path).unwrap();
    let (header, rest) = content.split_at(40);
    let count = u32::from_be_bytes(header[36..].try_into().unwrap()) as usize;
    (header.to_vec(), rest[4000..].as_chunks::<20>().0[1..count].to_vec())
}

/// Every entry of an index file leads to its message, by a key that the message has.
fn check_index(store: &Store, path: &Path) {
    let mut last_phy = None;
    for entry in index_file(path).1 {
        let phy = PhyOffset(u64::from_be_bytes(entry[4..12].try_into().unwrap()));
        if last_phy.replace(phy) == Some(phy) {
            continue;
        }
        let message = StoredMessage::decode_all(store.record_at(phy).unwrap()).unwrap().remove(0).message;
        for key in message.unique_id().into_iter().chain(message.keys().unwrap_or_default().split(' ')) {
            let found = find(store, &message.topic, key);
            assert!(key.is_empty() || found.contains(&phy) || found.len() == 64, "{key} of {phy:?}: {found:?}");
        }
    }
}

#[test]
fn the_index_of_a_cleanly_closed_store_is_built_to_the_byte() {
    let Some(golden) = golden() else { return };
    on_machine(|dir| async move {
        let original = golden.join("clean-exit/store/index/20261129174022566");
        // Without it, and over it.
        for keep in [false, true] {
            copy_dir(&golden.join("clean-exit/store"), &dir);
            if !keep {
                std::fs::remove_dir_all(dir.join("index")).unwrap();
            }
            let store = Store::open(golden_config(&dir)).await.unwrap();
            // The reference takes the time of the day for the name, this store that of the first message.
            let name = if keep { "20261129174022566" } else { "20261129174022548" };
            assert_eq!(dir_names(&dir.join("index")), [name]);
            assert!(std::fs::read(dir.join("index").join(name)).unwrap() == std::fs::read(&original).unwrap());
            check_index(&store, &original);
            store.shutdown().await.unwrap();
            std::fs::remove_dir_all(&dir).unwrap();
        }
    });
}

/// The bytes behind the header of a frame.
fn body_of(line: &Value) -> Vec<u8> {
    let frame = base64::engine::general_purpose::STANDARD.decode(line["frame"].as_str().unwrap()).unwrap();
    let header_bytes = u32::from_be_bytes(frame[4..8].try_into().unwrap()) & 0x00FF_FFFF; // Above: the encoding.
    frame[8 + header_bytes as usize..].to_vec()
}

#[test]
fn a_search_by_key_finds_what_apache_found() {
    let Some(golden) = golden() else { return };
    on_machine(|dir| async move {
        copy_dir(&golden.join("clean-exit/store"), &dir);
        let store = Store::open(golden_config(&dir)).await.unwrap();
        let frames: Vec<Value> =
            lines(golden.join("frames.jsonl")).into_iter().filter(|line| line["request_code"] == 12).collect();
        let (asked, answered) = (&frames[0]["header"]["extFields"], &frames[1]);
        let number = |value: &Value| value.as_str().unwrap().parse::<i64>().unwrap();
        let result = store.query(&KeyQuery {
            topic: asked["topic"].as_str().unwrap(),
            key: asked["key"].as_str().unwrap(),
            max_count: number(&asked["maxNum"]) as u32,
            begin_ms: number(&asked["beginTimestamp"]),
            end_ms: number(&asked["endTimestamp"]),
        });
        let body = body_of(answered);
        assert!(!body.is_empty() && result.records.concat() == body);
        let reach = &answered["header"]["extFields"];
        assert_eq!(result.index_last_ms, number(&reach["indexLastUpdateTimestamp"]));
        assert_eq!(result.index_last_phy, PhyOffset(number(&reach["indexLastUpdatePhyoffset"]) as u64));
        store.shutdown().await.unwrap();
    });
}

#[test]
fn the_index_of_a_killed_store_goes_on_where_apache_stopped() {
    let Some(golden) = golden() else { return };
    on_machine(|dir| async move {
        let originals = golden.join("killed/store/index");
        copy_dir(&golden.join("killed/store"), &dir);
        let store = Store::open(golden_config(&dir)).await.unwrap();
        let names = dir_names(&originals);
        assert_eq!(dir_names(&dir.join("index")), names);
        let whole = |dir: &Path| std::fs::read(dir.join(&names[0])).unwrap();
        assert!(whole(&dir.join("index")) == whole(&originals), "the full file");
        let (theirs, ours) = (index_file(&originals.join(&names[1])), index_file(&dir.join("index").join(&names[1])));
        assert_eq!((&theirs.0[..8], &theirs.0[16..24]), (&ours.0[..8], &ours.0[16..24]), "begin");
        assert!(ours.1.starts_with(&theirs.1), "{} entries, then {}", theirs.1.len(), ours.1.len());
        for name in &names {
            check_index(&store, &dir.join("index").join(name));
        }
        for line in lines(golden.join("killed/acked.jsonl")).iter().filter(|line| line["event"] == "acked") {
            let phy = OffsetMessageId::parse(&text(line, "offsetMsgId")).unwrap().phy;
            assert_eq!(find(&store, "GoldRoll", &text(line, "key")), [phy]);
        }
        store.shutdown().await.unwrap();
    });
}

fn check_acked(store: &Store, golden: &Path) {
    for line in lines(golden.join("killed/acked.jsonl")).iter().filter(|line| line["event"] == "acked") {
        let message = message_at(store, "GoldRoll", line, line["queueOffset"].as_u64().unwrap());
        assert_eq!(message.message.keys(), line["key"].as_str());
        assert_eq!(message.offset_message_id().to_string(), text(line, "offsetMsgId"));
    }
}

fn dir_names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
