//! What one seed of a scenario came to, as a line of the results.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sim::verdict::Verdict;

use crate::stand::child::{self, Ran};

use super::targets::Target;

/// One line of the results. What identifies the run comes first: file, seed, planted bug, hash of the file, build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The file of the scenario, as it was named.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// The planted bug that was switched on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutant: Option<String>,
    /// Identifies the text of the scenario.
    pub scenario_hash: String,
    /// Identifies the program.
    pub build: String,
    /// What the run came to.
    pub verdict: String,
    /// The hash of its history, empty if it died.
    pub hash: String,
    /// How much time it simulated.
    pub virtual_ms: u64,
    /// How long it really took.
    pub real_ms: u64,
    /// How often things happened.
    pub counts: BTreeMap<String, u64>,
    /// Marks that no run of this scenario had reached before.
    pub new_marks: BTreeSet<String>,
    /// States that no run of the job had been in before while a fault of this kind was in effect, by kind.
    #[serde(default)]
    pub new_pairs: Pairs,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// States by the kind of fault that was in effect.
pub type Pairs = BTreeMap<String, BTreeSet<String>>;

/// How a run failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What runs that fail in the same way have in common.
    #[serde(flatten)]
    pub way: Way,
    /// The gravest problem, in one line.
    pub what: String,
}

/// A way of failing: two runs with the same way fail in the same group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Way {
    /// The name of the verdict.
    #[serde(rename = "fails_as")]
    pub verdict: String,
    /// The checker, the bound, or how the process died.
    pub about: String,
    /// The kinds of records in the witness, or where the program panicked.
    pub by: String,
}

impl Way {
    /// How grave it is, 0 the gravest.
    pub fn gravity(&self) -> u8 {
        Verdict::from_name(&self.verdict).map_or(u8::MAX, Verdict::gravity)
    }
}

impl Outcome {
    /// What a child came to. Which marks and pairs are new is left for the tally, which knows those of other seeds.
    ///
    /// A planted bug that is caught counts as a failure, since finding it is what exploration is for; a seed that does
    /// not meet it has done nothing wrong.
    pub fn of(target: &Target, mutant: Option<&str>, ran: &Ran, real_ms: u64) -> Outcome {
        let failure = failure(target.scenario.expect.fails.is_some(), ran);
        let counts = ran.result.get("counts").and_then(Value::as_object).into_iter().flatten();
        Outcome {
            scenario: target.name.clone(),
            seed: ran.seed,
            mutant: mutant.map(str::to_owned),
            scenario_hash: target.hash.clone(),
            build: child::build_id().to_owned(),
            verdict: failure.as_ref().map_or(Verdict::Pass.name(), |failure| &failure.way.verdict).to_owned(),
            hash: ran.text("hash").to_owned(),
            virtual_ms: ran.number("virtual_ms"),
            real_ms,
            counts: counts.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect(),
            new_marks: ran.texts("marks").into_iter().map(str::to_owned).collect(),
            new_pairs: pairs_of(ran),
            failure,
        }
    }

    /// The command that runs it again.
    pub fn repeat(&self) -> String {
        let mutant = self.mutant.as_ref().map(|name| format!(" --mutant {name}")).unwrap_or_default();
        format!("staticfire run {} --seed {}{mutant}", self.scenario, self.seed)
    }
}

/// A run that died has none.
fn pairs_of(ran: &Ran) -> Pairs {
    let texts =
        |states: &Value| states.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let pairs = ran.result.get("pairs").and_then(Value::as_object).into_iter().flatten();
    pairs.map(|(kind, states)| (kind.clone(), texts(states))).collect()
}

fn failure(expects_failure: bool, ran: &Ran) -> Option<Failure> {
    if ran.result.is_null() {
        let about = if ran.verdict == Verdict::Limit { "limit" } else { "died" };
        let by = ran.panicked_at().unwrap_or_default();
        return Some(Failure { way: way(ran.verdict.name(), about, by), what: ran.last_words() });
    }
    let of = |list: &str| ran.result.pointer(&format!("/{list}/0")).and_then(|problem| problem_of(problem, ran));
    let missed = |failure: &Failure| expects_failure && failure.way.verdict == Verdict::Opportunity.name();
    of("expected").or_else(|| of("problems").filter(|failure| !missed(failure)))
}

