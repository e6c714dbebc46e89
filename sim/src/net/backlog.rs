//! What a link has taken on while it was slower than usual, so that it goes on faster once it may.
//!
//! The bytes of a segment keep the wire busy for some time, and its first byte is on its way for the latency. When a link
//! becomes faster, what is not over of both is worked out anew: what has passed by then stays as it was, the rest goes at
//! the new pace. Segments keep their order, and none arrives later than it would have.

use std::collections::VecDeque;

use crate::{
    net::connection::{ConnId, EndId, NetEvent},
    world::hastened,
};

/// What arrives at the end of a journey.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rider {
    /// A segment of a stream, by the number that its direction gave it.
    Segment(ConnId, EndId, u64),
    /// An event of its own, with its number in the agenda.
    Event(ConnId, EndId, u64, NetEvent),
}

impl Rider {
    /// The connection, and the end that it left.
    pub(super) fn direction(self) -> (ConnId, EndId) {
        match self {
            Rider::Segment(id, from, _) | Rider::Event(id, from, ..) => (id, from),
        }
    }
}

/// How fast a link is for some bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// How long they keep the wire busy.
    pub(super) busy: u64,
    /// How many times as long as usual the latency is.
    pub(super) slowness: u64,
}

/// The way of some bytes over a link. All times are virtual nanoseconds since the run began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Journey {
    /// The port that the server of the connection listens on.
    pub(super) port: u16,
    pub(super) bytes: usize,
    pub(super) pace: Pace,
    /// When the first byte goes onto the wire.
    pub(super) start: u64,
    /// When the wire is free again.
    pub(super) end: u64,
    /// The latency of a link that is not slow.
    pub(super) usual: u64,
    /// When the first byte has it behind it.
    across: u64,
    /// What comes on top, at whatever pace.
    pub(super) extra: u64,
}

impl Journey {
    /// Begins as soon as the wire is `free`; `(usual, extra)` are the two parts of the latency.
    pub(super) fn new((port, bytes): (u16, usize), pace: Pace, free: u64, (usual, extra): (u64, u64)) -> Journey {
        let mut journey = Journey { port, bytes, pace, start: free, end: free, usual, across: free, extra };
        (journey.end, journey.across) = journey.times();
        journey
    }

    /// When it is over.
    pub(super) fn arrival(&self) -> u64 {
        self.across.saturating_add(self.extra)
    }

    fn times(&self) -> (u64, u64) {
        let latency = self.usual.saturating_mul(self.pace.slowness);
        (self.start.saturating_add(self.pace.busy), self.start.saturating_add(latency))
    }

    /// Goes on at a faster pace from `now` on, or as soon as the wire is `free` if it has not begun. In what the pace is
    /// not faster it stays as it is.
    fn hasten(&mut self, pace: Pace, free: u64, now: u64) {
        let old = self.pace;
        self.pace = Pace { busy: old.busy.min(pace.busy), slowness: old.slowness.min(pace.slowness) };
        if self.start < now {
            self.end = hastened(self.end, now, (self.pace.busy, old.busy));
            self.across = hastened(self.across, now, (self.pace.slowness, old.slowness));
        } else {
            self.start = self.start.min(free.max(now));
            (self.end, self.across) = self.times();
        }
    }
}

/// A journey on a link that is slower than usual.
#[derive(Debug)]
pub(super) struct Passage {
    pub(super) journey: Journey,
    /// `None` for bytes that joined a segment.
    pub(super) rider: Option<Rider>,
    /// When the rider arrives: not before what its direction has sent earlier.
    pub(super) arrives_at: u64,
    /// When that was to arrive.
    pub(super) not_before: u64,
}

/// The passages of a link that are not over, in the order of sending.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    passages: VecDeque<Passage>,
    /// When the wire is free of what was sent before all of them.
    free: u64,
}

