//! The search on predicates that are known: it must come to the least that they need, and never give back what passes.

use proptest::prelude::*;

use super::*;
use crate::{
    plan::Plan,
    scenario::{FaultKind, When},
};

/// Two of everything, 200 messages, and a number of faults that are `extra` of their own.
fn file(faults: usize, rate: u32, extra: &str) -> String {
    let mut text = format!(
        r#"
format = 1
active = "10s"
settle = "1m"
permanent = ["namesrv/2"]
[[namesrv]]
count = 3
[[broker]]
name = "broker-a"
config = {{ flushDiskType = "SYNC_FLUSH" }}
[[broker]]
name = "broker-b"
[claim]
survives = ["kill"]
[[topic]]
name = "orders"
[[topic]]
name = "bills"
queues = 8
[[producer]]
group = "checkout"
instances = 2
topic = "orders"
rate = "{rate}/s"
tags = ["paid", "refund"]
[[producer]]
group = "office"
topic = "bills"
rate = "1/s"
mode = "batch"
[[consumer]]
group = "billing"
instances = 2
subscribe = "orders: paid"
later = "5%"
scale = [{{ at = "5s", instances = 4 }}]
[[consumer]]
group = "audit"
join = "8s"
subscribe = "bills"
"#
    );
    for number in 0..faults {
        let node = ["broker-a/0", "broker-b/0", "checkout/1", "billing/3", "namesrv/1"][number % 5];
        let kind = ["kill", "pause", "stop"][number % 3];
        let lasts = if kind == "pause" { "for" } else { "down" };
        text.push_str(&format!(
            "[[fault]]\nid = \"f{number}\"\nat = \"1s..9s\"\nkind = \"{kind}\"\nnode = \"{node}\"\n{lasts} = \"1s..3s\"\n"
        ));
    }
    text + extra
}

fn plan(text: &str) -> Scenario {
    Plan::draw(Scenario::parse("x.toml", text).unwrap(), Some(7)).scenario
}

/// A trial that asks a predicate, as often as the budget allows.
struct Asks<F> {
    fails: F,
    budget: usize,
    /// Everything that was tried.
    tried: Vec<Scenario>,
}

impl<F: Fn(&Scenario) -> bool> Asks<F> {
    fn new(fails: F) -> Asks<F> {
        Asks { fails, budget: usize::MAX, tried: Vec::new() }
    }
}

impl<F: Fn(&Scenario) -> bool> Trial for Asks<F> {
    fn fails(&mut self, candidate: &Scenario) -> Result<Option<Hit>, Stopped> {
        if self.tried.len() == self.budget {
            return Err(Stopped);
        }
        self.tried.push(candidate.clone());
        let hit = Hit { sched: self.tried.len() as u64, shown_at: None };
        Ok((self.fails)(candidate).then_some(hit))
    }
}

fn has_fault(scenario: &Scenario, id: &str) -> bool {
    scenario.faults.iter().any(|fault| fault.id == id)
}

fn has_message(scenario: &Scenario, group: &str, by: u32, n: u32) -> bool {
    let operations = edits::operations(scenario);
    operations.iter().any(|(_, of, producer, number)| (of.as_str(), *producer, *number) == (group, by, n))
}

fn at(scenario: &Scenario, id: &str) -> Duration {
    match scenario.faults.iter().find(|fault| fault.id == id).unwrap().when {
        When::At(at) => at.least,
        When::On { .. } => panic!("{id} is not at a time"),
    }
}

#[test]
fn the_least_that_is_needed_is_found() {
    let whole = plan(&file(41, 10, ""));
    assert_eq!(Size::of(&whole).to_string(), "41 faults, 210 messages, 13 nodes");
    let needs = |scenario: &Scenario| {
        has_fault(scenario, "f3") && has_fault(scenario, "f17") && has_message(scenario, "checkout", 0, 40)
    };
    let mut trial = Asks::new(needs);
    let Shrunk { scenario, complete } = shrink(whole.clone(), &mut trial).unwrap();
    assert!(complete && needs(&scenario), "{}", scenario.print());
    // Fault 3 needs `billing/3`, fault 17 `checkout/1`.
    assert_eq!(Size::of(&scenario).to_string(), "2 faults, 1 message, 8 nodes", "{}", scenario.print());
    let again = Scenario::parse("x.toml", &scenario.print()).unwrap();
    assert_eq!(again.print(), scenario.print());
    // Each of these has one thing less than the plan, and nothing else decides.
    assert_eq!((scenario.namesrvs, scenario.brokers.len(), scenario.topics[0].queues), (1, 1, 1));
    assert!(scenario.brokers[0].config.is_empty() && scenario.claim.is_empty() && scenario.permanent.is_empty());
    assert_eq!(scenario.settle, whole.settle);
}

#[test]
fn the_same_answers_lead_to_the_same_scenario() {
    let found = || {
        let mut trial = Asks::new(|scenario: &Scenario| has_fault(scenario, "f5") && scenario.active.as_secs() >= 4);
        let shrunk = shrink(plan(&file(12, 2, "")), &mut trial).unwrap();
        (shrunk.scenario.print(), trial.tried.len())
    };
    assert_eq!(found(), found());
}

