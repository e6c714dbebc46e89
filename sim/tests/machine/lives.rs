//! How lives begin and end, what they leave behind, and where `Host::current()` may be asked.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use host::Host;
use sim::{
    seed::Seeds,
    stand::{self, Ended, NodeStatus, Observer, Place, Stand, StandConfig, Stopped},
};
use tokio::sync::{Notify, oneshot};

use crate::{Seen, add, finished, ms, on_stand, secs, spawn_on};

fn whereabouts() -> String {
    let host = Host::current();
    format!("{}#{}", host.node(), host.incarnation())
}

/// Tells where it was dropped.
struct Dropped(Seen<String>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.add(whereabouts());
    }
}

#[test]
fn the_current_host_is_known_in_a_task_and_in_a_nested_one() {
    let seen = on_stand(|stand| async move {
        let seen = Seen::new();
        let node = add(&stand, "a", 1);
        let told = seen.clone();
        spawn_on(&stand, node, move |host| {
            let told = told.clone();
            async move {
                told.add(whereabouts());
                let inner = told.clone();
                host.spawn("nested", async move { inner.add(whereabouts()) }).await.unwrap();
            }
        });
        stand.sleep(ms(1)).await;
        seen.all()
    });
    assert_eq!(seen, ["a#1", "a#1"]);
}

#[test]
fn a_task_woken_by_another_node_or_a_timer_is_still_at_home() {
    let seen = on_stand(|stand| async move {
        let seen = Seen::new();
        let (a, b) = (add(&stand, "a", 1), add(&stand, "b", 2));
        let bell = Arc::new(Notify::new());
        let (told, rung) = (seen.clone(), Arc::clone(&bell));
        spawn_on(&stand, a, move |host| {
            let (told, rung) = (told.clone(), Arc::clone(&rung));
            async move {
                rung.notified().await;
                told.add(whereabouts());
                host.sleep(ms(5)).await;
                told.add(whereabouts());
            }
        });
        stand.sleep(ms(1)).await;
        spawn_on(&stand, b, move |_| {
            let bell = Arc::clone(&bell);
            async move { bell.notify_one() }
        });
        stand.sleep(ms(10)).await;
        seen.all()
    });
    assert_eq!(seen, ["a#1", "a#1"]);
}

#[test]
fn a_destructor_after_a_kill_knows_its_own_old_life() {
    let seen = on_stand(|stand| async move {
        let seen = Seen::new();
        let node = add(&stand, "a", 1);
        let told = seen.clone();
        spawn_on(&stand, node, move |_| {
            let witness = Dropped(told.clone());
            async move {
                std::future::pending::<()>().await;
                drop(witness);
            }
        });
        stand.sleep(ms(1)).await;
        // The new life is there before the old tasks are dropped.
        stand.restart(node);
        assert_eq!(stand.status(node), NodeStatus::Up { incarnation: 2 });
        stand.sleep(ms(1)).await;
        seen.all()
    });
    assert_eq!(seen, ["a#1"]);
}

#[test]
fn a_destructor_of_a_paused_task_is_at_home_and_may_start_nothing() {
    let seen = on_stand(|stand| async move {
        let seen = Seen::new();
        let node = add(&stand, "a", 1);
        let told = seen.clone();
        spawn_on(&stand, node, move |host| {
            let witness = Dropped(told.clone());
            let told = told.clone();
            async move {
                let beyond = Beyond { host: host.clone(), seen: told };
                loop {
                    host.sleep(ms(1)).await;
                    let _ = (&witness, &beyond);
                }
            }
        });
        stand.sleep(ms(5)).await;
        stand.pause(node);
        stand.sleep(ms(5)).await;
        stand.kill(node);
        stand.sleep(ms(5)).await;
        seen.all()
    });
    assert_eq!(seen, ["beyond", "a#1"]);
}

/// Tries to act from beyond the grave.
struct Beyond {
    host: Host,
    seen: Seen<String>,
}

impl Drop for Beyond {
    fn drop(&mut self) {
        let seen = self.seen.clone();
        self.host.spawn("ghost", async move { seen.add("a ghost ran".to_owned()) });
        drop(self.host.sleep(ms(1)));
        self.seen.add("beyond".to_owned());
    }
}

#[test]
fn nothing_of_a_dead_life_works_for_whoever_still_holds_it() {
    on_stand(|stand| async move {
        let node = add(&stand, "a", 1);
        let (tell, told) = oneshot::channel();
        let tell = std::sync::Mutex::new(Some(tell));
        spawn_on(&stand, node, move |host| {
            let tell = tell.lock().unwrap().take();
            async move {
                if let Some(tell) = tell {
                    let listener = host.bind("0.0.0.0:9".parse().unwrap()).await.unwrap();
                    tell.send((host.clone(), listener)).unwrap();
                }
            }
        });
        let (host, listener) = told.await.unwrap();
        stand.restart(node);
        stand.sleep(ms(1)).await;
        let kind = std::io::ErrorKind::ConnectionAborted;
        assert_eq!(host.bind("0.0.0.0:10".parse().unwrap()).await.unwrap_err().kind(), kind);
        assert_eq!(host.connect("10.0.0.1:9".parse().unwrap()).await.unwrap_err().kind(), kind);
        assert_eq!(listener.accept().await.unwrap_err().kind(), kind);
        assert!(listener.local_addr().is_err());
        let task = host.spawn("ghost", async { unreachable!("a dead life runs nothing") });
        assert!(task.await.is_err());
        // The new life took the port over; the old handle does not close it.
        drop(listener);
    });
}

