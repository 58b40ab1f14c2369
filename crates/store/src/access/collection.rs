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
use crate::keyspaces::is_leaves;
use crate::large::{Bytes, LARGE_BYTES};
use crate::object::Object;
use crate::record;
use crate::value::{Found, Value, ValueKind};
use collections::{
    DELTA_BYTES_MIN, Deadline, Edit, ListChange, ListEdit, ListEnd, OrderedEdit, Packed, Shape,
};

use super::editing::Editing;
use super::here::Slice;
use super::nodes::Paged;
use super::overlay::{Cause, Change, Content, Small, Staged};
use super::{Access, KeyPlace, State};

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

/// What became of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListChanged {
    /// Elements that it has.
    pub len: usize,
    /// How many [`ListChange::RemoveEqual`] removed.
    pub removed: usize,
}

/// What [`Access::pop`] found at the end of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Popped {
    /// This element, which it has taken.
    Value(Vec<u8>),
    /// There is no list.
    Nothing,
    /// An element with more bytes, which stays.
    TooLarge,
}

/// A key of a stream with the value that it gets; `None`: it goes.
pub type KeyedChange<'a> = (&'a [u8], Option<&'a [u8]>);

/// What has become of a change of a collection.
pub(super) enum Tried<R, F> {
    /// The key holds a value of another type.
    WrongType,
    /// It is paged, and the change has not been called.
    Paged(Paged, F),
    /// It has answered so, and this is to be done.
    Done(R, Outcome),
}

