//! Parts of the tree that must have a form: mappings with known keys, text, lists, numbers within bounds. What has not is a fault.

use std::ops::RangeInclusive;

use crate::fault::{Faults, Place, hint, shown};
use crate::node::{Entry, Node, Value};
use crate::scalar::{self, Scalar};

/// A mapping whose keys are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form<'a> {
    pub(crate) place: Place,
    what: &'static str,
    entries: &'a [Entry],
}

impl<'a> Form<'a> {
    /// `node` as a mapping; `what` it is in messages. Keys that are not `known` are faults, with the nearest known one.
    pub(crate) fn new(
        node: &'a Node,
        what: &'static str,
        known: &[&str],
        faults: &mut Faults,
    ) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            faults.error(node.place, format!("{what} must be a mapping, not {}", node.kind()));
            return None;
        };
        for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let nearest = hint(&entry.key, known.iter().copied());
            faults.error(entry.place, format!("unknown key `{}` in {what}{nearest}", shown(&entry.key)));
        }
        Some(Self { place: node.place, what, entries })
    }

    /// What `key` has, unless that is nothing.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    /// The place of `key`, or of the mapping.
    pub(crate) fn place_of(&self, key: &str) -> Place {
        self.entry(key).map_or(self.place, |entry| entry.node.place)
    }

    /// What `key` has; a fault if it is missing.
    pub(crate) fn need(&self, key: &str, faults: &mut Faults) -> Option<&'a Node> {
        let node = self.get(key);
        if node.is_none() {
            faults.error(self.place, format!("{} has no `{key}`", self.what));
        }
        node
    }

    /// The text of `key`, which must be there and not be empty.
    pub(crate) fn need_text(&self, key: &str, faults: &mut Faults) -> Option<&'a str> {
        let node = self.need(key, faults)?;
        let text = text(node, key, faults)?;
        if text.is_empty() {
            faults.error(node.place, format!("`{key}` is empty"));
            return None;
        }
        Some(text)
    }

    /// The nodes of the list that `key` has; none if it is missing.
    pub(crate) fn list(&self, key: &str, faults: &mut Faults) -> &'a [Node] {
        self.get(key).and_then(|node| list(node, key, faults)).unwrap_or_default()
    }

    /// The number of `key` within `bounds`; `None` if it is missing or wrong.
    pub(crate) fn number(&self, key: &str, bounds: RangeInclusive<u64>, faults: &mut Faults) -> Option<u64> {
        self.get(key).and_then(|node| number(node, key, bounds, faults))
    }

    fn entry(&self, key: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.key == key && !entry.node.is_null())
    }
}

/// The nodes of a list; `what` it is in messages.
pub(crate) fn list<'a>(node: &'a Node, what: &str, faults: &mut Faults) -> Option<&'a [Node]> {
    match &node.value {
        Value::List(nodes) => Some(nodes),
        _ => {
            faults.error(node.place, format!("`{what}` must be a list, not {}", node.kind()));
            None
        }
    }
}

/// Text, as Java's String wants it: a number or a boolean without quotes is refused.
pub(crate) fn text<'a>(node: &'a Node, what: &str, faults: &mut Faults) -> Option<&'a str> {
    if let Value::Scalar { text, is_plain } = &node.value {
        let resolved = scalar::resolve(text, *is_plain);
        if let Scalar::Text(text) = resolved {
            return Some(text);
        }
        let (value, kind) = (shown(text), resolved.kind());
        faults
            .error(node.place, format!("`{what}` must be text, and `{value}` is {kind}: write it in quotes"));
    } else {
        faults.error(node.place, format!("`{what}` must be text, not {}", node.kind()));
    }
    None
}

/// A list of texts; `None` if one of them is not.
pub(crate) fn texts(node: &Node, what: &str, faults: &mut Faults) -> Option<Vec<String>> {
    let nodes = list(node, what, faults)?;
    let texts: Vec<_> = nodes.iter().filter_map(|node| text(node, what, faults)).map(str::to_owned).collect();
    (texts.len() == nodes.len()).then_some(texts)
}

/// An integer within `bounds`.
pub(crate) fn number(
    node: &Node,
    what: &str,
    bounds: RangeInclusive<u64>,
    faults: &mut Faults,
) -> Option<u64> {
    let (least, most) = (bounds.start(), bounds.end());
    let resolved = match &node.value {
        Value::Scalar { text, is_plain } => scalar::resolve(text, *is_plain),
        _ => Scalar::Null,
    };
    let found = match resolved {
        Scalar::Integer(value) => u64::try_from(value).ok().filter(|value| bounds.contains(value)),
        _ => None,
    };
    if found.is_none() {
        let value = match &node.value {
            Value::Scalar { text, .. } => format!("`{}`", shown(text)),
            _ => node.kind().to_owned(),
        };
        faults.error(node.place, format!("`{what}` must be an integer of {least} to {most}, not {value}"));
    }
    found
}
