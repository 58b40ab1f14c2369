//! Definitions of topologies in the YAML of Apache Storm's Flux, read into the core's [`topology::definition`].
//!
//! ```text
//!  text -> substitute -> tree (bounded) -> document -> core's Plan (checked)
//!               every step says line and column of what is wrong
//! ```
//!
//! | module | what |
//! |---|---|
//! | `properties`, `substitute` | `${name}` and `${ENV-NAME}`; where a place was before they were replaced |
//! | `tree`, `node`, `scalar` | YAML as a tree with places; bounds on size, depth and aliases |
//! | `definition` | what the caller gives and gets |
//! | `form` | mappings with known keys, strings, lists, numbers within bounds |
//! | `document`, `components`, `streams`, `config` | Flux's model, part by part |
//! | `locate` | the place of what the core finds wrong |
//! | `changes` | what differs between two definitions |
//!
//! Invariants
//!   1. Work and memory are bounded by the size of the text and by the bounds of `tree`: aliases cannot multiply.
//!   2. What is accepted has a plan. What is refused has at least one fault, with its place in the file as it was written.
//!   3. A file that is accepted without a warning of portability means the same to Flux 2.8.
//!
//! Only shell components are known: a Java class cannot run here. What Storm runs as a command of this program is a built-in component here.
//! Performs no I/O: the caller reads files and the environment.
//! Source: the format is that of Flux (Apache Storm 2.8).

mod changes;
mod components;
mod config;
mod definition;
mod document;
mod fault;
mod form;
mod locate;
mod node;
mod properties;
mod scalar;
mod streams;
mod substitute;
mod tree;

pub use changes::{Change, Changes, ComponentChange, Difference, changes};
pub use config::Serializer;
pub use definition::{Definition, Program, Variables};
pub use document::{Check, EXECUTORS, Parts};
pub use fault::{Fault, Faults, Place, Severity};
pub use properties::parse as parse_properties;

/// Reads a definition; the warnings beside it do not keep it from running.
///
/// # Errors
/// All that is wrong, in the order of the file.
pub fn read(text: &str, variables: &Variables<'_>) -> Result<(Definition, Vec<Fault>), Vec<Fault>> {
    read_checked(text, variables, &|_| Vec::new())
}

/// As [`read`], with the mistakes that `check` finds in what components run: told together with all others.
///
/// # Errors
/// All that is wrong, in the order of the file.
pub fn read_checked(
    text: &str,
    variables: &Variables<'_>,
    check: Check<'_>,
) -> Result<(Definition, Vec<Fault>), Vec<Fault>> {
    let (text, origin) = substitute::replace(text, variables);
    let mut faults = Faults::default();
    for place in origin.second_names() {
        faults.warn(
            place,
            "Flux replaces only one of several names in a line: write them in lines of their own",
        );
    }
    let definition = tree::parse(&text)
        .map_err(|fault| faults.push(fault))
        .ok()
        .and_then(|root| document::read(&root, variables, check, &mut faults))
        .map(|definition| with_places(definition, &origin));
    let (mut warnings, mut errors) = faults.split();
    warnings.iter_mut().chain(&mut errors).for_each(|fault| fault.place = origin.of(fault.place));
    match definition {
        Some(definition) if errors.is_empty() => Ok((definition, warnings)),
        _ => Err(errors),
    }
}

/// The definition with places in the file as it was written.
fn with_places(mut definition: Definition, origin: &substitute::Origin) -> Definition {
    definition.programs.iter_mut().for_each(|program| program.place = origin.of(program.place));
    definition
}
