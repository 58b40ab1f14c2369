//! Reading and changing paged collections: by the leaves of the elements that a command names, or as a whole.
//!
//! A collection is paged when it has outgrown a leaf, and one value again when it is small. To the callers of this module it is one
//! collection: those that name elements meet their leaves, those that ask for a part of an order the nodes of it (`sequence`), all others meet
//! the leaves put together.
//!
//! Invariants
//!   1. The root counts the elements and bytes of all its leaves. Where a change leaves both as they are, the root is not written anew, and who
//!      watches the key is told all the same.
//!   2. A change is complete before its first effect is staged: what stops it leaves nothing behind.
//!   3. Whoever removes or replaces a root leaves a note by which the leaves go, in the same group (`sweep`).
//!
//! Accesses of transactions see paged collections, and keep what they make of them as one value: a workspace has keys, not leaves.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::ops::Range;
use std::sync::atomic::Ordering;

use journal::Keyspace;
use smallvec::SmallVec;

use crate::error::{Stop, StoreError};
use crate::hash::KeyHash;
use crate::index::ahead::{self, AHEAD_KEYS_MAX};
use crate::index::stripe::{Current, Seek};
use crate::keyspaces::{HIDDEN_DB, SWEPT_KEYSPACE, is_leaves, is_own, leaves_of};
use crate::large::{Bytes, LARGE_BYTES};
use crate::object::Object;
use crate::prepared::WantedLeaf;
use crate::record;
use crate::sweep::waiting::{note_key, note_value};
use crate::value::ValueKind;
use collections::root::{
    KEY_NODE, LEAF_KEY_BYTES, LEAVES_MAX, PLACES, ROOT_BYTES_MAX, Root, bits_of, leaf_key, leaf_of, object_of,
};
use collections::tree::NODE;
use collections::{Deadline, Edit, Element, Form, Packed, Shape};

use super::commit::PLANS_MAX;
use super::copied::Copied;
use super::counts::Counts;
use super::editing::Editing;
use super::here::{Slice, slices};
use super::joined::takes_totals;
use super::nodes::{Buffer, Leaf, LeafChange, LeafChanges, LeafValue, NodePlace, Paged, Patched, damaged};
use super::overlay::{Cause, Change, Small, Staged};
use super::purged::next_deadline;
use super::tree_edit::TreeEdit;
use super::{Access, KeyPlace, State, WrongType};

/// The value of each element that was asked for.
type Values<'a> = EachOf<&'a [u8]>;

/// When each field ends that was asked for, if it does.
type Deadlines = EachOf<Option<Deadline>>;

/// What is told of each element that was asked for, of those that are there.
type EachOf<T> = Vec<Option<T>>;

/// What a change makes of leaves.
pub(super) struct Changed {
    root: Root,
    leaves: BTreeMap<u32, Leaf>,
    /// Leaves that are not among these, above which nothing changes but counts.
    within: LeafChanges,
    /// What nodes count that are not among these.
    counts: Counts,
}

