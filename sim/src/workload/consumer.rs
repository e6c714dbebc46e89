//! A member of a consumer group of a scenario: its listener works on each message for a while, finishes most, and asks
//! for some again later.

use std::{sync::Arc, time::Duration};

use client::{
    ClientConfig, ConcurrentBatch, ConcurrentListener, ConcurrentOutcome, Filter, PushConsumer, RetryDelay, StartFrom,
};
use host::Host;

use crate::{
    history::{Event, History, MessageId},
    run::cluster::{Cluster, group_of, in_one_line, settings},
    scenario::ConsumerGroup,
    seed::{Domain, name_hash},
    stand::StopSignal,
};

use super::{id_of, keys::ConsumerKeys, look_at, producer::queue_ref};

const HANDLING: Domain = Domain::named("work.handling");
const LATER: Domain = Domain::named("work.later");

/// Time for a clean end.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(10);

/// The program of a consumer node.
pub(crate) async fn consume(cluster: Arc<Cluster>, node: String, host: Host, stop: StopSignal) -> Result<(), String> {
    let group = cluster.plan.scenario.consumer(group_of(&node));
    let group = group.ok_or("a consumer node belongs to a group")?;
    let keys = ConsumerKeys::read(settings(&group.config, &group.group)).map_err(|error| in_one_line(&error))?;
    let config = ClientConfig::builder()
        .name_servers(cluster.name_servers())
        .instance_name(node.replace('/', "-"))
        .timing(keys.timing)
        .build()
        .map_err(|error| in_one_line(&error))?;
    let filter = match group.tags.is_empty() {
        true => Filter::All,
        false => Filter::Tags(group.tags.iter().cloned().collect()),
    };
    let listener = Listener { cluster: Arc::clone(&cluster), node: node.clone(), host, group: group.clone() };
    let consumer = keys
        .apply(PushConsumer::builder(&group.group, config))
        .subscribe(&group.topic, filter)
        .start_from(StartFrom::Earliest)
        .start_concurrent(listener)
        .await
        .map_err(|error| in_one_line(&error))?;
    stop.requested().await;
    consumer.shutdown(SHUTDOWN_DEADLINE).await;
    Ok(())
}

struct Listener {
    cluster: Arc<Cluster>,
    node: String,
    host: Host,
    group: ConsumerGroup,
}

impl ConcurrentListener for Listener {
    async fn consume(&self, batch: ConcurrentBatch) -> ConcurrentOutcome {
        let mut work = Duration::ZERO;
        let mut refused_from = batch.messages.len();
        for (number, view) in batch.messages.iter().enumerate() {
            let message = id_of(view);
            self.record(|history| Event::Deliver {
                message,
                queue: queue_ref(history, view.queue()),
                offset: view.queue_offset().0,
                look: look_at(view),
                times: view.reconsume_times(),
            });
            work += self.handling(message, view.reconsume_times());
            if self.refuses(message, view.reconsume_times()) {
                refused_from = refused_from.min(number);
            }
        }
        self.host.sleep(work).await;
        for (number, view) in batch.messages.iter().enumerate() {
            let message = id_of(view);
            self.record(|history| {
                let queue = queue_ref(history, view.queue());
                match number < refused_from {
                    true => Event::Ack(message, queue, view.queue_offset().0),
                    false => Event::Nack(message, queue, view.queue_offset().0),
                }
            });
        }
        match refused_from {
            all if all == batch.messages.len() => ConcurrentOutcome::Success,
            0 => ConcurrentOutcome::Later { delay: RetryDelay::Schedule },
            some => ConcurrentOutcome::AckThrough(some),
        }
    }
}

impl Listener {
    fn record(&self, build: impl FnOnce(&mut History) -> Event) {
        self.cluster.record(&self.node, build);
    }

    /// How long the listener works on a message.
    fn handling(&self, message: Option<MessageId>, times: u32) -> Duration {
        self.draw(HANDLING, message, times).duration(self.group.handling.least..=self.group.handling.most)
    }

    /// Whether it wants the message again: only ever at its first deliveries.
    fn refuses(&self, message: Option<MessageId>, times: u32) -> bool {
        times < self.group.later_times && self.draw(LATER, message, 0).below(100) < u64::from(self.group.later_percent)
    }

    fn draw(&self, domain: Domain, message: Option<MessageId>, times: u32) -> crate::seed::Draw {
        let message = message.map_or(0, |id| (u64::from(id.producer) << 40) | (u64::from(id.n) << 8));
        let entity = name_hash(&self.group.group);
        self.cluster.plan.seeds.work.draw(domain, entity, message | u64::from(times.min(255)))
    }
}
