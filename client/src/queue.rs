//! The name of a queue, the unit of sending, consuming and balancing.

use std::{fmt, sync::Arc};

use message::{QueueOffset, java_hash};
use remoting::LogEpoch;

/// One queue of one topic on one broker group.
///
/// The order is topic, broker name, queue id (as a number): the order in which every member of a consumer group must
/// list the queues before they are allocated. Source: `spec/client.md` 8.2.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageQueue {
    /// The topic.
    pub topic: Arc<str>,
    /// The name of the broker group that holds the queue; its master takes writes.
    pub broker: Arc<str>,
    /// The number of the queue on that broker, from 0.
    pub id: u32,
}

impl MessageQueue {
    /// A queue by its three names.
    pub fn new(topic: impl Into<Arc<str>>, broker: impl Into<Arc<str>>, id: u32) -> MessageQueue {
        MessageQueue { topic: topic.into(), broker: broker.into(), id }
    }

    /// Stands for it where only a number can be told, such as in marks: from the high bits down, 31 bits of the hash of
    /// the topic, 20 of that of the broker, and 12 of the id.
    #[must_use]
    pub fn mark(&self) -> i64 {
        let topic = i64::from(java_hash(&self.topic) & i32::MAX);
        let broker = i64::from(java_hash(&self.broker) & 0xF_FFFF);
        topic << 32 | broker << 12 | i64::from(self.id & 0xFFF)
    }
}

/// `topic@broker:id`.
impl fmt::Display for MessageQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}:{}", self.topic, self.broker, self.id)
    }
}

/// A place in a queue, with the log in which it is that place: a broker may come back with less than it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: QueueOffset,
    /// `None` if the broker does not tell.
    pub(crate) epoch: Option<LogEpoch>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_sort_by_topic_then_broker_then_number() {
        let mut queues = [
            MessageQueue::new("t", "b", 10),
            MessageQueue::new("t", "b", 2),
            MessageQueue::new("t", "a", 11),
            MessageQueue::new("s", "z", 0),
        ];
        queues.sort();
        let shown: Vec<String> = queues.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["s@z:0", "t@a:11", "t@b:2", "t@b:10"]);
    }

    #[test]
    fn a_mark_tells_queues_apart() {
        let mark = MessageQueue::new("orders", "broker-a", 3).mark();
        assert_eq!(
            mark,
            i64::from(java_hash("orders") & i32::MAX) << 32 | i64::from(java_hash("broker-a") & 0xF_FFFF) << 12 | 3
        );
        let others = [("orders", "broker-b", 3), ("orders", "broker-a", 4), ("%RETRY%orders", "broker-a", 3)];
        assert!(others.iter().all(|(topic, broker, id)| MessageQueue::new(*topic, *broker, *id).mark() != mark));
    }
}
