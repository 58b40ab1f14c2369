//! What replies that describe commands consist of.

use resp::Value;

pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) | Value::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("text: {other:?}"),
    }
}

pub(crate) fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        other => panic!("a list: {other:?}"),
    }
}

pub(crate) fn pairs(value: &Value) -> &[(Value, Value)] {
    match value {
        Value::Map(pairs) => pairs,
        other => panic!("a map: {other:?}"),
    }
}
