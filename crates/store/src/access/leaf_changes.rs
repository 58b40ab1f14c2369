//! What a change makes of the leaves of a paged collection: new ones, none, or the same ones overwritten; split where they are full, and put together
//! where they hold little.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use crate::error::{Stop, StoreError};
use crate::large::{Bytes, LARGE_BYTES};
use crate::object::Object;
use crate::record;
use crate::value::ValueKind;
use collections::root::{LEAF_KEY_BYTES, LEAVES_MAX, Root, leaf_of};
use collections::{Edit, Form, Packed};

use super::counts::Counts;
use super::editing::Editing;
use super::here::Slice;
use super::nodes::{Buffer, Leaf, LeafChange, LeafChanges, LeafValue, NodePlace, Paged, Patched, damaged};
use super::overlay::{Cause, Change, Small, Staged};
use super::tree_edit::TreeEdit;
use super::{Access, KeyPlace, State};

/// What a change makes of leaves.
pub(super) struct Changed {
    pub(super) root: Root,
    pub(super) leaves: BTreeMap<u32, Leaf>,
    /// Leaves that are not among these, above which nothing changes but counts.
    pub(super) within: LeafChanges,
    /// What nodes count that are not among these.
    pub(super) counts: Counts,
}

impl Access<'_> {
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
        db: u16,
        key: &[u8],
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
            return self.stage_leaves(db, key, paged, changed).map(|()| done);
        };
        let Some(place) = self.place(db, key) else { return Ok(done) };
        let leaf =
            self.leaf_change::<Edit<'static>>(number, paged.hashed_kind(), leaf_place, &state, edit, bytes);
        self.stage_within(place, paged, &root, LeafChanges::from_iter([leaf]), Counts::new())?;
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
        number: u32,
        kind: ValueKind,
        place: NodePlace,
        state: &State<'_>,
        edit: E::Of<'_>,
        bytes: usize,
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
        let is_delta = state.header_expiry.is_none() && self.takes_change(state, record_bytes);
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
        let before = self.lookup_there(&self.copied, paged.key_place(&leaf.place))?;
        let before = before.expect("it was looked up under the same lock");
        let whole = Buffer::filled(patched.len, |value| {
            value.copy_from_slice(before.value.slice());
            patched.write(&leaf.operations, value);
        });
        Ok(patched.whole.get_or_init(|| whole))
    }

    /// A leaf of `paged` as a change of its own.
    pub(super) fn leaf_staged(&self, paged: &Paged, leaf: &LeafChange) -> Result<Staged, Stop> {
        let object = Object::new(leaf.kind, &leaf.place.0, Bytes::Plain(self.leaf_value(paged, leaf)?), None);
        let operations = leaf.is_delta.then(|| leaf.operations.clone());
        let delta = operations.map(|operations| Small::Elements { operations, retimes: false });
        let KeyPlace { db, keyspace, hash, .. } = paged.key_place(&leaf.place);
        Ok(Staged { db, keyspace, hash, change: Change::of(object, delta), cause: Cause::Command })
    }

    /// The value that a leaf or node will have by these changes, if it is among them and is to be there.
    pub(super) fn changed_value<'c>(
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
                changed.count(edit.len_before(), state.value_len, edit.len(), bytes as u64);
                let leaf = self.leaf_change::<Edit<'static>>(
                    number,
                    paged.hashed_kind(),
                    place,
                    &state,
                    edit,
                    bytes,
                );
                log_bytes += if leaf.is_delta { leaf.operations.len() } else { bytes } as u64;
                changed.within.push(leaf);
            } else {
                let leaf = self.leaf_by(paged, state.value.slice(), &edit)?;
                let value = leaf.value().expect("it stays");
                let len = Packed::new(paged.hashed_shape(), value).len();
                changed.count(edit.len_before(), state.value_len, len, value.len() as u64);
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
    fn count(&mut self, len_before: usize, bytes_before: u64, len: usize, bytes: u64) {
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

/// Leaves that one change puts together beside those that it changes.
const MERGED_MAX: u32 = 64;
