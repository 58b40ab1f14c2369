//! What it costs to watch a server: instructions for each operation with metrics on and off, with a capture running and without.
//!
//! ```text
//!  instructions of an operation = (those of a server that served many - those of one that served few) / the difference
//! ```
//!
//! The server runs under callgrind, which counts the instructions of its whole process, of all threads; what it does to start and to
//! end is in both counts. Times mean nothing there. The kernel's part is not counted: a ratio of processor time would be nearer to 1.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::drive::{
    Action, Fleet, FleetOptions, Group, KeyForm, Keys, Limit, Phase, Pick, Target as Address, Work,
};
use crate::figure::{Figure, Series, Target};
use crate::servers::{Recipe, Server, sibling};

use super::Context;

/// What is done to the server.
#[derive(Clone, Copy, Debug)]
struct Case {
    engine: &'static str,
    operation: &'static str,
    depth: usize,
}

/// How it is watched meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    /// By nothing.
    Nothing,
    /// As it comes: by metrics.
    Metrics,
    /// By a capture, too.
    Capture,
}

/// Metrics on and off, a capture on and off.
pub(super) fn overheads(context: &Context) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for engine in ["noop", "log"] {
        for operation in ["SET", "GET"] {
            for depth in [1, 16] {
                figures.extend(Case { engine, operation, depth }.figures(context)?);
            }
        }
    }
    Ok(figures)
}

impl Case {
    fn figures(self, context: &Context) -> Result<[Figure; 2], Failure> {
        let mut series = [Vec::new(), Vec::new(), Vec::new()];
        // Counts of equal runs differ by some in a thousand: few are enough.
        for _ in 0..context.runs.min(RUNS_MAX) {
            for (watch, values) in
                [Watch::Nothing, Watch::Metrics, Watch::Capture].into_iter().zip(&mut series)
            {
                values.push(self.instructions(context, watch)?);
            }
        }
        let [nothing, metrics, capture] = series;
        let figure = |what: &str, most: f64, on: Vec<f64>, off: Vec<f64>| {
            let Self { engine, operation, depth } = self;
            let id = format!("overheads/{what}-{}-{engine}-p{depth}", operation.to_lowercase());
            let title = format!("{operation}, {what} on / off: engine {engine}, pipeline {depth}");
            let (on, off) =
                (Series::new(&format!("{what} on"), on), Series::new(&format!("{what} off"), off));
            Figure::new(&id, &title, Some(Target::AtMost(most)), "instructions", on, Some(off))
                .by(self.commands(context))
        };
        Ok([figure("metrics", 1.02, metrics.clone(), nothing), figure("capture", 1.03, capture, metrics)])
    }

    /// Instructions of one operation.
    fn instructions(self, context: &Context, watch: Watch) -> Result<f64, Failure> {
        let (few, many) = self.amounts(context);
        let collected = self.collected(context, watch, many)? - self.collected(context, watch, few)?;
        Ok(collected / (many - few) as f64)
    }

    fn amounts(self, context: &Context) -> (u64, u64) {
        let many = context.amount(if self.depth == 1 { 60_000 } else { 160_000 });
        (many / 4, many)
    }

    /// Instructions of a server from its start to its end, with so many operations between.
    fn collected(self, context: &Context, watch: Watch, requests: u64) -> Result<f64, Failure> {
        let server = Server::start(&self.recipe(watch), &context.folder)?;
        server.client()?.fill(0, KEYS, VALUE_BYTES)?;
        let watcher = match watch {
            Watch::Capture => Some(Capturing::start(&server)?),
            Watch::Nothing | Watch::Metrics => None,
        };
        let options =
            FleetOptions { connections: CLIENTS, loops: 1, connect_timeout: PATIENCE, from: Vec::new() };
        let mut fleet = Fleet::open(&Address::local(server.port()), &options)?;
        let outcome = fleet.run(&self.phase(requests), &mut |_| {})?;
        let failures = outcome.total().tally.failures;
        if failures.count() > 0 {
            return Err(format!("{self:?}: {}", failures.first.unwrap_or_default()));
        }
        drop(fleet);
        watcher.map_or(Ok(()), |watcher| watcher.finish(requests))?;
        let said = server.finish()?;
        let count =
            said.lines().find_map(|line| line.split_once("Collected :").map(|(_, count)| count.trim()));
        count
            .and_then(|count| count.parse().ok())
            .ok_or_else(|| format!("callgrind did not say what it counted: {said}"))
    }

