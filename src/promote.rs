//! `admin promote`: a slave becomes the master of its group, after it was said what that may cost.

use std::{
    fs::File,
    io::{self, Write as _},
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, SystemTime},
};

use broker::{BrokerConfig, Role};
use clap::{Args, Subcommand, ValueEnum};
use host::fs::DirEntry;
use remoting::{
    Client, ClientConfig, Handler, Inbound, NoHeader, Payload, Peer, Reply, Request, Response,
    body::{Body, ClusterInfo, HaRuntimeInfo},
    settings::{Setting, read_properties},
};
use store::audit::{AuditSource, Content, each_record};

use crate::{
    output::{Unwritten, say},
    servers::{Failure, read_file},
    store_files::{Directory, refuse_if_open},
    told,
};

/// How long a name server or broker may take for an answer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Arguments of `staticfire admin`.
#[derive(Args)]
pub struct AdminArguments {
    #[command(subcommand)]
    command: AdminCommand,
}

#[derive(Subcommand)]
enum AdminCommand {
    /// Make a master of a slave that is stopped and whose master is gone
    #[command(after_help = "Without --yes it says what may be lost, and changes nothing.\n\n\
                            Example:\n  staticfire admin promote -c broker-a-s.conf\n  \
                            staticfire admin promote -c broker-a-s.conf --yes && staticfire broker -c broker-a-s.conf")]
    Promote(PromoteArguments),
}

#[derive(Args)]
struct PromoteArguments {
    /// The slave's configuration: brokerRole and brokerId are changed in it, nothing else
    #[arg(short = 'c', long = "configFile", value_name = "FILE")]
    config: PathBuf,
    /// Name servers, separated by semicolons; counts more than the file
    #[arg(short = 'n', long = "namesrvAddr", value_name = "ADDR;ADDR")]
    namesrv: Option<String>,
    /// What the broker becomes
    #[arg(long, value_enum, default_value_t = MasterRole::Async)]
    role: MasterRole,
    /// Do it
    #[arg(long)]
    yes: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum MasterRole {
    /// It waits for no slave
    #[value(name = "ASYNC_MASTER")]
    Async,
    /// Its puts wait for slaves, of which it has none at first
    #[value(name = "SYNC_MASTER")]
    Sync,
}

/// What name servers know of the master.
enum MasterFound {
    /// One answers there.
    Lives(String),
    /// One is registered there and does not answer.
    Silent(String),
    /// None is registered.
    None,
    /// No name server answered, or there is none in the configuration.
    NobodyKnows,
}

/// The end of a slave's log.
struct LogEnd {
    phy: u64,
    /// When its last message was stored, in milliseconds since 1970.
    stored_ms: i64,
}

/// Runs the command.
pub fn main(arguments: &AdminArguments) -> ExitCode {
    let AdminCommand::Promote(arguments) = &arguments.command;
    told(promote(arguments))
}

fn promote(arguments: &PromoteArguments) -> Result<(), Failure> {
    let mut settings = read_file(Some(&arguments.config))?;
    let from_flag = |value: &String| Setting { key: "namesrvAddr".into(), value: value.clone(), at: "-n".into() };
    settings.extend(arguments.namesrv.iter().map(from_flag));
    let (config, _) = BrokerConfig::read(settings)?;
    if config.role != Role::Slave {
        let message = format!("{}: brokerRole is {} already", arguments.config.display(), config.role);
        return Err(message.into());
    }
    let root = std::path::absolute(&config.store.root)?;
    let directory = Directory(&root);
    refuse_if_open(&directory)?;
    let found = find_master(&config)?;
    if let MasterFound::Lives(address) = &found {
        let message =
            format!("the group {} has a master, which answers at {address}: stop that one first", config.name);
        return Err(message.into());
    }
    let log_dir = config.store.commit_log_dir.as_ref().map(std::path::absolute).transpose()?;
    let end = log_end(&directory, &log_dir.unwrap_or_else(|| PathBuf::from("commitlog")))?;
    tell(&config, &found, end.as_ref(), offsets_changed(&root))?;
    if !arguments.yes {
        say!("Nothing was changed. With --yes, this broker becomes the master.")?;
        return Ok(());
    }
    let role = match arguments.role {
        MasterRole::Async => Role::AsyncMaster,
        MasterRole::Sync => Role::SyncMaster,
    };
    write(&arguments.config, role)?;
    say!("{} says brokerRole={role} and brokerId=0 now: start the broker.", arguments.config.display())?;
    Ok(())
}

/// Says what is known, and what it means for messages and groups. Source: `spec/replication.md` 7, rows 3 and 4.
fn tell(
    config: &BrokerConfig,
    found: &MasterFound,
    end: Option<&LogEnd>,
    offsets_changed: Option<SystemTime>,
) -> Result<(), Unwritten> {
    let BrokerConfig { name, id, .. } = config;
    match found {
        MasterFound::Lives(_) => {}
        MasterFound::Silent(address) => {
            say!("The master of {name} is registered at {address}, and does not answer.")?;
        }
        MasterFound::None => say!("No master of {name} is registered.")?,
        MasterFound::NobodyKnows => {
            say!(
                "No name server answers, so nobody knows whether the master of {name} lives. Make sure that it does not."
            )?;
        }
    }
    match end {
        Some(LogEnd { phy, stored_ms }) => {
            let stored = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(*stored_ms).unwrap_or(0));
            say!("The log of slave {id} ends at {phy}, with a message that was stored {}.", ago(stored))?;
        }
        None => say!("The log of slave {id} holds no message at all.")?,
    }
    say!("When it becomes the master:")?;
    let behind = end.map_or(0, |end| end.phy);
    say!("- what the former master stored at {behind} and later is lost. If it was ASYNC_MASTER, or SYNC_MASTER with")?;
    say!(
        "  inSyncReplicas=1, it may have acknowledged some of that. With more replicas it has not, as long as this one"
    )?;
    say!("  was in sync and had no loss of power of its own;")?;
    match offsets_changed {
        Some(changed) => {
            say!(
                "- groups go on where they were {}, when the copy of their offsets changed last, and get again what",
                ago(changed)
            )?;
            say!("  they consumed later;")?;
        }
        None => say!("- no offsets of groups were ever copied: they begin as new groups do;")?,
    }
    say!("- delayed messages that the former master delivered since the last copy of its tables are delivered again;")?;
    say!(
        "- the former master must come back as a slave, with a number of its own and an empty store, or not at all: its"
    )?;
    say!("  log may go on differently.")
}

