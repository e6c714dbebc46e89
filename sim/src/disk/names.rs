//! The namespace of a disk: inodes, directories, and the journal of changes that are not durable.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    path::{Component, Path, PathBuf},
};

use host::fs::DirEntry;

use super::{
    Durability, errno,
    journal::{self, Change, Ino, Op},
    pages::{Content, Image},
};

pub(super) const ROOT: Ino = 1;
/// More changes of names than this do not stay undurable.
const PENDING_MAX: usize = 4096;
const NAME_BYTES_MAX: usize = 255;
/// So many pages of a file that was deleted are remembered, and of all of them.
const DELETED_OF_FILE_MAX: usize = 16;
const DELETED_MAX: usize = 64;

#[derive(Debug)]
pub(super) enum Body {
    Dir(Dir),
    File(Box<Content>),
}

#[derive(Debug, Default)]
pub(super) struct Dir {
    pub entries: BTreeMap<String, Ino>,
    pub durable: BTreeMap<String, Ino>,
}

#[derive(Debug)]
pub(super) struct Inode {
    pub body: Body,
    /// Entries, durable entries, and pending operations that name it; open files and mappings of the present life.
    names: u32,
    durable_names: u32,
    pending: u32,
    pub handles: u32,
    /// Whether it has had a durable name.
    placed: bool,
    pub modified_ms: i64,
    /// The open file that holds its lock.
    pub lock: Option<u64>,
    /// Flushes that failed. Each open file tells of those it has not told of, once.
    pub flush_errors: u64,
    /// What it counts for on the device: blocks, dirty pages.
    charged: (u64, u64),
}

impl Inode {
    fn new(body: Body, modified_ms: i64) -> Inode {
        Inode {
            body,
            names: 0,
            durable_names: 0,
            pending: 0,
            handles: 0,
            placed: false,
            modified_ms,
            lock: None,
            flush_errors: 0,
            charged: (0, 0),
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir(_))
    }

    pub(super) fn content(&self) -> Option<&Content> {
        match &self.body {
            Body::File(content) => Some(content),
            Body::Dir(_) => None,
        }
    }

