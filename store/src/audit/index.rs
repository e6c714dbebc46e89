//! The index files of a store at rest.
//!
//! Entries stand in the order of the log, so that log and index are compared by walking through both at once. Before a
//! store was closed cleanly, slots and headers may lag behind entries or lead them, as a crash leaves them: then only
//! what the entries say is compared.

use std::{io, path::PathBuf};

use message::RecordView;

use crate::index::{IndexEntry, IndexHeader, IndexShape, index_name, key_hash, keys_of};

use super::{
    AuditOptions, AuditSource, Content, Extent, Finding, Finds, INDEX, files_of,
    log::{Found, Log, Walk},
};

/// One file, read whole.
struct File {
    path: PathBuf,
    content: Content,
    shape: IndexShape,
    header: IndexHeader,
}

impl File {
    fn bytes<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        // The zeros that end a file may be left out.
        let there = self.content.bytes.get(at as usize..).unwrap_or_default();
        let count = there.len().min(N);
        bytes[..count].copy_from_slice(&there[..count]);
        bytes
    }

    fn slot(&self, slot: u32) -> u32 {
        u32::from_be_bytes(self.bytes(self.shape.slot_at(slot)))
    }

    fn entry(&self, number: u32) -> IndexEntry {
        IndexEntry::decode(&self.bytes(self.shape.entry_at(number)))
    }

    fn finding(&self, at: u64, what: String) -> Finding {
        Finding { path: self.path.clone(), at: Some(at), what }
    }

    fn of_entry(&self, number: u32, what: impl std::fmt::Display) -> Finding {
        self.finding(self.shape.entry_at(number), format!("entry {number} {what}"))
    }
}

/// Compares the index with the log. Returns how many entries it has. A store without index files is as good: its broker
/// may keep none.
pub(super) fn check(
    source: &impl AuditSource,
    options: &AuditOptions,
    (log, extent): (&Log, &Extent),
    is_clean: bool,
    finds: &mut Finds,
) -> io::Result<u64> {
    let mut entries = 0;
    let mut walk = None;
    let mut before = None;
    let names: Vec<(u64, String)> =
        files_of(source, INDEX.as_ref())?.into_iter().filter_map(|name| Some((index_name(&name)?, name))).collect();
    for (number, (_, name)) in names.iter().enumerate() {
        let path = PathBuf::from(INDEX).join(name);
        let Some(file) = open(source, path, options, number + 1 == names.len(), finds)? else { continue };
        let count = file.header.count;
        let walk = walk.get_or_insert_with(|| Records::from(log, file.header.begin_phy));
        let mut slots = is_clean.then(|| Slots::of(&file));
        for number in 1..count {
            let entry = file.entry(number);
            if let Some(slots) = &mut slots {
                slots.pass(&file, number, &entry, finds);
            }
            if !check_entry(&file, number, &entry, before, (log, extent), finds) {
                continue;
            }
            if is_clean {
                walk.pass(&entry, finds);
            }
        }
        if let Some(slots) = slots {
            slots.end(&file, finds);
            check_header(&file, log, finds);
        }
        entries += u64::from(count - 1);
        before = Some(file.header.end_ms);
    }
    if let Some(walk) = walk.filter(|_| is_clean) {
        walk.end(finds);
    }
    Ok(entries)
}

/// `None` if the file is of no use, which is told; an empty last file may have any length.
fn open(
    source: &impl AuditSource,
    path: PathBuf,
    options: &AuditOptions,
    is_last: bool,
    finds: &mut Finds,
) -> io::Result<Option<File>> {
    let content = source.read(&path)?;
    if is_last && content.bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let shape = options.index_shape(content.len);
    if shape.file_bytes() != content.len {
        let what = match options.index_shape {
            Some(_) => format!("{} bytes long, though the configuration says {}", content.len, shape.file_bytes()),
            None => {
                format!("{} bytes long, not as with four entries for each slot: name the configuration", content.len)
            }
        };
        finds.add(Finding::of_file(path, what));
        return Ok(None);
    }
    let mut file = File { path, content, shape, header: IndexHeader::EMPTY };
    file.header = IndexHeader::decode(&file.bytes(0));
    if file.header.count > shape.entries {
        let what = format!("the header counts {} entries, the file has room for {}", file.header.count, shape.entries);
        finds.add(file.finding(36, what));
        return Ok(None);
    }
    Ok(Some(file))
}

/// The slots of a file, while its entries are walked through: each slot names its latest entry, and each entry the one
/// before it in its slot.
struct Slots {
    /// The latest entry of each slot so far; 0 if there is none.
    latest: Vec<u32>,
}

impl Slots {
    fn of(file: &File) -> Slots {
        Slots { latest: vec![0; file.shape.slots as usize] }
    }

    fn pass(&mut self, file: &File, number: u32, entry: &IndexEntry, finds: &mut Finds) {
        let slot = file.shape.slot_of(entry.hash) as usize;
        let expected = std::mem::replace(&mut self.latest[slot], number);
        if entry.before != expected {
            let what = format!("says that {} is before it in its slot, which is {expected}", entry.before);
            finds.add(file.of_entry(number, what));
        }
    }

