//! Faults: what happens, to whom, when, and for how long.

use std::time::Duration;

use super::units::Span;
use crate::disk::{DiskError, Hits, Media, Survival};

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

/// How full a disk is when nothing fills it any more, in percent.
pub const USUAL_FILL_PERCENT: u8 = 40;

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
    /// The same, recorded as a panic.
    Panic {
        /// The node.
        node: String,
    },
    /// All machines of a power domain lose their power at one moment.
    DomainPowerLoss {
        /// The domain.
        domain: String,
        /// Which unflushed pages survive; drawn for each disk if not given.
        style: Option<Survival>,
        /// What is lost reads old bytes of deleted files where it would read zeros.
        garbage: bool,
    },
    /// Members of a consumer group go and come in quick succession.
    RebalanceStorm {
        /// The group.
        group: String,
        /// How long it is from one going or coming to the next; drawn for each.
        every: Span<Duration>,
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
        /// What is lost reads old bytes of deleted files where it would read zeros.
        garbage: bool,
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
    /// The network between two ends is worse than usual.
    OnLink {
        /// Between whom.
        link: Link,
        /// Only connections to this port; all if not given.
        port: Option<Port>,
        /// What is wrong.
        what: LinkFault,
    },
    /// The network falls into parts.
    Partition {
        /// Which parts.
        shape: Shape,
        /// The node that the shape is about, if it is about one.
        node: Option<String>,
        /// Among whom, if the shape is about many.
        members: Option<Members>,
    },
    /// Connects to the node get no answer, as with a full backlog; open connections go on.
    AcceptFull {
        /// The node.
        node: String,
    },
    /// Connects of the node get no answer; open connections go on.
    ConnectHang {
        /// The node.
        node: String,
    },
    /// A topic gets more queues on each of its brokers.
    ConfigChange {
        /// The topic.
        topic: String,
        /// How many it has from then on.
        queues: u32,
    },
    /// A topic is read-only at a broker, which is how a broker is taken out of use: producers go elsewhere with their next
    /// look at the route, and what it has is still read.
    Drain {
        /// The node.
        node: String,
        /// The topic.
        topic: String,
    },
    /// An administrator has the broker delete the log files that have expired, whatever the hour.
    DeleteExpired {
        /// The node.
        node: String,
    },
    /// An operator gives a slave the place of its master, which stays away from then on.
    Promote {
        /// The slave.
        node: String,
    },
    /// Product code behaves unusually where it may (`host::buggify!`), on every node.
    Buggify {
        /// Where, by the names of [`BUGGIFY`](crate::points::BUGGIFY).
        names: Vec<String>,
        /// How many of a million visits.
        chance_ppm: u32,
    },
    /// Something else fills the disk.
    DiskFill {
        /// The node.
        node: String,
        /// Used space is brought to this percentage.
        percent: u8,
        /// How long that takes.
        ramp: Duration,
    },
    /// Calls on files go wrong.
    DiskError {
        /// The node.
        node: String,
        /// Which files, by their paths below the store; `*` stands for any run of characters.
        path: String,
        /// What goes wrong.
        error: DiskError,
        /// How often.
        hits: Hits,
    },
    /// The machine loses its power inside a flush, some of which is on the device then.
    TornFlush {
        /// The node.
        node: String,
        /// The flush of which files, by their paths below the store; `*` stands for any run of characters.
        path: String,
        /// Which of these flushes: the first that is hit.
        hits: Hits,
        /// How long it waits for that flush; `None` until the settle phase.
        within: Option<Duration>,
    },
    /// The device spoils what it holds.
    Media {
        /// The node.
        node: String,
        /// Which files, by their paths below the store; `*` stands for any run of characters.
        path: String,
        /// How.
        what: Media,
        /// How many pages.
        count: u32,
    },
    /// No request of the disk ends.
    DiskStall {
        /// The node.
        node: String,
    },
    /// The device is not there for a time: every call on a file fails, whoever touches a mapping dies.
    DiskGone {
        /// The node.
        node: String,
    },
    /// The machine loses power, and its disk is another one afterwards, on which nothing is.
    DiskReplaced {
        /// The node.
        node: String,
    },
    /// The machine loses power, and its disk has what it had at some time before.
    RestoreBackup {
        /// The node.
        node: String,
        /// When the backup is made.
        taken: Duration,
    },
    /// The process dies, and files that follow from the log are gone when it comes back.
    FilesLost {
        /// The node.
        node: String,
        /// Which files, by their paths below the store: consume queues or index files.
        path: String,
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
    /// A clock is wrong.
    Clock {
        /// The node.
        node: String,
        /// How.
        what: ClockFault,
        /// How the wall clock comes to show the right time again.
        back: Back,
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
    /// All names that `kind` may have in files.
    pub const NAMES: [&str; 51] = [
        "kill",
        "panic",
        "stop",
        "power-loss",
        "pause",
        "cut",
        "latency",
        "loss",
        "bandwidth",
        "slow-link",
        "flap",
        "conn-reset",
        "isolate",
        "clog",
        "halves",
        "minority",
        "bridge",
        "ring-majorities",
        "swizzle",
        "accept-full",
        "connect-hang",
        "disk-fill",
        "disk-slow",
        "disk-stall",
        "disk-gone",
        "disk-replaced",
        "files-lost",
        "restore-backup",
        "eio-read",
        "eio-write",
        "eio-flush",
        "short-write",
        "short-read",
        "mlock-refused",
        "torn-flush",
        "latent-sector",
        "bit-rot",
        "lost-write",
        "misdirected-write",
        "lying-flush",
        "skew",
        "drift",
        "step",
        "strobe",
        "clock-extreme",
        "rebalance-storm",
        "config-change",
        "buggify",
        "drain",
        "delete-expired",
        "promote",
    ];

    /// Its name in files.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            FaultKind::Kill { .. } => "kill",
            FaultKind::Panic { .. } => "panic",
            FaultKind::Stop { .. } => "stop",
            FaultKind::FilesLost { .. } => "files-lost",
            FaultKind::DomainPowerLoss { .. } => "power-loss",
            FaultKind::RebalanceStorm { .. } => "rebalance-storm",
            FaultKind::ConfigChange { .. } => "config-change",
            FaultKind::Buggify { .. } => "buggify",
            FaultKind::Drain { .. } => "drain",
            FaultKind::DeleteExpired { .. } => "delete-expired",
            FaultKind::Promote { .. } => "promote",
            FaultKind::PowerLoss { .. } => "power-loss",
            FaultKind::Pause { .. } => "pause",
            FaultKind::Cut { .. } => "cut",
            FaultKind::Latency { .. } => "latency",
            FaultKind::OnLink { what, .. } => what.name(),
            FaultKind::Partition { shape, .. } => shape.name(),
            FaultKind::AcceptFull { .. } => "accept-full",
            FaultKind::ConnectHang { .. } => "connect-hang",
            FaultKind::DiskFill { .. } => "disk-fill",
            FaultKind::DiskSlow { .. } => "disk-slow",
            FaultKind::DiskStall { .. } => "disk-stall",
            FaultKind::DiskReplaced { .. } => "disk-replaced",
            FaultKind::RestoreBackup { .. } => "restore-backup",
            FaultKind::DiskGone { .. } => error_name(DiskError::Gone),
            FaultKind::DiskError { error, .. } => error_name(*error),
            FaultKind::TornFlush { .. } => error_name(DiskError::TornFlush),
            FaultKind::Media { what, .. } => media_name(*what),
            FaultKind::Clock { what, .. } => what.name(),
            FaultKind::Hold { .. } => "hold",
        }
    }

    /// The node it is aimed at, unless it is aimed at a link or at many.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        match self {
            FaultKind::Kill { node }
            | FaultKind::Panic { node }
            | FaultKind::Stop { node }
            | FaultKind::PowerLoss { node, .. }
            | FaultKind::Pause { node }
            | FaultKind::AcceptFull { node }
            | FaultKind::ConnectHang { node }
            | FaultKind::DiskFill { node, .. }
            | FaultKind::DiskSlow { node, .. }
            | FaultKind::DiskStall { node }
            | FaultKind::Drain { node, .. }
            | FaultKind::DeleteExpired { node }
            | FaultKind::Promote { node }
            | FaultKind::DiskGone { node }
            | FaultKind::DiskReplaced { node }
            | FaultKind::FilesLost { node, .. }
            | FaultKind::RestoreBackup { node, .. }
            | FaultKind::DiskError { node, .. }
            | FaultKind::TornFlush { node, .. }
            | FaultKind::Media { node, .. }
            | FaultKind::Clock { node, .. } => Some(node),
            FaultKind::Hold { gate, .. } => Some(&gate.node),
            FaultKind::Partition { node, .. } => node.as_deref(),
            FaultKind::Cut { .. }
            | FaultKind::Latency { .. }
            | FaultKind::OnLink { .. }
            | FaultKind::DomainPowerLoss { .. }
            | FaultKind::RebalanceStorm { .. }
            | FaultKind::ConfigChange { .. }
            | FaultKind::Buggify { .. } => None,
        }
    }

    /// The link it is aimed at.
    #[must_use]
    pub fn link(&self) -> Option<&Link> {
        match self {
            FaultKind::Cut { link, .. } | FaultKind::Latency { link, .. } | FaultKind::OnLink { link, .. } => {
                Some(link)
            }
            _ => None,
        }
    }

    /// Whether it is about the disk of its node, which only brokers have one to speak of.
    #[must_use]
    pub fn needs_disk(&self) -> bool {
        matches!(
            self,
            FaultKind::DiskFill { .. }
                | FaultKind::DiskSlow { .. }
                | FaultKind::DiskStall { .. }
                | FaultKind::DiskGone { .. }
                | FaultKind::DiskReplaced { .. }
                | FaultKind::DeleteExpired { .. }
                | FaultKind::Promote { .. }
                | FaultKind::FilesLost { .. }
                | FaultKind::RestoreBackup { .. }
                | FaultKind::DiskError { .. }
                | FaultKind::TornFlush { .. }
                | FaultKind::Media { .. }
        )
    }

    /// Which key of a file says how long it lasts.
    #[must_use]
    pub fn lasting(&self) -> Lasting {
        match self {
            FaultKind::Kill { .. }
            | FaultKind::Panic { .. }
            | FaultKind::Stop { .. }
            | FaultKind::PowerLoss { .. }
            | FaultKind::TornFlush { .. }
            | FaultKind::DiskReplaced { .. }
            | FaultKind::FilesLost { .. }
            | FaultKind::RestoreBackup { .. }
            | FaultKind::DomainPowerLoss { .. } => Lasting::Down,
            FaultKind::OnLink { what: LinkFault::Reset, .. }
            | FaultKind::ConfigChange { .. }
            | FaultKind::DeleteExpired { .. }
            | FaultKind::Promote { .. } => Lasting::Moment,
            _ => Lasting::For,
        }
    }

    /// How long after its begin it may come into effect; `None` if nobody knows.
    #[must_use]
    pub fn waits(&self) -> Option<Duration> {
        match self {
            FaultKind::TornFlush { within, .. } => *within,
            _ => Some(Duration::ZERO),
        }
    }

    /// Whether it takes the power from a node.
    #[must_use]
    pub fn loses_power(&self) -> bool {
        matches!(
            self,
            FaultKind::PowerLoss { .. }
                | FaultKind::DomainPowerLoss { .. }
                | FaultKind::TornFlush { .. }
                | FaultKind::DiskReplaced { .. }
                | FaultKind::RestoreBackup { .. }
        )
    }

    /// The calls on files that it lets go wrong, by the paths of their files below the store. Each is recorded.
    #[must_use]
    pub fn failing_path(&self) -> Option<&str> {
        match self {
            FaultKind::DiskGone { .. } => Some("*"),
            FaultKind::DiskError { path, .. } | FaultKind::Media { path, .. } | FaultKind::TornFlush { path, .. } => {
                Some(path)
            }
            _ => None,
        }
    }

    /// What it counts in a run, by the names of [`COUNTS`](super::COUNTS), if it counts anything.
    #[must_use]
    pub fn counted_as(&self) -> Option<&'static str> {
        match self {
            FaultKind::OnLink { what: LinkFault::Loss(_), .. } => Some("segments-lost"),
            FaultKind::OnLink { what: LinkFault::Bandwidth(_) | LinkFault::Slow(_), .. } => Some("segments-slowed"),
            FaultKind::OnLink { what: LinkFault::Reset, .. } => Some("connections-reset"),
            FaultKind::AcceptFull { .. } | FaultKind::ConnectHang { .. } => Some("connects-ignored"),
            FaultKind::DiskSlow { .. } | FaultKind::DiskStall { .. } => Some("requests-slowed"),
            FaultKind::RebalanceStorm { .. } => Some("members-moved"),
            FaultKind::FilesLost { .. } => Some("files-lost"),
            FaultKind::Clock {
                what: ClockFault::Step(_) | ClockFault::Strobe { .. } | ClockFault::Extreme(_), ..
            } => Some("clock-steps"),
            _ => None,
        }
    }
}

