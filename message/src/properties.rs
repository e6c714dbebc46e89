//! The property string: `name 0x01 value 0x02` repeated.
//!
//! Properties stay in the encoded form they travel and rest in; looking one up is a scan of usually about 100 bytes,
//! which is cheaper than building a map for every message that only passes through.

use std::fmt;

use memchr::memchr;

const NAME_END: char = '\u{1}';
const VALUE_END: char = '\u{2}';

/// Why a name or value cannot be a property.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("property `{name}` cannot be stored: {reason}")]
pub struct InvalidProperty {
    /// The name, shortened for display.
    pub name: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// Properties of a message, in the order they were set, without empty names or values.
///
/// Source: `spec/protocol.md` 15.3.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Properties {
    /// Empty, or ends with the separator, which readers from 5.2 expect and all accept.
    encoded: String,
}

impl Properties {
    /// No properties.
    #[must_use]
    pub fn new() -> Properties {
        Properties::default()
    }

    /// Takes a property string as it came from a peer or a record; the last separator may be missing.
    ///
    /// Nothing is refused: what is not a pair is invisible to [`get`](Properties::get) and [`iter`](Properties::iter).
    /// Use [`Properties::is_intact`] where that matters.
    #[must_use]
    pub fn from_encoded(encoded: impl Into<String>) -> Properties {
        let mut encoded = encoded.into();
        if !encoded.is_empty() && !encoded.ends_with(VALUE_END) {
            encoded.push(VALUE_END);
        }
        Properties { encoded }
    }

    /// Whether every part of a property string is a pair, and no damage shows: a run of NULs at the end is what a
    /// lost page leaves. Empty names and values pass, since some clients write them.
    #[must_use]
    pub fn is_intact(encoded: &str) -> bool {
        let is_pair = |part: &str| part.is_empty() || memchr(NAME_END as u8, part.as_bytes()).is_some();
        !encoded.ends_with('\0') && Properties::parts(encoded).all(is_pair)
    }

    /// Whether a property string has a separator behind its last pair, too. Brokers write it; some clients do not.
    #[must_use]
    pub fn is_ended(encoded: &str) -> bool {
        encoded.is_empty() || encoded.ends_with(VALUE_END)
    }

