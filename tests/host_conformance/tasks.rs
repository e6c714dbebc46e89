//! Tasks. That a panic stops the node is tested for each machine by itself, in `current.rs` and `stand.rs`.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use host::{
    Host,
    task::{JoinError, TaskGroup},
};

/// Counts its drops.
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

async fn forever(counted: Counted) {
    std::future::pending::<()>().await;
    drop(counted);
}

pub async fn a_task_hands_over_its_result(host: Host, _dir: PathBuf) {
    let inner = host.clone();
    let task = host.spawn("task", async move {
        inner.sleep(Duration::from_millis(1)).await;
        "result".to_owned()
    });
    assert_eq!(task.await.unwrap(), "result");
    let nested = host.clone();
    let task = host.spawn("outer", async move { nested.spawn("inner", async { 5 }).await.unwrap() + 1 });
    assert_eq!(task.await.unwrap(), 6);
}

pub async fn an_aborted_task_is_dropped_and_reports_it(host: Host, _dir: PathBuf) {
    let drops = Arc::new(AtomicU32::new(0));
    let task = host.spawn("task", forever(Counted(Arc::clone(&drops))));
    let handle = task.abort_handle();
    host.sleep(Duration::from_millis(1)).await;
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    handle.abort();
    assert_eq!(task.await, Err(JoinError::Cancelled));
    assert_eq!(drops.load(Ordering::SeqCst), 1, "its future is gone when this is known");
    handle.abort();
    let ended = host.spawn("ended", async { 1 });
    host.sleep(Duration::from_millis(5)).await;
    ended.abort();
    assert_eq!(ended.await, Ok(1), "it had ended before");
}

pub async fn a_task_goes_on_without_its_handle(host: Host, _dir: PathBuf) {
    let (tell, told) = tokio::sync::oneshot::channel();
    let inner = host.clone();
    drop(host.spawn("task", async move {
        inner.sleep(Duration::from_millis(1)).await;
        tell.send("done").unwrap();
    }));
    assert_eq!(told.await.unwrap(), "done");
}

pub async fn a_group_waits_for_all_its_tasks_to_be_gone(host: Host, _dir: PathBuf) {
    let drops = Arc::new(AtomicU32::new(0));
    let group = TaskGroup::new(&host);
    for _ in 0..10 {
        group.spawn("short", async {});
        group.spawn("forever", forever(Counted(Arc::clone(&drops))));
    }
    host.sleep(Duration::from_millis(1)).await;
    group.shutdown().await;
    assert_eq!(drops.load(Ordering::SeqCst), 10);
    group.shutdown().await;
}

pub async fn a_dropped_group_aborts_its_tasks(host: Host, _dir: PathBuf) {
    let drops = Arc::new(AtomicU32::new(0));
    let group = TaskGroup::new(&host);
    group.spawn("forever", forever(Counted(Arc::clone(&drops))));
    drop(group);
    while drops.load(Ordering::SeqCst) == 0 {
        host.sleep(Duration::from_millis(1)).await;
    }
}

pub async fn a_closed_group_starts_nothing(host: Host, _dir: PathBuf) {
    let drops = Arc::new(AtomicU32::new(0));
    let group = TaskGroup::new(&host);
    group.shutdown().await;
    group.spawn("late", forever(Counted(Arc::clone(&drops))));
    assert_eq!(drops.load(Ordering::SeqCst), 1, "its future was dropped at once");
}
