//! Messages that are taken into memory first, and written to their files a little later.

mod support;

use std::{path::Path, time::Duration};

use message::{PhyOffset, QueueOffset};
use staticfire_store::{FlushDiskType, Flushed, GetStatus, PutError, Store, StoreConfig, StoreError};
use support::{Text, config, copy_dir, get, on_machine, read_all, settle};

/// Nothing is written unless somebody asks for it.
fn lazy(dir: &Path) -> StoreConfig {
    let never = Duration::from_secs(1 << 20);
    StoreConfig {
        pool_enabled: true,
        pool_buffers: 2,
        commit_interval: never,
        commit_thorough_interval: never,
        commit_least_pages: u64::MAX,
        flush_interval: never,
        ..config(dir)
    }
}

/// The first look at a new buffer is thorough, as in the reference: this puts it behind.
async fn first_look(store: &Store) {
    store.put_when_ready(&Text::new("first", 0, 0).draft()).await.unwrap();
    while store.max_phy() == PhyOffset(0) {
        host::Host::current().sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn readers_see_what_is_in_the_files_and_a_flush_brings_all_there() {
    on_machine(|dir| async move {
        let store = Store::open(lazy(&dir)).await.unwrap();
        first_look(&store).await;
        let committed = store.max_phy();
        let put = store.put(&Text::new("orders", 0, 1).draft()).unwrap();
        assert_eq!((put.phy, put.queue_offset), (committed, QueueOffset(0)));
        assert_eq!(store.durability(put.end()).now(), Some(Flushed::Done), "nobody waits");
        settle(&store).await;
        assert_eq!(store.max_phy(), committed);
        assert_eq!(store.record_at(put.phy), None);
        assert_eq!(get(&store, "orders", 0, 0).status, GetStatus::NoMessageInQueue);
        assert_eq!(store.uncommitted_bytes(), u64::from(put.size_bytes));
        assert_eq!(store.flush().await, Flushed::Done);
        assert_eq!((store.max_phy(), store.flushed_phy(), store.uncommitted_bytes()), (put.end(), put.end(), 0));
        settle(&store).await;
        assert_eq!(read_all(&store, "orders", 0)[0].message.body, Text::new("orders", 0, 1).body);
        store.shutdown().await.unwrap();
    });
}

/// A copy of the directory is what a kill leaves.
#[test]
fn a_kill_takes_what_is_in_a_buffer_and_a_clean_exit_does_not() {
    on_machine(|dir| async move {
        let store = Store::open(lazy(&dir)).await.unwrap();
        first_look(&store).await;
        for number in 0..10 {
            store.put_when_ready(&Text::new("orders", 0, number).draft()).await.unwrap();
        }
        let killed = dir.join("../killed");
        copy_dir(&dir, &killed);
        std::fs::remove_file(killed.join("lock")).unwrap();
        store.shutdown().await.unwrap();
        let after_kill = Store::open(config(&killed)).await.unwrap();
        assert_eq!(after_kill.max_offset("orders", 0), QueueOffset(0));
        assert_eq!(after_kill.max_offset("first", 0), QueueOffset(1));
        after_kill.shutdown().await.unwrap();
        let after_exit = Store::open(config(&dir)).await.unwrap();
        assert_eq!(read_all(&after_exit, "orders", 0).len(), 10);
        after_exit.shutdown().await.unwrap();
    });
}

/// Fills files until the buffers are used up, and tells how the last message fared.
async fn exhaust(store: &Store, file_bytes: u64) -> Result<u32, PutError> {
    let mut number = 0;
    let mut end = PhyOffset(0);
    while end.0 < 3 * file_bytes {
        end = store.put_when_ready(&Text::new("orders", 0, number).draft()).await?.end();
        number += 1;
    }
    Ok(number)
}

#[test]
fn without_a_free_buffer_a_file_is_written_directly() {
    on_machine(|dir| async move {
        let config = lazy(&dir);
        let store = Store::open(config.clone()).await.unwrap();
        assert_eq!(store.free_buffers(), Some(2));
        let count = exhaust(&store, config.commit_log_file_bytes).await.unwrap();
        assert_eq!(store.free_buffers(), Some(0));
        assert!(store.max_phy() < PhyOffset(config.commit_log_file_bytes), "the first file is not written yet");
        assert_eq!(store.flush().await, Flushed::Done);
        assert_eq!(store.free_buffers(), Some(2), "full files give their buffers back, and the last has none");
        settle(&store).await;
        let put = store.put_when_ready(&Text::new("orders", 0, count).draft()).await.unwrap();
        assert_eq!(store.max_phy(), put.end(), "seen at once");
        settle(&store).await;
        let all = read_all(&store, "orders", 0);
        assert!(all.iter().zip(0..).all(|(one, number)| one.message.body == Text::new("orders", 0, number).body));
        assert_eq!(all.len() as u32, count + 1);
        store.shutdown().await.unwrap();
        let store = Store::open(config).await.unwrap();
        assert_eq!(read_all(&store, "orders", 0), all);
        store.shutdown().await.unwrap();
    });
}

#[test]
fn without_a_free_buffer_messages_are_refused_if_that_is_wanted() {
    on_machine(|dir| async move {
        let config = StoreConfig { pool_fails_fast: true, ..lazy(&dir) };
        let store = Store::open(config.clone()).await.unwrap();
        assert_eq!(exhaust(&store, config.commit_log_file_bytes).await, Err(PutError::NoBuffer));
        assert_eq!(store.put(&Text::new("orders", 0, 1).draft()), Err(PutError::NoBuffer));
        assert_eq!(store.flush().await, Flushed::Done);
        assert_eq!(store.free_buffers(), Some(2), "the last file that has one is full, too");
        store.put_when_ready(&Text::new("orders", 0, 1).draft()).await.unwrap();
        store.shutdown().await.unwrap();
    });
}

/// Bytes of an earlier file in a buffer stay out of the next one, and a file that was there is written directly.
#[test]
fn files_behind_a_buffer_hold_records_and_zeros() {
    on_machine(|dir| async move {
        let ready = StoreConfig { pool_buffers: 1, ..lazy(&dir) };
        let store = Store::open(ready.clone()).await.unwrap();
        first_look(&store).await;
        let mut number = 0;
        while store.max_phy().0 < 2 * ready.commit_log_file_bytes {
            store.put_when_ready(&Text::new("orders", 0, number).draft()).await.unwrap();
            store.flush().await;
            number += 1;
        }
        let end = store.max_phy();
        settle(&store).await;
        let last = std::fs::read(dir.join("commitlog/00000000000000032768")).unwrap();
        let used = (end.0 - 2 * ready.commit_log_file_bytes) as usize;
        assert!(used > 0 && last[used..].iter().all(|byte| *byte == 0));
        store.shutdown().await.unwrap();
        let store = Store::open(ready).await.unwrap();
        let put = store.put(&Text::new("orders", 0, number).draft()).unwrap();
        assert_eq!(store.max_phy(), put.end(), "the file was there before the pool");
        assert_eq!(store.free_buffers(), Some(1));
        store.shutdown().await.unwrap();
    });
}

#[test]
fn whoever_flushes_first_needs_no_pool_and_a_pool_needs_a_buffer() {
    on_machine(|dir| async move {
        let sync = StoreConfig { flush_disk_type: FlushDiskType::Sync, ..lazy(&dir) };
        let store = Store::open(sync).await.unwrap();
        assert_eq!(store.free_buffers(), None);
        let put = store.put(&Text::new("orders", 0, 1).draft()).unwrap();
        assert_eq!(store.max_phy(), put.end());
        store.shutdown().await.unwrap();
        let error = Store::open(StoreConfig { pool_buffers: 0, ..lazy(&dir) }).await.unwrap_err();
        assert!(matches!(error, StoreError::Config { key: "transientStorePoolSize", .. }), "{error}");
    });
}
