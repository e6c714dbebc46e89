//! Sends: one message or a batch, checked, completed and appended.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use host::{Host, rand::Rng};
use message::{
    Draft, NameError, OffsetMessageId, PhyOffset, RETRY_PREFIX, SCHEDULE_TOPIC, SysFlag, TEMPLATE_TOPIC, UniqueIds,
    decode_batch, dlq_topic, property, validate_topic,
};
use remoting::{
    Reply, Response, ResponseCode, SendFailureResponseHeader, SendMessageRequestHeader, SendMessageResponseHeader,
    Version,
};
use store::{Put, PutError, Store};

use crate::{
    config::BrokerConfig,
    failure,
    groups::Groups,
    identity::Identity,
    queue_locks::QueueLocks,
    replication::{Confirmation, Confirms},
    send::properties::{BrokerProperties, SentProperties},
    topics::{Derived, TopicShape, Topics},
};

pub(crate) mod properties;

/// Topics that only the broker itself writes. Source: the reference's `TopicValidator`.
const NOT_SENDABLE: [&str; 6] = [
    SCHEDULE_TOPIC,
    message::TRANS_HALF_TOPIC,
    message::TRANS_OP_HALF_TOPIC,
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
];

/// Longest topic of a batch, whatever its kind.
const BATCH_TOPIC_MAX_BYTES: usize = 127;

/// Most bytes of the properties of one message.
const PROPERTIES_MAX_BYTES: usize = i16::MAX as usize;

/// Takes sends. Owns the ids and the chance that a send may need; the tables belong to the broker.
pub(crate) struct Sends {
    pub(crate) host: Host,
    pub(crate) config: Arc<BrokerConfig>,
    pub(crate) store: Arc<Store>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) locks: Arc<QueueLocks>,
    pub(crate) confirms: Arc<Confirms>,
    pub(crate) properties: BrokerProperties,
    /// What every answer says of this broker.
    pub(crate) marks: SendFailureResponseHeader,
    /// Whose address stands in records and ids.
    pub(crate) identity: Arc<Identity>,
    pub(crate) unique_ids: UniqueIds,
    /// Chooses queues. Leaf lock: nothing else is locked while it is held.
    pub(crate) rng: Mutex<Rng>,
}

/// Who sends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) address: SocketAddr,
    pub(crate) version: Version,
}

/// A message that is ready to be appended.
#[derive(Debug)]
struct Ready {
    topic: String,
    queue: u32,
    /// What the sender is told; for a delayed message this is not the queue that it waits in.
    told_queue: u32,
    flag: i32,
    sys_flag: SysFlag,
    born_ms: i64,
    born_host: SocketAddr,
    store_host: SocketAddr,
    reconsume_times: i32,
    body: Bytes,
    properties: String,
    unique_id: String,
    waits: bool,
}

/// Messages of one batch that are ready to be appended; the items lie in the body.
#[derive(Debug)]
struct ReadyBatch {
    header: SendMessageRequestHeader,
    queue: u32,
    sys_flag: SysFlag,
    born_host: SocketAddr,
    store_host: SocketAddr,
    body: Bytes,
    waits: bool,
}

/// A topic that may be written, and the change that must be in its file first.
struct Target {
    shape: TopicShape,
    queue: u32,
}

impl Sends {
    /// Takes a send of either form. An ordinary send under asynchronous flushing is answered at once.
    pub(crate) fn send(self: &Arc<Self>, header: SendMessageRequestHeader, body: Bytes, sender: Sender) -> Reply {
        if host::buggify!("broker.send-busy") {
            return Reply::Now(self.refuse(Response::failure(ResponseCode::SYSTEM_BUSY, "[REJECTREQUEST] busy")));
        }
        let is_batch = header.batch.unwrap_or(false);
        let result = self.check(&header, &body).and_then(|target| {
            if is_batch {
                self.send_batch(header, body, target, sender)
            } else {
                self.send_one(header, body, target, sender)
            }
        });
        result.unwrap_or_else(|refused| Reply::Now(self.refuse(refused)))
    }

