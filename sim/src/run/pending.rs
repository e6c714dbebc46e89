//! What the workload still waits for, as far as the history tells.

use std::collections::BTreeMap;

use crate::history::{Event, History, MessageId, NodeRef, QueueRef};

use super::cluster::group_of;

/// Listener calls on running nodes that have not ended, and refused messages that have not come again.
///
/// A refused message whose retry was lost with a cache never comes: once no crash can explain that any more it is up to
/// the checkers. So refusals count as pending only while no broker lost its power after them.
pub(super) fn deliveries(history: &History) -> Vec<String> {
    let mut open: BTreeMap<(NodeRef, QueueRef, u64), ()> = BTreeMap::new();
    let mut refused: BTreeMap<(&str, MessageId), ()> = BTreeMap::new();
    for record in &history.records {
        let Some((node, _)) = record.node else { continue };
        let group = group_of(history.node(node));
        match &record.event {
            Event::Deliver { queue, offset, .. } => {
                open.insert((node, *queue, *offset), ());
            }
            Event::Ack(message, queue, offset) => {
                open.remove(&(node, *queue, *offset));
                if let Some(message) = message {
                    refused.remove(&(group, *message));
                }
            }
            Event::Nack(message, queue, offset) => {
                open.remove(&(node, *queue, *offset));
                if let Some(message) = message {
                    refused.insert((group, *message), ());
                }
            }
            Event::NodeDown(how, _) => {
                open.retain(|(other, ..), ()| *other != node);
                if *how == crate::history::Down::PowerLoss {
                    refused.clear();
                }
            }
            _ => {}
        }
    }
    let open = open.keys().map(|(node, queue, offset)| {
        format!("{} works on {} offset {offset}", history.node(*node), history.queue(*queue))
    });
    let refused = refused.keys().map(|(group, message)| format!("{message} is to come again to {group}"));
    open.chain(refused).collect()
}
