//! What the workload did, sorted by message.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    checkers::Logs,
    history::{Down, Event, History, Look, MessageId, NodeRef, QueueRef},
    scenario::{BrokerGroup, ConsumerGroup, Fault, FaultKind, LinkFault, Scenario},
};

/// One message that a producer began to send.
pub(super) struct Sent<'a> {
    /// The record of the beginning.
    pub invoke: usize,
    /// What it looked like.
    pub look: &'a Look,
    /// Where it is, if it was acknowledged.
    pub stored: Option<Stored>,
    /// The record that says it certainly was not stored.
    pub failed: Option<usize>,
    /// How often its producer tried, if it told.
    pub tries: Option<u32>,
}

/// Where an acknowledged message is.
#[derive(Clone, Copy)]
pub(super) struct Stored {
    /// The record of the acknowledgement.
    pub ok: usize,
    /// Its queue.
    pub queue: QueueRef,
    /// Its offset there.
    pub offset: u64,
    /// Where its record begins in the log, if the broker told.
    pub phy: Option<u64>,
}

/// One call of a listener.
pub(super) struct Delivery<'a> {
    /// The record of its beginning.
    pub index: usize,
    /// When, in virtual nanoseconds.
    pub at: u64,
    /// Where.
    pub node: NodeRef,
    /// The message, if it is of the workload.
    pub message: Option<MessageId>,
    /// Where it came from.
    pub queue: QueueRef,
    /// At which offset.
    pub offset: u64,
    /// What it looked like.
    pub look: &'a Look,
    /// How often it had come again before, as it says itself.
    pub times: u32,
    /// The record of its end, and whether the message is finished.
    pub done: Option<(usize, bool)>,
}

impl Delivery<'_> {
    /// The record that refused it.
    pub fn nacked_at(&self) -> Option<usize> {
        self.done.filter(|(_, finished)| !finished).map(|(index, _)| index)
    }
}

/// A value of a committed offset that the prober saw.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// The record.
    pub index: usize,
    /// When, in virtual nanoseconds.
    pub at: u64,
    /// The offset.
    pub offset: u64,
}

/// A member took a queue over, or gave it up.
#[derive(Clone, Copy)]
pub(super) struct Move {
    /// The record.
    pub index: usize,
    /// When.
    pub at: u64,
    /// Which queue.
    pub queue: QueueRef,
    /// It took it over.
    pub takes_over: bool,
}

/// Whether it belongs to the life of a node, or to what that leaves on its disk.
fn is_of_life(event: &Event) -> bool {
    use Event::{DiskError, NodeDown, NodeUp, Point};
    matches!(event, NodeUp | NodeDown(..) | DiskError(..) | Point("broker.offsets-persisted", _))
}

/// A fault in effect that silences nodes.
struct Silence {
    since: u64,
    /// When a name server started first meanwhile, which does not know the silent brokers that others still name.
    forgotten: Option<u64>,
}

/// What brokers have not saved, so that a stop does not differ from a crash.
#[derive(Default)]
struct Unsaved {
    /// Since when they write nothing more, because a file failed that they cannot do without.
    fenced: BTreeMap<NodeRef, u64>,
    /// Those whose last writing of offsets went wrong.
    offsets: BTreeSet<NodeRef>,
}

