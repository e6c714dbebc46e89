//! Opening stores after every kind of end, on the real machine. A copy of the directory of a running store is what a
//! kill leaves.

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
};

use message::{PhyOffset, QueueOffset, StoredMessage};
use staticfire_store::{GetStatus, Store, StoreConfig, StoreError};
use support::{Text, config, copy_dir, get, on_machine, read_all, settle, snapshot};

const FILE: u64 = 16 << 10;

/// A store of 300 messages in two queues of two topics, and what it holds.
async fn filled(dir: &Path) -> (Store, Vec<StoredMessage>) {
    let store = Store::open(config(dir)).await.unwrap();
    for number in 0..300 {
        let topic = if number % 5 == 0 { "rare" } else { "orders" };
        store.put_when_ready(&Text::new(topic, number % 2, number).draft()).await.unwrap();
    }
    settle(&store).await;
    let all = everything(&store);
    assert_eq!(all.len(), 300);
    (store, all)
}

fn everything(store: &Store) -> Vec<StoredMessage> {
    store
        .queues()
        .into_iter()
        .flat_map(|(topic, ids)| ids.into_iter().map(move |id| (topic.clone(), id)))
        .flat_map(|(topic, id)| read_all(store, &topic, id))
        .collect()
}

/// Opens a directory, compares what it holds, and closes it again.
async fn expect(dir: &Path, expected: &[StoredMessage]) {
    let store = Store::open(config(dir)).await.unwrap();
    assert!(everything(&store) == expected, "{} messages, not {}", everything(&store).len(), expected.len());
    for (topic, ids) in store.queues() {
        for id in ids {
            let end = store.max_offset(&topic, id);
            assert_eq!(store.put_when_ready(&Text::new(&topic, id, 1).draft()).await.unwrap().queue_offset, end);
        }
    }
    store.shutdown().await.unwrap();
}

fn log_file(dir: &Path, index: u64) -> PathBuf {
    dir.join(format!("commitlog/{:020}", index * FILE))
}

fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    let mut content = fs::read(path).unwrap();
    content[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    fs::write(path, content).unwrap();
}

#[test]
fn a_killed_store_has_everything() {
    on_machine(|dir| async move {
        let (_running, all) = filled(&dir).await;
        let copy = dir.with_extension("copy");
        copy_dir(&dir, &copy);
        assert!(copy.join("abort").exists());
        expect(&copy, &all).await;
    });
}

#[test]
fn only_a_store_that_was_closed_cleanly_is_continued() {
    on_machine(|dir| async move {
        let opened = async |dir: &Path| Store::open(config(dir)).await.unwrap();
        let store = opened(&dir).await;
        assert!(!store.is_continued(), "there was nothing");
        store.shutdown().await.unwrap();
        let (store, _) = filled(&dir).await;
        assert!(store.is_continued(), "closed without a message");
        let killed = dir.with_extension("killed");
        copy_dir(&dir, &killed);
        store.shutdown().await.unwrap();
        assert!(opened(&dir).await.is_continued());
        let store = opened(&killed).await;
        assert!(!store.is_continued());
        let last = store.max_phy().0 / FILE;
        store.shutdown().await.unwrap();
        // The end was lost after a clean exit.
        fs::remove_file(log_file(&killed, last)).unwrap();
        let lossy = StoreConfig { accept_damaged_log: true, ..config(&killed) };
        assert!(!Store::open(lossy).await.unwrap().is_continued());
    });
}

#[test]
fn w18_a_second_opener_is_refused_and_touches_nothing() {
    on_machine(|dir| async move {
        let (running, all) = filled(&dir).await;
        running.flush().await;
        host::Host::current().sleep(std::time::Duration::from_millis(2500)).await;
        let before = snapshot(&dir);
        let error = Store::open(config(&dir)).await.unwrap_err();
        assert!(matches!(error, StoreError::Locked { .. }), "{error}");
        assert!(snapshot(&dir) == before);
        running.shutdown().await.unwrap();
        expect(&dir, &all).await;
    });
}

