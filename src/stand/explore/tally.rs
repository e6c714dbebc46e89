//! What all seeds of a job came to: failures by the way they fail, marks, and when there is enough of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sim::{coverage, verdict::Verdict};

use super::{
    outcome::{Outcome, Pairs, Way},
    targets::Target,
};

/// How many examples of a group are kept: the fastest.
const EXAMPLES_MAX: usize = 3;

/// Runs that fail in the same way.
#[derive(Debug, Default)]
pub struct Group {
    /// How many.
    pub count: u64,
    /// The fastest of them, the fastest first.
    pub fastest: Vec<Outcome>,
}

/// The sums of a job.
#[derive(Debug, Default)]
pub struct Tally {
    /// How many seeds were run.
    pub seeds: u64,
    /// How much time they simulated.
    pub virtual_ms: u64,
    /// Those that failed.
    pub groups: BTreeMap<Way, Group>,
    /// How many seeds have been run since one reached a new mark or a new pair.
    pub quiet_for: u64,
    /// The states that runs were in while faults were in effect, by kind of fault.
    pub pairs: Pairs,
    scenarios: BTreeMap<String, OfScenario>,
}

/// The sums of one scenario.
#[derive(Debug, Default)]
struct OfScenario {
    seeds: u64,
    marks: BTreeSet<String>,
    /// What its failures were about.
    failed: BTreeSet<String>,
}

impl Tally {
    /// Adds what a seed came to, and leaves in its marks and pairs those that are new.
    pub fn add(&mut self, outcome: &mut Outcome) {
        let scenario = self.scenarios.entry(outcome.scenario.clone()).or_default();
        scenario.seeds += 1;
        scenario.failed.extend(outcome.failure.iter().map(|failure| failure.way.about.clone()));
        outcome.new_marks.retain(|mark| scenario.marks.insert(mark.clone()));
        for (kind, states) in &mut outcome.new_pairs {
            let known = self.pairs.entry(kind.clone()).or_default();
            states.retain(|state| known.insert(state.clone()));
        }
        outcome.new_pairs.retain(|_, states| !states.is_empty());
        self.seeds += 1;
        self.virtual_ms += outcome.virtual_ms;
        let is_new = !outcome.new_marks.is_empty() || !outcome.new_pairs.is_empty();
        self.quiet_for = if is_new { 0 } else { self.quiet_for + 1 };
        if let Some(failure) = &outcome.failure {
            let group = self.groups.entry(failure.way.clone()).or_default();
            group.count += 1;
            let place = group.fastest.partition_point(|other| other.real_ms <= outcome.real_ms);
            group.fastest.insert(place, outcome.clone());
            group.fastest.truncate(EXAMPLES_MAX);
        }
    }

    /// The groups, the gravest first.
    pub fn by_gravity(&self) -> Vec<(&Way, &Group)> {
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by_key(|(way, group)| (way.gravity(), std::cmp::Reverse(group.count)));
        groups
    }

    /// What the scenarios say must be reached in some seed, and was in none.
    pub fn never_seen(&self, targets: &[Target]) -> Vec<String> {
        let mut missing = Vec::new();
        for Target { name, scenario, .. } in targets {
            let Some(OfScenario { seeds, marks, failed }) = self.scenarios.get(name) else {
                missing.push(format!("{name}: not one seed was run"));
                continue;
            };
            let expect = &scenario.expect;
            let unseen: Vec<&str> =
                expect.sometimes.iter().map(String::as_str).filter(|mark| !marks.contains(*mark)).collect();
            if !unseen.is_empty() {
                missing.push(format!("{name}: {}", unseen.join(", ")));
            }
            let budget_spent = *seeds >= u64::from(expect.within);
            if let Some(checker) = expect.fails.as_ref().filter(|checker| budget_spent && !failed.contains(*checker)) {
                missing.push(format!("{name}: {checker} was expected to fail, and did not in {seeds} seeds"));
            }
        }
        missing
    }

    /// How many pairs of fault and state were reached, and how many there are of the kinds that happened at all.
    pub fn coverage(&self) -> (usize, usize) {
        (self.pairs.values().map(BTreeSet::len).sum(), self.pairs.len() * coverage::states().len())
    }

    /// For each kind of fault that happened, the states that nothing was in meanwhile.
    pub fn never_paired(&self) -> Vec<(&str, Vec<&'static str>)> {
        let missing = |reached: &BTreeSet<String>| {
            coverage::states().into_iter().filter(|state| !reached.contains(*state)).collect()
        };
        self.pairs.iter().map(|(kind, reached)| (kind.as_str(), missing(reached))).collect()
    }

    /// What the job came to: the gravest failure, else whether something was never seen.
    pub fn verdict(&self, targets: &[Target]) -> Verdict {
        let gravest = self.by_gravity().first().and_then(|(way, _)| Verdict::from_name(&way.verdict));
        gravest.unwrap_or_else(|| match self.never_seen(targets).is_empty() {
            true => Verdict::Pass,
            false => Verdict::Opportunity,
        })
    }
}

