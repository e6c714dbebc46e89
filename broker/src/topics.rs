//! The topics of a broker.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use indexmap::IndexMap;
use message::validate_topic;
use remoting::body::{DataVersion, TopicConfig, TopicConfigSerializeWrapper, TopicFilterType};
use serde::{Deserialize, Serialize};
use store::Store;

use crate::{
    config::Role,
    table_file::{SaveError, TableFile},
};

/// Lets new topics inherit from this one.
pub(crate) const PERM_INHERIT: i32 = 1;
/// Allows pulls.
const PERM_READ: i32 = 4;
/// Allows sends and pulls.
pub(crate) const PERM_READ_WRITE: i32 = 6;
/// Allows everything.
pub(crate) const PERM_ALL: i32 = 7;

/// Most queues that a topic may have, so that a slip of the hand does not fill the disk with queue files.
pub(crate) const QUEUES_MAX: i32 = 65_536;

/// All topics, their version, and the file `topics.json` that follows every change.
#[derive(Debug)]
pub(crate) struct Topics {
    /// Leaf lock: nothing else is locked while it is held.
    inner: Mutex<Inner>,
    file: TableFile,
}

#[derive(Debug)]
struct Inner {
    table: IndexMap<String, Topic>,
    version: DataVersion,
    /// Counts changes in memory; `version` is what others see.
    revision: u64,
}

#[derive(Debug)]
struct Topic {
    config: TopicConfig,
    /// The change that created it.
    created: u64,
}

/// What a send or pull needs to know of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TopicShape {
    pub(crate) read_queues: u32,
    pub(crate) write_queues: u32,
    pub(crate) is_readable: bool,
    pub(crate) is_ordered: bool,
    pub(crate) is_multi_tag: bool,
    pub(crate) sys_flag: i32,
    /// The change that created it; see [`Topics::is_saved`].
    pub(crate) created: u64,
}

/// Whether a topic that is in no table came to a slave with the log, before it comes with the tables: then the log has
/// messages in this queue.
pub(crate) fn came_with_the_log(role: Role, store: &Store, topic: &str, queue: u32) -> bool {
    !role.is_master() && store.max_offset(topic, queue).0 > 0
}

impl TopicShape {
    /// Of a topic of which nothing is known but that the log has messages in this queue.
    pub(crate) fn of_log(queue: u32) -> TopicShape {
        TopicShape {
            read_queues: queue + 1,
            write_queues: 0,
            is_readable: true,
            is_ordered: false,
            is_multi_tag: false,
            sys_flag: 0,
            created: 0,
        }
    }
}

/// How a topic follows from another one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Derived<'a> {
    pub(crate) template: &'a str,
    /// How many queues it should have; it gets at most those of the template.
    pub(crate) queues: u32,
    pub(crate) sys_flag: i32,
}

/// The file `topics.json`. Source: `spec/store.md` 1.3.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StoredTopics {
    pub(crate) data_version: DataVersion,
    pub(crate) topic_config_table: BTreeMap<String, TopicConfig>,
}

impl StoredTopics {
    /// Looks for topics that no request could have made.
    ///
    /// # Errors
    /// The first one, with what is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (name, config) in &self.topic_config_table {
            check_named(name, config)?;
        }
        Ok(())
    }
}

/// What holds for an entry of a table.
fn check_named(name: &str, config: &TopicConfig) -> Result<(), String> {
    if config.topic_name != *name {
        return Err(format!("topic {name} is called `{}` inside", config.topic_name));
    }
    check_config(config)
}

/// What holds for every topic, whoever made it.
///
/// # Errors
/// What is wrong.
pub(crate) fn check_config(config: &TopicConfig) -> Result<(), String> {
    let topic = &config.topic_name;
    validate_topic(topic).map_err(|error| error.to_string())?;
    if !(0..=PERM_ALL).contains(&config.perm) {
        return Err(format!("perm {} of topic {topic} is not from 0 to {PERM_ALL}", config.perm));
    }
    for count in [config.read_queue_nums, config.write_queue_nums] {
        if !(0..=QUEUES_MAX).contains(&count) {
            return Err(format!("topic {topic} cannot have {count} queues, only 0 to {QUEUES_MAX}"));
        }
    }
    Ok(())
}

impl Topics {
    /// The table that was stored.
    pub(crate) fn new(stored: StoredTopics) -> Topics {
        let table =
            stored.topic_config_table.into_iter().map(|(name, config)| (name, Topic { config, created: 0 })).collect();
        let inner = Inner { table, version: stored.data_version, revision: 0 };
        Topics { inner: Mutex::new(inner), file: TableFile::new() }
    }

