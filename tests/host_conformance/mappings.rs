//! Mapped files. What a kill and a power loss do to them is tested on the stand.

use std::{
    io::ErrorKind,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use host::{
    Host,
    fs::{Advice, File, Mapping, OpenOptions},
};

const LEN: u64 = 3 * 4096 + 100;

async fn mapped(host: &Host, path: &Path) -> (File, Mapping) {
    let file = host.files().open(path, OpenOptions::CREATE).await.unwrap();
    file.allocate(LEN).await.unwrap();
    let mapping = file.map(LEN).await.unwrap();
    (file, mapping)
}

fn panics(action: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(action)).is_err()
}

pub async fn only_what_exists_can_be_mapped(host: Host, dir: PathBuf) {
    let file = host.files().open(dir.join("file"), OpenOptions::CREATE).await.unwrap();
    file.set_len(5000).await.unwrap();
    assert_eq!(file.map(5001).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(file.map(0).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(file.map(4999).await.unwrap().len(), 4999);
}

pub async fn a_mapping_and_its_file_share_bytes(host: Host, dir: PathBuf) {
    let (file, mapping) = mapped(&host, &dir.join("file")).await;
    mapping.write(4090, b"across a page");
    let mut seen = [0; 13];
    file.read_exact_at(&mut seen, 4090).unwrap();
    assert_eq!(&seen, b"across a page");
    file.write_all_at(b"ACROSS", 4090).unwrap();
    assert_eq!(mapping.with(4090, 4096, <[u8]>::to_vec), b"ACROSS");
    mapping.write(LEN - 3, b"end");
    assert_eq!(&host.files().read(dir.join("file")).await.unwrap()[LEN as usize - 3..], b"end");
    let twin = mapping.clone();
    twin.write(0, b"twin");
    assert_eq!(&mapping.slice(0, 4)[..], b"twin");
    assert_eq!(mapping.slice(7, 7).len(), 0);
    file.write_all_at(b"behind the mapping", LEN).unwrap();
    assert_eq!(file.len().unwrap(), LEN + 18);
}

pub async fn a_mapping_outlives_handle_and_name(host: Host, dir: PathBuf) {
    let path = dir.join("file");
    let (file, mapping) = mapped(&host, &path).await;
    drop(file);
    host.files().remove_file(&path).await.unwrap();
    mapping.write(100, b"still here");
    mapping.sync(0, LEN).await.unwrap();
    assert_eq!(&mapping.slice(100, 110)[..], b"still here");
}

pub async fn stores_outside_or_below_handed_out_bytes_panic(host: Host, dir: PathBuf) {
    let (_file, mapping) = mapped(&host, &dir.join("file")).await;
    assert!(panics(|| mapping.write(LEN - 1, b"xx")));
    assert!(panics(|| mapping.write(u64::MAX, b"x")));
    assert!(panics(|| drop(mapping.slice(0, LEN + 1))));
    assert!(panics(|| drop(mapping.slice(5, 4))));
    assert!(panics(|| mapping.with(LEN, LEN + 1, |_| ())));
    let held = mapping.slice(10, 20);
    assert!(panics(|| mapping.write(19, b"x")));
    assert!(panics(|| mapping.write(0, b"x")), "everything below is frozen too");
    mapping.write(20, b"allowed");
    assert_eq!(held[..], [0; 10]);
    assert_eq!(mapping.with(20, 27, <[u8]>::to_vec), b"allowed");
}

pub async fn bytes_held_across_a_rewind_and_a_removal_stay(host: Host, dir: PathBuf) {
    let path = dir.join("file");
    let (file, mapping) = mapped(&host, &path).await;
    mapping.write(0, &[7; 8192]);
    let held = mapping.slice(0, 8192);
    let rewound = mapping.rewind(4000).await.unwrap();
    rewound.write(0, &[8; 8192]);
    let held_later = rewound.slice(0, 8192);
    drop((file, mapping, rewound));
    host.files().remove_file(&path).await.unwrap();
    assert_eq!(held[..], [7; 8192]);
    assert_eq!(held_later[..], [8; 8192]);
}

pub async fn a_rewound_file_holds_what_was_kept_and_zeros(host: Host, dir: PathBuf) {
    let path = dir.join("file");
    let (_file, mapping) = mapped(&host, &path).await;
    mapping.write(0, &[7; LEN as usize]);
    let held = mapping.slice(0, LEN);
    let rewound = mapping.rewind(5000).await.unwrap();
    assert_eq!(rewound.len(), LEN);
    let content = host.files().read(&path).await.unwrap();
    assert_eq!(content.len() as u64, LEN);
    assert!(content[..5000].iter().all(|&byte| byte == 7));
    assert!(content[5000..].iter().all(|&byte| byte == 0));
    rewound.write(0, b"nothing is frozen");
    mapping.write(LEN, b"");
    assert_eq!(held[..], [7; LEN as usize], "the old mapping keeps the old bytes");
    assert_eq!(mapping.with(0, LEN, <[u8]>::to_vec), [7; LEN as usize]);
    assert_eq!(&host.files().read(&path).await.unwrap()[..17], b"nothing is frozen");
    let names = host.files().read_dir(&dir).await.unwrap();
    assert_eq!(names.len(), 1, "nothing is left beside it: {names:?}");
    let again = rewound.rewind(0).await.unwrap();
    assert_eq!(again.with(0, LEN, <[u8]>::to_vec), [0; LEN as usize]);
}

pub async fn a_range_can_be_flushed(host: Host, dir: PathBuf) {
    let (_file, mapping) = mapped(&host, &dir.join("file")).await;
    mapping.write(4000, &[1; 200]);
    mapping.sync(4000, 4200).await.unwrap();
    mapping.sync(0, LEN).await.unwrap();
    mapping.sync(LEN, LEN).await.unwrap();
}

pub async fn what_makes_a_mapping_fast_changes_no_byte(host: Host, dir: PathBuf) {
    let path = dir.join("file");
    let (_file, mapping) = mapped(&host, &path).await;
    mapping.write(4090, b"across a page");
    let held = mapping.slice(0, 4100);
    mapping.touch(0, LEN).await.unwrap();
    mapping.touch(LEN, LEN).await.unwrap();
    for advice in [Advice::Random, Advice::WillNeed] {
        mapping.advise(advice).unwrap();
    }
    mapping.unlock().unwrap();
    // A process may be allowed to lock nothing.
    if let Err(error) = mapping.lock().await {
        assert!(matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::PermissionDenied), "{error}");
    }
    mapping.write(4100, b"still written");
    mapping.unlock().unwrap();
    assert_eq!(&held[4090..], b"across a p");
    let content = host.files().read(&path).await.unwrap();
    assert_eq!(&content[4090..4113], b"across a pstill written");
    assert!(content[4113..].iter().all(|&byte| byte == 0));
}