    pub(super) fn content_mut(&mut self) -> Option<&mut Content> {
        match &mut self.body {
            Body::File(content) => Some(content),
            Body::Dir(_) => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Names {
    inodes: BTreeMap<Ino, Inode>,
    next: Ino,
    pub journal: Vec<Op>,
    /// What the device still holds of files that were deleted, the last ones last.
    deleted: VecDeque<Image>,
    /// Blocks of all files that have a name or a handle, and dirty pages of all files.
    pub blocks: u64,
    pub dirty: u64,
}

impl Names {
    pub(super) fn new() -> Names {
        let mut root = Inode::new(Body::Dir(Dir::default()), 0);
        root.placed = true;
        Names {
            inodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
            journal: Vec::new(),
            deleted: VecDeque::new(),
            blocks: 0,
            dirty: 0,
        }
    }

    /// No names and no inodes, whose numbers go on.
    pub(super) fn emptied(&self) -> Names {
        Names { next: self.next, ..Names::new() }
    }

    // ---- looking up ----

    pub(super) fn inode(&self, ino: Ino) -> &Inode {
        &self.inodes[&ino]
    }

    pub(super) fn inode_mut(&mut self, ino: Ino) -> &mut Inode {
        self.inodes.get_mut(&ino).expect("an inode lives as long as anything names it")
    }

    pub(super) fn exists(&self, ino: Ino) -> bool {
        self.inodes.contains_key(&ino)
    }

    pub(super) fn inos(&self) -> Vec<Ino> {
        self.inodes.keys().copied().collect()
    }

    /// All files that have a name, by their paths.
    pub(super) fn files(&self) -> Vec<(PathBuf, Ino)> {
        let (mut files, mut open) = (Vec::new(), vec![(PathBuf::from("/"), ROOT)]);
        while let Some((path, ino)) = open.pop() {
            match &self.inodes[&ino].body {
                Body::Dir(dir) => open.extend(dir.entries.iter().map(|(name, child)| (path.join(name), *child))),
                Body::File(_) => files.push((path, ino)),
            }
        }
        files.sort();
        files
    }

    pub(super) fn dir(&self, ino: Ino) -> io::Result<&Dir> {
        match &self.inodes[&ino].body {
            Body::Dir(dir) => Ok(dir),
            Body::File(_) => Err(errno::error(errno::NOT_A_DIR)),
        }
    }

    fn dir_mut(&mut self, ino: Ino) -> &mut Dir {
        match &mut self.inode_mut(ino).body {
            Body::Dir(dir) => dir,
            Body::File(_) => unreachable!("inode {ino} of an entry is a directory"),
        }
    }

    /// What the device still holds of files that were deleted.
    pub(super) fn deleted(&self) -> Vec<Image> {
        self.deleted.iter().cloned().collect()
    }

    /// Whether it has had a durable name.
    pub(super) fn is_placed(&self, ino: Ino) -> bool {
        self.inodes[&ino].placed
    }

    /// The number that the next new inode gets.
    pub(super) fn next_ino(&self) -> Ino {
        self.next
    }

    pub(super) fn resolve(&self, path: &Path) -> io::Result<Ino> {
        let mut trail = vec![ROOT];
        for component in path.components() {
            let here = *trail.last().expect("the root is never left");
            match component {
                Component::Normal(name) => {
                    let found = self.dir(here)?.entries.get(text(name)?).copied();
                    trail.push(found.ok_or_else(|| errno::error(errno::NOT_FOUND))?);
                }
                Component::ParentDir => {
                    self.dir(here)?;
                    if trail.len() > 1 {
                        trail.pop();
                    }
                }
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        Ok(*trail.last().expect("the root is never left"))
    }

    /// The directory of a path, and the name in it.
    pub(super) fn place(&self, path: &Path) -> io::Result<(Ino, String)> {
        let name = path.file_name().ok_or_else(|| errno::error(errno::INVALID))?;
        let name = text(name)?;
        if name.len() > NAME_BYTES_MAX {
            return Err(errno::error(errno::NAME_TOO_LONG));
        }
        let dir = self.resolve(path.parent().unwrap_or(Path::new("/")))?;
        self.dir(dir)?;
        Ok((dir, name.to_owned()))
    }

    pub(super) fn entry(&self, dir: Ino, name: &str) -> Option<Ino> {
        self.dir(dir).ok().and_then(|dir| dir.entries.get(name).copied())
    }

    pub(super) fn list(&self, dir: Ino) -> io::Result<Vec<DirEntry>> {
        let entries = self.dir(dir)?.entries.iter();
        Ok(entries.map(|(name, ino)| DirEntry { name: name.clone(), is_dir: self.inodes[ino].is_dir() }).collect())
    }

    // ---- changing ----

    pub(super) fn create(&mut self, dir: Ino, name: &str, body: Body, seq: u64, wall_ms: i64) -> Ino {
        let ino = self.next;
        self.next += 1;
        self.inodes.insert(ino, Inode::new(body, wall_ms));
        self.apply(seq, vec![Change { dir, name: name.to_owned(), to: Some(ino) }]);
        ino
    }

    pub(super) fn link(&mut self, ino: Ino, dir: Ino, name: String, seq: u64) -> io::Result<()> {
        if self.inode(ino).is_dir() {
            return Err(errno::error(errno::NOT_PERMITTED));
        }
        if self.entry(dir, &name).is_some() {
            return Err(errno::error(errno::EXISTS));
        }
        self.apply(seq, vec![Change { dir, name, to: Some(ino) }]);
        Ok(())
    }

    pub(super) fn remove(&mut self, dir: Ino, name: String, want_dir: bool, seq: u64) -> io::Result<()> {
        let ino = self.entry(dir, &name).ok_or_else(|| errno::error(errno::NOT_FOUND))?;
        match (&self.inode(ino).body, want_dir) {
            (Body::File(_), true) => return Err(errno::error(errno::NOT_A_DIR)),
            (Body::Dir(_), false) => return Err(errno::error(errno::IS_A_DIR)),
            (Body::Dir(inner), true) if !inner.entries.is_empty() => return Err(errno::error(errno::NOT_EMPTY)),
            _ => {}
        }
        self.apply(seq, vec![Change { dir, name, to: None }]);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: (Ino, String), to: (Ino, String), seq: u64) -> io::Result<()> {
        let ino = self.entry(from.0, &from.1).ok_or_else(|| errno::error(errno::NOT_FOUND))?;
        let replaced = self.entry(to.0, &to.1);
        if replaced == Some(ino) {
            return Ok(()); // Two names of one file: POSIX says that nothing happens.
        }
        let moves_dir = self.inode(ino).is_dir();
        if moves_dir && self.is_inside(to.0, ino) {
            return Err(errno::error(errno::INVALID));
        }
        match replaced.map(|replaced| &self.inode(replaced).body) {
            Some(Body::Dir(_)) if !moves_dir => return Err(errno::error(errno::IS_A_DIR)),
            Some(Body::Dir(inner)) if !inner.entries.is_empty() => return Err(errno::error(errno::NOT_EMPTY)),
            Some(Body::File(_)) if moves_dir => return Err(errno::error(errno::NOT_A_DIR)),
            _ => {}
        }
        self.apply(
            seq,
            vec![Change { dir: from.0, name: from.1, to: None }, Change { dir: to.0, name: to.1, to: Some(ino) }],
        );
        let op = self.journal.last_mut().expect("applying an operation journals it");
        op.moves_dir = moves_dir;
        op.replaced_by = replaced.and(Some(ino));
        Ok(())
    }

    /// Whether `dir` is `top` or below it.
    fn is_inside(&self, dir: Ino, top: Ino) -> bool {
        let mut below = vec![top];
        while let Some(here) = below.pop() {
            if here == dir {
                return true;
            }
            if let Body::Dir(inner) = &self.inode(here).body {
                below.extend(inner.entries.values());
            }
        }
        false
    }

    fn apply(&mut self, seq: u64, changes: Vec<Change>) {
        let op = Op { seq, changes, moves_dir: false, replaced_by: None };
        for ino in op.inodes() {
            self.inode_mut(ino).pending += 1;
        }
        let mut left = Vec::new();
        for change in &op.changes {
            let entries = &mut self.dir_mut(change.dir).entries;
            let before = match change.to {
                Some(ino) => entries.insert(change.name.clone(), ino),
                None => entries.remove(&change.name),
            };
            if let Some(ino) = change.to {
                self.inode_mut(ino).names += 1;
            }
            if let Some(before) = before {
                self.inode_mut(before).names -= 1;
                left.push(before);
            }
        }
        self.journal.push(op);
        for ino in left {
            self.recharge(ino);
            self.forget_if_unused(ino);
        }
        if self.journal.len() > PENDING_MAX {
            self.commit(&(0..PENDING_MAX / 2).collect());
        }
    }

    // ---- durability ----

    /// A flush of `dir` ended: what was done to it before `start` is durable.
    pub(super) fn flush_dir(&mut self, dir: Ino, start: u64, durability: Durability) {
        let due = self.journal.iter().take_while(|op| op.seq <= start).count();
        let flushed = match durability {
            Durability::Strict => journal::flushed_by(&self.journal[..due], dir, |ino| self.is_placed(ino)),
            Durability::OrderedJournal | Durability::DelayedAlloc | Durability::RevertOnError => (0..due).collect(),
        };
        self.commit(&flushed);
    }

    /// Makes pending operations durable, by their indexes.
    pub(super) fn commit(&mut self, indexes: &BTreeSet<usize>) {
        let mut index = 0;
        let (committed, rest): (Vec<Op>, Vec<Op>) = std::mem::take(&mut self.journal).into_iter().partition(|_| {
            index += 1;
            indexes.contains(&(index - 1))
        });
        self.journal = rest;
        for op in &committed {
            for change in &op.changes {
                let durable = &mut self.dir_mut(change.dir).durable;
                let before = match change.to {
                    Some(ino) => durable.insert(change.name.clone(), ino),
                    None => durable.remove(&change.name),
                };
                if let Some(ino) = change.to {
                    let inode = self.inode_mut(ino);
                    inode.durable_names += 1;
                    inode.placed = true;
                }
                if let Some(before) = before {
                    self.inode_mut(before).durable_names -= 1;
                    self.forget_if_unused(before);
                }
            }
        }
        self.release(committed);
    }

    fn release(&mut self, ops: Vec<Op>) {
        for ino in ops.iter().flat_map(Op::inodes) {
            if let Some(inode) = self.inodes.get_mut(&ino) {
                inode.pending -= 1;
                self.forget_if_unused(ino);
            }
        }
    }

    /// The power went: operations for which `kept` says so become durable, the others never happened, and the present
    /// names are the durable ones. Files and directories without a name are gone.
    pub(super) fn lose_power(&mut self, kept: &BTreeSet<usize>) {
        for inode in self.inodes.values_mut() {
            inode.handles = 0;
            inode.lock = None;
        }
        self.commit(kept);
        let lost = std::mem::take(&mut self.journal);
        self.release(lost);
        let mut reachable = BTreeSet::from([ROOT]);
        let mut open = vec![ROOT];
        while let Some(ino) = open.pop() {
            if let Body::Dir(dir) = &mut self.inode_mut(ino).body {
                dir.entries.clone_from(&dir.durable);
                open.extend(dir.durable.values().filter(|&&child| reachable.insert(child)));
            }
        }
        self.inodes.retain(|ino, _| reachable.contains(ino));
        for inode in self.inodes.values_mut() {
            inode.names = 0;
            inode.durable_names = 0;
        }
        let named: Vec<Ino> = self
            .inodes
            .values()
            .filter_map(|inode| match &inode.body {
                Body::Dir(dir) => Some(dir.durable.values().copied().collect::<Vec<_>>()),
                Body::File(_) => None,
            })
            .flatten()
            .collect();
        for ino in named {
            let inode = self.inode_mut(ino);
            inode.names += 1;
            inode.durable_names += 1;
        }
    }

    // ---- lives and space ----

    pub(super) fn open_handle(&mut self, ino: Ino) {
        self.inode_mut(ino).handles += 1;
    }

    pub(super) fn close_handle(&mut self, ino: Ino) {
        let inode = self.inode_mut(ino);
        inode.handles = inode.handles.checked_sub(1).expect("every handle is closed once");
        self.recharge(ino);
        self.forget_if_unused(ino);
    }

    /// The process died: nothing is open, locked or mapped any more.
    pub(super) fn end_life(&mut self) {
        for ino in self.inos() {
            // A directory that was forgotten may have taken it along.
            let Some(inode) = self.inodes.get_mut(&ino) else { continue };
            inode.handles = 0;
            inode.lock = None;
            if let Some(content) = inode.content_mut() {
                content.end_life();
            }
            self.recharge(ino);
            self.forget_if_unused(ino);
        }
    }

    /// Brings the sums over all files up to date after a change of `ino`.
    pub(super) fn recharge(&mut self, ino: Ino) {
        let Some(inode) = self.inodes.get_mut(&ino) else { return };
        let now = match inode.content() {
            Some(content) if inode.names > 0 || inode.handles > 0 => (content.blocks(), content.undo.len() as u64),
            _ => (0, 0),
        };
        let before = std::mem::replace(&mut inode.charged, now);
        self.blocks = self.blocks - before.0 + now.0;
        self.dirty = self.dirty - before.1 + now.1;
    }

    /// Computes the sums over all files anew.
    pub(super) fn recharge_all(&mut self) {
        (self.blocks, self.dirty) = (0, 0);
        for inode in self.inodes.values_mut() {
            inode.charged = (0, 0);
        }
        for ino in self.inos() {
            self.recharge(ino);
        }
    }

    fn forget_if_unused(&mut self, ino: Ino) {
        let Some(inode) = self.inodes.get(&ino) else { return };
        if ino == ROOT || inode.names + inode.durable_names + inode.pending + inode.handles > 0 {
            return;
        }
        let gone = self.inodes.remove(&ino).expect("found above");
        match gone.body {
            Body::Dir(dir) => {
                for child in dir.durable.into_values() {
                    if let Some(inode) = self.inodes.get_mut(&child) {
                        inode.durable_names -= 1;
                        self.forget_if_unused(child);
                    }
                }
            }
            Body::File(content) => {
                let pages = content.clean_pages().into_iter().take(DELETED_OF_FILE_MAX);
                self.deleted.extend(pages.map(|page| content.image(page)));
                let too_many = self.deleted.len().saturating_sub(DELETED_MAX);
                self.deleted.drain(..too_many);
            }
        }
    }
}

fn text(name: &std::ffi::OsStr) -> io::Result<&str> {
    name.to_str().ok_or_else(|| errno::error(errno::INVALID))
}