fn ago(time: SystemTime) -> String {
    match SystemTime::now().duration_since(time).map(|age| age.as_secs()) {
        Ok(seconds @ 0..=119) => format!("{seconds} s ago"),
        Ok(seconds @ 120..=7_199) => format!("{} min ago", seconds / 60),
        Ok(seconds) => format!("{} h ago", seconds / 3600),
        Err(_) => "in the future, by this machine's clock".to_owned(),
    }
}

fn offsets_changed(root: &Path) -> Option<SystemTime> {
    std::fs::metadata(root.join("config/consumerOffset.json")).and_then(|file| file.modified()).ok()
}

/// The last two files of a log, as if there were no others: it may be long, and only its end matters.
struct Tail<'a> {
    directory: &'a Directory<'a>,
    log_dir: &'a Path,
}

impl AuditSource for Tail<'_> {
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = self.directory.list(dir)?;
        if dir == self.log_dir {
            entries.drain(..entries.len().saturating_sub(2));
        }
        Ok(entries)
    }

    fn read(&self, file: &Path) -> io::Result<Content> {
        self.directory.read(file)
    }
}

fn log_end(directory: &Directory<'_>, log_dir: &Path) -> Result<Option<LogEnd>, Failure> {
    let mut end = None;
    let show = |view: &message::RecordView<'_>, _: &Path, _: u64| {
        end = Some(LogEnd { phy: view.phy.0 + u64::from(view.size_bytes), stored_ms: view.store_ms });
        Ok(ControlFlow::Continue(()))
    };
    each_record(&Tail { directory, log_dir }, log_dir, show, |_| {})?;
    Ok(end)
}

