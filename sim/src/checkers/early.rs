//! The checker of delays.

use std::collections::BTreeMap;

use message::DelayLevels;

use crate::{
    history::{Event, History, MessageId},
    scenario::{Back, BrokerGroup, FaultKind, Kind, Scenario},
    world::nanos,
};

use super::{
    Report,
    facts::{Facts, group_of, stretches},
};

/// How much too early a delayed message may come: the levels are looked at in this step. Source: `spec/store.md` 11.2,
/// `spec/simulation.md` 7.3.
const TICK_NANOS: u64 = 100_000_000;

/// The level of the first retry. Source: `spec/client.md` 6.1.
const FIRST_RETRY_LEVEL: usize = 3;

/// `early`: a refused message comes again before the delay of the first retry has passed since it was refused, and no
/// clock of a broker was set meanwhile. Later retries wait longer; but a refusal can be stored twice, and which one a
/// delivery belongs to nobody tells.
pub(super) fn early(facts: &Facts<'_>, scenario: &Scenario, history: &History) -> Report {
    let mut report = Report::new("early");
    // Any broker may have taken the retry.
    let delay = scenario.brokers.iter().filter_map(|group| delay_levels(group).delay(FIRST_RETRY_LEVEL)).min();
    let delay = delay.map_or(0, nanos);
    let clocks = clocks_wrong(scenario, history);
    let mut refusals: BTreeMap<(&str, MessageId), Vec<usize>> = BTreeMap::new();
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
            if !known.iter().any(is_due) {
                let witness = known.iter().copied().chain([delivery.index]).collect();
                report.violation(format!("{message} came again to {group} before its delay was over"), witness);
            }
        }
        known.extend(delivery.nacked_at());
    }
    report
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
