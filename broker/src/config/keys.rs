//! The keys of a broker's configuration: which do something, and which of the reference's do nothing here.
//!
//! Source: `BrokerConfig`, `MessageStoreConfig`, `NettyServerConfig`, `NettyClientConfig` and `AuthConfig` of the
//! reference.

use std::net::IpAddr;

use message::DelayLevels;
use remoting::settings::{
    Field::{Addresses, Count, Flag, Other, Path, Port, Size, Text, Time},
    Key, Keys,
    TimeUnit::{Hours, Millis, Seconds},
};
use store::FlushDiskType;

use super::{BrokerConfig, Role, replication, without_effect::WITHOUT_EFFECT};

/// The reference keeps file sizes in 32 bits.
const FILE_MAX_BYTES: u64 = 1 << 31;

/// The reference counts slots and entries in 31 bits.
const INDEX_MAX: u32 = i32::MAX as u32;

/// A whole frame of the wire.
const FRAME_BYTES: u64 = 16 << 20;

pub(super) static KEYS: Keys<BrokerConfig> = Keys { supported: SUPPORTED, without_effect: WITHOUT_EFFECT };

static SUPPORTED: &[Key<BrokerConfig>] = &[
    Key { name: "brokerClusterName", field: Text(|c| &mut c.cluster) },
    Key { name: "brokerName", field: Text(|c| &mut c.name) },
    Key { name: "brokerId", field: Other { read: read_id, show: |c| c.id.to_string() } },
    Key { name: "brokerRole", field: Other { read: read_role, show: |c| c.role.to_string() } },
    Key {
        name: "haMasterAddress",
        field: Other { read: replication::read_master_address, show: replication::show_master_address },
    },
    Key { name: "haSendHeartbeatInterval", field: Time(|c| &mut c.replication.heartbeat_interval, Millis) },
    Key { name: "haHousekeepingInterval", field: Time(|c| &mut c.replication.housekeeping_interval, Millis) },
    Key {
        name: "haTransferBatchSize",
        field: Size(|c| &mut c.replication.batch_max_bytes, 1..=replication::FRAME_BODY_MAX_BYTES),
    },
    Key { name: "haMaxGapNotInSync", field: Size(|c| &mut c.replication.in_sync_gap_bytes, 0..=i64::MAX as u64) },
    Key { name: "haFlowControlEnable", field: Flag(|c| &mut c.replication.flow_control) },
    Key { name: "maxHaTransferByteInSecond", field: Size(|c| &mut c.replication.flow_max_bytes, 1..=i64::MAX as u64) },
    Key { name: "slaveTimeout", field: Time(|c| &mut c.replication.copy_timeout, Millis) },
    Key {
        name: "totalReplicas",
        field: Other { read: replication::read_total, show: |c| c.replication.total(c.role).to_string() },
    },
    Key {
        name: "inSyncReplicas",
        field: Other { read: replication::read_in_sync, show: |c| c.replication.in_sync(c.role).to_string() },
    },
    Key {
        name: "minInSyncReplicas",
        field: Count(|c| &mut c.replication.min_in_sync_replicas, 1..=replication::REPLICAS_MAX),
    },
    Key { name: "slaveReadEnable", field: Flag(|c| &mut c.replication.slave_read) },
    Key { name: "offsetCheckInSlave", field: Flag(|c| &mut c.replication.offset_check_in_slave) },
    Key { name: "haRewindBytes", field: Size(|c| &mut c.replication.rewind_bytes, 1..=1 << 40) },
    Key {
        name: "haWhenAhead",
        field: Other { read: replication::read_when_ahead, show: |c| c.replication.when_ahead.to_string() },
    },
    Key {
        name: "haSyncFrom",
        field: Other { read: replication::read_sync_from, show: |c| c.replication.sync_from.to_string() },
    },
    Key { name: "namesrvAddr", field: Addresses(|c| &mut c.namesrv) },
    Key {
        name: "bindAddress",
        field: Other { read: |c, text| read_ip(text).map(|ip| c.bind = ip), show: |c| c.bind.to_string() },
    },
    Key { name: "listenPort", field: Port(|c| &mut c.port) },
    Key {
        name: "brokerIP1",
        field: Other {
            read: |c, text| read_optional_ip(text).map(|ip| c.advertised = ip),
            show: |c| show_optional_ip(c.advertised),
        },
    },
    Key {
        name: "brokerIP2",
        field: Other {
            read: |c, text| read_optional_ip(text).map(|ip| c.replication_advertised = ip),
            show: |c| show_optional_ip(c.replication_advertised),
        },
    },
    Key { name: "brokerPermission", field: Other { read: read_permission, show: |c| c.permission.to_string() } },
    Key { name: "defaultTopicQueueNums", field: Count(|c| &mut c.default_topic_queues, 1..=65_536) },
    Key { name: "autoCreateTopicEnable", field: Flag(|c| &mut c.auto_create_topic) },
    Key { name: "autoCreateSubscriptionGroup", field: Flag(|c| &mut c.auto_create_group) },
    Key { name: "clusterTopicEnable", field: Flag(|c| &mut c.cluster_topic) },
    Key { name: "brokerTopicEnable", field: Flag(|c| &mut c.broker_topic) },
    Key { name: "traceTopicEnable", field: Flag(|c| &mut c.trace_topic_enabled) },
    Key { name: "msgTraceTopicName", field: Text(|c| &mut c.trace_topic) },
    Key { name: "regionId", field: Text(|c| &mut c.region) },
    Key { name: "traceOn", field: Flag(|c| &mut c.trace_on) },
    Key {
        name: "startAcceptSendRequestTimeStamp",
        field: Other { read: read_start_time, show: |c| c.accept_sends_from_ms.to_string() },
    },
    Key { name: "flushConsumerOffsetInterval", field: Time(|c| &mut c.offsets_interval, Millis) },
    Key { name: "consumerOffsetUpdateVersionStep", field: Count(|c| &mut c.offsets_version_step, 1..=1_000_000) },
    Key { name: "messageDelayLevel", field: Other { read: read_delay_levels, show: |c| c.delay_level_text.clone() } },
    Key { name: "flushDelayOffsetInterval", field: Time(|c| &mut c.delay_interval, Millis) },
    Key { name: "delayOffsetUpdateVersionStep", field: Count(|c| &mut c.delay_version_step, 1..=1_000_000) },
    Key { name: "longPollingEnable", field: Flag(|c| &mut c.long_polling) },
    Key { name: "shortPollingTimeMills", field: Time(|c| &mut c.short_polling, Millis) },
    Key { name: "litePullMessageEnable", field: Flag(|c| &mut c.lite_pull) },
    Key { name: "notifyConsumerIdsChangedEnable", field: Flag(|c| &mut c.notify_members) },
    Key { name: "channelExpiredTimeout", field: Time(|c| &mut c.client_expiry, Millis) },
    Key { name: "serverChannelMaxIdleTimeSeconds", field: Time(|c| &mut c.idle_limit, Seconds) },
    Key { name: "registerNameServerPeriod", field: Time(|c| &mut c.register_interval, Millis) },
    Key { name: "registerBrokerTimeoutMills", field: Time(|c| &mut c.register_timeout, Millis) },
    Key { name: "compressedRegister", field: Flag(|c| &mut c.register_compressed) },
    Key { name: "storePathRootDir", field: Path(|c| &mut c.store.root) },
    Key {
        name: "storePathCommitLog",
        field: Other {
            read: |c, text| {
                c.store.commit_log_dir = (!text.is_empty()).then(|| text.into());
                Ok(())
            },
            show: |c| c.store.commit_log_dir.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
        },
    },
    Key { name: "mappedFileSizeCommitLog", field: Size(|c| &mut c.store.commit_log_file_bytes, 4096..=FILE_MAX_BYTES) },
    Key { name: "transientStorePoolEnable", field: Flag(|c| &mut c.store.pool_enabled) },
    Key { name: "transientStorePoolSize", field: Count(|c| &mut c.store.pool_buffers, 1..=65_536) },
    Key { name: "fastFailIfNoBufferInStorePool", field: Flag(|c| &mut c.store.pool_fails_fast) },
    Key { name: "commitIntervalCommitLog", field: Time(|c| &mut c.store.commit_interval, Millis) },
    Key {
        name: "commitCommitLogLeastPages",
        field: Other {
            read: |c, text| read_number(text).map(|pages| c.store.commit_least_pages = pages),
            show: |c| c.store.commit_least_pages.to_string(),
        },
    },
    Key { name: "commitCommitLogThoroughInterval", field: Time(|c| &mut c.store.commit_thorough_interval, Millis) },
    Key { name: "wakeCommitWhenPutMessage", field: Flag(|c| &mut c.store.commit_on_put) },
    Key { name: "warmMapedFileEnable", field: Flag(|c| &mut c.store.warm_files) },
    Key {
        name: "flushLeastPagesWhenWarmMapedFile",
        field: Other {
            read: |c, text| read_number(text).map(|pages| c.store.warm_flush_pages = pages),
            show: |c| c.store.warm_flush_pages.to_string(),
        },
    },
    Key { name: "dataReadAheadEnable", field: Flag(|c| &mut c.store.read_ahead) },
    Key {
        name: "mappedFileSizeConsumeQueue",
        field: Size(|c| &mut c.store.consume_queue_file_bytes, 20..=FILE_MAX_BYTES),
    },
    Key { name: "messageIndexEnable", field: Flag(|c| &mut c.store.message_index) },
    Key { name: "maxHashSlotNum", field: Count(|c| &mut c.store.index_slots, 1..=INDEX_MAX) },
    Key { name: "maxIndexNum", field: Count(|c| &mut c.store.index_entries, 2..=INDEX_MAX) },
    Key { name: "defaultQueryMaxNum", field: Count(|c| &mut c.unique_query_max_count, 1..=65_536) },
    Key { name: "maxMsgsNumBatch", field: Count(|c| &mut c.store.query_max_count, 1..=65_536) },
    Key { name: "flushDiskType", field: Other { read: read_flush, show: show_flush } },
    Key { name: "syncFlushTimeout", field: Time(|c| &mut c.store.sync_flush_timeout, Millis) },
    Key { name: "osPageCacheBusyTimeOutMills", field: Time(|c| &mut c.store.page_cache_busy_timeout, Millis) },
    Key { name: "flushIntervalCommitLog", field: Time(|c| &mut c.store.flush_interval, Millis) },
    Key {
        name: "flushCommitLogLeastPages",
        field: Other {
            read: |c, text| read_number(text).map(|pages| c.store.flush_least_pages = pages),
            show: |c| c.store.flush_least_pages.to_string(),
        },
    },
    Key { name: "flushCommitLogThoroughInterval", field: Time(|c| &mut c.store.flush_thorough_interval, Millis) },
    Key { name: "flushIntervalConsumeQueue", field: Time(|c| &mut c.store.queue_flush_interval, Millis) },
    Key {
        name: "flushConsumeQueueLeastPages",
        field: Other {
            read: |c, text| read_number(text).map(|pages| c.store.queue_flush_least_pages = pages),
            show: |c| c.store.queue_flush_least_pages.to_string(),
        },
    },
    Key {
        name: "flushConsumeQueueThoroughInterval",
        field: Time(|c| &mut c.store.queue_flush_thorough_interval, Millis),
    },
    Key {
        name: "maxMessageSize",
        field: Other { read: read_message_max, show: |c| c.store.message_max_bytes.to_string() },
    },
    Key { name: "deleteWhen", field: Other { read: read_delete_when, show: show_delete_when } },
    Key { name: "fileReservedTime", field: Time(|c| &mut c.store.file_reserved, Hours) },
    Key { name: "cleanResourceInterval", field: Time(|c| &mut c.store.clean_interval, Millis) },
    Key { name: "deleteCommitLogFilesInterval", field: Time(|c| &mut c.store.delete_log_file_pause, Millis) },
    Key { name: "deleteConsumeQueueFilesInterval", field: Time(|c| &mut c.store.delete_queue_file_pause, Millis) },
    Key {
        name: "deleteFileBatchMax",
        field: Other {
            read: |c, text| read_number(text).map(|count| c.store.delete_batch_max = count),
            show: |c| c.store.delete_batch_max.to_string(),
        },
    },
    Key {
        name: "diskMaxUsedSpaceRatio",
        field: Other {
            read: |c, text| read_percent(text).map(|percent| c.store.disk_max_used_percent = percent),
            show: |c| c.store.disk_max_used_percent.to_string(),
        },
    },
    Key {
        name: "diskSpaceCleanForciblyRatio",
        field: Other {
            read: |c, text| read_percent(text).map(|percent| c.store.disk_clean_forcibly_percent = percent),
            show: |c| c.store.disk_clean_forcibly_percent.to_string(),
        },
    },
    Key {
        name: "diskSpaceWarningLevelRatio",
        field: Other {
            read: |c, text| read_percent(text).map(|percent| c.store.disk_warning_percent = percent),
            show: |c| c.store.disk_warning_percent.to_string(),
        },
    },
    Key {
        name: "rocketmq.broker.diskSpaceCleanForciblyRatio",
        field: Other {
            read: |c, text| read_fraction(text).map(|percent| c.store.disk_clean_forcibly_override = percent),
            show: |c| show_fraction(c.store.disk_clean_forcibly_override),
        },
    },
    Key {
        name: "rocketmq.broker.diskSpaceWarningLevelRatio",
        field: Other {
            read: |c, text| read_fraction(text).map(|percent| c.store.disk_warning_override = percent),
            show: |c| show_fraction(c.store.disk_warning_override),
        },
    },
    Key { name: "cleanFileForciblyEnable", field: Flag(|c| &mut c.store.clean_file_forcibly) },
    Key { name: "checkCRCOnRecover", field: Flag(|c| &mut c.store.check_crc_on_recover) },
    Key { name: "readUnCommitted", field: Flag(|c| &mut c.store.read_uncommitted) },
    Key {
        name: "accessMessageInMemoryMaxRatio",
        field: Other {
            read: |c, text| read_percent(text).map(|percent| c.store.memory_max_percent = percent),
            show: |c| c.store.memory_max_percent.to_string(),
        },
    },
    Key {
        name: "maxTransferBytesOnMessageInMemory",
        field: Size(|c| &mut c.store.transfer_memory_bytes, 1..=FRAME_BYTES),
    },
    Key { name: "maxTransferCountOnMessageInMemory", field: Count(|c| &mut c.store.transfer_memory_count, 1..=65_536) },
    Key { name: "maxTransferBytesOnMessageInDisk", field: Size(|c| &mut c.store.transfer_disk_bytes, 1..=FRAME_BYTES) },
    Key { name: "maxTransferCountOnMessageInDisk", field: Count(|c| &mut c.store.transfer_disk_count, 1..=65_536) },
    Key { name: "maxFilterMessageSize", field: Size(|c| &mut c.store.filter_max_bytes, 20..=FILE_MAX_BYTES) },
    Key { name: "acceptDamagedCommitLog", field: Flag(|c| &mut c.store.accept_damaged_log) },
];

