//! Headers of requests that ask a broker for its state. Source: `spec/protocol.md` 11 and 12.2 to 12.5.

use crate::header::headers;

headers! {
    /// The version of the settings that the body lists.
    GetBrokerConfigResponseHeader {
        /// A data version as JSON text.
        version: String = "version",
    }

    /// Asks for the topics of a master, page by page in later releases.
    GetAllTopicConfigRequestHeader {
        topic_seq: Option<i32> = "topicSeq",
        /// A data version as JSON text.
        data_version: Option<String> = "dataVersion",
        max_topic_num: Option<i32> = "maxTopicNum",
    }

    /// How many topics there are in all.
    GetAllTopicConfigResponseHeader {
        total_topic_num: Option<i32> = "totalTopicNum",
    }

    /// Asks for the groups of a master, page by page in later releases.
    GetAllSubscriptionGroupRequestHeader {
        group_seq: Option<i32> = "groupSeq",
        /// A data version as JSON text.
        data_version: Option<String> = "dataVersion",
        max_group_num: Option<i32> = "maxGroupNum",
    }

    /// How many groups there are in all.
    GetAllSubscriptionGroupResponseHeader {
        total_group_num: Option<i32> = "totalGroupNum",
    }

    /// Replicas tell each other their replication addresses; request and response alike.
    ExchangeHaInfoHeader {
        master_ha_address: Option<String> = "masterHaAddress",
        master_flush_offset: Option<i64> = "masterFlushOffset",
        master_address: Option<String> = "masterAddress",
    }

    /// Sets the offset up to which the master is known to be durable.
    ResetMasterFlushOffsetHeader {
        master_flush_offset: Option<i64> = "masterFlushOffset",
    }

    /// Names one producer group.
    ProducerGroupRequestHeader {
        producer_group: String = "producerGroup",
    }

    /// Asks how far a group is.
    GetConsumeStatsRequestHeader {
        consumer_group: String = "consumerGroup",
        /// Absent or empty is every topic.
        topic: Option<String> = "topic",
        /// Separated by `;`; later releases.
        topic_list: Option<String> = "topicList",
    }

    /// Names one group.
    GroupRequestHeader {
        group: String = "group",
    }

    /// Asks for the subscription of a group to a topic.
    QuerySubscriptionRequestHeader {
        group: String = "group",
        topic: Option<String> = "topic",
    }

    /// Asks for the time span that a group has still to consume.
    QueryConsumeTimeSpanRequestHeader {
        topic: String = "topic",
        group: String = "group",
    }

    /// Asks for the smallest offsets among groups.
    QueryCorrectionOffsetRequestHeader {
        topic: String = "topic",
        compare_group: String = "compareGroup",
        /// Separated by commas.
        filter_groups: Option<String> = "filterGroups",
    }

    /// Names one figure.
    ViewBrokerStatsDataRequestHeader {
        stats_name: String = "statsName",
        stats_key: String = "statsKey",
    }

    /// Asks for the consume figures of all groups.
    GetBrokerConsumeStatsRequestHeader {
        is_order: bool = "isOrder",
    }

    /// Asks for entries of a consume queue.
    QueryConsumeQueueRequestHeader {
        topic: String = "topic",
        queue_id: i32 = "queueId",
        index: i64 = "index",
        count: i32 = "count",
        consumer_group: Option<String> = "consumerGroup",
    }

    /// Asks how far another kind of consume queue was written.
    CheckRocksdbCqWriteProgressRequestHeader {
        topic: Option<String> = "topic",
        check_store_time: Option<i64> = "checkStoreTime",
    }

    /// Asks for settings that are kept in another kind of store.
    ExportRocksdbConfigRequestHeader {
        config_type: Option<String> = "configType",
    }

    /// Starts a broker inside a container.
    AddBrokerRequestHeader {
        config_path: Option<String> = "configPath",
    }

    /// Stops a broker inside a container.
    RemoveBrokerRequestHeader {
        broker_name: String = "brokerName",
        broker_cluster_name: String = "brokerClusterName",
        broker_id: i64 = "brokerId",
    }

    /// How the commit log is read.
    SetCommitLogReadModeRequestHeader {
        /// 0 normal, 1 random.
        read_ahead_mode: Option<i32> = "READ_AHEAD_MODE",
    }

    /// Names one user, or a filter of user names.
    AuthUserRequestHeader {
        username: Option<String> = "username",
        filter: Option<String> = "filter",
    }

    /// Names one access rule, or filters of them.
    AuthAclRequestHeader {
        subject: Option<String> = "subject",
        policy_type: Option<String> = "policyType",
        resource: Option<String> = "resource",
        subject_filter: Option<String> = "subjectFilter",
        resource_filter: Option<String> = "resourceFilter",
    }
}
