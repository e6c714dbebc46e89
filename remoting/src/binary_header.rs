//! The ROCKETMQ binary form of a header. Source: `spec/protocol.md` 1.3.

use bytes::{BufMut, BytesMut};

use crate::{
    command::{RemotingCommand, SerializeType},
    fields::Fields,
    frame::FrameError,
    language::{Language, Version},
    payload::Payload,
};

/// What a peer without a language sends; no language has this code.
const NO_LANGUAGE: u8 = 0xff;

/// Whether code, version and names fit into the 16 bits that this form has for them.
pub(crate) fn fits(command: &RemotingCommand) -> bool {
    i16::try_from(command.code).is_ok()
        && i16::try_from(command.version.0).is_ok()
        && command.fields.iter().all(|(name, _)| i16::try_from(name.len()).is_ok())
}

pub(crate) fn encode(command: &RemotingCommand, output: &mut BytesMut) {
    output.reserve(21 + command.fields.len() * 32);
    output.put_i16(i16::try_from(command.code).expect("checked by fits()"));
    output.put_u8(command.language.map_or(NO_LANGUAGE, Language::code));
    output.put_i16(i16::try_from(command.version.0).expect("checked by fits()"));
    output.put_i32(command.opaque);
    output.put_i32(command.flag);
    put_text(output, command.remark.as_deref().unwrap_or_default());
    let length_at = output.len();
    output.put_i32(0);
    // An empty value would be read as an absent field, and an empty name makes the pair meaningless.
    for (name, value) in command.fields.iter().filter(|(name, value)| !name.is_empty() && !value.is_empty()) {
        output.put_i16(i16::try_from(name.len()).expect("checked by fits()"));
        output.put_slice(name.as_bytes());
        put_text(output, value);
    }
    let length = u32::try_from(output.len() - length_at - 4).unwrap_or(u32::MAX);
    output[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
}

fn put_text(output: &mut BytesMut, text: &str) {
    // A text beyond 4 GiB makes the frame too long, which whoever ends the frame reports.
    output.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
    output.put_slice(text.as_bytes());
}

pub(crate) fn decode(header: &[u8]) -> Result<RemotingCommand, FrameError> {
    let mut input = Cursor { bytes: header, at: 0 };
    let code = i32::from(input.i16()?);
    let language = Language::from_code(i64::from(input.take(1)?[0]));
    let version = Version(i32::from(input.i16()?));
    let opaque = input.i32()?;
    let flag = input.i32()?;
    let remark_bytes = input.length()?;
    let remark = input.text(remark_bytes)?;
    let ext_bytes = input.length()?;
    if ext_bytes != header.len() - input.at {
        return Err(input.malformed("the fields do not end with the header"));
    }
    let mut fields = if ext_bytes == 0 { Fields::new() } else { Fields::with_capacity(16, ext_bytes) };
    while input.at < header.len() {
        let name_bytes = usize::try_from(input.i16()?).map_err(|_| input.malformed("negative length"))?;
        let name = input.text(name_bytes)?;
        let value_bytes = input.length()?;
        let value = input.text(value_bytes)?;
        if !name.is_empty() && !value.is_empty() {
            fields.push(name, value);
        }
    }
    Ok(RemotingCommand {
        serialize_type: SerializeType::Binary,
        code,
        language,
        version,
        opaque,
        flag,
        remark: Some(remark.to_owned()).filter(|remark| !remark.is_empty()),
        fields,
        body: Payload::EMPTY,
    })
}

/// Reads a header from front to back.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn malformed(&self, problem: &'static str) -> FrameError {
        FrameError::Header { at: self.at, problem }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..count).ok_or_else(|| self.malformed("longer than the header"))?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        Ok(self.take(N)?.try_into().expect("took exactly as many"))
    }

    fn i16(&mut self) -> Result<i16, FrameError> {
        self.array().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Result<i32, FrameError> {
        self.array().map(i32::from_be_bytes)
    }

    fn length(&mut self) -> Result<usize, FrameError> {
        let length = self.i32()?;
        usize::try_from(length).map_err(|_| self.malformed("negative length"))
    }

    fn text(&mut self, bytes: usize) -> Result<&'a str, FrameError> {
        let taken = self.take(bytes)?;
        std::str::from_utf8(taken).map_err(|_| self.malformed("not UTF-8"))
    }
}
