//! The budget against a log whose releasing the test owns: who is held back, and who is refused.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use journal::Seq;

use super::*;
use crate::large::Bytes;
use crate::object::{Object, View, WORD_DELTAS, Word};
use crate::policy::Round;
use crate::testlog::{TestLog, at};

#[test]
fn value_with_changes_leaves_memory_once_nobody_folds_it() {
    let mut object = Object::new(1, b"key", Bytes::Plain(b"value"), None);
    object.stamp(at(8), Seq(5));
    let (mut word, mut round) = (Word::hot(object, WORD_DELTAS), Round::default());
    pass(&mut word, Seq(5), &mut round, false, |object| object.address() == at(8));
    assert!(word.object().is_some(), "it is to be folded");
    pass(&mut word, Seq(5), &mut round, false, |_| false);
    assert!(matches!(word.view(), View::Cold(address) if address == at(8)));
    assert_eq!(word.marks(), WORD_DELTAS);
}

#[test]
fn hand_turns_a_released_value_that_is_not_read_into_its_address_and_leaves_few_marks_alone() {
    let mut object = Object::new(1, b"key", Bytes::Plain(b"value"), None);
    object.stamp(at(8), Seq(5));
    let (mut word, mut round) = (Word::hot(object, 0), Round::default());
    word.refer();
    pass(&mut word, Seq(4), &mut round, false, |_| false);
    assert_eq!(word.level(), 1, "its effect is not released: the hand does not count");
    pass(&mut word, Seq(5), &mut round, false, |_| false);
    assert_eq!(word.level(), 0);
    pass(&mut word, Seq(5), &mut round, false, |_| false);
    assert!(matches!(word.view(), View::Cold(address) if address == at(8)) && !word.is_marked());
    word.set_marked(true);
    pass(&mut word, Seq(5), &mut round, false, |_| false);
    assert!(word.is_marked(), "one mark beside two values");
    (0..2).for_each(|_| {
        round = Round::default();
        pass(&mut word, Seq(5), &mut round, false, |_| false);
        round.end();
    });
    pass(&mut word, Seq(5), &mut round, false, |_| false);
    assert!(
        matches!(word.view(), View::Cold(address) if address == at(8)) && !word.is_marked(),
        "a mark beside no values"
    );
}

#[test]
fn large_record_is_counted_while_it_is_read_and_only_who_may_wait_takes_turns() {
    let (index, memory) = (Index::new(1), Memory::new(1 << 20));
    let begin = |bytes, may_wait| memory.begin_read(&index, &|| 0, bytes, may_wait);
    assert!(begin(TURN_BYTES_MIN - 1, true).is_none());
    let first = begin(TURN_BYTES_MIN, true).expect("it is large");
    assert_eq!(memory.ledger.bytes(), TURN_BYTES_MIN);
    assert!(memory.turn.try_lock().is_err(), "no other has a turn");
    // it may be the thread that makes room, or hold stripes that this one needs
    let beside = begin(64 << 20, false).expect("it is large");
    assert_eq!((memory.ledger.bytes(), memory.is_wished()), (TURN_BYTES_MIN + (64 << 20), false));
    drop((first, beside));
    assert_eq!(memory.ledger.bytes(), 0);
    // there never is room, and the wait ends
    drop(begin(2 << 20, true).expect("it is large"));
    assert!(memory.is_wished() && memory.turn.try_lock().is_ok());
}

fn value(is_copied: bool) -> LargeValue {
    LargeValue { bytes: 100, is_copied }
}

fn is_held_back<T>(result: Result<T, Stop>) -> bool {
    match result {
        Ok(_) => panic!("there is no room"),
        Err(stop) => matches!(stop, Stop::Busy),
    }
}

/// What was released just after the hand had passed, and could be dropped, was taken for what never can.
#[test]
fn what_was_released_since_the_hand_looked_is_looked_at_before_anybody_is_refused() {
    let (index, engine, memory) = (Index::new(1), TestLog::default(), Memory::new(1_000));
    let accounts = Accounts { index: &index, engine: &engine };
    memory.report_buffers(1_001, 1_001);
    memory.make_room(accounts, 1, 0);
    assert!(!is_held_back(memory.admit(accounts, 0)));
    engine.append_mapping();
    assert!(!is_held_back(memory.admit(accounts, 0)), "it is not released");
    engine.release(1);
    assert!(is_held_back(memory.admit(accounts, 0)));
    memory.make_room(accounts, 1, 0);
    assert!(is_held_back(memory.admit(accounts, 0)), "the hand has passed one page");
    memory.make_room(accounts, usize::MAX, 0);
    assert!(!is_held_back(memory.admit(accounts, 0)));
}

