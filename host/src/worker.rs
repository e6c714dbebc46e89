//! A background task that stops when it is asked to, at a place of its own choice.

use std::future::Future;

use tokio::sync::watch;

use crate::{Host, task::JoinHandle};

/// Aborts its task when it is dropped without having been stopped, as a crash does.
#[derive(Debug)]
pub struct Worker {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// What a task asks whether it should stop.
pub type Stop = watch::Receiver<bool>;

impl Worker {
    /// Starts a task, which is given what it asks whether it should stop.
    pub fn start<F>(host: &Host, name: &'static str, run: impl FnOnce(Stop) -> F) -> Worker
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = watch::channel(false);
        Worker { stop, task: host.spawn(name, run(stopped)) }
    }

    /// Asks the task to stop and waits until it has.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        // A panic has been reported to the machine, which is stopping the node.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits until the task should stop.
pub async fn stopped(stop: &mut Stop) {
    // An error means that the owner is gone, which is a reason to stop too.
    let _ = stop.wait_for(|&stop| stop).await;
}
