//! One entry of a consume queue.

use message::PhyOffset;

/// Size that marks an entry which stands for no message.
const BLANK_SIZE: u32 = i32::MAX as u32;

/// Where a message of a queue is. 20 bytes: position 8, size 4, tags code 8, big-endian.
///
/// Source: `spec/store.md` 5.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CqEntry {
    pub(crate) phy: PhyOffset,
    pub(crate) size_bytes: u32,
    pub(crate) tags_code: i64,
}

impl CqEntry {
    pub(crate) const SIZE_BYTES: u64 = 20;

    /// Stands for no message: before the first one of a queue that does not start at a file border, or for a message
    /// that was lost. `phy` keeps positions in order.
    pub(crate) fn blank(phy: PhyOffset) -> CqEntry {
        CqEntry { phy, size_bytes: BLANK_SIZE, tags_code: 0 }
    }

    pub(crate) fn is_blank(&self) -> bool {
        self.size_bytes == BLANK_SIZE
    }

    /// Where the record ends.
    pub(crate) fn end(&self) -> u64 {
        self.phy.0 + u64::from(self.size_bytes)
    }

    pub(crate) fn encode(self) -> [u8; CqEntry::SIZE_BYTES as usize] {
        assert!(self.size_bytes > 0, "an entry must point at a record: {self:?}");
        let mut out = [0; CqEntry::SIZE_BYTES as usize];
        out[..8].copy_from_slice(&self.phy.0.to_be_bytes());
        out[8..12].copy_from_slice(&self.size_bytes.to_be_bytes());
        out[12..].copy_from_slice(&self.tags_code.to_be_bytes());
        out
    }

    /// `None` for a slot that was never written or holds nonsense: a size below 1 or a position below 0.
    pub(crate) fn decode(raw: &[u8; CqEntry::SIZE_BYTES as usize]) -> Option<CqEntry> {
        let (phy, rest) = raw.split_first_chunk::<8>()?;
        let (size, tags_code) = rest.split_first_chunk::<4>()?;
        let size_bytes = u32::try_from(i32::from_be_bytes(*size)).ok().filter(|&size| size > 0)?;
        let phy = u64::try_from(i64::from_be_bytes(*phy)).ok()?;
        Some(CqEntry {
            phy: PhyOffset(phy),
            size_bytes,
            tags_code: i64::from_be_bytes(tags_code.try_into().expect("8 bytes are left of 20")),
        })
    }
}

#[cfg(test)]
mod tests {
    use message::PhyOffset;
    use proptest::prelude::*;

    use super::CqEntry;

    #[test]
    fn an_unwritten_slot_is_no_entry() {
        assert_eq!(CqEntry::decode(&[0; 20]), None);
        assert_eq!(CqEntry::decode(&[0xFF; 20]), None);
    }

    proptest! {
        #[test]
        fn entry_round_trips(phy in 0..=i64::MAX as u64, size_bytes in 1..=i32::MAX as u32, tags_code: i64) {
            let entry = CqEntry { phy: PhyOffset(phy), size_bytes, tags_code };
            prop_assert_eq!(CqEntry::decode(&entry.encode()), Some(entry));
        }
    }
}
