//! The simulated disk of one node: a device with one file system on it.
//!
//! What a process writes stands in a page cache. The death of the process leaves it alone; a power loss decides for
//! every page, length and name that was not flushed whether it survives ([`Survival`]). What was flushed is never
//! touched. Dirty pages and lengths are also written back by themselves after some time, in any order, as a kernel
//! does it; names under [`Durability::Strict`] are not.
//!
//! A [`Disk`] outlives the lives of its node. Each life works through a [`DiskHandle`] made by [`Disk::attach`];
//! handles, files and mappings of an older life do nothing and report an error. All calls run on the one thread of a
//! simulation, and all draws are keyed, so equal calls at equal virtual times have equal outcomes.

mod backup;
mod crash;
mod device;
mod errno;
mod faults;
mod file;
mod handle;
mod image;
mod journal;
mod media;
mod names;
mod page_set;
mod pages;
mod writeback;

#[cfg(test)]
mod tests;

pub use backup::Backup;
pub use crash::{CrashReport, Outage, Survival};
pub use device::Timing;
pub(crate) use faults::matches;
pub use faults::{DiskError, DiskFault, Hits, Media};
pub use handle::{DiskHandle, Surroundings};
pub use image::{Image, SparseImage};
pub use media::Place;
pub(crate) use pages::PAGE_BYTES;

use std::{
    collections::BTreeSet,
    io,
    ops::RangeInclusive,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use self::{
    crash::{Fate, mix},
    device::Device,
    faults::{Faults, Hit},
    file::Landed,
    journal::Ino,
    names::Names,
    pages::{Content, Image as PageImage, Moment},
    writeback::Writeback,
};
use crate::seed::Seed;

/// More dirty pages than this are not left to wait: the oldest are written back at once. 64 MiB.
const DIRTY_PAGES_MAX: u64 = 16_384;
/// Space that a pending change of a name takes in the journal of the file system.
const JOURNAL_BYTES_PER_OP: u64 = 256;

/// What a disk is made with.
#[derive(Debug, Clone)]
pub struct DiskSettings {
    /// The seed of all draws of disks in this run.
    pub seed: Seed,
    /// Which disk it is: the ordinal of its node. Disks of different ordinals draw independently.
    pub entity: u64,
    /// Size of the device in bytes.
    pub capacity_bytes: u64,
    /// What survives a power loss beyond what was flushed.
    pub durability: Durability,
    /// How long requests take.
    pub timing: Timing,
    /// How long a page or a length stays dirty before it is written back by itself.
    pub writeback: RangeInclusive<Duration>,
}

impl DiskSettings {
    /// An SSD that keeps nothing but what POSIX promises, with pages written back after 5 to 30 seconds.
    #[must_use]
    pub fn new(seed: Seed, entity: u64, capacity_bytes: u64) -> DiskSettings {
        DiskSettings {
            seed,
            entity,
            capacity_bytes,
            durability: Durability::default(),
            timing: Timing::default(),
            writeback: Duration::from_secs(5)..=Duration::from_secs(30),
        }
    }
}

/// What a file system promises beyond flushed content (`spec/simulation.md` 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Nothing beyond POSIX: each change of a name that was not flushed with its directory is lost or kept alone,
    /// however old it is. It is never kept without what it stands on: earlier changes of the same name, and the
    /// creation of its directory.
    #[default]
    Strict,
    /// As ext4 does it: changes of names survive as a prefix, any flush makes all of them durable, and a rename over a
    /// file takes along the content that the new file had then.
    OrderedJournal,
    /// As XFS does it: changes of names survive as a prefix, but a rename takes no content along, and the length of a
    /// file survives whether or not what was written did, which then reads as zeros.
    DelayedAlloc,
    /// As Btrfs does it: as `OrderedJournal`, and what a failed flush could not write goes back to its old content at
    /// once.
    RevertOnError,
}

impl Durability {
    /// Whether changes of names survive as a prefix.
    fn is_ordered(self) -> bool {
        self != Durability::Strict
    }

    /// Whether a rename over a file takes along the content of the new one.
    fn forces_content(self) -> bool {
        matches!(self, Durability::OrderedJournal | Durability::RevertOnError)
    }
}

/// Figures of a disk since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskCounters {
    /// Flushes of files and mappings that ended.
    pub flushes: u64,
    /// Pages that they wrote.
    pub pages_flushed: u64,
    /// Flushes of directories that ended.
    pub dir_flushes: u64,
    /// Calls that were refused because the device was full.
    pub refused_full: u64,
}

