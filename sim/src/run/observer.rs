//! Turns what the stand tells into records, and into faults that wait for a point.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use client::MessageQueue;
use host::machine::BoxFuture;

use crate::{
    disk::DiskError,
    history::{Down, Event, Queue, QueueRef, Recorder},
    points::POLL,
    scenario::{Scenario, error_name},
    stand::{NodeStatus, Observer, Place, Stand},
};

use super::{
    cluster::{Cluster, PROBE, STORE_PATH},
    faults::disks,
    triggers,
};

/// What the stand gives as the task of a process that died of a signal.
const SIGNALLED: &str = "process";

/// How long a process stays down that its disk has brought down.
const RESTART_AFTER: Duration = Duration::from_secs(5);

/// A file by its path below the store, and the number of a page.
pub(super) fn place_on_disk((path, page): (&Path, Option<u64>)) -> String {
    let below = path.strip_prefix(STORE_PATH).unwrap_or(path).display();
    page.map_or_else(|| below.to_string(), |page| format!("{below}@{page}"))
}

/// The queue of the scenario that a mark stands for, queues of messages that come again included.
fn queue_of(scenario: &Scenario, mark: i64) -> Option<Queue> {
    let retry = scenario.consumers.iter().map(|group| message::retry_topic(&group.group));
    let topics = scenario.topics.iter().map(|topic| topic.name.clone()).chain(retry);
    let id = u32::try_from(mark & 0xFFF).ok()?;
    let mut queues = topics.flat_map(|topic| {
        scenario.brokers.iter().map(move |group| MessageQueue::new(topic.as_str(), group.name.as_str(), id))
    });
    let found = queues.find(|queue| queue.mark() == mark)?;
    Some(Queue { topic: found.topic.to_string(), broker: found.broker.to_string(), id })
}

/// Listens to one run.
pub(super) struct Watch {
    pub recorder: Arc<Recorder>,
    /// Filled by the supervisor, before any node starts.
    pub cluster: OnceLock<Arc<Cluster>>,
}

impl Watch {
    pub fn new(recorder: Arc<Recorder>) -> Watch {
        Watch { recorder, cluster: OnceLock::new() }
    }

    /// Whether a fault let a call of this life on a file go wrong.
    fn was_failed_by_its_disk(&self, place: &Place) -> bool {
        self.recorder.with(|history| {
            let node = history.find_node(&place.name);
            history.failed_by_its_disk(node.map(|node| (node, place.incarnation)), history.records.len())
        })
    }

    /// What its disk has brought down is started again, as by the supervisor of a real machine.
    fn restart_later(&self, place: &Place) {
        let Some(cluster) = self.cluster.get().map(Arc::clone) else { return };
        let node = place.name.to_string();
        cluster.stand.clone().spawn(async move {
            cluster.stand.sleep(RESTART_AFTER).await;
            let is_wanted = cluster.state().wanted.contains(&node);
            if is_wanted {
                cluster.want(&node);
            }
        });
    }

    /// A consumer took a queue over, gave it up, or asks for what is in it. A point tells a number only; the queue is the
    /// one that it stands for.
    fn of_queue(&self, place: &Place, name: &'static str, mark: i64, build: impl FnOnce(QueueRef) -> Event) {
        let Some(cluster) = self.cluster.get() else { return };
        match queue_of(&cluster.plan.scenario, mark) {
            None => self.record(place, Event::Point(name, mark)),
            Some(queue) => {
                let at = u64::try_from(place.at.as_nanos()).unwrap_or(u64::MAX);
                self.recorder
                    .record(at, Some((&place.name, place.incarnation)), |history| build(history.intern_queue(queue)));
            }
        }
        triggers::passed(cluster, &place.name, name);
    }

    fn record(&self, place: &Place, event: Event) {
        let at = u64::try_from(place.at.as_nanos()).unwrap_or(u64::MAX);
        self.recorder.record(at, Some((&place.name, place.incarnation)), |_| event);
    }
}

impl Observer for Watch {
    fn point(&self, stand: &Stand, place: &Place, name: &'static str, [value, about]: [i64; 2]) {
        // A process that was just killed runs on to its next await: nothing it passes there has happened.
        let alive = match stand.status(place.node) {
            NodeStatus::Up { incarnation } | NodeStatus::Paused { incarnation } => incarnation == place.incarnation,
            NodeStatus::Down | NodeStatus::PowerLost => false,
        };
        if !alive || &*place.name == PROBE {
            return;
        }
        let offset = u64::try_from(value).unwrap_or(0);
        match name {
            "client.queue-added" => return self.of_queue(place, name, value, Event::Assign),
            "client.queue-removed" => return self.of_queue(place, name, value, Event::Revoke),
            "client.pulling" => return self.of_queue(place, name, about, |queue| Event::Poll(queue, offset)),
            _ => {}
        }
        self.record(
            place,
            match name {
                "store.appended" => Event::Append(offset),
                "store.flushed" => Event::Flush(offset),
                "store.recovered" => Event::Recover(offset),
                "store.truncated" => Event::Truncate(offset),
                "store.file-deleted" => Event::Delete(offset),
                "broker.delayed-delivered" => Event::Due { phy: offset, level: u64::try_from(about).unwrap_or(0) },
                name => Event::Point(name, value),
            },
        );
        if let Some(cluster) = self.cluster.get() {
            triggers::passed(cluster, &place.name, name);
        }
    }

    fn polled(&self, _: &Stand, place: &Place) {
        if let Some(cluster) = self.cluster.get() {
            triggers::passed(cluster, &place.name, POLL);
        }
    }

    fn reached(&self, _: &Stand, place: &Place, name: &'static str) {
        self.record(place, Event::Reached(name));
    }

    fn broken(&self, _: &Stand, place: &Place, name: &'static str) {
        self.record(place, Event::Broken(name));
    }

    fn gate(&self, _: &Stand, place: &Place, name: &'static str) -> Option<BoxFuture<()>> {
        self.cluster.get().and_then(|cluster| triggers::reached(cluster, &place.name, name))
    }

    fn disk_failed(&self, _: &Stand, place: &Place, error: DiskError, at: (&Path, Option<u64>)) {
        self.record(place, Event::DiskError(error_name(error), place_on_disk(at)));
        if let (DiskError::Write | DiskError::Flush, Some(cluster)) = (error, self.cluster.get()) {
            cluster.state().ailing.insert(place.name.to_string());
        }
    }

    fn flush_torn(&self, _: &Stand, _: &Place, fault: u64) {
        if let Some(cluster) = self.cluster.get() {
            disks::flush_torn(cluster, fault);
        }
    }

    fn panicked(&self, _: &Stand, place: &Place, task: &'static str, message: &str) {
        if task == SIGNALLED && self.was_failed_by_its_disk(place) {
            self.record(place, Event::NodeDown(Down::Signal, message.to_owned()));
            return self.restart_later(place);
        }
        self.record(place, Event::Panic(task, message.to_owned()));
        self.record(place, Event::NodeDown(Down::Panic, String::new()));
    }

    fn exited(&self, _: &Stand, place: &Place, result: &Result<(), String>) {
        let expected = self.cluster.get().is_some_and(|cluster| cluster.state().stopping.contains(&*place.name));
        if !expected {
            let why = result.clone().err().unwrap_or_default();
            self.record(place, Event::NodeDown(Down::Exit, why));
            if self.was_failed_by_its_disk(place) {
                self.restart_later(place);
            }
        }
    }
}
