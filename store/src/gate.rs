//! Whether the store takes writes.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::WriteBlock;

const STOPPED: u8 = 1;
const FENCED: u8 = 2;
const QUEUES_FAILING: u8 = 4;
const DISK_FULL: u8 = 8;

/// The reasons for which writes are refused right now. Each is set and cleared by the part that finds it, except that
/// a stop and a fence are for good.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    reasons: AtomicU8,
    used_percent: AtomicU8,
}

impl Gate {
    /// The gravest reason.
    pub(crate) fn block(&self) -> Option<WriteBlock> {
        match self.reasons.load(Ordering::Acquire) {
            0 => None,
            reasons if reasons & STOPPED != 0 => Some(WriteBlock::Stopped),
            reasons if reasons & FENCED != 0 => Some(WriteBlock::Fenced),
            reasons if reasons & QUEUES_FAILING != 0 => Some(WriteBlock::QueuesFailing),
            _ => Some(WriteBlock::DiskFull { used_percent: self.used_percent.load(Ordering::Acquire) }),
        }
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.reasons.load(Ordering::Acquire) & FENCED != 0
    }

    pub(crate) fn stop(&self) {
        self.set(STOPPED, true);
    }

    /// A sync failed: what is on disk is unknown until a restart (SF09).
    pub(crate) fn fence(&self) {
        self.set(FENCED, true);
    }

    /// True if that is a change.
    pub(crate) fn set_queues_failing(&self, failing: bool) -> bool {
        (self.set(QUEUES_FAILING, failing) & QUEUES_FAILING != 0) != failing
    }

    /// Notes how full the disk is. Full begins above `warning`, ends at or below `forcibly`. True if full began.
    pub(crate) fn set_used_percent(&self, used: u8, warning: u8, forcibly: u8) -> bool {
        self.used_percent.store(used, Ordering::Release);
        if used > warning {
            return self.set(DISK_FULL, true) & DISK_FULL == 0;
        }
        if used <= forcibly && !host::mutant!("writes-stay-refused") {
            self.set(DISK_FULL, false);
        }
        false
    }

    /// Returns the reasons before.
    fn set(&self, reason: u8, on: bool) -> u8 {
        if on {
            self.reasons.fetch_or(reason, Ordering::AcqRel)
        } else {
            self.reasons.fetch_and(!reason, Ordering::AcqRel)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Gate;
    use crate::WriteBlock;

    #[test]
    fn a_full_disk_stays_full_until_it_is_well_below() {
        let gate = Gate::default();
        assert!(!gate.set_used_percent(90, 90, 85));
        assert_eq!(gate.block(), None);
        assert!(gate.set_used_percent(91, 90, 85));
        assert!(!gate.set_used_percent(92, 90, 85));
        gate.set_used_percent(86, 90, 85);
        assert_eq!(gate.block(), Some(WriteBlock::DiskFull { used_percent: 86 }));
        gate.set_used_percent(85, 90, 85);
        assert_eq!(gate.block(), None);
    }

    #[test]
    fn the_gravest_reason_is_told() {
        let gate = Gate::default();
        gate.set_used_percent(99, 90, 85);
        gate.set_queues_failing(true);
        assert_eq!(gate.block(), Some(WriteBlock::QueuesFailing));
        gate.fence();
        assert_eq!(gate.block(), Some(WriteBlock::Fenced));
        gate.stop();
        assert_eq!(gate.block(), Some(WriteBlock::Stopped));
    }

    #[test]
    fn w23_a_reason_ends_when_its_cause_is_gone() {
        let gate = Gate::default();
        assert!(gate.set_queues_failing(true));
        assert!(!gate.set_queues_failing(true));
        assert_eq!(gate.block(), Some(WriteBlock::QueuesFailing));
        assert!(gate.set_queues_failing(false));
        assert_eq!(gate.block(), None);
    }

    #[test]
    fn w26_what_ends_one_reason_does_not_end_another() {
        let gate = Gate::default();
        gate.set_used_percent(95, 90, 85);
        gate.set_queues_failing(true);
        gate.set_queues_failing(false);
        assert_eq!(gate.block(), Some(WriteBlock::DiskFull { used_percent: 95 }));
        gate.set_queues_failing(true);
        gate.set_used_percent(10, 90, 85);
        assert_eq!(gate.block(), Some(WriteBlock::QueuesFailing));
    }
}
