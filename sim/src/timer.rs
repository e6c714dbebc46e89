//! Timers by true time or by the clock of a node. Dropping one cancels it.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use host::time::Mono;

use crate::{
    stand::{NodeId, node::Life},
    world::{World, agenda::TimerSlot},
};

/// One timer.
pub(crate) struct Timer {
    world: Arc<World>,
    clock: TimerClock,
    /// By that clock, in nanoseconds.
    deadline: u64,
    /// Entered on the first poll, so that a timer nobody waits for costs nothing.
    slot: Option<TimerSlot>,
}

/// What a timer runs by.
pub(crate) enum TimerClock {
    /// True time.
    True,
    /// The monotonic clock of a node, until this life of it ends.
    Node(Life),
}

impl Timer {
    pub(crate) fn new(world: &Arc<World>, clock: TimerClock, deadline: u64) -> Timer {
        Timer { world: Arc::clone(world), clock, deadline, slot: None }
    }

    /// The deadline in true time, and what to keep for when the node's clock changes its pace.
    fn entry(&self) -> (u64, Option<(NodeId, u64)>) {
        match &self.clock {
            TimerClock::True => (self.deadline, None),
            TimerClock::Node(life) => (life.node.true_time_of(self.deadline), Some((life.node.id, self.deadline))),
        }
    }

    fn cancel(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.world.with(|core, _| core.agenda.cancel(slot));
        }
    }
}

impl host::machine::Timer for Timer {
    fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let TimerClock::Node(life) = &self.clock
            && !life.is_alive()
        {
            // Only code that leaked out of a dead life can still ask: for it, time stands still.
            return Poll::Pending;
        }
        // A clock has reached a moment exactly when true time has reached what that moment is in true time.
        let (at, clock) = self.entry();
        let slot = &mut self.slot;
        self.world.with(|core, now| {
            if now >= at {
                if let Some(slot) = slot.take() {
                    core.agenda.cancel(slot);
                }
                return Poll::Ready(());
            }
            match *slot {
                Some(slot) => core.agenda.wait_again(slot, cx.waker(), (at, clock)),
                None => *slot = Some(core.agenda.add_timer(at, cx.waker().clone(), clock)),
            }
            Poll::Pending
        })
    }

    fn reset(&mut self, deadline: Mono) {
        self.deadline = deadline.as_nanos();
        if let Some(slot) = self.slot {
            let (at, clock) = self.entry();
            self.world.with(|core, _| core.agenda.move_timer(slot, at, clock));
        }
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        host::machine::Timer::poll_elapsed(&mut *self, cx)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.cancel();
    }
}
