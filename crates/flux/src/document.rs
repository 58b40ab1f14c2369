//! The whole document: its parts put together, and checked as a topology by the core.

use std::collections::{BTreeSet, HashMap};

use topology::Plan;
use topology::definition::{Grouping, Kind, Topology};
use topology::problem::Problem;

use crate::components::{self, Vertex};
use crate::definition::{Definition, Program, Variables};
use crate::fault::{FAULTS_MAX, Fault, Faults, Place, shown};
use crate::form::Form;
use crate::locate::Places;
use crate::node::{Node, Value};
use crate::streams::{self, Link, Objects};
use crate::{config, substitute};

/// The place of each component among all.
type ById = HashMap<String, usize>;

/// What of a definition is right by itself, though something else may be wrong with it.
#[derive(Debug)]
pub struct Parts<'a> {
    /// Components and streams, where these fit together.
    pub plan: Option<&'a Plan>,
    /// What components run; where there is a plan, in its order.
    pub programs: &'a [Program],
    /// Components of which something could not be read: what is missing of them is no further mistake.
    pub shaky: &'a BTreeSet<String>,
}

/// Looks for further mistakes in what components run.
pub type Check<'a> = &'a dyn Fn(&Parts<'_>) -> Vec<Fault>;

/// Reads the document; `None` if there are faults. All of them are told at once: those of parts, those between parts that are right, and those that `check` finds.
pub(crate) fn read(
    root: &Node,
    variables: &Variables<'_>,
    check: Check<'_>,
    faults: &mut Faults,
) -> Option<Definition> {
    refuse_open_names(root, variables, faults);
    let before = faults.errors();
    let form = Form::new(root, "the topology", KEYS, faults)?;
    // Another key may be one that is missing.
    let is_whole = faults.errors() == before;
    for (key, why) in REFUSED {
        if let Some(node) = form.get(key) {
            faults.error(node.place, format!("`{key}` is not supported: {why}"));
        }
    }
    let name = form.need_text("name", faults);
    let (settings, config) = config::read(&form, variables.properties, faults);
    let objects = Objects::read(form.list("components", faults), faults);
    let (mut vertices, mut shaky) = read_vertices(&form, faults);
    refuse_equal_ids(&mut vertices, faults);
    deal_executors(&mut vertices, variables, form.place, faults);
    let mut links: Vec<Link> = Vec::new();
    for node in form.list("streams", faults) {
        let link = streams::read(node, &objects, faults);
        if link.is_none() {
            shaky.extend(text_of(node, "to").map(str::to_owned));
        }
        links.extend(link);
    }
    let ids = vertices.iter().enumerate().map(|(at, vertex)| (vertex.component.id.clone(), at));
    let by_id: ById = ids.collect();
    declare_direct(&mut vertices, &by_id, &links, faults);
    fill_partial_keys(&vertices, &by_id, &mut links);
    let before = faults.errors();
    if is_whole {
        connect(&mut vertices, &by_id, &links, &mut shaky, faults);
    }
    // A stream that leads to nobody was to lead to somebody, who may have no other one.
    let has_stray = faults.errors() > before;
    let places = Places::new(form.place_of("name"), &vertices, links);
    let (components, programs): (Vec<_>, Vec<Program>) =
        vertices.into_iter().map(|it| (it.component, it.program)).unzip();
    let topology = Topology { name: name.unwrap_or("?").to_owned(), settings, components };
    let plan = match Plan::new(topology) {
        Ok((plan, warnings)) => {
            let warnings = warnings.iter().map(|warning| (places.of_warning(warning), warning.to_string()));
            warnings.for_each(|(place, text)| faults.warn(place, text));
            Some(plan)
        }
        Err(problems) => {
            let further = problems.iter().filter(|problem| {
                let is_input = matches!(problem, Problem::NoInput { .. });
                is_whole && !(is_input && has_stray) && !follows(problem, &shaky)
            });
            further.take(FAULTS_MAX).for_each(|it| faults.error(places.of(it), it.to_string()));
            None
        }
    };
    let parts = Parts { plan: plan.as_ref(), programs: &programs, shaky: &shaky };
    check(&parts).into_iter().for_each(|fault| faults.push(fault));
    if faults.has_errors() { None } else { plan.map(|plan| Definition { plan, programs, config }) }
}

/// Spouts and bolts, and the ids of those of which something could not be read.
fn read_vertices(form: &Form<'_>, faults: &mut Faults) -> (Vec<Vertex>, BTreeSet<String>) {
    let (mut vertices, mut shaky): (Vec<Vertex>, _) = (Vec::new(), BTreeSet::new());
    for (key, kind) in [("spouts", Kind::Spout), ("bolts", Kind::Bolt)] {
        for node in form.list(key, faults) {
            let vertex = components::read(node, kind, faults);
            if vertex.as_ref().is_none_or(|vertex| !vertex.is_whole) {
                shaky.extend(text_of(node, "id").map(str::to_owned));
            }
            vertices.extend(vertex);
        }
    }
    (vertices, shaky)
}

/// The text that `key` of a mapping has, whatever else is wrong with it.
fn text_of<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    let Value::Map(entries) = &node.value else { return None };
    match &entries.iter().find(|entry| entry.key == key)?.node.value {
        Value::Scalar { text, .. } => Some(text),
        _ => None,
    }
}