    fn send_one(
        self: &Arc<Self>,
        header: SendMessageRequestHeader,
        body: Bytes,
        target: Target,
        sender: Sender,
    ) -> Result<Reply, Response> {
        let (ready, created) = self.complete(header, body, target, sender)?;
        if self.topics.is_saved(created) {
            match self.store.put(&ready.draft()) {
                Ok(put) if host::mutant!("stored-twice") && put.queue_offset.0 % 16 == 7 => {
                    let _ = self.store.put(&ready.draft());
                    return Ok(self.stored(ready, put));
                }
                Ok(put) => return Ok(self.stored(ready, put)),
                Err(PutError::FileNotReady) => {}
                Err(error) => return Err(failure::put(&error)),
            }
        }
        let this = Arc::clone(self);
        Ok(Reply::later(async move {
            if let Err(error) = this.topics.saved(created).await {
                return this.refuse(failure::save(&error));
            }
            match this.store.put_when_ready(&ready.draft()).await {
                Ok(put) => this.stored_later(ready, put).await,
                Err(error) => this.refuse(failure::put(&error)),
            }
        }))
    }

    /// The answer to a message that was appended: at once if there is nothing to wait for.
    fn stored(self: &Arc<Self>, ready: Ready, put: Put) -> Reply {
        let confirmation = ready.waits.then(|| self.confirms.confirm(put.end()));
        match confirmation.filter(|confirmation| !confirmation.is_done()) {
            None => Reply::Now(self.success(ready, put)),
            Some(confirmation) => {
                let response = self.success(ready, put);
                Reply::later(async move { confirmed(response, confirmation).await })
            }
        }
    }

    /// The answer to a message that was appended, when it is as safe as its sender wants.
    async fn stored_later(&self, ready: Ready, put: Put) -> Response {
        let confirmation = ready.waits.then(|| self.confirms.confirm(put.end()));
        let response = self.success(ready, put);
        match confirmation {
            None => response,
            Some(confirmation) => confirmed(response, confirmation).await,
        }
    }

    fn success(&self, ready: Ready, put: Put) -> Response {
        if host::mutant!("refuse-after-store") && put.queue_offset.0 % 16 == 15 {
            return self.refuse(Response::failure(ResponseCode::MESSAGE_ILLEGAL, "the message is too long"));
        }
        self.accept(&SendMessageResponseHeader {
            msg_id: OffsetMessageId { store_host: self.identity.address(), phy: put.phy }.to_string(),
            queue_id: wire(ready.told_queue),
            queue_offset: i64::try_from(put.queue_offset.0).expect("a queue offset fits 63 bits"),
            transaction_id: Some(ready.unique_id),
            batch_uniq_id: None,
            recall_handle: None,
            msg_region: None,
            trace_on: None,
        })
    }

    fn send_batch(
        self: &Arc<Self>,
        header: SendMessageRequestHeader,
        body: Bytes,
        target: Target,
        sender: Sender,
    ) -> Result<Reply, Response> {
        let illegal = |remark: String| Response::failure(ResponseCode::MESSAGE_ILLEGAL, remark);
        if header.topic.len() > BATCH_TOPIC_MAX_BYTES {
            return Err(illegal(format!("message topic length too long {}", header.topic.len())));
        }
        if header.topic.starts_with(RETRY_PREFIX) {
            return Err(illegal(format!("batch request does not support retry group {}", header.topic)));
        }
        let sent = self.properties.apply(header.properties.as_deref().unwrap_or_default());
        if sent.delay_level().is_some() || sent.is_timer {
            return Err(illegal("a batch cannot be delayed".to_owned()));
        }
        let created = target.shape.created;
        let ready = ReadyBatch {
            waits: sent.waits,
            queue: target.queue,
            sys_flag: sys_flag(&header, target.shape),
            born_host: sender.address,
            store_host: self.identity.address(),
            body,
            header,
        };
        let drafts = ready.drafts()?;
        if drafts.is_empty() {
            return Err(illegal("the batch is empty".to_owned()));
        }
        if self.topics.is_saved(created) {
            match self.store.put_batch(&drafts) {
                Ok(put) => {
                    let response = self.batch_success(ready.queue, &put.puts);
                    let confirmation = ready.waits.then(|| self.confirms.confirm(put.end()));
                    return Ok(match confirmation.filter(|confirmation| !confirmation.is_done()) {
                        None => Reply::Now(response),
                        Some(confirmation) => Reply::later(async move { confirmed(response, confirmation).await }),
                    });
                }
                Err(PutError::FileNotReady) => {}
                Err(error) => return Err(failure::put(&error)),
            }
        }
        drop(drafts);
        let this = Arc::clone(self);
        Ok(Reply::later(async move { this.send_batch_later(ready, created).await }))
    }

