//! The consumer groups of a broker, as they are configured.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use remoting::body::{DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper};

use crate::{
    table_file::{SaveError, TableFile},
    topics::QUEUES_MAX,
};

/// The bit of a forbidden mask that takes the right to read. Source: the reference's `PermName.INDEX_PERM_READ`.
const FORBIDDEN_READ: i32 = 1 << 2;

/// The longest name that any version of the reference took. Source: `spec/protocol.md` 16.1.
const NAME_BYTES_MAX: usize = 255;

/// All consumer groups, their version, and the file `subscriptionGroup.json` that follows every change.
#[derive(Debug)]
pub(crate) struct Groups {
    unknown: Unknown,
    /// Leaf lock: nothing else is locked while it is held.
    inner: Mutex<Inner>,
    file: TableFile,
}

/// What becomes of a group that nobody knows when somebody uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// It does not exist.
    Refused,
    /// It is made, with the defaults.
    Made,
    /// It is taken to have the defaults, and not made: a slave gets its groups from its master.
    Assumed,
}

#[derive(Debug)]
struct Inner {
    table: BTreeMap<String, SubscriptionGroupConfig>,
    /// Which group may not read which topic, as other brokers wrote it.
    forbidden: BTreeMap<String, BTreeMap<String, i32>>,
    version: DataVersion,
    /// Counts changes in memory; `version` is what others see.
    revision: u64,
}

/// A group, and the change that must be in the file before the group is relied on.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) config: SubscriptionGroupConfig,
    pub(crate) revision: u64,
}

/// Looks for groups that no broker could have made. Others than this one may allow longer names.
///
/// # Errors
/// The first one, with what is wrong.
pub(crate) fn check(stored: &SubscriptionGroupWrapper) -> Result<(), String> {
    for (name, config) in &stored.subscription_group_table {
        if config.group_name != *name {
            return Err(format!("group {name} is called `{}` inside", config.group_name));
        }
        if !message::is_legal_name(name) || name.len() > NAME_BYTES_MAX {
            return Err(format!("the group name `{name}` is not legal"));
        }
        if !(0..=QUEUES_MAX).contains(&config.retry_queue_nums) {
            let count = config.retry_queue_nums;
            return Err(format!("group {name} cannot have {count} retry queues, only 0 to {QUEUES_MAX}"));
        }
    }
    Ok(())
}

impl Groups {
    /// The table that was stored.
    pub(crate) fn new(stored: SubscriptionGroupWrapper, unknown: Unknown) -> Groups {
        let inner = Inner {
            table: stored.subscription_group_table,
            forbidden: stored.forbidden_table,
            version: stored.data_version,
            revision: 0,
        };
        Groups { unknown, inner: Mutex::new(inner), file: TableFile::new() }
    }

    /// The file that follows the table.
    pub(crate) fn file(&self) -> &TableFile {
        &self.file
    }

    /// A group that exists.
    pub(crate) fn get(&self, group: &str) -> Option<SubscriptionGroupConfig> {
        self.lock().table.get(group).cloned()
    }

    /// A group; if it does not exist, what becomes of unknown ones.
    pub(crate) fn get_or_create(&self, group: &str, now_ms: i64) -> Option<Group> {
        let mut inner = self.lock();
        if let Some(config) = inner.table.get(group) {
            return Some(Group { config: config.clone(), revision: 0 });
        }
        if self.unknown == Unknown::Refused || message::validate_group(group).is_err() {
            return None;
        }
        let config = SubscriptionGroupConfig { group_name: group.to_owned(), ..SubscriptionGroupConfig::default() };
        if self.unknown == Unknown::Assumed {
            return Some(Group { config, revision: 0 });
        }
        let revision = inner.put(config.clone(), now_ms);
        self.file.changed(revision);
        Some(Group { config, revision })
    }

    /// Whether a group may not read a topic.
    pub(crate) fn is_read_forbidden(&self, group: &str, topic: &str) -> bool {
        let inner = self.lock();
        let mask = inner.forbidden.get(group).and_then(|topics| topics.get(topic));
        mask.is_some_and(|mask| mask & FORBIDDEN_READ != 0)
    }

    /// Adds groups or replaces them. Returns the change to wait for.
    pub(crate) fn put(&self, configs: Vec<SubscriptionGroupConfig>, now_ms: i64) -> u64 {
        let mut inner = self.lock();
        for config in configs {
            inner.put(config, now_ms);
        }
        self.file.changed(inner.revision);
        inner.revision
    }

    /// Removes a group. Returns the change to wait for, if there was such a group.
    pub(crate) fn remove(&self, group: &str, now_ms: i64) -> Option<u64> {
        let mut inner = self.lock();
        inner.table.remove(group)?;
        let revision = inner.next_revision(now_ms);
        self.file.changed(revision);
        Some(revision)
    }

    /// Takes the table of the master, if its version is another one than this table's.
    ///
    /// # Errors
    /// A group that cannot be, with what is wrong; the table is as before then.
    pub(crate) fn replace(&self, copied: SubscriptionGroupWrapper) -> Result<(), String> {
        check(&copied)?;
        let mut inner = self.lock();
        if inner.version != copied.data_version {
            inner.revision += 1;
            inner.table = copied.subscription_group_table;
            inner.forbidden = copied.forbidden_table;
            inner.version = copied.data_version;
            self.file.changed(inner.revision);
        }
        Ok(())
    }

    /// Whether the file has the change already.
    pub(crate) fn is_saved(&self, revision: u64) -> bool {
        self.file.is_saved(revision)
    }

    /// Ends when the file has the change.
    ///
    /// # Errors
    /// If it could not be written.
    pub(crate) async fn saved(&self, revision: u64) -> Result<(), SaveError> {
        self.file.saved(revision).await
    }

    /// The whole table, and the change it stands for.
    pub(crate) fn snapshot(&self) -> (u64, SubscriptionGroupWrapper) {
        let inner = self.lock();
        let stored = SubscriptionGroupWrapper {
            data_version: inner.version.clone(),
            forbidden_table: inner.forbidden.clone(),
            subscription_group_table: inner.table.clone(),
        };
        (inner.revision, stored)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn next_revision(&mut self, now_ms: i64) -> u64 {
        self.revision += 1;
        self.version.counter = self.version.counter.wrapping_add(1); // A file may say anything.
        self.version.timestamp = now_ms;
        self.revision
    }

    fn put(&mut self, config: SubscriptionGroupConfig, now_ms: i64) -> u64 {
        self.table.insert(config.group_name.clone(), config);
        self.next_revision(now_ms)
    }
}
