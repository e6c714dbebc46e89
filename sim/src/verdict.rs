//! Whether a run did what its scenario expects.

use std::collections::BTreeSet;

use crate::{
    history::{Down, Event},
    run::Finished,
    scenario::{
        Scenario,
        units::{Span, print_time},
    },
};

/// What a run came to. The numbers are exit codes (`spec/simulation.md` 8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Everything holds.
    Pass = 0,
    /// Something happened that must not.
    Safety = 10,
    /// Something did not happen in time.
    Liveness = 11,
    /// The product panicked, or a process ended by itself.
    Panic = 12,
    /// Two runs of one seed differ.
    Nondeterminism = 13,
    /// The run had to be ended from outside.
    Limit = 14,
    /// The run did not do what it was for.
    Opportunity = 15,
}

impl Verdict {
    /// The exit code.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        self as u8
    }

    /// Its name in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Safety => "safety",
            Verdict::Liveness => "liveness",
            Verdict::Panic => "panic",
            Verdict::Nondeterminism => "nondeterminism",
            Verdict::Limit => "limit",
            Verdict::Opportunity => "opportunity",
        }
    }

    /// The verdict of this exit code.
    #[must_use]
    pub fn from_exit_code(code: i32) -> Option<Verdict> {
        let all = [
            Verdict::Pass,
            Verdict::Safety,
            Verdict::Liveness,
            Verdict::Panic,
            Verdict::Nondeterminism,
            Verdict::Limit,
            Verdict::Opportunity,
        ];
        all.into_iter().find(|verdict| i32::from(verdict.exit_code()) == code)
    }
}

/// A verdict with its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// What the run came to: the gravest of its problems.
    pub verdict: Verdict,
    /// Checkers that found more than the scenario allows.
    pub violated: BTreeSet<&'static str>,
    /// Everything that is wrong, the gravest first, one line each.
    pub problems: Vec<(Verdict, String)>,
}

/// Judges a run.
#[must_use]
pub fn judge(scenario: &Scenario, run: &Finished) -> Judgement {
    let mut problems: Vec<(Verdict, String)> = Vec::new();
    if let Some(why) = &run.aborted {
        problems.push((Verdict::Limit, why.clone()));
    }
    problems.extend(deaths(run));
    let violated = checkers(scenario, run, &mut problems);
    let bound = scenario.expect.bounds.get("legally-lost");
    let legal = run.findings.legally_lost.len() as u64;
    if let Some(bound) = bound.filter(|bound| !holds(bound, legal)) {
        problems.push((Verdict::Safety, format!("legally-lost: {legal}, expected {} to {}", bound.least, bound.most)));
    }
    problems.extend(convergence(scenario, run));
    problems.extend(opportunities(scenario, run));
    if let Some(expected) = &scenario.expect.fails {
        problems = expected_failure(expected, &violated, problems);
    }
    problems.sort_by_key(|(verdict, _)| gravity(*verdict));
    let verdict = problems.first().map_or(Verdict::Pass, |(verdict, _)| *verdict);
    Judgement { verdict, violated, problems }
}

/// Panics before limits before safety before liveness before missing opportunities.
fn gravity(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Panic => 0,
        Verdict::Limit => 1,
        Verdict::Nondeterminism => 2,
        Verdict::Safety => 3,
        Verdict::Liveness => 4,
        Verdict::Opportunity => 5,
        Verdict::Pass => 6,
    }
}

fn holds(bound: &Span<u64>, count: u64) -> bool {
    (bound.least..=bound.most).contains(&count)
}

/// Panics, and processes that ended by themselves.
fn deaths(run: &Finished) -> Vec<(Verdict, String)> {
    let name = |node: Option<(crate::history::NodeRef, u32)>| {
        node.map_or("the supervisor", |(node, _)| run.history.node(node))
    };
    let of_record = |record: &crate::history::Record| match &record.event {
        Event::Panic(task, message) => Some(format!("{} panicked in `{task}`: {message}", name(record.node))),
        Event::NodeDown(Down::Exit, why) => Some(format!("{} ended by itself: {why}", name(record.node))),
        Event::NodeDown(Down::StopKilled, _) => Some(format!("{} did not stop when asked", name(record.node))),
        _ => None,
    };
    run.history.records.iter().filter_map(of_record).map(|what| (Verdict::Panic, what)).collect()
}

fn checkers(scenario: &Scenario, run: &Finished, problems: &mut Vec<(Verdict, String)>) -> BTreeSet<&'static str> {
    let mut violated = BTreeSet::new();
    for report in &run.findings.reports {
        let allowed = scenario.expect.bounds.get(report.checker).copied().unwrap_or(Span { least: 0, most: 0 });
        if holds(&allowed, report.count) {
            continue;
        }
        violated.insert(report.checker);
        let verdict = if report.checker == "stuck" { Verdict::Liveness } else { Verdict::Safety };
        let first = report.violations.first().map(|violation| format!(", first: {}", violation.what));
        problems.push((verdict, format!("{}: {}{}", report.checker, report.count, first.unwrap_or_default())));
    }
    violated
}

fn convergence(scenario: &Scenario, run: &Finished) -> Option<(Verdict, String)> {
    let bound = scenario.expect.converged?;
    let at = |wanted: &Event| run.history.records.iter().find(|record| record.event == *wanted).map(|record| record.at);
    let (settle, converged) = (at(&Event::Phase("settle"))?, at(&Event::Converged)?);
    let took = std::time::Duration::from_nanos(converged - settle);
    (took > bound).then(|| {
        (Verdict::Liveness, format!("converged after {}, expected within {}", print_time(took), print_time(bound)))
    })
}

fn opportunities(scenario: &Scenario, run: &Finished) -> Vec<(Verdict, String)> {
    let idle = run.findings.reports.iter().filter(|report| report.opportunities == 0);
    let idle = idle.map(|report| format!("checker {} had nothing to check", report.checker));
    let missed = scenario.expect.at_least.iter().filter_map(|(name, least)| {
        let count = run.findings.counts.get(name.as_str()).copied().unwrap_or(0);
        (count < *least).then(|| format!("{name}: {count}, expected at least {least}"))
    });
    idle.chain(missed).map(|what| (Verdict::Opportunity, what)).collect()
}

/// For a planted bug: the named checker must fire, and nothing that could hide it may happen.
fn expected_failure(
    expected: &str,
    violated: &BTreeSet<&'static str>,
    problems: Vec<(Verdict, String)>,
) -> Vec<(Verdict, String)> {
    let mut left: Vec<_> =
        problems.into_iter().filter(|(verdict, _)| gravity(*verdict) < gravity(Verdict::Safety)).collect();
    if !violated.contains(expected) {
        left.push((Verdict::Opportunity, format!("{expected} was expected to fail, and did not")));
    }
    left
}

#[cfg(test)]
mod tests;
