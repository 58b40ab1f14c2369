//! From a definition to a program of the core: a component of this program is run as it is, each other one is a child that speaks
//! Storm's multilang protocol.

use std::path::{Path, PathBuf};
use std::time::Duration;

use connection::Target;
use flux::{Definition, Serializer};
use serde_json::{Map, Value as Json};
use shell::{Codec, Limits, Secret, ShellBolt, ShellSpout, Spec};
use topology::builder::{Code, Factory, Program};
use topology::definition::{Guarantee, Kind};

use super::builtin;
use crate::client;
use crate::failure::Failure;

/// The program of `definition`, called `name`, whose components run in `folder`.
///
/// # Errors
/// One line: components and streams do not fit.
pub(super) fn program(definition: &Definition, name: &str, folder: &Path) -> Result<Program, Failure> {
    let mut topology = definition.plan.topology().clone();
    name.clone_into(&mut topology.name);
    Program::new(topology, code(definition, name, folder)).map_err(|problems| {
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Failure::Usage(texts.join("; "))
    })
}

/// The server that keeps the epochs of `definition`, if it is exactly-once: the one that its components use.
///
/// # Errors
/// One line: EVENKEEL_URL names no server.
pub(super) fn store(definition: &Definition) -> Result<Option<Target>, Failure> {
    if definition.plan.settings().guarantee != Guarantee::ExactlyOnce {
        return Ok(None);
    }
    client::default_target().map(Some)
}

/// What each component runs.
fn code(definition: &Definition, name: &str, folder: &Path) -> Code {
    let mut code = Code::default();
    for ((_, component), program) in definition.plan.components().zip(&definition.programs) {
        if let Some(builtin) = builtin::find(program) {
            let factory = builtin.factory(definition.plan.settings().guarantee);
            code.components.insert(component.id.clone(), factory);
            let origin = component.streams.first().and_then(|stream| builtin.origin(stream));
            code.origins.extend(origin.map(|origin| (component.id.clone(), origin)));
            continue;
        }
        let spec = spec(definition, name, program, folder.to_owned());
        let factory = match component.kind {
            Kind::Spout => Factory::spout(move || ShellSpout::new(spec.clone())),
            Kind::Bolt => Factory::bolt(move || ShellBolt::new(spec.clone())),
        };
        code.components.insert(component.id.clone(), factory);
    }
    code
}

fn spec(definition: &Definition, name: &str, program: &flux::Program, folder: PathBuf) -> Spec {
    let topology = definition.plan.topology();
    let mut config = Map::new();
    config.insert("topology.name".to_owned(), name.into());
    let timeout_s = topology.settings.message_timeout.as_secs();
    config.insert("topology.message.timeout.secs".to_owned(), timeout_s.into());
    let given = definition.config.iter().chain(&program.config);
    config.extend(given.map(|(key, value)| (key.clone(), value.clone())));
    let limits = limits(&config);
    let codec = match Serializer::of(&config) {
        Serializer::Json => Codec::Json,
        Serializer::MessagePack => Codec::MessagePack,
    };
    let secret = client::own_url().map(|url| Secret::new(client::URL_DESCRIPTOR, url));
    Spec { command: program.command.clone(), folder: Some(folder), config, codec, limits, secret }
}

fn limits(config: &Map<String, Json>) -> Limits {
    let number = |key: &str| config.get(key).and_then(Json::as_u64);
    let mut limits = Limits::default();
    if let Some(seconds) = number("topology.subprocess.timeout.secs") {
        limits.timeout = Duration::from_secs(seconds);
    }
    if let Some(tuples) = number("topology.shellbolt.max.pending") {
        limits.tuples_max = tuples as usize;
    }
    limits.open_max = number("evenkeel.child_tuples_max").map(|tuples| tuples as usize);
    if let Some(bytes) = number("evenkeel.message_bytes_max") {
        limits.message_bytes_max = bytes as usize;
    }
    limits.children_max = number("evenkeel.children_max").unwrap_or(limits.children_max);
    limits.memory_bytes_max = number("evenkeel.child_memory_bytes_max").unwrap_or(limits.memory_bytes_max);
    limits
}
