//! A running broker.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use host::{
    Host,
    task::TaskGroup,
    worker::{Stop, Worker, stopped},
};
use message::UniqueIds;
use remoting::{
    Handler, ListenError, Peer, SendFailureResponseHeader, Server, ServerConfig,
    body::{ConsumerOffsetTable, DelayOffsetTable, MessageRequestModes, SubscriptionGroupWrapper},
};
use store::{Store, StoreConfig, StoreError, config_file::ConfigFile};
use tracing::{info, warn};

use crate::{
    admin::Admin,
    clients::Clients,
    commits::Commits,
    config::{BrokerConfig, Refusal, Role},
    delayed::DelayedMessages,
    group_check::{GroupCheck, Rival},
    group_master::GroupMaster,
    groups::{self, Groups, Unknown},
    identity::Identity,
    log_epochs::LogEpochs,
    lookups::Lookups,
    offsets::ConsumerOffsets,
    pull::Pulls,
    queue_locks::QueueLocks,
    registration::Registration,
    replication::{Replicas, ReplicationStatus, Stream},
    reports::Reports,
    request_modes::RequestModes,
    router::Router,
    send::{Sends, properties::BrokerProperties},
    send_back::SendBacks,
    sessions::Sessions,
    system,
    table_copy::TableCopy,
    table_file::Chain,
    topics::{StoredTopics, Topics},
};

/// Pause between two looks for clients without heartbeats. Source: `spec/protocol.md` 17.1.
const CLIENT_SCAN_INTERVAL: Duration = Duration::from_secs(10);

/// No table is written more often than this, whatever the configuration says.
const SAVE_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// How far below its own port a broker listens for those who avoid the queue of pulls.
const FAST_PORT_BELOW: u16 = 2;

