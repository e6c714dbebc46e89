//! The simulated machine through its public interface: lives of nodes, clocks, network, replay.

// The name that the rest of the workspace uses.
extern crate staticfire_sim as sim;

mod buggify;
mod clocks;
mod lives;
mod replay;
mod reports;
mod sockets;

use std::{
    future::Future,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use host::Host;
use sim::{
    seed::Seeds,
    stand::{self, Ended, NodeId, NodeSpec, Run, Stand, StandConfig},
};

/// Runs a supervisor under seed 7, and gives what it gave.
fn on_stand<T, S, F>(supervisor: S) -> T
where
    T: Send + std::fmt::Debug + 'static,
    S: FnOnce(Stand) -> F + Send + 'static,
    F: Future<Output = T> + 'static,
{
    let run = stand::run(StandConfig::new(Seeds::from_root(7)), Arc::new(()), supervisor);
    finished(run)
}

fn finished<T: std::fmt::Debug>(run: Run<T>) -> T {
    match run.ended {
        Ended::Finished(value) => value,
        other => panic!("the supervisor did not finish: {other:?}"),
    }
}

/// Adds the node `10.0.0.last`.
fn add(stand: &Stand, name: &str, last: u8) -> NodeId {
    let spec = NodeSpec::new(name, Ipv4Addr::new(10, 0, 0, last));
    stand.add_node(spec).expect("names and addresses of tests are unique")
}

fn address(last: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], port))
}

/// Runs a program that never ends by itself, so that what it spawned stays.
fn spawn_on<P, F>(stand: &Stand, node: NodeId, program: P)
where
    P: Fn(Host) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    stand.start(node, move |host, _stop| {
        let program = program(host);
        async move {
            program.await;
            std::future::pending().await
        }
    });
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A place where programs leave what they saw.
#[derive(Debug, Clone)]
struct Seen<T>(Arc<Mutex<Vec<T>>>);

impl<T: Clone> Seen<T> {
    fn new() -> Seen<T> {
        Seen(Arc::new(Mutex::new(Vec::new())))
    }

    fn add(&self, value: T) {
        self.0.lock().unwrap().push(value);
    }

    fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }
}

/// Adds a node with a process that does nothing, and lends its host: tests act in its name from the supervisor.
async fn boot(stand: &Stand, name: &str, last: u8) -> (NodeId, Host) {
    let node = add(stand, name, last);
    (node, process(stand, node).await)
}

/// Starts such a process, and with it a new life.
async fn process(stand: &Stand, node: NodeId) -> Host {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    spawn_on(stand, node, move |host| {
        tell.send(host).expect("the supervisor waits for it");
        async {}
    });
    told.recv().await.expect("the process starts")
}
