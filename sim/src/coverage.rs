//! In which states the cluster was while which faults were in effect (`spec/simulation.md` 8.2).
//!
//! Pairs of a kind of fault and a state that no run has come to are the work list for new scenarios.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    history::{Event, History, NodeRef},
    points,
    scenario::{FaultKind, Kind, Scenario},
};

const BROKER_DOWN: &str = "broker-down";
const RECOVERING: &str = "broker-recovering";
const NAMESRV_DOWN: &str = "namesrv-down";
const PRODUCER_DOWN: &str = "producer-down";
const CONSUMER_DOWN: &str = "consumer-down";
const UNFLUSHED: &str = "log-unflushed";
const FLUSHING: &str = "log-flushing";
const ROLLED: &str = "log-rolled";
const REBALANCING: &str = "group-rebalancing";
const OVER_75: &str = "disk-over-75";
const OVER_85: &str = "disk-over-85";
const OVER_90: &str = "disk-over-90";

/// What a node can be in for a while. A log counts as rolled from the first message of a file to the next flush.
pub const STATES: [&str; 12] = [
    BROKER_DOWN,
    RECOVERING,
    NAMESRV_DOWN,
    PRODUCER_DOWN,
    CONSUMER_DOWN,
    UNFLUSHED,
    FLUSHING,
    ROLLED,
    REBALANCING,
    OVER_75,
    OVER_85,
    OVER_90,
];

/// Every state that a fault can be paired with: those of [`STATES`], and the points of the program, which last a moment.
#[must_use]
pub fn states() -> Vec<&'static str> {
    STATES.into_iter().chain(points::POINTS).collect()
}

/// By kind of fault, the states that some node was in when a fault of that kind began, or came to while it lasted.
#[must_use]
pub fn pairs(scenario: &Scenario, history: &History) -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let kinds = scenario.nodes().into_iter();
    let kinds = kinds.filter_map(|(name, kind)| Some((history.find_node(&name)?, kind)));
    let files = scenario.brokers.iter().flat_map(|group| {
        let names = (0..group.replicas.len()).map(|replica| format!("{}/{replica}", group.name));
        names.filter_map(|name| Some((history.find_node(&name)?, group.log_file_bytes())))
    });
    let mut watch = Watch {
        scenario,
        history,
        kinds: kinds.collect(),
        file_bytes: files.collect(),
        held: BTreeMap::new(),
        present: Vec::new(),
        pairs: BTreeMap::new(),
    };
    for record in &history.records {
        watch.take(record.node.map(|(node, _)| node), &record.event);
    }
    watch.pairs
}

struct Watch<'a> {
    scenario: &'a Scenario,
    history: &'a History,
    kinds: BTreeMap<NodeRef, Kind>,
    /// Of brokers.
    file_bytes: BTreeMap<NodeRef, u64>,
    /// The states that each node is in.
    held: BTreeMap<NodeRef, Node>,
    /// Faults that are in effect: id and kind.
    present: Vec<(String, &'static str)>,
    pairs: BTreeMap<&'static str, BTreeSet<&'static str>>,
}

#[derive(Default)]
struct Node {
    states: BTreeSet<&'static str>,
    /// The end of its log.
    end: u64,
}

