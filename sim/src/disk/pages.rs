//! The content of one file: what its pages hold now, and what they would hold after a power loss.
//!
//! The current content is the page cache. When a page is changed for the first time since it was durable, its old
//! image goes into `undo`; so a page is dirty exactly while it has an undo entry. A flush removes entries, a power loss
//! puts some of the images back.

use std::{collections::BTreeMap, io, ops::Range};

use host::region::Region;

use super::{
    errno,
    page_set::{PageSet, pages_of},
    writeback::Writeback,
};

/// Bytes of a page.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// What a device writes at once: a page can be torn between sectors, never inside one.
pub(super) const SECTOR_BYTES: usize = 512;
/// No file is longer.
const FILE_BYTES_MAX: u64 = 1 << 40;
/// Mappings get room for the file to grow; anonymous memory costs nothing before it is touched.
const REGION_BYTES_MIN: u64 = 1 << 16;

type Page = [u8; PAGE_BYTES as usize];

/// What a page held.
#[derive(Debug, Clone)]
pub(super) enum Image {
    /// Nothing: it reads as zeros and needs no block.
    Zeros,
    Bytes(Box<Page>),
}

impl Image {
    pub(super) fn bytes(&self) -> &Page {
        const ZEROS: Page = [0; PAGE_BYTES as usize];
        match self {
            Image::Zeros => &ZEROS,
            Image::Bytes(page) => page,
        }
    }
}

/// When a change happens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// Number of the change on this disk; every change has its own.
    pub seq: u64,
    /// Virtual nanoseconds.
    pub now: u64,
}

/// How to get back to the durable content of a page.
#[derive(Debug)]
pub(super) struct Undo {
    pub durable: Image,
    /// First and last change since.
    pub first: u64,
    pub last: u64,
    /// From this moment on the content before the next change counts as written back.
    pub due: u64,
    /// Content at the start of flushes that are under way, each with the change that ended it.
    versions: Vec<(u64, Image)>,
}

/// What a flush could not write.
#[derive(Debug)]
struct Lost {
    /// What the device holds.
    durable: Image,
    /// From this moment on the page cache has let go of the page, if it can.
    evicted_at: u64,
}

/// A change of the length that is not durable.
#[derive(Debug, Clone, Copy)]
pub(super) struct LenChange {
    pub first: u64,
    pub last: u64,
    pub due: u64,
    pub from: u64,
    pub to: u64,
    /// Made by writes at the end: every length between may be found. Else it happened at once.
    pub grown: bool,
}

/// The memory behind the mappings of a file.
#[derive(Debug)]
struct Body {
    region: Region,
    /// Mappings of the present life.
    mappings: u32,
    /// A life ended that had mapped it. Its readers may freeze more of the region at any time, so the next change goes
    /// to a copy.
    abandoned: bool,
}

#[derive(Debug)]
pub(super) struct Content {
    pub len: u64,
    pub durable_len: u64,
    /// Oldest first.
    pub lens: Vec<LenChange>,
    /// This many pages from the start have blocks, used or not.
    pub reserved: u64,
    pub durable_reserved: u64,
    /// Pages that hold something. Those below the end of `body` lie there, the others in `pages`.
    pub written: PageSet,
    pages: BTreeMap<u64, Box<Page>>,
    body: Option<Body>,
    pub undo: BTreeMap<u64, Undo>,
    /// Clean pages whose content the device does not have.
    lost: BTreeMap<u64, Lost>,
    /// Pages that are on the device only.
    evicted: PageSet,
    /// Pages that the device cannot read.
    spoilt: PageSet,
    /// The starts of flushes under way.
    flights: Vec<u64>,
    blocks: u64,
    writeback: Writeback,
}

impl Content {
    pub(super) fn new(writeback: Writeback) -> Content {
        Content {
            len: 0,
            durable_len: 0,
            lens: Vec::new(),
            reserved: 0,
            durable_reserved: 0,
            written: PageSet::default(),
            pages: BTreeMap::new(),
            body: None,
            undo: BTreeMap::new(),
            lost: BTreeMap::new(),
            evicted: PageSet::default(),
            spoilt: PageSet::default(),
            flights: Vec::new(),
            blocks: 0,
            writeback,
        }
    }