/// One device with one file system, for all lives of one node. Clones share it.
#[derive(Debug, Clone)]
pub struct Disk {
    /// Leaf lock: nothing of the machine but its clocks is asked while it is held.
    state: Arc<Mutex<State>>,
    /// Tells those who wait for the device that they may wait for less.
    hastened: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    settings: DiskSettings,
    /// Grows with every life; a handle of another life is refused.
    life: u64,
    names: Names,
    device: Device,
    /// Foreign bytes.
    ballast: u64,
    /// Number of the last change.
    seq: u64,
    counters: DiskCounters,
    faults: Faults,
    damages: Vec<media::Damage>,
    /// Since when the device is not there.
    gone_since: Option<u64>,
    /// The last life that was told so.
    told_gone: u64,
}

impl Disk {
    /// An empty disk.
    #[must_use]
    pub fn new(settings: DiskSettings) -> Disk {
        let device = Device::new(settings.timing, settings.seed, settings.entity);
        let faults = Faults::new(settings.seed, settings.entity);
        let state = State {
            settings,
            life: 0,
            names: Names::new(),
            device,
            ballast: 0,
            seq: 0,
            counters: DiskCounters::default(),
            faults,
            damages: Vec::new(),
            gone_since: None,
            told_gone: 0,
        };
        Disk { state: Arc::new(Mutex::new(state)), hastened: Arc::default() }
    }

    /// Starts a life of the node on this disk: an earlier one is cut off, as by [`kill`](Disk::kill).
    #[must_use]
    pub fn attach(&self, surroundings: Arc<dyn Surroundings>) -> DiskHandle {
        self.kill();
        DiskHandle::new(self.clone(), self.lock().life, surroundings)
    }

    /// The process died: names, files and page cache stay; locks are freed, handles and mappings cut off.
    pub fn kill(&self) {
        self.lock().end_life();
    }

    /// The node lost its power at `now` (virtual nanoseconds since the run began). `crash` numbers the crashes of a
    /// run and keys all draws.
    ///
    /// # Panics
    /// If the result would differ in anything that was flushed: a bug of this module.
    pub fn power_loss(&self, now: u64, crash: u64, outage: impl Into<Outage>) -> CrashReport {
        self.lock().lose_power(now, crash, outage.into())
    }

    /// A new, empty device of the same size comes under the same node. Foreign bytes are gone too.
    pub fn replace(&self) {
        let mut state = self.lock();
        state.empty();
        state.ballast = 0;
    }

    /// What is durable at `now`.
    #[must_use]
    pub fn backup(&self, now: u64) -> Backup {
        self.lock().backup(now)
    }

    /// The device goes back to what it held then; what it has now is gone. Foreign bytes stay.
    pub fn restore(&self, backup: &Backup) {
        let mut state = self.lock();
        state.empty();
        state.restore(backup);
    }

    /// Sets the foreign bytes so that the device is `percent` full; none if files alone take more.
    pub fn fill_percent(&self, percent: u8) {
        let mut state = self.lock();
        let wanted = u128::from(state.settings.capacity_bytes) * u128::from(percent) / 100;
        let own = state.used() - state.ballast;
        state.ballast = u64::try_from(wanted).unwrap_or(u64::MAX).saturating_sub(own);
    }

    /// Sets the foreign bytes on the device. They never take more room than there is.
    pub fn fill_bytes(&self, bytes: u64) {
        let mut state = self.lock();
        let own = state.used() - state.ballast;
        state.ballast = bytes.min(state.settings.capacity_bytes.saturating_sub(own));
    }

    /// Makes every request from `now` on take `factor` times as long; 1 is normal. Requests that wait take less from now
    /// on if it was more, and never longer.
    pub fn slow(&self, factor: u32, now: u64) {
        self.lock().device.slow(factor, now);
        self.hastened.notify_waiters();
    }

    /// Lets no request that is made from `now` on end before `until` (virtual nanoseconds since the run began). Requests
    /// that wait for the end of another stall wait for this one, if it is earlier.
    pub fn stall(&self, until: u64, now: u64) {
        self.lock().device.stall(until, now);
        self.hastened.notify_waiters();
    }

    /// The device is not there from `now` on: every call fails with EIO, and touching a mapping kills the process. What
    /// a flush could not write is lost as after any flush that failed; write-back waits.
    pub fn vanish(&self, now: u64) {
        self.lock().gone_since.get_or_insert(now);
    }

