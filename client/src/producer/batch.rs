//! Cutting a list of messages into batches that a broker takes.

use std::ops::Range;

use message::{Message, property};

use super::SendReceipt;
use crate::error::{ClientError, SendError};

/// Fixed cost of one message in a batch, in bytes.
const ITEM_OVERHEAD: usize = 20;

/// Cuts messages into chunks that cost at most `limit_bytes` each. A message that costs more forms its own chunk.
///
/// The cost of a message is the length of its topic, body, property names and values, and 20.
/// Source: `spec/client.md` 2.9.
#[derive(Debug, Clone, Copy)]
pub struct BatchSplitter {
    /// The most that one chunk may cost. Default 1,000,000.
    pub limit_bytes: usize,
}

impl Default for BatchSplitter {
    fn default() -> BatchSplitter {
        BatchSplitter { limit_bytes: 1_000_000 }
    }
}

impl BatchSplitter {
    /// The chunks as ranges of `messages`, in order and without a gap.
    #[must_use]
    pub fn split(&self, messages: &[Message]) -> Vec<Range<usize>> {
        let mut chunks = Vec::new();
        let mut start = 0;
        let mut cost = 0;
        for (at, message) in messages.iter().enumerate() {
            let next = cost_bytes(message);
            if at > start && cost + next > self.limit_bytes {
                chunks.push(start..at);
                (start, cost) = (at, 0);
            }
            cost += next;
        }
        if start < messages.len() {
            chunks.push(start..messages.len());
        }
        chunks
    }
}

fn cost_bytes(message: &Message) -> usize {
    let properties: usize = message.properties.iter().map(|(name, value)| name.len() + value.len()).sum();
    message.topic.len() + message.body.len() + properties + ITEM_OVERHEAD
}

/// Why a batch was not acknowledged as a whole.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{} messages of the batch acknowledged, then a chunk of {} failed", acknowledged.len(), failed.len())]
pub struct BatchError {
    /// The receipts of the first messages.
    pub acknowledged: Vec<SendReceipt>,
    /// The messages of the chunk that failed; `source` tells whether they may have been stored. All later messages were
    /// certainly not sent.
    pub failed: Range<usize>,
    /// How the chunk failed.
    pub source: SendError,
}

/// Refuses what cannot travel in one batch.
pub(crate) fn check(messages: &[Message]) -> Result<(), ClientError> {
    let invalid = |reason: &str| Err(ClientError::Invalid(format!("batch: {reason}")));
    let Some(first) = messages.first() else { return invalid("no messages") };
    for message in messages {
        if message.topic != first.topic {
            return invalid("all messages must have one topic");
        }
        if message.topic.starts_with(message::RETRY_PREFIX) {
            return invalid("retry topics take no batches");
        }
        if message.waits_for_store() != first.waits_for_store() {
            return invalid("all messages must agree on waiting for the store");
        }
        let delays = [
            property::DELAY_LEVEL,
            property::TIMER_DELAY_SECONDS,
            property::TIMER_DELAY_MS,
            property::TIMER_DELIVER_MS,
        ];
        if delays.iter().any(|name| message.properties.get(name).is_some()) {
            return invalid("no message may be delayed");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: usize) -> Message {
        let mut message = Message::new("topic", vec![0; body]);
        message.properties.set("TAGS", "a").unwrap();
        message
    }

    #[test]
    fn the_cost_of_a_message_is_the_documented_sum() {
        assert_eq!(cost_bytes(&of(100)), 5 + 100 + 5 + 20);
    }

    #[test]
    fn chunks_fill_up_to_the_limit_and_a_large_message_stands_alone() {
        let splitter = BatchSplitter { limit_bytes: 260 };
        let messages = [of(100), of(100), of(100), of(1000), of(10)];
        assert_eq!(splitter.split(&messages), [0..2, 2..3, 3..4, 4..5]);
        assert!(splitter.split(&[]).is_empty());
    }

    #[test]
    fn what_cannot_travel_together_is_named() {
        let error = |messages: &[Message]| check(messages).unwrap_err().to_string();
        assert_eq!(error(&[]), "batch: no messages");
        assert_eq!(error(&[of(1), Message::new("other", vec![1])]), "batch: all messages must have one topic");
        assert_eq!(error(&[Message::new("%RETRY%g", vec![1])]), "batch: retry topics take no batches");
        let mut delayed = of(1);
        delayed.properties.set("DELAY", "3").unwrap();
        assert_eq!(error(&[delayed]), "batch: no message may be delayed");
        let mut careless = of(1);
        careless.properties.set("WAIT", "false").unwrap();
        assert_eq!(error(&[of(1), careless]), "batch: all messages must agree on waiting for the store");
        assert!(check(&[of(1), of(2)]).is_ok());
    }
}
