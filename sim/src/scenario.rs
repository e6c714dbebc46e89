//! What a scenario file says: the cluster, the workload, the faults, and what must hold.
//!
//! [`Scenario::parse`] reads a file strictly: an unknown key, a wrong unit, a node that does not exist are errors with
//! file, line, column and advice. [`Scenario::print`] writes one back; a plan (see [`crate::plan`]) is a scenario whose
//! every draw has been made, so it is printed by the same code and can be run again.
//!
//! A node is called `group/instance`, as in `broker-a/0`, `checkout/1` or `namesrv/0`. The format is a public
//! interface; `format` is its version.

mod check;
mod fault;
mod file_system;
mod kinds;
mod limits;
mod nemesis;
mod print;
mod reader;
mod storage;
mod tables;
pub mod units;

use std::{collections::BTreeMap, time::Duration};

pub use fault::{
    Back, ClockFault, Extreme, Fault, FaultKind, Gate, Lasting, Link, LinkFault, Members, Port, Shape, When,
};
pub use fault::{USUAL_FILL_PERCENT, error_name, media_name};
pub use file_system::FileSystem;
pub use nemesis::{Nemesis, Vary};
pub use reader::{At, ScenarioError};
pub(crate) use tables::MOST_QUEUES;
use units::{Rate, Span};

/// The version of the format that this build reads and writes.
pub const FORMAT: u64 = 1;

/// The checkers by their names in files, which are also the keys of `[expect]` that bound their violations.
pub const CHECKERS: [&str; 21] = [
    "lost",
    "unread",
    "phantom",
    "aborted",
    "filter",
    "dup-store",
    "dup-deliver",
    "two-at-offset",
    "order-store",
    "visible-before-safe",
    "skip",
    "backwards",
    "early",
    "late",
    "retry",
    "commit-regress",
    "route",
    "store-audit",
    "replica-equal",
    "leak",
    "stuck",
];

/// What a broken `host::always!` is reported as; `verdict` may expect it like a checker.
pub const ALWAYS: &str = "always";

/// What `verdict` may expect to fail besides the checkers, by what a problem with it is about.
pub const FAILURES: [&str; 7] = [ALWAYS, "converged", "exit", "legally-lost", "limit", "panic", "stop-killed"];

/// Counts that `at-least` may name: how often something happened that a scenario is about.
pub const COUNTS: [&str; 51] = [
    "sent",
    "acked",
    "info",
    "refused",
    "delivered",
    "finished",
    "redelivered",
    "retried-later",
    "dead-letters",
    "legally-lost",
    "crashes",
    "panics",
    "stops",
    "pauses",
    "cuts",
    "segments-lost",
    "segments-slowed",
    "connections-reset",
    "connects-ignored",
    "clock-steps",
    "read-errors",
    "write-errors",
    "flush-errors",
    "short-writes",
    "short-reads",
    "locks-refused",
    "damaged-pages",
    "lost-writes",
    "misdirected-writes",
    "lying-flushes",
    "torn-flushes",
    "requests-slowed",
    "disks-gone",
    "disks-replaced",
    "backups-restored",
    "dirty-pages-at-crash",
    "lost-pages",
    "torn-pages",
    "garbage-pages",
    "recoveries",
    "truncations",
    "files-deleted",
    "disk-full",
    "rebalances",
    "queues-moved",
    "members-moved",
    "files-lost",
    "config-changes",
    "deletions-asked",
    "promotions",
    "offsets-loaded",
];

/// States that `sometimes` may name: each must be seen in at least one of many seeds.
pub const MARKS: [&str; 13] = [
    "torn-page",
    "pages-lost",
    "garbage",
    "rebalance",
    "offset-recovered",
    "legally-lost",
    "redelivered",
    "retried-later",
    "truncated",
    "files-deleted",
    "disk-full",
    "refused",
    "send-info",
];

