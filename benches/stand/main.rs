//! What the stand costs: each kind of event beside the figure that `spec/simulation.md` 1.12 counts with, the check of a
//! long history, and, with `--features rivals`, a ping-pong beside madsim's own network and turmoil.
//!
//! `cargo bench --bench stand --features rivals`. Everything is measured in one process in turns, and medians are
//! printed: ratios mean something on a busy machine, single figures do not.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures real time around whole runs")]

mod checks;
mod costs;
mod ping_pong;

use std::time::{Duration, Instant};

/// Turns of each measurement; the median counts.
const TURNS: usize = 7;

fn main() {
    costs::print();
    println!();
    checks::print();
    println!();
    ping_pong::print();
}

/// Runs all measurements in turn, several times, and gives the median time of each.
fn in_turns(measurements: &mut [Box<dyn FnMut()>]) -> Vec<Duration> {
    let mut times = vec![Vec::new(); measurements.len()];
    for _ in 0..TURNS {
        for (measurement, times) in measurements.iter_mut().zip(&mut times) {
            let begin = Instant::now();
            measurement();
            times.push(begin.elapsed());
        }
    }
    times.into_iter().map(median).collect()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Nanoseconds for each of `count`.
fn nanos_each(time: Duration, count: u64) -> f64 {
    time.as_nanos() as f64 / count as f64
}

/// A table without lines, its numbers to the right.
fn table(header: &[&str]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(comfy_table::CellAlignment::Right);
    }
    table
}
