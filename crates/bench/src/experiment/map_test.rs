//! Hazelcast's map test of 2015: a few threads, each a connection, get (and put) strings of a map; a run on a fresh server each,
//! and how far apart the runs lie. The report's figures are of 40 threads, 20-character keys, 100-character values, 10,000
//! keys, 1,000 values, no puts, 5 minutes and 10 runs.
//!
//! A thread is one request under way. Clients either give each thread a connection of its own, or let all share one, as Hazelcast's
//! does: `--connections` chooses.
//!
//! The latency probe is a connection of its own that asks at fixed times (an open loop): what a client sees that does not
//! wait for its turn to ask.
//!
//! Hazelcast itself takes part over its own client ([`super::hazelcast`]), which is told the same parameters.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::WORKER;
use super::arguments::{Common, Numbers, duration, some_time};
use super::hazelcast;
use super::host::Host;
use super::measure::{Measured, Spread, object, rounded};
use super::progress::Progress;
use super::report::{Line, Report};
use crate::drive::{Action, Drivers, Group, KeyForm, Keys, Limit, Outcome, Phase, Pick, Work};
use crate::{Failure, Named};

#[derive(Debug, Args)]
pub struct MapTest {
    #[command(flatten)]
    pub(super) common: Common,
    /// Threads of the report, each with one request in flight (or --pipeline)
    #[arg(long, value_name = "N", default_value = "40")]
    threads: Numbers,
    /// Connections that the threads share (Hazelcast's client has one); without it each thread has its own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    connections: Option<u16>,
    /// Characters of a key
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    key_length: u32,
    /// Characters of a value
    #[arg(long, value_name = "N", default_value = "100")]
    value_length: Numbers,
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    key_count: u64,
    /// Number of different values for puts
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    value_count: u64,
    /// Share of puts, 0.0 to 1.0; the others are gets
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    put_probability: f64,
    /// Which keys a thread uses
    #[arg(long, value_name = "WHICH", default_value = "random")]
    key_locality: Locality,
    /// Duration of a run
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = some_time)]
    duration: Duration,
    /// Duration of a run, in seconds
    #[arg(long, value_name = "N", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Runs, each on a fresh server
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Requests a second of the latency probe; 0 for none
    #[arg(long, value_name = "N", default_value_t = 100)]
    probe_rate: u32,
    /// Load before each run that does not count, for servers in a JVM, which start slowly
    #[arg(long, value_name = "TIME", default_value = "40s", value_parser = duration)]
    jvm_warm_up: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Locality {
    /// Any key
    Random,
    /// Each thread uses its own part of the keys
    Local,
    /// All threads use one key
    Single,
}

/// One run on a fresh server.
struct Run {
    threads: usize,
    value_bytes: usize,
    map: Measured,
    probe: Option<Measured>,
    cpu_us: Option<f64>,
}

impl Run {
    /// `cpu_seconds` are the server's.
    fn of(
        threads: usize,
        value_bytes: usize,
        mut map: Measured,
        probe: Option<Measured>,
        cpu_seconds: Option<f64>,
    ) -> Self {
        let cpu_us = cpu_seconds.map(|seconds| seconds * 1e6 / map.tally.answered.max(1) as f64);
        if let Some(probe) = &probe {
            map.add_failures(&probe.tally.failures);
            map.lost += probe.lost;
        }
        Self { threads, value_bytes, map, probe, cpu_us }
    }

    /// Whether the two differ in nothing but time.
    fn is_alike(&self, other: &Self) -> bool {
        (self.threads, self.value_bytes) == (other.threads, other.value_bytes)
    }
}

impl MapTest {
    /// Runs on all servers, by turns.
    ///
    /// # Errors
    /// A server does not start, or cannot be reached.
    pub(super) fn run(&self) -> Result<Vec<Report>, Failure> {
        let Common { pipeline, rate, processes, .. } = self.common;
        if self.common.names("hazelcast") && (pipeline > 1 || rate.is_some() || processes > 1) {
            return Err("hazelcast's client takes neither --pipeline, --rate nor --processes".to_owned());
        }
        self.threads.0.iter().try_for_each(|threads| self.check_sharing(*threads))?;
        let hosts = Host::all(&self.common)?;
        let mut cases = Vec::new();
        for threads in &self.threads.0 {
            cases.extend(self.value_length.0.iter().map(|bytes| (*threads, *bytes)));
        }
        let progress = Progress::new(hosts.len() * cases.len() * self.runs as usize);
        let mut runs: Vec<Vec<Run>> = hosts.iter().map(|_| Vec::new()).collect();
        for (threads, value_bytes) in cases {
            for _ in 0..self.runs {
                for (host, runs) in hosts.iter().zip(&mut runs) {
                    runs.push(self.run_once(host, threads, value_bytes, &progress)?);
                    progress.step();
                }
            }
        }
        Ok(hosts.iter().zip(&runs).map(|(host, runs)| self.report(host, runs)).collect())
    }

