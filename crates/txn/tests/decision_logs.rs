//! What all decision logs promise, on a simulated disk and on a real one with threads.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clock::{SimClock, SystemClock, UnixMs};
use common::{Ear, node, tx, waiter};
use journal::{Class, Draft, Journal, Keyspace, footprint};
use txn::decision_log::file::{self, FileLog};
use txn::decision_log::journal::JournalLog;
use txn::decision_log::volatile::Volatile;
use txn::decision_log::{DecisionLog, LogError, OpenError, Opened, Refused};
use txn::id::NodeName;
use vfs::sim::{Effect, Fault, Kinds};
use vfs::{OpenOptions, RealDisk, SimDisk, Vfs};

const DIR: &str = "/decisions";
const NOW: UnixMs = UnixMs(1_795_000_000_000);

fn small() -> journal::Options {
    journal::Options { segment_size_bytes: 64 << 10, ..journal::Options::small() }
}

fn journal_by_hand(
    disk: &SimDisk,
    node: &NodeName,
) -> Result<(Opened<JournalLog>, journal::Driver), OpenError> {
    let clock = Arc::new(SimClock::new(NOW));
    JournalLog::open_manual(Arc::new(disk.clone()), clock, Path::new(DIR), node, small())
}

/// As a version wrote it that did not note the first epoch.
#[test]
fn journal_of_an_older_version_goes_on_and_may_have_decided_all_that_is_prepared() {
    let disk = SimDisk::new(1);
    let clock = Arc::new(SimClock::new(NOW));
    let older = Journal::open(Arc::new(disk.clone()), clock, Path::new(DIR), small()).unwrap();
    let (journal, mut driver) = older.start_manual(journal::Hooks::default()).unwrap();
    driver.prepare();
    let payload = [&7_u32.to_le_bytes()[..], node().as_str().as_bytes()].concat();
    let parts = [&payload[..]];
    let start = Draft::new(0xD3, Keyspace::NONE, &parts);
    let credits = journal.reserve(footprint([start.payload_len()]), Class::Write).unwrap();
    journal.append(credits, &[start], &mut Vec::new());
    driver.commit();
    drop(driver);
    drop(journal);
    let (opened, driver) = journal_by_hand(&disk, &node()).unwrap();
    assert_eq!((opened.epoch, opened.born), (8, 1));
    drop((opened, driver));
    let (opened, _driver) = journal_by_hand(&disk, &node()).unwrap();
    assert_eq!((opened.epoch, opened.born), (9, 1), "as it notes it now");
}

fn file_by_hand(disk: &SimDisk, node: &NodeName) -> Result<Opened<FileLog>, OpenError> {
    let options = file::Options { writers: 0, queue_max: 2 };
    FileLog::open(Arc::new(disk.clone()), &SimClock::new(NOW), Path::new(DIR), node, options)
}

fn record_files(disk: &SimDisk) -> Vec<PathBuf> {
    disk.files()
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| path.extension().is_some_and(|it| it == "tx"))
        .collect()
}

/// A folder that a file log has left with one record.
fn with_one_record(record: &[u8]) -> SimDisk {
    let disk = SimDisk::new(1);
    let opened = file_by_hand(&disk, &node()).unwrap();
    opened.log.write(tx(1, 1), record, &waiter(&Arc::new(Ear::default()))).unwrap();
    opened.log.close();
    disk
}

fn journal_with_threads(dir: &Path) -> Opened<JournalLog> {
    let (disk, clock) = (Arc::new(RealDisk), Arc::new(SystemClock));
    let options = journal::Options { segment_size_bytes: 1 << 20, ..journal::Options::small() };
    JournalLog::open(disk, clock, dir, &node(), options).unwrap()
}

fn file_with_threads(dir: &Path) -> Opened<FileLog> {
    FileLog::open(Arc::new(RealDisk), &SystemClock, dir, &node(), file::Options::default()).unwrap()
}

#[test]
fn volatile_log_answers_at_once_and_forgets() {
    let opened = Volatile::open(&node(), 7);
    let ear = Arc::new(Ear::default());
    opened.log.write(tx(7, 1), b"record", &waiter(&ear)).unwrap();
    assert_eq!(ear.take()[&tx(7, 1)], [Ok(())]);
    opened.log.remove(tx(7, 1));
    let counters = opened.log.counters();
    assert_eq!((opened.epoch, counters.records, counters.removed, counters.bytes), (7, 1, 1, 6));
    opened.log.close();
    assert!(matches!(opened.log.write(tx(7, 2), b"", &waiter(&ear)), Err(Refused::Closed(_))));
}

