//! Collections: hashes, sets, lists, sorted sets and streams, each one value (`packed`) of which small parts change.
//!
//! ```text
//! HASH { a: 1, ... }  <-  CHANGE put b = 2  <-  CHANGE delete a, put c = 3       each names the state it builds on
//! fold: HASH { ..., b: 2, c: 3 }                                                 one record again
//! ```
//!
//! What a group changes of a collection is one record: the whole collection where it is small or new, the operations otherwise.
//! In memory there is the whole collection; cold, it is base and changes, folded when they have been read (`prepared`).
//!
//! Invariants
//!   1. No collection is empty: the change that takes the last element removes the key.
//!   2. A change keeps the key's expiry.
//!   3. What changes nothing logs nothing.
//!
//! Out of scope: commands (`server`), when a record is written whole (`part`).

use crate::error::Stop;
use crate::large::Bytes;
use crate::object::Object;
use crate::packed::{DELTA_BYTES_MIN, Edit, ListEdit, OrderedEdit, Packed, Shape};
use crate::record;
use crate::time::Deadline;
use crate::value::{Found, ValueKind};

use super::overlay::{Cause, Change, Small, Staged};
use super::{Access, KeyPlace};

/// The key holds a value of another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

impl ValueKind {
    /// How such a value is packed; `None`: it is a string.
    #[must_use]
    pub fn shape(self) -> Option<Shape> {
        match self {
            Self::String => None,
            Self::Hash => Some(Shape::Map),
            Self::Set => Some(Shape::Set),
            Self::List => Some(Shape::List),
            Self::SortedSet => Some(Shape::Scored),
            Self::Stream => Some(Shape::Ordered),
        }
    }
}

/// A way to change collections.
pub(super) trait Editing {
    type Of<'a>;

    /// Of a key that expires at `own`.
    fn begin(packed: Packed<'_>, own: Option<Deadline>) -> Self::Of<'_>;

    /// What the collection has become, `None` if nothing is left of it, and by which operations; `None` if it is as it was.
    fn end(edit: Self::Of<'_>) -> Option<(Option<Vec<u8>>, Vec<u8>)>;
}

macro_rules! editing {
    ($($edit:ident: $begin:expr),*) => {$(
        impl Editing for $edit<'static> {
            type Of<'a> = $edit<'a>;

            fn begin(packed: Packed<'_>, own: Option<Deadline>) -> $edit<'_> {
                $begin(packed, own)
            }

            fn end(edit: $edit<'_>) -> Option<(Option<Vec<u8>>, Vec<u8>)> {
                edit.is_changed().then(|| ((!edit.is_empty()).then(|| edit.encode()), edit.into_operations()))
            }
        }
    )*};
}

editing!(Edit: Edit::of_key, ListEdit: |packed, _| ListEdit::new(packed), OrderedEdit: |packed, _| OrderedEdit::new(packed));

impl Access<'_> {
    /// 16 bits of the keyed hash of an element: what [`Packed::find`] and [`Edit`] want to know.
    #[must_use]
    pub fn tag(&self, element: &[u8]) -> u16 {
        self.store.hasher.hash(element).low_bits()
    }

    /// The collection of type `kind` at `key`, to read; empty when it is absent.
    ///
    /// # Errors
    /// As [`Access::get`]; inside, [`WrongType`].
    ///
    /// # Panics
    /// If `kind` is no collection.
    pub fn collection(
        &self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
    ) -> Result<Result<Packed<'_>, WrongType>, Stop> {
        Ok(packed(self.get(db, key)?, kind))
    }

