//! `store check` and `store dump`: looking at the directory of a store that no broker has open.

use std::{
    io::{self, Write as _},
    ops::{ControlFlow, Range},
    path::{Path, PathBuf},
    process::ExitCode,
};

use broker::BrokerConfig;
use clap::{Args, Subcommand};
use host::fs::DirEntry;
use message::{Properties, RecordView};
use serde_json::{Map, Value, json};
use store::audit::{Audit, AuditOptions, AuditSource, Content, Finding, audit, each_record};

use crate::{
    EXIT_FAILED, complain, complain_text,
    output::{Unwritten, say},
    servers::{Failure, read_file},
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
    /// The broker's configuration, if it says where the commit log is, how large index files are, or other delay levels
    #[arg(short = 'c', long = "configFile", value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Args)]
struct CheckArguments {
    #[command(flatten)]
    place: Place,
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
pub struct Directory<'a>(pub &'a Path);

impl AuditSource for Directory<'_> {
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        // Joined with nothing it would end with a slash.
        let path = if dir.as_os_str().is_empty() { self.0.to_owned() } else { self.0.join(dir) };
        let entries = match std::fs::read_dir(&path) {
            // A store that never had a queue has no directory for them.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && !dir.as_os_str().is_empty() && !path.is_symlink() =>
            {
                return Ok(Vec::new());
            }
            entries => entries.map_err(|error| of_path(&path, &error))?,
        };
        let entry = |entry: io::Result<std::fs::DirEntry>| {
            let entry = entry.map_err(|error| of_path(&path, &error))?;
            let name = entry.file_name().into_string();
            let name =
                name.map_err(|name| of_path(&path, &io::Error::other(format!("{} is not UTF-8", name.display()))))?;
            // People move directories to other disks and leave links to them.
            let is_dir = match std::fs::metadata(entry.path()) {
                Ok(metadata) => metadata.is_dir(),
                // Each name in the root that counts is looked at by itself.
                Err(_) if dir.as_os_str().is_empty() => false,
                Err(error) => return Err(of_path(&entry.path(), &error)),
            };
            Ok(DirEntry { name, is_dir })
        };
        let mut entries = entries.map(entry).collect::<io::Result<Vec<DirEntry>>>()?;
        entries.sort();
        Ok(entries)
    }

    fn read(&self, file: &Path) -> io::Result<Content> {
        let path = self.0.join(file);
        // Whatever else it is may have no end.
        if !std::fs::metadata(&path).map_err(|error| of_path(&path, &error))?.is_file() {
            return Err(of_path(&path, &io::Error::other("is not a regular file")));
        }
        let (bytes, len) = host::real::read_at_rest(&path).map_err(|error| of_path(&path, &error))?;
        Ok(Content { bytes, len })
    }
}

fn of_path(path: &Path, error: &io::Error) -> io::Error {
    let path_shown = path.display();
    let what = match std::fs::read_link(path) {
        Ok(target) => format!("cannot read {path_shown}, a symbolic link to {}: {error}", target.display()),
        Err(_) => format!("cannot read {path_shown}: {error}"),
    };
    io::Error::new(error.kind(), what)
}

/// Runs the command.
pub fn main(arguments: &StoreArguments) -> ExitCode {
    let result = match &arguments.command {
        StoreCommand::Check(arguments) => check(arguments),
        StoreCommand::Dump(arguments) => dump(arguments),
    };
    result.unwrap_or_else(|error| {
        complain(&*error);
        ExitCode::from(EXIT_FAILED)
    })
}

/// Opens the store: it must be a directory, and no broker may have it open. The second says how to look at it.
fn open(place: &Place) -> Result<(Directory<'_>, AuditOptions), Failure> {
    let mut options = AuditOptions::default();
    if place.config.is_some() {
        let (config, _) = BrokerConfig::read(read_file(place.config.as_ref())?)?;
        options = AuditOptions::of(&config.store);
        if config.store.commit_log_dir.is_some() {
            options.commit_log_dir = std::path::absolute(options.commit_log_dir)?;
        }
    }
    let root = place.root.display();
    let source = Directory(&place.root);
    let names: Vec<String> = source.list(Path::new(""))?.into_iter().map(|entry| entry.name).collect();
    if !names.iter().any(|name| name == "commitlog") && options.commit_log_dir.is_relative() {
        let message =
            format!("{root} holds no directory commitlog: name the root of a store, or its broker's configuration");
        return Err(message.into());
    }
    refuse_if_open(&source)?;
    Ok((source, options))
}

