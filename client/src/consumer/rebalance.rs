//! Which queues this member consumes, round by round.
//!
//! A round asks one broker for the members of the group, computes the own share of each topic, gives away what is not
//! in it and takes over what is new. Source: `spec/client.md` 8.

use std::{collections::BTreeSet, convert::Infallible, sync::Arc, time::Duration};

use futures_util::future::join_all;
use host::{task::TaskGroup, time::Mono};
use tokio::sync::{oneshot, watch};
use tracing::{debug, warn};

use super::{
    Context, StartFrom,
    allocation::{AllocationStrategy, sort_members},
    owned_queue::OwnedQueue,
    pull,
};
use crate::{
    error::ClientError,
    queue::{MessageQueue, Place},
};

/// A queue that was not pulled for so long is given away and taken over again.
const PULL_IDLE_LIMIT: Duration = Duration::from_secs(120);

/// For the commit of a queue that is given away.
const HANDOVER_COMMIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a list of members cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// There are no queues yet.
    NoQueues,
    /// The own id is missing: the broker has not heard of this member yet.
    NotListed,
}

/// The queues that are this member's. Both lists are sorted here, as every member of the group must do it.
pub(crate) fn share(
    strategy: &dyn AllocationStrategy,
    own_id: &str,
    mut queues: Vec<MessageQueue>,
    mut members: Vec<String>,
) -> Result<BTreeSet<MessageQueue>, Unusable> {
    if queues.is_empty() {
        return Err(Unusable::NoQueues);
    }
    queues.sort();
    sort_members(&mut members);
    let own = members.iter().position(|member| member == own_id).ok_or(Unusable::NotListed)?;
    Ok(strategy.allocate(&queues, members.len(), own).into_iter().collect())
}

/// Rounds until `leaving` turns true: after the period, at once when woken, but never closer than the gap. A round that
/// has begun is finished, so that what it gives away is committed. `_running` tells of the end by its drop.
pub(crate) async fn run(
    context: Arc<Context>,
    pulls: Arc<TaskGroup>,
    mut leaving: watch::Receiver<bool>,
    _running: oneshot::Sender<Infallible>,
) {
    let timing = context.core.timing();
    let host = context.core.host();
    loop {
        let began = host.now();
        let balanced = round(&context, &pulls).await;
        host::point!("client.rebalanced", context.member.queues().len());
        let is_early = host::buggify!("client.rebalanced-early");
        let pause = if balanced && !is_early { timing.rebalance } else { timing.rebalance_gap };
        let due = async {
            host::select! {
                () = context.member.rebalance_soon.notified() => {}
                () = host.sleep(pause) => {}
            }
            host.sleep_until(began + timing.rebalance_gap).await;
        };
        host::select! {
            // An error means that the consumer is gone.
            _ = leaving.wait_for(|leaving| *leaving) => return,
            () = due => {}
        }
    }
}

/// One round over all topics. True if the own queues are what they should be.
async fn round(context: &Arc<Context>, pulls: &TaskGroup) -> bool {
    host::gate!("client.rebalancing").await;
    let mut balanced = true;
    let subscriptions = context.member.subscriptions();
    for topic in context.member.owned_topics() {
        if !subscriptions.contains_key(&topic) {
            give_away(context, context.member.queues_of(&topic)).await;
        }
    }
    for topic in subscriptions.keys() {
        match balance_topic(context, pulls, topic).await {
            Ok(topic_balanced) => balanced &= topic_balanced,
            Err(error) => {
                debug!(%topic, %error, "rebalance put off");
                // The route or the members are not known now: everything stays as it is, and soon there is another
                // look. Only the retry topic may well be missing for good.
                balanced &= *topic == context.member.settings.retry_topic;
            }
        }
    }
    balanced
}

async fn balance_topic(context: &Arc<Context>, pulls: &TaskGroup, topic: &Arc<str>) -> Result<bool, ClientError> {
    let Context { core, member, .. } = &**context;
    let queues = core.subscribe_set(topic).await?;
    let (broker, members) = core.members(&member.settings.group, topic).await?;
    let mine = match share(&*member.settings.strategy, core.id(), queues, members) {
        Ok(mine) => mine,
        Err(Unusable::NoQueues) => return Ok(true),
        Err(Unusable::NotListed) => {
            warn!(%topic, %broker, "this member is not on the broker's list of the group");
            core.heartbeat_soon();
            return Ok(false);
        }
    };
    let now = core.host().now();
    let gone: Vec<_> = member.queues_of(topic).into_iter().filter(|owned| is_gone(owned, &mine, now)).collect();
    let mut changed = !gone.is_empty();
    give_away(context, gone).await;

    let owned: BTreeSet<MessageQueue> = member.queues_of(topic).iter().map(|owned| owned.queue.clone()).collect();
    let taken = join_all(mine.difference(&owned).map(|queue| take_over(context, pulls, queue))).await;
    let mut balanced = true;
    for (queue, result) in mine.difference(&owned).zip(taken) {
        if let Err(error) = result {
            balanced = false;
            warn!(%queue, %error, "queue not taken over in this round");
        } else {
            changed = true;
        }
    }
    if changed {
        member.raise_version(topic, core.host().wall_ms());
        core.heartbeat_soon();
    }
    Ok(balanced)
}