/// Why a broker cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store, or a file of settings beside it, cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file beside the store says what cannot be. It is left as it is.
    #[error("`{}`: {problem}", .path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the topic or group.
        problem: String,
    },
    /// An address to listen on cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A group has one master, and another broker is that of this group already.
    #[error("the group `{group}` has a master, which answers at {address}: stop it, or start this one as a slave")]
    MasterLives {
        /// The name of the group.
        group: String,
        /// Where the other one answers.
        address: String,
    },
    /// A setting that this broker cannot work with.
    #[error("{key} = `{value}`: {problem}")]
    Setting {
        /// RocketMQ's key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// A broker: it stores messages and gives them to consumers.
///
/// Dropping it stops it as a crash does; [`shutdown`](Broker::shutdown) loses nothing and leaves no task behind.
pub struct Broker {
    config: Arc<BrokerConfig>,
    server: Server,
    registration: Arc<Registration>,
    /// Of a slave.
    copy: Option<Arc<TableCopy>>,
    tasks: TaskGroup,
    /// Who writes the tables. Taken by whoever stops the broker. Leaf lock.
    savers: Mutex<Vec<Worker>>,
    replicas: Arc<Replicas>,
    /// Copies the log. Taken by whoever stops the broker. Leaf lock.
    stream: Mutex<Option<Stream>>,
    tables: Arc<Tables>,
    store: Arc<Store>,
}

/// What a broker keeps in files beside the store.
struct Tables {
    host: Host,
    store: Arc<Store>,
    topics: Arc<Topics>,
    groups: Arc<Groups>,
    offsets: Arc<ConsumerOffsets>,
    delayed: Arc<DelayedMessages>,
    modes: Arc<RequestModes>,
    topics_file: ConfigFile,
    groups_file: ConfigFile,
    offsets_file: ConfigFile,
    delayed_file: ConfigFile,
    modes_file: ConfigFile,
}

impl Broker {
    /// Opens the store, loads the tables, listens, and registers with the name servers from then on. Call it inside a
    /// node.
    ///
    /// # Errors
    /// If another broker has the store, files are damaged, an address is taken, or settings contradict each other.
    /// The files are as they were then, but for a recovery that the store needed.
    pub async fn start(config: BrokerConfig) -> Result<Broker, StartError> {
        let refused = |Refusal { key, value, problem }| StartError::Setting { key, value, problem };
        config.check().map_err(refused)?;
        tell_role(&config);
        let host = Host::current();
        let config = Arc::new(config);
        let is_copy = !config.role.is_master();
        let store = Arc::new(Store::open(StoreConfig { is_copy, ..config.store.clone() }).await?);
        // If this fails, the store stays as after a crash, so that the next start begins the epoch.
        let epochs = LogEpochs::open(&host, &store, &settings_folder(&config), config.role).await?;
        match Broker::start_on(host, config, Arc::clone(&store), epochs).await {
            Ok(broker) => Ok(broker),
            Err(error) => {
                // The store did nothing wrong: it is left as after a clean stop.
                if let Err(error) = store.shutdown().await {
                    warn!(error = %Chain(&error), "the store did not stop cleanly");
                }
                Err(error)
            }
        }
    }

    async fn start_on(
        host: Host,
        config: Arc<BrokerConfig>,
        store: Arc<Store>,
        epochs: LogEpochs,
    ) -> Result<Broker, StartError> {
        let identity = Arc::new(Identity::new(config.advertised_ip(), config.port));
        let tables = Arc::new(Tables::load(&host, &config, &store, &identity).await?);
        if config.role.is_master() {
            check_group(&host, &config, &tables, &identity).await?;
        }
        let master = Arc::new(GroupMaster::new(config.replication.master_address.clone()));
        let replicas = Arc::new(Replicas::new(&host, &config, &store, &master));
        let parts = Parts::new(&host, &config, &tables, &identity, &Arc::new(epochs), &replicas);
        let mut listen = vec![SocketAddr::new(config.bind, config.port)];
        if let Some(fast) = config.port.checked_sub(FAST_PORT_BELOW).filter(|port| *port > 0) {
            listen.push(SocketAddr::new(config.bind, fast));
        }
        let server_config = ServerConfig { idle: config.idle_limit, ..ServerConfig::new(listen) };
        let server = Server::start(server_config, Arc::new(parts.router) as Arc<dyn Handler>).await?;
        identity.listening(server.local_addrs()[0].port());
        let stream = replicas.start(&host, &config, &store, identity.replication_port()).await?;
        if let Some(port) = stream.port() {
            identity.replicating(port);
        }
        let tasks = TaskGroup::new(&host);
        let copy = (!config.role.is_master()).then(|| Arc::new(table_copy(&tables, &identity, &master)));
        if let Some(copy) = copy.clone() {
            tasks.spawn("broker.copy-tables", async move { copy.keep().await });
        }
        let registration =
            Arc::new(Registration::new(&host, Arc::clone(&config), Arc::clone(&tables.topics), identity, master));
        spawn_tasks(&tasks, &config, &tables, &parts.sessions, &registration);
        let savers = Mutex::new(savers(&host, &config, &tables));
        info!(addr = %server.local_addrs()[0], name = config.name, "broker started");
        let stream = Mutex::new(Some(stream));
        Ok(Broker { config, server, registration, copy, tasks, savers, replicas, stream, tables, store })
    }

    /// Ends when the broker has to be stopped and started again, with the settings that this gives: a slave cuts its log
    /// while nobody reads it. Never for a master.
    pub async fn restart_wanted(&self) -> BrokerConfig {
        let cut_at = Some(self.replicas.cut_wanted().await);
        let mut config = BrokerConfig::clone(&self.config);
        config.store.cut_at = cut_at;
        config
    }

    /// The address it listens on, with the real port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addrs()[0]
    }

    /// How copying the log goes.
    #[must_use]
    pub fn replication(&self) -> ReplicationStatus {
        self.replicas.status()
    }

    /// Where it serves slaves, with the real port; `None` if it is a slave, or stopped.
    #[must_use]
    pub fn replication_addr(&self) -> Option<SocketAddr> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.address()
    }

    /// Takes leave of the name servers, closes all connections, ends all tasks, writes all tables and closes the store
    /// cleanly, in this order.
    ///
    /// # Errors
    /// If the store could not be closed cleanly; the next start recovers it then.
    pub async fn shutdown(&self) -> Result<(), StoreError> {
        self.registration.leave().await;
        self.server.shutdown().await;
        self.tasks.shutdown().await;
        if let Some(copy) = &self.copy {
            copy.close().await;
        }
        // A table that is being written is written to its end: what began on the machine cannot be taken back, and
        // would get in the way of the last writing.
        let savers = std::mem::take(&mut *self.savers.lock().unwrap_or_else(PoisonError::into_inner));
        for saver in savers {
            saver.stop().await;
        }
        // On a slow disk a sync may take longer than anyone who sends waits for it; the last writing needs its end.
        while self.store.flush().await == store::Flushed::TimedOut {}
        self.tables.save().await;
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(stream) = stream {
            stream.stop().await;
        }
        self.store.shutdown().await
    }
}

