//! A running name server.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use host::{Host, task::TaskGroup, time::Mono};
use remoting::{ListenError, Server, ServerConfig};
use tracing::{info, warn};

use crate::{config::NamesrvConfig, kv_configs::KvConfigs, requests::Requests, route_table::RouteTable};

/// The shortest pause between two looks for silent brokers, whatever the configuration says.
const SCAN_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Requests are short; the longest tell all topics of a broker.
const UNFINISHED_BYTES_MAX: usize = 64 << 20;

/// Why a name server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address to listen on cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The file of the key-value configuration cannot be read.
    #[error("cannot read {}", .path.display())]
    KvConfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
}

/// A name server: it knows which brokers are alive and which topics they serve.
///
/// Dropping it stops it as a crash does; [`shutdown`](Namesrv::shutdown) leaves no task behind.
pub struct Namesrv {
    server: Server,
    tasks: TaskGroup,
}

impl Namesrv {
    /// Reads the key-value configuration, listens, and looks for silent brokers from then on. Call it inside a node.
    ///
    /// # Errors
    /// If the address is taken, or the file damaged.
    pub async fn start(config: NamesrvConfig) -> Result<Namesrv, StartError> {
        let host = Host::current();
        let kv = KvConfigs::load(&host, &config.kv_config_path)
            .await
            .map_err(|source| StartError::KvConfig { path: config.kv_config_path.clone(), source })?;
        let ready = if config.need_wait_for_service { host.now() + config.wait_for_service } else { Mono::default() };
        let listen = ServerConfig {
            idle: config.idle_limit,
            unfinished_bytes_max: UNFINISHED_BYTES_MAX,
            ..ServerConfig::new([config.listen_on()])
        };
        let scan_interval = config.scan_interval.max(SCAN_INTERVAL_MIN);
        let requests =
            Arc::new(Requests { host: host.clone(), config, routes: RouteTable::default(), kv: Arc::new(kv), ready });
        let server = Server::start(listen, Arc::clone(&requests) as Arc<dyn remoting::Handler>).await?;
        let tasks = TaskGroup::new(&host);
        tasks.spawn("broker-expiry", expire(requests, scan_interval));
        info!(addr = %server.local_addrs()[0], "name server started");
        Ok(Namesrv { server, tasks })
    }

    /// The address it listens on, with the real port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addrs()[0]
    }

    /// Closes all connections and ends all tasks.
    pub async fn shutdown(&self) {
        self.tasks.shutdown().await;
        self.server.shutdown().await;
    }
}

/// Removes brokers that are silent for too long, now and then. Their connections stay: whoever speaks again on one of
/// them is heard.
async fn expire(requests: Arc<Requests>, interval: Duration) {
    let host = &requests.host;
    loop {
        host.sleep(interval).await;
        for broker in requests.routes.expire(host.now()) {
            warn!(cluster = broker.cluster, broker = broker.addr, "broker was silent for too long");
            host::point!("namesrv.broker-expired");
        }
    }
}