/// Whether a problem comes of what could not be read: it is told already.
fn follows(problem: &Problem, shaky: &BTreeSet<String>) -> bool {
    let is_shaky = |id: &String| shaky.contains(id);
    match problem {
        Problem::NoSpout => !shaky.is_empty(),
        Problem::NoInput { component } => is_shaky(component),
        Problem::UnknownComponent { from, .. }
        | Problem::NoSource { from, .. }
        | Problem::UnknownField { from, .. }
        | Problem::NoFields { from, .. }
        | Problem::DirectMismatch { from, .. } => is_shaky(from),
        _ => false,
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

/// Keeps the first of components with one id.
fn refuse_equal_ids(vertices: &mut Vec<Vertex>, faults: &mut Faults) {
    let mut first: HashMap<String, Place> = HashMap::new();
    vertices.retain(|vertex| {
        let id = vertex.component.id.as_str();
        let Some(place) = first.get(id) else {
            first.insert(id.to_owned(), vertex.place);
            return true;
        };
        let text =
            format!("two components have the id `{}`, the first one in line {}", shown(id), place.line);
        faults.error(vertex.place, text);
        false
    });
}

/// Gives components other numbers of executors, as properties say: whoever runs the definition, beside the file.
fn deal_executors(vertices: &mut [Vertex], variables: &Variables<'_>, place: Place, faults: &mut Faults) {
    let range = variables.properties.range(EXECUTORS.to_owned()..);
    for (name, value) in range.take_while(|(name, _)| name.starts_with(EXECUTORS)) {
        let id = &name[EXECUTORS.len()..];
        let Some(vertex) = vertices.iter_mut().find(|vertex| vertex.component.id == id) else {
            let nearest = faults.hint(id, vertices.iter().map(|vertex| vertex.component.id.as_str()));
            faults
                .error(place, format!("the property `{}`: there is no such component{nearest}", shown(name)));
            continue;
        };
        let parallelism = &mut vertex.component.parallelism;
        match value.parse::<u32>().ok().filter(|count| (1..=parallelism.tasks).contains(count)) {
            Some(count) => parallelism.executors = count,
            None => {
                let (tasks, value) = (parallelism.tasks, shown(value));
                let text = format!(
                    "component `{}` cannot have `{value}` executors: it has {tasks} tasks, and may have 1 to {tasks} executors; more need a larger `numTasks`",
                    shown(id)
                );
                faults.error(vertex.place, text);
            }
        }
    }
}

/// A stream is direct if somebody reads it so: Flux's shell components have no way to declare it.
fn declare_direct(vertices: &mut [Vertex], by_id: &ById, links: &[Link], faults: &mut Faults) {
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
fn fill_partial_keys(vertices: &[Vertex], by_id: &ById, links: &mut [Link]) {
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

/// Gives each subscription to its component. One of a component that could not be read, or to one, is left out.
fn connect(
    vertices: &mut [Vertex],
    by_id: &ById,
    links: &[Link],
    shaky: &mut BTreeSet<String>,
    faults: &mut Faults,
) {
    for link in links {
        let from = &link.subscription.from;
        match by_id.get(&link.to) {
            Some(_) if shaky.contains(from) && !by_id.contains_key(from) => {
                shaky.insert(link.to.clone());
            }
            Some(at) => vertices[*at].component.inputs.push(link.subscription.clone()),
            None if shaky.contains(&link.to) => {}
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

/// What names of properties begin with that say how many executors a component has; its id follows.
pub const EXECUTORS: &str = "evenkeel.executors.";
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
