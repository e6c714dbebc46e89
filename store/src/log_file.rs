//! One file of the commit log.

use std::{
    io,
    path::{Path, PathBuf},
};

use host::fs::{Files, Mapping, OpenOptions};

use crate::warm_up::WarmUp;

/// A mapped file of the commit log, with blocks reserved for all of it, so that a write cannot lack space (SF13).
#[derive(Debug)]
pub(crate) struct LogFile {
    /// Position in the log of its first byte, which is its name too.
    pub(crate) start: u64,
    pub(crate) path: PathBuf,
    pub(crate) mapping: Mapping,
}

impl LogFile {
    /// Makes an empty file, durable with its name, and warm if that is wanted. A leftover of that name is replaced.
    pub(crate) async fn create(
        files: &Files,
        dir: &Path,
        start: u64,
        len: u64,
        warm_up: &WarmUp,
    ) -> io::Result<LogFile> {
        let path = dir.join(file_name(start));
        let made = match LogFile::fill(files, dir, &path, start, len).await {
            Ok(file) => warm_up.prepare(&file.mapping, &path).await.map(|()| file),
            failed => failed,
        };
        match made {
            Ok(file) => Ok(file),
            Err(error) => {
                // Half a file would only take the space that is missing. If it cannot be removed, recovery does it.
                drop(files.remove_file(&path).await);
                Err(error)
            }
        }
    }

    async fn fill(files: &Files, dir: &Path, path: &Path, start: u64, len: u64) -> io::Result<LogFile> {
        let file = files.open(path, OpenOptions::REPLACE).await?;
        file.allocate(len).await?;
        file.sync_all().await?;
        if !host::mutant!("no-directory-flush") {
            files.sync_dir(dir).await?;
        }
        Ok(LogFile { start, path: path.to_owned(), mapping: file.map(len).await? })
    }

    /// Maps an existing file, whose length the caller has checked.
    pub(crate) async fn open(files: &Files, path: PathBuf, start: u64, len: u64) -> io::Result<LogFile> {
        let mapping = files.open(&path, OpenOptions::WRITE).await?.map(len).await?;
        Ok(LogFile { start, path, mapping })
    }

    /// Reserves the blocks of a file that someone else may have made.
    pub(crate) async fn reserve(&self, files: &Files) -> io::Result<()> {
        let file = files.open(&self.path, OpenOptions::WRITE).await?;
        file.allocate(self.mapping.len()).await?;
        file.sync_all().await
    }

    /// Position in the log behind its last byte.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.mapping.len()
    }
}

/// The name of a file that starts at `start`: 20 digits, so that names sort as numbers.
pub(crate) fn file_name(start: u64) -> String {
    format!("{start:020}")
}

/// The start that a file name says; `None` if it is not 20 digits or too large for a position.
pub(crate) fn file_start(name: &str) -> Option<u64> {
    if name.len() != 20 || !name.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    name.parse().ok().filter(|&start| i64::try_from(start).is_ok())
}

/// The number of the queue whose files are in a directory of this name; `None` if it is not written as a number is.
pub(crate) fn queue_number(name: &str) -> Option<u32> {
    name.parse().ok().filter(|number: &u32| number.to_string() == name)
}

#[cfg(test)]
mod tests {
    use super::{file_name, file_start, queue_number};

    #[test]
    fn each_queue_has_one_directory() {
        assert_eq!((queue_number("0"), queue_number("4294967295")), (Some(0), Some(u32::MAX)));
        for name in ["", "00", "01", "+1", "-1", "1 ", "x", "4294967296"] {
            assert_eq!(queue_number(name), None, "{name}");
        }
    }

    #[test]
    fn names_are_twenty_digits() {
        assert_eq!(file_name(1_048_576), "00000000000001048576");
        assert_eq!(file_start("00000000000001048576"), Some(1_048_576));
        for name in ["1048576", "0000000000000104857x", "00000000000001048576.rewind", "99999999999999999999"] {
            assert_eq!(file_start(name), None, "{name}");
        }
    }
}