/// One decision is in doubt for ever, and thousands come and go: the folder takes no more than some segments.
#[test]
fn journal_stays_small_while_one_decision_stays_for_ever() {
    let disk = SimDisk::new(1);
    let (opened, mut driver) = journal_by_hand(&disk, &node()).unwrap();
    let (log, ear) = (opened.log, Arc::new(Ear::default()));
    log.write(tx(1, 1), b"in doubt", &waiter(&ear)).unwrap();
    let mut most = 0;
    for number in 2..6_000 {
        log.write(tx(1, number), &[7; 300], &waiter(&ear)).unwrap();
        driver.commit();
        log.remove(tx(1, number));
        if number % 16 == 0 {
            while log.tend() {
                driver.commit();
            }
            driver.prepare();
            most = most.max(disk.used_bytes());
        }
    }
    let counters = log.journal().counters();
    assert!(counters.files_recycled + counters.files_removed > 30, "segments were given up: {counters:?}");
    assert!(most < 12 * (64 << 10) + (1 << 20), "{most} B");
    let disk = disk.crash(5);
    let (opened, _) = journal_by_hand(&disk, &node()).unwrap();
    assert!(opened.records.contains(&(tx(1, 1), b"in doubt".to_vec())));
    assert!(opened.records.len() < 200, "{} came back", opened.records.len());
}

#[test]
fn journal_with_only_live_decisions_writes_none_of_them_again() {
    let disk = SimDisk::new(1);
    let (opened, mut driver) = journal_by_hand(&disk, &node()).unwrap();
    let ear = Arc::new(Ear::default());
    for number in 1..=3_000 {
        opened.log.write(tx(1, number), &[7; 100], &waiter(&ear)).unwrap();
        driver.commit();
        driver.prepare();
    }
    let before = opened.log.journal().appended_seq();
    assert!(!opened.log.tend(), "half of the log is needed: there is nothing to win");
    assert_eq!(opened.log.journal().appended_seq(), before);
}

#[test]
fn folder_of_another_node_is_refused_by_name() {
    let other = NodeName::new("other").unwrap();
    let disk = SimDisk::new(1);
    drop(file_by_hand(&disk, &node()).unwrap());
    let error = file_by_hand(&disk, &other).unwrap_err();
    assert!(
        matches!(&error, OpenError::OtherNode { found, wanted, .. } if found == "test" && wanted == "other")
    );
    let disk = SimDisk::new(1);
    drop(journal_by_hand(&disk, &node()).unwrap());
    assert!(matches!(journal_by_hand(&disk, &other), Err(OpenError::OtherNode { .. })));
}

#[test]
fn folder_that_is_open_is_in_use() {
    let disk = SimDisk::new(1);
    let _open = file_by_hand(&disk, &node()).unwrap();
    assert!(matches!(file_by_hand(&disk, &node()), Err(OpenError::InUse(_))));
    let disk = SimDisk::new(1);
    let _open = journal_by_hand(&disk, &node()).unwrap();
    assert!(matches!(journal_by_hand(&disk, &node()), Err(OpenError::InUse(_))));
}

#[test]
fn changed_bit_is_said_with_file_and_offset_and_nothing_is_handed_out() {
    let disk = with_one_record(&[7; 700]);
    disk.flip_bit(&record_files(&disk)[0], 600, 3).unwrap();
    let error = file_by_hand(&disk, &node()).unwrap_err().to_string();
    assert!(error.contains("0000000000000001.tx") && error.contains("offset 512"), "{error}");

    let disk = SimDisk::new(1);
    let (opened, mut driver) = journal_by_hand(&disk, &node()).unwrap();
    opened.log.write(tx(1, 1), &[7; 700], &waiter(&Arc::new(Ear::default()))).unwrap();
    driver.commit();
    opened.log.close();
    driver.seal();
    drop(opened);
    disk.flip_bit(Path::new("/decisions/00000001.seg"), 4_096 + 500, 3).unwrap();
    let error = journal_by_hand(&disk, &node()).unwrap_err();
    assert!(matches!(&error, OpenError::Damaged(text) if text.contains(".seg, offset")), "{error}");
}

