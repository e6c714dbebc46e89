//! `shrink`: a seed that fails comes back as a small scenario that fails in the same way.

mod runs;
mod way;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use clap::Args;
use serde_json::json;
use sim::{
    plan::Plan,
    scenario::Scenario,
    shrink::{Shrunk, Size},
    verdict::Verdict,
};

use super::{
    Problem, cannot, check_mutant,
    child::{self, Limits},
    explore::{parse_time, stop_at_signal},
    parse_jobs, pool, read_scenario,
};
use crate::output::{Unwritten, say};
use runs::{Budget, Ended, Runs};
use way::Way;

/// How often the result must fail in processes of its own.
const CONFIRMATIONS: usize = 3;

/// Arguments of `staticfire shrink`.
#[derive(Args)]
pub struct ShrinkArguments {
    /// The scenario
    file: PathBuf,
    /// The seed that fails; counts more than the one in the file
    #[arg(long)]
    seed: Option<u64>,
    /// Switch on a planted bug (needs a build with --features mutants)
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Search for this much real time: 90s or 5m; what was found by then is run a few times more
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "5m")]
    budget: Duration,
    /// Stop after so many runs
    #[arg(long, value_name = "RUNS", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    runs_max: u64,
    /// How many processes at a time; as many as there are processors if it is not given
    #[arg(long, value_parser = parse_jobs)]
    jobs: Option<usize>,
    /// The folder that the scenario and its test are written to
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// Print one JSON object instead of a report
    #[arg(long)]
    json: bool,
}

/// Shrinks, writes what came of it, and tells.
pub fn shrink(arguments: &ShrinkArguments) -> Result<Verdict, Problem> {
    let started = Instant::now();
    check_mutant(arguments.mutant.as_ref())?;
    let plan = Plan::draw(read_scenario(&arguments.file)?, arguments.seed).scenario;
    fs::create_dir_all(&arguments.out).map_err(|error| cannot("make the folder", &arguments.out, &error))?;
    let mutant = arguments.mutant.as_deref();
    let seed = plan.seeds.root.unwrap_or_default();
    let stop = stop_at_signal();
    let jobs = pool::workers(arguments.jobs);
    let budget = Budget { started, time: arguments.budget, runs: arguments.runs_max, jobs };
    let way = way_of(&arguments.file, (seed, mutant), &plan, (&budget, &stop))?;
    let from = Size::of(&plan);
    let start = prepared(plan, &way, mutant);
    let mut runs = Runs::new(&way, &start, mutant, budget, &stop);
    let shrunk = sim::shrink::shrink(start, &mut runs);
    let (used, ended) = runs.finish()?;
    let Some(Shrunk { scenario, complete }) = shrunk else {
        return Err(match ended {
            Some(Ended::Problem(problem)) => problem,
            Some(Ended::Spent) => Problem::Blind(SPENT_EARLY.to_owned()),
            None => Problem::Blind(format!("the plan of seed {seed} does not fail as the seed did: try `verify`")),
        });
    };
    // What there is when somebody ends the search is kept; anything else that went wrong is told.
    let interrupted = match ended {
        Some(Ended::Problem(Problem::Interrupted)) => true,
        Some(Ended::Problem(problem)) => return Err(problem),
        Some(Ended::Spent) | None => false,
    };
    let mut found = Found {
        arguments,
        way: &way,
        seed,
        from,
        to: Size::of(&scenario),
        used,
        complete,
        interrupted,
        took: Duration::ZERO,
        without: None,
        scenario,
    };
    let kept = found.write()?;
    // A file of which nobody knows whether it fails is worse than none.
    match found.confirm(&kept) {
        Ok(CONFIRMATIONS) => {}
        Ok(failed) => {
            kept.remove()?;
            found.tell_unconfirmed(failed)?;
            return Ok(Verdict::Nondeterminism);
        }
        Err(problem) => {
            kept.remove()?;
            return Err(problem);
        }
    }
    found.took = started.elapsed();
    found.tell(&kept)?;
    if interrupted { Err(Problem::Interrupted) } else { Ok(Verdict::Pass) }
}

/// Said if nothing came of a search.
const SPENT_EARLY: &str = "the budget was spent before the plan had failed once";

