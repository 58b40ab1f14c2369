//! Counts of words equal a plain count, whatever the threads, and counters agree.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use topology::component::Outcome;
use topology::values;

use crate::fixture::{GRACE, Test, all_acked};

const WORDS: [&str; 5] = ["keel", "mast", "sail", "rudder", "anchor"];

fn sentence(n: u64) -> String {
    let word = |k: u64| WORDS[((n * 7 + k * k) % 5) as usize];
    format!("{} {} {}", word(0), word(1), word(n % 3))
}

fn plain_count(end: u64) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for n in 0..end {
        for word in sentence(n).split(' ') {
            *counts.entry(word.to_owned()).or_default() += 1;
        }
    }
    counts
}

fn count_equals_a_plain_count(threads: usize) {
    const SENTENCES: u64 = 20_000;
    let counts = Arc::new(Mutex::new(BTreeMap::<String, u64>::new()));
    let mut test = Test::new(SENTENCES);
    let split = |tuple: &topology::component::Tuple<'_>, out: &mut topology::component::BoltOut<'_>| {
        for word in sentence(tuple.int("n")? as u64).split(' ') {
            out.emit(&values![word])?;
        }
        Ok(Outcome::Ack)
    };
    test.bolt("split", split).tasks(3).shuffle("numbers").outputs(&["word"]);
    let shared = Arc::clone(&counts);
    test.bolt("count", move |tuple, _| {
        *shared.lock().unwrap().entry(tuple.str("word")?.to_owned()).or_default() += 1;
        Ok(Outcome::Ack)
    })
    .tasks(4)
    .fields("split", &["word"]);
    let (running, told) = test.start(threads);
    all_acked(&told, SENTENCES);
    let within = |quantile| running.complete_within("numbers", quantile);
    assert!(!within(0.5).is_zero() && within(0.5) <= within(1.0));
    let ended = running.kill(GRACE);
    assert!(ended.is_finished && ended.stalled.is_empty());
    assert_eq!(*counts.lock().unwrap(), plain_count(SENTENCES));

    let stats = |id: &str| ended.stats.component(id).unwrap().clone();
    let (numbers, split, count) = (stats("numbers"), stats("split"), stats("count"));
    assert_eq!((numbers.emitted, numbers.acked, numbers.pending), (SENTENCES, SENTENCES, 0));
    assert_eq!((split.executed, split.acked, split.emitted), (SENTENCES, SENTENCES, 3 * SENTENCES));
    assert_eq!((split.edges[0].to.as_str(), split.edges[0].transferred), ("count", 3 * SENTENCES));
    assert_eq!((count.executed, count.failed, count.faults, count.queued_bytes), (3 * SENTENCES, 0, 0, 0));
    let edge = &split.edges[0];
    assert_eq!((edge.executed, edge.acked, edge.failed), (3 * SENTENCES, 3 * SENTENCES, 0));
    assert_eq!(
        (&edge.latencies.execute, &edge.latencies.process),
        (&count.latencies.execute, &count.latencies.process)
    );
    assert_eq!(numbers.latencies.complete.count, SENTENCES);
    assert!(split.latencies.execute.count > 0);
}

#[test]
fn count_by_one_thread_equals_a_plain_count() {
    count_equals_a_plain_count(1);
}

#[test]
fn count_by_two_threads_equals_a_plain_count() {
    count_equals_a_plain_count(2);
}

#[test]
fn count_by_more_threads_than_processors_equals_a_plain_count() {
    count_equals_a_plain_count(7);
}
