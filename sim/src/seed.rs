//! Seeds, and every draw of a run outside the scheduler.
//!
//! A draw is a pure function of a seed, a domain, an entity and a counter: nothing is consumed. So removing one fault
//! or one message from a plan leaves every other draw as it was, which is what lets a failure be shrunk.

use std::{ops::RangeInclusive, time::Duration};

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

/// One 64-bit seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seed(pub u64);

/// The seeds of one run. All derive from `root`, and each may be pinned to another value afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seeds {
    /// What the run is known by.
    pub root: Seed,
    /// Faults and cluster shape.
    pub plan: Seed,
    /// What producers and consumers do; also the streams of [`host::Host::rng`].
    pub work: Seed,
    /// Latencies and losses.
    pub net: Seed,
    /// Latencies of devices, what a power loss keeps.
    pub disk: Seed,
    /// Skew and drift.
    pub clock: Seed,
    /// The order in which ready tasks run: the only one that is used up as a stream, by madsim.
    pub sched: Seed,
}

impl Seeds {
    /// Derives all seeds from one number.
    #[must_use]
    pub fn from_root(root: u64) -> Seeds {
        const PARTS: Domain = Domain::named("seeds");
        let root = Seed(root);
        let part = |index| Seed(root.draw(PARTS, index, 0).0);
        Seeds { root, plan: part(0), work: part(1), net: part(2), disk: part(3), clock: part(4), sched: part(5) }
    }
}

/// What a draw is for, such as `net.latency`. Different domains never share numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Domain(u64);

impl Domain {
    /// A domain by its name, which must be unique in the workspace. Changing the name changes every run.
    #[must_use]
    pub const fn named(name: &'static str) -> Domain {
        Domain(name_hash(name))
    }
}

