//! Values of tuples as numbers and as text, both ways.
//!
//! A number is its text, as INCRBYFLOAT of the server gives it (`decimal`): numbers are added exactly, and what a component adds has the same text as what the server adds.

use topology::component::{Fault, Tuple};
use topology::value::Value;

/// The number in a field; text is read as one.
pub(crate) fn number(tuple: &Tuple<'_>, field: &str) -> Result<String, Fault> {
    let value = tuple.get(field).map_err(|error| Fault::fatal(error.to_string()))?;
    let text = match value {
        Value::Int(number) => return Ok(number.to_string()),
        Value::Float(number) => number.to_string(),
        Value::Str(text) => text.trim().to_owned(),
        Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).trim().to_owned(),
        _ => String::new(),
    };
    let is_decimal = !text.contains(['x', 'X']) && text.len() <= decimal::TEXT_BYTES_MAX;
    let number = decimal::sum(text.as_bytes(), b"0").flatten().filter(|_| is_decimal);
    number.ok_or_else(|| {
        let shown = &text[..text.floor_char_boundary(100)];
        Fault::fatal(format!("field `{field}` is no number: `{shown}`"))
    })
}

/// `number` and `added`; `place` says where the number was kept.
///
/// # Errors
/// What was kept is no number, or the sum is beyond all numbers: no other attempt gets further.
pub(crate) fn sum(number: &[u8], added: &str, place: &dyn std::fmt::Display) -> Result<String, Fault> {
    decimal::sum(number, added.as_bytes()).flatten().ok_or_else(|| {
        let shown = String::from_utf8_lossy(&number[..number.len().min(100)]).into_owned();
        Fault::fatal(format!("{added} cannot be added to `{shown}`, which is {place}"))
    })
}

/// A number as a value with its text: an integer or in floating point if one has this text, or else the text.
pub(crate) fn number_value(number: &str) -> Value<'static> {
    if let Ok(integer) = number.parse::<i64>() {
        return Value::Int(integer);
    }
    let float = number.parse::<f64>().ok().filter(|float| float.is_finite() && float.to_string() == number);
    float.map_or_else(|| Value::Str(number.to_owned().into()), Value::Float)
}

/// Bytes as text if they are UTF-8.
pub(crate) fn text_value(bytes: &[u8]) -> Value<'_> {
    std::str::from_utf8(bytes).map_or_else(|_| Value::Bytes(bytes.into()), |text| Value::Str(text.into()))
}

/// Appends the value of a field as text.
pub(crate) fn append_field(tuple: &Tuple<'_>, name: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    let value = tuple.get(name).map_err(|error| Fault::fatal(error.to_string()))?;
    value.append_text(out).map_err(|kind| Fault::fatal(format!("field `{name}` is {kind}: it has no text")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tuple;

    #[test]
    fn numbers_are_read_as_they_are_written() {
        let read = |value: Value<'_>| tuple(&["n"], &[value], |tuple| number(tuple, "n"));
        for (value, expected) in [
            (Value::Int(i64::MAX), "9223372036854775807"),
            (Value::Float(0.1), "0.1"),
            (Value::Float(1e21), "1000000000000000000000"),
            (" 9007199254740993 ".into(), "9007199254740993"),
            ("1e3".into(), "1000"),
            ("-0.50".into(), "-0.5"),
            (Value::Bytes(b"7"[..].into()), "7"),
        ] {
            assert_eq!(read(value), Ok(expected.to_owned()));
        }
        let none = [f64::INFINITY, f64::NAN].map(Value::Float).into_iter();
        let texts = ["inf", "nan", "0x10", "1e400", "", "x"].map(Value::from).into_iter();
        for value in none.chain(texts).chain([Value::Null, Value::Bool(true)]) {
            let error = read(value).expect_err("no number");
            assert!(error.error().starts_with("field `n` is no number: `"), "{}", error.error());
        }
    }

    #[test]
    fn value_of_a_number_has_its_text() {
        for text in
            ["0", "-7", "9007199254740995", "0.3", "1.5", "0.12345678901234567", "9223372036854775808", "1e9"]
        {
            let mut shown = Vec::new();
            assert!(number_value(text).append_text(&mut shown).is_ok());
            assert_eq!(String::from_utf8_lossy(&shown), text);
        }
        assert_eq!((number_value("3"), number_value("0.3")), (Value::Int(3), Value::Float(0.3)));
    }
}
