//! One seed in a process of its own.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::OnceLock,
};

use serde_json::Value;
use sim::verdict::Verdict;

use super::Problem;

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
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Problem::Other(format!("cannot start a process for seed {seed}: {error}")))?;
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
