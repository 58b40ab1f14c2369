//! Changes of several parts of one collection as one record: of its leaves and other nodes, and of what its root counts.
//!
//! ```text
//! staged     leaf 7: +1 element      node 3: its child 7 has one more      root: one more
//! appended   CHANGES { object, leaf 7: operations, node 3: operations, root: totals }
//! index      each of the three has a delta at the same address
//! ```
//!
//! So are removals of leaves whose numbers follow each other: REMOVALS { object, first, count } instead of a record for each (`sweep`).
//!
//! Who is written whole, such as a leaf that is split or has many deltas already, has a record of its own.

use journal::{Keyspace, Seq};
use smallvec::{SmallVec, smallvec};

use crate::index::delta::Delta;
use crate::index::stripe::Current;
use crate::keyspaces::{is_leaves, is_own, leaves_of};
use crate::record::{self, Draft, PartsEncoder, REMOVALS_BYTES, Removals};
use collections::root::split_leaf_key;

use super::overlay::{Cause, Change, Overlay, Small, Staged};
use super::plan::{Plan, draft};

/// Which of the changes of a group are parts of one record.
pub(super) struct Joined {
    records: SmallVec<[Record; 1]>,
    /// For each change the one of `records` that it is a part of, or [`ALONE`].
    places: SmallVec<[u32; CHANGES_FEW]>,
}

/// A record with parts.
struct Record {
    collection: (Keyspace, u64),
    content: Content,
    /// Number of the first of its changes, and how many there are.
    first: usize,
    parts: usize,
}

/// What a record with parts says.
enum Content {
    /// CHANGES.
    Changes(PartsEncoder),
    /// REMOVALS, and their payload.
    Removals(Removals, [u8; REMOVALS_BYTES]),
}

impl Joined {
    /// Of the changes in `overlay`, which meet `plans`.
    pub(super) fn of(overlay: &Overlay, plans: &[Plan], takes_parts: bool) -> Self {
        let mut joined = Self { records: SmallVec::new(), places: smallvec![ALONE; plans.len()] };
        if !takes_parts || plans.len() > CHANGES_MAX {
            return joined;
        }
        for (at, (staged, plan)) in overlay.iter().zip(plans).enumerate() {
            if let Some(collection) = collection_of(staged, plan) {
                match &staged.change {
                    Change::Remove(_) => joined.remove(at, collection, number_of(staged)),
                    _ => joined.change(at, collection, staged, plan),
                }
            }
        }
        for record in joined.records.iter().filter(|record| record.parts == 1) {
            // it is shorter as a record of its own
            joined.places[record.first] = ALONE;
        }
        joined
    }

    /// Lets change number `at`, of this collection, be a part of a CHANGES.
    fn change(&mut self, at: usize, collection: (Keyspace, u64), staged: &Staged, plan: &Plan) {
        let has_room = |record: &Record| match &record.content {
            Content::Changes(encoder) => record.parts < PARTS_MAX && encoder.payload.len() < PART_BYTES_MAX,
            Content::Removals(..) => false,
        };
        let begin = || Content::Changes(PartsEncoder::new(collection.1));
        let Content::Changes(encoder) = self.add(at, collection, has_room, begin) else {
            unreachable!("only such have room")
        };
        match staged.change.operations() {
            Some(operations) => {
                encoder.node(number_of(staged), plan.old.map_or(Seq::NONE, |old| old.seq), operations);
            }
            None => encoder.root(staged.hash.slot(), &staged.root().expect("a root").totals()),
        }
    }

    /// Lets change number `at`, which removes leaf or node `number` of this collection, be a part of a REMOVALS.
    fn remove(&mut self, at: usize, collection: (Keyspace, u64), number: u32) {
        let one = Removals::one(collection.1, number);
        let with = |content: &Content| match content {
            Content::Removals(removals, _) => removals.with(number),
            Content::Changes(_) => None,
        };
        let has_room = |record: &Record| with(&record.content).is_some();
        let content = self.add(at, collection, has_room, || Content::Removals(one, one.encode()));
        if let Some(more) = with(content) {
            *content = Content::Removals(more, more.encode());
        }
    }

    /// The record that change number `at`, of this collection, is a part of: one of the last few that `has_room`, or the one to `begin`.
    fn add(
        &mut self,
        at: usize,
        collection: (Keyspace, u64),
        has_room: impl Fn(&Record) -> bool,
        begin: impl FnOnce() -> Content,
    ) -> &mut Content {
        let recent = self.records.len().saturating_sub(RECORDS_OPEN_MAX);
        let takes = |record: &Record| record.collection == collection && has_room(record);
        let place = self.records[recent..].iter().position(takes).map_or(self.records.len(), |n| recent + n);
        if place == self.records.len() {
            self.records.push(Record { collection, content: begin(), first: at, parts: 0 });
        }
        self.places[at] = place as u32;
        let record = &mut self.records[place];
        record.parts += 1;
        &mut record.content
    }

