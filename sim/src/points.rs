//! The marks of product code by name, so that a scenario which names one is checked before it runs.
//!
//! `tests/tidy.rs` compares these lists with the marks that stand in the sources.

use crate::scenario::Kind;

/// Places that code only passes (`host::point!`): a fault can happen on them.
pub const POINTS: [&str; 44] = [
    "broker.dead-letter",
    "broker.delayed-delivered",
    "broker.log-epoch-begun",
    "broker.log-exchanged",
    "broker.master-changed",
    "broker.members-notified",
    "broker.offset-moved",
    "broker.offset-was-cut-off",
    "broker.offsets-loaded",
    "broker.offsets-persisted",
    "broker.pull-held",
    "broker.slave-ahead",
    "broker.tables-copied",
    "client.message-unreadable",
    "client.position-corrected",
    "client.pulling",
    "client.queue-added",
    "client.queue-removed",
    "client.rebalanced",
    "ha.ahead",
    "ha.append",
    "ha.diverged",
    "ha.following",
    "ha.frame-sent",
    "ha.report-refused",
    "ha.reporting",
    "ha.too-old",
    "namesrv.broker-expired",
    "remoting.connection-refused",
    "remoting.go-away",
    "remoting.malformed",
    "remoting.read-held-back",
    "store.appended",
    "store.committed",
    "store.cut-known",
    "store.disk-full",
    "store.entry-found-in-log",
    "store.file-deleted",
    "store.file-unlocked",
    "store.flushed",
    "store.log-file-made",
    "store.log-rolled",
    "store.recovered",
    "store.truncated",
];

/// Places where code can be held as well (`host::gate!`).
pub const GATES: [&str; 8] = [
    "broker.offsets-persisting",
    "broker.registering",
    "client.committing",
    "client.rebalancing",
    "ha.frame",
    "ha.slave-ack",
    "store.dispatching",
    "store.flushing",
];

/// Not a mark: every node passes it before each poll of one of its tasks.
pub const POLL: &str = "poll";

/// Every name that a fault may wait for.
#[must_use]
pub fn triggers() -> Vec<&'static str> {
    POINTS.into_iter().chain(GATES).chain([POLL]).collect()
}

/// Which nodes can come to a point: those whose program has it. The first part of its name is its crate.
#[must_use]
pub fn passed_by(point: &str) -> &'static [Kind] {
    match (point, point.split_once('.')) {
        (_, Some(("broker" | "ha" | "store", _))) => &[Kind::Broker],
        // Producers have no queues.
        (_, Some(("client", _))) => &[Kind::Consumer],
        (_, Some(("namesrv", _))) => &[Kind::Namesrv],
        // Who accepts connections, and who makes some.
        ("remoting.connection-refused", _) => &[Kind::Namesrv, Kind::Broker],
        ("remoting.go-away", _) => &[Kind::Broker, Kind::Producer, Kind::Consumer],
        _ => &[Kind::Namesrv, Kind::Broker, Kind::Producer, Kind::Consumer],
    }
}

/// What many runs together must come to (`host::sometimes!`).
pub const SOMETIMES: [&str; 3] = ["store.buffers-exhausted", "store.flush-shared", "store.lock-refused"];

/// What must hold whenever the code comes to it (`host::always!`).
pub const ALWAYS: [&str; 3] =
    ["client.commit-not-past-pull", "store.dispatched-within-log", "store.flushed-within-log"];

/// Where product code may behave unusually (`host::buggify!`); reached when it does.
pub const BUGGIFY: [&str; 12] = [
    "broker.hold-short",
    "broker.offsets-persisted-early",
    "broker.pull-short",
    "broker.registered-early",
    "broker.send-busy",
    "client.committed-early",
    "client.pulled-late",
    "client.rebalanced-early",
    "store.dispatched-one-by-one",
    "store.flushed-early",
    "store.flushed-late",
    "store.rolled-early",
];

/// Every name that a run can reach, for `sometimes` of a scenario.
#[must_use]
pub fn marks() -> Vec<&'static str> {
    POINTS.into_iter().chain(GATES).chain(SOMETIMES).chain(ALWAYS).chain(BUGGIFY).collect()
}
