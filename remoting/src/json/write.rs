//! Serde to text, in either dialect.

use serde::{
    Serialize, Serializer,
    ser::{self, SerializeMap, SerializeSeq, SerializeStruct},
};

use super::{Dialect, JsonError};

pub(super) fn write<T: Serialize + ?Sized>(value: &T, dialect: Dialect) -> Result<String, JsonError> {
    let mut out = String::new();
    value.serialize(Writer { out: &mut out, dialect, is_key: false })?;
    Ok(out)
}

/// Writes one value, or one key, to the end of the text.
struct Writer<'a> {
    out: &'a mut String,
    dialect: Dialect,
    /// Whether this is the key of an object.
    is_key: bool,
}

impl<'a> Writer<'a> {
    fn text(self, text: &str) {
        push_quoted(self.out, text);
    }

    /// Anything that has a form without quotes; as a key of standard JSON it needs them.
    fn plain(self, text: &str) {
        if self.is_key && self.dialect == Dialect::Standard {
            self.text(text);
        } else {
            self.out.push_str(text);
        }
    }

    fn compound(self, open: char, close: char) -> Result<Compound<'a>, JsonError> {
        let standard_key = self.is_key && self.dialect == Dialect::Standard;
        if self.is_key && open == '[' {
            return Err(JsonError::Shape("a list cannot be a key".to_owned()));
        }
        let start = self.out.len();
        self.out.push(open);
        Ok(Compound { out: self.out, dialect: self.dialect, close, start, is_empty: true, quote: standard_key })
    }
}

fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            char if char < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(char))),
            char => out.push(char),
        }
    }
    out.push('"');
}

macro_rules! integers {
    ($($method:ident $type:ty;)*) => {$(
        fn $method(self, value: $type) -> Result<(), JsonError> {
            self.plain(&value.to_string());
            Ok(())
        }
    )*};
}

impl<'a> Serializer for Writer<'a> {
    type Ok = ();
    type Error = JsonError;
    type SerializeSeq = Compound<'a>;
    type SerializeTuple = Compound<'a>;
    type SerializeTupleStruct = Compound<'a>;
    type SerializeTupleVariant = ser::Impossible<(), JsonError>;
    type SerializeMap = Compound<'a>;
    type SerializeStruct = Compound<'a>;
    type SerializeStructVariant = ser::Impossible<(), JsonError>;

    integers! {
        serialize_bool bool;
        serialize_i8 i8;
        serialize_i16 i16;
        serialize_i32 i32;
        serialize_i64 i64;
        serialize_u8 u8;
        serialize_u16 u16;
        serialize_u32 u32;
        serialize_u64 u64;
    }

    fn serialize_f32(self, value: f32) -> Result<(), JsonError> {
        self.serialize_f64(f64::from(value))
    }

    /// With a fraction always, as the reference writes it; what is no number is null.
    fn serialize_f64(self, value: f64) -> Result<(), JsonError> {
        if value.is_finite() {
            self.plain(&format!("{value:?}"));
            Ok(())
        } else {
            self.serialize_unit()
        }
    }

    fn serialize_char(self, value: char) -> Result<(), JsonError> {
        self.text(value.encode_utf8(&mut [0; 4]));
        Ok(())
    }

    fn serialize_str(self, value: &str) -> Result<(), JsonError> {
        self.text(value);
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), JsonError> {
        value.serialize(self)
    }

    fn serialize_none(self) -> Result<(), JsonError> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), JsonError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), JsonError> {
        self.plain("null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), JsonError> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), JsonError> {
        self.text(variant);
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), JsonError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), JsonError> {
        Err(variant_with_data(name))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Compound<'a>, JsonError> {
        self.compound('[', ']')
    }

    fn serialize_tuple(self, _: usize) -> Result<Compound<'a>, JsonError> {
        self.compound('[', ']')
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Compound<'a>, JsonError> {
        self.compound('[', ']')
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, JsonError> {
        Err(variant_with_data(name))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Compound<'a>, JsonError> {
        self.compound('{', '}')
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Compound<'a>, JsonError> {
        self.compound('{', '}')
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, JsonError> {
        Err(variant_with_data(name))
    }
}

