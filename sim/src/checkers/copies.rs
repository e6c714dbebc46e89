//! What may be lost: the copies argument (`spec/simulation.md` 7.1).
//!
//! A broker that flushes before it acknowledges promises a durable copy; one that does not promises a copy in its page
//! cache, which turns durable when the node flushes past the message; one with a buffer pool promises a copy in memory,
//! which is in the page cache when the node has written it there. A power loss destroys cache copies that had not
//! turned durable, and so does a flush of the log that fails; a disk that spoils a page, writes it elsewhere or lies
//! about a flush destroys durable ones, and whatever recovery cannot reach behind them; another disk destroys all, and a
//! backup that is put back what it does not hold, if the claim says that this is survived; a kill destroys copies that are
//! in memory only, and the deletion of a log file destroys what was in it.
//!
//! A synchronous master promises a copy on a slave as well, which is owed when the slave takes its place. As long as the
//! master comes back it overrules its slaves: what it has lost lawfully is lost.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::group_of;
use crate::{
    disk::PAGE_BYTES,
    history::{Down, Event, History, NodeRef, QueueRef},
    scenario::{FaultKind, Scenario},
};

/// What became of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is still in the log.
    Kept,
    /// Its file was deleted, by this record.
    Deleted(usize),
    /// It is gone, and that was not excluded: crash and recovery.
    LegallyLost([usize; 2]),
    /// It is gone although it was promised to stay; the records that show it.
    Lost(Vec<usize>),
}

/// The logs of all brokers.
pub(crate) struct Logs {
    nodes: BTreeMap<NodeRef, Log>,
    /// The masters that acknowledge what a slave has as well.
    promises_copies: BTreeSet<NodeRef>,
    /// Promotions of slaves that may lack what their master had promised by itself.
    costly_promotions: Vec<usize>,
}

#[derive(Default)]
struct Log {
    flushes_before_ack: bool,
    /// A buffer pool: what it acknowledges is in memory only for a while.
    acks_from_memory: bool,
    /// Nobody is shown what is only in its cache.
    hides_unflushed: bool,
    file_bytes: u64,
    /// Lives of the process, in order.
    lives: Vec<Life>,
    /// Power losses and failed flushes of the log: record, and up to where the log was durable then.
    cache_losses: Vec<(usize, u64)>,
    /// Ends of processes that had a buffer pool: record, and up to where the log was in the page cache then.
    memory_losses: Vec<(usize, u64)>,
    /// Up to where the log is known to be in the page cache, of one with a buffer pool.
    committed: u64,
    /// Whether a backup that is put back may take messages with it.
    may_be_restored: bool,
    /// Other disks, and the same disk as it was at another time: records, with what is in the log since then.
    exchanges: Vec<(usize, Lineage)>,
    /// Recoveries: record, and the end of the log after it.
    recoveries: Vec<(usize, u64)>,
    /// What the disk spoilt, or did not write though it said so.
    holes: Vec<Hole>,
    /// Up to where flushes told that the log was durable.
    told: u64,
    /// A flush did nothing: the next that is told of is a lie.
    is_lied_to: bool,
    /// Deleted files: record, and where the file began.
    deletions: Vec<(usize, u64)>,
    /// Up to where the log is known to be durable.
    durable: u64,
}

/// What a log holds by its history: everything that was appended between these records, and from the last one on.
#[derive(Debug, Clone, Default)]
struct Lineage {
    /// From each first record to before the second.
    parts: Vec<(usize, usize)>,
    from: usize,
}

impl Lineage {
    fn holds(&self, record: usize) -> bool {
        record >= self.from || self.parts.iter().any(|(from, to)| (*from..*to).contains(&record))
    }

    /// The same up to a record, and whatever comes from another one on.
    fn as_at(&self, taken: usize, from: usize) -> Lineage {
        let parts = self.parts.iter().copied().chain([(self.from, taken)]);
        Lineage { parts: parts.map(|(from, to)| (from, to.min(taken))).collect(), from }
    }
}

/// A part of the log that is not on the disk as it should be.
#[derive(Debug, Clone, Copy)]
struct Hole {
    /// The record that tells of it.
    record: usize,
    /// Where it begins.
    from: u64,
    /// Where it ends.
    to: u64,
    /// A flush was said to have written it.
    is_a_lie: bool,
}

