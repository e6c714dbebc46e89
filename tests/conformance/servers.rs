//! A name server and a broker as processes on loopback, with files below a folder of their own: staticfire's, or
//! Apache's with the same configuration files.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::driver::Java;

/// The machine's disk may be as full as it is. For the reference the last one is a system property.
pub const ANY_DISK: &str =
    "cleanFileForciblyEnable=false\ndiskMaxUsedSpaceRatio=100\nrocketmq.broker.diskSpaceWarningLevelRatio=1";

pub const BROKER_NAME: &str = "broker-a";
pub const CLUSTER_NAME: &str = "conformance";

/// Longest time a server may take to open its port, or to stop. Apache's took 30 s to start on a machine with more work
/// than cores.
pub const START_OR_STOP: Duration = Duration::from_secs(60);

/// Whose servers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    Staticfire,
    Apache,
}

/// One name server, one broker, and if need be a slave of it. They end with it.
pub struct Cluster {
    java: &'static Java,
    maker: Maker,
    folder: TempDir,
    namesrv_port: u16,
    broker_port: u16,
    slave_port: u16,
    namesrv: Option<Child>,
    broker: Option<Child>,
    slave: Option<Child>,
}

impl Cluster {
    /// Of the maker that `STATICFIRE_CONFORMANCE` names, ours without it.
    pub fn new(java: &'static Java) -> Cluster {
        let maker = match std::env::var("STATICFIRE_CONFORMANCE").as_deref() {
            Err(_) | Ok("staticfire") => Maker::Staticfire,
            Ok("apache") => Maker::Apache,
            Ok(other) => panic!("STATICFIRE_CONFORMANCE is `staticfire` or `apache`, not `{other}`"),
        };
        Cluster::of(java, maker)
    }

    pub fn of(java: &'static Java, maker: Maker) -> Cluster {
        let [namesrv_port, broker_port, slave_port] = free_ports();
        let folder = TempDir::with_prefix("staticfire-conformance-").unwrap();
        let at = folder.path().display();
        let namesrv = format!(
            "listenPort={namesrv_port}\nbindAddress=127.0.0.1\nkvConfigPath={at}/namesrv/kvConfig.json\n\
             configStorePath={at}/namesrv/namesrv.properties\n"
        );
        let broker = |port: u16, store: &str| {
            format!(
                "brokerName={BROKER_NAME}\nbrokerClusterName={CLUSTER_NAME}\nlistenPort={port}\n\
                 bindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\nbrokerIP2=127.0.0.1\n\
                 storePathRootDir={at}/{store}\nstorePathCommitLog={at}/{store}/commitlog\n\
                 mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=6000\nautoCreateTopicEnable=true\n\
                 maxHashSlotNum=1000\nmaxIndexNum=1000\ntimerWheelEnable=false\n{ANY_DISK}\n"
            )
        };
        let master = broker(broker_port, "store") + "brokerId=0\n";
        let slave = broker(slave_port, "slave-store") + "brokerId=1\nbrokerRole=SLAVE\n";
        std::fs::write(folder.path().join("namesrv.conf"), namesrv).unwrap();
        std::fs::write(folder.path().join("broker.conf"), master).unwrap();
        std::fs::write(folder.path().join("slave.conf"), slave).unwrap();
        Cluster { java, maker, folder, namesrv_port, broker_port, slave_port, namesrv: None, broker: None, slave: None }
    }

    /// The broker is to begin with a copy of this store, whose index files are larger than those of new stores here.
    pub fn adopt(&mut self, store: &Path) {
        copy(store, &self.folder().join("store"));
        self.change_config("maxIndexNum=1000", "maxIndexNum=4000");
    }

    /// The broker is to keep its timer wheel, without which the reference fails to delete a topic.
    pub fn keep_timers(&mut self) {
        self.change_config("timerWheelEnable=false", "timerWheelEnable=true");
    }