/// Nobody may look at a store that a broker has open.
pub fn refuse_if_open(source: &Directory<'_>) -> Result<(), Failure> {
    let names = source.list(Path::new(""))?;
    if names.iter().any(|entry| entry.name == "lock") && host::real::is_locked(&source.0.join("lock"))? {
        return Err(format!("a broker has {} open: stop it, or copy the directory", source.0.display()).into());
    }
    Ok(())
}

fn check(arguments: &CheckArguments) -> Result<ExitCode, Failure> {
    let (source, options) = open(&arguments.place)?;
    let mut found = audit(&source, &options)?;
    let ahead = check_settings(&source, &mut found)?;
    let said = if arguments.json { say!("{}", as_json(&found, ahead)) } else { tell(&found, ahead) };
    said.map_err(|error| error.to_string())?;
    Ok(if found.count == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_DAMAGED) })
}

/// Reads the files of settings beside a store, as a broker would, and adds what is wrong with them. Returns how many offsets
/// lie beyond the ends of their queues: a broker lowers them when it starts.
fn check_settings(source: &Directory<'_>, found: &mut Audit) -> io::Result<usize> {
    let folder = Path::new("config");
    let mut ahead = 0;
    for entry in source.list(folder)?.into_iter().filter(|entry| !entry.is_dir) {
        if !entry.name.ends_with(".json") && !entry.name.ends_with(".json.bak") {
            continue;
        }
        let path = folder.join(&entry.name);
        let content = source.read(&path)?;
        let mut bytes = content.bytes.to_vec();
        bytes.resize(usize::try_from(content.len).unwrap_or(usize::MAX), 0);
        match broker::check_stored(&entry.name, &bytes) {
            Err(what) => {
                found.count += 1;
                found.findings.push(Finding { path, at: None, what });
            }
            Ok(_) if entry.name.ends_with(".bak") => {}
            Ok(offsets) => {
                let end = |topic: String, queue| found.ends.get(&(topic, queue)).copied().unwrap_or(0);
                ahead += offsets.into_iter().filter(|it| it.offset > end(it.topic.clone(), it.queue)).count();
            }
        }
    }
    Ok(ahead)
}

fn as_json(audit: &Audit, ahead: usize) -> Value {
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
        "index_entries": audit.index_entries,
        "not_dispatched": audit.not_dispatched,
        "offsets_ahead": ahead,
        "count": audit.count,
        "findings": findings.collect::<Vec<_>>(),
    })
}

fn tell(audit: &Audit, ahead: usize) -> Result<(), Unwritten> {
    for finding in &audit.findings {
        say!("{finding}")?;
    }
    let more = audit.count - audit.findings.len() as u64;
    if more > 0 {
        say!("and {more} more")?;
    }
    let Audit { log_files, log_start, log_end, records, queues, entries, index_entries, .. } = audit;
    say!("{records} records in {log_files} files, log {log_start}..{log_end}")?;
    say!("{entries} entries in {queues} queues, {index_entries} in the index")?;
    if !audit.is_clean {
        say!("it was not closed cleanly: {} records wait for their entries until it is opened", audit.not_dispatched)?;
    }
    if ahead > 0 {
        say!("{ahead} offsets lie beyond the ends of their queues: they are lowered to them when it is opened")?;
    }
    match audit.count {
        0 => say!("nothing is wrong"),
        1 => say!("1 thing is wrong"),
        count => say!("{count} things are wrong"),
    }
}

fn dump(arguments: &DumpArguments) -> Result<ExitCode, Failure> {
    let (source, options) = open(&arguments.place)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut left = arguments.limit.unwrap_or(u64::MAX);
    let mut damages = 0;
    let shown = each_record(
        &source,
        &options.commit_log_dir,
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
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
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