/// Everything sorted.
pub(crate) struct Facts<'a> {
    scenario: &'a Scenario,
    /// The messages.
    pub(super) sends: BTreeMap<MessageId, Sent<'a>>,
    /// All deliveries in order.
    pub(super) all_deliveries: Vec<Delivery<'a>>,
    /// Numbers of deliveries by group and message, in order.
    by_message: BTreeMap<(&'a str, MessageId), Vec<usize>>,
    /// Committed offsets by group and queue, in order.
    pub(super) commits: BTreeMap<(&'a str, QueueRef), Vec<Seen>>,
    /// Records where a process died, was stopped or ended, by node.
    pub(super) downs: BTreeMap<NodeRef, Vec<(usize, u64, Down)>>,
    /// Records where a process started, by node.
    pub(super) ups: BTreeMap<NodeRef, Vec<(usize, u64)>>,
    /// Records where a consumer took over or gave up a queue, by node.
    pub(super) moves: BTreeMap<NodeRef, Vec<Move>>,
    /// Records where a consumer went on at another offset than it had meant to, by node, with that offset.
    pub(super) corrections: BTreeMap<NodeRef, Vec<(usize, u64, u64)>>,
    /// From when until when something went on that can change what members know of their group and of routes. Mostly
    /// it is a moment.
    pub(super) disturbances: Vec<(u64, u64)>,
    /// From when until when a fault may have kept a node from writing to its disk at all, by the node's name.
    hindered: BTreeMap<&'a str, Vec<(u64, u64)>>,
    /// From when until when the network may have kept what was sent before, in order.
    pub(super) under_way: Vec<(u64, u64)>,
}

/// How soon after a node fell silent brokers and name servers may take it for gone: 120 s after they heard of it last,
/// which was up to 30 s before. Source: `spec/client.md` 1.5, 8.4.
const MISSED_NANOS: u64 = (120 - 30) * 1_000_000_000;

/// Kinds of faults that silence a node without closing its connections.
const SILENT_FAULTS: [&str; 18] = [
    "power-loss",
    "disk-replaced",
    "restore-backup",
    "pause",
    "cut",
    "latency",
    "flap",
    "isolate",
    "clog",
    "halves",
    "minority",
    "bridge",
    "ring-majorities",
    "swizzle",
    "bandwidth",
    "slow-link",
    "accept-full",
    "connect-hang",
];

impl<'a> Facts<'a> {
    fn of_faults(scenario: &'a Scenario, history: &History) -> Facts<'a> {
        Facts {
            scenario,
            sends: BTreeMap::new(),
            all_deliveries: Vec::new(),
            by_message: BTreeMap::new(),
            commits: BTreeMap::new(),
            downs: BTreeMap::new(),
            ups: BTreeMap::new(),
            moves: BTreeMap::new(),
            corrections: BTreeMap::new(),
            disturbances: Vec::new(),
            hindered: hindered(scenario, history),
            under_way: under_way(scenario, history),
        }
    }

    pub fn collect(scenario: &'a Scenario, history: &'a History) -> Facts<'a> {
        let mut facts = Facts::of_faults(scenario, history);
        // Listener calls that have not ended, by node, life, queue and offset.
        let mut open = BTreeMap::new();
        let mut silences = BTreeMap::new();
        let mut unsaved = Unsaved::default();
        for (index, record) in history.records.iter().enumerate() {
            let (node, life) = record.node.unwrap_or((NodeRef(u32::MAX), 0));
            let restarts = life > 1 && group_of(history.node(node)) == "namesrv";
            facts.disturbed(record.at, &record.event, restarts, &mut silences);
            match &record.event {
                Event::Deliver { message, queue, offset, look, times } => {
                    open.insert((node, life, *queue, *offset), facts.all_deliveries.len());
                    facts.delivered(
                        history,
                        Delivery {
                            index,
                            at: record.at,
                            node,
                            message: *message,
                            queue: *queue,
                            offset: *offset,
                            look,
                            times: *times,
                            done: None,
                        },
                    );
                }
                Event::Ack(_, queue, offset) | Event::Nack(_, queue, offset) => {
                    if let Some(delivery) = open.remove(&(node, life, *queue, *offset)) {
                        let finished = matches!(record.event, Event::Ack(..));
                        facts.all_deliveries[delivery].done = Some((index, finished));
                    }
                }
                Event::Commit { group, queue, offset: Some(offset) } => {
                    let seen = Seen { index, at: record.at, offset: *offset };
                    facts.commits.entry((group.as_str(), *queue)).or_default().push(seen);
                }
                event if is_of_life(event) => {
                    facts.lived(history, (node, index, record.at), event, &mut unsaved);
                }
                Event::Assign(queue) | Event::Revoke(queue) => {
                    let takes_over = matches!(record.event, Event::Assign(_));
                    let moved = Move { index, at: record.at, queue: *queue, takes_over };
                    facts.moves.entry(node).or_default().push(moved);
                }
                Event::Point("client.position-corrected", to) => {
                    let to = u64::try_from(*to).unwrap_or(0);
                    facts.corrections.entry(node).or_default().push((index, record.at, to));
                }
                event => facts.sending(index, event),
            }
        }
        for (node, since) in unsaved.fenced {
            facts.hinder(history.node(node), since, u64::MAX);
        }
        facts.hindered.values_mut().for_each(|stretches| stretches.sort_unstable());
        facts
    }

    fn lived(
        &mut self,
        history: &'a History,
        (node, index, at): (NodeRef, usize, u64),
        event: &Event,
        Unsaved { fenced, offsets }: &mut Unsaved,
    ) {
        match event {
            Event::NodeUp => {
                offsets.remove(&node);
                if let Some(since) = fenced.remove(&node) {
                    self.hinder(history.node(node), since, at);
                }
                self.ups.entry(node).or_default().push((index, at));
            }
            Event::NodeDown(how, _) => {
                // A broker that writes nothing more saves no offsets either.
                let saves_nothing = fenced.contains_key(&node) || offsets.contains(&node);
                let how = if *how == Down::Stop && saves_nothing { Down::Kill } else { *how };
                self.downs.entry(node).or_default().push((index, at, how));
            }
            _ if event.fences_store() => {
                fenced.entry(node).or_insert(at);
            }
            Event::DiskError(_, path) if path.starts_with("config/consumerOffset.json") => {
                offsets.insert(node);
            }
            Event::Point(..) => {
                offsets.remove(&node);
            }
            _ => {}
        }
    }

    fn hinder(&mut self, node: &'a str, from: u64, until: u64) {
        self.hindered.entry(node).or_default().push((from, until));
    }

    /// The members of a group that were hindered, each with the stretches in which it was.
    pub(super) fn hindered_of(&self, group: &str) -> impl Iterator<Item = (&'a str, &[(u64, u64)])> {
        let all = self.hindered.iter().map(|(node, stretches)| (*node, stretches.as_slice()));
        all.filter(move |(node, _)| group_of(node) == group)
    }

    /// How much of a stretch of time a node could write to its disk.
    pub(super) fn unhindered_nanos(&self, node: &str, from: u64, until: u64) -> u64 {
        outside(self.hindered.get(node).into_iter().flatten(), from, until)
    }

    /// How much of a stretch of time a node ran and was heard at once.
    pub(super) fn heard_nanos(&self, node: &str, from: u64, until: u64) -> u64 {
        let mut all: Vec<_> = self.hindered.get(node).into_iter().flatten().chain(&self.under_way).copied().collect();
        all.sort_unstable();
        outside(&all, from, until)
    }

    /// When a member took a queue over or gave it up.
    pub(super) fn moves_of(&self, member: NodeRef, queue: QueueRef) -> impl Iterator<Item = &Move> {
        self.moves.get(&member).into_iter().flatten().filter(move |moved| moved.queue == queue)
    }

    fn disturbed(
        &mut self,
        at: u64,
        event: &'a Event,
        of_restarted_name_server: bool,
        silences: &mut BTreeMap<&'a str, Silence>,
    ) {
        match event {
            Event::FaultBegin(id, kind) if SILENT_FAULTS.contains(kind) => {
                silences.insert(id, Silence { since: at, forgotten: None });
            }
            // It may have waited for its flush for long.
            Event::FaultHit(id, "torn-flushes", _) => {
                silences.insert(id, Silence { since: at, forgotten: None });
            }
            Event::FaultEnd(id) => {
                if let Some(silence) = silences.remove(id.as_str()) {
                    let missed_at = Some(silence.since + MISSED_NANOS).filter(|missed_at| *missed_at < at);
                    self.disturbances.extend(missed_at.map(|missed_at| (missed_at, at)));
                    // It is told of a broker with its next registration.
                    let heard_of = at + registration_nanos(self.scenario);
                    self.disturbances.extend(silence.forgotten.map(|forgotten| (forgotten, heard_of)));
                }
                if freezes_a_name_server(self.scenario, id) {
                    self.disturbances.push((at, at + registration_nanos(self.scenario)));
                }
            }
            // It begins without routes. Others know brokers that cannot register now until they miss them.
            Event::NodeUp if of_restarted_name_server => {
                for silence in silences.values_mut() {
                    silence.forgotten.get_or_insert(at);
                }
                self.disturbances.push((at, at + registration_nanos(self.scenario)));
            }
            Event::NodeUp | Event::NodeDown(..) | Event::FaultBegin(..) => {}
            _ => return,
        }
        self.disturbances.push((at, at));
    }

    fn sending(&mut self, index: usize, event: &'a Event) {
        match event {
            Event::SendInvoke(message, look) => {
                self.sends.insert(*message, Sent { invoke: index, look, stored: None, failed: None, tries: None });
            }
            Event::SendTries(message, tries) => {
                if let Some(sent) = self.sends.get_mut(message) {
                    sent.tries = Some(*tries);
                }
            }
            Event::SendInfo(message, _) => {
                if let Some(sent) = self.sends.get_mut(message) {
                    sent.tries.get_or_insert(1);
                }
            }
            Event::SendOk(message, queue, offset, phy) => {
                if let Some(sent) = self.sends.get_mut(message) {
                    sent.tries.get_or_insert(1);
                    sent.stored = Some(Stored { ok: index, queue: *queue, offset: *offset, phy: *phy });
                }
            }
            Event::SendFail(message, _) => {
                if let Some(sent) = self.sends.get_mut(message) {
                    sent.tries.get_or_insert(1);
                    sent.failed = Some(index);
                }
            }
            _ => {}
        }
    }

    fn delivered(&mut self, history: &'a History, delivery: Delivery<'a>) {
        let group = group_of(history.node(delivery.node));
        if let Some(message) = delivery.message {
            self.by_message.entry((group, message)).or_default().push(self.all_deliveries.len());
        }
        self.all_deliveries.push(delivery);
    }

    /// The groups that must finish a message of this look.
    pub(super) fn groups_that_want(&self, look: &Look) -> impl Iterator<Item = &'a str> {
        let wants = move |group: &&ConsumerGroup| group.topic == look.topic && group.wants(Some(&look.tag));
        self.scenario.consumers.iter().filter(wants).map(|group| group.group.as_str()).collect::<Vec<_>>().into_iter()
    }

    /// The deliveries of a message to a group, in order.
    pub(super) fn deliveries(&self, group: &'a str, message: MessageId) -> impl Iterator<Item = &Delivery<'a>> {
        let numbers = self.by_message.get(&(group, message)).map_or(&[][..], Vec::as_slice);
        numbers.iter().map(|&number| &self.all_deliveries[number])
    }

    /// Whether the group has a message of its queue still before it, or is to get it again: as far as was seen it has
    /// committed no offset behind it, or refused it when it came last.
    pub(super) fn may_still_finish(&self, group: &str, message: MessageId, queue: QueueRef, offset: u64) -> bool {
        let committed = self.commits.get(&(group, queue)).and_then(|seen| seen.last()).map_or(0, |seen| seen.offset);
        committed <= offset || self.deliveries(group, message).last().is_some_and(|last| last.nacked_at().is_some())
    }

    /// The first record that may have destroyed the retry of a message which the group refused, and why that was lawful.
    ///
    /// Where two members owned the queue, and the one that refused it last has lost the queue since or died, the broker may
    /// never have heard of that (`spec/client.md` 8.5). Then it is enough that the retry was lost which the first one was
    /// promised: that one stands behind the message.
    pub fn lost_retry(&self, logs: &Logs, group: &'a str, message: MessageId) -> Option<(usize, &'static str)> {
        let given: Vec<&Delivery<'_>> = self.deliveries(group, message).collect();
        let last = given.last()?;
        let refused = last.nacked_at()?;
        let gave_up = self.moves_of(last.node, last.queue).any(|moved| moved.index > refused && !moved.takes_over);
        let died = self.downs.get(&last.node).is_some_and(|downs| downs.iter().any(|(index, ..)| *index > refused));
        let same = |delivery: &&&Delivery<'_>| (delivery.queue, delivery.offset) == (last.queue, last.offset);
        let before = given.iter().filter(same).find_map(|delivery| delivery.nacked_at());
        let promised = before.filter(|_| gave_up || died);
        logs.copy_lost_anywhere_after(refused).or_else(|| logs.copy_lost_anywhere_after(promised?))
    }

    /// Whether a listener of the group has finished the message.
    pub(super) fn is_finished(&self, group: &'a str, message: MessageId) -> bool {
        self.deliveries(group, message).any(|delivery| delivery.done.is_some_and(|(_, finished)| finished))
    }

    /// The delivery at which a group refused a message for the last time that it may: it is a dead letter then, or becomes
    /// one, whatever happens to other copies of it.
    pub(super) fn given_up(&self, group: &'a str, message: MessageId) -> Option<&Delivery<'a>> {
        let refused = |delivery: &&Delivery<'_>| delivery.nacked_at().is_some();
        self.deliveries(group, message)
            .find(|delivery| refused(delivery) && self.scenario.is_last_time(group, delivery.times))
    }

    /// All messages that a group refused for the last time.
    pub(super) fn given_up_by_all(&self) -> BTreeSet<(String, MessageId)> {
        let given = self.by_message.keys();
        let given_up = given.filter(|(group, message)| self.given_up(group, *message).is_some());
        given_up.map(|(group, message)| ((*group).to_owned(), *message)).collect()
    }

    /// The crashes of a node (not its clean stops) between two records.
    pub(super) fn crashes_between(
        &self,
        node: NodeRef,
        from: usize,
        to: usize,
    ) -> impl Iterator<Item = (usize, u64, Down)> {
        let downs = self.downs.get(&node).map_or(&[][..], Vec::as_slice);
        downs.iter().copied().filter(move |(index, _, how)| (from..to).contains(index) && *how != Down::Stop)
    }

    /// The record of the death that a node has not come back from at a record.
    pub(super) fn died_before(&self, node: NodeRef, at: usize) -> Option<usize> {
        let (down, ..) = *self.downs.get(&node)?.iter().rfind(|(index, ..)| *index < at)?;
        let ups = self.ups.get(&node).into_iter().flatten();
        let is_up = ups.map(|(index, _)| *index).any(|up| (down..at).contains(&up));
        (!is_up).then_some(down)
    }
}

/// Whether a fault freezes a name server, or holds back what it is sent. When it goes on it reads what stands on
/// connections that were given up meanwhile, and may take such a registration of a broker for the latest: when that
/// connection ends the broker is gone from the routes, until it registers for the next time.
fn freezes_a_name_server(scenario: &Scenario, id: &str) -> bool {
    let is_name_server = |node: &str| node.starts_with("namesrv/");
    scenario.faults.iter().find(|fault| fault.id == id).is_some_and(|fault| match &fault.kind {
        FaultKind::Pause { node } => is_name_server(node),
        FaultKind::Cut { hold, .. } => *hold,
        FaultKind::Partition { shape, .. } => shape.name() == "clog",
        _ => false,
    })
}

/// The longest pause between two registrations of a broker. Source: `spec/protocol.md` 10.2.
fn registration_nanos(scenario: &Scenario) -> u64 {
    let period = |group: &BrokerGroup| {
        let value = group.setting("registerNameServerPeriod");
        value.and_then(|value| value.parse().ok()).unwrap_or(30_000_u64).clamp(10_000, 60_000)
    };
    scenario.brokers.iter().map(period).max().unwrap_or(0) * 1_000_000
}

/// A broker saves offsets with about ten requests, each of which takes up to 50 ms of a usual disk. So many times slower,
/// that is 7 s, which with the pause of 5 s is as long as a save may take by [`ON_DISK_NANOS`](super::commits).
const NOT_TOO_SLOW: u32 = 14;

/// The stretches in which faults froze nodes, held them at gates, took the space of their disks, let calls on files fail
/// or made them too slow to wait for.
fn hindered<'a>(scenario: &'a Scenario, history: &History) -> BTreeMap<&'a str, Vec<(u64, u64)>> {
    let hinders = |fault: &&Fault| {
        matches!(
            fault.kind,
            FaultKind::Pause { .. }
                | FaultKind::Hold { .. }
                | FaultKind::DiskFill { .. }
                | FaultKind::DiskStall { .. }
                | FaultKind::DiskGone { .. }
                | FaultKind::DiskError { .. }
        ) || matches!(fault.kind, FaultKind::DiskSlow { factor, .. } if factor > NOT_TOO_SLOW)
    };
    let hinderers = scenario.faults.iter().filter(hinders);
    let nodes: BTreeMap<&str, &str> =
        hinderers.filter_map(|fault| Some((fault.id.as_str(), fault.kind.node()?))).collect();
    let mut found: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for (id, from, until) in stretches(history, |id| nodes.contains_key(id)) {
        found.entry(nodes[id]).or_default().push((from, until));
    }
    found
}

