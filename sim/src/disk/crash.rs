//! What a power loss leaves (`spec/simulation.md` 2.3, `spec/store.md` 13.1).
//!
//! Every choice is keyed by the crash and by what it is about, so one file's fate does not move another's. Nothing but
//! pages with an undo entry, lengths that were not flushed and pending operations is ever touched.

use std::collections::BTreeSet;

use super::{
    Durability,
    journal::{self, Op},
    page_set::pages_of,
    pages::{Content, Image, PAGE_BYTES, SECTOR_BYTES, Undo},
};
use crate::seed::{Domain, Draw, Draws, Seed, name_hash};

const STYLE: Domain = Domain::named("disk.crash-style");
const CUT: Domain = Domain::named("disk.crash-cut");
const NAMES: Domain = Domain::named("disk.crash-names");
const PAGES: Domain = Domain::named("disk.crash-pages");
const RUNS: Domain = Domain::named("disk.crash-runs");
const LEN: Domain = Domain::named("disk.crash-len");
const GARBAGE: Domain = Domain::named("disk.crash-garbage");

/// Chance that a page which is not kept whole is torn instead of restored.
const TEAR_PPM: u32 = 250_000;
const EVEN_PPM: u32 = 500_000;
const SECTORS: usize = PAGE_BYTES as usize / SECTOR_BYTES;

/// How a power loss chooses what survives of that which was not flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Survival {
    /// Nothing.
    AllOld,
    /// Everything.
    AllNew,
    /// What was written before some moment; a page that was written before and after it is torn.
    Prefix,
    /// Each page, length and name by itself; some pages torn.
    Independent,
    /// As `Independent`, but neighbouring pages share their fate, in runs of 8 to 256.
    Runs,
}

impl Survival {
    /// All styles with their names in scenario files.
    pub const NAMES: [(&'static str, Survival); 5] = [
        ("all-old", Survival::AllOld),
        ("all-new", Survival::AllNew),
        ("prefix-by-write-order", Survival::Prefix),
        ("independent", Survival::Independent),
        ("runs", Survival::Runs),
    ];

    /// A style, as often as `spec/simulation.md` 2.3 has each.
    pub(crate) fn drawn(draw: Draw) -> Survival {
        const CHOICES: [(Survival, u32); 5] = [
            (Survival::AllOld, 20),
            (Survival::AllNew, 20),
            (Survival::Prefix, 20),
            (Survival::Independent, 30),
            (Survival::Runs, 10),
        ];
        draw.weighted(&CHOICES).expect("the weights are not all zero")
    }
}

/// How the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outage {
    /// How it chooses what survives; drawn if not given.
    pub survival: Option<Survival>,
    /// Pages that never had any content on the device read old bytes of some deleted file if they do not survive, not
    /// zeros.
    pub garbage: bool,
}

impl From<Option<Survival>> for Outage {
    fn from(survival: Option<Survival>) -> Outage {
        Outage { survival, garbage: false }
    }
}

/// What a power loss did to one disk.
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
    /// Those of the lost and the torn ones that read bytes of a deleted file.
    pub garbage_pages: u64,
    /// Changes of names that were not flushed.
    pub pending_names: u64,
    /// Those of them that were undone.
    pub lost_names: u64,
    /// Files that have another length than before.
    pub changed_lengths: u64,
}

/// The draws of one crash of one disk.
pub(super) struct Fate<'a> {
    /// What pages of deleted files held; none if nothing may come back of them.
    garbage: &'a [Image],
    seed: Seed,
    entity: u64,
    cut: u64,
    pub report: CrashReport,
}

