//! The journal through its public face, by hand on a simulated disk and with threads on a real one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clock::Clock as _;
use common::{Told, append, dir, hooks, open, records, start, write_footer};
use journal::{
    BackendKind, Choice, Class, Draft, Hooks, Journal, Keep, Keyspace, Lsn, Options, Origin, ReadError,
    RecordView, Records, Recovery, Refusal, SegmentId, SegmentState, Seq, SyncMode, footprint, salvage,
};
use vfs::{SimDisk, Vfs};

#[test]
fn appended_records_are_durable_after_one_commit_and_readable_before_and_after() {
    let disk = SimDisk::new(1);
    let told = Arc::new(Told::default());
    let recovery = open(&disk, &Options::small()).unwrap();
    let (journal, mut driver) = recovery.start_manual(hooks(&told)).unwrap();
    driver.prepare();
    let (addresses, seq, lsn) = append(&journal, &[b"one", b"two"]).unwrap();
    append(&journal, &[b"three"]).unwrap();
    assert_eq!((seq, lsn, journal.durable_seq()), (Seq(2), Lsn(2), Seq(0)));
    let mut payload = Vec::new();
    assert_eq!(journal.read(addresses[1], 0, &mut payload).unwrap().seq, Seq(2));
    assert_eq!(payload, b"two");
    assert_eq!(driver.commit(), 1);
    assert_eq!((journal.durable_seq(), journal.durable_lsn()), (Seq(3), Lsn(3)));
    assert_eq!(*told.advances.lock().unwrap(), [Seq(3)], "one advance for both groups");
    for expected_len in [0, 3, 100] {
        let header = journal.read(addresses[0], expected_len, &mut payload).unwrap();
        assert_eq!((header.keyspace, header.kind, payload.as_slice()), (Keyspace(7), 1, b"one".as_slice()));
    }
    assert_eq!((journal.counters().syncs, journal.counters().syncs_unawaited), (1, 0));
}

#[test]
fn small_group_is_committed_on_the_thread_of_who_waits_and_a_large_one_is_not() {
    let disk = SimDisk::new(1);
    let told = Arc::new(Told::default());
    let recovery = open(&disk, &Options::small()).unwrap();
    let (journal, mut driver) = recovery.start_manual(hooks(&told)).unwrap();
    driver.prepare();
    assert!(journal.commit_here(), "there is nothing to do");
    append(&journal, &[b"one", b"two"]).unwrap();
    assert!(journal.commit_here());
    assert_eq!((journal.durable_seq(), journal.durable_lsn()), (Seq(2), Lsn(2)));
    assert_eq!(*told.advances.lock().unwrap(), [Seq(2)]);
    assert_eq!((driver.commit(), journal.counters().commits_here), (0, 1));
    append(&journal, &[&vec![7; 17 << 10]]).unwrap();
    assert!(!journal.commit_here(), "to write it takes longer than to wake a thread");
    assert_eq!(journal.durable_seq(), Seq(2), "it is as it was");
    assert_eq!(driver.commit(), 1);
    assert_eq!((journal.durable_seq(), journal.counters().commits_here), (Seq(3), 1));
    drop((journal, driver));
    assert_eq!(records(&open(&disk, &Options::small()).unwrap()).unwrap().len(), 3);
}

#[test]
fn nothing_is_committed_here_under_an_interval_or_after_close_or_a_failure() {
    let (journal, mut driver) = start(&SimDisk::new(1), &Options::small());
    append(&journal, &[b"late"]).unwrap();
    journal.close();
    assert!(!journal.commit_here());
    driver.commit();
    let relaxed = Options { sync: SyncMode::Interval(Duration::from_secs(1)), ..Options::small() };
    let (journal, _driver) = start(&SimDisk::new(1), &relaxed);
    append(&journal, &[b"unsynced"]).unwrap();
    assert!(!journal.commit_here());
    let disk = SimDisk::new(1);
    let (journal, _driver) = start(&disk, &Options::small());
    append(&journal, &[b"lost"]).unwrap();
    disk.power_off();
    assert!(journal.commit_here(), "it was tried");
    assert!(journal.has_failed());
    assert_eq!(journal.durable_seq(), Seq(0));
}

