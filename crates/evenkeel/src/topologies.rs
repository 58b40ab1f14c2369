//! `evenkeel topology`: reads a definition, and prints what would run or all that is wrong (`check`), or runs it (`run`): here, or on a
//! server, which the other subcommands ask about what it runs.

mod arguments;
mod builtin;
mod code;
mod diff;
mod local;
mod package;
mod peers;
mod remote;
mod replay;
mod source;
mod tap;
mod tapped;
mod text;
mod trial;
pub(crate) mod worker;

use flux::{Definition, Program};
use topology::Plan;
use topology::definition::{Guarantee, Kind};

use crate::failure::Failure;
use arguments::What;
use text::{counted, row, table};

pub(crate) use arguments::Topology;

/// Does what the arguments say.
///
/// # Errors
/// One line: a file cannot be read, or how much is wrong with it.
pub(crate) fn run(options: &Topology) -> Result<(), Failure> {
    match &options.what {
        What::Check(source) => {
            crate::output::say(std::io::stdout(), &described(&source.read()?.definition));
            Ok(())
        }
        What::Package { source, out } => {
            let programs = source.read()?.definition.programs;
            let needs_files = programs.iter().any(|program| builtin::find(program).is_none());
            let folder = needs_files.then(|| local::folder(&source.file));
            let packed = package::package(&source.file, folder.as_deref(), out)?;
            crate::output::say(std::io::stdout(), &packed);
            Ok(())
        }
        What::Run(run) if run.local => {
            let source = &run.submitted.source;
            local::run(&source.read()?.definition, &source.file, usize::from(run.threads), run.length)
        }
        what => remote::run(&options.server, what),
    }
}

/// Runs the built-in component that `words` name, for the process that started this one.
///
/// # Errors
/// One line: what is wrong with the words, or with what the parent says.
pub(crate) fn component(words: &[String]) -> Result<(), Failure> {
    builtin::serve(words)
}

/// What would run.
fn described(definition: &Definition) -> String {
    let plan = &definition.plan;
    let topology = plan.topology();
    let guarantee = match topology.settings.guarantee {
        Guarantee::AtMostOnce => "at most once",
        Guarantee::AtLeastOnce => "at least once",
        Guarantee::ExactlyOnce => "exactly once",
    };
    let counts = [
        counted(topology.settings.workers.into(), "worker"),
        counted(topology.components.len() as u64, "component"),
        counted(plan.tasks_count().into(), "task"),
    ];
    let mut text = format!("{}: {guarantee}; {}\n\n", topology.name, counts.join(", "));
    text += &table(&components(plan, &definition.programs));
    text += "\n";
    text += &table(&edges(plan));
    text
}

fn components(plan: &Plan, programs: &[Program]) -> Vec<Vec<String>> {
    let mut rows = vec![row(["component", "kind", "tasks", "threads", "runs"])];
    for ((id, component), program) in plan.components().zip(programs) {
        let tasks = plan.tasks(id);
        let kind = if component.kind == Kind::Spout { "spout" } else { "bolt" };
        let (count, threads) = (tasks.len().to_string(), component.parallelism.executors.to_string());
        rows.push(row([&component.id, kind, &count, &threads, &builtin::shown(&program.command)]));
    }
    rows
}

fn edges(plan: &Plan) -> Vec<Vec<String>> {
    let mut rows = vec![row(["from", "to", "grouping", "stream"])];
    for (id, component) in plan.components() {
        for edge in plan.edges_from(id) {
            let (to, stream) = (&plan.component(edge.to).id, plan.declaration(edge.stream).1);
            let fields = format!("{} ({})", stream.id, stream.fields.join(", "));
            rows.push(row([&component.id, to, &edge.grouping.to_string(), &fields]));
        }
    }
    rows
}