    /// The records of the changes in `overlay` that have any, in order.
    pub(super) fn drafts<'a>(
        &'a self,
        overlay: &'a Overlay,
        plans: &[Plan],
    ) -> impl Iterator<Item = Draft<'a>> {
        let changes = overlay.iter().zip(plans).enumerate().filter(|(_, (_, plan))| !plan.skip);
        changes.filter_map(|(at, (staged, plan))| match self.record_of(at) {
            None => Some(draft(staged, plan)),
            Some(record) => {
                let (leaves, _) = record.collection;
                (record.first == at).then(|| match &record.content {
                    Content::Changes(encoder) => Draft::of_object(record::CHANGES, leaves, &encoder.payload),
                    Content::Removals(_, payload) => Draft::of_object(record::REMOVALS, leaves, payload),
                })
            }
        })
    }

    /// How many records with parts there are, those of one part included.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The record with parts that change number `at` is in.
    fn record_of(&self, at: usize) -> Option<&Record> {
        self.records.get(self.places[at] as usize)
    }

    /// Of which record with parts change number `at` is, and whether it is the first one of it.
    pub(super) fn place(&self, at: usize) -> Option<(usize, bool)> {
        self.record_of(at).map(|record| (self.places[at] as usize, record.first == at))
    }

    /// `staged`, change number `at`, as it is logged.
    pub(super) fn as_logged(&self, at: usize, staged: Staged) -> Staged {
        match staged.change {
            Change::Put(object) if self.record_of(at).is_some() => {
                Staged { change: Change::Delta { object, delta: Small::Totals }, ..staged }
            }
            change => Staged { change, ..staged },
        }
    }
}

/// The collection of which a change is a part that may be in one record with others: the keyspace of its leaves, and its object.
fn collection_of(staged: &Staged, plan: &Plan) -> Option<(Keyspace, u64)> {
    if plan.skip || plan.shared || plan.old.is_none() {
        return None;
    }
    match &staged.change {
        Change::Delta { delta: Small::Elements { operations, retimes: false }, object }
            if is_leaves(staged.keyspace) && operations.len() <= PART_BYTES_MAX =>
        {
            Some((staged.keyspace, split_leaf_key(object.view().key())?.0))
        }
        Change::Put(_) if plan.is_totals => Some((leaves_of(staged.keyspace), staged.root()?.object)),
        Change::Remove(object) if is_leaves(staged.keyspace) => {
            Some((staged.keyspace, split_leaf_key(object.view().key())?.0))
        }
        _ => None,
    }
}

/// The number of a leaf or other node.
fn number_of(staged: &Staged) -> u32 {
    split_leaf_key(staged.object().view().key()).expect("a leaf").1
}

/// Whether `staged` changes nothing of what is there, on which these deltas lie, but what a root counts.
pub(super) fn is_totals(staged: &Staged, current: Current<'_>, deltas: &[Delta]) -> bool {
    let object = staged.object().view();
    let is_root = record::is_root(object.kind()) && object.kind() == current.kind();
    let is_usual = is_root && staged.cause == Cause::Command && matches!(staged.change, Change::Put(_));
    let takes = takes_totals(current.seq(), deltas.len());
    if !is_usual || !takes || is_leaves(staged.keyspace) || is_own(staged.keyspace) {
        return false;
    }
    let roots = record::root_of(current.kind(), current.value().slice()).zip(staged.root());
    object.expiry() == current.expiry() && roots.is_some_and(|(old, new)| old.is_same_but_for_totals(&new))
}

/// Whether a root with so many deltas may have its totals changed without being written whole.
pub(super) fn takes_totals(seq: Seq, deltas: usize) -> bool {
    !seq.0.is_multiple_of(WHOLE_EVERY) && deltas < DELTAS_MAX
}

/// Changes of a group for which nothing is put on the heap.
const CHANGES_FEW: usize = 6;
/// In no record with parts.
const ALONE: u32 = u32::MAX;
/// Changes of a group that has such records, at most: with the other bounds 16 MiB of parts, beside the changes themselves.
const CHANGES_MAX: usize = 512;
/// Parts of one record, at most; bytes of a part, and of parts before another one is added.
pub(super) const PARTS_MAX: usize = 96;
pub(super) const PART_BYTES_MAX: usize = 16 << 10;
/// Records to which parts are added: in a group of many collections those of one follow each other.
const RECORDS_OPEN_MAX: usize = 4;
/// One in so many changes writes the root whole: where the newest is damaged, an older one says at which key the collection is.
const WHOLE_EVERY: u64 = 64;
/// Deltas on a root, at most: totals supersede each other, but for those between which its expiry changes.
const DELTAS_MAX: usize = 8;
