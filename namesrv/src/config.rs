//! What a name server is told before it starts.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use remoting::settings::{Field, Key, Keys, Setting, SettingsError, TimeUnit, WithoutEffect};

/// The configuration of a name server, by RocketMQ's key names (in brackets). Immutable once it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamesrvConfig {
    /// The address to listen on (`bindAddress`); the loopback address unless configured.
    pub bind: IpAddr,
    /// The port to listen on, 0 for any (`listenPort`).
    pub port: u16,
    /// The file of the key-value configuration (`kvConfigPath`).
    pub kv_config_path: PathBuf,
    /// Whether routes carry the order configuration of their topic (`orderMessageEnable`).
    pub order_message_enable: bool,
    /// Whether brokers are told all order configurations when they register (`returnOrderTopicConfigToBroker`).
    pub return_order_topic_config: bool,
    /// Whether all topics may be listed (`enableAllTopicList`).
    pub enable_all_topic_list: bool,
    /// Whether topics may be listed by cluster or unit (`enableTopicList`).
    pub enable_topic_list: bool,
    /// Whether routes are refused right after the start, until brokers had time to register (`needWaitForService`).
    pub need_wait_for_service: bool,
    /// How long they are (`waitSecondsForService`).
    pub wait_for_service: Duration,
    /// Pause between two looks for brokers that are silent for too long (`scanNotActiveBrokerInterval`).
    pub scan_interval: Duration,
    /// Whether a topic that is missing in a whole registration is forgotten (`deleteTopicWithBrokerRegistration`).
    pub delete_topic_with_registration: bool,
    /// A connection without traffic for so long is closed (`serverChannelMaxIdleTimeSeconds`).
    pub idle_limit: Duration,
}

impl Default for NamesrvConfig {
    fn default() -> NamesrvConfig {
        NamesrvConfig {
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 9876,
            kv_config_path: PathBuf::from("namesrv/kvConfig.json"),
            order_message_enable: false,
            return_order_topic_config: true,
            enable_all_topic_list: true,
            enable_topic_list: true,
            need_wait_for_service: false,
            wait_for_service: Duration::from_secs(45),
            scan_interval: Duration::from_secs(5),
            delete_topic_with_registration: false,
            idle_limit: Duration::from_secs(120),
        }
    }
}

impl NamesrvConfig {
    /// The defaults, with `settings` put over them in their order. Also gives the keys that do nothing here.
    ///
    /// # Errors
    /// At the first setting that is unknown or has a value of a wrong form.
    pub fn read(
        settings: impl IntoIterator<Item = Setting>,
    ) -> Result<(NamesrvConfig, Vec<WithoutEffect>), SettingsError> {
        let mut config = NamesrvConfig::default();
        let idle = KEYS.apply(&mut config, settings)?;
        Ok((config, idle))
    }

    /// The effective configuration as properties text, `key=value` lines sorted by key.
    #[must_use]
    pub fn show(&self) -> String {
        KEYS.show(self)
    }

    /// Where to listen.
    pub(crate) fn listen_on(&self) -> SocketAddr {
        SocketAddr::new(self.bind, self.port)
    }
}

/// Source: `NamesrvConfig` and `NettyServerConfig` of the reference.
static KEYS: Keys<NamesrvConfig> = Keys {
    supported: &[
        Key { name: "listenPort", field: Field::Port(|c| &mut c.port) },
        Key {
            name: "bindAddress",
            field: Field::Other {
                read: |c, text| text.parse().map(|ip| c.bind = ip).map_err(|_| "an IP address".to_owned()),
                show: |c| c.bind.to_string(),
            },
        },
        Key { name: "kvConfigPath", field: Field::Path(|c| &mut c.kv_config_path) },
        Key { name: "orderMessageEnable", field: Field::Flag(|c| &mut c.order_message_enable) },
        Key { name: "returnOrderTopicConfigToBroker", field: Field::Flag(|c| &mut c.return_order_topic_config) },
        Key { name: "enableAllTopicList", field: Field::Flag(|c| &mut c.enable_all_topic_list) },
        Key { name: "enableTopicList", field: Field::Flag(|c| &mut c.enable_topic_list) },
        Key { name: "needWaitForService", field: Field::Flag(|c| &mut c.need_wait_for_service) },
        Key { name: "waitSecondsForService", field: Field::Time(|c| &mut c.wait_for_service, TimeUnit::Seconds) },
        Key { name: "scanNotActiveBrokerInterval", field: Field::Time(|c| &mut c.scan_interval, TimeUnit::Millis) },
        Key {
            name: "deleteTopicWithBrokerRegistration",
            field: Field::Flag(|c| &mut c.delete_topic_with_registration),
        },
        Key { name: "serverChannelMaxIdleTimeSeconds", field: Field::Time(|c| &mut c.idle_limit, TimeUnit::Seconds) },
    ],
    without_effect: &[
        "channelNotActiveInterval",
        "clientAsyncSemaphoreValue",
        "clientCallbackExecutorThreads",
        "clientChannelMaxIdleTimeSeconds",
        "clientCloseSocketIfTimeout",
        "clientOnewaySemaphoreValue",
        "clientPooledByteBufAllocatorEnable",
        "clientRequestThreadPoolNums",
        "clientRequestThreadPoolQueueCapacity",
        "clientSocketRcvBufSize",
        "clientSocketSndBufSize",
        "clientWorkerThreads",
        "clusterTest",
        "configBlackList",
        "configStorePath",
        "connectTimeoutMillis",
        "defaultThreadPoolNums",
        "defaultThreadPoolQueueCapacity",
        "enableControllerInNamesrv",
        "enableShutdownGracefully",
        "notifyMinBrokerIdChanged",
        "productEnvName",
        "rocketmqHome",
        "serverAsyncSemaphoreValue",
        "serverCallbackExecutorThreads",
        "serverNettyWorkerGroupEnable",
        "serverOnewaySemaphoreValue",
        "serverPooledByteBufAllocatorEnable",
        "serverSelectorThreads",
        "serverSocketBacklog",
        "serverSocketRcvBufSize",
        "serverSocketSndBufSize",
        "serverWorkerThreads",
        "shutdownWaitTimeSeconds",
        "supportActingMaster",
        "unRegisterBrokerQueueCapacity",
        "useEpollNativeSelector",
        "useTLS",
        "writeBufferHighWaterMark",
        "writeBufferLowWaterMark",
    ],
};

#[cfg(test)]
mod tests {
    use super::*;
    use remoting::settings::read_properties;

    #[test]
    fn shown_defaults_read_back() {
        let shown = NamesrvConfig::default().show();
        assert!(shown.starts_with("bindAddress=127.0.0.1\n"), "{shown}");
        let (config, idle) = NamesrvConfig::read(read_properties(&shown, "shown").unwrap()).unwrap();
        assert_eq!(config, NamesrvConfig::default());
        assert!(idle.is_empty());
    }
}
