//! Damage at start, `salvage` and `backup` as an operator meets them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{append, clock, dir, open, records, start};
use journal::{Choice, Hooks, Journal, JournalError, Keep, Lsn, Options, check, salvage};
use vfs::{OpenOptions, SimDisk, Vfs};

fn everything<'c>(wanted: &'c mut dyn FnMut(&journal::RecordView<'_>) -> Keep) -> Choice<'c> {
    Choice { wanted, mends: |_| true }
}

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
fn hurt_payload_is_reported_refused_at_start_and_costs_its_record_alone_in_salvage() {
    let disk = SimDisk::new(1);
    filled(&disk, true);
    let report = check(&disk, &dir(), &journal::Content::default(), &mut |_| {}).unwrap();
    let file = report.segments[0].info.file.file_name();
    (0..9).for_each(|at| disk.flip_bit(&dir().join(&file), 10_000 + at, 3).unwrap());
    let report = check(&disk, &dir(), &journal::Content::default(), &mut |_| {}).unwrap();
    assert_eq!(report.damage.len(), 1, "{:?}", report.damage);
    assert_eq!(report.damage[0].file, file);
    let recovery = open(&disk, &Options::small()).unwrap();
    assert!(matches!(records(&recovery), Err(JournalError::Damaged { .. })));
    drop(recovery);
    let vfs: Arc<dyn Vfs> = Arc::new(disk);
    let time: Arc<dyn clock::Clock> = clock();
    let out = Path::new("/out");
    let report =
        salvage(&vfs, &time, &dir(), out, &Options::small(), everything(&mut |_| Keep::AsItIs)).unwrap();
    assert_eq!((report.records_copied, report.records_lost, report.gaps), (799, 1, 1), "{report:?}");
    let again = Journal::open(vfs, clock(), out, Options::small()).unwrap();
    let found = records(&again).unwrap();
    assert_eq!(found.len(), 799);
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
    let report =
        salvage(&vfs, &time, &dir(), out, &Options::small(), everything(&mut |_| Keep::AsItIs)).unwrap();
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
    let report =
        salvage(&vfs, &time, &dir(), out, &Options::small(), everything(&mut |_| Keep::AsItIs)).unwrap();
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
    let backup =
        |pace: &mut dyn FnMut(u64)| journal.copy_backup(journal.begin_backup("c.ckpt", Lsn(7)), out, pace);
    assert_eq!(backup(&mut |_| ()).unwrap(), Lsn(300));
    assert!(backup(&mut |_| ()).is_err(), "a second backup into the same folder");
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

fn saved(disk: &SimDisk) -> (journal::SalvageReport, Vec<Vec<u8>>) {
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let time: Arc<dyn clock::Clock> = clock();
    let out = Path::new("/out");
    let report =
        salvage(&vfs, &time, &dir(), out, &Options::small(), everything(&mut |_| Keep::AsItIs)).unwrap();
    let again = Journal::open(vfs, clock(), out, Options::small()).unwrap();
    let found = records(&again).unwrap().into_iter().map(|(_, _, payload, _)| payload).collect();
    (report, found)
}

#[test]
fn salvage_into_a_folder_with_anything_in_it_is_refused_and_changes_nothing_there() {
    let disk = SimDisk::new(1);
    filled(&disk, true);
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let time: Arc<dyn clock::Clock> = clock();
    // the folder of another server, which was stopped
    let out = Path::new("/out");
    saved(&disk);
    let content = || {
        let names = vfs.list(out).unwrap();
        let bytes = names.iter().map(|name| {
            let file = vfs.open(&out.join(name), OpenOptions::default()).unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
            bytes
        });
        (bytes.collect::<Vec<_>>(), names)
    };
    let before = content();
    let again = salvage(&vfs, &time, &dir(), out, &Options::small(), everything(&mut |_| Keep::AsItIs));
    let refused = again.unwrap_err().to_string();
    assert!(refused.starts_with("/out is not empty (it holds "), "{refused}");
    assert!(content() == before, "it is as it was");
}

/// A clean stop after batches of `records` records each, and where each record's header lies.
fn batches(batches: u32, records: u32) -> (SimDisk, std::path::PathBuf, Vec<u64>) {
    let disk = SimDisk::new(1);
    let (journal, mut driver) = start(&disk, &Options::small());
    for batch in 0..batches {
        for n in 0..records {
            append(&journal, &[format!("record {batch}.{n} {}", "v".repeat(n as usize)).as_bytes()]).unwrap();
        }
        driver.commit();
    }
    journal.close();
    driver.seal();
    drop(journal);
    let disk = disk.process_death();
    let mut offsets = Vec::new();
    let report = check(&disk, &dir(), &journal::Content::default(), &mut |view| {
        offsets.push(view.address.offset_bytes());
    })
    .unwrap();
    (disk, dir().join(report.segments[0].info.file.file_name()), offsets)
}

fn blur(disk: &SimDisk, file: &Path, from: u64, bytes: u64) {
    (from..from + bytes).for_each(|at| disk.flip_bit(file, at, (at % 8) as u8).unwrap());
}

/// One bit of one value cost the whole batch: a pipeline of 2,000 commands.
#[test]
fn salvage_keeps_each_record_whose_own_checksum_holds() {
    let (disk, file, offsets) = batches(3, 100);
    // a payload of the first batch, a header of the second, the batch header of the third and the record behind it
    blur(&disk, &file, offsets[40] + 50, 5);
    blur(&disk, &file, offsets[150] + 8, 7);
    blur(&disk, &file, offsets[200] - 64 + 8, 6);
    blur(&disk, &file, offsets[200] + 3, 6);
    let (report, found) = saved(&disk);
    assert_eq!(
        (report.records_copied, report.records_lost, report.records_mended),
        (297, 3, 0),
        "{report:?}"
    );
    assert_eq!(found.len(), 297);
    let is_lost = |wanted: &str| !found.iter().any(|payload| payload.starts_with(wanted.as_bytes()));
    assert!(is_lost("record 0.40 ") && is_lost("record 1.50 ") && is_lost("record 2.0 "));
}

#[test]
fn salvage_puts_one_wrong_bit_of_a_short_record_right() {
    for at in (0..48).chain([48, 55, 61]) {
        let (disk, file, offsets) = batches(2, 20);
        disk.flip_bit(&file, offsets[7] + at, 2).unwrap();
        let (report, found) = saved(&disk);
        assert_eq!(
            (report.records_copied, report.records_mended, report.records_lost),
            (40, 1, 0),
            "byte {at}"
        );
        assert!(found[7].starts_with(b"record 0.7 "));
    }
}

/// The end of the open segment may never have been durable: as before, whole groups of whole batches are taken from it.
#[test]
fn salvage_takes_no_part_of_a_batch_for_which_nothing_vouches() {
    let disk = SimDisk::new(1);
    let (journal, mut driver) = start(&disk, &Options::small());
    append(&journal, &[b"first"]).unwrap();
    driver.commit();
    (0..50_u32).for_each(|n| _ = append(&journal, &[&n.to_le_bytes()[..]]).unwrap());
    driver.commit();
    drop((journal, driver));
    let disk = disk.process_death();
    let mut last = Vec::new();
    let report =
        check(&disk, &dir(), &journal::Content::default(), &mut |view| last.push(view.address)).unwrap();
    let file = dir().join(report.segments[0].info.file.file_name());
    blur(&disk, &file, last[30].offset_bytes() + 48, 3);
    assert_eq!(saved(&disk).1, [b"first"]);
}

/// A record that stated 2^63 - 1 as its sequence number ended salvage, and one that stated 2^32 made commands wait for ever: each was written by
/// somebody who knew the checksums.
#[test]
fn sequence_number_that_was_not_given_yet_is_damage_and_is_not_saved() {
    for seq in [(1 << 63) - 1, 1 << 62, 1_u64 << 32] {
        let (disk, file, offsets) = batches(2, 20);
        forge(&disk, &file, offsets[7], seq);
        let report = check(&disk, &dir(), &journal::Content::default(), &mut |_| {}).unwrap();
        assert!(!report.damage.is_empty(), "{seq}");
        let opened = open(&disk, &Options::small());
        assert!(opened.is_err() || records(&opened.unwrap()).is_err(), "{seq}");
        let (report, found) = saved(&disk);
        assert_eq!((report.records_copied, found.len()), (39, 39), "{seq}: {report:?}");
    }
}

/// Lets the record and its batch state this seq, with checksums that hold.
fn forge(disk: &SimDisk, file: &Path, offset: u64, seq: u64) {
    use journal::format::batch::{BATCH_HEADER_SIZE_BYTES, BatchHeader};
    use journal::format::{Salt, crc32c};
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let file = disk.open(file, options).unwrap();
    let (segment, batch_at) = (journal::SegmentId(1), journal::format::SEGMENT_HEADER_SIZE_BYTES);
    let salt = Salt::new(0xf01d, segment);
    let mut bytes = vec![0; 48];
    file.read_at(&mut bytes, offset).unwrap();
    let header = journal::RecordHeader::decode(&bytes, salt).expect("a record");
    file.write_at(&journal::RecordHeader { seq: journal::Seq(seq), ..header }.encode(salt), offset).unwrap();
    let mut bytes = vec![0; BATCH_HEADER_SIZE_BYTES];
    file.read_at(&mut bytes, batch_at).unwrap();
    let (header, _) = BatchHeader::decode(&bytes, segment, salt).expect("a batch");
    let mut body = vec![0; header.body_len as usize];
    file.read_at(&mut body, batch_at + BATCH_HEADER_SIZE_BYTES as u64).unwrap();
    let (bytes, _) = BatchHeader { body_crc: crc32c(&body), ..header }.encode(salt);
    file.write_at(&bytes, batch_at).unwrap();
}
