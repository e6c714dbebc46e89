//! Faults of disks: putting one wrong, and bringing it back.

use std::{sync::Arc, time::Duration};

use super::{
    super::{cluster::STORE_PATH, observer},
    Cluster, end_after, end_fault, going_on,
};
use crate::{
    disk::{Disk, DiskError, DiskFault},
    history::{Down, Event},
    scenario::{Fault, FaultKind, USUAL_FILL_PERCENT, media_name},
    seed::name_hash,
    stand::Stand,
    world::nanos,
};

/// Steps in which a disk fills up.
const STEPS: u32 = 50;

/// Puts a fault of a disk into effect; nothing happens for any other.
pub(super) fn begin(cluster: &Arc<Cluster>, number: usize, fault: &Fault) {
    match &fault.kind {
        FaultKind::DiskFill { node, percent, ramp } => {
            let (cluster, disk) = (Arc::clone(cluster), cluster.stand.disk(cluster.id(node)));
            fill(&cluster.stand.clone(), disk, *percent, *ramp, move || cluster.is_in_effect(number));
        }
        FaultKind::DiskStall { node } => {
            cluster.stand.disk(cluster.id(node)).stall(nanos(cluster.end_of(number)), cluster.now());
        }
        FaultKind::Media { node, path, what, count } => {
            let disk = cluster.stand.disk(cluster.id(node));
            let path = format!("{STORE_PATH}/{path}");
            let pages = disk.damage(name_hash(&fault.id), &path, *what, *count, cluster.now());
            for (path, page) in &pages {
                let at = observer::place_on_disk((path, Some(*page)));
                cluster.record(node, |_| Event::DiskError(media_name(*what), at));
            }
        }
        FaultKind::DiskError { node, path, error, hits } => {
            let path = format!("{STORE_PATH}/{path}");
            let wrong = DiskFault { path, error: *error, hits: *hits };
            cluster.stand.disk(cluster.id(node)).add_fault(name_hash(&fault.id), wrong);
        }
        FaultKind::TornFlush { node, path, hits, .. } => {
            let path = format!("{STORE_PATH}/{path}");
            let wrong = DiskFault { path, error: DiskError::TornFlush, hits: *hits };
            cluster.stand.disk(cluster.id(node)).add_fault(name_hash(&fault.id), wrong);
        }
        FaultKind::DiskGone { node } => cluster.stand.disk(cluster.id(node)).vanish(cluster.now()),
        FaultKind::DiskSlow { node, factor } => cluster.stand.disk(cluster.id(node)).slow(*factor, cluster.now()),
        _ => {}
    }
}

/// Ends it. What another fault of the kind still wants of the disk goes on.
pub(super) fn end(cluster: &Arc<Cluster>, fault: &Fault) {
    match (&fault.kind, going_on(cluster, fault)) {
        (FaultKind::DiskGone { .. }, Some(_)) => return,
        (
            FaultKind::DiskFill { .. } | FaultKind::DiskSlow { .. } | FaultKind::DiskStall { .. },
            Some((number, other)),
        ) => {
            return begin(cluster, number, other);
        }
        _ => {}
    }
    match &fault.kind {
        FaultKind::DiskFill { node, .. } => cluster.stand.disk(cluster.id(node)).fill_percent(USUAL_FILL_PERCENT),
        FaultKind::DiskSlow { node, .. } => cluster.stand.disk(cluster.id(node)).slow(1, cluster.now()),
        FaultKind::DiskStall { node } => cluster.stand.disk(cluster.id(node)).stall(0, cluster.now()),
        FaultKind::DiskGone { node } => cluster.stand.disk(cluster.id(node)).come_back(),
        FaultKind::Media { node, .. } => {
            cluster.stand.disk(cluster.id(node)).repair(name_hash(&fault.id), cluster.now());
        }
        FaultKind::DiskError { node, .. } | FaultKind::TornFlush { node, .. } => {
            cluster.stand.disk(cluster.id(node)).remove_fault(name_hash(&fault.id));
        }
        _ => {}
    }
}

/// How many requests the disk of a fault has been asked for so far while it was slow or stalled; 0 for any other fault.
pub(super) fn slowed_requests(cluster: &Cluster, fault: &Fault) -> u64 {
    match &fault.kind {
        FaultKind::DiskSlow { node, .. } | FaultKind::DiskStall { node } => {
            cluster.stand.disk(cluster.id(node)).slowed_requests()
        }
        _ => 0,
    }
}

