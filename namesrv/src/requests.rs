//! What a name server answers.

use std::sync::Arc;

use bytes::Bytes;
use host::{Host, time::Mono};
use remoting::{
    AddWritePermOfBrokerResponseHeader, GetKvConfigResponseHeader, GetRouteInfoRequestHeader, Handler, Inbound,
    KvConfigRequestHeader, Peer, PutKvConfigRequestHeader, QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader, RegisterBrokerRequestHeader, RegisterBrokerResponseHeader, Reply, Request,
    Response, ResponseCode, UnregisterBrokerRequestHeader, Version, WipeWritePermOfBrokerResponseHeader,
    body::{
        Body, BrokerMemberGroup, DataVersion, GetBrokerMemberGroupResponse, KvTable, RegisterBrokerBody, TopicList,
        TopicRouteData,
    },
    json::Dialect,
};
use tracing::{info, warn};

use crate::{
    config::NamesrvConfig,
    kv_configs::{KvConfigs, ORDER_TOPIC_CONFIG},
    route_table::{BROKER_LIFE, BrokerKey, Registered, Registration, RouteTable},
};

/// Bits of a topic's system flag: it belongs to a unit, or is subscribed to by one.
const UNIT: i32 = 1;
const UNIT_SUBSCRIBED: i32 = 2;

/// Callers from this version on read routes as standard JSON. Source: `spec/protocol.md` 10.1.
const READS_STANDARD_JSON: Version = Version::V4_9_4;

/// Answers requests from the tables of the name server.
pub(crate) struct Requests {
    pub(crate) host: Host,
    pub(crate) config: NamesrvConfig,
    pub(crate) routes: RouteTable,
    pub(crate) kv: Arc<KvConfigs>,
    /// From when on routes are given, if they are held back at first.
    pub(crate) ready: Mono,
}

impl Handler for Requests {
    fn handle(&self, peer: &Peer, inbound: Inbound) -> Reply {
        let Inbound { request, body, version, .. } = inbound;
        let code = request.code();
        match request {
            Request::GetRouteInfoByTopic(header) => self.route(&header, version),
            Request::RegisterBroker(header) => self.register(header, &body, version, peer),
            Request::UnregisterBroker(header) => self.unregister(&header),
            Request::QueryDataVersion(header) => self.query_data_version(&header, &body),
            Request::BrokerHeartbeat(header) => {
                self.routes.heartbeat(&key(header.cluster_name, header.broker_addr), self.host.now());
                Response::success()
            }
            Request::GetBrokerMemberGroup(header) => {
                let broker_addrs = self.routes.members(&header.broker_name);
                let group =
                    BrokerMemberGroup { broker_addrs, broker_name: header.broker_name, cluster: header.cluster_name };
                Response::success().with_body(GetBrokerMemberGroupResponse { broker_member_group: group }.encode())
            }
            Request::PutKvConfig(header) => return self.put_kv(header),
            Request::GetKvConfig(header) => self.get_kv(&header),
            Request::DeleteKvConfig(header) => return self.delete_kv(header),
            Request::GetKvListByNamespace(header) => self.kv_namespace(&header.namespace),
            Request::GetBrokerClusterInfo(_) => Response::success().with_body(self.routes.clusters().encode()),
            Request::WipeWritePermOfBroker(header) => {
                let count = count(self.routes.wipe_write_permission(&header.broker_name));
                Response::success().with_header(&WipeWritePermOfBrokerResponseHeader { wipe_topic_count: count })
            }
            Request::AddWritePermOfBroker(header) => {
                let count = count(self.routes.add_write_permission(&header.broker_name));
                Response::success().with_header(&AddWritePermOfBrokerResponseHeader { add_topic_count: count })
            }
            Request::DeleteTopicInNamesrv(header) => {
                self.routes.delete_topic(&header.topic, header.cluster_name.as_deref());
                Response::success()
            }
            Request::RegisterTopicInNamesrv(header) => self.register_topic(&header.topic, &body),
            Request::GetNamesrvConfig(_) => Response::success().with_body(self.config.show()),
            request => self.topic_list(&request).unwrap_or_else(|| Response::not_supported(code.number())),
        }
        .into()
    }

