//! The crash model by enumeration: for small cases every outcome that the contract allows is reached by some crash, and
//! none outside it by any (`spec/simulation.md` 10.3).

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const CRASHES: u64 = 4_000;

/// What a crash can leave of a page that held one repeated byte before and after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Old,
    New,
    Torn,
}

fn fate(page: &[u8], old: u8, new: u8) -> Fate {
    let sectors: Vec<u8> = page
        .chunks(512)
        .map(|sector| {
            assert!(sector.iter().all(|&byte| byte == sector[0]), "torn inside a sector");
            sector[0]
        })
        .collect();
    assert!(sectors.iter().all(|&byte| byte == old || byte == new), "{sectors:?} instead of {old} or {new}");
    match (sectors.contains(&old), sectors.contains(&new)) {
        (true, false) => Fate::Old,
        (false, true) => Fate::New,
        _ => Fate::Torn,
    }
}

#[test]
fn two_dirty_pages_have_all_nine_fates_and_the_flushed_one_has_none() {
    let mut seen = BTreeSet::new();
    let mut torn = BTreeSet::new();
    for crash in 0..CRASHES {
        let mut bench = bench();
        let file = bench.durable("/f", &[1; 3 * PAGE]);
        file.write_at(&[2; PAGE], 0).unwrap();
        run(file.sync(true)).unwrap();
        // Written twice: the version between cannot be found, since nothing wrote it back.
        file.write_at(&[3; PAGE], PAGE as u64).unwrap();
        file.write_at(&[4; PAGE], PAGE as u64).unwrap();
        file.write_at(&[5; PAGE], 2 * PAGE as u64).unwrap();
        let report = bench.crash(crash, None);
        let left = bench.read("/f").unwrap();
        assert_eq!(left.len(), 3 * PAGE);
        assert_eq!(left[..PAGE], [2; PAGE], "flushed");
        let fates = (fate(&left[PAGE..2 * PAGE], 1, 4), fate(&left[2 * PAGE..], 1, 5));
        let count = |wanted| u64::from(fates.0 == wanted) + u64::from(fates.1 == wanted);
        assert_eq!(
            (report.dirty_pages, report.lost_pages, report.torn_pages),
            (2, count(Fate::Old), count(Fate::Torn))
        );
        torn.insert(left[PAGE..2 * PAGE].chunks(512).map(|sector| sector[0]).collect::<Vec<u8>>());
        seen.insert(fates);
    }
    assert_eq!(seen.len(), 9, "{seen:?}");
    assert!(torn.len() > 60, "only {} of 256 mixtures of sectors", torn.len());
}

#[test]
fn a_length_is_found_at_every_value_that_was_set() {
    let mut seen = BTreeSet::new();
    let mut between = 0;
    for crash in 0..CRASHES {
        let mut bench = bench();
        let file = bench.durable("/f", &[1; 100]);
        run(file.set_len(3 * PAGE as u64)).unwrap();
        run(file.set_len(50)).unwrap();
        file.write_at(&[1; 100], 50).unwrap();
        bench.crash(crash, None);
        match bench.read("/f").unwrap().len() {
            len if [50, 100, 150, 3 * PAGE].contains(&len) => {
                seen.insert(len);
            }
            len => {
                assert!((50..150).contains(&len), "{len} was never set");
                between += 1;
            }
        }
    }
    assert_eq!(seen, BTreeSet::from([50, 100, 150, 3 * PAGE]));
    assert!(between > 0, "a write that grows a file can be cut anywhere");
}

