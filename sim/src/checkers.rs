//! What must be true of a history: the checkers, the legal losses, and what was counted on the way.
//!
//! Checkers read the history and the scenario, nothing else. Each tells its violations with a witness (numbers of
//! records) and how often it had something to check: a checker without an opportunity has proved nothing.

mod audits;
mod class;
mod commits;
mod copies;
mod counts;
mod delays;
mod delivery;
mod facts;
mod order;
mod polls;
mod routes;
mod seen;

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    history::{Event, History, MessageId},
    scenario::Scenario,
};

use indexmap::IndexSet;

pub(crate) use class::class_of;
use copies::Fate;
pub(crate) use copies::Logs;
pub(crate) use facts::Facts;

/// The most violations that a report spells out; all are counted.
const SPELT_OUT_MAX: usize = 20;

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What, in one line.
    pub what: String,
    /// The records that show it, in order.
    pub witness: Vec<usize>,
}

/// What one checker found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Its name, as in [`crate::scenario::CHECKERS`].
    pub checker: &'static str,
    /// How often it had something to check.
    pub opportunities: u64,
    /// How many violations there are.
    pub count: u64,
    /// The first of them.
    pub violations: Vec<Violation>,
    /// The classes of all of them, in the order of their first violations.
    pub classes: IndexSet<String>,
}

impl Report {
    fn new(checker: &'static str) -> Report {
        Report { checker, opportunities: 0, count: 0, violations: Vec::new(), classes: IndexSet::new() }
    }

    fn violation(&mut self, what: String, mut witness: Vec<usize>) {
        self.count += 1;
        self.classes.insert(class_of(&what));
        if self.violations.len() < SPELT_OUT_MAX {
            witness.sort_unstable();
            witness.dedup();
            self.violations.push(Violation { what, witness });
        }
    }
}

/// What all checkers found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// One report per checker, in the order of [`crate::scenario::CHECKERS`].
    pub reports: Vec<Report>,
    /// Messages that a group may lawfully miss: why, and the records that show it.
    pub legally_lost: BTreeMap<(String, MessageId), Violation>,
    /// Messages that a group should have finished and did not, lawfully or not.
    pub missing: BTreeSet<(String, MessageId)>,
    /// Messages that a group refused for the last time: dead letters.
    pub given_up: BTreeSet<(String, MessageId)>,
    /// How often things happened, by the names of [`crate::scenario::COUNTS`].
    pub counts: BTreeMap<&'static str, u64>,
    /// States that were reached, by the names of [`crate::scenario::MARKS`], and all points of the product.
    pub marks: BTreeSet<String>,
}

/// Runs all checkers.
#[must_use]
pub fn check(scenario: &Scenario, history: &History) -> Findings {
    let facts = Facts::collect(scenario, history);
    let logs = Logs::collect(scenario, history);
    let (given_up, polls) = (facts.given_up_by_all(), polls::runs(history));
    let (lost, unread, legally_lost, missing) = lost_and_unread(&facts, &logs, history, &given_up);
    let reports = vec![
        lost,
        unread,
        delivery::phantom(&facts),
        seen::aborted(&facts),
        seen::filter(&facts, scenario, history),
        seen::dup_store(&facts, scenario, history),
        delivery::dup_deliver(&facts, &logs, history),
        seen::two_at_offset(&facts, &logs, history),
        order::order_store(&facts, &logs, history),
        seen::visible_before_safe(&facts, scenario, history),
        polls::skip(&polls, &facts, &logs, history),
        polls::backwards(&polls, history),
        delays::early(&facts, &logs, scenario, history),
        delays::late(&facts, &logs, scenario, history),
        delays::retry(&facts, &logs, scenario, history),
        commits::commit_regress(&facts, &logs, history),
        routes::route(&facts, scenario, history),
        audits::store_audit(history),
        audits::replica_equal(history),
        at_the_end("leak", history, |event| match event {
            Event::Grown(what) => Some(what),
            _ => None,
        }),
        at_the_end("stuck", history, |event| match event {
            Event::Pending(what) => Some(what),
            _ => None,
        }),
    ];
    let (counts, marks) = (BTreeMap::new(), BTreeSet::new());
    let mut findings = Findings { reports, legally_lost, missing, given_up, counts, marks };
    (findings.counts, findings.marks) = counts::count(&facts, history, findings.legally_lost.len() as u64);
    findings
}

