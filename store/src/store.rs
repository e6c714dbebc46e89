//! The store of one broker: opening, writing, closing. Reading is in [`crate::get`].

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use host::{
    Host,
    time::Mono,
    worker::{Stop, Worker, stopped},
};
use message::{Draft, PROPERTIES_MAX_BYTES, PhyOffset, Properties, RecordError, SysFlag, Transaction, validate_topic};
use tokio::sync::Notify;
use tracing::warn;

use crate::{
    BatchPut, Durability, FlushDiskType, Flushed, Put, PutError, StoreConfig, StoreError, WriteBlock,
    checkpoint::{Base, Checkpoint, FlushedMark, Known},
    checkpointer::{Checkpointer, QueuePace},
    commit_log::{CommitLog, Entry, LogState},
    consume_queue::ConsumeQueue,
    dirs::make_dir,
    dispatch::{Bound, Dispatcher},
    entry::CqEntry,
    flush::{FlushPace, Flusher, GroupCommit, PAGE_BYTES},
    follow::takes_offset,
    gate::Gate,
    index::{Index, IndexShape, IndexWriter, rebuild::IndexRebuild},
    load::{check_config, judge_hole, load_log, load_queues},
    markers::{AbortFile, Lock},
    pool::{BufferPool, CommitPace, Committer},
    queues::ConsumeQueues,
    recovery::Recovery,
    retention::{Cleaner, DiskWatch},
    stats::{Figures, Stats},
};

/// How long an append waits for the next log file.
pub(crate) const FILE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after the next log file could not be made.
const FILE_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// An open store. Dropping it without [`shutdown`](Store::shutdown) leaves the files as a crash does.
pub struct Store {
    pub(crate) host: Host,
    pub(crate) config: StoreConfig,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) queues: Arc<ConsumeQueues>,
    /// `None` if messages are not indexed.
    pub(crate) index: Option<Arc<Index>>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) bound: Bound,
    /// Readers see nothing from here on.
    pub(crate) hidden_from: AtomicU64,
    group: Arc<GroupCommit>,
    dispatch: Arc<Notify>,
    commit: Arc<Notify>,
    disk: Arc<DiskWatch>,
    abort: AbortFile,
    is_continued: bool,
    ended_clean: Arc<AtomicBool>,
    /// `None` once it was stopped. Leaf lock.
    running: Mutex<Option<Running>>,
}