    /// It is there again, with what it had. Nothing happens if it was.
    pub fn come_back(&self) {
        self.lock().gone_since = None;
    }

    /// Lets something be wrong from now on. `key` names it and keys its draws. What its files have in the page cache
    /// goes, as far as it is clean, so that it is read from the device when it is wanted.
    pub fn add_fault(&self, key: u64, fault: DiskFault) {
        let mut state = self.lock();
        if fault.error == DiskError::Read {
            for (path, ino) in state.names.files() {
                if faults::means(&fault.path, &path) {
                    state.content_mut(ino).evict();
                    state.names.recharge(ino);
                }
            }
        }
        state.faults.add(key, fault);
    }

    /// Ends it. Nothing happens if it has ended.
    pub fn remove_fault(&self, key: u64) {
        self.lock().faults.remove(key);
    }

    /// Damages so many pages that the device holds, of files whose whole path `pattern` says, drawn by `key`; their
    /// files leave the page cache, as far as it is clean. Tells which pages; fewer if there are not so many.
    pub fn damage(&self, key: u64, pattern: &str, what: Media, count: u32, now: u64) -> Vec<Place> {
        self.lock().damage(key, (pattern, what), count, now)
    }

    /// The files whose whole path `pattern` says are gone, for good. Tells how many. No process may be using the disk.
    pub fn lose_files(&self, pattern: &str) -> u64 {
        self.lock().lose_files(pattern)
    }

    /// Undoes damage where nobody has written anew.
    pub fn repair(&self, key: u64, now: u64) {
        self.lock().repair(key, now);
    }

    /// Bytes in use (files, journal and foreign bytes) and bytes in all.
    #[must_use]
    pub fn usage(&self) -> (u64, u64) {
        let state = self.lock();
        (state.used(), state.settings.capacity_bytes)
    }

    /// How many requests it was asked for while it was slow or stalled.
    #[must_use]
    pub fn slowed_requests(&self) -> u64 {
        self.lock().device.slowed
    }

    /// Bytes that are no files and no journal.
    #[must_use]
    pub fn foreign_bytes(&self) -> u64 {
        self.lock().ballast
    }

    /// Figures since it was made.
    #[must_use]
    pub fn counters(&self) -> DiskCounters {
        self.lock().counters
    }

    /// The files as a process would see them now.
    #[must_use]
    pub fn image(&self) -> Image {
        Image::current(self)
    }

    /// The same without what was never written at the ends of files.
    #[must_use]
    pub fn sparse_image(&self) -> SparseImage {
        SparseImage::current(self)
    }

