//! The transaction manager on its logs: `evenkeel bench tx`, by turns with the bare disk and with each other.
//!
//! Transactions are empty, over two resources that answer at once. The bare disk writes one record for each client at once, and syncs:
//! nobody commits more on it. Its records have 512 bytes, as those of one client and as the disk's limit of group commit was measured
//! with; how far the journal is from one that writes its own, shorter ones is reported. Clients are threads as in the report, or (the
//! server's way) many on one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use journal::BackendKind;
use serde_json::Value;

use super::context::Context;
use super::reported::{self, Reported};
use crate::figure::{Figure, Series, Target};
use crate::servers::sibling;
use crate::tx::{LogKind, LogOptions, left};
use crate::{Failure, Named};

/// The journal beside the disk, beside the other logs, and what it waits for and keeps.
pub(super) fn tx(context: &Context) -> Result<Vec<Figure>, Failure> {
    let one = measure(context, &["--threads", "1", "--against", "raw=512,file,volatile"])?;
    let many = measure(context, &["--logical", "400", "--against", "raw,raw=512,raw=run"])?;
    let hundred = measure(context, &["--threads", "100", "--against", "file,volatile"])?;
    let threads = measure(context, &["--threads", "400", "--against", "file,volatile"])?;
    let mut figures = vec![
        one.beside("tx/one", "empty transactions, 1 thread, journal / raw synced writes of 512 bytes", "bare loop", Some(Target::AtLeast(0.85)))?,
        many.beside("tx/many-512", "empty transactions, 400 clients on a thread, journal / raw group commit of 400 records of 512 bytes", "bare loop, 512", Some(Target::AtLeast(0.6)))?,
        many.beside("tx/many", "empty transactions, 400 clients on a thread, journal / raw group commit of 400 records as short as its own", "bare loop", None)?,
        many.beside("tx/batches", "empty transactions, 400 clients on a thread, journal / raw group commit in batches as large as its own", "bare loop, batches", None)?,
        threads.beside("tx/volatile", "empty transactions, 400 threads, journal / own volatile log", "evenkeel txn volatile", None)?,
        one.of_first("tx/syncs", "synced waits for each committed transaction, 1 thread, journal", "syncs_per_transaction", Some(Target::AtMost(1.0)), "syncs"),
        unchecked(context)?,
    ];
    for (clients, measured) in [(1, &one), (100, &hundred), (400, &threads)] {
        figures.extend(measured.each_log(clients));
    }
    Ok(figures)
}

/// Runs the experiment with `extra`; the first run does not count.
pub(super) fn measure(context: &Context, extra: &[&str]) -> Result<Measured, Failure> {
    let duration = if context.quick { "500ms" } else { "5s" };
    let (runs, folder) = ((context.runs + 1).to_string(), context.folder.to_string_lossy());
    let shape = ["--dir", &folder, "--duration", duration, "--runs", &runs, "--json"];
    Reported::of(&[&["tx"][..], extra, &shape].concat()).map(Measured)
}

/// What the experiment reported.
pub(super) struct Measured(Reported);

impl Measured {
    /// Transactions a second of the first one, beside those of the one whose name begins with `other`.
    pub(super) fn beside(
        &self,
        id: &str,
        title: &str,
        other: &str,
        target: Option<Target>,
    ) -> Result<Figure, Failure> {
        let theirs = self.others().find(|report| label(report).starts_with(other));
        let theirs = theirs.ok_or_else(|| format!("{other} was not measured: {}", self.0.said.trim()))?;
        let b = series(theirs, RATE);
        let figure = Figure::new(id, title, target, "transactions/s", series(&self.0.report, RATE), Some(b));
        Ok(figure.by([self.0.command.clone()]))
    }

    /// A field of each run of the first one.
    fn of_first(&self, id: &str, title: &str, field: &str, target: Option<Target>, unit: &str) -> Figure {
        let figure = Figure::new(id, title, target, unit, series(&self.0.report, field), None);
        figure.by([self.0.command.clone()])
    }

    /// Transactions a second on each log.
    fn each_log(&self, threads: usize) -> Vec<Figure> {
        let logs = std::iter::once(&self.0.report).chain(self.others());
        let logs = logs.filter_map(|report| Some((report["log"].as_str()?, report)));
        let figure = |(log, report): (&str, &Value)| {
            let title = format!("empty transactions, {threads} threads, log {log}");
            let id = format!("tx/{log}-{threads}");
            let figure = Figure::new(&id, &title, None, "transactions/s", series(report, RATE), None);
            figure.by([self.0.command.clone()])
        };
        logs.map(figure).collect()
    }

    fn others(&self) -> impl Iterator<Item = &Value> {
        self.0.report["against"].as_array().into_iter().flatten()
    }
}

fn label(report: &Value) -> &str {
    report["server"].as_str().unwrap_or_default()
}

fn series(report: &Value, field: &str) -> Series {
    reported::series(label(report), report, |run| &run[field])
}

/// Decisions that a killed process left in its journal or its files, and in which a flipped bit would pass unseen.
fn unchecked(context: &Context) -> Result<Figure, Failure> {
    let (mut records, mut unchecked) = (0, 0);
    for kind in [LogKind::Journal, LogKind::File] {
        let parent = context.folder.join("tx-killed");
        let of_kind = killed(kind, &parent);
        std::fs::remove_dir_all(&parent).ok();
        let of_kind = of_kind?;
        if of_kind.records == 0 {
            let log = kind.name();
            return Err(format!(
                "log {log} of a process that was killed under way holds no record: nothing was looked at"
            ));
        }
        records += of_kind.records;
        unchecked += of_kind.unchecked;
    }
    let series = Series::new("journal and file", vec![unchecked as f64]);
    let title = "decision records without checksum, in logs whose process was killed";
    let figure = Figure::new("tx/unchecked", title, Some(Target::AtMost(0.0)), "records", series, None);
    let note = format!("{records} records were read back; each of their bits was flipped.");
    Ok(figure.by(["cargo xtask bench tx"]).note(&note))
}

/// Kills an experiment under way and opens its log.
fn killed(kind: LogKind, parent: &Path) -> Result<crate::tx::Left, Failure> {
    std::fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
    let mut child = Command::new(sibling("evenkeel-bench"))
        .args(["tx", "--duration", "60s", "--logical", "400", "--log", &kind.name(), "--dir"])
        .arg(parent)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start evenkeel-bench: {error}"))?;
    std::thread::sleep(KILLED_AFTER);
    let id = child.id();
    child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
    // What the experiment names the folder and the node of its first run.
    let folder = parent.join(format!("evenkeel-bench-{id}")).join("tx-0-0");
    let options = LogOptions { backend: BackendKind::default(), url: None };
    left(kind, &options, &folder, &format!("bench-{id}-0-0"))
}

const RATE: &str = "operations_per_second";
const KILLED_AFTER: Duration = Duration::from_secs(3);
