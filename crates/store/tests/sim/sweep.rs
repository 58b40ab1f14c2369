//! An error, or the loss of power, at the Nth I/O of each phase of a store's life.
//!
//! A phase runs from the same beginning for N = 1, 2, ... until it gets through without meeting the fault.
//! Whatever the store said meanwhile, a start on a healthy disk must find every acknowledged write.

use std::path::Path;

use store::Eviction;
use vfs::sim::{Effect, Fault, Kinds};

use crate::eviction::Pressure;
use crate::model::State;
use crate::world::{Outcome, Plan, Trouble, World, folder, violation};

/// Most points of a phase that are tried.
const POINTS_MAX: u64 = 200;

/// A phase of life that the fault meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Opening a folder that was left by kill -9.
    Start,
    /// Writing, reading and committing.
    Write,
    /// Footers, cleaning, checkpoints, recycling.
    Clean,
    /// Evicting keys that a start has left on disk, between writes and housekeeping.
    Evict,
    /// Copying a running store.
    Backup,
}

/// Tries `effect` at every point of `phase`; returns how many there were.
pub fn sweep(phase: Phase, effect: Effect, seed: u64) -> u64 {
    for nth in 1..=POINTS_MAX {
        let kinds = if effect == Effect::PowerOff { Kinds::CHANGES } else { Kinds::ANY };
        match point(phase, Fault::at(nth, effect).of(kinds), seed) {
            Ok(true) => {}
            Ok(false) => return nth - 1,
            Err(trouble) => panic!("{phase:?}, {effect:?} at I/O {nth}, seed {seed}: {trouble:?}"),
        }
    }
    POINTS_MAX
}

/// Runs the phase with the fault; returns whether the fault struck.
fn point(phase: Phase, fault: Fault, seed: u64) -> Outcome<bool> {
    let mut world = World::new(Plan::of(seed), Box::new(|_| {}));
    world.open()?;
    for _ in 0..120 {
        world.quiet_step()?;
    }
    if phase == Phase::Start {
        let disk = world.disk.process_death();
        world.abandon(disk);
    }
    if phase == Phase::Evict {
        world.kill()?;
        world.limit_disk(Eviction::AllKeysLru, 8_000)?;
    }
    world.disk.record_trace();
    world.disk.plan(fault);
    let outcome = run(phase, &mut world);
    let struck = world.disk.trace().iter().any(|operation| operation.effect.is_some());
    if let Err(Trouble::Violation(what)) = outcome {
        return violation(what);
    }
    let disk = if world.disk.is_powered() && world.rng.chance(1, 2) {
        world.disk.process_death()
    } else {
        world.disk.crash(world.rng.bits())
    };
    disk.clear_faults();
    world.pressure = Pressure::default();
    world.restart_on(disk)?;
    world.put()?;
    world.settle()?;
    Ok(struck)
}

fn run(phase: Phase, world: &mut World) -> Outcome<()> {
    match phase {
        Phase::Start => world.try_open().map_err(|error| Trouble::Dead(error.to_string())),
        Phase::Write => (0..120).try_for_each(|_| tolerate(world.quiet_step())),
        Phase::Clean => (0..30).try_for_each(|round| {
            tolerate(world.put())?;
            tolerate(world.housekeep())?;
            if round % 10 == 5 { tolerate(world.checkpoint()) } else { tolerate(world.drive()) }
        }),
        Phase::Evict => (0..30).try_for_each(|_| {
            tolerate(world.put())?;
            tolerate(world.evict_keys(2))?;
            tolerate(world.housekeep())?;
            tolerate(world.read())?;
            tolerate(world.drive())
        }),
        Phase::Backup => {
            let out = folder().join("backup");
            tolerate(world.backup(&out))
        }
    }
}

/// A refusal is an honest answer to a fault; the world goes on.
fn tolerate(outcome: Outcome<()>) -> Outcome<()> {
    match outcome {
        Err(Trouble::Refused(_) | Trouble::Waits) => Ok(()),
        other => other,
    }
}

/// What a store finds that is opened on the folder `path` of `world`'s disk.
pub fn opened_copy(world: &World, path: &Path) -> Outcome<State> {
    let mut copy = World::at(world, path);
    copy.try_open().map_err(|error| Trouble::Violation(format!("the copy does not open: {error}")))?;
    copy.read_all()
}
