//! The log as a copy: bytes of a master's log, appended as they stand there.
//!
//! They come cut anywhere. Only whole records are shown and made durable; what lies behind the last one waits, unseen,
//! for its rest. So everything that follows the log finds records, as if they had been put here.

use std::{
    io,
    sync::{Arc, PoisonError, atomic::Ordering},
};

use message::{BLANK_BYTES, Frame, PhyOffset, RecordError, peek};

use super::{CommitLog, Spare, Tail, tell_rolled};
use crate::{
    CopyError, PutError, WriteBlock,
    follow::{Checks, check_record},
    log_file::LogFile,
    warm_up::UNLOCK_DELAY,
};

/// A record or a blank record that is there as a whole.
struct Whole {
    size_bytes: u64,
    /// `None` for a blank record.
    store_ms: Option<i64>,
}

impl CommitLog {
    /// Behind the last byte that was appended, which may belong to a record that is not complete.
    pub(crate) fn copied_end(&self) -> u64 {
        let tail = self.lock_tail();
        tail.end + tail.partial
    }

    /// Nothing lies before this, though the log once started before it.
    pub(crate) fn base(&self) -> u64 {
        self.base.load(Ordering::Acquire)
    }

    /// Appends bytes that lie at `at` in a master's log, all or none. A log that holds
    /// nothing begins anew at `at`, if that is later.
    ///
    /// # Errors
    /// See [`CopyError`].
    pub(crate) fn append_copy(&self, at: u64, bytes: &[u8]) -> Result<(), CopyError> {
        let start = self.start();
        let mut tail = self.lock_tail();
        if tail.closed {
            return Err(WriteBlock::Stopped.into());
        }
        let end = tail.end + tail.partial;
        let to = at.saturating_add(bytes.len() as u64);
        let crosses = CopyError::CrossesFile { at: PhyOffset(at), to: PhyOffset(to), file_bytes: self.file_bytes };
        if at != end {
            if end > start || at < end {
                return Err(CopyError::NotAtEnd { at: PhyOffset(at), end: PhyOffset(end) });
            }
            if !at.is_multiple_of(self.file_bytes) || i64::try_from(at.saturating_add(self.file_bytes)).is_err() {
                return Err(crosses);
            }
            tail.begin_at = Some(at);
            tail.spare = Spare::Wanted;
            self.file_wanted.notify_one();
            return Err(CopyError::FileNotReady);
        }
        let file = tail.file_at(self, end)?;
        if to > file.end() {
            return Err(crosses);
        }
        file.mapping.write(end - file.start, bytes);
        let before = tail.last_store_ms;
        match tail.whole_records(&file, to) {
            Ok(whole) => {
                tail.partial = to - whole;
                tail.end = whole;
                tail.publish(self);
            }
            Err((at, source)) => {
                tail.last_store_ms = before;
                file.mapping.write(end - file.start, &vec![0; bytes.len()]);
                return Err(CopyError::NotARecord { at: PhyOffset(at), source });
            }
        }
        if file.end() - tail.end < self.file_bytes / 2 {
            tail.ask_for_spare(self);
        }
        drop(tail);
        self.grown.notify_waiters();
        Ok(())
    }

    /// Forgets what lies behind the last whole record, for good if `durably`.
    ///
    /// # Errors
    /// It cannot be made durable.
    pub(crate) async fn drop_partial(&self, durably: bool) -> io::Result<()> {
        let (file, from, to) = {
            let mut tail = self.lock_tail();
            let Some(file) = tail.active.clone().filter(|_| tail.partial > 0) else { return Ok(()) };
            let (from, to) = (tail.end - file.start, tail.end + tail.partial - file.start);
            // Nobody was given these bytes.
            file.mapping.write(from, &vec![0; (to - from) as usize]);
            tail.partial = 0;
            (file, from, to)
        };
        if durably { file.mapping.sync(from, to).await } else { Ok(()) }
    }

