//! A device that does not hold what was written to it (`spec/simulation.md` 2.5).
//!
//! What the page cache holds stays right until it lets go of a page. Damage can be undone as long as nobody has written
//! the page anew.

use std::path::{Path, PathBuf};

use super::{
    State,
    faults::{DiskError, Media, means},
    journal::Ino,
    pages::{Image, PAGE_BYTES},
};

/// Damage that was done on purpose.
#[derive(Debug)]
pub(super) struct Damage {
    key: u64,
    ino: Ino,
    page: u64,
    /// What the page held and what it holds; none if it merely cannot be read.
    images: Option<(Image, Image)>,
}

/// A page of a file, by the path of the file and the number of the page.
pub type Place = (PathBuf, u64);

impl State {
    /// See [`Disk::damage`](super::Disk::damage).
    pub(super) fn damage(&mut self, key: u64, (pattern, what): (&str, Media), count: u32, now: u64) -> Vec<Place> {
        let mut sound: Vec<(PathBuf, Ino, u64)> = Vec::new();
        for (path, ino) in self.names.files() {
            if means(pattern, &path) {
                let pages = self.content(ino).clean_pages();
                sound.extend(pages.into_iter().map(|page| (path.clone(), ino, page)));
            }
        }
        let mut damaged = Vec::new();
        for number in 0..u64::from(count) {
            if sound.is_empty() {
                break;
            }
            let at = self.faults.place(key, 2 * number).below(sound.len() as u64) as usize;
            let (path, ino, page) = sound.swap_remove(at);
            let bit = self.faults.place(key, 2 * number + 1);
            let content = self.content_mut(ino);
            let images = match what {
                Media::LatentSector => {
                    content.spoil(page);
                    None
                }
                Media::BitRot => {
                    let pristine = content.image(page);
                    let mut rotten = Box::new(*pristine.bytes());
                    let bytes = content.len.saturating_sub(page * PAGE_BYTES).clamp(1, PAGE_BYTES);
                    let bit = bit.below(bytes * 8);
                    rotten[(bit / 8) as usize] ^= 1 << (bit % 8);
                    let rotten = Image::Bytes(rotten);
                    content.overwrite_on_device(page, rotten.clone(), now);
                    Some((pristine, rotten))
                }
            };
            self.damages.push(Damage { key, ino, page, images });
            self.names.recharge(ino);
            damaged.push((path, page));
        }
        damaged
    }

    /// See [`Disk::lose_files`](super::Disk::lose_files).
    pub(super) fn lose_files(&mut self, pattern: &str) -> u64 {
        let mut lost = 0;
        for (path, _) in self.names.files().into_iter().filter(|(path, _)| means(pattern, path)) {
            let Ok((dir, name)) = self.names.place(&path) else { continue };
            self.seq += 1;
            let removed = self.names.remove(dir, name, false, self.seq);
            self.names.flush_dir(dir, self.seq, self.settings.durability);
            lost += u64::from(removed.is_ok());
        }
        lost
    }

    /// See [`Disk::repair`](super::Disk::repair).
    pub(super) fn repair(&mut self, key: u64, now: u64) {
        for damage in std::mem::take(&mut self.damages) {
            if damage.key != key {
                self.damages.push(damage);
                continue;
            }
            if !self.names.exists(damage.ino) {
                continue;
            }
            let content = self.content_mut(damage.ino);
            match damage.images {
                None => content.unspoil(damage.page),
                Some((pristine, rotten)) => content.restore(damage.page, &pristine, &rotten, now),
            }
            self.names.recharge(damage.ino);
        }
    }

    /// Of the pages that a flush which began at `start` is to write one goes elsewhere: nowhere, or over another page.
    /// Tells which pages are wrong on the device now.
    pub(super) fn misplace(
        &mut self,
        (ino, path): (Ino, PathBuf),
        start: u64,
        written: &[u64],
        (error, now): (DiskError, u64),
    ) -> Vec<Place> {
        let page = written[self.faults.place(start, 0).below(written.len() as u64) as usize];
        let image = self.content(ino).image(page);
        self.content_mut(ino).lose(page, u64::MAX);
        let mut wrong = vec![(path, page)];
        if error == DiskError::MisdirectedWrite {
            wrong.extend(self.overwrite_some_page(ino, page, image, start, now));
        }
        wrong
    }

    /// Writes an image where another page of the same directory belongs.
    fn overwrite_some_page(&mut self, ino: Ino, page: u64, image: Image, key: u64, now: u64) -> Option<Place> {
        let mut others: Vec<(PathBuf, Ino, u64)> = Vec::new();
        let files = self.names.files();
        let own = files.iter().find(|(_, other)| *other == ino).and_then(|(path, _)| path.parent().map(Path::to_owned));
        for (path, other) in files.into_iter().filter(|(path, _)| path.parent() == own.as_deref()) {
            let pages = self.content(other).clean_pages().into_iter().filter(|at| (other, *at) != (ino, page));
            others.extend(pages.map(|page| (path.clone(), other, page)));
        }
        if others.is_empty() {
            return None;
        }
        let at = self.faults.place(key, 1).below(others.len() as u64) as usize;
        let (path, other, at) = others.swap_remove(at);
        self.content_mut(other).overwrite_on_device(at, image, now);
        self.names.recharge(other);
        Some((path, at))
    }
}
