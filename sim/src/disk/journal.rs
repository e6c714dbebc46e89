//! Changes of names that are not durable yet, and what each stands on.
//!
//! One operation changes one directory entry, or two at once (a rename). After a power loss some operations survive.
//! Under [`Durability::Strict`](super::Durability) each is lost or kept alone, except that it cannot survive without
//! - the earlier changes of the same entries,
//! - the creation of the directory it happens in,
//! - if it moves a directory: the earlier moves of directories (or two of them could form a ring).

use std::collections::{BTreeMap, BTreeSet};

/// Number of an inode; never used twice on one disk.
pub(super) type Ino = u64;

/// One directory entry gets another inode, or goes away.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub dir: Ino,
    pub name: String,
    pub to: Option<Ino>,
}

/// What happens at once or not at all.
#[derive(Debug, Clone)]
pub(super) struct Op {
    pub seq: u64,
    pub changes: Vec<Change>,
    /// Moves a directory.
    pub moves_dir: bool,
    /// A file that took the place of another one.
    pub replaced_by: Option<Ino>,
}

impl Op {
    /// The inodes that must be kept while the operation is pending.
    pub(super) fn inodes(&self) -> impl Iterator<Item = Ino> {
        self.changes.iter().flat_map(|change| [Some(change.dir), change.to]).flatten()
    }

    fn spans_dirs(&self) -> bool {
        self.changes.iter().any(|change| change.dir != self.changes[0].dir)
    }
}

/// For each operation the earlier ones it stands on, by their indexes. `is_placed` tells which directories have a
/// durable name.
pub(super) fn supports(ops: &[Op], is_placed: impl Fn(Ino) -> bool) -> Vec<Support> {
    let mut entries: BTreeMap<(Ino, &str), usize> = BTreeMap::new();
    let mut placed: BTreeMap<Ino, usize> = BTreeMap::new();
    let mut moved = None;
    let mut supports = Vec::with_capacity(ops.len());
    for (index, op) in ops.iter().enumerate() {
        let mut support = Support::default();
        for change in &op.changes {
            support.ops.extend(entries.insert((change.dir, &change.name), index).filter(|&earlier| earlier != index));
            if !is_placed(change.dir) {
                support.parents.extend(placed.get(&change.dir).filter(|&&earlier| earlier != index));
            }
            if let Some(ino) = change.to {
                placed.entry(ino).or_insert(index);
            }
        }
        if op.moves_dir {
            support.ops.extend(moved.replace(index));
        }
        supports.push(support);
    }
    supports
}

/// What an operation stands on.
#[derive(Debug, Default)]
pub(super) struct Support {
    /// Operations without which it makes no sense.
    ops: Vec<usize>,
    /// Operations that created the directories it happens in.
    parents: Vec<usize>,
}

impl Support {
    pub(super) fn all_kept(&self, kept: &[bool]) -> bool {
        self.ops.iter().chain(&self.parents).all(|&index| kept[index])
    }
}

/// The operations that a flush of `dir` makes durable: all that touch it, and what they stand on.
///
/// The creation of a directory is not made durable by flushing what is inside, as POSIX has it; only where a rename
/// between directories would otherwise lose the old name without gaining the new one.
pub(super) fn flushed_by(ops: &[Op], dir: Ino, is_placed: impl Fn(Ino) -> bool) -> BTreeSet<usize> {
    let supports = supports(ops, is_placed);
    let mut flushed: BTreeSet<usize> = BTreeSet::new();
    for (index, op) in ops.iter().enumerate().rev() {
        if !flushed.contains(&index) && !op.changes.iter().any(|change| change.dir == dir) {
            continue;
        }
        flushed.insert(index);
        flushed.extend(&supports[index].ops);
        if op.spans_dirs() {
            flushed.extend(&supports[index].parents);
        }
    }
    flushed
}
