//! What can go wrong.

use std::{io, path::PathBuf};

use message::{PhyOffset, RecordError};

/// Why a store cannot be opened, closed or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another broker has it open. Nothing was touched.
    #[error("the store `{}` is in use by another broker", .root.display())]
    Locked {
        /// The root of the store.
        root: PathBuf,
    },
    /// A setting that no store can have.
    #[error("{key} is {value}: {reason}")]
    Config {
        /// RocketMQ's key.
        key: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Files that this version cannot read.
    #[error("{}: {reason}", .path.display())]
    Unsupported {
        /// The file or directory.
        path: PathBuf,
        /// What it holds.
        reason: &'static str,
    },
    /// A file of another length than the settings say. Nothing was touched.
    #[error("`{}` has {found_bytes} bytes, {key} says {expected_bytes}{}", .path.display(), hint_on_size(key))]
    FileSize {
        /// The file.
        path: PathBuf,
        /// How long it is.
        found_bytes: u64,
        /// How long it should be.
        expected_bytes: u64,
        /// The setting that decides it.
        key: &'static str,
    },
    /// A record that had been on disk cannot be read any more, and later ones can. Nothing was touched.
    #[error(
        "commit log damaged at {at}: records up to {durable} had been durable; set acceptDamagedCommitLog=true to cut \
         the log there"
    )]
    Damaged {
        /// Where the first bad record is.
        at: PhyOffset,
        /// Up to where everything should be good.
        durable: PhyOffset,
        /// What is wrong with it.
        source: RecordError,
    },
    /// Files of the commit log are missing between others. Nothing was touched.
    #[error(
        "the commit log has a hole, {count} file(s) are missing: {}{}; put them back, or set \
         acceptDamagedCommitLog=true to give up all messages before the hole too",
        .missing.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", "),
        if *count > .missing.len() as u64 { ", …" } else { "" }
    )]
    Hole {
        /// The first of them.
        missing: Vec<PathBuf>,
        /// How many they are.
        count: u64,
    },
    /// The machine failed.
    #[error("cannot {op} {}", .path.display())]
    Io {
        /// What was tried.
        op: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the machine says.
        source: io::Error,
    },
    /// A file of settings or offsets cannot be read, neither it nor its backup.
    #[error("{} is not readable, nor is its backup: {reason}", .path.display())]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// What may be done about a file of another length.
fn hint_on_size(key: &str) -> &'static str {
    if key == "mappedFileSizeConsumeQueue" {
        "; give the key the value that the store was made with, or move the consume queues away: they are rebuilt from \
         the log"
    } else {
        "; if the store was made with another value of the key, give it that"
    }
}

impl StoreError {
    /// For `map_err`.
    pub(crate) fn io(op: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.into();
        move |source| StoreError::Io { op, path, source }
    }
}

/// Why writes are refused for the time being.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteBlock {
    /// The store is stopping or has stopped.
    #[error("the store has stopped")]
    Stopped,
    /// Too little space; ends when files have been deleted.
    #[error("the disk is full, {used_percent} % are used")]
    DiskFull {
        /// Used space when it was last looked at.
        used_percent: u8,
    },
    /// Consume queues or index cannot be written; ends when they can.
    #[error("the consume queues or the index cannot be written")]
    QueuesFailing,
    /// A sync failed, so that nobody knows what is on disk; ends with a restart.
    #[error("a sync of the disk failed, a restart must find out what is left")]
    Fenced,
    /// The log is a copy of another broker's, which takes the messages.
    #[error("the log is a copy of a master's, which takes the messages")]
    IsCopy,
}

/// Why bytes of a master's log were not appended to its copy. Nothing of them was kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// Writes are refused.
    #[error(transparent)]
    Blocked(#[from] WriteBlock),
    /// The next log file is being made; only inside the store.
    #[error("the next log file is not ready yet")]
    FileNotReady,
    /// The next log file cannot be made.
    #[error("the next log file cannot be created")]
    CreateFile,
    /// They do not go on where the copy ends.
    #[error("bytes from {at} do not follow a log that ends at {end}")]
    NotAtEnd {
        /// Where the bytes start.
        at: PhyOffset,
        /// Where the copy ends.
        end: PhyOffset,
    },
    /// They end behind the end of a file, or begin a log inside of one: files of the master have another size.
    #[error(
        "bytes from {at} to {to} do not keep to files of {file_bytes} bytes: is mappedFileSizeCommitLog the master's?"
    )]
    CrossesFile {
        /// Where the bytes start.
        at: PhyOffset,
        /// Where they end.
        to: PhyOffset,
        /// Size of a file here.
        file_bytes: u64,
    },
    /// They are no records.
    #[error("what the master sent is no record at {at}")]
    NotARecord {
        /// Where the first bad record is.
        at: PhyOffset,
        /// What is wrong with it.
        source: RecordError,
    },
}

/// Why a message was not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// Writes are refused (`SERVICE_NOT_AVAILABLE`).
    #[error(transparent)]
    Blocked(#[from] WriteBlock),
    /// The next log file is being made; trying again soon helps, as [`crate::Store::put_when_ready`] does.
    #[error("the next log file is not ready yet")]
    FileNotReady,
    /// The next log file cannot be made (`CREATE_MAPPED_FILE_FAILED`).
    #[error("the next log file cannot be created")]
    CreateFile,
    /// All buffers are in use and wait to be written (`SYSTEM_BUSY`); ends by itself.
    #[error("no buffer is free for the next log file")]
    NoBuffer,
    /// Another append has been waiting for the machine for too long (`OS_PAGE_CACHE_BUSY`); ends by itself.
    #[error("another message has been waiting for {} ms for the page cache", .waited.as_millis())]
    PageCacheBusy {
        /// For how long.
        waited: std::time::Duration,
    },
    /// The message cannot be stored by anyone (`MESSAGE_ILLEGAL`).
    #[error("the message is illegal: {reason}")]
    Illegal {
        /// What is wrong with it.
        reason: String,
    },
    /// The property string is too long (`PROPERTIES_SIZE_EXCEEDED`).
    #[error("the properties have {bytes} bytes, at most {limit} are allowed")]
    PropertiesTooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
}
