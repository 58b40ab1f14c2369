//! The room behind a sealed segment's batches: given back below the checkpoint, taken again before the file serves again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{append, dir, open, records, start, write_footer};
use journal::{Driver, Journal, Lsn, Options, SegmentId, SegmentState, check};
use vfs::sim::{Effect, Fault, Kinds};
use vfs::{SimDisk, Vfs};

const PAYLOAD: [u8; 120] = [7; 120];

/// Fills two segments with small records; the first has its footer.
fn two_sealed(disk: &SimDisk) -> (Arc<Journal>, Driver, SegmentId) {
    let (journal, mut driver) = start(disk, &Options::small());
    while journal.segments().len() < 3 {
        append(&journal, &[&PAYLOAD]).unwrap();
        driver.commit();
        driver.prepare();
    }
    let segment = journal.segments()[0].segment;
    let mut entries = Vec::new();
    let mut scanner = journal.scanner(segment).unwrap();
    assert!(!scanner.slice(1 << 30, &mut |view| entries.push(view.footer_entry(1))).unwrap());
    write_footer(&journal, segment, &entries).unwrap();
    (journal, driver, segment)
}

/// A quarter of each file of small records was room for a footer that nobody would ever read.
#[test]
fn trimmed_segment_takes_less_of_the_disk_and_reads_the_same() {
    let disk = SimDisk::new(1);
    let (journal, driver, segment) = two_sealed(&disk);
    journal.set_checkpoint("0001.ckpt", Lsn(1_000_000)).unwrap();
    let (used, counted) = (disk.used_bytes(), journal.counters().disk_bytes);
    let unfooted = journal.segments()[1].segment;
    let given_back = journal.trim(segment).unwrap() + journal.trim(unfooted).unwrap();
    assert!(given_back > 2 * (256 << 10) / 5, "{given_back} B");
    assert_eq!(disk.used_bytes(), used - given_back);
    assert_eq!(journal.counters().disk_bytes, counted - given_back);
    assert_eq!(journal.trim(segment).unwrap(), 0, "twice");
    assert_eq!(journal.segments()[0].state, SegmentState::Trimmed);
    let count = journal.next_lsn().0 - 1;
    drop((journal, driver));
    let report = check(&disk, &dir(), &journal::Content::default(), &mut |_| {}).unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    let recovery = open(&disk, &Options::small()).unwrap();
    assert_eq!(recovery.read_footer(segment).unwrap(), None);
    assert_eq!(records(&recovery).unwrap().len() as u64, count);
}

#[test]
fn crash_while_trimming_leaves_a_folder_without_damage() {
    for seed in 0..16 {
        let disk = SimDisk::new(1);
        let (journal, _driver, segment) = two_sealed(&disk);
        journal.set_checkpoint("0001.ckpt", Lsn(1_000_000)).unwrap();
        let from = disk.operations(Kinds::CHANGES);
        disk.plan(Fault::at(1 + seed % 4, Effect::PowerOff).of(Kinds::CHANGES));
        let _ = journal.trim(segment);
        assert!(disk.operations(Kinds::CHANGES) - from <= 4);
        let found = disk.crash(seed);
        let report = check(&found, &dir(), &journal::Content::default(), &mut |_| {}).unwrap();
        assert!(report.damage.is_empty(), "seed {seed}: {:?}", report.damage);
        open(&found, &Options::small()).unwrap();
    }
}

/// As [`two_sealed`], the first of them trimmed, and one more behind them.
fn one_trimmed(disk: &SimDisk) -> (Arc<Journal>, Driver, SegmentId) {
    let (journal, mut driver, segment) = two_sealed(disk);
    journal.set_checkpoint("0001.ckpt", Lsn(1_000_000)).unwrap();
    journal.trim(segment).unwrap();
    roll(&journal, &mut driver);
    (journal, driver, segment)
}

/// Appends until the next segment begins.
fn roll(journal: &Journal, driver: &mut Driver) {
    let before = journal.segments().len();
    while journal.segments().len() == before {
        append(journal, &[&PAYLOAD]).unwrap();
        driver.commit();
    }
}

/// A file with a hole would meet a full disk in the middle of a commit.
#[test]
fn file_of_a_trimmed_segment_serves_again_with_all_its_room() {
    let disk = SimDisk::new(1);
    let (journal, mut driver, segment) = one_trimmed(&disk);
    journal.retire(segment).unwrap();
    let used = disk.used_bytes();
    driver.prepare_once();
    assert_eq!(journal.counters().files_recycled, 1);
    assert!(disk.used_bytes() > used, "the hole is filled");
    disk.set_capacity(disk.used_bytes());
    roll(&journal, &mut driver);
    assert!(!journal.has_failed());
}

#[test]
fn file_of_a_trimmed_segment_is_removed_when_the_disk_is_full() {
    let disk = SimDisk::new(1);
    let (journal, mut driver, segment) = one_trimmed(&disk);
    disk.set_capacity(disk.used_bytes());
    journal.retire(segment).unwrap();
    driver.prepare_once();
    let counters = journal.counters();
    assert_eq!((counters.files_recycled, counters.files_removed), (0, 1));
    assert!(!journal.has_failed());
}

#[test]
fn file_that_a_backup_shares_stays_whole() {
    let disk = SimDisk::new(1);
    let (journal, _driver, segment) = two_sealed(&disk);
    journal.set_checkpoint("0001.ckpt", Lsn(1_000_000)).unwrap();
    disk.create_dir_all(Path::new("/out")).unwrap();
    let backup = journal.begin_backup("0001.ckpt", Lsn(1_000_000));
    journal.copy_backup(backup, Path::new("/out"), &mut |_| ()).unwrap();
    assert_eq!(journal.trim(segment).unwrap(), 0);
    let report = check(&disk, Path::new("/out"), &journal::Content::default(), &mut |_| {}).unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
}

#[test]
fn segment_that_somebody_pins_or_gave_up_is_left_alone() {
    let disk = SimDisk::new(1);
    let (journal, mut driver, segment) = two_sealed(&disk);
    let pin = journal.pin(segment).unwrap();
    assert_eq!(journal.trim(segment).unwrap(), 0);
    drop(pin);
    journal.retire(segment).unwrap();
    assert_eq!(journal.trim(segment).unwrap(), 0);
    driver.prepare();
    assert!(journal.trim(segment).is_err(), "it is no more");
}