/// Making a file and its name durable costs more than the record.
#[test]
fn file_of_a_removed_decision_takes_the_next_record_of_its_length() {
    let disk = SimDisk::new(1);
    let opened = file_by_hand(&disk, &node()).unwrap();
    let (log, ear) = (opened.log, Arc::new(Ear::default()));
    let put = |number, record: &[u8]| {
        let before = log.counters().syncs;
        log.write(tx(1, number), record, &waiter(&ear)).unwrap();
        assert!(log.help(true));
        log.counters().syncs - before
    };
    assert_eq!(put(1, &[1; 100]), 2, "a new file, and its folder");
    let first = record_files(&disk);
    log.remove(tx(1, 1));
    assert_eq!(put(2, &[2; 200]), 1, "the folder has it");
    assert_eq!(record_files(&disk), first);
    log.remove(tx(1, 2));
    assert_eq!(put(3, &[3; 700]), 2, "two sectors in place of one");
    assert_eq!(record_files(&disk).len(), 1, "what no record fits into is unlinked");
    log.remove(tx(1, 3));
    assert_eq!(put(4, &[4; 800]), 1);
    put(5, &[5; 800]);
    log.remove(tx(1, 4));
    assert_eq!(put(5, &[6; 800]), 2, "in a free file, and the older record is gone for good");
    assert_eq!(record_files(&disk).len(), 1);
    let opened = file_by_hand(&disk.crash(3), &node()).unwrap();
    assert_eq!(opened.records, [(tx(1, 5), vec![6; 800])]);
}

#[test]
fn file_that_holds_the_record_of_another_is_damage() {
    let disk = with_one_record(b"record");
    let mut bytes = [0; 512];
    let written = disk.open(&record_files(&disk)[0], OpenOptions::default()).unwrap();
    assert_eq!(written.read_at(&mut bytes, 0).unwrap(), bytes.len());
    let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let copy = disk.open(&Path::new(DIR).join("0000000000000009.tx"), options).unwrap();
    assert_eq!(copy.write_at(&bytes, 0).unwrap(), bytes.len());
    let error = file_by_hand(&disk, &node()).unwrap_err().to_string();
    assert!(error.contains("0000000000000009.tx") && error.contains("the record of another file"), "{error}");
}

#[test]
fn records_of_a_lost_node_file_are_damage_not_a_new_folder() {
    let disk = with_one_record(b"record");
    disk.remove(Path::new("/decisions/NODE")).unwrap();
    assert!(matches!(file_by_hand(&disk, &node()), Err(OpenError::Damaged(_))));
}

#[test]
fn full_queue_refuses_with_its_bound_and_without_a_trace() {
    let disk = SimDisk::new(1);
    let opened = file_by_hand(&disk, &node()).unwrap();
    let ear = Arc::new(Ear::default());
    for number in 1..=2 {
        opened.log.write(tx(1, number), b"record", &waiter(&ear)).unwrap();
    }
    let refused = opened.log.write(tx(1, 3), b"record", &waiter(&ear)).unwrap_err();
    assert!(
        matches!(&refused, Refused::Full(text) if text.contains("2 records") && text.contains("queue_max"))
    );
    while opened.log.help(true) {}
    assert_eq!(ear.take().len(), 2);
    drop(opened);
    assert_eq!(file_by_hand(&disk, &node()).unwrap().records.len(), 2);
}

#[test]
fn full_buffer_of_the_journal_refuses_by_the_name_of_its_setting() {
    let disk = SimDisk::new(1);
    let (opened, _driver) = journal_by_hand(&disk, &node()).unwrap();
    let ear = Arc::new(Ear::default());
    let refused =
        (1..).find_map(|number| opened.log.write(tx(1, number), &[7; 4_000], &waiter(&ear)).err()).unwrap();
    assert!(matches!(&refused, Refused::Busy(text) if text.contains("journal.buffer_max")), "{refused}");
}

#[test]
fn failed_sync_makes_every_waiting_record_unknown_and_ends_the_log() {
    let disk = SimDisk::new(1);
    let (opened, mut driver) = journal_by_hand(&disk, &node()).unwrap();
    let ear = Arc::new(Ear::default());
    for number in 1..=3 {
        opened.log.write(tx(1, number), b"record", &waiter(&ear)).unwrap();
    }
    disk.plan(Fault::at(1, Effect::Eio).of(Kinds::SYNC));
    driver.commit();
    let heard = ear.take();
    assert_eq!(heard.len(), 3);
    assert!(heard.values().all(|words| matches!(words[..], [Err(LogError::Unknown(_))])), "{heard:?}");
    assert!(!opened.log.is_sound());
    assert!(matches!(opened.log.write(tx(1, 4), b"", &waiter(&ear)), Err(Refused::Closed(_))));
}

