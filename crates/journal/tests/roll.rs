//! Waiters on both sides of a roll, with the journal's own threads.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use clock::SystemClock;
use journal::{Class, Draft, Hooks, Journal, Options, Seq};
use vfs::RealDisk;

/// A pipeline of 256 SETs crossed into the second segment: the cycle ended before the roll, and what came after it had been
/// offered already. Nobody offered again, so the journal slept on it and the client waited for ever.
#[test]
fn one_offer_of_records_on_both_sides_of_a_roll_makes_all_of_them_durable() {
    let folder = tempfile::tempdir().expect("a folder");
    let (advanced, advances) = mpsc::channel::<Seq>();
    let on_advance = Box::new(move |seq| {
        let _ = advanced.send(seq);
    });
    let recovery = Journal::open(Arc::new(RealDisk), Arc::new(SystemClock), folder.path(), Options::small())
        .expect("opens");
    let journal = recovery.start(Hooks { on_advance, ..Hooks::default() }).expect("starts");
    let payload: [&[u8]; 1] = [&[7; 512]];
    let mut places = Vec::new();
    for _ in 0..40 {
        let mut last = Seq(0);
        for _ in 0..64 {
            let bytes = journal::footprint([512]);
            let credits = loop {
                match journal.reserve(bytes, Class::Write) {
                    Ok(credits) => break credits,
                    Err(_) => drop(advances.recv_timeout(Duration::from_millis(10))),
                }
            };
            last = journal.append(credits, &[Draft::new(1, 0, &payload)], &mut places).last_seq;
        }
        journal.offer();
        while journal.durable_seq() < last {
            advances.recv_timeout(Duration::from_secs(20)).expect("what was offered becomes durable");
        }
    }
    assert!(journal.segments().len() > 2, "the records crossed rolls");
    journal.close();
}
