//! The consume queues of a store at rest.

use std::{collections::BTreeMap, io, path::Path};

use bytes::Bytes;

use crate::{
    entry::CqEntry,
    log_file::{file_start, queue_number},
};

use super::{AuditSource, CONSUME_QUEUE, Content, Extent, Finding, Finds, files_of, log::Log, queue_file};

const ENTRY: u64 = CqEntry::SIZE_BYTES;

/// One queue.
pub(super) struct Queue {
    topic: String,
    queue_id: u32,
    /// Oldest first, without holes.
    files: Vec<(u64, Bytes)>,
    file_bytes: u64,
    /// Behind the last slot that is not empty.
    max: u64,
}

/// A file of a queue, as it was found.
struct QueueFile {
    start: u64,
    content: Content,
}

/// Opens the files of all queues. What is wrong with names, lengths and holes is told to `finds`.
pub(super) fn open_all(source: &impl AuditSource, finds: &mut Finds) -> io::Result<BTreeMap<(String, u32), Queue>> {
    let root = Path::new(CONSUME_QUEUE);
    let mut found = BTreeMap::new();
    for topic in source.list(root)?.into_iter().filter(|entry| entry.is_dir) {
        let dir = root.join(&topic.name);
        for queue in source.list(&dir)?.into_iter().filter(|entry| entry.is_dir) {
            let Some(queue_id) = queue_number(&queue.name) else {
                finds.add(Finding::of_file(dir.join(&queue.name), "not the number of a queue"));
                continue;
            };
            let files = files_of_queue(source, &dir.join(&queue.name), finds)?;
            found.insert((topic.name.clone(), queue_id), files);
        }
    }
    let usual = usual_length(found.values().flatten());
    let open = |((topic, queue_id), files): ((String, u32), Vec<QueueFile>)| {
        let queue = Queue::open(&topic, queue_id, files, usual, finds)?;
        Some(((topic, queue_id), queue))
    };
    Ok(found.into_iter().filter_map(open).collect())
}

fn files_of_queue(source: &impl AuditSource, dir: &Path, finds: &mut Finds) -> io::Result<Vec<QueueFile>> {
    let mut files = Vec::new();
    for name in files_of(source, dir)? {
        let path = dir.join(&name);
        match file_start(&name) {
            Some(start) => files.push(QueueFile { start, content: source.read(&path)? }),
            None => finds.add(Finding::of_file(path, "not a file of a queue: names are 20 digits")),
        }
    }
    Ok(files)
}

/// How long most files are, which all should be: a setting of the broker says it. The larger one of two lengths that are
/// as frequent, since files are cut off more easily than they grow.
fn usual_length<'a>(files: impl Iterator<Item = &'a QueueFile>) -> u64 {
    let mut counts = BTreeMap::<u64, usize>::new();
    for file in files.filter(|file| file.content.len > 0 && file.content.len.is_multiple_of(ENTRY)) {
        *counts.entry(file.content.len).or_default() += 1;
    }
    counts.into_iter().max_by_key(|&(len, count)| (count, len)).map_or(0, |(len, _)| len)
}

impl Queue {
    /// `None` if the queue has no files. What lies in front of a hole is not used.
    fn open(topic: &str, queue_id: u32, files: Vec<QueueFile>, file_bytes: u64, finds: &mut Finds) -> Option<Queue> {
        let mut queue = Queue { topic: topic.to_owned(), queue_id, files: Vec::new(), file_bytes, max: 0 };
        for QueueFile { start, content } in files {
            let path = queue_file(topic, queue_id, start);
            if content.len != file_bytes {
                let what = match content.len.is_multiple_of(ENTRY) {
                    true => format!("{} bytes long, other files of queues {file_bytes}", content.len),
                    false => format!("{} bytes long, no whole number of entries", content.len),
                };
                finds.add(Finding::of_file(path, what));
                continue;
            }
            if !start.is_multiple_of(file_bytes) {
                finds.add(Finding::of_file(path, format!("the name is no multiple of its {file_bytes} bytes")));
                continue;
            }
            let expected = queue.files.last().map_or(start, |(last, _)| last + file_bytes);
            if start != expected {
                finds.add(Finding::of_file(queue_file(topic, queue_id, expected), "missing between others"));
                queue.files.clear();
            }
            queue.files.push((start, content.bytes));
        }
        let last = queue.files.iter().rev().find_map(|(start, bytes)| {
            let used = bytes.iter().rposition(|byte| *byte != 0)? as u64;
            Some((start + used) / ENTRY + 1)
        });
        queue.max = last.unwrap_or(queue.first());
        (!queue.files.is_empty()).then_some(queue)
    }

