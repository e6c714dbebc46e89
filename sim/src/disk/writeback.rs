//! When the kernel writes dirty pages back by itself.

use std::{ops::RangeInclusive, time::Duration};

use crate::seed::{Domain, Seed};

const PAGES: Domain = Domain::named("disk.writeback-page");
const LENS: Domain = Domain::named("disk.writeback-len");

/// The write-back delays of one file.
#[derive(Debug)]
pub(super) struct Writeback {
    pub seed: Seed,
    /// Names the file among all files of all disks.
    pub entity: u64,
    pub delay: RangeInclusive<Duration>,
    /// Pages and lengths that became dirty so far.
    pub pages: u64,
    pub lens: u64,
}

impl Writeback {
    /// How long a page that becomes dirty now stays so, in nanoseconds.
    pub(super) fn page_delay(&mut self) -> u64 {
        self.pages += 1;
        nanos(self.seed.draw(PAGES, self.entity, self.pages).duration(self.delay.clone()))
    }

    /// The same for a length.
    pub(super) fn len_delay(&mut self) -> u64 {
        self.lens += 1;
        nanos(self.seed.draw(LENS, self.entity, self.lens).duration(self.delay.clone()))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
