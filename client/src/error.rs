//! What can go wrong in a client, and whether a message may have been stored all the same.

use std::{sync::Arc, time::Duration};

use remoting::ResponseCode;

/// Why a call of a client failed.
///
/// Every error can tell whether the request [may have been carried out](ClientError::may_have_been_stored) although it
/// failed. Source: `spec/client.md` 12.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The caller's values are not acceptable. Nothing was sent.
    #[error("{0}")]
    Invalid(String),
    /// The client was built without a name server.
    #[error("no name server configured")]
    NoNameServer,
    /// No name server knows a route for the topic, and none for the template topic either.
    #[error("no route to topic `{topic}`")]
    NoRoute {
        /// The topic.
        topic: Arc<str>,
    },
    /// The route names no usable address for this broker.
    #[error("no address known for broker `{broker}`")]
    BrokerNotFound {
        /// Name of the broker group.
        broker: Arc<str>,
    },
    /// The other side answered with an error. As far as it knows it did nothing.
    #[error("{addr} answered {code:?}: {remark}")]
    Broker {
        /// The response code; unknown codes are kept as they came.
        code: ResponseCode,
        /// What it said about it.
        remark: String,
        /// Who answered.
        addr: String,
    },
    /// The connection could not be opened. Nothing was sent.
    #[error("cannot connect to {addr}: {reason}")]
    Connect {
        /// Where to.
        addr: String,
        /// As the machine reported it.
        reason: String,
    },
    /// The connection broke before the answer came.
    #[error("connection to {addr} lost{}", if *maybe_sent { " after the request was written" } else { "" })]
    ConnectionLost {
        /// Whom it led to.
        addr: String,
        /// Whether the other side may have got the request.
        maybe_sent: bool,
    },
    /// No answer in time. The other side may have got the request.
    #[error("no answer from {addr} within {waited:?}")]
    Timeout {
        /// Who was asked.
        addr: String,
        /// How long the answer was waited for.
        waited: Duration,
    },
    /// The time of the call was over before the request was sent.
    #[error("the time of the call was over before the request was sent")]
    Deadline,
    /// Too many requests are on their way already. Nothing was sent.
    #[error("too many requests on their way")]
    Overloaded,
    /// The answer does not make sense.
    #[error("unreadable answer from {addr}: {reason}")]
    Codec {
        /// Who answered.
        addr: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The client has been shut down.
    #[error("the client has been shut down")]
    Shutdown,
}

impl ClientError {
    /// Whether the request may have taken effect: it reached, or may have reached, the other side, and no answer says
    /// that it failed.
    #[must_use]
    pub fn may_have_been_stored(&self) -> bool {
        match self {
            ClientError::Timeout { .. } | ClientError::Codec { .. } => true,
            ClientError::ConnectionLost { maybe_sent, .. } => *maybe_sent,
            ClientError::Invalid(_)
            | ClientError::NoNameServer
            | ClientError::NoRoute { .. }
            | ClientError::BrokerNotFound { .. }
            | ClientError::Broker { .. }
            | ClientError::Connect { .. }
            | ClientError::Deadline
            | ClientError::Overloaded
            | ClientError::Shutdown => false,
        }
    }

    /// Whether the same call may succeed on another broker or a little later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            ClientError::Broker { code, .. } => RETRY_CODES.contains(code),
            ClientError::BrokerNotFound { .. }
            | ClientError::Connect { .. }
            | ClientError::ConnectionLost { .. }
            | ClientError::Timeout { .. }
            | ClientError::Overloaded => true,
            ClientError::Invalid(_)
            | ClientError::NoNameServer
            | ClientError::NoRoute { .. }
            | ClientError::Deadline
            | ClientError::Codec { .. }
            | ClientError::Shutdown => false,
        }
    }
}

/// The answers after which a send is tried on another broker: system error, busy, service not available, no permission,
/// no such topic, no buyer id, not in current unit, go away. Source: `spec/client.md` 2.6.
pub(crate) const RETRY_CODES: [ResponseCode; 8] = [
    ResponseCode(1),
    ResponseCode(2),
    ResponseCode(14),
    ResponseCode(16),
    ResponseCode(17),
    ResponseCode(204),
    ResponseCode(205),
    ResponseCode(1500),
];

/// Why a message was not acknowledged.
#[derive(Debug, Clone, thiserror::Error)]
#[error("not acknowledged after {attempts} attempts{}", if *.maybe_stored { ", may have been stored" } else { "" })]
pub struct SendError {
    /// How the last attempt ended.
    #[source]
    pub cause: ClientError,
    /// How many attempts were made; 0 if the message was refused before the first.
    pub attempts: u32,
    pub(crate) maybe_stored: bool,
}

impl SendError {
    /// A message that was refused before any attempt.
    pub(crate) fn unsent(cause: ClientError) -> SendError {
        SendError { maybe_stored: cause.may_have_been_stored(), cause, attempts: 0 }
    }

    /// Whether any attempt may have stored the message. False means: certainly not stored by this call.
    #[must_use]
    pub fn may_have_been_stored(&self) -> bool {
        self.maybe_stored
    }

    /// Whether the same call may succeed a little later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.cause.is_retryable()
    }
}
