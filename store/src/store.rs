//! The store of one broker.

use bytes::Bytes;
use message::{Draft, PhyOffset, QueueOffset};

use crate::{
    BatchPut, Durability, Flushed, GetRequest, GetResult, Put, PutError, StoreConfig, StoreError, TimeBoundary,
    WriteBlock,
};

/// An open store. Dropping it without [`shutdown`](Store::shutdown) leaves the files as a crash does.
#[derive(Debug)]
pub struct Store {}

/// Space of the disk that holds the commit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// Used space in percent, rounded up.
    pub used_percent: u8,
}

impl Store {
    /// Locks, loads and recovers a store, or makes a new one, and starts its tasks. What it serves afterwards is on
    /// disk.
    ///
    /// # Errors
    /// See [`StoreError`]. A store that is locked, damaged or of other settings is left untouched.
    pub async fn open(config: StoreConfig) -> Result<Store, StoreError> {
        let _ = config;
        todo!()
    }

    /// Appends one message; when this returns it is in the page cache and has its offsets. Does not block.
    ///
    /// # Errors
    /// See [`PutError`]. [`PutError::FileNotReady`] is rare and passes: then use
    /// [`put_when_ready`](Store::put_when_ready).
    pub fn put(&self, draft: &Draft<'_>) -> Result<Put, PutError> {
        let _ = draft;
        todo!()
    }

    /// As [`put`](Store::put), but waits up to 5 s for the next log file.
    ///
    /// # Errors
    /// See [`PutError`]; [`PutError::CreateFile`] instead of [`PutError::FileNotReady`].
    pub async fn put_when_ready(&self, draft: &Draft<'_>) -> Result<Put, PutError> {
        self.put(draft)
    }

    /// Appends several messages of one queue, side by side in one log file, with consecutive queue offsets.
    ///
    /// # Errors
    /// As [`put`](Store::put); then none was stored. A batch that is empty, of several queues, of a transaction, or
    /// too big for a log file is illegal.
    pub fn put_batch(&self, drafts: &[Draft<'_>]) -> Result<BatchPut, PutError> {
        let _ = drafts;
        todo!()
    }

    /// As [`put_batch`](Store::put_batch), but waits up to 5 s for the next log file.
    ///
    /// # Errors
    /// As [`put_when_ready`](Store::put_when_ready).
    pub async fn put_batch_when_ready(&self, drafts: &[Draft<'_>]) -> Result<BatchPut, PutError> {
        self.put_batch(drafts)
    }

    /// Waits until the log up to `end` is as durable as the settings ask for: at once under async flush, after the sync
    /// that covers it under sync flush, at most `syncFlushTimeout`. Whoever does not want to wait does not ask.
    pub fn durability(&self, end: PhyOffset) -> Durability {
        let _ = end;
        todo!()
    }

    /// Brings everything appended so far to disk now, whatever the flush settings, and returns when it is there. The
    /// broker calls it before it makes offsets durable, so that these never lead the log (SF14), and wait for no
    /// background flush either.
    pub async fn flush(&self) -> Flushed {
        todo!()
    }

    /// Reads messages of one queue. Does not block and does not copy.
    pub fn get(&self, request: &GetRequest<'_>) -> GetResult {
        let _ = request;
        todo!()
    }

    /// Waits until the queue holds messages at or beyond `offset`, that is `max_offset > offset`. At once if it does.
    /// Works for queues that do not exist yet. Dropping the future ends the wait.
    pub async fn arrival(&self, topic: &str, queue_id: u32, offset: QueueOffset) {
        let _ = (topic, queue_id, offset);
        todo!()
    }

    /// First offset of a queue that can still be read; 0 for a queue that was never written.
    #[must_use]
    pub fn min_offset(&self, topic: &str, queue_id: u32) -> QueueOffset {
        let _ = (topic, queue_id);
        todo!()
    }

    /// End of a queue as readers see it: the offset that its next message gets, unless messages are still being
    /// dispatched; 0 for a queue that was never written.
    #[must_use]
    pub fn max_offset(&self, topic: &str, queue_id: u32) -> QueueOffset {
        let _ = (topic, queue_id);
        todo!()
    }

    /// End of the part of a queue whose messages are certainly on disk. A consumer offset that is made durable must not
    /// lie beyond it (SF14).
    #[must_use]
    pub fn durable_offset(&self, topic: &str, queue_id: u32) -> QueueOffset {
        let _ = (topic, queue_id);
        todo!()
    }

    /// The offset at which messages of a time start (or end, by `boundary`). Between `min_offset` and `max_offset`.
    ///
    /// Source: `spec/store.md` 5.7.
    #[must_use]
    pub fn offset_by_time(&self, topic: &str, queue_id: u32, time_ms: i64, boundary: TimeBoundary) -> QueueOffset {
        let _ = (topic, queue_id, time_ms, boundary);
        todo!()
    }

    /// When the message at `min_offset` was stored, wall-clock milliseconds. `None` if the queue is empty.
    #[must_use]
    pub fn earliest_store_ms(&self, topic: &str, queue_id: u32) -> Option<i64> {
        let _ = (topic, queue_id);
        todo!()
    }

    /// When the message at `offset` was stored, wall-clock milliseconds. `None` if there is none.
    #[must_use]
    pub fn store_ms_at(&self, topic: &str, queue_id: u32, offset: QueueOffset) -> Option<i64> {
        let _ = (topic, queue_id, offset);
        todo!()
    }

    /// The record that starts at `phy`, without a copy. `None` if no record starts there (any more).
    #[must_use]
    pub fn record_at(&self, phy: PhyOffset) -> Option<Bytes> {
        let _ = phy;
        todo!()
    }

    /// Topics that have consume queues, with the numbers of their queues, in order.
    #[must_use]
    pub fn queues(&self) -> Vec<(String, Vec<u32>)> {
        todo!()
    }

    /// Start of the commit log.
    #[must_use]
    pub fn min_phy(&self) -> PhyOffset {
        todo!()
    }

    /// End of the commit log.
    #[must_use]
    pub fn max_phy(&self) -> PhyOffset {
        todo!()
    }

    /// End of the part of the commit log that is on disk.
    #[must_use]
    pub fn flushed_phy(&self) -> PhyOffset {
        todo!()
    }

    /// Bytes of the commit log that readers may see and that are not in consume queues yet.
    #[must_use]
    pub fn dispatch_behind_bytes(&self) -> u64 {
        todo!()
    }

    /// Why writes are refused, if they are.
    #[must_use]
    pub fn write_block(&self) -> Option<WriteBlock> {
        todo!()
    }

    /// Used space of the disk that holds the commit log.
    ///
    /// # Errors
    /// If the machine cannot tell.
    pub fn disk_use(&self) -> Result<DiskUse, StoreError> {
        todo!()
    }

    /// Deletes expired log files at the next look, whatever the hour (admin command).
    pub fn delete_expired_files(&self) {
        todo!()
    }

    /// Stops: refuses writes, flushes everything, marks the exit as clean, and leaves no task behind. Whoever waits for
    /// durability or arrival is told or dropped. Readers may keep what they were given.
    ///
    /// # Errors
    /// I/O errors; the exit does not count as clean then, and the next start recovers.
    pub async fn shutdown(&self) -> Result<(), StoreError> {
        todo!()
    }
}
