//! Members of a group that go and come in quick succession.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::Cluster;
use crate::{
    history::Down,
    scenario::units::Span,
    seed::{Domain, Draws, name_hash},
};

const STORM: Domain = Domain::named("fault.storm");

/// Half of those who go die, the others leave.
const DIES_PPM: u32 = 500_000;

/// What decides who goes or comes when.
pub(super) fn draws(cluster: &Cluster, fault: &str) -> Draws {
    cluster.plan.seeds.work.draws(STORM, name_hash(fault))
}

/// Lets a member go, or one that went come back, after each pause, for as long as the fault is in effect; then all are
/// back. The last member that is there stays, whatever else has taken the others away.
pub(super) async fn blow(cluster: &Arc<Cluster>, fault: usize, group: &str, every: Span<Duration>, mut draws: Draws) {
    let members = cluster.plan.scenario.end_of_link(group);
    let mut away: BTreeSet<&String> = BTreeSet::new();
    for number in 0.. {
        // Three numbers belong to each step, whether they are needed or not.
        let mut draw = |which: u64| draws.at(3 * number + which);
        cluster.stand.sleep(draw(0).duration(every.least..=every.most)).await;
        if !cluster.is_in_effect(fault) {
            break;
        }
        let wanted = cluster.state().wanted.clone();
        let there: Vec<&String> = members.iter().filter(|member| wanted.contains(*member)).collect();
        if there.is_empty() {
            continue;
        }
        let member = there[draw(1).below(there.len() as u64) as usize];
        if away.remove(member) {
            cluster.let_up(member);
        } else if there.iter().any(|other| *other != member && cluster.is_up(other)) {
            away.insert(member);
            cluster.hold_down(member);
            if draw(2).chance(DIES_PPM) {
                cluster.kill(member, Down::Kill);
            } else {
                cluster.stop(member).await;
            }
        } else {
            continue;
        }
        cluster.count_hits(fault, 1);
    }
    away.into_iter().for_each(|member| cluster.let_up(member));
}
