//! Settings of classic master/slave replication.

use std::time::Duration;

use remoting::settings::read_address;

use super::{BrokerConfig, Refusal, Role};

/// A slave reads with a buffer of 4 MiB, and a whole frame of 12 bytes and its body must fit in.
/// Source: `spec/replication.md` 1.2 and 2.2.
pub(super) const FRAME_BODY_MAX_BYTES: u64 = (4 << 20) - 12 - 1;

/// How many copies a synchronous master waits for if nobody said so. The reference waits for its own only, which makes
/// the role a promise without content. Source: `spec/replication.md` HO07.
const SYNC_COPIES: u32 = 2;

/// Most replicas of one group.
pub(super) const REPLICAS_MAX: u32 = 9;

/// How a group keeps copies, by RocketMQ's key names (in brackets), and by names of our own where it has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicationConfig {
    /// Where a slave finds its master's replication port, `host:port`, whatever the name server says
    /// (`haMasterAddress`).
    pub master_address: Option<String>,
    /// Either side sends after this much silence (`haSendHeartbeatInterval`).
    pub heartbeat_interval: Duration,
    /// Either side closes after this much silence of the other (`haHousekeepingInterval`).
    pub housekeeping_interval: Duration,
    /// Most bytes of the log in one frame (`haTransferBatchSize`).
    pub batch_max_bytes: u64,
    /// A slave that lags further behind is reported as not in sync (`haMaxGapNotInSync`).
    pub in_sync_gap_bytes: u64,
    /// Whether a connection is held to `flow_max_bytes` (`haFlowControlEnable`).
    pub flow_control: bool,
    /// Most bytes a second to one slave (`maxHaTransferByteInSecond`).
    pub flow_max_bytes: u64,
    /// How long a put waits for copies (`slaveTimeout`).
    pub copy_timeout: Duration,
    /// How many replicas the group has; if unset, as many as a put waits for (`totalReplicas`).
    pub total_replicas: Option<u32>,
    /// How many copies, its own included, a synchronous master waits for; 2 if unset (`inSyncReplicas`).
    pub in_sync_replicas: Option<u32>,
    /// The least that `in_sync_replicas` may be lowered to (`minInSyncReplicas`).
    pub min_in_sync_replicas: u32,
    /// Whether a slave may be read, and a master sends consumers that lag far behind to one (`slaveReadEnable`).
    pub slave_read: bool,
    /// Whether a slave corrects offsets out of range as a master does (`offsetCheckInSlave`).
    pub offset_check_in_slave: bool,
    /// How far back a slave compares its log with the master's after each connect (`haRewindBytes`).
    pub rewind_bytes: u64,
    /// What a slave does with an end that its master does not have (`haWhenAhead`).
    pub when_ahead: WhenAhead,
    /// Where a slave without a log begins (`haSyncFrom`).
    pub sync_from: SyncFrom,
}

/// Where a slave without a log begins (`haSyncFrom`).
///
/// Source: `spec/replication.md` HO08.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncFrom {
    /// With the last file of its master, as the reference's do.
    #[default]
    LastFile,
    /// With the first one.
    FirstFile,
}

impl std::fmt::Display for SyncFrom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SyncFrom::LastFile => "last-file",
            SyncFrom::FirstFile => "first-file",
        })
    }
}

/// What a slave does whose log has an end that its master's does not have (`haWhenAhead`).
///
/// Source: `spec/replication.md` HO05.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenAhead {
    /// It keeps it, follows nobody, and tells the operator.
    #[default]
    Hold,
    /// It gives it up, back to the last record that both have.
    Truncate,
}

impl std::fmt::Display for WhenAhead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            WhenAhead::Hold => "hold",
            WhenAhead::Truncate => "truncate",
        })
    }
}

