//! Chance, one independent stream per entity.

use crate::Host;

/// One stream of random numbers; made by [`Host::rng`].
#[derive(Debug)]
pub struct Rng {
    host: Host,
    stream: u64,
    counter: u64,
}

impl Rng {
    pub(crate) fn new(host: &Host, stream: &str) -> Rng {
        Rng { host: host.clone(), stream: fnv1a(stream), counter: 0 }
    }

    /// Any 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let drawn = self.host.machine().draw(self.stream, self.counter);
        self.counter += 1;
        drawn
    }

    /// A number in `0..bound`, each equally likely (to one in 2^64).
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing lies below 0");
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        (wide >> 64) as u64
    }
}

/// FNV-1a, 64 bits: names a stream by its text, the same in every build.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_number_of_a_stream_is_that_of_fnv_1a() {
        // From the test vectors of the algorithm's authors; a change would change every run of every seed.
        assert_eq!(super::fnv1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(super::fnv1a("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(super::fnv1a("foobar"), 0x8594_4171_f739_67e8);
    }
}
