//! `staticfire explore` and the report of a failing seed, through the built binary on small scenarios.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the test stands outside every host")]

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

/// A scenario of a few simulated seconds in which nothing goes wrong.
const CALM: &str = r#"
format = 1
about  = "Nothing goes wrong."
active = "10s"
settle = "1m"

[[broker]]
name = "broker-a"
disk = "64MiB"
config = { mappedFileSizeCommitLog = "256KiB" }

[[topic]]
name   = "orders"
queues = 1

[[producer]]
group = "checkout"
topic = "orders"
rate  = "2/s"

[[consumer]]
group     = "billing"
subscribe = "orders"
"#;

/// The scenario that fails in every seed.
const CANARY: &str = "scenarios/canary.toml";

/// A folder with the calm scenario and room for results.
struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new() -> Stage {
        let stage = Stage { folder: tempfile::tempdir().unwrap() };
        std::fs::write(stage.calm(), CALM).unwrap();
        stage
    }

    fn calm(&self) -> PathBuf {
        self.folder.path().join("calm.toml")
    }

    fn results(&self) -> PathBuf {
        self.folder.path().join("results.jsonl")
    }

    fn command(&self, scenario: &Path, more: &[&str]) -> Command {
        let mut command = staticfire();
        command.arg("explore").arg("--scenarios").arg(scenario).arg("--out").arg(self.results()).args(more);
        command
    }

    fn explore(&self, scenario: &Path, more: &[&str]) -> Output {
        self.command(scenario, more).output().expect("the binary was built")
    }

    /// What the file of results holds.
    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.results()).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"))).collect()
    }

    fn seeds(&self) -> BTreeSet<u64> {
        let lines = self.lines();
        let seeds: BTreeSet<u64> = lines.iter().map(|line| line["seed"].as_u64().unwrap()).collect();
        assert_eq!(seeds.len(), lines.len(), "a seed was run twice");
        seeds
    }
}

fn staticfire() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_staticfire"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn one_line(output: &Output) -> String {
    let text = text(&output.stderr);
    assert_eq!(text.lines().count(), 1, "not one line: {text}");
    text
}

#[test]
fn each_seed_is_a_line_and_a_second_job_runs_only_what_is_missing() {
    let stage = Stage::new();
    let output = stage.explore(&stage.calm(), &["--seeds", "0..3", "--jobs", "2"]);
    let told = text(&output.stdout);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{told}");
    assert!(told.starts_with("3 seeds in ") && told.contains("; all seeds were run\n"), "{told}");
    assert!(told.ends_with("no seed failed\n"), "{told}");
    assert_eq!(stage.seeds(), (0..3).collect());
    for line in stage.lines() {
        assert_eq!((&line["verdict"], &line["failure"]), (&"pass".into(), &Value::Null), "{line}");
        assert_eq!(line["scenario"], stage.calm().display().to_string());
        for hash in ["hash", "build", "scenario_hash"] {
            assert!(line[hash].as_str().is_some_and(|hash| hash.len() >= 12), "{hash} in {line}");
        }
        assert_eq!(line["counts"]["acked"], line["counts"]["finished"], "{line}");
        assert!(line["virtual_ms"].as_u64() >= Some(10_000) && line["new_marks"].is_array(), "{line}");
    }

    // As if the job had been ended in the middle of the last line.
    let kept = std::fs::read_to_string(stage.results()).unwrap();
    std::fs::write(stage.results(), &kept[..kept.len() - 30]).unwrap();
    let output = stage.explore(&stage.calm(), &["--seeds", "0..4", "--jobs", "2"]);
    let told = text(&output.stdout);
    assert!(output.status.success() && told.starts_with("2 seeds in ") && told.contains(": 4 seeds of "), "{told}");
    assert_eq!(stage.seeds(), (0..4).collect());
}

#[test]
fn a_changed_scenario_is_run_again() {
    let stage = Stage::new();
    assert!(stage.explore(&stage.calm(), &["--seeds", "0..1"]).status.success());
    std::fs::write(stage.calm(), CALM.replace("2/s", "3/s")).unwrap();
    assert!(stage.explore(&stage.calm(), &["--seeds", "0..1"]).status.success());
    let acked: Vec<Value> = stage.lines().iter().map(|line| line["counts"]["acked"].clone()).collect();
    // Ten seconds of the load, and the last message of the only queue, which shows that the cluster has settled.
    assert_eq!(acked, [21, 31]);
}

