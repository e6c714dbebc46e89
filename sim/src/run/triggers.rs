//! Faults that wait for a point of the program, and gates that hold whoever reaches them.
//!
//! Visits count from the moment at which the active phase begins. A fault that waits for a visit is in effect before
//! the visiting code goes on. A gate holds its visit `nth` and all later ones, and opens for good when the fault it
//! waits for has taken effect, when its time is over, or when the active phase ends.

use std::{collections::BTreeMap, sync::Arc};

use host::machine::BoxFuture;

use crate::scenario::{FaultKind, When};

use super::{cluster::Cluster, faults};

/// Product code of a node passed a point.
pub(super) fn passed(cluster: &Arc<Cluster>, node: &str, name: &str) {
    if !cluster.state().armed {
        return;
    }
    for (number, fault) in cluster.plan.scenario.faults.iter().enumerate() {
        let When::On { point, node: wanted, nth } = &fault.when else { continue };
        if point == name && wanted == node && visit(cluster, number) == *nth {
            faults::begin(cluster, number);
        }
    }
}

/// What product code of a node that stands at a gate waits for.
pub(super) fn reached(cluster: &Arc<Cluster>, node: &str, name: &str) -> Option<BoxFuture<()>> {
    if !cluster.state().armed {
        return None;
    }
    let mut closed = Vec::new();
    for (number, fault) in cluster.plan.scenario.faults.iter().enumerate() {
        let FaultKind::Hold { gate, .. } = &fault.kind else { continue };
        let When::At(from) = fault.when else { continue };
        let is_here = gate.point == name && gate.node == node;
        if !is_here || cluster.stand.now() < cluster.state().base + from.least || is_open(cluster, number) {
            continue;
        }
        if visit(cluster, number) >= gate.nth {
            faults::begin(cluster, number);
            closed.push(number);
        }
    }
    if closed.is_empty() {
        return None;
    }
    let cluster = Arc::clone(cluster);
    Some(Box::pin(async move {
        for number in closed {
            opened(&cluster, number).await;
        }
    }))
}

/// A fault has taken effect: the gates that waited for it open.
pub(super) fn open_for(cluster: &Arc<Cluster>, fault: &str) {
    for (number, other) in cluster.plan.scenario.faults.iter().enumerate() {
        if other.needs() == Some(fault) {
            open(cluster, number);
            faults::end_fault(cluster, number);
        }
    }
}

/// Opens one gate for good.
pub(super) fn open(cluster: &Cluster, number: usize) {
    cluster.state().gates_open.insert(number);
    cluster.gate_opened.notify_waiters();
}

fn is_open(cluster: &Cluster, number: usize) -> bool {
    let state = cluster.state();
    !state.armed || state.gates_open.contains(&number)
}

async fn opened(cluster: &Cluster, number: usize) {
    loop {
        let mut opened = std::pin::pin!(cluster.gate_opened.notified());
        opened.as_mut().enable();
        if is_open(cluster, number) {
            return;
        }
        opened.await;
    }
}

/// Counts a visit of the point that a fault waits for.
fn visit(cluster: &Cluster, number: usize) -> u32 {
    let mut state = cluster.state();
    let visits: &mut BTreeMap<usize, u32> = &mut state.visits;
    let count = visits.entry(number).or_default();
    *count = count.saturating_add(1);
    *count
}
