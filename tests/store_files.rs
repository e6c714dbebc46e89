//! `staticfire store check` and `store dump` through the built binary.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the test stands outside every host")]

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// The golden stores; `None`, with a note, if nobody says where they are.
fn golden() -> Option<PathBuf> {
    let Ok(dir) = std::env::var("STATICFIRE_GOLDEN") else {
        println!("skipped: STATICFIRE_GOLDEN is not set");
        return None;
    };
    Some(PathBuf::from(dir).join("apache-5.3.3"))
}

fn store(arguments: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_staticfire"));
    command.arg("store").args(arguments).arg(dir).output().expect("the binary was built")
}

fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    out(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A copy that can be changed.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => std::fs::write(target, std::fs::read(entry.path()).unwrap()).unwrap(),
        }
    }
}

#[test]
fn nothing_is_wrong_with_the_golden_stores() {
    let Some(golden) = golden() else { return };
    let clean = store(&["check"], &golden.join("clean-exit/store"));
    assert_eq!(clean.status.code(), Some(0), "{}", out(&clean));
    assert!(out(&clean).ends_with("nothing is wrong\n") && !out(&clean).contains("cleanly"), "{}", out(&clean));
    let found: Value =
        serde_json::from_str(out(&store(&["check", "--json"], &golden.join("clean-exit/store")))).unwrap();
    assert!(found["index_entries"].as_u64() > Some(900), "{found}");
    let killed = store(&["check"], &golden.join("killed/store"));
    assert_eq!(killed.status.code(), Some(0), "{}", out(&killed));
    assert!(out(&killed).contains("it was not closed cleanly"), "{}", out(&killed));
}

#[test]
fn a_damage_is_named_with_its_file_and_place() {
    let Some(golden) = golden() else { return };
    let dir = tempfile::tempdir().unwrap();
    copy(&golden.join("clean-exit/store"), dir.path());
    let file = dir.path().join("consumequeue/GoldTopic/1/00000000000000000000");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[27] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let output = store(&["check"], dir.path());
    assert_eq!(output.status.code(), Some(10));
    assert!(out(&output).starts_with("consumequeue/GoldTopic/1/00000000000000000000 at 20: entry 1 points at "));
    let found: Value = serde_json::from_str(out(&store(&["check", "--json"], dir.path()))).unwrap();
    assert_eq!((&found["count"], &found["findings"][0]["at"]), (&1.into(), &20.into()));
}

#[test]
fn records_are_those_that_were_sent() {
    let Some(golden) = golden() else { return };
    let dir = golden.join("clean-exit/store");
    let expected = std::fs::read_to_string(golden.join("clean-exit/expected.jsonl")).unwrap();
    let expected = expected.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let sent = expected.filter(|line| line["event"] == "sent" && line["topic"] == "GoldOrder");
    let mut sent: Vec<(u64, u64)> =
        sent.map(|line| (line["queueId"].as_u64().unwrap(), line["queueOffset"].as_u64().unwrap())).collect();
    sent.sort_unstable();
    assert!(!sent.is_empty());
    let dumped = lines(&store(&["dump", "--topic", "GoldOrder"], &dir));
    let mut places: Vec<(u64, u64)> =
        dumped.iter().map(|line| (line["queueId"].as_u64().unwrap(), line["queueOffset"].as_u64().unwrap())).collect();
    places.sort_unstable();
    assert_eq!(places, sent);
    let times: Vec<u64> = dumped.iter().map(|line| line["storeTimestamp"].as_u64().unwrap()).collect();
    let stored = format!("{}..{}", times[1], times[1] + 1);
    let at_once = lines(&store(&["dump", "--topic", "GoldOrder", "--stored", &stored], &dir));
    assert_eq!(at_once.len(), times.iter().filter(|time| **time == times[1]).count());
    let some = lines(&store(&["dump", "--topic", "GoldOrder", "--queue", "2", "--offsets", "1..3", "--body"], &dir));
    let offsets: Vec<&Value> = some.iter().map(|line| &line["queueOffset"]).collect();
    assert_eq!(offsets, [1, 2]);
    assert!(some.iter().all(|line| line["body"].is_string() && line["queueId"] == 2), "{some:?}");
    assert_eq!(lines(&store(&["dump", "--limit", "7"], &dir)).len(), 7);
}

