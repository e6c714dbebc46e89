//! What a store counts, and how long things took.
//!
//! Nothing here decides anything. Rates and times are kept when something happens; there is no clock that ticks for them.
//!
//! Source: `spec/store.md` 12.1, reference `StoreStatsService`.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use host::{Host, time::Mono};

/// The longest time over which rates are told, in seconds.
const SECONDS_MAX: u64 = 600;

/// How long times of puts are gathered before they are told, in seconds.
const GATHERED: u64 = 60;

/// What a time of a put is less than, in milliseconds, bucket by bucket; 0 has a bucket of its own, and so has more.
const COARSE_MS: [u64; 11] = [10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000];

/// How wide the buckets are from which percentiles follow, in milliseconds, and how many of a width follow each other.
const FINE_MS: [(u64, usize); 7] = [(1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9)];

/// The number of those buckets; longer times count into the last one.
const FINE: usize = 75;

/// Counters since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Messages stored.
    pub puts: u64,
    /// Bytes of their records.
    pub put_bytes: u64,
    /// Calls that stored nothing.
    pub puts_failed: u64,
    /// Reads that found messages.
    pub gets_found: u64,
    /// Reads that found none.
    pub gets_missed: u64,
    /// Messages that were read.
    pub messages_out: u64,
}

/// The rates over 10 s, a minute and ten minutes, or since the store was opened if that is less.
pub type Rates = [f64; 3];

/// What a store has counted, at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Since the store was opened.
    pub counters: Counters,
    /// Messages stored in a second.
    pub put_rates: Rates,
    /// Reads that found messages, in a second.
    pub found_rates: Rates,
    /// Reads that found none, in a second.
    pub missed_rates: Rates,
    /// Messages that were read, in a second.
    pub out_rates: Rates,
    /// The longest put since the store was opened, with the wait for the disk if there was one.
    pub put_max: Duration,
    /// The longest read since the store was opened.
    pub get_max: Duration,
    /// How many puts of the last full minute took no millisecond; less than 10, 50, 100, 200, 500 and 1000 ms; less than
    /// 2, 3, 4, 5 and 10 s; and longer.
    pub put_times: [u64; COARSE_MS.len() + 2],
    /// The time that 99 % of the puts of the last full minute did not exceed, in milliseconds.
    pub put_p99_ms: f64,
    /// The same of 99.9 %.
    pub put_p999_ms: f64,
    /// For how long the append of one message has been under way right now.
    pub append_lock: Duration,
}

/// The owner of all that is counted.
pub(crate) struct Stats {
    host: Host,
    opened: Mono,
    /// Leaf lock.
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    counters: Counters,
    /// Counters at the begin of each second in which something was counted, oldest first.
    seconds: VecDeque<(u64, Counters)>,
    put_max: Duration,
    get_max: Duration,
    /// The minute that times are gathered for.
    minute: u64,
    times: PutTimes,
    /// Those of the minute before.
    told: PutTimes,
}

impl Stats {
    pub(crate) fn new(host: &Host) -> Stats {
        Stats { host: host.clone(), opened: host.now(), inner: Mutex::default() }
    }

    /// One call stored messages. `begun` is when it began, if it is answered now. One look at the clock and at the lock:
    /// both are a part of what a put costs.
    pub(crate) fn put(&self, messages: u64, bytes: u64, begun: Option<Mono>) {
        let now = self.host.now_coarse();
        let second = self.second_of(now);
        let mut inner = self.lock();
        inner.begin_second(second);
        inner.counters.puts += messages;
        inner.counters.put_bytes += bytes;
        if let Some(begun) = begun {
            inner.put_took(second, now.since(begun));
        }
    }

    /// One call stored nothing.
    pub(crate) fn put_failed(&self) {
        self.count(|counters| counters.puts_failed += 1);
    }

    /// A put that began then has been answered.
    pub(crate) fn put_took(&self, begun: Mono) {
        let now = self.host.now();
        self.lock().put_took(self.second_of(now), now.since(begun));
    }

    /// A consumer read.
    pub(crate) fn got(&self, messages: u32) {
        self.count(|counters| {
            *(if messages > 0 { &mut counters.gets_found } else { &mut counters.gets_missed }) += 1;
            counters.messages_out += u64::from(messages);
        });
    }

