//! The life of a message as people read it: from the producer's call over log, flush and delivery to the commit, with
//! what befell the nodes that held it.
//!
//! It starts from a witness: the records by which a checker shows that something is wrong. Of everything that belongs to
//! the messages of the witness the most telling records are kept, at most [`LINES_MAX`] of them, in the order of time.

use std::collections::BTreeSet;

use crate::{
    history::{Down, Event, History, MessageId, NodeRef, QueueRef},
    scenario::{FaultKind, Scenario},
    world::nanos,
};

/// The most lines of a life.
pub const LINES_MAX: usize = 10;

/// Faults that exchange a disk.
const EXCHANGES: [&str; 2] = ["disk-replaced", "restore-backup"];

/// The most messages of one witness whose lives are told.
const MESSAGES_MAX: usize = 2;

/// A witness, told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// What was promised for each message of the witness.
    pub promises: Vec<String>,
    /// Records in the order of time, a line each; those of the witness are never left out before others.
    pub lines: Vec<String>,
    /// The faults that were in effect between the first of these records and the last.
    pub faults: Vec<String>,
}

/// Tells the life behind a witness.
///
/// # Panics
/// If the witness is not of this history.
#[must_use]
pub fn life(scenario: &Scenario, history: &History, witness: &[usize]) -> Life {
    let mut story = Story::of(scenario, history, witness);
    story.collect(witness);
    let chosen = story.chosen();
    let lines = chosen.iter().map(|&index| story.line(index)).collect();
    let promises = story.messages.iter().map(|told| told.promise(scenario, history)).collect();
    Life { promises, lines, faults: faults_between(history, story.span(witness, &chosen)) }
}

/// Every fault of a run with the times of its beginning and end.
#[must_use]
pub fn faults(history: &History) -> Vec<String> {
    faults_between(history, (0, u64::MAX))
}

/// How telling a record is; the smaller the more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Telling {
    Witness,
    Sending,
    Crash,
    FirstDelivery,
    Commit,
    Delivery,
    Start,
}

/// A message of the witness, and where it was.
struct Told {
    message: MessageId,
    ok: Option<(usize, QueueRef, u64, Option<u64>)>,
    /// End of its record in the log.
    end: Option<u64>,
}

impl Told {
    fn of(history: &History, message: MessageId) -> Told {
        let ok = history.records.iter().enumerate().find_map(|(index, record)| match record.event {
            Event::SendOk(of, queue, offset, phy) if of == message => Some((index, queue, offset, phy)),
            _ => None,
        });
        Told { message, ok, end: None }
    }

    fn promise(&self, scenario: &Scenario, history: &History) -> String {
        let Some((ok, queue, offset, phy)) = self.ok else { return format!("{}: never acknowledged", self.message) };
        let queue = history.queue(queue);
        let copy = match &queue.broker {
            broker if scenario.flushes_before_ack(broker) => "durable",
            broker if scenario.acks_from_memory(broker) => "memory",
            _ => "cache",
        };
        let place = phy.map(|phy| format!(", log {phy}")).unwrap_or_default();
        let at = at(history.records[ok].at);
        format!("{} acknowledged at {at}, {queue} offset {offset}{place}: promised a {copy} copy", self.message)
    }
}

struct Story<'a> {
    scenario: &'a Scenario,
    history: &'a History,
    messages: Vec<Told>,
    /// Queues of the witness and of its messages.
    queues: BTreeSet<QueueRef>,
    /// Records with how telling they are.
    records: BTreeSet<(Telling, usize)>,
}

