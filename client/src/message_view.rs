//! A message as a consumer receives it.

use bytes::Bytes;
use message::{CompressionError, Properties, QueueOffset, StoredMessage, property};

use crate::queue::MessageQueue;

/// The most bytes that a body may have after decompression; far above what any broker accepts.
const BODY_LIMIT_BYTES: usize = 64 << 20;

/// A message that was pulled.
#[derive(Debug, Clone)]
pub struct MessageView {
    stored: StoredMessage,
    queue: MessageQueue,
    body: Bytes,
    /// Failures at this consumer that no broker has counted.
    retries_here: u32,
}

impl MessageView {
    /// A stored message that was pulled from `queue`.
    pub(crate) fn pulled(stored: StoredMessage, queue: &MessageQueue) -> Result<MessageView, CompressionError> {
        let body = stored.uncompressed_body(BODY_LIMIT_BYTES)?;
        Ok(MessageView { stored, queue: queue.clone(), body, retries_here: 0 })
    }

    /// The same message for one more try at this consumer.
    pub(crate) fn retried_here(&self) -> MessageView {
        MessageView { retries_here: self.retries_here + 1, ..self.clone() }
    }

    /// The topic that it was sent to; for a retried message that is not the topic of its queue.
    #[must_use]
    pub fn topic(&self) -> &str {
        self.stored.message.properties.get(property::RETRY_TOPIC).unwrap_or(&self.stored.message.topic)
    }

    /// The queue that it was pulled from.
    #[must_use]
    pub fn queue(&self) -> &MessageQueue {
        &self.queue
    }

    /// Its position in that queue.
    #[must_use]
    pub fn queue_offset(&self) -> QueueOffset {
        self.stored.queue_offset
    }

    /// The id that its producer gave it; the same on every copy. Without one, the id of the place where it is stored.
    #[must_use]
    pub fn unique_id(&self) -> String {
        self.stored.message_id()
    }

    /// Its tag.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.stored.message.tags()
    }

    /// Its keys, separated by blanks.
    #[must_use]
    pub fn keys(&self) -> Option<&str> {
        self.stored.message.keys()
    }

    /// All properties.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.stored.message.properties
    }

    /// One property.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&str> {
        self.stored.message.properties.get(name)
    }

    /// Its content as it was sent.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// How often the group failed with it before.
    #[must_use]
    pub fn reconsume_times(&self) -> u32 {
        u32::try_from(self.stored.reconsume_times).unwrap_or(0).saturating_add(self.retries_here)
    }

    /// When its producer made it, in wall-clock milliseconds.
    #[must_use]
    pub fn born_ms(&self) -> i64 {
        self.stored.born_ms
    }

    /// When its broker stored it, in wall-clock milliseconds.
    #[must_use]
    pub fn store_ms(&self) -> i64 {
        self.stored.store_ms
    }

    /// Everything that the broker stored, with the body perhaps compressed.
    #[must_use]
    pub fn stored(&self) -> &StoredMessage {
        &self.stored
    }

    /// Bytes that count against the cache limits.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.body.len() as u64
    }
}
