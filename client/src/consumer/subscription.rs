//! Which messages of a topic a group wants.

use std::collections::BTreeSet;

use crate::error::ClientError;

/// Chooses messages of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Filter {
    /// All of them.
    #[default]
    All,
    /// Those whose tag is one of these. Not empty.
    Tags(BTreeSet<String>),
}

impl Filter {
    /// Reads a tag expression: `*` or nothing for all, else tags separated by `||`.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if there is text but no tag in it.
    ///
    /// Source: `spec/client.md` 4.1.
    pub fn tags(expression: &str) -> Result<Filter, ClientError> {
        let trimmed = expression.trim();
        if trimmed.is_empty() || trimmed == "*" {
            return Ok(Filter::All);
        }
        let tags: BTreeSet<String> =
            trimmed.split("||").map(str::trim).filter(|tag| !tag.is_empty()).map(str::to_owned).collect();
        if tags.is_empty() {
            return Err(ClientError::Invalid(format!("no tag in the subscription `{expression}`")));
        }
        Ok(Filter::Tags(tags))
    }

    /// Whether a message with this tag is wanted. The broker compares hashes only, so this must be asked again.
    #[must_use]
    pub fn wants(&self, tag: Option<&str>) -> bool {
        match self {
            Filter::All => true,
            Filter::Tags(tags) => tag.is_some_and(|tag| tags.contains(tag)),
        }
    }

    /// The text that brokers understand.
    pub(crate) fn expression(&self) -> String {
        match self {
            Filter::All => "*".to_owned(),
            Filter::Tags(tags) => tags.iter().map(String::as_str).collect::<Vec<_>>().join(" || "),
        }
    }

    /// The tags by name; empty for all messages.
    pub(crate) fn tag_set(&self) -> BTreeSet<String> {
        match self {
            Filter::All => BTreeSet::new(),
            Filter::Tags(tags) => tags.clone(),
        }
    }
}

/// One subscribed topic of a running consumer.
#[derive(Debug, Clone)]
pub(crate) struct Subscription {
    pub(crate) filter: Filter,
    /// Wall-clock milliseconds; raised whenever the assignment of the topic changed.
    pub(crate) version: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_split_and_trimmed() {
        let filter = Filter::tags(" b|| a ||  ||b").unwrap();
        assert_eq!(filter.expression(), "a || b");
        assert_eq!(filter.tag_set(), BTreeSet::from(["a".to_owned(), "b".to_owned()]));
        assert_eq!(Filter::tags("* ").unwrap(), Filter::All);
        assert_eq!(Filter::tags("").unwrap(), Filter::All);
        assert_eq!(Filter::tags("||").unwrap_err().to_string(), "no tag in the subscription `||`");
    }

    #[test]
    fn tags_with_one_hash_are_told_apart() {
        assert_eq!(message::java_hash("Aa"), message::java_hash("BB"));
        let filter = Filter::tags("Aa").unwrap();
        assert!(filter.wants(Some("Aa")));
        assert!(!filter.wants(Some("BB")));
        assert!(!filter.wants(None));
        assert!(Filter::All.wants(None));
    }
}