/// What one life appended.
#[derive(Default)]
struct Life {
    /// The end of the log when it began.
    start: u64,
    /// Records of appends with the end of the log after each.
    appends: Vec<(usize, u64)>,
}

impl Logs {
    pub fn collect(scenario: &Scenario, history: &History) -> Logs {
        let mut nodes: BTreeMap<NodeRef, Log> = BTreeMap::new();
        let mut promises_copies = BTreeSet::new();
        for group in &scenario.brokers {
            let replica = |replica: usize| history.find_node(&format!("{}/{replica}", group.name));
            promises_copies.extend(replica(0).filter(|_| scenario.copies_promised(&group.name) > 1));
            for node in (0..group.replicas.len()).filter_map(replica) {
                let log = Log {
                    flushes_before_ack: scenario.flushes_before_ack(&group.name),
                    acks_from_memory: scenario.acks_from_memory(&group.name),
                    hides_unflushed: scenario.hides_unflushed(&group.name),
                    file_bytes: group.log_file_bytes(),
                    may_be_restored: scenario.claim.iter().any(|claim| claim.kind == "restore-backup"),
                    ..Log::default()
                };
                nodes.insert(node, log);
            }
        }
        let backups = Backups::of(scenario, history);
        for (index, record) in history.records.iter().enumerate() {
            if let (Event::DiskError("restore-backup", _), Some((node, _))) = (&record.event, record.node)
                && let Some(log) = nodes.get_mut(&node).filter(|log| log.may_be_restored)
            {
                log.restored(index, backups.taken(node, index));
            }
            let log = record.node.and_then(|(node, _)| nodes.get_mut(&node));
            if let Some(log) = log {
                log.take(index, &record.event);
            }
        }
        let is_costly = |node: NodeRef| {
            let master = history.find_node(&format!("{}/0", group_of(history.node(node))));
            !master.is_some_and(|master| promises_copies.contains(&master))
        };
        let promotions = history.promotions.iter().filter(|(_, node)| is_costly(*node));
        let costly_promotions = promotions.map(|(index, _)| *index).collect();
        Logs { nodes, promises_copies, costly_promotions }
    }

    /// The node that is the master of the group which holds a queue when record `at` is written.
    pub fn node_of(&self, queue: QueueRef, history: &History, at: usize) -> Option<NodeRef> {
        history.broker_of(queue, at).filter(|node| self.nodes.contains_key(node))
    }

    /// What became of a message that was acknowledged by record `ok`.
    pub(super) fn fate(&self, queue: QueueRef, ok: usize, phy: Option<u64>, history: &History) -> Fate {
        let Some(master) = self.node_of(queue, history, ok) else { return Fate::Kept };
        // Without a place in a log nothing can have destroyed it.
        let (Some(log), Some(phy)) = (self.nodes.get(&master), phy) else { return Fate::Kept };
        if let Some((promotion, slave)) = history.promotions_of(queue).find(|(promotion, _)| *promotion > ok) {
            return self.fate_after((promotion, slave), master, (ok, phy));
        }
        log.fate(ok, phy)
    }

    /// What became of a message that an earlier master acknowledged: what counts is the log of the slave that took its
    /// place. What it did not have then is owed if a copy of a slave was promised.
    fn fate_after(&self, (promotion, slave): (usize, NodeRef), master: NodeRef, (ok, phy): (usize, u64)) -> Fate {
        // What the slave had before its master took the message is another one at the same place.
        let since = self.nodes.get(&master).and_then(|log| log.born(ok, phy)).map_or(ok, |(index, _)| index);
        let has_it = |log: &&Log| log.born(promotion, phy).is_some_and(|(index, _)| index > since);
        let had = self.nodes.get(&slave).filter(has_it);
        let promised = self.promises_copies.contains(&master);
        match had.map(|log| log.fate(promotion, phy)) {
            Some(Fate::Lost(_)) | None if !promised => Fate::LegallyLost([promotion; 2]),
            None => Fate::Lost(vec![ok, promotion]),
            Some(fate) => fate,
        }
    }

