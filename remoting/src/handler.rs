//! Whoever answers requests.

use bytes::Bytes;
use host::machine::BoxFuture;

use crate::{
    command::Response,
    language::{Language, Version},
    peer::Peer,
    request::Request,
};

/// Answers the requests of connections, of a server or of a client.
///
/// Called inside the task of the connection, request after request in the order they came: it must not block. The
/// answers to requests that came together leave in one write.
pub trait Handler: Send + Sync + 'static {
    /// One request. Its code is one of the table and its header was complete; whether this role serves it is the
    /// handler's decision ([`Response::not_supported`]).
    fn handle(&self, peer: &Peer, inbound: Inbound) -> Reply;

    /// A connection is there.
    fn opened(&self, _peer: &Peer) {}

    /// A connection is gone: nothing can be sent to it any more, and what it still owed will not come. Called once for
    /// each `opened`, unless the node dies.
    fn closed(&self, _peer: &Peer) {}
}

/// A request as it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inbound {
    /// What is asked.
    pub request: Request,
    /// Its body: a slice of what was read from the socket.
    pub body: Bytes,
    /// The language of the sender.
    pub language: Option<Language>,
    /// The version of the sender.
    pub version: Version,
    /// Whether nobody waits for an answer; what is given is dropped then.
    pub one_way: bool,
    /// The sender's number of the request.
    pub opaque: i32,
}

/// What a handler says to a request.
pub enum Reply {
    /// The answer.
    Now(Response),
    /// The answer comes later. The connection drives the future and drops it when it is closed.
    Later(BoxFuture<Response>),
    /// There is no answer, ever.
    None,
}

impl Reply {
    /// An answer that comes later.
    pub fn later(answer: impl Future<Output = Response> + Send + 'static) -> Reply {
        Reply::Later(Box::pin(answer))
    }
}

impl From<Response> for Reply {
    fn from(response: Response) -> Reply {
        Reply::Now(response)
    }
}

/// The handler of a client that serves nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHandler;

impl Handler for NoHandler {
    fn handle(&self, _: &Peer, inbound: Inbound) -> Reply {
        Response::not_supported(inbound.request.code().number()).into()
    }
}
