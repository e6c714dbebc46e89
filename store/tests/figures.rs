//! What a store counts.

mod support;

use std::time::Duration;

use staticfire_store::{FlushDiskType, Flushed, Store, StoreConfig};
use support::{Text, config, on_machine};

#[test]
fn puts_and_reads_are_counted_by_outcome() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        let one = store.put(&Text::new("orders", 0, 1).draft()).unwrap();
        let texts: Vec<Text> = (0..5).map(|number| Text::new("orders", 1, number)).collect();
        let drafts: Vec<_> = texts.iter().map(Text::draft).collect();
        let batch = store.put_batch_when_ready(&drafts).await.unwrap();
        store.put(&Text::new("a b", 0, 1).draft()).unwrap_err();
        store.put_batch(&[]).unwrap_err();
        store.count_get(3);
        store.count_get(0);
        store.count_get(4);
        let counters = store.figures().counters;
        assert_eq!((counters.puts, counters.puts_failed), (6, 2));
        let bytes: u64 = batch.puts.iter().map(|put| u64::from(put.size_bytes)).sum();
        assert_eq!(counters.put_bytes, bytes + u64::from(one.size_bytes));
        assert_eq!((counters.gets_found, counters.gets_missed, counters.messages_out), (2, 1, 7));
        store.shutdown().await.unwrap();
        store.put(&Text::new("orders", 0, 1).draft()).unwrap_err();
        assert_eq!(store.figures().counters.puts_failed, 3);
    });
}

/// The wait for the disk is a part of it.
#[test]
fn a_put_takes_until_it_is_as_durable_as_its_sender_wants() {
    on_machine(|dir| async move {
        let sync = StoreConfig { flush_disk_type: FlushDiskType::Sync, ..config(&dir) };
        let store = Store::open(sync).await.unwrap();
        let put = store.put(&Text::new("orders", 0, 1).draft()).unwrap();
        assert_eq!(store.figures().put_max, Duration::ZERO, "nobody has been told yet");
        assert_eq!(store.durability(put.end()).await, Flushed::Done);
        assert!(store.figures().put_max > Duration::ZERO);
        store.shutdown().await.unwrap();
    });
}
