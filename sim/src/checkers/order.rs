//! Checkers of order.

use std::collections::BTreeMap;

use crate::history::{History, QueueRef};

use super::{
    Report,
    copies::{Fate, Logs},
    facts::{Facts, Stored},
};

/// `order_store`: A was acknowledged before B was begun, both in one queue, and yet A has the higher offset. Offsets of
/// messages that were lawfully lost may be used again.
pub(super) fn order_store(facts: &Facts<'_>, logs: &Logs, history: &History) -> Report {
    let mut report = Report::new("order-store");
    let mut queues: BTreeMap<QueueRef, Vec<(usize, Stored)>> = BTreeMap::new();
    for sent in facts.sends.values() {
        if let Some(stored) = sent.stored {
            queues.entry(stored.queue).or_default().push((sent.invoke, stored));
        }
    }
    for (queue, mut sends) in queues {
        sends.retain(|(_, stored)| logs.fate(queue, stored.ok, stored.phy, history) == Fate::Kept);
        sends.sort_unstable_by_key(|(_, stored)| stored.ok);
        // The highest offset among the first k acknowledgements, with its record.
        let mut highest: Vec<(u64, usize)> = Vec::with_capacity(sends.len());
        for (_, stored) in &sends {
            let this = (stored.offset, stored.ok);
            highest.push(highest.last().map_or(this, |&before| before.max(this)));
        }
        for (invoke, stored) in &sends {
            let acked_before = sends.partition_point(|(_, other)| other.ok < *invoke);
            let Some((offset, ok)) = acked_before.checked_sub(1).map(|last| highest[last]) else { continue };
            report.opportunities += 1;
            if offset >= stored.offset {
                let queue = history.queue(queue);
                let what = format!("{queue} offset {} was given after offset {offset} was acknowledged", stored.offset);
                report.violation(what, vec![ok, *invoke, stored.ok]);
            }
        }
    }
    report
}
