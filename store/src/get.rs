//! Reading messages of one queue.

use bytes::Bytes;
use message::{QueueOffset, RecordView};

/// Decides which messages a reader gets. Looked at from cheap to dear.
pub trait MessageFilter: Send + Sync {
    /// Whether a message with this tags code may pass. Called for every entry.
    fn matches_tags_code(&self, tags_code: i64) -> bool;

    /// Whether a message passes, judged by its record. Called after the code has passed; true unless overridden.
    fn matches_record(&self, record: &RecordView<'_>) -> bool {
        let _ = record;
        true
    }
}

/// What to read.
#[derive(Clone, Copy)]
pub struct GetRequest<'a> {
    /// Topic of the queue.
    pub topic: &'a str,
    /// Number of the queue.
    pub queue_id: u32,
    /// First message wanted.
    pub offset: QueueOffset,
    /// Most messages wanted.
    pub max_count: u32,
    /// Most bytes wanted; taken as at least 100 and at most 128 MiB. One message always passes.
    pub max_bytes: u64,
    /// Which messages; `None` for all.
    pub filter: Option<&'a dyn MessageFilter>,
}

/// How a read ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetStatus {
    /// At least one message.
    Found,
    /// The queue was never written.
    NoMessageInQueue,
    /// The offset lies below the queue.
    OffsetTooSmall,
    /// The offset is the end of the queue: nothing yet.
    OffsetOverflowOne,
    /// The offset lies beyond the end of the queue.
    OffsetOverflowBadly,
    /// The entries from the offset on cannot be read.
    OffsetFoundNull,
    /// Messages were looked at, none passed the filter.
    NoMatchedMessage,
    /// The messages have been deleted meanwhile.
    MessageWasRemoving,
}

/// What a read gave.
///
/// Source: `spec/store.md` 10.2, reference `GetMessageResult`.
#[derive(Debug, Clone)]
pub struct GetResult {
    /// How it ended.
    pub status: GetStatus,
    /// Where to read next.
    pub next: QueueOffset,
    /// First offset of the queue.
    pub min: QueueOffset,
    /// End of the queue.
    pub max: QueueOffset,
    /// The records, borrowed from the log without a copy; one piece holds one or more whole records.
    pub records: Vec<Bytes>,
    /// Messages in `records`.
    pub count: u32,
    /// Bytes in `records`.
    pub bytes: u64,
    /// The messages are so old that a slave should serve them.
    pub suggest_slave: bool,
}

/// Which of several messages stored in one millisecond answers a search by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeBoundary {
    /// The first.
    #[default]
    Lower,
    /// The last.
    Upper,
}