fn read_role(config: &mut BrokerConfig, text: &str) -> Result<(), String> {
    config.role = match text {
        "ASYNC_MASTER" => Role::AsyncMaster,
        "SYNC_MASTER" => Role::SyncMaster,
        "SLAVE" => Role::Slave,
        _ => return Err("ASYNC_MASTER, SYNC_MASTER or SLAVE".to_owned()),
    };
    Ok(())
}

fn read_id(config: &mut BrokerConfig, text: &str) -> Result<(), String> {
    config.id = text.parse().map_err(|_| "a number, 0 for a master")?;
    Ok(())
}

fn read_permission(config: &mut BrokerConfig, text: &str) -> Result<(), String> {
    config.permission = text.parse().ok().filter(|perm| *perm <= 7).ok_or("permission bits from 0 to 7")?;
    Ok(())
}

fn read_start_time(config: &mut BrokerConfig, text: &str) -> Result<(), String> {
    config.accept_sends_from_ms = text.parse().map_err(|_| "milliseconds since 1970".to_owned())?;
    Ok(())
}

fn read_delay_levels(config: &mut BrokerConfig, text: &str) -> Result<(), String> {
    config.store.delay_levels =
        DelayLevels::parse(text).map_err(|error| format!("delays such as `1s 5s 1m`: {error}"))?;
    text.clone_into(&mut config.delay_level_text);
    Ok(())
}

