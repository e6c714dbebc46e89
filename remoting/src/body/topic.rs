//! The settings of topics.

use std::collections::BTreeMap;

use super::{TopicQueueMappingInfo, bodies, names};

bodies! {
    /// The version of a table: it changes whenever the table does.
    DataVersion {
        counter: i64 = "counter",
        /// The epoch of the controller; 0 without one.
        state_version: i64 = "stateVersion",
        /// Milliseconds since 1970.
        timestamp: i64 = "timestamp",
    }

    /// The settings of one topic.
    TopicConfig {
        attributes: BTreeMap<String, String> = "attributes",
        order: bool = "order",
        /// 2 write, 4 read, 1 inherit.
        perm: i32 = "perm" or 6,
        read_queue_nums: i32 = "readQueueNums" or 16,
        topic_filter_type: TopicFilterType = "topicFilterType",
        topic_name: String = "topicName",
        /// 1 of a unit, 2 with subscriptions of a unit.
        topic_sys_flag: i32 = "topicSysFlag",
        write_queue_nums: i32 = "writeQueueNums" or 16,
    }

    /// The topics of a broker, as it registers and saves them.
    TopicConfigSerializeWrapper {
        data_version: DataVersion = "dataVersion",
        mapping_data_version: Option<DataVersion> = "mappingDataVersion",
        /// By topic.
        topic_config_table: BTreeMap<String, TopicConfig> = "topicConfigTable",
        /// Static topics in detail.
        topic_queue_mapping_detail_map: BTreeMap<String, crate::json::Json> = "topicQueueMappingDetailMap",
        /// Static topics.
        topic_queue_mapping_info_map: BTreeMap<String, TopicQueueMappingInfo> = "topicQueueMappingInfoMap",
    }

    /// Topics to create or replace.
    CreateTopicListRequest {
        topic_config_list: Vec<TopicConfig> = "topicConfigList",
    }
}

names! {
    /// Whether a message of the topic has one tag or several.
    TopicFilterType {
        /// One.
        #[default]
        SingleTag = "SINGLE_TAG",
        /// Several.
        MultiTag = "MULTI_TAG",
    }
}
