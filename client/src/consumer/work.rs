//! Batches that wait for a listener.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Semaphore;

use super::{
    MessageView,
    owned_queue::{Generation, OwnedQueue},
};

/// One call of the listener that is due.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) queue: Arc<OwnedQueue>,
    /// Generation of the queue that the messages belong to.
    pub(crate) generation: Generation,
    pub(crate) messages: Vec<Arc<MessageView>>,
}

/// Batches of all queues in the order in which they came. Bounded by the cache limits of the queues.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// Leaf lock: nothing else is locked while it is held.
    waiting: Mutex<VecDeque<Work>>,
    /// One permit for each waiting batch.
    ready: Semaphore,
}

impl Backlog {
    pub(crate) fn new() -> Backlog {
        Backlog { waiting: Mutex::new(VecDeque::new()), ready: Semaphore::new(0) }
    }

    /// Cuts messages of one queue into batches, in the order of their offsets, and lets them wait.
    pub(crate) fn submit(
        &self,
        queue: &Arc<OwnedQueue>,
        generation: Generation,
        messages: &[Arc<MessageView>],
        batch_size: usize,
    ) {
        let batches = messages.chunks(batch_size);
        let count = batches.len();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.extend(batches.map(|batch| Work { queue: Arc::clone(queue), generation, messages: batch.to_vec() }));
        drop(waiting);
        self.ready.add_permits(count);
    }

    /// The batch that has waited longest. Safe to drop half-way. `None` after [`close`](Backlog::close).
    pub(crate) async fn next(&self) -> Option<Work> {
        self.ready.acquire().await.ok()?.forget();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        Some(waiting.pop_front().expect("each permit stands for a waiting batch"))
    }

    /// Hands out nothing any more.
    pub(crate) fn close(&self) {
        self.ready.close();
    }
}
