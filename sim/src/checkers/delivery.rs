//! Checkers of what listeners get.

use crate::history::{History, NodeRef, QueueRef};

use super::{
    Report,
    commits::ON_DISK_NANOS,
    copies::Logs,
    facts::{Delivery, Facts, Move, Seen, group_of},
};

/// A new owner asks for the committed offset some time before its first delivery; commits seen within this time before
/// a cause may not have been in the answer. While the owner is frozen no time passes for it: what it asked for before is
/// what it goes on with.
const COMMIT_IN_FLIGHT_NANOS: u64 = 5_000_000_000;

/// How long two members may both own a queue after a disturbance, because they see members or routes differently. Each of
/// them sends a heartbeat to every broker within 30 s and asks for routes within 30 s; its next round comes within 20 s
/// of that, whether or not it is told; and asking takes 2 s with the pause between two rounds. `spec/client.md` 8.4 has
/// the same 52 s; its 152 s count from a silence, which disturbs once more when it is noticed.
pub(super) const VIEWS_DIFFER_NANOS: u64 = (30 + 20 + 2) * 1_000_000_000;

/// `phantom`: delivered and never sent, or not what was sent.
pub(super) fn phantom(facts: &Facts<'_>) -> Report {
    let mut report = Report::new("phantom");
    for delivery in &facts.all_deliveries {
        report.opportunities += 1;
        let Some(message) = delivery.message else {
            report.violation(format!("a message without an id: {}", delivery.look), vec![delivery.index]);
            continue;
        };
        match facts.sends.get(&message) {
            None => report.violation(format!("{message} was never sent"), vec![delivery.index]),
            Some(sent) if sent.invoke > delivery.index => {
                report.violation(format!("{message} came before it was sent"), vec![delivery.index, sent.invoke]);
            }
            Some(sent) if sent.look != delivery.look => {
                let what = format!("{message} was sent as `{}`, delivered as `{}`", sent.look, delivery.look);
                report.violation(what, vec![sent.invoke, delivery.index]);
            }
            Some(_) => {}
        }
    }
    report
}

/// `dup_deliver`: the same stored message again to the same group, with nothing that explains it: no crash of the
/// consumer, none of the broker that made it go back, no queue that changed hands, no listener that wanted it again, no
/// disturbance that leaves a queue with two owners for a while; or although its offset had been committed for good.
pub(super) fn dup_deliver(facts: &Facts<'_>, logs: &Logs, history: &History) -> Report {
    let mut report = Report::new("dup-deliver");
    let mut last: std::collections::BTreeMap<(&str, QueueRef, u64), &Delivery<'_>> = std::collections::BTreeMap::new();
    for delivery in &facts.all_deliveries {
        report.opportunities += 1;
        let group = group_of(history.node(delivery.node));
        let Some(before) = last.insert((group, delivery.queue, delivery.offset), delivery) else { continue };
        if before.message != delivery.message {
            continue; // Its offset was given again, after the log had lost what stood there.
        }
        let queue = history.queue(delivery.queue);
        let witness = vec![before.index, delivery.index];
        let Some(cause) = cause_between(facts, history, before, delivery) else {
            report.violation(format!("{queue} offset {} again to {group}, without a cause", delivery.offset), witness);
            continue;
        };
        let commit = committed_for_good(facts, history, group, (before, delivery), cause);
        // What had been committed went with the disk of its broker.
        let is_there = |commit: &usize| {
            let broker = history.broker_of(delivery.queue, delivery.index);
            !broker.is_some_and(|broker| logs.exchanged_between(broker, *commit, delivery.index))
        };
        if let Some(commit) = commit.filter(is_there) {
            let what = format!("{queue} offset {} again to {group}, below what it had committed", delivery.offset);
            report.violation(what, witness.into_iter().chain([commit]).collect());
        }
    }
    report
}

/// When the thing happened that explains why `again` follows `before`: something in between, or two members that both
/// think the queue is theirs because a disturbance has given them different views.
fn cause_between(facts: &Facts<'_>, history: &History, before: &Delivery<'_>, again: &Delivery<'_>) -> Option<u64> {
    let within = before.index..again.index;
    let moves = |node: &NodeRef| facts.moves_of(*node, again.queue);
    let moved = moves(&before.node).chain(moves(&again.node)).map(|moved| (moved.index, moved.at));
    let downs = facts.downs.get(&before.node).map_or(&[][..], Vec::as_slice);
    let down = downs.iter().map(|(index, at, _)| (*index, *at));
    let refused = before.nacked_at().map(|index| (index, 0));
    let corrections = facts.corrections.get(&again.node).map_or(&[][..], Vec::as_slice);
    let went_back =
        corrections.iter().filter(|(index, _, to)| *to <= again.offset && crashed(facts, history, again, *index));
    let went_back = went_back.map(|(index, at, _)| (*index, *at));
    // A slave that took the place of its master has offsets that are older.
    let promotions = history.promotions_of(again.queue).map(|(index, _)| (index, history.records[index].at));
    let all = moved.chain(down).chain(refused).chain(went_back).chain(promotions);
    let between = all.filter(|(index, _)| within.contains(index)).map(|(_, at)| at).min();
    let differ = |(from, until): &&(u64, u64)| (*from..=until + VIEWS_DIFFER_NANOS).contains(&before.at);
    let differs_since = facts.disturbances.iter().filter(differ).map(|(from, _)| *from).max();
    // A member that took nothing over in between has thought all the time that the queue is its own, whatever the other
    // one did.
    let took_over = moves(&again.node).any(|moved| moved.takes_over && within.contains(&moved.index));
    let views = differs_since.filter(|_| before.node != again.node && !took_over);
    between.into_iter().chain(views).min()
}

