//! Settings of a store.

use std::{path::PathBuf, time::Duration};

use message::{DelayLevels, PhyOffset};

/// When a message counts as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushDiskType {
    /// As soon as it is in the page cache.
    #[default]
    Async,
    /// When it is on disk.
    Sync,
}

/// Settings of a store. The key in parentheses is the one of RocketMQ's configuration files; where the key counts in
/// another unit than the field, that is said.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreConfig {
    /// Where everything is (`storePathRootDir`).
    pub root: PathBuf,
    /// Where the commit log is (`storePathCommitLog`); `None` for `commitlog` under the root.
    pub commit_log_dir: Option<PathBuf>,
    /// Size of one commit-log file (`mappedFileSizeCommitLog`). A multiple of 4096; default 1 GiB.
    pub commit_log_file_bytes: u64,
    /// Whether messages are taken into memory first and written to their log file a little later
    /// (`transientStorePoolEnable`); default false. A kill of the process then loses what was not written. Under
    /// [`FlushDiskType::Sync`] it does nothing.
    pub pool_enabled: bool,
    /// Buffers for that, each as long as a log file (`transientStorePoolSize`); default 5.
    pub pool_buffers: u32,
    /// Whether messages are refused while a new log file finds no free buffer (`fastFailIfNoBufferInStorePool`);
    /// default false, which writes them to the file directly.
    pub pool_fails_fast: bool,
    /// Longest pause between two looks at the buffers (`commitIntervalCommitLog`, ms); default 200 ms.
    pub commit_interval: Duration,
    /// Pages of 4 KiB in buffers below which they wait (`commitCommitLogLeastPages`); default 4.
    pub commit_least_pages: u64,
    /// After this long buffers are written whatever is in them (`commitCommitLogThoroughInterval`, ms); default 200 ms.
    pub commit_thorough_interval: Duration,
    /// Whether each message has the buffers looked at (`wakeCommitWhenPutMessage`); default true.
    pub commit_on_put: bool,
    /// Whether a new log file is brought into memory page by page and kept there until 6 s after it is full
    /// (`warmMapedFileEnable`); default false.
    pub warm_files: bool,
    /// Under [`FlushDiskType::Sync`], pages of 4 KiB between two syncs while a file is brought into memory
    /// (`flushLeastPagesWhenWarmMapedFile`); default 4096.
    pub warm_flush_pages: u64,
    /// Whether the machine may read ahead in log files (`dataReadAheadEnable`); default true.
    pub read_ahead: bool,
    /// Size of one consume-queue file (`mappedFileSizeConsumeQueue`), rounded up to a multiple of 20; default 6,000,000.
    pub consume_queue_file_bytes: u64,
    /// Whether messages can be found by key (`messageIndexEnable`); default true. Without it index files are neither
    /// written nor read.
    pub message_index: bool,
    /// Hash slots of an index file (`maxHashSlotNum`); default 5,000,000.
    pub index_slots: u32,
    /// Entries of an index file, the first of which is not used (`maxIndexNum`); default 20,000,000.
    pub index_entries: u32,
    /// Most messages that one search by key finds (`maxMsgsNumBatch`); default 64.
    pub query_max_count: u32,
    /// When a message counts as stored (`flushDiskType`); default [`FlushDiskType::Async`].
    pub flush_disk_type: FlushDiskType,
    /// How long a sender waits for the disk under [`FlushDiskType::Sync`] (`syncFlushTimeout`, ms); default 5 s.
    pub sync_flush_timeout: Duration,
    /// When an append has waited for the machine this long, others are refused (`osPageCacheBusyTimeOutMills`, ms);
    /// default 1 s.
    pub page_cache_busy_timeout: Duration,
    /// Pause between two background flushes (`flushIntervalCommitLog`, ms); default 500 ms.
    pub flush_interval: Duration,
    /// Dirty pages of 4 KiB below which a background flush waits (`flushCommitLogLeastPages`); default 4.
    pub flush_least_pages: u64,
    /// After this long a background flush takes whatever is dirty (`flushCommitLogThoroughInterval`, ms); default 10 s.
    pub flush_thorough_interval: Duration,
    /// Pause between two flushes of consume queues (`flushIntervalConsumeQueue`, ms); default 1 s.
    pub queue_flush_interval: Duration,
    /// Dirty pages of 4 KiB below which a queue is left for later (`flushConsumeQueueLeastPages`); default 2.
    pub queue_flush_least_pages: u64,
    /// After this long all queues are flushed (`flushConsumeQueueThoroughInterval`, ms); default 60 s.
    pub queue_flush_thorough_interval: Duration,
    /// Largest body (`maxMessageSize`); default 4 MiB. A whole record may have 64 KiB more.
    pub message_max_bytes: usize,
    /// Hours of the day (UTC) in which expired files are deleted (`deleteWhen`, separated by `;`); default 4.
    pub delete_when: Vec<u8>,
    /// Age at which a file is expired (`fileReservedTime`, hours); default 72 h.
    pub file_reserved: Duration,
    /// Pause between two looks at disk and ages (`cleanResourceInterval`, ms); default 10 s.
    pub clean_interval: Duration,
    /// Pause between two deleted log files (`deleteCommitLogFilesInterval`, ms); default 100 ms.
    pub delete_log_file_pause: Duration,
    /// Pause after a queue of which files were deleted (`deleteConsumeQueueFilesInterval`, ms); default 100 ms.
    pub delete_queue_file_pause: Duration,
    /// Most log files deleted at one look (`deleteFileBatchMax`); default 10.
    pub delete_batch_max: usize,
    /// Used space in percent above which expired files go at any hour (`diskMaxUsedSpaceRatio`); default 75.
    pub disk_max_used_percent: u8,
    /// Used space in percent above which the oldest files go, expired or not (`diskSpaceCleanForciblyRatio`); default
    /// 85, taken as at least 30 and at most 85.
    pub disk_clean_forcibly_percent: u8,
    /// Used space in percent above which writes are refused (`diskSpaceWarningLevelRatio`); default 90, taken as at
    /// least 35 and at most 90.
    pub disk_warning_percent: u8,
    /// Takes the place of [`disk_clean_forcibly_percent`](StoreConfig::disk_clean_forcibly_percent), without its bounds
    /// (`rocketmq.broker.diskSpaceCleanForciblyRatio`, a fraction, with the reference a system property); default none.
    pub disk_clean_forcibly_override: Option<u8>,
    /// Takes the place of [`disk_warning_percent`](StoreConfig::disk_warning_percent), without its bounds
    /// (`rocketmq.broker.diskSpaceWarningLevelRatio`, a fraction, with the reference a system property); default none.
    pub disk_warning_override: Option<u8>,
    /// Whether files that are not expired may be deleted at all (`cleanFileForciblyEnable`); default true.
    pub clean_file_forcibly: bool,
    /// Whether recovery checks the CRC of bodies (`checkCRCOnRecover`); default true.
    pub check_crc_on_recover: bool,
    /// Whether readers may see messages that are not on disk yet under [`FlushDiskType::Sync`] (`readUnCommitted`);
    /// default false.
    pub read_uncommitted: bool,
    /// Physical memory of the machine in bytes, from which follows what counts as recent; default 24 GiB.
    pub memory_bytes: u64,
    /// Percent of the memory within which a message counts as recent (`accessMessageInMemoryMaxRatio`); default 40.
    pub memory_max_percent: u8,
    /// Most bytes of one read of recent messages (`maxTransferBytesOnMessageInMemory`); default 256 KiB.
    pub transfer_memory_bytes: u64,
    /// Most recent messages of one read (`maxTransferCountOnMessageInMemory`); default 32.
    pub transfer_memory_count: u32,
    /// Most bytes of one read of older messages (`maxTransferBytesOnMessageInDisk`); default 64 KiB.
    pub transfer_disk_bytes: u64,
    /// Most older messages of one read (`maxTransferCountOnMessageInDisk`); default 8.
    pub transfer_disk_count: u32,
    /// Bytes of consume queue that one read looks through (`maxFilterMessageSize`); default 16,000, thus 800 entries.
    pub filter_max_bytes: u64,
    /// Delay levels (`messageDelayLevel`), from which the delivery time in the schedule topic's queues follows.
    pub delay_levels: DelayLevels,
    /// Cuts a damaged log at the first bad record although durable records may follow (`acceptDamagedCommitLog`, a key
    /// of staticfire); default false, which refuses to open such a store.
    pub accept_damaged_log: bool,
    /// Whether the log is a copy of another broker's: it takes that one's bytes
    /// ([`append_copy`](crate::Store::append_copy)) and no messages; default false.
    pub is_copy: bool,
    /// Where the log is cut when it is opened: what lies from here on is given up for good, with its entries in queues and
    /// index. A record that this lies in goes, too. For a copy whose master does not have its end; default `None`.
    pub cut_at: Option<PhyOffset>,
}

