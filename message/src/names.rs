//! Names of topics and groups: what they may look like, and which ones RocketMQ keeps for itself.

/// Most bytes of a topic name, except for retry and dead-letter topics, which may have 255.
pub const TOPIC_MAX_BYTES: usize = 127;
/// Most bytes of a group name, so that its retry topic fits too.
pub const GROUP_MAX_BYTES: usize = 120;
/// Most bytes of a retry or dead-letter topic.
const DERIVED_TOPIC_MAX_BYTES: usize = 255;
/// Prefix of the topic from which a group gets its failed messages again.
pub const RETRY_PREFIX: &str = "%RETRY%";
/// Prefix of the topic that keeps the messages which a group gave up.
pub const DLQ_PREFIX: &str = "%DLQ%";
/// The template of topics that a send creates: its route stands in for that of a topic that is not there yet.
pub const TEMPLATE_TOPIC: &str = "TBW102";
/// Where delayed messages wait; queue = level - 1.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// Where half messages wait.
pub const TRANS_HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
/// Marks of half messages that are done.
pub const TRANS_OP_HALF_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";

/// Why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing but blanks.
    #[error("the {kind} name is blank")]
    Blank {
        /// `topic` or `group`.
        kind: &'static str,
    },
    /// A character that names may not hold.
    #[error("the {kind} name `{name}` holds `{found}`, allowed are `%|a-zA-Z0-9_-`")]
    Character {
        /// `topic` or `group`.
        kind: &'static str,
        /// The name, shortened for display.
        name: String,
        /// The first such character.
        found: char,
    },
    /// Too many bytes.
    #[error("the {kind} name has {bytes} bytes, at most {limit} are allowed")]
    TooLong {
        /// `topic` or `group`.
        kind: &'static str,
        /// How many it has.
        bytes: usize,
        /// How many it may have.
        limit: usize,
    },
}

/// Checks the name of a topic. Source: `spec/protocol.md` 16.1.
///
/// # Errors
/// Blank, too long, or with a character that is not allowed.
pub fn validate_topic(name: &str) -> Result<(), NameError> {
    let derived = name.starts_with(RETRY_PREFIX) || name.starts_with(DLQ_PREFIX);
    validate("topic", name, if derived { DERIVED_TOPIC_MAX_BYTES } else { TOPIC_MAX_BYTES })
}

/// Checks the name of a producer or consumer group. Source: `spec/protocol.md` 16.1.
///
/// # Errors
/// Blank, too long, or with a character that is not allowed.
pub fn validate_group(name: &str) -> Result<(), NameError> {
    validate("group", name, GROUP_MAX_BYTES)
}

/// Whether all characters are allowed in names, and there is at least one.
#[must_use]
pub fn is_legal_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(is_legal)
}

/// The topic from which `group` gets its failed messages again.
#[must_use]
pub fn retry_topic(group: &str) -> String {
    format!("{RETRY_PREFIX}{group}")
}

/// The topic that keeps the messages which `group` gave up.
#[must_use]
pub fn dlq_topic(group: &str) -> String {
    format!("{DLQ_PREFIX}{group}")
}

/// Whether a topic belongs to RocketMQ itself, whatever the cluster is called. Source: `spec/protocol.md` 16.4.
#[must_use]
pub fn is_system_topic(topic: &str) -> bool {
    const SYSTEM: &[&str] = &[
        TEMPLATE_TOPIC,
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        TRANS_HALF_TOPIC,
        "RMQ_SYS_TRACE_TOPIC",
        TRANS_OP_HALF_TOPIC,
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    ];
    SYSTEM.contains(&topic) || topic.starts_with("rmq_sys_")
}

/// Whether a consumer group belongs to RocketMQ itself. Source: `spec/protocol.md` 16.5.
#[must_use]
pub fn is_system_group(group: &str) -> bool {
    const SYSTEM: &[&str] = &[
        "DEFAULT_PRODUCER",
        "DEFAULT_CONSUMER",
        "CLIENT_INNER_PRODUCER",
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "SELF_TEST_P_GROUP",
        "__MONITOR_CONSUMER",
        "SCHEDULE_CONSUMER",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
    ];
    SYSTEM.contains(&group) || group.starts_with("CID_RMQ_SYS_")
}

fn validate(kind: &'static str, name: &str, limit: usize) -> Result<(), NameError> {
    if name.trim().is_empty() {
        return Err(NameError::Blank { kind });
    }
    if name.len() > limit {
        return Err(NameError::TooLong { kind, bytes: name.len(), limit });
    }
    match name.chars().find(|&found| !found.is_ascii() || !is_legal(found as u8)) {
        Some(found) => Err(NameError::Character { kind, name: name.to_owned(), found }),
        None => Ok(()),
    }
}

fn is_legal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'%' | b'|' | b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::{NameError, retry_topic, validate_group, validate_topic};

    #[test]
    fn legal_names_pass() {
        for name in ["orders", "%RETRY%g", "a|b", "A-Z_0", "ns%name"] {
            assert_eq!(validate_topic(name), Ok(()));
        }
        assert_eq!(validate_topic(&retry_topic(&"g".repeat(120))), Ok(()));
    }

    #[test]
    fn illegal_names_are_refused_with_the_reason() {
        assert!(matches!(validate_topic(" "), Err(NameError::Blank { .. })));
        assert!(matches!(validate_topic(&"t".repeat(128)), Err(NameError::TooLong { limit: 127, .. })));
        assert!(matches!(validate_group(&"g".repeat(121)), Err(NameError::TooLong { limit: 120, .. })));
        let error = validate_topic("a.b").unwrap_err();
        assert_eq!(error.to_string(), "the topic name `a.b` holds `.`, allowed are `%|a-zA-Z0-9_-`");
        assert!(validate_topic("Ж").is_err());
    }
}
