//! What a worker tells of tuples that a component emits: a line of JSON for each.
//!
//! ```text
//!  {"component": "split", "task": 3, "stream": "default", "fields": {"word": "a"}, "cut": ["word"]}
//! ```
//!
//! Bytes that are UTF-8 are text, others hexadecimal digits behind `0x`. `cut` names fields of which the end is not there.

use serde_json::{Map, Value as Json, json};
use supervisor::TAPPED_BYTES_MAX;
use topology::Plan;
use topology::tap::{Choice, Tapped};
use topology::value::Value;
use worker::Running;

/// What was seen since the last time, and how many tuples were not.
pub(super) fn look(
    running: &Running,
    cursor: u64,
    component: &str,
    stream: Option<&str>,
    every: u64,
) -> (Vec<String>, u64) {
    let plan = running.plan();
    let Some(id) = plan.find(component) else { return (Vec::new(), 0) };
    let named = stream.map(|stream| plan.stream(id, stream));
    // The server has checked it.
    let Some(stream) = named.map_or(Some(None), |named| named.map(Some)) else { return (Vec::new(), 0) };
    let seen = running.look(cursor, id, Choice { stream, every: every.max(1) });
    let (mut lines, mut bytes, mut skipped) = (Vec::new(), 0, seen.skipped);
    for tuple in &seen.tuples {
        let line = line(plan, tuple);
        if bytes + line.len() > TAPPED_BYTES_MAX {
            skipped += 1;
            continue;
        }
        bytes += line.len();
        lines.push(line);
    }
    (lines, skipped)
}

fn line(plan: &Plan, tuple: &Tapped) -> String {
    let (component, stream) = plan.declaration(tuple.stream);
    let (mut fields, mut cut) = (Map::new(), Vec::new());
    for (place, name) in stream.fields.iter().enumerate() {
        let value = tuple.values.get(place);
        if value.is_none_or(|value| value.is_cut()) {
            cut.push(Json::from(name.as_str()));
        }
        fields.insert(name.clone(), value.map_or(Json::Null, |value| json_of(&value.value())));
    }
    let mut line = json!({
        "component": plan.component(component).id,
        "task": tuple.task.0,
        "stream": stream.id,
        "fields": fields,
    });
    if !cut.is_empty() {
        line["cut"] = Json::Array(cut);
    }
    line.to_string()
}

fn json_of(value: &Value<'_>) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => (*value).into(),
        Value::Float(value) if value.is_finite() => (*value).into(),
        Value::Float(value) => value.to_string().into(),
        Value::Str(text) => text.as_ref().into(),
        Value::List(values) => values.iter().map(json_of).collect(),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => {
                let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
                format!("0x{}", digits.collect::<String>()).into()
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_json_has_for_them() {
        let shown = |value: Value<'_>| json_of(&value).to_string();
        assert_eq!(shown(Value::from(&b"word"[..])), r#""word""#);
        assert_eq!(shown(Value::from(&[0xff, 0x00][..])), r#""0xff00""#);
        assert_eq!(shown(Value::Float(f64::NAN)), r#""NaN""#);
        let list = Value::List(vec![Value::Int(1), Value::Float(0.5), Value::Bool(true), Value::Null]);
        assert_eq!(shown(list), "[1,0.5,true,null]");
    }
}
