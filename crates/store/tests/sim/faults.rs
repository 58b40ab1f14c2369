//! What the outside does to a store in its random lives: power that goes in the midst of a step or of a start, a wall clock
//! that steps, a disk that fills up and has room again.
//!
//! A full disk refuses what grows, and that alone: reads and removals go on, and a refusal leaves no trace (the model
//! hears nothing of it). Once there is room again everything is as before.

use std::time::Duration;

use clock::{Clock, UnixMs};
use store::StoreError;
use vfs::SimDisk;
use vfs::sim::{Effect, Fault, Kinds};

use crate::world::{Outcome, Trouble, World, violation};

/// What a new segment leaves of the disk: room for a manifest and a checkpoint.
pub const MARGIN_BYTES: u64 = 640 << 10;

/// How often lives met what they are meant to meet: a fault that never strikes shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    pub deaths_in_steps: u64,
    pub deaths_in_starts: u64,
    pub clock_steps_back: u64,
    /// Starts of the machine.
    pub reboots: u64,
    pub refusals: u64,
    pub starts_without_room: u64,
    pub room_again: u64,
    pub segments_that_wait: u64,
    pub branches_prepared: u64,
    pub branches_found_by_starts: u64,
    pub branches_committed: u64,
    pub branches_rolled_back: u64,
    pub conflicts: u64,
    pub locked: u64,
    pub evicted_keys: u64,
    /// Of them, those that somebody looked for at once.
    pub evictions_seen: u64,
    pub waits_for_evictions: u64,
    pub refusals_by_limits: u64,
    /// Changes of collections so large that they may be logged by themselves.
    pub changes_of_collections: u64,
    pub collections_emptied: u64,
    /// How often fields have ended, and how many a store has removed from one start on, their hash staying.
    pub fields_ended: u64,
    pub fields_purged: u64,
    /// Collections that were read in parts to their ends, and such that could not be.
    pub readers_ended: u64,
    pub readers_lost: u64,
    /// Turns of housekeeping after which values had been folded since the start.
    pub folds: u64,
}

impl Met {
    pub fn add(&mut self, other: &Self) {
        self.deaths_in_steps += other.deaths_in_steps;
        self.folds += other.folds;
        self.deaths_in_starts += other.deaths_in_starts;
        self.clock_steps_back += other.clock_steps_back;
        self.reboots += other.reboots;
        self.refusals += other.refusals;
        self.starts_without_room += other.starts_without_room;
        self.room_again += other.room_again;
        self.segments_that_wait += other.segments_that_wait;
        self.branches_prepared += other.branches_prepared;
        self.branches_found_by_starts += other.branches_found_by_starts;
        self.branches_committed += other.branches_committed;
        self.branches_rolled_back += other.branches_rolled_back;
        self.conflicts += other.conflicts;
        self.locked += other.locked;
        self.evicted_keys += other.evicted_keys;
        self.evictions_seen += other.evictions_seen;
        self.waits_for_evictions += other.waits_for_evictions;
        self.refusals_by_limits += other.refusals_by_limits;
        self.changes_of_collections += other.changes_of_collections;
        self.collections_emptied += other.collections_emptied;
        self.fields_ended += other.fields_ended;
        self.fields_purged += other.fields_purged;
        self.readers_ended += other.readers_ended;
        self.readers_lost += other.readers_lost;
    }

    pub fn is_everything(&self) -> bool {
        let Self { deaths_in_steps, deaths_in_starts, clock_steps_back, reboots, .. } = *self;
        let Self { refusals, starts_without_room, room_again, segments_that_wait, .. } = *self;
        let deaths = [deaths_in_steps, deaths_in_starts];
        let others =
            [clock_steps_back, reboots, refusals, starts_without_room, room_again, segments_that_wait];
        let Self { branches_prepared, branches_found_by_starts, branches_committed, .. } = *self;
        let Self { branches_rolled_back, conflicts, locked, .. } = *self;
        let branches =
            [branches_prepared, branches_found_by_starts, branches_committed, branches_rolled_back];
        let conflicts = [conflicts, locked];
        let Self { evicted_keys, evictions_seen, waits_for_evictions, refusals_by_limits, .. } = *self;
        let fields = [self.fields_ended, self.fields_purged];
        let collections = [self.changes_of_collections, self.collections_emptied, self.folds];
        let readers = [self.readers_ended, self.readers_lost];
        let evictions = [evicted_keys, evictions_seen, waits_for_evictions, refusals_by_limits];
        deaths
            .iter()
            .chain(&others)
            .chain(&branches)
            .chain(&conflicts)
            .chain(&evictions)
            .chain(&collections)
            .chain(&fields)
            .chain(&readers)
            .all(|count| *count > 0)
    }
}