/// What ends with a shutdown, in the order in which it ends.
struct Running {
    cleaner: Worker,
    file_maker: Worker,
    /// `None` without a buffer pool.
    committer: Option<Worker>,
    flusher: Worker,
    dispatcher: Worker,
    checkpointer: Worker,
    lock: Lock,
}

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
    /// See [`StoreError`]. A store that is locked or of other settings is left untouched; of a damaged one the log is.
    ///
    /// # Panics
    /// Outside a node; see [`Host::current`].
    pub async fn open(config: StoreConfig) -> Result<Store, StoreError> {
        check_config(&config)?;
        let host = Host::current();
        let files = host.files();
        let root = config.root.clone();
        make_dir(&files, &root).await.map_err(StoreError::io("create", &root))?;
        let lock = Lock::take(&files, &root).await?;
        let abort = AbortFile::new(&host, &root);
        let clean = !abort.exists().await?;
        let log_dir = config.commit_log_dir.clone().unwrap_or_else(|| root.join("commitlog"));
        let queue_bytes = config.consume_queue_file_bytes.next_multiple_of(CqEntry::SIZE_BYTES);
        let queues = Arc::new(ConsumeQueues::new(files.clone(), root.join("consumequeue"), queue_bytes));
        let checkpoint_path = root.join("checkpoint");
        let found =
            Checkpoint::read(&files, &checkpoint_path).await.map_err(StoreError::io("read", &checkpoint_path))?;
        let mut found_log = load_log(&files, &log_dir, config.commit_log_file_bytes).await?;
        judge_hole(&mut found_log, !clean && found.known.is_none(), &config)?;
        let damaged_queue_files = load_queues(&queues, clean).await?;
        // Before anything is changed: one of them may be a link to a disk that is not there.
        let index_dir = config.message_index.then(|| root.join("index"));
        for dir in [&*log_dir, queues.root()].into_iter().chain(index_dir.as_deref()) {
            make_dir(&files, dir).await.map_err(StoreError::io("create", dir))?;
        }
        let pool = BufferPool::new(&host, &config).await?;
        let recovery = Recovery {
            host: &host,
            files: &files,
            config: &config,
            queues: &queues,
            log: found_log,
            damaged_queue_files,
            checkpoint: found,
            clean,
        };
        let state = recovery.run().await?;
        let is_continued = state.is_continued;
        let (index, writer) = open_index(&host, &config, index_dir, &state, found.known).await?.unzip();
        abort.create().await?;
        let parts = Parts::new(host, config, log_dir, pool, (queues, index), state);
        let checkpointer = parts.checkpointer(&checkpoint_path, found.base).await?;
        parts.disk.look();
        // A new store has its first file from the start. If it cannot be made, the file maker goes on trying.
        if let Err(error) = parts.log.make_spare().await {
            warn!(error = &error as &dyn std::error::Error, "the first log file cannot be made");
        }
        let running = parts.start(checkpointer, writer, lock);
        let ended_clean = Arc::clone(&parts.ended_clean);
        let Parts { host, config, log, queues, index, gate, stats, group, disk, dispatch, commit, bound, .. } = parts;
        Ok(Store {
            host,
            config,
            log,
            queues,
            index,
            gate,
            stats,
            bound,
            hidden_from: AtomicU64::new(u64::MAX),
            group,
            dispatch,
            commit,
            disk,
            abort,
            is_continued,
            ended_clean,
            running: Mutex::new(Some(running)),
        })
    }

    // ---- writing ----

    /// Appends one message; when this returns it has its offsets, and is in the page cache, or with a buffer pool in
    /// memory. Does not block.
    ///
    /// # Errors
    /// See [`PutError`]. [`PutError::FileNotReady`] is rare and passes: then use
    /// [`put_when_ready`](Store::put_when_ready).
    pub fn put(&self, draft: &Draft<'_>) -> Result<Put, PutError> {
        let begun = self.host.now_coarse();
        let put = self.try_put(draft);
        self.count(begun, put.as_ref().map(std::slice::from_ref));
        put
    }

    fn try_put(&self, draft: &Draft<'_>) -> Result<Put, PutError> {
        self.check_writable()?;
        self.check(draft)?;
        let mut record = Vec::with_capacity(draft.size_bytes());
        draft.encode(&mut record).map_err(illegal)?;
        let mut put = None;
        let counts = takes_offset(draft.sys_flag);
        let mut entry = [Entry { topic: draft.topic, queue_id: draft.queue_id, counts, record: &mut record }];
        self.log.append(&mut entry, |one| put = Some(one)).inspect_err(|error| self.refused(error))?;
        let put = put.expect("an append of one record tells one place");
        self.appended(put.end());
        Ok(put)
    }

    /// As [`put`](Store::put), but waits up to 5 s for the next log file.
    ///
    /// # Errors
    /// See [`PutError`]; [`PutError::CreateFile`] instead of [`PutError::FileNotReady`].
    pub async fn put_when_ready(&self, draft: &Draft<'_>) -> Result<Put, PutError> {
        let begun = self.host.now_coarse();
        let put = self.when_ready(|| self.try_put(draft)).await;
        self.count(begun, put.as_ref().map(std::slice::from_ref));
        put
    }

    /// Appends several messages of one queue, side by side in one log file, with consecutive queue offsets.
    ///
    /// # Errors
    /// As [`put`](Store::put); then none was stored. A batch that is empty, of several queues, of a transaction, or
    /// too big for a log file is illegal.
    pub fn put_batch(&self, drafts: &[Draft<'_>]) -> Result<BatchPut, PutError> {
        let begun = self.host.now_coarse();
        let put = self.try_put_batch(drafts);
        self.count(begun, put.as_ref().map(|put| &put.puts[..]));
        put
    }

    fn try_put_batch(&self, drafts: &[Draft<'_>]) -> Result<BatchPut, PutError> {
        self.check_writable()?;
        let Some(first) = drafts.first() else { return Err(illegal("the batch is empty")) };
        let body_bytes: usize = drafts.iter().map(|draft| draft.body.len()).sum();
        if body_bytes > self.config.message_max_bytes {
            return Err(self.too_long(body_bytes));
        }
        let mut records = Vec::with_capacity(drafts.len());
        for draft in drafts {
            if (draft.topic, draft.queue_id) != (first.topic, first.queue_id) {
                return Err(illegal("the batch holds messages of several queues"));
            }
            if draft.sys_flag.transaction() != Transaction::None {
                return Err(illegal("the batch belongs to a transaction"));
            }
            self.check(draft)?;
            let mut record = Vec::with_capacity(draft.size_bytes());
            draft.encode(&mut record).map_err(illegal)?;
            records.push(record);
        }
        let (topic, queue_id) = (first.topic, first.queue_id);
        let mut entries: Vec<Entry<'_>> =
            records.iter_mut().map(|record| Entry { topic, queue_id, counts: true, record }).collect();
        let mut puts = Vec::with_capacity(entries.len());
        self.log.append(&mut entries, |put| puts.push(put)).inspect_err(|error| self.refused(error))?;
        let put = BatchPut { puts };
        self.appended(put.end());
        Ok(put)
    }

    /// As [`put_batch`](Store::put_batch), but waits up to 5 s for the next log file.
    ///
    /// # Errors
    /// As [`put_when_ready`](Store::put_when_ready).
    pub async fn put_batch_when_ready(&self, drafts: &[Draft<'_>]) -> Result<BatchPut, PutError> {
        let begun = self.host.now_coarse();
        let put = self.when_ready(|| self.try_put_batch(drafts)).await;
        self.count(begun, put.as_ref().map(|put| &put.puts[..]));
        put
    }

    /// Waits until the log up to `end` is as durable as the settings ask for: at once under async flush, after the sync
    /// that covers it under sync flush, at most `syncFlushTimeout`. Whoever does not want to wait does not ask.
    pub fn durability(&self, end: PhyOffset) -> Durability {
        self.group.durability(end.0)
    }

    /// Brings everything appended so far to disk now, whatever the flush settings, and returns when it is there, at
    /// most `syncFlushTimeout` later. Offsets that are made durable afterwards cannot lead the log (SF14).
    pub async fn flush(&self) -> Flushed {
        self.group.demand(self.log.appended()).await
    }

    fn check_writable(&self) -> Result<(), PutError> {
        if self.config.is_copy {
            return Err(WriteBlock::IsCopy.into());
        }
        if let Some(block) = self.gate.block() {
            return Err(block.into());
        }
        let waited = self.log.append_lock();
        if waited > self.config.page_cache_busy_timeout {
            return Err(PutError::PageCacheBusy { waited });
        }
        Ok(())
    }

    /// Counts a put. How long it took is known when nobody waits for the disk any more.
    fn count(&self, begun: Mono, put: Result<&[Put], &PutError>) {
        match put {
            Ok(puts) => {
                let bytes = puts.iter().map(|put| u64::from(put.size_bytes)).sum();
                let is_answered = self.config.flush_disk_type == FlushDiskType::Async;
                self.stats.put(puts.len() as u64, bytes, is_answered.then_some(begun));
            }
            // The caller tries again.
            Err(PutError::FileNotReady) => {}
            Err(_) => self.stats.put_failed(),
        }
    }

    /// What a record must be so that recovery will accept it.
    fn check(&self, draft: &Draft<'_>) -> Result<(), PutError> {
        validate_topic(draft.topic).map_err(illegal)?;
        if draft.body.len() > self.config.message_max_bytes {
            return Err(self.too_long(draft.body.len()));
        }
        if draft.properties.len() > PROPERTIES_MAX_BYTES {
            return Err(PutError::PropertiesTooLong { bytes: draft.properties.len(), limit: PROPERTIES_MAX_BYTES });
        }
        if !Properties::is_intact(draft.properties) {
            return Err(illegal("the properties are no pairs of names and values"));
        }
        if !Properties::is_ended(draft.properties) {
            return Err(illegal("the properties do not end with a separator"));
        }
        if draft.sys_flag.has(SysFlag::INNER_BATCH) {
            return Err(illegal("inner batches are not supported"));
        }
        Ok(())
    }

    fn too_long(&self, bytes: usize) -> PutError {
        let limit = self.config.message_max_bytes;
        illegal(RecordError::TooLong { part: "body", bytes, limit })
    }

    /// Without a free buffer the present file has got its blank: when that is written its buffer is free.
    fn refused(&self, error: &PutError) {
        if *error == PutError::NoBuffer {
            self.commit.notify_one();
        }
    }

    pub(crate) fn appended(&self, end: PhyOffset) {
        host::point!("store.appended", end.0);
        if self.config.pool_enabled {
            self.commit.notify_one();
        }
        self.group.wake.notify_one();
        if self.bound == Bound::Written {
            self.dispatch.notify_one();
        }
    }

    async fn when_ready<T>(&self, put: impl Fn() -> Result<T, PutError>) -> Result<T, PutError> {
        let deadline = self.host.now() + FILE_TIMEOUT;
        loop {
            let mut decided = std::pin::pin!(self.log.file_decided.notified());
            decided.as_mut().enable(); // Before the attempt, or the news could come in between.
            match put() {
                Err(PutError::FileNotReady) => {}
                result => return result,
            }
            host::select! {
                () = decided => {}
                () = self.host.sleep_until(deadline) => return Err(PutError::CreateFile),
            }
        }
    }

    // ---- state ----

    /// What was counted since the store was opened.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.stats.figures(self.log.append_lock())
    }

    /// Counts one read by a consumer, which gave so many messages. Reads of the broker itself do not count.
    pub fn count_get(&self, messages: u32) {
        self.stats.got(messages);
    }

    /// Why writes are refused, if they are.
    #[must_use]
    pub fn write_block(&self) -> Option<WriteBlock> {
        self.gate.block()
    }

    /// Whether the log was opened exactly as its last user left it. After an exit that was not clean it may end before
    /// what readers had been given, and other messages get those offsets.
    #[must_use]
    pub fn is_continued(&self) -> bool {
        self.is_continued
    }

    /// Whether readers get nothing that is not on disk.
    #[must_use]
    pub fn hides_unflushed(&self) -> bool {
        self.bound == Bound::Flushed
    }

    /// Used space of the disk that holds the commit log.
    ///
    /// # Errors
    /// If the machine cannot tell.
    pub fn disk_use(&self) -> Result<DiskUse, StoreError> {
        let used_percent = self.disk.used_percent().map_err(StoreError::io("look at", &self.config.root))?;
        Ok(DiskUse { used_percent })
    }

    /// Deletes expired log files now and at the next looks, whatever the hour (admin command).
    pub fn delete_expired_files(&self) {
        self.disk.delete_manually();
    }

    pub(crate) fn queue(&self, topic: &str, queue_id: u32) -> Option<Arc<ConsumeQueue>> {
        self.queues.find(topic, queue_id)
    }

    // ---- closing ----

    /// Stops: refuses writes, flushes everything, marks the exit as clean, and leaves no task behind. Whoever waits for
    /// durability or arrival is told or dropped. Readers may keep what they were given.
    ///
    /// # Errors
    /// I/O errors; the exit does not count as clean then, and the next start recovers.
    pub async fn shutdown(&self) -> Result<(), StoreError> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(running) = running else { return Ok(()) };
        self.gate.stop();
        self.log.close();
        running.cleaner.stop().await;
        running.file_maker.stop().await;
        if let Some(committer) = running.committer {
            committer.stop().await;
        }
        self.log.drop_partial(true).await.map_err(StoreError::io("erase half a record in", &self.config.root))?;
        running.flusher.stop().await;
        running.dispatcher.stop().await;
        running.checkpointer.stop().await;
        self.log.drop_spare().await.map_err(StoreError::io("remove the unused file in", &self.config.root))?;
        if self.ended_clean.load(Ordering::Acquire) {
            self.abort.remove().await?;
        } else {
            warn!("not everything could be made durable, the next start will recover");
        }
        drop(running.lock);
        Ok(())
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("root", &self.config.root).field("end", &self.log.written()).finish()
    }
}

