//! Bit flips, misdirected and lost writes: damage is found, and a wrong value is never returned.

use std::path::PathBuf;

use vfs::SimDisk;
use vfs::sim::{Effect, Fault, Kinds, Rng};

use crate::model::State;
use crate::world::{Outcome, Plan, Trouble, World, folder};

/// How damage showed.
#[derive(Debug, Default)]
pub struct Tally {
    /// The store did not open.
    pub refused: u64,
    /// It opened, and some reads gave an error.
    pub errors: u64,
    /// What was hit held nothing: all is right.
    pub harmless: u64,
}

/// A stopped store of some age: its disk, and what it held.
pub fn aged(seed: u64) -> Outcome<(World, State)> {
    let mut world = World::new(Plan::of(seed), Box::new(|_| {}));
    world.open()?;
    let state = age(&mut world)?;
    Ok((world, state))
}

/// Writes, cleans, takes a checkpoint, writes on and stops; returns what is there then.
fn age(world: &mut World) -> Outcome<State> {
    for step in 0..300 {
        world.quiet_step()?;
        if step % 9 == 0 {
            world.housekeep()?;
        }
    }
    world.checkpoint()?;
    for _ in 0..40 {
        world.quiet_step()?;
    }
    world.settle()?;
    let state = world.read_all()?;
    world.stop()?;
    Ok(state)
}

/// One write of a store's life goes elsewhere, or nowhere; then looks at everything after a stop.
///
/// # Errors
/// The wrong value, or the acknowledged one that is missing without a word.
pub fn stray(seed: u64, tally: &mut Tally) -> Result<(), String> {
    let mut rng = Rng::new(seed ^ 0x57A1);
    let path = ["", ".seg", "MANIFEST", "checkpoint"][rng.index(4)];
    let by = (1 + rng.below(40) as i64) * if rng.chance(1, 2) { 4096 } else { 512 };
    let effect = match rng.below(3) {
        0 => Effect::Lie,
        1 => Effect::Misdirect(by),
        _ => Effect::Misdirect(-by),
    };
    // a record in the place of another is told by the key's hash bits: it takes more than eight
    let plan = Plan { hash_bits: 128, ..Plan::of(seed) };
    let mut world = World::new(plan, Box::new(|_| {}));
    world.open().map_err(|trouble| format!("{trouble:?}"))?;
    let nth = 1 + rng.below(if path == ".seg" || path.is_empty() { 200 } else { 12 });
    world.is_struck = true;
    world.disk.plan(Fault::at(nth, effect).of(Kinds::WRITE).on(path));
    let address = format!("{effect:?} at write {nth} of {path:?}");
    let state = match age(&mut world) {
        Ok(state) => state,
        Err(Trouble::Violation(what)) => return Err(format!("{address}: {what}")),
        Err(_) => {
            tally.errors += 1; // found while it ran
            return Ok(());
        }
    };
    let mut copy = World::at(&world, &folder());
    copy.disk = world.disk.fork();
    judge(&mut copy, &state, tally).map_err(|what| format!("{address}: {what}"))
}

/// Flips one random bit of one random file, and looks at everything.
///
/// # Errors
/// The wrong value, or the acknowledged one that is missing without a word.
pub fn flip(world: &World, state: &State, rng: &mut Rng, tally: &mut Tally) -> Result<(), String> {
    let disk = world.disk.fork();
    let (path, offset, bit) = target(&disk, rng);
    disk.flip_bit(&path, offset, bit).expect("the file is there");
    let mut copy = World::at(world, &folder());
    copy.disk = disk;
    let address = format!("bit {bit} of byte {offset} of {}", path.display());
    judge(&mut copy, state, tally).map_err(|what| format!("{address}: {what}"))
}

/// Opens the store and looks at everything: it is as in `state`, or an error.
fn judge(copy: &mut World, state: &State, tally: &mut Tally) -> Result<(), String> {
    if copy.try_open().is_err() {
        tally.refused += 1;
        return Ok(());
    }
    match copy.read_all() {
        Ok(found) if found == *state => tally.harmless += 1,
        Ok(found) => return Err(format!("silently different: {}", difference(state, &found))),
        Err(Trouble::Violation(what)) => return Err(what),
        Err(_) => {
            tally.errors += 1;
            copy.compare_each(state)?;
        }
    }
    Ok(())
}

/// A bit of a file, every file as likely as another: small ones matter as much.
fn target(disk: &SimDisk, rng: &mut Rng) -> (PathBuf, u64, u8) {
    let files: Vec<_> = disk.files().into_iter().filter(|(_, length)| *length > 0).collect();
    let (path, length) = files[rng.index(files.len())].clone();
    (path, rng.below(length), rng.below(8) as u8)
}

fn difference(wanted: &State, found: &State) -> String {
    let mut text = String::new();
    for (db, (wanted, found)) in wanted.0.iter().zip(&found.0).enumerate() {
        let keys: std::collections::BTreeSet<_> = wanted.keys().chain(found.keys()).collect();
        for key in keys.into_iter().filter(|key| wanted.get(*key) != found.get(*key)) {
            text +=
                &format!("db {db} {}: {:?} -> {:?}; ", key.escape_ascii(), wanted.get(key), found.get(key));
        }
    }
    text
}