#[test]
fn a_stop_waits_for_the_program_and_kills_it_after_the_grace_time() {
    on_stand(|stand| async move {
        let node = add(&stand, "a", 1);
        stand.start(node, |host, stop| async move {
            stop.requested().await;
            host.sleep(secs(2)).await;
            Err("had to hurry".to_owned())
        });
        let stopped = stand.stop(node, secs(3)).await;
        assert_eq!(stopped, Stopped::Exited(Err("had to hurry".to_owned())));
        assert_eq!(stand.status(node), NodeStatus::Down);
        assert_eq!(stand.stop(node, secs(3)).await, Stopped::WasDown);
        stand.restart(node);
        stand.pause(node);
        let before = stand.now();
        assert_eq!(stand.stop(node, secs(1)).await, Stopped::Killed);
        assert!(stand.now() - before < ms(1_001), "the grace time is kept");
        stand.start(node, |_, _| async { Ok(()) });
        stand.ended(node).await;
        assert_eq!(stand.status(node), NodeStatus::Down);
    });
}

#[derive(Default)]
struct Recorder {
    lines: std::sync::Mutex<Vec<String>>,
}

impl Recorder {
    fn add(&self, place: &Place, line: &str) {
        self.lines.lock().unwrap().push(format!("{}#{} {line}", place.name, place.incarnation));
    }
}

impl Observer for Recorder {
    fn point(&self, stand: &Stand, place: &Place, name: &'static str, [value, _]: [i64; 2]) {
        self.add(place, &format!("{name}={value}"));
        if value == 3 {
            stand.kill(place.node);
        }
    }

    fn panicked(&self, _stand: &Stand, place: &Place, task: &'static str, message: &str) {
        self.add(place, &format!("{task}: {message}"));
    }

    fn exited(&self, _stand: &Stand, place: &Place, result: &Result<(), String>) {
        self.add(place, &format!("exited {result:?}"));
    }
}

#[test]
fn an_observer_sees_points_panics_and_exits_and_may_kill_at_a_point() {
    let recorder = Arc::new(Recorder::default());
    let lives = Arc::new(AtomicU32::new(0));
    let config = StandConfig::new(Seeds::from_root(7));
    let run = stand::run(config, Arc::clone(&recorder) as Arc<dyn Observer>, move |stand| async move {
        let node = add(&stand, "a", 1);
        stand.start(node, move |host, _stop| {
            let life = lives.fetch_add(1, Ordering::Relaxed);
            async move {
                match life {
                    0 => loop {
                        host.sleep(ms(1)).await;
                        host::point!("test.turn", host.now().as_nanos() / 1_000_000);
                    },
                    1 => {
                        let task = host.spawn("boom", async { panic!("on purpose") });
                        let _ = task.await;
                        unreachable!("the process is dead")
                    }
                    _ => Ok(()),
                }
            }
        });
        stand.ended(node).await;
        stand.restart(node);
        stand.ended(node).await;
        stand.restart(node);
        stand.ended(node).await;
    });
    finished(run);
    let lines = recorder.lines.lock().unwrap().join("\n");
    let expected = "a#1 test.turn=1\na#1 test.turn=2\na#1 test.turn=3\na#2 boom: on purpose\na#3 exited Ok(())";
    assert_eq!(lines, expected);
}

/// Kills a node at its fourth poll, and ends the life of a node at a gate.
#[derive(Default)]
struct Killer {
    polls: AtomicU32,
    seen: std::sync::Mutex<Vec<String>>,
}

impl Observer for Killer {
    fn polled(&self, stand: &Stand, place: &Place) {
        if self.polls.fetch_add(1, Ordering::Relaxed) == 3 {
            stand.kill(place.node);
        }
    }

    fn point(&self, stand: &Stand, place: &Place, name: &'static str, _: [i64; 2]) {
        self.seen.lock().unwrap().push(name.to_owned());
        if name == "test.gate" {
            stand.kill(place.node);
        }
    }

    fn broken(&self, _: &Stand, place: &Place, name: &'static str) {
        self.seen.lock().unwrap().push(format!("{name} broken on {}", place.name));
    }
}

