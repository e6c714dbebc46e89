//! A broker and name server in one, as small as the tests allow: it keeps messages and offsets in memory and does what
//! a test tells it to do.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use message::{Draft, PhyOffset, QueueOffset, Stamp, SysFlag};
use remoting::{
    ConsumerGroupRequestHeader, GetMinOffsetRequestHeader, Handler, Inbound, LogEpoch, OffsetResponseHeader, Payload,
    Peer, PullMessageRequestHeader, PullMessageResponseHeader, QueryConsumerOffsetResponseHeader, Reply, Request,
    Response, ResponseCode, SendMessageRequestHeader, SendMessageResponseHeader, Server, ServerConfig,
    UpdateConsumerOffsetRequestHeader,
    body::{Body, BrokerData, ConsumerList, HeartbeatData, QueueData, TopicRouteData},
};
use tokio::sync::Notify;

/// What becomes of the next send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is not stored, and this is the answer.
    Refuse(ResponseCode),
    /// It is stored, and this is the answer.
    Store(ResponseCode),
    /// It is stored and never answered.
    Swallow,
}

/// What a group did, as the broker saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentBack {
    pub phy: i64,
    pub level: i32,
}

#[derive(Default)]
struct State {
    /// Messages of each queue of each topic.
    queues: BTreeMap<(String, i32), Vec<Bytes>>,
    /// The first offset that is still there.
    min: i64,
    offsets: BTreeMap<(String, String, i32), i64>,
    commits: Vec<i64>,
    /// Of every commit with the next request.
    epochs: Vec<Option<LogEpoch>>,
    /// How often a group asked for its offset.
    queries: usize,
    epoch: Option<LogEpoch>,
    /// What is left of the queues of the epoch before.
    kept: i64,
    refuse_commit: bool,
    members: BTreeMap<String, BTreeMap<String, Peer>>,
    fates: VecDeque<Fate>,
    always: Option<Fate>,
    sent_back: Vec<SentBack>,
    refuse_send_back: bool,
    retry_copies: Vec<SendMessageRequestHeader>,
    sends: Vec<SendMessageRequestHeader>,
    pulls: Vec<PullMessageRequestHeader>,
    /// The broker to pull from next, as every answer says.
    suggested: i64,
    refuse_pulls: bool,
}

impl State {
    fn append(&mut self, topic: &str, queue: i32, flag: i32, sys_flag: i32, properties: &str, body: &[u8]) -> i64 {
        let entries = self.queues.entry((topic.to_owned(), queue)).or_default();
        let offset = entries.len() as u64;
        let draft = Draft {
            topic,
            queue_id: queue as u32,
            flag,
            sys_flag: SysFlag(sys_flag),
            born_ms: 1,
            born_host: "127.0.0.1:1".parse().unwrap(),
            store_host: "127.0.0.1:2".parse().unwrap(),
            reconsume_times: 0,
            prepared_phy: PhyOffset(0),
            body,
            properties,
        };
        let mut record = Vec::new();
        draft.encode(&mut record).unwrap();
        let phy = PhyOffset(offset * 1000);
        message::stamp(&mut record, Stamp { queue_offset: QueueOffset(offset), phy, store_ms: 2 });
        entries.push(Bytes::from(record));
        offset as i64
    }
}

pub struct Fake {
    pub name: String,
    queues: i32,
    state: Mutex<State>,
    grown: Arc<Notify>,
    /// All brokers of the cluster, for routes: addresses by id, by name.
    cluster: Mutex<BTreeMap<String, BTreeMap<i64, String>>>,
}

