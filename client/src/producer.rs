//! Sending messages.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use host::{Host, rand::Rng, task::TaskGroup};
use message::{Compression, Message, QueueOffset, SysFlag, UniqueIds, property};

use crate::{
    config::ClientConfig,
    core::{ClientCore, Role, SendCall},
    error::{ClientError, SendError},
    queue::MessageQueue,
};

mod attempts;
pub(crate) mod batch;
pub(crate) mod selector;

use attempts::{Attempts, RetryRules, Step};
use batch::{BatchError, BatchSplitter};
use selector::{JavaHash, QueueSelector, ShardingKey};

/// Topics that belong to brokers. Source: `spec/client.md` 2.2.
const NOT_SENDABLE: [&str; 6] = [
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
];

/// Property that tells the wire to use another request; a producer of this crate does not set it for its users.
const REPLY_TYPE: &str = "reply";

/// How safely a broker has stored a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendStatus {
    /// As its policy demands.
    SendOk,
    /// In memory; the disk did not confirm in time.
    FlushDiskTimeout,
    /// On the master; no slave confirmed in time.
    FlushSlaveTimeout,
    /// On the master; there is no slave.
    SlaveNotAvailable,
}

impl SendStatus {
    /// Whether the broker keeps its whole promise.
    #[must_use]
    pub fn is_ok(self) -> bool {
        self == SendStatus::SendOk
    }
}

/// A broker's acknowledgement of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendReceipt {
    /// How safely it is stored.
    pub status: SendStatus,
    /// The unique id that the producer gave it; the same on every copy that retries may have made.
    pub message_id: String,
    /// The id of the place where it is stored.
    pub offset_message_id: String,
    /// Its queue.
    pub queue: MessageQueue,
    /// Its position in the queue.
    pub queue_offset: QueueOffset,
    /// The id of its transaction, as the broker told it.
    pub transaction_id: Option<String>,
    /// How many attempts it took. Each of those before the last may have stored a copy, too.
    pub attempts: u32,
}

/// Sends messages for a group.
///
/// Cheap to share by reference; all calls may run side by side. Use [`shutdown`](Producer::shutdown) for a clean end;
/// dropping it ends its tasks, and brokers notice by its connections.
#[derive(Debug)]
pub struct Producer {
    core: Arc<ClientCore>,
    settings: Settings,
    ids: UniqueIds,
    /// Heartbeats and routes.
    upkeep: TaskGroup,
}

#[derive(Debug)]
struct Settings {
    group: Arc<str>,
    send_timeout: Duration,
    attempts: u32,
    attempt_timeout: Option<Duration>,
    retry_not_ok: bool,
    compress_from: usize,
    compression: Compression,
    max_body_bytes: usize,
    splitter: BatchSplitter,
    default_topic_queues: u32,
}

/// A message in the form in which it travels.
#[derive(Debug)]
struct Prepared {
    topic: Arc<str>,
    body: Bytes,
    flag: i32,
    sys_flag: SysFlag,
    properties: String,
    is_batch: bool,
    message_id: String,
    born_ms: i64,
}

impl Producer {
    /// Starts to describe a producer of `group`.
    pub fn builder(group: impl Into<String>, config: ClientConfig) -> ProducerBuilder {
        ProducerBuilder {
            config,
            settings: Settings {
                group: group.into().into(),
                send_timeout: Duration::from_secs(3),
                attempts: 3,
                attempt_timeout: None,
                retry_not_ok: false,
                compress_from: 4096,
                compression: Compression::Zlib,
                max_body_bytes: 4 << 20,
                splitter: BatchSplitter::default(),
                default_topic_queues: 4,
            },
        }
    }

    /// The id by which brokers know this client.
    #[must_use]
    pub fn client_id(&self) -> &str {
        self.core.id()
    }

    /// Sends a message to a queue of its topic, in turn, and to another broker if that fails.
    ///
    /// Retries may store it more than once; all copies have one unique id.
    ///
    /// # Errors
    /// [`SendError`] tells whether the message may have been stored all the same.
    pub async fn send(&self, message: Message) -> Result<SendReceipt, SendError> {
        let prepared = self.prepare(message).map_err(SendError::unsent)?;
        self.send_in_turn(&prepared).await
    }

    /// Sends a message to one queue, in one attempt.
    ///
    /// # Errors
    /// As [`send`](Producer::send); [`ClientError::Invalid`] if the queue is of another topic.
    pub async fn send_to(&self, message: Message, queue: &MessageQueue) -> Result<SendReceipt, SendError> {
        if *queue.topic != *message.topic {
            let reason = format!("the queue {queue} is of another topic than the message (`{}`)", message.topic);
            return Err(SendError::unsent(ClientError::Invalid(reason)));
        }
        let prepared = self.prepare(message).map_err(SendError::unsent)?;
        self.send_once(&prepared, queue, self.settings.send_timeout).await
    }

