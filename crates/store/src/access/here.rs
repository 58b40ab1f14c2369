//! Reading where something is missed: beside the loops a thread may wait for the disk, and no stripe is locked while it does.
//!
//! ```text
//! lookup -> in memory: copied
//!        -> on disk:   unlock, read, lock, look again: copied, and kept in memory if there is room
//! ```
//!
//! A command that goes through a large collection looks at a [`Slice`] of it at a time, and what was read for that is forgotten with it. So it
//! needs memory for what it keeps, not for what it looks at. All that is copied was asked for (`Access::ask`).
//!
//! Out of scope: accesses that keep their stripes locked, which stop at what is cold (`prepared`).

use std::ops::Range;

use super::Access;
use super::copied::Copied;
use super::nodes::{NodePlace, Paged, damaged};
use super::overlay::KeyPlace;
use super::sequence::{Nodes, leaves_in};
use super::state::State;
use crate::error::{Stop, StoreError};
use crate::large::Bytes;
use crate::memory::RESERVE_PAGES_MAX;
use crate::prepared::Prepared;
use crate::value::ValueKind;
use collections::tree::NODE;
use collections::{Form, Packed};

impl Access<'_> {
    /// Whether lookups read what they miss, and copy what they find.
    pub(super) fn reads_here(&self) -> bool {
        self.copied.is_on
    }

    /// As [`Access::lookup_there`], with the stripe locked for that alone.
    #[cold]
    pub(super) fn lookup_briefly<'c>(
        &self,
        copied: &'c Copied,
        place: KeyPlace<'_>,
    ) -> Result<Option<State<'c>>, Stop> {
        let KeyPlace { keyspace, hash, key, .. } = place;
        if let Some(known) = copied.find(keyspace, hash, key) {
            return Ok(Some(known));
        }
        let (mut read, mut reads): (Option<Prepared>, u32) = (None, 0);
        while reads < READS_MAX {
            self.go_on()?;
            let mut stripe = self.store.index.lock_after_others(hash.stripe());
            if let Some(read) = &read {
                stripe.warm(self.store, read, keyspace, hash, key);
            }
            let prepared = read.as_ref().unwrap_or(self.prepared());
            // what was missed before is asked for when the access ends
            let before = self.wanted.take();
            let found = self.lookup_in(&stripe, prepared, place);
            let missed = self.wanted.replace(before);
            match found {
                // more was read ahead than may be kept for the command
                Ok(Some(state)) if !state.has_value && read.is_none() => read = Some(self.nothing_read()),
                Err(Stop::Cold) => {
                    drop(stripe);
                    reads += 1;
                    self.store.read_wanted(missed, read.get_or_insert_with(|| self.nothing_read()));
                }
                Ok(Some(state)) => {
                    let bytes = Copied::bytes_of(key, &state);
                    // what was just read counts itself
                    let large_bytes = if read.is_some() { large_bytes(&state) } else { 0 };
                    match self.ask_now(bytes + large_bytes) {
                        Ok(()) => {
                            self.give_back(large_bytes);
                            let was_read = read.is_some() || self.is_prepared(&state);
                            return Ok(Some(copied.keep(keyspace, hash, key, State { was_read, ..state })));
                        }
                        Err(Stop::Busy) => {
                            drop(stripe);
                            self.await_room(bytes + large_bytes)?;
                        }
                        Err(stop) => return Err(stop),
                    }
                }
                found => return found.map(|_| None),
            }
        }
        Err(Stop::Cold)
    }

    /// What a lookup reads is counted, and not bounded: it is one value.
    fn nothing_read(&self) -> Prepared {
        let mut read = Prepared::default();
        read.count_in(self.store.memory.ledger(), u64::MAX);
        read
    }

    /// Makes room for `bytes`, or waits a moment for others to do so: whoever would wait elsewhere would read again from the start.
    ///
    /// # Errors
    /// [`Stop::Busy`] when the command has waited [`ROOM_WAITS_MAX`] times, or has a stripe locked; [`Stop::Abandoned`].
    pub(super) fn await_room(&self, bytes: u64) -> Result<(), Stop> {
        self.go_on()?;
        if !self.guards.is_none() || self.room_waits.get() == ROOM_WAITS_MAX {
            return Err(Stop::Busy);
        }
        self.room_waits.set(self.room_waits.get() + 1);
        let memory = &self.store.memory;
        memory.make_room(self.store.accounts(), RESERVE_PAGES_MAX, bytes);
        if !memory.has_room(self.store.accounts(), bytes) {
            // another is making room, or values wait for the disk
            self.store.wait_for_room();
        }
        Ok(())
    }

    /// Refuses what comes to more than one command may hold at once. Where others would wait it is to go on beside the loops, where it asks for
    /// what it holds.
    pub(super) fn check_at_once(&self, bytes: u64, limit_bytes: u64) -> Result<(), Stop> {
        if bytes <= limit_bytes || self.reads_here() { Ok(()) } else { Err(self.too_much_read(limit_bytes)) }
    }

    /// What stops a command that needs more than it may have read for it.
    pub(super) fn too_much_read(&self, limit_bytes: u64) -> Stop {
        if self.effort.is_bounded() { Stop::Long } else { StoreError::ReadTooLarge { limit_bytes }.into() }
    }

    /// All leaves of a collection put together. What they take was asked for.
    pub(super) fn gather_here(&self, paged: &Paged) -> Result<Vec<u8>, Stop> {
        // the parts are there until they are one
        let bytes = paged.root.all_bytes();
        self.ask(bytes)?;
        let parts = match paged.root.tree {
            None => self.parts_of_leaves(paged)?,
            Some(_) => self.parts_of_tree(paged)?,
        };
        let parts: Vec<Packed<'_>> = parts.iter().map(|part| Packed::new(paged.shape(), part)).collect();
        let all = collections::concat(paged.shape(), Form::Table, &parts);
        self.give_back(bytes);
        Ok(all)
    }

    fn parts_of_leaves(&self, paged: &Paged) -> Result<Vec<Vec<u8>>, Stop> {
        let mut parts = Vec::new();
        for numbers in slices(0..paged.root.leaves) {
            let slice = Slice::of(self);
            let leaves: Result<Vec<_>, Stop> = numbers
                .map(|number| {
                    self.charge(1)?;
                    Ok(Packed::new(paged.hashed_shape(), slice.node(paged, number, paged.hashed_kind())?))
                })
                .collect();
            parts.push(collections::concat(paged.shape(), Form::Table, &leaves?));
        }
        Ok(parts)
    }

    fn parts_of_tree(&self, paged: &Paged) -> Result<Vec<Vec<u8>>, Stop> {
        let (mut parts, mut first) = (Vec::new(), 0);
        while first < paged.root.count {
            let slice = Slice::of(self);
            let range = first..paged.root.count.min(first + slice.elements_of(paged));
            let leaves = leaves_in(&slice, paged, &paged.tree(), paged.root.count, range.clone())?;
            let leaves: Vec<_> = leaves.into_iter().skip_while(|(at, _)| *at < first).collect();
            let Some((last, leaf)) = leaves.last() else {
                return Err(damaged(paged, "its nodes count other elements than there are"));
            };
            first = last + leaf.len() as u64;
            let leaves: Vec<Packed<'_>> = leaves.into_iter().map(|(_, leaf)| leaf).collect();
            parts.push(collections::concat(paged.shape(), Form::Table, &leaves));
        }
        Ok(parts)
    }
}

