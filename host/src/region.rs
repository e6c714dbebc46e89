//! Mapped memory with a safe surface: the only `unsafe` code of the workspace.
//!
//! A [`Region`] is a span of memory that one writer at a time fills and many readers borrow. The rule that makes
//! borrowing sound: what was handed out as [`Bytes`] lies below the *frozen* position, and no store ever touches bytes
//! below it again. Stores and looks above it exclude each other by a lock.
//!
//! Both machines use it: the real one over a mapped file, a simulated one over anonymous memory.
#![expect(unsafe_code, reason = "borrowing mapped memory needs raw pointers; every public function is safe")]

use std::{
    fs::File,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use memmap2::{MmapOptions, MmapRaw};

use crate::{Host, fs::Advice};

/// The step at which [`Region::touch`] stores.
const PAGE_BYTES: u64 = 4096;

/// A span of mapped memory. Clones share it; it is unmapped when the last clone and the last borrowed [`Bytes`] drop.
#[derive(Clone, Debug)]
pub struct Region {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    map: MmapRaw,
    len: u64,
    /// Bytes below it were handed out and are never written again. Only grows.
    frozen: AtomicU64,
    /// Held while bytes at or above `frozen` are stored or looked at, and while `frozen` grows.
    access: Mutex<()>,
}

impl Region {
    /// Maps the first `len` bytes of a file, shared with its page cache.
    ///
    /// # Errors
    /// `InvalidInput` if the file is shorter or `len` is 0; whatever `mmap` reports.
    pub fn map_file(file: &File, len: u64) -> io::Result<Region> {
        let size = checked_file_len(file, len)?;
        MmapOptions::new().len(size).map_raw(file).map(|map| Region::new(map, len))
    }

    /// The first `len` bytes of a file, which may be open for reading only. None for a `len` of 0.
    ///
    /// # Errors
    /// `InvalidInput` if the file is shorter; whatever `mmap` reports.
    pub fn borrow_file(file: &File, len: u64) -> io::Result<Bytes> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        let map = MmapOptions::new().len(checked_file_len(file, len)?).map_raw_read_only(file)?;
        // All of it is frozen at once: nothing is ever stored there.
        Ok(Region::new(map, len).slice(0, len))
    }

    /// Anonymous memory of `len` zeros, taken from the system page by page as it is touched.
    ///
    /// # Errors
    /// `InvalidInput` if `len` is 0; whatever `mmap` reports.
    pub fn anonymous(len: u64) -> io::Result<Region> {
        let size = checked_len(len)?;
        let map = MmapOptions::new().len(size).no_reserve_swap().map_anon();
        if map.is_err()
            && let Some(host) = Host::try_current()
        {
            host.machine().refused_memory(len);
        }
        map.map(|map| Region::new(MmapRaw::from(map), len))
    }

    fn new(map: MmapRaw, len: u64) -> Region {
        Region { inner: Arc::new(Inner { map, len, frozen: AtomicU64::new(0), access: Mutex::new(()) }) }
    }

    /// Its length in bytes, at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "an empty region cannot exist")]
    pub fn len(&self) -> u64 {
        self.inner.len
    }

    /// Everything below this position was handed out.
    #[must_use]
    pub fn frozen(&self) -> u64 {
        self.inner.frozen.load(Ordering::Acquire)
    }

    /// Stores `bytes` at `at`.
    ///
    /// # Panics
    /// Outside the region, or below the frozen position.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        let to = self.inner.check(at, at.saturating_add(bytes.len() as u64));
        let _access = self.inner.access.lock().unwrap_or_else(PoisonError::into_inner);
        let frozen = self.frozen();
        assert!(bytes.is_empty() || at >= frozen, "store to {at}..{to} below {frozen}, which readers hold");
        // SAFETY: at..to lies inside the mapping (checked), which lives as long as `inner`. Nobody reads or writes
        // these bytes meanwhile: borrowed bytes lie below `frozen`, everything else happens under `access`. `bytes`
        // cannot overlap: it is either below `frozen` or not of this mapping.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.inner.map.as_mut_ptr().add(at as usize), bytes.len());
        }
    }

    /// Shows `from..to` to `look` without freezing it; stores wait meanwhile, so `look` must not store.
    ///
    /// # Panics
    /// Outside the region, or with `from > to`.
    pub fn with<T>(&self, from: u64, to: u64, look: impl FnOnce(&[u8]) -> T) -> T {
        self.inner.check(from, to);
        if to <= self.frozen() {
            return look(self.inner.bytes(from, to));
        }
        let _access = self.inner.access.lock().unwrap_or_else(PoisonError::into_inner);
        look(self.inner.bytes(from, to))
    }

    /// Hands out `from..to` without a copy, and freezes everything below `to`.
    ///
    /// # Panics
    /// Outside the region, or with `from > to`.
    #[must_use]
    pub fn slice(&self, from: u64, to: u64) -> Bytes {
        self.inner.check(from, to);
        if to > self.frozen() {
            let _access = self.inner.access.lock().unwrap_or_else(PoisonError::into_inner);
            self.inner.frozen.fetch_max(to, Ordering::AcqRel);
        }
        Bytes::from_owner(Borrowed { region: Arc::clone(&self.inner), from, to })
    }

    /// Stores into each page of `from..to` what stands there, so that the system has it in memory, and for a file its
    /// block too, before anyone needs it. Pages that were handed out have that behind them and are left alone. Blocks.
    ///
    /// # Panics
    /// Outside the region, or with `from > to`.
    pub fn touch(&self, from: u64, to: u64) {
        self.inner.check(from, to);
        let mut at = from;
        while at < to {
            {
                let _access = self.inner.access.lock().unwrap_or_else(PoisonError::into_inner);
                if at >= self.frozen() {
                    // SAFETY: `at` lies inside the mapping (checked), which lives as long as `inner`. Nobody reads or
                    // writes this byte meanwhile: it is not below `frozen`, and everything else happens under `access`.
                    unsafe {
                        let byte = self.inner.map.as_mut_ptr().add(at as usize);
                        byte.write_volatile(byte.read_volatile());
                    }
                }
            }
            at = (at / PAGE_BYTES + 1) * PAGE_BYTES;
        }
    }

    /// `mlock` of the whole region: it stays in memory until [`unlock`](Region::unlock), or until it is unmapped. Blocks
    /// while missing pages come in.
    ///
    /// # Errors
    /// The process may not lock so much, or anything at all.
    pub fn lock(&self) -> io::Result<()> {
        self.inner.map.lock()
    }

    /// Ends [`lock`](Region::lock).
    ///
    /// # Errors
    /// Whatever `munlock` reports.
    pub fn unlock(&self) -> io::Result<()> {
        self.inner.map.unlock()
    }

    /// `madvise` of the whole region.
    ///
    /// # Errors
    /// Whatever it reports.
    pub fn advise(&self, advice: Advice) -> io::Result<()> {
        self.inner.map.advise(match advice {
            Advice::Random => memmap2::Advice::Random,
            Advice::WillNeed => memmap2::Advice::WillNeed,
        })
    }

    /// `msync(MS_SYNC)` of the pages that hold `from..to`. Only for a region over a file. Blocks.
    ///
    /// # Errors
    /// An I/O error of the device.
    ///
    /// # Panics
    /// Outside the region, or with `from > to`.
    pub fn sync(&self, from: u64, to: u64) -> io::Result<()> {
        self.inner.check(from, to);
        if from == to {
            return Ok(());
        }
        self.inner.map.flush_range(from as usize, (to - from) as usize)
    }
}

