//! Reading messages of one queue.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use message::{DelayLevels, PhyOffset, QueueOffset, RecordView};

use crate::{
    Store,
    commit_log::CommitLog,
    consume_queue::{Bounds, ConsumeQueue},
    entry::CqEntry,
    follow::{Checks, check_record, entry_tags_code, has_entry, next_record},
};

/// Least and most bytes that one read may ask for.
const MAX_BYTES_RANGE: (u64, u64) = (100, 128 << 20);
/// Entries of a queue that are read at once.
const SLOTS_PER_READ: usize = 128;
/// So many entries before a damaged one are looked at for a good one, from which the log is read on.
const ENTRIES_BACK_MAX: u64 = 4096;

/// Decides which messages a reader gets. Looked at from cheap to dear.
pub trait MessageFilter: Send + Sync {
    /// Whether a message with this tags code may pass. Called for every entry.
    fn matches_tags_code(&self, tags_code: i64) -> bool;

    /// Whether a message passes, judged by its record. Called after the code has passed; true unless overridden.
    fn matches_record(&self, record: &RecordView<'_>) -> bool {
        let _ = record;
        true
    }
}

/// What to read.
#[derive(Clone, Copy)]
pub struct GetRequest<'a> {
    /// Topic of the queue.
    pub topic: &'a str,
    /// Number of the queue.
    pub queue_id: u32,
    /// First message wanted.
    pub offset: QueueOffset,
    /// Most messages wanted.
    pub max_count: u32,
    /// Most bytes wanted; taken as at least 100 and at most 128 MiB. One message always passes.
    pub max_bytes: u64,
    /// Which messages; `None` for all.
    pub filter: Option<&'a dyn MessageFilter>,
}

/// How a read ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetStatus {
    /// At least one message.
    Found,
    /// The queue was never written.
    NoMessageInQueue,
    /// The offset lies below the queue.
    OffsetTooSmall,
    /// The offset is the end of the queue: nothing yet.
    OffsetOverflowOne,
    /// The offset lies beyond the end of the queue.
    OffsetOverflowBadly,
    /// The entries from the offset on cannot be read.
    OffsetFoundNull,
    /// Messages were looked at, none passed the filter.
    NoMatchedMessage,
    /// The messages have been deleted meanwhile.
    MessageWasRemoving,
}

/// What a read gave.
///
/// Source: `spec/store.md` 10.2, reference `GetMessageResult`.
#[derive(Debug, Clone)]
pub struct GetResult {
    /// How it ended.
    pub status: GetStatus,
    /// Where to read next.
    pub next: QueueOffset,
    /// First offset of the queue.
    pub min: QueueOffset,
    /// End of the queue.
    pub max: QueueOffset,
    /// The records, borrowed from the log without a copy; one piece holds one or more whole records.
    pub records: Vec<Bytes>,
    /// Messages in `records`.
    pub count: u32,
    /// Bytes in `records`.
    pub bytes: u64,
    /// The messages are so old that a slave should serve them.
    pub suggest_slave: bool,
}

/// Which of several messages stored in one millisecond answers a search by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeBoundary {
    /// The first.
    #[default]
    Lower,
    /// The last.
    Upper,
}

impl Store {
    /// Reads messages of one queue. Does not block and does not copy.
    ///
    /// Source: `spec/store.md` 10.
    pub fn get(&self, request: &GetRequest<'_>) -> GetResult {
        let begun = self.host.now();
        let result = self.read(request);
        self.stats.get_took(begun);
        result
    }

    fn read(&self, request: &GetRequest<'_>) -> GetResult {
        let queue = self.queue(request.topic, request.queue_id);
        let Bounds { min, max } = queue.as_ref().map_or_else(Bounds::default, |queue| self.shown(queue));
        let offset = request.offset.0;
        let (status, next) = match queue {
            None => (GetStatus::NoMessageInQueue, 0),
            Some(_) if max == 0 => (GetStatus::NoMessageInQueue, 0),
            Some(_) if offset < min => (GetStatus::OffsetTooSmall, min),
            Some(_) if offset == max => (GetStatus::OffsetOverflowOne, offset),
            Some(_) if offset > max => (GetStatus::OffsetOverflowBadly, max),
            Some(queue) => return Scan::new(self, request, Bounds { min, max }).run(&queue),
        };
        GetResult {
            status,
            next: QueueOffset(next),
            min: QueueOffset(min),
            max: QueueOffset(max),
            records: Vec::new(),
            count: 0,
            bytes: 0,
            suggest_slave: false,
        }
    }