    /// Sends a message to the queue of its key, in one attempt: messages of one key stay in order as long as the
    /// queues of the topic stay the same and the caller waits for each before the next.
    ///
    /// # Errors
    /// As [`send`](Producer::send).
    pub async fn send_ordered<K>(&self, message: Message, key: &K) -> Result<SendReceipt, SendError>
    where
        K: ShardingKey + ?Sized + Sync,
    {
        self.send_selected(message, &JavaHash, &key).await
    }

    /// Sends a message to the queue that `selector` chooses for a key, in one attempt.
    ///
    /// # Errors
    /// As [`send`](Producer::send); [`ClientError::Invalid`] if nothing is chosen.
    pub async fn send_selected(
        &self,
        message: Message,
        selector: &dyn QueueSelector,
        key: &(dyn ShardingKey + Sync),
    ) -> Result<SendReceipt, SendError> {
        let began = self.core.host().now();
        let prepared = self.prepare(message).map_err(SendError::unsent)?;
        let looking = self.core.publish_list(&prepared.topic);
        let list = self.core.host().timeout(self.settings.send_timeout, looking).await;
        let list = list.unwrap_or(Err(ClientError::Deadline)).map_err(SendError::unsent)?;
        let chosen = selector.select(&list.queues, key).and_then(|at| list.queues.get(at)).ok_or_else(|| {
            SendError::unsent(ClientError::Invalid(format!("no queue of `{}` chosen for the key", prepared.topic)))
        })?;
        let left = self.settings.send_timeout.saturating_sub(self.core.host().now().since(began));
        self.send_once(&prepared, chosen, left).await
    }

    /// Sends messages of one topic in as few requests as the limits allow, each as [`send`](Producer::send) would.
    ///
    /// The receipts are in the order of the messages. Messages of one chunk have consecutive offsets of one queue.
    ///
    /// # Errors
    /// [`BatchError`] at the first chunk that fails.
    pub async fn send_batch(&self, mut messages: Vec<Message>) -> Result<Vec<SendReceipt>, BatchError> {
        let refuse = |cause| BatchError { acknowledged: Vec::new(), failed: 0..0, source: SendError::unsent(cause) };
        batch::check(&messages).map_err(refuse)?;
        for message in &mut messages {
            self.check_message(message).map_err(refuse)?;
            self.give_id(message).map_err(refuse)?;
        }
        let mut acknowledged = Vec::with_capacity(messages.len());
        for chunk in self.settings.splitter.split(&messages) {
            let sent = match self.prepare_batch(&messages[chunk.clone()]) {
                Ok(prepared) => self.send_in_turn(&prepared).await,
                Err(cause) => Err(SendError::unsent(cause)),
            };
            match sent {
                Ok(receipt) => acknowledged.extend(split_receipt(receipt, &messages[chunk])),
                Err(source) => return Err(BatchError { acknowledged, failed: chunk, source }),
            }
        }
        Ok(acknowledged)
    }

    /// Hands a message to the connection and does not wait for an answer: nobody tells whether it was stored, and not
    /// even whether the connection could be made.
    ///
    /// # Errors
    /// Only what fails before: a bad message, no route, too much on its way.
    pub async fn send_oneway(&self, message: Message) -> Result<(), SendError> {
        let prepared = self.prepare(message).map_err(SendError::unsent)?;
        let timeout = self.settings.send_timeout;
        let sending = async {
            let list = self.core.publish_list(&prepared.topic).await?;
            let queue = list.next(None).expect("a publish list that was found is not empty");
            self.core.send_oneway(self.call(&prepared, queue)).await
        };
        let sent = self.core.host().timeout(timeout, sending).await;
        sent.unwrap_or(Err(ClientError::Deadline)).map_err(|cause| SendError {
            maybe_stored: cause.may_have_been_stored(),
            cause,
            attempts: 1,
        })
    }

    /// The queues of a topic that take messages, in the order that selectors see.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] and the errors of asking name servers.
    pub async fn publish_queues(&self, topic: &str) -> Result<Vec<MessageQueue>, ClientError> {
        Ok(self.core.publish_list(&topic.into()).await?.queues.clone())
    }

    /// Leaves the group and ends. None of its tasks is left afterwards.
    pub async fn shutdown(self, deadline: Duration) {
        if self.core.host().timeout(deadline, self.core.unregister()).await.is_err() {
            tracing::warn!(group = %self.settings.group, "brokers not told that this producer leaves");
        }
        self.upkeep.shutdown().await;
        self.core.close().await;
    }

    // ---- one call ----

