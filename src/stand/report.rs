//! What one run tells: a report for people, one JSON object for programs.

use std::{fmt::Write as _, path::Path, time::Duration};

use serde_json::{Value, json};
use sim::{
    fates::fates,
    history::{Event, HASH_VERSION, History},
    life::{Life, at, faults, life},
    plan::Plan,
    run::Finished,
    verdict::{Judgement, Problem, Verdict},
};

use super::mutants::MUTANTS;

/// The most lines of a report.
const LINES_MAX: usize = 24;

/// The most problems that a report tells.
const PROBLEMS_MAX: usize = 3;

/// The most lines that the faults of a failure take.
const FAULT_LINES_MAX: usize = 3;

/// A finished run with all that is told about it.
pub struct Shown<'a> {
    /// The scenario file, as the user wrote it.
    pub file: &'a Path,
    /// What was run.
    pub plan: &'a Plan,
    /// The planted bug that was switched on.
    pub mutant: Option<&'a str>,
    /// Further arguments that repeat the run.
    pub more: String,
    /// What happened.
    pub run: &'a Finished,
    /// What that means.
    pub judgement: &'a Judgement,
    /// How long it really took.
    pub real: Duration,
}

impl Shown<'_> {
    /// The command that repeats the run.
    fn repeat(&self) -> String {
        format!("{}{}", self.command("run"), self.more)
    }

    /// A command on this file and seed, with the planted bug.
    fn command(&self, name: &str) -> String {
        let mutant = self.mutant.map(|name| format!(" --mutant {name}")).unwrap_or_default();
        format!("staticfire {name} {} --seed {}{mutant}", self.file.display(), self.plan.seeds.root.0)
    }

    /// The run as one line of JSON. Everything but `real_ms` and `build` is the same whenever it is repeated.
    pub fn json(&self) -> String {
        let checkers: serde_json::Map<String, Value> = self
            .run
            .findings
            .reports
            .iter()
            .map(|report| {
                let first = report.violations.first().map(|violation| violation.what.clone());
                let value = json!({
                    "violations": report.count,
                    "opportunities": report.opportunities,
                    "first": first,
                });
                (report.checker.to_owned(), value)
            })
            .collect();
        let told =
            |problems: &[Problem]| problems.iter().enumerate().map(|problem| self.problem(problem)).collect::<Vec<_>>();
        let hex = |hash: &u128| format!("{hash:032x}");
        json!({
            "scenario": self.plan.scenario.name,
            "seed": self.plan.seeds.root.0,
            "verdict": self.judgement.verdict.name(),
            "violated": self.judgement.violated,
            "problems": told(&self.judgement.problems),
            "expected": told(&self.judgement.expected),
            "hash": hex(&self.run.hash.hash),
            "hash_version": HASH_VERSION,
            "records": self.run.hash.count,
            "checkpoints": self.run.hash.checkpoints.iter().map(hex).collect::<Vec<_>>(),
            "side_hash": hex(&self.run.side.hash),
            "side_events": self.run.side.count,
            "virtual_ms": millis(self.run.elapsed),
            "polls": self.run.polls,
            "node_polls": self.run.node_polls,
            "never_fired": self.never_fired(),
            "without_effect": self.without_effect(),
            "checkers": checkers,
            "counts": self.run.findings.counts,
            "marks": self.run.findings.marks,
            "pairs": sim::coverage::pairs(&self.plan.scenario, &self.run.history),
            "fates": fates(&self.plan.scenario, self.run, self.judgement),
            "repeat": self.repeat(),
            "build": super::child::build_id(),
            "real_ms": millis(self.real),
        })
        .to_string()
    }

    /// One problem; the first ones with the life of their witness.
    fn problem(&self, (number, problem): (usize, &Problem)) -> Value {
        let life = (number < PROBLEMS_MAX).then(|| self.life(problem));
        json!({
            "verdict": problem.verdict.name(),
            "about": problem.about,
            "what": problem.what,
            "classes": problem.classes.iter().collect::<Vec<_>>(),
            "witness": problem.witness_kinds(&self.run.history),
            "shown_us": self.shown_us(problem),
            "promises": life.as_ref().map(|life| &life.promises),
            "life": life.as_ref().map(|life| &life.lines),
            "faults": life.as_ref().map(|life| &life.faults),
        })
    }

    /// When the witness is complete, in microseconds from the beginning of the active phase.
    fn shown_us(&self, problem: &Problem) -> Option<u64> {
        let records = &self.run.history.records;
        let active = records.iter().find(|record| record.event == Event::Phase("active"))?.at;
        let last = problem.witness.iter().map(|&index| records[index].at).max()?;
        Some(last.saturating_sub(active) / 1_000)
    }

    fn life(&self, problem: &Problem) -> Life {
        life(&self.plan.scenario, &self.run.history, &problem.witness)
    }

    /// The report, at most 24 lines. `colours` is for terminals.
    pub fn text(&self, colours: bool) -> String {
        let mut lines = vec![self.headline(colours)];
        let mut last = vec![format!("repeat: {}", self.repeat())];
        // Of a planted bug that was caught the same is told as of a bug that nobody planted.
        let Judgement { problems, expected, .. } = self.judgement;
        if let Some(gravest) = problems.first().or(expected.first()) {
            let told = problems.iter().chain(expected).take(PROBLEMS_MAX);
            lines.extend(told.map(|problem| format!("  {}: {}", problem.verdict.name(), shorten(&problem.what))));
            lines.extend(self.told(gravest));
            lines.push(self.phases());
            lines.push(self.time());
            last.extend(self.next_step());
        }
        last.extend(self.nothing_fails());
        let mut end = vec![format!("hash     {:032x} over {} records", self.run.hash.hash, self.run.hash.count)];
        lines.extend(self.body());
        if problems.is_empty() && expected.is_empty() {
            end.splice(0..0, [self.phases(), self.time()]);
            let room = LINES_MAX.saturating_sub(lines.len() + end.len() + last.len());
            lines.extend(wrap_in("faults   ", &faults(&self.run.history), room));
        }
        lines.truncate(LINES_MAX - end.len() - last.len());
        lines.extend(end);
        lines.extend(last);
        lines.join("\n") + "\n"
    }

    /// What to run next. A run that only missed its opportunity cannot be made smaller: it lacks something, and another
    /// seed may have it.
    fn next_step(&self) -> Option<String> {
        let Judgement { problems, expected, .. } = self.judgement;
        if !self.more.is_empty() {
            return None;
        }
        if problems.iter().chain(expected).any(|problem| problem.verdict != Verdict::Opportunity) {
            return Some(format!("shrink: {}", self.command("shrink")));
        }
        let mutant = self.mutant.map(|name| format!(" --mutant {name}")).unwrap_or_default();
        Some(format!("other seeds: staticfire run {} --seeds 0..20{mutant}", self.file.display()))
    }

    /// Why a scenario that expects a failure finds nothing: nobody switched the bug on, or it is fixed.
    fn nothing_fails(&self) -> Option<String> {
        let scenario = &self.plan.scenario;
        scenario.expect.fails.as_ref()?;
        if self.judgement.verdict != Verdict::Opportunity || !self.judgement.violated.is_empty() {
            return None;
        }
        let is_for =
            |name: &&str| scenario.name == **name || scenario.about.starts_with(&format!("Planted bug {name}:"));
        let Some(name) = MUTANTS.into_iter().find(is_for) else {
            let note = "note: if the bug is fixed, write verdict = \"pass\" into the file and keep it";
            return Some(note.to_owned());
        };
        let build = if cfg!(feature = "mutants") { "" } else { ", in a build with --features mutants" };
        let is_off = self.mutant.is_none();
        is_off.then(|| format!("note: the file is for a planted bug: run it with --mutant {name}{build}"))
    }

    fn headline(&self, colours: bool) -> String {
        let (verdict, scenario) = (self.judgement.verdict, &self.plan.scenario.name);
        let word = if verdict == Verdict::Pass { "PASS".to_owned() } else { format!("FAIL {}", verdict.name()) };
        let colour = if verdict == Verdict::Pass { 32 } else { 31 };
        let word = if colours { format!("\x1b[1;{colour}m{word}\x1b[0m") } else { word };
        let mutant = self.mutant.map(|name| format!("   planted bug {name}")).unwrap_or_default();
        let build = super::child::build_id();
        format!("{word}   scenario {scenario}   seed {}{mutant}   build {build}", self.plan.seeds.root.0)
    }

    /// Faults that waited for a point which the run did not come to.
    fn never_fired(&self) -> Vec<String> {
        sim::run::never_fired(&self.plan.scenario, &self.run.history)
    }

    /// Faults that were in effect, and hit nothing.
    fn without_effect(&self) -> Vec<String> {
        sim::run::without_effect(&self.plan.scenario, &self.run.history)
    }

    /// The witness of a problem as the life of its message, and the faults in it.
    fn told(&self, problem: &Problem) -> Vec<String> {
        let life = self.life(problem);
        let mut lines: Vec<String> = life.promises.iter().map(|line| format!("  {}", shorten(line))).collect();
        lines.extend(life.lines.iter().map(|line| format!("  {}", shorten(line))));
        lines.extend(wrap("  faults ", &life.faults).into_iter().take(FAULT_LINES_MAX));
        lines
    }

    fn phases(&self) -> String {
        format!("phases   {}", phases(&self.run.history))
    }

    fn time(&self) -> String {
        format!(
            "time     {} virtual in {} real, {} polls",
            at(u64::try_from(self.run.elapsed.as_nanos()).unwrap_or(u64::MAX)),
            at(u64::try_from(self.real.as_nanos()).unwrap_or(u64::MAX)),
            self.run.polls
        )
    }

    fn body(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let counts = &self.run.findings.counts;
        let shown: Vec<String> =
            counts.iter().filter(|(_, count)| **count > 0).map(|(name, count)| format!("{name} {count}")).collect();
        lines.extend(wrap("counts   ", &shown));
        let checked: Vec<String> = self
            .run
            .findings
            .reports
            .iter()
            .map(|report| format!("{} {}/{}", report.checker, report.count, report.opportunities))
            .collect();
        lines.extend(wrap("checked  ", &checked));
        let marks: Vec<String> = sim::scenario::MARKS
            .iter()
            .filter(|mark| self.run.findings.marks.contains(**mark))
            .map(|mark| (*mark).to_owned())
            .collect();
        lines.extend(wrap("reached  ", &marks));
        lines.extend(wrap("no visit ", &self.never_fired()));
        lines.extend(wrap("hit none ", &self.without_effect()));
        lines
    }
}

