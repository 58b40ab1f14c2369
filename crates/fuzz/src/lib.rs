//! Fuzz targets of every decoder, as plain functions, and a runner that needs no nightly toolchain.
//!
//! Invariants
//!   1. A target is a function of its bytes alone: equal bytes, equal outcome.
//!   2. A target fails by panicking, for any bytes whatever: what a peer, a disk or a person can send must be
//!      refused as an error value.
//!   3. Equal target, corpus and seed give equal inputs, in equal order.
//!
//! A target under libFuzzer or AFL is one line around [`Target::run`]; the corpus is one file an input, in
//! `crates/fuzz/corpus/NAME`, as those tools have it. Without coverage to steer by, mutations lean on the
//! target's own words ([`Target::words`]) and on splicing inputs that are valid.
//!
//! Out of scope: finding memory errors (there is no `unsafe` in a decoder).

mod mutate;
mod runner;
mod targets;

use std::path::PathBuf;

pub use mutate::Mutator;
pub use runner::{Finding, Plan, replay, run};
pub use targets::TARGETS;

/// One decoder to break.
pub struct Target {
    /// What it is called, on the command line and as a folder.
    pub name: &'static str,
    /// Feeds the decoder; panics when a property does not hold.
    pub run: fn(&[u8]),
    /// Valid inputs that mutations start from, beside the corpus.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Bytes that mean something to the decoder.
    pub words: &'static [&'static [u8]],
    /// Mutated inputs are at most this long.
    pub input_bytes_max: usize,
}

impl Target {
    /// The target called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Where its corpus is.
    #[must_use]
    pub fn corpus(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(self.name)
    }
}