/// A whole scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The name of the file without `.toml`.
    pub name: String,
    /// One or two sentences on what it proves.
    pub about: String,
    /// How long faults may happen.
    pub active: Duration,
    /// How long the healed cluster has to converge.
    pub settle: Duration,
    /// Seeds that the file pins.
    pub seeds: SeedPins,
    /// How many name servers there are; named `namesrv/0`, `namesrv/1`, …
    pub namesrvs: u32,
    /// Settings of every name server, by RocketMQ's key names.
    pub namesrv_config: Settings,
    /// The broker groups.
    pub brokers: Vec<BrokerGroup>,
    /// What the deployment promises to survive.
    pub claim: Vec<Survives>,
    /// Who loses power together.
    pub domains: Vec<PowerDomain>,
    /// The topics, made before the workload starts.
    pub topics: Vec<Topic>,
    /// The producers.
    pub producers: Vec<ProducerGroup>,
    /// The consumer groups.
    pub consumers: Vec<ConsumerGroup>,
    /// The faults, in file order.
    pub faults: Vec<Fault>,
    /// Random faults on top of them; a plan has none.
    pub nemesis: Option<Nemesis>,
    /// Nodes that do not come back in the settle phase if they are down when it begins.
    pub permanent: Vec<String>,
    /// What must hold.
    pub expect: Expect,
    /// What the file holds without effect, each with its place in one line.
    pub warnings: Vec<String>,
}

/// Settings by RocketMQ's key names, in file order. Values are texts as in a `broker.conf`.
pub type Settings = Vec<(String, String)>;

/// Seeds that a file pins. What is not pinned derives from the root seed, which the command line may give.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeedPins {
    /// The seed that the others derive from.
    pub root: Option<u64>,
    /// Times and sizes that the plan draws.
    pub plan: Option<u64>,
    /// What the workload draws while it runs.
    pub work: Option<u64>,
    /// Network latencies and the like.
    pub net: Option<u64>,
    /// What survives a power loss, and disk latencies.
    pub disk: Option<u64>,
    /// Wall clocks.
    pub clock: Option<u64>,
    /// The order of ready tasks.
    pub sched: Option<u64>,
}

/// One broker group: a master, and slaves that follow it.
#[derive(Debug, Clone)]
pub struct BrokerGroup {
    /// The broker name.
    pub name: String,
    /// The role of each replica; the node of replica 0, the master, is `name/0`.
    pub replicas: Vec<Role>,
    /// Capacity of the disk of each replica, in bytes.
    pub disk_bytes: u64,
    /// What the file system of each replica promises.
    pub file_system: FileSystem,
    /// Settings of each replica.
    pub config: Settings,
}

/// The value of a key of RocketMQ's, as it is written.
#[must_use]
pub fn setting<'a>(settings: &'a Settings, key: &str) -> Option<&'a str> {
    settings.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

impl BrokerGroup {
    /// The value of a key of RocketMQ's, as it is written.
    #[must_use]
    pub fn setting(&self, key: &str) -> Option<&str> {
        setting(&self.config, key)
    }

    /// How many bytes a file of its commit log has: `mappedFileSizeCommitLog`, or RocketMQ's default.
    #[must_use]
    pub fn log_file_bytes(&self) -> u64 {
        const DEFAULT: u64 = 1 << 30;
        let value = self.setting("mappedFileSizeCommitLog");
        let bytes = value.and_then(|text| text.parse().ok().or_else(|| units::parse_size(text).ok()));
        bytes.filter(|bytes| *bytes > 0).unwrap_or(DEFAULT)
    }
}

/// What a replica is when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Acknowledges without waiting for slaves.
    AsyncMaster,
    /// Acknowledges when slaves have the message.
    SyncMaster,
    /// Follows the master.
    Slave,
}

impl Role {
    /// RocketMQ's name of the role.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::AsyncMaster => "ASYNC_MASTER",
            Role::SyncMaster => "SYNC_MASTER",
            Role::Slave => "SLAVE",
        }
    }
}

/// One kind of fault that the deployment promises to survive, at most `count` at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survives {
    /// The kind of fault.
    pub kind: String,
    /// How many nodes at a time; `None` for any number.
    pub count: Option<u32>,
}

/// Machines that lose their power together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PowerDomain {
    /// Its name.
    pub name: String,
    /// Nodes and groups in it.
    pub nodes: Vec<String>,
}

