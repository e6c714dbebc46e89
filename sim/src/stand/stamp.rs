//! The stamp of log lines: virtual time, node and life instead of the time of day.

use std::{
    cell::RefCell,
    fmt,
    marker::PhantomData,
    sync::{Arc, Weak},
    time::Duration,
};

use host::Host;
use tracing_subscriber::fmt::{format::Writer, time::FormatTime};

use crate::world::World;

thread_local! {
    /// The run of this thread.
    static RUN: RefCell<Weak<World>> = const { RefCell::new(Weak::new()) };
}

/// Stamps log lines as `12.345678901s broker-a/0#2`, with the node and life of the task that logs; nothing of that
/// outside a run. For `tracing_subscriber::fmt().with_timer(Stamp)`; a filter should silence the target `madsim`.
/// Reading the time changes nothing in a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stamp;

impl FormatTime for Stamp {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        let world = RUN.with(|run| run.borrow().upgrade());
        let Some(world) = world else { return write!(w, "-") };
        let at = Duration::from_nanos(world.now());
        write!(w, "{}.{:09}s", at.as_secs(), at.subsec_nanos())?;
        match Host::try_current() {
            Some(host) => write!(w, " {}#{}", host.node(), host.incarnation()),
            None => write!(w, " stand"),
        }
    }
}

/// Stamps by this run on this thread until the guard is dropped.
pub(super) fn begin(world: &Arc<World>) -> Stamping {
    RUN.with(|run| *run.borrow_mut() = Arc::downgrade(world));
    Stamping { not_send: PhantomData }
}

/// See [`begin`].
pub(super) struct Stamping {
    /// The guard belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl Drop for Stamping {
    fn drop(&mut self) {
        let _ = self.not_send;
        RUN.with(|run| *run.borrow_mut() = Weak::new());
    }
}