fn is_gone(owned: &OwnedQueue, mine: &BTreeSet<MessageQueue>, now: Mono) -> bool {
    let idle = now.since(owned.last_pull());
    if idle > PULL_IDLE_LIMIT {
        warn!(queue = %owned.queue, ?idle, "queue was not pulled");
    }
    idle > PULL_IDLE_LIMIT || !mine.contains(&owned.queue)
}

/// Drops queues and commits how far each was consumed; gives back for how many that worked. A commit that fails costs
/// duplicates elsewhere, nothing more.
pub(crate) async fn give_away(context: &Context, queues: Vec<Arc<OwnedQueue>>) -> usize {
    let commits = queues.into_iter().map(|owned| async move {
        let Some(place) = context.member.remove_queue(&owned) else { return false };
        let group = &context.member.settings.group;
        let committed = context.core.commit_offset(group, &owned.queue, place, HANDOVER_COMMIT_TIMEOUT).await;
        if let Err(error) = &committed {
            warn!(queue = %owned.queue, %error, "offset not committed at the hand-over");
        }
        committed.is_ok()
    });
    join_all(commits).await.into_iter().filter(|committed| *committed).count()
}

/// Finds where a new queue starts and begins to pull it.
async fn take_over(context: &Arc<Context>, pulls: &TaskGroup, queue: &MessageQueue) -> Result<(), ClientError> {
    let Context { core, member, .. } = &**context;
    let stored = core.query_offset(&member.settings.group, queue).await?;
    let offset = match stored.offset {
        Some(stored) => stored,
        // Found after the epoch was told: if the log is cut in between, the offset counts as one of the log before.
        None => first_position(context, queue).await?,
    };
    let at = Place { offset, epoch: stored.epoch };
    debug!(%queue, ?at, ?stored, "queue taken over");
    let owned = Arc::new(OwnedQueue::new(queue.clone(), at, stored.offset, core.host().now()));
    member.add_queue(Arc::clone(&owned));
    pulls.spawn("client.pull", pull::run(Arc::clone(context), owned));
    Ok(())
}

/// Where a queue starts that the group has never consumed.
async fn first_position(context: &Context, queue: &MessageQueue) -> Result<message::QueueOffset, ClientError> {
    let settings = &context.member.settings;
    let is_retry = queue.topic == settings.retry_topic;
    match settings.start_from {
        StartFrom::Earliest => Ok(message::QueueOffset(0)),
        StartFrom::Latest if is_retry => Ok(message::QueueOffset(0)),
        StartFrom::Latest => context.core.max_offset(queue).await,
        StartFrom::Timestamp(_) if is_retry => context.core.max_offset(queue).await,
        StartFrom::Timestamp(wall_ms) => context.core.search_offset(queue, wall_ms).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consumer::allocation::Averagely;

    fn queues(count: u32) -> Vec<MessageQueue> {
        (0..count).rev().map(|id| MessageQueue::new("t", "b", id)).collect()
    }

    fn members(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn both_lists_are_sorted_before_they_are_shared() {
        let ids = |own| -> Vec<u32> {
            let mine = share(&Averagely, own, queues(12), members(&["c", "a", "b"])).unwrap();
            mine.iter().map(|queue| queue.id).collect()
        };
        assert_eq!(ids("a"), [0, 1, 2, 3]);
        assert_eq!(ids("b"), [4, 5, 6, 7]);
        assert_eq!(ids("c"), [8, 9, 10, 11]);
    }

    #[test]
    fn a_member_that_is_not_listed_keeps_its_queues() {
        assert_eq!(share(&Averagely, "x", queues(4), members(&["a"])), Err(Unusable::NotListed));
    }

    #[test]
    fn a_topic_without_queues_changes_nothing() {
        assert_eq!(share(&Averagely, "a", Vec::new(), members(&["a"])), Err(Unusable::NoQueues));
    }
}
