//! `staticfire shrink` through the built binary: what it gives back fails, and the same call gives back the same.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the test stands outside every host")]

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use sim::{
    plan::Plan,
    scenario::{Load, Scenario},
};

/// The scenario that fails in every seed: it asks of a power loss what async flush cannot keep.
const CANARY: &str = "scenarios/canary.toml";

fn staticfire(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_staticfire"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).output().expect("the binary was built")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Shrinks seed 3 of the canary; the summary.
fn shrink(out: &Path, more: &[&str]) -> Value {
    let out = out.display().to_string();
    let output = staticfire(&[&["shrink", CANARY, "--seed", "3", "--json", "--out", &out], more].concat());
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn path(summary: &Value, key: &str) -> PathBuf {
    summary[key].as_str().unwrap().into()
}

#[test]
fn a_seed_comes_back_as_a_small_scenario_that_fails_alike() {
    let folder = tempfile::tempdir().unwrap();
    let summary = shrink(folder.path(), &["--runs-max", "200", "--jobs", "2"]);
    assert_eq!((&summary["about"], &summary["from"]["messages"]), (&"legally-lost".into(), &200.into()));
    let (runs, messages) = (summary["runs"].as_u64().unwrap(), summary["to"]["messages"].as_u64().unwrap());
    assert!(runs <= 200 && messages <= 20, "{summary}");
    let file = path(&summary, "file");
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.starts_with("# legally-lost: it was only promised to a cache that lost power\n"), "{written}");
    let scenario = Scenario::parse("shrunk.toml", &written).unwrap();
    assert_eq!((scenario.expect.fails.as_deref(), scenario.faults.len()), (Some("legally-lost"), 1));
    // Nothing is left to be drawn: its plan is itself.
    assert_eq!(Plan::draw(scenario.clone(), None).scenario.print(), scenario.print());
    let sent = scenario.producers.iter().map(|group| match &group.load {
        Load::Planned(sends) => sends.len() as u64,
        Load::Drawn { .. } => panic!("not planned"),
    });
    assert_eq!(sent.sum::<u64>(), messages);

    let ran = staticfire(&["run", file.to_str().unwrap(), "--json"]);
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((ran.status.code(), &result["verdict"]), (Some(0), &"pass".into()), "{result}");
    assert_eq!(result["expected"][0]["about"], "legally-lost");
    // As it is kept when the bug is fixed: now the failure counts.
    let fixed = folder.path().join("fixed.toml");
    let pass = written.replace("verdict = \"fail:legally-lost\"\nwithin = 1\n", "verdict = \"pass\"\n");
    assert_ne!(pass, written);
    std::fs::write(&fixed, pass).unwrap();
    assert_eq!(staticfire(&["run", fixed.to_str().unwrap()]).status.code(), Some(10));
}

#[test]
fn the_same_call_gives_the_same_file_with_any_number_of_processes() {
    let folders = ["1", "3"].map(|jobs| {
        let folder = tempfile::tempdir().unwrap();
        let summary = shrink(folder.path(), &["--runs-max", "100", "--jobs", jobs]);
        (folder, summary)
    });
    let [one, other] = &folders;
    assert_eq!(one.1["runs"], other.1["runs"]);
    let names = [&one.1, &other.1].map(|summary| path(summary, "file").file_name().unwrap().to_owned());
    assert_eq!(names[0], names[1]);
    let texts = [&one.1, &other.1].map(|summary| std::fs::read_to_string(path(summary, "file")).unwrap());
    // The command that made them names no folder.
    assert_eq!(texts[0], texts[1]);
}

#[test]
fn the_test_that_comes_with_it_runs_it() {
    let folder = tempfile::tempdir().unwrap();
    let summary = shrink(folder.path(), &["--runs-max", "17"]);
    let (file, test) = (path(&summary, "file"), path(&summary, "test"));
    let (stem, name) = (file.file_stem().unwrap().to_str().unwrap(), test.file_stem().unwrap().to_str().unwrap());
    assert_eq!(name, stem.replace('-', "_"));
    let written = std::fs::read_to_string(&test).unwrap();
    for line in [
        "#[test]".to_owned(),
        format!("fn {name}() {{"),
        format!("        .args([\"run\", \"scenarios/regressions/{stem}.toml\"])"),
    ] {
        assert!(written.lines().any(|other| other == line), "no `{line}` in:\n{written}");
    }
    // It compiles once it stands in `tests/`, where Cargo says which program to run.
    let compiled = Command::new("rustc")
        .args(["--test", "--edition", "2024", "--emit", "metadata", "--out-dir"])
        .arg(folder.path())
        .arg(&test)
        .env("CARGO_BIN_EXE_staticfire", env!("CARGO_BIN_EXE_staticfire"))
        .env("CARGO_MANIFEST_DIR", env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
}

#[test]
fn a_report_tells_from_what_to_what_and_how_to_repeat_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().display().to_string();
    let output = staticfire(&["shrink", CANARY, "--seed", "3", "--runs-max", "30", "--out", &out]);
    let told = text(&output.stdout);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{told}");
    let mut rest = told.as_str();
    for part in [
        "SHRUNK legally-lost   scenario scenarios/canary.toml   seed 3   build ",
        "\n  it was only promised to a cache that lost power\n",
        "from 1 fault, 200 messages, 4 nodes to 1 fault, ",
        " runs in ",
        "; the budget is spent\n",
        "failed in 3 of 3 processes of its own\n",
        "repeat: staticfire run ",
    ] {
        let at = rest.find(part).unwrap_or_else(|| panic!("no `{part}` in its place in:\n{told}"));
        rest = &rest[at + part.len()..];
    }
    assert_eq!(told.lines().count(), 7, "{told}");
}

#[test]
fn where_nothing_fails_there_is_nothing_to_shrink() {
    let folder = tempfile::tempdir().unwrap();
    let told = |file: &str, expect: &str| {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(CANARY)).unwrap();
        let scenario = folder.path().join(file);
        std::fs::write(&scenario, text.replace("legally-lost = 0", expect)).unwrap();
        let out = folder.path().join("out").display().to_string();
        let output = staticfire(&["shrink", scenario.to_str().unwrap(), "--seed", "3", "--out", &out]);
        assert_eq!(output.status.code(), Some(15));
        assert!(output.stdout.is_empty());
        text_of_one_line(&output).replace(&folder.path().display().to_string(), "")
    };
    let passes = told("calm.toml", "lost = 0\nmust-check = []");
    assert_eq!(passes, "staticfire: seed 3 of /calm.toml passes: there is nothing to shrink\n");
    let idle = told("idle.toml", "must-check = []\nat-least = { acked = 100000 }");
    assert!(idle.contains("/idle.toml only misses what it is for (acked: "), "{idle}");
    assert_eq!(std::fs::read_dir(folder.path().join("out")).unwrap().count(), 0);
}

