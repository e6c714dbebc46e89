//! The nodes of a scenario on the stand: who there is, which program each runs, and how they start and go down.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use broker::{Broker, BrokerConfig};
use host::Host;
use namesrv::{Namesrv, NamesrvConfig};
use remoting::settings::Setting;
use tokio::sync::{Notify, watch};

use crate::{
    disk::{Backup, CrashReport, Durability, Outage, Timing},
    history::{Down, Event, History, Recorder},
    net::ImpairmentId,
    plan::Plan,
    points::POLL,
    scenario::{BrokerGroup, Fault, FaultKind, FileSystem, Kind, Port, Role, Settings, Topic, When},
    seed::name_hash,
    stand::{NodeId, NodeSpec, NodeStatus, Stand, StopSignal, Stopped},
    workload,
    world::nanos,
};

/// The node from which the stand's own questions come: it makes topics, watches offsets, and waits for convergence.
pub(crate) const PROBE: &str = "probe/0";

/// How long a node that is asked to stop may take.
const STOP_GRACE: Duration = Duration::from_secs(30);

/// Where a broker keeps its store on its disk.
pub(crate) const STORE_PATH: &str = "/store";

/// Sizes of index files where a scenario gives none.
const INDEX_SLOTS: &str = "100";
const INDEX_ENTRIES: &str = "400";

/// What part of a run it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Servers start, topics are made.
    Start,
    /// The workload runs, faults may happen.
    Active,
    /// All is healed.
    Settle,
    /// Nothing is pending any more, or time is over.
    End,
}

/// A cluster under test. All parts of the scenario layer share it.
pub(crate) struct Cluster {
    pub stand: Stand,
    pub plan: Arc<Plan>,
    pub recorder: Arc<Recorder>,
    /// Tells nodes and the supervisor which phase it is.
    pub phase: watch::Sender<Phase>,
    /// Tells those who are held at a gate that one has opened.
    pub gate_opened: Notify,
    /// Tells the stand's own client that there is something to do.
    pub wish_made: Notify,
    ids: BTreeMap<String, NodeId>,
    kinds: BTreeMap<String, Kind>,
    state: Mutex<State>, // Leaf lock.
}

/// What changes while a run goes on.
#[derive(Default)]
pub(crate) struct State {
    /// When the active phase began: planned times count from here.
    pub base: Duration,
    /// Nodes that should run, unless a fault keeps them down.
    pub wanted: BTreeSet<String>,
    /// How many faults keep a node down.
    pub down_by: BTreeMap<String, u32>,
    /// Nodes that are being stopped: their exit is no news.
    pub stopping: BTreeSet<String>,
    /// Nodes whose disk failed a write or a flush in their present life. They may refuse writes until they are
    /// restarted.
    pub ailing: BTreeSet<String>,
    /// The life of each node, from 1.
    pub lives: BTreeMap<String, u32>,
    /// Backups of disks, by the number of the fault that wants them.
    pub backups: BTreeMap<usize, Backup>,
    /// Faults in effect, by their number in the plan.
    pub faults: BTreeMap<usize, InEffect>,
    /// Whether faults may wait for points: from the begin of the active phase to its end.
    pub armed: bool,
    /// What the stand's own client is to ask of brokers.
    pub wishes: VecDeque<Wish>,
    /// How many brokers are still to be asked.
    pub unasked: usize,
    /// Queues of a topic on a broker group, where they were changed.
    pub queues: BTreeMap<(String, String), u32>,
    /// How often tasks of each node were polled while armed.
    pub polls: BTreeMap<String, u64>,
    /// How often each fault's point was passed, by the fault's number in the plan.
    pub visits: BTreeMap<usize, u32>,
    /// Gates that hold nobody any more, by the fault's number in the plan.
    pub gates_open: BTreeSet<usize>,
    /// How many planned messages each producer has begun.
    pub begun: BTreeMap<String, usize>,
    /// Sends on their way, by producer.
    pub sending: BTreeMap<String, u64>,
    /// Producers that have not sent their last message.
    pub producing: BTreeSet<String>,
    /// Slaves that were promoted, by broker group.
    pub promoted: BTreeMap<String, String>,
}

/// What an administrator is to ask of brokers.
#[derive(Debug, Clone)]
pub(crate) enum Wish {
    /// A topic becomes another one.
    Change(Change),
    /// Log files that have expired go.
    DeleteExpired {
        /// The fault that wants it.
        fault: String,
        /// At which broker.
        broker: String,
    },
}

