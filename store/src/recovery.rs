//! From the files of a store, whatever happened to them, to a log that ends where its valid records end, and consume
//! queues that say exactly what is in it.
//!
//! The log is the truth. It is scanned from a place up to which both log and queues are known to be on disk, or from
//! its start if nothing is known or anything does not fit; queues are cut back to that place and written again from
//! there. So a queue that is missing, damaged or behind is rebuilt, after a clean exit as after a crash (SF05).
//!
//! The reference lets the queues of a topic that was deleted and made again begin at 0, while their old messages stay in
//! the log: a queue may have had earlier lives. Of two messages with one offset the later one is in its queue.
//!
//! Nothing counts as durable before it has been synced here (SF16), and nothing behind the end survives (SF08).
//!
//! Source: `spec/store.md` 8.6.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use host::{
    Host,
    fs::{Files, OpenOptions},
    time::Mono,
};
use indexmap::IndexMap;
use message::{PhyOffset, RecordError, RecordView};
use tracing::{info, warn};

mod cut;

use crate::{
    StoreConfig, StoreError,
    checkpoint::{Found, Known},
    commit_log::LogState,
    consume_queue::{ConsumeQueue, find_dirt},
    entry::CqEntry,
    follow::{Checks, Ended, Group, Run, check_record, read_run},
    load::FoundLog,
    log_file::LogFile,
    queues::{AppendError, ConsumeQueues},
};

/// Entries at the end of a queue that are compared with the log before the queue counts as unknown.
const ENTRIES_TO_VERIFY: u64 = 4096;

/// Entries at the begin of a queue among which one is looked for that the log confirms.
const SLOTS_TO_CONFIRM: usize = 128;

/// How much is written again at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Pause between two lines about a recovery that takes long.
const PROGRESS_PAUSE: Duration = Duration::from_secs(5);

/// What recovery works with.
pub(crate) struct Recovery<'a> {
    pub(crate) host: &'a Host,
    pub(crate) files: &'a Files,
    pub(crate) config: &'a StoreConfig,
    pub(crate) queues: &'a ConsumeQueues,
    pub(crate) log: FoundLog,
    pub(crate) damaged_queue_files: Vec<PathBuf>,
    pub(crate) checkpoint: Found,
    /// The last exit left no `abort` file.
    pub(crate) clean: bool,
}

/// When a line about the progress is due.
pub(crate) struct Progress<'a> {
    host: &'a Host,
    next: Mono,
}

impl Progress<'_> {
    pub(crate) fn new(host: &Host) -> Progress<'_> {
        Progress { host, next: host.now() + PROGRESS_PAUSE }
    }

    pub(crate) fn is_due(&mut self) -> bool {
        let now = self.host.now();
        let is_due = now >= self.next;
        if is_due {
            self.next = now + PROGRESS_PAUSE;
        }
        is_due
    }
}

/// Where the scan ended.
struct Scan {
    /// Behind the last valid record, or behind the blank record that follows it.
    end: u64,
    last_at: Option<u64>,
    last_store_ms: i64,
    /// What stands there; `None` behind the last file.
    stopped_by: Option<RecordError>,
}

/// What a scan has brought into the queues.
#[derive(Default)]
struct Rebuilt {
    /// First entry of each queue that the log confirms, and where its message is, as they were before the scan.
    confirmed: BTreeMap<(String, u32), (u64, u64)>,
    /// Queues that got entries.
    seen: BTreeSet<(String, u32)>,
    /// Entries that do not go on where their queue ends, until the next ones of the queue say whether that is so.
    held: BTreeMap<(String, u32), Group>,
}