/// What the tasks share.
struct Parts {
    host: Host,
    config: StoreConfig,
    log: Arc<CommitLog>,
    queues: Arc<ConsumeQueues>,
    index: Option<Arc<Index>>,
    flushed: Arc<FlushedMark>,
    gate: Arc<Gate>,
    stats: Arc<Stats>,
    group: Arc<GroupCommit>,
    disk: Arc<DiskWatch>,
    dispatch: Arc<Notify>,
    commit: Arc<Notify>,
    ended_clean: Arc<AtomicBool>,
    bound: Bound,
}

impl Parts {
    fn new(
        host: Host,
        config: StoreConfig,
        log_dir: PathBuf,
        pool: Option<Arc<BufferPool>>,
        (queues, index): (Arc<ConsumeQueues>, Option<Arc<Index>>),
        state: LogState,
    ) -> Parts {
        let flushed = Arc::new(FlushedMark::new(state.end, state.last_store_ms));
        let log = Arc::new(CommitLog::new(&host, log_dir.clone(), &config, pool, state));
        let gate = Arc::new(Gate::default());
        let stats = Arc::new(Stats::new(&host));
        let group = Arc::clone(&stats);
        let group = Arc::new(GroupCommit::new(&host, Arc::clone(&log), Arc::clone(&gate), group, &config));
        let disk = Arc::new(DiskWatch::new(host.files(), log_dir, Arc::clone(&gate), &config));
        let hides_unflushed = config.flush_disk_type == FlushDiskType::Sync
            && !config.read_uncommitted
            && !host::mutant!("dispatch-before-flush");
        Parts {
            host,
            config,
            log,
            queues,
            index,
            flushed,
            gate,
            stats,
            group,
            disk,
            dispatch: Arc::default(),
            commit: Arc::default(),
            ended_clean: Arc::default(),
            bound: if hides_unflushed { Bound::Flushed } else { Bound::Written },
        }
    }

