//! Java's properties format, as `broker.conf` uses it.
//!
//! Source: the format description of `java.util.Properties.load`. The text is UTF-8 here, of which `\uXXXX` escapes
//! and Latin letters read the same.

use super::{Setting, SettingsError};

/// What some editors put in front of UTF-8.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Splits properties text into settings. `name` is the file's name, for the places in messages.
///
/// Comments start with `#` or `!`; a key ends at the first `=`, `:` or blank; a backslash escapes, and at the end of a
/// line it continues the line.
///
/// # Errors
/// [`SettingsError::Syntax`] for a broken `\u` escape, and for a line with a value but no key.
pub fn read_properties(text: &str, name: &str) -> Result<Vec<Setting>, SettingsError> {
    let mut settings = Vec::new();
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    for (number, line) in logical_lines(text) {
        let at = format!("{name}:{number}");
        let syntax = |problem| SettingsError::Syntax { at: at.clone(), problem };
        let (key, value) = split(&line);
        let key = unescape(key).ok_or_else(|| syntax("a \\u escape needs four hexadecimal digits"))?;
        let value = unescape(value).ok_or_else(|| syntax("a \\u escape needs four hexadecimal digits"))?;
        if key.is_empty() {
            return Err(syntax("a value without a key"));
        }
        settings.push(Setting { key, value: value.trim().to_owned(), at });
    }
    Ok(settings)
}

/// Lines that are neither blank nor comments, continued ones joined, each with the number of its first line.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (index, line) in text.split('\n').enumerate() {
        let line = line.trim_end_matches('\r').trim_start_matches([' ', '\t', '\x0c']);
        if !continues && (line.is_empty() || line.starts_with(['#', '!'])) {
            continue;
        }
        let backslashes = line.len() - line.trim_end_matches('\\').len();
        let goes_on = backslashes % 2 == 1;
        let content = if goes_on { &line[..line.len() - 1] } else { line };
        match lines.last_mut() {
            Some((_, joined)) if continues => joined.push_str(content),
            _ => lines.push((index + 1, content.to_owned())),
        }
        continues = goes_on;
    }
    lines
}

/// Key and value of a line, still escaped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        let ends = !escaped && matches!(c, '=' | ':' | ' ' | '\t' | '\x0c');
        if ends {
            let rest = line[at..].trim_start_matches([' ', '\t', '\x0c']);
            let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
            return (&line[..at], rest.trim_start_matches([' ', '\t', '\x0c']));
        }
        escaped = c == '\\' && !escaped;
    }
    (line, "")
}

/// The text that the escapes stand for; `None` if one is broken.
fn unescape(text: &str) -> Option<String> {
    if !text.contains('\\') {
        return Some(text.to_owned());
    }
    let mut units = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let plain = match c {
            '\\' => match chars.next() {
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).collect();
                    let all_hex = digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                    units.push(all_hex.then(|| u16::from_str_radix(&digits, 16).ok()).flatten()?);
                    continue;
                }
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\x0c',
                Some(other) => other,
                None => continue,
            },
            other => other,
        };
        units.extend(plain.encode_utf16(&mut [0; 2]).iter());
    }
    // Escapes count UTF-16 units, so two of them may form one character; a lone half is no text.
    String::from_utf16(&units).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String, String)> {
        read_properties(text, "f").unwrap().into_iter().map(|s| (s.key, s.value, s.at)).collect()
    }

    fn pair(text: &str) -> (String, String) {
        let all = pairs(text);
        assert_eq!(all.len(), 1, "{all:?}");
        (all[0].0.clone(), all[0].1.clone())
    }

    #[test]
    fn separators_and_blanks_follow_the_java_format() {
        for text in ["a=b", "a = b", "a:b", "a b", "  a\t=\tb", "a=b\r\n", "# c\n! d\n\n a =b "] {
            assert_eq!(pair(text), ("a".to_owned(), "b".to_owned()), "{text:?}");
        }
        assert_eq!(pair("a"), ("a".to_owned(), String::new()));
        assert_eq!(pair("a=b=c"), ("a".to_owned(), "b=c".to_owned()));
    }

    #[test]
    fn escapes_are_resolved_in_keys_and_values() {
        assert_eq!(pair(r"a\=b=c\\d\u00e9"), ("a=b".to_owned(), "c\\d\u{e9}".to_owned()));
        assert_eq!(pair(r"a=\ud83d\ude00"), ("a".to_owned(), "\u{1f600}".to_owned()));
        assert!(read_properties("\n\na=\\u12", "f").unwrap_err().to_string().starts_with("f:3: "));
        assert!(read_properties(r"a=\ud83d", "f").is_err(), "half a character");
    }

    #[test]
    fn continued_line_keeps_the_number_of_its_first_line() {
        let all = pairs("x=1\na=b,\\\n   c\n#\nlast=\\");
        assert_eq!(all[1], ("a".to_owned(), "b,c".to_owned(), "f:2".to_owned()));
        assert_eq!(all[2], ("last".to_owned(), String::new(), "f:5".to_owned()));
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        assert_eq!(pair("\u{feff}a=b"), ("a".to_owned(), "b".to_owned()));
    }

    #[test]
    fn value_without_key_is_an_error() {
        assert_eq!(read_properties("= 3", "f").unwrap_err().to_string(), "f:1: a value without a key");
    }
}
