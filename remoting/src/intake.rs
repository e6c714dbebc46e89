//! What the connections of one server or client have to share.

use std::{
    cmp::Ordering,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{self, AtomicUsize},
    },
    time::Duration,
};

use host::time::Mono;

/// Of one window of [`Seldom`].
const WINDOW: Duration = Duration::from_secs(10);
/// Lines about broken frames in one window.
const BROKEN_TOLD_MAX: u32 = 5;

/// The bytes of frames that are not complete, over all connections, and what is said of connections that break.
///
/// A frame may have 16 MiB, and nobody needs to send the end of it: without a bound a few idle connections could hold
/// any amount of memory.
#[derive(Debug)]
pub(crate) struct Intake {
    bytes_max: usize,
    bytes: AtomicUsize,
    /// Of connections that were closed for what they sent.
    pub broken: Seldom,
}

/// The share of one connection, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    intake: Arc<Intake>,
    bytes: usize,
}

impl Intake {
    pub fn new(bytes_max: usize) -> Intake {
        Intake { bytes_max, bytes: AtomicUsize::new(0), broken: Seldom::new(BROKEN_TOLD_MAX) }
    }
}

impl Share {
    pub fn new(intake: Arc<Intake>) -> Share {
        Share { intake, bytes: 0 }
    }

    pub fn intake(&self) -> &Intake {
        &self.intake
    }

    /// The connection holds so many bytes now. False if it grew and all together have too many.
    pub fn set(&mut self, bytes: usize) -> bool {
        let before = std::mem::replace(&mut self.bytes, bytes);
        match bytes.cmp(&before) {
            // After nearly every read: what all share is left alone.
            Ordering::Equal => true,
            Ordering::Less => {
                self.intake.bytes.fetch_sub(before - bytes, atomic::Ordering::AcqRel);
                true
            }
            Ordering::Greater => {
                let more = bytes - before;
                self.intake.bytes.fetch_add(more, atomic::Ordering::AcqRel) + more <= self.intake.bytes_max
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Decides about log lines that whoever is outside could cause without end.
#[derive(Debug)]
pub(crate) struct Seldom {
    max: u32,
    /// Leaf lock.
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    ends: Mono,
    told: u32,
    kept_back: u64,
}

impl Seldom {
    /// Lets `max` lines pass in ten seconds.
    pub const fn new(max: u32) -> Seldom {
        Seldom { max, window: Mutex::new(Window { ends: Mono::from_nanos(0), told: 0, kept_back: 0 }) }
    }

    /// Whether to tell of it now, and then how many lines were kept back since the last one.
    pub fn may_tell(&self, now: Mono) -> Option<u64> {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= window.ends {
            window.ends = now + WINDOW;
            window.told = 0;
        }
        if window.told >= self.max {
            window.kept_back += 1;
            return None;
        }
        window.told += 1;
        Some(std::mem::take(&mut window.kept_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_kept_back_are_counted() {
        let seldom = Seldom::new(2);
        let at = |seconds: u64| Mono::from_nanos(seconds * 1_000_000_000);
        let told: Vec<Option<u64>> = [0, 1, 2, 9, 10, 10, 11, 30].map(|second| seldom.may_tell(at(second))).into();
        assert_eq!(told, [Some(0), Some(0), None, None, Some(2), Some(0), None, Some(1)]);
    }

    #[test]
    fn shares_are_given_back() {
        let intake = Arc::new(Intake::new(100));
        let (mut one, mut two) = (Share::new(Arc::clone(&intake)), Share::new(Arc::clone(&intake)));
        assert!(one.set(60) && two.set(40));
        assert!(!two.set(41));
        assert!(one.set(0) && two.set(100));
        drop(two);
        assert!(one.set(100));
    }
}
