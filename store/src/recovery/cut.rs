//! A log that is cut back on purpose: a copy whose master does not have its end.
//!
//! The checkpoint learns of it first. If the power fails before the log is cut, the next start finds what was to go, as
//! after any crash; afterwards the log ends where the checkpoint says, and nothing looks damaged.

use tracing::warn;

use super::{Recovery, end_before};
use crate::{
    StoreError,
    checkpoint::{Base, Checkpoint, Known},
    follow::{Checks, Ended, read_run},
    log_file::LogFile,
};

impl Recovery<'_> {
    /// Nothing from here on is kept.
    pub(super) fn cut_at(&self) -> u64 {
        self.config.cut_at.map_or(u64::MAX, |at| at.0)
    }

    /// Writes down that nothing is known of the file in which the log is to end, and nothing of those behind it.
    pub(super) async fn forget_what_is_cut(&mut self) -> Result<(), StoreError> {
        let cut_at = self.cut_at();
        // The rest of the last file holds nothing if the log was closed before.
        let is_cut = |known: &Known| cut_at < if known.clean { known.flushed } else { self.end() };
        let Some(known) = self.checkpoint.known.filter(is_cut) else { return Ok(()) };
        warn!(at = cut_at, "the log is cut back, what lies behind is given up");
        // Something of that file stays.
        let Some(file) = self.segment(cut_at.saturating_sub(1)) else { return Ok(()) };
        let sure = file.start;
        let (end, last_ms) = self.end_before_cut(file);
        let before = |ms: i64| last_ms.map_or(ms, |last_ms| ms.min(last_ms));
        let mut lowered = Known { flushed: known.flushed.min(end), clean: false, ..known };
        if known.queues_durable > sure {
            lowered.queues_durable = sure;
            lowered.fingerprint = self.fingerprint_at(sure)?;
        }
        let Base { physic_ms, logics_ms, index_ms, master_flushed, confirm_phy } = self.checkpoint.base;
        let base = Base {
            physic_ms: before(physic_ms),
            logics_ms: before(logics_ms),
            index_ms: before(index_ms),
            master_flushed: master_flushed.min(end.cast_signed()),
            confirm_phy: confirm_phy.min(end.cast_signed()),
        };
        let path = self.config.root.join("checkpoint");
        let mut checkpoint = Checkpoint::open(self.files, &path).await.map_err(StoreError::io("open", &path))?;
        checkpoint.write(base, lowered).await.map_err(StoreError::io("write", &path))?;
        host::point!("store.cut-known", cut_at);
        (self.checkpoint.base, self.checkpoint.known) = (base, Some(lowered));
        Ok(())
    }

    /// Where the last whole record before the cut ends that lies in `file`, and its store time if there is one.
    fn end_before_cut(&self, file: &LogFile) -> (u64, Option<i64>) {
        let to = self.cut_at().min(file.end());
        let (mut end, mut last_ms) = (file.start, None);
        loop {
            let run = file.mapping.with(end - file.start, to - file.start, |bytes| {
                read_run(bytes, end, Checks::STRUCTURE, false, &self.config.delay_levels)
            });
            last_ms = run.last_at.map(|_| run.last_store_ms).or(last_ms);
            match run.ended {
                Ended::More if run.bytes > 0 => end += run.bytes,
                Ended::Blank { at } if to < file.end() => return (end + at, last_ms),
                Ended::More | Ended::Blank { .. } | Ended::Invalid(_) => return (end + run.bytes, last_ms),
            }
        }
    }

    /// Fingerprint of the queues as they were when the log ended at `phy`.
    fn fingerprint_at(&self, phy: u64) -> Result<u64, StoreError> {
        let mut sum = 0;
        for queue in self.queues.all() {
            let end = end_before(&queue, phy).map_err(StoreError::io("read", self.queues.root().join(&queue.topic)))?;
            sum ^= queue.fingerprint_at(end);
        }
        Ok(sum)
    }
}