#[test]
fn a_node_that_is_killed_at_a_poll_does_not_make_it() {
    let (killer, turns) = (Arc::new(Killer::default()), Arc::new(AtomicU32::new(0)));
    let (observer, counted) = (Arc::clone(&killer) as Arc<dyn Observer>, Arc::clone(&turns));
    let run = stand::run(StandConfig::new(Seeds::from_root(7)), observer, move |stand| async move {
        let node = add(&stand, "a", 1);
        stand.watch_polls(node);
        spawn_on(&stand, node, move |host| {
            let turns = Arc::clone(&turns);
            async move {
                loop {
                    turns.fetch_add(1, Ordering::Relaxed);
                    host.sleep(ms(1)).await;
                }
            }
        });
        stand.ended(node).await;
        stand.sleep(ms(5)).await;
        (stand.polls(node), stand.tasks(node))
    });
    assert_eq!(finished(run), (4, 0), "the fourth poll is counted, and no task is left");
    assert_eq!(counted.load(Ordering::Relaxed), 3);
}

#[test]
fn a_task_whose_node_dies_at_a_gate_never_gets_past_it() {
    let killer = Arc::new(Killer::default());
    let run = stand::run(
        StandConfig::new(Seeds::from_root(7)),
        Arc::clone(&killer) as Arc<dyn Observer>,
        |stand| async move {
            let node = add(&stand, "a", 1);
            spawn_on(&stand, node, |_| async {
                host::gate!("test.gate").await;
                unreachable!("the process is dead");
            });
            stand.ended(node).await;
            stand.sleep(ms(5)).await;
        },
    );
    finished(run);
    assert_eq!(*killer.seen.lock().unwrap(), ["test.gate"]);
}

#[test]
fn what_must_always_hold_ends_the_run_when_it_does_not() {
    let killer = Arc::new(Killer::default());
    let run = stand::run(
        StandConfig::new(Seeds::from_root(7)),
        Arc::clone(&killer) as Arc<dyn Observer>,
        |stand| async move {
            spawn_on(&stand, add(&stand, "a", 1), |host| async move {
                for turn in 0.. {
                    host::always!("test.small", turn < 3);
                    host.sleep(ms(1)).await;
                }
            });
            std::future::pending::<()>().await;
        },
    );
    assert!(run.elapsed < ms(10), "it went on to {:?}", run.elapsed);
    assert_eq!(run.ended, Ended::Broken { node: "a".into(), name: "test.small" });
    assert_eq!(*killer.seen.lock().unwrap(), ["test.small broken on a"]);
}

#[test]
fn a_run_that_can_go_nowhere_is_reported_and_does_not_hang() {
    let config = || StandConfig { limit: secs(60), ..StandConfig::new(Seeds::from_root(7)) };
    let dead = stand::run(config(), Arc::new(()), |stand| async move {
        spawn_on(&stand, add(&stand, "a", 1), |host| async move { host.sleep(secs(2)).await });
        std::future::pending::<()>().await;
    });
    let Ended::Deadlock { since } = dead.ended else { panic!("{:?}", dead.ended) };
    assert!(since >= secs(2) && since < secs(3), "{since:?}");

    let late = stand::run(config(), Arc::new(()), |stand| async move {
        loop {
            stand.sleep(secs(1)).await;
        }
    });
    assert_eq!(late.ended, Ended::<()>::TimeLimit);

    let circling = stand::run(config(), Arc::new(()), |stand| async move {
        spawn_on(&stand, add(&stand, "a", 1), |host| async move {
            host.spawn("spinner", async {
                loop {
                    tokio::task::yield_now().await;
                }
            });
        });
        std::future::pending::<()>().await;
    });
    let Ended::Livelock { node, task, .. } = circling.ended else { panic!("{:?}", circling.ended) };
    assert_eq!((node.as_deref(), task), (Some("a"), "spinner"));
}

#[test]
#[should_panic(expected = "the supervisor is wrong")]
fn a_panic_of_the_supervisor_is_passed_on() {
    on_stand(|stand| async move {
        spawn_on(&stand, add(&stand, "a", 1), |_| async {});
        panic!("the supervisor is wrong");
    });
}

#[test]
#[should_panic(expected = "a task of the operator")]
fn a_panic_of_an_operator_task_ends_the_run() {
    on_stand(|stand| async move {
        stand.spawn(async { panic!("a task of the operator") });
        std::future::pending::<()>().await;
    });
}

#[test]
fn a_finished_run_leaves_no_task_behind() {
    let kept = Arc::new(());
    let inside = Arc::clone(&kept);
    on_stand(|stand| async move {
        let node = add(&stand, "a", 1);
        let (operator, held) = (Arc::clone(&inside), stand.clone());
        stand.spawn(async move {
            std::future::pending::<()>().await;
            drop((operator, held));
        });
        spawn_on(&stand, node, move |host| {
            let inside = Arc::clone(&inside);
            async move {
                host.spawn("waiting", async move {
                    std::future::pending::<()>().await;
                    drop(inside);
                });
            }
        });
        stand.sleep(ms(1)).await;
    });
    assert_eq!(Arc::strong_count(&kept), 1);
}

#[test]
fn the_real_machine_is_closed_while_a_stand_exists() {
    on_stand(|_| async {});
    assert!(host::real::run("a", |_| async {}).is_err());
}
