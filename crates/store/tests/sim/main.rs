//! The whole store on a simulated disk and clock: any order of writes, cleaning, checkpoints and deaths.
//!
//! `EVENKEEL_SIM_SEEDS` sets how many seeds run (500), `EVENKEEL_SIM_SEED` the first one (0): a failure prints
//! the seed that repeats it alone. `EVENKEEL_SIM_FLIPS` (1,000) and `EVENKEEL_SIM_STRAYS` (200) say how many bits are
//! flipped and writes go astray. Every run is a function of its seed, down to the last byte written.
#![allow(missing_docs, clippy::unwrap_used, unreachable_pub, reason = "tests")]

mod collections;
mod eviction;
mod faults;
mod flips;
mod model;
mod readers;
mod sweep;
mod transactions;
mod world;

use std::time::Duration;

use faults::Met;
use journal::BackendKind;
use store::{Durability, EngineKind};
use sweep::{Phase, sweep};
use vfs::SimDisk;
use vfs::sim::{Effect, Fault, Kinds, Rng};
use world::{Plan, World};

const STEPS: usize = 220;

/// Runs one seed: random steps, a crash at the end, and what survived compared each time.
fn run(plan: Plan) -> Result<World, String> {
    run_on(plan, |_| {})
}

/// As [`run`], with something done to each disk before the store opens it.
fn run_on(plan: Plan, prepare: impl Fn(&SimDisk) + 'static) -> Result<World, String> {
    let (seed, engine) = (plan.seed, plan.engine);
    let mut world = World::new(plan, Box::new(prepare));
    let result = world.open().and_then(|()| {
        for _ in 0..STEPS {
            world.step()?;
        }
        if engine == EngineKind::Log {
            world.crash()?;
        }
        world.readers.clear();
        world.check_leaves()
    });
    match result {
        Ok(()) => Ok(world),
        Err(trouble) => Err(format!("EVENKEEL_SIM_SEED={seed} EVENKEEL_SIM_SEEDS=1: {trouble:?}")),
    }
}

#[test]
fn random_lives_lose_nothing_and_invent_nothing() {
    let (first, count) = (number("EVENKEEL_SIM_SEED", 0), number("EVENKEEL_SIM_SEEDS", 500));
    println!("seeds {first}..{}", first + count);
    let mut met = Met::default();
    for seed in first..first + count {
        met.add(&run(Plan::of(seed)).unwrap_or_else(|what| panic!("{what}")).met);
    }
    println!("{met:?}");
    assert!(count < 100 || met.is_everything(), "faults that never strike show nothing: {met:?}");
}

/// Most records have parts of a large collection; here nothing is evicted, which would write roots and leaves whole.
#[test]
fn busy_lives_lose_nothing_and_invent_nothing() {
    let (first, count) = (number("EVENKEEL_SIM_SEED", 0), number("EVENKEEL_SIM_SEEDS", 150));
    println!("seeds {first}..{}", first + count);
    for seed in first..first + count {
        let plan = Plan { is_busy: true, evicts: false, value_bytes_max: 3_000, ..Plan::of(seed) };
        run(plan).unwrap_or_else(|what| panic!("{what}"));
    }
}

#[test]
fn engine_memory_agrees_with_the_model() {
    let mut met = Met::default();
    for seed in 0..100 {
        met.add(&run(Plan { engine: EngineKind::Memory, ..Plan::of(seed) }).unwrap().met);
    }
    println!("{met:?}");
    assert!(met.evicted_keys > 0, "limits that never strike show nothing: {met:?}");
}

#[test]
fn equal_seed_gives_equal_trace() {
    for seed in 0..10 {
        let (one, two) = (run(Plan::of(seed)).unwrap(), run(Plan::of(seed)).unwrap());
        assert_eq!(one.digest(), two.digest(), "seed {seed}");
        assert_eq!(one.model.current(), two.model.current(), "seed {seed}");
    }
    assert_ne!(run(Plan::of(1)).unwrap().digest(), run(Plan::of(2)).unwrap().digest());
}

#[test]
fn error_at_every_io_loses_nothing() {
    let phases =
        [(Phase::Start, 10), (Phase::Write, 20), (Phase::Clean, 50), (Phase::Evict, 30), (Phase::Backup, 5)];
    for (phase, least) in phases {
        for effect in [Effect::Eio, Effect::Enospc, Effect::ShortWrite(700)] {
            let points = sweep(phase, effect, 3);
            println!("{phase:?}, {effect:?}: {points} points");
            assert!(points >= least, "{phase:?} has only {points} points: it does not do its work");
        }
    }
}

