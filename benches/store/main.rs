//! What the store costs on the real machine, each figure beside the limit that was measured in the same run: appends
//! beside a plain copy, recovery beside reading the log with checksums alone, one waiter for the disk beside 64, and
//! opening many queues.
//!
//! `cargo bench --bench store`. Everything is measured in turns, and medians are printed: ratios mean something on a busy
//! machine, single figures do not. Memory is measured in processes of their own, which do nothing else: in one that has
//! freed memory before, a store would find that and seem to take none.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures real time around a real store")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use comfy_table::{CellAlignment, Table, presets};
use host::{Host, fs::OpenOptions};
use message::{Draft, PhyOffset, SysFlag, body_crc};
use store::{FlushDiskType, PutError, Store, StoreConfig};

/// Turns of each measurement; the median counts.
const TURNS: usize = 5;
/// Messages of one turn of appends.
const APPENDS: u64 = 600_000;
/// Bytes of a body.
const BODY_BYTES: usize = 256;
/// How long a turn of synchronous sends takes.
const SYNC_TURN: Duration = Duration::from_millis(1500);
/// Those who wait for the disk together.
const WAITERS: usize = 64;
/// Topics and queues of each: 10,000 queues.
const TOPICS: u32 = 100;
const QUEUES: u32 = 100;
/// Argument of a process that opens the store in the directory named behind it and prints the bytes that this took.
const MEMORY_OF: &str = "--memory-of";

/// A line of the report: what, the figure, what it is measured beside, the ratio, and what is asked for.
type Line = [String; 5];

fn main() {
    let mut arguments = std::env::args_os().skip_while(|argument| argument != MEMORY_OF).skip(1);
    if let Some(dir) = arguments.next() {
        let bytes = host::real::run("bench", move |_| memory_of(dir.into())).expect("nothing panicked");
        println!("{bytes}");
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory can be written");
    let root = dir.path().to_owned();
    let lines = host::real::run("bench", |host| measure(host, root)).expect("nothing panicked");
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["", "here", "beside", "ratio", "asked for"]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.add_rows(lines);
    println!("{table}");
}

async fn measure(host: Host, root: PathBuf) -> Vec<Line> {
    let (append, recovery) = appends_and_recovery(&host, &root).await;
    let group = group_commit(&host, &root).await;
    let [open, memory] = many_queues(&root).await;
    vec![append, recovery, group, open, memory]
}

fn config(root: &Path, flush: FlushDiskType) -> StoreConfig {
    StoreConfig { flush_disk_type: flush, ..StoreConfig::new(root) }
}

fn draft<'a>(topic: &'a str, queue_id: u32, body: &'a [u8]) -> Draft<'a> {
    Draft {
        topic,
        queue_id,
        flag: 0,
        sys_flag: SysFlag(0),
        born_ms: 1,
        born_host: ([127, 0, 0, 1], 50_000).into(),
        store_host: ([127, 0, 0, 1], 10_911).into(),
        reconsume_times: 0,
        prepared_phy: PhyOffset(0),
        body,
        properties: "",
    }
}

fn median<T: PartialOrd + Copy>(mut values: Vec<T>) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("no figure is NaN"));
    values[values.len() / 2]
}

/// Appends beside a copy of as many equal records into a mapping of the same size; then the whole log is read again to
/// rebuild a lost queue, beside the CRC of its bodies alone.
async fn appends_and_recovery(host: &Host, root: &Path) -> (Line, Line) {
    let body = [b'x'; BODY_BYTES];
    let draft = draft("bench", 0, &body);
    let (mut appended, mut copied, mut recovered, mut summed) = (vec![], vec![], vec![], vec![]);
    let mut bytes = 0;
    for turn in 0..TURNS {
        let dir = root.join(format!("append-{turn}"));
        let store = Store::open(config(&dir, FlushDiskType::Async)).await.expect("a new store");
        let begin = Instant::now();
        let mut end = 0;
        for _ in 0..APPENDS {
            end = match store.put(&draft) {
                Ok(put) => put.end().0,
                Err(PutError::FileNotReady) => store.put_when_ready(&draft).await.expect("there is room").end().0,
                Err(error) => panic!("{error}"),
            };
        }
        appended.push(rate(APPENDS, begin.elapsed()));
        bytes = end;
        while store.dispatch_behind_bytes() > 0 {
            host.sleep(Duration::from_millis(5)).await;
        }
        store.shutdown().await.expect("a clean exit");
        copied.push(copy(host, root, &draft).await);

        // Without its queues the whole log is read again.
        std::fs::remove_dir_all(dir.join("consumequeue")).expect("it is ours");
        let begin = Instant::now();
        let store = Store::open(config(&dir, FlushDiskType::Async)).await.expect("it recovers");
        recovered.push(rate(bytes, begin.elapsed()));
        assert_eq!(store.max_offset("bench", 0).0, APPENDS);
        store.shutdown().await.expect("a clean exit");
        summed.push(checksums(&dir, draft.size_bytes()));
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }
    let (appended, copied) = (median(appended), median(copied));
    let (recovered, summed) = (median(recovered), median(summed));
    let append = [
        format!("append, {BODY_BYTES}-byte messages"),
        format!("{:.2} million/s", appended / 1e6),
        format!("copy {:.2} million/s", copied / 1e6),
        format!("{:.0} %", 100.0 * appended / copied),
        "1 million/s, 40 %".to_owned(),
    ];
    let recovery = [
        format!("recovery of {} MB with its queue", bytes / 1_000_000),
        format!("{:.2} GB/s", recovered / 1e9),
        format!("CRC alone {:.2} GB/s", summed / 1e9),
        format!("{:.0} %", 100.0 * recovered / summed),
        "1 GB/s or 70 %".to_owned(),
    ];
    (append, recovery)
}

fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

/// Copies records into a new mapped file, with nothing else done to them.
async fn copy(host: &Host, root: &Path, draft: &Draft<'_>) -> f64 {
    let mut record = Vec::new();
    draft.encode(&mut record).expect("a legal record");
    let len = record.len() as u64 * APPENDS;
    let path = root.join("copy");
    let files = host.files();
    let file = files.open(&path, OpenOptions::REPLACE).await.expect("it can be made");
    file.allocate(len).await.expect("there is room");
    let mapping = file.map(len).await.expect("it can be mapped");
    let begin = Instant::now();
    for number in 0..APPENDS {
        mapping.write(number * record.len() as u64, &record);
    }
    let copied = rate(APPENDS, begin.elapsed());
    drop(mapping);
    files.remove_file(&path).await.expect("it is ours");
    copied
}

/// Reads the log of equal records and sums up their bodies.
fn checksums(dir: &Path, record_bytes: usize) -> f64 {
    const BODY_AT: usize = 88;
    let (log, _) = host::real::read_at_rest(&dir.join("commitlog/00000000000000000000")).expect("it is there");
    let begin = Instant::now();
    let records = log.chunks_exact(record_bytes).take(APPENDS as usize);
    let sum = records.fold(0_u32, |sum, record| sum ^ body_crc(&record[BODY_AT..BODY_AT + BODY_BYTES]));
    let time = begin.elapsed();
    assert_eq!(sum, 0, "an even number of equal bodies");
    rate(record_bytes as u64 * APPENDS, time)
}

/// Messages per second that are on the disk before the next one is sent, by one sender and by 64.
async fn group_commit(host: &Host, root: &Path) -> Line {
    let (mut alone, mut together) = (vec![], vec![]);
    let dir = root.join("sync");
    let store = Arc::new(Store::open(config(&dir, FlushDiskType::Sync)).await.expect("a new store"));
    for _ in 0..TURNS {
        for (waiters, rates) in [(1, &mut alone), (WAITERS, &mut together)] {
            let begin = Instant::now();
            let tasks: Vec<_> = (0..waiters)
                .map(|_| {
                    let store = Arc::clone(&store);
                    host.spawn("sender", async move {
                        let body = [b'x'; BODY_BYTES];
                        let mut sent = 0_u64;
                        while begin.elapsed() < SYNC_TURN {
                            let put = store.put_when_ready(&draft("bench", 0, &body)).await.expect("there is room");
                            assert_eq!(store.durability(put.end()).await, store::Flushed::Done);
                            sent += 1;
                        }
                        sent
                    })
                })
                .collect();
            let mut sent = 0;
            for task in tasks {
                sent += task.await.expect("nothing panicked");
            }
            rates.push(rate(sent, begin.elapsed()));
        }
    }
    store.shutdown().await.expect("a clean exit");
    let (alone, together) = (median(alone), median(together));
    [
        format!("group commit, {WAITERS} waiters"),
        format!("{together:.0}/s"),
        format!("one waiter {alone:.0}/s"),
        format!("{:.1} times", together / alone),
        "20 times".to_owned(),
    ]
}

/// Opening a store with 10,000 queues, and the memory that they take.
async fn many_queues(root: &Path) -> [Line; 2] {
    let dir = root.join("many");
    let store = Store::open(config(&dir, FlushDiskType::Async)).await.expect("a new store");
    for topic in 0..TOPICS {
        for queue in 0..QUEUES {
            let name = format!("topic-{topic}");
            store.put_when_ready(&draft(&name, queue, b"x")).await.expect("there is room");
        }
    }
    store.shutdown().await.expect("a clean exit");
    drop(store);
    let (mut opened, mut taken) = (vec![], vec![]);
    for _ in 0..TURNS {
        let begin = Instant::now();
        let store = Store::open(config(&dir, FlushDiskType::Async)).await.expect("it opens");
        opened.push(begin.elapsed());
        assert_eq!(store.max_offset("topic-7", 99).0, 1);
        store.shutdown().await.expect("a clean exit");
        taken.push(memory_in_a_process_of_its_own(&dir) as f64 / f64::from(TOPICS * QUEUES));
    }
    let open = [
        format!("opening {} queues", TOPICS * QUEUES),
        format!("{:.0} ms", median(opened).as_secs_f64() * 1e3),
        String::new(),
        String::new(),
        "1 s".to_owned(),
    ];
    let memory = [
        "memory of a queue, without mapped files".to_owned(),
        format!("{:.0} B", median(taken)),
        String::new(),
        String::new(),
        "4096 B".to_owned(),
    ];
    [open, memory]
}

/// Runs this program again, to open the store in `dir` and do nothing else. Returns the bytes that this took.
fn memory_in_a_process_of_its_own(dir: &Path) -> u64 {
    let this = std::env::current_exe().expect("it was started from a file");
    let mut command = Command::new(this);
    let output = command.arg(MEMORY_OF).arg(dir).stderr(Stdio::inherit()).output().expect("it can be started again");
    assert!(output.status.success(), "the process that measures memory ended with {}", output.status);
    let text = String::from_utf8(output.stdout).expect("it prints a number");
    text.trim().parse().expect("it prints a number")
}

/// Opens the store in `dir`, which nobody has open, and returns the memory that this process took for it.
async fn memory_of(dir: PathBuf) -> u64 {
    let before = anonymous_bytes();
    let store = Store::open(config(&dir, FlushDiskType::Async)).await.expect("it opens");
    let taken = anonymous_bytes().checked_sub(before).expect("an open store takes memory");
    store.shutdown().await.expect("a clean exit");
    taken
}

/// Memory of this process that is not backed by files: pages of mapped files do not count.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel counts it");
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes << 10
}