/// What a kind is called that lets calls on files go wrong.
#[must_use]
pub fn error_name(error: DiskError) -> &'static str {
    match error {
        DiskError::Read => "eio-read",
        DiskError::Write => "eio-write",
        DiskError::ShortWrite => "short-write",
        DiskError::ShortRead => "short-read",
        DiskError::Flush => "eio-flush",
        DiskError::LostWrite => "lost-write",
        DiskError::MisdirectedWrite => "misdirected-write",
        DiskError::LyingFlush => "lying-flush",
        DiskError::TornFlush => "torn-flush",
        DiskError::Lock => "mlock-refused",
        DiskError::Gone => "disk-gone",
    }
}

/// What a kind is called that spoils what a device holds.
#[must_use]
pub fn media_name(what: Media) -> &'static str {
    match what {
        Media::BitRot => "bit-rot",
        Media::LatentSector => "latent-sector",
    }
}

/// How long a fault lasts, by the key that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// `down`: how long a node stays away.
    Down,
    /// `for`: how long it is in effect.
    For,
    /// It has no duration.
    Moment,
}

impl Lasting {
    /// The key.
    #[must_use]
    pub fn key(self) -> Option<&'static str> {
        match self {
            Lasting::Down => Some("down"),
            Lasting::For => Some("for"),
            Lasting::Moment => None,
        }
    }
}

