//! Reading the log forward: from bytes to the entries that consume queues and index must hold.

use indexmap::IndexMap;
use message::{
    DelayLevels, Frame, PhyOffset, Properties, QueueOffset, RecordError, RecordView, SCHEDULE_TOPIC, SysFlag,
    Transaction, body_crc, is_legal_name, peek, property, tags_code,
};

use crate::{
    entry::CqEntry,
    index::{IndexKey, push_keys},
};

/// Records of one run that are handed on together at most.
const RUN_RECORDS: usize = 2048;
/// Bytes of log after which a run ends.
const RUN_BYTES: usize = 1 << 20;

/// What is checked of every record. The structure always is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checks {
    /// The CRC of the body.
    pub(crate) body: bool,
    /// From this position on, that the properties can be read to their end and show no lost page.
    pub(crate) properties_from: u64,
    /// Only of records stored later than this.
    pub(crate) properties_after_ms: i64,
    /// And that they end with a separator, as all do that this store has written. Others may leave out the last one.
    pub(crate) properties_end: bool,
}

impl Checks {
    /// For records that this process has written.
    pub(crate) const STRUCTURE: Checks =
        Checks { body: false, properties_from: u64::MAX, properties_after_ms: i64::MAX, properties_end: false };
}

/// Consecutive entries of one queue, in the order of the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) topic: String,
    pub(crate) queue_id: u32,
    pub(crate) first: QueueOffset,
    pub(crate) entries: Vec<CqEntry>,
}

/// What a run of records gives.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// By queue; of one queue in the order of the log.
    pub(crate) groups: Vec<Group>,
    /// Of all records, in the order of the log, if they were asked for.
    pub(crate) keys: Vec<IndexKey>,
    /// Bytes of whole records, and of the blank record if the run ended with one.
    pub(crate) bytes: u64,
    /// Start of the last record, relative to the run.
    pub(crate) last_at: Option<u64>,
    /// Store time of the last record.
    pub(crate) last_store_ms: i64,
    /// Why it ended.
    pub(crate) ended: Ended,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The bytes are used up, or the run is long enough: go on behind it.
    #[default]
    More,
    /// A blank record: go on with the next file. It starts this far into the run.
    Blank { at: u64 },
    /// What follows is no record.
    Invalid(RecordError),
}

/// Reads records from `bytes`, which start at `phy` and reach to the end of the file or of what may be read.
pub(crate) fn read_run(bytes: &[u8], phy: u64, checks: Checks, with_keys: bool, delays: &DelayLevels) -> Run {
    let mut run = Run::default();
    let mut open: IndexMap<(&str, u32), usize> = IndexMap::new(); // Queue to its latest group.
    let mut last_queue = None;
    let mut latest = None; // Latest group of that queue.
    let mut at = 0;
    let mut records = 0;
    while at < bytes.len() && at < RUN_BYTES && records < RUN_RECORDS {
        let rest = &bytes[at..];
        let view = match check_record(rest, phy + at as u64, checks) {
            Ok(Some(view)) => view,
            Ok(None) => {
                run.ended = Ended::Blank { at: at as u64 };
                at = bytes.len();
                break;
            }
            Err(error) => {
                run.ended = Ended::Invalid(error);
                break;
            }
        };
        run.last_at = Some(at as u64);
        run.last_store_ms = view.store_ms;
        at += view.size_bytes as usize;
        records += 1;
        if with_keys {
            push_keys(&view, &mut run.keys);
        }
        if !has_entry(&view) {
            continue;
        }
        let entry = CqEntry { phy: view.phy, size_bytes: view.size_bytes, tags_code: entry_tags_code(&view, delays) };
        let queue = (view.topic, view.queue_id);
        // Records of one producer tend to follow each other.
        if last_queue != Some(queue) {
            last_queue = Some(queue);
            latest = open.get(&queue).copied();
        }
        match latest.map(|index| &mut run.groups[index]) {
            Some(group) if group.first.0 + group.entries.len() as u64 == view.queue_offset.0 => {
                group.entries.push(entry);
            }
            _ => {
                latest = Some(run.groups.len());
                open.insert(queue, run.groups.len());
                run.groups.push(Group {
                    topic: view.topic.to_owned(),
                    queue_id: view.queue_id,
                    first: view.queue_offset,
                    entries: vec![entry],
                });
            }
        }
    }
    run.bytes = at as u64;
    run
}

/// Highest offset whose entry has a place in a queue, and one behind it.
const QUEUE_OFFSET_MAX: u64 = i64::MAX as u64 / CqEntry::SIZE_BYTES - 1;