    /// The files as they would be after the worst power loss at `now`: only what is durable.
    #[must_use]
    pub fn durable_image(&self, now: u64) -> Image {
        Image::durable(self, now)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    // ---- space ----

    fn used(&self) -> u64 {
        self.names.blocks * PAGE_BYTES + self.names.journal.len() as u64 * JOURNAL_BYTES_PER_OP + self.ballast
    }

    fn free_blocks(&self) -> u64 {
        self.settings.capacity_bytes.saturating_sub(self.used()) / PAGE_BYTES
    }

    /// `StorageFull` if there are not `blocks` left.
    fn check_space(&mut self, blocks: u64) -> io::Result<()> {
        if blocks > self.free_blocks() {
            self.counters.refused_full += 1;
            return Err(errno::error(errno::NO_SPACE));
        }
        Ok(())
    }

    // ---- files ----

    fn moment(&mut self, now: u64) -> Moment {
        self.seq += 1;
        Moment { seq: self.seq, now }
    }

    fn new_content(&self) -> Content {
        Content::new(self.writeback())
    }

    /// The write-back of the file that is made next.
    fn writeback(&self) -> Writeback {
        let settings = &self.settings;
        Writeback {
            seed: settings.seed,
            entity: mix(settings.entity, self.names.next_ino()),
            delay: settings.writeback.clone(),
            pages: 0,
            lens: 0,
        }
    }

    fn content(&self, ino: Ino) -> &Content {
        self.names.inode(ino).content().expect("only files are opened")
    }

    fn content_mut(&mut self, ino: Ino) -> &mut Content {
        self.names.inode_mut(ino).content_mut().expect("only files are opened")
    }

    /// Sees to it that the bytes of a file are in the page cache.
    ///
    /// # Errors
    /// The device cannot read them.
    fn fetch(&mut self, (ino, path): (Ino, &Path), at: u64, count: u64, now: u64) -> io::Result<()> {
        if self.content_mut(ino).revert(now) {
            self.names.recharge(ino);
        }
        if self.content(ino).is_cached(at, count) {
            return Ok(());
        }
        if self.content(ino).is_spoilt(at, count) {
            return Err(errno::error(errno::IO));
        }
        if self.faults.hit(DiskError::Read, path) {
            return Err(errno::error(errno::IO));
        }
        self.content_mut(ino).cache(at, count);
        Ok(())
    }

    /// Stores as many of `bytes` as the device has blocks for, and says how many.
    fn write(&mut self, (ino, path): (Ino, &Path), at: u64, bytes: &[u8], now: u64) -> io::Result<usize> {
        // Pages that keep a part of what they held are read first.
        let end = at.saturating_add(bytes.len() as u64);
        for edge in [at, end].into_iter().filter(|edge| edge % PAGE_BYTES != 0 && !bytes.is_empty()) {
            self.fetch((ino, path), edge, 1, now)?;
        }
        let free = self.free_blocks();
        let fitting = self.content(ino).fit(at, bytes.len(), free);
        if fitting < bytes.len() {
            self.counters.refused_full += 1;
        }
        if fitting == 0 && !bytes.is_empty() {
            return Err(errno::error(errno::NO_SPACE));
        }
        let moment = self.moment(now);
        self.content_mut(ino).write(at, &bytes[..fitting], moment)?;
        self.names.recharge(ino);
        if self.names.dirty > DIRTY_PAGES_MAX {
            self.write_back(now);
        }
        Ok(fitting)
    }

    /// Writes back what is due, and if that is not enough the oldest pages, until a quarter of the limit is free.
    fn write_back(&mut self, now: u64) {
        let mut dirty = Vec::new();
        for ino in self.names.inos() {
            if let Some(content) = self.names.inode_mut(ino).content_mut() {
                content.settle(now);
                dirty.extend(content.undo.iter().map(|(&page, undo)| (undo.first, ino, page)));
            }
        }
        dirty.sort_unstable();
        let excess = dirty.len().saturating_sub(DIRTY_PAGES_MAX as usize / 4 * 3);
        for (_, ino, page) in dirty.into_iter().take(excess) {
            self.content_mut(ino).undo.remove(&page);
        }
        for ino in self.names.inos() {
            self.names.recharge(ino);
        }
    }

    /// A flush ended, so what it promised is durable.
    fn end_flush(&mut self, ino: Ino, start: u64, pages: std::ops::Range<u64>) {
        let written = self.content_mut(ino).end_flush(start, pages.start, pages.end);
        self.counters.flushes += 1;
        self.counters.pages_flushed += written;
        self.names.recharge(ino);
        if self.settings.durability.is_ordered() {
            let committed = self.names.journal.iter().take_while(|op| op.seq <= start).count();
            self.names.commit(&(0..committed).collect());
        }
    }

    /// A flush that began at `start` ends, as faults want it.
    fn land_flush(&mut self, (ino, path): (Ino, &Path), start: u64, pages: std::ops::Range<u64>, now: u64) -> Landed {
        if self.gone_since.is_some() {
            self.fail_flush(ino, start, pages, now);
            return Landed::default();
        }
        if self.faults.is_empty() {
            self.end_flush(ino, start, pages);
            return Landed::default();
        }
        if self.faults.hit(DiskError::Flush, path) {
            self.fail_flush(ino, start, pages, now);
            return Landed::default();
        }
        // Only a flush that has something to write can be torn.
        if self.faults.has(DiskError::TornFlush)
            && self.has_to_flush(ino, start, pages.clone(), now)
            && let Some(hit) = self.faults.hit_by(DiskError::TornFlush, path)
        {
            self.tear_flush(ino, start, pages, hit);
            return Landed { wrongs: vec![(DiskError::TornFlush, path.to_owned(), None)], torn_by: Some(hit.key) };
        }
        if self.faults.hit(DiskError::LyingFlush, path) {
            self.content_mut(ino).cancel_flush(start);
            return Landed { wrongs: vec![(DiskError::LyingFlush, path.to_owned(), None)], torn_by: None };
        }
        let written = self.content(ino).flushable(start, pages.clone());
        // Only a flush that has something to write can lose it.
        let lossy = [DiskError::LostWrite, DiskError::MisdirectedWrite].into_iter();
        let error = lossy.filter(|_| !written.is_empty()).find(|error| self.faults.hit(*error, path));
        let wrong = error.map(|error| (error, self.misplace((ino, path.to_owned()), start, &written, (error, now))));
        self.end_flush(ino, start, pages);
        let told = wrong.into_iter().flat_map(|(error, wrong)| wrong.into_iter().map(move |place| (error, place)));
        Landed { wrongs: told.map(|(error, (path, page))| (error, path, Some(page))).collect(), torn_by: None }
    }

    /// Whether the device lacks something that a flush which began at `start` is to write.
    fn has_to_flush(&mut self, ino: Ino, start: u64, pages: std::ops::Range<u64>, now: u64) -> bool {
        let content = self.content_mut(ino);
        content.settle(now);
        let has = !content.promised(start, pages).is_empty();
        self.names.recharge(ino);
        has
    }

    /// The power goes inside a flush. What it wrote is durable; the rest of it is not, whatever the loss of power that
    /// follows decides about other pages.
    fn tear_flush(&mut self, ino: Ino, start: u64, pages: std::ops::Range<u64>, hit: Hit) {
        let promised = self.content(ino).promised(start, pages);
        let written = self.faults.torn(hit, ino, &promised);
        let content = self.content_mut(ino);
        for page in promised {
            match written.contains(&page) {
                true => content.keep(page, start),
                false => content.lose(page, 0),
            }
        }
        content.cancel_flush(start);
        self.names.recharge(ino);
    }

    /// A flush failed: what it was to write is clean, and the device has what it had.
    fn fail_flush(&mut self, ino: Ino, start: u64, pages: std::ops::Range<u64>, now: u64) {
        let at_once = self.settings.durability == Durability::RevertOnError;
        let content = self.content_mut(ino);
        content.fail_flush(start, pages, if at_once { now } else { u64::MAX });
        content.revert(now);
        self.names.inode_mut(ino).flush_errors += 1;
        self.names.recharge(ino);
    }

    // ---- lives ----

    fn end_life(&mut self) {
        self.life += 1;
        self.names.end_life();
    }

    /// Nothing is on the device any more.
    fn empty(&mut self) {
        self.end_life();
        self.names = self.names.emptied();
        self.damages.clear();
        self.device.reset();
    }

    /// What was to be written back by `now` is durable.
    fn settle(&mut self, now: u64) {
        // To a device that is gone nothing is written back.
        let now = self.gone_since.map_or(now, |since| since.min(now));
        for ino in self.names.inos() {
            if let Some(content) = self.names.inode_mut(ino).content_mut() {
                content.settle(now);
            }
            self.names.recharge(ino);
        }
    }

    fn lose_power(&mut self, now: u64, crash: u64, outage: Outage) -> CrashReport {
        let DiskSettings { seed, entity, durability, .. } = self.settings;
        self.settle(now);
        let deleted: Vec<PageImage> = if outage.garbage { self.names.deleted() } else { Vec::new() };
        let changes = self.oldest_change()..=self.seq;
        let mut fate = Fate::new(seed, mix(entity, crash), outage.survival, changes, &deleted);
        let names = &self.names;
        let kept = fate.names(&names.journal, durability, |ino| names.is_placed(ino));
        if durability.forces_content() {
            self.force_replacements(&kept);
        }
        self.names.lose_power(&kept);
        for ino in self.names.inos() {
            if let Some(content) = self.names.inode_mut(ino).content_mut() {
                fate.content(ino, content, durability);
            }
        }
        self.names.recharge_all();
        self.device.reset();
        self.end_life();
        fate.report
    }

    /// Number of the oldest change that is not durable, or of the last change if all are.
    fn oldest_change(&self) -> u64 {
        let names = self.names.journal.first().map(|op| op.seq);
        let content = self.names.inos().into_iter().filter_map(|ino| {
            let content = self.names.inode(ino).content()?;
            let page = content.undo.values().map(|undo| undo.first).min();
            page.into_iter().chain(content.lens.first().map(|change| change.first)).min()
        });
        // One less: a cut before the oldest change loses that too.
        content.chain(names).min().map_or(self.seq, |oldest| oldest - 1)
    }

    /// A rename over a file that survives takes along what the new file held then.
    fn force_replacements(&mut self, kept: &BTreeSet<usize>) {
        let forced: Vec<(Ino, u64)> = kept
            .iter()
            .map(|&index| &self.names.journal[index])
            .filter_map(|op| Some((op.replaced_by?, op.seq)))
            .collect();
        for (ino, seq) in forced {
            if let Some(content) = self.names.inode_mut(ino).content_mut() {
                content.force(seq);
            }
        }
    }
}
