//! `namesrv` and `broker`: real servers, with the flags of RocketMQ's own.

use std::{error::Error, path::PathBuf, process::ExitCode};

use broker::{Broker, BrokerConfig};
use clap::Args;
use namesrv::{Namesrv, NamesrvConfig};
use remoting::settings::{Setting, WithoutEffect, read_properties};

use crate::{
    files, logs,
    output::{self, say, warn_line},
    told,
};

/// The most bytes of a configuration file.
const CONFIG_MAX_BYTES: u64 = 1 << 20;

/// Whatever kept a server from starting or going on.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Arguments of `staticfire namesrv`.
#[derive(Args)]
pub struct NamesrvArguments {
    /// Properties file, as for mqnamesrv
    #[arg(short = 'c', long = "configFile", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the configuration that is in force, and exit
    #[arg(short = 'p', long = "printConfigItem")]
    print: bool,
    /// Log more; may be repeated
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Arguments of `staticfire broker`.
#[derive(Args)]
pub struct BrokerArguments {
    /// Properties file, as for mqbroker
    #[arg(short = 'c', long = "configFile", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name servers, separated by semicolons; counts more than the file
    #[arg(short = 'n', long = "namesrvAddr", value_name = "ADDR;ADDR")]
    namesrv: Option<String>,
    /// Print the configuration that is in force, and exit
    #[arg(short = 'p', long = "printConfigItem")]
    print: bool,
    /// Log more; may be repeated
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Serves until SIGTERM or SIGINT.
pub fn namesrv(arguments: NamesrvArguments) -> ExitCode {
    told(namesrv_inner(&arguments))
}

/// Serves until SIGTERM or SIGINT.
pub fn broker(arguments: BrokerArguments) -> ExitCode {
    told(broker_inner(&arguments))
}

fn namesrv_inner(arguments: &NamesrvArguments) -> Result<(), Failure> {
    let (config, idle) = NamesrvConfig::read(read_file(arguments.config.as_ref())?)?;
    if arguments.print {
        return Ok(output::print(config.show())?);
    }
    logs::of_server(arguments.verbose);
    warn_of(&idle);
    host::real::run("namesrv", |_| async move {
        // Asked for before anything is opened: a signal during the start is not lost.
        let mut stop = std::pin::pin!(host::real::stop_signal());
        let server = host::select! {
            stopped = &mut stop => return Ok(stopped?),
            server = Namesrv::start(config) => server?,
        };
        listens(say!("name server listens on {}", server.local_addr()));
        stop.await?;
        server.shutdown().await;
        Ok::<(), Failure>(())
    })??;
    Ok(())
}

fn broker_inner(arguments: &BrokerArguments) -> Result<(), Failure> {
    let mut settings = read_file(arguments.config.as_ref())?;
    let from_flag = |value: &String| Setting { key: "namesrvAddr".into(), value: value.clone(), at: "-n".into() };
    settings.extend(arguments.namesrv.iter().map(from_flag));
    let (config, idle) = BrokerConfig::read(settings)?;
    if arguments.print {
        return Ok(output::print(config.show())?);
    }
    logs::of_server(arguments.verbose);
    warn_of(&idle);
    host::real::run("broker", |_| async move {
        let mut stop = std::pin::pin!(host::real::stop_signal());
        let mut config = Some(config);
        while let Some(settings) = config.take() {
            let mut start = std::pin::pin!(Broker::start(settings));
            // A start is not interrupted, recovery may be writing: the broker stops when it has started.
            let (server, stopped) = host::select! {
                stopped = &mut stop => (start.await?, Some(stopped?)),
                server = &mut start => (server?, None),
            };
            listens(say!("broker listens on {}", server.local_addr()));
            if stopped.is_none() {
                host::select! {
                    stopped = &mut stop => stopped?,
                    again = server.restart_wanted() => config = Some(again),
                }
            }
            server.shutdown().await?;
        }
        Ok::<(), Failure>(())
    })??;
    Ok(())
}

/// A server whose first line nobody can read serves all the same.
fn listens(said: Result<(), output::Unwritten>) {
    if let Err(error) = said {
        warn_line!("warning: {error}");
    }
}

fn warn_of(idle: &[WithoutEffect]) {
    for key in idle {
        warn_line!("warning: {key}");
    }
}

/// The settings of a file; none without one.
pub fn read_file(path: Option<&PathBuf>) -> Result<Vec<Setting>, Failure> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let text = files::read_text(path, CONFIG_MAX_BYTES)?;
    Ok(read_properties(&text, &path.display().to_string())?)
}