impl Backlog {
    pub(super) fn push(&mut self, now: u64, passage: Passage) {
        let is_over = |passage: &Passage| passage.journey.end.max(passage.arrives_at) <= now;
        while self.passages.front().is_some_and(is_over) {
            self.passages.pop_front();
        }
        if self.passages.is_empty() {
            self.free = passage.journey.start;
        }
        self.passages.push_back(passage);
    }

    /// Works all times out anew. `pace` tells how fast the link is now.
    pub(super) fn hasten(&mut self, now: u64, pace: impl Fn(&Journey) -> Pace) {
        let mut free = self.free;
        for Passage { journey, .. } in &mut self.passages {
            journey.hasten(pace(journey), free, now);
            free = journey.end;
        }
    }

    /// When the wire is free of them; `None` if there are none.
    pub(super) fn end(&self) -> Option<u64> {
        self.passages.back().map(|passage| passage.journey.end)
    }

    pub(super) fn passages(&mut self) -> impl Iterator<Item = &mut Passage> {
        self.passages.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passage(bytes: usize, pace: Pace, free: u64) -> Passage {
        let journey = Journey::new((1, bytes), pace, free, (10, 3));
        Passage { journey, rider: None, arrives_at: journey.arrival(), not_before: 0 }
    }

    fn times(backlog: &Backlog) -> Vec<(u64, u64, u64)> {
        backlog.passages.iter().map(|it| (it.journey.start, it.journey.end, it.journey.arrival())).collect()
    }

    /// Three segments of 100 bytes, each 1,000 ns on the wire of a link of which everything takes 100 times as long.
    fn three() -> Backlog {
        let mut backlog = Backlog::default();
        for number in 0..3 {
            backlog.push(0, passage(100, Pace { busy: 1_000, slowness: 100 }, 5 + number * 1_000));
        }
        backlog
    }

    #[test]
    fn what_has_not_begun_goes_at_the_new_pace_and_what_has_does_so_for_the_rest() {
        let mut backlog = three();
        assert_eq!(times(&backlog), [(5, 1_005, 1_008), (1_005, 2_005, 2_008), (2_005, 3_005, 3_008)]);
        backlog.hasten(505, |_| Pace { busy: 10, slowness: 1 });
        // Half of the first is over. Of its bytes 50 are left, of its latency 5 ns.
        assert_eq!(times(&backlog), [(5, 510, 513), (510, 520, 523), (520, 530, 533)]);
        assert_eq!(backlog.end(), Some(530));
    }

    #[test]
    fn two_steps_to_the_usual_pace_end_between_the_slow_and_the_fast() {
        let mut backlog = three();
        backlog.hasten(505, |_| Pace { busy: 100, slowness: 10 });
        assert_eq!(times(&backlog), [(5, 555, 558), (555, 655, 658), (655, 755, 758)]);
        backlog.hasten(605, |_| Pace { busy: 10, slowness: 1 });
        assert_eq!(times(&backlog), [(5, 555, 558), (555, 610, 613), (610, 620, 623)]);
    }

    #[test]
    fn a_pace_that_is_slower_changes_nothing() {
        let mut backlog = three();
        let before = times(&backlog);
        backlog.hasten(505, |_| Pace { busy: 5_000, slowness: 100 });
        assert_eq!(times(&backlog), before);
    }

    #[test]
    fn what_was_sent_before_all_of_them_keeps_the_wire() {
        let mut backlog = three();
        backlog.free = 200;
        let slow = |start| passage(100, Pace { busy: 1_000, slowness: 100 }, start);
        backlog.passages = [slow(200), slow(1_200)].into();
        backlog.hasten(100, |_| Pace { busy: 10, slowness: 1 });
        assert_eq!(times(&backlog), [(200, 210, 213), (210, 220, 223)]);
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let mut backlog = three();
        backlog.push(2_008, passage(100, Pace { busy: 1_000, slowness: 100 }, 3_005));
        assert_eq!(times(&backlog), [(2_005, 3_005, 3_008), (3_005, 4_005, 4_008)]);
    }
}
