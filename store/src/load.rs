//! What lies in the directory of a store, before anything is changed.

use std::{
    io,
    path::{Path, PathBuf},
};

use futures_util::{StreamExt as _, stream};
use host::fs::{DirEntry, Files, OpenOptions};
use tracing::warn;

use crate::{
    StoreConfig, StoreError,
    consume_queue::{FoundFile, contiguous, find_dirt},
    entry::CqEntry,
    log_file::{LogFile, file_name, file_start, queue_number},
    queues::ConsumeQueues,
};

/// The commit log as found.
pub(crate) struct FoundLog {
    /// Oldest first, without holes, all of full length.
    pub(crate) segments: Vec<LogFile>,
    /// Files that are of no use, to be removed once the store is accepted.
    pub(crate) leftovers: Vec<PathBuf>,
    /// What is missing in front of `segments`.
    pub(crate) hole: Option<Hole>,
}

/// Files of the log that are missing between others. Source: `spec/store.md` 9.1.
#[derive(Debug)]
pub(crate) struct Hole {
    /// The first missing ones, oldest first, at most [`MISSING_TOLD`].
    pub(crate) missing: Vec<PathBuf>,
    /// How many are missing in all.
    pub(crate) count: u64,
    /// The files in front of it, oldest first.
    pub(crate) older: Vec<PathBuf>,
}

/// Queues whose files are looked at together.
const QUEUES_AT_ONCE: usize = 64;

/// Missing files that are named one by one.
const MISSING_TOLD: u64 = 3;

/// Files without a hole between them, oldest first: where each starts, and its path.
type Part = Vec<(u64, PathBuf)>;

/// Maps the files of the commit log.
///
/// A last file that was never filled may have any length, since its length is metadata of its own. What lies in front
/// of a hole is not used; whether such a log may be used at all is for the caller to decide.
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
    for (start, path) in &found {
        let len = length(files, path).await?;
        if len != file_bytes || start % file_bytes != 0 {
            return Err(wrong_log_length(path, len, file_bytes));
        }
    }
    let mut parts = parts(found, file_bytes);
    while parts.len() > 1 {
        // Files that were made ahead may be there while the one before them, without content too, is not.
        let last = parts.pop().expect("there are two parts");
        if !are_blank(files, &last, file_bytes).await? {
            parts.push(last);
            break;
        }
        leftovers.extend(last.into_iter().map(|(_, path)| path));
    }
    let used = parts.pop().unwrap_or_default();
    let hole = used.first().and_then(|(start, _)| hole(dir, parts, *start, file_bytes));
    let mut segments: Vec<LogFile> = Vec::new();
    for (start, path) in used {
        let segment = LogFile::open(files, path.clone(), start, file_bytes).await;
        segments.push(segment.map_err(StoreError::io("map", path))?);
    }
    Ok(FoundLog { segments, leftovers, hole })
}

/// Whether a log with a hole may be used, without what lies in front of it. If the reference deleted files and the power
/// failed, newer ones may be gone while older ones are there, for it flushes no directory (SF12); `by_reference` says
/// that this may be so. This store deletes so that no hole can come, so its messages are lost.
///
/// # Errors
/// [`StoreError::Hole`], unless the settings accept damage.
pub(crate) fn judge_hole(found: &mut FoundLog, by_reference: bool, config: &StoreConfig) -> Result<(), StoreError> {
    let Some(Hole { missing, count, older }) = found.hole.take() else { return Ok(()) };
    if !by_reference && !config.accept_damaged_log {
        return Err(StoreError::Hole { missing, count });
    }
    let first = missing.first().map(|path| path.display().to_string());
    warn!(first, count, given_up = older.len(), "files of the log are missing, those in front of them are given up");
    found.leftovers.extend(older);
    Ok(())
}

/// Splits files, sorted by start, where some are missing.
fn parts(found: Part, file_bytes: u64) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (start, path) in found {
        match parts.last_mut() {
            Some(part) if part.last().is_some_and(|(last, _)| last + file_bytes == start) => part.push((start, path)),
            _ => parts.push(vec![(start, path)]),
        }
    }
    parts
}

/// What is missing between `older` parts of the log, and between them and `used`, where the used one starts.
fn hole(dir: &Path, older: Vec<Part>, used: u64, file_bytes: u64) -> Option<Hole> {
    let ends = older.iter().filter_map(|part| part.last()).map(|(last, _)| last + file_bytes);
    let starts = older.iter().skip(1).filter_map(|part| part.first()).map(|(start, _)| *start).chain([used]);
    let gaps: Vec<(u64, u64)> = ends.zip(starts).collect();
    let count = gaps.iter().map(|(from, to)| (to - from) / file_bytes).sum();
    let missing = gaps
        .into_iter()
        .flat_map(|(from, to)| (from..to).step_by(file_bytes as usize))
        .take(MISSING_TOLD as usize)
        .map(|start| dir.join(file_name(start)))
        .collect();
    let older: Vec<PathBuf> = older.into_iter().flatten().map(|(_, path)| path).collect();
    (count > 0).then_some(Hole { missing, count, older })
}

