//! Typed headers: what a request or a response says beside its body.
//!
//! [`headers!`] declares a struct and how each field is called on the wire. A handler never looks a name up.

use std::fmt;

use crate::fields::Fields;

/// A header that can be read from and written to the extension fields of a frame.
pub trait Header: Sized + Send + 'static {
    /// What the header consists of.
    const FIELDS: &'static [FieldRow];

    /// Reads the header. Unknown fields are ignored; a number that cannot be read counts as absent, except in the
    /// headers that the reference reads strictly (sends in the second spelling, pulls and their answers).
    ///
    /// # Errors
    /// A required field is absent, or a value of a strict header cannot be read.
    ///
    /// Source: `spec/protocol.md` 1.9.
    fn decode(fields: &Fields) -> Result<Self, HeaderError>;

    /// Adds the header's fields; those that are `None` are left out.
    fn encode(&self, fields: &mut Fields);
}

/// One field of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldRow {
    /// Its name on the wire.
    pub name: &'static str,
    /// What its text means.
    pub kind: &'static str,
    /// Whether a header without it is refused.
    pub required: bool,
}

/// Why a header cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// A required field is not there.
    #[error("the header {header} lacks the field `{field}`")]
    Missing {
        /// The type of the header.
        header: &'static str,
        /// The name on the wire.
        field: &'static str,
    },
    /// The text of a field does not fit its type.
    #[error("the field `{field}` of {header} cannot be `{value}`")]
    Unreadable {
        /// The type of the header.
        header: &'static str,
        /// The name on the wire.
        field: &'static str,
        /// What it said, cut after 64 bytes.
        value: String,
    },
}

/// The header of requests and responses that have no fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NoHeader;

impl Header for NoHeader {
    const FIELDS: &'static [FieldRow] = &[];

    fn decode(_: &Fields) -> Result<NoHeader, HeaderError> {
        Ok(NoHeader)
    }

    fn encode(&self, _: &mut Fields) {}
}

/// The header of codes whose fields have no type: whatever was sent.
impl Header for Fields {
    const FIELDS: &'static [FieldRow] = &[];

    fn decode(fields: &Fields) -> Result<Fields, HeaderError> {
        Ok(fields.clone())
    }

    fn encode(&self, fields: &mut Fields) {
        for (name, value) in self.iter() {
            fields.push(name, value);
        }
    }
}

/// Which end of a tie a search by time wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BoundaryType {
    /// The first entry at or after the time.
    #[default]
    Lower,
    /// The last entry at or before the time.
    Upper,
}

/// A type that a field may have.
pub(crate) trait FieldType: Sized {
    const KIND: &'static str;
    const REQUIRED: bool = true;

    /// `None` if the text cannot be this type.
    fn read(text: &str) -> Option<Self>;

    /// The value of a field that is not there; `None` if it must be.
    fn absent() -> Option<Self> {
        None
    }

    fn write(&self, name: &'static str, fields: &mut Fields);
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl FieldType for $type {
            const KIND: &'static str = stringify!($type);

            fn read(text: &str) -> Option<$type> {
                text.parse().ok()
            }

            fn write(&self, name: &'static str, fields: &mut Fields) {
                fields.push(name, itoa::Buffer::new().format(*self));
            }
        }
    )*};
}

integers!(i32, i64);

impl FieldType for bool {
    const KIND: &'static str = "bool";

    /// Whatever is not "true" is false, as the reference reads it.
    fn read(text: &str) -> Option<bool> {
        Some(text.eq_ignore_ascii_case("true"))
    }

    fn write(&self, name: &'static str, fields: &mut Fields) {
        fields.push(name, if *self { "true" } else { "false" });
    }
}

impl FieldType for String {
    const KIND: &'static str = "string";

    fn read(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn write(&self, name: &'static str, fields: &mut Fields) {
        fields.push(name, self);
    }
}

impl FieldType for BoundaryType {
    const KIND: &'static str = "LOWER or UPPER";
    const REQUIRED: bool = false;

    fn read(text: &str) -> Option<BoundaryType> {
        Some(if text.eq_ignore_ascii_case("upper") { BoundaryType::Upper } else { BoundaryType::Lower })
    }

    fn absent() -> Option<BoundaryType> {
        Some(BoundaryType::Lower)
    }

    fn write(&self, name: &'static str, fields: &mut Fields) {
        fields.push(
            name,
            match self {
                BoundaryType::Lower => "LOWER",
                BoundaryType::Upper => "UPPER",
            },
        );
    }
}

impl<T: FieldType> FieldType for Option<T> {
    const KIND: &'static str = T::KIND;
    const REQUIRED: bool = false;

    fn read(text: &str) -> Option<Option<T>> {
        T::read(text).map(Some)
    }

    fn absent() -> Option<Option<T>> {
        Some(None)
    }

    fn write(&self, name: &'static str, fields: &mut Fields) {
        if let Some(value) = self {
            value.write(name, fields);
        }
    }
}

pub(crate) fn unreadable(header: &'static str, field: &'static str, value: &str) -> HeaderError {
    let mut value = value.to_owned();
    value.truncate(value.floor_char_boundary(64));
    HeaderError::Unreadable { header, field, value }
}

impl fmt::Display for BoundaryType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BoundaryType::Lower => "LOWER",
            BoundaryType::Upper => "UPPER",
        })
    }
}

/// Declares headers: for each field its Rust name, its type and its name on the wire.
///
/// A field of a type that is not optional is required. `strict` in front of a name makes a value that does not fit an
/// error; otherwise it counts as absent.
macro_rules! headers {
    () => {};
    ($(#[$meta:meta])* strict $name:ident { $($fields:tt)* } $($rest:tt)*) => {
        $crate::header::headers!(@one [$(#[$meta])*] true $name { $($fields)* });
        $crate::header::headers!($($rest)*);
    };
    ($(#[$meta:meta])* $name:ident { $($fields:tt)* } $($rest:tt)*) => {
        $crate::header::headers!(@one [$(#[$meta])*] false $name { $($fields)* });
        $crate::header::headers!($($rest)*);
    };
    (@one [$(#[$meta:meta])*] $strict:literal $name:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty = $wire:literal),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $(
                #[doc = concat!("On the wire `", $wire, "`.")]
                $(#[$field_meta])*
                pub $field: $type,
            )*
        }

        impl $crate::header::Header for $name {
            const FIELDS: &'static [$crate::header::FieldRow] = &[$(
                $crate::header::FieldRow {
                    name: $wire,
                    kind: <$type as $crate::header::FieldType>::KIND,
                    required: <$type as $crate::header::FieldType>::REQUIRED,
                },
            )*];

            fn decode(fields: &$crate::Fields) -> Result<Self, $crate::HeaderError> {
                $(let mut $field: Option<$type> = None;)*
                for (name, value) in fields.iter() {
                    match name {
                        $($wire => {
                            $field = <$type as $crate::header::FieldType>::read(value);
                            if $strict && $field.is_none() {
                                return Err($crate::header::unreadable(stringify!($name), $wire, value));
                            }
                        })*
                        _ => {}
                    }
                }
                Ok($name {$(
                    $field: match $field.or_else(<$type as $crate::header::FieldType>::absent) {
                        Some(value) => value,
                        None => return Err($crate::HeaderError::Missing { header: stringify!($name), field: $wire }),
                    },
                )*})
            }

            fn encode(&self, fields: &mut $crate::Fields) {
                $($crate::header::FieldType::write(&self.$field, $wire, fields);)*
            }
        }
    };
}

pub(crate) use headers;
