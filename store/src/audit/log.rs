//! Walking through the commit log of a store at rest, past what is damaged in it.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use message::{Frame, RecordError, RecordView, peek};

use crate::{
    follow::{Checks, check_record},
    log_file::{file_name, file_start},
};

use super::{AuditSource, Finding, Finds, files_of};

/// First bytes of the magics of records; both versions share three of the four.
const MAGIC_START: [u8; 3] = [0xDA, 0xA3, 0x20];

/// The files of a commit log.
pub(super) struct Log {
    dir: PathBuf,
    /// Oldest first.
    files: Vec<LogFile>,
}

struct LogFile {
    start: u64,
    len: u64,
    /// What the file holds; behind it, up to `len`, it holds zeros.
    bytes: Bytes,
}

/// What stands at some place of the log.
pub(super) enum Found<'a> {
    /// A record, whole in its structure.
    Record(RecordView<'a>),
    /// Something that is no record.
    Damage(Finding),
}

/// Goes through a log from its first byte to its end.
pub(super) struct Walk<'a> {
    log: &'a Log,
    file: usize,
    /// Position in that file.
    at: u64,
    /// How often something was skipped so far: what follows need not go on where the last record ended.
    pub(super) skipped: u32,
    /// Where the log ends, as soon as that is known.
    pub(super) end: Option<u64>,
    /// The parts in which no record could be told from another, oldest first.
    pub(super) damaged: Vec<Range<u64>>,
}

impl Log {
    /// Opens all files. What is wrong with names, lengths and holes is told to `finds`.
    pub(super) fn open(source: &impl AuditSource, dir: &Path, finds: &mut Finds) -> io::Result<Log> {
        let mut files: Vec<LogFile> = Vec::new();
        let names = files_of(source, dir)?;
        for (number, name) in names.iter().enumerate() {
            let path = dir.join(name);
            let Some(start) = file_start(name) else {
                finds.add(Finding::of_file(path, "not a file of the log: names are 20 digits"));
                continue;
            };
            let content = source.read(&path)?;
            let usual = files.first().map_or(content.len, |first| first.len);
            let is_blank = || content.bytes.iter().all(|byte| *byte == 0);
            if content.len != usual && number + 1 == names.len() && is_blank() {
                // It was being made, and its length is metadata of its own.
                continue;
            }
            if content.len == 0 {
                finds.add(Finding::of_file(path.clone(), "empty"));
            } else if content.len != usual {
                let what = format!("{} bytes long, other files of the log have {usual}", content.len);
                finds.add(Finding::of_file(path.clone(), what));
            }
            if usual > 0 && !start.is_multiple_of(usual) {
                finds.add(Finding::of_file(path, format!("the name is no multiple of its {usual} bytes")));
            }
            if let Some(last) = files.last().filter(|last| usual > 0 && last.start + usual != start) {
                let missing = dir.join(file_name(last.start + usual));
                finds.add(Finding::of_file(missing, "missing between others"));
            }
            files.push(LogFile { start, len: content.len, bytes: content.bytes });
        }
        Ok(Log { dir: dir.to_owned(), files })
    }

    pub(super) fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Where the first file begins.
    pub(super) fn start(&self) -> u64 {
        self.files.first().map_or(0, |file| file.start)
    }

    pub(super) fn walk(&self) -> Walk<'_> {
        Walk { log: self, file: 0, at: 0, skipped: 0, end: None, damaged: Vec::new() }
    }

    /// The record that begins at a position, if one does.
    pub(super) fn record(&self, phy: u64) -> Result<RecordView<'_>, RecordError> {
        let behind = self.files.partition_point(|file| file.start <= phy);
        let file = behind.checked_sub(1).map(|index| &self.files[index]);
        let rest = file.and_then(|file| file.bytes.get((phy - file.start) as usize..)).unwrap_or_default();
        check_record(rest, phy, Checks::STRUCTURE)?.ok_or(RecordError::Blank)
    }

    /// The path of the file that holds a position, and the position in it.
    pub(super) fn place(&self, phy: u64) -> (PathBuf, u64) {
        let behind = self.files.partition_point(|file| file.start <= phy);
        let start = behind.checked_sub(1).map_or(0, |index| self.files[index].start);
        (self.dir.join(file_name(start)), phy - start)
    }
}