/// What is to be done about a topic.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The fault that wants it.
    pub fault: String,
    /// The topic.
    pub topic: String,
    /// How many queues it gets; `None` if it keeps those it has, or had where it may be missing.
    pub queues: Option<u32>,
    /// Whether it counts as a change of the configuration.
    pub counts: bool,
    /// At which brokers.
    pub brokers: Vec<String>,
}

/// What belongs to a fault while it is in effect.
#[derive(Default)]
pub(crate) struct InEffect {
    /// What it has put on links.
    pub impairments: Vec<ImpairmentId>,
    /// How often it did what its kind counts, links and slow disks not included.
    pub hits: u64,
    /// How many requests its disk had been asked for before, while it was slow or stalled.
    pub slowed_before: u64,
    /// Whether it keeps its node down, of a fault that may wait for its moment.
    pub is_down: bool,
}

impl Cluster {
    /// Adds all nodes to the stand. None of them runs yet.
    pub fn build(stand: Stand, plan: Arc<Plan>, recorder: Arc<Recorder>) -> Result<Arc<Cluster>, String> {
        let mut nodes = plan.scenario.nodes();
        let kinds: BTreeMap<String, Kind> = nodes.iter().cloned().collect();
        nodes.push((PROBE.to_owned(), Kind::Producer));
        let mut ids = BTreeMap::new();
        let mut of_kind: BTreeMap<Kind, u16> = BTreeMap::new();
        for (name, kind) in nodes {
            let number = of_kind.entry(kind).or_default();
            *number += 1;
            let [high, low] = number.to_be_bytes();
            let group = plan.scenario.broker(group_of(&name));
            let disk_bytes = group.map_or(64 << 20, |group| group.disk_bytes);
            let durability = match group.map(|group| group.file_system) {
                Some(FileSystem::Is(durability)) => durability,
                Some(FileSystem::Any) | None => Durability::Strict,
            };
            let spec = NodeSpec {
                name: name.clone(),
                // 10.<kind>.x.y, where neither 10.k.0.0 nor a last byte of 0 or 255 can arise below 200 nodes a kind.
                ip: Ipv4Addr::new(10, kind as u8, high, low),
                disk_bytes,
                durability,
                timing: Timing::Ssd,
            };
            let id = stand.add_node(spec).map_err(|error| error.to_string())?;
            let waits =
                |fault: &Fault| matches!(&fault.when, When::On { point, node, .. } if point == POLL && *node == name);
            if plan.scenario.faults.iter().any(waits) {
                stand.watch_polls(id);
            }
            ids.insert(name, id);
        }
        let (phase, _) = watch::channel(Phase::Start);
        Ok(Arc::new(Cluster {
            stand,
            plan,
            recorder,
            phase,
            gate_opened: Notify::new(),
            wish_made: Notify::new(),
            ids,
            kinds,
            state: Mutex::default(),
        }))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is held")
    }

    /// The active phase begins: visits of points and polls count from here.
    pub fn arm(&self) {
        let polls = self.ids.iter().map(|(node, id)| (node.clone(), self.stand.polls(*id))).collect();
        let mut state = self.state();
        state.armed = true;
        state.base = self.stand.now();
        state.polls = polls;
    }

    /// It ends.
    pub fn disarm(&self) {
        let mut state = self.state();
        state.armed = false;
        for (node, polls) in &mut state.polls {
            *polls = self.stand.polls(self.ids[node]) - *polls;
        }
    }

    pub fn id(&self, node: &str) -> NodeId {
        self.ids[node]
    }

    /// All nodes by name, the stand's own included.
    pub fn ids(&self) -> &BTreeMap<String, NodeId> {
        &self.ids
    }

    pub fn is_phase(&self, phase: Phase) -> bool {
        *self.phase.borrow() == phase
    }

    /// Ends when the run reaches a phase.
    pub async fn reached(&self, phase: Phase) {
        let mut phases = self.phase.subscribe();
        let seen = phases.wait_for(|now| *now >= phase).await.is_ok();
        assert!(seen, "the cluster keeps the sender, and outlives whoever waits here");
    }

    /// How many queues a topic has on a broker group now.
    pub fn queues_of(&self, topic: &Topic, broker: &str) -> u32 {
        let changed = self.state().queues.get(&(topic.name.clone(), broker.to_owned())).copied();
        changed.unwrap_or(topic.queues)
    }

