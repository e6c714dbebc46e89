//! Faults: from the plan onto the stand, and off again.

mod clocks;
pub(super) mod disks;
mod network;
mod partition;
mod storm;

use std::{sync::Arc, time::Duration};

use crate::{
    disk::Outage,
    history::{Down, Event},
    scenario::{ClockFault, Fault, FaultKind, Lasting, When},
    seed::name_hash,
};

use super::{
    cluster::{Change, Cluster, InEffect, Phase, Wish, group_of},
    triggers,
};

/// How far from true time a wall clock may stay in the settle phase, in milliseconds.
const HEALED_SKEW_MS: u64 = 100;

/// Waits for the times of all faults that have one.
pub(super) fn schedule(cluster: &Arc<Cluster>) {
    let base = cluster.state().base;
    for (number, fault) in cluster.plan.scenario.faults.iter().enumerate() {
        if let FaultKind::RestoreBackup { node, taken } = &fault.kind {
            let (cluster, node, at) = (Arc::clone(cluster), node.clone(), base + *taken);
            cluster.stand.clone().spawn(async move {
                cluster.stand.sleep_until(at).await;
                let backup = cluster.stand.disk(cluster.id(&node)).backup(cluster.now());
                cluster.state().backups.insert(number, backup);
            });
        }
        // A gate begins when it first holds somebody.
        let is_gate = matches!(fault.kind, FaultKind::Hold { .. });
        if let (When::At(at), false) = (&fault.when, is_gate) {
            let (cluster, at) = (Arc::clone(cluster), base + at.least);
            cluster.stand.clone().spawn(async move {
                cluster.stand.sleep_until(at).await;
                begin(&cluster, number);
            });
        }
    }
}

/// Puts a fault into effect, unless it is in effect or the active phase is over.
pub(super) fn begin(cluster: &Arc<Cluster>, number: usize) {
    let fault = &cluster.plan.scenario.faults[number];
    if !cluster.is_phase(Phase::Active) || cluster.state().faults.contains_key(&number) {
        return;
    }
    let restores = matches!(fault.kind, FaultKind::RestoreBackup { .. });
    if restores && fault.is_triggered() && !cluster.state().backups.contains_key(&number) {
        return; // What it waits for has come before the backup was taken.
    }
    cluster.record_run(Event::FaultBegin(fault.id.clone(), fault.kind.name()));
    let slowed_before = disks::slowed_requests(cluster, fault);
    cluster.state().faults.insert(number, InEffect { slowed_before, ..InEffect::default() });
    apply(cluster, number, fault);
    triggers::open_for(cluster, &fault.id);
    if fault.kind.lasting() == Lasting::Moment {
        end_fault(cluster, number);
    } else if let FaultKind::TornFlush { within, .. } = &fault.kind {
        within.iter().for_each(|within| disks::give_up_after(cluster, number, *within));
    } else if let Some(lasts) = fault.lasts {
        end_after(cluster, number, lasts.least);
    }
}

fn end_after(cluster: &Arc<Cluster>, number: usize, lasts: Duration) {
    let (cluster, end) = (Arc::clone(cluster), cluster.stand.now() + lasts);
    cluster.stand.clone().spawn(async move {
        cluster.stand.sleep_until(end).await;
        end_fault(&cluster, number);
    });
}

/// Ends every fault that is in effect, and sees to what several faults at once may have left behind. Whoever is down
/// and may stay dead does.
pub(super) fn heal(cluster: &Arc<Cluster>) {
    for node in &cluster.plan.scenario.permanent {
        if !cluster.is_up(node) {
            cluster.state().wanted.remove(node);
        }
    }
    let numbers: Vec<usize> = cluster.state().faults.keys().copied().collect();
    for number in numbers {
        end_fault(cluster, number);
    }
    cluster.stand.lift_all();
    cluster.stand.end_all_buggify();
    restart_ailing(cluster);
    for id in cluster.stand.nodes() {
        cluster.stand.resume(id);
        if cluster.stand.wall_ms(id).abs_diff(cluster.stand.true_wall_ms()) > HEALED_SKEW_MS {
            cluster.stand.set_skew(id, 0);
        }
    }
}

/// Restarts whoever may refuse writes since his disk failed, as an operator would.
fn restart_ailing(cluster: &Arc<Cluster>) {
    let ailing = std::mem::take(&mut cluster.state().ailing);
    for node in ailing.into_iter().filter(|node| cluster.is_up(node)) {
        cluster.hold_down(&node);
        let cluster = Arc::clone(cluster);
        cluster.stand.clone().spawn(async move {
            cluster.stop(&node).await;
            cluster.let_up(&node);
        });
    }
}

