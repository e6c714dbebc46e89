//! Checks across the tables of a scenario.

use std::{collections::BTreeSet, ops::Range};

use remoting::settings::Setting;

use super::{
    Fault, FaultKind, Kind, Scenario, ScenarioError, When, limits,
    reader::{At, Source},
    storage,
    tables::{MOST_QUEUES, Places, SettingsOf, unknown},
    units,
};
use crate::{points, workload};

/// How many nodes are listed that could be meant.
const NODES_LISTED_MAX: usize = 8;

/// Refuses a scenario whose tables do not fit together. Gives what is in it without effect.
pub(super) fn check(
    source: &Source,
    scenario: &Scenario,
    places: &Places,
    whole: &Range<usize>,
) -> Result<Vec<ScenarioError>, ScenarioError> {
    if scenario.brokers.is_empty() {
        return Err(source.error(&(whole.start..whole.start), "the scenario has no [[broker]]"));
    }
    limits::check(source, scenario, places)?;
    once(source, &places.groups, "group")?;
    once(source, &places.topic_names, "topic")?;
    once(source, &places.domain_names, "power domain")?;
    let domains: Vec<&str> = scenario.domains.iter().map(|domain| domain.name.as_str()).collect();
    if let (Some(place), true) = (places.domains.first(), domains.is_empty()) {
        let error = source.error(&place.at, format!("unknown power domain `{}`", place.value));
        return Err(error.with_help("write [[domain]] with its `name` and its `nodes`"));
    }
    known(source, &places.domains, "power domain", &domains)?;
    let consumers: Vec<&str> = scenario.consumers.iter().map(|group| group.group.as_str()).collect();
    known(source, &places.consumers, "consumer group", &consumers)?;
    once(source, &places.ids, "fault")?;
    let topics: Vec<&str> = scenario.topics.iter().map(|topic| topic.name.as_str()).collect();
    known(source, &places.topics, "topic", &topics)?;
    let brokers: Vec<&str> = scenario.brokers.iter().map(|group| group.name.as_str()).collect();
    known(source, &places.brokers, "broker group", &brokers)?;
    let names = scenario.nodes();
    let nodes: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    known_nodes(source, &places.nodes, &nodes)?;
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
    visits(source, scenario, places)?;
    known_nodes(source, &places.permanent, &nodes)?;
    stay_dead(source, scenario, places)?;
    links(source, scenario, places)?;
    partitions(source, scenario, places)?;
    changes(source, scenario, places)?;
    times(source, scenario, places)?;
    disks(source, scenario, places)?;
    promotions(source, scenario, places)?;
    backups(source, scenario, places)?;
    let mut idle = settings(source, places)?;
    storage::check(source, scenario, places)?;
    let is_idle = |domain: &&At<String>| !places.domains.iter().any(|used| used.value == domain.value);
    let unused = places.domain_names.iter().filter(is_idle);
    idle.extend(unused.map(|At { value, at }| source.error(at, format!("no fault uses the power domain `{value}`"))));
    Ok(idle)
}

/// A node that is to pass a point has a program that comes to it.
fn visits(source: &Source, scenario: &Scenario, places: &Places) -> Result<(), ScenarioError> {
    let nodes = scenario.nodes();
    for At { value: (point, node), at } in &places.visits {
        let kinds = points::passed_by(point);
        let (can, others): (Vec<_>, Vec<_>) = nodes.iter().partition(|(_, kind)| kinds.contains(kind));
        if others.iter().all(|(name, _)| name != node) {
            continue;
        }
        let error = source.error(at, format!("`{node}` never passes `{point}`"));
        let names: Vec<&str> = can.iter().take(NODES_LISTED_MAX).map(|(name, _)| name.as_str()).collect();
        return Err(match can.len() {
            0 => error.with_help("there is no node in this scenario that does"),
            count if count > names.len() => {
                error.with_help(format!("these do: {} and {} more", names.join(", "), count - names.len()))
            }
            _ => error.with_help(format!("these do: {}", names.join(", "))),
        });
    }
    Ok(())
}

/// Nothing may be planned for a time when it could not happen any more.
fn times(source: &Source, scenario: &Scenario, places: &Places) -> Result<(), ScenarioError> {
    let (active, whole) = (units::print_time(scenario.active), scenario.active + scenario.settle);
    for time in &places.times {
        let (what, at) = time.value;
        if at > scenario.active {
            let message =
                format!("`{what}` is {}, after the end of the active phase at {active}", units::print_time(at));
            return Err(source.error(&time.at, message).with_help("move it earlier, or make `active` longer"));
        }
    }
    if let Some(time) = places.fault_times.iter().find(|time| time.value >= scenario.active) {
        let at = units::print_time(time.value);
        let message = format!("`at` is {at}, not before the end of the active phase at {active}: nothing would happen");
        return Err(source.error(&time.at, message).with_help("move it earlier, or make `active` longer"));
    }
    if let Some(time) = places.lasting.iter().find(|time| time.value.1 > whole) {
        let ((what, lasts), whole) = (time.value, units::print_time(whole));
        let message = format!("`{what}` is {}, longer than the whole run of {whole}", units::print_time(lasts));
        return Err(source.error(&time.at, message).with_help("leave it out if it is to last until the settle phase"));
    }
    match &places.converged {
        Some(At { value, at }) if *value > scenario.settle => {
            let (bound, settle) = (units::print_time(*value), units::print_time(scenario.settle));
            let message = format!("`converged` is {bound}, longer than the settle phase of {settle}");
            Err(source.error(at, message).with_help("make it shorter, or make `settle` longer"))
        }
        _ => Ok(()),
    }
}

