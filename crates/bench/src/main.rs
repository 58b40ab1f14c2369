//! The command line of the harness: `evenkeel-bench suite | limit | load | ...`; `cargo xtask bench` calls `suite`.
//!
//! Each part can be run alone, so that any figure can be repeated by hand with the commands beside it.

#![allow(
    clippy::disallowed_methods,
    reason = "measures the real machine from outside: no simulation runs it"
)]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bench::count::Counts;
use bench::drive::Target;
use bench::experiment::Experiment;
use bench::limit::{self, Limit};
use bench::load::generator::{self, Group};
use bench::load::{idle, sync_probe};
use bench::report::Report;
use bench::suite::{Context, GROUPS};
use bench::{Failure, process};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use hdrhistogram::Histogram;

#[derive(Parser)]
#[command(
    name = "evenkeel-bench",
    bin_name = "evenkeel bench",
    about = "Measure this server, or any other that speaks the Redis protocol"
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    #[command(flatten)]
    Experiment(Box<Experiment>),
    /// Measure groups of figures side by side and write them into docs/benchmarks/figures.md
    Suite {
        /// Groups; all when none is named
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// A tenth of the work, one run: shows that it works, judges nothing, writes nothing
        #[arg(long)]
        quick: bool,
        /// Measured runs of each side
        #[arg(long, default_value_t = 5)]
        runs: usize,
        /// Loops of our server and of the limit servers
        #[arg(long, default_value_t = 2)]
        loops: usize,
        /// Numbers of keys of group scale, from few to many; each needs about 300 bytes of memory and 600 of disk a key
        #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1000000,3000000,10000000",
              value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
        keys: Vec<u64>,
        /// Print only
        #[arg(long)]
        dry: bool,
        /// List the groups
        #[arg(long)]
        list: bool,
    },
    /// The bare epoll server: answers +OK to so many bytes; a line on its input makes it print its counts
    Limit {
        #[arg(long, default_value_t = 7001)]
        port: u16,
        /// Loops, each a thread with its own epoll
        #[arg(long, default_value_t = 2)]
        loops: usize,
        /// Bytes of every request
        #[arg(long, default_value_t = 144)]
        request_bytes: usize,
        /// Write each loop's batch to a file of its own, FILE.0 and so on (written before), and sync it before the replies leave
        #[arg(long, value_name = "FILE")]
        journal: Option<PathBuf>,
        /// Count requests by parsing RESP instead of dividing
        #[arg(long)]
        parse: bool,
        /// Clients send requests from the start, without a greeting
        #[arg(long)]
        no_greeting: bool,
        /// So many threads behind one poller, in place of loops
        #[arg(long, value_name = "THREADS")]
        pool: Option<usize>,
    },
    /// Groups of connections such as get:45:0-100000 or set:5:100000-200000@5000: closed loop, or so many a second
    Load {
        #[arg(long)]
        port: u16,
        /// SET keys 0..COUNT first
        #[arg(long, value_name = "COUNT", default_value_t = 0)]
        fill: u64,
        /// How long
        #[arg(long, default_value_t = 5)]
        seconds: u64,
        #[arg(value_name = "GROUP")]
        groups: Vec<Group>,
    },
    /// Write so many bytes to a prewritten file, sync, again
    SyncProbe {
        #[arg(long, default_value_t = 232)]
        bytes: usize,
        #[arg(long, default_value = ".")]
        folder: PathBuf,
        #[arg(long, default_value_t = 3)]
        seconds: u64,
    },
    /// Open connections that are used once and then idle, until the input ends
    Idle {
        #[arg(long)]
        port: u16,
        #[arg(long, default_value_t = 10_000)]
        count: usize,
        /// Report the resident memory of this process beside
        #[arg(long)]
        pid: Option<u32>,
    },
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if shows_help(&error) => error.exit(),
        Err(error) => {
            eprintln!("evenkeel: {}", one_line(&error));
            return ExitCode::from(2);
        }
    };
    let outcome = match arguments.task {
        Task::Experiment(experiment) => return bench::experiment::run(&experiment),
        Task::Suite { list: true, .. } => {
            for group in GROUPS {
                println!("{:<12}{}", group.name, group.about);
            }
            Ok(())
        }
        Task::Suite { names, quick, runs, loops, dry, keys, .. } => {
            let runs = if quick { 1 } else { runs };
            let scale_keys = if quick { keys.iter().map(|keys| keys / 10).collect() } else { keys };
            let context = Context { folder: PathBuf::from("target/bench"), loops, runs, quick, scale_keys };
            run_suite(&context, &names, dry || quick)
        }
        Task::Limit { port, loops, request_bytes, journal, parse, no_greeting, pool } => {
            serve_limit(port, &Limit { loops, request_bytes, journal, parse, greeting: !no_greeting, pool })
        }
        Task::Load { port, fill, seconds, groups } => load(port, fill, seconds, &groups),
        Task::SyncProbe { bytes, folder, seconds } => {
            sync_probe::run(&folder, bytes, Duration::from_secs(seconds))
                .map(|histogram| show("write + sync", &histogram))
        }
        Task::Idle { port, count, pid } => hold_idle(port, count, pid),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("evenkeel-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the error is a help text, which is also shown where a subcommand is missing.
fn shows_help(error: &clap::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// The text of an error of the arguments, without the usage behind it.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with("For more")).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

/// Runs the named groups, or all; goes on after a group that failed, and fails at the end.
fn run_suite(context: &Context, names: &[String], dry: bool) -> Result<(), Failure> {
    if let Some(name) = names.iter().find(|name| GROUPS.iter().all(|group| group.name != name.as_str())) {
        return Err(format!("no group `{name}`; --list shows them"));
    }
    idle::allow_many_files();
    std::fs::create_dir_all(&context.folder)
        .map_err(|error| format!("{}: {error}", context.folder.display()))?;
    let mut report = Report::open(Path::new("docs"))?;
    let mut failures = Vec::new();
    for group in GROUPS.iter().filter(|group| names.is_empty() || names.iter().any(|name| name == group.name))
    {
        eprintln!("{}: {}", group.name, group.about);
        match (group.run)(context) {
            Ok(figures) => {
                for figure in &figures {
                    println!("{}", bench::report::line(figure));
                }
                report.replace(figures, &context.folder);
                if !dry {
                    report.write()?;
                }
            }
            Err(failure) => failures.push(format!("{}: {failure}", group.name)),
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

fn serve_limit(port: u16, limit: &Limit) -> Result<(), Failure> {
    let listener = TcpListener::bind(("127.0.0.1", port)).map_err(|error| format!("port {port}: {error}"))?;
    let counts = Arc::new(Counts::default());
    let asked = Arc::clone(&counts);
    let answer = move || {
        for _ in std::io::stdin().lines().map_while(Result::ok) {
            let (requests, syncs) = (&asked.requests, &asked.syncs);
            println!("{} {}", requests.load(Ordering::Relaxed), syncs.load(Ordering::Relaxed));
        }
    };
    std::thread::Builder::new().name("counts".to_owned()).spawn(answer).map_err(|error| error.to_string())?;
    limit::serve(&listener, limit, &counts).map_err(|error| error.to_string())
}

fn load(port: u16, fill: u64, seconds: u64, groups: &[Group]) -> Result<(), Failure> {
    generator::fill(&Target::local(port), 0..fill, 100)?;
    if groups.is_empty() {
        return Ok(());
    }
    let histograms = generator::run(port, groups, Duration::from_secs(seconds))?;
    for (group, histogram) in groups.iter().zip(&histograms) {
        let name = format!("{} x {}", group.connections, if group.is_set { "SET" } else { "GET" });
        println!("{:.0}/s", histogram.len() as f64 / seconds as f64);
        show(&name, histogram);
    }
    Ok(())
}

fn hold_idle(port: u16, count: usize, pid: Option<u32>) -> Result<(), Failure> {
    idle::allow_many_files();
    let rss = || pid.map_or(Ok(0), process::rss_bytes);
    let before = rss()?;
    let connections = idle::open(port, count)?;
    println!("{} connections open, RSS {} -> {} bytes", connections.open_count(), before, rss()?);
    std::io::stdin().lines().for_each(drop);
    Ok(())
}

fn show(name: &str, histogram: &Histogram<u64>) {
    let us = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e3;
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(us);
    println!("{name}: {} times, p50 {p50:.1} us, p99 {p99:.1} us, p99.9 {p999:.1} us", histogram.len());
}