fn problem_of(problem: &Value, ran: &Ran) -> Option<Failure> {
    let text = |key: &str| problem.get(key).and_then(Value::as_str);
    let (verdict, about) = (text("verdict")?, text("about")?);
    let kinds = problem.get("witness").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let by = match ran.panicked_at() {
        Some(place) if verdict == Verdict::Panic.name() => place.to_owned(),
        _ => kinds.collect::<Vec<_>>().join(" "),
    };
    Some(Failure { way: way(verdict, about, &by), what: text("what")?.to_owned() })
}

fn way(verdict: &str, about: &str, by: &str) -> Way {
    Way { verdict: verdict.to_owned(), about: about.to_owned(), by: by.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ran(verdict: Verdict, result: Value, noise: &str) -> Ran {
        Ran { seed: 7, verdict, result, noise: noise.to_owned() }
    }

    fn lost() -> Value {
        json!({"verdict": "safety", "about": "lost", "what": "lost: 2", "witness": ["append", "recover"]})
    }

    #[test]
    fn a_violation_is_known_by_its_checker_and_the_kinds_of_its_witness() {
        let failed = failure(false, &ran(Verdict::Safety, json!({"problems": [lost()]}), "")).unwrap();
        assert_eq!(failed.way, way("safety", "lost", "append recover"));
        assert_eq!(failed.what, "lost: 2");
    }

    #[test]
    fn a_panic_is_known_by_its_place() {
        let noise = "thread 'stand' panicked at store/src/put.rs:31:9:\nwhy";
        let problem = json!({"verdict": "panic", "about": "panic", "what": "x", "witness": ["panic"]});
        let failed = failure(false, &ran(Verdict::Panic, json!({"problems": [problem]}), noise)).unwrap();
        assert_eq!(failed.way, way("panic", "panic", "store/src/put.rs:31"));
        let died = failure(false, &ran(Verdict::Panic, Value::Null, noise)).unwrap();
        assert_eq!(died.way, way("panic", "died", "store/src/put.rs:31"));
    }

    #[test]
    fn a_planted_bug_fails_where_it_is_caught_and_passes_where_it_is_not_met() {
        let caught = ran(Verdict::Pass, json!({"problems": [], "expected": [lost()]}), "");
        assert_eq!(failure(true, &caught).unwrap().way.about, "lost");
        let miss = json!({"verdict": "opportunity", "about": "lost", "what": "expected to fail, did not"});
        let missed = ran(Verdict::Opportunity, json!({"problems": [miss], "expected": []}), "");
        assert_eq!(failure(true, &missed), None);
        assert!(failure(false, &missed).is_some());
    }

    #[test]
    fn an_outcome_is_one_line_that_reads_back() {
        let outcome = Outcome {
            scenario: "a.toml".into(),
            seed: 7,
            mutant: None,
            scenario_hash: "12".into(),
            build: "34".into(),
            verdict: "safety".into(),
            hash: "56".into(),
            virtual_ms: 1,
            real_ms: 2,
            counts: [("acked".to_owned(), 3)].into(),
            new_marks: ["torn-page".to_owned()].into(),
            new_pairs: [("kill".to_owned(), ["log-flushing".to_owned()].into())].into(),
            failure: Some(Failure { way: way("safety", "lost", "append"), what: "lost: 1".into() }),
        };
        let line = serde_json::to_string(&outcome).unwrap();
        insta::assert_snapshot!(line, @r#"{"scenario":"a.toml","seed":7,"scenario_hash":"12","build":"34","verdict":"safety","hash":"56","virtual_ms":1,"real_ms":2,"counts":{"acked":3},"new_marks":["torn-page"],"new_pairs":{"kill":["log-flushing"]},"failure":{"fails_as":"safety","about":"lost","by":"append","what":"lost: 1"}}"#);
        assert_eq!(serde_json::from_str::<Outcome>(&line).unwrap(), outcome);
    }
}
