//! From text to a tree: one YAML document, within bounds.
//!
//! Invariants
//!   1. A tree has at most [`NODES_MAX`] nodes, and is at most [`DEPTH_MAX`] deep; an alias counts as what it stands for.
//!   2. The keys of a mapping are text, and differ.
//!
//! **Bounds.** Text beyond [`TEXT_BYTES_MAX`] is refused before anything is read.
//! Out of scope: tags other than `!!str`, merge keys, several documents.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput, Tag};

use crate::fault::{Fault, Place, shown};
use crate::node::{Entry, Node, Value};

/// Parses the one document of `text`.
///
/// # Errors
/// The first thing that is wrong: what follows it would be guesses.
pub(crate) fn parse(text: &str) -> Result<Node, Fault> {
    if text.len() > TEXT_BYTES_MAX {
        let why = format!("the file has {} bytes, the limit is {TEXT_BYTES_MAX}", text.len());
        return Err(Fault::error(START, why));
    }
    let mut builder =
        Builder { parser: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0, depth: 0 };
    builder.document()
}

struct Builder<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// What has an anchor, and how many nodes that is.
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
    depth: usize,
}

impl<'a> Builder<'a> {
    fn document(&mut self) -> Result<Node, Fault> {
        loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _) => {}
                (Event::StreamEnd | Event::DocumentEnd, _) => {
                    return Err(Fault::error(START, "the file is empty: there is no topology in it"));
                }
                (event, span) => {
                    let root = self.node(event, span)?;
                    return self.end().map(|()| root);
                }
            }
        }
    }

    /// Only the end follows the one document.
    fn end(&mut self) -> Result<(), Fault> {
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(()),
                (Event::DocumentEnd | Event::Nothing, _) => {}
                (_, span) => {
                    let text = "a second YAML document begins: a file has one topology";
                    return Err(Fault::error(place(span.start), text));
                }
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Fault> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                Err(Fault::error(place(*error.marker()), format!("not YAML: {}", error.info())))
            }
            None => Err(Fault::error(START, "not YAML: it ends too early")),
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span) -> Result<Node, Fault> {
        let place = place(span.start);
        self.count(1, place)?;
        let nodes_before = self.nodes;
        let (value, anchor) = match event {
            Event::Alias(anchor) => return self.alias(anchor, place),
            Event::Scalar(text, style, anchor, tag) => {
                let is_string = tag.as_deref().is_some_and(is_string);
                if !is_string {
                    refuse_tag(tag.as_deref(), place)?;
                }
                let is_plain = style == ScalarStyle::Plain && !is_string;
                (Value::Scalar { text: text.into_owned(), is_plain }, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                refuse_tag(tag.as_deref(), place)?;
                (self.deeper(place, Self::list)?, anchor)
            }
            Event::MappingStart(anchor, tag) => {
                refuse_tag(tag.as_deref(), place)?;
                (self.deeper(place, Self::map)?, anchor)
            }
            _ => return Err(Fault::error(place, "not YAML: a value is missing")),
        };
        let node = Node { place, value };
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), self.nodes - nodes_before));
        }
        Ok(node)
    }

    /// What the anchor stands for. It is known only when it is complete: no node holds itself.
    fn alias(&mut self, anchor: usize, place: Place) -> Result<Node, Fault> {
        let Some((node, nodes)) = self.anchors.get(&anchor) else {
            return Err(Fault::error(place, "the alias stands for something that holds the alias itself"));
        };
        let (node, nodes) = (node.clone(), *nodes);
        self.count(nodes, place)?;
        Ok(Node { place, ..node })
    }

    fn deeper(
        &mut self,
        place: Place,
        read: impl FnOnce(&mut Self) -> Result<Value, Fault>,
    ) -> Result<Value, Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let text = format!("lists and mappings are nested deeper than {DEPTH_MAX}");
            return Err(Fault::error(place, text));
        }
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn list(&mut self) -> Result<Value, Fault> {
        let mut nodes = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::List(nodes)),
                (event, span) => nodes.push(self.node(event, span)?),
            }
        }
    }

    fn map(&mut self) -> Result<Value, Fault> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut known = HashMap::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(Value::Map(entries));
            }
            let key = self.node(event, span)?;
            let Value::Scalar { text, .. } = key.value else {
                return Err(Fault::error(key.place, format!("{} cannot be a key", key.kind())));
            };
            if text == "<<" {
                return Err(Fault::error(
                    key.place,
                    "merge keys (`<<`) are not supported: write the keys out",
                ));
            }
            if let Some(first) = known.insert(text.clone(), key.place.line) {
                let text = format!("the key `{}` is given twice, first in line {first}", shown(&text));
                return Err(Fault::error(key.place, text));
            }
            let (event, span) = self.next()?;
            let node = self.node(event, span)?;
            entries.push(Entry { key: text, place: key.place, node });
        }
    }

    fn count(&mut self, nodes: usize, place: Place) -> Result<(), Fault> {
        self.nodes += nodes;
        if self.nodes > NODES_MAX {
            let text = format!("more than {NODES_MAX} values, with what aliases stand for");
            return Err(Fault::error(place, text));
        }
        Ok(())
    }
}

