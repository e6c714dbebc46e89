//! From the index files that are found to an index that has every key of the log, whatever happened to them.
//!
//! What the checkpoint says is trusted as far as the files confirm it: those before the mark's are on disk whole, and
//! are looked into at a few places; of the mark's file the entries up to the mark are, and the rest follows from the log.
//! After a clean exit that is all of it. If anything is missing or does not fit, the whole index is built again from the
//! start of the log, over the files that are there.
//!
//! A file that is built from its first entry on loses its header first and gets it back last, so that a crash in between
//! leaves no file that looks good and is not.
//!
//! Source: `spec/store.md` 6.4 and SF11.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use host::{Host, fs::Files};
use message::{PhyOffset, RecordView};
use tracing::{info, warn};

use super::{
    Index, IndexKey, IndexKnown, IndexMark, IndexWriter,
    file::{IndexEntry, IndexFile, IndexHeader, IndexShape, parse_name},
    fingerprint, key_hash, keys_of, next_name, push_keys,
    tail::IndexTail,
};
use crate::{
    StoreError,
    follow::{Checks, check_record, next_record},
    log_file::LogFile,
    recovery::Progress,
};

/// Bytes of log that are read at once.
const RUN_BYTES: usize = 1 << 20;
/// Bytes of an index file that are read or written at once. A multiple of slots and of entries.
pub(super) const PIECE_BYTES: usize = 20 << 16;
/// Entries of a file that are compared with the log before the file is trusted.
const SAMPLES: u32 = 8;
/// Links of a chain that are followed to find an entry in its slot.
const LINKS_MAX: usize = 4096;

/// What an index is opened with.
pub(crate) struct IndexRebuild<'a> {
    pub(crate) host: &'a Host,
    pub(crate) files: &'a Files,
    pub(crate) dir: PathBuf,
    pub(crate) shape: IndexShape,
    /// The log, oldest file first, which is in order.
    pub(crate) segments: &'a [Arc<LogFile>],
    /// Where it ends.
    pub(crate) end: u64,
    pub(crate) last_store_ms: i64,
    pub(crate) known: Option<IndexKnown>,
    /// Up to where the log was on disk when that was known. Behind it the index may have been told of other records.
    pub(crate) flushed: u64,
    /// The log is as a clean exit left it.
    pub(crate) is_continued: bool,
}

/// Where building begins.
struct Begin {
    /// Files that stay, of those that were found. The tail's is the last of them.
    kept: usize,
    tail: Option<IndexTail>,
    /// Position in the log of the first record whose keys may be missing.
    from: u64,
    /// What the tail's file holds is on disk.
    is_intact: bool,
}

/// An error of one file, or one of the machine.
enum Failure {
    File(Arc<IndexFile>, io::Error),
    Other(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Other(error)
    }
}

