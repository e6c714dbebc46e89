//! What a broker tells about itself: settings, figures, tables, progress.

use std::{collections::BTreeMap, sync::Arc};

use host::{Host, time::Mono};
use message::QueueOffset;
use remoting::{
    GetBrokerConfigResponseHeader, GetConsumeStatsRequestHeader, GetTopicConfigRequestHeader, Peer, Response,
    ResponseCode, TopicRequestHeader,
    body::{
        Body, Connection, ConsumeStats, ConsumerConnection, DataVersion, GroupList, KvTable, MessageQueue,
        OffsetWrapper, ProducerConnection, TopicOffset, TopicStatsTable,
    },
};
use store::Store;

use crate::{
    clients::{Client, Clients},
    config::BrokerConfig,
    delayed::DelayedMessages,
    figures::Figures,
    groups::Groups,
    offsets::{ConsumerOffsets, GroupQueue},
    pull::wire,
    topics::Topics,
};

/// Answers questions about the broker.
pub(crate) struct Reports {
    pub(crate) host: Host,
    pub(crate) config: Arc<BrokerConfig>,
    pub(crate) store: Arc<Store>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) offsets: Arc<ConsumerOffsets>,
    pub(crate) clients: Arc<Clients<Peer>>,
    pub(crate) delayed: Arc<DelayedMessages>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) started: Mono,
    pub(crate) started_ms: i64,
}

impl Reports {
    /// All topics.
    pub(crate) fn all_topics(&self) -> Response {
        Response::success().with_body(self.topics.wrapper().encode())
    }

    /// All groups.
    pub(crate) fn all_groups(&self) -> Response {
        Response::success().with_body(self.groups.snapshot().1.encode())
    }

    /// All committed offsets.
    pub(crate) fn all_offsets(&self) -> Response {
        Response::success().with_body(self.offsets.snapshot().encode())
    }

    /// How far each delay level is.
    pub(crate) fn all_delay_offsets(&self) -> Response {
        Response::success().with_body(self.delayed.table().encode())
    }

    /// One topic.
    pub(crate) fn topic(&self, header: &GetTopicConfigRequestHeader) -> Response {
        match self.topics.config(&header.topic) {
            Some(config) => Response::success().with_body(config.encode()),
            None => no_topic(&header.topic),
        }
    }

    /// One group.
    pub(crate) fn group(&self, group: &str) -> Response {
        match self.groups.get(group) {
            Some(config) => Response::success().with_body(config.encode()),
            None => {
                let remark = format!("No group in this broker. group: {group}");
                Response::failure(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark)
            }
        }
    }

    /// The effective settings.
    pub(crate) fn settings(&self) -> Response {
        let version = String::from_utf8_lossy(&DataVersion::default().encode()).into_owned();
        Response::success().with_header(&GetBrokerConfigResponseHeader { version }).with_body(self.config.show())
    }

    /// The ends of a topic's queues.
    pub(crate) fn topic_stats(&self, header: &TopicRequestHeader) -> Response {
        let topic = &header.topic;
        let Some(shape) = self.topics.shape(topic) else { return no_topic(topic) };
        let mut offset_table = BTreeMap::new();
        for queue in 0..shape.read_queues.max(shape.write_queues) {
            let max = self.store.max_offset(topic, queue);
            let offset = TopicOffset {
                last_update_timestamp: self.stored_ms_before(topic, queue, max),
                max_offset: wire(max),
                min_offset: wire(self.store.min_offset(topic, queue)),
            };
            offset_table.insert(self.queue(topic, queue), offset);
        }
        Response::success().with_body(TopicStatsTable { offset_table, topic_put_tps: 0.0 }.encode())
    }

    /// How far a group is, in the topics where it has offsets and, while it is online, which it subscribes to.
    pub(crate) fn consume_stats(&self, header: &GetConsumeStatsRequestHeader) -> Response {
        let group = header.consumer_group.as_str();
        let one = header.topic.as_deref().filter(|topic| !topic.is_empty());
        let listed = header.topic_list.as_deref().unwrap_or_default();
        let mut topics: Vec<String> = match one {
            Some(topic) => vec![topic.to_owned()],
            None => listed.split(';').filter(|topic| !topic.is_empty()).map(str::to_owned).collect(),
        };
        if topics.is_empty() {
            topics = self.offsets.topics_of(group);
        }
        let is_online = self.clients.is_online(group);
        let mut stats = ConsumeStats::default();
        for topic in topics {
            let Some(shape) = self.topics.shape(&topic) else { continue };
            if is_online && self.clients.subscription(group, &topic).is_none() {
                continue;
            }
            for queue in 0..shape.read_queues {
                let at = GroupQueue { group, topic: &topic, queue };
                let consumed = self.offsets.get(at).unwrap_or_default();
                let offset = OffsetWrapper {
                    broker_offset: wire(self.store.max_offset(&topic, queue)),
                    consumer_offset: wire(consumed),
                    last_timestamp: self.stored_ms_before(&topic, queue, consumed),
                    pull_offset: wire(consumed),
                };
                stats.offset_table.insert(self.queue(&topic, queue), offset);
            }
        }
        Response::success().with_body(stats.encode())
    }

