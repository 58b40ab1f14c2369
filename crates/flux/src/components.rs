//! Spouts and bolts: what they run, what they declare, how many tasks they have.
//!
//! A component is a shell component by its class. Flux builds it with a constructor (command, fields of the default stream) and calls the
//! `configMethods` in their order, so a stream that is set twice has the fields of the last call, as it has on Storm.
//!
//! Out of scope: classes of Java, which are refused by name.

use serde_json::{Map, Value as Json};
use topology::definition::{Component, Kind, Parallelism, Stream};
use topology::plan::TASKS_MAX;

use crate::config;
use crate::definition::Program;
use crate::fault::{Faults, Place, hint, shown};
use crate::form::{self, Form};
use crate::node::Node;

/// A component, with the places that later checks name.
#[derive(Debug)]
pub(crate) struct Vertex {
    pub(crate) place: Place,
    pub(crate) component: Component,
    pub(crate) program: Program,
    /// Its command and its streams are right by themselves.
    pub(crate) is_whole: bool,
}

/// Reads the component `node`.
pub(crate) fn read(node: &Node, kind: Kind, faults: &mut Faults) -> Option<Vertex> {
    let what = if kind == Kind::Spout { "a spout" } else { "a bolt" };
    let form = Form::new(node, what, VERTEX_KEYS, faults)?;
    let parallelism = parallelism(&form, faults);
    let before = faults.errors();
    refuse_java(&form, faults);
    let id = form.need_text("id", faults);
    if id.is_some_and(|id| id.starts_with("__")) {
        faults.error(form.place_of("id"), "ids that begin with `__` are those of the system");
    }
    let is_known = check_class(&form, kind, faults);
    let mut shell = Shell { streams: Vec::new(), config: Map::new() };
    let command = shell.construct(&form, faults);
    let place = command.as_ref().map_or(form.place, |(_, place)| *place);
    for method in form.list("configMethods", faults) {
        shell.call(method, faults);
    }
    let id = id.filter(|_| is_known)?;
    let tick_interval = config::tick_interval_of(&shell.config);
    let mut component = match kind {
        Kind::Spout => Component::spout(id, shell.streams),
        Kind::Bolt => Component::bolt(id, Vec::new(), shell.streams),
    };
    (component.parallelism, component.tick_interval) = (parallelism, tick_interval);
    let program = Program { command: command?.0, place, config: shell.config };
    let is_whole = faults.errors() == before;
    Some(Vertex { place: form.place_of("id"), component, program, is_whole })
}

/// Flux's parallelism is executors; tasks are as many, unless `numTasks` says more.
fn parallelism(form: &Form<'_>, faults: &mut Faults) -> Parallelism {
    let bounds = 1..=TASKS_MAX;
    let executors = form.number("parallelism", bounds.clone(), faults).unwrap_or(1);
    let tasks = form.number("numTasks", bounds, faults).unwrap_or(executors);
    if tasks < executors {
        let text =
            format!("`numTasks` {tasks} is less than `parallelism` {executors}: an executor needs a task");
        faults.error(form.place_of("numTasks"), text);
    }
    for key in ["onHeapMemoryLoad", "offHeapMemoryLoad", "cpuLoad"] {
        form.number(key, 0..=u64::from(u32::MAX), faults);
    }
    Parallelism { tasks: tasks.max(executors) as u32, executors: executors as u32 }
}

fn refuse_java(form: &Form<'_>, faults: &mut Faults) {
    for key in ["properties", "factory", "factoryArgs"] {
        if let Some(node) = form.get(key) {
            faults.error(node.place, format!("`{key}` is for Java objects: a shell component has none"));
        }
    }
}

fn check_class(form: &Form<'_>, kind: Kind, faults: &mut Faults) -> bool {
    let Some(name) = form.need_text("className", faults) else { return false };
    let (class, other) = match kind {
        Kind::Spout => (SPOUT_CLASS, BOLT_CLASS),
        Kind::Bolt => (BOLT_CLASS, SPOUT_CLASS),
    };
    if name == class {
        return true;
    }
    let text = if name == other {
        format!("`{name}` is of the other kind: the class here is `{class}`")
    } else {
        let nearest = hint(name, [class]);
        format!(
            "`{}` is a Java class, which cannot run here{nearest}: use `{class}` with a command",
            shown(name)
        )
    };
    faults.error(form.place_of("className"), text);
    false
}

