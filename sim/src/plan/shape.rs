//! Sizes, settings and load that differ from seed to seed (`spec/simulation.md` 5.4).
//!
//! What differs is chosen by `vary` of `[nemesis]`; a coin decides for each part of it whether it does in a seed. Every
//! draw is keyed by what it is about, so that one group more or less changes nothing of the others.

use std::ops::RangeInclusive;

use crate::{
    scenario::{
        BrokerGroup, ConsumerGroup, FaultKind, FileSystem, Load, Nemesis, ProducerGroup, Scenario, SendMode, Settings,
        Vary,
    },
    seed::{Domain, Seed, name_hash},
};

const TAKES_PART: Domain = Domain::named("shape.takes-part");
const FILES: Domain = Domain::named("shape.files");
const SETTINGS: Domain = Domain::named("shape.settings");
const LOAD: Domain = Domain::named("shape.load");

/// How often a part differs, in parts per million.
const COIN_PPM: u32 = 500_000;

/// How often one producer group of several is silent, in parts per million.
const SILENT_PPM: u32 = 250_000;

/// Files of a log: small ones roll, are deleted and are recovered often.
const LOG_FILE_BYTES: [u64; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// A disk has room for so many files of its log at least.
const LOG_FILES_MIN: u64 = 32;

/// A log file has room for so many of the largest messages at least.
const MESSAGES_PER_FILE_MIN: u64 = 16;

/// Entries of a file of a consume queue.
const QUEUE_FILE_ENTRIES: [u64; 4] = [100, 300, 1_000, 5_000];
const ENTRY_BYTES: u64 = 20;

/// Settings of brokers that a seed may choose, with the values that make sense. Intervals are in milliseconds, and not
/// longer than RocketMQ's defaults: what is lost or repeated after a crash is judged by those.
const BROKER: &[(&str, RangeInclusive<u64>)] = &[
    ("flushIntervalCommitLog", 20..=500),
    ("flushCommitLogThoroughInterval", 500..=10_000),
    ("flushConsumerOffsetInterval", 200..=5_000),
    ("flushDelayOffsetInterval", 1_000..=10_000),
];
const PRODUCER: &[(&str, RangeInclusive<u64>)] =
    &[("retryTimesWhenSendFailed", 0..=4), ("compressMsgBodyOverHowmuch", 64..=8_192)];
const CONSUMER: &[(&str, RangeInclusive<u64>)] = &[
    ("consumeThreadMax", 1..=32),
    ("consumeMessageBatchMaxSize", 1..=16),
    ("pullBatchSize", 1..=64),
    ("persistConsumerOffsetInterval", 200..=5_000),
];

/// Changes what the file allows to be changed.
pub(super) fn vary(scenario: &mut Scenario, nemesis: &Nemesis, seed: Seed) {
    for part in &nemesis.vary {
        if !seed.draw(TAKES_PART, name_hash(part.name()), 0).chance(COIN_PPM) {
            continue;
        }
        match part {
            Vary::Files => files(scenario, seed),
            Vary::Settings => settings(scenario, seed),
            Vary::Load => load(scenario, nemesis, seed),
        }
    }
}

fn files(scenario: &mut Scenario, seed: Seed) {
    let bodies = scenario.producers.iter().map(|group| match &group.load {
        Load::Drawn { body_bytes, .. } => body_bytes.most,
        Load::Planned(sends) => sends.iter().map(|send| send.body_bytes).max().unwrap_or(0),
    });
    let largest = bodies.max().unwrap_or(0);
    for group in &mut scenario.brokers {
        let mut draws = seed.draws(FILES, name_hash(&group.name));
        let fits = |bytes: &u64| (largest * MESSAGES_PER_FILE_MIN..=group.disk_bytes / LOG_FILES_MIN).contains(bytes);
        let sizes: Vec<u64> = LOG_FILE_BYTES.into_iter().filter(fits).collect();
        if !sizes.is_empty() {
            let bytes = sizes[draws.at(0).below(sizes.len() as u64) as usize];
            set(&mut group.config, "mappedFileSizeCommitLog", bytes);
        }
        let entries = QUEUE_FILE_ENTRIES[draws.at(1).below(QUEUE_FILE_ENTRIES.len() as u64) as usize];
        set(&mut group.config, "mappedFileSizeConsumeQueue", entries * ENTRY_BYTES);
        group.file_system = FileSystem::Any;
    }
}

fn settings(scenario: &mut Scenario, seed: Seed) {
    let choose = |config: &mut Settings, group: &str, choices: &[(&str, RangeInclusive<u64>)]| {
        for (key, range) in choices {
            let mut draws = seed.draws(SETTINGS, name_hash(&format!("{group} {key}")));
            // What the file says stays; of the rest a coin chooses.
            if config.iter().all(|(other, _)| other != key) && draws.at(0).chance(COIN_PPM) {
                set(config, key, draws.at(1).within(range.clone()));
            }
        }
    };
    for BrokerGroup { name, config, .. } in &mut scenario.brokers {
        choose(config, name, BROKER);
    }
    for ProducerGroup { group, config, .. } in &mut scenario.producers {
        choose(config, group, PRODUCER);
    }
    for ConsumerGroup { group, config, .. } in &mut scenario.consumers {
        choose(config, group, CONSUMER);
    }
}

fn load(scenario: &mut Scenario, nemesis: &Nemesis, seed: Seed) {
    let producers = scenario.producers.len() as u64;
    let heard = seed.draw(LOAD, name_hash("heard"), 0).below(producers.max(1));
    for (number, group) in (0..).zip(&mut scenario.producers) {
        let mut draws = seed.draws(LOAD, name_hash(&group.group));
        let Load::Drawn { rate, body_bytes, start, end, .. } = &mut group.load else { continue };
        if number != heard && draws.at(0).chance(SILENT_PPM) {
            *end = *start;
        }
        // A quarter, a half, the same or twice as many.
        match draws.at(1).below(4) {
            0 => rate.per *= 4,
            1 => rate.per *= 2,
            2 => {}
            _ => rate.count *= 2,
        }
        body_bytes.most =
            draws.at(2).log_uniform(body_bytes.least.max(1)..=body_bytes.most.max(1)).max(body_bytes.least);
        if group.mode == SendMode::Sync && draws.at(3).chance(COIN_PPM / 2) {
            let size = draws.at(4).within(2..=8) as u32;
            group.mode = SendMode::Batch { size };
        }
    }
    let named = named(scenario, nemesis);
    for group in scenario.consumers.iter_mut().filter(|group| group.scale.is_empty()) {
        let is_named = named.iter().any(|name| name.rsplit_once('/').is_some_and(|(of, _)| of == group.group));
        let least = if is_named { group.instances } else { 1 };
        let draw = seed.draw(LOAD, name_hash(&group.group), 5);
        group.instances = draw.within(u64::from(least)..=2 * u64::from(group.instances)) as u32;
    }
}

/// The nodes that the file names, which therefore must be there.
fn named(scenario: &Scenario, nemesis: &Nemesis) -> Vec<String> {
    let mut named: Vec<String> = scenario.permanent.iter().chain(&nemesis.spare).cloned().collect();
    named.extend(scenario.domains.iter().flat_map(|domain| domain.nodes.iter().cloned()));
    for fault in &scenario.faults {
        named.extend(fault.kind.node().map(str::to_owned));
        named.extend(fault.kind.link().into_iter().flat_map(|link| [link.from.clone(), link.to.clone()]));
        if let FaultKind::Partition { members: Some(members), .. } = &fault.kind {
            named.extend(members.names().iter().cloned());
        }
    }
    named
}

fn set(config: &mut Settings, key: &str, value: u64) {
    match config.iter_mut().find(|(other, _)| other == key) {
        Some((_, old)) => *old = value.to_string(),
        // In the order in which a file is read.
        None => config
            .insert(config.partition_point(|(other, _)| other.as_str() < key), (key.to_owned(), value.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::plan::Plan;

    const FILE: &str = r#"
        format = 1
        active = "10s"
        [[namesrv]]
        count = 1
        [[broker]]
        name = "broker-a"
        config = { flushIntervalCommitLog = 77 }
        [[broker]]
        name = "broker-b"
        [[topic]]
        name = "orders"
        [[producer]]
        group = "checkout"
        topic = "orders"
        rate = "20/s"
        body = "100B..2KiB"
        [[producer]]
        group = "refunds"
        topic = "orders"
        rate = "20/s"
        body = "100B..2KiB"
        [[consumer]]
        group = "billing"
        subscribe = "orders"
        instances = 2
        [[consumer]]
        group = "audit"
        subscribe = "orders"
        instances = 2
        [[fault]]
        id = "f"
        at = "1s"
        kind = "pause"
        node = "audit/1"
        for = "1s"
        [nemesis]
        mode = "swarm"
    "#;

    fn plan(vary: &str, seed: u64) -> Plan {
        let text = format!("{FILE}vary = {vary}\n");
        Plan::draw(Scenario::parse("x.toml", &text).unwrap(), Some(seed))
    }

    #[test]
    fn every_shape_is_a_scenario_that_can_run() {
        for seed in 0..60 {
            let plan = plan("[\"files\", \"settings\", \"load\"]", seed);
            let again = Scenario::parse("plan.toml", &plan.print()).unwrap();
            assert_eq!(Plan::draw(again, None).print(), plan.print());
            assert!(plan.scenario.consumers[1].instances >= 2, "a fault names audit/1");
            assert!(plan.scenario.brokers[0].config.contains(&("flushIntervalCommitLog".into(), "77".into())));
            let sends = |group: &ProducerGroup| matches!(&group.load, Load::Planned(sends) if !sends.is_empty());
            assert!(plan.scenario.producers.iter().any(sends), "somebody sends");
        }
    }

    #[test]
    fn each_part_differs_in_about_half_of_the_seeds_and_only_if_it_may() {
        let shape = |plan: &Plan| {
            let Scenario { brokers, producers, consumers, .. } = &plan.scenario;
            let config = |key: &str| brokers.iter().any(|group| group.config.iter().any(|(other, _)| other == key));
            let settings = producers.iter().any(|group| !group.config.is_empty())
                || consumers.iter().any(|group| !group.config.is_empty());
            let sends: Vec<usize> = producers
                .iter()
                .map(|group| if let Load::Planned(sends) = &group.load { sends.len() } else { 0 })
                .collect();
            (config("mappedFileSizeCommitLog"), settings, sends != [200, 200] || consumers[0].instances != 2)
        };
        let drawn: Vec<_> = (0..400).map(|seed| shape(&plan("[\"files\", \"settings\", \"load\"]", seed))).collect();
        let count = |part: fn(&(bool, bool, bool)) -> bool| drawn.iter().filter(|shape| part(shape)).count();
        // Three sigma of 400 coins are 30; a part that takes part may come out as it was.
        assert!((170..=230).contains(&count(|shape| shape.0)), "{}", count(|shape| shape.0));
        assert!((165..=230).contains(&count(|shape| shape.1)), "{}", count(|shape| shape.1));
        assert!((150..=230).contains(&count(|shape| shape.2)), "{}", count(|shape| shape.2));
        let combinations: BTreeSet<_> = drawn.iter().collect();
        assert_eq!(combinations.len(), 8, "the coins are thrown one by one");
        assert!((0..100).all(|seed| shape(&plan("[]", seed)) == (false, false, false)));
    }

    #[test]
    fn what_does_not_vary_is_drawn_as_before() {
        let sends = |vary, seed| plan(vary, seed).scenario.producers;
        for seed in 0..20 {
            let (with, without) = (sends("[\"files\"]", seed), sends("[]", seed));
            assert_eq!(format!("{with:?}"), format!("{without:?}"));
        }
    }
}
