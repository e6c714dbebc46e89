//! A little administration: what tests and scenarios need.

use std::{sync::Arc, time::Duration};

use host::{Host, task::TaskGroup};
use message::{OffsetMessageId, QueueOffset, StoredMessage, TEMPLATE_TOPIC};
use remoting::{
    CreateTopicRequestHeader, NoHeader, Payload, QueryMessageRequestHeader, Request, ResponseCode,
    ViewMessageRequestHeader, body::TopicRouteData,
};

use crate::{
    config::ClientConfig,
    core::{ClientCore, Role},
    error::ClientError,
    queue::MessageQueue,
};

/// For creating a topic.
const CREATE_TIMEOUT: Duration = Duration::from_secs(5);

/// A topic to be created or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSpec {
    /// Its name.
    pub name: String,
    /// Queues that give messages, on each broker.
    pub read_queues: u32,
    /// Queues that take messages, on each broker.
    pub write_queues: u32,
    /// Whether producers may send to it; without that they go elsewhere, and it gives what it has.
    pub writable: bool,
    /// Whether producers rely on the order of its queues.
    pub order: bool,
}

impl TopicSpec {
    /// A topic with as many queues to read as to write, which producers may send to.
    pub fn new(name: impl Into<String>, queues: u32) -> TopicSpec {
        TopicSpec { name: name.into(), read_queues: queues, write_queues: queues, writable: true, order: false }
    }
}

/// Asks and changes what brokers hold.
#[derive(Debug)]
pub struct Admin {
    core: Arc<ClientCore>,
    /// Routes.
    upkeep: TaskGroup,
}

impl Admin {
    /// Starts an administration client. Name servers and brokers need not be there yet.
    ///
    /// # Errors
    /// Whatever the start of a client reports.
    ///
    /// # Panics
    /// Outside a node; see [`Host::current`].
    pub async fn connect(config: ClientConfig) -> Result<Admin, ClientError> {
        let (core, upkeep) = ClientCore::start(&Host::current(), config, Role::Admin).await?;
        Ok(Admin { core, upkeep })
    }

    /// Creates or changes a topic on the broker at `addr`, a master.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for an impossible name; the broker's refusal.
    pub async fn create_topic_at(&self, addr: &str, spec: &TopicSpec) -> Result<(), ClientError> {
        message::validate_topic(&spec.name).map_err(|error| ClientError::Invalid(error.to_string()))?;
        let count = |queues: u32| i32::try_from(queues).unwrap_or(i32::MAX);
        let header = CreateTopicRequestHeader {
            topic: spec.name.clone(),
            default_topic: TEMPLATE_TOPIC.to_owned(),
            read_queue_nums: count(spec.read_queues),
            write_queue_nums: count(spec.write_queues),
            perm: if spec.writable { 6 } else { 4 },
            topic_filter_type: "SINGLE_TAG".to_owned(),
            topic_sys_flag: Some(0),
            order: spec.order,
            attributes: None,
            force: None,
        };
        let request = Request::UpdateAndCreateTopic(header);
        self.core.ask(addr, request, Payload::EMPTY, CREATE_TIMEOUT).await.map(drop)
    }

    /// Asks the broker at `addr` to delete the log files that have expired, whatever the hour. It answers at once, and
    /// deletes afterwards.
    ///
    /// # Errors
    /// The broker's refusal.
    pub async fn delete_expired_at(&self, addr: &str) -> Result<(), ClientError> {
        let request = Request::DeleteExpiredCommitLog(NoHeader);
        self.core.ask(addr, request, Payload::EMPTY, self.core.timing().request).await.map(drop)
    }

    /// Creates or changes a topic on every master that the name servers know, one after the other.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] if no broker is known; the first broker that refuses.
    pub async fn create_topic(&self, spec: &TopicSpec) -> Result<(), ClientError> {
        let masters = self.core.masters().await?;
        if masters.is_empty() {
            return Err(ClientError::NoRoute { topic: spec.name.as_str().into() });
        }
        for addr in masters {
            self.create_topic_at(&addr, spec).await?;
        }
        Ok(())
    }

