//! What nodes and roots count, overwritten in place.
//!
//! The usual change of a large collection leaves all above its leaf as it is but for what is counted there. Such a change stages the leaf, and keeps here what the
//! nodes and the root will count:
//!
//! ```text
//! LPUSH      overlay: leaf 7            counted: node 3, child 0: one more | node 9, child 2: one more | root: one more
//! commit     one record; leaf 7 gets its new object, and in nodes and root bytes are overwritten
//! ```
//!
//! Invariants
//!   1. Until the commit nodes and root are as they were. Who looks one up in this access finds it as it will be.
//!   2. Nothing is staged beside the leaves that came with it: what is staged after that first [stages](Access::settle_counts) nodes and root as changes
//!      of their own, and so does a commit that finds anything not as usual.

use std::cell::OnceCell;

use journal::{Keyspace, LogAddress, Seq};
use smallvec::SmallVec;

use crate::engine::Engine;
use crate::error::Stop;
use crate::hash::KeyHash;
use crate::index::delta::Delta;
use crate::index::stripe::{Current, Seek, Space, Stripe};
use crate::keyspaces::{HIDDEN_DB, is_own};
use crate::large::LARGE_BYTES;
use crate::object::{Object, ObjectRef, WORD_DELTAS};
use crate::packed::{Overwritten, Packed, Shape, overwrite, set_operation};
use crate::paged::{Root, split_leaf_key};
use crate::policy;
use crate::record::{self, Draft, PartsEncoder};
use crate::tree::{CHILD_BYTES_FEW, Child};

use super::commit::{Appended, class_of, secure};
use super::counts::{CHILDREN_FEW, Count, Counted, Counts, LEAVES_MAX, NODES_FEW};
use super::joined::{PART_BYTES_MAX, takes_totals};
use super::nodes::{Leaf, Paged, damaged};
use super::overlay::{Cause, Change, KeyPlace, Small, Staged};
use super::plan::{Old, Plan, draft};
use super::state::State;
use super::{Access, COUNTS_MAX};

/// What will be overwritten.
struct Found {
    nodes: SmallVec<[FoundNode; NODES_FEW]>,
    /// The root, where it counts anything else than before.
    root: Option<Old>,
}

/// A node that will be overwritten.
struct FoundNode {
    old: Old,
    children: SmallVec<[FoundChild; CHILDREN_FEW]>,
}

/// Child number `at` of a node, as it will be.
struct FoundChild {
    at: usize,
    place: Overwritten,
    child: SmallVec<[u8; CHILD_BYTES_FEW]>,
}

impl<'s> Access<'s> {
    /// Stages what nodes, by `counts`, and the root at `place` will count when leaves have changed, which are staged.
    pub(super) fn stage_counts(
        &mut self,
        place: KeyPlace<'_>,
        paged: &Paged,
        root: &Root,
        counts: Counts,
    ) -> Result<(), Stop> {
        if (*root != paged.root || !counts.is_empty())
            && let Some(key) = self.may_overwrite(&place, paged, root)
        {
            let (KeyPlace { db, keyspace, hash, .. }, root) = (place, *root);
            let whole = (0..=counts.len()).map(|_| OnceCell::new()).collect();
            let paged = *paged;
            let counted = Counted { db, keyspace, hash, key, paged, root, nodes: counts, whole };
            self.counted = Some(Box::new(counted));
            return Ok(());
        }
        for count in &counts {
            let staged = self.counted_node(paged, count)?;
            self.stage(staged);
        }
        self.stage_changed_root(place, paged, root)
    }

