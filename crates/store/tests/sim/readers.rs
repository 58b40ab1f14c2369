//! Those who read large collections in parts while a life goes on: each gets what was there when it began, or is told that it is lost.
//!
//! They have dice of their own, so that a life is the same without them, and are not in lives with evictions: what waits for readers is not
//! room for others.

use store::{Snapshot, Stop, StoreError, ValueKind};

use crate::collections::{Content, Elements, some_collection};
use crate::model::Entry;
use crate::world::{Outcome, Trouble, World, never, violation};

/// Somebody who reads a collection in parts.
pub struct Reader {
    snapshot: Snapshot,
    kind: ValueKind,
    /// What was there at the beginning.
    wanted: Content,
    read: Elements,
    /// The next element, or the next leaf of a hash or set.
    next: u64,
}

impl Reader {
    fn is_ordered(&self) -> bool {
        !matches!(self.kind, ValueKind::Hash | ValueKind::Set)
    }

    /// Elements, or leaves.
    fn end(&self) -> u64 {
        if self.is_ordered() { self.snapshot.count() } else { self.snapshot.leaves().into() }
    }
}

impl World {
    /// Somebody begins to read, reads on, or leaves.
    pub fn reader_step(&mut self) -> Outcome<()> {
        if self.plan.evicts {
            return Ok(());
        }
        match self.reader_rng.below(24) {
            0..4 if self.readers.len() < READERS_MAX => self.begin_reading(),
            4 if !self.readers.is_empty() => {
                let at = self.reader_rng.index(self.readers.len());
                drop(self.readers.swap_remove(at));
                Ok(())
            }
            5..12 if !self.readers.is_empty() => self.read_on(),
            _ => Ok(()),
        }
    }

    fn begin_reading(&mut self) -> Outcome<()> {
        let now = self.now()?;
        let (db, key) = some_collection(&mut self.reader_rng);
        let Some(Entry { value, .. }) = self.model.current().get(db, &key, now) else { return Ok(()) };
        let Content::Collection(kind, elements) = value else { return Ok(()) };
        let (kind, count, wanted) = (*kind, elements.len() as u64, value.clone());
        let begun = self.run(&[(db, &key)], 0, |access| access.snapshot(db, &key, kind));
        let (Ok(snapshot), _) = begun.map_err(never)? else {
            return violation(format!("{} is no {kind:?} for who reads it in parts", key.escape_ascii()));
        };
        let Some(snapshot) = snapshot else { return Ok(()) };
        if snapshot.count() != count {
            return violation(format!("{} elements to be read in parts, not {count}", snapshot.count()));
        }
        self.readers.push(Reader { snapshot, kind, wanted, read: Elements::new(), next: 0 });
        Ok(())
    }

    /// Reads a part; at the end it is compared.
    fn read_on(&mut self) -> Outcome<()> {
        let at = self.reader_rng.index(self.readers.len());
        let count = 1 + self.reader_rng.below(self.readers[at].end() / 2 + 1);
        let reader = &self.readers[at];
        let until = (reader.next + count).min(reader.end());
        let range = reader.next..until;
        let read = self.tries(&[], |prepared| {
            let (store, mut part) = (self.store(), Elements::new());
            let each = |(key, value): store::Element<'_>| part.push((key.to_vec(), value.to_vec()));
            let bounds = store::Part { prepared, bytes_max: u64::MAX };
            match reader.is_ordered() {
                true => {
                    reader.snapshot.read_range(store, bounds, range.clone(), false, each)?;
                }
                false => {
                    let leaves = range.start as u32..range.end as u32;
                    reader.snapshot.read_leaves(store, bounds, leaves, each)?;
                }
            }
            Ok::<Elements, (Stop, store::Wanted)>(part)
        });
        let part = match read {
            Err(Trouble::Refused(StoreError::SnapshotLost(_))) => {
                drop(self.readers.swap_remove(at));
                self.met.readers_lost += 1;
                return Ok(());
            }
            read => read.map_err(never)?,
        };
        let reader = &mut self.readers[at];
        reader.read.extend(part);
        reader.next = until;
        if reader.next < reader.end() {
            return Ok(());
        }
        let Reader { kind, wanted, read, .. } = self.readers.swap_remove(at);
        self.met.readers_ended += 1;
        let count = read.len();
        if Content::Collection(kind, read) == wanted {
            return Ok(());
        }
        let bytes = wanted.bytes();
        violation(format!(
            "{count} elements of a {kind:?} of {bytes} B, read in parts, are not those at the beginning"
        ))
    }
}

/// Readers at once.
const READERS_MAX: usize = 4;
