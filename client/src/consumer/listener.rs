//! What a user's code gets and answers.

use std::{future::Future, pin::Pin, sync::Arc};

use host::time::Mono;

use super::MessageView;
use crate::queue::MessageQueue;

/// A user's code that consumes messages of any queues side by side.
///
/// Closures that return a future are listeners too. A listener that panics, or runs into the consumer's time limit, has
/// the effect of [`ConcurrentOutcome::Later`].
pub trait ConcurrentListener: Send + Sync + 'static {
    /// Consumes a batch; it is never empty and all its messages come from one queue, in the order of their offsets.
    fn consume(&self, batch: ConcurrentBatch) -> impl Future<Output = ConcurrentOutcome> + Send;
}

impl<F, Fut> ConcurrentListener for F
where
    F: Fn(ConcurrentBatch) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ConcurrentOutcome> + Send,
{
    fn consume(&self, batch: ConcurrentBatch) -> impl Future<Output = ConcurrentOutcome> + Send {
        self(batch)
    }
}

/// Messages for one call of a listener.
#[derive(Debug, Clone)]
pub struct ConcurrentBatch {
    /// The messages, from 1 to the batch size of the consumer.
    pub messages: Vec<Arc<MessageView>>,
    /// The queue they were pulled from; for a retried message that is a queue of the group's retry topic.
    pub queue: MessageQueue,
    /// When they will be taken for stuck: from then on they may be delivered again while this call still runs.
    pub deadline: Mono,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConcurrentOutcome {
    /// All messages are finished.
    Success,
    /// The first so many messages are finished, the others come again later.
    AckThrough(usize),
    /// All messages come again after a while; after too many times they go to the group's dead-letter topic.
    Later {
        /// When.
        delay: RetryDelay,
    },
}

/// When a message comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetryDelay {
    /// The broker's schedule: 10 s, 30 s, 1 min, … up to 2 h, by the number of retries.
    #[default]
    Schedule,
    /// A fixed delay level, from 1 (1 s) to 18 (2 h).
    Level(u8),
    /// Never: straight to the dead-letter topic.
    DeadLetter,
}

impl RetryDelay {
    /// The number that the wire uses.
    pub(crate) fn level(self) -> i32 {
        match self {
            RetryDelay::Schedule => 0,
            RetryDelay::Level(level) => i32::from(level),
            RetryDelay::DeadLetter => -1,
        }
    }
}

/// A listener whose type was forgotten.
pub(crate) type AnyListener =
    Arc<dyn Fn(ConcurrentBatch) -> Pin<Box<dyn Future<Output = ConcurrentOutcome> + Send>> + Send + Sync>;

pub(crate) fn erase<L: ConcurrentListener>(listener: L) -> AnyListener {
    let listener = Arc::new(listener);
    Arc::new(move |batch| {
        let listener = Arc::clone(&listener);
        Box::pin(async move { listener.consume(batch).await })
    })
}

/// Runs a listener; `None` if it panicked. This is the only code of the project that goes on after a panic: what a
/// user's listener does must not stop the node.
pub(crate) async fn run(listener: &AnyListener, batch: ConcurrentBatch) -> Option<ConcurrentOutcome> {
    let call = std::panic::AssertUnwindSafe(|| listener(batch));
    let mut future = std::panic::catch_unwind(call).ok()?;
    std::future::poll_fn(move |cx| {
        let poll = std::panic::AssertUnwindSafe(|| future.as_mut().poll(cx));
        match std::panic::catch_unwind(poll) {
            Ok(std::task::Poll::Pending) => std::task::Poll::Pending,
            Ok(std::task::Poll::Ready(outcome)) => std::task::Poll::Ready(Some(outcome)),
            Err(_) => std::task::Poll::Ready(None),
        }
    })
    .await
}