/// Asks the name servers for the master of the group, and the master whether it lives.
fn find_master(config: &BrokerConfig) -> Result<MasterFound, Failure> {
    let (namesrv, name) = (config.namesrv.clone(), config.name.clone());
    let found = host::real::run("admin", |_| async move {
        let client = Client::new(ClientConfig::default(), Arc::new(Nobody));
        let (mut answered, mut silent) = (false, None);
        for namesrv in namesrv {
            let request = Request::GetBrokerClusterInfo(NoHeader);
            let Ok(answer) = client.invoke(&namesrv, request, Payload::EMPTY, TIMEOUT).await else { continue };
            let Ok(mut info) = ClusterInfo::decode(&answer.body_bytes()) else { continue };
            answered = true;
            let group = info.broker_addr_table.remove(&name);
            let Some(address) = group.and_then(|mut group| group.broker_addrs.remove(&0)) else { continue };
            let asked = client.invoke(&address, Request::GetBrokerHaStatus(NoHeader), Payload::EMPTY, TIMEOUT).await;
            // One of 4.x does not know the question; one that says it is a slave is none.
            let is_slave = |answer: &Response| {
                let status = HaRuntimeInfo::decode(&answer.body_bytes());
                answer.code.is_success() && status.is_ok_and(|status| !status.master)
            };
            match asked {
                Ok(answer) if is_slave(&answer) => {}
                Ok(_) => {
                    client.shutdown().await;
                    return MasterFound::Lives(address);
                }
                Err(_) => silent = Some(address),
            }
        }
        client.shutdown().await;
        match silent {
            Some(address) => MasterFound::Silent(address),
            None if answered => MasterFound::None,
            None => MasterFound::NobodyKnows,
        }
    })?;
    Ok(found)
}

/// Answers whoever asks a tool.
struct Nobody;

impl Handler for Nobody {
    fn handle(&self, _: &Peer, inbound: Inbound) -> Reply {
        Response::not_supported(inbound.request.code().number()).into()
    }
}

/// Changes the two keys in the file. The new text is written beside it and takes its place in one step; it is read
/// first as a broker would.
fn write(file: &Path, role: Role) -> Result<(), Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let text = with_setting(&with_setting(&text, "brokerRole", &role.to_string()), "brokerId", "0");
    let (config, _) = BrokerConfig::read(read_properties(&text, &file.display().to_string())?)?;
    if config.role != role {
        return Err(
            format!("{} cannot be changed: set brokerRole={role} and brokerId=0 by hand", file.display()).into()
        );
    }
    let mut beside = file.as_os_str().to_owned();
    beside.push(".tmp");
    let beside = PathBuf::from(beside);
    let written = || {
        let mut new = File::create(&beside)?;
        new.write_all(text.as_bytes())?;
        new.set_permissions(std::fs::metadata(file)?.permissions())?;
        new.sync_all()?;
        std::fs::rename(&beside, file)
    };
    written().map_err(|error| format!("cannot write {}: {error}", file.display()).into())
}

/// The lines of a properties file with `key` set to `value`: in the place of its first line, or at the end.
fn with_setting(text: &str, key: &str, value: &str) -> String {
    let is_of_key = |line: &str| {
        let line = line.trim_start();
        line.strip_prefix(key).is_some_and(|rest| rest.starts_with(['=', ':', ' ', '\t']))
    };
    let (mut lines, mut is_set) = (Vec::new(), false);
    for line in text.lines() {
        if !is_of_key(line) {
            lines.push(line.to_owned());
        } else if !is_set {
            lines.push(format!("{key}={value}"));
            is_set = true;
        }
    }
    if !is_set {
        lines.push(format!("{key}={value}"));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::with_setting;

    #[test]
    fn setting_takes_the_place_of_its_lines_and_leaves_the_others() {
        let text = "# group a\nbrokerRole = SLAVE\nbrokerRoleX=1\nlistenPort=1\nbrokerRole=SLAVE\n";
        assert_eq!(
            with_setting(text, "brokerRole", "ASYNC_MASTER"),
            "# group a\nbrokerRole=ASYNC_MASTER\nbrokerRoleX=1\nlistenPort=1\n"
        );
        assert_eq!(with_setting("a=1", "brokerId", "0"), "a=1\nbrokerId=0\n");
    }
}