    /// Waits until the queue holds messages at or beyond `offset`, that is `max_offset > offset`. At once if it does.
    /// Works for queues that do not exist yet. Dropping the future ends the wait.
    pub async fn arrival(&self, topic: &str, queue_id: u32, offset: QueueOffset) {
        let queue = self.queues.find_or_make(topic, queue_id);
        loop {
            let mut grown = std::pin::pin!(queue.grown.notified());
            grown.as_mut().enable(); // Before the look, or an arrival could come in between.
            if self.shown(&queue).max > offset.0 {
                return;
            }
            grown.await;
        }
    }

    /// First offset of a queue that can still be read; 0 for a queue that was never written.
    #[must_use]
    pub fn min_offset(&self, topic: &str, queue_id: u32) -> QueueOffset {
        QueueOffset(self.queue(topic, queue_id).map_or(0, |queue| queue.bounds().min))
    }

    /// End of a queue as readers see it: the offset that its next message gets, unless messages are still being
    /// dispatched; 0 for a queue that was never written.
    #[must_use]
    pub fn max_offset(&self, topic: &str, queue_id: u32) -> QueueOffset {
        QueueOffset(self.queue(topic, queue_id).map_or(0, |queue| self.shown(&queue).max))
    }

    /// End of the part of a queue whose messages are certainly on disk. A consumer offset that is made durable must not
    /// lie beyond it (SF14).
    #[must_use]
    pub fn durable_offset(&self, topic: &str, queue_id: u32) -> QueueOffset {
        let Some(queue) = self.queue(topic, queue_id) else { return QueueOffset(0) };
        let Bounds { min, max } = queue.bounds();
        let flushed = self.log.flushed();
        let is_dirty = |entry: Option<CqEntry>| entry.is_none_or(|entry| !entry.is_blank() && entry.end() > flushed);
        // Usually all is on disk, or only the last few are not.
        if max == 0 || queue.entry(max - 1).is_ok_and(|last| !is_dirty(last)) {
            return QueueOffset(max);
        }
        QueueOffset(queue.partition(min, max, is_dirty).unwrap_or(min))
    }

    /// The offset at which messages of a time start (or end, by `boundary`). Between `min_offset` and `max_offset`.
    ///
    /// Source: `spec/store.md` 5.7.
    #[must_use]
    pub fn offset_by_time(&self, topic: &str, queue_id: u32, time_ms: i64, boundary: TimeBoundary) -> QueueOffset {
        let Some(queue) = self.queue(topic, queue_id) else { return QueueOffset(0) };
        let Bounds { min, max } = self.shown(&queue);
        // A message whose time cannot be read has been deleted, so it is an early one.
        let found = queue.partition(min, max, |entry| {
            let stored_ms = entry.and_then(|entry| store_ms(&self.log, entry));
            stored_ms.is_some_and(|stored_ms| match boundary {
                TimeBoundary::Lower => stored_ms >= time_ms,
                TimeBoundary::Upper => stored_ms > time_ms,
            })
        });
        let found = found.unwrap_or(min);
        QueueOffset(match boundary {
            TimeBoundary::Lower => found,
            TimeBoundary::Upper => found.saturating_sub(1).max(min),
        })
    }

    /// When the message at `min_offset` was stored, wall-clock milliseconds. `None` if the queue is empty.
    #[must_use]
    pub fn earliest_store_ms(&self, topic: &str, queue_id: u32) -> Option<i64> {
        self.store_ms_at(topic, queue_id, self.min_offset(topic, queue_id))
    }

    /// When the message at `offset` was stored, wall-clock milliseconds. `None` if there is none.
    #[must_use]
    pub fn store_ms_at(&self, topic: &str, queue_id: u32, offset: QueueOffset) -> Option<i64> {
        let queue = self.queue(topic, queue_id)?;
        // An entry that cannot be read is one that is not there.
        let entry = queue.entry(offset.0).ok().flatten()?;
        store_ms(&self.log, entry)
    }

    /// The record that starts at `phy`, without a copy. `None` if no record starts there (any more).
    #[must_use]
    pub fn record_at(&self, phy: PhyOffset) -> Option<Bytes> {
        self.log.record(phy.0).filter(|_| phy.0 < self.hidden_from.load(Ordering::Acquire))
    }