#[test]
fn failures_are_grouped_and_told_with_the_command_that_repeats_them() {
    let stage = Stage::new();
    let output = stage.explore(Path::new(CANARY), &["--seeds", "0..2"]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(10), "{told}");
    let group = "FAIL safety legally-lost   2 seeds   by append node.down recover send.invoke send.ok";
    assert!(told.contains(group) || told.contains("FAIL safety legally-lost   2 seeds"), "{told}");
    for seed in 0..2 {
        assert!(told.contains(&format!("  repeat: staticfire run {CANARY} --seed {seed}\n")), "{told}");
    }
    let again = stage.explore(Path::new(CANARY), &["--seeds", "0..2", "--json"]);
    assert_eq!(again.status.code(), Some(10));
    let summary: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!((&summary["seeds"], &summary["seeds_before"]), (&2.into(), &2.into()), "{summary}");
    assert_eq!((&summary["groups"][0]["about"], &summary["groups"][0]["seeds"]), (&"legally-lost".into(), &2.into()));
}

#[test]
fn a_job_stops_at_the_first_failure() {
    let stage = Stage::new();
    let output = stage.explore(Path::new(CANARY), &["--until-first-failure", "--jobs", "1"]);
    assert_eq!(output.status.code(), Some(10));
    assert!(text(&output.stdout).contains("; a seed failed\n"), "{}", text(&output.stdout));
    assert!(stage.lines().len() <= 2, "{:?}", stage.seeds());
}

#[test]
fn a_job_stops_when_nothing_new_is_reached() {
    let stage = Stage::new();
    let output = stage.explore(&stage.calm(), &["--quiet-after", "2", "--jobs", "1"]);
    let told = text(&output.stdout);
    assert!(output.status.success() && told.contains("; no seed reached anything new\n"), "{told}");
    assert!(stage.lines().len() >= 3, "{told}");
}

#[test]
fn a_spent_budget_ends_a_job_that_has_shown_nothing() {
    let stage = Stage::new();
    let output = stage.explore(&stage.calm(), &["--budget", "1ms"]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(15), "{told}");
    assert!(told.contains("; the budget is spent\n") && told.contains("not one seed was run"), "{told}");
}

#[test]
fn a_canary_that_passes_ends_the_job_before_it_begins() {
    let stage = Stage::new();
    let canary = stage.calm().display().to_string();
    let output = stage.explore(&stage.calm(), &["--seeds", "0..2", "--canary", &canary]);
    assert_eq!(output.status.code(), Some(15));
    assert_eq!(one_line(&output), "staticfire: the canary passed: this job would find nothing\n");
    assert_eq!(stage.lines(), [] as [Value; 0]);
}

#[test]
fn a_seed_that_takes_too_long_or_too_much_is_a_limit() {
    let stage = Stage::new();
    // No process comes up and simulates within a millisecond.
    let output = stage.explore(&stage.calm(), &["--seeds", "0..1", "--limit", "1ms"]);
    assert_eq!(output.status.code(), Some(14), "{}", text(&output.stdout));
    assert_eq!(stage.lines()[0]["failure"]["what"], "ended after 1ms of real time");
}

/// Whatever goes wrong for want of memory is a limit, and told as one. To print a backtrace there would wait for ever.
#[test]
fn a_seed_without_memory_is_a_limit_however_it_fails() {
    for memory in ["16MiB", "40MiB", "64MiB", "76MiB", "80MiB", "84MiB"] {
        let stage = Stage::new();
        let mut job = stage.command(&stage.calm(), &["--seeds", "0..1", "--memory", memory]);
        let output = job.env("RUST_BACKTRACE", "1").output().unwrap();
        assert_eq!(output.status.code(), Some(14), "{memory}: {}{}", text(&output.stdout), text(&output.stderr));
        let what = stage.lines()[0]["failure"]["what"].as_str().unwrap().to_owned();
        assert!(what.contains("memory limit"), "{memory}: {what}");
    }
}

