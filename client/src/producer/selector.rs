//! Which queue of a topic a message goes to.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::queue::MessageQueue;

/// The queues of a topic that take messages, in the order that selectors see, and where the round-robin stands.
#[derive(Debug)]
pub(crate) struct PublishList {
    pub(crate) queues: Vec<MessageQueue>,
    next: Arc<AtomicU32>,
}

impl PublishList {
    /// A list whose round-robin goes on from `next`, which outlives changes of the route.
    pub(crate) fn new(queues: Vec<MessageQueue>, next: Arc<AtomicU32>) -> PublishList {
        PublishList { queues, next }
    }

    /// The next queue in turn, if possible not on the broker that has just failed. `None` if the list is empty.
    pub(crate) fn next(&self, avoid: Option<&str>) -> Option<&MessageQueue> {
        let count = self.queues.len();
        for _ in 0..count {
            let queue = self.turn()?;
            if avoid != Some(&*queue.broker) {
                return Some(queue);
            }
        }
        self.turn()
    }

    fn turn(&self) -> Option<&MessageQueue> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.queues.get((turn as usize).checked_rem(self.queues.len())?)
    }
}

/// A key whose messages shall stay in order: all messages of one key go to one queue.
pub trait ShardingKey {
    /// The hash that Java's `hashCode` gives for the same value.
    fn java_hash(&self) -> i32;
    /// The bytes that byte-wise hashes see.
    fn bytes(&self) -> Cow<'_, [u8]>;
}

impl ShardingKey for str {
    fn java_hash(&self) -> i32 {
        message::java_hash(self)
    }

    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_bytes())
    }
}

impl<K: ShardingKey + ?Sized> ShardingKey for &K {
    fn java_hash(&self) -> i32 {
        (**self).java_hash()
    }

    fn bytes(&self) -> Cow<'_, [u8]> {
        (**self).bytes()
    }
}

impl ShardingKey for String {
    fn java_hash(&self) -> i32 {
        self.as_str().java_hash()
    }

    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_bytes())
    }
}

impl ShardingKey for i32 {
    fn java_hash(&self) -> i32 {
        *self
    }

    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.to_string().into_bytes())
    }
}

impl ShardingKey for i64 {
    fn java_hash(&self) -> i32 {
        (self ^ (self >> 32)) as i32
    }

    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.to_string().into_bytes())
    }
}

/// Chooses the queue of a message.
pub trait QueueSelector: Send + Sync {
    /// The index of the chosen queue. `queues` are those that take messages, in the order of the route. Nothing, or an
    /// index outside, fails the send without an attempt.
    fn select(&self, queues: &[MessageQueue], key: &dyn ShardingKey) -> Option<usize>;
}

/// By Java's hash code, as the reference client does. The default of ordered sends.
#[derive(Debug, Clone, Copy, Default)]
pub struct JavaHash;

impl QueueSelector for JavaHash {
    fn select(&self, queues: &[MessageQueue], key: &dyn ShardingKey) -> Option<usize> {
        // The remainder first and its absolute value then, as the reference: the two differ for negative hashes.
        let remainder = i64::from(key.java_hash()).checked_rem(i64::try_from(queues.len()).ok()?)?;
        usize::try_from(remainder.abs()).ok()
    }
}

/// By FNV-1a of the bytes, as the Go client does. The same key lands on another queue than with [`JavaHash`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Fnv1a32;

impl QueueSelector for Fnv1a32 {
    fn select(&self, queues: &[MessageQueue], key: &dyn ShardingKey) -> Option<usize> {
        (fnv1a_32(&key.bytes()) as usize).checked_rem(queues.len())
    }
}

fn fnv1a_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(brokers: &[&str], each: u32) -> Vec<MessageQueue> {
        brokers.iter().flat_map(|broker| (0..each).map(|id| MessageQueue::new("t", *broker, id))).collect()
    }

    fn list(brokers: &[&str], each: u32, next: u32) -> PublishList {
        PublishList::new(queues(brokers, each), Arc::new(AtomicU32::new(next)))
    }

    #[test]
    fn queues_take_turns_from_where_the_counter_stands() {
        let list = list(&["a", "b"], 2, 3);
        let seen: Vec<String> = (0..5).map(|_| list.next(None).unwrap().to_string()).collect();
        assert_eq!(seen, ["t@b:1", "t@a:0", "t@a:1", "t@b:0", "t@b:1"]);
    }

    #[test]
    fn a_retry_goes_to_another_broker_if_there_is_one() {
        let two = list(&["a", "b"], 2, 0);
        assert_eq!(&*two.next(Some("a")).unwrap().broker, "b");
        assert_eq!(&*list(&["a"], 2, 0).next(Some("a")).unwrap().broker, "a");
        assert!(list(&[], 2, 0).next(None).is_none());
    }

    #[test]
    fn the_counter_may_wrap() {
        let list = list(&["a"], 2, u32::MAX);
        assert!(list.next(None).is_some());
        assert!(list.next(None).is_some());
    }

    #[test]
    fn keys_hash_to_the_documented_queues() {
        let eight = queues(&["a"], 8);
        let java = |key: &str| JavaHash.select(&eight, &key.to_owned());
        let go = |key: &str| Fnv1a32.select(&eight, &key.to_owned());
        for (key, hash, java_at, fnv, go_at) in [
            ("order-1001", 708_180_863, 7, 2_439_986_572, 4),
            ("order-1002", 708_180_864, 0, 2_490_319_429, 5),
            ("user-7", -836_031_819, 3, 4_082_333_262, 6),
            ("订单", 1_129_459, 3, 89_340_064, 0),
        ] {
            assert_eq!(key.java_hash(), hash, "{key}");
            assert_eq!(java(key), Some(java_at), "{key}");
            assert_eq!(fnv1a_32(key.as_bytes()), fnv, "{key}");
            assert_eq!(go(key), Some(go_at), "{key}");
        }
        assert_eq!(java("TagA"), Some(7));
        assert_eq!(java("TagB"), Some(0));
    }

    #[test]
    fn integers_hash_by_value() {
        assert_eq!((-5i32).java_hash(), -5);
        assert_eq!((1i64 << 32).java_hash(), 1);
        assert_eq!((-1i64).java_hash(), 0);
        assert_eq!(JavaHash.select(&[], &7i32), None);
    }
}
