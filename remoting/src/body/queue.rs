//! Queues, and tables that have them as keys.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::bodies;

/// One queue of one topic at one broker group. Ordered by topic, broker and number, as clients sort them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Deserialize)]
#[serde(default)]
pub struct MessageQueue {
    /// On the wire `topic`.
    pub topic: String,
    /// On the wire `brokerName`.
    #[serde(rename = "brokerName")]
    pub broker_name: String,
    /// On the wire `queueId`.
    #[serde(rename = "queueId")]
    pub queue_id: i32,
}

impl MessageQueue {
    /// A queue.
    #[must_use]
    pub fn new(topic: impl Into<String>, broker_name: impl Into<String>, queue_id: i32) -> MessageQueue {
        MessageQueue { topic: topic.into(), broker_name: broker_name.into(), queue_id }
    }
}

/// Members in the order of the wire, which is not the order that queues have.
impl Serialize for MessageQueue {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut members = serializer.serialize_struct("MessageQueue", 3)?;
        members.serialize_field("brokerName", &self.broker_name)?;
        members.serialize_field("queueId", &self.queue_id)?;
        members.serialize_field("topic", &self.topic)?;
        members.end()
    }
}

impl fmt::Display for MessageQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}#{}", self.topic, self.broker_name, self.queue_id)
    }
}

bodies! {
    /// Offsets of queues: new ones of a reset, or those that a member holds.
    OffsetTable {
        offset_table: BTreeMap<MessageQueue, i64> = "offsetTable",
    }

    /// What a client answers when it is asked for its offsets.
    ConsumerStatus {
        /// By client id; only in the answer of a broker.
        consumer_table: Option<BTreeMap<String, BTreeMap<MessageQueue, i64>>> = "consumerTable",
        /// Only in the answer of a client.
        message_queue_table: Option<BTreeMap<MessageQueue, i64>> = "messageQueueTable",
    }

    /// The offsets of one queue.
    TopicOffset {
        /// Milliseconds since 1970; 0 for an empty queue.
        last_update_timestamp: i64 = "lastUpdateTimestamp",
        max_offset: i64 = "maxOffset",
        min_offset: i64 = "minOffset",
    }

    /// The offsets of a topic's queues.
    TopicStatsTable {
        offset_table: BTreeMap<MessageQueue, TopicOffset> = "offsetTable",
        /// Messages per second.
        topic_put_tps: f64 = "topicPutTps",
    }

    /// How far a group is in one queue.
    OffsetWrapper {
        broker_offset: i64 = "brokerOffset",
        consumer_offset: i64 = "consumerOffset",
        /// Store time of the last message consumed, in milliseconds since 1970.
        last_timestamp: i64 = "lastTimestamp",
        pull_offset: i64 = "pullOffset",
    }

    /// How far a group is.
    ConsumeStats {
        /// Messages per second.
        consume_tps: f64 = "consumeTps",
        offset_table: BTreeMap<MessageQueue, OffsetWrapper> = "offsetTable",
    }

    /// Asks for the queues, or gives them back.
    LockBatchRequest {
        client_id: String = "clientId",
        consumer_group: String = "consumerGroup",
        mq_set: Vec<MessageQueue> = "mqSet",
        only_this_broker: bool = "onlyThisBroker",
    }

    /// The queues that the client holds now.
    LockBatchResponse {
        lock_ok_mq_set: Vec<MessageQueue> = "lockOKMQSet",
    }

    /// The committed offsets of a broker: by `topic@group`, then by queue.
    ConsumerOffsetTable {
        data_version: Option<super::DataVersion> = "dataVersion",
        offset_table: BTreeMap<String, BTreeMap<i32, i64>> = "offsetTable",
        /// A field of our own: queues by `topic@group` whose offsets were committed to this slave while it had no
        /// master, and which its master may not have. The reference ignores it.
        #[serde(skip_serializing_if = "Option::is_none")]
        sf_committed_alone: Option<BTreeMap<String, Vec<i32>>> = "sfCommittedAlone",
    }

    /// How far each delay level is: queue offset by level.
    DelayOffsetTable {
        data_version: Option<super::DataVersion> = "dataVersion",
        offset_table: BTreeMap<i32, i64> = "offsetTable",
    }

    /// The smallest offsets among groups, by queue.
    CorrectionOffsets {
        correction_offsets: BTreeMap<i32, i64> = "correctionOffsets",
    }
}
