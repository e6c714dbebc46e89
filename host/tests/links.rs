//! What a machine with symbolic links does with them. The stand has none.

#![allow(clippy::disallowed_methods, reason = "the test stands outside every host")]

use std::{fs, io::ErrorKind, os::unix::fs::symlink};

use staticfire_host::{
    fs::{DirEntry, OpenOptions},
    real,
};

#[test]
fn a_link_stands_for_what_it_points_to() {
    let dir = tempfile::tempdir().unwrap();
    let (path, elsewhere) = (dir.path().join("here"), dir.path().join("elsewhere"));
    fs::create_dir(&path).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("file"), b"abc").unwrap();
    symlink(&elsewhere, path.join("dir")).unwrap();
    symlink("dir/file", path.join("file")).unwrap();
    real::run("test", |host| async move {
        let files = host.files();
        let entry = |name: &str, is_dir| DirEntry { name: name.to_owned(), is_dir };
        assert_eq!(files.read_dir(&path).await.unwrap(), [entry("dir", true), entry("file", false)]);
        assert_eq!(files.read_dir(path.join("dir")).await.unwrap(), [entry("file", false)]);
        assert!(files.metadata(path.join("dir")).await.unwrap().is_dir);
        assert_eq!(files.metadata(path.join("file")).await.unwrap().len, 3);
        files.create_dir_all(path.join("dir")).await.unwrap();
        files.create_dir_all(path.join("dir/new")).await.unwrap();
        files.sync_dir(path.join("dir")).await.unwrap();
        assert!(elsewhere.join("new").is_dir());
        files.remove_file(path.join("dir/file")).await.unwrap();
        assert!(!elsewhere.join("file").exists());
        files.remove_file(path.join("dir")).await.unwrap();
        assert!(elsewhere.is_dir(), "the link goes, not what it points to");
    })
    .unwrap();
}

#[test]
fn a_link_to_nothing_is_named_with_what_it_points_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let link = path.join("link");
    symlink("/not/mounted", &link).unwrap();
    symlink("loop", path.join("loop")).unwrap();
    real::run("test", |host| async move {
        let files = host.files();
        let expected = format!("{} is a symbolic link to /not/mounted, which is not there", link.display());
        let errors = [
            files.metadata(&link).await.err(),
            files.read_dir(&link).await.err(),
            files.open(&link, OpenOptions::READ).await.err(),
            files.create_dir_all(&link).await.err(),
            files.create_dir_all(link.join("below")).await.err(),
        ];
        for error in errors.map(Option::unwrap) {
            assert_eq!((error.kind(), error.to_string()), (ErrorKind::NotFound, expected.clone()));
        }
        let listed = files.read_dir(&path).await.unwrap();
        assert_eq!(listed.iter().map(|entry| entry.is_dir).collect::<Vec<_>>(), [false, false]);
        let gone = files.metadata(path.join("gone")).await.unwrap_err();
        assert!(gone.kind() == ErrorKind::NotFound && !gone.to_string().contains("link"), "{gone}");
        // A link in a circle is not there either, which the system says itself.
        let circle = files.metadata(path.join("loop")).await.unwrap_err();
        assert_ne!(circle.kind(), ErrorKind::NotFound);
    })
    .unwrap();
}
