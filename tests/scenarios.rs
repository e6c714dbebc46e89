//! The shipped scenarios on fixed seeds: what became of every message, as snapshots.
//!
//! Each seed runs in a process of its own, through the built binary. `STATICFIRE_SEED=N cargo test --workspace NAME`
//! runs another seed instead and compares nothing, but the run must pass.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
};

use serde_json::Value;

/// The seeds that every change is tested on.
const SEEDS: std::ops::Range<u64> = 0..8;

/// How many processes at a time: the tests of this file run side by side as well.
const JOBS: u64 = 2;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn staticfire() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_staticfire"));
    command.current_dir(root());
    command
}

/// The folders whose scenarios run with every change.
const FOLDERS: [&str; 2] = ["scenarios/fast", "scenarios/regressions"];

fn scenario(name: &str) -> PathBuf {
    let mut files = FOLDERS.iter().map(|folder| Path::new(folder).join(format!("{name}.toml")));
    files.find(|file| root().join(file).is_file()).unwrap_or_else(|| panic!("no scenario is called {name}"))
}

/// Runs one seed; its result, and the exit code.
fn run(file: &Path, seed: u64, more: &[&str]) -> (Value, Option<i32>) {
    let output = staticfire()
        .arg("run")
        .arg(file)
        .args(["--seed", &seed.to_string(), "--json"])
        .args(more)
        .output()
        .expect("the binary was built");
    let result = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("seed {seed} died: {}", String::from_utf8_lossy(&output.stderr)));
    (result, output.status.code())
}

fn fates(result: &Value) -> String {
    let lines = result["fates"].as_array().expect("fates are a list").iter().map(|line| line.as_str().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// The fates of all seeds, in the order of the seeds.
fn fates_of_seeds(name: &str) -> Vec<(u64, String)> {
    let next = AtomicU64::new(SEEDS.start);
    let mut all: Vec<(u64, String)> = std::thread::scope(|scope| {
        let worker = || {
            let mut fates_here = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= SEEDS.end {
                    break fates_here;
                }
                let (result, code) = run(&scenario(name), seed, &[]);
                assert_eq!(code, Some(0), "{name} seed {seed}: {}", result["problems"]);
                fates_here.push((seed, fates(&result)));
            }
        };
        let workers: Vec<_> = (0..JOBS).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a seed failed")).collect()
    });
    all.sort_unstable_by_key(|(seed, _)| *seed);
    all
}

#[expect(clippy::disallowed_methods, reason = "the seed of a test is asked for in the environment")]
fn keeps_its_fates(name: &str) {
    if let Ok(seed) = std::env::var("STATICFIRE_SEED") {
        let seed = seed.parse().expect("STATICFIRE_SEED is a number");
        let (result, code) = run(&scenario(name), seed, &[]);
        assert_eq!(code, Some(0), "{name} seed {seed}: {}", result["problems"]);
        return;
    }
    let mut text = String::new();
    for (seed, fates) in fates_of_seeds(name) {
        writeln!(text, "=== seed {seed}\n{fates}").unwrap();
    }
    insta::assert_snapshot!(name, text);
}

macro_rules! scenarios {
    ($($test:ident: $name:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            keeps_its_fates($name);
        })*

        /// The scenarios that have a test.
        const TESTED: &[&str] = &[$($name),*];
    };
}

