//! Checkers of committed offsets.

use crate::history::{Down, History, NodeRef, QueueRef};

use super::{
    Report,
    copies::Logs,
    facts::{Facts, Seen, group_of},
};

/// Committed offsets are written to disk every 5 s; a crash takes the broker back to the last writing.
const ON_DISK_NANOS: u64 = 6_000_000_000;

/// How long after a queue has changed hands a late commit of its old owner may still arrive.
const LATE_OWNER_NANOS: u64 = 10_000_000_000;

/// `commit_regress`: the committed offset of a group was seen to go back, and neither a crash of the broker, nor a lawful
/// loss of messages, nor a queue that was changing hands explains it.
pub(super) fn commit_regress(facts: &Facts<'_>, logs: &Logs, history: &History) -> Report {
    let mut report = Report::new("commit-regress");
    for ((group, queue), seen) in &facts.commits {
        report.opportunities += seen.len().saturating_sub(1) as u64;
        for (number, pair) in seen.windows(2).enumerate() {
            let (before, after) = (pair[0], pair[1]);
            if after.offset >= before.offset
                || explained(facts, logs, history, (group, *queue), &seen[..=number], after)
            {
                continue;
            }
            let what =
                format!("{group} had committed {} at {}, then {}", before.offset, history.queue(*queue), after.offset);
            report.violation(what, vec![before.index, after.index]);
        }
    }
    report
}

/// Whether `after` may be lower than the last of `before`.
fn explained(
    facts: &Facts<'_>,
    logs: &Logs,
    history: &History,
    (group, queue): (&str, QueueRef),
    before: &[Seen],
    after: Seen,
) -> bool {
    let Some(last) = before.last() else { return true };
    if let Some(broker) = logs.node_of(queue, history) {
        if logs.cut_back_between(broker, last.index, after.index) {
            return true;
        }
        let crash = facts.crashes_between(broker, last.index, after.index).next();
        if let Some((_, at, how)) = crash {
            let on_disk = before.iter().filter(|seen| seen.at + ON_DISK_NANOS < at).map(|seen| seen.offset).max();
            return how != Down::Stop && after.offset >= on_disk.unwrap_or(0);
        }
    }
    let since = last.at.saturating_sub(LATE_OWNER_NANOS);
    let in_group = |node: NodeRef| group_of(history.node(node)) == group;
    let moves = facts.moves.iter().filter(|(node, _)| in_group(**node)).flat_map(|(_, moves)| moves);
    moves.into_iter().any(|(_, at)| (since..=after.at).contains(at))
}