/// How much of `from..until` lies outside of sorted stretches.
fn outside<'s>(stretches: impl IntoIterator<Item = &'s (u64, u64)>, from: u64, until: u64) -> u64 {
    let (mut free, mut at) = (0, from);
    for &(begin, end) in stretches {
        free += begin.min(until).saturating_sub(at);
        at = at.max(end);
    }
    free + until.saturating_sub(at)
}

/// The stretches in which the network may have kept what was sent before. What is lost is sent again after pauses that
/// double, so that it comes when as much time again has passed at the latest (`spec/simulation.md` 3).
fn under_way(scenario: &Scenario, history: &History) -> Vec<(u64, u64)> {
    let delays = |fault: &&Fault| {
        matches!(
            fault.kind,
            FaultKind::Cut { .. }
                | FaultKind::Latency { .. }
                | FaultKind::Partition { .. }
                | FaultKind::OnLink { what: LinkFault::Bandwidth(_) | LinkFault::Slow(_) | LinkFault::Flap { .. }, .. }
        )
    };
    let ids: BTreeSet<&str> = scenario.faults.iter().filter(delays).map(|fault| fault.id.as_str()).collect();
    let found = stretches(history, |id| ids.contains(id)).into_iter();
    let mut kept: Vec<_> =
        found.map(|(_, from, until)| (from, until.saturating_add(until.saturating_sub(from)))).collect();
    kept.sort_unstable();
    kept
}

/// From when until when each of some faults was in effect, named by their ids; without end if it was not ended.
pub(super) fn stretches(history: &History, wanted: impl Fn(&str) -> bool) -> Vec<(&str, u64, u64)> {
    let mut began = BTreeMap::new();
    let mut found = Vec::new();
    for record in &history.records {
        match &record.event {
            Event::FaultBegin(id, _) if wanted(id) => drop(began.insert(id.as_str(), record.at)),
            Event::FaultEnd(id) => {
                found.extend(began.remove(id.as_str()).map(|from| (id.as_str(), from, record.at)));
            }
            _ => {}
        }
    }
    found.extend(began.into_iter().map(|(id, from)| (id, from, u64::MAX)));
    found
}

/// The group part of `group/instance`.
pub(super) fn group_of(node: &str) -> &str {
    node.rsplit_once('/').map_or(node, |(group, _)| group)
}