#[test]
fn what_somebody_cannot_wait_for_is_durable_before_the_sync_mode_makes_it_so() {
    for sync in [SyncMode::Interval(Duration::from_secs(3_600)), SyncMode::Never] {
        let (journal, mut driver) = start(&SimDisk::new(1), &Options { sync, ..Options::small() });
        append(&journal, &[b"relaxed"]).unwrap();
        driver.commit();
        assert_eq!(journal.durable_seq(), Seq(0), "{sync:?}");
        journal.sync_soon();
        driver.commit();
        assert_eq!(journal.durable_seq(), Seq(1), "{sync:?}");
        journal.sync_soon();
        append(&journal, &[b"relaxed, too"]).unwrap();
        driver.commit();
        assert_eq!(journal.durable_seq(), Seq(1), "{sync:?}: all was durable that was asked for");
    }
}

/// The journal's thread slept through it, and nothing vouched for the last batch.
#[test]
fn what_was_committed_here_gets_its_stamp_once_the_journal_is_idle() {
    let (disk, clock) = (Arc::new(SimDisk::new(1)), Arc::new(clock::SystemClock)); // a slow one would not be waited for
    let recovery = Journal::open(disk, clock.clone(), &dir(), Options::small()).unwrap();
    let journal = recovery.start(Hooks::default()).unwrap();
    let start = clock.now();
    while journal.counters().stamps < 2 {
        let stamps = journal.counters().stamps;
        while append(&journal, &[b"alone"]).is_none() {
            std::thread::yield_now();
        }
        while !journal.commit_here() {
            std::thread::yield_now(); // the journal's thread has just written the last stamp
        }
        while journal.counters().stamps == stamps {
            assert!(clock.now().since(start) < Duration::from_secs(60), "no stamp");
            std::thread::yield_now();
        }
    }
}

/// Callers take turns, and the journal's own thread takes what they leave: a large group, a roll.
#[test]
fn threads_that_commit_here_and_the_journals_own_leave_nothing_behind() {
    const THREADS: u64 = 4;
    const GROUPS: u64 = 200;
    let (disk, clock) = (Arc::new(SimDisk::new(1)), Arc::new(clock::SystemClock)); // a slow one would not be waited for
    let reopen = || Journal::open(disk.clone(), clock.clone(), &dir(), Options::small()).unwrap();
    let journal = reopen().start(Hooks::default()).unwrap();
    let writer = |writer: u64| {
        for n in 0..GROUPS {
            let large = vec![9; if (writer + n).is_multiple_of(16) { 30 << 10 } else { 100 }];
            let (.., seq, _) = loop {
                if let Some(appended) = append(&journal, &[&large, b"end"]) {
                    break appended;
                }
                std::thread::yield_now();
            };
            if !journal.commit_here() {
                journal.offer();
            }
            while journal.durable_seq() < seq {
                std::thread::yield_now();
            }
        }
    };
    std::thread::scope(|scope| (0..THREADS).for_each(|n| drop(scope.spawn(move || writer(n)))));
    let counters = journal.counters();
    assert!(counters.commits_here > 0 && counters.commits_here < counters.syncs, "{counters:?}");
    assert_eq!((counters.records, counters.syncs_unawaited), (2 * THREADS * GROUPS, 0));
    journal.close();
    drop(journal);
    assert_eq!(records(&reopen()).unwrap().len() as u64, 2 * THREADS * GROUPS);
}

