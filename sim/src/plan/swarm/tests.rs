//! What a swarm draws: statistics, guards, and what does not depend on what.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::plan::Plan;

const FILE: &str = r#"
    format = 1
    active = "2m"
    [[namesrv]]
    count = 3
    [[broker]]
    name = "broker-a"
    [[broker]]
    name = "broker-b"
    [claim]
    survives = ["kill", "power-loss:1"]
    [[topic]]
    name = "orders"
    [[producer]]
    group = "checkout"
    topic = "orders"
    rate = "1/s"
    [[consumer]]
    group = "billing"
    instances = 2
    subscribe = "orders"
    [nemesis]
    mode = "swarm"
    max-down = 2
"#;

fn plan_of(file: &str, seed: u64) -> Scenario {
    Plan::draw(Scenario::parse("x.toml", file).unwrap(), Some(seed)).scenario
}

fn family_of(fault: &Fault) -> &str {
    fault.id.rsplit_once('-').unwrap().0
}

#[test]
fn half_of_the_families_take_part_and_rates_are_log_uniform() {
    const SEEDS: u64 = 4_000;
    for family in FAMILIES {
        let (least, most) = (family.most / RATE_RANGE, family.most);
        let rates: Vec<u64> =
            (0..SEEDS).filter_map(|seed| rate(Seed(seed), family.name, Span { least, most })).collect();
        // Three sigma of a fair coin.
        let off_half = rates.len().abs_diff(SEEDS as usize / 2);
        assert!(off_half * off_half <= 9 * SEEDS as usize / 4, "{}: {} of {SEEDS}", family.name, rates.len());
        assert!(rates.iter().all(|rate| (least..=most).contains(rate)), "{}", family.name);
        // The logarithm is uniform between 0 and 4 octaves: mean 2, sigma 4 / sqrt(12).
        let octaves = rates.iter().map(|rate| (*rate as f64 / least as f64).log2());
        let mean = octaves.sum::<f64>() / rates.len() as f64;
        let sigma = 4.0 / 12_f64.sqrt() / (rates.len() as f64).sqrt();
        assert!((mean - 2.0).abs() <= 3.0 * sigma, "{}: mean {mean}, sigma {sigma}", family.name);
    }
}

#[test]
fn faults_come_as_often_as_their_rate_says() {
    // Free of guards, 6 a minute for 2 minutes: Poisson with mean 12 in the half of the seeds that have it.
    let file = FILE.replace("max-down = 2", "rates = { pause = \"6/m\" }");
    let counts: Vec<usize> = (0..2_000)
        .map(|seed| plan_of(&file, seed).faults.iter().filter(|fault| family_of(fault) == "pause").count())
        .filter(|count| *count > 0)
        .collect();
    let mean = counts.iter().sum::<usize>() as f64 / counts.len() as f64;
    let sigma = (12.0 / counts.len() as f64).sqrt();
    assert!((mean - 12.0).abs() <= 3.0 * sigma, "mean {mean}, sigma {sigma}, {} seeds", counts.len());
}

#[test]
fn a_family_that_is_off_leaves_the_others_as_they_were() {
    for off in FAMILIES {
        let without = FILE.replace("max-down = 2", &format!("max-down = 2\nrates = {{ {} = \"off\" }}", off.name));
        for seed in 0..100 {
            let all = plan_of(FILE, seed);
            let left = plan_of(&without, seed);
            let left: BTreeMap<&str, String> =
                left.faults.iter().map(|fault| (fault.id.as_str(), format!("{fault:?}"))).collect();
            for fault in all.faults.iter().filter(|fault| family_of(fault) != off.name) {
                // The guards may let others through instead, but nothing is ever changed.
                let same = left.get(fault.id.as_str());
                if Window::of(&all, fault).is_none() || same.is_some() {
                    assert_eq!(same, Some(&format!("{fault:?}")), "seed {seed} without {}", off.name);
                }
            }
        }
    }
}

#[test]
fn no_more_servers_are_down_at_a_time_than_allowed() {
    for seed in 0..500 {
        let plan = plan_of(FILE, seed);
        let windows: Vec<Window> = plan.faults.iter().filter_map(|fault| Window::of(&plan, fault)).collect();
        for window in windows.iter().filter(|window| window.is_server) {
            // Whoever is down at this moment; windows end before the moment they name.
            let down = |other: &&Window| other.is_server && other.from <= window.from && window.from < other.to;
            let down: Vec<&Window> = windows.iter().filter(down).collect();
            assert!(down.len() <= 2, "seed {seed}");
            assert!(down.iter().filter(|other| other.kind == "power-loss").count() <= 1, "seed {seed}");
            let nodes: BTreeSet<&str> = down.iter().map(|other| other.node.as_str()).collect();
            assert_eq!(nodes.len(), down.len(), "seed {seed}: a node is down twice at a time");
        }
    }
}

