//! Roots and leaves of paged collections on their way into the log: changed, moved with their key, copied, and noted for those that sweep them.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;

use journal::Keyspace;

use crate::error::{Stop, StoreError};
use crate::index::stripe::{Current, Seek};
use crate::keyspaces::{HIDDEN_DB, SWEPT_KEYSPACE, is_leaves, is_own, leaves_of};
use crate::large::Bytes;
use crate::object::Object;
use crate::record;
use crate::sweep::waiting::{note_key, note_value};
use crate::value::ValueKind;
use collections::root::{KEY_NODE, LEAVES_MAX, ROOT_BYTES_MAX, Root, leaf_key, object_of};
use collections::tree::NODE;
use collections::{Deadline, Edit, Form, Packed, Shape};

use super::commit::PLANS_MAX;
use super::here::{Slice, slices};
use super::leaf_changes::Changed;
use super::nodes::{Leaf, Paged, damaged};
use super::overlay::{Cause, Change, Content, Staged};
use super::purged::next_deadline;
use super::tree_edit::TreeEdit;
use super::{Access, KeyPlace};
use crate::KeyRef;

impl Access<'_> {
    /// Stages what has become of leaves and root.
    pub(super) fn stage_leaves(
        &mut self,
        db: u16,
        key: &[u8],
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
        let expiry = paged.expiry;
        if root.has_one_leaf() && root.all_bytes() < self.store.options.leaf_bytes / 2 {
            let number = root.tree.map_or(0, |tree| tree.top | NODE);
            let value = match self.changed_value(paged, &leaves, &within, number)? {
                Some(value) => value.to_vec(),
                None => self.node(paged, number, paged.kind)?.to_vec(),
            };
            self.stage_value(place, record::kind_of(paged.kind), &value, expiry);
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
                    let content = Content { kind, value: &value, expiry: None };
                    self.stage_changed(paged.key_place(&place()), content, Cause::Command, operations)?;
                }
                Leaf::Gone => {
                    let place = place();
                    self.stage_removal(paged.key_place(&place));
                }
            }
        }
        if is_beside {
            return self.stage_beside(place, paged, &root, within);
        }
        self.stage_within(place, paged, &root, within, counts)
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
        self.stage_root(place, paged.kind, root, paged.expiry);
        Ok(())
    }

    /// Stages that a collection has changed whose root has not: who watches its key is told, and nothing is logged of it.
    pub(super) fn stage_touch(&mut self, place: KeyPlace<'_>) -> Result<(), Stop> {
        let KeyPlace { db, keyspace, hash, key } = place;
        let stripe = self.at_stripe(hash.stripe())?;
        // where the stripe stays locked nobody begins to watch before the commit
        let is_watched = stripe.watches.is_any() || self.reads_here() || self.tells_changes();
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
    pub(super) fn stage_paged(&mut self, place: KeyPlace<'_>, content: Content<'_>) -> bool {
        let Content { kind, value, expiry } = content;
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
            let expiry = next_deadline(self.now, record::kind_of(kind), &value, None);
            let object = Object::new(record::kind_of(kind), &key, Bytes::Plain(&value), expiry);
            let (keyspace, change) = (paged.leaves, Change::Put(object));
            self.stage(Staged { db: HIDDEN_DB, keyspace, hash, change, cause: Cause::Command });
        }
        if is_timed {
            self.stage_key_node(paged.leaves, object, place.key);
        }
        self.stage_root(place, kind, &paged.root, expiry);
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
        self.stage_root(target, paged.kind, &paged.root, paged.expiry);
        Ok(true)
    }

    /// Copies the collection at `from` to `to`, in place of what is there, if it is paged; returns whether it is. Nodes are copied as they are.
    ///
    /// # Errors
    /// As [`Access::get`].
    pub fn copy_paged(&mut self, from: KeyRef<'_>, to: KeyRef<'_>) -> Result<bool, Stop> {
        let paged = if self.keeps_to_workspace { None } else { self.paged(from.db, from.key)? };
        // where fields have deadlines, some may be gone
        let (Some(paged), Some(target)) =
            (paged.filter(|paged| !paged.root.is_timed), self.place(to.db, to.key))
        else {
            return Ok(false);
        };
        if self.refuses_size(to.key, ROOT_BYTES_MAX) {
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
                match self.copied_node(&slice, &paged, leaves, root.object, number) {
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
        self.stage_root(target, paged.kind, &root, paged.expiry);
        Ok(true)
    }

    /// Node `number` as it will be of another object.
    fn copied_node(
        &self,
        slice: &Slice<'_, '_>,
        paged: &Paged,
        leaves: Keyspace,
        object: u64,
        number: u32,
    ) -> Result<Staged, Stop> {
        let place = self.reach_node(paged, number)?;
        let state = match slice.lookup(paged.key_place(&place)) {
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
        let change = Change::Put(Object::new(state.kind, &key, state.value, None));
        Ok(Staged { db: HIDDEN_DB, keyspace: leaves, hash, change, cause: Cause::Command })
    }

    fn stage_root(&mut self, place: KeyPlace<'_>, kind: ValueKind, root: &Root, expiry: Option<Deadline>) {
        self.store.has_roots.store(true, Ordering::Relaxed);
        let staged = self.root_change(place, kind, root, expiry);
        self.stage(staged);
    }

    /// The change that puts `root` at `place`.
    pub(super) fn root_change(
        &self,
        place: KeyPlace<'_>,
        kind: ValueKind,
        root: &Root,
        expiry: Option<Deadline>,
    ) -> Staged {
        let kind = record::paged_kind_of(kind).expect("only such types are paged");
        let object = Object::new(kind, place.key, Bytes::Plain(&root.encode()), expiry);
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
            let change = Change::Put(Object::new(record::STRING, &key, Bytes::Plain(&value), None));
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

/// The members of a sorted set that have these numbers, with their scores, as a map.
fn scores(set: Packed<'_>, numbers: &[usize]) -> Vec<u8> {
    let mut map = Edit::new(Packed::empty(Shape::Map));
    for at in numbers {
        let (member, score) = set.element(*at);
        map.put(set.tag(*at), member, score);
    }
    map.encode()
}

fn root_of(current: Current<'_>) -> Option<Root> {
    record::root_of(current.kind(), current.value().slice())
}

/// A node that is copied takes about as long as so many elements.
const NODE_COPY_EFFORT: usize = 4;
