//! Streams of random numbers.

use std::path::PathBuf;

use host::Host;

pub async fn a_stream_repeats_itself_and_differs_from_others(host: Host, _dir: PathBuf) {
    let draw = |stream: &str| {
        let mut rng = host.rng(stream);
        (0..8).map(|_| rng.next_u64()).collect::<Vec<_>>()
    };
    // Streams are named: within one life the same name gives the same numbers, on both machines. A real machine has
    // other numbers after a restart; the stand has them again if the run is repeated.
    assert_eq!(draw("producer-1"), draw("producer-1"));
    assert_ne!(draw("producer-1"), draw("producer-2"));
    let mut numbers = draw("producer-1");
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 8);
}

pub async fn a_bounded_number_stays_below_its_bound(host: Host, _dir: PathBuf) {
    let mut rng = host.rng("bounded");
    let mut seen = [0; 3];
    for _ in 0..300 {
        seen[rng.below(3) as usize] += 1;
    }
    assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
    assert_eq!(rng.below(1), 0);
}
