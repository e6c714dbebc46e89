//! What a broker tells about itself: settings, figures, tables, progress.

use std::{collections::BTreeMap, sync::Arc};

use host::{Host, time::Mono};
use message::{PhyOffset, QueueOffset};
use remoting::{
    GetBrokerConfigResponseHeader, GetConsumeStatsRequestHeader, GetTopicConfigRequestHeader, Peer, Response,
    ResponseCode, TopicRequestHeader,
    body::{
        Body, Connection, ConsumeStats, ConsumerConnection, DataVersion, GroupList, HaClientRuntimeInfo,
        HaConnectionRuntimeInfo, HaRuntimeInfo, KvTable, MessageQueue, OffsetWrapper, ProducerConnection, TopicOffset,
        TopicStatsTable,
    },
};
use store::{Figures, Rates, Store};

use crate::{
    clients::{Client, Clients},
    config::BrokerConfig,
    delayed::DelayedMessages,
    groups::Groups,
    offsets::{ConsumerOffsets, GroupQueue},
    pull::wire,
    replication::{Replica, Replicas, ReplicationStatus, SlaveState},
    request_modes::RequestModes,
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
    pub(crate) modes: Arc<RequestModes>,
    pub(crate) replicas: Arc<Replicas>,
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

    /// Who pulls and who pops.
    pub(crate) fn all_request_modes(&self) -> Response {
        Response::success().with_body(self.modes.snapshot().1.encode())
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

    /// The state of replication: what the slaves of a master have of its log, or where that of a slave ends and whom it
    /// follows.
    pub(crate) fn replication(&self) -> Response {
        let end = wire_phy(self.store.max_phy());
        let status = match self.replicas.status() {
            ReplicationStatus::Master(slaves) => {
                let slaves: Vec<HaConnectionRuntimeInfo> = slaves.iter().map(|slave| self.slave(slave, end)).collect();
                HaRuntimeInfo {
                    master: true,
                    master_commit_log_max_offset: end,
                    in_sync_slave_nums: i32::try_from(slaves.iter().filter(|slave| slave.in_sync).count())
                        .unwrap_or(i32::MAX),
                    ha_connection_info: slaves,
                    ..HaRuntimeInfo::default()
                }
            }
            ReplicationStatus::Slave(_) => {
                let master_addr = self.replicas.master.watch_replication().borrow().clone();
                let slave = HaClientRuntimeInfo { max_offset: end, master_addr, ..HaClientRuntimeInfo::default() };
                HaRuntimeInfo { ha_client_runtime_info: slave, ..HaRuntimeInfo::default() }
            }
        };
        Response::success().with_body(status.encode())
    }

    /// One slave, while the log ends at `end`. Source: `spec/protocol.md` 12.3.
    fn slave(&self, slave: &Replica, end: i64) -> HaConnectionRuntimeInfo {
        let acked = slave.copied.map_or(0, wire_phy);
        let diff = end - acked;
        let gap = i64::try_from(self.config.replication.in_sync_gap_bytes).unwrap_or(i64::MAX);
        HaConnectionRuntimeInfo {
            addr: Some(slave.from.to_string()),
            diff,
            in_sync: slave.is_alive && slave.copied.is_some() && diff <= gap,
            slave_ack_offset: acked,
            transfer_from_where: wire_phy(slave.sent),
            transferred_byte_in_second: 0,
        }
    }

    /// How a slave stands to its master, in a word or two; nothing of a master.
    fn slave_state(&self) -> Option<String> {
        let ReplicationStatus::Slave(state) = self.replicas.status() else { return None };
        Some(match state {
            SlaveState::NoMaster => "no master".to_owned(),
            SlaveState::Connecting => "connecting".to_owned(),
            SlaveState::Following => "following".to_owned(),
            SlaveState::Diverged { at } => format!("diverged at {at}"),
            SlaveState::Ahead { master_end } => format!("ahead of its master, which ends at {master_end}"),
            SlaveState::TooOld { master_start } => format!("too old, its master begins at {master_start}"),
            SlaveState::Failed { problem } => format!("failed: {problem}"),
        })
    }

    /// Figures by the names that tools look for. Source: `spec/protocol.md` 12.3.
    pub(crate) fn runtime(&self) -> Response {
        let disk = self.store.disk_use().map_or_else(
            |_| "-1".to_owned(),
            |disk| format!("{}.{:02}", disk.used_percent / 100, disk.used_percent % 100),
        );
        let mut table: BTreeMap<String, String> = [
            ("brokerVersionDesc", "V5_3_3".to_owned()),
            ("brokerVersion", remoting::Version::CURRENT.0.to_string()),
            ("brokerActive", "true".to_owned()),
            ("bootTimestamp", self.started_ms.to_string()),
            ("brokerRole", self.config.role.to_string()),
            ("brokerId", self.config.broker_id().to_string()),
            ("runtime", run_time(self.host.now().since(self.started).as_secs())),
            ("startAcceptSendRequestTimeStamp", self.config.accept_sends_from_ms.to_string()),
            ("commitLogMinOffset", self.store.min_phy().to_string()),
            ("commitLogMaxOffset", self.store.max_phy().to_string()),
            ("remainHowManyDataToCommit", format!("{} B", self.store.uncommitted_bytes())),
            ("remainHowManyDataToFlush", format!("{} B", self.store.max_phy().0 - self.store.flushed_phy().0)),
            ("dispatchBehindBytes", self.store.dispatch_behind_bytes().to_string()),
            ("commitLogDiskRatio", disk.clone()),
            ("consumeQueueDiskRatio", disk),
        ]
        .into_iter()
        .chain(counted(&self.store.figures()))
        .chain(self.slave_state().map(|state| ("slaveState", state)))
        .chain(self.store.free_buffers().map(|free| ("remainTransientStoreBufferNumbs", free.to_string())))
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

/// What the buckets of times of puts are called.
const PUT_TIMES: [&str; 13] = [
    "<=0ms",
    "0~10ms",
    "10~50ms",
    "50~100ms",
    "100~200ms",
    "200~500ms",
    "500ms~1s",
    "1~2s",
    "2~3s",
    "3~4s",
    "4~5s",
    "5~10s",
    "10s~",
];

/// What the store has counted, by the names and in the forms of the reference.
fn counted(figures: &Figures) -> impl Iterator<Item = (&'static str, String)> {
    let counters = figures.counters;
    let rates = |rates: &Rates| rates.map(|rate| format!("{rate:.2}")).join(" ");
    let total: Rates = std::array::from_fn(|at| figures.found_rates[at] + figures.missed_rates[at]);
    let times = PUT_TIMES.iter().zip(figures.put_times);
    let times: String = times.map(|(name, count)| format!("[{name}]:{count} ")).collect();
    [
        ("putMessageTimesTotal", counters.puts.to_string()),
        ("putMessageFailedTimes", counters.puts_failed.to_string()),
        ("putMessageSizeTotal", counters.put_bytes.to_string()),
        ("putMessageAverageSize", (counters.put_bytes as f64 / counters.puts.max(1) as f64).to_string()),
        ("putMessageDistributeTime", times),
        ("putMessageEntireTimeMax", figures.put_max.as_millis().to_string()),
        ("getMessageEntireTimeMax", figures.get_max.as_millis().to_string()),
        ("putLatency99", format!("{:.2}", figures.put_p99_ms)),
        ("putLatency999", format!("{:.2}", figures.put_p999_ms)),
        ("putTps", rates(&figures.put_rates)),
        ("getFoundTps", rates(&figures.found_rates)),
        ("getMissTps", rates(&figures.missed_rates)),
        ("getTotalTps", rates(&total)),
        ("getTransferredTps", rates(&figures.out_rates)),
        ("msgPutTotalTodayNow", counters.puts.to_string()),
        ("msgGetTotalTodayNow", counters.messages_out.to_string()),
        ("pageCacheLockTimeMills", figures.append_lock.as_millis().to_string()),
    ]
    .into_iter()
}

/// A position of the log as bodies carry it.
fn wire_phy(at: PhyOffset) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

/// How long the broker has been running.
fn run_time(seconds: u64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    format!("[ {} days, {} hours, {} minutes, {} seconds ]", hours / 24, hours % 24, minutes % 60, seconds % 60)
}

/// Figures of the reference that are always nothing here.
const NOTHING: [&str; 17] = [
    "sendThreadPoolQueueSize",
    "pullThreadPoolQueueSize",
    "ackThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueHeadWaitTimeMills",
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
    "dispatchMaxBuffer",
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use store::{Counters, Figures};

    use super::{counted, run_time};

    #[test]
    fn figures_have_the_names_and_forms_of_the_reference() {
        let figures = Figures {
            counters: Counters {
                puts: 4,
                put_bytes: 1_001,
                puts_failed: 2,
                gets_found: 3,
                gets_missed: 5,
                messages_out: 6,
            },
            put_rates: [12.5, 3.0, 0.25],
            found_rates: [1.0, 0.5, 0.25],
            missed_rates: [0.0, 0.25, 0.25],
            out_rates: [2.0; 3],
            put_max: Duration::from_millis(1_234),
            get_max: Duration::from_micros(900),
            put_times: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13],
            put_p99_ms: 17.456,
            put_p999_ms: 20.0,
            append_lock: Duration::from_millis(8),
        };
        let text: String = counted(&figures).map(|(name, value)| format!("{name}={value}\n")).collect();
        let expected = "\
            putMessageTimesTotal=4\nputMessageFailedTimes=2\nputMessageSizeTotal=1001\nputMessageAverageSize=250.25\n\
            putMessageDistributeTime=[<=0ms]:1 [0~10ms]:2 [10~50ms]:3 [50~100ms]:4 [100~200ms]:5 [200~500ms]:6 \
            [500ms~1s]:7 [1~2s]:8 [2~3s]:9 [3~4s]:10 [4~5s]:11 [5~10s]:12 [10s~]:13 \n\
            putMessageEntireTimeMax=1234\ngetMessageEntireTimeMax=0\nputLatency99=17.46\nputLatency999=20.00\n\
            putTps=12.50 3.00 0.25\ngetFoundTps=1.00 0.50 0.25\ngetMissTps=0.00 0.25 0.25\n\
            getTotalTps=1.00 0.75 0.50\ngetTransferredTps=2.00 2.00 2.00\n\
            msgPutTotalTodayNow=4\nmsgGetTotalTodayNow=6\npageCacheLockTimeMills=8\n";
        assert_eq!(text, expected);
        assert_eq!(run_time(93_784), "[ 1 days, 2 hours, 3 minutes, 4 seconds ]");
    }
}
