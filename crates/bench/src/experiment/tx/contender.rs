//! Who takes part in the experiment: our manager on one of its logs, the bare disk, and other managers.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Tx;
use super::narayana::{self, Store};
use crate::drive::{Recorder, Row};
use crate::experiment::measure::{Measured, object, rounded};
use crate::load::sync_probe;
use crate::tx::{self, Load, LogKind, LogOptions};
use crate::{Failure, Named};

/// One who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    /// Our manager on this log.
    Log(LogKind),
    /// A loop that writes and syncs.
    Raw(Batch),
    /// Narayana on this store.
    Narayana(Store),
}

/// What a bare loop writes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Batch {
    /// A record for each client, as large as the log's in the run before.
    Clients,
    /// As many records as shared a sync in the run before, as large as they were.
    Run,
    /// A record of so many bytes for each client.
    Bytes(usize),
}

/// One run of one of them.
#[derive(Clone, Debug)]
pub(super) struct Ran {
    pub(super) measured: Measured,
    pub(super) costs: Costs,
}

/// What a transaction takes, where that is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Costs {
    /// Waits for the disk.
    pub(super) syncs: Option<f64>,
    /// Bytes that the log wrote.
    pub(super) bytes: Option<f64>,
    /// Bytes that the system wrote to disks for the process.
    pub(super) device_bytes: Option<f64>,
    /// Processor time of the process, in microseconds.
    pub(super) cpu_us: Option<f64>,
}

impl std::str::FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, flag) = text.split_once('=').map_or((text, None), |(name, flag)| (name, Some(flag)));
        match (name, flag) {
            ("raw", None) => Ok(Self::Raw(Batch::Clients)),
            ("raw", Some("run")) => Ok(Self::Raw(Batch::Run)),
            ("raw", Some(bytes)) => match bytes.parse() {
                Ok(bytes) if (1..=RAW_BYTES_MAX).contains(&bytes) => Ok(Self::Raw(Batch::Bytes(bytes))),
                _ => Err(format!("raw={bytes}: want run, or bytes of a record, 1 to {RAW_BYTES_MAX}")),
            },
            ("narayana", store) => store.unwrap_or("journal-aio").parse().map(Self::Narayana),
            (name, None) => match <LogKind as clap::ValueEnum>::from_str(name, false) {
                Ok(kind) => Ok(Self::Log(kind)),
                Err(_) => Err(format!("nobody is called `{name}`: {NAMES}")),
            },
            _ => Err(format!("`{text}` is nobody: {NAMES}")),
        }
    }
}

impl Contender {
    /// As reports name it.
    pub(super) fn label(self, tx: &Tx) -> String {
        match self {
            Self::Log(LogKind::Journal) => format!("evenkeel txn journal {}", tx.backend()),
            Self::Log(kind) => format!("evenkeel txn {}", kind.name()),
            Self::Raw(Batch::Clients) => "bare loop".to_owned(),
            Self::Raw(Batch::Run) => "bare loop, batches of the run".to_owned(),
            Self::Raw(Batch::Bytes(bytes)) => format!("bare loop, {bytes} B"),
            Self::Narayana(store) => format!("narayana {store}"),
        }
    }

    /// The log that it keeps decisions in; none of a bare loop.
    pub(super) fn log_name(self) -> Option<String> {
        match self {
            Self::Log(kind) => Some(kind.name()),
            Self::Raw(_) => None,
            Self::Narayana(store) => Some(store.to_string()),
        }
    }

    pub(super) fn is_narayana(self) -> bool {
        matches!(self, Self::Narayana(_))
    }

    /// Runs it once, in `folder`, which is empty; `first` is what the first one's last run cost.
    ///
    /// # Errors
    /// It does not start, or there is nothing to compare it with.
    pub(super) fn run(self, tx: &Tx, folder: &Path, node: &str, first: Costs) -> Result<Ran, Failure> {
        let load = tx.load();
        match self {
            Self::Log(kind) => {
                let options = LogOptions { backend: tx.backend(), url: tx.url.clone() };
                tx::run_once(kind, &options, folder, node, &load).map(Ran::of)
            }
            Self::Raw(batch) => {
                let (records, bytes) = batch.shape(&load, first)?;
                Ran::of_disk(folder, records, bytes, load.duration)
            }
            Self::Narayana(store) => narayana::run(store, folder, &load, tx.jvm_warm_up),
        }
    }
}

impl Batch {
    /// Records, and bytes of each.
    fn shape(self, load: &Load, first: Costs) -> Result<(u64, usize), Failure> {
        let of_log =
            first.bytes.filter(|bytes| *bytes >= 1.0 && first.syncs.is_some_and(|syncs| syncs > 0.0));
        let none = || "raw has no size: --log writes nothing to a disk; raw=512 says one".to_owned();
        let clients = load.clients() as u64;
        match self {
            Self::Bytes(bytes) => Ok((clients, bytes)),
            Self::Clients => Ok((clients, of_log.ok_or_else(none)?.round() as usize)),
            Self::Run => {
                let records = 1.0 / first.syncs.filter(|syncs| *syncs > 0.0).ok_or_else(none)?;
                Ok((records.round().max(1.0) as u64, of_log.ok_or_else(none)?.round() as usize))
            }
        }
    }
}

