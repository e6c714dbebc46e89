//! What this store does where Apache's loses, repeats or hides messages, on the real machine. The table of all weaknesses
//! with their tests is in `docs/store.md`.

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use message::{QueueOffset, StoredMessage};
use staticfire_store::{Flushed, PutError, Store, StoreConfig};
use support::{Text, config, copy_dir, on_machine, read_all, settle};

const FILE: u64 = 16 << 10;

fn log_file(dir: &Path, index: u64) -> PathBuf {
    dir.join(format!("commitlog/{:020}", index * FILE))
}

fn change(path: &Path, change: impl FnOnce(&mut [u8])) {
    let mut content = fs::read(path).unwrap();
    change(&mut content);
    fs::write(path, content).unwrap();
}

/// Every message of a queue stands at its own offset, and there are so many of them.
fn check_queue(store: &Store, topic: &str, count: u64) {
    let messages = read_all(store, topic, 0);
    assert_eq!(store.max_offset(topic, 0), QueueOffset(count));
    assert!(messages.iter().map(|message| message.queue_offset.0).eq(0..count), "{topic}: {}", messages.len());
}

async fn filled(dir: &Path, count: u32) -> Store {
    let store = Store::open(config(dir)).await.unwrap();
    for number in 0..count {
        store.put_when_ready(&Text::new("t", 0, number).draft()).await.unwrap();
    }
    settle(&store).await;
    store
}

#[test]
fn w01_the_checkpoint_never_leads_the_queues_that_are_on_disk() {
    on_machine(|dir| async move {
        let host = host::Host::current();
        let lazy = StoreConfig { queue_flush_interval: Duration::from_millis(20), ..config(&dir) };
        let store = Store::open(lazy).await.unwrap();
        let times = || {
            let content = fs::read(dir.join("checkpoint")).unwrap();
            let time = |at: usize| i64::from_be_bytes(content[at..at + 8].try_into().unwrap());
            (time(0), time(8))
        };
        let wait_for = async |physic_ms: i64| {
            while times().0 < physic_ms {
                host.sleep(Duration::from_millis(20)).await;
            }
            host.sleep(Duration::from_millis(100)).await; // For one more write of the checkpoint, if there is one.
        };
        let first = store.put_when_ready(&Text::new("t", 0, 0).draft()).await.unwrap();
        assert_eq!(store.flush().await, Flushed::Done);
        wait_for(first.store_ms).await; // The first pass syncs every queue.
        host.sleep(Duration::from_millis(10)).await;
        let second = store.put_when_ready(&Text::new("t", 0, 1).draft()).await.unwrap();
        assert!(second.store_ms > first.store_ms);
        assert_eq!(store.flush().await, Flushed::Done);
        wait_for(second.store_ms).await;
        // The second entry waits for a thorough pass, as does the time of its message.
        assert_eq!(times(), (second.store_ms, first.store_ms));
        // The power fails: the entry is lost, the message is not.
        let copy = dir.with_extension("copy");
        copy_dir(&dir, &copy);
        change(&copy.join("consumequeue/t/0/00000000000000000000"), |content| content[20..40].fill(0));
        let store = Store::open(config(&copy)).await.unwrap();
        check_queue(&store, "t", 2);
        store.shutdown().await.unwrap();
    });
}

#[test]
fn w02_a_queue_that_lost_entries_goes_on_at_the_offset_of_the_next_message() {
    on_machine(|dir| async move {
        let store = filled(&dir, 150).await;
        let killed = dir.with_extension("killed");
        copy_dir(&dir, &killed);
        store.shutdown().await.unwrap();
        for dir in [&dir, &killed] {
            // From entry 40 on, which is older than anything that a start reads again.
            change(&dir.join("consumequeue/t/0/00000000000000000000"), |content| content[800..].fill(0));
            fs::remove_file(dir.join("consumequeue/t/0/00000000000000002000")).unwrap();
            let store = Store::open(config(dir)).await.unwrap();
            let put = store.put_when_ready(&Text::new("t", 0, 150).draft()).await.unwrap();
            assert_eq!(put.queue_offset, QueueOffset(150));
            settle(&store).await;
            check_queue(&store, "t", 151);
            store.shutdown().await.unwrap();
        }
    });
}

