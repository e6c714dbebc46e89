//! The index file that takes entries.

use std::{io, sync::Arc};

use super::{
    IndexKey,
    file::{IndexEntry, IndexFile, IndexHeader},
    rebuild::PIECE_BYTES,
};

/// An index file with its slots in memory, and entries that are not in the file yet.
pub(super) struct IndexTail {
    pub(super) file: Arc<IndexFile>,
    /// With the entries that are not written yet.
    pub(super) header: IndexHeader,
    /// The latest entry of each slot.
    pub(super) slots: Vec<u32>,
    /// Entries up to the header's count that are not written yet.
    pending: Vec<u8>,
    /// Slots that they changed.
    changed: Vec<u32>,
}

impl IndexTail {
    /// For a file without entries that follows one with the header `previous`. Until the first entry it begins where that
    /// one ended.
    pub(super) fn new(file: Arc<IndexFile>, previous: Option<IndexHeader>) -> IndexTail {
        let header = previous.map_or(IndexHeader::EMPTY, |IndexHeader { end_ms, end_phy, .. }| IndexHeader {
            begin_ms: end_ms,
            end_ms,
            begin_phy: end_phy,
            end_phy,
            used_slots: 0,
            count: 1,
        });
        let slots = vec![0; file.shape.slots as usize];
        IndexTail { file, header, slots, pending: Vec::new(), changed: Vec::new() }
    }

    /// For a file that holds what its header says, with the slots that it has.
    pub(super) fn of_slots(file: Arc<IndexFile>, header: IndexHeader, slots: Vec<u32>) -> IndexTail {
        assert_eq!(slots.len(), file.shape.slots as usize, "the table has as many slots as the settings say");
        IndexTail { file, header, slots, pending: Vec::new(), changed: Vec::new() }
    }

    pub(super) fn is_full(&self) -> bool {
        self.header.count >= self.file.shape.entries
    }

    /// Adds an entry, in memory. There must be room.
    ///
    /// Source: `spec/store.md` 6.2.
    pub(super) fn insert(&mut self, key: &IndexKey) {
        assert!(!self.is_full(), "entry {} has no place in the index file", self.header.count);
        let header = &mut self.header;
        let slot = self.file.shape.slot_of(key.hash);
        let latest = &mut self.slots[slot as usize];
        // The first entry of a file is measured from the end of the file before, as the reference does it.
        let age_s = if header.begin_ms <= 0 { 0 } else { key.store_ms.saturating_sub(header.begin_ms) / 1000 };
        let age_s = age_s.clamp(0, i64::from(i32::MAX)) as u32;
        let entry = IndexEntry { hash: key.hash, phy: key.phy, age_s, before: *latest };
        self.pending.extend_from_slice(&entry.encode());
        self.changed.push(slot);
        if header.count == 1 {
            (header.begin_ms, header.begin_phy) = (key.store_ms, key.phy);
        }
        header.used_slots += u32::from(*latest == 0);
        *latest = header.count;
        header.count += 1;
        (header.end_ms, header.end_phy) = (key.store_ms, key.phy);
    }

    /// Writes what is pending into the file, and shows it to readers.
    ///
    /// # Errors
    /// The machine refuses. Then another call writes all of it again.
    pub(super) fn write(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        // Entries before the slots that lead to them, for those who read meanwhile.
        self.file.write(&self.pending, self.pending_at())?;
        self.changed.sort_unstable();
        self.changed.dedup();
        for run in self.changed.chunk_by(|slot, next| slot + 1 == *next) {
            let slots = run.iter().flat_map(|&slot| self.slots[slot as usize].to_be_bytes());
            self.file.write(&slots.collect::<Vec<u8>>(), self.file.shape.slot_at(run[0]))?;
        }
        self.write_header()?;
        self.pending.clear();
        self.changed.clear();
        Ok(())
    }

    // ---- writing in parts, where nobody reads ----

    pub(super) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Writes the pending entries, and forgets which slots they changed.
    pub(super) fn write_entries(&mut self) -> io::Result<()> {
        self.file.write(&self.pending, self.pending_at())?;
        self.pending.clear();
        self.changed.clear();
        Ok(())
    }

    pub(super) fn write_all_slots(&self) -> io::Result<()> {
        let mut at = self.file.shape.slot_at(0);
        for slots in self.slots.chunks(PIECE_BYTES / 4) {
            let bytes: Vec<u8> = slots.iter().flat_map(|slot| slot.to_be_bytes()).collect();
            self.file.write(&bytes, at)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }

    pub(super) fn write_header(&self) -> io::Result<()> {
        self.file.write(&self.header.encode(), 0)?;
        self.file.publish(self.header);
        Ok(())
    }

    /// Where the first pending entry belongs.
    fn pending_at(&self) -> u64 {
        let count = (self.pending.len() as u64 / IndexEntry::SIZE_BYTES) as u32;
        self.file.shape.entry_at(self.header.count - count)
    }
}
