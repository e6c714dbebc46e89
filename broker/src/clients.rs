//! Which clients are connected, and what their groups subscribe to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use host::time::Mono;
use indexmap::IndexMap;
use remoting::{
    Language, Version,
    body::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData},
};

use crate::tag_filter::TagFilter;

/// Producers and consumers by group, as their heartbeats tell. In memory only.
///
/// A client is one connection (its ordinal) with a client id. `P` is what reaches the client over that connection.
#[derive(Debug)]
pub(crate) struct Clients<P> {
    /// Leaf lock: nothing else is locked while it is held.
    inner: Mutex<Inner<P>>,
}

#[derive(Debug)]
struct Inner<P> {
    consumers: IndexMap<String, ConsumerGroup<P>>,
    producers: IndexMap<String, BTreeMap<u64, Seen<P>>>,
}

#[derive(Debug)]
struct ConsumerGroup<P> {
    kind: GroupKind,
    /// By ordinal, hence in the order of connecting.
    members: BTreeMap<u64, Seen<P>>,
    /// By topic.
    subscriptions: BTreeMap<String, Subscription>,
}

#[derive(Debug)]
struct Seen<P> {
    client: Client<P>,
    at: Mono,
}

/// One end of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Client<P> {
    /// The number of the connection.
    pub(crate) ordinal: u64,
    /// What the client calls itself.
    pub(crate) id: String,
    pub(crate) language: Option<Language>,
    pub(crate) version: Version,
    pub(crate) peer: P,
}

/// How a group consumes; the latest heartbeat decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct GroupKind {
    pub(crate) consume_type: ConsumeType,
    pub(crate) message_model: MessageModel,
    pub(crate) consume_from_where: ConsumeFromWhere,
}

/// What a group wants of a topic.
#[derive(Debug, Clone)]
pub(crate) struct Subscription {
    pub(crate) data: SubscriptionData,
    pub(crate) filter: TagFilter,
}

/// The rest of a group whose members or topics changed, to be told so.
#[derive(Debug)]
pub(crate) struct Changed<P> {
    pub(crate) group: String,
    pub(crate) members: Vec<Client<P>>,
}

impl<P> Default for Clients<P> {
    fn default() -> Clients<P> {
        Clients { inner: Mutex::new(Inner { consumers: IndexMap::new(), producers: IndexMap::new() }) }
    }
}

impl<P: Clone> Clients<P> {
    /// A heartbeat of a consumer. Gives the members to be told, the new one included, if it joined or the group's
    /// topics changed; a new version of a subscription alone is not a change.
    pub(crate) fn consumer_seen(
        &self,
        group: &str,
        client: Client<P>,
        kind: GroupKind,
        subscriptions: Vec<Subscription>,
        now: Mono,
    ) -> Option<Changed<P>> {
        let mut inner = self.lock();
        let consumers = inner.consumers.entry(group.to_owned()).or_insert_with(ConsumerGroup::new);
        consumers.kind = kind;
        let joined = seen(&mut consumers.members, client, now);
        let topics_changed = consumers.subscribe(subscriptions);
        (joined || topics_changed).then(|| consumers.changed(group))
    }

    /// A heartbeat of a producer.
    pub(crate) fn producer_seen(&self, group: &str, client: Client<P>, now: Mono) {
        let mut inner = self.lock();
        seen(inner.producers.entry(group.to_owned()).or_default(), client, now);
    }

    /// A consumer leaves a group.
    pub(crate) fn consumer_left(&self, group: &str, ordinal: u64) -> Option<Changed<P>> {
        let mut inner = self.lock();
        inner.consumers.get_mut(group)?.members.remove(&ordinal)?;
        inner.forget_if_empty(group)
    }

    /// A producer leaves a group.
    pub(crate) fn producer_left(&self, group: &str, ordinal: u64) {
        let mut inner = self.lock();
        if let Some(clients) = inner.producers.get_mut(group) {
            clients.remove(&ordinal);
            if clients.is_empty() {
                inner.producers.shift_remove(group);
            }
        }
    }

    /// A connection closed: its client leaves all groups. Gives the rest of each consumer group.
    pub(crate) fn connection_closed(&self, ordinal: u64) -> Vec<Changed<P>> {
        self.remove_where(|seen| seen.client.ordinal == ordinal).1
    }

    /// Removes the clients that sent no heartbeat for longer than `life`: their connections, and the rest of each
    /// consumer group they were in.
    pub(crate) fn expire(&self, now: Mono, life: Duration) -> (Vec<P>, Vec<Changed<P>>) {
        self.remove_where(|seen| now.since(seen.at) > life)
    }

