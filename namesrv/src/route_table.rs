//! Which brokers are alive and which topics they serve.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use host::time::Mono;
use message::TEMPLATE_TOPIC;
use remoting::body::{BrokerData, ClusterInfo, DataVersion, QueueData, TopicConfig, TopicRouteData};

/// The id of a master in its group.
const MASTER: i64 = 0;

/// The bit that allows writing, in the permissions of a topic.
const WRITE: i32 = 2;

/// What `add_write_permission` gives: read and write.
const READ_AND_WRITE: i32 = 6;

/// How long a broker counts as alive that does not say so itself. Source: `spec/protocol.md` 10.2.
pub(crate) const BROKER_LIFE: Duration = Duration::from_secs(120);

/// Routes, written by requests and by the liveness scan; every method sees and leaves a consistent table.
#[derive(Debug, Default)]
pub(crate) struct RouteTable {
    /// Leaf lock: nothing else is locked while it is held.
    inner: Mutex<Inner>,
}

/// Sorted maps, so that equal tables give equal answers.
#[derive(Debug, Default)]
struct Inner {
    /// By topic, then by broker name.
    topics: BTreeMap<String, BTreeMap<String, QueueData>>,
    /// By broker name.
    groups: BTreeMap<String, Group>,
    /// By cluster and address.
    live: BTreeMap<BrokerKey, Live>,
}

/// The brokers of one name.
#[derive(Debug, Default)]
struct Group {
    cluster: String,
    acting_master: bool,
    zone: Option<String>,
    addrs: BTreeMap<i64, String>,
}

/// One broker process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BrokerKey {
    pub(crate) cluster: String,
    pub(crate) addr: String,
}

#[derive(Debug)]
struct Live {
    name: String,
    updated: Mono,
    life: Duration,
    version: DataVersion,
    connection: u64,
    ha_addr: String,
}

/// What a broker says when it registers.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) broker: BrokerKey,
    pub(crate) name: String,
    pub(crate) id: i64,
    pub(crate) ha_addr: String,
    pub(crate) life: Duration,
    /// `None` from brokers that do not know of acting masters.
    pub(crate) acting_master: Option<bool>,
    pub(crate) zone: Option<String>,
    pub(crate) version: DataVersion,
    pub(crate) topics: Vec<TopicConfig>,
    /// The connection it came on: when that closes, the broker is gone.
    pub(crate) connection: u64,
}

/// What became of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Registered {
    /// It counts. A broker that is not the master is told who is.
    Accepted { master: Option<Master> },
    /// A live broker with the same id has a newer state version; nothing changed.
    Outdated,
    /// A broker that is not known yet sent a single topic: it must send its whole table first.
    NotWhole,
}

/// Where the master of a group is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Master {
    pub(crate) addr: String,
    pub(crate) ha_addr: String,
}

impl RouteTable {
    /// Takes a registration; `drop_missing` forgets the topics that it does not name.
    ///
    /// Source: the reference's `RouteInfoManager.registerBroker`.
    pub(crate) fn register(&self, new: Registration, drop_missing: bool, now: Mono) -> Registered {
        let mut inner = self.lock();
        if let Some(refused) = inner.refuse(&new) {
            if refused == Registered::Outdated {
                inner.live.remove(&new.broker);
            }
            return refused;
        }
        let group = inner.groups.entry(new.name.clone()).or_default();
        group.cluster.clone_from(&new.broker.cluster);
        group.acting_master = new.acting_master.unwrap_or(false);
        group.zone = new.zone;
        // An address has one id: a slave that became master leaves its old one.
        group.addrs.retain(|id, addr| *addr != new.broker.addr || *id == new.id);
        let is_first = group.addrs.insert(new.id, new.broker.addr.clone()).is_none();
        let is_smallest = group.addrs.keys().next() == Some(&new.id);
        let writes_topics = new.id == MASTER || (new.acting_master.is_some() && is_smallest);
        let wipes_write = new.id != MASTER && group.acting_master;
        let master_addr = if new.id == MASTER { None } else { group.addrs.get(&MASTER).cloned() };

        let is_changed = is_first || inner.live.get(&new.broker).is_none_or(|before| before.version != new.version);
        if writes_topics {
            inner.take_topics(&new.name, new.topics, TopicsRule { is_changed, drop_missing, wipes_write });
        }
        let master = master_addr.and_then(|addr| {
            let live = inner.live.get(&BrokerKey { cluster: new.broker.cluster.clone(), addr: addr.clone() })?;
            Some(Master { addr, ha_addr: live.ha_addr.clone() })
        });
        let live = Live {
            name: new.name,
            updated: now,
            life: new.life,
            version: new.version,
            connection: new.connection,
            ha_addr: new.ha_addr,
        };
        inner.live.insert(new.broker, live);
        Registered::Accepted { master }
    }

