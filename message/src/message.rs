//! A message as applications see it: before it is sent, and as it is received.

use std::{io, net::SocketAddr};

use bytes::Bytes;

use crate::{
    Compression, CompressionError, Draft, InvalidProperty, OffsetMessageId, PhyOffset, Properties, QueueOffset,
    RecordError, RecordView, SysFlag, compress, decompress, property,
};

/// What an application sends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// Where it goes.
    pub topic: String,
    /// A number for the application's own use.
    pub flag: i32,
    /// Its properties, tags and keys among them.
    pub properties: Properties,
    /// Its content.
    pub body: Bytes,
}

impl Message {
    /// A message without properties.
    #[must_use]
    pub fn new(topic: impl Into<String>, body: impl Into<Bytes>) -> Message {
        Message { topic: topic.into(), flag: 0, properties: Properties::new(), body: body.into() }
    }

    /// The same with a tag.
    ///
    /// # Errors
    /// An empty tag, or one that holds 0x02.
    pub fn with_tags(mut self, tags: &str) -> Result<Message, InvalidProperty> {
        self.properties.set(property::TAGS, tags)?;
        Ok(self)
    }

    /// The same with keys, separated by blanks.
    ///
    /// # Errors
    /// Empty keys, or keys that hold 0x02.
    pub fn with_keys(mut self, keys: &str) -> Result<Message, InvalidProperty> {
        self.properties.set(property::KEYS, keys)?;
        Ok(self)
    }

    /// Its tag.
    #[must_use]
    pub fn tags(&self) -> Option<&str> {
        self.properties.get(property::TAGS)
    }

    /// Its keys, as they stand in the property.
    #[must_use]
    pub fn keys(&self) -> Option<&str> {
        self.properties.get(property::KEYS)
    }

    /// The id that its producer gave it.
    #[must_use]
    pub fn unique_id(&self) -> Option<&str> {
        self.properties.get(property::UNIQUE_ID)
    }

    /// Its delay level; `None` if it is not delayed or the property is no number above 0.
    #[must_use]
    pub fn delay_level(&self) -> Option<u32> {
        self.properties.get(property::DELAY_LEVEL).and_then(|level| level.parse().ok()).filter(|&level| level > 0)
    }

    /// Whether its sender waits until it is flushed and replicated. True unless it says `false`.
    #[must_use]
    pub fn waits_for_store(&self) -> bool {
        self.properties.get(property::WAIT_STORE).is_none_or(|wait| !wait.eq_ignore_ascii_case("false"))
    }

    /// The body compressed, and the flag that says so.
    ///
    /// # Errors
    /// Whatever the encoder reports.
    pub fn compressed_body(&self, kind: Compression, flag: SysFlag) -> io::Result<(Bytes, SysFlag)> {
        Ok((Bytes::from(compress(&self.body, kind)?), flag.with_compression(Some(kind))))
    }
}

/// A message as a broker has stored it; `MessageExt` of the reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Topic, flag, properties, and the body as stored (perhaps compressed).
    pub message: Message,
    /// Its queue.
    pub queue_id: u32,
    /// Its position in the queue.
    pub queue_offset: QueueOffset,
    /// Where its record starts.
    pub phy: PhyOffset,
    /// Size of its record.
    pub size_bytes: u32,
    /// CRC of the stored body, as written.
    pub body_crc: u32,
    /// The system's flag.
    pub sys_flag: SysFlag,
    /// When its producer made it, wall-clock milliseconds.
    pub born_ms: i64,
    /// Where its producer was.
    pub born_host: SocketAddr,
    /// When it was stored, wall-clock milliseconds.
    pub store_ms: i64,
    /// Where it was stored first.
    pub store_host: SocketAddr,
    /// How often a consumer failed with it.
    pub reconsume_times: i32,
    /// The half message that it completes; 0 otherwise.
    pub prepared_phy: PhyOffset,
}

impl StoredMessage {
    /// Takes one record off the front of `records`. The body borrows from it, nothing is decompressed, no CRC checked.
    ///
    /// # Errors
    /// Bytes that are no record; `records` is unchanged then.
    pub fn decode(records: &mut Bytes) -> Result<StoredMessage, RecordError> {
        let view = RecordView::parse(records)?;
        let body = records.slice_ref(view.body);
        let decoded = StoredMessage::from_view(&view, body);
        let size = view.size_bytes as usize;
        let _ = records.split_to(size);
        Ok(decoded)
    }

