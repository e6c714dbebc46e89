//! A process that simulates closes the real machine for itself. This is the only test of its process.

use std::io::ErrorKind;

use staticfire_host::{
    fs::OpenOptions,
    real::{self, RunError},
};

#[test]
fn a_closed_real_machine_opens_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    real::run("before", |host| async move {
        let files = host.files();
        let file = files.open(path.join("file"), OpenOptions::CREATE).await.unwrap();
        let listener = host.bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        real::forbid();
        assert_eq!(
            files.open(path.join("other"), OpenOptions::CREATE).await.unwrap_err().kind(),
            ErrorKind::Unsupported
        );
        assert_eq!(files.read_dir(&path).await.unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(files.space(&path).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(file.sync_all().await.unwrap_err().kind(), ErrorKind::Unsupported);
        let local = listener.local_addr().unwrap();
        assert_eq!(host.connect(local).await.unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(host.bind("127.0.0.1:0".parse().unwrap()).await.unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(host.resolve("localhost:80").await.unwrap_err().kind(), ErrorKind::Unsupported);
    })
    .unwrap();
    assert!(!dir.path().join("other").exists());
    let refused = real::run("after", |_| async {});
    assert!(matches!(refused, Err(RunError::Start(error)) if error.kind() == ErrorKind::Unsupported));
}