/// What can be wrong with a link besides cuts and latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkFault {
    /// So many of a million segments are lost, and come later.
    Loss(u32),
    /// Not more than so many bytes a second pass.
    Bandwidth(u64),
    /// Everything takes so many times as long.
    Slow(u32),
    /// It is cut and whole by turns, cut first.
    Flap {
        /// How long it is whole.
        up: Span<Duration>,
        /// How long it is cut.
        down: Span<Duration>,
    },
    /// Every connection that is open now is reset: the receiving end of the link hears of it.
    Reset,
}

impl LinkFault {
    /// Its name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LinkFault::Loss(_) => "loss",
            LinkFault::Bandwidth(_) => "bandwidth",
            LinkFault::Slow(_) => "slow-link",
            LinkFault::Flap { .. } => "flap",
            LinkFault::Reset => "conn-reset",
        }
    }
}

/// What can be wrong with the clocks of a node (`spec/simulation.md` 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockFault {
    /// The wall clock is off by so many milliseconds from true time.
    Skew(i64),
    /// Both clocks run too fast by so many parts per million, or too slow if negative.
    Drift(i32),
    /// The wall clock jumps by so many milliseconds.
    Step(i64),
    /// The wall clock jumps to and fro.
    Strobe {
        /// By so many milliseconds.
        by_ms: i64,
        /// How long it stays where it is; drawn for each jump.
        every: Span<Duration>,
    },
    /// The wall clock jumps to a time at which programs go wrong.
    Extreme(Extreme),
}

