//! Backups: what a device holds at some moment, and a device that goes back to it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{
    State,
    journal::Ino,
    names::{Body, Dir, ROOT},
    pages::{Content, Image},
};

/// What is durable on a device at one moment. Made by [`Disk::backup`](super::Disk::backup).
#[derive(Debug, Clone)]
pub struct Backup {
    /// By their paths, parents before children.
    entries: Vec<(PathBuf, Entry)>,
}

#[derive(Debug, Clone)]
enum Entry {
    Dir { modified_ms: i64 },
    File { modified_ms: i64, len: u64, reserved: u64, pages: BTreeMap<u64, Image> },
}

impl State {
    pub(super) fn backup(&mut self, now: u64) -> Backup {
        self.settle(now);
        let mut entries = Vec::new();
        self.collect(ROOT, Path::new("/"), &mut entries);
        Backup { entries }
    }

    fn collect(&self, ino: Ino, path: &Path, entries: &mut Vec<(PathBuf, Entry)>) {
        let inode = self.names.inode(ino);
        let modified_ms = inode.modified_ms;
        match &inode.body {
            Body::Dir(dir) => {
                if ino != ROOT {
                    entries.push((path.to_owned(), Entry::Dir { modified_ms }));
                }
                for (name, &child) in &dir.durable {
                    self.collect(child, &path.join(name), entries);
                }
            }
            Body::File(content) => {
                let (len, reserved, pages) = (content.durable_len, content.durable_reserved, content.durable_pages());
                entries.push((path.to_owned(), Entry::File { modified_ms, len, reserved, pages }));
            }
        }
    }

    /// Puts what a backup holds onto an empty device, durably.
    pub(super) fn restore(&mut self, backup: &Backup) {
        for (path, entry) in &backup.entries {
            let (dir, name) = self.names.place(path).expect("parents come before their children");
            self.seq += 1;
            let (body, modified_ms) = match entry {
                Entry::Dir { modified_ms } => (Body::Dir(Dir::default()), *modified_ms),
                Entry::File { modified_ms, len, reserved, pages } => {
                    let content = Content::restored(self.writeback(), (*len, *reserved), pages.clone());
                    (Body::File(Box::new(content)), *modified_ms)
                }
            };
            let ino = self.names.create(dir, &name, body, self.seq, modified_ms);
            self.names.recharge(ino);
        }
        let all = (0..self.names.journal.len()).collect();
        self.names.commit(&all);
    }
}
