//! JSON as a value: what a text says before its type is known, and how serde reads it.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, IntoDeserializer, MapAccess, SeqAccess, Visitor},
    forward_to_deserialize_any,
};

use super::{JsonError, parse};

/// Values that a text with references may expand to: more is an attack.
const EXPANDED_MAX: usize = 1_000_000;
/// References and levels that may lie inside each other.
const RESOLVED_DEPTH_MAX: usize = 128;

/// A JSON value. Keys of objects may be objects themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A number, as it was written: no precision is lost.
    Number(String),
    /// A text.
    String(String),
    /// A list.
    Array(Vec<Json>),
    /// Members in the order of the text. A key is a `String`, an `Object` or an `Array`.
    Object(Vec<(Json, Json)>),
}

impl Json {
    /// The member of an object with this name; of a repeated one the last.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Json> {
        let Json::Object(members) = self else { return None };
        members.iter().rev().find(|(key, _)| matches!(key, Json::String(key) if key == name)).map(|(_, value)| value)
    }

    /// The value with every `{"$ref":"…"}` replaced by what it points at.
    pub(super) fn resolved(self) -> Result<Json, JsonError> {
        if !self.has_reference() {
            return Ok(self);
        }
        let mut budget = EXPANDED_MAX;
        resolve(&self, &self, &mut Vec::new(), &mut budget)
    }

    fn reference(&self) -> Option<&str> {
        match self {
            Json::Object(members) if members.len() == 1 => match self.get("$ref") {
                Some(Json::String(path)) => Some(path),
                _ => None,
            },
            _ => None,
        }
    }

    fn has_reference(&self) -> bool {
        match self {
            Json::Object(members) => {
                self.reference().is_some() || members.iter().any(|(_, value)| value.has_reference())
            }
            Json::Array(items) => items.iter().any(Json::has_reference),
            _ => false,
        }
    }

    /// What `$`, `$.a.b` or `$.a[0]` points at.
    fn at_path(&self, path: &str) -> Option<&Json> {
        let mut here = self;
        for step in path.strip_prefix('$')?.split(['.', '[']).filter(|step| !step.is_empty()) {
            here = match (here, step.strip_suffix(']')) {
                (Json::Array(items), Some(index)) => items.get(index.parse::<usize>().ok()?)?,
                (_, Some(quoted)) => here.get(quoted.trim_matches(['"', '\'']))?,
                (_, None) => here.get(step)?,
            };
        }
        Some(here)
    }

    fn kind(&self) -> de::Unexpected<'_> {
        match self {
            Json::Null => de::Unexpected::Unit,
            Json::Bool(value) => de::Unexpected::Bool(*value),
            Json::Number(text) => de::Unexpected::Other(text),
            Json::String(text) => de::Unexpected::Str(text),
            Json::Array(_) => de::Unexpected::Seq,
            Json::Object(_) => de::Unexpected::Map,
        }
    }
}

/// `parents` are the values around this one, outermost first: `..` is the last but one. `budget` is what may still be
/// made.
fn resolve<'a>(
    value: &'a Json,
    root: &'a Json,
    parents: &mut Vec<&'a Json>,
    budget: &mut usize,
) -> Result<Json, JsonError> {
    let left = budget.checked_sub(1).filter(|_| parents.len() < RESOLVED_DEPTH_MAX);
    *budget = left.ok_or_else(|| JsonError::Shape("references without an end".to_owned()))?;
    let target = match value.reference() {
        None => None,
        Some("@") => Some(parents.last().copied()),
        Some("..") => Some(parents.len().checked_sub(2).map(|at| parents[at])),
        Some(path) => Some(root.at_path(path)),
    };
    parents.push(value);
    let resolved = match (value, target) {
        (_, Some(Some(target))) => resolve(target, root, parents, budget),
        (_, Some(None)) => Err(JsonError::Shape("a reference to nothing".to_owned())),
        (Json::Object(members), None) => members
            .iter()
            .map(|(key, value)| Ok((key.clone(), resolve(value, root, parents, budget)?)))
            .collect::<Result<_, _>>()
            .map(Json::Object),
        (Json::Array(items), None) => {
            items.iter().map(|item| resolve(item, root, parents, budget)).collect::<Result<_, _>>().map(Json::Array)
        }
        (other, None) => Ok(other.clone()),
    };
    parents.pop();
    resolved
}

impl<'de> Deserialize<'de> for Json {
    /// Only from this dialect's own reader.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        struct JsonVisitor;