#[test]
fn w05_an_empty_queue_file_gains_no_entry() {
    on_machine(|dir| async move {
        let store = filled(&dir, 20).await;
        let killed = dir.with_extension("killed");
        copy_dir(&dir, &killed);
        store.shutdown().await.unwrap();
        for dir in [&dir, &killed] {
            fs::create_dir_all(dir.join("consumequeue/empty/0")).unwrap();
            fs::write(dir.join("consumequeue/empty/0/00000000000000000000"), [0; 2000]).unwrap();
            let store = Store::open(config(dir)).await.unwrap();
            assert_eq!(store.max_offset("empty", 0), QueueOffset(0));
            let put = store.put_when_ready(&Text::new("empty", 0, 1).draft()).await.unwrap();
            assert_eq!(put.queue_offset, QueueOffset(0));
            settle(&store).await;
            check_queue(&store, "empty", 1);
            store.shutdown().await.unwrap();
        }
    });
}

/// Where blocks of a file are not cleared before they are used, a page that did not survive shows what stood there before.
#[test]
fn w08_text_in_the_place_of_a_lost_page_is_not_the_end_of_a_property() {
    on_machine(|dir| async move {
        let later = Duration::from_secs(3600);
        let lazy = |dir: &Path| StoreConfig { flush_interval: later, queue_flush_interval: later, ..config(dir) };
        filled(&dir, 10).await.shutdown().await.unwrap();
        let store = Store::open(lazy(&dir)).await.unwrap();
        let put = store.put_when_ready(&Text::new("t", 0, 10).draft()).await.unwrap();
        let killed = dir.with_extension("killed");
        copy_dir(&dir, &killed);
        store.shutdown().await.unwrap();
        let count_after = async |text: &str| {
            let copy = dir.with_extension("copy");
            copy_dir(&killed, &copy);
            let end = (put.end().0 % FILE) as usize;
            let file = log_file(&copy, put.phy.0 / FILE);
            change(&file, |content| content[end - text.len()..end].copy_from_slice(text.as_bytes()));
            let store = Store::open(config(&copy)).await.unwrap();
            let count = read_all(&store, "t", 0).len();
            store.shutdown().await.unwrap();
            fs::remove_dir_all(&copy).unwrap();
            count
        };
        assert_eq!(count_after("").await, 11);
        assert_eq!(count_after("\"topic").await, 10);
    });
}

/// The reference checks the CRC of the body, which neither damage touches.
#[test]
fn w08_a_damaged_header_or_property_makes_no_message() {
    on_machine(|dir| async move {
        let store = filled(&dir, 151).await;
        let messages = read_all(&store, "t", 0);
        let killed = dir.with_extension("killed");
        copy_dir(&dir, &killed);
        // Nothing says what had been on disk.
        fs::remove_file(killed.join("checkpoint")).unwrap();
        let end_of = |message: &StoredMessage| message.phy.0 + u64::from(message.size_bytes);
        let last = &messages[150];
        let open_after = async |damage: &(dyn Fn(&Path) + Sync)| {
            let copy = dir.with_extension("copy");
            copy_dir(&killed, &copy);
            damage(&copy);
            let store = Store::open(config(&copy)).await.unwrap();
            let count = read_all(&store, "t", 0).len() as u64;
            check_queue(&store, "t", count);
            store.shutdown().await.unwrap();
            fs::remove_dir_all(&copy).unwrap();
            count
        };
        assert_eq!(open_after(&|_| {}).await, 151);
        // The page with its properties was lost.
        let lost = |copy: &Path| {
            let (file, end) = (last.phy.0 / FILE, (end_of(last) % FILE) as usize);
            change(&log_file(copy, file), |content| content[end - 10..end].fill(0));
        };
        assert_eq!(open_after(&lost).await, 150);
        // Another record of the same length stands in its place.
        let other = &messages[100];
        assert_eq!(other.size_bytes, last.size_bytes);
        let misplaced = |copy: &Path| {
            let content = fs::read(log_file(copy, other.phy.0 / FILE)).unwrap();
            let at = (other.phy.0 % FILE) as usize;
            let record = &content[at..at + other.size_bytes as usize];
            let to = (last.phy.0 % FILE) as usize;
            change(&log_file(copy, last.phy.0 / FILE), |content| {
                content[to..to + record.len()].copy_from_slice(record)
            });
        };
        assert_eq!(open_after(&misplaced).await, 150);
        store.shutdown().await.unwrap();
    });
}

