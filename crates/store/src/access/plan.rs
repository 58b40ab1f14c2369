//! What staged changes meet, and the records that they have of their own.

use collections::Deadline;
use journal::{LogAddress, Seq};
use smallvec::SmallVec;

use super::overlay::{Change, Small, Staged};
use crate::index::stripe::Current;
use crate::index::table::Spot;
use crate::record::{self, Draft};

/// For each change of a group, which are few.
pub(super) type Few<T> = SmallVec<[T; CHANGES_FEW]>;

/// What a staged change will meet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Another live key has the same bits.
    pub(super) shared: bool,
    /// What the key is now.
    pub(super) old: Option<Old>,
    /// A removal of what is not there.
    pub(super) skip: bool,
    /// It leaves less than there was.
    pub(super) shrinks: bool,
    /// What is there is the root of a collection in leaves.
    pub(super) replaces_root: bool,
    /// It changes nothing but what a root counts.
    pub(super) is_totals: bool,
    /// How often slots of its table had moved: where the old state lies is known until they move again.
    pub(super) moves: u64,
}

/// The state that a change replaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Old {
    pub(super) spot: Spot,
    pub(super) address: LogAddress,
    pub(super) seq: Seq,
    /// The oldest effect whose value is the same, as far as a change of the expiry replaces one.
    pub(super) since: Seq,
    pub(super) record_bytes: u64,
    pub(super) hot_bytes: i64,
    pub(super) expiry: Option<Deadline>,
    /// When the key itself expires, as far as that is known of a hash.
    pub(super) own_expiry: Option<Deadline>,
    pub(super) removed: bool,
}

impl Plan {
    /// Of what is there, but was not read.
    pub(super) fn unread(shared: bool, old: Option<Old>, shrinks: bool, moves: u64) -> Self {
        Self { shared, old, skip: false, shrinks, replaces_root: false, is_totals: false, moves }
    }
}

impl Old {
    pub(super) fn of(spot: Spot, address: LogAddress, current: Current<'_>) -> Self {
        Self {
            spot,
            address,
            seq: current.seq(),
            since: current.seq(),
            record_bytes: current.record_bytes(),
            hot_bytes: if let Current::Hot(object) = current { object.memory_bytes() as i64 } else { 0 },
            expiry: current.expiry(),
            own_expiry: if current.has_value() { current.own_expiry() } else { None },
            removed: current.is_removed(),
        }
    }

    /// A state whose record is damaged. The accounts take an average for its size; the entry of its expiry stays until
    /// it is due, as those that a restart leaves.
    pub(super) fn unreadable(spot: Spot, address: LogAddress) -> Self {
        Self {
            spot,
            address,
            seq: Seq::NONE,
            since: Seq::NONE,
            record_bytes: 0,
            hot_bytes: 0,
            expiry: None,
            own_expiry: None,
            removed: false,
        }
    }
}

/// The record of a change that has one of its own.
pub(super) fn draft<'a>(staged: &'a Staged, plan: &Plan) -> Draft<'a> {
    let object = staged.object().view();
    let shared = if plan.shared { record::SHARED } else { 0 };
    let (key, expiry) = (object.key(), object.expiry());
    match (&staged.change, plan.old) {
        (Change::Delta { delta, .. }, Some(old)) => match delta {
            Small::Expiry => Draft::expiry(shared, staged.keyspace, key, old.since, old.seq, expiry),
            Small::Elements { operations, .. } => {
                // a folder with another record of this kind does not open
                debug_assert!(collections::are_operations(operations), "a change by no operations");
                let expiry = delta.expiry(expiry);
                Draft::delta(record::CHANGE | shared, staged.keyspace, key, old.seq, operations, expiry)
            }
            Small::Part { range, .. } => {
                let (offset, bytes) = (range.start as u64, &object.value()[range.clone()]);
                let expiry = delta.expiry(expiry);
                Draft::part(shared, staged.keyspace, key, old.seq, offset, bytes, expiry)
            }
            Small::Totals => unreachable!("totals are part of another record"),
        },
        _ => Draft::whole(object.kind() | shared, staged.keyspace, key, object.value(), expiry),
    }
}

/// Changes of a group for which nothing is put on the heap.
const CHANGES_FEW: usize = 6;
