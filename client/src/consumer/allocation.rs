//! Who of a group consumes which queue.
//!
//! Nobody coordinates: each member sorts the same queues and the same member ids and computes its own share. So a
//! strategy is a pure function, and all members of a group must use the same one.

use std::collections::BTreeSet;

use crate::queue::MessageQueue;

/// Computes one member's share of the queues of a topic.
pub trait AllocationStrategy: Send + Sync + 'static {
    /// The name that other clients know it by, such as `AVG`.
    fn name(&self) -> &'static str;

    /// The queues of the member at `own` in the sorted list of members.
    ///
    /// `queues` are sorted and not empty; `own` is below `members`. Given the same two lists, the shares of all members
    /// must not overlap.
    fn allocate(&self, queues: &[MessageQueue], members: usize, own: usize) -> Vec<MessageQueue>;
}

/// Contiguous shares that differ by at most one queue. The default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Averagely;

impl AllocationStrategy for Averagely {
    fn name(&self) -> &'static str {
        "AVG"
    }

    fn allocate(&self, queues: &[MessageQueue], members: usize, own: usize) -> Vec<MessageQueue> {
        let share = queues.len() / members;
        let rest = queues.len() % members;
        let start = own * share + own.min(rest);
        let end = start + share + usize::from(own < rest);
        queues[start..end].to_vec()
    }
}

/// Queues are dealt like cards: member `i` of `n` gets every queue `k` with `k mod n = i`.
#[derive(Debug, Clone, Copy, Default)]
pub struct AveragelyByCircle;

impl AllocationStrategy for AveragelyByCircle {
    fn name(&self) -> &'static str {
        "AVG_BY_CIRCLE"
    }

    fn allocate(&self, queues: &[MessageQueue], members: usize, own: usize) -> Vec<MessageQueue> {
        queues.iter().skip(own).step_by(members).cloned().collect()
    }
}

/// A list written down by the operator, who must see to it that the lists of all members are disjoint and complete.
#[derive(Debug, Clone, Default)]
pub struct ByConfig {
    /// This member's queues, of all topics.
    pub queues: Vec<MessageQueue>,
}

impl AllocationStrategy for ByConfig {
    fn name(&self) -> &'static str {
        "CONFIG"
    }

    fn allocate(&self, queues: &[MessageQueue], _members: usize, _own: usize) -> Vec<MessageQueue> {
        let topics: BTreeSet<_> = queues.iter().map(|queue| &queue.topic).collect();
        self.queues.iter().filter(|queue| topics.contains(&queue.topic)).cloned().collect()
    }
}

/// Only queues of brokers named `room@name` with an allowed room; queues of other rooms have no owner.
#[derive(Debug, Clone, Default)]
pub struct MachineRoom {
    /// The allowed rooms.
    pub rooms: BTreeSet<String>,
}

impl AllocationStrategy for MachineRoom {
    fn name(&self) -> &'static str {
        "MACHINE_ROOM"
    }

    fn allocate(&self, queues: &[MessageQueue], members: usize, own: usize) -> Vec<MessageQueue> {
        let near: Vec<&MessageQueue> = queues
            .iter()
            .filter(|queue| queue.broker.split_once('@').is_some_and(|(room, _)| self.rooms.contains(room)))
            .collect();
        let share = near.len() / members;
        let contiguous = near[own * share..(own + 1) * share].iter();
        let extra = near[members * share..].get(own);
        contiguous.chain(extra).map(|queue| (*queue).clone()).collect()
    }
}