    async fn send_in_turn(&self, prepared: &Prepared) -> Result<SendReceipt, SendError> {
        let host = self.core.host();
        let rules = RetryRules {
            attempts: self.settings.attempts,
            budget: self.settings.send_timeout,
            per_attempt: self.settings.attempt_timeout,
            retry_not_ok: self.settings.retry_not_ok,
        };
        let mut attempts = Attempts::begin(rules, host.now());
        let looking = self.core.publish_list(&prepared.topic);
        let list = host.timeout(self.settings.send_timeout, looking).await;
        let list = list.unwrap_or(Err(ClientError::Deadline)).map_err(SendError::unsent)?;
        let mut step = attempts.first(host.now());
        loop {
            let (avoid, timeout) = match step {
                Step::Try { avoid, timeout } => (avoid, timeout),
                Step::Done(result) => return result,
            };
            let queue = list.next(avoid.as_deref()).expect("a publish list that was found is not empty");
            let result = self.core.send(self.call(prepared, queue), timeout).await;
            if let Err(error) = &result {
                tracing::debug!(%queue, %error, "send attempt failed");
            }
            step = attempts.on_ended(Arc::clone(&queue.broker), result, host.now());
        }
    }

    async fn send_once(
        &self,
        prepared: &Prepared,
        queue: &MessageQueue,
        timeout: Duration,
    ) -> Result<SendReceipt, SendError> {
        self.core.send(self.call(prepared, queue), timeout).await.map_err(|cause| SendError {
            maybe_stored: cause.may_have_been_stored(),
            cause,
            attempts: 1,
        })
    }

    fn call<'a>(&'a self, prepared: &'a Prepared, queue: &'a MessageQueue) -> SendCall<'a> {
        SendCall {
            group: &self.settings.group,
            queue,
            default_topic_queues: self.settings.default_topic_queues,
            body: prepared.body.clone(),
            flag: prepared.flag,
            sys_flag: prepared.sys_flag,
            properties: &prepared.properties,
            is_batch: prepared.is_batch,
            message_id: &prepared.message_id,
            born_ms: prepared.born_ms,
            reconsume: None,
        }
    }

    // ---- preparation ----

    fn prepare(&self, mut message: Message) -> Result<Prepared, ClientError> {
        self.check_message(&message)?;
        let message_id = self.give_id(&mut message)?;
        let mut sys_flag = SysFlag(0);
        if message.properties.get(property::TRANSACTION_PREPARED) == Some("true") {
            sys_flag = sys_flag.with(SysFlag::TRANSACTION_PREPARED, true);
        }
        if message.body.len() >= self.settings.compress_from {
            let packed = message.compressed_body(self.settings.compression, sys_flag);
            let (body, flag) = packed.map_err(|error| ClientError::Invalid(format!("body not compressed: {error}")))?;
            (message.body, sys_flag) = (body, flag);
        }
        Ok(Prepared {
            topic: message.topic.into(),
            body: message.body,
            flag: message.flag,
            sys_flag,
            properties: message.properties.as_encoded().to_owned(),
            is_batch: false,
            message_id,
            born_ms: self.core.host().wall_ms(),
        })
    }

    fn prepare_batch(&self, messages: &[Message]) -> Result<Prepared, ClientError> {
        let invalid = |error: &dyn std::fmt::Display| ClientError::Invalid(error.to_string());
        let mut body = Vec::new();
        for message in messages {
            message::encode_batch_item(message, &mut body).map_err(|error| invalid(&error))?;
        }
        let first = messages.first().expect("chunks are not empty");
        let mut whole = Message::new(first.topic.clone(), body);
        if !first.waits_for_store() {
            whole.properties.set(property::WAIT_STORE, "false").map_err(|error| invalid(&error))?;
        }
        let message_id = self.give_id(&mut whole)?;
        Ok(Prepared {
            topic: whole.topic.into(),
            body: whole.body,
            flag: 0,
            sys_flag: SysFlag(0),
            properties: whole.properties.as_encoded().to_owned(),
            is_batch: true,
            message_id,
            born_ms: self.core.host().wall_ms(),
        })
    }

    fn check_message(&self, message: &Message) -> Result<(), ClientError> {
        let invalid = |reason: String| Err(ClientError::Invalid(reason));
        message::validate_topic(&message.topic).map_err(|error| ClientError::Invalid(error.to_string()))?;
        if NOT_SENDABLE.contains(&&*message.topic) {
            return invalid(format!("the topic `{}` belongs to the brokers", message.topic));
        }
        if message.body.is_empty() {
            return invalid("the body is empty".to_owned());
        }
        let (bytes, limit) = (message.body.len(), self.settings.max_body_bytes);
        if bytes > limit {
            return invalid(format!("the body has {bytes} bytes, at most {limit} are allowed"));
        }
        let bytes = message.properties.as_encoded().len();
        if bytes > message::PROPERTIES_MAX_BYTES {
            return invalid(format!("the properties have {bytes} bytes, at most 32767 are allowed"));
        }
        if message.properties.get(property::MESSAGE_TYPE) == Some(REPLY_TYPE) {
            return invalid("replies are not sent by this producer".to_owned());
        }
        Ok(())
    }

    /// The unique id of a message, given to it now unless it has one.
    fn give_id(&self, message: &mut Message) -> Result<String, ClientError> {
        if let Some(id) = message.unique_id() {
            return Ok(id.to_owned());
        }
        let id = self.ids.next(self.core.host().wall_ms());
        message.properties.set(property::UNIQUE_ID, &id).map_err(|error| ClientError::Invalid(error.to_string()))?;
        Ok(id)
    }
}