scenarios! {
    asymmetric_partition: "asymmetric-partition",
    bad_network: "bad-network",
    broker_drained: "broker-drained",
    broker_kill: "broker-kill",
    buggify: "buggify",
    clients_come_and_go: "clients-come-and-go",
    consumequeue_lost: "consumequeue-lost",
    cut_off_owner_commits: "cut-off-owner-commits",
    damaged_disk: "damaged-disk",
    dead_letters: "dead-letters",
    delayed_behind_a_clock_set_back: "delayed-behind-a-clock-set-back",
    deletion_at_hour: "deletion-at-hour",
    deletion_by_hand_under_read: "deletion-by-hand-under-read",
    disk_85_percent: "disk-85-percent",
    disk_errors: "disk-errors",
    disk_full_and_back: "disk-full-and-back",
    disk_replaced: "disk-replaced",
    every_poll: "every-poll",
    fsync_error: "fsync-error",
    given_away_in_silence: "given-away-in-silence",
    half_open_slave: "half-open-slave",
    index_knew_more_than_the_log: "index-knew-more-than-the-log",
    index_lost: "index-lost",
    lost_offsets_filled_again: "lost-offsets-filled-again",
    master_loss_and_promotion: "master-loss-and-promotion",
    master_loss_classic: "master-loss-classic",
    master_returns_shorter: "master-returns-shorter",
    namesrv_loss: "namesrv-loss",
    offset_recovery_after_crash: "offset-recovery-after-crash",
    one_buffer_and_no_other: "one-buffer-and-no-other",
    partition_client_broker: "partition-client-broker",
    power_loss_async_flush: "power-loss-async-flush",
    power_loss_at_flush: "power-loss-at-flush",
    power_loss_sync_flush: "power-loss-sync-flush",
    promotion_loses_the_gap: "promotion-loses-the-gap",
    rebalance_scale_out_and_in: "rebalance-scale-out-and-in",
    w22_retries_after_power_loss: "retries-after-power-loss",
    w22_a_retry_copy_is_one_when_it_is_on_disk: "retry-copy-not-on-disk",
    retry_deleted_with_its_log_file: "retry-deleted-with-its-log-file",
    rotten_queues: "rotten-queues",
    segment_roll_under_crash: "segment-roll-under-crash",
    slave_crash: "slave-crash",
    slow_disk: "slow-disk",
    slow_slave: "slow-slave",
    stopped_while_offsets_are_saved: "stopped-while-offsets-are-saved",
    sync_pair_power_loss: "sync-pair-power-loss",
    topic_grows: "topic-grows",
    transient_pool_kill: "transient-pool-kill",
    unreadable_among_others: "unreadable-among-others",
    worse_disks: "worse-disks",
    wrong_clocks: "wrong-clocks",
}

/// The history of a run that passes, record by record.
fn history(name: &str, seed: u64) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.jsonl");
    let (result, code) = run(&scenario(name), seed, &["--history", file.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{name} seed {seed}: {}", result["problems"]);
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_kind<'a>(records: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    records.iter().filter(move |record| record["k"] == kind)
}

#[test]
fn expired_files_go_in_the_hour_of_delete_when_and_not_before() {
    const SECOND: u64 = 1_000_000_000;
    let (hour, file_bytes) = (3600 * SECOND, 256 << 10);
    let records = history("deletion-at-hour", 1);
    let number = |record: &Value, key: &str| record[key].as_u64().unwrap();
    // When each byte of the log was appended.
    let appends: Vec<(u64, u64)> =
        of_kind(&records, "append").map(|record| (number(record, "x"), number(record, "t"))).collect();
    let deletions: Vec<(u64, u64)> =
        of_kind(&records, "delete").map(|record| (number(record, "x"), number(record, "t"))).collect();
    let mut ages = Vec::new();
    for &(start, at) in &deletions {
        let (_, last) = appends.iter().rfind(|(end, _)| *end <= start + file_bytes).unwrap();
        assert!(at >= 2 * hour && at - last >= hour, "the file at {start} was {} s old at {at}", (at - last) / SECOND);
        ages.push((at - last) / SECOND);
    }
    // Most had been expired for long, and had waited for their hour.
    assert!(deletions.len() > 40 && ages[0] > 7000, "{ages:?}");
    assert!(
        deletions.windows(2).all(|pair| pair[1].0 == pair[0].0 + file_bytes),
        "the oldest goes first: {deletions:?}"
    );
}

#[test]
fn p031_the_write_limit_is_90_percent_whatever_the_settings_say_and_ends_at_85() {
    let records = history("disk-full-and-back", 1);
    let time = |kind: &str, id: &str| {
        let record = of_kind(&records, kind).find(|record| record["f"] == id);
        record.unwrap_or_else(|| panic!("no {kind} of {id}"))["t"].as_u64().unwrap()
    };
    // How many sends got this answer from so many seconds after one moment to another one.
    let count = |kind: &'static str, after: u64, (from, to): (u64, u64)| {
        let within = from + after * 1_000_000_000..to;
        of_kind(&records, kind).filter(|record| within.contains(&record["t"].as_u64().unwrap())).count()
    };
    let fresh = (time("fault.end", "starts-at-89"), time("fault.end", "fresh"));
    let full = (time("fault.begin", "above-90"), time("fault.begin", "between"));
    let nearly = (time("fault.begin", "between"), time("fault.begin", "below-85"));
    let below = (time("fault.begin", "below-85"), time("fault.end", "below-85"));
    assert!(count("send.ok", 3, fresh) > 100 && count("send.fail", 3, fresh) == 0, "89 % on a fresh broker");
    assert!(count("send.ok", 11, full) == 0 && count("send.fail", 11, full) > 50, "92 %");
    assert!(count("send.ok", 0, nearly) == 0 && count("send.fail", 0, nearly) > 100, "89 % on the way down");
    assert!(count("send.ok", 11, below) > 50 && count("send.fail", 11, below) == 0, "84 %");
    // 14 is "service not available". A broker that is not there gives no answer.
    let late = of_kind(&records, "send.fail").filter(|record| record["t"].as_u64().unwrap() > fresh.1);
    let others: Vec<_> = late.filter(|record| record["v"] != "code-14").collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn every_fast_scenario_and_every_regression_has_a_test() {
    let files = FOLDERS.iter().flat_map(|folder| std::fs::read_dir(root().join(folder)).unwrap());
    let mut names: Vec<String> =
        files.map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, TESTED);
}

