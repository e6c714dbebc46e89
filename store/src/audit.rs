//! The offline audit: what is wrong with the files of a store, and where.
//!
//! It reads a store at rest and changes nothing. Each record of the commit log must be whole, stand where it says it
//! stands, and carry on the offsets of its queue; log and consume queues must fit one to one, and so must the index and
//! the keys of the records if the store was closed cleanly; the checkpoint may not lead the log. It goes past what is damaged, so that one bad byte does not
//! hide another.
//!
//! Not everything can be seen: the format has no checksum over the fields of a record, so another flag, host or time
//! is as good as the right one.

mod checkpoint;
mod index;
mod log;
mod queue;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    ops::{ControlFlow, Range},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use host::fs::DirEntry;
use message::{DelayLevels, Properties, RecordView, body_crc};

use crate::{
    StoreConfig,
    entry::CqEntry,
    follow::{entry_tags_code, has_entry},
    index::{IndexHeader, IndexShape},
    log_file::file_name,
};

use log::{Found, Log};
use queue::Queue;

/// The directory of the consume queues, below the root.
const CONSUME_QUEUE: &str = "consumequeue";
/// The directory of the index files, below the root.
const INDEX: &str = "index";
/// The file that is there while a broker has the store open, and after a crash.
const ABORT: &str = "abort";

/// The most findings that are kept; all are counted.
const FINDINGS_MAX: usize = 1_000;

/// Where an audit reads from. All paths are relative to the root of the store.
pub trait AuditSource {
    /// The entries of a directory, sorted by name; none if it does not exist. A symbolic link counts as what it points to.
    ///
    /// # Errors
    /// It cannot be read, or it is a link to nothing or holds one.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;

    /// The content of a file.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&self, file: &Path) -> io::Result<Content>;
}

/// The content of a file.
#[derive(Debug, Clone)]
pub struct Content {
    /// Its bytes from the first one on; zeros at the end may be left out.
    pub bytes: Bytes,
    /// How long the file is.
    pub len: u64,
}

/// How an audit is to look.
#[derive(Debug, Clone)]
pub struct AuditOptions {
    /// Where the commit log is (`storePathCommitLog`), if not in `commitlog` below the root.
    pub commit_log_dir: PathBuf,
    /// Slots and entries of an index file (`maxHashSlotNum`, `maxIndexNum`); `None` to take four entries for each slot, as
    /// the defaults have it, and as many as the length of the file says.
    pub index_shape: Option<(u32, u32)>,
    /// The delay levels of the broker (`messageDelayLevel`): they decide what entries of delayed messages hold.
    pub delay_levels: DelayLevels,
    /// Whether every record must have its entry although the store was not closed cleanly, because its broker had the
    /// time to dispatch it.
    pub dispatched: bool,
}

impl Default for AuditOptions {
    fn default() -> AuditOptions {
        AuditOptions {
            commit_log_dir: PathBuf::from("commitlog"),
            index_shape: None,
            delay_levels: DelayLevels::default(),
            dispatched: false,
        }
    }
}

impl AuditOptions {
    /// How a store of these settings is to be looked at.
    #[must_use]
    pub fn of(config: &StoreConfig) -> AuditOptions {
        let usual = AuditOptions::default();
        AuditOptions {
            commit_log_dir: config.commit_log_dir.clone().unwrap_or(usual.commit_log_dir),
            index_shape: Some((config.index_slots, config.index_entries)),
            delay_levels: config.delay_levels.clone(),
            dispatched: usual.dispatched,
        }
    }

    /// What is in an index file of this length.
    fn index_shape(&self, len: u64) -> IndexShape {
        let (slots, entries) = self.index_shape.unwrap_or_else(|| {
            let usual = IndexShape { slots: 1, entries: 4 }.file_bytes() - IndexHeader::SIZE_BYTES;
            let slots = u32::try_from(len.saturating_sub(IndexHeader::SIZE_BYTES) / usual).unwrap_or(0).max(1);
            (slots, slots.saturating_mul(4))
        });
        IndexShape { slots, entries }
    }
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the root of the store.
    pub path: PathBuf,
    /// The byte in it at which that begins which is wrong; `None` if it is the file as a whole.
    pub at: Option<u64>,
    /// What is wrong, in one line.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(at) => write!(f, "{} at {at}: {}", self.path.display(), self.what),
            None => write!(f, "{}: {}", self.path.display(), self.what),
        }
    }
}

impl Finding {
    fn of_file(path: PathBuf, what: impl Into<String>) -> Finding {
        Finding { path, at: None, what: what.into() }
    }
}

