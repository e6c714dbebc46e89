//! Whether a run did what its scenario expects.

use std::collections::BTreeSet;

use indexmap::IndexSet;

use crate::{
    checkers::class_of,
    history::{Down, Event, History},
    run::Finished,
    scenario::{
        ALWAYS, Scenario,
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

/// All verdicts, in the order of their exit codes.
const VERDICTS: [Verdict; 7] = [
    Verdict::Pass,
    Verdict::Safety,
    Verdict::Liveness,
    Verdict::Panic,
    Verdict::Nondeterminism,
    Verdict::Limit,
    Verdict::Opportunity,
];

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
        VERDICTS.into_iter().find(|verdict| i32::from(verdict.exit_code()) == code)
    }

    /// The verdict of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Verdict> {
        VERDICTS.into_iter().find(|verdict| verdict.name() == name)
    }

    /// How grave it is, 0 the gravest: panics before limits before safety before liveness before missing
    /// opportunities.
    #[must_use]
    pub fn gravity(self) -> u8 {
        match self {
            Verdict::Panic => 0,
            Verdict::Limit => 1,
            Verdict::Nondeterminism => 2,
            Verdict::Safety => 3,
            Verdict::Liveness => 4,
            Verdict::Opportunity => 5,
            Verdict::Pass => 6,
        }
    }
}

/// One thing that is wrong with a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What it makes of the run.
    pub verdict: Verdict,
    /// What it is about, the same in every run that fails in this way: the name of a checker or of a bound, or `panic`,
    /// `exit`, `limit`.
    pub about: String,
    /// The whole of it, in one line.
    pub what: String,
    /// The records that show it, in order.
    pub witness: Vec<usize>,
    /// The classes of everything that it sums up, that of the witness first: two runs fail in the same way if they have
    /// a problem about the same with a class in common.
    pub classes: IndexSet<String>,
}

impl Problem {
    fn of(verdict: Verdict, about: &str, what: String) -> Problem {
        let classes = IndexSet::from([class_of(&what)]);
        Problem { verdict, about: about.to_owned(), what, witness: Vec::new(), classes }
    }

    /// The kinds of records that show it, each once, in order of their names.
    #[must_use]
    pub fn witness_kinds(&self, history: &History) -> BTreeSet<&'static str> {
        self.witness.iter().map(|&index| history.records[index].event.kind()).collect()
    }
}

/// A verdict with its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// What the run came to: the gravest of its problems.
    pub verdict: Verdict,
    /// Checkers that found more than the scenario allows.
    pub violated: BTreeSet<&'static str>,
    /// Everything that is wrong, the gravest first.
    pub problems: Vec<Problem>,
    /// What would be wrong, had the scenario not expected it to fail.
    pub expected: Vec<Problem>,
}

/// Judges a run.
#[must_use]
pub fn judge(scenario: &Scenario, run: &Finished) -> Judgement {
    let mut problems = Vec::new();
    if let Some(why) = &run.aborted {
        problems.push(Problem::of(Verdict::Limit, "limit", why.clone()));
    }
    problems.extend(deaths(run));
    if let Some(broken) = broken(run) {
        // The run ended there: what had not come to its end proves nothing.
        problems.push(broken);
        return judgement(scenario, BTreeSet::from([ALWAYS]), problems);
    }
    let violated = checkers(scenario, run, &mut problems);
    let bound = scenario.expect.bounds.get("legally-lost");
    let legal = &run.findings.legally_lost;
    if let Some(bound) = bound.filter(|bound| !holds(bound, legal.len() as u64)) {
        let first = legal.values().next().map(|first| first.witness.clone());
        let what = format!("legally-lost: {}, expected {} to {}", legal.len(), bound.least, bound.most);
        let witness = first.unwrap_or_default();
        let mut problem = Problem { witness, ..Problem::of(Verdict::Safety, "legally-lost", what) };
        if !legal.is_empty() {
            problem.classes = legal.values().map(|lawful| lawful.what.clone()).collect();
        }
        problems.push(problem);
    }
    problems.extend(convergence(scenario, run));
    problems.extend(opportunities(scenario, run));
    judgement(scenario, violated, problems)
}

fn judgement(scenario: &Scenario, violated: BTreeSet<&'static str>, mut problems: Vec<Problem>) -> Judgement {
    problems.sort_by_key(|problem| problem.verdict.gravity());
    let mut expected = Vec::new();
    // A broken statement hides whatever else the run was to show.
    let wanted = scenario.expect.fails.as_ref().filter(|checker| *checker == ALWAYS || !violated.contains(ALWAYS));
    if let Some(checker) = wanted {
        (problems, expected) = expected_failure(checker, problems);
    }
    let verdict = problems.first().map_or(Verdict::Pass, |problem| problem.verdict);
    Judgement { verdict, violated, problems, expected }
}

fn holds(bound: &Span<u64>, count: u64) -> bool {
    (bound.least..=bound.most).contains(&count)
}

