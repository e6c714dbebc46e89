//! A server under load, as a child process of this binary.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::BoxError;
use super::floor::Answering;
use super::template::Form;

/// How often, and with which pause, a server is asked whether it listens.
const START_ATTEMPTS: u32 = 200;
const START_PAUSE: Duration = Duration::from_millis(50);

/// A running child with a folder of its own. Killed and swept away on drop.
pub struct Server {
    process: Child,
    address: SocketAddr,
    folder: Option<PathBuf>,
}

impl Server {
    /// A broker with an empty store, default settings, and no name server.
    pub fn broker() -> Result<Server, BoxError> {
        let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let folder = std::env::temp_dir().join(format!("staticfire-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let settings = folder.join("broker.conf");
        let store = folder.join("store");
        std::fs::write(
            &settings,
            format!(
                "brokerName=broker-a\nbrokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort={port}\n\
                 storePathRootDir={}\nstorePathCommitLog={}\ncleanFileForciblyEnable=false\n\
                 rocketmq.broker.diskSpaceWarningLevelRatio=1\n",
                store.display(),
                store.join("commitlog").display()
            ),
        )?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("broker").arg("-c").arg(&settings).stdin(Stdio::null()).stdout(Stdio::null());
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = Server { process: command.spawn()?, address, folder: Some(folder) };
        server.wait_until_it_listens()?;
        Ok(server)
    }

    /// A floor, in the same kind of process.
    pub fn floor(form: Form, answering: Answering) -> Result<Server, BoxError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "floor", "--header", &form.to_string(), "--answers", &answering.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let output = process.stdout.take().ok_or("the floor has a standard output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let port: u16 = line.trim().parse().map_err(|_| format!("the floor said {line:?} in place of its port"))?;
        Ok(Server { process, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), folder: None })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Memory that the process holds now, where the machine tells (Linux).
    pub fn resident_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(Path::new("/proc").join(self.process.id().to_string()).join("status"));
        let line = status.ok()?.lines().find_map(|line| line.strip_prefix("VmRSS:").map(str::to_owned))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
    }

    fn wait_until_it_listens(&mut self) -> Result<(), BoxError> {
        for _ in 0..START_ATTEMPTS {
            if std::net::TcpStream::connect(self.address).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.process.try_wait()? {
                return Err(format!("the broker ended before it listened: {status}").into());
            }
            std::thread::sleep(START_PAUSE);
        }
        Err(format!("the broker does not listen on {}", self.address).into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing here can be done about a failure, and the next line does not depend on it.
        self.process.kill().ok();
        self.process.wait().ok();
        if let Some(folder) = &self.folder {
            std::fs::remove_dir_all(folder).ok();
        }
    }
}
