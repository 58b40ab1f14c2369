//! Messages between two nodes, of two processes or one: rate, bytes and processor time by size, number of senders and transport.
//!
//! A "server" of the report is a transport, and a line is one size with one number of senders. Runs of all transports alternate. The plain
//! loop (`plain`) is the limit: one thread copies messages into buffers of 64 KiB and writes these to a socket, another reads them.

use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

use super::arguments::{Numbers, Shown, duration, some_time};
use super::measure::{Measured, object, rounded};
use super::progress::Progress;
use super::report::{Line, Report};
use crate::drive::{Sparse, Tally};
use crate::figure;
use crate::transport::{self, Carrier, Load, Outcome, Pattern};
use crate::{Failure, Named};

#[derive(Debug, Args)]
pub struct Transport {
    #[command(flatten)]
    pub(super) shown: Shown,
    /// Transport: tcp, tls, zeromq (in a build with that feature) or local
    #[arg(long, value_name = "NAME", default_value = "tcp")]
    transport: Carrier,
    /// Further ones, whose runs alternate: the same, plain (the batched loop over TCP), libzmq (in a build with the feature zeromq), storm
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "plain")]
    against: Vec<Carrier>,
    /// The same as tls among --against: TLS 1.3, whose nodes prove by a secret who they are
    #[arg(long)]
    tls: bool,
    /// Processes: 2, the nodes apart (local is in one in any case), or 1
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u16).range(1..=2))]
    processes: u16,
    /// Bytes of a message: 16,64,1024, or 64..65536, which doubles
    #[arg(long, value_name = "N,...", default_value = "16,64,100,1024,8192,65536")]
    sizes: Numbers,
    /// Threads that send, each on a channel of its own (plain has one)
    #[arg(long, value_name = "N,...", default_value = "1")]
    senders: Numbers,
    /// How messages go: one way, or there and back, one at a time
    #[arg(long, value_name = "PATTERN", value_enum, default_value = "one-way")]
    pattern: Pattern,
    /// Loops of each node of tcp
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Duration of a run
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = some_time)]
    duration: Duration,
    /// Messages before each run that do not count
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = duration)]
    warm_up: Duration,
    /// The same for storm's JVMs, if that is longer
    #[arg(long, value_name = "TIME", default_value = "8s", value_parser = duration)]
    jvm_warm_up: Duration,
    /// Runs of each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
}

/// What is measured with the same messages.
#[derive(Clone, Copy, Debug)]
struct Case {
    size_bytes: usize,
    senders: usize,
}

impl Transport {
    /// Measures all, by turns.
    ///
    /// # Errors
    /// The system refuses sockets or threads, or messages were lost.
    pub(super) fn run(&self) -> Result<Vec<Report>, Failure> {
        let tls = self.tls.then_some(Carrier::Tls);
        let mut carriers: Vec<Carrier> =
            std::iter::once(self.transport).chain(tls).chain(self.against.clone()).collect();
        let mut seen = Vec::new();
        carriers.retain(|carrier| {
            !seen.contains(carrier) && {
                seen.push(*carrier);
                true
            }
        });
        let cases = self.cases();
        if let Some(too_many) = self.senders.0.iter().find(|senders| **senders > SENDERS_MAX) {
            return Err(format!("--senders {too_many}: {SENDERS_MAX} at most, a channel for each"));
        }
        if let Some(too_large) = self.sizes.0.iter().find(|size| **size > SIZE_BYTES_MAX) {
            return Err(format!("--sizes {too_large}: a message has {SIZE_BYTES_MAX} B at most"));
        }
        let progress = Progress::new(cases.len() * carriers.len() * self.runs as usize);
        let mut ran = vec![vec![Vec::new(); cases.len()]; carriers.len()];
        for (index, case) in cases.iter().enumerate() {
            for _ in 0..self.runs {
                for (carrier, ran) in carriers.iter().zip(&mut ran) {
                    progress.say(format!("{carrier}, {}", self.words(*case)));
                    ran[index].push(transport::run(*carrier, &self.load(*case))?);
                    progress.step();
                }
            }
        }
        Ok(carriers.iter().zip(&ran).map(|(carrier, ran)| self.report(*carrier, &cases, ran)).collect())
    }

    fn cases(&self) -> Vec<Case> {
        let senders =
            |size_bytes| self.senders.0.iter().map(move |senders| Case { size_bytes, senders: *senders });
        self.sizes.0.iter().flat_map(|size_bytes| senders(*size_bytes)).collect()
    }

    fn load(&self, case: Case) -> Load {
        Load {
            pattern: self.pattern,
            size_bytes: case.size_bytes,
            senders: case.senders,
            threads: usize::from(self.threads),
            apart: self.processes == 2,
            warm_up: self.warm_up,
            jvm_warm_up: self.jvm_warm_up,
            duration: self.duration,
        }
    }

