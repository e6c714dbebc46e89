//! What replication needs of a store: a master's log as bytes, and a copy that takes them.

use message::{Frame, PhyOffset, peek};
use tokio::sync::futures::Notified;

use crate::{CopyError, Store, follow::next_record, store::FILE_TIMEOUT};

impl Store {
    // ---- the log as bytes ----

    /// The bytes from `from` up to the end of its file, or of what was written, without a copy. `None` if there is
    /// nothing (any more, or yet).
    #[must_use]
    pub fn log_bytes(&self, from: PhyOffset) -> Option<bytes::Bytes> {
        self.log.readable(from.0, u64::MAX)
    }

    /// Ends when [`max_phy`](Store::max_phy) moves after this call.
    pub fn log_grown(&self) -> Notified<'_> {
        self.log.grown()
    }

    /// Ends when [`flushed_phy`](Store::flushed_phy) moves after this call.
    pub fn log_synced(&self) -> Notified<'_> {
        self.log.synced.notified()
    }

    /// Start of a record about `distance` before `end`, which is itself the end of a record: the first at most that far
    /// away, or if none is, the last one before. Never 0, and not before the start of the log; `end` if nothing else is
    /// left.
    #[must_use]
    pub fn record_before(&self, end: PhyOffset, distance: u64) -> PhyOffset {
        let start = self.log.start();
        let mut distance = distance;
        loop {
            let wanted = end.0.saturating_sub(distance).max(start);
            let found = self.first_record(wanted, end.0);
            match found {
                Some(at) if at > 0 => return PhyOffset(at),
                Some(_) => return PhyOffset(self.first_record(1, end.0).unwrap_or(end.0)),
                None if wanted == start => return end,
                None => distance = distance.saturating_mul(2).max(1),
            }
        }
    }

    /// Where the last record ends that is there as a whole and ends at or before `to`, of those from `from` on, which is the
    /// start of a record; `from` if there is none.
    #[must_use]
    pub fn last_record_end(&self, from: PhyOffset, to: PhyOffset) -> PhyOffset {
        let mut end = from.0;
        while let Some(bytes) = self.log.readable(end, to.0) {
            let (mut at, mut is_blank) = (0, false);
            while let Ok(frame) = peek(&bytes[at..])
                && let Frame::Record { size_bytes } | Frame::Blank { size_bytes } = frame
                && at + size_bytes as usize <= bytes.len()
                && !is_blank
            {
                at += size_bytes as usize;
                is_blank = matches!(frame, Frame::Blank { .. });
            }
            if at == 0 {
                break;
            }
            end += at as u64;
        }
        PhyOffset(end)
    }

    /// Start of the first record at or behind `from` and before `end`.
    fn first_record(&self, from: u64, end: u64) -> Option<u64> {
        let bytes = self.log.readable(from, end)?;
        let found = from + next_record(&bytes, from, 0) as u64;
        let file_end = self.log.next_file_start(from);
        // A file starts with a record.
        (found < file_end.min(end)).then_some(found).or((file_end < end).then_some(file_end))
    }

    // ---- the copy ----

    /// Whether the log holds nothing, so that a copy may begin at any later file.
    #[must_use]
    pub fn is_log_empty(&self) -> bool {
        self.log.copied_end() <= self.log.start()
    }

    /// End of the copy, where [`append_copy`](Store::append_copy) goes on. It may lie in a record, while
    /// [`max_phy`](Store::max_phy) is the end of the last whole one.
    #[must_use]
    pub fn copied_phy(&self) -> PhyOffset {
        PhyOffset(self.log.copied_end())
    }

    /// Appends bytes that lie at `at` in a master's log, cut anywhere but across the end of a file. When this returns they
    /// are in the page cache; records that are whole by now are seen, as if they had been put here. Waits up to 5 s
    /// for a new log file.
    ///
    /// A log that holds nothing begins anew at `at`, if that is the start of a later file.
    ///
    /// # Errors
    /// See [`CopyError`]; none of the bytes is kept then.
    pub async fn append_copy(&self, at: PhyOffset, bytes: &[u8]) -> Result<(), CopyError> {
        assert!(self.config.is_copy, "only a copy takes bytes of another log");
        let deadline = self.host.now() + FILE_TIMEOUT;
        loop {
            let mut decided = std::pin::pin!(self.log.file_decided.notified());
            decided.as_mut().enable(); // Before the attempt, or the news could come in between.
            if let Some(block) = self.gate.block() {
                return Err(block.into());
            }
            match self.log.append_copy(at.0, bytes) {
                Err(CopyError::FileNotReady) => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    self.appended(self.max_phy());
                    return Ok(());
                }
            }
            host::select! {
                () = decided => {}
                () = self.host.sleep_until(deadline) => return Err(CopyError::CreateFile),
            }
        }
    }

    /// Forgets the bytes of a record that is not complete. The copy then ends with a whole record.
    pub async fn drop_partial_record(&self) {
        self.log.drop_partial(false).await.expect("nothing is made durable");
    }
}
