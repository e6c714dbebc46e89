//! Checks across the tables of a scenario.

use std::{collections::BTreeSet, ops::Range};

use remoting::settings::Setting;

use super::{
    Fault, FaultKind, Kind, Load, ProducerGroup, Scenario, ScenarioError, When,
    reader::{At, Source},
    tables::{Places, SettingsOf, unknown},
    units,
};
use crate::workload;

/// The longest scenario: memory of a run grows with it.
const LONGEST_HOURS: u64 = 24;

/// The most messages of a scenario.
const MOST_MESSAGES: u64 = 1_000_000;

/// Refuses a scenario whose tables do not fit together.
pub(super) fn check(
    source: &Source,
    scenario: &Scenario,
    places: &Places,
    whole: &Range<usize>,
) -> Result<(), ScenarioError> {
    if scenario.brokers.is_empty() {
        return Err(source.error(&(whole.start..whole.start), "the scenario has no [[broker]]"));
    }
    if (scenario.active + scenario.settle).as_secs() > LONGEST_HOURS * 3600 {
        let message = format!("`active` and `settle` are more than {LONGEST_HOURS} h together");
        return Err(source.error(&(whole.start..whole.start), message));
    }
    let messages: u64 = scenario.producers.iter().map(messages).sum();
    if messages > MOST_MESSAGES {
        let message = format!("the producers send {messages} messages, the most is {MOST_MESSAGES}");
        return Err(source.error(&(whole.start..whole.start), message));
    }
    once(source, &places.groups, "group")?;
    once(source, &places.topic_names, "topic")?;
    once(source, &places.ids, "fault")?;
    let topics: Vec<&str> = scenario.topics.iter().map(|topic| topic.name.as_str()).collect();
    known(source, &places.topics, "topic", &topics)?;
    let brokers: Vec<&str> = scenario.brokers.iter().map(|group| group.name.as_str()).collect();
    known(source, &places.brokers, "broker group", &brokers)?;
    let names = scenario.nodes();
    let nodes: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    known(source, &places.nodes, "node", &nodes)?;
    let groups: BTreeSet<&str> =
        nodes.iter().filter_map(|node| node.rsplit_once('/')).map(|(group, _)| group).collect();
    let ends: Vec<&str> = nodes.iter().copied().chain(groups).chain(["*"]).collect();
    known(source, &places.ends, "node or group", &ends)?;
    for (point, names) in &places.points {
        known(source, std::slice::from_ref(point), "point", names)?;
    }
    let ids: Vec<&str> = scenario.faults.iter().map(|fault| fault.id.as_str()).collect();
    known(source, &places.faults, "fault", &ids)?;
    no_circles(source, scenario, places)?;
    known(source, &places.permanent, "node", &nodes)?;
    stay_dead(source, scenario, places)?;
    for time in &places.times {
        let (what, at) = time.value;
        if at > scenario.active {
            let (at, end) = (units::print_time(at), units::print_time(scenario.active));
            let message = format!("`{what}` is {at}, after the end of the active phase at {end}");
            return Err(source.error(&time.at, message).with_help("move it earlier, or make `active` longer"));
        }
    }
    disks(source, scenario, places)?;
    settings(source, places)
}

/// The rest must be able to converge without those who stay dead: a minority of the name servers, and any client.
fn stay_dead(source: &Source, scenario: &Scenario, places: &Places) -> Result<(), ScenarioError> {
    let kind_of = |node: &str| scenario.nodes().into_iter().find(|(name, _)| name == node).map(|(_, kind)| kind);
    let mut name_servers = 0;
    for place in &places.permanent {
        match kind_of(&place.value) {
            Some(Kind::Broker) => {
                let message = format!("`{}` holds the only copy of its messages: it must come back", place.value);
                return Err(source.error(&place.at, message));
            }
            Some(Kind::Namesrv) => name_servers += 1,
            _ => {}
        }
        if 2 * name_servers >= scenario.namesrvs && name_servers > 0 {
            let message = format!("{name_servers} of {} name servers would stay dead", scenario.namesrvs);
            return Err(source.error(&place.at, message).with_help("only a minority may"));
        }
    }
    Ok(())
}

