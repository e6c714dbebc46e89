//! One index file: a header, a table of slots, and entries, each of which names the one before it in its slot.
//!
//! | bytes | what |
//! |---|---|
//! | 40 | the header, see [`IndexHeader`] |
//! | 4 for each slot | number of the latest entry of that slot, 0 for none |
//! | 20 for each entry | see [`IndexEntry`]; entry 0 is never used |
//!
//! Files are written by positioned writes and not mapped, so that a page that cannot be read is an error and not the end
//! of the process: what stands in an index can be built again.
//!
//! Source: `spec/store.md` 6.1, 6.2.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use host::fs::{File, Files, OpenOptions};

/// Digits of a file's name: `yyyyMMddHHmmssSSS`.
const NAME_DIGITS: usize = 17;
/// The latest time that a name can say.
const NAME_MAX_MS: i64 = 253_402_300_799_999;

/// How much an index file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexShape {
    /// Slots of the table (`maxHashSlotNum`).
    pub(crate) slots: u32,
    /// Entries, the unused first one included (`maxIndexNum`).
    pub(crate) entries: u32,
}

impl IndexShape {
    pub(crate) fn file_bytes(self) -> u64 {
        self.entry_at(self.entries)
    }

    pub(crate) fn slot_at(self, slot: u32) -> u64 {
        IndexHeader::SIZE_BYTES + u64::from(slot) * 4
    }

    pub(crate) fn entry_at(self, number: u32) -> u64 {
        self.slot_at(self.slots) + u64::from(number) * IndexEntry::SIZE_BYTES
    }

    pub(crate) fn slot_of(self, hash: u32) -> u32 {
        hash % self.slots
    }
}

/// The first 40 bytes: what the file covers and how much is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexHeader {
    /// Store time of the first entry's message.
    pub(crate) begin_ms: i64,
    /// Store time of the last entry's message.
    pub(crate) end_ms: i64,
    /// Position of the first entry's message.
    pub(crate) begin_phy: u64,
    /// Position of the last entry's message.
    pub(crate) end_phy: u64,
    /// Slots that are not empty.
    pub(crate) used_slots: u32,
    /// Number that the next entry gets; 1 in an empty file.
    pub(crate) count: u32,
}

impl IndexHeader {
    pub(crate) const SIZE_BYTES: u64 = 40;
    /// Of a file without entries.
    pub(crate) const EMPTY: IndexHeader =
        IndexHeader { begin_ms: 0, end_ms: 0, begin_phy: 0, end_phy: 0, used_slots: 0, count: 1 };

    pub(crate) fn encode(self) -> [u8; Self::SIZE_BYTES as usize] {
        let mut out = [0; Self::SIZE_BYTES as usize];
        out[..8].copy_from_slice(&self.begin_ms.to_be_bytes());
        out[8..16].copy_from_slice(&self.end_ms.to_be_bytes());
        out[16..24].copy_from_slice(&self.begin_phy.to_be_bytes());
        out[24..32].copy_from_slice(&self.end_phy.to_be_bytes());
        out[32..36].copy_from_slice(&self.used_slots.to_be_bytes());
        out[36..].copy_from_slice(&self.count.to_be_bytes());
        out
    }

    /// An empty file may have a count of 0.
    pub(crate) fn decode(raw: &[u8; Self::SIZE_BYTES as usize]) -> IndexHeader {
        let long = |at: usize| raw[at..at + 8].try_into().expect("8 bytes of 40");
        let short = |at: usize| u32::from_be_bytes(raw[at..at + 4].try_into().expect("4 bytes of 40"));
        IndexHeader {
            begin_ms: i64::from_be_bytes(long(0)),
            end_ms: i64::from_be_bytes(long(8)),
            begin_phy: u64::from_be_bytes(long(16)),
            end_phy: u64::from_be_bytes(long(24)),
            used_slots: short(32),
            count: short(36).max(1),
        }
    }
}

/// One key of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// Of the key, see [`crate::index::key_hash`].
    pub(crate) hash: u32,
    /// Where the record starts.
    pub(crate) phy: u64,
    /// Seconds from the begin of the file to the store time of the message.
    pub(crate) age_s: u32,
    /// Number of the entry before it in its slot; 0 for none.
    pub(crate) before: u32,
}

impl IndexEntry {
    pub(crate) const SIZE_BYTES: u64 = 20;