    fn change_config(&self, from: &str, to: &str) {
        let path = self.folder().join("broker.conf");
        let config = std::fs::read_to_string(&path).unwrap();
        assert!(config.contains(from), "{config}");
        std::fs::write(path, config.replace(from, to)).unwrap();
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn namesrv_address(&self) -> String {
        format!("127.0.0.1:{}", self.namesrv_port)
    }

    pub fn broker_address(&self) -> String {
        format!("127.0.0.1:{}", self.broker_port)
    }

    pub fn start_namesrv(&mut self) {
        let mut command = self.server(self.maker, "org.apache.rocketmq.namesrv.NamesrvStartup", "namesrv");
        command.args(["-c", "namesrv.conf"]);
        self.namesrv = Some(self.start(command, "namesrv", self.namesrv_port));
    }

    pub fn start_broker(&mut self) {
        self.start_broker_of(self.maker);
    }

    /// The other maker's broker takes the same port and the same store.
    pub fn start_broker_of(&mut self, maker: Maker) {
        assert!(self.broker.is_none(), "the broker before it was not stopped");
        let mut command = self.server(maker, "org.apache.rocketmq.broker.BrokerStartup", "broker");
        command.args(["-c", "broker.conf", "-n", &self.namesrv_address()]);
        self.broker = Some(self.start(command, "broker", self.broker_port));
    }

    /// A slave of the broker, with a store of its own.
    pub fn start_slave_of(&mut self, maker: Maker) {
        let mut command = self.server(maker, "org.apache.rocketmq.broker.BrokerStartup", "broker");
        command.args(["-c", "slave.conf", "-n", &self.namesrv_address()]);
        self.slave = Some(self.start(command, "slave", self.slave_port));
    }

    /// A file of settings of the slave, without blanks and quotes, which Apache's writes differently; empty if it is not
    /// there yet.
    pub fn slave_table(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.folder().join("slave-store/config").join(name)).unwrap_or_default();
        text.chars().filter(|c| !c.is_whitespace() && *c != '"').collect()
    }

    /// Asks the broker to stop, as an operator does, and waits until it has.
    pub fn stop_broker(&mut self) {
        let mut broker = self.broker.take().expect("a broker runs");
        let asked = Command::new("kill").args(["-TERM", &broker.id().to_string()]).status().unwrap();
        assert!(asked.success(), "kill -TERM: {asked}");
        let began = Instant::now();
        while broker.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < START_OR_STOP, "the broker does not stop\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the broker between two instructions, as `kill -9` does.
    pub fn kill_broker(&mut self) {
        let mut broker = self.broker.take().expect("a broker runs");
        broker.kill().unwrap();
        broker.wait().unwrap();
    }

    /// The store of a stopped broker has nothing wrong.
    pub fn check_store(&self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_staticfire"));
        let output = command.args(["store", "check", "-c", "broker.conf", "store"]).current_dir(self.folder()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    /// What the servers wrote, for the message of a test that failed.
    pub fn logs(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.folder().join(name)).unwrap_or_default();
        ["namesrv.log", "broker.log", "slave.log", "driver.log"]
            .map(|name| format!("--- {name}\n{}", last_lines(&read(name))))
            .concat()
    }

    fn server(&self, maker: Maker, class: &str, role: &str) -> Command {
        if maker == Maker::Apache {
            return self.java.command(class, self.folder());
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_staticfire"));
        command.arg(role).current_dir(self.folder());
        command
    }

    fn start(&self, mut command: Command, role: &str, port: u16) -> Child {
        let path = self.folder().join(format!("{role}.log"));
        let log = File::options().create(true).append(true).open(path).unwrap();
        let mut server = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.try_wait().unwrap();
            assert!(ended.is_none(), "the {role} ended with {ended:?}\n{}", self.logs());
            if began.elapsed() > START_OR_STOP {
                server.kill().ok();
                server.wait().ok();
                panic!("the {role} does not open its port\n{}", self.logs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for server in [&mut self.slave, &mut self.broker, &mut self.namesrv].into_iter().flatten() {
            // Already gone is as good.
            server.kill().ok();
            server.wait().ok();
        }
    }
}

/// Copies a directory. Files are written anew, so that those of a read-only one can be changed.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => std::fs::write(target, std::fs::read(entry.path()).unwrap()).unwrap(),
        }
    }
}

/// Ports that nobody listens on, each given once. They lie below those that the system gives to outgoing connections:
/// one of them could be taken by a client between this look and the start of the server. The three ports below each stay
/// free, since Apache's broker listens two below its own as well.
pub fn free_ports<const N: usize>() -> [u16; N] {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 10_000;
    std::array::from_fn(|_| {
        let candidates = std::iter::repeat_with(|| {
            // Test programs that run at the same time begin at different places.
            let offset = std::process::id().wrapping_mul(388).wrapping_add(GIVEN.fetch_add(4, Ordering::Relaxed));
            u16::try_from(FIRST + offset % COUNT).expect("the range lies below 65536")
        });
        let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        candidates.take(COUNT as usize).find(is_free).expect("some port of ten thousand is free")
    })
}

/// The end of a log, which is where the reason stands.
pub fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n") + "\n"
}
