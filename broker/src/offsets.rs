//! How far each consumer group has come in each queue.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use message::QueueOffset;
use remoting::body::{ConsumerOffsetTable, DataVersion};

/// Between the topic and the group in the keys of the stored table.
pub(crate) const SEPARATOR: char = '@';

/// The offsets of the next message to consume, by topic, group and queue. Stored in `consumerOffset.json` by
/// `topic@group`; a third part, as in `topic@group@broadcast`, belongs to the group's name.
///
/// A commit changes memory only and may go backwards, as a reset does; the file follows every few seconds. What the
/// file holds is never ahead of the durable log: the one who writes it waits for the flush first.
#[derive(Debug)]
pub(crate) struct ConsumerOffsets {
    /// How many commits raise the version by one.
    step: u32,
    /// Leaf lock: nothing else is locked while it is held.
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    table: Table,
    /// Queues with offsets that were committed to this slave while it had no master; see
    /// [`put_over`](ConsumerOffsets::put_over).
    alone: Alone,
    version: DataVersion,
    commits: u32,
    is_changed: bool,
}

/// Topic, then group, then queue. Sorted, so that equal tables are written as equal files.
type Table = BTreeMap<String, BTreeMap<String, BTreeMap<u32, QueueOffset>>>;

/// Topic, then group, then queue.
type Alone = BTreeMap<String, BTreeMap<String, BTreeSet<u32>>>;

/// A queue as one group sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupQueue<'a> {
    pub(crate) group: &'a str,
    pub(crate) topic: &'a str,
    pub(crate) queue: u32,
}

impl ConsumerOffsets {
    /// The table that was stored. Negative numbers, which mean "none", are dropped.
    pub(crate) fn new(stored: ConsumerOffsetTable, step: u32) -> ConsumerOffsets {
        let mut table = Table::new();
        for (key, queues) in stored.offset_table {
            let Some((topic, group)) = key.split_once(SEPARATOR) else { continue };
            let queues = queues
                .into_iter()
                .filter_map(|(queue, offset)| {
                    Some((u32::try_from(queue).ok()?, QueueOffset(u64::try_from(offset).ok()?)))
                })
                .collect();
            table.entry(topic.to_owned()).or_default().insert(group.to_owned(), queues);
        }
        let mut alone = Alone::new();
        for (key, queues) in stored.sf_committed_alone.unwrap_or_default() {
            let Some((topic, group)) = key.split_once(SEPARATOR) else { continue };
            let queues = queues.into_iter().filter_map(|queue| u32::try_from(queue).ok()).collect();
            alone.entry(topic.to_owned()).or_default().insert(group.to_owned(), queues);
        }
        let version = stored.data_version.unwrap_or_default();
        let inner = Inner { table, alone, version, ..Inner::default() };
        ConsumerOffsets { step: step.max(1), inner: Mutex::new(inner) }
    }

    /// Sets an offset, forwards or backwards. `now_ms` dates the version.
    pub(crate) fn commit(&self, at: GroupQueue<'_>, offset: QueueOffset, now_ms: i64) {
        let mut inner = self.lock();
        inner.is_changed = true;
        inner.commits += 1;
        if inner.commits >= self.step {
            inner.commits = 0;
            inner.version.counter = inner.version.counter.wrapping_add(1); // A file may say anything.
            inner.version.timestamp = now_ms;
        }
        // The usual commit finds its queue, and needs no owned names.
        if let Some(queues) = inner.table.get_mut(at.topic).and_then(|groups| groups.get_mut(at.group)) {
            queues.insert(at.queue, offset);
            return;
        }
        let groups = inner.table.entry(at.topic.to_owned()).or_default();
        groups.entry(at.group.to_owned()).or_default().insert(at.queue, offset);
    }

    /// As [`commit`](Self::commit), on a slave without a master: the offset is newer than what the master has.
    pub(crate) fn commit_alone(&self, at: GroupQueue<'_>, offset: QueueOffset, now_ms: i64) {
        self.commit(at, offset, now_ms);
        let mut inner = self.lock();
        let groups = inner.alone.entry(at.topic.to_owned()).or_default();
        groups.entry(at.group.to_owned()).or_default().insert(at.queue);
    }

