//! Calling the listener, and what follows from its answer.
//!
//! A fixed number of workers takes batches in the order in which they came. Source: `spec/client.md` 6.

use std::{convert::Infallible, sync::Arc, time::Duration};

use host::time::Mono;
use message::QueueOffset;
use tokio::sync::{mpsc, watch};
use tracing::{debug, warn};

use super::{
    Context, MessageView,
    listener::{self, ConcurrentBatch, ConcurrentOutcome, RetryDelay},
    work::Work,
};

/// Until a message that could not be sent back is consumed once more here.
const LOCAL_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Level of a message that the listener is stuck with: 10 s.
const STUCK_LEVEL: RetryDelay = RetryDelay::Level(3);

/// Looks of the cleaner at one queue in one round.
const STUCK_PER_ROUND: usize = 16;

/// One worker: takes a batch, calls the listener, draws the consequences. Ends when `stopping` turns true; `_running`
/// tells by its drop that the last batch of this worker is over.
pub(crate) async fn work(
    context: Arc<Context>,
    mut stopping: watch::Receiver<bool>,
    _running: mpsc::Sender<Infallible>,
) {
    loop {
        let work = host::select! {
            // An error means that the consumer is gone.
            _ = stopping.wait_for(|stopping| *stopping) => return,
            work = context.member.backlog.next() => work,
        };
        match work {
            Some(work) => consume(&context, work).await,
            None => return,
        }
    }
}

async fn consume(context: &Arc<Context>, work: Work) {
    let Context { core, member, .. } = &**context;
    let Work { queue, generation, messages } = work;
    let now = core.host().now();
    let messages = queue.start(generation, messages, now);
    if messages.is_empty() {
        return;
    }
    let batch = ConcurrentBatch {
        messages: messages.clone(),
        queue: queue.queue.clone(),
        deadline: now + member.settings.consume_timeout,
    };
    let outcome = listener::run(&member.listener, batch).await;
    if !queue.is_current(generation) {
        debug!(queue = %queue.queue, "result thrown away: the queue has another owner or another position");
        return;
    }
    let (good, delay) = match outcome {
        Some(ConcurrentOutcome::Success) => (messages.len(), RetryDelay::Schedule),
        Some(ConcurrentOutcome::AckThrough(count)) => (count.min(messages.len()), RetryDelay::Schedule),
        Some(ConcurrentOutcome::Later { delay }) => (0, delay),
        None => {
            warn!(queue = %queue.queue, "the listener panicked");
            (0, RetryDelay::Schedule)
        }
    };
    let (done, failed) = messages.split_at(good);
    let mut finished: Vec<QueueOffset> = done.iter().map(|message| message.queue_offset()).collect();
    let mut kept = Vec::new();
    for message in failed {
        // The cleaner may have sent it back already.
        if !queue.holds(generation, message.queue_offset()) {
            continue;
        }
        if send_back(context, message, delay).await {
            finished.push(message.queue_offset());
        } else {
            kept.push(Arc::new(message.retried_here()));
        }
    }
    queue.finish(generation, &finished, core.host().wall_ms());
    if !kept.is_empty() {
        retry_here(context, Work { queue, generation, messages: kept });
    }
}

/// Lets the broker deliver a message again later; if it refuses, sends a copy to the retry topic. False if neither
/// worked, so that the message must be kept. Source: `spec/client.md` 6.1.
async fn send_back(context: &Context, message: &MessageView, delay: RetryDelay) -> bool {
    let Context { core, member, .. } = context;
    let settings = &member.settings;
    let max_reconsume_times = settings.max_reconsume_times;
    let asked = core.send_back(&settings.group, message, delay, max_reconsume_times).await;
    let Err(error) = asked else { return true };
    debug!(queue = %message.queue(), offset = ?message.queue_offset(), %error, "not sent back, sending a copy");
    match core.send_retry_copy(&settings.retry_topic, message, max_reconsume_times).await {
        Ok(()) => true,
        Err(error) => {
            warn!(queue = %message.queue(), offset = ?message.queue_offset(), %error, "cannot be retried by a broker");
            false
        }
    }
}

/// Consumes messages once more here after a pause, if they are still held then.
fn retry_here(context: &Context, work: Work) {
    let Work { queue, generation, mut messages } = work;
    messages.retain(|message| queue.again(generation, message));
    let due = context.core.host().now() + LOCAL_RETRY_DELAY;
    // Without a receiver the consumer is shutting down: the messages come again to their next owner.
    let _ = context.retries.send((due, Work { queue, generation, messages }));
}

/// Lets batches that wait for a local retry through when they are due. All wait equally long, so the first is the next.
pub(crate) async fn run_retries(context: Arc<Context>, mut retries: mpsc::UnboundedReceiver<(Mono, Work)>) {
    let Context { core, member, .. } = &*context;
    while let Some((due, work)) = retries.recv().await {
        core.host().sleep_until(due).await;
        member.backlog.submit(&work.queue, work.generation, &work.messages, member.settings.batch_size.get());
    }
}

/// Sends back what listeners are stuck with, once in each consume timeout.
pub(crate) async fn clean_stuck(context: Arc<Context>) {
    let Context { core, member, .. } = &*context;
    let timeout = member.settings.consume_timeout;
    loop {
        core.host().sleep(timeout).await;
        for queue in member.queues() {
            for _ in 0..STUCK_PER_ROUND {
                let Some((generation, message)) = queue.overdue(core.host().now(), timeout) else { break };
                warn!(queue = %queue.queue, offset = ?message.queue_offset(), "the listener is stuck with a message");
                if !send_back(&context, &message, STUCK_LEVEL).await {
                    break;
                }
                queue.finish(generation, &[message.queue_offset()], core.host().wall_ms());
            }
        }
    }
}
