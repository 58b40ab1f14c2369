//! Leaves, and what nodes and roots count, overwritten in place.
//!
//! The usual change of a large collection leaves all above its leaves as it is but for what is counted there. Such a change stages nothing: it keeps here what the leaves
//! will be, and what the nodes and the root will count:
//!
//! ```text
//! LPUSH      leaf 7: its value, its operations | node 3, child 0: one more | node 9, child 2: one more | root: one more
//! commit     one record; leaf, nodes and root are overwritten where they were met
//! ```
//!
//! Invariants
//!   1. Until the commit all is as it was. Who looks one of them up in this access finds it as it will be.
//!   2. What is staged after that first [stages](Access::settle_counts) leaves, nodes and root as changes of their own, and so does a commit that finds anything not as usual. What was
//!      staged before are leaves of the same change that were split, and its root ([`Access::stage_beside`]).
//!   3. A slot that was met holds until the commit: its stripe stays locked, and nothing else of the group is applied before.

use std::cell::OnceCell;

use collections::root::Root;
use collections::tree::Recount;
use collections::{Packed, Shape};
use journal::{Keyspace, LogAddress, Seq};
use smallvec::SmallVec;

use super::Access;
use super::apply::Appended;
use super::commit::{class_of, secure};
use super::counts::{CHILDREN_FEW, Count, Counted, Counts, LEAVES_MAX, NODES_FEW};
use super::gathered::Gathered;
use super::joined::PART_BYTES_MAX;
use super::nodes::{Leaf, LeafChange, LeafChanges, LeafValue, Paged, damaged};
use super::overlay::{Cause, Change, KeyPlace, Small, Staged};
use super::state::State;
use crate::engine::Engine;
use crate::error::Stop;
use crate::hash::KeyHash;
use crate::index::delta::Delta;
use crate::index::stripe::{Current, Space};
use crate::index::table::Spot;
use crate::keyspaces::is_own;
use crate::object::{Object, WORD_DELTAS, Word};
use crate::policy;
use crate::record::{self, Draft, PartsEncoder};

/// Children of nodes, one node after the other, as they will be.
type Children = SmallVec<[Recount; 2 * NODES_FEW]>;

/// What is overwritten, where all of it was found as it was met.
pub(super) struct Within<'s> {
    counted: Box<Counted<'s>>,
    children: Children,
    encoder: PartsEncoder,
    /// By how much leaves grow in memory.
    pub(super) grown: i64,
}

impl Within<'_> {
    /// The record.
    pub(super) fn draft(&self) -> Draft<'_> {
        Draft::of_object(record::CHANGES, self.counted.paged.leaves, &self.encoder.payload)
    }
}

impl<'s> Access<'s> {
    /// Stages leaves that have changed within, and what nodes, by `counts`, and the root at `place` will count.
    pub(super) fn stage_within(
        &mut self,
        place: KeyPlace<'_>,
        paged: &Paged,
        root: &Root,
        leaves: LeafChanges,
        counts: Counts,
    ) -> Result<(), Stop> {
        if self.overlay.is_untouched()
            && let Some(key) = self.may_overwrite(&place, paged, root, &leaves, &counts)
        {
            self.keep_within(place, key, *paged, *root, leaves, counts);
            return Ok(());
        }
        for leaf in &leaves {
            let staged = self.leaf_staged(paged, leaf)?;
            self.stage(staged);
        }
        for count in &counts {
            let staged = self.counted_node(paged, count)?;
            self.stage(staged);
        }
        self.stage_changed_root(place, paged, root)
    }

    /// The same of leaves beside others that were split, which alone are staged.
    pub(super) fn stage_beside(
        &mut self,
        place: KeyPlace<'_>,
        paged: &Paged,
        root: &Root,
        leaves: LeafChanges,
    ) -> Result<(), Stop> {
        let counts = Counts::new();
        let key = self.may_overwrite(&place, paged, &paged.root, &leaves, &counts);
        let Some(key) = key.filter(|_| *root != paged.root) else {
            return self.stage_within(place, paged, root, leaves, counts);
        };
        self.stage_changed_root(place, paged, root)?;
        self.keep_within(place, key, *paged, paged.root, leaves, counts);
        Ok(())
    }