    /// A read that began then has ended.
    pub(crate) fn get_took(&self, begun: Mono) {
        let took = self.host.now().since(begun);
        let mut inner = self.lock();
        inner.get_max = inner.get_max.max(took);
    }

    pub(crate) fn figures(&self, append_lock: Duration) -> Figures {
        let now = self.second();
        let mut inner = self.lock();
        inner.turn_minute(now);
        let rates = |of: fn(&Counters) -> u64| [10, 60, SECONDS_MAX].map(|seconds| inner.rate(of, now, seconds));
        Figures {
            counters: inner.counters,
            put_rates: rates(|counters| counters.puts),
            found_rates: rates(|counters| counters.gets_found),
            missed_rates: rates(|counters| counters.gets_missed),
            out_rates: rates(|counters| counters.messages_out),
            put_max: inner.put_max,
            get_max: inner.get_max,
            put_times: inner.told.coarse,
            put_p99_ms: inner.told.percentile_ms(990),
            put_p999_ms: inner.told.percentile_ms(999),
            append_lock,
        }
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        let now = self.second();
        let mut inner = self.lock();
        inner.begin_second(now);
        change(&mut inner.counters);
    }

    /// Whole seconds since the store was opened.
    fn second(&self) -> u64 {
        self.second_of(self.host.now())
    }

    fn second_of(&self, now: Mono) -> u64 {
        now.since(self.opened).as_secs()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn put_took(&mut self, second: u64, took: Duration) {
        self.turn_minute(second);
        self.times.add(took);
        self.put_max = self.put_max.max(took);
    }

    fn begin_second(&mut self, now: u64) {
        if self.seconds.back().is_some_and(|(second, _)| *second >= now) {
            return;
        }
        self.seconds.push_back((now, self.counters));
        // Nobody asks for what was before.
        let old = self.seconds.partition_point(|(second, _)| second + SECONDS_MAX < now);
        self.seconds.drain(..old);
    }

    /// How much was counted in each of the last seconds, without the one that has only begun.
    fn rate(&self, of: fn(&Counters) -> u64, now: u64, seconds: u64) -> f64 {
        let at_begin_of = |second: u64| {
            let index = self.seconds.partition_point(|(at, _)| *at < second);
            self.seconds.get(index).map_or(of(&self.counters), |(_, counters)| of(counters))
        };
        let seconds = seconds.min(now);
        if seconds == 0 {
            return 0.0;
        }
        (at_begin_of(now) - at_begin_of(now - seconds)) as f64 / seconds as f64
    }

    fn turn_minute(&mut self, now: u64) {
        let minute = now / GATHERED;
        if minute > self.minute {
            let gathered = std::mem::take(&mut self.times);
            self.told = if minute == self.minute + 1 { gathered } else { PutTimes::default() };
            self.minute = minute;
        }
    }
}

/// How many puts took how long.
struct PutTimes {
    coarse: [u64; COARSE_MS.len() + 2],
    /// Of whole milliseconds, each up to its bound; see [`FINE_MS`].
    fine: [u64; FINE + 1],
}

impl Default for PutTimes {
    fn default() -> PutTimes {
        PutTimes { coarse: [0; COARSE_MS.len() + 2], fine: [0; FINE + 1] }
    }
}

impl PutTimes {
    fn add(&mut self, took: Duration) {
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let coarse = if ms == 0 { 0 } else { 1 + COARSE_MS.partition_point(|bound| *bound <= ms) };
        self.coarse[coarse] += 1;
        self.fine[fine_bounds_ms().position(|bound| ms <= bound).unwrap_or(FINE)] += 1;
    }

