//! One seed in a process of its own, within limits.

use std::{
    fs,
    io::{self, Read},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use sim::verdict::Verdict;

use super::Problem;

/// Pause between two looks at whether a child is to be ended.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// The signals by which a person ends a job: a child that died of one has failed at nothing.
const SIGNALS_TO_STOP: [i32; 2] = [2, 15];

/// What one child may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Real time.
    pub real_time: Duration,
    /// Address space, in bytes, much of which is only reserved: a log file of the default size takes 1 GiB of it. The child
    /// sets it for itself.
    pub memory_bytes: u64,
}

impl Default for Limits {
    /// Room for one long run. Exploration, which meets runs of every kind, has less patience.
    fn default() -> Limits {
        Limits { real_time: Duration::from_secs(300), memory_bytes: 16 << 30 }
    }
}

/// What one child came to.
pub struct Ran {
    /// The seed.
    pub seed: u64,
    /// Its verdict.
    pub verdict: Verdict,
    /// Its result, as `run --json` prints it; `Null` if it died before.
    pub result: Value,
    /// What it wrote to standard error, or why it was ended.
    pub noise: String,
}

/// Runs one seed in a child. `change` may add arguments and change the environment.
///
/// A child that ends without a result has died: that counts as a panic, or as a limit if it asked for too much.
pub fn run(file: &Path, seed: u64, change: impl FnOnce(&mut Command)) -> Result<Ran, Problem> {
    run_within(&Limits::default(), &AtomicBool::new(false), file, seed, change)
}

/// The same within these limits. Once `stop` is set the child is ended, which is [`Problem::Interrupted`].
pub fn run_within(
    limits: &Limits,
    stop: &AtomicBool,
    file: &Path,
    seed: u64,
    change: impl FnOnce(&mut Command),
) -> Result<Ran, Problem> {
    let exe = std::env::current_exe().map_err(|error| Problem::Other(format!("cannot find this program: {error}")))?;
    let mut command = Command::new(exe);
    command.arg("run").arg(file).arg("--seed").arg(seed.to_string()).arg("--json");
    command.arg("--memory").arg(format!("{}B", limits.memory_bytes)).arg("--build").arg(build_id());
    change(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let cannot = |error: io::Error| Problem::Other(format!("cannot run a process for seed {seed}: {error}"));
    let ended = Ended::of(command.spawn().map_err(cannot)?, limits.real_time, stop).map_err(cannot)?;
    if ended.status.signal().is_some_and(|signal| SIGNALS_TO_STOP.contains(&signal)) || ended.by == Some(By::Stop) {
        return Err(Problem::Interrupted);
    }
    if ended.by == Some(By::Clock) {
        let noise = format!("ended after {} of real time", sim::scenario::units::print_time(limits.real_time));
        return Ok(Ran { seed, verdict: Verdict::Limit, result: Value::Null, noise });
    }
    let mut noise = String::from_utf8_lossy(&ended.errors).into_owned();
    if ended.status.code() == Some(i32::from(crate::EXIT_USAGE)) {
        return Err(Problem::Scenario(noise));
    }
    let result = serde_json::from_slice(&ended.output).unwrap_or(Value::Null);
    let verdict = match &result {
        Value::Null if is_out_of_memory(&noise) => {
            noise = format!("ended at its memory limit of {}", sim::scenario::units::print_size(limits.memory_bytes));
            Verdict::Limit
        }
        Value::Null => Verdict::Panic,
        _ => ended.status.code().and_then(Verdict::from_exit_code).unwrap_or(Verdict::Panic),
    };
    Ok(Ran { seed, verdict, result, noise })
}

/// Whether a process died because its allocator was refused memory, by the words of Rust's handler for that.
fn is_out_of_memory(noise: &str) -> bool {
    noise.lines().any(|line| line.starts_with("memory allocation of ") && line.ends_with(" bytes failed"))
}

/// Who ended a child that did not end by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Clock,
    Stop,
}

/// A child that is gone, with everything it wrote.
struct Ended {
    status: ExitStatus,
    by: Option<By>,
    output: Vec<u8>,
    errors: Vec<u8>,
}

