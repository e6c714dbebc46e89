//! Every form of a record, and every way in which a put can end, on the real machine.

mod support;

use std::{fs, net::SocketAddr, path::Path};

use message::{Draft, PhyOffset, QueueOffset, SysFlag};
use staticfire_store::{Put, PutError, Store, StoreConfig, WriteBlock};
use support::{Text, config, copy_dir, find, on_machine, read_all, settle};

const V1: u32 = 0xDAA3_20A7;
const V2: u32 = 0xDAA3_20AB;

/// A topic that only version 2 can hold, as long as topics may be.
fn long_topic() -> String {
    format!("%RETRY%{}", "g".repeat(248))
}

/// The four bytes of a file of the log behind the total size of a record.
fn magic(dir: &Path, put: &Put) -> u32 {
    let content = fs::read(dir.join("commitlog/00000000000000000000")).unwrap();
    let at = put.phy.0 as usize + 4;
    u32::from_be_bytes(content[at..at + 4].try_into().unwrap())
}

/// Born and store host, over either protocol.
fn with_hosts<'a>(text: &'a Text, born: &str, store: &str) -> Draft<'a> {
    Draft { born_host: born.parse().unwrap(), store_host: store.parse().unwrap(), ..text.draft() }
}

const HOSTS: [(&str, &str, usize); 4] = [
    ("10.0.0.9:50000", "10.0.0.1:10911", 0),
    ("[2001:db8::9]:50000", "10.0.0.1:10911", 12),
    ("10.0.0.9:50000", "[2001:db8::1]:10911", 12),
    ("[2001:db8::9]:50000", "[::1]:10911", 24),
];

#[test]
fn records_of_both_versions_and_protocols_are_read_found_and_recovered() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        let mut sizes = Vec::new();
        for topic in ["orders", &"t".repeat(127), &format!("%RETRY%{}", "g".repeat(121)), &long_topic()] {
            for (index, (born, host, more)) in HOSTS.into_iter().enumerate() {
                let text = Text { topic: topic.to_owned(), ..Text::new("", 3, index as u32) };
                let put = store.put(&with_hosts(&text, born, host)).unwrap();
                let is_long = topic.len() > 127;
                assert_eq!(magic(&dir, &put), if is_long { V2 } else { V1 });
                let plain = 91 + usize::from(is_long) + text.body.len() + topic.len() + text.properties.len();
                assert_eq!(put.size_bytes as usize, plain + more, "{} {born} {host}", topic.len());
                assert_eq!(put.queue_offset, QueueOffset(index as u64));
                sizes.push((topic.to_owned(), put));
            }
        }
        settle(&store).await;
        let check = |store: &Store| {
            for (topic, put) in &sizes {
                let index = put.queue_offset.0 as usize;
                let all = read_all(store, topic, 3);
                assert_eq!(all.len(), HOSTS.len());
                let (born, host, _) = HOSTS[index];
                let (born, host): (SocketAddr, SocketAddr) = (born.parse().unwrap(), host.parse().unwrap());
                assert_eq!((all[index].born_host, all[index].store_host), (born, host));
                assert_eq!(all[index].message.topic, *topic);
                assert_eq!(find(store, topic, &format!("k{index}")), [put.phy]);
            }
        };
        check(&store);
        // A kill: the log is read, and everything else made from it.
        let killed = dir.join("../killed");
        copy_dir(&dir, &killed);
        for lost in ["consumequeue", "index"] {
            fs::remove_dir_all(killed.join(lost)).unwrap();
        }
        fs::remove_file(killed.join("checkpoint")).unwrap();
        store.shutdown().await.unwrap();
        for dir in [&dir, &killed] {
            let store = Store::open(config(dir)).await.unwrap();
            check(&store);
            store.shutdown().await.unwrap();
        }
    });
}

#[test]
fn a_batch_is_one_record_for_each_message_in_any_form() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        let texts: Vec<Text> = (0..4).map(|number| Text { topic: long_topic(), ..Text::new("", 1, number) }).collect();
        let drafts: Vec<Draft<'_>> =
            texts.iter().zip(HOSTS).map(|(text, (born, host, _))| with_hosts(text, born, host)).collect();
        let batch = store.put_batch(&drafts).unwrap();
        assert!(batch.puts.iter().all(|put| magic(&dir, put) == V2));
        settle(&store).await;
        let all = read_all(&store, &long_topic(), 1);
        let stored: Vec<_> = all.iter().map(|message| (message.phy, message.queue_offset, message.born_host)).collect();
        let sent: Vec<_> =
            batch.puts.iter().zip(&drafts).map(|(put, draft)| (put.phy, put.queue_offset, draft.born_host)).collect();
        assert_eq!(stored, sent);
        store.shutdown().await.unwrap();
    });
}

/// The ends of a put that need no fault of a disk; the others are in `tests/store_on_stand.rs`.
#[test]
fn a_put_that_is_refused_says_why_and_the_next_one_is_taken() {
    on_machine(|dir| async move {
        let small = StoreConfig { message_max_bytes: 1000, ..config(&dir) };
        let store = Store::open(small.clone()).await.unwrap();
        let plain = || Text::new("orders", 0, 1);
        let illegal = |result: Result<Put, PutError>| matches!(result, Err(PutError::Illegal { .. }));
        assert!(illegal(store.put(&Text { topic: "a b".into(), ..plain() }.draft())));
        assert!(illegal(store.put(&Text { topic: "t".repeat(128), ..plain() }.draft())));
        assert!(illegal(store.put(&Text { topic: long_topic() + "g", ..plain() }.draft())));
        assert!(illegal(store.put(&Text { body: "x".repeat(1001), ..plain() }.draft())));
        let text = plain();
        assert!(illegal(store.put(&Draft { sys_flag: SysFlag(SysFlag::INNER_BATCH), ..text.draft() })));
        let properties = "A\u{1}b\u{2}".repeat(10_000);
        assert!(matches!(
            store.put(&Text { properties, ..plain() }.draft()),
            Err(PutError::PropertiesTooLong { bytes: 40_000, limit: 32_767 })
        ));
        store.put(&Text { body: String::new(), ..plain() }.draft()).unwrap();
        // The next file cannot be made while something else has its name.
        let next = dir.join("commitlog/00000000000000016384");
        wait_until(|| next.exists()).await;
        let behind = dir.join("commitlog/00000000000000032768");
        fs::create_dir(&behind).unwrap();
        let error = loop {
            if let Err(error) = store.put_when_ready(&plain().draft()).await {
                break error;
            }
        };
        assert_eq!(error, PutError::CreateFile);
        assert!(store.max_phy() < PhyOffset(32_768));
        fs::remove_dir(&behind).unwrap();
        let put = loop {
            match store.put_when_ready(&plain().draft()).await {
                Ok(put) => break put,
                Err(error) => assert_eq!(error, PutError::CreateFile),
            }
            host::Host::current().sleep(std::time::Duration::from_millis(5)).await;
        };
        assert_eq!(put.phy, PhyOffset(32_768));
        store.shutdown().await.unwrap();
        assert_eq!(store.put(&plain().draft()), Err(PutError::Blocked(WriteBlock::Stopped)));
    });
}

async fn wait_until(holds: impl Fn() -> bool) {
    while !holds() {
        host::Host::current().sleep(std::time::Duration::from_millis(5)).await;
    }
}
