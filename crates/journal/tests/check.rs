//! `check` on a simulated disk: a good folder passes, every flipped bit of what was durable is found.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod common;

use common::{append, dir, start};
use journal::{CheckReport, Content, Hooks, JournalError, Options, RecordView, check};
use vfs::SimDisk;

fn checked(disk: &SimDisk) -> (CheckReport, Vec<Vec<u8>>) {
    let mut payloads = Vec::new();
    let mut keep = |view: RecordView<'_>| payloads.push(view.payload.to_vec());
    let report = check(disk, &dir(), &Content::default(), &mut keep).unwrap();
    (report, payloads)
}

/// A folder with several segments of records that hold their own number; stopped cleanly or not.
fn filled(records: u64, clean: bool) -> SimDisk {
    let disk = SimDisk::new(1);
    let (journal, mut driver) = start(&disk, &Options::small());
    for n in 0..records {
        let payload = n.to_le_bytes().repeat(200);
        append(&journal, &[&payload]).unwrap();
        if n % 7 == 0 {
            driver.commit();
            driver.prepare();
        }
    }
    driver.commit();
    if clean {
        journal.close();
        driver.seal();
    }
    disk
}

#[test]
fn a_good_folder_passes_with_every_record() {
    for clean in [true, false] {
        let (report, payloads) = checked(&filled(500, clean));
        assert_eq!(report.damage, []);
        assert_eq!((report.clean, report.torn), (clean, None));
        assert!(report.segments.len() > 2);
        assert_eq!(payloads.len(), 500);
        assert_eq!(report.segments.iter().map(|segment| segment.records_read).sum::<u64>(), 500);
        assert!(report.segments.iter().all(|segment| segment.info.records == segment.records_read));
    }
}

#[test]
fn a_check_changes_nothing() {
    let disk = filled(100, false);
    let before = common::open(&disk.fork(), &Options::small()).unwrap().next_lsn();
    checked(&disk);
    assert_eq!(common::open(&disk, &Options::small()).unwrap().next_lsn(), before);
}

#[test]
fn a_flipped_bit_anywhere_in_sealed_records_is_found_and_costs_a_batch_at_most() {
    let disk = filled(500, true);
    let (whole, _) = checked(&disk);
    let segment = &whole.segments[0].info;
    let mut offset = 4096 + 5;
    while offset < segment.end_bytes {
        let hurt = disk.fork();
        hurt.flip_bit(&common::path(&segment.file.file_name()), offset, 3).unwrap();
        let (report, payloads) = checked(&hurt);
        assert!(!report.damage.is_empty(), "a bit at {offset}");
        assert_eq!(report.damage[0].file, segment.file.file_name());
        let lost: u64 = report.segments.iter().map(|segment| segment.records_lost).sum();
        assert_eq!(payloads.len() as u64 + lost, 500, "a bit at {offset}");
        assert!(lost <= 7, "{lost} records lost by a bit at {offset}");
        offset += 1409;
    }
}

#[test]
fn a_flipped_bit_in_a_tail_that_a_stop_sealed_is_damage() {
    let disk = filled(20, true);
    let (whole, _) = checked(&disk);
    let open = &whole.segments.last().unwrap().info;
    disk.flip_bit(&common::path(&open.file.file_name()), 4096 + 200, 0).unwrap();
    let (report, payloads) = checked(&disk);
    assert!(!report.damage.is_empty());
    assert!(payloads.len() < 20);
}

#[test]
fn a_missing_segment_is_damage_and_the_others_are_read() {
    let disk = filled(500, true);
    let (whole, _) = checked(&disk);
    let gone = &whole.segments[1];
    vfs::Vfs::remove(&disk, &common::path(&gone.info.file.file_name())).unwrap();
    let (report, payloads) = checked(&disk);
    assert_eq!(report.damage.len(), 1, "{:?}", report.damage);
    assert_eq!(payloads.len() as u64, 500 - gone.records_read);
    assert_eq!(report.segments[1].records_lost, gone.records_read);
}

#[test]
fn what_is_no_data_folder_or_in_use_is_refused() {
    let disk = SimDisk::new(1);
    let refused = |disk: &SimDisk| {
        check(disk, &dir(), &Content::default(), &mut |_| {}).err().map(|error| error.to_string())
    };
    vfs::Vfs::create_dir_all(&disk, &dir()).unwrap();
    assert_eq!(refused(&disk).as_deref(), Some("/data: no data folder: it has no MANIFEST"));
    let recovery = common::open(&disk, &Options::small()).unwrap();
    assert!(matches!(
        check(&disk, &dir(), &Content::default(), &mut |_| {}),
        Err(JournalError::Locked { .. })
    ));
    drop(recovery.start_manual(Hooks::default()).unwrap());
}
