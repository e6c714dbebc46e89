//! A producer of a scenario: sends what the plan says when the plan says it, then a last probe to every queue.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use client::{ClientConfig, ClientError, MessageQueue, Producer, SendError, SendReceipt};
use host::Host;
use message::{Message, OffsetMessageId};
use tokio::sync::Semaphore;

use crate::{
    history::{Event, History, Look, MessageId, Queue, QueueRef},
    run::cluster::{Cluster, Phase, group_of, in_one_line, instance_of, settings},
    scenario::{Load, ProducerGroup, Send, SendMode},
    seed::{Domain, Seed},
    stand::StopSignal,
};

use super::{ID_PROPERTY, keys::ProducerKeys, look_of, producer_number};

const BODIES: Domain = Domain::named("work.body");

/// The most sends of one producer on their way at a time. Beyond it messages are sent later than planned.
const SENDING_MAX: u32 = 1_000;

/// Probes are numbered from here, so that they never collide with planned messages.
const PROBES_FROM: u32 = 10_000_000;

/// How many probes of one queue may fail.
const PROBE_ATTEMPTS: u32 = 100;

/// Pause after a probe that was not acknowledged.
const PROBE_PAUSE: Duration = Duration::from_secs(1);

/// Time for a clean end.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(5);

/// The program of a producer node.
pub(crate) async fn produce(cluster: Arc<Cluster>, node: String, host: Host, stop: StopSignal) -> Result<(), String> {
    let group = cluster.plan.scenario.producers.iter().find(|group| group.group == group_of(&node));
    let group = group.ok_or("a producer node belongs to a group")?;
    let keys = ProducerKeys::read(settings(&group.config, &group.group)).map_err(|error| in_one_line(&error))?;
    let config = ClientConfig::builder()
        .name_servers(cluster.name_servers())
        .instance_name(node.replace('/', "-"))
        .timing(keys.timing)
        .build()
        .map_err(|error| in_one_line(&error))?;
    let producer =
        keys.apply(Producer::builder(&group.group, config)).start().await.map_err(|error| in_one_line(&error))?;
    let number = producer_number(&cluster.plan.scenario, &group.group, instance_of(&node));
    let sender = Arc::new(Sender {
        cluster: Arc::clone(&cluster),
        node: node.clone(),
        number,
        life: host.incarnation(),
        producer,
        free: Arc::new(Semaphore::new(SENDING_MAX as usize)),
    });
    host::select! {
        () = stop.requested() => {}
        () = sender.work(&host, group) => {
            cluster.state().producing.remove(&node);
            stop.requested().await;
        }
    }
    // Every permit back means that no send is on its way; then this is the only handle.
    drop(sender.free.acquire_many(SENDING_MAX).await);
    if let Ok(sender) = Arc::try_unwrap(sender) {
        sender.producer.shutdown(SHUTDOWN_DEADLINE).await;
    }
    Ok(())
}

struct Sender {
    cluster: Arc<Cluster>,
    node: String,
    number: u32,
    life: u32,
    producer: Producer,
    free: Arc<Semaphore>,
}

impl Sender {
    /// Sends everything that is planned from now on, waits for the settle phase, then probes.
    async fn work(self: &Arc<Sender>, host: &Host, group: &ProducerGroup) {
        let Load::Planned(sends) = &group.load else { return };
        let by = instance_of(&self.node);
        let own: Vec<&Send> = sends.iter().filter(|send| send.by == by).collect();
        let size = if let SendMode::Batch { size } = group.mode { size as usize } else { 1 };
        let mut begun = self.cluster.state().begun.get(&self.node).copied().unwrap_or(0);
        while begun < own.len() {
            let base = self.cluster.state().base;
            let batch = &own[begun..own.len().min(begun + size)];
            let now = self.cluster.stand.now();
            begun += batch.len();
            self.cluster.state().begun.insert(self.node.clone(), begun);
            let at = base + batch[0].at;
            if at < now && self.life > 1 {
                continue; // Its time passed while this producer was down.
            }
            host.sleep(at.saturating_sub(now)).await;
            let messages: Vec<_> = batch.iter().map(|send| self.message(group, send)).collect();
            let Ok(permit) = Arc::clone(&self.free).acquire_owned().await else { return };
            let (sender, mode) = (Arc::clone(self), group.mode);
            *self.cluster.state().sending.entry(self.node.clone()).or_default() += 1;
            host.spawn("send", async move {
                sender.send(mode, messages).await;
                sender.ended();
                drop(sender);
                drop(permit);
            });
        }
        self.cluster.reached(Phase::Settle).await;
        if by == 0 {
            self.probe(host, group).await;
        }
    }

