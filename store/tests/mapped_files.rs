//! Files of the log: made ahead, brought into memory, let go when they are full.

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use message::PhyOffset;
use staticfire_store::{FlushDiskType, Flushed, Store, StoreConfig};
use support::{Text, config, on_machine, read_all, settle};

fn log_file(dir: &Path, start: u64) -> PathBuf {
    dir.join(format!("commitlog/{start:020}"))
}

async fn wait_for(what: impl Fn() -> bool) {
    let host = host::Host::current();
    for _ in 0..1000 {
        if what() {
            return;
        }
        host.sleep(Duration::from_millis(5)).await;
    }
    panic!("it does not come");
}

/// When the last file is full the reference asks for the next one and the one behind it.
#[test]
fn the_file_behind_the_next_one_is_made_as_soon_as_the_next_one_is_in_use() {
    on_machine(|dir| async move {
        let config = config(&dir);
        let file_bytes = config.commit_log_file_bytes;
        let store = Store::open(config).await.unwrap();
        assert!(log_file(&dir, 0).exists());
        assert!(!log_file(&dir, file_bytes).exists(), "nobody needs it yet");
        store.put_when_ready(&Text::new("orders", 0, 0).draft()).await.unwrap();
        wait_for(|| log_file(&dir, file_bytes).exists()).await;
        let mut number = 1;
        while store.max_phy() < PhyOffset(file_bytes) {
            store.put_when_ready(&Text::new("orders", 0, number).draft()).await.unwrap();
            number += 1;
        }
        // The first message of a file is enough.
        wait_for(|| log_file(&dir, 2 * file_bytes).exists()).await;
        assert_eq!(fs::metadata(log_file(&dir, 2 * file_bytes)).unwrap().len(), file_bytes);
        store.shutdown().await.unwrap();
        assert!(!log_file(&dir, 2 * file_bytes).exists(), "a clean exit leaves no file that was not used");
    });
}

/// What `/proc/self/smaps` says of the mapping of a file: its field in KiB.
fn mapped_kib(path: &Path, field: &str) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let path = path.to_str().unwrap();
    let of_file = maps.lines().skip_while(|line| !line.ends_with(path));
    let line = of_file.skip(1).find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_warm_file_is_in_memory_before_its_first_message() {
    on_machine(|dir| async move {
        let warm = StoreConfig { warm_files: true, ..config(&dir) };
        let kib = warm.commit_log_file_bytes / 1024;
        let store = Store::open(warm).await.unwrap();
        let file = log_file(&dir, 0);
        assert_eq!(mapped_kib(&file, "Rss:"), kib);
        let allowed = fs::read_to_string("/proc/self/limits").unwrap();
        let limit = allowed.lines().find(|line| line.starts_with("Max locked memory")).unwrap();
        // Where nothing may be locked the store works all the same, which the other tests show.
        if limit.split_whitespace().nth(3).unwrap() != "0" {
            assert_eq!(mapped_kib(&file, "Locked:"), kib);
        }
        assert!(fs::read(&file).unwrap().iter().all(|byte| *byte == 0));
        store.shutdown().await.unwrap();
        let store = Store::open(config(&dir)).await.unwrap();
        assert_eq!(mapped_kib(&file, "Locked:"), 0, "a file that is found is left as it is");
        store.shutdown().await.unwrap();
    });
}

#[test]
fn a_store_with_warm_files_writes_the_same_bytes() {
    for flush_disk_type in [FlushDiskType::Async, FlushDiskType::Sync] {
        on_machine(move |dir| async move {
            let warm = StoreConfig {
                flush_disk_type,
                warm_files: true,
                warm_flush_pages: 1,
                read_ahead: false,
                ..config(&dir)
            };
            let store = Store::open(warm).await.unwrap();
            for number in 0..400 {
                let put = store.put_when_ready(&Text::new("orders", 0, number).draft()).await.unwrap();
                assert_eq!(store.durability(put.end()).await, Flushed::Done);
            }
            settle(&store).await;
            let before = read_all(&store, "orders", 0);
            assert!(
                before
                    .iter()
                    .zip(0..)
                    .all(|(message, number)| { message.message.body == Text::new("orders", 0, number).body })
            );
            assert_eq!(before.len(), 400);
            store.shutdown().await.unwrap();
            // The settings say nothing about what is in the files.
            let store = Store::open(config(&dir)).await.unwrap();
            assert_eq!(read_all(&store, "orders", 0), before);
            store.shutdown().await.unwrap();
        });
    }
}

/// As a reference count with a delayed end would do it, but without an end that comes too early.
#[test]
fn a_deleted_file_stays_mapped_until_its_last_reader_has_done() {
    on_machine(|dir| async move {
        let expired = StoreConfig { file_reserved: Duration::ZERO, ..config(&dir) };
        let file_bytes = expired.commit_log_file_bytes;
        let store = Store::open(expired).await.unwrap();
        let mut number = 0;
        while store.max_phy() < PhyOffset(file_bytes) {
            store.put_when_ready(&Text::new("orders", 0, number).draft()).await.unwrap();
            number += 1;
        }
        let name = format!("{} (deleted)", log_file(&dir, 0).display());
        let is_mapped = || fs::read_to_string("/proc/self/maps").unwrap().contains(&name);
        let held = store.record_at(PhyOffset(0)).unwrap();
        let twin = held.clone();
        // A file stays until the queues have its messages.
        wait_for(|| store.dispatch_behind_bytes() == 0).await;
        store.delete_expired_files();
        wait_for(|| store.min_phy() == PhyOffset(file_bytes)).await;
        assert!(is_mapped());
        drop(held);
        assert!(is_mapped());
        drop(twin);
        wait_for(|| !is_mapped()).await;
        store.shutdown().await.unwrap();
    });
}
