//! Checkers of delays and retries.

use std::collections::{BTreeMap, BTreeSet};

use message::DelayLevels;

use crate::{
    history::{Event, History, MessageId, NodeRef, Record},
    scenario::{Back, BrokerGroup, FaultKind, Kind, Scenario, setting},
    world::nanos,
};

use super::{
    Report,
    copies::Logs,
    facts::{Delivery, Facts, group_of, stretches},
};

/// How much too early a delayed message may come: the levels are looked at in this step. Source: `spec/store.md` 11.2,
/// `spec/simulation.md` 7.3.
const TICK_NANOS: u64 = 100_000_000;

/// How much too late a broker that is well may let a delayed message go: the step, a flush, and a second. Source:
/// `spec/simulation.md` 7.3.
const LATE_NANOS: u64 = TICK_NANOS + 500_000_000 + 1_000_000_000;

/// How long after a fault a broker may still be busy with what it left.
const WELL_AGAIN_NANOS: u64 = 10_000_000_000;

/// After so many minutes a message that its listener still works on is given back. Source: `spec/client.md` 6.3.
const CONSUME_TIMEOUT_MINUTES: u64 = 15;

/// The level of the first retry. Source: `spec/client.md` 6.1.
const FIRST_RETRY_LEVEL: usize = 3;

/// `early`: a refused message comes again before the delay of the first retry has passed since it was refused, and no
/// clock of a broker was set meanwhile. Later retries wait longer; but a refusal can be stored twice, and which one a
/// delivery belongs to nobody tells. Or a broker lets a delayed message go before the delay of its level has passed since
/// it was stored.
pub(super) fn early(facts: &Facts<'_>, logs: &Logs, scenario: &Scenario, history: &History) -> Report {
    let mut report = Report::new("early");
    // Any broker may have taken the retry.
    let delay = scenario.brokers.iter().filter_map(|group| delay_levels(group).delay(FIRST_RETRY_LEVEL)).min();
    let delay = delay.map_or(0, nanos);
    let clocks = clocks_wrong(scenario, history);
    let mut refusals: BTreeMap<(&str, MessageId), Vec<usize>> = BTreeMap::new();
    let mut given_back: BTreeMap<(&str, MessageId), Vec<u64>> = BTreeMap::new();
    for delivery in &facts.all_deliveries {
        let Some(message) = delivery.message else { continue };
        let group = group_of(history.node(delivery.node));
        let known = refusals.entry((group, message)).or_default();
        if history.queue(delivery.queue).topic == message::retry_topic(group) {
            report.opportunities += 1;
            let is_due = |refusal: &usize| {
                let at = history.records[*refusal].at;
                let excused = clocks.iter().any(|(from, until)| *from <= delivery.at && *until >= at);
                *refusal < delivery.index && (excused || at + delay <= delivery.at + TICK_NANOS)
            };
            let timed_out = given_back.get(&(group, message)).into_iter().flatten();
            let mut timed_out = timed_out.filter(|at| *at + delay <= delivery.at + TICK_NANOS);
            if !known.iter().any(is_due) && timed_out.next().is_none() {
                let witness = known.iter().copied().chain([delivery.index]).collect();
                report.violation(format!("{message} came again to {group} before its delay was over"), witness);
            }
        }
        known.extend(delivery.nacked_at());
        // It is given back when its listener takes too long, whatever that says in the end.
        let timeout = consume_timeout_nanos(scenario, group);
        let ended = delivery.done.map_or(u64::MAX, |(index, _)| history.records[index].at);
        if ended.saturating_sub(delivery.at) >= timeout {
            given_back.entry((group, message)).or_default().push(delivery.at + timeout);
        }
    }
    for wait in waits(logs, scenario, history) {
        let is_wrong = clocks.iter().any(|(from, until)| *from <= wait.until && *until >= wait.from);
        if !is_wrong && wait.until + TICK_NANOS < wait.from + wait.delay {
            report.violation(wait.told("before", history), vec![wait.appended, wait.due]);
        }
    }
    report
}

