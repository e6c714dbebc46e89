//! Which client of a group may consume which queue in order.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use host::time::Mono;
use indexmap::IndexMap;

/// How long a lock lasts without being renewed. Source: `spec/protocol.md` 8.4.
pub(crate) const LOCK_LIFE: Duration = Duration::from_secs(60);

/// The locks of consumer groups on queues, in memory only: after a restart every client asks again.
///
/// A lock belongs to a client id, not to a connection, and outlives the connection until it expires.
#[derive(Debug, Default)]
pub(crate) struct QueueLocks {
    /// Leaf lock: nothing else is locked while it is held.
    groups: Mutex<IndexMap<String, BTreeMap<LockedQueue, Lock>>>,
}

/// A queue of this broker, as lock requests name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockedQueue {
    pub(crate) topic: String,
    pub(crate) broker: String,
    pub(crate) queue: i32,
}

#[derive(Debug)]
struct Lock {
    client: String,
    until: Mono,
}

impl QueueLocks {
    /// Locks those of `queues` that are free, expired or held by `client` already, and gives them back. Renews too.
    pub(crate) fn lock(&self, group: &str, client: &str, queues: Vec<LockedQueue>, now: Mono) -> Vec<LockedQueue> {
        let mut groups = self.table();
        let locks = groups.entry(group.to_owned()).or_default();
        locks.retain(|_, lock| lock.until > now);
        let mut held = Vec::with_capacity(queues.len());
        for queue in queues {
            let lock = locks.entry(queue.clone()).or_insert_with(|| Lock { client: client.to_owned(), until: now });
            if lock.client == client {
                lock.until = now + LOCK_LIFE;
                held.push(queue);
            }
        }
        held
    }

    /// Frees those of `queues` that `client` holds.
    pub(crate) fn unlock(&self, group: &str, client: &str, queues: &[LockedQueue]) {
        let mut groups = self.table();
        let Some(locks) = groups.get_mut(group) else { return };
        for queue in queues {
            if locks.get(queue).is_some_and(|lock| lock.client == client) {
                locks.remove(queue);
            }
        }
        if locks.is_empty() {
            groups.shift_remove(group);
        }
    }

    /// Whether any client holds any queue of the group.
    pub(crate) fn any(&self, group: &str, now: Mono) -> bool {
        self.table().get(group).is_some_and(|locks| locks.values().any(|lock| lock.until > now))
    }

    fn table(&self) -> MutexGuard<'_, IndexMap<String, BTreeMap<LockedQueue, Lock>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(queue: i32) -> LockedQueue {
        LockedQueue { topic: "t".to_owned(), broker: "b".to_owned(), queue }
    }

    fn at(seconds: u64) -> Mono {
        Mono::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn second_client_gets_only_free_queues() {
        let locks = QueueLocks::default();
        assert_eq!(locks.lock("g", "a", vec![queue(0), queue(1)], at(0)), [queue(0), queue(1)]);
        assert_eq!(locks.lock("g", "b", vec![queue(1), queue(2)], at(1)), [queue(2)]);
        assert_eq!(locks.lock("other group", "b", vec![queue(1)], at(1)), [queue(1)]);
    }

    #[test]
    fn lock_expires_unless_renewed() {
        let locks = QueueLocks::default();
        locks.lock("g", "a", vec![queue(0), queue(1)], at(0));
        locks.lock("g", "a", vec![queue(1)], at(30));
        assert_eq!(locks.lock("g", "b", vec![queue(0), queue(1)], at(60)), [queue(0)]);
        assert!(locks.any("g", at(119)));
        assert!(!locks.any("g", at(120)));
    }

    #[test]
    fn only_the_holder_unlocks() {
        let locks = QueueLocks::default();
        locks.lock("g", "a", vec![queue(0)], at(0));
        locks.unlock("g", "b", &[queue(0)]);
        assert!(locks.any("g", at(1)));
        locks.unlock("g", "a", &[queue(0)]);
        assert!(!locks.any("g", at(1)));
    }
}
