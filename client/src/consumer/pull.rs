//! The pull loop of one owned queue.
//!
//! At most one pull of a queue is on its way. The broker holds it until there is something to say, so a loop without
//! pauses is no busy loop. Source: `spec/client.md` 5.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use message::QueueOffset;
use remoting::ResponseCode;
use tracing::{debug, error, warn};

use super::{
    Context, MessageView,
    owned_queue::{NextPull, OwnedQueue},
    records::{Records, Unreadable},
};
use crate::{
    core::{MASTER, PullCall, PullOutcome},
    error::ClientError,
    queue::Place,
};

/// From taking a queue over to its first pull, so that the heartbeat with the new subscription comes first.
const FIRST_PULL_DELAY: Duration = Duration::from_millis(500);

/// After an answer that asks for patience (flow control).
const FLOW_CONTROL_DELAY: Duration = Duration::from_millis(20);

/// An answer with nothing new that came faster was not held: the next pull waits for so long.
const NOT_HELD_DELAY: Duration = Duration::from_millis(100);

/// A pull that waits for room or for the consumer to go on counts as alive and looks again after this.
const WAIT_STEP: Duration = Duration::from_secs(10);

/// For the commit of a corrected position.
const CORRECTION_COMMIT_TIMEOUT: Duration = Duration::from_secs(3);

/// So many pulls in a row must begin with a message that cannot be read before it is passed over.
const READ_TRIES: u32 = 3;

/// How much later than usual a pull may begin on a stand.
const LATE: Duration = Duration::from_millis(200);

/// Pulls a queue until it is dropped.
pub(crate) async fn run(context: Arc<Context>, owned: Arc<OwnedQueue>) {
    let host = context.core.host();
    host::select! {
        () = owned.until_dropped() => return,
        () = host.sleep(FIRST_PULL_DELAY) => {}
    }
    let mut unreadable = 0;
    while let Some(next) = owned.next_pull() {
        owned.pulled(host.now());
        let pause = host::select! {
            () = owned.until_ended(next.generation) => Duration::ZERO,
            pause = turn(&context, &owned, next, &mut unreadable) => pause,
        };
        if !pause.is_zero() {
            host::select! {
                () = owned.until_dropped() => return,
                () = host.sleep(pause) => {}
            }
        }
    }
}

/// One turn of the loop; gives back the pause before the next. Dropped half-way when the generation ends: then its
/// answer would mean nothing. `unreadable` counts the turns in a row that found nothing that can be read.
async fn turn(context: &Arc<Context>, owned: &Arc<OwnedQueue>, next: NextPull, unreadable: &mut u32) -> Duration {
    let Context { core, member, .. } = &**context;
    let retry = core.timing().pull_retry;
    if !ready(context, owned).await {
        return Duration::ZERO;
    }
    if host::buggify!("client.pulled-late") {
        core.host().sleep(LATE).await;
    }
    if next.commit_first {
        return commit_corrected(context, owned, next).await;
    }
    let Some(subscription) = member.subscription(&owned.queue.topic) else { return retry };
    let call = PullCall {
        group: &member.settings.group,
        queue: &owned.queue,
        at: next.at,
        max_messages: member.settings.pull_batch,
        commit: owned.offset_to_carry(),
        subscription_version: subscription.version,
        broker_id: owned.pull_from.load(Ordering::Relaxed),
    };
    let asked_at = core.host().now();
    host::point!("client.pulling", next.at.offset.0, owned.queue.mark());
    match core.pull(call).await {
        Ok(answer) => {
            owned.heard(answer.suggested_broker, answer.max_offset);
            match answer.outcome {
                PullOutcome::Found(bytes) => {
                    let found = Records::read(bytes, &owned.queue, &subscription.filter);
                    take_found(context, owned, (next, answer.next), found, unreadable)
                }
                PullOutcome::NothingNew => {
                    owned.caught_up(next.generation, answer.next);
                    let was_held = core.host().now().since(asked_at) >= NOT_HELD_DELAY;
                    let has_moved = answer.next.offset != next.at.offset;
                    if was_held || has_moved { Duration::ZERO } else { NOT_HELD_DELAY }
                }
                PullOutcome::OffsetIllegal => {
                    if let Some(to) = owned.correct(next.generation, answer.next) {
                        warn!(queue = %owned.queue, from = ?next.at, told = ?answer.next, ?to, "position corrected");
                        host::point!("client.position-corrected", to.0);
                    }
                    // The broker refuses the very position that it proposed: asking at once again would not end.
                    if answer.next.offset == next.at.offset { retry } else { Duration::ZERO }
                }
            }
        }
        Err(ClientError::Broker { code: ResponseCode::FLOW_CONTROL, .. }) => FLOW_CONTROL_DELAY,
        Err(error) => {
            debug!(queue = %owned.queue, %error, "pull failed");
            // The broker that was suggested may be one that nobody can read, or may be gone.
            owned.pull_from.store(MASTER, Ordering::Relaxed);
            retry
        }
    }
}