impl<'a> Story<'a> {
    fn of(scenario: &'a Scenario, history: &'a History, witness: &[usize]) -> Story<'a> {
        let events = || witness.iter().map(|&index| &history.records[index].event);
        let ids: BTreeSet<MessageId> = events().filter_map(Event::message).collect();
        let messages: Vec<Told> = ids.into_iter().take(MESSAGES_MAX).map(|id| Told::of(history, id)).collect();
        let mut queues: BTreeSet<QueueRef> = events().filter_map(Event::queue).collect();
        queues.extend(messages.iter().filter_map(|told| told.ok.map(|(_, queue, ..)| queue)));
        Story { scenario, history, messages, queues, records: BTreeSet::new() }
    }

    fn collect(&mut self, witness: &[usize]) {
        self.records.extend(witness.iter().map(|&index| (Telling::Witness, index)));
        let mut nodes: BTreeSet<NodeRef> =
            witness.iter().filter_map(|&index| self.history.records[index].node).map(|(node, _)| node).collect();
        nodes.extend(self.brokers());
        for number in 0..self.messages.len() {
            self.collect_message(number, &mut nodes);
        }
        let first = self.records.iter().map(|(_, index)| *index).min().unwrap_or(0);
        // Without a message the cause lies before what the witness shows.
        let from = if self.messages.is_empty() { 0 } else { first };
        self.collect_nodes(from, &nodes);
    }

    /// The replicas of the brokers that hold the queues.
    fn brokers(&self) -> Vec<NodeRef> {
        let groups: BTreeSet<&str> =
            self.queues.iter().map(|&queue| self.history.queue(queue).broker.as_str()).collect();
        let of_group = |name: &str| name.rsplit_once('/').is_some_and(|(group, _)| groups.contains(group));
        let nodes = self.history.nodes.iter().enumerate().filter(|(_, name)| of_group(name));
        nodes.map(|(number, _)| NodeRef(u32::try_from(number).expect("a run has few nodes"))).collect()
    }

    /// What the clients did with a message, where it was written and flushed, and the first commits behind it.
    fn collect_message(&mut self, number: usize, nodes: &mut BTreeSet<NodeRef>) {
        let Told { message, ok, .. } = self.messages[number];
        let mut delivered = 0;
        let mut committed = BTreeSet::new();
        for (index, record) in self.history.records.iter().enumerate() {
            let telling = match &record.event {
                Event::Commit { group, queue, offset: Some(offset) }
                    if ok.is_some_and(|(ok, at, own, _)| index > ok && at == *queue && own < *offset) =>
                {
                    if !committed.insert(group) {
                        continue;
                    }
                    Telling::Commit
                }
                event if event.message() != Some(message) => continue,
                Event::Deliver { .. } | Event::Ack(..) | Event::Nack(..) => {
                    nodes.extend(record.node.map(|(node, _)| node));
                    delivered += 1;
                    if delivered <= 2 { Telling::FirstDelivery } else { Telling::Delivery }
                }
                _ => Telling::Sending,
            };
            self.records.insert((telling, index));
        }
        if let Some((ok, queue, _, Some(phy))) = ok {
            self.collect_copies(number, ok, queue, phy);
        }
    }

    /// On each replica: the append of what stands at `phy`, and the flush that made it durable.
    fn collect_copies(&mut self, number: usize, ok: usize, queue: QueueRef, phy: u64) {
        let message = self.messages[number].message;
        let invoke = self.history.records[..ok]
            .iter()
            .rposition(|record| matches!(record.event, Event::SendInvoke(other, _) if other == message));
        let group = &self.history.queue(queue).broker;
        let records = || self.history.records.iter().enumerate().skip(invoke.unwrap_or(0));
        for node in self.brokers() {
            if self.history.node(node).rsplit_once('/').is_none_or(|(of, _)| of != group) {
                continue;
            }
            let here = || records().filter(|(_, record)| record.node.is_some_and(|(at, _)| at == node));
            let append = here().find_map(|(index, record)| match record.event {
                Event::Append(end) if end > phy => Some((index, end)),
                _ => None,
            });
            let Some((append, end)) = append else { continue };
            self.records.insert((Telling::Sending, append));
            self.messages[number].end.get_or_insert(end);
            let flush = here()
                .skip_while(|(index, _)| *index < append)
                .take_while(|(_, record)| !matches!(record.event, Event::NodeDown(Down::PowerLoss, _)))
                .find(|(_, record)| matches!(record.event, Event::Flush(durable) if durable >= end));
            self.records.extend(flush.map(|(index, _)| (Telling::Sending, index)));
        }
    }

    /// Crashes and recoveries of the nodes that had to do with it.
    fn collect_nodes(&mut self, from: usize, nodes: &BTreeSet<NodeRef>) {
        let lowest = self.messages.iter().filter_map(|told| told.ok.and_then(|(.., phy)| phy)).min();
        for (index, record) in self.history.records.iter().enumerate().skip(from) {
            if record.node.is_none_or(|(node, _)| !nodes.contains(&node)) {
                continue;
            }
            let cuts = |end: u64| lowest.is_some_and(|phy| end <= phy);
            let telling = match record.event {
                Event::Recover(end) | Event::Truncate(end) if cuts(end) => Telling::Sending,
                Event::NodeDown(..) | Event::Panic(..) => Telling::Crash,
                Event::DiskError(kind, _) if EXCHANGES.contains(&kind) => Telling::Crash,
                Event::NodeUp | Event::Recover(_) | Event::Truncate(_) | Event::DiskCrash { .. } => Telling::Start,
                _ => continue,
            };
            self.records.insert((telling, index));
        }
    }

    /// The most telling records, in the order of time.
    fn chosen(&self) -> BTreeSet<usize> {
        let mut chosen = BTreeSet::new();
        for (_, index) in &self.records {
            if chosen.len() < LINES_MAX {
                chosen.insert(*index);
            }
        }
        chosen
    }

    /// From the cause to what shows it, in virtual nanoseconds. If nothing came after the send, what should have come
    /// was missed until the end.
    fn span(&self, witness: &[usize], chosen: &BTreeSet<usize>) -> (u64, u64) {
        let time = |index: usize| self.history.records[index].at;
        let from = if self.messages.is_empty() { 0 } else { chosen.first().map_or(0, |&index| time(index)) };
        let to = chosen.last().map_or(u64::MAX, |&index| time(index));
        let last = witness.iter().max().map(|&index| &self.history.records[index].event);
        let open = last.is_none_or(|event| matches!(event, Event::SendOk(..) | Event::SendInvoke(..)));
        (from, if open { u64::MAX } else { to })
    }

    fn line(&self, index: usize) -> String {
        let record = &self.history.records[index];
        let node = record.node.map(|(node, life)| format!("{}#{life}", self.history.node(node))).unwrap_or_default();
        format!("{:>10}  {node:<14} {}", at(record.at), self.text(index)).trim_end().to_owned()
    }

    fn text(&self, index: usize) -> String {
        let event = &self.history.records[index].event;
        let name = if self.messages.len() > 1 { event.message().map(|id| format!(" {id}")) } else { None };
        let name = name.unwrap_or_default();
        let place = |queue: &QueueRef, offset: &u64| format!("{} offset {offset}", self.history.queue(*queue));
        let kind = event.kind();
        match event {
            Event::SendOk(_, queue, offset, _) => format!("{kind}{name} {}", place(queue, offset)),
            Event::SendFail(_, why) | Event::SendInfo(_, why) => format!("{kind}{name}: {why}"),
            Event::Deliver { queue, offset, .. } | Event::Ack(_, queue, offset) | Event::Nack(_, queue, offset) => {
                format!("{kind}{name} {}", place(queue, offset))
            }
            Event::Commit { group, queue, offset } => {
                let offset = offset.map_or("none".to_owned(), |offset| offset.to_string());
                format!("{kind} {offset} of {group} at {}", self.history.queue(*queue))
            }
            Event::Append(end) => format!("{kind} up to {end}"),
            Event::Flush(end) => format!("{kind} up to {end}"),
            Event::Recover(end) | Event::Truncate(end) => {
                let gone = self.messages.iter().any(|told| told.ok.is_some_and(|(.., phy)| phy >= Some(*end)));
                format!("{kind} to {end}{}", if gone { ": it is gone" } else { "" })
            }
            Event::Delete(start) => format!("{kind} the log file at {start}"),
            Event::NodeDown(how, why) => {
                let why = if why.is_empty() { String::new() } else { format!(": {why}") };
                format!("{kind} {}{}{why}", how.name(), self.never_flushed(*how))
            }
            Event::DiskCrash { dirty, lost, torn } => format!("{kind}: {dirty} dirty pages, {lost} lost, {torn} torn"),
            Event::DiskError(what, place) => format!("{kind} {}", self.disk_error(index, what, place)),
            Event::Panic(task, message) => format!("{kind} in `{task}`: {message}"),
            Event::Broken(name) => format!("{kind}: {name}"),
            Event::Pending(what) => format!("{kind}: {what}"),
            _ => format!("{kind}{name}"),
        }
    }

    /// What went wrong with a disk: a call on a file, or all of it by a fault that exchanged it.
    fn disk_error(&self, index: usize, what: &str, place: &str) -> String {
        let begun = self.history.records[..index].iter().rev().find_map(|record| match &record.event {
            Event::FaultBegin(id, kind) if *kind == what => Some(id.as_str()),
            _ => None,
        });
        let fault = self.scenario.faults.iter().find(|fault| Some(fault.id.as_str()) == begun);
        let by = begun.map(|id| format!(" by {id}")).unwrap_or_default();
        match fault.map(|fault| &fault.kind) {
            Some(FaultKind::DiskReplaced { .. }) => format!("{what}{by}: the disk is a new one, with nothing on it"),
            Some(FaultKind::RestoreBackup { taken, .. }) => {
                let active = self.history.records.iter().find(|record| record.event == Event::Phase("active"));
                let taken = at(active.map_or(0, |active| active.at).saturating_add(nanos(*taken)));
                format!("{what}{by}: the disk has what was durable at {taken}, and nothing later")
            }
            _ => format!("{what} at {place}"),
        }
    }

    /// Said at a power loss of a message that no flush had made durable.
    fn never_flushed(&self, how: Down) -> String {
        let flushed = |end: u64| {
            self.records
                .iter()
                .any(|(_, index)| matches!(self.history.records[*index].event, Event::Flush(durable) if durable >= end))
        };
        let ends = self.messages.iter().filter_map(|told| told.end);
        match ends.min().filter(|end| how == Down::PowerLoss && !flushed(*end)) {
            Some(end) => format!(" (no flush up to {end} before)"),
            None => String::new(),
        }
    }
}

