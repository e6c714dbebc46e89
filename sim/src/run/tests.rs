//! Whole runs: what faults that wait for a point do, and when.

use super::*;
use crate::history::{Down, Record};

/// One broker that flushes before it acknowledges, one producer, one consumer, and `more`.
fn run_with(more: &str) -> (Scenario, Finished) {
    let text = format!(
        "format = 1\nactive = \"8s\"\nsettle = \"1m\"\n[[broker]]\nname = \"broker-a\"\n\
         config = {{ flushDiskType = \"SYNC_FLUSH\", mappedFileSizeCommitLog = \"256KiB\" }}\n\
         [[topic]]\nname = \"orders\"\nqueues = 2\n\
         [[producer]]\ngroup = \"checkout\"\ntopic = \"orders\"\nrate = \"5/s\"\nend = \"6s\"\n\
         [[consumer]]\ngroup = \"billing\"\nsubscribe = \"orders\"\n{more}"
    );
    let plan = Plan::draw(Scenario::parse("x.toml", &text).unwrap(), Some(7));
    let finished = run(plan.clone(), RunOptions::default()).unwrap();
    (plan.scenario, finished)
}

/// The number of the record of this event.
fn place(run: &Finished, wanted: impl Fn(&Event) -> bool) -> usize {
    run.history.records.iter().position(|record| wanted(&record.event)).expect("it happened")
}

fn begin(run: &Finished, id: &str) -> usize {
    place(run, |event| matches!(event, Event::FaultBegin(other, _) if other == id))
}

/// Records of the first life of the broker.
fn of_first_life(run: &Finished) -> impl Iterator<Item = (usize, &Record)> {
    let of_it =
        |record: &Record| record.node.is_some_and(|(node, life)| run.history.node(node) == "broker-a/0" && life == 1);
    run.history.records.iter().enumerate().filter(move |(_, record)| of_it(record))
}

#[test]
fn a_fault_happens_on_exactly_the_visit_it_waits_for() {
    let (scenario, run) = run_with(
        "[[fault]]\nid = \"f\"\non = { point = \"store.appended\", node = \"broker-a/0\", nth = 5 }\n\
         kind = \"kill\"\nnode = \"broker-a/0\"\ndown = \"1s\"\n",
    );
    let (active, begun) = (place(&run, |event| *event == Event::Phase("active")), begin(&run, "f"));
    let appends: Vec<usize> = of_first_life(&run)
        .filter(|(at, record)| *at > active && matches!(record.event, Event::Append(_)))
        .map(|(at, _)| at)
        .collect();
    assert_eq!(appends.len(), 5, "the life ended with its fifth append");
    assert_eq!(begun, appends[4] + 1, "nothing happened between the visit and the fault");
    let after: Vec<&Event> =
        of_first_life(&run).filter(|(at, _)| *at > begun).map(|(_, record)| &record.event).collect();
    assert_eq!(after, [&Event::NodeDown(Down::Kill, String::new())]);
    assert!(never_fired(&scenario, &run.history).is_empty());
    assert_eq!(run.aborted, None);
}

#[test]
fn a_node_that_dies_at_a_gate_goes_no_further() {
    let (_, run) = run_with(
        "[[fault]]\nid = \"f\"\non = { point = \"store.flushing\", node = \"broker-a/0\", nth = 3 }\n\
         kind = \"power-loss\"\nstyle = \"all-old\"\nnode = \"broker-a/0\"\ndown = \"1s\"\n",
    );
    let active = place(&run, |event| *event == Event::Phase("active"));
    let flushes = of_first_life(&run).filter(|(at, record)| *at > active && matches!(record.event, Event::Flush(_)));
    assert_eq!(flushes.count(), 2, "the third flush did not end");
    let dirty = place(&run, |event| matches!(event, Event::DiskCrash { dirty, .. } if *dirty > 0));
    assert_eq!(dirty, begin(&run, "f") + 2, "what it was about to flush was lost");
}

#[test]
fn a_gate_holds_until_its_fault_begins() {
    let (_, run) = run_with(
        "[[fault]]\nid = \"g\"\nat = \"2s\"\n\
         hold = { point = \"store.flushing\", node = \"broker-a/0\", until = \"f\" }\n\
         [[fault]]\nid = \"f\"\nat = \"4s\"\nkind = \"skew\"\nnode = \"broker-a/0\"\nby = \"1ms\"\n",
    );
    let (closed, opened) = (begin(&run, "g"), begin(&run, "f"));
    let flushed = |from: usize, to: usize| {
        run.history.records[from..to].iter().any(|record| matches!(record.event, Event::Flush(_)))
    };
    assert!(!flushed(closed, opened), "nothing is flushed behind a closed gate");
    assert!(flushed(0, closed) && flushed(opened, run.history.records.len()));
    let waited = run.history.records[opened].at - run.history.records[closed].at;
    assert!(waited > 1_000_000_000, "it was held for {waited} ns");
    assert_eq!(place(&run, |event| *event == Event::FaultEnd("g".to_owned())), opened + 1);
}

#[test]
fn a_gate_without_a_fault_opens_when_the_active_phase_ends() {
    let (_, run) =
        run_with("[[fault]]\nid = \"g\"\nhold = { point = \"store.flushing\", node = \"broker-a/0\", nth = 2 }\n");
    let settle = place(&run, |event| *event == Event::Phase("settle"));
    assert_eq!(place(&run, |event| *event == Event::FaultEnd("g".to_owned())), settle + 1);
    assert!(run.history.records.iter().any(|record| record.event == Event::Converged));
}

#[test]
fn a_trigger_that_did_not_fire_is_named() {
    let (scenario, run) = run_with(
        "[[fault]]\nid = \"f\"\non = { point = \"store.appended\", node = \"broker-a/0\", nth = 100000 }\n\
         kind = \"kill\"\nnode = \"broker-a/0\"\n",
    );
    assert_eq!(never_fired(&scenario, &run.history), ["f (visit 100000 of store.appended at broker-a/0)"]);
}