impl Access<'_> {
    /// The values of these elements of the collection of type `kind` at `key`, where they are; of a set's members empty ones, of a sorted
    /// set's their scores. `None`: the key is not there.
    ///
    /// # Errors
    /// As [`Access::get`]; inside, [`WrongType`].
    ///
    /// # Panics
    /// If `kind` is none of hashes, sets and sorted sets.
    pub fn values<'e>(
        &self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
        elements: impl Iterator<Item = &'e [u8]>,
    ) -> Result<Result<Option<Values<'_>>, WrongType>, Stop> {
        self.each_of(db, key, kind, (elements, |packed, at| packed.element(at).1))
    }

    /// When each of these fields of the hash at `key` ends, of those that are there; inside, `None`: never. `None`: the key is not there.
    ///
    /// # Errors
    /// As [`Access::get`]; inside, [`WrongType`].
    pub fn deadlines<'e>(
        &self,
        db: u16,
        key: &[u8],
        fields: impl Iterator<Item = &'e [u8]>,
    ) -> Result<Result<Option<Deadlines>, WrongType>, Stop> {
        self.each_of(db, key, ValueKind::Hash, (fields, |packed, at| packed.deadline(at)))
    }

    /// What `tell` makes of each of these elements that is there.
    fn each_of<'a, 'e, T>(
        &'a self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
        (elements, tell): (impl Iterator<Item = &'e [u8]>, impl Fn(Packed<'a>, usize) -> T),
    ) -> Result<Result<Option<EachOf<T>>, WrongType>, Stop> {
        let Some(state) = self.find(db, key)? else { return Ok(Ok(None)) };
        if ValueKind::of(state.kind) != kind {
            return Ok(Err(WrongType));
        }
        self.check_value(&state)?;
        let (hasher, shape) = (&self.store.hasher, kind.shape().expect("a type of collections"));
        let tell = |packed: Packed<'a>, (hash, element): (KeyHash, &[u8])| {
            packed.find(hash.low_bits(), element).map(|at| tell(packed, at))
        };
        let named = elements.map(|element| (hasher.hash(element), element));
        let Some(paged) = self.paged_in(&state, (db, key))? else {
            let all = Packed::new(shape, state.value.slice());
            return Ok(Ok(Some(named.map(|named| tell(all, named)).collect())));
        };
        let named: Vec<_> = named.collect();
        self.charge(named.len())?;
        let leaves = self.leaves(&paged, named.iter().map(|(hash, _)| paged.root.leaf_of(hash.0)))?;
        Ok(Ok(Some(leaves.into_iter().zip(named).map(|(leaf, named)| tell(leaf, named)).collect())))
    }

    /// Elements of the hash or set at `key` among which `wanted` are to be drawn, chosen by `dice`: those of so many leaves, or all if it is not
    /// paged or so many would be more than half of its leaves. None of the parts is empty, and there is none if the key is not there.
    ///
    /// # Errors
    /// As [`Access::get`]; inside, [`WrongType`].
    ///
    /// # Panics
    /// If `kind` is neither a hash nor a set.
    pub fn sample(
        &self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
        (wanted, dice): (usize, u64),
    ) -> Result<Result<Vec<Packed<'_>>, WrongType>, Stop> {
        let paged = self.paged(db, key)?.filter(|paged| paged.kind == kind);
        if let Some(paged) = paged.filter(|paged| wanted <= paged.root.leaves as usize / 2) {
            let leaves = self.sample_leaves(&paged, wanted, dice)?;
            if leaves.len() == wanted {
                return Ok(Ok(leaves));
            }
        }
        let all = self.collection(db, key, kind)?;
        Ok(all.map(|all| if all.is_empty() { Vec::new() } else { vec![all] }))
    }

    /// So many leaves that have elements; fewer if hardly any has.
    fn sample_leaves(&self, paged: &Paged, wanted: usize, dice: u64) -> Result<Vec<Packed<'_>>, Stop> {
        // Run again after a fetch, it goes where it went before: elsewhere it would meet cold leaves again, and again.
        let fetched = self.prepared().leaves_of(paged.root.object).filter(|leaf| *leaf < paged.root.leaves);
        // each leaf has a share of the hashes; a leaf may be empty
        let next = |hash: &KeyHash| Some(self.store.hasher.hash(&hash.0.to_le_bytes()));
        let hashes = std::iter::successors(Some(KeyHash(u128::from(dice) << 16)), next);
        let drawn = hashes.take(SAMPLES_MAX * wanted).map(|hash| paged.root.leaf_of(hash.0));
        let mut met = HashSet::new();
        let mut numbers = fetched.chain(drawn).filter(|number| met.insert(*number));
        let mut found = Vec::new();
        loop {
            let numbers: Vec<u32> = numbers.by_ref().take(wanted - found.len()).collect();
            if numbers.is_empty() {
                return Ok(found);
            }
            let leaves = self.leaves(paged, numbers.into_iter())?;
            found.extend(leaves.into_iter().filter(|leaf| !leaf.is_empty()));
        }
    }

    /// A step over the hash, set or sorted set at `key`, from place `from` on: about `count` elements, and the place where to go on, 0 at the end. An
    /// element that is there throughout is met once.
    ///
    /// Elements are in the order of their hash with its bits reversed, so that a leaf has those of one range, whatever is split or merged.
    ///
    /// # Errors
    /// As [`Access::get`]; inside, [`WrongType`].
    ///
    /// # Panics
    /// If `kind` is none of hashes, sets and sorted sets.
    pub fn walk<'a>(
        &'a self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
        (from, count): (u64, usize),
    ) -> Result<Result<(u64, Vec<Element<'a>>), WrongType>, Stop> {
        let place_of = |element: &[u8]| u64::from(bits_of(self.store.hasher.hash(element).0).reverse_bits());
        let mut met: Vec<(u64, Element<'_>)> = Vec::new();
        let add = |leaf: Packed<'a>, met: &mut Vec<(u64, Element<'a>)>| {
            let elements = leaf.iter().map(|element| (place_of(element.0), element));
            met.extend(elements.filter(|(place, _)| *place >= from));
        };
        let mut end = PLACES;
        match self.paged(db, key)?.filter(|paged| paged.kind == kind) {
            None => match self.collection(db, key, kind)? {
                Err(wrong) => return Ok(Err(wrong)),
                Ok(all) if all.form() != Form::Table => return Ok(Ok((0, all.iter().collect()))),
                Ok(all) => add(all, &mut met),
            },
            Some(paged) => {
                self.charge(count.min(paged.root.count as usize))?;
                let mut numbers = Vec::new();
                let enough =
                    (count as u64).saturating_mul(paged.root.leaves.into()) / paged.root.count.max(1) + 1;
                end = from;
                while end < PLACES && (numbers.len() as u64) < enough {
                    let (leaf, next) = paged.root.leaf_at(end);
                    numbers.push(leaf);
                    end = next;
                }
                for leaf in self.leaves(&paged, numbers.into_iter())? {
                    add(leaf, &mut met);
                }
            }
        }
        met.sort_unstable_by_key(|(place, _)| *place);
        if met.len() > count {
            let last = met[count.max(1) - 1].0;
            met.truncate(met.partition_point(|(place, _)| *place <= last));
            end = last + 1;
        }
        Ok(Ok((if end >= PLACES { 0 } else { end }, met.into_iter().map(|(_, element)| element).collect())))
    }

    /// How many leaves and other nodes the collection at `key` has; 0: it is not paged, or there is none.
    ///
    /// # Errors
    /// As [`Access::meta`].
    pub fn leaf_count(&self, db: u16, key: &[u8]) -> Result<u64, Stop> {
        Ok(self.without_use(|| self.paged(db, key))?.map_or(0, |paged| paged.root.nodes()))
    }

    /// Number of elements of the collection of type `kind` at `key`.
    ///
    /// # Errors
    /// As [`Access::get`]; inside, [`WrongType`].
    ///
    /// # Panics
    /// If `kind` is no collection.
    pub fn count(&self, db: u16, key: &[u8], kind: ValueKind) -> Result<Result<u64, WrongType>, Stop> {
        match self.paged(db, key)? {
            Some(paged) if paged.kind == kind => {
                self.meet_due(&paged)?;
                Ok(Ok(paged.root.count.saturating_sub(self.purged.fields_of(paged.root.object))))
            }
            Some(_) => Ok(Err(WrongType)),
            None => Ok(self.collection(db, key, kind)?.map(|all| all.len() as u64)),
        }
    }

    /// Removes the elements with these numbers, in their order, of the sorted set or stream at `key`.
    ///
    /// # Errors
    /// As [`Access::get`]; inside, [`WrongType`].
    ///
    /// # Panics
    /// If `kind` is neither of them.
    pub fn remove_range(
        &mut self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
        range: Range<usize>,
    ) -> Result<Result<(), WrongType>, Stop> {
        let Some(paged) = self.paged_to_change(db, key)?.filter(|paged| paged.kind == kind) else {
            return self.remove_each(db, key, kind, range);
        };
        let (from, to) = (range.start as u64, (range.end as u64).min(paged.root.count));
        match to.saturating_sub(from) {
            0 => {}
            count if count == paged.root.count => _ = self.remove(db, key)?,
            count if kind == ValueKind::Stream => {
                self.edit_tree((db, key), &paged, |tree| tree.remove(from, count))?;
            }
            count => {
                self.charge(count as usize)?;
                let mut by_leaf = BTreeMap::new();
                let set = self.sequence(db, key, kind)?.expect("it is of this type");
                set.visit(range, |(member, _)| self.note_removal(&paged, member, &mut by_leaf))?;
                let mut changed = self.changed_leaves(&paged, by_leaf)?;
                let mut tree = TreeEdit::new(self, &paged);
                tree.remove(from, count)?;
                changed.with_tree(&paged, tree)?;
                self.stage_leaves((db, key), &paged, changed)?;
            }
        }
        Ok(Ok(()))
    }

    /// As [`Access::remove_range`], of what is not paged.
    fn remove_each(
        &mut self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
        range: Range<usize>,
    ) -> Result<Result<(), WrongType>, Stop> {
        let Ok(all) = self.collection(db, key, kind)? else { return Ok(Err(WrongType)) };
        let gone = range.start.min(all.len())..range.end.min(all.len());
        let keys: Vec<Vec<u8>> = gone.map(|at| all.element(at).0.to_vec()).collect();
        let keys = keys.iter().map(|key| &key[..]);
        if kind == ValueKind::Stream {
            let changes: Vec<_> = keys.map(|key| (key, None)).collect();
            return self.change_stream(db, key, &changes);
        }
        let gone = self.rescore((db, key), keys, |_, _| Ok::<_, Infallible>(None))?;
        Ok(gone.map(|Ok(())| ()))
    }

    /// Lets `change` change the tree of what is paged at `key`, a list or a stream; returns how many elements there are then, too.
    pub(super) fn edit_tree<R>(
        &mut self,
        (db, key): (u16, &[u8]),
        paged: &Paged,
        change: impl FnOnce(&mut TreeEdit<'_, '_>) -> Result<R, Stop>,
    ) -> Result<(R, u64), Stop> {
        let mut tree = TreeEdit::new(self, paged);
        let (done, small) = (change(&mut tree)?, tree.small_list()?);
        let (now, count) = tree.now();
        let (leaves, counts, within) = tree.end();
        if let Some(value) = small
            && let Some(place) = self.place(db, key)
        {
            let (count, expiry_ms) =
                (Packed::new(Shape::List, &value).len() as u64, paged.expiry.map_or(0, Deadline::raw));
            self.stage_value(place, record::LIST, &value, expiry_ms);
            return Ok((done, count));
        }
        let root = Root { count, tree: Some(now), ..paged.root };
        let changed = Changed { root, leaves, within, counts };
        if !changed.is_none() {
            self.stage_leaves((db, key), paged, changed)?;
        }
        Ok((done, count))
    }

    /// What is paged at `key`.
    pub(super) fn paged(&self, db: u16, key: &[u8]) -> Result<Option<Paged>, Stop> {
        match self.find(db, key)? {
            Some(state) => self.paged_in(&state, (db, key)),
            None => Ok(None),
        }
    }

    /// What is paged at `key`, for a command that changes its leaves: none in a workspace, which has keys, not leaves.
    pub(super) fn paged_to_change(&self, db: u16, key: &[u8]) -> Result<Option<Paged>, Stop> {
        if self.keeps_to_workspace { Ok(None) } else { self.paged(db, key) }
    }

    /// The collection in the state of `key`, put together; `None` if it is not paged.
    pub(super) fn gathered(&self, state: &State<'_>, at: (u16, &[u8])) -> Result<Option<&[u8]>, Stop> {
        let Some(paged) = self.paged_in(state, at)? else { return Ok(None) };
        let gather = || {
            self.check_gathered(&paged)?;
            self.charge(paged.root.count as usize)?;
            self.ask(paged.root.all_bytes())?;
            if self.reads_here() {
                return self.gather_here(&paged);
            }
            let parts = match paged.root.tree {
                None => self.leaves(&paged, 0..paged.root.leaves)?,
                Some(_) => self.tree_leaves(&paged, 0..u64::MAX)?.into_iter().map(|(_, leaf)| leaf).collect(),
            };
            Ok(collections::concat(paged.shape(), Form::Table, &parts))
        };
        self.gathered.of(paged.root.object, gather).map(Some)
    }

    /// Refuses what is too much to be put together.
    fn check_gathered(&self, paged: &Paged) -> Result<(), Stop> {
        let (bytes, limit_bytes) = (paged.root.all_bytes(), u64::from(u32::MAX));
        if bytes > limit_bytes {
            return Err(StoreError::TooMuchAtOnce { bytes, limit_bytes }.into());
        }
        let limit_bytes = self.store.memory.read_bytes_max().min(self.store.options.value_bytes_max);
        self.check_at_once(self.gathered.bytes().saturating_add(bytes), limit_bytes)
    }

    /// The value of leaf `number`.
    fn leaf(&self, paged: &Paged, number: u32) -> Result<&[u8], Stop> {
        self.node(paged, number, paged.hashed_kind())
    }

    /// The value of the leaf or other node that has this number, which is of type `kind`.
    pub(super) fn node(&self, paged: &Paged, number: u32, kind: ValueKind) -> Result<&[u8], Stop> {
        self.node_into(&self.copied, paged, number, kind)
    }

    /// As [`Access::node`]; what has to be copied is kept in `copied`.
    pub(super) fn node_into<'a>(
        &'a self,
        copied: &'a Copied,
        paged: &Paged,
        number: u32,
        kind: ValueKind,
    ) -> Result<&'a [u8], Stop> {
        let (_, state) = self.node_state(copied, paged, number, kind)?;
        match state.value {
            Bytes::Plain(value) => Ok(value),
            Bytes::Large(large) => Ok(large.as_ref().as_ref()),
        }
    }

    /// As [`Access::node_into`], with all that is known of it, and where it is.
    pub(super) fn node_state<'a>(
        &'a self,
        copied: &'a Copied,
        paged: &Paged,
        number: u32,
        kind: ValueKind,
    ) -> Result<(NodePlace, State<'a>), Stop> {
        let (key, hash) = self.reach_node(paged, number)?;
        match self.lookup_into(copied, (paged.leaves, hash), &key, HIDDEN_DB) {
            Ok(Some(state)) if state.kind == record::kind_of(kind) => {
                self.check_value(&state)?;
                Ok(((key, hash), state))
            }
            Ok(_) => Err(damaged(paged, &format!("leaf {number} is not there"))),
            Err(Stop::Cold) => Err(self.miss_node(paged, (key, hash), self.guards.is_beside(hash.stripe()))),
            Err(stop) => Err(stop),
        }
    }

    /// Key and hash of the leaf or other node that has this number; locks its stripe, if that needs no waiting.
    pub(super) fn reach_node(&self, paged: &Paged, number: u32) -> Result<NodePlace, Stop> {
        let key = leaf_key(paged.root.object, number);
        let hash = self.store.hasher.hash_in(paged.leaves, &key);
        let is_reached = self.reads_here() || self.guards.reach(self.store, hash.stripe());
        if is_reached { Ok((key, hash)) } else { Err(self.miss_node(paged, (key, hash), true)) }
    }

    /// The stripe of all leaves of this collection; locks it, if that needs no waiting.
    pub(super) fn reach_leaves(&self, paged: &Paged) -> Result<usize, Stop> {
        self.reach_node(paged, 0).map(|(_, hash)| hash.stripe())
    }

    /// Brings near what lookups of these leaves will read, for all at once, as [`Index::prefetch`](crate::index::Index::prefetch) does for keys. A few are
    /// not worth it.
    pub(super) fn bring_leaves(&self, paged: &Paged, numbers: impl ExactSizeIterator<Item = u32>) {
        if numbers.len() < AHEAD_LEAVES_MIN || self.reads_here() {
            return;
        }
        let hash = |number| self.store.hasher.hash_in(paged.leaves, &leaf_key(paged.root.object, number));
        let mut hashes = SmallVec::<[KeyHash; AHEAD_KEYS_MAX]>::new();
        hashes.extend(numbers.take(AHEAD_KEYS_MAX).map(hash));
        // all of them are in one stripe
        let Ok(stripe) = self.guards.stripe(hashes[0].stripe()) else { return };
        if let Some(space) = stripe.space(paged.leaves) {
            ahead::bring(&space.table, &hashes);
        }
    }

    fn miss_node(&self, paged: &Paged, (key, hash): NodePlace, is_beside: bool) -> Stop {
        self.wanted.borrow_mut().add_leaf(WantedLeaf { keyspace: paged.leaves, hash, key, is_beside });
        Stop::Cold
    }

    /// These leaves; all that are cold are missed together.
    pub(super) fn leaves(
        &self,
        paged: &Paged,
        numbers: impl Iterator<Item = u32>,
    ) -> Result<Vec<Packed<'_>>, Stop> {
        let (mut leaves, mut cold) = (Vec::new(), 0);
        for number in numbers {
            self.charge(1)?;
            match self.leaf(paged, number) {
                Ok(value) => leaves.push(Packed::new(paged.hashed_shape(), value)),
                Err(Stop::Cold) => {
                    cold += 1;
                    self.check_cold(paged, cold)?;
                }
                Err(other) => return Err(other),
            }
        }
        if cold > 0 { Err(Stop::Cold) } else { Ok(leaves) }
    }

    /// Refuses to read so many leaves if that is more than a command may hold: it would be refused when they have been read.
    pub(super) fn check_cold(&self, paged: &Paged, leaves: u64) -> Result<(), Stop> {
        let all = u64::from(paged.root.leaves.max(1));
        // several elements may be in one leaf: then it was counted for each
        let (leaves, leaf_bytes) = (leaves.min(all), paged.root.bytes / all);
        let most = self.store.memory.read_bytes_max();
        if leaves <= READ_ANYWAY || leaves * leaf_bytes <= most.min(self.prepared.bytes_left()) {
            return Ok(());
        }
        self.check_at_once(u64::MAX, most.min(self.prepared.values_bytes_max()))
    }

    /// Refuses changes of leaves that are too much for one group: before all of them are made, which takes seconds then.
    fn check_changes(&self, size_bytes: u64) -> Result<(), Stop> {
        let limit_bytes = self.store.options.transaction_bytes_max;
        // what was prepared was bounded then
        if size_bytes > limit_bytes && self.settles.is_none() {
            return Err(StoreError::TransactionTooLarge { size_bytes, limit_bytes }.into());
        }
        Ok(())
    }

    /// About the bytes of the record by which a leaf that is `state` becomes `leaf`.
    fn logged_bytes(&self, state: &State<'_>, leaf: &Leaf) -> u64 {
        let change_bytes =
            leaf.operations().map(|operations| record::change_bytes(LEAF_KEY_BYTES, operations.len()));
        let change_bytes = change_bytes.filter(|bytes| self.takes_change(state, *bytes));
        change_bytes.unwrap_or_else(|| leaf.value().map_or(0, <[u8]>::len) as u64)
    }

    /// Lets `change` change what leaf `number` has. What most changes need is done with one look at the leaf: it stays one leaf of as many.
    pub(super) fn edit_leaf<R>(
        &mut self,
        (db, key): (u16, &[u8]),
        paged: &Paged,
        number: u32,
        change: impl FnOnce(&mut Edit<'_>) -> R,
    ) -> Result<R, Stop> {
        self.charge(1)?;
        let (leaf_place, state) = self.node_state(&self.copied, paged, number, paged.hashed_kind())?;
        let mut edit = Edit::of_key(Packed::new(paged.hashed_shape(), state.value.slice()), paged.expiry);
        let done = change(&mut edit);
        if !edit.is_changed() {
            return Ok(done);
        }
        let Some((root, bytes)) = self.same_leaves(paged, &state, &edit) else {
            let by_leaf = self.by_leaf(&paged.root, &edit.into_operations());
            let changed = self.changed_leaves(paged, by_leaf)?;
            return self.stage_leaves((db, key), paged, changed).map(|()| done);
        };
        let Some(place) = self.place(db, key) else { return Ok(done) };
        let leaf = self.leaf_change::<Edit<'static>>(
            (number, paged.hashed_kind()),
            (leaf_place, &state),
            (edit, bytes),
        );
        self.stage_within((place, paged), &root, (LeafChanges::from_iter([leaf]), Counts::new()))?;
        Ok(done)
    }

    /// The root after `edit` of one leaf, and the bytes of this leaf then, if nothing else is to be thought of: the leaf was not staged before,
    /// and has no deadlines, and no leaf is to be split, merged, or put at the key itself.
    fn same_leaves(&self, paged: &Paged, state: &State<'_>, edit: &Edit<'_>) -> Option<(Root, usize)> {
        let is_plain = !state.staged && !paged.root.is_timed && self.purged.is_empty() && !self.reads_here();
        let bytes = edit.encoded_len().filter(|bytes| is_plain && self.is_usual_leaf(*bytes))?;
        let count = (paged.root.count + edit.len() as u64).checked_sub(edit.len_before() as u64)?;
        let all_bytes = (paged.root.bytes + bytes as u64).checked_sub(state.value_len)?;
        let root = Root { count, bytes: all_bytes, ..paged.root };
        let leaf_bytes = self.store.options.leaf_bytes.max(1);
        let (least, most) = leaves_by_bytes(&root, leaf_bytes);
        let may_split = root.leaves < least && bytes as u64 > room_bytes(leaf_bytes);
        let is_small = root.has_one_leaf() && root.all_bytes() < leaf_bytes / 2;
        (count > 0 && !may_split && root.leaves <= most && !is_small).then_some((root, bytes))
    }

    /// What `edit`, of so many bytes, makes of the leaf at `place`, which is `state`.
    pub(super) fn leaf_change<E: Editing>(
        &self,
        (number, kind): (u32, ValueKind),
        (place, state): (NodePlace, &State<'_>),
        (edit, bytes): (E::Of<'_>, usize),
    ) -> LeafChange {
        let before = state.value.slice();
        let value = match E::patch(&edit).filter(|_| bytes == before.len()) {
            None => LeafValue::Whole(Buffer::filled(bytes, |value| E::write(&edit, value))),
            Some((from, patch)) => {
                LeafValue::Patched(Patched { len: bytes, from, patch, whole: OnceCell::new() })
            }
        };
        let operations = E::operations(edit);
        let record_bytes = record::change_bytes(LEAF_KEY_BYTES, operations.len());
        let is_delta = state.header_ms == 0 && self.takes_change(state, record_bytes);
        let kind = record::kind_of(kind);
        LeafChange { number, place, kind, spot: state.spot, value, operations, is_delta }
    }

    /// The value that a leaf will have.
    pub(super) fn leaf_value<'l>(&self, paged: &Paged, leaf: &'l LeafChange) -> Result<&'l [u8], Stop> {
        let patched = match &leaf.value {
            LeafValue::Whole(value) => return Ok(value),
            LeafValue::Patched(patched) => patched,
        };
        if let Some(whole) = patched.whole.get() {
            return Ok(whole);
        }
        let (key, hash) = &leaf.place;
        let before = self.lookup_there(&self.copied, (paged.leaves, *hash), key, HIDDEN_DB)?;
        let before = before.expect("it was looked up under the same lock");
        let whole = Buffer::filled(patched.len, |value| {
            value.copy_from_slice(before.value.slice());
            patched.write(&leaf.operations, value);
        });
        Ok(patched.whole.get_or_init(|| whole))
    }

    /// A leaf of `paged` as a change of its own.
    pub(super) fn leaf_staged(&self, paged: &Paged, leaf: &LeafChange) -> Result<Staged, Stop> {
        let object = Object::new(leaf.kind, &leaf.place.0, Bytes::Plain(self.leaf_value(paged, leaf)?), 0);
        let operations = leaf.is_delta.then(|| leaf.operations.clone());
        let delta = operations.map(|operations| Small::Elements { operations, retimes: false });
        let KeyPlace { db, keyspace, hash, .. } = paged.key_place(&leaf.place);
        Ok(Staged { db, keyspace, hash, change: Change::of(object, delta), cause: Cause::Command })
    }

    /// The value that a leaf or node will have by these changes, if it is among them and is to be there.
    fn changed_value<'c>(
        &self,
        paged: &Paged,
        leaves: &'c BTreeMap<u32, Leaf>,
        within: &'c LeafChanges,
        number: u32,
    ) -> Result<Option<&'c [u8]>, Stop> {
        match within.iter().find(|leaf| leaf.number == number) {
            Some(leaf) => self.leaf_value(paged, leaf).map(Some),
            None => Ok(leaves.get(&number).and_then(Leaf::value)),
        }
    }

    /// Whether a leaf of so many bytes is neither refused nor a large value.
    pub(super) fn is_usual_leaf(&self, bytes: usize) -> bool {
        bytes < LARGE_BYTES && (LEAF_KEY_BYTES + bytes) as u64 <= self.store.options.value_bytes_max
    }

    /// What operations make of the leaves that they are given by, as [`Access::change_leaves`].
    pub(super) fn changed_leaves(
        &self,
        paged: &Paged,
        by_leaf: BTreeMap<u32, Vec<u8>>,
    ) -> Result<Changed, Stop> {
        let replay = |edit: &mut Edit<'_>, operations: Vec<u8>| {
            edit.replay(&operations).expect("operations of an edit of this leaf");
        };
        self.change_leaves(paged, by_leaf.into_iter(), replay)
    }

    /// What `change` makes of these leaves with what is given beside each, with as many leaves as fit what is in them then. All that are cold are missed
    /// together; then nothing may come of what was called.
    pub(super) fn change_leaves<T>(
        &self,
        paged: &Paged,
        leaves: impl Iterator<Item = (u32, T)>,
        mut change: impl FnMut(&mut Edit<'_>, T),
    ) -> Result<Changed, Stop> {
        let mut changed = Changed::of(paged);
        let (mut cold, mut log_bytes) = (0, 0);
        for (number, given) in leaves {
            self.charge(1)?;
            let slice = Slice::of(self);
            let (place, state) = match slice.node_state(paged, number, paged.hashed_kind()) {
                Err(Stop::Cold) if !self.reads_here() => {
                    cold += 1;
                    self.check_cold(paged, cold)?;
                    continue;
                }
                found => found?,
            };
            if cold > 0 {
                continue;
            }
            let mut edit = Edit::new(Packed::new(paged.hashed_shape(), state.value.slice()));
            change(&mut edit, given);
            if !edit.is_changed() {
                continue;
            }
            let is_plain =
                !state.staged && !paged.root.is_timed && self.purged.is_empty() && !self.reads_here();
            let bytes = edit.encoded_len().filter(|bytes| is_plain && self.is_usual_leaf(*bytes));
            if let Some(bytes) = bytes {
                self.ask((bytes + edit.operations().len()) as u64)?;
                changed.count((edit.len_before(), state.value_len), (edit.len(), bytes as u64));
                let leaf = self.leaf_change::<Edit<'static>>(
                    (number, paged.hashed_kind()),
                    (place, &state),
                    (edit, bytes),
                );
                log_bytes += if leaf.is_delta { leaf.operations.len() } else { bytes } as u64;
                changed.within.push(leaf);
            } else {
                let leaf = self.leaf_by(paged, state.value.slice(), &edit)?;
                let value = leaf.value().expect("it stays");
                let len = Packed::new(paged.hashed_shape(), value).len();
                changed.count((edit.len_before(), state.value_len), (len, value.len() as u64));
                log_bytes += self.logged_bytes(&state, &leaf);
                changed.leaves.insert(number, leaf);
            }
            self.check_changes(log_bytes)?;
        }
        if cold > 0 {
            return Err(Stop::Cold);
        }
        // what changes nothing moves no element, either
        if !changed.is_none() {
            self.fit(paged, &mut changed)?;
        }
        Ok(changed)
    }

    /// What `edit` makes of a leaf that was `before`.
    fn leaf_by(&self, paged: &Paged, before: &[u8], edit: &Edit<'_>) -> Result<Leaf, Stop> {
        // when the key ends its root says
        let operations: Vec<u8> =
            collections::elements_of(edit.operations()).flat_map(|(_, it)| it).copied().collect();
        let value = collections::fold(paged.hashed_shape(), before, &[&operations]);
        let value = value.expect("operations of an edit of this leaf");
        self.ask((value.len() + operations.len()) as u64)?;
        Ok(Leaf::Is { kind: paged.hashed_kind(), value, operations: Some(operations) })
    }

    /// Lets there be as many leaves as fit what is in them after a change.
    fn fit(&self, paged: &Paged, changed: &mut Changed) -> Result<(), Stop> {
        let mut leaves = self.leaves_for(paged, changed)?;
        if !self.may_resize(paged, changed, leaves)? {
            leaves = changed.root.leaves;
        }
        while changed.root.leaves < leaves {
            self.split(paged, changed)?;
        }
        while changed.root.leaves > leaves {
            self.merge(paged, changed)?;
        }
        Ok(())
    }

    /// How many leaves there are to be after a change.
    ///
    /// There are more when all leaves together have too much and the leaves that were changed do, too: as many more as they have beyond their
    /// share. An element counts as one leaf's bytes at most, since one that is larger fills its leaf whatever is split; so the bytes of a few
    /// large elements make no leaves for the small ones beside them, and one change makes no more leaves than what it touches is worth. There
    /// are never more leaves than elements, except where a folder has such leaves from before: these go some at a time.
    fn leaves_for(&self, paged: &Paged, changed: &Changed) -> Result<u32, Stop> {
        let (leaf_bytes, root) = (self.store.options.leaf_bytes.max(1), &changed.root);
        let (least, most) = leaves_by_bytes(root, leaf_bytes);
        if root.leaves < least {
            let values = changed.leaves.values().filter_map(Leaf::value);
            let mut more = values.map(|value| self.excess_bytes(paged, value)).sum::<u64>();
            for leaf in changed.within.iter().filter(|leaf| leaf.len() as u64 > room_bytes(leaf_bytes)) {
                more += self.excess_bytes(paged, self.leaf_value(paged, leaf)?);
            }
            return Ok(least.min(root.leaves.saturating_add(leaf_count(more.div_ceil(leaf_bytes) + 1) - 1)));
        }
        let changes = (changed.leaves.len() + changed.within.len()) as u32;
        Ok(most.max(root.leaves.saturating_sub(MERGED_MAX + changes)).min(root.leaves))
    }

    /// Bytes of a leaf that was changed beyond one and a half of a leaf's, elements that are larger than a leaf counted as one.
    fn excess_bytes(&self, paged: &Paged, value: &[u8]) -> u64 {
        let leaf_bytes = self.store.options.leaf_bytes;
        let room_bytes = room_bytes(leaf_bytes);
        if value.len() as u64 <= room_bytes {
            return 0;
        }
        Packed::new(paged.hashed_shape(), value).bytes_up_to(leaf_bytes).saturating_sub(room_bytes)
    }

    /// Whether there are to be so many leaves. What is to be split is none of what the command names: each leaf of these that is cold costs a
    /// read that no other can go with. So there are a few of them at most in all commands of an access, and later changes split the others.
    fn may_resize(&self, paged: &Paged, changed: &Changed, wanted: u32) -> Result<bool, Stop> {
        if wanted == changed.root.leaves {
            return Ok(true);
        }
        let is_to_read = self.effort.use_extra();
        match self.miss_resized(paged, changed, wanted) {
            Err(Stop::Cold) if wanted > changed.root.leaves && !is_to_read => Ok(false),
            found => found.map(|()| true),
        }
    }

    /// Looks for the leaves that are going to be split, or put together, so that all that are cold are fetched at once.
    fn miss_resized(&self, paged: &Paged, changed: &Changed, wanted: u32) -> Result<(), Stop> {
        let leaves = changed.root.leaves;
        let split_from = |number: u32| number - (1 << number.ilog2());
        let split = (leaves..wanted).map(split_from);
        let merged = (wanted..leaves).flat_map(|number| [split_from(number), number]);
        let is_read = |number: &u32| *number < leaves && !changed.has_value(*number);
        self.leaves(paged, split.chain(merged).filter(is_read)).map(drop)
    }

    /// `operations`, by the leaf that has their element.
    pub(super) fn by_leaf(&self, root: &Root, operations: &[u8]) -> BTreeMap<u32, Vec<u8>> {
        let mut by_leaf: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for (element, operation) in collections::elements_of(operations) {
            let leaf = root.leaf_of(self.store.hasher.hash(element).0);
            by_leaf.entry(leaf).or_default().extend_from_slice(operation);
        }
        by_leaf
    }

    /// The value of leaf `number` after the change so far.
    fn changed_leaf(&self, paged: &Paged, changed: &Changed, number: u32) -> Result<Vec<u8>, Stop> {
        Ok(match self.changed_value(paged, &changed.leaves, &changed.within, number)? {
            Some(value) => value.to_vec(),
            None => self.leaf(paged, number)?.to_vec(),
        })
    }

    /// Adds a leaf, with some elements of the one whose turn it is.
    fn split(&self, paged: &Paged, changed: &mut Changed) -> Result<(), Stop> {
        let (from, to) = (changed.root.next_to_split(), changed.root.leaves);
        let value = self.changed_leaf(paged, changed, from)?;
        let packed = Packed::new(paged.hashed_shape(), &value);
        let goes = |at: &usize| leaf_of(self.store.hasher.hash(packed.element(*at).0).0, to + 1) == to;
        let (moved, stays): (Vec<usize>, Vec<usize>) = (0..packed.len()).partition(goes);
        changed.root.leaves += 1;
        changed.root.bytes = changed.root.bytes.saturating_sub(value.len() as u64);
        for (number, elements) in [(from, stays), (to, moved)] {
            let part = collections::select(packed, Form::Table, &elements);
            changed.root.bytes += part.len() as u64;
            changed.put(number, Leaf::whole(paged, part));
        }
        Ok(())
    }

    /// Puts the elements of the last leaf back where they were before it was split off.
    fn merge(&self, paged: &Paged, changed: &mut Changed) -> Result<(), Stop> {
        changed.root.leaves -= 1;
        let (from, to) = (changed.root.leaves, changed.root.next_to_split());
        let values = [self.changed_leaf(paged, changed, to)?, self.changed_leaf(paged, changed, from)?];
        let parts = values.each_ref().map(|value| Packed::new(paged.hashed_shape(), value));
        let value = collections::concat(paged.hashed_shape(), Form::Table, &parts);
        changed.root.bytes += value.len() as u64;
        let former: u64 = values.iter().map(|value| value.len() as u64).sum();
        changed.root.bytes = changed.root.bytes.saturating_sub(former);
        changed.put(to, Leaf::whole(paged, value));
        changed.put(from, Leaf::Gone);
        Ok(())
    }

    /// Stages what has become of leaves and root.
    pub(super) fn stage_leaves(
        &mut self,
        (db, key): (u16, &[u8]),
        paged: &Paged,
        changed: Changed,
    ) -> Result<(), Stop> {
        // from now on they are counted as effects
        self.give_back(changed.bytes());
        let Changed { mut root, leaves, within, counts } = changed;
        if root.count == self.purged.fields_of(root.object) {
            return self.remove(db, key).map(drop);
        }
        let Some(place) = self.place(db, key) else { return Ok(()) };
        let expiry_ms = paged.expiry_ms();
        if root.has_one_leaf() && root.all_bytes() < self.store.options.leaf_bytes / 2 {
            let number = root.tree.map_or(0, |tree| tree.top | NODE);
            let value = match self.changed_value(paged, &leaves, &within, number)? {
                Some(value) => value.to_vec(),
                None => self.node(paged, number, paged.kind)?.to_vec(),
            };
            self.stage_value(place, record::kind_of(paged.kind), &value, expiry_ms);
            return Ok(());
        }
        let is_timed = |leaf: &Leaf| matches!(leaf, Leaf::Is { value, .. } if paged.is_timed_leaf(value));
        if !root.is_timed && leaves.values().any(is_timed) {
            root.is_timed = true;
            self.stage_key_node(paged.leaves, root.object, key);
        }
        let is_beside = !leaves.is_empty() && counts.is_empty() && self.overlay.is_untouched();
        if !leaves.is_empty() {
            // with the root
            self.overlay.reserve(leaves.len() + within.len() + 1);
        }
        for (number, leaf) in leaves {
            let place = || {
                let key = leaf_key(root.object, number);
                (key, self.store.hasher.hash_in(paged.leaves, &key))
            };
            match leaf {
                Leaf::Staged(staged) => self.stage(*staged),
                Leaf::Is { kind, value, operations } => {
                    let (place, kind) = (place(), (kind, Cause::Command));
                    self.stage_changed(paged.key_place(&place), (kind, &value, None), operations)?;
                }
                Leaf::Gone => {
                    let place = place();
                    self.stage_removal(paged.key_place(&place));
                }
            }
        }
        if is_beside {
            return self.stage_beside((place, paged), &root, within);
        }
        self.stage_within((place, paged), &root, (within, counts))
    }

    /// Stages what has become of a root, of which leaves have changed.
    pub(super) fn stage_changed_root(
        &mut self,
        place: KeyPlace<'_>,
        paged: &Paged,
        root: &Root,
    ) -> Result<(), Stop> {
        if *root == paged.root {
            return self.stage_touch(place);
        }
        self.stage_root(place, paged.kind, root, paged.expiry_ms());
        Ok(())
    }

    /// Stages that a collection has changed whose root has not: who watches its key is told, and nothing is logged of it.
    pub(super) fn stage_touch(&mut self, place: KeyPlace<'_>) -> Result<(), Stop> {
        let KeyPlace { db, keyspace, hash, key } = place;
        let stripe = self.at_stripe(hash.stripe())?;
        // where the stripe stays locked nobody begins to watch before the commit
        let is_watched = stripe.watches.is_any() || self.reads_here();
        if !is_watched && stripe.locks.is_none() {
            return Ok(());
        }
        let touched = Staged { db, keyspace, hash, change: Change::removal(key), cause: Cause::Command };
        if stripe.locks.is_some() {
            self.check_lock(&stripe, &touched)?;
        }
        drop(stripe);
        if is_watched {
            self.overlay.touch(touched);
        }
        Ok(())
    }

    /// Stages the collection in `value` as leaves and a root, if it is to have them; returns whether it is.
    pub(super) fn stage_paged(
        &mut self,
        place: KeyPlace<'_>,
        (kind, value, expiry): (ValueKind, &[u8], Option<Deadline>),
    ) -> bool {
        let (Some(shape), Some(_)) = (kind.shape(), record::paged_kind_of(kind)) else { return false };
        let leaf_bytes = self.store.options.leaf_bytes;
        let packed = Packed::new(shape, value);
        let is_large = match kind {
            // by default when it is no longer a listpack
            ValueKind::List => packed.listpack_bytes() > 4 * leaf_bytes,
            _ => packed.form() == Form::Table && value.len() as u64 > 2 * leaf_bytes,
        };
        if self.keeps_to_workspace || !is_large {
            return false;
        }
        self.effort.note(packed.len());
        // members of a sorted set are in its leaves and in its tree
        let size_bytes = value.len() as u64 * if kind == ValueKind::SortedSet { 3 } else { 2 } / 2;
        let limit_bytes = self.store.options.transaction_bytes_max;
        if size_bytes > limit_bytes && self.settles.is_none() {
            // the commit says so; making thousands of leaves would not change it
            self.stopped.get_or_insert(StoreError::TransactionTooLarge { size_bytes, limit_bytes }.into());
            return true;
        }
        if self.asks(value.len() as u64).is_none() {
            return true;
        }
        let object = self.store.objects.next(place.hash.stripe());
        let (count, is_timed) = (packed.len() as u64, packed.is_timed());
        let root = Root { object, count, bytes: 0, leaves: 0, tree: None, is_timed };
        let (leaves_at, spot, takes_totals) = (leaves_of(place.keyspace), None, false);
        let mut paged = Paged { leaves: leaves_at, kind, root, expiry, spot, takes_totals };
        let mut leaves = BTreeMap::new();
        if matches!(kind, ValueKind::Hash | ValueKind::Set | ValueKind::SortedSet) {
            self.spread(&mut paged, packed, &mut leaves);
        }
        if packed.is_ordered() {
            // a new tree reads nothing: only memory can stop it
            let made = TreeEdit::of(self, &paged, packed).map(|tree| (tree.now().0, tree.end().0));
            let (tree, nodes) = match made {
                Ok(made) => made,
                Err(stop) => {
                    self.stopped.get_or_insert(stop);
                    return true;
                }
            };
            paged.root.tree = Some(tree);
            self.give_back(nodes.values().map(Leaf::bytes).sum());
            leaves.extend(nodes);
        }
        self.forget_leaves(&place);
        self.give_back(value.len() as u64);
        for (number, leaf) in leaves {
            let Leaf::Is { kind, value, .. } = leaf else { unreachable!("leaves are made here") };
            let key = leaf_key(object, number);
            let hash = self.store.hasher.hash_in(paged.leaves, &key);
            let expiry_ms = next_deadline(self.now, record::kind_of(kind), &value, 0);
            let object = Object::new(record::kind_of(kind), &key, Bytes::Plain(&value), expiry_ms);
            let (keyspace, change) = (paged.leaves, Change::Put(object));
            self.stage(Staged { db: HIDDEN_DB, keyspace, hash, change, cause: Cause::Command });
        }
        if is_timed {
            self.stage_key_node(paged.leaves, object, place.key);
        }
        self.stage_root(place, kind, &paged.root, expiry.map_or(0, Deadline::raw));
        true
    }

    /// Makes the leaves that are found by hash, of the elements of `packed`.
    fn spread(&self, paged: &mut Paged, packed: Packed<'_>, leaves: &mut BTreeMap<u32, Leaf>) {
        let leaf_bytes = self.store.options.leaf_bytes;
        let count = packed.bytes_up_to(leaf_bytes).div_ceil(leaf_bytes).min(packed.len() as u64);
        let count = count.clamp(1, LEAVES_MAX.into()) as u32;
        paged.root.leaves = count;
        let mut elements = vec![Vec::new(); count as usize];
        for at in 0..packed.len() {
            elements[paged.root.leaf_of(self.store.hasher.hash(packed.element(at).0).0) as usize].push(at);
        }
        for (number, elements) in (0..).zip(elements) {
            let part = match paged.kind {
                ValueKind::SortedSet => scores(packed, &elements),
                _ => collections::select(packed, Form::Table, &elements),
            };
            paged.root.bytes += part.len() as u64;
            leaves.insert(number, Leaf::whole(paged, part));
        }
    }

    /// Renames the collection at `from` to `to`, in place of what is there, if it is paged; returns whether it is. Its leaves stay.
    ///
    /// # Errors
    /// As [`Access::meta`].
    pub fn rename_paged(&mut self, db: u16, from: &[u8], to: &[u8]) -> Result<bool, Stop> {
        let (paged, places) = (self.paged_to_change(db, from)?, (self.place(db, from), self.place(db, to)));
        let (Some(paged), (Some(source), Some(target))) = (paged, places) else { return Ok(false) };
        if from == to || self.refuses_size(to, ROOT_BYTES_MAX) {
            return Ok(true);
        }
        if paged.root.is_timed {
            self.reach_node(&paged, KEY_NODE)?;
            self.stage_key_node(paged.leaves, paged.root.object, to);
        }
        self.stage_removal(source);
        self.forget_leaves(&target);
        self.stage_root(target, paged.kind, &paged.root, paged.expiry_ms());
        Ok(true)
    }

    /// Copies the collection at `from` to `to`, in place of what is there, if it is paged; returns whether it is. Nodes are copied as they are.
    ///
    /// # Errors
    /// As [`Access::get`].
    pub fn copy_paged(
        &mut self,
        (from_db, from): (u16, &[u8]),
        (to_db, to): (u16, &[u8]),
    ) -> Result<bool, Stop> {
        let paged = if self.keeps_to_workspace { None } else { self.paged(from_db, from)? };
        // where fields have deadlines, some may be gone
        let (Some(paged), Some(target)) = (paged.filter(|paged| !paged.root.is_timed), self.place(to_db, to))
        else {
            return Ok(false);
        };
        if self.refuses_size(to, ROOT_BYTES_MAX) {
            return Ok(true);
        }
        let root = Root { object: self.store.objects.next(target.hash.stripe()), ..paged.root };
        let leaves = leaves_of(target.keyspace);
        self.charge(usize::try_from(root.nodes()).unwrap_or(usize::MAX).saturating_mul(NODE_COPY_EFFORT))?;
        // they are staged when all of them are there
        self.ask(root.all_bytes())?;
        let (mut copies, mut is_cold) = (Vec::new(), false);
        let nodes = slices(0..root.leaves)
            .chain(slices(0..root.numbered()).map(|numbers| numbers.start | NODE..numbers.end | NODE));
        for numbers in nodes {
            let slice = Slice::of(self);
            for number in numbers {
                match self.copied_node(&slice, &paged, (leaves, root.object), number) {
                    Err(Stop::Cold) => is_cold = true,
                    copy => copies.push(copy?),
                }
            }
        }
        if is_cold {
            return Err(Stop::Cold);
        }
        self.give_back(root.all_bytes());
        self.forget_leaves(&target);
        copies.into_iter().for_each(|staged| self.stage(staged));
        self.stage_root(target, paged.kind, &root, paged.expiry_ms());
        Ok(true)
    }

    /// Node `number` as it will be of another object.
    fn copied_node(
        &self,
        slice: &Slice<'_, '_>,
        paged: &Paged,
        (leaves, object): (Keyspace, u64),
        number: u32,
    ) -> Result<Staged, Stop> {
        let place = self.reach_node(paged, number)?;
        let state = match slice.lookup((paged.leaves, place.1), &place.0) {
            Ok(Some(state)) => state,
            Ok(None) => return Err(damaged(paged, &format!("node {number} is not there"))),
            Err(Stop::Cold) => {
                return Err(self.miss_node(paged, place, self.guards.is_beside(place.1.stripe())));
            }
            Err(stop) => return Err(stop),
        };
        self.check_value(&state)?;
        let key = leaf_key(object, number);
        let hash = self.store.hasher.hash_in(leaves, &key);
        let change = Change::Put(Object::new(state.kind, &key, state.value, 0));
        Ok(Staged { db: HIDDEN_DB, keyspace: leaves, hash, change, cause: Cause::Command })
    }

    fn stage_root(&mut self, place: KeyPlace<'_>, kind: ValueKind, root: &Root, expiry_ms: u64) {
        self.store.has_roots.store(true, Ordering::Relaxed);
        let staged = self.root_change(place, kind, root, expiry_ms);
        self.stage(staged);
    }

    /// The change that puts `root` at `place`.
    pub(super) fn root_change(
        &self,
        place: KeyPlace<'_>,
        kind: ValueKind,
        root: &Root,
        expiry_ms: u64,
    ) -> Staged {
        let kind = record::paged_kind_of(kind).expect("only such types are paged");
        let object = Object::new(kind, place.key, Bytes::Plain(&root.encode()), expiry_ms);
        let KeyPlace { db, keyspace, hash, .. } = place;
        Staged { db, keyspace, hash, change: Change::Put(object), cause: Cause::Command }
    }

    /// Forgets the leaves that this access has staged for what it has staged at `place`, and now replaces.
    pub(super) fn forget_leaves(&mut self, place: &KeyPlace<'_>) {
        if self.overlay.len() == 0 {
            return;
        }
        self.settle_counts();
        let staged = self.overlay.find(place.keyspace, place.hash, place.key);
        let Some(root) = staged.and_then(Staged::root) else { return };
        let leaves = leaves_of(place.keyspace);
        let is_leaf = |staged: &Staged| {
            staged.keyspace == leaves && object_of(staged.object().view().key()) == Some(root.object)
        };
        self.overlay.retain(|staged| !is_leaf(staged));
    }

    /// Stages a note for each paged collection that this group removes or replaces: its leaves are to go.
    pub(super) fn stage_notes(&mut self) -> Result<(), Stop> {
        if !self.store.has_roots.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut notes = self.roots_replaced(0)?;
        if notes.is_empty() {
            return Ok(());
        }
        let stay: HashSet<u64> =
            self.overlay.iter().filter_map(Staged::root).map(|root| root.object).collect();
        notes.retain(|(_, _, root)| !stay.contains(&root.object));
        for (stripe, leaves, root) in notes {
            let key = note_key(stripe, root.object, leaves);
            let hash = self.store.hasher.hash_in(SWEPT_KEYSPACE, &key);
            let value = note_value(&root);
            let change = Change::Put(Object::new(record::STRING, &key, Bytes::Plain(&value), 0));
            self.stage(Staged { db: HIDDEN_DB, keyspace: SWEPT_KEYSPACE, hash, change, cause: Cause::Swept });
        }
        Ok(())
    }

    /// The roots that are there and that changes remove or replace, each with the stripe of its key and the keyspace of its leaves.
    fn roots_replaced(&mut self, attempts: u32) -> Result<Vec<(usize, Keyspace, Root)>, Stop> {
        let (mut roots, mut is_cold) = (Vec::new(), false);
        for at in 0..self.overlay.len() {
            let Staged { keyspace, hash, .. } = *self.overlay.get(at);
            if is_own(keyspace) || is_leaves(keyspace) {
                continue;
            }
            self.turn_to_change(at);
            match self.root_replaced_by(at) {
                Err(Stop::Cold) => is_cold = true,
                root => roots.extend(root?.map(|root| (hash.stripe(), leaves_of(keyspace), root))),
            }
        }
        // where keys are not claimed all that is cold is missed together, when the changes are planned
        if !is_cold || self.claim.is_none() {
            return Ok(roots);
        }
        if attempts == PLANS_MAX {
            return Err(Stop::Cold);
        }
        self.read_missed(&[]);
        self.roots_replaced(attempts + 1)
    }

    /// The root that is there and that change number `at` removes or replaces.
    fn root_replaced_by(&self, at: usize) -> Result<Option<Root>, Stop> {
        let staged = self.overlay.get(at);
        let stripe = self.guards.stripe(staged.hash.stripe())?;
        let key = staged.object().view().key();
        match stripe.seek(staged.keyspace, staged.hash, key, self.prepared()) {
            Seek::At { current, .. } => Ok(root_of(current)),
            Seek::Unknown(records) => Err(self.miss(records)),
            Seek::Absent { .. } | Seek::Damaged { .. } => Ok(None),
        }
    }
}

