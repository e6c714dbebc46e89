//! Checkers of committed offsets.

use std::collections::BTreeSet;

use crate::history::{History, NodeRef, QueueRef};

use super::{
    Report,
    copies::Logs,
    delivery::VIEWS_DIFFER_NANOS,
    facts::{Facts, Seen, group_of},
};

/// Committed offsets are written to disk every 5 s, which takes a while on a slow disk. A crash takes the broker back to
/// the last writing: what was committed this long before is on disk, not counting the time in which it could not write.
pub(super) const ON_DISK_NANOS: u64 = 12_000_000_000;

/// How long after a queue has changed hands a late commit of its old owner may still arrive. While the old owner is
/// frozen it does not learn that it has lost the queue, and the first that it does then is to commit; while the network
/// keeps what it sent no time passes either. A broker takes any commit of a group (`spec/protocol.md` 7.3).
const LATE_OWNER_NANOS: u64 = 10_000_000_000;

/// `commit_regress`: the committed offset of a group was seen to go back, and neither a crash of the broker, nor a lawful
/// loss of messages, nor a queue that was changing hands or had two owners explains it.
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

/// The least that the disk of a broker holds after the crashes before record `until`: of each life, what was seen long
/// enough before its end.
fn on_disk(facts: &Facts<'_>, logs: &Logs, (broker, name): (NodeRef, &str), seen: &[Seen], until: usize) -> u64 {
    // What a disk held that is not there any more does not count.
    let since = logs.last_exchange(broker, until).unwrap_or(0);
    let (mut held, mut life_from) = (0, since);
    for (crash, at, _) in facts.crashes_between(broker, since, until) {
        let in_life = seen.iter().filter(|seen| (life_from..crash).contains(&seen.index));
        let written = in_life.filter(|seen| facts.unhindered_nanos(name, seen.at, at) > ON_DISK_NANOS);
        let written = written.map(|seen| seen.offset);
        held = written.max().unwrap_or(0).max(held);
        // An answer that was on its way when the broker died is of the life before.
        let ups = facts.ups.get(&broker).into_iter().flatten();
        life_from = ups.map(|(index, _)| *index).find(|index| *index > crash).unwrap_or(usize::MAX);
    }
    held
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
    if let Some(broker) = logs.node_of(queue, history, after.index) {
        // An answer that was on its way when the broker died is of the life before.
        let from = facts.died_before(broker, last.index).unwrap_or(last.index);
        if logs.cut_back_between(queue, history, (from, after.index)) {
            return true;
        }
        let crashed = facts.crashes_between(broker, from, after.index).next().is_some();
        // Who still thinks that a queue is his takes the offset back after a crash as he does without one.
        if crashed
            && (after.offset >= on_disk(facts, logs, (broker, history.node(broker)), before, after.index)
                || was_frozen(facts, group, *last, after))
        {
            return true;
        }
    }
    let members: Vec<&str> = history.nodes.iter().map(String::as_str).filter(|node| group_of(node) == group).collect();
    let is_late =
        |moved: u64| members.iter().any(|member| facts.heard_nanos(member, moved, last.at) <= LATE_OWNER_NANOS);
    let in_group = |node: &NodeRef| group_of(history.node(*node)) == group;
    let members = facts.moves.keys().copied().filter(in_group);
    let mut moves = members.flat_map(|node| facts.moves_of(node, queue));
    moves.any(|moved| moved.at <= after.at && is_late(moved.at))
        || had_two_owners(facts, history, (group, queue), after.at)
}

/// Whether a member was frozen when an offset was seen, and went on before another one was: what it does first is to
/// commit how far it was, whether or not the broker has been down meanwhile.
fn was_frozen(facts: &Facts<'_>, group: &str, seen: Seen, after: Seen) -> bool {
    let mut frozen = facts.hindered_of(group).flat_map(|(_, frozen)| frozen);
    frozen.any(|(from, until)| *from <= seen.at && (seen.at..=after.at).contains(until))
}

/// Whether two members of a group were given messages of a queue, or think that it is theirs, since a disturbance that may
/// still make them both think so. Each of them commits how far it is.
fn had_two_owners(facts: &Facts<'_>, history: &History, (group, queue): (&str, QueueRef), at: u64) -> bool {
    let lasting = facts.disturbances.iter().filter(|(from, until)| (*from..=until + VIEWS_DIFFER_NANOS).contains(&at));
    let Some(since) = lasting.map(|(from, _)| *from).min() else { return false };
    let given = facts.all_deliveries.iter().filter(|delivery| {
        delivery.queue == queue && (since..=at).contains(&delivery.at) && group_of(history.node(delivery.node)) == group
    });
    let owns = |node: &NodeRef| {
        let last = facts.moves_of(*node, queue).filter(|moved| moved.at <= at).last();
        let downs = facts.downs.get(node).map_or(&[][..], Vec::as_slice);
        last.is_some_and(|moved| {
            moved.takes_over && !downs.iter().any(|(index, down, _)| *index > moved.index && *down <= at)
        })
    };
    let owners = facts.moves.keys().copied().filter(|node| group_of(history.node(*node)) == group && owns(node));
    given.map(|delivery| delivery.node).chain(owners).collect::<BTreeSet<_>>().len() > 1
}