type Missing = BTreeSet<(String, MessageId)>;

/// `lost`: acknowledged, wanted by a group, never finished there, gone from the log, and the promised copies should
/// have kept it. `unread`: the same, but it is still in the log, and the group has passed it or had all the time it
/// needed. What a group had not come to when time ran out is for [`stuck`] to tell (`spec/simulation.md` 5.6, 7.2).
fn lost_and_unread(
    facts: &Facts<'_>,
    logs: &Logs,
    history: &History,
    given_up: &BTreeSet<(String, MessageId)>,
) -> (Report, Report, BTreeMap<(String, MessageId), Violation>, Missing) {
    let (mut lost, mut unread) = (Report::new("lost"), Report::new("unread"));
    let out_of_time = history.records.iter().any(|record| matches!(record.event, Event::Pending(_)));
    let (mut legal, mut missing) = (BTreeMap::new(), BTreeSet::new());
    for (&message, sent) in &facts.sends {
        let Some(stored) = &sent.stored else { continue };
        for group in facts.groups_that_want(sent.look) {
            lost.opportunities += 1;
            unread.opportunities += 1;
            if facts.is_finished(group, message) || given_up.contains(&(group.to_owned(), message)) {
                continue;
            }
            let key = (group.to_owned(), message);
            missing.insert(key.clone());
            let mut witness = vec![sent.invoke, stored.ok];
            if let Some(last) = facts.deliveries(group, message).last() {
                witness.extend([last.index].into_iter().chain(last.done.map(|(index, _)| index)));
                if let Some((at, why)) = facts.lost_retry(logs, group, message) {
                    witness.push(at);
                    legal.insert(key, lawfully(why, witness));
                    continue;
                }
            }
            let queue = history.queue(stored.queue);
            match logs.fate(stored.queue, stored.ok, stored.phy, history) {
                Fate::Kept if out_of_time && facts.may_still_finish(group, message, stored.queue, stored.offset) => {}
                Fate::Kept => unread.violation(
                    format!(
                        "{message} acknowledged at {queue} offset {} and still there, never finished by {group}",
                        stored.offset
                    ),
                    witness,
                ),
                Fate::Deleted(at) => {
                    witness.push(at);
                    legal.insert(key, lawfully("its log file was deleted to free the disk", witness));
                }
                Fate::LegallyLost(records) => {
                    witness.extend(records);
                    legal.insert(key, lawfully("it was only promised to a cache that lost power", witness));
                }
                Fate::Lost(records) => {
                    witness.extend(records);
                    let what = format!(
                        "{message} acknowledged at {queue} offset {}, gone, never finished by {group}",
                        stored.offset
                    );
                    lost.violation(what, witness);
                }
            }
        }
    }
    (lost, unread, legal, missing)
}

fn lawfully(why: &str, mut witness: Vec<usize>) -> Violation {
    witness.sort_unstable();
    Violation { what: why.to_owned(), witness }
}

/// `stuck`: something had not come to an end when the settle phase did. `leak`: something still grew then.
fn at_the_end(checker: &'static str, history: &History, wrong: impl Fn(&Event) -> Option<&String>) -> Report {
    let mut report = Report::new(checker);
    for (index, record) in history.records.iter().enumerate() {
        if let Some(what) = wrong(&record.event) {
            report.opportunities += 1;
            report.violation(what.clone(), vec![index]);
        } else if record.event == Event::Converged {
            report.opportunities += 1;
        }
    }
    report
}

#[cfg(test)]
mod tests;