#[test]
fn w06_any_missing_part_of_the_queues_is_rebuilt() {
    on_machine(|dir| async move {
        let (running, all) = filled(&dir).await;
        let killed = dir.with_extension("killed");
        copy_dir(&dir, &killed);
        running.shutdown().await.unwrap();
        let damages = [
            "consumequeue",
            "consumequeue/rare",
            "consumequeue/orders/0",
            "consumequeue/orders/0/00000000000000000000",
            "consumequeue/orders/1/00000000000000002000",
            "consumequeue/rare/1/00000000000000000000",
            "checkpoint",
        ];
        let copy = dir.with_extension("copy");
        for source in [&dir, &killed] {
            for damage in damages {
                copy_dir(source, &copy);
                let victim = copy.join(damage);
                if victim.is_dir() { fs::remove_dir_all(victim) } else { fs::remove_file(victim) }.unwrap();
                expect(&copy, &all).await;
                fs::remove_dir_all(&copy).unwrap();
            }
        }
    });
}

/// Taken for numbers of queues, such names would bring the files of one queue in twice.
#[test]
fn a_directory_with_another_name_for_the_number_of_a_queue_is_left_alone() {
    on_machine(|dir| async move {
        let (store, all) = filled(&dir).await;
        store.shutdown().await.unwrap();
        for name in ["00", "+0"] {
            copy_dir(&dir.join("consumequeue/orders/0"), &dir.join("consumequeue/orders").join(name));
        }
        expect(&dir, &all).await;
        assert!(dir.join("consumequeue/orders/00/00000000000000000000").exists());
    });
}

#[test]
fn damaged_queue_files_are_rebuilt() {
    on_machine(|dir| async move {
        let (running, all) = filled(&dir).await;
        let killed = dir.with_extension("killed");
        copy_dir(&dir, &killed);
        running.shutdown().await.unwrap();
        let queue = "consumequeue/orders/0/00000000000000000000";
        let copy = dir.with_extension("copy");
        for source in [&dir, &killed] {
            let damages: [fn(&Path); 6] = [
                |file| fs::write(file, []).unwrap(),
                |file| fs::write(file, vec![0; 2000]).unwrap(),
                |file| fs::write(file, vec![0xFF; 2000]).unwrap(),
                |file| fs::write(file, vec![7; 1000]).unwrap(),
                |file| write_at(file, 0, &[0; 20]),
                |file| write_at(file, 1980, &[0; 20]),
            ];
            for damage in damages {
                copy_dir(source, &copy);
                damage(&copy.join(queue));
                expect(&copy, &all).await;
                fs::remove_dir_all(&copy).unwrap();
            }
        }
    });
}

/// Flips each bit of one entry in turn, of a store that is closed, and reads the queue.
#[test]
fn a_damaged_entry_hides_no_message_and_shows_no_other() {
    const MESSAGES: u32 = 40;
    on_machine(|root| async move {
        let store = Store::open(config(&root)).await.unwrap();
        for number in 0..MESSAGES {
            for queue_id in [0, 1] {
                store.put_when_ready(&Text::new("t", queue_id, number).draft()).await.unwrap();
            }
        }
        settle(&store).await;
        let whole = read_all(&store, "t", 0);
        store.shutdown().await.unwrap();
        let file = root.join("consumequeue/t/0/00000000000000000000");
        let good = fs::read(&file).unwrap();
        let end = QueueOffset(MESSAGES.into());
        // Neither first nor last: those are compared with the log at every start. The tags code is for filters.
        for (entry, bit) in [17, 25].into_iter().flat_map(|entry| (0..12 * 8).step_by(5).map(move |bit| (entry, bit))) {
            let mut rotten = good.clone();
            rotten[20 * entry + bit / 8] ^= 1 << (bit % 8);
            fs::write(&file, rotten).unwrap();
            let store = Store::open(config(&root)).await.unwrap();
            assert_eq!(store.max_offset("t", 0), end, "bit {bit} of {entry}");
            assert!(read_all(&store, "t", 0) == whole, "bit {bit} of {entry}");
            let at = get(&store, "t", 0, entry as u64);
            assert_eq!((at.status, at.next), (GetStatus::Found, end), "bit {bit} of {entry}");
            store.shutdown().await.unwrap();
        }
    });
}

