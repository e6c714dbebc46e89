//! How far the replicas of a broker group are, as the history tells.

use std::collections::BTreeMap;

use crate::history::{Event, History};

use super::cluster::{Cluster, group_of};

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

/// Slaves whose log does not end where that of their master does.
pub(super) fn behind(cluster: &Cluster) -> Vec<String> {
    let scenario = &cluster.plan.scenario;
    if scenario.brokers.iter().all(|group| group.replicas.len() < 2) {
        return Vec::new();
    }
    let ends = cluster.recorder.with(ends);
    let mut pending = Vec::new();
    for (slave, end) in
        ends.iter().filter(|(node, _)| cluster.master_of(group_of(node)) != **node && cluster.is_up(node))
    {
        let master = cluster.master_of(group_of(slave));
        let of_master = ends.get(&master).copied().unwrap_or(0);
        if *end != of_master && cluster.is_up(&master) {
            pending.push(format!("the log of {slave} ends at {end}, that of {master} at {of_master}"));
        }
    }
    pending
}
