//! Where a frame starts and ends.
//!
//! A frame is a length, a word that holds the form and the length of the header, the header, and the body. Source:
//! `spec/protocol.md` 1.1 and 1.10.

use bytes::{Buf, Bytes, BytesMut};

use crate::command::SerializeType;

/// The most bytes that a frame may have, its length field included.
pub const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Of the length field.
const LENGTH_BYTES: usize = 4;
/// Of the length field and the word behind it.
const PREFIX_BYTES: usize = 8;

/// Bytes that are not a frame, or a frame that nobody would take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The length field of an incoming frame cannot be.
    #[error("a frame of {length} bytes, outside 4..={}", FRAME_BYTES_MAX - LENGTH_BYTES)]
    Length {
        /// What it says.
        length: i32,
    },
    /// The header would reach beyond the end of its frame.
    #[error("a header of {header} bytes in a frame of {length}")]
    HeaderLength {
        /// The length of the header.
        header: usize,
        /// The length of the frame behind its length field.
        length: usize,
    },
    /// The header has a form that does not exist.
    #[error("unknown header type {0}")]
    SerializeType(u8),
    /// The bytes of the header are not what its form promises.
    #[error("malformed header at byte {at}: {problem}")]
    Header {
        /// Counted from the start of the header.
        at: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// An outgoing frame is longer than peers accept.
    #[error("a frame of {bytes} bytes, more than {FRAME_BYTES_MAX}")]
    TooLong {
        /// Its length, the length field included.
        bytes: usize,
    },
}

/// A complete frame whose header has not been read.
pub(crate) struct RawFrame {
    pub serialize_type: SerializeType,
    header_bytes: usize,
    /// The whole frame.
    bytes: Bytes,
}

impl RawFrame {
    pub fn header(&self) -> &[u8] {
        &self.bytes[PREFIX_BYTES..PREFIX_BYTES + self.header_bytes]
    }

    /// The body, without a copy.
    pub fn body(self) -> Bytes {
        let start = PREFIX_BYTES + self.header_bytes;
        if start == self.bytes.len() { Bytes::new() } else { self.bytes.slice(start..) }
    }
}

/// Cuts the next frame off `input`; `None` if it is not complete. The lengths are checked as soon as they are there.
pub(crate) fn split(input: &mut BytesMut) -> Result<Option<RawFrame>, FrameError> {
    let Some(length) = peek(input, 0) else { return Ok(None) };
    let announced = i32::from_be_bytes(length);
    let length = usize::try_from(announced)
        .ok()
        .filter(|length| (LENGTH_BYTES..=FRAME_BYTES_MAX - LENGTH_BYTES).contains(length))
        .ok_or(FrameError::Length { length: announced })?;
    let Some([form, word @ ..]) = peek(input, LENGTH_BYTES) else {
        input.reserve(PREFIX_BYTES);
        return Ok(None);
    };
    let serialize_type = match form {
        0 => SerializeType::Json,
        1 => SerializeType::Binary,
        other => return Err(FrameError::SerializeType(other)),
    };
    let header_bytes = usize::from(word[0]) << 16 | usize::from(word[1]) << 8 | usize::from(word[2]);
    if header_bytes > length - LENGTH_BYTES {
        return Err(FrameError::HeaderLength { header: header_bytes, length });
    }
    let whole = LENGTH_BYTES + length;
    if input.len() < whole {
        return Ok(None);
    }
    Ok(Some(RawFrame { serialize_type, header_bytes, bytes: input.split_to(whole).freeze() }))
}

fn peek(input: &BytesMut, at: usize) -> Option<[u8; 4]> {
    input.chunk().get(at..at + 4)?.try_into().ok()
}

/// Leaves room for the lengths of a frame that begins here; gives back where that is.
pub(crate) fn begin(output: &mut BytesMut) -> usize {
    let start = output.len();
    output.extend_from_slice(&[0; PREFIX_BYTES]);
    start
}

/// Fills in the lengths of the frame that began at `start`, whose header is complete and whose body follows.
///
/// # Errors
/// [`FrameError::TooLong`]; the frame has been taken out of `output` then.
pub(crate) fn end(
    output: &mut BytesMut,
    start: usize,
    serialize_type: SerializeType,
    body_bytes: usize,
) -> Result<(), FrameError> {
    let header_bytes = output.len() - start - PREFIX_BYTES;
    let bytes = PREFIX_BYTES + header_bytes + body_bytes;
    if bytes > FRAME_BYTES_MAX {
        output.truncate(start);
        return Err(FrameError::TooLong { bytes });
    }
    let length = u32::try_from(bytes - LENGTH_BYTES).expect("a frame has at most 16 MiB");
    let form = match serialize_type {
        SerializeType::Json => 0,
        SerializeType::Binary => 1 << 24,
    };
    let header_bytes = u32::try_from(header_bytes).expect("a header is shorter than its frame");
    output[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    output[start + LENGTH_BYTES..start + PREFIX_BYTES].copy_from_slice(&(form | header_bytes).to_be_bytes());
    Ok(())
}
