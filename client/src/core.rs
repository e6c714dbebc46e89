//! What every client has: an identity, name servers, routes, connections to brokers, heartbeats.
//!
//! Each producer, consumer and admin has a core of its own, because each has a client id of its own.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use host::{Host, rand::Rng, task::TaskGroup};
use message::TEMPLATE_TOPIC;
use remoting::{ResponseCode, body::TopicRouteData};
use tokio::sync::Notify;
use tracing::{debug, info, warn};

use crate::{
    config::{ClientConfig, ClientTiming},
    consumer::member::Member,
    error::ClientError,
    producer::selector::PublishList,
    queue::MessageQueue,
};

mod calls;
mod heartbeat;
mod name_servers;
mod routes;
mod rpc;

pub(crate) use calls::{PullCall, PullOutcome, SendCall};
pub(crate) use heartbeat::subscription_data;
use name_servers::NameServers;
pub(crate) use routes::MASTER;
use routes::RouteTable;
use rpc::Rpc;

/// What a client is to the brokers.
#[derive(Debug, Clone)]
pub(crate) enum Role {
    Producer { group: Arc<str> },
    Consumer(Arc<Member>),
    Admin,
}

/// The part of a client that talks to name servers and brokers.
pub(crate) struct ClientCore {
    host: Host,
    id: String,
    ip: IpAddr,
    timing: ClientTiming,
    role: Role,
    rpc: Rpc,
    name_servers: NameServers,
    routes: RouteTable,
    /// Leaf lock: one draw at a time.
    rng: Mutex<Rng>,
    heartbeat_soon: Arc<Notify>,
}

