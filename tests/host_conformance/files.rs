//! Plain files.

use std::{io::ErrorKind, path::PathBuf};

use host::{Host, fs::OpenOptions};

pub async fn a_file_opens_in_the_mode_asked_for(host: Host, dir: PathBuf) {
    let (files, path) = (host.files(), dir.join("file"));
    for options in [OpenOptions::READ, OpenOptions::WRITE] {
        assert_eq!(files.open(&path, options).await.unwrap_err().kind(), ErrorKind::NotFound);
    }
    assert!(!files.exists(&path).await.unwrap());
    files.open(&path, OpenOptions::CREATE).await.unwrap().write_all_at(b"first", 0).unwrap();
    assert!(files.exists(&path).await.unwrap());
    assert_eq!(files.open(&path, OpenOptions::CREATE_NEW).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    files.open(&path, OpenOptions::CREATE).await.unwrap();
    assert_eq!(files.read(&path).await.unwrap(), b"first", "opening changes nothing");
    let replaced = files.open(&path, OpenOptions::REPLACE).await.unwrap();
    assert!(replaced.is_empty().unwrap());
    let new = files.open(dir.join("new"), OpenOptions::CREATE_NEW).await.unwrap();
    assert_eq!(new.len().unwrap(), 0);
    let created_read_only = OpenOptions { create: true, ..OpenOptions::READ };
    assert_eq!(files.open(&path, created_read_only).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    let missing = dir.join("missing/file");
    assert_eq!(files.open(missing, OpenOptions::CREATE).await.unwrap_err().kind(), ErrorKind::NotFound);
}

pub async fn bytes_are_read_as_they_were_written(host: Host, dir: PathBuf) {
    let file = host.files().open(dir.join("file"), OpenOptions::CREATE).await.unwrap();
    file.write_all_at(b"hello", 0).unwrap();
    file.write_all_at(b"HE", 0).unwrap();
    file.write_all_at(b"far", 10_000).unwrap();
    assert_eq!(file.len().unwrap(), 10_003);
    let mut all = vec![1; 10_003];
    file.read_exact_at(&mut all, 0).unwrap();
    assert_eq!(&all[..5], b"HEllo");
    assert!(all[5..10_000].iter().all(|&byte| byte == 0), "what was skipped reads as zeros");
    assert_eq!(&all[10_000..], b"far");
    assert_eq!(host.files().read(dir.join("file")).await.unwrap(), all);
    let mut beyond = [0; 4];
    assert_eq!(file.read_exact_at(&mut beyond, 10_000).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(file.read_exact_at(&mut beyond, 20_000).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    file.read_exact_at(&mut [], 20_000).unwrap();
    file.write_all_at(b"", 20_000).unwrap();
    assert_eq!(file.len().unwrap(), 10_003, "writing nothing does not grow a file");
}

/// The stand runs it once more with a disk whose reads and writes are all short.
pub async fn a_file_is_read_and_written_whole_at_any_place(host: Host, dir: PathBuf) {
    let file = host.files().open(dir.join("file"), OpenOptions::CREATE).await.unwrap();
    let content: Vec<u8> = (0..20_000_u32).map(|at| (at % 251) as u8).collect();
    file.write_all_at(&content, 0).unwrap();
    assert_eq!(host.files().read(dir.join("file")).await.unwrap(), content);
    for (at, count) in [(0, 20_000), (1, 4096), (4095, 2), (19_999, 1), (8_000, 12_000)] {
        let mut part = vec![0; count];
        file.read_exact_at(&mut part, at as u64).unwrap();
        assert_eq!(part, content[at..at + count], "{count} bytes at {at}");
    }
    let mut beyond = [0; 10];
    assert_eq!(file.read_exact_at(&mut beyond, 19_995).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

pub async fn all_handles_of_a_file_see_the_same_bytes(host: Host, dir: PathBuf) {
    let (files, path) = (host.files(), dir.join("file"));
    let writer = files.open(&path, OpenOptions::CREATE).await.unwrap();
    let reader = files.open(&path, OpenOptions::READ).await.unwrap();
    let clone = writer.clone();
    writer.write_all_at(b"abc", 0).unwrap();
    clone.write_all_at(b"B", 1).unwrap();
    files.rename(&path, dir.join("moved")).await.unwrap();
    writer.write_all_at(b"C", 2).unwrap();
    let mut seen = [0; 3];
    reader.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(&seen, b"aBC");
    assert_eq!(files.read(dir.join("moved")).await.unwrap(), b"aBC");
}

pub async fn a_handle_for_reading_refuses_changes(host: Host, dir: PathBuf) {
    let (files, path) = (host.files(), dir.join("file"));
    files.open(&path, OpenOptions::CREATE).await.unwrap().write_all_at(b"abc", 0).unwrap();
    let reader = files.open(&path, OpenOptions::READ).await.unwrap();
    reader.write_all_at(b"x", 0).unwrap_err();
    reader.set_len(1).await.unwrap_err();
    reader.allocate(8192).await.unwrap_err();
    reader.map(3).await.unwrap_err();
    assert_eq!(files.read(&path).await.unwrap(), b"abc");
}

pub async fn a_length_can_be_set_and_reserved(host: Host, dir: PathBuf) {
    let file = host.files().open(dir.join("file"), OpenOptions::CREATE).await.unwrap();
    file.write_all_at(&[7; 10_000], 0).unwrap();
    file.set_len(100).await.unwrap();
    assert_eq!(file.len().unwrap(), 100);
    file.set_len(9_000).await.unwrap();
    let mut all = vec![1; 9_000];
    file.read_exact_at(&mut all, 0).unwrap();
    assert!(all[..100].iter().all(|&byte| byte == 7));
    assert!(all[100..].iter().all(|&byte| byte == 0), "cut off and regained");
    file.allocate(50).await.unwrap();
    assert_eq!(file.len().unwrap(), 9_000, "reserving never shortens");
    file.allocate(0).await.unwrap();
    file.allocate(20_000).await.unwrap();
    assert_eq!(file.len().unwrap(), 20_000);
    file.read_exact_at(&mut all, 11_000).unwrap();
    assert!(all.iter().all(|&byte| byte == 0));
    file.set_len(0).await.unwrap();
    assert!(file.is_empty().unwrap());
}

/// Where a file system cannot tell, everything counts as data; the ones that tests run on can.
pub async fn what_was_never_written_is_told_from_data(host: Host, dir: PathBuf) {
    let files = host.files();
    let file = files.open(dir.join("file"), OpenOptions::CREATE).await.unwrap();
    assert_eq!(file.next_data(0).unwrap(), None);
    file.set_len(1 << 20).await.unwrap();
    assert_eq!(file.next_data(0).unwrap(), None);
    file.write_all_at(b"x", 300_000).unwrap();
    let data = file.next_data(0).unwrap().unwrap();
    assert!(data.start > 0 && data.contains(&300_000) && data.end < 400_000, "{data:?}");
    assert_eq!(file.next_data(300_000).unwrap(), Some(300_000..data.end));
    assert_eq!(file.next_data(400_000).unwrap(), None);
    assert_eq!(file.next_data(2 << 20).unwrap(), None);
    // Reserved space was not written; whoever reads it by its position gets zeros.
    let reserved = files.open(dir.join("reserved"), OpenOptions::CREATE).await.unwrap();
    reserved.allocate(1 << 20).await.unwrap();
    reserved.write_all_at(b"x", 0).unwrap();
    reserved.sync_all().await.unwrap();
    assert_eq!(reserved.next_data(0).unwrap().map(|data| data.start), Some(0));
    let mapping = reserved.map(1 << 20).await.unwrap();
    mapping.write(700_000, b"y");
    assert_eq!(reserved.next_data(700_000).unwrap().map(|data| data.start), Some(700_000));
}

pub async fn metadata_tell_kind_length_and_time(host: Host, dir: PathBuf) {
    let (files, path) = (host.files(), dir.join("file"));
    // The clock that stamps files may lag behind the one that is read, by a tick of the kernel.
    let before = host.wall_ms() - 20;
    files.open(&path, OpenOptions::CREATE).await.unwrap().write_all_at(&[0; 5000], 0).unwrap();
    let metadata = files.metadata(&path).await.unwrap();
    assert_eq!((metadata.is_dir, metadata.len), (false, 5000));
    let now = host.wall_ms();
    assert!((before..=now).contains(&metadata.modified_ms), "{} in {before}..={now}", metadata.modified_ms);
    let metadata = files.metadata(&dir).await.unwrap();
    assert_eq!((metadata.is_dir, metadata.len), (true, 0));
    assert_eq!(files.metadata(dir.join("missing")).await.unwrap_err().kind(), ErrorKind::NotFound);
}

pub async fn flushing_succeeds(host: Host, dir: PathBuf) {
    let file = host.files().open(dir.join("file"), OpenOptions::CREATE).await.unwrap();
    file.write_all_at(&[1; 5000], 0).unwrap();
    file.sync_data().await.unwrap();
    file.sync_all().await.unwrap();
    let reader = host.files().open(dir.join("file"), OpenOptions::READ).await.unwrap();
    reader.sync_all().await.unwrap();
}

pub async fn a_removed_file_lives_until_its_last_handle(host: Host, dir: PathBuf) {
    let (files, path) = (host.files(), dir.join("file"));
    let old = files.open(&path, OpenOptions::CREATE).await.unwrap();
    old.write_all_at(b"old", 0).unwrap();
    files.remove_file(&path).await.unwrap();
    assert_eq!(files.remove_file(&path).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(files.read(&path).await.unwrap_err().kind(), ErrorKind::NotFound);
    let new = files.open(&path, OpenOptions::CREATE_NEW).await.unwrap();
    new.write_all_at(b"new!", 0).unwrap();
    old.write_all_at(b"O", 0).unwrap();
    old.sync_all().await.unwrap();
    let mut seen = [0; 3];
    old.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(&seen, b"Old");
    assert_eq!(files.read(&path).await.unwrap(), b"new!");
}

pub async fn a_hard_link_is_a_second_name(host: Host, dir: PathBuf) {
    let (files, one, two) = (host.files(), dir.join("one"), dir.join("two"));
    files.open(&one, OpenOptions::CREATE).await.unwrap().write_all_at(b"abc", 0).unwrap();
    files.hard_link(&one, &two).await.unwrap();
    assert_eq!(files.hard_link(&one, &two).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    let missing = files.hard_link(dir.join("missing"), dir.join("three")).await;
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    files.open(&two, OpenOptions::WRITE).await.unwrap().write_all_at(b"A", 0).unwrap();
    assert_eq!(files.read(&one).await.unwrap(), b"Abc");
    files.rename(&one, &two).await.unwrap();
    assert!(files.exists(&one).await.unwrap(), "renaming one name of a file to its other name does nothing");
    files.remove_file(&one).await.unwrap();
    assert_eq!(files.read(&two).await.unwrap(), b"Abc");
}
