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

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::ops::Range;

use journal::Keyspace;
use smallvec::SmallVec;

use crate::error::{Stop, StoreError};
use crate::hash::KeyHash;
use crate::index::ahead::{self, AHEAD_KEYS_MAX};
use crate::keyspaces::leaves_of;
use crate::large::Bytes;
use crate::prepared::WantedLeaf;
use crate::record;
use crate::value::ValueKind;
use collections::root::{PLACES, Root, bits_of, leaf_key};
use collections::{Deadline, Element, Form, Packed, Shape};

use super::copied::Copied;
use super::joined::takes_totals;
use super::leaf_changes::Changed;
use super::nodes::{NodePlace, Paged, damaged};
use super::tree_edit::TreeEdit;
use super::{Access, State, WrongType};

/// The value of each element that was asked for.
type Values<'a> = EachOf<&'a [u8]>;

/// When each field ends that was asked for, if it does.
type Deadlines = EachOf<Option<Deadline>>;

/// What is told of each element that was asked for, of those that are there.
type EachOf<T> = Vec<Option<T>>;

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
        self.each_of(db, key, kind, elements, |packed, at| packed.element(at).1)
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
        self.each_of(db, key, ValueKind::Hash, fields, |packed, at| packed.deadline(at))
    }

    /// What `tell` makes of each of these elements that is there.
    fn each_of<'a, 'e, T>(
        &'a self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
        elements: impl Iterator<Item = &'e [u8]>,
        tell: impl Fn(Packed<'a>, usize) -> T,
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
        let Some(paged) = self.paged_in(&state, db, key)? else {
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
        wanted: usize,
        dice: u64,
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
        from: u64,
        count: usize,
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
                self.edit_tree(db, key, &paged, |tree| tree.remove(from, count))?;
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
                self.stage_leaves(db, key, &paged, changed)?;
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
        let gone = self.rescore(db, key, keys, |_, _| Ok::<_, Infallible>(None))?;
        Ok(gone.map(|Ok(())| ()))
    }

    /// Lets `change` change the tree of what is paged at `key`, a list or a stream; returns how many elements there are then, too.
    pub(super) fn edit_tree<R>(
        &mut self,
        db: u16,
        key: &[u8],
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
            let count = Packed::new(Shape::List, &value).len() as u64;
            self.stage_value(place, record::LIST, &value, paged.expiry);
            return Ok((done, count));
        }
        let root = Root { count, tree: Some(now), ..paged.root };
        let changed = Changed { root, leaves, within, counts };
        if !changed.is_none() {
            self.stage_leaves(db, key, paged, changed)?;
        }
        Ok((done, count))
    }

    /// What is paged at `key`.
    pub(super) fn paged(&self, db: u16, key: &[u8]) -> Result<Option<Paged>, Stop> {
        match self.find(db, key)? {
            Some(state) => self.paged_in(&state, db, key),
            None => Ok(None),
        }
    }

    /// What is paged at `key`, for a command that changes its leaves: none in a workspace, which has keys, not leaves.
    pub(super) fn paged_to_change(&self, db: u16, key: &[u8]) -> Result<Option<Paged>, Stop> {
        if self.keeps_to_workspace { Ok(None) } else { self.paged(db, key) }
    }

    /// The collection in the state of `key`, put together; `None` if it is not paged.
    pub(super) fn gathered(&self, state: &State<'_>, db: u16, key: &[u8]) -> Result<Option<&[u8]>, Stop> {
        let Some(paged) = self.paged_in(state, db, key)? else { return Ok(None) };
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
    pub(super) fn leaf(&self, paged: &Paged, number: u32) -> Result<&[u8], Stop> {
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
        let place = self.reach_node(paged, number)?;
        match self.lookup_into(copied, paged.key_place(&place)) {
            Ok(Some(state)) if state.kind == record::kind_of(kind) => {
                self.check_value(&state)?;
                Ok((place, state))
            }
            Ok(_) => Err(damaged(paged, &format!("leaf {number} is not there"))),
            Err(Stop::Cold) => Err(self.miss_node(paged, place, self.guards.is_beside(place.1.stripe()))),
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

    pub(super) fn miss_node(&self, paged: &Paged, (key, hash): NodePlace, is_beside: bool) -> Stop {
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
}

pub(super) fn paged_of(state: &State<'_>, keyspace: Keyspace) -> Option<Paged> {
    let root = record::root_of(state.kind, state.value.slice())?;
    let expiry = state.expiry;
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

/// So many values are always read and kept.
const READ_ANYWAY: u64 = 2;
/// Fewer lookups are not fetched ahead.
const AHEAD_LEAVES_MIN: usize = 4;

/// Leaves that are drawn for each that is to have elements.
const SAMPLES_MAX: usize = 64;
