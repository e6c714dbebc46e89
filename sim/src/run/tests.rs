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
    run_text(&text)
}

fn run_text(text: &str) -> (Scenario, Finished) {
    let plan = Plan::draw(Scenario::parse("x.toml", text).unwrap(), Some(7));
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
fn producers_leave_a_drained_broker_and_come_back() {
    let text = r#"
        format = 1
        active = "20s"
        settle = "1m"
        [[broker]]
        name = "broker-a"
        [[broker]]
        name = "broker-b"
        [[topic]]
        name = "orders"
        queues = 2
        [[producer]]
        group = "checkout"
        topic = "orders"
        rate = "10/s"
        config = { pollNameServerInterval = 500 }
        [[consumer]]
        group = "billing"
        subscribe = "orders"
        [[fault]]
        id = "f"
        at = "5s"
        kind = "drain"
        node = "broker-b/0"
        topic = "orders"
        for = "8s"
    "#;
    let (_, run) = run_text(text);
    let records = &run.history.records;
    let active = records[place(&run, |event| *event == Event::Phase("active"))].at;
    let second = |record: &Record| (record.at.saturating_sub(active)) / 1_000_000_000;
    let of_b =
        |event: &Event| matches!(event, Event::SendOk(_, queue, ..) if run.history.queue(*queue).broker == "broker-b");
    let acknowledged: std::collections::BTreeSet<u64> =
        records.iter().filter(|record| of_b(&record.event)).map(second).collect();
    // The broker tells the name server at once, and the producer looks at the route twice a second.
    assert!((0..5).chain(15..20).all(|second| acknowledged.contains(&second)), "{acknowledged:?}");
    assert!((7..13).all(|second| !acknowledged.contains(&second)), "{acknowledged:?}");
    assert_eq!(run.findings.counts["config-changes"], 2);
    place(&run, |event| *event == Event::Converged);
}

#[test]
fn what_one_fault_ends_another_of_its_kind_keeps_up() {
    for kind in ["pause", "disk-stall", "disk-gone"] {
        let (_, run) = run_with(&format!(
            "[[fault]]\nid = \"one\"\nat = \"1s\"\nkind = \"{kind}\"\nnode = \"broker-a/0\"\nfor = \"1s\"\n\
             [[fault]]\nid = \"two\"\nat = \"1500ms\"\nkind = \"{kind}\"\nnode = \"broker-a/0\"\nfor = \"3s\"\n"
        ));
        let end = |id: &str| place(&run, |event| matches!(event, Event::FaultEnd(other) if other == id));
        let (one, two) = (end("one"), end("two"));
        let flushed = |from: usize, to: usize| {
            run.history.records[from..to].iter().filter(|record| matches!(record.event, Event::Flush(_))).count()
        };
        // A request that the disk got before the second stall began ends with the first one.
        let under_way = usize::from(kind == "disk-stall");
        assert!(one < two && flushed(one, two) <= under_way, "{kind}: the second one has not ended");
        assert!(flushed(two, run.history.records.len()) > 0, "{kind}: nothing keeps it up any more");
    }
}

#[test]
fn a_backup_that_is_not_there_yet_is_not_put_back() {
    let (scenario, run) = run_with(
        "[claim]\nsurvives = [\"restore-backup\"]\n[[fault]]\nid = \"f\"\n\
         on = { point = \"store.flushed\", node = \"broker-a/0\", nth = 2 }\nkind = \"restore-backup\"\n\
         taken = \"7s\"\nnode = \"broker-a/0\"\ndown = \"1s\"\n",
    );
    assert_eq!(run.findings.counts.get("backups-restored").copied().unwrap_or(0), 0);
    assert_eq!(never_fired(&scenario, &run.history), ["f (visit 2 of store.flushed at broker-a/0)"]);
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

#[test]
fn a_domain_loses_its_power_at_one_moment_and_comes_back() {
    let (_, run) = run_with(
        "[[domain]]\nname = \"rack\"\nnodes = [\"broker-a\", \"namesrv\"]\n\
         [[fault]]\nid = \"f\"\nat = \"2s\"\nkind = \"power-loss\"\ndomain = \"rack\"\ndown = \"1s\"\n\
         [[fault]]\nid = \"p\"\nat = \"5s\"\nkind = \"panic\"\nnode = \"broker-a/0\"\ndown = \"1s\"\n",
    );
    let downs: Vec<(&str, u64)> = run
        .history
        .records
        .iter()
        .filter(|record| matches!(record.event, Event::NodeDown(Down::PowerLoss, _)))
        .map(|record| (record.node.map_or("", |(node, _)| run.history.node(node)), record.at))
        .collect();
    let at = downs[0].1;
    assert_eq!(downs, [("namesrv/0", at), ("broker-a/0", at)]);
    assert_eq!((run.findings.counts["crashes"], run.findings.counts["panics"]), (3, 1));
    assert!(run.history.records.iter().any(|record| record.event == Event::Converged));
}

#[test]
fn the_power_goes_in_the_flush_that_is_hit_and_comes_back() {
    let (_, run) = run_with(
        "[[fault]]\nid = \"f\"\nat = \"2s\"\nkind = \"torn-flush\"\nnode = \"broker-a/0\"\npath = \"commitlog/*\"\n\
         nth = 3\ndown = \"1s\"\n\
         [[fault]]\nid = \"never\"\nat = \"2s\"\nkind = \"torn-flush\"\nnode = \"broker-a/0\"\n\
         path = \"commitlog/*\"\nnth = 1000\nwithin = \"500ms\"\n",
    );
    let (begun, hit) = (begin(&run, "f"), place(&run, |event| matches!(event, Event::FaultHit(..))));
    let flushes = run.history.records[begun..hit].iter().filter(|record| matches!(record.event, Event::Flush(_)));
    assert_eq!(flushes.count(), 2, "the third flush did not end");
    let after: Vec<&Event> = run.history.records[hit - 1..].iter().take(3).map(|record| &record.event).collect();
    let file = "commitlog/00000000000000000000".to_owned();
    assert_eq!(after[0], &Event::DiskError("torn-flush", file));
    assert_eq!(
        after[1..],
        [&Event::FaultHit("f".to_owned(), "torn-flushes", 1), &Event::NodeDown(Down::PowerLoss, String::new()),]
    );
    let of_first_life = of_first_life(&run).last().expect("it had records");
    assert!(matches!(of_first_life.1.event, Event::DiskCrash { .. }), "{:?}", of_first_life.1);
    let up = run.history.records[hit..].iter().find(|record| record.event == Event::NodeUp).expect("it came back");
    let down = up.at - run.history.records[hit].at;
    assert!((1_000_000_000..1_001_000_000).contains(&down), "{down}");
    let over = |id: &str| place(&run, |event| *event == Event::FaultEnd(id.to_owned()));
    let waited = run.history.records[over("never")].at - run.history.records[begin(&run, "never")].at;
    assert!((500_000_000..501_000_000).contains(&waited), "{waited}");
    assert_eq!(run.findings.counts["torn-flushes"], 1);
    assert!(run.history.records.iter().any(|record| record.event == Event::Converged));
}

#[test]
fn a_broker_without_its_disk_dies_and_is_started_until_the_disk_is_back() {
    let (_, run) =
        run_with("[[fault]]\nid = \"f\"\nat = \"1s\"\nkind = \"disk-gone\"\nnode = \"broker-a/0\"\nfor = \"6s\"\n");
    let (begun, over) = (begin(&run, "f"), place(&run, |event| *event == Event::FaultEnd("f".to_owned())));
    let downs: Vec<Down> = run
        .history
        .records
        .iter()
        .filter_map(|record| match &record.event {
            Event::NodeDown(how, _) => Some(*how),
            _ => None,
        })
        .collect();
    assert_eq!(downs, [Down::Signal, Down::Exit], "it dies of a mapping, and cannot start");
    let gone = &run.history.records[begun..over];
    assert!(!gone.iter().any(|record| matches!(record.event, Event::Flush(_) | Event::SendOk(..))));
    assert_eq!(run.findings.counts["disks-gone"], 2, "one for each life");
    assert!(run.history.records.iter().any(|record| record.event == Event::Converged));
}

/// The runs of a fault that exchanges the disk of the broker, which must come to rest with nothing lost unlawfully.
fn run_exchanged(fault: &str) -> (usize, Finished) {
    let (_, run) = run_with(&format!(
        "[claim]\nsurvives = [\"restore-backup\"]\n[[fault]]\nid = \"f\"\nat = \"3s\"\nnode = \"broker-a/0\"\n\
         down = \"500ms\"\n{fault}\n"
    ));
    assert!(run.findings.reports.iter().all(|report| report.count == 0), "{:?}", run.findings.reports);
    assert!(run.history.records.iter().any(|record| record.event == Event::Converged));
    place(&run, |event| matches!(event, Event::Point("broker.log-exchanged", _)));
    let recovered: Vec<u64> = run.history.records[begin(&run, "f")..]
        .iter()
        .filter_map(|record| if let Event::Recover(end) = record.event { Some(end) } else { None })
        .collect();
    let [end] = recovered[..] else { panic!("{recovered:?}") };
    let resent = run.history.records.iter().rposition(|record| matches!(record.event, Event::SendOk(..)));
    assert!(resent.expect("messages were sent") > begin(&run, "f"), "the new log takes messages");
    (end as usize, run)
}

#[test]
fn a_broker_on_a_replaced_disk_begins_anew_with_its_topics() {
    let (end, run) = run_exchanged("kind = \"disk-replaced\"");
    assert_eq!((end, run.findings.counts["disks-replaced"]), (0, 1));
}

#[test]
fn a_broker_with_an_old_backup_goes_on_where_that_ends_and_tells_it() {
    let ends = ["500ms", "1500ms"].map(|taken| {
        let (end, run) = run_exchanged(&format!("kind = \"restore-backup\"\ntaken = \"{taken}\""));
        assert_eq!(run.findings.counts["backups-restored"], 1);
        end
    });
    assert!(0 < ends[0] && ends[0] < ends[1], "{ends:?}");
}

#[test]
fn files_that_are_lost_are_gone_with_their_process_and_made_anew() {
    let lose = |path: &str| {
        let (_, run) = run_with(&format!(
            "[[fault]]\nid = \"f\"\nat = \"3s\"\nkind = \"files-lost\"\nnode = \"broker-a/0\"\npath = \"{path}\"\ndown = \"1s\"\n"
        ));
        let killed = run.history.records.iter().any(|record| matches!(record.event, Event::NodeDown(Down::Kill, _)));
        let unread = run.findings.reports.iter().find(|report| report.checker == "unread").expect("it is a checker");
        assert!(unread.opportunities > 20 && unread.violations.is_empty());
        (hits(&run, "files-lost"), killed)
    };
    assert_eq!(lose("consumequeue/orders/0/*"), (1, true));
    assert_eq!(lose("consumequeue/*"), (2, true));
}

#[test]
fn a_panic_is_a_death_of_its_own_kind() {
    let (_, run) =
        run_with("[[fault]]\nid = \"f\"\nat = \"3s\"\nkind = \"panic\"\nnode = \"broker-a/0\"\ndown = \"2s\"\n");
    assert_eq!((hits(&run, "panics"), hits(&run, "crashes")), (1, 1));
    assert_eq!(acknowledged_in(&run, 3 * SECOND + SECOND / 100, 5 * SECOND), 0);
    assert!(acknowledged_in(&run, 5 * SECOND, 8 * SECOND) > 2);
}

#[test]
fn a_promoted_slave_takes_messages_and_the_old_master_stays_away() {
    let (_, run) = run_text(
        "format = 1\nactive = \"60s\"\nsettle = \"1m\"\n[[broker]]\nname = \"broker-a\"\n\
         replicas = [\"SYNC_MASTER\", \"SLAVE\"]\nconfig = { mappedFileSizeCommitLog = \"256KiB\" }\n\
         [[topic]]\nname = \"orders\"\n[[producer]]\ngroup = \"checkout\"\ntopic = \"orders\"\nrate = \"5/s\"\n\
         [[consumer]]\ngroup = \"billing\"\nsubscribe = \"orders\"\n\
         [[fault]]\nid = \"p\"\nat = \"15s\"\nkind = \"promote\"\nnode = \"broker-a/1\"\n",
    );
    let promoted = place(&run, |event| *event == Event::Promoted);
    let of = |name: &str| run.history.find_node(name).expect("it is there");
    let appends = |name: &str, after: bool| {
        let by = |record: &&Record| record.node.is_some_and(|(node, _)| node == of(name));
        let of_time = if after { &run.history.records[promoted..] } else { &run.history.records[..promoted] };
        of_time.iter().filter(by).filter(|record| matches!(record.event, Event::Append(_))).count()
    };
    assert!(appends("broker-a/0", false) > 20, "the master took messages");
    assert_eq!(appends("broker-a/0", true), 0, "and stays away");
    let times = 30 * SECOND..60 * SECOND;
    assert!(acknowledged_in(&run, times.start, times.end) > 50, "routes are known after 30 s");
    assert!(appends("broker-a/1", true) > 50);
    assert_eq!((run.findings.counts["promotions"], run.findings.counts["stops"]), (1, 2));
    assert!(run.findings.reports.iter().all(|report| report.violations.is_empty()), "{:?}", run.findings.reports);
}

#[test]
fn who_is_killed_while_he_stops_went_down_once() {
    let (_, run) = run_with(
        "[[fault]]\nid = \"stalled\"\nat = \"2s\"\nkind = \"disk-stall\"\nnode = \"broker-a/0\"\nfor = \"3s\"\n\
         [[fault]]\nid = \"s\"\nat = \"2500ms\"\nkind = \"stop\"\nnode = \"broker-a/0\"\ndown = \"1s\"\n\
         [[fault]]\nid = \"k\"\nat = \"3s\"\nkind = \"kill\"\nnode = \"broker-a/0\"\ndown = \"1s\"\n",
    );
    let downs = run.history.records.iter().filter_map(|record| match &record.event {
        Event::NodeDown(how, _) => Some(*how),
        _ => None,
    });
    assert_eq!(downs.collect::<Vec<_>>(), [Down::Kill]);
}

#[test]
fn a_rebalance_storm_moves_members_and_leaves_one_at_least() {
    let (_, run) = run_with(
        "instances = 3\n[[fault]]\nid = \"f\"\nat = \"1s\"\nkind = \"rebalance-storm\"\ngroup = \"billing\"\n\
         every = \"100ms..300ms\"\nfor = \"6s\"\n",
    );
    let moved = run.findings.counts["members-moved"];
    assert!((20..=60).contains(&moved), "{moved} in 6 s at 200 ms each");
    let mut there = 0_i32;
    let mut least = i32::MAX;
    for record in &run.history.records {
        let is_member = record.node.is_some_and(|(node, _)| run.history.node(node).starts_with("billing/"));
        match record.event {
            Event::NodeUp if is_member => there += 1,
            Event::NodeDown(..) if is_member => {
                there -= 1;
                least = least.min(there);
            }
            _ => {}
        }
    }
    assert_eq!((least, there), (1, 3));
    assert!(run.history.records.iter().any(|record| record.event == Event::Converged));
}

#[test]
fn a_topic_gets_more_queues_and_all_of_them_are_read() {
    let (_, run) =
        run_with("[[fault]]\nid = \"f\"\nat = \"1s\"\nkind = \"config-change\"\ntopic = \"orders\"\nqueues = 5\n");
    assert_eq!(run.findings.counts["config-changes"], 1);
    let commits = run.history.records.iter().filter_map(|record| match &record.event {
        Event::Commit { queue, .. } => Some(run.history.queue(*queue).id),
        _ => None,
    });
    assert_eq!(commits.collect::<BTreeSet<_>>(), BTreeSet::from([0, 1, 2, 3, 4]), "the stand looks at all of them");
    assert!(run.history.records.iter().any(|record| record.event == Event::Converged));
}

/// Of a log that has expired as soon as it is written, all but the last file goes, at once and not before.
#[test]
fn an_administrator_who_is_asked_to_delete_does_so() {
    let text = r#"
        format = 1
        active = "12s"
        settle = "1m"
        [[broker]]
        name = "broker-a"
        config = { mappedFileSizeCommitLog = "64KiB", maxMessageSize = 8192, fileReservedTime = 0, deleteWhen = "23" }
        [[topic]]
        name = "orders"
        [[producer]]
        group = "checkout"
        topic = "orders"
        rate = "10/s"
        body = "4KiB"
        end = "8s"
        [[consumer]]
        group = "billing"
        subscribe = "orders"
        [[fault]]
        id = "f"
        at = "10s"
        kind = "delete-expired"
        node = "broker-a/0"
    "#;
    let (_, run) = run_text(text);
    let counts = &run.findings.counts;
    assert_eq!(counts["deletions-asked"], 1);
    assert!((4..=6).contains(&counts["files-deleted"]), "{} files of 64 KiB hold 320 KiB", counts["files-deleted"]);
    let first = place(&run, |event| matches!(event, Event::Delete(_)));
    let asked = begin(&run, "f");
    assert!(asked < first, "nothing goes by itself at this hour");
    let waited = run.history.records[first].at - run.history.records[asked].at;
    assert!(waited < 1_000_000_000, "{waited} ns");
    place(&run, |event| *event == Event::Converged);
}

/// Lets calls on files of the broker fail from second 2 on, until it is killed at second 4.
fn run_with_failing(fault: &str) -> Finished {
    let (_, run) = run_with(&format!(
        "[[fault]]\nid = \"f\"\nat = \"2s\"\nnode = \"broker-a/0\"\n{fault}\n\
         [[fault]]\nid = \"k\"\nat = \"4s\"\nkind = \"kill\"\nnode = \"broker-a/0\"\ndown = \"500ms\"\n"
    ));
    run
}

#[test]
fn a_failed_flush_ends_acknowledgements_until_the_broker_is_restarted() {
    let run = run_with_failing("kind = \"eio-flush\"\npath = \"commitlog/*\"\nnth = 1");
    assert_eq!(hits(&run, "flush-errors"), 1);
    let failed = run.history.records[place(&run, |event| matches!(event, Event::DiskError(..)))].at;
    let base = run.history.records[place(&run, |event| *event == Event::Phase("active"))].at;
    assert_eq!(acknowledged_in(&run, failed - base, 4 * SECOND), 0);
    assert!(acknowledged_in(&run, 4 * SECOND + SECOND / 2, 6 * SECOND) > 2);
    assert_eq!(run.findings.reports.iter().map(|report| report.count).sum::<u64>(), 0);
}

#[test]
fn a_broker_that_refuses_writes_since_its_disk_failed_is_restarted_in_the_settle_phase() {
    let (_, run) = run_with(
        "[[fault]]\nid = \"f\"\nat = \"2s\"\nnode = \"broker-a/0\"\nkind = \"eio-flush\"\npath = \"commitlog/*\"\n",
    );
    assert!(hits(&run, "flush-errors") >= 1);
    assert_eq!(run.findings.counts["crashes"] + run.findings.counts["stops"], 1);
    assert!(run.history.records.iter().any(|record| record.event == Event::Converged));
}

#[test]
fn a_read_error_at_the_start_keeps_the_broker_down_and_loses_nothing() {
    let (_, run) = run_with(
        "[[fault]]\nid = \"f\"\nat = \"2s\"\nnode = \"broker-a/0\"\nkind = \"eio-read\"\npath = \"commitlog/*\"\nfor = \"4s\"\n\
         [[fault]]\nid = \"p\"\nat = \"3s\"\nkind = \"power-loss\"\nnode = \"broker-a/0\"\ndown = \"500ms\"\n",
    );
    assert!(hits(&run, "read-errors") >= 1);
    assert!(run.history.records.iter().any(|record| record.event == Event::Converged));
    assert_eq!(run.findings.reports.iter().map(|report| report.count).sum::<u64>(), 0);
    let judged = crate::verdict::judge(
        &Scenario::parse("x.toml", "format = 1\nactive = \"1s\"\n[[broker]]\nname = \"b\"\n").unwrap(),
        &run,
    );
    assert!(judged.problems.is_empty(), "{:?}", judged.problems);
}

#[test]
fn a_clean_stop_keeps_the_offsets_although_the_disk_stalls_meanwhile() {
    let (_, run) = run_with(
        "[[fault]]\nid = \"f\"\nat = \"2500ms\"\nkind = \"disk-stall\"\nnode = \"broker-a/0\"\n\
         [[fault]]\nid = \"s\"\nat = \"2800ms\"\nkind = \"stop\"\nnode = \"broker-a/0\"\ndown = \"100ms\"\n",
    );
    let stopped = place(&run, |event| matches!(event, Event::NodeDown(Down::Stop, _)));
    let committed = |records: &[Record]| -> Vec<(crate::history::QueueRef, u64)> {
        let seen = records.iter().filter_map(|record| match record.event {
            Event::Commit { queue, offset: Some(offset), .. } => Some((queue, offset)),
            _ => None,
        });
        seen.collect()
    };
    let (before, after) = run.history.records.split_at(stopped);
    let last: BTreeMap<_, _> = committed(before).into_iter().collect();
    assert!(!last.is_empty(), "offsets were committed before the stop");
    assert!(committed(after).iter().all(|(queue, offset)| *offset >= last[queue]), "{last:?} {:?}", committed(after));
    assert_eq!(run.findings.reports.iter().map(|report| report.count).sum::<u64>(), 0);
}

#[test]
fn a_stalled_disk_acknowledges_nothing() {
    let run = run_with_failing("kind = \"disk-stall\"\nfor = \"1500ms\"");
    assert_eq!(acknowledged_in(&run, 2 * SECOND + SECOND / 10, 3 * SECOND + SECOND / 2), 0);
    assert!(acknowledged_in(&run, 3 * SECOND + SECOND / 2, 4 * SECOND) > 0);
}

#[test]
fn what_was_stored_for_later_comes_although_the_clock_was_set_back_since() {
    let (_, run) = run_with(
        "later = \"50%\"\n[[fault]]\nid = \"f\"\nat = \"1s\"\nkind = \"clock-extreme\"\nnode = \"broker-a/0\"\n\
         to = \"after-2038\"\nfor = \"3s\"\n",
    );
    assert!(run.findings.counts["retried-later"] > 5 && run.findings.counts["clock-steps"] == 1);
    assert!(run.history.records.iter().any(|record| record.event == Event::Converged));
    // None waits longer than its level says, 10 s, however far ahead its store time lies.
    let (back, end) = (place(&run, |event| *event == Event::FaultEnd("f".to_owned())), run.history.records.len() - 1);
    let waited = run.history.records[end].at - run.history.records[back].at;
    assert!(waited < 25 * SECOND, "{waited} ns");
}

/// How many sends were acknowledged within a part of the active phase, given in nanoseconds.
fn acknowledged_in(run: &Finished, from: u64, to: u64) -> usize {
    let base = run.history.records[place(run, |event| *event == Event::Phase("active"))].at;
    let within = |record: &&Record| (base + from..base + to).contains(&record.at);
    let records = run.history.records.iter().filter(within);
    records.filter(|record| matches!(record.event, Event::SendOk(..))).count()
}

const SECOND: u64 = 1_000_000_000;

fn hits(run: &Finished, what: &str) -> u64 {
    run.findings.counts[what]
}

#[test]
fn a_link_that_flaps_is_cut_and_whole_by_turns() {
    let (_, run) = run_with(
        "[[fault]]\nid = \"f\"\nat = \"1s\"\nkind = \"flap\"\nlink = \"checkout <-> broker-a\"\n\
         down = \"1500ms\"\nup = \"1s\"\nfor = \"5s\"\n",
    );
    for (from, to, whole) in [(1_000, 2_500, false), (2_700, 3_500, true), (3_510, 5_000, false), (5_200, 6_000, true)]
    {
        let count = acknowledged_in(&run, from * SECOND / 1000, to * SECOND / 1000);
        assert_eq!(count > 0, whole, "{count} acknowledged from {from} to {to} ms");
    }
    assert_eq!((run.findings.counts["cuts"], run.aborted), (1, None));
}

#[test]
fn a_partition_of_halves_keeps_the_sides_apart() {
    let partition = |order: &str| {
        let (_, run) = run_with(&format!(
            "[[fault]]\nid = \"f\"\nat = \"1s\"\nkind = \"halves\"\norder = [{order}]\nfor = \"3s\"\n"
        ));
        acknowledged_in(&run, SECOND + SECOND / 100, 4 * SECOND)
    };
    assert_eq!(partition("\"checkout/0\", \"namesrv/0\", \"broker-a/0\", \"billing/0\""), 0);
    assert!(partition("\"checkout/0\", \"broker-a/0\", \"namesrv/0\", \"billing/0\"") > 10);
}

#[test]
fn a_swizzle_isolates_each_member_and_lets_all_back() {
    let (_, run) = run_with(
        "[[fault]]\nid = \"f\"\nat = \"1s\"\nkind = \"swizzle\"\norder = [\"namesrv/0\", \"broker-a/0\"]\nfor = \"6s\"\n",
    );
    // Cut at 1 s and 2 s, whole again by 6 s and 7 s.
    assert!(acknowledged_in(&run, SECOND, 2 * SECOND) > 2, "the broker is isolated only after a second");
    assert_eq!(acknowledged_in(&run, 2 * SECOND + SECOND / 100, 5 * SECOND), 0);
    assert!(run.history.records.iter().any(|record| record.event == Event::Converged));
}

#[test]
fn faults_of_connections_and_segments_are_counted() {
    let (_, run) = run_with(
        "[[fault]]\nid = \"full\"\nat = \"1s\"\nkind = \"accept-full\"\nnode = \"broker-a/0\"\nfor = \"4s\"\n\
         [[fault]]\nid = \"reset\"\nat = \"2s\"\nkind = \"conn-reset\"\nlink = \"checkout <-> broker-a\"\n",
    );
    assert_eq!(hits(&run, "connections-reset"), 1);
    assert!(hits(&run, "connects-ignored") >= 2, "the producer tries again");
    assert_eq!(acknowledged_in(&run, 2 * SECOND + SECOND / 100, 5 * SECOND), 0);
    let (reset, ended) = (begin(&run, "reset"), place(&run, |event| *event == Event::FaultEnd("reset".to_owned())));
    assert_eq!(run.history.records[reset].at, run.history.records[ended].at, "a reset is a moment");
    let (_, run) = run_with(
        "[[fault]]\nid = \"f\"\nat = \"1s\"\nkind = \"connect-hang\"\nnode = \"checkout/0\"\nfor = \"4s\"\n\
         [[fault]]\nid = \"reset\"\nat = \"2s\"\nkind = \"conn-reset\"\nlink = \"checkout -> broker-a\"\n\
         [[fault]]\nid = \"loss\"\nat = \"5s\"\nkind = \"loss\"\nlink = \"* <-> broker-a\"\nchance = \"50%\"\n\
         [[fault]]\nid = \"slow\"\nat = \"5s\"\nkind = \"slow-link\"\nlink = \"* <-> broker-a\"\nfactor = 5\n",
    );
    for what in ["connections-reset", "connects-ignored", "segments-lost", "segments-slowed"] {
        assert!(hits(&run, what) > 0, "{what}");
    }
    assert_eq!(run.aborted, None);
}

/// A run of which a fault makes something so slow that what waits for it would do so for years.
#[track_caller]
fn goes_on_after(fault: &str, hits: Option<&str>) {
    let (_, run) = run_with(&format!("[[fault]]\nid = \"f\"\nat = \"2s\"\nfor = \"3s\"\n{fault}"));
    assert_eq!(run.aborted, None, "{fault}");
    let converged = place(&run, |event| *event == Event::Converged);
    let settle = place(&run, |event| *event == Event::Phase("settle"));
    assert!(run.history.records[converged].at - run.history.records[settle].at < 20 * SECOND, "{fault}");
    // Nothing gets through, and everything does soon after: what a producer gave up it sends anew.
    assert_eq!(acknowledged_in(&run, 2_500 * SECOND / 1_000, 5 * SECOND), 0, "{fault}");
    assert!(acknowledged_in(&run, 5 * SECOND, 9 * SECOND) >= 5, "{fault}");
    assert!(hits.is_none_or(|what| self::hits(&run, what) > 0), "{fault}");
}

#[test]
fn what_waits_when_a_link_or_a_disk_is_no_longer_slow_goes_on_at_the_usual_rate() {
    let link = "link = \"checkout <-> broker-a\"\n";
    goes_on_after(&format!("kind = \"bandwidth\"\nlimit = \"1B/s\"\n{link}"), Some("segments-slowed"));
    goes_on_after(&format!("kind = \"slow-link\"\nfactor = 10_000_000\n{link}"), Some("segments-slowed"));
    goes_on_after("kind = \"disk-slow\"\nnode = \"broker-a/0\"\nfactor = 10_000_000\n", None);
}

#[test]
fn a_stall_that_was_to_last_longer_ends_with_the_active_phase() {
    let (_, run) =
        run_with("[[fault]]\nid = \"f\"\nat = \"5s\"\nkind = \"disk-stall\"\nnode = \"broker-a/0\"\nfor = \"50s\"\n");
    let converged = place(&run, |event| *event == Event::Converged);
    let settle = place(&run, |event| *event == Event::Phase("settle"));
    assert!(run.history.records[converged].at - run.history.records[settle].at < 20 * SECOND);
}

#[test]
fn a_fault_that_hit_nothing_is_named() {
    let disk = |id: &str, at: &str, rest: &str| {
        format!("[[fault]]\nid = \"{id}\"\nat = \"{at}\"\nnode = \"broker-a/0\"\nfor = \"1s\"\n{rest}\n")
    };
    let (scenario, run) = run_with(
        &[
            disk("slowed", "100ms", "kind = \"disk-slow\"\nfactor = 2"),
            disk("lied", "1s", "kind = \"lying-flush\"\npath = \"commitlog/*\""),
            disk("elsewhere", "1s", "kind = \"eio-read\"\npath = \"nowhere/*\""),
            disk("later", "1s", "kind = \"eio-flush\"\nnth = 1000000"),
            disk("rotten", "2s", "kind = \"bit-rot\"\npath = \"commitlog/*\""),
            disk("sound", "2s", "kind = \"latent-sector\"\npath = \"nowhere/*\""),
            "[[fault]]\nid = \"lossless\"\nat = \"2s\"\nkind = \"loss\"\nlink = \"* -> *\"\nchance = \"0.0001%\"\n"
                .to_owned(),
            disk("torn", "3s", "kind = \"torn-flush\"\npath = \"nowhere/*\"\nwithin = \"1s\"")
                .replace("for = \"1s\"\n", ""),
            disk("down", "4s", "kind = \"kill\"").replace("for", "down"),
            disk("asleep", "4100ms", "kind = \"disk-slow\"\nfactor = 2").replace("1s", "500ms"),
            disk("gone", "4100ms", "kind = \"disk-gone\"").replace("1s", "500ms"),
            disk("stalled", "5500ms", "kind = \"disk-stall\""),
        ]
        .concat(),
    );
    let expected = [
        "elsewhere (eio-read)",
        "later (eio-flush)",
        "sound (latent-sector)",
        "lossless (loss)",
        "torn (torn-flush)",
        "asleep (disk-slow)",
        "gone (disk-gone)",
    ];
    assert_eq!(without_effect(&scenario, &run.history), expected);
    assert!(hits(&run, "requests-slowed") > 0);
}