    /// Removes the files, none of which holds anything, and sees to it that the next one starts at `start`. They go
    /// first: with the new one there they would look like a log with a hole.
    pub(super) async fn begin_at(&self, start: u64) -> io::Result<()> {
        loop {
            let Some(last) = self.read_segments().last().cloned() else { break };
            match self.files.remove_file(&last.path).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result?,
            }
            self.segments.write().unwrap_or_else(PoisonError::into_inner).retain(|file| !Arc::ptr_eq(file, &last));
        }
        self.files.sync_dir(&self.dir).await?;
        let mut tail = self.lock_tail();
        (tail.active, tail.end, tail.begin_at) = (None, start, None);
        self.base.store(start, Ordering::Release);
        // In this order, so that nobody sees more on disk than was written.
        self.written.store(start, Ordering::Release);
        self.flushed.store(start, Ordering::Release);
        Ok(())
    }
}

impl Tail {
    /// The file that holds `end`, which is the next one if the present one is full.
    fn file_at(&mut self, log: &CommitLog, end: u64) -> Result<Arc<LogFile>, CopyError> {
        if let Some(active) = self.active.as_ref().filter(|active| end < active.end()) {
            return Ok(Arc::clone(active));
        }
        let next = self.ready_spare(log).map_err(|error| match error {
            PutError::CreateFile => CopyError::CreateFile,
            _ => CopyError::FileNotReady,
        })?;
        assert_eq!(end, next.start, "the next file starts where the last one ends");
        if let Some(full) = self.active.take() {
            if log.warm_up.locks() {
                self.locked.push_back((log.host.now() + UNLOCK_DELAY, full));
            }
            tell_rolled(next.start);
        }
        self.active = Some(Arc::clone(&next));
        self.spare = Spare::NotNeeded;
        self.ask_for_spare(log);
        Ok(next)
    }

    /// Where the last whole record before `to` ends. Notes its time.
    ///
    /// # Errors
    /// Where something starts that is no record, and why.
    fn whole_records(&mut self, file: &LogFile, to: u64) -> Result<u64, (u64, RecordError)> {
        let mut at = self.end;
        while at < to {
            let room = file.end() - at;
            let whole = file.mapping.with(at - file.start, to - file.start, |rest| whole_at(rest, at, room));
            match whole.map_err(|error| (at, error))? {
                Some(Whole { size_bytes, store_ms }) => {
                    at += size_bytes;
                    self.last_store_ms = store_ms.unwrap_or(self.last_store_ms);
                }
                None => break,
            }
        }
        Ok(at)
    }
}

/// What stands at the start of `rest`, at `phy`, where the file has `room` bytes left; `None` if there may be more of it.
fn whole_at(rest: &[u8], phy: u64, room: u64) -> Result<Option<Whole>, RecordError> {
    let frame = match peek(rest) {
        Err(RecordError::Truncated { .. }) if room >= BLANK_BYTES as u64 => return Ok(None),
        other => other?,
    };
    let available = rest.len() as u64;
    match frame {
        Frame::Blank { size_bytes } if u64::from(size_bytes) != room => {
            Err(RecordError::Size { stated: size_bytes as usize, computed: room as usize })
        }
        Frame::Blank { .. } => Ok((room <= available).then_some(Whole { size_bytes: room, store_ms: None })),
        // Behind a record there is room for a blank one.
        Frame::Record { size_bytes } if u64::from(size_bytes) + BLANK_BYTES as u64 > room => {
            Err(RecordError::TooLong { part: "record", bytes: size_bytes as usize, limit: room as usize })
        }
        Frame::Record { size_bytes } if u64::from(size_bytes) > available => Ok(None),
        Frame::Record { size_bytes } => {
            let view = check_record(rest, phy, Checks::STRUCTURE)?;
            let store_ms = view.map(|view| view.store_ms);
            Ok(Some(Whole { size_bytes: u64::from(size_bytes), store_ms }))
        }
    }
}
