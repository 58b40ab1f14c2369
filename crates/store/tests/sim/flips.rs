//! Bit flips, misdirected and lost writes: damage is found, and a wrong value is never returned.

use std::path::PathBuf;

use vfs::SimDisk;
use vfs::sim::Rng;

use crate::model::State;
use crate::world::{Outcome, Plan, Trouble, World, folder};

/// How damage showed.
#[derive(Debug, Default)]
pub struct Tally {
    /// The store did not open.
    pub refused: u64,
    /// It opened, and some reads gave an error.
    pub errors: u64,
    /// The flipped bit held nothing: all is right.
    pub harmless: u64,
}

/// A stopped store of some age: its disk, and what it held.
pub fn aged(seed: u64) -> Outcome<(World, State)> {
    let mut world = World::new(Plan::of(seed), Box::new(|_| {}));
    world.open()?;
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
    Ok((world, state))
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
    let place = format!("bit {bit} of byte {offset} of {}", path.display());
    if copy.try_open().is_err() {
        tally.refused += 1;
        return Ok(());
    }
    match copy.read_all() {
        Ok(found) if found == *state => tally.harmless += 1,
        Ok(found) => return Err(format!("{place}: silently different: {}", difference(state, &found))),
        Err(Trouble::Violation(what)) => return Err(format!("{place}: {what}")),
        Err(_) => {
            tally.errors += 1;
            copy.compare_each(state).map_err(|what| format!("{place}: {what}"))?;
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
