//! A copy of a log: bytes of a master, cut anywhere.

mod support;

use std::path::Path;

use message::{PhyOffset, RecordError};
use proptest::prelude::*;
use staticfire_store::{CopyError, FlushDiskType, Flushed, PutError, Store, StoreConfig, WriteBlock};
use support::{Text, config, copy_dir, find, on_machine, read_all, settle};

const FILE_BYTES: u64 = 16 << 10;
const QUEUES: [(&str, u32); 3] = [("orders", 0), ("orders", 3), ("other", 1)];

fn copy_config(dir: &Path) -> StoreConfig {
    StoreConfig { is_copy: true, ..config(dir) }
}

/// A master with `count` messages.
async fn master(dir: &Path, count: u32) -> Store {
    let store = Store::open(config(dir)).await.unwrap();
    for number in 0..count {
        let (topic, queue) = QUEUES[number as usize % QUEUES.len()];
        store.put_when_ready(&Text::new(topic, queue, number).draft()).await.unwrap();
    }
    settle(&store).await;
    store
}

/// Gives the copy everything that the master has and it has not, in frames of these lengths in turn.
async fn follow(master: &Store, copy: &Store, frames: &[usize]) {
    let mut frames = frames.iter().cycle();
    loop {
        let at = copy.copied_phy();
        let Some(bytes) = master.log_bytes(at) else { break };
        let len = bytes.len().min(*frames.next().unwrap());
        copy.append_copy(at, &bytes[..len]).await.unwrap();
        assert_eq!(copy.copied_phy(), PhyOffset(at.0 + len as u64));
    }
    assert_eq!(copy.copied_phy(), master.max_phy());
    assert_eq!(copy.flush().await, Flushed::Done); // Under sync flush, queues follow what is on disk.
    settle(copy).await;
}

/// All bytes of a log, as readers see it.
fn log(store: &Store) -> Vec<u8> {
    let mut all = Vec::new();
    let mut at = store.min_phy();
    while let Some(bytes) = store.log_bytes(at) {
        at = PhyOffset(at.0 + bytes.len() as u64);
        all.extend_from_slice(&bytes);
    }
    all
}