impl Watch<'_> {
    fn take(&mut self, node: Option<NodeRef>, event: &Event) {
        match (event, node) {
            (Event::FaultBegin(id, kind), _) => {
                self.present.push((id.clone(), kind));
                let held = self.held.values().flat_map(|node| node.states.iter().copied());
                self.pairs.entry(kind).or_default().extend(held);
                self.fill(id, true);
            }
            (Event::FaultEnd(id), _) => {
                self.present.retain(|(other, _)| other != id);
                self.fill(id, false);
            }
            (event, Some(node)) => self.of_node(node, event),
            _ => {}
        }
    }

    fn of_node(&mut self, node: NodeRef, event: &Event) {
        let kind = self.kinds.get(&node).copied();
        match event {
            Event::NodeUp => {
                self.held.entry(node).or_default().states.clear();
                if kind == Some(Kind::Broker) {
                    self.enter(node, RECOVERING);
                }
            }
            Event::NodeDown(..) => {
                self.held.entry(node).or_default().states.clear();
                match kind {
                    Some(Kind::Broker) => self.enter(node, BROKER_DOWN),
                    Some(Kind::Namesrv) => self.enter(node, NAMESRV_DOWN),
                    Some(Kind::Producer) => self.enter(node, PRODUCER_DOWN),
                    Some(Kind::Consumer) => self.enter(node, CONSUMER_DOWN),
                    None => {}
                }
            }
            Event::Recover(end) => {
                self.leave(node, &[RECOVERING]);
                self.held.entry(node).or_default().end = *end;
                self.moment("store.recovered");
            }
            Event::Append(end) => {
                let file_bytes = self.file_bytes.get(&node).copied().unwrap_or(u64::MAX);
                let before = std::mem::replace(&mut self.held.entry(node).or_default().end, *end);
                self.enter(node, UNFLUSHED);
                if before > 0 && (before - 1) / file_bytes != end.saturating_sub(1) / file_bytes {
                    self.enter(node, ROLLED);
                }
            }
            Event::Flush(end) => {
                let all = *end >= self.held.entry(node).or_default().end;
                self.leave(node, if all { &[FLUSHING, ROLLED, UNFLUSHED] } else { &[FLUSHING, ROLLED] });
                self.moment("store.flushed");
            }
            Event::Truncate(_) => self.moment("store.truncated"),
            Event::Delete(_) => self.moment("store.file-deleted"),
            Event::Assign(_) => self.moment("client.queue-added"),
            Event::Revoke(_) => self.moment("client.queue-removed"),
            Event::Point("store.flushing", _) => self.enter(node, FLUSHING),
            Event::Point("client.rebalancing", _) => self.enter(node, REBALANCING),
            Event::Point(name, _) => {
                if *name == "client.rebalanced" {
                    self.leave(node, &[REBALANCING]);
                }
                if points::POINTS.contains(name) {
                    self.moment(name);
                }
            }
            _ => {}
        }
    }

    /// How full a disk is, as far as a fault fills it.
    fn fill(&mut self, id: &str, begins: bool) {
        let Some(fault) = self.scenario.faults.iter().find(|fault| fault.id == id) else { return };
        let FaultKind::DiskFill { node, percent, .. } = &fault.kind else { return };
        let Some(node) = self.history.find_node(node) else { return };
        let zones = [(75, OVER_75), (85, OVER_85), (90, OVER_90)];
        for (_, zone) in zones.into_iter().filter(|(least, _)| percent >= least) {
            if begins { self.enter(node, zone) } else { self.leave(node, &[zone]) }
        }
    }

    fn enter(&mut self, node: NodeRef, state: &'static str) {
        if self.held.entry(node).or_default().states.insert(state) {
            self.moment(state);
        }
    }

    fn leave(&mut self, node: NodeRef, states: &[&'static str]) {
        let held = &mut self.held.entry(node).or_default().states;
        states.iter().for_each(|state| {
            held.remove(state);
        });
    }

    /// A state is come to.
    fn moment(&mut self, state: &'static str) {
        for (_, kind) in &self.present {
            self.pairs.entry(kind).or_default().insert(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Down, Record};

    const FILE: &str = "format = 1\nactive = \"60s\"\n[[broker]]\nname = \"broker-a\"\n\
                        config = { mappedFileSizeCommitLog = \"64KiB\" }\n[[topic]]\nname = \"orders\"\n\
                        [[producer]]\ngroup = \"checkout\"\ntopic = \"orders\"\nrate = \"1/s\"\n\
                        [[consumer]]\ngroup = \"billing\"\nsubscribe = \"orders\"\n\
                        [[fault]]\nid = \"full\"\nat = \"1s\"\nkind = \"disk-fill\"\nnode = \"broker-a/0\"\npercent = \"86%\"\n";

    /// The pairs of what happened at `broker-a/0`, in this order.
    fn pairs_of(events: Vec<Event>) -> Vec<String> {
        let scenario = Scenario::parse("x.toml", FILE).unwrap();
        let mut history = History::default();
        let (node, _) = history.nodes.insert_full("broker-a/0".to_owned());
        let node = Some((NodeRef(node as u32), 1));
        history.records = events.into_iter().map(|event| Record { at: 0, node, event }).collect();
        let pairs = pairs(&scenario, &history);
        pairs.iter().flat_map(|(kind, states)| states.iter().map(move |state| format!("{kind} {state}"))).collect()
    }

    fn begin(id: &str, kind: &'static str) -> Event {
        Event::FaultBegin(id.to_owned(), kind)
    }

    #[test]
    fn what_holds_when_a_fault_begins_and_what_comes_while_it_lasts_is_paired_with_it() {
        let end = || Event::FaultEnd("f".to_owned());
        let told = pairs_of(vec![
            Event::NodeUp,
            Event::Recover(0),
            Event::Append(100),
            begin("f", "kill"),
            Event::NodeDown(Down::Kill, String::new()),
            Event::NodeUp,
            Event::Recover(100),
            end(),
            Event::Append(200),
            Event::Flush(200),
        ]);
        let expected = ["broker-down", "broker-recovering", "log-unflushed", "store.recovered"];
        assert_eq!(told, expected.map(|state| format!("kill {state}")));
    }

    #[test]
    fn a_log_rolls_where_a_file_ends_and_a_flush_of_a_part_leaves_it_unflushed() {
        let file = 64 << 10;
        let told = pairs_of(vec![
            Event::NodeUp,
            Event::Recover(0),
            Event::Append(file),
            begin("f", "cut"),
            Event::Point("store.flushing", 0),
            Event::Append(file + 1),
            Event::Flush(file),
            begin("g", "pause"),
        ]);
        let expected =
            ["cut log-flushing", "cut log-rolled", "cut log-unflushed", "cut store.flushed", "pause log-unflushed"];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_filled_disk_is_in_all_zones_up_to_its_own() {
        let told = pairs_of(vec![begin("full", "disk-fill"), begin("f", "kill")]);
        assert_eq!(
            told,
            ["disk-fill disk-over-75", "disk-fill disk-over-85", "kill disk-over-75", "kill disk-over-85"]
        );
    }
}
