//! Puts a scenario right after something was left out of it: whatever needs what is no longer there goes as well.

use std::time::Duration;

use crate::scenario::{Fault, FaultKind, Kind, Load, Scenario, When};

/// Makes of an edited scenario one that may be written, as far as that can be done by leaving out more, and by moving
/// times to the end of the active phase.
pub(super) fn tidy(scenario: &mut Scenario) {
    topics(scenario);
    clients(scenario);
    domains(scenario);
    faults(scenario);
    permanent(scenario);
}

/// Topics are on brokers that are there, and somebody uses them; clients have topics that are there.
fn topics(scenario: &mut Scenario) {
    let brokers: Vec<String> = scenario.brokers.iter().map(|group| group.name.clone()).collect();
    for topic in &mut scenario.topics {
        topic.brokers.retain(|broker| brokers.contains(broker));
    }
    scenario.topics.retain(|topic| !topic.brokers.is_empty());
    let Scenario { topics, producers, consumers, .. } = scenario;
    producers.retain(|group| topics.iter().any(|topic| topic.name == group.topic));
    consumers.retain(|group| topics.iter().any(|topic| topic.name == group.topic));
    topics.retain(|topic| {
        producers.iter().any(|group| group.topic == topic.name)
            || consumers.iter().any(|group| group.topic == topic.name)
    });
}

/// Nothing of the workload is planned for later than the end of the active phase, or for a producer that is not there.
fn clients(scenario: &mut Scenario) {
    let active = scenario.active;
    for group in &mut scenario.producers {
        match &mut group.load {
            Load::Planned(sends) => sends.retain(|send| send.at <= active && send.by < group.instances),
            Load::Drawn { start, end, .. } => {
                *end = active.min(*end);
                *start = (*start).min(end.saturating_sub(Duration::from_micros(1)));
            }
        }
    }
    for group in &mut scenario.consumers {
        group.join = group.join.min(active);
        group.scale.retain(|step| step.at <= active);
        if group.most_instances() == 0 {
            group.instances = 1;
        }
    }
}

/// Whoever loses power with others is there, and does.
fn domains(scenario: &mut Scenario) {
    let mut domains = std::mem::take(&mut scenario.domains);
    for domain in &mut domains {
        domain.nodes.retain(|node| !scenario.end_of_link(node).is_empty());
    }
    let is_used = |name: &str| {
        let mut kinds = scenario.faults.iter().map(|fault| &fault.kind);
        kinds.any(|kind| matches!(kind, FaultKind::DomainPowerLoss { domain, .. } if domain == name))
    };
    domains.retain(|domain| !domain.nodes.is_empty() && is_used(&domain.name));
    scenario.domains = domains;
}

/// Faults begin in the active phase, hit whom there is, and wait for faults that are there.
fn faults(scenario: &mut Scenario) {
    let whole = scenario.active + scenario.settle;
    let mut faults = std::mem::take(&mut scenario.faults);
    faults.retain(|fault| can_happen(scenario, fault));
    // A gate that waits for a gate goes with it.
    loop {
        let ids: Vec<String> = faults.iter().map(|fault| fault.id.clone()).collect();
        faults.retain(|fault| fault.needs().is_none_or(|needed| ids.iter().any(|id| id == needed)));
        if faults.len() == ids.len() {
            break;
        }
    }
    for lasts in faults.iter_mut().filter_map(|fault| fault.lasts.as_mut()) {
        lasts.most = lasts.most.min(whole);
        lasts.least = lasts.least.min(lasts.most);
    }
    scenario.faults = faults;
}

fn can_happen(scenario: &Scenario, fault: &Fault) -> bool {
    let is_there = |node: &str| scenario.nodes().iter().any(|(name, _)| name == node);
    let in_time = match &fault.when {
        When::At(at) => at.most < scenario.active,
        When::On { node, .. } => is_there(node),
    };
    let hits = fault.kind.node().is_none_or(is_there);
    let joins = fault.kind.link().is_none_or(|link| {
        let ends = [&link.from, &link.to].map(|end| scenario.end_of_link(end));
        ends.iter().all(|end| !end.is_empty()) && scenario.only_node_of(link).is_none()
    });
    let has_disk = !fault.kind.needs_disk() || fault.kind.node().is_none_or(|node| is_of(scenario, node, Kind::Broker));
    in_time && hits && joins && has_disk && scenario.has_whom(&fault.kind)
}

/// Whoever may stay dead is there, and of the name servers it is a minority.
fn permanent(scenario: &mut Scenario) {
    let mut permanent = std::mem::take(&mut scenario.permanent);
    let is_there = |node: &String| scenario.nodes().iter().any(|(name, _)| name == node);
    permanent.retain(is_there);
    let mut room = scenario.namesrvs.saturating_sub(1) / 2;
    permanent.retain(|node| {
        if !is_of(scenario, node, Kind::Namesrv) {
            return true;
        }
        let fits = room > 0;
        room = room.saturating_sub(1);
        fits
    });
    scenario.permanent = permanent;
}

/// Whether a node is of this kind.
pub(super) fn is_of(scenario: &Scenario, node: &str, kind: Kind) -> bool {
    scenario.nodes().iter().any(|(name, of)| name == node && *of == kind)
}
