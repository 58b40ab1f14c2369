//! Whole topologies on workers that die, over links that are cut, from one seed: any order of messages, losses, doubles, moves and crashes.
//!
//! The machines are the real ones; what drives them here is a worker in short, which dies between any two steps. What must hold, whatever happens:
//! at-most-once processes nothing twice; at-least-once loses nothing: each input is in the output, or a dead letter with its own bytes; exactly-once counts
//! and emits as if nothing had happened; queues keep their bounds; and when the faults are over, all input is settled and nothing waits.
//!
//! `EVENKEEL_SIM_SEEDS` sets how many seeds run (500), `EVENKEEL_SIM_SEED` the first one (0): a failure prints the seed that
//! repeats it alone. Every run is a function of its seed. `cargo xtask planted` has the bugs that it must find.
#![allow(missing_docs, clippy::unwrap_used, unreachable_pub, reason = "tests")]

mod control;
mod judge;
mod network;
mod node;
mod part;
mod server;
mod shapes;
mod world;

use world::{Met, World};

/// Runs one seed until all is at rest.
fn run(seed: u64) -> Result<World, String> {
    let mut world = World::new(seed);
    match world.run() {
        Ok(()) => Ok(world),
        Err(what) => Err(format!("EVENKEEL_SIM_SEED={seed} EVENKEEL_SIM_SEEDS=1: {what}")),
    }
}

#[test]
fn random_lives_keep_their_guarantees() {
    let (first, count) = (number("EVENKEEL_SIM_SEED", 0), number("EVENKEEL_SIM_SEEDS", 500));
    println!("seeds {first}..{}", first + count);
    let mut met = Met::default();
    for seed in first..first + count {
        met.add(&run(seed).unwrap_or_else(|what| panic!("{what}")).met);
    }
    println!("{met:?}");
    assert!(count < 100 || met.is_everything(), "what never happens shows nothing: {met:?}");
}

#[test]
fn equal_seed_gives_equal_trace() {
    for seed in 0..20 {
        let (one, two) = (run(seed).unwrap(), run(seed).unwrap());
        assert_eq!(one.digest(), two.digest(), "seed {seed}");
    }
    assert_ne!(run(1).unwrap().digest(), run(2).unwrap().digest());
}

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Err(_) => default,
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")),
    }
}
