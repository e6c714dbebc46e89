//! The checkpoint file: how far log and queues were on disk, so that the next start knows where to begin.
//!
//! Bytes 0..40 are the reference's five numbers. At 512 and 1024 lie our own slots, used in turns, which the reference
//! neither reads nor clears. A slot counts only while the five numbers are those it was written with, so a run of the
//! reference in between is noticed.
//!
//! Source: `spec/store.md` 4.6, obligation SF04.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use host::fs::{File, Files, OpenOptions};

use crate::index::{IndexHeader, IndexKnown, IndexMark};

/// How long the file is.
pub(crate) const FILE_BYTES: u64 = 4096;
/// The reference's numbers, at its start.
pub(crate) const BASE_BYTES: usize = 40;
/// Where our slots are.
pub(crate) const SLOTS_AT: [u64; 2] = [512, 1024];
/// How long each of them is.
pub(crate) const SLOT_BYTES: usize = 168;
const MAGIC: u32 = 0x5346_4350;
const VERSION: u32 = 2;
const CLEAN: u32 = 1;
const HAS_INDEX: u32 = 2;

/// Five numbers and a header.
const INDEX_BYTES: usize = 80;

/// The reference's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Base {
    /// Store time of the last record that is on disk.
    pub(crate) physic_ms: i64,
    /// Store time of the last record whose entries are on disk.
    pub(crate) logics_ms: i64,
    /// Store time of the last record whose keys are on disk.
    pub(crate) index_ms: i64,
    /// Kept as found.
    pub(crate) master_flushed: i64,
    /// Confirm offset.
    pub(crate) confirm_phy: i64,
}

/// What we know beyond that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Known {
    /// The log was on disk up to here.
    pub(crate) flushed: u64,
    /// Entries of all records before this position were on disk.
    pub(crate) queues_durable: u64,
    /// Fingerprint of the queues at that position.
    pub(crate) fingerprint: u64,
    /// Written by a clean exit: nothing happened afterwards.
    pub(crate) clean: bool,
    /// How far the index was on disk; `None` if it must be built again.
    pub(crate) index: Option<IndexKnown>,
}

/// The open checkpoint file. One task writes it at a time.
pub(crate) struct Checkpoint {
    file: File,
    path: PathBuf,
    sequence: u64,
}

/// What was found in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Found {
    pub(crate) base: Base,
    pub(crate) known: Option<Known>,
}

impl Checkpoint {
    /// Reads the file without changing it; all zeros if it is missing or too short.
    pub(crate) async fn read(files: &Files, path: &Path) -> io::Result<Found> {
        match files.read(path).await {
            Ok(content) => Ok(decode(&content).1),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::default()),
            Err(error) => Err(error),
        }
    }

    /// Opens the file for writing, or makes it, durable with its name.
    pub(crate) async fn open(files: &Files, path: &Path) -> io::Result<Checkpoint> {
        let file = files.open(path, OpenOptions::CREATE).await?;
        if file.len()? < FILE_BYTES {
            file.allocate(FILE_BYTES).await?;
            file.sync_all().await?;
            files.sync_dir(path.parent().unwrap_or(Path::new("."))).await?;
        }
        let mut content = vec![0; FILE_BYTES as usize];
        file.read_exact_at(&mut content, 0)?;
        Ok(Checkpoint { file, path: path.to_owned(), sequence: decode(&content).0 })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes both parts, durable when this returns. Our slot goes first: if the power fails in between, the slot
    /// before it still fits the five numbers. If it fails, it may be called again: it writes the same slot then.
    ///
    /// # Errors
    /// What is on disk is what was there, in whole or in part; it is valid, or says nothing.
    pub(crate) async fn write(&mut self, base: Base, known: Known) -> io::Result<()> {
        let sequence = self.sequence + 1;
        let at = SLOTS_AT[(sequence % 2) as usize];
        self.file.write_all_at(&encode_slot(sequence, base, known), at)?;
        self.file.sync_data().await?;
        self.file.write_all_at(&encode_base(base), 0)?;
        self.file.sync_data().await?;
        self.sequence = sequence;
        Ok(())
    }
}

/// How far the log is on disk, and the store time that belongs to it.
#[derive(Debug)]
pub(crate) struct FlushedMark {
    /// Leaf lock.
    mark: Mutex<(u64, i64)>,
}