    /// A broker that says farewell.
    pub(crate) fn unregister(&self, broker: &BrokerKey, name: &str) {
        self.lock().remove(broker, name);
    }

    /// All brokers that registered over this connection are gone; tells which.
    pub(crate) fn connection_closed(&self, connection: u64) -> Vec<BrokerKey> {
        self.remove_where(|live| live.connection == connection)
    }

    /// Removes the brokers that were silent for longer than they may be, and tells which.
    pub(crate) fn expire(&self, now: Mono) -> Vec<BrokerKey> {
        self.remove_where(|live| now.since(live.updated) > live.life)
    }

    /// A sign of life of a known broker; of an unknown one it is ignored.
    pub(crate) fn heartbeat(&self, broker: &BrokerKey, now: Mono) {
        if let Some(live) = self.lock().live.get_mut(broker) {
            live.updated = now;
        }
    }

    /// The version of the topic table that a broker registered last.
    pub(crate) fn version(&self, broker: &BrokerKey) -> Option<DataVersion> {
        self.lock().live.get(broker).map(|live| live.version.clone())
    }

    /// Where a topic can be written and read; `None` if no live broker serves it.
    ///
    /// Of the template only groups with a master: nobody else can make a topic, and a client of Apache's that was told of
    /// a slave alone never asks again for the template's route, even when the master is back.
    pub(crate) fn route(&self, topic: &str) -> Option<TopicRouteData> {
        let inner = self.lock();
        let has_master = |name: &str| inner.groups.get(name).is_some_and(|group| group.addrs.contains_key(&MASTER));
        let of_all = inner.topics.get(topic)?.iter();
        let queues = of_all.filter(|(name, _)| topic != TEMPLATE_TOPIC || has_master(name));
        let broker_datas: Vec<BrokerData> =
            queues.clone().filter_map(|(name, _)| inner.groups.get(name).map(|group| group.data(name))).collect();
        if broker_datas.is_empty() {
            return None;
        }
        Some(TopicRouteData {
            broker_datas,
            queue_datas: queues.map(|(_, queues)| queues.clone()).collect(),
            ..Default::default()
        })
    }

    /// All clusters with their brokers.
    pub(crate) fn clusters(&self) -> ClusterInfo {
        let inner = self.lock();
        let mut info = ClusterInfo::default();
        for (name, group) in &inner.groups {
            info.broker_addr_table.insert(name.clone(), group.data(name));
            info.cluster_addr_table.entry(group.cluster.clone()).or_default().push(name.clone());
        }
        info
    }

    /// The addresses of a group by id; empty if nobody has this name.
    pub(crate) fn members(&self, name: &str) -> BTreeMap<i64, String> {
        self.lock().groups.get(name).map(|group| group.addrs.clone()).unwrap_or_default()
    }

    /// Every topic, system topics included.
    pub(crate) fn topics(&self) -> Vec<String> {
        self.lock().topics.keys().cloned().collect()
    }

    /// The topics that a cluster serves.
    pub(crate) fn topics_of_cluster(&self, cluster: &str) -> Vec<String> {
        let inner = self.lock();
        let served = |queues: &BTreeMap<String, QueueData>| {
            queues.keys().any(|name| inner.groups.get(name).is_some_and(|group| group.cluster == cluster))
        };
        inner.topics.iter().filter(|(_, queues)| served(queues)).map(|(topic, _)| topic.clone()).collect()
    }

    /// The topics whose flags, as its first broker has them, satisfy `wanted`.
    pub(crate) fn topics_with_flags(&self, wanted: impl Fn(i32) -> bool) -> Vec<String> {
        let first_has = |queues: &BTreeMap<String, QueueData>| {
            queues.values().next().is_some_and(|queues| wanted(queues.topic_sys_flag))
        };
        self.lock().topics.iter().filter(|(_, queues)| first_has(queues)).map(|(topic, _)| topic.clone()).collect()
    }

    /// The names of clusters and brokers, each of which is also a topic, and the address of any broker.
    pub(crate) fn system_topics(&self) -> (Vec<String>, Option<String>) {
        let inner = self.lock();
        let clusters: BTreeSet<&String> = inner.groups.values().map(|group| &group.cluster).collect();
        let names = clusters.into_iter().chain(inner.groups.keys()).cloned().collect();
        let addr = inner.groups.values().find_map(|group| group.addrs.values().next().cloned());
        (names, addr)
    }

    /// Takes the write permission from every topic of a broker; the next changed registration restores it.
    pub(crate) fn wipe_write_permission(&self, name: &str) -> usize {
        self.change_permissions(name, |perm| perm & !WRITE)
    }

    /// Lets every topic of a broker be written and read.
    pub(crate) fn add_write_permission(&self, name: &str) -> usize {
        self.change_permissions(name, |_| READ_AND_WRITE)
    }

