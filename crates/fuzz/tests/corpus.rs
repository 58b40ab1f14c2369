//! Every input that once broke a decoder, or that covers a corner of one, stays harmless.
#![allow(missing_docs, reason = "tests")]

use fuzz::TARGETS;

#[test]
fn every_corpus_and_seed_is_survived() {
    for target in TARGETS {
        match fuzz::replay(target) {
            Ok(count) => assert!(count > 0, "{} starts from nothing", target.name),
            Err(finding) => panic!("{}: {}: {:02x?}", target.name, finding.what, finding.input),
        }
    }
}

/// Each input of these starts a journal or two.
const SLOW: &[&str] = &["journal-folder"];

#[test]
fn a_thousand_mutations_of_each_are_survived_and_a_hundred_of_the_slow() {
    for target in TARGETS {
        let count = if SLOW.contains(&target.name) { 100 } else { 1_000 };
        let pool = (target.seeds)();
        let mut mutator = fuzz::Mutator::new(1, target.words, target.input_bytes_max);
        for _ in 0..count {
            (target.run)(&mutator.next(&pool));
        }
    }
}