#[test]
fn reopened_journal_hands_out_every_record_and_goes_on_counting() {
    let disk = SimDisk::new(1);
    let options = Options::small();
    for round in 0_u64..4 {
        let recovery = open(&disk, &options).unwrap();
        let found = records(&recovery).unwrap();
        assert_eq!(found.len() as u64, round * 2);
        assert!(
            found.iter().enumerate().all(|(n, (lsn, seq, ..))| (*lsn, *seq) == (n as u64 + 1, n as u64 + 1))
        );
        assert_eq!((recovery.next_lsn().0, recovery.next_seq().0), (round * 2 + 1, round * 2 + 1));
        assert_eq!(recovery.clean(), round != 2, "round 1 ended without a seal");
        let (journal, mut driver) = recovery.start_manual(Hooks::default()).unwrap();
        driver.prepare();
        append(&journal, &[b"a", b"b"]).unwrap();
        driver.commit();
        if round != 1 {
            journal.close();
            driver.seal();
        }
    }
}

#[test]
fn segments_roll_in_order_and_all_records_survive() {
    let disk = SimDisk::new(1);
    let options = Options::small();
    let (journal, mut driver) = start(&disk, &options);
    let payload = vec![7_u8; 1000];
    let mut last = journal::LogAddress::default();
    for n in 0..1000 {
        let (addresses, ..) = append(&journal, &[&payload, b"x"]).unwrap_or_else(|| panic!("refused at {n}"));
        assert!(addresses[0].pack() > last.pack(), "addresses grow with lsns");
        last = addresses[1];
        if n % 7 == 0 {
            driver.commit();
            driver.prepare();
        }
    }
    driver.commit();
    let segments = journal.segments();
    assert!(segments.len() > 4, "{} segments", segments.len());
    for pair in segments.windows(2) {
        assert_eq!(pair[0].last_lsn.0 + 1, pair[1].first_lsn.0);
        assert_eq!(pair[0].state, SegmentState::Sealed);
    }
    drop((journal, driver));
    let found = records(&open(&disk, &options).unwrap()).unwrap();
    assert_eq!(found.len(), 2000);
    assert!(
        found
            .iter()
            .all(|(lsn, _, payload, end)| (payload.len() == 1) == (lsn % 2 == 0) && *end == (lsn % 2 == 0))
    );
}

#[test]
fn large_group_gets_a_segment_of_its_own_and_order_is_kept() {
    let disk = SimDisk::new(1);
    let options = Options::small();
    let (journal, mut driver) = start(&disk, &options);
    append(&journal, &[b"before"]).unwrap();
    let large = vec![9_u8; 700_000];
    let bytes = footprint([large.len() as u32, 5]);
    assert!(matches!(journal.reserve(bytes, Class::Write), Err(Refusal::Busy { .. })), "no file yet");
    driver.commit();
    driver.prepare();
    let credits = journal.reserve(bytes, Class::Write).unwrap();
    append(&journal, &[b"overtakes the credits, not the append"]).unwrap();
    let (large_part, small_part): ([&[u8]; 1], [&[u8]; 1]) = ([&large], [b"small"]);
    let drafts = [Draft::new(1, Keyspace::NONE, &large_part), Draft::new(1, Keyspace::NONE, &small_part)];
    let mut addresses = Vec::new();
    journal.append(credits, &drafts, &mut addresses);
    append(&journal, &[b"after"]).unwrap();
    driver.commit();
    let mut payload = Vec::new();
    journal.read(addresses[0], large.len(), &mut payload).unwrap();
    assert_eq!(payload, large);
    drop((journal, driver));
    let found = records(&open(&disk, &options).unwrap()).unwrap();
    let lens: Vec<_> = found.iter().map(|record| record.2.len()).collect();
    assert_eq!(lens, [6, 37, 700_000, 5, 5]);
}

