//! `bench`: how much faster than real time a scenario runs.

use sim::verdict::Verdict;

use super::{BenchArguments, Problem, child, read_scenario};
use crate::output::say;

/// Runs the scenario several times and prints the median ratio of virtual to real time.
pub fn bench(arguments: &BenchArguments) -> Result<Verdict, Problem> {
    let scenario = read_scenario(&arguments.file)?;
    let mut ratios = Vec::new();
    let mut verdict = Verdict::Pass;
    for run in 0..arguments.runs.max(1) {
        let ran = child::run(&arguments.file, 1 + run as u64, |_| {})?;
        if ran.verdict != Verdict::Pass {
            say!("seed {} ended as {}: {}", ran.seed, ran.verdict.name(), ran.first_problem())?;
            verdict = ran.verdict;
        }
        let (simulated, real) = (ran.number("virtual_ms"), ran.number("real_ms").max(1));
        say!(
            "seed {}: {} s simulated in {real} ms, {} records, {} polls",
            ran.seed,
            simulated / 1000,
            ran.number("records"),
            ran.number("polls")
        )?;
        ratios.push(simulated / real);
    }
    ratios.sort_unstable();
    say!("{}: {}:1 simulated to real time, median of {}", scenario.name, ratios[ratios.len() / 2], ratios.len())?;
    Ok(verdict)
}
