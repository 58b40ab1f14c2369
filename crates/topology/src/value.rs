//! One value of a tuple, as components read and write it, and its bytes in [`Values`].
//!
//! Bytes of a value (little-endian); its length is known from outside:
//!
//! ```text
//!  0 null   1 false   2 true
//!  3 | i64            4 | f64, its bits
//!  5 | bytes          6 | text in UTF-8
//!  7 | size u32, value | size u32, value ...     (a list, at most 16 lists deep)
//! ```
//!
//! Invariants
//!   1. A value has one encoding, so equal values have equal bytes.
//!   2. A length is compared with the bytes that are there before it is used, and depth is bounded.
//!
//! Decoding copies no bytes and no text. 1 and 1.0 are different values of equal text. Fields are grouped by their texts ([`crate::grouping::hash`]).
//! Out of scope: names of fields ([`crate::component::Tuple`]).

use std::borrow::Cow;

use crate::values::Values;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number in floating point.
    Float(f64),
    /// Bytes without a meaning of their own.
    Bytes(Cow<'a, [u8]>),
    /// Text.
    Str(Cow<'a, str>),
    /// Values in their order.
    List(Vec<Value<'a>>),
}

/// What is wrong with a value, or with the bytes of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Bytes of another program, or of a newer version.
    #[error("a value of unknown kind {0}")]
    UnknownKind(u8),
    /// Bytes that are no value.
    #[error("a value of kind {kind} with {size} bytes, which does not fit")]
    Size {
        /// Its kind.
        kind: u8,
        /// Bytes that follow the kind.
        size: usize,
    },
    /// Text that is not UTF-8: emit it as bytes.
    #[error("text that is not UTF-8 from byte {0} on")]
    NotUtf8(usize),
    /// Lists within lists.
    #[error("lists more than {DEPTH_MAX} deep")]
    TooDeep,
    /// More than a tuple can have.
    #[error("{count} values of {bytes} B: a tuple has at most 65,535 values and less than 4 GiB")]
    TooLarge {
        /// Values.
        count: usize,
        /// What they take.
        bytes: usize,
    },
}

/// Most lists within each other.
pub const DEPTH_MAX: usize = 16;

impl Value<'_> {
    /// Appends it as text: numbers in decimal, true and false as 1 and 0, null as nothing.
    ///
    /// # Errors
    /// The kind of a value that has no text: a list.
    pub fn append_text(&self, out: &mut Vec<u8>) -> Result<(), &'static str> {
        match self {
            Self::Null => {}
            Self::Bool(value) => out.extend_from_slice(if *value { b"1" } else { b"0" }),
            Self::Int(value) => out.extend_from_slice(value.to_string().as_bytes()),
            Self::Float(value) => out.extend_from_slice(value.to_string().as_bytes()),
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
            Self::Str(text) => out.extend_from_slice(text.as_bytes()),
            Self::List(_) => return Err(self.kind()),
        }
        Ok(())
    }

    /// What kind of value it is, in a word.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a bool",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Bytes(_) => "bytes",
            Self::Str(_) => "text",
            Self::List(_) => "a list",
        }
    }

    /// The text of a value that has these bytes; the bytes of one that has none, and of what is no value.
    pub(crate) fn text_of(bytes: &[u8]) -> Cow<'_, [u8]> {
        if let Some((&(STR | BYTES), text)) = bytes.split_first() {
            return Cow::Borrowed(text);
        }
        let mut text = Vec::new();
        match Value::decode(bytes).map(|value| value.append_text(&mut text)) {
            Ok(Ok(())) => Cow::Owned(text),
            _ => Cow::Borrowed(bytes),
        }
    }

    /// The same value, which borrows nothing.
    #[must_use]
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Int(value) => Value::Int(value),
            Self::Float(value) => Value::Float(value),
            Self::Bytes(value) => Value::Bytes(Cow::Owned(value.into_owned())),
            Self::Str(value) => Value::Str(Cow::Owned(value.into_owned())),
            Self::List(values) => Value::List(values.into_iter().map(Value::into_owned).collect()),
        }
    }

    /// Bytes of its encoding.
    ///
    /// # Errors
    /// [`ValueError::TooDeep`].
    fn size_bytes(&self, depth: usize) -> Result<usize, ValueError> {
        let content = match self {
            Self::Null | Self::Bool(_) => 0,
            Self::Int(_) | Self::Float(_) => NUMBER_BYTES,
            Self::Bytes(bytes) => bytes.len(),
            Self::Str(text) => text.len(),
            Self::List(_) if depth == DEPTH_MAX => return Err(ValueError::TooDeep),
            Self::List(values) => {
                let mut sum = 0;
                for value in values {
                    sum += SIZE_BYTES + value.size_bytes(depth + 1)?;
                }
                sum
            }
        };
        Ok(KIND_BYTES + content)
    }

    /// Appends its encoding; its depth was looked at.
    fn append(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Null => bytes.push(NULL),
            Self::Bool(value) => bytes.push(if *value { TRUE } else { FALSE }),
            Self::Int(value) => append_parts(bytes, INT, &value.to_le_bytes()),
            Self::Float(value) => append_parts(bytes, FLOAT, &value.to_le_bytes()),
            Self::Bytes(value) => append_parts(bytes, BYTES, value),
            Self::Str(value) => append_parts(bytes, STR, value.as_bytes()),
            Self::List(values) => {
                bytes.push(LIST);
                for value in values {
                    let at = bytes.len();
                    bytes.extend_from_slice(&[0; SIZE_BYTES]);
                    value.append(bytes);
                    let size = (bytes.len() - at - SIZE_BYTES) as u32;
                    bytes[at..at + SIZE_BYTES].copy_from_slice(&size.to_le_bytes());
                }
            }
        }
    }
}

