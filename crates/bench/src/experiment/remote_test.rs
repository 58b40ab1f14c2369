//! Voldemort's remote test of 2009: iterations of so many requests over all clients, one operation after the other, and how
//! much was written and deleted. Its figures came from 100 iterations of 100,000 writes and as many deletes of 1,024-byte
//! values; the server was started anew for each number of clients.
//!
//! What is lost: keys whose write was confirmed, which DEL or GET then do not find, or find changed. Requests that failed
//! are errors, not losses.

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::WORKER;
use super::arguments::{Common, Numbers};
use super::host::{Host, Running};
use super::measure::{Measured, Spread, object, rounded};
use super::progress::Progress;
use super::report::{Line, Report};
use crate::drive::{Action, Drivers, Group, KeyForm, Keys, Limit, Outcome, Phase, Pick, Tally, Work};
use crate::{Failure, Named};

#[derive(Debug, Args)]
pub struct RemoteTest {
    #[command(flatten)]
    pub(super) common: Common,
    /// Connections; several values, or a doubling range such as 64..1024, are separate tests
    #[arg(long, value_name = "N,...", default_value = "100")]
    clients: Numbers,
    /// Requests for each iteration and operation, over all clients
    #[arg(long, value_name = "TOTAL", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Iterations
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Operations of an iteration, in this order
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "write,delete")]
    operations: Vec<Operation>,
    /// Bytes of a value; several values, or a doubling range such as 64..65536, are separate tests
    #[arg(long, value_name = "BYTES,...", default_value = "1024")]
    value_size: Numbers,
    /// Number of the first key
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..u64::MAX >> 1))]
    start_key: u64,
    /// Percentage of reads of keys that were read before
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    percent_cached: u8,
    /// Compare values that are read with what was written
    #[arg(long)]
    verify: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Operation {
    Write,
    Delete,
    Read,
    Mixed,
}

impl Operation {
    fn command(self) -> &'static str {
        match self {
            Self::Write => "SET",
            Self::Delete => "DEL",
            Self::Read => "GET",
            Self::Mixed => "GET+SET",
        }
    }

    fn action(self) -> Action {
        match self {
            Self::Write => Action::Write,
            Self::Delete => Action::Delete,
            Self::Read => Action::Read,
            Self::Mixed => Action::Mixed,
        }
    }
}

/// What is known of the test's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// Others may have written them.
    Unknown,
    /// So many are there.
    Written(u64),
    Deleted,
}

/// One of the tests that arguments with several values make.
#[derive(Clone, Copy, Debug)]
struct Case {
    clients: usize,
    value_bytes: usize,
}

/// What one case came to on one server.
struct Tested {
    case: Case,
    /// Of each operation, an iteration each.
    runs: Vec<Vec<Measured>>,
    cpu_us: Option<f64>,
    rss_bytes: Option<u64>,
}

impl RemoteTest {
    /// Runs all cases on all servers, by turns.
    ///
    /// # Errors
    /// A server does not start, or cannot be reached.
    pub(super) fn run(&self) -> Result<Vec<Report>, Failure> {
        if self.common.names("hazelcast") {
            return Err("hazelcast takes part in map-test only".to_owned());
        }
        let hosts = Host::all(&self.common)?;
        let sizes = || self.value_size.0.iter();
        let cases = self
            .clients
            .0
            .iter()
            .flat_map(|clients| sizes().map(|bytes| Case { clients: *clients, value_bytes: *bytes }));
        let cases: Vec<Case> = cases.collect();
        let steps = hosts.len() * cases.len() * self.operations.len() * self.iterations as usize;
        let progress = Progress::new(steps);
        let mut tested: Vec<Vec<Tested>> = hosts.iter().map(|_| Vec::new()).collect();
        for case in cases {
            for (host, tested) in hosts.iter().zip(&mut tested) {
                tested.push(self.test(host, case, &progress)?);
            }
        }
        Ok(hosts.iter().zip(&tested).map(|(host, tested)| self.report(host, tested)).collect())
    }

