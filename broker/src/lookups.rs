//! Offsets of groups and queues, single messages, and messages by key.

use std::sync::Arc;

use host::Host;
use message::{PhyOffset, QueueOffset};
use remoting::{
    BoundaryType, ConsumerOffsetNotFoundResponseHeader, GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader, GetMinOffsetRequestHeader, OffsetResponseHeader, QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader, QueryMessageRequestHeader, QueryMessageResponseHeader, Response, ResponseCode,
    SearchOffsetRequestHeader, UpdateConsumerOffsetRequestHeader, ViewMessageRequestHeader,
};
use store::{GetRequest, GetStatus, KeyQuery, Store, TimeBoundary};

use crate::{
    commits::Commits,
    groups::Groups,
    log_epochs::LogEpochs,
    offsets::{ConsumerOffsets, GroupQueue},
    pull::wire,
    topics::{Topics, came_with_the_log},
};

/// Answers questions about offsets, and keeps those that groups commit.
pub(crate) struct Lookups {
    pub(crate) host: Host,
    pub(crate) store: Arc<Store>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) offsets: Arc<ConsumerOffsets>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) epochs: Arc<LogEpochs>,
    /// Most messages that a search by unique id finds.
    pub(crate) unique_query_max_count: u32,
}

impl Lookups {
    /// The offset that a group committed for a queue; if it never did, 0 for a queue that still has its first message
    /// among the recent ones, else nothing, and the client decides where to begin.
    ///
    /// Source: `spec/protocol.md` 7.3.
    pub(crate) fn query_offset(&self, header: &QueryConsumerOffsetRequestHeader) -> Response {
        let sf_log_epoch = self.epochs.told(None);
        let found =
            |offset| Response::success().with_header(&QueryConsumerOffsetResponseHeader { offset, sf_log_epoch });
        let not_found = || not_found().with_header(&ConsumerOffsetNotFoundResponseHeader { sf_log_epoch });
        let QueryConsumerOffsetRequestHeader { consumer_group: group, topic, queue_id, .. } = header;
        let Ok(queue) = u32::try_from(*queue_id) else { return not_found() };
        if let Some(offset) = self.offsets.get(GroupQueue { group, topic, queue }) {
            return found(wire(offset));
        }
        let may_be_zero = header.set_zero_if_not_found != Some(false);
        if may_be_zero && self.first_message_is_recent(topic, queue) { found(0) } else { not_found() }
    }

    /// Keeps an offset for a group. It may be lower than before. An offset of a log that has been cut since is kept as
    /// far as it holds, and refused if nobody knows how far that is.
    pub(crate) fn commit_offset(&self, header: &UpdateConsumerOffsetRequestHeader) -> Response {
        let UpdateConsumerOffsetRequestHeader { consumer_group: group, topic, .. } = header;
        let queue = header.queue_id.and_then(|queue| u32::try_from(queue).ok());
        let offset = header.commit_offset.and_then(|offset| u64::try_from(offset).ok());
        let (Some(queue), Some(offset)) = (queue, offset) else {
            return Response::failure(ResponseCode::INVALID_PARAMETER, "queueId and commitOffset must not be negative");
        };
        let is_of_log = || came_with_the_log(self.commits.config.role, &self.store, topic, queue);
        if self.topics.shape(topic).is_none() && !is_of_log() {
            return Response::failure(ResponseCode::TOPIC_NOT_EXIST, format!("Topic {topic} not exist!"));
        }
        if self.groups.get_or_create(group, self.host.wall_ms()).is_none() {
            let remark = format!("Group {group} not exist!");
            return Response::failure(ResponseCode::SUBSCRIPTION_GROUP_NOT_EXIST, remark);
        }
        let Some(offset) = self.epochs.carry_over(header.sf_log_epoch, topic, queue, QueueOffset(offset)) else {
            let remark = format!("offset {offset} belongs to a log that has been cut since; pull to get its place");
            return Response::failure(ResponseCode::PULL_OFFSET_MOVED, remark);
        };
        self.commits.commit(GroupQueue { group, topic, queue }, offset);
        Response::success()
    }

