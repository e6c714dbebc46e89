//! Headers of producer requests. Source: `spec/protocol.md` 6.

use crate::header::headers;

headers! {
    /// A send in either spelling: `SEND_MESSAGE`, `SEND_MESSAGE_V2`, `SEND_BATCH_MESSAGE` and the two replies.
    SendMessageRequestHeader {
        producer_group: String = "producerGroup",
        topic: String = "topic",
        /// The template of a topic that does not exist yet.
        default_topic: String = "defaultTopic",
        /// How many queues the producer would like such a topic to have.
        default_topic_queue_nums: i32 = "defaultTopicQueueNums",
        /// Negative: the broker chooses.
        queue_id: i32 = "queueId",
        /// The flags of the message.
        sys_flag: i32 = "sysFlag",
        /// Milliseconds since 1970 by the producer's clock.
        born_timestamp: i64 = "bornTimestamp",
        /// The user's own flag.
        flag: i32 = "flag",
        /// The property string.
        properties: Option<String> = "properties",
        /// How often it was consumed before, when a consumer sends it to a retry topic.
        reconsume_times: Option<i32> = "reconsumeTimes",
        unit_mode: Option<bool> = "unitMode",
        /// Beyond it a message of a retry topic goes to the dead letters.
        max_reconsume_times: Option<i32> = "maxReconsumeTimes",
        /// Whether the body is a batch; this decides, not the request code.
        batch: Option<bool> = "batch",
        /// The broker that the sender means.
        broker_name: Option<String> = "bname",
    }

    /// The second spelling of [`SendMessageRequestHeader`], with names of one letter.
    strict SendMessageRequestHeaderV2 {
        producer_group: String = "a",
        topic: String = "b",
        default_topic: String = "c",
        default_topic_queue_nums: i32 = "d",
        queue_id: i32 = "e",
        sys_flag: i32 = "f",
        born_timestamp: i64 = "g",
        flag: i32 = "h",
        properties: Option<String> = "i",
        reconsume_times: Option<i32> = "j",
        unit_mode: Option<bool> = "k",
        max_reconsume_times: Option<i32> = "l",
        batch: Option<bool> = "m",
        broker_name: Option<String> = "n",
    }

    /// The answer to every kind of send.
    strict SendMessageResponseHeader {
        /// The offset message id; for a batch the ids of its items, separated by commas.
        msg_id: String = "msgId",
        queue_id: i32 = "queueId",
        /// Of the first item for a batch.
        queue_offset: i64 = "queueOffset",
        /// The unique id of the message; absent for batches.
        transaction_id: Option<String> = "transactionId",
        /// Only for topics whose batches stay together.
        batch_uniq_id: Option<String> = "batchUniqId",
        /// For timer messages.
        recall_handle: Option<String> = "recallHandle",
        /// The region of the broker; present on failures too.
        msg_region: Option<String> = "MSG_REGION",
        /// Whether the broker wants traces; present on failures too.
        trace_on: Option<bool> = "TRACE_ON",
    }

    /// What a failed send still says.
    SendFailureResponseHeader {
        msg_region: Option<String> = "MSG_REGION",
        trace_on: Option<bool> = "TRACE_ON",
    }

    /// The end of a transaction, as the producer decided it.
    EndTransactionRequestHeader {
        topic: Option<String> = "topic",
        producer_group: String = "producerGroup",
        /// The queue offset of the half message.
        tran_state_table_offset: i64 = "tranStateTableOffset",
        /// The physical offset of the half message.
        commit_log_offset: i64 = "commitLogOffset",
        /// 8 commit, 12 rollback, 0 unknown.
        commit_or_rollback: i32 = "commitOrRollback",
        /// Whether this answers a check by the broker.
        from_transaction_check: Option<bool> = "fromTransactionCheck",
        msg_id: String = "msgId",
        transaction_id: Option<String> = "transactionId",
        broker_name: Option<String> = "bname",
    }

    /// Takes a timer message back.
    RecallMessageRequestHeader {
        producer_group: Option<String> = "producerGroup",
        topic: String = "topic",
        recall_handle: String = "recallHandle",
        broker_name: Option<String> = "bname",
    }

    /// Which message was taken back.
    RecallMessageResponseHeader {
        msg_id: String = "msgId",
    }
}

macro_rules! same_fields {
    ($from:ident => $to:ident { $($field:ident),* $(,)? }) => {
        impl From<$from> for $to {
            fn from(header: $from) -> $to {
                $to { $($field: header.$field,)* }
            }
        }
        impl From<$to> for $from {
            fn from(header: $to) -> $from {
                $from { $($field: header.$field,)* }
            }
        }
    };
}

same_fields! {
    SendMessageRequestHeaderV2 => SendMessageRequestHeader {
        producer_group, topic, default_topic, default_topic_queue_nums, queue_id, sys_flag, born_timestamp, flag,
        properties, reconsume_times, unit_mode, max_reconsume_times, batch, broker_name,
    }
}