impl IndexRebuild<'_> {
    /// Opens the index, whose directory is there, and brings it into order, on disk.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) async fn run(self) -> Result<(Arc<Index>, IndexWriter), StoreError> {
        let mut found = self.load().await?;
        let mut begin = self.trusted(&found);
        loop {
            if begin.is_none() && self.known.is_some() {
                warn!(dir = %self.dir.display(), "the index is damaged or incomplete, it is built again from the log");
            }
            let from_start = || Begin { kept: 0, tail: None, from: self.start(), is_intact: false };
            let build = Build::new(&self, found.clone(), begin.take().unwrap_or_else(from_start));
            match build.run().await {
                Ok((list, tail)) => return Ok(self.opened(list, tail)),
                Err(Failure::Other(error)) => return Err(error),
                // A file that is not there any more cannot fail again.
                Err(Failure::File(file, error)) if found.iter().any(|other| other.name == file.name) => {
                    warn!(error = &error as &dyn std::error::Error, "an index file cannot be written");
                    self.remove(&file.path).await?;
                    found.retain(|other| other.name != file.name);
                }
                Err(Failure::File(file, error)) => return Err(StoreError::io("write", &file.path)(error)),
            }
        }
    }

    fn opened(&self, list: Vec<Arc<IndexFile>>, tail: Option<IndexTail>) -> (Arc<Index>, IndexWriter) {
        let mut mark = IndexMark { phy: self.end, store_ms: self.last_store_ms, file: 0, header: IndexHeader::EMPTY };
        if let Some(tail) = &tail {
            (mark.file, mark.header) = (tail.file.name, tail.header);
        }
        let index = Arc::new(Index::new(self.files.clone(), self.dir.clone(), self.shape, list, mark));
        let writer = IndexWriter { index: Arc::clone(&index), tail, next: (self.end, 0) };
        (index, writer)
    }

    /// Opens the files that have the right length, oldest first, and removes the others. Names that are no times are left
    /// alone.
    async fn load(&self) -> Result<Vec<Arc<IndexFile>>, StoreError> {
        let mut found = Vec::new();
        let entries = self.files.read_dir(&self.dir).await.map_err(StoreError::io("list", &self.dir))?;
        for entry in entries.into_iter().filter(|entry| !entry.is_dir) {
            let Some(name) = parse_name(&entry.name) else { continue };
            let path = self.dir.join(&entry.name);
            let len = self.files.metadata(&path).await.map_err(StoreError::io("look at", &path))?.len;
            let opened = match len == self.shape.file_bytes() {
                true => IndexFile::open(self.files, path.clone(), name, self.shape).await,
                false => Err(io::Error::other(format!("{len} bytes, not {}", self.shape.file_bytes()))),
            };
            match opened {
                Ok(file) => found.push(Arc::new(file)),
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "an index file cannot be used");
                    self.remove(&path).await?;
                }
            }
        }
        Ok(found)
    }

    async fn remove(&self, path: &Path) -> Result<(), StoreError> {
        warn!(path = %path.display(), "removed, it is of no use");
        self.files.remove_file(path).await.map_err(StoreError::io("remove", path))?;
        self.files.sync_dir(&self.dir).await.map_err(StoreError::io("sync", &self.dir))
    }

    fn start(&self) -> u64 {
        self.segments.first().map_or(0, |file| file.start)
    }

    fn segment(&self, phy: u64) -> Option<&LogFile> {
        let index = self.segments.partition_point(|file| file.end() <= phy);
        self.segments.get(index).filter(|file| file.start <= phy).map(|file| &**file)
    }

    // ---- what is known ----

    /// Where to go on by the word of the checkpoint; `None` if the files do not confirm it.
    fn trusted(&self, found: &[Arc<IndexFile>]) -> Option<Begin> {
        let IndexKnown { mark, from, older } = self.known?;
        let kept = found.partition_point(|file| file.name <= mark.file);
        if fingerprint(&found[..kept], from, mark.file) != older {
            return None;
        }
        if mark.file == 0 {
            return Some(Begin { kept: 0, tail: None, from: self.sure(mark), is_intact: false });
        }
        let (last, before) = found[..kept].split_last().filter(|(last, _)| last.name == mark.file)?;
        let is_good = |file: &IndexFile, header| {
            self.samples_fit(file, header).unwrap_or_else(|error| {
                warn!(%error, file = %file.path.display(), "an index file cannot be read");
                false
            })
        };
        if !before.iter().filter(|file| file.header().end_phy >= from).all(|file| is_good(file, file.header())) {
            return None;
        }
        let on_disk = last.header();
        if self.is_continued && mark.phy == self.end {
            let slots =
                if on_disk == mark.header && is_good(last, on_disk) { slots_of(last, on_disk) } else { Ok(None) };
            let tail = IndexTail::of_slots(Arc::clone(last), on_disk, slots.ok().flatten()?);
            return Some(Begin { kept, tail: Some(tail), from: mark.phy, is_intact: true });
        }
        // It was written on, or is being built again.
        if on_disk.begin_phy != mark.header.begin_phy || on_disk.count < mark.header.count {
            return None;
        }
        let cut = self.sure(mark);
        let header_of = |file: &IndexFile| if file.name == mark.file { mark.header } else { file.header() };
        let kept = found[..kept].partition_point(|file| header_of(file).begin_phy < cut);
        let tail = match found[..kept].last() {
            Some(file) => Some(self.cut(file, header_of(file), cut).ok().flatten()?),
            None => None,
        };
        Some(Begin { kept, tail, from: cut, is_intact: false })
    }

    /// Up to where both the index and the log were on disk.
    fn sure(&self, mark: IndexMark) -> u64 {
        mark.phy.min(self.flushed).min(self.end)
    }

    /// Whether a few entries are what the log says, and can be found in their slots.
    fn samples_fit(&self, file: &IndexFile, header: IndexHeader) -> io::Result<bool> {
        if header.count < 2 || header.count > file.shape.entries {
            return Ok(false);
        }
        let last = header.count - 1;
        let mut phy = header.begin_phy;
        for sample in 0..SAMPLES {
            let number = 1 + (u64::from(last - 1) * u64::from(sample) / u64::from(SAMPLES - 1)) as u32;
            let entry = file.entry(number)?;
            let is_border =
                number == 1 && entry.phy != header.begin_phy || number == last && entry.phy != header.end_phy;
            if is_border || entry.phy < phy || !self.confirms(&entry) {
                return Ok(false);
            }
            phy = entry.phy;
            if !is_in_its_slot(file, number, &entry) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the log has a message with such a key there. One that was deleted cannot deny it.
    fn confirms(&self, entry: &IndexEntry) -> bool {
        if entry.phy < self.start() {
            return true;
        }
        let has_key = |view: &RecordView<'_>| keys_of(view).any(|key| key_hash(view.topic, key) == entry.hash);
        let Some(file) = self.segment(entry.phy).filter(|_| entry.phy < self.end) else { return false };
        file.mapping.with(
            entry.phy - file.start,
            file.mapping.len(),
            |bytes| matches!(check_record(bytes, entry.phy, Checks::STRUCTURE), Ok(Some(view)) if has_key(&view)),
        )
    }

    /// A file with its entries of records before `cut`; `None` if they contradict the header or each other. Slots may be
    /// anything, they follow from the entries.
    fn cut(&self, file: &Arc<IndexFile>, header: IndexHeader, cut: u64) -> io::Result<Option<IndexTail>> {
        let shape = file.shape;
        if header.count < 2 || header.count > shape.entries {
            return Ok(None);
        }
        let mut slots = vec![0; shape.slots as usize];
        let mut kept = IndexHeader { used_slots: 0, count: 1, end_phy: header.begin_phy, ..header };
        let (mut at, end) = (shape.entry_at(1), shape.entry_at(header.count));
        let mut last_age_s = 0;
        let mut piece = vec![0; PIECE_BYTES];
        'file: while at < end {
            let bytes = &mut piece[..(end - at).min(PIECE_BYTES as u64) as usize];
            file.read(bytes, at)?;
            at += bytes.len() as u64;
            for raw in bytes.as_chunks::<{ IndexEntry::SIZE_BYTES as usize }>().0 {
                let entry = IndexEntry::decode(raw);
                if entry.phy >= cut && kept.count > 1 {
                    break 'file;
                }
                let latest = &mut slots[shape.slot_of(entry.hash) as usize];
                let is_first_wrong = kept.count == 1 && entry.phy != header.begin_phy;
                if entry.phy < kept.end_phy || entry.before != *latest || is_first_wrong {
                    return Ok(None);
                }
                kept.used_slots += u32::from(*latest == 0);
                (*latest, kept.end_phy, last_age_s) = (kept.count, entry.phy, entry.age_s);
                kept.count += 1;
            }
        }
        if kept.count == header.count {
            kept.end_ms = header.end_ms;
            return Ok((kept == header).then(|| IndexTail::of_slots(Arc::clone(file), kept, slots)));
        }
        // The log has lost messages that the index had.
        kept.end_ms =
            self.store_ms(kept.end_phy).unwrap_or(header.begin_ms.saturating_add(i64::from(last_age_s) * 1000));
        Ok(Some(IndexTail::of_slots(Arc::clone(file), kept, slots)))
    }

    fn store_ms(&self, phy: u64) -> Option<i64> {
        let file = self.segment(phy)?;
        file.mapping.with(phy - file.start, file.mapping.len(), |bytes| {
            RecordView::parse(bytes).ok().filter(|view| view.phy == PhyOffset(phy)).map(|view| view.store_ms)
        })
    }

    // ---- the log ----

    /// The keys of the records from `phy` on, as many as are read at once, and where to go on; `None` at the end.
    fn keys_from(&self, phy: u64) -> Option<(Vec<IndexKey>, u64)> {
        let file = self.segment(phy).filter(|_| phy < self.end)?;
        let to = self.end.min(file.end()) - file.start;
        let mut keys = Vec::new();
        let bytes = file.mapping.with(phy - file.start, to, |bytes| {
            let mut at = 0;
            while at < bytes.len().min(RUN_BYTES) {
                match check_record(&bytes[at..], phy + at as u64, Checks::STRUCTURE) {
                    Ok(Some(view)) => {
                        push_keys(&view, &mut keys);
                        at += view.size_bytes as usize;
                    }
                    Ok(None) => at = bytes.len(),
                    // Recovery has not looked here, and readers of the messages behind it do without this one.
                    Err(error) => {
                        warn!(at = phy + at as u64, %error, "a damaged record is not indexed");
                        at = next_record(bytes, phy, at + 1);
                    }
                }
            }
            at as u64
        });
        Some((keys, phy + bytes))
    }
}

