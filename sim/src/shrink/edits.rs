//! What can be made smaller about the parts of a scenario.

use std::time::Duration;

use crate::scenario::{
    FaultKind, Kind, Load, Scenario, Send, Settings, When,
    units::{Span, parse_size, print_size},
};

/// A time at or below `middle` and above `above`, both in microseconds, that is as round as can be.
pub(super) fn round_time(middle: u64, above: u64) -> u64 {
    const UNITS: [u64; 6] = [60_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000];
    UNITS.into_iter().map(|unit| middle / unit * unit).find(|round| *round > above).unwrap_or(middle)
}

/// Points of the program on which a fault can happen instead of at a time: those that tell most about who is hit.
pub(super) fn points_of(scenario: &Scenario, kind: &FaultKind) -> &'static [&'static str] {
    let Some(node) = kind.node() else { return &[] };
    let of_node = scenario.nodes().into_iter().find(|(name, _)| name == node).map(|(_, kind)| kind);
    match (kind, of_node) {
        // A gate closes at a time.
        (FaultKind::Hold { .. }, _) => &[],
        (_, Some(Kind::Broker)) => &["store.appended", "store.flushing", "store.flushed"],
        (_, Some(Kind::Consumer)) => &["client.queue-added", "client.committing"],
        (_, Some(Kind::Producer | Kind::Namesrv) | None) => &[],
    }
}

/// Moves a fault to an earlier time, and the gates that wait for it with it, as far as there is time before them.
pub(super) fn move_to(scenario: &mut Scenario, id: &str, to: Duration) {
    let mut by = Duration::ZERO;
    for fault in &mut scenario.faults {
        if let (When::At(at), true) = (&mut fault.when, fault.id == id) {
            by = at.least.saturating_sub(to);
            *at = Span::exactly(to);
            if let FaultKind::RestoreBackup { taken, .. } = &mut fault.kind {
                *taken = (*taken).min(to);
            }
        }
    }
    for fault in waiting_for(scenario, id) {
        if let When::At(at) = &mut scenario.faults[fault].when {
            *at = Span::exactly(at.least.saturating_sub(by));
        }
    }
}

/// Lets a fault happen on a visit of a point. The gates that wait for it close at the beginning, since nobody knows when
/// that is.
pub(super) fn move_to_point(scenario: &mut Scenario, id: &str, point: &str, nth: u32) {
    for fault in &mut scenario.faults {
        if let (Some(node), true) = (fault.kind.node(), fault.id == id) {
            fault.when = When::On { point: point.to_owned(), node: node.to_owned(), nth };
        }
    }
    for fault in waiting_for(scenario, id) {
        scenario.faults[fault].when = When::At(Span::exactly(Duration::ZERO));
    }
}

/// The numbers of the gates that wait for a fault, or for a gate that does.
fn waiting_for(scenario: &Scenario, id: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut ids = vec![id];
    while let Some(id) = ids.pop() {
        for (number, fault) in scenario.faults.iter().enumerate() {
            if fault.needs() == Some(id) && !found.contains(&number) {
                found.push(number);
                ids.push(&fault.id);
            }
        }
    }
    found
}

/// One planned message: its time, its group and who sends it, and its number there. In order of time.
pub(super) type Operation = (Duration, String, u32, u32);

/// All planned messages, in order of time.
pub(super) fn operations(scenario: &Scenario) -> Vec<Operation> {
    let planned = scenario.producers.iter().filter_map(|group| match &group.load {
        Load::Planned(sends) => Some(sends.iter().map(|send| (send.at, group.group.clone(), send.by, send.n))),
        Load::Drawn { .. } => None,
    });
    let mut operations: Vec<Operation> = planned.flatten().collect();
    operations.sort();
    operations
}

/// Leaves only these messages.
pub(super) fn retain_operations(scenario: &mut Scenario, kept: &[Operation]) {
    let kept: std::collections::BTreeSet<(&str, u32, u32)> =
        kept.iter().map(|(_, group, by, n)| (group.as_str(), *by, *n)).collect();
    for group in &mut scenario.producers {
        if let Load::Planned(sends) = &mut group.load {
            sends.retain(|send| kept.contains(&(group.group.as_str(), send.by, send.n)));
        }
    }
}

/// Every planned message, to be changed.
pub(super) fn each_send(scenario: &mut Scenario, mut change: impl FnMut(&mut Send)) {
    for group in &mut scenario.producers {
        if let Load::Planned(sends) = &mut group.load {
            sends.iter_mut().for_each(&mut change);
        }
    }
}

/// The tables of settings with the names of what they belong to, in the order of the file.
pub(super) fn settings_of(scenario: &mut Scenario) -> Vec<(String, &mut Settings)> {
    let mut all = vec![("namesrv".to_owned(), &mut scenario.namesrv_config)];
    all.extend(scenario.brokers.iter_mut().map(|group| (group.name.clone(), &mut group.config)));
    all.extend(scenario.producers.iter_mut().map(|group| (group.group.clone(), &mut group.config)));
    all.extend(scenario.consumers.iter_mut().map(|group| (group.group.clone(), &mut group.config)));
    all
}

/// Writes another value for a setting that is there.
pub(super) fn set_setting(scenario: &mut Scenario, owner: &str, key: &str, value: &str) {
    for (of, settings) in settings_of(scenario) {
        for (_, old) in settings.iter_mut().filter(|(other, _)| of == owner && other == key) {
            value.clone_into(old);
        }
    }
}

/// Half of a size or of a number of bytes, in the same notation; `None` of what is neither, and of nothing.
pub(super) fn half_of_size(text: &str) -> Option<String> {
    match text.parse::<u64>() {
        Ok(number) => Some(number / 2).filter(|half| *half > 0).map(|half| half.to_string()),
        Err(_) => parse_size(text).ok().map(|bytes| bytes / 2).filter(|half| *half > 0).map(print_size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_halved_in_their_own_notation() {
        let halves = ["64KiB", "1GiB", "6000", "1", "0", "1B", "SYNC_FLUSH"].map(half_of_size);
        assert_eq!(halves.map(|half| half.unwrap_or_default()), ["32KiB", "512MiB", "3000", "", "", "", ""]);
    }

    #[test]
    fn round_times_are_as_round_as_there_is_room() {
        assert_eq!(round_time(12_345_678, 0), 10_000_000);
        assert_eq!(round_time(12_345_678, 10_000_000), 12_000_000);
        assert_eq!(round_time(12_345_678, 12_300_000), 12_340_000);
        assert_eq!(round_time(12_345_678, 12_345_600), 12_345_678);
        assert_eq!(round_time(0, 0), 0);
    }
}
