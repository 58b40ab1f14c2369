//! Power loss, death and errors at any I/O of the file log and the journal log, on a simulated disk.
//!
//! Whatever happens: a record whose waiter heard `Ok` and that was not removed is found; what is found was written, and is no older
//! than what was acknowledged; what was said to be absent or refused is never found, nor is what an earlier start did not find; the
//! epoch grows. `EVENKEEL_SEEDS=20000` runs more than the 500 of CI.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use clock::{SimClock, UnixMs};
use common::{Ear, node, waiter};
use txn::decision_log::file::{self, FileLog};
use txn::decision_log::journal::JournalLog;
use txn::decision_log::{DecisionLog, LogError, OpenError};
use txn::id::TxId;
use vfs::SimDisk;
use vfs::sim::{Effect, Fault, Kinds, Rng};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Journal,
}

/// A log, and who does its work.
struct Rig {
    log: Arc<dyn DecisionLog>,
    journal: Option<(Arc<JournalLog>, journal::Driver)>,
}

/// A log that is open: the rig, its epoch and what it held.
type Open = (Rig, u32, Vec<(TxId, Vec<u8>)>);

impl Rig {
    fn open(kind: Kind, disk: &SimDisk) -> Result<Open, OpenError> {
        let (vfs, dir) = (Arc::new(disk.clone()), Path::new("/decisions"));
        if kind == Kind::File {
            let options = file::Options { writers: 0, queue_max: 4 };
            let opened =
                FileLog::open(vfs, &SimClock::new(UnixMs(1_795_000_000_000)), dir, &node(), options)?;
            return Ok((Self { log: opened.log, journal: None }, opened.epoch, opened.records));
        }
        let clock = Arc::new(SimClock::new(UnixMs(1_795_000_000_000)));
        let options = journal::Options { segment_size_bytes: 64 << 10, ..journal::Options::small() };
        let (opened, driver) = JournalLog::open_manual(vfs, clock, dir, &node(), options)?;
        let journal = Some((Arc::clone(&opened.log), driver));
        Ok((Self { log: opened.log, journal }, opened.epoch, opened.records))
    }

    /// Some of the work that threads would do.
    fn work(&mut self, rng: &mut Rng) {
        let choice = rng.below(6);
        match &mut self.journal {
            Some((_, driver)) if choice == 0 => drop(driver.commit_once()),
            Some((_, driver)) if choice == 1 => drop(driver.commit()),
            Some((_, driver)) if choice == 2 => drop(driver.prepare()),
            Some((log, driver)) if choice == 3 => {
                driver.stamp();
                log.tend();
            }
            _ if choice < 5 => drop(self.log.help(true)),
            _ => {}
        }
    }

    fn close(self) {
        self.log.close();
        if let Some((_, driver)) = self.journal {
            driver.seal();
        }
    }
}

/// A record of a transaction, and what its waiter heard.
#[derive(Debug)]
struct Version {
    record: Vec<u8>,
    heard: Option<Result<(), LogError>>,
}

/// What may be found.
#[derive(Debug, Default)]
struct Model {
    txs: BTreeMap<TxId, (Vec<Version>, bool)>,
    epoch: u32,
    number: u64,
    /// All records are of this length, if not of any.
    record_bytes: Option<usize>,
}

impl Model {
    /// Compares what a start found with what it may find, and takes it for what is known.
    fn check(&mut self, epoch: u32, found: Vec<(TxId, Vec<u8>)>, context: &str) {
        assert!(epoch > self.epoch, "{context}: epoch {epoch} after {}", self.epoch);
        self.epoch = epoch;
        let mut known = BTreeMap::new();
        for (tx, record) in found {
            let Some((versions, removed)) = self.txs.get(&tx) else { panic!("{context}: {tx} is invented") };
            let acked = versions.iter().rposition(|version| version.heard == Some(Ok(())));
            let allowed = versions.iter().enumerate().any(|(n, version)| {
                let is_absent = matches!(version.heard, Some(Err(LogError::Absent(_))));
                version.record == record && !is_absent && acked.is_none_or(|acked| n >= acked)
            });
            assert!(allowed, "{context}: {tx} was found with another record: {versions:?}");
            let version = Version { record, heard: Some(Ok(())) };
            let before = known.insert(tx, (vec![version], *removed));
            assert!(before.is_none(), "{context}: {tx} was found twice");
        }
        for (tx, (versions, removed)) in &self.txs {
            let is_acked = versions.iter().any(|version| version.heard == Some(Ok(())));
            assert!(!is_acked || *removed || known.contains_key(tx), "{context}: {tx} is missing");
        }
        self.txs = known;
    }

    fn hear(&mut self, ear: &Ear, context: &str) {
        for (tx, words) in ear.take() {
            let (versions, _) = self.txs.get_mut(&tx).unwrap();
            let mut waiting = versions.iter_mut().filter(|version| version.heard.is_none());
            for word in words {
                let version = waiting.next().unwrap_or_else(|| panic!("{context}: {tx} heard too often"));
                version.heard = Some(word);
            }
        }
    }

