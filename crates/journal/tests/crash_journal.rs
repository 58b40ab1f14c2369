//! Power loss and errors at every operation of start, write, roll, footer, checkpoint, retire and close, on a simulated
//! disk; then start again: what was durable is there, what is there was appended, groups are whole.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod common;

use std::sync::Arc;

use common::{Told, dir, hooks, open, records, write_footer};
use journal::{
    BackendKind, Class, Draft, Driver, Hooks, Journal, JournalError, Keyspace, Lsn, Options, Recovery,
    SegmentState, SyncMode, footprint,
};
use vfs::sim::{Effect, Fault, Kinds, Rng};
use vfs::{OpenOptions, SimDisk, Vfs};

/// What the test knows of the journal from outside.
#[derive(Clone, Default)]
struct Log {
    /// Payloads by lsn (index + 1), each with whether it ends its group.
    appended: Vec<(Vec<u8>, bool)>,
    /// Everything up to here was reported durable.
    durable: u64,
    /// Everything up to here may be gone: its segments were retired.
    retired: u64,
}

impl Log {
    /// Compares a recovered journal with what it may hold; forgets what was rightly cut.
    fn verify(&mut self, recovery: &Recovery, context: &str) {
        let found = records(recovery).unwrap_or_else(|error| panic!("{context}: {error}"));
        let last = recovery.next_lsn().0 - 1;
        assert!(last >= self.durable, "{context}: lsn {} was durable, {last} is the last", self.durable);
        assert!(last <= self.appended.len() as u64, "{context}: lsn {last} was never appended");
        let first = found.first().map_or(last + 1, |record| record.0);
        assert!(first <= self.retired + 1, "{context}: starts at {first}, retired only {}", self.retired);
        assert_eq!(found.len() as u64, last + 1 - first, "{context}: gaps");
        for (n, (lsn, _, payload, group_end)) in found.iter().enumerate() {
            assert_eq!(*lsn, first + n as u64, "{context}");
            let (expected, expected_end) = &self.appended[*lsn as usize - 1];
            assert!(payload == expected && group_end == expected_end, "{context}: lsn {lsn} differs");
        }
        assert!(found.last().is_none_or(|record| record.3), "{context}: a group is cut");
        self.appended.truncate(last as usize);
        self.durable = last;
    }
}

/// One life of a server: opens, verifies, writes, rolls, foots, retires; stops at the first failure.
fn life(
    disk: &SimDisk,
    options: &Options,
    log: &mut Log,
    seed: u64,
    context: &str,
) -> Result<(), JournalError> {
    let recovery = open(disk, options)?;
    log.verify(&recovery, context);
    let told = Arc::new(Told::default());
    let (journal, mut driver) = recovery.start_manual(hooks(&told))?;
    driver.prepare();
    let mut rng = Rng::new(seed);
    for step in 0..STEPS {
        append_group(&journal, log, &mut rng);
        match rng.below(6) {
            0 | 1 => drop(driver.commit()),
            2 => drop(driver.commit_once()),
            3 => drop(driver.prepare()),
            4 => drop(driver.prepare_once()),
            _ => {
                driver.commit(); // a stamp comes when nothing else is on its way
                driver.stamp();
            }
        }
        log.durable = log.durable.max(journal.durable_lsn().0);
        journal.check_state();
        if step % 8 == 7 {
            care(&journal, &mut driver, log)?;
        }
        if !told.failures.lock().unwrap().is_empty() {
            let message = told.failures.lock().unwrap().join("; ");
            assert!(journal.reserve(100, Class::Write).is_err(), "{context}: a failed journal takes no more");
            return Err(JournalError::Invalid(message));
        }
    }
    journal.close();
    driver.seal();
    log.durable = log.durable.max(journal.durable_lsn().0);
    if told.failures.lock().unwrap().is_empty() {
        assert_eq!(log.durable, log.appended.len() as u64, "{context}: a clean stop leaves nothing behind");
    }
    Ok(())
}

