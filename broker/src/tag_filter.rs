//! Which messages of a queue a subscription wants, as far as the consume queue can tell.

use std::sync::Arc;

/// A filter by tag hash, the low 32 bits of a consume-queue entry's tags code.
///
/// Different tags may share a hash: what passes here is compared as text by the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TagFilter {
    /// Every message.
    All,
    /// Messages with one of these hashes, sorted. A message without tag has the code 0 and no hash that matches.
    Codes(Arc<[i32]>),
}

impl TagFilter {
    /// A filter for some hashes.
    pub(crate) fn codes(codes: impl IntoIterator<Item = i32>) -> TagFilter {
        let mut codes: Vec<i32> = codes.into_iter().collect();
        codes.sort_unstable();
        codes.dedup();
        TagFilter::Codes(codes.into())
    }

    /// Whether a message with this tags code may be wanted.
    #[allow(clippy::cast_possible_truncation, reason = "only the low 32 bits are the hash")]
    pub(crate) fn matches(&self, tags_code: i64) -> bool {
        match self {
            TagFilter::All => true,
            TagFilter::Codes(codes) => codes.binary_search(&(tags_code as i32)).is_ok(),
        }
    }

    /// Reads a subscription expression of the tag kind: `*` or nothing for all, else tags separated by `||`.
    ///
    /// `None` if no tag is left between the bars.
    pub(crate) fn parse(expression: &str, hash: impl Fn(&str) -> i32) -> Option<TagFilter> {
        if matches!(expression.trim(), "" | "*") {
            return Some(TagFilter::All);
        }
        let tags: Vec<&str> = expression.split("||").map(str::trim).filter(|tag| !tag.is_empty()).collect();
        (!tags.is_empty()).then(|| TagFilter::codes(tags.into_iter().map(hash)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(tag: &str) -> i32 {
        i32::try_from(tag.len()).unwrap()
    }

    #[test]
    fn expressions_name_all_or_some_tags() {
        assert_eq!(TagFilter::parse("*", length), Some(TagFilter::All));
        assert_eq!(TagFilter::parse(" ", length), Some(TagFilter::All));
        assert_eq!(TagFilter::parse("aaa||  b || ", length), Some(TagFilter::codes([1, 3])));
        assert_eq!(TagFilter::parse("||", length), None);
    }

    #[test]
    fn only_the_low_half_of_a_tags_code_is_compared() {
        let filter = TagFilter::codes([-5, 7]);
        assert!(filter.matches(-5));
        assert!(filter.matches(7));
        assert!(filter.matches((3 << 32) | 7));
        assert!(!filter.matches(0));
    }
}