impl<'a> Value<'a> {
    /// The value that has these bytes.
    ///
    /// # Errors
    /// They are no value.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, ValueError> {
        decode(bytes, 0)
    }

    /// The value that has these bytes; if they are cut, the begin of a text or of bytes, and null for a list. Null for what is no value, too.
    pub(crate) fn decode_begin(bytes: &'a [u8], is_cut: bool) -> Self {
        match bytes.split_first() {
            Some((&STR, text)) if is_cut => {
                let text = text.utf8_chunks().next().map_or("", |chunk| chunk.valid());
                Self::Str(Cow::Borrowed(text))
            }
            Some((&LIST, _)) if is_cut => Self::Null,
            _ => Self::decode(bytes).unwrap_or(Self::Null),
        }
    }
}

impl Values {
    /// A tuple of these values.
    ///
    /// # Errors
    /// A list is too deep, or they are too large.
    pub fn encode(values: &[Value<'_>]) -> Result<Self, ValueError> {
        let mut size = 0;
        for value in values {
            size += value.size_bytes(0)?;
        }
        if values.len() > usize::from(u16::MAX) || u32::try_from(size).is_err() {
            return Err(ValueError::TooLarge { count: values.len(), bytes: size });
        }
        Ok(Self::written(values.len(), size, |place, bytes| values[place].append(bytes)))
    }

    /// The value of a field; `None` if there is no such field.
    ///
    /// # Errors
    /// Its bytes are no value.
    pub fn value(&self, place: usize) -> Option<Result<Value<'_>, ValueError>> {
        self.field(place).map(Value::decode)
    }
}

fn decode(bytes: &[u8], depth: usize) -> Result<Value<'_>, ValueError> {
    let Some((&kind, content)) = bytes.split_first() else {
        return Err(ValueError::Size { kind: 0, size: 0 });
    };
    let misfit = ValueError::Size { kind, size: content.len() };
    let number = || content.try_into().map_err(|_| misfit.clone());
    match kind {
        NULL | FALSE | TRUE if !content.is_empty() => Err(misfit),
        NULL => Ok(Value::Null),
        FALSE => Ok(Value::Bool(false)),
        TRUE => Ok(Value::Bool(true)),
        INT => Ok(Value::Int(i64::from_le_bytes(number()?))),
        FLOAT => Ok(Value::Float(f64::from_le_bytes(number()?))),
        BYTES => Ok(Value::Bytes(Cow::Borrowed(content))),
        STR => match std::str::from_utf8(content) {
            Ok(text) => Ok(Value::Str(Cow::Borrowed(text))),
            Err(error) => Err(ValueError::NotUtf8(error.valid_up_to())),
        },
        LIST if depth == DEPTH_MAX => Err(ValueError::TooDeep),
        LIST => decode_list(content, depth + 1).map(Value::List),
        unknown => Err(ValueError::UnknownKind(unknown)),
    }
}

fn decode_list(mut content: &[u8], depth: usize) -> Result<Vec<Value<'_>>, ValueError> {
    let misfit = ValueError::Size { kind: LIST, size: content.len() };
    let mut values = Vec::new();
    while let Some((size, rest)) = content.split_first_chunk() {
        let size = u32::from_le_bytes(*size) as usize;
        let (value, rest) = rest.split_at_checked(size).ok_or_else(|| misfit.clone())?;
        values.push(decode(value, depth)?);
        content = rest;
    }
    if content.is_empty() { Ok(values) } else { Err(misfit) }
}

fn append_parts(bytes: &mut Vec<u8>, kind: u8, content: &[u8]) {
    bytes.push(kind);
    bytes.extend_from_slice(content);
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<i32> for Value<'_> {
    fn from(value: i32) -> Self {
        Self::Int(value.into())
    }
}

impl From<u32> for Value<'_> {
    fn from(value: u32) -> Self {
        Self::Int(value.into())
    }
}

impl From<f64> for Value<'_> {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Self::Str(Cow::Borrowed(value))
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(value: &'a String) -> Self {
        Self::Str(Cow::Borrowed(value))
    }
}