/// Says in the log what the role means where that is not what was written.
fn tell_role(config: &BrokerConfig) {
    if config.role.is_master() && config.id != 0 {
        warn!(brokerId = config.id, "a master is number 0 of its group, whatever brokerId says");
    }
    if config.role == Role::SyncMaster {
        let copies = config.replication.copies(config.role);
        match config.replication.in_sync_replicas {
            None => info!(copies, "inSyncReplicas is not set: a synchronous master waits for one slave"),
            Some(1) => warn!("inSyncReplicas=1: this synchronous master waits for no slave"),
            Some(_) => {}
        }
    }
}

/// What a master asks its group before it serves.
async fn check_group(
    host: &Host,
    config: &Arc<BrokerConfig>,
    tables: &Tables,
    identity: &Identity,
) -> Result<(), StartError> {
    let check = GroupCheck {
        host: host.clone(),
        config: Arc::clone(config),
        store: Arc::clone(&tables.store),
        offsets: Arc::clone(&tables.offsets),
        client: TableCopy::client(),
    };
    let own = identity.address().to_string();
    let rival = check.run(&own).await.err();
    rival.map_or(Ok(()), |Rival { address }| Err(StartError::MasterLives { group: config.name.clone(), address }))
}

fn unknown_groups(config: &BrokerConfig) -> Unknown {
    match config.role {
        _ if !config.auto_create_group => Unknown::Refused,
        Role::Slave => Unknown::Assumed,
        Role::AsyncMaster | Role::SyncMaster => Unknown::Made,
    }
}

/// Where the files beside the store lie.
fn settings_folder(config: &BrokerConfig) -> PathBuf {
    config.store.root.join("config")
}