/// Whether the broker of a delivery had crashed before a record. Members find that out at their next pull, which may be
/// much later.
fn crashed(facts: &Facts<'_>, history: &History, delivery: &Delivery<'_>, until: usize) -> bool {
    history
        .broker_of(delivery.queue, until)
        .is_some_and(|broker| facts.crashes_between(broker, 0, until).next().is_some())
}

/// Whether a member was frozen when an offset was first seen to be committed, and has committed how far it had been since
/// it went on: when it gave queues up, or before, because it had not heard that it had lost one (`spec/protocol.md` 7.3).
/// What was seen long after it went on, it has not taken back.
fn taken_back_by_a_frozen_member(
    facts: &Facts<'_>,
    history: &History,
    group: &str,
    (first, last): (&Seen, &Seen),
    again: &Delivery<'_>,
) -> bool {
    facts.hindered_of(group).any(|(member, frozen)| {
        let node = history.find_node(member);
        let moves: Vec<_> = node.into_iter().flat_map(|node| facts.moves_of(node, again.queue)).collect();
        let gave_up = |within: u64| {
            let mut later = moves.iter().filter(|moved| first.index < moved.index && moved.index < again.index);
            later.any(|moved| moved.at <= within)
        };
        let goes_on_as_owner = |until: u64| {
            let is_owner = moves.iter().rfind(|moved| moved.at < until).is_some_and(|moved| moved.takes_over);
            is_owner
                && (first.at..=again.at).contains(&until)
                && last.at <= until.saturating_add(COMMIT_IN_FLIGHT_NANOS)
        };
        frozen
            .iter()
            .filter(|(from, _)| *from <= first.at)
            .any(|(_, until)| goes_on_as_owner(*until) || gave_up(until.saturating_add(COMMIT_IN_FLIGHT_NANOS)))
    })
}

/// Whether the network kept things when an offset was first seen to be committed, an earlier commit of an old owner among
/// them, which came and was in force before the next owner asked.
fn taken_back_by_what_was_under_way(facts: &Facts<'_>, first: &Seen, again: &Delivery<'_>) -> bool {
    facts.under_way.iter().any(|(from, until)| {
        *from <= first.at && first.at <= *until && again.at <= until.saturating_add(COMMIT_IN_FLIGHT_NANOS)
    })
}

/// Whether another member than the one that was given a message before thought then that the queue was its own, and gave
/// it up since a commit was first seen: it has committed then how far it had been itself.
fn taken_back_by_another_owner(
    facts: &Facts<'_>,
    history: &History,
    group: &str,
    first: &Seen,
    (before, again): (&Delivery<'_>, &Delivery<'_>),
) -> bool {
    let others = facts.moves.keys().filter(|node| **node != before.node && group_of(history.node(**node)) == group);
    others.copied().any(|node| {
        let (earlier, later): (Vec<&Move>, Vec<&Move>) =
            facts.moves_of(node, again.queue).partition(|moved| moved.index < before.index);
        let owned = earlier.last().is_some_and(|moved| moved.takes_over);
        let gave_up = later.first().is_some_and(|moved| !moved.takes_over && first.index < moved.index);
        owned && gave_up && later[0].index < again.index
    })
}

/// The record that shows a committed offset above the delivered one, long enough before the cause or before the member
/// started, which asked only after that; and before any crash of the broker that could have undone it.
fn committed_for_good(
    facts: &Facts<'_>,
    history: &History,
    group: &str,
    (before, again): (&Delivery<'_>, &Delivery<'_>),
    cause: u64,
) -> Option<usize> {
    let seen = facts.commits.get(&(group, again.queue))?;
    // What was seen before the last delivery proves nothing: whoever got the message then stood below it, and has taken
    // the committed offset back with the next commit of his own. Nor does what was seen before the offset was seen to
    // have gone back: whether it may is for `commit_regress` to say.
    let between = |seen: &&Seen| before.index < seen.index && seen.index < again.index;
    let mut at_last = seen.iter().filter(between).rev().take_while(|seen| seen.offset > again.offset);
    let last = at_last.next()?;
    let above = at_last.last().unwrap_or(last);
    if taken_back_by_what_was_under_way(facts, above, again)
        || taken_back_by_a_frozen_member(facts, history, group, (above, last), again)
        || taken_back_by_another_owner(facts, history, group, above, (before, again))
    {
        return None;
    }
    let started = facts.ups.get(&again.node).into_iter().flatten().rfind(|(index, _)| *index < again.index);
    let since = facts.unhindered_nanos(history.node(again.node), above.at, cause);
    let was_known = since > COMMIT_IN_FLIGHT_NANOS || started.is_some_and(|(index, _)| above.index < *index);
    if history.promoted_between(again.queue, above.index, again.index) {
        return None;
    }
    let was_on_disk = history.broker_of(again.queue, again.index).is_none_or(|broker| {
        let crash = facts.crashes_between(broker, 0, again.index).next();
        crash.is_none_or(|(_, at, _)| facts.unhindered_nanos(history.node(broker), above.at, at) > ON_DISK_NANOS)
    });
    (was_known && was_on_disk).then_some(above.index)
}
