//! The side hash: a running hash over events too cheap and too many to record.

use std::ops::Range;

use crate::stand::{NodeId, SideEvent, SideReport};

/// Kinds of events in the side hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Side {
    /// A task started: its ordinal in the life of its node, its name (hashed).
    Spawn = 1,
    /// A task was polled: its ordinal.
    Poll,
    /// A timer fired: its number in the run.
    Timer,
    /// A segment arrived: the connection, its length.
    Segment,
    /// A connection changed its state: the connection, a code for the change.
    Connection,
    /// A power loss at a disk: dirty pages, lost pages.
    Disk,
    /// A node changed its state: its life, a code for the change.
    Node,
    /// A point was passed: its name (hashed), its value.
    Point,
}

/// How many events lie between two checkpoints.
const CHECKPOINT_EVERY: u64 = 1_000;

/// Two lanes of multiply and rotate. It only has to tell runs apart: nobody attacks it, and a fixed function of our
/// own cannot change its meaning with a dependency.
#[derive(Debug)]
pub(crate) struct SideHash {
    lanes: [u64; 2],
    count: u64,
    checkpoints: Vec<u64>,
    keep: Range<u64>,
    kept: Vec<SideEvent>,
}

impl SideHash {
    pub(crate) fn new(keep: Option<Range<u64>>) -> SideHash {
        SideHash {
            lanes: [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344],
            count: 0,
            checkpoints: Vec::new(),
            keep: keep.unwrap_or(0..0),
            kept: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, at: u64, kind: Side, node: NodeId, a: u64, b: u64) {
        self.fold(at ^ ((kind as u64) << 56) ^ (u64::from(node.0) << 40));
        self.fold(a ^ b.rotate_left(32));
        if self.keep.contains(&self.count) {
            self.kept.push(SideEvent { index: self.count, at, kind, node, a, b });
        }
        self.count += 1;
        if self.count.is_multiple_of(CHECKPOINT_EVERY) {
            self.checkpoints.push(self.lanes[0]);
        }
    }

    fn fold(&mut self, word: u64) {
        let [first, second] = self.lanes;
        let first = (first ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let second = second.wrapping_add(first ^ word.rotate_left(32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.lanes = [first, second.rotate_left(31)];
    }

    pub(crate) fn hash(&self) -> u128 {
        u128::from(self.lanes[1]) << 64 | u128::from(self.lanes[0])
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn report(&mut self) -> SideReport {
        SideReport {
            hash: self.hash(),
            count: self.count,
            checkpoints: std::mem::take(&mut self.checkpoints),
            window: std::mem::take(&mut self.kept),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_an_event_and_their_order_count() {
        let hash = |events: &[(u64, Side, u32, u64, u64)]| {
            let mut side = SideHash::new(None);
            for &(at, kind, node, a, b) in events {
                side.add(at, kind, NodeId(node), a, b);
            }
            side.hash()
        };
        let base = (1, Side::Poll, 2, 3, 4);
        let mut all = vec![
            hash(&[]),
            hash(&[base]),
            hash(&[base, base]),
            hash(&[(9, Side::Poll, 2, 3, 4)]),
            hash(&[(1, Side::Timer, 2, 3, 4)]),
            hash(&[(1, Side::Poll, 9, 3, 4)]),
            hash(&[(1, Side::Poll, 2, 9, 4)]),
            hash(&[(1, Side::Poll, 2, 3, 9)]),
            hash(&[(1, Side::Poll, 2, 4, 3)]),
            hash(&[base, (9, Side::Poll, 2, 3, 4)]),
            hash(&[(9, Side::Poll, 2, 3, 4), base]),
        ];
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn the_window_keeps_the_events_that_were_asked_for() {
        let mut side = SideHash::new(Some(1_000..1_002));
        for index in 0..2_500 {
            side.add(index, Side::Timer, NodeId(0), index, 0);
        }
        let report = side.report();
        assert_eq!(report.window.iter().map(|event| event.a).collect::<Vec<_>>(), [1_000, 1_001]);
        assert_eq!(report.checkpoints.len(), 2);
        assert_eq!(report.count, 2_500);
    }
}
