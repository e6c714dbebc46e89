//! Flushes that the power goes in.

use super::*;

const PAGES: usize = 8;

/// Flushes `dirty` pages of a file of [`PAGES`], with the power going in the middle. Tells for each page of the file
/// whether it is new afterwards.
fn torn(dirty: &[usize], survival: Survival, fault: u64) -> Vec<bool> {
    let mut bench = bench();
    let file = bench.durable("/log", &[1; PAGES * PAGE]);
    for page in dirty {
        file.write_at(&[2; PAGE], (page * PAGE) as u64).unwrap();
    }
    let wrong = DiskFault { path: "/log".to_owned(), error: DiskError::TornFlush, hits: ALWAYS };
    bench.disk.add_fault(fault, wrong);
    let mut sync = file.sync(true);
    // Once for the device, once for what it says.
    for _ in 0..3 {
        assert!(sync.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "nobody hears how it ended");
    }
    assert_eq!(*bench.clock.outages.lock().unwrap(), [fault]);
    bench.crash(fault, Some(survival));
    let left = bench.read("/log").unwrap();
    let new = left.chunks(PAGE).map(|page| {
        assert!(page == [1; PAGE] || page == [2; PAGE], "a page of a torn flush is whole");
        page == [2; PAGE]
    });
    new.collect()
}

#[test]
fn a_part_of_a_torn_flush_is_durable_and_a_part_is_not_whatever_else_survives() {
    let dirty = [0, 1, 2, 5, 7];
    for fault in 0..200 {
        let style = if fault % 2 == 0 { Survival::AllOld } else { Survival::AllNew };
        let new = torn(&dirty, style, fault);
        let count = new.iter().filter(|is_new| **is_new).count();
        assert!((1..dirty.len()).contains(&count), "{new:?}");
        assert!(new.iter().enumerate().all(|(page, is_new)| !is_new || dirty.contains(&page)));
        assert_eq!(new, torn(&dirty, Survival::Independent, fault), "the fault alone decides");
    }
}

#[test]
fn of_one_page_a_torn_flush_writes_that_page_and_of_two_either() {
    assert!(torn(&[3], Survival::AllOld, 1)[3]);
    let first = (0..200).filter(|fault| torn(&[3, 4], Survival::AllOld, *fault)[3]).count();
    // Three sigma of a fair coin.
    assert!(first.abs_diff(100) <= 21, "{first} of 200");
}

#[test]
fn each_page_of_a_torn_flush_has_an_even_chance_whatever_the_others_have() {
    const FLUSHES: u64 = 2_000;
    let all: Vec<usize> = (0..PAGES).collect();
    let mut counts = [0_u64; PAGES];
    for fault in 0..FLUSHES {
        let new = torn(&all, Survival::AllOld, fault);
        counts.iter_mut().zip(&new).for_each(|(count, is_new)| *count += u64::from(*is_new));
        let without_the_last = torn(&all[..PAGES - 1], Survival::AllOld, fault);
        // Neither all nor none but for one: these may have been mended.
        let as_drawn = |new: &[bool]| (2..PAGES - 2).contains(&new[..PAGES - 1].iter().filter(|new| **new).count());
        if as_drawn(&new) && as_drawn(&without_the_last) {
            assert_eq!(new[..PAGES - 1], without_the_last[..PAGES - 1], "fault {fault}");
        }
    }
    // Three sigma of a fair coin are 67; one in 128 flushes would be all or nothing, and is mended in one page.
    assert!(counts.iter().all(|count| count.abs_diff(FLUSHES / 2) <= 75), "{counts:?}");
}

#[test]
fn a_flush_with_nothing_to_write_is_not_torn() {
    let bench = bench();
    let file = bench.durable("/log", b"old");
    fail(&bench, DiskError::TornFlush, Hits::Nth(1));
    run(file.sync(true)).unwrap();
    file.write_at(b"new", 0).unwrap();
    bench.clock.now.store(31_000_000_000, Ordering::Relaxed);
    run(file.sync(true)).unwrap();
    assert!(bench.clock.outages.lock().unwrap().is_empty(), "write-back had written it");
}

#[test]
fn what_was_written_while_a_torn_flush_ran_is_decided_by_the_loss_of_power() {
    for fault in 0..50 {
        let mut bench = bench_with(|settings| settings.timing = Timing::Ssd);
        let file = bench.durable("/log", &[1; 2 * PAGE]);
        file.write_at(&[2; 2 * PAGE], 0).unwrap();
        bench.disk.add_fault(fault, DiskFault { path: "*".to_owned(), error: DiskError::TornFlush, hits: ALWAYS });
        let mut sync = file.sync(true);
        let mut poll = || sync.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending());
        file.write_at(&[3; 2 * PAGE], 0).unwrap();
        assert!(poll().is_pending() && bench.clock.outages.lock().unwrap().len() == 1);
        bench.crash(fault, Some(Survival::AllOld));
        let left = bench.read("/log").unwrap();
        let found = (left[0], left[PAGE]);
        assert!(found == (1, 2) || found == (2, 1), "{found:?}");
    }
}
