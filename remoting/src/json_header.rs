//! The JSON form of a header, written and read without a document tree. Source: `spec/protocol.md` 1.2.

use std::{borrow::Cow, ops::Range};

use bytes::{BufMut, BytesMut};

use crate::{
    command::{RemotingCommand, SerializeType},
    fields::Fields,
    frame::FrameError,
    language::{Language, Version},
    payload::Payload,
};

/// Nested deeper than this, an unknown member makes the header malformed.
const DEPTH_MAX: usize = 64;

// ---- writing ----

pub(crate) fn encode(command: &RemotingCommand, output: &mut BytesMut) {
    let mut digits = itoa::Buffer::new();
    let mut integer = |output: &mut BytesMut, value: i32| output.put_slice(digits.format(value).as_bytes());
    output.reserve(160 + command.fields.len() * 6 + command.fields.text().len());
    output.put_slice(b"{\"code\":");
    integer(output, command.code);
    if !command.fields.is_empty() {
        output.put_slice(b",\"extFields\":{");
        put_fields(output, &command.fields);
        output.put_u8(b'}');
    }
    output.put_slice(b",\"flag\":");
    integer(output, command.flag);
    if let Some(language) = command.language {
        output.put_slice(b",\"language\":\"");
        output.put_slice(language.name().as_bytes());
        output.put_u8(b'"');
    }
    output.put_slice(b",\"opaque\":");
    integer(output, command.opaque);
    if let Some(remark) = &command.remark {
        output.put_slice(b",\"remark\":\"");
        put_escaped(output, remark);
        output.put_u8(b'"');
    }
    output.put_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    integer(output, command.version.0);
    output.put_u8(b'}');
}

fn put_fields(output: &mut BytesMut, fields: &Fields) {
    // Hardly any text needs escapes: one look at all of them spares a look at each.
    let is_plain = find_special(fields.text().as_bytes(), true).is_none();
    let put = |output: &mut BytesMut, text: &str| {
        if is_plain {
            output.put_slice(text.as_bytes());
        } else {
            put_escaped(output, text);
        }
    };
    let mut before = &b"\""[..];
    for (name, value) in fields.iter() {
        output.put_slice(before);
        put(output, name);
        output.put_slice(b"\":\"");
        put(output, value);
        before = b"\",\"";
    }
    output.put_u8(b'"');
}

/// Appends the inside of a string.
fn put_escaped(output: &mut BytesMut, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut rest = text.as_bytes();
    while let Some(at) = find_special(rest, true) {
        output.put_slice(&rest[..at]);
        match rest[at] {
            b'"' => output.put_slice(b"\\\""),
            b'\\' => output.put_slice(b"\\\\"),
            b'\n' => output.put_slice(b"\\n"),
            b'\r' => output.put_slice(b"\\r"),
            b'\t' => output.put_slice(b"\\t"),
            byte => {
                let escape = [b'\\', b'u', b'0', b'0', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                output.put_slice(&escape);
            }
        }
        rest = &rest[at + 1..];
    }
    output.put_slice(rest);
}

/// Where the first byte is that ends the plain part of a string: `"`, `\` and, if asked for, a control character.
///
/// Looks at eight bytes at a time, because every header goes through here.
#[inline]
fn find_special(bytes: &[u8], with_control: bool) -> Option<usize> {
    const fn each(byte: u8) -> u64 {
        u64::from_ne_bytes([byte; 8])
    }
    // The lowest flagged byte is exact; those above it may be flagged wrongly by a borrow.
    const fn below(word: u64, limit: u8) -> u64 {
        word.wrapping_sub(each(limit)) & !word & each(0x80)
    }
    let is_special = |byte: u8| byte == b'"' || byte == b'\\' || (with_control && byte < 0x20);
    let mut rest = bytes;
    while let Some((word, behind)) = rest.split_first_chunk() {
        let word = u64::from_le_bytes(*word);
        let mut flags = below(word ^ each(b'"'), 1) | below(word ^ each(b'\\'), 1);
        if with_control {
            flags |= below(word, 0x20);
        }
        if flags != 0 {
            return Some(bytes.len() - rest.len() + flags.trailing_zeros() as usize / 8);
        }
        rest = behind;
    }
    rest.iter().position(|byte| is_special(*byte)).map(|at| bytes.len() - rest.len() + at)
}

// ---- reading ----

pub(crate) fn decode(header: &[u8]) -> Result<RemotingCommand, FrameError> {
    let text = std::str::from_utf8(header)
        .map_err(|error| FrameError::Header { at: error.valid_up_to(), problem: "not UTF-8" })?;
    let mut reader = Reader { text, at: 0, problem: "" };
    let mut command = RemotingCommand {
        serialize_type: SerializeType::Json,
        code: 0,
        language: None,
        version: Version(0),
        opaque: 0,
        flag: 0,
        remark: None,
        fields: Fields::new(),
        body: Payload::EMPTY,
    };
    match reader.command(&mut command) {
        Ok(()) => Ok(command),
        Err(Malformed) => Err(FrameError::Header { at: reader.at, problem: reader.problem }),
    }
}

/// Reads a header from front to back.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// What is wrong at `at`, once something is.
    problem: &'static str,
}