/// One change of names, for the disk and for the model.
#[derive(Debug, Clone, Copy)]
enum Op {
    Create(&'static str),
    Remove(&'static str),
    Rename(&'static str, &'static str),
    Link(&'static str, &'static str),
    Mkdir(&'static str),
    SyncDir(&'static str),
}

/// What stands under each name: a file by its number, 0 for a directory.
type Tree = BTreeMap<String, u8>;

/// All trees that may be found after a crash, by trying every subset of the changes that were not flushed.
///
/// Each change lists the names it needs: its own, and those of its directories. A subset counts if every change in it
/// is there together with the earlier changes of its own names and the creation of its directories.
fn allowed(ops: &[Op]) -> BTreeSet<Tree> {
    type Change = Vec<(String, Option<u8>)>;
    let mut steps: Vec<(Change, bool)> = Vec::new();
    let mut now = Tree::new();
    for (number, &op) in ops.iter().enumerate() {
        let file = number as u8 + 1;
        let change: Change = match op {
            Op::Create(name) => vec![(name.into(), Some(file))],
            Op::Mkdir(name) => vec![(name.into(), Some(0))],
            Op::Remove(name) => vec![(name.into(), None)],
            Op::Rename(from, to) => vec![(from.into(), None), (to.into(), now.get(from).copied())],
            Op::Link(from, to) => vec![(to.into(), now.get(from).copied())],
            Op::SyncDir(dir) => {
                for (change, flushed) in &mut steps {
                    *flushed |= change.iter().any(|(name, _)| parent(name) == dir);
                }
                continue;
            }
        };
        for (name, to) in &change {
            match to {
                Some(file) => drop(now.insert(name.clone(), *file)),
                None => drop(now.remove(name)),
            }
        }
        steps.push((change, false));
    }
    let mut trees = BTreeSet::new();
    for subset in 0_u32..1 << steps.len() {
        let chosen = |index: usize| subset >> index & 1 == 1;
        let legal = (0..steps.len()).all(|index| {
            let (change, flushed) = &steps[index];
            if !chosen(index) {
                return !flushed;
            }
            (0..index).all(|earlier| {
                let needed = steps[earlier].0.iter().any(|(name, to)| {
                    change.iter().any(|(own, _)| own == name || parent(own) == name && *to == Some(0))
                });
                // A flushed change may lie in a directory that is lost: it is then lost with it.
                chosen(earlier) || !needed || *flushed
            })
        });
        if legal {
            let mut tree = Tree::new();
            for (change, _) in steps.iter().enumerate().filter(|&(index, _)| chosen(index)).map(|(_, step)| step) {
                for (name, to) in change {
                    match to {
                        Some(file) => drop(tree.insert(name.clone(), *file)),
                        None => drop(tree.remove(name)),
                    }
                }
            }
            let names: Vec<String> = tree.keys().cloned().collect();
            for name in names {
                if parent(&name) != "/" && !tree.contains_key(parent(&name)) {
                    tree.remove(&name);
                }
            }
            trees.insert(tree);
        }
    }
    trees
}

fn parent(name: &str) -> &str {
    match name.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    }
}

fn reached(ops: &[Op]) -> BTreeSet<Tree> {
    let mut trees = BTreeSet::new();
    for crash in 0..CRASHES {
        let mut bench = bench();
        for (number, &op) in ops.iter().enumerate() {
            match op {
                Op::Create(name) => {
                    let file = bench.create(name, &[number as u8 + 1]);
                    run(file.sync(false)).unwrap();
                }
                Op::Mkdir(name) => run(bench.handle.create_dir_all(name.into())).unwrap(),
                Op::Remove(name) => run(bench.handle.remove_file(name.into())).unwrap(),
                Op::Rename(from, to) => run(bench.handle.rename(from.into(), to.into())).unwrap(),
                Op::Link(from, to) => run(bench.handle.hard_link(from.into(), to.into())).unwrap(),
                Op::SyncDir(dir) => bench.sync_dir(dir),
            }
        }
        bench.crash(crash, None);
        let image = bench.disk.image();
        let mut tree = Tree::new();
        for (path, content) in image.files() {
            tree.insert(path.to_str().unwrap().to_owned(), content[0]);
        }
        for path in image.dirs().filter(|path| *path != Path::new("/")) {
            tree.insert(path.to_str().unwrap().to_owned(), 0);
        }
        trees.insert(tree);
    }
    trees
}

#[track_caller]
fn check(ops: &[Op]) {
    let (allowed, reached) = (allowed(ops), reached(ops));
    let outside: Vec<&Tree> = reached.difference(&allowed).collect();
    assert!(outside.is_empty(), "not allowed after {ops:?}: {outside:?}");
    let missed: Vec<&Tree> = allowed.difference(&reached).collect();
    assert!(missed.is_empty(), "never reached after {ops:?}: {missed:?}");
}

#[test]
fn unflushed_creations_are_lost_or_kept_alone() {
    check(&[Op::Create("/a"), Op::Create("/b"), Op::Create("/c")]);
}

#[test]
fn a_flushed_directory_keeps_its_names_and_later_ones_may_go() {
    check(&[Op::Create("/a"), Op::SyncDir("/"), Op::Create("/b"), Op::Remove("/a")]);
}

#[test]
fn a_rename_happens_as_a_whole_or_not_at_all() {
    check(&[Op::Create("/a"), Op::SyncDir("/"), Op::Rename("/a", "/b")]);
}

#[test]
fn a_rename_over_a_file_leaves_the_old_one_or_the_new_one() {
    let ops = [Op::Create("/a"), Op::SyncDir("/"), Op::Create("/t"), Op::Rename("/t", "/a")];
    check(&ops);
    assert!(reached(&ops).iter().all(|tree| tree.contains_key("/a")), "never neither");
}

#[test]
fn two_renames_in_a_row_keep_their_order_per_name() {
    check(&[Op::Create("/a"), Op::SyncDir("/"), Op::Rename("/a", "/a.bak"), Op::Create("/t"), Op::Rename("/t", "/a")]);
}

#[test]
fn a_link_and_its_original_go_their_own_ways() {
    check(&[Op::Create("/a"), Op::SyncDir("/"), Op::Link("/a", "/b"), Op::Remove("/a")]);
}

#[test]
fn nothing_survives_without_its_directory() {
    check(&[Op::Mkdir("/d"), Op::Create("/d/a"), Op::Create("/d/b")]);
    check(&[Op::Mkdir("/d"), Op::Create("/d/a"), Op::SyncDir("/d"), Op::Create("/b")]);
    check(&[Op::Mkdir("/d"), Op::SyncDir("/"), Op::Create("/d/a"), Op::SyncDir("/d"), Op::Create("/d/b")]);
}

#[test]
fn a_rename_between_directories_never_loses_both_names() {
    let ops = [Op::Create("/a"), Op::SyncDir("/"), Op::Mkdir("/d"), Op::Rename("/a", "/d/a")];
    check(&ops);
    let has_it = |tree: &Tree| tree.values().any(|&file| file == 1);
    assert!(reached(&ops).iter().all(has_it));
    let flushed = [&ops[..], &[Op::SyncDir("/d")]].concat();
    assert!(reached(&flushed).iter().all(has_it), "also when only the new directory was flushed");
}

#[test]
fn two_renames_that_pass_a_name_on_keep_their_order() {
    let ops = [Op::Create("/a"), Op::Create("/b"), Op::SyncDir("/"), Op::Rename("/a", "/c"), Op::Rename("/b", "/a")];
    check(&ops);
    assert!(reached(&ops).iter().all(|tree| tree.values().any(|&file| file == 1)), "the first file has a name");
}

#[test]
fn an_ordered_journal_keeps_a_prefix() {
    let mut seen = BTreeSet::new();
    for crash in 0..CRASHES {
        let mut bench = bench_with(|settings| settings.durability = Durability::OrderedJournal);
        for name in ["/a", "/b", "/c"] {
            bench.create(name, b"x");
        }
        bench.crash(crash, None);
        seen.insert(bench.disk.image().files().count());
        let names: Vec<String> = bench.disk.image().files().map(|(path, _)| path.display().to_string()).collect();
        assert_eq!(names, ["/a", "/b", "/c"][..names.len()]);
    }
    assert_eq!(seen, BTreeSet::from([0, 1, 2, 3]));
}
