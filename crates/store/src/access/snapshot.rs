//! Reading a large collection in parts, as it was at one moment, while others change it.
//!
//! ```text
//! snapshot                the root, and a place to keep nodes as they were
//! a change of a node      keeps what the node was before, for each snapshot that has not got it
//! read                    some leaves: each as it was kept, or as it is now
//! removal of the key      the leaves stay until the last snapshot of the object ends (`sweep`)
//! ```
//!
//! Invariants
//!   1. A snapshot is taken, and a node changes, under locks that exclude each other: those of the key, or a claim on it. So a node of which
//!      nothing was kept is what it was.
//!   2. What is kept is bounded (`snapshots`): beyond it the snapshot is lost, and says so.
//!
//! A flush of the database ends a snapshot, too: the nodes of a keyspace go together, not one by one.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::Store;
use crate::error::{Stop, StoreError};
use crate::locks::lock;
use crate::prepared::{Prepared, Wanted};
use crate::value::ValueKind;
use collections::root::stripe_of;
use collections::tree::NODE;
use collections::{Element, Packed};

use super::nodes::{Paged, damaged};
use super::sequence::{Nodes, leaves_in};
use super::snapshots::{Kept, Snapshots};
use super::{Access, WrongType};

/// A large collection as it was when the snapshot was taken. The leaves of a collection that is removed stay on disk as long as there is one.
pub struct Snapshot {
    snapshots: Arc<Snapshots>,
    paged: Paged,
    kept: Arc<Mutex<Kept>>,
}

/// How a part of a snapshot is read.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// What was fetched for it.
    pub prepared: &'a Prepared,
    /// No more elements are told once they have so many bytes.
    pub bytes_max: u64,
}

/// A collection: all of it, or a snapshot of a large one.
#[derive(Debug)]
pub enum Whole<'a> {
    /// All of it; empty if there is none.
    Here(Packed<'a>),
    /// To be read in parts.
    Large(Snapshot),
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("root", &self.paged.root).finish_non_exhaustive()
    }
}

impl Access<'_> {
    /// The collection of type `kind` at `key` as it is now, to be read in parts when this access has ended; `None` if it is not in leaves, or
    /// this access changes anything.
    ///
    /// # Errors
    /// As [`Access::get`]; inside, [`WrongType`].
    pub fn snapshot(
        &self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
    ) -> Result<Result<Option<Snapshot>, WrongType>, Stop> {
        let Some(paged) = self.paged(db, key)? else { return Ok(Ok(None)) };
        Ok(if paged.kind == kind { Ok(self.snapshot_of(paged)) } else { Err(WrongType) })
    }

    /// The collection of type `kind` at `key`: put together, or as a snapshot if it is in leaves of more than `bytes_max` together, or has more
    /// than `count_max` elements.
    ///
    /// # Errors
    /// As [`Access::get`]; inside, [`WrongType`].
    ///
    /// # Panics
    /// If `kind` is no collection.
    pub fn whole(
        &self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
        bytes_max: u64,
        count_max: u64,
    ) -> Result<Result<Whole<'_>, WrongType>, Stop> {
        let shape = kind.shape().expect("a type of collections");
        let Some(state) = self.find(db, key)? else { return Ok(Ok(Whole::Here(Packed::empty(shape)))) };
        if ValueKind::of(state.kind) != kind {
            return Ok(Err(WrongType));
        }
        self.check_value(&state)?;
        let large = self
            .paged_in(&state, db, key)?
            .filter(|paged| paged.root.all_bytes() > bytes_max || paged.root.count > count_max);
        if let Some(snapshot) = large.and_then(|paged| self.snapshot_of(paged)) {
            return Ok(Ok(Whole::Large(snapshot)));
        }
        let value = self.gathered(&state, db, key)?.unwrap_or(state.value.slice());
        Ok(Ok(Whole::Here(Packed::new(shape, value))))
    }

    /// A snapshot of what is paged; `None` if this access changes anything, or some of it has a deadline: then nobody knows beforehand how
    /// many elements there are.
    fn snapshot_of(&self, paged: Paged) -> Option<Snapshot> {
        if self.overlay.len() > 0 || self.keeps_to_workspace || paged.root.is_timed {
            return None;
        }
        let snapshots = Arc::clone(&self.store.snapshots);
        let kept = snapshots.begin(paged.root.object, self.store.options.clock.now());
        Some(Snapshot { snapshots, paged, kept })
    }
}

impl Store {
    /// Bytes that are kept for those who read large collections in parts.
    #[must_use]
    pub fn snapshot_bytes(&self) -> u64 {
        self.snapshots.bytes()
    }
}

