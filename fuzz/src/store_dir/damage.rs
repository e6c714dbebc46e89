//! A directory in memory, and what may happen to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use host::fs::DirEntry;
use store::audit::{AuditSource, Content};

use super::LOG_FILE_BYTES;

/// A file or an empty directory; directories that hold something follow from the paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    File(Vec<u8>),
    Dir,
}

/// All files below a directory, by relative path, without the lock.
#[derive(Debug, Clone)]
pub(super) struct Tree(pub(super) BTreeMap<PathBuf, Node>);

/// Operations of one input. More do not damage more.
const OPERATIONS_MAX: usize = 16;

/// Names that files may get, beside the one that comes next.
const NAMES: [&str; 10] = [
    "00000000000000000001",
    "00000000000000999424",
    "99999999999999999999",
    "18446744073709551615",
    "18446744073709547520",
    "00000000000000000000.rewind",
    "20261129174419973",
    "notes",
    "0",
    "CURRENT",
];

/// Directories that may come into being.
const FOLDERS: [&str; 8] = [
    "consumequeue/TopicA/4294967296",
    "consumequeue/TopicA/-1",
    "consumequeue/TopicC/7",
    "consumequeue/a b/0",
    "commitlog/00000000000000000000",
    "index/20261129174419973",
    "checkpoint",
    "abort",
];

/// Numbers that say what nobody means.
const NUMBERS: [u64; 6] = [0, 1, u64::MAX, i64::MAX as u64, i64::MIN as u64, 0xdaa3_20a7_daa3_20a7];

/// What is left of an input; zeros behind its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (&byte, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        byte
    }

    /// A number below `count`, which must be above 0.
    fn below(&mut self, count: usize) -> usize {
        (usize::from(u16::from_be_bytes([self.byte(), self.byte()])) * count) >> 16
    }

    fn path(&mut self, tree: &Tree) -> Option<PathBuf> {
        let index = usize::from(self.byte());
        tree.0.keys().nth(index % tree.0.len().max(1)).cloned()
    }
}

/// Does to a tree what the operations say.
pub(super) fn apply(tree: &mut Tree, operations: &[u8]) {
    let mut input = Input(operations);
    for _ in 0..OPERATIONS_MAX {
        if input.0.is_empty() {
            return;
        }
        let kind = input.byte() % 16;
        let Some(path) = input.path(tree) else { return };
        match kind {
            0..9 => {
                if let Some(Node::File(bytes)) = tree.0.get_mut(&path) {
                    change(bytes, kind, &mut input);
                }
            }
            9 => drop(tree.0.remove(&path)),
            10 => {
                // A directory with all that is in it.
                let folder = path.parent().unwrap_or(&path).to_owned();
                tree.0.retain(|path, _| !path.starts_with(&folder) || folder.as_os_str().is_empty());
            }
            11 => swap(tree, &path, &input.path(tree).unwrap_or_default()),
            12 => {
                if let (Some(from), Some(to)) = (tree.0.get(&path).cloned(), input.path(tree)) {
                    tree.0.insert(to, from);
                }
            }
            13 => rename(tree, &path, &mut input),
            14 => {
                let folder = FOLDERS[usize::from(input.byte()) % FOLDERS.len()];
                tree.0.retain(|path, _| !path.starts_with(folder));
                tree.0.insert(PathBuf::from(folder), Node::Dir);
            }
            _ => {
                if tree.0.remove(Path::new("abort")).is_none() {
                    tree.0.insert(PathBuf::from("abort"), Node::File(b"1".to_vec()));
                }
            }
        }
    }
}

/// What may happen inside a file.
fn change(bytes: &mut Vec<u8>, kind: u8, input: &mut Input<'_>) {
    let at = input.below(bytes.len().max(1)).min(bytes.len());
    let value = input.byte();
    let len = usize::from(value) * 8 + 1;
    let end = (at + len).min(bytes.len());
    match kind {
        0 | 1 if at < bytes.len() => bytes[at] ^= value.max(1),
        2 | 3 => bytes[at..end].fill(0),
        4 => bytes[at..end].fill(0xff),
        5 => {
            let number = NUMBERS[usize::from(value) % NUMBERS.len()].to_be_bytes();
            let end = (at + 8).min(bytes.len());
            bytes[at..end].copy_from_slice(&number[..end - at]);
        }
        6 => bytes.truncate(at),
        7 => bytes.resize(bytes.len() + len, value),
        // A part stands where another was.
        _ if !bytes.is_empty() => {
            let from = input.below(bytes.len());
            let part = bytes[from..(from + len).min(bytes.len())].to_vec();
            let end = (at + part.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&part[..end - at]);
        }
        _ => {}
    }
}

