//! A broker on a real socket and a client that speaks to it, for the tests of this folder.

#![allow(dead_code, reason = "each test binary uses its own part of the stage")]

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use host::Host;
use message::StoredMessage;
use remoting::{
    Client, ClientConfig, Handler, Inbound, NoHeader, Peer, PullMessageRequestHeader, PullMessageResponseHeader,
    RegisterBrokerResponseHeader, Reply, Request, Response, SendMessageRequestHeader, Server, ServerConfig,
    body::{Body, BrokerData, ClusterInfo, ConsumerData, HeartbeatData, SubscriptionData},
    settings::read_properties,
};
use staticfire_broker::{Broker, BrokerConfig};

/// How long anything may take.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// The machine's disk may be as full as it is.
const ANY_DISK: &str =
    "cleanFileForciblyEnable=false\ndiskMaxUsedSpaceRatio=100\nrocketmq.broker.diskSpaceWarningLevelRatio=1";

/// A configuration with small files under `root`, any port, and `more` lines.
pub fn config(root: &Path, more: &str) -> BrokerConfig {
    let port = if more.contains("listenPort") { "" } else { "listenPort=0" };
    let text = format!(
        "storePathRootDir={}\n{port}\nmappedFileSizeCommitLog=1MiB\nmappedFileSizeConsumeQueue=20000\n\
         maxHashSlotNum=100\nmaxIndexNum=400\n{ANY_DISK}\n{more}",
        root.display()
    );
    let (config, idle) = BrokerConfig::read(read_properties(&text, "test").unwrap()).unwrap();
    assert!(idle.is_empty(), "{idle:?}");
    config
}

/// Copies a directory with all that is in it, as a kill would leave it. If a file gets another name meanwhile, which is
/// how a broker replaces its tables, it begins anew.
pub fn copy_dir(from: &Path, to: &Path) {
    while let Err(error) = try_copy_dir(from, to) {
        assert!(error.kind() == std::io::ErrorKind::NotFound && from.is_dir(), "{}: {error}", from.display());
        std::fs::remove_dir_all(to).unwrap();
    }
}