    /// All records of the body of a pull answer.
    ///
    /// # Errors
    /// The first record that is none.
    pub fn decode_all(mut records: Bytes) -> Result<Vec<StoredMessage>, RecordError> {
        let mut all = Vec::new();
        while !records.is_empty() {
            all.push(StoredMessage::decode(&mut records)?);
        }
        Ok(all)
    }

    fn from_view(view: &RecordView<'_>, body: Bytes) -> StoredMessage {
        StoredMessage {
            message: Message {
                topic: view.topic.to_owned(),
                flag: view.flag,
                properties: Properties::from_encoded(view.properties),
                body,
            },
            queue_id: view.queue_id,
            queue_offset: view.queue_offset,
            phy: view.phy,
            size_bytes: view.size_bytes,
            body_crc: view.body_crc,
            sys_flag: view.sys_flag,
            born_ms: view.born_ms,
            born_host: view.born_host,
            store_ms: view.store_ms,
            store_host: view.store_host,
            reconsume_times: view.reconsume_times,
            prepared_phy: view.prepared_phy,
        }
    }

    /// The body as its sender wrote it.
    ///
    /// # Errors
    /// An unknown compression, damaged data, or more than `limit_bytes` of content.
    pub fn uncompressed_body(&self, limit_bytes: usize) -> Result<Bytes, CompressionError> {
        decompress(&self.message.body, self.sys_flag, limit_bytes)
    }

    /// The id that says where it is stored.
    #[must_use]
    pub fn offset_message_id(&self) -> OffsetMessageId {
        OffsetMessageId { store_host: self.store_host, phy: self.phy }
    }

    /// The id that its producer gave it, or else the one that says where it is stored.
    #[must_use]
    pub fn message_id(&self) -> String {
        self.message.unique_id().map_or_else(|| self.offset_message_id().to_string(), str::to_owned)
    }

    /// What would store it again under the same topic and queue, with everything that a record keeps.
    #[must_use]
    pub fn draft(&self) -> Draft<'_> {
        Draft {
            topic: &self.message.topic,
            queue_id: self.queue_id,
            flag: self.message.flag,
            sys_flag: self.sys_flag,
            born_ms: self.born_ms,
            born_host: self.born_host,
            store_host: self.store_host,
            reconsume_times: self.reconsume_times,
            prepared_phy: self.prepared_phy,
            body: &self.message.body,
            properties: self.message.properties.as_encoded(),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Message, StoredMessage};
    use crate::{Compression, PhyOffset, QueueOffset, Stamp, SysFlag, stamp};

    fn stored() -> StoredMessage {
        let message = Message::new("orders", "x".repeat(100)).with_tags("paid").unwrap();
        let (body, sys_flag) = message.compressed_body(Compression::Zlib, SysFlag(0)).unwrap();
        StoredMessage {
            message: Message { body, ..message },
            queue_id: 1,
            queue_offset: QueueOffset(7),
            phy: PhyOffset(1000),
            size_bytes: 0,
            body_crc: 0,
            sys_flag,
            born_ms: 1,
            born_host: "10.0.0.9:50000".parse().unwrap(),
            store_ms: 2,
            store_host: "10.0.0.1:10911".parse().unwrap(),
            reconsume_times: 3,
            prepared_phy: PhyOffset(4),
        }
    }

    #[test]
    fn a_body_of_records_decodes_to_what_was_stored() {
        let one = stored();
        let mut record = Vec::new();
        one.draft().encode(&mut record).unwrap();
        stamp(&mut record, Stamp { queue_offset: one.queue_offset, phy: one.phy, store_ms: one.store_ms });
        let size = record.len();
        let all = StoredMessage::decode_all(Bytes::from([record.clone(), record].concat())).unwrap();
        assert_eq!(all.len(), 2);
        let expected = StoredMessage { size_bytes: size as u32, body_crc: crate::body_crc(&one.message.body), ..one };
        assert_eq!(all[1], expected);
        assert_eq!(all[1].uncompressed_body(100).unwrap(), "x".repeat(100));
        assert_eq!(all[1].message_id(), "0A00000100002A9F00000000000003E8");
    }

    #[test]
    fn waiting_is_the_default() {
        let mut message = Message::new("t", "b");
        assert!(message.waits_for_store());
        message.properties.set(crate::property::WAIT_STORE, "false").unwrap();
        assert!(!message.waits_for_store());
    }
}