/// One receipt for each message of an acknowledged batch.
fn split_receipt(receipt: SendReceipt, messages: &[Message]) -> Vec<SendReceipt> {
    let mut places = receipt.offset_message_id.split(',');
    let offsets = receipt.queue_offset.0..;
    messages
        .iter()
        .zip(offsets)
        .map(|(message, offset)| SendReceipt {
            status: receipt.status,
            message_id: message.unique_id().unwrap_or_default().to_owned(),
            offset_message_id: places.next().unwrap_or_default().to_owned(),
            queue: receipt.queue.clone(),
            queue_offset: QueueOffset(offset),
            transaction_id: None,
            attempts: receipt.attempts,
        })
        .collect()
}

/// Describes a producer; made by [`Producer::builder`].
#[derive(Debug)]
pub struct ProducerBuilder {
    config: ClientConfig,
    settings: Settings,
}

impl ProducerBuilder {
    /// Time for one send with all its retries. Default 3 s.
    #[must_use]
    pub fn send_timeout(mut self, timeout: Duration) -> Self {
        self.settings.send_timeout = timeout;
        self
    }

    /// Further attempts after the first has failed. Default 2.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.settings.attempts = retries.saturating_add(1);
        self
    }

    /// Time for one attempt, as long as another is possible. Default: an equal share of the send time-out, so that a
    /// broker that swallows requests does not use up the time of the others.
    #[must_use]
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.settings.attempt_timeout = Some(timeout);
        self
    }

    /// Sends a message again to another broker if it was stored, but with a status other than `SendOk`. Default off.
    #[must_use]
    pub fn retry_when_not_ok(mut self, on: bool) -> Self {
        self.settings.retry_not_ok = on;
        self
    }

    /// Bodies of this many bytes and more are compressed. Default 4096.
    #[must_use]
    pub fn compress_from(mut self, bytes: usize) -> Self {
        self.settings.compress_from = bytes;
        self
    }

    /// How bodies are compressed. Default zlib, which every client reads.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.settings.compression = compression;
        self
    }

    /// The largest body in bytes. Default 4 MiB, the limit of brokers.
    #[must_use]
    pub fn max_body_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_body_bytes = bytes;
        self
    }

    /// How lists of messages are cut into batches.
    #[must_use]
    pub fn splitter(mut self, splitter: BatchSplitter) -> Self {
        self.settings.splitter = splitter;
        self
    }

    /// Queues of a topic that is created by its first message. Default 4.
    #[must_use]
    pub fn default_topic_queues(mut self, queues: u32) -> Self {
        self.settings.default_topic_queues = queues;
        self
    }

    /// Starts the producer. Brokers and name servers need not be there yet.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for an impossible group name or a limit of zero.
    ///
    /// # Panics
    /// Outside a node; see [`Host::current`].
    pub async fn start(self) -> Result<Producer, ClientError> {
        let host = Host::current();
        let settings = self.settings;
        message::validate_group(&settings.group).map_err(|error| ClientError::Invalid(error.to_string()))?;
        if &*settings.group == "DEFAULT_PRODUCER" {
            return Err(ClientError::Invalid("the group name `DEFAULT_PRODUCER` is reserved".to_owned()));
        }
        if settings.send_timeout.is_zero() || settings.max_body_bytes == 0 || settings.default_topic_queues == 0 {
            return Err(ClientError::Invalid("a limit of the producer is zero".to_owned()));
        }
        let role = Role::Producer { group: Arc::clone(&settings.group) };
        let (core, upkeep) = ClientCore::start(&host, self.config, role).await?;
        let mut rng: Rng = host.rng(&format!("client.unique-ids.{}", core.id()));
        let ids = UniqueIds::new(core.ip(), host.process_id(), rng.next_u64() as u32);
        Ok(Producer { core, settings, ids, upkeep })
    }
}