    /// The first record that may have destroyed a copy which some broker made after the record `index`, and why that
    /// was lawful. For copies whose place in a log nobody tells: a message that is to come again is stored anew by the
    /// broker it came from or, if that does not answer, by any other.
    pub fn copy_lost_anywhere_after(&self, index: usize) -> Option<(usize, &'static str)> {
        let promotions = self.costly_promotions.iter().copied().filter(|at| *at > index);
        let promotions = promotions.map(|at| (at, "its retry was not on the slave that was promoted"));
        self.nodes.values().filter_map(|log| log.copy_lost_after(index)).chain(promotions).min()
    }

    /// Whether the log that holds a queue lawfully lost something that somebody may have seen between two records.
    pub fn cut_back_between(&self, queue: QueueRef, history: &History, (from, to): (usize, usize)) -> bool {
        let Some(node) = self.node_of(queue, history, to) else { return false };
        history.promoted_between(queue, from, to) || self.log_cut_back_between(node, from, to)
    }

    fn log_cut_back_between(&self, node: NodeRef, from: usize, to: usize) -> bool {
        let Some(log) = self.nodes.get(&node) else { return false };
        let lost_a_cache = log.cache_losses.iter().any(|(at, _)| (from..to).contains(at)) && !log.hides_unflushed;
        let found_a_hole = || {
            let mut recoveries = log.recoveries.iter().filter(|(at, _)| (from..to).contains(at));
            recoveries.any(|(at, _)| log.holes_before(*at).next().is_some())
        };
        lost_a_cache || found_a_hole() || log.exchanged_between(from, to).is_some()
    }

    /// The same, or something that only its producer knows of.
    pub fn acks_cut_back_between(&self, queue: QueueRef, history: &History, (from, to): (usize, usize)) -> bool {
        let Some(node) = self.node_of(queue, history, to) else { return false };
        let kills = self.nodes.get(&node).into_iter().flat_map(|log| &log.memory_losses);
        kills.map(|(at, _)| *at).any(|at| (from..to).contains(&at)) || self.cut_back_between(queue, history, (from, to))
    }

    /// Whether a broker has a buffer pool.
    pub fn any_acks_from_memory(&self) -> bool {
        self.nodes.values().any(|log| log.acks_from_memory)
    }

    /// How many brokers have logs.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The record by which a node appended what stood at `phy` of its log at the record `before`.
    pub fn appended(&self, node: NodeRef, before: usize, phy: u64) -> Option<usize> {
        self.nodes.get(&node)?.born(before, phy).map(|(index, _)| index)
    }

    /// The last record before `until` from which on a node has another disk, or the same as it was at another time.
    pub fn last_exchange(&self, node: NodeRef, until: usize) -> Option<usize> {
        let log = self.nodes.get(&node)?;
        log.exchanges.iter().map(|(at, _)| *at).rfind(|at| *at < until)
    }

    /// Whether the disk of a node was another one, or of another time, between two records.
    pub fn exchanged_between(&self, node: NodeRef, from: usize, to: usize) -> bool {
        self.nodes.get(&node).is_some_and(|log| log.exchanged_between(from, to).is_some())
    }
}

/// When the backups were taken that faults put back.
struct Backups {
    /// Fault by fault in the order in which they begin: node, record of the begin, and record at which it was taken.
    taken: Vec<(NodeRef, usize, usize)>,
}

impl Backups {
    fn of(scenario: &Scenario, history: &History) -> Backups {
        let records = &history.records;
        let active = records.iter().find(|record| record.event == Event::Phase("active")).map_or(0, |record| record.at);
        let taken = records.iter().enumerate().filter_map(|(index, record)| {
            let Event::FaultBegin(id, "restore-backup") = &record.event else { return None };
            let fault = scenario.faults.iter().find(|fault| fault.id == *id)?;
            let FaultKind::RestoreBackup { node, taken } = &fault.kind else { return None };
            let node = history.find_node(node)?;
            let at = active + u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
            Some((node, index, records.partition_point(|record| record.at < at)))
        });
        Backups { taken: taken.collect() }
    }

