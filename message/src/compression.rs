//! Compression of message bodies.

use std::io::{self, Read, Write};

use bytes::Bytes;

use crate::{Compression, SysFlag};

/// Level of the reference's zlib (`compressLevel=5`).
const ZLIB_LEVEL: u32 = 5;
/// Level of the reference's Zstandard.
const ZSTD_LEVEL: i32 = 3;

/// Why a body cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CompressionError {
    /// The flag names a type that nobody knows.
    #[error("compression type {0} is unknown")]
    UnknownType(i32),
    /// The body is not what its flag says.
    #[error("the body is not valid {kind:?} data")]
    Damaged {
        /// What the flag says.
        kind: Compression,
        /// What the decoder says.
        source: io::Error,
    },
    /// The body would be larger than the reader accepts.
    #[error("the uncompressed body has more than {limit_bytes} bytes")]
    TooLarge {
        /// The most that the reader accepts.
        limit_bytes: usize,
    },
}

/// Compresses a body.
///
/// # Errors
/// Whatever the encoder reports; memory is the only reason known.
pub fn compress(body: &[u8], kind: Compression) -> io::Result<Vec<u8>> {
    match kind {
        Compression::Zlib => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(ZLIB_LEVEL));
            encoder.write_all(body)?;
            encoder.finish()
        }
        Compression::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(body)?;
            encoder.finish().map_err(io::Error::other)
        }
        Compression::Zstd => zstd::stream::encode_all(body, ZSTD_LEVEL),
    }
}

/// The body as its sender wrote it. A body that is not compressed is handed back as it is.
///
/// # Errors
/// An unknown type, damaged data, or more than `limit_bytes` of content.
pub fn decompress(body: &Bytes, flag: SysFlag, limit_bytes: usize) -> Result<Bytes, CompressionError> {
    let Some(kind) = flag.compression().map_err(CompressionError::UnknownType)? else { return Ok(body.clone()) };
    let read = match kind {
        Compression::Zlib => read_all(flate2::read::ZlibDecoder::new(&body[..]), limit_bytes),
        Compression::Lz4 => read_all(lz4_flex::frame::FrameDecoder::new(&body[..]), limit_bytes),
        Compression::Zstd => zstd::stream::Decoder::new(&body[..]).and_then(|decoder| read_all(decoder, limit_bytes)),
    };
    let plain = read.map_err(|source| CompressionError::Damaged { kind, source })?;
    if plain.len() > limit_bytes {
        return Err(CompressionError::TooLarge { limit_bytes });
    }
    Ok(Bytes::from(plain))
}

/// Reads one byte more than the limit at most, so that the caller sees that it was passed.
fn read_all(decoder: impl Read, limit_bytes: usize) -> io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    decoder.take(limit_bytes as u64 + 1).read_to_end(&mut plain)?;
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::{CompressionError, compress, decompress};
    use crate::{Compression, SysFlag};

    const KINDS: [Compression; 3] = [Compression::Lz4, Compression::Zstd, Compression::Zlib];

    #[test]
    fn a_body_larger_than_the_limit_is_refused() {
        for kind in KINDS {
            let packed = Bytes::from(compress(&[7; 100_000], kind).unwrap());
            let flag = SysFlag::default().with_compression(Some(kind));
            assert!(matches!(decompress(&packed, flag, 99_999), Err(CompressionError::TooLarge { .. })));
            assert_eq!(decompress(&packed, flag, 100_000).unwrap().len(), 100_000);
        }
    }

    #[test]
    fn zlib_streams_have_their_header() {
        assert_eq!(compress(b"x", Compression::Zlib).unwrap()[0], 0x78);
    }

    proptest! {
        #[test]
        fn bodies_round_trip(body: Vec<u8>) {
            for kind in KINDS {
                let packed = Bytes::from(compress(&body, kind).unwrap());
                let flag = SysFlag::default().with_compression(Some(kind));
                prop_assert_eq!(&decompress(&packed, flag, body.len()).unwrap()[..], &body[..]);
            }
        }

        #[test]
        fn garbage_is_an_error_and_never_a_panic(body: Vec<u8>) {
            for kind in KINDS {
                let flag = SysFlag::default().with_compression(Some(kind));
                drop(decompress(&Bytes::from(body.clone()), flag, 1 << 20));
            }
        }
    }
}