fn swap(tree: &mut Tree, one: &Path, other: &Path) {
    let (Some(first), Some(second)) = (tree.0.get(one).cloned(), tree.0.get(other).cloned()) else { return };
    tree.0.insert(one.to_owned(), second);
    tree.0.insert(other.to_owned(), first);
}

/// A file gets another name, or a second one.
fn rename(tree: &mut Tree, path: &Path, input: &mut Input<'_>) {
    let choice = input.byte();
    let next = match (tree.0.get(path), path.file_name().and_then(|name| name.to_str()?.parse::<u64>().ok())) {
        (Some(Node::File(bytes)), Some(start)) => format!("{:020}", start.wrapping_add(bytes.len() as u64)),
        _ => "next".to_owned(),
    };
    let name = NAMES.get(usize::from(choice / 2) % (NAMES.len() + 1)).map_or(&*next, |name| name);
    let Some(node) = tree.0.get(path).cloned() else { return };
    if choice.is_multiple_of(2) {
        tree.0.remove(path);
    }
    tree.0.insert(path.with_file_name(name), node);
}

impl Tree {
    /// All that is in a directory.
    pub(super) fn read(root: &Path) -> Tree {
        let mut nodes = BTreeMap::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            let below = |path: &Path| path.strip_prefix(root).expect("below the root").to_owned();
            let mut is_empty = true;
            for entry in fs::read_dir(&folder).expect("a directory can be listed") {
                let path = entry.expect("a directory can be listed").path();
                is_empty = false;
                if path.is_dir() {
                    folders.push(path);
                } else if path.file_name().is_some_and(|name| name != "lock") {
                    nodes.insert(below(&path), Node::File(fs::read(&path).expect("a file can be read")));
                }
            }
            if is_empty {
                nodes.insert(below(&folder), Node::Dir);
            }
        }
        Tree(nodes)
    }

    /// What is not as in another tree: for each file how many bytes differ, and from where on.
    pub(super) fn differences(&self, before: &Tree) -> String {
        let paths: BTreeSet<&PathBuf> = self.0.keys().chain(before.0.keys()).collect();
        let differences = paths.into_iter().filter_map(|path| {
            let what = match (before.0.get(path), self.0.get(path)) {
                (before, now) if before == now => return None,
                (_, None) => "gone".to_owned(),
                (None, Some(_)) => "new".to_owned(),
                (Some(Node::File(before)), Some(Node::File(now))) => {
                    let differ = || before.iter().zip(now).enumerate().filter(|(_, (before, now))| before != now);
                    let (from, count) = (differ().next().map(|(at, _)| at), differ().count());
                    format!("{count} bytes changed from {from:?} on, {} long, was {}", now.len(), before.len())
                }
                (Some(_), Some(_)) => "of another kind".to_owned(),
            };
            Some(format!("{}: {what}", path.display()))
        });
        differences.collect::<Vec<_>>().join("; ")
    }

    /// Whether these bytes stand at this place of the log.
    pub(super) fn holds(&self, phy: u64, bytes: &[u8]) -> bool {
        self.rest_of_file(phy).is_some_and(|there| there.starts_with(bytes))
    }

    /// What stands from a place of the log on, up to the end of the file.
    pub(super) fn rest_of_file(&self, phy: u64) -> Option<&[u8]> {
        let (start, at) = (phy / LOG_FILE_BYTES * LOG_FILE_BYTES, (phy % LOG_FILE_BYTES) as usize);
        match self.0.get(&Path::new("commitlog").join(format!("{start:020}")))? {
            Node::File(bytes) => bytes.get(at..),
            Node::Dir => None,
        }
    }

    /// Makes a directory of it. What has a file for a parent is left out.
    pub(super) fn write(&self, root: &Path) {
        fs::create_dir_all(root).expect("a directory can be made");
        for (path, node) in &self.0 {
            let path = root.join(path);
            let made = match node {
                Node::Dir => fs::create_dir_all(&path),
                Node::File(bytes) => {
                    let folder = fs::create_dir_all(path.parent().expect("below the root"));
                    folder.and_then(|()| fs::write(&path, bytes))
                }
            };
            made.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
}

impl AuditSource for Tree {
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = BTreeMap::new();
        for (path, node) in &self.0 {
            let Ok(below) = path.strip_prefix(dir) else { continue };
            let mut parts = below.components();
            if let Some(name) = parts.next() {
                let is_dir = parts.next().is_some() || *node == Node::Dir;
                entries.insert(name.as_os_str().to_string_lossy().into_owned(), is_dir);
            }
        }
        Ok(entries.into_iter().map(|(name, is_dir)| DirEntry { name, is_dir }).collect())
    }

    fn read(&self, file: &Path) -> io::Result<Content> {
        match self.0.get(file) {
            Some(Node::File(bytes)) => Ok(Content { len: bytes.len() as u64, bytes: Bytes::copy_from_slice(bytes) }),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}
