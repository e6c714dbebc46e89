//! Candidates tried by running them: each in several orders of tasks, a process a run.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use indicatif::ProgressBar;
use sim::{
    scenario::Scenario,
    seed::{Domain, Seed},
    shrink::{Hit, Size, Stopped, Trial},
    verdict::Verdict,
};

use crate::stand::{
    Problem, cannot,
    child::{self, Limits, Ran},
    pool,
};

use super::way::Way;

const SCHEDS: Domain = Domain::named("shrink.sched");

/// In how many orders of tasks a candidate is tried: any change of a plan changes the order, so the one that failed has
/// no more reason to fail than another.
pub const ORDERS: usize = 16;

/// The most real time of one run.
const RUN_LIMIT: Duration = Duration::from_secs(60);

/// What the runs of a search may take together.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// From when on the time counts.
    pub started: Instant,
    /// Real time.
    pub time: Duration,
    /// Runs.
    pub runs: u64,
    /// Processes at a time.
    pub jobs: usize,
}

impl Budget {
    fn is_over(&self) -> bool {
        self.started.elapsed() >= self.time
    }

    /// Runs a seed once within these limits and what is left of the time; `None` if that was over first.
    pub fn run(
        &self,
        limits: Limits,
        stop: &AtomicBool,
        (file, seed): (&Path, u64),
        change: impl FnOnce(&mut Command),
    ) -> Result<Option<Ran>, Problem> {
        let left = self.time.saturating_sub(self.started.elapsed());
        let limits = Limits { real_time: limits.real_time.min(left), ..limits };
        let ran = child::run_within(&limits, stop, file, seed, change)?;
        let was_cut_off = ran.verdict == Verdict::Limit && ran.result.is_null() && self.is_over();
        Ok((!was_cut_off).then_some(ran))
    }
}

/// Why there are no more runs.
pub enum Ended {
    /// The time is over, or all runs are used up.
    Spent,
    /// Something else.
    Problem(Problem),
}

/// The runs of a search. How many were used, and so what comes of it, depends on the number of processes only through the
/// time they take.
pub struct Runs<'a> {
    way: &'a Way,
    mutant: Option<&'a str>,
    seed: u64,
    budget: Budget,
    stop: &'a AtomicBool,
    /// The seeds of the scheduler that a candidate is tried with, that of the plan first.
    scheds: Vec<u64>,
    /// Where the candidate stands that is being tried.
    file: PathBuf,
    used: u64,
    ended: Option<Ended>,
    bar: ProgressBar,
}

impl<'a> Runs<'a> {
    pub fn new(
        way: &'a Way,
        plan: &Scenario,
        mutant: Option<&'a str>,
        budget: Budget,
        stop: &'a AtomicBool,
    ) -> Runs<'a> {
        let sched = plan.seeds.sched.unwrap_or_default();
        let others = (1..ORDERS as u64).map(|number| Seed(sched).draw(SCHEDS, 0, number).0);
        let bar = pool::bar(Some(budget.time.as_secs()), "{bar:20} {elapsed}, {msg}");
        bar.enable_steady_tick(Duration::from_millis(250));
        Runs {
            way,
            mutant,
            seed: plan.seeds.root.unwrap_or_default(),
            budget,
            stop,
            scheds: std::iter::once(sched).chain(others).collect(),
            file: std::env::temp_dir().join(format!("staticfire-{}-candidate.toml", std::process::id())),
            used: 0,
            ended: None,
            bar,
        }
    }

    /// Puts away what the runs needed: how many there were, and why there were no more.
    pub fn finish(self) -> Result<(u64, Option<Ended>), Problem> {
        self.bar.finish_and_clear();
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(cannot("remove", &self.file, &error)),
            _ => Ok((self.used, self.ended)),
        }
    }

    /// Runs the candidate once; `None` if the time was over before it had come to its end.
    fn run(&self, sched: u64) -> Result<Option<Ran>, Problem> {
        let limits = Limits { real_time: RUN_LIMIT, ..Limits::default() };
        self.budget.run(limits, self.stop, (&self.file, self.seed), |command| {
            command.arg("--sched").arg(sched.to_string());
            child::switch_on(command, self.mutant);
        })
    }

    fn in_time(&self) -> bool {
        !self.stop.load(Ordering::Relaxed) && !self.budget.is_over()
    }

    fn end(&mut self, ended: Ended) -> Stopped {
        self.ended = Some(ended);
        Stopped
    }
}

impl Trial for Runs<'_> {
    /// Runs the candidate in one order after the other until it fails. With several processes more runs may be under way
    /// than are needed; they count for nothing, so that the first order which fails is the same for any number of them.
    fn fails(&mut self, candidate: &Scenario) -> Result<Option<Hit>, Stopped> {
        if let Err(error) = fs::write(&self.file, candidate.print()) {
            let problem = cannot("write", &self.file, &error);
            return Err(self.end(Ended::Problem(problem)));
        }
        // The order in which the last candidate failed is tried first.
        let kept = candidate.seeds.sched;
        let others = self.scheds.iter().copied().filter(|sched| Some(*sched) != kept);
        let orders: Vec<u64> = kept.into_iter().chain(others).collect();
        let left = usize::try_from(self.budget.runs - self.used).unwrap_or(usize::MAX).min(orders.len());
        let (mut first, mut passed, mut problem) = (None, 0, None);
        let jobs = orders[..left].iter().copied().enumerate().take_while(|_| self.in_time());
        pool::run(
            jobs,
            self.budget.jobs,
            |(number, sched)| (number, sched, self.run(sched)),
            |(number, sched, ran)| {
                match ran.map(|ran| ran.map(|ran| self.way.is_shown_by(&ran))) {
                    Ok(Some(None)) => {
                        passed += 1;
                        return ControlFlow::Continue(());
                    }
                    Ok(None) => {}
                    Ok(Some(Some(shown_at))) if first.is_none_or(|(earlier, _)| number < earlier) => {
                        first = Some((number, Hit { sched, shown_at }));
                    }
                    Ok(Some(Some(_))) => {}
                    Err(error) => problem = Some(error),
                }
                ControlFlow::Break(())
            },
        );
        match (problem, first) {
            (Some(problem), _) => Err(self.end(Ended::Problem(problem))),
            (None, Some((number, hit))) => {
                self.used += number as u64 + 1;
                Ok(Some(hit))
            }
            (None, None) => {
                self.used += passed as u64;
                match passed == orders.len() {
                    true => Ok(None),
                    false if self.stop.load(Ordering::Relaxed) => Err(self.end(Ended::Problem(Problem::Interrupted))),
                    false => Err(self.end(Ended::Spent)),
                }
            }
        }
    }

    fn shrunk(&mut self, step: &'static str, size: Size) {
        self.bar.set_position(self.budget.started.elapsed().as_secs());
        self.bar.set_message(format!("{} runs, {step}: {size}", self.used));
    }
}

/// Runs a file as it stands, as often as asked, without any limit of time for all of them.
pub fn again(file: &Path, seed: u64, mutant: Option<&str>, times: usize) -> Result<Vec<Ran>, Problem> {
    let run = |_| {
        child::run(file, seed, |command| {
            child::switch_on(command, mutant);
        })
    };
    (0..times).map(run).collect()
}