impl ClockFault {
    /// Its name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ClockFault::Skew(_) => "skew",
            ClockFault::Drift(_) => "drift",
            ClockFault::Step(_) => "step",
            ClockFault::Strobe { .. } => "strobe",
            ClockFault::Extreme(_) => "clock-extreme",
        }
    }
}

/// Times at which programs go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extreme {
    /// Ten seconds before 1970 begins: the number of milliseconds is negative, and then it is not.
    Before1970,
    /// Ten seconds before the seconds since 1970 need a 32nd bit, in January 2038.
    After2038,
}

impl Extreme {
    /// All of them with their names in files.
    pub const NAMES: [(&'static str, Extreme); 2] =
        [("before-1970", Extreme::Before1970), ("after-2038", Extreme::After2038)];

    /// What the wall clock shows: milliseconds since 1970.
    #[must_use]
    pub fn wall_ms(self) -> i64 {
        match self {
            Extreme::Before1970 => -10_000,
            Extreme::After2038 => ((1 << 31) - 10) * 1_000,
        }
    }
}

/// How a wall clock that was wrong comes back to true time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Back {
    /// At once.
    Step,
    /// By running 500 ppm too fast or too slow. What is missing when the settle phase begins is made up by a step.
    Slew,
}

impl Back {
    /// Both with their names in files.
    pub const NAMES: [(&'static str, Back); 2] = [("step", Back::Step), ("slew", Back::Slew)];
}

/// Into which parts the network falls (`spec/simulation.md` 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// One node, and everyone else.
    Isolate,
    /// The same, but segments wait for the end instead of being lost.
    Clog,
    /// The first half of the members, and the second.
    Halves,
    /// The smallest possible majority of the members, and the others.
    Minority,
    /// Two halves that only the node still hears both of.
    Bridge,
    /// Each member hears a majority, and no two of them the same.
    RingMajorities,
    /// The members are isolated one by one, and come back one by one in another order.
    Swizzle,
}

impl Shape {
    /// All of them with their names in files.
    pub const NAMES: [(&'static str, Shape); 7] = [
        ("isolate", Shape::Isolate),
        ("clog", Shape::Clog),
        ("halves", Shape::Halves),
        ("minority", Shape::Minority),
        ("bridge", Shape::Bridge),
        ("ring-majorities", Shape::RingMajorities),
        ("swizzle", Shape::Swizzle),
    ];

    /// Its name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        Shape::NAMES.iter().find(|(_, shape)| *shape == self).expect("the list holds every shape").0
    }

    /// Whether it is about one node.
    #[must_use]
    pub fn has_node(self) -> bool {
        matches!(self, Shape::Isolate | Shape::Clog | Shape::Bridge)
    }

    /// How many members it needs beside the node; 0 if it has none.
    #[must_use]
    pub fn members_min(self) -> usize {
        match self {
            Shape::Isolate | Shape::Clog => 0,
            Shape::Halves | Shape::Bridge | Shape::Swizzle => 2,
            Shape::Minority => 3,
            Shape::RingMajorities => 4,
        }
    }
}

/// Who is parted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Members {
    /// Nodes, groups, or `*` for everyone; the order is to be drawn from the seed.
    Among(Vec<String>),
    /// Nodes in this order.
    Order(Vec<String>),
}

impl Members {
    /// The names as they stand in the file.
    #[must_use]
    pub fn names(&self) -> &[String] {
        match self {
            Members::Among(names) | Members::Order(names) => names,
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