impl<'a> Walk<'a> {
    /// The next record or damage; `None` at the end of the log.
    pub(super) fn next(&mut self) -> Option<Found<'a>> {
        loop {
            let log = self.log;
            let file = log.files.get(self.file)?;
            let rest = file.bytes.get(self.at as usize..).unwrap_or_default();
            let left = file.len.saturating_sub(self.at);
            let phy = file.start + self.at;
            match peek(rest) {
                _ if left == 0 => self.next_file(),
                Ok(Frame::Blank { size_bytes }) if u64::from(size_bytes) == left => self.next_file(),
                Ok(Frame::Record { .. }) => match check_record(rest, phy, Checks::STRUCTURE) {
                    Ok(Some(view)) => {
                        self.at += u64::from(view.size_bytes);
                        return Some(Found::Record(view));
                    }
                    Ok(None) => return Some(self.damage(&"a blank record where none can be")),
                    Err(error) => return Some(self.damage(&error)),
                },
                Ok(Frame::Blank { size_bytes }) => {
                    let what = format!("a blank record of {size_bytes} bytes, though {left} are left in the file");
                    return Some(self.damage(&what));
                }
                Err(_) if rest.iter().take(8).all(|byte| *byte == 0) => return self.zeros(),
                Err(error) => return Some(self.damage(&error)),
            }
        }
    }

    /// Nothing stands here: the end of the log, if nothing stands behind it either.
    fn zeros(&mut self) -> Option<Found<'a>> {
        let file = &self.log.files[self.file];
        let rest = file.bytes.get(self.at as usize..).unwrap_or_default();
        let here = rest.iter().any(|byte| *byte != 0);
        let later = || self.log.files[self.file + 1..].iter().any(|file| file.bytes.iter().any(|byte| *byte != 0));
        if here || later() {
            return Some(self.damage(&"zeros, though more follows"));
        }
        self.end = Some(file.start + self.at);
        self.file = self.log.files.len();
        None
    }

    fn next_file(&mut self) {
        let ended = &self.log.files[self.file];
        self.end = Some(ended.start + ended.len);
        self.file += 1;
        self.at = 0;
        if let Some(next) = self.log.files.get(self.file).filter(|next| Some(next.start) != self.end) {
            self.end = Some(next.start);
            self.skipped += 1;
        }
    }

    /// Tells what is wrong here, and goes on with the next record in this file, or with the next file.
    fn damage(&mut self, what: &dyn std::fmt::Display) -> Found<'a> {
        let file = &self.log.files[self.file];
        let from = self.at;
        let path = self.log.dir.join(file_name(file.start));
        self.skipped += 1;
        let next = next_record(&file.bytes, file.start, from + 1);
        let went_on = match next {
            Some(next) => {
                self.at = next;
                self.damaged.push(file.start + from..file.start + next);
                format!("the next record begins at {next}")
            }
            None => {
                // Only what is behind the last record of all is behind the end of the log.
                let is_last = !self.log.files[self.file + 1..].iter().any(|file| !file.bytes.is_empty());
                self.next_file();
                self.end = Some(if is_last { file.start + from } else { file.start + file.len });
                self.damaged.push(file.start + from..file.start + file.len);
                "no record follows in this file".to_owned()
            }
        };
        Found::Damage(Finding { path, at: Some(from), what: format!("{what}; {went_on}") })
    }
}

/// The first place at or behind `from` where a record begins that names its own position.
fn next_record(bytes: &[u8], start: u64, from: u64) -> Option<u64> {
    let mut at = from as usize;
    loop {
        // The magic stands behind four bytes of size.
        let window = bytes.get(at + 4..)?;
        let found = window.windows(MAGIC_START.len()).position(|bytes| bytes == MAGIC_START)?;
        at += found;
        if matches!(check_record(&bytes[at..], start + at as u64, Checks::STRUCTURE), Ok(Some(_))) {
            return Some(at as u64);
        }
        at += 1;
    }
}
