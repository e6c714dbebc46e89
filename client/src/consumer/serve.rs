//! What brokers ask of a member. Source: `spec/client.md` 1.7.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use host::Host;
use message::{QueueOffset, StoredMessage};
use remoting::{
    ConsumeMessageDirectlyRequestHeader, GetConsumerRunningInfoRequestHeader, GetConsumerStatusRequestHeader, Reply,
    Request, Response, ResponseCode,
    body::{
        Body, ConsumeMessageDirectlyResult, ConsumeResult, ConsumerRunningInfo, ConsumerStatus,
        MessageQueue as WireQueue, OffsetTable, ProcessQueueInfo,
    },
};
use tracing::warn;

use super::{
    Member,
    listener::{self, ConcurrentBatch, ConcurrentOutcome},
    owned_queue::QueueProgress,
};
use crate::{core::subscription_data, message_view::MessageView, queue::MessageQueue};

/// Answers a request of a broker.
pub(crate) fn serve(host: &Host, member: &Arc<Member>, request: Request, body: Bytes) -> Reply {
    let group = &*member.settings.group;
    match request {
        Request::NotifyConsumerIdsChanged(header) => {
            if header.consumer_group == group {
                member.rebalance_soon.notify_one();
            }
            Reply::None
        }
        Request::ResetConsumerClientOffset(header) => {
            if header.group == group {
                reset(member, &body);
            }
            Reply::None
        }
        Request::GetConsumerStatusFromClient(header) if header.group == group => status(member, &header.topic).into(),
        Request::GetConsumerRunningInfo(header) if header.consumer_group == group => running_info(host, member).into(),
        Request::ConsumeMessageDirectly(header) if header.consumer_group == group => {
            Reply::later(consume_directly(host.clone(), Arc::clone(member), header.broker_name, body))
        }
        Request::GetConsumerStatusFromClient(GetConsumerStatusRequestHeader { group: asked, .. })
        | Request::GetConsumerRunningInfo(GetConsumerRunningInfoRequestHeader { consumer_group: asked, .. })
        | Request::ConsumeMessageDirectly(ConsumeMessageDirectlyRequestHeader { consumer_group: asked, .. }) => {
            unknown_group(&asked).into()
        }
        other => Response::not_supported(other.code().number()).into(),
    }
}

fn unknown_group(group: &str) -> Response {
    Response::failure(ResponseCode::SYSTEM_ERROR, format!("the consumer group `{group}` is not on this client"))
}

/// Moves owned queues to the offsets of an administrator. Their pull loops commit them before they go on.
fn reset(member: &Member, body: &Bytes) {
    let table = match OffsetTable::decode(body) {
        Ok(table) => table.offset_table,
        Err(error) => {
            warn!(%error, "a reset of offsets cannot be read");
            return;
        }
    };
    for owned in member.queues() {
        if let Some(offset) = table.get(&wire_queue(&owned.queue)).and_then(|offset| u64::try_from(*offset).ok()) {
            owned.reset(QueueOffset(offset));
        }
    }
}

fn status(member: &Member, topic: &str) -> Response {
    let offset = |progress: &QueueProgress| progress.consume_offset.map_or(-1, wire_offset);
    let offsets: BTreeMap<WireQueue, i64> = member
        .queues_of(topic)
        .iter()
        .map(|owned| owned.progress())
        .map(|progress| (wire_queue(&progress.queue), offset(&progress)))
        .collect();
    let status = ConsumerStatus { message_queue_table: Some(offsets), ..ConsumerStatus::default() };
    Response::success().with_body(status.encode())
}

fn running_info(host: &Host, member: &Member) -> Response {
    let settings = &member.settings;
    let properties = BTreeMap::from([
        ("PROP_CONSUMEORDERLY".to_owned(), "false".to_owned()),
        ("PROP_CONSUME_TYPE".to_owned(), "CONSUME_PASSIVELY".to_owned()),
        ("PROP_CLIENT_VERSION".to_owned(), format!("{:?}", remoting::Version::CURRENT)),
        ("PROP_THREADPOOL_CORE_SIZE".to_owned(), settings.concurrency.to_string()),
        ("consumerGroup".to_owned(), settings.group.to_string()),
        ("pullBatchSize".to_owned(), settings.pull_batch.to_string()),
        ("consumeMessageBatchMaxSize".to_owned(), settings.batch_size.to_string()),
    ]);
    let queues = member.queues();
    let info = ConsumerRunningInfo {
        mq_table: queues.iter().map(|owned| (wire_queue(&owned.queue), queue_info(host, &owned.progress()))).collect(),
        properties,
        subscription_set: subscription_data(member),
        ..ConsumerRunningInfo::default()
    };
    Response::success().with_body(info.encode())
}

fn queue_info(host: &Host, progress: &QueueProgress) -> ProcessQueueInfo {
    let bounds = progress.cached_bounds;
    let since_pull = i64::try_from(host.now().since(progress.last_pull).as_millis()).unwrap_or(i64::MAX);
    ProcessQueueInfo {
        cached_msg_count: i32::try_from(progress.cached).unwrap_or(i32::MAX),
        cached_msg_min_offset: bounds.map_or(0, |(low, _)| wire_offset(low)),
        cached_msg_max_offset: bounds.map_or(0, |(_, high)| wire_offset(high)),
        cached_msg_size_in_mib: i32::try_from(progress.cached_bytes >> 20).unwrap_or(i32::MAX),
        commit_offset: progress.consume_offset.map_or(-1, wire_offset),
        last_pull_timestamp: host.wall_ms().saturating_sub(since_pull),
        last_consume_timestamp: progress.last_consume_ms,
        ..ProcessQueueInfo::default()
    }
}

/// Has the listener consume one message that an administrator chose. Nothing else follows from its answer.
async fn consume_directly(host: Host, member: Arc<Member>, broker: Option<String>, mut body: Bytes) -> Response {
    let bad = |reason: String| Response::failure(ResponseCode::SYSTEM_ERROR, reason);
    let stored = match StoredMessage::decode(&mut body) {
        Ok(stored) => stored,
        Err(error) => return bad(format!("the message cannot be read: {error}")),
    };
    let queue = MessageQueue::new(&*stored.message.topic, broker.unwrap_or_default(), stored.queue_id);
    let view = match MessageView::pulled(stored, &queue) {
        Ok(view) => Arc::new(view),
        Err(error) => return bad(format!("the body cannot be read: {error}")),
    };
    let began = host.now();
    let batch = ConcurrentBatch { messages: vec![view], queue, deadline: began + member.settings.consume_timeout };
    let outcome = listener::run(&member.listener, batch).await;
    let consume_result = match outcome {
        Some(ConcurrentOutcome::Success | ConcurrentOutcome::AckThrough(1..)) => ConsumeResult::Success,
        Some(ConcurrentOutcome::AckThrough(0) | ConcurrentOutcome::Later { .. }) => ConsumeResult::Later,
        None => ConsumeResult::ThrowException,
    };
    let result = ConsumeMessageDirectlyResult {
        consume_result,
        spent_time_mills: i64::try_from(host.now().since(began).as_millis()).unwrap_or(i64::MAX),
        ..ConsumeMessageDirectlyResult::default()
    };
    Response::success().with_body(result.encode())
}

fn wire_queue(queue: &MessageQueue) -> WireQueue {
    WireQueue::new(&*queue.topic, &*queue.broker, i32::try_from(queue.id).unwrap_or(i32::MAX))
}

fn wire_offset(offset: QueueOffset) -> i64 {
    i64::try_from(offset.0).unwrap_or(i64::MAX)
}
