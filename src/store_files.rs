//! `store check` and `store dump`: looking at the directory of a store that no broker has open.

use std::{
    io::{self, Write as _},
    ops::{ControlFlow, Range},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand};
use host::fs::DirEntry;
use message::{DelayLevels, Properties, RecordView};
use serde_json::{Map, Value, json};
use store::audit::{Audit, AuditOptions, AuditSource, Content, audit, each_record};

use crate::{
    EXIT_FAILED, complain_text,
    output::{Unwritten, say},
};

/// Something is wrong with the store.
const EXIT_DAMAGED: u8 = 10;

/// The most bytes of a body that `dump` shows.
const BODY_SHOWN_MAX: usize = 4096;

/// Arguments of `staticfire store`.
#[derive(Args)]
pub struct StoreArguments {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Subcommand)]
enum StoreCommand {
    /// Say what is wrong with the files of a store, and where; change nothing
    #[command(after_help = "Exits with 0 if nothing is wrong, 10 if something is, 1 if the files cannot be read.\n\n\
                            Example:\n  staticfire store check ~/store")]
    Check(CheckArguments),
    /// Print the records of a store as JSON, one on a line, in the order of its log
    #[command(
        after_help = "Examples:\n  staticfire store dump ~/store --topic orders --queue 3 --offsets 100..200\n  \
                            staticfire store dump ~/store --stored 1764500000000..1764503600000 --body"
    )]
    Dump(DumpArguments),
}

#[derive(Args)]
struct Place {
    /// The root of the store: what storePathRootDir says
    #[arg(value_name = "DIR")]
    root: PathBuf,
    /// Where the commit log is, if not in `commitlog` below the root: what storePathCommitLog says
    #[arg(long, value_name = "DIR")]
    commit_log: Option<PathBuf>,
}

#[derive(Args)]
struct CheckArguments {
    #[command(flatten)]
    place: Place,
    /// The delay levels of the broker, if not the usual ones: what messageDelayLevel says
    #[arg(long, value_name = "LEVELS", value_parser = |text: &str| DelayLevels::parse(text))]
    delay_levels: Option<DelayLevels>,
    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct DumpArguments {
    #[command(flatten)]
    place: Place,
    /// Only records of this topic
    #[arg(long)]
    topic: Option<String>,
    /// Only records of this queue
    #[arg(long, value_name = "ID")]
    queue: Option<u32>,
    /// Only records with these queue offsets: first..end, without the end
    #[arg(long, value_name = "A..B", value_parser = range)]
    offsets: Option<Range<u64>>,
    /// Only records stored at these times, in milliseconds since 1970: first..end, without the end
    #[arg(long, value_name = "A..B", value_parser = range)]
    stored: Option<Range<u64>>,
    /// Only so many records
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
    /// Show bodies, up to 4 KiB of each: as text if they are, else as hexadecimal digits; compressed ones as they are
    #[arg(long)]
    body: bool,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let bounds = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    match bounds {
        Some(range) if range.start < range.end => Ok(range),
        _ => Err("write two numbers with the larger one last, as in 10..20".to_owned()),
    }
}

/// A store in a directory.
struct Directory<'a>(&'a Path);

impl AuditSource for Directory<'_> {
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        // Joined with nothing it would end with a slash.
        let path = if dir.as_os_str().is_empty() { self.0.to_owned() } else { self.0.join(dir) };
        let entries = match std::fs::read_dir(&path) {
            // A store that never had a queue has no directory for them.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !dir.as_os_str().is_empty() => {
                return Ok(Vec::new());
            }
            entries => entries.map_err(|error| of_path(&path, &error))?,
        };
        let entry = |entry: io::Result<std::fs::DirEntry>| {
            let entry = entry?;
            let name = entry.file_name().into_string();
            let name = name.map_err(|name| io::Error::other(format!("{} is not UTF-8", name.display())))?;
            Ok(DirEntry { name, is_dir: entry.file_type()?.is_dir() })
        };
        let entries = entries.map(entry).collect::<io::Result<Vec<DirEntry>>>();
        let mut entries = entries.map_err(|error| of_path(&path, &error))?;
        entries.sort();
        Ok(entries)
    }

    fn read(&self, file: &Path) -> io::Result<Content> {
        let path = self.0.join(file);
        let (bytes, len) = host::real::read_at_rest(&path).map_err(|error| of_path(&path, &error))?;
        Ok(Content { bytes, len })
    }
}

fn of_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))
}

/// Runs the command.
pub fn main(arguments: &StoreArguments) -> ExitCode {
    let result = match &arguments.command {
        StoreCommand::Check(arguments) => check(arguments),
        StoreCommand::Dump(arguments) => dump(arguments),
    };
    result.unwrap_or_else(|error| {
        complain_text(&error.to_string());
        ExitCode::from(EXIT_FAILED)
    })
}

/// Opens the store: it must be a directory, and no broker may have it open.
fn open(place: &Place) -> io::Result<(Directory<'_>, PathBuf)> {
    let source = Directory(&place.root);
    let names: Vec<String> = source.list(Path::new(""))?.into_iter().map(|entry| entry.name).collect();
    if !names.iter().any(|name| name == "commitlog") && place.commit_log.is_none() {
        return Err(io::Error::other(format!(
            "{} holds no directory commitlog: name the root of a store, or --commit-log",
            place.root.display()
        )));
    }
    if names.iter().any(|name| name == "lock") && host::real::is_locked(&place.root.join("lock"))? {
        return Err(io::Error::other(format!(
            "a broker has {} open: stop it, or copy the directory",
            place.root.display()
        )));
    }
    let commit_log = match &place.commit_log {
        Some(dir) => std::path::absolute(dir)?,
        None => AuditOptions::default().commit_log_dir,
    };
    Ok((source, commit_log))
}

