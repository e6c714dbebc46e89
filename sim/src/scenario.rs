//! What a scenario file says: the cluster, the workload, the faults, and what must hold.
//!
//! [`Scenario::parse`] reads a file strictly: an unknown key, a wrong unit, a node that does not exist are errors with
//! file, line, column and advice. [`Scenario::print`] writes one back; a plan (see [`crate::plan`]) is a scenario whose
//! every draw has been made, so it is printed by the same code and can be run again.
//!
//! A node is called `group/instance`, as in `broker-a/0`, `checkout/1` or `namesrv/0`. The format is a public
//! interface; `format` is its version.

mod check;
mod limits;
mod nemesis;
mod print;
mod reader;
mod storage;
mod tables;
pub mod units;

use std::{collections::BTreeMap, time::Duration};

pub use nemesis::Nemesis;
pub use reader::{At, ScenarioError};
use units::{Rate, Span};

/// The version of the format that this build reads and writes.
pub const FORMAT: u64 = 1;

/// The checkers by their names in files, which are also the keys of `[expect]` that bound their violations.
pub const CHECKERS: [&str; 7] = ["lost", "unread", "phantom", "dup-deliver", "order-store", "commit-regress", "stuck"];

/// What a broken `host::always!` is reported as; `verdict` may expect it like a checker.
pub const ALWAYS: &str = "always";

/// Counts that `at-least` may name: how often something happened that a scenario is about.
pub const COUNTS: [&str; 23] = [
    "sent",
    "acked",
    "info",
    "refused",
    "delivered",
    "finished",
    "redelivered",
    "retried-later",
    "legally-lost",
    "crashes",
    "stops",
    "pauses",
    "cuts",
    "dirty-pages-at-crash",
    "lost-pages",
    "torn-pages",
    "recoveries",
    "truncations",
    "files-deleted",
    "disk-full",
    "rebalances",
    "queues-moved",
    "offsets-loaded",
];

/// States that `sometimes` may name: each must be seen in at least one of many seeds.
pub const MARKS: [&str; 12] = [
    "torn-page",
    "pages-lost",
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

/// One broker group: for now a single master.
#[derive(Debug, Clone)]
pub struct BrokerGroup {
    /// The broker name.
    pub name: String,
    /// The role of each replica; the node of replica 0 is `name/0`.
    pub replicas: Vec<Role>,
    /// Capacity of the disk of each replica, in bytes.
    pub disk_bytes: u64,
    /// Settings of each replica.
    pub config: Settings,
}

/// What a replica is when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Acknowledges without waiting for slaves.
    AsyncMaster,
    /// Acknowledges when slaves have the message.
    SyncMaster,
}

impl Role {
    /// RocketMQ's name of the role.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::AsyncMaster => "ASYNC_MASTER",
            Role::SyncMaster => "SYNC_MASTER",
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
    /// Settings by RocketMQ's key names.
    pub config: Settings,
}

impl ConsumerGroup {
    /// The most members it ever has.
    #[must_use]
    pub fn most_instances(&self) -> u32 {
        self.scale.iter().map(|step| step.instances).max().unwrap_or(0).max(self.instances)
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

/// A fault.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Its name in the history; unique in the file.
    pub id: String,
    /// When it happens.
    pub when: When,
    /// What happens.
    pub kind: FaultKind,
    /// How long it lasts; `None` until the settle phase heals it. For a crash: how long the node stays down.
    pub lasts: Option<Span<Duration>>,
}

/// When a fault happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// At a time drawn from a range.
    At(Span<Duration>),
    /// When a node passes a point of the program for the `nth` time since the active phase began, counted over all
    /// its lives. The fault is in effect before the passing code goes on.
    On {
        /// The name of the point (see [`crate::points`]), such as `store.flushed`.
        point: String,
        /// The node.
        node: String,
        /// Which visit, from 1.
        nth: u32,
    },
}

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// The process dies; its page cache stays.
    Kill {
        /// The node.
        node: String,
    },
    /// The process is asked to stop, and does.
    Stop {
        /// The node.
        node: String,
    },
    /// The machine loses power: what was not flushed may be gone.
    PowerLoss {
        /// The node.
        node: String,
        /// Which unflushed pages survive; drawn if not given.
        style: Option<Survival>,
    },
    /// The process is frozen; messages to it pile up.
    Pause {
        /// The node.
        node: String,
    },
    /// Bytes do not pass.
    Cut {
        /// Between whom.
        link: Link,
        /// Only connections to this port; all if not given.
        port: Option<Port>,
        /// Bytes in flight wait for the end of the cut instead of being sent again.
        hold: bool,
    },
    /// Bytes take longer.
    Latency {
        /// Between whom.
        link: Link,
        /// How much longer, each way.
        extra: Span<Duration>,
    },
    /// Something else fills the disk.
    DiskFill {
        /// The node.
        node: String,
        /// Used space is brought to this percentage.
        percent: u8,
    },
    /// Reads, writes and flushes take longer.
    DiskSlow {
        /// The node.
        node: String,
        /// How many times longer.
        factor: u32,
    },
    /// Whoever reaches a gate of the program waits there.
    Hold {
        /// The gate and its node.
        gate: Gate,
        /// The fault whose begin lets everyone go on; `None` if only time does.
        until: Option<String>,
    },
    /// The wall clock is wrong.
    Skew {
        /// The node.
        node: String,
        /// By how much, in milliseconds.
        by_ms: i64,
    },
}

