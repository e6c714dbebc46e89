//! What one run tells: a report for people, one JSON object for programs.

use std::{fmt::Write as _, path::Path, time::Duration};

use serde_json::{Value, json};
use sim::{
    checkers::Violation,
    fates::fates,
    history::{Event, HASH_VERSION, History},
    plan::Plan,
    run::Finished,
    verdict::{Judgement, Verdict},
};

/// The most lines of a report.
const LINES_MAX: usize = 24;

/// A finished run with all that is told about it.
pub struct Shown<'a> {
    /// The scenario file, as the user wrote it.
    pub file: &'a Path,
    /// What was run.
    pub plan: &'a Plan,
    /// The planted bug that was switched on.
    pub mutant: Option<&'a str>,
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
        let mutant = self.mutant.map(|name| format!(" --mutant {name}")).unwrap_or_default();
        format!("staticfire run {} --seed {}{mutant}", self.file.display(), self.plan.seeds.root.0)
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
        let problems: Vec<Value> = self
            .judgement
            .problems
            .iter()
            .map(|(verdict, what)| json!({ "verdict": verdict.name(), "what": what }))
            .collect();
        let hex = |hash: &u128| format!("{hash:032x}");
        json!({
            "scenario": self.plan.scenario.name,
            "seed": self.plan.seeds.root.0,
            "verdict": self.judgement.verdict.name(),
            "violated": self.judgement.violated,
            "problems": problems,
            "hash": hex(&self.run.hash.hash),
            "hash_version": HASH_VERSION,
            "records": self.run.hash.count,
            "checkpoints": self.run.hash.checkpoints.iter().map(hex).collect::<Vec<_>>(),
            "side_hash": hex(&self.run.side.hash),
            "side_events": self.run.side.count,
            "virtual_ms": millis(self.run.elapsed),
            "polls": self.run.polls,
            "checkers": checkers,
            "counts": self.run.findings.counts,
            "marks": self.run.findings.marks,
            "fates": fates(&self.plan.scenario, self.run, self.judgement),
            "repeat": self.repeat(),
            "build": super::child::build_id(),
            "real_ms": millis(self.real),
        })
        .to_string()
    }

    /// The report, at most 24 lines.
    pub fn text(&self) -> String {
        let mut lines = vec![self.headline()];
        let problems = self.judgement.problems.iter();
        lines.extend(problems.take(5).map(|(verdict, what)| format!("  {}: {}", verdict.name(), shorten(what))));
        if let Some(violation) = self.witness() {
            lines.push("witness".to_owned());
            lines.extend(lines_of_witness(&self.run.history, violation));
        }
        lines.extend(self.body());
        lines.truncate(LINES_MAX - 1);
        lines.push(format!("repeat: {}", self.repeat()));
        lines.join("\n") + "\n"
    }

    fn headline(&self) -> String {
        let (verdict, scenario) = (self.judgement.verdict, &self.plan.scenario.name);
        let word = if verdict == Verdict::Pass { "PASS".to_owned() } else { format!("FAIL {}", verdict.name()) };
        let mutant = self.mutant.map(|name| format!("   planted bug {name}")).unwrap_or_default();
        format!("{word}   scenario {scenario}   seed {}{mutant}", self.plan.seeds.root.0)
    }

    fn witness(&self) -> Option<&Violation> {
        let violated = |report: &&sim::checkers::Report| self.judgement.violated.contains(report.checker);
        self.run.findings.reports.iter().find(violated).and_then(|report| report.violations.first())
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
        lines.extend(wrap("faults   ", &faults(&self.run.history)));
        lines.push(format!("phases   {}", phases(&self.run.history)));
        lines.push(format!(
            "time     {} virtual in {} real, {} polls",
            at(u64::try_from(self.run.elapsed.as_nanos()).unwrap_or(u64::MAX)),
            at(u64::try_from(self.real.as_nanos()).unwrap_or(u64::MAX)),
            self.run.polls
        ));
        lines.push(format!(
            "hash     {:032x} over {} records   build {}",
            self.run.hash.hash,
            self.run.hash.count,
            super::child::build_id()
        ));
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

/// Each fault with the times it began and ended.
fn faults(history: &History) -> Vec<String> {
    let mut faults: Vec<(String, String)> = Vec::new();
    for record in &history.records {
        match &record.event {
            Event::FaultBegin(id, kind) => faults.push((id.clone(), format!("{id} {kind} {}..", at(record.at)))),
            Event::FaultEnd(id) => {
                if let Some((_, text)) = faults.iter_mut().rev().find(|(other, _)| other == id) {
                    text.push_str(&at(record.at));
                }
            }
            _ => {}
        }
    }
    faults.into_iter().map(|(_, text)| text).collect()
}

fn lines_of_witness(history: &History, violation: &Violation) -> Vec<String> {
    let line = |&index: &usize| history.line(index);
    violation.witness.iter().take(10).map(|index| format!("  {}", shorten(&line(index)))).collect()
}

fn at(nanos: u64) -> String {
    format!("{}.{:03} s", nanos / 1_000_000_000, nanos / 1_000_000 % 1_000)
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
