//! How far the replicas of a broker group are, as the history tells.

use std::collections::BTreeMap;

use crate::history::{Event, History};

use super::cluster::Cluster;

/// The end of the log of each broker.
pub(super) fn ends(history: &History) -> BTreeMap<String, u64> {
    let mut ends = BTreeMap::new();
    for record in &history.records {
        let Some((node, _)) = record.node else { continue };
        if let Event::Append(end) | Event::Recover(end) | Event::Truncate(end) = record.event {
            ends.insert(node, end);
        }
    }
    ends.into_iter().map(|(node, end)| (history.node(node).to_owned(), end)).collect()
}

/// The slaves that run, each with its master, if that runs.
pub(super) fn followers(cluster: &Cluster) -> Vec<(String, String)> {
    let groups = cluster.plan.scenario.brokers.iter().filter(|group| group.replicas.len() > 1);
    let pairs = groups.flat_map(|group| {
        let master = cluster.master_of(&group.name);
        let nodes = (0..group.replicas.len()).map(|replica| format!("{}/{replica}", group.name));
        nodes.filter(|node| *node != master).map(|slave| (slave, master.clone())).collect::<Vec<_>>()
    });
    pairs.filter(|(slave, master)| cluster.is_up(slave) && cluster.is_up(master)).collect()
}

/// Slaves whose log does not end where that of their master does.
pub(super) fn behind(cluster: &Cluster) -> Vec<String> {
    let followers = followers(cluster);
    if followers.is_empty() {
        return Vec::new();
    }
    let ends = cluster.recorder.with(ends);
    let end = |node: &String| ends.get(node).copied().unwrap_or(0);
    let are_apart = followers.iter().map(|(slave, master)| (slave, end(slave), master, end(master)));
    let are_apart = are_apart.filter(|(_, end, _, of_master)| end != of_master);
    are_apart
        .map(|(slave, end, master, of_master)| {
            format!("the log of {slave} ends at {end}, that of {master} at {of_master}")
        })
        .collect()
}