impl Ran {
    fn of(run: tx::Run) -> Self {
        let each = |sum: f64, count: u64| (count > 0).then(|| sum / count as f64);
        let (records, answered) = (run.log.records, run.recorder.tally.answered);
        let costs = Costs {
            syncs: each(run.log.syncs as f64, records),
            bytes: each(run.log.bytes as f64, records),
            device_bytes: each(run.device_bytes as f64, answered),
            cpu_us: each(run.cpu.as_secs_f64() * 1e6, answered),
        };
        Self { measured: one_interval(Measured::by(run.recorder, run.took, run.lost)), costs }
    }

    /// Writes so many records of so many bytes at once, syncs, and again.
    fn of_disk(folder: &Path, records: u64, bytes: usize, duration: Duration) -> Result<Self, Failure> {
        let histogram = sync_probe::run(folder, bytes * records as usize, duration)?;
        let mut recorder = Recorder { histogram, ..Recorder::default() };
        recorder.tally.answered = recorder.histogram.len() * records;
        let (syncs, bytes) = (Some(1.0 / records as f64), Some(bytes as f64));
        let costs = Costs { syncs, bytes, ..Costs::default() };
        Ok(Self { measured: one_interval(Measured::by(recorder, duration, 0)), costs })
    }
}

impl Costs {
    /// The means of `all`, where they are known.
    pub(super) fn mean(all: &[Self]) -> Self {
        let mean = |of: fn(&Self) -> Option<f64>| {
            let known: Vec<f64> = all.iter().filter_map(of).collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
        };
        Self {
            syncs: mean(|costs| costs.syncs),
            bytes: mean(|costs| costs.bytes),
            device_bytes: mean(|costs| costs.device_bytes),
            cpu_us: mean(|costs| costs.cpu_us),
        }
    }

    /// As a part of a report.
    pub(super) fn json(&self) -> Map<String, Value> {
        let syncs = self.syncs.map(significant);
        let fields = json!({
            "syncs_per_transaction": syncs,
            "bytes_per_transaction": self.bytes.map(rounded),
            "device_bytes_per_transaction": self.device_bytes.map(rounded),
            "cpu_us_per_transaction": self.cpu_us.map(rounded),
        });
        object(fields)
    }

    /// In words.
    pub(super) fn note(&self) -> String {
        let known = [
            self.syncs.map(|syncs| format!("{} syncs", significant(syncs))),
            self.bytes.map(|bytes| format!("{bytes:.0} B in the log")),
            self.device_bytes.map(|bytes| format!("{bytes:.0} B to the disk")),
            self.cpu_us.map(|us| format!("{us:.1} us of CPU")),
        ];
        let known: Vec<String> = known.into_iter().flatten().collect();
        if known.is_empty() { String::new() } else { format!("a transaction: {}", known.join(", ")) }
    }
}

/// To three digits: hundreds share a sync; and when the two counters were read, one sync may have been under way.
fn significant(number: f64) -> f64 {
    let scale = 10_f64.powi(2 - number.abs().max(1e-9).log10().floor() as i32);
    (number * scale).round() / scale
}

/// The same run, whose time series is one interval.
pub(super) fn one_interval(run: Measured) -> Measured {
    let (took, answered, failed) = (run.took, run.tally.answered, run.errors());
    let row = Row { at: took, length: took, answered, failed, latencies: run.latencies.clone() };
    Measured { rows: vec![row], ..run }
}

const NAMES: &str = "volatile, file, journal, sql, raw, raw=run, raw=BYTES, narayana or narayana=STORE";
/// Larger than any record of a decision.
const RAW_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_others_refused_with_the_list() {
        assert_eq!("journal".parse(), Ok(Contender::Log(LogKind::Journal)));
        assert_eq!("raw=512".parse(), Ok(Contender::Raw(Batch::Bytes(512))));
        let store = Store { name: "journal", is_tuned: true };
        assert_eq!("narayana=journal-tuned".parse(), Ok(Contender::Narayana(store)));
        for text in ["", "raw=", "raw=0", "raw=1e9", "journal=x", "redis"] {
            assert!(text.parse::<Contender>().is_err(), "{text}");
        }
    }

    #[test]
    fn mean_of_costs_is_of_those_that_are_known() {
        let costs = |syncs| Costs { syncs, bytes: Some(100.0), ..Costs::default() };
        let mean = Costs::mean(&[costs(Some(1.0)), costs(None), costs(Some(0.5))]);
        assert_eq!((mean.syncs, mean.bytes, mean.cpu_us), (Some(0.75), Some(100.0), None));
        assert_eq!(mean.json()["syncs_per_transaction"], 0.75);
        assert_eq!([1.000_08, 0.030_249, 0.0].map(significant), [1.0, 0.0302, 0.0]);
    }
}
