//! Values of tuples as JSON, both ways, without a tree in between.
//!
//! | value | JSON |
//! |---|---|
//! | null, bool, integer, float, text, list | the same |
//! | bytes | text, if they are UTF-8; otherwise the tuple cannot be told to a child |
//! | - | an object is refused: a tuple has nothing like it |
//!
//! A whole number beyond 64 bits is a float. Infinity and NaN are not in JSON.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use topology::value::Value;

/// A value that a child has sent.
#[derive(Debug)]
pub(crate) struct Field(pub(crate) Value<'static>);

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

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Field, A::Error> {
        let mut values = Vec::new();
        while let Some(Field(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(Field(Value::List(values)))
    }
}

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

/// Appends `value`.
pub(crate) fn append(value: &Value<'_>, out: &mut Vec<u8>) -> Result<(), Unspeakable> {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(value) => append_json(value, out),
        Value::Float(value) if value.is_finite() => append_json(value, out),
        Value::Float(_) => return Err(Unspeakable::NotFinite),
        Value::Str(text) => append_json(text, out),
        Value::Bytes(bytes) => {
            append_json(std::str::from_utf8(bytes).map_err(|_| Unspeakable::NotUtf8)?, out);
        }
        Value::List(values) => {
            out.push(b'[');
            for (place, value) in values.iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                append(value, out)?;
            }
            out.push(b']');
        }
    }
    Ok(())
}

/// Appends what has no way to fail.
pub(crate) fn append_json<T: serde::Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("text, numbers and maps with text as keys are JSON");
}
