//! What a broker does to the properties of a message that is sent to it.

use message::{Properties, property};

/// The properties of a message as they are stored, and those of them that decide where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SentProperties<'a> {
    /// The property string to be stored.
    pub(crate) stored: String,
    /// The unique id, if the client gave one.
    pub(crate) unique_id: Option<&'a str>,
    /// The delay level, as text.
    pub(crate) delay: Option<&'a str>,
    /// Whether the sender waits for flush and replication.
    pub(crate) waits: bool,
    /// Whether it is a half message of a transaction.
    pub(crate) is_transaction: bool,
    /// Whether it is to be delivered at an arbitrary time.
    pub(crate) is_timer: bool,
}

impl SentProperties<'_> {
    /// The level that the message is delayed by, from 1; `None` for none, and for what is no number.
    pub(crate) fn delay_level(&self) -> Option<u32> {
        self.delay.and_then(|level| level.parse().ok()).filter(|level| *level > 0)
    }
}

/// What the broker adds to every message.
#[derive(Debug, Clone)]
pub(crate) struct BrokerProperties {
    /// A property string with region, trace switch and cluster.
    added: String,
}

impl BrokerProperties {
    pub(crate) fn new(region: &str, trace_on: bool, cluster: &str) -> BrokerProperties {
        let mut added = String::new();
        push(&mut added, property::MSG_REGION, region);
        push(&mut added, property::TRACE_ON, if trace_on { "true" } else { "false" });
        push(&mut added, property::CLUSTER, cluster);
        BrokerProperties { added }
    }

    /// Goes through the properties of a sent message once: drops what a broker does not store, adds what it does.
    ///
    /// Source: `spec/protocol.md` 6.1 "Properties added".
    pub(crate) fn apply<'a>(&self, sent: &'a str) -> SentProperties<'a> {
        let mut result = SentProperties {
            stored: String::with_capacity(sent.len() + self.added.len() + 1),
            unique_id: None,
            delay: None,
            waits: true,
            is_transaction: false,
            is_timer: false,
        };
        for part in Properties::parts(sent) {
            let Some((name, value)) = Properties::split_pair(part) else { continue };
            match name {
                property::WAIT_STORE => {
                    result.waits = !value.eq_ignore_ascii_case("false");
                    continue;
                }
                property::POP_CK | property::MSG_REGION | property::TRACE_ON | property::CLUSTER => continue,
                property::UNIQUE_ID => result.unique_id = Some(value),
                property::DELAY_LEVEL => result.delay = Some(value),
                property::TRANSACTION_PREPARED => result.is_transaction = value.eq_ignore_ascii_case("true"),
                property::TIMER_DELAY_SECONDS | property::TIMER_DELAY_MS | property::TIMER_DELIVER_MS => {
                    result.is_timer = true;
                }
                _ => {}
            }
            result.stored.push_str(part);
            result.stored.push('\u{2}');
        }
        result.stored.push_str(&self.added);
        result
    }
}

/// Adds a pair to a property string. Empty values, which readers drop, are left out.
pub(crate) fn push(encoded: &mut String, name: &str, value: &str) {
    if !value.is_empty() {
        encoded.extend([name, "\u{1}", value, "\u{2}"]);
    }
}

/// A property string with some properties replaced, or dropped where the new value is `None`.
pub(crate) fn with(encoded: &str, changes: &[(&str, Option<&str>)]) -> String {
    let mut changed = String::with_capacity(encoded.len() + 64);
    for (name, value) in Properties::parts(encoded).filter_map(Properties::split_pair) {
        if changes.iter().all(|(other, _)| *other != name) {
            push(&mut changed, name, value);
        }
    }
    for (name, value) in changes {
        push(&mut changed, name, value.unwrap_or_default());
    }
    debug_assert!(Properties::is_intact(&changed), "{changed:?}");
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker() -> BrokerProperties {
        BrokerProperties::new("region", true, "cluster")
    }

    fn encoded(pairs: &[(&str, &str)]) -> String {
        pairs.iter().fold(String::new(), |mut text, (name, value)| {
            push(&mut text, name, value);
            text
        })
    }

    #[test]
    fn broker_adds_its_own_and_drops_what_is_not_stored() {
        let sent = encoded(&[
            ("TAGS", "a"),
            ("WAIT", "false"),
            ("CLUSTER", "lie"),
            ("POP_CK", "x"),
            ("UNIQ_KEY", "u"),
            ("DELAY", "3"),
        ]);
        let result = broker().apply(&sent);
        let expected = [
            ("TAGS", "a"),
            ("UNIQ_KEY", "u"),
            ("DELAY", "3"),
            ("MSG_REGION", "region"),
            ("TRACE_ON", "true"),
            ("CLUSTER", "cluster"),
        ];
        assert_eq!(result.stored, encoded(&expected));
        assert_eq!((result.unique_id, result.delay, result.waits), (Some("u"), Some("3"), false));
    }

    #[test]
    fn transactions_and_timers_are_noticed() {
        assert!(broker().apply(&encoded(&[("TRAN_MSG", "true")])).is_transaction);
        assert!(!broker().apply(&encoded(&[("TRAN_MSG", "false")])).is_transaction);
        assert!(broker().apply(&encoded(&[("TIMER_DELAY_MS", "5")])).is_timer);
        assert!(broker().apply("").waits);
    }

    #[test]
    fn replaced_properties_stand_once_and_dropped_ones_not_at_all() {
        let text =
            with(&encoded(&[("A", "1"), ("B", "2"), ("C", "3")]), &[("B", Some("9")), ("C", None), ("D", Some("4"))]);
        assert_eq!(text, encoded(&[("A", "1"), ("B", "9"), ("D", "4")]));
    }
}