    /// The time that so many thousandths of the puts did not exceed, as if those of one bucket had come evenly. What is
    /// longer than all buckets counts as the last bound.
    fn percentile_ms(&self, thousandths: u64) -> f64 {
        let wanted = self.fine.iter().sum::<u64>() * thousandths / 1000;
        let (mut passed, mut from) = (0, 0);
        for (count, to) in self.fine.iter().zip(fine_bounds_ms()) {
            if wanted <= passed + count {
                let part = if *count == 0 { 0.0 } else { (wanted - passed) as f64 / *count as f64 };
                return from as f64 + (to - from) as f64 * part;
            }
            passed += count;
            from = to;
        }
        from as f64
    }
}

/// Up to what each fine bucket goes, in milliseconds, without the last.
fn fine_bounds_ms() -> impl Iterator<Item = u64> {
    let widths = FINE_MS.iter().flat_map(|(width, count)| std::iter::repeat_n(*width, *count));
    widths.scan(0, |bound, width| {
        *bound += width;
        Some(*bound)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(each_ms: impl IntoIterator<Item = u64>) -> PutTimes {
        let mut times = PutTimes::default();
        each_ms.into_iter().for_each(|ms| times.add(Duration::from_millis(ms)));
        times
    }

    #[test]
    fn every_time_has_the_bucket_of_the_reference() {
        let bounds: Vec<u64> = fine_bounds_ms().collect();
        assert_eq!(bounds.len(), FINE);
        assert_eq!(
            [bounds[19], bounds[34], bounds[44], bounds[54], bounds[60], bounds[65], bounds[74]],
            [20, 50, 100, 200, 500, 1000, 10_000]
        );
        let edges = [0, 1, 9, 10, 49, 50, 99, 100, 199, 200, 499, 500, 999, 1000, 1999, 2000, 4999, 5000, 9999, 10_000];
        assert_eq!(times(edges).coarse, [1, 2, 2, 2, 2, 2, 2, 2, 1, 0, 1, 2, 1]);
        assert_eq!(times([4000, 3999]).coarse, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0]);
    }

    /// The reference's own example: each time from 1 to 1000 ms as often as it is long.
    #[test]
    fn percentiles_follow_from_the_buckets() {
        let times = times((1..=1000).flat_map(|ms| std::iter::repeat_n(ms, ms as usize)));
        // 500,500 puts; the last bucket, from 900 to 1000 ms, has 95,050 of them, behind 405,450.
        assert_eq!(times.percentile_ms(990), 900.0 + 100.0 * (495_495.0 - 405_450.0) / 95_050.0);
        assert_eq!(times.percentile_ms(999), 900.0 + 100.0 * (499_999.0 - 405_450.0) / 95_050.0);
        assert_eq!(PutTimes::default().percentile_ms(990), 0.0);
        assert_eq!(self::times([20_000, 20_000]).percentile_ms(990), 10_000.0);
    }

    /// Something is counted in a second, and asked for in another one.
    #[test]
    fn rates_cover_whole_seconds_of_the_time_asked_for() {
        let mut inner = Inner::default();
        let put = |inner: &mut Inner, second: u64, count: u64| {
            inner.begin_second(second);
            inner.counters.puts += count;
        };
        let puts: fn(&Counters) -> u64 = |counters| counters.puts;
        put(&mut inner, 0, 30);
        assert_eq!(inner.rate(puts, 0, 10), 0.0, "no second is over");
        assert_eq!(inner.rate(puts, 1, 10), 30.0);
        assert_eq!(inner.rate(puts, 3, 10), 10.0, "since the store was opened");
        put(&mut inner, 5, 70);
        assert_eq!(inner.rate(puts, 5, 10), 6.0, "this second is not over");
        assert_eq!(inner.rate(puts, 10, 10), 10.0);
        assert_eq!(inner.rate(puts, 11, 10), 7.0);
        assert_eq!((inner.rate(puts, 15, 10), inner.rate(puts, 16, 10)), (7.0, 0.0));
        assert_eq!(inner.rate(puts, 50, 60), 2.0);
        for second in 6..5000 {
            put(&mut inner, second, 3);
        }
        assert_eq!([10, 60, 600].map(|seconds| inner.rate(puts, 5000, seconds)), [3.0; 3]);
        assert!(inner.seconds.len() <= 601, "{}", inner.seconds.len());
    }

    #[test]
    fn times_of_puts_are_told_when_their_minute_is_over_and_for_one_minute() {
        let mut inner = Inner::default();
        inner.times.add(Duration::from_millis(7));
        inner.turn_minute(59);
        assert_eq!(inner.told.coarse.iter().sum::<u64>(), 0);
        inner.turn_minute(60);
        assert_eq!(inner.told.coarse[1], 1);
        inner.turn_minute(119);
        assert_eq!(inner.told.coarse[1], 1);
        inner.turn_minute(120);
        assert_eq!(inner.told.coarse.iter().sum::<u64>(), 0);
        inner.times.add(Duration::from_millis(7));
        inner.turn_minute(240);
        assert_eq!(inner.told.coarse.iter().sum::<u64>(), 0, "the last full minute had none");
    }
}