impl StoreConfig {
    /// Used space in percent above which the oldest files go, expired or not.
    #[must_use]
    pub fn clean_forcibly_level(&self) -> u8 {
        self.disk_clean_forcibly_override.unwrap_or_else(|| self.disk_clean_forcibly_percent.clamp(30, 85))
    }

    /// Used space in percent above which writes are refused.
    #[must_use]
    pub fn warning_level(&self) -> u8 {
        self.disk_warning_override.unwrap_or_else(|| self.disk_warning_percent.clamp(35, 90))
    }

    /// The defaults of RocketMQ for a store under `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> StoreConfig {
        StoreConfig {
            root: root.into(),
            commit_log_dir: None,
            commit_log_file_bytes: 1 << 30,
            pool_enabled: false,
            pool_buffers: 5,
            pool_fails_fast: false,
            commit_interval: Duration::from_millis(200),
            commit_least_pages: 4,
            commit_thorough_interval: Duration::from_millis(200),
            commit_on_put: true,
            warm_files: false,
            warm_flush_pages: 4096,
            read_ahead: true,
            consume_queue_file_bytes: 6_000_000,
            message_index: true,
            index_slots: 5_000_000,
            index_entries: 20_000_000,
            query_max_count: 64,
            flush_disk_type: FlushDiskType::Async,
            sync_flush_timeout: Duration::from_secs(5),
            page_cache_busy_timeout: Duration::from_secs(1),
            flush_interval: Duration::from_millis(500),
            flush_least_pages: 4,
            flush_thorough_interval: Duration::from_secs(10),
            queue_flush_interval: Duration::from_secs(1),
            queue_flush_least_pages: 2,
            queue_flush_thorough_interval: Duration::from_secs(60),
            message_max_bytes: 4 << 20,
            delete_when: vec![4],
            file_reserved: Duration::from_secs(72 * 3600),
            clean_interval: Duration::from_secs(10),
            delete_log_file_pause: Duration::from_millis(100),
            delete_queue_file_pause: Duration::from_millis(100),
            delete_batch_max: 10,
            disk_max_used_percent: 75,
            disk_clean_forcibly_percent: 85,
            disk_warning_percent: 90,
            disk_clean_forcibly_override: None,
            disk_warning_override: None,
            clean_file_forcibly: true,
            check_crc_on_recover: true,
            read_uncommitted: false,
            memory_bytes: 24 << 30,
            memory_max_percent: 40,
            transfer_memory_bytes: 256 << 10,
            transfer_memory_count: 32,
            transfer_disk_bytes: 64 << 10,
            transfer_disk_count: 8,
            filter_max_bytes: 16_000,
            delay_levels: DelayLevels::default(),
            accept_damaged_log: false,
            is_copy: false,
            cut_at: None,
        }
    }
}
