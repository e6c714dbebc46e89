//! What comes up on a device in place of what did not survive.

use std::collections::BTreeSet;

use super::*;
use crate::disk::Outage;

fn outage(survival: Survival) -> Outage {
    Outage { survival: Some(survival), garbage: true }
}

/// A disk on which files with these bytes were deleted.
fn bench_after(deleted: &[u8]) -> Bench {
    let bench = bench();
    for byte in deleted {
        drop(bench.durable("/gone", &[*byte; PAGE]));
        run(bench.handle.remove_file("/gone".into())).unwrap();
        bench.sync_dir("/");
    }
    bench
}

/// The first byte of every page of a file, all of whose bytes are equal.
fn pages(bench: &Bench, path: &str) -> Vec<u8> {
    let content = bench.read(path).unwrap();
    let first = |page: &[u8]| {
        assert!(page.iter().all(|byte| *byte == page[0]), "a page of one file");
        page[0]
    };
    content.chunks(PAGE).map(first).collect()
}

#[test]
fn what_did_not_survive_reads_bytes_of_deleted_files_and_the_rest_as_ever() {
    let bench = bench_after(&[7, 8]);
    let file = bench.durable("/log", &[1; PAGE]);
    run(file.set_len(4 * PAGE as u64)).unwrap();
    run(file.sync(true)).unwrap();
    file.write_at(&[2; 2 * PAGE], 0).unwrap();
    let report = bench.disk.power_loss(0, 1, outage(Survival::AllOld));
    let found = pages(&bench, "/log");
    assert_eq!((found[0], &found[2..]), (1, &[0, 0][..]), "what was flushed stays, what was never written is zeros");
    assert!([7, 8].contains(&found[1]), "{found:?}");
    assert_eq!((report.lost_pages, report.garbage_pages), (2, 1));
}

#[test]
fn what_survives_and_what_no_file_was_deleted_for_is_not_garbage() {
    for (deleted, survival, expected) in [(&[7][..], Survival::AllNew, 2), (&[], Survival::AllOld, 0)] {
        let bench = bench_after(deleted);
        let file = bench.durable("/log", b"");
        run(file.set_len(PAGE as u64)).unwrap();
        run(file.sync(true)).unwrap();
        file.write_at(&[2; PAGE], 0).unwrap();
        let report = bench.disk.power_loss(0, 1, outage(survival));
        assert_eq!((pages(&bench, "/log")[0], report.garbage_pages), (expected, 0));
    }
}

#[test]
fn a_torn_page_is_a_mixture_of_what_was_written_and_garbage() {
    let mut mixtures = 0;
    for crash in 0..200 {
        let bench = bench_after(&[7]);
        let file = bench.durable("/log", b"");
        run(file.set_len(PAGE as u64)).unwrap();
        run(file.sync(true)).unwrap();
        file.write_at(&[2; PAGE], 0).unwrap();
        let report = bench.disk.power_loss(0, crash, outage(Survival::Independent));
        let left = bench.read("/log").unwrap();
        assert!(left.iter().all(|byte| [2, 7].contains(byte)));
        assert_eq!(report.garbage_pages > 0, left.contains(&7));
        mixtures += u32::from(left.contains(&2) && left.contains(&7));
    }
    // Half of the pages are lost, a quarter of these torn: three sigma of 25 are 14.
    assert!(mixtures.abs_diff(25) <= 14, "{mixtures} of 200");
}

#[test]
fn each_page_has_garbage_of_its_own_and_each_deleted_file_gets_its_turn() {
    const PAGES: u64 = 3_000;
    let bench = bench_after(&[7, 8, 9]);
    let file = bench.durable("/log", b"");
    run(file.set_len(PAGES * PAGE as u64)).unwrap();
    run(file.sync(true)).unwrap();
    for page in 0..PAGES {
        file.write_at(&[2; PAGE], page * PAGE as u64).unwrap();
    }
    bench.disk.power_loss(0, 1, outage(Survival::AllOld));
    let found = pages(&bench, "/log");
    assert_eq!(found.iter().copied().collect::<BTreeSet<u8>>(), BTreeSet::from([7, 8, 9]));
    for byte in [7, 8, 9] {
        let count = found.iter().filter(|other| **other == byte).count();
        // Three sigma of a third of 3,000 are 77.
        assert!(count.abs_diff(1_000) <= 77, "{count} of {PAGES}");
    }
}
