//! The command line: serve for real, or run scenarios on the stand.
//!
//! It knows arguments, output and exit codes, and no rule of RocketMQ. Without the feature `sim` it holds the servers
//! only.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the command line stands outside every host: it measures real time and runs processes and threads"
)]

mod bench;
mod files;
mod logs;
mod output;
mod promote;
mod servers;
#[cfg(feature = "sim")]
mod stand;
mod store_files;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Every command's arguments are wrong: usage.
const EXIT_USAGE: u8 = 2;

/// What was asked for could not be done.
const EXIT_FAILED: u8 = 1;

#[derive(Parser)]
#[command(name = "staticfire", version, about, max_term_width = 100, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[cfg(feature = "sim")]
    #[command(flatten)]
    Stand(stand::StandCommand),
    /// Measure: without a command, simulated against real time
    #[command(after_help = "Examples:\n  staticfire bench\n  staticfire bench broker")]
    Bench(bench::BenchCommand),
    /// Look at the files of a store
    Store(store_files::StoreArguments),
    /// Change the role of a broker
    Admin(promote::AdminArguments),
    /// Serve as a RocketMQ name server
    #[command(after_help = "Example:\n  staticfire namesrv -c namesrv.conf")]
    Namesrv(servers::NamesrvArguments),
    /// Serve as a RocketMQ broker
    #[command(after_help = "Example:\n  staticfire broker -n '127.0.0.1:9876' -c broker.conf")]
    Broker(servers::BrokerArguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.kind() == clap::error::ErrorKind::ValueValidation => {
            // The first line says which value is wrong and why; usage would not help.
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            output::warn_line!("{}", line.strip_prefix("error: ").unwrap_or(line));
            return ExitCode::from(EXIT_USAGE);
        }
        Err(error) => error.exit(),
    };
    match arguments.command {
        #[cfg(feature = "sim")]
        Command::Stand(command) => stand::main(command),
        Command::Bench(arguments) => bench::main(arguments),
        Command::Store(arguments) => store_files::main(&arguments),
        Command::Admin(arguments) => promote::main(&arguments),
        Command::Namesrv(arguments) => servers::namesrv(arguments),
        Command::Broker(arguments) => servers::broker(arguments),
    }
}

/// An error with its causes, in one line on standard error.
fn complain(error: &dyn std::error::Error) {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    output::warn_line!("{}", line.replace('\n', " "));
}

/// The end of a command that can fail in any way.
fn told(result: Result<(), Box<dyn std::error::Error + Send + Sync>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&*error);
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// An error that is only a text, in one line on standard error.
fn complain_text(text: &str) {
    output::warn_line!("{}", text.replace('\n', " "));
}