    fn words(&self, case: Case) -> String {
        match self.pattern {
            Pattern::OneWay => format!("{} B, {} senders", case.size_bytes, case.senders),
            Pattern::PingPong => format!("{} B, there and back", case.size_bytes),
        }
    }

    fn report(&self, carrier: Carrier, cases: &[Case], ran: &[Vec<Outcome>]) -> Report {
        let lines = cases.iter().zip(ran).map(|(case, ran)| self.line(*case, ran)).collect();
        let figures: Vec<Value> = cases.iter().zip(ran).map(|(case, ran)| figure_json(*case, ran)).collect();
        let settings = json!({
            "pattern": self.pattern.name(),
            "threads": self.threads,
            "processes": self.processes,
            "duration_ms": self.duration.as_millis() as u64,
            "warm_up_ms": self.warm_up.as_millis() as u64,
            "jvm_warm_up_ms": self.jvm_warm_up.as_millis() as u64,
            "runs": self.runs,
        });
        let mut fields = Map::new();
        fields.insert("figures".to_owned(), json!(figures));
        Report {
            experiment: "transport",
            server: carrier.to_string(),
            command: None,
            settings: object(settings),
            fields,
            lines,
        }
    }

    fn line(&self, case: Case, ran: &[Outcome]) -> Line {
        let (rate, cpu_ns) = (
            median(ran, |outcome| outcome.went.per_second()),
            median(ran, |outcome| outcome.went.cpu_ns_each()),
        );
        let mb = rate * case.size_bytes as f64 / 1e6;
        Line {
            what: self.words(case),
            command: format!("SEND {}", case.size_bytes),
            runs: ran.iter().map(measured).collect(),
            note: format!(
                "median {rate:.0}/s, {mb:.1} MB/s; {cpu_ns:.0} ns of processor time a message, of both sides"
            ),
            ..Line::default()
        }
    }
}

/// As many as there are channels.
const SENDERS_MAX: usize = 1_024;
/// The transport's largest message.
const SIZE_BYTES_MAX: usize = 1 << 20;

fn figure_json(case: Case, ran: &[Outcome]) -> Value {
    let rate = median(ran, |outcome| outcome.went.per_second());
    json!({
        "size_bytes": case.size_bytes,
        "senders": case.senders,
        "messages_per_second": rounded(rate),
        "megabytes_per_second": rounded(rate * case.size_bytes as f64 / 1e6),
        "cpu_ns_per_message": rounded(median(ran, |outcome| outcome.went.cpu_ns_each())),
        "rate_runs": ran.iter().map(|ran| rounded(ran.went.per_second())).collect::<Vec<f64>>(),
        "cpu_ns_runs": ran.iter().map(|ran| rounded(ran.went.cpu_ns_each())).collect::<Vec<f64>>(),
        "latency_us": { "p50": rounded(quantile_us(ran, 0.5)), "p99": rounded(quantile_us(ran, 0.99)) },
    })
}

/// Of there and back.
fn quantile_us(ran: &[Outcome], quantile: f64) -> f64 {
    median(ran, |outcome| outcome.latencies.value_at_quantile(quantile) as f64 / 1e3)
}

fn median(ran: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> f64 {
    figure::median(&ran.iter().map(figure).collect::<Vec<f64>>())
}

fn measured(outcome: &Outcome) -> Measured {
    Measured {
        tally: Tally { answered: outcome.went.messages, ..Tally::default() },
        took: outcome.went.took,
        latencies: Sparse::of(&outcome.latencies),
        ..Measured::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured_briefly(pattern: Pattern, senders: usize) -> Vec<Report> {
        // On a busy machine a thread may wait tens of milliseconds for its turn.
        let moment = Duration::from_millis(150);
        let test = Transport {
            shown: Shown { json: false, quiet: false, html: None },
            transport: Carrier::Tcp,
            against: vec![Carrier::Local, Carrier::Plain],
            tls: true,
            processes: 1,
            sizes: Numbers(vec![16, 100_000]),
            senders: Numbers(vec![senders]),
            pattern,
            threads: 1,
            duration: moment,
            warm_up: moment,
            jvm_warm_up: moment,
            runs: 1,
        };
        test.run().expect("measured")
    }

    #[test]
    fn every_transport_has_a_figure_for_every_size_and_loses_nothing() {
        for (pattern, senders) in [(Pattern::OneWay, 3), (Pattern::PingPong, 1)] {
            let reports = measured_briefly(pattern, senders);
            assert_eq!(reports.len(), 4);
            for report in &reports {
                assert!(report.is_valid() && report.lines.len() == 2, "{}", report.text());
                assert_eq!(report.fields["figures"].as_array().map(Vec::len), Some(2));
            }
        }
    }
}
