//! The flag word that describes a stored message to the system itself.

use std::fmt;

/// The `sysFlag` of a message. Unknown bits are kept as they are.
///
/// Source: `spec/protocol.md` 15.5, reference `MessageSysFlag`.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct SysFlag(pub i32);

/// Part that a message plays in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transaction {
    /// None: an ordinary message.
    #[default]
    None,
    /// A half message.
    Prepared,
    /// The real message of a committed transaction.
    Commit,
    /// Mark of a transaction that was rolled back.
    Rollback,
}

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// An LZ4 frame.
    Lz4,
    /// A Zstandard frame.
    Zstd,
    /// A zlib stream with header.
    Zlib,
}

impl SysFlag {
    /// The body is compressed.
    pub const COMPRESSED: i32 = 0x1;
    /// `TAGS` holds several tags.
    pub const MULTI_TAGS: i32 = 0x2;
    /// Mask of the transaction type.
    pub const TRANSACTION_MASK: i32 = 0xC;
    /// A half message.
    pub const TRANSACTION_PREPARED: i32 = 0x4;
    /// The real message of a committed transaction.
    pub const TRANSACTION_COMMIT: i32 = 0x8;
    /// Rolled back.
    pub const TRANSACTION_ROLLBACK: i32 = 0xC;
    /// The address of the producer has 16 bytes.
    pub const BORN_HOST_V6: i32 = 0x10;
    /// The address of the broker has 16 bytes.
    pub const STORE_HOST_V6: i32 = 0x20;
    /// An inner batch that its reader must expand.
    pub const NEED_UNWRAP: i32 = 0x40;
    /// An inner batch.
    pub const INNER_BATCH: i32 = 0x80;
    /// Mask of the compression type.
    pub const COMPRESSION_MASK: i32 = 0x700;

    /// Whether all bits of `mask` are set.
    #[must_use]
    pub fn has(self, mask: i32) -> bool {
        self.0 & mask == mask
    }

    /// With the bits of `mask` set or cleared.
    #[must_use]
    pub fn with(self, mask: i32, set: bool) -> SysFlag {
        SysFlag(if set { self.0 | mask } else { self.0 & !mask })
    }

    /// The transaction type.
    #[must_use]
    pub fn transaction(self) -> Transaction {
        match self.0 & SysFlag::TRANSACTION_MASK {
            0 => Transaction::None,
            SysFlag::TRANSACTION_PREPARED => Transaction::Prepared,
            SysFlag::TRANSACTION_COMMIT => Transaction::Commit,
            _ => Transaction::Rollback,
        }
    }

    /// With another transaction type.
    #[must_use]
    pub fn with_transaction(self, transaction: Transaction) -> SysFlag {
        let bits = match transaction {
            Transaction::None => 0,
            Transaction::Prepared => SysFlag::TRANSACTION_PREPARED,
            Transaction::Commit => SysFlag::TRANSACTION_COMMIT,
            Transaction::Rollback => SysFlag::TRANSACTION_ROLLBACK,
        };
        SysFlag(self.0 & !SysFlag::TRANSACTION_MASK | bits)
    }

    /// How the body is compressed; `None` if it is not.
    ///
    /// # Errors
    /// The type number, if nobody knows it.
    pub fn compression(self) -> Result<Option<Compression>, i32> {
        if !self.has(SysFlag::COMPRESSED) {
            return Ok(None);
        }
        match (self.0 & SysFlag::COMPRESSION_MASK) >> 8 {
            0 | 3 => Ok(Some(Compression::Zlib)), // Old clients leave the type out and mean zlib.
            1 => Ok(Some(Compression::Lz4)),
            2 => Ok(Some(Compression::Zstd)),
            unknown => Err(unknown),
        }
    }

    /// With the bits that say how the body is compressed.
    #[must_use]
    pub fn with_compression(self, compression: Option<Compression>) -> SysFlag {
        let bits = match compression {
            None => 0,
            Some(Compression::Lz4) => SysFlag::COMPRESSED | 0x100,
            Some(Compression::Zstd) => SysFlag::COMPRESSED | 0x200,
            Some(Compression::Zlib) => SysFlag::COMPRESSED | 0x300,
        };
        SysFlag(self.0 & !(SysFlag::COMPRESSED | SysFlag::COMPRESSION_MASK) | bits)
    }
}

impl fmt::Debug for SysFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SysFlag({:#x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Compression, SysFlag, Transaction};

    #[test]
    fn compression_types_read_back_and_old_clients_mean_zlib() {
        for kind in [None, Some(Compression::Lz4), Some(Compression::Zstd), Some(Compression::Zlib)] {
            assert_eq!(SysFlag(0x33).with_compression(kind).compression(), Ok(kind));
        }
        assert_eq!(SysFlag(1).compression(), Ok(Some(Compression::Zlib)));
        assert_eq!(SysFlag(0x501).compression(), Err(5));
    }

    #[test]
    fn transaction_types_replace_each_other() {
        let half = SysFlag(0x11).with_transaction(Transaction::Rollback).with_transaction(Transaction::Prepared);
        assert_eq!(half, SysFlag(0x15));
        assert_eq!(half.transaction(), Transaction::Prepared);
    }
}