    /// The file that follows the table.
    pub(crate) fn file(&self) -> &TableFile {
        &self.file
    }

    /// What a send or pull needs to know, if the topic exists.
    pub(crate) fn shape(&self, topic: &str) -> Option<TopicShape> {
        self.lock().table.get(topic).map(Topic::shape)
    }

    /// Everything about a topic.
    pub(crate) fn config(&self, topic: &str) -> Option<TopicConfig> {
        self.lock().table.get(topic).map(|topic| topic.config.clone())
    }

    /// Adds topics or replaces them. Returns the change to wait for with [`saved`](Self::saved).
    pub(crate) fn put(&self, configs: Vec<TopicConfig>, now_ms: i64) -> u64 {
        let mut inner = self.lock();
        let revision = inner.next_revision(now_ms);
        for config in configs {
            inner.put(config, revision);
        }
        self.file.changed(revision);
        revision
    }

    /// The topic, made from a template if it does not exist. `None` if the template does not let it.
    ///
    /// Source: the reference's `TopicConfigManager.createTopicInSendMessageMethod`.
    pub(crate) fn derive(&self, topic: &str, from: Derived<'_>, now_ms: i64) -> Option<TopicShape> {
        let mut inner = self.lock();
        if let Some(known) = inner.table.get(topic) {
            return Some(known.shape());
        }
        let template = &inner.table.get(from.template)?.config;
        if template.perm & PERM_INHERIT == 0 {
            return None;
        }
        let queues = i32::try_from(from.queues).unwrap_or(i32::MAX).min(template.write_queue_nums);
        let config = TopicConfig {
            topic_name: topic.to_owned(),
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm: template.perm & !PERM_INHERIT,
            topic_filter_type: template.topic_filter_type,
            topic_sys_flag: from.sys_flag,
            ..TopicConfig::default()
        };
        Some(self.insert(&mut inner, config, now_ms))
    }

    /// The topic, made with `queues` that can be read and written if it does not exist.
    pub(crate) fn make(&self, topic: &str, queues: u32, sys_flag: i32, now_ms: i64) -> TopicShape {
        let mut inner = self.lock();
        if let Some(known) = inner.table.get(topic) {
            return known.shape();
        }
        let queues = i32::try_from(queues).unwrap_or(i32::MAX);
        let config = TopicConfig {
            topic_name: topic.to_owned(),
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm: PERM_READ_WRITE,
            topic_sys_flag: sys_flag,
            ..TopicConfig::default()
        };
        self.insert(&mut inner, config, now_ms)
    }

    /// Removes a topic. Returns the change to wait for, if there was such a topic.
    pub(crate) fn remove(&self, topic: &str, now_ms: i64) -> Option<u64> {
        let mut inner = self.lock();
        inner.table.shift_remove(topic)?;
        let revision = inner.next_revision(now_ms);
        self.file.changed(revision);
        Some(revision)
    }

    /// Takes the table of the master, if its version is another one than this table's. Everybody sees either the old
    /// table or the new one. Topics that cannot be are left out; gives back what is wrong with them.
    pub(crate) fn replace(&self, version: DataVersion, configs: BTreeMap<String, TopicConfig>) -> Vec<String> {
        let mut inner = self.lock();
        if inner.version == version {
            return Vec::new();
        }
        let (mut table, mut problems) = (IndexMap::new(), Vec::new());
        inner.revision += 1;
        for (name, config) in configs {
            match check_named(&name, &config) {
                Ok(()) => {
                    let created = inner.table.get(&name).map_or(inner.revision, |topic| topic.created);
                    table.insert(name, Topic { config, created });
                }
                Err(problem) => problems.push(problem),
            }
        }
        inner.table = table;
        inner.version = version;
        self.file.changed(inner.revision);
        problems
    }

    /// Whether the file has the change already, so that nothing needs to wait for it.
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
    pub(crate) fn snapshot(&self) -> (u64, StoredTopics) {
        let inner = self.lock();
        let topic_config_table = inner.table.iter().map(|(name, topic)| (name.clone(), topic.config.clone())).collect();
        (inner.revision, StoredTopics { data_version: inner.version.clone(), topic_config_table })
    }

    /// The table as brokers register it and replicas read it.
    pub(crate) fn wrapper(&self) -> TopicConfigSerializeWrapper {
        let stored = self.snapshot().1;
        TopicConfigSerializeWrapper {
            data_version: stored.data_version,
            topic_config_table: stored.topic_config_table.into_iter().collect(),
            ..TopicConfigSerializeWrapper::default()
        }
    }

