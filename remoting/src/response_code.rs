//! What an answer says: it worked, or why not.

use std::fmt;

/// The code of a response. Any `i32` may arrive; the known ones have a constant and a name.
///
/// Source: `spec/protocol.md` 3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResponseCode(pub i32);

macro_rules! response_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        impl ResponseCode {
            $($(#[$doc])* pub const $name: ResponseCode = ResponseCode($code);)*

            /// Every code with a name, in ascending order.
            pub const ALL: &[ResponseCode] = &[$(ResponseCode::$name,)*];

            /// The reference's name of the code, if it has one.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

response_codes! {
    /// It worked.
    SUCCESS = 0;
    /// Any failure without a code of its own.
    SYSTEM_ERROR = 1;
    /// Flow control: try again later.
    SYSTEM_BUSY = 2;
    /// The receiver does not serve this request code.
    REQUEST_CODE_NOT_SUPPORTED = 3;
    /// Not on the wire in practice.
    TRANSACTION_FAILED = 4;
    /// Stored, but not flushed in time.
    FLUSH_DISK_TIMEOUT = 10;
    /// Stored, but there is no slave to copy it to.
    SLAVE_NOT_AVAILABLE = 11;
    /// Stored, but not confirmed by a slave in time.
    FLUSH_SLAVE_TIMEOUT = 12;
    /// Body, properties, topic or delay outside the limits.
    MESSAGE_ILLEGAL = 13;
    /// The store does not take messages now.
    SERVICE_NOT_AVAILABLE = 14;
    /// Not on the wire in practice.
    VERSION_NOT_SUPPORTED = 15;
    /// Refused by permission of broker, topic or group, or by authentication.
    NO_PERMISSION = 16;
    /// Unknown topic.
    TOPIC_NOT_EXIST = 17;
    /// Not on the wire in practice.
    TOPIC_EXIST_ALREADY = 18;
    /// Nothing at this offset yet.
    PULL_NOT_FOUND = 19;
    /// Nothing that matches here: pull on from the given offset.
    PULL_RETRY_IMMEDIATELY = 20;
    /// The offset lies outside the queue: go on from the given one.
    PULL_OFFSET_MOVED = 21;
    /// No such message, offset or key.
    QUERY_NOT_FOUND = 22;
    /// The filter expression cannot be parsed.
    SUBSCRIPTION_PARSE_FAILED = 23;
    /// The group has no subscription to this topic.
    SUBSCRIPTION_NOT_EXIST = 24;
    /// The broker knows an older subscription than the consumer.
    SUBSCRIPTION_NOT_LATEST = 25;
    /// Unknown group.
    SUBSCRIPTION_GROUP_NOT_EXIST = 26;
    /// No filter data for the group.
    FILTER_DATA_NOT_EXIST = 27;
    /// Filter data older than the request.
    FILTER_DATA_NOT_LATEST = 28;
    /// A field has a value that cannot be; before 5.3.2 this was [`SYSTEM_ERROR`](ResponseCode::SYSTEM_ERROR).
    INVALID_PARAMETER = 29;
    /// Not on the wire in practice.
    TRANSACTION_SHOULD_COMMIT = 200;
    /// Not on the wire in practice.
    TRANSACTION_SHOULD_ROLLBACK = 201;
    /// Not on the wire in practice.
    TRANSACTION_STATE_UNKNOW = 202;
    /// Not on the wire in practice.
    TRANSACTION_STATE_GROUP_WRONG = 203;
    /// Legacy; producers try again.
    NO_BUYER_ID = 204;
    /// Legacy; producers try again.
    NOT_IN_CURRENT_UNIT = 205;
    /// No member of the group is connected.
    CONSUMER_NOT_ONLINE = 206;
    /// The client did not answer the forwarded request in time.
    CONSUME_MSG_TIMEOUT = 207;
    /// Acknowledged offset out of range.
    NO_MESSAGE = 208;
    /// Too many waiting POP requests.
    POLLING_FULL = 209;
    /// Nothing came while the POP request waited.
    POLLING_TIMEOUT = 210;
    /// Not on the wire in practice.
    BROKER_NOT_EXIST = 211;
    /// Not on the wire in practice.
    BROKER_DISPATCH_NOT_COMPLETE = 212;
    /// Not on the wire in practice.
    BROADCAST_CONSUMPTION = 213;
    /// Pull again after a moment.
    FLOW_CONTROL = 215;
    /// Static topics: this broker does not own the queue.
    NOT_LEADER_FOR_QUEUE = 501;
    /// Outside the time or place where the operation is allowed.
    ILLEGAL_OPERATION = 604;
    /// The server is closing the connection: use another one.
    GO_AWAY = 1500;
    /// Controller: the master epoch is old.
    CONTROLLER_FENCED_MASTER_EPOCH = 2000;
    /// Controller: the epoch of the in-sync set is old.
    CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH = 2001;
    /// Controller: not the master.
    CONTROLLER_INVALID_MASTER = 2002;
    /// Controller: unknown replicas.
    CONTROLLER_INVALID_REPLICAS = 2003;
    /// Controller: there is no master.
    CONTROLLER_MASTER_NOT_AVAILABLE = 2004;
    /// Controller: malformed request.
    CONTROLLER_INVALID_REQUEST = 2005;
    /// Controller: the broker is not alive.
    CONTROLLER_BROKER_NOT_ALIVE = 2006;
    /// Controller: ask the leader.
    CONTROLLER_NOT_LEADER = 2007;
    /// Controller: nothing known of the broker.
    CONTROLLER_BROKER_METADATA_NOT_EXIST = 2008;
    /// Controller: the data may not be cleaned.
    CONTROLLER_INVALID_CLEAN_BROKER_METADATA = 2009;
    /// Controller: register first.
    CONTROLLER_BROKER_NEED_TO_BE_REGISTERED = 2010;
    /// Controller: there is a master already.
    CONTROLLER_MASTER_STILL_EXIST = 2011;
    /// Controller: no master was elected.
    CONTROLLER_ELECT_MASTER_FAILED = 2012;
    /// Controller: the in-sync set was not changed.
    CONTROLLER_ALTER_SYNC_STATE_SET_FAILED = 2013;
    /// Controller: the id cannot be used.
    CONTROLLER_BROKER_ID_INVALID = 2014;
    /// Controller: failure of its own consensus.
    CONTROLLER_JRAFT_INTERNAL_ERROR = 2015;
    /// Controller: no liveness information.
    CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS = 2016;
    /// Unknown user.
    USER_NOT_EXIST = 3001;
    /// Unknown policy.
    POLICY_NOT_EXIST = 3002;
}

impl ResponseCode {
    /// Whether the request was carried out completely.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 == ResponseCode::SUCCESS.0
    }
}

impl fmt::Display for ResponseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for ResponseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
