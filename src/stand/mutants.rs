//! `mutants`: every planted bug must be caught by its checker within its budget of seeds.

use std::path::Path;

use comfy_table::{Table, presets};
use sim::verdict::Verdict;

use super::{MutantsArguments, Problem, check_mutant, child, pool, read_scenario};
use crate::output::say;

/// All planted bugs. The scenario of each has its name, and says which checker must catch it within how many seeds.
pub const MUTANTS: [&str; 29] = [
    "abort-file-ignored",
    "ack-before-copied",
    "ack-before-flush",
    "commit-before-processing",
    "config-written-in-place",
    "crc-not-checked-on-recovery",
    "dead-brokers-kept",
    "dead-letters-dropped",
    "delay-counted-twice",
    "delay-from-birth",
    "dispatch-before-flush",
    "flush-without-msync",
    "flushed-moves-on-flush-error",
    "no-directory-flush",
    "offset-given-again-after-recovery",
    "pull-goes-back",
    "pull-passes-one-over",
    "queues-not-rebuilt",
    "recovery-leaves-cut-bytes",
    "recovery-truncates-one-too-many",
    "refuse-after-store",
    "report-beyond-the-end-counts",
    "reported-before-copied",
    "retry-flush-after-error",
    "retry-not-counted",
    "stored-twice",
    "tags-by-hash-only",
    "task-left-after-request",
    "writes-stay-refused",
];

/// Runs all planted bugs, and the same seeds without them, of which no checker may complain.
pub fn mutants(arguments: &MutantsArguments) -> Result<Verdict, Problem> {
    check_mutant(Some(&MUTANTS[0].to_owned()))?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["planted bug", "checker", "caught by", "without it"]);
    let mut all_caught = true;
    for name in MUTANTS {
        let file = arguments.folder.join(format!("{name}.toml"));
        let expect = read_scenario(&file)?.expect;
        let checker = expect.fails.ok_or_else(|| not_a_mutant(&file))?;
        let seeds = 0..u64::from(expect.within);
        let with = pool::all(seeds.clone(), arguments.jobs, |seed| {
            child::run(&file, seed, |command| {
                command.arg("--mutant").arg(name);
            })
        })?;
        let caught: Vec<u64> =
            with.iter().filter(|run| run.texts("violated").contains(&checker.as_str())).map(|run| run.seed).collect();
        let without = pool::all(seeds, arguments.jobs, |seed| child::run(&file, seed, |_| {}))?;
        let complains = |run: &&child::Ran| !run.texts("violated").is_empty() || run.verdict == Verdict::Panic;
        let false_alarms = without.iter().filter(complains).count();
        all_caught &= !caught.is_empty() && false_alarms == 0;
        let shown = match caught.first() {
            Some(first) => format!("{} of {} seeds, first {first}", caught.len(), expect.within),
            None => format!("NONE of {} seeds", expect.within),
        };
        let quiet = if false_alarms == 0 { "nothing".to_owned() } else { format!("{false_alarms} FALSE ALARMS") };
        table.add_row([name.to_owned(), checker, shown, quiet]);
    }
    say!("{table}")?;
    Ok(if all_caught { Verdict::Pass } else { Verdict::Safety })
}

fn not_a_mutant(file: &Path) -> Problem {
    Problem::Other(format!("{} expects no checker to fail: write verdict = \"fail:lost\"", file.display()))
}
