//! What the workload still waits for, as far as the history tells.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    checkers::{Facts, Logs},
    history::{Event, History, MessageId, NodeRef, QueueRef},
    scenario::Scenario,
};

use super::cluster::group_of;

/// Listener calls on running nodes that have not ended, and refused messages that have not come again, unless they were
/// refused for the last time.
///
/// A refused message whose retry may have been lost lawfully is left to the checkers: it may never come.
pub(crate) fn deliveries(scenario: &Scenario, history: &History) -> Vec<String> {
    let mut open: BTreeMap<(NodeRef, QueueRef, u64), u32> = BTreeMap::new();
    let mut refused: BTreeSet<(&str, MessageId)> = BTreeSet::new();
    let mut finished: BTreeSet<(&str, MessageId)> = BTreeSet::new();
    for record in &history.records {
        let Some((node, _)) = record.node else { continue };
        let group = group_of(history.node(node));
        match &record.event {
            Event::Deliver { queue, offset, times, .. } => {
                open.insert((node, *queue, *offset), *times);
            }
            Event::Ack(message, queue, offset) => {
                open.remove(&(node, *queue, *offset));
                if let Some(message) = message {
                    refused.remove(&(group, *message));
                    finished.insert((group, *message));
                }
            }
            Event::Nack(message, queue, offset) => {
                let times = open.remove(&(node, *queue, *offset)).unwrap_or(0);
                if let Some(message) = message.filter(|_| scenario.is_last_time(group, times)) {
                    refused.remove(&(group, message));
                    finished.insert((group, message));
                    continue;
                }
                // A copy of what the group has finished need not come again: whoever refused it may have lost the queue
                // before the broker heard of it (`spec/client.md` 8.5).
                if let Some(message) = message.filter(|message| !finished.contains(&(group, *message))) {
                    refused.insert((group, message));
                }
            }
            Event::NodeDown(..) => open.retain(|(other, ..), _| *other != node),
            _ => {}
        }
    }
    let open = open.keys().map(|(node, queue, offset)| {
        format!("{} works on {} offset {offset}", history.node(*node), history.queue(*queue))
    });
    if !refused.is_empty() {
        let (facts, logs) = (Facts::collect(scenario, history), Logs::collect(scenario, history));
        refused.retain(|(group, message)| facts.lost_retry(&logs, group, *message).is_none());
    }
    let refused = refused.iter().map(|(group, message)| format!("{message} is to come again to {group}"));
    open.chain(refused).collect()
}
