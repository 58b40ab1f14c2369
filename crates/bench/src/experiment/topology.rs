//! A topology in this process: acknowledged messages a second by size, with acknowledgements and without.
//!
//! The test is Storm's speed of light: its options have their names and meanings, its small shape is the default. A "server" of the report
//! is a way to acknowledge, in this process or in Storm's local cluster, and a line is a size. Runs of all alternate.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::arguments::{Numbers, Shown, duration, some_time};
use super::measure::{Measured, object, rounded};
use super::progress::Progress;
use super::report::{Line, Report};
use crate::Failure;
use crate::drive::Tally;
use crate::figure;
use crate::topology::{self, Dealt, Outcome, Shape};
use crate::transport::Carrier;

#[derive(Debug, Args)]
pub struct Topology {
    #[command(flatten)]
    pub(super) shown: Shown,
    /// Tasks of the spout
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    spouts: u32,
    /// Tasks of each level of bolts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    bolts: u32,
    /// Levels of bolts, each of which reads the one before
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=50))]
    levels: u32,
    /// Whether tuples are acknowledged: on, off, or on,off, whose runs alternate
    #[arg(long, value_name = "WAY,...", value_delimiter = ',', default_value = "on")]
    acking: Vec<Acking>,
    /// The same shape beside it, whose runs alternate: storm, in its local cluster, with the largest number of workers
    #[arg(long, value_name = "NAME", value_enum)]
    against: Option<Against>,
    /// Bytes of a message
    #[arg(long, value_name = "N,...", default_value = "16,100,1024,4096")]
    sizes: Numbers,
    /// Unfinished tuples of each spout task
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_spout_pending: u32,
    /// Topologies of this shape at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    topologies: u32,
    /// Workers that share the tasks, in this process; several numbers alternate
    #[arg(long, value_name = "N,...", default_value = "1")]
    workers: Numbers,
    /// What carries tuples between workers, by turns: tcp, tls, zeromq (in a build with that feature) or local
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "tcp")]
    transport: Vec<Carrier>,
    /// Threads of the transport of each worker; several numbers alternate
    #[arg(long, value_name = "N,...", default_value = "1")]
    transport_threads: Numbers,
    /// Threads of each worker, which share its tasks; 0: one for each processor
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    threads: u16,
    /// Duration of a run
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = some_time)]
    duration: Duration,
    /// Time between two polls of a run: the lowest and the highest rate between two are told, too
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = some_time)]
    poll: Duration,
    /// Tasks of Storm that acknowledge, with --against storm; 0: one for each worker. Here spouts do that themselves
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    ackers: u32,
    /// Time before each run that does not count
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = duration)]
    warm_up: Duration,
    /// The same for storm's JVM, if that is longer
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration)]
    jvm_warm_up: Duration,
    /// Runs of each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Acking {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Against {
    Storm,
}

/// What runs beside each other.
#[derive(Clone, Copy, Debug)]
struct System {
    acking: Acking,
    dealt: Dealt,
    is_storm: bool,
}

impl Topology {
    /// Measures all, by turns.
    ///
    /// # Errors
    /// The system refuses threads, or a tuple failed.
    pub(super) fn run(&self) -> Result<Vec<Report>, Failure> {
        if let Some(too_large) = self.sizes.0.iter().find(|size| **size > SIZE_BYTES_MAX) {
            return Err(format!("--sizes {too_large}: a message has {SIZE_BYTES_MAX} B at most"));
        }
        let too_many = |numbers: &Numbers, most| numbers.0.iter().copied().find(|number| *number > most);
        if let Some(workers) = too_many(&self.workers, WORKERS_MAX) {
            return Err(format!("--workers {workers}: {WORKERS_MAX} at most"));
        }
        if let Some(threads) = too_many(&self.transport_threads, NODE_THREADS_MAX) {
            return Err(format!("--transport-threads {threads}: {NODE_THREADS_MAX} at most"));
        }
        let systems = self.systems();
        let progress = Progress::new(self.sizes.0.len() * systems.len() * self.runs as usize);
        let mut ran = vec![vec![Vec::new(); self.sizes.0.len()]; systems.len()];
        for (index, size_bytes) in self.sizes.0.iter().enumerate() {
            for _ in 0..self.runs {
                for (system, ran) in systems.iter().zip(&mut ran) {
                    progress.say(format!("{}, {size_bytes} B", system.words()));
                    ran[index].push(self.run_once(*system, *size_bytes)?);
                    progress.step();
                }
            }
        }
        Ok(systems.iter().zip(&ran).map(|(system, ran)| self.report(*system, ran)).collect())
    }