#[test]
fn a_run_that_missed_its_opportunity_names_other_seeds_and_not_what_cannot_work() {
    let stage = Stage::new();
    let file = stage.folder.path().join("idle.toml");
    std::fs::write(&file, format!("{CALM}\n[expect.at-least]\nacked = 100000\n")).unwrap();
    let output = staticfire().arg("run").arg(&file).args(["--seed", "3"]).output().unwrap();
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(15), "{told}");
    assert!(!told.contains("staticfire shrink"), "{told}");
    let next = told.lines().find_map(|line| line.strip_prefix("other seeds: staticfire ")).expect(&told);
    assert_eq!(next, format!("run {} --seeds 0..20", file.display()));
}

#[test]
fn an_interrupted_job_keeps_what_it_has_and_goes_on_later() {
    let stage = Stage::new();
    let more = ["--seeds", "0..100000", "--jobs", "2"];
    let job = stage.command(&stage.calm(), &more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while stage.results().metadata().map_or(0, |file| file.len()) == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-INT", &job.id().to_string()]).status().unwrap().success());
    let output = job.wait_with_output().unwrap();
    let told = text(&output.stdout);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(130), ""), "{told}");
    assert!(told.contains("; interrupted\n") && told.contains("no seed failed\n"), "{told}");
    let before = stage.seeds();
    assert!(!before.is_empty());
    let end = before.len() + 1;
    assert!(stage.explore(&stage.calm(), &["--seeds", &format!("0..{end}")]).status.success());
    assert!(stage.seeds().is_superset(&before));
}

#[test]
fn wrong_arguments_are_one_line_each() {
    let stage = Stage::new();
    let notes = stage.folder.path().join("notes.jsonl");
    std::fs::write(&notes, "my notes\n").unwrap();
    let told = |arguments: &[&str]| {
        let output = staticfire().arg("explore").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        one_line(&output)
    };
    let none = told(&["--seeds", "0..1", "--scenarios", "scenarios/none-*.toml"]);
    assert_eq!(none, "staticfire: no scenario matches `scenarios/none-*.toml`\n");
    assert!(told(&["--seeds", "0..1", "--scenarios", "scenarios/***"]).contains("is not a pattern of files"));
    assert!(told(&["--budget", "10x"]).contains("`x` is not a unit of a time"));
    assert!(told(&["--budget", "0s"]).contains("`0s` is no time at all"));
    assert!(told(&["--budget", "ten minutes"]).contains("write a number and a unit, as in 250ms, 30s or 2m"));
    assert!(told(&["--seeds", "3..1"]).contains("`3..1` holds no seed"));
    let out = notes.display().to_string();
    let wrong = told(&["--seeds", "0..1", "--scenarios", CANARY, "--out", &out]);
    assert!(wrong.contains("notes.jsonl:1: not a result of `staticfire explore`"), "{wrong}");
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "my notes\n");
    let wrong = told(&["--seeds", "0..1", "--scenarios", CANARY, "--out", "Cargo.toml/x.jsonl"]);
    assert!(wrong.contains("cannot open Cargo.toml/x.jsonl: "), "{wrong}");
}

#[test]
fn a_failing_seed_is_told_in_24_lines_with_the_life_of_its_message() {
    let output = staticfire().args(["run", CANARY, "--seed", "3"]).output().unwrap();
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(10), "{told}");
    assert!(told.lines().count() <= 24 && !told.contains('\x1b'), "{told}");
    assert!(told.starts_with("FAIL safety   scenario canary   seed 3   build "), "{told}");
    // The life of the message, in this order.
    let mut rest = told.as_str();
    for part in [
        ": promised a cache copy\n",
        "send.invoke\n",
        "append up to ",
        "send.ok orders/broker-a/",
        "node.down power-loss (no flush up to ",
        "recover to ",
        ": it is gone\n",
        "  faults loss power-loss ",
        "repeat: staticfire run scenarios/canary.toml --seed 3\n",
        "shrink: staticfire shrink scenarios/canary.toml --seed 3\n",
    ] {
        let at = rest.find(part).unwrap_or_else(|| panic!("no `{part}` in its place in:\n{told}"));
        rest = &rest[at + part.len()..];
    }
    let output = staticfire().args(["run", CANARY, "--seed", "3", "--json"]).output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let problem = &result["problems"][0];
    assert_eq!((&problem["about"], &problem["verdict"]), (&"legally-lost".into(), &"safety".into()));
    let life = problem["life"].as_array().unwrap();
    assert!((5..=10).contains(&life.len()), "{life:?}");
    assert!(life.iter().all(|line| told.contains(line.as_str().unwrap())), "{life:?}");
}