    pub(crate) fn encode(self) -> [u8; Self::SIZE_BYTES as usize] {
        let mut out = [0; Self::SIZE_BYTES as usize];
        out[..4].copy_from_slice(&self.hash.to_be_bytes());
        out[4..12].copy_from_slice(&self.phy.to_be_bytes());
        out[12..16].copy_from_slice(&self.age_s.to_be_bytes());
        out[16..].copy_from_slice(&self.before.to_be_bytes());
        out
    }

    pub(crate) fn decode(raw: &[u8; Self::SIZE_BYTES as usize]) -> IndexEntry {
        let short = |at: usize| u32::from_be_bytes(raw[at..at + 4].try_into().expect("4 bytes of 20"));
        IndexEntry {
            hash: short(0),
            phy: u64::from_be_bytes(raw[4..12].try_into().expect("8 bytes of 20")),
            age_s: short(12),
            before: short(16),
        }
    }
}

/// An open index file. One task writes, anyone reads what the header says is there.
#[derive(Debug)]
pub(crate) struct IndexFile {
    /// Its name as a number; files sort by it.
    pub(crate) name: u64,
    pub(crate) path: PathBuf,
    pub(crate) shape: IndexShape,
    file: File,
    /// As readers may rely on it. Leaf lock.
    header: Mutex<IndexHeader>,
    /// Bytes of entries that were written since the last sync began.
    dirty_bytes: AtomicU64,
}

impl IndexFile {
    /// Makes an empty file, with its blocks reserved (SF13). Neither content nor name is durable yet.
    pub(crate) async fn create(files: &Files, dir: &Path, name: u64, shape: IndexShape) -> io::Result<IndexFile> {
        let path = dir.join(file_name(name));
        let file = files.open(&path, OpenOptions::REPLACE).await?;
        if let Err(error) = file.allocate(shape.file_bytes()).await {
            // Half a file would only take the space that is missing. If it cannot be removed, recovery does it.
            drop(files.remove_file(&path).await);
            return Err(error);
        }
        Ok(IndexFile::new(name, path, shape, file, IndexHeader::EMPTY))
    }

    /// Opens a file that exists, of the right length, with the header that stands in it.
    pub(crate) async fn open(files: &Files, path: PathBuf, name: u64, shape: IndexShape) -> io::Result<IndexFile> {
        let file = files.open(&path, OpenOptions::WRITE).await?;
        let mut raw = [0; IndexHeader::SIZE_BYTES as usize];
        file.read_exact_at(&mut raw, 0)?;
        Ok(IndexFile::new(name, path, shape, file, IndexHeader::decode(&raw)))
    }

    fn new(name: u64, path: PathBuf, shape: IndexShape, file: File, header: IndexHeader) -> IndexFile {
        IndexFile { name, path, shape, file, header: Mutex::new(header), dirty_bytes: AtomicU64::new(0) }
    }

    pub(crate) fn header(&self) -> IndexHeader {
        *self.header.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells readers what is in the file now.
    pub(crate) fn publish(&self, header: IndexHeader) {
        *self.header.lock().unwrap_or_else(PoisonError::into_inner) = header;
    }

    /// The latest entry of a slot; `None` for none, or for nonsense.
    pub(crate) fn slot(&self, slot: u32) -> io::Result<Option<u32>> {
        let mut raw = [0; 4];
        self.file.read_exact_at(&mut raw, self.shape.slot_at(slot))?;
        Ok(Some(u32::from_be_bytes(raw)).filter(|number| (1..self.shape.entries).contains(number)))
    }

    pub(crate) fn entry(&self, number: u32) -> io::Result<IndexEntry> {
        let mut raw = [0; IndexEntry::SIZE_BYTES as usize];
        self.file.read_exact_at(&mut raw, self.shape.entry_at(number))?;
        Ok(IndexEntry::decode(&raw))
    }

    pub(crate) fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, at)
    }

    /// Where the file may hold anything but zeros, from `at` on.
    pub(crate) fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        Ok(self.file.next_data(at)?.map(|data| data.start))
    }

    pub(crate) fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.dirty_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(bytes, at)
    }

    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes.load(Ordering::Relaxed)
    }

    /// Makes durable what was written before the call.
    ///
    /// # Errors
    /// A sync failed: what it covered must be taken for lost.
    pub(crate) async fn sync(&self) -> io::Result<()> {
        if self.dirty_bytes.swap(0, Ordering::Relaxed) == 0 {
            return Ok(());
        }
        self.file.sync_all().await
    }

    /// Entries from the latest of a slot back to the first one. An entry that does not belong there ends the walk with an
    /// error, for what lies before it cannot be found any more.
    pub(crate) fn chain(&self, slot: u32) -> impl Iterator<Item = io::Result<(u32, IndexEntry)>> {
        let mut next = self.slot(slot).transpose();
        std::iter::from_fn(move || {
            let number = match next.take()? {
                Ok(number) => number,
                Err(error) => return Some(Err(error)),
            };
            let entry = match self.entry(number) {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            if self.shape.slot_of(entry.hash) != slot || entry.before >= number {
                let what = format!("entry {number} of {} is damaged", self.path.display());
                return Some(Err(io::Error::new(io::ErrorKind::InvalidData, what)));
            }
            next = Some(Ok(entry.before)).filter(|_| entry.before > 0);
            Some(Ok((number, entry)))
        })
    }
}

