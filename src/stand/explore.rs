//! `explore`: as many seeds of as many scenarios as there is time for, and what they found.

mod outcome;
mod results;
mod tally;
mod targets;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{ControlFlow, Range},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;
use sim::{scenario::units, verdict::Verdict};

use super::{
    Problem, cannot, check_mutant,
    child::{self, Limits},
    parse_jobs, parse_seeds, pool,
};
use crate::output::{Unwritten, say};
use outcome::Outcome;
use results::Results;
use tally::{Stop, StopRules, Tally};
use targets::Target;

/// The scenario that must fail, unless another one is named.
const CANARY: &str = include_str!("../../scenarios/canary.toml");

/// Arguments of `staticfire explore`.
#[derive(Args)]
#[command(group = clap::ArgGroup::new("end").required(true).multiple(true))]
pub struct ExploreArguments {
    /// Scenarios: files, patterns such as 'scenarios/fast/*.toml', or folders
    #[arg(long, value_name = "GLOB", num_args = 1.., default_value = "scenarios/fast/*.toml")]
    scenarios: Vec<String>,
    /// Seeds of each scenario: first..end, without the end
    #[arg(long, value_name = "A..B", value_parser = parse_seeds, group = "end")]
    seeds: Option<Range<u64>>,
    /// Stop after this much real time: 90s, 10m or 1h
    #[arg(long, value_name = "TIME", value_parser = parse_time, group = "end")]
    budget: Option<Duration>,
    /// Stop at the first seed that fails
    #[arg(long, group = "end")]
    until_first_failure: bool,
    /// Stop after so many seeds in a row that reached no new mark and no new pair of fault and state, once all that must be reached has been
    #[arg(long, value_name = "SEEDS", group = "end", value_parser = clap::value_parser!(u64).range(1..))]
    quiet_after: Option<u64>,
    /// How many processes at a time; as many as there are processors if it is not given
    #[arg(long, value_parser = parse_jobs)]
    jobs: Option<usize>,
    /// Where results go, a line for each seed, and where an earlier job is continued: FILE.jsonl, or a folder
    #[arg(long, value_name = "PATH", default_value = "explore.jsonl")]
    out: PathBuf,
    /// Switch on a planted bug (needs a build with --features mutants)
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// The most real time that one seed may take
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "20s")]
    limit: Duration,
    /// The most address space that one seed may use
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, default_value = "16GiB")]
    memory: u64,
    /// Another scenario that must fail before the job begins
    #[arg(long, value_name = "FILE")]
    canary: Option<PathBuf>,
    /// Print which states no run was in while a fault was in effect, by kind of fault
    #[arg(long)]
    coverage: bool,
    /// Print one JSON object instead of a report
    #[arg(long)]
    json: bool,
}

/// Explores, and tells what was found.
pub fn explore(arguments: &ExploreArguments) -> Result<Verdict, Problem> {
    let started = Instant::now();
    check_mutant(arguments.mutant.as_ref())?;
    let targets = targets::find(&arguments.scenarios)?;
    let (results, earlier) = Results::open(&arguments.out)?;
    let stop = stop_at_signal();
    check_canary(arguments.canary.as_deref(), &stop)?;
    let mut job = Job {
        arguments,
        targets: &targets,
        seeds: arguments.seeds.clone().unwrap_or(0..u64::MAX),
        results,
        tally: Tally::default(),
        done: BTreeSet::new(),
        started,
    };
    job.take_earlier(earlier);
    let stopped = job.run(&stop)?;
    job.tell(stopped)?;
    match stopped {
        Stop::Interrupted => Err(Problem::Interrupted),
        _ => Ok(job.tally.verdict(&targets)),
    }
}

pub(super) fn parse_time(text: &str) -> Result<Duration, String> {
    let time = units::parse_time(text)?;
    if time.is_zero() { Err(format!("`{text}` is no time at all")) } else { Ok(time) }
}

/// Set once somebody ends this process by a signal. Children that run are ended then, and what there is is told.
pub(super) fn stop_at_signal() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&stop);
    // The thread waits for as long as the process lives.
    std::thread::spawn(move || {
        let heard = host::real::run("signals", |_| host::real::stop_signal());
        set.store(matches!(heard, Ok(Ok(()))), Ordering::Relaxed);
    });
    stop
}

