//! Which scenarios are explored.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sim::scenario::Scenario;

use crate::stand::{Problem, cannot, child, read_scenario};

/// One scenario to explore.
pub struct Target {
    /// Its file.
    pub file: PathBuf,
    /// The file as it is shown and kept in results.
    pub name: String,
    /// Identifies its text.
    pub hash: String,
    /// What it says.
    pub scenario: Scenario,
}

impl Target {
    pub fn read(file: PathBuf) -> Result<Target, Problem> {
        let scenario = read_scenario(&file)?;
        let text = fs::read(&file).map_err(|error| cannot("read", &file, &error))?;
        Ok(Target { name: file.display().to_string(), hash: child::short_digest(&text), scenario, file })
    }
}

/// Reads the scenarios of all patterns, each once, in the order of their names. A folder stands for the files in it.
pub fn find(patterns: &[String]) -> Result<Vec<Target>, Problem> {
    let mut files = Vec::new();
    for pattern in patterns {
        let found = files_of(pattern)?;
        if found.is_empty() {
            return Err(Problem::Other(format!("no scenario matches `{pattern}`")));
        }
        files.extend(found);
    }
    files.sort();
    files.dedup();
    files.into_iter().map(Target::read).collect()
}

fn files_of(pattern: &str) -> Result<Vec<PathBuf>, Problem> {
    let folder = Path::new(pattern);
    let pattern = match folder.is_dir() {
        true => folder.join("*.toml").display().to_string(),
        false => pattern.to_owned(),
    };
    let wrong = |error: glob::PatternError| Problem::Other(format!("`{pattern}` is not a pattern of files: {error}"));
    let paths = glob::glob(&pattern).map_err(wrong)?;
    let cannot = |error: glob::GlobError| cannot("read", error.path(), error.error());
    paths.map(|path| path.map_err(cannot)).filter(|path| !path.as_ref().is_ok_and(|path| path.is_dir())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(patterns: &[&str]) -> Result<Vec<String>, String> {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        match find(&patterns) {
            Ok(targets) => Ok(targets.into_iter().map(|target| target.scenario.name).collect()),
            Err(Problem::Other(text)) => Err(text),
            Err(_) => Err("another problem".to_owned()),
        }
    }

    #[test]
    fn a_scenario_that_two_patterns_match_is_explored_once() {
        let found = names(&["scenarios/fast/power-loss-*sync-flush.toml", "scenarios/fast/*-sync-flush.toml"]);
        assert_eq!(found, Ok(vec!["power-loss-async-flush".to_owned(), "power-loss-sync-flush".to_owned()]));
    }

    #[test]
    fn a_folder_stands_for_its_files() {
        let found = names(&["scenarios/mutants"]).unwrap();
        assert!(found.contains(&"ack-before-flush".to_owned()), "{found:?}");
    }

    #[test]
    fn what_matches_nothing_or_is_no_pattern_is_named() {
        assert_eq!(names(&["scenarios/none-*.toml"]), Err("no scenario matches `scenarios/none-*.toml`".to_owned()));
        assert!(names(&["scenarios/***"]).unwrap_err().starts_with("`scenarios/***` is not a pattern of files: "));
    }
}
