//! The files of settings beside a store, looked at without a broker.

use message::SCHEDULE_TOPIC;
use remoting::body::{ConsumerOffsetTable, DelayOffsetTable, SubscriptionGroupWrapper};
use serde::de::IgnoredAny;
use store::config_file::parse;

use crate::{groups, log_epochs, topics::StoredTopics};

/// An offset in one of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOffset {
    /// Topic of the queue.
    pub topic: String,
    /// Number of the queue.
    pub queue: u32,
    /// The next message that is wanted.
    pub offset: u64,
}

/// Reads a file of `config/` as a broker does, by its name: tables and offsets by their shape, other JSON files by being
/// JSON. A backup is read like its file. Gives the offsets that it holds; those below 0 mean that there is none.
///
/// # Errors
/// Why a broker would refuse it, with the place, the topic or the group.
pub fn check_stored(name: &str, content: &[u8]) -> Result<Vec<StoredOffset>, String> {
    match name.strip_suffix(".bak").unwrap_or(name) {
        "topics.json" => parse::<StoredTopics>(content)?.check()?,
        "subscriptionGroup.json" => groups::check(&parse::<SubscriptionGroupWrapper>(content)?)?,
        "consumerOffset.json" => return Ok(offsets_of(parse(content)?)),
        "delayOffset.json" => return Ok(delays_of(&parse(content)?)),
        "logEpoch.json" => log_epochs::check(content)?,
        _ => drop(parse::<IgnoredAny>(content)?),
    }
    Ok(Vec::new())
}

fn offsets_of(table: ConsumerOffsetTable) -> Vec<StoredOffset> {
    let mut offsets = Vec::new();
    for (key, queues) in table.offset_table {
        let Some((topic, _)) = key.split_once(crate::offsets::SEPARATOR) else { continue };
        for (queue, offset) in queues {
            if let (Ok(queue), Ok(offset)) = (u32::try_from(queue), u64::try_from(offset)) {
                offsets.push(StoredOffset { topic: topic.to_owned(), queue, offset });
            }
        }
    }
    offsets
}

fn delays_of(table: &DelayOffsetTable) -> Vec<StoredOffset> {
    let of_level = |(level, offset): (&i32, &i64)| {
        let queue = u32::try_from(*level).ok()?.checked_sub(1)?;
        Some(StoredOffset { topic: SCHEDULE_TOPIC.to_owned(), queue, offset: u64::try_from(*offset).ok()? })
    };
    table.offset_table.iter().filter_map(of_level).collect()
}

#[cfg(test)]
mod tests {
    use super::{StoredOffset, check_stored};

    #[test]
    fn offsets_are_read_as_a_broker_reads_them() {
        let offset = |topic: &str, queue, offset| StoredOffset { topic: topic.to_owned(), queue, offset };
        let consumers = br#"{"offsetTable":{"t@g":{0:4,-1:6,1:-1},"T@G@broadcast":{2:1},"no group":{0:1}}}"#;
        assert_eq!(check_stored("consumerOffset.json", consumers), Ok(vec![offset("T", 2, 1), offset("t", 0, 4)]));
        let levels = br#"{"offsetTable":{1:2,0:5,18:0}}"#;
        let expected = vec![offset("SCHEDULE_TOPIC_XXXX", 0, 2), offset("SCHEDULE_TOPIC_XXXX", 17, 0)];
        assert_eq!(check_stored("delayOffset.json.bak", levels), Ok(expected));
    }

    #[test]
    fn what_a_broker_would_refuse_is_named() {
        let wrong = |name, content: &[u8]| check_stored(name, content).unwrap_err();
        assert_eq!(wrong("topics.json", b""), "it is empty");
        assert_eq!(wrong("other.json", b"{\"a\":"), "EOF while parsing a value at line 1 column 5");
        assert_eq!(wrong("other.json", b"{}\xff"), "byte 2 is not UTF-8");
        let perm = br#"{"topicConfigTable":{"t":{"topicName":"t","perm":9}}}"#;
        assert_eq!(wrong("topics.json", perm), "perm 9 of topic t is not from 0 to 7");
        let name = br#"{"subscriptionGroupTable":{"g":{"groupName":"h"}}}"#;
        assert_eq!(wrong("subscriptionGroup.json", name), "group g is called `h` inside");
        assert!(wrong("consumerOffset.json", br#"{"offsetTable":{"t@g":{0:"x"}}}"#).contains("column"));
        assert!(wrong("logEpoch.json", b"[]").contains("column"));
    }
}