    /// The nodes of a kind, in the order of the file.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = String> {
        let nodes = self.plan.scenario.nodes();
        nodes.into_iter().filter(move |(_, other)| *other == kind).map(|(name, _)| name)
    }

    /// The address of a service, `ip:port`.
    pub fn address(&self, node: &str, port: Port) -> String {
        format!("{}:{}", self.stand.ip(self.id(node)), port.number())
    }

    /// The addresses of all name servers.
    pub fn name_servers(&self) -> Vec<String> {
        self.of_kind(Kind::Namesrv).map(|node| self.address(&node, Port::Namesrv)).collect()
    }

    /// Adds a record of a node's present life.
    pub fn record(&self, node: &str, build: impl FnOnce(&mut History) -> Event) {
        let life = self.state().lives.get(node).copied().unwrap_or(0);
        self.recorder.record(self.now(), Some((node, life)), build);
    }

    /// Adds a record of the whole run.
    pub fn record_run(&self, event: Event) {
        self.recorder.record(self.now(), None, |_| event);
    }

    /// True time since the run began, in nanoseconds.
    pub fn now(&self) -> u64 {
        nanos(self.stand.now())
    }

    /// Whether a process runs on the node, paused or not.
    pub fn is_up(&self, node: &str) -> bool {
        matches!(self.stand.status(self.id(node)), NodeStatus::Up { .. } | NodeStatus::Paused { .. })
    }

    // ---- starting and going down ----

    /// The node should run: it starts, unless it runs or a fault keeps it down.
    pub fn want(self: &Arc<Cluster>, node: &str) {
        let kept_down = {
            let mut state = self.state();
            state.wanted.insert(node.to_owned());
            state.down_by.get(node).is_some_and(|faults| *faults > 0)
        };
        if !kept_down && !self.is_up(node) {
            self.start(node);
        }
    }

    fn start(self: &Arc<Cluster>, node: &str) {
        {
            let mut state = self.state();
            *state.lives.entry(node.to_owned()).or_default() += 1;
            state.ailing.remove(node);
            // Sends of an earlier life ended with it.
            state.sending.remove(node);
        }
        self.record(node, |_| Event::NodeUp);
        let id = self.id(node);
        let (cluster, name) = (Arc::clone(self), node.to_owned());
        match self.kinds.get(node) {
            Some(Kind::Namesrv) => {
                self.stand.start(id, move |host, stop| run_namesrv(Arc::clone(&cluster), host, stop));
            }
            Some(Kind::Broker) => {
                self.stand.start(id, move |host, stop| run_broker(Arc::clone(&cluster), name.clone(), host, stop));
            }
            Some(Kind::Producer) => {
                self.stand
                    .start(id, move |host, stop| workload::produce(Arc::clone(&cluster), name.clone(), host, stop));
            }
            Some(Kind::Consumer) => {
                self.stand
                    .start(id, move |host, stop| workload::consume(Arc::clone(&cluster), name.clone(), host, stop));
            }
            None => self.stand.start(id, move |host, stop| super::probe::watch(Arc::clone(&cluster), host, stop)),
        }
    }

    /// The process dies, and it is recorded how.
    pub fn kill(&self, node: &str, how: Down) {
        if self.is_up(node) {
            self.stand.kill(self.id(node));
            self.record(node, |_| Event::NodeDown(how, String::new()));
        }
    }

    /// Machines lose their power at one moment. `crash` keys what their disks keep. Tells how many pages read garbage
    /// from then on.
    pub fn power_loss(&self, nodes: &[&str], outage: impl Into<Outage>, crash: u64) -> u64 {
        let ids: Vec<NodeId> = nodes.iter().map(|node| self.id(node)).collect();
        let reports = self.stand.power_loss(&ids, outage, crash);
        let garbage = reports.iter().map(|report| report.garbage_pages).sum();
        for (node, CrashReport { dirty_pages, lost_pages, torn_pages, .. }) in nodes.iter().zip(reports) {
            self.record(node, |_| Event::NodeDown(Down::PowerLoss, String::new()));
            self.record(node, |_| Event::DiskCrash { dirty: dirty_pages, lost: lost_pages, torn: torn_pages });
        }
        garbage
    }

    /// A machine loses its power, and its disk is another one: an empty one, or one with a backup. Its topics are made
    /// again as soon as it answers, as an operator would do it.
    pub fn replace_disk(&self, node: &str, backup: Option<&Backup>, fault: &Fault) {
        let CrashReport { dirty_pages, lost_pages, torn_pages, .. } =
            self.stand.replace_disk(self.id(node), backup, name_hash(&fault.id));
        self.record(node, |_| Event::NodeDown(Down::PowerLoss, String::new()));
        self.record(node, |_| Event::DiskCrash { dirty: dirty_pages, lost: lost_pages, torn: torn_pages });
        self.record(node, |_| Event::DiskError(fault.kind.name(), "/".to_owned()));
        let broker = group_of(node).to_owned();
        for topic in self.plan.scenario.topics.iter().filter(|topic| topic.brokers.contains(&broker)) {
            let (fault, topic) = (fault.id.clone(), topic.name.clone());
            let brokers = vec![broker.clone()];
            self.ask(Wish::Change(Change { fault, topic, queues: None, counts: false, brokers }));
        }
    }

    /// Whether a fault keeps a broker from taking messages of a topic.
    pub fn is_drained(&self, topic: &str, broker: &str) -> bool {
        self.in_effect().iter().any(|(_, fault)| {
            matches!(&fault.kind, FaultKind::Drain { node, topic: of } if of == topic && group_of(node) == broker)
        })
    }

    /// The faults that are in effect, with their numbers in the plan, in its order.
    pub fn in_effect(&self) -> Vec<(usize, &Fault)> {
        self.state().faults.keys().map(|number| (*number, &self.plan.scenario.faults[*number])).collect()
    }

    /// The stand's own client is to ask something of brokers, as soon as they answer.
    pub fn ask(&self, wish: Wish) {
        let mut state = self.state();
        state.unasked += match &wish {
            Wish::Change(change) => change.brokers.len(),
            Wish::DeleteExpired { .. } => 1,
        };
        state.wishes.push_back(wish);
        drop(state);
        self.wish_made.notify_one();
    }

    /// The process is asked to stop, and is killed if it takes too long.
    pub async fn stop(&self, node: &str) {
        if !self.is_up(node) {
            return;
        }
        self.state().stopping.insert(node.to_owned());
        let give_up = self.stand.now() + STOP_GRACE;
        let stopped = self.stand.stop(self.id(node), STOP_GRACE).await;
        self.state().stopping.remove(node);
        match stopped {
            Stopped::Exited(Ok(())) => self.record(node, |_| Event::NodeDown(Down::Stop, String::new())),
            Stopped::Exited(Err(why)) => self.record(node, |_| Event::NodeDown(Down::Exit, why)),
            // Another fault took it away meanwhile, and has said so.
            Stopped::Killed if self.stand.now() < give_up => {}
            Stopped::Killed => self.record(node, |_| Event::NodeDown(Down::StopKilled, String::new())),
            Stopped::WasDown => {}
        }
    }

    /// The slave takes the place of its master, as an operator does it: the master stays away, the slave is stopped and
    /// started with another role.
    pub async fn promote(self: &Arc<Cluster>, slave: &str) {
        self.dismiss(&self.master_of(group_of(slave))).await;
        self.hold_down(slave);
        self.stop(slave).await;
        self.state().promoted.insert(group_of(slave).to_owned(), slave.to_owned());
        self.record(slave, |_| Event::Promoted);
        self.let_up(slave);
    }

    /// The node that is, or was last, the master of a broker group.
    pub fn master_of(&self, group: &str) -> String {
        self.state().promoted.get(group).cloned().unwrap_or_else(|| format!("{group}/0"))
    }

    /// The node should no longer run.
    pub async fn dismiss(&self, node: &str) {
        self.state().wanted.remove(node);
        self.stop(node).await;
    }

    // ---- faults in effect ----

    /// When a fault ends that begins now.
    pub fn end_of(&self, fault: usize) -> Duration {
        let lasts = self.plan.scenario.faults[fault].lasts;
        lasts.map_or(self.state().base + self.plan.scenario.active, |lasts| self.stand.now() + lasts.least)
    }

    pub fn is_in_effect(&self, fault: usize) -> bool {
        self.state().faults.contains_key(&fault)
    }

    /// Keeps what a fault has put on links, so that it goes when the fault ends.
    pub fn keep(&self, fault: usize, impairments: &[ImpairmentId]) {
        if let Some(in_effect) = self.state().faults.get_mut(&fault) {
            in_effect.impairments.extend(impairments);
        }
    }

    /// Takes some of it away, before the fault ends.
    pub fn lift(&self, fault: usize, impairments: &[ImpairmentId]) {
        if let Some(in_effect) = self.state().faults.get_mut(&fault) {
            in_effect.impairments.retain(|kept| !impairments.contains(kept));
        }
        for impairment in impairments {
            self.stand.lift(*impairment);
        }
    }

    /// A fault did so often what its kind counts. False if it is over.
    pub fn count_hits(&self, fault: usize, hits: u64) -> bool {
        let mut state = self.state();
        let in_effect = state.faults.get_mut(&fault);
        in_effect.map(|in_effect| in_effect.hits += hits).is_some()
    }

    /// One more fault keeps the node down.
    pub fn hold_down(&self, node: &str) {
        *self.state().down_by.entry(node.to_owned()).or_default() += 1;
    }

    /// One fault less keeps the node down; it starts again if it was the last, and it should run.
    pub fn let_up(self: &Arc<Cluster>, node: &str) {
        let wanted = {
            let mut state = self.state();
            let faults = state.down_by.entry(node.to_owned()).or_default();
            *faults = faults.saturating_sub(1);
            *faults == 0 && state.wanted.contains(node)
        };
        if wanted && !self.is_up(node) {
            self.start(node);
        }
    }
}