    fn insert(&self, inner: &mut Inner, config: TopicConfig, now_ms: i64) -> TopicShape {
        let revision = inner.next_revision(now_ms);
        let topic = Topic { config, created: revision };
        let shape = topic.shape();
        inner.table.insert(topic.config.topic_name.clone(), topic);
        self.file.changed(revision);
        shape
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

    fn put(&mut self, config: TopicConfig, revision: u64) {
        let created = self.table.get(&config.topic_name).map_or(revision, |topic| topic.created);
        self.table.insert(config.topic_name.clone(), Topic { config, created });
    }
}

impl Topic {
    fn shape(&self) -> TopicShape {
        let config = &self.config;
        TopicShape {
            read_queues: u32::try_from(config.read_queue_nums).unwrap_or(0),
            write_queues: u32::try_from(config.write_queue_nums).unwrap_or(0),
            is_readable: config.perm & PERM_READ != 0,
            is_ordered: config.order,
            is_multi_tag: config.topic_filter_type == TopicFilterType::MultiTag,
            sys_flag: config.topic_sys_flag,
            created: self.created,
        }
    }
}

#[cfg(test)]
mod tests {
    use message::TEMPLATE_TOPIC;

    use super::*;

    fn topic(name: &str, queues: i32, perm: i32) -> TopicConfig {
        TopicConfig {
            topic_name: name.to_owned(),
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm,
            ..TopicConfig::default()
        }
    }

    fn empty() -> Topics {
        Topics::new(StoredTopics::default())
    }

    #[test]
    fn make_keeps_what_exists_and_put_replaces_it() {
        let topics = empty();
        let first = topics.make("t", 4, 0, 1);
        assert_eq!(topics.make("t", 8, 0, 2), first);
        topics.put(vec![topic("t", 8, 6)], 3);
        let shape = topics.shape("t").unwrap();
        assert_eq!((shape.write_queues, shape.created), (8, first.created));
        assert_eq!(topics.snapshot().1.data_version.counter, 2);
    }

    #[test]
    fn derived_topic_has_at_most_the_queues_of_its_template_and_does_not_inherit_further() {
        let topics = empty();
        topics.put(vec![topic(TEMPLATE_TOPIC, 8, 7), topic("closed", 8, 6)], 1);
        let derived = |template, queues| Derived { template, queues, sys_flag: 0 };
        assert_eq!(topics.derive("a", derived(TEMPLATE_TOPIC, 4), 2).unwrap().write_queues, 4);
        assert_eq!(topics.derive("b", derived(TEMPLATE_TOPIC, 99), 2).unwrap().write_queues, 8);
        assert_eq!(topics.config("a").unwrap().perm, 6);
        assert_eq!(topics.derive("c", derived("closed", 4), 2), None);
        assert_eq!(topics.derive("c", derived("a", 4), 2), None);
        assert_eq!(topics.derive("c", derived("nobody", 4), 2), None);
    }

    #[test]
    fn loaded_topics_are_saved_and_new_ones_are_not() {
        let table = BTreeMap::from([("old".to_owned(), topic("old", 1, 6))]);
        let topics = Topics::new(StoredTopics { topic_config_table: table, ..StoredTopics::default() });
        let new = topics.make("new", 1, 0, 1);
        assert!(topics.is_saved(topics.shape("old").unwrap().created));
        assert!(!topics.is_saved(new.created));
    }

    #[test]
    fn table_of_the_master_is_taken_whole_if_its_version_is_another() {
        let topics = empty();
        let kept = topics.make("kept", 4, 0, 1);
        topics.make("own", 4, 0, 1);
        let version = DataVersion { counter: 40, ..DataVersion::default() };
        let named = |name: &str, queues| (name.to_owned(), topic(name, queues, 6));
        let copied = BTreeMap::from([named("kept", 2), named("new", 1), ("bad".to_owned(), topic("other", 1, 6))]);
        assert_eq!(topics.replace(version.clone(), copied), ["topic bad is called `other` inside"]);
        assert_eq!(topics.snapshot().1.topic_config_table.keys().collect::<Vec<_>>(), ["kept", "new"]);
        let shape = topics.shape("kept").unwrap();
        assert_eq!((shape.write_queues, shape.created), (2, kept.created));
        assert!(!topics.is_saved(topics.snapshot().0));
        assert_eq!(topics.snapshot().1.data_version, version);
        topics.replace(version, BTreeMap::new());
        assert!(topics.shape("new").is_some(), "of the same version, it is the same table");
    }

    #[test]
    fn removed_topic_is_unknown() {
        let topics = empty();
        topics.make("t", 4, 0, 1);
        assert!(topics.remove("t", 2).is_some());
        assert_eq!(topics.shape("t"), None);
        assert_eq!(topics.remove("t", 3), None);
    }
}