    /// The key at `place` if what is there may be overwritten at the commit, as far as is known before.
    fn may_overwrite(&self, place: &KeyPlace<'_>, paged: &Paged, root: &Root) -> Option<&'s [u8]> {
        let engine = &self.store.engine;
        let is_plain = self.counted.is_none()
            && self.overlay.len() <= LEAVES_MAX
            && self.overlay.is_plain()
            && self.claim.is_none()
            && !self.reads_here()
            && !self.keeps_to_workspace
            && self.settles.is_none()
            && self.purged.is_empty()
            && self.late.is_none()
            && !self.prepared.has_records()
            && (engine.takes_parts() || !engine.has_addresses());
        let is_usual = paged.expiry.is_none()
            && !paged.root.is_timed
            && !is_own(place.keyspace)
            && paged.root.is_same_but_for_totals(root);
        self.only.map(|(key, _)| key).filter(|key| is_plain && is_usual && *key == place.key)
    }

    /// What is staged here of a node or the root that is looked up.
    pub(super) fn find_counted(
        &self,
        (keyspace, hash): (Keyspace, KeyHash),
        key: &[u8],
    ) -> Result<Option<&Staged>, Stop> {
        let Some(counted) = &self.counted else { return Ok(None) };
        let Some(number) = counted.number_of((keyspace, hash), key) else { return Ok(None) };
        let cell = &counted.whole[number];
        if cell.get().is_none() {
            let staged = self.counted_change(counted, number)?;
            // nobody else has set it
            _ = cell.set(Box::new(staged));
        }
        Ok(cell.get().map(|staged| &**staged))
    }

    /// Stages nodes and root as changes of their own.
    #[cold]
    pub(super) fn settle_counts(&mut self) {
        let Some(mut counted) = self.counted.take() else { return };
        if counted.root == counted.paged.root {
            let touched = self.stage_touch(counted.place());
            touched.unwrap_or_else(|stop| _ = self.stopped.get_or_insert(stop));
        }
        for number in 0..counted.len() {
            let known = counted.whole[number].take();
            let staged = known.map_or_else(|| self.counted_change(&counted, number), |staged| Ok(*staged));
            match staged {
                Ok(staged) => self.stage(staged),
                Err(stop) => _ = self.stopped.get_or_insert(stop),
            }
        }
    }

    /// Node `number`, or behind them the root, as a change of its own.
    fn counted_change(&self, counted: &Counted<'_>, number: usize) -> Result<Staged, Stop> {
        match counted.nodes.get(number) {
            Some(count) => self.counted_node(&counted.paged, count),
            None => {
                let Counted { paged, root, .. } = counted;
                Ok(self.root_change(counted.place(), paged.kind, root, paged.expiry_ms()))
            }
        }
    }

    /// A node of `paged` with another count, as a change of its own.
    fn counted_node(&self, paged: &Paged, count: &Count) -> Result<Staged, Stop> {
        let (key, hash) = &count.place;
        let state = self.lookup_there(&self.copied, (paged.leaves, *hash), key, HIDDEN_DB)?;
        let state = state.expect("it was looked up under the same lock");
        let value = state.value.slice();
        let staged = self.recounted(paged, (&state, value), count, None);
        // from now on it is counted as an effect
        self.give_back(value.len() as u64);
        staged
    }

    /// A node, which is `state` with this value, with another count, as a change of its own; `before`: what a change of several leaves has made of it.
    pub(super) fn recounted(
        &self,
        paged: &Paged,
        (state, value): (&State<'_>, &[u8]),
        count: &Count,
        before: Option<&Leaf>,
    ) -> Result<Staged, Stop> {
        let list = Packed::new(Shape::List, value);
        let mut children = SmallVec::<[_; CHILDREN_FEW]>::new();
        for (at, more) in &count.children {
            let child = Child::recounted(list.element(*at).0, *more);
            children.push((
                *at,
                child.ok_or_else(|| damaged(paged, "an inner node has other bytes than children"))?,
            ));
        }
        self.ask(value.len() as u64)?;
        let mut operations = Vec::new();
        let (key, _) = &count.place;
        let object = Object::changed(record::LIST, key, (value, 0), |out| {
            for (at, child) in &children {
                operations.append(&mut overwrite(&list, out, *at, child));
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

    /// Commits what is staged with nodes and root overwritten, if all is as usual; nothing has happened if not: then they are staged as changes of their own.
    ///
    /// # Errors
    /// [`Stop::Cold`] as any commit.
    pub(super) fn commit_counted(&mut self) -> Result<Option<Seq>, Stop> {
        let plans = self.plans(0)?;
        let Some(counted) = self.counted.take() else { return Ok(None) };
        let found = if self.are_usual(&plans) { self.found(&counted) } else { None };
        let committed = found.and_then(|found| self.append_counted(&counted, &found, &plans));
        if committed.is_none() {
            self.counted = Some(counted);
        }
        Ok(committed)
    }

    /// Whether the leaves that are staged, which meet `plans`, are there before and after, and are logged by their operations where they are logged.
    fn are_usual(&self, plans: &[Plan]) -> bool {
        let is_logged = self.store.engine.takes_parts();
        self.overlay.iter().zip(plans).all(|(staged, plan)| {
            let is_there = plan.old.is_some_and(|old| !old.removed) && !plan.shared;
            let is_part = match &staged.change {
                Change::Delta { delta: Small::Elements { operations, retimes: false }, .. } => {
                    operations.len() <= PART_BYTES_MAX
                }
                Change::Put(_) => !is_logged,
                _ => false,
            };
            is_there && is_part
        })
    }

    /// Where nodes and root are, if each is in memory, nobody reads or holds it as it is, and it may have one more change on its record.
    fn found(&self, counted: &Counted<'_>) -> Option<Found> {
        let Counted { paged, keyspace, hash, key, .. } = counted;
        if self.store.snapshots.has(paged.root.object) {
            return None;
        }
        let root_stripe = self.guards.stripe(hash.stripe()).ok()?;
        let is_changed = counted.len() > counted.nodes.len();
        let takes = |current: Current<'_>, deltas: usize| !is_changed || takes_totals(current, deltas);
        let (root, object) = self.hot(root_stripe, (*keyspace, *hash), key, takes)?;
        let is_as_met = record::root_of(object.kind(), object.value()) == Some(paged.root);
        if !is_as_met {
            return None;
        }
        let mut nodes = SmallVec::new();
        for Count { place: (key, hash), children } in &counted.nodes {
            let stripe = self.guards.stripe(hash.stripe()).ok()?;
            let takes = |_: Current<'_>, deltas: usize| deltas < COUNTS_MAX;
            let (old, object) = self.hot(stripe, (paged.leaves, *hash), key, takes)?;
            let list = Packed::new(Shape::List, object.value());
            let counted = children.iter().map(|(at, more)| {
                let child = Child::recounted(list.element(*at).0, *more)?;
                Some(FoundChild { at: *at, place: Overwritten::at(&list, *at), child })
            });
            nodes.push(FoundNode { old, children: counted.collect::<Option<_>>()? });
        }
        Some(Found { nodes, root: is_changed.then_some(root) })
    }

    /// What `key` is in memory, if nothing else has its bits, nobody holds it, and one more change of it may be logged beside those that there are.
    fn hot<'a>(
        &'a self,
        stripe: &'a Stripe,
        (keyspace, hash): (Keyspace, KeyHash),
        key: &[u8],
        takes: impl Fn(Current<'_>, usize) -> bool,
    ) -> Option<(Old, ObjectRef<'a>)> {
        if stripe.locks.is_some() {
            return None;
        }
        let space = stripe.space(keyspace)?;
        let Seek::At { spot, word, shared: false, current: current @ Current::Hot(object), .. } =
            space.seek((keyspace, hash), key, self.prepared())
        else {
            return None;
        };
        let deltas = if word.marks() & WORD_DELTAS == 0 { &[] } else { space.deltas_of(object.address()) };
        let is_usual = !current.is_removed() && object.value().len() < LARGE_BYTES;
        let takes = !self.store.engine.takes_parts() || takes(current, deltas.len());
        (is_usual && takes).then(|| (Old::of(spot, object.address(), current), object))
    }

    /// Appends one record and applies it, if there is room for it.
    fn append_counted(&mut self, counted: &Counted<'_>, found: &Found, plans: &[Plan]) -> Option<Seq> {
        self.admit(plans).ok()?;
        let payload = self.counted_parts(counted, found, plans);
        let draft = match &payload {
            Some(payload) => Draft::changes(counted.paged.leaves, &payload.payload),
            None => draft(self.overlay.get(0), &plans[0]),
        };
        let bytes = draft.record_bytes();
        if bytes > self.store.options.transaction_bytes_max {
            return None;
        }
        let (had, class) = (self.credits.take(), class_of(self.takes_reserve));
        let credits = secure(had, &*self.store.engine, (bytes, 1), class).ok()?;
        let mut addresses = [LogAddress::default()];
        let seq = self.store.engine.append(credits, &[draft], &mut addresses);
        let further = Appended { address: addresses[0], seq, bytes: 0 };
        self.overwrite(counted, found, further);
        let (first, rest) = self.overlay.take_all();
        // the first part counts the bytes of all
        let parts = first.into_iter().chain(rest).zip([bytes].into_iter().chain(std::iter::repeat(0)));
        for ((staged, bytes), plan) in parts.zip(plans) {
            let plan = self.refresh(&staged, *plan);
            let (keyspace, appended) = (staged.keyspace, Appended { bytes, ..further });
            let change = self.apply(staged, &plan, appended);
            self.store.index.count_keys(keyspace, change);
        }
        Some(seq)
    }

    /// The record, where changes of several parts are one.
    fn counted_parts(&self, counted: &Counted<'_>, found: &Found, plans: &[Plan]) -> Option<PartsEncoder> {
        if !self.store.engine.takes_parts() {
            return None;
        }
        let mut encoder = PartsEncoder::new(counted.paged.root.object);
        let number_of = |key: &[u8]| split_leaf_key(key).expect("a leaf or a node").1;
        for (staged, plan) in self.overlay.iter().zip(plans) {
            let number = number_of(staged.object().view().key());
            let operations = staged.change.operations().expect("it is a part");
            encoder.node(number, plan.old.expect("it is there").seq, operations);
        }
        for (count, FoundNode { old, children }) in counted.nodes.iter().zip(&found.nodes) {
            let operations: SmallVec<[u8; CHILD_BYTES_FEW]> =
                children.iter().flat_map(|it| set_operation(it.at, &it.child)).collect();
            encoder.node(number_of(&count.place.0), old.seq, &operations);
        }
        if found.root.is_some() {
            encoder.root(counted.hash.slot(), &counted.root.totals());
        }
        Some(encoder)
    }

    /// Overwrites nodes and root, whose change was `appended`.
    fn overwrite(&mut self, counted: &Counted<'_>, found: &Found, appended: Appended) {
        let store = self.store;
        let is_logged = store.engine.takes_parts();
        for (Count { place: (_, hash), .. }, node) in counted.nodes.iter().zip(&found.nodes) {
            let stripe = self.guards.stripe_mut(hash.stripe()).expect("found before");
            let space = stripe.space_mut(counted.paged.leaves);
            let small = Small::Elements { operations: Vec::new(), retimes: false };
            let delta = is_logged.then(|| appended.delta(&small, &node.old, 0));
            let write = |value: &mut [u8]| {
                node.children.iter().for_each(|it| it.place.write(value, &it.child));
            };
            stripe.unreported_bytes +=
                space.overwrite((&node.old, delta), appended.seq, &*store.engine, write);
        }
        let stripe = self.guards.stripe_mut(counted.hash.stripe()).expect("found before");
        if stripe.watches.touch(counted.db, counted.key, appended.seq, false) {
            store.changed.note(counted.db, counted.key);
        }
        if let Some(root) = &found.root {
            let delta = is_logged.then(|| appended.delta(&Small::Totals, root, 0));
            let space = stripe.space_mut(counted.keyspace);
            let write = |value: &mut [u8]| value.copy_from_slice(&counted.root.encode());
            stripe.unreported_bytes += space.overwrite((root, delta), appended.seq, &*store.engine, write);
        }
        store.index.account(stripe.take_unreported());
    }
}

impl Space {
    /// Lets `write` overwrite the hot value of `old`, which `delta` says in the log, if it has one. Returns by how many bytes memory grew.
    fn overwrite(
        &mut self,
        (old, delta): (&Old, Option<Delta>),
        seq: Seq,
        engine: &dyn Engine,
        write: impl FnOnce(&mut [u8]),
    ) -> i64 {
        let side_bytes = self.side_bytes();
        let word = self.table.word_mut(old.spot);
        word.overwrite(seq, write);
        word.set_level(policy::rewritten(word.level()));
        if let Some(delta) = delta {
            word.set_mark(WORD_DELTAS);
            self.push_delta(old, delta, engine);
        }
        self.side_bytes() - side_bytes
    }
}