/// When a job ends, besides at the end of its seeds.
#[derive(Debug, Clone, Copy, Default)]
pub struct StopRules {
    /// After this real time.
    pub budget: Option<Duration>,
    /// At the first failure.
    pub first_failure: bool,
    /// After so many seeds in a row without a new mark or pair, if everything that must be seen has been.
    pub quiet_after: Option<u64>,
}

/// Why a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// All its seeds were run.
    SeedsDone,
    /// Its time is over.
    Budget,
    /// A seed failed.
    FirstFailure,
    /// Nothing new comes any more.
    Quiet,
    /// Someone ended it.
    Interrupted,
}

impl Stop {
    /// The reason in words.
    pub fn text(self) -> &'static str {
        match self {
            Stop::SeedsDone => "all seeds were run",
            Stop::Budget => "the budget is spent",
            Stop::FirstFailure => "a seed failed",
            Stop::Quiet => "no seed reached anything new",
            Stop::Interrupted => "interrupted",
        }
    }
}

impl StopRules {
    /// Whether to stop now, and why.
    pub fn reason(&self, tally: &Tally, targets: &[Target], elapsed: Duration) -> Option<Stop> {
        if self.first_failure && !tally.groups.is_empty() {
            return Some(Stop::FirstFailure);
        }
        if self.budget.is_some_and(|budget| elapsed >= budget) {
            return Some(Stop::Budget);
        }
        let quiet = self.quiet_after.is_some_and(|seeds| tally.quiet_for >= seeds);
        (quiet && tally.never_seen(targets).is_empty()).then_some(Stop::Quiet)
    }
}

#[cfg(test)]
mod tests {
    use sim::scenario::Scenario;

    use super::{super::outcome::Failure, *};

    const FILE: &str = "format = 1\nactive = \"60s\"\n[[broker]]\nname = \"broker-a\"\n[[topic]]\nname = \"orders\"\n\
                        [[producer]]\ngroup = \"checkout\"\ntopic = \"orders\"\nrate = \"1/s\"\n\
                        [[consumer]]\ngroup = \"billing\"\nsubscribe = \"orders\"\n[expect]\n";

    fn target(name: &str, expect: &str) -> Target {
        let scenario = Scenario::parse(name, &format!("{FILE}{expect}")).unwrap();
        Target { file: name.into(), name: name.into(), hash: "1".into(), scenario }
    }

    fn outcome(scenario: &str, seed: u64, marks: &[&str]) -> Outcome {
        Outcome {
            scenario: scenario.into(),
            seed,
            mutant: None,
            scenario_hash: "1".into(),
            build: "2".into(),
            verdict: "pass".into(),
            hash: String::new(),
            virtual_ms: 10,
            real_ms: 1,
            counts: BTreeMap::new(),
            new_marks: marks.iter().map(|mark| (*mark).to_owned()).collect(),
            new_pairs: Pairs::new(),
            failure: None,
        }
    }

    fn failing(scenario: &str, seed: u64, real_ms: u64, (verdict, about, by): (&str, &str, &str)) -> Outcome {
        let way = Way { verdict: verdict.into(), about: about.into(), by: by.into() };
        let failure = Some(Failure { way, what: format!("{about}: 1") });
        Outcome { real_ms, failure, ..outcome(scenario, seed, &[]) }
    }

    fn tally(outcomes: impl IntoIterator<Item = Outcome>) -> Tally {
        let mut tally = Tally::default();
        outcomes.into_iter().for_each(|mut outcome| tally.add(&mut outcome));
        tally
    }

    #[test]
    fn failures_are_grouped_by_verdict_checker_and_witness_and_the_gravest_comes_first() {
        let ways = [
            ("safety", "lost", "append recover"),
            ("safety", "lost", "append"),
            ("panic", "panic", "put.rs:1"),
            ("safety", "lost", "append recover"),
            ("liveness", "stuck", "pending"),
        ];
        let tally = tally((0..).zip(ways).map(|(seed, way)| failing("a", seed, 5, way)));
        let told: Vec<_> =
            tally.by_gravity().iter().map(|(way, group)| (way.about.as_str(), way.by.as_str(), group.count)).collect();
        let expected =
            [("panic", "put.rs:1", 1), ("lost", "append recover", 2), ("lost", "append", 1), ("stuck", "pending", 1)];
        assert_eq!(told, expected);
        assert_eq!(tally.verdict(&[]), Verdict::Panic);
    }

