//! Requests over the connections of a client, with the errors of a client.

use std::{sync::Arc, time::Duration};

use host::Host;
use remoting::{Handler, Inbound, InvokeError, Payload, Peer, Reply, Request, Response};
use tokio::sync::Notify;

use super::Role;
use crate::{consumer, error::ClientError};

/// The connections of one client, by address.
pub(super) struct Rpc {
    client: remoting::Client,
}

impl Rpc {
    /// Connections whose other side is served as `role` serves it. `connected` is woken whenever a connection stands.
    pub(super) fn start(host: &Host, connect_timeout: Duration, role: Role, connected: Arc<Notify>) -> Rpc {
        let config = remoting::ClientConfig { connect_timeout, ..remoting::ClientConfig::default() };
        let served = Served { host: host.clone(), role, connected };
        Rpc { client: remoting::Client::new(config, Arc::new(served)) }
    }

    /// Asks and waits for the answer, whatever it says.
    pub(super) async fn invoke(
        &self,
        addr: &str,
        request: Request,
        body: Payload,
        timeout: Duration,
    ) -> Result<Response, ClientError> {
        if timeout.is_zero() {
            return Err(ClientError::Deadline);
        }
        self.client.invoke(addr, request, body, timeout).await.map_err(failure)
    }

    /// Hands a request to the connection.
    pub(super) fn oneway(&self, addr: &str, request: Request, body: Payload) -> Result<(), ClientError> {
        self.client.send_one_way(addr, request, body).map_err(failure)
    }

    /// Closes all connections. What waits on them fails.
    pub(super) async fn close(&self) {
        self.client.shutdown().await;
    }
}

/// Answers what brokers ask.
struct Served {
    host: Host,
    role: Role,
    connected: Arc<Notify>,
}

impl Handler for Served {
    fn handle(&self, _peer: &Peer, inbound: Inbound) -> Reply {
        match &self.role {
            Role::Consumer(member) => consumer::serve(&self.host, member, inbound.request, inbound.body),
            Role::Producer { .. } | Role::Admin => Response::not_supported(inbound.request.code().number()).into(),
        }
    }

    fn opened(&self, _peer: &Peer) {
        self.connected.notify_one();
    }
}

fn failure(error: InvokeError) -> ClientError {
    match error {
        InvokeError::Connect { address, source } => ClientError::Connect { addr: address, reason: source.to_string() },
        InvokeError::Closed { address, .. } => ClientError::ConnectionLost { addr: address, maybe_sent: true },
        InvokeError::Timeout { address, after, .. } => ClientError::Timeout { addr: address, waited: after },
        InvokeError::Busy { .. } => ClientError::Overloaded,
        InvokeError::TooLong(error) => ClientError::Invalid(error.to_string()),
        InvokeError::Stopped => ClientError::Shutdown,
        // The enum may grow: whatever is not known to have been refused may have been carried out.
        other => ClientError::Codec { addr: String::new(), reason: other.to_string() },
    }
}
