//! Where the queues of each topic are, and at which addresses brokers are found.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU32},
};

use remoting::body::{QueueData, TopicRouteData};

use crate::{producer::selector::PublishList, queue::MessageQueue};

/// Permission bits of a topic on a broker.
const PERM_WRITE: i32 = 2;
const PERM_READ: i32 = 4;

/// The broker id of a master.
pub(crate) const MASTER: u64 = 0;

/// What name servers have told. Every method sees and leaves a consistent table.
#[derive(Debug)]
pub(crate) struct RouteTable {
    /// Leaf lock: nothing else is locked while it is held.
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    topics: BTreeMap<Arc<str>, TopicEntry>,
    brokers: BTreeMap<Arc<str>, BTreeMap<u64, String>>,
}

#[derive(Debug)]
struct TopicEntry {
    route: TopicRouteData,
    publish: Arc<PublishList>,
    /// Where the round-robin stands; it outlives changes of the route.
    turn: Arc<AtomicU32>,
}

/// A broker and one of its addresses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BrokerAddr {
    pub(crate) broker: Arc<str>,
    pub(crate) id: u64,
    pub(crate) addr: String,
}

impl RouteTable {
    pub(crate) fn new() -> RouteTable {
        RouteTable { inner: Mutex::new(Inner::default()) }
    }

    /// Takes the route of a topic in. `first_turn` is where the round-robin of a new topic starts. True if the route
    /// is new or differs from the last.
    pub(crate) fn update(&self, topic: &Arc<str>, route: TopicRouteData, first_turn: u32) -> bool {
        let mut inner = self.lock();
        for broker in &route.broker_datas {
            // Ids below 0 mean nothing.
            let addrs =
                broker.broker_addrs.iter().filter_map(|(id, addr)| Some((u64::try_from(*id).ok()?, addr.clone())));
            let addrs = addrs.collect();
            inner.brokers.insert(Arc::from(&*broker.broker_name), addrs);
        }
        let known = inner.topics.get(topic);
        if known.is_some_and(|entry| entry.route == route) {
            return false;
        }
        let turn = known.map_or_else(|| Arc::new(AtomicU32::new(first_turn)), |entry| Arc::clone(&entry.turn));
        let publish = Arc::new(PublishList::new(publish_queues(topic, &route), Arc::clone(&turn)));
        inner.topics.insert(Arc::clone(topic), TopicEntry { route, publish, turn });
        true
    }

    /// The topics whose routes are wanted.
    pub(crate) fn topics(&self) -> BTreeSet<Arc<str>> {
        self.lock().topics.keys().cloned().collect()
    }

    /// The queues that take messages of a topic; `None` if its route is not known.
    pub(crate) fn publish_list(&self, topic: &str) -> Option<Arc<PublishList>> {
        self.lock().topics.get(topic).map(|entry| Arc::clone(&entry.publish))
    }

    /// The queues that give messages of a topic; `None` if its route is not known.
    pub(crate) fn subscribe_set(&self, topic: &Arc<str>) -> Option<Vec<MessageQueue>> {
        let inner = self.lock();
        inner.topics.get(topic).map(|entry| subscribe_queues(topic, &entry.route))
    }

    /// The names of the brokers that hold a topic, sorted.
    pub(crate) fn brokers_of(&self, topic: &str) -> Vec<Arc<str>> {
        let inner = self.lock();
        let Some(entry) = inner.topics.get(topic) else { return Vec::new() };
        let names: BTreeSet<Arc<str>> =
            entry.route.broker_datas.iter().map(|broker| Arc::from(&*broker.broker_name)).collect();
        names.into_iter().collect()
    }

    /// The address of a broker's master.
    pub(crate) fn master(&self, broker: &str) -> Option<String> {
        self.lock().brokers.get(broker)?.get(&MASTER).cloned()
    }

    /// The address of a broker's master, or else of its first slave.
    pub(crate) fn master_or_any(&self, broker: &str) -> Option<(u64, String)> {
        self.lock().brokers.get(broker)?.iter().next().map(|(id, addr)| (*id, addr.clone()))
    }

