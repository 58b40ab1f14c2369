//! Damage at start, `salvage` and `backup` as an operator meets them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{append, clock, dir, open, records, start};
use journal::{Hooks, Journal, JournalError, Keep, Lsn, Options, check, salvage};
use vfs::{OpenOptions, SimDisk, Vfs};

fn filled(disk: &SimDisk, clean: bool) {
    let (journal, mut driver) = start(disk, &Options::small());
    for n in 0_u32..400 {
        append(&journal, &[&n.to_le_bytes().repeat(300), b"pair"]).unwrap();
        driver.commit();
        driver.prepare();
    }
    if clean {
        journal.close();
        driver.seal();
    }
}

#[test]
fn flipped_payload_is_reported_refused_at_start_and_skipped_by_salvage() {
    let disk = SimDisk::new(1);
    filled(&disk, true);
    let report = check(&disk, &dir(), &journal::Content::default(), &mut |_| {}).unwrap();
    let file = report.segments[0].info.file.file_name();
    disk.flip_bit(&dir().join(&file), 10_000, 3).unwrap();
    let report = check(&disk, &dir(), &journal::Content::default(), &mut |_| {}).unwrap();
    assert_eq!(report.damage.len(), 1, "{:?}", report.damage);
    assert_eq!(report.damage[0].file, file);
    let recovery = open(&disk, &Options::small()).unwrap();
    assert!(matches!(records(&recovery), Err(JournalError::Damaged { .. })));
    drop(recovery);
    let vfs: Arc<dyn Vfs> = Arc::new(disk);
    let time: Arc<dyn clock::Clock> = clock();
    let out = Path::new("/out");
    let report = salvage(&vfs, &time, &dir(), out, &Options::small(), &mut |_| Keep::AsItIs).unwrap();
    assert_eq!((report.records_copied, report.gaps), (798, 1), "{report:?}");
    let again = Journal::open(vfs, clock(), out, Options::small()).unwrap();
    let found = records(&again).unwrap();
    assert_eq!(found.len(), 798);
    assert!(again.clean() && found.windows(2).all(|pair| pair[0].1 < pair[1].1), "order of effects is kept");
    assert_eq!(again.identity().folder, 0xf01d);
    assert_eq!(again.next_seq().0, 801, "no seq is given twice");
}

#[test]
fn salvage_without_a_manifest_names_the_lsns_that_are_in_no_file() {
    let disk = SimDisk::new(1);
    filled(&disk, false);
    let report = check(&disk, &dir(), &journal::Content::default(), &mut |_| {}).unwrap();
    let gone = report.segments[1].info;
    disk.remove(&dir().join(gone.file.file_name())).unwrap();
    disk.remove(&dir().join(journal::MANIFEST_NAME)).unwrap();
    let vfs: Arc<dyn Vfs> = Arc::new(disk);
    let time: Arc<dyn clock::Clock> = clock();
    let out = Path::new("/out");
    let report = salvage(&vfs, &time, &dir(), out, &Options::small(), &mut |_| Keep::AsItIs).unwrap();
    assert_eq!(report.missing, [(gone.first_lsn, gone.last_lsn)], "{report:?}");
    assert_eq!(report.records_copied, 800 - (gone.last_lsn.0 - gone.first_lsn.0 + 1));
    let again = Journal::open(vfs, clock(), out, Options::small()).unwrap();
    assert_eq!(again.identity().folder, 0xf01d, "as the headers say");
    assert!(
        records(&again).unwrap().windows(2).all(|pair| pair[0].1 < pair[1].1),
        "order of effects is kept"
    );
}

/// A start that was cut short leaves the tail in two files: neither its records twice, nor the older copy for the newer.
#[test]
fn salvage_without_a_manifest_takes_the_fuller_of_two_files_of_one_segment() {
    let disk = SimDisk::new(1);
    filled(&disk, false);
    let before = disk.process_death();
    let last = check(&before, &dir(), &journal::Content::default(), &mut |_| {})
        .unwrap()
        .segments
        .last()
        .unwrap()
        .info
        .file
        .file_name();
    let older = before.open(&dir().join(&last), OpenOptions::default()).unwrap();
    let mut bytes = vec![0; older.len().unwrap() as usize];
    older.read_at(&mut bytes, 0).unwrap();
    let disk = before.fork();
    let (journal, mut driver) = start(&disk, &Options::small());
    append(&journal, &[b"after the start"]).unwrap();
    driver.commit();
    drop((journal, driver));
    let disk = disk.process_death();
    let create = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    disk.open(&dir().join(&last), create).unwrap().write_at(&bytes, 0).unwrap();
    disk.remove(&dir().join(journal::MANIFEST_NAME)).unwrap();
    let vfs: Arc<dyn Vfs> = Arc::new(disk);
    let time: Arc<dyn clock::Clock> = clock();
    let out = Path::new("/out");
    let report = salvage(&vfs, &time, &dir(), out, &Options::small(), &mut |_| Keep::AsItIs).unwrap();
    assert_eq!(report.records_copied, 801, "{report:?}");
    assert!(report.assumed.iter().any(|what| what.contains(&last)), "{report:?}");
}