impl FlushedMark {
    pub(crate) fn new(flushed: u64, store_ms: i64) -> FlushedMark {
        FlushedMark { mark: Mutex::new((flushed, store_ms)) }
    }

    pub(crate) fn set(&self, flushed: u64, store_ms: i64) {
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner) = (flushed, store_ms);
    }

    pub(crate) fn get(&self) -> (u64, i64) {
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn encode_base(base: Base) -> [u8; BASE_BYTES] {
    let mut out = [0; BASE_BYTES];
    let numbers = [base.physic_ms, base.logics_ms, base.index_ms, base.master_flushed, base.confirm_phy];
    for (field, number) in out.chunks_exact_mut(8).zip(numbers) {
        field.copy_from_slice(&number.to_be_bytes());
    }
    out
}

fn encode_slot(sequence: u64, base: Base, known: Known) -> [u8; SLOT_BYTES] {
    let mut out = Vec::with_capacity(SLOT_BYTES);
    out.extend_from_slice(&MAGIC.to_be_bytes());
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&sequence.to_be_bytes());
    out.extend_from_slice(&known.flushed.to_be_bytes());
    out.extend_from_slice(&known.queues_durable.to_be_bytes());
    out.extend_from_slice(&known.fingerprint.to_be_bytes());
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    out.extend_from_slice(&(flag(known.clean, CLEAN) | flag(known.index.is_some(), HAS_INDEX)).to_be_bytes());
    out.extend_from_slice(&encode_base(base));
    out.extend_from_slice(&encode_index(known.index));
    out.extend_from_slice(&crc32(&out).to_be_bytes());
    out.try_into().expect("the fields of a slot fill it")
}

fn encode_index(index: Option<IndexKnown>) -> [u8; INDEX_BYTES] {
    let mut out = [0; INDEX_BYTES];
    let Some(IndexKnown { mark: IndexMark { phy, store_ms, file, header }, from, older }) = index else { return out };
    let (numbers, rest) = out.split_at_mut(40);
    for (field, number) in numbers.chunks_exact_mut(8).zip([phy, store_ms as u64, file, from, older]) {
        field.copy_from_slice(&number.to_be_bytes());
    }
    rest.copy_from_slice(&header.encode());
    out
}

fn decode_index(raw: &[u8; INDEX_BYTES]) -> IndexKnown {
    let (numbers, header) = raw.split_first_chunk::<40>().expect("40 of 80 bytes");
    let number = |index: usize| u64::from_be_bytes(numbers[index * 8..index * 8 + 8].try_into().expect("8 bytes"));
    let header = IndexHeader::decode(header.try_into().expect("40 bytes are left of 80"));
    let mark = IndexMark { phy: number(0), store_ms: number(1) as i64, file: number(2), header };
    IndexKnown { mark, from: number(3), older: number(4) }
}

fn decode_slot(raw: &[u8]) -> Option<(u64, [u8; BASE_BYTES], Known)> {
    let (content, crc) = raw.split_last_chunk::<4>()?;
    if u32::from_be_bytes(*crc) != crc32(content) {
        return None;
    }
    let number = |at: usize| u64::from_be_bytes(content[at..at + 8].try_into().expect("8 bytes"));
    let word = |at: usize| u32::from_be_bytes(content[at..at + 4].try_into().expect("4 bytes"));
    if word(0) != MAGIC || word(4) != VERSION {
        return None;
    }
    let known = Known {
        flushed: number(16),
        queues_durable: number(24),
        fingerprint: number(32),
        clean: word(40) & CLEAN != 0,
        index: (word(40) & HAS_INDEX != 0).then(|| decode_index(content[84..].try_into().expect("80 bytes"))),
    };
    Some((number(8), content[44..84].try_into().expect("40 bytes"), known))
}

/// What stands at the place of a slot.
pub(crate) enum Slot {
    /// Nothing yet.
    Empty,
    /// Neither nothing nor a slot.
    Damaged,
    /// A slot, perhaps of another version.
    Whole,
}