fn apply(cluster: &Arc<Cluster>, number: usize, fault: &Fault) {
    match &fault.kind {
        FaultKind::Kill { node } => {
            cluster.hold_down(node);
            cluster.kill(node, Down::Kill);
        }
        FaultKind::Panic { node } => {
            cluster.hold_down(node);
            cluster.kill(node, Down::Panic);
        }
        FaultKind::FilesLost { node, path } => disks::lose_files(cluster, number, node, path),
        FaultKind::DomainPowerLoss { domain, style, garbage } => {
            let nodes = cluster.plan.scenario.nodes_of_domain(domain);
            nodes.iter().for_each(|node| cluster.hold_down(node));
            let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
            lose_power(cluster, fault, &nodes, Outage { survival: *style, garbage: *garbage });
        }
        FaultKind::ConfigChange { topic, queues } => give_queues(cluster, fault, topic, *queues),
        FaultKind::Drain { node, topic } => drain(cluster, fault, node, topic),
        FaultKind::DeleteExpired { node } => {
            cluster.ask(Wish::DeleteExpired { fault: fault.id.clone(), broker: group_of(node).to_owned() });
        }
        FaultKind::Promote { node } => promote(cluster, node),
        FaultKind::Buggify { names, chance_ppm } => cluster.stand.buggify(name_hash(&fault.id), names, *chance_ppm),
        FaultKind::DiskReplaced { .. } | FaultKind::RestoreBackup { .. } => disks::exchange(cluster, number, fault),
        FaultKind::RebalanceStorm { group, every } => {
            let (cluster, group, every) = (Arc::clone(cluster), group.clone(), *every);
            let draws = storm::draws(&cluster, &fault.id);
            cluster.stand.clone().spawn(async move { storm::blow(&cluster, number, &group, every, draws).await });
        }
        FaultKind::Stop { node } => {
            cluster.hold_down(node);
            let (cluster, node) = (Arc::clone(cluster), node.clone());
            cluster.stand.clone().spawn(async move { cluster.stop(&node).await });
        }
        FaultKind::PowerLoss { node, style, garbage } => {
            cluster.hold_down(node);
            lose_power(cluster, fault, &[node], Outage { survival: *style, garbage: *garbage });
        }
        FaultKind::Pause { node } => cluster.stand.pause(cluster.id(node)),
        FaultKind::DiskFill { .. }
        | FaultKind::DiskSlow { .. }
        | FaultKind::DiskStall { .. }
        | FaultKind::DiskGone { .. }
        | FaultKind::DiskError { .. }
        | FaultKind::TornFlush { .. }
        | FaultKind::Media { .. } => disks::begin(cluster, number, fault),
        FaultKind::Clock { node, what, .. } => {
            clocks::begin(&cluster.stand, cluster.id(node), *what);
            if let ClockFault::Strobe { by_ms, every } = *what {
                let (cluster, node) = (Arc::clone(cluster), cluster.id(node));
                let draws = clocks::strobe_draws(&cluster.stand, name_hash(&fault.id));
                cluster.stand.clone().spawn(async move {
                    let goes_on = || cluster.count_hits(number, 1);
                    clocks::strobe(&cluster.stand, node, (by_ms, every), draws, goes_on).await;
                });
            } else if fault.kind.counted_as().is_some() {
                cluster.count_hits(number, 1);
            }
        }
        // Whoever stands at the gate waits by itself.
        FaultKind::Hold { .. } => {}
        FaultKind::Cut { .. }
        | FaultKind::Latency { .. }
        | FaultKind::OnLink { .. }
        | FaultKind::Partition { .. }
        | FaultKind::AcceptFull { .. }
        | FaultKind::ConnectHang { .. } => network::begin(cluster, number, fault),
    }
}

fn promote(cluster: &Arc<Cluster>, slave: &str) {
    let (cluster, slave) = (Arc::clone(cluster), slave.to_owned());
    cluster.stand.clone().spawn(async move { cluster.promote(&slave).await });
}

fn give_queues(cluster: &Cluster, fault: &Fault, topic: &str, queues: u32) {
    let of_topic = cluster.plan.scenario.topics.iter().find(|other| other.name == topic);
    let brokers = of_topic.map_or_else(Vec::new, |topic| topic.brokers.clone());
    let (fault, topic) = (fault.id.clone(), topic.to_owned());
    cluster.ask(Wish::Change(Change { fault, topic, queues: Some(queues), counts: true, brokers }));
}

