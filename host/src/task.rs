//! Tasks of a node.

use std::{
    any::Any,
    fmt,
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use crate::{Host, current, machine::TaskControl};

/// Why a task has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// It was aborted, or its node died.
    #[error("task cancelled")]
    Cancelled,
    /// It panicked; its node is stopping.
    #[error("task panicked")]
    Panicked,
}

/// Waits for a task; made by [`Host::spawn`]. Dropping it lets the task go on.
pub struct JoinHandle<T> {
    control: Arc<dyn TaskControl>,
    result: oneshot::Receiver<Result<T, JoinError>>,
}

impl<T> JoinHandle<T> {
    /// Drops the future of the task soon, unless it has ended.
    pub fn abort(&self) {
        self.control.abort();
    }

    /// A handle that only aborts.
    #[must_use]
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle { control: Arc::clone(&self.control) }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.result).poll(cx).map(|received| received.unwrap_or(Err(JoinError::Cancelled)))
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinHandle")
    }
}

/// Ends a task from outside; see [`JoinHandle::abort_handle`].
#[derive(Clone)]
pub struct AbortHandle {
    control: Arc<dyn TaskControl>,
}

impl AbortHandle {
    /// Drops the future of the task soon, unless it has ended.
    pub fn abort(&self) {
        self.control.abort();
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AbortHandle")
    }
}

/// The tasks that one part of a node owns, so that stopping it leaves none behind.
///
/// Dropping the group aborts its tasks. It does not keep results: a task that has something to say sends it.
#[derive(Debug)]
pub struct TaskGroup {
    host: Host,
    /// Leaf lock: nothing else is locked while it is held.
    tasks: Mutex<Tasks>,
}

#[derive(Debug, Default)]
struct Tasks {
    closed: bool,
    running: Vec<JoinHandle<()>>,
}

impl TaskGroup {
    /// An empty group of tasks on `host`.
    #[must_use]
    pub fn new(host: &Host) -> TaskGroup {
        TaskGroup { host: host.clone(), tasks: Mutex::new(Tasks::default()) }
    }

    /// Starts a task of the group. After [`shutdown`](TaskGroup::shutdown) began the future is dropped instead.
    pub fn spawn<F>(&self, name: &'static str, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut tasks = self.lock();
        if tasks.closed {
            return;
        }
        // Forget the ended ones now and then, so that a group with one task per connection stays small.
        if tasks.running.len() == tasks.running.capacity() {
            tasks.running.retain(|task| !task.result.is_terminated() && task.result.is_empty());
        }
        tasks.running.push(self.host.spawn(name, future));
    }

    /// Aborts all tasks and waits until the last has been dropped. Later calls find nothing to do.
    pub async fn shutdown(&self) {
        let running = {
            let mut tasks = self.lock();
            tasks.closed = true;
            std::mem::take(&mut tasks.running)
        };
        for task in &running {
            task.abort();
        }
        for task in running {
            // Cancelled is what was asked for; a panic has been reported to the machine already.
            let _ = task.await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TaskGroup {
    fn drop(&mut self) {
        for task in &self.lock().running {
            task.abort();
        }
    }
}

pub(crate) fn spawn<F>(host: &Host, name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (tell, result) = oneshot::channel();
    let task = Task { host: Some(host.clone()), name, future: Some(Box::pin(future)), tell: Some(tell) };
    let control = host.machine().spawn(name, Box::pin(task));
    JoinHandle { control: Arc::from(control), result }
}

/// Runs a task's future inside its host and turns a panic into the end of the node.
struct Task<F: Future> {
    /// `None` only while it is lent to the thread, for a poll.
    host: Option<Host>,
    name: &'static str,
    /// `None` once it ended: a finished future is dropped before its result is told.
    future: Option<Pin<Box<F>>>,
    tell: Option<oneshot::Sender<Result<F::Output, JoinError>>>,
}

impl<F: Future> Future for Task<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(future) = this.future.as_mut() else { return Poll::Ready(()) };
        let poll = || std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        let polled = current::lend(&mut this.host, poll);
        let ended = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(panic) => Err(panic),
        };
        let Some(host) = &this.host else { return Poll::Ready(()) };
        let _entered = host.enter();
        let result = ended.map_err(|panic| {
            host.machine().panicked(this.name, panic_text(&*panic));
            JoinError::Panicked
        });
        drop_quietly(host, this.name, this.future.take());
        if let Some(tell) = this.tell.take() {
            // Nobody waits for it: then nobody needs it.
            drop(tell.send(result));
        }
        Poll::Ready(())
    }
}

impl<F: Future> Drop for Task<F> {
    fn drop(&mut self) {
        let Some(host) = &self.host else { return };
        let _entered = host.enter();
        drop_quietly(host, self.name, self.future.take());
    }
}

/// Drops a future whose destructors may panic.
fn drop_quietly<F>(host: &Host, name: &'static str, future: Option<Pin<Box<F>>>) {
    if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(future))) {
        host.machine().panicked(name, panic_text(&*panic));
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "panic without a message"
    }
}
