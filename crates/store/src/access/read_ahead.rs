//! Reading ahead: a command that goes through a collection from one part to the next stops at each part that is cold, and is executed again
//! from its start. So each time it stops, it asks for as much beside the missing part as it has read before: a walk over `n` leaves takes
//! about log2(n) reads and twice the work of one run.
//!
//! What was read is kept for the command until it ends (`prepared`), whatever becomes of it in memory. Out of scope: commands that name
//! elements; they look for all of them before they stop.

use std::ops::Range;

use super::Access;
use super::nodes::Paged;
use super::sequence::leaves_in;
use crate::error::Stop;

impl Access<'_> {
    /// Asks for leaves on both sides of elements number `range`, of which a leaf is missing; the side from which the command came was read.
    /// Once in each attempt: the first part that is missing is what the command stops at.
    pub(super) fn read_ahead(&self, paged: &Paged, range: &Range<u64>) {
        let elements = self.elements_ahead(paged);
        if elements == 0 || self.has_read_ahead.replace(true) {
            return;
        }
        let around = range.start.saturating_sub(elements)..range.end.saturating_add(elements);
        // what is found does not matter, and damage is told when the command comes to it
        let missed: Result<Vec<_>, Stop> = leaves_in(self, paged, &paged.tree(), paged.root.count, around);
        drop(missed);
    }

    /// How many elements are asked for beside what is missing: those of as many nodes as were read, within half of what the command may
    /// still read. The other half is for what it needs.
    fn elements_ahead(&self, paged: &Paged) -> u64 {
        let read = self.prepared.leaves_of(paged.root.object).count() as u64;
        let fitting = self.prepared.bytes_left() / 4 / self.store.options.leaf_bytes.max(1);
        let bytes = read.min(fitting).min(AHEAD_NODES_MAX) * self.store.options.leaf_bytes;
        let element_bytes = (paged.tree().bytes / paged.root.count.max(1)).max(1);
        bytes / element_bytes
    }
}

/// Nodes that are asked for on each side of what is missing, at most.
const AHEAD_NODES_MAX: u64 = 8_192;
