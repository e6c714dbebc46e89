//! The bodies of requests and responses.
//!
//! Every type is JSON in the dialect of the reference: [`Body::decode`] reads it, [`Body::encode`] writes it. Members
//! that are absent take their default, unknown ones are ignored. Member lists: `spec/protocol.md` 5 and the section of
//! the request.

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use crate::json::{self, Dialect, JsonError};

mod admin;
mod group;
mod queue;
mod register;
mod route;
mod session;
mod topic;

pub use admin::*;
pub use group::*;
pub use queue::*;
pub use register::*;
pub use route::*;
pub use session::*;
pub use topic::*;

/// A body that travels as JSON.
pub trait Body: Serialize + DeserializeOwned {
    /// Reads the body of a frame.
    ///
    /// # Errors
    /// The bytes are no JSON of this shape; no bytes at all neither.
    fn decode(body: &Bytes) -> Result<Self, JsonError> {
        json::from_slice(body)
    }

    /// Writes the body of a frame.
    fn encode(&self) -> Bytes {
        self.encode_as(Dialect::Fastjson)
    }

    /// Writes the body of a frame in the dialect that its reader wants.
    fn encode_as(&self, dialect: Dialect) -> Bytes {
        Bytes::from(json::to_string(self, dialect))
    }
}

impl<T: Serialize + DeserializeOwned> Body for T {}

/// Declares bodies: for each member its Rust name, its type and its name on the wire, in the order of the wire, perhaps
/// its default (`or 16`) or another name that is read (`alias "topicSynFlag"`).
macro_rules! bodies {
    ($(
        $(#[$meta:meta])*
        $name:ident {
            $(
                $(#[$field_meta:meta])*
                $field:ident: $type:ty = $wire:literal $(alias $alias:literal)? $(or $default:expr)?
            ),* $(,)?
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $(
                #[doc = concat!("On the wire `", $wire, "`.")]
                $(#[$field_meta])*
                #[serde(rename = $wire $(, alias = $alias)?)]
                pub $field: $type,
            )*
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $crate::body::default_of!($($default)?),)* }
            }
        }
    )*};
}

macro_rules! default_of {
    () => {
        Default::default()
    };
    ($default:expr) => {
        $default.into()
    };
}

/// Declares enumerations that travel as the name of their value.
macro_rules! names {
    ($(
        $(#[$meta:meta])*
        $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $wire:literal),* $(,)?
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
        )]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $wire)] $variant,)*
        }

        impl $name {
            /// The name on the wire.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $wire,)* }
            }
        }
    )*};
}

use {bodies, default_of, names};