impl Inner {
    /// Returns `to`, having checked that `from..to` lies inside.
    fn check(&self, from: u64, to: u64) -> u64 {
        assert!(from <= to && to <= self.len, "{from}..{to} outside 0..{}", self.len);
        to
    }

    /// The caller has checked the range, and holds `access` or reads below `frozen` only.
    fn bytes(&self, from: u64, to: u64) -> &[u8] {
        // SAFETY: the range lies inside the mapping (checked by the callers), which lives as long as `self`; nobody
        // stores into it meanwhile, because stores need `access` and never touch bytes below `frozen`.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(from as usize), (to - from) as usize) }
    }
}

/// The owner behind handed-out bytes.
struct Borrowed {
    region: Arc<Inner>,
    from: u64,
    to: u64,
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        // Frozen when this was made, so readable without the lock.
        self.region.bytes(self.from, self.to)
    }
}

fn checked_file_len(file: &File, len: u64) -> io::Result<usize> {
    let size = checked_len(len)?;
    let there = file.metadata()?.len();
    if there < len {
        let message = format!("cannot map {len} bytes of a file of {there}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(size)
}

fn checked_len(len: u64) -> io::Result<usize> {
    match usize::try_from(len) {
        Ok(size) if size > 0 => Ok(size),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("cannot map {len} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Advice, Region};

    #[test]
    fn bytes_outlive_the_region() {
        let region = Region::anonymous(8192).unwrap();
        region.write(10, b"abc");
        let bytes = region.slice(10, 13);
        drop(region);
        assert_eq!(&bytes[..], b"abc");
    }

    #[test]
    fn touching_locking_and_advice_change_no_byte() {
        let region = Region::anonymous(3 * 4096 + 5).unwrap();
        region.write(4095, b"across");
        let held = region.slice(0, 4100);
        region.touch(0, region.len());
        region.touch(7, 7);
        region.advise(Advice::WillNeed).unwrap();
        region.advise(Advice::Random).unwrap();
        // Whether a process may lock memory is for its surroundings to say.
        if region.lock().is_ok() {
            region.unlock().unwrap();
        }
        assert_eq!(&held[4095..], b"acros");
        region.with(4100, region.len(), |rest| assert!(rest[0] == b's' && rest[1..].iter().all(|byte| *byte == 0)));
    }

    #[test]
    #[should_panic(expected = "which readers hold")]
    fn handed_out_bytes_are_never_written_again() {
        let region = Region::anonymous(8192).unwrap();
        drop(region.slice(0, 100));
        region.write(99, b"x");
    }

    #[test]
    #[should_panic(expected = "outside 0..4096")]
    fn stores_outside_are_refused() {
        Region::anonymous(4096).unwrap().write(4095, b"xy");
    }

    #[test]
    fn readers_on_other_threads_see_what_was_written_before_it_was_handed_out() {
        const RECORD: u64 = 100;
        const COUNT: u64 = 2_000;
        let region = Region::anonymous(RECORD * COUNT).unwrap();
        let (send, received) = std::sync::mpsc::channel();
        let writer = std::thread::spawn({
            let region = region.clone();
            move || {
                for index in 0..COUNT {
                    region.write(index * RECORD, &[index as u8; RECORD as usize]);
                    send.send(region.slice(index * RECORD, (index + 1) * RECORD)).unwrap();
                }
            }
        });
        let mut held = Vec::new();
        for (index, bytes) in received.iter().enumerate() {
            region.with(0, RECORD * COUNT, |all| assert_eq!(all[index * RECORD as usize], index as u8));
            held.push(bytes);
        }
        writer.join().unwrap();
        drop(region);
        for (index, bytes) in held.iter().enumerate() {
            assert_eq!(bytes[..], [index as u8; RECORD as usize]);
        }
    }

    #[test]
    fn an_empty_region_cannot_be_made_and_empty_ranges_are_harmless() {
        assert_eq!(Region::anonymous(0).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
        let region = Region::anonymous(10).unwrap();
        region.write(10, b"");
        assert!(region.slice(10, 10).is_empty());
        assert_eq!(region.frozen(), 10);
        region.with(3, 3, |bytes| assert!(bytes.is_empty()));
    }

    #[test]
    fn a_file_and_its_region_share_bytes() {
        let mut path = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut path, &[0; 4096]).unwrap();
        let region = Region::map_file(path.as_file(), 4096).unwrap();
        region.write(7, b"seen");
        region.sync(0, 4096).unwrap();
        assert_eq!(&std::fs::read(path.path()).unwrap()[7..11], b"seen");
        assert!(Region::map_file(path.as_file(), 4097).is_err());
    }
}
