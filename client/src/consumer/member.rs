//! A consumer as a member of its group: what it subscribes to, which queues it owns, which batches wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use super::{
    CacheLimits, Filter, StartFrom, allocation::AllocationStrategy, listener::AnyListener, owned_queue::OwnedQueue,
    subscription::Subscription, work::Backlog,
};
use crate::queue::{MessageQueue, Place};

/// What does not change while a consumer runs.
pub(crate) struct MemberSettings {
    pub(crate) group: Arc<str>,
    /// `%RETRY%` and the group.
    pub(crate) retry_topic: Arc<str>,
    pub(crate) strategy: Box<dyn AllocationStrategy>,
    pub(crate) start_from: StartFrom,
    pub(crate) limits: CacheLimits,
    pub(crate) concurrency: NonZeroUsize,
    pub(crate) batch_size: NonZeroUsize,
    pub(crate) pull_batch: u32,
    pub(crate) consume_timeout: Duration,
    /// Retries until the dead-letter topic; `None` leaves it to the broker (16).
    pub(crate) max_reconsume_times: Option<u32>,
}

/// The state of one running consumer that its tasks share. Each part has its own owner.
pub(crate) struct Member {
    pub(crate) settings: MemberSettings,
    pub(crate) listener: AnyListener,
    /// Batches for the listener.
    pub(crate) backlog: Backlog,
    /// Wakes the rebalance loop.
    pub(crate) rebalance_soon: Notify,
    /// Leaf lock: nothing else is locked while it is held.
    subscriptions: Mutex<BTreeMap<Arc<str>, Subscription>>,
    /// Leaf lock. Only the rebalance loop and the shutdown change the table.
    queues: Mutex<BTreeMap<MessageQueue, Arc<OwnedQueue>>>,
    paused: AtomicBool,
    resumed: Notify,
}

impl Member {
    pub(crate) fn new(
        settings: MemberSettings,
        listener: AnyListener,
        subscriptions: BTreeMap<Arc<str>, Subscription>,
    ) -> Member {
        Member {
            settings,
            listener,
            backlog: Backlog::new(),
            rebalance_soon: Notify::new(),
            subscriptions: Mutex::new(subscriptions),
            queues: Mutex::new(BTreeMap::new()),
            paused: AtomicBool::new(false),
            resumed: Notify::new(),
        }
    }

    // ---- subscriptions ----

    /// All subscriptions by topic, the retry topic among them.
    pub(crate) fn subscriptions(&self) -> BTreeMap<Arc<str>, Subscription> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The subscription of one topic.
    pub(crate) fn subscription(&self, topic: &str) -> Option<Subscription> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner).get(topic).cloned()
    }

    /// Adds or replaces a subscription.
    pub(crate) fn subscribe(&self, topic: Arc<str>, filter: Filter, wall_ms: i64) {
        let subscription = Subscription { filter, version: wall_ms };
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner).insert(topic, subscription);
        self.rebalance_soon.notify_one();
    }

    /// Removes a subscription; the next rebalance round drops its queues.
    pub(crate) fn unsubscribe(&self, topic: &str) {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner).remove(topic);
        self.rebalance_soon.notify_one();
    }

    /// Raises the version of a subscription because its assignment changed. Versions only grow, whatever the wall
    /// clock does.
    pub(crate) fn raise_version(&self, topic: &str, wall_ms: i64) {
        if let Some(subscription) = self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner).get_mut(topic) {
            subscription.version = wall_ms.max(subscription.version + 1);
        }
    }

    // ---- queues ----

    /// The owned queues, in their order.
    pub(crate) fn queues(&self) -> Vec<Arc<OwnedQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The owned queues of one topic, in their order.
    pub(crate) fn queues_of(&self, topic: &str) -> Vec<Arc<OwnedQueue>> {
        let mut queues = self.queues();
        queues.retain(|owned| &*owned.queue.topic == topic);
        queues
    }

    /// The topics of owned queues.
    pub(crate) fn owned_topics(&self) -> BTreeSet<Arc<str>> {
        self.queues().iter().map(|owned| Arc::clone(&owned.queue.topic)).collect()
    }

    /// Takes a queue over.
    pub(crate) fn add_queue(&self, owned: Arc<OwnedQueue>) {
        let mark = owned.queue.mark();
        let previous = self.queues.lock().unwrap_or_else(PoisonError::into_inner).insert(owned.queue.clone(), owned);
        assert!(previous.is_none(), "a queue is owned once: {previous:?}");
        host::point!("client.queue-added", mark);
    }

    /// Gives a queue away: nothing of it is consumed from now on. What to commit, if there is anything.
    pub(crate) fn remove_queue(&self, owned: &OwnedQueue) -> Option<Place> {
        let place = owned.drop_queue();
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).remove(&owned.queue);
        host::point!("client.queue-removed", owned.queue.mark());
        place
    }

    // ---- pausing ----

    /// Stops pulling. What is cached is still consumed, and the queues are kept in balance.
    pub(crate) fn pause(&self) {
        self.paused.store(true, Ordering::Relaxed);
    }

    /// Pulls again.
    pub(crate) fn resume(&self) {
        self.paused.store(false, Ordering::Relaxed);
        self.resumed.notify_waiters();
    }

    /// Resolves when the consumer is not paused, or after a second at the latest by the caller's timer.
    pub(crate) async fn until_resumed(&self) {
        let resumed = self.resumed.notified();
        if self.paused.load(Ordering::Relaxed) {
            resumed.await;
        }
    }
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Member of {}", self.settings.group)
    }
}
