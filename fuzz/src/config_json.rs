//! A file of settings beside a store: any bytes are loaded, or the backup is, or the start is refused with the file and
//! the reason; and what a broker writes in its place is JSON that it can read. It never panics and never hangs.
//!
//! The first byte says which file it is, the second one whether there is a backup; the rest is its content.

use std::{fs, path::Path};

use broker::{Broker, BrokerConfig, check_stored};
use remoting::settings::read_properties;

use super::store_dir::{folder, in_time};

const FILES: [&str; 5] =
    ["topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json", "logEpoch.json"];

/// Checks one input.
pub fn check(data: &[u8]) {
    let mut content = data.iter().copied();
    let (choice, backup) = (content.next().unwrap_or(0), content.next().unwrap_or(0));
    let content: Vec<u8> = content.collect();
    let name = FILES[usize::from(choice) % FILES.len()];
    let is_good = check_stored(name, &content).is_ok();
    let has_backup = backup % 2 == 1;
    let root = folder();
    let folder = root.path().join("config");
    let path = folder.join(name);
    fs::create_dir(&folder).expect("a directory can be made");
    fs::write(&path, &content).expect("a file can be written");
    if has_backup {
        let backup = if name == "logEpoch.json" { "{\"epoch\":7}" } else { "{}" };
        fs::write(folder.join(format!("{name}.bak")), backup).expect("a file can be written");
    }
    let config = config(root.path());
    let lives = async move {
        match Broker::start(config.clone()).await {
            Ok(broker) => {
                assert!(is_good || has_backup, "a broker starts with it");
                broker.shutdown().await.expect("it closes");
                // What it had no cause to write stays as it was, and the backup beside it.
                let is_as_it_was = |other: &&str| *other == name && fs::read(&path).is_ok_and(|now| now == content);
                FILES.iter().filter(|other| !is_as_it_was(other)).for_each(|other| written(&folder, other));
                let broker = Broker::start(config).await.expect("it starts with what it wrote");
                broker.shutdown().await.expect("it closes");
            }
            Err(error) => {
                let text = format!("{error}");
                assert!(text.contains(name), "{text}");
                assert!(!is_good, "refused, though nothing is wrong with it: {text}");
                assert!(fs::read(&path).is_ok_and(|now| now == content), "it was refused and changed");
            }
        }
    };
    if let Err(error) = host::real::run("fuzz", |host| in_time(host, lives)) {
        panic!("{name}: {error}");
    }
}

fn config(root: &Path) -> BrokerConfig {
    let text = format!(
        "storePathRootDir={}\nlistenPort=0\nmappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=2000\n\
         maxHashSlotNum=10\nmaxIndexNum=40",
        root.display()
    );
    BrokerConfig::read(read_properties(&text, "fuzz").expect("settings")).expect("settings of a broker").0
}

/// What a broker has written is strict JSON, which the reference reads, too.
fn written(folder: &Path, name: &str) {
    if let Ok(content) = fs::read(folder.join(name)) {
        let json: Result<serde_json::Value, _> = serde_json::from_slice(&content);
        assert!(json.is_ok() || check_stored(name, &content).is_ok(), "{name}: {json:?}");
    }
}
