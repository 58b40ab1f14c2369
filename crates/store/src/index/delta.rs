//! Small records on top of a base: what one is, and which state of the key it lies on.

use collections::Deadline;
use journal::{LogAddress, Seq};

use crate::error::StoreError;
use crate::record;

/// A small record on top of a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delta {
    /// Where it lies.
    pub(crate) address: LogAddress,
    /// The effect.
    pub(crate) seq: Seq,
    /// The oldest effect whose value it may lie on: what it follows has a seq from this one to below its own. 0: not known.
    pub(crate) since: Seq,
    /// One of [`record::Role::Delta`].
    pub(crate) kind: u8,
    /// Bytes of the record in its segment; 0 where another part of it counts them.
    pub(crate) record_bytes: u32,
    /// The new expiry, for [`record::EXPIRY`]; 0 is none. For others the new one where not 0.
    pub(crate) expiry: Option<Deadline>,
}

impl Delta {
    /// Bytes of its record that count for it; `None`: another part counts them.
    pub(crate) fn counted_bytes(&self) -> Option<u64> {
        Some(self.record_bytes.into()).filter(|bytes| *bytes > 0)
    }

    /// Whether it may lie on the state of effect `seq`.
    pub(crate) fn follows(&self, seq: Seq) -> bool {
        self.since <= seq && seq < self.seq
    }

    /// The expiry after this, of what expired at `before`.
    pub(crate) fn expiry_after(&self, before: Option<Deadline>) -> Option<Deadline> {
        if self.kind == record::EXPIRY || self.expiry.is_some() { self.expiry } else { before }
    }

    /// Whether a newer one of this kind may take its place: the newest says all, and leaves the rest of the value as it is.
    pub(crate) fn can_be_superseded(&self) -> bool {
        matches!(self.kind, record::EXPIRY | record::TOTALS) && self.since != Seq::NONE
    }

    /// Whether this takes the place of `last`, and lies on whatever that lay on.
    pub(crate) fn supersedes(&self, last: &Self) -> bool {
        self.kind == last.kind
            && last.can_be_superseded()
            && self.since <= last.since
            && self.since != Seq::NONE
    }
}

/// Those of `deltas` that came after effect `seq`: a value that was fetched and folded has the others in it.
pub(crate) fn later(deltas: &[Delta], seq: Seq) -> &[Delta] {
    // most values that are looked at have none in them
    let first = deltas.first().map_or(Seq::NONE, |first| first.seq);
    if first > seq { deltas } else { &deltas[deltas.partition_point(|delta| delta.seq <= seq)..] }
}

/// How many of `deltas` change a value. Totals count twice: a root is short, and read before each of its leaves.
pub(crate) fn weigh(deltas: &[Delta]) -> usize {
    let weight = |delta: &Delta| match delta.kind {
        record::TOTALS => 2,
        kind => usize::from(record::changes_value(kind)),
    };
    deltas.iter().map(weight).sum()
}

/// The seq of what `deltas` make of the state of effect `seq`; `None` if they do not follow it and each other.
pub(crate) fn chain(seq: Seq, deltas: &[Delta]) -> Option<Seq> {
    deltas.iter().try_fold(seq, |seq, delta| delta.follows(seq).then_some(delta.seq))
}

/// The error of a base whose deltas are of another state.
pub(crate) fn broken_chain(address: LogAddress) -> StoreError {
    let reason = "its deltas belong to another state of the key".to_owned();
    StoreError::Damaged { segment: address.segment().0, offset: address.offset_bytes(), reason }
}
