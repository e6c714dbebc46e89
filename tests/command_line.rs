//! The command line: help, usage, and the errors of the servers, through the built binary.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the test stands outside every host")]

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

fn staticfire(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_staticfire")).args(arguments).output().expect("the binary was built")
}

/// What is said on standard error, which must be one line.
fn one_line(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "not one line: {text}");
    text
}

/// A broker that runs until it is dropped.
struct Running(Child);

impl Running {
    /// Starts a server with this configuration, and gives the address it listens on, which it tells after `says`.
    fn start(role: &str, config: &Path, says: &str) -> (Running, String) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_staticfire"))
            .arg(role)
            .arg("-c")
            .arg(config)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix(says).unwrap_or_else(|| panic!("{line}")).trim_end().to_owned();
        (Running(child), address)
    }

    fn broker(config: &Path) -> Running {
        let (running, address) = Running::start("broker", config, "broker listens on ");
        assert!(address.starts_with("127.0.0.1:"), "{address}");
        running
    }

    fn namesrv(config: &Path) -> (Running, String) {
        Running::start("namesrv", config, "name server listens on ")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it was killed");
    }
}

/// The machine's disk may be as full as it is.
const ANY_DISK: &str =
    "cleanFileForciblyEnable=false\ndiskMaxUsedSpaceRatio=100\nrocketmq.broker.diskSpaceWarningLevelRatio=1";

/// A configuration file with a store of its own.
fn config(folder: &Path, name: &str, more: &str) -> std::path::PathBuf {
    let file = folder.join(format!("{name}.conf"));
    let store = folder.join(name);
    let port = if more.contains("listenPort") { "" } else { "listenPort=0" };
    let text = format!(
        "storePathRootDir={}\n{port}\nmappedFileSizeCommitLog=1048576\nmaxHashSlotNum=1000\n\
         maxIndexNum=4000\nnamesrvAddr=127.0.0.1:1\n{more}\n{ANY_DISK}\n",
        store.display()
    );
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn every_command_has_an_example_in_its_help() {
    for command in [
        &["run"][..],
        &["explore"],
        &["shrink"],
        &["plan"],
        &["verify"],
        &["mutants"],
        &["bench"],
        &["store", "check"],
        &["store", "dump"],
        &["admin", "promote"],
        &["namesrv"],
        &["broker"],
    ] {
        let output = staticfire(&[command, &["--help"]].concat());
        assert!(output.status.success());
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.contains(&format!("  staticfire {}", command.join(" "))), "{command:?}: {help}");
    }
}

#[test]
fn wrong_usage_ends_with_2() {
    for arguments in [
        &["run"][..],
        &["run", "there-is-none.toml"],
        &["run", "x.toml", "--seeds", "9..3"],
        &["run", "scenarios/fast/broker-kill.toml", "--mutant", "no-such-bug"],
        &["run", "scenarios/fast/broker-kill.toml", "--seeds", "0..4", "--jobs", "0"],
        &["run", "scenarios/fast/broker-kill.toml", "--down", "2s"],
        &["run", "scenarios/fast/broker-kill.toml", "--style", "power-loss"],
        &["explore", "--seeds", "0..4", "--jobs", "0"],
        &["shrink", "scenarios/canary.toml", "--jobs", "0"],
        &["shrink", "scenarios/canary.toml", "--mutant", "no-such-bug"],
        &["shrink", "there-is-none.toml"],
        &["mutants", "--jobs", "0"],
        &["run", "/dev/zero"],
        &["fly"],
    ] {
        let output = staticfire(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn the_configuration_in_force_is_printed_and_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = config(folder.path(), "a", "brokerName=broker-x");
    let printed = staticfire(&["broker", "-c", file.to_str().unwrap(), "-n", "127.0.0.1:9876;127.0.0.1:9877", "-p"]);
    assert!(printed.status.success());
    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(text.contains("brokerName=broker-x\n"), "{text}");
    assert!(text.contains("namesrvAddr=127.0.0.1:9876;127.0.0.1:9877\n"), "{text}");
    let again = folder.path().join("again.conf");
    std::fs::write(&again, &text).unwrap();
    let again = staticfire(&["broker", "-c", again.to_str().unwrap(), "-p"]);
    assert_eq!(String::from_utf8(again.stdout).unwrap(), text);
}

/// Masters and slaves of the example, whose ports and those beside them differ.
#[test]
fn the_example_cluster_is_configured_for_one_machine() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/2m-2s-sync");
    let printed = |role: &str, name: &str| {
        let file = folder.join(name);
        let output = staticfire(&[role, "-c", file.to_str().unwrap(), "-p"]);
        assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let value = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("no {key}")).to_owned()
    };
    let mut ports = vec![value(&printed("namesrv", "namesrv.conf"), "listenPort").parse::<u16>().unwrap()];
    for (name, group, role, id) in [
        ("broker-a.conf", "broker-a", "SYNC_MASTER", "0"),
        ("broker-a-s.conf", "broker-a", "SLAVE", "1"),
        ("broker-b.conf", "broker-b", "SYNC_MASTER", "0"),
        ("broker-b-s.conf", "broker-b", "SLAVE", "1"),
    ] {
        let text = printed("broker", name);
        assert_eq!(
            [value(&text, "brokerName"), value(&text, "brokerRole"), value(&text, "brokerId")],
            [group, role, id]
        );
        let port = value(&text, "listenPort").parse::<u16>().unwrap();
        ports.extend([port - 2, port, port + 1]);
    }
    let count = ports.len();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), count);
}