/// Starts brokers with these names, `a/1` for a slave of the group `a`; each also answers for routes. Gives back their servers, which must be kept.
pub async fn cluster(names: &[&str], queues: i32) -> (Vec<Arc<Fake>>, Vec<Server>, Vec<String>) {
    let mut fakes = Vec::new();
    let mut servers = Vec::new();
    let mut addrs = Vec::new();
    let mut groups: BTreeMap<String, BTreeMap<i64, String>> = BTreeMap::new();
    for name in names {
        let fake = Arc::new(Fake {
            name: (*name).to_owned(),
            queues,
            state: Mutex::default(),
            grown: Arc::new(Notify::new()),
            cluster: Mutex::default(),
        });
        let handler = Arc::new(Shared(Arc::clone(&fake)));
        let listen: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let server = Server::start(ServerConfig::new([listen]), handler).await.unwrap();
        let addr = server.local_addrs()[0].to_string();
        let (group, id) = name.split_once('/').map_or((*name, 0), |(group, id)| (group, id.parse().unwrap()));
        groups.entry(group.to_owned()).or_default().insert(id, addr.clone());
        addrs.push(addr);
        fakes.push(fake);
        servers.push(server);
    }
    for fake in &fakes {
        *fake.cluster.lock().unwrap() = groups.clone();
    }
    (fakes, servers, addrs)
}

impl Fake {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// From now on every send ends like this.
    pub fn always(&self, fate: Fate) {
        self.state().always = Some(fate);
    }

    /// The next send ends like this.
    pub fn next(&self, fate: Fate) {
        self.state().fates.push_back(fate);
    }

    /// Stores a message directly.
    pub fn put(&self, topic: &str, queue: i32, body: &str, tag: Option<&str>) {
        let mut message = message::Message::new(topic, body.to_owned());
        if let Some(tag) = tag {
            message = message.with_tags(tag).unwrap();
        }
        self.append(topic, queue, 0, 0, message.properties.as_encoded(), body.as_bytes());
    }

    pub fn stored(&self, topic: &str) -> usize {
        self.state().queues.iter().filter(|((of, _), _)| of == topic).map(|(_, queue)| queue.len()).sum()
    }

    /// From now on, every answer to a pull suggests this broker for the next.
    pub fn suggest(&self, id: i64) {
        self.state().suggested = id;
    }

    /// From now on it is not read.
    pub fn refuse_pulls(&self) {
        self.state().refuse_pulls = true;
    }

    pub fn pulls(&self) -> Vec<PullMessageRequestHeader> {
        self.state().pulls.clone()
    }

    pub fn sends(&self) -> Vec<SendMessageRequestHeader> {
        self.state().sends.clone()
    }

    pub fn sent_back(&self) -> Vec<SentBack> {
        self.state().sent_back.clone()
    }

    pub fn refuse_send_back(&self) {
        self.state().refuse_send_back = true;
    }

    pub fn retry_copies(&self) -> Vec<SendMessageRequestHeader> {
        self.state().retry_copies.clone()
    }

    pub fn offset(&self, group: &str, topic: &str, queue: i32) -> Option<i64> {
        self.state().offsets.get(&(group.to_owned(), topic.to_owned(), queue)).copied()
    }

    pub fn set_offset(&self, group: &str, topic: &str, queue: i32, offset: i64) {
        self.state().offsets.insert((group.to_owned(), topic.to_owned(), queue), offset);
    }

    pub fn commits(&self) -> Vec<i64> {
        self.state().commits.clone()
    }

    /// The epochs in which offsets were committed.
    pub fn epochs(&self) -> Vec<Option<i64>> {
        self.state().epochs.iter().map(|epoch| epoch.map(|epoch| epoch.0)).collect()
    }

    pub fn queries(&self) -> usize {
        self.state().queries
    }

    /// The next acknowledged commit is answered as if nobody knew its log any more.
    pub fn refuse_commit(&self) {
        self.state().refuse_commit = true;
    }

    /// From now on it tells epochs.
    pub fn begin_epoch(&self, epoch: i64) {
        self.state().epoch = Some(LogEpoch(epoch));
    }