/// Commits a corrected position, before anything is pulled from it; gives back the pause before the next turn.
async fn commit_corrected(context: &Context, owned: &OwnedQueue, next: NextPull) -> Duration {
    let Context { core, member, .. } = context;
    match core.commit_offset(&member.settings.group, &owned.queue, next.at, CORRECTION_COMMIT_TIMEOUT).await {
        Ok(()) => {
            owned.committed(next.generation, next.at.offset);
            Duration::ZERO
        }
        Err(ClientError::Broker { code: ResponseCode::PULL_OFFSET_MOVED, .. }) => {
            owned.pull_uncommitted(next.generation);
            Duration::ZERO
        }
        Err(error) => {
            warn!(queue = %owned.queue, %error, "corrected position not committed");
            core.timing().pull_retry
        }
    }
}

/// Waits until the consumer is not paused and the cache has room. False: look again, to show that the loop is alive.
async fn ready(context: &Context, owned: &OwnedQueue) -> bool {
    let Context { core, member, .. } = context;
    let waiting = async {
        member.until_resumed().await;
        loop {
            let room = owned.room.notified();
            if owned.has_room(&member.settings.limits) {
                return;
            }
            room.await;
        }
    };
    core.host().timeout(WAIT_STEP, waiting).await.is_ok()
}

/// Takes in what an answer brought, up to what cannot be read of it; gives back the pause before the next turn. The
/// answer covers the queue from where it was asked to `end`.
///
/// A message that cannot be read is asked for again, of the master, and in the end passed over: a queue that stands
/// still for ever helps nobody, and those behind it can be read. The reference delivers such a body as it is, and
/// passes over everything behind a record that is none.
fn take_found(
    context: &Context,
    owned: &Arc<OwnedQueue>,
    (next, end): (NextPull, Place),
    found: Records,
    unreadable: &mut u32,
) -> Duration {
    let Some(Unreadable { offset, why }) = found.unreadable else {
        *unreadable = 0;
        take_in(context, owned, next, found.messages, end);
        return Duration::ZERO;
    };
    if let Some(offset) = found.read_to.filter(|&offset| offset > next.at.offset) {
        *unreadable = 0;
        take_in(context, owned, next, found.messages, Place { offset, ..end });
        return Duration::ZERO;
    }
    *unreadable += 1;
    if *unreadable < READ_TRIES {
        warn!(queue = %owned.queue, from = next.at.offset.0, %why, "a message cannot be read; asked for again");
        owned.pull_from.store(MASTER, Ordering::Relaxed);
        return context.core.timing().pull_retry;
    }
    // What the broker says of it cannot be wholly wrong: it lies in the part that was asked for.
    let offset = offset.filter(|offset| (next.at.offset..end.offset).contains(offset)).unwrap_or(next.at.offset);
    error!(queue = %owned.queue, offset = offset.0, %why, "a message cannot be read, and is passed over");
    host::point!("client.message-unreadable", offset.0);
    owned.caught_up(next.generation, Place { offset: QueueOffset(offset.0 + 1), ..end });
    Duration::ZERO
}

/// Hands pulled messages to the listener.
fn take_in(
    context: &Context,
    owned: &Arc<OwnedQueue>,
    next: NextPull,
    mut messages: Vec<Arc<MessageView>>,
    mut go_on_at: Place,
) {
    let member = &context.member;
    if messages.len() == 2 && host::mutant!("pull-passes-one-over") {
        messages.pop();
    }
    if messages.len() == 3 && host::mutant!("pull-goes-back") {
        go_on_at.offset = QueueOffset(next.at.offset.0.saturating_sub(1));
    }
    let fresh = owned.put(next.generation, messages, go_on_at);
    if host::mutant!("commit-before-processing") {
        owned.raise_early(go_on_at.offset);
    }
    if !fresh.is_empty() {
        member.backlog.submit(owned, next.generation, &fresh, member.settings.batch_size.get());
    }
}