/// Looks at the place of a slot in the content of a whole file.
pub(crate) fn slot_at(content: &[u8], at: u64) -> Slot {
    let raw = &content[at as usize..at as usize + SLOT_BYTES];
    match raw.split_last_chunk::<4>() {
        _ if raw.iter().all(|byte| *byte == 0) => Slot::Empty,
        Some((content, crc)) if u32::from_be_bytes(*crc) == crc32(content) => Slot::Whole,
        _ => Slot::Damaged,
    }
}

/// The last sequence number, and what the file says.
pub(crate) fn decode(content: &[u8]) -> (u64, Found) {
    let Some(raw) = content.first_chunk::<BASE_BYTES>() else { return (0, Found::default()) };
    let number = |index: usize| i64::from_be_bytes(raw[index * 8..index * 8 + 8].try_into().expect("8 bytes"));
    let base = Base {
        physic_ms: number(0),
        logics_ms: number(1),
        index_ms: number(2),
        master_flushed: number(3),
        confirm_phy: number(4),
    };
    let slots: Vec<_> = SLOTS_AT
        .iter()
        .filter_map(|&at| content.get(at as usize..at as usize + SLOT_BYTES))
        .filter_map(decode_slot)
        .collect();
    let sequence = slots.iter().map(|&(sequence, ..)| sequence).max().unwrap_or(0);
    let known = slots
        .into_iter()
        .filter(|(_, copy, _)| copy == raw)
        .max_by_key(|&(sequence, ..)| sequence)
        .map(|(_, _, known)| known);
    (sequence, Found { base, known })
}

/// CRC-32 (IEEE).
fn crc32(bytes: &[u8]) -> u32 {
    message::crc32(bytes)
}

#[cfg(test)]
mod tests {
    use super::{BASE_BYTES, Base, Found, Known, SLOT_BYTES, SLOTS_AT, decode, encode_base, encode_slot};
    use crate::index::{IndexHeader, IndexKnown, IndexMark};

    const BASE: Base = Base { physic_ms: 5, logics_ms: 4, index_ms: 3, master_flushed: 2, confirm_phy: 1 };
    const INDEX: IndexKnown = IndexKnown {
        mark: IndexMark {
            phy: 700,
            store_ms: -3,
            file: 20_261_129_174_419_973,
            header: IndexHeader { begin_ms: 1, end_ms: 2, begin_phy: 3, end_phy: 4, used_slots: 5, count: 6 },
        },
        from: 100,
        older: u64::MAX,
    };
    const KNOWN: Known = Known { flushed: 900, queues_durable: 800, fingerprint: 77, clean: true, index: Some(INDEX) };

    fn content(base: Base, slots: [Option<(u64, Base, Known)>; 2]) -> Vec<u8> {
        let mut content = vec![0; 4096];
        content[..BASE_BYTES].copy_from_slice(&encode_base(base));
        for (at, slot) in SLOTS_AT.into_iter().zip(slots) {
            if let Some((sequence, base, known)) = slot {
                content[at as usize..at as usize + SLOT_BYTES].copy_from_slice(&encode_slot(sequence, base, known));
            }
        }
        content
    }

    #[test]
    fn the_latest_slot_that_fits_counts() {
        let older = Known { flushed: 100, index: None, ..KNOWN };
        let two = content(BASE, [Some((8, BASE, KNOWN)), Some((7, BASE, older))]);
        assert_eq!(decode(&two), (8, Found { base: BASE, known: Some(KNOWN) }));
        // The power failed after the slot and before the five numbers.
        let newer = Base { physic_ms: 6, ..BASE };
        let torn = content(BASE, [Some((8, newer, KNOWN)), Some((7, BASE, older))]);
        assert_eq!(decode(&torn), (8, Found { base: BASE, known: Some(older) }));
    }

    #[test]
    fn a_run_of_the_reference_or_damage_makes_slots_void() {
        let newer = Base { physic_ms: 6, ..BASE };
        assert_eq!(decode(&content(newer, [Some((8, BASE, KNOWN)), None])).1.known, None);
        let mut damaged = content(BASE, [Some((8, BASE, KNOWN)), None]);
        damaged[530] ^= 1;
        assert_eq!(decode(&damaged), (0, Found { base: BASE, known: None }));
    }

    #[test]
    fn short_files_are_zeros() {
        assert_eq!(decode(&[1; 39]), (0, Found::default()));
        assert_eq!(decode(&encode_base(BASE)), (0, Found { base: BASE, known: None }));
    }
}