#[test]
fn another_order_of_tasks_leaves_the_fates_as_they_are() {
    let file = scenario("broker-kill");
    let (first, _) = run(&file, 3, &[]);
    for sched in ["1", "2", "3"] {
        let (other, _) = run(&file, 3, &["--sched", sched]);
        assert_ne!(other["hash"], first["hash"], "the order of tasks has no effect at all");
        assert_eq!(fates(&other), fates(&first), "sched {sched}");
    }
}

#[test]
fn a_crash_at_a_poll_replays_and_is_aimed_at_that_poll() {
    let file = scenario("every-poll");
    let (none, _) = run(&file, 1, &[]);
    assert!(none["node_polls"]["broker-a/0"].as_u64().unwrap() > 100);
    let crash = ["--crash-at-poll", "broker-a/0@100", "--style", "power-loss"];
    let ((first, code), (again, _)) = (run(&file, 1, &crash), run(&file, 1, &crash));
    assert_eq!((code, &first["counts"]["crashes"]), (Some(0), &Value::from(1)));
    assert_eq!((&first["hash"], &first["side_hash"]), (&again["hash"], &again["side_hash"]));
    let (beyond, _) = run(&file, 1, &["--crash-at-poll", "broker-a/0@4000000000"]);
    assert_eq!(beyond["never_fired"][0], "crash-at-poll-4000000000 (visit 4000000000 of poll at broker-a/0)");
    assert_eq!((&beyond["counts"], &beyond["node_polls"]), (&none["counts"], &none["node_polls"]));
}