    /// What a backup holds, durable, and not in the page cache.
    pub(super) fn restored(writeback: Writeback, (len, reserved): (u64, u64), pages: BTreeMap<u64, Image>) -> Content {
        let mut content = Content::new(writeback);
        (content.len, content.durable_len) = (len, len);
        (content.reserved, content.durable_reserved) = (reserved, reserved);
        pages.into_iter().for_each(|(page, image)| content.replace(page, image));
        content.drop_behind(len, None);
        content.count_blocks();
        content.evict();
        content
    }

    /// Blocks that the file holds, used or reserved.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    // ---- reading ----

    pub(super) fn read(&self, buf: &mut [u8], at: u64) -> usize {
        let Some(left) = self.len.checked_sub(at) else { return 0 };
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        each_page(at, count, |page, inside, range| {
            let part = &mut buf[range];
            let end = inside + part.len();
            self.with_page(page, |bytes| part.copy_from_slice(&bytes[inside..end]));
        });
        count
    }

    /// The first stretch at or behind `at` of pages that were written.
    pub(super) fn next_data(&self, at: u64) -> Option<Range<u64>> {
        let mut pages = self.written.iter_from(at / PAGE_BYTES);
        let first = pages.next()?;
        let behind = (first + 1..).zip(pages).find(|(expected, page)| expected != page).map(|(expected, _)| expected);
        let behind = behind.unwrap_or_else(|| first + self.written.iter_from(first).count() as u64);
        let stretch = (first * PAGE_BYTES).max(at)..(behind * PAGE_BYTES).min(self.len);
        Some(stretch).filter(|stretch| stretch.start < self.len)
    }

    fn with_page<T>(&self, page: u64, look: impl FnOnce(&[u8]) -> T) -> T {
        if !self.written.contains(page) {
            return look(Image::Zeros.bytes());
        }
        match &self.body {
            Some(body) if page < pages_of(body.region.len()) => {
                body.region.with(page * PAGE_BYTES, (page + 1) * PAGE_BYTES, look)
            }
            _ => look(&self.pages[&page][..]),
        }
    }

    pub(super) fn image(&self, page: u64) -> Image {
        if !self.written.contains(page) {
            return Image::Zeros;
        }
        self.with_page(page, |bytes| {
            let mut copy = Box::new([0; PAGE_BYTES as usize]);
            copy.copy_from_slice(bytes);
            Image::Bytes(copy)
        })
    }

    // ---- the page cache ----

    /// Whether nothing of a range has to be read from the device.
    pub(super) fn is_cached(&self, at: u64, count: u64) -> bool {
        let end = at.saturating_add(count).min(self.len);
        at >= end || self.evicted.count(at / PAGE_BYTES, pages_of(end)) == 0
    }

    /// A range was read from the device.
    pub(super) fn cache(&mut self, at: u64, count: u64) {
        let end = at.saturating_add(count).min(self.len);
        let read: Vec<u64> = self.evicted.iter_from(at / PAGE_BYTES).take_while(|page| *page < pages_of(end)).collect();
        read.into_iter().for_each(|page| self.evicted.remove(page));
    }

    /// The page cache lets go of every clean page.
    pub(super) fn evict(&mut self) {
        if self.body.as_ref().is_none_or(|body| body.mappings == 0) {
            self.revert_all();
        }
        self.clean_pages().into_iter().for_each(|page| self.evicted.insert(page));
    }

    /// Brings back what the device holds where a failed flush could not write and the page cache has let go of what was
    /// to be written. Pages that are mapped stay: readers may hold them. True if anything changed.
    pub(super) fn revert(&mut self, now: u64) -> bool {
        let is_due = self.lost.values().any(|lost| lost.evicted_at <= now);
        if !is_due || self.body.as_ref().is_some_and(|body| body.mappings > 0) {
            return false;
        }
        self.leave_region();
        let due: Vec<u64> =
            self.lost.iter().filter(|(_, lost)| lost.evicted_at <= now).map(|(page, _)| *page).collect();
        for page in due {
            let lost = self.lost.remove(&page).expect("found above");
            self.replace(page, lost.durable);
        }
        self.count_blocks();
        true
    }

    /// The same for all of them, at once.
    pub(super) fn revert_all(&mut self) {
        self.lost.values_mut().for_each(|lost| lost.evicted_at = 0);
        self.revert(0);
    }

