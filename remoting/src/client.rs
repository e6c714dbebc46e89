//! Sends requests to addresses, over one connection for each.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use host::{Host, net::TcpStream, task::TaskGroup};

use crate::{
    command::{Response, SerializeType},
    connection::{Connection, EndOnDrop, Limits},
    handler::Handler,
    intake::Intake,
    payload::Payload,
    peer::{CloseReason, Ended, InvokeError, Peer},
    request::Request,
    response_code::ResponseCode,
};

/// How a client connects.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// How long making a connection may take, the look-up of its name included. Default 3 s.
    pub connect_timeout: Duration,
    /// A connection without traffic in either direction for so long is closed. Default 120 s.
    pub idle: Duration,
    /// With more bytes waiting to be written to a connection, nothing is read from it. Default 4 MiB.
    pub write_high_bytes: usize,
    /// How headers of requests are written. Default JSON.
    pub serialize_type: SerializeType,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig {
            connect_timeout: Duration::from_secs(3),
            idle: Duration::from_secs(120),
            write_high_bytes: 4 * 1024 * 1024,
            serialize_type: SerializeType::Json,
        }
    }
}

/// Sends requests to addresses. One connection for each address, made at the first request and again at the first after
/// it ended. The other side's requests are answered by the handler. Cheap to clone.
///
/// When the last clone is dropped its connections end; [`shutdown`](Client::shutdown) waits for that.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    host: Host,
    config: ClientConfig,
    handler: Arc<dyn Handler>,
    /// Leaf lock: nothing else is locked while it is held.
    pool: Mutex<Pool>,
    connections: TaskGroup,
    intake: Arc<Intake>,
}

#[derive(Default)]
struct Pool {
    is_stopped: bool,
    last_id: u64,
    /// By address. Ended ones stay until something else needs a connection.
    peers: BTreeMap<String, Peer>,
}

impl Client {
    /// A client without connections yet.
    ///
    /// # Panics
    /// Outside a node.
    #[must_use]
    pub fn new(config: ClientConfig, handler: Arc<dyn Handler>) -> Client {
        let host = Host::current();
        let connections = TaskGroup::new(&host);
        // Answers are as long as this side asked for, so nothing bounds them together.
        let intake = Arc::new(Intake::new(usize::MAX));
        Client { inner: Arc::new(Inner { host, config, handler, pool: Mutex::default(), connections, intake }) }
    }

    /// Sends a request to `address` (`host:port`) and waits for the answer, whatever code that has.
    ///
    /// `timeout` covers making the connection, too. After a timeout on a connection that stands, that connection is
    /// closed, as in the reference: most likely nobody is at its other end. It is closed by RST, so that what its
    /// socket holds does not arrive behind the requests of the next connection. A server that is closing
    /// ([`ResponseCode::GO_AWAY`]) is asked once more over a new connection.
    ///
    /// # Errors
    /// Any [`InvokeError`].
    pub async fn invoke(
        &self,
        address: &str,
        request: Request,
        body: impl Into<Payload>,
        timeout: Duration,
    ) -> Result<Response, InvokeError> {
        let deadline = self.inner.host.now() + timeout;
        let code = request.code();
        let peer = self.peer(address)?;
        let mut command = peer.command(request, body.into());
        match peer.invoke_command(&mut command, code, timeout).await {
            Ok(response) if response.code == ResponseCode::GO_AWAY => {
                host::point!("remoting.go-away");
                self.forget(&peer);
                let rest = deadline.since(self.inner.host.now());
                self.peer(address)?.invoke_command(&mut command, code, rest).await
            }
            Err(error @ InvokeError::Timeout { .. }) => {
                if peer.remote_addr().is_some() {
                    peer.give_up();
                }
                Err(error)
            }
            other => other,
        }
    }

    /// Sends a request that wants no answer. It is on its way when this returns, which says nothing about its arrival:
    /// even the connection may still have to be made.
    ///
    /// # Errors
    /// `Busy`, `TooLong`, `Stopped`; `Connect` or `Closed` if the connection ends at this moment.
    pub fn send_one_way(&self, address: &str, request: Request, body: impl Into<Payload>) -> Result<(), InvokeError> {
        self.peer(address)?.send_one_way(request, body)
    }

    /// Closes the connection to an address, if there is one. Requests that wait on it fail.
    pub fn close(&self, address: &str) {
        let peer = self.lock().peers.remove(address);
        if let Some(peer) = peer {
            peer.close();
        }
    }

    /// Closes all connections, fails what waits on them and returns when the last task has ended. Nothing can be sent
    /// afterwards.
    pub async fn shutdown(&self) {
        let peers = {
            let mut pool = self.lock();
            pool.is_stopped = true;
            std::mem::take(&mut pool.peers)
        };
        for peer in peers.values() {
            peer.close();
        }
        for peer in peers.values() {
            peer.closed().await;
        }
        self.inner.connections.shutdown().await;
    }

    /// The connection to an address: the one there is, or a new one that is being made.
    fn peer(&self, address: &str) -> Result<Peer, InvokeError> {
        let mut pool = self.lock();
        if pool.is_stopped {
            return Err(InvokeError::Stopped);
        }
        if let Some(peer) = pool.peers.get(address).filter(|peer| !peer.is_ending()) {
            return Ok(peer.clone());
        }
        pool.last_id += 1;
        let inner = &self.inner;
        let peer = Peer::new(&inner.host, pool.last_id, 0, address.to_owned(), inner.config.serialize_type);
        pool.peers.retain(|_, peer| !peer.is_ending());
        pool.peers.insert(address.to_owned(), peer.clone());
        drop(pool);
        let task =
            serve(EndOnDrop(peer.clone()), inner.config.clone(), Arc::clone(&inner.handler), Arc::clone(&inner.intake));
        inner.connections.spawn("remoting.client", task);
        Ok(peer)
    }

    /// New requests no longer use this connection; those that wait on it still do.
    fn forget(&self, peer: &Peer) {
        let mut pool = self.lock();
        if pool.peers.get(peer.address()) == Some(peer) {
            pool.peers.remove(peer.address());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.inner.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task of one connection, from its making to its end, of which `end` tells even if the task is dropped.
async fn serve(end: EndOnDrop, config: ClientConfig, handler: Arc<dyn Handler>, intake: Arc<Intake>) {
    let peer = end.0.clone();
    let connected = host::select! {
        () = peer.close_asked() => return peer.end(&Ended::Closed(CloseReason::Local)),
        connected = connect(&peer, config.connect_timeout) => connected,
    };
    match connected {
        Ok(stream) => {
            let limits = Limits { idle: config.idle, write_high_bytes: config.write_high_bytes };
            Connection::new(peer, handler, limits, intake, stream).run().await;
        }
        Err(error) => {
            tracing::debug!(peer = peer.address(), %error, "cannot connect");
            peer.end(&Ended::NoConnection(Arc::new(error)));
        }
    }
}

async fn connect(peer: &Peer, timeout: Duration) -> io::Result<TcpStream> {
    let host = peer.host();
    let connecting = async {
        let to = host.resolve(peer.address()).await?;
        let stream = host.connect(to).await?;
        peer.connected(to);
        Ok(stream)
    };
    let timed_out = || io::Error::new(io::ErrorKind::TimedOut, "nobody answered in time");
    host.timeout(timeout, connecting).await.unwrap_or_else(|_| Err(timed_out()))
}
