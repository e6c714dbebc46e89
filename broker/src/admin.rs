//! Topics and groups as administrators change them.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use host::Host;
use message::{is_system_topic, validate_group, validate_topic};
use remoting::{
    CreateTopicRequestHeader, DeleteSubscriptionGroupRequestHeader, Reply, Response, ResponseCode, TopicRequestHeader,
    body::{
        Body, CreateTopicListRequest, SubscriptionGroupConfig, SubscriptionGroupList, TopicConfig, TopicFilterType,
    },
};

use crate::{
    failure,
    groups::Groups,
    offsets::ConsumerOffsets,
    topics::{self, Topics},
};

/// Attributes of topics. Source: `spec/protocol.md` 12.1.
const ATTRIBUTES: [&str; 4] = ["queue.type", "cleanup.policy", "message.type", "reserve.time"];

/// Changes topics and groups. An answer comes when the change is in its file.
pub(crate) struct Admin {
    pub(crate) host: Host,
    pub(crate) topics: Arc<Topics>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) offsets: Arc<ConsumerOffsets>,
}

impl Admin {
    /// Creates a topic or replaces its settings.
    pub(crate) fn put_topic(&self, header: CreateTopicRequestHeader) -> Reply {
        let before = self.topics.config(&header.topic).map(|config| config.attributes).unwrap_or_default();
        let topic_filter_type = match header.topic_filter_type.as_str() {
            "SINGLE_TAG" => TopicFilterType::SingleTag,
            "MULTI_TAG" => TopicFilterType::MultiTag,
            other => return system_error(format!("topicFilterType = [{other}] value invalid")).into(),
        };
        let attributes = match changed_attributes(before, header.attributes.as_deref().unwrap_or_default()) {
            Ok(attributes) => attributes,
            Err(problem) => return system_error(problem).into(),
        };
        self.put_topics(vec![TopicConfig {
            attributes,
            order: header.order,
            perm: header.perm,
            read_queue_nums: header.read_queue_nums,
            topic_filter_type,
            topic_name: header.topic,
            topic_sys_flag: header.topic_sys_flag.unwrap_or(0),
            write_queue_nums: header.write_queue_nums,
        }])
    }

    /// Creates or replaces several topics, or none of them.
    pub(crate) fn put_topic_list(&self, body: &Bytes) -> Reply {
        match CreateTopicListRequest::decode(body) {
            Ok(request) => self.put_topics(request.topic_config_list),
            Err(error) => system_error(error.to_string()).into(),
        }
    }

    fn put_topics(&self, configs: Vec<TopicConfig>) -> Reply {
        if let Some(refused) = configs.iter().find_map(|config| check_topic(config).err()) {
            return refused.into();
        }
        let revision = self.topics.put(configs, self.host.wall_ms());
        self.when_topics_saved(revision)
    }

    /// Forgets a topic and the offsets in it. Its messages stay until they expire.
    pub(crate) fn delete_topic(&self, header: &TopicRequestHeader) -> Reply {
        if let Err(refused) = check_topic_name(&header.topic) {
            return refused.into();
        }
        self.offsets.remove_topic(&header.topic);
        match self.topics.remove(&header.topic, self.host.wall_ms()) {
            Some(revision) => self.when_topics_saved(revision),
            None => Response::success().into(),
        }
    }

    /// Creates a group or replaces its settings.
    pub(crate) fn put_group(&self, body: &Bytes) -> Reply {
        match SubscriptionGroupConfig::decode(body) {
            Ok(config) => self.put_groups(vec![config]),
            Err(error) => system_error(error.to_string()).into(),
        }
    }

    /// Creates or replaces several groups, or none of them.
    pub(crate) fn put_group_list(&self, body: &Bytes) -> Reply {
        match SubscriptionGroupList::decode(body) {
            Ok(list) => self.put_groups(list.group_config_list),
            Err(error) => system_error(error.to_string()).into(),
        }
    }

    fn put_groups(&self, configs: Vec<SubscriptionGroupConfig>) -> Reply {
        if let Some(error) = configs.iter().find_map(|config| validate_group(&config.group_name).err()) {
            return Response::failure(ResponseCode::INVALID_PARAMETER, error.to_string()).into();
        }
        let revision = self.groups.put(configs, self.host.wall_ms());
        self.when_groups_saved(revision)
    }

    /// Forgets a group, and its offsets if that is wanted.
    pub(crate) fn delete_group(&self, header: &DeleteSubscriptionGroupRequestHeader) -> Reply {
        if header.clean_offset.or(header.remove_offset).unwrap_or(false) {
            self.offsets.remove_group(&header.group_name);
        }
        match self.groups.remove(&header.group_name, self.host.wall_ms()) {
            Some(revision) => self.when_groups_saved(revision),
            None => Response::success().into(),
        }
    }