/// Some nodes of a collection, looked at for a while: what was copied for that is given back with it. Where stripes are locked nothing is
/// copied.
pub(super) struct Slice<'a, 's> {
    access: &'a Access<'s>,
    copied: Copied,
}

impl<'a, 's> Slice<'a, 's> {
    pub(super) fn of(access: &'a Access<'s>) -> Self {
        Self { access, copied: Copied::default() }
    }

    /// As [`Access::node`].
    pub(super) fn node(&self, paged: &Paged, number: u32, kind: ValueKind) -> Result<&[u8], Stop> {
        self.access.node_into(&self.copied, paged, number, kind)
    }

    /// As [`Access::node_state`].
    pub(super) fn node_state(
        &self,
        paged: &Paged,
        number: u32,
        kind: ValueKind,
    ) -> Result<(NodePlace, State<'_>), Stop> {
        self.access.node_state(&self.copied, paged, number, kind)
    }

    /// The state of a key, as [`Access::lookup`].
    pub(super) fn lookup(&self, place: KeyPlace<'_>) -> Result<Option<State<'_>>, Stop> {
        self.access.lookup_into(&self.copied, place)
    }

    /// The same whatever is staged, as [`Access::lookup_there`].
    pub(super) fn there(&self, place: KeyPlace<'_>) -> Result<Option<State<'_>>, Stop> {
        self.access.lookup_there(&self.copied, place)
    }

    /// How many elements of a tree are in so many leaves as one slice has, about.
    pub(super) fn elements_of(&self, paged: &Paged) -> u64 {
        let element_bytes = (paged.tree().bytes / paged.root.count.max(1)).max(1);
        (SLICE_NODES as u64 * self.access.store.options.leaf_bytes / element_bytes).max(1)
    }
}

impl Nodes for Slice<'_, '_> {
    fn value(&self, paged: &Paged, number: u32, is_leaf: bool) -> Result<&[u8], Stop> {
        self.access.charge(1)?;
        self.node(paged, number | NODE, if is_leaf { paged.kind } else { ValueKind::List })
    }
}

impl Drop for Slice<'_, '_> {
    fn drop(&mut self) {
        self.access.give_back(self.copied.clear());
    }
}

fn large_bytes(state: &State<'_>) -> u64 {
    match state.value {
        Bytes::Large(large) => large.as_ref().as_ref().len() as u64,
        Bytes::Plain(_) => 0,
    }
}

/// Parts of `range` that are looked at one after the other.
pub(super) fn slices(range: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let end = range.end;
    range.step_by(SLICE_NODES).map(move |first| first..end.min(first + SLICE_NODES as u32))
}

/// Nodes that are looked at together.
const SLICE_NODES: usize = 64;
/// How often one run of a command waits for room, some milliseconds each time: about a second. Its thread is for others, too.
const ROOM_WAITS_MAX: u32 = 300;
/// How often a lookup reads: a record that is moved while it is read is looked for again.
const READS_MAX: u32 = 100;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use vfs::SimDisk;

    use super::*;
    use crate::Store;
    use crate::{EngineKind, KeyRef, Options, Scope, Value};

    /// Each lookup waited a hundred times as long as each reply, and began anew with each of the two.
    #[test]
    fn command_waits_for_room_so_many_times_wherever_it_lacks_it() {
        let options = Options {
            engine: EngineKind::Log,
            background: false,
            readers: 0,
            vfs: Arc::new(SimDisk::new(1)),
            dir: PathBuf::from("/data"),
            memory_limit_bytes: 16 << 20,
            ..Options::default()
        };
        let store = Store::open(options).expect("the folder opens");
        let (keys, prepared) = ([KeyRef { db: 0, key: b"key" }], Prepared::default());
        let mut access = store.access(Scope::Keys(&keys), &prepared, 100_000).expect("room");
        access.put(0, b"key", Value::String(&[b'x'; 10_000]), None);
        access.commit().expect("room");
        drop(access);
        while store.drive() {}
        // others hold what there is, for now
        let held = store.reserve_memory(7 << 20, false).expect("room");
        let access = {
            let mut access =
                store.access(Scope::Claimed { keys: &keys, writes: false }, &prepared, 0).expect("room");
            access.look_briefly();
            access
        };
        assert!(matches!(access.ask(4 << 20), Err(Stop::Busy)), "others will give back what they hold");
        assert_eq!(access.room_waits.get(), ROOM_WAITS_MAX);
        assert!(matches!(access.ask(4 << 20), Err(Stop::Busy)), "it has waited");
        // what is for those who read, whatever others hold
        while access.ask(4_000).is_ok() {}
        assert!(matches!(access.get(0, b"key").map(|found| found.is_some()), Err(Stop::Busy)));
        assert_eq!(access.room_waits.get(), ROOM_WAITS_MAX);
        drop(held);
        assert!(access.get(0, b"key").expect("there is room now").is_some());
    }
}
