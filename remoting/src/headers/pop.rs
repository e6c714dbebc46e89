//! Headers of POP requests. Source: `spec/protocol.md` 13.

use crate::header::headers;

headers! {
    /// Takes messages for a while.
    PopMessageRequestHeader {
        consumer_group: String = "consumerGroup",
        topic: String = "topic",
        /// -1: any.
        queue_id: i32 = "queueId",
        max_msg_nums: i32 = "maxMsgNums",
        /// Milliseconds.
        invisible_time: i64 = "invisibleTime",
        /// Milliseconds to wait for a message.
        poll_time: i64 = "pollTime",
        /// Milliseconds since 1970.
        born_time: i64 = "bornTime",
        /// 0 from the start of the queue, 1 from its end.
        init_mode: i32 = "initMode",
        exp_type: Option<String> = "expType",
        exp: Option<String> = "exp",
        order: Option<bool> = "order",
        attempt_id: Option<String> = "attemptId",
        broker_name: Option<String> = "bname",
    }

    /// What was taken.
    PopMessageResponseHeader {
        pop_time: i64 = "popTime",
        invisible_time: i64 = "invisibleTime",
        revive_qid: i32 = "reviveQid",
        rest_num: i64 = "restNum",
        start_offset_info: Option<String> = "startOffsetInfo",
        msg_offset_info: Option<String> = "msgOffsetInfo",
        order_count_info: Option<String> = "orderCountInfo",
    }

    /// Acknowledges one message.
    AckMessageRequestHeader {
        consumer_group: String = "consumerGroup",
        topic: String = "topic",
        queue_id: i32 = "queueId",
        extra_info: String = "extraInfo",
        offset: i64 = "offset",
        broker_name: Option<String> = "bname",
    }

    /// Changes how long a message stays taken.
    ChangeInvisibleTimeRequestHeader {
        consumer_group: String = "consumerGroup",
        topic: String = "topic",
        queue_id: i32 = "queueId",
        extra_info: String = "extraInfo",
        offset: i64 = "offset",
        /// Milliseconds.
        invisible_time: i64 = "invisibleTime",
        broker_name: Option<String> = "bname",
    }

    /// The new receipt.
    ChangeInvisibleTimeResponseHeader {
        pop_time: i64 = "popTime",
        invisible_time: i64 = "invisibleTime",
        revive_qid: i32 = "reviveQid",
    }

    /// Looks at messages without taking them.
    PeekMessageRequestHeader {
        consumer_group: String = "consumerGroup",
        topic: String = "topic",
        queue_id: i32 = "queueId",
        max_msg_nums: i32 = "maxMsgNums",
        broker_name: Option<String> = "bname",
    }

    /// Waits until there is something to take.
    NotificationRequestHeader {
        consumer_group: String = "consumerGroup",
        topic: String = "topic",
        queue_id: i32 = "queueId",
        poll_time: i64 = "pollTime",
        born_time: i64 = "bornTime",
        order: Option<bool> = "order",
        attempt_id: Option<String> = "attemptId",
        broker_name: Option<String> = "bname",
    }

    /// Whether there is something to take.
    NotificationResponseHeader {
        has_msg: bool = "hasMsg",
        polling_full: Option<bool> = "pollingFull",
    }

    /// Asks how many requests wait.
    PollingInfoRequestHeader {
        consumer_group: String = "consumerGroup",
        topic: String = "topic",
        queue_id: i32 = "queueId",
        broker_name: Option<String> = "bname",
    }

    /// How many requests wait.
    PollingInfoResponseHeader {
        polling_num: i32 = "pollingNum",
    }
}