/// A command made what it answers with, and the effects that it stored, before anybody counted them: a request of 45 bytes took 1.4 GB.
#[test]
fn what_a_command_is_about_to_make_is_held_or_it_waits_until_room_was_made() {
    let (index, engine, memory) = (Index::new(1), TestLog::default(), Memory::new(16_000));
    let accounts = Accounts { index: &index, engine: &engine };
    let (woken, mut asked) = (Arc::new(AtomicU64::new(0)), None);
    let wakes = Arc::clone(&woken);
    memory.set_waker(move || _ = wakes.fetch_add(1, Ordering::SeqCst));
    memory.ask(accounts, &mut asked, 10_000, 0).expect("room");
    assert_eq!((memory.ledger.bytes(), asked.as_ref().map(|it| it.bytes)), (10_000, Some(10_000)));
    assert!(!is_held_back(memory.ask(accounts, &mut asked, 6_000, 0)), "nothing can be dropped");
    engine.append_mapping();
    engine.release(1);
    assert!(is_held_back(memory.ask(accounts, &mut asked, 6_000, 0)));
    assert!(memory.is_wished() && woken.load(Ordering::SeqCst) == 1);
    memory.make_room(accounts, usize::MAX, 0);
    assert!(!memory.is_wished(), "there was nothing");
    assert!(!is_held_back(memory.ask(accounts, &mut asked, 6_000, 0)));
    drop(asked.take());
    assert_eq!((memory.ledger.bytes(), memory.asked_bytes.load(Ordering::SeqCst)), (0, 0));
    memory.report_buffers(20_000, 20_000);
    memory.ask(accounts, &mut asked, 1_000, 0).expect("reads go on where data fills memory");
    assert!(memory.ask(accounts, &mut asked, 1, 0).is_err(), "all of them together hold a part");
}

/// A copy that its command kept while it waited for credits was taken for what stays: another large value was refused.
#[test]
fn large_value_waits_for_the_copies_of_those_who_are_parked() {
    let (index, engine, memory) = (Index::new(1), TestLog::default(), Memory::new(1_000));
    let accounts = Accounts { index: &index, engine: &engine };
    let mut parked = memory.reserve(accounts, value(false)).expect("room");
    parked.copied();
    parked.parked();
    assert_eq!(memory.ledger.bytes(), 0, "the copy counts by itself");
    memory.report_buffers(750 + 100, 850);
    assert!(is_held_back(memory.reserve(accounts, value(false))));
    assert!(memory.reserve(accounts, value(true)).is_ok(), "its own way to the disk has room");
    drop(parked);
    assert!(!is_held_back(memory.reserve(accounts, value(false))));
    assert_eq!((memory.reserved_bytes.load(Ordering::SeqCst), memory.ledger.bytes()), (0, 0));
}

/// Between its credits and its record a large value was neither reserved nor waiting for the disk.
#[test]
fn others_credits_are_waited_for_and_the_own_ones_are_not() {
    let (index, engine, memory) = (Index::new(1), TestLog::default(), Memory::new(1_000));
    let accounts = Accounts { index: &index, engine: &engine };
    engine.set_waiting(100);
    memory.report_buffers(1_150, 1_150);
    assert!(is_held_back(memory.admit(accounts, 0)));
    assert!(!is_held_back(memory.admit(accounts, 100)));
}

/// `SET` of a large value beside small ones at the limit: who made room for the large one waited for a stripe, and who had the
/// stripe for what the other had reserved. All writers stood still, for ever.
#[test]
fn write_at_the_limit_does_not_wait_for_one_who_makes_room() {
    let (index, engine, memory) = (Index::new(1), TestLog::default(), Memory::new(1_000));
    let accounts = Accounts { index: &index, engine: &engine };
    assert!(engine.has_addresses(), "else no room is made");
    engine.append_mapping();
    engine.release(1);
    memory.report_buffers(1_001, 1_001);
    thread::scope(|scope| {
        let stripe = index.lock(0);
        let large = scope.spawn(|| memory.reserve(accounts, value(false)).map(drop));
        // It has the clock hand, and waits for the stripe.
        while memory.hand.try_lock().is_ok() {
            thread::yield_now();
        }
        let (sender, receiver) = mpsc::channel();
        let memory = &memory;
        let small = scope.spawn(move || sender.send(memory.admit(accounts, 0)).expect("it is received"));
        let admitted = receiver.recv_timeout(Duration::from_secs(10));
        drop(stripe);
        assert!(matches!(admitted, Ok(Err(Stop::Busy))), "{admitted:?}");
        small.join().expect("no panic");
        assert!(large.join().expect("no panic").is_err(), "there is no room");
    });
    assert_eq!((memory.reserved_bytes.load(Ordering::SeqCst), memory.ledger.bytes()), (0, 0));
}