fn append_group(journal: &Journal, log: &mut Log, rng: &mut Rng) {
    let count = 1 + rng.index(3);
    let large = rng.chance(1, 40);
    let payloads: Vec<Vec<u8>> = (0..count)
        .map(|n| {
            let lsn = log.appended.len() + n + 1;
            let len = if large && n == 0 { 20_000 } else { 8 + rng.index(1500) };
            (lsn as u64).to_le_bytes().iter().copied().cycle().take(len).collect()
        })
        .collect();
    let bytes = footprint(payloads.iter().map(|payload| payload.len() as u32));
    let Ok(credits) = journal.reserve(bytes, Class::Write) else { return };
    let parts: Vec<[&[u8]; 1]> = payloads.iter().map(|payload| [payload.as_slice()]).collect();
    let drafts: Vec<Draft<'_>> = parts.iter().map(|parts| Draft::new(1, Keyspace(7), parts)).collect();
    let mut addresses = Vec::new();
    let appended = journal.append(credits, &drafts, &mut addresses);
    for (n, payload) in payloads.into_iter().enumerate() {
        log.appended.push((payload, n + 1 == count));
    }
    assert_eq!(appended.last_lsn.0, log.appended.len() as u64);
    let mut read = Vec::new();
    // May fail once power is off; what is read is right.
    if journal.read(addresses[0], 0, &mut read).is_ok() {
        assert_eq!(read, log.appended[log.appended.len() - count].0);
    }
}

/// What the store does in the background: footers, a checkpoint, and retiring what it covers.
fn care(journal: &Journal, driver: &mut Driver, log: &mut Log) -> Result<(), JournalError> {
    let segments = journal.segments();
    if let Some(sealed) = segments.iter().find(|info| info.state == SegmentState::Sealed) {
        let mut entries = Vec::new();
        let mut scanner = journal.scanner(sealed.segment)?;
        while scanner.slice(5_000, &mut |view| {
            entries.push(view.footer_entry(1));
        })? {}
        write_footer(journal, sealed.segment, &entries)?;
    }
    if segments.len() > 4 {
        let oldest = &segments[0];
        journal.set_checkpoint("checkpoint", Lsn(oldest.last_lsn.0 + 1))?;
        log.retired = log.retired.max(oldest.last_lsn.0);
        journal.retire(oldest.segment)?;
        driver.prepare();
    }
    Ok(())
}

fn options(backend: BackendKind) -> Options {
    Options { segment_size_bytes: 64 << 10, buffer_bytes_max: 256 << 10, backend, ..Options::small() }
}

const STEPS: usize = 90;

/// Cuts the power at every `stride`-th change of the disk, or kills the process there, then lives again twice.
fn crash_at_every(stride: u64, options: &Options) {
    let whole = SimDisk::new(1);
    life(&whole, options, &mut Log::default(), 1, "whole").unwrap();
    let changes = whole.operations(Kinds::CHANGES);
    assert!(changes > 150, "{changes} changes");
    let mut nth = 1;
    while nth <= changes {
        let context = format!("power lost at change {nth} of {changes}");
        let disk = SimDisk::new(1);
        disk.plan(Fault::at(nth, Effect::PowerOff).of(Kinds::CHANGES));
        let mut log = Log::default();
        let _ = life(&disk, options, &mut log, 1, &context);
        // a killed process leaves all that it wrote in the page cache, for the next loss of power to take
        let disk = if nth % 2 == 0 { disk.crash(nth) } else { disk.process_death() };
        disk.plan(Fault::at(1 + nth % 60, Effect::PowerOff).of(Kinds::CHANGES));
        let _ = life(&disk, options, &mut log, 2, &format!("{context}, second life"));
        let disk = disk.crash(nth + 1);
        life(&disk, options, &mut log, 3, &format!("{context}, third life")).unwrap();
        nth += stride;
    }
}

#[test]
fn crash_at_the_nth_change_keeps_what_was_durable_buffered() {
    crash_at_every(stride(), &options(BackendKind::Buffered));
}

#[test]
fn crash_at_the_nth_change_keeps_what_was_durable_direct() {
    crash_at_every(stride(), &options(BackendKind::Direct));
}