/// `late`: a broker lets a delayed message go later than it should, although it has been well all the time.
pub(super) fn late(facts: &Facts<'_>, logs: &Logs, scenario: &Scenario, history: &History) -> Report {
    let mut report = Report::new("late");
    let faults = stretches(history, |_| true).into_iter().map(|(_, from, until)| (from, until));
    let faults: Vec<(u64, u64)> = faults.chain(clocks_wrong(scenario, history)).collect();
    let is_full = |record: &Record| matches!(record.event, Event::Point("store.disk-full", _));
    let full: BTreeSet<NodeRef> =
        history.records.iter().filter(|record| is_full(record)).filter_map(|record| Some(record.node?.0)).collect();
    for wait in waits(logs, scenario, history) {
        let from = wait.from.saturating_sub(WELL_AGAIN_NANOS);
        let is_disturbed = faults.iter().any(|(begin, end)| *begin <= wait.until && *end >= from);
        let ups = facts.ups.get(&wait.node).into_iter().flatten();
        let is_new = ups.skip(1).any(|(_, at)| (from..wait.until).contains(at));
        if is_disturbed || is_new || full.contains(&wait.node) {
            continue;
        }
        report.opportunities += 1;
        if wait.until > wait.from + wait.delay + LATE_NANOS {
            report.violation(wait.told("long after", history), vec![wait.appended, wait.due]);
        }
    }
    report
}

/// A delayed message from when it was stored until its broker let it go.
struct Wait {
    node: NodeRef,
    /// The record of its being stored.
    appended: usize,
    from: u64,
    /// The record of its going.
    due: usize,
    until: u64,
    delay: u64,
}

impl Wait {
    fn told(&self, when: &str, history: &History) -> String {
        format!("{} let a delayed message go {when} its time", history.node(self.node))
    }
}

/// All waits that have ended.
fn waits(logs: &Logs, scenario: &Scenario, history: &History) -> Vec<Wait> {
    let levels: BTreeMap<&str, DelayLevels> =
        scenario.brokers.iter().map(|group| (group.name.as_str(), delay_levels(group))).collect();
    let records = history.records.iter().enumerate();
    let dues = records.filter_map(|(index, record)| match (&record.event, record.node) {
        (Event::Due { phy, level }, Some((node, _))) => Some((index, record.at, node, *phy, *level)),
        _ => None,
    });
    let waits = dues.filter_map(|(due, until, node, phy, level)| {
        let levels = levels.get(group_of(history.node(node)))?;
        let delay = nanos(levels.delay(usize::try_from(level).ok()?)?);
        // On another disk something else may have stood there, and nobody knows since when.
        let appended = logs.appended(node, due, phy).filter(|from| !logs.exchanged_between(node, *from, due))?;
        Some(Wait { node, appended, from: history.records[appended].at, due, until, delay })
    });
    waits.collect()
}

/// `retry`: a message does not say how often it was refused: it says `n`, and nobody in its group was given it when it
/// said `n - 1` and has not finished it; or it comes from the queue of retries and says that it was never refused. Or one
/// that was refused for the last time is not among the dead letters, or one is there that was not.
pub(super) fn retry(facts: &Facts<'_>, logs: &Logs, scenario: &Scenario, history: &History) -> Report {
    let mut report = Report::new("retry");
    let mut known: BTreeMap<(&str, MessageId), Vec<&Delivery<'_>>> = BTreeMap::new();
    for delivery in &facts.all_deliveries {
        let Some(message) = delivery.message else { continue };
        let group = group_of(history.node(delivery.node));
        let before = known.entry((group, message)).or_default();
        let comes_again = history.queue(delivery.queue).topic == message::retry_topic(group);
        report.opportunities += u64::from(comes_again);
        let witness = before.iter().map(|before| before.index).chain([delivery.index]).collect();
        if delivery.times > 0 {
            let can_be_given_back = |before: &&&Delivery<'_>| {
                before.times + 1 == delivery.times && is_unfinished(before, delivery, scenario, group, history)
            };
            if !before.iter().any(|before| can_be_given_back(&before)) {
                let what = format!("{message} says to {group} that it comes for retry {}", delivery.times);
                report.violation(format!("{what}, which nobody has asked for"), witness);
            }
        } else if comes_again {
            report.violation(format!("{message} comes again to {group} and says that it was never refused"), witness);
        }
        before.push(delivery);
    }
    dead_letters((facts, logs), scenario, history, &known, &mut report);
    report
}

