//! The checker of what name servers say.

use std::collections::BTreeSet;

use crate::{
    history::{Event, History},
    scenario::{FaultKind, Kind, Scenario, setting},
};

use super::{
    Report,
    facts::{Facts, stretches},
};

/// How long a broker may be silent before a name server takes it for gone. Source: `spec/protocol.md` 10.2.
const EXPIRY_NANOS: u64 = 120_000_000_000;

/// Pause between two looks for silent brokers (`scanNotActiveBrokerInterval`), in milliseconds. Source: as above.
const SCAN_MILLIS: u64 = 5_000;

/// An answer is on its way for so long at most.
const ANSWER_NANOS: u64 = 3_000_000_000;

/// Faults that do nothing but bring a node down.
const DOWN_FAULTS: [&str; 4] = ["kill", "panic", "stop", "power-loss"];

/// `route`: a name server names a broker that has been dead for longer than it may take to notice that. Time counts from
/// the end of the last fault, because faults can hold back what a broker said when it was alive.
pub(super) fn route(facts: &Facts<'_>, scenario: &Scenario, history: &History) -> Report {
    let mut report = Report::new("route");
    let scan = setting(&scenario.namesrv_config, "scanNotActiveBrokerInterval");
    let scan = scan.and_then(|value| value.parse().ok()).unwrap_or(SCAN_MILLIS) * 1_000_000;
    let brings_down = |kind: &FaultKind| DOWN_FAULTS.contains(&kind.name());
    let others = scenario.faults.iter().filter(|fault| !brings_down(&fault.kind));
    let others: BTreeSet<&str> = others.map(|fault| fault.id.as_str()).collect();
    let faults = stretches(history, |id| others.contains(id));
    for (index, record) in history.records.iter().enumerate() {
        let Event::Route { name_server, brokers, .. } = &record.event else { continue };
        for (broker, _) in scenario.nodes().iter().filter(|(_, kind)| *kind == Kind::Broker) {
            let Some(node) = history.find_node(broker) else { continue };
            let Some(down) = facts.died_before(node, index) else { continue };
            let calm = faults.iter().filter(|(_, from, _)| *from <= record.at).map(|(.., until)| *until).max();
            let since = history.records[down].at.max(calm.unwrap_or(0));
            let is_over = record.at.saturating_sub(since) > EXPIRY_NANOS + scan + ANSWER_NANOS;
            report.opportunities += 1;
            if is_over && brokers.iter().any(|named| named == broker) {
                let what = format!("{name_server} still names {broker}, which is down for too long");
                report.violation(what, vec![down, index]);
            }
        }
    }
    report
}
