//! Whether an offset that a client holds still means what it meant.
//!
//! A power loss can take the end of the log, and new messages then get the offsets of the lost ones. A live consumer that
//! goes on at its old position would skip them. So every start begins a new epoch; clients say to which epoch their
//! offsets belong, and get them corrected if the log may have been cut since. Source: `spec/client.md` H39,
//! `docs/wire.md`.
//!
//! An epoch that this log never had shows that its disk was replaced, or put back to an older state: a client has read
//! another log of this broker. Such a client is corrected like any other, and the operator is told. Even a backup that
//! was made while the broker stood still is noticed so, because the lives after it had epochs of their own. A backup of
//! the last life before is noticed if that showed nobody what was not on disk: then a client that has read more than is
//! left has read what no loss of power can take.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Mutex, PoisonError},
};

use host::Host;
use message::QueueOffset;
use remoting::LogEpoch;
use serde::{Deserialize, Serialize};
use store::{
    Store, StoreError,
    config_file::{ConfigFile, parse},
};
use tracing::{error, info};

use crate::config::Role;

/// So many epochs before the present one are known by their numbers. A broker that starts once a day has them for two
/// months.
const EARLIER_MAX: usize = 64;

/// So many epochs of other logs are told of one by one.
const FOREIGN_MAX: usize = 16;

/// Numbers of epochs that begin in one millisecond differ by chance.
const CHANCE: u64 = 1 << 12;

/// The epoch of the log, and what is left of those before.
///
/// A slave's log is a copy of its master's, and offsets belong to the master's epochs. The slave knows nothing of these:
/// it takes offsets at their word, and gives each back with the epoch that it came with, so that the master can judge it
/// later.
#[derive(Debug)]
pub(crate) struct LogEpochs {
    is_copy: bool,
    current: LogEpoch,
    /// Epochs whose offsets all mean the same now.
    continued: BTreeSet<i64>,
    /// `None` if this start did not cut the log: the ends that it found then tell nothing about older ones.
    ended: Option<Ended>,
    /// Other epochs of this log, of which it is not known any more what is left.
    earlier: BTreeSet<i64>,
    /// Epochs of other logs that clients came with. Leaf lock.
    foreign: Mutex<BTreeSet<i64>>,
}

/// Epochs that ended when this start may have cut the log.
#[derive(Debug)]
struct Ended {
    epochs: BTreeSet<i64>,
    kept: QueueEnds,
    /// Whether clients saw nothing then that was not on disk.
    shown_was_durable: bool,
}

/// How far each queue reached when the store was opened, by topic and number: up to there it is the same in the ended
/// epoch and in the new one.
type QueueEnds = BTreeMap<String, BTreeMap<u32, QueueOffset>>;

/// The content of `logEpoch.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Stored {
    epoch: i64,
    /// Whether clients see nothing, in it and in those that it continues, that is not on disk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    shows_durable: bool,
    /// Epochs before it whose offsets all mean the same, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    continues: Vec<i64>,
    /// Epochs before those, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<i64>,
}

impl Stored {
    /// The epochs up to this one whose offsets all mean the same.
    fn whole(&self) -> Vec<i64> {
        self.continues.iter().copied().chain([self.epoch]).collect()
    }

    /// The epoch of the next start.
    fn next(&self, epoch: i64, is_continued: bool, shows_durable: bool) -> Stored {
        let last_few = |mut epochs: Vec<i64>| epochs.split_off(epochs.len().saturating_sub(EARLIER_MAX));
        if is_continued {
            let shows_durable = shows_durable && self.shows_durable;
            return Stored { epoch, shows_durable, continues: last_few(self.whole()), earlier: self.earlier.clone() };
        }
        let earlier = self.earlier.iter().copied().chain(self.whole()).collect();
        Stored { epoch, shows_durable, continues: Vec::new(), earlier: last_few(earlier) }
    }
}

/// Whether a file holds epochs.
///
/// # Errors
/// Why it does not.
pub(crate) fn check(content: &[u8]) -> Result<(), String> {
    parse::<Stored>(content).map(drop)
}

