//! Topics and groups that every broker has.

use message::{SCHEDULE_TOPIC, TEMPLATE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC};
use remoting::body::{SubscriptionGroupConfig, TopicConfig};

use crate::{
    config::BrokerConfig,
    topics::{PERM_ALL, PERM_INHERIT, PERM_READ_WRITE},
};

/// The topics that must exist. Source: `spec/store.md` 1.3, `spec/protocol.md` 16.4.
pub(crate) fn topics(config: &BrokerConfig) -> Vec<TopicConfig> {
    let BrokerConfig { cluster, name, .. } = config;
    let open = |is_open| if is_open { PERM_ALL } else { PERM_INHERIT };
    let levels = i32::try_from(config.store.delay_levels.max_level()).unwrap_or(i32::MAX);
    let mut topics = vec![
        topic(SCHEDULE_TOPIC, levels, PERM_READ_WRITE),
        topic("SELF_TEST_TOPIC", 1, PERM_READ_WRITE),
        topic("BenchmarkTest", 1024, PERM_READ_WRITE),
        topic("OFFSET_MOVED_EVENT", 1, PERM_READ_WRITE),
        topic(TRANS_HALF_TOPIC, 1, PERM_READ_WRITE),
        topic(TRANS_OP_HALF_TOPIC, 1, PERM_READ_WRITE),
        topic(cluster, 16, open(config.cluster_topic)),
        topic(&format!("{cluster}_REPLY_TOPIC"), 1, PERM_READ_WRITE),
        topic(name, 1, open(config.broker_topic)),
        topic(&format!("rmq_sys_REVIVE_LOG_{cluster}"), 8, PERM_READ_WRITE),
        topic(&format!("rmq_sys_SYNC_BROKER_MEMBER_{name}"), 1, PERM_INHERIT),
    ];
    if config.auto_create_topic {
        let queues = i32::try_from(config.default_topic_queues).unwrap_or(i32::MAX);
        topics.push(topic(TEMPLATE_TOPIC, queues, PERM_ALL));
    }
    if config.trace_topic_enabled {
        topics.push(topic(&config.trace_topic, 1, PERM_READ_WRITE));
    }
    topics
}

fn topic(name: &str, queues: i32, perm: i32) -> TopicConfig {
    TopicConfig {
        topic_name: name.to_owned(),
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm,
        ..TopicConfig::default()
    }
}

/// The groups that must exist. Source: `spec/protocol.md` 16.5.
pub(crate) fn groups() -> Vec<SubscriptionGroupConfig> {
    let names = [
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_RMQ_SYS_TRANS",
    ];
    let group =
        |name: &str| SubscriptionGroupConfig { group_name: name.to_owned(), ..SubscriptionGroupConfig::default() };
    names.into_iter().map(group).collect()
}