impl Recovery<'_> {
    /// Brings log and queues into order, on disk.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], with the log left as it was; I/O errors.
    pub(crate) async fn run(mut self) -> Result<LogState, StoreError> {
        for path in &self.damaged_queue_files {
            self.remove(path.clone()).await?;
        }
        self.forget_what_is_cut().await?;
        let known =
            self.checkpoint.known.filter(|known| self.damaged_queue_files.is_empty() && self.queues_fit(*known));
        let scan = match self.scan_from(known).await {
            Err(error) if known.is_some() => {
                warn!(error = &error as &dyn std::error::Error, "a queue does not fit, all are rebuilt from the log");
                self.scan_from(None).await
            }
            other => other,
        };
        let mut scan = scan.map_err(|error| {
            let source = match error {
                AppendError::Io(source) => source,
                gap @ AppendError::Gap { .. } => std::io::Error::other(gap),
            };
            StoreError::Io { op: "write", path: self.queues.root().to_owned(), source }
        })?;
        self.check_floor(&scan).await?;
        if host::mutant!("recovery-truncates-one-too-many")
            && let Some(last_at) = scan.last_at
        {
            scan.end = last_at;
        }
        let nothing_happened = host::mutant!("abort-file-ignored")
            || self.clean && known.is_some_and(|known| known.clean && known.flushed == scan.end);
        self.cut_log(&scan, nothing_happened).await?;
        self.finish_queues(&scan, nothing_happened).await?;
        info!(end = scan.end, clean = self.clean, known = known.is_some(), "recovered");
        host::point!("store.recovered", scan.end);
        let next_offsets = self.next_offsets();
        Ok(LogState {
            segments: self.log.segments.into_iter().map(Arc::new).collect(),
            end: scan.end,
            next_offsets,
            last_store_ms: scan.last_store_ms,
            is_continued: nothing_happened,
        })
    }

    fn start(&self) -> u64 {
        self.log.segments.first().map_or(0, |file| file.start)
    }

    fn end(&self) -> u64 {
        self.log.segments.last().map_or(0, LogFile::end)
    }

    // ---- what is known ----

    /// Whether the queues hold what the checkpoint says they held on disk, and can be read.
    fn queues_fit(&self, known: Known) -> bool {
        let from = known.queues_durable.min(known.flushed);
        if from < self.start() || from > self.end() {
            return false;
        }
        let mut sum = 0;
        let all = self.queues.all();
        let mut progress = Progress::new(self.host);
        for (done, queue) in all.iter().enumerate() {
            if progress.is_due() {
                info!(done, of = all.len(), "recovery compares consume queues with the log");
            }
            let fits = self.verified_end(queue, known.queues_durable).and_then(|end| match end {
                Some(end) if self.borders_fit(queue, end)? => Ok(Some(queue.fingerprint_at(end))),
                _ => Ok(None),
            });
            match fits {
                Ok(Some(fingerprint)) => sum ^= fingerprint,
                Ok(None) => return false,
                Err(error) => {
                    warn!(queue.topic, queue.queue_id, %error, "a queue cannot be read");
                    return false;
                }
            }
        }
        sum == known.fingerprint
    }

    /// Behind the last entry before `bound` that the log confirms. `None` if it is hard to find.
    fn verified_end(&self, queue: &ConsumeQueue, bound: u64) -> std::io::Result<Option<u64>> {
        let first = queue.first_entry();
        let mut end = end_before(queue, bound)?;
        // Sectors that a loss of power left half written may look like entries.
        for _ in 0..ENTRIES_TO_VERIFY {
            if end == first {
                return Ok(Some(end));
            }
            let entry = queue.slots(end - 1, 1)?.first().copied().flatten();
            if entry.is_some_and(|entry| entry.phy.0 < bound && self.confirms(queue, end - 1, entry)) {
                return Ok(Some(end));
            }
            end -= 1;
        }
        Ok(None)
    }

    /// Whether the first and last entry of every file are what the log says.
    fn borders_fit(&self, queue: &ConsumeQueue, end: u64) -> std::io::Result<bool> {
        let per_file = self.queues.file_bytes() / CqEntry::SIZE_BYTES;
        let mut index = queue.first_entry();
        while index < end {
            for at in [index, (index + per_file).min(end) - 1] {
                let fits = match queue.slots(at, 1)?.first().copied().flatten() {
                    Some(entry) => entry.is_blank() || self.confirms(queue, at, entry),
                    None => false,
                };
                if !fits {
                    return Ok(false);
                }
            }
            index += per_file;
        }
        Ok(true)
    }

    /// Whether the record that an entry points at is the message of that queue and offset. One that was deleted cannot
    /// deny it.
    fn confirms(&self, queue: &ConsumeQueue, index: u64, entry: CqEntry) -> bool {
        if entry.phy.0 < self.start() {
            return !entry.is_blank();
        }
        let Some(file) = self.segment(entry.phy.0) else { return false };
        file.mapping.with(entry.phy.0 - file.start, file.mapping.len(), |bytes| {
            matches!(
                check_record(bytes, entry.phy.0, Checks::STRUCTURE),
                Ok(Some(view)) if is_message(&view, queue, index) && view.size_bytes == entry.size_bytes
            )
        })
    }

    fn segment(&self, phy: u64) -> Option<&LogFile> {
        let index = phy.checked_sub(self.start())? / self.config.commit_log_file_bytes;
        self.log.segments.get(usize::try_from(index).ok()?)
    }

    // ---- scanning ----

    /// Cuts all queues back to where the scan starts, scans, and writes the entries of what it finds.
    async fn scan_from(&self, known: Option<Known>) -> Result<Scan, AppendError> {
        let from = known.map_or(self.start(), |known| known.queues_durable.min(known.flushed));
        let mut rebuilt = Rebuilt::default();
        if known.is_none() {
            rebuilt.confirmed = self.first_confirmed();
        }
        for queue in self.queues.all() {
            match end_before(&queue, from) {
                Ok(end) => queue.cut(end),
                // What cannot be read is of no use, and the log has all that was in it.
                Err(_) if known.is_none() => queue.clear(self.files).await?,
                Err(error) => return Err(error.into()),
            }
        }
        let checks = self.checks();
        let mut scan = Scan { end: from, last_at: None, last_store_ms: 0, stopped_by: None };
        let mut progress = Progress::new(self.host);
        while let Some(file) = self.segment(scan.end).filter(|_| scan.end < self.cut_at()) {
            if progress.is_due() {
                info!(at = scan.end, from, to = self.end(), "recovery reads the log");
            }
            let to = file.end().min(self.cut_at());
            let run = file.mapping.with(scan.end - file.start, to - file.start, |bytes| {
                read_run(bytes, scan.end, checks, false, &self.config.delay_levels)
            });
            let Run { groups, mut bytes, last_at, last_store_ms, ended, .. } = run;
            if let Ended::Blank { at } = ended
                && to < file.end()
            {
                bytes = at;
            }
            for group in groups.into_iter().filter(|_| !host::mutant!("queues-not-rebuilt")) {
                match known {
                    Some(_) => self.go_on(&group, &mut rebuilt).await?,
                    None => self.rebuild(group, &mut rebuilt).await?,
                }
            }
            if let Some(last_at) = last_at {
                scan.last_at = Some(scan.end + last_at);
                scan.last_store_ms = last_store_ms;
            }
            scan.end += bytes;
            if let Ended::Invalid(error) = ended {
                scan.stopped_by = Some(error);
                break;
            }
            if bytes == 0 {
                break;
            }
        }
        for (_, group) in std::mem::take(&mut rebuilt.held) {
            self.append_last(&group, &mut rebuilt).await?;
        }
        if scan.end == from && from > 0 {
            scan.last_store_ms = self.checkpoint.base.physic_ms;
        }
        Ok(scan)
    }

    /// Properties carry no checksum, so where a page may have been lost their structure must do.
    fn checks(&self) -> Checks {
        let body = self.config.check_crc_on_recover && !host::mutant!("crc-not-checked-on-recovery");
        match self.checkpoint.known {
            // What this store has known is what it has written, as far as nobody else did.
            Some(known) => {
                Checks { body, properties_from: known.flushed, properties_after_ms: i64::MIN, properties_end: true }
            }
            None if self.clean => Checks { body, ..Checks::STRUCTURE },
            None => Checks {
                body,
                properties_from: 0,
                properties_after_ms: self.checkpoint.base.physic_ms,
                properties_end: false,
            },
        }
    }

    /// Writes entries behind those that are known. No gap may be needed.
    async fn go_on(&self, group: &Group, rebuilt: &mut Rebuilt) -> Result<(), AppendError> {
        let max = self.queues.find_or_make(&group.topic, group.queue_id).bounds().max;
        if rebuilt.seen.insert(queue_of(group)) && group.first.0 < max {
            let (topic, queue_id) = queue_of(group);
            return Err(AppendError::Gap { topic, queue_id, end: max, next: group.first.0 });
        }
        self.queues.append(group).await.map(drop)
    }

    /// The first entry of each queue that the log confirms, with the position of its message.
    fn first_confirmed(&self) -> BTreeMap<(String, u32), (u64, u64)> {
        let first = |queue: &ConsumeQueue| {
            let from = queue.first_entry();
            // What cannot be read confirms nothing.
            let slots = queue.slots(from, SLOTS_TO_CONFIRM).unwrap_or_default();
            let mut entries = (from..).zip(slots).filter_map(|(index, entry)| Some((index, entry?)));
            let (index, entry) = entries.find(|(index, entry)| self.confirms(queue, *index, *entry))?;
            Some(((queue.topic.clone(), queue.queue_id), (index, entry.phy.0)))
        };
        self.queues.all().iter().filter_map(|queue| first(queue)).collect()
    }

    /// Writes entries when everything is rebuilt. A queue starts where its first record in the log says, and gaps are
    /// filled; but the offset of a record carries no checksum, and a damaged one must not hide all others of its queue.
    /// So a record that does not go on where its queue ends is held back until the next one of the queue confirms it.
    async fn rebuild(&self, group: Group, rebuilt: &mut Rebuilt) -> Result<(), AppendError> {
        if rebuilt.confirmed.get(&queue_of(&group)).is_some_and(|confirmed| is_of_earlier_life(&group, *confirmed)) {
            return Ok(());
        }
        let queue = self.queues.find_or_make(&group.topic, group.queue_id);
        if let Some(held) = rebuilt.held.remove(&queue_of(&group)) {
            let begins_again = held.first.0 < queue.bounds().max && rebuilt.seen.contains(&queue_of(&group));
            let is_confirmed = if begins_again { group.first.0 == behind(&held) } else { group.first >= held.first };
            if is_confirmed {
                self.append(&held, rebuilt).await?;
            } else {
                pass_over(&held);
            }
        }
        let max = queue.bounds().max;
        // Several records with offsets one behind the other confirm each other.
        let begins_again = group.first.0 < max && rebuilt.seen.contains(&queue_of(&group)) && group.entries.len() > 1;
        if group.first.0 != max && !begins_again {
            rebuilt.held.insert(queue_of(&group), group);
            return Ok(());
        }
        self.append(&group, rebuilt).await
    }

    /// Writes the last entries of a queue, which nothing confirms. If they lie in front of its end, or so far away that it
    /// would start anew there, the entries that it has speak against them.
    async fn append_last(&self, group: &Group, rebuilt: &mut Rebuilt) -> Result<(), AppendError> {
        let max = self.queues.find_or_make(&group.topic, group.queue_id).bounds().max;
        let is_contradicted = group.first.0 < max || self.queues.is_too_far(max, group.first.0);
        if rebuilt.seen.contains(&queue_of(group)) && is_contradicted {
            pass_over(group);
            return Ok(());
        }
        self.append(group, rebuilt).await
    }

    /// Writes entries at their offsets. Those that stand there and behind are of an earlier life of the queue.
    async fn append(&self, group: &Group, rebuilt: &mut Rebuilt) -> Result<(), AppendError> {
        let queue = self.queues.find_or_make(&group.topic, group.queue_id);
        let first = group.first.0;
        rebuilt.seen.insert(queue_of(group));
        if first < queue.bounds().max {
            if first < queue.first_entry() {
                // Its first files are missing. All later entries are of later records, which will come.
                queue.clear(self.files).await?;
            } else {
                queue.cut(first);
            }
        }
        if first > queue.bounds().max {
            self.queues.fill_gap(group).await?;
        }
        self.queues.append(group).await.map(drop)
    }

    // ---- judging the end ----

    /// A log that ends before what had been on disk is damaged, not torn: later records are good.
    async fn check_floor(&self, scan: &Scan) -> Result<(), StoreError> {
        let durable = match self.checkpoint.known {
            Some(known) => known.flushed,
            None => self.record_behind(scan).await?.unwrap_or(0),
        };
        if scan.end >= durable {
            return Ok(());
        }
        let missing = RecordError::Truncated { needed: (durable - scan.end) as usize, available: 0 };
        let source = scan.stopped_by.clone().unwrap_or(missing);
        let (at, durable) = (PhyOffset(scan.end), PhyOffset(durable));
        if self.config.accept_damaged_log {
            warn!(at = at.0, durable = durable.0, "the damaged log is cut, durable records are lost");
            return Ok(());
        }
        Err(StoreError::Damaged { at, durable, source })
    }

    /// Start of a record behind the end that had been on disk by the word of the reference's checkpoint. Records older
    /// than the last valid one are remains of an earlier life and do not count.
    async fn record_behind(&self, scan: &Scan) -> Result<Option<u64>, StoreError> {
        let safe_ms = self.checkpoint.base.physic_ms;
        let had_been_durable = |view: &RecordView<'_>| view.store_ms <= safe_ms && view.store_ms >= scan.last_store_ms;
        for file in self.log.segments.iter().filter(|file| file.end() > scan.end && safe_ms > 0) {
            let from = (scan.end + 1).max(file.start) - file.start;
            let io = |op| StoreError::io(op, &file.path);
            let raw = self.files.open(&file.path, OpenOptions::READ).await.map_err(io("open"))?;
            // Usually nothing follows, and reading that does not fill memory with pages of zeros.
            let Some(dirt) = find_dirt(&raw, from, file.mapping.len()).map_err(io("read"))? else { continue };
            let from = dirt.saturating_sub(8).max(from);
            let found = file.mapping.with(from, file.mapping.len(), |bytes| {
                (0..bytes.len().saturating_sub(8)).find(|&at| {
                    let phy = file.start + from + at as u64;
                    bytes[at + 4] == RECORD_MAGIC_FIRST
                        && matches!(
                            check_record(&bytes[at..], phy, Checks::STRUCTURE),
                            Ok(Some(view)) if had_been_durable(&view)
                        )
                })
            });
            if let Some(at) = found {
                return Ok(Some(file.start + from + at as u64));
            }
        }
        Ok(None)
    }

    // ---- putting it right on disk ----

    /// Removes and erases everything behind the end, and syncs what lies before it.
    async fn cut_log(&mut self, scan: &Scan, nothing_happened: bool) -> Result<(), StoreError> {
        let mut gone = std::mem::take(&mut self.log.leftovers);
        while let Some(last) = self.log.segments.pop_if(|file| file.start > scan.end) {
            // From the last one on: a hole in front of it would make the files before the hole unusable.
            gone.push(last.path);
        }
        let mut cut = !gone.is_empty();
        for path in gone {
            self.remove(path).await?;
        }
        if let Some(last) = self.log.segments.last_mut()
            && !nothing_happened
            && !host::mutant!("recovery-leaves-cut-bytes")
        {
            let at = scan.end - last.start;
            let io = |op| StoreError::io(op, last.path.clone());
            let file = self.files.open(&last.path, OpenOptions::READ).await.map_err(io("open"))?;
            if find_dirt(&file, at, last.mapping.len()).map_err(io("read"))?.is_some() {
                let mapping = last.mapping.rewind(at).await.map_err(io("rewrite"))?;
                last.mapping = mapping;
                cut = true;
            }
        }
        if cut {
            host::point!("store.truncated", scan.end);
        }
        if let Some(last) = self.log.segments.last() {
            last.reserve(self.files).await.map_err(StoreError::io("reserve space for", &last.path))?;
        }
        if let Some(dir) = self.log.segments.first().and_then(|file| file.path.parent()) {
            self.files.sync_dir(dir).await.map_err(StoreError::io("sync", dir))?;
        }
        let durable = self.checkpoint.known.map_or(0, |known| known.flushed);
        for file in self.log.segments.iter().filter(|file| file.end() > durable) {
            let (from, to) = (durable.max(file.start), scan.end.min(file.end()));
            if from < to {
                let (from, to) = (from - file.start, to - file.start);
                write_again(file, from, to);
                file.mapping.sync(from, to).await.map_err(StoreError::io("sync", &file.path))?;
            }
        }
        Ok(())
    }

    fn next_offsets(&self) -> IndexMap<String, BTreeMap<u32, u64>> {
        let mut next = self.queues.next_offsets();
        if host::mutant!("offset-given-again-after-recovery") {
            next.values_mut().flat_map(BTreeMap::values_mut).for_each(|offset| *offset = offset.saturating_sub(1));
        }
        next
    }

    /// Erases what queues hold behind their ends, syncs them, and finds their first messages.
    async fn finish_queues(&self, scan: &Scan, nothing_happened: bool) -> Result<(), StoreError> {
        let start = self.start();
        let all = self.queues.all();
        let mut progress = Progress::new(self.host);
        for (done, queue) in all.iter().enumerate() {
            if progress.is_due() {
                info!(done, of = all.len(), "recovery puts consume queues in order");
            }
            let io = |op| StoreError::io(op, self.queues.root().join(&queue.topic));
            let (first, max) = (queue.first_entry(), queue.bounds().max);
            // From the end, so that a damaged entry in the middle, which nobody has looked at, decides nothing.
            let mut end = max;
            while end > first {
                let last = queue.slots(end - 1, 1).map_err(io("read"))?.first().copied().flatten();
                if last.is_some_and(|last| last.phy.0 < scan.end) {
                    break;
                }
                end -= 1;
            }
            queue.cut(end);
            if !nothing_happened {
                queue.seal(self.files).await.map_err(io("erase"))?;
            }
            queue.correct_min(start).map_err(io("read"))?;
        }
        self.queues.flush(0).await.map_err(StoreError::io("sync", self.queues.root()))?;
        self.queues.start_at(scan.end, scan.last_store_ms);
        Ok(())
    }

    async fn remove(&self, path: PathBuf) -> Result<(), StoreError> {
        warn!(path = %path.display(), "removed, it is of no use");
        self.files.remove_file(&path).await.map_err(StoreError::io("remove", &path))?;
        let dir = path.parent().unwrap_or(&path);
        self.files.sync_dir(dir).await.map_err(StoreError::io("sync", dir))
    }
}

