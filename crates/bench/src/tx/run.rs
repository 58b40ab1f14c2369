//! One run: a fresh log, a coordinator, the load, and what the log holds afterwards.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clock::SystemClock;
use txn::coordinator::{self, Coordinator, Started};
use txn::decision_log::LogCounters;
use txn::dummy::Dummy;
use txn::id::NodeName;
use txn::resource::Resource;

use super::Load;
use super::clients::{self, Totals};
use super::log::{LogKind, LogOptions};
use crate::drive::Recorder;
use crate::{Failure, Named};

/// What a run came to.
#[derive(Debug)]
pub struct Run {
    /// Commits of the part that counts, from the call to the outcome; what failed at any time are its failures.
    pub recorder: Recorder,
    /// How long that part was.
    pub took: Duration,
    /// Commits that were reported and have no record in the log's count.
    pub lost: u64,
    /// What the log did in that part.
    pub log: LogCounters,
    /// Bytes that the system wrote to disks for this process in it.
    pub device_bytes: u64,
    /// Processor time of this process in it, the load's included.
    pub cpu: Duration,
}

/// Commits as `node` on a log of this `kind`, kept in `folder`, which is empty.
///
/// # Errors
/// The log does not open, or holds something; a thread cannot be started.
pub fn run_once(
    kind: LogKind,
    options: &LogOptions,
    folder: &Path,
    node: &str,
    load: &Load,
) -> Result<Run, Failure> {
    let node = NodeName::new(node).map_err(|error| error.to_string())?;
    let opened = kind.open(folder, &node, options)?;
    if !opened.records.is_empty() {
        return Err(format!("a fresh log {} holds {} records", kind.name(), opened.records.len()));
    }
    let epoch = opened.epoch;
    let started = Started { epoch, born: opened.born, records: opened.records };
    let resources: Vec<Arc<dyn Resource>> = vec![Arc::new(Dummy::new("one")), Arc::new(Dummy::new("two"))];
    let mut settings = coordinator::Options::new(node.clone());
    settings.transactions_max = settings.transactions_max.max(2 * load.clients() as u64);
    let coordinator = Coordinator::start(Arc::new(SystemClock), opened.log, &started, resources, settings)
        .map_err(|error| error.to_string())?;
    let totals = clients::drive(&coordinator, load);
    coordinator.close();
    let records = coordinator.log_counters().records;
    drop(coordinator);
    let mut run = Run::of(totals?, records);
    if kind.is_kept() {
        run.look_again(kind, options, folder, &node, epoch)?;
    }
    Ok(run)
}

impl Run {
    /// `records`: how many the log had written when it was closed.
    fn of(totals: Totals, records: u64) -> Self {
        let Totals { recorder, committed, took, before, after } = totals;
        Self {
            recorder,
            took,
            lost: committed.saturating_sub(records),
            log: LogCounters {
                records: after.log.records - before.log.records,
                removed: after.log.removed - before.log.removed,
                syncs: after.log.syncs - before.log.syncs,
                bytes: after.log.bytes - before.log.bytes,
            },
            device_bytes: after.device_bytes.saturating_sub(before.device_bytes),
            cpu: after.cpu.saturating_sub(before.cpu),
        }
    }

    /// Opens the closed log again: it must hold nothing, and begin another epoch.
    fn look_again(
        &mut self,
        kind: LogKind,
        options: &LogOptions,
        folder: &Path,
        node: &NodeName,
        epoch: u32,
    ) -> Result<(), Failure> {
        let again = kind.open(folder, node, options).map_err(|error| format!("after the run: {error}"))?;
        again.log.close();
        if !again.records.is_empty() {
            let left = format!("{} records are left after a clean stop", again.records.len());
            self.recorder.tally.failures.error_reply(left.as_bytes());
        }
        if again.epoch <= epoch {
            let said = format!("epoch {} after epoch {epoch}: numbers would come twice", again.epoch);
            self.recorder.tally.failures.error_reply(said.as_bytes());
        }
        Ok(())
    }
}
