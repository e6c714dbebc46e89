//! The bytes between a master and its slave. Source: `spec/replication.md` 2.2.
//!
//! The slave says again and again which byte it wants next, in eight bytes. The master sends pieces of its log, each
//! behind a header of twelve; one without a body is a heartbeat.

use message::PhyOffset;

/// What a slave reports: a position.
pub(super) const REPORT_BYTES: usize = 8;
/// What stands before a piece of the log.
pub(super) const HEADER_BYTES: usize = 12;
/// The largest body. The reference reads with a buffer of 4 MiB, in which a whole frame must fit.
pub(super) const BODY_MAX_BYTES: u32 = (4 << 20) - HEADER_BYTES as u32;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Where the first byte of the body lies in the log; without a body, where the next one will.
    pub(super) at: PhyOffset,
    /// Bytes that follow; 0 in a heartbeat.
    pub(super) body_bytes: u32,
}

/// What nobody sends who speaks this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    /// A position is below 0, or its end beyond the largest.
    #[error("position {0} with {1} bytes cannot be")]
    Position(i64, i32),
    /// A body that the reference could not read either.
    #[error("a body of {0} bytes, at most {BODY_MAX_BYTES} are allowed")]
    Body(i32),
}

impl FrameHeader {
    pub(super) fn heartbeat(at: PhyOffset) -> FrameHeader {
        FrameHeader { at, body_bytes: 0 }
    }

    pub(super) fn encode(self) -> [u8; HEADER_BYTES] {
        assert!(self.body_bytes <= BODY_MAX_BYTES, "{self:?} is too large for a frame");
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(&self.at.0.to_be_bytes());
        out[8..].copy_from_slice(&self.body_bytes.to_be_bytes());
        out
    }

    pub(super) fn decode(raw: [u8; HEADER_BYTES]) -> Result<FrameHeader, WireError> {
        let [a, b, c, d, e, f, g, h, size @ ..] = raw;
        let (at, size) = (i64::from_be_bytes([a, b, c, d, e, f, g, h]), i32::from_be_bytes(size));
        let body_bytes =
            u32::try_from(size).ok().filter(|&size| size <= BODY_MAX_BYTES).ok_or(WireError::Body(size))?;
        Ok(FrameHeader { at: position(at, size)?, body_bytes })
    }
}

fn position(at: i64, size: i32) -> Result<PhyOffset, WireError> {
    let start = u64::try_from(at).ok().filter(|_| at.checked_add(i64::from(size)).is_some());
    start.map(PhyOffset).ok_or(WireError::Position(at, size))
}

pub(super) fn encode_report(at: PhyOffset) -> [u8; REPORT_BYTES] {
    at.0.to_be_bytes()
}

pub(super) fn decode_report(raw: [u8; REPORT_BYTES]) -> Result<PhyOffset, WireError> {
    position(i64::from_be_bytes(raw), 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn headers_and_reports_round_trip(at in 0..=i64::MAX as u64 - (4 << 20), body_bytes in 0..=BODY_MAX_BYTES) {
            let header = FrameHeader { at: PhyOffset(at), body_bytes };
            prop_assert_eq!(FrameHeader::decode(header.encode()), Ok(header));
            prop_assert_eq!(decode_report(encode_report(header.at)), Ok(header.at));
        }

        #[test]
        fn any_bytes_are_a_position_or_an_error(raw: [u8; HEADER_BYTES]) {
            if let Ok(header) = FrameHeader::decode(raw) {
                prop_assert!(header.body_bytes <= BODY_MAX_BYTES);
                prop_assert!(i64::try_from(header.at.0 + u64::from(header.body_bytes)).is_ok());
                prop_assert_eq!(header.encode(), raw);
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let decode = |at: i64, size: i32| {
            let mut raw = [0; HEADER_BYTES];
            raw[..8].copy_from_slice(&at.to_be_bytes());
            raw[8..].copy_from_slice(&size.to_be_bytes());
            FrameHeader::decode(raw)
        };
        assert_eq!(decode(-1, 0), Err(WireError::Position(-1, 0)));
        assert_eq!(decode(i64::MAX, 1), Err(WireError::Position(i64::MAX, 1)));
        assert_eq!(decode(0, -1), Err(WireError::Body(-1)));
        assert_eq!(decode(0, 4 << 20), Err(WireError::Body(4 << 20)));
        assert_eq!(decode_report([0xFF; 8]), Err(WireError::Position(-1, 0)));
    }
}