/// Whether the chain of its slot leads to an entry, or is too long to tell.
fn is_in_its_slot(file: &IndexFile, number: u32, entry: &IndexEntry) -> bool {
    let mut links = file.chain(file.shape.slot_of(entry.hash));
    for _ in 0..LINKS_MAX {
        match links.next() {
            Some(Ok((found, _))) if found > number => {}
            Some(Ok((found, _))) => return found == number,
            Some(Err(_)) | None => return false,
        }
    }
    true
}

/// The slots of a file that was closed; `None` if they contradict its header.
fn slots_of(file: &IndexFile, header: IndexHeader) -> io::Result<Option<Vec<u32>>> {
    let shape = file.shape;
    let mut slots = vec![0; shape.slots as usize];
    let mut used = 0;
    let mut piece = vec![0; PIECE_BYTES];
    let (mut at, end) = (shape.slot_at(0), shape.slot_at(shape.slots));
    while let Some(data) = file.next_data(at)?.filter(|&data| data < end) {
        at = data - (data - shape.slot_at(0)) % 4;
        let bytes = &mut piece[..(end - at).min(PIECE_BYTES as u64) as usize];
        file.read(bytes, at)?;
        let first = ((at - shape.slot_at(0)) / 4) as usize;
        for (slot, raw) in slots[first..].iter_mut().zip(bytes.as_chunks::<4>().0) {
            *slot = u32::from_be_bytes(*raw);
            used += u32::from(*slot != 0);
            if *slot >= header.count {
                return Ok(None);
            }
        }
        at += bytes.len() as u64;
    }
    Ok((used == header.used_slots).then_some(slots))
}