    fn write(&mut self, log: &dyn DecisionLog, ear: &Arc<Ear>, rng: &mut Rng) {
        let known: Vec<TxId> = self.txs.keys().copied().collect();
        let again = rng.chance(1, 8) && !known.is_empty();
        // One record of a transaction at a time and none after its removal, as its machine does it.
        let is_quiet = |tx: &TxId| {
            let (versions, removed) = &self.txs[tx];
            !removed && versions.iter().all(|version| version.heard.is_some())
        };
        let tx = match known.get(rng.index(known.len())).filter(|tx| again && is_quiet(tx)) {
            Some(tx) => *tx,
            None => {
                self.number += 1;
                TxId { epoch: self.epoch, number: self.number }
            }
        };
        let bytes = if rng.chance(1, 10) { 3_000 } else { 1 + rng.index(600) };
        let bytes = self.record_bytes.unwrap_or(bytes);
        let seed = rng.bits();
        let record: Vec<u8> = seed.to_le_bytes().into_iter().cycle().take(bytes).collect();
        let entry = self.txs.entry(tx).or_default();
        entry.0.push(Version { record: record.clone(), heard: None });
        if log.write(tx, &record, &waiter(ear)).is_err() {
            entry.0.pop();
            if entry.0.is_empty() {
                self.txs.remove(&tx);
            }
        }
    }

    fn remove(&mut self, log: &dyn DecisionLog, rng: &mut Rng) {
        let quiet = |(tx, (versions, _)): (&TxId, &(Vec<Version>, bool))| {
            versions.iter().all(|version| version.heard == Some(Ok(()))).then_some(*tx)
        };
        let known: Vec<TxId> = self.txs.iter().filter_map(quiet).collect();
        // One stays for ever: the first.
        if let Some(tx) = known.get(1 + rng.index(known.len().saturating_sub(1))) {
            log.remove(*tx);
            self.txs.get_mut(tx).unwrap().1 = true;
        }
    }
}

/// One start: opens, compares, works; true when it ended with a clean stop.
fn life(kind: Kind, disk: &SimDisk, model: &mut Model, rng: &mut Rng, context: &str) -> bool {
    let (mut rig, epoch, found) = match Rig::open(kind, disk) {
        Ok(opened) => opened,
        Err(error) => {
            assert!(
                !matches!(error, OpenError::Damaged(_) | OpenError::OtherNode { .. }),
                "{context}: {error}"
            );
            return false;
        }
    };
    model.check(epoch, found, context);
    let ear = Arc::new(Ear::default());
    let steps = 20 + rng.below(100);
    for _ in 0..steps {
        match rng.below(8) {
            0..4 => model.write(&*rig.log, &ear, rng),
            4..6 => model.remove(&*rig.log, rng),
            _ => {}
        }
        rig.work(rng);
        model.hear(&ear, context);
    }
    let closes = rng.chance(1, 3);
    let log = Arc::clone(&rig.log);
    if closes {
        let was_sound = log.is_sound();
        rig.close();
        model.hear(&ear, context);
        let all_heard =
            || model.txs.values().flat_map(|(versions, _)| versions).all(|version| version.heard.is_some());
        assert!(!was_sound || !disk.is_powered() || all_heard(), "{context}: a stop leaves somebody waiting");
    } else {
        std::mem::forget((rig, log)); // a process that dies closes nothing
    }
    closes
}

fn run(kind: Kind, seed: u64) {
    let mut rng = Rng::new(seed);
    let (mut disk, mut model) = (SimDisk::new(seed), Model::default());
    // Files of one length, and of many sectors, are used again and again.
    model.record_bytes = [None, None, Some(100), Some(3_000)][rng.index(4)];
    for number in 0..6 {
        let context = format!("{kind:?}, seed {seed}, life {number}");
        let effects = [Effect::PowerOff, Effect::Eio, Effect::Enospc, Effect::ShortWrite(100)];
        if number < 5 && rng.chance(2, 3) {
            let kinds = [Kinds::CHANGES, Kinds::SYNC | Kinds::SYNC_DIR, Kinds::WRITE][rng.index(3)];
            // Only a write can be short.
            let count = if kinds == Kinds::WRITE { 4 } else { 3 };
            disk.plan(Fault::at(1 + rng.below(150), effects[rng.index(count)]).of(kinds));
        }
        life(kind, &disk, &mut model, &mut rng, &context);
        let crash = rng.bits();
        disk = if rng.chance(1, 4) && disk.is_powered() { disk.process_death() } else { disk.crash(crash) };
    }
    let (rig, epoch, found) =
        Rig::open(kind, &disk).unwrap_or_else(|error| panic!("{kind:?}, seed {seed}: {error}"));
    model.check(epoch, found, &format!("{kind:?}, seed {seed}, at the end"));
    rig.close();
}

fn seeds() -> u64 {
    std::env::var("EVENKEEL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(500)
}

#[test]
fn file_log_keeps_what_it_acknowledged_over_random_crashes_and_errors() {
    (0..seeds()).for_each(|seed| run(Kind::File, seed));
}

#[test]
fn journal_log_keeps_what_it_acknowledged_over_random_crashes_and_errors() {
    (0..seeds()).for_each(|seed| run(Kind::Journal, seed));
}

/// The same run with a fault at the Nth operation, for each N.
#[test]
fn fault_at_each_of_the_first_operations_loses_nothing() {
    for kind in [Kind::File, Kind::Journal] {
        for effect in [Effect::PowerOff, Effect::Eio, Effect::Enospc] {
            for nth in 1..=120 {
                let context = format!("{kind:?}, {effect:?} at operation {nth}");
                let (mut rng, mut model) = (Rng::new(7), Model::default());
                let mut disk = SimDisk::new(nth);
                disk.plan(Fault::at(nth, effect).of(Kinds::CHANGES));
                for _ in 0..3 {
                    life(kind, &disk, &mut model, &mut rng, &context);
                    disk = disk.crash(rng.bits());
                }
                let (rig, epoch, found) =
                    Rig::open(kind, &disk).unwrap_or_else(|error| panic!("{context}: {error}"));
                model.check(epoch, found, &context);
                rig.close();
            }
        }
    }
}