    fn when_topics_saved(&self, revision: u64) -> Reply {
        let topics = Arc::clone(&self.topics);
        Reply::later(async move {
            topics.saved(revision).await.map_or_else(|error| failure::save(&error), |()| Response::success())
        })
    }

    fn when_groups_saved(&self, revision: u64) -> Reply {
        let groups = Arc::clone(&self.groups);
        Reply::later(async move {
            groups.saved(revision).await.map_or_else(|error| failure::save(&error), |()| Response::success())
        })
    }
}

fn check_topic_name(topic: &str) -> Result<(), Response> {
    let invalid = |remark: String| Response::failure(ResponseCode::INVALID_PARAMETER, remark);
    validate_topic(topic).map_err(|error| invalid(error.to_string()))?;
    if is_system_topic(topic) {
        return Err(invalid(format!("The topic[{topic}] is conflict with system topic.")));
    }
    Ok(())
}

fn check_topic(config: &TopicConfig) -> Result<(), Response> {
    let topic = &config.topic_name;
    let invalid = |remark: String| Err(Response::failure(ResponseCode::INVALID_PARAMETER, remark));
    check_topic_name(topic)?;
    if let Err(problem) = topics::check_config(config) {
        return invalid(problem);
    }
    if config.attributes.get("message.type").is_some_and(|kind| kind == "MIXED") {
        return invalid("MIXED message type is not supported.".to_owned());
    }
    for (name, kept) in [("queue.type", "SimpleCQ"), ("cleanup.policy", "DELETE")] {
        if let Some(value) = config.attributes.get(name).filter(|value| *value != kept) {
            return Err(system_error(format!("{name}={value} of topic {topic} is not supported")));
        }
    }
    Ok(())
}

/// Attributes after a change such as `+message.type=FIFO,-reserve.time`.
fn changed_attributes(
    mut attributes: BTreeMap<String, String>,
    change: &str,
) -> Result<BTreeMap<String, String>, String> {
    for part in change.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let known = |name: &str| {
            if ATTRIBUTES.contains(&name) { Ok(()) } else { Err(format!("unsupported key: {name}")) }
        };
        if let Some(name) = part.strip_prefix('-') {
            known(name)?;
            attributes.remove(name);
        } else if let Some((name, value)) = part.strip_prefix('+').and_then(|pair| pair.split_once('=')) {
            known(name)?;
            attributes.insert(name.to_owned(), value.to_owned());
        } else {
            return Err(format!("`{part}` is neither +key=value nor -key"));
        }
    }
    Ok(attributes)
}

fn system_error(remark: String) -> Response {
    Response::failure(ResponseCode::SYSTEM_ERROR, remark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_added_changed_and_removed() {
        let before = BTreeMap::from([("reserve.time".to_owned(), "7".to_owned())]);
        let after = changed_attributes(before.clone(), "+message.type=FIFO, -reserve.time").unwrap();
        assert_eq!(after, BTreeMap::from([("message.type".to_owned(), "FIFO".to_owned())]));
        assert_eq!(changed_attributes(before.clone(), "").unwrap(), before);
        assert_eq!(changed_attributes(before.clone(), "+x=1").unwrap_err(), "unsupported key: x");
        assert_eq!(changed_attributes(before, "x").unwrap_err(), "`x` is neither +key=value nor -key");
    }

    #[test]
    fn topics_that_cannot_be_are_refused() {
        let code = |config: TopicConfig| check_topic(&config).err().map(|refused| refused.code);
        let topic = |name: &str| TopicConfig { topic_name: name.to_owned(), ..TopicConfig::default() };
        assert_eq!(code(topic("t")), None);
        assert_eq!(code(topic("a b")), Some(ResponseCode::INVALID_PARAMETER));
        assert_eq!(code(topic("TBW102")), Some(ResponseCode::INVALID_PARAMETER));
        assert_eq!(code(TopicConfig { perm: 9, ..topic("t") }), Some(ResponseCode::INVALID_PARAMETER));
        assert_eq!(code(TopicConfig { read_queue_nums: -1, ..topic("t") }), Some(ResponseCode::INVALID_PARAMETER));
        let batch = BTreeMap::from([("queue.type".to_owned(), "BatchCQ".to_owned())]);
        assert_eq!(code(TopicConfig { attributes: batch, ..topic("t") }), Some(ResponseCode::SYSTEM_ERROR));
    }
}