    /// One last message to every queue, each tried until it is acknowledged.
    async fn probe(&self, host: &Host, group: &ProducerGroup) {
        let Some(topic) = self.cluster.plan.scenario.topics.iter().find(|topic| topic.name == group.topic) else {
            return;
        };
        let queues = topic.brokers.iter().flat_map(|broker| (0..topic.queues).map(move |id| (broker, id)));
        for (number, (broker, id)) in queues.enumerate() {
            let queue = MessageQueue::new(topic.name.as_str(), broker.as_str(), id);
            let numbers = PROBES_FROM + u32::try_from(number).unwrap_or(u32::MAX / 1000) * PROBE_ATTEMPTS;
            for n in numbers..numbers + PROBE_ATTEMPTS {
                let tag = group_tag(group);
                let send = Send { n, by: 0, at: Duration::ZERO, body_bytes: 16, tag };
                let (id, message) = self.message(group, &send);
                self.invoked(id, look_of(&message));
                let result = self.producer.send_to(message, &queue).await;
                let stored = matches!(&result, Ok(receipt) if receipt.status.is_ok());
                self.sent(id, result);
                if stored {
                    break;
                }
                host.sleep(PROBE_PAUSE).await;
            }
        }
    }

    fn message(&self, group: &ProducerGroup, send: &Send) -> (MessageId, Message) {
        let id = MessageId { producer: self.number, n: send.n };
        let mut message = Message::new(group.topic.as_str(), body(self.cluster.plan.seeds.work, id, send.body_bytes));
        if let Some(tag) = &send.tag {
            message = message.with_tags(tag).expect("the scenario was checked for tags that cannot be sent");
        }
        message.properties.set(ID_PROPERTY, &id.to_string()).expect("an id has no separators");
        (id, message)
    }

    async fn send(&self, mode: SendMode, mut messages: Vec<(MessageId, Message)>) {
        for (id, message) in &messages {
            self.invoked(*id, look_of(message));
        }
        match mode {
            SendMode::Sync => {
                for (id, message) in messages {
                    let result = self.producer.send(message).await;
                    self.sent(id, result);
                }
            }
            SendMode::Oneway => {
                for (id, message) in messages {
                    match self.producer.send_oneway(message).await {
                        Ok(()) => self.record(|_| Event::SendInfo(id, "oneway".to_owned())),
                        Err(error) => self.sent(id, Err(error)),
                    }
                }
            }
            SendMode::Batch { .. } => {
                let ids: Vec<MessageId> = messages.iter().map(|(id, _)| *id).collect();
                let messages = messages.drain(..).map(|(_, message)| message).collect();
                self.send_batch(&ids, messages).await;
            }
        }
    }

    async fn send_batch(&self, ids: &[MessageId], messages: Vec<Message>) {
        match self.producer.send_batch(messages).await {
            Ok(receipts) => {
                for (id, receipt) in ids.iter().zip(receipts) {
                    self.sent(*id, Ok(receipt));
                }
            }
            Err(error) => {
                let acknowledged = error.acknowledged.len();
                for (id, receipt) in ids.iter().zip(error.acknowledged) {
                    self.sent(*id, Ok(receipt));
                }
                for (number, id) in ids.iter().enumerate().skip(acknowledged) {
                    if error.failed.contains(&number) {
                        self.sent(*id, Err(error.source.clone()));
                    } else {
                        self.record(|_| Event::SendFail(*id, "not-sent".to_owned()));
                    }
                }
            }
        }
    }

