//! The file of results: one line of JSON for each seed, written when the seed has ended.
//!
//! A job goes on where an earlier one stopped: what the file holds for the same build, scenario, planted bug and seed
//! is not run again. Lines of other builds and other texts of a scenario stay as they are and count for nothing.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
};

use crate::stand::{Problem, cannot};

use super::outcome::Outcome;

/// The name of the file in a folder.
const NAME: &str = "results.jsonl";

/// How every line begins, by which half a line is told from the text of something else.
const BEGINNING: &str = "{\"scenario\":";

/// The open file.
pub struct Results {
    path: PathBuf,
    file: File,
}

impl Results {
    /// Opens the file or makes it, and reads what earlier jobs left. A path that ends in `.jsonl` is the file, any other
    /// its folder.
    pub fn open(out: &Path) -> Result<(Results, Vec<Outcome>), Problem> {
        let path = match out.extension().is_some_and(|extension| extension == "jsonl") {
            true => out.to_owned(),
            false => {
                std::fs::create_dir_all(out).map_err(|error| cannot("make the folder", out, &error))?;
                out.join(NAME)
            }
        };
        let opened = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let mut results = Results { file: opened.map_err(|error| cannot("open", &path, &error))?, path };
        match results.file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Problem::Other(format!("another job writes {}", results.path.display())));
            }
            Err(TryLockError::Error(error)) => return Err(cannot("lock", &results.path, &error)),
        }
        let outcomes = results.read()?;
        Ok((results, outcomes))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line.
    pub fn add(&mut self, outcome: &Outcome) -> Result<(), Problem> {
        let mut line = serde_json::to_string(outcome).expect("an outcome is JSON");
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(|error| cannot("write", &self.path, &error))
    }

    /// Reads all lines, and cuts off the half line that a job leaves when it is ended while it writes.
    fn read(&mut self) -> Result<Vec<Outcome>, Problem> {
        let mut text = String::new();
        self.file.read_to_string(&mut text).map_err(|error| cannot("read", &self.path, &error))?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let half = &text[whole..];
        if !half.starts_with(BEGINNING) && !BEGINNING.starts_with(half) {
            return Err(self.no_result(text.lines().count(), "it does not begin as one"));
        }
        let parse = |(number, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| self.no_result(number + 1, &error.to_string()))
        };
        let outcomes = text[..whole].lines().enumerate().map(parse).collect::<Result<_, _>>()?;
        if !half.is_empty() {
            self.file.set_len(whole as u64).map_err(|error| cannot("shorten", &self.path, &error))?;
        }
        Ok(outcomes)
    }

    fn no_result(&self, line: usize, why: &str) -> Problem {
        Problem::Other(format!("{}:{line}: not a result of `staticfire explore`: {why}", self.path.display()))
    }
}

impl Drop for Results {
    /// A process that is being started at this moment has a copy of the handle, which would keep the lock a while.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(seed: u64) -> Outcome {
        let line = format!(
            r#"{{"scenario":"a.toml","seed":{seed},"scenario_hash":"1","build":"2","verdict":"pass","hash":"",
            "virtual_ms":1,"real_ms":1,"counts":{{}},"new_marks":[]}}"#
        );
        serde_json::from_str(&line).unwrap()
    }

    fn problem(out: &Path) -> String {
        match Results::open(out) {
            Err(Problem::Other(text)) => text,
            _ => panic!("it was opened"),
        }
    }

    fn seeds(out: &Path) -> Vec<u64> {
        let Ok((_, outcomes)) = Results::open(out) else { panic!("it was not opened") };
        outcomes.iter().map(|outcome| outcome.seed).collect()
    }

    #[test]
    fn what_one_job_wrote_the_next_one_reads() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a/b");
        let Ok((mut results, _)) = Results::open(&out) else { panic!("it was not opened") };
        assert_eq!(results.path(), out.join("results.jsonl"));
        for seed in [4, 2] {
            assert!(results.add(&outcome(seed)).is_ok());
        }
        assert!(problem(&out).starts_with("another job writes "));
        drop(results);
        assert_eq!(seeds(&out), [4, 2]);
    }

    #[test]
    fn a_line_that_was_cut_anywhere_is_dropped_and_the_next_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.jsonl");
        let line = |seed| serde_json::to_string(&outcome(seed)).unwrap();
        for cut in 0..line(2).len() {
            std::fs::write(&file, format!("{}\n{}", line(1), &line(2)[..cut])).unwrap();
            let Ok((mut results, _)) = Results::open(&file) else { panic!("cut at {cut}") };
            assert!(results.add(&outcome(3)).is_ok());
            drop(results);
            assert_eq!(seeds(&file), [1, 3], "cut at {cut}");
        }
    }

    #[test]
    fn a_file_of_something_else_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.jsonl");
        let begun = format!("{BEGINNING}\nnotes\n");
        for (text, line) in [("my notes", 1), ("{\"a\":1}\n", 1), (begun.as_str(), 1)] {
            std::fs::write(&file, text).unwrap();
            let told = problem(&file);
            assert!(told.contains(&format!("x.jsonl:{line}: not a result of `staticfire explore`")), "{told}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
        assert!(problem(&folder.path().join("none/x.jsonl")).starts_with("cannot open "));
        assert!(problem(&file.join("x")).starts_with("cannot make the folder "));
    }
}
