//! Small files of settings and offsets that must survive any crash.
//!
//! A new content is written beside the file, synced, read back, and only then renamed over it, after the content that
//! stood there has become the backup. So at every moment one of file and backup can be read.
//!
//! Source: `spec/store.md` 1.4, obligation SF03.

use std::path::PathBuf;

use serde::de::DeserializeOwned;

use crate::StoreError;

/// One JSON file and its backup `<file>.bak`. One owner at a time.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    path: PathBuf,
}

impl ConfigFile {
    /// The file at `path`, which need not exist; its directory is made by [`save`](ConfigFile::save).
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> ConfigFile {
        ConfigFile { path: path.into() }
    }

    /// Reads the file, or else its backup; `None` if neither exists. Integer keys may be written without quotes, as
    /// the reference does. A leftover of an interrupted save is removed.
    ///
    /// # Errors
    /// [`StoreError::ConfigFile`] if one of the two exists and none can be read; I/O errors.
    pub async fn load<T: DeserializeOwned>(&self) -> Result<Option<T>, StoreError> {
        todo!("{}", self.path.display())
    }

    /// Replaces the content by `value` as strict JSON, indented. Durable when it returns.
    ///
    /// # Errors
    /// I/O errors; file and backup are as before then.
    pub async fn save<T: serde::Serialize>(&self, value: &T) -> Result<(), StoreError> {
        let _ = value;
        todo!()
    }
}
