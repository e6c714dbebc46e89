//! What a broker is told before it starts.

use std::{net::IpAddr, net::Ipv4Addr, time::Duration};

use message::DEFAULT_DELAY_LEVELS;
use remoting::settings::{Setting, SettingsError, WithoutEffect};

mod keys;
mod replication;
mod without_effect;

pub use replication::{ReplicationConfig, SyncFrom, WhenAhead};

/// The configuration of a broker, by RocketMQ's key names (in brackets). Immutable once the broker runs.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    /// Name of the cluster (`brokerClusterName`).
    pub cluster: String,
    /// Name of the group of replicas that this broker belongs to (`brokerName`).
    pub name: String,
    /// The number of a slave in its group, from 1 on (`brokerId`). A master is number 0, whatever stands here.
    pub id: u64,
    /// What it does in the group (`brokerRole`).
    pub role: Role,
    /// How the group keeps copies.
    pub replication: ReplicationConfig,
    /// Addresses of all name servers, `host:port` (`namesrvAddr`, separated by semicolons).
    pub namesrv: Vec<String>,
    /// The address to listen on (`bindAddress`); the loopback address unless configured.
    pub bind: IpAddr,
    /// The port to listen on, 0 for any (`listenPort`). The fast port is this one minus 2.
    pub port: u16,
    /// The address that clients are told, if it differs from `bind` (`brokerIP1`).
    pub advertised: Option<IpAddr>,
    /// The address that replicas are told, if it differs from `bind` (`brokerIP2`).
    pub replication_advertised: Option<IpAddr>,
    /// Permission bits of the whole broker: 2 write, 4 read (`brokerPermission`).
    pub permission: u32,
    /// Most queues of a topic that a send creates (`defaultTopicQueueNums`).
    pub default_topic_queues: u32,
    /// Whether a send may create its topic (`autoCreateTopicEnable`).
    pub auto_create_topic: bool,
    /// Whether a heartbeat or pull may create its consumer group (`autoCreateSubscriptionGroup`).
    pub auto_create_group: bool,
    /// Whether the topic named like the cluster may be written and read (`clusterTopicEnable`).
    pub cluster_topic: bool,
    /// Whether the topic named like the broker may be written and read (`brokerTopicEnable`).
    pub broker_topic: bool,
    /// The topic of client traces, made at start, if traces are wanted (`traceTopicEnable`, `msgTraceTopicName`).
    pub trace_topic_enabled: bool,
    /// Its name (`msgTraceTopicName`).
    pub trace_topic: String,
    /// Told to producers with every send (`regionId`).
    pub region: String,
    /// Told to producers with every send (`traceOn`).
    pub trace_on: bool,
    /// No send is accepted before this wall-clock time, in milliseconds since 1970 (`startAcceptSendRequestTimeStamp`).
    pub accept_sends_from_ms: u64,
    /// Pause between two writes of the consumer offsets (`flushConsumerOffsetInterval`).
    pub offsets_interval: Duration,
    /// How many commits raise the version of the offset table by one (`consumerOffsetUpdateVersionStep`).
    pub offsets_version_step: u32,
    /// The delay levels of `store` as they were written (`messageDelayLevel`).
    pub delay_level_text: String,
    /// Pause between two writes of the progress of delayed messages (`flushDelayOffsetInterval`).
    pub delay_interval: Duration,
    /// How many deliveries raise the version of that progress by one (`delayOffsetUpdateVersionStep`).
    pub delay_version_step: u32,
    /// Whether a pull is held as long as it asks for; otherwise for `short_polling` (`longPollingEnable`).
    pub long_polling: bool,
    /// How long a pull is held without long polling (`shortPollingTimeMills`).
    pub short_polling: Duration,
    /// Most messages that a search by unique id finds; other searches say how many they want (`defaultQueryMaxNum`).
    pub unique_query_max_count: u32,
    /// Whether code 361 is served (`litePullMessageEnable`).
    pub lite_pull: bool,
    /// Whether members are told that their group changed (`notifyConsumerIdsChangedEnable`).
    pub notify_members: bool,
    /// A client without a heartbeat for so long is forgotten (`channelExpiredTimeout`).
    pub client_expiry: Duration,
    /// A connection without traffic for so long is closed (`serverChannelMaxIdleTimeSeconds`).
    pub idle_limit: Duration,
    /// Pause between two registrations with the name servers, 10 s to 60 s (`registerNameServerPeriod`).
    pub register_interval: Duration,
    /// How long one registration may take (`registerBrokerTimeoutMills`).
    pub register_timeout: Duration,
    /// Whether topic tables are sent compressed (`compressedRegister`).
    pub register_compressed: bool,
    /// Files, flushing, retention and limits of the store.
    pub store: store::StoreConfig,
}

/// A setting that a broker cannot have.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// RocketMQ's key.
    pub(crate) key: &'static str,
    pub(crate) value: String,
    /// What is wrong with it.
    pub(crate) problem: &'static str,
}