impl Default for ReplicationConfig {
    fn default() -> ReplicationConfig {
        ReplicationConfig {
            master_address: None,
            heartbeat_interval: Duration::from_secs(5),
            housekeeping_interval: Duration::from_secs(20),
            batch_max_bytes: 32 << 10,
            in_sync_gap_bytes: 256 << 20,
            flow_control: false,
            flow_max_bytes: 100 << 20,
            copy_timeout: Duration::from_secs(3),
            total_replicas: None,
            in_sync_replicas: None,
            min_in_sync_replicas: 1,
            slave_read: false,
            offset_check_in_slave: false,
            rewind_bytes: 1 << 20,
            when_ahead: WhenAhead::default(),
            sync_from: SyncFrom::default(),
        }
    }
}

impl ReplicationConfig {
    /// Looks for settings that do not go together, in a broker of this role.
    pub(super) fn check(&self, role: Role) -> Result<(), Refusal> {
        let refuse = |key, value: String, problem| Err(Refusal { key, value, problem });
        let copies = self.copies(role);
        if self.total_replicas.is_some_and(|total| total < copies) {
            return refuse("totalReplicas", self.total(role).to_string(), "a put would wait for more (inSyncReplicas)");
        }
        if self.min_in_sync_replicas > self.in_sync_replicas.unwrap_or(SYNC_COPIES) {
            return refuse("minInSyncReplicas", self.min_in_sync_replicas.to_string(), "more than inSyncReplicas");
        }
        if self.heartbeat_interval.is_zero() {
            return refuse("haSendHeartbeatInterval", "0".to_owned(), "a pause is needed between two heartbeats");
        }
        if self.housekeeping_interval <= self.heartbeat_interval {
            let value = self.housekeeping_interval.as_millis().to_string();
            return refuse("haHousekeepingInterval", value, "a heartbeat must fit in (haSendHeartbeatInterval)");
        }
        Ok(())
    }

    /// How many copies, its own included, must have a message before a broker of this role acknowledges it.
    pub(crate) fn copies(&self, role: Role) -> u32 {
        match role {
            Role::SyncMaster => self.in_sync_replicas.unwrap_or(SYNC_COPIES),
            Role::AsyncMaster | Role::Slave => 1,
        }
    }

    /// How many replicas the group has.
    pub(super) fn total(&self, role: Role) -> u32 {
        self.total_replicas.unwrap_or_else(|| self.copies(role))
    }

    /// `inSyncReplicas` as it is in force.
    pub(super) fn in_sync(&self, role: Role) -> u32 {
        self.in_sync_replicas.unwrap_or_else(|| self.copies(role))
    }
}

pub(super) fn read_master_address(config: &mut BrokerConfig, text: &str) -> Result<(), String> {
    config.replication.master_address = if text.is_empty() { None } else { Some(address(text)?) };
    Ok(())
}

fn address(text: &str) -> Result<String, String> {
    read_address(text).map_err(|what| format!("an address host:port; {what}"))
}

pub(super) fn show_master_address(config: &BrokerConfig) -> String {
    config.replication.master_address.clone().unwrap_or_default()
}

pub(super) fn read_when_ahead(config: &mut BrokerConfig, text: &str) -> Result<(), String> {
    config.replication.when_ahead = match text {
        "hold" => WhenAhead::Hold,
        "truncate" => WhenAhead::Truncate,
        _ => return Err("hold or truncate".to_owned()),
    };
    Ok(())
}

pub(super) fn read_sync_from(config: &mut BrokerConfig, text: &str) -> Result<(), String> {
    config.replication.sync_from = match text {
        "last-file" => SyncFrom::LastFile,
        "first-file" => SyncFrom::FirstFile,
        _ => return Err("last-file or first-file".to_owned()),
    };
    Ok(())
}

pub(super) fn read_total(config: &mut BrokerConfig, text: &str) -> Result<(), String> {
    config.replication.total_replicas = Some(read_replicas(text)?);
    Ok(())
}

pub(super) fn read_in_sync(config: &mut BrokerConfig, text: &str) -> Result<(), String> {
    config.replication.in_sync_replicas = Some(read_replicas(text)?);
    Ok(())
}

fn read_replicas(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count| (1..=REPLICAS_MAX).contains(count));
    count.ok_or_else(|| format!("a number from 1 to {REPLICAS_MAX}"))
}