/// A topic.
#[derive(Debug, Clone)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Queues on each of its broker groups.
    pub queues: u32,
    /// The broker groups that hold it.
    pub brokers: Vec<String>,
}

impl Topic {
    /// Whether a node is of a broker group that holds it.
    #[must_use]
    pub fn is_at(&self, node: &str) -> bool {
        node.rsplit_once('/').is_some_and(|(group, _)| self.brokers.iter().any(|broker| broker == group))
    }
}

/// Producers that share a group name, a topic and a load.
#[derive(Debug, Clone)]
pub struct ProducerGroup {
    /// The group; its nodes are `group/0`, `group/1`, …
    pub group: String,
    /// How many producers.
    pub instances: u32,
    /// Where they send to.
    pub topic: String,
    /// How a message is sent.
    pub mode: SendMode,
    /// Settings by RocketMQ's key names.
    pub config: Settings,
    /// What is sent when.
    pub load: Load,
}

/// How messages are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendMode {
    /// Wait for the answer, retry on another broker.
    Sync,
    /// Several messages in one request; waits for the answer.
    Batch {
        /// How many messages go together.
        size: u32,
    },
    /// Send and forget: the outcome is never known.
    Oneway,
}

/// What producers send.
#[derive(Debug, Clone)]
pub enum Load {
    /// To be drawn from the seed.
    Drawn {
        /// How many messages each producer sends per time.
        rate: Rate,
        /// The size of a body, in bytes.
        body_bytes: Span<u64>,
        /// A message carries one of these, if there are any.
        tags: Vec<String>,
        /// When the first message may be sent.
        start: Duration,
        /// No message is sent from here on.
        end: Duration,
    },
    /// Spelt out, in order of time.
    Planned(Vec<Send>),
}

/// One message that a producer sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Send {
    /// The number of the message within its producer. Never renumbered when others are removed.
    pub n: u32,
    /// Which producer of the group.
    pub by: u32,
    /// When.
    pub at: Duration,
    /// Length of the body.
    pub body_bytes: u64,
    /// Its tag, if it carries one.
    pub tag: Option<String>,
}

/// A consumer group.
#[derive(Debug, Clone)]
pub struct ConsumerGroup {
    /// The group; its nodes are `group/0`, `group/1`, …
    pub group: String,
    /// How many members it has when it joins.
    pub instances: u32,
    /// When the first members start.
    pub join: Duration,
    /// Later sizes of the group. Members with the highest numbers leave first, by a clean shutdown.
    pub scale: Vec<Scale>,
    /// The topic it consumes.
    pub topic: String,
    /// Which tags, or all of them if empty.
    pub tags: Vec<String>,
    /// How long a listener works on one message.
    pub handling: Span<Duration>,
    /// How many of a hundred first deliveries a listener refuses, so that the message is retried later.
    pub later_percent: u8,
    /// How often a message that was refused is refused in all, at its first deliveries.
    pub later_times: u32,
    /// Settings by RocketMQ's key names.
    pub config: Settings,
}

impl ConsumerGroup {
    /// The most members it ever has.
    #[must_use]
    pub fn most_instances(&self) -> u32 {
        self.scale.iter().map(|step| step.instances).max().unwrap_or(0).max(self.instances)
    }

    /// How often a message may be given back: after that it is a dead letter. Source: `spec/client.md` 6.1.
    #[must_use]
    pub fn retries_most(&self) -> u32 {
        const DEFAULT: u32 = 16;
        setting(&self.config, "maxReconsumeTimes").and_then(|most| most.parse().ok()).unwrap_or(DEFAULT)
    }

    /// Whether a message with this tag is for the group.
    #[must_use]
    pub fn wants(&self, tag: Option<&str>) -> bool {
        self.tags.is_empty() || tag.is_some_and(|tag| self.tags.iter().any(|wanted| wanted == tag))
    }
}

/// A new size of a consumer group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// When.
    pub at: Duration,
    /// How many members from then on.
    pub instances: u32,
}

