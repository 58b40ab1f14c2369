//! Values of tuples as numbers and as text, both ways.

use topology::component::{Fault, Tuple};
use topology::value::Value;

/// The number in a field; text is read as one.
pub(crate) fn number(tuple: &Tuple<'_>, field: &str) -> Result<f64, Fault> {
    let value = tuple.get(field).map_err(|error| Fault::fatal(error.to_string()))?;
    let text = match &value {
        Value::Int(number) => return Ok(*number as f64),
        Value::Float(number) => return Ok(*number),
        Value::Str(text) => text.as_bytes(),
        Value::Bytes(bytes) => bytes,
        _ => b"",
    };
    let number = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse::<f64>().ok());
    let number = number.filter(|number| number.is_finite());
    number.ok_or_else(|| {
        let shown = String::from_utf8_lossy(&text[..text.len().min(100)]).into_owned();
        Fault::fatal(format!("field `{field}` is no number: `{shown}`"))
    })
}

/// A whole number as an integer: so counts are read as such.
pub(crate) fn number_value(number: f64) -> Value<'static> {
    if number.fract() == 0.0 && number.abs() < EXACT {
        Value::Int(number as i64)
    } else {
        Value::Float(number)
    }
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

/// Whole numbers below it are exact in 64 bits of floating point.
const EXACT: f64 = 9_007_199_254_740_992.0;
