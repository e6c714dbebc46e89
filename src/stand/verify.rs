//! `verify`: the same seed in two processes must give the same run, whatever surrounds it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;
use sim::verdict::Verdict;

use super::{Problem, VerifyArguments, cannot, child, read_scenario};
use crate::output::{self, say};

/// How many common records are shown before the first difference.
const CONTEXT: usize = 20;

/// Verifies one seed or many; the first that differs is told in full.
pub fn verify(arguments: &VerifyArguments) -> Result<Verdict, Problem> {
    read_scenario(&arguments.file)?;
    let seeds = arguments.seeds.clone().unwrap_or(arguments.seed..arguments.seed + 1);
    let mut differ = 0_u64;
    for seed in seeds.clone() {
        let (first, second) = twice(&arguments.file, seed)?;
        let fields = ["hash", "records", "side_hash", "side_events", "checkpoints", "verdict", "fates"];
        let different: Vec<&str> =
            fields.into_iter().filter(|field| first.result.get(field) != second.result.get(field)).collect();
        let same = different.is_empty() && !first.result.is_null();
        if arguments.json {
            say!(
                "{}",
                json!({
                    "seed": seed,
                    "identical": same,
                    "different": different,
                    "hash": first.text("hash"),
                    "side_hash": first.text("side_hash"),
                })
            )?;
        } else if same {
            say!("identical   seed {seed}   hash {}   side {}", first.text("hash"), first.text("side_hash"))?;
        }
        if !same {
            differ += 1;
            if !arguments.json {
                say!("DIFFERENT   seed {seed}   in {}", different.join(", "))?;
                say!("  {} / {}", first.first_problem(), second.first_problem())?;
                output::print(first_difference(&arguments.file, seed)?)?;
            }
        }
    }
    if !arguments.json && seeds.end - seeds.start > 1 {
        say!("{} seeds, {differ} of them different", seeds.end - seeds.start)?;
    }
    Ok(if differ == 0 { Verdict::Pass } else { Verdict::Nondeterminism })
}

/// Two runs that differ in everything that must not matter: size of the environment, working directory, logging.
fn twice(file: &Path, seed: u64) -> Result<(child::Ran, child::Ran), Problem> {
    let absolute = fs::canonicalize(file).map_err(|error| cannot("read", file, &error))?;
    let first = child::run(&absolute, seed, |_| {})?;
    let second = child::run(&absolute, seed, |command| {
        command.arg("-vv").env("STATICFIRE_PADDING", "x".repeat(3_000)).current_dir(std::env::temp_dir());
    })?;
    Ok((first, second))
}

/// Runs twice again with histories kept, and shows where they part.
fn first_difference(file: &Path, seed: u64) -> Result<String, Problem> {
    let absolute = fs::canonicalize(file).map_err(|error| cannot("read", file, &error))?;
    let path = |which: &str| -> PathBuf {
        std::env::temp_dir().join(format!("staticfire-verify-{}-{which}.jsonl", std::process::id()))
    };
    let mut histories = Vec::new();
    for which in ["a", "b"] {
        let path = path(which);
        child::run(&absolute, seed, |command| {
            command.arg("--history").arg(&path);
            if which == "b" {
                command.arg("-vv").env("STATICFIRE_PADDING", "x".repeat(3_000)).current_dir(std::env::temp_dir());
            }
        })?;
        histories.push(fs::read_to_string(&path).map_err(|error| cannot("read", &path, &error))?);
        fs::remove_file(&path).map_err(|error| cannot("remove", &path, &error))?;
    }
    let (first, second): (Vec<&str>, Vec<&str>) = (histories[0].lines().collect(), histories[1].lines().collect());
    let same = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
    if same == first.len() && same == second.len() {
        return Ok(
            "  the histories are equal: only the side hash differs, or the difference did not come again\n".to_owned()
        );
    }
    let mut told = format!("  the first {same} records are equal, the last of them:\n");
    for line in &first[same.saturating_sub(CONTEXT)..same] {
        told.push_str(&format!("    {line}\n"));
    }
    told.push_str(&format!("  then one run:   {}\n", first.get(same).unwrap_or(&"(end)")));
    told.push_str(&format!("  then the other: {}\n", second.get(same).unwrap_or(&"(end)")));
    Ok(told)
}