    /// Starts the tasks.
    fn start(&self, checkpointer: Checkpointer, writer: Option<IndexWriter>, lock: Lock) -> Running {
        let host = &self.host;
        let flusher = Flusher {
            host: host.clone(),
            log: Arc::clone(&self.log),
            gate: Arc::clone(&self.gate),
            group: Arc::clone(&self.group),
            dispatch: Arc::clone(&self.dispatch),
            checkpoint: Arc::clone(&self.queues.changed),
            flushed: Arc::clone(&self.flushed),
        };
        let dispatcher = Dispatcher {
            host: host.clone(),
            log: Arc::clone(&self.log),
            queues: Arc::clone(&self.queues),
            index: writer,
            gate: Arc::clone(&self.gate),
            delays: self.config.delay_levels.clone(),
            bound: self.bound,
            is_copy: self.config.is_copy,
            wake: Arc::clone(&self.dispatch),
            change: 0,
        };
        let cleaner = Cleaner {
            host: host.clone(),
            config: self.config.clone(),
            log: Arc::clone(&self.log),
            queues: Arc::clone(&self.queues),
            index: self.index.clone(),
            disk: Arc::clone(&self.disk),
        };
        let pace = FlushPace {
            interval: self.config.flush_interval,
            least_pages: self.config.flush_least_pages,
            thorough_interval: self.config.flush_thorough_interval,
        };
        Running {
            cleaner: Worker::start(host, "store-cleaner", |stop| cleaner.run(stop)),
            file_maker: Worker::start(host, "store-file-maker", |stop| {
                make_files(host.clone(), Arc::clone(&self.log), Arc::clone(&self.disk), stop)
            }),
            committer: self.log.free_buffers().map(|_| {
                let committer = self.committer();
                Worker::start(host, "store-committer", |stop| committer.run(stop))
            }),
            flusher: match self.config.flush_disk_type {
                FlushDiskType::Sync => Worker::start(host, "store-flusher", |stop| flusher.run_sync(stop)),
                FlushDiskType::Async => Worker::start(host, "store-flusher", |stop| flusher.run_async(stop, pace)),
            },
            dispatcher: Worker::start(host, "store-dispatcher", |stop| dispatcher.run(stop)),
            checkpointer: Worker::start(host, "store-checkpointer", |stop| checkpointer.run(stop)),
            lock,
        }
    }