/// The group part of `group/instance`.
pub(crate) fn group_of(node: &str) -> &str {
    node.rsplit_once('/').map_or(node, |(group, _)| group)
}

/// The number part of `group/instance`.
pub(crate) fn instance_of(node: &str) -> u32 {
    node.rsplit_once('/').and_then(|(_, instance)| instance.parse().ok()).unwrap_or(0)
}

/// An error with its causes, in one line.
pub(crate) fn in_one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Settings of a scenario as the readers of the roles take them.
pub(crate) fn settings<'a>(settings: &'a Settings, file: &'a str) -> impl Iterator<Item = Setting> + 'a {
    settings.iter().map(move |(key, value)| Setting { key: key.clone(), value: value.clone(), at: file.to_owned() })
}

async fn run_namesrv(cluster: Arc<Cluster>, host: Host, stop: StopSignal) -> Result<(), String> {
    let scenario = &cluster.plan.scenario;
    let (mut config, _) =
        NamesrvConfig::read(settings(&scenario.namesrv_config, &scenario.name)).map_err(|error| in_one_line(&error))?;
    config.bind = IpAddr::V4(cluster.stand.ip(cluster.id(host.node())));
    config.port = Port::Namesrv.number();
    let namesrv = Namesrv::start(config).await.map_err(|error| in_one_line(&error))?;
    stop.requested().await;
    namesrv.shutdown().await;
    Ok(())
}

