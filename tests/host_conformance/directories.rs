//! Directories and names.

use std::{io::ErrorKind, path::PathBuf};

use host::{
    Host,
    fs::{DirEntry, OpenOptions},
};

async fn create(host: &Host, path: PathBuf, content: &[u8]) {
    let file = host.files().open(path, OpenOptions::CREATE).await.unwrap();
    file.write_all_at(content, 0).unwrap();
}

pub async fn a_directory_comes_with_its_parents(host: Host, dir: PathBuf) {
    let files = host.files();
    let deep = dir.join("a/b/c");
    files.create_dir_all(&deep).await.unwrap();
    files.create_dir_all(&deep).await.unwrap();
    assert!(files.metadata(&deep).await.unwrap().is_dir);
    create(&host, deep.join("file"), b"x").await;
    assert_eq!(files.read(dir.join("a/./b/../b/c/file")).await.unwrap(), b"x");
    let taken = files.create_dir_all(deep.join("file")).await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    let below = files.create_dir_all(deep.join("file/below")).await.unwrap_err();
    assert_eq!(below.kind(), ErrorKind::NotADirectory);
}

pub async fn a_listing_is_sorted_and_tells_directories(host: Host, dir: PathBuf) {
    let files = host.files();
    for name in ["10", "9", "b", "a", "B"] {
        create(&host, dir.join(name), b"").await;
    }
    files.create_dir_all(dir.join("aa/inner")).await.unwrap();
    let listed = files.read_dir(&dir).await.unwrap();
    let entry = |name: &str, is_dir| DirEntry { name: name.to_owned(), is_dir };
    let expected = [("10", false), ("9", false), ("B", false), ("a", false), ("aa", true), ("b", false)];
    assert_eq!(listed, expected.map(|(name, is_dir)| entry(name, is_dir)));
    assert_eq!(files.read_dir(dir.join("aa/inner")).await.unwrap(), []);
    assert_eq!(files.read_dir(dir.join("missing")).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(files.read_dir(dir.join("a")).await.unwrap_err().kind(), ErrorKind::NotADirectory);
}

pub async fn only_an_empty_directory_can_be_removed(host: Host, dir: PathBuf) {
    let (files, inner) = (host.files(), dir.join("inner"));
    files.create_dir_all(&inner).await.unwrap();
    create(&host, inner.join("file"), b"x").await;
    assert_eq!(files.remove_dir(&inner).await.unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    assert_eq!(files.remove_file(&inner).await.unwrap_err().kind(), ErrorKind::IsADirectory);
    assert_eq!(files.remove_dir(inner.join("file")).await.unwrap_err().kind(), ErrorKind::NotADirectory);
    files.remove_file(inner.join("file")).await.unwrap();
    files.remove_dir(&inner).await.unwrap();
    assert_eq!(files.remove_dir(&inner).await.unwrap_err().kind(), ErrorKind::NotFound);
}

pub async fn a_path_through_a_file_is_an_error(host: Host, dir: PathBuf) {
    let files = host.files();
    create(&host, dir.join("file"), b"x").await;
    let through = dir.join("file/below");
    assert_eq!(files.open(&through, OpenOptions::CREATE).await.unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(files.metadata(&through).await.unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(files.remove_file(&through).await.unwrap_err().kind(), ErrorKind::NotADirectory);
    // A real machine opens a directory for reading and refuses to read it; the stand refuses to open it.
    assert_eq!(files.read(&dir).await.unwrap_err().kind(), ErrorKind::IsADirectory);
    assert_eq!(files.open(&dir, OpenOptions::WRITE).await.unwrap_err().kind(), ErrorKind::IsADirectory);
    let long = dir.join("x".repeat(256));
    assert_eq!(files.open(long, OpenOptions::CREATE).await.unwrap_err().kind(), ErrorKind::InvalidFilename);
}

pub async fn a_rename_moves_and_replaces(host: Host, dir: PathBuf) {
    let files = host.files();
    create(&host, dir.join("a"), b"new").await;
    create(&host, dir.join("b"), b"old").await;
    let old = files.open(dir.join("b"), OpenOptions::READ).await.unwrap();
    files.rename(dir.join("a"), dir.join("b")).await.unwrap();
    assert!(!files.exists(dir.join("a")).await.unwrap());
    assert_eq!(files.read(dir.join("b")).await.unwrap(), b"new");
    let mut seen = [0; 3];
    old.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(&seen, b"old", "who had the old file open goes on with it");
    files.create_dir_all(dir.join("d/inner")).await.unwrap();
    files.rename(dir.join("b"), dir.join("d/inner/b")).await.unwrap();
    files.rename(dir.join("d"), dir.join("e")).await.unwrap();
    assert_eq!(files.read(dir.join("e/inner/b")).await.unwrap(), b"new");
    files.create_dir_all(dir.join("empty")).await.unwrap();
    files.rename(dir.join("e"), dir.join("empty")).await.unwrap();
    assert_eq!(files.read(dir.join("empty/inner/b")).await.unwrap(), b"new");
    files.rename(dir.join("empty/inner/b"), dir.join("empty/inner/b")).await.unwrap();
}

pub async fn a_rename_that_makes_no_sense_is_refused(host: Host, dir: PathBuf) {
    let files = host.files();
    create(&host, dir.join("file"), b"x").await;
    files.create_dir_all(dir.join("d/inner")).await.unwrap();
    let kinds = [
        ("missing", "other", ErrorKind::NotFound),
        ("file", "missing/file", ErrorKind::NotFound),
        ("file", "d", ErrorKind::IsADirectory),
        ("d", "file", ErrorKind::NotADirectory),
        ("d", "d/inner/d", ErrorKind::InvalidInput),
    ];
    for (from, to, kind) in kinds {
        let error = files.rename(dir.join(from), dir.join(to)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{from} to {to}");
    }
    files.create_dir_all(dir.join("full/inner")).await.unwrap();
    let error = files.rename(dir.join("d"), dir.join("full")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
    assert_eq!(files.read(dir.join("file")).await.unwrap(), b"x");
}

pub async fn a_directory_can_be_flushed(host: Host, dir: PathBuf) {
    let files = host.files();
    create(&host, dir.join("file"), b"x").await;
    files.sync_dir(&dir).await.unwrap();
    assert_eq!(files.sync_dir(dir.join("missing")).await.unwrap_err().kind(), ErrorKind::NotFound);
}

pub async fn space_is_told_for_what_exists(host: Host, dir: PathBuf) {
    let files = host.files();
    let space = files.space(&dir).unwrap();
    assert!(space.available > 0 && space.used.checked_add(space.available).is_some(), "{space:?}");
    assert_eq!(files.space(dir.join("missing")).unwrap_err().kind(), ErrorKind::NotFound);
}