    /// Keeps what is overwritten at the commit.
    fn keep_within(
        &mut self,
        place: KeyPlace<'_>,
        key: &'s [u8],
        paged: Paged,
        root: Root,
        leaves: LeafChanges,
        nodes: Counts,
    ) {
        let (KeyPlace { db, keyspace, hash, .. }, whole) = (place, OnceCell::new());
        self.effort.note(leaves.len());
        self.gathered = Gathered::default();
        let counted = Counted { db, keyspace, hash, key, paged, root, leaves, nodes, whole };
        self.counted = Some(Box::new(counted));
    }

    /// The key at `place` if what is there may be overwritten at the commit, as far as is known before.
    fn may_overwrite(
        &self,
        place: &KeyPlace<'_>,
        paged: &Paged,
        root: &Root,
        leaves: &LeafChanges,
        counts: &Counts,
    ) -> Option<&'s [u8]> {
        let engine = &self.store.engine;
        let is_logged = engine.takes_parts();
        let is_plain = self.counted.is_none()
            && self.claim.is_none()
            && !self.reads_here()
            && !self.keeps_to_workspace
            && self.settles.is_none()
            && self.purged.is_empty()
            && self.late.is_none()
            && !self.prepared.has_records()
            && (is_logged || !engine.has_addresses());
        let is_usual = paged.expiry.is_none()
            && !paged.root.is_timed
            && !is_own(place.keyspace)
            && paged.root.is_same_but_for_totals(root)
            && (1..=LEAVES_MAX).contains(&leaves.len());
        let is_met = paged.spot.is_some()
            && (paged.takes_totals || !is_logged || paged.root == *root)
            && leaves.iter().all(|leaf| leaf.spot.is_some() && (leaf.is_delta || !is_logged))
            && leaves.iter().all(|leaf| leaf.operations.len() <= PART_BYTES_MAX)
            && counts.iter().all(|count| count.spot.is_some() && (count.takes || !is_logged));
        self.only.map(|(key, _)| key).filter(|key| is_plain && is_usual && is_met && *key == place.key)
    }

    /// What is staged here of a node or the root that is looked up.
    pub(super) fn find_counted(
        &self,
        keyspace: Keyspace,
        hash: KeyHash,
        key: &[u8],
    ) -> Result<Option<&Staged>, Stop> {
        let Some(counted) = &self.counted else { return Ok(None) };
        let Some(number) = counted.number_of(keyspace, hash, key) else { return Ok(None) };
        let cells = counted.whole.get_or_init(|| (0..counted.len()).map(|_| OnceCell::new()).collect());
        if cells[number].get().is_none() {
            let staged = self.counted_change(counted, number)?;
            // nobody else has set it
            _ = cells[number].set(staged);
        }
        Ok(cells[number].get())
    }

    /// Stages leaves, nodes and root as changes of their own.
    #[cold]
    pub(super) fn settle_counts(&mut self) {
        let Some(counted) = self.counted.take() else { return };
        if !counted.changes_root() {
            let touched = self.stage_touch(counted.place());
            touched.unwrap_or_else(|stop| _ = self.stopped.get_or_insert(stop));
        }
        for number in 0..counted.len() {
            match self.counted_change(&counted, number) {
                Ok(staged) => self.stage(staged),
                Err(stop) => _ = self.stopped.get_or_insert(stop),
            }
        }
    }

    /// Leaf, node or root `number` as a change of its own.
    fn counted_change(&self, counted: &Counted<'_>, number: usize) -> Result<Staged, Stop> {
        let Counted { paged, root, leaves, nodes, .. } = counted;
        if let Some(leaf) = leaves.get(number) {
            return self.leaf_staged(paged, leaf);
        }
        match nodes.get(number - leaves.len()) {
            Some(count) => self.counted_node(paged, count),
            None => Ok(self.root_change(counted.place(), paged.kind, root, paged.expiry)),
        }
    }

    /// A node of `paged` with another count, as a change of its own.
    fn counted_node(&self, paged: &Paged, count: &Count) -> Result<Staged, Stop> {
        let state = self.lookup_there(&self.copied, paged.key_place(&count.place))?;
        let state = state.expect("it was looked up under the same lock");
        let value = state.value.slice();
        let staged = self.recounted(paged, &state, value, count, None);
        // from now on it is counted as an effect
        self.give_back(value.len() as u64);
        staged
    }

    /// A node, which is `state` with this value, with another count, as a change of its own; `before`: what a change of several leaves has made of it.
    pub(super) fn recounted(
        &self,
        paged: &Paged,
        state: &State<'_>,
        value: &[u8],
        count: &Count,
        before: Option<&Leaf>,
    ) -> Result<Staged, Stop> {
        let list = Packed::new(Shape::List, value);
        let mut recounts = SmallVec::<[Recount; CHILDREN_FEW]>::new();
        for (at, more) in &count.children {
            let recount = Recount::of(&list, *at, *more);
            recounts
                .push(recount.ok_or_else(|| damaged(paged, "an inner node has other bytes than children"))?);
        }
        self.ask(value.len() as u64)?;
        let mut operations = Vec::new();
        let (key, _) = &count.place;
        let object = Object::changed(record::LIST, key, value, None, |out| {
            for recount in &recounts {
                recount.write(out);
                operations.extend_from_slice(&recount.operation());
            }
        });
        let operations = match before {
            None => Some(operations),
            Some(before) => before.operations().map(|before| [before, &operations].concat()),
        };
        let delta = operations
            .filter(|operations| {
                let bytes = record::change_bytes(key.len(), operations.len());
                operations.len() < value.len() && self.takes_count(state, bytes)
            })
            .map(|operations| Small::Elements { operations, retimes: false });
        let KeyPlace { db, keyspace, hash, .. } = paged.key_place(&count.place);
        Ok(Staged { db, keyspace, hash, change: Change::of(object, delta), cause: Cause::Command })
    }

    /// Whether leaves are overwritten beside what is staged.
    pub(super) fn has_within(&self) -> bool {
        self.counted.is_some()
            && self.overlay.len() > 0
            && self.overlay.mapping().is_none()
            && self.claim.is_none()
            && self.purged.is_empty()
    }

    /// Takes out what is overwritten, if all of it is as it was met.
    pub(super) fn take_within(&mut self) -> Option<Within<'s>> {
        let counted = self.counted.take()?;
        let found = self.found(&counted).and_then(|children| {
            let encoder = self.encoded(&counted, &children)?;
            Some((children, encoder, self.grown_within(&counted)?))
        });
        let Some((children, encoder, grown)) = found else {
            self.counted = Some(counted);
            return None;
        };
        Some(Within { counted, children, encoder, grown })
    }

    /// Commits what is kept here, if all is as usual; nothing has happened if not: then it is staged as changes of its own.
    pub(super) fn commit_counted(&mut self) -> Option<Seq> {
        let within = self.take_within()?;
        let committed = self.append_within(&within);
        if committed.is_none() {
            self.counted = Some(within.counted);
        }
        committed
    }

    /// What becomes of the children of nodes, if all that is to be overwritten is in memory, and nobody reads or holds it as it is.
    fn found(&self, counted: &Counted<'_>) -> Option<Children> {
        let Counted { paged, keyspace, hash, key, leaves, nodes, .. } = counted;
        if self.store.snapshots.has(paged.root.object) {
            return None;
        }
        let stripe = self.guards.stripe(hash.stripe()).ok()?;
        stripe.space(*keyspace)?.met(paged.spot?, key).filter(|_| stripe.locks.is_none())?;
        // those of one collection are in one stripe
        let stripe = self.guards.stripe(leaves.first()?.place.1.stripe()).ok()?;
        let space = stripe.space(paged.leaves).filter(|_| stripe.locks.is_none())?;
        for leaf in leaves {
            space.met(leaf.spot?, &leaf.place.0)?;
        }
        let mut found = Children::new();
        for Count { place: (key, _), spot, children, .. } in nodes {
            let (_, object) = space.met((*spot)?, key)?;
            let list = Packed::new(Shape::List, object.value());
            for (at, more) in children {
                found.push(Recount::of(&list, *at, *more)?);
            }
        }
        Some(found)
    }

    /// Appends one record and applies it, if there is room for it.
    fn append_within(&mut self, within: &Within<'s>) -> Option<Seq> {
        let store = self.store;
        self.admit_grown(within.grown).ok()?;
        let draft = within.draft();
        let bytes = draft.record_bytes();
        if bytes > store.options.transaction_bytes_max {
            return None;
        }
        let (had, class) = (self.credits.take(), class_of(self.takes_reserve));
        let credits = secure(had, &*store.engine, bytes, 1, class).ok()?;
        let mut addresses = [LogAddress::default()];
        let seq = store.engine.append(credits, &[draft], &mut addresses);
        self.overwrite_within(within, Appended { address: addresses[0], seq, bytes });
        Some(seq)
    }

    /// By how much leaves grow in memory.
    fn grown_within(&self, counted: &Counted<'_>) -> Option<i64> {
        let stripe = self.guards.stripe(counted.leaves.first()?.place.1.stripe()).ok()?;
        let table = &stripe.space(counted.paged.leaves)?.table;
        let grown = |leaf: &LeafChange| {
            let before = table.word(leaf.spot?).object()?;
            Some(before.own_bytes_with(leaf.len()) as i64 - before.own_bytes() as i64)
        };
        counted.leaves.iter().map(grown).sum()
    }

    /// The parts of the record; none where nothing is logged.
    fn encoded(&self, counted: &Counted<'_>, children: &Children) -> Option<PartsEncoder> {
        let mut encoder = PartsEncoder::new(counted.paged.root.object);
        if !self.store.engine.takes_parts() {
            return Some(encoder);
        }
        let Counted { paged, leaves, nodes, .. } = counted;
        let stripe = self.guards.stripe(leaves.first()?.place.1.stripe()).ok()?;
        let table = &stripe.space(paged.leaves)?.table;
        let seq_at = |spot: Option<Spot>| Some(table.word(spot?).object()?.seq());
        let operations_bytes: usize = leaves.iter().map(|leaf| leaf.operations.len()).sum();
        let parts = leaves.len() + nodes.len() + children.len();
        encoder.payload.reserve(operations_bytes + parts * PART_HEAD_BYTES);
        for leaf in leaves {
            encoder.node(leaf.number, seq_at(leaf.spot)?, &leaf.operations);
        }
        let mut children = children.iter();
        for Count { number, spot, children: changed, .. } in nodes {
            let of_node = children.by_ref().take(changed.len());
            let operations: SmallVec<[u8; OPERATIONS_FEW]> = of_node.flat_map(Recount::operation).collect();
            encoder.node(*number, seq_at(*spot)?, &operations);
        }
        if counted.changes_root() {
            encoder.root(counted.hash.slot(), &counted.root.totals());
        }
        Some(encoder)
    }

    /// Overwrites leaves, nodes and root, whose change was `appended`.
    pub(super) fn overwrite_within(
        &mut self,
        Within { counted, children, .. }: &Within<'_>,
        appended: Appended,
    ) {
        let store = self.store;
        let Counted { db, key, paged, leaves, nodes, .. } = &**counted;
        let overwriting = Overwriting { engine: &*store.engine, appended };
        let number = leaves[0].place.1.stripe();
        let stripe = self.guards.stripe_mut(number).expect("found before");
        let space = stripe.space_mut(paged.leaves);
        let side_bytes = space.side_bytes();
        let mut grown = 0;
        for (at, leaf) in leaves.iter().enumerate() {
            // the first part counts the bytes of all
            let bytes = if at == 0 { appended.bytes } else { 0 };
            let spot = leaf.spot.expect("found before");
            grown += overwriting.change(space, spot, record::CHANGE, bytes, |word, seq| match &leaf.value {
                LeafValue::Whole(value) => word.rewrite(seq, value),
                LeafValue::Patched(patched) => {
                    word.overwrite(seq, |value| patched.write(&leaf.operations, value));
                }
            });
        }
        let mut children = children.iter();
        for Count { spot, children: changed, .. } in nodes {
            let of_node = children.by_ref().take(changed.len());
            let spot = spot.expect("found before");
            overwriting.change(space, spot, record::CHANGE, 0, |word, seq| {
                word.overwrite(seq, |value| of_node.for_each(|it| it.write(value)));
            });
        }
        grown += space.side_bytes() - side_bytes;
        stripe.unreported_bytes += grown;
        store.index.account(stripe.take_unreported());
        let stripe = self.guards.stripe_mut(counted.hash.stripe()).expect("found before");
        if stripe.watches.touch(*db, key, appended.seq, false) {
            store.changed.note(*db, key);
        }
        if self.tells_changes() {
            self.tell_key(key);
        }
        let stripe = self.guards.stripe_mut(counted.hash.stripe()).expect("found before");
        if counted.changes_root() {
            let space = stripe.space_mut(counted.keyspace);
            let side_bytes = space.side_bytes();
            let spot = paged.spot.expect("found before");
            overwriting.change(space, spot, record::TOTALS, 0, |word, seq| {
                word.overwrite(seq, |value| value.copy_from_slice(&counted.root.encode()));
            });
            stripe.unreported_bytes += space.side_bytes() - side_bytes;
        }
        store.index.account(stripe.take_unreported());
        // when no spot is used any more
        for number in [number, counted.hash.stripe()] {
            self.guards.stripe_mut(number).expect("found before").sweep_pending(store.engine.released());
        }
    }
}