    fn committer(&self) -> Committer {
        Committer {
            host: self.host.clone(),
            log: Arc::clone(&self.log),
            wake: Arc::clone(&self.commit),
            group: Arc::clone(&self.group),
            dispatch: Arc::clone(&self.dispatch),
            pace: CommitPace {
                interval: self.config.commit_interval,
                least_pages: self.config.commit_least_pages,
                thorough_interval: self.config.commit_thorough_interval,
                on_put: self.config.commit_on_put,
            },
        }
    }

    /// Writes the first checkpoint of this life, from which a crash right now would recover.
    async fn checkpointer(&self, path: &Path, found: Base) -> Result<Checkpointer, StoreError> {
        let mut checkpoint = Checkpoint::open(&self.host.files(), path).await.map_err(StoreError::io("open", path))?;
        let durable = self.queues.mark();
        let durable_index = self.index.as_ref().map(|index| index.mark());
        let index_ms = durable_index.map_or(found.index_ms, |mark| mark.store_ms);
        let base = Base { physic_ms: durable.store_ms, logics_ms: durable.store_ms, index_ms, ..found };
        let known = Known {
            flushed: self.log.flushed(),
            queues_durable: durable.phy,
            fingerprint: durable.fingerprint,
            clean: false,
            index: self.index.as_ref().and_then(|index| index.known(index.mark(), self.log.start())),
        };
        checkpoint.write(base, known).await.map_err(StoreError::io("write", path))?;
        if let Some(index) = &self.index {
            index.checkpointed(known.index);
        }
        Ok(Checkpointer {
            host: self.host.clone(),
            log: Arc::clone(&self.log),
            queues: Arc::clone(&self.queues),
            index: self.index.clone(),
            group: Arc::clone(&self.group),
            flushed: Arc::clone(&self.flushed),
            checkpoint,
            is_stuck: false,
            base,
            known,
            durable,
            durable_index,
            pace: QueuePace {
                interval: self.config.queue_flush_interval,
                least_bytes: self.config.queue_flush_least_pages * PAGE_BYTES,
                thorough_interval: self.config.queue_flush_thorough_interval,
            },
            ended_clean: Arc::clone(&self.ended_clean),
        })
    }
}