#[test]
fn crash_at_the_nth_change_keeps_what_was_synced_under_an_interval() {
    let sync = SyncMode::Interval(std::time::Duration::ZERO);
    crash_at_every(stride(), &Options { sync, ..options(BackendKind::Buffered) });
    crash_at_every(stride() * 2, &Options { sync: SyncMode::Never, ..options(BackendKind::Buffered) });
}

/// A start took for durable what a killed process had written to the manifest and not synced: it copied the tail into a file that the manifest on the disk still
/// named as a segment. When the power went then, no later start got past the header of that file.
#[test]
fn start_makes_durable_what_it_read_before_it_overwrites_anything() {
    let options = options(BackendKind::Buffered);
    let disk = SimDisk::new(1);
    life(&disk, &options, &mut Log::default(), 1, "the life before").unwrap();
    for disk in [disk.fork(), disk.process_death()] {
        disk.record_trace();
        drop(open(&disk, &options).unwrap());
        let trace = disk.trace();
        let first = |kind: Kinds, path: &str| {
            trace.iter().position(|it| it.kind == kind && it.path.ends_with(path)).expect("it is done")
        };
        let written = first(Kinds::WRITE, ".seg");
        assert!(first(Kinds::SYNC, "/MANIFEST") < written, "{trace:?}");
        assert!(first(Kinds::SYNC_DIR, "/data") < written, "{trace:?}");
    }
}

#[test]
fn error_at_the_nth_operation_stops_the_journal_and_loses_nothing_durable() {
    let options = options(BackendKind::Buffered);
    let whole = SimDisk::new(1);
    life(&whole, &options, &mut Log::default(), 1, "whole").unwrap();
    let operations = whole.operations(Kinds::ANY);
    let effects = [Effect::Eio, Effect::Enospc, Effect::ShortWrite(100)];
    let mut nth = 1;
    while nth <= operations {
        for effect in effects {
            let context = format!("{effect:?} at operation {nth} of {operations}");
            let disk = SimDisk::new(1);
            let fault = Fault::at(nth, effect);
            let short = matches!(effect, Effect::ShortWrite(_));
            disk.plan(if short { fault.of(Kinds::WRITE) } else { fault });
            let mut log = Log::default();
            let _ = life(&disk, &options, &mut log, 1, &context);
            // After a failed sync the page cache lies: only what the device has counts.
            let disk = disk.crash(nth);
            life(&disk, &options, &mut log, 2, &format!("{context}, second life")).unwrap();
        }
        nth += stride();
    }
}

/// A roll opened the next segment's file twice, and the limit of open files ended the server: as if the disk had failed,
/// though nothing had been written.
#[test]
fn lack_of_descriptors_at_any_time_ends_no_journal_that_runs() {
    let opening = Kinds::OPEN | Kinds::CREATE;
    for backend in [BackendKind::Buffered, BackendKind::Direct] {
        let options = options(backend);
        let whole = SimDisk::new(1);
        drop(open(&whole, &options).unwrap().start_manual(hooks(&Arc::default())).unwrap());
        let at_start = whole.operations(opening);
        let whole = SimDisk::new(1);
        life(&whole, &options, &mut Log::default(), 1, "whole").unwrap();
        for nth in at_start + 1..=whole.operations(opening) {
            for lasts in [false, true] {
                let context = format!("no descriptor at opening {nth}, then none: {lasts}");
                let disk = SimDisk::new(1);
                let fault = Fault::at(nth, Effect::Emfile).of(opening);
                disk.plan(if lasts { fault.repeated() } else { fault });
                let mut log = Log::default();
                life(&disk, &options, &mut log, 1, &context).unwrap_or_else(|e| panic!("{context}: {e}"));
                life(&disk.crash(nth), &options, &mut log, 2, &context).unwrap();
            }
        }
    }
}