fn faults_between(history: &History, (from, to): (u64, u64)) -> Vec<String> {
    let mut faults: Vec<(&str, &'static str, u64, Option<u64>)> = Vec::new();
    for record in &history.records {
        match &record.event {
            Event::FaultBegin(id, kind) => faults.push((id, kind, record.at, None)),
            Event::FaultEnd(id) => {
                let open = faults.iter_mut().rev().find(|(other, _, _, end)| other == id && end.is_none());
                if let Some((.., end)) = open {
                    *end = Some(record.at);
                }
            }
            _ => {}
        }
    }
    faults.retain(|(_, _, begin, end)| *begin <= to && end.is_none_or(|end| end >= from));
    let text = |(id, kind, begin, end): (&str, &'static str, u64, Option<u64>)| {
        format!("{id} {kind} {}..{}", at(begin), end.map(at).unwrap_or_default())
    };
    faults.into_iter().map(text).collect()
}

/// A time as it is shown: seconds with milliseconds.
#[must_use]
pub fn at(nanos: u64) -> String {
    format!("{}.{:03} s", nanos / 1_000_000_000, nanos / 1_000_000 % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Look, Queue, Recorder};

    const FILE: &str = "format = 1\nactive = \"60s\"\n[[broker]]\nname = \"broker-a\"\n\
                        config = { flushDiskType = \"SYNC_FLUSH\" }\n[[topic]]\nname = \"orders\"\n\
                        [[producer]]\ngroup = \"checkout\"\ntopic = \"orders\"\nrate = \"1/s\"\n\
                        [[consumer]]\ngroup = \"billing\"\nsubscribe = \"orders\"\n";

    const MESSAGE: MessageId = MessageId { producer: 0, n: 7 };

    /// A second passes between two records; each is of the first life of its node.
    fn history(events: &[(&str, Event)]) -> History {
        let recorder = Recorder::new(None);
        for (number, (node, event)) in events.iter().enumerate() {
            let node = Some((*node, 1)).filter(|(node, _)| !node.is_empty());
            recorder.record(number as u64 * 1_000_000_000, node, |history| {
                history.intern_queue(Queue { topic: "orders".into(), broker: "broker-a".into(), id: 0 });
                event.clone()
            });
        }
        recorder.finish().unwrap().0
    }

    fn told(events: &[(&str, Event)], witness: &[usize]) -> Life {
        life(&Scenario::parse("x.toml", FILE).unwrap(), &history(events), witness)
    }

    /// The lines without the blanks that align their times.
    fn shown(life: &Life) -> String {
        life.lines.iter().map(|line| line.trim_start()).collect::<Vec<_>>().join("\n")
    }

    fn look() -> Look {
        Look { topic: "orders".into(), body_bytes: 9, crc: 1, tag: String::new() }
    }

    fn sent() -> Vec<(&'static str, Event)> {
        vec![
            ("broker-a/0", Event::NodeUp),
            ("", Event::FaultBegin("over".into(), "cut")),
            ("", Event::FaultEnd("over".into())),
            ("checkout/0", Event::SendInvoke(MESSAGE, look())),
            ("broker-a/0", Event::Append(200)),
            ("checkout/0", Event::SendOk(MESSAGE, QueueRef(0), 3, Some(100))),
        ]
    }

    #[test]
    fn a_lost_message_is_told_from_its_sending_to_the_recovery_that_cut_it() {
        let mut events = sent();
        events.extend([
            ("", Event::FaultBegin("loss".into(), "power-loss")),
            ("broker-a/0", Event::NodeDown(Down::PowerLoss, String::new())),
            ("", Event::FaultEnd("loss".into())),
            ("broker-a/0", Event::NodeUp),
            ("broker-a/0", Event::Recover(100)),
        ]);
        let life = told(&events, &[3, 5, 7, 10]);
        insta::assert_snapshot!(life.promises.join("\n"), @"p0-0007 acknowledged at 5.000 s, orders/broker-a/0 offset 3, log 100: promised a durable copy");
        insta::assert_snapshot!(shown(&life), @r"
        3.000 s  checkout/0#1   send.invoke
        4.000 s  broker-a/0#1   append up to 200
        5.000 s  checkout/0#1   send.ok orders/broker-a/0 offset 3
        7.000 s  broker-a/0#1   node.down power-loss (no flush up to 200 before)
        9.000 s  broker-a/0#1   node.up
        10.000 s  broker-a/0#1   recover to 100: it is gone
        ");
        assert_eq!(life.faults, ["loss power-loss 6.000 s..8.000 s"]);
    }

    #[test]
    fn a_disk_that_was_exchanged_is_told_with_the_fault_that_did_it() {
        const FAULTS: &str = "[[fault]]\nid = \"gone\"\nat = \"20s\"\nkind = \"disk-replaced\"\nnode = \"broker-a/0\"\n\
                              [[fault]]\nid = \"old\"\nat = \"30s\"\nkind = \"restore-backup\"\nnode = \"broker-a/0\"\n\
                              taken = \"2500ms\"\n";
        let mut events = sent();
        events[0] = ("", Event::Phase("active"));
        events.extend([
            ("", Event::FaultBegin("gone".into(), "disk-replaced")),
            ("broker-a/0", Event::DiskError("disk-replaced", "/".into())),
            ("", Event::FaultBegin("old".into(), "restore-backup")),
            ("broker-a/0", Event::DiskError("restore-backup", "/".into())),
            ("broker-a/0", Event::DiskError("eio-flush", "commitlog/0@3".into())),
        ]);
        let scenario = Scenario::parse("x.toml", &format!("{FILE}{FAULTS}")).unwrap();
        let life = life(&scenario, &history(&events), &[5, 10]);
        insta::assert_snapshot!(shown(&life), @r"
        3.000 s  checkout/0#1   send.invoke
        4.000 s  broker-a/0#1   append up to 200
        5.000 s  checkout/0#1   send.ok orders/broker-a/0 offset 3
        7.000 s  broker-a/0#1   disk.error disk-replaced by gone: the disk is a new one, with nothing on it
        9.000 s  broker-a/0#1   disk.error restore-backup by old: the disk has what was durable at 2.500 s, and nothing later
        10.000 s  broker-a/0#1   disk.error eio-flush at commitlog/0@3
        ");
    }

    #[test]
    fn a_message_that_took_its_way_is_told_to_the_commit() {
        let mut events = sent();
        events.extend([
            ("broker-a/0", Event::Flush(200)),
            (
                "billing/0",
                Event::Deliver { message: Some(MESSAGE), queue: QueueRef(0), offset: 3, look: look(), times: 0 },
            ),
            ("billing/0", Event::Ack(Some(MESSAGE), QueueRef(0), 3)),
            ("probe/0", Event::Commit { group: "billing".into(), queue: QueueRef(0), offset: Some(4) }),
            (
                "billing/0",
                Event::Deliver { message: Some(MESSAGE), queue: QueueRef(0), offset: 3, look: look(), times: 0 },
            ),
        ]);
        let life = told(&events, &[7, 10]);
        let kinds = ["invoke", "append", "send.ok", "flush", "deliver", "ack", "commit 4 of billing", "deliver"];
        assert_eq!(life.lines.len(), kinds.len(), "{:#?}", life.lines);
        for (line, kind) in life.lines.iter().zip(kinds) {
            assert!(line.contains(kind), "{line} has no {kind}");
        }
        assert!(life.faults.is_empty(), "{:?}", life.faults);
    }

    #[test]
    fn the_witness_stays_when_there_is_too_much_to_tell() {
        let mut events = sent();
        for _ in 0..40 {
            events.push(("billing/0", Event::Ack(Some(MESSAGE), QueueRef(0), 3)));
        }
        let life = told(&events, &[20, 44]);
        assert_eq!(life.lines.len(), LINES_MAX);
        assert!(life.lines.iter().any(|line| line.contains("20.000 s")), "{:#?}", life.lines);
        assert!(life.lines.iter().any(|line| line.contains("44.000 s")), "{:#?}", life.lines);
    }

    #[test]
    fn without_a_message_all_faults_before_the_witness_may_matter() {
        let mut events = sent();
        events.push(("probe/0", Event::Pending("billing is behind".into())));
        let life = told(&events, &[6]);
        assert!(life.promises.is_empty());
        insta::assert_snapshot!(shown(&life), @"6.000 s  probe/0#1      pending: billing is behind");
        assert_eq!(life.faults, ["over cut 1.000 s..2.000 s"]);
    }
}