#[test]
fn footer_is_written_once_and_read_back_at_start() {
    let disk = SimDisk::new(1);
    let options = Options::small();
    let (journal, mut driver) = start(&disk, &options);
    let payload = vec![3_u8; 3000];
    while journal.segments().len() < 2 {
        append(&journal, &[&payload]).unwrap();
        driver.commit();
    }
    let segment = journal.segments()[0].segment;
    let mut entries = Vec::new();
    let mut scanner = journal.scanner(segment).unwrap();
    let mut slices = 0;
    loop {
        slices += 1;
        let more = scanner.slice(10_000, &mut |view| {
            entries.push(view.footer_entry(view.lsn.0.into()));
        });
        if !more.unwrap() {
            break;
        }
    }
    assert!(slices > 10, "{slices} slices");
    let mut partial = journal.footer(segment).unwrap().unwrap();
    partial.write(&entries[1..]).unwrap();
    assert!(partial.finish().is_err(), "one record has no entry");
    write_footer(&journal, segment, &entries).unwrap();
    assert!(journal.footer(segment).is_err(), "twice");
    assert_eq!(journal.segments()[0].state, SegmentState::Footed);
    drop((journal, driver));
    let recovery = open(&disk, &options).unwrap();
    assert_eq!(recovery.read_footer(segment).unwrap().unwrap(), entries);
    assert_eq!(recovery.read_footer(recovery.segments()[1].segment).unwrap(), None);
}

/// What a Raft group ordered is found again with its group and term: in the log, in footers, and in a salvaged folder.
#[test]
fn records_keep_the_group_and_the_term_that_ordered_them() {
    let disk = SimDisk::new(1);
    let options = Options::small();
    let (journal, mut driver) = start(&disk, &options);
    let origin = |n: u64| Origin::new(n as u32 % 3 * 500, n * 1_000_000_007).unwrap();
    let payload = [7_u8; 700];
    let mut count = 0;
    while journal.segments().len() < 3 {
        let credits = journal.reserve(footprint([700; 2]), Class::Write).unwrap();
        let parts: [&[u8]; 1] = [&payload];
        let draft = |n| Draft::new(1, Keyspace(7), &parts).ordered_by(origin(n));
        journal.append(credits, &[draft(count), draft(count + 1)], &mut Vec::new());
        count += 2;
        driver.commit();
        driver.prepare();
    }
    let segments: Vec<SegmentId> = journal.segments().iter().map(|info| info.segment).collect();
    for segment in &segments[..2] {
        let mut entries = Vec::new();
        let mut note = |view: RecordView<'_>| entries.push(view.footer_entry(view.lsn.0.into()));
        while journal.scanner(*segment).unwrap().slice(u64::MAX / 2, &mut note).unwrap() {}
        write_footer(&journal, *segment, &entries).unwrap();
    }
    drop((journal, driver));
    let wanted: Vec<Origin> = (0..count).map(origin).collect();
    let scanned = |recovery: &Recovery| {
        let mut found = Vec::new();
        for info in recovery.segments() {
            recovery.scan(info.segment, Lsn(0), &mut |view| found.push(view.header.origin)).unwrap();
        }
        found
    };
    let recovery = open(&disk, &options).unwrap();
    assert_eq!(scanned(&recovery), wanted);
    let footers = segments[..2].iter().flat_map(|segment| recovery.read_footer(*segment).unwrap().unwrap());
    let footers: Vec<Origin> = footers.map(|entry| entry.origin).collect();
    assert_eq!(footers, wanted[..footers.len()]);
    drop(recovery);
    let (vfs, time): (Arc<dyn Vfs>, Arc<dyn clock::Clock>) = (Arc::new(disk), common::clock());
    let choice = Choice { wanted: &mut |_| Keep::AsItIs, mends: |_| false };
    let out = Path::new("/out");
    salvage(&vfs, &time, &dir(), out, &options, choice).unwrap();
    let salvaged = Journal::open(vfs, time, out, options).unwrap();
    assert_eq!(scanned(&salvaged), wanted);
}

