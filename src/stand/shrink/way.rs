//! The way in which a run fails, and whether another run fails in the same way.

use std::time::Duration;

use serde_json::Value;
use sim::{
    scenario::{CHECKERS, Expect, FAILURES},
    verdict::Verdict,
};

use crate::stand::child::Ran;

/// What two runs that fail in the same way have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The checker or the bound, or how the process died.
    pub about: String,
    /// The class of the violation, the place of the panic, or the name of the statement that does not hold.
    pub class: String,
}

/// One problem of a result.
struct Told<'a>(&'a Value);

impl<'a> Told<'a> {
    /// All problems, those that were not expected first.
    fn all(ran: &'a Ran) -> impl Iterator<Item = Told<'a>> {
        let of = |list: &str| ran.result.get(list).and_then(Value::as_array).into_iter().flatten();
        let wrong = of("problems").chain(of("expected")).map(Told);
        wrong.filter(|told| told.text("verdict") != Verdict::Opportunity.name())
    }

    fn text(&self, key: &str) -> &'a str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Its classes; of a panic the places, if the process told them.
    fn classes(&self, ran: &'a Ran) -> Vec<&'a str> {
        let places = ran.places_of_panics();
        if self.text("about") == "panic" && !places.is_empty() {
            return places;
        }
        self.0.get("classes").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

impl Way {
    /// How a run failed; `None` if nothing is wrong with it, or nothing but that it did not do what it was for. If the
    /// scenario expects something to fail, that counts before everything else that was to be expected.
    pub fn of(ran: &Ran, expected: Option<&str>) -> Option<Way> {
        if ran.result.is_null() {
            return Some(died(ran));
        }
        let mut all: Vec<Told<'_>> = Told::all(ran).collect();
        let is_wrong = ran.result.pointer("/problems/0/verdict").and_then(Value::as_str);
        if is_wrong.is_none_or(|verdict| verdict == Verdict::Opportunity.name()) {
            all.sort_by_key(|told| expected != Some(told.text("about")));
        }
        let told = all.first()?;
        let class = told.classes(ran).first().map_or(String::new(), |class| (*class).to_owned());
        Some(Way { about: told.text("about").to_owned(), class })
    }

    /// Whether a run fails in this way; if so, when it had shown itself, as far as that is known.
    pub fn is_shown_by(&self, ran: &Ran) -> Option<Option<Duration>> {
        if ran.result.is_null() {
            return (died(ran) == *self).then_some(None);
        }
        // The scenario expects this failure, so anything that is wrong is something worse.
        if self.can_be_expected() && ran.verdict != Verdict::Pass {
            return None;
        }
        let same =
            |told: &Told<'_>| told.text("about") == self.about && told.classes(ran).contains(&self.class.as_str());
        let told = Told::all(ran).find(same)?;
        Some(told.0.get("shown_us").and_then(Value::as_u64).map(Duration::from_micros))
    }

    /// Whether a scenario can say that it is expected.
    pub fn can_be_expected(&self) -> bool {
        CHECKERS.into_iter().chain(FAILURES).any(|known| known == self.about)
    }

    /// What a scenario that shows only this expects, made from what it expected before.
    pub fn expectation(&self, before: &Expect) -> Expect {
        let mut bounds = before.bounds.clone();
        for (name, bound) in &mut bounds {
            if *name != self.about {
                bound.least = 0;
            }
        }
        Expect {
            fails: self.can_be_expected().then(|| self.about.clone()),
            within: 1,
            bounds,
            converged: before.converged.filter(|_| self.about == "converged"),
            sometimes: Vec::new(),
            at_least: Default::default(),
            must_check: Some(CHECKERS.into_iter().filter(|known| *known == self.about).map(str::to_owned).collect()),
        }
    }
}

fn died(ran: &Ran) -> Way {
    let about = if ran.verdict == Verdict::Limit { "limit" } else { "died" };
    Way { about: about.to_owned(), class: ran.panicked_at().unwrap_or_default().to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sim::scenario::units::Span;

    use super::*;

    fn ran(verdict: Verdict, result: Value, noise: &str) -> Ran {
        Ran { seed: 7, verdict, result, noise: noise.to_owned() }
    }

    fn problem(verdict: Verdict, about: &str, classes: &[&str]) -> Value {
        json!({"verdict": verdict.name(), "about": about, "what": "x", "classes": classes, "shown_us": 1_500_000})
    }

    fn failed(problems: Value, expected: Value) -> Ran {
        let verdict = problems.pointer("/0/verdict").and_then(Value::as_str).and_then(Verdict::from_name);
        let result = json!({"problems": problems, "expected": expected});
        ran(verdict.unwrap_or(Verdict::Pass), result, "")
    }

    fn way(about: &str, class: &str) -> Way {
        Way { about: about.to_owned(), class: class.to_owned() }
    }

    #[test]
    fn the_gravest_problem_is_the_way_of_a_run_and_its_first_class_the_class() {
        let lost = problem(Verdict::Safety, "lost", &["gone for audit", "gone for billing"]);
        let stuck = problem(Verdict::Liveness, "stuck", &["broker-a is down"]);
        let run = failed(json!([lost, stuck]), json!([]));
        assert_eq!(Way::of(&run, None), Some(way("lost", "gone for audit")));
        // A planted bug: what the scenario is about, whatever else it brings.
        let run = failed(json!([]), json!([lost, stuck]));
        assert_eq!(Way::of(&run, Some("stuck")), Some(way("stuck", "broker-a is down")));
        let panic = problem(Verdict::Panic, "panic", &["broker-a panicked"]);
        let run = failed(json!([panic]), json!([stuck]));
        assert_eq!(Way::of(&run, Some("stuck")), Some(way("panic", "broker-a panicked")));
    }

    #[test]
    fn a_run_that_only_missed_its_opportunity_has_no_way() {
        let missed = problem(Verdict::Opportunity, "lost", &["lost was expected to fail, and did not"]);
        assert_eq!(Way::of(&failed(json!([missed]), json!([])), Some("lost")), None);
        assert_eq!(Way::of(&failed(json!([]), json!([])), None), None);
    }

    #[test]
    fn the_same_checker_and_one_common_class_are_the_same_way() {
        let lost = way("lost", "gone for audit");
        let shown = |about: &str, classes: &[&str]| {
            lost.is_shown_by(&failed(json!([]), json!([problem(Verdict::Safety, about, classes)])))
        };
        assert_eq!(shown("lost", &["gone for billing", "gone for audit"]), Some(Some(Duration::from_millis(1500))));
        assert_eq!(shown("lost", &["gone for billing"]), None);
        assert_eq!(shown("unread", &["gone for audit"]), None);
    }

    #[test]
    fn what_hides_a_failure_is_not_the_same_way() {
        let lost = problem(Verdict::Safety, "lost", &["gone"]);
        let panic = problem(Verdict::Panic, "panic", &["x"]);
        assert_eq!(way("lost", "gone").is_shown_by(&failed(json!([panic]), json!([lost]))), None);
    }

    #[test]
    fn panics_and_dead_processes_are_known_by_their_place() {
        let noise = "panicked at store/src/put.rs:31:9:\nwhy\nthread x panicked at broker/src/pull.rs:7:1:\nwhy";
        let problems = json!({"problems": [], "expected": [problem(Verdict::Panic, "panic", &["x"])]});
        let run = ran(Verdict::Pass, problems, noise);
        assert!(way("panic", "store/src/put.rs:31").is_shown_by(&run).is_some());
        assert!(way("panic", "broker/src/pull.rs:7").is_shown_by(&run).is_some());
        assert!(way("panic", "broker/src/pull.rs:8").is_shown_by(&run).is_none());
        let dead = ran(Verdict::Panic, Value::Null, noise);
        assert_eq!(Way::of(&dead, None), Some(way("died", "store/src/put.rs:31")));
        assert_eq!(way("died", "store/src/put.rs:31").is_shown_by(&dead), Some(None));
        assert_eq!(way("died", "").is_shown_by(&ran(Verdict::Limit, Value::Null, "")), None);
    }

    #[test]
    fn a_small_scenario_expects_its_failure_and_nothing_else() {
        let before = Expect {
            bounds: [("lost", Span { least: 0, most: 0 }), ("legally-lost", Span { least: 3, most: 40 })]
                .map(|(name, bound)| (name.to_owned(), bound))
                .into(),
            converged: Some(Duration::from_secs(9)),
            sometimes: vec!["torn-page".to_owned()],
            at_least: [("acked".to_owned(), 7)].into(),
            ..Expect::default()
        };
        let after = way("lost", "gone").expectation(&before);
        assert_eq!((after.fails.as_deref(), after.within, after.converged), (Some("lost"), 1, None));
        assert_eq!(after.bounds["legally-lost"], Span { least: 0, most: 40 });
        assert!(after.sometimes.is_empty() && after.at_least.is_empty());
        assert_eq!(after.must_check, Some(vec!["lost".to_owned()]));
        let late = way("converged", "x").expectation(&before);
        assert_eq!((late.converged, late.must_check), (before.converged, Some(Vec::new())));
        let few = way("legally-lost", "x").expectation(&before);
        assert_eq!(few.bounds, before.bounds);
        assert_eq!(way("died", "").expectation(&before).fails, None);
    }
}
