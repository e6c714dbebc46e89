//! What lies in the directory of a store, before anything is changed.

use std::{
    io,
    path::{Path, PathBuf},
};

use host::fs::{DirEntry, Files, OpenOptions};
use tracing::warn;

use crate::{
    StoreConfig, StoreError,
    consume_queue::{FoundFile, contiguous, find_dirt},
    log_file::{LogFile, file_name, file_start},
    queues::ConsumeQueues,
};

/// The commit log as found.
pub(crate) struct FoundLog {
    /// Oldest first, without holes, all of full length.
    pub(crate) segments: Vec<LogFile>,
    /// Files without content behind them, to be removed once the store is accepted.
    pub(crate) leftovers: Vec<PathBuf>,
}

/// Maps the files of the commit log.
///
/// A last file that was never filled may have any length, since its length is metadata of its own. Files before a hole
/// are what a deletion left whose directory was never synced: they are not used (SF12).
///
/// # Errors
/// A file with content of another length than the settings say; I/O errors.
pub(crate) async fn load_log(files: &Files, dir: &Path, file_bytes: u64) -> Result<FoundLog, StoreError> {
    let mut leftovers = Vec::new();
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    for DirEntry { name, is_dir } in list(files, dir).await? {
        let path = dir.join(&name);
        match file_start(&name) {
            Some(start) if !is_dir => found.push((start, path)),
            _ if name.ends_with(".rewind") => leftovers.push(path),
            _ => {}
        }
    }
    while let Some((_, path)) = found.last() {
        let len = length(files, path).await?;
        if len == file_bytes {
            break;
        }
        if !is_blank(files, path, len).await? {
            return Err(wrong_log_length(path, len, file_bytes));
        }
        leftovers.push(path.clone());
        found.pop();
    }
    let mut segments: Vec<LogFile> = Vec::new();
    for (start, path) in found {
        let len = length(files, &path).await?;
        if len != file_bytes || start % file_bytes != 0 {
            return Err(wrong_log_length(&path, len, file_bytes));
        }
        if segments.last().is_some_and(|last| last.end() != start) {
            warn!(path = %path.display(), "files are missing before this one, older ones are not used");
            segments.clear();
        }
        segments.push(LogFile::open(files, path.clone(), start, len).await.map_err(StoreError::io("map", path))?);
    }
    Ok(FoundLog { segments, leftovers })
}

/// Opens the files of all consume queues and returns those that must go: no file of a queue may lie behind a hole or
/// have another length. Without a clean exit the names of files count as not durable.
///
/// # Errors
/// Every file has another length than the settings say; a store of another kind; I/O errors.
pub(crate) async fn load_queues(queues: &ConsumeQueues, clean: bool) -> Result<Vec<PathBuf>, StoreError> {
    let files = queues.files();
    let mut damaged = Vec::new();
    let mut wrong: Option<(PathBuf, u64)> = None;
    let mut right = 0;
    for topic in list(files, queues.root()).await? {
        if !topic.is_dir {
            if topic.name == "CURRENT" {
                let reason = "consume queues in RocksDB are not supported";
                return Err(StoreError::Unsupported { path: queues.root().to_owned(), reason });
            }
            continue;
        }
        let topic_dir = queues.root().join(&topic.name);
        for queue in list(files, &topic_dir).await? {
            let Ok(queue_id) = queue.name.parse::<u32>() else { continue };
            let dir = topic_dir.join(&queue.name);
            let mut names = Vec::new();
            for DirEntry { name, .. } in list(files, &dir).await?.into_iter().filter(|e| file_start(&e.name).is_some())
            {
                let path = dir.join(&name);
                match length(files, &path).await? {
                    len if len == queues.file_bytes() => {
                        right += 1;
                        names.push(name);
                        continue;
                    }
                    0 => {}
                    len => wrong = wrong.or(Some((path.clone(), len))),
                }
                damaged.push(path);
            }
            let (starts, holes) = contiguous(&names, queues.file_bytes());
            damaged.extend(holes.iter().map(|name| dir.join(name)));
            let good = starts.into_iter().map(|start| FoundFile { start, path: dir.join(file_name(start)) }).collect();
            let queue = queues.find_or_make(&topic.name, queue_id);
            queue.attach(files, good, clean).await.map_err(StoreError::io("open", &dir))?;
        }
    }
    match wrong {
        Some((path, found_bytes)) if right == 0 => {
            let (expected_bytes, key) = (queues.file_bytes(), "mappedFileSizeConsumeQueue");
            Err(StoreError::FileSize { path, found_bytes, expected_bytes, key })
        }
        _ => Ok(damaged),
    }
}

/// Checks the settings that files depend on.
///
/// # Errors
/// The first that no store can have.
pub(crate) fn check_config(config: &StoreConfig) -> Result<(), StoreError> {
    let bad = |key, value: String, reason| Err(StoreError::Config { key, value, reason });
    let log = config.commit_log_file_bytes;
    if log == 0 || !log.is_multiple_of(4096) || log > i32::MAX as u64 {
        return bad("mappedFileSizeCommitLog", log.to_string(), "it must be a multiple of 4096 below 2 GiB");
    }
    let queue = config.consume_queue_file_bytes;
    if queue == 0 || queue > i32::MAX as u64 - 20 {
        return bad("mappedFileSizeConsumeQueue", queue.to_string(), "it must lie between 1 and 2 GiB");
    }
    if config.message_max_bytes > i32::MAX as usize / 2 {
        let reason = "a record would not fit a length field";
        return bad("maxMessageSize", config.message_max_bytes.to_string(), reason);
    }
    if let Some(hour) = config.delete_when.iter().find(|&&hour| hour > 23) {
        return bad("deleteWhen", hour.to_string(), "hours go from 0 to 23");
    }
    Ok(())
}

/// The entries of a directory; none if it does not exist.
async fn list(files: &Files, dir: &Path) -> Result<Vec<DirEntry>, StoreError> {
    match files.read_dir(dir).await {
        Ok(entries) => Ok(entries),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(StoreError::Io { op: "list", path: dir.to_owned(), source }),
    }
}

async fn length(files: &Files, path: &Path) -> Result<u64, StoreError> {
    files.metadata(path).await.map(|metadata| metadata.len).map_err(StoreError::io("look at", path))
}

async fn is_blank(files: &Files, path: &Path, len: u64) -> Result<bool, StoreError> {
    let file = files.open(path, OpenOptions::READ).await.map_err(StoreError::io("open", path))?;
    Ok(find_dirt(&file, 0, len).map_err(StoreError::io("read", path))?.is_none())
}

fn wrong_log_length(path: &Path, found_bytes: u64, expected_bytes: u64) -> StoreError {
    StoreError::FileSize { path: path.to_owned(), found_bytes, expected_bytes, key: "mappedFileSizeCommitLog" }
}