    fn systems(&self) -> Vec<System> {
        let mut systems = Vec::new();
        for acking in self.acking.iter().copied() {
            let own = self.dealt().map(|dealt| System { acking, dealt, is_storm: false });
            systems.extend(own);
        }
        let workers = self.workers.0.iter().max().map_or(1, |workers| *workers as u32);
        for acking in self.acking.iter().copied().filter(|_| self.against.is_some()) {
            systems.push(System { acking, dealt: Dealt { workers, ..ONE_WORKER }, is_storm: true });
        }
        systems
    }

    /// All ways to deal a topology; with one worker nothing is carried.
    fn dealt(&self) -> impl Iterator<Item = Dealt> {
        self.workers.0.iter().flat_map(|workers| {
            let of = |carrier: &Carrier, threads: &usize| Dealt {
                workers: *workers as u32,
                carrier: *carrier,
                node_threads: *threads,
            };
            let threads = &self.transport_threads.0;
            let all = self.transport.iter().flat_map(|carrier| threads.iter().map(move |it| of(carrier, it)));
            if *workers == 1 { vec![ONE_WORKER] } else { all.collect() }
        })
    }

    fn run_once(&self, system: System, size_bytes: usize) -> Result<Outcome, Failure> {
        let shape = self.shape(system, size_bytes);
        if !system.is_storm {
            return topology::run(&shape);
        }
        topology::run_storm(&Shape { warm_up: shape.warm_up.max(self.jvm_warm_up), ..shape })
    }

    fn shape(&self, system: System, size_bytes: usize) -> Shape {
        Shape {
            spouts: self.spouts,
            bolts: self.bolts,
            levels: self.levels,
            acks: matches!(system.acking, Acking::On),
            size_bytes,
            max_spout_pending: self.max_spout_pending,
            threads: self.threads.into(),
            topologies: self.topologies,
            dealt: system.dealt,
            warm_up: self.warm_up,
            duration: self.duration,
            poll: self.poll,
            storm_ackers: self.ackers,
        }
    }

    fn report(&self, system: System, ran: &[Vec<Outcome>]) -> Report {
        let settings = json!({
            "spouts": self.spouts,
            "bolts": self.bolts,
            "levels": self.levels,
            "max_spout_pending": self.max_spout_pending,
            "threads": self.threads,
            "topologies": self.topologies,
            "workers": system.dealt.workers,
            "duration_ms": self.duration.as_millis() as u64,
            "poll_ms": self.poll.as_millis() as u64,
            "ackers": self.ackers,
            "warm_up_ms": self.warm_up.as_millis() as u64,
            "jvm_warm_up_ms": self.jvm_warm_up.as_millis() as u64,
            "runs": self.runs,
        });
        let by_size = || self.sizes.0.iter().zip(ran);
        let figures: Vec<Value> = by_size().map(|(size, ran)| figure_json(*size, ran)).collect();
        let mut fields = Map::new();
        fields.insert("figures".to_owned(), json!(figures));
        Report {
            experiment: "topology",
            server: system.words(),
            command: None,
            settings: object(settings),
            fields,
            lines: by_size().map(|(size, ran)| line(*size, ran)).collect(),
        }
    }
}

impl System {
    fn words(self) -> String {
        let words = self.acking.words();
        let Dealt { workers, carrier, node_threads } = self.dealt;
        match (self.is_storm, workers, node_threads) {
            (true, 1, _) => format!("storm, {words}"),
            (true, ..) => format!("storm, {words}, {workers} workers"),
            (false, 1, _) => words.to_owned(),
            (false, _, 1) => format!("{words}, {workers} workers over {carrier}"),
            _ => format!("{words}, {workers} workers over {carrier} with {node_threads} threads each"),
        }
    }
}

impl Acking {
    fn words(self) -> &'static str {
        match self {
            Self::On => "acking on",
            Self::Off => "acking off",
        }
    }
}

fn line(size_bytes: usize, ran: &[Outcome]) -> Line {
    let (rate, cpu_ns) =
        (median(ran, |outcome| outcome.went.per_second()), median(ran, |outcome| outcome.went.cpu_ns_each()));
    let (p50, p99) =
        (median(ran, |outcome| us(outcome.complete.p50)), median(ran, |outcome| us(outcome.complete.p99)));
    Line {
        what: format!("{size_bytes} B"),
        command: format!("EMIT {size_bytes}"),
        runs: ran.iter().map(measured).collect(),
        note: format!(
            "median {rate:.0} messages/s; {cpu_ns:.0} ns of processor time a message; complete in {p50:.0} us, p99 {p99:.0} us{}",
            polled(ran)
        ),
        ..Line::default()
    }
}

