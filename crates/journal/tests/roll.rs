//! Rolls: waiters on both sides of one, with the journal's own threads; and what a seal vouches for.

mod common;

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use clock::{Clock, SystemClock};
use journal::{Class, Draft, Hooks, Journal, Keyspace, Options, SegmentId, SegmentState, Seq};
use vfs::{RealDisk, SimDisk};

/// A pipeline of 256 SETs crossed into the second segment: the cycle ended before the roll, and what came after it had been
/// offered already. Nobody offered again, so the journal slept on it and the client waited for ever.
#[test]
fn one_offer_of_records_on_both_sides_of_a_roll_makes_all_of_them_durable() {
    let folder = tempfile::tempdir().expect("a folder");
    let (journal, advances) = start(&folder);
    for _ in 0..40 {
        append_64(&journal, &advances);
    }
    assert!(journal.segments().len() > 2, "the records crossed rolls");
    journal.close();
}

/// Cleaning gives segments back many at a time. One file was ready then, so all of them were removed, and each roll
/// after that made a new file and filled it with zeroes: everything was written twice.
#[test]
fn files_of_segments_that_were_given_back_together_serve_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (journal, advances) = start(&folder);
    let sealed = || {
        let segments = journal.segments().into_iter().filter(|info| info.state != SegmentState::Open);
        segments.map(|info| info.segment).collect::<Vec<_>>()
    };
    let mut given_back = SegmentId(0);
    while journal.counters().files_recycled < 20 {
        append_64(&journal, &advances);
        let fresh: Vec<_> = sealed().into_iter().filter(|segment| *segment > given_back).collect();
        if fresh.len() >= 4 {
            given_back = *fresh.last().expect("four");
            fresh.into_iter().for_each(|segment| journal.retire(segment).expect("sealed"));
        }
        let made = journal.counters().files_created;
        assert!(made < 16, "{made} files made, {} served again", journal.counters().files_recycled);
    }
    // nothing rolls any more: what waited is removed
    let clock = SystemClock;
    let given_up = clock.now() + Duration::from_secs(20);
    while sealed().iter().any(|segment| *segment <= given_back) {
        assert!(clock.now() < given_up, "spare files stay: {:?}", sealed());
        std::thread::park_timeout(Duration::from_millis(20));
    }
    journal.close();
}

/// A journal with small segments and its own threads, and how far it got.
fn start(folder: &tempfile::TempDir) -> (Arc<Journal>, mpsc::Receiver<Seq>) {
    let (advanced, advances) = mpsc::channel::<Seq>();
    let on_advance = Box::new(move |seq| {
        let _ = advanced.send(seq);
    });
    let recovery = Journal::open(Arc::new(RealDisk), Arc::new(SystemClock), folder.path(), Options::small())
        .expect("opens");
    (recovery.start(Hooks { on_advance, ..Hooks::default() }).expect("starts"), advances)
}

/// Appends 64 records of 512 bytes, offers once, and waits until they are durable.
fn append_64(journal: &Journal, advances: &mpsc::Receiver<Seq>) {
    let payload: [&[u8]; 1] = [&[7; 512]];
    let mut last = Seq(0);
    for _ in 0..64 {
        let bytes = journal::footprint([512]);
        let credits = loop {
            match journal.reserve(bytes, Class::Write) {
                Ok(credits) => break credits,
                Err(_) => drop(advances.recv_timeout(Duration::from_millis(10))),
            }
        };
        last = journal.append(credits, &[Draft::new(1, Keyspace::NONE, &payload)], &mut Vec::new()).last_seq;
    }
    journal.offer();
    while journal.durable_seq() < last {
        advances.recv_timeout(Duration::from_secs(20)).expect("what was offered becomes durable");
    }
}

/// An idle journal wrote its stamp, which no sync covers, and the next group did not fit: the segment was sealed with the
/// stamp in it. The power went, the stamp had not arrived, and a start refused the sealed segment as damaged.
#[test]
fn stamp_at_the_end_of_a_sealed_segment_is_durable() {
    let options = Options { segment_size_bytes: 64 << 10, ..Options::small() };
    for seed in 0..30 {
        let disk = SimDisk::new(1);
        let (journal, mut driver) = common::start(&disk, &options);
        let mut records = 0;
        while journal.segments().len() < 2 {
            common::append(&journal, &[&[7; 2_000]]).expect("room");
            records += 1;
            // where the next group rolls, the stamp is the segment's last batch
            driver.commit();
            driver.stamp();
            driver.prepare();
        }
        let found = common::open(&disk.crash(seed), &options).and_then(|recovery| common::records(&recovery));
        let found = found.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(found.len(), records, "seed {seed}");
    }
}