/// What must hold.
#[derive(Debug, Clone, Default)]
pub struct Expect {
    /// What must fail, for planted bugs and known limits: a checker, or one of [`FAILURES`]; `None` if all must pass.
    pub fails: Option<String>,
    /// Within how many seeds, from 0 on, it must fail at least once.
    pub within: u32,
    /// How many violations of a checker are allowed, by its name; and a bound on legal losses as `legally-lost`.
    /// What is not listed allows none, except legal losses.
    pub bounds: BTreeMap<String, Span<u64>>,
    /// How soon after the heal everything must have converged.
    pub converged: Option<Duration>,
    /// Marks that at least one of many seeds must reach.
    pub sometimes: Vec<String>,
    /// The least that must have happened in every run.
    pub at_least: BTreeMap<String, u64>,
    /// The checkers that must have had something to check; `None` if all must.
    pub must_check: Option<Vec<String>>,
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A name server.
    Namesrv,
    /// A broker.
    Broker,
    /// A producer.
    Producer,
    /// A member of a consumer group.
    Consumer,
}

impl Scenario {
    /// Every node of the scenario: name and kind, in the order of the file.
    #[must_use]
    pub fn nodes(&self) -> Vec<(String, Kind)> {
        let mut nodes = Vec::new();
        let mut add = |group: &str, count: usize, kind| {
            nodes.extend((0..count).map(|instance| (format!("{group}/{instance}"), kind)));
        };
        add("namesrv", self.namesrvs as usize, Kind::Namesrv);
        for group in &self.brokers {
            add(&group.name, group.replicas.len(), Kind::Broker);
        }
        for group in &self.producers {
            add(&group.group, group.instances as usize, Kind::Producer);
        }
        for group in &self.consumers {
            add(&group.group, group.most_instances() as usize, Kind::Consumer);
        }
        nodes
    }

    /// The nodes that an end of a link names: one node, a whole group, or everyone.
    #[must_use]
    pub fn end_of_link(&self, end: &str) -> Vec<String> {
        let of_group = |name: &str| name.rsplit_once('/').is_some_and(|(group, _)| group == end);
        let nodes = self.nodes().into_iter().map(|(name, _)| name);
        nodes.filter(|name| end == "*" || name == end || of_group(name)).collect()
    }

    /// The members of a partition, each once; in the order of the scenario if theirs is to be drawn.
    #[must_use]
    pub fn members(&self, members: &Members, without: Option<&str>) -> Vec<String> {
        let mut found = match members {
            Members::Order(names) => names.clone(),
            Members::Among(ends) => {
                let named: Vec<String> = ends.iter().flat_map(|end| self.end_of_link(end)).collect();
                self.nodes().into_iter().map(|(name, _)| name).filter(|name| named.contains(name)).collect()
            }
        };
        found.retain(|name| Some(name.as_str()) != without);
        found
    }

    /// Whether those are there whom a fault is about, if it is about a topic, a group or many nodes; of a group that goes
    /// and comes, more than the one who stays.
    #[must_use]
    pub fn has_whom(&self, kind: &FaultKind) -> bool {
        match kind {
            FaultKind::DomainPowerLoss { domain, .. } => self.domains.iter().any(|other| other.name == *domain),
            FaultKind::RebalanceStorm { group, .. } => {
                self.consumers.iter().any(|other| other.group == *group && other.most_instances() > 1)
            }
            FaultKind::Drain { node, topic } => {
                self.topics.iter().any(|other| other.name == *topic && other.is_at(node))
            }
            FaultKind::ConfigChange { topic, .. } => self.topics.iter().any(|other| other.name == *topic),
            FaultKind::Partition { shape, node, members: Some(members) } => {
                let is_there = |name: &String| !self.end_of_link(name).is_empty();
                members.names().iter().all(is_there)
                    && self.members(members, node.as_deref()).len() >= shape.members_min()
            }
            _ => true,
        }
    }

    /// The nodes of a power domain, in the order of the scenario.
    #[must_use]
    pub fn nodes_of_domain(&self, name: &str) -> Vec<String> {
        let domain = self.domains.iter().find(|domain| domain.name == name);
        domain.map_or(Vec::new(), |domain| self.members(&Members::Among(domain.nodes.clone()), None))
    }