    /// The members of a consumer group.
    pub(crate) fn consumers(&self, group: &str) -> Response {
        let Some((members, kind, subscriptions)) = self.clients.consumers(group) else {
            let remark = format!("the consumer group[{group}] not online");
            return Response::failure(ResponseCode::CONSUMER_NOT_ONLINE, remark);
        };
        let body = ConsumerConnection {
            connection_set: members.iter().map(connection).collect(),
            consume_from_where: kind.consume_from_where,
            consume_type: kind.consume_type,
            message_model: kind.message_model,
            subscription_table: subscriptions
                .into_iter()
                .map(|subscription| (subscription.data.topic.clone(), subscription.data))
                .collect(),
        };
        Response::success().with_body(body.encode())
    }

    /// The members of a producer group.
    pub(crate) fn producers(&self, group: &str) -> Response {
        let members = self.clients.producers(group);
        if members.is_empty() {
            let remark = format!("the producer group[{group}] not exist");
            return Response::failure(ResponseCode::SYSTEM_ERROR, remark);
        }
        let body = ProducerConnection { connection_set: members.iter().map(connection).collect() };
        Response::success().with_body(body.encode())
    }

    /// The groups that consume a topic: those online and those with offsets.
    pub(crate) fn groups_of_topic(&self, topic: &str) -> Response {
        let mut groups = self.clients.groups_of(topic);
        groups.extend(self.offsets.groups_of(topic));
        groups.sort();
        groups.dedup();
        Response::success().with_body(GroupList { group_list: groups }.encode())
    }

    /// Figures by the names that tools look for. Source: `spec/protocol.md` 12.3.
    pub(crate) fn runtime(&self) -> Response {
        let counted = self.figures.read();
        let seconds = self.host.now().since(self.started).as_secs().max(1);
        let per_second = |count: u64| {
            let rate = format!("{}.{:02}", count / seconds, (count % seconds) * 100 / seconds);
            format!("{rate} {rate} {rate}")
        };
        let disk = self.store.disk_use().map_or_else(
            |_| "-1".to_owned(),
            |disk| format!("{}.{:02}", disk.used_percent / 100, disk.used_percent % 100),
        );
        let first_ms = self.started_ms.to_string();
        let mut table: BTreeMap<String, String> = [
            ("brokerVersionDesc", "V5_3_3".to_owned()),
            ("brokerVersion", remoting::Version::CURRENT.0.to_string()),
            ("brokerActive", "true".to_owned()),
            ("bootTimestamp", first_ms),
            ("runtime", format!("{seconds} seconds")),
            ("startAcceptSendRequestTimeStamp", self.config.accept_sends_from_ms.to_string()),
            ("putTps", per_second(counted.puts)),
            ("getFoundTps", per_second(counted.gets_found)),
            ("getMissTps", per_second(counted.gets_missed)),
            ("getTotalTps", per_second(counted.gets_found + counted.gets_missed)),
            ("getTransferredTps", per_second(counted.messages_out)),
            ("putMessageTimesTotal", counted.puts.to_string()),
            ("putMessageFailedTimes", counted.puts_failed.to_string()),
            ("msgPutTotalTodayNow", counted.puts.to_string()),
            ("msgGetTotalTodayNow", counted.messages_out.to_string()),
            ("commitLogMinOffset", self.store.min_phy().to_string()),
            ("commitLogMaxOffset", self.store.max_phy().to_string()),
            ("remainHowManyDataToFlush", format!("{} B", self.store.max_phy().0 - self.store.flushed_phy().0)),
            ("dispatchBehindBytes", self.store.dispatch_behind_bytes().to_string()),
            ("commitLogDiskRatio", disk.clone()),
            ("consumeQueueDiskRatio", disk),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        // Queues of requests do not exist here, nor does what stands for yesterday; tools want a number.
        table.extend(NOTHING.iter().map(|name| ((*name).to_owned(), "0".to_owned())));
        for (level, done) in self.delayed.table().offset_table {
            let end = u32::try_from(level - 1)
                .map_or(QueueOffset(0), |queue| self.store.max_offset(message::SCHEDULE_TOPIC, queue));
            table.insert(format!("scheduleMessageOffset_{level}"), format!("{done},{end}"));
        }
        Response::success().with_body(KvTable { table }.encode())
    }

    fn queue(&self, topic: &str, queue: u32) -> MessageQueue {
        MessageQueue::new(topic, &self.config.name, crate::send::wire(queue))
    }

    /// When the message before `offset` was stored; 0 if there is none.
    fn stored_ms_before(&self, topic: &str, queue: u32, offset: QueueOffset) -> i64 {
        let before = offset.0.checked_sub(1).map(QueueOffset);
        before.and_then(|before| self.store.store_ms_at(topic, queue, before)).unwrap_or(0)
    }
}

/// Figures of the reference that are always nothing here.
const NOTHING: [&str; 18] = [
    "sendThreadPoolQueueSize",
    "pullThreadPoolQueueSize",
    "ackThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueHeadWaitTimeMills",
    "pageCacheLockTimeMills",
    "earliestMessageTimeStamp",
    "timerReadBehind",
    "timerOffsetBehind",
    "timerCongestNum",
    "timerEnqueueTps",
    "timerDequeueTps",
    "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning",
    "remainHowManyDataToCommit",
];

fn connection(client: &Client<Peer>) -> Connection {
    Connection {
        client_addr: client.peer.address().to_owned(),
        client_id: client.id.clone(),
        language: client.language.map(|language| language.name().to_owned()),
        version: client.version.0,
    }
}

fn no_topic(topic: &str) -> Response {
    Response::failure(ResponseCode::TOPIC_NOT_EXIST, format!("No topic in this broker. topic: {topic}"))
}