/// A gate must not wait for a fault that waits for this gate: it would never open.
fn no_circles(source: &Source, scenario: &Scenario, places: &Places) -> Result<(), ScenarioError> {
    let fault_of = |id: &str| scenario.faults.iter().find(|fault| fault.id == id);
    for fault in &scenario.faults {
        let (FaultKind::Hold { gate, .. }, Some(until)) = (&fault.kind, fault.needs()) else { continue };
        let mut chain = vec![fault.id.as_str()];
        let mut next = Some(until);
        let mut circle = false;
        while let Some(id) = next.filter(|_| !circle) {
            circle = chain.contains(&id);
            chain.push(id);
            next = fault_of(id).and_then(Fault::needs);
        }
        let behind = |when: &When| matches!(when, When::On { point, node, nth } if *point == gate.point && *node == gate.node && *nth > gate.nth);
        circle |= fault_of(until).is_some_and(|fault| behind(&fault.when));
        if circle {
            let at = places.faults.iter().find(|place| place.value == until).map_or(0..0, |place| place.at.clone());
            let message = match chain.len() {
                2 => format!("`{}` holds a node until `{until}`, which happens behind that very gate", fault.id),
                _ => format!("`{}` waits for itself: {}", fault.id, chain.join(" -> ")),
            };
            return Err(source.error(&at, message).with_help("let it wait for a fault that happens elsewhere"));
        }
    }
    Ok(())
}

/// Every setting must be one that its role knows, with a value of the right form.
fn settings(source: &Source, places: &Places) -> Result<(), ScenarioError> {
    for (of, placed) in &places.settings {
        for At { value: (key, value), at } in placed {
            let setting = Setting { key: key.clone(), value: value.clone(), at: "config".to_owned() };
            let read = match of {
                SettingsOf::Namesrv => namesrv::NamesrvConfig::read([setting]).map(drop),
                SettingsOf::Broker => broker::BrokerConfig::read([setting]).map(drop),
                SettingsOf::Producer => workload::check_producer(setting),
                SettingsOf::Consumer => workload::check_consumer(setting),
            };
            if let Err(error) = read {
                let told = error.to_string();
                let told = told.strip_prefix("config: ").unwrap_or(&told);
                let (message, help) = told.split_once("; ").map_or((told, None), |(told, help)| (told, Some(help)));
                let error = source.error(at, message);
                return Err(help.map_or(error.clone(), |help| error.with_help(help)));
            }
        }
    }
    Ok(())
}

/// How many messages a group sends.
fn messages(group: &ProducerGroup) -> u64 {
    match &group.load {
        Load::Drawn { rate, start, end, .. } => u64::from(group.instances) * u64::from(rate.count_in(*end - *start)),
        Load::Planned(sends) => sends.len() as u64,
    }
}

/// Faults of disks must be aimed at nodes that have one.
fn disks(source: &Source, scenario: &Scenario, places: &Places) -> Result<(), ScenarioError> {
    let names = scenario.nodes();
    for fault in &scenario.faults {
        let needs_disk = matches!(fault.kind.name(), "disk-fill" | "disk-slow");
        let Some(node) = fault.kind.node().filter(|_| needs_disk) else { continue };
        let is_broker = names.iter().any(|(name, kind)| name == node && *kind == Kind::Broker);
        if !is_broker {
            let at = places.nodes.iter().find(|place| place.value == node).map_or(0..0, |place| place.at.clone());
            let message = format!("`{}` needs a broker, `{node}` has no disk", fault.kind.name());
            return Err(source.error(&at, message));
        }
    }
    Ok(())
}

fn once(source: &Source, names: &[At<String>], what: &str) -> Result<(), ScenarioError> {
    let mut seen = BTreeSet::from(["namesrv"]);
    for name in names {
        if !seen.insert(name.value.as_str()) {
            let message = match name.value.as_str() {
                "namesrv" => format!("{what} `namesrv`: that name belongs to the name servers"),
                name => format!("a second {what} `{name}`"),
            };
            return Err(source.error(&name.at, message));
        }
    }
    Ok(())
}

fn known(source: &Source, names: &[At<String>], what: &str, known: &[&str]) -> Result<(), ScenarioError> {
    match names.iter().find(|name| !known.contains(&name.value.as_str())) {
        Some(name) => Err(unknown(source, &name.at, what, &name.value, known)),
        None => Ok(()),
    }
}
