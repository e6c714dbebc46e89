//! The disk by itself, without a machine. What it shares with a real file system is tested by the conformance suite.

mod crash_model;
mod file_model;
mod garbage;
mod torn_flushes;
mod write_model;

use std::{
    io,
    path::Path,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use host::{
    fs::OpenOptions,
    machine::{BoxFuture, RawFile},
};

use super::{
    CrashReport, Disk, DiskError, DiskFault, DiskHandle, DiskSettings, Durability, Hits, Media, Surroundings, Survival,
    Timing, errno,
};
use crate::seed::Seed;

const PAGE: usize = 4096;
const MIB: u64 = 1 << 20;

/// A clock that stands still, or jumps when somebody waits.
#[derive(Default)]
struct Clock {
    now: AtomicU64,
    deaths: Mutex<Vec<String>>,
    /// Faults that took the power.
    outages: Mutex<Vec<u64>>,
    /// What went wrong, reads, writes and flushes aside.
    failures: Mutex<Vec<DiskError>>,
}

impl Surroundings for Clock {
    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn sleep_until(&self, at: u64) -> BoxFuture<()> {
        self.now.fetch_max(at, Ordering::Relaxed);
        // Pending once, so that a test can act while a request is under way.
        let mut slept = false;
        Box::pin(std::future::poll_fn(move |_| {
            if std::mem::replace(&mut slept, true) { Poll::Ready(()) } else { Poll::Pending }
        }))
    }

    fn wall_ms(&self) -> i64 {
        1_000
    }

    fn failed(&self, error: DiskError, _: &Path, _: Option<u64>) {
        if !matches!(error, DiskError::Read | DiskError::Write | DiskError::Flush) {
            self.failures.lock().unwrap().push(error);
        }
    }

    fn lose_power(&self, key: u64) {
        self.outages.lock().unwrap().push(key);
    }

    fn die(&self, reason: &str) {
        self.deaths.lock().unwrap().push(reason.to_owned());
    }
}

/// A disk with one life on it.
struct Bench {
    disk: Disk,
    handle: DiskHandle,
    clock: Arc<Clock>,
}

fn bench_with(change: impl FnOnce(&mut DiskSettings)) -> Bench {
    let mut settings = DiskSettings::new(Seed(7), 0, 64 * MIB);
    settings.timing = Timing::Instant;
    change(&mut settings);
    let disk = Disk::new(settings);
    let clock = Arc::new(Clock::default());
    let handle = disk.attach(clock.clone());
    Bench { disk, handle, clock }
}

fn bench() -> Bench {
    bench_with(|_| {})
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
}

impl Bench {
    fn open(&self, path: &str, options: OpenOptions) -> io::Result<Box<dyn RawFile>> {
        run(self.handle.open(path.into(), options))
    }

    fn create(&self, path: &str, content: &[u8]) -> Box<dyn RawFile> {
        let file = self.open(path, OpenOptions::CREATE).unwrap();
        assert_eq!(file.write_at(content, 0).unwrap(), content.len());
        file
    }

    /// Creates a file that survives everything.
    fn durable(&self, path: &str, content: &[u8]) -> Box<dyn RawFile> {
        let file = self.create(path, content);
        run(file.sync(false)).unwrap();
        self.sync_dir("/");
        file
    }

    fn sync_dir(&self, path: &str) {
        run(self.handle.sync_dir(path.into())).unwrap();
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.disk.image().read(path).map(<[u8]>::to_vec)
    }

    fn crash(&mut self, crash: u64, survival: Option<Survival>) -> CrashReport {
        let report = self.disk.power_loss(self.clock.now(), crash, survival);
        self.handle = self.disk.attach(self.clock.clone());
        report
    }
}

#[test]
fn a_kill_keeps_what_was_written_and_cuts_off_the_dead() {
    let mut bench = bench();
    let file = bench.create("/log", b"written");
    let mapping = run(file.map(4)).unwrap();
    mapping.write(0, b"WR");
    bench.disk.kill();
    mapping.write(0, b"no");
    assert!(file.write_at(b"no", 0).is_err());
    assert!(file.len().is_err());
    assert!(run(file.sync(false)).is_err());
    assert!(run(mapping.sync(0, 4)).is_err());
    assert!(run(bench.handle.remove_file("/log".into())).is_err());
    bench.handle = bench.disk.attach(bench.clock.clone());
    assert_eq!(bench.read("/log").unwrap(), b"WRitten");
    drop((file, mapping));
    assert_eq!(bench.read("/log").unwrap(), b"WRitten", "destructors of a dead life do nothing");
}

#[test]
fn a_lock_is_freed_by_closing_and_by_death() {
    let mut bench = bench();
    let first = bench.create("/lock", b"");
    let second = bench.open("/lock", OpenOptions::WRITE).unwrap();
    assert!(first.try_lock().unwrap());
    assert!(first.try_lock().unwrap(), "it holds it already");
    assert!(!second.try_lock().unwrap());
    drop(first);
    assert!(second.try_lock().unwrap());
    bench.disk.kill();
    bench.handle = bench.disk.attach(bench.clock.clone());
    let third = bench.open("/lock", OpenOptions::WRITE).unwrap();
    assert!(third.try_lock().unwrap());
    drop(second);
    let fourth = bench.open("/lock", OpenOptions::WRITE).unwrap();
    assert!(!fourth.try_lock().unwrap(), "a dead handle does not free the lock of a new life");
}

#[test]
fn flushed_bytes_survive_every_crash_and_unflushed_names_do_not_survive_the_worst() {
    let mut bench = bench();
    bench.durable("/kept", b"flushed");
    let unnamed = bench.create("/unnamed", b"flushed too");
    run(unnamed.sync(false)).unwrap();
    bench.crash(1, Some(Survival::AllOld));
    assert_eq!(bench.read("/kept").unwrap(), b"flushed");
    assert!(bench.read("/unnamed").is_err(), "its directory was never flushed");
}

#[test]
fn an_unflushed_file_in_a_flushed_directory_is_empty_after_the_worst_crash() {
    let mut bench = bench();
    bench.create("/new", b"content");
    bench.sync_dir("/");
    bench.crash(1, Some(Survival::AllOld));
    assert_eq!(bench.read("/new").unwrap(), b"");
}

#[test]
fn a_flush_promises_what_was_written_before_it_began() {
    let mut bench = bench_with(|settings| settings.timing = Timing::Ssd);
    let file = bench.durable("/log", &[1; 2 * PAGE]);
    file.write_at(&[2; PAGE], 0).unwrap();
    let mut sync = file.sync(true);
    assert!(sync.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    file.write_at(&[3; 2 * PAGE], 0).unwrap();
    file.write_at(&[4; PAGE], 0).unwrap();
    run(sync).unwrap();
    assert_eq!(bench.read("/log").unwrap()[..PAGE], [4; PAGE]);
    bench.crash(1, Some(Survival::AllOld));
    let left = bench.read("/log").unwrap();
    assert_eq!(left[..PAGE], [2; PAGE], "written before the flush began");
    assert_eq!(left[PAGE..], [1; PAGE], "written while it ran");
}

#[test]
fn a_flush_that_was_given_up_promises_nothing() {
    let mut bench = bench_with(|settings| settings.timing = Timing::Ssd);
    let file = bench.durable("/log", b"old");
    file.write_at(b"new", 0).unwrap();
    let mut sync = file.sync(true);
    assert!(sync.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(sync);
    bench.crash(1, Some(Survival::AllOld));
    assert_eq!(bench.read("/log").unwrap(), b"old");
}

#[test]
fn a_flush_of_a_range_leaves_the_rest_dirty() {
    let mut bench = bench();
    let file = bench.create("/log", &[0; 4 * PAGE]);
    run(file.sync(false)).unwrap();
    bench.sync_dir("/");
    let mapping = run(file.map(4 * PAGE as u64)).unwrap();
    for page in 0..4 {
        mapping.write(page * PAGE as u64 + 7, &[9]);
    }
    run(mapping.sync(PAGE as u64 + 1, 2 * PAGE as u64 + 1)).unwrap();
    let report = bench.crash(1, Some(Survival::AllOld));
    assert_eq!((report.dirty_pages, report.lost_pages), (2, 2));
    let left = bench.read("/log").unwrap();
    let found: Vec<u8> = (0..4).map(|page| left[page * PAGE + 7]).collect();
    assert_eq!(found, [0, 9, 9, 0]);
}

#[test]
fn a_dirty_page_is_written_back_by_itself_after_a_while() {
    let mut bench = bench();
    let file = bench.durable("/log", b"first");
    file.write_at(b"later", 0).unwrap();
    bench.clock.now.store(30_000_000_000, Ordering::Relaxed);
    file.write_at(b"never", 0).unwrap();
    bench.crash(1, Some(Survival::AllOld));
    assert_eq!(bench.read("/log").unwrap(), b"later", "the version between two writes is reachable");
}

#[test]
fn bytes_handed_out_stay_as_they_were_whatever_happens() {
    let mut bench = bench();
    let file = bench.durable("/log", &[5; 2 * PAGE]);
    let mapping = run(file.map(2 * PAGE as u64)).unwrap();
    mapping.write(0, &[6; PAGE]);
    let held = mapping.slice(0, PAGE as u64);
    let rewound = run(mapping.rewind(10)).unwrap();
    rewound.write(10, &[7; 100]);
    let held_later = rewound.slice(0, 110);
    run(bench.handle.remove_file("/log".into())).unwrap();
    bench.crash(1, Some(Survival::AllOld));
    assert_eq!(held[..], [6; PAGE]);
    assert_eq!(held_later[10..], [7; 100]);
    let left = bench.read("/log").unwrap();
    assert_eq!(left[..10], [6; 10], "the rewound body was durable");
    assert!(left[10..].iter().all(|&byte| byte == 0));
    assert_eq!(left.len(), 2 * PAGE);
    let file = bench.open("/log", OpenOptions::WRITE).unwrap();
    let mapping = run(file.map(2 * PAGE as u64)).unwrap();
    mapping.write(0, &[8; PAGE]);
    assert_eq!(held[..], [6; PAGE], "a new life maps other memory");
}

#[test]
fn a_crash_in_a_rewind_leaves_the_old_body_or_the_new_one() {
    let mut seen = [false; 3];
    for crash in 0..100 {
        for steps in 1..4 {
            let mut bench = bench_with(|settings| settings.timing = Timing::Ssd);
            let file = bench.durable("/log", &[5; 2 * PAGE]);
            let mapping = run(file.map(2 * PAGE as u64)).unwrap();
            let mut rewind = mapping.rewind(10);
            let mut ended = false;
            for _ in 0..steps {
                ended = ended || rewind.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
            }
            drop(rewind);
            bench.crash(crash, None);
            let left = bench.read("/log").unwrap();
            let rewound = left[10..].iter().all(|&byte| byte == 0);
            assert!(left[..10] == [5; 10] && left.len() == 2 * PAGE);
            assert!(rewound || left[10..].iter().all(|&byte| byte == 5));
            assert!(rewound || !ended);
            seen[usize::from(rewound)] = true;
            seen[2] |= bench.read("/log.rewind").is_ok();
        }
    }
    assert_eq!(seen, [true; 3], "old, new, and a file left beside it");
}

#[test]
fn a_file_that_lost_its_name_lives_until_the_last_mapping_goes() {
    let bench = bench();
    let file = bench.create("/log", &[1; PAGE]);
    let mapping = run(file.map(PAGE as u64)).unwrap();
    drop(file);
    run(bench.handle.remove_file("/log".into())).unwrap();
    let (used, _) = bench.disk.usage();
    mapping.write(0, b"still here");
    mapping.with(0, 10, &mut |bytes| assert_eq!(bytes, b"still here"));
    drop(mapping);
    assert_eq!(bench.disk.usage().0, used - PAGE as u64);
}

#[test]
fn a_file_cut_and_grown_again_reads_zeros_in_between() {
    let bench = bench();
    let file = bench.create("/f", &[3; 3 * PAGE]);
    run(file.set_len(100)).unwrap();
    run(file.set_len(2 * PAGE as u64)).unwrap();
    let content = bench.read("/f").unwrap();
    assert_eq!(content[..100], [3; 100]);
    assert!(content[100..].iter().all(|&byte| byte == 0));
}

#[test]
fn a_mapped_file_is_never_shortened() {
    let bench = bench();
    let file = bench.create("/f", &[3; PAGE]);
    let mapping = run(file.map(PAGE as u64)).unwrap();
    assert_eq!(run(file.set_len(0)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    drop(mapping);
    run(file.set_len(0)).unwrap();
}

#[test]
fn a_full_device_refuses_writes_creation_and_reservation() {
    let bench = bench_with(|settings| settings.capacity_bytes = 8 * PAGE as u64);
    let file = bench.create("/f", &[1; 4 * PAGE]);
    assert_eq!(run(file.allocate(64 * PAGE as u64)).unwrap_err().kind(), io::ErrorKind::StorageFull);
    let written = file.write_at(&[2; 8 * PAGE], 4 * PAGE as u64).unwrap();
    assert_eq!(written, 3 * PAGE, "as much as fits; the journal takes a little too");
    assert_eq!(file.write_at(&[2], 7 * PAGE as u64).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(file.write_at(&[9; PAGE], 0).unwrap(), PAGE, "blocks that are there can be written");
    assert_eq!(bench.open("/g", OpenOptions::CREATE).err().unwrap().kind(), io::ErrorKind::StorageFull);
    assert_eq!(run(bench.handle.create_dir_all("/d".into())).unwrap_err().kind(), io::ErrorKind::StorageFull);
    run(bench.handle.remove_file("/f".into())).unwrap();
    drop(file);
    bench.open("/g", OpenOptions::CREATE).unwrap();
}

#[test]
fn reserved_blocks_cannot_run_out() {
    let bench = bench();
    let file = bench.create("/f", b"");
    run(file.allocate(16 * PAGE as u64)).unwrap();
    assert_eq!(file.len().unwrap(), 16 * PAGE as u64);
    let mapping = run(file.map(16 * PAGE as u64)).unwrap();
    bench.disk.fill_percent(100);
    assert_eq!(bench.handle.space(Path::new("/f")).unwrap().available, 0);
    mapping.write(15 * PAGE as u64, b"fits");
    assert!(bench.clock.deaths.lock().unwrap().is_empty());
}

#[test]
fn a_mapped_store_to_a_hole_of_a_full_device_kills_the_process() {
    let bench = bench();
    let file = bench.create("/f", b"");
    run(file.set_len(16 * PAGE as u64)).unwrap();
    let mapping = run(file.map(16 * PAGE as u64)).unwrap();
    bench.disk.fill_percent(100);
    mapping.write(0, b"no room");
    let deaths = bench.clock.deaths.lock().unwrap();
    assert_eq!(deaths.as_slice(), ["SIGBUS: no space for a mapped store to /f"]);
}

#[test]
fn ballast_fills_to_a_percentage_and_goes_away() {
    let bench = bench();
    bench.create("/f", &[1; 100 * PAGE]);
    bench.disk.fill_percent(85);
    let (used, total) = bench.disk.usage();
    assert_eq!(used * 100 / total, 85 - 1, "rounded down");
    assert!(total * 85 / 100 - used < PAGE as u64);
    bench.disk.fill_percent(0);
    assert!(bench.disk.usage().0 < 102 * PAGE as u64);
}

#[test]
fn a_sparse_file_costs_only_what_was_written() {
    const GIB: u64 = 1 << 30;
    let bench = bench_with(|settings| settings.capacity_bytes = 4 * GIB);
    let file = bench.create("/log", b"");
    run(file.allocate(GIB)).unwrap();
    let mapping = run(file.map(GIB)).unwrap();
    for at in [0, GIB / 2, GIB - 4] {
        mapping.write(at, b"here");
    }
    run(mapping.sync(0, GIB)).unwrap();
    assert_eq!(bench.disk.counters().pages_flushed, 3);
    assert!(bench.disk.usage().0 >= GIB, "reserved is used");
    let hole = bench.create("/hole", b"");
    assert_eq!(hole.write_at(b"end", GIB * 100).unwrap(), 3);
    assert!(bench.disk.usage().0 < GIB + 10 * PAGE as u64);
    bench.disk.kill();
    bench.disk.power_loss(0, 1, None);
}

#[test]
fn requests_wait_for_a_stalled_device() {
    let bench = bench_with(|settings| settings.timing = Timing::Ssd);
    bench.disk.stall(7_000_000_000, 0);
    let file = bench.create("/f", b"x");
    assert!(bench.clock.now() >= 7_000_000_000);
    bench.disk.stall(0, bench.clock.now());
    let before = bench.clock.now();
    run(file.sync(false)).unwrap();
    let took = bench.clock.now() - before;
    assert!((200_000..60_000_000).contains(&took), "{took} ns");
}

#[test]
fn a_replaced_device_is_empty() {
    let bench = bench();
    bench.durable("/f", b"x");
    bench.disk.replace();
    assert_eq!(bench.disk.image().files().count(), 0);
    assert!(run(bench.handle.metadata("/".into())).is_err(), "the old life is cut off");
}

/// Lets calls on all files go wrong.
fn fail(bench: &Bench, error: DiskError, hits: Hits) {
    bench.disk.add_fault(1, DiskFault { path: "*".to_owned(), error, hits });
}

const ALWAYS: Hits = Hits::Chance(1_000_000);

fn is_io(result: io::Result<impl Sized>) -> bool {
    result.is_err_and(|error| error.raw_os_error() == Some(errno::IO))
}

#[test]
fn a_flush_that_failed_leaves_pages_that_look_clean_and_are_gone_after_a_crash() {
    let mut bench = bench();
    let file = bench.durable("/log", b"old old old");
    file.write_at(b"new", 0).unwrap();
    fail(&bench, DiskError::Flush, Hits::Nth(1));
    assert!(is_io(run(file.sync(false))));
    assert_eq!(bench.read("/log").unwrap(), b"new old old", "the page cache has it still");
    let flushed = bench.disk.counters().pages_flushed;
    run(file.sync(false)).unwrap();
    assert_eq!(bench.disk.counters().pages_flushed, flushed, "the next flush finds nothing to write");
    assert_eq!(bench.disk.durable_image(bench.clock.now()).read("/log").unwrap(), b"old old old");
    bench.crash(1, Some(Survival::AllNew));
    assert_eq!(bench.read("/log").unwrap(), b"old old old");
}

#[test]
fn what_is_written_again_after_a_failed_flush_becomes_durable() {
    let mut bench = bench();
    let file = bench.durable("/log", b"old old old");
    file.write_at(b"new", 0).unwrap();
    fail(&bench, DiskError::Flush, Hits::Nth(1));
    assert!(is_io(run(file.sync(false))));
    file.write_at(b"n", 0).unwrap();
    run(file.sync(false)).unwrap();
    bench.crash(1, Some(Survival::AllOld));
    assert_eq!(bench.read("/log").unwrap(), b"new old old");
}

#[test]
fn each_open_file_tells_of_a_failed_flush_once_and_one_opened_later_never() {
    let bench = bench();
    let (one, other) = (bench.durable("/log", b"old"), bench.open("/log", OpenOptions::WRITE).unwrap());
    one.write_at(b"new", 0).unwrap();
    fail(&bench, DiskError::Flush, Hits::Nth(1));
    assert!(is_io(run(one.sync(false))));
    let late = bench.open("/log", OpenOptions::WRITE).unwrap();
    run(late.sync(false)).unwrap();
    run(one.sync(false)).unwrap();
    assert!(is_io(run(other.sync(false))));
    run(other.sync(false)).unwrap();
}

#[test]
fn what_failed_to_be_written_goes_back_when_the_page_cache_lets_go_of_it() {
    let old = |durability, wait: u64| {
        let bench = bench_with(|settings| settings.durability = durability);
        let file = bench.durable("/log", b"old");
        file.write_at(b"new", 0).unwrap();
        fail(&bench, DiskError::Flush, Hits::Nth(1));
        assert!(is_io(run(file.sync(false))));
        bench.clock.now.fetch_add(wait * 1_000_000_000, Ordering::Relaxed);
        let mut bytes = [0; 3];
        file.read_at(&mut bytes, 0).unwrap();
        &bytes == b"old"
    };
    assert!(!old(Durability::Strict, 1));
    assert!(old(Durability::Strict, 31), "write-back would have written it within 30 s");
    assert!(old(Durability::RevertOnError, 0));
}

#[test]
fn what_a_mapping_shows_stays_although_its_flush_failed() {
    let bench = bench_with(|settings| settings.durability = Durability::RevertOnError);
    let file = bench.durable("/log", &[7; PAGE]);
    let mapping = run(file.map(PAGE as u64)).unwrap();
    mapping.write(100, b"new");
    let held = mapping.slice(0, 103);
    fail(&bench, DiskError::Flush, Hits::Nth(1));
    assert!(is_io(run(mapping.sync(0, 103))));
    assert_eq!((&held[100..], &mapping.slice(100, 103)[..]), (&b"new"[..], &b"new"[..]));
    drop(mapping);
    let again = run(bench.open("/log", OpenOptions::WRITE).unwrap().map(PAGE as u64)).unwrap();
    assert_eq!((&held[100..], &again.slice(100, 103)[..]), (&b"new"[..], &[7; 3][..]));
}

#[test]
fn a_read_fails_only_if_the_device_is_asked() {
    let mut bench = bench();
    let file = bench.durable("/log", &[7; PAGE]);
    let mut byte = [0];
    bench.crash(1, None);
    fail(&bench, DiskError::Read, ALWAYS);
    assert!(file.read_at(&mut byte, 0).is_err(), "of a life that ended");
    let file = bench.open("/log", OpenOptions::WRITE).unwrap();
    assert!(is_io(file.read_at(&mut byte, 0)));
    assert!(is_io(file.write_at(b"x", 5)), "the rest of the page would be read first");
    let mapping = run(file.map(PAGE as u64)).unwrap();
    drop(mapping.slice(0, 1));
    assert_eq!(bench.clock.deaths.lock().unwrap().len(), 1, "through a mapping it kills");
    bench.disk.remove_fault(1);
    assert_eq!((file.read_at(&mut byte, 0).unwrap(), byte), (1, [7]));
    // It is in the page cache now, until something makes room there.
    bench.disk.add_fault(2, DiskFault { path: "/other".to_owned(), error: DiskError::Read, hits: ALWAYS });
    file.read_at(&mut byte, 0).unwrap();
    fail(&bench, DiskError::Read, Hits::Nth(2));
    file.read_at(&mut byte, 0).unwrap();
    fail(&bench, DiskError::Read, Hits::Nth(1));
    assert!(is_io(file.read_at(&mut byte, 0)), "a fault begins with an empty cache");
}

#[test]
fn writes_fail_without_a_trace_or_are_short() {
    let bench = bench();
    let file = bench.create("/log", b"0123456789");
    fail(&bench, DiskError::Write, ALWAYS);
    assert!(is_io(file.write_at(b"x", 0)) && is_io(run(file.set_len(3))) && is_io(run(file.allocate(PAGE as u64))));
    assert_eq!(bench.read("/log").unwrap(), b"0123456789");
    bench.disk.remove_fault(1);
    fail(&bench, DiskError::ShortWrite, ALWAYS);
    let mut lengths = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let count = file.write_at(b"abcdefgh", 0).unwrap();
        assert_eq!(bench.read("/log").unwrap()[..count], b"abcdefgh"[..count]);
        lengths.insert(count);
    }
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn reads_are_short_by_any_number_of_bytes_but_never_empty_and_full_at_the_last_byte() {
    let bench = bench();
    let file = bench.create("/log", b"abcdefgh");
    fail(&bench, DiskError::ShortRead, ALWAYS);
    let mut counts = [0_u32; 8];
    const READS: u32 = 7_000;
    for _ in 0..READS {
        let mut bytes = [0; 100];
        let count = file.read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes[..count], b"abcdefgh"[..count]);
        assert_eq!(bytes[count..], [0; 100][count..], "what was not read is not touched");
        counts[count] += 1;
    }
    // Each length from 1 to 7 is equally likely: three sigma of 1,000 are 88.
    assert!(counts[0] == 0 && counts[1..].iter().all(|count| count.abs_diff(READS / 7) <= 88), "{counts:?}");
    let mut bytes = [0; 2];
    assert_eq!(file.read_at(&mut bytes, 7).unwrap(), 1, "one byte cannot be fewer");
    assert_eq!(file.read_at(&mut bytes, 8).unwrap(), 0);
    bench.disk.remove_fault(1);
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 2);
}

#[test]
fn a_lock_that_is_refused_changes_nothing() {
    let bench = bench();
    let file = bench.durable("/log", &[1; 9000]);
    let mapping = run(file.map(9000)).unwrap();
    run(mapping.lock()).unwrap();
    fail(&bench, DiskError::Lock, Hits::Nth(2));
    run(mapping.lock()).unwrap();
    let refused = run(mapping.lock()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
    assert_eq!(*bench.clock.failures.lock().unwrap(), [DiskError::Lock]);
    run(mapping.touch(0, 9000)).unwrap();
    mapping.unlock().unwrap();
    assert_eq!(bench.read("/log").unwrap(), [1; 9000]);
    assert!(bench.clock.deaths.lock().unwrap().is_empty());
}

#[test]
fn a_lost_write_is_missed_only_after_a_crash() {
    let mut bench = bench();
    let file = bench.durable("/log", b"old");
    file.write_at(b"new", 0).unwrap();
    fail(&bench, DiskError::LostWrite, ALWAYS);
    run(file.sync(false)).unwrap();
    run(file.sync(false)).unwrap();
    assert_eq!(bench.read("/log").unwrap(), b"new");
    bench.crash(1, Some(Survival::AllNew));
    assert_eq!(bench.read("/log").unwrap(), b"old");
}

#[test]
fn a_misdirected_write_spoils_another_page_of_the_directory() {
    let mut bench = bench();
    let (one, _other) = (bench.durable("/one", &[1; PAGE]), bench.durable("/other", &[2; PAGE]));
    one.write_at(&[3; PAGE], 0).unwrap();
    fail(&bench, DiskError::MisdirectedWrite, ALWAYS);
    run(one.sync(false)).unwrap();
    assert_eq!(bench.read("/one").unwrap(), [3; PAGE]);
    bench.crash(1, Some(Survival::AllNew));
    assert_eq!((bench.read("/one").unwrap(), bench.read("/other").unwrap()), (vec![1; PAGE], vec![3; PAGE]));
}

#[test]
fn a_lying_flush_does_nothing_and_an_honest_one_after_it_does() {
    for honest in [false, true] {
        let mut bench = bench();
        let file = bench.durable("/log", b"old");
        file.write_at(b"new", 0).unwrap();
        fail(&bench, DiskError::LyingFlush, ALWAYS);
        run(file.sync(false)).unwrap();
        bench.disk.remove_fault(1);
        if honest {
            run(file.sync(false)).unwrap();
        }
        bench.crash(1, Some(Survival::AllOld));
        assert_eq!(bench.read("/log").unwrap(), if honest { b"new" } else { b"old" });
    }
}

#[test]
fn a_rotten_bit_is_the_same_at_every_read_until_it_is_repaired_or_written_anew() {
    let bench = bench();
    let file = bench.durable("/log", &[0; 3 * PAGE]);
    let ones = || {
        let mut bytes = [0; 3 * PAGE];
        file.read_at(&mut bytes, 0).unwrap();
        let ones = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0);
        ones.map(|(at, byte)| (at, *byte)).collect::<Vec<_>>()
    };
    let pages = bench.disk.damage(1, "/log", Media::BitRot, 2, 0);
    let rotten = ones();
    assert_eq!((pages.len(), rotten.len()), (2, 2));
    assert!(rotten.iter().all(|(_, byte)| byte.count_ones() == 1), "{rotten:?}");
    assert!(pages.iter().all(|(_, page)| rotten.iter().any(|(at, _)| *at as u64 / PAGE as u64 == *page)));
    assert_eq!(ones(), rotten);
    let first = rotten[0].0 / PAGE * PAGE;
    file.write_at(&[0; PAGE], first as u64).unwrap();
    assert_eq!(ones(), rotten[1..]);
    bench.disk.repair(1, 0);
    assert_eq!(ones(), []);
    assert_eq!(bench.disk.damage(2, "/log", Media::BitRot, 9, 0).len(), 2, "a dirty page is not on the device");
}

#[test]
fn what_cannot_be_read_can_be_written_anew() {
    let bench = bench();
    let file = bench.durable("/log", &[7; 2 * PAGE]);
    let pages = bench.disk.damage(1, "/log", Media::LatentSector, 2, 0);
    assert_eq!(pages.len(), 2);
    let mut byte = [0];
    assert!(is_io(file.read_at(&mut byte, 0)) && is_io(file.read_at(&mut byte, PAGE as u64)));
    assert!(is_io(file.write_at(b"x", 9)), "the rest of the page would be read first");
    file.write_at(&[8; PAGE], 0).unwrap();
    assert_eq!((file.read_at(&mut byte, 0).unwrap(), byte), (1, [8]));
    let mapping = run(file.map(2 * PAGE as u64)).unwrap();
    drop(mapping.slice(0, 1));
    assert!(bench.clock.deaths.lock().unwrap().is_empty());
    drop(mapping.slice(PAGE as u64, PAGE as u64 + 1));
    assert_eq!(bench.clock.deaths.lock().unwrap().len(), 1, "through a mapping it kills");
    bench.disk.repair(1, 0);
    assert_eq!((file.read_at(&mut byte, PAGE as u64).unwrap(), byte), (1, [7]));
}

#[test]
fn delayed_allocation_keeps_the_length_and_may_lose_what_is_inside() {
    let mut bench = bench_with(|settings| settings.durability = Durability::DelayedAlloc);
    let file = bench.durable("/log", b"kept");
    file.write_at(&[7; 2 * PAGE], PAGE as u64).unwrap();
    bench.crash(1, Some(Survival::AllOld));
    let mut expected = vec![0; 3 * PAGE];
    expected[..4].copy_from_slice(b"kept");
    assert_eq!(bench.read("/log").unwrap(), expected);
}

#[test]
fn equal_crashes_of_equal_disks_are_equal() {
    let crashed = |entity| {
        let mut bench = bench_with(|settings| settings.entity = entity);
        let file = bench.durable("/f", &[1; 64 * PAGE]);
        file.write_at(&[2; 64 * PAGE], 0).unwrap();
        bench.crash(3, None);
        bench.disk.image()
    };
    assert_eq!(crashed(0), crashed(0));
    assert!((1..9).any(|entity| crashed(entity) != crashed(0)), "disks of other nodes have other fates");
}

#[test]
fn the_durable_image_is_what_the_worst_crash_leaves() {
    let mut bench = bench();
    let file = bench.durable("/f", &[1; 3 * PAGE]);
    file.write_at(&[2; PAGE], PAGE as u64).unwrap();
    file.write_at(&[2; 10], 3 * PAGE as u64).unwrap();
    bench.create("/g", b"never named");
    let image = bench.disk.durable_image(0);
    bench.crash(1, Some(Survival::AllOld));
    assert_eq!(image, bench.disk.image());
}

#[test]
fn an_ordered_journal_writes_the_content_out_before_the_rename() {
    for crash in 0..200 {
        let mut bench = bench_with(|settings| settings.durability = Durability::OrderedJournal);
        bench.durable("/config", b"old");
        bench.create("/config.tmp", b"new");
        run(bench.handle.rename("/config.tmp".into(), "/config".into())).unwrap();
        bench.crash(crash, None);
        let content = bench.read("/config").unwrap();
        assert!(content == b"old" || content == b"new", "{content:?}");
    }
}

#[test]
fn every_call_on_a_device_that_is_gone_fails_and_touching_a_mapping_kills() {
    let bench = bench();
    let file = bench.durable("/log", &[7; 2 * PAGE]);
    let mapping = run(file.map(2 * PAGE as u64)).unwrap();
    bench.disk.vanish(0);
    let handle = &bench.handle;
    let path = || std::path::PathBuf::from("/log");
    assert!(is_io(bench.open("/log", OpenOptions::READ)) && is_io(run(handle.read_dir("/".into()))));
    assert!(is_io(run(handle.metadata(path()))) && is_io(run(handle.create_dir_all("/d".into()))));
    assert!(is_io(run(handle.rename(path(), "/moved".into()))) && is_io(run(handle.hard_link(path(), "/two".into()))));
    assert!(is_io(run(handle.remove_file(path()))) && is_io(run(handle.remove_dir("/d".into()))));
    assert!(is_io(run(handle.sync_dir("/".into()))) && is_io(handle.space(Path::new("/"))));
    let mut byte = [0];
    assert!(is_io(file.len()) && is_io(file.read_at(&mut byte, 0)) && is_io(file.next_data(0)));
    assert!(is_io(file.write_at(b"x", 0)) && is_io(run(file.set_len(1))) && is_io(run(file.allocate(9))));
    assert!(is_io(run(file.sync(true))) && is_io(file.try_lock()) && is_io(run(file.map(1))));
    assert!(is_io(run(mapping.sync(0, 1))) && is_io(run(mapping.rewind(0))));
    assert!(bench.clock.deaths.lock().unwrap().is_empty());
    mapping.with(0, 1, &mut |_| {});
    mapping.write(1, b"x");
    drop(mapping.slice(0, 1));
    assert_eq!(bench.clock.deaths.lock().unwrap().len(), 3);
    assert_eq!(*bench.clock.failures.lock().unwrap(), [DiskError::Gone], "told of once in a life");
    bench.disk.come_back();
    drop(mapping);
    assert_eq!(bench.read("/log").unwrap(), [7; 2 * PAGE]);
    file.write_at(b"x", 0).unwrap();
    assert!(is_io(run(file.sync(true))), "of the flush of the mapping, which had failed as well");
    run(file.sync(true)).unwrap();
}

#[test]
fn a_device_that_comes_back_has_what_it_had() {
    for (flushes, waits, survives) in [(true, 0, false), (false, 0, true), (false, 31, false)] {
        let mut bench = bench();
        let file = bench.durable("/log", b"old");
        file.write_at(b"new", 0).unwrap();
        bench.disk.vanish(0);
        if flushes {
            assert!(is_io(run(file.sync(true))));
        }
        bench.clock.now.store(waits * 1_000_000_000, Ordering::Relaxed);
        if waits > 0 {
            bench.crash(1, Some(Survival::AllOld));
            assert_eq!(bench.read("/log").unwrap(), b"old", "nothing is written back to what is not there");
            continue;
        }
        bench.disk.come_back();
        run(file.sync(true)).unwrap();
        bench.crash(1, Some(Survival::AllOld));
        assert_eq!(bench.read("/log").unwrap() == b"new", survives, "a flush that failed has lost its pages");
    }
}

#[test]
fn a_backup_holds_what_was_durable_and_comes_back_whole() {
    let mut bench = bench();
    run(bench.handle.create_dir_all("/a/b".into())).unwrap();
    for dir in ["/", "/a"] {
        bench.sync_dir(dir);
    }
    let file = bench.create("/a/b/log", &[1; 2 * PAGE + 5]);
    run(file.allocate(8 * PAGE as u64)).unwrap();
    run(file.sync(false)).unwrap();
    bench.sync_dir("/a/b");
    file.write_at(&[2; PAGE], 0).unwrap();
    bench.create("/unnamed", b"x");
    let used = bench.disk.usage().0;
    let (backup, durable) = (bench.disk.backup(0), bench.disk.durable_image(0));
    file.write_at(&[3; PAGE], 0).unwrap();
    run(file.sync(false)).unwrap();
    bench.durable("/later", b"y");
    bench.disk.restore(&backup);
    assert!(file.len().is_err(), "the old life is cut off");
    assert_eq!(bench.disk.image(), durable);
    assert_eq!(bench.disk.durable_image(0), durable);
    assert!(used > bench.disk.usage().0 && bench.disk.usage().0 >= 8 * PAGE as u64, "blocks count, reserved ones too");
    bench.crash(1, Some(Survival::AllNew));
    assert_eq!(bench.disk.image(), durable);
    // Its files can be used as any.
    let file = bench.open("/a/b/log", OpenOptions::WRITE).unwrap();
    let mapping = run(file.map(PAGE as u64)).unwrap();
    assert_eq!(mapping.slice(0, 2)[..], [1, 1]);
    file.write_at(b"new", 5 * PAGE as u64).unwrap();
    run(file.sync(false)).unwrap();
    bench.crash(2, Some(Survival::AllOld));
    assert_eq!(&bench.read("/a/b/log").unwrap()[5 * PAGE..5 * PAGE + 3], b"new");
    // It can come back as often as anybody likes.
    bench.disk.restore(&backup);
    assert_eq!(bench.disk.image(), durable);
}
