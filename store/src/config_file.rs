//! Small files of settings and offsets that must survive any crash.
//!
//! A new content is written beside the file, synced, read back, and only then renamed over it, after the content that
//! stood there has become the backup. So at every moment one of file and backup can be read.
//!
//! Source: `spec/store.md` 1.4, obligation SF03.

use std::{
    io,
    path::{Path, PathBuf},
};

use host::{
    Host,
    fs::{Files, OpenOptions},
};
use serde::{Serialize, de::DeserializeOwned};
use tracing::warn;

use crate::{StoreError, dirs::make_dir};

/// One JSON file and its backup `<file>.bak`. One owner at a time.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    files: Files,
    path: PathBuf,
}

impl ConfigFile {
    /// The file at `path`, which need not exist; its directory is made by [`save`](ConfigFile::save).
    ///
    /// # Panics
    /// Outside a node; see [`Host::current`].
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> ConfigFile {
        ConfigFile { files: Host::current().files(), path: path.into() }
    }

    /// Reads the file, or else its backup; `None` if neither exists. Integer keys may be written without quotes, as
    /// the reference does. Leftovers of an interrupted save are removed.
    ///
    /// # Errors
    /// [`StoreError::ConfigFile`] if one of the two exists and none can be read; I/O errors.
    pub async fn load<T: DeserializeOwned>(&self) -> Result<Option<T>, StoreError> {
        let dir = self.dir();
        if self.files.exists(dir).await.map_err(StoreError::io("look at", dir))? {
            // Whoever made the directory may have died before its name was durable.
            make_dir(&self.files, dir).await.map_err(StoreError::io("sync", dir))?;
        }
        for leftover in [self.beside("tmp"), self.beside("bak.tmp")] {
            self.remove_if_there(&leftover).await?;
        }
        let backup = self.beside("bak");
        let mut reason = None;
        for path in [&self.path, &backup] {
            match self.read::<T>(path).await? {
                Read::Value(value) => {
                    if let Some(reason) = &reason {
                        warn!(path = %self.path.display(), reason, "not readable, its backup is used");
                    }
                    return Ok(Some(value));
                }
                Read::Missing => {}
                Read::Bad(why) => reason = reason.or(Some(format!("{}: {why}", path.display()))),
            }
        }
        match reason {
            None => Ok(None),
            Some(reason) => Err(StoreError::ConfigFile { path: self.path.clone(), reason }),
        }
    }

    /// Replaces the content by `value` as strict JSON, indented. Durable when it returns. A content that
    /// [`load`](ConfigFile::load) could not read as `T` does not become the backup.
    ///
    /// # Errors
    /// I/O errors; file and backup hold what they held before then.
    pub async fn save<T: Serialize + DeserializeOwned>(&self, value: &T) -> Result<(), StoreError> {
        let text = serde_json::to_vec_pretty(value)
            .map_err(|error| StoreError::ConfigFile { path: self.path.clone(), reason: error.to_string() })?;
        let dir = self.dir();
        // The first save of a store makes the directory: a power loss must not take its name away again.
        if !self.files.exists(dir).await.map_err(StoreError::io("look at", dir))? {
            make_dir(&self.files, dir).await.map_err(StoreError::io("create", dir))?;
        }
        if host::mutant!("config-written-in-place") {
            let file = self.files.open(&self.path, OpenOptions::REPLACE).await;
            let written = file.and_then(|file| file.write_all_at(&text, 0));
            return written.map_err(StoreError::io("write", &self.path));
        }
        let new = self.beside("tmp");
        self.write(&new, &text).await.map_err(StoreError::io("write", &new))?;
        self.keep_backup::<T>().await?;
        self.files.rename(&new, &self.path).await.map_err(StoreError::io("rename", &new))?;
        self.files.sync_dir(dir).await.map_err(StoreError::io("sync", dir))
    }

    async fn write(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        let file = self.files.open(path, OpenOptions::REPLACE).await?;
        file.write_all_at(text, 0)?;
        file.sync_all().await?;
        let mut back = vec![0; text.len()];
        file.read_exact_at(&mut back, 0)?;
        if back != text {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "reads back differently"));
        }
        Ok(())
    }

    /// Gives the present content the name of the backup too, if it can be read: a damaged file must not replace the
    /// last good copy.
    async fn keep_backup<T: DeserializeOwned>(&self) -> Result<(), StoreError> {
        if !matches!(self.read::<T>(&self.path).await?, Read::Value(_)) {
            return Ok(());
        }
        let (link, backup) = (self.beside("bak.tmp"), self.beside("bak"));
        self.remove_if_there(&link).await?;
        self.files.hard_link(&self.path, &link).await.map_err(StoreError::io("link", &link))?;
        self.files.rename(&link, &backup).await.map_err(StoreError::io("rename", &link))?;
        // A rename between two names of one file does nothing: it happens when the last save got just this far.
        self.remove_if_there(&link).await
    }

    async fn read<T: DeserializeOwned>(&self, path: &Path) -> Result<Read<T>, StoreError> {
        let content = match self.files.read(path).await {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Read::Missing),
            Err(source) => return Err(StoreError::Io { op: "read", path: path.to_owned(), source }),
        };
        Ok(parse(&content).map_or_else(Read::Bad, Read::Value))
    }

    async fn remove_if_there(&self, path: &Path) -> Result<(), StoreError> {
        match self.files.remove_file(path).await {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::Io { op: "remove", path: path.to_owned(), source })
            }
            _ => Ok(()),
        }
    }

    fn dir(&self) -> &Path {
        self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    fn beside(&self, extension: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(extension);
        PathBuf::from(name)
    }
}