/// Building, over the files that are there.
struct Build<'a> {
    rebuild: &'a IndexRebuild<'a>,
    /// Those that were found; new ones come behind them.
    list: Vec<Arc<IndexFile>>,
    /// How many of them are in use; the tail's is the last.
    used: usize,
    tail: Option<IndexTail>,
    from: u64,
    /// The tail's file is not what it should be yet.
    is_open: bool,
    names_changed: bool,
}

impl<'a> Build<'a> {
    fn new(rebuild: &'a IndexRebuild<'a>, list: Vec<Arc<IndexFile>>, begin: Begin) -> Build<'a> {
        let Begin { kept, tail, from, is_intact } = begin;
        Build { rebuild, list, used: kept, tail, from, is_open: !is_intact, names_changed: false }
    }

    /// Goes through the log from where keys may be missing.
    async fn run(mut self) -> Result<(Vec<Arc<IndexFile>>, Option<IndexTail>), Failure> {
        let mut at = self.from.max(self.rebuild.start());
        let mut progress = Progress::new(self.rebuild.host);
        while let Some((keys, next)) = self.rebuild.keys_from(at) {
            if progress.is_due() {
                info!(at, to = self.rebuild.end, "the index is built from the log");
            }
            for key in &keys {
                self.insert(key).await?;
            }
            at = next;
        }
        self.finish_file().await?;
        for file in self.list.split_off(self.used) {
            self.rebuild.remove(&file.path).await?;
        }
        if self.names_changed {
            let dir = &self.rebuild.dir;
            self.rebuild.files.sync_dir(dir).await.map_err(StoreError::io("sync", dir))?;
        }
        Ok((self.list, self.tail))
    }

    async fn insert(&mut self, key: &IndexKey) -> Result<(), Failure> {
        if self.tail.as_ref().is_none_or(IndexTail::is_full) {
            self.next_file(key.store_ms).await?;
        }
        let tail = self.tail.as_mut().expect("there is a file");
        tail.insert(key);
        if tail.pending_bytes() >= PIECE_BYTES {
            tail.write_entries().map_err(|error| Failure::File(Arc::clone(&tail.file), error))?;
        }
        Ok(())
    }

    /// Goes on with the next file that was found, or with a new one.
    async fn next_file(&mut self, store_ms: i64) -> Result<(), Failure> {
        self.finish_file().await?;
        if let Some(file) = self.list.get(self.used) {
            let erased = async {
                file.write(&[0; IndexHeader::SIZE_BYTES as usize], 0)?;
                file.sync().await
            };
            erased.await.map_err(|error| Failure::File(Arc::clone(file), error))?;
        } else {
            let IndexRebuild { files, dir, shape, .. } = self.rebuild;
            let name = next_name(self.list.last().map(|file| file.name), store_ms);
            let file = IndexFile::create(files, dir, name, *shape).await.map_err(StoreError::io("create in", dir))?;
            self.list.push(Arc::new(file));
            self.names_changed = true;
        }
        let previous = self.tail.as_ref().map(|tail| tail.header);
        self.tail = Some(IndexTail::new(Arc::clone(&self.list[self.used]), previous));
        self.used += 1;
        self.is_open = true;
        Ok(())
    }

    /// Makes the tail's file what it should be, on disk. All is written, even what stands there already: if a sync failed
    /// in an earlier life, the disk may not have what the page cache shows (SF09).
    async fn finish_file(&mut self) -> Result<(), Failure> {
        let Some(tail) = self.tail.as_mut().filter(|_| self.is_open) else { return Ok(()) };
        let file = Arc::clone(&tail.file);
        let finished = async {
            tail.write_entries()?;
            tail.write_all_slots()?;
            file.sync().await?;
            tail.write_header()?;
            file.sync().await
        };
        finished.await.map_err(|error| Failure::File(file, error))?;
        self.is_open = false;
        Ok(())
    }
}
