//! Clients and their groups: heartbeats, members, queue locks.

use std::sync::Arc;

use bytes::Bytes;
use host::Host;
use message::{java_hash, retry_topic};
use remoting::{
    ConsumerGroupRequestHeader, HeartbeatResponseHeader, Inbound, Peer, Reply, Request, Response, ResponseCode,
    UnregisterClientRequestHeader,
    body::{
        Body, CheckClientRequest, ConsumerData, ConsumerList, HeartbeatData, LockBatchRequest, LockBatchResponse,
        MessageModel, MessageQueue, SubscriptionData,
    },
};
use tracing::debug;

use crate::{
    clients::{Changed, Client, Clients, GroupKind, Subscription},
    config::BrokerConfig,
    failure,
    groups::Groups,
    pull::require_tags,
    queue_locks::{LockedQueue, QueueLocks},
    tag_filter::TagFilter,
    topics::Topics,
};

/// Answers what clients say about themselves, and tells the members of a group when it changes.
pub(crate) struct Sessions {
    pub(crate) host: Host,
    pub(crate) config: Arc<BrokerConfig>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) clients: Arc<Clients<Peer>>,
    pub(crate) locks: Arc<QueueLocks>,
}

/// Changes of the tables that must be in their files before an answer.
#[derive(Debug, Clone, Copy, Default)]
struct Unsaved {
    topics: u64,
    groups: u64,
}

impl Sessions {
    /// A client says who it is. Groups and their retry topics are made if need be, and saved before the answer.
    pub(crate) fn heartbeat(&self, peer: &Peer, inbound: &Inbound) -> Reply {
        let data = match HeartbeatData::decode(&inbound.body) {
            Ok(data) => data,
            Err(error) => return malformed(&error.to_string()).into(),
        };
        let client = Client {
            ordinal: peer.id(),
            id: data.client_id,
            language: inbound.language,
            version: inbound.version,
            peer: peer.clone(),
        };
        let mut unsaved = Unsaved::default();
        let mut is_changed = false;
        for consumer in data.consumer_data_set {
            is_changed |= self.consumer(&client, consumer, &mut unsaved);
        }
        for producer in data.producer_data_set {
            self.clients.producer_seen(&producer.group_name, client.clone(), self.host.now());
        }
        let header = HeartbeatResponseHeader { is_support_heart_beat_v2: Some(false), is_sub_change: Some(is_changed) };
        let response = Response::success().with_header(&header);
        if self.topics.is_saved(unsaved.topics) && self.groups.is_saved(unsaved.groups) {
            return response.into();
        }
        let (topics, groups) = (Arc::clone(&self.topics), Arc::clone(&self.groups));
        Reply::later(async move {
            let saved = match groups.saved(unsaved.groups).await {
                Ok(()) => topics.saved(unsaved.topics).await,
                Err(error) => Err(error),
            };
            saved.map_or_else(|error| failure::save(&error), |()| response)
        })
    }

    /// One group of a heartbeat. True if its members or topics changed.
    fn consumer(&self, client: &Client<Peer>, consumer: ConsumerData, unsaved: &mut Unsaved) -> bool {
        let now_ms = self.host.wall_ms();
        let Some(group) = self.groups.get_or_create(&consumer.group_name, now_ms) else { return false };
        unsaved.groups = unsaved.groups.max(group.revision);
        // A slave has its topics from its master.
        if self.config.role.is_master()
            && let Ok(queues @ 1..) = u32::try_from(group.config.retry_queue_nums)
        {
            let sys_flag = if consumer.unit_mode { 2 } else { 0 };
            let shape = self.topics.make(&retry_topic(&consumer.group_name), queues, sys_flag, now_ms);
            unsaved.topics = unsaved.topics.max(shape.created);
        }
        let kind = GroupKind {
            consume_type: consumer.consume_type,
            message_model: consumer.message_model,
            consume_from_where: consumer.consume_from_where,
        };
        let subscriptions = consumer.subscription_data_set.into_iter().map(subscription).collect();
        let now = self.host.now();
        let changed = self.clients.consumer_seen(&consumer.group_name, client.clone(), kind, subscriptions, now);
        let Some(changed) = changed else { return false };
        if group.config.notify_consumer_ids_changed_enable && kind.message_model != MessageModel::Broadcasting {
            self.notify(&changed);
        }
        true
    }

