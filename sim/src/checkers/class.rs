//! The class of a violation: its sentence with everything left out that another seed or a smaller scenario changes.
//!
//! Two runs fail in the same way if the same checker finds a violation of the same class. Kept are the words, which say
//! what became of a message, and the names of groups and topics; left out are message ids, numbers, times, and which
//! queue of a topic or which node of a group it was.

/// What stands for a message in a class.
const MESSAGE: &str = "a message";

/// The class of a violation that is told in this sentence.
#[must_use]
pub(crate) fn class_of(what: &str) -> String {
    let mut class = String::with_capacity(what.len());
    let mut rest = what;
    while let Some(first) = rest.chars().next() {
        let length = match is_of_word(first) {
            true => rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (word, after) = rest.split_at(length);
        class.push_str(word_of(word));
        rest = after;
    }
    class
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./%#".contains(c)
}

/// What stands in a class for one word, or for one sign between words.
fn word_of(word: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let id = word.strip_prefix('p').and_then(|id| id.split_once('-'));
    if id.is_some_and(|(producer, n)| is_number(producer) && is_number(n)) {
        return MESSAGE;
    }
    let is_crc = word.len() == 8 && word.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if is_crc || word.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit()) {
        return "N";
    }
    // `topic/broker/queue`, or `group/instance`.
    match word.split_once('/') {
        Some((name, place)) if place.rsplit('/').next().is_some_and(is_number) => name,
        _ => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_keeps_what_happened_and_to_whom_and_drops_which_one_it_was() {
        let lost = "p0-0007 acknowledged at orders/broker-a/3 offset 12, gone, never finished by audit";
        let class = "a message acknowledged at orders offset N, gone, never finished by audit";
        assert_eq!(class_of(lost), class);
        assert_eq!(class_of(&lost.replace("p0-0007", "p11-12345").replace("a/3 offset 12", "b/0 offset 1")), class);
        for other in [("gone", "still there"), ("audit", "billing"), ("orders", "%RETRY%audit")] {
            assert_ne!(class_of(&lost.replace(other.0, other.1)), class, "{other:?}");
        }
    }

    #[test]
    fn what_is_pending_is_known_by_its_kind() {
        let of = |what: &str, class: &str| assert_eq!(class_of(what), class);
        of("broker-a/0 is down", "broker-a is down");
        of("billing is 17 messages behind at orders/broker-a/1", "billing is N messages behind at orders");
        of("tasks of broker-a/0 grow: [3, 4, 5]", "tasks of broker-a grow: [N, N, N]");
        of(
            "checkout/1 has 2 connections to port 10911 of broker-b/0",
            "checkout has N connections to port N of broker-b",
        );
        of("converged after 95.5s, expected within 90s", "converged after N, expected within N");
        of("p0-0001 was sent as `orders 20B dbeef00d paid`", "a message was sent as `orders N N paid`");
        of("ack-2 of p-1 — 5µs", "ack-2 of p-1 — Nµs");
    }
}
