//! Log lines on standard error.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
#[cfg(feature = "sim")]
use tracing_subscriber::fmt::{format::Writer, time::FormatTime};

/// Which lines are shown for each number of `-v`.
const LEVELS: [&str; 4] = ["warn", "info", "debug", "trace"];

/// Shows log lines of a server, stamped with the wall clock. `STATICFIRE_LOG` holds a filter such as `broker=debug`.
pub fn of_server(verbosity: u8) {
    let level = LEVELS[usize::from(verbosity).min(LEVELS.len() - 1)];
    let filter = EnvFilter::try_from_env("STATICFIRE_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let colours = io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_ansi(colours)
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // Told on standard error by a macro that panics: where a line cannot be written, that cannot be either.
        .log_internal_errors(false)
        .init();
}

/// Shows log lines of a run, stamped with virtual time, node and life. Without `-v` there are none.
#[cfg(feature = "sim")]
pub fn of_run(verbosity: u8) {
    if verbosity > 0 {
        let level = LEVELS[usize::from(verbosity).min(LEVELS.len() - 1)];
        // The executor's own spans hold task ids that say nothing to a reader.
        let level = format!("{level},madsim=off");
        let filter = EnvFilter::try_from_env("STATICFIRE_LOG").unwrap_or_else(|_| EnvFilter::new(level));
        let colours = io::stderr().is_terminal();
        tracing_subscriber::fmt()
            .with_ansi(colours)
            .with_env_filter(filter)
            .with_writer(io::stderr)
            .with_timer(OfNode)
            .log_internal_errors(false)
            .init();
    }
}

/// Time, name and life of the node that logs.
#[cfg(feature = "sim")]
struct OfNode;

#[cfg(feature = "sim")]
impl FormatTime for OfNode {
    fn format_time(&self, out: &mut Writer<'_>) -> std::fmt::Result {
        match host::Host::try_current() {
            Some(host) => {
                let nanos = host.now().as_nanos();
                write!(
                    out,
                    "{}.{:06} {}#{}",
                    nanos / 1_000_000_000,
                    nanos / 1_000 % 1_000_000,
                    host.node(),
                    host.incarnation()
                )
            }
            None => write!(out, "stand"),
        }
    }
}
