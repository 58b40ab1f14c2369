//! What the simulated disk may and may not do to un-synced changes, fault by fault.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use vfs::sim::{Effect, Fault, Kinds, Rng};
use vfs::{AlignedBuffer, File, OpenOptions, SimDisk, Vfs};

const CREATE: OpenOptions = OpenOptions { write: true, create_new: true, direct: false, dsync: false };
const WRITE: OpenOptions = OpenOptions { create_new: false, ..CREATE };
const SEEDS: u64 = 400;

fn disk() -> SimDisk {
    let disk = SimDisk::new(1);
    disk.create_dir_all(Path::new("/d")).unwrap();
    disk
}

/// A synced file of `length` bytes of `byte`, its name durable.
fn durable_file(disk: &SimDisk, path: &str, byte: u8, length: usize) -> std::sync::Arc<dyn File> {
    let file = disk.open(Path::new(path), CREATE).unwrap();
    assert_eq!(file.write_at(&vec![byte; length], 0).unwrap(), length);
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    file
}

fn contents(disk: &SimDisk, path: &str) -> Option<Vec<u8>> {
    let file = disk.open(Path::new(path), OpenOptions::default()).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    Some(bytes)
}

#[test]
fn synced_data_under_a_synced_name_survives_every_crash() {
    let disk = disk();
    let file = durable_file(&disk, "/d/a", 1, 5_000);
    file.write_at(&[2; 512], 4_096).unwrap();
    for seed in 0..SEEDS {
        let after = contents(&disk.crash_copy(seed), "/d/a").expect("the name was synced");
        assert_eq!(after[..4_096], [1; 4_096]);
        assert_eq!(after.len(), 5_000);
        assert!(after[4_096..4_608] == [1; 512] || after[4_096..4_608] == [2; 512], "a sector is whole");
    }
}

#[test]
fn unsynced_writes_are_lost_kept_torn_and_reordered_but_never_within_a_sector() {
    let disk = disk();
    let file = durable_file(&disk, "/d/a", 0, 2_048);
    file.write_at(&[1; 1_024], 0).unwrap();
    file.write_at(&[2; 1_024], 1_024).unwrap();
    let mut outcomes = BTreeSet::new();
    for seed in 0..SEEDS {
        let after = contents(&disk.crash_copy(seed), "/d/a").unwrap();
        for sector in after.chunks(512) {
            assert!(sector.iter().all(|&byte| byte == sector[0]), "torn inside a sector");
        }
        outcomes.insert([after[0], after[512], after[1_024], after[1_536]]);
    }
    assert_eq!(outcomes.len(), 16, "every combination of four sectors is possible: {outcomes:?}");
}

#[test]
fn sector_written_twice_shows_one_of_its_versions() {
    let disk = disk();
    let file = durable_file(&disk, "/d/a", 0, 512);
    file.write_at(&[1; 100], 0).unwrap();
    file.write_at(&[2; 100], 100).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let after = contents(&disk.crash_copy(seed), "/d/a").unwrap();
        seen.insert((after[0], after[100]));
    }
    // the second change without the first was never in the page cache
    assert_eq!(seen, BTreeSet::from([(0, 0), (1, 0), (1, 2)]));
}

#[test]
fn unsynced_names_are_kept_as_a_prefix() {
    let disk = disk();
    durable_file(&disk, "/d/old", 1, 10);
    disk.rename(Path::new("/d/old"), Path::new("/d/new")).unwrap();
    disk.open(Path::new("/d/third"), CREATE).unwrap();
    disk.remove(Path::new("/d/third")).unwrap();
    disk.hard_link(Path::new("/d/new"), Path::new("/d/link")).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        seen.insert(disk.crash_copy(seed).list(Path::new("/d")).unwrap());
    }
    let wanted: [&[&str]; 4] = [&["old"], &["new"], &["new", "third"], &["link", "new"]];
    let wanted: BTreeSet<Vec<String>> =
        wanted.iter().map(|names| names.iter().map(|&name| name.to_owned()).collect()).collect();
    assert_eq!(seen, wanted);
}

#[test]
fn file_whose_folder_was_not_synced_may_vanish_though_its_data_was_synced() {
    let disk = disk();
    let file = disk.open(Path::new("/d/a"), CREATE).unwrap();
    file.write_at(b"data", 0).unwrap();
    file.sync_data().unwrap();
    let outcomes: BTreeSet<_> = (0..SEEDS).map(|seed| contents(&disk.crash_copy(seed), "/d/a")).collect();
    assert_eq!(outcomes, BTreeSet::from([None, Some(b"data".to_vec())]));
}