#[test]
fn records_handed_out_in_groups_are_those_that_come_one_by_one() {
    let disk = SimDisk::new(1);
    let options = Options { segment_size_bytes: 2 << 20, ..Options::small() };
    let (journal, mut driver) = start(&disk, &options);
    for n in 0_u32.. {
        // what is read at once ends within records, headers of records and headers of batches
        let len = if n % 37 == 0 { 50_000 + n as usize } else { n as usize % 300 };
        append(&journal, &[&vec![n as u8; len]]).unwrap();
        if n % 5 == 0 {
            driver.commit();
            driver.prepare();
        }
        if journal.segments().len() > 1 {
            break;
        }
    }
    let segment = journal.segments()[0].segment;
    let mut one_by_one = Vec::new();
    let mut note = |view: RecordView<'_>| one_by_one.push((view.lsn, view.address, view.payload.to_vec()));
    assert!(!journal.scanner(segment).unwrap().slice(u64::MAX / 2, &mut note).unwrap());
    assert!(journal.segments()[0].end_bytes > 4 * (256 << 10), "{:?}", journal.segments());
    for (bytes_max, count_max) in [(u64::MAX / 2, 16), (10_000, 16), (u64::MAX / 2, 3), (1, 16)] {
        let (mut all, mut largest) = (Vec::new(), 0);
        let mut scanner = journal.scanner(segment).unwrap();
        let mut note = |records: Records<'_>| {
            let before = all.len();
            all.extend(records.iter().map(|view| (view.lsn, view.address, view.payload.to_vec())));
            largest = largest.max(all.len() - before);
        };
        while scanner.groups(bytes_max, count_max, &mut note).unwrap() {}
        assert_eq!(largest, if bytes_max == 1 { 1 } else { count_max });
        assert!(all == one_by_one, "{} of {} records", all.len(), one_by_one.len());
    }
}

#[test]
fn retired_segment_is_recycled_once_unpinned_and_its_old_addresses_are_gone() {
    let disk = SimDisk::new(1);
    let options = Options::small();
    let (journal, mut driver) = start(&disk, &options);
    let payload = vec![3_u8; 3000];
    let (addresses, ..) = append(&journal, &[&payload]).unwrap();
    while journal.segments().len() < 3 {
        append(&journal, &[&payload]).unwrap();
        driver.commit();
        driver.prepare();
    }
    let segment = journal.segments()[0].segment;
    let pin = journal.pin(segment).unwrap();
    journal.retire(segment).unwrap();
    assert!(journal.pin(segment).is_none(), "no new pins on a retired segment");
    driver.prepare();
    let mut read = Vec::new();
    journal.read(addresses[0], 3000, &mut read).unwrap();
    drop(pin);
    driver.prepare();
    assert!(matches!(journal.read(addresses[0], 3000, &mut read), Err(ReadError::Gone(_))));
    let counters = journal.counters();
    assert_eq!(counters.files_recycled + counters.files_removed, 1, "{counters:?}");
    drop((journal, driver));
    let recovery = open(&disk, &options).unwrap();
    assert!(recovery.segments().iter().all(|info| info.segment != segment));
}

#[test]
fn checkpoint_and_identity_are_there_after_a_restart() {
    let disk = SimDisk::new(1);
    let options = Options::small();
    let (journal, driver) = start(&disk, &options);
    journal.set_checkpoint("0001.ckpt", Lsn(1)).unwrap();
    assert!(journal.set_checkpoint(&"x".repeat(33), Lsn(1)).is_err());
    drop((journal, driver));
    let recovery = open(&disk, &Options { identity: None, ..options }).unwrap();
    assert_eq!(
        recovery.checkpoint().map(|found| (found.name.as_str(), found.lsn)),
        Some(("0001.ckpt", Lsn(1)))
    );
    assert_eq!(recovery.identity().folder, 0xf01d);
}

