//! The Java side: building it with Maven, and talking to it by lines (`conformance/src/main/java`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::SystemTime;

/// Java with the class path of Apache's client, tools and servers.
pub struct Java {
    class_path: String,
}

impl Java {
    /// Builds the driver once per test run. `None`, said on standard error, where Java or Maven is missing.
    pub fn find() -> Option<&'static Java> {
        static JAVA: OnceLock<Option<Java>> = OnceLock::new();
        let java = JAVA.get_or_init(|| match Java::build() {
            Ok(java) => Some(java),
            Err(reason) => {
                assert!(std::env::var_os("CI").is_none(), "in CI these tests must run: {reason}");
                eprintln!("skipped, Apache's client cannot run here: {reason}");
                None
            }
        });
        java.as_ref()
    }

    fn build() -> Result<Java, String> {
        for (program, argument) in [("java", "-version"), ("mvn", "-version")] {
            let found = Command::new(program).arg(argument).output();
            found.map_err(|error| format!("{program}: {error}"))?;
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance");
        let class_path = folder.join("target/classpath");
        if modified(&class_path) < modified(&folder.join("pom.xml")).max(newest(&folder.join("src"))) {
            let built = Command::new("mvn")
                .args(["-B", "-q", "compile", "dependency:build-classpath", "-Dmdep.outputFile=target/classpath"])
                .current_dir(&folder)
                .output()
                .map_err(|error| format!("mvn: {error}"))?;
            if !built.status.success() {
                return Err(format!("mvn: {}", String::from_utf8_lossy(&built.stdout)));
            }
        }
        let jars = std::fs::read_to_string(&class_path).map_err(|error| format!("target/classpath: {error}"))?;
        Ok(Java { class_path: format!("{}:{}", folder.join("target/classes").display(), jars.trim()) })
    }

    /// A command that runs `class` with its logs, and whatever else it writes home, below `folder`.
    pub fn command(&self, class: &str, folder: &Path) -> Command {
        let mut command = Command::new("java");
        command
            .args(["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &self.class_path])
            .arg("-Drocketmq.broker.diskSpaceWarningLevelRatio=1")
            .args(["user.home", "rocketmq.home.dir"].map(|key| format!("-D{key}={}", folder.display())))
            .arg(class)
            .current_dir(folder);
        command
    }
}

/// When the newest file below a folder was written.
fn newest(folder: &Path) -> SystemTime {
    let files = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    files
        .map(|path| if path.is_dir() { newest(&path) } else { modified(&path) })
        .max()
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// When a file was written; the beginning of time for a file that is not there.
fn modified(path: &Path) -> SystemTime {
    std::fs::metadata(path).and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// What the client was told about a message that it sent.
#[derive(Debug)]
pub struct Sent {
    pub key: String,
    pub queue: i32,
    pub offset: i64,
    pub id: String,
    /// Where the broker keeps it, as an id.
    pub offset_id: String,
}

/// A message as the listener of a consumer saw it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Got {
    pub queue: i32,
    pub offset: i64,
    pub key: String,
    pub body_bytes: usize,
    /// Java's hash of the bytes.
    pub body_hash: i32,
    pub tag: String,
    pub place: String,
    pub id: String,
}

/// One queue as the broker describes it; `committed` is -1 for a group that never committed.
#[derive(Debug, PartialEq, Eq)]
pub struct Offsets {
    pub committed: i64,
    pub min: i64,
    pub max: i64,
}

/// A running Java process that obeys one command at a time.
pub struct Driver {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Driver {
    pub fn start(java: &Java, namesrv: &str, folder: &Path) -> Driver {
        let log = std::fs::File::create(folder.join("driver.log")).unwrap();
        let mut process = java
            .command("staticfire.Driver", folder)
            .arg(namesrv)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let (commands, answers) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut driver = Driver { process, commands, answers };
        driver.answer().unwrap_or_else(|reason| panic!("the driver did not start: {reason}"));
        driver
    }

    /// Runs one command that must succeed; its answer, line by line.
    pub fn run(&mut self, command: &str) -> Vec<String> {
        self.try_run(command).unwrap_or_else(|reason| panic!("{command}: {reason}"))
    }

    pub fn send(&mut self, topic: &str, how: &str, prefix: &str, count: usize, body_bytes: usize) -> Vec<Sent> {
        let answer = self.run(&format!("send {topic} {how} {prefix} {count} {body_bytes}"));
        answer.iter().map(|line| parse_sent(&line.split(' ').collect::<Vec<_>>())).collect()
    }

    /// Sends one message after the other until one fails. As soon as `count` are acknowledged, `end_broker` runs once,
    /// while the client goes on sending. What was acknowledged.
    pub fn send_until_it_fails(
        &mut self,
        topic: &str,
        prefix: &str,
        count: usize,
        end_broker: impl FnOnce(),
    ) -> Vec<Sent> {
        let more_than_are_sent = 100 * count;
        writeln!(self.commands, "send {topic} sync {prefix} {more_than_are_sent} 300").unwrap();
        let mut sent = Vec::new();
        let mut end_broker = Some(end_broker);
        loop {
            let line = self.line().unwrap_or_else(|| panic!("the driver ended after {sent:?}"));
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["failed", ..] if end_broker.is_none() => return sent,
                ["failed" | "done", ..] => panic!("{line} after {} messages", sent.len()),
                ref words => sent.push(parse_sent(words)),
            }
            if sent.len() == count {
                end_broker.take().expect("the count is reached once")();
            }
        }
    }

    pub fn received(&mut self, member: &str) -> Vec<Got> {
        let answer = self.run(&format!("received {member}"));
        answer.iter().map(|line| parse_got(&line.split(' ').collect::<Vec<_>>())).collect()
    }

    pub fn queues(&mut self, member: &str) -> BTreeSet<String> {
        self.run(&format!("queues {member}")).into_iter().collect()
    }

    pub fn offsets(&mut self, group: &str, topic: &str) -> BTreeMap<i32, Offsets> {
        self.try_offsets(group, topic).unwrap_or_else(|| panic!("no offsets of {group} in {topic}"))
    }

    /// `None` while the broker or the route to it is away.
    pub fn try_offsets(&mut self, group: &str, topic: &str) -> Option<BTreeMap<i32, Offsets>> {
        let answer = self.try_run(&format!("offsets {group} {topic}")).ok()?;
        Some(answer.iter().map(|line| parse_offsets(&line.split(' ').collect::<Vec<_>>())).collect())
    }

    /// What a command of `mqadmin` printed.
    pub fn mqadmin(&mut self, arguments: &str) -> String {
        let printed = self.run(&format!("mqadmin {arguments}"));
        printed.iter().map(|line| line.strip_prefix("printed ").unwrap_or("")).collect::<Vec<_>>().join("\n")
    }

    pub fn try_run(&mut self, command: &str) -> Result<Vec<String>, String> {
        writeln!(self.commands, "{command}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        loop {
            let Some(line) = self.line() else { return Err(format!("the driver ended after {lines:?}")) };
            match line.strip_prefix("failed ") {
                Some(reason) => return Err(reason.to_owned()),
                None if line == "done" => return Ok(lines),
                None => lines.push(line),
            }
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.answers.read_line(&mut line).unwrap() > 0).then(|| line.trim_end().to_owned())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It holds nothing worth a clean end, and its servers may be gone already. Reaped, whatever the answer was.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn parse_sent(words: &[&str]) -> Sent {
    let &["sent", key, queue, offset, id, offset_id] = words else { panic!("not acknowledged: {words:?}") };
    let (queue, offset) = (queue.parse().unwrap(), offset.parse().unwrap());
    Sent { key: key.into(), queue, offset, id: id.into(), offset_id: offset_id.into() }
}

fn parse_got(words: &[&str]) -> Got {
    let &["got", key, queue, offset, body_bytes, body_hash, tag, place, id] = words else {
        panic!("not a message: {words:?}")
    };
    Got {
        key: key.into(),
        queue: queue.parse().unwrap(),
        offset: offset.parse().unwrap(),
        body_bytes: body_bytes.parse().unwrap(),
        body_hash: body_hash.parse().unwrap(),
        tag: tag.into(),
        place: place.into(),
        id: id.into(),
    }
}

fn parse_offsets(words: &[&str]) -> (i32, Offsets) {
    let &["offset", queue, committed, min, max] = words else { panic!("not a queue: {words:?}") };
    let [committed, min, max] = [committed, min, max].map(|word| word.parse().unwrap());
    (queue.parse().unwrap(), Offsets { committed, min, max })
}