/// Two entries in a row are damaged, and the log holds only the second message: the first now stands in another queue.
#[test]
fn a_message_that_the_log_lost_hides_not_the_one_behind_it() {
    const MESSAGES: u32 = 40;
    const LOST: u64 = 17;
    const QUEUE_ID_AT: u64 = 12;
    on_machine(|root| async move {
        let store = Store::open(config(&root)).await.unwrap();
        for number in 0..MESSAGES {
            store.put_when_ready(&Text::new("t", 0, number).draft()).await.unwrap();
        }
        settle(&store).await;
        let mut expected = read_all(&store, "t", 0);
        store.shutdown().await.unwrap();
        let lost = expected.remove(LOST as usize).phy;
        write_at(&log_file(&root, lost.0 / FILE), lost.0 % FILE + QUEUE_ID_AT, &7_u32.to_be_bytes());
        write_at(&root.join("consumequeue/t/0/00000000000000000000"), 20 * LOST, &[0; 40]);
        let store = Store::open(config(&root)).await.unwrap();
        assert!(read_all(&store, "t", 0) == expected, "{} messages", read_all(&store, "t", 0).len());
        store.shutdown().await.unwrap();
    });
}

/// The search for the first message whose record is still there meets a damaged entry first.
#[test]
fn a_damaged_entry_does_not_raise_the_start_of_its_queue() {
    const MESSAGES: u32 = 90;
    on_machine(|root| async move {
        let store = Store::open(config(&root)).await.unwrap();
        for number in 0..MESSAGES {
            store.put_when_ready(&Text::new("t", 0, number).draft()).await.unwrap();
        }
        settle(&store).await;
        let whole = read_all(&store, "t", 0);
        store.shutdown().await.unwrap();
        let file = root.join("consumequeue/t/0/00000000000000000000");
        let good = fs::read(&file).unwrap();
        // Neither first nor last: those are compared with the log at every start.
        for entry in 1..u64::from(MESSAGES) - 1 {
            write_at(&file, 20 * entry, &[0; 20]);
            let store = Store::open(config(&root)).await.unwrap();
            assert_eq!(store.min_offset("t", 0), QueueOffset(0), "entry {entry}");
            assert!(read_all(&store, "t", 0) == whole, "entry {entry}");
            store.shutdown().await.unwrap();
            fs::write(&file, &good).unwrap();
        }
    });
}

/// An entry is damaged, and between it and the last good one a record is, too.
#[test]
fn a_damaged_record_in_front_of_it_hides_no_message_whose_entry_is_damaged() {
    const LOST: u64 = 16;
    on_machine(|root| async move {
        let store = Store::open(config(&root)).await.unwrap();
        for number in 0..40 {
            store.put_when_ready(&Text::new("t", 0, number).draft()).await.unwrap();
        }
        settle(&store).await;
        let mut expected = read_all(&store, "t", 0);
        store.shutdown().await.unwrap();
        let lost = expected.remove(LOST as usize).phy.0;
        write_at(&log_file(&root, lost / FILE), lost % FILE, &[0; 8]);
        write_at(&root.join("consumequeue/t/0/00000000000000000000"), 20 * LOST, &[0; 40]);
        let store = Store::open(config(&root)).await.unwrap();
        assert!(read_all(&store, "t", 0) == expected, "{} messages", read_all(&store, "t", 0).len());
        store.shutdown().await.unwrap();
    });
}

/// Queues are built from a log in which the queue offset of one record is damaged: by a little or by much, at the start
/// of its queue, in the middle and at its end.
#[test]
fn a_damaged_queue_offset_hides_no_other_message_of_its_queue() {
    const QUEUE_OFFSET_AT: u64 = 20;
    on_machine(|dir| async move {
        let (_running, all) = filled(&dir).await;
        let of_queue: Vec<&StoredMessage> =
            all.iter().filter(|message| (message.message.topic.as_str(), message.queue_id) == ("orders", 0)).collect();
        for damaged in [0, 1, 60, of_queue.len() - 1].map(|index| of_queue[index]) {
            for bit in [0, 6, 20, 40, 57] {
                let copy = dir.with_extension("copy");
                copy_dir(&dir, &copy);
                fs::remove_dir_all(copy.join("consumequeue")).unwrap();
                let at = damaged.phy.0 % FILE + QUEUE_OFFSET_AT;
                let offset = damaged.queue_offset.0 ^ 1 << bit;
                write_at(&log_file(&copy, damaged.phy.0 / FILE), at, &offset.to_be_bytes());
                let store = Store::open(config(&copy)).await.unwrap();
                let found = everything(&store);
                let missing: Vec<_> = all
                    .iter()
                    .filter(|message| message.phy != damaged.phy && !found.contains(message))
                    .map(|message| message.queue_offset.0)
                    // The format cannot tell which of two records with one place is the right one.
                    .filter(|missing| *missing != offset)
                    .collect();
                assert!(missing.is_empty(), "{missing:?} are gone, as {} became {offset}", damaged.queue_offset.0);
                store.shutdown().await.unwrap();
                fs::remove_dir_all(&copy).unwrap();
            }
        }
    });
}