#[test]
fn only_what_is_claimed_loses_power_and_only_a_minority_stays_dead() {
    let unclaimed = FILE.replace(", \"power-loss:1\"", "");
    let mut dead = 0;
    let mut lost_power = 0;
    for seed in 0..200 {
        assert!(!plan_of(&unclaimed, seed).faults.iter().any(|fault| fault.kind.name() == "power-loss"));
        let plan = plan_of(FILE, seed);
        lost_power += plan.faults.iter().filter(|fault| fault.kind.name() == "power-loss").count();
        assert!(plan.permanent.len() <= 1 && plan.permanent.iter().all(|node| node.starts_with("namesrv/")));
        dead += plan.permanent.len();
    }
    assert!(lost_power > 0);
    assert!(dead.abs_diff(100) <= 21, "{dead} of 200, three sigma of a fair coin");
    // Who stays dead by the file is of the same minority.
    let named = FILE.replacen("format = 1", "format = 1\npermanent = [\"namesrv/2\"]", 1);
    assert_ne!(named, FILE);
    assert!((0..200).all(|seed| plan_of(&named, seed).permanent == ["namesrv/2"]));
}

#[test]
fn disks_get_garbage_in_half_of_the_outages_and_backups_of_any_time_before() {
    let file = FILE
        .replace("\"power-loss:1\"", "\"power-loss:1\", \"restore-backup:1\", \"torn-flush:1\"")
        .replace("max-down = 2", "rates = { restore-backup = \"2/m\" }");
    let (mut outages, mut garbage, mut backups, mut parts) = (0_i64, 0_i64, 0.0, 0.0);
    for seed in 0..1_000 {
        for fault in plan_of(&file, seed).faults {
            let When::At(at) = fault.when else { continue };
            match fault.kind {
                FaultKind::PowerLoss { garbage: is_garbage, .. } => {
                    outages += 1;
                    garbage += i64::from(is_garbage);
                }
                FaultKind::RestoreBackup { taken, .. } => {
                    assert!(taken <= at.least);
                    backups += 1.0;
                    parts += taken.as_secs_f64() / at.least.as_secs_f64();
                }
                FaultKind::TornFlush { within, .. } => assert!(within.is_some(), "nobody knew when its node is down"),
                _ => {}
            }
        }
    }
    // Three sigma of a fair coin, and of a uniform number.
    assert!(outages > 100 && (2 * garbage - outages).pow(2) <= 9 * outages, "{garbage} of {outages}");
    let sigma = (1.0 / 12.0_f64 / backups).sqrt();
    assert!(backups > 100.0 && (parts / backups - 0.5).abs() <= 3.0 * sigma, "{parts} of {backups}");
}

#[test]
fn a_plan_has_no_nemesis_and_is_its_own_plan() {
    for seed in 0..20 {
        let printed = plan_of(FILE, seed).print();
        assert!(!printed.contains("nemesis"));
        assert_eq!(Plan::draw(Scenario::parse("x.toml", &printed).unwrap(), None).print(), printed);
    }
}

#[test]
fn what_is_spared_is_not_hit() {
    let file = FILE.replace("max-down = 2", "spare = [\"broker-a\", \"namesrv\", \"checkout/0\"]");
    for seed in 0..100 {
        let hit = plan_of(&file, seed);
        let spared = ["broker-a/0", "namesrv/0", "namesrv/1", "namesrv/2", "checkout/0"];
        assert!(hit.faults.iter().filter_map(|fault| fault.kind.node()).all(|node| !spared.contains(&node)));
        for fault in &hit.faults {
            let FaultKind::Partition { members: Some(members), .. } = &fault.kind else { continue };
            assert!(members.names().iter().all(|node| !spared.contains(&node.as_str())), "{fault:?}");
        }
    }
}

#[test]
fn the_order_of_a_partition_leaves_each_pair_as_it_is_without_a_third() {
    let file = format!(
        "{}[[fault]]\nid = \"f\"\nat = \"1s\"\nkind = \"halves\"\namong = [\"namesrv\", \"broker-a\", \"billing\"]\n",
        FILE.split("[nemesis]").next().unwrap()
    );
    let order = |file: &str, seed| match &plan_of(file, seed).faults[0].kind {
        FaultKind::Partition { members: Some(Members::Order(nodes)), .. } => nodes.clone(),
        other => panic!("{other:?}"),
    };
    let orders: BTreeSet<Vec<String>> = (0..50).map(|seed| order(&file, seed)).collect();
    assert!(orders.len() > 40, "{} orders of 50 seeds", orders.len());
    for seed in 0..50 {
        let mut all = order(&file, seed);
        assert_eq!(all.len(), 6);
        all.retain(|node| !node.starts_with("namesrv/"));
        assert_eq!(order(&file.replace("\"namesrv\", ", ""), seed), all);
    }
}

#[test]
fn who_is_without_power_with_his_domain_counts_as_down() {
    let file = FILE.replace(
        "[nemesis]",
        "[[domain]]\nname = \"rack\"\nnodes = [\"broker-a\", \"broker-b\"]\n[[fault]]\nid = \"f\"\nat = \"1s\"\n\
         kind = \"power-loss\"\ndomain = \"rack\"\ndown = \"118s\"\n[nemesis]",
    );
    for seed in 0..100 {
        let plan = plan_of(&file, seed);
        // Those who die for good are drawn before all others.
        let drawn = plan.faults.iter().filter(|fault| !fault.id.starts_with("dead-"));
        let servers_down = drawn.filter_map(|fault| Window::of(&plan, fault)).filter(|window| {
            window.is_server && window.from >= Duration::from_secs(1) && window.from < Duration::from_secs(119)
        });
        assert_eq!(servers_down.count(), 0, "seed {seed}: two are down already");
    }
}
