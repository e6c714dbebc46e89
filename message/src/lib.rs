//! What a message is: topic, properties, body, flags, ids, and the record that stands for it on disk and in a pull
//! answer.
//!
//! This crate owns the stored-record codec (the same bytes in the commit log and on the wire), the property string,
//! the flag bits, both kinds of message id, Java's string hash, the names of topics and groups, and the compression of
//! bodies. It knows no files and no sockets, and neither who sends a message nor who stores it. Everything here is a
//! pure function of its arguments: time and host parts of an id are handed in.

mod batch;
mod compression;
mod delay;
mod hash;
mod ids;
mod message;
mod names;
mod offset;
mod properties;
pub mod property;
mod record;
mod sys_flag;

pub use batch::{BatchError, BatchItem, decode_batch, encode_batch_item};
pub use compression::{CompressionError, compress, decompress};
pub use delay::{DEFAULT_DELAY_LEVELS, DelayLevelError, DelayLevels};
pub use hash::{java_hash, java_hash_of, tags_code};
pub use ids::{IdError, OffsetMessageId, UniqueIds};
pub use message::{Message, StoredMessage};
pub use names::{
    DLQ_PREFIX, GROUP_MAX_BYTES, NameError, RETRY_PREFIX, SCHEDULE_TOPIC, TEMPLATE_TOPIC, TOPIC_MAX_BYTES,
    TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, dlq_topic, is_legal_name, is_system_group, is_system_topic, retry_topic,
    validate_group, validate_topic,
};
pub use offset::{PhyOffset, QueueOffset};
pub use properties::{InvalidProperty, Properties};
pub use record::{
    BLANK_BYTES, Draft, Frame, PROPERTIES_MAX_BYTES, RECORD_MIN_BYTES, RecordError, RecordView, Stamp, body_crc, crc32,
    encode_blank, peek, stamp,
};
pub use sys_flag::{Compression, SysFlag, Transaction};
