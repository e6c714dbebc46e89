//! `file-system` of a broker.

use crate::disk::Durability;

/// What the file system of a broker promises beyond flushed content (`spec/simulation.md` 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// One of the others, drawn from the seed.
    Any,
    /// That one.
    Is(Durability),
}

impl FileSystem {
    /// What a broker has if the file does not say: POSIX and no more.
    pub const DEFAULT: FileSystem = FileSystem::Is(Durability::Strict);

    /// All of them with their names in files.
    pub const NAMES: [(&'static str, FileSystem); 5] = [
        ("any", FileSystem::Any),
        ("strict", FileSystem::Is(Durability::Strict)),
        ("ordered-journal", FileSystem::Is(Durability::OrderedJournal)),
        ("delayed-alloc", FileSystem::Is(Durability::DelayedAlloc)),
        ("revert-on-error", FileSystem::Is(Durability::RevertOnError)),
    ];
}
