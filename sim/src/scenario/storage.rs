//! Whether what a scenario sends fits into its brokers, and these onto their disks.

use broker::BrokerConfig;
use remoting::settings::Setting;

use super::{
    BrokerGroup, Scenario, ScenarioError,
    reader::{At, Source},
    tables::Places,
    units::print_size,
};

/// Log files that a store has at least: the one in use and the one that is made ahead. Their blocks are reserved.
const LOG_FILES: u64 = 2;

/// Refuses disks that are full before the first message, and bodies that no broker takes.
pub(super) fn check(source: &Source, scenario: &Scenario, places: &Places) -> Result<(), ScenarioError> {
    for (group, at) in scenario.brokers.iter().zip(&places.log_files) {
        let store = config_of(group).store;
        // At the first of these files are deleted that nobody has read, at the second writes are refused.
        let percent = store.clean_forcibly_level().min(store.warning_level());
        let room = group.disk_bytes / 100 * u64::from(percent);
        if LOG_FILES * store.commit_log_file_bytes > room {
            let (file, disk) = (print_size(store.commit_log_file_bytes), print_size(group.disk_bytes));
            let message = format!(
                "`mappedFileSizeCommitLog` of `{}` is {file}, and {LOG_FILES} such files take more than {percent} % of its `disk` of {disk}",
                group.name
            );
            let most = room / LOG_FILES / 4096 * 4;
            let help = format!("set `mappedFileSizeCommitLog` to at most {most}KiB, or make `disk` larger");
            return Err(source.error(at, message).with_help(help));
        }
    }
    for (producers, At { value: bytes, at }) in scenario.producers.iter().zip(&places.bodies) {
        let topic = scenario.topics.iter().find(|topic| topic.name == producers.topic);
        for broker in topic.iter().flat_map(|topic| &topic.brokers).filter_map(|name| scenario.broker(name)) {
            let store = config_of(broker).store;
            let (most, file) = (store.message_max_bytes as u64, store.commit_log_file_bytes);
            let (limit, key) = if most <= file { (most, "maxMessageSize") } else { (file, "mappedFileSizeCommitLog") };
            if *bytes > limit {
                let (bytes, limit) = (print_size(*bytes), print_size(limit));
                let message = format!("a body of {bytes}: `{key}` of `{}` is {limit}, which refuses it", broker.name);
                return Err(source.error(at, message));
            }
        }
    }
    Ok(())
}

/// The configuration of a group, whose settings have been checked one by one.
fn config_of(group: &BrokerGroup) -> BrokerConfig {
    let setting =
        |(key, value): &(String, String)| Setting { key: key.clone(), value: value.clone(), at: "config".to_owned() };
    BrokerConfig::read(group.config.iter().map(setting)).expect("each setting was checked").0
}
