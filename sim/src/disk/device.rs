//! How long the device takes.
//!
//! A request takes the lane that frees first, and holds it for a latency drawn from the distribution of its kind plus
//! the time for its bytes. What a slow or stalled device was asked for goes on at the usual pace as soon as it is neither.
//! All arithmetic is in integers, so that every machine computes the same moments.

use std::collections::VecDeque;

use crate::{
    seed::{Domain, Draw, Seed},
    world::hastened,
};

const LATENCY: Domain = Domain::named("disk.latency");

/// How long requests take (`spec/simulation.md` 2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timing {
    /// A local NVMe drive: flush 0.1 ms (median) and 2 GB/s.
    Nvme,
    /// A good SSD: flush 0.4 ms (median), 30 ms (p99.9), and 400 MB/s.
    #[default]
    Ssd,
    /// A spinning disk: flush 12 ms (median) and 120 MB/s, one request at a time.
    Hdd,
    /// No time at all.
    Instant,
}

/// A latency distribution: nanoseconds at the quantiles of [`QUANTILES_PPM`], linear between them.
type Latency = [u64; 6];

const QUANTILES_PPM: [u64; 6] = [0, 500_000, 900_000, 990_000, 999_000, 1_000_000];

struct Profile {
    read: Latency,
    write: Latency,
    flush: Latency,
    bytes_per_second: u64,
    lanes: usize,
}

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

const NVME: Profile = Profile {
    read: [8 * US, 15 * US, 25 * US, 60 * US, 300 * US, MS],
    write: [10 * US, 20 * US, 30 * US, 80 * US, 400 * US, MS],
    flush: [60 * US, 100 * US, 200 * US, 800 * US, 4 * MS, 8 * MS],
    bytes_per_second: 2_000_000_000,
    lanes: 16,
};

const SSD: Profile = Profile {
    read: [40 * US, 80 * US, 140 * US, 500 * US, 2 * MS, 4 * MS],
    write: [50 * US, 100 * US, 180 * US, 700 * US, 3 * MS, 6 * MS],
    flush: [200 * US, 400 * US, 900 * US, 5 * MS, 30 * MS, 50 * MS],
    bytes_per_second: 400_000_000,
    lanes: 4,
};

const HDD: Profile = Profile {
    read: [MS, 8 * MS, 14 * MS, 25 * MS, 60 * MS, 100 * MS],
    write: [MS, 8 * MS, 14 * MS, 25 * MS, 60 * MS, 100 * MS],
    flush: [4 * MS, 12 * MS, 25 * MS, 60 * MS, 200 * MS, 400 * MS],
    bytes_per_second: 120_000_000,
    lanes: 1,
};

impl Timing {
    fn profile(self) -> Option<&'static Profile> {
        match self {
            Timing::Nvme => Some(&NVME),
            Timing::Ssd => Some(&SSD),
            Timing::Hdd => Some(&HDD),
            Timing::Instant => None,
        }
    }
}

/// What a device is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// Looking something up.
    Read,
    /// Changing a name or a length, or writing so many bytes.
    Write { bytes: u64 },
    /// Making so many bytes durable.
    Flush { bytes: u64 },
}

#[derive(Debug)]
pub(super) struct Device {
    timing: Timing,
    seed: Seed,
    entity: u64,
    /// When each lane is free, in virtual nanoseconds.
    lanes: Vec<u64>,
    /// Requests so far: the counter of their draws.
    requests: u64,
    slowness: u32,
    /// No request ends before this moment.
    stalled_until: u64,
    /// Requests that were made while it was slow or stalled.
    pub(super) slowed: u64,
    /// Requests since the device was slow or stalled, in their order; those that are over may be missing.
    pending: VecDeque<Pending>,
    /// When each lane is free of what came before all of them.
    lanes_before: Vec<u64>,
    /// How many of them there were: the number of the next one.
    tickets: u64,
}

