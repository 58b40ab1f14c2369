//! A manifest that lost its newest entries although their syncs returned: a start must notice, not serve less.
//!
//! The story: after a loss of power under load, one key's SET and EXPIRE were gone although both were acknowledged, as if
//! the segment that had just been begun was not there. Whatever loses such entries, a file that holds the first batch of
//! a segment to come proves it, even where the manifest has another use for the file or none.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{append, dir, open, path, start};
use journal::{Choice, JournalError, Keep, Lsn, Options, SyncMode, check, salvage};
use vfs::sim::{Effect, Fault, Kinds};
use vfs::{OpenOptions, SimDisk, Vfs};

fn options() -> Options {
    Options { segment_size_bytes: 64 << 10, buffer_bytes_max: 256 << 10, ..Options::small() }
}

fn manifest_bytes(disk: &SimDisk) -> Vec<u8> {
    let file = disk.open(&path("MANIFEST"), OpenOptions::default()).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

fn is_absent(entry: &[u8]) -> bool {
    entry.iter().all(|byte| *byte == 0)
}

/// Takes the newest `count` entries of the manifest back.
fn lose_entries(disk: &SimDisk, count: usize) {
    let bytes = manifest_bytes(disk);
    let used = bytes.chunks(64).take_while(|entry| !is_absent(entry)).count();
    let file = disk.open(&path("MANIFEST"), OpenOptions { write: true, ..OpenOptions::default() }).unwrap();
    let at = 64 * (used - count);
    file.write_at(&vec![0; 64 * count], at as u64).unwrap();
}

/// Appends and commits until `stop` is true, then once more.
fn fill_until(
    (journal, driver): (&journal::Journal, &mut journal::Driver),
    mut stop: impl FnMut(&journal::Journal) -> bool,
) {
    for n in 0_u64.. {
        append(journal, &[&n.to_le_bytes().repeat(100)]).unwrap();
        driver.commit();
        if stop(journal) {
            break;
        }
        driver.prepare();
        assert!(n < 10_000, "never happens: {:?}", journal.segments());
    }
    append(journal, &[b"in the newest segment"]).unwrap();
    driver.commit();
}

fn kind_of_newest(disk: &SimDisk, back: usize) -> u8 {
    let bytes = manifest_bytes(disk);
    let used = bytes.chunks(64).take_while(|entry| !is_absent(entry)).count();
    bytes[64 * (used - back) + 4]
}

const PREPARED: u8 = 3;
const OPEN: u8 = 4;
const FREED: u8 = 7;

fn assert_refused(disk: &SimDisk, context: &str) {
    let report = check(&disk.fork(), &dir(), &journal::Content::default(), &mut |_| {}).unwrap();
    let named = |what: &str| what.contains("lost its newest entries");
    assert!(report.damage.iter().any(|damage| named(&damage.what)), "{context}: {:?}", report.damage);
    match open(disk, &options()) {
        Err(JournalError::Damaged { file, offset, what }) => {
            assert!(file.ends_with(".seg") && offset == 4096 && named(&what), "{context}: {file}: {what}");
        }
        other => panic!("{context}: {other:?}"),
    }
}

#[test]
fn roll_that_the_manifest_forgot_is_damage() {
    let disk = SimDisk::new(1);
    let (journal, mut driver) = start(&disk, &options());
    fill_until((&journal, &mut driver), |journal| journal.segments().len() == 3);
    let disk = disk.crash(1);
    let mut back = 1;
    while kind_of_newest(&disk, back) != OPEN {
        back += 1;
    }
    // with the seal before it, as they were written; then with the preparation of the file itself
    for lost in back + 1..back + 6 {
        let hurt = disk.fork();
        lose_entries(&hurt, lost);
        assert_refused(&hurt, &format!("{lost} entries lost"));
        let vfs: Arc<dyn Vfs> = Arc::new(hurt);
        let time: Arc<dyn clock::Clock> = common::clock();
        let choice = Choice { wanted: &mut |_| Keep::AsItIs, mends: |_| false };
        let saved = salvage(&vfs, &time, &dir(), Path::new("/out"), &options(), choice).unwrap();
        assert_eq!(saved.records_copied, journal.next_lsn().0 - 1, "{lost} entries lost: salvage finds all");
    }
}

#[test]
fn recycling_and_roll_that_the_manifest_forgot_are_damage() {
    let disk = SimDisk::new(1);
    let (journal, mut driver) = start(&disk, &options());
    fill_until((&journal, &mut driver), |journal| journal.segments().len() == 3);
    let oldest = journal.segments()[0];
    journal.set_checkpoint("checkpoint", Lsn(oldest.last_lsn.0 + 1)).unwrap();
    // given back when a roll has just taken a ready file: then its file is recycled, else removed
    let mut retired = false;
    fill_until((&journal, &mut driver), |journal| {
        if !retired && journal.segments().len() == 4 {
            journal.retire(oldest.segment).unwrap();
            retired = true;
        }
        journal.segments().last().unwrap().file == oldest.file
            && journal.segments().last().unwrap().segment != oldest.segment
    });
    let disk = disk.crash(1);
    let mut back = 1;
    while kind_of_newest(&disk, back) != FREED {
        back += 1;
    }
    assert_eq!(kind_of_newest(&disk, back - 1), PREPARED, "the file was recycled");
    lose_entries(&disk, back);
    assert_refused(&disk, "the manifest says that the file holds an older segment");
}

/// What a start leaves that is cut short is no proof of anything: the next one goes on.
#[test]
fn start_cut_short_at_any_change_is_no_damage() {
    let disk = SimDisk::new(1);
    let (journal, mut driver) = start(&disk, &options());
    fill_until((&journal, &mut driver), |journal| journal.segments().len() == 3);
    let last = journal.next_lsn();
    let disk = disk.crash(1);
    let whole = disk.fork();
    drop(open(&whole, &options()).unwrap());
    for nth in 1..=whole.operations(Kinds::CHANGES) {
        for seed in 0..4 {
            let cut = disk.fork();
            cut.plan(Fault::at(nth, Effect::PowerOff).of(Kinds::CHANGES));
            let _ = open(&cut, &options());
            let after = cut.crash(seed);
            let report = check(&after.fork(), &dir(), &journal::Content::default(), &mut |_| {}).unwrap();
            assert_eq!(report.damage, [], "change {nth}, seed {seed}");
            assert_eq!(open(&after, &options()).unwrap().next_lsn(), last, "change {nth}, seed {seed}");
        }
    }
}

/// A start copied the tail of a killed server to a ready file, un-synced batches too, and lost its power; the disk had lost
/// those batches. The next start copied less to the same file, and the one after that found the rest of the first
/// copy behind its tail, which stated that the batches that were gone had been durable: it refused to serve.
#[test]
fn copies_of_starts_that_were_cut_short_vouch_for_nothing() {
    let disk = SimDisk::new(1);
    let (journal, mut driver) = start(&disk, &Options { sync: SyncMode::Never, ..options() });
    for n in 0..30_u64 {
        append(&journal, &[&n.to_le_bytes().repeat(100)]).unwrap();
        driver.commit();
    }
    let disk = disk.process_death();
    let whole = disk.fork();
    drop(open(&whole, &options()).unwrap());
    for nth in 1..=whole.operations(Kinds::CHANGES) {
        for seed in 0..12 {
            let context = format!("change {nth}, seed {seed}");
            let cut = disk.fork();
            cut.plan(Fault::at(nth, Effect::PowerOff).of(Kinds::CHANGES));
            let _ = open(&cut, &options());
            let after = cut.crash(seed);
            let (journal, mut driver) = start(&after, &options());
            append(&journal, &[b"one more"]).unwrap();
            driver.commit();
            let last = journal.next_lsn();
            let again = open(&after.process_death(), &options());
            assert_eq!(again.unwrap_or_else(|error| panic!("{context}: {error}")).next_lsn(), last);
        }
    }
}
