//! The marks of product code by name, so that a scenario which names one is checked before it runs.
//!
//! `tests/tidy.rs` compares these lists with the marks that stand in the sources.

/// Places that code only passes (`host::point!`): a fault can happen on them.
pub const POINTS: [&str; 27] = [
    "broker.dead-letter",
    "broker.delayed-delivered",
    "broker.log-epoch-begun",
    "broker.log-exchanged",
    "broker.members-notified",
    "broker.offset-moved",
    "broker.offset-was-cut-off",
    "broker.offsets-loaded",
    "broker.offsets-persisted",
    "broker.pull-held",
    "client.message-unreadable",
    "client.position-corrected",
    "client.queue-added",
    "client.queue-removed",
    "client.rebalanced",
    "namesrv.broker-expired",
    "remoting.connection-refused",
    "remoting.go-away",
    "remoting.malformed",
    "remoting.read-held-back",
    "store.appended",
    "store.disk-full",
    "store.entry-found-in-log",
    "store.file-deleted",
    "store.flushed",
    "store.recovered",
    "store.truncated",
];

/// Places where code can be held as well (`host::gate!`).
pub const GATES: [&str; 6] = [
    "broker.offsets-persisting",
    "broker.registering",
    "client.committing",
    "client.rebalancing",
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

/// What many runs together must come to (`host::sometimes!`).
pub const SOMETIMES: [&str; 2] = ["store.flush-shared", "store.log-rolled"];

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