impl LogEpochs {
    /// Reads the epoch from the folder of settings, and begins a new one, durably. Must be called before anything is
    /// appended, and before the store can be closed cleanly: after that nobody knows any more that the log was cut.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(crate) async fn open(host: &Host, store: &Store, folder: &Path, role: Role) -> Result<LogEpochs, StoreError> {
        let file = ConfigFile::new(folder.join("logEpoch.json"));
        let last = file.load::<Stored>().await?;
        // Not merely the next number: a disk that was replaced or restored from a backup must not get to an epoch that
        // clients know from its former content, whatever the clock shows.
        let least = last.as_ref().map_or(0, |last| last.epoch.wrapping_add(1)).max(host.wall_ms());
        let epoch =
            least.wrapping_add_unsigned(host.rng(&format!("broker.log-epoch.{}", host.wall_ms())).below(CHANCE));
        let (is_continued, shows_durable) = (store.is_continued(), store.hides_unflushed());
        let next = match &last {
            Some(last) => last.next(epoch, is_continued, shows_durable),
            None => Stored { epoch, shows_durable, ..Stored::default() },
        };
        file.save(&next).await?;
        host::point!("broker.log-epoch-begun");
        info!(epoch, last = last.as_ref().map(|last| last.epoch), is_continued, "new epoch of the log");
        let ended = last.filter(|_| !is_continued).map(|last| Ended {
            epochs: last.whole().into_iter().collect(),
            kept: queue_ends(store),
            shown_was_durable: last.shows_durable,
        });
        Ok(LogEpochs {
            is_copy: !role.is_master(),
            current: LogEpoch(epoch),
            continued: next.continues.into_iter().collect(),
            ended,
            earlier: next.earlier.into_iter().collect(),
            foreign: Mutex::default(),
        })
    }

    /// What the offsets of an answer belong to, if that is known. `asked` is what those of the request belong to.
    pub(crate) fn told(&self, asked: Option<LogEpoch>) -> Option<LogEpoch> {
        if self.is_copy { asked } else { Some(self.current) }
    }

    /// An offset of `epoch` as it is now: the same, unless it lies in a part of the queue that was lost, then the end of
    /// what is left. Everything below the result was below the offset, too.
    ///
    /// `None` if that is not known, because the log may have been cut more than once since, or is not the log that the
    /// offset belongs to. An offset without an epoch is taken at its word, as the reference does.
    pub(crate) fn carry_over(
        &self,
        epoch: Option<LogEpoch>,
        topic: &str,
        queue: u32,
        offset: QueueOffset,
    ) -> Option<QueueOffset> {
        if self.is_copy {
            return Some(offset);
        }
        let Some(epoch) = epoch.filter(|epoch| *epoch != self.current && !self.continued.contains(&epoch.0)) else {
            return Some(offset);
        };
        let Some(ended) = self.ended.as_ref().filter(|ended| ended.epochs.contains(&epoch.0)) else {
            if !self.earlier.contains(&epoch.0) {
                self.tell(epoch);
            }
            return None;
        };
        let kept = ended.kept.get(topic).and_then(|queues| queues.get(&queue)).copied().unwrap_or_default();
        if ended.shown_was_durable && offset > kept {
            self.tell(epoch);
        }
        Some(offset.min(kept))
    }

    /// Tells the operator of an epoch of which this log does not have all that it should, once.
    fn tell(&self, epoch: LogEpoch) {
        {
            let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
            if foreign.len() >= FOREIGN_MAX || !foreign.insert(epoch.0) {
                return;
            }
        }
        error!(
            epoch = epoch.0,
            current = self.current.0,
            "a client has read messages of this broker that were on disk and are not in this log: the disk was \
             replaced, restored from a backup, or has lost what it had, or a slave was ahead; the client is sent back"
        );
        host::point!("broker.log-exchanged", epoch.0);
    }
}

