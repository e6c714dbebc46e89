//! Runs a plan on the stand and judges what happened.

mod audit;
pub(crate) mod cluster;
mod faults;
mod observer;
pub(crate) mod pending;
mod probe;
mod replicas;
mod search;
mod settle;
mod triggers;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::Duration,
};

use crate::{
    checkers::{self, Findings},
    disk,
    history::{Event, History, HistoryHash, Recorder},
    plan::Plan,
    scenario::{ConsumerGroup, Fault, FaultKind, Kind, Scenario, When},
    stand::{self, Ended, Observer, SideReport, StandConfig},
};

pub use audit::StoreFiles;
use cluster::{Cluster, Phase};

/// How long servers may take to start and to register.
const START_LIMIT: Duration = Duration::from_secs(120);

/// Virtual time that a run may take beyond what its scenario says.
const SLACK: Duration = Duration::from_secs(300);

/// What a run may be told besides its plan.
#[derive(Default)]
pub struct RunOptions {
    /// A planted bug to switch on.
    pub mutant: Option<String>,
    /// Where to write the history while it grows.
    pub history: Option<Box<dyn io::Write + Send>>,
}

/// A finished run.
#[derive(Debug, Clone)]
pub struct Finished {
    /// What happened.
    pub history: History,
    /// Its hashes.
    pub hash: HistoryHash,
    /// The hash over events that are too many to record.
    pub side: SideReport,
    /// What the checkers found.
    pub findings: Findings,
    /// How the simulation came to its end, if not by itself.
    pub aborted: Option<String>,
    /// Virtual time that passed.
    pub elapsed: Duration,
    /// How many polls of tasks it took.
    pub polls: u64,
    /// How many of them each node made in the active phase.
    pub node_polls: BTreeMap<String, u64>,
}

/// Runs a plan. Call it once per process if the hash counts.
///
/// # Errors
/// If the history cannot be written.
pub fn run(plan: Plan, options: RunOptions) -> io::Result<Finished> {
    let plan = Arc::new(plan);
    let recorder = Arc::new(Recorder::new(options.history));
    let watch = Arc::new(observer::Watch::new(Arc::clone(&recorder)));
    let mut config = StandConfig::new(plan.seeds);
    config.limit = START_LIMIT + plan.scenario.active + plan.scenario.settle + SLACK;
    config.mutants = options.mutant.into_iter().collect::<BTreeSet<_>>();
    let ran = {
        let (plan, recorder, watch) = (Arc::clone(&plan), Arc::clone(&recorder), Arc::clone(&watch));
        let observer: Arc<dyn Observer> = watch.clone();
        stand::run(config, observer, move |stand| async move {
            let cluster = Cluster::build(stand, plan, recorder)?;
            assert!(watch.cluster.set(Arc::clone(&cluster)).is_ok(), "one cluster per run");
            supervise(&cluster).await;
            Ok::<(), String>(())
        })
    };
    let (history, hash) = recorder.finish()?;
    let aborted = match ran.ended {
        // What was broken stands in the history.
        Ended::Finished(Ok(())) | Ended::Broken { .. } => None,
        Ended::Finished(Err(error)) => Some(error),
        Ended::NoRoom(why) => Some(format!("the run did not begin: {why}")),
        Ended::TimeLimit => Some("the limit of virtual time was reached".to_owned()),
        Ended::Deadlock { since } => Some(format!("everything waits for ever, since {since:?}")),
        Ended::Livelock { node, task, polls } => {
            let node = node.as_deref().unwrap_or("the supervisor").to_owned();
            Some(format!("task `{task}` of {node} was polled {polls} times within a virtual second"))
        }
    };
    let findings = checkers::check(&plan.scenario, &history);
    let node_polls = watch.cluster.get().map(|cluster| cluster.state().polls.clone()).unwrap_or_default();
    let (side, elapsed, polls) = (ran.side, ran.elapsed, ran.polls);
    Ok(Finished { history, hash, side, findings, aborted, elapsed, polls, node_polls })
}

/// Faults that wait for a point of the program, and gates, that did nothing in this run: each with what it waited for.
#[must_use]
pub fn never_fired(scenario: &Scenario, history: &History) -> Vec<String> {
    let begun = |id: &str| {
        history.records.iter().any(|record| matches!(&record.event, Event::FaultBegin(other, _) if other == id))
    };
    let idle = scenario.faults.iter().filter(|fault| fault.is_triggered() && !begun(&fault.id));
    idle.map(|fault| match (&fault.when, &fault.kind) {
        (When::On { point, node, nth }, _) => format!("{} (visit {nth} of {point} at {node})", fault.id),
        (_, FaultKind::Hold { gate, .. }) => {
            format!("{} (visit {} of {} at {})", fault.id, gate.nth, gate.point, gate.node)
        }
        _ => fault.id.clone(),
    })
    .collect()
}

