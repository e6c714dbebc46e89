//! Errors that a disk reports, and which calls get them (`spec/simulation.md` 2.4, 2.5).

use std::path::Path;

use super::crash::mix;
use crate::seed::{Domain, Draw, Seed};

const HIT: Domain = Domain::named("disk.fault-hit");
const SHORT: Domain = Domain::named("disk.short-write");
const PLACE: Domain = Domain::named("disk.fault-place");
const SHORT_READ: Domain = Domain::named("disk.short-read");
const TORN: Domain = Domain::named("disk.torn-flush");

/// An even chance, in parts per million.
const EVEN_PPM: u32 = 500_000;

/// What goes wrong with files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskError {
    /// A read from the device fails with EIO. What is in the page cache can be read; what is read through a mapping
    /// kills the process.
    Read,
    /// A positioned read gives fewer bytes than it was asked for, and than there are.
    ShortRead,
    /// A positioned write, a change of a length or a reservation fails with EIO, and changes nothing.
    Write,
    /// A positioned write stores fewer bytes than it was given.
    ShortWrite,
    /// A flush fails with EIO. What it was to write becomes clean, and keeps its old content on the device; a later
    /// flush has nothing to write, and succeeds.
    Flush,
    /// A flush succeeds, but one page that it was to write is not written.
    LostWrite,
    /// The same, and the page is written where another page of the device belongs.
    MisdirectedWrite,
    /// A flush succeeds and does nothing.
    LyingFlush,
    /// The power goes inside a flush: some of the pages that it was to write are on the device, others are not. What
    /// does that to the node is [`Surroundings::lose_power`](super::Surroundings::lose_power).
    TornFlush,
    /// Memory of a mapped file cannot be locked (ENOMEM), which costs nothing but time.
    Lock,
    /// The device is not there.
    Gone,
}

/// How the device spoils what it holds. What a process writes anew is sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Media {
    /// One bit is the other one.
    BitRot,
    /// It cannot be read.
    LatentSector,
}

/// Which of the calls that could be hit are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hits {
    /// Only this one, from 1.
    Nth(u32),
    /// Each with a chance of so many parts per million.
    Chance(u32),
}

/// Something wrong with the files of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFault {
    /// Which files, by their whole path: `*` stands for any run of characters.
    pub path: String,
    /// What goes wrong.
    pub error: DiskError,
    /// How often.
    pub hits: Hits,
}

/// A call that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hit {
    /// The fault that lets it.
    pub key: u64,
    /// How many calls that fault had been asked about by then.
    number: u64,
}

/// All that is wrong with one disk.
#[derive(Debug)]
pub(super) struct Faults {
    seed: Seed,
    entity: u64,
    present: Vec<Present>,
}

#[derive(Debug)]
struct Present {
    /// Names it, and keys its draws.
    key: u64,
    fault: DiskFault,
    /// Calls so far that could be hit.
    asked: u64,
}

impl Faults {
    pub(super) fn new(seed: Seed, entity: u64) -> Faults {
        Faults { seed, entity, present: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// Whether any call may go wrong like this.
    pub(super) fn has(&self, error: DiskError) -> bool {
        self.present.iter().any(|present| present.fault.error == error)
    }

    pub(super) fn add(&mut self, key: u64, fault: DiskFault) {
        self.present.push(Present { key, fault, asked: 0 });
    }

    pub(super) fn remove(&mut self, key: u64) {
        self.present.retain(|present| present.key != key);
    }

    /// Whether a call on a file goes wrong. Every fault that could hit it counts it.
    pub(super) fn hit(&mut self, error: DiskError, path: &Path) -> bool {
        self.hit_by(error, path).is_some()
    }

    /// The same, with what lets it go wrong: the last such fault.
    pub(super) fn hit_by(&mut self, error: DiskError, path: &Path) -> Option<Hit> {
        let (seed, entity, mut hit) = (self.seed, self.entity, None);
        for present in self.present.iter_mut().filter(|present| present.fault.error == error) {
            if !means(&present.fault.path, path) {
                continue;
            }
            present.asked += 1;
            let is_hit = match present.fault.hits {
                Hits::Nth(nth) => present.asked == u64::from(nth),
                Hits::Chance(ppm) => seed.draw(HIT, mix(entity, present.key), present.asked).chance(ppm),
            };
            if is_hit {
                hit = Some(Hit { key: present.key, number: present.asked });
            }
        }
        hit
    }

    /// Decides which page it hits, or which bit. Numbered within what `key` names.
    pub(super) fn place(&self, key: u64, number: u64) -> Draw {
        self.seed.draw(PLACE, mix(self.entity, key), number)
    }

    /// How many of `bytes` that are there a short read gives.
    pub(super) fn short_read(&self, hit: Hit, bytes: u64) -> u64 {
        self.seed.draw(SHORT_READ, mix(self.entity, hit.key), hit.number).within(1..=bytes - 1)
    }

    /// Which of the pages that a torn flush of a file was to write are on the device: each with an even chance, but at
    /// least one, and of several not all.
    pub(super) fn torn(&self, hit: Hit, ino: u64, pages: &[u64]) -> Vec<u64> {
        let mut draws = self.seed.draws(TORN, mix(mix(self.entity, hit.key), ino));
        // What is drawn about a page depends on no other page. Number 0 is for where all or none were chosen.
        let mut written: Vec<u64> = pages.iter().copied().filter(|page| draws.at(page + 1).chance(EVEN_PPM)).collect();
        if pages.is_empty() || (!written.is_empty() && written.len() < pages.len()) {
            return written;
        }
        let one = draws.at(0).below(pages.len() as u64) as usize;
        match written.is_empty() {
            true => written.push(pages[one]),
            false if pages.len() > 1 => drop(written.remove(one)),
            false => {}
        }
        written
    }

    /// Decides how short a write is. Numbered by the last change of the disk.
    pub(super) fn shortness(&self, change: u64) -> Draw {
        self.seed.draw(SHORT, self.entity, change)
    }
}

/// Whether a pattern means a file.
pub(super) fn means(pattern: &str, path: &Path) -> bool {
    path.to_str().is_some_and(|path| matches(pattern, path))
}

/// Whether `text` is what `pattern` says, in which `*` stands for any run of characters.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(head) else { return false };
    (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| matches(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        for (pattern, text) in
            [("/a/b", "/a/b"), ("/a/*", "/a/"), ("/a/*", "/a/b/c"), ("*", ""), ("/*/0*1", "/x/y/0001"), ("**", "x")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("/a/b", "/a/bc"), ("/a/*", "/b/c"), ("*1", "12"), ("", "x"), ("/a/*/c", "/a/c")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn the_nth_call_is_hit_and_no_other_and_chances_come_true() {
        let fault = |hits| DiskFault { path: "/log/*".to_owned(), error: DiskError::Flush, hits };
        let mut faults = Faults::new(Seed(7), 0);
        faults.add(1, fault(Hits::Nth(3)));
        let hits: Vec<bool> = (0..6).map(|_| faults.hit(DiskError::Flush, Path::new("/log/0"))).collect();
        assert_eq!(hits, [false, false, true, false, false, false]);
        faults.remove(1);
        faults.add(2, fault(Hits::Chance(250_000)));
        assert!(!faults.hit(DiskError::Read, Path::new("/log/0")) && !faults.hit(DiskError::Flush, Path::new("/idx")));
        let count = (0..100_000).filter(|_| faults.hit(DiskError::Flush, Path::new("/log/0"))).count();
        assert!((24_590..25_410).contains(&count), "{count} of 100,000; three sigma are 411");
    }
}