    /// The way of a batch that has to wait, for its new topic or for the next log file.
    async fn send_batch_later(&self, ready: ReadyBatch, created: u64) -> Response {
        if let Err(error) = self.topics.saved(created).await {
            return self.refuse(failure::save(&error));
        }
        let put = match ready.drafts() {
            Ok(drafts) => self.store.put_batch_when_ready(&drafts).await.map_err(|error| failure::put(&error)),
            Err(refused) => Err(refused),
        };
        let put = match put {
            Ok(put) => put,
            Err(refused) => return self.refuse(refused),
        };
        let response = self.batch_success(ready.queue, &put.puts);
        if ready.waits { confirmed(response, self.confirms.confirm(put.end())).await } else { response }
    }

    fn batch_success(&self, queue: u32, puts: &[Put]) -> Response {
        let ids: Vec<String> = puts
            .iter()
            .map(|put| OffsetMessageId { store_host: self.identity.address(), phy: put.phy }.to_string())
            .collect();
        let first = puts.first().expect("a batch that was stored has a message");
        self.accept(&SendMessageResponseHeader {
            msg_id: ids.join(","),
            queue_id: wire(queue),
            queue_offset: i64::try_from(first.queue_offset.0).expect("a queue offset fits 63 bits"),
            transaction_id: None,
            batch_uniq_id: None,
            recall_handle: None,
            msg_region: None,
            trace_on: None,
        })
    }

    /// What is checked of every send before its topic is looked at or made. Source: `spec/protocol.md` 6.1.
    fn check(&self, header: &SendMessageRequestHeader, body: &Bytes) -> Result<Target, Response> {
        let refuse = |code, remark: String| Err(Response::failure(code, remark));
        let opens_ms = self.config.accept_sends_from_ms;
        if opens_ms > 0 && self.host.wall_ms() < i64::try_from(opens_ms).unwrap_or(i64::MAX) {
            let remark = format!("broker unable to service, until, {opens_ms}");
            return refuse(ResponseCode::SYSTEM_ERROR, remark);
        }
        match validate_topic(&header.topic) {
            Ok(()) => {}
            Err(error @ NameError::TooLong { .. }) => return refuse(ResponseCode::MESSAGE_ILLEGAL, error.to_string()),
            Err(error) => return refuse(ResponseCode::INVALID_PARAMETER, error.to_string()),
        }
        if NOT_SENDABLE.contains(&header.topic.as_str()) {
            let remark = format!("Sending message to topic[{}] is forbidden.", header.topic);
            return refuse(ResponseCode::NO_PERMISSION, remark);
        }
        if body.is_empty() {
            return refuse(ResponseCode::SYSTEM_ERROR, "the message has no body".to_owned());
        }
        let limit = self.config.store.message_max_bytes;
        if body.len() > limit {
            let remark = format!("the body has {} bytes, at most {limit} are allowed", body.len());
            return refuse(ResponseCode::MESSAGE_ILLEGAL, remark);
        }
        let shape = self.topic_of(header)?;
        if !self.config.is_writable() && shape.is_ordered {
            let remark = format!("the broker[{}] sending message is forbidden", self.config.advertised_ip());
            return refuse(ResponseCode::NO_PERMISSION, remark);
        }
        let queues = shape.read_queues.max(shape.write_queues);
        let queue = match u32::try_from(header.queue_id) {
            Ok(queue) if queue >= queues => {
                let remark = format!("request queueId[{queue}] is illegal, topic {} has {queues}", header.topic);
                return refuse(ResponseCode::INVALID_PARAMETER, remark);
            }
            Ok(queue) => queue,
            Err(_) => self.choose_queue(shape.write_queues),
        };
        Ok(Target { shape, queue })
    }