#[test]
fn w11_a_lost_abort_file_loses_no_entry() {
    on_machine(|dir| async move {
        let (_running, all) = filled(&dir).await;
        let copy = dir.with_extension("copy");
        copy_dir(&dir, &copy);
        fs::remove_file(copy.join("abort")).unwrap();
        // The last entries of a queue never reached the disk.
        write_at(&copy.join("consumequeue/orders/0/00000000000000002000"), 17 * 20, &[0; 60]);
        expect(&copy, &all).await;
    });
}

#[test]
fn w04_a_torn_tail_is_cut_and_never_comes_back() {
    on_machine(|dir| async move {
        let (_running, all) = filled(&dir).await;
        let copy = dir.with_extension("copy");
        copy_dir(&dir, &copy);
        // What follows was not known to be on disk, as far as the copy can tell.
        fs::write(copy.join("checkpoint"), []).unwrap();
        let mut in_log_order = all.clone();
        in_log_order.sort_by_key(|message| message.phy.0);
        let torn = &in_log_order[297];
        let (file, at) = (torn.phy.0 / FILE, torn.phy.0 % FILE);
        write_at(&log_file(&copy, file), at + 90, b"?????");
        let store = Store::open(config(&copy)).await.unwrap();
        assert_eq!(store.max_phy(), torn.phy);
        assert_eq!(everything(&store).len(), 297);
        // A record of the same length makes the ones behind it fit again, if they are still there.
        let again = Text::new("other", 0, 297);
        let properties =
            String::from_utf8(vec![b'x'; torn.size_bytes as usize - 91 - 5 - again.body.len() - 3]).unwrap();
        let again = Text { properties: format!("A\u{1}{properties}\u{2}"), ..again };
        let put = store.put(&again.draft()).unwrap();
        assert_eq!((put.phy, put.size_bytes), (torn.phy, torn.size_bytes));
        let killed = dir.with_extension("killed");
        settle(&store).await;
        copy_dir(&copy, &killed);
        let store = Store::open(config(&killed)).await.unwrap();
        assert_eq!(store.max_phy(), put.end());
        assert_eq!(everything(&store).len(), 298);
        store.shutdown().await.unwrap();
    });
}

#[test]
fn w20_a_bad_record_among_durable_ones_is_reported_and_not_cut() {
    on_machine(|dir| async move {
        let (running, all) = filled(&dir).await;
        running.shutdown().await.unwrap();
        let mut in_log_order = all.clone();
        in_log_order.sort_by_key(|message| message.phy.0);
        let bad = in_log_order[200].phy;
        write_at(&log_file(&dir, bad.0 / FILE), bad.0 % FILE + 90, b"?????");
        fs::remove_dir_all(dir.join("consumequeue")).unwrap();
        let before: Vec<_> = (0..4).map(|index| fs::read(log_file(&dir, index)).ok()).collect();
        match Store::open(config(&dir)).await {
            Err(StoreError::Damaged { at, .. }) => assert_eq!(at, bad),
            other => panic!("{other:?}"),
        }
        let after: Vec<_> = (0..4).map(|index| fs::read(log_file(&dir, index)).ok()).collect();
        assert!(before == after);
        let store = Store::open(StoreConfig { accept_damaged_log: true, ..config(&dir) }).await.unwrap();
        assert_eq!(store.max_phy(), bad);
        assert_eq!(everything(&store).len(), 200);
        store.shutdown().await.unwrap();
    });
}