fn place(marker: Marker) -> Place {
    Place { line: marker.line(), column: marker.col() + 1 }
}

/// Whether it is `!!str`.
fn is_string(tag: &Tag) -> bool {
    tag.is_yaml_core_schema() && tag.suffix == "str"
}

fn refuse_tag(tag: Option<&Tag>, place: Place) -> Result<(), Fault> {
    tag.map_or(Ok(()), |tag| {
        let text = format!("the tag `{}` is not supported", shown(&tag.to_string()));
        Err(Fault::error(place, text))
    })
}

const START: Place = Place { line: 1, column: 1 };
/// A hundred times what a topology takes that people read.
pub(crate) const TEXT_BYTES_MAX: usize = 1 << 20;
const NODES_MAX: usize = 100_000;
/// Flux's own structure is seven deep; what is below are arguments and configuration.
const DEPTH_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(text).expect_err("a fault").to_string()
    }

    #[test]
    fn nodes_know_their_places() {
        let root = parse("a: 1\nb:\n  - x\n  - {c: é, d: 2}\n").unwrap();
        let Value::Map(entries) = &root.value else { panic!("{root:?}") };
        let Value::List(nodes) = &entries[1].node.value else { panic!("{root:?}") };
        let Value::Map(inner) = &nodes[1].value else { panic!("{root:?}") };
        assert_eq!(inner[1].place, Place { line: 4, column: 12 });
        assert_eq!(inner[1].node.place, Place { line: 4, column: 15 });
    }

    #[test]
    fn aliases_that_multiply_are_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            text += &format!("a{level}: &a{level} [{aliases}]\n");
        }
        assert!(refused(&text).contains("more than 100000 values, with what aliases stand for"));
    }

    #[test]
    fn alias_is_a_copy_of_what_it_stands_for() {
        let root = parse("a: &x [1, 2]\nb: *x\n").unwrap();
        assert_eq!(root.to_json(), serde_json::json!({ "a": [1, 2], "b": [1, 2] }));
        assert!(refused("a: &x [*x]\n").contains("holds the alias itself"));
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let nested = |depth| ["[".repeat(depth), "]".repeat(depth)].concat();
        assert!(refused(&nested(33)).contains("nested deeper than 32") && parse(&nested(32)).is_ok());
        refused(&"[".repeat(100_000)); // whoever notices first
        assert!(refused(&" ".repeat(TEXT_BYTES_MAX + 1)).contains("the limit is 1048576"));
    }

    #[test]
    fn what_is_not_one_plain_document_is_refused_with_its_place() {
        for (text, expected) in [
            ("", "1:1: error: the file is empty"),
            ("a: 1\na: 2\n", "2:1: error: the key `a` is given twice, first in line 1"),
            ("a: 1\n---\nb: 2\n", "2:1: error: a second YAML document"),
            ("[a]: 1\n", "1:1: error: a list cannot be a key"),
            ("a: !!binary x\n", "error: the tag `tag:yaml.org,2002:!binary` is not supported"),
            ("a: &b {}\nc:\n  <<: *b\n", "3:3: error: merge keys"),
            ("a: [1, 2\n", "error: not YAML"),
            ("a: *unknown\n", "error: not YAML"),
        ] {
            assert!(refused(text).contains(expected), "{text}: {}", refused(text));
        }
        let root = parse("a: !!str 5\n").unwrap();
        assert_eq!(root.to_json(), serde_json::json!({ "a": "5" }));
    }
}