#[test]
fn what_passes_is_not_shrunk() {
    assert!(shrink(plan(&file(3, 2, "")), &mut Asks::new(|_: &Scenario| false)).is_none());
}

#[test]
fn a_spent_budget_ends_the_search_with_what_failed_last() {
    let needs = |scenario: &Scenario| has_fault(scenario, "f3") && has_message(scenario, "checkout", 1, 7);
    for budget in [1, 2, 10, 40] {
        let mut trial = Asks { budget, ..Asks::new(needs) };
        let Shrunk { scenario, complete } = shrink(plan(&file(20, 5, "")), &mut trial).unwrap();
        assert_eq!((complete, trial.tried.len()), (false, budget));
        assert!(needs(&scenario));
    }
}

#[test]
fn the_seed_of_the_scheduler_is_that_of_the_last_failure() {
    let mut trial = Asks::new(|scenario: &Scenario| has_fault(scenario, "f3"));
    let scenario = shrink(plan(&file(6, 2, "")), &mut trial).unwrap().scenario;
    let sched = usize::try_from(scenario.seeds.sched.unwrap()).unwrap();
    let mut tried = trial.tried[sched - 1].clone();
    tried.seeds.sched = scenario.seeds.sched;
    assert_eq!(tried.print(), scenario.print());
}

#[test]
fn nothing_is_tried_twice_and_nothing_that_is_no_scenario() {
    let mut trial = Asks::new(|scenario: &Scenario| has_fault(scenario, "f3") && has_fault(scenario, "f8"));
    shrink(plan(&file(20, 5, "")), &mut trial).unwrap();
    let mut seen = BTreeSet::new();
    for scenario in &trial.tried {
        let text = text_of(scenario);
        Scenario::parse("x.toml", &text).unwrap();
        assert!(seen.insert(text), "tried twice:\n{}", text_of(scenario));
    }
}

#[test]
fn the_end_comes_just_after_the_failure_has_shown_itself() {
    struct Shows;
    impl Trial for Shows {
        fn fails(&mut self, candidate: &Scenario) -> Result<Option<Hit>, Stopped> {
            let shown_at = Some(Duration::from_micros(3_456_789));
            Ok((candidate.active >= Duration::from_millis(3_457)).then_some(Hit { sched: 1, shown_at }))
        }
    }
    let scenario = shrink(plan(&file(20, 5, "")), &mut Shows).unwrap().scenario;
    assert_eq!(scenario.active, Duration::from_millis(3_457));
}

const HELD: &str = r#"
[[fault]]
id = "held"
at = "4s"
hold = { point = "store.flushing", node = "broker-a/0", nth = 3, until = "target" }
[[fault]]
id = "target"
at = "6s"
kind = "kill"
node = "broker-a/0"
down = "1s"
"#;

#[test]
fn a_gate_goes_with_the_fault_that_it_waits_for_and_moves_with_it() {
    let apart = |scenario: &Scenario| at(scenario, "target") - at(scenario, "held");
    let needs = |scenario: &Scenario| {
        let both = has_fault(scenario, "held") && has_message(scenario, "checkout", 0, 9);
        let few_times = scenario.faults.iter().all(|fault| matches!(fault.when, When::At(_)));
        both && few_times && apart(scenario) == Duration::from_secs(2)
    };
    let mut trial = Asks::new(needs);
    let scenario = shrink(plan(&file(5, 5, HELD)), &mut trial).unwrap().scenario;
    assert_eq!(Size::of(&scenario).faults, 2);
    assert_eq!(apart(&scenario), Duration::from_secs(2));
    assert!(at(&scenario, "target") < Duration::from_secs(3), "{}", scenario.print());
    let FaultKind::Hold { gate, .. } = &scenario.faults[0].kind else { panic!("the gate comes first") };
    assert_eq!(gate.nth, 1);
    for tried in &trial.tried {
        assert!(!has_fault(tried, "held") || has_fault(tried, "target"), "{}", tried.print());
    }
}

#[test]
fn a_log_that_must_roll_rolls_with_few_messages() {
    let needs = |scenario: &Scenario| {
        let Some(broker) = scenario.broker("broker-a") else { return false };
        let size = broker.config.iter().find(|(key, _)| key == "mappedFileSizeCommitLog");
        size.and_then(|(_, size)| crate::scenario::units::parse_size(size).ok())
            // Each of 1 KiB at the most, so that larger ones are of no use.
            .is_some_and(|size| edits::operations(scenario).len() as u64 * 1024 >= 2 * size)
    };
    let text = file(2, 10, "").replacen("\"SYNC_FLUSH\"", "\"SYNC_FLUSH\", mappedFileSizeCommitLog = \"64KiB\"", 1);
    let scenario = shrink(plan(&text), &mut Asks::new(needs)).unwrap().scenario;
    assert!(needs(&scenario) && Size::of(&scenario).messages <= 20, "{}", scenario.print());
}