impl Snapshot {
    /// Number of elements.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.paged.root.count
    }

    /// About how many bytes an element takes.
    #[must_use]
    pub fn element_bytes(&self) -> u64 {
        let bytes = self.paged.root.tree.map_or(self.paged.root.bytes, |tree| tree.bytes);
        bytes / self.paged.root.count.max(1)
    }

    /// Number of leaves of a hash or set; those of the others are not counted.
    #[must_use]
    pub fn leaves(&self) -> u32 {
        self.paged.root.leaves
    }

    /// Tells `each` the elements of these leaves of a hash or set, from the first on until `part.bytes_max` bytes of leaves were told, one
    /// leaf at least; returns the leaf that comes next. What stops it has told nothing.
    ///
    /// # Errors
    /// [`Stop::Cold`] with what is to be read for `part.prepared`; [`StoreError::SnapshotLost`]; damage.
    pub fn read_leaves(
        &self,
        store: &Store,
        part: Part<'_>,
        leaves: Range<u32>,
        mut each: impl FnMut(Element<'_>),
    ) -> Result<u32, (Stop, Wanted)> {
        self.read(store, part.prepared, |nodes| {
            let (mut is_cold, mut bytes, mut end) = (false, 0_u64, leaves.start);
            for number in leaves.clone() {
                if bytes >= part.bytes_max {
                    break;
                }
                match nodes.node(number, self.paged.hashed_kind()) {
                    Ok(value) => bytes += value.len() as u64,
                    Err(Stop::Cold) => is_cold = true,
                    Err(Stop::Refused(StoreError::ReadTooLarge { .. })) if end > leaves.start => break,
                    Err(stop) => return Err(stop),
                }
                end = number + 1;
            }
            if is_cold {
                return Err(Stop::Cold);
            }
            let shape = self.paged.hashed_shape();
            for number in leaves.start..end {
                Packed::new(shape, nodes.node(number, self.paged.hashed_kind())?).iter().for_each(&mut each);
            }
            Ok(end)
        })
    }

    /// Tells `each` the elements number `range` of a list, a sorted set or a stream in their order, or the last first, until
    /// `part.bytes_max` bytes of them were told, one at least; returns those that are left. What stops it has told nothing, but for damage.
    ///
    /// # Errors
    /// As [`Snapshot::read_leaves`].
    ///
    /// # Panics
    /// If it is another type.
    pub fn read_range(
        &self,
        store: &Store,
        part: Part<'_>,
        range: Range<u64>,
        is_reversed: bool,
        mut each: impl FnMut(Element<'_>),
    ) -> Result<Range<u64>, (Stop, Wanted)> {
        self.read(store, part.prepared, |nodes| {
            let leaves =
                leaves_in(nodes, &self.paged, &self.paged.tree(), self.paged.root.count, range.clone())?;
            let elements = leaves.iter().flat_map(|(first, leaf)| {
                let within = |place: u64| place.saturating_sub(*first).min(leaf.len() as u64) as usize;
                (within(range.start)..within(range.end)).map(|at| leaf.element(at))
            });
            let (mut left, mut bytes) = (range.clone(), 0);
            let mut tell = |element: Element<'_>| {
                bytes += (element.0.len() + element.1.len()) as u64;
                each(element);
                bytes < part.bytes_max
            };
            let told = match is_reversed {
                false => told(elements, &mut tell),
                true => {
                    let elements: Vec<Element<'_>> = elements.collect();
                    told(elements.into_iter().rev(), &mut tell)
                }
            };
            if is_reversed {
                left.end -= told;
            } else {
                left.start += told;
            }
            if !left.is_empty() && bytes < part.bytes_max {
                return Err(damaged(&self.paged, "its nodes count other elements than there are"));
            }
            Ok(left)
        })
    }

    fn read<R>(
        &self,
        store: &Store,
        prepared: &Prepared,
        read: impl FnOnce(&AtMoment<'_>) -> Result<R, Stop>,
    ) -> Result<R, (Stop, Wanted)> {
        let lost = |why: &'static str| (StoreError::SnapshotLost(why).into(), Wanted::default());
        let access = Access::of_stripe(store, stripe_of(self.paged.root.object), prepared);
        access.set_without_use();
        let mut kept = lock(&self.kept);
        kept.read_at = store.options.clock.now();
        if let Some(why) = kept.lost {
            return Err(lost(why));
        }
        if !store.index.lives(self.paged.leaves) {
            return Err(lost("its database was flushed meanwhile"));
        }
        let nodes = AtMoment { access, paged: &self.paged, kept };
        let done = read(&nodes);
        done.map_err(|stop| (stop, nodes.access.into_wanted()))
    }
}

/// Tells elements as long as `tell` asks for more; returns how many.
fn told<'e>(elements: impl Iterator<Item = Element<'e>>, tell: &mut impl FnMut(Element<'_>) -> bool) -> u64 {
    let mut told = 0;
    for element in elements {
        told += 1;
        if !tell(element) {
            break;
        }
    }
    told
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.snapshots.end(self.paged.root.object, &self.kept);
    }
}

/// The nodes of a collection at the moment of a snapshot.
struct AtMoment<'a> {
    access: Access<'a>,
    paged: &'a Paged,
    kept: MutexGuard<'a, Kept>,
}

impl AtMoment<'_> {
    fn node(&self, number: u32, kind: ValueKind) -> Result<&[u8], Stop> {
        match self.kept.nodes.get(&number) {
            Some(value) => Ok(value),
            None => self.access.node(self.paged, number, kind),
        }
    }
}

impl Nodes for AtMoment<'_> {
    fn value(&self, paged: &Paged, number: u32, is_leaf: bool) -> Result<&[u8], Stop> {
        self.node(number | NODE, if is_leaf { paged.kind } else { ValueKind::List })
    }
}
