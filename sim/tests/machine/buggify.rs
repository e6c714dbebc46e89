//! `host::buggify!`: off unless switched on, as often as it was asked for, and the same for the same seed.

use std::sync::{Arc, Mutex};

use sim::{
    seed::Seeds,
    stand::{self, Observer, Place, Stand, StandConfig},
};

use crate::{Seen, add, finished, ms, on_stand, spawn_on};

/// Every chance, in parts per million.
const ALWAYS_PPM: u32 = 1_000_000;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Asks on a node of its own, `visits` times for each of two names; gives how often each said yes.
async fn ask(stand: &Stand, node: &str, last: u8, visits: u32) -> [u32; 2] {
    let seen = Seen::new();
    let (node, told) = (add(stand, node, last), seen.clone());
    spawn_on(stand, node, move |_| {
        let told = told.clone();
        async move {
            let one = (0..visits).filter(|_| host::buggify!("test.one")).count();
            let other = (0..visits).filter(|_| host::buggify!("test.other")).count();
            told.add([one as u32, other as u32]);
        }
    });
    stand.sleep(ms(1)).await;
    seen.all()[0]
}

#[test]
fn only_what_is_switched_on_says_yes_and_only_as_long() {
    let asked = on_stand(|stand| async move {
        let mut asked = vec![ask(&stand, "a", 1, 10).await];
        stand.buggify(1, &names(&["test.one"]), ALWAYS_PPM);
        asked.push(ask(&stand, "b", 2, 10).await);
        stand.buggify(2, &names(&["test.one", "test.other"]), ALWAYS_PPM);
        stand.end_buggify(1);
        asked.push(ask(&stand, "c", 3, 10).await);
        stand.end_all_buggify();
        asked.push(ask(&stand, "d", 4, 10).await);
        asked
    });
    assert_eq!(asked, [[0, 0], [10, 0], [10, 10], [0, 0]]);
}

#[test]
fn a_quarter_of_the_visits_is_a_quarter_on_every_node_and_the_same_again() {
    let run = || {
        on_stand(|stand| async move {
            stand.buggify(1, &names(&["test.one", "test.other"]), 250_000);
            [ask(&stand, "a", 1, 100_000).await, ask(&stand, "b", 2, 100_000).await]
        })
    };
    let asked = run();
    let [[one, other], [elsewhere, _]] = asked;
    for count in asked.iter().flatten() {
        assert!((24_590..25_410).contains(count), "{count} of 100,000; three sigma are 411");
    }
    assert!(one != other && one != elsewhere, "names and nodes draw for themselves: {asked:?}");
    assert_eq!(asked, run());
}

#[test]
fn what_said_yes_is_told_once_with_its_node() {
    struct Told(Mutex<Vec<String>>);
    impl Observer for Told {
        fn reached(&self, _: &Stand, place: &Place, name: &'static str) {
            self.0.lock().unwrap().push(format!("{} {name}", place.name));
        }
    }
    let told = Arc::new(Told(Mutex::default()));
    let run =
        stand::run(StandConfig::new(Seeds::from_root(7)), Arc::clone(&told) as Arc<dyn Observer>, |stand| async move {
            stand.buggify(1, &names(&["test.other"]), ALWAYS_PPM);
            ask(&stand, "a", 1, 5).await
        });
    assert_eq!(finished(run), [0, 5]);
    assert_eq!(*told.0.lock().unwrap(), ["a test.other"]);
}