fn check(arguments: &CheckArguments) -> io::Result<ExitCode> {
    let (source, commit_log_dir) = open(&arguments.place)?;
    let delay_levels = arguments.delay_levels.clone().unwrap_or_default();
    let found = audit(&source, &AuditOptions { commit_log_dir, delay_levels, dispatched: false })?;
    if arguments.json { say!("{}", as_json(&found)) } else { tell(&found) }.map_err(unwritten)?;
    Ok(if found.count == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_DAMAGED) })
}

fn unwritten(error: Unwritten) -> io::Error {
    io::Error::other(error)
}

fn as_json(audit: &Audit) -> Value {
    let findings = audit
        .findings
        .iter()
        .map(|finding| json!({ "path": finding.path.display().to_string(), "at": finding.at, "what": finding.what }));
    json!({
        "clean": audit.is_clean,
        "log_files": audit.log_files,
        "log": [audit.log_start, audit.log_end],
        "records": audit.records,
        "queues": audit.queues,
        "entries": audit.entries,
        "not_dispatched": audit.not_dispatched,
        "count": audit.count,
        "findings": findings.collect::<Vec<_>>(),
    })
}

fn tell(audit: &Audit) -> Result<(), Unwritten> {
    for finding in &audit.findings {
        say!("{finding}")?;
    }
    let more = audit.count - audit.findings.len() as u64;
    if more > 0 {
        say!("and {more} more")?;
    }
    let Audit { log_files, log_start, log_end, records, queues, entries, .. } = audit;
    say!("{records} records in {log_files} files, log {log_start}..{log_end}; {entries} entries in {queues} queues")?;
    if !audit.is_clean {
        say!("it was not closed cleanly: {} records wait for their entries until it is opened", audit.not_dispatched)?;
    }
    match audit.count {
        0 => say!("nothing is wrong"),
        1 => say!("1 thing is wrong"),
        count => say!("{count} things are wrong"),
    }
}

fn dump(arguments: &DumpArguments) -> io::Result<ExitCode> {
    let (source, commit_log) = open(&arguments.place)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut left = arguments.limit.unwrap_or(u64::MAX);
    let mut damages = 0;
    let shown = each_record(
        &source,
        &commit_log,
        |view, path, at| {
            if left == 0 {
                return Ok(ControlFlow::Break(()));
            }
            if arguments.wants(view) {
                left -= 1;
                writeln!(out, "{}", record(view, path, at, arguments.body))?;
            }
            Ok(ControlFlow::Continue(()))
        },
        |finding| {
            damages += 1;
            complain_text(&finding.to_string());
        },
    );
    match shown.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ if damages > 0 => Ok(ExitCode::from(EXIT_DAMAGED)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

impl DumpArguments {
    fn wants(&self, view: &RecordView<'_>) -> bool {
        let stored = u64::try_from(view.store_ms).unwrap_or(0);
        self.topic.as_ref().is_none_or(|topic| topic == view.topic)
            && self.queue.is_none_or(|queue| queue == view.queue_id)
            && self.offsets.as_ref().is_none_or(|offsets| offsets.contains(&view.queue_offset.0))
            && self.stored.as_ref().is_none_or(|times| times.contains(&stored))
    }
}

/// A record with the names that Apache's tools give to its fields.
fn record(view: &RecordView<'_>, path: &Path, at: u64, with_body: bool) -> Value {
    let mut properties = Map::new();
    for (name, value) in Properties::parts(view.properties).filter_map(Properties::split_pair) {
        // Of two values of one name the last one counts.
        properties.insert(name.to_owned(), value.into());
    }
    let mut shown = json!({
        "file": path.display().to_string(),
        "at": at,
        "physicalOffset": view.phy.0,
        "storeSize": view.size_bytes,
        "topic": view.topic,
        "queueId": view.queue_id,
        "queueOffset": view.queue_offset.0,
        "bornTimestamp": view.born_ms,
        "bornHost": view.born_host.to_string(),
        "storeTimestamp": view.store_ms,
        "storeHost": view.store_host.to_string(),
        "flag": view.flag,
        "sysFlag": view.sys_flag.0,
        "reconsumeTimes": view.reconsume_times,
        "preparedTransactionOffset": view.prepared_phy.0,
        "bodyCRC": view.body_crc,
        "bodySize": view.body.len(),
        "properties": properties,
    });
    if with_body {
        let body = &view.body[..view.body.len().min(BODY_SHOWN_MAX)];
        match std::str::from_utf8(body) {
            Ok(text) => shown["body"] = text.into(),
            // Cut in the middle of a character.
            Err(error) if error.error_len().is_none() && body.len() < view.body.len() => {
                shown["body"] = String::from_utf8_lossy(&body[..error.valid_up_to()]).into();
            }
            Err(_) => shown["bodyHex"] = body.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
        }
    }
    shown
}