/// How the seed fails.
fn way_of(
    file: &Path,
    (seed, mutant): (u64, Option<&str>),
    plan: &Scenario,
    (budget, stop): (&Budget, &AtomicBool),
) -> Result<Way, Problem> {
    let ran = budget.run(Limits::default(), stop, (file, seed), |command| child::switch_on(command, mutant))?;
    let Some(ran) = ran else { return Err(Problem::Blind(SPENT_EARLY.to_owned())) };
    Way::of(&ran, plan.expect.fails.as_deref()).ok_or_else(|| {
        let why = match ran.verdict {
            Verdict::Pass => "passes".to_owned(),
            _ => format!("only misses what it is for ({})", ran.first_problem()),
        };
        Problem::Blind(format!("seed {seed} of {} {why}: there is nothing to shrink", file.display()))
    })
}

/// The plan as the search begins with it: it expects the failure, and nothing else.
fn prepared(mut plan: Scenario, way: &Way, mutant: Option<&str>) -> Scenario {
    plan.expect = way.expectation(&plan.expect);
    plan.about = match mutant {
        Some(name) => format!("Planted bug {name}: {} must catch it.", way.about),
        None => format!("Shrunk from seed {} of {}.", plan.seeds.root.unwrap_or_default(), plan.name),
    };
    plan
}

/// What a search found, and what is told about it.
struct Found<'a> {
    arguments: &'a ShrinkArguments,
    way: &'a Way,
    seed: u64,
    from: Size,
    to: Size,
    used: u64,
    complete: bool,
    /// Whether somebody ended the search.
    interrupted: bool,
    took: Duration,
    /// What happens without the planted bug, if there is one.
    without: Option<String>,
    scenario: Scenario,
}

/// The files of a result.
struct Kept {
    scenario: PathBuf,
    test: PathBuf,
}

impl Kept {
    fn remove(&self) -> Result<(), Problem> {
        for path in [&self.scenario, &self.test] {
            fs::remove_file(path).map_err(|error| cannot("remove", path, &error))?;
        }
        Ok(())
    }
}

