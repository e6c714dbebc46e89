//! What the tests of the store share.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    io,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use host::fs::DirEntry;
use message::{Draft, PhyOffset, QueueOffset, StoredMessage, SysFlag};
use staticfire_store::{
    GetRequest, GetResult, KeyQuery, Store, StoreConfig,
    audit::{AuditSource, Content},
};

/// The directory of the golden data; `None`, with a note, if nobody says where it is.
#[expect(clippy::disallowed_methods, reason = "the test harness says where the data is")]
pub fn golden() -> Option<PathBuf> {
    let Ok(dir) = std::env::var("STATICFIRE_GOLDEN") else {
        println!("skipped: STATICFIRE_GOLDEN is not set");
        return None;
    };
    Some(PathBuf::from(dir).join("apache-5.3.3"))
}

/// Runs `test` on the real machine, with a directory of its own.
pub fn on_machine<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(PathBuf) -> F) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    host::real::run("test", |_| test(path)).unwrap();
}

/// The machine's disk may be as full as it is: what a test needs of that it says itself.
pub fn any_disk(root: &Path) -> StoreConfig {
    StoreConfig {
        clean_file_forcibly: false,
        disk_max_used_percent: 100,
        disk_warning_override: Some(100),
        ..StoreConfig::new(root)
    }
}

/// Small files, so that a few hundred messages cross their borders.
pub fn config(root: &Path) -> StoreConfig {
    StoreConfig {
        commit_log_file_bytes: 16 << 10,
        consume_queue_file_bytes: 2000,
        index_slots: 20,
        index_entries: 50,
        ..any_disk(root)
    }
}

/// A message whose content follows from a number.
pub struct Text {
    pub topic: String,
    pub queue_id: u32,
    pub body: String,
    pub properties: String,
}

impl Text {
    pub fn new(topic: &str, queue_id: u32, number: u32) -> Text {
        Text {
            topic: topic.to_owned(),
            queue_id,
            body: format!("message {number} {}", "x".repeat(number as usize % 50)),
            properties: format!("TAGS\u{1}t{}\u{2}KEYS\u{1}k{number}\u{2}", number % 4),
        }
    }

    pub fn draft(&self) -> Draft<'_> {
        Draft {
            topic: &self.topic,
            queue_id: self.queue_id,
            flag: 0,
            sys_flag: SysFlag(0),
            born_ms: 1,
            born_host: "10.0.0.9:50000".parse().unwrap(),
            store_host: "10.0.0.1:10911".parse().unwrap(),
            reconsume_times: 0,
            prepared_phy: PhyOffset(0),
            body: self.body.as_bytes(),
            properties: &self.properties,
        }
    }
}

/// Waits until everything that was put can be read.
pub async fn settle(store: &Store) {
    let host = host::Host::current();
    for _ in 0..1000 {
        if store.dispatch_behind_bytes() == 0 {
            return;
        }
        host.sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("still {} bytes behind", store.dispatch_behind_bytes());
}

pub fn get(store: &Store, topic: &str, queue_id: u32, offset: u64) -> GetResult {
    store.get(&GetRequest {
        topic,
        queue_id,
        offset: QueueOffset(offset),
        max_count: 32,
        max_bytes: 1 << 20,
        filter: None,
    })
}

/// Positions of the messages of a topic with a key.
pub fn find(store: &Store, topic: &str, key: &str) -> Vec<PhyOffset> {
    let result = store.query(&KeyQuery { topic, key, max_count: 64, begin_ms: 0, end_ms: i64::MAX });
    let decode = |record: Bytes| StoredMessage::decode_all(record).unwrap().remove(0).phy;
    result.records.into_iter().map(decode).collect()
}

/// All messages of a queue, from its minimum on.
pub fn read_all(store: &Store, topic: &str, queue_id: u32) -> Vec<StoredMessage> {
    let mut all = Vec::new();
    let mut offset = store.min_offset(topic, queue_id);
    let max = store.max_offset(topic, queue_id);
    while offset < max {
        let result = get(store, topic, queue_id, offset.0);
        assert!(result.next > offset, "no progress at {offset:?}: {result:?}");
        for records in &result.records {
            all.extend(StoredMessage::decode_all(Bytes::clone(records)).unwrap());
        }
        offset = result.next;
    }
    all
}

/// A store in a directory.
pub struct Dir(pub PathBuf);

impl AuditSource for Dir {
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let entries = match std::fs::read_dir(self.0.join(dir)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let entry = |entry: io::Result<std::fs::DirEntry>| {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|name| io::Error::other(format!("{name:?}")))?;
            Ok(DirEntry { name, is_dir: std::fs::metadata(entry.path())?.is_dir() })
        };
        let mut entries = entries.map(entry).collect::<io::Result<Vec<_>>>()?;
        entries.sort();
        Ok(entries)
    }

    fn read(&self, file: &Path) -> io::Result<Content> {
        let bytes = std::fs::read(self.0.join(file))?;
        Ok(Content { len: bytes.len() as u64, bytes: Bytes::from(bytes) })
    }
}

/// Copies a directory with all that is in it.
pub fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            // Written anew, so that the copy of a read-only file can be changed.
            std::fs::write(target, std::fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

/// Every file under a directory with its content, except `lock`. Of a link to nothing it is what it points to.
pub fn snapshot(dir: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let mut all = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(snapshot(&path));
        } else if !path.exists() {
            all.insert(path.clone(), std::fs::read_link(path).unwrap().into_os_string().into_encoded_bytes());
        } else if path.file_name().unwrap() != "lock" {
            all.insert(path.clone(), std::fs::read(path).unwrap());
        }
    }
    all
}