    fn recipe(self, watch: Watch) -> Recipe {
        let server = Recipe::evenkeel(self.engine, "always", 1);
        let server =
            if watch == Watch::Nothing { server.with(&["--metrics-latency=false"]) } else { server };
        server.under("valgrind", &["--tool=callgrind", "--callgrind-out-file=/dev/null"])
    }

    fn phase(self, requests: u64) -> Phase {
        let action = if self.operation == "GET" { Action::Read } else { Action::Write };
        let keys = Keys { first: 0, count: KEYS, pick: Pick::Random, form: KeyForm::Benchmark };
        let work =
            Work { action, keys, value_bytes: VALUE_BYTES, value_count: 1, verify: false, percent_cached: 0 };
        let (connections, limit) = (CLIENTS, Limit::Requests(requests));
        let group = Group { work, connections, depth: self.depth, limit, per_second: None };
        Phase { groups: vec![group], request_timeout: PATIENCE, interval: Duration::from_secs(1) }
    }

    fn commands(self, context: &Context) -> [String; 4] {
        let (few, many) = self.amounts(context);
        [
            self.recipe(Watch::Metrics).command(),
            self.recipe(Watch::Nothing).command(),
            "evenkeel capture FILE --url redis://127.0.0.1:PORT".to_owned(),
            format!(
                "redis-benchmark -p PORT -t {} -d {VALUE_BYTES} -r {KEYS} -c {CLIENTS} -P {} -n {few}   # and {many}",
                self.operation.to_lowercase(),
                self.depth
            ),
        ]
    }
}

/// `evenkeel capture` as it runs.
struct Capturing {
    child: Child,
    file: PathBuf,
}

impl Capturing {
    fn start(server: &Server) -> Result<Self, Failure> {
        let file = server.folder().with_extension("capture");
        let url = format!("redis://127.0.0.1:{}", server.port());
        let mut command = Command::new(sibling("evenkeel"));
        command.arg("capture").arg(&file).args(["--url", &url, "--bytes-max", "1GiB"]).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| format!("evenkeel capture: {error}"))?;
        let capturing = Self { child, file };
        let started = Instant::now();
        while std::fs::metadata(&capturing.file).map_or(0, |file| file.len()) == 0 {
            if started.elapsed() > PATIENCE {
                return Err("evenkeel capture did not begin".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(capturing)
    }

    /// Ends it; a capture that lacks a request was cheaper than one that does not.
    fn finish(mut self, requests: u64) -> Result<(), Failure> {
        let id = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let told = id.map(|id| rustix::process::kill_process(id, rustix::process::Signal::INT));
        told.transpose().map_err(|error| error.to_string())?;
        let status = self.child.wait().map_err(|error| error.to_string())?;
        let file = std::fs::read(&self.file).map_err(|error| error.to_string())?;
        let end = capture::decode(&file).map_err(|error| error.to_string())?.end;
        match end {
            Some(end) if status.success() && end.records >= requests && end.dropped == 0 => Ok(()),
            _ => Err(format!("a capture of {requests} requests ended as {end:?}, {status}")),
        }
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        std::fs::remove_file(&self.file).ok();
    }
}

const RUNS_MAX: usize = 3;
const CLIENTS: usize = 10;
const KEYS: u64 = 10_000;
const VALUE_BYTES: usize = 100;
/// So long anything may take, at a fiftieth of its speed.
const PATIENCE: Duration = Duration::from_secs(120);
