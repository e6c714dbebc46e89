//! The JSON form of a header, written and read without a document tree. Source: `spec/protocol.md` 1.2.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};

use crate::{
    command::{RemotingCommand, SerializeType},
    fields::Fields,
    frame::FrameError,
    header::push_integer,
    language::{Language, Version},
    payload::Payload,
};

/// Nested deeper than this, an unknown member makes the header malformed.
const DEPTH_MAX: usize = 64;

// ---- writing ----

pub(crate) fn encode(command: &RemotingCommand, output: &mut BytesMut) {
    let mut digits = String::with_capacity(20);
    let mut integer = |output: &mut BytesMut, value: i32| {
        digits.clear();
        push_integer(&mut digits, i64::from(value));
        output.put_slice(digits.as_bytes());
    };
    output.reserve(160 + command.fields.len() * 32);
    output.put_slice(b"{\"code\":");
    integer(output, command.code);
    if !command.fields.is_empty() {
        output.put_slice(b",\"extFields\":{");
        for (at, (name, value)) in command.fields.iter().enumerate() {
            if at > 0 {
                output.put_u8(b',');
            }
            put_string(output, name);
            output.put_u8(b':');
            put_string(output, value);
        }
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
        output.put_slice(b",\"remark\":");
        put_string(output, remark);
    }
    output.put_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    integer(output, command.version.0);
    output.put_u8(b'}');
}

fn put_string(output: &mut BytesMut, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    output.put_u8(b'"');
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
    output.put_u8(b'"');
}

