//! The settings of consumer groups.

use std::collections::BTreeMap;

use super::{DataVersion, SubscriptionData, bodies, names};

bodies! {
    /// The settings of one consumer group.
    SubscriptionGroupConfig {
        attributes: BTreeMap<String, String> = "attributes",
        broker_id: i64 = "brokerId",
        consume_broadcast_enable: bool = "consumeBroadcastEnable" or true,
        consume_enable: bool = "consumeEnable" or true,
        consume_from_min_enable: bool = "consumeFromMinEnable" or true,
        consume_message_orderly: bool = "consumeMessageOrderly",
        consume_timeout_minute: i32 = "consumeTimeoutMinute" or 15,
        group_name: String = "groupName",
        group_retry_policy: GroupRetryPolicy = "groupRetryPolicy",
        group_sys_flag: i32 = "groupSysFlag",
        notify_consumer_ids_changed_enable: bool = "notifyConsumerIdsChangedEnable" or true,
        retry_max_times: i32 = "retryMaxTimes" or 16,
        retry_queue_nums: i32 = "retryQueueNums" or 1,
        subscription_data_set: Option<Vec<SimpleSubscriptionData>> = "subscriptionDataSet",
        which_broker_when_consume_slowly: i64 = "whichBrokerWhenConsumeSlowly" or 1,
    }

    /// When a message is delivered again.
    GroupRetryPolicy {
        customized_retry_policy: Option<CustomizedRetryPolicy> = "customizedRetryPolicy",
        exponential_retry_policy: Option<ExponentialRetryPolicy> = "exponentialRetryPolicy",
        kind: GroupRetryPolicyType = "type",
    }

    /// After pauses that are listed.
    CustomizedRetryPolicy {
        /// Milliseconds.
        next: Vec<i64> = "next",
    }

    /// After pauses that grow.
    ExponentialRetryPolicy {
        /// Milliseconds.
        initial: i64 = "initial" or 5_000,
        /// Milliseconds.
        max: i64 = "max" or 7_200_000,
        multiplier: i64 = "multiplier" or 2,
    }

    /// A subscription that is part of a group's settings.
    SimpleSubscriptionData {
        expression: String = "expression",
        expression_type: String = "expressionType",
        topic: String = "topic",
        version: i64 = "version",
    }

    /// The groups of a broker, as it saves them.
    SubscriptionGroupWrapper {
        data_version: DataVersion = "dataVersion",
        /// By group, then by topic.
        forbidden_table: BTreeMap<String, BTreeMap<String, i32>> = "forbiddenTable",
        /// By group.
        subscription_group_table: BTreeMap<String, SubscriptionGroupConfig> = "subscriptionGroupTable",
    }

    /// Groups to create or replace.
    SubscriptionGroupList {
        group_config_list: Vec<SubscriptionGroupConfig> = "groupConfigList",
    }

    /// Whether a group may read a topic.
    GroupForbidden {
        group: String = "group",
        readable: Option<bool> = "readable",
        topic: String = "topic",
    }

    /// Names of groups.
    GroupList {
        group_list: Vec<String> = "groupList",
    }

    /// The subscription of a group to a topic.
    QuerySubscriptionResponse {
        group: String = "group",
        subscription_data: Option<SubscriptionData> = "subscriptionData",
        topic: String = "topic",
    }
}

names! {
    /// Which kind of pauses a group has.
    GroupRetryPolicyType {
        /// Listed, by default the delay levels.
        #[default]
        Customized = "CUSTOMIZED",
        /// Growing.
        Exponential = "EXPONENTIAL",
    }
}