#[test]
fn renamed_file_without_a_sync_of_its_data_may_be_empty() {
    let disk = disk();
    durable_file(&disk, "/d/a", 1, 4);
    let file = disk.open(Path::new("/d/a.tmp"), CREATE).unwrap();
    file.write_at(&[2; 4], 0).unwrap();
    disk.rename(Path::new("/d/a.tmp"), Path::new("/d/a")).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    let outcomes: BTreeSet<_> =
        (0..SEEDS).filter_map(|seed| contents(&disk.crash_copy(seed), "/d/a")).collect();
    assert!(outcomes.contains(&vec![]) && outcomes.contains(&vec![2; 4]), "{outcomes:?}");
    assert!(!outcomes.contains(&vec![1; 4]), "the rename itself was synced");
}

#[test]
fn dsync_write_is_durable_when_it_returns() {
    let disk = disk();
    durable_file(&disk, "/d/a", 1, 8_192);
    let options = OpenOptions { direct: true, dsync: true, ..WRITE };
    let file = disk.open(Path::new("/d/a"), options).unwrap();
    let mut buffer = AlignedBuffer::zeroed(4_096);
    for byte in 2..5 {
        buffer.fill(byte);
        file.write_at(&buffer, 8_192).unwrap();
    }
    for seed in 0..SEEDS {
        let after = contents(&disk.crash_copy(seed), "/d/a").unwrap();
        assert!(after.len() == 12_288 && after[8_192..].iter().all(|&byte| byte == 4));
    }
}

#[test]
fn process_death_keeps_what_was_written_but_a_later_power_loss_may_not() {
    let disk = disk();
    let file = durable_file(&disk, "/d/a", 1, 512);
    file.write_at(&[2; 512], 0).unwrap();
    let lock = disk.lock(Path::new("/d/LOCK")).unwrap();
    let next = disk.process_death();
    assert_eq!(contents(&next, "/d/a").unwrap(), [2; 512]);
    drop(next.lock(Path::new("/d/LOCK")).unwrap());
    assert!(file.write_at(&[3; 512], 0).is_err(), "the dead process reaches nothing");
    drop((file, lock));
    let outcomes: BTreeSet<u8> =
        (0..SEEDS).map(|s| contents(&next.crash_copy(s), "/d/a").unwrap()[0]).collect();
    assert_eq!(outcomes, BTreeSet::from([1, 2]));
}

#[test]
fn second_sync_after_a_failed_one_lies_as_linux_does() {
    let disk = disk();
    let file = durable_file(&disk, "/d/a", 1, 512);
    disk.plan(Fault::at(1, Effect::Eio).of(Kinds::SYNC));
    file.write_at(&[2; 512], 0).unwrap();
    assert!(file.sync_data().is_err());
    assert_eq!(contents(&disk, "/d/a").unwrap()[0], 2, "the cache still shows it");
    file.sync_data().expect("the second sync reports success");
    let after: BTreeSet<_> = (0..SEEDS).map(|seed| contents(&disk.crash_copy(seed), "/d/a")).collect();
    assert_eq!(after.len(), 1, "nothing waits to be written any more");
    file.drop_cache(0, 512).unwrap();
    assert_eq!(
        contents(&disk, "/d/a"),
        after.into_iter().next().unwrap(),
        "without the cache the truth shows"
    );
}

#[test]
fn failed_sync_loses_data_under_some_seeds_and_keeps_it_under_others() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        disk.create_dir_all(Path::new("/d")).unwrap();
        let file = durable_file(&disk, "/d/a", 1, 512);
        file.write_at(&[2; 512], 0).unwrap();
        disk.plan(Fault::at(1, Effect::Eio).of(Kinds::SYNC));
        file.sync_data().unwrap_err();
        file.sync_data().unwrap();
        outcomes.insert(contents(&disk.crash_copy(0), "/d/a").unwrap()[0]);
    }
    assert_eq!(outcomes, BTreeSet::from([1, 2]));
}

#[test]
fn faults_do_what_they_say() {
    let disk = disk();
    let file = durable_file(&disk, "/d/a", 1, 4_096);
    let next = |effect| {
        disk.clear_faults();
        disk.plan(Fault::at(1, effect).of(Kinds::WRITE));
    };
    next(Effect::ShortWrite(100));
    assert_eq!(file.write_at(&[2; 512], 0).unwrap(), 100);
    assert_eq!(contents(&disk, "/d/a").unwrap()[99..101], [2, 1]);
    next(Effect::Misdirect(1_024));
    assert_eq!(file.write_at(&[3; 512], 0).unwrap(), 512);
    let bytes = contents(&disk, "/d/a").unwrap();
    assert_eq!((bytes[0], bytes[1_024]), (2, 3));
    next(Effect::Lie);
    assert_eq!(file.write_at(&[4; 512], 0).unwrap(), 512);
    assert_eq!(contents(&disk, "/d/a").unwrap()[0], 2);
    next(Effect::Enospc);
    assert_eq!(file.write_at(&[5; 512], 0).unwrap_err().kind(), ErrorKind::StorageFull);
    next(Effect::Eio);
    assert_eq!(file.write_at(&[5; 512], 0).unwrap_err().raw_os_error(), Some(libc::EIO));
    disk.flip_bit(Path::new("/d/a"), 2_000, 3).unwrap();
    assert_eq!(contents(&disk, "/d/a").unwrap()[2_000], 1 ^ 8);
    assert_eq!(contents(&disk.crash(3), "/d/a").unwrap()[2_000], 1 ^ 8);
}