    /// Changes one byte of a stored record, counted from its end for a negative place; gives back what it was.
    pub fn spoil(&self, topic: &str, queue: i32, offset: usize, at: isize, byte: u8) -> u8 {
        let mut state = self.state();
        let record = &mut state.queues.get_mut(&(topic.to_owned(), queue)).unwrap()[offset];
        let mut bytes = record.to_vec();
        let at = at.rem_euclid(bytes.len() as isize) as usize;
        let was = std::mem::replace(&mut bytes[at], byte);
        *record = Bytes::from(bytes);
        was
    }

    /// Stores a message whose body is said to be compressed, and is not.
    pub fn put_not_compressed(&self, topic: &str, queue: i32, body: &str) {
        let flag = SysFlag(0).with_compression(Some(message::Compression::Zlib));
        self.append(topic, queue, 0, flag.0, "", body.as_bytes());
    }

    /// Does to a queue what a power loss does, and fills it again: all in one moment, as if clients had been slow.
    pub fn lose_and_fill(&self, topic: &str, queue: i32, kept: usize, epoch: i64, bodies: &[&str]) {
        {
            let mut state = self.state();
            state.queues.get_mut(&(topic.to_owned(), queue)).unwrap().truncate(kept);
            (state.epoch, state.kept) = (Some(LogEpoch(epoch)), kept as i64);
            for offset in state.offsets.values_mut() {
                *offset = (*offset).min(kept as i64);
            }
            for body in bodies {
                state.append(topic, queue, 0, 0, "", body.as_bytes());
            }
        }
        self.grown.notify_waiters();
    }

    pub fn members(&self, group: &str) -> BTreeSet<String> {
        self.state().members.get(group).into_iter().flat_map(BTreeMap::keys).cloned().collect()
    }

    fn append(&self, topic: &str, queue: i32, flag: i32, sys_flag: i32, properties: &str, body: &[u8]) -> i64 {
        let offset = self.state().append(topic, queue, flag, sys_flag, properties, body);
        self.grown.notify_waiters();
        offset
    }

    fn send(&self, header: SendMessageRequestHeader, body: &[u8]) -> Reply {
        let fate = {
            let mut state = self.state();
            state.sends.push(header.clone());
            if header.topic.starts_with("%RETRY%") {
                state.retry_copies.push(header.clone());
            }
            state.fates.pop_front().or(state.always).unwrap_or(Fate::Store(ResponseCode::SUCCESS))
        };
        if let Fate::Refuse(code) = fate {
            return Response::failure(code, "refused by the test").into();
        }
        let properties = header.properties.as_deref().unwrap_or_default();
        let items = if header.batch == Some(true) {
            message::decode_batch(body).unwrap().into_iter().map(|item| (item.body, item.properties)).collect()
        } else {
            vec![(body, properties)]
        };
        let ids = vec!["7F00000100002A9F0000000000000000"; items.len()].join(",");
        let mut first = None;
        for (body, properties) in items {
            let offset = self.append(&header.topic, header.queue_id, header.flag, header.sys_flag, properties, body);
            first.get_or_insert(offset);
        }
        match fate {
            Fate::Swallow => Reply::later(std::future::pending()),
            Fate::Store(code) => Response::success()
                .with_code(code)
                .with_header(&SendMessageResponseHeader {
                    msg_id: ids,
                    queue_id: header.queue_id,
                    queue_offset: first.unwrap_or(0),
                    transaction_id: None,
                    batch_uniq_id: None,
                    recall_handle: None,
                    msg_region: Some("DefaultRegion".to_owned()),
                    trace_on: Some(true),
                })
                .into(),
            Fate::Refuse(_) => unreachable!("handled above"),
        }
    }

