//! YAML as a tree whose nodes know their places.

use crate::fault::Place;
use crate::scalar::{self, Scalar};

/// A part of the file.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

/// What is there.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// Text, and whether it was written without quotes, so that it may be a number.
    Scalar {
        text: String,
        is_plain: bool,
    },
    List(Vec<Node>),
    /// Keys are text, each once, in the order of the file.
    Map(Vec<Entry>),
}

/// A key and what it has.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) place: Place,
    pub(crate) node: Node,
}

impl Node {
    /// What it is in a message.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
            Value::Scalar { text, is_plain } => scalar::resolve(text, *is_plain).kind(),
        }
    }

    /// Whether nothing was written.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, is_plain } if scalar::resolve(text, *is_plain) == Scalar::Null)
    }

    /// The node as JSON, which is how shell components get it.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Scalar { text, is_plain } => scalar::resolve(text, *is_plain).to_json(),
            Value::List(nodes) => nodes.iter().map(Self::to_json).collect(),
            Value::Map(entries) => {
                entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json())).collect()
            }
        }
    }
}
