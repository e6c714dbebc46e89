use std::{collections::BTreeMap, time::Duration};

use super::*;
use crate::{
    checkers,
    history::{Look, MessageId, Queue, Recorder},
    stand::SideReport,
};

const FILE: &str = "format = 1\nactive = \"60s\"\n[[broker]]\nname = \"broker-a\"\n[[topic]]\nname = \"orders\"\n\
                    [[producer]]\ngroup = \"checkout\"\ntopic = \"orders\"\nrate = \"1/s\"\n\
                    [[consumer]]\ngroup = \"billing\"\nsubscribe = \"orders\"\n[expect]\n";

const SECOND: u64 = 1_000_000_000;

fn scenario(expect: &str) -> Scenario {
    Scenario::parse("x.toml", &format!("{FILE}{expect}")).unwrap()
}

/// A run in which all checkers have something to check and nothing to complain of, with `more` at its end.
fn run_of(more: &[Event]) -> Finished {
    let recorder = Recorder::new(None);
    let look = || Look { topic: "orders".into(), body_bytes: 9, crc: 1, tag: String::new() };
    let queue = Queue { topic: "orders".into(), broker: "broker-a".into(), id: 0 };
    let mut at = 0;
    let mut record = |node: &str, build: &dyn Fn(&mut crate::history::History) -> Event| {
        at += 1_000_000;
        recorder.record(at, Some((node, 1)), build);
    };
    record("broker-a/0", &|_| Event::NodeUp);
    for n in 0..2_u32 {
        let (id, offset) = (MessageId { producer: 0, n }, u64::from(n));
        record("checkout/0", &|_| Event::SendInvoke(id, look()));
        record("broker-a/0", &|_| Event::Append(offset * 100 + 100));
        record("checkout/0", &|history| {
            Event::SendOk(id, history.intern_queue(queue.clone()), offset, Some(offset * 100))
        });
        record("billing/0", &|history| Event::Poll(history.intern_queue(queue.clone()), offset));
        record("billing/0", &|history| Event::Deliver {
            message: Some(id),
            queue: history.intern_queue(queue.clone()),
            offset,
            look: look(),
            times: 0,
        });
        record("billing/0", &|history| Event::Ack(Some(id), history.intern_queue(queue.clone()), offset));
        record("probe/0", &|history| Event::Commit {
            group: "billing".into(),
            queue: history.intern_queue(queue.clone()),
            offset: Some(offset + 1),
        });
    }
    record("billing/0", &|history| Event::Poll(history.intern_queue(queue.clone()), 2));
    recorder.record(60 * SECOND, None, |_| Event::Phase("settle"));
    recorder.record(70 * SECOND, None, |_| Event::Converged);
    recorder.record(70 * SECOND, Some(("broker-a/0", 1)), |_| Event::Audited { records: 2, entries: 2 });
    for event in more {
        recorder.record(71 * SECOND, Some(("broker-a/0", 1)), |_| event.clone());
    }
    let (history, hash) = recorder.finish().unwrap();
    let findings = checkers::check(&scenario(""), &history);
    let side = SideReport { hash: 0, count: 0, checkpoints: Vec::new(), window: Vec::new() };
    let (elapsed, node_polls) = (Duration::from_secs(71), BTreeMap::new());
    Finished { history, hash, side, findings, aborted: None, elapsed, polls: 0, node_polls }
}

fn verdict(expect: &str, more: &[Event]) -> Verdict {
    judge(&scenario(expect), &run_of(more)).verdict
}

#[test]
fn a_run_without_problems_passes() {
    let judgement = judge(&scenario("lost = 0\nat-least = { acked = 2 }"), &run_of(&[]));
    assert_eq!(judgement.problems, []);
    assert_eq!(judgement.verdict, Verdict::Pass);
}

#[test]
fn too_few_events_miss_the_opportunity() {
    assert_eq!(verdict("at-least = { acked = 3 }", &[]), Verdict::Opportunity);
    assert_eq!(verdict("legally-lost = \"1..5\"", &[]), Verdict::Safety);
}

#[test]
fn what_is_pending_or_late_is_a_liveness_failure() {
    assert_eq!(verdict("", &[Event::Pending("x".into())]), Verdict::Liveness);
    assert_eq!(verdict("converged = \"9s\"", &[]), Verdict::Liveness);
    assert_eq!(verdict("converged = \"10s\"", &[]), Verdict::Pass);
}

#[test]
fn a_panic_or_a_process_that_ends_by_itself_counts_most() {
    let pending = Event::Pending("x".into());
    assert_eq!(verdict("", &[pending.clone(), Event::Panic("task", "why".into())]), Verdict::Panic);
    assert_eq!(verdict("", &[pending, Event::NodeDown(Down::Exit, "why".into())]), Verdict::Panic);
}