    /// Puts the table of the master over this one. What only this one has stays. Of a queue whose offset was committed
    /// here while there was no master, the larger offset stays, until the master has it too: nobody has to consume
    /// again what the group consumed from here.
    ///
    /// Source: `spec/replication.md` 3.1, HO11.
    pub(crate) fn put_over(&self, copied: ConsumerOffsetTable) {
        let copied = ConsumerOffsets::new(copied, self.step).inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut inner = self.lock();
        let Inner { table, alone, version, is_changed, .. } = &mut *inner;
        for (topic, groups) in copied.table {
            for (group, queues) in groups {
                let mut newer = alone.get_mut(&topic).and_then(|groups| groups.get_mut(&group));
                let own = table.entry(topic.clone()).or_default().entry(group).or_default();
                for (queue, offset) in queues {
                    let is_newer = newer.as_ref().is_some_and(|queues| queues.contains(&queue))
                        && own.get(&queue).is_some_and(|own| *own > offset);
                    if is_newer {
                        continue;
                    }
                    if let Some(newer) = &mut newer {
                        *is_changed |= newer.remove(&queue);
                    }
                    *is_changed |= own.insert(queue, offset) != Some(offset);
                }
            }
        }
        *is_changed |= *version != copied.version;
        *version = copied.version;
    }

    /// Takes over the offsets of a slave that were committed to it while it had no master, where they are larger than
    /// those here, but none beyond the end of its queue, as `end` tells it. Says how many there were.
    ///
    /// Source: `spec/replication.md` HO11.
    pub(crate) fn take_alone(
        &self,
        slave: ConsumerOffsetTable,
        now_ms: i64,
        end: impl Fn(&str, u32) -> QueueOffset,
    ) -> usize {
        let slave = ConsumerOffsets::new(slave, self.step).inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut taken = 0;
        for (topic, groups) in &slave.alone {
            for (group, queues) in groups {
                for queue in queues {
                    let at = GroupQueue { group, topic, queue: *queue };
                    let offset = slave.table.get(topic).and_then(|groups| groups.get(group)?.get(queue));
                    let Some(offset) = offset.map(|offset| (*offset).min(end(topic, *queue))) else { continue };
                    if self.get(at).is_none_or(|own| own < offset) {
                        self.commit(at, offset, now_ms);
                        taken += 1;
                    }
                }
            }
        }
        taken
    }

    /// The offset of a queue, if the group ever committed one.
    pub(crate) fn get(&self, at: GroupQueue<'_>) -> Option<QueueOffset> {
        self.lock().table.get(at.topic)?.get(at.group)?.get(&at.queue).copied()
    }

    /// The topics in which a group has offsets.
    pub(crate) fn topics_of(&self, group: &str) -> Vec<String> {
        let inner = self.lock();
        inner.table.iter().filter(|(_, groups)| groups.contains_key(group)).map(|(topic, _)| topic.clone()).collect()
    }

    /// The groups that have offsets in a topic.
    pub(crate) fn groups_of(&self, topic: &str) -> Vec<String> {
        self.lock().table.get(topic).map(|groups| groups.keys().cloned().collect()).unwrap_or_default()
    }

    /// Forgets a topic.
    pub(crate) fn remove_topic(&self, topic: &str) {
        let mut inner = self.lock();
        inner.is_changed |= inner.table.remove(topic).is_some();
    }

    /// Forgets a group.
    pub(crate) fn remove_group(&self, group: &str) {
        let mut inner = self.lock();
        let mut is_changed = false;
        inner.table.retain(|_, groups| {
            is_changed |= groups.remove(group).is_some();
            !groups.is_empty()
        });
        inner.is_changed |= is_changed;
    }

    /// Lowers every offset that lies beyond the end of its queue, as `end` tells it, and says how many there were.
    pub(crate) fn clamp(&self, end: impl Fn(&str, u32) -> QueueOffset) -> usize {
        let mut inner = self.lock();
        let mut lowered = 0;
        for (topic, groups) in &mut inner.table {
            for (queue, offset) in groups.values_mut().flatten() {
                let end = end(topic, *queue);
                if *offset > end {
                    *offset = end;
                    lowered += 1;
                }
            }
        }
        inner.is_changed |= lowered > 0;
        lowered
    }

