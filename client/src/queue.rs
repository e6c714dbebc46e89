//! The name of a queue, the unit of sending, consuming and balancing.

use std::{fmt, sync::Arc};

use message::QueueOffset;
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
}
