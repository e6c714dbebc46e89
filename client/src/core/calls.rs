//! Requests to brokers and name servers, each as one typed call.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use message::{QueueOffset, SysFlag, TEMPLATE_TOPIC, property};
use remoting::{
    BoundaryType, ConsumerGroupRequestHeader, ConsumerOffsetNotFoundResponseHeader, ConsumerSendMsgBackRequestHeader,
    GetMaxOffsetRequestHeader, GetMinOffsetRequestHeader, GetRouteInfoRequestHeader, Header, LogEpoch, NoHeader,
    OffsetResponseHeader, Payload, PullMessageRequestHeader, PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader, QueryConsumerOffsetResponseHeader, Request, Response, ResponseCode,
    SearchOffsetRequestHeader, SendMessageRequestHeader, SendMessageResponseHeader, UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    body::{Body, ClusterInfo, ConsumerList, HeartbeatData, TopicRouteData},
};

use super::{ClientCore, MASTER, Role};
use crate::{
    consumer::listener::RetryDelay,
    error::ClientError,
    message_view::MessageView,
    producer::{SendReceipt, SendStatus},
    queue::{MessageQueue, Place},
};

/// How long a broker holds a pull that finds nothing.
const PULL_HOLD: Duration = Duration::from_secs(15);
/// For a pull with its answer; the broker may answer late by its sweep period.
const PULL_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes wanted by one pull.
const PULL_BYTES: i32 = 256 << 10;
/// For sending a message back.
const SEND_BACK_TIMEOUT: Duration = Duration::from_secs(5);
/// The group of sends that a consumer makes on its own.
const INNER_PRODUCER: &str = "CLIENT_INNER_PRODUCER";
/// Retries of a group that has no limit of its own.
const DEFAULT_MAX_RECONSUME_TIMES: u32 = 16;
/// Delay level of the first retry.
const FIRST_RETRY_LEVEL: u32 = 3;

/// Flags of a pull. Source: `spec/protocol.md` 7.1.
const PULL_COMMITS: i32 = 1;
const PULL_MAY_BE_HELD: i32 = 2;

/// A message, or a batch, on its way to one queue.
#[derive(Debug)]
pub(crate) struct SendCall<'a> {
    pub(crate) group: &'a str,
    pub(crate) queue: &'a MessageQueue,
    pub(crate) default_topic_queues: u32,
    pub(crate) body: Bytes,
    pub(crate) flag: i32,
    pub(crate) sys_flag: SysFlag,
    pub(crate) properties: &'a str,
    pub(crate) is_batch: bool,
    pub(crate) message_id: &'a str,
    pub(crate) born_ms: i64,
    /// Only for copies to a retry topic.
    pub(crate) reconsume: Option<Reconsume>,
}

/// How often a message failed, and how often it may.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reconsume {
    pub(crate) times: u32,
    pub(crate) max: u32,
}

/// A pull of one queue.
#[derive(Debug)]
pub(crate) struct PullCall<'a> {
    pub(crate) group: &'a str,
    pub(crate) queue: &'a MessageQueue,
    pub(crate) at: Place,
    pub(crate) max_messages: u32,
    /// An offset of the same log to commit on the way.
    pub(crate) commit: Option<QueueOffset>,
    pub(crate) subscription_version: i64,
    /// The broker that the last answer suggested.
    pub(crate) broker_id: u64,
}

/// What a pull brought.
#[derive(Debug)]
pub(crate) struct PullAnswer {
    pub(crate) outcome: PullOutcome,
    pub(crate) next: Place,
    pub(crate) max_offset: QueueOffset,
    pub(crate) suggested_broker: u64,
}

#[derive(Debug)]
pub(crate) enum PullOutcome {
    /// Records of messages, one behind the other.
    Found(Bytes),
    /// Nothing up to `next`, or nothing that the group wants.
    NothingNew,
    /// The position is outside the queue, or in a part of it that was lost; `next` is where to go on.
    OffsetIllegal,
}

