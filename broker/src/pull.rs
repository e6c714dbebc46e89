//! Pulls: messages of a queue, or the wait for them.

use std::{sync::Arc, time::Duration};

use host::Host;
use message::{QueueOffset, java_hash};
use remoting::{
    LogEpoch, PullMessageRequestHeader, PullMessageResponseHeader, Reply, Response, ResponseCode,
    body::SubscriptionGroupConfig,
};
use store::{GetRequest, GetResult, GetStatus, MessageFilter, Store};
use tracing::warn;

use crate::{
    clients::Clients,
    commits::Commits,
    config::BrokerConfig,
    group_master::GroupMaster,
    groups::Groups,
    log_epochs::LogEpochs,
    offsets::{ConsumerOffsets, GroupQueue},
    tag_filter::TagFilter,
    topics::{TopicShape, Topics, came_with_the_log},
};

/// Bits of the `sysFlag` of a pull. Source: `spec/protocol.md` 7.1.
const COMMIT_OFFSET: i32 = 1;
const SUSPEND: i32 = 2;
const SUBSCRIPTION: i32 = 4;

/// The id of a master.
const MASTER: i64 = 0;

/// Nobody waits longer than this for a message, whatever the request says.
const HOLD_MAX: Duration = Duration::from_secs(300);

/// A slave that has a master holds a pull at its own end no longer than this, and then sends the client to the master.
const REDIRECT_AFTER: Duration = Duration::from_secs(1);

/// What is forbidden, as the answer names it. Source: `spec/protocol.md` 7.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forbidden {
    Broker = 1,
    Group = 2,
    Topic = 3,
    Broadcast = 4,
    Subscription = 5,
}

/// Answers pulls.
pub(crate) struct Pulls<P> {
    pub(crate) host: Host,
    pub(crate) config: Arc<BrokerConfig>,
    pub(crate) store: Arc<Store>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) offsets: Arc<ConsumerOffsets>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) epochs: Arc<LogEpochs>,
    pub(crate) master: Arc<GroupMaster>,
    pub(crate) clients: Arc<Clients<P>>,
}

/// A pull that was checked.
struct Plan {
    group: String,
    topic: String,
    queue: u32,
    /// The log that the offsets of the request belong to, if it says so.
    epoch: Option<LogEpoch>,
    /// What the group has consumed, to be kept.
    commit: Option<QueueOffset>,
    /// Where the client wants to begin. Negative offsets exist nowhere, so they lie before the queue.
    wanted: Option<QueueOffset>,
    max_count: u32,
    filter: TagFilter,
    topic_flag: i32,
    group_flag: i32,
    /// From whom the group shall pull.
    brokers: Brokers,
    /// How long to wait for a message, if at all.
    hold: Option<Duration>,
}

/// The ids of the brokers from which a group pulls, as its settings say.
#[derive(Debug, Clone, Copy)]
struct Brokers {
    /// `brokerId`.
    usual: i64,
    /// `whichBrokerWhenConsumeSlowly`: while it reads messages that nobody expects in memory any more.
    when_slow: i64,
}

/// Whether a pull that found nothing may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// No: there is an answer.
    No,
    /// Until the queue goes on behind the offset.
    ForMessages,
    /// For its time: the offset lies before what this slave has, and only its master can say more.
    ForTime,
}

impl Plan {
    fn group_queue(&self) -> GroupQueue<'_> {
        GroupQueue { group: &self.group, topic: &self.topic, queue: self.queue }
    }
}