impl World {
    /// The power will go at one of the next changes of the disk.
    pub fn doom(&mut self) -> Outcome<()> {
        let nth = 1 + self.rng.below(30);
        self.disk.plan(Fault::at(nth, Effect::PowerOff).of(Kinds::CHANGES));
        Ok(())
    }

    /// After a step in which the power went it comes back; or it was the process alone that died.
    pub fn survive(&mut self, outcome: Outcome<()>) -> Outcome<()> {
        if self.disk.is_powered() || matches!(outcome, Err(Trouble::Violation(_))) {
            return outcome;
        }
        self.met.deaths_in_steps += 1;
        if self.rng.chance(1, 2) { self.kill() } else { self.crash() }
    }

    /// Starts on `disk`, sometimes under another time; now and then the power goes during the start, and again.
    pub fn restart_in_peril(&mut self, disk: SimDisk) -> Outcome<()> {
        self.abandon(disk);
        if self.rng.chance(1, 3) {
            self.clock.reboot();
            self.has_rebooted = true;
            self.met.reboots += 1;
        }
        if self.rng.chance(1, 3) {
            self.advance()?;
        }
        if self.rng.chance(1, 3) {
            self.set_wall_clock()?;
        }
        while self.rng.chance(1, 4) {
            self.doom()?;
            match self.open() {
                Err(Trouble::Dead(_)) if !self.disk.is_powered() => {}
                other => return other,
            }
            self.met.deaths_in_starts += 1;
            let disk = self.disk.crash(self.rng.bits());
            self.abandon(disk);
        }
        self.open()
    }

    pub fn advance(&mut self) -> Outcome<()> {
        let step = Duration::from_millis(1 + self.rng.below(1 << self.rng.clone().below(14)));
        self.clock.advance(step);
        Ok(())
    }

    /// An operator or NTP sets the wall clock, back as often as not.
    pub fn set_wall_clock(&mut self) -> Outcome<()> {
        let step_ms = 1 + self.rng.below(1 << self.rng.clone().below(17));
        let now_ms = self.clock.unix_ms().0;
        let set_ms = if self.rng.chance(1, 2) { now_ms + step_ms } else { now_ms - step_ms };
        self.met.clock_steps_back += u64::from(set_ms < now_ms);
        self.clock.set_unix_ms(UnixMs(set_ms));
        Ok(())
    }

    /// The disk has hardly any room left; or, if so, it has room again.
    pub fn change_room(&mut self) -> Outcome<()> {
        if self.is_limited {
            self.give_room();
            self.drive()?;
            self.met.room_again += 1;
            return self.put();
        }
        // the journal stops at its margin; somebody else may eat that, too
        let margin_bytes = if self.rng.chance(1, 2) { MARGIN_BYTES } else { 0 };
        let left_bytes = margin_bytes + self.rng.below(128 << 10);
        self.disk.set_capacity(self.disk.used_bytes() + left_bytes);
        self.is_limited = true;
        self.has_margin = margin_bytes > 0;
        for _ in 0..self.rng.below(80) {
            let outcome = self.put().and_then(|()| self.drive());
            self.pardon(outcome)?;
        }
        self.remove()
    }

    pub fn give_room(&mut self) {
        self.disk.set_capacity(u64::MAX);
        (self.is_limited, self.has_margin, self.has_spent_reserve) = (false, false, false);
    }

    /// A full disk may refuse a step, and so may a limit; nothing else may.
    pub fn pardon(&mut self, outcome: Outcome<()>) -> Outcome<()> {
        match outcome {
            Err(Trouble::Refused(StoreError::DiskFull(_) | StoreError::Journal(_))) if self.is_limited => {
                self.met.refusals += 1;
                Ok(())
            }
            Err(Trouble::Refused(error)) if self.is_of_limit(&error) => {
                self.met.refusals_by_limits += 1;
                self.evict_for_writer()
            }
            Err(Trouble::Waits) => {
                self.met.waits_for_evictions += 1;
                self.evict_for_writer()
            }
            other => other,
        }
    }

    /// What a full disk must not refuse, as long as the reserve of removals is there.
    pub fn insist<T>(&self, outcome: Outcome<T>, what: &str) -> Outcome<T> {
        match outcome {
            refused @ Err(Trouble::Refused(StoreError::DiskFull(_))) if self.has_spent_reserve => refused,
            Err(Trouble::Refused(error)) if self.is_limited || self.plan.evicts => {
                violation(format!("{what} is refused: {error}"))
            }
            Err(Trouble::Waits) => violation(format!("{what} waits for evictions")),
            other => other,
        }
    }

    /// Cleaning and starts take from the reserve of removals. Its next file needs half of the journal's margin: where somebody else has eaten
    /// that, what is taken may not come back until there is room again.
    pub fn spend_reserve(&mut self) {
        self.has_spent_reserve |= self.is_limited && !self.has_margin;
    }
}