    /// The ids of a group's members, sorted, each once.
    pub(crate) fn member_ids(&self, group: &str) -> BTreeSet<String> {
        let inner = self.lock();
        let members = inner.consumers.get(group).map(|consumers| consumers.members.values());
        members.into_iter().flatten().map(|seen| seen.client.id.clone()).collect()
    }

    /// What a group wants of a topic.
    pub(crate) fn subscription(&self, group: &str, topic: &str) -> Option<Subscription> {
        self.lock().consumers.get(group)?.subscriptions.get(topic).cloned()
    }

    /// Whether a consumer group has members.
    pub(crate) fn is_online(&self, group: &str) -> bool {
        self.lock().consumers.contains_key(group)
    }

    /// Whether a group is online and consumes in broadcast.
    pub(crate) fn is_broadcast(&self, group: &str) -> bool {
        self.lock()
            .consumers
            .get(group)
            .is_some_and(|consumers| consumers.kind.message_model == MessageModel::Broadcasting)
    }

    /// Members, kind and subscriptions of a group that is online.
    pub(crate) fn consumers(&self, group: &str) -> Option<(Vec<Client<P>>, GroupKind, Vec<Subscription>)> {
        let inner = self.lock();
        let consumers = inner.consumers.get(group)?;
        let subscriptions = consumers.subscriptions.values().cloned().collect();
        Some((consumers.changed(group).members, consumers.kind, subscriptions))
    }

    /// The members of a producer group.
    pub(crate) fn producers(&self, group: &str) -> Vec<Client<P>> {
        let inner = self.lock();
        let clients = inner.producers.get(group).map(|clients| clients.values());
        clients.into_iter().flatten().map(|seen| seen.client.clone()).collect()
    }

    /// The groups online that subscribe to a topic.
    pub(crate) fn groups_of(&self, topic: &str) -> Vec<String> {
        let inner = self.lock();
        let subscribed = inner.consumers.iter().filter(|(_, group)| group.subscriptions.contains_key(topic));
        subscribed.map(|(name, _)| name.clone()).collect()
    }

    fn remove_where(&self, is_gone: impl Fn(&Seen<P>) -> bool) -> (Vec<P>, Vec<Changed<P>>) {
        let mut inner = self.lock();
        let mut peers = BTreeMap::new();
        let mut reduced = Vec::new();
        for (name, consumers) in &mut inner.consumers {
            let gone: Vec<u64> =
                consumers.members.iter().filter(|(_, seen)| is_gone(seen)).map(|(ordinal, _)| *ordinal).collect();
            for ordinal in &gone {
                let seen = consumers.members.remove(ordinal).expect("it was listed from this map");
                peers.insert(*ordinal, seen.client.peer);
            }
            if !gone.is_empty() {
                reduced.push(name.clone());
            }
        }
        let changed = reduced.iter().filter_map(|group| inner.forget_if_empty(group)).collect();
        inner.producers.retain(|_, clients| {
            clients.retain(|ordinal, seen| {
                let stays = !is_gone(seen);
                if !stays {
                    peers.insert(*ordinal, seen.client.peer.clone());
                }
                stays
            });
            !clients.is_empty()
        });
        (peers.into_values().collect(), changed)
    }

    fn lock(&self) -> MutexGuard<'_, Inner<P>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Clone> Inner<P> {
    /// Forgets a consumer group without members; gives the members of one that has some.
    fn forget_if_empty(&mut self, group: &str) -> Option<Changed<P>> {
        let consumers = self.consumers.get(group)?;
        if consumers.members.is_empty() {
            self.consumers.shift_remove(group);
            return None;
        }
        Some(consumers.changed(group))
    }
}

impl<P: Clone> ConsumerGroup<P> {
    fn new() -> ConsumerGroup<P> {
        ConsumerGroup { kind: GroupKind::default(), members: BTreeMap::new(), subscriptions: BTreeMap::new() }
    }

    /// Takes the subscriptions of the latest heartbeat; of one topic the newer version stays. True if a topic came or
    /// went.
    fn subscribe(&mut self, new: Vec<Subscription>) -> bool {
        let topics: BTreeSet<String> = new.iter().map(|subscription| subscription.data.topic.clone()).collect();
        let before = self.subscriptions.len();
        self.subscriptions.retain(|topic, _| topics.contains(topic));
        let mut is_changed = self.subscriptions.len() < before;
        for subscription in new {
            match self.subscriptions.get_mut(&subscription.data.topic) {
                Some(known) if known.data.sub_version >= subscription.data.sub_version => {}
                Some(known) => *known = subscription,
                None => {
                    self.subscriptions.insert(subscription.data.topic.clone(), subscription);
                    is_changed = true;
                }
            }
        }
        is_changed
    }