/// What overwrites values in memory, by one record.
struct Overwriting<'e> {
    engine: &'e dyn Engine,
    appended: Appended,
}

impl Overwriting<'_> {
    /// Lets `write` overwrite the hot value at `spot`; in the log that is a delta of this kind, whose record counts `bytes`. Returns by how many bytes its object grew.
    fn change(
        &self,
        space: &mut Space,
        spot: Spot,
        kind: u8,
        bytes: u64,
        write: impl FnOnce(&mut Word, Seq),
    ) -> i64 {
        let Appended { address, seq, .. } = self.appended;
        let word = space.table.word_mut(spot);
        let old = word.object().expect("found before");
        let (base, base_bytes) = (old.address(), Current::Hot(old).record_bytes());
        let (old_seq, own_bytes) = (old.seq(), old.own_bytes());
        write(word, seq);
        word.set_level(policy::rewritten(word.level()));
        let grown = word.object().expect("it stays").own_bytes() as i64 - own_bytes as i64;
        if self.engine.takes_parts() {
            word.set_mark(WORD_DELTAS);
            let since = if kind == record::TOTALS { record::SINCE_TOTALS } else { old_seq };
            let delta = Delta { address, seq, since, kind, record_bytes: bytes as u32, expiry: None };
            if bytes > 0 {
                self.engine.on_live(address, bytes);
            }
            space.push_delta(base, base_bytes, delta, self.engine);
        }
        space.hot_bytes += grown;
        grown
    }
}

/// Bytes of operations on a node for which nothing is put on the heap: those of a few counts.
const OPERATIONS_FEW: usize = 32;
/// About the bytes of a part of a record beside its operations, and of the operation of a child.
const PART_HEAD_BYTES: usize = 32;