impl Fault {
    /// Whether a point of the program begins it, rather than time.
    #[must_use]
    pub fn is_triggered(&self) -> bool {
        matches!(self.when, When::On { .. }) || matches!(self.kind, FaultKind::Hold { .. })
    }

    /// The fault that it needs in the same scenario.
    #[must_use]
    pub fn needs(&self) -> Option<&str> {
        match &self.kind {
            FaultKind::Hold { until, .. } => until.as_deref(),
            _ => None,
        }
    }
}

impl FaultKind {
    /// Its name in files.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            FaultKind::Kill { .. } => "kill",
            FaultKind::Stop { .. } => "stop",
            FaultKind::PowerLoss { .. } => "power-loss",
            FaultKind::Pause { .. } => "pause",
            FaultKind::Cut { .. } => "cut",
            FaultKind::Latency { .. } => "latency",
            FaultKind::DiskFill { .. } => "disk-fill",
            FaultKind::DiskSlow { .. } => "disk-slow",
            FaultKind::Skew { .. } => "skew",
            FaultKind::Hold { .. } => "hold",
        }
    }

    /// The node it is aimed at, unless it is aimed at a link.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        match self {
            FaultKind::Kill { node }
            | FaultKind::Stop { node }
            | FaultKind::PowerLoss { node, .. }
            | FaultKind::Pause { node }
            | FaultKind::DiskFill { node, .. }
            | FaultKind::DiskSlow { node, .. }
            | FaultKind::Skew { node, .. } => Some(node),
            FaultKind::Hold { gate, .. } => Some(&gate.node),
            FaultKind::Cut { .. } | FaultKind::Latency { .. } => None,
        }
    }
}

/// A place of the program where a node can be held, and from which visit on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// Its name, one of [`crate::points::GATES`].
    pub point: String,
    /// The node.
    pub node: String,
    /// The first visit that is held, from 1; later ones are too, until the gate opens.
    pub nth: u32,
}

/// Which unflushed pages survive a power loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// None of them.
    AllOld,
    /// All of them.
    AllNew,
    /// Those written first.
    Prefix,
    /// Each by its own draw.
    Independent,
    /// Neighbours share their fate.
    Runs,
}

impl Survival {
    /// All styles with their names in files.
    pub const NAMES: [(&'static str, Survival); 5] = [
        ("all-old", Survival::AllOld),
        ("all-new", Survival::AllNew),
        ("prefix-by-write-order", Survival::Prefix),
        ("independent", Survival::Independent),
        ("runs", Survival::Runs),
    ];
}

/// Two ends and a direction. An end is a node, a group, or `*` for everyone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The sending end.
    pub from: String,
    /// The receiving end.
    pub to: String,
    /// Both directions.
    pub both: bool,
}

/// A service of a node, by its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// What clients of a broker use.
    Client,
    /// What slaves of a broker use.
    Ha,
    /// What everyone uses at a name server.
    Namesrv,
}

impl Port {
    /// All of them with their names in files.
    pub const NAMES: [(&'static str, Port); 3] =
        [("client", Port::Client), ("ha", Port::Ha), ("namesrv", Port::Namesrv)];

    /// The number of the port on the stand.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Port::Client => 10911,
            Port::Ha => 10912,
            Port::Namesrv => 9876,
        }
    }
}

/// What must hold.
#[derive(Debug, Clone, Default)]
pub struct Expect {
    /// The checker that must fail, for planted bugs and known limits; `None` if all must pass.
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

    /// Whether a broker group acknowledges only what is on its disk.
    #[must_use]
    pub fn flushes_before_ack(&self, broker: &str) -> bool {
        let key = |(key, value): &(String, String)| key == "flushDiskType" && value.eq_ignore_ascii_case("SYNC_FLUSH");
        self.broker(broker).is_some_and(|group| group.config.iter().any(key))
    }
}

#[cfg(test)]
mod tests;