/// The lowest and the highest rate between two polls, if a run has several.
fn polled(ran: &[Outcome]) -> String {
    if ran.iter().all(|outcome| outcome.polled.len() < 2) {
        return String::new();
    }
    let rates = || ran.iter().flat_map(|outcome| &outcome.polled).copied();
    let (lowest, highest) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    format!("; between two polls {lowest:.0} to {highest:.0} messages/s")
}

fn figure_json(size_bytes: usize, ran: &[Outcome]) -> Value {
    json!({
        "size_bytes": size_bytes,
        "messages_per_second": rounded(median(ran, |outcome| outcome.went.per_second())),
        "cpu_ns_per_message": rounded(median(ran, |outcome| outcome.went.cpu_ns_each())),
        "rate_runs": ran.iter().map(|ran| rounded(ran.went.per_second())).collect::<Vec<f64>>(),
        "rate_polls": ran.iter().map(|outcome| outcome.polled.iter().copied().map(rounded).collect()).collect::<Vec<Vec<f64>>>(),
        "complete_us": {
            "p50": rounded(median(ran, |outcome| us(outcome.complete.p50))),
            "p99": rounded(median(ran, |outcome| us(outcome.complete.p99))),
        },
    })
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn median(ran: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> f64 {
    figure::median(&ran.iter().map(figure).collect::<Vec<f64>>())
}

fn measured(outcome: &Outcome) -> Measured {
    let tally = Tally { answered: outcome.went.messages, ..Tally::default() };
    Measured { tally, took: outcome.went.took, ..Measured::default() }
}

const ONE_WORKER: Dealt = Dealt { workers: 1, carrier: Carrier::Local, node_threads: 1 };
const WORKERS_MAX: usize = 16;
const NODE_THREADS_MAX: usize = 64;
/// A tuple must fit into a channel.
const SIZE_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Quantiles;
    use crate::transport::Went;

    fn small() -> Topology {
        Topology {
            shown: Shown { json: false, quiet: false, html: None },
            spouts: 2,
            bolts: 2,
            levels: 2,
            acking: vec![Acking::On, Acking::Off],
            against: None,
            sizes: Numbers(vec![16, 4_096]),
            max_spout_pending: 100,
            topologies: 1,
            workers: Numbers(vec![1]),
            transport: vec![Carrier::Tcp],
            transport_threads: Numbers(vec![1]),
            threads: 2,
            duration: Duration::from_millis(150),
            poll: Duration::from_millis(40),
            ackers: 0,
            warm_up: Duration::from_millis(150),
            jvm_warm_up: Duration::ZERO,
            runs: 1,
        }
    }

    #[test]
    fn both_ways_have_a_figure_for_every_size_and_nothing_fails() {
        let reports = small().run().expect("measured");
        assert_eq!(reports.len(), 2);
        for report in &reports {
            assert!(report.is_valid() && report.lines.len() == 2, "{}", report.text());
            assert_eq!(report.fields["figures"].as_array().map(Vec::len), Some(2));
            let polls = report.fields["figures"][0]["rate_polls"][0].as_array().map_or(0, Vec::len);
            assert!(polls >= 1, "{}", report.text());
        }
    }

    #[test]
    fn rates_between_polls_are_told_if_there_are_several() {
        let ran = |polled: &[f64]| Outcome {
            went: Went::default(),
            complete: Quantiles::default(),
            polled: polled.to_vec(),
        };
        assert_eq!(polled(&[ran(&[5.0, 7.0]), ran(&[4.0, 6.0])]), "; between two polls 4 to 7 messages/s");
        assert_eq!(polled(&[ran(&[5.0]), ran(&[])]), "");
    }

    #[test]
    fn workers_are_measured_over_each_transport() {
        let carriers = vec![Carrier::Tcp, Carrier::Local];
        let sizes = Numbers(vec![100]);
        let test =
            Topology { workers: Numbers(vec![1, 3]), transport: carriers, sizes, topologies: 2, ..small() };
        let reports = test.run().expect("measured");
        let servers: Vec<&str> = reports.iter().map(|report| report.server.as_str()).collect();
        let dealt = ["", ", 3 workers over tcp", ", 3 workers over local"];
        let expected = ["acking on", "acking off"].map(|way| dealt.map(|dealt| format!("{way}{dealt}")));
        assert_eq!(servers, expected.as_flattened());
        for report in &reports {
            let rate = report.fields["figures"][0]["messages_per_second"].as_f64();
            assert!(rate.is_some_and(|rate| rate > 0.0), "{}", report.text());
        }
        let refused =
            Topology { workers: Numbers(vec![2]), transport: vec![Carrier::Plain], ..small() }.run();
        assert!(refused.is_err_and(|why| why.contains("plain carries no topology")));
    }
}