#[test]
fn promotion_says_what_may_be_lost_and_changes_two_lines_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let slave = config(folder.path(), "slave", "brokerRole=SLAVE\nbrokerId=3");
    let file = slave.to_str().unwrap();
    let said = |arguments: &[&str]| staticfire(&[&["admin", "promote", "-c", file], arguments].concat());
    {
        let _running = Running::broker(&slave);
        let line = one_line(&said(&["--yes"]));
        assert!(line.contains("a broker has ") && line.contains("stop it"), "{line}");
    }
    let before = std::fs::read_to_string(&slave).unwrap();
    let output = said(&[]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["nobody knows whether the master", "holds no message at all", "is lost", "Nothing was changed"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(std::fs::read_to_string(&slave).unwrap(), before);
    let output = said(&["--yes"]);
    assert!(output.status.success(), "{output:?}");
    let changed = before.replace("brokerRole=SLAVE\nbrokerId=3", "brokerRole=ASYNC_MASTER\nbrokerId=0");
    assert_eq!(std::fs::read_to_string(&slave).unwrap(), changed);
    drop(Running::broker(&slave));
    assert!(one_line(&said(&[])).contains("brokerRole is ASYNC_MASTER already"));
}

#[test]
fn promotion_is_refused_while_the_master_answers() {
    let folder = tempfile::tempdir().unwrap();
    let names = folder.path().join("namesrv.conf");
    let kv = folder.path().join("kv.json");
    std::fs::write(&names, format!("listenPort=0\nkvConfigPath={}\n", kv.display())).unwrap();
    let (_names, namesrv) = Running::namesrv(&names);
    let master = config(folder.path(), "master", &format!("namesrvAddr={namesrv}"));
    let slave = config(folder.path(), "slave", &format!("namesrvAddr={namesrv}\nbrokerRole=SLAVE\nbrokerId=1"));
    std::fs::create_dir(folder.path().join("slave")).unwrap();
    let ask = || staticfire(&["admin", "promote", "-c", slave.to_str().unwrap(), "-n", &namesrv]);
    let running = Running::broker(&master);
    let mut told = String::new();
    for _ in 0..200 {
        told = String::from_utf8(ask().stderr).unwrap();
        if told.contains("has a master") {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(told.contains("the group broker-a has a master, which answers at 127.0.0.1:"), "{told}");
    drop(running);
    let said = String::from_utf8(ask().stdout).unwrap();
    assert!(said.contains("No master of broker-a is registered.") || said.contains("does not answer"), "{said}");
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest() {
    let folder = tempfile::tempdir().unwrap();
    let file = config(folder.path(), "a", "brokrName=x");
    let output = staticfire(&["broker", "-c", file.to_str().unwrap()]);
    assert!(!output.status.success());
    let line = one_line(&output);
    assert!(line.contains("a.conf:7: unknown key `brokrName`; did you mean `brokerName`?"), "{line}");
}

#[test]
fn a_port_in_use_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let file = config(folder.path(), "a", &format!("listenPort={port}"));
    let output = staticfire(&["broker", "-c", file.to_str().unwrap()]);
    assert!(!output.status.success());
    let line = one_line(&output);
    assert!(line.contains(&format!("127.0.0.1:{port}")), "{line}");
}

#[test]
fn an_unreadable_store_directory_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = config(folder.path(), "a", "");
    std::fs::write(folder.path().join("a"), "a file is in the way").unwrap();
    let output = staticfire(&["broker", "-c", file.to_str().unwrap()]);
    assert!(!output.status.success());
    let line = one_line(&output);
    assert!(line.contains(folder.path().join("a").to_str().unwrap()), "{line}");
}

#[test]
fn a_second_broker_on_a_store_is_refused_and_touches_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = config(folder.path(), "a", "");
    let first = Running::broker(&file);
    let store = folder.path().join("a");
    // The first broker still writes its tables when it begins to listen.
    let mut before = listing(&store);
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = listing(&store);
        if now == before && now.iter().any(|(name, _)| name.ends_with("topics.json")) {
            break;
        }
        before = now;
    }
    let output = staticfire(&["broker", "-c", file.to_str().unwrap()]);
    assert!(!output.status.success());
    let line = one_line(&output);
    assert!(line.contains("is in use by another broker"), "{line}");
    assert_eq!(listing(&store), before);
    drop(first);
}