/// Runs the scenario that must fail. If it passes, a job that finds nothing would prove nothing.
fn check_canary(named: Option<&Path>, stop: &AtomicBool) -> Result<(), Problem> {
    let kept = std::env::temp_dir().join(format!("staticfire-{}-canary.toml", std::process::id()));
    if named.is_none() {
        std::fs::write(&kept, CANARY).map_err(|error| cannot("write", &kept, &error))?;
    }
    let ran = child::run_within(&Limits::default(), stop, named.unwrap_or(&kept), 0, |_| {});
    if named.is_none() {
        std::fs::remove_file(&kept).map_err(|error| cannot("remove", &kept, &error))?;
    }
    let ran = ran?;
    match ran.verdict {
        Verdict::Safety => Ok(()),
        Verdict::Pass => Err(Problem::Blind("the canary passed: this job would find nothing".to_owned())),
        other => Err(Problem::Blind(format!(
            "the canary must fail as safety, and ended as {}: {}",
            other.name(),
            ran.first_problem()
        ))),
    }
}

/// One job.
struct Job<'a> {
    arguments: &'a ExploreArguments,
    targets: &'a [Target],
    seeds: Range<u64>,
    results: Results,
    tally: Tally,
    /// Scenarios and seeds that an earlier job has run.
    done: BTreeSet<(String, u64)>,
    started: Instant,
}

impl Job<'_> {
    /// Counts what an earlier job has found out about this build and these scenarios.
    fn take_earlier(&mut self, outcomes: Vec<Outcome>) {
        for mut outcome in outcomes {
            let same_text = |target: &Target| target.name == outcome.scenario && target.hash == outcome.scenario_hash;
            let counts = outcome.build == child::build_id()
                && outcome.mutant == self.arguments.mutant
                && self.seeds.contains(&outcome.seed)
                && self.targets.iter().any(same_text);
            if counts && self.done.insert((outcome.scenario.clone(), outcome.seed)) {
                self.tally.add(&mut outcome);
            }
        }
    }

    /// Runs what is not done yet: the first seed of every scenario, then the second of every one, and so on.
    fn run(&mut self, stop: &AtomicBool) -> Result<Stop, Problem> {
        let (arguments, targets, started) = (self.arguments, self.targets, self.started);
        let Job { seeds, results, tally, done, .. } = self;
        let rules = StopRules {
            budget: arguments.budget,
            first_failure: arguments.until_first_failure,
            quiet_after: arguments.quiet_after,
        };
        if let Some(reason) = rules.reason(tally, targets, started.elapsed()) {
            return Ok(reason);
        }
        let in_time = || !stop.load(Ordering::Relaxed) && rules.budget.is_none_or(|budget| started.elapsed() < budget);
        let jobs = seeds.clone().flat_map(|seed| targets.iter().map(move |target| (target, seed)));
        let jobs = jobs.filter(|(target, seed)| !done.contains(&(target.name.clone(), *seed)));
        let progress = Progress::new(arguments, targets.len(), done.len() as u64, started);
        let (mut stopped, mut failed) = (None, None);
        let take = |result: Result<Outcome, Problem>| {
            let added = result.and_then(|mut outcome| {
                tally.add(&mut outcome);
                results.add(&outcome)
            });
            progress.show(tally);
            match added {
                Ok(()) => stopped = stopped.or(rules.reason(tally, targets, started.elapsed())),
                Err(Problem::Interrupted) => stopped = Some(Stop::Interrupted),
                Err(problem) => failed = failed.take().or(Some(problem)),
            }
            if stopped.is_some() || failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let work = |(target, seed)| run_seed(arguments, target, seed, stop);
        pool::run(jobs.take_while(|_| in_time()), pool::workers(arguments.jobs), work, take);
        progress.bar.finish_and_clear();
        match (failed, stopped) {
            (Some(problem), _) => Err(problem),
            (None, Some(reason)) => Ok(reason),
            (None, None) if stop.load(Ordering::Relaxed) => Ok(Stop::Interrupted),
            (None, None) => Ok(if in_time() { Stop::SeedsDone } else { Stop::Budget }),
        }
    }

    fn tell(&self, stopped: Stop) -> Result<(), Unwritten> {
        if self.arguments.json {
            return say!("{}", self.json(stopped));
        }
        let Tally { seeds, virtual_ms, .. } = self.tally;
        let ran = seeds - self.done.len() as u64;
        let real = self.started.elapsed().as_secs_f64();
        let rate = ran as f64 / real;
        say!("{ran} seeds in {real:.1} s, {rate:.1}/s; {}", stopped.text())?;
        say!(
            "{}: {seeds} seeds of {} scenarios, {} s virtual, build {}",
            self.results.path().display(),
            self.targets.len(),
            virtual_ms / 1000,
            child::build_id()
        )?;
        for (way, group) in self.tally.by_gravity() {
            let by = if way.by.is_empty() { String::new() } else { format!("   by {}", way.by) };
            say!("FAIL {} {}   {} seeds{by}", way.verdict, way.about, group.count)?;
            for (number, run) in group.fastest.iter().enumerate() {
                if let Some(failure) = run.failure.as_ref().filter(|_| number == 0) {
                    say!("  {}", failure.what)?;
                }
                say!("  repeat: {}", run.repeat())?;
            }
        }
        for missing in self.tally.never_seen(self.targets) {
            say!("never seen in any seed: {missing}")?;
        }
        let (reached, possible) = self.tally.coverage();
        if possible > 0 {
            say!("{reached} of {possible} pairs of fault and state reached")?;
        }
        for (kind, states) in self.tally.never_paired().into_iter().filter(|_| self.arguments.coverage) {
            say!("  never during {kind}: {}", states.join(", "))?;
        }
        if self.tally.groups.is_empty() {
            say!("no seed failed")?;
        }
        if stopped == Stop::Interrupted {
            say!("the same command goes on from here")?;
        }
        Ok(())
    }

    fn json(&self, stopped: Stop) -> serde_json::Value {
        let groups = self.tally.by_gravity().into_iter().map(|(way, group)| {
            let fastest = group.fastest.iter().map(|run| {
                let what = run.failure.as_ref().map(|failure| &failure.what);
                json!({
                    "scenario": run.scenario,
                    "seed": run.seed,
                    "real_ms": run.real_ms,
                    "what": what,
                    "repeat": run.repeat(),
                })
            });
            json!({
                "verdict": way.verdict,
                "about": way.about,
                "by": way.by,
                "seeds": group.count,
                "fastest": fastest.collect::<Vec<_>>(),
            })
        });
        json!({
            "verdict": self.tally.verdict(self.targets).name(),
            "stopped": stopped.text(),
            "seeds": self.tally.seeds,
            "seeds_before": self.done.len(),
            "virtual_ms": self.tally.virtual_ms,
            "real_ms": u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            "groups": groups.collect::<Vec<_>>(),
            "never_seen": self.tally.never_seen(self.targets),
            "pairs": self.tally.pairs,
            "never_paired": self.tally.never_paired().into_iter().collect::<BTreeMap<_, _>>(),
            "results": self.results.path().display().to_string(),
            "build": child::build_id(),
        })
    }
}