    fn closed(&self, peer: &Peer) {
        for broker in self.routes.connection_closed(peer.id()) {
            info!(cluster = broker.cluster, broker = broker.addr, "broker is gone, its connection closed");
        }
    }
}

impl Requests {
    fn route(&self, header: &GetRouteInfoRequestHeader, version: Version) -> Response {
        if self.host.now() < self.ready {
            return Response::failure(ResponseCode::SYSTEM_ERROR, "name server not ready");
        }
        let Some(mut route) = self.routes.route(&header.topic) else {
            let remark = format!("No topic route info in name server for the topic: {}", header.topic);
            return Response::failure(ResponseCode::TOPIC_NOT_EXIST, remark);
        };
        if self.config.order_message_enable {
            route.order_topic_conf = self.kv.get(ORDER_TOPIC_CONFIG, &header.topic);
        }
        let is_standard = version >= READS_STANDARD_JSON || header.accept_standard_json_only.unwrap_or(false);
        let mut dialect = if is_standard { Dialect::Standard } else { Dialect::Fastjson };
        if header.zone_mode.unwrap_or(false)
            && let Some(zone) = &header.zone_name
        {
            route = in_zone(route, zone);
            dialect = Dialect::Fastjson;
        }
        Response::success().with_body(route.encode_as(dialect))
    }

    fn register(&self, header: RegisterBrokerRequestHeader, body: &Bytes, version: Version, peer: &Peer) -> Response {
        let crc = header.body_crc32.unwrap_or(0);
        if crc != 0 && crc.cast_unsigned() != message::body_crc(body) {
            return Response::failure(ResponseCode::SYSTEM_ERROR, "crc32 not match");
        }
        let registered = match RegisterBrokerBody::decode_any(body, version) {
            Ok(registered) => registered.topic_config_serialize_wrapper,
            Err(error) => return Response::failure(ResponseCode::SYSTEM_ERROR, error.to_string()),
        };
        let life = header.heartbeat_timeout_millis.and_then(|ms| u64::try_from(ms).ok());
        let registration = Registration {
            broker: key(header.cluster_name, header.broker_addr),
            name: header.broker_name,
            id: header.broker_id,
            ha_addr: header.ha_server_addr,
            life: life.map_or(BROKER_LIFE, std::time::Duration::from_millis),
            acting_master: header.enable_acting_master,
            zone: None,
            version: registered.data_version,
            topics: registered.topic_config_table.into_values().collect(),
            connection: peer.id(),
        };
        let drop_missing = self.config.delete_topic_with_registration;
        let master = match self.routes.register(registration, drop_missing, self.host.now()) {
            Registered::Accepted { master } => master,
            Registered::Outdated => None,
            Registered::NotWhole => return Response::failure(ResponseCode::SYSTEM_ERROR, "register broker failed"),
        };
        let (master_addr, ha_server_addr) = master.map(|master| (master.addr, master.ha_addr)).unzip();
        let response = Response::success().with_header(&RegisterBrokerResponseHeader { ha_server_addr, master_addr });
        match self.kv.namespace(ORDER_TOPIC_CONFIG).filter(|_| self.config.return_order_topic_config) {
            Some(table) => response.with_body(KvTable { table }.encode()),
            None => response,
        }
    }

    fn unregister(&self, header: &UnregisterBrokerRequestHeader) -> Response {
        let broker = key(header.cluster_name.clone(), header.broker_addr.clone());
        self.routes.unregister(&broker, &header.broker_name);
        info!(cluster = broker.cluster, broker = broker.addr, "broker took its leave");
        Response::success()
    }

    fn query_data_version(&self, header: &QueryDataVersionRequestHeader, body: &Bytes) -> Response {
        let broker = key(header.cluster_name.clone(), header.broker_addr.clone());
        let known = self.routes.version(&broker);
        let asked = if body.is_empty() { None } else { DataVersion::decode(body).ok() };
        let changed = known.is_none() || known != asked;
        self.routes.heartbeat(&broker, self.host.now());
        let response = Response::success().with_header(&QueryDataVersionResponseHeader { changed });
        known.map_or(response.clone(), |known| response.with_body(known.encode()))
    }