/// What such a file holds.
///
/// # Errors
/// Why it cannot be read, with the place in it.
pub fn parse<T: DeserializeOwned>(content: &[u8]) -> Result<T, String> {
    if content.is_empty() {
        return Err("it is empty".to_owned());
    }
    let text = std::str::from_utf8(content).map_err(|error| format!("byte {} is not UTF-8", error.valid_up_to()))?;
    serde_json::from_str(&quote_integer_keys(text)).map_err(|error| error.to_string())
}

enum Read<T> {
    Missing,
    Bad(String),
    Value(T),
}

/// Turns `{0:12}` into `{"0":12}`. The reference writes maps with integer keys without quotes, which is neither JSON nor
/// JSON5.
fn quote_integer_keys(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    let mut rest = text;
    let mut before = ' '; // The last character that is neither blank nor inside a string.
    while let Some(next) = rest.chars().next() {
        let taken = if next == '"' {
            string_length(rest)
        } else if matches!(before, '{' | ',') && (next == '-' || next.is_ascii_digit()) {
            let digits = rest.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(rest.len());
            if rest[digits..].trim_start().starts_with(':') {
                out.push('"');
                out.push_str(&rest[..digits]);
                out.push('"');
                rest = &rest[digits..];
                before = '0';
                continue;
            }
            digits
        } else {
            next.len_utf8()
        };
        if !next.is_whitespace() {
            before = next;
        }
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    out
}

/// Bytes of the string literal at the start of `text`, quotes included; all of `text` if it does not end.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{ConfigFile, quote_integer_keys};

    type Table = BTreeMap<u32, i64>;

    /// Runs `test` with a directory on the real machine.
    fn with_dir<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(std::path::PathBuf) -> F) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        host::real::run("test", |_| test(path)).unwrap();
    }

    #[test]
    fn integer_keys_without_quotes_are_read() {
        let text = r#"{"a":{0:4,-1 : 6}, "s":"{1:2, \"3:4", "l":[1,2,{7:8}]}"#;
        let expected = r#"{"a":{"0":4,"-1" : 6}, "s":"{1:2, \"3:4", "l":[1,2,{"7":8}]}"#;
        assert_eq!(quote_integer_keys(text), expected);
    }

    #[test]
    fn what_is_saved_is_loaded_and_the_one_before_is_the_backup() {
        with_dir(|dir| async move {
            let file = ConfigFile::new(dir.join("config/offsets.json"));
            assert_eq!(file.load::<Table>().await.unwrap(), None);
            for value in 1..4 {
                file.save(&Table::from([(0, value)])).await.unwrap();
            }
            assert_eq!(file.load::<Table>().await.unwrap(), Some(Table::from([(0, 3)])));
            std::fs::remove_file(dir.join("config/offsets.json")).unwrap();
            assert_eq!(file.load::<Table>().await.unwrap(), Some(Table::from([(0, 2)])));
        });
    }

    #[test]
    fn w09_a_damaged_file_never_replaces_a_good_backup() {
        with_dir(|dir| async move {
            let path = dir.join("offsets.json");
            let file = ConfigFile::new(&path);
            // What is damaged may still be JSON.
            for damaged in ["{0:", "[]", r#"{"0":"1"}"#] {
                file.save(&Table::from([(0, 1)])).await.unwrap();
                file.save(&Table::from([(0, 2)])).await.unwrap();
                std::fs::write(&path, damaged).unwrap();
                assert_eq!(file.load::<Table>().await.unwrap(), Some(Table::from([(0, 1)])));
                file.save(&Table::from([(0, 3)])).await.unwrap();
                let backup = std::fs::read_to_string(dir.join("offsets.json.bak")).unwrap();
                assert_eq!(serde_json::from_str::<Table>(&backup).ok(), Some(Table::from([(0, 1)])), "{damaged}");
            }
        });
    }

    #[test]
    fn w09_two_damaged_copies_are_an_error_and_not_an_empty_table() {
        with_dir(|dir| async move {
            let file = ConfigFile::new(dir.join("offsets.json"));
            std::fs::write(dir.join("offsets.json"), "").unwrap();
            let error = file.load::<Table>().await.unwrap_err().to_string();
            assert!(error.ends_with("offsets.json: it is empty"), "{error}");
            std::fs::write(dir.join("offsets.json.bak"), "{").unwrap();
            assert!(file.load::<Table>().await.is_err());
        });
    }

    #[test]
    fn a_save_that_stopped_at_any_step_loses_nothing() {
        with_dir(|dir| async move {
            let path = dir.join("offsets.json");
            let file = ConfigFile::new(&path);
            file.save(&Table::from([(0, 1)])).await.unwrap();
            // It stopped after the backup had become a second name of the file, and left both temporary files.
            std::fs::hard_link(&path, dir.join("offsets.json.bak")).unwrap();
            std::fs::hard_link(&path, dir.join("offsets.json.bak.tmp")).unwrap();
            std::fs::write(dir.join("offsets.json.tmp"), "{").unwrap();
            file.save(&Table::from([(0, 2)])).await.unwrap();
            assert_eq!(file.load::<Table>().await.unwrap(), Some(Table::from([(0, 2)])));
            assert!(!dir.join("offsets.json.tmp").exists() && !dir.join("offsets.json.bak.tmp").exists());
        });
    }

    proptest! {
        #[test]
        fn json_is_left_alone(table: BTreeMap<String, Vec<i32>>) {
            let text = serde_json::to_string(&table).unwrap();
            prop_assert_eq!(quote_integer_keys(&text), text);
        }

        #[test]
        fn garbage_never_panics(text: String) {
            drop(quote_integer_keys(&text));
        }
    }
}
