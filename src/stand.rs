//! Commands of the stand: run scenarios, print plans, prove replay.

mod bench;
mod child;
mod crash;
mod explore;
mod many;
mod mutants;
mod pool;
mod report;
mod shrink;
mod verify;

use std::{
    fs,
    io::{BufWriter, IsTerminal as _, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use clap::{Args, Subcommand};
use miette::GraphicalReportHandler;
use sim::{
    plan::Plan,
    run::RunOptions,
    scenario::{Scenario, units},
    verdict::{Verdict, judge},
};

use crate::{
    EXIT_FAILED, EXIT_USAGE, complain, complain_text, files, logs,
    output::{self, Unwritten, warn_line},
};

/// The most bytes of a scenario file. A plan of as many messages as a scenario may have takes a third of it.
const SCENARIO_MAX_BYTES: u64 = 16 << 20;

/// The longest line of a scenario of which the place is drawn; of a longer one it is only named.
const DRAWN_LINE_MAX: usize = 400;

/// Commands that need the simulator.
#[derive(Subcommand)]
pub enum StandCommand {
    /// Run a scenario: one seed, or many
    #[command(after_help = "Examples:\n  \
        staticfire run scenarios/fast/power-loss-sync-flush.toml --seed 7\n  \
        staticfire run scenarios/fast/broker-kill.toml --seeds 0..200 --jobs 2\n  \
        staticfire run scenarios/fast/every-poll.toml --crash-at-every-poll broker-a/0 --style power-loss --jobs 2")]
    Run(Box<RunArguments>),
    /// Run seed after seed of many scenarios, and group what fails
    #[command(after_help = "Examples:\n  \
        staticfire explore --seeds 0..200\n  \
        staticfire explore --scenarios 'scenarios/fast/*.toml' --budget 10m --out results.jsonl")]
    Explore(explore::ExploreArguments),
    /// Turn a seed that fails into a small scenario that fails in the same way
    #[command(after_help = "Examples:\n  \
        staticfire shrink scenarios/canary.toml --seed 3\n  \
        staticfire shrink scenarios/canary.toml --seed 3 --budget 10m --out found")]
    Shrink(shrink::ShrinkArguments),
    /// Print the plan of a seed: a scenario file that spells every message and fault out
    #[command(after_help = "Example:\n  staticfire plan scenarios/fast/broker-kill.toml --seed 7 > plan.toml")]
    Plan(PlanArguments),
    /// Prove that a seed replays: run it in two processes and compare
    #[command(after_help = "Example:\n  staticfire verify scenarios/fast/broker-kill.toml --seeds 0..20")]
    Verify(VerifyArguments),
    /// Run the planted bugs, each of which must be caught (needs a build with --features mutants)
    #[command(hide = !cfg!(feature = "mutants"))]
    #[command(after_help = "Example:\n  staticfire mutants scenarios/mutants")]
    Mutants(MutantsArguments),
}

/// Arguments of `staticfire run`.
#[derive(Args)]
pub struct RunArguments {
    /// The scenario
    file: PathBuf,
    /// The seed; counts more than the one in the file
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Many seeds, each in a process of its own: first..end, without the end
    #[arg(long, value_name = "A..B", value_parser = parse_seeds, group = "many")]
    seeds: Option<std::ops::Range<u64>>,
    /// How many processes at a time
    #[arg(long, default_value_t = 1, value_parser = parse_jobs, requires = "many")]
    jobs: usize,
    #[command(flatten)]
    crash: crash::CrashArguments,
    /// Print one JSON object instead of a report
    #[arg(long)]
    json: bool,
    /// Write the history, one JSON object a line
    #[arg(long, value_name = "FILE", conflicts_with = "many")]
    history: Option<PathBuf>,
    /// Switch on a planted bug (needs a build with --features mutants)
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Another order of tasks: replaces the seed of the scheduler, and nothing else
    #[arg(long, value_name = "SEED", conflicts_with = "seeds")]
    sched: Option<u64>,
    /// The most address space that this process may use; set for children of other commands
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, hide = true, conflicts_with = "seeds")]
    memory: Option<u64>,
    /// The name of this build; told to children of other commands, so that they need not find it out
    #[arg(long, value_name = "ID", hide = true, requires = "memory")]
    build: Option<String>,
    /// Show log lines; may be repeated
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Arguments of `staticfire plan`.
#[derive(Args)]
pub struct PlanArguments {
    /// The scenario
    file: PathBuf,
    /// The seed; counts more than the one in the file
    #[arg(long)]
    seed: Option<u64>,
}

/// Arguments of `staticfire verify`.
#[derive(Args)]
pub struct VerifyArguments {
    /// The scenario
    file: PathBuf,
    /// The seed
    #[arg(long, default_value_t = 1, conflicts_with = "seeds")]
    seed: u64,
    /// Many seeds: first..end, without the end
    #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
    seeds: Option<std::ops::Range<u64>>,
    /// Print one JSON object for each seed
    #[arg(long)]
    json: bool,
}

/// Arguments of `staticfire mutants`.
#[derive(Args)]
pub struct MutantsArguments {
    /// The folder with one scenario for each planted bug
    #[arg(default_value = "scenarios/mutants")]
    folder: PathBuf,
    /// How many processes at a time
    #[arg(long, default_value_t = 1, value_parser = parse_jobs)]
    jobs: usize,
}

/// Arguments of `staticfire bench`.
#[derive(Args)]
pub struct BenchArguments {
    /// The scenario
    #[arg(default_value = "scenarios/bench/reference.toml")]
    file: PathBuf,
    /// How many runs, each in a process of its own; the median counts
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

/// Runs a command of the stand.
pub fn main(command: StandCommand) -> ExitCode {
    let result = match command {
        StandCommand::Run(arguments) if arguments.seeds.is_some() => many::run(&arguments),
        StandCommand::Run(arguments) => match &arguments.crash.crash_at_every_poll {
            Some(node) => crash::at_every_poll(&arguments, node),
            None => run_one(&arguments),
        },
        StandCommand::Explore(arguments) => explore::explore(&arguments),
        StandCommand::Shrink(arguments) => shrink::shrink(&arguments),
        StandCommand::Plan(arguments) => print_plan(&arguments),
        StandCommand::Verify(arguments) => verify::verify(&arguments),
        StandCommand::Mutants(arguments) => mutants::mutants(&arguments),
    };
    told(result)
}

/// Measures simulated against real time.
pub fn bench(arguments: &BenchArguments) -> ExitCode {
    told(bench::bench(arguments))
}

fn told(result: Result<Verdict, Problem>) -> ExitCode {
    match result {
        Ok(verdict) => ExitCode::from(verdict.exit_code()),
        Err(Problem::Scenario(shown)) => {
            output::complain(shown);
            ExitCode::from(EXIT_USAGE)
        }
        Err(Problem::Unwritten(error)) => {
            complain(&error);
            ExitCode::from(EXIT_FAILED)
        }
        Err(Problem::Other(text)) => {
            complain_text(&text);
            ExitCode::from(EXIT_USAGE)
        }
        Err(Problem::Blind(text)) => {
            complain_text(&text);
            ExitCode::from(Verdict::Opportunity.exit_code())
        }
        Err(Problem::Interrupted) => ExitCode::from(EXIT_INTERRUPTED),
    }
}

/// The exit code of a process that a person ended, as shells give it.
const EXIT_INTERRUPTED: u8 = 130;

/// Why a command could not be carried out.
pub enum Problem {
    /// The scenario is wrong; the diagnostic as it is shown.
    Scenario(String),
    /// Something else, in one line.
    Other(String),
    /// The job cannot find anything; why, in one line.
    Blind(String),
    /// Someone ended it.
    Interrupted,
    /// What it found out cannot be told.
    Unwritten(Unwritten),
}

impl From<Unwritten> for Problem {
    fn from(error: Unwritten) -> Problem {
        Problem::Unwritten(error)
    }
}

/// Reads a scenario file, and warns of what it holds without effect.
pub fn read_scenario(path: &Path) -> Result<Scenario, Problem> {
    let scenario = parse_scenario(path)?;
    for warning in &scenario.warnings {
        warn_line!("warning: {warning}");
    }
    Ok(scenario)
}

fn parse_scenario(path: &Path) -> Result<Scenario, Problem> {
    let shown = path.display().to_string();
    let text = files::read_text(path, SCENARIO_MAX_BYTES).map_err(Problem::Other)?;
    Scenario::parse(&shown, &text).map_err(|error| {
        let (line, _) = error.position();
        if text.lines().nth(line - 1).is_some_and(|line| line.len() > DRAWN_LINE_MAX) {
            return Problem::Other(error.one_line());
        }
        let mut diagnostic = String::new();
        let handler = match std::io::stderr().is_terminal() {
            true => GraphicalReportHandler::new(),
            false => GraphicalReportHandler::new_themed(miette::GraphicalTheme::unicode_nocolor()),
        };
        match handler.render_report(&mut diagnostic, &error) {
            Ok(()) => Problem::Scenario(diagnostic),
            Err(_) => Problem::Other(error.one_line()),
        }
    })
}

fn run_one(arguments: &RunArguments) -> Result<Verdict, Problem> {
    let started = Instant::now();
    if let Some(bytes) = arguments.memory {
        let wrong = |error| Problem::Other(format!("cannot limit the address space to {bytes} bytes: {error}"));
        host::real::limit_address_space(bytes).map_err(wrong)?;
        panic_without_backtrace();
    }
    if let Some(id) = &arguments.build {
        child::set_build_id(id.clone());
    }
    check_mutant(arguments.mutant.as_ref())?;
    // The parent of a child has warned already.
    let is_child = arguments.memory.is_some();
    let mut scenario = if is_child { parse_scenario(&arguments.file)? } else { read_scenario(&arguments.file)? };
    arguments.crash.apply(&mut scenario)?;
    let mut plan = Plan::draw(scenario, arguments.seed);
    if let Some(sched) = arguments.sched {
        plan.seeds.sched = sim::seed::Seed(sched);
        plan.scenario.seeds.sched = Some(sched);
    }
    let history: Option<Box<dyn Write + Send>> = match &arguments.history {
        None => None,
        Some(path) => {
            let file = fs::File::create(path).map_err(|error| cannot("write", path, &error))?;
            Some(Box::new(BufWriter::new(file)))
        }
    };
    logs::of_run(arguments.verbose);
    let options = RunOptions { mutant: arguments.mutant.clone(), history };
    let finished = sim::run::run(plan.clone(), options).map_err(|error| {
        let path = arguments.history.as_deref().unwrap_or(Path::new("the history"));
        cannot("write", path, &error)
    })?;
    let judgement = judge(&plan.scenario, &finished);
    let shown = report::Shown {
        file: &arguments.file,
        plan: &plan,
        mutant: arguments.mutant.as_deref(),
        more: arguments.crash.repeat(),
        run: &finished,
        judgement: &judgement,
        real: started.elapsed(),
    };
    if arguments.json {
        output::line(shown.json())?;
    } else {
        let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        output::print(shown.text(colours))?;
    }
    Ok(judgement.verdict)
}

/// A panic tells its place and its message, and nothing else. To print a backtrace takes a lock and much memory: where
/// that is short the process would try to tell of this inside, and wait for the lock for ever.
fn panic_without_backtrace() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let (name, message) = (thread.name().unwrap_or("unnamed"), panic.payload_as_str().unwrap_or("not a text"));
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        output::complain(format_args!("thread '{name}' panicked at {place}:\n{message}\n"));
    }));
}