impl Changed {
    /// None yet.
    fn of(paged: &Paged) -> Self {
        let (leaves, within, counts) = (BTreeMap::new(), LeafChanges::new(), Counts::new());
        Self { root: paged.root, leaves, within, counts }
    }

    /// Adds what has become of the tree.
    pub(super) fn with_tree(&mut self, paged: &Paged, tree: TreeEdit<'_, '_>) -> Result<(), Stop> {
        let (now, count) = tree.now();
        if count != self.root.count {
            return Err(damaged(paged, "its leaves and its nodes have other members"));
        }
        let (nodes, counts, within) = tree.end();
        self.root.tree = Some(now);
        self.leaves.extend(nodes);
        self.within.extend(within);
        self.counts = counts;
        Ok(())
    }

    /// Whether nothing has changed.
    pub(super) fn is_none(&self) -> bool {
        self.leaves.is_empty() && self.within.is_empty()
    }

    /// What its leaves take in memory until they are staged.
    pub(super) fn bytes(&self) -> u64 {
        self.leaves.values().map(Leaf::bytes).chain(self.within.iter().map(LeafChange::bytes)).sum()
    }

    /// Whether a leaf has changed and is to be there.
    fn has_value(&self, number: u32) -> bool {
        let within = || self.within.iter().any(|leaf| leaf.number == number);
        self.leaves.get(&number).map_or_else(within, |leaf| leaf.value().is_some())
    }

