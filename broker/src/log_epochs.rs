//! Whether an offset that a client holds still means what it meant.
//!
//! A power loss can take the end of the log, and new messages then get the offsets of the lost ones. A live consumer that
//! goes on at its old position would skip them. So every start that may have cut the log begins a new epoch; clients say
//! to which epoch their offsets belong, and get them corrected. Source: `spec/client.md` H39, `docs/wire.md`.

use std::{collections::BTreeMap, path::Path};

use host::Host;
use message::QueueOffset;
use remoting::LogEpoch;
use serde::{Deserialize, Serialize};
use store::{Store, StoreError, config_file::ConfigFile};
use tracing::info;

/// The epoch of the log, and what is left of the one before.
#[derive(Debug)]
pub(crate) struct LogEpochs {
    current: LogEpoch,
    /// `None` if this start did not end an epoch: the ends that it found then tell nothing about older ones.
    ended: Option<Ended>,
}

/// An epoch that ended with this start.
#[derive(Debug)]
struct Ended {
    epoch: LogEpoch,
    kept: QueueEnds,
}

/// How far each queue reached when the store was opened, by topic and number: up to there it is the same in the ended
/// epoch and in the new one.
type QueueEnds = BTreeMap<String, BTreeMap<u32, QueueOffset>>;

/// The content of `logEpoch.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    epoch: i64,
}

impl LogEpochs {
    /// Reads the epoch from the folder of settings, and begins a new one, durably, unless the log is as its last user
    /// left it. Must be called before anything is appended, and before the store can be closed cleanly: after that
    /// nobody knows any more that the log was cut.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(crate) async fn open(host: &Host, store: &Store, folder: &Path) -> Result<LogEpochs, StoreError> {
        let file = ConfigFile::new(folder.join("logEpoch.json"));
        let last = file.load::<Stored>().await?.map(|stored| stored.epoch);
        if let Some(epoch) = last.filter(|_| store.is_continued()) {
            return Ok(LogEpochs { current: LogEpoch(epoch), ended: None });
        }
        // Not merely the next number: a disk that was replaced or restored from a backup must not get to an epoch that
        // clients know from its former content.
        let epoch = last.map_or(0, |last| last.wrapping_add(1)).max(host.wall_ms());
        file.save(&Stored { epoch }).await?;
        host::point!("broker.log-epoch-begun");
        info!(epoch, ?last, "new epoch of the log");
        let ended = last.map(|last| Ended { epoch: LogEpoch(last), kept: queue_ends(store) });
        Ok(LogEpochs { current: LogEpoch(epoch), ended })
    }

    /// What offsets belong to that are told from now on.
    pub(crate) fn current(&self) -> LogEpoch {
        self.current
    }

    /// An offset of `epoch` as it is now: the same, unless it lies in a part of the queue that was lost, then the end of
    /// what is left. Everything below the result was below the offset, too.
    ///
    /// `None` if that is not known, because more than one epoch has ended since, or this start ended none. An offset
    /// without an epoch is taken at its word, as the reference does.
    pub(crate) fn carry_over(
        &self,
        epoch: Option<LogEpoch>,
        topic: &str,
        queue: u32,
        offset: QueueOffset,
    ) -> Option<QueueOffset> {
        if epoch.is_none_or(|epoch| epoch == self.current) {
            return Some(offset);
        }
        let ended = self.ended.as_ref().filter(|ended| epoch == Some(ended.epoch))?;
        let kept = ended.kept.get(topic).and_then(|queues| queues.get(&queue)).copied().unwrap_or_default();
        Some(offset.min(kept))
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

    fn epochs(ended: Option<i64>) -> LogEpochs {
        let kept = BTreeMap::from([("t".to_owned(), BTreeMap::from([(1, KEPT)]))]);
        LogEpochs { current: LogEpoch(9), ended: ended.map(|epoch| Ended { epoch: LogEpoch(epoch), kept }) }
    }

    #[test]
    fn offsets_of_this_epoch_and_of_none_stay() {
        for epoch in [None, Some(LogEpoch(9))] {
            assert_eq!(epochs(Some(8)).carry_over(epoch, "t", 1, QueueOffset(100)), Some(QueueOffset(100)));
        }
    }

    #[test]
    fn offsets_of_the_epoch_before_are_lowered_to_what_is_left() {
        let carried = |topic, queue, offset| {
            epochs(Some(8)).carry_over(Some(LogEpoch(8)), topic, queue, QueueOffset(offset)).map(|offset| offset.0)
        };
        assert_eq!(carried("t", 1, 69), Some(69));
        assert_eq!(carried("t", 1, 70), Some(70));
        assert_eq!(carried("t", 1, 71), Some(70));
        // Nothing is left of a queue that is not there.
        assert_eq!(carried("t", 2, 71), Some(0));
        assert_eq!(carried("other", 1, 71), Some(0));
    }

    #[test]
    fn nothing_is_known_of_other_epochs() {
        let carried = |ended, epoch| epochs(ended).carry_over(Some(LogEpoch(epoch)), "t", 1, QueueOffset(1));
        assert_eq!(carried(Some(8), 7), None);
        // Of a log that is not there any more.
        assert_eq!(carried(Some(8), 10), None);
        assert_eq!(carried(None, 8), None);
    }
}
