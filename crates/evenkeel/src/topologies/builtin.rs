//! Components of this program in a definition: their commands are recognized, checked, and run in this process.

use std::collections::BTreeSet;

use components::{Builtin, CommandError, Shape};
use flux::{Definition, Fault, Parts, Program, Severity};
use topology::definition::Guarantee;
use topology::ids::ComponentId;

use crate::failure::Failure;

/// The component of `program`, if that is one of this program's; its arguments were checked by [`faults`].
pub(super) fn find(program: &Program) -> Option<Builtin> {
    Builtin::words(&program.command).and_then(|words| read(words).ok())
}

/// Runs the component that `words` name, as the child of whoever started this process.
///
/// # Errors
/// One line: what is wrong with the words, or with what the parent says.
pub(super) fn serve(words: &[String]) -> Result<(), Failure> {
    let builtin = read(words).map_err(|error| Failure::Usage(error.to_string()))?;
    shell::serve(&builtin.factory(Guarantee::AtLeastOnce)).map_err(Failure::System)
}

/// What is wrong with the components of this program in `definition`.
pub(super) fn faults(definition: &Definition) -> Vec<Fault> {
    let Definition { plan, programs, .. } = definition;
    faults_of(&Parts { plan: Some(plan), programs, shaky: &BTreeSet::new() })
}

/// The same in what of a definition is right by itself.
pub(super) fn faults_of(parts: &Parts<'_>) -> Vec<Fault> {
    let wrong = (0..).map(ComponentId).zip(parts.programs).flat_map(|(id, program)| {
        // What it declares and reads is known where all of that was right.
        let plan = parts.plan.filter(|plan| !parts.shaky.contains(&plan.component(id).id));
        let texts = match (Builtin::words(&program.command).map(read), plan) {
            (Some(Err(error)), _) => vec![error.to_string()],
            (_, None) => Vec::new(),
            (None, Some(plan)) => components::misfit_of_program(plan, id).into_iter().collect(),
            (Some(Ok(builtin)), Some(plan)) => builtin.misfits(&Shape::of(plan, id)),
        };
        texts.into_iter().map(|text| Fault { place: program.place, severity: Severity::Error, text })
    });
    wrong.collect()
}

/// A command as it may be shown: without users and passwords of servers.
pub(super) fn shown(command: &[String]) -> String {
    let word = |word: &String| match word
        .split_once("://")
        .and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?)))
    {
        Some((scheme, (_, place))) => format!("{scheme}://{place}"),
        None => word.clone(),
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn read(words: &[String]) -> Result<Builtin, CommandError> {
    Builtin::read(words, &crate::client::variable)
}
