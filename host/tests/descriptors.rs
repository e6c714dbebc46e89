//! A process that has too many files open. This is the only test of its process.

use std::{fs::File, io::ErrorKind, time::Duration};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use staticfire_host::{fs::OpenOptions, real};

#[test]
fn a_directory_is_flushed_when_files_can_be_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let before = getrlimit(Resource::Nofile);
    let low = Rlimit { current: Some(64), maximum: before.maximum.map(|maximum| maximum.min(256)) };
    setrlimit(Resource::Nofile, low).unwrap();
    real::run("test", |host| async move {
        assert_eq!(host.open_files_max(), low.maximum, "the soft limit is raised to the hard one");
        let files = host.files();
        files.sync_dir(&path).await.unwrap();
        // The runtime has its threads and its own files by now.
        let mut taken: Vec<File> = std::iter::from_fn(|| File::open(&path).ok()).collect();
        assert!(!taken.is_empty());
        assert!(files.open(path.join("file"), OpenOptions::CREATE).await.is_err());
        let mut flushed = std::pin::pin!(files.sync_dir(&path));
        assert!(host.timeout(Duration::from_millis(350), &mut flushed).await.is_err(), "it waits");
        taken.pop();
        flushed.await.unwrap();
        drop(taken);
        // An error that waiting does not mend is told at once.
        assert_eq!(files.sync_dir(path.join("missing")).await.unwrap_err().kind(), ErrorKind::NotFound);
    })
    .unwrap();
}
