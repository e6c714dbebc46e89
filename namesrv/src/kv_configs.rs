//! Small settings that brokers and tools keep on the name server, by namespace and key.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use host::{
    Host,
    fs::{Files, OpenOptions},
};
use serde::{Deserialize, Serialize};

/// The namespace of the order configurations of topics.
pub(crate) const ORDER_TOPIC_CONFIG: &str = "ORDER_TOPIC_CONFIG";

/// One namespace: key to value.
pub(crate) type Namespace = BTreeMap<String, String>;

/// The table of all namespaces and the file it is kept in.
pub(crate) struct KvConfigs {
    files: Files,
    path: PathBuf,
    /// Leaf lock: nothing else is locked while it is held.
    table: Mutex<BTreeMap<String, Namespace>>,
    /// One writer of the file at a time, each writing what the table holds when its turn comes.
    writing: tokio::sync::Mutex<()>,
}

/// The file. Source: the reference's `KVConfigSerializeWrapper`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    #[serde(default)]
    config_table: BTreeMap<String, Namespace>,
}

impl KvConfigs {
    /// Reads the file at `path`; a missing one is an empty table.
    ///
    /// # Errors
    /// If it cannot be read, or holds something else (`InvalidData`).
    pub(crate) async fn load(host: &Host, path: &Path) -> io::Result<KvConfigs> {
        let files = host.files();
        let table = match files.read(path).await {
            Ok(content) if content.is_empty() => BTreeMap::new(),
            Ok(content) => serde_json::from_slice::<Stored>(&content)?.config_table,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        let writing = tokio::sync::Mutex::new(());
        Ok(KvConfigs { files, path: path.to_owned(), table: Mutex::new(table), writing })
    }

    /// The value of a key.
    pub(crate) fn get(&self, namespace: &str, key: &str) -> Option<String> {
        self.table().get(namespace).and_then(|keys| keys.get(key)).cloned()
    }

    /// All keys of a namespace; `None` if it never existed.
    pub(crate) fn namespace(&self, namespace: &str) -> Option<Namespace> {
        self.table().get(namespace).cloned()
    }

    /// Sets a key, and returns when the file has it.
    ///
    /// # Errors
    /// If the file cannot be written; the table has the value all the same.
    pub(crate) async fn put(&self, namespace: String, key: String, value: String) -> io::Result<()> {
        self.table().entry(namespace).or_default().insert(key, value);
        self.persist().await
    }

    /// Removes a key; the namespace stays, even empty. Returns when the file agrees.
    ///
    /// # Errors
    /// If the file cannot be written; the table lacks the key all the same.
    pub(crate) async fn delete(&self, namespace: &str, key: &str) -> io::Result<()> {
        if let Some(keys) = self.table().get_mut(namespace) {
            keys.remove(key);
        }
        self.persist().await
    }

    /// Replaces the file: first a new one beside it, made durable, then the rename.
    async fn persist(&self) -> io::Result<()> {
        let _turn = self.writing.lock().await;
        let text = serde_json::to_vec_pretty(&Stored { config_table: self.table().clone() })?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.files.create_dir_all(folder).await?;
        let fresh = self.path.with_extension("json.tmp");
        let file = self.files.open(&fresh, OpenOptions::REPLACE).await?;
        file.write_all_at(&text, 0)?;
        file.sync_all().await?;
        self.files.rename(&fresh, &self.path).await?;
        self.files.sync_dir(folder).await
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Namespace>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/kvConfig.json");
        host::real::run("ns", |host| async move {
            let configs = KvConfigs::load(&host, &path).await.unwrap();
            assert_eq!(configs.namespace("n"), None);
            configs.put("n".to_owned(), "k".to_owned(), "v".to_owned()).await.unwrap();
            configs.put("n".to_owned(), "gone".to_owned(), "v".to_owned()).await.unwrap();
            configs.delete("n", "gone").await.unwrap();
            let again = KvConfigs::load(&host, &path).await.unwrap();
            assert_eq!(again.get("n", "k").as_deref(), Some("v"));
            assert_eq!(again.get("n", "gone"), None);
        })
        .unwrap();
    }

    #[test]
    fn damaged_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kvConfig.json");
        std::fs::write(&path, "{\"configTable\":").unwrap();
        let kind =
            host::real::run(
                "ns",
                |host| async move { KvConfigs::load(&host, &path).await.err().map(|error| error.kind()) },
            );
        assert_eq!(kind.unwrap(), Some(io::ErrorKind::UnexpectedEof));
    }
}
