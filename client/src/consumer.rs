//! Consuming as a member of a group.
//!
//! "Push" is a pull loop with long polling for each queue that this member owns: the consumer sets the pace. Messages
//! are delivered at least once; a message counts as consumed when everything below it in its queue is finished too.

use std::{collections::BTreeMap, convert::Infallible, num::NonZeroUsize, sync::Arc, time::Duration};

use futures_util::future::join_all;
use host::{Host, task::TaskGroup, time::Mono};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, warn};

use crate::{
    config::ClientConfig,
    core::{ClientCore, Role},
    error::ClientError,
    message_view::MessageView,
};

pub(crate) mod allocation;
mod consume;
pub(crate) mod listener;
pub(crate) mod member;
pub(crate) mod owned_queue;
pub(crate) mod process_queue;
mod pull;
mod rebalance;
mod records;
mod serve;
pub(crate) mod subscription;
mod work;

use allocation::{AllocationStrategy, Averagely};
use listener::ConcurrentListener;
use member::{Member, MemberSettings};
use owned_queue::QueueProgress;
use process_queue::CacheLimits;
use subscription::{Filter, Subscription};

pub(crate) use serve::serve;

/// Each so many commits of offsets all are sent, not only the changed ones.
const FULL_COMMIT_EVERY: u32 = 12;

/// For one commit of the periodic round.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(3);

/// Where a group starts with a queue that it has never consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartFrom {
    /// At the end. A broker may still answer 0 for a queue of which nothing was ever deleted.
    #[default]
    Latest,
    /// At the first message that is still there.
    Earliest,
    /// At the first message stored at or after this wall-clock time in milliseconds.
    Timestamp(i64),
}

/// What the tasks of one consumer share.
pub(crate) struct Context {
    pub(crate) core: Arc<ClientCore>,
    pub(crate) member: Arc<Member>,
    /// Batches that are consumed once more here, and when. Bounded by the cache limits of the queues.
    retries: mpsc::UnboundedSender<(Mono, work::Work)>,
}

/// A running member of a consumer group.
///
/// Dropping it ends its tasks without a last commit: what was not committed is delivered again to its successor. Use
/// [`shutdown`](PushConsumer::shutdown) for a clean end.
#[derive(Debug)]
pub struct PushConsumer {
    context: Arc<Context>,
    /// Rebalance, commits, cleaner.
    balance: TaskGroup,
    /// One task for each owned queue.
    pulls: Arc<TaskGroup>,
    /// Workers and local retries.
    workers: TaskGroup,
    /// Heartbeats and routes.
    upkeep: TaskGroup,
    /// True once no queue is taken over or pulled any more.
    leaving: watch::Sender<bool>,
    /// Ends when the last rebalance round has ended.
    balancing: oneshot::Receiver<Infallible>,
    /// True once no listener is called any more.
    stopping: watch::Sender<bool>,
    /// Ends when the last worker has ended.
    running: mpsc::Receiver<Infallible>,
}

/// How a shutdown went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Whether all listeners had ended by the deadline; the results of the others are lost.
    pub listeners_ended: bool,
    /// Queues whose offset was committed.
    pub committed: usize,
    /// Queues whose offset could not be committed: some messages will be delivered again.
    pub not_committed: usize,
}

impl PushConsumer {
    /// Starts to describe a member of `group`.
    pub fn builder(group: impl Into<String>, config: ClientConfig) -> PushConsumerBuilder {
        PushConsumerBuilder {
            group: group.into(),
            config,
            subscriptions: Vec::new(),
            strategy: Box::new(Averagely),
            start_from: StartFrom::default(),
            limits: CacheLimits::default(),
            concurrency: 20,
            batch_size: 1,
            pull_batch: 32,
            consume_timeout: Duration::from_secs(15 * 60),
            max_reconsume_times: None,
        }
    }

    /// The id by which brokers know this member.
    #[must_use]
    pub fn client_id(&self) -> &str {
        self.context.core.id()
    }

    /// Adds a topic, or changes the filter of one.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for an impossible topic name.
    pub fn subscribe(&self, topic: &str, filter: Filter) -> Result<(), ClientError> {
        message::validate_topic(topic).map_err(|error| ClientError::Invalid(error.to_string()))?;
        let core = &self.context.core;
        self.context.member.subscribe(topic.into(), filter, core.host().wall_ms());
        core.heartbeat_soon();
        Ok(())
    }

    /// Gives a topic up. Its queues are given away in the next rebalance round.
    pub fn unsubscribe(&self, topic: &str) {
        self.context.member.unsubscribe(topic);
        self.context.core.heartbeat_soon();
    }

    /// Stops pulling. What is cached is still consumed, and the queues are kept in balance with the group.
    pub fn pause(&self) {
        self.context.member.pause();
    }

