//! RocketMQ's wire: frames, requests, bodies, connections.
//!
//! A frame is a [`RemotingCommand`]. Every request code is one row of one table, [`RequestCode::TABLE`], from which the
//! typed [`Request`] follows: after a request was decoded, nobody looks up a field by its name again. Bodies are typed
//! too ([`body`]), in the JSON dialect of the reference ([`json`]).
//!
//! This crate owns codecs, codes, bodies, connections and the reading of settings. It knows neither what a topic means
//! nor any file. Everything that comes from the other side of a socket may be anything: it yields an error, never a
//! panic.

pub mod body;
pub mod json;
pub mod settings;

mod binary_header;
mod client;
mod command;
mod connection;
mod fields;
mod frame;
mod handler;
mod header;
mod headers;
mod intake;
mod json_header;
mod language;
mod log_epoch;
mod outbox;
mod payload;
mod peer;
mod pull_flag;
mod request;
mod response_code;
mod server;

pub use client::{Client, ClientConfig};
pub use command::{RemotingCommand, Response, SerializeType};
pub use fields::Fields;
pub use frame::{FRAME_BYTES_MAX, FrameError};
pub use handler::{Handler, Inbound, NoHandler, Reply};
pub use header::{BoundaryType, FieldRow, Header, HeaderError, NoHeader};
pub use headers::*;
pub use language::{Language, Version};
pub use log_epoch::LogEpoch;
pub use payload::Payload;
pub use peer::{CloseReason, InvokeError, Peer};
pub use pull_flag::PullSysFlag;
pub use request::{BodyKind, Request, RequestCode, RequestRow, Role, UNSERVED_CODES};
pub use response_code::ResponseCode;
pub use server::{ListenError, Server, ServerConfig};
