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

#[test]
fn a_thousand_mutations_of_each_are_survived() {
    for target in TARGETS {
        let pool = (target.seeds)();
        let mut mutator = fuzz::Mutator::new(1, target.words, target.input_bytes_max);
        for _ in 0..1_000 {
            (target.run)(&mutator.next(&pool));
        }
    }
}