#[test]
fn second_server_on_a_folder_is_refused() {
    let disk = SimDisk::new(1);
    let first = open(&disk, &Options::small()).unwrap();
    let error = open(&disk, &Options::small()).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    drop(first);
    open(&disk, &Options::small()).unwrap();
}

#[test]
fn threads_on_a_real_disk_keep_every_record_of_four_writers() {
    for backend in [BackendKind::Buffered, BackendKind::Direct, BackendKind::Uring] {
        four_writers(backend);
    }
}

fn four_writers(backend: BackendKind) {
    let folder = tempfile::tempdir().unwrap();
    let vfs: Arc<dyn Vfs> = Arc::new(vfs::RealDisk);
    let clock = Arc::new(clock::SystemClock);
    let options = Options { segment_size_bytes: 1 << 20, backend, ..Options::small() };
    let open = || Journal::open(Arc::clone(&vfs), clock.clone(), folder.path(), options.clone()).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let hooks = Hooks { on_credits: Box::new(move || sender.send(()).unwrap_or(())), ..Hooks::default() };
    let journal = open().start(hooks).unwrap();
    // A host without O_DIRECT or io_uring falls back, and says so.
    assert!(
        journal.backend().kind == backend || journal.backend().to_string().contains("does not work here")
    );
    let receiver = std::sync::Mutex::new(receiver);
    std::thread::scope(|scope| {
        for writer in 0_u32..4 {
            let (journal, receiver) = (&journal, &receiver);
            scope.spawn(move || {
                for n in 0_u32..500 {
                    let payload = [writer.to_le_bytes(), n.to_le_bytes()].concat().repeat(40);
                    while append(journal, &[&payload]).is_none() {
                        let _ = receiver.lock().unwrap().recv_timeout(Duration::from_millis(50));
                    }
                    journal.offer();
                }
            });
        }
    });
    journal.close();
    assert_eq!(journal.durable_seq(), Seq(2000));
    drop(journal);
    let recovery = open();
    assert!(recovery.clean());
    assert_eq!(records(&recovery).unwrap().len(), 2000, "{backend}");
}

#[test]
fn backend_that_does_not_work_falls_back_and_says_so() {
    let disk = SimDisk::new(1);
    let options = Options { backend: BackendKind::Uring, ..Options::small() };
    let (journal, _driver) = start(&disk, &options);
    assert_eq!(
        journal.backend().to_string(),
        "buffered (uring does not work here: this disk has no descriptors)"
    );
}

#[test]
fn first_appends_after_a_start_find_room_without_waiting_for_a_thread() {
    let disk = SimDisk::new(1);
    let (journal, _driver) = open(&disk, &Options::small()).unwrap().start_manual(Hooks::default()).unwrap();
    for _ in 0..50 {
        append(&journal, &[&[1_u8; 1000]]).unwrap();
    }
}

#[test]
fn last_reference_dropped_in_a_hook_does_not_wait_for_its_own_thread() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { segment_size_bytes: 1 << 20, ..Options::small() };
    let vfs: Arc<dyn Vfs> = Arc::new(vfs::RealDisk);
    let recovery = Journal::open(vfs, Arc::new(clock::SystemClock), folder.path(), options).unwrap();
    let held: Arc<std::sync::Mutex<Option<Arc<Journal>>>> = Arc::default();
    let (sender, receiver) = std::sync::mpsc::channel();
    let in_hook = Arc::clone(&held);
    let on_advance = Box::new(move |seq| {
        drop(in_hook.lock().unwrap().take());
        sender.send(seq).unwrap_or(());
    });
    let journal = recovery.start(Hooks { on_advance, ..Hooks::default() }).unwrap();
    append(&journal, &[b"the last one"]).unwrap();
    *held.lock().unwrap() = Some(Arc::clone(&journal));
    journal.offer();
    drop(journal);
    assert_eq!(receiver.recv_timeout(Duration::from_secs(20)).unwrap(), Seq(1));
}