/// Writes a range of a file as it stands, so that the sync that follows has something to write. If a sync failed in an
/// earlier life, the pages may look clean though the disk never got them (SF09), and would be missing after a loss of
/// power from the middle of what was acknowledged since.
fn write_again(file: &LogFile, from: u64, to: u64) {
    for at in (from..to).step_by(PIECE_BYTES as usize) {
        let piece = file.mapping.with(at, to.min(at + PIECE_BYTES), <[u8]>::to_vec);
        file.mapping.write(at, &piece);
    }
}

/// First byte of the magic of a record.
const RECORD_MAGIC_FIRST: u8 = 0xDA;

fn queue_of(group: &Group) -> (String, u32) {
    (group.topic.clone(), group.queue_id)
}

/// The offset behind its last record.
fn behind(group: &Group) -> u64 {
    group.first.0 + group.entries.len() as u64
}

/// Whether records are of an earlier life of their queue: an entry of the same or a lower offset is of a later record.
fn is_of_earlier_life(group: &Group, (index, phy): (u64, u64)) -> bool {
    behind(group) > index && group.entries.last().is_some_and(|last| last.phy.0 < phy)
}

/// Records whose offsets are not those of their queue get no entries.
fn pass_over(group: &Group) {
    let Group { topic, queue_id, first, entries } = group;
    let at = entries.first().map(|entry| entry.phy.0);
    warn!(topic, queue_id, offset = first.0, at, count = entries.len(), "damaged queue offsets, passed over");
}

fn is_message(view: &RecordView<'_>, queue: &ConsumeQueue, index: u64) -> bool {
    view.topic == queue.topic && view.queue_id == queue.queue_id && view.queue_offset.0 == index
}

/// Behind the last entry of a queue whose message lies before `bound`, taking entries to be in order.
fn end_before(queue: &ConsumeQueue, bound: u64) -> std::io::Result<u64> {
    queue.partition(queue.first_entry(), queue.capacity(), |entry| entry.is_none_or(|entry| entry.phy.0 >= bound))
}