#[test]
fn damaged_tail_under_a_stamp_is_refused_with_file_and_offset() {
    let disk = SimDisk::new(1);
    let (journal, mut driver) = start(&disk, &Options::small());
    let (addresses, ..) = append(&journal, &[b"acknowledged"]).unwrap();
    driver.commit();
    assert!(driver.stamp());
    assert!(!driver.stamp(), "one stamp vouches for all before it");
    let file = journal.segments()[0].file.file_name();
    drop((journal, driver));
    disk.flip_bit(&dir().join(&file), addresses[0].offset_bytes() + 50, 0).unwrap();
    let error = open(&disk, &Options::small()).unwrap_err().to_string();
    assert!(error.contains(&file) && error.contains("offset 4096") && error.contains("--salvage"), "{error}");
}

#[test]
fn tail_that_never_became_durable_is_cut_without_a_word_of_damage() {
    let disk = SimDisk::new(1);
    let (journal, mut driver) = start(&disk, &Options::small());
    append(&journal, &[b"kept"]).unwrap();
    driver.commit();
    let (addresses, ..) = append(&journal, &[b"torn"]).unwrap();
    driver.commit();
    let file = journal.segments()[0].file.file_name();
    drop((journal, driver));
    disk.flip_bit(&dir().join(&file), addresses[0].offset_bytes() + 50, 0).unwrap();
    let report = check(&disk, &dir(), &journal::Content::default(), &mut |_| {}).unwrap();
    assert!(report.damage.is_empty() && report.torn.is_some(), "{report:?}");
    let recovery = open(&disk, &Options::small()).unwrap();
    assert_eq!(recovery.torn().map(|torn| torn.lsn), Some(Lsn(2)));
    assert_eq!(records(&recovery).unwrap().len(), 1);
}

#[test]
fn newer_folder_and_missing_files_are_refused_with_one_clear_error() {
    let disk = SimDisk::new(1);
    filled(&disk, true);
    let newer = disk.fork();
    newer.flip_bit(&common::path("MANIFEST"), 7, 0).unwrap();
    let error = open(&newer, &Options::small()).unwrap_err();
    assert!(error.to_string().contains("newer version"), "{error}");
    let file = check(&disk, &dir(), &journal::Content::default(), &mut |_| {}).unwrap().segments[0]
        .info
        .file
        .file_name();
    let missing = disk.fork();
    missing.remove(&common::path(&file)).unwrap();
    let error = open(&missing, &Options::small()).unwrap_err();
    assert!(matches!(&error, JournalError::Damaged { .. }) && error.to_string().contains(&file), "{error}");
    disk.remove(&common::path("MANIFEST")).unwrap();
    let error = open(&disk, &Options::small()).unwrap_err();
    assert!(error.to_string().contains("manifest is missing"), "{error}");
}

#[test]
fn backup_of_a_running_journal_opens_with_everything_that_was_durable() {
    let disk = SimDisk::new(1);
    let (journal, mut driver) = start(&disk, &Options::small());
    for n in 0_u32..300 {
        append(&journal, &[&n.to_le_bytes().repeat(300)]).unwrap();
        driver.commit();
        driver.prepare();
    }
    append(&journal, &[b"not durable yet"]).unwrap();
    let out = Path::new("/backup");
    assert_eq!(journal.backup(out, "c.ckpt", Lsn(7)).unwrap(), Lsn(300));
    assert!(journal.backup(out, "c.ckpt", Lsn(7)).is_err(), "a second backup into the same folder");
    let oldest = journal.segments()[0];
    journal.retire(oldest.segment).unwrap();
    driver.prepare();
    assert_eq!(
        (journal.counters().files_recycled, journal.counters().files_removed),
        (0, 1),
        "linked: not recycled"
    );
    for _ in 0..300 {
        append(&journal, &[&[5_u8; 1000]]).unwrap();
        driver.commit();
        driver.prepare();
    }
    let copy = Journal::open(Arc::new(disk), clock(), out, Options::small()).unwrap();
    assert_eq!(copy.checkpoint().map(|found| (found.name.as_str(), found.lsn)), Some(("c.ckpt", Lsn(7))));
    let found = records(&copy).unwrap();
    assert_eq!(found.len(), 300);
    let (restored, mut copy_driver) = copy.start_manual(Hooks::default()).unwrap();
    copy_driver.prepare();
    append(&restored, &[b"goes on"]).unwrap();
    copy_driver.commit();
    assert_eq!(restored.durable_lsn(), Lsn(301));
}
