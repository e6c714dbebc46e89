//! Directories of a store that are symbolic links: people move queues to other disks that way.

mod support;

use std::{
    error::Error as _,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use message::StoredMessage;
use staticfire_store::{
    Store, StoreConfig,
    audit::{AuditOptions, audit},
};
use support::{Dir, Text, config, copy_dir, find, on_machine, read_all, settle, snapshot};

const MESSAGES: u32 = 400;

/// What may be moved.
const PLACES: [&str; 5] = ["commitlog", "index", "consumequeue", "consumequeue/orders", "consumequeue/orders/1"];

async fn fill(store: &Store, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let topic = if number % 5 == 0 { "rare" } else { "orders" };
        store.put_when_ready(&Text::new(topic, number % 2, number).draft()).await.unwrap();
    }
    settle(store).await;
}

fn everything(store: &Store) -> Vec<StoredMessage> {
    let queues = [("orders", 0), ("orders", 1), ("rare", 0), ("rare", 1)];
    queues.into_iter().flat_map(|(topic, queue_id)| read_all(store, topic, queue_id)).collect()
}

/// Moves a directory of the store out of it, and leaves a link.
fn move_away(dir: &Path, place: &str) -> PathBuf {
    let target = dir.with_extension(format!("disk-of-{}", place.replace('/', "-")));
    fs::rename(dir.join(place), &target).unwrap();
    symlink(&target, dir.join(place)).unwrap();
    target
}

fn check_sound(dir: &Path) {
    let options = AuditOptions { dispatched: true, ..AuditOptions::of(&config(dir)) };
    let found = audit(&Dir(dir.to_owned()), &options).unwrap();
    assert_eq!(found.findings, []);
    assert_eq!(found.queues, 4);
    assert!(found.records > 0 && found.index_entries > 0, "{found:?}");
}

/// Opens a store with a moved directory, and lets it be used, killed, recovered and emptied.
async fn live_on(dir: PathBuf, place: &'static str, clean: bool) {
    let store = Store::open(config(&dir)).await.unwrap();
    fill(&store, 0..MESSAGES).await;
    let all = everything(&store);
    assert_eq!(all.len() as u32, MESSAGES);
    let root = if clean {
        store.shutdown().await.unwrap();
        dir.clone()
    } else {
        let killed = dir.with_extension("killed");
        copy_dir(&dir, &killed);
        killed
    };
    let target = move_away(&root, place);
    check_sound(&root);
    let store = Store::open(config(&root)).await.unwrap();
    assert!(everything(&store) == all, "{place}, closed {clean}");
    fill(&store, MESSAGES..2 * MESSAGES).await;
    let all = everything(&store);
    store.shutdown().await.unwrap();
    check_sound(&root);

    // A queue that is lost is built again where the link leads.
    if place.starts_with("consumequeue") {
        fs::remove_dir_all(&target).unwrap();
        fs::create_dir(&target).unwrap();
    }
    let expiring = StoreConfig { file_reserved: Duration::ZERO, delete_when: vec![], ..config(&root) };
    let store = Store::open(expiring).await.unwrap();
    assert!(everything(&store) == all, "{place}, closed {clean}");
    store.delete_expired_files();
    let host = host::Host::current();
    while root.join("commitlog/00000000000000016384").exists()
        || root.join("consumequeue/orders/1/00000000000000000000").exists()
    {
        host.sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(find(&store, "orders", "k1"), []);
    store.shutdown().await.unwrap();
    check_sound(&root);
    assert!(root.join(place).is_symlink() && fs::read_dir(target).unwrap().next().is_some());
}

#[test]
fn a_store_with_a_directory_on_another_disk_is_used_recovered_and_emptied_as_any_other() {
    for place in PLACES {
        for clean in [true, false] {
            on_machine(move |dir| live_on(dir, place, clean));
        }
    }
}

/// The root itself, and the directory that `storePathCommitLog` names.
#[test]
fn the_root_and_the_place_of_the_log_may_be_links() {
    on_machine(|dir| async move {
        let (disk, log_disk) = (dir.with_extension("disk"), dir.with_extension("log-disk"));
        fs::create_dir(&disk).unwrap();
        fs::create_dir(&log_disk).unwrap();
        symlink(&disk, &dir).unwrap();
        symlink(&log_disk, dir.with_extension("log")).unwrap();
        let settings = || StoreConfig { commit_log_dir: Some(dir.with_extension("log")), ..config(&dir) };
        let store = Store::open(settings()).await.unwrap();
        fill(&store, 0..50).await;
        let all = everything(&store);
        store.shutdown().await.unwrap();
        assert!(log_disk.join("00000000000000000000").exists() && disk.join("consumequeue/orders").is_dir());
        let store = Store::open(settings()).await.unwrap();
        assert!(everything(&store) == all);
        store.shutdown().await.unwrap();
    });
}

/// The disk is not mounted: nothing is built beside it, and nothing that is there changes.
#[test]
fn a_link_to_nothing_is_named_and_the_store_left_as_it_is() {
    for place in PLACES {
        for clean in [true, false] {
            on_machine(move |dir| async move {
                let store = Store::open(config(&dir)).await.unwrap();
                fill(&store, 0..50).await;
                let all = everything(&store);
                let root = dir.with_extension("copy");
                if clean {
                    store.shutdown().await.unwrap();
                }
                copy_dir(&dir, &root);
                let target = move_away(&root, place);
                let unmounted = target.with_extension("unmounted");
                fs::rename(&target, &unmounted).unwrap();
                let before = snapshot(&root);
                let error = Store::open(config(&root)).await.unwrap_err();
                let told = format!("{error}: {}", error.source().unwrap());
                let link = format!("{} is a symbolic link to {}, which", root.join(place).display(), target.display());
                assert!(told.contains(&link), "{told}");
                assert!(snapshot(&root) == before, "{place}, closed {clean}");
                fs::rename(&unmounted, &target).unwrap();
                let store = Store::open(config(&root)).await.unwrap();
                assert!(everything(&store) == all, "{place}");
                store.shutdown().await.unwrap();
            });
        }
    }
}