/// A link has two ends.
fn links(source: &Source, scenario: &Scenario, places: &Places) -> Result<(), ScenarioError> {
    for At { value: link, at } in &places.links {
        if let Some(node) = scenario.only_node_of(link) {
            return Err(source.error(at, format!("both ends of the link are the node `{node}`")));
        }
    }
    Ok(())
}

/// A topic gets more queues, not fewer: what lies in a queue that is taken away is read by nobody.
fn changes(source: &Source, scenario: &Scenario, places: &Places) -> Result<(), ScenarioError> {
    for At { value: name, at } in &places.consumers {
        let group = scenario.consumer(name);
        if group.is_some_and(|group| group.most_instances() < 2) {
            let message = format!("`{name}` has one member, and one is always there");
            return Err(source.error(at, message).with_help("a storm needs a group of at least two members"));
        }
    }
    for At { value: (name, node), at } in &places.drains {
        let Some(topic) = scenario.topics.iter().find(|topic| topic.name == *name) else { continue };
        if !topic.is_at(node) {
            let message = format!("`{name}` is not at `{node}`");
            let help = format!("it is at: {}", topic.brokers.join(", "));
            return Err(source.error(at, message).with_help(help));
        }
    }
    for At { value: (name, queues), at } in &places.changes {
        let Some(topic) = scenario.topics.iter().find(|topic| topic.name == *name) else { continue };
        if *queues <= topic.queues {
            let message = format!("`queues` is {queues}, and `{name}` has {} already", topic.queues);
            return Err(source.error(at, message).with_help("a topic can only get more queues"));
        }
        if *queues > MOST_QUEUES {
            return Err(source.error(at, format!("`queues` is {queues}, the most is {MOST_QUEUES}")));
        }
    }
    Ok(())
}

/// A partition has parts.
fn partitions(source: &Source, scenario: &Scenario, places: &Places) -> Result<(), ScenarioError> {
    for At { value: kind, at } in &places.partitions {
        let FaultKind::Partition { shape, node, members: Some(members) } = kind else { continue };
        let count = scenario.members(members, node.as_deref()).len();
        if count < shape.members_min() {
            let beside = if shape.has_node() { " beside its node" } else { "" };
            let (name, least) = (shape.name(), shape.members_min());
            return Err(source.error(at, format!("`{name}` needs {least} members{beside}, there are {count}")));
        }
    }
    Ok(())
}

