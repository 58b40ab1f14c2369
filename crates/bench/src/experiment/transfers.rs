//! Money transfers between PostgreSQL, MariaDB and keys: through a server's TX commands, beside a program that prepares and commits both
//! databases by hand.
//!
//! ```text
//!  evenkeel   a row in each database and a key; prepared in parallel, a durable decision, committed    (client: one pipeline)
//!  by hand    a row in each database; prepared in parallel, committed in parallel: no decision, no key, nothing survives its crash
//! ```
//!
//! Both have a session in each database for each client; all clients are on one thread, and never meet in a row. After each run the sums are looked at:
//! money that was made or lost makes the run invalid.

mod by_hand;
mod served;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clock::{Clock as _, Nanos, SystemClock};
use serde_json::json;

use super::arguments::{Shown, duration, some_time};
use super::measure::{Measured, Spread, object};
use super::progress::Progress;
use super::report::{Line, Report};
use crate::Failure;
use crate::drive::Recorder;

#[derive(Debug, Args)]
pub struct Transfers {
    #[command(flatten)]
    pub(super) shown: Shown,
    /// PostgreSQL database for the run, with max_prepared_transactions of at least --clients; the table evenkeel_bench is created in it
    #[arg(long, value_name = "URL")]
    postgres: String,
    /// MariaDB database for the run; the table evenkeel_bench is created in it
    #[arg(long, value_name = "URL")]
    mariadb: String,
    /// Clients, all on one thread
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    clients: u16,
    /// Where the server's folder is created and removed: choose the disk that you want to measure
    #[arg(long, value_name = "DIR", visible_alias = "folder")]
    dir: Option<PathBuf>,
    /// Duration of a run
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = some_time)]
    duration: Duration,
    /// Transfers before each run that do not count
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    warm_up: Duration,
    /// Runs of each, alternating
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
}

/// When a run begins to count, and when it ends.
#[derive(Clone, Copy, Debug)]
struct Window {
    begins: Nanos,
    ends: Nanos,
}

impl Transfers {
    /// Runs both by turns.
    ///
    /// # Errors
    /// A database or the server cannot be had.
    pub(super) fn run(&self) -> Result<Vec<Report>, Failure> {
        by_hand::prepare(self)?;
        let served = served::Served::start(self)?;
        let progress = Progress::new(2 * self.runs as usize);
        let mut runs = [Vec::new(), Vec::new()];
        for _ in 0..self.runs {
            progress.say("evenkeel".to_owned());
            runs[0].push(self.measured(served.run(self)?, served.money()?)?);
            progress.step();
            progress.say("by hand".to_owned());
            runs[1].push(self.measured(by_hand::run(self)?, served.money()?)?);
            progress.step();
        }
        let [ours, theirs] = runs;
        let command = Some(served.command());
        Ok(vec![
            self.report("evenkeel: PostgreSQL + MariaDB + keys", command, ours),
            self.report("by hand: PostgreSQL + MariaDB", None, theirs),
        ])
    }

    /// What clients did; `in_keys` is the money that keys hold.
    fn measured(&self, worked: Recorder, in_keys: i64) -> Result<Measured, Failure> {
        let lost = (by_hand::money(self)? + in_keys).unsigned_abs();
        Ok(Measured::by(worked, self.duration, lost))
    }

    /// Has all `clients` make transfers, on the one thread of the runtime; what failed ends its client.
    async fn drive<C: Client>(&self, clients: Vec<C>) -> Result<Recorder, Failure> {
        let begins = SystemClock.now() + self.warm_up;
        let window = Window { begins, ends: begins + self.duration };
        let tasks: Vec<_> = clients.into_iter().map(|client| tokio::spawn(work(client, window))).collect();
        let mut all = Recorder::default();
        for task in tasks {
            all.add(&task.await.map_err(|error| error.to_string())?);
        }
        Ok(all)
    }

    fn report(&self, server: &str, command: Option<String>, runs: Vec<Measured>) -> Report {
        let mut fields = object(Spread::json(Spread::of_rates(&runs)));
        fields.insert("runs".to_owned(), runs.iter().map(Measured::json).collect());
        let settings = object(json!({
            "clients": self.clients,
            "duration_ms": self.duration.as_millis() as u64,
            "warm_up_ms": self.warm_up.as_millis() as u64,
            "runs": self.runs,
        }));
        let line = Line {
            what: format!("transfers, {} clients", self.clients),
            command: "TRANSFER".to_owned(),
            runs,
            ..Line::default()
        };
        Report {
            experiment: "transfers",
            server: server.to_owned(),
            command,
            settings,
            fields,
            lines: vec![line],
        }
    }
}

/// One who makes transfers, the next when one is done.
trait Client: Send + 'static {
    /// Makes transfer number `count`.
    fn transfer(&mut self, count: u32) -> impl Future<Output = Result<(), Failure>> + Send;
}

async fn work(mut client: impl Client, window: Window) -> Recorder {
    let mut recorder = Recorder::default();
    for count in 1.. {
        let begun = SystemClock.now();
        if begun >= window.ends {
            break;
        }
        if let Err(failure) = client.transfer(count).await {
            recorder.tally.failures.error_reply(failure.as_bytes());
            break;
        }
        let now = SystemClock.now();
        if begun >= window.begins && now < window.ends {
            recorder.answered(now.since(begun));
        }
    }
    recorder
}

/// The one thread of all clients, of either side.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("no runtime for the clients: {error}"))
}

/// Rows of one client: nobody else touches them.
const ACCOUNTS_EACH: u32 = 100;
