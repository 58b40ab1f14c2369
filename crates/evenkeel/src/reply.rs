//! What a server has answered: maps and arrays, for people and for programs.

use resp::Value;
use serde_json::Value as Json;

/// A map as JSON; its values are numbers, texts, and arrays of maps.
pub(crate) fn to_json(map: &Value) -> Json {
    let pairs = items(map).chunks_exact(2).map(|pair| {
        let name = if let Value::Bulk(name) = &pair[0] {
            String::from_utf8_lossy(name).into_owned()
        } else {
            String::new()
        };
        let value = match &pair[1] {
            Value::Integer(number) => Json::from(*number),
            Value::Bulk(text) | Value::Simple(text) => Json::from(String::from_utf8_lossy(text)),
            Value::Array(maps) => Json::Array(maps.iter().map(to_json).collect()),
            _ => Json::Null,
        };
        (name, value)
    });
    Json::Object(pairs.collect())
}

/// The elements of an array.
pub(crate) fn items(value: &Value) -> &[Value] {
    if let Value::Array(items) = value { items } else { &[] }
}

/// The value of a field of a map, which version 2 of the protocol writes as an array.
pub(crate) fn field<'a>(map: &'a Value, name: &str) -> &'a Value {
    let pairs = items(map).chunks_exact(2);
    let mut found = pairs.filter(|pair| matches!(&pair[0], Value::Bulk(key) if key == name.as_bytes()));
    found.next().map_or(&Value::Null, |pair| &pair[1])
}

/// A field as text; empty if there is none.
pub(crate) fn told(map: &Value, name: &str) -> String {
    match field(map, name) {
        Value::Bulk(text) | Value::Simple(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Integer(number) => number.to_string(),
        _ => String::new(),
    }
}