    /// The parts of a property string, without the separators behind them. Usually pairs; see
    /// [`split_pair`](Properties::split_pair).
    pub fn parts(encoded: &str) -> impl Iterator<Item = &str> {
        let mut rest = encoded;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let end = memchr(VALUE_END as u8, rest.as_bytes());
            let part = &rest[..end.unwrap_or(rest.len())];
            rest = end.map_or("", |end| &rest[end + 1..]);
            Some(part)
        })
    }

    /// Name and value of one part; `None` for what readers drop: no separator, an empty name or an empty value.
    #[must_use]
    pub fn split_pair(part: &str) -> Option<(&str, &str)> {
        let end = memchr(NAME_END as u8, part.as_bytes())?;
        Some((&part[..end], &part[end + 1..])).filter(|(name, value)| !name.is_empty() && !value.is_empty())
    }

    /// The property string, with the last separator.
    #[must_use]
    pub fn as_encoded(&self) -> &str {
        &self.encoded
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The value of a property. Of a name that occurs several times the last one counts.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        Properties::find(&self.encoded, name)
    }

    /// As [`get`](Properties::get), on a borrowed property string.
    #[must_use]
    pub fn find<'a>(encoded: &'a str, name: &str) -> Option<&'a str> {
        // Most names that are looked for are absent, and most parts have another length in front of the separator.
        let value_of = |part: &'a str| {
            let is_candidate = part.as_bytes().get(name.len()) == Some(&(NAME_END as u8));
            is_candidate.then(|| Properties::split_pair(part)).flatten().filter(|(found, _)| *found == name)
        };
        Properties::parts(encoded).filter_map(value_of).last().map(|(_, value)| value)
    }

    /// All pairs in order, repeated names included.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        Properties::parts(&self.encoded).filter_map(Properties::split_pair)
    }

    /// Sets a property, replacing an older value of it.
    ///
    /// # Errors
    /// An empty name or value, which readers would drop, or one that holds a separator. A value may hold 0x01.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), InvalidProperty> {
        let reason = if name.is_empty() {
            "the name is empty"
        } else if value.is_empty() {
            "the value is empty"
        } else if name.contains([NAME_END, VALUE_END]) {
            "the name holds a separator"
        } else if value.contains(VALUE_END) {
            "the value holds a separator"
        } else {
            self.remove(name);
            self.push(name, value);
            return Ok(());
        };
        Err(InvalidProperty { name: name.chars().take(64).collect(), reason })
    }

    /// Sets a property of a reserved name to a number.
    ///
    /// # Panics
    /// If the name is empty or holds a separator, which no constant of [`crate::property`] does.
    pub fn set_number(&mut self, name: &'static str, value: i64) {
        self.set(name, &value.to_string()).expect("a reserved name and a number hold no separators");
    }

    /// Removes a property and says whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        if self.get(name).is_none() {
            return false;
        }
        let kept = std::mem::take(&mut self.encoded);
        for (other, value) in
            Properties::parts(&kept).filter_map(Properties::split_pair).filter(|&(other, _)| other != name)
        {
            self.push(other, value);
        }
        true
    }

    fn push(&mut self, name: &str, value: &str) {
        self.encoded.reserve(name.len() + value.len() + 2);
        self.encoded.push_str(name);
        self.encoded.push(NAME_END);
        self.encoded.push_str(value);
        self.encoded.push(VALUE_END);
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Properties;

    #[test]
    fn a_missing_last_separator_is_added() {
        let read = Properties::from_encoded("A\u{1}1\u{2}B\u{1}2");
        assert_eq!(read.as_encoded(), "A\u{1}1\u{2}B\u{1}2\u{2}");
        assert_eq!(read.get("B"), Some("2"));
    }

    #[test]
    fn values_may_hold_the_name_separator() {
        assert_eq!(Properties::from_encoded("A\u{1}x\u{1}y\u{2}").get("A"), Some("x\u{1}y"));
    }

    #[test]
    fn the_last_of_a_repeated_name_wins() {
        let mut read = Properties::from_encoded("A\u{1}1\u{2}A\u{1}2\u{2}");
        assert_eq!(read.get("A"), Some("2"));
        read.set("A", "3").unwrap();
        assert_eq!(read.as_encoded(), "A\u{1}3\u{2}");
    }

    #[test]
    fn empty_names_and_values_are_dropped_on_reading_and_refused_on_writing() {
        let mut read = Properties::from_encoded("\u{1}1\u{2}B\u{1}\u{2}C\u{2}");
        assert!(read.is_empty());
        assert!(read.set("", "x").is_err());
        assert!(read.set("x", "").is_err());
        assert!(read.set("x", "a\u{2}b").is_err());
    }

    #[test]
    fn damage_shows() {
        assert!(Properties::is_intact(""));
        assert!(Properties::is_intact("A\u{1}1\u{2}"));
        assert!(Properties::is_intact("A\u{1}1"));
        assert!(!Properties::is_intact("A\u{1}1\0\0"));
        assert!(!Properties::is_intact("A\u{1}1\u{2}\0\0\0"));
        assert!(!Properties::is_intact("words"));
        assert!(Properties::is_ended("") && Properties::is_ended("A\u{1}1\u{2}"));
        assert!(!Properties::is_ended("A\u{1}1"));
    }

    proptest! {
        #[test]
        fn what_is_set_can_be_read(pairs in prop::collection::vec(("[a-zA-Z_]{1,9}", "[^\u{2}]{1,9}"), 0..9)) {
            let mut properties = Properties::new();
            for (name, value) in &pairs {
                properties.set(name, value).unwrap();
            }
            let read = Properties::from_encoded(properties.as_encoded());
            for (name, _) in &pairs {
                let last = pairs.iter().rev().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
                prop_assert_eq!(read.get(name), last);
            }
        }

        #[test]
        fn garbage_never_panics(text in "\\PC*[\u{0}-\u{3}]{0,5}\\PC*") {
            let mut read = Properties::from_encoded(text);
            let _ = (read.iter().count(), read.remove("A"));
        }
    }
}