/// The part of [`retry`] that is about dead letters.
fn dead_letters(
    (facts, logs): (&Facts<'_>, &Logs),
    scenario: &Scenario,
    history: &History,
    known: &BTreeMap<(&str, MessageId), Vec<&Delivery<'_>>>,
    report: &mut Report,
) {
    let records = history.records.iter().enumerate();
    let dead: BTreeMap<(&str, MessageId), usize> = records
        .filter_map(|(index, record)| match &record.event {
            Event::DeadLetter { message: Some(message), group, .. } => Some(((group.as_str(), *message), index)),
            _ => None,
        })
        .collect();
    let is_over = history.records.iter().any(|record| record.event == Event::Converged);
    let audited = history.records.iter().filter(|record| matches!(record.event, Event::Audited { .. })).count();
    for (&(group, message), deliveries) in known {
        let Some(last) = facts.given_up(group, message) else { continue };
        let refused = last.nacked_at().expect("that is how it was given up");
        report.opportunities += 1;
        // A member that tries again by itself counts that, and the broker does not.
        let from_there = |delivery: &&&Delivery<'_>| (delivery.queue, delivery.offset) == (last.queue, last.offset);
        let is_sure = deliveries.iter().find(from_there).is_some_and(|first| first.times == last.times);
        // What waits in the buffer pool of a broker is not on the disk that is looked at.
        let all_looked_at = is_over && audited == logs.count() && !logs.any_acks_from_memory();
        let is_lost = logs.copy_lost_anywhere_after(refused).is_some();
        // No broker took it, so its member, or the next owner of the queue, was given it once more.
        let finishes =
            |later: &&&Delivery<'_>| later.index > refused && later.done.is_some_and(|(_, finished)| finished);
        let is_finished = deliveries.iter().filter(from_there).any(|later| finishes(&later));
        if !dead.contains_key(&(group, message)) && is_sure && all_looked_at && !is_lost && !is_finished {
            let what = format!("{message} was refused for the last time by {group} and is no dead letter");
            report.violation(what, vec![last.index, refused]);
        }
    }
    for ((group, message), index) in dead {
        report.opportunities += 1;
        let given = known.get(&(group, message)).map_or(&[][..], Vec::as_slice);
        if !given.iter().any(|delivery| scenario.is_last_time(group, delivery.times)) {
            let what = format!("{message} is a dead letter of {group}, which was not given it for the last time");
            report.violation(what, vec![index]);
        }
    }
}

/// Whether a member may have given back what it got before: it had not finished it, or took too long.
fn is_unfinished(
    before: &Delivery<'_>,
    again: &Delivery<'_>,
    scenario: &Scenario,
    group: &str,
    history: &History,
) -> bool {
    let finished = before.done.filter(|(index, finished)| *finished && *index < again.index);
    let timeout = consume_timeout_nanos(scenario, group);
    finished.is_none_or(|(index, _)| history.records[index].at - before.at >= timeout)
}

/// After how long a member gives a message back that its listener still works on.
fn consume_timeout_nanos(scenario: &Scenario, group: &str) -> u64 {
    let timeout = scenario.consumer(group).and_then(|group| setting(&group.config, "consumeTimeout"));
    let minutes: u64 = timeout.and_then(|minutes| minutes.parse().ok()).unwrap_or(CONSUME_TIMEOUT_MINUTES);
    minutes.saturating_mul(60 * 1_000_000_000)
}

fn delay_levels(group: &BrokerGroup) -> DelayLevels {
    let list = group.setting("messageDelayLevel");
    list.and_then(|list| DelayLevels::parse(list).ok()).unwrap_or_default()
}

/// When faults set the clocks of brokers, or let them run wrong. What goes back little by little has not come back until
/// the settle phase sets it right at once.
fn clocks_wrong(scenario: &Scenario, history: &History) -> Vec<(u64, u64)> {
    let brokers: Vec<String> =
        scenario.nodes().into_iter().filter(|(_, kind)| *kind == Kind::Broker).map(|(node, _)| node).collect();
    let clocks = scenario.faults.iter().filter_map(|fault| match &fault.kind {
        FaultKind::Clock { node, back, .. } if brokers.contains(node) => Some((fault.id.as_str(), *back)),
        _ => None,
    });
    let clocks: BTreeMap<&str, Back> = clocks.collect();
    let settle = history.records.iter().find(|record| record.event == Event::Phase("settle"));
    let settle = settle.map_or(u64::MAX, |record| record.at);
    let wrong = stretches(history, |id| clocks.contains_key(id)).into_iter();
    wrong.map(|(id, from, until)| (from, if clocks[id] == Back::Slew { until.max(settle) } else { until })).collect()
}