/// The `always!` of the product that did not hold.
fn broken(run: &Finished) -> Option<Problem> {
    run.history.records.iter().enumerate().find_map(|(index, record)| {
        let Event::Broken(name) = record.event else { return None };
        let node = record.node.map_or("nobody", |(node, _)| run.history.node(node));
        let what = format!("{ALWAYS}: {name} does not hold on {node}");
        let classes = IndexSet::from([name.to_owned()]);
        Some(Problem { witness: vec![index], classes, ..Problem::of(Verdict::Safety, ALWAYS, what) })
    })
}

/// Panics, and processes that ended by themselves. One whose disk had let a call go wrong may end: nobody can go on
/// without his files.
fn deaths(run: &Finished) -> Vec<Problem> {
    let name = |node: Option<(crate::history::NodeRef, u32)>| {
        node.map_or("the supervisor", |(node, _)| run.history.node(node))
    };
    let of_record = |(index, record): (usize, &crate::history::Record)| {
        let (about, what) = match &record.event {
            Event::Panic(task, message) => ("panic", format!("{} panicked in `{task}`: {message}", name(record.node))),
            Event::NodeDown(Down::Exit, _) if run.history.failed_by_its_disk(record.node, index) => return None,
            Event::NodeDown(Down::Exit, why) => ("exit", format!("{} ended by itself: {why}", name(record.node))),
            Event::NodeDown(Down::StopKilled, _) => {
                ("stop-killed", format!("{} did not stop when asked", name(record.node)))
            }
            _ => return None,
        };
        Some(Problem { witness: vec![index], ..Problem::of(Verdict::Panic, about, what) })
    };
    run.history.records.iter().enumerate().filter_map(of_record).collect()
}

fn checkers(scenario: &Scenario, run: &Finished, problems: &mut Vec<Problem>) -> BTreeSet<&'static str> {
    let mut violated = BTreeSet::new();
    for report in &run.findings.reports {
        let allowed = scenario.expect.bounds.get(report.checker).copied().unwrap_or(Span { least: 0, most: 0 });
        if holds(&allowed, report.count) {
            continue;
        }
        violated.insert(report.checker);
        let verdict = if matches!(report.checker, "leak" | "stuck") { Verdict::Liveness } else { Verdict::Safety };
        let first = report.violations.first();
        let shown = first.map(|violation| format!(", first: {}", violation.what)).unwrap_or_default();
        let what = format!("{}: {}{shown}", report.checker, report.count);
        let witness = first.map(|violation| violation.witness.clone()).unwrap_or_default();
        let classes = report.classes.clone();
        problems.push(Problem { witness, classes, ..Problem::of(verdict, report.checker, what) });
    }
    violated
}

fn convergence(scenario: &Scenario, run: &Finished) -> Option<Problem> {
    let bound = scenario.expect.converged?;
    let at = |wanted: &Event| run.history.records.iter().find(|record| record.event == *wanted).map(|record| record.at);
    let (settle, converged) = (at(&Event::Phase("settle"))?, at(&Event::Converged)?);
    let took = std::time::Duration::from_nanos(converged - settle);
    let what = format!("converged after {}, expected within {}", print_time(took), print_time(bound));
    (took > bound).then(|| Problem::of(Verdict::Liveness, "converged", what))
}

fn opportunities(scenario: &Scenario, run: &Finished) -> Vec<Problem> {
    let missing = |about: &str, what| Problem::of(Verdict::Opportunity, about, what);
    let expect = &scenario.expect;
    let must_check = |name: &str| match &expect.must_check {
        Some(names) => names.iter().any(|must| must == name),
        None => scenario.feeds(name),
    };
    let idle = run.findings.reports.iter().filter(|report| report.opportunities == 0 && must_check(report.checker));
    let idle = idle.map(|report| missing(report.checker, format!("checker {} had nothing to check", report.checker)));
    let missed = expect.at_least.iter().filter_map(|(name, least)| {
        let count = run.findings.counts.get(name.as_str()).copied().unwrap_or(0);
        (count < *least).then(|| missing(name, format!("{name}: {count}, expected at least {least}")))
    });
    idle.chain(missed).collect()
}

/// For a bug that is known: what is named must fail, and nothing that could hide it may happen. What is wrong then, and
/// what is as it should be.
fn expected_failure(wanted: &str, problems: Vec<Problem>) -> (Vec<Problem>, Vec<Problem>) {
    let is_wanted = |problem: &Problem| problem.about == wanted && problem.verdict != Verdict::Opportunity;
    let hides = |problem: &Problem| problem.verdict.gravity() < Verdict::Safety.gravity() && !is_wanted(problem);
    let (mut wrong, mut expected): (Vec<_>, Vec<_>) = problems.into_iter().partition(hides);
    if !expected.iter().any(is_wanted) {
        let what = format!("{wanted} was expected to fail, and did not");
        wrong.push(Problem::of(Verdict::Opportunity, wanted, what));
    }
    expected.retain(|problem| problem.verdict != Verdict::Opportunity);
    (wrong, expected)
}

#[cfg(test)]
mod tests;
