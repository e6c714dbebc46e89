//! `run --seeds`: many seeds, a process each, and a summary per outcome.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::IsTerminal as _,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use sim::verdict::Verdict;

use super::{Problem, RunArguments, check_mutant, child, read_scenario};

/// How many failing seeds of an outcome are named.
const NAMED_MAX: usize = 3;

/// Runs all seeds.
pub fn run(arguments: &RunArguments) -> Result<Verdict, Problem> {
    let started = Instant::now();
    check_mutant(arguments.mutant.as_ref())?;
    let scenario = read_scenario(&arguments.file)?;
    let seeds = arguments.seeds.clone().unwrap_or(0..1);
    let ran = in_parallel(seeds, arguments.jobs, |seed| {
        child::run(&arguments.file, seed, |command| {
            if let Some(mutant) = &arguments.mutant {
                command.arg("--mutant").arg(mutant);
            }
        })
    })?;
    let seen: BTreeSet<&str> = ran.iter().flat_map(|run| run.texts("marks")).collect();
    let unseen: Vec<&str> =
        scenario.expect.sometimes.iter().map(String::as_str).filter(|mark| !seen.contains(mark)).collect();
    let worst = ran.iter().map(|run| run.verdict).find(|verdict| *verdict != Verdict::Pass);
    let verdict = worst.unwrap_or(if unseen.is_empty() { Verdict::Pass } else { Verdict::Opportunity });
    let mut outcomes: BTreeMap<(Verdict, String), Vec<&child::Ran>> = BTreeMap::new();
    for run in &ran {
        outcomes.entry((run.verdict, run.texts("violated").join(", "))).or_default().push(run);
    }
    if arguments.json {
        for run in &ran {
            println!("{}", run.result);
        }
        println!("{}", json!({ "seeds": ran.len(), "verdict": verdict.name(), "never_seen": unseen }));
    } else {
        print(arguments, &outcomes, &ran, &unseen, started.elapsed());
    }
    Ok(verdict)
}

/// Runs `job` for each seed, `jobs` at a time. The results are in the order of the seeds.
pub fn in_parallel<T: Send>(
    seeds: std::ops::Range<u64>,
    jobs: usize,
    job: impl Fn(u64) -> Result<T, Problem> + Sync,
) -> Result<Vec<T>, Problem> {
    let bar = match std::io::stderr().is_terminal() {
        true => ProgressBar::new(seeds.end - seeds.start),
        false => ProgressBar::hidden(),
    };
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {elapsed} gone, {eta} to go");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let next = AtomicU64::new(seeds.start);
    let results = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let result = job(seed);
                    let failed = result.is_err();
                    results.lock().expect("no job panics while it holds this").insert(seed, result);
                    bar.inc(1);
                    if failed {
                        next.store(seeds.end, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    results.into_inner().expect("all threads have ended").into_values().collect()
}

fn print(
    arguments: &RunArguments,
    outcomes: &BTreeMap<(Verdict, String), Vec<&child::Ran>>,
    ran: &[child::Ran],
    unseen: &[&str],
    real: Duration,
) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["outcome", "seeds", "for example", "first problem"]);
    for ((verdict, violated), runs) in outcomes {
        let outcome =
            if violated.is_empty() { verdict.name().to_owned() } else { format!("{} {violated}", verdict.name()) };
        let named: Vec<String> = runs.iter().take(NAMED_MAX).map(|run| run.seed.to_string()).collect();
        let problem = if *verdict == Verdict::Pass { String::new() } else { runs[0].first_problem() };
        table.add_row([outcome, runs.len().to_string(), named.join(", "), problem]);
    }
    println!("{table}");
    let virtual_ms: u64 = ran.iter().map(|run| run.number("virtual_ms")).sum();
    println!("{} seeds, {} s virtual in {:.1} s real", ran.len(), virtual_ms / 1000, real.as_secs_f64());
    if !unseen.is_empty() {
        println!("never seen in any seed: {}", unseen.join(", "));
    }
    let failed = ran.iter().find(|run| run.verdict != Verdict::Pass);
    if let Some(run) = failed {
        let mutant = arguments.mutant.as_ref().map(|name| format!(" --mutant {name}")).unwrap_or_default();
        println!("repeat: staticfire run {} --seed {}{mutant}", arguments.file.display(), run.seed);
    }
}