#[test]
fn failed_sync_is_never_tried_again_and_nothing_more_becomes_durable() {
    let disk = SimDisk::new(1);
    let told = Arc::new(Told::default());
    let (journal, mut driver) = open(&disk, &Options::small()).unwrap().start_manual(hooks(&told)).unwrap();
    driver.prepare();
    common::append(&journal, &[b"kept"]).unwrap();
    driver.commit();
    common::append(&journal, &[b"unknown"]).unwrap();
    disk.plan(Fault::at(1, Effect::Eio).of(Kinds::SYNC));
    driver.commit();
    let syncs = disk.operations(Kinds::SYNC);
    driver.commit();
    driver.prepare();
    assert_eq!(disk.operations(Kinds::SYNC), syncs);
    assert_eq!(journal.durable_lsn(), Lsn(1));
    assert_eq!(told.failures.lock().unwrap().len(), 1);
    assert!(common::append(&journal, &[b"refused"]).is_none());
}

/// The thread that keeps files ready ended the server when it could not open one, though clients that leave give
/// descriptors back: it must wait, and go on.
#[test]
fn lack_of_descriptors_is_waited_for_by_who_prepares_files() {
    let disk = SimDisk::new(1);
    let told = Arc::new(Told::default());
    let recovery = open(&disk, &Options::small()).unwrap();
    let (journal, mut driver) = recovery.start_manual(hooks(&told)).unwrap();
    for kinds in [Kinds::CREATE, Kinds::OPEN] {
        disk.plan(Fault::at(1, Effect::Emfile).of(kinds).repeated());
        driver.prepare();
        assert_eq!(driver.prepare(), 0, "{kinds:?}: nothing can be done now");
        disk.clear_faults();
        driver.prepare();
        while journal.counters().segments_sealed < 3 {
            assert!(common::append(&journal, &[&[7; 20_000]]).is_some(), "{kinds:?}: a file is ready again");
            driver.commit();
            disk.plan(Fault::at(1, Effect::Emfile).of(kinds).repeated());
            driver.prepare();
            disk.clear_faults();
            driver.prepare();
        }
        for info in journal.segments().iter().filter(|info| info.state != SegmentState::Open) {
            journal.retire(info.segment).unwrap();
        }
        disk.plan(Fault::at(1, Effect::Emfile).of(kinds).repeated());
        driver.prepare();
        disk.clear_faults();
        driver.prepare();
    }
    assert_eq!(*told.failures.lock().unwrap(), [""; 0]);
    assert!(disk.operations(Kinds::SYNC_DIR) > 0 && journal.counters().files_removed > 0);
}

/// A server started in a folder that had room for its first file and nothing else, warned, and refused every write.
#[test]
fn fresh_folder_without_room_for_one_write_is_refused_and_one_with_it_is_not() {
    let options = Options { space_margin_bytes: 1 << 20, ..Options::small() };
    let needed = 3 * options.segment_size_bytes + options.space_margin_bytes / 2 + (1 << 20);
    let disk = SimDisk::new(1);
    disk.set_capacity(needed - 4_096);
    let error = open(&disk, &options).expect_err("no write would be admitted").to_string();
    let tells = [needed, needed - 4_096].iter().all(|bytes| error.contains(&format!("{bytes} B")));
    assert!(tells && error.contains("journal.segment_size"), "{error}");
    assert!(disk.files().iter().all(|(_, length)| *length == 0), "{:?}", disk.files());
    disk.set_capacity(needed);
    let (journal, _driver) = common::start(&disk, &options);
    assert!(common::append(&journal, &[&[7; 4_000]]).is_some());
}

/// A start on a full disk took the reserve for the copy of the tail, and the room that the old tail gave back was less than a
/// file and the margin by the few blocks that other files had grown by: so after a restart even deletes were refused, and
/// the disk could not be emptied any more.
#[test]
fn restart_on_a_full_disk_has_its_reserve_again() {
    let options = Options { space_margin_bytes: 1 << 20, ..Options::small() };
    let disk = SimDisk::new(1);
    let (journal, mut driver) = common::start(&disk, &options);
    disk.set_capacity(disk.used_bytes() + options.space_margin_bytes);
    while common::append(&journal, &[&[7; 4_000]]).is_some() {
        driver.commit();
        driver.prepare();
    }
    drop((journal, driver));
    let disk = disk.process_death();
    disk.set_capacity(disk.used_bytes() + options.space_margin_bytes - 8_192);
    let (journal, mut driver) = common::start(&disk, &options);
    for n in 0..10 {
        assert!(common::append_as(&journal, &[&[8; 20_000]], Class::Reclaim).is_some(), "removal {n}");
        driver.commit();
        driver.prepare();
    }
}

