//! The simulated disk of one node: a device with one file system on it.
//!
//! What a process writes stands in a page cache. The death of the process leaves it alone; a power loss decides for
//! every page, length and name that was not flushed whether it survives ([`Survival`]). What was flushed is never
//! touched.
//!
//! A [`Disk`] outlives the lives of its node. Each life works through a [`DiskHandle`] made by [`Disk::attach`];
//! handles, files and mappings of an older life do nothing and report an error.

mod handle;

pub use handle::{DiskHandle, Surroundings};

use std::sync::Arc;

/// What a disk is made with.
#[derive(Debug, Clone)]
pub struct DiskSettings {
    /// The seed of all draws of disks in this run.
    pub seed: u64,
    /// Which disk it is: the ordinal of its node. Disks of different ordinals draw independently.
    pub entity: u64,
    /// Size of the device in bytes.
    pub capacity_bytes: u64,
    /// What survives a power loss beyond what was flushed.
    pub durability: Durability,
    /// How long requests take.
    pub timing: Timing,
}

/// What a file system promises beyond POSIX (`spec/simulation.md` 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Nothing: each unflushed change of a directory is lost or kept alone.
    #[default]
    Strict,
    /// As ext4 does: changes of names survive as a prefix, and a rename over a file takes its new content along.
    OrderedJournal,
}

/// How long requests take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timing {
    /// A good SSD: flush 0.4 ms (median) plus 400 MB/s.
    #[default]
    Ssd,
    /// No time at all.
    Instant,
}

/// How a power loss chooses what survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// Nothing that was not flushed.
    AllOld,
    /// Everything.
    AllNew,
    /// What was written before some moment.
    Prefix,
    /// Each page, length and name by itself.
    Independent,
    /// As `Independent`, but neighbouring pages share their fate.
    Runs,
}

/// What a power loss did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashReport {
    /// How it chose.
    pub survival: Survival,
    /// Pages that were not flushed.
    pub dirty_pages: u64,
    /// Those of them that went back to their old content.
    pub lost_pages: u64,
    /// Those of them that came out as a mixture of old and new sectors.
    pub torn_pages: u64,
    /// Changes of names that were not flushed.
    pub pending_names: u64,
    /// Those of them that were undone.
    pub lost_names: u64,
}

/// One device with one file system, for all lives of one node.
#[derive(Debug, Clone)]
pub struct Disk {
    shared: Arc<()>,
}

impl Disk {
    /// An empty disk.
    #[must_use]
    pub fn new(_settings: DiskSettings) -> Disk {
        Disk { shared: Arc::new(()) }
    }

    /// Starts a life of the node on this disk: earlier handles are cut off, as by [`kill`](Disk::kill).
    #[must_use]
    pub fn attach(&self, surroundings: Arc<dyn Surroundings>) -> DiskHandle {
        let _ = &self.shared;
        DiskHandle::new(surroundings)
    }

    /// The process died: files, names and page cache stay, locks are freed, handles and mappings are cut off.
    pub fn kill(&self) {}

    /// The node lost its power at `now` (virtual nanoseconds since the run began). `crash` numbers the crashes of a
    /// run and keys all draws; without `survival` the style is drawn too.
    pub fn power_loss(&self, _now: u64, _crash: u64, survival: Option<Survival>) -> CrashReport {
        CrashReport {
            survival: survival.unwrap_or(Survival::AllNew),
            dirty_pages: 0,
            lost_pages: 0,
            torn_pages: 0,
            pending_names: 0,
            lost_names: 0,
        }
    }

    /// A new, empty device under the same node.
    pub fn replace(&self) {}

    /// Fills the device with foreign bytes until it is `percent` full; frees foreign bytes if it is fuller.
    pub fn fill_percent(&self, _percent: u8) {}

    /// Sets the foreign bytes on the device.
    pub fn fill_bytes(&self, _bytes: u64) {}

    /// Makes every request take `factor` times as long; 1 is normal.
    pub fn slow(&self, _factor: u32) {}

    /// Lets no request end before `until` (virtual nanoseconds since the run began).
    pub fn stall(&self, _until: u64) {}
}