    fn register_topic(&self, topic: &str, body: &Bytes) -> Response {
        match TopicRouteData::decode(body) {
            Ok(route) => {
                self.routes.register_topic(topic, route.queue_datas);
                Response::success()
            }
            Err(error) => Response::failure(ResponseCode::SYSTEM_ERROR, error.to_string()),
        }
    }

    fn put_kv(&self, header: PutKvConfigRequestHeader) -> Reply {
        let kv = Arc::clone(&self.kv);
        Reply::later(async move { saved(kv.put(header.namespace, header.key, header.value.unwrap_or_default()).await) })
    }

    fn delete_kv(&self, header: KvConfigRequestHeader) -> Reply {
        let kv = Arc::clone(&self.kv);
        Reply::later(async move { saved(kv.delete(&header.namespace, &header.key).await) })
    }

    fn get_kv(&self, header: &KvConfigRequestHeader) -> Response {
        let KvConfigRequestHeader { namespace, key } = header;
        match self.kv.get(namespace, key) {
            Some(value) => Response::success().with_header(&GetKvConfigResponseHeader { value: Some(value) }),
            None => {
                let remark = format!("No config item, Namespace: {namespace} Key: {key}");
                Response::failure(ResponseCode::QUERY_NOT_FOUND, remark)
            }
        }
    }

    fn kv_namespace(&self, namespace: &str) -> Response {
        match self.kv.namespace(namespace) {
            Some(table) => Response::success().with_body(KvTable { table }.encode()),
            None => Response::failure(ResponseCode::QUERY_NOT_FOUND, format!("No config item, Namespace: {namespace}")),
        }
    }

    /// The requests that are answered with names of topics; `None` for any other.
    fn topic_list(&self, request: &Request) -> Option<Response> {
        let config = &self.config;
        let (enabled, topics) = match request {
            Request::GetAllTopicListFromNamesrv(_) => (config.enable_all_topic_list, self.routes.topics()),
            Request::GetTopicsByCluster(header) => {
                (config.enable_topic_list, self.routes.topics_of_cluster(&header.cluster))
            }
            Request::GetUnitTopicList(_) => {
                (config.enable_topic_list, self.routes.topics_with_flags(|flags| flags & UNIT != 0))
            }
            Request::GetHasUnitSubTopicList(_) => {
                (config.enable_topic_list, self.routes.topics_with_flags(|flags| flags & UNIT_SUBSCRIBED != 0))
            }
            Request::GetHasUnitSubUnunitTopicList(_) => {
                let wanted = |flags| flags & UNIT == 0 && flags & UNIT_SUBSCRIBED != 0;
                (config.enable_topic_list, self.routes.topics_with_flags(wanted))
            }
            Request::GetSystemTopicListFromNs(_) => {
                let (topic_list, broker_addr) = self.routes.system_topics();
                return Some(Response::success().with_body(TopicList { broker_addr, topic_list }.encode()));
            }
            _ => return None,
        };
        Some(if enabled {
            Response::success().with_body(TopicList { broker_addr: None, topic_list: topics }.encode())
        } else {
            Response::failure(ResponseCode::SYSTEM_ERROR, "disable")
        })
    }
}

fn saved(result: std::io::Result<()>) -> Response {
    match result {
        Ok(()) => Response::success(),
        Err(error) => {
            warn!(%error, "cannot save the key-value configuration");
            Response::failure(ResponseCode::SYSTEM_ERROR, format!("cannot save the key-value configuration: {error}"))
        }
    }
}

/// The brokers of one zone, and those of groups that have no master. Source: `spec/protocol.md` 10.1.
fn in_zone(mut route: TopicRouteData, zone: &str) -> TopicRouteData {
    route.broker_datas.retain(|broker| {
        let is_same = broker.zone_name.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(zone));
        is_same || !broker.broker_addrs.contains_key(&0)
    });
    let names: Vec<&str> = route.broker_datas.iter().map(|broker| broker.broker_name.as_str()).collect();
    route.queue_datas.retain(|queues| names.contains(&queues.broker_name.as_str()));
    route
}

fn key(cluster: String, addr: String) -> BrokerKey {
    BrokerKey { cluster, addr }
}

fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