/// The name of a file: 17 digits, so that names sort as numbers.
pub(crate) fn file_name(name: u64) -> String {
    format!("{name:0NAME_DIGITS$}")
}

/// The number that a file name says; `None` if it is not 17 digits.
pub(crate) fn parse_name(name: &str) -> Option<u64> {
    if name.len() != NAME_DIGITS || !name.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    name.parse().ok()
}

/// The name that a time has, in UTC: `yyyyMMddHHmmssSSS` as a number.
pub(crate) fn name_of_time(ms: i64) -> u64 {
    let ms = ms.clamp(0, NAME_MAX_MS) as u64;
    let (day, ms_of_day) = (ms / 86_400_000, ms % 86_400_000);
    // Years begin in March, so that the day which some years lack is their last. 1 March of year 0 is day 0.
    let day = day + 719_468;
    let era = day / 146_097;
    let day_of_era = day % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (ms_of_day / 3_600_000, ms_of_day / 60_000 % 60, ms_of_day / 1000 % 60);
    let date = (year * 100 + month) * 100 + day_of_month;
    (((date * 100 + hour) * 100 + minute) * 100 + second) * 1000 + ms_of_day % 1000
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{IndexEntry, IndexHeader, IndexShape, file_name, name_of_time, parse_name};

    #[test]
    fn a_file_of_the_reference_s_defaults_has_its_size() {
        assert_eq!(IndexShape { slots: 5_000_000, entries: 20_000_000 }.file_bytes(), 420_000_040);
    }

    #[test]
    fn names_are_times() {
        assert_eq!(name_of_time(0), 19_700_101_000_000_000);
        assert_eq!(name_of_time(951_782_400_000 - 1), 20_000_228_235_959_999);
        assert_eq!(name_of_time(951_782_400_000), 20_000_229_000_000_000);
        assert_eq!(name_of_time(1_795_974_259_973), 20_261_129_174_419_973);
        assert_eq!(name_of_time(-1), 19_700_101_000_000_000);
        assert_eq!(file_name(name_of_time(i64::MAX)), "99991231235959999");
        assert_eq!(parse_name("20261129174419973"), Some(20_261_129_174_419_973));
        for name in ["2026112917441997", "202611291744199731", "2026112917441997x", ""] {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn later_times_have_later_names(ms in 0..253_402_300_799_998_i64, by in 1..1_000_000_i64) {
            prop_assert!(name_of_time(ms) < name_of_time(ms + by) || ms + by > 253_402_300_799_999);
        }

        #[test]
        fn entries_and_headers_round_trip(
            (hash, phy, age_s, before) in any::<(u32, u64, u32, u32)>(),
            (begin_ms, end_ms, begin_phy, end_phy, used_slots) in any::<(i64, i64, u64, u64, u32)>(),
            count in 1..u32::MAX,
        ) {
            let entry = IndexEntry { hash, phy, age_s, before };
            prop_assert_eq!(IndexEntry::decode(&entry.encode()), entry);
            let header = IndexHeader { begin_ms, end_ms, begin_phy, end_phy, used_slots, count };
            prop_assert_eq!(IndexHeader::decode(&header.encode()), header);
        }
    }
}