#[test]
fn an_expected_failure_must_come() {
    assert_eq!(verdict("verdict = \"fail:stuck\"", &[Event::Pending("x".into())]), Verdict::Pass);
    assert_eq!(verdict("verdict = \"fail:stuck\"", &[]), Verdict::Opportunity);
    assert_eq!(verdict("verdict = \"fail:stuck\"", &[Event::Panic("task", "why".into())]), Verdict::Panic);
}

#[test]
fn what_was_expected_to_fail_is_still_told_with_its_witness() {
    let run = run_of(&[Event::Pending("x".into())]);
    let judgement = judge(&scenario("verdict = \"fail:stuck\""), &run);
    assert_eq!(judgement.problems, []);
    let [expected] = &judgement.expected[..] else { panic!("{:?}", judgement.expected) };
    assert_eq!((expected.verdict, expected.about.as_str()), (Verdict::Liveness, "stuck"));
    assert_eq!(expected.witness_kinds(&run.history), ["pending"].into());
}

#[test]
fn a_bound_allows_some_violations() {
    let pending = [Event::Pending("x".into()), Event::Pending("y".into())];
    assert_eq!(verdict("stuck = 2", &pending), Verdict::Pass);
    assert_eq!(verdict("stuck = 1", &pending), Verdict::Liveness);
}

#[test]
fn exit_codes_read_back() {
    for verdict in [Verdict::Pass, Verdict::Safety, Verdict::Nondeterminism, Verdict::Opportunity] {
        assert_eq!(Verdict::from_exit_code(verdict.exit_code().into()), Some(verdict));
    }
    assert_eq!(Verdict::from_exit_code(1), None);
    assert_eq!(Verdict::from_name("liveness"), Some(Verdict::Liveness));
}

#[test]
fn a_broken_statement_fails_a_run_for_safety_and_nothing_else_counts() {
    let broken = run_of(&[Event::Broken("store.flushed-within-log"), Event::Pending("billing is behind".into())]);
    let judged = judge(&scenario(""), &broken);
    assert_eq!((judged.verdict, judged.violated), (Verdict::Safety, BTreeSet::from(["always"])));
    let told: Vec<&str> = judged.problems.iter().map(|problem| problem.what.as_str()).collect();
    assert_eq!(told, ["always: store.flushed-within-log does not hold on broker-a/0"]);
    assert_eq!(judge(&scenario("verdict = \"fail:lost\""), &broken).verdict, Verdict::Safety);
    assert_eq!(judge(&scenario("verdict = \"fail:always\""), &broken).verdict, Verdict::Pass);
    assert_eq!(judge(&scenario("verdict = \"fail:always\""), &run_of(&[])).verdict, Verdict::Opportunity);
}

#[test]
fn a_panic_that_is_expected_hides_no_other_way_of_dying() {
    let (panic, exit) = (Event::Panic("task", "why".into()), Event::NodeDown(Down::Exit, "why".into()));
    assert_eq!(verdict("verdict = \"fail:panic\"", std::slice::from_ref(&panic)), Verdict::Pass);
    assert_eq!(verdict("verdict = \"fail:panic\"", &[]), Verdict::Opportunity);
    assert_eq!(verdict("verdict = \"fail:panic\"", &[panic, exit.clone()]), Verdict::Panic);
    assert_eq!(verdict("verdict = \"fail:exit\"", &[exit]), Verdict::Pass);
    assert_eq!(verdict("converged = \"9s\"\nverdict = \"fail:converged\"", &[]), Verdict::Pass);
    assert_eq!(verdict("legally-lost = \"1..5\"\nverdict = \"fail:legally-lost\"", &[]), Verdict::Pass);
}

#[test]
fn a_problem_has_the_classes_of_all_that_it_sums_up() {
    let pending = ["broker-a/0 is down", "2 sends have no result", "broker-a/0 is down"];
    let judged = judge(&scenario(""), &run_of(&pending.map(|what| Event::Pending(what.into()))));
    let classes: Vec<&str> = judged.problems[0].classes.iter().map(String::as_str).collect();
    assert_eq!(classes, ["broker-a is down", "N sends have no result"]);
    let broken = judge(&scenario(""), &run_of(&[Event::Broken("store.flushed-within-log")]));
    assert_eq!(broken.problems[0].classes, ["store.flushed-within-log".to_owned()].into());
}

#[test]
fn only_checkers_that_must_check_need_something_to_check() {
    let mut run = run_of(&[]);
    let idle = run.findings.reports.iter_mut().find(|report| report.checker == "order-store");
    idle.expect("it always runs").opportunities = 0;
    let judged = |expect: &str| judge(&scenario(expect), &run).verdict;
    assert_eq!(judged(""), Verdict::Opportunity);
    assert_eq!(judged("must-check = [\"lost\", \"order-store\"]"), Verdict::Opportunity);
    assert_eq!(judged("must-check = [\"lost\"]"), Verdict::Pass);
    assert_eq!(judged("must-check = []"), Verdict::Pass);
}