impl Ended {
    /// Waits for a child while its pipes are read, and ends it when its time is over or `stop` is set.
    fn of(mut child: Child, real_time: Duration, stop: &AtomicBool) -> io::Result<Ended> {
        let begun = Instant::now();
        let (read, closed) = mpsc::channel();
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let output = thread::spawn(move || {
            let bytes = read_all(output);
            // Nobody listens any more once the child has been ended.
            let _ = read.send(());
            bytes
        });
        let errors = thread::spawn(move || read_all(errors));
        let mut by = None;
        // The pipe closes when the child has ended, however it ends.
        while closed.recv_timeout(LOOK_PAUSE.min(real_time)) == Err(mpsc::RecvTimeoutError::Timeout) {
            by = match stop.load(Ordering::Relaxed) {
                true => Some(By::Stop),
                false => (begun.elapsed() >= real_time).then_some(By::Clock),
            };
            if by.is_some() {
                child.kill()?;
                break;
            }
        }
        let status = child.wait()?;
        let joined = |thread: thread::JoinHandle<io::Result<Vec<u8>>>| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread that reads a pipe panicked")))
        };
        Ok(Ended { status, by, output: joined(output)?, errors: joined(errors)? })
    }
}

fn read_all(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
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
        problem.map_or_else(|| self.last_words(), str::to_owned)
    }

    /// What a child that died said: the line of its panic, else its first.
    pub fn last_words(&self) -> String {
        let line = self.noise.lines().find(|line| line.contains(PANICKED)).or_else(|| self.noise.lines().next());
        line.unwrap_or("died").to_owned()
    }

    /// Where the first panic was, as file and line: of a role, which the stand survives, or of the stand itself.
    pub fn panicked_at(&self) -> Option<&str> {
        self.places_of_panics().first().copied()
    }

    /// The places of all panics, in the order in which they came.
    pub fn places_of_panics(&self) -> Vec<&str> {
        let places = self.noise.split(PANICKED).skip(1).map(|rest| {
            let place = rest.lines().next().unwrap_or_default().trim_end_matches(':');
            // The column is of no use to a reader.
            place.rsplit_once(':').map_or(place, |(line, _)| line)
        });
        places.collect()
    }
}

/// What stands before the place in the message of Rust's panic hook.
const PANICKED: &str = "panicked at ";

/// Asks a child for a planted bug, if there is one to be.
pub fn switch_on(command: &mut Command, mutant: Option<&str>) {
    command.args(mutant.into_iter().flat_map(|name| ["--mutant", name]));
}

/// The name of this build, once it is known.
static BUILD_ID: OnceLock<String> = OnceLock::new();

/// Names this build: a hash is comparable between runs of one build only.
pub fn build_id() -> &'static str {
    BUILD_ID.get_or_init(|| {
        let program = std::env::current_exe().and_then(fs::read);
        program.map_or_else(|_| "unknown".to_owned(), |bytes| short_digest(&bytes))
    })
}

/// Takes over the name that the parent of this process has found out: to read the whole program again would take longer
/// than most runs.
pub fn set_build_id(id: String) {
    // Whoever asked before got the same name.
    let _ = BUILD_ID.set(id);
}

/// Twelve hexadecimal digits that identify some bytes.
pub fn short_digest(bytes: &[u8]) -> String {
    format!("{:032x}", sim::history::digest(bytes))[..12].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(noise: &str) -> Ran {
        Ran { seed: 1, verdict: Verdict::Panic, result: Value::Null, noise: noise.to_owned() }
    }

    #[test]
    fn the_place_of_a_panic_is_read_from_what_the_hook_printed() {
        let died = ran("\nthread 'stand' (12) panicked at store/src/put.rs:31:9:\nassertion failed\nnote: run with");
        assert_eq!(died.panicked_at(), Some("store/src/put.rs:31"));
        assert_eq!(died.last_words(), "thread 'stand' (12) panicked at store/src/put.rs:31:9:");
        assert_eq!(ran("").panicked_at(), None);
        assert_eq!(ran("").last_words(), "died");
    }

    #[test]
    fn a_process_that_was_refused_memory_is_told_from_one_that_panicked() {
        assert!(is_out_of_memory("memory allocation of 4096 bytes failed\n"));
        assert!(!is_out_of_memory("thread 'stand' panicked at x.rs:1:1:\nmemory is low"));
    }
}