    /// Lets leaf `number` become that, whatever it was to be.
    fn put(&mut self, number: u32, leaf: Leaf) {
        self.within.retain(|within| within.number != number);
        self.leaves.insert(number, leaf);
    }

    /// Counts that a leaf had so many elements and bytes, and has others.
    fn count(&mut self, (len_before, bytes_before): (usize, u64), (len, bytes): (usize, u64)) {
        // where a part of the log is lost there may be less than is counted
        self.root.count = (self.root.count + len as u64).saturating_sub(len_before as u64);
        self.root.bytes = (self.root.bytes + bytes).saturating_sub(bytes_before);
    }
}

/// How many leaves a collection has at least, and at most, by the bytes of all of them: never more than elements.
fn leaves_by_bytes(root: &Root, leaf_bytes: u64) -> (u32, u32) {
    let (least, most) = (root.bytes / 5 * 4 / leaf_bytes, root.bytes.saturating_mul(3) / leaf_bytes);
    (leaf_count(least.min(root.count)), leaf_count(most.min(root.count)))
}

fn leaf_count(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(LEAVES_MAX).clamp(1, LEAVES_MAX)
}

/// Bytes up to which a leaf is not split.
fn room_bytes(leaf_bytes: u64) -> u64 {
    leaf_bytes + leaf_bytes / 2
}

