//! Headers of consumer requests. Source: `spec/protocol.md` 7.

use crate::{
    header::{BoundaryType, headers},
    log_epoch::LogEpoch,
};

headers! {
    /// `PULL_MESSAGE` and `LITE_PULL_MESSAGE`.
    strict PullMessageRequestHeader {
        consumer_group: String = "consumerGroup",
        topic: String = "topic",
        queue_id: i32 = "queueId",
        /// The first offset wanted.
        queue_offset: i64 = "queueOffset",
        max_msg_nums: i32 = "maxMsgNums",
        /// See [`PullSysFlag`](crate::PullSysFlag).
        sys_flag: i32 = "sysFlag",
        /// To be stored for the group, if the flag says so.
        commit_offset: i64 = "commitOffset",
        /// How long to hold the request, if the flag says so.
        suspend_timeout_millis: i64 = "suspendTimeoutMillis",
        /// The filter expression, if the flag says so.
        subscription: Option<String> = "subscription",
        sub_version: i64 = "subVersion",
        /// `TAG` or `SQL92`; absent is `TAG`.
        expression_type: Option<String> = "expressionType",
        /// The reference's broker ignores it.
        max_msg_bytes: Option<i32> = "maxMsgBytes",
        request_source: Option<i32> = "requestSource",
        /// The spelling is the reference's.
        proxy_forward_client_id: Option<String> = "proxyFrowardClientId",
        broker_name: Option<String> = "bname",
        /// The log that both offsets belong to; only between peers of this project.
        sf_log_epoch: Option<LogEpoch> = "sfLogEpoch",
    }

    /// The answer to a pull; the first four accompany every status.
    strict PullMessageResponseHeader {
        /// The id of the broker to pull from next; 0 is the master.
        suggest_which_broker_id: i64 = "suggestWhichBrokerId",
        next_begin_offset: i64 = "nextBeginOffset",
        min_offset: i64 = "minOffset",
        max_offset: i64 = "maxOffset",
        offset_delta: Option<i64> = "offsetDelta",
        topic_sys_flag: Option<i32> = "topicSysFlag",
        group_sys_flag: Option<i32> = "groupSysFlag",
        /// With `NO_PERMISSION`: 1 broker, 2 group, 3 topic, 4 broadcast, 5 subscription.
        forbidden_type: Option<i32> = "forbiddenType",
        /// The log that the offsets belong to; only between peers of this project.
        sf_log_epoch: Option<LogEpoch> = "sfLogEpoch",
    }

    /// Asks for the committed offset of a queue.
    QueryConsumerOffsetRequestHeader {
        consumer_group: String = "consumerGroup",
        topic: String = "topic",
        queue_id: i32 = "queueId",
        /// `false`: an unknown offset is `QUERY_NOT_FOUND`, never 0.
        set_zero_if_not_found: Option<bool> = "setZeroIfNotFound",
        broker_name: Option<String> = "bname",
    }

    /// The committed offset.
    QueryConsumerOffsetResponseHeader {
        offset: i64 = "offset",
        /// The log that the offset belongs to; only between peers of this project.
        sf_log_epoch: Option<LogEpoch> = "sfLogEpoch",
    }

    /// Goes with `QUERY_NOT_FOUND`, for there is no committed offset: the log in which the asker then finds a place.
    ConsumerOffsetNotFoundResponseHeader {
        /// Only between peers of this project.
        sf_log_epoch: Option<LogEpoch> = "sfLogEpoch",
    }

    /// Commits an offset. A receiver refuses a missing queue or offset with a code of its own.
    UpdateConsumerOffsetRequestHeader {
        consumer_group: String = "consumerGroup",
        topic: String = "topic",
        queue_id: Option<i32> = "queueId",
        commit_offset: Option<i64> = "commitOffset",
        broker_name: Option<String> = "bname",
        /// The log that the offset belongs to; only between peers of this project.
        sf_log_epoch: Option<LogEpoch> = "sfLogEpoch",
    }

    /// Looks an offset up by store time.
    SearchOffsetRequestHeader {
        topic: String = "topic",
        queue_id: i32 = "queueId",
        /// Milliseconds since 1970.
        timestamp: i64 = "timestamp",
        boundary_type: BoundaryType = "boundaryType",
        broker_name: Option<String> = "bname",
    }

    /// The answer to every question for one offset.
    OffsetResponseHeader {
        offset: i64 = "offset",
    }

    /// Asks for the end of a queue.
    GetMaxOffsetRequestHeader {
        topic: String = "topic",
        queue_id: i32 = "queueId",
        /// Absent is true.
        committed: Option<bool> = "committed",
        broker_name: Option<String> = "bname",
    }

    /// Asks for the start of a queue, or the store time of its first message.
    GetMinOffsetRequestHeader {
        topic: String = "topic",
        queue_id: i32 = "queueId",
        broker_name: Option<String> = "bname",
    }

    /// The store time of the first message of a queue; -1 if there is none.
    GetEarliestMsgStoretimeResponseHeader {
        timestamp: i64 = "timestamp",
    }

    /// A message that could not be consumed goes back.
    ConsumerSendMsgBackRequestHeader {
        /// The physical offset of the message.
        offset: i64 = "offset",
        group: String = "group",
        /// Below 0: to the dead letters; 0: the broker decides; above: that level.
        delay_level: i32 = "delayLevel",
        origin_msg_id: Option<String> = "originMsgId",
        origin_topic: Option<String> = "originTopic",
        unit_mode: Option<bool> = "unitMode",
        max_reconsume_times: Option<i32> = "maxReconsumeTimes",
        broker_name: Option<String> = "bname",
    }

    /// Looks messages up by key.
    QueryMessageRequestHeader {
        topic: String = "topic",
        key: String = "key",
        max_num: i32 = "maxNum",
        /// Milliseconds since 1970.
        begin_timestamp: i64 = "beginTimestamp",
        /// Milliseconds since 1970.
        end_timestamp: i64 = "endTimestamp",
        /// Whether the key is a unique id.
        unique_key_query: Option<bool> = "_UNIQUE_KEY_QUERY",
    }

    /// How far the index reaches.
    QueryMessageResponseHeader {
        index_last_update_timestamp: i64 = "indexLastUpdateTimestamp",
        index_last_update_phy_offset: i64 = "indexLastUpdatePhyoffset",
    }

    /// Reads one message by its physical offset.
    ViewMessageRequestHeader {
        topic: Option<String> = "topic",
        offset: i64 = "offset",
    }
}