    /// A client leaves groups.
    pub(crate) fn unregister(&self, peer: &Peer, header: &UnregisterClientRequestHeader) -> Response {
        if let Some(group) = &header.producer_group {
            self.clients.producer_left(group, peer.id());
        }
        if let Some(group) = &header.consumer_group
            && let Some(changed) = self.clients.consumer_left(group, peer.id())
        {
            self.notify(&changed);
        }
        Response::success()
    }

    /// A connection closed: its client is gone.
    pub(crate) fn closed(&self, peer: &Peer) {
        for changed in self.clients.connection_closed(peer.id()) {
            self.notify(&changed);
        }
    }

    /// Removes clients without heartbeats and closes their connections.
    pub(crate) fn expire(&self) {
        let (peers, changed) = self.clients.expire(self.host.now(), self.config.client_expiry);
        for peer in peers {
            debug!(peer = peer.address(), "client sent no heartbeat for too long");
            peer.close();
        }
        for changed in changed {
            self.notify(&changed);
        }
    }

    /// The members of a group.
    pub(crate) fn members(&self, header: &ConsumerGroupRequestHeader) -> Response {
        let group = &header.consumer_group;
        let ids = self.clients.member_ids(group);
        if ids.is_empty() {
            let remark = format!("no consumer for this group, {group}");
            return Response::failure(ResponseCode::SYSTEM_ERROR, remark);
        }
        Response::success().with_body(ConsumerList { consumer_id_list: ids.into_iter().collect() }.encode())
    }

    /// Locks queues for a client, as far as they are free.
    pub(crate) fn lock(&self, body: &Bytes) -> Response {
        let request = match LockBatchRequest::decode(body) {
            Ok(request) => request,
            Err(error) => return malformed(&error.to_string()),
        };
        let queues = request.mq_set.into_iter().map(locked).collect();
        let held = self.locks.lock(&request.consumer_group, &request.client_id, queues, self.host.now());
        let lock_ok_mq_set =
            held.into_iter().map(|queue| MessageQueue::new(queue.topic, queue.broker, queue.queue)).collect();
        Response::success().with_body(LockBatchResponse { lock_ok_mq_set }.encode())
    }

    /// Frees queues of a client.
    pub(crate) fn unlock(&self, body: &Bytes) -> Response {
        match LockBatchRequest::decode(body) {
            Ok(request) => {
                let queues: Vec<LockedQueue> = request.mq_set.into_iter().map(locked).collect();
                self.locks.unlock(&request.consumer_group, &request.client_id, &queues);
                Response::success()
            }
            Err(error) => malformed(&error.to_string()),
        }
    }

    /// Whether this broker can filter as a client wants.
    pub(crate) fn check_client(&self, body: &Bytes) -> Response {
        let subscription = match CheckClientRequest::decode(body) {
            Ok(request) => request.subscription_data,
            Err(error) => return malformed(&error.to_string()),
        };
        require_tags(Some(&subscription.expression_type)).err().unwrap_or_else(Response::success)
    }

    /// Tells every member of a group that it changed. Who cannot be reached will find out by itself.
    fn notify(&self, changed: &Changed<Peer>) {
        if !self.config.notify_members {
            return;
        }
        host::point!("broker.members-notified", changed.members.len());
        for member in &changed.members {
            let header = ConsumerGroupRequestHeader { consumer_group: changed.group.clone() };
            if let Err(error) = member.peer.send_one_way(Request::NotifyConsumerIdsChanged(header), Bytes::new()) {
                debug!(client = member.id, %error, "member cannot be told that its group changed");
            }
        }
    }
}

/// A subscription with its filter. Clients send the hashes of the tags; a broker does not read the expression.
fn subscription(data: SubscriptionData) -> Subscription {
    let is_all = matches!(data.sub_string.as_str(), "" | "*");
    let filter = if is_all || data.class_filter_mode {
        TagFilter::All
    } else if data.code_set.is_empty() {
        TagFilter::parse(&data.sub_string, java_hash).unwrap_or(TagFilter::All)
    } else {
        TagFilter::codes(data.code_set.iter().copied())
    };
    Subscription { data, filter }
}

fn locked(queue: MessageQueue) -> LockedQueue {
    LockedQueue { topic: queue.topic, broker: queue.broker_name, queue: queue.queue_id }
}

fn malformed(remark: &str) -> Response {
    Response::failure(ResponseCode::SYSTEM_ERROR, remark)
}