async fn run_broker(cluster: Arc<Cluster>, node: String, _: Host, stop: StopSignal) -> Result<(), String> {
    let group = cluster.plan.scenario.broker(group_of(&node)).ok_or("a broker node belongs to a group")?;
    let mut config = Some(broker_config(&cluster, group, &node)?);
    while let Some(settings) = config.take() {
        let broker = Broker::start(settings).await.map_err(|error| in_one_line(&error))?;
        host::select! {
            () = stop.requested() => {}
            again = broker.restart_wanted() => config = Some(again),
        }
        broker.shutdown().await.map_err(|error| in_one_line(&error))?;
    }
    Ok(())
}

pub(super) fn broker_config(cluster: &Cluster, group: &BrokerGroup, node: &str) -> Result<BrokerConfig, String> {
    let setting = |key: &str, value: &str| Setting { key: key.into(), value: value.into(), at: node.to_owned() };
    // The place of the store comes first, because keys of single directories may follow.
    let root = setting("storePathRootDir", STORE_PATH);
    // RocketMQ's index files take 420 MB each; small ones are filled and deleted within a run.
    let index = [setting("maxHashSlotNum", INDEX_SLOTS), setting("maxIndexNum", INDEX_ENTRIES)];
    let all = std::iter::once(root).chain(index).chain(settings(&group.config, &group.name));
    let (mut config, _) = BrokerConfig::read(all).map_err(|error| in_one_line(&error))?;
    config.name.clone_from(&group.name);
    let is_master = cluster.master_of(&group.name) == node;
    config.id = if is_master { 0 } else { u64::from(instance_of(node)) };
    config.role = match group.replicas[instance_of(node) as usize] {
        // Whoever is promoted has the slaves that are left, and waits for them as its master did if there are any.
        Role::Slave if is_master && group.replicas.len() > 2 => role_of(group.replicas[0]),
        Role::Slave if is_master => broker::Role::AsyncMaster,
        role => role_of(role),
    };
    config.namesrv = cluster.name_servers();
    config.bind = IpAddr::V4(cluster.stand.ip(cluster.id(node)));
    config.port = Port::Client.number();
    Ok(config)
}

fn role_of(role: Role) -> broker::Role {
    match role {
        Role::AsyncMaster => broker::Role::AsyncMaster,
        Role::SyncMaster => broker::Role::SyncMaster,
        Role::Slave => broker::Role::Slave,
    }
}