#[test]
fn a_broker_may_die_at_any_poll() {
    let output = staticfire()
        .args(["run", "scenarios/fast/every-poll.toml", "--seed", "1", "--crash-at-every-poll", "broker-a/0"])
        .args(["--every", "11", "--style", "power-loss", "--jobs", "2", "--json"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let summary: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let (polls, runs) = (summary["polls"].as_u64().unwrap(), summary["runs"].as_u64().unwrap());
    assert_eq!((runs, &summary["without_crash"]), (polls.div_ceil(11), &Value::from(0)));
}

#[test]
fn a_printed_plan_of_a_swarm_runs_as_the_same_run() {
    let file = PathBuf::from("scenarios/slow/swarm-sync-flush.toml");
    let plan = staticfire().arg("plan").arg(&file).args(["--seed", "3"]).output().unwrap();
    let text = String::from_utf8(plan.stdout).unwrap();
    assert!(plan.status.success() && text.contains("[[fault]]") && !text.contains("[nemesis]"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let printed = folder.path().join("swarm-sync-flush.toml");
    std::fs::write(&printed, text).unwrap();
    let ((first, _), (again, _)) = (run(&file, 3, &[]), run(&printed, 3, &[]));
    assert_eq!((&again["hash"], &again["side_hash"]), (&first["hash"], &first["side_hash"]));
}

#[test]
fn a_printed_plan_runs_as_the_same_run() {
    let file = scenario("broker-kill");
    let plan = staticfire().arg("plan").arg(&file).args(["--seed", "5"]).output().unwrap();
    assert!(plan.status.success());
    let folder = tempfile::tempdir().unwrap();
    let printed = folder.path().join("broker-kill.toml");
    std::fs::write(&printed, plan.stdout).unwrap();
    let (first, _) = run(&file, 5, &[]);
    let (again, _) = run(&printed, 5, &[]);
    assert_eq!((&again["hash"], &again["side_hash"]), (&first["hash"], &first["side_hash"]));
}

#[test]
fn a_run_replays_in_another_process_folder_and_environment_with_logging_on() {
    let output = staticfire().args(["verify", "scenarios/fast/broker-kill.toml", "--seeds", "0..2"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// P110 of the collection of cases: a `select!` that draws its first branch from a number without a seed, or a hash map
/// with a random state, shows as soon as one seed runs again. A seed has a process of its own here, always: in a second
/// run of one process the wake order of `tokio::sync::watch` would differ, as `spec/simulation.md` 1.9 allows.
#[test]
fn p110_one_seed_is_one_run_in_every_process() {
    let file = scenario("rebalance-scale-out-and-in");
    let hashes = |_| {
        let (result, _) = run(&file, 3, &[]);
        (result["hash"].clone(), result["side_hash"].clone())
    };
    let several: Vec<_> = (0..4).map(hashes).collect();
    assert!(several.iter().all(|hashes| *hashes == several[0]), "{several:?}");
}

/// P111 of the collection of cases: nothing may be drawn before the seed is known, wherever it comes from and whatever
/// else is asked for.
#[test]
fn p111_a_seed_means_the_same_from_the_command_line_and_from_the_file() {
    let file = scenario("broker-kill");
    let folder = tempfile::tempdir().unwrap();
    let pinned = folder.path().join("broker-kill.toml");
    let text = std::fs::read_to_string(root().join(&file)).unwrap();
    std::fs::write(&pinned, format!("{text}\n[seeds]\nroot = 6\n")).unwrap();
    let history = folder.path().join("history.jsonl");
    let (given, _) = run(&file, 6, &[]);
    let output = staticfire().arg("run").arg(&pinned).arg("--history").arg(&history).arg("--json").output().unwrap();
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&read["hash"], &read["side_hash"]), (&given["hash"], &given["side_hash"]));
    let plan = |command: &mut Command| String::from_utf8(command.output().unwrap().stdout).unwrap();
    let from_flag = plan(staticfire().arg("plan").arg(&file).args(["--seed", "6"]));
    let from_file = plan(staticfire().arg("plan").arg(&pinned).env("RUST_LOG", "trace").env("TZ", "Asia/Tokyo"));
    assert!(from_flag.contains("[[fault]]") && from_flag == from_file, "{from_flag}\n{from_file}");
}

#[test]
fn mistakes_in_a_scenario_are_one_message_each() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(root().join(scenario("broker-kill"))).unwrap();
    let told = |from: &str, to: &str| {
        assert!(text.contains(from));
        let file = folder.path().join("wrong.toml");
        std::fs::write(&file, text.replacen(from, to, 1)).unwrap();
        let output = staticfire().current_dir(folder.path()).args(["run", "wrong.toml"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
        let error = String::from_utf8(output.stderr).unwrap();
        error.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!("a_misspelt_key", told("rate  ", "raet  "));
    insta::assert_snapshot!("a_wrong_unit", told("\"12s..18s\"", "\"12s..18sec\""));
    insta::assert_snapshot!("an_unknown_node", told("node = \"broker-a/0\"", "node = \"broker-c/0\""));
    insta::assert_snapshot!("a_fault_after_the_end", told("\"28s..32s\"", "\"28s..62s\""));
    insta::assert_snapshot!("an_unknown_setting", told("mappedFileSizeCommitLog", "mapedFileSizeCommitLog"));
}