    fn test(&self, host: &Host, case: Case, progress: &Progress) -> Result<Tested, Failure> {
        progress.say(format!("{}: {} connections open", host.label, case.clients));
        let running = host.fresh(case.clients)?;
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let options = self.common.fleet(case.clients);
        let processes = usize::from(self.common.processes);
        let mut drivers = Drivers::open(&running.target, &options, processes, &program, &WORKER)?;
        let cpu_before = running.cpu_seconds();
        let mut runs: Vec<Vec<Measured>> = self.operations.iter().map(|_| Vec::new()).collect();
        let mut presence = Presence::Unknown;
        // Counted once; the runs that follow miss them.
        let mut not_made = drivers.failures().clone();
        let mut is_alive = true;
        for _ in 0..self.iterations {
            for (operation, runs) in self.operations.iter().zip(&mut runs) {
                if !is_alive {
                    continue;
                }
                let what = format!("{}: {}, {} clients", host.label, operation.name(), case.clients);
                let outcome =
                    drivers.run(&self.phase(*operation, case), &mut |rows| progress.rows(&what, rows))?;
                let mut run = self.judge(*operation, &outcome, &mut presence, &running);
                run.add_failures(&std::mem::take(&mut not_made));
                // Nothing that follows a test without connections is worth its time.
                is_alive = run.tally.answered > 0 && run.tally.failures.disconnected < case.clients as u64;
                runs.push(run);
                progress.step();
            }
        }
        let answered: u64 = runs.iter().flatten().map(|run| run.tally.answered).sum();
        let cpu = cpu_before.zip(running.cpu_seconds()).map(|(before, after)| after - before);
        let cpu_us = cpu.map(|seconds| seconds * 1e6 / answered.max(1) as f64);
        Ok(Tested { case, runs, cpu_us, rss_bytes: running.rss_bytes() })
    }

    fn phase(&self, operation: Operation, case: Case) -> Phase {
        let keys = Keys {
            first: self.start_key,
            count: self.requests,
            pick: Pick::Sequence,
            form: KeyForm::Decimal,
        };
        let (verify, percent_cached) = (self.verify, self.percent_cached);
        let work = Work { verify, percent_cached, ..Work::new(operation.action(), keys, case.value_bytes) };
        let group = Group {
            work,
            connections: case.clients,
            depth: usize::from(self.common.pipeline),
            limit: Limit::Requests(self.requests),
            per_second: self.common.rate,
        };
        let Common { request_timeout, interval, .. } = self.common;
        Phase { groups: vec![group], request_timeout, interval }
    }

    /// Counts what was lost.
    fn judge(
        &self,
        operation: Operation,
        outcome: &Outcome,
        presence: &mut Presence,
        running: &Running,
    ) -> Measured {
        let tally = outcome.total().tally;
        let lost = if running.keeps { lost(operation, &tally, *presence, self.requests) } else { 0 };
        *presence = match operation {
            Operation::Write => Presence::Written(tally.written),
            Operation::Delete => Presence::Deleted,
            Operation::Read | Operation::Mixed => *presence,
        };
        Measured::of(outcome, lost)
    }

    fn report(&self, host: &Host, tested: &[Tested]) -> Report {
        let mut lines = Vec::new();
        for test in tested {
            for (operation, runs) in self.operations.iter().zip(&test.runs) {
                let Case { clients, value_bytes } = test.case;
                let sum = |of: fn(&Tally) -> u64| runs.iter().map(|run| of(&run.tally)).sum::<u64>();
                let note = match operation {
                    Operation::Write => format!("{} written", sum(|tally| tally.written)),
                    Operation::Delete => format!("{} deleted", sum(|tally| tally.deleted)),
                    _ => {
                        format!("{} found, {} missing", sum(|tally| tally.found), sum(|tally| tally.missing))
                    }
                };
                lines.push(Line {
                    what: format!("{}, {clients} clients, {value_bytes} B", operation.name()),
                    command: operation.command().to_owned(),
                    runs: runs.clone(),
                    note,
                    loops: Vec::new(),
                });
            }
        }
        Report {
            experiment: "remote-test",
            server: host.label.clone(),
            command: host.command(),
            settings: self.settings(),
            fields: self.fields(tested),
            lines,
        }
    }

    fn settings(&self) -> Map<String, Value> {
        let own = json!({
            "clients": self.clients.0,
            "requests": self.requests,
            "iterations": self.iterations,
            "operations": self.operations.iter().map(|operation| operation.name()).collect::<Vec<_>>(),
            "value_size": self.value_size.0,
            "start_key": self.start_key,
            "percent_cached": self.percent_cached,
            "verify": self.verify,
        });
        let mut settings = self.common.settings();
        settings.extend(object(own));
        settings
    }

