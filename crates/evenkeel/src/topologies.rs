//! `evenkeel topology`: reads a definition, and prints what would run or all that is wrong (`check`), or runs it (`run`).

mod builtin;
mod code;
mod local;
pub(crate) mod worker;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use flux::{Definition, Fault, Program, Variables};
use topology::Plan;
use topology::definition::{Grouping, Guarantee, Kind, Stream};
use topology::plan::Edge;

use crate::cli::read_small;
use crate::failure::Failure;

/// The arguments of `evenkeel topology`.
#[derive(Debug, Args)]
pub(crate) struct Topology {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Check a definition, and print what would run: components, tasks, streams
    Check(Source),
    /// Run a definition until Ctrl-C; then print what it has done
    Run {
        #[command(flatten)]
        source: Source,
        /// Run it in this process, without a server
        #[arg(long, required = true)]
        local: bool,
        /// Threads; 0: one for each processor
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=1_000))]
        threads: u16,
        /// Duration; without it, until Ctrl-C
        #[arg(long = "for", value_name = "TIME", value_parser = bench::experiment::some_time)]
        length: Option<Duration>,
    },
}

/// A definition, and values for what it leaves open.
#[derive(Debug, Args)]
struct Source {
    /// Definition in the YAML of Apache Storm's Flux
    file: PathBuf,
    /// Value of `${NAME}` in the file; goes before that of --properties
    #[arg(long, value_name = "NAME=VALUE", value_parser = property)]
    property: Vec<(String, String)>,
    /// File with lines NAME=VALUE, as Java reads properties
    #[arg(long, value_name = "FILE")]
    properties: Option<PathBuf>,
}

/// Does what the arguments say.
///
/// # Errors
/// One line: a file cannot be read, or how much is wrong with it.
pub(crate) fn run(options: &Topology) -> Result<(), Failure> {
    match &options.what {
        What::Check(source) => {
            crate::output::say(std::io::stdout(), &described(&source.read()?));
            Ok(())
        }
        What::Run { source, threads, length, .. } => {
            local::run(&source.read()?, &source.file, usize::from(*threads), *length)
        }
    }
}

impl Source {
    /// Reads the definition; prints its warnings, or all that is wrong, to standard error.
    fn read(&self) -> Result<Definition, Failure> {
        let text = read_small("the definition", &self.file)?;
        let properties = self.properties()?;
        let environment = |name: &str| std::env::var(name).ok();
        match flux::read(&text, &Variables { properties: &properties, environment: &environment }) {
            Ok((definition, warnings)) => {
                say_all(&self.file, &warnings);
                let faults = builtin::faults(&definition);
                if faults.is_empty() { Ok(definition) } else { Err(self.refused(&faults)) }
            }
            Err(faults) => Err(self.refused(&faults)),
        }
    }

    fn refused(&self, faults: &[Fault]) -> Failure {
        say_all(&self.file, faults);
        let plural = if faults.len() == 1 { "" } else { "s" };
        Failure::Usage(format!("{} has {} error{plural}", self.file.display(), faults.len()))
    }

    fn properties(&self) -> Result<BTreeMap<String, String>, Failure> {
        let mut properties = match &self.properties {
            Some(path) => {
                let text = read_small("the file of properties", path)?;
                let wrong = |why| Failure::Usage(format!("{}, {why}", path.display()));
                flux::parse_properties(&text).map_err(wrong)?
            }
            None => BTreeMap::new(),
        };
        properties.extend(self.property.iter().cloned());
        Ok(properties)
    }
}

fn property(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it has no `=`: write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn say_all(file: &Path, faults: &[Fault]) {
    let lines: String = faults.iter().map(|fault| format!("{}:{fault}\n", file.display())).collect();
    crate::output::say(std::io::stderr(), &lines);
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
            rows.push(row([&component.id, to, &grouping(edge, stream), &fields]));
        }
    }
    rows
}

fn grouping(edge: &Edge, stream: &Stream) -> String {
    let name = match &edge.grouping {
        Grouping::Shuffle => "shuffle",
        Grouping::LocalOrShuffle => "local or shuffle",
        Grouping::Fields(_) => "fields",
        Grouping::PartialKey(_) => "partial key",
        Grouping::All => "all",
        Grouping::Global => "global",
        Grouping::Direct => "direct",
        Grouping::None => "none",
        Grouping::Custom(class) => return format!("custom {class}"),
    };
    let fields: Vec<&str> = edge.key_fields.iter().map(|&place| stream.fields[place].as_str()).collect();
    if fields.is_empty() { name.to_owned() } else { format!("{name} {}", fields.join(", ")) }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Rows with their columns aligned.
fn table(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text += &format!("  {}\n", line.trim_end());
    }
    text
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
