//! Streams: who reads what of whom, and by which grouping.
//!
//! | Flux | here |
//! |---|---|
//! | SHUFFLE, LOCAL_OR_SHUFFLE, ALL, GLOBAL, DIRECT, NONE | the grouping of that name |
//! | FIELDS with `args` | by these fields |
//! | CUSTOM with `PartialKeyGrouping` | partial key: by the `Fields` that its argument refers to, or else by all fields |
//! | CUSTOM with another class | custom code of that name |

use std::collections::BTreeMap;

use topology::definition::{DEFAULT_STREAM, Grouping, Subscription};

use crate::fault::{Faults, Place, hint, shown};
use crate::form::{self, Form};
use crate::node::Node;

/// A subscription and who has it, with the places that later checks name.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) to: String,
    pub(crate) subscription: Subscription,
    pub(crate) to_place: Place,
    pub(crate) from_place: Place,
    pub(crate) stream_place: Place,
    pub(crate) grouping_place: Place,
}

/// `Fields` that groupings may refer to.
#[derive(Debug, Default)]
pub(crate) struct Objects(BTreeMap<String, Vec<String>>);

impl Objects {
    /// Reads `components`: Java objects, of which only fields mean something here.
    pub(crate) fn read(nodes: &[Node], faults: &mut Faults) -> Self {
        let mut objects = Self::default();
        for node in nodes {
            objects.add(node, faults);
        }
        objects
    }

    fn add(&mut self, node: &Node, faults: &mut Faults) {
        let Some(form) = Form::new(node, "a component", OBJECT_KEYS, faults) else { return };
        let (id, class) = (form.need_text("id", faults), form.need_text("className", faults));
        let Some(class) = class else { return };
        if class != FIELDS_CLASS {
            let text = format!(
                "`{}` is a Java class, which cannot run here; `components` may only have `{FIELDS_CLASS}`",
                shown(class)
            );
            return faults.error(form.place_of("className"), text);
        }
        let fields = match form.list("constructorArgs", faults) {
            [fields] => form::texts(fields, "the fields", faults),
            _ => {
                let text = "the argument of Fields is one list of names: `constructorArgs: [[name, ...]]`";
                return faults.error(form.place_of("constructorArgs"), text);
            }
        };
        let (Some(id), Some(fields)) = (id, fields) else { return };
        if self.0.contains_key(id) {
            return faults.error(form.place_of("id"), format!("two components have the id `{}`", shown(id)));
        }
        self.0.insert(id.to_owned(), fields);
    }

    fn find(&self, id: &str, place: Place, faults: &mut Faults) -> Option<Vec<String>> {
        let found = self.0.get(id);
        if found.is_none() {
            let nearest = faults.hint(id, self.0.keys().map(String::as_str));
            faults.error(
                place,
                format!("`ref` names `{}`, which `components` does not have{nearest}", shown(id)),
            );
        }
        found.cloned()
    }
}

/// Reads the stream `node`.
pub(crate) fn read(node: &Node, objects: &Objects, faults: &mut Faults) -> Option<Link> {
    let form = Form::new(node, "a stream", &["id", "name", "from", "to", "grouping"], faults)?;
    let (from, to) = (form.need_text("from", faults), form.need_text("to", faults));
    let node = form.need("grouping", faults)?;
    let grouping = Form::new(node, "a grouping", &["type", "streamId", "args", "customClass"], faults)?;
    let stream = match grouping.get("streamId") {
        Some(node) => form::text(node, "streamId", faults)?,
        None => DEFAULT_STREAM,
    };
    let chosen = read_grouping(&grouping, objects, faults)?;
    let subscription = Subscription { from: from?.to_owned(), stream: stream.to_owned(), grouping: chosen };
    Some(Link {
        to: to?.to_owned(),
        subscription,
        to_place: form.place_of("to"),
        from_place: form.place_of("from"),
        stream_place: grouping.place_of("streamId"),
        grouping_place: if grouping.get("args").is_some() {
            grouping.place_of("args")
        } else {
            grouping.place_of("type")
        },
    })
}

fn read_grouping(form: &Form<'_>, objects: &Objects, faults: &mut Faults) -> Option<Grouping> {
    let kind = form.need_text("type", faults)?;
    for (key, owner) in [("args", "FIELDS"), ("customClass", "CUSTOM")] {
        if kind != owner && form.get(key).is_some() {
            faults.error(
                form.place_of(key),
                format!("`{key}` is for groupings of type {owner}, not {}", shown(kind)),
            );
        }
    }
    Some(match kind {
        "SHUFFLE" => Grouping::Shuffle,
        "LOCAL_OR_SHUFFLE" => Grouping::LocalOrShuffle,
        "ALL" => Grouping::All,
        "GLOBAL" => Grouping::Global,
        "DIRECT" => Grouping::Direct,
        "NONE" => Grouping::None,
        "FIELDS" => Grouping::Fields(form::texts(form.need("args", faults)?, "args", faults)?),
        "CUSTOM" => custom(form.need("customClass", faults)?, objects, faults)?,
        other => {
            let nearest = hint(other, GROUPINGS.iter().copied());
            faults.error(form.place_of("type"), format!("unknown grouping `{}`{nearest}", shown(other)));
            return None;
        }
    })
}

fn custom(node: &Node, objects: &Objects, faults: &mut Faults) -> Option<Grouping> {
    let form = Form::new(node, "a custom class", &["className", "constructorArgs"], faults)?;
    let class = form.need_text("className", faults)?;
    let arguments = form.list("constructorArgs", faults);
    if class != PARTIAL_KEY_CLASS {
        if let Some(first) = arguments.first() {
            faults.error(first.place, format!("arguments of `{}` are Java objects", shown(class)));
        }
        return Some(Grouping::Custom(class.to_owned()));
    }
    match arguments {
        [] => Some(Grouping::PartialKey(Vec::new())),
        [argument] => {
            let form = Form::new(argument, "a reference", &["ref"], faults)?;
            let id = form.need_text("ref", faults)?;
            objects.find(id, form.place_of("ref"), faults).map(Grouping::PartialKey)
        }
        [_, more, ..] => {
            faults.error(more.place, "PartialKeyGrouping takes one argument: a reference to Fields");
            None
        }
    }
}

const OBJECT_KEYS: &[&str] = &["id", "className", "constructorArgs"];
const GROUPINGS: &[&str] =
    &["SHUFFLE", "FIELDS", "LOCAL_OR_SHUFFLE", "ALL", "GLOBAL", "DIRECT", "NONE", "CUSTOM"];
const FIELDS_CLASS: &str = "org.apache.storm.tuple.Fields";
const PARTIAL_KEY_CLASS: &str = "org.apache.storm.grouping.PartialKeyGrouping";