#[test]
fn failed_sync_of_one_file_leaves_those_that_were_not_begun_absent() {
    let disk = SimDisk::new(1);
    let opened = file_by_hand(&disk, &node()).unwrap();
    let ear = Arc::new(Ear::default());
    for number in 1..=2 {
        opened.log.write(tx(1, number), b"record", &waiter(&ear)).unwrap();
    }
    disk.plan(Fault::at(1, Effect::Eio).of(Kinds::SYNC));
    opened.log.help(true);
    let heard = ear.take();
    assert!(matches!(heard[&tx(1, 1)][..], [Err(LogError::Unknown(_))]), "{heard:?}");
    assert!(matches!(heard[&tx(1, 2)][..], [Err(LogError::Absent(_))]), "{heard:?}");
    assert!(!opened.log.is_sound());
}

/// Threads with and without help, on a real disk: all are told, and what they did not remove is there at the next start.
fn many_threads(log: &dyn DecisionLog, threads: u64, each: u64) -> BTreeSet<txn::id::TxId> {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let ear = Arc::new(Ear::default());
                for n in 0..each {
                    let tx = tx(1, 1 + thread * each + n);
                    log.write(tx, &tx.number.to_le_bytes(), &waiter(&ear)).unwrap();
                    if thread % 2 == 1 || !log.help(true) {
                        log.offer();
                    }
                    ear.wait(tx).unwrap();
                    if n % 4 != 0 {
                        log.remove(tx);
                    }
                }
            });
        }
    });
    (0..threads * each).filter(|n| (n % each).is_multiple_of(4)).map(|n| tx(1, 1 + n)).collect()
}

#[test]
fn records_of_many_threads_are_there_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let opened = journal_with_threads(folder.path());
    let first = opened.epoch;
    let kept = many_threads(&*opened.log, 8, 400);
    let counters = opened.log.counters();
    assert_eq!((counters.records, counters.removed), (3_200, 2_400));
    assert!(counters.syncs <= 3_201, "{counters:?}");
    opened.log.close();
    drop(opened);
    let opened = journal_with_threads(folder.path());
    assert_eq!((opened.epoch, opened.born), (first + 1, first));
    assert_eq!(opened.records.iter().map(|(tx, _)| *tx).collect::<BTreeSet<_>>(), kept);
    assert!(opened.records.iter().all(|(tx, record)| record[..] == tx.number.to_le_bytes()));

    let folder = tempfile::tempdir().unwrap();
    let opened = file_with_threads(folder.path());
    let kept = many_threads(&*opened.log, 4, 40);
    opened.log.close();
    drop(opened);
    let opened = file_with_threads(folder.path());
    assert_eq!(opened.records.iter().map(|(tx, _)| *tx).collect::<BTreeSet<_>>(), kept);
}

/// More threads than may write at a time leave records to the writers; what nobody said that he waits for is written when the log is closed.
#[test]
fn file_log_with_fewer_writers_than_threads_writes_all_records() {
    let folder = tempfile::tempdir().unwrap();
    let options = file::Options { writers: 2, ..file::Options::default() };
    let opened = FileLog::open(Arc::new(RealDisk), &SystemClock, folder.path(), &node(), options).unwrap();
    let mut kept = many_threads(&*opened.log, 12, 40);
    let ear = Arc::new(Ear::default());
    for tx in (1..=5).map(|number| tx(1, 10_000 + number)) {
        opened.log.write(tx, &tx.number.to_le_bytes(), &waiter(&ear)).unwrap();
        kept.insert(tx);
    }
    opened.log.close();
    assert!(ear.take().values().all(|heard| heard[..] == [Ok(())]));
    drop(opened);
    let opened = file_with_threads(folder.path());
    assert_eq!(opened.records.iter().map(|(tx, _)| *tx).collect::<BTreeSet<_>>(), kept);
}

/// Files of removed decisions go although no record follows that takes them along.
#[test]
fn files_of_removed_decisions_go_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let opened = file_with_threads(folder.path());
    let ear = Arc::new(Ear::default());
    let files = || RealDisk.list(folder.path()).unwrap().iter().filter(|name| name.ends_with(".tx")).count();
    for round in 0..3 {
        let all = (1..=5).map(|number| tx(1, round * 5 + number)).collect::<Vec<_>>();
        for tx in &all {
            opened.log.write(*tx, b"record", &waiter(&ear)).unwrap();
        }
        opened.log.offer();
        all.iter().for_each(|tx| ear.wait(*tx).unwrap());
        assert_eq!(files(), 5);
        all.iter().for_each(|tx| opened.log.remove(*tx));
        while files() > 0 {
            std::thread::yield_now();
        }
    }
}