/// A request that may end earlier than it looks now.
#[derive(Debug)]
struct Pending {
    ticket: u64,
    /// `None` on a device without lanes.
    lane: Option<usize>,
    start: u64,
    /// How long it takes on a device that is not slow.
    work: u64,
    slowness: u32,
    /// When its work is done.
    done: u64,
    /// When it ends: not before a stall does.
    end: u64,
}

impl Pending {
    /// What is left of it goes at a faster pace from `now` on, and waits for another stall.
    fn go_on(&mut self, now: u64, slowness: u32, stalled_until: u64) {
        let pace = slowness.min(self.slowness);
        self.done = hastened(self.done, now, (pace.into(), self.slowness.into()));
        self.slowness = pace;
        self.end = self.end.min(self.done.max(stalled_until).max(now));
    }

    /// Begins at `start` if that is earlier, at a faster pace, and waits for another stall.
    fn begin(&mut self, start: u64, slowness: u32, stalled_until: u64) {
        self.start = self.start.min(start);
        self.slowness = slowness.min(self.slowness);
        self.done = self.start.saturating_add(self.work.saturating_mul(self.slowness.into()));
        self.end = self.end.min(self.done.max(stalled_until));
    }
}

/// When a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// At this moment.
    At(u64),
    /// At the moment that [`Device::end_of`] tells, which may become an earlier one.
    AsTold(u64),
}

impl Device {
    pub(super) fn new(timing: Timing, seed: Seed, entity: u64) -> Device {
        let lanes = timing.profile().map_or(0, |profile| profile.lanes);
        Device {
            timing,
            seed,
            entity,
            lanes: vec![0; lanes],
            requests: 0,
            slowness: 1,
            stalled_until: 0,
            slowed: 0,
            pending: VecDeque::new(),
            lanes_before: Vec::new(),
            tickets: 0,
        }
    }

    /// A request is made `now`.
    pub(super) fn request(&mut self, now: u64, request: Request) -> Ends {
        while self.pending.front().is_some_and(|first| first.end <= now) {
            self.pending.pop_front();
        }
        let is_slowed = self.slowness > 1 || self.stalled_until > now;
        self.slowed += u64::from(is_slowed);
        if self.pending.is_empty() && is_slowed {
            self.lanes_before.clone_from(&self.lanes);
        }
        let (work, lane) = match self.work(request) {
            None => (0, None),
            Some(work) => (work, self.first_free()),
        };
        let start = lane.map_or(now, |lane| self.lanes[lane].max(now));
        let done = start.saturating_add(work.saturating_mul(self.slowness.into()));
        let end = done.max(self.stalled_until);
        if let Some(lane) = lane {
            self.lanes[lane] = end;
        }
        // One behind them begins earlier if they end earlier.
        if !is_slowed && self.pending.is_empty() {
            return Ends::At(end);
        }
        let ticket = self.tickets;
        self.tickets += 1;
        self.pending.push_back(Pending { ticket, lane, start, work, slowness: self.slowness, done, end });
        Ends::AsTold(ticket)
    }

    /// How long a request takes on a device that is not slow; `None` on one that needs no time.
    fn work(&mut self, request: Request) -> Option<u64> {
        let profile = self.timing.profile()?;
        self.requests += 1;
        let draw = self.seed.draw(LATENCY, self.entity, self.requests);
        let (latency, bytes) = match request {
            Request::Read => (&profile.read, 0),
            Request::Write { bytes } => (&profile.write, bytes),
            Request::Flush { bytes } => (&profile.flush, bytes),
        };
        let transfer = u128::from(bytes) * 1_000_000_000 / u128::from(profile.bytes_per_second);
        Some(at_quantile(latency, draw).saturating_add(u64::try_from(transfer).unwrap_or(u64::MAX)))
    }

    /// The lane that frees first, of several the first; `None` if there are none.
    fn first_free(&self) -> Option<usize> {
        (0..self.lanes.len()).min_by_key(|&lane| self.lanes[lane])
    }