fn assert_same(master: &Store, copy: &Store) {
    assert_eq!(copy.min_phy(), master.min_phy());
    assert!(log(copy) == log(master), "the logs differ");
    assert_eq!(copy.queues(), master.queues());
    for (topic, queue) in QUEUES {
        assert_eq!(copy.min_offset(topic, queue), master.min_offset(topic, queue));
        assert_eq!(read_all(copy, topic, queue), read_all(master, topic, queue));
    }
    for key in ["k0", "k7", "k100"] {
        assert_eq!(find(copy, QUEUES[0].0, key), find(master, QUEUES[0].0, key), "{key}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Wherever the log is cut, and wherever the copy is killed or stopped in between.
    #[test]
    fn a_copy_has_the_bytes_and_the_queues_of_its_master(
        count in 1_u32..400,
        frames in prop::collection::vec(prop_oneof![1_usize..12, 1_usize..2000, Just(32_768)], 1..20),
        stops in prop::collection::vec((0.0..1.0_f64, 0..3_u8), 0..3),
        is_sync: bool,
    ) {
        on_machine(move |dir| async move {
            let master = master(&dir.join("master"), count).await;
            let end = master.max_phy().0;
            let flush_disk_type = if is_sync { FlushDiskType::Sync } else { FlushDiskType::Async };
            let open = |dir: &Path| Store::open(StoreConfig { flush_disk_type, ..copy_config(dir) });
            let mut home = dir.join("copy");
            let mut copy = open(&home).await.unwrap();
            let mut stops: Vec<(u64, u8)> = stops.iter().map(|(at, how)| ((*at * end as f64) as u64, *how)).collect();
            stops.sort_unstable();
            for (life, (until, how)) in stops.into_iter().enumerate() {
                let mut turn = frames.iter().cycle();
                while copy.copied_phy().0 < until {
                    let at = copy.copied_phy();
                    let bytes = master.log_bytes(at).unwrap();
                    let len = bytes.len().min(*turn.next().unwrap()).min((until - at.0) as usize);
                    copy.append_copy(at, &bytes[..len]).await.unwrap();
                }
                let whole = copy.max_phy();
                match how {
                    0 => {
                        copy.drop_partial_record().await;
                        assert_eq!(copy.copied_phy(), whole);
                    }
                    1 => {
                        copy.shutdown().await.unwrap();
                        copy = open(&home).await.unwrap();
                        assert_eq!((copy.copied_phy(), copy.is_continued() || whole.0 == 0), (whole, true));
                    }
                    _ => {
                        let killed = dir.join(format!("killed-{life}"));
                        copy_dir(&home, &killed);
                        copy.shutdown().await.unwrap();
                        std::fs::remove_file(killed.join("lock")).unwrap();
                        home = killed;
                        copy = open(&home).await.unwrap();
                        assert_eq!(copy.copied_phy(), whole);
                    }
                }
            }
            follow(&master, &copy, &frames).await;
            assert_same(&master, &copy);
            assert_eq!(copy.flushed_phy(), master.max_phy());
            copy.shutdown().await.unwrap();
            // As a master it goes on where the other one ended.
            let promoted = Store::open(config(&home)).await.unwrap();
            let put = promoted.put_when_ready(&Text::new("orders", 0, 1).draft()).await.unwrap();
            assert_eq!(put.queue_offset, master.max_offset("orders", 0));
            promoted.shutdown().await.unwrap();
            master.shutdown().await.unwrap();
        });
    }
}

#[test]
fn half_a_record_is_not_seen_and_leaves_nothing_behind_at_a_clean_exit() {
    on_machine(|dir| async move {
        let master = master(&dir.join("master"), 2).await;
        let all = master.log_bytes(PhyOffset(0)).unwrap();
        let copy = Store::open(copy_config(&dir.join("copy"))).await.unwrap();
        copy.append_copy(PhyOffset(0), &all[..all.len() - 1]).await.unwrap();
        settle(&copy).await;
        let first = copy.max_phy();
        assert!(first.0 > 0 && first < copy.copied_phy());
        assert_eq!(copy.log_bytes(PhyOffset(0)).unwrap().len() as u64, first.0);
        assert_eq!(copy.flush().await, Flushed::Done, "half a record is not waited for");
        copy.shutdown().await.unwrap();
        let file = std::fs::read(dir.join("copy/commitlog/00000000000000000000")).unwrap();
        assert!(file[first.0 as usize..].iter().all(|&byte| byte == 0));
        master.shutdown().await.unwrap();
    });
}

/// A slave without messages is given the last file of its master, or what is left there.
#[test]
fn an_empty_copy_begins_where_its_master_does() {
    on_machine(|dir| async move {
        let master = master(&dir.join("master"), 400).await;
        let start = PhyOffset(master.max_phy().0 / FILE_BYTES * FILE_BYTES);
        assert!(start.0 >= 2 * FILE_BYTES);
        let home = dir.join("copy");
        let copy = Store::open(copy_config(&home)).await.unwrap();
        assert!(copy.is_log_empty());
        let bytes = master.log_bytes(start).unwrap();
        copy.append_copy(start, &bytes[..100]).await.unwrap();
        assert!(!copy.is_log_empty());
        follow(&master, &copy, &[1000]).await;
        let files = std::fs::read_dir(home.join("commitlog")).unwrap().map(|file| file.unwrap().file_name());
        assert!(files.map(|name| name.into_string().unwrap()).all(|name| name >= format!("{:020}", start.0)));
        let of_last_file: Vec<_> = QUEUES
            .iter()
            .map(|(topic, queue)| {
                read_all(&master, topic, *queue).into_iter().filter(|message| message.phy >= start).collect::<Vec<_>>()
            })
            .collect();
        let check = |copy: &Store| {
            assert_eq!((copy.min_phy(), copy.max_phy()), (start, master.max_phy()));
            for ((topic, queue), messages) in QUEUES.iter().zip(&of_last_file) {
                assert_eq!(copy.min_offset(topic, *queue), messages[0].queue_offset);
                assert_eq!(&read_all(copy, topic, *queue), messages);
            }
        };
        check(&copy);
        copy.shutdown().await.unwrap();
        let again = Store::open(copy_config(&home)).await.unwrap();
        check(&again);
        again.shutdown().await.unwrap();
        master.shutdown().await.unwrap();
    });
}

/// Its empty file stands where the master's last one began, which is a later one by now.
#[test]
fn a_copy_that_was_stopped_before_its_first_byte_may_begin_later_but_not_earlier() {
    on_machine(|dir| async move {
        let master = master(&dir.join("master"), 400).await;
        let home = dir.join("copy");
        let copy = Store::open(copy_config(&home)).await.unwrap();
        let refused = copy.append_copy(PhyOffset(FILE_BYTES), b"no record").await;
        assert!(matches!(refused, Err(CopyError::NotARecord { .. })), "{refused:?}");
        copy.shutdown().await.unwrap();
        let copy = Store::open(copy_config(&home)).await.unwrap();
        assert!(copy.is_log_empty());
        let (at, end) = (PhyOffset(0), PhyOffset(FILE_BYTES));
        assert_eq!(copy.append_copy(at, b"any").await, Err(CopyError::NotAtEnd { at, end }));
        let start = PhyOffset(2 * FILE_BYTES);
        copy.append_copy(start, &master.log_bytes(start).unwrap()[..500]).await.unwrap();
        follow(&master, &copy, &[5000]).await;
        assert_eq!((copy.min_phy(), copy.max_phy()), (start, master.max_phy()));
        assert_eq!(copy.max_offset("orders", 0), master.max_offset("orders", 0));
        copy.shutdown().await.unwrap();
        master.shutdown().await.unwrap();
    });
}

#[test]
fn bytes_that_cannot_be_of_the_same_log_are_refused_and_nothing_of_them_is_kept() {
    on_machine(|dir| async move {
        let master = master(&dir.join("master"), 400).await;
        let first = master.log_bytes(PhyOffset(0)).unwrap();
        assert_eq!(first.len() as u64, FILE_BYTES);
        let copy = Store::open(copy_config(&dir.join("copy"))).await.unwrap();
        let inside = copy.append_copy(PhyOffset(FILE_BYTES + 4096), &first).await;
        assert!(matches!(inside, Err(CopyError::CrossesFile { .. })), "{inside:?}");
        copy.append_copy(PhyOffset(0), &first[..1000]).await.unwrap();
        let (end, whole) = (copy.copied_phy(), copy.max_phy());
        assert_eq!(
            copy.append_copy(PhyOffset(999), &first[999..]).await,
            Err(CopyError::NotAtEnd { at: PhyOffset(999), end })
        );
        let mut twice = first[1000..].to_vec();
        twice.push(0);
        let crossing = copy.append_copy(end, &twice).await;
        assert!(matches!(crossing, Err(CopyError::CrossesFile { .. })), "{crossing:?}");
        let mut damaged = first[1000..].to_vec();
        let next = record_at(&first, whole.0 as usize);
        damaged[next - 1000 + 4] ^= 1;
        assert_eq!(
            copy.append_copy(end, &damaged).await,
            Err(CopyError::NotARecord { at: PhyOffset(next as u64), source: RecordError::Magic(0xDBA3_20A7) })
        );
        assert_eq!((copy.copied_phy(), copy.max_phy()), (end, whole));
        // A master with shorter files has its blank elsewhere.
        let blank = message::encode_blank(8);
        copy.drop_partial_record().await;
        let blank = copy.append_copy(whole, &blank).await;
        assert!(
            matches!(blank, Err(CopyError::NotARecord { source: RecordError::Size { stated: 8, .. }, .. })),
            "{blank:?}"
        );
        follow(&master, &copy, &[700]).await;
        assert_same(&master, &copy);
        copy.shutdown().await.unwrap();
        assert_eq!(copy.append_copy(master.max_phy(), b"later").await, Err(CopyError::Blocked(WriteBlock::Stopped)));
        master.shutdown().await.unwrap();
    });
}

/// Where the record behind the one at `at` starts.
fn record_at(log: &[u8], at: usize) -> usize {
    at + u32::from_be_bytes(log[at..at + 4].try_into().unwrap()) as usize
}

#[test]
fn a_copy_takes_no_messages() {
    on_machine(|dir| async move {
        let copy = Store::open(copy_config(&dir)).await.unwrap();
        let message = Text::new("orders", 0, 1);
        assert_eq!(copy.put(&message.draft()), Err(PutError::Blocked(WriteBlock::IsCopy)));
        assert_eq!(copy.put_batch(&[message.draft()]), Err(PutError::Blocked(WriteBlock::IsCopy)));
        copy.shutdown().await.unwrap();
    });
}

#[test]
fn a_record_before_the_end_is_found_by_distance_and_is_never_the_first() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        assert_eq!(store.record_before(PhyOffset(0), 1000), PhyOffset(0));
        let mut ends = Vec::new();
        for number in 0..400 {
            ends.push(store.put_when_ready(&Text::new("orders", 0, number).draft()).await.unwrap());
            if number == 0 {
                assert_eq!(store.record_before(store.max_phy(), 1000), store.max_phy());
            }
        }
        let end = store.max_phy();
        for distance in [0, 1, 100, 1000, FILE_BYTES, 2 * FILE_BYTES, u64::MAX] {
            let found = store.record_before(end, distance);
            let wanted = end.0.saturating_sub(distance);
            // The start of a file counts, for records start there.
            let starts = ends.iter().map(|put| put.phy).filter(|phy| phy.0 > 0);
            let expected = starts.clone().find(|phy| phy.0 >= wanted).or(starts.clone().next_back()).unwrap();
            assert_eq!(found, expected, "{distance}");
        }
        store.shutdown().await.unwrap();
    });
}

