//! Transactions over two resources that answer at once: what the manager and its decision log cost, beside the bare disk and beside
//! other managers. The report's figures are of 1, 100 and 400 threads.
//!
//! The manager runs in this process, so there is no server: a "server" of the report is the manager on one of its logs, or who it is
//! compared with. Each run has a fresh log; runs of all alternate.
//!
//! The bare disk (`raw`) is a loop that writes one record for each client at once into a prewritten file, and syncs: as many commits
//! as can ever share a sync, by a manager that costs nothing.

mod contender;
mod narayana;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use journal::BackendKind;
use serde_json::{Map, Value, json};

use self::contender::{Contender, Costs, Ran};
use super::arguments::{Shown, duration, some_time};
use super::measure::{Spread, object};
use super::progress::Progress;
use super::report::{Line, Report};
use crate::Failure;
use crate::servers::Folder;
use crate::tx::{Load, LogKind};

#[derive(Debug, Args)]
pub struct Tx {
    #[command(flatten)]
    pub(super) shown: Shown,
    /// Where decisions are kept
    #[arg(long, value_name = "LOG", default_value = "journal")]
    log: LogKind,
    /// Further logs, whose runs alternate: volatile, file, journal, sql; raw, a loop that writes and syncs a record of --log's size for each
    /// client at once (raw=BYTES: of this size; raw=run: as many records as shared a sync); narayana, or narayana=STORE: volatile,
    /// file, journal, journal-aio, journal-tuned, journal-aio-tuned
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    against: Vec<Contender>,
    /// Where folders of logs are created and removed: choose the disk that you want to measure
    #[arg(long, value_name = "DIR", visible_alias = "folder")]
    dir: Option<PathBuf>,
    /// PostgreSQL database of the log sql: postgres://user:password@host/database
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// How the journal writes: buffered, direct or uring
    #[arg(long, value_name = "BACKEND", value_parser = ["buffered", "direct", "uring"])]
    backend: Option<String>,
    /// Threads; each waits for its transaction. 400, or 1 with --logical
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    threads: Option<u16>,
    /// Transactions in progress at a time, over all threads: a thread drives many instead of waiting for one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    logical: Option<u32>,
    /// Duration of a run
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = some_time)]
    duration: Duration,
    /// Duration of a run, in seconds
    #[arg(long, value_name = "N", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Transactions before each run that do not count
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    warm_up: Duration,
    /// Transactions before each run that do not count, for managers in a JVM, which start slowly
    #[arg(long, value_name = "TIME", default_value = "40s", value_parser = duration)]
    jvm_warm_up: Duration,
    /// Runs, each with a fresh log
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
}

impl Tx {
    /// Runs the log and all others, by turns.
    ///
    /// # Errors
    /// A log does not open, or the arguments contradict each other.
    pub(super) fn run(&self) -> Result<Vec<Report>, Failure> {
        self.check()?;
        let all = self.contenders();
        let progress = Progress::new(all.len() * self.runs as usize);
        let mut ran: Vec<Vec<Ran>> = all.iter().map(|_| Vec::new()).collect();
        for run in 0..self.runs {
            for index in 0..all.len() {
                let first = ran[0].last().map_or_else(Costs::default, |first| first.costs);
                progress.say(all[index].label(self));
                ran[index].push(self.run_once(all[index], run, index, first)?);
                progress.step();
            }
        }
        Ok(all.iter().zip(&ran).map(|(contender, ran)| self.report(*contender, ran)).collect())
    }

    /// The log, and the others but those that are not there, which is said.
    fn contenders(&self) -> Vec<Contender> {
        let mut all = vec![Contender::Log(self.log)];
        let mut narayana = None;
        for other in &self.against {
            if let Contender::Narayana(_) = other
                && let Err(why) = narayana.get_or_insert_with(narayana::prepare)
            {
                eprintln!("evenkeel: narayana {why}: measured without it");
                continue;
            }
            all.push(*other);
        }
        all
    }

