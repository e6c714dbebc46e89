//! Which `host::buggify!` say yes, and how often (`spec/simulation.md` 5.5).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use super::lock;

/// What of it is switched on in a run.
#[derive(Default)]
pub(crate) struct Buggify {
    /// Asked first: most runs have none.
    is_on: AtomicBool,
    /// Names, and how many of a million visits say yes, by what has switched them on. Leaf lock.
    present: Mutex<BTreeMap<u64, (BTreeSet<String>, u32)>>,
}

impl Buggify {
    pub(crate) fn begin(&self, key: u64, names: &[String], chance_ppm: u32) {
        lock(&self.present).insert(key, (names.iter().cloned().collect(), chance_ppm));
        self.is_on.store(true, Ordering::Relaxed);
    }

    pub(crate) fn end(&self, key: u64) {
        let mut present = lock(&self.present);
        present.remove(&key);
        self.is_on.store(!present.is_empty(), Ordering::Relaxed);
    }

    pub(crate) fn end_all(&self) {
        lock(&self.present).clear();
        self.is_on.store(false, Ordering::Relaxed);
    }

    /// How many of a million visits of a name say yes; 0 if it is off.
    pub(crate) fn chance_ppm(&self, name: &str) -> u32 {
        if !self.is_on.load(Ordering::Relaxed) {
            return 0;
        }
        let present = lock(&self.present);
        let chances = present.values().filter(|(names, _)| names.contains(name)).map(|(_, chance)| *chance);
        chances.max().unwrap_or(0)
    }
}
