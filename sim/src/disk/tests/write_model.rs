//! Writes and flushes by enumeration: every outcome of a power loss that the contract allows is reached by some crash,
//! and none outside it by any (`spec/simulation.md` 10.3).

use std::collections::BTreeSet;

use super::*;

/// How many crashes of each case.
const CRASHES: u64 = 10_000;

/// Pages of the file.
const PAGES: usize = 3;

/// What every page holds in the beginning, durably. Write `n` of a case leaves `n`, counted from 1.
const FIRST: u8 = 0xf0;

/// One call, for the disk and for the model.
#[derive(Debug, Clone, Copy)]
enum Op {
    /// Stores to these pages, front to back, in one call.
    Write(usize, usize),
    /// The same through a mapping.
    Store(usize, usize),
    /// `fsync`.
    Flush,
    /// `msync` of one page.
    FlushPage(usize),
}

use Op::{Flush, FlushPage, Store, Write};

/// What is found in a page: all of one value, or sectors of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    All(u8),
    Torn { old: u8, new: u8 },
}

/// What may be found, page by page.
fn allowed(ops: &[Op]) -> BTreeSet<Vec<Found>> {
    let (mut durable, mut now) = ([FIRST; PAGES], [FIRST; PAGES]);
    let mut writes = 0;
    for op in ops {
        match *op {
            Write(from, to) | Store(from, to) => {
                writes += 1;
                now[from..to].fill(writes);
            }
            Flush => durable = now,
            FlushPage(page) => durable[page] = now[page],
        }
    }
    let mut outcomes = BTreeSet::from([Vec::new()]);
    for (old, new) in durable.into_iter().zip(now) {
        let choices = if old == new {
            vec![Found::All(old)]
        } else {
            vec![Found::All(old), Found::All(new), Found::Torn { old, new }]
        };
        let longer =
            |outcome: Vec<Found>| choices.clone().into_iter().map(move |found| [&outcome[..], &[found]].concat());
        outcomes = outcomes.into_iter().flat_map(longer).collect();
    }
    outcomes
}

/// Sectors of a page, each by its value.
fn sectors(page: &[u8]) -> Vec<u8> {
    let value = |sector: &[u8]| {
        assert!(sector.iter().all(|byte| *byte == sector[0]), "torn inside a sector");
        sector[0]
    };
    page.chunks(512).map(value).collect()
}

/// Carries the calls out, loses the power, and gives the sectors of each page.
fn crashed(ops: &[Op], durability: Durability, crash: u64) -> Vec<Vec<u8>> {
    let mut bench = bench_with(|settings| settings.durability = durability);
    let file = bench.durable("/f", &[FIRST; PAGES * PAGE]);
    let mapping = run(file.map((PAGES * PAGE) as u64)).unwrap();
    let mut writes = 0;
    for op in ops {
        match *op {
            Write(from, to) => {
                writes += 1;
                file.write_at(&vec![writes; (to - from) * PAGE], (from * PAGE) as u64).unwrap();
            }
            Store(from, to) => {
                writes += 1;
                mapping.write((from * PAGE) as u64, &vec![writes; (to - from) * PAGE]);
            }
            Flush => run(file.sync(true)).unwrap(),
            FlushPage(page) => run(mapping.sync((page * PAGE) as u64, ((page + 1) * PAGE) as u64)).unwrap(),
        }
    }
    bench.crash(crash, None);
    bench.read("/f").unwrap().chunks(PAGE).map(sectors).collect()
}

/// The page of an outcome. Whatever is torn holds the durable value and the last one, which is the greater write.
fn found(sectors: &[u8]) -> Found {
    let values: BTreeSet<u8> = sectors.iter().copied().collect();
    match *values.into_iter().collect::<Vec<u8>>() {
        [one] => Found::All(one),
        [new, FIRST] => Found::Torn { old: FIRST, new },
        [old, new] => Found::Torn { old, new },
        ref more => panic!("{more:?} in one page"),
    }
}

#[track_caller]
fn check(ops: &[Op]) {
    for durability in [Durability::Strict, Durability::OrderedJournal] {
        let outcome = |crash| crashed(ops, durability, crash).iter().map(|page| found(page)).collect::<Vec<Found>>();
        let reached: BTreeSet<Vec<Found>> = (0..CRASHES).map(outcome).collect();
        let allowed = allowed(ops);
        let outside: Vec<_> = reached.difference(&allowed).collect();
        assert!(outside.is_empty(), "not allowed after {ops:?} under {durability:?}: {outside:?}");
        let missed: Vec<_> = allowed.difference(&reached).collect();
        assert!(missed.is_empty(), "never reached after {ops:?} under {durability:?}: {missed:?}");
    }
}

#[test]
fn without_a_flush_every_page_is_old_new_or_torn() {
    check(&[Write(0, 1)]);
    check(&[Write(0, 1), Store(1, 2)]);
    check(&[Write(0, 3)]);
}

#[test]
fn of_several_writes_to_a_page_only_the_last_can_be_found() {
    check(&[Write(0, 1), Write(0, 1), Store(0, 1), Write(0, 1)]);
    check(&[Write(0, 2), Store(1, 3), Write(0, 1), Write(2, 3)]);
}

#[test]
fn a_flush_separates_what_stays_from_what_may_go() {
    check(&[Write(0, 2), Flush]);
    check(&[Write(0, 2), Flush, Store(1, 3)]);
    check(&[Write(0, 1), Flush, Write(0, 1), Flush, Write(0, 1), Store(2, 3)]);
    check(&[Flush, Write(0, 1), Flush]);
}

#[test]
fn a_flush_of_one_page_leaves_the_others_open() {
    check(&[Write(0, 3), FlushPage(1)]);
    check(&[Store(0, 2), FlushPage(0), Store(0, 2), FlushPage(1)]);
    check(&[Write(0, 1), FlushPage(1), Store(1, 2), FlushPage(0), Write(0, 2)]);
}

#[test]
fn a_torn_page_is_split_at_every_sector_from_both_sides() {
    let mut splits = BTreeSet::new();
    for crash in 0..CRASHES {
        let page = crashed(&[Write(0, 1)], Durability::Strict, crash).swap_remove(0);
        let changes: Vec<usize> = (1..page.len()).filter(|&at| page[at] != page[at - 1]).collect();
        if let [at] = changes[..] {
            splits.insert((at, page[0] == FIRST));
        }
    }
    assert_eq!(splits, (1..8).flat_map(|at| [(at, false), (at, true)]).collect());
}