impl Tables {
    /// Reads the files, and adds what every broker has.
    async fn load(
        host: &Host,
        config: &BrokerConfig,
        store: &Arc<Store>,
        identity: &Arc<Identity>,
    ) -> Result<Tables, StartError> {
        let folder = settings_folder(config);
        let file = |name: &str| ConfigFile::new(folder.join(name));
        let (topics_file, groups_file) = (file("topics.json"), file("subscriptionGroup.json"));
        let (offsets_file, delayed_file) = (file("consumerOffset.json"), file("delayOffset.json"));
        let wrong = |name: &str| {
            let path = folder.join(name);
            move |problem| StartError::Table { path, problem }
        };
        let stored_topics: StoredTopics = topics_file.load().await?.unwrap_or_default();
        stored_topics.check().map_err(wrong("topics.json"))?;
        let topics = Topics::new(stored_topics);
        let stored_groups: SubscriptionGroupWrapper = groups_file.load().await?.unwrap_or_default();
        groups::check(&stored_groups).map_err(wrong("subscriptionGroup.json"))?;
        let groups = Groups::new(stored_groups, unknown_groups(config));
        let mut stored_offsets: ConsumerOffsetTable = offsets_file.load().await?.unwrap_or_default();
        if config.role.is_master() {
            // They are a slave's.
            stored_offsets.sf_committed_alone = None;
        }
        let offsets = ConsumerOffsets::new(stored_offsets, config.offsets_version_step);
        let modes_file = file("messageRequestMode.json");
        let stored_modes: MessageRequestModes = modes_file.load().await?.unwrap_or_default();
        let stored_delays: DelayOffsetTable = delayed_file.load().await?.unwrap_or_default();
        let delayed = DelayedMessages::new(host, Arc::clone(store), config, Arc::clone(identity), stored_delays);

        let now_ms = host.wall_ms();
        let missing = |topic: &remoting::body::TopicConfig| topics.shape(&topic.topic_name).is_none();
        topics.put(system::topics(config).into_iter().filter(missing).collect(), now_ms);
        let missing = |group: &remoting::body::SubscriptionGroupConfig| groups.get(&group.group_name).is_none();
        groups.put(system::groups().into_iter().filter(missing).collect(), now_ms);
        let lowered = offsets.clamp(|topic, queue| store.max_offset(topic, queue));
        if lowered > 0 {
            warn!(lowered, "consumer offsets lay beyond their queues");
        }
        host::point!("broker.offsets-loaded", offsets.len());
        Ok(Tables {
            host: host.clone(),
            store: Arc::clone(store),
            topics: Arc::new(topics),
            groups: Arc::new(groups),
            offsets: Arc::new(offsets),
            delayed: Arc::new(delayed),
            modes: Arc::new(RequestModes::new(stored_modes)),
            topics_file,
            groups_file,
            offsets_file,
            delayed_file,
            modes_file,
        })
    }

    /// Writes the consumer offsets if they changed. The log comes first: no offset on disk lies beyond what is there.
    async fn save_offsets(&self) {
        let Some(table) = self.offsets.take_changes() else { return };
        let is_durable = self.store.flush().await == store::Flushed::Done;
        host::gate!("broker.offsets-persisting", table.offset_table.len()).await;
        let saved = if is_durable { self.offsets_file.save(&table).await } else { Ok(()) };
        if let Err(error) = &saved {
            warn!(error = %Chain(error), "cannot save the consumer offsets");
        }
        if is_durable && saved.is_ok() {
            host::point!("broker.offsets-persisted", table.offset_table.len());
        } else {
            self.offsets.keep_changes();
        }
    }

    /// Writes everything that its file does not have yet.
    async fn save(&self) {
        let topics = || self.topics.snapshot();
        if !self.topics.is_saved(topics().0) {
            self.topics.file().write(&self.topics_file, &topics).await;
        }
        let groups = || self.groups.snapshot();
        if !self.groups.is_saved(groups().0) {
            self.groups.file().write(&self.groups_file, &groups).await;
        }
        if !self.modes.is_saved() {
            self.modes.file().write(&self.modes_file, &|| self.modes.snapshot()).await;
        }
        self.save_offsets().await;
        self.delayed.save(&self.delayed_file).await;
    }
}

/// The parts of a broker that answer requests.
struct Parts {
    router: Router,
    sessions: Arc<Sessions>,
}