fn print_plan(arguments: &PlanArguments) -> Result<Verdict, Problem> {
    output::print(Plan::draw(read_scenario(&arguments.file)?, arguments.seed).print())?;
    Ok(Verdict::Pass)
}

fn check_mutant(mutant: Option<&String>) -> Result<(), Problem> {
    match mutant {
        Some(_) if !cfg!(feature = "mutants") => {
            Err(Problem::Other("planted bugs need a build with `--features mutants`".to_owned()))
        }
        Some(name) if !mutants::MUTANTS.contains(&name.as_str()) => {
            Err(Problem::Other(format!("unknown planted bug `{name}`: there are {}", mutants::MUTANTS.join(", "))))
        }
        _ => Ok(()),
    }
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Problem {
    Problem::Other(format!("cannot {what} {}: {error}", path.display()))
}

/// How many processes at a time. More than there is to do, or than [`pool::WORKERS_MAX`], are never started.
fn parse_jobs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("0 processes at a time would never do anything".to_owned()),
        Ok(jobs) => Ok(jobs),
        Err(_) => Err(format!("`{text}` is not a number of processes")),
    }
}

fn parse_seeds(text: &str) -> Result<std::ops::Range<u64>, String> {
    let wrong = || format!("`{text}` is not a range of seeds: write first..end, as in 0..200");
    let (first, end) = text.split_once("..").ok_or_else(wrong)?;
    let (first, end) = (first.parse().map_err(|_| wrong())?, end.parse().map_err(|_| wrong())?);
    if first >= end {
        return Err(format!("`{text}` holds no seed"));
    }
    Ok(first..end)
}