    /// One send less is on its way.
    fn ended(&self) {
        if let Some(sending) = self.cluster.state().sending.get_mut(&self.node) {
            *sending -= 1;
        }
    }

    fn invoked(&self, id: MessageId, look: Look) {
        self.record(|_| Event::SendInvoke(id, look));
    }

    /// Records how a send ended: acknowledged, certainly not stored, or nobody knows. Before that, how many attempts it
    /// took if one was not enough.
    fn sent(&self, id: MessageId, result: Result<SendReceipt, SendError>) {
        let attempts = result.as_ref().map_or_else(|error| error.attempts, |receipt| receipt.attempts);
        if attempts > 1 {
            self.record(|_| Event::SendTries(id, attempts));
        }
        self.record(|history| match result {
            Ok(receipt) if receipt.status.is_ok() => {
                let phy = OffsetMessageId::parse(&receipt.offset_message_id).ok().map(|id| id.phy.0);
                Event::SendOk(id, queue_ref(history, &receipt.queue), receipt.queue_offset.0, phy)
            }
            Ok(receipt) => Event::SendInfo(id, format!("{:?}", receipt.status)),
            Err(error) if error.may_have_been_stored() => Event::SendInfo(id, name(&error.cause)),
            Err(error) => Event::SendFail(id, name(&error.cause)),
        });
    }

    fn record(&self, build: impl FnOnce(&mut History) -> Event) {
        self.cluster.record(&self.node, build);
    }
}

/// The queue of a client as the history names it.
pub(super) fn queue_ref(history: &mut History, queue: &MessageQueue) -> QueueRef {
    history.intern_queue(Queue { topic: queue.topic.to_string(), broker: queue.broker.to_string(), id: queue.id })
}

/// Some tag of the group, so that its probes are wanted by whoever wants its messages.
fn group_tag(group: &ProducerGroup) -> Option<String> {
    match &group.load {
        Load::Planned(sends) => sends.iter().find_map(|send| send.tag.clone()),
        Load::Drawn { tags, .. } => tags.first().cloned(),
    }
}

/// A body that depends on nothing but the seed and the id.
fn body(seed: Seed, id: MessageId, bytes: u64) -> Bytes {
    let mut draws = seed.draws(BODIES, (u64::from(id.producer) << 32) | u64::from(id.n));
    let mut body = Vec::with_capacity(bytes as usize + 8);
    let mut word = 0;
    while (body.len() as u64) < bytes {
        body.extend_from_slice(&draws.at(word).0.to_le_bytes());
        word += 1;
    }
    body.truncate(bytes as usize);
    body.into()
}

/// The name of an error without addresses, which have no place in a history.
fn name(error: &ClientError) -> String {
    match error {
        ClientError::Invalid(_) => "invalid".to_owned(),
        ClientError::NoNameServer => "no-name-server".to_owned(),
        ClientError::NoRoute { .. } => "no-route".to_owned(),
        ClientError::BrokerNotFound { .. } => "broker-not-found".to_owned(),
        ClientError::Broker { code, .. } => format!("code-{}", code.0),
        ClientError::Connect { .. } => "connect".to_owned(),
        ClientError::ConnectionLost { .. } => "connection-lost".to_owned(),
        ClientError::Timeout { .. } => "timeout".to_owned(),
        ClientError::Deadline => "deadline".to_owned(),
        ClientError::Overloaded => "overloaded".to_owned(),
        ClientError::Codec { .. } => "codec".to_owned(),
        ClientError::Shutdown => "shutdown".to_owned(),
        _ => "other".to_owned(),
    }
}
