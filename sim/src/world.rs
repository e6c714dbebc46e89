//! What every simulated part of a machine shares: true time, events at a time, the side hash, who is alive.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use crate::{seed::Seeds, stand::NodeId};

/// One run. Parts keep an `Arc` of it; it is emptied when the run ends.
pub(crate) struct World {}

impl World {
    /// True time: nanoseconds since the run began.
    pub(crate) fn now(&self) -> u64 {
        todo!()
    }

    /// Ends at `at` of true time; at once if that has passed. Dropping it cancels it.
    pub(crate) fn sleep_until(self: &std::sync::Arc<Self>, _at: u64) -> WorldSleep {
        todo!()
    }

    /// The seeds of the run.
    pub(crate) fn seeds(&self) -> &Seeds {
        todo!()
    }

    /// Adds a cheap event to the side hash.
    pub(crate) fn note(&self, _kind: Side, _node: NodeId, _a: u64, _b: u64) {
        todo!()
    }

    /// Whether this life of the node still runs (also while it is paused).
    pub(crate) fn is_alive(&self, _node: NodeId, _incarnation: u32) -> bool {
        todo!()
    }

    /// The process of this life dies on the spot, as of a signal; nothing happens if it is dead already. Code that is
    /// running goes on until its next await, with every operation refused. Call it with no lock held.
    pub(crate) fn die(&self, _node: NodeId, _incarnation: u32, _reason: &str) {
        todo!()
    }
}

/// See [`World::sleep_until`].
pub(crate) struct WorldSleep {}

impl Future for WorldSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<()> {
        todo!()
    }
}

/// Kinds of events in the side hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A task started: its ordinal in the life of its node.
    Spawn,
    /// A task was polled: its ordinal.
    Poll,
    /// A timer fired: its number.
    Timer,
    /// A segment arrived: connection and length.
    Segment,
    /// A connection began or ended.
    Connection,
    /// A disk operation.
    Disk,
    /// A node changed its state.
    Node,
    /// A point was passed.
    Point,
}
