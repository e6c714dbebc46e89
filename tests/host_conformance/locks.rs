//! The advisory lock of a file. That it is freed by the death of the process is tested on the stand.

use std::path::PathBuf;

use host::{Host, fs::OpenOptions};

pub async fn a_second_opener_is_refused_the_lock(host: Host, dir: PathBuf) {
    let files = host.files();
    let first = files.open(dir.join("lock"), OpenOptions::CREATE).await.unwrap();
    let second = files.open(dir.join("lock"), OpenOptions::CREATE).await.unwrap();
    let other = files.open(dir.join("other"), OpenOptions::CREATE).await.unwrap();
    assert!(first.try_lock().unwrap());
    assert!(!second.try_lock().unwrap(), "also in the same process");
    assert!(first.try_lock().unwrap(), "who has it gets it");
    assert!(other.try_lock().unwrap());
    second.write_all_at(b"advisory", 0).unwrap();
}

pub async fn a_lock_is_freed_with_the_last_clone(host: Host, dir: PathBuf) {
    let files = host.files();
    let first = files.open(dir.join("lock"), OpenOptions::CREATE).await.unwrap();
    let second = files.open(dir.join("lock"), OpenOptions::CREATE).await.unwrap();
    assert!(first.try_lock().unwrap());
    let clone = first.clone();
    drop(first);
    assert!(!second.try_lock().unwrap());
    drop(clone);
    assert!(second.try_lock().unwrap());
}
