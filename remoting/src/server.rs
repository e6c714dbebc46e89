//! Listens, and serves every connection in a task of its own.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use host::{
    Host,
    net::{TcpListener, TcpStream},
    task::{JoinHandle, TaskGroup},
};
use tokio::sync::{Notify, watch};

use crate::{
    command::SerializeType,
    connection::{Connection, Limits},
    handler::Handler,
    intake::{Intake, Seldom},
    peer::Peer,
};

/// Pause after a failure to accept, which is usually a lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// What a server is allowed to do.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The addresses to listen on; port 0 lets the machine choose.
    pub listen: Vec<SocketAddr>,
    /// Connections beyond these are closed as soon as they were accepted. Default 65,536; at most half of the files that
    /// the process may have open, so that the other half is left for files.
    pub max_connections: usize,
    /// A connection without traffic in either direction for so long is closed. Default 120 s.
    pub idle: Duration,
    /// With more bytes waiting to be written to a connection, nothing is read from it. Default 4 MiB.
    pub write_high_bytes: usize,
    /// Bytes of frames that are not complete, over all connections: whoever sends more is closed. Frames that fit into
    /// one read, of 32 KiB, do not count. Default 256 MiB.
    pub unfinished_bytes_max: usize,
}

impl ServerConfig {
    /// The defaults for these addresses.
    #[must_use]
    pub fn new(listen: impl Into<Vec<SocketAddr>>) -> ServerConfig {
        ServerConfig {
            listen: listen.into(),
            max_connections: 65_536,
            idle: Duration::from_secs(120),
            write_high_bytes: 4 * 1024 * 1024,
            unfinished_bytes_max: 256 * 1024 * 1024,
        }
    }
}

/// A server that cannot start.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// What the machine says.
    pub source: io::Error,
}

/// A listening server. Dropping it makes its tasks end; [`shutdown`](Server::shutdown) waits for that.
#[derive(Debug)]
pub struct Server {
    local_addrs: Vec<SocketAddr>,
    registry: Arc<Registry>,
    /// Set to true, or dropped, it stops the acceptors.
    stop: watch::Sender<bool>,
    /// One per address, until `shutdown` waits for them. Leaf lock.
    acceptors: Mutex<Vec<JoinHandle<()>>>,
}

impl Server {
    /// Listens on all addresses and begins to serve.
    ///
    /// # Errors
    /// An address cannot be listened on; none is then.
    ///
    /// # Panics
    /// Outside a node.
    pub async fn start(mut config: ServerConfig, handler: Arc<dyn Handler>) -> Result<Server, ListenError> {
        let host = Host::current();
        if let Some(files) = host.open_files_max() {
            config.max_connections = config.max_connections.min(usize::try_from(files / 2).unwrap_or(usize::MAX));
        }
        let mut listeners = Vec::with_capacity(config.listen.len());
        for address in config.listen.iter().copied() {
            let bound = async {
                let listener = host.bind(address).await?;
                let local = listener.local_addr()?;
                Ok((listener, local))
            };
            listeners.push(bound.await.map_err(|source| ListenError { address, source })?);
        }
        let registry = Arc::new(Registry::new(config.unfinished_bytes_max));
        let (stop, stopped) = watch::channel(false);
        let mut local_addrs = Vec::with_capacity(listeners.len());
        let mut acceptors = Vec::with_capacity(listeners.len());
        for (at, (listener, local)) in listeners.into_iter().enumerate() {
            local_addrs.push(local);
            let acceptor = Acceptor {
                host: host.clone(),
                at,
                handler: Arc::clone(&handler),
                config: config.clone(),
                registry: Arc::clone(&registry),
                connections: TaskGroup::new(&host),
            };
            acceptors.push(host.spawn("remoting.accept", acceptor.run(listener, stopped.clone())));
        }
        Ok(Server { local_addrs, registry, stop, acceptors: Mutex::new(acceptors) })
    }