    /// Whether `threads` can share the connections: each has as many, and no key belongs to a thread.
    fn check_sharing(&self, threads: usize) -> Result<(), Failure> {
        let connections = self.connections_of(threads);
        if !threads.is_multiple_of(connections) {
            return Err(format!("{threads} --threads cannot share {connections} --connections evenly"));
        }
        if self.key_locality == Locality::Local && connections != threads {
            return Err(
                "--key-locality local needs a connection for each thread, no --connections".to_owned()
            );
        }
        Ok(())
    }

    fn connections_of(&self, threads: usize) -> usize {
        self.connections.map_or(threads, usize::from)
    }

    fn run_once(
        &self,
        host: &Host,
        threads: usize,
        value_bytes: usize,
        progress: &Progress,
    ) -> Result<Run, Failure> {
        if host.has_own_client() {
            self.drive_client(host, threads, value_bytes, progress)
        } else {
            self.drive(host, threads, value_bytes, progress)
        }
    }

    /// Has our engine load the server.
    fn drive(
        &self,
        host: &Host,
        threads: usize,
        value_bytes: usize,
        progress: &Progress,
    ) -> Result<Run, Failure> {
        let connections = self.connections_of(threads);
        let running = host.fresh(connections + 1)?;
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let processes = usize::from(self.common.processes);
        let probes = usize::from(self.probe_rate > 0) * processes;
        let options = self.common.fleet(connections + probes);
        let mut drivers = Drivers::open(&running.target, &options, processes, &program, &WORKER)?;
        let filled = drivers.run(&self.fill(threads, value_bytes), &mut |_| {})?.total().tally;
        let before = running.cpu_seconds();
        let what = format!("{}: {threads} threads", host.label);
        let phase = self.phase(threads, value_bytes, probes);
        let outcome = drivers.run(&phase, &mut |rows| progress.rows(&what, &rows[..1]))?;
        let cpu = before.zip(running.cpu_seconds()).map(|(before, after)| after - before);
        let measured = |group: usize| {
            let groups = outcome.groups.get(group).cloned().into_iter().collect();
            let outcome = Outcome { groups, took: outcome.took };
            let lost = if running.keeps { outcome.total().tally.missing } else { 0 };
            Measured::of(&outcome, lost)
        };
        let mut map = measured(0);
        map.add_failures(drivers.failures());
        map.add_failures(&filled.failures);
        let probe = (probes > 0).then(|| measured(1));
        Ok(Run::of(threads, value_bytes, map, probe, cpu))
    }

    /// Has a client of the server's own load it.
    fn drive_client(
        &self,
        host: &Host,
        threads: usize,
        value_bytes: usize,
        progress: &Progress,
    ) -> Result<Run, Failure> {
        let took = self.jvm_warm_up + self.length();
        progress.say(format!("{}: {threads} threads, {took:.0?} with the warm-up", host.label));
        let running = host.fresh(threads + 1)?;
        let words = [
            ("threads", threads.to_string()),
            ("key-length", self.key_length.to_string()),
            ("value-length", value_bytes.to_string()),
            ("key-count", self.key_count.to_string()),
            ("value-count", self.value_count.to_string()),
            ("put-probability", self.put_probability.to_string()),
            ("key-locality", self.key_locality.name()),
            ("warm-up-ms", self.jvm_warm_up.as_millis().to_string()),
            ("duration-ms", self.length().as_millis().to_string()),
            ("interval-ms", self.common.interval.as_millis().to_string()),
            ("probe-rate", self.probe_rate.to_string()),
            ("connect-timeout-ms", self.common.connect_timeout.as_millis().to_string()),
            ("request-timeout-ms", self.common.request_timeout.as_millis().to_string()),
        ];
        let words = words.map(|(name, value)| format!("--{name}={value}"));
        let hazelcast::Driven { map, probe, cpu_seconds } = hazelcast::drive(&running, &words)?;
        Ok(Run::of(threads, value_bytes, map, (self.probe_rate > 0).then_some(probe), cpu_seconds))
    }

    fn work(&self, action: Action, value_bytes: usize, pick: Pick) -> Work {
        let form = KeyForm::Padded(self.key_length as usize);
        let keys = Keys { first: 0, count: self.key_count, pick, form };
        Work { value_count: self.value_count, ..Work::new(action, keys, value_bytes) }
    }

