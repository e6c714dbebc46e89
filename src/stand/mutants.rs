//! `mutants`: every planted bug must be caught by its checker within its budget of seeds.

use std::{fs, path::PathBuf};

use comfy_table::{Table, presets};
use sim::verdict::Verdict;

use super::{MutantsArguments, Problem, cannot, check_mutant, child, many::in_parallel, read_scenario};

/// A planted bug, the checker that must catch it, and within how many seeds. Its scenario has its name.
pub const MUTANTS: [(&str, &str, u64); 4] = [
    ("ack-before-flush", "lost", 20),
    ("flush-without-msync", "lost", 20),
    ("commit-before-processing", "unread", 20),
    ("recovery-truncates-one-too-many", "lost", 50),
];

/// Runs all planted bugs.
pub fn mutants(arguments: &MutantsArguments) -> Result<Verdict, Problem> {
    check_mutant(Some(&String::new()))?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["planted bug", "checker", "caught by", "without it"]);
    let mut all_caught = true;
    for (name, checker, budget) in MUTANTS {
        let file = scenario_of(arguments, name)?;
        let with = in_parallel(0..budget, arguments.jobs, |seed| {
            child::run(&file, seed, |command| {
                command.arg("--mutant").arg(name);
            })
        })?;
        let caught: Vec<u64> =
            with.iter().filter(|run| run.texts("violated").contains(&checker)).map(|run| run.seed).collect();
        // The scenario expects the checker to fail: without the bug it must have found nothing.
        let without = in_parallel(0..budget, arguments.jobs, |seed| child::run(&file, seed, |_| {}))?;
        let false_alarms =
            without.iter().filter(|run| !run.texts("violated").is_empty() || run.verdict == Verdict::Panic);
        let false_alarms = false_alarms.count();
        all_caught &= !caught.is_empty() && false_alarms == 0;
        let shown = match caught.first() {
            Some(first) => format!("{} of {budget} seeds, first {first}", caught.len()),
            None => format!("NONE of {budget} seeds"),
        };
        let quiet = if false_alarms == 0 { "nothing".to_owned() } else { format!("{false_alarms} FALSE ALARMS") };
        table.add_row([name.to_owned(), checker.to_owned(), shown, quiet]);
    }
    println!("{table}");
    Ok(if all_caught { Verdict::Pass } else { Verdict::Safety })
}

fn scenario_of(arguments: &MutantsArguments, name: &str) -> Result<PathBuf, Problem> {
    let file = arguments.folder.join(format!("{name}.toml"));
    fs::metadata(&file).map_err(|error| cannot("read", &file, &error))?;
    read_scenario(&file)?;
    Ok(file)
}