impl From<String> for Value<'_> {
    fn from(value: String) -> Self {
        Self::Str(Cow::Owned(value))
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Bytes(Cow::Borrowed(value))
    }
}

impl From<Vec<u8>> for Value<'_> {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(Cow::Owned(value))
    }
}

impl<'a> From<Vec<Self>> for Value<'a> {
    fn from(values: Vec<Self>) -> Value<'a> {
        Self::List(values)
    }
}

impl<'a, V: Into<Self>> From<Option<V>> for Value<'a> {
    fn from(value: Option<V>) -> Value<'a> {
        value.map_or(Self::Null, Into::into)
    }
}

/// An array of [`Value`]s, each made from what its expression gives.
#[macro_export]
macro_rules! values {
    ($($value:expr),* $(,)?) => { [$($crate::value::Value::from($value)),*] };
}

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT: u8 = 3;
const FLOAT: u8 = 4;
const BYTES: u8 = 5;
const STR: u8 = 6;
const LIST: u8 = 7;
const KIND_BYTES: usize = 1;
const NUMBER_BYTES: usize = 8;
const SIZE_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nested(depth: usize) -> Value<'static> {
        (0..depth).fold(Value::Null, |inner, _| Value::List(vec![inner]))
    }

    fn any_value() -> impl Strategy<Value = Value<'static>> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            prop::num::f64::NORMAL.prop_map(Value::from),
            prop::collection::vec(any::<u8>(), 0..9).prop_map(Value::from),
            "\\PC{0,5}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 20, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Value::List))
    }

    #[test]
    fn bytes_of_each_kind_are_the_documented_ones() {
        let text = values![None::<i64>, false, true, 258, 1.5, vec![9_u8], "é", vec![Value::Null, 1.into()]];
        let values = Values::encode(&text).unwrap();
        let fields: Vec<&[u8]> = values.iter().collect();
        let expected: [&[u8]; 8] = [
            &[0],
            &[1],
            &[2],
            &[3, 2, 1, 0, 0, 0, 0, 0, 0],
            &[4, 0, 0, 0, 0, 0, 0, 0xF8, 0x3F],
            &[5, 9],
            &[6, 0xC3, 0xA9],
            &[7, 1, 0, 0, 0, 0, 9, 0, 0, 0, 3, 1, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn what_is_no_value_is_named() {
        let error = |bytes: &[u8]| Value::decode(bytes).unwrap_err().to_string();
        assert_eq!(error(&[8]), "a value of unknown kind 8");
        assert_eq!(error(&[]), "a value of kind 0 with 0 bytes, which does not fit");
        assert_eq!(error(&[INT, 1]), "a value of kind 3 with 1 bytes, which does not fit");
        assert_eq!(error(&[NULL, 1]), "a value of kind 0 with 1 bytes, which does not fit");
        assert_eq!(error(&[STR, b'a', 0xFF]), "text that is not UTF-8 from byte 1 on");
        assert_eq!(error(&[LIST, 9, 0, 0, 0, 0]), "a value of kind 7 with 5 bytes, which does not fit");
        assert_eq!(error(&[LIST, 1, 0]), "a value of kind 7 with 2 bytes, which does not fit");
    }

    #[test]
    fn depth_of_lists_is_bounded_both_ways() {
        assert!(Values::encode(&[nested(DEPTH_MAX)]).unwrap().value(0).unwrap().is_ok());
        assert_eq!(Values::encode(&[nested(DEPTH_MAX + 1)]), Err(ValueError::TooDeep));
        let mut bytes = vec![NULL];
        for _ in 0..=DEPTH_MAX {
            let size = (bytes.len() as u32).to_le_bytes();
            bytes.splice(0..0, [LIST].into_iter().chain(size));
        }
        assert_eq!(Value::decode(&bytes), Err(ValueError::TooDeep));
    }

    #[test]
    fn too_many_values_are_refused() {
        let many = vec![Value::Null; 65_536];
        assert!(matches!(Values::encode(&many), Err(ValueError::TooLarge { count: 65_536, .. })));
    }

    proptest! {
        #[test]
        fn values_are_read_back(values in prop::collection::vec(any_value(), 0..5)) {
            let encoded = Values::encode(&values).unwrap();
            let decoded: Vec<Value<'_>> = (0..values.len()).map(|at| encoded.value(at).unwrap().unwrap()).collect();
            prop_assert_eq!(&decoded, &values);
            prop_assert!(encoded.value(values.len()).is_none());
        }

        #[test]
        fn what_decodes_also_encodes_to_the_same_bytes(bytes in prop::collection::vec(0_u8..9, 0..24)) {
            if let Ok(value) = Value::decode(&bytes) {
                let encoded = Values::encode(&[value]).unwrap();
                prop_assert_eq!(encoded.field(0).unwrap(), &bytes[..]);
            }
        }
    }
}