    /// When a request ends, as it looks now; `None` if it is over.
    pub(super) fn end_of(&self, ticket: u64) -> Option<u64> {
        let at = self.pending.binary_search_by_key(&ticket, |pending| pending.ticket).ok()?;
        Some(self.pending[at].end)
    }

    /// Every request takes so many times as long from `now` on. Those that wait already do so only as far as it is less.
    pub(super) fn slow(&mut self, factor: u32, now: u64) {
        self.slowness = factor.max(1);
        self.hasten(now);
    }

    /// No request that is made from `now` on ends before `until`, nor does one that waits for a stall, if that is earlier.
    pub(super) fn stall(&mut self, until: u64, now: u64) {
        self.stalled_until = until;
        self.hasten(now);
    }

    /// Works out anew when what waits comes to its end. Nothing ends later than it would have.
    fn hasten(&mut self, now: u64) {
        if self.pending.is_empty() {
            return;
        }
        let mut pending = std::mem::take(&mut self.pending);
        self.lanes.clone_from(&self.lanes_before);
        for request in &mut pending {
            if request.end > now && request.start < now {
                request.go_on(now, self.slowness, self.stalled_until);
            } else if request.end > now {
                request.lane = self.first_free();
                let free = request.lane.map_or(now, |lane| self.lanes[lane].max(now));
                request.begin(free, self.slowness, self.stalled_until);
            }
            if let Some(lane) = request.lane {
                self.lanes[lane] = self.lanes[lane].max(request.end);
            }
        }
        self.pending = pending;
    }

    /// The power went: nothing waits any more.
    pub(super) fn reset(&mut self) {
        self.lanes.fill(0);
        self.pending.clear();
    }
}

