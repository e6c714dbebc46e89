//! Jobs side by side, each in a child process: the one way to run many.

use std::{
    collections::BTreeMap,
    io::IsTerminal as _,
    num::NonZero,
    ops::{ControlFlow, Range},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

use indicatif::{ProgressBar, ProgressStyle};

use super::Problem;

/// The most workers, whatever was asked for: each has a thread and a child process.
pub const WORKERS_MAX: usize = 256;

/// How many workers: as many as there are processors if nobody asked for another number.
pub fn workers(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get))
}

/// Runs `work` on each job, `workers` at a time, and gives the results to `take` on this thread, in the order in which
/// they come. Once `take` breaks no further job begins; those that run come to their end and are taken as well.
pub fn run<J: Send, T: Send>(
    jobs: impl Iterator<Item = J> + Send,
    workers: usize,
    work: impl Fn(J) -> T + Sync,
    mut take: impl FnMut(T) -> ControlFlow<()>,
) {
    let workers = workers.clamp(1, WORKERS_MAX).min(jobs.size_hint().1.unwrap_or(usize::MAX));
    let (jobs, work, closed) = (Mutex::new(jobs), &work, AtomicBool::new(false));
    let next = || match closed.load(Ordering::Relaxed) {
        true => None,
        false => jobs.lock().expect("no iterator of jobs panics").next(),
    };
    std::thread::scope(|scope| {
        // A worker waits until its result was taken, so that none runs ahead of what `take` says.
        let (done, results) = mpsc::sync_channel(0);
        for _ in 0..workers {
            let done = done.clone();
            scope.spawn(move || {
                while let Some(job) = next() {
                    // The receiver lives until all senders are gone.
                    let _ = done.send(work(job));
                }
            });
        }
        drop(done);
        for result in results {
            if take(result).is_break() {
                closed.store(true, Ordering::Relaxed);
            }
        }
    });
}

/// Runs `work` for each seed with a progress bar. The results are in the order of the seeds; the first error ends it.
pub fn all<T: Send>(
    seeds: Range<u64>,
    workers: usize,
    work: impl Fn(u64) -> Result<T, Problem> + Sync,
) -> Result<Vec<T>, Problem> {
    let bar = bar(Some(seeds.end - seeds.start), "{bar:40} {pos}/{len} seeds, {elapsed} gone, {eta} to go");
    let (mut results, mut failed) = (BTreeMap::new(), None);
    run(
        seeds,
        workers,
        |seed| (seed, work(seed)),
        |(seed, result)| {
            bar.inc(1);
            match result {
                Ok(result) => {
                    results.insert(seed, result);
                    ControlFlow::Continue(())
                }
                Err(problem) => {
                    failed.get_or_insert(problem);
                    ControlFlow::Break(())
                }
            }
        },
    );
    bar.finish_and_clear();
    failed.map_or_else(|| Ok(results.into_values().collect()), Err)
}

/// A line of progress on the terminal; nothing if standard error goes elsewhere.
pub fn bar(length: Option<u64>, template: &str) -> ProgressBar {
    let bar = match (std::io::stderr().is_terminal(), length) {
        (false, _) => ProgressBar::hidden(),
        (true, Some(length)) => ProgressBar::new(length),
        (true, None) => ProgressBar::new_spinner(),
    };
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_seeds_are_in_the_order_of_the_seeds() {
        let squares = all(3..40, 4, |seed| Ok(seed * seed));
        assert_eq!(squares.ok(), Some((3..40).map(|seed| seed * seed).collect()));
    }

    #[test]
    fn there_are_no_more_workers_than_jobs() {
        let threads = Mutex::new(std::collections::BTreeSet::new());
        let work = |job: u64| {
            threads.lock().unwrap().insert(format!("{:?}", std::thread::current().id()));
            Ok(job)
        };
        assert_eq!(all(0..4, 1_000_000_000, work).map(|done| done.len()).ok(), Some(4));
        assert!(threads.lock().unwrap().len() <= 4);
    }

    #[test]
    fn no_job_begins_after_the_end_was_asked_for() {
        let mut taken = Vec::new();
        run(
            0..1_000_000_u64,
            1,
            |job| job,
            |job| {
                taken.push(job);
                if job == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        // The worker may have begun one more before it heard.
        assert!(taken == [0, 1, 2, 3, 4, 5] || taken == [0, 1, 2, 3, 4, 5, 6], "{taken:?}");
    }
}
