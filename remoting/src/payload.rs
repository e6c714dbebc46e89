//! The body of a frame: one or more pieces of bytes that go out one behind the other, uncopied.

use bytes::{Bytes, BytesMut};

/// The body of a frame, in pieces.
///
/// A pull answers with many records that lie in the mapped log: they travel as pieces and are joined by the socket.
/// What is received always has one piece.
#[derive(Debug, Clone, Default)]
pub struct Payload(Pieces);

#[derive(Debug, Clone)]
enum Pieces {
    One(Bytes),
    Many(Vec<Bytes>),
}

impl Default for Pieces {
    fn default() -> Pieces {
        Pieces::One(Bytes::new())
    }
}

impl Payload {
    /// No body.
    pub const EMPTY: Payload = Payload(Pieces::One(Bytes::new()));

    /// The number of bytes of all pieces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces().iter().map(Bytes::len).sum()
    }

    /// Whether there are no bytes; the same as no body.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces().iter().all(Bytes::is_empty)
    }

    /// The pieces in order.
    #[must_use]
    pub fn pieces(&self) -> &[Bytes] {
        match &self.0 {
            Pieces::One(piece) => std::slice::from_ref(piece),
            Pieces::Many(pieces) => pieces,
        }
    }

    /// All bytes in one piece. Copies if there are several.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        match self.0 {
            Pieces::One(piece) => piece,
            Pieces::Many(pieces) => {
                let mut all = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
                pieces.iter().for_each(|piece| all.extend_from_slice(piece));
                all.freeze()
            }
        }
    }
}

/// Equal if the bytes are, however they are cut.
impl PartialEq for Payload {
    fn eq(&self, other: &Payload) -> bool {
        self.len() == other.len() && self.pieces().iter().flatten().eq(other.pieces().iter().flatten())
    }
}

impl Eq for Payload {}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Payload {
        Payload(Pieces::One(bytes))
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Payload {
        Payload::from(Bytes::from(bytes))
    }
}

impl From<String> for Payload {
    fn from(text: String) -> Payload {
        Payload::from(Bytes::from(text))
    }
}

impl From<Vec<Bytes>> for Payload {
    fn from(mut pieces: Vec<Bytes>) -> Payload {
        if pieces.len() == 1 { Payload::from(pieces.swap_remove(0)) } else { Payload(Pieces::Many(pieces)) }
    }
}