impl<'a> Fate<'a> {
    /// `entity` is that of the disk, mixed with the key of the crash; `changes` are the numbers of the oldest change
    /// that is not durable and of the last one.
    pub(super) fn new(
        seed: Seed,
        entity: u64,
        survival: Option<Survival>,
        changes: std::ops::RangeInclusive<u64>,
        garbage: &'a [Image],
    ) -> Fate<'a> {
        let survival = survival.unwrap_or_else(|| Survival::drawn(seed.draw(STYLE, entity, 0)));
        let cut = seed.draw(CUT, entity, 0).within(changes);
        let report = CrashReport {
            survival,
            dirty_pages: 0,
            lost_pages: 0,
            torn_pages: 0,
            garbage_pages: 0,
            pending_names: 0,
            lost_names: 0,
            changed_lengths: 0,
        };
        Fate { garbage, seed, entity, cut, report }
    }

    /// Which pending operations survive.
    pub(super) fn names(
        &mut self,
        ops: &[Op],
        durability: Durability,
        is_placed: impl Fn(journal::Ino) -> bool,
    ) -> BTreeSet<usize> {
        let kept: Vec<bool> = match durability {
            Durability::Strict => {
                let mut kept = Vec::with_capacity(ops.len());
                for (op, support) in ops.iter().zip(journal::supports(ops, is_placed)) {
                    kept.push(self.keeps_name(op) && support.all_kept(&kept));
                }
                kept
            }
            Durability::OrderedJournal | Durability::DelayedAlloc | Durability::RevertOnError => {
                let count = match self.report.survival {
                    Survival::AllOld => 0,
                    Survival::AllNew => ops.len() as u64,
                    Survival::Prefix => ops.iter().take_while(|op| op.seq <= self.cut).count() as u64,
                    Survival::Independent | Survival::Runs => {
                        self.seed.draw(NAMES, self.entity, 0).within(0..=ops.len() as u64)
                    }
                };
                (0..ops.len() as u64).map(|index| index < count).collect()
            }
        };
        self.report.pending_names = ops.len() as u64;
        self.report.lost_names = kept.iter().filter(|&&kept| !kept).count() as u64;
        (0..ops.len()).filter(|&index| kept[index]).collect()
    }

    fn keeps_name(&self, op: &Op) -> bool {
        match self.report.survival {
            Survival::AllOld => false,
            Survival::AllNew => true,
            Survival::Prefix => op.seq <= self.cut,
            Survival::Independent | Survival::Runs => {
                let key = op
                    .changes
                    .iter()
                    .fold(op.changes.len() as u64, |key, change| mix(mix(key, change.dir), name_hash(&change.name)));
                self.seed.draw(NAMES, mix(self.entity, key), op.seq).chance(EVEN_PPM)
            }
        }
    }

    /// Decides about the content of file `ino`, whose undo entries are all still due.
    pub(super) fn content(&mut self, ino: u64, content: &mut Content, durability: Durability) {
        content.leave_region();
        // The device never got what failed flushes were to write.
        content.revert_all();
        let floor = content.lens.iter().map(|change| change.from.min(change.to)).min();
        let floor = floor.unwrap_or(content.durable_len).min(content.durable_len);
        let file = mix(self.entity, ino);
        let mut draws = self.seed.draws(PAGES, file);
        let runs = self.runs(file, content);
        for (page, undo) in std::mem::take(&mut content.undo) {
            self.report.dirty_pages += 1;
            self.page((file, page), undo, content, &mut draws, &runs);
        }
        let len = match content.lens.last() {
            Some(last) if durability == Durability::DelayedAlloc => last.to,
            _ => self.len(file, content),
        };
        assert!(len >= floor, "a power loss may not shorten the flushed {floor} bytes of inode {ino} to {len}");
        self.report.changed_lengths += u64::from(len != content.len);
        content.drop_behind(len, None);
        content.len = len;
        content.durable_len = len;
        content.lens.clear();
        content.reserved = self.reserved(file, content).min(pages_of(len));
        content.durable_reserved = content.reserved;
        content.count_blocks();
        content.evict();
    }

    /// Where runs of pages begin, with whether each survives.
    fn runs(&self, file: u64, content: &Content) -> Vec<(u64, bool)> {
        let Some((&last, _)) = content.undo.last_key_value() else { return Vec::new() };
        let mut draws = self.seed.draws(RUNS, file);
        let (mut runs, mut page, mut counter) = (Vec::new(), 0, 0);
        while page <= last && self.report.survival == Survival::Runs {
            runs.push((page, draws.at(counter).chance(EVEN_PPM)));
            page += draws.at(counter + 1).within(8..=256);
            counter += 2;
        }
        runs
    }

    fn page(
        &mut self,
        (file, page): (u64, u64),
        undo: Undo,
        content: &mut Content,
        draws: &mut Draws,
        runs: &[(u64, bool)],
    ) {
        // Three numbers belong to each page, whether they are needed or not.
        let draw = |draws: &mut Draws, which: u64| draws.at(page * 3 + which);
        let (kept, torn) = match self.report.survival {
            Survival::AllOld => (false, false),
            Survival::AllNew => (true, false),
            Survival::Prefix => (undo.last <= self.cut, undo.first <= self.cut),
            Survival::Independent => (draw(draws, 0).chance(EVEN_PPM), draw(draws, 1).chance(TEAR_PPM)),
            Survival::Runs => {
                let run = runs.partition_point(|&(start, _)| start <= page);
                (runs[run - 1].1, draw(draws, 1).chance(TEAR_PPM))
            }
        };
        if kept {
            return;
        }
        let old = self.old(file, page, undo.durable);
        if !torn {
            self.report.lost_pages += 1;
            content.replace(page, old);
            return;
        }
        self.report.torn_pages += 1;
        let new_sectors = new_sectors(draw(draws, 2), self.report.survival);
        let new = content.image(page);
        let mut mixed = Box::new(*old.bytes());
        for sector in (0..SECTORS).filter(|sector| new_sectors >> sector & 1 == 1) {
            let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            mixed[range.clone()].copy_from_slice(&new.bytes()[range]);
        }
        content.replace(page, Image::Bytes(mixed));
    }

    /// What a page that does not survive holds.
    fn old(&mut self, file: u64, page: u64, durable: Image) -> Image {
        if self.garbage.is_empty() || matches!(durable, Image::Bytes(_)) {
            return durable;
        }
        self.report.garbage_pages += 1;
        let choice = self.seed.draw(GARBAGE, file, page).below(self.garbage.len() as u64) as usize;
        self.garbage[choice].clone()
    }

    /// The length that is found: the durable one, or one that the process set since.
    fn len(&self, file: u64, content: &Content) -> u64 {
        let changes = &content.lens;
        let mut draws = self.seed.draws(LEN, file);
        let survive = match self.report.survival {
            Survival::AllOld => 0,
            Survival::AllNew => changes.len(),
            Survival::Prefix => changes.iter().take_while(|change| change.first <= self.cut).count(),
            Survival::Independent | Survival::Runs => draws.at(0).within(0..=changes.len() as u64) as usize,
        };
        let Some(change) = survive.checked_sub(1).map(|index| changes[index]) else { return content.durable_len };
        let whole = match self.report.survival {
            Survival::AllOld | Survival::AllNew => true,
            Survival::Prefix => change.last <= self.cut,
            Survival::Independent | Survival::Runs => draws.at(1).chance(EVEN_PPM),
        };
        if whole || !change.grown { change.to } else { draws.at(2).within(change.from..=change.to) }
    }

    /// Reserved blocks are metadata: the old number of them survives, or the new one.
    fn reserved(&self, file: u64, content: &Content) -> u64 {
        match self.report.survival {
            Survival::AllOld => content.durable_reserved,
            Survival::AllNew => content.reserved,
            Survival::Prefix | Survival::Independent | Survival::Runs => {
                let new = self.seed.draw(LEN, file, 3).chance(EVEN_PPM);
                if new { content.reserved } else { content.durable_reserved }
            }
        }
    }
}

/// Which sectors of a torn page are new, as bits: one contiguous split or any mixture, but not all and not none.
fn new_sectors(draw: Draw, survival: Survival) -> u64 {
    const ALL: u64 = (1 << SECTORS) - 1;
    let split = 1 + draw.0 % (SECTORS as u64 - 1);
    let head = (1 << split) - 1;
    match (survival, draw.0 >> 60) {
        // Bytes are appended front to back.
        (Survival::Prefix, _) | (_, 0..4) => head,
        (_, 4..8) => ALL & !head,
        _ => 1 + (draw.0 >> 8) % (ALL - 1),
    }
}

/// One key out of two.
pub(super) fn mix(a: u64, b: u64) -> u64 {
    // The finisher of SplitMix64: every bit of the result depends on every bit of both.
    let mut z =
        a.rotate_left(32).wrapping_add(b.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