fn read_ip(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| "an IP address".to_owned())
}

/// An optional address: empty text for none.
fn read_optional_ip(text: &str) -> Result<Option<IpAddr>, String> {
    if text.is_empty() { Ok(None) } else { read_ip(text).map(Some) }
}

fn show_optional_ip(ip: Option<IpAddr>) -> String {
    ip.map(|ip| ip.to_string()).unwrap_or_default()
}

fn read_flush(config: &mut BrokerConfig, text: &str) -> Result<(), String> {
    config.store.flush_disk_type = match text {
        "ASYNC_FLUSH" => FlushDiskType::Async,
        "SYNC_FLUSH" => FlushDiskType::Sync,
        _ => return Err("ASYNC_FLUSH or SYNC_FLUSH".to_owned()),
    };
    Ok(())
}

fn show_flush(config: &BrokerConfig) -> String {
    match config.store.flush_disk_type {
        FlushDiskType::Async => "ASYNC_FLUSH",
        FlushDiskType::Sync => "SYNC_FLUSH",
    }
    .to_owned()
}

fn read_number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "a number".to_owned())
}

fn read_percent(text: &str) -> Result<u8, String> {
    text.parse().ok().filter(|percent| *percent <= 100).ok_or_else(|| "a percentage from 0 to 100".to_owned())
}