    /// Shows readers nothing that lies at `from` or behind it in the log, until this is called again; `None` shows all. The
    /// queues end there for them.
    pub fn hide_from(&self, from: Option<PhyOffset>) {
        let from = from.map_or(u64::MAX, |from| from.0);
        if self.hidden_from.swap(from, Ordering::AcqRel) < from {
            for queue in self.queues.all() {
                queue.grown.notify_waiters();
            }
        }
    }

    /// First and last offset of a queue as readers see it.
    fn shown(&self, queue: &ConsumeQueue) -> Bounds {
        let Bounds { min, max } = queue.bounds();
        let from = self.hidden_from.load(Ordering::Acquire);
        if from == u64::MAX {
            return Bounds { min, max };
        }
        let is_hidden = |entry: Option<CqEntry>| entry.is_some_and(|entry| entry.phy.0 >= from);
        // What cannot be read is not shown.
        Bounds { min, max: queue.partition(min, max, is_hidden).unwrap_or(min) }
    }

    /// Topics that have messages, or had them, with the numbers of their queues, in order.
    #[must_use]
    pub fn queues(&self) -> Vec<(String, Vec<u32>)> {
        let mut topics: Vec<(String, Vec<u32>)> = Vec::new();
        for queue in self.queues.all().iter().filter(|queue| queue.bounds().max > 0) {
            match topics.last_mut() {
                Some((topic, ids)) if *topic == queue.topic => ids.push(queue.queue_id),
                _ => topics.push((queue.topic.clone(), vec![queue.queue_id])),
            }
        }
        topics
    }

    /// Start of the commit log.
    #[must_use]
    pub fn min_phy(&self) -> PhyOffset {
        PhyOffset(self.log.start())
    }

    /// End of the commit log.
    #[must_use]
    pub fn max_phy(&self) -> PhyOffset {
        PhyOffset(self.log.written())
    }

    /// End of the part of the commit log that is on disk.
    #[must_use]
    pub fn flushed_phy(&self) -> PhyOffset {
        PhyOffset(self.log.flushed())
    }

    /// Bytes that were put and that no log file holds yet: those in the buffer pool. A kill of the process loses them.
    #[must_use]
    pub fn uncommitted_bytes(&self) -> u64 {
        self.log.uncommitted()
    }

    /// Buffers of the pool that no log file has; `None` without a pool.
    #[must_use]
    pub fn free_buffers(&self) -> Option<usize> {
        self.log.free_buffers()
    }

    /// Bytes of the commit log that readers may see and that are not in consume queues yet.
    #[must_use]
    pub fn dispatch_behind_bytes(&self) -> u64 {
        self.bound.of(&self.log).saturating_sub(self.queues.reached())
    }
}

fn store_ms(log: &CommitLog, entry: CqEntry) -> Option<i64> {
    let record = log.slice(entry.phy.0, u64::from(entry.size_bytes))?;
    RecordView::parse(&record).ok().map(|view| view.store_ms)
}

/// One read under way.
struct Scan<'a> {
    log: &'a CommitLog,
    delays: &'a DelayLevels,
    request: &'a GetRequest<'a>,
    limits: Limits,
    /// Entries that are looked at at most.
    max_entries: u64,
    /// Part of the log that the last record came from, and where it starts.
    window: Option<(u64, Bytes)>,
    /// Records side by side that are not handed over yet: start and end in the log.
    run: Option<(u64, u64)>,
    result: GetResult,
    /// Position of the last entry that was looked at.
    last_phy: u64,
    /// The last message that was found in the log, because its entry is damaged: its offset, and where it ends.
    found: Option<(u64, u64)>,
}

/// When a read has enough.
struct Limits {
    max_bytes: u64,
    max_count: u32,
    memory: (u64, u32),
    disk: (u64, u32),
    /// Messages from here on count as recent.
    recent_from: u64,
}

