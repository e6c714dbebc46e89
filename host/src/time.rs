//! Monotonic time and timers.

use std::{
    fmt,
    future::Future,
    ops::{Add, AddAssign, Sub},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use crate::{Host, machine::Timer};

/// A moment of one node's monotonic clock, in nanoseconds since it booted.
///
/// It is not `std::time::Instant`, so that moments of the machine and of a node cannot be mixed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(u64);

impl Mono {
    /// The moment `nanos` after boot.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Mono {
        Mono(nanos)
    }

    /// Nanoseconds since boot.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time since `earlier`; zero if that lies in the future.
    #[must_use]
    pub const fn since(self, earlier: Mono) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Mono {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

/// Saturates at the end of time, some 584 years after boot.
impl Add<Duration> for Mono {
    type Output = Mono;

    fn add(self, duration: Duration) -> Mono {
        Mono(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Mono {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

/// See [`Mono::since`]: zero rather than negative.
impl Sub for Mono {
    type Output = Duration;

    fn sub(self, earlier: Mono) -> Duration {
        self.since(earlier)
    }
}

/// The time of a [`Host::timeout`] was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("timed out")]
pub struct Elapsed;

/// Waits for a moment; made by [`Host::sleep`]. Dropping it cancels the timer.
pub struct Sleep {
    deadline: Mono,
    timer: Box<dyn Timer>,
}

impl Sleep {
    pub(crate) fn new(host: &Host, deadline: Mono) -> Sleep {
        Sleep { deadline, timer: host.machine().timer(deadline) }
    }

    /// The moment it waits for.
    #[must_use]
    pub fn deadline(&self) -> Mono {
        self.deadline
    }

    /// Waits for another moment from now on, also after it has fired.
    pub fn reset(&mut self, deadline: Mono) {
        self.deadline = deadline;
        self.timer.reset(deadline);
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.poll_elapsed(cx)
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sleep until {:?}", self.deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_never_overflow_and_never_go_below_zero() {
        let end = Mono::from_nanos(u64::MAX);
        assert_eq!(end + Duration::from_secs(1), end);
        assert_eq!(Mono::default() + Duration::MAX, end);
        assert_eq!(Mono::from_nanos(3) - Mono::from_nanos(5), Duration::ZERO);
        assert_eq!(Mono::from_nanos(5).since(Mono::from_nanos(3)), Duration::from_nanos(2));
        assert_eq!(format!("{:?}", Mono::from_nanos(1_500_000)), "1.5ms");
    }
}
