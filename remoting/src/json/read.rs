//! Text to [`Json`]. More is accepted than JSON allows: what the reference's reader accepts.

use super::{Json, JsonError};

/// Nested deeper than this, a text is refused: reading it would take unbounded stack.
const DEPTH_MAX: usize = 64;
/// A text with more values than this is refused: each takes many times the memory of its bytes.
const VALUES_MAX: usize = 4_000_000;

pub(super) fn parse(text: &[u8]) -> Result<Json, JsonError> {
    let text = std::str::from_utf8(text)
        .map_err(|error| JsonError::Syntax { at: error.valid_up_to(), problem: "not UTF-8" })?;
    let mut reader = Reader { text, at: 0, values: 0 };
    let value = reader.value(0)?;
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.malformed("something behind the value")),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// How many were read.
    values: usize,
}

impl Reader<'_> {
    fn malformed(&self, problem: &'static str) -> JsonError {
        JsonError::Syntax { at: self.at, problem }
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next byte that is not blank; it stays.
    fn peek(&mut self) -> Option<u8> {
        while self.byte().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
        self.byte()
    }

    /// Takes the next byte if it is this one.
    fn accept(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn value(&mut self, depth: usize) -> Result<Json, JsonError> {
        if depth > DEPTH_MAX {
            return Err(self.malformed("nested too deeply"));
        }
        self.values += 1;
        if self.values > VALUES_MAX {
            return Err(self.malformed("too many values"));
        }
        match self.peek() {
            None => Err(self.malformed("expected a value")),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(quote @ (b'"' | b'\'')) => self.string(quote).map(Json::String),
            Some(_) => self.word(),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.at += 1;
        let mut members = Vec::new();
        loop {
            // An empty object, or a comma behind the last member.
            if self.accept(b'}') {
                return Ok(Json::Object(members));
            }
            let key = self.key(depth)?;
            if !self.accept(b':') {
                return Err(self.malformed("expected `:`"));
            }
            let value = self.value(depth + 1)?;
            members.push((key, value));
            if !self.accept(b',') && self.peek() != Some(b'}') {
                return Err(self.malformed("expected `,` or `}`"));
            }
        }
    }

    /// A text in quotes of either kind, a bare name or number, or an object.
    fn key(&mut self, depth: usize) -> Result<Json, JsonError> {
        match self.peek() {
            Some(b'{' | b'[' | b'"' | b'\'') => self.value(depth + 1),
            _ => Ok(Json::String(self.bare()?.to_owned())),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json, JsonError> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            if self.accept(b']') {
                return Ok(Json::Array(items));
            }
            items.push(self.value(depth + 1)?);
            if !self.accept(b',') && self.peek() != Some(b']') {
                return Err(self.malformed("expected `,` or `]`"));
            }
        }
    }

    /// A run of letters, digits and the like without quotes. Not empty.
    fn bare(&mut self) -> Result<&str, JsonError> {
        let rest = &self.text[self.at..];
        let length = rest
            .find(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '+' | '.' | '_' | '$')))
            .unwrap_or(rest.len());
        if length == 0 {
            return Err(self.malformed("unexpected character"));
        }
        self.at += length;
        Ok(&rest[..length])
    }

    fn word(&mut self) -> Result<Json, JsonError> {
        let start = self.at;
        match self.bare()? {
            "null" | "undefined" => Ok(Json::Null),
            "true" => Ok(Json::Bool(true)),
            "false" => Ok(Json::Bool(false)),
            number if number.parse::<f64>().is_ok_and(f64::is_finite) => Ok(Json::Number(number.to_owned())),
            _ => Err(JsonError::Syntax { at: start, problem: "expected a value" }),
        }
    }

    fn string(&mut self, quote: u8) -> Result<String, JsonError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let length = rest
                .iter()
                .position(|byte| *byte == quote || *byte == b'\\')
                .ok_or_else(|| self.malformed("a string without an end"))?;
            out.push_str(&self.text[self.at..self.at + length]);
            self.at += length + 1;
            if rest[length] == quote {
                return Ok(out);
            }
            out.push(self.escape()?);
        }
    }

    /// The character behind a backslash.
    fn escape(&mut self) -> Result<char, JsonError> {
        let escape = self.byte().ok_or_else(|| self.malformed("a string without an end"))?;
        if escape == b'u' {
            self.at += 1;
            return self.unicode();
        }
        let unescaped = match escape {
            b'"' | b'\\' | b'/' | b'\'' => char::from(escape),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'v' => '\u{b}',
            b'0' => '\0',
            _ => return Err(self.malformed("unknown escape")),
        };
        self.at += 1;
        Ok(unescaped)
    }

    /// The character of `XXXX` or, for a surrogate pair, of `XXXX\uXXXX`. Half a pair becomes U+FFFD.
    fn unicode(&mut self) -> Result<char, JsonError> {
        let first = self.hex4()?;
        let back = self.at;
        if (0xd800..0xdc00).contains(&first) && self.text[back..].starts_with("\\u") {
            self.at += 2;
            let second = self.hex4()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).expect("a pair of surrogates is a character"));
            }
            self.at = back;
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex4(&mut self) -> Result<u32, JsonError> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).ok_or_else(|| self.malformed("short escape"))?;
        let value = digits.iter().try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?));
        let value = value.ok_or_else(|| self.malformed("expected four hex digits"))?;
        self.at += 4;
        Ok(value)
    }
}
