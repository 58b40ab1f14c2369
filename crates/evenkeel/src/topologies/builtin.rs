//! Components of this program in a definition: their commands are recognized, checked, and run in this process.

use components::{Builtin, Shape};
use flux::{Definition, Fault, Program, Severity};
use topology::definition::Guarantee;

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
    let builtin = read(words).map_err(Failure::Usage)?;
    shell::serve(&builtin.factory(Guarantee::AtLeastOnce)).map_err(Failure::System)
}

/// What is wrong with the components of this program in `definition`.
pub(super) fn faults(definition: &Definition) -> Vec<Fault> {
    let plan = &definition.plan;
    let programs = plan.components().zip(&definition.programs);
    let wrong = programs.flat_map(|((id, _), program)| {
        let texts = match Builtin::words(&program.command).map(read) {
            None => components::misfit_of_program(plan, id).into_iter().collect(),
            Some(Err(text)) => vec![text],
            Some(Ok(builtin)) => builtin.misfits(&Shape::of(plan, id)),
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

fn read(words: &[String]) -> Result<Builtin, String> {
    Builtin::read(words, &|name| std::env::var(name).ok())
}
