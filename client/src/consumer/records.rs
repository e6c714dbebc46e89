//! Reads the messages of a pull answer, as far as they can be read.

use std::sync::Arc;

use bytes::Bytes;
use message::{CompressionError, QueueOffset, RecordError, StoredMessage};

use super::{Filter, MessageView};
use crate::queue::MessageQueue;

/// What an answer brought.
pub(crate) struct Records {
    /// Those that the subscription asks for.
    pub(crate) messages: Vec<Arc<MessageView>>,
    /// Everything below was read, wanted or not; `None` if nothing was.
    pub(crate) read_to: Option<QueueOffset>,
    /// What ended the reading before the end of the answer.
    pub(crate) unreadable: Option<Unreadable>,
}

/// A message that cannot be read.
pub(crate) struct Unreadable {
    /// Its position, if its record still tells.
    pub(crate) offset: Option<QueueOffset>,
    pub(crate) why: Why,
}

/// Why a message cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Why {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("the body has the CRC {found:#010x}, it was stored with {stored:#010x}")]
    Crc { stored: u32, found: u32 },
    #[error(transparent)]
    Body(#[from] CompressionError),
}

impl Records {
    /// Reads up to the first message that cannot be read. The broker compares hashes of tags only, so not everything that
    /// it sends is wanted.
    pub(crate) fn read(mut bytes: Bytes, queue: &MessageQueue, filter: &Filter) -> Records {
        let mut records = Records { messages: Vec::new(), read_to: None, unreadable: None };
        while !bytes.is_empty() {
            let stored = match StoredMessage::decode(&mut bytes) {
                Ok(stored) => stored,
                Err(error) => {
                    records.unreadable = Some(Unreadable { offset: None, why: error.into() });
                    break;
                }
            };
            let offset = stored.queue_offset;
            match wanted(stored, queue, filter) {
                Ok(message) => {
                    records.messages.extend(message);
                    records.read_to = Some(QueueOffset(offset.0 + 1));
                }
                Err(why) => {
                    records.unreadable = Some(Unreadable { offset: Some(offset), why });
                    break;
                }
            }
        }
        records
    }
}

fn wanted(stored: StoredMessage, queue: &MessageQueue, filter: &Filter) -> Result<Option<Arc<MessageView>>, Why> {
    let found = message::body_crc(&stored.message.body);
    if found != stored.body_crc {
        return Err(Why::Crc { stored: stored.body_crc, found });
    }
    if !filter.wants(stored.message.tags()) && !host::mutant!("tags-by-hash-only") {
        return Ok(None);
    }
    Ok(Some(Arc::new(MessageView::pulled(stored, queue)?)))
}
