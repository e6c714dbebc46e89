//! How large a scenario may be. One run has one core and two gigabytes: what would not end is refused, and told where.

use std::{ops::Range, time::Duration};

use super::{
    Load, ProducerGroup, Scenario, ScenarioError,
    reader::{At, Source},
    tables::Places,
    units::print_size,
};

/// The longest scenario: memory of a run grows with it.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The most nodes of a kind; the addresses of the stand have room for no more.
const MOST_OF_A_KIND: u64 = 200;

/// The most faults that a file spells out.
const MOST_FAULTS: usize = 10_000;

/// The most queues of all topics on all brokers.
const MOST_QUEUES: u64 = 4_096;

/// The most messages of a scenario, and of their bodies the most bytes.
const MOST_MESSAGES: u64 = 100_000;
const MOST_BODY_BYTES: u64 = 1 << 30;

/// Refuses a scenario that is too large, at the key that makes it so.
pub(super) fn check(source: &Source, scenario: &Scenario, places: &Places) -> Result<(), ScenarioError> {
    if scenario.active + scenario.settle > LONGEST {
        let message = format!("`active` and `settle` are more than {} h together", LONGEST.as_secs() / 3600);
        return Err(source.error(&places.active, message));
    }
    let groups = &places.groups;
    let (brokers, clients) = groups.split_at(scenario.brokers.len().min(groups.len()));
    let (producers, consumers) = clients.split_at(scenario.producers.len().min(clients.len()));
    let sizes = |group: &ProducerGroup| u64::from(group.instances);
    below(source, brokers, scenario.brokers.iter().map(|_| 1), MOST_OF_A_KIND, "brokers")?;
    below(source, producers, scenario.producers.iter().map(sizes), MOST_OF_A_KIND, "producers")?;
    let sizes = scenario.consumers.iter().map(|group| u64::from(group.most_instances()));
    below(source, consumers, sizes, MOST_OF_A_KIND, "consumers")?;
    if let Some(At { at, .. }) = places.ids.get(MOST_FAULTS) {
        return Err(source.error(at, format!("{} faults, the most is {MOST_FAULTS}", places.ids.len())));
    }
    let queues = scenario.topics.iter().map(|topic| u64::from(topic.queues) * topic.brokers.len() as u64);
    below_at(source, &places.queues, queues, MOST_QUEUES, |sum| {
        format!("all topics have {sum} queues on all brokers together, the most is {MOST_QUEUES}")
    })?;
    below_at(source, &places.loads, scenario.producers.iter().map(messages), MOST_MESSAGES, |sum| {
        format!("the producers send {sum} messages, the most is {MOST_MESSAGES}")
    })?;
    let bodies: Vec<Range<usize>> = places.bodies.iter().map(|body| body.at.clone()).collect();
    below_at(source, &bodies, scenario.producers.iter().map(bytes), MOST_BODY_BYTES, |sum| {
        let (sum, most) = (print_size(sum >> 20 << 20), print_size(MOST_BODY_BYTES));
        format!("the producers send bodies of about {sum} together, the most is {most}")
    })
}

/// Refuses the first group with which there are too many nodes of a kind.
fn below(
    source: &Source,
    names: &[At<String>],
    sizes: impl Iterator<Item = u64>,
    most: u64,
    what: &str,
) -> Result<(), ScenarioError> {
    let at: Vec<Range<usize>> = names.iter().map(|name| name.at.clone()).collect();
    below_at(source, &at, sizes, most, |sum| format!("{sum} {what}, the most is {most}"))
}

/// Refuses at the first of `places` with which the sum is too large; the message is about the whole sum.
fn below_at(
    source: &Source,
    places: &[Range<usize>],
    sizes: impl Iterator<Item = u64>,
    most: u64,
    message: impl Fn(u64) -> String,
) -> Result<(), ScenarioError> {
    let (mut sum, mut first) = (0_u64, None);
    for (number, size) in sizes.enumerate() {
        sum = sum.saturating_add(size);
        first = first.or((sum > most).then_some(number));
    }
    match first {
        Some(number) => Err(source.error(places.get(number).unwrap_or(&(0..0)), message(sum))),
        None => Ok(()),
    }
}

/// How many messages a group sends.
fn messages(group: &ProducerGroup) -> u64 {
    match &group.load {
        Load::Drawn { rate, start, end, .. } => {
            u64::from(group.instances) * u64::from(rate.count_in(end.saturating_sub(*start)))
        }
        Load::Planned(sends) => sends.len() as u64,
    }
}

/// How many bytes their bodies have; of bodies that are to be drawn the mean counts.
fn bytes(group: &ProducerGroup) -> u64 {
    match &group.load {
        Load::Drawn { body_bytes, .. } => messages(group).saturating_mul(body_bytes.least.midpoint(body_bytes.most)),
        Load::Planned(sends) => sends.iter().fold(0, |sum, send| sum.saturating_add(send.body_bytes)),
    }
}
