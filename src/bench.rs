//! `bench`: how fast a real broker takes messages over loopback, beside the fastest thing that could; and, in
//! `stand/bench.rs`, how fast the stand simulates.
//!
//! The broker and the floor are child processes of this binary, so neither shares an allocator or an address space
//! with the load. They are measured in turn, run after run, and the medians are compared: a noisy machine disturbs
//! both alike. The floor (`bench/floor.rs`) reads frames, copies `opaque` and answers bytes that it made beforehand;
//! what the broker needs beyond that is the price of being a broker. A second floor also batches its answers.
#![expect(clippy::disallowed_methods, reason = "measures real processes on a real machine")]

mod floor;
mod load;
mod server;
mod template;

use std::error::Error;
use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use comfy_table::{CellAlignment, Table};

use floor::Answering;
use load::Shape;
use server::Server;
use template::Form;

use crate::{
    output::{Unwritten, line},
    told,
};

/// What may go wrong here ends the command with one line.
type BoxError = Box<dyn Error + Send + Sync>;

/// Arguments of `staticfire bench`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
#[cfg_attr(not(feature = "sim"), command(subcommand_required = true))]
pub struct BenchCommand {
    #[command(subcommand)]
    real: Option<RealBench>,
    #[cfg(feature = "sim")]
    #[command(flatten)]
    simulated: crate::stand::BenchArguments,
}

/// What is measured on the real machine.
#[derive(Subcommand)]
enum RealBench {
    /// Measure a real broker on loopback, beside a server that does nothing (build with --release)
    #[command(after_help = "Example:\n  staticfire bench broker --runs 5 --millis 2000")]
    Broker(BrokerArguments),
    /// Be the server that does nothing; a child process of `bench broker`
    #[command(hide = true)]
    Floor(FloorArguments),
}

/// Arguments of `staticfire bench broker`.
#[derive(Args)]
struct BrokerArguments {
    /// Connections of the pipelined load.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Requests in flight on each of them.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pipeline: u16,
    /// Bytes of a message's body.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    body: u32,
    /// How often broker and floor are measured in turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// Milliseconds that one measurement takes, after a warm-up of a quarter of it.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(50..=600_000))]
    millis: u32,
    /// Encoding of the headers: `json` as Apache's clients send by default, or `binary`.
    #[arg(long, value_enum, default_value_t = Form::Json)]
    header: Form,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Arguments of `staticfire bench floor`.
#[derive(Args)]
struct FloorArguments {
    /// Encoding of the headers.
    #[arg(long, value_enum)]
    header: Form,
    /// When answers are written.
    #[arg(long, value_enum, default_value_t = Answering::Each)]
    answers: Answering,
}

/// Measures what was asked for.
pub fn main(arguments: BenchCommand) -> ExitCode {
    let result = match arguments.real {
        Some(RealBench::Broker(broker)) => measure(&broker).and_then(|report| Ok(report.print(broker.json)?)),
        Some(RealBench::Floor(floor)) => floor::serve(floor.header, floor.answers),
        #[cfg(feature = "sim")]
        None => return crate::stand::bench(&arguments.simulated),
        #[cfg(not(feature = "sim"))]
        None => unreachable!("clap requires a subcommand in this build"),
    };
    told(result)
}

/// One load on one server, in all runs: medians.
#[derive(Debug, Clone, Copy)]
struct Figures {
    per_second: f64,
    p50: Duration,
    p99: Duration,
}

/// One load on all servers.
#[derive(Debug)]
struct Comparison {
    name: String,
    broker: Figures,
    floor: Figures,
    batching_floor: Figures,
}

impl Comparison {
    /// Which part of a floor's messages the broker takes.
    fn share_of(&self, floor: Figures) -> f64 {
        self.broker.per_second / floor.per_second
    }
}

/// Everything that `bench broker` found.
#[derive(Debug)]
struct Report {
    about: String,
    comparisons: Vec<Comparison>,
    /// Resident memory of the broker before the first message, in bytes; `None` where the machine does not tell.
    idle_bytes: Option<u64>,
}

fn measure(arguments: &BrokerArguments) -> Result<Report, BoxError> {
    let body_bytes = usize::try_from(arguments.body)?;
    let pipelined = Shape { connections: arguments.connections.into(), in_flight: arguments.pipeline.into() };
    let single = Shape { connections: 1, in_flight: 1 };
    let time = Duration::from_millis(arguments.millis.into());

    let broker = Server::broker()?;
    let floor = Server::floor(arguments.header, Answering::Each)?;
    let batching_floor = Server::floor(arguments.header, Answering::Batched)?;
    std::thread::sleep(Duration::from_secs(1)); // Idle means idle: what a start does is over by then.
    let idle_bytes = broker.resident_bytes();

    let mut comparisons = Vec::new();
    for (name, shape) in [
        (format!("pipelined, {} connections x {}", arguments.connections, arguments.pipeline), pipelined),
        ("one in flight".to_owned(), single),
    ] {
        let servers = [&broker, &floor, &batching_floor];
        let mut outcomes = [const { Vec::new() }; 3];
        for _ in 0..arguments.runs {
            for (server, outcomes) in servers.iter().zip(&mut outcomes) {
                outcomes.push(load::run(server.address(), arguments.header, body_bytes, shape, time)?);
            }
        }
        let [broker, floor, batching_floor] = outcomes.map(|outcomes| medians(&outcomes));
        comparisons.push(Comparison { name, broker, floor, batching_floor });
    }
    let about = format!(
        "sends of {} bytes with {} headers, medians of {} alternating runs of {} ms",
        arguments.body, arguments.header, arguments.runs, arguments.millis
    );
    Ok(Report { about, comparisons, idle_bytes })
}

/// The middle of each figure on its own.
fn medians(runs: &[load::Outcome]) -> Figures {
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let duration = |of: fn(&load::Outcome) -> Duration| {
        Duration::from_secs_f64(middle(runs.iter().map(|run| of(run).as_secs_f64()).collect()))
    };
    Figures {
        per_second: middle(runs.iter().map(|run| run.per_second).collect()),
        p50: duration(|run| run.p50),
        p99: duration(|run| run.p99),
    }
}

impl Report {
    fn print(&self, as_json: bool) -> Result<(), Unwritten> {
        if as_json { line(self.to_json()) } else { line(self) }
    }

