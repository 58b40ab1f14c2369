//! The whole document: its parts put together, and checked as a topology by the core.

use std::collections::HashMap;

use topology::Plan;
use topology::definition::{Grouping, Kind, Topology};

use crate::components::{self, Vertex};
use crate::definition::{Definition, Variables};
use crate::fault::{FAULTS_MAX, Faults, Place, shown};
use crate::form::Form;
use crate::locate::Places;
use crate::node::{Node, Value};
use crate::streams::{self, Link, Objects};
use crate::{config, substitute};

/// The place of each component among all.
type ById = HashMap<String, usize>;

/// Reads the document; `None` if there are faults.
pub(crate) fn read(root: &Node, variables: &Variables<'_>, faults: &mut Faults) -> Option<Definition> {
    refuse_open_names(root, variables, faults);
    let form = Form::new(root, "the topology", KEYS, faults)?;
    for (key, why) in REFUSED {
        if let Some(node) = form.get(key) {
            faults.error(node.place, format!("`{key}` is not supported: {why}"));
        }
    }
    let name = form.need_text("name", faults);
    let (settings, config) = config::read(&form, variables.properties, faults);
    let objects = Objects::read(form.list("components", faults), faults);
    let mut vertices: Vec<Vertex> = Vec::new();
    for (key, kind) in [("spouts", Kind::Spout), ("bolts", Kind::Bolt)] {
        let nodes = form.list(key, faults);
        vertices.extend(nodes.iter().filter_map(|node| components::read(node, kind, faults)));
    }
    refuse_equal_ids(&vertices, faults);
    let nodes = form.list("streams", faults);
    let mut links: Vec<Link> =
        nodes.iter().filter_map(|node| streams::read(node, &objects, faults)).collect();
    if faults.has_errors() {
        return None;
    }
    let ids = vertices.iter().enumerate().map(|(at, vertex)| (vertex.component.id.clone(), at));
    let by_id: ById = ids.collect();
    declare_direct((&mut vertices, &by_id), &links, faults);
    fill_partial_keys((&vertices, &by_id), &mut links);
    connect((&mut vertices, &by_id), &links, faults);
    if faults.has_errors() {
        return None;
    }
    let places = Places::new(form.place_of("name"), &vertices, links);
    let (components, programs) = vertices.into_iter().map(|it| (it.component, it.program)).unzip();
    let topology = Topology { name: name?.to_owned(), settings, components };
    match Plan::new(topology) {
        Ok((plan, warnings)) => {
            let warnings = warnings.iter().map(|warning| (places.of_warning(warning), warning.to_string()));
            warnings.for_each(|(place, text)| faults.warn(place, text));
            Some(Definition { plan, programs, config })
        }
        Err(problems) => {
            problems
                .iter()
                .take(FAULTS_MAX)
                .for_each(|problem| faults.error(places.of(problem), problem.to_string()));
            None
        }
    }
}

/// Names that got no value: what they would have been is anybody's guess.
fn refuse_open_names(node: &Node, variables: &Variables<'_>, faults: &mut Faults) {
    match &node.value {
        Value::Scalar { text, .. } => {
            for name in substitute::open_names(text) {
                let text = open_name(name, variables, faults);
                faults.error(node.place, text);
            }
        }
        Value::List(nodes) => nodes.iter().for_each(|node| refuse_open_names(node, variables, faults)),
        Value::Map(entries) => {
            for entry in entries {
                for name in substitute::open_names(&entry.key) {
                    let text = open_name(name, variables, faults);
                    faults.error(entry.place, text);
                }
                refuse_open_names(&entry.node, variables, faults);
            }
        }
    }
}

fn open_name(name: &str, variables: &Variables<'_>, faults: &Faults) -> String {
    if let Some(variable) = name.strip_prefix(substitute::ENVIRONMENT) {
        return format!("`${{{}}}`: the environment has no variable `{}`", shown(name), shown(variable));
    }
    if variables.properties.contains_key(name) {
        return format!("`${{{}}}`: its value has more than one line", shown(name));
    }
    let nearest = faults.hint(name, variables.properties.keys().map(String::as_str));
    format!("`${{{}}}`: no property has this name{nearest}", shown(name))
}

fn refuse_equal_ids(vertices: &[Vertex], faults: &mut Faults) {
    let mut first: HashMap<&str, Place> = HashMap::new();
    for vertex in vertices {
        let id = vertex.component.id.as_str();
        if let Some(place) = first.get(id) {
            let text =
                format!("two components have the id `{}`, the first one in line {}", shown(id), place.line);
            faults.error(vertex.place, text);
        }
        first.entry(id).or_insert(vertex.place);
    }
}

/// A stream is direct if somebody reads it so: Flux's shell components have no way to declare it.
fn declare_direct((vertices, by_id): (&mut [Vertex], &ById), links: &[Link], faults: &mut Faults) {
    for link in links.iter().filter(|link| link.subscription.grouping == Grouping::Direct) {
        let (from, id) = (&link.subscription.from, &link.subscription.stream);
        let emitter = by_id.get(from).map(|at| &mut vertices[*at]);
        let stream = emitter.and_then(|it| it.component.streams.iter_mut().find(|stream| stream.id == *id));
        if let Some(stream) = stream {
            stream.is_direct = true;
            let text =
                "shell components of Flux cannot declare a direct stream: on Storm this file does not run";
            faults.warn(link.grouping_place, text);
        }
    }
}

/// Partial key without fields is by all of them.
fn fill_partial_keys((vertices, by_id): (&[Vertex], &ById), links: &mut [Link]) {
    for link in links {
        let (from, id) = (&link.subscription.from, &link.subscription.stream);
        let Grouping::PartialKey(fields) = &mut link.subscription.grouping else { continue };
        let emitter = by_id.get(from).map(|at| &vertices[*at]);
        let stream = emitter.and_then(|it| it.component.streams.iter().find(|stream| stream.id == *id));
        if let (true, Some(stream)) = (fields.is_empty(), stream) {
            fields.clone_from(&stream.fields);
        }
    }
}

/// Gives each subscription to its component.
fn connect((vertices, by_id): (&mut [Vertex], &ById), links: &[Link], faults: &mut Faults) {
    for link in links {
        match by_id.get(&link.to) {
            Some(at) => vertices[*at].component.inputs.push(link.subscription.clone()),
            None => {
                let nearest =
                    faults.hint(&link.to, vertices.iter().map(|vertex| vertex.component.id.as_str()));
                let text = format!(
                    "the stream leads to `{}`, and there is no such component{nearest}",
                    shown(&link.to)
                );
                faults.error(link.to_place, text);
            }
        }
    }
}

const KEYS: &[&str] = &[
    "name",
    "config",
    "components",
    "spouts",
    "bolts",
    "streams",
    "includes",
    "topologySource",
    "workerHooks",
];
const REFUSED: &[(&str, &str)] = &[
    ("includes", "put all into one file"),
    ("topologySource", "it is a Java class, which cannot run here"),
    ("workerHooks", "they are Java classes, which cannot run here"),
];
