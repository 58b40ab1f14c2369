//! What the machine itself costs: a transaction over two resources that do nothing, and a log that has written at once.
//!
//! ```sh
//! cargo test --release -p txn --test cost -- --ignored --nocapture
//! ```
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use clock::{Clock, Nanos, SystemClock, UnixMs};
use txn::id::TxId;
use txn::protocol::{Effect, Timing, Transaction};
use txn::resource::{Abilities, Answer, Ask, Vote};

const TRANSACTIONS: u64 = 200_000;
const WALL: UnixMs = UnixMs(1_700_000_000_000);

/// From begin to end; returns how many effects it had.
fn run(number: u64, names: &[Arc<str>; 2], effects: &mut Vec<Effect>, todo: &mut Vec<Effect>) -> u64 {
    let (now, mut count) = (Nanos(number), 0);
    let mut tx = Transaction::begin(TxId { epoch: 1, number }, Nanos(u64::MAX), Timing::default());
    for (place, name) in names.iter().enumerate() {
        tx.enlist(place as u16, Abilities::default(), name.clone()).unwrap();
    }
    tx.commit(now, WALL, effects).unwrap();
    while !effects.is_empty() {
        std::mem::swap(effects, todo);
        for effect in todo.drain(..) {
            count += 1;
            match effect {
                Effect::Ask { branch, ask, attempt, .. } => {
                    let answer = if ask == Ask::Prepare { Answer::Voted(Vote::Yes) } else { Answer::Done };
                    tx.on_answer(now, WALL, branch, ask, attempt, answer, effects);
                }
                Effect::Write(_) => tx.on_logged(now, WALL, Ok(()), effects),
                Effect::Remove | Effect::Finish(_) | Effect::End => {}
            }
        }
        std::hint::black_box(tx.next_time());
    }
    count
}

#[test]
fn transaction_over_two_has_eight_effects() {
    let names = ["one".into(), "two".into()];
    assert_eq!(run(1, &names, &mut Vec::new(), &mut Vec::new()), 8);
}

#[test]
#[ignore = "a figure, not a test"]
fn cost_of_an_empty_transaction() {
    let names = ["one".into(), "two".into()];
    let (mut effects, mut todo) = (Vec::new(), Vec::new());
    for round in 0..5 {
        let begun = SystemClock.now();
        let count = (0..TRANSACTIONS).map(|number| run(number, &names, &mut effects, &mut todo)).sum::<u64>();
        let took = SystemClock.now().since(begun);
        println!(
            "round {round}: {} ns a transaction, {count} effects",
            took.as_nanos() as u64 / TRANSACTIONS
        );
    }
}