    fn to_json(&self) -> serde_json::Value {
        let figures = |figures: Figures| {
            serde_json::json!({
                "perSecond": figures.per_second.round(),
                "p50Micros": figures.p50.as_micros() as u64,
                "p99Micros": figures.p99.as_micros() as u64,
            })
        };
        let share = |comparison: &Comparison, floor| (comparison.share_of(floor) * 1000.0).round() / 1000.0;
        let comparisons = self.comparisons.iter().map(|comparison| {
            serde_json::json!({
                "load": comparison.name,
                "broker": figures(comparison.broker),
                "floor": figures(comparison.floor),
                "batchingFloor": figures(comparison.batching_floor),
                "share": share(comparison, comparison.floor),
                "shareOfBatchingFloor": share(comparison, comparison.batching_floor),
            })
        });
        serde_json::json!({
            "about": self.about,
            "loads": comparisons.collect::<Vec<_>>(),
            "idleBytes": self.idle_bytes,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header(["load", "server", "msg/s", "p50", "p99", "broker to floor"]);
        for comparison in &self.comparisons {
            let share = |floor| format!("{:.0} %", comparison.share_of(floor) * 100.0);
            let rows = [
                ("broker", comparison.broker, String::new()),
                ("floor", comparison.floor, share(comparison.floor)),
                ("batching floor", comparison.batching_floor, share(comparison.batching_floor)),
            ];
            for (server, figures, share) in rows {
                let name = if server == "broker" { comparison.name.as_str() } else { "" };
                let [p50, p99] = [figures.p50, figures.p99].map(|time| format!("{} µs", time.as_micros()));
                table.add_row([name, server, &format!("{:.0}", figures.per_second), &p50, &p99, &share]);
            }
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(out, "{}\n{table}", self.about)?;
        match self.idle_bytes {
            Some(bytes) => write!(out, "idle memory of the broker: {:.1} MiB", bytes as f64 / 1_048_576.0),
            None => write!(out, "idle memory of the broker: this machine does not tell"),
        }
    }
}