    fn changed(&self, group: &str) -> Changed<P> {
        let members = self.members.values().map(|seen| seen.client.clone()).collect();
        Changed { group: group.to_owned(), members }
    }
}

/// Notes a sign of life; true if the client is new, or calls itself otherwise than before.
fn seen<P>(clients: &mut BTreeMap<u64, Seen<P>>, client: Client<P>, now: Mono) -> bool {
    match clients.get_mut(&client.ordinal) {
        Some(known) => {
            let is_other = known.client.id != client.id;
            *known = Seen { client, at: now };
            is_other
        }
        None => {
            clients.insert(client.ordinal, Seen { client, at: now });
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::default() + Duration::from_secs(seconds)
    }

    fn client(ordinal: u64) -> Client<u64> {
        Client { ordinal, id: format!("client {ordinal}"), language: None, version: Version::CURRENT, peer: ordinal }
    }

    fn subscription(topic: &str, version: i64) -> Subscription {
        let data = SubscriptionData { topic: topic.to_owned(), sub_version: version, ..SubscriptionData::default() };
        Subscription { data, filter: TagFilter::All }
    }

    fn beat(clients: &Clients<u64>, ordinal: u64, topics: &[&str], now: u64) -> Option<Vec<u64>> {
        let subscriptions = topics.iter().map(|topic| subscription(topic, 1)).collect();
        let changed = clients.consumer_seen("g", client(ordinal), GroupKind::default(), subscriptions, at(now));
        changed.map(|changed| changed.members.into_iter().map(|member| member.peer).collect())
    }

    #[test]
    fn joining_tells_every_member_and_a_further_heartbeat_nobody() {
        let clients = Clients::default();
        assert_eq!(beat(&clients, 1, &["t"], 0), Some(vec![1]));
        assert_eq!(beat(&clients, 2, &["t"], 0), Some(vec![1, 2]));
        assert_eq!(beat(&clients, 1, &["t"], 30), None);
        assert_eq!(clients.member_ids("g").into_iter().collect::<Vec<_>>(), ["client 1", "client 2"]);
    }

    #[test]
    fn gained_and_lost_topics_are_changes() {
        let clients = Clients::default();
        beat(&clients, 1, &["t"], 0);
        assert_eq!(beat(&clients, 1, &["t", "u"], 1), Some(vec![1]));
        assert_eq!(beat(&clients, 1, &["u"], 2), Some(vec![1]));
        assert!(clients.subscription("g", "t").is_none());
        assert_eq!(clients.groups_of("u"), ["g"]);
    }

    #[test]
    fn newer_subscription_wins_without_being_a_change() {
        let clients = Clients::default();
        let beat = |version| {
            let subscriptions = vec![subscription("t", version)];
            clients.consumer_seen("g", client(1), GroupKind::default(), subscriptions, at(0)).is_some()
        };
        assert!(beat(5));
        assert!(!beat(7));
        assert!(!beat(6));
        assert_eq!(clients.subscription("g", "t").unwrap().data.sub_version, 7);
    }

    #[test]
    fn closed_connection_leaves_all_groups_and_tells_the_rest() {
        let clients = Clients::default();
        beat(&clients, 1, &["t"], 0);
        beat(&clients, 2, &["t"], 0);
        clients.producer_seen("p", client(2), at(0));
        let changed = clients.connection_closed(2);
        assert_eq!(changed.len(), 1);
        assert_eq!(changed[0].members.len(), 1);
        assert!(clients.producers("p").is_empty());
        assert!(clients.connection_closed(1).is_empty(), "nobody is left to be told");
        assert!(clients.consumers("g").is_none());
    }

    #[test]
    fn silent_clients_expire() {
        let clients = Clients::default();
        beat(&clients, 1, &["t"], 0);
        beat(&clients, 2, &["t"], 100);
        let life = Duration::from_secs(120);
        assert!(clients.expire(at(120), life).0.is_empty());
        let (peers, changed) = clients.expire(at(121), life);
        assert_eq!(peers, [1]);
        assert_eq!(changed[0].members.len(), 1);
    }

    #[test]
    fn leaving_client_is_gone_from_its_group() {
        let clients = Clients::default();
        beat(&clients, 1, &["t"], 0);
        beat(&clients, 2, &["t"], 0);
        assert_eq!(clients.consumer_left("g", 1).unwrap().members.len(), 1);
        assert!(clients.consumer_left("g", 1).is_none());
        clients.producer_seen("p", client(1), at(0));
        clients.producer_left("p", 1);
        assert!(clients.producers("p").is_empty());
    }
}