/// The binary with its standard output on a full disk.
fn on_a_full_disk(arguments: &[&str]) -> Command {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("this machine has one");
    let mut command = Command::new(env!("CARGO_BIN_EXE_staticfire"));
    command.args(arguments).stdout(full);
    command
}

/// A scenario that takes a moment.
fn scenario(folder: &Path) -> String {
    let file = folder.join("small.toml");
    let text = "format = 1\nactive = \"2s\"\nsettle = \"60s\"\n[[broker]]\nname = \"broker-a\"\n\
        config = { mappedFileSizeCommitLog = \"256KiB\", transactionCheckMax = 3 }\n[[topic]]\nname = \"orders\"\n\
        [[producer]]\ngroup = \"checkout\"\ntopic = \"orders\"\nrate = \"5/s\"\n\
        [[consumer]]\ngroup = \"billing\"\nsubscribe = \"orders\"\n";
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[test]
fn an_output_that_cannot_be_written_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario(folder.path());
    for arguments in [
        &["run", &file][..],
        &["run", &file, "--json"],
        &["run", &file, "--seeds", "0..2"],
        &["plan", &file],
        &["verify", &file],
        &["broker", "-p"],
        &["namesrv", "-p"],
    ] {
        let output = on_a_full_disk(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        let mut lines = told.lines().filter(|line| !line.contains("warning: "));
        assert!(lines.next().is_some_and(|line| line.contains("cannot write standard output: ")), "{told}");
        assert_eq!(lines.next(), None);
    }
}

#[test]
fn a_pipe_that_nobody_reads_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_staticfire"));
    let mut child =
        command.args(["run", &scenario(folder.path())]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    // Judged as if somebody read it.
    assert_eq!(output.status.code(), staticfire(&["run", &scenario(folder.path())]).status.code());
    assert!(one_line(&output).contains("transactionCheckMax"));
}

#[test]
fn a_broker_serves_although_none_of_its_lines_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = config(folder.path(), "a", &format!("listenPort={port}\ntransactionCheckMax=3"));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = on_a_full_disk(&["broker", "-vv", "-c", file.to_str().unwrap()]);
    let mut broker = Running(command.stderr(full).spawn().unwrap());
    let answers = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    let tries = (0..200).find(|_| {
        std::thread::sleep(Duration::from_millis(100));
        answers()
    });
    assert!(tries.is_some(), "it does not listen");
    // Time for lines that it cannot write.
    std::thread::sleep(Duration::from_millis(500));
    assert!(answers() && broker.0.try_wait().unwrap().is_none(), "it died");
}

#[test]
fn a_key_without_effect_in_a_scenario_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let output = staticfire(&["plan", &scenario(folder.path())]);
    assert!(output.status.success());
    let told = one_line(&output);
    assert!(told.contains("small.toml:6:48: `transactionCheckMax` has no effect here"), "{told}");
}

#[test]
fn a_scenario_with_nothing_but_defaults_runs_in_a_child() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario(folder.path());
    let text = std::fs::read_to_string(&file).unwrap();
    let config = text.lines().find(|line| line.starts_with("config")).unwrap();
    std::fs::write(&file, text.replace(config, "")).unwrap();
    let output = staticfire(&["run", &file, "--seeds", "0..1", "--json", "--jobs", "1000000000"]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("\"scenario\":\"small\"") && !told.contains("\"liveness\""), "{told}");
}

#[test]
fn files_without_end_and_files_that_are_no_text_are_refused() {
    let output = staticfire(&["broker", "-c", "/dev/zero"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(one_line(&output).contains("/dev/zero has more than 1024 KiB"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.toml");
    std::fs::write(&file, b"format = 1\nabout = \"\xff\"\n").unwrap();
    let output = staticfire(&["run", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(one_line(&output).contains("x.toml:2: not UTF-8: byte 0xff at offset 20"));
}

#[test]
fn a_name_of_a_hundred_kilobytes_is_told_in_one_short_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario(folder.path());
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("checkout", &"x".repeat(100_000))).unwrap();
    let output = staticfire(&["run", &file]);
    assert_eq!(output.status.code(), Some(2));
    assert!(one_line(&output).len() < 500);
}

/// Names and sizes of all files below a folder.
fn listing(folder: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else {
                found.push((entry.path().display().to_string(), entry.metadata().unwrap().len()));
            }
        }
    }
    found.sort();
    found
}