    // ---- a device that holds something else ----

    /// Pages that hold something and are the same on the device and in the page cache.
    pub(super) fn clean_pages(&self) -> Vec<u64> {
        let differs = |page: &u64| self.undo.contains_key(page) || self.lost.contains_key(page);
        self.written.iter_from(0).filter(|page| !differs(page)).collect()
    }

    /// Pages that a flush which began at `start` is to write, and that were not changed since.
    pub(super) fn flushable(&self, start: u64, pages: std::ops::Range<u64>) -> Vec<u64> {
        self.undo.range(pages).filter(|(_, undo)| undo.last <= start).map(|(&page, _)| page).collect()
    }

    /// A page counts as written and is not. The page cache keeps it until `evicted_at`, and not longer than it would have
    /// been dirty.
    pub(super) fn lose(&mut self, page: u64, evicted_at: u64) {
        if let Some(undo) = self.undo.remove(&page) {
            self.lost.insert(page, Lost { durable: undo.durable, evicted_at: evicted_at.min(undo.due) });
        }
    }

    /// The device holds something else on a clean page from now on, and the page cache lets go of it.
    pub(super) fn overwrite_on_device(&mut self, page: u64, image: Image, now: u64) {
        self.lost.insert(page, Lost { durable: image, evicted_at: now });
        self.revert(now);
    }

    /// Undoes that, unless the page was written anew.
    pub(super) fn restore(&mut self, page: u64, pristine: &Image, rotten: &Image, now: u64) {
        let is_waiting = self.lost.get(&page).is_some_and(|lost| lost.durable.bytes() == rotten.bytes());
        if is_waiting && self.image(page).bytes() == pristine.bytes() {
            self.lost.remove(&page);
        } else if !self.undo.contains_key(&page) && self.image(page).bytes() == rotten.bytes() {
            self.overwrite_on_device(page, pristine.clone(), now);
        }
    }

    /// The device cannot read a clean page any more, and the page cache lets go of it.
    pub(super) fn spoil(&mut self, page: u64) {
        self.spoilt.insert(page);
        self.evicted.insert(page);
    }

    pub(super) fn unspoil(&mut self, page: u64) {
        self.spoilt.remove(page);
    }

    /// Whether a part of a range can be had neither from the page cache nor from the device.
    pub(super) fn is_spoilt(&self, at: u64, count: u64) -> bool {
        let end = at.saturating_add(count).min(self.len);
        let pages = self.spoilt.iter_from(at / PAGE_BYTES).take_while(|page| *page < pages_of(end));
        at < end && pages.into_iter().any(|page| self.evicted.contains(page))
    }

    // ---- writing ----

    /// How many of the bytes at `at..at + count` can be stored if the device has `free` blocks.
    pub(super) fn fit(&self, at: u64, count: usize, mut free: u64) -> usize {
        let mut fitting = 0;
        let mut full = false;
        each_page(at, count, |page, _, range| {
            if !full && self.needs_block(page) {
                full = free == 0;
                free = free.saturating_sub(1);
            }
            if !full {
                fitting = range.end;
            }
        });
        fitting
    }

    fn needs_block(&self, page: u64) -> bool {
        page >= self.reserved && !self.written.contains(page)
    }

    /// Whether a store at `at` would change bytes that readers of a mapping hold.
    pub(super) fn is_frozen(&self, at: u64) -> bool {
        self.body.as_ref().is_some_and(|body| body.mappings > 0 && at < body.region.frozen())
    }