/// A start without a byte of room failed at the manifest, and one without a file for the copy of the tail could not begin: a disk that
/// others had filled could not be emptied any more.
#[test]
fn start_without_any_room_goes_on_in_the_tail_and_loses_nothing_at_any_crash() {
    let options = options(BackendKind::Buffered);
    for is_clean in [false, true] {
        let whole = SimDisk::new(1);
        let (journal, mut driver) = common::start(&whole, &options);
        for n in 0..12 {
            assert!(common::append(&journal, &[&[n; 3_000]]).is_some());
            driver.commit();
        }
        if is_clean {
            journal.close();
            driver.seal();
        }
        drop(journal);
        let whole = whole.process_death();
        let expected = records(&open(&whole.crash_copy(1), &options).unwrap()).unwrap();
        assert_eq!(expected.len(), 12);
        for nth in 1.. {
            let context = format!("power lost at change {nth} of a start, clean: {is_clean}");
            let disk = whole.crash_copy(nth);
            let capacity_bytes = disk.used_bytes();
            disk.set_capacity(capacity_bytes);
            disk.plan(Fault::at(nth, Effect::PowerOff).of(Kinds::CHANGES));
            let has_opened = open(&disk, &options).is_ok();
            let disk = disk.crash(nth);
            disk.set_capacity(capacity_bytes);
            let recovery = open(&disk, &options).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(records(&recovery).unwrap() == expected, "{context}");
            let (journal, mut driver) = recovery.start_manual(Hooks::default()).unwrap();
            driver.prepare();
            assert!(common::append_as(&journal, &[b"a delete"], Class::Reclaim).is_some(), "{context}");
            driver.commit();
            drop((journal, driver));
            let found = records(&open(&disk.crash(nth), &options).unwrap()).unwrap();
            assert!(found.starts_with(&expected) && found.len() == expected.len() + 1, "{context}");
            if has_opened {
                assert!(nth > 5, "{nth} changes");
                break;
            }
        }
    }
}

/// What deletes had written could not come back, since their segment was never full: a full disk had no room for its end.
#[test]
fn open_segment_is_sealed_early_and_leaves_deletes_the_room_of_the_next() {
    let disk = SimDisk::new(1);
    let options = Options { segment_size_bytes: 64 << 10, ..Options::small() };
    let (journal, mut driver) = common::start(&disk, &options);
    assert!(!journal.roll(), "nothing is in it");
    disk.set_capacity(disk.used_bytes());
    let payload = [1_u8; 2000];
    while common::append(&journal, &[&payload]).is_some() {
        driver.commit();
        driver.prepare();
    }
    for round in 0..20 {
        let mut deletes = 0;
        while common::append_as(&journal, &[&payload], Class::Reclaim).is_some() {
            deletes += 1;
            driver.commit();
            driver.prepare();
        }
        assert!(deletes > 10, "{deletes} deletes in round {round}");
        let room_bytes = journal.cleaning_room_bytes().expect("the disk is full");
        assert!(room_bytes > 30_000, "{room_bytes} B are left for cleaning");
        let last = journal.segments().last().expect("one is open").segment;
        assert!(journal.roll(), "round {round}");
        driver.commit();
        let sealed = |info: &&journal::SegmentInfo| info.segment <= last && info.state != SegmentState::Open;
        let dead: Vec<_> = journal.segments().iter().filter(sealed).map(|info| info.segment).collect();
        assert!(dead.contains(&last), "it is sealed");
        dead.into_iter().for_each(|segment| journal.retire(segment).unwrap());
        driver.prepare();
        journal.check_state();
    }
}