    #[test]
    fn the_three_fastest_of_a_group_are_kept() {
        let way = ("safety", "lost", "append");
        let tally = tally([40, 10, 30, 20, 50].into_iter().zip(0..).map(|(ms, seed)| failing("a", seed, ms, way)));
        let group = tally.groups.values().next().unwrap();
        let kept: Vec<_> = group.fastest.iter().map(|run| (run.seed, run.real_ms)).collect();
        assert_eq!((group.count, kept), (5, vec![(1, 10), (3, 20), (2, 30)]));
    }

    #[test]
    fn a_mark_is_new_once_for_each_scenario() {
        let mut tally = Tally::default();
        let mut new = |mut outcome: Outcome| {
            tally.add(&mut outcome);
            (outcome.new_marks.len(), tally.quiet_for)
        };
        assert_eq!(new(outcome("a", 0, &["x", "y"])), (2, 0));
        assert_eq!(new(outcome("a", 1, &["x"])), (0, 1));
        assert_eq!(new(outcome("b", 0, &["x"])), (1, 0));
        assert_eq!(new(outcome("b", 1, &[])), (0, 1));
        assert_eq!(new(outcome("b", 2, &[])), (0, 2));
    }

    #[test]
    fn a_pair_is_new_once_and_what_is_missing_is_told_of_kinds_that_happened() {
        let mut tally = Tally::default();
        let mut new = |scenario: &str, kind: &str, state: &str| {
            let new_pairs = [(kind.to_owned(), [state.to_owned()].into())].into();
            let mut outcome = Outcome { new_pairs, ..outcome(scenario, 0, &[]) };
            tally.add(&mut outcome);
            (outcome.new_pairs.len(), tally.quiet_for)
        };
        assert_eq!(new("a", "kill", "log-flushing"), (1, 0));
        assert_eq!(new("b", "kill", "log-flushing"), (0, 1));
        assert_eq!(new("b", "cut", "log-flushing"), (1, 0));
        assert_eq!(tally.coverage(), (2, 2 * coverage::states().len()));
        let never = tally.never_paired();
        let kinds: Vec<&str> = never.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, ["cut", "kill"]);
        assert!(never.iter().all(|(_, states)| !states.contains(&"log-flushing") && states.contains(&"log-rolled")));
    }

    #[test]
    fn what_must_be_seen_and_was_not_fails_a_job_without_failures() {
        let targets = [target("a", "sometimes = [\"torn-page\", \"rebalance\"]"), target("b", ""), target("c", "")];
        let tally = tally([outcome("a", 0, &["rebalance"]), outcome("b", 0, &[])]);
        assert_eq!(tally.never_seen(&targets), ["a: torn-page", "c: not one seed was run"]);
        assert_eq!(tally.verdict(&targets), Verdict::Opportunity);
        assert_eq!(tally.verdict(&targets[1..2]), Verdict::Pass);
    }

    #[test]
    fn a_planted_bug_must_be_caught_within_its_budget_of_seeds() {
        let targets = [target("a", "verdict = \"fail:lost\"\nwithin = 2")];
        let one = tally([outcome("a", 0, &[])]);
        assert!(one.never_seen(&targets).is_empty());
        let two = tally([outcome("a", 0, &[]), outcome("a", 1, &[])]);
        assert_eq!(two.never_seen(&targets), ["a: lost was expected to fail, and did not in 2 seeds"]);
        let caught = tally([outcome("a", 0, &[]), failing("a", 1, 1, ("safety", "lost", ""))]);
        assert!(caught.never_seen(&targets).is_empty());
        assert_eq!(caught.verdict(&targets), Verdict::Safety);
    }

    #[test]
    fn a_job_stops_by_its_rules_only() {
        let targets = [target("a", "sometimes = [\"rebalance\"]")];
        let now = |rules: StopRules, tally: &Tally| rules.reason(tally, &targets, Duration::from_secs(60));
        let calm = tally([outcome("a", 0, &["rebalance"]), outcome("a", 1, &[]), outcome("a", 2, &[])]);
        let failed = tally([failing("a", 0, 1, ("safety", "lost", ""))]);
        let unseen = tally((0..9).map(|seed| outcome("a", seed, &[])));
        let rules = StopRules::default();
        assert_eq!(now(rules, &failed), None);
        assert_eq!(now(StopRules { first_failure: true, ..rules }, &failed), Some(Stop::FirstFailure));
        assert_eq!(now(StopRules { first_failure: true, ..rules }, &calm), None);
        assert_eq!(now(StopRules { budget: Some(Duration::from_secs(60)), ..rules }, &calm), Some(Stop::Budget));
        assert_eq!(now(StopRules { budget: Some(Duration::from_secs(61)), ..rules }, &calm), None);
        assert_eq!(now(StopRules { quiet_after: Some(2), ..rules }, &calm), Some(Stop::Quiet));
        assert_eq!(now(StopRules { quiet_after: Some(3), ..rules }, &calm), None);
        assert_eq!(now(StopRules { quiet_after: Some(2), ..rules }, &unseen), None);
    }
}