/// Sorts member ids as the reference does: by UTF-16 units. All members must agree on this order.
pub(crate) fn sort_members(members: &mut [String]) {
    members.sort_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn queues(count: u32, broker: &str) -> Vec<MessageQueue> {
        (0..count).map(|id| MessageQueue::new("T", broker, id)).collect()
    }

    fn shares(strategy: &dyn AllocationStrategy, queues: &[MessageQueue], members: usize) -> Vec<Vec<u32>> {
        (0..members).map(|own| strategy.allocate(queues, members, own).iter().map(|queue| queue.id).collect()).collect()
    }

    fn range(from: u32, to: u32) -> Vec<u32> {
        (from..=to).collect()
    }

    #[test]
    fn averagely_gives_the_documented_shares() {
        let of = |count, members| shares(&Averagely, &queues(count, "b"), members);
        assert_eq!(of(8, 3), [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7]]);
        assert_eq!(of(4, 5), [vec![0], vec![1], vec![2], vec![3], vec![]]);
        assert_eq!(of(7, 4), [vec![0, 1], vec![2, 3], vec![4, 5], vec![6]]);
        assert_eq!(of(16, 3), [range(0, 5), range(6, 10), range(11, 15)]);
        assert_eq!(of(8, 12)[..8], (0..8).map(|id| vec![id]).collect::<Vec<_>>());
        assert!(of(8, 12)[8..].iter().all(Vec::is_empty));
    }

    #[test]
    fn circle_gives_the_documented_shares() {
        let of = |count, members| shares(&AveragelyByCircle, &queues(count, "b"), members);
        assert_eq!(of(8, 3), [vec![0, 3, 6], vec![1, 4, 7], vec![2, 5]]);
        assert_eq!(of(7, 4), [vec![0, 4], vec![1, 5], vec![2, 6], vec![3]]);
        assert_eq!(of(16, 3), [vec![0, 3, 6, 9, 12, 15], vec![1, 4, 7, 10, 13], vec![2, 5, 8, 11, 14]]);
    }

    #[test]
    fn machine_room_gives_the_documented_shares_and_skips_other_rooms() {
        let rooms = MachineRoom { rooms: BTreeSet::from(["x".to_owned()]) };
        let of = |count, members| shares(&rooms, &queues(count, "x@b"), members);
        assert_eq!(of(8, 3), [vec![0, 1, 6], vec![2, 3, 7], vec![4, 5]]);
        assert_eq!(of(7, 4), [vec![0, 4], vec![1, 5], vec![2, 6], vec![3]]);
        assert_eq!(of(16, 3), [vec![0, 1, 2, 3, 4, 15], range(5, 9), range(10, 14)]);
        assert!(rooms.allocate(&queues(8, "y@b"), 1, 0).is_empty());
        assert!(rooms.allocate(&queues(8, "b"), 1, 0).is_empty());
    }

    #[test]
    fn by_config_keeps_to_the_topics_that_are_asked_for() {
        let configured = ByConfig { queues: vec![MessageQueue::new("T", "b", 3), MessageQueue::new("other", "b", 0)] };
        assert_eq!(configured.allocate(&queues(8, "b"), 2, 1), [MessageQueue::new("T", "b", 3)]);
    }

    #[test]
    fn a_duplicated_member_id_leaves_its_second_share_without_an_owner() {
        // Four entries, of which two are the same client: it finds itself at the first place only. Other clients
        // compute with the same list, so removing the duplicate here would break the agreement with them.
        let all = shares(&Averagely, &queues(8, "b"), 4);
        let owned: usize = [0, 1, 3].iter().map(|&own: &usize| all[own].len()).sum();
        assert_eq!(owned, 6);
    }

    #[test]
    fn members_sort_by_utf16_units() {
        let mut members =
            vec!["\u{ff5e}".to_owned(), "\u{1f600}".to_owned(), "10.0.0.2@1".into(), "10.0.0.10@1".into()];
        sort_members(&mut members);
        assert_eq!(members, ["10.0.0.10@1", "10.0.0.2@1", "\u{1f600}", "\u{ff5e}"]);
    }

    proptest! {
        #[test]
        fn each_queue_has_exactly_one_owner(count in 1u32..200, members in 1usize..60) {
            let queues = queues(count, "x@b");
            let rooms = MachineRoom { rooms: BTreeSet::from(["x".to_owned()]) };
            for strategy in [&Averagely as &dyn AllocationStrategy, &AveragelyByCircle, &rooms] {
                let mut owned: Vec<u32> = shares(strategy, &queues, members).concat();
                owned.sort_unstable();
                prop_assert_eq!(owned, (0..count).collect::<Vec<_>>(), "{}", strategy.name());
            }
        }
    }
}
