//! Headers of requests that a broker sends to a client. Source: `spec/protocol.md` 9.

use crate::header::headers;

headers! {
    /// The broker asks what became of a transaction.
    CheckTransactionStateRequestHeader {
        topic: Option<String> = "topic",
        tran_state_table_offset: i64 = "tranStateTableOffset",
        commit_log_offset: i64 = "commitLogOffset",
        msg_id: Option<String> = "msgId",
        transaction_id: Option<String> = "transactionId",
        offset_msg_id: Option<String> = "offsetMsgId",
        broker_name: Option<String> = "bname",
    }

    /// Resets offsets of a group, at the broker or pushed on to a client.
    ResetOffsetRequestHeader {
        topic: String = "topic",
        group: String = "group",
        /// -1: no such queue, so all of them. Absent is -1.
        queue_id: Option<i32> = "queueId",
        /// Milliseconds since 1970; -1 is the end of the queue.
        timestamp: i64 = "timestamp",
        is_force: bool = "isForce",
        /// Absent or -1: by time.
        offset: Option<i64> = "offset",
    }

    /// Asks for the offsets that members of a group hold.
    GetConsumerStatusRequestHeader {
        topic: String = "topic",
        group: String = "group",
        /// One client id; absent is all.
        client_addr: Option<String> = "clientAddr",
    }

    /// Asks one member how it is.
    GetConsumerRunningInfoRequestHeader {
        consumer_group: String = "consumerGroup",
        client_id: String = "clientId",
        jstack_enable: Option<bool> = "jstackEnable",
    }

    /// Has one member consume one message now.
    ConsumeMessageDirectlyRequestHeader {
        consumer_group: String = "consumerGroup",
        client_id: Option<String> = "clientId",
        msg_id: Option<String> = "msgId",
        broker_name: Option<String> = "brokerName",
        topic: Option<String> = "topic",
        topic_sys_flag: Option<i32> = "topicSysFlag",
        group_sys_flag: Option<i32> = "groupSysFlag",
    }

    /// The answer to a request message, on its way to the client that waits for it.
    ReplyMessageRequestHeader {
        producer_group: String = "producerGroup",
        topic: String = "topic",
        default_topic: String = "defaultTopic",
        default_topic_queue_nums: i32 = "defaultTopicQueueNums",
        queue_id: i32 = "queueId",
        sys_flag: i32 = "sysFlag",
        born_timestamp: i64 = "bornTimestamp",
        flag: i32 = "flag",
        properties: Option<String> = "properties",
        reconsume_times: Option<i32> = "reconsumeTimes",
        unit_mode: Option<bool> = "unitMode",
        /// `ip:port`.
        born_host: String = "bornHost",
        /// `ip:port`.
        store_host: String = "storeHost",
        store_timestamp: i64 = "storeTimestamp",
    }
}