fn lose_power(cluster: &Cluster, fault: &Fault, nodes: &[&str], outage: Outage) {
    let pages = cluster.power_loss(nodes, outage, name_hash(&fault.id));
    if pages > 0 {
        cluster.record_run(Event::FaultHit(fault.id.clone(), "garbage-pages", pages));
    }
}

/// The last fault of the same kind that is still in effect on the same node, with its number: what one fault ends, another
/// one keeps up.
fn going_on<'a>(cluster: &'a Cluster, ended: &Fault) -> Option<(usize, &'a Fault)> {
    let same = |fault: &Fault| fault.kind.name() == ended.kind.name() && fault.kind.node() == ended.kind.node();
    cluster.in_effect().into_iter().rfind(|(_, fault)| same(fault))
}

/// The faults that are in effect on the clocks of a node.
fn clocks_of(cluster: &Cluster, node: &str) -> Vec<ClockFault> {
    let of_node = cluster.in_effect().into_iter().filter_map(|(_, fault)| match &fault.kind {
        FaultKind::Clock { node: of, what, .. } if of == node => Some(*what),
        _ => None,
    });
    of_node.collect()
}

/// The permission of a topic at a broker is to be what the faults in effect say.
fn drain(cluster: &Arc<Cluster>, fault: &Fault, node: &str, topic: &str) {
    let brokers = vec![group_of(node).to_owned()];
    let (fault, topic) = (fault.id.clone(), topic.to_owned());
    cluster.ask(Wish::Change(Change { fault, topic, queues: None, counts: true, brokers }));
}

pub(super) fn end_fault(cluster: &Arc<Cluster>, number: usize) {
    let Some(ended) = cluster.state().faults.remove(&number) else { return };
    let InEffect { impairments, mut hits, slowed_before, is_down } = ended;
    let fault = &cluster.plan.scenario.faults[number];
    hits += disks::slowed_requests(cluster, fault) - slowed_before;
    for impairment in impairments {
        hits += cluster.stand.lift(impairment);
    }
    if let Some(what) = fault.kind.counted_as() {
        cluster.record_run(Event::FaultHit(fault.id.clone(), what, hits));
    }
    cluster.record_run(Event::FaultEnd(fault.id.clone()));
    match &fault.kind {
        FaultKind::Kill { node }
        | FaultKind::Panic { node }
        | FaultKind::PowerLoss { node, .. }
        | FaultKind::DiskReplaced { node }
        | FaultKind::FilesLost { node, .. }
        | FaultKind::RestoreBackup { node, .. } => cluster.let_up(node),
        FaultKind::DomainPowerLoss { domain, .. } => {
            cluster.plan.scenario.nodes_of_domain(domain).iter().for_each(|node| cluster.let_up(node));
        }
        // The storm lets everyone back itself, and what was changed stays.
        FaultKind::RebalanceStorm { .. }
        | FaultKind::ConfigChange { .. }
        | FaultKind::DeleteExpired { .. }
        | FaultKind::Promote { .. } => {}
        FaultKind::Stop { node } => {
            // A stop that still goes on must end before the next life begins.
            let (cluster, node) = (Arc::clone(cluster), node.clone());
            cluster.stand.clone().spawn(async move {
                while cluster.state().stopping.contains(&node) {
                    cluster.stand.sleep(Duration::from_millis(100)).await;
                }
                cluster.let_up(&node);
            });
        }
        FaultKind::Drain { node, topic } => drain(cluster, fault, node, topic),
        FaultKind::Buggify { .. } => cluster.stand.end_buggify(name_hash(&fault.id)),
        FaultKind::TornFlush { node, .. } if is_down => cluster.let_up(node),
        FaultKind::Pause { node } => {
            if going_on(cluster, fault).is_none() {
                cluster.stand.resume(cluster.id(node));
            }
        }
        FaultKind::DiskFill { .. }
        | FaultKind::DiskSlow { .. }
        | FaultKind::DiskStall { .. }
        | FaultKind::DiskGone { .. }
        | FaultKind::DiskError { .. }
        | FaultKind::TornFlush { .. }
        | FaultKind::Media { .. } => disks::end(cluster, fault),
        FaultKind::Clock { node, what, back } => {
            let others = clocks_of(cluster, node);
            clocks::end(&cluster.stand, cluster.id(node), (*what, *back), &others);
        }
        FaultKind::Hold { .. } => triggers::open(cluster, number),
        FaultKind::Cut { .. }
        | FaultKind::Latency { .. }
        | FaultKind::OnLink { .. }
        | FaultKind::Partition { .. }
        | FaultKind::AcceptFull { .. }
        | FaultKind::ConnectHang { .. } => {}
    }
}