/// The members of a sorted set that have these numbers, with their scores, as a map.
fn scores(set: Packed<'_>, numbers: &[usize]) -> Vec<u8> {
    let mut map = Edit::new(Packed::empty(Shape::Map));
    for at in numbers {
        let (member, score) = set.element(*at);
        map.put(set.tag(*at), member, score);
    }
    map.encode()
}

pub(super) fn paged_of(state: &State<'_>, keyspace: Keyspace) -> Option<Paged> {
    let root = record::root_of(state.kind, state.value.slice())?;
    let expiry = Deadline::of(state.expiry_ms);
    let (spot, takes_totals) = (state.spot, takes_totals(state.seq, state.deltas.len()));
    Some(Paged {
        leaves: leaves_of(keyspace),
        kind: ValueKind::of(state.kind),
        root,
        expiry,
        spot,
        takes_totals,
    })
}

fn root_of(current: Current<'_>) -> Option<Root> {
    record::root_of(current.kind(), current.value().slice())
}

/// A node that is copied takes about as long as so many elements.
const NODE_COPY_EFFORT: usize = 4;
/// Leaves that one change puts together beside those that it changes.
const MERGED_MAX: u32 = 64;
/// So many values are always read and kept.
const READ_ANYWAY: u64 = 2;
/// Fewer lookups are not fetched ahead.
const AHEAD_LEAVES_MIN: usize = 4;

/// Leaves that are drawn for each that is to have elements.
const SAMPLES_MAX: usize = 64;