/// Ends a fault that waits for a flush, unless the flush has come.
pub(super) fn give_up_after(cluster: &Arc<Cluster>, number: usize, within: Duration) {
    let (cluster, end) = (Arc::clone(cluster), cluster.stand.now() + within);
    cluster.stand.clone().spawn(async move {
        cluster.stand.sleep_until(end).await;
        let has_come = cluster.state().faults.get(&number).is_none_or(|in_effect| in_effect.is_down);
        if !has_come {
            end_fault(&cluster, number);
        }
    });
}

/// The flush has come that a fault of this key waits for: the power goes, and the node stays down.
pub(in super::super) fn flush_torn(cluster: &Arc<Cluster>, key: u64) {
    let faults = cluster.plan.scenario.faults.iter().enumerate();
    for (number, fault) in faults.filter(|(_, fault)| name_hash(&fault.id) == key) {
        let FaultKind::TornFlush { node, .. } = &fault.kind else { continue };
        let waited = cluster.state().faults.get_mut(&number).map(|in_effect| in_effect.is_down = true);
        if waited.is_none() {
            continue;
        }
        cluster.stand.disk(cluster.id(node)).remove_fault(key);
        cluster.record_run(Event::FaultHit(fault.id.clone(), "torn-flushes", 1));
        cluster.hold_down(node);
        cluster.power_loss(&[node], None, key);
        if let Some(lasts) = fault.lasts {
            end_after(cluster, number, lasts.least);
        }
    }
}

/// A node loses its power and gets another disk.
pub(super) fn exchange(cluster: &Cluster, number: usize, fault: &Fault) {
    let Some(node) = fault.kind.node() else { return };
    let backup = matches!(fault.kind, FaultKind::RestoreBackup { .. }).then(|| {
        // One that is only being made is that of this moment.
        let made = cluster.state().backups.remove(&number);
        made.unwrap_or_else(|| cluster.stand.disk(cluster.id(node)).backup(cluster.now()))
    });
    cluster.hold_down(node);
    cluster.replace_disk(node, backup.as_ref(), fault);
}

/// A process dies, and files of its store are gone when it comes back.
pub(super) fn lose_files(cluster: &Cluster, number: usize, node: &str, path: &str) {
    cluster.hold_down(node);
    cluster.kill(node, Down::Kill);
    let lost = cluster.stand.disk(cluster.id(node)).lose_files(&format!("{STORE_PATH}/{path}"));
    cluster.count_hits(number, lost);
}

/// Brings a disk to a percentage, at once or step by step for as long as `goes_on` says so.
fn fill(stand: &Stand, disk: Disk, percent: u8, ramp: Duration, goes_on: impl Fn() -> bool + Send + 'static) {
    if ramp.is_zero() {
        return disk.fill_percent(percent);
    }
    let (used, total) = disk.usage();
    let wanted = u128::from(total) * u128::from(percent) / 100;
    let grows = wanted.saturating_sub(u128::from(used));
    let foreign = u128::from(disk.foreign_bytes());
    let clock = stand.clone();
    stand.spawn(async move {
        for step in 1..=STEPS {
            clock.sleep(ramp / STEPS).await;
            if !goes_on() {
                return;
            }
            let bytes = foreign + grows * u128::from(step) / u128::from(STEPS);
            disk.fill_bytes(u64::try_from(bytes).unwrap_or(u64::MAX));
        }
    });
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, sync::Arc};

    use super::*;
    use crate::{
        seed::Seeds,
        stand::{self, Ended, NodeSpec, StandConfig},
    };

    #[test]
    fn a_ramp_fills_evenly_and_stops_when_it_is_told() {
        let run = stand::run(StandConfig::new(Seeds::from_root(7)), Arc::new(()), |stand| async move {
            let node = stand.add_node(NodeSpec::new("a", Ipv4Addr::new(10, 0, 0, 1))).unwrap();
            let disk = stand.disk(node);
            let percent = |disk: &Disk| disk.usage().0 * 100 / disk.usage().1;
            fill(&stand, disk.clone(), 80, Duration::from_secs(40), || true);
            for (seconds, expected) in [(10, 20), (10, 40), (20, 80), (20, 80)] {
                stand.sleep(Duration::from_secs(seconds) + Duration::from_millis(1)).await;
                assert!(percent(&disk).abs_diff(expected) <= 2, "{} instead of {expected}", percent(&disk));
            }
            disk.fill_percent(0);
            fill(&stand, disk.clone(), 90, Duration::from_secs(40), || false);
            stand.sleep(Duration::from_secs(50)).await;
            assert_eq!(percent(&disk), 0);
        });
        assert_eq!(run.ended, Ended::Finished(()));
    }
}