    fn fill(&self, threads: usize, value_bytes: usize) -> Phase {
        let group = Group {
            work: self.work(Action::Write, value_bytes, Pick::Sequence),
            connections: self.connections_of(threads),
            depth: 16,
            limit: Limit::Requests(self.key_count),
            per_second: None,
        };
        Phase { groups: vec![group], ..self.phase(threads, value_bytes, 0) }
    }

    fn phase(&self, threads: usize, value_bytes: usize, probes: usize) -> Phase {
        let pick = match self.key_locality {
            Locality::Random => Pick::Random,
            Locality::Local => Pick::Local,
            Locality::Single => Pick::Single,
        };
        let limit = Limit::For(self.length());
        let map = Group {
            work: self.work(Action::Map(self.put_probability), value_bytes, pick),
            connections: self.connections_of(threads),
            depth: usize::from(self.common.pipeline) * (threads / self.connections_of(threads)),
            limit,
            per_second: self.common.rate,
        };
        let probe = Group {
            work: self.work(Action::Read, value_bytes, Pick::Random),
            connections: probes,
            depth: 1,
            limit,
            per_second: Some(f64::from(self.probe_rate)),
        };
        let groups = [map].into_iter().chain((probes > 0).then_some(probe)).collect();
        let Common { request_timeout, interval, .. } = self.common;
        Phase { groups, request_timeout, interval }
    }

    fn length(&self) -> Duration {
        self.seconds.map_or(self.duration, Duration::from_secs)
    }

    fn report(&self, host: &Host, runs: &[Run]) -> Report {
        let mut lines: Vec<Line> = Vec::new();
        for run in runs {
            let what = format!("{} threads, {} B values", run.threads, run.value_bytes);
            if lines.last().is_none_or(|line| line.what != what) {
                let command = if self.put_probability > 0.0 { "GET+SET" } else { "GET" }.to_owned();
                lines.push(Line { what, command, ..Line::default() });
            }
            if let Some(line) = lines.last_mut() {
                line.runs.push(run.map.clone());
                line.note = mean_cpu(runs.iter().filter(|other| other.is_alike(run)))
                    .map_or(String::new(), |us| format!("server CPU of an operation: {us:.1} us"));
            }
        }
        let settings = json!({
            "threads": self.threads.0,
            "connections": self.connections,
            "key_length": self.key_length,
            "value_length": self.value_length.0,
            "key_count": self.key_count,
            "value_count": self.value_count,
            "put_probability": self.put_probability,
            "key_locality": self.key_locality.name(),
            "duration_ms": self.length().as_millis() as u64,
            "runs": self.runs,
            "probe_rate": self.probe_rate,
            "jvm_warm_up_ms": host.has_own_client().then_some(self.jvm_warm_up.as_millis() as u64),
        });
        let mut all = self.common.settings();
        all.extend(object(settings));
        Report {
            experiment: "map-test",
            server: host.label.clone(),
            command: host.command(),
            settings: all,
            fields: fields(runs),
            lines,
        }
    }
}

fn fields(runs: &[Run]) -> Map<String, Value> {
    let spread = Spread::of_rates(runs.iter().map(|run| &run.map));
    let mut probe = Measured::default();
    runs.iter().filter_map(|run| run.probe.as_ref()).for_each(|one| probe.add(one));
    let each = runs.iter().map(|run| {
        let mut fields = run.map.json();
        fields.extend(object(json!({
            "threads": run.threads,
            "value_length": run.value_bytes,
            "probe_latency_us": run.probe.as_ref().map(Measured::latency_json),
            "server_cpu_us_per_operation": run.cpu_us.map(rounded),
        })));
        fields
    });
    let fields = json!({
        "runs": each.collect::<Vec<_>>(),
        "min": spread.map(|spread| rounded(spread.min)),
        "max": spread.map(|spread| rounded(spread.max)),
        "mean": spread.map(|spread| rounded(spread.mean)),
        "spread_percent": spread.map(|spread| rounded(spread.percent())),
        "probe_latency_us": probe.latency_json(),
        "server_cpu_us_per_operation": mean_cpu(runs.iter()).map(rounded),
    });
    object(fields)
}

/// Mean processor time of an operation, in microseconds, of the servers that were started here.
fn mean_cpu<'a>(runs: impl Iterator<Item = &'a Run>) -> Option<f64> {
    let all: Vec<f64> = runs.filter_map(|run| run.cpu_us).collect();
    Spread::of(&all).map(|spread| spread.mean)
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("must be from 0.0 to 1.0".to_owned()) }
}