impl<P: Clone + Send + Sync + 'static> Pulls<P> {
    /// Answers at once, unless there is nothing yet and the client wants to wait.
    pub(crate) fn pull(self: &Arc<Self>, header: PullMessageRequestHeader, is_lite: bool) -> Reply {
        let plan = match self.check(header, is_lite) {
            Ok(plan) => plan,
            Err(refused) => return Reply::Now(refused),
        };
        if let Some(offset) = plan.commit.and_then(|offset| self.carry_over(&plan, offset)) {
            self.commits.commit(plan.group_queue(), offset);
        }
        let wanted = if self.keeps_offsets() { Some(plan.wanted.unwrap_or_default()) } else { plan.wanted };
        let Some(wanted) = wanted else {
            let min = self.store.min_offset(&plan.topic, plan.queue);
            return Reply::Now(self.moved(&plan, min, "OFFSET_TOO_SMALL"));
        };
        // A position of an unknown log means nothing here, whether it lies behind or before what the group has consumed.
        let place = self.carry_over(&plan, wanted).unwrap_or_else(|| self.consumed(&plan));
        if place != wanted {
            host::point!("broker.offset-was-cut-off", place.0);
            return Reply::Now(self.moved(&plan, place, "LOG_WAS_CUT"));
        }
        let result = self.read(&plan, wanted);
        let wait = self.wait(&result, wanted);
        match plan.hold.filter(|_| wait != Wait::No) {
            Some(time) => {
                let most = if self.has_master() { REDIRECT_AFTER } else { HOLD_MAX };
                let this = Arc::clone(self);
                Reply::later(async move { this.hold(plan, (wanted, wait), time.min(most)).await })
            }
            None => Reply::Now(self.answer(&plan, wanted, result)),
        }
    }

    /// Whether this is a slave that has a master.
    fn has_master(&self) -> bool {
        !self.config.role.is_master() && self.master.is_known()
    }

    /// Whether offsets outside a queue stay as they are: what a slave lacks, its master may have.
    fn keeps_offsets(&self) -> bool {
        !self.config.role.is_master() && !self.config.replication.offset_check_in_slave
    }

    /// Whether a pull from `at` that gave `result` may wait.
    fn wait(&self, result: &GetResult, at: QueueOffset) -> Wait {
        match result.status {
            GetStatus::OffsetOverflowOne => Wait::ForMessages,
            GetStatus::NoMessageInQueue if at.0 == 0 => Wait::ForMessages,
            GetStatus::NoMessageInQueue | GetStatus::OffsetOverflowBadly if self.keeps_offsets() => Wait::ForMessages,
            GetStatus::OffsetTooSmall if self.keeps_offsets() => Wait::ForTime,
            _ => Wait::No,
        }
    }

    /// Waits until the queue has a message that the filter may want, or the time is over. Messages that it does not
    /// want are passed by silently, so that they do not cost an answer each.
    async fn hold(&self, plan: Plan, (wanted, mut wait): (QueueOffset, Wait), time: Duration) -> Response {
        host::point!("broker.pull-held");
        let mut over = self.host.sleep(if host::buggify!("broker.hold-short") { time / 50 } else { time });
        let mut at = wanted;
        loop {
            let arrival = async {
                match wait {
                    Wait::ForTime => std::future::pending().await,
                    Wait::No | Wait::ForMessages => self.store.arrival(&plan.topic, plan.queue, at).await,
                }
            };
            let is_over = host::select! {
                () = arrival => false,
                () = &mut over => true,
            };
            let result = self.read(&plan, at);
            if result.status == GetStatus::NoMatchedMessage && result.next > at {
                at = result.next;
                if !is_over {
                    continue;
                }
            }
            wait = self.wait(&result, at);
            if is_over || wait == Wait::No {
                let passed = at > wanted && wait != Wait::No;
                let response = self.answer(&plan, at, result);
                // The client shall go on behind the messages that were passed by.
                return if passed { response.with_code(ResponseCode::PULL_RETRY_IMMEDIATELY) } else { response };
            }
        }
    }

    fn read(&self, plan: &Plan, offset: QueueOffset) -> GetResult {
        let filter = match &plan.filter {
            TagFilter::All => None,
            codes @ TagFilter::Codes(_) => Some(codes as &dyn MessageFilter),
        };
        self.store.get(&GetRequest {
            topic: &plan.topic,
            queue_id: plan.queue,
            offset,
            max_count: if host::buggify!("broker.pull-short") { 1 } else { plan.max_count },
            max_bytes: u64::MAX,
            filter,
        })
    }

    /// Source: `spec/protocol.md` 7.1, `spec/store.md` 10.2.
    fn answer(&self, plan: &Plan, wanted: QueueOffset, result: GetResult) -> Response {
        let (mut code, status) = match result.status {
            GetStatus::Found => (ResponseCode::SUCCESS, "FOUND"),
            GetStatus::NoMatchedMessage => (ResponseCode::PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE"),
            GetStatus::MessageWasRemoving => (ResponseCode::PULL_RETRY_IMMEDIATELY, "MESSAGE_WAS_REMOVING"),
            GetStatus::NoMessageInQueue if wanted.0 == 0 => (ResponseCode::PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE"),
            GetStatus::NoMessageInQueue => (ResponseCode::PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE"),
            GetStatus::OffsetFoundNull => (ResponseCode::PULL_NOT_FOUND, "OFFSET_FOUND_NULL"),
            GetStatus::OffsetOverflowOne => (ResponseCode::PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE"),
            GetStatus::OffsetOverflowBadly => (ResponseCode::PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY"),
            GetStatus::OffsetTooSmall => (ResponseCode::PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL"),
        };
        let mut next = result.next;
        let mut broker = self.suggested(plan, result.suggest_slave);
        if code == ResponseCode::PULL_OFFSET_MOVED && self.keeps_offsets() {
            (code, next, broker) = (ResponseCode::PULL_RETRY_IMMEDIATELY, wanted, plan.brokers.usual);
        }
        if self.has_master() && !result.suggest_slave {
            broker = MASTER;
            if result.status != GetStatus::Found {
                code = ResponseCode::PULL_RETRY_IMMEDIATELY;
            }
        }
        if code == ResponseCode::PULL_OFFSET_MOVED {
            let Plan { group, topic, queue, .. } = plan;
            warn!(group, topic, queue, from = wanted.0, to = next.0, status, "a group cannot go on where it was");
            host::point!("broker.offset-moved", next.0);
        }
        self.store.count_get(result.count);
        let ends = (result.min, result.max);
        let header = PullMessageResponseHeader { suggest_which_broker_id: broker, ..self.header(plan, next, ends) };
        Response::success().with_code(code).with_remark(status).with_header(&header).with_body(result.records)
    }

    /// The answer to an offset at which the group cannot go on, without a look into the queue.
    fn moved(&self, plan: &Plan, next: QueueOffset, status: &str) -> Response {
        let min = self.store.min_offset(&plan.topic, plan.queue);
        let max = self.store.max_offset(&plan.topic, plan.queue);
        Response::success().with_code(ResponseCode::PULL_OFFSET_MOVED).with_remark(status).with_header(&self.header(
            plan,
            next,
            (min, max),
        ))
    }

    /// From which broker the group should pull next. Source: `spec/replication.md` 3.2.
    fn suggested(&self, plan: &Plan, is_slow: bool) -> i64 {
        match self.config.replication.slave_read {
            false => MASTER,
            true if is_slow => plan.brokers.when_slow,
            true => plan.brokers.usual,
        }
    }

    /// An offset of the request as it is in today's log; `None` if that is not known.
    fn carry_over(&self, plan: &Plan, offset: QueueOffset) -> Option<QueueOffset> {
        self.epochs.carry_over(plan.epoch, &plan.topic, plan.queue, offset)
    }

    /// What the group has certainly consumed of the queue as it is now. Without a committed offset that is nothing.
    fn consumed(&self, plan: &Plan) -> QueueOffset {
        let committed = self.offsets.get(plan.group_queue());
        let max = self.store.max_offset(&plan.topic, plan.queue);
        committed.unwrap_or_else(|| self.store.min_offset(&plan.topic, plan.queue)).min(max)
    }

    fn header(
        &self,
        plan: &Plan,
        next: QueueOffset,
        (min, max): (QueueOffset, QueueOffset),
    ) -> PullMessageResponseHeader {
        PullMessageResponseHeader {
            suggest_which_broker_id: MASTER,
            next_begin_offset: wire(next),
            min_offset: wire(min),
            max_offset: wire(max),
            offset_delta: None,
            topic_sys_flag: Some(plan.topic_flag),
            group_sys_flag: Some(plan.group_flag),
            forbidden_type: None,
            sf_log_epoch: self.epochs.told(plan.epoch),
        }
    }

    /// Checks a pull in the order of the reference.
    ///
    /// Source: the reference's `PullMessageProcessor`.
    fn check(&self, header: PullMessageRequestHeader, is_lite: bool) -> Result<Plan, Response> {
        let ip = self.config.advertised_ip();
        if !self.config.is_readable() {
            return Err(forbidden(Forbidden::Broker, format!("the broker[{ip}] pulling message is forbidden")));
        }
        if is_lite && !self.config.lite_pull {
            return Err(forbidden(Forbidden::Broker, format!("the broker[{ip}] for lite pull consumer is forbidden")));
        }
        let group = self.group(&header.consumer_group)?;
        let shape = self.topic(&header)?;
        let queue = match u32::try_from(header.queue_id) {
            Ok(queue) if queue < shape.read_queues => queue,
            _ => {
                let PullMessageRequestHeader { queue_id, topic, .. } = &header;
                let remark =
                    format!("queueId[{queue_id}] is illegal, topic:[{topic}] has {} read queues", shape.read_queues);
                return Err(Response::failure(ResponseCode::INVALID_PARAMETER, remark));
            }
        };
        let filter = self.filter(&header, &group)?;
        let commit = u64::try_from(header.commit_offset).ok().filter(|_| header.sys_flag & COMMIT_OFFSET != 0);
        Ok(Plan {
            queue,
            epoch: header.sf_log_epoch,
            commit: commit.map(QueueOffset),
            wanted: u64::try_from(header.queue_offset).ok().map(QueueOffset),
            max_count: u32::try_from(header.max_msg_nums).unwrap_or(1).max(1),
            filter,
            topic_flag: shape.sys_flag,
            group_flag: group.group_sys_flag,
            brokers: Brokers { usual: group.broker_id, when_slow: group.which_broker_when_consume_slowly },
            hold: self.hold_time(&header),
            group: header.consumer_group,
            topic: header.topic,
        })
    }

    fn group(&self, name: &str) -> Result<SubscriptionGroupConfig, Response> {
        let Some(group) = self.groups.get_or_create(name, self.host.wall_ms()) else {
            let remark = format!("subscription group [{name}] does not exist");
            return Err(Response::failure(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark));
        };
        if !group.config.consume_enable {
            return Err(forbidden(Forbidden::Group, format!("subscription group no permission, {name}")));
        }
        Ok(group.config)
    }

    fn topic(&self, header: &PullMessageRequestHeader) -> Result<TopicShape, Response> {
        let topic = &header.topic;
        let Some(shape) = self.topics.shape(topic).or_else(|| self.topic_of_log(header)) else {
            let remark = format!("topic[{topic}] not exist, apply first please!");
            return Err(Response::failure(ResponseCode::TOPIC_NOT_EXIST, remark));
        };
        if !shape.is_readable {
            return Err(forbidden(Forbidden::Topic, format!("the topic[{topic}] pulling message is forbidden")));
        }
        Ok(shape)
    }

    /// A topic that came to a slave with the log, and not yet with the tables: it is read as its queues are.
    fn topic_of_log(&self, header: &PullMessageRequestHeader) -> Option<TopicShape> {
        let queue = u32::try_from(header.queue_id).ok()?;
        came_with_the_log(self.config.role, &self.store, &header.topic, queue).then(|| TopicShape::of_log(queue))
    }

    /// What the pull wants of its queue: as the request says itself, or as the group registered it.
    fn filter(
        &self,
        header: &PullMessageRequestHeader,
        group: &SubscriptionGroupConfig,
    ) -> Result<TagFilter, Response> {
        let PullMessageRequestHeader { consumer_group: name, topic, .. } = header;
        if header.sys_flag & SUBSCRIPTION != 0 {
            require_tags(header.expression_type.as_deref())?;
            let expression = header.subscription.as_deref().unwrap_or_default();
            return TagFilter::parse(expression, java_hash).ok_or_else(|| {
                Response::failure(ResponseCode::SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
            });
        }
        let not_exist = |what| {
            let remark = format!("the consumer's {what} not exist: group {name}, topic {topic}");
            Response::failure(ResponseCode::SUBSCRIPTION_NOT_EXIST, remark)
        };
        if !self.clients.is_online(name) {
            return Err(not_exist("group info"));
        }
        if !group.consume_broadcast_enable && self.clients.is_broadcast(name) {
            let remark = format!("the consumer group[{name}] can not consume by broadcast way");
            return Err(forbidden(Forbidden::Broadcast, remark));
        }
        if self.groups.is_read_forbidden(name, topic) {
            let remark = format!("the consumer group[{name}] is forbidden for topic[{topic}]");
            return Err(forbidden(Forbidden::Subscription, remark));
        }
        let subscription = self.clients.subscription(name, topic).ok_or_else(|| not_exist("subscription"))?;
        if subscription.data.sub_version < header.sub_version {
            let remark = "the consumer's subscription not latest";
            return Err(Response::failure(ResponseCode::SUBSCRIPTION_NOT_LATEST, remark));
        }
        require_tags(Some(&subscription.data.expression_type))?;
        Ok(subscription.filter)
    }

    fn hold_time(&self, header: &PullMessageRequestHeader) -> Option<Duration> {
        if header.sys_flag & SUSPEND == 0 {
            return None;
        }
        if !self.config.long_polling {
            return Some(self.config.short_polling);
        }
        u64::try_from(header.suspend_timeout_millis).ok().map(Duration::from_millis)
    }
}

impl MessageFilter for TagFilter {
    fn matches_tags_code(&self, tags_code: i64) -> bool {
        self.matches(tags_code)
    }
}

/// Refuses expressions that are not tags.
pub(crate) fn require_tags(expression_type: Option<&str>) -> Result<(), Response> {
    match expression_type {
        None | Some("" | "TAG") => Ok(()),
        Some(other) => {
            let remark = format!("The broker does not support consumer to filter message by {other}");
            Err(Response::failure(ResponseCode::SYSTEM_ERROR, remark))
        }
    }
}

fn forbidden(what: Forbidden, remark: String) -> Response {
    Response::failure(ResponseCode::NO_PERMISSION, remark).with_header(&PullMessageResponseHeader {
        suggest_which_broker_id: MASTER,
        next_begin_offset: 0,
        min_offset: 0,
        max_offset: 0,
        offset_delta: None,
        topic_sys_flag: None,
        group_sys_flag: None,
        forbidden_type: Some(what as i32),
        sf_log_epoch: None,
    })
}

/// An offset as headers carry it.
pub(crate) fn wire(offset: QueueOffset) -> i64 {
    i64::try_from(offset.0).expect("a queue offset fits 63 bits")
}