    /// The offset at which messages of a time begin or end.
    pub(crate) fn search(&self, header: &SearchOffsetRequestHeader) -> Response {
        let boundary = match header.boundary_type {
            BoundaryType::Lower => TimeBoundary::Lower,
            BoundaryType::Upper => TimeBoundary::Upper,
        };
        let time_ms = header.timestamp;
        self.offset(header.queue_id, |queue| self.store.offset_by_time(&header.topic, queue, time_ms, boundary))
    }

    /// The end of a queue.
    pub(crate) fn max(&self, header: &GetMaxOffsetRequestHeader) -> Response {
        self.offset(header.queue_id, |queue| self.store.max_offset(&header.topic, queue))
    }

    /// The start of a queue.
    pub(crate) fn min(&self, header: &GetMinOffsetRequestHeader) -> Response {
        self.offset(header.queue_id, |queue| self.store.min_offset(&header.topic, queue))
    }

    /// When the first message of a queue was stored.
    pub(crate) fn earliest(&self, header: &GetMinOffsetRequestHeader) -> Response {
        let queue = u32::try_from(header.queue_id).ok();
        let timestamp = queue.and_then(|queue| self.store.earliest_store_ms(&header.topic, queue)).unwrap_or(-1);
        Response::success().with_header(&GetEarliestMsgStoretimeResponseHeader { timestamp })
    }

    /// One message by its place in the log.
    pub(crate) fn view(&self, header: &ViewMessageRequestHeader) -> Response {
        let record = u64::try_from(header.offset).ok().and_then(|phy| self.store.record_at(PhyOffset(phy)));
        match record {
            Some(record) => Response::success().with_body(record),
            None => {
                let remark = format!("can not find message by the offset, {}", header.offset);
                Response::failure(ResponseCode::SYSTEM_ERROR, remark)
            }
        }
    }

    /// Messages with a key, one behind the other in the order of the log. How many, a search by unique id does not say.
    ///
    /// Source: `spec/protocol.md` 7.6.
    pub(crate) fn by_key(&self, header: &QueryMessageRequestHeader) -> Response {
        let max_count = if header.unique_key_query == Some(true) {
            self.unique_query_max_count
        } else {
            u32::try_from(header.max_num).unwrap_or(0)
        };
        let found = self.store.query(&KeyQuery {
            topic: &header.topic,
            key: &header.key,
            max_count,
            begin_ms: header.begin_timestamp,
            end_ms: header.end_timestamp,
        });
        let reach = QueryMessageResponseHeader {
            index_last_update_timestamp: found.index_last_ms,
            index_last_update_phy_offset: i64::try_from(found.index_last_phy.0).unwrap_or(i64::MAX),
        };
        let response = if found.records.is_empty() {
            let remark = "can not find message, maybe time range not correct";
            Response::failure(ResponseCode::QUERY_NOT_FOUND, remark)
        } else {
            Response::success().with_body(found.records)
        };
        response.with_header(&reach)
    }

    /// Queues that do not exist have the offset 0.
    fn offset(&self, queue: i32, look_up: impl FnOnce(u32) -> QueueOffset) -> Response {
        let offset = u32::try_from(queue).map_or(0, |queue| wire(look_up(queue)));
        Response::success().with_header(&OffsetResponseHeader { offset })
    }

    fn first_message_is_recent(&self, topic: &str, queue_id: u32) -> bool {
        let result = self.store.get(&GetRequest {
            topic,
            queue_id,
            offset: QueueOffset(0),
            max_count: 1,
            max_bytes: 0,
            filter: None,
        });
        result.status == GetStatus::Found && !result.suggest_slave
    }
}

fn not_found() -> Response {
    let remark = "Not found, maybe this is the first time this group consumes the queue";
    Response::failure(ResponseCode::QUERY_NOT_FOUND, remark)
}