    fn check(&self) -> Result<(), Failure> {
        let is_there = |kind| self.log == kind || self.against.contains(&Contender::Log(kind));
        if is_there(LogKind::Sql) != self.url.is_some() {
            return Err("the log sql and --url belong together: --url postgres://…".to_owned());
        }
        if self.backend.is_some() && !is_there(LogKind::Journal) {
            return Err("--backend is the journal's, and --log journal is not measured".to_owned());
        }
        match self.logical {
            Some(logical) if (logical as usize) < self.threads() => {
                Err(format!("{} --threads cannot share {logical} --logical transactions", self.threads()))
            }
            _ => Ok(()),
        }
    }

    fn run_once(&self, contender: Contender, run: u32, index: usize, first: Costs) -> Result<Ran, Failure> {
        let id = std::process::id();
        let parent = self.dir.clone().unwrap_or_else(std::env::temp_dir).join(format!("evenkeel-bench-{id}"));
        let folder = Folder::fresh(parent.join(format!("tx-{run}-{index}")))?;
        // In a database a name that nobody else has is as good as a fresh folder.
        let node = format!("bench-{id}-{run}-{index}");
        contender.run(self, folder.path(), &node, first)
    }

    fn threads(&self) -> usize {
        self.threads.map_or(if self.logical.is_some() { 1 } else { THREADS }, usize::from)
    }

    fn load(&self) -> Load {
        Load {
            threads: self.threads(),
            logical: self.logical.map(|logical| logical as usize),
            warm_up: self.warm_up,
            duration: self.seconds.map_or(self.duration, Duration::from_secs),
        }
    }

    fn backend(&self) -> BackendKind {
        match self.backend.as_deref() {
            Some("buffered") => BackendKind::Buffered,
            Some("direct") => BackendKind::Direct,
            Some("uring") => BackendKind::Uring,
            _ => BackendKind::default(),
        }
    }

    fn report(&self, contender: Contender, ran: &[Ran]) -> Report {
        let load = self.load();
        let costs: Vec<Costs> = ran.iter().map(|ran| ran.costs).collect();
        let line = Line {
            what: self.clients(contender, ran),
            command: "COMMIT".to_owned(),
            runs: ran.iter().map(|ran| ran.measured.clone()).collect(),
            note: Costs::mean(&costs).note(),
            ..Line::default()
        };
        let settings = json!({
            "threads": load.threads,
            "logical": load.logical,
            "duration_ms": load.duration.as_millis() as u64,
            "warm_up_ms": load.warm_up.as_millis() as u64,
            "jvm_warm_up_ms": contender.is_narayana().then_some(self.jvm_warm_up.as_millis() as u64),
            "runs": self.runs,
            "backend": self.backend().to_string(),
        });
        let mut fields = fields(ran);
        fields.extend(Costs::mean(&costs).json());
        fields.insert("log".to_owned(), json!(contender.log_name()));
        fields.insert("threads".to_owned(), json!(load.threads));
        fields.insert("logical".to_owned(), json!(load.logical));
        Report {
            experiment: "tx",
            server: contender.label(self),
            command: None,
            settings: object(settings),
            fields,
            lines: vec![line],
        }
    }

    /// Who commits, in words.
    fn clients(&self, contender: Contender, ran: &[Ran]) -> String {
        let Load { threads, logical, .. } = self.load();
        match (contender, logical) {
            (Contender::Raw(_), _) => {
                let costs = ran.first().map_or_else(Costs::default, |ran| ran.costs);
                let records = 1.0 / costs.syncs.unwrap_or(1.0);
                format!("{records:.0} x {:.0} B a sync", costs.bytes.unwrap_or(0.0))
            }
            (Contender::Narayana(_), Some(clients)) => format!("{clients} threads"),
            (_, None) => format!("{threads} threads"),
            (_, Some(logical)) => format!("{logical} clients, {threads} threads"),
        }
    }
}

/// What all experiments with runs have.
fn fields(ran: &[Ran]) -> Map<String, Value> {
    let mut fields = object(Spread::json(Spread::of_rates(ran.iter().map(|ran| &ran.measured))));
    fields.insert("runs".to_owned(), ran.iter().map(run_json).collect());
    fields
}

fn run_json(ran: &Ran) -> Value {
    let mut fields = ran.costs.json();
    fields.extend(ran.measured.json());
    fields.insert("transactions".to_owned(), json!(ran.measured.tally.answered));
    Value::Object(fields)
}

/// The report's: its figures of the journal are of 400.
const THREADS: usize = 400;