    /// Lets `change` change the collection of type `kind` at `key`, which is made if it is absent, and removed if nothing is left
    /// in it. Takes time that grows with its size.
    ///
    /// # Errors
    /// As [`Access::get`]; inside, [`WrongType`]. A collection that would be too large stops [`Access::commit`].
    ///
    /// # Panics
    /// If `kind` is no collection, or a list.
    pub fn edit<R>(
        &mut self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
        change: impl FnOnce(&mut Edit<'_>) -> R,
    ) -> Result<Result<R, WrongType>, Stop> {
        match self.paged_to_edit(db, key, kind)? {
            Some(paged) => self.edit_paged((db, key), &paged, change).map(Ok),
            None => self.change::<Edit<'static>, R>(db, key, kind, change),
        }
    }

    /// As [`Access::edit`], of a list.
    ///
    /// # Errors
    /// As there.
    pub fn edit_list<R>(
        &mut self,
        db: u16,
        key: &[u8],
        change: impl FnOnce(&mut ListEdit<'_>) -> R,
    ) -> Result<Result<R, WrongType>, Stop> {
        self.change::<ListEdit<'static>, R>(db, key, ValueKind::List, change)
    }

    /// As [`Access::edit`], of a stream.
    ///
    /// # Errors
    /// As there.
    pub fn edit_stream<R>(
        &mut self,
        db: u16,
        key: &[u8],
        change: impl FnOnce(&mut OrderedEdit<'_>) -> R,
    ) -> Result<Result<R, WrongType>, Stop> {
        self.change::<OrderedEdit<'static>, R>(db, key, ValueKind::Stream, change)
    }

    /// As [`Access::edit`], of what is one value.
    pub(super) fn change<E: Editing, R>(
        &mut self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
        change: impl for<'e> FnOnce(&mut E::Of<'e>) -> R,
    ) -> Result<Result<R, WrongType>, Stop> {
        let (packed, expiry) = match self.to_change(db, key, kind)? {
            Ok(found) => found,
            Err(wrong) => return Ok(Err(wrong)),
        };
        let (was_empty, mut edit) = (packed.is_empty(), E::begin(packed, expiry));
        let done = change(&mut edit);
        if let Some((value, operations)) = E::end(edit) {
            self.end_change((db, key), (kind, expiry), (value, was_empty), operations)?;
        }
        Ok(Ok(done))
    }

    /// What is there of type `kind`, and when it expires.
    fn to_change(
        &self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
    ) -> Result<Result<(Packed<'_>, Option<Deadline>), WrongType>, Stop> {
        let found = self.get(db, key)?;
        let expiry = found.and_then(|found| found.expiry);
        Ok(packed(found, kind).map(|packed| (packed, expiry)))
    }

    /// Stores what a collection has become by `operations`, or removes it if nothing is left: `value` is `None`.
    fn end_change(
        &mut self,
        (db, key): (u16, &[u8]),
        (kind, expiry): (ValueKind, Option<Deadline>),
        (value, was_empty): (Option<Vec<u8>>, bool),
        operations: Vec<u8>,
    ) -> Result<(), Stop> {
        match value {
            Some(value) => self.put_changed(db, key, ((kind, Cause::Command), &value, expiry), operations),
            None if was_empty => Ok(()),
            None => self.remove(db, key).map(|_| ()),
        }
    }

    /// Stores what a collection has become by `operations`.
    fn put_changed(
        &mut self,
        db: u16,
        key: &[u8],
        ((kind, cause), value, expiry): ((ValueKind, Cause), &[u8], Option<Deadline>),
        operations: Vec<u8>,
    ) -> Result<(), Stop> {
        let Some(place) = self.place(db, key).filter(|_| self.store.engine_keeps()) else { return Ok(()) };
        if self.stage_paged(place, (kind, value, expiry)) {
            return Ok(());
        }
        self.stage_changed(place, ((kind, cause), value, expiry), Some(operations))
    }

    /// As [`Access::put_changed`], whatever keyspace it is in; without operations the whole of it is logged.
    pub(super) fn stage_changed(
        &mut self,
        place: KeyPlace<'_>,
        ((kind, cause), value, expiry): ((ValueKind, Cause), &[u8], Option<Deadline>),
        operations: Option<Vec<u8>>,
    ) -> Result<(), Stop> {
        let KeyPlace { db, keyspace, hash, key } = place;
        if self.refuses_size(key, value.len()) {
            return Ok(());
        }
        let there = self.lookup_there(keyspace, hash, key, db)?;
        let there = there.filter(|state| state.kind == record::kind_of(kind));
        let staged = self.overlay.find(keyspace, hash, key).map(|staged| &staged.change);
        // Of one key a group has one record: that has all that its commands changed.
        let operations = operations.and_then(|operations| match (staged, &there) {
            (None, Some(_)) => match self.purged.find(keyspace, hash, key) {
                None => Some(operations),
                Some(purge) => Some([&purge.operations[..], &operations].concat()),
            },
            (Some(Change::Delta { delta: Small::Elements { operations: before, .. }, .. }), Some(_)) => {
                Some([&before[..], &operations].concat())
            }
            _ => None,
        });
        let own = expiry.map_or(0, Deadline::raw);
        let change = if kind == ValueKind::Hash {
            self.hash_change(key, (value, own), there.as_ref(), operations)
        } else {
            let delta = operations.zip(there).filter(|(operations, there)| {
                self.takes_change(there, record::change_bytes(key.len(), operations.len()))
            });
            let delta = delta.map(|(operations, _)| Small::Elements { operations, retimes: false });
            let large = self.store.memory.large(value).ok();
            Change::of(Object::new(record::kind_of(kind), key, Bytes::of(value, large.as_ref()), own), delta)
        };
        // what is written whole takes room as any value
        let is_whole = matches!(change, Change::Put(_)) && value.len() as u64 > DELTA_BYTES_MIN;
        let cause = if is_whole { Cause::Command } else { cause };
        self.stage(Staged { db, keyspace, hash, change, cause });
        Ok(())
    }

    /// As [`Access::set_expiry`], of a hash whose fields have deadlines, or had.
    pub(super) fn set_own_expiry(
        &mut self,
        db: u16,
        key: &[u8],
        expiry: Option<Deadline>,
    ) -> Result<bool, Stop> {
        let Ok((packed, _)) = self.to_change(db, key, ValueKind::Hash)? else { return Ok(false) };
        let mut edit = Edit::new(packed);
        edit.set_own(expiry.map_or(0, Deadline::raw));
        let (value, operations) = (edit.encode(), edit.into_operations());
        let Some(keyspace) = self.keyspace(db) else { return Ok(false) };
        let is_stored = self.is_stored(keyspace, self.hash(key), key);
        let cause = if is_stored { Cause::Command } else { Cause::Retime };
        self.put_changed(db, key, ((ValueKind::Hash, cause), &value, expiry), operations)?;
        Ok(true)
    }
}

/// What was found, as a collection of type `kind`.
fn packed(found: Option<Found<'_>>, kind: ValueKind) -> Result<Packed<'_>, WrongType> {
    let shape = kind.shape().expect("a type of collections");
    match found {
        None => Ok(Packed::empty(shape)),
        Some(found) if found.kind == kind => Ok(Packed::new(shape, found.value)),
        Some(_) => Err(WrongType),
    }
}