/// FNV-1a, 64 bits: turns a name into an entity number, the same in every build.
#[must_use]
pub const fn name_hash(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

impl Seed {
    /// Number `counter` of one entity. Costs about 0.2 us; for many in a row see [`draws`](Seed::draws).
    #[must_use]
    pub fn draw(self, domain: Domain, entity: u64, counter: u64) -> Draw {
        self.draws(domain, entity).at(counter)
    }

    /// The numbers of one entity, with the block of the last one kept.
    #[must_use]
    pub fn draws(self, domain: Domain, entity: u64) -> Draws {
        let mut key = [0; 32];
        key[0..8].copy_from_slice(&self.0.to_le_bytes());
        key[8..16].copy_from_slice(&domain.0.to_le_bytes());
        key[16..24].copy_from_slice(&entity.to_le_bytes());
        Draws { generator: ChaCha8Rng::from_seed(key), next: 0 }
    }
}

/// The numbered draws of one entity. What a number is does not depend on the order of asking; asking in rising order
/// is cheap.
#[derive(Debug, Clone)]
pub struct Draws {
    generator: ChaCha8Rng,
    /// The counter that the generator stands at.
    next: u64,
}

impl Draws {
    /// Number `counter`.
    pub fn at(&mut self, counter: u64) -> Draw {
        if counter != self.next {
            // Two 32-bit words make one number.
            self.generator.set_word_pos(u128::from(counter) * 2);
        }
        self.next = counter.wrapping_add(1);
        Draw(self.generator.next_u64())
    }
}

/// 64 random bits, and what can be made of them. Each should be used for one decision only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw(pub u64);

impl Draw {
    /// A number in `0..bound`, each equally likely (to one in 2^64).
    ///
    /// # Panics
    /// If `bound` is 0.
    #[must_use]
    pub fn below(self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing lies below 0");
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `range`, each equally likely.
    ///
    /// # Panics
    /// If the range is empty.
    #[must_use]
    pub fn within(self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = range.into_inner();
        assert!(low <= high, "{low}..={high} is empty");
        match (high - low).checked_add(1) {
            Some(count) => low + self.below(count),
            None => self.0,
        }
    }

    /// A duration in `range`, to the nanosecond. Bounds beyond 584 years count as that.
    ///
    /// # Panics
    /// If the range is empty.
    #[must_use]
    pub fn duration(self, range: RangeInclusive<Duration>) -> Duration {
        let (low, high) = range.into_inner();
        Duration::from_nanos(self.within(nanos(low)..=nanos(high)))
    }

    /// True with a chance of `parts_per_million`; always from 1,000,000 on.
    #[must_use]
    pub fn chance(self, parts_per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(parts_per_million)
    }

    /// An exponentially distributed number with this mean, at most 44 times the mean. Computed in integers, so that it
    /// is the same on every machine.
    #[must_use]
    pub fn exponential(self, mean: u64) -> u64 {
        const LN_2: u128 = 2_977_044_472; // in 2^-32
        let scaled = (u128::from(mean) * u128::from(neg_log2(self.0.max(1)))).saturating_mul(LN_2);
        u64::try_from(scaled >> 64).unwrap_or(u64::MAX)
    }

    /// A number in `range`, its logarithm equally likely: as often between 1 and 2 as between 2 and 4. Computed in
    /// integers, so that it is the same on every machine.
    ///
    /// # Panics
    /// If the range is empty, or begins with 0.
    #[must_use]
    pub fn log_uniform(self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = range.into_inner();
        assert!(0 < low && low <= high, "{low}..={high} is empty, or has no logarithm");
        let span = u128::from(neg_log2(low) - neg_log2(high));
        let exponent = ((u128::from(self.0) * span) >> 64) as u64;
        let (octaves, fraction) = (exponent >> 32, exponent & 0xffff_ffff);
        // 2^62 stands for 1, and there may be 63 octaves.
        let scaled = ((u128::from(low) * u128::from(exp2(fraction))) << 1) >> (63 - octaves);
        u64::try_from(scaled).unwrap_or(u64::MAX).clamp(low, high)
    }

    /// One of `choices`, by weight. `None` if all weights are 0.
    #[must_use]
    pub fn weighted<T: Copy>(self, choices: &[(T, u32)]) -> Option<T> {
        let total: u64 = choices.iter().map(|&(_, weight)| u64::from(weight)).sum();
        if total == 0 {
            return None;
        }
        let mut left = self.below(total);
        for &(choice, weight) in choices {
            match left.checked_sub(u64::from(weight)) {
                Some(rest) => left = rest,
                None => return Some(choice),
            }
        }
        None
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// `2^(fraction / 2^32)` in units of 2^-62, for a fraction below 2^32: by a square root for each bit.
fn exp2(fraction: u64) -> u64 {
    const ONE: u128 = 1 << 62;
    let (mut root, mut power) = (2 * ONE, ONE);
    for bit in (0..32).rev() {
        root = (root << 62).isqrt();
        if fraction >> bit & 1 == 1 {
            power = (power * root) >> 62;
        }
    }
    u64::try_from(power).expect("it lies below 2")
}

/// `-log2(x / 2^64)` in units of 2^-32, for `x > 0`: whole bits from the leading zeros, 20 bits of the fraction by
/// squaring.
fn neg_log2(x: u64) -> u64 {
    const FRACTION_BITS: u32 = 20;
    let zeros = x.leading_zeros();
    let mut mantissa = x << zeros;
    let mut fraction = 0_u64;
    for _ in 0..FRACTION_BITS {
        let square = u128::from(mantissa) * u128::from(mantissa);
        fraction <<= 1;
        if square >> 127 == 1 {
            fraction |= 1;
            mantissa = (square >> 64) as u64;
        } else {
            mantissa = (square >> 63) as u64;
        }
    }
    ((u64::from(zeros + 1) << FRACTION_BITS) - fraction) << (32 - FRACTION_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: Domain = Domain::named("test");

    #[test]
    fn a_draw_depends_on_nothing_but_its_key() {
        let seed = Seed(7);
        let mut rising = seed.draws(TEST, 3);
        let forwards: Vec<Draw> = (0..100).map(|counter| rising.at(counter)).collect();
        let mut falling = seed.draws(TEST, 3);
        let mut backwards: Vec<Draw> = (0..100).rev().map(|counter| falling.at(counter)).collect();
        backwards.reverse();
        assert_eq!(forwards, backwards);
        assert_eq!(seed.draw(TEST, 3, 57), forwards[57]);
        assert_ne!(seed.draw(TEST, 4, 57), forwards[57]);
        assert_ne!(seed.draw(Domain::named("other"), 3, 57), forwards[57]);
        assert_ne!(Seed(8).draw(TEST, 3, 57), forwards[57]);
    }

    #[test]
    fn draws_are_pinned_so_that_an_old_seed_keeps_its_meaning() {
        let seeds = Seeds::from_root(7);
        assert_eq!(format!("{:016x} {:016x}", seeds.plan.0, seeds.sched.0), PINNED);
    }

    /// Computed once by this code; a change here changes the meaning of every published seed.
    const PINNED: &str = "2fdf8bc6a947601d 20379ad4c067cf30";

    #[test]
    fn exponential_draws_have_the_mean_and_the_tail_they_should() {
        let mut draws = Seed(1).draws(TEST, 0);
        let mut all: Vec<u64> = (0..100_000).map(|counter| draws.at(counter).exponential(1_000_000)).collect();
        all.sort_unstable();
        let mean = all.iter().sum::<u64>() / 100_000;
        assert!((980_000..1_020_000).contains(&mean), "mean {mean}");
        let median = all[50_000];
        assert!((679_000..707_000).contains(&median), "median {median}, ln 2 expected");
        let p99 = all[99_000];
        assert!((4_513_000..4_698_000).contains(&p99), "p99 {p99}, ln 100 expected");
    }

    #[test]
    fn log_uniform_draws_fill_each_octave_alike() {
        let mut draws = Seed(3).draws(TEST, 0);
        let mut octaves = [0_u32; 8];
        for counter in 0..80_000 {
            let number = draws.at(counter).log_uniform(1_000..=256_000);
            assert!((1_000..=256_000).contains(&number));
            octaves[((number / 1_000).ilog2() as usize).min(7)] += 1;
        }
        assert!(octaves.iter().all(|count| (9_700..10_300).contains(count)), "{octaves:?}");
        assert_eq!((Draw(0).log_uniform(7..=9), Draw(5).log_uniform(3..=3)), (7, 3));
        let middle = Draw(1 << 63).log_uniform(1_000_000..=4_000_000);
        assert!((1_999_990..=2_000_010).contains(&middle), "{middle}: 2 is half-way between 1 and 4");
        assert!(Draw(u64::MAX).log_uniform(1..=u64::MAX) > u64::MAX / 2);
    }

    #[test]
    fn chances_come_true_as_often_as_they_say() {
        let mut draws = Seed(2).draws(TEST, 0);
        let hits = (0..100_000).filter(|&counter| draws.at(counter).chance(250_000)).count();
        assert!((24_600..25_400).contains(&hits), "{hits}");
        assert!(Draw(u64::MAX).chance(1_000_000));
        assert!(!Draw(0).chance(0));
    }

    #[test]
    fn weighted_choices_respect_zero_weights() {
        assert_eq!(Draw(0).weighted(&[('a', 0), ('b', 1)]), Some('b'));
        assert_eq!(Draw(u64::MAX).weighted(&[('a', 1), ('b', 0)]), Some('a'));
        assert_eq!(Draw(0).weighted::<char>(&[]), None);
    }

    #[test]
    fn ranges_reach_both_ends() {
        assert_eq!(Draw(0).within(3..=9), 3);
        assert_eq!(Draw(u64::MAX).within(3..=9), 9);
        assert_eq!(Draw(5).within(0..=u64::MAX), 5);
    }
}