/// Opens the index in `dir`, behind a log that is in order; `None` if the settings want none.
async fn open_index(
    host: &Host,
    config: &StoreConfig,
    dir: Option<PathBuf>,
    state: &LogState,
    known: Option<Known>,
) -> Result<Option<(Arc<Index>, IndexWriter)>, StoreError> {
    let Some(dir) = dir else { return Ok(None) };
    let rebuild = IndexRebuild {
        host,
        files: &host.files(),
        dir,
        shape: IndexShape { slots: config.index_slots, entries: config.index_entries },
        segments: &state.segments,
        end: state.end,
        last_store_ms: state.last_store_ms,
        known: known.and_then(|known| known.index),
        flushed: known.map_or(0, |known| known.flushed),
        is_continued: state.is_continued,
    };
    rebuild.run().await.map(Some)
}

/// The one task that makes log files, one ahead of the one in use, and lets full ones leave memory.
async fn make_files(host: Host, log: Arc<CommitLog>, disk: Arc<DiskWatch>, mut stop: Stop) {
    loop {
        let unlock = log.next_unlock();
        host::select! {
            () = stopped(&mut stop) => return,
            () = log.file_wanted.notified() => {}
            () = host.sleep_until(unlock.unwrap_or_else(|| host.now())), if unlock.is_some() => {
                log.unlock_full();
                continue;
            }
        }
        disk.look_before_growing();
        while let Err(error) = log.make_spare().await {
            warn!(error = &error as &dyn std::error::Error, "the next log file cannot be made");
            disk.kick.notify_one();
            host::select! {
                () = stopped(&mut stop) => return,
                () = host.sleep(FILE_RETRY_PAUSE) => {}
            }
        }
    }
}

fn illegal(reason: impl ToString) -> PutError {
    PutError::Illegal { reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use message::{Draft, PhyOffset, SysFlag};

    use crate::{PutError, Store, StoreConfig, commit_log::Entry};

    fn draft() -> Draft<'static> {
        Draft {
            topic: "orders",
            queue_id: 0,
            flag: 0,
            sys_flag: SysFlag(0),
            born_ms: 1,
            born_host: "10.0.0.9:50000".parse().unwrap(),
            store_host: "10.0.0.1:10911".parse().unwrap(),
            reconsume_times: 0,
            prepared_phy: PhyOffset(0),
            body: b"body",
            properties: "",
        }
    }

    /// Others are refused while an append waits for the machine, and taken again when it has done.
    #[test]
    fn an_append_that_takes_too_long_has_others_refused_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let timeout = Duration::from_millis(2);
        let config = StoreConfig {
            page_cache_busy_timeout: timeout,
            commit_log_file_bytes: 16 << 10,
            message_index: false,
            disk_warning_override: Some(100),
            ..StoreConfig::new(dir.path())
        };
        host::real::run("test", |_| async move {
            let store = Store::open(config).await.unwrap();
            assert_eq!(store.figures().append_lock, Duration::ZERO);
            let mut record = Vec::new();
            draft().encode(&mut record).unwrap();
            let mut entries = [Entry { topic: "orders", queue_id: 0, counts: true, record: &mut record }];
            let mut refused = None;
            let slow = |_| {
                while store.figures().append_lock <= timeout {}
                refused = Some(store.put(&draft()));
            };
            store.log.append(&mut entries, slow).unwrap();
            assert!(
                matches!(refused, Some(Err(PutError::PageCacheBusy { waited })) if waited > timeout),
                "{refused:?}"
            );
            store.put(&draft()).unwrap();
            assert_eq!(store.figures().append_lock, Duration::ZERO);
            assert_eq!((store.figures().counters.puts, store.figures().counters.puts_failed), (1, 1));
            store.shutdown().await.unwrap();
        })
        .unwrap();
    }
}