#[test]
fn what_needs_much_data_need_not_need_many_messages() {
    let bytes = |scenario: &Scenario| {
        let mut sum = 0;
        edits::each_send(&mut scenario.clone(), |send| sum += send.body_bytes);
        sum
    };
    let needs = |scenario: &Scenario| bytes(scenario) >= 40_000;
    let whole = plan(&file(2, 10, ""));
    assert!((40_000..200_000).contains(&bytes(&whole)), "{}", bytes(&whole));
    let scenario = shrink(whole, &mut Asks::new(needs)).unwrap().scenario;
    assert!(needs(&scenario) && Size::of(&scenario).messages <= 20, "{}", Size::of(&scenario));
}

#[test]
fn a_fault_moves_to_a_point_of_the_program_if_that_will_do() {
    let mut trial = Asks::new(|scenario: &Scenario| {
        has_fault(scenario, "f0") && scenario.faults.iter().any(|fault| fault.id == "f0" && fault.lasts.is_some())
    });
    let scenario = shrink(plan(&file(5, 5, "")), &mut trial).unwrap().scenario;
    let When::On { point, node, nth } = &scenario.faults[0].when else { panic!("{}", scenario.print()) };
    assert_eq!((point.as_str(), node.as_str(), *nth), ("store.appended", "broker-a/0", 1));
    assert_eq!(scenario.faults[0].lasts.unwrap().most, Duration::from_millis(100));
}

#[test]
fn faults_about_many_go_with_those_whom_they_are_about() {
    const MANY: &str = r#"
[[domain]]
name = "rack"
nodes = ["broker-b", "namesrv/2"]
[[domain]]
name = "shelf"
nodes = ["broker-b"]
[[fault]]
id = "rack-dies"
at = "1s"
kind = "power-loss"
domain = "rack"
[[fault]]
id = "shelf-dies"
at = "1s"
kind = "power-loss"
domain = "shelf"
[[fault]]
id = "storm"
at = "1s"
kind = "rebalance-storm"
group = "billing"
every = "1s"
for = "2s"
[[fault]]
id = "grows"
at = "1s"
kind = "config-change"
topic = "bills"
queues = 9
[[fault]]
id = "parted"
at = "1s"
kind = "halves"
order = ["broker-a/0", "billing/0"]
for = "1s"
"#;
    let mut scenario = plan(&file(0, 1, MANY));
    let ids = |scenario: &Scenario| scenario.faults.iter().map(|fault| fault.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&scenario), ["rack-dies", "shelf-dies", "storm", "grows", "parted"]);
    scenario.brokers.retain(|group| group.name != "broker-b");
    scenario.consumers.retain(|group| group.group == "audit");
    scenario.topics.retain(|topic| topic.name != "bills");
    scenario.topics[0].brokers.retain(|broker| broker != "broker-b");
    scenario.producers.retain(|group| group.topic == "orders");
    tidy::tidy(&mut scenario);
    assert_eq!(ids(&scenario), ["rack-dies"], "a name server of it is left");
    Scenario::parse("tidied.toml", &scenario.print()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_monotone_need_is_met_exactly(
        faults in prop::collection::btree_set(0_usize..10, 0..4),
        messages in prop::collection::btree_set((0_u32..2, 0_u32..10), 0..4),
    ) {
        let needs = |scenario: &Scenario| {
            faults.iter().all(|number| has_fault(scenario, &format!("f{number}")))
                && messages.iter().all(|(by, n)| has_message(scenario, "checkout", *by, *n))
        };
        let Shrunk { scenario, complete } = shrink(plan(&file(10, 1, "")), &mut Asks::new(needs)).unwrap();
        let size = Size::of(&scenario);
        prop_assert!(complete && needs(&scenario));
        prop_assert_eq!((size.faults, size.messages), (faults.len(), messages.len()));
    }

    #[test]
    fn of_any_other_need_no_single_fault_or_message_can_be_left_out(salt in any::<u64>()) {
        let whole = plan(&file(8, 1, HELD));
        let parts = |scenario: &Scenario| {
            let faults: Vec<&str> = scenario.faults.iter().map(|fault| fault.id.as_str()).collect();
            format!("{faults:?} {:?} {salt}", edits::operations(scenario))
        };
        let all = parts(&whole);
        let fails = |scenario: &Scenario| {
            let parts = parts(scenario);
            parts == all || digest(parts.as_bytes()).is_multiple_of(3)
        };
        let Shrunk { scenario, complete } = shrink(whole.clone(), &mut Asks::new(fails)).unwrap();
        prop_assert!(complete && fails(&scenario));
        let without = |change: &dyn Fn(&mut Scenario)| {
            let mut smaller = scenario.clone();
            change(&mut smaller);
            tidy::tidy(&mut smaller);
            smaller
        };
        for fault in &scenario.faults {
            prop_assert!(!fails(&without(&|smaller| smaller.faults.retain(|other| other.id != fault.id))));
        }
        let operations = edits::operations(&scenario);
        for left_out in &operations {
            let rest: Vec<_> = operations.iter().filter(|other| *other != left_out).cloned().collect();
            prop_assert!(!fails(&without(&|smaller| edits::retain_operations(smaller, &rest))));
        }
    }
}
