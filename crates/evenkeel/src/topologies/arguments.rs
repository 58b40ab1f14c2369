//! The arguments of `evenkeel topology`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::source::{Source, Values};
use crate::client::Server;

/// The arguments of `evenkeel topology`.
#[derive(Debug, Args)]
pub(crate) struct Topology {
    #[command(subcommand)]
    pub(super) what: What,
    #[command(flatten)]
    pub(super) server: Server,
}

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Check a definition, and print what would run: components, tasks, streams
    Check(Source),
    /// Pack a definition and the folder of its components into a jar for Apache Storm
    Package {
        #[command(flatten)]
        source: Source,
        /// The jar
        #[arg(short, long, value_name = "JAR")]
        out: PathBuf,
    },
    /// Run a definition on a server; or with --local in this process, until Ctrl-C
    Run(Run),
    /// Show what a definition would change in the topology of its name, and change nothing
    Diff {
        #[command(flatten)]
        submitted: Submitted,
        /// Print JSON: an object
        #[arg(long)]
        json: bool,
    },
    /// List the topologies of a server
    List {
        /// Print JSON: an array of objects
        #[arg(long)]
        json: bool,
    },
    /// Show what a topology and its components have done
    Show {
        /// Its name
        name: String,
        /// Print JSON: an object
        #[arg(long)]
        json: bool,
    },
    /// End a topology and forget it; wait until nothing is left of it
    Kill(Ending),
    /// Let spouts emit again
    Activate {
        /// Name of the topology
        name: String,
    },
    /// Let spouts emit nothing new
    Deactivate {
        /// Name of the topology
        name: String,
    },
    /// Start the workers of a topology anew
    Restart(Ending),
    /// Have a number of workers share the tasks of a topology, which runs on meanwhile
    Rebalance {
        /// Name of the topology
        name: String,
        /// How many; without it as many as now, evenly
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        workers: Option<u32>,
        /// Executors of a component, at most as many as it has tasks; its workers are started anew, when what is under way is finished
        #[arg(short, long = "executors", value_name = "COMPONENT=N", value_parser = executors)]
        executors: Vec<(String, u32)>,
        /// Longest time until all tasks are where they are to be; 0: do not wait
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(0..=86_400))]
        wait: u32,
    },
    /// Deactivate a topology, and wait until nothing is under way
    Drain(Ending),
    /// Show tuples that a component emits, one line of JSON each, while the topology runs
    Tap(Tap),
    /// Run a definition beside the topology of its name, from an older position on, with its keys under a prefix
    Try(Try),
    /// Put the definition that is tried, with the keys that it has written, in the place of a topology
    Switch {
        /// Name of the topology
        name: String,
        /// Longest time until the trial is as far as the topology is now; 0: do not wait
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(0..=86_400))]
        wait: u32,
    },
    /// Send dead letters back to the stream that they came from
    Replay(Replay),
}

/// What is to be tried, or whose trial is to end.
#[derive(Debug, Args)]
pub(super) struct Try {
    /// Definition in the YAML of Apache Storm's Flux
    #[arg(value_name = "FILE", required_unless_present = "stop")]
    file: Option<PathBuf>,
    /// Where stream-spouts begin: start, end, the id of an entry, or a time in ms since 1970
    #[arg(long, value_name = "POSITION", default_value = "start")]
    pub(super) from: String,
    /// What keys begin with that it writes
    #[arg(long, value_name = "PREFIX", default_value = "shadow:")]
    pub(super) prefix: String,
    /// Run components that are programs, too: what they write elsewhere is not redirected
    #[arg(long)]
    pub(super) programs: bool,
    #[command(flatten)]
    values: Values,
    /// Name of the topology, if not that in the file
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Folder of the components, below the server's topologies.dir
    #[arg(long, value_name = "FOLDER")]
    folder: Option<String>,
    /// Worker processes that share its tasks, if not as many as topology.workers in the file says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    workers: Option<u32>,
    /// What carries tuples between its workers, if not what evenkeel.transport in the file says; zeromq: in builds with that feature
    #[arg(long, value_name = "NAME", value_parser = ["tcp", "zeromq"])]
    transport: Option<String>,
    /// End the trial of this topology, and remove the keys that it has written
    #[arg(long, value_name = "NAME", conflicts_with_all = ["file", "programs", "name", "folder", "workers", "transport"])]
    pub(super) stop: Option<String>,
}