/// What an audit saw.
#[derive(Debug, Clone, Default)]
pub struct Audit {
    /// Whether the store was closed cleanly: it has no file `abort`.
    pub is_clean: bool,
    /// Files of the commit log.
    pub log_files: usize,
    /// Where the log begins.
    pub log_start: u64,
    /// Where it ends.
    pub log_end: u64,
    /// Whole records.
    pub records: u64,
    /// Queues with files.
    pub queues: usize,
    /// Entries of queues.
    pub entries: u64,
    /// Entries of index files.
    pub index_entries: u64,
    /// Where each queue ends, by topic and number, as its entries or its records say.
    pub ends: BTreeMap<(String, u32), u64>,
    /// Records that have no entry yet, behind the ends of their queues: a broker makes up for that when it opens a store
    /// that was not closed cleanly.
    pub not_dispatched: u64,
    /// What is wrong, in the order in which it was found, at most 1,000 of it.
    pub findings: Vec<Finding>,
    /// How much is wrong.
    pub count: u64,
}

/// Collects findings, each place once.
#[derive(Default)]
struct Finds {
    findings: Vec<Finding>,
    places: BTreeSet<(PathBuf, Option<u64>)>,
    count: u64,
}

impl Finds {
    fn add(&mut self, finding: Finding) {
        if self.places.len() < FINDINGS_MAX && !self.places.insert((finding.path.clone(), finding.at)) {
            return;
        }
        self.count += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// Audits a store.
///
/// # Errors
/// A file or directory cannot be read; its path is in the error.
pub fn audit(source: &impl AuditSource, options: &AuditOptions) -> io::Result<Audit> {
    let mut finds = Finds::default();
    let is_clean = !source.list(Path::new(""))?.iter().any(|entry| entry.name == ABORT);
    let log = Log::open(source, &options.commit_log_dir, &mut finds)?;
    let queues = queue::open_all(source, &mut finds)?;
    let mut records = Records {
        log: &log,
        options,
        must_be_dispatched: is_clean || options.dispatched,
        confirmed: queues
            .iter()
            .filter_map(|((topic, queue_id), queue)| Some(((topic.as_str(), *queue_id), queue.first_confirmed(&log)?)))
            .collect(),
        next: BTreeMap::new(),
        not_dispatched: 0,
        count: 0,
        newest_ms: None,
    };
    let extent = records.check(&queues, &mut finds);
    let mut entries = 0;
    for queue in queues.values() {
        entries += queue.check(&log, &extent, &mut finds);
    }
    let shown = checkpoint::Shown { extent: &extent, is_clean, newest_ms: records.newest_ms };
    checkpoint::check(source, &shown, &mut finds)?;
    let index_entries = index::check(source, options, (&log, &extent), is_clean, &mut finds)?;
    let mut ends: BTreeMap<(String, u32), u64> = queues.iter().map(|(key, queue)| (key.clone(), queue.max())).collect();
    for ((topic, queue_id), (next, _)) in &records.next {
        let end = ends.entry(((*topic).to_owned(), *queue_id)).or_default();
        *end = (*end).max(*next);
    }
    Ok(Audit {
        is_clean,
        index_entries,
        ends,
        log_files: log.file_count(),
        log_start: log.start(),
        log_end: extent.end,
        records: records.count,
        queues: queues.len(),
        entries,
        not_dispatched: records.not_dispatched,
        findings: finds.findings,
        count: finds.count,
    })
}

/// Shows the whole records of a store in the order of its log, each with its file and the position in it, until `show`
/// breaks off; what is damaged is passed over and told to `damaged`.
///
/// # Errors
/// A file or directory cannot be read, or `show` failed.
pub fn each_record(
    source: &impl AuditSource,
    commit_log_dir: &Path,
    mut show: impl FnMut(&RecordView<'_>, &Path, u64) -> io::Result<ControlFlow<()>>,
    mut damaged: impl FnMut(&Finding),
) -> io::Result<()> {
    let mut finds = Finds::default();
    let log = Log::open(source, commit_log_dir, &mut finds)?;
    finds.findings.iter().for_each(&mut damaged);
    let mut walk = log.walk();
    while let Some(found) = walk.next() {
        match found {
            Found::Record(view) => {
                let (path, at) = log.place(view.phy.0);
                if show(&view, &path, at)?.is_break() {
                    break;
                }
            }
            Found::Damage(finding) => damaged(&finding),
        }
    }
    Ok(())
}

/// What a walk through the log has shown of it.
struct Extent {
    end: u64,
    /// The parts in which no record could be told from another, oldest first.
    damaged: Vec<Range<u64>>,
}

/// The check of the log, record by record.
struct Records<'a> {
    log: &'a Log,
    options: &'a AuditOptions,
    must_be_dispatched: bool,
    /// First entry of each queue, if the log confirms it, and where its record is.
    confirmed: BTreeMap<(&'a str, u32), (u64, u64)>,
    /// The offset that the next record of each queue must have, and how much of the log had been skipped when that was
    /// known.
    next: BTreeMap<(&'a str, u32), (u64, u32)>,
    not_dispatched: u64,
    count: u64,
    /// The latest store time.
    newest_ms: Option<i64>,
}

impl<'a> Records<'a> {
    fn check(&mut self, queues: &BTreeMap<(String, u32), Queue>, finds: &mut Finds) -> Extent {
        let mut walk = self.log.walk();
        while let Some(found) = walk.next() {
            match found {
                Found::Damage(finding) => finds.add(finding),
                Found::Record(view) => {
                    self.count += 1;
                    self.newest_ms = self.newest_ms.max(Some(view.store_ms));
                    self.check_content(&view, finds);
                    if has_entry(&view) && !self.is_of_earlier_life(&view) {
                        self.check_offset(&view, walk.skipped, finds);
                        self.check_entry(&view, queues, finds);
                    }
                }
            }
        }
        Extent { end: walk.end.unwrap_or_default(), damaged: walk.damaged }
    }

    fn add(&self, view: &RecordView<'_>, what: String, finds: &mut Finds) {
        let (path, at) = self.log.place(view.phy.0);
        finds.add(Finding { path, at: Some(at), what });
    }

    fn check_content(&self, view: &RecordView<'_>, finds: &mut Finds) {
        let crc = body_crc(view.body);
        if crc != view.body_crc {
            self.add(view, format!("the body has the CRC {crc:08x}, the record says {:08x}", view.body_crc), finds);
        } else if !Properties::is_intact(view.properties) {
            self.add(view, "the properties are no list of pairs".to_owned(), finds);
        }
    }

    /// Whether the queue of a record has its message of that offset from further behind: the reference lets the queues of
    /// a topic that was deleted and made again begin at 0, and leaves the old messages in the log.
    fn is_of_earlier_life(&self, view: &RecordView<'_>) -> bool {
        let confirmed = self.confirmed.get(&(view.topic, view.queue_id));
        confirmed.is_some_and(|&(index, phy)| view.queue_offset.0 >= index && view.phy.0 < phy)
    }

    fn check_offset(&mut self, view: &RecordView<'a>, skipped: u32, finds: &mut Finds) {
        let offset = view.queue_offset.0;
        let before = self.next.insert((view.topic, view.queue_id), (offset + 1, skipped));
        let Some((expected, known_at)) = before else { return };
        if offset < expected || (offset > expected && known_at == skipped) {
            let (topic, queue_id) = (view.topic, view.queue_id);
            self.add(view, format!("offset {offset} of queue {queue_id} of {topic}, after {}", expected - 1), finds);
        }
    }

    fn check_entry(&mut self, view: &RecordView<'_>, queues: &BTreeMap<(String, u32), Queue>, finds: &mut Finds) {
        let entry = CqEntry {
            phy: view.phy,
            size_bytes: view.size_bytes,
            tags_code: entry_tags_code(view, &self.options.delay_levels),
        };
        let index = view.queue_offset.0;
        let queue = queues.get(&(view.topic.to_owned(), view.queue_id));
        match queue.filter(|queue| index < queue.max()) {
            Some(queue) => queue.check_record(index, &entry, finds),
            None if self.must_be_dispatched => {
                let (topic, queue_id) = (view.topic, view.queue_id);
                self.add(view, format!("queue {queue_id} of {topic} has no entry {index} for it"), finds);
            }
            None => self.not_dispatched += 1,
        }
    }
}

/// The names of the files of a directory, sorted.
fn files_of(source: &impl AuditSource, dir: &Path) -> io::Result<Vec<String>> {
    let entries = source.list(dir)?.into_iter();
    Ok(entries.filter(|entry| !entry.is_dir).map(|entry| entry.name).collect())
}

/// The path of a file of a queue.
fn queue_file(topic: &str, queue_id: u32, start: u64) -> PathBuf {
    Path::new(CONSUME_QUEUE).join(topic).join(queue_id.to_string()).join(file_name(start))
}
