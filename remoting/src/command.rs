//! One frame of the wire, decoded: a request or a response with its header fields and its body.

use bytes::{Bytes, BytesMut};

use crate::{
    binary_header,
    fields::Fields,
    frame::{self, FrameError},
    header::{Header, HeaderError},
    json_header,
    language::{Language, Version},
    payload::Payload,
    response_code::ResponseCode,
};

/// How the header of a frame is written. Source: `spec/protocol.md` 1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SerializeType {
    /// A JSON object; type byte 0.
    #[default]
    Json,
    /// The ROCKETMQ binary form; type byte 1.
    Binary,
}

/// A frame: what the reference calls by the same name.
///
/// Source: `spec/protocol.md` 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemotingCommand {
    /// How its header is or was written.
    pub serialize_type: SerializeType,
    /// The request or response code.
    pub code: i32,
    /// The language of the sender, if it is a known one.
    pub language: Option<Language>,
    /// The version of the sender.
    pub version: Version,
    /// Matches a response with its request.
    pub opaque: i32,
    /// Bit 0: a response. Bit 1: no response wanted. Other bits mean nothing.
    pub flag: i32,
    /// The text of a failure, or a status. Never empty.
    pub remark: Option<String>,
    /// The header fields.
    pub fields: Fields,
    /// The body.
    pub body: Payload,
}

const FLAG_RESPONSE: i32 = 1;
const FLAG_ONE_WAY: i32 = 2;

impl RemotingCommand {
    /// A request as this crate sends it: language Rust, version [`Version::CURRENT`].
    #[must_use]
    pub fn request(code: i32, opaque: i32, fields: Fields, body: Payload) -> RemotingCommand {
        RemotingCommand {
            serialize_type: SerializeType::Json,
            code,
            language: Some(Language::Rust),
            version: Version::CURRENT,
            opaque,
            flag: 0,
            remark: None,
            fields,
            body,
        }
    }

    /// The frame that carries `response` to the request with this `opaque`, whose header had the given form.
    #[must_use]
    pub fn response(response: Response, opaque: i32, serialize_type: SerializeType) -> RemotingCommand {
        RemotingCommand {
            serialize_type,
            code: response.code.0,
            language: Some(Language::Rust),
            version: response.version,
            opaque,
            flag: FLAG_RESPONSE,
            remark: response.remark,
            fields: response.fields,
            body: response.body,
        }
    }

    /// The same frame, marked as a request that wants no response.
    #[must_use]
    pub fn one_way(mut self) -> RemotingCommand {
        self.flag |= FLAG_ONE_WAY;
        self
    }

    /// Whether this is a response.
    #[must_use]
    pub const fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    /// Whether no response is wanted.
    #[must_use]
    pub const fn is_one_way(&self) -> bool {
        self.flag & FLAG_ONE_WAY != 0
    }

    /// Takes the next frame off the front of `input`. `None` if it is not complete yet; what is there stays.
    ///
    /// The body is a slice of the input, not a copy.
    ///
    /// # Errors
    /// The bytes are not a frame. The connection cannot be used any further, because nobody knows where the next
    /// frame starts.
    pub fn decode(input: &mut BytesMut) -> Result<Option<RemotingCommand>, FrameError> {
        let Some(raw) = frame::split(input)? else { return Ok(None) };
        let mut command = match raw.serialize_type {
            SerializeType::Json => json_header::decode(raw.header())?,
            SerializeType::Binary => binary_header::decode(raw.header())?,
        };
        command.body = Payload::from(raw.body());
        Ok(Some(command))
    }

    /// Appends the whole frame to `output`.
    ///
    /// A frame whose code or names do not fit the binary header is written with a JSON header.
    ///
    /// # Errors
    /// [`FrameError::TooLong`] if no peer would take it. Nothing is written then.
    pub fn encode(&self, output: &mut BytesMut) -> Result<(), FrameError> {
        self.encode_head(output)?;
        for piece in self.body.pieces() {
            output.extend_from_slice(piece);
        }
        Ok(())
    }

    /// Appends everything but the body, whose length is counted.
    pub(crate) fn encode_head(&self, output: &mut BytesMut) -> Result<(), FrameError> {
        let start = frame::begin(output);
        let written = match self.serialize_type {
            SerializeType::Binary if binary_header::fits(self) => {
                binary_header::encode(self, output);
                SerializeType::Binary
            }
            SerializeType::Binary | SerializeType::Json => {
                json_header::encode(self, output);
                SerializeType::Json
            }
        };
        frame::end(output, start, written, self.body.len())
    }
}

/// An answer: a code, perhaps a text, fields and a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Whether it worked. Decide on this only: a success may carry any remark.
    pub code: ResponseCode,
    /// The text of a failure, or a status.
    pub remark: Option<String>,
    /// The fields; see [`decode`](Response::decode).
    pub fields: Fields,
    /// The body.
    pub body: Payload,
    /// The version of whoever answered.
    pub version: Version,
}

impl Response {
    /// It worked, and there is nothing more to say.
    #[must_use]
    pub fn success() -> Response {
        Response {
            code: ResponseCode::SUCCESS,
            remark: None,
            fields: Fields::new(),
            body: Payload::EMPTY,
            version: Version::CURRENT,
        }
    }

    /// It did not work, or not quite.
    #[must_use]
    pub fn failure(code: ResponseCode, remark: impl Into<String>) -> Response {
        Response { code, ..Response::success() }.with_remark(remark)
    }

    /// The answer to a code that the receiver does not serve.
    #[must_use]
    pub fn not_supported(code: i32) -> Response {
        Response::failure(ResponseCode::REQUEST_CODE_NOT_SUPPORTED, format!(" request type {code} not supported"))
    }

    /// The same with another code.
    #[must_use]
    pub fn with_code(mut self, code: ResponseCode) -> Response {
        self.code = code;
        self
    }

    /// The same with a text; an empty one is none.
    #[must_use]
    pub fn with_remark(mut self, remark: impl Into<String>) -> Response {
        self.remark = Some(remark.into()).filter(|remark| !remark.is_empty());
        self
    }

    /// The same with the fields of `header` added.
    #[must_use]
    pub fn with_header(mut self, header: &impl Header) -> Response {
        if self.fields.is_empty() {
            self.fields = Fields::with_capacity(8, 192);
        }
        header.encode(&mut self.fields);
        self
    }

    /// The same with a body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Payload>) -> Response {
        self.body = body.into();
        self
    }

    /// Reads the typed header.
    ///
    /// # Errors
    /// As [`Header::decode`].
    pub fn decode<H: Header>(&self) -> Result<H, HeaderError> {
        H::decode(&self.fields)
    }

    /// The bytes of the body, in one piece.
    #[must_use]
    pub fn body_bytes(&self) -> Bytes {
        self.body.clone().into_bytes()
    }

    pub(crate) fn from_command(command: RemotingCommand) -> Response {
        Response {
            code: ResponseCode(command.code),
            remark: command.remark,
            fields: command.fields,
            body: command.body,
            version: command.version,
        }
    }
}
