//! Which part of the broker answers which request.

use std::sync::Arc;

use bytes::Bytes;
use remoting::{Handler, Inbound, Peer, Reply, Request, RequestCode, Response};
use store::Store;

use crate::{
    admin::Admin,
    config::BrokerConfig,
    lookups::Lookups,
    pull::Pulls,
    reports::Reports,
    send::{Sender, Sends},
    send_back::SendBacks,
    sessions::Sessions,
    slave,
};

/// The parts that answer. Each owns what it needs; the router only knows which is which.
pub(crate) struct Router {
    pub(crate) config: Arc<BrokerConfig>,
    pub(crate) store: Arc<Store>,
    pub(crate) sends: Arc<Sends>,
    pub(crate) send_backs: Arc<SendBacks>,
    pub(crate) pulls: Arc<Pulls<Peer>>,
    pub(crate) lookups: Lookups,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) admin: Admin,
    pub(crate) reports: Reports,
}

/// The second of the server's addresses serves everything but pulls. Source: `spec/protocol.md` 1.11.
const FAST_LISTENER: usize = 1;

impl Handler for Router {
    fn handle(&self, peer: &Peer, inbound: Inbound) -> Reply {
        let code = inbound.request.code();
        if host::mutant!("task-left-after-request") {
            host::Host::current().spawn("broker.left", std::future::pending::<()>());
        }
        let is_pull = matches!(code, RequestCode::PullMessage | RequestCode::LitePullMessage);
        if is_pull && peer.listener() == FAST_LISTENER {
            return Response::not_supported(code.number()).into();
        }
        if !self.config.role.is_master()
            && let Some(refused) = slave::refuse(code, self.config.replication.slave_read)
        {
            return refused.into();
        }
        match code {
            RequestCode::SendMessage | RequestCode::SendMessageV2 | RequestCode::SendBatchMessage => {
                self.send(peer, inbound)
            }
            RequestCode::HeartBeat => self.sessions.heartbeat(peer, &inbound),
            _ => {
                let Inbound { request, body, version, .. } = inbound;
                match request {
                    Request::PullMessage(header) => self.pulls.pull(header, false),
                    Request::LitePullMessage(header) => self.pulls.pull(header, true),
                    Request::ConsumerSendMsgBack(header) => self.send_backs.send_back(&header, version),
                    Request::UnregisterClient(header) => self.sessions.unregister(peer, &header).into(),
                    request => self.consumer_request(request, body),
                }
            }
        }
    }

    fn closed(&self, peer: &Peer) {
        self.sessions.closed(peer);
    }
}

impl Router {
    fn send(&self, peer: &Peer, inbound: Inbound) -> Reply {
        let (Request::SendMessage(header) | Request::SendMessageV2(header) | Request::SendBatchMessage(header)) =
            inbound.request
        else {
            return Response::not_supported(inbound.request.code().number()).into();
        };
        let address = peer.remote_addr().expect("a connection that brought a request stands");
        self.sends.send(header, inbound.body, Sender { address, version: inbound.version })
    }

    /// Requests of consumers about offsets, members and queues.
    fn consumer_request(&self, request: Request, body: Bytes) -> Reply {
        match request {
            Request::QueryConsumerOffset(header) => self.lookups.query_offset(&header),
            Request::UpdateConsumerOffset(header) => self.lookups.commit_offset(&header),
            Request::SearchOffsetByTimestamp(header) => self.lookups.search(&header),
            Request::GetMaxOffset(header) => self.lookups.max(&header),
            Request::GetMinOffset(header) => self.lookups.min(&header),
            Request::GetEarliestMsgStoretime(header) => self.lookups.earliest(&header),
            Request::ViewMessageById(header) => self.lookups.view(&header),
            Request::QueryMessage(header) => self.lookups.by_key(&header),
            Request::GetConsumerListByGroup(header) => self.sessions.members(&header),
            Request::LockBatchMq(_) => self.sessions.lock(&body),
            Request::UnlockBatchMq(_) => self.sessions.unlock(&body),
            Request::CheckClientConfig(_) => self.sessions.check_client(&body),
            request => return self.admin_request(request, &body),
        }
        .into()
    }

    /// Requests of administrators that change something.
    fn admin_request(&self, request: Request, body: &Bytes) -> Reply {
        match request {
            Request::UpdateAndCreateTopic(header) => self.admin.put_topic(header),
            Request::UpdateAndCreateTopicList(_) => self.admin.put_topic_list(body),
            Request::DeleteTopicInBroker(header) => self.admin.delete_topic(&header),
            Request::UpdateAndCreateSubscriptionGroup(_) => self.admin.put_group(body),
            Request::UpdateAndCreateSubscriptionGroupList(_) => self.admin.put_group_list(body),
            Request::DeleteSubscriptionGroup(header) => self.admin.delete_group(&header),
            Request::DeleteExpiredCommitLog(_) => {
                self.store.delete_expired_files();
                Response::success().into()
            }
            request => self.report(&request).into(),
        }
    }

    /// Requests that only ask.
    fn report(&self, request: &Request) -> Response {
        match request {
            Request::GetAllTopicConfig(_) => self.reports.all_topics(),
            Request::GetAllSubscriptionGroupConfig(_) => self.reports.all_groups(),
            Request::GetAllConsumerOffset(_) => self.reports.all_offsets(),
            Request::GetAllDelayOffset(_) => self.reports.all_delay_offsets(),
            Request::GetAllMessageRequestMode(_) => self.reports.all_request_modes(),
            Request::GetTopicConfig(header) => self.reports.topic(header),
            Request::GetSubscriptionGroupConfig(header) => self.reports.group(&header.group),
            Request::GetBrokerConfig(_) => self.reports.settings(),
            Request::GetBrokerRuntimeInfo(_) => self.reports.runtime(),
            Request::GetBrokerHaStatus(_) => self.reports.replication(),
            Request::GetTopicStatsInfo(header) => self.reports.topic_stats(header),
            Request::GetConsumeStats(header) => self.reports.consume_stats(header),
            Request::GetConsumerConnectionList(header) => self.reports.consumers(&header.consumer_group),
            Request::GetProducerConnectionList(header) => self.reports.producers(&header.producer_group),
            Request::QueryTopicConsumeByWho(header) => self.reports.groups_of_topic(&header.topic),
            request => Response::not_supported(request.code().number()),
        }
    }
}