    /// The node that both ends of a link name, if they name this one only.
    #[must_use]
    pub fn only_node_of(&self, link: &Link) -> Option<String> {
        let (mut from, to) = (self.end_of_link(&link.from), self.end_of_link(&link.to));
        if from.len() == 1 && from == to { from.pop() } else { None }
    }

    /// The broker group of this name.
    #[must_use]
    pub fn broker(&self, name: &str) -> Option<&BrokerGroup> {
        self.brokers.iter().find(|group| group.name == name)
    }

    /// The consumer group of this name.
    #[must_use]
    pub fn consumer(&self, name: &str) -> Option<&ConsumerGroup> {
        self.consumers.iter().find(|group| group.group == name)
    }

    /// Whether a message that a consumer group has given back so often may not be given back again.
    #[must_use]
    pub fn is_last_time(&self, group: &str, times: u32) -> bool {
        self.consumer(group).is_some_and(|group| times >= group.retries_most())
    }

    /// Whether a broker group shows to consumers only what is on its disk.
    #[must_use]
    pub fn hides_unflushed(&self, broker: &str) -> bool {
        let shows = |group: &BrokerGroup| {
            group.setting("readUnCommitted").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        };
        self.flushes_before_ack(broker) && !self.broker(broker).is_some_and(shows)
    }

    /// How often a producer, by its number over the whole scenario, may try to send one message.
    #[must_use]
    pub fn tries_most(&self, producer: u32) -> u32 {
        const DEFAULT_RETRIES: u32 = 2;
        let mut first = 0;
        let group = self.producers.iter().find(|group| {
            first += group.instances;
            producer < first
        });
        let retries = group.and_then(|group| setting(&group.config, "retryTimesWhenSendFailed"));
        retries.and_then(|retries| retries.parse().ok()).unwrap_or(DEFAULT_RETRIES).saturating_add(1)
    }

    /// Whether a scenario must give a checker something to check. Failed sends and retries nobody can promise.
    #[must_use]
    pub fn feeds(&self, checker: &str) -> bool {
        match checker {
            "aborted" | "early" | "late" | "retry" | "route" => false,
            "replica-equal" => self.brokers.iter().any(|group| self.has_slave_at_the_end(group)),
            "visible-before-safe" => self.brokers.iter().any(|group| self.hides_unflushed(&group.name)),
            _ => true,
        }
    }

    /// Whether a broker group acknowledges only what is on its disk.
    #[must_use]
    pub fn flushes_before_ack(&self, broker: &str) -> bool {
        let flush = self.broker(broker).and_then(|group| group.setting("flushDiskType"));
        flush.is_some_and(|value| value.eq_ignore_ascii_case("SYNC_FLUSH"))
    }

    /// Whether a group has a slave that follows a master when all is healed.
    fn has_slave_at_the_end(&self, group: &BrokerGroup) -> bool {
        let promotes = |fault: &Fault| matches!(fault.kind, FaultKind::Promote { .. });
        let promoted = self.faults.iter().filter(|fault| promotes(fault)).filter_map(|fault| fault.kind.node());
        let is_promoted = promoted.filter_map(|node| node.rsplit_once('/')).any(|(name, _)| name == group.name);
        group.replicas.len() > 1 + usize::from(is_promoted)
    }

    /// How many copies a broker group promises with an acknowledgement. Source: `spec/replication.md` HO07.
    #[must_use]
    pub fn copies_promised(&self, broker: &str) -> u32 {
        let Some(group) = self.broker(broker).filter(|group| group.replicas[0] == Role::SyncMaster) else { return 1 };
        group.setting("inSyncReplicas").and_then(|value| value.parse().ok()).unwrap_or(2)
    }

    /// Whether a broker group acknowledges what is in a buffer of its process only.
    #[must_use]
    pub fn acks_from_memory(&self, broker: &str) -> bool {
        let pool = self.broker(broker).and_then(|group| group.setting("transientStorePoolEnable"));
        pool.is_some_and(|value| value == "true") && !self.flushes_before_ack(broker)
    }
}

#[cfg(test)]
mod tests;
