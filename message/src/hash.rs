//! Java's string hash, which decides tag codes and other values that both sides must agree on.

/// `String.hashCode` of Java: polynomial 31 over UTF-16 code units, wrapping at 32 bits.
#[must_use]
pub fn java_hash(text: &str) -> i32 {
    java_hash_of(&[text])
}

/// As [`java_hash`], of several texts one behind the other.
#[must_use]
pub fn java_hash_of(texts: &[&str]) -> i32 {
    let units = texts.iter().flat_map(|text| text.encode_utf16());
    units.fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// The tags code of a consume-queue entry: the hash of the tag, sign-extended; 0 without a tag.
#[must_use]
pub fn tags_code(tags: Option<&str>) -> i64 {
    tags.map_or(0, |tags| i64::from(java_hash(tags)))
}

#[cfg(test)]
mod tests {
    use super::{java_hash, java_hash_of, tags_code};

    #[test]
    fn hashes_are_those_of_java() {
        assert_eq!(java_hash("TagA"), 2_598_919);
        assert_eq!(java_hash("Aa"), java_hash("BB"));
        assert_eq!(java_hash("polygenelubricants"), i32::MIN);
        assert_eq!(java_hash(""), 0);
        assert_eq!(java_hash_of(&["poly", "", "gene\u{1F980}"]), java_hash("polygene\u{1F980}"));
    }

    #[test]
    fn a_missing_tag_has_code_zero() {
        assert_eq!(tags_code(None), 0);
        assert_eq!(tags_code(Some("polygenelubricants")), -2_147_483_648);
    }
}