fn at_quantile(latency: &Latency, draw: Draw) -> u64 {
    let ppm = draw.below(1_000_000);
    let upper = QUANTILES_PPM.iter().position(|&quantile| ppm < quantile).expect("the last quantile is everything");
    let (low, high) = (QUANTILES_PPM[upper - 1], QUANTILES_PPM[upper]);
    let (from, to) = (latency[upper - 1], latency[upper]);
    from + (to - from) * (ppm - low) / (high - low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end_of(device: &mut Device, now: u64, request: Request) -> u64 {
        match device.request(now, request) {
            Ends::At(end) => end,
            Ends::AsTold(ticket) => device.end_of(ticket).expect("it has just begun"),
        }
    }

    fn flushes(count: u64, bytes: u64) -> Vec<u64> {
        let mut device = Device::new(Timing::Ssd, Seed(1), 0);
        // Far apart, so that no request waits for another one.
        let times = (0..count).map(|n| {
            let now = n * 1_000_000_000;
            end_of(&mut device, now, Request::Flush { bytes }) - now
        });
        let mut times: Vec<u64> = times.collect();
        times.sort_unstable();
        times
    }

    #[test]
    fn latencies_have_the_quantiles_of_their_profile() {
        let times = flushes(100_000, 0);
        for (index, expected) in [(50_000, 400 * US), (99_000, 5 * MS), (99_900, 30 * MS)] {
            let (low, high) = (expected * 95 / 100, expected * 105 / 100);
            assert!((low..high).contains(&times[index]), "{} ns instead of {expected}", times[index]);
        }
    }

    #[test]
    fn bytes_take_time_by_the_bandwidth() {
        let times = flushes(1001, 400_000_000);
        assert!((1_000 * MS..1_002 * MS).contains(&times[500]), "{}", times[500]);
    }

    #[test]
    fn requests_wait_for_a_free_lane() {
        let mut device = Device::new(Timing::Ssd, Seed(1), 0);
        let bytes = 400_000_000;
        let ends: Vec<u64> = (0..8).map(|_| end_of(&mut device, 0, Request::Write { bytes })).collect();
        assert_eq!(ends.iter().filter(|&&end| end < 1_500 * MS).count(), 4, "{ends:?}");
        assert!(ends.iter().all(|&end| end < 2_500 * MS), "{ends:?}");
    }

    #[test]
    fn a_slow_device_and_a_stalled_one_take_longer() {
        let mut usual = Device::new(Timing::Ssd, Seed(1), 0);
        let mut slow = Device::new(Timing::Ssd, Seed(1), 0);
        slow.slow(10, 0);
        assert_eq!(end_of(&mut slow, 0, Request::Read), 10 * end_of(&mut usual, 0, Request::Read));
        let mut stalled = Device::new(Timing::Instant, Seed(1), 0);
        stalled.stall(5 * MS, 0);
        assert_eq!(end_of(&mut stalled, MS, Request::Read), 5 * MS);
    }

    /// What a device comes to that is asked for twelve flushes at 0 while `hurt`, and is well again at 1 s.
    fn healed(timing: Timing, hurt: impl Fn(&mut Device)) -> Vec<u64> {
        let mut device = Device::new(timing, Seed(1), 0);
        hurt(&mut device);
        for _ in 0..12 {
            device.request(0, Request::Flush { bytes: 4_000_000 });
        }
        device.slow(1, 1_000 * MS);
        device.stall(0, 1_000 * MS);
        (0..12).map(|ticket| device.end_of(ticket).expect("none is over")).collect()
    }

    #[test]
    fn what_waits_when_a_device_becomes_fast_goes_on_as_if_it_had_just_come() {
        let mut usual = Device::new(Timing::Ssd, Seed(1), 0);
        let expected: Vec<u64> = (0..12).map(|_| end_of(&mut usual, 0, Request::Flush { bytes: 4_000_000 })).collect();
        let ends = healed(Timing::Ssd, |device| device.slow(10_000_000, 0));
        for (end, expected) in ends.iter().zip(expected) {
            // Of the first of each lane a ten-thousandth was over at most.
            let late = end - 1_000 * MS;
            assert!((expected * 999 / 1_000..=expected).contains(&late), "{late} instead of {expected}");
        }
    }

    #[test]
    fn what_a_stall_held_up_ends_with_it_or_when_its_work_is_done() {
        let mut usual = Device::new(Timing::Hdd, Seed(1), 0);
        let work: Vec<u64> = (0..12).map(|_| end_of(&mut usual, 0, Request::Flush { bytes: 4_000_000 })).collect();
        let ends = healed(Timing::Hdd, |device| device.stall(u64::MAX / 2, 0));
        // The first worked while it was held up; the others begin after it.
        let expected: Vec<u64> = work.iter().map(|end| 1_000 * MS + end - work[0]).collect();
        assert_eq!(ends, expected);
        assert_eq!(healed(Timing::Instant, |device| device.stall(u64::MAX / 2, 0)), [1_000 * MS; 12]);
    }

    #[test]
    fn a_request_that_was_made_before_keeps_its_time_and_its_lane() {
        let mut device = Device::new(Timing::Hdd, Seed(1), 0);
        let before = end_of(&mut device, 0, Request::Write { bytes: 1_200_000_000 });
        device.slow(1_000, MS);
        device.request(MS, Request::Read);
        device.request(MS, Request::Read);
        device.slow(1, 2 * MS);
        let [first, second] = [0, 1].map(|ticket| device.end_of(ticket).expect("it waits"));
        assert!(before < first && first < before + 100 * MS, "{before} {first}");
        assert!(first < second && second < first + 100 * MS, "{first} {second}");
        // Whoever comes now waits behind them.
        assert!(end_of(&mut device, 2 * MS, Request::Read) > second);
    }

    #[test]
    fn a_device_that_becomes_slower_delays_nobody_who_waits() {
        let mut device = Device::new(Timing::Ssd, Seed(1), 0);
        device.slow(10, 0);
        for _ in 0..8 {
            device.request(0, Request::Read);
        }
        let ends = |device: &Device| (0..8).map(|ticket| device.end_of(ticket)).collect::<Vec<_>>();
        let before = ends(&device);
        device.slow(1_000, 100 * US);
        device.stall(1_000 * MS, 100 * US);
        assert_eq!(ends(&device), before);
    }
}