    /// The route of a topic as a name server knows it now.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] if none knows it.
    pub async fn route(&self, topic: &str) -> Result<TopicRouteData, ClientError> {
        self.core.fresh_route(&topic.into()).await
    }

    /// The first offset of a queue that is still there.
    ///
    /// # Errors
    /// Those of asking its broker.
    pub async fn min_offset(&self, queue: &MessageQueue) -> Result<QueueOffset, ClientError> {
        self.core.min_offset(queue).await
    }

    /// One above the last offset of a queue.
    ///
    /// # Errors
    /// Those of asking its broker.
    pub async fn max_offset(&self, queue: &MessageQueue) -> Result<QueueOffset, ClientError> {
        self.core.max_offset(queue).await
    }

    /// The offset that a group has committed for a queue at its master, `None` if it has none.
    ///
    /// # Errors
    /// Those of asking its master, or that there is none.
    pub async fn consumer_offset(&self, group: &str, queue: &MessageQueue) -> Result<Option<QueueOffset>, ClientError> {
        self.core.query_offset_of_master(group, queue).await.map(|stored| stored.offset)
    }

    /// The message that an offset message id stands for.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if the id is none; the broker's refusal if it holds no message there.
    pub async fn view_message(&self, topic: &str, offset_message_id: &str) -> Result<StoredMessage, ClientError> {
        let id = OffsetMessageId::parse(offset_message_id).map_err(|error| ClientError::Invalid(error.to_string()))?;
        let addr = id.store_host.to_string();
        let header = ViewMessageRequestHeader {
            topic: Some(topic.to_owned()),
            offset: i64::try_from(id.phy.0).unwrap_or(i64::MAX),
        };
        let timeout = self.core.timing().request;
        let answer = self.core.ask(&addr, Request::ViewMessageById(header), Payload::EMPTY, timeout).await?;
        StoredMessage::decode(&mut answer.body.into_bytes())
            .map_err(|error| ClientError::Codec { addr, reason: error.to_string() })
    }

    /// Messages of a topic that have a unique id or a word of `KEYS`, as the masters of the topic find them, by the time
    /// of their storage. Each master gives `max_count` at most, its latest.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`]; the first master that refuses for another reason than that it has none.
    pub async fn query_message(
        &self,
        topic: &str,
        key: &str,
        max_count: u32,
    ) -> Result<Vec<StoredMessage>, ClientError> {
        let route = self.route(topic).await?;
        let mut found = Vec::new();
        for addr in route.broker_datas.iter().filter_map(|broker| broker.broker_addrs.get(&0)) {
            let header = QueryMessageRequestHeader {
                topic: topic.to_owned(),
                key: key.to_owned(),
                max_num: i32::try_from(max_count).unwrap_or(i32::MAX),
                begin_timestamp: 0,
                end_timestamp: i64::MAX,
                unique_key_query: None,
            };
            let timeout = self.core.timing().request;
            match self.core.ask(addr, Request::QueryMessage(header), Payload::EMPTY, timeout).await {
                Ok(answer) => found.extend(
                    StoredMessage::decode_all(answer.body.into_bytes())
                        .map_err(|error| ClientError::Codec { addr: addr.to_string(), reason: error.to_string() })?,
                ),
                Err(ClientError::Broker { code: ResponseCode::QUERY_NOT_FOUND, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // Brokers may give other messages whose keys have the same hash.
        found.retain(|one| {
            one.message.unique_id() == Some(key)
                || one.message.keys().is_some_and(|keys| keys.split(' ').any(|one| one == key))
        });
        found.sort_by_key(|message| message.store_ms);
        Ok(found)
    }

    /// Ends. None of its tasks is left afterwards.
    pub async fn shutdown(self) {
        self.upkeep.shutdown().await;
        self.core.close().await;
    }
}