    /// The record at which the backup was taken that was put back at another one; the begin if nobody knows.
    fn taken(&self, node: NodeRef, put_back: usize) -> usize {
        let before = self.taken.iter().rfind(|(of, begin, _)| *of == node && *begin < put_back);
        before.map_or(0, |(_, _, taken)| *taken)
    }
}

impl Log {
    fn take(&mut self, index: usize, event: &Event) {
        match event {
            Event::NodeUp => self.lives.push(Life { start: self.end(), appends: Vec::new() }),
            Event::Append(end) => {
                if let Some(life) = self.lives.last_mut() {
                    life.appends.push((index, *end));
                }
            }
            Event::DiskError("lying-flush", path) if path.starts_with("commitlog/") => self.is_lied_to = true,
            Event::DiskError("lost-write" | "misdirected-write" | "bit-rot", place) => {
                let from = page_of_log(place);
                self.holes.extend(from.map(|from| Hole {
                    record: index,
                    from,
                    to: from + PAGE_BYTES,
                    is_a_lie: false,
                }));
            }
            Event::DiskError("disk-replaced", _) => {
                self.exchanges.push((index, Lineage { parts: Vec::new(), from: index }));
                // What was wrong with the old one is gone with it.
                self.holes.clear();
            }
            Event::Flush(end) if std::mem::take(&mut self.is_lied_to) => {
                self.holes.push(Hole { record: index, from: self.told, to: *end, is_a_lie: true });
                self.told = self.told.max(*end);
            }
            Event::Flush(durable) => {
                self.durable = self.durable.max(*durable);
                self.told = self.told.max(*durable);
            }
            Event::Point("store.committed", end) => {
                self.committed = self.committed.max(u64::try_from(*end).unwrap_or(0));
            }
            Event::NodeDown(how, _) if self.acks_from_memory && *how != Down::PowerLoss => {
                self.memory_losses.push((index, self.committed));
            }
            Event::NodeDown(Down::PowerLoss, _) => self.cache_losses.push((index, self.durable)),
            event if event.fails_log_flush() => self.cache_losses.push((index, self.durable)),
            Event::Recover(end) => {
                self.recoveries.push((index, *end));
                self.durable = self.durable.min(*end);
                (self.told, self.committed) = (*end, *end);
                match self.lives.last_mut() {
                    Some(life) if life.appends.is_empty() => life.start = *end,
                    // A process may open its store again, after cutting it.
                    Some(_) => self.lives.push(Life { start: *end, appends: Vec::new() }),
                    None => {}
                }
            }
            Event::Delete(start) => self.deletions.push((index, *start)),
            _ => {}
        }
    }

    /// A backup is put back that was taken at an earlier record.
    fn restored(&mut self, index: usize, taken: usize) {
        let before = self.exchanges.iter().rfind(|(at, _)| *at <= taken);
        let then = before.map(|(_, lineage)| lineage.clone()).unwrap_or_default();
        self.exchanges.push((index, then.as_at(taken.min(index), index)));
    }

    fn exchanged_between(&self, from: usize, to: usize) -> Option<usize> {
        self.exchanges.iter().map(|(at, _)| *at).find(|at| (from..to).contains(at))
    }

    /// Whether the log as it is in the end goes back to what happened at a record.
    fn goes_back_to(&self, record: usize) -> bool {
        self.exchanges.last().is_none_or(|(_, lineage)| lineage.holds(record))
    }

    /// The holes that are there at a record: what a flush did not write is missed after a loss of power only.
    fn holes_before(&self, record: usize) -> impl Iterator<Item = &Hole> {
        let lost_power = move |hole: &Hole| self.cache_losses.iter().any(|(at, _)| (hole.record..record).contains(at));
        self.holes.iter().filter(move |hole| hole.record < record && (!hole.is_a_lie || lost_power(hole)))
    }

    /// The end of the log as far as it is known.
    fn end(&self) -> u64 {
        self.lives.last().map_or(0, |life| life.appends.last().map_or(life.start, |(_, end)| *end))
    }

