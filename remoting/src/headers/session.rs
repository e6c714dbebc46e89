//! Headers of session requests. Source: `spec/protocol.md` 8.

use crate::header::headers;

headers! {
    /// What a broker says to a heartbeat.
    HeartbeatResponseHeader {
        /// Whether the short form of heartbeats is understood.
        is_support_heart_beat_v2: Option<bool> = "IS_SUPPORT_HEART_BEAT_V2",
        /// Whether the registered subscriptions changed, or differ from the short heartbeat's.
        is_sub_change: Option<bool> = "IS_SUB_CHANGE",
    }

    /// A client leaves its groups.
    UnregisterClientRequestHeader {
        client_id: String = "clientID",
        producer_group: Option<String> = "producerGroup",
        consumer_group: Option<String> = "consumerGroup",
    }

    /// Names one consumer group.
    ConsumerGroupRequestHeader {
        consumer_group: String = "consumerGroup",
    }
}