impl<'a> Scan<'a> {
    fn new(store: &'a Store, request: &'a GetRequest<'a>, bounds: Bounds) -> Scan<'a> {
        let config = &store.config;
        let memory = config.memory_bytes / 100 * u64::from(config.memory_max_percent);
        Scan {
            log: &store.log,
            delays: &config.delay_levels,
            request,
            limits: Limits {
                max_bytes: request.max_bytes.clamp(MAX_BYTES_RANGE.0, MAX_BYTES_RANGE.1),
                max_count: request.max_count,
                memory: (config.transfer_memory_bytes, config.transfer_memory_count),
                disk: (config.transfer_disk_bytes, config.transfer_disk_count),
                recent_from: store.log.written().saturating_sub(memory),
            },
            max_entries: (config.filter_max_bytes / CqEntry::SIZE_BYTES).max(u64::from(request.max_count)),
            window: None,
            run: None,
            result: GetResult {
                status: GetStatus::NoMatchedMessage,
                next: request.offset,
                min: QueueOffset(bounds.min),
                max: QueueOffset(bounds.max),
                records: Vec::new(),
                count: 0,
                bytes: 0,
                suggest_slave: false,
            },
            last_phy: u64::MAX,
            found: None,
        }
    }

    fn run(mut self, queue: &ConsumeQueue) -> GetResult {
        let first = self.request.offset.0;
        let end = self.result.max.0.min(first.saturating_add(self.max_entries));
        let mut skip_below = 0;
        'scan: while self.result.next.0 < end {
            let from = self.result.next.0;
            let limit = (end - from).min(SLOTS_PER_READ as u64) as usize;
            let slots = match queue.slots(from, limit) {
                Ok(slots) if !slots.is_empty() => slots,
                // The file has gone meanwhile: go on behind it.
                Ok(_) => {
                    if self.result.count == 0 {
                        self.result.status = GetStatus::OffsetFoundNull;
                        self.result.next = QueueOffset(queue.next_file_entry(from).min(self.result.max.0));
                    }
                    break;
                }
                // The log still has what they point at.
                Err(_) => vec![None; limit.min((queue.next_file_entry(from) - from) as usize)],
            };
            for (index, slot) in (from..).zip(slots) {
                let entry = match slot {
                    Some(entry) => Some(entry).filter(|entry| !entry.is_blank()),
                    None => self.find_in_log(queue, index),
                };
                let Some(entry) = entry else {
                    self.result.next = QueueOffset(index + 1);
                    continue;
                };
                if self.is_enough(&entry) {
                    break 'scan;
                }
                self.result.next = QueueOffset(index + 1);
                self.last_phy = entry.phy.0;
                if entry.phy.0 < skip_below {
                    continue;
                }
                if self.request.filter.is_some_and(|filter| !filter.matches_tags_code(entry.tags_code)) {
                    continue;
                }
                if !self.take(queue, index, &entry) {
                    skip_below = self.log.next_file_start(entry.phy.0);
                }
            }
        }
        self.hand_over();
        if self.result.count > 0 {
            self.result.status = GetStatus::Found;
        }
        self.result.suggest_slave = self.last_phy < self.limits.recent_from;
        self.result
    }

    /// Whether one more message would be too much. The first one never is.
    fn is_enough(&self, entry: &CqEntry) -> bool {
        let (count, bytes) = (self.result.count, self.result.bytes);
        let is_recent = entry.phy.0 >= self.limits.recent_from;
        let (soft_bytes, soft_count) = if is_recent { self.limits.memory } else { self.limits.disk };
        let with_it = bytes + u64::from(entry.size_bytes);
        count > 0 && (count >= self.limits.max_count.min(soft_count) || with_it > self.limits.max_bytes.min(soft_bytes))
    }

    /// Adds the record of an entry, unless the filter does not want it. False if there is no such record.
    fn take(&mut self, queue: &ConsumeQueue, index: u64, entry: &CqEntry) -> bool {
        let record = self.record(entry);
        // A message that was deleted has no record. Else the entry is damaged.
        if record.is_none() && !self.is_damaged(queue, index, entry) {
            self.result.status = GetStatus::MessageWasRemoving;
            return false;
        }
        let found_record;
        let (entry, view) = match record.as_ref().and_then(|record| message_of(record, queue, (index, entry.phy))) {
            Some(view) => (*entry, view),
            None => {
                let (topic, queue_id, phy) = (&queue.topic, queue.queue_id, entry.phy.0);
                tracing::error!(topic, queue_id, index, phy, "no message of this queue there");
                let Some(found) = self.find_in_log(queue, index) else { return true };
                let Some(record) = self.record(&found) else { return true };
                found_record = record;
                let Some(view) = message_of(&found_record, queue, (index, found.phy)) else { return true };
                (found, view)
            }
        };
        if self.request.filter.is_some_and(|filter| !filter.matches_record(&view)) {
            return true;
        }
        match &mut self.run {
            Some((_, to)) if *to == entry.phy.0 => *to = entry.end(),
            _ => {
                self.hand_over();
                self.run = Some((entry.phy.0, entry.end()));
            }
        }
        self.result.count += 1;
        self.result.bytes += u64::from(entry.size_bytes);
        true
    }