/// Opens the files of all consume queues and returns those that must go: no file of a queue may lie behind a hole or
/// have another length, for it is rebuilt from the log (SF05). Without a clean exit the names of files count as not
/// durable.
///
/// # Errors
/// No file has the length that the settings say, and one has a length that other settings could say; a store of another
/// kind; I/O errors.
pub(crate) async fn load_queues(queues: &ConsumeQueues, clean: bool) -> Result<Vec<PathBuf>, StoreError> {
    let files = queues.files();
    refuse_batch_queues(files, &queues.root().with_file_name("batchconsumequeue")).await?;
    let mut found = Vec::new();
    for topic in list(files, queues.root()).await? {
        if !topic.is_dir {
            if topic.name == "CURRENT" {
                let reason = "consume queues in RocksDB are not supported";
                return Err(StoreError::Unsupported { path: queues.root().to_owned(), reason });
            }
            refuse_lost(files, &queues.root().join(&topic.name)).await?;
            continue;
        }
        let dir = queues.root().join(&topic.name);
        for queue in list(files, &dir).await? {
            let Some(queue_id) = queue_number(&queue.name) else { continue };
            if !queue.is_dir {
                refuse_lost(files, &dir.join(&queue.name)).await?;
            }
            found.push((topic.name.clone(), queue_id));
        }
    }
    // Each call waits for a thread, and there may be tens of thousands of queues.
    let loading = found.into_iter().map(|(topic, queue_id)| load_queue(queues, topic, queue_id, clean));
    let mut loaded = stream::iter(loading).buffered(QUEUES_AT_ONCE);
    let (mut damaged, mut wrong, mut right) = (Vec::new(), None, 0);
    while let Some(queue) = loaded.next().await {
        let queue = queue?;
        damaged.extend(queue.damaged);
        wrong = wrong.or(queue.wrong);
        right += queue.right;
    }
    match wrong {
        Some((path, found_bytes)) if right == 0 => {
            let (expected_bytes, key) = (queues.file_bytes(), "mappedFileSizeConsumeQueue");
            Err(StoreError::FileSize { path, found_bytes, expected_bytes, key })
        }
        _ => Ok(damaged),
    }
}

/// A name that is no directory may be a link to a disk that is not there now: its queues are not missing, so they must not
/// be built again beside it.
async fn refuse_lost(files: &Files, path: &Path) -> Result<(), StoreError> {
    length(files, path).await.map(drop)
}

/// Messages of a topic with queues of inner batches could be neither read nor kept in order, and nobody would be told.
async fn refuse_batch_queues(files: &Files, root: &Path) -> Result<(), StoreError> {
    match list(files, root).await?.into_iter().find(|topic| topic.is_dir) {
        Some(topic) => {
            let reason = "queues of inner batches (queue.type=BatchCQ) are not supported: delete the topic with the broker \
                          that wrote it, and its directory here";
            Err(StoreError::Unsupported { path: root.join(topic.name), reason })
        }
        None => Ok(()),
    }
}

/// What lies in the directory of one queue.
struct LoadedQueue {
    /// Files that must go.
    damaged: Vec<PathBuf>,
    /// A file of a length that other settings could say, with its length.
    wrong: Option<(PathBuf, u64)>,
    /// How many files have the right length.
    right: usize,
}

async fn load_queue(
    queues: &ConsumeQueues,
    topic: String,
    queue_id: u32,
    clean: bool,
) -> Result<LoadedQueue, StoreError> {
    let files = queues.files();
    let dir = queues.root().join(&topic).join(queue_id.to_string());
    let mut loaded = LoadedQueue { damaged: Vec::new(), wrong: None, right: 0 };
    let mut names = Vec::new();
    for DirEntry { name, .. } in list(files, &dir).await?.into_iter().filter(|e| file_start(&e.name).is_some()) {
        let path = dir.join(&name);
        match length(files, &path).await? {
            len if len == queues.file_bytes() => {
                names.push(name);
                continue;
            }
            // Full of entries it may be, with another setting; else it is damaged.
            len if len > 0 && len.is_multiple_of(CqEntry::SIZE_BYTES) => {
                loaded.wrong = loaded.wrong.or(Some((path.clone(), len)));
            }
            _ => {}
        }
        loaded.damaged.push(path);
    }
    loaded.right = names.len();
    let (starts, holes) = contiguous(&names, queues.file_bytes());
    loaded.damaged.extend(holes.iter().map(|name| dir.join(name)));
    let good = starts.into_iter().map(|start| FoundFile { start, path: dir.join(file_name(start)) }).collect();
    let queue = queues.find_or_make(&topic, queue_id);
    queue.attach(files, good, clean).await.map_err(StoreError::io("open", &dir))?;
    Ok(loaded)
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
    for (key, value, least) in [("maxHashSlotNum", config.index_slots, 1), ("maxIndexNum", config.index_entries, 2)] {
        if value < least || value > i32::MAX as u32 {
            return bad(key, value.to_string(), "an index file needs at least one slot and two entries, below 2^31");
        }
    }
    if config.pool_enabled && config.pool_buffers == 0 {
        let reason = "messages that are taken into memory first need at least one buffer";
        return bad("transientStorePoolSize", "0".to_owned(), reason);
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

async fn are_blank(files: &Files, part: &Part, file_bytes: u64) -> Result<bool, StoreError> {
    for (_, path) in part {
        if !is_blank(files, path, file_bytes).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn wrong_log_length(path: &Path, found_bytes: u64, expected_bytes: u64) -> StoreError {
    StoreError::FileSize { path: path.to_owned(), found_bytes, expected_bytes, key: "mappedFileSizeCommitLog" }
}
