//! Timers, and clocks that are wrong.

use host::Host;

use crate::{Seen, add, ms, on_stand, secs, spawn_on};

#[test]
fn a_timer_fires_at_its_moment_and_below_a_millisecond_too() {
    let late = on_stand(|stand| async move {
        let late = Seen::new();
        let told = late.clone();
        spawn_on(&stand, add(&stand, "a", 1), move |host| {
            let late = told.clone();
            async move {
                for micros in [1, 50, 999, 1_000, 30_000_000] {
                    let deadline = host.now() + std::time::Duration::from_micros(micros);
                    host.sleep_until(deadline).await;
                    late.add(host.now() - deadline);
                }
            }
        });
        stand.sleep(secs(40)).await;
        late.all()
    });
    assert_eq!(late.len(), 5);
    assert!(late.iter().all(|late| late.as_nanos() < 1_000), "{late:?}");
}

#[test]
fn a_timer_can_be_moved_both_ways_and_after_it_fired() {
    on_stand(|stand| async move {
        let at = Seen::new();
        let told = at.clone();
        spawn_on(&stand, add(&stand, "a", 1), move |host| {
            let at = told.clone();
            async move {
                let begin = host.now();
                let mut sleep = host.sleep(secs(10));
                assert!(host.timeout(secs(1), &mut sleep).await.is_err());
                sleep.reset(begin + secs(2));
                (&mut sleep).await;
                at.add((host.now() - begin).as_secs());
                sleep.reset(begin + secs(5));
                (&mut sleep).await;
                at.add((host.now() - begin).as_secs());
            }
        });
        stand.sleep(secs(20)).await;
        assert_eq!(at.all(), [2, 5]);
    });
}

#[test]
fn a_wrong_wall_clock_does_not_touch_timers() {
    on_stand(|stand| async move {
        let (a, b) = (add(&stand, "a", 1), add(&stand, "b", 2));
        assert_eq!(stand.wall_ms(a), stand.true_wall_ms());
        let walls = Seen::new();
        let told = walls.clone();
        spawn_on(&stand, a, move |host| {
            let walls = told.clone();
            async move {
                loop {
                    walls.add((host.now().as_nanos() / 1_000_000_000, host.wall_ms()));
                    host.sleep(secs(1)).await;
                }
            }
        });
        let start = stand.true_wall_ms();
        stand.sleep(ms(500)).await;
        stand.set_skew(a, -5_000);
        stand.sleep(secs(1)).await;
        stand.step_wall(a, 10_000);
        stand.sleep(secs(1)).await;
        let walls: Vec<_> = walls.all().into_iter().map(|(second, wall)| (second, (wall - start) / 1_000)).collect();
        assert_eq!(walls, [(0, 0), (1, -4), (2, 7)]);
        assert_eq!(stand.wall_ms(b), stand.true_wall_ms());
    });
}

#[test]
fn the_timers_of_a_fast_clock_fire_early_also_if_it_became_fast_later() {
    on_stand(|stand| async move {
        let node = add(&stand, "a", 1);
        let at = Seen::new();
        let told = at.clone();
        let watch = stand.clone();
        spawn_on(&stand, node, move |host| {
            let (at, watch) = (told.clone(), watch.clone());
            async move {
                host.sleep(secs(100)).await;
                at.add(watch.now().as_millis());
                host.sleep(secs(100)).await;
                at.add(watch.now().as_millis());
            }
        });
        stand.sleep(secs(50)).await;
        stand.set_drift(node, 50_000); // 5 % fast
        stand.sleep(secs(300)).await;
        // 50 s at the right pace, then 50 and 100 of its seconds at 1.05.
        assert_eq!(at.all(), [97_619, 192_857]);
    });
}

#[test]
fn monotonic_time_goes_on_over_a_kill_and_starts_again_after_a_power_loss() {
    let seen = on_stand(|stand| async move {
        let node = add(&stand, "a", 1);
        let seen = Seen::new();
        let told = seen.clone();
        spawn_on(&stand, node, move |host: Host| {
            told.add(host.now().as_nanos() / 1_000_000_000);
            async {}
        });
        stand.sleep(secs(10)).await;
        stand.kill(node);
        stand.sleep(secs(10)).await;
        stand.restart(node);
        stand.sleep(secs(10)).await;
        stand.power_loss(&[node], None, 1);
        stand.sleep(secs(10)).await;
        stand.restart(node);
        stand.sleep(secs(1)).await;
        seen.all()
    });
    assert_eq!(seen, [0, 20, 0]);
}

#[test]
fn a_paused_node_misses_its_timers_and_catches_up() {
    let seen = on_stand(|stand| async move {
        let node = add(&stand, "a", 1);
        let seen = Seen::new();
        let told = seen.clone();
        spawn_on(&stand, node, move |host| {
            let seen = told.clone();
            async move {
                for _ in 0..3 {
                    host.sleep(secs(1)).await;
                    seen.add(host.now().as_nanos() / 100_000_000);
                }
            }
        });
        stand.sleep(ms(1_500)).await;
        stand.pause(node);
        stand.sleep(secs(5)).await;
        stand.resume(node);
        stand.sleep(secs(5)).await;
        seen.all()
    });
    assert_eq!(seen, [10, 65, 75]);
}
