//! Where `Host::current()` may be asked. The places that need kills and other nodes are in `stand.rs`.

use std::{
    panic::catch_unwind,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use host::{Host, real::RunError};

/// Writes down whose host is current when it is dropped.
pub struct Witness(pub Arc<Mutex<Vec<(String, u32)>>>);

impl Drop for Witness {
    fn drop(&mut self) {
        let seen =
            Host::try_current().map_or(("nobody".to_owned(), 0), |host| (host.node().to_owned(), host.incarnation()));
        self.0.lock().unwrap().push(seen);
    }
}

pub async fn a_task_and_its_children_find_their_host(host: Host, _dir: PathBuf) {
    let mine = host.node().to_owned();
    assert_eq!(Host::current().node(), mine);
    assert_eq!(Host::current().incarnation(), 1);
    let expected = mine.clone();
    let nested = host.spawn("outer", async move {
        assert_eq!(Host::current().node(), expected);
        Host::current().spawn("inner", async { Host::current().node().to_owned() }).await.unwrap()
    });
    assert_eq!(nested.await.unwrap(), mine);
    host.sleep(Duration::from_millis(1)).await;
    assert_eq!(Host::current().node(), mine, "also after a timer");
}

pub async fn a_future_is_dropped_inside_its_host(host: Host, _dir: PathBuf) {
    let drops = Arc::new(Mutex::new(Vec::new()));
    for aborted in [false, true] {
        let witness = Witness(Arc::clone(&drops));
        let task = host.spawn("task", async move {
            let _witness = witness;
            if aborted {
                std::future::pending::<()>().await;
            }
        });
        if aborted {
            task.abort();
        }
        let _ = task.await;
    }
    let mine = (host.node().to_owned(), 1);
    assert_eq!(*drops.lock().unwrap(), [mine.clone(), mine]);
}

pub async fn a_scope_is_left_again(host: Host, _dir: PathBuf) {
    let outside = {
        let host = host.clone();
        async move { host.node().len() }
    };
    assert_eq!(host.scope(outside).await, host.node().len());
    let before = Host::current().node().to_owned();
    drop(host.enter());
    assert_eq!(Host::current().node(), before);
}

#[test]
fn outside_a_node_there_is_no_host() {
    assert!(Host::try_current().is_none());
    let panic = catch_unwind(Host::current).unwrap_err();
    let message = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    assert!(message.unwrap().contains("outside a node"), "{message:?}");
}

#[test]
fn a_panic_stops_the_real_node() {
    let result = host::real::run("real", |host| async move {
        let task = host.spawn("faulty", async { panic!("by design") });
        let _: Result<(), _> = task.await;
        std::future::pending::<()>().await;
    });
    match result {
        Err(RunError::Panicked { task, message }) => assert_eq!((task, &*message), ("faulty", "by design")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn tasks_left_behind_are_dropped_before_a_real_run_ends() {
    let drops = Arc::new(Mutex::new(Vec::new()));
    let witness = Witness(Arc::clone(&drops));
    host::real::run("real", |host| async move {
        host.spawn("left behind", async move {
            let _witness = witness;
            std::future::pending::<()>().await;
        });
        host.sleep(Duration::from_millis(5)).await;
    })
    .unwrap();
    assert_eq!(*drops.lock().unwrap(), [("real".to_owned(), 1)]);
}