    /// The topic of a send, made from its template if need be.
    fn topic_of(&self, header: &SendMessageRequestHeader) -> Result<TopicShape, Response> {
        if let Some(shape) = self.topics.shape(&header.topic) {
            return Ok(shape);
        }
        let is_retry = header.topic.starts_with(RETRY_PREFIX);
        let sys_flag = match (header.unit_mode.unwrap_or(false), is_retry) {
            (false, _) => 0,
            (true, true) => 2,
            (true, false) => 1,
        };
        let now_ms = self.host.wall_ms();
        let wanted = u32::try_from(header.default_topic_queue_nums).unwrap_or(0);
        let derived = Derived { template: &header.default_topic, queues: wanted, sys_flag };
        let is_template_open = self.config.auto_create_topic || header.default_topic != TEMPLATE_TOPIC;
        if is_template_open && let Some(shape) = self.topics.derive(&header.topic, derived, now_ms) {
            return Ok(shape);
        }
        if is_retry {
            return Ok(self.topics.make(&header.topic, 1, sys_flag, now_ms));
        }
        let remark = format!("topic[{}] not exist, apply first please!", header.topic);
        Err(Response::failure(ResponseCode::TOPIC_NOT_EXIST, remark))
    }

    /// Turns a checked send into what is stored: properties completed, retry and delay applied. Also gives the change
    /// of the topic table that must be saved first.
    fn complete(
        &self,
        header: SendMessageRequestHeader,
        body: Bytes,
        target: Target,
        sender: Sender,
    ) -> Result<(Ready, u64), Response> {
        let sent = header.properties.as_deref().unwrap_or_default();
        if sent.len() > PROPERTIES_MAX_BYTES {
            let remark =
                format!("the properties have {} bytes, at most {PROPERTIES_MAX_BYTES} are allowed", sent.len());
            return Err(Response::failure(ResponseCode::MESSAGE_ILLEGAL, remark));
        }
        let sent = self.properties.apply(sent);
        self.refuse_unsupported(&sent, &header)?;
        let delay = sent.delay_level();
        let waits = sent.waits;
        let is_dead = self.is_dead(&header, sender)?;
        let unique_id = sent.unique_id.map_or_else(|| self.unique_ids.next(self.host.wall_ms()), str::to_owned);
        let mut properties = sent.stored;
        if sent.unique_id.is_none() {
            properties::push(&mut properties, property::UNIQUE_ID, &unique_id);
        }
        let mut ready = Ready {
            queue: target.queue,
            told_queue: target.queue,
            flag: header.flag,
            sys_flag: sys_flag(&header, target.shape),
            born_ms: header.born_timestamp,
            born_host: sender.address,
            store_host: self.identity.address(),
            reconsume_times: header.reconsume_times.unwrap_or(0),
            topic: header.topic,
            body,
            properties,
            unique_id,
            waits,
        };
        let mut created = target.shape.created;
        if is_dead {
            let group = ready.topic.trim_start_matches(RETRY_PREFIX).to_owned();
            ready.topic = dlq_topic(&group);
            (ready.queue, ready.told_queue) = (0, 0);
            ready.properties = properties::with(&ready.properties, &[(property::DELAY_LEVEL, None)]);
            created = created.max(self.topics.make(&ready.topic, 1, 0, self.host.wall_ms()).created);
        } else if let Some(level) = delay {
            let delayed = self.delayed(&ready.topic, ready.queue, &ready.properties, level);
            (ready.topic, ready.queue, ready.properties) =
                (SCHEDULE_TOPIC.to_owned(), delayed.queue, delayed.properties);
        }
        Ok((ready, created))
    }

    /// Kinds of messages that this broker does not keep.
    fn refuse_unsupported(&self, sent: &SentProperties<'_>, header: &SendMessageRequestHeader) -> Result<(), Response> {
        // A consumer that sends back itself leaves the mark of the transaction in the properties.
        let is_sent_back = header.reconsume_times.unwrap_or(0) > 0 && sent.delay_level().is_some();
        if sent.is_transaction && !is_sent_back {
            let remark =
                format!("the broker[{}] sending transaction message is forbidden", self.config.advertised_ip());
            return Err(Response::failure(ResponseCode::NO_PERMISSION, remark));
        }
        if sent.is_timer {
            let remark = "accurate timer message is not enabled, timerWheelEnable is false";
            return Err(Response::failure(ResponseCode::SYSTEM_ERROR, remark));
        }
        Ok(())
    }

