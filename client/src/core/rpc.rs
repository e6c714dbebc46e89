//! Requests over the connections of a client, with the errors of a client.

use std::{sync::Arc, time::Duration};

use host::Host;
use remoting::{Payload, Request, Response};
use tokio::sync::Notify;

use super::Role;
use crate::error::ClientError;

/// The connections of one client, by address.
pub(super) struct Rpc {}

impl Rpc {
    pub(super) fn start(_host: &Host, _connect_timeout: Duration, _role: Role, _connected: Arc<Notify>) -> Rpc {
        Rpc {}
    }

    /// Asks and waits for the answer, whatever it says.
    pub(super) async fn invoke(
        &self,
        _addr: &str,
        _request: Request,
        _body: Payload,
        _timeout: Duration,
    ) -> Result<Response, ClientError> {
        Err(ClientError::Shutdown)
    }

    /// Hands a request to the connection.
    pub(super) async fn oneway(
        &self,
        _addr: &str,
        _request: Request,
        _body: Payload,
        _timeout: Duration,
    ) -> Result<(), ClientError> {
        Err(ClientError::Shutdown)
    }

    pub(super) async fn close(&self) {}
}