#[test]
fn full_disk_refuses_writes_but_not_deletes_and_recovers_when_space_is_freed() {
    let disk = SimDisk::new(1);
    let options = Options { segment_size_bytes: 64 << 10, ..Options::small() };
    let (journal, mut driver) = common::start(&disk, &options);
    disk.set_capacity(disk.used_bytes() + (100 << 10));
    let payload = [1_u8; 2000];
    let mut written = 0;
    while common::append(&journal, &[&payload]).is_some() {
        written += 1;
        driver.commit();
        driver.prepare();
    }
    let refusal = journal.reserve(2000, Class::Write).unwrap_err();
    assert!(refusal.to_string().contains("disk full"), "{refusal}");
    assert!(written > 40, "{written}");
    assert!(common::append_as(&journal, &[&payload], Class::Reclaim).is_some(), "a delete still passes");
    driver.commit();
    let oldest = journal.segments()[0].segment;
    journal.retire(oldest).unwrap();
    driver.prepare();
    assert!(common::append(&journal, &[&payload]).is_some(), "freed space serves again");
    driver.commit();
}

#[test]
fn equal_seed_gives_an_equal_trace() {
    let digest = |seed| {
        let disk = SimDisk::new(seed);
        life(&disk, &options(BackendKind::Direct), &mut Log::default(), seed, "trace").unwrap();
        disk.digest()
    };
    assert_eq!(digest(5), digest(5));
    assert_ne!(digest(5), digest(6));
}

#[test]
fn every_flipped_bit_is_detected_and_no_wrong_payload_is_returned() {
    let options = options(BackendKind::Buffered);
    let disk = SimDisk::new(1);
    let mut log = Log::default();
    life(&disk, &options, &mut log, 1, "whole").unwrap();
    let used = used_extents(&disk.fork());
    let mut rng = Rng::new(7);
    for n in 0..flips() {
        let (name, from, to, footer) = used[rng.index(used.len())].clone();
        let offset = from + rng.below(to - from);
        let bit = rng.index(8) as u8;
        let damaged = disk.fork();
        damaged.flip_bit(&dir().join(&name), offset, bit).unwrap();
        let context = format!("flip {n}: bit {bit} of byte {offset} of {name}");
        match open(&damaged, &options).and_then(|recovery| Ok((records(&recovery)?, recovery))) {
            Err(JournalError::Damaged { .. } | JournalError::Newer { .. }) => {}
            Err(other) => panic!("{context}: {other}"),
            Ok((_, recovery)) => {
                assert!(footer, "{context}: not detected");
                let footers =
                    recovery.segments().into_iter().filter(|info| info.state == SegmentState::Footed);
                let lost =
                    footers.filter(|info| recovery.read_footer(info.segment).unwrap().is_none()).count();
                assert_eq!(lost, 1, "{context}: footer not set apart");
            }
        }
    }
}

/// Byte ranges that hold structures: file, from, to, and whether it is a footer.
fn used_extents(disk: &SimDisk) -> Vec<(String, u64, u64, bool)> {
    let mut extents = Vec::new();
    extents.push(("MANIFEST".to_owned(), 0, manifest_end(disk), false));
    let report = journal::check(&disk.clone(), &dir(), &journal::Content::default(), &mut |_| {}).unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    for segment in report.segments {
        let info = segment.info;
        extents.push((info.file.file_name(), 0, 4096, false));
        extents.push((info.file.file_name(), 4096, info.end_bytes, false));
        if info.state == SegmentState::Footed {
            let from = info.end_bytes.next_multiple_of(4096);
            extents.push((info.file.file_name(), from, from + 64 + 48 * info.records, true));
        }
    }
    extents
}

/// Where the manifest's entries end; behind them lies room for more.
fn manifest_end(disk: &SimDisk) -> u64 {
    let path = dir().join("MANIFEST");
    let len = disk.files().into_iter().find(|(name, _)| *name == path).unwrap().1;
    let mut bytes = vec![0; len as usize];
    let file = disk.open(&path, OpenOptions::default()).unwrap();
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    let entries = bytes.chunks(64).take_while(|entry| entry.iter().any(|byte| *byte != 0));
    64 * entries.count() as u64
}

/// How many operations apart: all of them on demand.
fn stride() -> u64 {
    std::env::var("EVENKEEL_CRASH_STRIDE").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

fn flips() -> u64 {
    std::env::var("EVENKEEL_FLIPS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000)
}