    /// The addresses it listens on, in the order they were configured, with the ports that the machine chose.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local_addrs
    }

    /// The open connections, oldest first.
    #[must_use]
    pub fn peers(&self) -> Vec<Peer> {
        self.registry.lock().peers.values().cloned().collect()
    }

    /// Stops listening, closes all connections and returns when the last task has ended. Answers that a socket takes at
    /// once still go out.
    pub async fn shutdown(&self) {
        self.stop.send_replace(true);
        let acceptors = std::mem::take(&mut *self.acceptors.lock().unwrap_or_else(PoisonError::into_inner));
        for acceptor in acceptors {
            // A panic in it has stopped the node already.
            let _ = acceptor.await;
        }
    }
}

/// Accepts the connections of one address and owns their tasks.
struct Acceptor {
    host: Host,
    /// Which of the configured addresses this is.
    at: usize,
    handler: Arc<dyn Handler>,
    config: ServerConfig,
    registry: Arc<Registry>,
    connections: TaskGroup,
}

impl Acceptor {
    async fn run(self, listener: TcpListener, mut stopped: watch::Receiver<bool>) {
        loop {
            host::select! {
                _ = stopped.changed() => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, from)) => self.serve(stream, from),
                    Err(error) => {
                        if let Some(kept_back) = self.registry.not_accepted.may_tell(self.host.now()) {
                            tracing::warn!(%error, kept_back, "cannot accept a connection");
                        }
                        self.host.sleep(ACCEPT_RETRY).await;
                    }
                },
            }
        }
        drop(listener);
        self.registry.close_all().await;
        self.connections.shutdown().await;
    }

    fn serve(&self, stream: TcpStream, from: SocketAddr) {
        let Some(peer) = self.registry.enter(&self.host, self.at, from, self.config.max_connections) else {
            host::point!("remoting.connection-refused");
            if let Some(kept_back) = self.registry.refused.may_tell(self.host.now()) {
                tracing::warn!(%from, max = self.config.max_connections, kept_back, "too many connections: closed");
            }
            return;
        };
        let limits = Limits { idle: self.config.idle, write_high_bytes: self.config.write_high_bytes };
        let connection =
            Connection::new(peer.clone(), Arc::clone(&self.handler), limits, Arc::clone(&self.registry.intake), stream);
        let registry = Arc::clone(&self.registry);
        self.connections.spawn("remoting.serve", async move {
            connection.run().await;
            registry.remove(&peer);
        });
    }
}

/// The open connections of a server. Each is entered by its acceptor and taken out by its own task.
#[derive(Debug)]
struct Registry {
    /// Leaf lock: nothing else is locked while it is held.
    open: Mutex<Open>,
    removed: Notify,
    intake: Arc<Intake>,
    /// Of connections that could not be accepted.
    not_accepted: Seldom,
    /// Of connections that were too many.
    refused: Seldom,
}

#[derive(Debug, Default)]
struct Open {
    last_id: u64,
    peers: BTreeMap<u64, Peer>,
}

impl Registry {
    fn new(unfinished_bytes_max: usize) -> Registry {
        Registry {
            open: Mutex::default(),
            removed: Notify::new(),
            intake: Arc::new(Intake::new(unfinished_bytes_max)),
            not_accepted: Seldom::new(1),
            refused: Seldom::new(1),
        }
    }

    /// `None` if there are too many already.
    fn enter(&self, host: &Host, listener: usize, from: SocketAddr, max: usize) -> Option<Peer> {
        let mut open = self.lock();
        if open.peers.len() >= max {
            return None;
        }
        open.last_id += 1;
        let peer = Peer::new(host, open.last_id, listener, from.to_string(), SerializeType::Json);
        peer.connected(from);
        open.peers.insert(peer.id(), peer.clone());
        Some(peer)
    }

    fn remove(&self, peer: &Peer) {
        let removed = self.lock().peers.remove(&peer.id());
        assert!(removed.is_some(), "{peer:?} was entered before it was served");
        self.removed.notify_waiters();
    }

    /// Asks for the end of every connection and waits for it.
    async fn close_all(&self) {
        loop {
            let mut removed = std::pin::pin!(self.removed.notified());
            removed.as_mut().enable();
            let open: Vec<Peer> = self.lock().peers.values().cloned().collect();
            if open.is_empty() {
                return;
            }
            open.iter().for_each(Peer::close);
            removed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
