//! The clocks of a node as functions of true time.
//!
//! Each clock is a straight line that begins where the last change happened, so that reading it costs nothing and it
//! never depends on how often it was read. All arithmetic is in integers.

/// Parts per billion: how much faster than true time a clock runs.
type Ppb = i64;

const BILLION: i128 = 1_000_000_000;

/// Both clocks of one node.
#[derive(Debug, Clone)]
pub(crate) struct NodeClock {
    /// Nanoseconds since boot.
    mono: Line,
    /// Nanoseconds since 1970, UTC.
    wall: Line,
    /// What takes its place from its begin on, while the wall clock is being slewed.
    wall_then: Option<Line>,
}

/// How fast a clock is slewed.
const SLEW: Ppb = 500_000;

impl NodeClock {
    /// Clocks of a machine that boots at `now` of true time and whose wall clock shows `wall_ns`.
    pub(crate) fn new(now: u64, wall_ns: i64) -> NodeClock {
        NodeClock {
            mono: Line { since: now, value: 0, rate: 0 },
            wall: Line { since: now, value: i128::from(wall_ns), rate: 0 },
            wall_then: None,
        }
    }

    /// Nanoseconds since boot. Never goes back.
    pub(crate) fn mono(&self, now: u64) -> u64 {
        u64::try_from(self.mono.at(now)).unwrap_or(0)
    }

    /// The first moment of true time at which [`mono`](NodeClock::mono) has reached `mono`.
    pub(crate) fn true_time_of(&self, mono: u64) -> u64 {
        self.mono.reaches(i128::from(mono))
    }

    /// Milliseconds since 1970, rounded down.
    pub(crate) fn wall_ms(&self, now: u64) -> i64 {
        i64::try_from(self.wall_line(now).at(now).div_euclid(1_000_000)).unwrap_or(i64::MAX)
    }

    /// The line that the wall clock is on.
    fn wall_line(&self, now: u64) -> Line {
        self.wall_then.filter(|then| then.since <= now).unwrap_or(self.wall)
    }

    /// Power came back: the monotonic clock starts from zero, at its old rate. The wall clock has a battery.
    pub(crate) fn boot(&mut self, now: u64) {
        self.mono = Line { since: now, value: 0, ..self.mono };
    }

    /// Moves the wall clock by so many nanoseconds.
    pub(crate) fn step_wall(&mut self, now: u64, delta_ns: i64) {
        let line = self.wall_line(now);
        let rate = self.rate_after_slew(line, now);
        self.wall = Line { since: now, value: line.at(now) + i128::from(delta_ns), rate };
        self.wall_then = None;
    }

    /// Sets the wall clock.
    pub(crate) fn set_wall(&mut self, now: u64, wall_ns: i64) {
        let rate = self.rate_after_slew(self.wall_line(now), now);
        self.wall = Line { since: now, value: i128::from(wall_ns), rate };
        self.wall_then = None;
    }

    /// The rate that a line has when a slew that is going on is given up.
    fn rate_after_slew(&self, line: Line, now: u64) -> Ppb {
        self.wall_then.filter(|then| then.since > now).map_or(line.rate, |then| then.rate)
    }

    /// Brings the wall clock from what it shows to `true_ns`, a clock that runs at true rate, slowly.
    pub(crate) fn slew_wall(&mut self, now: u64, true_ns: i64) {
        let value = self.wall_line(now).at(now);
        let off = value - i128::from(true_ns);
        let rate = if off > 0 { -SLEW } else { SLEW };
        let lasts = off.abs() * BILLION / i128::from(SLEW);
        self.wall = Line { since: now, value, rate };
        let since = now.saturating_add(u64::try_from(lasts).unwrap_or(u64::MAX));
        let value = i128::from(true_ns) + i128::from(since - now);
        self.wall_then = Some(Line { since, value, rate: 0 });
    }

    /// Changes how fast both clocks run. Timers have to be computed again.
    pub(crate) fn set_rate(&mut self, now: u64, rate: Ppb) {
        assert!(i128::from(rate) > -BILLION, "a clock must go forwards");
        self.mono = Line { since: now, value: self.mono.at(now), rate };
        self.wall = Line { since: now, value: self.wall_line(now).at(now), rate };
        self.wall_then = None;
    }
}

/// `value` at `since`, and from there on a little faster or slower than true time.
#[derive(Debug, Clone, Copy)]
struct Line {
    since: u64,
    value: i128,
    rate: Ppb,
}

impl Line {
    fn at(self, now: u64) -> i128 {
        let passed = now.saturating_sub(self.since);
        self.value + i128::from(passed) + self.gained(passed)
    }

    /// How far it is ahead of a clock at true rate after so many nanoseconds. Clocks are read at every event, and a
    /// division of 128 bits costs as much as all the rest of reading one: most need none.
    fn gained(self, passed: u64) -> i128 {
        if self.rate == 0 {
            return 0;
        }
        match i64::try_from(passed).ok().and_then(|passed| passed.checked_mul(self.rate)) {
            Some(product) => i128::from(product.div_euclid(BILLION as i64)),
            None => (i128::from(passed) * i128::from(self.rate)).div_euclid(BILLION),
        }
    }

    fn reaches(self, value: i128) -> u64 {
        let missing = (value - self.value).max(0);
        let speed = BILLION + i128::from(self.rate);
        let passed = if self.rate == 0 { missing } else { (missing * BILLION + speed - 1) / speed };
        self.since.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn monotonic_time_survives_every_change_of_the_wall_clock() {
        let mut clock = NodeClock::new(5 * SECOND, 0);
        assert_eq!(clock.mono(5 * SECOND), 0);
        clock.step_wall(6 * SECOND, -3_600 * SECOND as i64);
        assert_eq!(clock.mono(7 * SECOND), 2 * SECOND);
        assert_eq!(clock.wall_ms(7 * SECOND), 2_000 - 3_600_000);
        clock.set_wall(7 * SECOND, 42 * SECOND as i64);
        assert_eq!(clock.wall_ms(8 * SECOND), 43_000);
    }

    #[test]
    fn a_fast_clock_reaches_a_deadline_early_and_never_before_it_shows_it() {
        let mut clock = NodeClock::new(0, 0);
        clock.set_rate(10 * SECOND, 200_000); // 200 ppm
        let deadline = 20 * SECOND;
        let at = clock.true_time_of(deadline);
        assert!(at < deadline, "a fast clock is early: {at}");
        assert!(clock.mono(at) >= deadline);
        assert!(clock.mono(at - 1) < deadline);
    }

    #[test]
    fn a_change_of_rate_makes_no_jump() {
        let mut clock = NodeClock::new(0, 0);
        for (second, rate) in [(1, 50_000_000), (2, -50_000_000), (3, 0), (4, 333)] {
            let before = (clock.mono(second * SECOND), clock.wall_ms(second * SECOND));
            clock.set_rate(second * SECOND, rate);
            assert_eq!((clock.mono(second * SECOND), clock.wall_ms(second * SECOND)), before);
        }
    }

    #[test]
    fn a_boot_starts_from_zero_with_the_wall_clock_kept() {
        let mut clock = NodeClock::new(0, 0);
        clock.boot(9 * SECOND);
        assert_eq!(clock.mono(9 * SECOND), 0);
        assert_eq!(clock.wall_ms(9 * SECOND), 9_000);
    }
}
