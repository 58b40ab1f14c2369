//! Whether a group leaves less than there was: then it may take some of the room that a full disk keeps for deletes.
//!
//! Decided by what is staged, not by which commands staged it, so that scripts and transactions which only remove pass as well. Of what is
//! staged each change is a removal, makes a value smaller, or belongs to a collection in leaves whose root tells that it has become smaller:
//! when leaves are put together one of them grows, and a root is as long as before.

use std::collections::HashSet;

use crate::index::stripe::Current;
use crate::keyspaces::is_leaves;
use crate::record;
use crate::value::ValueKind;
use collections::Packed;
use collections::root::object_of;

use super::Access;
use super::commit::is_reclaim;
use super::overlay::{Change, Staged};
use super::plan::Plan;

impl Access<'_> {
    /// Whether what is staged, which meets what `plans` say, only removes and makes smaller.
    pub(super) fn only_shrinks(&self, plans: &[Plan]) -> bool {
        let changes = || self.overlay.iter().zip(plans).filter(|(_, plan)| !plan.skip);
        let smaller: HashSet<u64> = changes()
            .filter(|(staged, plan)| plan.shrinks && !is_leaves(staged.keyspace))
            .filter_map(|(staged, _)| staged.root())
            .map(|root| root.object)
            .collect();
        let belongs = |staged: &Staged| {
            is_leaves(staged.keyspace)
                && object_of(staged.object().view().key()).is_some_and(|object| smaller.contains(&object))
        };
        changes().all(|(staged, plan)| plan.shrinks || is_reclaim(staged) || belongs(staged))
    }

    /// Whether `staged` leaves less than `current`.
    pub(super) fn shrinks(&self, staged: &Staged, current: Current<'_>) -> bool {
        if matches!(staged.change, Change::Remove(_)) || current.is_removed() {
            return !current.is_removed();
        }
        let object = staged.object().view();
        let after = record::root_of(object.kind(), object.value());
        let bytes_after = after.map_or(object.value().len() as u64, |root| root.all_bytes());
        let Some(before) = record::root_of(current.kind(), current.value().slice()) else {
            return bytes_after < current.value_len();
        };
        if bytes_after < before.all_bytes() {
            return true;
        }
        // bytes of trees are estimates; leaves that are put together, or split at last, have other headers
        let slack_bytes = ESTIMATE_LEAVES * self.store.options.leaf_bytes;
        let kind = ValueKind::of(current.kind());
        let Some(shape) = kind.shape() else { return false };
        if ValueKind::of(object.kind()) != kind || bytes_after > before.all_bytes() + slack_bytes {
            return false;
        }
        let count = after.map_or_else(|| Packed::new(shape, object.value()).len() as u64, |root| root.count);
        count < before.count
    }
}

/// By so many leaves' bytes a collection of fewer elements may seem to have grown.
const ESTIMATE_LEAVES: u64 = 4;