    /// The record that appended what stands at `phy`, and where that ends: of the newest life before `ok` that can have
    /// done it, because an earlier one may have appended something else there that is gone.
    fn born(&self, ok: usize, phy: u64) -> Option<(usize, u64)> {
        self.lives.iter().rev().find_map(|life| {
            let appended = life.appends.partition_point(|(_, end)| *end <= phy);
            let (index, end) = *life.appends.get(appended)?;
            (life.start <= phy && index < ok).then_some((index, end))
        })
    }

    fn copy_lost_after(&self, index: usize) -> Option<(usize, &'static str)> {
        let crashes = self.cache_losses.iter().filter(|_| !self.flushes_before_ack).chain(&self.memory_losses);
        let crashes = crashes.map(|(at, _)| *at).filter(|at| *at > index);
        let crash = crashes.map(|at| (at, "its retry was only promised to memory and caches")).min();
        let end = self.end_at(index);
        let files = self.deletions.iter().filter(|(at, start)| *at > index && start + self.file_bytes > end);
        let deletion = files.map(|(at, _)| (*at, "the log file of its retry was deleted to free the disk")).min();
        // A page that is not there takes along what lies behind it as soon as the log is recovered.
        let recovered_after = |at: usize| self.recoveries.iter().any(|(recovery, _)| *recovery > at.max(index));
        let holes = self.holes_before(usize::MAX).filter(|hole| hole.to > end || recovered_after(hole.record));
        let hole = holes.map(|hole| (hole.record, "the device did not hold its retry")).min();
        let exchange = self.exchanged_between(index, usize::MAX).map(|at| (at, "its retry was on another disk"));
        crash.into_iter().chain(deletion).chain(hole).chain(exchange).min()
    }

    /// The end of the log when the record `index` was written.
    fn end_at(&self, index: usize) -> u64 {
        let appends = self.lives.iter().flat_map(|life| &life.appends);
        let ends = appends.chain(&self.recoveries).filter(|(at, _)| *at <= index);
        ends.max_by_key(|(at, _)| *at).map_or(0, |(_, end)| *end)
    }

    fn fate(&self, ok: usize, phy: u64) -> Fate {
        let Some((born, end)) = self.born(ok, phy) else { return Fate::Lost(vec![ok]) };
        if let Some(exchange) = self.exchanged_between(born, usize::MAX).filter(|_| !self.goes_back_to(born)) {
            return Fate::LegallyLost([exchange; 2]);
        }
        let mut recoveries = self.recoveries.iter().filter(|(index, _)| self.goes_back_to(*index));
        let gone = recoveries.find(|(index, end)| *index > born && *end <= phy);
        if let Some((recovery, _)) = gone {
            if let Some(exchange) = self.exchanged_between(born, *recovery) {
                return Fate::LegallyLost([exchange, *recovery]);
            }
            // Behind a page that is not there no record can be reached.
            if let Some(hole) = self.holes_before(*recovery).find(|hole| hole.from < end) {
                return Fate::LegallyLost([hole.record, *recovery]);
            }
            let losses = self.cache_losses.iter().chain(&self.memory_losses);
            let mut losses = losses.filter(|(index, _)| (born..*recovery).contains(index));
            let died = losses.clone().find(|(_, kept)| *kept <= phy).filter(|_| !self.flushes_before_ack);
            return match died {
                Some((crash, _)) => Fate::LegallyLost([*crash, *recovery]),
                None => Fate::Lost([born, *recovery].into_iter().chain(losses.next().map(|(at, _)| *at)).collect()),
            };
        }
        if let Some(hole) = self.holes_before(usize::MAX).find(|hole| hole.from < end && phy < hole.to) {
            return Fate::LegallyLost([hole.record; 2]);
        }
        let file = phy - phy % self.file_bytes;
        let mut deletions = self.deletions.iter().filter(|(index, _)| self.goes_back_to(*index));
        match deletions.find(|(index, start)| *index > born && *start == file) {
            Some((index, _)) => Fate::Deleted(*index),
            None => Fate::Kept,
        }
    }
}

/// Where in the log a page of one of its files begins.
fn page_of_log(place: &str) -> Option<u64> {
    let (file, page) = place.strip_prefix("commitlog/")?.split_once('@')?;
    Some(file.parse::<u64>().ok()? + page.parse::<u64>().ok()? * PAGE_BYTES)
}