/// The rest must be able to converge without those who stay dead: a minority of the name servers, and any client.
fn stay_dead(source: &Source, scenario: &Scenario, places: &Places) -> Result<(), ScenarioError> {
    let kind_of = |node: &str| scenario.nodes().into_iter().find(|(name, _)| name == node).map(|(_, kind)| kind);
    let mut name_servers = 0;
    for place in &places.permanent {
        match kind_of(&place.value) {
            // A slave may stay away.
            Some(Kind::Broker) if place.value.ends_with("/0") => {
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

impl SettingsOf {
    /// Keys whose values a file cannot choose, each with what to write instead.
    fn set_by_the_stand(self) -> &'static [(&'static str, &'static str)] {
        match self {
            SettingsOf::Namesrv => &[("bindAddress", ""), ("listenPort", "")],
            SettingsOf::Broker => &[
                ("bindAddress", ""),
                ("brokerClusterName", ""),
                ("brokerId", "the number of the replica is its id"),
                ("brokerIP1", ""),
                ("brokerIP2", ""),
                ("brokerName", "write it as `name` of the [[broker]]"),
                ("brokerRole", "write it into `replicas` of the [[broker]]"),
                ("listenPort", ""),
                ("namesrvAddr", "brokers know all name servers of [[namesrv]]"),
                ("storePathRootDir", ""),
            ],
            SettingsOf::Producer | SettingsOf::Consumer => &[],
        }
    }
}

/// Every setting must be one that its role knows, with a value of the right form. Gives those that do nothing.
fn settings(source: &Source, places: &Places) -> Result<Vec<ScenarioError>, ScenarioError> {
    let mut idle = Vec::new();
    for (of, placed) in &places.settings {
        for At { value: (key, value), at } in placed {
            if let Some((_, instead)) = of.set_by_the_stand().iter().find(|(name, _)| name == key) {
                let error = source.error(at, format!("the stand sets `{key}` itself"));
                return Err(if instead.is_empty() { error } else { error.with_help(*instead) });
            }
            let setting = Setting { key: key.clone(), value: value.clone(), at: "config".to_owned() };
            let read = match of {
                SettingsOf::Namesrv => namesrv::NamesrvConfig::read([setting]).map(|(_, idle)| idle),
                SettingsOf::Broker => broker::BrokerConfig::read([setting]).map(|(_, idle)| idle),
                SettingsOf::Producer => workload::check_producer(setting).map(|()| Vec::new()),
                SettingsOf::Consumer => workload::check_consumer(setting).map(|()| Vec::new()),
            };
            match read {
                Ok(keys) => {
                    idle.extend(
                        keys.iter().map(|known| source.error(at, format!("`{}` has no effect here", known.key))),
                    );
                }
                Err(error) => {
                    let told = error.to_string();
                    let told = told.strip_prefix("config: ").unwrap_or(&told);
                    let (message, help) = told.split_once("; ").map_or((told, None), |(told, help)| (told, Some(help)));
                    let error = source.error(at, message);
                    return Err(help.map_or(error.clone(), |help| error.with_help(help)));
                }
            }
        }
    }
    Ok(idle)
}

/// Faults of disks must be aimed at nodes that have one.
fn disks(source: &Source, scenario: &Scenario, places: &Places) -> Result<(), ScenarioError> {
    let names = scenario.nodes();
    for fault in &scenario.faults {
        let Some(node) = fault.kind.node().filter(|_| fault.kind.needs_disk()) else { continue };
        let is_broker = names.iter().any(|(name, kind)| name == node && *kind == Kind::Broker);
        if !is_broker {
            let at = places.nodes.iter().find(|place| place.value == node).map_or(0..0, |place| place.at.clone());
            let message = format!("`{}` needs a broker, `{node}` has no disk", fault.kind.name());
            return Err(source.error(&at, message));
        }
    }
    Ok(())
}

/// Only slaves can be promoted, and of a group only one.
fn promotions(source: &Source, scenario: &Scenario, places: &Places) -> Result<(), ScenarioError> {
    let mut promoted: BTreeSet<&str> = BTreeSet::new();
    for fault in &scenario.faults {
        let FaultKind::Promote { node } = &fault.kind else { continue };
        let at = places.nodes.iter().find(|place| place.value == *node).map_or(0..0, |place| place.at.clone());
        let (group, replica) = node.rsplit_once('/').unwrap_or((node, ""));
        if replica == "0" {
            return Err(
                source.error(&at, format!("`{node}` is the master of its group, and only a slave can be promoted"))
            );
        }
        if !promoted.insert(group) {
            return Err(source.error(&at, format!("a second promotion in `{group}`")));
        }
    }
    Ok(())
}

/// A backup is made before it is needed.
fn backups(source: &Source, scenario: &Scenario, places: &Places) -> Result<(), ScenarioError> {
    let restores = scenario.faults.iter().filter(|fault| matches!(fault.kind, FaultKind::RestoreBackup { .. }));
    for (fault, taken) in restores.zip(&places.backups) {
        let When::At(at) = fault.when else { continue };
        if taken.value > at.least {
            let (taken_at, at) = (units::print_time(taken.value), units::print_time(at.least));
            let message = format!("`taken` is {taken_at}, and the backup is needed at {at}");
            return Err(source.error(&taken.at, message).with_help("take it earlier, or move the fault"));
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

/// Names of nodes. Of a group that is there it is said how many nodes it has.
fn known_nodes(source: &Source, names: &[At<String>], nodes: &[&str]) -> Result<(), ScenarioError> {
    let Some(name) = names.iter().find(|name| !nodes.contains(&name.value.as_str())) else { return Ok(()) };
    let error = unknown(source, &name.at, "node", &name.value, nodes);
    let Some((group, _)) = name.value.rsplit_once('/') else { return Err(error) };
    let of_group = nodes.iter().filter(|node| node.rsplit_once('/').is_some_and(|(of, _)| of == group));
    let of_group: Vec<&str> = of_group.copied().collect();
    Err(match of_group[..] {
        [] => error,
        [only] => error.with_help(format!("`{group}` has 1 instance, `{only}`")),
        [first, .., last] => {
            error.with_help(format!("`{group}` has {} instances, `{first}` to `{last}`", of_group.len()))
        }
    })
}

fn known(source: &Source, names: &[At<String>], what: &str, known: &[&str]) -> Result<(), ScenarioError> {
    match names.iter().find(|name| !known.contains(&name.value.as_str())) {
        Some(name) => Err(unknown(source, &name.at, what, &name.value, known)),
        None => Ok(()),
    }
}