    /// Behind the last entry.
    pub(super) fn max(&self) -> u64 {
        self.max
    }

    /// The first slot that the files have room for.
    fn first(&self) -> u64 {
        self.files.first().map_or(0, |(start, _)| start / ENTRY)
    }

    /// The first entry, if it points at its own record, and where that is.
    pub(super) fn first_confirmed(&self, log: &Log) -> Option<(u64, u64)> {
        let mut entries = (self.first()..self.max).map(|index| (index, self.slot(index)));
        let (index, entry) = entries.find(|(_, entry)| !entry.is_some_and(|entry| entry.is_blank()))?;
        let phy = entry?.phy.0;
        let view = log.record(phy).ok()?;
        let is_own = (view.topic, view.queue_id, view.queue_offset.0) == (&self.topic, self.queue_id, index);
        is_own.then_some((index, phy))
    }

    fn slot(&self, index: u64) -> Option<CqEntry> {
        let at = (index * ENTRY).checked_sub(self.files.first()?.0)?;
        let (_, bytes) = self.files.get((at / self.file_bytes) as usize)?;
        let at = (at % self.file_bytes) as usize;
        let raw = bytes.get(at..)?;
        // The end of the file may be left out where it is zeros, in the middle of an entry, too.
        let mut whole = [0; ENTRY as usize];
        let there = raw.len().min(whole.len());
        whole[..there].copy_from_slice(&raw[..there]);
        CqEntry::decode(&whole)
    }

    fn add(&self, index: u64, what: String, finds: &mut Finds) {
        let at = index * ENTRY;
        let start = at / self.file_bytes * self.file_bytes;
        finds.add(Finding { path: queue_file(&self.topic, self.queue_id, start), at: Some(at - start), what });
    }

    /// Whether slot `index`, which lies before the end, is what the record of that offset needs.
    pub(super) fn check_record(&self, index: u64, needed: &CqEntry, finds: &mut Finds) {
        let what = match self.slot(index) {
            Some(entry) if entry == *needed => return,
            _ if index < self.first() => format!("no file for entry {index}, whose record is at {}", needed.phy.0),
            None => format!("no entry {index}, whose record is at {}", needed.phy.0),
            Some(entry) if entry.is_blank() => {
                format!("entry {index} is blank, though its record is at {}", needed.phy.0)
            }
            Some(entry) if entry.phy != needed.phy => {
                format!("entry {index} points at {}, its record is at {}", entry.phy.0, needed.phy.0)
            }
            Some(entry) if entry.size_bytes != needed.size_bytes => {
                format!("entry {index} says {} bytes, its record has {}", entry.size_bytes, needed.size_bytes)
            }
            Some(entry) => {
                format!("entry {index} has the tags code {}, its record {}", entry.tags_code, needed.tags_code)
            }
        };
        self.add(index, what, finds);
    }

    /// Whether every entry points at a record that is its own, as far as the log can be read there. Returns how many
    /// entries there are.
    pub(super) fn check(&self, log: &Log, extent: &Extent, finds: &mut Finds) -> u64 {
        let Extent { end: log_end, damaged } = extent;
        let mut entries = 0;
        let mut before = None;
        for index in self.first()..self.max {
            let Some(entry) = self.slot(index) else {
                self.add(index, format!("no entry {index}, though more follow"), finds);
                continue;
            };
            if entry.is_blank() {
                continue;
            }
            entries += 1;
            if let Some(before) = before.replace(entry.phy).filter(|before| *before >= entry.phy) {
                self.add(
                    index,
                    format!("entry {index} points at {}, the one before it at {}", entry.phy.0, before.0),
                    finds,
                );
            } else if entry.phy.0 >= *log_end {
                self.add(index, format!("entry {index} points at {}, the log ends at {log_end}", entry.phy.0), finds);
            } else if entry.phy.0 >= log.start() && !damaged.iter().any(|part| part.contains(&entry.phy.0)) {
                self.check_target(index, &entry, log, finds);
            }
        }
        entries
    }

    fn check_target(&self, index: u64, entry: &CqEntry, log: &Log, finds: &mut Finds) {
        let phy = entry.phy.0;
        let what = match log.record(phy) {
            Ok(view) if view.topic != self.topic || view.queue_id != self.queue_id => {
                format!("entry {index} points at {phy}: a record of queue {} of {}", view.queue_id, view.topic)
            }
            Ok(view) if view.queue_offset.0 != index => {
                format!("entry {index} points at {phy}: the record of offset {}", view.queue_offset.0)
            }
            Ok(_) => return,
            Err(error) => format!("entry {index} points at {phy}, where no record is: {error}"),
        };
        self.add(index, what, finds);
    }
}