/// A shell component in the making.
struct Shell {
    streams: Vec<Stream>,
    config: Map<String, Json>,
}

impl Shell {
    /// The constructor: the command with its place, and the fields of the default stream if there are any.
    fn construct(&mut self, form: &Form<'_>, faults: &mut Faults) -> Option<(Vec<String>, Place)> {
        let node = form.need("constructorArgs", faults)?;
        let arguments = form::list(node, "constructorArgs", faults)?;
        let [command, fields @ ..] = arguments else {
            faults.error(node.place, "`constructorArgs` must begin with the command, a list of words");
            return None;
        };
        match fields {
            [] => {}
            [fields] => self.declare("default", fields, faults),
            [_, more, ..] => {
                faults.error(
                    more.place,
                    "`constructorArgs` are the command and the fields of its output, no more",
                );
            }
        }
        let words = form::texts(command, "the command", faults)?;
        if words.first().is_none_or(String::is_empty) {
            faults.error(command.place, "the command is empty: it must begin with a program");
            return None;
        }
        Some((words, command.place))
    }

    fn call(&mut self, node: &Node, faults: &mut Faults) {
        let Some(form) = Form::new(node, "a config method", &["name", "args"], faults) else { return };
        let Some(name) = form.need_text("name", faults) else { return };
        let arguments = form.list("args", faults);
        match (name, arguments) {
            ("setDefaultStream", [fields]) => self.declare("default", fields, faults),
            ("setNamedStream", [stream, fields]) => {
                if let Some(stream) = form::text(stream, "the stream", faults) {
                    self.declare(stream, fields, faults);
                }
            }
            ("addComponentConfig", [key, value]) => {
                if let Some(key) = form::text(key, "the key", faults) {
                    config::check_value(key, value, faults);
                    self.config.insert(key.to_owned(), value.to_json());
                }
            }
            _ => faults.error(form.place_of("name"), wrong_call(name, arguments.len())),
        }
    }

    fn declare(&mut self, stream: &str, fields: &Node, faults: &mut Faults) {
        let Some(names) = form::texts(fields, "the fields", faults) else { return };
        if names.is_empty() {
            faults
                .warn(fields.place, "Flux refuses an empty list of fields: on Storm this file does not run");
        }
        if stream.is_empty() {
            faults.error(fields.place, "a stream has an empty name");
        }
        if names.len() > FIELDS_MAX {
            let text =
                format!("{} fields are more than the {FIELDS_MAX} that a stream can have", names.len());
            faults.error(fields.place, text);
        }
        self.streams.retain(|declared| declared.id != stream);
        self.streams.push(Stream { id: stream.to_owned(), fields: names, is_direct: false });
    }
}

fn wrong_call(name: &str, count: usize) -> String {
    match METHODS.iter().find(|(known, _)| *known == name) {
        Some((_, arguments)) => format!("`{name}` takes {arguments}, not {count} arguments"),
        None => {
            let nearest = hint(name, METHODS.iter().map(|(known, _)| *known));
            format!("unknown config method `{}`{nearest}", shown(name))
        }
    }
}

const VERTEX_KEYS: &[&str] = &[
    "id",
    "className",
    "constructorArgs",
    "configMethods",
    "parallelism",
    "numTasks",
    "onHeapMemoryLoad",
    "offHeapMemoryLoad",
    "cpuLoad",
    "properties",
    "factory",
    "factoryArgs",
];
const METHODS: &[(&str, &str)] = &[
    ("setDefaultStream", "one list of fields"),
    ("setNamedStream", "a stream and a list of fields"),
    ("addComponentConfig", "a key and a value"),
];
const SPOUT_CLASS: &str = "org.apache.storm.flux.wrappers.spouts.FluxShellSpout";
const BOLT_CLASS: &str = "org.apache.storm.flux.wrappers.bolts.FluxShellBolt";
/// The core keeps their number in 16 bits.
const FIELDS_MAX: usize = 1_000;