    /// Whether an entry without a record is wrong, rather than one whose message was deleted: it points into the log, or
    /// before the message in front of it.
    fn is_damaged(&self, queue: &ConsumeQueue, index: u64, entry: &CqEntry) -> bool {
        let before = || queue.slots(index.checked_sub(1)?, 1).ok()?.first().copied().flatten();
        entry.phy.0 >= self.log.start() || before().is_some_and(|before| before.phy.0 > entry.phy.0)
    }

    /// The entry of a message as the log says it, where the queue cannot be read or is wrong. The log is the truth. It is
    /// read on from the nearest message before that has a good entry.
    fn find_in_log(&mut self, queue: &ConsumeQueue, index: u64) -> Option<CqEntry> {
        let mut at = self.end_before(queue, index).max(self.log.start());
        while let Some(bytes) = self.log.readable(at, u64::MAX) {
            let mut read = 0;
            while read < bytes.len() {
                let (phy, rest) = (at + read as u64, &bytes[read..]);
                let view = match check_record(rest, phy, Checks::STRUCTURE) {
                    Ok(Some(view)) => view,
                    // Behind a blank record the file ends.
                    Ok(None) => break,
                    Err(_) => {
                        read = next_record(&bytes, at, read + 1);
                        continue;
                    }
                };
                let is_of_queue = view.topic == queue.topic && view.queue_id == queue.queue_id && has_entry(&view);
                // Offsets of a queue grow: behind a later one it does not come any more.
                if is_of_queue && view.queue_offset.0 > index {
                    return None;
                }
                if is_of_queue && view.queue_offset.0 == index {
                    let tags_code = entry_tags_code(&view, self.delays);
                    let entry = CqEntry { phy: view.phy, size_bytes: view.size_bytes, tags_code };
                    self.found = Some((index, entry.end()));
                    host::point!("store.entry-found-in-log", index);
                    return Some(entry);
                }
                read += view.size_bytes as usize;
            }
            at = self.log.next_file_start(at);
        }
        None
    }

    /// Where the nearest message before `index` ends that has a good entry; 0 if none is near.
    fn end_before(&mut self, queue: &ConsumeQueue, index: u64) -> u64 {
        if let Some((_, end)) = self.found.filter(|(found, _)| found + 1 == index) {
            return end;
        }
        for before in (index.saturating_sub(ENTRIES_BACK_MAX)..index).rev() {
            let slot = queue.slots(before, 1).ok().and_then(|slots| slots.first().copied().flatten());
            let Some(entry) = slot.filter(|entry| !entry.is_blank()) else { continue };
            let record = self.log.slice(entry.phy.0, u64::from(entry.size_bytes));
            if record.is_some_and(|record| message_of(&record, queue, (before, entry.phy)).is_some()) {
                return entry.end();
            }
        }
        0
    }

    /// The bytes of a record.
    fn record(&mut self, entry: &CqEntry) -> Option<Bytes> {
        let (from, to) = (entry.phy.0, entry.end());
        let holds = |&(start, ref bytes): &(u64, Bytes)| start <= from && to <= start + bytes.len() as u64;
        if !self.window.as_ref().is_some_and(holds) {
            self.hand_over();
            let bytes = self.log.readable(from, u64::MAX)?;
            self.window = Some((from, bytes));
        }
        let (start, bytes) = self.window.as_ref().filter(|window| holds(window))?;
        Some(bytes.slice((from - start) as usize..(to - start) as usize))
    }

    fn hand_over(&mut self) {
        if let Some((from, to)) = self.run.take() {
            let (start, bytes) = self.window.as_ref().expect("records of a run come from the window");
            self.result.records.push(bytes.slice((from - start) as usize..(to - start) as usize));
        }
    }
}

/// The message, if bytes are exactly its record: one of this queue, at this offset and at this place in the log.
fn message_of<'a>(record: &'a [u8], queue: &ConsumeQueue, at: (u64, PhyOffset)) -> Option<RecordView<'a>> {
    RecordView::parse(record).ok().filter(|view| {
        (view.queue_offset.0, view.phy) == at
            && view.topic == queue.topic
            && view.queue_id == queue.queue_id
            && view.size_bytes as usize == record.len()
    })
}
