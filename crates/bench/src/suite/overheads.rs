//! What it costs to watch: metrics and a capture, each beside the same server without it.
//!
//! One server serves all runs of a kind, which differ in nothing else, and takes turns: as it is, with a client that captures, without
//! `metrics.latency`; each after one that does not count. Processor time of the server is compared, which bears better than
//! rates where load and server share the cores. A capture that dropped records cost too little: that is an error here.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::client::Client;
use crate::drive::{Action, Fleet, FleetOptions, PATIENCE, Pick, Target as Address};
use crate::figure::{Figure, Series, Target};
use crate::process::threads_cpu_seconds;
use crate::servers::{Recipe, Server, sibling};

use super::clients::{KEYS, closed_loop};
use super::context::Context;

/// Processor time of SET and GET, one by one and in pipelines, watched and not.
pub(super) fn overheads(context: &Context) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for (name, action) in [("SET", Action::Write), ("GET", Action::Read)] {
        for (clients, depth, requests) in [(100, 1, 8_000), (50, 16, 50_000)] {
            let requests = context.amount(requests);
            let load = Load { name, action: action.clone(), clients, depth, requests };
            figures.extend(load.figures(context)?);
        }
    }
    Ok(figures)
}

/// Runs, each with the mean of the plain ones before and after it: what drifts meanwhile moves both sides alike.
#[derive(Default)]
struct Pairs {
    other: Vec<f64>,
    plain: Vec<f64>,
}

impl Pairs {
    fn push(&mut self, other: f64, [before, after]: [f64; 2]) {
        self.other.push(other);
        self.plain.push(f64::midpoint(before, after));
    }
}

/// Requests of one kind.
struct Load {
    name: &'static str,
    action: Action,
    clients: usize,
    /// Requests under way on each connection.
    depth: usize,
    requests: u64,
}

impl Load {
    fn figures(&self, context: &Context) -> Result<[Figure; 2], Failure> {
        // One loop: two of them do not always share the work alike.
        let recipe = Recipe::evenkeel("log", "always", 1);
        let server = Server::start(&recipe, &context.folder)?;
        let mut fleet = Fleet::open(&Address::local(server.port()), &FleetOptions::new(self.clients))?;
        self.run(&mut fleet, Action::Write, Pick::Sequence, KEYS)?;
        let (mut captured, mut unmetered) = (Pairs::default(), Pairs::default());
        // Very many short runs: what disturbs this machine lasts for seconds and moves a run by a third, and a hundredth is looked
        // for. Each stands between two plain ones and is compared with both. The first ones do not count.
        self.cpu_us(&server, &mut fleet)?;
        let mut before = self.cpu_us(&server, &mut fleet)?;
        for _ in 0..context.runs * 40 {
            let capture = Capture::start(&server)?;
            let us = self.cpu_us(&server, &mut fleet)?;
            capture.end(&server)?;
            let between = self.cpu_us(&server, &mut fleet)?;
            captured.push(us, [before, between]);
            set_metrics(&server, "false")?;
            let us = self.cpu_us(&server, &mut fleet)?;
            set_metrics(&server, "true")?;
            before = self.cpu_us(&server, &mut fleet)?;
            unmetered.push(us, [between, before]);
        }
        let Self { name, clients, depth, .. } = self;
        let figure = |what: &str, most: f64, with: (&str, &[f64]), without: (&str, &[f64])| {
            let id = format!("overheads/{what}-{}-p{depth}", name.to_lowercase());
            let title = format!(
                "server CPU of a {name}, {clients} clients, pipeline {depth}, engine log: {} / {}",
                with.0, without.0
            );
            let series = |(label, values): (&str, &[f64])| Series::new(label, values.to_vec());
            let (with, without) = (series(with), Some(series(without)));
            let figure = Figure::new(&id, &title, Some(Target::AtMost(most)), "us", with, without);
            figure.by([recipe.command(), self.command(), COMMANDS[usize::from(what == "metrics")].to_owned()])
        };
        Ok([
            figure("capture", 1.03, ("captured", &captured.other), ("not captured", &captured.plain)),
            figure("metrics", 1.02, ("metrics", &unmetered.plain), ("none", &unmetered.other)),
        ])
    }

    /// Processor time of the server for each request of a run, in microseconds.
    fn cpu_us(&self, server: &Server, fleet: &mut Fleet) -> Result<f64, Failure> {
        // To start a program, as before a captured run, leaves nothing of the server in the caches, and a new connection has a small
        // window.
        self.run(fleet, self.action.clone(), Pick::Random, self.requests)?;
        let before = threads_cpu_seconds(server.id())?;
        self.run(fleet, self.action.clone(), Pick::Random, self.requests)?;
        Ok((threads_cpu_seconds(server.id())? - before) * 1e6 / self.requests as f64)
    }

    fn run(&self, fleet: &mut Fleet, action: Action, pick: Pick, requests: u64) -> Result<(), Failure> {
        let group = closed_loop(action, pick, 100, self.clients, self.depth, requests);
        let ran = fleet.measure(vec![group], Duration::from_secs(1));
        ran.map(drop).map_err(|why| format!("{}: {why}", self.name))
    }

    /// The same by hand, but for the length of the keys.
    fn command(&self) -> String {
        let operations = if self.action == Action::Write { "write" } else { "read" };
        format!(
            "evenkeel bench remote-test --url redis://127.0.0.1:PORT --operations {operations} --clients {} --pipeline {} --value-size 100 --requests {} --iterations 1",
            self.clients, self.depth, self.requests
        )
    }
}

/// `evenkeel capture`, which runs.
struct Capture(Child);

impl Capture {
    /// Starts it, and waits until it gets what is asked.
    fn start(server: &Server) -> Result<Self, Failure> {
        let file = server.folder().join("captured");
        std::fs::remove_file(&file).ok();
        let child = Command::new(sibling("evenkeel"))
            .arg("capture")
            .arg(&file)
            .args(["--url", &format!("redis://127.0.0.1:{}", server.port()), "--bytes-max", "1GiB"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start evenkeel: {error}"))?;
        let mut capture = Self(child);
        let has_ended = || capture.0.try_wait().is_ok_and(|ended| ended.is_some());
        await_running(&mut server.client()?, 1, has_ended)?;
        Ok(capture)
    }

    /// Ends it, which must have gone on until now.
    fn end(self, server: &Server) -> Result<(), Failure> {
        let mut client = server.client()?;
        let (is_running, dropped) =
            (client.info("capture", "capture_running")?, client.info("capture", "capture_dropped")?);
        drop(self);
        await_running(&mut client, 0, || false)?;
        if is_running == 0 || dropped > 0 {
            return Err(format!("the capture ended early or dropped requests ({dropped})"));
        }
        Ok(())
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Waits until so many captures run, unless it `cannot` come to that.
fn await_running(client: &mut Client, count: u64, mut cannot: impl FnMut() -> bool) -> Result<(), Failure> {
    let started = Instant::now();
    while client.info("capture", "capture_running")? != count {
        if started.elapsed() > PATIENCE || cannot() {
            return Err(format!("there are not {count} captures after {:.1?}", started.elapsed()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn set_metrics(server: &Server, on: &str) -> Result<(), Failure> {
    let done = server.client()?.call(&["CONFIG", "SET", "metrics.latency", on])?;
    if done == resp::Value::Simple("OK".into()) { Ok(()) } else { Err(format!("metrics.latency: {done:?}")) }
}

const COMMANDS: [&str; 2] = [
    "evenkeel capture FILE --url redis://127.0.0.1:PORT",
    "redis-cli -p PORT CONFIG SET metrics.latency false",
];