    /// Whether a message that a consumer sends to its retry topic goes to the dead letters instead.
    ///
    /// It does while any queue of the group is locked: an ordered consumer sends here what it gave up, with a count that
    /// has just reached the most.
    fn is_dead(&self, header: &SendMessageRequestHeader, sender: Sender) -> Result<bool, Response> {
        let Some(group) = header.topic.strip_prefix(RETRY_PREFIX) else { return Ok(false) };
        let Some(known) = self.groups.get_or_create(group, self.host.wall_ms()) else {
            let remark = format!("subscription group not exist, {group}");
            return Err(Response::failure(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark));
        };
        let most = header
            .max_reconsume_times
            .filter(|_| sender.version >= Version::V3_4_9)
            .unwrap_or(known.config.retry_max_times);
        let is_locked = self.locks.any(group, self.host.now());
        Ok(is_locked || header.reconsume_times.unwrap_or(0) > most)
    }

    /// Where and how a message waits for a delay level.
    fn delayed(&self, topic: &str, queue: u32, stored: &str, level: u32) -> crate::delayed::Waiting {
        crate::delayed::waiting(topic, queue, stored, level.min(self.max_level()))
    }

    fn max_level(&self) -> u32 {
        u32::try_from(self.config.store.delay_levels.max_level()).unwrap_or(u32::MAX)
    }

    /// Any queue of `count`; 0 if there is none.
    fn choose_queue(&self, count: u32) -> u32 {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        u32::try_from(rng.below(u64::from(count.max(1)))).expect("below a u32")
    }

    fn accept(&self, header: &SendMessageResponseHeader) -> Response {
        Response::success().with_header(header).with_header(&self.marks)
    }

    /// Region and trace switch stand in failures too.
    fn refuse(&self, refused: Response) -> Response {
        refused.with_header(&self.marks)
    }
}

/// The answer, with the code of what is missing.
async fn confirmed(response: Response, confirmation: Confirmation) -> Response {
    match confirmation.outcome().await {
        None => response,
        Some(code) => response.with_code(code),
    }
}

impl Ready {
    fn draft(&self) -> Draft<'_> {
        Draft {
            topic: &self.topic,
            queue_id: self.queue,
            flag: self.flag,
            sys_flag: self.sys_flag,
            born_ms: self.born_ms,
            born_host: self.born_host,
            store_host: self.store_host,
            reconsume_times: self.reconsume_times,
            prepared_phy: PhyOffset(0),
            body: &self.body,
            properties: &self.properties,
        }
    }
}

impl ReadyBatch {
    /// One draft per item; properties as they are.
    fn drafts(&self) -> Result<Vec<Draft<'_>>, Response> {
        let items = decode_batch(&self.body)
            .map_err(|error| Response::failure(ResponseCode::MESSAGE_ILLEGAL, error.to_string()))?;
        let mut drafts = Vec::with_capacity(items.len());
        for item in items {
            drafts.push(Draft {
                topic: &self.header.topic,
                queue_id: self.queue,
                flag: item.flag,
                sys_flag: self.sys_flag,
                born_ms: self.header.born_timestamp,
                born_host: self.born_host,
                store_host: self.store_host,
                reconsume_times: self.header.reconsume_times.unwrap_or(0),
                prepared_phy: PhyOffset(0),
                body: item.body,
                properties: item.properties,
            });
        }
        Ok(drafts)
    }
}

fn sys_flag(header: &SendMessageRequestHeader, shape: TopicShape) -> SysFlag {
    SysFlag(if shape.is_multi_tag { header.sys_flag | SysFlag::MULTI_TAGS } else { header.sys_flag })
}

/// A queue id as headers carry it.
pub(crate) fn wire(queue: u32) -> i32 {
    i32::try_from(queue).expect("a topic has fewer queues than that")
}