/// Where the first byte is that ends the plain part of a string: `"`, `\` and, if asked for, a control character.
///
/// Looks at eight bytes at a time, because every header goes through here.
fn find_special(bytes: &[u8], with_control: bool) -> Option<usize> {
    const fn each(byte: u8) -> u64 {
        u64::from_ne_bytes([byte; 8])
    }
    // The lowest flagged byte is exact; those above it may be flagged wrongly by a borrow.
    const fn below(word: u64, limit: u8) -> u64 {
        word.wrapping_sub(each(limit)) & !word & each(0x80)
    }
    let is_special = |byte: u8| byte == b'"' || byte == b'\\' || (with_control && byte < 0x20);
    let mut words = bytes.chunks_exact(8);
    let mut at = 0;
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().expect("chunks have eight bytes"));
        let mut flags = below(word ^ each(b'"'), 1) | below(word ^ each(b'\\'), 1);
        if with_control {
            flags |= below(word, 0x20);
        }
        if flags != 0 {
            return Some(at + flags.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    words.remainder().iter().position(|byte| is_special(*byte)).map(|rest| at + rest)
}

// ---- reading ----

pub(crate) fn decode(header: &[u8]) -> Result<RemotingCommand, FrameError> {
    let text = std::str::from_utf8(header)
        .map_err(|error| FrameError::Header { at: error.valid_up_to(), problem: "not UTF-8" })?;
    let mut reader = Reader { text, at: 0 };
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
    reader.object(|reader| {
        let name = reader.name()?;
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
    reader.blank();
    if reader.at < text.len() { Err(reader.malformed("something behind the object")) } else { Ok(command) }
}

/// Reads a header from front to back.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn malformed(&self, problem: &'static str) -> FrameError {
        FrameError::Header { at: self.at, problem }
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blank(&mut self) {
        while self.byte().is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// The next byte that is not blank; it stays.
    fn peek(&mut self) -> Option<u8> {
        self.blank();
        self.byte()
    }

    fn expect(&mut self, byte: u8, problem: &'static str) -> Result<(), FrameError> {
        if self.peek() != Some(byte) {
            return Err(self.malformed(problem));
        }
        self.at += 1;
        Ok(())
    }

    fn colon(&mut self) -> Result<(), FrameError> {
        self.expect(b':', "expected `:`")
    }

    /// Reads `{…}`, calling `member` at each name.
    fn object(&mut self, mut member: impl FnMut(&mut Self) -> Result<(), FrameError>) -> Result<(), FrameError> {
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

    fn fields(&mut self) -> Result<Fields, FrameError> {
        if self.peek() == Some(b'n') {
            self.word()?;
            return Ok(Fields::new());
        }
        let mut fields = Fields::with_capacity(16, 320);
        self.object(|reader| {
            let start = fields.begin();
            reader.string(fields.text_mut())?;
            reader.colon()?;
            let value_start = fields.begin();
            if reader.field_value(fields.text_mut())? {
                fields.end(start, value_start);
            } else {
                fields.rewind(start);
            }
            Ok(())
        })?;
        Ok(fields)
    }

    /// Appends the text of a value to `out`: that of a string, or anything else as it stands. False for `null`.
    fn field_value(&mut self, out: &mut String) -> Result<bool, FrameError> {
        if self.peek() == Some(b'"') {
            return self.string(out).map(|()| true);
        }
        let start = self.at;
        self.skip(0)?;
        let value = &self.text[start..self.at];
        out.push_str(value);
        Ok(value != "null")
    }

    /// The name of a member; copied only if it has escapes.
    fn name(&mut self) -> Result<Cow<'a, str>, FrameError> {
        self.expect(b'"', "expected a string")?;
        let rest = &self.text[self.at..];
        match find_special(rest.as_bytes(), false) {
            Some(length) if rest.as_bytes()[length] == b'"' => {
                self.at += length + 1;
                Ok(Cow::Borrowed(&rest[..length]))
            }
            _ => {
                self.at -= 1;
                let mut name = String::new();
                self.string(&mut name)?;
                Ok(Cow::Owned(name))
            }
        }
    }

    /// Appends the text of a string to `out`.
    fn string(&mut self, out: &mut String) -> Result<(), FrameError> {
        self.expect(b'"', "expected a string")?;
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let length = find_special(rest, false).ok_or_else(|| self.malformed("a string without an end"))?;
            out.push_str(&self.text[self.at..self.at + length]);
            self.at += length + 1;
            if rest[length] == b'"' {
                return Ok(());
            }
            let unescaped = self.escape()?;
            out.push(unescaped);
        }
    }

    /// The character behind a backslash.
    fn escape(&mut self) -> Result<char, FrameError> {
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
    fn unicode(&mut self) -> Result<char, FrameError> {
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

    fn hex4(&mut self) -> Result<u32, FrameError> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).ok_or_else(|| self.malformed("short escape"))?;
        let value = digits.iter().try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?));
        let value = value.ok_or_else(|| self.malformed("expected four hex digits"))?;
        self.at += 4;
        Ok(value)
    }

    /// An integer of 32 bits, also in quotes; `null` is 0.
    fn integer(&mut self) -> Result<i32, FrameError> {
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
    fn language(&mut self) -> Result<Option<Language>, FrameError> {
        if self.peek() == Some(b'"') {
            let mut name = String::new();
            self.string(&mut name)?;
            return Ok(Language::from_name(&name));
        }
        Ok(self.word()?.parse().ok().and_then(Language::from_code))
    }

    fn optional_string(&mut self) -> Result<Option<String>, FrameError> {
        if self.peek() == Some(b'n') {
            self.word()?;
            return Ok(None);
        }
        let mut text = String::new();
        self.string(&mut text)?;
        Ok(Some(text))
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> Result<&'a str, FrameError> {
        self.blank();
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
    fn skip(&mut self, depth: usize) -> Result<(), FrameError> {
        if depth > DEPTH_MAX {
            return Err(self.malformed("nested too deeply"));
        }
        match self.peek() {
            Some(b'"') => self.string(&mut String::new()),
            Some(b'{') => self.object(|reader| {
                reader.string(&mut String::new())?;
                reader.colon()?;
                reader.skip(depth + 1)
            }),
            Some(b'[') => self.array(depth),
            _ => self.word().map(|_| ()),
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), FrameError> {
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