#[test]
fn what_is_no_store_or_in_use_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |output: &Output, what: &str| {
        let told = std::str::from_utf8(&output.stderr).unwrap();
        assert_eq!((output.status.code(), told.lines().count()), (Some(1), 1), "{told}");
        assert!(told.contains(what), "{told}");
    };
    refused(&store(&["check"], dir.path()), "holds no directory commitlog");
    refused(&store(&["dump"], &dir.path().join("none")), "none: No such file or directory");
    let root = dir.path().join("store");
    let config = dir.path().join("broker.conf");
    let text = format!(
        "storePathRootDir={}\nlistenPort=0\nmappedFileSizeCommitLog=1048576\nnamesrvAddr=127.0.0.1:1\n",
        root.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_staticfire"));
    command.arg("broker").arg("-c").arg(&config).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut broker = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(broker.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let while_open = store(&["check"], &root);
    broker.kill().unwrap();
    broker.wait().unwrap();
    refused(&while_open, "a broker has ");
    assert_eq!(store(&["check"], &root).status.code(), Some(0));
    for wrong in [&["dump", "--offsets", "9..3"][..], &["dump", "--queue", "x"], &["check", "--queue", "1"]] {
        assert_eq!(store(wrong, &root).status.code(), Some(2), "{wrong:?}");
    }
}

/// Directories that were moved to another disk are looked at like any other, and one whose disk is not there is named.
#[test]
fn links_to_directories_are_followed() {
    let Some(golden) = golden() else { return };
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    copy(&golden.join("clean-exit/store"), &root);
    let check = || out(&store(&["check", "--json"], &root)).to_owned();
    let dump = || out(&store(&["dump"], &root)).to_owned();
    let (checked, dumped) = (check(), dump());
    assert!(serde_json::from_str::<Value>(&checked).unwrap()["index_entries"].as_u64() > Some(900), "{checked}");
    let queue = "consumequeue/GoldTopic/1";
    for (number, place) in
        [queue, "consumequeue/GoldOrder", "consumequeue", "commitlog", "index", "config"].iter().enumerate()
    {
        let target = dir.path().join(format!("disk-{number}"));
        std::fs::rename(root.join(place), &target).unwrap();
        std::os::unix::fs::symlink(&target, root.join(place)).unwrap();
        assert!(check() == checked && dump() == dumped, "{place}: {}", check());
        let unmounted = target.with_extension("unmounted");
        std::fs::rename(&target, &unmounted).unwrap();
        let output = store(&["check"], &root);
        let told = std::str::from_utf8(&output.stderr).unwrap();
        assert_eq!((output.status.code(), told.lines().count()), (Some(1), 1), "{place}: {}{told}", out(&output));
        let what = format!("{place}, a symbolic link to {}: No such file or directory", target.display());
        assert!(told.contains(&what), "{told}");
        std::fs::rename(&unmounted, &target).unwrap();
    }
    // Damage behind a link has the name that it has in the store.
    let file = root.join(queue).join("00000000000000000000");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[27] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    assert!(out(&store(&["check"], &root)).starts_with(&format!("{queue}/00000000000000000000 at 20: ")));
}

/// `admin promote` looks at the end of a log only, and finds what a look at all of it does.
#[test]
fn promotion_says_where_the_log_of_a_slave_ends() {
    let Some(golden) = golden() else { return };
    for case in ["clean-exit/store", "killed/store"] {
        let dir = golden.join(case);
        let found: Value = serde_json::from_str(out(&store(&["check", "--json"], &dir))).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slave.conf");
        let text =
            format!("storePathRootDir={}\nbrokerRole=SLAVE\nbrokerId=1\nnamesrvAddr=127.0.0.1:1\n", dir.display());
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_staticfire"));
        let said = command.args(["admin", "promote", "-c"]).arg(&file).output().unwrap();
        let expected = format!("The log of slave 1 ends at {},", found["log"][1]);
        assert!(out(&said).contains(&expected), "{expected} {}", out(&said));
    }
}
