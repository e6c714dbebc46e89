//! Apache's broker as the slave of ours, and ours as the slave of Apache's: one log on both, byte for byte, after load and
//! after both were killed.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::driver::{Driver, Java};
use crate::servers::{ANY_DISK, BROKER_NAME, Cluster, Maker, START_OR_STOP, free_ports, last_lines};

/// Longest wait for a slave, or for clients to see a master: the reference connects again after 6 s, its silence counts
/// after 20 s, and clients ask for routes every 30 s. A busy machine takes several times as long.
const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn apaches_slave_follows_our_master() {
    follow(Maker::Staticfire, Maker::Apache);
}

#[test]
fn our_slave_follows_apaches_master() {
    follow(Maker::Apache, Maker::Staticfire);
}

fn follow(of_master: Maker, of_slave: Maker) {
    let Some(java) = Java::find() else { return };
    // Only its name server and its folder are used.
    let mut cluster = Cluster::new(java);
    cluster.start_namesrv();
    let [master_port, slave_port] = free_ports();
    let names = cluster.namesrv_address();
    let master_settings = "brokerId=0\nbrokerRole=ASYNC_MASTER";
    // The name server says where the master is: haMasterAddress does nothing in Apache's 5.3.3.
    let slave_settings = "brokerId=1\nbrokerRole=SLAVE";
    let folder = cluster.folder().to_owned();
    let mut master = Node::new(java, of_master, &folder, "master", master_port, master_settings);
    let mut slave = Node::new(java, of_slave, &folder, "slave", slave_port, slave_settings);
    master.start(&names);
    slave.start(&names);
    let mut driver = Driver::start(java, &names, &folder);
    send_when_possible(&mut driver, "begin", &master);
    // An empty slave begins with its master's last file, which must still be the first one then.
    assert_follows(&master, &slave);

    // Over the end of a file, and a message of many frames.
    driver.send("copied", "sync", "first", 450, 3000);
    driver.send("copied", "sync", "big", 2, 300_000);
    assert_follows(&master, &slave);

    slave.kill();
    driver.send("copied", "sync", "alone", 50, 3000);
    slave.start(&names);
    assert_follows(&master, &slave);
    driver.send("copied", "sync", "again", 50, 100);
    assert_follows(&master, &slave);

    master.kill();
    master.start(&names);
    send_when_possible(&mut driver, "returned", &master);
    driver.send("copied", "sync", "more", 50, 3000);
    assert_follows(&master, &slave);
}

/// The client needs a while to see that the broker is there.
fn send_when_possible(driver: &mut Driver, prefix: &str, master: &Node) {
    let began = Instant::now();
    while let Err(why) = driver.try_run(&format!("send copied sync {prefix} 1 10")) {
        assert!(began.elapsed() < PATIENCE, "the master does not take messages: {why}\n{}", master.last_lines());
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Waits until the slave has exactly the master's log.
fn assert_follows(master: &Node, slave: &Node) {
    let began = Instant::now();
    loop {
        let (of_master, of_slave) = (master.log(), slave.log());
        if of_master == of_slave && !of_master.is_empty() {
            return;
        }
        let parts = |log: &BTreeMap<String, Vec<u8>>| {
            log.iter().map(|(name, bytes)| (name.clone(), bytes.len())).collect::<Vec<_>>()
        };
        assert!(
            began.elapsed() < PATIENCE,
            "the logs differ: {:?} of {:?}, {:?} of {:?}\n{}{}",
            parts(&of_master),
            master.maker,
            parts(&of_slave),
            slave.maker,
            master.last_lines(),
            slave.last_lines()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A broker with files below a folder of its own.
struct Node {
    java: &'static Java,
    maker: Maker,
    folder: PathBuf,
    port: u16,
    process: Option<Child>,
}

impl Node {
    fn new(java: &'static Java, maker: Maker, folder: &Path, name: &str, port: u16, settings: &str) -> Node {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let at = folder.display();
        let config = format!(
            "brokerName={BROKER_NAME}\nbrokerClusterName=conformance\nlistenPort={port}\nbindAddress=127.0.0.1\n\
             brokerIP1=127.0.0.1\nbrokerIP2=127.0.0.1\nstorePathRootDir={at}/store\n\
             storePathCommitLog={at}/store/commitlog\nmappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=6000\n\
             autoCreateTopicEnable=true\nmaxHashSlotNum=1000\nmaxIndexNum=1000\ntimerWheelEnable=false\n{ANY_DISK}\n{settings}\n"
        );
        std::fs::write(folder.join("broker.conf"), config).unwrap();
        Node { java, maker, folder, port, process: None }
    }

    fn start(&mut self, names: &str) {
        let mut command = match self.maker {
            Maker::Apache => self.java.command("org.apache.rocketmq.broker.BrokerStartup", &self.folder),
            Maker::Staticfire => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_staticfire"));
                command.arg("broker").current_dir(&self.folder);
                command
            }
        };
        command.args(["-c", "broker.conf", "-n", names]);
        let log = File::options().create(true).append(true).open(self.folder.join("broker.log")).unwrap();
        let mut process = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = process.try_wait().unwrap();
            assert!(ended.is_none(), "the broker ended with {ended:?}\n{}", self.last_lines());
            assert!(began.elapsed() < 3 * START_OR_STOP, "the broker does not open its port\n{}", self.last_lines());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.process = Some(process);
    }

    /// As `kill -9` does.
    fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// The files of its log that hold something, without the zeros at their ends.
    fn log(&self) -> BTreeMap<String, Vec<u8>> {
        let mut log = BTreeMap::new();
        for file in std::fs::read_dir(self.folder.join("store/commitlog")).into_iter().flatten() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            // It may be gone again, or be another file.
            let Ok(mut bytes) = std::fs::read(&path) else { continue };
            let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            bytes.truncate(end);
            if name.len() == 20 && end > 0 {
                log.insert(name, bytes);
            }
        }
        log
    }

    fn last_lines(&self) -> String {
        last_lines(&std::fs::read_to_string(self.folder.join("broker.log")).unwrap_or_default())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // Already gone is as good.
            process.kill().ok();
            process.wait().ok();
        }
    }
}
