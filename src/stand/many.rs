//! `run --seeds`: many seeds, a process each, and a summary per outcome.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use comfy_table::{Table, presets};
use serde_json::json;
use sim::{points, verdict::Verdict};

use super::{Problem, RunArguments, check_mutant, child, pool, read_scenario};
use crate::output::{Unwritten, say};

/// How many failing seeds of an outcome are named.
const NAMED_MAX: usize = 3;

/// Runs all seeds.
pub fn run(arguments: &RunArguments) -> Result<Verdict, Problem> {
    let started = Instant::now();
    check_mutant(arguments.mutant.as_ref())?;
    let scenario = read_scenario(&arguments.file)?;
    let seeds = arguments.seeds.clone().unwrap_or(0..1);
    let ran = pool::all(seeds, arguments.jobs, |seed| {
        child::run(&arguments.file, seed, |command| {
            if let Some(mutant) = &arguments.mutant {
                command.arg("--mutant").arg(mutant);
            }
        })
    })?;
    let seen: BTreeSet<&str> = ran.iter().flat_map(|run| run.texts("marks")).collect();
    let unseen: Vec<&str> =
        scenario.expect.sometimes.iter().map(String::as_str).filter(|mark| !seen.contains(mark)).collect();
    let unstated: Vec<&str> = points::ALWAYS.into_iter().filter(|name| !seen.contains(name)).collect();
    let idle = in_every(&ran, "never_fired");
    let vain = in_every(&ran, "without_effect");
    let worst = ran.iter().map(|run| run.verdict).find(|verdict| *verdict != Verdict::Pass);
    let complete = unseen.is_empty() && idle.is_empty();
    let verdict = worst.unwrap_or(if complete { Verdict::Pass } else { Verdict::Opportunity });
    if arguments.json {
        for run in &ran {
            say!("{}", run.result)?;
        }
        say!(
            "{}",
            json!({
                "seeds": ran.len(),
                "verdict": verdict.name(),
                "never_seen": unseen,
                "never_fired": idle,
                "without_effect": vain,
                "never_reached": unstated,
            })
        )?;
    } else {
        print(arguments, &ran, started.elapsed())?;
        for (what, names) in [
            ("never seen", &unseen),
            ("never fired", &idle),
            ("without effect", &vain),
            ("always! not reached", &unstated),
        ] {
            if !names.is_empty() {
                say!("{what} in any seed: {}", names.join(", "))?;
            }
        }
    }
    Ok(verdict)
}

/// Faults that stand on this list of every seed.
fn in_every<'a>(ran: &'a [child::Ran], list: &str) -> Vec<&'a str> {
    let (first, others) = ran.split_first().map_or((Vec::new(), &[][..]), |(run, rest)| (run.texts(list), rest));
    first.into_iter().filter(|fault| others.iter().all(|run| run.texts(list).contains(fault))).collect()
}

/// One line for each outcome: how often it came, and its first runs, `named_max` of them, by what `heads` calls these.
pub fn outcomes(ran: &[child::Ran], heads: [&str; 2], named_max: usize) -> Table {
    let mut outcomes: BTreeMap<(Verdict, String), Vec<&child::Ran>> = BTreeMap::new();
    for run in ran {
        outcomes.entry((run.verdict, run.texts("violated").join(", "))).or_default().push(run);
    }
    let [runs, named] = heads;
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["outcome", runs, named, "first problem"]);
    for ((verdict, violated), runs) in outcomes {
        let outcome = format!("{} {violated}", verdict.name());
        let named: Vec<String> = runs.iter().take(named_max).map(|run| run.seed.to_string()).collect();
        let problem = if verdict == Verdict::Pass { String::new() } else { runs[0].first_problem() };
        table.add_row([outcome.trim_end().to_owned(), runs.len().to_string(), named.join(", "), problem]);
    }
    table
}

fn print(arguments: &RunArguments, ran: &[child::Ran], real: Duration) -> Result<(), Unwritten> {
    say!("{}", outcomes(ran, ["seeds", "for example"], NAMED_MAX))?;
    let virtual_ms: u64 = ran.iter().map(|run| run.number("virtual_ms")).sum();
    say!("{} seeds, {} s virtual in {:.1} s real", ran.len(), virtual_ms / 1000, real.as_secs_f64())?;
    let failed = ran.iter().find(|run| run.verdict != Verdict::Pass);
    if let Some(run) = failed {
        let mutant = arguments.mutant.as_ref().map(|name| format!(" --mutant {name}")).unwrap_or_default();
        say!("repeat: staticfire run {} --seed {}{mutant}", arguments.file.display(), run.seed)?;
    }
    Ok(())
}