// ---- cutting it back ----

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Wherever it is cut, in a record or a blank one, or at the end of a file: it is as if the rest had never come, after a
    /// kill as well, and it follows a master that went on in another way.
    #[test]
    fn a_copy_that_is_cut_back_is_as_if_the_rest_had_never_come(
        count in 2_u32..400,
        place in 0.0..1.2_f64,
        at_file_end: bool,
        is_stopped: bool,
        is_killed: bool,
    ) {
        on_machine(move |dir| async move {
            let master = master(&dir.join("master"), count).await;
            let (home, end) = (dir.join("copy"), master.max_phy().0);
            let mut copy = Store::open(copy_config(&home)).await.unwrap();
            follow(&master, &copy, &[700]).await;
            let cut = (place * end as f64) as u64;
            let cut = if at_file_end { cut / FILE_BYTES * FILE_BYTES } else { cut }.max(1);
            // The last whole record before it, or the blank one behind that.
            let ends = QUEUES.iter().flat_map(|(topic, queue)| read_all(&master, topic, *queue));
            let ends = ends.map(|message| message.phy.0 + u64::from(message.size_bytes)).filter(|end| *end <= cut);
            let kept = ends.max().unwrap_or(0).max(cut.min(end) / FILE_BYTES * FILE_BYTES);

            // What a master has that lost the rest, and went on.
            let short = Store::open(copy_config(&dir.join("short"))).await.unwrap();
            while let at = short.copied_phy() && at.0 < kept {
                let bytes = master.log_bytes(at).unwrap();
                short.append_copy(at, &bytes[..bytes.len().min((kept - at.0) as usize)]).await.unwrap();
            }
            short.shutdown().await.unwrap();
            let short = Store::open(config(&dir.join("short"))).await.unwrap();
            for number in 0..150 {
                short.put_when_ready(&Text::new("orders", 3, 100_000 + number).draft()).await.unwrap();
            }
            settle(&short).await;

            if is_stopped {
                copy.shutdown().await.unwrap();
            } else {
                kill(&home, &copy).await;
            }
            copy = Store::open(StoreConfig { cut_at: Some(PhyOffset(cut)), ..copy_config(&home) }).await.unwrap();
            assert_eq!(copy.max_phy(), PhyOffset(kept));
            assert_eq!(copy.is_continued(), is_stopped && cut >= end);
            if is_killed {
                kill(&home, &copy).await;
                copy = Store::open(copy_config(&home)).await.unwrap();
                assert_eq!(copy.max_phy(), PhyOffset(kept));
            }
            follow(&short, &copy, &[900]).await;
            assert_same(&short, &copy);
            for store in [master, short, copy] {
                store.shutdown().await.unwrap();
            }
        });
    }
}

/// Closes a store, and leaves its directory as a kill would have.
async fn kill(home: &Path, store: &Store) {
    let killed = home.with_extension("killed");
    copy_dir(home, &killed);
    store.shutdown().await.unwrap();
    std::fs::remove_dir_all(home).unwrap();
    std::fs::rename(&killed, home).unwrap();
    std::fs::remove_file(home.join("lock")).unwrap();
}