    /// The whole table.
    pub(crate) fn snapshot(&self) -> ConsumerOffsetTable {
        self.lock().stored()
    }

    /// The whole table, if it changed since the last call.
    pub(crate) fn take_changes(&self) -> Option<ConsumerOffsetTable> {
        let mut inner = self.lock();
        std::mem::take(&mut inner.is_changed).then(|| inner.stored())
    }

    /// What [`take_changes`](Self::take_changes) gave could not be written: it is given again.
    pub(crate) fn keep_changes(&self) {
        self.lock().is_changed = true;
    }

    /// How many queues have an offset, counted once per group.
    pub(crate) fn len(&self) -> usize {
        self.lock().table.values().flat_map(BTreeMap::values).map(BTreeMap::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn stored(&self) -> ConsumerOffsetTable {
        let mut offset_table = BTreeMap::new();
        for (topic, groups) in &self.table {
            for (group, queues) in groups {
                let queues = queues.iter().map(|(queue, offset)| (i32_of(*queue), i64_of(*offset))).collect();
                offset_table.insert(format!("{topic}{SEPARATOR}{group}"), queues);
            }
        }
        let mut alone = BTreeMap::new();
        for (topic, groups) in &self.alone {
            for (group, queues) in groups.iter().filter(|(_, queues)| !queues.is_empty()) {
                alone.insert(format!("{topic}{SEPARATOR}{group}"), queues.iter().copied().map(i32_of).collect());
            }
        }
        ConsumerOffsetTable {
            data_version: Some(self.version.clone()),
            offset_table,
            sf_committed_alone: Some(alone).filter(|alone| !alone.is_empty()),
        }
    }
}

fn i32_of(queue: u32) -> i32 {
    i32::try_from(queue).expect("queue ids come from an i32")
}

fn i64_of(offset: QueueOffset) -> i64 {
    i64::try_from(offset.0).expect("offsets come from an i64")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(queue: u32) -> GroupQueue<'static> {
        GroupQueue { group: "g", topic: "t", queue }
    }

    #[test]
    fn stored_table_reads_back_with_three_part_keys() {
        let offsets = ConsumerOffsets::new(ConsumerOffsetTable::default(), 500);
        offsets.commit(at(0), QueueOffset(7), 1);
        offsets.commit(GroupQueue { group: "g@broadcast", topic: "t", queue: 3 }, QueueOffset(0), 1);
        let stored = offsets.take_changes().unwrap();
        assert_eq!(offsets.take_changes(), None);
        let again = ConsumerOffsets::new(stored, 500);
        assert_eq!(again.get(at(0)), Some(QueueOffset(7)));
        assert_eq!(again.groups_of("t"), ["g", "g@broadcast"]);
        assert_eq!(again.len(), 2);
    }

    #[test]
    fn version_rises_once_per_step() {
        let offsets = ConsumerOffsets::new(ConsumerOffsetTable::default(), 3);
        for commit in 0..7 {
            offsets.commit(at(0), QueueOffset(commit), 100);
        }
        assert_eq!(offsets.snapshot().data_version.unwrap().counter, 2);
    }

    #[test]
    fn w10_clamp_lowers_only_what_lies_beyond_the_end() {
        let offsets = ConsumerOffsets::new(ConsumerOffsetTable::default(), 500);
        offsets.commit(at(0), QueueOffset(7), 1);
        offsets.commit(at(1), QueueOffset(7), 1);
        assert_eq!(offsets.clamp(|_, queue| QueueOffset(if queue == 0 { 5 } else { 7 })), 1);
        assert_eq!(offsets.get(at(0)), Some(QueueOffset(5)));
        assert_eq!(offsets.get(at(1)), Some(QueueOffset(7)));
    }

    fn copied(offsets: &[(u32, i64)]) -> ConsumerOffsetTable {
        let queues = offsets.iter().map(|(queue, offset)| (i32_of(*queue), *offset)).collect();
        ConsumerOffsetTable {
            data_version: Some(DataVersion { counter: 9, ..DataVersion::default() }),
            offset_table: BTreeMap::from([("t@g".to_owned(), queues)]),
            sf_committed_alone: None,
        }
    }

    #[test]
    fn table_of_the_master_counts_and_own_extras_stay() {
        let offsets = ConsumerOffsets::new(ConsumerOffsetTable::default(), 500);
        offsets.commit(at(0), QueueOffset(7), 1);
        offsets.commit(at(1), QueueOffset(7), 1);
        offsets.take_changes();
        offsets.put_over(copied(&[(0, 5), (2, 3)]));
        assert_eq!([0, 1, 2].map(|queue| offsets.get(at(queue)).unwrap().0), [5, 7, 3]);
        assert_eq!(offsets.take_changes().unwrap().data_version.unwrap().counter, 9);
        offsets.put_over(copied(&[(0, 5), (2, 3)]));
        assert_eq!(offsets.take_changes(), None, "an equal table changes nothing");
    }

    #[test]
    fn ho11_what_was_committed_without_a_master_is_kept_until_the_master_has_it() {
        let offsets = ConsumerOffsets::new(ConsumerOffsetTable::default(), 500);
        offsets.commit_alone(at(0), QueueOffset(7), 1);
        offsets.commit_alone(at(1), QueueOffset(7), 1);
        // The marks survive a restart of the slave.
        let stored = offsets.snapshot();
        assert_eq!(stored.sf_committed_alone, Some(BTreeMap::from([("t@g".to_owned(), vec![0, 1])])));
        let offsets = ConsumerOffsets::new(stored, 500);
        offsets.put_over(copied(&[(0, 5), (1, 8)]));
        assert_eq!([0, 1].map(|queue| offsets.get(at(queue)).unwrap().0), [7, 8]);
        assert_eq!(offsets.snapshot().sf_committed_alone, Some(BTreeMap::from([("t@g".to_owned(), vec![0])])));
        offsets.put_over(copied(&[(0, 7), (1, 8)]));
        assert_eq!(offsets.snapshot().sf_committed_alone, None);
        // From now on the master decides again.
        offsets.put_over(copied(&[(0, 2), (1, 1)]));
        assert_eq!([0, 1].map(|queue| offsets.get(at(queue)).unwrap().0), [2, 1]);
    }

    #[test]
    fn ho11_master_takes_over_what_only_a_slave_was_told() {
        let slave = ConsumerOffsets::new(ConsumerOffsetTable::default(), 500);
        for queue in 0..4 {
            slave.commit_alone(at(queue), QueueOffset(7), 1);
        }
        slave.commit(at(4), QueueOffset(7), 1);
        let master = ConsumerOffsets::new(ConsumerOffsetTable::default(), 500);
        master.commit(at(0), QueueOffset(5), 1);
        master.commit(at(1), QueueOffset(9), 1);
        let end = |_: &str, queue| QueueOffset(if queue == 3 { 6 } else { 20 });
        assert_eq!(master.take_alone(slave.snapshot(), 1, end), 3);
        let offset = |queue| master.get(at(queue)).map(|offset| offset.0);
        assert_eq!([0, 1, 2, 3, 4].map(offset), [Some(7), Some(9), Some(7), Some(6), None]);
        assert_eq!(master.snapshot().sf_committed_alone, None, "they are the master's now");
    }

    #[test]
    fn removed_topics_and_groups_are_gone() {
        let offsets = ConsumerOffsets::new(ConsumerOffsetTable::default(), 500);
        offsets.commit(at(0), QueueOffset(7), 1);
        offsets.commit(GroupQueue { group: "h", topic: "t", queue: 0 }, QueueOffset(1), 1);
        offsets.remove_group("g");
        assert_eq!(offsets.get(at(0)), None);
        assert_eq!(offsets.topics_of("h"), ["t"]);
        offsets.remove_topic("t");
        assert_eq!(offsets.len(), 0);
    }
}
