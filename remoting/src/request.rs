//! The table of all request codes, and what follows from it: [`RequestCode`], the typed [`Request`], and the rows from
//! which routers, the documentation and tests know what exists.

use std::fmt;

use crate::{
    fields::Fields,
    header::{FieldRow, Header, HeaderError, NoHeader},
    headers::*,
    language::Version,
};

/// Who takes part in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A client that sends messages.
    Producer,
    /// A client that receives messages.
    Consumer,
    /// Any client.
    Client,
    /// An administration tool.
    Admin,
    /// A name server.
    Namesrv,
    /// A broker.
    Broker,
    /// A controller.
    Controller,
}

/// What the body of a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// Nothing.
    Empty,
    /// The body of one message, as it goes into the log.
    Message,
    /// Items of a batch.
    Batch,
    /// Stored messages, one behind the other.
    Records,
    /// JSON; the text names the type.
    Json(&'static str),
    /// Lines `key=value`.
    Properties,
    /// A registration: JSON, or the compressed form.
    Registration,
    /// A binary structure of its own.
    Binary,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct RequestRow {
    /// The code.
    pub code: RequestCode,
    /// The reference's name.
    pub name: &'static str,
    /// The type of the request's header.
    pub header: &'static str,
    /// The fields of that header.
    pub fields: &'static [FieldRow],
    /// The type of the response's header.
    pub response: &'static str,
    /// The fields of that header.
    pub response_fields: &'static [FieldRow],
    /// The body of the request.
    pub body: BodyKind,
    /// The body of a successful response.
    pub response_body: BodyKind,
    /// Who sends it.
    pub from: &'static [Role],
    /// Who answers it.
    pub to: &'static [Role],
    /// The first release that has it; 4.9.8 stands for "long before".
    pub since: Version,
}

/// Codes that the reference defines and nobody serves: they are answered as unknown. The codes 50 to 54 are access
/// control of 4.x to 5.2. Source: `spec/protocol.md` 4.
pub const UNSERVED_CODES: &[i32] = &[13, 22, 23, 27, 47, 50, 51, 52, 53, 54, 209, 210, 211, 212, 213, 214, 301, 302];

/// Reads a header of its wire type and turns it into the type that handlers see.
fn read<W: Header, H: From<W>>(fields: &Fields) -> Result<H, HeaderError> {
    W::decode(fields).map(H::from)
}

macro_rules! wire {
    ($header:ident) => {
        $header
    };
    ($header:ident $wire:ident) => {
        $wire
    };
}

macro_rules! requests {
    ($(
        $(#[$doc:meta])*
        $variant:ident = $code:literal $name:ident
            ($header:ident $(as $wire:ident)?, $body:expr) -> ($response:ident, $response_body:expr)
            [$($from:ident)+ => $($to:ident)+] $since:ident;
    )*) => {
        /// The code of a request that somebody serves.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i32)]
        pub enum RequestCode {
            $(
                #[doc = concat!("`", stringify!($name), "` (", stringify!($code), ").")]
                $(#[$doc])*
                $variant = $code,
            )*
        }

        impl RequestCode {
            /// The table: one row for every code, in the order of the specification.
            pub const TABLE: &[RequestRow] = &[$(RequestRow {
                code: RequestCode::$variant,
                name: stringify!($name),
                header: stringify!($header),
                fields: <wire!($header $($wire)?) as Header>::FIELDS,
                response: stringify!($response),
                response_fields: <$response as Header>::FIELDS,
                body: { use BodyKind::*; $body },
                response_body: { use BodyKind::*; $response_body },
                from: &[$(Role::$from),+],
                to: &[$(Role::$to),+],
                since: Version::$since,
            },)*];

            /// The code with this number, if somebody serves it.
            #[must_use]
            pub const fn from_number(number: i32) -> Option<RequestCode> {
                match number {
                    $($code => Some(RequestCode::$variant),)*
                    _ => None,
                }
            }

            /// The reference's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(RequestCode::$variant => stringify!($name),)* }
            }
        }

        /// A request, decoded: its code and its typed header.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Request {
            $(
                #[doc = concat!("`", stringify!($name), "` (", stringify!($code), ").")]
                $(#[$doc])*
                $variant($header),
            )*
        }

        impl Request {
            /// Reads the header that belongs to `code`.
            ///
            /// # Errors
            /// As [`Header::decode`].
            pub fn decode(code: RequestCode, fields: &Fields) -> Result<Request, HeaderError> {
                Ok(match code {$(
                    RequestCode::$variant =>
                        Request::$variant(read::<wire!($header $($wire)?), $header>(fields)?),
                )*})
            }

            /// The code of the request.
            #[must_use]
            pub const fn code(&self) -> RequestCode {
                match self { $(Request::$variant(_) => RequestCode::$variant,)* }
            }

            /// Writes the header as fields.
            #[must_use]
            pub fn into_fields(self) -> Fields {
                let mut fields = Fields::with_capacity(16, 256);
                match self {$(
                    Request::$variant(header) => <wire!($header $($wire)?)>::from(header).encode(&mut fields),
                )*}
                fields
            }
        }
    };
}

requests! {
    // ---- producers, section 6 ----
    /// Stores one message.
    SendMessage = 10 SEND_MESSAGE
        (SendMessageRequestHeader, Message) -> (SendMessageResponseHeader, Empty) [Producer => Broker] V4_9_8;
    /// Stores one message; the short spelling.
    SendMessageV2 = 310 SEND_MESSAGE_V2
        (SendMessageRequestHeader as SendMessageRequestHeaderV2, Message) -> (SendMessageResponseHeader, Empty)
        [Producer => Broker] V4_9_8;
    /// Stores a batch of messages of one topic; the short spelling.
    SendBatchMessage = 320 SEND_BATCH_MESSAGE
        (SendMessageRequestHeader as SendMessageRequestHeaderV2, Batch) -> (SendMessageResponseHeader, Empty)
        [Producer => Broker] V4_9_8;
    /// Ends a transaction.
    EndTransaction = 37 END_TRANSACTION
        (EndTransactionRequestHeader, Empty) -> (NoHeader, Empty) [Producer => Broker] V4_9_8;
    /// Takes a timer message back.
    RecallMessage = 370 RECALL_MESSAGE
        (RecallMessageRequestHeader, Empty) -> (RecallMessageResponseHeader, Empty) [Producer => Broker] V5_3_2;
    /// Answers a request message.
    SendReplyMessage = 324 SEND_REPLY_MESSAGE
        (SendMessageRequestHeader, Message) -> (SendMessageResponseHeader, Empty) [Consumer => Broker] V4_9_8;
    /// Answers a request message; the short spelling.
    SendReplyMessageV2 = 325 SEND_REPLY_MESSAGE_V2
        (SendMessageRequestHeader as SendMessageRequestHeaderV2, Message) -> (SendMessageResponseHeader, Empty)
        [Consumer => Broker] V4_9_8;

    // ---- consumers, section 7 ----
    /// Reads messages of a queue from an offset on.
    PullMessage = 11 PULL_MESSAGE
        (PullMessageRequestHeader, Empty) -> (PullMessageResponseHeader, Records) [Consumer => Broker] V4_9_8;
    /// The same for lite pull consumers.
    LitePullMessage = 361 LITE_PULL_MESSAGE
        (PullMessageRequestHeader, Empty) -> (PullMessageResponseHeader, Records) [Consumer => Broker] V5_0_0;
    /// Reads the committed offset of a queue.
    QueryConsumerOffset = 14 QUERY_CONSUMER_OFFSET
        (QueryConsumerOffsetRequestHeader, Empty) -> (QueryConsumerOffsetResponseHeader, Empty)
        [Consumer => Broker] V4_9_8;
    /// Commits the offset of a queue.
    UpdateConsumerOffset = 15 UPDATE_CONSUMER_OFFSET
        (UpdateConsumerOffsetRequestHeader, Empty) -> (NoHeader, Empty) [Consumer => Broker] V4_9_8;
    /// Gives a message back that could not be consumed.
    ConsumerSendMsgBack = 36 CONSUMER_SEND_MSG_BACK
        (ConsumerSendMsgBackRequestHeader, Empty) -> (NoHeader, Empty) [Consumer => Broker] V4_9_8;
    /// Looks messages up by key.
    QueryMessage = 12 QUERY_MESSAGE
        (QueryMessageRequestHeader, Empty) -> (QueryMessageResponseHeader, Records) [Client => Broker] V4_9_8;
    /// Reads one message by its physical offset.
    ViewMessageById = 33 VIEW_MESSAGE_BY_ID
        (ViewMessageRequestHeader, Empty) -> (NoHeader, Records) [Client => Broker] V4_9_8;
    /// Looks an offset up by store time.
    SearchOffsetByTimestamp = 29 SEARCH_OFFSET_BY_TIMESTAMP
        (SearchOffsetRequestHeader, Empty) -> (OffsetResponseHeader, Empty) [Client => Broker] V4_9_8;
    /// Asks for the end of a queue.
    GetMaxOffset = 30 GET_MAX_OFFSET
        (GetMaxOffsetRequestHeader, Empty) -> (OffsetResponseHeader, Empty) [Client => Broker] V4_9_8;
    /// Asks for the start of a queue.
    GetMinOffset = 31 GET_MIN_OFFSET
        (GetMinOffsetRequestHeader, Empty) -> (OffsetResponseHeader, Empty) [Client => Broker] V4_9_8;
    /// Asks for the store time of the first message of a queue.
    GetEarliestMsgStoretime = 32 GET_EARLIEST_MSG_STORETIME
        (GetMinOffsetRequestHeader, Empty) -> (GetEarliestMsgStoretimeResponseHeader, Empty)
        [Client => Broker] V4_9_8;

    // ---- sessions, section 8 ----
    /// A client says who it is and what its groups subscribe to.
    HeartBeat = 34 HEART_BEAT
        (NoHeader, Json("HeartbeatData")) -> (HeartbeatResponseHeader, Empty) [Client => Broker] V4_9_8;
    /// A client leaves its groups.
    UnregisterClient = 35 UNREGISTER_CLIENT
        (UnregisterClientRequestHeader, Empty) -> (NoHeader, Empty) [Client => Broker] V4_9_8;
    /// Asks for the members of a group.
    GetConsumerListByGroup = 38 GET_CONSUMER_LIST_BY_GROUP
        (ConsumerGroupRequestHeader, Empty) -> (NoHeader, Json("ConsumerList")) [Client => Broker] V4_9_8;
    /// Takes queues for ordered consumption.
    LockBatchMq = 41 LOCK_BATCH_MQ
        (NoHeader, Json("LockBatchRequest")) -> (NoHeader, Json("LockBatchResponse")) [Client => Broker] V4_9_8;
    /// Gives such queues back.
    UnlockBatchMq = 42 UNLOCK_BATCH_MQ
        (NoHeader, Json("LockBatchRequest")) -> (NoHeader, Empty) [Client => Broker] V4_9_8;
    /// Checks a filter expression.
    CheckClientConfig = 46 CHECK_CLIENT_CONFIG
        (NoHeader, Json("CheckClientRequest")) -> (NoHeader, Empty) [Client => Broker] V4_9_8;

    // ---- broker to client, section 9 ----
    /// Asks what became of a transaction; the body is the half message.
    CheckTransactionState = 39 CHECK_TRANSACTION_STATE
        (CheckTransactionStateRequestHeader, Records) -> (NoHeader, Empty) [Broker => Client] V4_9_8;
    /// The members of a group changed.
    NotifyConsumerIdsChanged = 40 NOTIFY_CONSUMER_IDS_CHANGED
        (ConsumerGroupRequestHeader, Empty) -> (NoHeader, Empty) [Broker => Client] V4_9_8;
    /// New offsets for a member of a group.
    ResetConsumerClientOffset = 220 RESET_CONSUMER_CLIENT_OFFSET
        (ResetOffsetRequestHeader, Json("OffsetTable")) -> (NoHeader, Empty) [Broker => Client] V4_9_8;
    /// Asks for the offsets that a member holds.
    GetConsumerStatusFromClient = 221 GET_CONSUMER_STATUS_FROM_CLIENT
        (GetConsumerStatusRequestHeader, Empty) -> (NoHeader, Json("ConsumerStatus")) [Broker => Client] V4_9_8;
    /// Asks a member how it is.
    GetConsumerRunningInfo = 307 GET_CONSUMER_RUNNING_INFO
        (GetConsumerRunningInfoRequestHeader, Empty) -> (NoHeader, Json("ConsumerRunningInfo"))
        [Broker Admin => Client Broker] V4_9_8;
    /// Has a member consume one message now.
    ConsumeMessageDirectly = 309 CONSUME_MESSAGE_DIRECTLY
        (ConsumeMessageDirectlyRequestHeader, Records) -> (NoHeader, Json("ConsumeMessageDirectlyResult"))
        [Broker Admin => Client Broker] V4_9_8;
    /// Delivers the answer to a request message.
    PushReplyMessageToClient = 326 PUSH_REPLY_MESSAGE_TO_CLIENT
        (ReplyMessageRequestHeader, Message) -> (NoHeader, Empty) [Broker => Client] V4_9_8;

    // ---- name server, section 10 ----
    /// Asks for the route of a topic.
    GetRouteInfoByTopic = 105 GET_ROUTEINFO_BY_TOPIC
        (GetRouteInfoRequestHeader, Empty) -> (NoHeader, Json("TopicRouteData"))
        [Client Broker Admin => Namesrv] V4_9_8;
    /// Reads a value of the configuration table.
    GetKvConfig = 101 GET_KV_CONFIG
        (KvConfigRequestHeader, Empty) -> (GetKvConfigResponseHeader, Empty) [Client Admin => Namesrv] V4_9_8;
    /// A broker announces itself and its topics.
    RegisterBroker = 103 REGISTER_BROKER
        (RegisterBrokerRequestHeader, Registration) -> (RegisterBrokerResponseHeader, Json("KvTable"))
        [Broker => Namesrv] V4_9_8;
    /// A broker leaves.
    UnregisterBroker = 104 UNREGISTER_BROKER
        (UnregisterBrokerRequestHeader, Empty) -> (NoHeader, Empty) [Broker => Namesrv] V4_9_8;
    /// A broker asks whether it must register again.
    QueryDataVersion = 322 QUERY_DATA_VERSION
        (QueryDataVersionRequestHeader, Json("DataVersion")) -> (QueryDataVersionResponseHeader, Json("DataVersion"))
        [Broker => Namesrv] V4_9_8;
    /// A broker is alive.
    BrokerHeartbeat = 904 BROKER_HEARTBEAT
        (BrokerHeartbeatRequestHeader, Empty) -> (NoHeader, Empty) [Broker => Namesrv Controller] V5_0_0;
    /// Asks for the members of a group of brokers.
    GetBrokerMemberGroup = 901 GET_BROKER_MEMBER_GROUP
        (GetBrokerMemberGroupRequestHeader, Empty) -> (NoHeader, Json("BrokerMemberGroup"))
        [Broker => Namesrv] V5_0_0;
    /// Stores a value of the configuration table.
    PutKvConfig = 100 PUT_KV_CONFIG
        (PutKvConfigRequestHeader, Empty) -> (NoHeader, Empty) [Admin => Namesrv] V4_9_8;
    /// Removes a value of the configuration table.
    DeleteKvConfig = 102 DELETE_KV_CONFIG
        (KvConfigRequestHeader, Empty) -> (NoHeader, Empty) [Admin => Namesrv] V4_9_8;
    /// Asks for all brokers.
    GetBrokerClusterInfo = 106 GET_BROKER_CLUSTER_INFO
        (NoHeader, Empty) -> (NoHeader, Json("ClusterInfo")) [Client Broker Admin => Namesrv] V4_9_8;
    /// Takes the write permission from a broker's topics.
    WipeWritePermOfBroker = 205 WIPE_WRITE_PERM_OF_BROKER
        (BrokerNameRequestHeader, Empty) -> (WipeWritePermOfBrokerResponseHeader, Empty) [Admin => Namesrv] V4_9_8;
    /// Asks for all topics.
    GetAllTopicListFromNamesrv = 206 GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        (NoHeader, Empty) -> (NoHeader, Json("TopicList")) [Admin => Namesrv] V4_9_8;
    /// Forgets a topic.
    DeleteTopicInNamesrv = 216 DELETE_TOPIC_IN_NAMESRV
        (DeleteTopicFromNamesrvRequestHeader, Empty) -> (NoHeader, Empty) [Admin => Namesrv] V4_9_8;
    /// Announces the queues of a topic.
    RegisterTopicInNamesrv = 217 REGISTER_TOPIC_IN_NAMESRV
        (RegisterTopicRequestHeader, Json("TopicRouteData")) -> (NoHeader, Empty) [Admin => Namesrv] V5_0_0;
    /// Reads a namespace of the configuration table.
    GetKvListByNamespace = 219 GET_KVLIST_BY_NAMESPACE
        (GetKvListByNamespaceRequestHeader, Empty) -> (NoHeader, Json("KvTable")) [Admin => Namesrv] V4_9_8;
    /// Asks for the topics of a cluster.
    GetTopicsByCluster = 224 GET_TOPICS_BY_CLUSTER
        (GetTopicsByClusterRequestHeader, Empty) -> (NoHeader, Json("TopicList")) [Admin => Namesrv] V4_9_8;
    /// Asks for the names of clusters and brokers, which are topics.
    GetSystemTopicListFromNs = 304 GET_SYSTEM_TOPIC_LIST_FROM_NS
        (NoHeader, Empty) -> (NoHeader, Json("TopicList")) [Admin => Namesrv] V4_9_8;
    /// Asks for the topics of units.
    GetUnitTopicList = 311 GET_UNIT_TOPIC_LIST
        (NoHeader, Empty) -> (NoHeader, Json("TopicList")) [Admin => Namesrv] V4_9_8;
    /// Asks for the topics with subscriptions of units.
    GetHasUnitSubTopicList = 312 GET_HAS_UNIT_SUB_TOPIC_LIST
        (NoHeader, Empty) -> (NoHeader, Json("TopicList")) [Admin => Namesrv] V4_9_8;
    /// Asks for the topics with subscriptions of units that are not of units themselves.
    GetHasUnitSubUnunitTopicList = 313 GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST
        (NoHeader, Empty) -> (NoHeader, Json("TopicList")) [Admin => Namesrv] V4_9_8;
    /// Changes settings of the name server.
    UpdateNamesrvConfig = 318 UPDATE_NAMESRV_CONFIG
        (NoHeader, Properties) -> (NoHeader, Empty) [Admin => Namesrv] V4_9_8;
    /// Reads the settings of the name server.
    GetNamesrvConfig = 319 GET_NAMESRV_CONFIG
        (NoHeader, Empty) -> (NoHeader, Properties) [Admin => Namesrv] V4_9_8;
    /// Gives the write permission back to a broker's topics.
    AddWritePermOfBroker = 327 ADD_WRITE_PERM_OF_BROKER
        (BrokerNameRequestHeader, Empty) -> (AddWritePermOfBrokerResponseHeader, Empty) [Admin => Namesrv] V4_9_8;

    // ---- slave to master, section 11.1 ----
    /// Reads all topics.
    GetAllTopicConfig = 21 GET_ALL_TOPIC_CONFIG
        (GetAllTopicConfigRequestHeader, Empty) -> (GetAllTopicConfigResponseHeader, Json("TopicConfigSerializeWrapper"))
        [Broker Admin => Broker] V4_9_8;
    /// Reads all committed offsets.
    GetAllConsumerOffset = 43 GET_ALL_CONSUMER_OFFSET
        (NoHeader, Empty) -> (NoHeader, Json("ConsumerOffsetTable")) [Broker => Broker] V4_9_8;
    /// Reads how far each delay level is.
    GetAllDelayOffset = 45 GET_ALL_DELAY_OFFSET
        (NoHeader, Empty) -> (NoHeader, Json("DelayOffsetTable")) [Broker => Broker] V4_9_8;
    /// Reads all groups.
    GetAllSubscriptionGroupConfig = 201 GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        (GetAllSubscriptionGroupRequestHeader, Empty)
        -> (GetAllSubscriptionGroupResponseHeader, Json("SubscriptionGroupWrapper")) [Broker Admin => Broker] V4_9_8;
    /// Reads who pulls and who pops.
    GetAllMessageRequestMode = 402 GET_ALL_MESSAGE_REQUEST_MODE
        (NoHeader, Empty) -> (NoHeader, Json("MessageRequestModes")) [Broker => Broker] V5_0_0;
    /// Reads the check point of the timer.
    GetTimerCheckPoint = 60 GET_TIMER_CHECK_POINT
        (NoHeader, Empty) -> (NoHeader, Binary) [Broker => Broker] V5_0_0;
    /// Reads how many timer messages wait.
    GetTimerMetrics = 61 GET_TIMER_METRICS
        (NoHeader, Empty) -> (NoHeader, Json("TimerMetrics")) [Broker => Broker] V5_0_0;

    // ---- replicas, section 11.2 ----
    /// The smallest id that is alive in a group of brokers changed.
    NotifyMinBrokerIdChange = 905 NOTIFY_MIN_BROKER_ID_CHANGE
        (NotifyMinBrokerIdChangeRequestHeader, Empty) -> (NoHeader, Empty) [Namesrv Broker => Broker] V5_0_0;
    /// Replicas tell each other their replication addresses.
    ExchangeBrokerHaInfo = 906 EXCHANGE_BROKER_HA_INFO
        (ExchangeHaInfoHeader, Empty) -> (ExchangeHaInfoHeader, Empty) [Broker => Broker] V5_0_0;
    /// Sets the durable offset of the master.
    ResetMasterFlushOffset = 908 RESET_MASTER_FLUSH_OFFSET
        (ResetMasterFlushOffsetHeader, Empty) -> (NoHeader, Empty) [Admin => Broker] V5_0_0;

    // ---- controller, section 11.3 ----
    /// A master changes its set of replicas in sync.
    AlterSyncStateSet = 1001 CONTROLLER_ALTER_SYNC_STATE_SET
        (AlterSyncStateSetRequestHeader, Json("SyncStateSet")) -> (AlterSyncStateSetResponseHeader, Json("SyncStateSet"))
        [Broker => Controller] V5_0_0;
    /// Asks for a master.
    ElectMaster = 1002 CONTROLLER_ELECT_MASTER
        (ElectMasterRequestHeader, Empty) -> (ElectMasterResponseHeader, Json("SyncStateSet"))
        [Broker Admin => Controller] V5_0_0;
    /// A broker announces itself to the controller.
    ControllerRegisterBroker = 1003 CONTROLLER_REGISTER_BROKER
        (ControllerRegisterBrokerRequestHeader, Empty) -> (ControllerRegisterBrokerResponseHeader, Json("SyncStateSet"))
        [Broker => Controller] V5_0_0;
    /// Asks who is master.
    GetReplicaInfo = 1004 CONTROLLER_GET_REPLICA_INFO
        (BrokerNameRequestHeader, Empty) -> (GetReplicaInfoResponseHeader, Json("SyncStateSet"))
        [Broker => Controller] V5_0_0;
    /// Asks who leads the controllers.
    GetMetadataInfo = 1005 CONTROLLER_GET_METADATA_INFO
        (NoHeader, Empty) -> (GetMetadataInfoResponseHeader, Empty) [Broker Admin => Controller] V5_0_0;
    /// Asks for the replicas of many groups.
    GetSyncStateData = 1006 CONTROLLER_GET_SYNC_STATE_DATA
        (NoHeader, Json("broker names")) -> (NoHeader, Json("BrokerReplicasInfo")) [Admin => Controller] V5_0_0;
    /// Tells a broker its role.
    NotifyBrokerRoleChanged = 1008 NOTIFY_BROKER_ROLE_CHANGED
        (NotifyBrokerRoleChangedRequestHeader, Json("SyncStateSet")) -> (NoHeader, Empty)
        [Controller => Broker] V5_0_0;
    /// Changes settings of the controller.
    UpdateControllerConfig = 1009 UPDATE_CONTROLLER_CONFIG
        (NoHeader, Properties) -> (NoHeader, Empty) [Admin => Controller] V5_0_0;
    /// Reads the settings of the controller.
    GetControllerConfig = 1010 GET_CONTROLLER_CONFIG
        (NoHeader, Empty) -> (NoHeader, Properties) [Admin => Controller] V5_0_0;
    /// Forgets brokers.
    CleanBrokerData = 1011 CLEAN_BROKER_DATA
        (CleanBrokerDataRequestHeader, Empty) -> (NoHeader, Empty) [Admin => Controller] V5_0_0;
    /// Asks for a free broker id.
    GetNextBrokerId = 1012 CONTROLLER_GET_NEXT_BROKER_ID
        (GetNextBrokerIdRequestHeader, Empty) -> (GetNextBrokerIdResponseHeader, Empty)
        [Broker => Controller] V5_0_0;
    /// Takes a broker id.
    ApplyBrokerId = 1013 CONTROLLER_APPLY_BROKER_ID
        (ApplyBrokerIdRequestHeader, Empty) -> (ApplyBrokerIdResponseHeader, Empty) [Broker => Controller] V5_0_0;

    // ---- topics and groups, section 12.1 ----
    /// Creates or replaces a topic.
    UpdateAndCreateTopic = 17 UPDATE_AND_CREATE_TOPIC
        (CreateTopicRequestHeader, Empty) -> (NoHeader, Empty) [Admin => Broker] V4_9_8;
    /// Creates or replaces topics.
    UpdateAndCreateTopicList = 18 UPDATE_AND_CREATE_TOPIC_LIST
        (NoHeader, Json("topicConfigList")) -> (NoHeader, Empty) [Admin => Broker] V5_3_0;
    /// Deletes a topic.
    DeleteTopicInBroker = 215 DELETE_TOPIC_IN_BROKER
        (TopicRequestHeader, Empty) -> (NoHeader, Empty) [Admin => Broker] V4_9_8;
    /// Creates or replaces a group.
    UpdateAndCreateSubscriptionGroup = 200 UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        (NoHeader, Json("SubscriptionGroupConfig")) -> (NoHeader, Empty) [Admin => Broker] V4_9_8;
    /// Creates or replaces groups.
    UpdateAndCreateSubscriptionGroupList = 225 UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        (NoHeader, Json("groupConfigList")) -> (NoHeader, Empty) [Admin => Broker] V5_3_0;
    /// Deletes a group.
    DeleteSubscriptionGroup = 207 DELETE_SUBSCRIPTIONGROUP
        (DeleteSubscriptionGroupRequestHeader, Empty) -> (NoHeader, Empty) [Admin => Broker] V4_9_8;

    // ---- settings and cleaning, section 12.2 ----
    /// Changes settings of the broker.
    UpdateBrokerConfig = 25 UPDATE_BROKER_CONFIG
        (NoHeader, Properties) -> (NoHeader, Empty) [Admin => Broker] V4_9_8;
    /// Reads the settings of the broker.
    GetBrokerConfig = 26 GET_BROKER_CONFIG
        (NoHeader, Empty) -> (GetBrokerConfigResponseHeader, Properties) [Admin => Broker] V4_9_8;
    /// Deletes consume queues without log.
    CleanExpiredConsumeQueue = 306 CLEAN_EXPIRED_CONSUMEQUEUE
        (NoHeader, Empty) -> (NoHeader, Empty) [Admin => Broker] V4_9_8;
    /// Deletes topics that nobody uses.
    CleanUnusedTopic = 316 CLEAN_UNUSED_TOPIC
        (NoHeader, Empty) -> (NoHeader, Empty) [Admin => Broker] V4_9_8;
    /// Deletes log files beyond their time.
    DeleteExpiredCommitLog = 329 DELETE_EXPIRED_COMMITLOG
        (NoHeader, Empty) -> (NoHeader, Empty) [Admin => Broker] V4_9_8;

    // ---- queries, section 12.3 ----
    /// Reads the figures of the broker.
    GetBrokerRuntimeInfo = 28 GET_BROKER_RUNTIME_INFO
        (NoHeader, Empty) -> (NoHeader, Json("KvTable")) [Broker Admin => Broker] V4_9_8;
    /// Reads the offsets of a topic's queues.
    GetTopicStatsInfo = 202 GET_TOPIC_STATS_INFO
        (TopicRequestHeader, Empty) -> (NoHeader, Json("TopicStatsTable")) [Admin => Broker] V4_9_8;
    /// Lists the connections of a consumer group.
    GetConsumerConnectionList = 203 GET_CONSUMER_CONNECTION_LIST
        (ConsumerGroupRequestHeader, Empty) -> (NoHeader, Json("ConsumerConnection")) [Admin => Broker] V4_9_8;
    /// Lists the connections of a producer group.
    GetProducerConnectionList = 204 GET_PRODUCER_CONNECTION_LIST
        (ProducerGroupRequestHeader, Empty) -> (NoHeader, Json("ProducerConnection")) [Admin => Broker] V4_9_8;
    /// Reads how far a group is.
    GetConsumeStats = 208 GET_CONSUME_STATS
        (GetConsumeStatsRequestHeader, Empty) -> (NoHeader, Json("ConsumeStats")) [Admin => Broker] V4_9_8;
    /// Lists the groups of a topic.
    QueryTopicConsumeByWho = 300 QUERY_TOPIC_CONSUME_BY_WHO
        (TopicRequestHeader, Empty) -> (NoHeader, Json("GroupList")) [Admin => Broker] V4_9_8;
    /// Reads the time span that a group has still to consume.
    QueryConsumeTimeSpan = 303 QUERY_CONSUME_TIME_SPAN
        (QueryConsumeTimeSpanRequestHeader, Empty) -> (NoHeader, Json("ConsumeTimeSpans")) [Admin => Broker] V4_9_8;
    /// Lists the broker's own topics.
    GetSystemTopicListFromBroker = 305 GET_SYSTEM_TOPIC_LIST_FROM_BROKER
        (NoHeader, Empty) -> (NoHeader, Json("TopicList")) [Admin => Broker] V4_9_8;
    /// Reads the smallest offsets among groups.
    QueryCorrectionOffset = 308 QUERY_CORRECTION_OFFSET
        (QueryCorrectionOffsetRequestHeader, Empty) -> (NoHeader, Json("CorrectionOffsets")) [Admin => Broker] V4_9_8;
    /// Reads one figure.
    ViewBrokerStatsData = 315 VIEW_BROKER_STATS_DATA
        (ViewBrokerStatsDataRequestHeader, Empty) -> (NoHeader, Json("BrokerStatsData")) [Admin => Broker] V4_9_8;
    /// Reads the consume figures of all groups.
    GetBrokerConsumeStats = 317 GET_BROKER_CONSUME_STATS
        (GetBrokerConsumeStatsRequestHeader, Empty) -> (NoHeader, Json("ConsumeStatsList")) [Admin => Broker] V4_9_8;
    /// Reads entries of a consume queue.
    QueryConsumeQueue = 321 QUERY_CONSUME_QUEUE
        (QueryConsumeQueueRequestHeader, Empty) -> (NoHeader, Json("ConsumeQueueEntries")) [Admin => Broker] V4_9_8;
    /// Lists all producers.
    GetAllProducerInfo = 328 GET_ALL_PRODUCER_INFO
        (NoHeader, Empty) -> (NoHeader, Json("ProducerTable")) [Admin => Broker] V4_9_8;
    /// Lists the topics of a group.
    QueryTopicsByConsumer = 343 QUERY_TOPICS_BY_CONSUMER
        (GroupRequestHeader, Empty) -> (NoHeader, Json("TopicList")) [Admin => Broker] V5_0_0;
    /// Reads the subscription of a group to a topic.
    QuerySubscriptionByConsumer = 345 QUERY_SUBSCRIPTION_BY_CONSUMER
        (QuerySubscriptionRequestHeader, Empty) -> (NoHeader, Json("QuerySubscriptionResponse"))
        [Admin => Broker] V5_0_0;
    /// Reads the settings of a topic.
    GetTopicConfig = 351 GET_TOPIC_CONFIG
        (GetTopicConfigRequestHeader, Empty) -> (NoHeader, Json("TopicConfig")) [Admin => Broker] V5_0_0;
    /// Reads the settings of a group.
    GetSubscriptionGroupConfig = 352 GET_SUBSCRIPTIONGROUP_CONFIG
        (GroupRequestHeader, Empty) -> (NoHeader, Json("SubscriptionGroupConfig")) [Admin => Broker] V5_0_0;
    /// Reads the state of replication.
    GetBrokerHaStatus = 907 GET_BROKER_HA_STATUS
        (NoHeader, Empty) -> (NoHeader, Json("HaRuntimeInfo")) [Broker Admin => Broker] V5_0_0;
    /// Reads the epochs of the log.
    GetBrokerEpochCache = 1007 GET_BROKER_EPOCH_CACHE
        (NoHeader, Empty) -> (NoHeader, Json("EpochEntryCache")) [Admin => Broker] V5_0_0;

    // ---- offsets, section 12.4 ----
    /// Resets the offsets of a group.
    InvokeBrokerToResetOffset = 222 INVOKE_BROKER_TO_RESET_OFFSET
        (ResetOffsetRequestHeader, Empty) -> (NoHeader, Json("OffsetTable")) [Admin => Broker] V4_9_8;
    /// Reads the offsets that the members of a group hold.
    InvokeBrokerToGetConsumerStatus = 223 INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        (GetConsumerStatusRequestHeader, Empty) -> (NoHeader, Json("ConsumerStatus")) [Admin => Broker] V4_9_8;
    /// Copies the offsets of a group.
    CloneGroupOffset = 314 CLONE_GROUP_OFFSET
        (CloneGroupOffsetRequestHeader, Empty) -> (NoHeader, Empty) [Admin => Broker] V4_9_8;
    /// Resets the check counter of a half message.
    ResumeCheckHalfMessage = 323 RESUME_CHECK_HALF_MESSAGE
        (ResumeCheckHalfMessageRequestHeader, Empty) -> (NoHeader, Empty) [Admin => Broker] V4_9_8;
    /// Forbids or allows a group to read a topic.
    UpdateAndGetGroupForbidden = 353 UPDATE_AND_GET_GROUP_FORBIDDEN
        (UpdateGroupForbiddenRequestHeader, Empty) -> (NoHeader, Json("GroupForbidden")) [Admin => Broker] V5_0_0;

    // ---- rare, section 12.5 ----
    /// Asks how far another kind of consume queue was written.
    CheckRocksdbCqWriteProgress = 354 CHECK_ROCKSDB_CQ_WRITE_PROGRESS
        (CheckRocksdbCqWriteProgressRequestHeader, Empty) -> (NoHeader, Json("progress")) [Admin => Broker] V5_3_1;
    /// Writes settings of another kind of store as JSON.
    ExportRocksdbConfigToJson = 355 EXPORT_ROCKSDB_CONFIG_TO_JSON
        (ExportRocksdbConfigRequestHeader, Empty) -> (NoHeader, Empty) [Admin => Broker] V5_3_2;
    /// Creates or replaces a static topic.
    UpdateAndCreateStaticTopic = 513 UPDATE_AND_CREATE_STATIC_TOPIC
        (CreateTopicRequestHeader, Json("TopicQueueMappingDetail")) -> (NoHeader, Empty) [Admin => Broker] V5_0_0;
    /// Starts a broker inside a container.
    AddBroker = 902 ADD_BROKER
        (AddBrokerRequestHeader, Properties) -> (NoHeader, Empty) [Admin => Broker] V5_0_0;
    /// Stops a broker inside a container.
    RemoveBroker = 903 REMOVE_BROKER
        (RemoveBrokerRequestHeader, Empty) -> (NoHeader, Empty) [Admin => Broker] V5_0_0;
    /// Limits reads of old data by a group.
    UpdateColdDataFlowCtrConfig = 2001 UPDATE_COLD_DATA_FLOW_CTR_CONFIG
        (NoHeader, Properties) -> (NoHeader, Empty) [Admin => Broker] V5_1_4;
    /// Lifts such a limit.
    RemoveColdDataFlowCtrConfig = 2002 REMOVE_COLD_DATA_FLOW_CTR_CONFIG
        (NoHeader, Properties) -> (NoHeader, Empty) [Admin => Broker] V5_1_4;
    /// Reads such limits.
    GetColdDataFlowCtrInfo = 2003 GET_COLD_DATA_FLOW_CTR_INFO
        (NoHeader, Empty) -> (NoHeader, Json("limits")) [Admin => Broker] V5_1_4;
    /// How the commit log is read.
    SetCommitLogReadMode = 2004 SET_COMMITLOG_READ_MODE
        (SetCommitLogReadModeRequestHeader, Empty) -> (NoHeader, Empty) [Admin => Broker] V5_1_4;
    /// Creates a user.
    AuthCreateUser = 3001 AUTH_CREATE_USER
        (AuthUserRequestHeader, Json("UserInfo")) -> (NoHeader, Empty) [Admin => Broker] V5_3_0;
    /// Changes a user.
    AuthUpdateUser = 3002 AUTH_UPDATE_USER
        (AuthUserRequestHeader, Json("UserInfo")) -> (NoHeader, Empty) [Admin => Broker] V5_3_0;
    /// Deletes a user.
    AuthDeleteUser = 3003 AUTH_DELETE_USER
        (AuthUserRequestHeader, Empty) -> (NoHeader, Empty) [Admin => Broker] V5_3_0;
    /// Reads a user.
    AuthGetUser = 3004 AUTH_GET_USER
        (AuthUserRequestHeader, Empty) -> (NoHeader, Json("UserInfo")) [Admin => Broker] V5_3_0;
    /// Lists users.
    AuthListUser = 3005 AUTH_LIST_USER
        (AuthUserRequestHeader, Empty) -> (NoHeader, Json("list of UserInfo")) [Admin => Broker] V5_3_0;
    /// Creates an access rule.
    AuthCreateAcl = 3006 AUTH_CREATE_ACL
        (AuthAclRequestHeader, Json("AclInfo")) -> (NoHeader, Empty) [Admin => Broker] V5_3_0;
    /// Changes an access rule.
    AuthUpdateAcl = 3007 AUTH_UPDATE_ACL
        (AuthAclRequestHeader, Json("AclInfo")) -> (NoHeader, Empty) [Admin => Broker] V5_3_0;
    /// Deletes an access rule.
    AuthDeleteAcl = 3008 AUTH_DELETE_ACL
        (AuthAclRequestHeader, Empty) -> (NoHeader, Empty) [Admin => Broker] V5_3_0;
    /// Reads an access rule.
    AuthGetAcl = 3009 AUTH_GET_ACL
        (AuthAclRequestHeader, Empty) -> (NoHeader, Json("AclInfo")) [Admin => Broker] V5_3_0;
    /// Lists access rules.
    AuthListAcl = 3010 AUTH_LIST_ACL
        (AuthAclRequestHeader, Empty) -> (NoHeader, Json("list of AclInfo")) [Admin => Broker] V5_3_0;

    // ---- POP, section 13 ----
    /// Takes messages for a while.
    PopMessage = 200050 POP_MESSAGE
        (PopMessageRequestHeader, Empty) -> (PopMessageResponseHeader, Records) [Consumer => Broker] V5_0_0;
    /// Acknowledges one message.
    AckMessage = 200051 ACK_MESSAGE
        (AckMessageRequestHeader, Empty) -> (NoHeader, Empty) [Consumer => Broker] V5_0_0;
    /// Acknowledges many messages.
    BatchAckMessage = 200151 BATCH_ACK_MESSAGE
        (NoHeader, Json("BatchAck")) -> (NoHeader, Empty) [Consumer => Broker] V5_1_4;
    /// Looks at messages without taking them.
    PeekMessage = 200052 PEEK_MESSAGE
        (PeekMessageRequestHeader, Empty) -> (PopMessageResponseHeader, Records) [Consumer => Broker] V5_0_0;
    /// Changes how long a message stays taken.
    ChangeMessageInvisibleTime = 200053 CHANGE_MESSAGE_INVISIBLETIME
        (ChangeInvisibleTimeRequestHeader, Empty) -> (ChangeInvisibleTimeResponseHeader, Empty)
        [Consumer => Broker] V5_0_0;
    /// Waits until there is something to take.
    Notification = 200054 NOTIFICATION
        (NotificationRequestHeader, Empty) -> (NotificationResponseHeader, Empty) [Consumer => Broker] V5_0_0;
    /// Asks how many requests wait.
    PollingInfo = 200055 POLLING_INFO
        (PollingInfoRequestHeader, Empty) -> (PollingInfoResponseHeader, Empty) [Consumer => Broker] V5_0_0;
    /// Moves receipts back from another kind of store.
    PopRollback = 200056 POP_ROLLBACK
        (NoHeader, Empty) -> (NoHeader, Empty) [Admin => Broker] V5_3_2;
    /// Asks which queues a member consumes.
    QueryAssignment = 400 QUERY_ASSIGNMENT
        (NoHeader, Json("QueryAssignmentRequest")) -> (NoHeader, Json("QueryAssignmentResponse"))
        [Consumer => Broker] V5_0_0;
    /// Sets whether a group pulls or pops a topic.
    SetMessageRequestMode = 401 SET_MESSAGE_REQUEST_MODE
        (NoHeader, Json("MessageRequestMode")) -> (NoHeader, Empty) [Consumer Admin => Broker] V5_0_0;
}

impl RequestCode {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// The row of the code.
    #[must_use]
    pub fn row(self) -> &'static RequestRow {
        RequestCode::TABLE.iter().find(|row| row.code == self).expect("the table has a row for each code")
    }
}

impl fmt::Display for RequestCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.number())
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.code(), f)
    }
}
