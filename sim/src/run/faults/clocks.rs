//! Faults of clocks: putting one wrong, and bringing it back.

use std::time::Duration;

use crate::{
    scenario::{Back, ClockFault, units::Span},
    seed::{Domain, Draws},
    stand::{NodeId, Stand},
};

const STROBE: Domain = Domain::named("fault.strobe");

/// Puts the clocks of a node wrong. A strobe goes on by itself; see [`strobe`].
pub(super) fn begin(stand: &Stand, node: NodeId, what: ClockFault) {
    match what {
        ClockFault::Skew(by_ms) => stand.set_skew(node, by_ms),
        ClockFault::Drift(ppm) => stand.set_drift(node, ppm),
        ClockFault::Step(by_ms) => stand.step_wall(node, by_ms),
        ClockFault::Extreme(to) => stand.set_wall(node, to.wall_ms()),
        ClockFault::Strobe { .. } => {}
    }
}

/// Brings them back, the wall clock when nothing else keeps it wrong.
pub(super) fn end(stand: &Stand, node: NodeId, (what, back): (ClockFault, Back), others: &[ClockFault]) {
    if matches!(what, ClockFault::Drift(_)) {
        let mut drifts =
            others.iter().filter_map(|other| if let ClockFault::Drift(ppm) = other { Some(*ppm) } else { None });
        stand.set_drift(node, drifts.next_back().unwrap_or(0));
    }
    if !others.is_empty() {
        return;
    }
    match back {
        Back::Step => stand.set_skew(node, 0),
        Back::Slew => stand.slew(node),
    }
}

/// Lets a wall clock jump to and fro for as long as `goes_on` says so, which hears of each jump.
pub(super) async fn strobe(
    stand: &Stand,
    node: NodeId,
    (by_ms, every): (i64, Span<Duration>),
    mut draws: Draws,
    mut goes_on: impl FnMut() -> bool,
) {
    let mut jump = by_ms;
    for number in 0.. {
        if !goes_on() {
            return;
        }
        stand.step_wall(node, jump);
        jump = -jump;
        stand.sleep(draws.at(number).duration(every.least..=every.most)).await;
    }
}

/// What decides how long each jump of a strobe lasts.
pub(super) fn strobe_draws(stand: &Stand, fault: u64) -> Draws {
    stand.seeds().clock.draws(STROBE, fault)
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, sync::Arc};

    use super::*;
    use crate::{
        scenario::Extreme,
        seed::Seeds,
        stand::{self, Ended, NodeSpec, StandConfig},
    };

    fn on_node<F>(test: impl FnOnce(Stand, NodeId) -> F + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let config = StandConfig { limit: secs(10_000), ..StandConfig::new(Seeds::from_root(7)) };
        let run = stand::run(config, Arc::new(()), |stand| async move {
            let node = stand.add_node(NodeSpec::new("a", Ipv4Addr::new(10, 0, 0, 1))).unwrap();
            test(stand, node).await;
        });
        assert_eq!(run.ended, Ended::Finished(()));
    }

    /// How far the wall clock is from true time, in milliseconds.
    fn off(stand: &Stand, node: NodeId) -> i64 {
        stand.wall_ms(node) - stand.true_wall_ms()
    }

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn each_fault_puts_the_clock_off_by_what_it_says_and_a_step_brings_it_back() {
        on_node(|stand, node| async move {
            stand.sleep(secs(1)).await;
            let hour = 3_600_000;
            for (what, at_once, after_100_s) in [
                (ClockFault::Skew(-5_000), -5_000, -5_000),
                (ClockFault::Step(hour), hour, hour),
                (ClockFault::Drift(50_000), 0, 5_000),
                (ClockFault::Drift(-200), 0, -20),
            ] {
                begin(&stand, node, what);
                assert_eq!(off(&stand, node), at_once, "{what:?}");
                stand.sleep(secs(100)).await;
                assert_eq!(off(&stand, node), after_100_s, "{what:?}");
                end(&stand, node, (what, Back::Step), &[]);
                stand.sleep(secs(100)).await;
                assert_eq!(off(&stand, node), 0, "{what:?}");
            }
            for (to, crossed) in [(Extreme::Before1970, 0), (Extreme::After2038, 1_i64 << 31)] {
                begin(&stand, node, ClockFault::Extreme(to));
                assert!(stand.wall_ms(node) < crossed * 1_000);
                stand.sleep(secs(11)).await;
                assert!(stand.wall_ms(node) >= crossed * 1_000);
            }
        });
    }

    #[test]
    fn a_slew_comes_back_at_500_ppm_and_stops_there() {
        on_node(|stand, node| async move {
            for by_ms in [40, -40] {
                begin(&stand, node, ClockFault::Step(by_ms));
                end(&stand, node, (ClockFault::Step(by_ms), Back::Slew), &[]);
                stand.sleep(secs(20)).await;
                assert_eq!(off(&stand, node), by_ms * 3 / 4, "20 s bring back 10 ms");
                stand.sleep(secs(61)).await;
                assert_eq!(off(&stand, node), 0);
                stand.sleep(secs(1_000)).await;
                assert_eq!(off(&stand, node), 0, "and it stays right");
            }
        });
    }

    #[test]
    fn a_strobe_goes_to_and_fro_at_intervals_within_its_range() {
        on_node(|stand, node| async move {
            let every = Span { least: Duration::from_millis(50), most: Duration::from_millis(500) };
            let (mut jumps, mut seen) = (Vec::new(), Vec::new());
            let (clock, inner) = (stand.clone(), stand.clone());
            strobe(&stand, node, (-7_000, every), strobe_draws(&clock, 1), || {
                jumps.push(inner.now());
                seen.push(off(&inner, node));
                jumps.len() <= 1_000
            })
            .await;
            assert!(seen.iter().enumerate().all(|(number, off)| *off == -7_000 * (number as i64 % 2)), "{seen:?}");
            let pauses: Vec<u128> = jumps.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
            assert!(pauses.iter().all(|pause| (50..=500).contains(pause)), "{pauses:?}");
            let mean = pauses.iter().sum::<u128>() / 1_000;
            assert!((262..288).contains(&mean), "{mean} ms; 275 expected, sigma 4");
        });
    }
}