fn run_seed(arguments: &ExploreArguments, target: &Target, seed: u64, stop: &AtomicBool) -> Result<Outcome, Problem> {
    let limits = Limits { real_time: arguments.limit, memory_bytes: arguments.memory };
    let mutant = arguments.mutant.as_deref();
    let begun = Instant::now();
    let ran = child::run_within(&limits, stop, &target.file, seed, |command| {
        child::switch_on(command, mutant);
    })?;
    let real_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(Outcome::of(target, mutant, &ran, real_ms))
}

/// The line that shows how far a job is.
struct Progress {
    bar: ProgressBar,
    budget: Option<Duration>,
    before: u64,
    started: Instant,
}

impl Progress {
    fn new(arguments: &ExploreArguments, scenarios: usize, before: u64, started: Instant) -> Progress {
        let seeds = arguments.seeds.as_ref().map(|seeds| (seeds.end - seeds.start) * scenarios as u64);
        let bar = match (seeds, arguments.budget) {
            (Some(_), _) => pool::bar(seeds, "{bar:30} {pos}/{len} seeds, {msg}, {eta} to go"),
            (None, Some(budget)) => {
                pool::bar(Some(budget.as_secs()), &format!("{{bar:30}} {{elapsed}} of {budget:?}, {{msg}}"))
            }
            (None, None) => pool::bar(None, "{spinner} {elapsed}, {msg}"),
        };
        let budget = arguments.budget.filter(|_| seeds.is_none());
        if budget.is_none() {
            // The rate is that of this job, so what was there before does not count as progress.
            bar.set_position(before);
            bar.reset_eta();
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Progress { bar, budget, before, started }
    }

    fn show(&self, tally: &Tally) {
        let (elapsed, ran) = (self.started.elapsed(), tally.seeds - self.before);
        let rate = ran as f64 / elapsed.as_secs_f64();
        let failures = match tally.groups.len() {
            0 => "no failure".to_owned(),
            1 => "1 way to fail".to_owned(),
            ways => format!("{ways} ways to fail"),
        };
        if let Some(budget) = self.budget {
            self.bar.set_position(elapsed.as_secs());
            let at_end = self.before as f64 + rate * budget.as_secs_f64();
            self.bar.set_message(format!("{} of about {at_end:.0} seeds, {rate:.1}/s, {failures}", tally.seeds));
        } else {
            self.bar.set_position(tally.seeds);
            self.bar.set_message(format!("{rate:.1}/s, {failures}"));
        }
    }
}