/// What a broker has stored for a group.
#[derive(Debug)]
pub(crate) struct StoredOffset {
    /// `None` if the group never committed one.
    pub(crate) offset: Option<QueueOffset>,
    /// The log that it belongs to, if the broker tells.
    pub(crate) epoch: Option<LogEpoch>,
}

impl ClientCore {
    // ---- name servers ----

    /// The route of a topic, from one name server.
    pub(super) async fn route_from(
        &self,
        addr: &str,
        topic: &str,
        timeout: Duration,
    ) -> Result<TopicRouteData, ClientError> {
        let header = GetRouteInfoRequestHeader {
            topic: topic.to_owned(),
            accept_standard_json_only: None,
            zone_mode: None,
            zone_name: None,
        };
        let answer = self.ask(addr, Request::GetRouteInfoByTopic(header), Payload::EMPTY, timeout).await?;
        body_of(addr, answer)
    }

    /// The addresses of all masters that a name server knows, by broker name.
    pub(crate) async fn masters(&self) -> Result<Vec<String>, ClientError> {
        let mut last = ClientError::Deadline;
        for (_, addr) in self.name_servers.in_turn() {
            let request = Request::GetBrokerClusterInfo(NoHeader);
            match self.ask(addr, request, Payload::EMPTY, self.timing.request).await {
                Ok(answer) => {
                    let info: ClusterInfo = body_of(addr, answer)?;
                    let masters = info.broker_addr_table.into_values();
                    return Ok(masters.filter_map(|mut broker| broker.broker_addrs.remove(&0)).collect());
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    // ---- session ----

    pub(super) async fn heartbeat(&self, addr: &str, data: &HeartbeatData) -> Result<(), ClientError> {
        let body = Payload::from(data.encode());
        self.ask(addr, Request::HeartBeat(NoHeader), body, self.timing.request).await.map(drop)
    }

    pub(super) async fn unregister_at(&self, addr: &str) -> Result<(), ClientError> {
        let (producer_group, consumer_group) = match &self.role {
            Role::Producer { group } => (Some(group.to_string()), None),
            Role::Consumer(member) => (None, Some(member.settings.group.to_string())),
            Role::Admin => return Ok(()),
        };
        let header = UnregisterClientRequestHeader { client_id: self.id.clone(), producer_group, consumer_group };
        self.ask(addr, Request::UnregisterClient(header), Payload::EMPTY, self.timing.request).await.map(drop)
    }

    /// The members of a group as one broker of the topic knows them, chosen at random; and the name of that broker.
    pub(crate) async fn members(&self, group: &str, topic: &Arc<str>) -> Result<(Arc<str>, Vec<String>), ClientError> {
        let brokers = self.routes.brokers_of(topic);
        if brokers.is_empty() {
            return Err(ClientError::NoRoute { topic: Arc::clone(topic) });
        }
        let broker = Arc::clone(&brokers[self.draw_below(brokers.len())]);
        let missing = || ClientError::BrokerNotFound { broker: Arc::clone(&broker) };
        let (_, addr) = self.routes.master_or_any(&broker).ok_or_else(missing)?;
        let header = ConsumerGroupRequestHeader { consumer_group: group.to_owned() };
        let request = Request::GetConsumerListByGroup(header);
        let answer = self.ask(&addr, request, Payload::EMPTY, self.timing.request).await?;
        let list: ConsumerList = body_of(&addr, answer)?;
        Ok((broker, list.consumer_id_list))
    }

    // ---- sending ----

    /// Sends a message and waits until the broker has stored it.
    pub(crate) async fn send(&self, call: SendCall<'_>, timeout: Duration) -> Result<SendReceipt, ClientError> {
        let began = self.host.now();
        let looking = self.host.timeout(timeout, self.master(call.queue)).await;
        let addr = looking.unwrap_or(Err(ClientError::Deadline))?;
        let left = timeout.saturating_sub(self.host.now().since(began));
        let (queue, message_id) = (call.queue.clone(), call.message_id.to_owned());
        let (request, body) = send_request(call);
        let answer = self.rpc.invoke(&addr, request, body, left).await?;
        let status = match answer.code {
            ResponseCode::SUCCESS => SendStatus::SendOk,
            ResponseCode::FLUSH_DISK_TIMEOUT => SendStatus::FlushDiskTimeout,
            ResponseCode::FLUSH_SLAVE_TIMEOUT => SendStatus::FlushSlaveTimeout,
            ResponseCode::SLAVE_NOT_AVAILABLE => SendStatus::SlaveNotAvailable,
            _ => return Err(refusal(&addr, answer)),
        };
        let stored: SendMessageResponseHeader = header_of(&addr, &answer)?;
        let nonsense = |reason: &str| ClientError::Codec { addr: addr.clone(), reason: reason.to_owned() };
        Ok(SendReceipt {
            status,
            message_id,
            offset_message_id: stored.msg_id,
            queue: MessageQueue {
                id: u32::try_from(stored.queue_id).map_err(|_| nonsense("a queue below 0"))?,
                ..queue
            },
            queue_offset: offset(stored.queue_offset).ok_or_else(|| nonsense("a queue offset below 0"))?,
            transaction_id: stored.transaction_id,
            attempts: 1,
        })
    }

    /// Sends a message without waiting for an answer.
    pub(crate) async fn send_oneway(&self, call: SendCall<'_>) -> Result<(), ClientError> {
        let addr = self.master(call.queue).await?;
        let (request, body) = send_request(call);
        self.rpc.oneway(&addr, request, body)
    }

    // ---- consuming ----

    /// Pulls messages; a broker without any holds the request for a while.
    pub(crate) async fn pull(&self, call: PullCall<'_>) -> Result<PullAnswer, ClientError> {
        let queue = call.queue;
        let (id, addr) = match self.routes.to_pull_from(&queue.broker, call.broker_id) {
            Some(found) => found,
            // Asking for the master asks for the route if the broker is not known.
            None => (MASTER, self.master(queue).await?),
        };
        // A slave's table of offsets is a copy: commits go to the master.
        let commit = call.commit.filter(|_| id == MASTER);
        let header = PullMessageRequestHeader {
            consumer_group: call.group.to_owned(),
            topic: queue.topic.to_string(),
            queue_id: wire_id(queue),
            queue_offset: wire_offset(call.at.offset),
            max_msg_nums: i32::try_from(call.max_messages).unwrap_or(i32::MAX),
            sys_flag: PULL_MAY_BE_HELD | if commit.is_some() { PULL_COMMITS } else { 0 },
            commit_offset: commit.map_or(0, wire_offset),
            suspend_timeout_millis: PULL_HOLD.as_millis() as i64,
            subscription: None,
            sub_version: call.subscription_version,
            expression_type: Some("TAG".to_owned()),
            max_msg_bytes: Some(PULL_BYTES),
            request_source: None,
            proxy_forward_client_id: None,
            broker_name: Some(queue.broker.to_string()),
            sf_log_epoch: call.at.epoch,
        };
        let answer = self.rpc.invoke(&addr, Request::PullMessage(header), Payload::EMPTY, PULL_TIMEOUT).await?;
        let code = answer.code;
        let is_pull_status = [
            ResponseCode::SUCCESS,
            ResponseCode::PULL_NOT_FOUND,
            ResponseCode::PULL_RETRY_IMMEDIATELY,
            ResponseCode::PULL_OFFSET_MOVED,
        ]
        .contains(&code);
        if !is_pull_status {
            return Err(refusal(&addr, answer));
        }
        pull_answer(&addr, code, answer)
    }

    /// The offset that the master has stored for a group, or a slave if there is no master.
    pub(crate) async fn query_offset(&self, group: &str, queue: &MessageQueue) -> Result<StoredOffset, ClientError> {
        let addr = match self.master(queue).await {
            Ok(addr) => addr,
            Err(error) => self.routes.master_or_any(&queue.broker).map(|(_, addr)| addr).ok_or(error)?,
        };
        self.query_offset_at(addr, group, queue).await
    }

    /// The offset that the master has stored for a group. Those of a slave are older.
    pub(crate) async fn query_offset_of_master(
        &self,
        group: &str,
        queue: &MessageQueue,
    ) -> Result<StoredOffset, ClientError> {
        self.query_offset_at(self.master(queue).await?, group, queue).await
    }

    async fn query_offset_at(
        &self,
        addr: String,
        group: &str,
        queue: &MessageQueue,
    ) -> Result<StoredOffset, ClientError> {
        let header = QueryConsumerOffsetRequestHeader {
            consumer_group: group.to_owned(),
            topic: queue.topic.to_string(),
            queue_id: wire_id(queue),
            set_zero_if_not_found: None,
            broker_name: Some(queue.broker.to_string()),
        };
        let request = Request::QueryConsumerOffset(header);
        let answer = self.rpc.invoke(&addr, request, Payload::EMPTY, self.timing.request).await?;
        match answer.code {
            ResponseCode::SUCCESS => {
                let header: QueryConsumerOffsetResponseHeader = header_of(&addr, &answer)?;
                Ok(StoredOffset { offset: offset(header.offset), epoch: header.sf_log_epoch })
            }
            ResponseCode::QUERY_NOT_FOUND => {
                let header: ConsumerOffsetNotFoundResponseHeader = header_of(&addr, &answer)?;
                Ok(StoredOffset { offset: None, epoch: header.sf_log_epoch })
            }
            _ => Err(refusal(&addr, answer)),
        }
    }

    /// Stores the offset of a group and waits until the broker has it. A broker that does not know the log it belongs to
    /// any more refuses it with [`ResponseCode::PULL_OFFSET_MOVED`].
    pub(crate) async fn commit_offset(
        &self,
        group: &str,
        queue: &MessageQueue,
        place: Place,
        timeout: Duration,
    ) -> Result<(), ClientError> {
        let missing = || ClientError::BrokerNotFound { broker: Arc::clone(&queue.broker) };
        let (_, addr) = self.routes.master_or_any(&queue.broker).ok_or_else(missing)?;
        let header = UpdateConsumerOffsetRequestHeader {
            consumer_group: group.to_owned(),
            topic: queue.topic.to_string(),
            queue_id: Some(wire_id(queue)),
            commit_offset: Some(wire_offset(place.offset)),
            broker_name: Some(queue.broker.to_string()),
            sf_log_epoch: place.epoch,
        };
        self.ask(&addr, Request::UpdateConsumerOffset(header), Payload::EMPTY, timeout).await.map(drop)
    }

    /// One above the last offset of a queue.
    pub(crate) async fn max_offset(&self, queue: &MessageQueue) -> Result<QueueOffset, ClientError> {
        let header = GetMaxOffsetRequestHeader {
            topic: queue.topic.to_string(),
            queue_id: wire_id(queue),
            committed: None,
            broker_name: Some(queue.broker.to_string()),
        };
        self.ask_offset(queue, Request::GetMaxOffset(header)).await
    }

    /// The first offset of a queue that is still there.
    pub(crate) async fn min_offset(&self, queue: &MessageQueue) -> Result<QueueOffset, ClientError> {
        let header = GetMinOffsetRequestHeader {
            topic: queue.topic.to_string(),
            queue_id: wire_id(queue),
            broker_name: Some(queue.broker.to_string()),
        };
        self.ask_offset(queue, Request::GetMinOffset(header)).await
    }

    /// The first offset stored at or after a wall-clock time.
    pub(crate) async fn search_offset(
        &self,
        queue: &MessageQueue,
        timestamp_ms: i64,
    ) -> Result<QueueOffset, ClientError> {
        let header = SearchOffsetRequestHeader {
            topic: queue.topic.to_string(),
            queue_id: wire_id(queue),
            timestamp: timestamp_ms,
            boundary_type: BoundaryType::Lower,
            broker_name: Some(queue.broker.to_string()),
        };
        self.ask_offset(queue, Request::SearchOffsetByTimestamp(header)).await
    }

    /// Asks the broker to deliver a message again later.
    pub(crate) async fn send_back(
        &self,
        group: &str,
        message: &MessageView,
        delay: RetryDelay,
        max_reconsume_times: Option<u32>,
    ) -> Result<(), ClientError> {
        let addr = self.master(message.queue()).await?;
        let stored = message.stored();
        let header = ConsumerSendMsgBackRequestHeader {
            offset: i64::try_from(stored.phy.0).unwrap_or(i64::MAX),
            group: group.to_owned(),
            delay_level: delay.level(),
            origin_msg_id: Some(stored.offset_message_id().to_string()),
            origin_topic: Some(stored.message.topic.clone()),
            unit_mode: None,
            max_reconsume_times: Some(wire_u32(max_reconsume_times.unwrap_or(DEFAULT_MAX_RECONSUME_TIMES))),
            broker_name: Some(message.queue().broker.to_string()),
        };
        self.ask(&addr, Request::ConsumerSendMsgBack(header), Payload::EMPTY, SEND_BACK_TIMEOUT).await.map(drop)
    }

    /// Sends a copy of a message to the retry topic of its group, for brokers that did not take it back. A copy that is
    /// stored with less than its broker's promise is no copy: it would be all that is left of the message.
    pub(crate) async fn send_retry_copy(
        &self,
        retry_topic: &Arc<str>,
        message: &MessageView,
        max_reconsume_times: Option<u32>,
    ) -> Result<(), ClientError> {
        let list = self.publish_list(retry_topic).await?;
        let queue = list.next(None).expect("a publish list that was found is not empty");
        let stored = message.stored();
        let times = message.reconsume_times() + 1;
        let mut properties = stored.message.properties.clone();
        let origin = properties.get(property::ORIGIN_MESSAGE_ID).map(str::to_owned);
        let origin = origin.unwrap_or_else(|| stored.offset_message_id().to_string());
        let level = (FIRST_RETRY_LEVEL + message.reconsume_times()).to_string();
        let set = [
            (property::RETRY_TOPIC, message.topic()),
            (property::ORIGIN_MESSAGE_ID, &*origin),
            (property::DELAY_LEVEL, &*level),
        ];
        for (name, value) in set {
            properties.set(name, value).map_err(|error| ClientError::Invalid(error.to_string()))?;
        }
        properties.remove(property::TRANSACTION_PREPARED);
        let max = max_reconsume_times.unwrap_or(DEFAULT_MAX_RECONSUME_TIMES);
        let call = SendCall {
            group: INNER_PRODUCER,
            queue,
            default_topic_queues: 1,
            body: stored.message.body.clone(),
            flag: stored.message.flag,
            sys_flag: SysFlag(stored.sys_flag.0 & (SysFlag::COMPRESSED | SysFlag::COMPRESSION_MASK)),
            properties: properties.as_encoded(),
            is_batch: false,
            message_id: &message.unique_id(),
            born_ms: self.host.wall_ms(),
            reconsume: Some(Reconsume { times, max }),
        };
        let receipt = self.send(call, self.timing.request).await?;
        let code = match receipt.status {
            // Without a slave another copy would be as good as this one.
            SendStatus::SendOk | SendStatus::SlaveNotAvailable => return Ok(()),
            SendStatus::FlushDiskTimeout => ResponseCode::FLUSH_DISK_TIMEOUT,
            SendStatus::FlushSlaveTimeout => ResponseCode::FLUSH_SLAVE_TIMEOUT,
        };
        let (addr, remark) = (receipt.queue.to_string(), "the copy may be lost".to_owned());
        Err(ClientError::Broker { code, remark, addr })
    }

    // ---- the rest ----

    async fn ask_offset(&self, queue: &MessageQueue, request: Request) -> Result<QueueOffset, ClientError> {
        let addr = self.master(queue).await?;
        let answer = self.ask(&addr, request, Payload::EMPTY, self.timing.request).await?;
        let found = header_of::<OffsetResponseHeader>(&addr, &answer)?.offset;
        offset(found).ok_or_else(|| ClientError::Codec { addr, reason: format!("the offset {found}") })
    }

    /// Asks and takes nothing but success for an answer.
    pub(crate) async fn ask(
        &self,
        addr: &str,
        request: Request,
        body: Payload,
        timeout: Duration,
    ) -> Result<Response, ClientError> {
        let answer = self.rpc.invoke(addr, request, body, timeout).await?;
        if answer.code == ResponseCode::SUCCESS { Ok(answer) } else { Err(refusal(addr, answer)) }
    }
}

fn send_request(call: SendCall<'_>) -> (Request, Payload) {
    let header = SendMessageRequestHeader {
        producer_group: call.group.to_owned(),
        topic: call.queue.topic.to_string(),
        default_topic: TEMPLATE_TOPIC.to_owned(),
        default_topic_queue_nums: wire_u32(call.default_topic_queues),
        queue_id: wire_id(call.queue),
        sys_flag: call.sys_flag.0,
        born_timestamp: call.born_ms,
        flag: call.flag,
        properties: Some(call.properties.to_owned()),
        reconsume_times: Some(call.reconsume.map_or(0, |reconsume| wire_u32(reconsume.times))),
        unit_mode: Some(false),
        max_reconsume_times: call.reconsume.map(|reconsume| wire_u32(reconsume.max)),
        batch: Some(call.is_batch),
        broker_name: Some(call.queue.broker.to_string()),
    };
    let request = if call.is_batch { Request::SendBatchMessage(header) } else { Request::SendMessageV2(header) };
    (request, Payload::from(call.body))
}

fn pull_answer(addr: &str, code: ResponseCode, answer: Response) -> Result<PullAnswer, ClientError> {
    let header: PullMessageResponseHeader = header_of(addr, &answer)?;
    let nonsense = |reason: String| ClientError::Codec { addr: addr.to_owned(), reason };
    let outcome = match code {
        ResponseCode::SUCCESS => PullOutcome::Found(answer.body.into_bytes()),
        ResponseCode::PULL_OFFSET_MOVED => PullOutcome::OffsetIllegal,
        _ => PullOutcome::NothingNew,
    };
    let next = header.next_begin_offset;
    let next = offset(next).ok_or_else(|| nonsense(format!("the next offset {next}")))?;
    Ok(PullAnswer {
        outcome,
        next: Place { offset: next, epoch: header.sf_log_epoch },
        max_offset: offset(header.max_offset).unwrap_or_default(),
        suggested_broker: u64::try_from(header.suggest_which_broker_id).unwrap_or(MASTER),
    })
}

/// The error for an answer that says no.
fn refusal(addr: &str, answer: Response) -> ClientError {
    ClientError::Broker { code: answer.code, remark: answer.remark.unwrap_or_default(), addr: addr.to_owned() }
}

fn header_of<H: Header>(addr: &str, answer: &Response) -> Result<H, ClientError> {
    H::decode(&answer.fields).map_err(|error| ClientError::Codec { addr: addr.to_owned(), reason: error.to_string() })
}

fn body_of<T: Body>(addr: &str, answer: Response) -> Result<T, ClientError> {
    T::decode(&answer.body.into_bytes())
        .map_err(|error| ClientError::Codec { addr: addr.to_owned(), reason: error.to_string() })
}

fn offset(wire: i64) -> Option<QueueOffset> {
    u64::try_from(wire).ok().map(QueueOffset)
}

fn wire_offset(offset: QueueOffset) -> i64 {
    i64::try_from(offset.0).unwrap_or(i64::MAX)
}

fn wire_id(queue: &MessageQueue) -> i32 {
    wire_u32(queue.id)
}

fn wire_u32(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