impl ClientCore {
    /// Starts a core and the tasks that keep its routes and heartbeats fresh; who owns the group owns the tasks.
    ///
    /// Tries to learn the routes of the role's topics and to send a first heartbeat, but goes on without: name servers
    /// and brokers need not be there yet.
    pub(crate) async fn start(
        host: &Host,
        config: ClientConfig,
        role: Role,
    ) -> Result<(Arc<ClientCore>, TaskGroup), ClientError> {
        let ip = match config.client_ip {
            Some(ip) => ip,
            None => local_ip(host, &config).await,
        };
        let id = client_id(host, &config, ip);
        let mut rng = host.rng(&format!("client.core.{id}"));
        let name_servers = NameServers::new(config.name_servers, &mut rng);
        let heartbeat_soon = Arc::new(Notify::new());
        let rpc = Rpc::start(host, config.timing.connect, role.clone(), Arc::clone(&heartbeat_soon));
        let core = Arc::new(ClientCore {
            host: host.clone(),
            id,
            ip,
            timing: config.timing,
            role,
            rpc,
            name_servers,
            routes: RouteTable::new(),
            rng: Mutex::new(rng),
            heartbeat_soon,
        });
        info!(client = core.id, "client started");
        core.refresh_routes().await;
        core.heartbeat_all().await;
        let upkeep = TaskGroup::new(host);
        upkeep.spawn("client.routes", Arc::clone(&core).poll_routes());
        upkeep.spawn("client.heartbeat", Arc::clone(&core).beat());
        Ok((core, upkeep))
    }

    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// `ip@instance`, perhaps with a unit.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn ip(&self) -> IpAddr {
        self.ip
    }

    pub(crate) fn timing(&self) -> &ClientTiming {
        &self.timing
    }

    /// Closes all connections. The tasks of the core must have ended before.
    pub(crate) async fn close(&self) {
        self.rpc.close().await;
    }

    // ---- routes ----

    /// The queues that take messages of a topic. For a topic that nobody knows, those that brokers would give it.
    pub(crate) async fn publish_list(&self, topic: &Arc<str>) -> Result<Arc<PublishList>, ClientError> {
        if let Some(list) = self.routes.publish_list(topic).filter(|list| !list.queues.is_empty()) {
            return Ok(list);
        }
        let no_route = || ClientError::NoRoute { topic: Arc::clone(topic) };
        if self.refresh_route(topic).await? {
            // Known, but perhaps without a queue that takes messages now.
            return self.routes.publish_list(topic).filter(|list| !list.queues.is_empty()).ok_or_else(no_route);
        }
        let template = self.query_route(TEMPLATE_TOPIC).await?.ok_or_else(no_route)?;
        self.learn(topic, stand_in(template));
        self.routes.publish_list(topic).filter(|list| !list.queues.is_empty()).ok_or_else(no_route)
    }

    /// The queues that give messages of a topic.
    pub(crate) async fn subscribe_set(&self, topic: &Arc<str>) -> Result<Vec<MessageQueue>, ClientError> {
        if self.routes.subscribe_set(topic).is_none() {
            self.refresh_route(topic).await?;
        }
        self.routes.subscribe_set(topic).ok_or_else(|| ClientError::NoRoute { topic: Arc::clone(topic) })
    }

    /// The route of a topic as a name server knows it now.
    pub(crate) async fn fresh_route(&self, topic: &Arc<str>) -> Result<TopicRouteData, ClientError> {
        let route = self.query_route(topic).await?.ok_or_else(|| ClientError::NoRoute { topic: Arc::clone(topic) })?;
        self.learn(topic, route.clone());
        Ok(route)
    }

    /// The address of the master of a queue's broker; asks for the route once if it is not known.
    async fn master(&self, queue: &MessageQueue) -> Result<String, ClientError> {
        if let Some(addr) = self.routes.master(&queue.broker) {
            return Ok(addr);
        }
        self.refresh_route(&queue.topic).await?;
        let missing = || ClientError::BrokerNotFound { broker: Arc::clone(&queue.broker) };
        self.routes.master(&queue.broker).ok_or_else(missing)
    }

    /// Asks for the route of a topic and takes it in. False if no name server knows the topic; what was known before
    /// stays then.
    async fn refresh_route(&self, topic: &Arc<str>) -> Result<bool, ClientError> {
        let Some(route) = self.query_route(topic).await? else { return Ok(false) };
        self.learn(topic, route);
        Ok(true)
    }

    fn learn(&self, topic: &Arc<str>, route: TopicRouteData) {
        let first_turn = self.draw() as u32;
        if self.routes.update(topic, route, first_turn) {
            debug!(%topic, "route changed");
        }
    }

    /// Asks the name servers, one after the other within one time limit, until one answers.
    async fn query_route(&self, topic: &str) -> Result<Option<TopicRouteData>, ClientError> {
        let until = self.host.now() + self.timing.request;
        let mut last = ClientError::Deadline;
        for (asked, (at, addr)) in self.name_servers.in_turn().enumerate() {
            let left = until.since(self.host.now());
            let share = left / u32::try_from(self.name_servers.len() - asked).unwrap_or(u32::MAX);
            if share.is_zero() {
                break;
            }
            match self.route_from(addr, topic, share).await {
                Ok(route) => {
                    self.name_servers.answered(at);
                    return Ok(Some(route));
                }
                Err(ClientError::Broker { code: ResponseCode::TOPIC_NOT_EXIST, .. }) => {
                    self.name_servers.answered(at);
                    return Ok(None);
                }
                Err(error) => {
                    debug!(addr, topic, %error, "name server did not answer");
                    last = error;
                }
            }
        }
        Err(last)
    }

    /// Refreshes the routes of all topics in use.
    async fn refresh_routes(&self) {
        let mut topics = self.routes.topics();
        if let Role::Consumer(member) = &self.role {
            topics.extend(member.subscriptions().into_keys());
        }
        for topic in topics {
            if let Err(error) = self.refresh_route(&topic).await {
                debug!(%topic, %error, "route not refreshed");
            }
        }
    }

    async fn poll_routes(self: Arc<Self>) {
        loop {
            self.host.sleep(self.timing.route_poll).await;
            self.refresh_routes().await;
        }
    }

    // ---- heartbeats ----

    /// Sends heartbeats soon, out of turn.
    pub(crate) fn heartbeat_soon(&self) {
        self.heartbeat_soon.notify_one();
    }

    async fn beat(self: Arc<Self>) {
        let mut next = self.host.now() + self.timing.first_heartbeat;
        loop {
            host::select! {
                () = self.heartbeat_soon.notified() => {}
                () = self.host.sleep_until(next) => next = self.host.now() + self.timing.heartbeat,
            }
            self.heartbeat_all().await;
        }
    }

    /// Tells all brokers of this client: masters and slaves of a consumer, masters of a producer.
    async fn heartbeat_all(&self) {
        let Some(data) = heartbeat::of(&self.id, &self.role) else { return };
        self.routes.forget_offline();
        let masters_only = matches!(self.role, Role::Producer { .. });
        let mut addresses = self.routes.addresses();
        addresses.retain(|broker| broker.id == MASTER || !masters_only);
        join_all(addresses.into_iter().map(|broker| {
            let data = &data;
            async move {
                if let Err(error) = self.heartbeat(&broker.addr, data).await {
                    warn!(broker = %broker.broker, addr = broker.addr, %error, "heartbeat failed");
                }
            }
        }))
        .await;
    }

    /// Tells all brokers that this client leaves its group.
    pub(crate) async fn unregister(&self) {
        join_all(self.routes.addresses().into_iter().map(|broker| async move {
            if let Err(error) = self.unregister_at(&broker.addr).await {
                debug!(broker = %broker.broker, addr = broker.addr, %error, "not unregistered");
            }
        }))
        .await;
    }

    fn draw(&self) -> u64 {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }

    /// One of `count` things, each equally likely.
    fn draw_below(&self, count: usize) -> usize {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).below(count as u64) as usize
    }
}

impl std::fmt::Debug for ClientCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClientCore({})", self.id)
    }
}

/// The queues that brokers would give a topic: at most four on each broker that has the template.
fn stand_in(mut template: TopicRouteData) -> TopicRouteData {
    const QUEUES: i32 = 4;
    for data in &mut template.queue_datas {
        let queues = data.read_queue_nums.min(QUEUES);
        data.read_queue_nums = queues;
        data.write_queue_nums = queues;
    }
    template
}

/// `ip@instance`, and the unit if there is one. Source: `spec/client.md` 1.1.
fn client_id(host: &Host, config: &ClientConfig, ip: IpAddr) -> String {
    let instance = match &config.instance_name {
        Some(name) => name.clone(),
        None => format!("{}#{}", host.process_id(), host.now().as_nanos()),
    };
    match &config.unit_name {
        Some(unit) => format!("{ip}@{instance}@{unit}"),
        None => format!("{ip}@{instance}"),
    }
}

/// The address that this machine shows to a name server; the loopback address if none can be reached now.
async fn local_ip(host: &Host, config: &ClientConfig) -> IpAddr {
    let limit: Duration = config.timing.connect;
    for addr in &config.name_servers {
        let connecting = async { host.connect(host.resolve(addr).await?).await?.local_addr() };
        match host.timeout(limit, connecting).await {
            Ok(Ok(local)) => return local.ip(),
            Ok(Err(error)) => debug!(addr, %error, "name server not reached"),
            Err(error) => debug!(addr, %error, "name server not reached"),
        }
    }
    IpAddr::from([127, 0, 0, 1])
}
