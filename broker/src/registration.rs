//! How a broker makes itself known to every name server.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use host::Host;
use remoting::{
    Client, ClientConfig, Handler, Inbound, Peer, RegisterBrokerRequestHeader, RegisterBrokerResponseHeader, Reply,
    Request, Response, ResponseCode, UnregisterBrokerRequestHeader,
    body::{Body, RegisterBrokerBody},
};
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::{
    config::BrokerConfig,
    group_master::{GroupMaster, Master},
    identity::Identity,
    topics::Topics,
};

/// Bounds of the pause between two registrations. Source: `spec/protocol.md` 10.2.
const INTERVAL_MIN: Duration = Duration::from_secs(10);
const INTERVAL_MAX: Duration = Duration::from_secs(60);

/// A registration that failed is tried again after this, and one whose connection was lost.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Pause between two registrations of a slave that does not know its master: the answer would name it.
const MASTER_SEARCH_INTERVAL: Duration = Duration::from_secs(5);

/// How long taking leave of one name server may take.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Registers with every name server: at the start, now and then, after every change of topics, and again when the
/// connection was lost, because a name server forgets a broker whose connection closes.
pub(crate) struct Registration {
    host: Host,
    config: Arc<BrokerConfig>,
    topics: Arc<Topics>,
    identity: Arc<Identity>,
    master: Arc<GroupMaster>,
    client: Client,
    lost: Arc<Lost>,
}

/// Tells that the connection to a name server ended, by its address. Remembers one end that nobody waited for.
#[derive(Debug)]
struct Lost {
    connections: BTreeMap<String, Notify>,
}

impl Handler for Lost {
    fn handle(&self, _: &Peer, inbound: Inbound) -> Reply {
        Response::not_supported(inbound.request.code().number()).into()
    }

    fn closed(&self, peer: &Peer) {
        if let Some(lost) = self.connections.get(peer.address()) {
            lost.notify_one();
        }
    }
}

impl Lost {
    /// Ends when the connection to one of the name servers does.
    async fn connection(&self, namesrv: &str) {
        self.connections.get(namesrv).expect("made for all name servers").notified().await;
    }
}

impl Registration {
    pub(crate) fn new(
        host: &Host,
        config: Arc<BrokerConfig>,
        topics: Arc<Topics>,
        identity: Arc<Identity>,
        master: Arc<GroupMaster>,
    ) -> Registration {
        let connections = config.namesrv.iter().map(|namesrv| (namesrv.clone(), Notify::new())).collect();
        let lost = Arc::new(Lost { connections });
        let client = Client::new(ClientConfig::default(), Arc::clone(&lost) as Arc<dyn Handler>);
        Registration { host: host.clone(), config, topics, identity, master, client, lost }
    }

    /// Keeps the broker registered with one name server, until it is dropped.
    pub(crate) async fn keep(&self, namesrv: &str) {
        let mut changes = self.topics.file().watch();
        let mut was_good = true;
        loop {
            changes.mark_unchanged();
            let is_good = self.register(namesrv, was_good).await;
            was_good = is_good;
            if !is_good {
                self.host.sleep(RETRY_AFTER).await;
                continue;
            }
            let interval = self.interval();
            let pause =
                self.host.sleep(if host::buggify!("broker.registered-early") { interval / 20 } else { interval });
            host::select! {
                _ = changes.changed() => {}
                () = self.lost.connection(namesrv) => self.host.sleep(RETRY_AFTER).await,
                () = pause => {}
            }
        }
    }

    fn interval(&self) -> Duration {
        let usual = self.config.register_interval.clamp(INTERVAL_MIN, INTERVAL_MAX);
        let is_alone = !self.config.role.is_master() && !self.master.is_known();
        if is_alone { usual.min(MASTER_SEARCH_INTERVAL) } else { usual }
    }

    /// Registers once. A failure is told only after a success.
    async fn register(&self, namesrv: &str, was_good: bool) -> bool {
        host::gate!("broker.registering").await;
        let (request, body) = self.request();
        let answer = self.client.invoke(namesrv, request, body, self.config.register_timeout).await;
        let problem = match answer {
            Ok(response) if response.code == ResponseCode::SUCCESS => {
                if !was_good {
                    info!(namesrv, "registered again");
                }
                self.heard_of_master(namesrv, &response);
                return true;
            }
            Ok(response) => response.remark.unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        self.master.unreachable(namesrv);
        if was_good {
            warn!(namesrv, problem, "cannot register");
        }
        false
    }

    /// The answer to a slave says where its master is. A name server of Apache's tells it to masters, too.
    fn heard_of_master(&self, namesrv: &str, response: &Response) {
        if self.config.role.is_master() {
            return;
        }
        let is_some = |text: &String| !text.is_empty();
        match response.decode::<RegisterBrokerResponseHeader>() {
            Ok(told) => {
                let replication = told.ha_server_addr.filter(is_some);
                let master = told.master_addr.filter(is_some).map(|address| Master { address, replication });
                self.master.told(namesrv, master);
            }
            Err(error) => warn!(namesrv, %error, "cannot read who the master is"),
        }
    }

    fn request(&self) -> (Request, Bytes) {
        let mut wrapper = self.topics.wrapper();
        let permission = i32::try_from(self.config.permission).expect("permissions are a few bits");
        for topic in wrapper.topic_config_table.values_mut() {
            // What the broker as a whole does not allow, none of its topics does. Inheriting is not its business.
            topic.perm &= permission | !6;
        }
        let body = RegisterBrokerBody { topic_config_serialize_wrapper: wrapper, ..RegisterBrokerBody::default() };
        let body = if self.config.register_compressed { body.deflate() } else { body.encode() };
        let header = RegisterBrokerRequestHeader {
            broker_name: self.config.name.clone(),
            broker_addr: self.identity.address().to_string(),
            cluster_name: self.config.cluster.clone(),
            ha_server_addr: self.replication_address().to_string(),
            broker_id: self.config.broker_id().cast_signed(),
            heartbeat_timeout_millis: None,
            enable_acting_master: Some(false),
            compressed: Some(self.config.register_compressed),
            body_crc32: Some(message::body_crc(&body).cast_signed()),
        };
        (Request::RegisterBroker(header), body)
    }

    /// Where replicas connect.
    fn replication_address(&self) -> SocketAddr {
        let own = self.identity.address();
        let ip = self.config.replication_advertised.unwrap_or(own.ip());
        SocketAddr::new(ip, self.identity.replication_port())
    }

    /// Takes leave of all name servers at once, and closes the connections to them.
    pub(crate) async fn leave(&self) {
        let mut leaving = Vec::new();
        for namesrv in self.config.namesrv.clone() {
            let header = UnregisterBrokerRequestHeader {
                broker_name: self.config.name.clone(),
                broker_addr: self.identity.address().to_string(),
                cluster_name: self.config.cluster.clone(),
                broker_id: self.config.broker_id().cast_signed(),
            };
            let client = self.client.clone();
            leaving.push(self.host.spawn("broker.leave", async move {
                let request = Request::UnregisterBroker(header);
                if let Err(error) = client.invoke(&namesrv, request, Bytes::new(), LEAVE_TIMEOUT).await {
                    warn!(namesrv, %error, "cannot take leave; the name server will notice");
                }
            }));
        }
        for leave in leaving {
            // It has no result, and a panic has stopped the node already.
            let _ = leave.await;
        }
        self.client.shutdown().await;
    }
}