fn queue_ends(store: &Store) -> QueueEnds {
    let ends = |topic: &str, queues: Vec<u32>| {
        queues.into_iter().map(|queue| (queue, store.max_offset(topic, queue))).collect()
    };
    store.queues().into_iter().map(|(topic, queues)| (topic.clone(), ends(&topic, queues))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: QueueOffset = QueueOffset(70);

    fn epochs(ended: &[i64], continued: &[i64]) -> LogEpochs {
        let kept = BTreeMap::from([("t".to_owned(), BTreeMap::from([(1, KEPT)]))]);
        let ended = (!ended.is_empty()).then(|| Ended {
            epochs: ended.iter().copied().collect(),
            kept,
            shown_was_durable: false,
        });
        LogEpochs {
            is_copy: false,
            current: LogEpoch(9),
            continued: continued.iter().copied().collect(),
            ended,
            earlier: BTreeSet::from([3]),
            foreign: Mutex::default(),
        }
    }

    #[test]
    fn offsets_of_this_epoch_and_of_none_stay() {
        for epoch in [None, Some(LogEpoch(9)), Some(LogEpoch(6))] {
            assert_eq!(epochs(&[8], &[6]).carry_over(epoch, "t", 1, QueueOffset(100)), Some(QueueOffset(100)));
        }
    }

    #[test]
    fn offsets_of_the_epoch_before_are_lowered_to_what_is_left() {
        let carried = |topic, queue, offset| {
            let epochs = epochs(&[7, 8], &[]);
            let carried =
                [7, 8].map(|epoch| epochs.carry_over(Some(LogEpoch(epoch)), topic, queue, QueueOffset(offset)));
            assert_eq!(carried[0], carried[1]);
            carried[0].map(|offset| offset.0)
        };
        assert_eq!(carried("t", 1, 69), Some(69));
        assert_eq!(carried("t", 1, 70), Some(70));
        assert_eq!(carried("t", 1, 71), Some(70));
        // Nothing is left of a queue that is not there.
        assert_eq!(carried("t", 2, 71), Some(0));
        assert_eq!(carried("other", 1, 71), Some(0));
    }

    #[test]
    fn slave_takes_offsets_at_their_word_and_gives_their_epochs_back() {
        let epochs = LogEpochs { is_copy: true, ..epochs(&[8], &[]) };
        for epoch in [None, Some(LogEpoch(3)), Some(LogEpoch(8)), Some(LogEpoch(77))] {
            assert_eq!(epochs.carry_over(epoch, "t", 1, QueueOffset(100)), Some(QueueOffset(100)));
            assert_eq!(epochs.told(epoch), epoch);
        }
        assert!(epochs.foreign.lock().unwrap().is_empty());
    }

    #[test]
    fn who_has_read_what_was_on_disk_and_is_not_there_is_told_of() {
        let mut epochs = epochs(&[8], &[]);
        let told = |epochs: &LogEpochs| {
            for offset in [69, 70, 71, 72] {
                epochs.carry_over(Some(LogEpoch(8)), "t", 1, QueueOffset(offset));
            }
            epochs.foreign.lock().unwrap().clone()
        };
        assert_eq!(told(&epochs), BTreeSet::new(), "a loss of power takes what was not flushed");
        epochs.ended.as_mut().unwrap().shown_was_durable = true;
        assert_eq!(told(&epochs), BTreeSet::from([8]));
    }

    #[test]
    fn nothing_is_known_of_other_epochs() {
        let known = epochs(&[8], &[]);
        for epoch in [3, 7, 10, 7] {
            assert_eq!(known.carry_over(Some(LogEpoch(epoch)), "t", 1, QueueOffset(1)), None);
        }
        // Of another log; the third is merely too old.
        assert_eq!(*known.foreign.lock().unwrap(), BTreeSet::from([7, 10]));
        assert_eq!(epochs(&[], &[]).carry_over(Some(LogEpoch(8)), "t", 1, QueueOffset(1)), None);
    }

    #[test]
    fn clean_starts_continue_epochs_and_others_end_all_of_them() {
        let first = Stored { epoch: 1, ..Stored::default() };
        let third = first.next(2, true, true).next(3, true, true);
        assert_eq!((&third.continues[..], &third.earlier[..]), (&[1, 2][..], &[][..]));
        let fifth = third.next(4, false, true).next(5, true, true);
        assert_eq!((fifth.epoch, &fifth.continues[..], &fifth.earlier[..]), (5, &[4][..], &[1, 2, 3][..]));
        assert!(!third.shows_durable && fifth.shows_durable, "only as far as all that it continues did");
        let mut last = fifth;
        for epoch in 6..1_000 {
            last = last.next(epoch, epoch % 2 == 0, true);
        }
        assert_eq!((last.earlier.len(), last.earlier[0]), (EARLIER_MAX, 999 - EARLIER_MAX as i64));
    }
}