    fn end(self, file: &File, finds: &mut Finds) {
        let mut used = 0;
        for (slot, latest) in (0..).zip(self.latest) {
            used += u32::from(latest > 0);
            let found = file.slot(slot);
            if found != latest {
                let what = format!("slot {slot} names entry {found}, its latest is {latest}");
                finds.add(file.finding(file.shape.slot_at(slot), what));
            }
        }
        if file.header.used_slots != used {
            finds.add(file.finding(32, format!("the header counts {} used slots, {used} are", file.header.used_slots)));
        }
    }
}

/// Times and positions of the header are those of its first and last entry.
fn check_header(file: &File, log: &Log, finds: &mut Finds) {
    let header = file.header;
    if header.count < 2 {
        return;
    }
    for (number, phy_at, phy, ms_at, ms) in
        [(1, 16, header.begin_phy, 0, header.begin_ms), (header.count - 1, 24, header.end_phy, 8, header.end_ms)]
    {
        let entry = file.entry(number);
        if entry.phy != phy {
            finds.add(file.finding(phy_at, format!("the header says {phy}, entry {number} points at {}", entry.phy)));
        } else if let Ok(record) = log.record(phy)
            && record.store_ms != ms
        {
            let what = format!("the header says {ms}, the record of entry {number} was stored at {}", record.store_ms);
            finds.add(file.finding(ms_at, what));
        }
    }
}

/// Whether an entry points at a record that is whole and has its key; false also for one that is deleted.
fn check_entry(
    file: &File,
    number: u32,
    entry: &IndexEntry,
    before: Option<i64>,
    (log, extent): (&Log, &Extent),
    finds: &mut Finds,
) -> bool {
    if entry.phy < log.start() || extent.damaged.iter().any(|part| part.contains(&entry.phy)) {
        return false;
    }
    if entry.phy >= extent.end {
        finds.add(file.of_entry(number, format_args!("points at {}, the log ends at {}", entry.phy, extent.end)));
        return false;
    }
    let record = match log.record(entry.phy) {
        Ok(record) => record,
        Err(error) => {
            finds.add(file.of_entry(number, format_args!("points at {}, where no record is: {error}", entry.phy)));
            return false;
        }
    };
    if !hashes(&record).any(|hash| hash == entry.hash) {
        let what = format_args!("points at {}, whose keys have other hashes than {}", entry.phy, entry.hash);
        finds.add(file.of_entry(number, what));
        return false;
    }
    let age = |since: i64| ((record.store_ms - since) / 1000).clamp(0, i64::from(i32::MAX)) as u32;
    let begin = file.header.begin_ms;
    // The reference counts the age of a file's first entry from the end of the file before.
    let is_first = number == 1 && (entry.age_s == 0 || before.is_some_and(|end| entry.age_s == age(end)));
    if entry.age_s != age(begin) && !is_first {
        finds.add(file.of_entry(number, format_args!("says {} s, its record is {} s old", entry.age_s, age(begin))));
    }
    true
}

fn hashes<'a>(record: &RecordView<'a>) -> impl Iterator<Item = u32> + use<'a> {
    let topic = record.topic;
    keys_of(record).map(move |key| key_hash(topic, key))
}

/// The records of the log from one on, and how many of its keys the last one was found with.
struct Records<'a> {
    log: &'a Log,
    walk: Walk<'a>,
    from: u64,
    /// The last record that was taken, if it has keys: where it is, how many keys it has, and how many were found.
    last: Option<(u64, usize, usize)>,
}

impl<'a> Records<'a> {
    /// From the record at `from` on: what is older may have been indexed in a file that is gone.
    fn from(log: &'a Log, from: u64) -> Records<'a> {
        Records { log, walk: log.walk(), from, last: None }
    }

    /// An entry was seen: every record before its own must have had all its entries.
    fn pass(&mut self, entry: &IndexEntry, finds: &mut Finds) {
        loop {
            if let Some((phy, _, found)) = &mut self.last
                && *phy >= entry.phy
            {
                *found += usize::from(*phy == entry.phy);
                return;
            }
            if !self.next(finds) {
                return;
            }
        }
    }

    /// The next record that has keys; false at the end of the log.
    fn next(&mut self, finds: &mut Finds) -> bool {
        if let Some((phy, keys, found)) = self.last.take()
            && found < keys
        {
            let (path, at) = self.log.place(phy);
            finds.add(Finding { path, at: Some(at), what: format!("{found} of its {keys} keys are in the index") });
        }
        while let Some(found) = self.walk.next() {
            let Found::Record(record) = found else { continue };
            let keys = keys_of(&record).count();
            if record.phy.0 >= self.from && keys > 0 {
                self.last = Some((record.phy.0, keys, 0));
                return true;
            }
        }
        false
    }

    fn end(mut self, finds: &mut Finds) {
        while self.next(finds) {}
    }
}
