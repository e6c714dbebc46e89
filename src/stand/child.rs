//! One seed in a process of its own.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::{OnceLock, mpsc},
    thread,
    time::Duration,
};

use serde_json::Value;
use sim::verdict::Verdict;

use super::Problem;

/// The most real time that one seed may take.
const REAL_TIME_MAX: Duration = Duration::from_secs(300);

/// What one child came to.
pub struct Ran {
    /// The seed.
    pub seed: u64,
    /// Its verdict.
    pub verdict: Verdict,
    /// Its result, as `run --json` prints it; `Null` if it died before.
    pub result: Value,
    /// What it wrote to standard error, if it died.
    pub noise: String,
}

/// Runs one seed in a child. `change` may add arguments and change the environment.
///
/// A child that ends without a result has died: that counts as a panic.
pub fn run(file: &Path, seed: u64, change: impl FnOnce(&mut Command)) -> Result<Ran, Problem> {
    let exe = std::env::current_exe().map_err(|error| Problem::Other(format!("cannot find this program: {error}")))?;
    let mut command = Command::new(exe);
    command.arg("run").arg(file).arg("--seed").arg(seed.to_string()).arg("--json");
    change(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let cannot = |error: std::io::Error| Problem::Other(format!("cannot run a process for seed {seed}: {error}"));
    let child = command.spawn().map_err(cannot)?;
    let guard = Guard::of(&child);
    let output = child.wait_with_output().map_err(cannot)?;
    if guard.has_killed() {
        let noise = format!("killed after {} s of real time", REAL_TIME_MAX.as_secs());
        return Ok(Ran { seed, verdict: Verdict::Limit, result: Value::Null, noise });
    }
    let noise = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(i32::from(crate::EXIT_USAGE)) {
        return Err(Problem::Scenario(noise));
    }
    let result = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let verdict = match &result {
        Value::Null => Verdict::Panic,
        _ => output.status.code().and_then(Verdict::from_exit_code).unwrap_or(Verdict::Panic),
    };
    Ok(Ran { seed, verdict, result, noise })
}

/// Kills a child that takes too long, from a thread of its own.
struct Guard {
    done: mpsc::Sender<()>,
    killed: thread::JoinHandle<bool>,
}

impl Guard {
    fn of(child: &std::process::Child) -> Guard {
        let (done, waits) = mpsc::channel();
        let id = child.id();
        let killed = thread::spawn(move || {
            let late = waits.recv_timeout(REAL_TIME_MAX) == Err(mpsc::RecvTimeoutError::Timeout);
            late && Command::new("kill").args(["-9", &id.to_string()]).status().is_ok_and(|status| status.success())
        });
        Guard { done, killed }
    }

    /// To be asked once, when the child has ended.
    fn has_killed(self) -> bool {
        // The thread has ended if nobody listens any more.
        drop(self.done);
        self.killed.join().unwrap_or(false)
    }
}

impl Ran {
    /// A field of the result as text.
    pub fn text(&self, field: &str) -> &str {
        self.result.get(field).and_then(Value::as_str).unwrap_or("")
    }

    /// A field of the result as a number.
    pub fn number(&self, field: &str) -> u64 {
        self.result.get(field).and_then(Value::as_u64).unwrap_or(0)
    }

    /// The texts of an array of the result.
    pub fn texts(&self, field: &str) -> Vec<&str> {
        self.result.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// What went wrong first, in one line.
    pub fn first_problem(&self) -> String {
        let problem = self.result.pointer("/problems/0/what").and_then(Value::as_str);
        problem.map_or_else(|| self.noise.lines().next().unwrap_or("died").to_owned(), str::to_owned)
    }
}

/// Names this build: a hash is comparable between runs of one build only.
pub fn build_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        let program = std::env::current_exe().and_then(fs::read);
        program.map_or_else(
            |_| "unknown".to_owned(),
            |bytes| format!("{:032x}", sim::history::digest(&bytes))[..12].to_owned(),
        )
    })
}
