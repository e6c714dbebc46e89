//! What groups commit.

use std::sync::Arc;

use host::Host;
use message::QueueOffset;

use crate::{
    config::BrokerConfig,
    group_master::GroupMaster,
    offsets::{ConsumerOffsets, GroupQueue},
};

/// Keeps the offsets that groups commit. A slave remembers which it took while it knew of no master: those are newer
/// than what the master has when it comes back.
pub(crate) struct Commits {
    pub(crate) host: Host,
    pub(crate) config: Arc<BrokerConfig>,
    pub(crate) offsets: Arc<ConsumerOffsets>,
    pub(crate) master: Arc<GroupMaster>,
}

impl Commits {
    /// Sets an offset, forwards or backwards.
    pub(crate) fn commit(&self, at: GroupQueue<'_>, offset: QueueOffset) {
        let is_alone = !self.config.role.is_master() && !self.master.is_known();
        let now_ms = self.host.wall_ms();
        if is_alone {
            self.offsets.commit_alone(at, offset, now_ms);
        } else {
            self.offsets.commit(at, offset, now_ms);
        }
    }
}