impl Try {
    /// What is submitted, if no trial is to end.
    pub(super) fn submitted(&self) -> Option<Submitted> {
        let source = Source { file: self.file.clone()?, values: self.values.clone() };
        let (name, folder, transport) = (self.name.clone(), self.folder.clone(), self.transport.clone());
        Some(Submitted { source, name, folder, workers: self.workers, transport })
    }
}

/// Which tuples are to be seen.
#[derive(Debug, Args)]
pub(super) struct Tap {
    /// Name of the topology
    pub(super) name: String,
    /// Id of the component that emits them
    pub(super) component: String,
    /// Those of this stream alone
    #[arg(long, value_name = "STREAM")]
    pub(super) stream: Option<String>,
    /// End after so many tuples
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: Option<u64>,
    /// One of so many tuples: 1/100
    #[arg(long, value_name = "1/N", default_value = "1/1", value_parser = sample)]
    pub(super) sample: u64,
    /// End after so long
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = server::settings::positive_duration)]
    pub(super) length: Duration,
}

/// The component and the number of `COMPONENT=N`.
fn executors(text: &str) -> Result<(String, u32), String> {
    let parts = text.rsplit_once('=').and_then(|(id, count)| Some((id.to_owned(), count.parse().ok()?)));
    parts.filter(|(_, count)| *count > 0).ok_or_else(|| "write COMPONENT=N, where N is at least 1".to_owned())
}

/// The `N` of `1/N`.
fn sample(text: &str) -> Result<u64, String> {
    let number = text.strip_prefix("1/").and_then(|number| number.parse().ok());
    number
        .filter(|number| (1..=1_000_000_000).contains(number))
        .ok_or_else(|| "write 1/N, where N is a whole number from 1 to 1000000000".to_owned())
}

/// Which dead letters are to be tried again.
#[derive(Debug, Args)]
pub(super) struct Replay {
    /// Key of the stream with the letters; with --dead-letter the name of a topology
    #[arg(value_name = "KEY|NAME")]
    pub(super) letters: String,
    /// All dead letters of the topology of this name, wherever its definition says that they go
    #[arg(long)]
    pub(super) dead_letter: bool,
    /// Only those with this text in their error
    #[arg(long, value_name = "TEXT")]
    pub(super) error: Option<String>,
    /// Only those that failed at this component, where letters tell that
    #[arg(long, value_name = "ID")]
    pub(super) component: Option<String>,
    /// Stream to send them to, if not the one that they tell
    #[arg(long, value_name = "KEY")]
    pub(super) to: Option<String>,
    /// Most letters that are sent
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    pub(super) count: u64,
    /// Send nothing, and say how many would be
    #[arg(long)]
    pub(super) dry_run: bool,
}

/// What is submitted to a server, and how.
#[derive(Debug, Args)]
pub(super) struct Submitted {
    #[command(flatten)]
    pub(super) source: Source,
    /// Name on the server, if not that in the file
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// Folder of the components, below the server's topologies.dir
    #[arg(long, value_name = "FOLDER")]
    pub(super) folder: Option<String>,
    /// Worker processes that share its tasks, if not as many as topology.workers in the file says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) workers: Option<u32>,
    /// What carries tuples between its workers, if not what evenkeel.transport in the file says; zeromq: in builds with that feature
    #[arg(long, value_name = "NAME", value_parser = ["tcp", "zeromq"])]
    pub(super) transport: Option<String>,
}

/// What is to be run, and where.
#[derive(Debug, Args)]
pub(super) struct Run {
    #[command(flatten)]
    pub(super) submitted: Submitted,
    /// Replace the topology that has this name
    #[arg(long, conflicts_with = "local")]
    pub(super) replace: bool,
    /// Run it in this process, without a server
    #[arg(long, conflicts_with_all = ["name", "folder", "workers", "transport"])]
    pub(super) local: bool,
    /// Threads of --local; 0: one for each processor
    #[arg(long, value_name = "N", default_value_t = 0, requires = "local", value_parser = clap::value_parser!(u16).range(0..=1_000))]
    pub(super) threads: u16,
    /// Duration of --local; without it, until Ctrl-C
    #[arg(long = "for", value_name = "TIME", requires = "local", value_parser = server::settings::positive_duration)]
    pub(super) length: Option<Duration>,
}

/// A topology whose workers are to end.
#[derive(Debug, Args)]
pub(super) struct Ending {
    /// Name of the topology
    pub(super) name: String,
    /// Longest time for what is under way
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    pub(super) wait: u32,
}
