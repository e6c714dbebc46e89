//! The fates of a run: what became of every message, in a form that another interleaving does not change.
//!
//! What happens to a message that is sent while something is broken depends on microseconds. So the plan decides which
//! messages are close to a fault: of those only is told whether promises were kept. All others must be acknowledged and
//! reach everyone who wants them. Messages of equal fate in a row share a line.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    history::{Event, MessageId},
    run::Finished,
    scenario::{Fault, FaultKind, Kind, Load, Scenario, SendMode, When, units::print_time},
    verdict::Judgement,
    workload::producer_number,
};

/// How long before a fault a message may be sent and still be touched by it: a send takes 3 s at most.
const BEFORE: Duration = Duration::from_secs(4);

/// The same for a power loss: a broker that does not flush before it acknowledges does so after at most 10 s.
const BEFORE_POWER_LOSS: Duration = Duration::from_secs(14);

/// How long after the end of a fault a send may still be touched by it: a broker comes back, a disk is looked at again.
const AFTER: Duration = Duration::from_secs(12);

/// The fates, line by line.
#[must_use]
pub fn fates(scenario: &Scenario, run: &Finished, judgement: &Judgement) -> Vec<String> {
    let mut lines = vec![format!("verdict {}", judgement.verdict.name())];
    lines.extend(judgement.violated.iter().map(|checker| format!("  violated {checker}")));
    let outcomes = outcomes(run);
    for group in &scenario.producers {
        let Load::Planned(sends) = &group.load else { continue };
        for by in 0..group.instances {
            let producer = producer_number(scenario, &group.group, by);
            lines.push(format!("messages of {}/{by}", group.group));
            let of_this = sends.iter().filter(|send| send.by == by);
            let fates = of_this.map(|send| {
                let id = MessageId { producer, n: send.n };
                (send.n, fate(scenario, run, &outcomes, group.mode, id, send.at))
            });
            lines.extend(in_rows(fates));
        }
    }
    lines.push("checkers".to_owned());
    // What a scenario cannot promise another interleaving may change.
    for report in run.findings.reports.iter().filter(|report| scenario.feeds(report.checker)) {
        lines.push(format!("  {} had {} to check", report.checker, class(report.opportunities)));
    }
    lines.push("faults".to_owned());
    lines.extend(scenario.faults.iter().map(|fault| format!("  {}", describe(fault))));
    lines
}

/// How the sending of each message ended.
fn outcomes(run: &Finished) -> BTreeMap<MessageId, &'static str> {
    let mut outcomes = BTreeMap::new();
    for record in &run.history.records {
        match &record.event {
            Event::SendOk(id, ..) => outcomes.insert(*id, "acknowledged"),
            Event::SendFail(id, _) => outcomes.insert(*id, "refused"),
            Event::SendInfo(id, _) => outcomes.insert(*id, "outcome unknown"),
            _ => None,
        };
    }
    outcomes
}

fn fate(
    scenario: &Scenario,
    run: &Finished,
    outcomes: &BTreeMap<MessageId, &'static str>,
    mode: SendMode,
    id: MessageId,
    at: Duration,
) -> String {
    let wanted = scenario.consumers.iter().map(|group| (group.group.clone(), id));
    let missing: Vec<_> = wanted.filter(|key| run.findings.missing.contains(key)).collect();
    let broken = missing.iter().any(|key| !run.findings.legally_lost.contains_key(key));
    let near: Vec<&str> =
        scenario.faults.iter().filter(|fault| touches(scenario, fault, at)).map(|fault| fault.id.as_str()).collect();
    if broken {
        return "acknowledged, and not finished by everyone who wants it".to_owned();
    }
    if !near.is_empty() {
        return format!("close to {}: what was promised was kept", near.join(", "));
    }
    if mode == SendMode::Oneway {
        return "sent without an answer".to_owned();
    }
    match (outcomes.get(&id), missing.is_empty()) {
        (Some(&"acknowledged"), true) => {
            let wanted = scenario.consumers.iter().map(|group| &group.group);
            let given_up = wanted.filter(|group| run.findings.given_up.contains(&((*group).clone(), id)));
            match given_up.map(String::as_str).collect::<Vec<_>>().join(" and ") {
                none if none.is_empty() => "acknowledged, finished by everyone who wants it".to_owned(),
                groups => format!("acknowledged, a dead letter of {groups}, finished by everyone else"),
            }
        }
        (Some(&"acknowledged"), false) => "acknowledged, legally lost".to_owned(),
        (Some(outcome), _) => (*outcome).to_owned(),
        (None, _) => "not sent".to_owned(),
    }
}

/// Whether a fault may touch a message that is sent at this time. What befalls a name server or a consumer does not:
/// routes are kept, and whoever takes over a queue finishes it.
fn touches(scenario: &Scenario, fault: &Fault, at: Duration) -> bool {
    let kind_of = |node: &str| scenario.nodes().into_iter().find(|(name, _)| name == node).map(|(_, kind)| kind);
    if fault.kind.node().is_some_and(|node| matches!(kind_of(node), Some(Kind::Namesrv | Kind::Consumer))) {
        return false;
    }
    if matches!(fault.kind, FaultKind::RebalanceStorm { .. } | FaultKind::ConfigChange { .. }) {
        return false;
    }
    let When::At(begin) = fault.when else { return true };
    let before = if fault.kind.loses_power() { BEFORE_POWER_LOSS } else { BEFORE };
    let lasts = fault.lasts.and_then(|lasts| Some(fault.kind.waits()? + lasts.most));
    let end = lasts.map_or(scenario.active, |lasts| begin.most + lasts);
    (begin.least.saturating_sub(before)..=end + AFTER).contains(&at)
}

/// Messages of equal fate that follow each other in one row: `0000..0119  acknowledged, …`.
fn in_rows(fates: impl Iterator<Item = (u32, String)>) -> Vec<String> {
    let mut rows: Vec<(u32, u32, String)> = Vec::new();
    for (n, fate) in fates {
        match rows.last_mut() {
            Some((_, last, same)) if *same == fate => *last = n,
            _ => rows.push((n, n, fate)),
        }
    }
    let row = |(first, last, fate)| match first == last {
        true => format!("  {first:04}        {fate}"),
        false => format!("  {first:04}..{last:04}  {fate}"),
    };
    rows.into_iter().map(row).collect()
}

/// A count in the coarse classes that interleavings do not change.
fn class(count: u64) -> &'static str {
    match count {
        0 => "nothing",
        1..100 => "1+",
        _ => "100+",
    }
}

fn describe(fault: &Fault) -> String {
    let when = match &fault.when {
        When::At(at) => format!("at {}", print_time(at.least)),
        When::On { point, node, nth } => format!("on visit {nth} of {point} at {node}"),
    };
    let node = fault.kind.node().map(|node| format!(" {node}")).unwrap_or_default();
    let lasts = fault.lasts.map(|lasts| format!(" for {}", print_time(lasts.least))).unwrap_or_default();
    format!("{} {}{node} {when}{lasts}", fault.id, fault.kind.name())
}
