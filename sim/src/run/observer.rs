//! Turns what the stand tells into records, and into faults that wait for a point.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
};

use crate::{
    history::{Down, Event, Recorder},
    scenario::When,
    stand::{NodeStatus, Observer, Place, Stand},
};

use super::{
    cluster::{Cluster, PROBE},
    faults,
};

/// Listens to one run.
pub(super) struct Watch {
    pub recorder: Arc<Recorder>,
    /// Filled by the supervisor, before any node starts.
    pub cluster: OnceLock<Arc<Cluster>>,
    /// How often each node passed each point that a fault waits for.
    visits: Mutex<BTreeMap<(String, String), u32>>, // Leaf lock.
}

impl Watch {
    pub fn new(recorder: Arc<Recorder>) -> Watch {
        Watch { recorder, cluster: OnceLock::new(), visits: Mutex::default() }
    }

    fn record(&self, place: &Place, event: Event) {
        let at = u64::try_from(place.at.as_nanos()).unwrap_or(u64::MAX);
        self.recorder.record(at, Some((&place.name, place.incarnation)), |_| event);
    }

    /// Begins the faults that waited for this visit of a point.
    fn trigger(&self, cluster: &Arc<Cluster>, place: &Place, name: &str) {
        for (number, fault) in cluster.plan.scenario.faults.iter().enumerate() {
            let When::On { point, node, nth } = &fault.when else { continue };
            if point != name || **node != *place.name {
                continue;
            }
            let key = (fault.id.clone(), name.to_owned());
            let visit = {
                let mut visits = self.visits.lock().expect("nothing panics while it is held");
                let visits = visits.entry(key).or_default();
                *visits += 1;
                *visits
            };
            if visit == *nth {
                faults::begin(cluster, number);
            }
        }
    }
}

impl Observer for Watch {
    fn point(&self, stand: &Stand, place: &Place, name: &'static str, value: i64) {
        // A process that was just killed runs on to its next await: nothing it passes there has happened.
        let alive = match stand.status(place.node) {
            NodeStatus::Up { incarnation } | NodeStatus::Paused { incarnation } => incarnation == place.incarnation,
            NodeStatus::Down | NodeStatus::PowerLost => false,
        };
        if !alive || &*place.name == PROBE {
            return;
        }
        let offset = u64::try_from(value).unwrap_or(0);
        self.record(
            place,
            match name {
                "store.appended" => Event::Append(offset),
                "store.flushed" => Event::Flush(offset),
                "store.recovered" => Event::Recover(offset),
                "store.truncated" => Event::Truncate(offset),
                "store.file-deleted" => Event::Delete(offset),
                "client.queue-added" => Event::Assign(value),
                "client.queue-removed" => Event::Revoke(value),
                name => Event::Point(name, value),
            },
        );
        if let Some(cluster) = self.cluster.get() {
            self.trigger(cluster, place, name);
        }
    }

    fn panicked(&self, _: &Stand, place: &Place, task: &'static str, message: &str) {
        self.record(place, Event::Panic(task, message.to_owned()));
        self.record(place, Event::NodeDown(Down::Panic, String::new()));
    }

    fn exited(&self, _: &Stand, place: &Place, result: &Result<(), String>) {
        let expected = self.cluster.get().is_some_and(|cluster| cluster.state().stopping.contains(&*place.name));
        if !expected {
            let why = result.clone().err().unwrap_or_default();
            self.record(place, Event::NodeDown(Down::Exit, why));
        }
    }
}
