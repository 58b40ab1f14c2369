//! What text without quotes means: as YAML 1.1 has it, because Flux reads YAML 1.1.
//!
//! | text | is |
//! |---|---|
//! | nothing, `~`, `null` | null |
//! | `true`, `yes`, `on` and their opposites | a boolean |
//! | `12`, `0x1f`, `017`, `0b11`, `1_000` | an integer |
//! | `1.5`, `1e3`, `.inf`, `.nan` | a number |
//! | all else, and all that has quotes | text |
//!
//! Out of scope: dates and numbers to the base of 60, which are text here.

use serde_json::{Number, Value};

/// A resolved scalar.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Boolean(bool),
    Integer(i64),
    Number(f64),
    Text(&'a str),
}

/// What `text` means.
pub(crate) fn resolve(text: &str, is_plain: bool) -> Scalar<'_> {
    if !is_plain {
        return Scalar::Text(text);
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        _ => {}
    }
    if let Some(boolean) = boolean(text) {
        return Scalar::Boolean(boolean);
    }
    if let Some(integer) = integer(text) {
        return Scalar::Integer(integer);
    }
    number(text).map_or(Scalar::Text(text), Scalar::Number)
}

impl Scalar<'_> {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Boolean(_) => "a boolean",
            Self::Integer(_) | Self::Number(_) => "a number",
            Self::Text(_) => "text",
        }
    }

    /// JSON has no infinity: it becomes text.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Boolean(boolean) => Value::Bool(*boolean),
            Self::Integer(integer) => (*integer).into(),
            Self::Number(number) => {
                Number::from_f64(*number).map_or_else(|| number.to_string().into(), Value::Number)
            }
            Self::Text(text) => (*text).into(),
        }
    }
}

fn boolean(text: &str) -> Option<bool> {
    let is_one = |words: &[&str]| words.contains(&text);
    if is_one(&["true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"]) {
        return Some(true);
    }
    is_one(&["false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"]).then_some(false)
}

fn integer(text: &str) -> Option<i64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let digits: String = unsigned.chars().filter(|&c| c != '_').collect();
    let sign = if text.starts_with('-') { "-" } else { "" };
    let parsed = |digits: &str, base| i64::from_str_radix(&format!("{sign}{digits}"), base).ok();
    for (prefix, base) in [("0x", 16), ("0b", 2)] {
        if let Some(digits) = digits.strip_prefix(prefix) {
            return parsed(digits, base);
        }
    }
    let is_octal = digits.len() > 1 && digits.starts_with('0');
    parsed(&digits, if is_octal { 8 } else { 10 })
}

fn number(text: &str) -> Option<f64> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    match unsigned {
        ".inf" | ".Inf" | ".INF" => return Some(sign * f64::INFINITY),
        ".nan" | ".NaN" | ".NAN" => return Some(f64::NAN),
        _ => {}
    }
    let is_number = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'));
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_what_yaml_1_1_says() {
        assert_eq!(resolve("", true), Scalar::Null);
        assert_eq!(resolve("yes", true), Scalar::Boolean(true));
        assert_eq!(resolve("Off", true), Scalar::Boolean(false));
        for (text, value) in
            [("12", 12), ("-1_000", -1_000), ("0x1F", 31), ("017", 15), ("0b11", 3), ("0", 0)]
        {
            assert_eq!(resolve(text, true), Scalar::Integer(value), "{text}");
        }
        assert_eq!(resolve("-1.5e3", true), Scalar::Number(-1_500.0));
        assert_eq!(resolve("99999999999999999999", true), Scalar::Number(1e20));
        for text in ["1.2.3", "e3", "word", "0x", "-", "08x", "NaN", "infinity"] {
            assert_eq!(resolve(text, true), Scalar::Text(text));
        }
    }

    #[test]
    fn quotes_make_text() {
        assert_eq!(resolve("12", false), Scalar::Text("12"));
        assert_eq!(resolve("", false), Scalar::Text(""));
    }
}
