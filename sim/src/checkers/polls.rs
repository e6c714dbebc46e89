//! Checkers of where members read on.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Event, History, MessageId, NodeRef, QueueRef};

use super::{
    Report,
    copies::{Fate, Logs},
    facts::{Facts, group_of},
};

/// Polls of one queue by one member, one after the other, with nothing in between that lets it read on elsewhere.
#[derive(Default)]
pub(super) struct Run {
    /// Records with the offset that each asks for.
    polls: Vec<(usize, u64)>,
    /// The record of what ended it.
    ended: Option<usize>,
}

pub(super) type Runs = BTreeMap<(NodeRef, QueueRef), Vec<Run>>;

/// All polls.
pub(super) fn runs(history: &History) -> Runs {
    let mut runs = Runs::new();
    let end = |queues: &mut Vec<Run>, index| {
        if let Some(last) = queues.last_mut() {
            last.ended.get_or_insert(index);
        }
    };
    for (index, record) in history.records.iter().enumerate() {
        let Some((node, _)) = record.node else { continue };
        match &record.event {
            Event::Poll(queue, offset) => {
                let of_queue = runs.entry((node, *queue)).or_default();
                if of_queue.last().is_none_or(|last| last.ended.is_some()) {
                    of_queue.push(Run::default());
                }
                of_queue.last_mut().expect("there is one now").polls.push((index, *offset));
            }
            Event::Assign(queue) | Event::Revoke(queue) => end(runs.entry((node, *queue)).or_default(), index),
            Event::NodeUp
            | Event::NodeDown(..)
            | Event::Point("client.position-corrected" | "client.message-unreadable", _) => {
                let of_node = runs.iter_mut().filter(|((of, _), _)| *of == node);
                of_node.for_each(|(_, queues)| end(queues, index));
            }
            _ => {}
        }
    }
    runs
}

/// `backwards`: a member asks for what it has had before, though nobody has told it to.
pub(super) fn backwards(polls: &Runs, history: &History) -> Report {
    let mut report = Report::new("backwards");
    for (&(node, queue), runs) in polls {
        for pair in runs.iter().flat_map(|run| run.polls.windows(2)) {
            let ((before, from), (after, to)) = (pair[0], pair[1]);
            report.opportunities += 1;
            if to < from {
                let (node, queue) = (history.node(node), history.queue(queue));
                report.violation(format!("{node} goes back from {from} to {to} in {queue}"), vec![before, after]);
            }
        }
    }
    report
}

/// `skip`: a member reads on behind a message that is there and that its group wants, and does not give it to its
/// listener, though it keeps the queue until all is done. How long a slow listener lets it wait before nobody can say.
pub(super) fn skip(polls: &Runs, facts: &Facts<'_>, logs: &Logs, history: &History) -> Report {
    let mut report = Report::new("skip");
    let converged = history.records.iter().position(|record| record.event == Event::Converged);
    let Some(converged) = converged else { return report };
    let mut there: BTreeMap<QueueRef, BTreeMap<u64, MessageId>> = BTreeMap::new();
    for (message, sent) in &facts.sends {
        let Some(stored) = sent.stored else { continue };
        if logs.fate(stored.queue, stored.ok, stored.phy, history) == Fate::Kept {
            there.entry(stored.queue).or_default().insert(stored.offset, *message);
        }
    }
    let given: BTreeSet<(NodeRef, QueueRef, u64)> =
        facts.all_deliveries.iter().map(|delivery| (delivery.node, delivery.queue, delivery.offset)).collect();
    for (&(node, queue), runs) in polls {
        let group = group_of(history.node(node));
        let Some(there) = there.get(&queue) else { continue };
        let pairs = runs.iter().flat_map(|run| run.polls.windows(2).map(move |pair| (run, pair[0], pair[1])));
        for (run, (before, from), (after, to)) in pairs.filter(|(_, from, to)| from.1 < to.1) {
            let keeps_the_queue = run.ended.is_none_or(|ended| ended >= converged);
            for (offset, message) in there.range(from..to) {
                let sent = &facts.sends[message];
                // What came later stands where something else did that is gone.
                if sent.invoke > after || !facts.groups_that_want(sent.look).any(|wants| wants == group) {
                    continue;
                }
                let is_given = given.contains(&(node, queue, *offset));
                report.opportunities += u64::from(is_given || keeps_the_queue);
                if !is_given && keeps_the_queue {
                    let what = format!("{} passes over {message} at {}", history.node(node), history.queue(queue));
                    report.violation(format!("{what} offset {offset}"), vec![before, after]);
                }
            }
        }
    }
    report
}
