//! The JSON of bodies and configuration files, in the dialect of the reference.
//!
//! The reference writes maps with integer keys without quotes (`{0:"a"}`) and maps with object keys as they are
//! (`{{"queueId":0}:7}`), leaves out members that are null, and reads a good deal more than JSON. [`from_slice`] reads
//! all of that, [`to_string`] writes it. Types are those of serde; declare members in alphabetical order and missing
//! ones with `#[serde(default)]`.
//!
//! Source: `spec/protocol.md` 2.

mod read;
mod value;
mod write;

use serde::{Serialize, de::DeserializeOwned};

pub use value::Json;

/// How keys of maps are written that are not texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// As the reference does: integers without quotes, objects as objects. What Java and Go read.
    #[default]
    Fastjson,
    /// As JSON wants it: in quotes. For routes to callers that ask for it.
    Standard,
}

/// Text that is not the JSON that was expected, or a value that has none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// The text does not follow the grammar.
    #[error("malformed JSON at byte {at}: {problem}")]
    Syntax {
        /// Counted from the start of the text.
        at: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// The text is JSON, but not of this type.
    #[error("unexpected JSON: {0}")]
    Shape(String),
}

impl serde::de::Error for JsonError {
    fn custom<T: std::fmt::Display>(message: T) -> JsonError {
        JsonError::Shape(message.to_string())
    }
}

impl serde::ser::Error for JsonError {
    fn custom<T: std::fmt::Display>(message: T) -> JsonError {
        JsonError::Shape(message.to_string())
    }
}

/// Reads a value.
///
/// Unknown members are ignored, `null` is the same as absent, numbers may stand in quotes, references (`$ref`) are
/// resolved.
///
/// # Errors
/// The text is malformed, nested more than 64 levels deep, holds more than four million values, or is not a `T`.
pub fn from_slice<T: DeserializeOwned>(text: &[u8]) -> Result<T, JsonError> {
    T::deserialize(parse(text)?)
}

/// Reads a value without knowing its type.
///
/// # Errors
/// As [`from_slice`].
pub fn parse(text: &[u8]) -> Result<Json, JsonError> {
    read::parse(text)?.resolved()
}

/// Writes a value compactly. Members and entries that are null are left out.
///
/// # Panics
/// If a key of a map is neither a text, an integer nor an object, which no type of this project has.
pub fn to_string<T: Serialize + ?Sized>(value: &T, dialect: Dialect) -> String {
    write::write(value, dialect).expect("keys are texts, integers or objects")
}