fn variant_with_data(name: &'static str) -> JsonError {
    JsonError::Shape(format!("the enum {name} carries data, which the dialect has no form for"))
}

/// A list or an object that is being written.
struct Compound<'a> {
    out: &'a mut String,
    dialect: Dialect,
    close: char,
    /// Where it begins.
    start: usize,
    is_empty: bool,
    /// Whether it becomes a text when it is complete: the key of a standard object.
    quote: bool,
}

impl Compound<'_> {
    fn item<T: Serialize + ?Sized>(&mut self, value: &T, is_key: bool) -> Result<(), JsonError> {
        value.serialize(Writer { out: self.out, dialect: self.dialect, is_key })
    }

    fn comma(&mut self) {
        if !self.is_empty {
            self.out.push(',');
        }
        self.is_empty = false;
    }

    /// Writes a member, unless its value is null.
    fn member<K, V>(&mut self, key: &K, value: &V) -> Result<(), JsonError>
    where
        K: Serialize + ?Sized,
        V: Serialize + ?Sized,
    {
        let (back, was_empty) = (self.out.len(), self.is_empty);
        self.comma();
        self.item(key, true)?;
        self.out.push(':');
        let value_start = self.out.len();
        self.item(value, false)?;
        if &self.out[value_start..] == "null" {
            self.out.truncate(back);
            self.is_empty = was_empty;
        }
        Ok(())
    }

    fn finish(self) {
        self.out.push(self.close);
        if self.quote {
            let object = self.out.split_off(self.start);
            push_quoted(self.out, &object);
        }
    }
}

impl SerializeSeq for Compound<'_> {
    type Ok = ();
    type Error = JsonError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        self.comma();
        self.item(value, false)
    }

    fn end(self) -> Result<(), JsonError> {
        self.finish();
        Ok(())
    }
}

impl ser::SerializeTuple for Compound<'_> {
    type Ok = ();
    type Error = JsonError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Result<(), JsonError> {
        SerializeSeq::end(self)
    }
}

impl ser::SerializeTupleStruct for Compound<'_> {
    type Ok = ();
    type Error = JsonError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Result<(), JsonError> {
        SerializeSeq::end(self)
    }
}

impl SerializeMap for Compound<'_> {
    type Ok = ();
    type Error = JsonError;

    /// Maps are written entry by entry, because a null value takes its key away.
    fn serialize_entry<K, V>(&mut self, key: &K, value: &V) -> Result<(), JsonError>
    where
        K: Serialize + ?Sized,
        V: Serialize + ?Sized,
    {
        self.member(key, value)
    }

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), JsonError> {
        self.comma();
        self.item(key, true)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        self.out.push(':');
        self.item(value, false)
    }

    fn end(self) -> Result<(), JsonError> {
        self.finish();
        Ok(())
    }
}

impl SerializeStruct for Compound<'_> {
    type Ok = ();
    type Error = JsonError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), JsonError> {
        self.member(key, value)
    }

    fn end(self) -> Result<(), JsonError> {
        self.finish();
        Ok(())
    }
}

impl Serialize for super::Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use super::Json;
        match self {
            Json::Null => serializer.serialize_unit(),
            Json::Bool(value) => serializer.serialize_bool(*value),
            Json::Number(text) => match text.parse::<i64>() {
                Ok(value) => serializer.serialize_i64(value),
                Err(_) => serializer.serialize_f64(text.parse().map_err(ser::Error::custom)?),
            },
            Json::String(text) => serializer.serialize_str(text),
            Json::Array(items) => serializer.collect_seq(items),
            Json::Object(members) => serializer.collect_map(members.iter().map(|(key, value)| (key, value))),
        }
    }
}
