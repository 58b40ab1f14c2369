//! A value of the settings file as the text that a setting is read from.

use toml::de::DeValue;

use super::error::WrongValue;

/// The text of `value`; of a list, its items between spaces.
pub(super) fn text_of(value: &DeValue<'_>) -> Result<String, WrongValue> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => {
            let value = i128::from_str_radix(number.as_str(), number.radix());
            value.map(|value| value.to_string()).map_err(|_| format!("{number} is beyond every bound").into())
        }
        DeValue::Boolean(value) => Ok(value.to_string()),
        DeValue::Array(items) => {
            let words: Result<Vec<_>, _> = items.iter().map(|item| text_of(item.get_ref())).collect();
            Ok(words?.join(" "))
        }
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => {
            Err("expected a text, a whole number, true or false".into())
        }
    }
}