impl Parts {
    fn new(
        host: &Host,
        config: &Arc<BrokerConfig>,
        tables: &Tables,
        identity: &Arc<Identity>,
        epochs: &Arc<LogEpochs>,
        replicas: &Arc<Replicas>,
    ) -> Parts {
        let Tables { store, topics, groups, offsets, .. } = tables;
        let clients: Arc<Clients<Peer>> = Arc::default();
        let commits = Arc::new(Commits {
            host: host.clone(),
            config: Arc::clone(config),
            offsets: Arc::clone(offsets),
            master: Arc::clone(&replicas.master),
        });
        let locks: Arc<QueueLocks> = Arc::default();
        let sessions = Arc::new(Sessions {
            host: host.clone(),
            config: Arc::clone(config),
            topics: Arc::clone(topics),
            groups: Arc::clone(groups),
            clients: Arc::clone(&clients),
            locks: Arc::clone(&locks),
        });
        let router = Router {
            config: Arc::clone(config),
            store: Arc::clone(store),
            sends: Arc::new(sends(host, config, tables, identity, locks, replicas)),
            send_backs: Arc::new(SendBacks {
                host: host.clone(),
                config: Arc::clone(config),
                store: Arc::clone(store),
                topics: Arc::clone(topics),
                groups: Arc::clone(groups),
                identity: Arc::clone(identity),
                confirms: Arc::clone(&replicas.confirms),
                rng: Mutex::new(host.rng("broker.send-back")),
            }),
            pulls: Arc::new(Pulls {
                host: host.clone(),
                config: Arc::clone(config),
                store: Arc::clone(store),
                topics: Arc::clone(topics),
                groups: Arc::clone(groups),
                offsets: Arc::clone(offsets),
                commits: Arc::clone(&commits),
                epochs: Arc::clone(epochs),
                master: Arc::clone(&replicas.master),
                clients: Arc::clone(&clients),
            }),
            lookups: lookups(host, config, tables, commits, epochs),
            sessions: Arc::clone(&sessions),
            admin: Admin {
                host: host.clone(),
                topics: Arc::clone(topics),
                groups: Arc::clone(groups),
                offsets: Arc::clone(offsets),
            },
            reports: reports(host, config, tables, clients, replicas),
        };
        Parts { router, sessions }
    }
}

fn sends(
    host: &Host,
    config: &Arc<BrokerConfig>,
    tables: &Tables,
    identity: &Arc<Identity>,
    locks: Arc<QueueLocks>,
    replicas: &Replicas,
) -> Sends {
    Sends {
        host: host.clone(),
        config: Arc::clone(config),
        store: Arc::clone(&tables.store),
        topics: Arc::clone(&tables.topics),
        groups: Arc::clone(&tables.groups),
        locks,
        confirms: Arc::clone(&replicas.confirms),
        properties: BrokerProperties::new(&config.region, config.trace_on, &config.cluster),
        marks: SendFailureResponseHeader { msg_region: Some(config.region.clone()), trace_on: Some(config.trace_on) },
        identity: Arc::clone(identity),
        unique_ids: unique_ids(host, config),
        rng: Mutex::new(host.rng("broker.send")),
    }
}

fn lookups(
    host: &Host,
    config: &BrokerConfig,
    tables: &Tables,
    commits: Arc<Commits>,
    epochs: &Arc<LogEpochs>,
) -> Lookups {
    Lookups {
        host: host.clone(),
        store: Arc::clone(&tables.store),
        topics: Arc::clone(&tables.topics),
        groups: Arc::clone(&tables.groups),
        offsets: Arc::clone(&tables.offsets),
        commits,
        epochs: Arc::clone(epochs),
        unique_query_max_count: config.unique_query_max_count,
    }
}

fn reports(
    host: &Host,
    config: &Arc<BrokerConfig>,
    tables: &Tables,
    clients: Arc<Clients<Peer>>,
    replicas: &Arc<Replicas>,
) -> Reports {
    Reports {
        host: host.clone(),
        config: Arc::clone(config),
        store: Arc::clone(&tables.store),
        topics: Arc::clone(&tables.topics),
        groups: Arc::clone(&tables.groups),
        offsets: Arc::clone(&tables.offsets),
        clients,
        delayed: Arc::clone(&tables.delayed),
        modes: Arc::clone(&tables.modes),
        replicas: Arc::clone(replicas),
        started: host.now(),
        started_ms: host.wall_ms(),
    }
}