impl Found<'_> {
    fn mutant(&self) -> Option<&str> {
        self.arguments.mutant.as_deref()
    }

    fn mutant_argument(&self) -> String {
        self.mutant().map(|name| format!(" --mutant {name}")).unwrap_or_default()
    }

    /// Writes the scenario and the test that runs it.
    fn write(&self) -> Result<Kept, Problem> {
        let text = self.scenario.print();
        let name = format!("shrunk-{}-{}", self.way.about, child::short_digest(text.as_bytes()));
        let scenario = self.arguments.out.join(format!("{name}.toml"));
        let test = self.arguments.out.join(format!("{}.rs", name.replace('-', "_")));
        for (path, text) in [(&scenario, format!("{}{text}", self.header())), (&test, self.test(&name))] {
            fs::write(path, text).map_err(|error| cannot("write", path, &error))?;
        }
        Ok(Kept { scenario, test })
    }

    /// What stands above the scenario, for whoever opens it later.
    fn header(&self) -> String {
        let Found { way, from, to, .. } = self;
        let (file, mutant) = (self.arguments.file.display(), self.mutant_argument());
        let what = if way.class.is_empty() { way.about.clone() } else { format!("{}: {}", way.about, way.class) };
        let then = match self.mutant() {
            Some(name) => format!("Planted bug: run it with --mutant {name}, in a build with --features mutants."),
            None if way.can_be_expected() => {
                "When the bug is fixed, write verdict = \"pass\" below and keep the file.".to_owned()
            }
            None => "The process dies, which no scenario can expect: the file fails until the bug is fixed.".to_owned(),
        };
        format!(
            "# {what}\n#\n# By `staticfire shrink {file} --seed {}{mutant}`\n# from {from}\n# to {to}.\n# {then}\n\n",
            self.seed
        )
    }

    /// A test of the repository that runs the scenario once.
    fn test(&self, name: &str) -> String {
        let feature = if self.mutant().is_some() { "#[cfg(feature = \"mutants\")]\n" } else { "" };
        let mutant: String = self.mutant().map(|name| format!(", \"--mutant\", \"{name}\"")).unwrap_or_default();
        let (assertion, then) = match self.way.can_be_expected() {
            true => ("assert!(run.status.success()", "it does what the scenario expects"),
            false => ("assert!(!run.status.success()", "it still dies; turn this round when it is fixed"),
        };
        format!(
            "//! {about}: a regression. Move this file to `tests/`, the scenario to `scenarios/regressions/`, and list it in\n\
             //! `scenarios/ci.toml` with one seed.\n\n\
             use std::process::Command;\n\n\
             {feature}#[test]\n\
             fn {test}() {{\n    \
                 let run = Command::new(env!(\"CARGO_BIN_EXE_staticfire\"))\n        \
                     .current_dir(env!(\"CARGO_MANIFEST_DIR\"))\n        \
                     .args([\"run\", \"scenarios/regressions/{name}.toml\"{mutant}])\n        \
                     .output()\n        \
                     .expect(\"the binary was built\");\n    \
                 // True if {then}.\n    \
                 {assertion}, \"{{}}\", String::from_utf8_lossy(&run.stdout));\n\
             }}\n",
            about = self.way.about,
            test = name.replace('-', "_"),
        )
    }

    /// Runs the file in processes of its own: in how many of them it failed. If two of them differ it counts as not
    /// failing. Then finds out what happens without the planted bug.
    fn confirm(&mut self, kept: &Kept) -> Result<usize, Problem> {
        let ran = runs::again(&kept.scenario, self.seed, self.mutant(), CONFIRMATIONS)?;
        let hash = ran.first().map_or("", |run| run.text("hash"));
        let alike = ran.iter().filter(|run| self.way.is_shown_by(run).is_some() && run.text("hash") == hash);
        let failed = alike.count();
        if self.mutant().is_some() && failed == CONFIRMATIONS {
            let without = runs::again(&kept.scenario, self.seed, None, 1)?;
            self.without = without.first().map(|run| match Way::of(run, None) {
                None => "without the planted bug nothing fails".to_owned(),
                Some(_) => format!("without the planted bug it fails as well: {}", run.first_problem()),
            });
        }
        Ok(failed)
    }

    fn tell_unconfirmed(&self, failed: usize) -> Result<(), Unwritten> {
        match self.arguments.json {
            true => say!("{}", json!({ "verdict": Verdict::Nondeterminism.name(), "failed": failed })),
            false => say!("the small scenario does not replay: {failed} of {CONFIRMATIONS} runs failed alike"),
        }
    }

    fn repeat(&self, kept: &Kept) -> String {
        format!("staticfire run {}{}", kept.scenario.display(), self.mutant_argument())
    }

    fn tell(&self, kept: &Kept) -> Result<(), Unwritten> {
        let Found { way, from, to, seed, used, .. } = self;
        if self.arguments.json {
            let size = |size: &Size| json!({ "faults": size.faults, "messages": size.messages, "nodes": size.nodes });
            return say!(
                "{}",
                json!({
                    "scenario": self.arguments.file.display().to_string(),
                    "seed": seed,
                    "mutant": self.mutant(),
                    "about": way.about,
                    "class": way.class,
                    "from": size(from),
                    "to": size(to),
                    "runs": used,
                    "complete": self.complete,
                    "interrupted": self.interrupted,
                    "real_ms": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
                    "file": kept.scenario.display().to_string(),
                    "test": kept.test.display().to_string(),
                    "without_mutant": self.without,
                    "repeat": self.repeat(kept),
                    "build": child::build_id(),
                })
            );
        }
        let mutant = self.mutant().map(|name| format!("   planted bug {name}")).unwrap_or_default();
        let file = self.arguments.file.display();
        say!("SHRUNK {}   scenario {file}   seed {seed}{mutant}   build {}", way.about, child::build_id())?;
        if !way.class.is_empty() {
            say!("  {}", way.class)?;
        }
        say!("from {from} to {to}")?;
        let end = match (self.complete, self.interrupted) {
            (true, _) => "nothing more can be left out",
            (false, true) => "interrupted",
            (false, false) => "the budget is spent",
        };
        say!("{used} runs in {:.1} s; {end}", self.took.as_secs_f64())?;
        let without = self.without.as_ref().map(|told| format!("; {told}")).unwrap_or_default();
        say!("failed in {CONFIRMATIONS} of {CONFIRMATIONS} processes of its own{without}")?;
        say!("file: {}   test: {}", kept.scenario.display(), kept.test.display())?;
        say!("repeat: {}", self.repeat(kept))
    }
}