/// It returned well and synced nothing, as no disk does.
#[test]
fn sync_that_meets_a_fault_of_writes_is_whole() {
    for effect in [Effect::ShortWrite(100), Effect::Misdirect(1_024), Effect::Cached] {
        let disk = disk();
        let file = durable_file(&disk, "/d/a", 1, 4_096);
        file.write_at(&[2; 512], 0).unwrap();
        disk.plan(Fault::at(1, effect).of(Kinds::SYNC));
        file.sync_data().unwrap();
        for seed in 0..8 {
            assert_eq!(contents(&disk.crash_copy(seed), "/d/a").unwrap()[0], 2, "{effect:?}");
        }
    }
}

#[test]
fn full_disk_refuses_and_recovers_when_a_file_is_gone() {
    let disk = disk();
    disk.set_capacity(3 * 4_096);
    let file = durable_file(&disk, "/d/a", 0, 8_192);
    assert_eq!(file.allocate(8_192, 8_192).unwrap_err().kind(), ErrorKind::StorageFull);
    file.write_at(&[1; 8_192], 0).expect("overwriting takes no space");
    let second = disk.open(Path::new("/d/b"), CREATE).unwrap();
    second.write_at(&[1; 4_096], 0).unwrap();
    assert_eq!(second.write_at(&[1; 1], 4_096).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(disk.space(Path::new("/d")).unwrap().available_bytes, 0);
    disk.remove(Path::new("/d/a")).unwrap();
    assert_eq!(second.write_at(&[1; 1], 4_096).unwrap_err().kind(), ErrorKind::StorageFull, "still open");
    drop(file);
    second.write_at(&[1; 1], 4_096).unwrap();
}

#[test]
fn power_off_at_the_nth_operation_stops_everything_after_it() {
    let disk = disk();
    let file = durable_file(&disk, "/d/a", 1, 512);
    disk.plan(Fault::at(2, Effect::PowerOff).of(Kinds::CHANGES));
    file.write_at(&[2; 512], 0).unwrap();
    assert!(file.sync_data().is_err());
    assert!(!disk.is_powered());
    assert!(file.read_at(&mut [0; 1], 0).is_err());
    assert!(disk.open(Path::new("/d/a"), WRITE).is_err());
    let outcomes: BTreeSet<u8> = (0..SEEDS).map(|s| contents(&disk.crash(s), "/d/a").unwrap()[0]).collect();
    assert_eq!(outcomes, BTreeSet::from([1, 2]), "the sync that lost its power promised nothing");
}

#[test]
#[should_panic(expected = "O_DIRECT offset 512 not aligned")]
fn unaligned_direct_write_panics() {
    let disk = disk();
    let file = disk.open(Path::new("/d/a"), OpenOptions { direct: true, ..CREATE }).unwrap();
    let _ = file.write_at(&AlignedBuffer::zeroed(4_096), 512);
}

/// A random run; returns the disk and what each of its crashes left.
fn random_run(seed: u64) -> (SimDisk, Vec<Option<Vec<u8>>>) {
    let (disk, mut rng) = (disk(), Rng::new(seed));
    disk.record_trace();
    disk.plan(Fault::at(20 + rng.below(20), Effect::Eio).of(Kinds::WRITE | Kinds::SYNC));
    let file = durable_file(&disk, "/d/a", 1, 4_096);
    for _ in 0..60 {
        let _ = match rng.below(6) {
            0 => file.sync_data(),
            1 => disk.sync_dir(Path::new("/d")),
            2 => disk.open(Path::new(&format!("/d/{}", rng.below(9))), CREATE).map(drop),
            3 => file.set_len(rng.below(10_000)),
            _ => file.write_at(&vec![rng.bits() as u8; rng.index(3_000)], rng.below(9_000)).map(drop),
        };
    }
    let crashes = (0..10).map(|seed| contents(&disk.crash_copy(seed), "/d/a")).collect();
    drop(file);
    (disk, crashes)
}

#[test]
fn equal_seed_gives_equal_trace_and_equal_crashes() {
    for seed in 0..50 {
        let ((one, first), (two, second)) = (random_run(seed), random_run(seed));
        assert_eq!(one.trace(), two.trace());
        assert_eq!(one.digest(), two.digest());
        assert_eq!(first, second);
        assert_eq!(one.operations(Kinds::ANY), two.operations(Kinds::ANY));
    }
    assert_ne!(random_run(1).0.digest(), random_run(2).0.digest());
}