    /// The address to pull from: of broker `id`, or else of the next id, or else any.
    pub(crate) fn to_pull_from(&self, broker: &str, id: u64) -> Option<(u64, String)> {
        let inner = self.lock();
        let addrs = inner.brokers.get(broker)?;
        let next = if id == MASTER { None } else { addrs.get_key_value(&(id + 1)) };
        let found = addrs.get_key_value(&id).or(next).or_else(|| addrs.iter().next())?;
        Some((*found.0, found.1.clone()))
    }

    /// All addresses, by broker name and id.
    pub(crate) fn addresses(&self) -> Vec<BrokerAddr> {
        let inner = self.lock();
        let of = |(broker, addrs): (&Arc<str>, &BTreeMap<u64, String>)| -> Vec<BrokerAddr> {
            let one =
                |(id, addr): (&u64, &String)| BrokerAddr { broker: Arc::clone(broker), id: *id, addr: addr.clone() };
            addrs.iter().map(one).collect()
        };
        inner.brokers.iter().flat_map(of).collect()
    }

    /// Forgets the addresses that are in no route any more.
    pub(crate) fn forget_offline(&self) {
        let mut inner = self.lock();
        let Inner { topics, brokers } = &mut *inner;
        let live: BTreeSet<&str> = topics
            .values()
            .flat_map(|entry| &entry.route.broker_datas)
            .flat_map(|broker| broker.broker_addrs.values())
            .map(String::as_str)
            .collect();
        for addrs in brokers.values_mut() {
            addrs.retain(|_, addr| live.contains(&**addr));
        }
        brokers.retain(|_, addrs| !addrs.is_empty());
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queues that take messages, in the order that selectors see: by the order configuration of the topic if it has
/// one, else by broker name, and only where there is a master. Source: `spec/client.md` 1.4.
fn publish_queues(topic: &Arc<str>, route: &TopicRouteData) -> Vec<MessageQueue> {
    let queues = |broker: &str, count: u32| {
        let broker: Arc<str> = broker.into();
        (0..count).map(move |id| MessageQueue { topic: Arc::clone(topic), broker: Arc::clone(&broker), id })
    };
    if let Some(order) = route.order_topic_conf.as_deref().filter(|order| !order.is_empty()) {
        let entries = order.split(';').filter_map(|entry| entry.split_once(':'));
        let counted = entries.filter_map(|(broker, stated)| Some((broker, count(stated.trim().parse().ok()?))));
        return counted.flat_map(|(broker, count)| queues(broker, count)).collect();
    }
    let has_master = |name: &str| {
        let mut brokers = route.broker_datas.iter().filter(|broker| broker.broker_name == name);
        brokers.any(|broker| broker.broker_addrs.contains_key(&0))
    };
    let mut writable: Vec<&QueueData> =
        route.queue_datas.iter().filter(|data| data.perm & PERM_WRITE != 0 && has_master(&data.broker_name)).collect();
    writable.sort_by(|a, b| a.broker_name.cmp(&b.broker_name));
    writable.into_iter().flat_map(|data| queues(&data.broker_name, count(data.write_queue_nums))).collect()
}

/// The queues that give messages. A broker without a master is among them.
fn subscribe_queues(topic: &Arc<str>, route: &TopicRouteData) -> Vec<MessageQueue> {
    let readable = route.queue_datas.iter().filter(|data| data.perm & PERM_READ != 0);
    let mut queues: Vec<MessageQueue> = readable
        .flat_map(|data| {
            let broker: Arc<str> = Arc::from(&*data.broker_name);
            (0..count(data.read_queue_nums)).map(move |id| MessageQueue {
                topic: Arc::clone(topic),
                broker: Arc::clone(&broker),
                id,
            })
        })
        .collect();
    queues.sort();
    queues
}

/// The number of queues that a route states, within what anybody needs.
fn count(stated: i32) -> u32 {
    const QUEUES_MAX: u32 = 65_536;
    u32::try_from(stated).unwrap_or(0).min(QUEUES_MAX)
}

#[cfg(test)]
mod tests {
    use remoting::body::BrokerData;

    use super::*;

    fn data(broker: &str, read: i32, write: i32, perm: i32) -> QueueData {
        QueueData {
            broker_name: broker.to_owned(),
            read_queue_nums: read,
            write_queue_nums: write,
            perm,
            ..QueueData::default()
        }
    }

    fn broker(name: &str, addrs: &[(i64, &str)]) -> BrokerData {
        BrokerData {
            broker_name: name.to_owned(),
            broker_addrs: addrs.iter().map(|(id, addr)| (*id, (*addr).to_owned())).collect(),
            ..BrokerData::default()
        }
    }

    fn route() -> TopicRouteData {
        TopicRouteData {
            broker_datas: vec![
                broker("b", &[(0, "b0:1"), (1, "b1:1")]),
                broker("a", &[(0, "a0:1")]),
                broker("headless", &[(1, "h1:1")]),
            ],
            queue_datas: vec![
                data("b", 2, 1, 6),
                data("a", 1, 2, 6),
                data("headless", 1, 1, 6),
                data("a-read-only", 1, 1, 4),
            ],
            ..TopicRouteData::default()
        }
    }

    fn shown(queues: &[MessageQueue]) -> Vec<String> {
        queues.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn messages_go_to_writable_queues_with_a_master_in_broker_order() {
        assert_eq!(shown(&publish_queues(&"t".into(), &route())), ["t@a:0", "t@a:1", "t@b:0"]);
    }

    #[test]
    fn messages_come_from_all_readable_queues() {
        let queues = subscribe_queues(&"t".into(), &route());
        assert_eq!(shown(&queues), ["t@a:0", "t@a-read-only:0", "t@b:0", "t@b:1", "t@headless:0"]);
    }

    #[test]
    fn an_order_configuration_decides_order_and_count() {
        let route = TopicRouteData { order_topic_conf: Some("b:2;a:1".to_owned()), ..route() };
        assert_eq!(shown(&publish_queues(&"t".into(), &route)), ["t@b:0", "t@b:1", "t@a:0"]);
    }

    #[test]
    fn an_unchanged_route_keeps_the_turn_and_a_changed_one_too() {
        let table = RouteTable::new();
        let topic: Arc<str> = "t".into();
        assert!(table.update(&topic, route(), 1));
        assert!(!table.update(&topic, route(), 7));
        assert_eq!(table.publish_list("t").unwrap().next(None).unwrap().to_string(), "t@a:1");
        let mut less = route();
        less.queue_datas.retain(|data| data.broker_name == "a");
        assert!(table.update(&topic, less, 7));
        assert_eq!(table.publish_list("t").unwrap().next(None).unwrap().to_string(), "t@a:0");
    }

    #[test]
    fn addresses_that_no_route_names_are_forgotten() {
        let table = RouteTable::new();
        let topic: Arc<str> = "t".into();
        table.update(&topic, route(), 0);
        let mut less = route();
        less.broker_datas.remove(0);
        table.update(&topic, less, 0);
        assert_eq!(table.master("b").as_deref(), Some("b0:1"));
        table.forget_offline();
        assert_eq!(table.master("b"), None);
        let left: Vec<String> = table.addresses().into_iter().map(|broker| broker.addr).collect();
        assert_eq!(left, ["a0:1", "h1:1"]);
    }

    #[test]
    fn pulls_fall_back_from_the_suggested_broker() {
        let table = RouteTable::new();
        table.update(&"t".into(), route(), 0);
        assert_eq!(table.to_pull_from("b", 0), Some((0, "b0:1".to_owned())));
        assert_eq!(table.to_pull_from("b", 1), Some((1, "b1:1".to_owned())));
        assert_eq!(table.to_pull_from("b", 5), Some((0, "b0:1".to_owned())));
        assert_eq!(table.to_pull_from("headless", 0), Some((1, "h1:1".to_owned())));
        assert_eq!(table.to_pull_from("nobody", 0), None);
        assert_eq!(table.master_or_any("headless"), Some((1, "h1:1".to_owned())));
        assert_eq!(table.master("headless"), None);
    }
}