/// Used space is a whole percentage, so a fraction is as good as the largest percentage that it reaches. As with the
/// system properties of the reference, nothing means that the key counts that is bounded.
fn read_fraction(text: &str) -> Result<Option<u8>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let fraction = text.parse().ok().filter(|fraction: &f64| (0.0..=1.0).contains(fraction));
    let fraction = fraction.ok_or("a fraction from 0 to 1")?;
    Ok((0..=100).rev().find(|percent| f64::from(*percent) / 100.0 <= fraction))
}

fn show_fraction(percent: Option<u8>) -> String {
    percent.map_or_else(String::new, |percent| (f64::from(percent) / 100.0).to_string())
}

/// A body must leave room for the header in a frame.
fn read_message_max(config: &mut BrokerConfig, text: &str) -> Result<(), String> {
    let size: Option<usize> = text.parse().ok();
    let size = size.filter(|size| (1..=FRAME_BYTES as usize - (1 << 20)).contains(size));
    config.store.message_max_bytes = size.ok_or("a number of bytes up to 15728640")?;
    Ok(())
}

fn read_delete_when(config: &mut BrokerConfig, text: &str) -> Result<(), String> {
    let hours = text.split(';').map(str::trim).filter(|hour| !hour.is_empty());
    let hours: Option<Vec<u8>> = hours.map(|hour| hour.parse().ok().filter(|hour| *hour < 24)).collect();
    config.store.delete_when = hours.ok_or("hours from 00 to 23, separated by semicolons")?;
    Ok(())
}

