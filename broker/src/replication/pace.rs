//! How much of the log one connection may get in a second.

use std::time::Duration;

use host::time::Mono;

const WINDOW: Duration = Duration::from_secs(1);

/// Counts what was sent in windows of a second. The reference counts headers only, which limits nothing (HW09).
#[derive(Debug)]
pub(super) struct Pace {
    /// `None` for no limit.
    max_bytes: Option<u64>,
    window: Mono,
    sent: u64,
}

impl Pace {
    pub(super) fn new(max_bytes: Option<u64>, now: Mono) -> Pace {
        Pace { max_bytes, window: now, sent: 0 }
    }

    /// How many bytes may be sent now, at least one.
    ///
    /// # Errors
    /// None may; when there may be some.
    pub(super) fn allowed(&mut self, now: Mono) -> Result<u64, Mono> {
        let Some(max_bytes) = self.max_bytes else { return Ok(u64::MAX) };
        if now.since(self.window) >= WINDOW {
            (self.window, self.sent) = (now, 0);
        }
        match max_bytes.saturating_sub(self.sent) {
            0 => Err(self.window + WINDOW),
            left => Ok(left),
        }
    }

    pub(super) fn sent(&mut self, bytes: u64) {
        self.sent = self.sent.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hw09_a_second_has_its_bytes_and_no_more() {
        let at = |millis: u64| Mono::from_nanos(millis * 1_000_000);
        let mut pace = Pace::new(Some(100), at(0));
        assert_eq!(pace.allowed(at(10)), Ok(100));
        pace.sent(60);
        assert_eq!(pace.allowed(at(20)), Ok(40));
        pace.sent(44); // With its header a frame may be a little longer.
        assert_eq!(pace.allowed(at(999)), Err(at(1000)));
        assert_eq!(pace.allowed(at(1000)), Ok(100));
        assert_eq!(Pace::new(None, at(0)).allowed(at(0)), Ok(u64::MAX));
    }
}