    fn route(&self, topic: &str) -> Response {
        // Retry topics exist once a member has introduced itself.
        let known =
            !topic.starts_with("%RETRY%") || self.state().members.contains_key(topic.trim_start_matches("%RETRY%"));
        if !known || topic == "unknown" || topic == "TBW102" {
            return Response::failure(ResponseCode::TOPIC_NOT_EXIST, "no such topic");
        }
        let cluster = self.cluster.lock().unwrap();
        let queues = if topic.starts_with("%RETRY%") { 1 } else { self.queues };
        let route = TopicRouteData {
            broker_datas: cluster
                .iter()
                .map(|(name, addrs)| BrokerData {
                    broker_name: name.clone(),
                    cluster: "c".to_owned(),
                    broker_addrs: addrs.clone(),
                    ..BrokerData::default()
                })
                .collect(),
            queue_datas: cluster
                .keys()
                .map(|name| QueueData {
                    broker_name: name.clone(),
                    read_queue_nums: queues,
                    write_queue_nums: queues,
                    perm: 6,
                    ..QueueData::default()
                })
                .collect(),
            ..TopicRouteData::default()
        };
        Response::success().with_body(route.encode())
    }

    fn heartbeat(&self, peer: &Peer, body: &Bytes) {
        let data = HeartbeatData::decode(body).unwrap();
        for consumer in data.consumer_data_set {
            let joined = self
                .state()
                .members
                .entry(consumer.group_name.clone())
                .or_default()
                .insert(data.client_id.clone(), peer.clone());
            if joined.is_none() {
                self.notify(&consumer.group_name);
            }
        }
    }

    fn notify(&self, group: &str) {
        let peers: Vec<Peer> =
            self.state().members.get(group).into_iter().flat_map(BTreeMap::values).cloned().collect();
        for peer in peers {
            let header = ConsumerGroupRequestHeader { consumer_group: group.to_owned() };
            // A connection that has just ended needs no notification.
            drop(peer.send_one_way(Request::NotifyConsumerIdsChanged(header), Payload::EMPTY));
        }
    }

    /// The answer to a pull as things stand; `None` if there is nothing yet.
    fn pull_now(&self, header: &PullMessageRequestHeader) -> Option<Response> {
        let state = self.state();
        let empty = Vec::new();
        let entries = state.queues.get(&(header.topic.clone(), header.queue_id)).unwrap_or(&empty);
        let max = entries.len() as i64;
        let is_of_lost_log = header.sf_log_epoch.is_some_and(|epoch| Some(epoch) != state.epoch);
        let (code, next, body) = if is_of_lost_log && header.queue_offset > state.kept {
            (ResponseCode::PULL_OFFSET_MOVED, state.kept, Vec::new())
        } else if header.queue_offset < state.min {
            (ResponseCode::PULL_OFFSET_MOVED, state.min, Vec::new())
        } else if header.queue_offset > max {
            (ResponseCode::PULL_OFFSET_MOVED, max, Vec::new())
        } else if header.queue_offset == max {
            return None;
        } else {
            let from = header.queue_offset as usize;
            let to = entries.len().min(from + header.max_msg_nums as usize);
            (ResponseCode::SUCCESS, to as i64, entries[from..to].to_vec())
        };
        let fields = PullMessageResponseHeader {
            suggest_which_broker_id: state.suggested,
            next_begin_offset: next,
            min_offset: state.min,
            max_offset: max,
            offset_delta: None,
            topic_sys_flag: None,
            group_sys_flag: None,
            forbidden_type: None,
            sf_log_epoch: state.epoch,
        };
        Some(Response::success().with_code(code).with_header(&fields).with_body(body))
    }

    fn commit(&self, group: &str, topic: &str, queue: i32, offset: i64, epoch: Option<LogEpoch>) {
        let mut state = self.state();
        let is_of_lost_log = epoch.is_some_and(|epoch| Some(epoch) != state.epoch);
        let offset = if is_of_lost_log { offset.min(state.kept) } else { offset };
        state.commits.push(offset);
        state.epochs.push(epoch);
        state.offsets.insert((group.to_owned(), topic.to_owned(), queue), offset);
    }
}

/// The handler; a type of its own because pulls that are held need the broker.
struct Shared(Arc<Fake>);

