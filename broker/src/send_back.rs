//! Messages that a consumer could not handle and gives back.

use std::sync::{Arc, Mutex, PoisonError};

use host::{Host, rand::Rng};
use message::{Draft, PhyOffset, SCHEDULE_TOPIC, StoredMessage, dlq_topic, property, retry_topic};
use remoting::{
    ConsumerSendMsgBackRequestHeader, Reply, Response, ResponseCode, Version, body::SubscriptionGroupConfig,
};
use store::Store;

use crate::{
    config::BrokerConfig, delayed, failure, groups::Groups, identity::Identity, replication::Confirms,
    send::properties, topics::Topics,
};

/// The level at which the first retry waits, 10 seconds by default. Source: `spec/protocol.md` 7.5.
const FIRST_RETRY_LEVEL: i32 = 3;

/// Stores copies for the retry topic of a group, or for its dead letters.
pub(crate) struct SendBacks {
    pub(crate) host: Host,
    pub(crate) config: Arc<BrokerConfig>,
    pub(crate) store: Arc<Store>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) confirms: Arc<Confirms>,
    /// Chooses queues. Leaf lock: nothing else is locked while it is held.
    pub(crate) rng: Mutex<Rng>,
}

/// Where a copy goes.
struct Destination {
    topic: String,
    queue: u32,
    /// The level it waits for first; `None` for dead letters.
    level: Option<u32>,
    /// The change of the topic table that must be saved first.
    created: u64,
}

impl SendBacks {
    /// Answers when the copy is as durable as the store's settings ask for: the consumer will count the message as
    /// done, so the copy is all that is left of it.
    pub(crate) fn send_back(self: &Arc<Self>, header: &ConsumerSendMsgBackRequestHeader, version: Version) -> Reply {
        let (message, destination) = match self.check(header, version) {
            Ok(Some(checked)) => checked,
            // A group without retry queues wants no retries.
            Ok(None) => return Response::success().into(),
            Err(refused) => return refused.into(),
        };
        let this = Arc::clone(self);
        Reply::later(async move { this.store_copy(&message, destination).await })
    }

    async fn store_copy(&self, message: &StoredMessage, destination: Destination) -> Response {
        if let Err(error) = self.topics.saved(destination.created).await {
            return failure::save(&error);
        }
        if destination.level.is_none() && host::mutant!("dead-letters-dropped") {
            return Response::success();
        }
        let (topic, queue_id, properties) = copy(message, &destination);
        let draft = Draft {
            topic: &topic,
            queue_id,
            store_host: self.identity.address(),
            reconsume_times: message.reconsume_times.saturating_add(i32::from(!host::mutant!("retry-not-counted"))),
            prepared_phy: PhyOffset(0),
            properties: &properties,
            ..message.draft()
        };
        let put = match self.store.put_when_ready(&draft).await {
            Ok(put) => put,
            // The client falls back to a send for whatever is not a success.
            Err(error) => return failure::put(&error).with_code(ResponseCode::SYSTEM_ERROR),
        };
        if destination.level.is_none() {
            host::point!("broker.dead-letter", put.phy.0);
        }
        match self.confirms.confirm(put.end()).outcome().await {
            None => Response::success(),
            Some(code) => {
                let remark = "the copy was stored, but is not as safe as the settings ask for";
                Response::failure(ResponseCode::SYSTEM_ERROR, format!("{remark} (code {})", code.0))
            }
        }
    }

    /// Source: the reference's `AbstractSendMessageProcessor.consumerSendMsgBack`.
    fn check(
        &self,
        header: &ConsumerSendMsgBackRequestHeader,
        version: Version,
    ) -> Result<Option<(StoredMessage, Destination)>, Response> {
        let name = &header.group;
        let now_ms = self.host.wall_ms();
        let Some(group) = self.groups.get_or_create(name, now_ms) else {
            let remark = format!("subscription group not exist, {name}");
            return Err(Response::failure(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark));
        };
        if !self.config.is_writable() {
            let remark = format!("the broker[{}] sending message is forbidden", self.config.advertised_ip());
            return Err(Response::failure(ResponseCode::NO_PERMISSION, remark));
        }
        let Ok(retry_queues @ 1..) = u32::try_from(group.config.retry_queue_nums) else { return Ok(None) };
        let message = self.look_up(header.offset)?;
        let times = message.reconsume_times;
        if header.delay_level < 0 || times >= most_times(header, version, &group.config) {
            let topic = dlq_topic(name);
            let created = self.topics.make(&topic, 1, 0, now_ms).created;
            return Ok(Some((message, Destination { topic, queue: 0, level: None, created })));
        }
        let level = if header.delay_level == 0 { FIRST_RETRY_LEVEL.saturating_add(times) } else { header.delay_level };
        let max = self.config.store.delay_levels.max_level();
        let level = u32::try_from(level).unwrap_or(1).clamp(1, u32::try_from(max).unwrap_or(u32::MAX));
        let topic = retry_topic(name);
        let sys_flag = if header.unit_mode.unwrap_or(false) { 2 } else { 0 };
        let created = self.topics.make(&topic, retry_queues, sys_flag, now_ms).created;
        let queue = {
            let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
            u32::try_from(rng.below(u64::from(retry_queues))).expect("below a u32")
        };
        Ok(Some((message, Destination { topic, queue, level: Some(level), created })))
    }

    fn look_up(&self, offset: i64) -> Result<StoredMessage, Response> {
        let record = u64::try_from(offset).ok().and_then(|phy| self.store.record_at(PhyOffset(phy)));
        let message = record.and_then(|mut record| StoredMessage::decode(&mut record).ok());
        // A copy would get a CRC of its own, and hide that the body is wrong.
        let is_whole = |message: &StoredMessage| message::body_crc(&message.message.body) == message.body_crc;
        message.filter(is_whole).ok_or_else(|| {
            Response::failure(ResponseCode::SYSTEM_ERROR, format!("look message by offset failed, {offset}"))
        })
    }
}

/// How often a message may be given back before it is a dead letter.
fn most_times(header: &ConsumerSendMsgBackRequestHeader, version: Version, group: &SubscriptionGroupConfig) -> i32 {
    header.max_reconsume_times.filter(|_| version >= Version::V3_4_9).unwrap_or(group.retry_max_times)
}

/// Topic, queue and properties of the copy.
fn copy(message: &StoredMessage, to: &Destination) -> (String, u32, String) {
    let own = &message.message.properties;
    let origin =
        own.get(property::ORIGIN_MESSAGE_ID).map_or_else(|| message.offset_message_id().to_string(), str::to_owned);
    let retried = own.get(property::RETRY_TOPIC).unwrap_or(&message.message.topic);
    let changes = [
        (property::RETRY_TOPIC, Some(retried)),
        (property::ORIGIN_MESSAGE_ID, Some(origin.as_str())),
        (property::DELAY_LEVEL, None),
    ];
    let properties = properties::with(own.as_encoded(), &changes);
    match to.level {
        None => (to.topic.clone(), to.queue, properties),
        Some(level) => {
            let waiting = delayed::waiting(&to.topic, to.queue, &properties, level);
            (SCHEDULE_TOPIC.to_owned(), waiting.queue, waiting.properties)
        }
    }
}