/// The record at the start of `rest`, which lies at `phy` and reaches to the end of the file; `None` for a blank one.
///
/// # Errors
/// It is not valid. Source: `spec/store.md` 2.4 and SF06.
pub(crate) fn check_record(rest: &[u8], phy: u64, checks: Checks) -> Result<Option<RecordView<'_>>, RecordError> {
    if let Frame::Blank { size_bytes } = peek(rest)? {
        if size_bytes as usize != rest.len() {
            return Err(RecordError::Size { stated: size_bytes as usize, computed: rest.len() });
        }
        return Ok(None);
    }
    let view = RecordView::parse(rest)?;
    let bad = |field, value| Err(RecordError::Field { field, value });
    if view.phy != PhyOffset(phy) {
        return bad("physical offset", view.phy.0 as i64);
    }
    if view.store_ms <= 0 {
        return bad("store time", view.store_ms);
    }
    if view.queue_offset.0 > QUEUE_OFFSET_MAX {
        return bad("queue offset", view.queue_offset.0 as i64);
    }
    if !is_legal_name(view.topic) {
        return Err(RecordError::Text("topic"));
    }
    if checks.body && body_crc(view.body) != view.body_crc {
        return bad("body CRC", i64::from(view.body_crc));
    }
    let unsure = phy >= checks.properties_from && view.store_ms > checks.properties_after_ms;
    let is_cut = checks.properties_end && !Properties::is_ended(view.properties);
    if unsure && (is_cut || !Properties::is_intact(view.properties)) {
        return Err(RecordError::Text("properties"));
    }
    Ok(Some(view))
}

/// The first place at or behind `at` where `bytes`, which lie at `phy`, hold a record; their end if they
/// hold none.
pub(crate) fn next_record(bytes: &[u8], phy: u64, at: usize) -> usize {
    let is_record = |&at: &usize| matches!(check_record(&bytes[at..], phy + at as u64, Checks::STRUCTURE), Ok(Some(_)));
    (at..bytes.len()).find(is_record).unwrap_or(bytes.len())
}

/// Whether a record has an entry in its queue. Half messages and rollback marks do not.
pub(crate) fn has_entry(view: &RecordView<'_>) -> bool {
    takes_offset(view.sys_flag)
}

/// As [`has_entry`], from the flag alone. An inner batch takes several offsets and lives in another kind of queue.
pub(crate) fn takes_offset(flag: SysFlag) -> bool {
    matches!(flag.transaction(), Transaction::None | Transaction::Commit) && !flag.has(SysFlag::INNER_BATCH)
}

/// The tags code of an entry: the hash of the tag, or the time of delivery of a delayed message.
pub(crate) fn entry_tags_code(view: &RecordView<'_>, delays: &DelayLevels) -> i64 {
    if view.topic == SCHEDULE_TOPIC
        && let Some(level) = view.property(property::DELAY_LEVEL).and_then(|level| level.parse::<usize>().ok())
        && let Some(delay) = delays.delay(level)
    {
        return view.store_ms + delay.as_millis() as i64;
    }
    tags_code(view.property(property::TAGS))
}

#[cfg(test)]
mod tests {
    use message::{DelayLevels, Draft, PhyOffset, QueueOffset, RecordError, Stamp, SysFlag, stamp};

    use super::{Checks, Ended, check_record, read_run};

    fn record(phy: u64, offset: u64) -> Vec<u8> {
        let draft = Draft {
            topic: "t",
            queue_id: 0,
            flag: 0,
            sys_flag: SysFlag(0),
            born_ms: 1,
            born_host: "10.0.0.9:50000".parse().unwrap(),
            store_host: "10.0.0.1:10911".parse().unwrap(),
            reconsume_times: 0,
            prepared_phy: PhyOffset(0),
            body: b"body",
            properties: "",
        };
        let mut record = Vec::new();
        draft.encode(&mut record).unwrap();
        stamp(&mut record, Stamp { queue_offset: QueueOffset(offset), phy: PhyOffset(phy), store_ms: 1 });
        record
    }

    /// The reference passes over the rest of what can be read, and the queues lack it for good.
    #[test]
    fn w27_a_bad_record_ends_the_run_and_nothing_behind_it_is_taken() {
        let size = record(0, 0).len();
        let mut log: Vec<u8> = (0..3).flat_map(|offset| record(offset * size as u64, offset)).collect();
        let run = |log: &[u8]| read_run(log, 0, Checks::STRUCTURE, true, &DelayLevels::default());
        assert_eq!((run(&log).bytes, run(&log).groups[0].entries.len()), (3 * size as u64, 3));
        log[size + 7] ^= 1; // The magic of the second one.
        let run = run(&log);
        assert_eq!((run.bytes, run.groups[0].entries.len()), (size as u64, 1));
        assert!(matches!(run.ended, Ended::Invalid(RecordError::Magic(_))), "{:?}", run.ended);
    }

    #[test]
    fn a_queue_offset_whose_entry_would_have_no_place_is_none() {
        let last = i64::MAX as u64 / 20 - 1;
        assert!(check_record(&record(0, last), 0, Checks::STRUCTURE).is_ok());
        let error = check_record(&record(0, last + 1), 0, Checks::STRUCTURE).unwrap_err();
        assert_eq!(error, RecordError::Field { field: "queue offset", value: last as i64 + 1 });
    }
}
