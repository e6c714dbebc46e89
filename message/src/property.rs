//! Names of the properties that RocketMQ itself uses. Source: `spec/protocol.md` 15.4, reference `MessageConst`.

/// Keys for the index, separated by one blank.
pub const KEYS: &str = "KEYS";
/// The tag of the message.
pub const TAGS: &str = "TAGS";
/// `false`: the sender does not wait for flush and replication. Absent means true.
pub const WAIT_STORE: &str = "WAIT";
/// Delay level, from 1.
pub const DELAY_LEVEL: &str = "DELAY";
/// Original topic of a retried message.
pub const RETRY_TOPIC: &str = "RETRY_TOPIC";
/// Target topic of a delayed or half message.
pub const REAL_TOPIC: &str = "REAL_TOPIC";
/// Target queue of a delayed or half message.
pub const REAL_QUEUE_ID: &str = "REAL_QID";
/// `true`: a half message of a transaction.
pub const TRANSACTION_PREPARED: &str = "TRAN_MSG";
/// Group of the producer that sent it.
pub const PRODUCER_GROUP: &str = "PGROUP";
/// Least offset of the queue at the time of the pull; added by a client.
pub const MIN_OFFSET: &str = "MIN_OFFSET";
/// End of the queue at the time of the pull; added by a client.
pub const MAX_OFFSET: &str = "MAX_OFFSET";
/// Offset message id of the first delivery attempt.
pub const ORIGIN_MESSAGE_ID: &str = "ORIGIN_MESSAGE_ID";
/// How often it was handed to a consumer in vain; used when a consumer sends back by itself.
pub const RECONSUME_TIMES: &str = "RECONSUME_TIME";
/// After how many attempts it goes to the dead-letter queue.
pub const MAX_RECONSUME_TIMES: &str = "MAX_RECONSUME_TIMES";
/// Region of the broker, for traces.
pub const MSG_REGION: &str = "MSG_REGION";
/// Whether clients write traces of it.
pub const TRACE_ON: &str = "TRACE_ON";
/// The unique id that its client gave it.
pub const UNIQUE_ID: &str = "UNIQ_KEY";
/// An extra id that a proxy gave it.
pub const EXTEND_UNIQUE_INFO: &str = "EXTEND_UNIQ_INFO";
/// For the detection of duplicates.
pub const DUP_INFO: &str = "DUP_INFO";
/// When a client began to handle it, in milliseconds.
pub const CONSUME_START_TIME: &str = "CONSUME_START_TIME";
/// Number of messages in an inner batch.
pub const INNER_NUM: &str = "INNER_NUM";
/// First queue offset of an inner batch.
pub const INNER_BASE: &str = "INNER_BASE";
/// Seconds before a transaction is checked for the first time.
pub const CHECK_IMMUNITY_SECONDS: &str = "CHECK_IMMUNITY_TIME_IN_SECONDS";
/// Offset of a half message in its own topic.
pub const TRANSACTION_PREPARED_QUEUE_OFFSET: &str = "TRAN_PREPARED_QUEUE_OFFSET";
/// How often a transaction was checked.
pub const TRANSACTION_CHECK_TIMES: &str = "TRANSACTION_CHECK_TIMES";
/// The transaction id that the user gave.
pub const TRANSACTION_ID: &str = "__transactionId__";
/// Namespace instance.
pub const INSTANCE_ID: &str = "INSTANCE_ID";
/// Ties a reply to its request.
pub const CORRELATION_ID: &str = "CORRELATION_ID";
/// The client that waits for a reply.
pub const REPLY_TO_CLIENT: &str = "REPLY_TO_CLIENT";
/// How long a request may live, in milliseconds.
pub const TTL: &str = "TTL";
/// `reply` for a reply.
pub const MESSAGE_TYPE: &str = "MSG_TYPE";
/// Name of the cluster, needed for replies.
pub const CLUSTER: &str = "CLUSTER";
/// Receipt of a message taken by POP.
pub const POP_CK: &str = "POP_CK";
/// When it was popped for the first time.
pub const FIRST_POP_TIME: &str = "1ST_POP_TIME";
/// Key that keeps messages in order.
pub const SHARDING_KEY: &str = "__SHARDINGKEY";
/// `%LMQ%` queues that also get the message, separated by commas.
pub const INNER_MULTI_DISPATCH: &str = "INNER_MULTI_DISPATCH";
/// Offsets in those queues.
pub const INNER_MULTI_QUEUE_OFFSET: &str = "INNER_MULTI_QUEUE_OFFSET";
/// Delay in seconds.
pub const TIMER_DELAY_SECONDS: &str = "TIMER_DELAY_SEC";
/// Delay in milliseconds.
pub const TIMER_DELAY_MS: &str = "TIMER_DELAY_MS";
/// Wall-clock time of delivery, in milliseconds.
pub const TIMER_DELIVER_MS: &str = "TIMER_DELIVER_MS";
/// Checksum of the whole record; see [`crate::RecordView`].
pub const CRC32: &str = "__CRC32#";
/// Topic from which a message came to the dead-letter queue.
pub const DLQ_ORIGIN_TOPIC: &str = "DLQ_ORIGIN_TOPIC";
/// Id under which it was known there.
pub const DLQ_ORIGIN_MESSAGE_ID: &str = "DLQ_ORIGIN_MESSAGE_ID";

/// Names that user code may not set. Source: `spec/protocol.md` 15.4, the names marked with a star.
pub const RESERVED: &[&str] = &[
    KEYS,
    TAGS,
    WAIT_STORE,
    DELAY_LEVEL,
    RETRY_TOPIC,
    REAL_TOPIC,
    REAL_QUEUE_ID,
    TRANSACTION_PREPARED,
    PRODUCER_GROUP,
    MIN_OFFSET,
    MAX_OFFSET,
    "BUYER_ID",
    ORIGIN_MESSAGE_ID,
    "TRANSFER_FLAG",
    "CORRECTION_FLAG",
    "MQ2_FLAG",
    RECONSUME_TIMES,
    MAX_RECONSUME_TIMES,
    MSG_REGION,
    TRACE_ON,
    UNIQUE_ID,
    EXTEND_UNIQUE_INFO,
    DUP_INFO,
    CONSUME_START_TIME,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
    INSTANCE_ID,
    CORRELATION_ID,
    REPLY_TO_CLIENT,
    TTL,
    MESSAGE_TYPE,
    "ARRIVE_TIME",
    "PUSH_REPLY_TIME",
    CLUSTER,
    POP_CK,
    "POP_CK_OFFSET",
    FIRST_POP_TIME,
    INNER_MULTI_QUEUE_OFFSET,
    TIMER_DELAY_SECONDS,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    "TIMER_ENQUEUE_MS",
    "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES",
    "TIMER_OUT_MS",
    "TIMER_DEL_UNIQKEY",
    "TIMER_DELAY_LEVEL",
    "__BORNHOST",
    "BORN_TIMESTAMP",
    CRC32,
    DLQ_ORIGIN_TOPIC,
    DLQ_ORIGIN_MESSAGE_ID,
];

/// Whether RocketMQ keeps this property name for itself.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}