/// What a broker does in its group of replicas (`brokerRole`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Takes writes and does not wait for replicas.
    AsyncMaster,
    /// Takes writes and waits for replicas as `inSyncReplicas` says.
    SyncMaster,
    /// Copies a master.
    Slave,
}

impl Role {
    /// Whether it takes writes.
    #[must_use]
    pub fn is_master(self) -> bool {
        self != Role::Slave
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Role::AsyncMaster => "ASYNC_MASTER",
            Role::SyncMaster => "SYNC_MASTER",
            Role::Slave => "SLAVE",
        })
    }
}

impl Default for BrokerConfig {
    fn default() -> BrokerConfig {
        BrokerConfig {
            cluster: "DefaultCluster".to_owned(),
            name: "broker-a".to_owned(),
            id: 0,
            role: Role::AsyncMaster,
            replication: ReplicationConfig::default(),
            namesrv: Vec::new(),
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 10911,
            advertised: None,
            replication_advertised: None,
            permission: 6,
            default_topic_queues: 8,
            auto_create_topic: true,
            auto_create_group: true,
            cluster_topic: true,
            broker_topic: true,
            trace_topic_enabled: false,
            trace_topic: "RMQ_SYS_TRACE_TOPIC".to_owned(),
            region: "DefaultRegion".to_owned(),
            trace_on: true,
            accept_sends_from_ms: 0,
            offsets_interval: Duration::from_secs(5),
            offsets_version_step: 500,
            delay_level_text: DEFAULT_DELAY_LEVELS.to_owned(),
            delay_interval: Duration::from_secs(10),
            delay_version_step: 200,
            long_polling: true,
            short_polling: Duration::from_secs(1),
            unique_query_max_count: 32,
            lite_pull: true,
            notify_members: true,
            client_expiry: Duration::from_secs(120),
            idle_limit: Duration::from_secs(120),
            register_interval: Duration::from_secs(30),
            register_timeout: Duration::from_secs(24),
            register_compressed: false,
            store: store::StoreConfig::new("store"),
        }
    }
}

impl BrokerConfig {
    /// The defaults, with `settings` put over them in their order. Also gives the keys that do nothing here.
    ///
    /// # Errors
    /// At the first setting that is unknown or has a value of a wrong form; then at one that no broker of this version
    /// can have.
    pub fn read(
        settings: impl IntoIterator<Item = Setting>,
    ) -> Result<(BrokerConfig, Vec<WithoutEffect>), SettingsError> {
        let settings: Vec<Setting> = settings.into_iter().collect();
        let mut config = BrokerConfig::default();
        let idle = keys::KEYS.apply(&mut config, settings.iter().cloned())?;
        config.check().map_err(|Refusal { key, value, problem }| {
            let place = settings.iter().rfind(|setting| setting.key == key).map(|setting| setting.at.clone());
            SettingsError::Refused { at: place.unwrap_or_else(|| "default".to_owned()), key, value, problem }
        })?;
        Ok((config, idle))
    }

    /// Looks for settings that no broker of this version can have.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let refuse = |key, value: String, problem| Err(Refusal { key, value, problem });
        if self.role == Role::Slave && self.id == 0 {
            return refuse(
                "brokerId",
                "0".to_owned(),
                "0 is the master's, a slave needs a number of its own from 1 on",
            );
        }
        if i64::try_from(self.id).is_err() {
            return refuse("brokerId", self.id.to_string(), "the wire has 63 bits for it");
        }
        self.replication.check(self.role)?;
        if self.port == u16::MAX {
            return refuse("listenPort", self.port.to_string(), "replicas connect to the next port, and there is none");
        }
        if self.advertised_ip().is_unspecified() {
            let key = if self.advertised.is_some() { "brokerIP1" } else { "bindAddress" };
            let problem = "clients need an address and this is none: set brokerIP1";
            return refuse(key, self.advertised_ip().to_string(), problem);
        }
        for (key, name) in [("brokerName", &self.name), ("brokerClusterName", &self.cluster)] {
            // Both are topics, too.
            if message::validate_topic(name).is_err() {
                return refuse(key, name.clone(), "expected letters, digits, `_`, `-`, `%` or `|`, at most 127");
            }
        }
        Ok(())
    }

    /// The effective configuration as properties text, `key=value` lines sorted by key.
    #[must_use]
    pub fn show(&self) -> String {
        keys::KEYS.show(self)
    }

    /// Its number in the group: 0 for a master.
    pub(crate) fn broker_id(&self) -> u64 {
        if self.role == Role::Slave { self.id } else { 0 }
    }

    /// The address that clients are told.
    pub(crate) fn advertised_ip(&self) -> IpAddr {
        self.advertised.unwrap_or(self.bind)
    }

    /// Whether the broker as a whole may be read.
    pub(crate) fn is_readable(&self) -> bool {
        self.permission & 4 != 0
    }

    /// Whether the broker as a whole may be written.
    pub(crate) fn is_writable(&self) -> bool {
        self.permission & 2 != 0
    }
}