    /// Pulls again.
    pub fn resume(&self) {
        self.context.member.resume();
    }

    /// The queues that this member owns now, and how far it is with them.
    #[must_use]
    pub fn progress(&self) -> Vec<QueueProgress> {
        self.context.member.queues().iter().map(|owned| owned.progress()).collect()
    }

    /// Ends cleanly: no more pulls, waits for running listeners, commits what they finished, leaves the group. None of
    /// its tasks is left afterwards.
    ///
    /// The whole takes about `deadline` at most; with zero nothing is waited for and nothing is committed.
    pub async fn shutdown(mut self, deadline: Duration) -> ShutdownReport {
        let core = &self.context.core;
        let host = core.host();
        let group = &self.context.member.settings.group;
        let until = host.now() + deadline;
        let left = || until.since(host.now());
        self.leaving.send_replace(true);
        if host.timeout(left(), &mut self.balancing).await.is_err() {
            warn!(%group, "a rebalance round was cut short");
        }
        self.balance.shutdown().await;
        self.pulls.shutdown().await;
        self.stopping.send_replace(true);
        let listeners_ended = host.timeout(left(), self.running.recv()).await.is_ok();
        self.context.member.backlog.close();
        self.workers.shutdown().await;

        let queues = self.context.member.queues();
        let to_commit = queues.iter().filter(|owned| owned.offset_to_commit(true).is_some()).count();
        let committed = host.timeout(left(), rebalance::give_away(&self.context, queues)).await.unwrap_or_default();
        if host.timeout(left(), core.unregister()).await.is_err() {
            warn!(%group, "brokers not told that this member leaves");
        }
        self.upkeep.shutdown().await;
        core.close().await;
        debug!(%group, committed, "consumer shut down");
        ShutdownReport { listeners_ended, committed, not_committed: to_commit - committed }
    }
}

/// Describes a consumer; made by [`PushConsumer::builder`].
pub struct PushConsumerBuilder {
    group: String,
    config: ClientConfig,
    subscriptions: Vec<(String, Filter)>,
    strategy: Box<dyn AllocationStrategy>,
    start_from: StartFrom,
    limits: CacheLimits,
    concurrency: usize,
    batch_size: usize,
    pull_batch: u32,
    consume_timeout: Duration,
    max_reconsume_times: Option<u32>,
}

impl PushConsumerBuilder {
    /// Adds a topic. All members of a group must have the same subscriptions.
    #[must_use]
    pub fn subscribe(mut self, topic: impl Into<String>, filter: Filter) -> Self {
        self.subscriptions.push((topic.into(), filter));
        self
    }

    /// Where the group starts with queues that it has never consumed. Default [`StartFrom::Latest`].
    #[must_use]
    pub fn start_from(mut self, start: StartFrom) -> Self {
        self.start_from = start;
        self
    }

    /// How the queues are shared out. Default [`Averagely`].
    #[must_use]
    pub fn strategy(mut self, strategy: impl AllocationStrategy) -> Self {
        self.strategy = Box::new(strategy);
        self
    }