/// Faults that were in effect and hit nothing: no segment, connection or request, no call on a file, no page. Each with
/// what it is.
#[must_use]
pub fn without_effect(scenario: &Scenario, history: &History) -> Vec<String> {
    let hit_nothing = |fault: &&Fault| {
        let events = || history.records.iter().map(|record| &record.event);
        let is_begin = |event: &Event| matches!(event, Event::FaultBegin(id, _) if *id == fault.id);
        let is_end = |event: &Event| matches!(event, Event::FaultEnd(id) if *id == fault.id);
        let (Some(begin), Some(end)) = (events().position(is_begin), events().position(is_end)) else { return false };
        let counted =
            events().any(|event| matches!(event, Event::FaultHit(id, _, hits) if *id == fault.id && *hits > 0));
        match fault.kind.failing_path() {
            None => fault.kind.counted_as().is_some() && !counted,
            Some(path) => {
                let failed = history.records[begin..end].iter().any(|record| match &record.event {
                    Event::DiskError(kind, at) => {
                        let node = record.node.map(|(node, _)| history.node(node));
                        let file = at.rsplit_once('@').map_or(at.as_str(), |(file, _)| file);
                        *kind == fault.kind.name() && node == fault.kind.node() && disk::matches(path, file)
                    }
                    _ => false,
                });
                !counted && !failed
            }
        }
    };
    let idle = scenario.faults.iter().filter(hit_nothing);
    idle.map(|fault| format!("{} ({})", fault.id, fault.kind.name())).collect()
}

/// The run from start to end.
async fn supervise(cluster: &Arc<Cluster>) {
    let stand = &cluster.stand;
    cluster.record_run(Event::Phase("start"));
    for kind in [Kind::Namesrv, Kind::Broker] {
        cluster.of_kind(kind).for_each(|node| cluster.want(&node));
    }
    cluster.want(cluster::PROBE);
    if !reaches(cluster, Phase::Active, START_LIMIT).await {
        cluster.record_run(Event::Pending("the servers did not start and register".to_owned()));
        cluster.record_run(Event::Phase("end"));
        return;
    }
    cluster.arm();
    cluster.record_run(Event::Phase("active"));
    for node in cluster.of_kind(Kind::Producer) {
        cluster.state().producing.insert(node.clone());
        cluster.want(&node);
    }
    for group in cluster.plan.scenario.consumers.clone() {
        let cluster = Arc::clone(cluster);
        stand.spawn(async move { members(&cluster, &group).await });
    }
    faults::schedule(cluster);
    let scenario = &cluster.plan.scenario;
    let base = cluster.state().base;
    stand.sleep_until(base + scenario.active).await;
    cluster.disarm();
    cluster.phase.send_replace(Phase::Settle);
    cluster.record_run(Event::Phase("settle"));
    faults::heal(cluster);
    let wanted = cluster.state().wanted.clone();
    wanted.iter().for_each(|node| cluster.want(node));
    if !reaches(cluster, Phase::End, scenario.settle + SLACK).await {
        cluster.record_run(Event::Pending("brokers do not answer the stand's own questions".to_owned()));
    }
    let converged =
        cluster.recorder.with(|history| history.records.iter().rev().any(|record| record.event == Event::Converged));
    audit::audit_all(cluster, converged);
    audit::compare_all(cluster);
    cluster.record_run(Event::Phase("end"));
}

/// Waits for a phase; false if it does not come in time.
async fn reaches(cluster: &Cluster, wanted: Phase, limit: Duration) -> bool {
    host::select! {
        () = cluster.reached(wanted) => true,
        () = cluster.stand.sleep(limit) => false,
    }
}

/// Members of a group come and go as the scenario says.
async fn members(cluster: &Arc<Cluster>, group: &ConsumerGroup) {
    let base = cluster.state().base;
    cluster.stand.sleep_until(base + group.join).await;
    let node = |instance: u32| format!("{}/{instance}", group.group);
    let mut size = group.instances;
    (0..size).for_each(|instance| cluster.want(&node(instance)));
    for step in &group.scale {
        cluster.stand.sleep_until(base + step.at).await;
        (size..step.instances).for_each(|instance| cluster.want(&node(instance)));
        for instance in (step.instances..size).rev() {
            cluster.dismiss(&node(instance)).await;
        }
        size = step.instances;
    }
}

#[cfg(test)]
mod tests;