/// Beginnings and ends of phases.
fn phases(history: &History) -> String {
    let begun = history.records.iter().filter_map(|record| match record.event {
        Event::Phase(name) => Some(format!("{name} {}", at(record.at))),
        Event::Converged => Some(format!("converged {}", at(record.at))),
        _ => None,
    });
    begun.collect::<Vec<_>>().join("  ")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn shorten(line: &str) -> String {
    const WIDTH_MAX: usize = 160;
    match line.char_indices().nth(WIDTH_MAX) {
        None => line.to_owned(),
        Some((cut, _)) => format!("{}…", &line[..cut]),
    }
}

/// As [`wrap`] in so many lines; the last one says how many words are left out.
fn wrap_in(head: &str, words: &[String], room: usize) -> Vec<String> {
    for shown in (0..=words.len()).rev() {
        let mut lines = wrap(head, &words[..shown]);
        if shown < words.len() {
            lines.push(format!("{}… and {} more", " ".repeat(head.len()), words.len() - shown));
        }
        if lines.len() <= room {
            return lines;
        }
    }
    Vec::new()
}

/// Words in lines of about a hundred characters, the first after `head`.
fn wrap(head: &str, words: &[String]) -> Vec<String> {
    const WIDTH: usize = 100;
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in words {
        if !line.is_empty() && line.len() + word.len() + 2 > WIDTH - head.len() {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push_str("  ");
        }
        line.push_str(word);
    }
    lines.extend((!line.is_empty()).then_some(line));
    let indent = " ".repeat(head.len());
    let mut out = Vec::new();
    for (number, line) in lines.into_iter().enumerate() {
        let mut text = String::new();
        let _ = write!(text, "{}{line}", if number == 0 { head } else { &indent }); // Writing into a string cannot fail.
        out.push(text);
    }
    out
}