    /// Calls of the listener that may run at one time. Default 20, from 1 to 1000.
    #[must_use]
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = calls;
        self
    }

    /// Messages for one call of the listener at most. Default 1, from 1 to 1024.
    #[must_use]
    pub fn batch_size(mut self, messages: usize) -> Self {
        self.batch_size = messages;
        self
    }

    /// Messages wanted by one pull. Default 32, from 1 to 1024; brokers give 32 at most.
    #[must_use]
    pub fn pull_batch(mut self, messages: u32) -> Self {
        self.pull_batch = messages;
        self
    }

    /// How much of each queue may wait here.
    #[must_use]
    pub fn limits(mut self, limits: CacheLimits) -> Self {
        self.limits = limits;
        self
    }

    /// When a listener is taken for stuck with a message, which is then delivered again. Default 15 minutes.
    #[must_use]
    pub fn consume_timeout(mut self, timeout: Duration) -> Self {
        self.consume_timeout = timeout;
        self
    }

    /// Retries until a message goes to the dead-letter topic. Default: as the broker has it for the group (16).
    #[must_use]
    pub fn max_reconsume_times(mut self, times: u32) -> Self {
        self.max_reconsume_times = Some(times);
        self
    }

    /// Starts the consumer. It joins its group at the brokers that it can reach and goes on looking for the others.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if a name or a number is outside its range, or if there is no subscription.
    ///
    /// # Panics
    /// Outside a node; see [`Host::current`].
    pub async fn start_concurrent(self, listener: impl ConcurrentListener) -> Result<PushConsumer, ClientError> {
        let host = Host::current();
        self.check()?;
        let retry_topic: Arc<str> = message::retry_topic(&self.group).into();
        let version = host.wall_ms();
        let mut subscriptions: BTreeMap<Arc<str>, Subscription> = self
            .subscriptions
            .into_iter()
            .map(|(topic, filter)| (topic.into(), Subscription { filter, version }))
            .collect();
        subscriptions.insert(Arc::clone(&retry_topic), Subscription { filter: Filter::All, version });
        let settings = MemberSettings {
            group: self.group.into(),
            retry_topic,
            strategy: self.strategy,
            start_from: self.start_from,
            limits: self.limits,
            concurrency: NonZeroUsize::new(self.concurrency).expect("checked above"),
            batch_size: NonZeroUsize::new(self.batch_size).expect("checked above"),
            pull_batch: self.pull_batch,
            consume_timeout: self.consume_timeout,
            max_reconsume_times: self.max_reconsume_times,
        };
        let member = Arc::new(Member::new(settings, listener::erase(listener), subscriptions));
        let (core, upkeep) = ClientCore::start(&host, self.config, Role::Consumer(Arc::clone(&member))).await?;
        Ok(spawn(&host, core, member, upkeep))
    }

    fn check(&self) -> Result<(), ClientError> {
        let invalid = |error: message::NameError| ClientError::Invalid(error.to_string());
        message::validate_group(&self.group).map_err(invalid)?;
        if self.group == "DEFAULT_CONSUMER" {
            return Err(ClientError::Invalid("the group name `DEFAULT_CONSUMER` is reserved".to_owned()));
        }
        if self.subscriptions.is_empty() {
            return Err(ClientError::Invalid("a consumer without a subscription".to_owned()));
        }
        for (topic, _) in &self.subscriptions {
            message::validate_topic(topic).map_err(invalid)?;
        }
        let ranges = [
            ("concurrency", self.concurrency, 1000),
            ("batch_size", self.batch_size, 1024),
            ("pull_batch", self.pull_batch as usize, 1024),
            ("limits.messages", self.limits.messages, 65_535),
            ("consume_timeout in ms", usize::try_from(self.consume_timeout.as_millis()).unwrap_or(0), usize::MAX),
        ];
        match ranges.iter().find(|(_, value, max)| !(1..=*max).contains(value)) {
            Some((name, value, max)) => Err(ClientError::Invalid(format!("`{name}` is {value}, not in 1..={max}"))),
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for PushConsumerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PushConsumerBuilder of {}", self.group)
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Context of {:?}", self.member)
    }
}

/// Starts the tasks of a consumer.
fn spawn(host: &Host, core: Arc<ClientCore>, member: Arc<Member>, upkeep: TaskGroup) -> PushConsumer {
    let (retries, due) = mpsc::unbounded_channel();
    let (still_balancing, balancing) = oneshot::channel();
    let (still_running, running) = mpsc::channel(1);
    let (leaving, stopping) = (watch::Sender::new(false), watch::Sender::new(false));
    let context = Arc::new(Context { core, member, retries });
    let (balance, pulls, workers) = (TaskGroup::new(host), Arc::new(TaskGroup::new(host)), TaskGroup::new(host));
    for _ in 0..context.member.settings.concurrency.get() {
        let work = consume::work(Arc::clone(&context), stopping.subscribe(), still_running.clone());
        workers.spawn("client.worker", work);
    }
    workers.spawn("client.local-retries", consume::run_retries(Arc::clone(&context), due));
    let rounds = rebalance::run(Arc::clone(&context), Arc::clone(&pulls), leaving.subscribe(), still_balancing);
    balance.spawn("client.rebalance", rounds);
    balance.spawn("client.commit", commit_periodically(Arc::clone(&context)));
    balance.spawn("client.stuck", consume::clean_stuck(Arc::clone(&context)));
    PushConsumer { context, balance, pulls, workers, upkeep, leaving, balancing, stopping, running }
}

/// Commits the offsets of all owned queues every few seconds: the changed ones, and now and then all of them, in case
/// a broker lost some.
async fn commit_periodically(context: Arc<Context>) {
    let Context { core, member, .. } = &*context;
    let period = core.timing().persist_offsets;
    for round in 1_u32.. {
        core.host().sleep(if host::buggify!("client.committed-early") { period / 20 } else { period }).await;
        let all = round % FULL_COMMIT_EVERY == 0;
        host::gate!("client.committing", round).await;
        join_all(member.queues().into_iter().map(|owned| async move {
            let Some((generation, place)) = owned.offset_to_commit(all) else { return };
            let group = &member.settings.group;
            host::select! {
                // Whoever gives the queue away commits it himself: a later commit from here could undo his successor's.
                () = owned.until_ended(generation) => {}
                committed = core.commit_offset(group, &owned.queue, place, COMMIT_TIMEOUT) => match committed {
                    Ok(()) => owned.committed(generation, place.offset),
                    Err(error) => debug!(queue = %owned.queue, %error, "offset not committed"),
                },
            }
        }))
        .await;
    }
}