/// What is to be done to the key.
pub(super) enum Outcome {
    Nothing,
    /// This, and the key is locked: nothing else can have become of it.
    Stage(Staged),
    /// What is to be looked at again: the collection becomes this, or goes.
    End {
        value: Option<Vec<u8>>,
        was_empty: bool,
        expiry: Option<Deadline>,
        operations: Vec<u8>,
    },
}

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

    /// Lets the hash, set or sorted set that `fill` makes take the place of what is at `key`, and of its expiry; an empty one removes it.
    ///
    /// # Errors
    /// As [`Access::remove`]. A collection that would be too large stops [`Access::commit`].
    ///
    /// # Panics
    /// If `kind` is another type.
    pub fn make(
        &mut self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
        fill: impl FnOnce(&mut Edit<'_>),
    ) -> Result<(), Stop> {
        let mut edit = Edit::new(Packed::empty(kind.shape().expect("a type of collections")));
        fill(&mut edit);
        if edit.is_empty() {
            return self.remove(db, key).map(drop);
        }
        self.put(db, key, Value::Collection(kind, &edit.encode()), None);
        Ok(())
    }

    /// Makes these changes of the list at `key`, one after the other; the list is made if it is absent, and removed if nothing is left of
    /// it.
    ///
    /// # Errors
    /// As [`Access::edit_element`].
    ///
    /// # Panics
    /// If a change names an element that is not there.
    pub fn change_list(
        &mut self,
        db: u16,
        key: &[u8],
        changes: &[ListChange<'_>],
    ) -> Result<Result<ListChanged, WrongType>, Stop> {
        let kind = ValueKind::List;
        let change = |list: &mut ListEdit<'_>| {
            let removed = list.apply_all(changes);
            ListChanged { len: list.len(), removed }
        };
        match self.try_change::<ListEdit<'static>, _, _>(db, key, kind, change)? {
            Tried::Paged(paged, _) => self.change_paged_list(db, key, &paged, changes).map(Ok),
            tried => self.finish(db, key, kind, tried),
        }
    }

    /// Takes the first element off the list at `key`, or the last, if it has at most `bytes_max` bytes; says what it was.
    ///
    /// # Errors
    /// As [`Access::edit_element`].
    pub fn pop(
        &mut self,
        db: u16,
        key: &[u8],
        end: ListEnd,
        bytes_max: usize,
    ) -> Result<Result<Popped, WrongType>, Stop> {
        let kind = ValueKind::List;
        let change = move |list: &mut ListEdit<'_>| {
            let at = if end == ListEnd::Front { 0 } else { list.len().saturating_sub(1) };
            let Some(value) = list.value(at) else { return Popped::Nothing };
            if value.len() > bytes_max {
                return Popped::TooLarge;
            }
            let value = value.to_vec();
            list.remove(at, 1);
            Popped::Value(value)
        };
        match self.try_change::<ListEdit<'static>, _, _>(db, key, kind, change)? {
            Tried::Paged(paged, change) => {
                self.charge(1)?;
                let index = if end == ListEnd::Front { 0 } else { u64::MAX };
                let (popped, _) = self.edit_tree(db, key, &paged, |tree| tree.change_at(index, change))?;
                Ok(Ok(popped))
            }
            tried => self.finish(db, key, kind, tried),
        }
    }

    /// Puts the keys that have values in `changes` into the stream at `key`, and removes the others, in this order; the stream is made if
    /// it is absent, and removed if nothing is left of it.
    ///
    /// # Errors
    /// As [`Access::edit_element`].
    pub fn change_stream(
        &mut self,
        db: u16,
        key: &[u8],
        changes: &[KeyedChange<'_>],
    ) -> Result<Result<(), WrongType>, Stop> {
        let apply = |stream: &mut OrderedEdit<'_>, (key, value): &KeyedChange<'_>| match value {
            Some(value) => stream.put(key, value),
            None => _ = stream.delete(key),
        };
        let kind = ValueKind::Stream;
        let apply_all = |stream: &mut OrderedEdit<'_>, these: &[KeyedChange<'_>]| {
            let bytes = these.iter().map(|(key, value)| key.len() + value.map_or(0, <[u8]>::len));
            stream.reserve(these.len(), bytes.sum());
            these.iter().for_each(|change| apply(stream, change));
        };
        let change = |stream: &mut OrderedEdit<'_>| apply_all(stream, changes);
        let paged = match self.try_change::<OrderedEdit<'static>, _, _>(db, key, kind, change)? {
            Tried::Paged(paged, _) => paged,
            tried => return self.finish(db, key, kind, tried),
        };
        // of one key the last change counts: the sort keeps their order
        let mut changes = changes.to_vec();
        changes.sort_by_key(|(key, _)| *key);
        self.edit_tree(db, key, &paged, |tree| {
            tree.change_keyed::<OrderedEdit<'static>, _>(&changes, |(key, _)| (key, &[]), apply_all)
        })?;
        Ok(Ok(()))
    }

    /// Lets `change` see, and change, the elements around `place` of the stream at `key`: all of a small one, those of one leaf of a large one. Keys that it adds
    /// must lie between two that it has seen.
    ///
    /// # Errors
    /// As [`Access::edit_element`].
    pub fn edit_stream_around<R>(
        &mut self,
        db: u16,
        key: &[u8],
        place: &[u8],
        change: impl FnOnce(&mut OrderedEdit<'_>) -> R,
    ) -> Result<Result<R, WrongType>, Stop> {
        let kind = ValueKind::Stream;
        match self.try_change::<OrderedEdit<'static>, _, _>(db, key, kind, change)? {
            Tried::Paged(paged, change) => {
                self.charge(1)?;
                let (done, _) =
                    self.edit_tree(db, key, &paged, |tree| tree.change_around((place, &[]), change))?;
                Ok(Ok(done))
            }
            tried => self.finish(db, key, kind, tried),
        }
    }

    /// As [`Access::change_list`], of what is paged.
    fn change_paged_list(
        &mut self,
        db: u16,
        key: &[u8],
        paged: &Paged,
        changes: &[ListChange<'_>],
    ) -> Result<ListChanged, Stop> {
        let mut removed = 0;
        let ((), len) = self.edit_tree(db, key, paged, |tree| {
            // what follows each other at one end is one change of a leaf
            for run in changes.chunk_by(ListChange::is_push_as) {
                removed += tree.change_list(run)?;
            }
            Ok(())
        })?;
        Ok(ListChanged { len: len as usize, removed })
    }

    /// Carries out what is to be done after a change.
    pub(super) fn finish<R, F>(
        &mut self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
        tried: Tried<R, F>,
    ) -> Result<Result<R, WrongType>, Stop> {
        let (done, outcome) = match tried {
            Tried::WrongType => return Ok(Err(WrongType)),
            Tried::Done(done, outcome) => (done, outcome),
            Tried::Paged(..) => unreachable!("its leaves are changed"),
        };
        match outcome {
            Outcome::Nothing => {}
            Outcome::Stage(staged) => self.stage(staged),
            Outcome::End { value: Some(value), expiry, operations, .. } => {
                let content = Content { kind, value: &value, expiry };
                self.put_changed(db, key, content, Cause::Command, operations)?;
            }
            Outcome::End { was_empty: true, .. } => {}
            Outcome::End { .. } => _ = self.remove(db, key)?,
        }
        Ok(Ok(done))
    }

    /// Calls `change` with what is at `key`, if that is one value, and finds out what is to be done.
    pub(super) fn try_change<E: Editing, R, F: for<'e> FnOnce(&mut E::Of<'e>) -> R>(
        &self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
        change: F,
    ) -> Result<Tried<R, F>, Stop> {
        let state = self.find(db, key)?;
        let shape = kind.shape().expect("a type of collections");
        let (packed, expiry) = match &state {
            None => (Packed::empty(shape), None),
            Some(state) if ValueKind::of(state.kind) != kind => return Ok(Tried::WrongType),
            Some(state) => {
                self.check_value(state)?;
                if !self.keeps_to_workspace
                    && let Some(paged) = self.paged_in(state, db, key)?
                {
                    return Ok(Tried::Paged(paged, change));
                }
                let value = self.gathered(state, db, key)?.unwrap_or(state.value.slice());
                (Packed::new(shape, value), state.expiry)
            }
        };
        let mut edit = E::begin(packed, expiry);
        let done = change(&mut edit);
        if !E::is_changed(&edit) {
            return Ok(Tried::Done(done, Outcome::Nothing));
        }
        let outcome = match self.small_bytes::<E>(db, key, &edit) {
            Some((place, bytes)) => {
                Outcome::Stage(self.small_change::<E>(place, kind, edit, bytes, state.as_ref(), expiry))
            }
            None => {
                let (value, operations) = E::end(edit).expect("it is changed");
                Outcome::End { value, was_empty: packed.is_empty(), expiry, operations }
            }
        };
        Ok(Tried::Done(done, outcome))
    }

    /// Bytes of what a collection has become, and where it belongs, if it is small and nothing else is to be thought of: no limit, no leaves,
    /// no fields that end, no earlier change of the key in this access.
    fn small_bytes<'k, E: Editing>(
        &self,
        db: u16,
        key: &'k [u8],
        edit: &E::Of<'_>,
    ) -> Option<(KeyPlace<'k>, usize)> {
        let options = &self.store.options;
        let limit_bytes = (2 * options.leaf_bytes).min(LARGE_BYTES as u64 - 1).min(options.value_bytes_max);
        let bytes = E::bytes(edit).filter(|bytes| (key.len() + bytes) as u64 <= limit_bytes)?;
        let place = self.place(db, key).filter(|_| self.store.engine_keeps() && self.purged.is_empty())?;
        let staged = self.overlay.find(place.keyspace, place.hash, key);
        staged.is_none().then_some((place, bytes))
    }

    /// As [`Access::stage_changed`], of a change as [`Access::small_bytes`] lets through; `there`: what the key has.
    pub(super) fn small_change<E: Editing>(
        &self,
        KeyPlace { db, keyspace, hash, key }: KeyPlace<'_>,
        kind: ValueKind,
        edit: E::Of<'_>,
        bytes: usize,
        there: Option<&State<'_>>,
        expiry: Option<Deadline>,
    ) -> Staged {
        let object =
            Object::filled(record::kind_of(kind), key, bytes, expiry, |value| E::write(&edit, value));
        let operations = E::operations(edit);
        let there = there.filter(|state| state.kind == record::kind_of(kind));
        let delta = there.and_then(|there| {
            let retimes = there.header_expiry != expiry;
            // 0 in the record would leave the expiry as it is
            let says_expiry = !retimes || expiry.is_some();
            let takes =
                says_expiry && self.takes_change(there, record::change_bytes(key.len(), operations.len()));
            takes.then_some(Small::Elements { operations, retimes })
        });
        Staged { db, keyspace, hash, change: Change::of(object, delta), cause: Cause::Command }
    }

    /// Stores what a collection has become by `operations`.
    fn put_changed(
        &mut self,
        db: u16,
        key: &[u8],
        content: Content<'_>,
        cause: Cause,
        operations: Vec<u8>,
    ) -> Result<(), Stop> {
        let Some(place) = self.place(db, key).filter(|_| self.store.engine_keeps()) else { return Ok(()) };
        if self.stage_paged(place, content) {
            return Ok(());
        }
        self.stage_changed(place, content, cause, Some(operations))
    }

    /// As [`Access::put_changed`], whatever keyspace it is in; without operations the whole of it is logged.
    pub(super) fn stage_changed(
        &mut self,
        place: KeyPlace<'_>,
        content: Content<'_>,
        cause: Cause,
        operations: Option<Vec<u8>>,
    ) -> Result<(), Stop> {
        let KeyPlace { db, keyspace, hash, key } = place;
        let Content { kind, value, expiry } = content;
        if self.refuses_size(key, value.len()) {
            return Ok(());
        }
        // its operations are on top of those
        self.settle_counts();
        // what takes the place of a node as a whole need not know it
        let is_blind = operations.is_none() && is_leaves(keyspace);
        // what it has become is kept: not what it was
        let slice = Slice::of(self);
        let there = if is_blind { None } else { slice.there(place)? };
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
        let change = if kind == ValueKind::Hash {
            self.hash_change(key, value, expiry, there.as_ref(), operations)
        } else {
            let delta = operations.zip(there).filter(|(operations, there)| {
                self.takes_change(there, record::change_bytes(key.len(), operations.len()))
            });
            let delta = delta.map(|(operations, _)| Small::Elements { operations, retimes: false });
            let large = self.store.memory.large(value).ok();
            Change::of(
                Object::new(record::kind_of(kind), key, Bytes::of(value, large.as_ref()), expiry),
                delta,
            )
        };
        drop(slice);
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
        let Ok(packed) = self.collection(db, key, ValueKind::Hash)? else { return Ok(false) };
        let mut edit = Edit::new(packed);
        edit.set_own(expiry.map_or(0, Deadline::raw));
        let (value, operations) = (edit.encode(), edit.into_operations());
        let Some(keyspace) = self.keyspace(db) else { return Ok(false) };
        let is_stored = self.is_stored(keyspace, self.hash(key), key);
        let cause = if is_stored { Cause::Command } else { Cause::Retime };
        self.put_changed(
            db,
            key,
            Content { kind: ValueKind::Hash, value: &value, expiry },
            cause,
            operations,
        )?;
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