    /// Forgets a topic: everywhere, or on the brokers of one cluster.
    pub(crate) fn delete_topic(&self, topic: &str, cluster: Option<&str>) {
        let mut inner = self.lock();
        let Inner { topics, groups, .. } = &mut *inner;
        let Some(queues) = topics.get_mut(topic) else { return };
        queues.retain(|name, _| {
            cluster.is_some_and(|cluster| groups.get(name).is_none_or(|group| group.cluster != cluster))
        });
        if queues.is_empty() {
            topics.remove(topic);
        }
    }

    /// Puts a topic onto brokers that are known; others are ignored.
    pub(crate) fn register_topic(&self, topic: &str, queues: Vec<QueueData>) {
        let mut inner = self.lock();
        let Inner { topics, groups, .. } = &mut *inner;
        for queues in queues.into_iter().filter(|queues| groups.contains_key(&queues.broker_name)) {
            topics.entry(topic.to_owned()).or_default().insert(queues.broker_name.clone(), queues);
        }
    }

    fn remove_where(&self, is_gone: impl Fn(&Live) -> bool) -> Vec<BrokerKey> {
        if host::mutant!("dead-brokers-kept") {
            return Vec::new();
        }
        let mut inner = self.lock();
        let gone: Vec<(BrokerKey, String)> = inner
            .live
            .iter()
            .filter(|(_, live)| is_gone(live))
            .map(|(broker, live)| (broker.clone(), live.name.clone()))
            .collect();
        for (broker, name) in &gone {
            inner.remove(broker, name);
        }
        gone.into_iter().map(|(broker, _)| broker).collect()
    }

    fn change_permissions(&self, name: &str, change: impl Fn(i32) -> i32) -> usize {
        let mut inner = self.lock();
        let queues = inner.topics.values_mut().filter_map(|queues| queues.get_mut(name));
        queues.map(|queues| queues.perm = change(queues.perm)).count()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the topics of a registration are taken.
struct TopicsRule {
    is_changed: bool,
    drop_missing: bool,
    wipes_write: bool,
}

impl Inner {
    /// Why a registration does not count, if it does not.
    fn refuse(&self, new: &Registration) -> Option<Registered> {
        let before = self.groups.get(&new.name).and_then(|group| group.addrs.get(&new.id));
        if let Some(addr) = before.filter(|addr| **addr != new.broker.addr) {
            let rival = BrokerKey { cluster: new.broker.cluster.clone(), addr: addr.clone() };
            if self.live.get(&rival).is_some_and(|live| live.version.state_version > new.version.state_version) {
                return Some(Registered::Outdated);
            }
        }
        (before.is_none() && new.topics.len() == 1).then_some(Registered::NotWhole)
    }

    fn take_topics(&mut self, name: &str, new: Vec<TopicConfig>, rule: TopicsRule) {
        if rule.drop_missing {
            let kept: BTreeSet<&str> = new.iter().map(|topic| topic.topic_name.as_str()).collect();
            self.topics.retain(|topic, queues| {
                if !kept.contains(topic.as_str()) {
                    queues.remove(name);
                }
                !queues.is_empty()
            });
        }
        for topic in new {
            let is_known = self.topics.get(&topic.topic_name).is_some_and(|queues| queues.contains_key(name));
            if is_known && !rule.is_changed {
                continue;
            }
            let queues = QueueData {
                broker_name: name.to_owned(),
                read_queue_nums: topic.read_queue_nums,
                write_queue_nums: topic.write_queue_nums,
                perm: if rule.wipes_write { topic.perm & !WRITE } else { topic.perm },
                topic_sys_flag: topic.topic_sys_flag,
            };
            self.topics.entry(topic.topic_name).or_default().insert(name.to_owned(), queues);
        }
    }

    fn remove(&mut self, broker: &BrokerKey, name: &str) {
        self.live.remove(broker);
        let Some(group) = self.groups.get_mut(name) else { return };
        group.addrs.retain(|_, addr| *addr != broker.addr);
        if group.addrs.is_empty() {
            self.groups.remove(name);
            self.topics.retain(|_, queues| {
                queues.remove(name);
                !queues.is_empty()
            });
        } else if group.acting_master && !group.addrs.contains_key(&MASTER) {
            for queues in self.topics.values_mut().filter_map(|queues| queues.get_mut(name)) {
                queues.perm &= !WRITE;
            }
        }
    }
}

impl Group {
    fn data(&self, name: &str) -> BrokerData {
        BrokerData {
            cluster: self.cluster.clone(),
            broker_name: name.to_owned(),
            broker_addrs: self.addrs.clone(),
            enable_acting_master: self.acting_master,
            zone_name: self.zone.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