#[test]
fn a_missing_last_log_file_is_reported() {
    on_machine(|dir| async move {
        let (running, _) = filled(&dir).await;
        let last = running.max_phy().0 / FILE;
        running.shutdown().await.unwrap();
        fs::remove_file(log_file(&dir, last)).unwrap();
        let error = Store::open(config(&dir)).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("commit log damaged at {}", last * FILE)), "{error}");
    });
}

#[test]
fn w17_files_that_were_made_ahead_are_dropped_whatever_their_length() {
    on_machine(|dir| async move {
        let (running, all) = filled(&dir).await;
        running.shutdown().await.unwrap();
        let last = fs::read_dir(dir.join("commitlog")).unwrap().count() as u64 - 1;
        let lengths = [vec![0], vec![0, 0], vec![FILE, 0], vec![FILE, FILE], vec![FILE, 100]];
        for lengths in lengths {
            for abort in [false, true] {
                let copy = dir.with_extension("copy");
                copy_dir(&dir, &copy);
                for (index, length) in (last + 1..).zip(&lengths) {
                    fs::write(log_file(&copy, index), vec![0; *length as usize]).unwrap();
                }
                if abort {
                    fs::write(copy.join("abort"), "1").unwrap();
                }
                expect(&copy, &all).await;
                fs::remove_dir_all(&copy).unwrap();
            }
        }
    });
}

#[test]
fn a_blank_record_without_a_next_file_is_an_end() {
    on_machine(|dir| async move {
        let (running, all) = filled(&dir).await;
        running.shutdown().await.unwrap();
        fs::write(dir.join("checkpoint"), []).unwrap();
        let last = fs::read_dir(dir.join("commitlog")).unwrap().count() as u64 - 1;
        fs::remove_file(log_file(&dir, last)).unwrap();
        let left: Vec<StoredMessage> = all.into_iter().filter(|message| message.phy.0 < last * FILE).collect();
        // Once as it is, and once with an empty file behind it.
        let copy = dir.with_extension("copy");
        copy_dir(&dir, &copy);
        fs::write(log_file(&copy, last), vec![0; FILE as usize]).unwrap();
        expect(&dir, &left).await;
        expect(&copy, &left).await;
    });
}

#[test]
fn a_file_of_length_zero_in_the_middle_is_refused() {
    on_machine(|dir| async move {
        let (running, _) = filled(&dir).await;
        running.shutdown().await.unwrap();
        fs::write(log_file(&dir, 1), []).unwrap();
        let error = Store::open(config(&dir)).await.unwrap_err();
        assert!(matches!(error, StoreError::FileSize { found_bytes: 0, .. }), "{error}");
    });
}

#[test]
fn p037_a_hole_in_the_log_is_refused_until_the_loss_is_accepted() {
    on_machine(|dir| async move {
        let (running, all) = filled(&dir).await;
        let killed = dir.with_extension("killed");
        copy_dir(&dir, &killed);
        running.shutdown().await.unwrap();
        for dir in [&dir, &killed] {
            fs::remove_file(log_file(dir, 1)).unwrap();
            let before = snapshot(dir);
            let error = Store::open(config(dir)).await.unwrap_err();
            assert!(
                matches!(&error, StoreError::Hole { missing, count: 1 } if *missing == [log_file(dir, 1)]),
                "{error}"
            );
            let told = error.to_string();
            assert!(told.contains("00000000000000016384`") && told.contains("acceptDamagedCommitLog=true"), "{told}");
            assert!(snapshot(dir) == before);
            let left: Vec<StoredMessage> = all.iter().filter(|message| message.phy.0 >= 2 * FILE).cloned().collect();
            let lossy = StoreConfig { accept_damaged_log: true, ..config(dir) };
            let store = Store::open(lossy).await.unwrap();
            assert!(everything(&store) == left);
            assert_eq!(store.min_phy(), PhyOffset(2 * FILE));
            store.shutdown().await.unwrap();
            // What was given up is gone, so that the loss need not be accepted again.
            assert!(!log_file(dir, 0).exists());
            expect(dir, &left).await;
        }
    });
}