#[test]
fn w16_the_age_of_a_file_is_that_of_its_messages() {
    on_machine(|dir| async move {
        let host = host::Host::current();
        let store = filled(&dir, 300).await;
        store.shutdown().await.unwrap();
        host.sleep(Duration::from_millis(3200)).await;
        // To the file system the copies are new.
        let copy = dir.with_extension("copy");
        copy_dir(&dir, &copy);
        let settings = StoreConfig { file_reserved: Duration::from_secs(3), delete_when: vec![], ..config(&copy) };
        let store = Store::open(settings).await.unwrap();
        store.delete_expired_files();
        while log_file(&copy, 0).exists() {
            host.sleep(Duration::from_millis(20)).await;
        }
        let age = fs::metadata(log_file(&copy, 1)).unwrap().modified().unwrap().elapsed().unwrap();
        assert!(age < Duration::from_secs(3), "{age:?}: the times of the files would do as well");
        store.shutdown().await.unwrap();
    });
}

#[test]
fn w19_a_refused_message_keeps_no_other_out() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        for _ in 0..3 {
            let huge = Text { body: "x".repeat(20_000), ..Text::new("t", 0, 0) };
            assert!(matches!(store.put(&huge.draft()), Err(PutError::Illegal { .. })));
            assert_eq!(store.write_block(), None);
            store.put(&Text::new("t", 0, 1).draft()).unwrap();
        }
        settle(&store).await;
        check_queue(&store, "t", 3);
        // In the reference the time at which an append began stays when it ends with an error.
        let (log, away) = (dir.join("commitlog"), dir.join("away"));
        fs::rename(&log, &away).unwrap();
        let mut count = 3;
        let error = loop {
            match store.put(&Text::new("t", 0, 1).draft()) {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, PutError::FileNotReady | PutError::CreateFile), "{error}");
        assert_eq!(store.figures().append_lock, Duration::ZERO);
        fs::rename(&away, &log).unwrap();
        while store.put_when_ready(&Text::new("t", 0, 1).draft()).await.is_err() {}
        settle(&store).await;
        check_queue(&store, "t", count + 1);
        store.shutdown().await.unwrap();
    });
}

#[test]
fn w28_the_first_message_without_an_entry_is_not_passed_over() {
    on_machine(|dir| async move {
        let store = filled(&dir, 50).await;
        store.shutdown().await.unwrap();
        assert!(!dir.join("abort").exists());
        // With the word of the checkpoint and without.
        for damage in ["", "checkpoint"] {
            let copy = dir.with_extension("copy");
            copy_dir(&dir, &copy);
            change(&copy.join("consumequeue/t/0/00000000000000000000"), |content| content[49 * 20..50 * 20].fill(0));
            if !damage.is_empty() {
                fs::remove_file(copy.join(damage)).unwrap();
            }
            let store = Store::open(config(&copy)).await.unwrap();
            let put = store.put_when_ready(&Text::new("t", 0, 50).draft()).await.unwrap();
            assert_eq!(put.queue_offset, QueueOffset(50));
            settle(&store).await;
            check_queue(&store, "t", 51);
            store.shutdown().await.unwrap();
            fs::remove_dir_all(&copy).unwrap();
        }
    });
}
