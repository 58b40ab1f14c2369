//! Values of tuples in messages, both ways, without a tree in between.
//!
//! | value | JSON | MessagePack |
//! |---|---|---|
//! | null, bool, integer, float, text, list | the same | the same |
//! | bytes | text, if they are UTF-8; otherwise the tuple cannot be told to a child | bin |
//! | NaN, an infinity | the tuple cannot be told | float |
//! | - | an object is refused: a tuple has nothing like it | so is a map, or an ext |
//!
//! A whole number beyond 64 bits is a float. Text that is not UTF-8 comes as bytes.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use topology::value::Value;

use crate::codec::Codec;

/// A value that a child has sent.
#[derive(Debug)]
pub(crate) struct Field(pub(crate) Value<'static>);

/// A value that is told.
pub(crate) struct Spoken<'a>(pub(crate) &'a Value<'a>);

/// Values that are told, as a list.
pub(crate) struct SpokenList<'a>(pub(crate) &'a [Value<'a>]);

/// Why a value cannot be told to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unspeakable {
    /// Bytes of a picture, say.
    #[error("its bytes are not UTF-8, and JSON has only text")]
    NotUtf8,
    /// NaN or an infinity.
    #[error("it is not a finite number, and JSON has only those")]
    NotFinite,
}

/// Looks whether all `values` can be told in `codec`.
///
/// # Errors
/// The place of the first that cannot, and why.
pub(crate) fn check(codec: Codec, values: &[Value<'_>]) -> Result<(), (usize, Unspeakable)> {
    if codec == Codec::MessagePack {
        return Ok(());
    }
    let problems = values.iter().map(unspeakable).enumerate();
    problems.filter_map(|(place, why)| Some((place, why?))).next().map_or(Ok(()), Err)
}

/// What of a value is not in JSON.
fn unspeakable(value: &Value<'_>) -> Option<Unspeakable> {
    match value {
        Value::Float(number) if !number.is_finite() => Some(Unspeakable::NotFinite),
        Value::Bytes(bytes) if std::str::from_utf8(bytes).is_err() => Some(Unspeakable::NotUtf8),
        Value::List(values) => values.iter().find_map(unspeakable),
        _ => None,
    }
}

impl Serialize for Spoken<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Int(value) => serializer.serialize_i64(*value),
            Value::Float(value) => serializer.serialize_f64(*value),
            Value::Str(text) => serializer.serialize_str(text),
            Value::Bytes(bytes) if serializer.is_human_readable() => {
                serializer.serialize_str(&String::from_utf8_lossy(bytes))
            }
            Value::Bytes(bytes) => serializer.serialize_bytes(bytes),
            Value::List(values) => SpokenList(values).serialize(serializer),
        }
    }
}

impl Serialize for SpokenList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Spoken))
    }
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldVisitor)
    }
}

struct FieldVisitor;

impl<'de> Visitor<'de> for FieldVisitor {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("null, a boolean, a number, text or a list: a value of a tuple is no object")
    }

    fn visit_unit<E>(self) -> Result<Field, E> {
        Ok(Field(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Field, E> {
        Ok(Field(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Field, E> {
        Ok(Field(Value::Int(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Field, E> {
        Ok(Field(i64::try_from(value).map_or(Value::Float(value as f64), Value::Int)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Field, E> {
        Ok(Field(Value::Float(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Field, E> {
        self.visit_string(value.to_owned())
    }

    fn visit_string<E>(self, value: String) -> Result<Field, E> {
        Ok(Field(Value::Str(value.into())))
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<Field, E> {
        Ok(Field(Value::Bytes(value.to_vec().into())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Field, A::Error> {
        let mut values = Vec::new();
        while let Some(Field(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(Field(Value::List(values)))
    }
}
