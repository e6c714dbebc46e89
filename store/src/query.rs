//! Finding messages by key.

use bytes::Bytes;
use message::{PhyOffset, RecordView};

use crate::{
    Store,
    index::{key_hash, keys_of},
};

/// Bytes of messages that one search gives at most, unless the first one has more: an answer must fit a frame of the wire.
const RESULT_BYTES_MAX: usize = 12 << 20;

/// What to find.
#[derive(Debug, Clone, Copy)]
pub struct KeyQuery<'a> {
    /// Topic of the messages, as they are stored: a delayed message that waits is one of the schedule topic.
    pub topic: &'a str,
    /// The unique id of the message, or a word of its `KEYS`.
    pub key: &'a str,
    /// Most messages wanted; `maxMsgsNumBatch` bounds it.
    pub max_count: u32,
    /// Messages stored before this time are not wanted, wall-clock milliseconds.
    pub begin_ms: i64,
    /// Nor those stored after this time.
    pub end_ms: i64,
}

/// What a search gave.
#[derive(Debug, Clone, Default)]
pub struct KeyResult {
    /// The records, in the order of the log. If there are more than were wanted, these are the latest.
    pub records: Vec<Bytes>,
    /// When the latest message that has a key was stored, wall-clock milliseconds; 0 if there is none.
    pub index_last_ms: i64,
    /// Where it is.
    pub index_last_phy: PhyOffset,
}

impl Store {
    /// Finds messages of a topic by key, among those that are dispatched and not deleted. Nothing is found if
    /// `messageIndexEnable` is false. Does not wait for the disk, but for pages that are not in the page cache.
    ///
    /// Source: `spec/store.md` 6.5.
    #[must_use]
    pub fn query(&self, query: &KeyQuery<'_>) -> KeyResult {
        let Some(index) = &self.index else { return KeyResult::default() };
        let max_count = query.max_count.min(self.config.query_max_count) as usize;
        let log_start = self.log.start();
        let mut bytes = 0;
        let mut found: Vec<(u64, Bytes)> = Vec::new();
        index.find(key_hash(query.topic, query.key), (query.begin_ms, query.end_ms), |phy| {
            if phy >= log_start
                && let Some(record) = self.record_at(PhyOffset(phy)).filter(|record| is_wanted(record, query))
                // Two equal keys of one message follow each other.
                && found.last().is_none_or(|(last, _)| *last != phy)
                && found.len() < max_count
            {
                bytes += record.len();
                if bytes > RESULT_BYTES_MAX && !found.is_empty() {
                    return false;
                }
                found.push((phy, record));
            }
            found.len() < max_count && phy >= log_start
        });
        found.sort_by_key(|(phy, _)| *phy);
        let (index_last_ms, phy) = index.last();
        let records = found.into_iter().map(|(_, record)| record).collect();
        KeyResult { records, index_last_ms, index_last_phy: PhyOffset(phy) }
    }
}

/// Whether a record has the key itself, and not another one of the same hash, and was stored in time.
fn is_wanted(record: &[u8], query: &KeyQuery<'_>) -> bool {
    RecordView::parse(record).is_ok_and(|view| {
        view.topic == query.topic
            && keys_of(&view).any(|key| key == query.key)
            && (query.begin_ms..=query.end_ms).contains(&view.store_ms)
    })
}