#[test]
fn a_search_that_somebody_ends_says_so_and_keeps_what_it_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_staticfire"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(["shrink", CANARY, "--seed", "3", "--out"]).arg(folder.path());
    let search = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The second candidate is tried when the first, the plan itself, has failed.
    let candidate = std::env::temp_dir().join(format!("staticfire-{}-candidate.toml", search.id()));
    let mut seen = BTreeSet::new();
    while seen.len() < 3 {
        seen.extend(std::fs::read_to_string(&candidate).ok().filter(|text| text.ends_with('\n')));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &search.id().to_string()]).status().unwrap().success());
    let output = search.wait_with_output().unwrap();
    let told = text(&output.stdout);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(130), ""), "{told}");
    assert!(told.contains("; interrupted\n") && told.contains("failed in 3 of 3 processes of its own"), "{told}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "the scenario and its test");
}

/// A run of this takes minutes.
#[test]
fn a_run_under_way_ends_with_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(CANARY)).unwrap();
    let scenario = folder.path().join("long.toml");
    std::fs::write(
        &scenario,
        text.replace("active = \"20s\"", "active = \"20h\"").replace("end   = \"10s\"", "end = \"1h\""),
    )
    .unwrap();
    let begun = Instant::now();
    let output = staticfire(&["shrink", scenario.to_str().unwrap(), "--seed", "3", "--budget", "2s"]);
    let took = begun.elapsed();
    assert_eq!(text_of_one_line(&output), "staticfire: the budget was spent before the plan had failed once\n");
    assert_eq!(output.status.code(), Some(15));
    assert!(took < Duration::from_secs(30), "{took:?}");
}

fn text_of_one_line(output: &Output) -> String {
    let text = text(&output.stderr);
    assert_eq!(text.lines().count(), 1, "not one line: {text}");
    text
}

/// Planted bugs must come back with at most 3 faults and 20 messages, and be quiet without the bug.
#[cfg(feature = "mutants")]
#[test]
fn a_planted_bug_comes_back_small_and_is_quiet_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().display().to_string();
    for (name, seed, checker) in [
        ("ack-before-flush", "0", "lost"),
        ("commit-before-processing", "1", "unread"),
        ("delay-from-birth", "0", "early"),
        ("dispatch-before-flush", "0", "visible-before-safe"),
        ("flush-without-msync", "1", "lost"),
        ("offset-given-again-after-recovery", "0", "two-at-offset"),
        ("recovery-truncates-one-too-many", "1", "lost"),
        ("tags-by-hash-only", "0", "filter"),
    ] {
        let file = format!("scenarios/mutants/{name}.toml");
        let arguments = ["shrink", &file, "--seed", seed, "--mutant", name, "--json", "--out", &out];
        let output = staticfire(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&summary["about"], &summary["mutant"]), (&checker.into(), &name.into()));
        let to = |what: &str| summary["to"][what].as_u64().unwrap();
        assert!(to("faults") <= 3 && to("messages") <= 20, "{summary}");
        assert_eq!(summary["without_mutant"], "without the planted bug nothing fails");
        let quiet = staticfire(&["run", summary["file"].as_str().unwrap()]);
        let told = text(&quiet.stdout);
        assert_eq!(quiet.status.code(), Some(15), "{told}");
        assert!(told.contains(&format!("note: the file is for a planted bug: run it with --mutant {name}")), "{told}");
    }
}