fn table_copy(tables: &Tables, identity: &Arc<Identity>, master: &Arc<GroupMaster>) -> TableCopy {
    TableCopy {
        host: tables.host.clone(),
        own: Arc::clone(identity),
        store: Arc::clone(&tables.store),
        topics: Arc::clone(&tables.topics),
        groups: Arc::clone(&tables.groups),
        offsets: Arc::clone(&tables.offsets),
        delayed: Arc::clone(&tables.delayed),
        modes: Arc::clone(&tables.modes),
        master: Arc::clone(master),
        client: TableCopy::client(),
        waiting: tokio::sync::Mutex::default(),
    }
}

/// Ids for messages whose client gave them none.
fn unique_ids(host: &Host, config: &BrokerConfig) -> UniqueIds {
    let instance = host.rng("broker.unique-ids").next_u64() >> 32;
    let instance = u32::try_from(instance).expect("the upper half of 64 bits");
    UniqueIds::new(config.advertised_ip(), host.process_id(), instance)
}

fn spawn_tasks(
    tasks: &TaskGroup,
    config: &Arc<BrokerConfig>,
    tables: &Arc<Tables>,
    sessions: &Arc<Sessions>,
    registration: &Arc<Registration>,
) {
    for namesrv in config.namesrv.clone() {
        let registration = Arc::clone(registration);
        tasks.spawn("broker.register", async move { registration.keep(&namesrv).await });
    }
    // A slave has the delayed messages and delivers none: those that its master delivers come with the log.
    let levels = config.role.is_master().then(|| tables.delayed.levels());
    for level in levels.into_iter().flatten() {
        let delayed = Arc::clone(&tables.delayed);
        tasks.spawn("broker.deliver-delayed", async move { delayed.deliver(level).await });
    }
    let (host, sessions) = (tables.host.clone(), Arc::clone(sessions));
    tasks.spawn("broker.expire-clients", async move {
        loop {
            host.sleep(CLIENT_SCAN_INTERVAL).await;
            sessions.expire();
        }
    });
}

/// The tasks that write the tables, each until it is told to stop.
fn savers(host: &Host, config: &Arc<BrokerConfig>, tables: &Arc<Tables>) -> Vec<Worker> {
    let [topics, groups, offsets, delays, modes] = [(); 5].map(|()| Arc::clone(tables));
    let offsets_interval = config.offsets_interval.max(SAVE_INTERVAL_MIN);
    let delay_interval = config.delay_interval.max(SAVE_INTERVAL_MIN);
    let mut savers = vec![
        Worker::start(host, "broker.save-topics", |stop| async move {
            topics.topics.file().follow(&topics.host, &topics.topics_file, || topics.topics.snapshot(), stop).await;
        }),
        Worker::start(host, "broker.save-groups", |stop| async move {
            groups.groups.file().follow(&groups.host, &groups.groups_file, || groups.groups.snapshot(), stop).await;
        }),
        Worker::start(host, "broker.save-offsets", move |mut stop| async move {
            let interval = || match host::buggify!("broker.offsets-persisted-early") {
                true => SAVE_INTERVAL_MIN,
                false => offsets_interval,
            };
            while pause(&offsets.host, interval(), &mut stop).await {
                offsets.save_offsets().await;
            }
        }),
        Worker::start(host, "broker.save-delays", move |mut stop| async move {
            while pause(&delays.host, delay_interval, &mut stop).await {
                delays.delayed.save(&delays.delayed_file).await;
            }
        }),
    ];
    // Only a copy changes them.
    if !config.role.is_master() {
        savers.push(Worker::start(host, "broker.save-modes", |stop| async move {
            modes.modes.file().follow(&modes.host, &modes.modes_file, || modes.modes.snapshot(), stop).await;
        }));
    }
    savers
}

/// Waits until it is time to write again. False if the task should stop instead.
async fn pause(host: &Host, interval: Duration, stop: &mut Stop) -> bool {
    host::select! {
        () = stopped(stop) => false,
        () = host.sleep(interval) => true,
    }
}