/// The reference flushes no directory: after a loss of power newer deleted files may be gone and older ones not.
#[test]
fn files_before_a_hole_that_the_reference_may_have_left_are_not_used() {
    on_machine(|dir| async move {
        let (running, all) = filled(&dir).await;
        running.shutdown().await.unwrap();
        fs::write(dir.join("abort"), "1").unwrap();
        fs::write(dir.join("checkpoint"), []).unwrap();
        fs::remove_file(log_file(&dir, 1)).unwrap();
        let left: Vec<StoredMessage> = all.into_iter().filter(|message| message.phy.0 >= 2 * FILE).collect();
        let store = Store::open(config(&dir)).await.unwrap();
        assert!(everything(&store) == left);
        assert_eq!(store.min_phy(), PhyOffset(2 * FILE));
        store.shutdown().await.unwrap();
    });
}

#[test]
fn a_file_made_ahead_behind_a_hole_is_dropped() {
    on_machine(|dir| async move {
        let (running, all) = filled(&dir).await;
        running.shutdown().await.unwrap();
        let last = fs::read_dir(dir.join("commitlog")).unwrap().count() as u64 - 1;
        fs::write(log_file(&dir, last + 2), vec![0; FILE as usize]).unwrap();
        expect(&dir, &all).await;
        assert!(!log_file(&dir, last + 2).exists());
    });
}

#[test]
fn a_store_whose_only_queue_file_is_damaged_is_rebuilt() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        for number in 0..10 {
            store.put_when_ready(&Text::new("t", 0, number).draft()).await.unwrap();
        }
        settle(&store).await;
        let all = everything(&store);
        store.shutdown().await.unwrap();
        let queue = dir.join("consumequeue/t/0/00000000000000000000");
        let copy = dir.with_extension("copy");
        copy_dir(&dir, &copy);
        fs::write(&queue, [7; 13]).unwrap();
        expect(&dir, &all).await;
        // This one may as well be of another setting.
        fs::write(copy.join("consumequeue/t/0/00000000000000000000"), vec![0; 1000]).unwrap();
        let error = Store::open(config(&copy)).await.unwrap_err().to_string();
        assert!(error.ends_with(
            "00000000000000000000` has 1000 bytes, mappedFileSizeConsumeQueue says 2000; give the key the value that \
             the store was made with, or move the consume queues away: they are rebuilt from the log"
        ), "{error}");
    });
}

#[test]
fn queues_whose_messages_are_gone_keep_their_end() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        for number in 0..10 {
            store.put(&Text::new("old", 0, number).draft()).unwrap();
        }
        for number in 0..300 {
            store.put_when_ready(&Text::new("orders", 0, number).draft()).await.unwrap();
        }
        settle(&store).await;
        store.shutdown().await.unwrap();
        fs::remove_file(log_file(&dir, 0)).unwrap();
        for damage in [None, Some("checkpoint")] {
            if let Some(damage) = damage {
                fs::remove_file(dir.join(damage)).unwrap();
            }
            let store = Store::open(config(&dir)).await.unwrap();
            assert_eq!(store.max_offset("old", 0), QueueOffset(10));
            assert_eq!(store.min_offset("old", 0), QueueOffset(10));
            store.shutdown().await.unwrap();
        }
        let store = Store::open(config(&dir)).await.unwrap();
        assert_eq!(store.put(&Text::new("old", 0, 1).draft()).unwrap().queue_offset, QueueOffset(10));
        store.shutdown().await.unwrap();
    });
}

#[test]
fn a_store_of_another_kind_is_refused() {
    on_machine(|dir| async move {
        fs::create_dir_all(dir.join("consumequeue")).unwrap();
        fs::write(dir.join("consumequeue/CURRENT"), "MANIFEST-000004\n").unwrap();
        let error = Store::open(config(&dir)).await.unwrap_err().to_string();
        assert!(error.ends_with("consume queues in RocksDB are not supported"), "{error}");
        let unaligned = StoreConfig { commit_log_file_bytes: 5000, ..config(&dir) };
        let error = Store::open(unaligned).await.unwrap_err().to_string();
        assert_eq!(error, "mappedFileSizeCommitLog is 5000: it must be a multiple of 4096 below 2 GiB");
    });
}