fn try_copy_dir(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            try_copy_dir(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Runs a test on a node with an empty folder.
pub fn run<F>(test: impl FnOnce(Host, tempfile::TempDir) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let folder = tempfile::tempdir().unwrap();
    host::real::run("broker", |host| test(host, folder)).unwrap();
}

/// Runs a test against a broker with `more` settings.
pub fn with_broker<F>(more: &str, test: impl FnOnce(Host, Caller) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let more = more.to_owned();
    run(|host, folder| async move {
        let broker = Broker::start(config(folder.path(), &more)).await.unwrap();
        test(host, Caller::new(broker.local_addr())).await;
        broker.shutdown().await.unwrap();
    });
}

/// A client of one broker.
#[derive(Clone)]
pub struct Caller {
    pub client: Client,
    pub address: SocketAddr,
    /// What the broker asked this client.
    pub asked: Arc<Asked>,
}

/// Keeps the requests of the other side.
#[derive(Default)]
pub struct Asked {
    pub requests: Mutex<Vec<(Request, Bytes)>>,
}

impl Handler for Asked {
    fn handle(&self, _: &Peer, inbound: Inbound) -> Reply {
        self.requests.lock().unwrap().push((inbound.request, inbound.body));
        Response::success().into()
    }
}

impl Caller {
    pub fn new(address: SocketAddr) -> Caller {
        let asked = Arc::new(Asked::default());
        let client = Client::new(ClientConfig::default(), Arc::clone(&asked) as Arc<dyn Handler>);
        Caller { client, address, asked }
    }

    pub async fn ask(&self, request: Request, body: impl Into<Bytes>) -> Response {
        self.client.invoke(&self.address.to_string(), request, body.into(), TIMEOUT).await.unwrap()
    }

    pub async fn send(&self, header: SendMessageRequestHeader, body: &str) -> Response {
        self.ask(Request::SendMessageV2(header), body.to_owned()).await
    }

    pub async fn pull(&self, header: PullMessageRequestHeader) -> Pulled {
        let response = self.ask(Request::PullMessage(header), "").await;
        let header = response.decode().ok();
        let messages = StoredMessage::decode_all(response.body_bytes()).unwrap();
        Pulled { response, header, messages }
    }

    /// A heartbeat of one consumer group.
    pub async fn beat(&self, id: &str, group: &str, topic: &str) -> Response {
        let subscription =
            SubscriptionData { topic: topic.to_owned(), sub_string: "*".to_owned(), ..SubscriptionData::default() };
        let consumer = ConsumerData {
            group_name: group.to_owned(),
            subscription_data_set: vec![subscription],
            ..ConsumerData::default()
        };
        let data =
            HeartbeatData { client_id: id.to_owned(), consumer_data_set: vec![consumer], ..HeartbeatData::default() };
        self.ask(Request::HeartBeat(NoHeader), data.encode()).await
    }
}

/// The answer to a pull.
pub struct Pulled {
    pub response: Response,
    pub header: Option<PullMessageResponseHeader>,
    pub messages: Vec<StoredMessage>,
}

impl Pulled {
    /// The bodies as text.
    pub fn bodies(&self) -> Vec<String> {
        self.messages.iter().map(|message| String::from_utf8(message.message.body.to_vec()).unwrap()).collect()
    }
}

/// A send to queue 0 of `topic`, made from TBW102 if need be.
pub fn send_to(topic: &str, properties: &[(&str, &str)]) -> SendMessageRequestHeader {
    let properties: String = properties.iter().map(|(name, value)| format!("{name}\u{1}{value}\u{2}")).collect();
    SendMessageRequestHeader {
        producer_group: "pg".to_owned(),
        topic: topic.to_owned(),
        default_topic: "TBW102".to_owned(),
        default_topic_queue_nums: 4,
        queue_id: 0,
        sys_flag: 0,
        born_timestamp: 1,
        flag: 0,
        properties: Some(properties),
        reconsume_times: None,
        unit_mode: None,
        max_reconsume_times: None,
        batch: None,
        broker_name: None,
    }
}

/// A pull of queue 0 of `topic` that brings its own subscription and does not wait.
pub fn pull_from(topic: &str, queue_offset: i64) -> PullMessageRequestHeader {
    PullMessageRequestHeader {
        consumer_group: "g".to_owned(),
        topic: topic.to_owned(),
        queue_id: 0,
        queue_offset,
        max_msg_nums: 32,
        sys_flag: 4,
        commit_offset: 0,
        suspend_timeout_millis: 0,
        subscription: Some("*".to_owned()),
        sub_version: 0,
        expression_type: None,
        max_msg_bytes: None,
        request_source: None,
        proxy_forward_client_id: None,
        broker_name: None,
        sf_log_epoch: None,
    }
}

/// The same, waiting up to `time` for a message.
pub fn waiting(header: PullMessageRequestHeader, time: Duration) -> PullMessageRequestHeader {
    let suspend_timeout_millis = i64::try_from(time.as_millis()).unwrap();
    PullMessageRequestHeader { sys_flag: header.sys_flag | 2, suspend_timeout_millis, ..header }
}

/// A name server that tells whoever registers who the master is.
pub struct Names {
    pub server: Server,
    pub told: Arc<Told>,
}

/// What a [`Names`] tells, and what it was told.
#[derive(Default)]
pub struct Told {
    /// Addresses of the master, for requests and for replicas.
    pub master: Mutex<Option<(String, String)>>,
    /// The members of the group `broker-a`, by id.
    pub members: Mutex<BTreeMap<i64, String>>,
    /// Ids and addresses that registered.
    pub registered: Mutex<Vec<(i64, String)>>,
    /// On which connections.
    pub peers: Mutex<Vec<Peer>>,
}

impl Names {
    pub async fn start() -> Names {
        let told = Arc::new(Told::default());
        let listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
        let server = Server::start(ServerConfig::new(listen), Arc::clone(&told) as Arc<dyn Handler>).await.unwrap();
        Names { server, told }
    }

    /// A line of the settings of those who should use it.
    pub fn setting(&self) -> String {
        format!("namesrvAddr={}", self.server.local_addrs()[0])
    }

    /// The master from now on.
    pub fn set_master(&self, master: Option<&str>) {
        *self.told.master.lock().unwrap() = master.map(|address| (address.to_owned(), "127.0.0.1:1".to_owned()));
    }

    /// Closes all connections, and waits until somebody with this id registered again, which takes 2 s.
    pub async fn registered_again(&self, host: &Host, id: i64) {
        self.told.registered.lock().unwrap().clear();
        for peer in self.told.peers.lock().unwrap().drain(..) {
            peer.close();
        }
        while !self.told.registered.lock().unwrap().iter().any(|(registered, _)| *registered == id) {
            host.sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Handler for Told {
    fn handle(&self, peer: &Peer, inbound: Inbound) -> Reply {
        match inbound.request {
            Request::RegisterBroker(header) => {
                self.peers.lock().unwrap().push(peer.clone());
                self.registered.lock().unwrap().push((header.broker_id, header.broker_addr));
                let (master_addr, ha_server_addr) = self.master.lock().unwrap().clone().unzip();
                Response::success().with_header(&RegisterBrokerResponseHeader { ha_server_addr, master_addr }).into()
            }
            Request::GetBrokerClusterInfo(_) => {
                let group = BrokerData {
                    broker_addrs: self.members.lock().unwrap().clone(),
                    broker_name: "broker-a".to_owned(),
                    ..BrokerData::default()
                };
                let table = BTreeMap::from([(group.broker_name.clone(), group)]);
                let clusters = ClusterInfo { broker_addr_table: table, ..ClusterInfo::default() };
                Response::success().with_body(clusters.encode()).into()
            }
            _ => Response::success().into(),
        }
    }
}
