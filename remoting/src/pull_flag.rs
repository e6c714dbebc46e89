//! What the flag of a pull asks for.

/// The bits of a pull's `sysFlag`. Source: `spec/protocol.md` 7.1.
#[derive(Debug, Clone, Copy)]
pub struct PullSysFlag;

impl PullSysFlag {
    /// Commits `commitOffset` for the group.
    pub const COMMIT_OFFSET: i32 = 1;
    /// Holds the request while there is nothing to give.
    pub const SUSPEND: i32 = 2;
    /// Filters by the request's own expression, not by the group's registered one.
    pub const SUBSCRIPTION: i32 = 4;
    /// Legacy: filters by a class.
    pub const CLASS_FILTER: i32 = 8;
    /// Sent by a lite pull consumer.
    pub const LITE_PULL: i32 = 16;
}