impl Handler for Shared {
    fn handle(&self, peer: &Peer, inbound: Inbound) -> Reply {
        let fake = &self.0;
        match inbound.request {
            Request::GetRouteInfoByTopic(header) => fake.route(&header.topic).into(),
            Request::HeartBeat(_) => {
                fake.heartbeat(peer, &inbound.body);
                Response::success().into()
            }
            Request::UnregisterClient(header) => {
                if let Some(group) = header.consumer_group {
                    fake.state().members.entry(group.clone()).or_default().remove(&header.client_id);
                    fake.notify(&group);
                }
                Response::success().into()
            }
            Request::GetConsumerListByGroup(header) => {
                let ids = fake.members(&header.consumer_group).into_iter().collect();
                Response::success().with_body(ConsumerList { consumer_id_list: ids }.encode()).into()
            }
            Request::SendMessageV2(header) | Request::SendBatchMessage(header) => fake.send(header, &inbound.body),
            Request::PullMessage(header) => {
                fake.state().pulls.push(header.clone());
                if fake.state().refuse_pulls {
                    return Response::failure(ResponseCode::SYSTEM_BUSY, "refused by the test").into();
                }
                if header.sys_flag & 1 != 0 {
                    let PullMessageRequestHeader { consumer_group: group, topic, queue_id, commit_offset, .. } =
                        &header;
                    fake.commit(group, topic, *queue_id, *commit_offset, header.sf_log_epoch);
                }
                let fake = Arc::clone(fake);
                Reply::later(async move {
                    loop {
                        let grown = fake.grown.notified();
                        match fake.pull_now(&header) {
                            Some(response) => return response,
                            None => grown.await,
                        }
                    }
                })
            }
            Request::QueryConsumerOffset(header) => {
                let sf_log_epoch = fake.state().epoch;
                let offset = fake.offset(&header.consumer_group, &header.topic, header.queue_id);
                fake.state().queries += 1;
                match offset {
                    Some(offset) => {
                        let header = QueryConsumerOffsetResponseHeader { offset, sf_log_epoch };
                        Response::success().with_header(&header).into()
                    }
                    None => Response::failure(ResponseCode::QUERY_NOT_FOUND, "none").into(),
                }
            }
            Request::UpdateConsumerOffset(header) => {
                if std::mem::take(&mut fake.state().refuse_commit) {
                    return Response::failure(ResponseCode::PULL_OFFSET_MOVED, "refused by the test").into();
                }
                let UpdateConsumerOffsetRequestHeader { consumer_group: group, topic, queue_id, commit_offset, .. } =
                    header;
                fake.commit(&group, &topic, queue_id.unwrap(), commit_offset.unwrap(), header.sf_log_epoch);
                Response::success().into()
            }
            Request::GetMaxOffset(header) => {
                let offset = fake.state().queues.get(&(header.topic, header.queue_id)).map_or(0, Vec::len) as i64;
                Response::success().with_header(&OffsetResponseHeader { offset }).into()
            }
            Request::GetMinOffset(GetMinOffsetRequestHeader { .. }) => {
                let offset = fake.state().min;
                Response::success().with_header(&OffsetResponseHeader { offset }).into()
            }
            Request::ConsumerSendMsgBack(header) => {
                let mut state = fake.state();
                if state.refuse_send_back {
                    return Response::failure(ResponseCode::SYSTEM_ERROR, "refused by the test").into();
                }
                state.sent_back.push(SentBack { phy: header.offset, level: header.delay_level });
                Response::success().into()
            }
            other => Response::not_supported(other.code().number()).into(),
        }
    }
}

/// Runs a test as a node of the real machine.
pub fn on_node<F>(test: impl FnOnce(host::Host) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    host::real::run("test", test).unwrap();
}

/// Waits until something holds, for ten seconds at most.
pub async fn until(host: &host::Host, what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        host.sleep(Duration::from_millis(10)).await;
    }
    panic!("not within ten seconds: {what}");
}