/// The reader has noted what is wrong. It stays where that is.
///
/// Without a size, so that what the many small steps return fits into registers.
struct Malformed;

impl<'a> Reader<'a> {
    #[cold]
    fn malformed(&mut self, problem: &'static str) -> Malformed {
        self.problem = problem;
        Malformed
    }

    #[inline]
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next byte that is not blank; it stays.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.byte() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                other => return other,
            }
        }
    }

    #[inline]
    fn expect(&mut self, byte: u8, problem: &'static str) -> Result<(), Malformed> {
        if self.peek() != Some(byte) {
            return Err(self.malformed(problem));
        }
        self.at += 1;
        Ok(())
    }

    #[inline]
    fn colon(&mut self) -> Result<(), Malformed> {
        self.expect(b':', "expected `:`")
    }

    /// The whole header.
    fn command(&mut self, command: &mut RemotingCommand) -> Result<(), Malformed> {
        self.object(|reader| {
            let name = reader.string()?;
            reader.colon()?;
            match name.as_ref() {
                "code" => command.code = reader.integer()?,
                "flag" => command.flag = reader.integer()?,
                "opaque" => command.opaque = reader.integer()?,
                "version" => command.version = Version(reader.integer()?),
                "language" => command.language = reader.language()?,
                "remark" => command.remark = reader.optional_string()?.filter(|remark| !remark.is_empty()),
                "extFields" => command.fields = reader.fields()?,
                _ => reader.skip(0)?,
            }
            Ok(())
        })?;
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.malformed("something behind the object")),
        }
    }

    /// Reads `{…}`, calling `member` at each name.
    #[inline]
    fn object(&mut self, mut member: impl FnMut(&mut Self) -> Result<(), Malformed>) -> Result<(), Malformed> {
        self.expect(b'{', "expected an object")?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            member(self)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.malformed("expected `,` or `}`")),
            }
        }
    }

    fn fields(&mut self) -> Result<Fields, Malformed> {
        if self.peek() == Some(b'n') {
            self.word()?;
            return Ok(Fields::new());
        }
        let mut fields = Fields::with_capacity(16, self.text.len() + 128);
        fields.text_mut().push_str(self.text);
        self.object(|reader| {
            let name = reader.field_text(&mut fields)?;
            reader.colon()?;
            if reader.peek() == Some(b'"') {
                let value = reader.field_text(&mut fields)?;
                fields.add(name, value);
                return Ok(());
            }
            let start = reader.at;
            reader.skip(0)?;
            if &reader.text[start..reader.at] != "null" {
                fields.add(name, start..reader.at);
            }
            Ok(())
        })?;
        Ok(fields)
    }

    /// Where the text of a string lies in that of `fields`, which starts with the whole header: in place, or behind it
    /// if there were escapes.
    #[inline]
    fn field_text(&mut self, fields: &mut Fields) -> Result<Range<usize>, Malformed> {
        self.expect(b'"', "expected a string")?;
        let start = self.at;
        if self.plain()? == b'"' {
            return Ok(start..self.at - 1);
        }
        let out = fields.text_mut();
        let out_start = out.len();
        self.unescape(start, out)?;
        Ok(out_start..out.len())
    }

    /// The text of a string; copied only if it has escapes.
    #[inline]
    fn string(&mut self) -> Result<Cow<'a, str>, Malformed> {
        self.expect(b'"', "expected a string")?;
        let start = self.at;
        if self.plain()? == b'"' {
            return Ok(Cow::Borrowed(&self.text[start..self.at - 1]));
        }
        let mut out = String::new();
        self.unescape(start, &mut out)?;
        Ok(Cow::Owned(out))
    }

    /// Passes over a part of a string that has no escapes, and over the quote or backslash behind it, which it gives.
    #[inline]
    fn plain(&mut self) -> Result<u8, Malformed> {
        let rest = &self.text.as_bytes()[self.at..];
        let Some(length) = find_special(rest, false) else {
            return Err(self.malformed("a string without an end"));
        };
        self.at += length + 1;
        Ok(rest[length])
    }

    /// Appends a string to `out` that began at `start` and whose first backslash was just passed.
    fn unescape(&mut self, start: usize, out: &mut String) -> Result<(), Malformed> {
        out.push_str(&self.text[start..self.at - 1]);
        loop {
            let unescaped = self.escape()?;
            out.push(unescaped);
            let start = self.at;
            let end = self.plain()?;
            out.push_str(&self.text[start..self.at - 1]);
            if end == b'"' {
                return Ok(());
            }
        }
    }

    /// The character behind a backslash.
    fn escape(&mut self) -> Result<char, Malformed> {
        let escape = self.byte().ok_or_else(|| self.malformed("a string without an end"))?;
        let unescaped = match escape {
            b'"' | b'\\' | b'/' | b'\'' => char::from(escape),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err(self.malformed("unknown escape")),
        };
        self.at += 1;
        Ok(unescaped)
    }

    /// The character of `XXXX` or, for a surrogate pair, of `XXXX\uXXXX`. Half a pair becomes U+FFFD.
    fn unicode(&mut self) -> Result<char, Malformed> {
        let first = self.hex4()?;
        if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with("\\u") {
            let back = self.at;
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

    fn hex4(&mut self) -> Result<u32, Malformed> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).ok_or_else(|| self.malformed("short escape"))?;
        let value = digits.iter().try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?));
        let value = value.ok_or_else(|| self.malformed("expected four hex digits"))?;
        self.at += 4;
        Ok(value)
    }

    /// An integer of 32 bits, also in quotes; `null` is 0.
    fn integer(&mut self) -> Result<i32, Malformed> {
        let quoted = self.peek() == Some(b'"');
        self.at += usize::from(quoted);
        let word = self.word()?;
        let value = if word == "null" { Some(0) } else { word.parse().ok() };
        let value = value.ok_or_else(|| self.malformed("expected an integer of 32 bits"))?;
        if quoted {
            self.expect(b'"', "expected `\"`")?;
        }
        Ok(value)
    }

    /// A name or a number.
    fn language(&mut self) -> Result<Option<Language>, Malformed> {
        if self.peek() == Some(b'"') {
            return Ok(Language::from_name(&self.string()?));
        }
        Ok(self.word()?.parse().ok().and_then(Language::from_code))
    }

    fn optional_string(&mut self) -> Result<Option<String>, Malformed> {
        if self.peek() == Some(b'n') {
            self.word()?;
            return Ok(None);
        }
        Ok(Some(self.string()?.into_owned()))
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> Result<&'a str, Malformed> {
        self.peek();
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        let length = rest.bytes().take_while(is_part).count();
        let word = &rest[..length];
        let is_number = word.as_bytes().first().is_some_and(|byte| *byte == b'-' || byte.is_ascii_digit());
        if !is_number && !matches!(word, "true" | "false" | "null") {
            return Err(self.malformed("expected a value"));
        }
        self.at += length;
        Ok(word)
    }

    /// Passes over any value.
    fn skip(&mut self, depth: usize) -> Result<(), Malformed> {
        if depth > DEPTH_MAX {
            return Err(self.malformed("nested too deeply"));
        }
        match self.peek() {
            Some(b'"') => self.string().map(|_| ()),
            Some(b'{') => self.object(|reader| {
                reader.string()?;
                reader.colon()?;
                reader.skip(depth + 1)
            }),
            Some(b'[') => self.array(depth),
            _ => self.word().map(|_| ()),
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), Malformed> {
        self.at += 1;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.skip(depth + 1)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.malformed("expected `,` or `]`")),
            }
        }
    }
}