fn show_delete_when(config: &BrokerConfig) -> String {
    let hours: Vec<String> = config.store.delete_when.iter().map(|hour| format!("{hour:02}")).collect();
    hours.join(";")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use remoting::settings::read_properties;

    use super::*;
    use crate::config::ReplicationConfig;

    fn read(text: &str) -> BrokerConfig {
        BrokerConfig::read(read_properties(text, "broker.conf").unwrap()).unwrap().0
    }

    #[test]
    fn shown_configuration_reads_back_as_the_same() {
        let config = read("brokerIP1=10.0.0.1\nnamesrvAddr=a:1;b:2\nmessageDelayLevel=1s 2m\nflushDiskType=SYNC_FLUSH");
        assert_eq!(read(&config.show()).show(), config.show());
        assert!(config.show().contains("messageDelayLevel=1s 2m\n"));
    }

    #[test]
    fn no_key_is_both_supported_and_without_effect() {
        for (index, key) in SUPPORTED.iter().enumerate() {
            assert!(!WITHOUT_EFFECT.contains(&key.name), "{}", key.name);
            assert!(SUPPORTED[..index].iter().all(|other| other.name != key.name), "{}", key.name);
        }
        assert!(WITHOUT_EFFECT.is_sorted());
    }

    #[test]
    fn bad_values_name_the_key() {
        let error =
            |text: &str| BrokerConfig::read(read_properties(text, "broker.conf").unwrap()).unwrap_err().to_string();
        assert_says(&error("brokerRole=MASTER"), "ASYNC_MASTER, SYNC_MASTER or SLAVE");
        assert_says(&error("brokerIP1=localhost"), "an IP address");
        assert_says(&error("messageDelayLevel=1s 5x"), "delay level 2 is `5x`");
        assert_says(&error("brokerPermission=8"), "permission bits from 0 to 7");
        assert_says(&error("namesrvAddr=127.0.0.1"), "`127.0.0.1` has no port");
    }

    #[test]
    fn settings_that_cannot_be_together_name_the_place_of_the_last_one() {
        let error = |text: &str| BrokerConfig::read(read_properties(text, "b.conf").unwrap()).unwrap_err().to_string();
        assert_eq!(
            error("brokerId=0\nbrokerRole=SLAVE"),
            "b.conf:1: brokerId = `0`: 0 is the master's, a slave needs a number of its own from 1 on"
        );
        assert_eq!(
            error("listenPort=65535"),
            "b.conf:1: listenPort = `65535`: replicas connect to the next port, and there is none"
        );
        assert_eq!(
            error("brokerName="),
            "b.conf:1: brokerName = ``: expected letters, digits, `_`, `-`, `%` or `|`, at most 127"
        );
        assert_eq!(
            error("bindAddress=0.0.0.0"),
            "b.conf:1: bindAddress = `0.0.0.0`: clients need an address and this is none: set brokerIP1"
        );
        assert_eq!(
            error("brokerIP1=0.0.0.0"),
            "b.conf:1: brokerIP1 = `0.0.0.0`: clients need an address and this is none: set brokerIP1"
        );
        read("bindAddress=0.0.0.0\nbrokerIP1=10.0.0.1");
    }

    /// The keys in percent are bounded; the fractions, which the reference takes as system properties, are not.
    #[test]
    fn a_fraction_takes_the_place_of_a_bounded_percentage() {
        let levels = |text: &str| {
            let store = read(text).store;
            (store.clean_forcibly_level(), store.warning_level())
        };
        assert_eq!(levels(""), (85, 90));
        assert_eq!(levels("diskSpaceCleanForciblyRatio=99\ndiskSpaceWarningLevelRatio=1"), (85, 35));
        let fractions = |clean, warning| {
            let name = "rocketmq.broker.diskSpace";
            levels(&format!("{name}CleanForciblyRatio={clean}\n{name}WarningLevelRatio={warning}"))
        };
        assert_eq!(fractions("0.57", "1"), (57, 100));
        assert_eq!(fractions("0.999", ""), (99, 90));
        let shown = read("rocketmq.broker.diskSpaceWarningLevelRatio=0.29").show();
        assert!(shown.contains("\nrocketmq.broker.diskSpaceWarningLevelRatio=0.29\n"), "{shown}");
        for wrong in ["95", "-0.1", "NaN"] {
            let text = format!("rocketmq.broker.diskSpaceWarningLevelRatio={wrong}");
            let error = BrokerConfig::read(read_properties(&text, "broker.conf").unwrap()).unwrap_err().to_string();
            assert_says(&error, "a fraction from 0 to 1");
        }
    }

    /// A synchronous master that nobody told how many copies to wait for waits for one slave's. The reference waits for
    /// nobody then.
    #[test]
    fn w21_a_synchronous_master_waits_for_a_slave_unless_told_otherwise() {
        let copies = |text: &str| {
            let config = read(text);
            config.replication.copies(config.role)
        };
        assert_eq!(copies("brokerRole=SYNC_MASTER"), 2);
        assert_eq!(copies("brokerRole=SYNC_MASTER\ninSyncReplicas=3"), 3);
        assert_eq!(copies("brokerRole=SYNC_MASTER\ninSyncReplicas=1"), 1);
        assert_eq!(copies("brokerRole=ASYNC_MASTER\ninSyncReplicas=3"), 1);
        assert_eq!(copies("brokerRole=SLAVE\nbrokerId=1"), 1);
        assert!(read("brokerRole=SYNC_MASTER").show().contains("\ninSyncReplicas=2\n"));
    }

    #[test]
    fn numbers_of_replicas_that_cannot_be_together_are_refused() {
        let error = |text: &str| BrokerConfig::read(read_properties(text, "b.conf").unwrap()).unwrap_err().to_string();
        assert_eq!(
            error("brokerRole=SYNC_MASTER\ntotalReplicas=1"),
            "b.conf:2: totalReplicas = `1`: a put would wait for more (inSyncReplicas)"
        );
        assert_eq!(
            error("inSyncReplicas=2\nminInSyncReplicas=3"),
            "b.conf:2: minInSyncReplicas = `3`: more than inSyncReplicas"
        );
        assert_eq!(
            error("haSendHeartbeatInterval=20s"),
            "default: haHousekeepingInterval = `20000`: a heartbeat must fit in (haSendHeartbeatInterval)"
        );
        read("brokerRole=SYNC_MASTER\ninSyncReplicas=2\ntotalReplicas=2\nminInSyncReplicas=1");
    }

    #[test]
    fn settings_of_replication_are_read_and_shown() {
        let text = "brokerId=2\nbrokerRole=SLAVE\nhaMasterAddress=10.0.0.1:10912\n\
                    slaveReadEnable=true\nhaRewindBytes=64KiB\nslaveTimeout=500";
        let config = read(text);
        assert_eq!((config.role, config.broker_id()), (Role::Slave, 2));
        let expected = ReplicationConfig {
            master_address: Some("10.0.0.1:10912".to_owned()),
            slave_read: true,
            rewind_bytes: 64 << 10,
            copy_timeout: Duration::from_millis(500),
            ..ReplicationConfig::default()
        };
        assert_eq!(config.replication, expected);
        assert_eq!(read(&config.show()).show(), config.show());
        assert_eq!(read("brokerId=7").broker_id(), 0, "a master is number 0");
        let error =
            |text: &str| BrokerConfig::read(read_properties(text, "broker.conf").unwrap()).unwrap_err().to_string();
        assert_says(&error("haMasterAddress=10.0.0.1"), "expected an address host:port; `10.0.0.1` has no port");
        assert_says(&error("inSyncReplicas=0"), "expected a number from 1 to 9");
        assert_says(&error("haTransferBatchSize=4MiB"), "expected a size from 1 to 4194291 bytes");
    }

    fn assert_says(error: &str, part: &str) {
        assert!(error.starts_with("broker.conf:1: ") && error.contains(part), "{error}");
    }
}