    fn fields(&self, tested: &[Tested]) -> Map<String, Value> {
        let tests: Vec<Value> = tested.iter().map(|test| self.test_json(test)).collect();
        let all = || tested.iter().flat_map(|test| test.runs.iter().flatten());
        // Of equal runs only: writes are no slower deletes.
        let spreads = tested
            .iter()
            .flat_map(|test| &test.runs)
            .filter_map(|runs| Spread::of_rates(runs).map(|spread| rounded(spread.percent())));
        let fields = json!({
            "written": all().map(|run| run.tally.written).sum::<u64>(),
            "deleted": all().map(|run| run.tally.deleted).sum::<u64>(),
            "found": all().map(|run| run.tally.found).sum::<u64>(),
            "missing": all().map(|run| run.tally.missing).sum::<u64>(),
            "spread_percent": spreads.reduce(f64::max),
            "iterations": tested.iter().flat_map(|test| self.iterations_json(test)).collect::<Vec<_>>(),
            "tests": tests,
        });
        object(fields)
    }

    fn iterations_json(&self, test: &Tested) -> Vec<Value> {
        let Case { clients, value_bytes } = test.case;
        let mut iterations = Vec::new();
        for index in 0..self.iterations as usize {
            for (operation, runs) in self.operations.iter().zip(&test.runs) {
                let Some(run) = runs.get(index) else { continue };
                let mut fields = run.json();
                fields.extend(object(json!({
                    "iteration": index + 1,
                    "operation": operation.name(),
                    "clients": clients,
                    "value_size": value_bytes,
                    "written": run.tally.written,
                    "deleted": run.tally.deleted,
                })));
                iterations.push(Value::Object(fields));
            }
        }
        iterations
    }

    fn test_json(&self, test: &Tested) -> Value {
        let Case { clients, value_bytes } = test.case;
        let operations = self.operations.iter().zip(&test.runs).map(|(operation, runs)| {
            let line = Line { runs: runs.clone(), ..Line::default() };
            let all = line.all();
            json!({
                "operation": operation.name(),
                "operations_per_second": rounded(all.per_second()),
                "latency_us": all.latency_json(),
                "iterations": Spread::json(line.spread()),
                "valid": line.is_valid(),
            })
        });
        json!({
            "clients": clients,
            "value_size": value_bytes,
            "valid": test.runs.iter().flatten().all(Measured::is_valid),
            "operations": operations.collect::<Vec<_>>(),
            "server_cpu_us_per_operation": test.cpu_us.map(rounded),
            "server_rss_bytes": test.rss_bytes,
        })
    }
}

/// Confirmed keys that are not there, by what `operation` on all `requests` keys was answered.
fn lost(operation: Operation, tally: &Tally, presence: Presence, requests: u64) -> u64 {
    let Presence::Written(written) = presence else { return 0 };
    let never_written = requests.saturating_sub(written);
    match operation {
        Operation::Write => 0,
        Operation::Delete => written.min(tally.answered).saturating_sub(tally.deleted + tally.uncounted),
        Operation::Read | Operation::Mixed => tally.missing.saturating_sub(never_written),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_confirmed_and_is_not_found_is_lost_and_what_failed_is_not() {
        let deleted = |answered, deleted| Tally { answered, deleted, ..Tally::default() };
        let after =
            |written, tally: Tally| lost(Operation::Delete, &tally, Presence::Written(written), 100_000);
        assert_eq!(after(100_000, deleted(100_000, 100_000)), 0);
        assert_eq!(after(100_000, deleted(100_000, 99_984)), 16, "the report's case");
        assert_eq!(after(99_000, deleted(100_000, 99_000)), 0, "writes that failed are no losses");
        assert_eq!(after(100_000, deleted(90_000, 90_000)), 0, "nor deletes that failed");
        let unknown = lost(Operation::Delete, &deleted(10, 0), Presence::Unknown, 10);
        assert_eq!(unknown, 0, "nobody wrote them");
        let read = Tally { answered: 10, missing: 3, ..Tally::default() };
        assert_eq!(lost(Operation::Read, &read, Presence::Written(9), 10), 2);
        assert_eq!(lost(Operation::Read, &read, Presence::Deleted, 10), 0);
    }
}
