//! What an administrator gets to see. Source: `spec/protocol.md` 12.3, 13.5.

use std::collections::BTreeMap;

use super::{ConsumeFromWhere, ConsumeType, MessageModel, MessageQueue, SubscriptionData, bodies};

bodies! {
    /// One connection of a client.
    Connection {
        /// `ip:port`.
        client_addr: String = "clientAddr",
        client_id: String = "clientId",
        /// The name of the language.
        language: Option<String> = "language",
        version: i32 = "version",
    }

    /// The connections of a consumer group.
    ConsumerConnection {
        connection_set: Vec<Connection> = "connectionSet",
        consume_from_where: ConsumeFromWhere = "consumeFromWhere",
        consume_type: ConsumeType = "consumeType",
        message_model: MessageModel = "messageModel",
        /// By topic.
        subscription_table: BTreeMap<String, SubscriptionData> = "subscriptionTable",
    }

    /// The connections of a producer group.
    ProducerConnection {
        connection_set: Vec<Connection> = "connectionSet",
    }

    /// One producer.
    ProducerInfo {
        client_id: String = "clientId",
        /// The name of the language.
        language: Option<String> = "language",
        last_update_timestamp: i64 = "lastUpdateTimestamp",
        remote_ip: String = "remoteIP",
        version: i32 = "version",
    }

    /// All producers, by group.
    ProducerTable {
        data: BTreeMap<String, Vec<ProducerInfo>> = "data",
    }

    /// The figures of one span of time.
    BrokerStatsItem {
        avgpt: f64 = "avgpt",
        sum: i64 = "sum",
        tps: f64 = "tps",
    }

    /// One figure over three spans of time.
    BrokerStatsData {
        stats_day: BrokerStatsItem = "statsDay",
        stats_hour: BrokerStatsItem = "statsHour",
        stats_minute: BrokerStatsItem = "statsMinute",
    }

    /// The time span that a group has still to consume in one queue. Times are milliseconds since 1970.
    QueueTimeSpan {
        consume_time_stamp: i64 = "consumeTimeStamp",
        consume_time_stamp_str: Option<String> = "consumeTimeStampStr",
        delay_time: i64 = "delayTime",
        max_time_stamp: i64 = "maxTimeStamp",
        max_time_stamp_str: Option<String> = "maxTimeStampStr",
        message_queue: MessageQueue = "messageQueue",
        min_time_stamp: i64 = "minTimeStamp",
        min_time_stamp_str: Option<String> = "minTimeStampStr",
    }

    /// The time spans that a group has still to consume.
    ConsumeTimeSpans {
        consume_time_span_set: Vec<QueueTimeSpan> = "consumeTimeSpanSet",
    }

    /// One entry of a consume queue.
    ConsumeQueueEntry {
        bit_map: Option<String> = "bitMap",
        /// Whether the subscription that was asked about takes it.
        eval: bool = "eval",
        extend_data_json: Option<String> = "extendDataJson",
        msg: Option<String> = "msg",
        physic_offset: i64 = "physicOffset",
        physic_size: i32 = "physicSize",
        tags_code: i64 = "tagsCode",
    }

    /// Entries of a consume queue.
    ConsumeQueueEntries {
        filter_data: Option<String> = "filterData",
        max_queue_index: i64 = "maxQueueIndex",
        min_queue_index: i64 = "minQueueIndex",
        queue_data: Vec<ConsumeQueueEntry> = "queueData",
        subscription_data: Option<SubscriptionData> = "subscriptionData",
    }

    /// Replicas in sync.
    SyncStateSet {
        sync_state_set: Vec<i64> = "syncStateSet",
        sync_state_set_epoch: i32 = "syncStateSetEpoch",
    }

    /// Asks which queues a member consumes.
    QueryAssignmentRequest {
        client_id: String = "clientId",
        consumer_group: String = "consumerGroup",
        message_model: MessageModel = "messageModel",
        /// `AVG` or `AVG_BY_CIRCLE`.
        strategy_name: String = "strategyName" or "AVG",
        topic: String = "topic",
    }

    /// The queues that a member consumes.
    QueryAssignmentResponse {
        message_queue_assignments: Option<Vec<MessageQueueAssignment>> = "messageQueueAssignments",
    }

    /// One queue that a member consumes.
    MessageQueueAssignment {
        message_queue: MessageQueue = "messageQueue",
        /// `PULL` or `POP`.
        mode: String = "mode" or "PULL",
    }

    /// Who pulls and who pops.
    MessageRequestModes {
        /// By topic, then by group.
        message_request_mode_map: BTreeMap<String, BTreeMap<String, MessageRequestMode>> = "messageRequestModeMap",
    }

    /// The state of replication at a master or at a slave.
    HaRuntimeInfo {
        /// Of a slave.
        ha_client_runtime_info: HaClientRuntimeInfo = "haClientRuntimeInfo",
        /// Of a master: one for each connected slave.
        ha_connection_info: Vec<HaConnectionRuntimeInfo> = "haConnectionInfo",
        in_sync_slave_nums: i32 = "inSyncSlaveNums",
        master: bool = "master",
        /// Of a master.
        master_commit_log_max_offset: i64 = "masterCommitLogMaxOffset",
    }

    /// The replication of a slave. Times are milliseconds since 1970, 0 for never.
    HaClientRuntimeInfo {
        last_read_timestamp: i64 = "lastReadTimestamp",
        last_write_timestamp: i64 = "lastWriteTimestamp",
        /// `host:port` of the master's port for replicas, if it is known.
        master_addr: Option<String> = "masterAddr",
        master_flush_offset: i64 = "masterFlushOffset",
        /// The end of the slave's log.
        max_offset: i64 = "maxOffset",
        transferred_byte_in_second: i64 = "transferredByteInSecond",
    }

    /// The replication to one slave, as its master sees it.
    HaConnectionRuntimeInfo {
        /// `ip:port` of the slave's end.
        addr: Option<String> = "addr",
        /// Bytes that the slave has not confirmed.
        diff: i64 = "diff",
        in_sync: bool = "inSync",
        slave_ack_offset: i64 = "slaveAckOffset",
        transfer_from_where: i64 = "transferFromWhere",
        transferred_byte_in_second: i64 = "transferredByteInSecond",
    }

    /// Whether a group pulls or pops a topic.
    MessageRequestMode {
        consumer_group: String = "consumerGroup",
        /// `PULL` or `POP`.
        mode: String = "mode" or "PULL",
        pop_share_queue_num: i32 = "popShareQueueNum",
        topic: String = "topic",
    }
}
