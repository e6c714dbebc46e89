//! What clients say about themselves. Source: `spec/protocol.md` 5, 8 and 9.3.

use std::collections::{BTreeMap, BTreeSet};

use super::{MessageQueue, bodies, names};

bodies! {
    /// A client, its groups and what they subscribe to.
    HeartbeatData {
        client_id: String = "clientID",
        consumer_data_set: Vec<ConsumerData> = "consumerDataSet",
        /// Not 0: the short form of heartbeats.
        heartbeat_fingerprint: i32 = "heartbeatFingerprint",
        producer_data_set: Vec<ProducerData> = "producerDataSet",
        /// The subscriptions are as before and left out.
        without_sub: bool = "withoutSub",
    }

    /// A producer group of a client.
    ProducerData {
        group_name: String = "groupName",
    }

    /// A consumer group of a client.
    ConsumerData {
        consume_from_where: ConsumeFromWhere = "consumeFromWhere",
        consume_type: ConsumeType = "consumeType",
        group_name: String = "groupName",
        message_model: MessageModel = "messageModel",
        subscription_data_set: Vec<SubscriptionData> = "subscriptionDataSet",
        unit_mode: bool = "unitMode",
    }

    /// What a group wants of a topic.
    SubscriptionData {
        class_filter_mode: bool = "classFilterMode",
        /// The hash codes of the tags.
        code_set: BTreeSet<i32> = "codeSet",
        /// `TAG` or `SQL92`.
        expression_type: String = "expressionType" or "TAG",
        /// `*` or empty is everything; tags are separated by two vertical bars.
        sub_string: String = "subString",
        /// The larger is the newer; milliseconds or nanoseconds.
        sub_version: i64 = "subVersion",
        tags_set: BTreeSet<String> = "tagsSet",
        topic: String = "topic",
    }

    /// The members of a group.
    ConsumerList {
        consumer_id_list: Vec<String> = "consumerIdList",
    }

    /// A filter expression to be checked.
    CheckClientRequest {
        client_id: String = "clientId",
        group: String = "group",
        namespace: Option<String> = "namespace",
        subscription_data: SubscriptionData = "subscriptionData",
    }

    /// How a member of a group is.
    ConsumerRunningInfo {
        jstack: Option<String> = "jstack",
        mq_pop_table: BTreeMap<MessageQueue, PopProcessQueueInfo> = "mqPopTable",
        mq_table: BTreeMap<MessageQueue, ProcessQueueInfo> = "mqTable",
        properties: BTreeMap<String, String> = "properties",
        /// By topic.
        status_table: BTreeMap<String, ConsumeStatus> = "statusTable",
        subscription_set: Vec<SubscriptionData> = "subscriptionSet",
        user_consumer_info: BTreeMap<String, String> = "userConsumerInfo",
    }

    /// The local state of a pulled queue. The spelling of `droped` is the reference's.
    ProcessQueueInfo {
        cached_msg_count: i32 = "cachedMsgCount",
        cached_msg_max_offset: i64 = "cachedMsgMaxOffset",
        cached_msg_min_offset: i64 = "cachedMsgMinOffset",
        cached_msg_size_in_mib: i32 = "cachedMsgSizeInMiB",
        commit_offset: i64 = "commitOffset",
        dropped: bool = "droped" alias "dropped",
        last_consume_timestamp: i64 = "lastConsumeTimestamp",
        last_lock_timestamp: i64 = "lastLockTimestamp",
        last_pull_timestamp: i64 = "lastPullTimestamp",
        locked: bool = "locked",
        transaction_msg_count: i32 = "transactionMsgCount",
        transaction_msg_max_offset: i64 = "transactionMsgMaxOffset",
        transaction_msg_min_offset: i64 = "transactionMsgMinOffset",
        try_unlock_times: i64 = "tryUnlockTimes",
    }

    /// The local state of a popped queue.
    PopProcessQueueInfo {
        dropped: bool = "droped" alias "dropped",
        last_pop_timestamp: i64 = "lastPopTimestamp",
        wait_ack_count: i32 = "waitAckCount",
    }

    /// The figures of a topic at a member; rates are per second, times in milliseconds.
    ConsumeStatus {
        consume_failed_msgs: i64 = "consumeFailedMsgs",
        consume_failed_tps: f64 = "consumeFailedTPS",
        consume_ok_tps: f64 = "consumeOKTPS",
        consume_rt: f64 = "consumeRT",
        pull_rt: f64 = "pullRT",
        pull_tps: f64 = "pullTPS",
    }

    /// What became of a message that a member was told to consume.
    ConsumeMessageDirectlyResult {
        auto_commit: bool = "autoCommit" or true,
        consume_result: ConsumeResult = "consumeResult",
        order: bool = "order",
        remark: Option<String> = "remark",
        /// Milliseconds. The spelling is the reference's.
        spent_time_mills: i64 = "spentTimeMills",
    }
}

names! {
    /// Where a group starts in a queue that it has no offset for.
    ConsumeFromWhere {
        /// At its end.
        #[default]
        LastOffset = "CONSUME_FROM_LAST_OFFSET",
        /// Legacy; the same as at its end.
        LastOffsetAndFromMinWhenBootFirst = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        /// Legacy; the same as at its end.
        MinOffset = "CONSUME_FROM_MIN_OFFSET",
        /// Legacy; the same as at its end.
        MaxOffset = "CONSUME_FROM_MAX_OFFSET",
        /// At its start.
        FirstOffset = "CONSUME_FROM_FIRST_OFFSET",
        /// At the first message stored at or after a time.
        Timestamp = "CONSUME_FROM_TIMESTAMP",
    }

    /// How a group gets its messages.
    ConsumeType {
        /// The application pulls.
        #[default]
        Actively = "CONSUME_ACTIVELY",
        /// The client pulls and calls the application.
        Passively = "CONSUME_PASSIVELY",
        /// The client pops and calls the application.
        Pop = "CONSUME_POP",
    }

    /// Who of a group gets a message.
    MessageModel {
        /// Everyone.
        Broadcasting = "BROADCASTING",
        /// One member.
        #[default]
        Clustering = "CLUSTERING",
    }

    /// What became of a message.
    ConsumeResult {
        /// Consumed.
        #[default]
        Success = "CR_SUCCESS",
        /// Later again.
        Later = "CR_LATER",
        /// Rolled back.
        Rollback = "CR_ROLLBACK",
        /// Committed.
        Commit = "CR_COMMIT",
        /// The listener failed.
        ThrowException = "CR_THROW_EXCEPTION",
        /// The listener said nothing.
        ReturnNull = "CR_RETURN_NULL",
    }
}
