//! Checkers of what may be seen at all: of failed sends, of other topics and tags, at the offset of another message,
//! before it is safe.

use std::collections::BTreeMap;

use crate::{
    history::{Event, History, MessageId, NodeRef, QueueRef},
    scenario::{ConsumerGroup, Scenario},
};

use super::{
    Report,
    copies::Logs,
    facts::{Facts, group_of},
};

/// `aborted`: delivered although its send failed for certain.
pub(super) fn aborted(facts: &Facts<'_>) -> Report {
    let mut report = Report::new("aborted");
    report.opportunities = facts.sends.values().filter(|sent| sent.failed.is_some()).count() as u64;
    for delivery in &facts.all_deliveries {
        let Some(message) = delivery.message else { continue };
        if let Some(failed) = facts.sends.get(&message).and_then(|sent| sent.failed) {
            report.violation(
                format!("{message} was delivered, though its send had failed"),
                vec![failed, delivery.index],
            );
        }
    }
    report
}

/// `filter`: delivered to a group that has not subscribed to its topic, or not to its tag.
pub(super) fn filter(facts: &Facts<'_>, scenario: &Scenario, history: &History) -> Report {
    let mut report = Report::new("filter");
    let groups: BTreeMap<&str, &ConsumerGroup> =
        scenario.consumers.iter().map(|group| (group.group.as_str(), group)).collect();
    for delivery in &facts.all_deliveries {
        let name = group_of(history.node(delivery.node));
        let Some(group) = groups.get(name) else { continue };
        report.opportunities += 1;
        let look = delivery.look;
        let what = match look.topic == group.topic {
            false => format!("{name} was given a message of {}, and has subscribed to {}", look.topic, group.topic),
            true if group.wants(Some(&look.tag)) => continue,
            true => format!("{name} was given a message with the tag `{}`, which it has not asked for", look.tag),
        };
        report.violation(what, vec![delivery.index]);
    }
    report
}

/// `dup_store`: one message stands at more places of its topic than its producer has tried to put it.
pub(super) fn dup_store(facts: &Facts<'_>, scenario: &Scenario, history: &History) -> Report {
    let mut report = Report::new("dup-store");
    let mut places: BTreeMap<MessageId, BTreeMap<(QueueRef, u64), usize>> = BTreeMap::new();
    for (message, sent) in &facts.sends {
        if let Some(stored) = sent.stored {
            places.entry(*message).or_default().insert((stored.queue, stored.offset), stored.ok);
        }
    }
    for delivery in &facts.all_deliveries {
        let Some(message) = delivery.message else { continue };
        // What comes again was stored anew, for its group alone.
        if history.queue(delivery.queue).topic == delivery.look.topic {
            let places = places.entry(message).or_default();
            places.entry((delivery.queue, delivery.offset)).or_insert(delivery.index);
        }
    }
    for (message, places) in places {
        let Some(sent) = facts.sends.get(&message) else { continue };
        report.opportunities += 1;
        // Of a producer that died nobody knows how often it had tried.
        let tries = sent.tries.unwrap_or_else(|| scenario.tries_most(message.producer)) as usize;
        if places.len() > tries {
            let witness = places.into_values().chain([sent.invoke]).collect();
            report.violation(format!("{message} is stored at more places than {tries} attempts can explain"), witness);
        }
    }
    report
}

/// Where a message was seen.
struct Sighting {
    /// The record at which its sending began.
    invoke: usize,
    /// The record that shows it there.
    at: usize,
}

/// `two_at_offset`: one offset of a queue shows two messages, and the log of the broker lost nothing lawfully meanwhile.
pub(super) fn two_at_offset(facts: &Facts<'_>, logs: &Logs, history: &History) -> Report {
    let mut report = Report::new("two-at-offset");
    let mut places: BTreeMap<(QueueRef, u64), BTreeMap<MessageId, Sighting>> = BTreeMap::new();
    let mut see = |queue, offset, message: MessageId, at| {
        let Some(sent) = facts.sends.get(&message) else { return };
        let seen = places.entry((queue, offset)).or_default();
        seen.entry(message).or_insert(Sighting { invoke: sent.invoke, at });
        report.opportunities += 1;
    };
    let acknowledged = facts.sends.iter().filter_map(|(message, sent)| Some((*message, sent.stored?)));
    acknowledged.for_each(|(message, stored)| see(stored.queue, stored.offset, message, stored.ok));
    for delivery in &facts.all_deliveries {
        if let Some(message) = delivery.message {
            see(delivery.queue, delivery.offset, message, delivery.index);
        }
    }
    for ((queue, offset), seen) in places.iter().filter(|(_, seen)| seen.len() > 1) {
        let all: Vec<(&MessageId, &Sighting)> = seen.iter().collect();
        for pair in all.windows(2) {
            let [(one, first), (other, second)] = pair else { continue };
            // A member may give a message to its listener long after the log has lost it, and an answer may arrive when
            // its broker is dead.
            let span = (first.invoke.min(second.invoke), first.at.max(second.at));
            if !logs.acks_cut_back_between(*queue, history, span) {
                let what = format!("{} offset {offset} is {one} and {other}", history.queue(*queue));
                report.violation(what, vec![first.at, second.at]);
            }
        }
    }
    report
}

/// `visible_before_safe`: delivered before any broker of its group had it on its disk, though that is what each promises
/// before it shows a message to anyone (`spec/store.md` 7.2). A slave may be earlier than its master, and which of them
/// answered a member is not known.
pub(super) fn visible_before_safe(facts: &Facts<'_>, scenario: &Scenario, history: &History) -> Report {
    let mut report = Report::new("visible-before-safe");
    let mut safe: BTreeMap<NodeRef, Vec<(usize, u64)>> = BTreeMap::new();
    for (index, record) in history.records.iter().enumerate() {
        if let (Event::Flush(end) | Event::Recover(end), Some((node, _))) = (&record.event, record.node) {
            safe.entry(node).or_default().push((index, *end));
        }
    }
    for delivery in &facts.all_deliveries {
        let sent = delivery.message.and_then(|message| facts.sends.get(&message));
        let Some((sent, stored)) = sent.and_then(|sent| Some((sent, sent.stored?))) else { continue };
        let is_this = stored.queue == delivery.queue && stored.offset == delivery.offset;
        let Some(phy) = stored.phy.filter(|_| is_this) else { continue };
        let broker = &history.queue(delivery.queue).broker;
        if !scenario.hides_unflushed(broker) {
            continue;
        }
        report.opportunities += 1;
        let is_safe = |node: NodeRef| {
            let before = safe.get(&node).into_iter().flatten().rev().skip_while(|(index, _)| *index > delivery.index);
            before.take_while(|(index, _)| *index > sent.invoke).any(|(_, end)| *end > phy)
        };
        let mut group = (0..).map_while(|replica: u32| history.find_node(&format!("{broker}/{replica}")));
        if !group.any(is_safe) {
            let what = format!(
                "{} offset {} was delivered before it was on disk",
                history.queue(delivery.queue),
                delivery.offset
            );
            report.violation(what, vec![sent.invoke, delivery.index]);
        }
    }
    report
}
