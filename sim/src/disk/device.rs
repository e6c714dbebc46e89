//! How long the device takes.
//!
//! A request takes the lane that frees first, and holds it for a latency drawn from the distribution of its kind plus
//! the time for its bytes. All arithmetic is in integers, so that every machine computes the same moments.

use crate::seed::{Domain, Draw, Seed};

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
    pub slowness: u32,
    /// No request ends before this moment.
    pub stalled_until: u64,
}

impl Device {
    pub(super) fn new(timing: Timing, seed: Seed, entity: u64) -> Device {
        let lanes = timing.profile().map_or(0, |profile| profile.lanes);
        Device { timing, seed, entity, lanes: vec![0; lanes], requests: 0, slowness: 1, stalled_until: 0 }
    }

    /// When a request that is made `now` ends.
    pub(super) fn request(&mut self, now: u64, request: Request) -> u64 {
        let Some(profile) = self.timing.profile() else { return now.max(self.stalled_until) };
        self.requests += 1;
        let draw = self.seed.draw(LATENCY, self.entity, self.requests);
        let (latency, bytes) = match request {
            Request::Read => (&profile.read, 0),
            Request::Write { bytes } => (&profile.write, bytes),
            Request::Flush { bytes } => (&profile.flush, bytes),
        };
        let transfer = u128::from(bytes) * 1_000_000_000 / u128::from(profile.bytes_per_second);
        let time = at_quantile(latency, draw).saturating_add(u64::try_from(transfer).unwrap_or(u64::MAX));
        let time = time.saturating_mul(u64::from(self.slowness));
        let lane = self.lanes.iter_mut().min().expect("every profile has a lane");
        *lane = (*lane).max(now).saturating_add(time).max(self.stalled_until);
        *lane
    }

    /// The power went: nothing waits any more.
    pub(super) fn reset(&mut self) {
        self.lanes.fill(0);
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

    fn flushes(count: u64, bytes: u64) -> Vec<u64> {
        let mut device = Device::new(Timing::Ssd, Seed(1), 0);
        // Far apart, so that no request waits for another one.
        let times = (0..count).map(|n| {
            let now = n * 1_000_000_000;
            device.request(now, Request::Flush { bytes }) - now
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
        let ends: Vec<u64> = (0..8).map(|_| device.request(0, Request::Write { bytes })).collect();
        assert_eq!(ends.iter().filter(|&&end| end < 1_500 * MS).count(), 4, "{ends:?}");
        assert!(ends.iter().all(|&end| end < 2_500 * MS), "{ends:?}");
    }

    #[test]
    fn a_slow_device_and_a_stalled_one_take_longer() {
        let mut usual = Device::new(Timing::Ssd, Seed(1), 0);
        let mut slow = Device::new(Timing::Ssd, Seed(1), 0);
        slow.slowness = 10;
        assert_eq!(slow.request(0, Request::Read), 10 * usual.request(0, Request::Read));
        let mut stalled = Device::new(Timing::Instant, Seed(1), 0);
        stalled.stalled_until = 5 * MS;
        assert_eq!(stalled.request(MS, Request::Read), 5 * MS);
    }
}