    /// Stores bytes for which blocks are there, growing the file if they end behind it.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8], moment: Moment) -> io::Result<()> {
        let end = at.checked_add(bytes.len() as u64).filter(|&end| end <= FILE_BYTES_MAX);
        let end = end.ok_or_else(|| errno::error(errno::FILE_TOO_BIG))?;
        if self.is_frozen(at) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("readers of a mapping hold the bytes at {at}"),
            ));
        }
        if self.body.as_ref().is_some_and(|body| body.abandoned || at < body.region.frozen()) {
            self.leave_region();
        }
        each_page(at, bytes.len(), |page, inside, range| {
            self.remember(page, moment);
            self.store(page, inside, &bytes[range]);
        });
        if end > self.len {
            self.change_len(end, true, moment);
        }
        Ok(())
    }

    /// Keeps what is needed to undo a change of `page`.
    fn remember(&mut self, page: u64, moment: Moment) {
        let Moment { seq, now } = moment;
        if self.undo.get(&page).is_some_and(|undo| undo.due > now) {
            // A flush that began after the last change promises the content as it is now.
            let undo = &self.undo[&page];
            let promised = self.flights.iter().any(|&start| start >= undo.last);
            let version = promised.then(|| self.image(page));
            let undo = self.undo.get_mut(&page).expect("it was found above");
            undo.versions.extend(version.map(|image| (seq, image)));
            undo.last = seq;
            return;
        }
        let durable = self.lost.remove(&page).map_or_else(|| self.image(page), |lost| lost.durable);
        let due = now.saturating_add(self.writeback.page_delay());
        self.undo.insert(page, Undo { durable, first: seq, last: seq, due, versions: Vec::new() });
    }

    fn store(&mut self, page: u64, inside: usize, bytes: &[u8]) {
        if self.needs_block(page) {
            self.blocks += 1;
        }
        self.written.insert(page);
        self.evicted.remove(page);
        self.spoilt.remove(page);
        match &self.body {
            Some(body) if page < pages_of(body.region.len()) => {
                body.region.write(page * PAGE_BYTES + inside as u64, bytes);
            }
            _ => {
                let content = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE_BYTES as usize]));
                content[inside..inside + bytes.len()].copy_from_slice(bytes);
            }
        }
    }

    /// Gives a page another content as a whole. Only without a region.
    pub(super) fn replace(&mut self, page: u64, image: Image) {
        debug_assert!(self.body.is_none(), "the page may lie under readers");
        match image {
            Image::Zeros => {
                self.written.remove(page);
                self.evicted.remove(page);
                self.spoilt.remove(page);
                self.pages.remove(&page);
            }
            Image::Bytes(content) => {
                self.written.insert(page);
                self.pages.insert(page, content);
            }
        }
    }

    // ---- length and blocks ----

    pub(super) fn set_len(&mut self, len: u64, moment: Moment) -> io::Result<()> {
        if len > FILE_BYTES_MAX {
            return Err(errno::error(errno::FILE_TOO_BIG));
        }
        if len < self.len {
            self.unmapped("shorten")?;
            self.leave_region();
            self.drop_behind(len, Some(moment));
            self.reserved = self.reserved.min(pages_of(len));
            self.count_blocks();
        }
        if len != self.len {
            self.change_len(len, false, moment);
        }
        Ok(())
    }

    fn unmapped(&self, what: &str) -> io::Result<()> {
        match &self.body {
            Some(body) if body.mappings > 0 => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, format!("cannot {what} a mapped file")))
            }
            _ => Ok(()),
        }
    }

    /// Zeros everything from `len` on; with a moment so that it can be undone.
    pub(super) fn drop_behind(&mut self, len: u64, moment: Option<Moment>) {
        let whole = pages_of(len);
        let gone: Vec<u64> = self.written.iter_from(whole).collect();
        for page in gone {
            if let Some(moment) = moment {
                self.remember(page, moment);
            }
            self.replace(page, Image::Zeros);
        }
        let tail = (len % PAGE_BYTES) as usize;
        if tail > 0 && self.written.contains(len / PAGE_BYTES) {
            if let Some(moment) = moment {
                self.remember(len / PAGE_BYTES, moment);
            }
            self.pages.get_mut(&(len / PAGE_BYTES)).expect("written pages are there without a region")[tail..].fill(0);
        }
    }

    fn change_len(&mut self, to: u64, grown: bool, moment: Moment) {
        self.settle_lens(moment.now);
        let (from, seq) = (self.len, moment.seq);
        self.len = to;
        match self.lens.last_mut() {
            Some(last) if grown && last.grown && !self.flights.iter().any(|&start| start >= last.last) => {
                last.to = to;
                last.last = seq;
            }
            _ => {
                let due = moment.now.saturating_add(self.writeback.len_delay());
                self.lens.push(LenChange { first: seq, last: seq, due, from, to, grown });
            }
        }
    }

    /// Makes lengths durable that were written back by `now`.
    fn settle_lens(&mut self, now: u64) {
        let settled = self.lens.iter().take_while(|change| change.due <= now).count();
        self.keep_lens(settled);
    }

    /// The first `count` changes of the length are durable.
    fn keep_lens(&mut self, count: usize) {
        if let Some(last) = self.lens.drain(..count).next_back() {
            self.durable_len = last.to;
        }
    }

    /// Blocks that [`reserve`](Content::reserve) would take.
    pub(super) fn reserve_cost(&self, len: u64) -> u64 {
        let pages = pages_of(len);
        pages.saturating_sub(self.reserved) - self.written.count(self.reserved, pages.max(self.reserved))
    }

    pub(super) fn reserve(&mut self, len: u64, moment: Moment) -> io::Result<()> {
        if len > FILE_BYTES_MAX {
            return Err(errno::error(errno::FILE_TOO_BIG));
        }
        self.blocks += self.reserve_cost(len);
        self.reserved = self.reserved.max(pages_of(len));
        if len > self.len {
            self.change_len(len, false, moment);
        }
        Ok(())
    }

    pub(super) fn count_blocks(&mut self) {
        self.blocks = self.reserved + self.written.count(self.reserved, u64::MAX);
    }

    // ---- mappings ----

    pub(super) fn map(&mut self, len: u64) -> io::Result<Region> {
        if len == 0 || len > self.len {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("cannot map {len} bytes of a file of {}", self.len),
            ));
        }
        if let Some(body) = &mut self.body
            && body.region.len() >= len
            && (body.mappings > 0 || (body.region.frozen() == 0 && !body.abandoned))
        {
            body.mappings += 1;
            return Ok(body.region.clone());
        }
        self.unmapped("map more of")?;
        self.leave_region();
        let region = Region::anonymous(len.next_power_of_two().max(REGION_BYTES_MIN))?;
        let behind = self.pages.split_off(&pages_of(region.len()));
        for (page, content) in std::mem::replace(&mut self.pages, behind) {
            region.write(page * PAGE_BYTES, &content[..]);
        }
        self.body = Some(Body { region: region.clone(), mappings: 1, abandoned: false });
        Ok(region)
    }

    pub(super) fn unmap(&mut self) {
        if let Some(body) = &mut self.body {
            body.mappings = body.mappings.checked_sub(1).expect("every mapping is given up once");
        }
    }

    /// Gives the memory of mappings to those who still read it; the file goes on with a copy.
    pub(super) fn leave_region(&mut self) {
        let Some(body) = self.body.take() else { return };
        let end = pages_of(body.region.len());
        for page in self.written.iter_from(0).take_while(|&page| page < end) {
            let mut copy = Box::new([0; PAGE_BYTES as usize]);
            body.region.with(page * PAGE_BYTES, (page + 1) * PAGE_BYTES, |bytes| copy.copy_from_slice(bytes));
            self.pages.insert(page, copy);
        }
    }

    // ---- durability ----

    /// Dirty pages in a range of pages.
    pub(super) fn dirty(&self, from: u64, to: u64, now: u64) -> u64 {
        self.undo.range(from..to).filter(|(_, undo)| undo.due > now).count() as u64
    }

    /// A flush begins: what was changed up to `start` must be durable when it ends.
    pub(super) fn begin_flush(&mut self, start: u64) {
        self.flights.push(start);
    }

    /// A flush of the pages `from..to` that began at `start` ended. Returns the number of pages it wrote.
    pub(super) fn end_flush(&mut self, start: u64, from: u64, to: u64) -> u64 {
        let promised = self.promised(start, from..to);
        for page in &promised {
            self.keep(*page, start);
        }
        let settled = self.lens.iter().take_while(|change| change.last <= start).count();
        self.keep_lens(settled);
        self.durable_reserved = self.reserved;
        self.cancel_flush(start);
        promised.len() as u64
    }

    /// Pages that a flush which began at `start` is to make durable, as they were then.
    pub(super) fn promised(&self, start: u64, pages: std::ops::Range<u64>) -> Vec<u64> {
        self.undo.range(pages).filter(|(_, undo)| undo.first <= start).map(|(&page, _)| page).collect()
    }

    /// A promised page is durable.
    pub(super) fn keep(&mut self, page: u64, start: u64) {
        let undo = self.undo.get_mut(&page).expect("a promised page is dirty");
        if undo.last <= start {
            self.undo.remove(&page);
            return;
        }
        // Changed meanwhile: durable is what it held when the flush began.
        let index = undo.versions.iter().position(|&(ended, _)| ended > start);
        let index = index.expect("the first change after the start of a flush keeps a version");
        let (ended, image) = undo.versions.drain(..=index).next_back().expect("the range has an end");
        undo.durable = image;
        undo.first = ended;
    }

    /// A flush of pages that began at `start` failed. They keep their content in the page cache until `evicted_at`, and
    /// count as clean; those that were changed meanwhile are still dirty.
    pub(super) fn fail_flush(&mut self, start: u64, pages: std::ops::Range<u64>, evicted_at: u64) {
        for page in self.flushable(start, pages) {
            self.lose(page, evicted_at);
        }
        self.cancel_flush(start);
    }

    /// A flush ended without a promise.
    pub(super) fn cancel_flush(&mut self, start: u64) {
        if let Some(index) = self.flights.iter().position(|&flight| flight == start) {
            self.flights.swap_remove(index);
        }
        if self.flights.is_empty() {
            for undo in self.undo.values_mut() {
                undo.versions.clear();
            }
        }
    }

    /// Forgets what was written back by `now`: that is durable.
    pub(super) fn settle(&mut self, now: u64) {
        self.undo.retain(|_, undo| undo.due > now);
        self.settle_lens(now);
    }

    /// What was changed up to `seq` is durable, because the file system wrote it out with a name.
    pub(super) fn force(&mut self, seq: u64) {
        self.undo.retain(|_, undo| undo.last > seq);
        let settled = self.lens.iter().take_while(|change| change.last <= seq).count();
        self.keep_lens(settled);
    }

    /// Cuts off mappings and flushes of a life that ended.
    pub(super) fn end_life(&mut self) {
        if let Some(body) = &mut self.body {
            body.mappings = 0;
            body.abandoned = true;
        }
        self.flights.clear();
        for undo in self.undo.values_mut() {
            undo.versions.clear();
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Its bytes up to the last page that was written.
    pub(super) fn written_bytes(&self) -> Vec<u8> {
        let end = self.written.iter_from(0).last().map_or(0, |last| (last + 1) * PAGE_BYTES);
        let mut bytes = vec![0; usize::try_from(end.min(self.len)).expect("a file fits into memory")];
        self.read(&mut bytes, 0);
        bytes
    }

    pub(super) fn current_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.len).expect("a file fits into memory")];
        self.read(&mut bytes, 0);
        bytes
    }

    /// What the device holds, page by page; those that are missing are zeros.
    pub(super) fn durable_pages(&self) -> BTreeMap<u64, Image> {
        let undone = self.undo.iter().map(|(page, undo)| (*page, undo.durable.clone()));
        let lost = self.lost.iter().map(|(page, lost)| (*page, lost.durable.clone()));
        let clean = self.clean_pages().into_iter().map(|page| (page, self.image(page)));
        clean.chain(lost).chain(undone).filter(|(_, image)| matches!(image, Image::Bytes(_))).collect()
    }

    /// What a power loss would leave at the least, as bytes.
    pub(super) fn durable_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.durable_len).expect("a file fits into memory")];
        let len = bytes.len();
        each_page(0, len, |page, _, range| match self.undo.get(&page) {
            Some(Undo { durable, .. }) => {
                let count = range.len();
                bytes[range].copy_from_slice(&durable.bytes()[..count]);
            }
            None if self.lost.contains_key(&page) => {
                let count = range.len();
                bytes[range].copy_from_slice(&self.lost[&page].durable.bytes()[..count]);
            }
            None => self.with_page(page, |content| {
                let count = range.len();
                bytes[range].copy_from_slice(&content[..count]);
            }),
        });
        bytes
    }
}

/// Calls `part` for each page that `at..at + count` touches: the page, where in it the bytes begin, and which of the
/// `count` bytes they are.
fn each_page(at: u64, count: usize, mut part: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < count {
        let position = at + done as u64;
        let inside = (position % PAGE_BYTES) as usize;
        let size = (PAGE_BYTES as usize - inside).min(count - done);
        part(position / PAGE_BYTES, inside, done..done + size);
        done += size;
    }
}