        impl<'de> Visitor<'de> for JsonVisitor {
            type Value = Json;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Json, E> {
                Ok(Json::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
                Ok(Json::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
                Ok(Json::Number(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
                Ok(Json::Number(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
                Ok(Json::Number(format!("{value:?}")))
            }

            fn visit_str<E>(self, text: &str) -> Result<Json, E> {
                Ok(Json::String(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
                let mut array = Vec::new();
                while let Some(item) = items.next_element()? {
                    array.push(item);
                }
                Ok(Json::Array(array))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
                let mut object = Vec::new();
                while let Some(member) = members.next_entry()? {
                    object.push(member);
                }
                Ok(Json::Object(object))
            }
        }

        deserializer.deserialize_any(JsonVisitor)
    }
}

/// Reads a number, also one in quotes, as the type wanted.
macro_rules! number {
    ($($method:ident $visit:ident $type:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
            let text = match &self {
                Json::Number(text) | Json::String(text) => text,
                other => return Err(de::Error::invalid_type(other.kind(), &visitor)),
            };
            match text.parse::<$type>() {
                Ok(value) => visitor.$visit(value),
                Err(_) => Err(de::Error::invalid_value(self.kind(), &visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Json {
    type Error = JsonError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self {
            Json::Null => visitor.visit_unit(),
            Json::Bool(value) => visitor.visit_bool(value),
            Json::Number(text) => match (text.parse::<i64>(), text.parse::<f64>()) {
                (Ok(value), _) => visitor.visit_i64(value),
                (_, Ok(value)) => visitor.visit_f64(value),
                _ => Err(de::Error::invalid_value(de::Unexpected::Other(&text), &visitor)),
            },
            Json::String(text) => visitor.visit_string(text),
            Json::Array(items) => visitor.visit_seq(de::value::SeqDeserializer::new(items.into_iter())),
            Json::Object(members) => visitor.visit_map(Members { rest: members.into_iter(), value: Json::Null }),
        }
    }

    number! {
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
        deserialize_f32 visit_f32 f32;
        deserialize_f64 visit_f64 f64;
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self {
            Json::String(text) => visitor.visit_bool(text.eq_ignore_ascii_case("true")),
            other => other.deserialize_any(visitor),
        }
    }

    /// A text, or a number or truth value as it was written.
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self {
            Json::Number(text) => visitor.visit_string(text),
            Json::Bool(value) => visitor.visit_string(value.to_string()),
            other => other.deserialize_any(visitor),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        self.deserialize_string(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self {
            Json::Null => visitor.visit_none(),
            other => visitor.visit_some(other),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, JsonError> {
        visitor.visit_newtype_struct(self)
    }

    /// An object, or a text that holds one: so a map keyed by objects may have either kind of key.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        match self {
            Json::String(text) if text.trim_start().starts_with('{') => {
                parse(text.as_bytes())?.deserialize_any(visitor)
            }
            Json::Object(_) => self.deserialize_any(visitor),
            other => Err(de::Error::invalid_type(other.kind(), &visitor)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        match self {
            Json::String(text) => visitor.visit_enum(text.into_deserializer()),
            // The reference also reads the place of a name in its list.
            Json::Number(text) => match text.parse::<usize>().ok().and_then(|at| variants.get(at)) {
                Some(variant) => visitor.visit_enum((*variant).into_deserializer()),
                None => Err(de::Error::custom(format!("{name} has no value number {text}"))),
            },
            other => Err(de::Error::invalid_type(other.kind(), &visitor)),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        visitor.visit_unit()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit_struct seq tuple tuple_struct map identifier
    }
}

impl IntoDeserializer<'_, JsonError> for Json {
    type Deserializer = Json;

    fn into_deserializer(self) -> Json {
        self
    }
}

/// The members of an object, one by one; those that are null do not exist.
struct Members {
    rest: std::vec::IntoIter<(Json, Json)>,
    value: Json,
}

impl<'de> MapAccess<'de> for Members {
    type Error = JsonError;

    fn next_key_seed<K: de::DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, JsonError> {
        match self.rest.find(|(_, value)| *value != Json::Null) {
            None => Ok(None),
            Some((key, value)) => {
                self.value = value;
                seed.deserialize(key).map(Some)
            }
        }
    }

    fn next_value_seed<V: de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, JsonError> {
        seed.deserialize(std::mem::replace(&mut self.value, Json::Null))
    }
}