#[test]
fn crash_at_every_io_loses_nothing() {
    let phases =
        [(Phase::Start, 3), (Phase::Write, 10), (Phase::Clean, 20), (Phase::Evict, 10), (Phase::Backup, 3)];
    for (phase, least) in phases {
        let points = sweep(phase, Effect::PowerOff, number("EVENKEEL_SIM_SEED", 1));
        println!("{phase:?}, power off: {points} points");
        assert!(points >= least, "{phase:?} has only {points} points: it does not do its work");
    }
}

#[test]
fn flipped_bits_are_found_and_no_wrong_value_is_returned() {
    let (count, mut tally) = (number("EVENKEEL_SIM_FLIPS", 1_000), flips::Tally::default());
    let seeds = 4;
    for seed in 0..seeds {
        let (world, state) = flips::aged(seed).unwrap();
        let mut rng = Rng::new(seed);
        for _ in 0..count / seeds {
            flips::flip(&world, &state, &mut rng, &mut tally)
                .unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        }
    }
    println!("{tally:?}");
    assert!(tally.refused > 0 && tally.errors > 0, "flips that meet nothing show nothing: {tally:?}");
}

#[test]
fn backup_holds_what_the_running_store_holds() {
    for seed in 0..20 {
        let mut world = World::new(Plan::of(seed), Box::new(|_| {}));
        world.open().unwrap();
        for step in 0..150 {
            world.quiet_step().unwrap();
            if step % 8 == 0 {
                world.housekeep().unwrap();
            }
        }
        world.housekeep().unwrap();
        world.settle().unwrap();
        let out = std::path::Path::new("/backup");
        world.backup(out).unwrap();
        let wanted = world.read_all().unwrap();
        for _ in 0..50 {
            // the original goes on, and recycles what the backup may link to: once, though a capture may begin before it does
            world.quiet_step().unwrap();
            world.housekeep().unwrap();
            world.store().check_state();
        }
        world.checkpoint().unwrap();
        let now = world.store().now();
        assert_eq!(sweep::opened_copy(&world, out).unwrap(), wanted.alive(now), "seed {seed}");
    }
}

#[test]
fn misdirected_and_lost_writes_are_found_and_no_wrong_value_is_returned() {
    let (count, mut tally) = (number("EVENKEEL_SIM_STRAYS", 200), flips::Tally::default());
    for seed in 0..count {
        flips::stray(seed, &mut tally).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
    println!("{tally:?}");
    assert!(tally.refused > 0 && tally.errors > 0, "strays that meet nothing show nothing: {tally:?}");
}

/// Faults that no store survives, planted in the disk or in what the store promises: each must be found.
#[test]
fn planted_faults_are_found() {
    let each = |effect, kinds, path: &'static str| {
        move |disk: &SimDisk| disk.plan(Fault::at(1, effect).of(kinds).on(path).repeated())
    };
    let lie = |kinds, path| each(Effect::Lie, kinds, path);
    let buffered = |plan| Plan { backend: BackendKind::Buffered, ..plan };
    let direct = |plan| Plan { backend: BackendKind::Direct, ..plan };
    let lose = |kinds, path: &'static str, nth| {
        move |disk: &SimDisk| disk.plan(Fault::at(nth, Effect::Lie).of(kinds).on(path))
    };
    found("syncs do nothing", |plan| run_on(plan, lie(Kinds::SYNC, "")));
    found("syncs of segments do nothing", |plan| run_on(buffered(plan), lie(Kinds::SYNC, ".seg")));
    found("syncs of the manifest do nothing", |plan| run_on(plan, lie(Kinds::SYNC, "MANIFEST")));
    found("syncs of the folder do nothing", |plan| run_on(plan, lie(Kinds::SYNC_DIR, "")));
    let cached = each(Effect::Cached, Kinds::WRITE, ".seg");
    found("direct writes stay in a cache", |plan| run_on(direct(plan), cached));
    found("a write is lost", |plan| run_on(plan, lose(Kinds::WRITE, ".seg", 9)));
    found("a direct write is lost", |plan| run_on(direct(plan), lose(Kinds::WRITE, ".seg", 9)));
    found("replies do not wait", |plan| run(Plan { durability: Durability::Never, ..plan }));
    found("fields end later than they should", |plan| run(Plan { field_delay_ms: 2_000, ..plan }));
    found("replies wait for a timer", |plan| {
        run(Plan { durability: Durability::Interval(Duration::from_secs(1)), ..plan })
    });
}

/// One of the first hundred seeds must show the planted fault.
fn found(name: &str, run: impl Fn(Plan) -> Result<World, String>) {
    let shown = (0..100).find_map(|seed| run(Plan::of(seed)).err().map(|what| (seed, what)));
    let (seed, what) = shown.unwrap_or_else(|| panic!("planted and not found: {name}"));
    println!("{name}: found by seed {seed}: {}", what.chars().take(150).collect::<String>());
}

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Err(_) => default,
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")),
    }
}
