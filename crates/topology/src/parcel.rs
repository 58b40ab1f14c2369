//! What travels from a task to another: parcels of tuples, and marks between them.

use crate::anchor::Anchor;
use crate::ids::StreamId;
use crate::values::Values;

/// Tuples of one root, or one tuple with several roots, or tuples without any.
///
/// Invariant: if there is more than one anchor, all items come from one tuple; its places in the roots are in the anchors, and
/// [`Item::origin`] has no meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parcel {
    /// Its roots; empty if nobody waits for its end.
    pub anchors: Vec<Anchor>,
    /// Its tuples, at least one.
    pub items: Vec<Item>,
}

/// A tuple in a parcel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The place in the root's batch of the tuple that it comes from.
    pub origin: u32,
    /// The stream on which it was emitted.
    pub stream: StreamId,
    /// Its values.
    pub values: Values,
}

/// What a channel carries, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// Tuples.
    Parcel(Parcel),
    /// All before it belongs to this epoch or an earlier one.
    Barrier(Epoch),
    /// Nothing follows until the channel is opened again: its receiver moves.
    Close,
}

/// Number of a group of changes that become durable together; the first is 1, and 0 is the state before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Load {
    /// What it counts for in a queue, in bytes; never 0, so that each load moves the channel's offset.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let Self::Parcel(parcel) = self else { return MARK_BYTES };
        let items: usize = parcel.items.iter().map(|item| item.values.size_bytes() + ITEM_BYTES).sum();
        MARK_BYTES + (items + parcel.anchors.len() * size_of::<Anchor>()) as u64
    }
}

impl Epoch {
    /// The one before it; 0 has none.
    #[must_use]
    pub fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The one after it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// What a load counts for beside its tuples.
const MARK_BYTES: u64 = 16;
/// What a tuple counts for beside its values: origin, stream and the reference to the values.
const ITEM_BYTES: usize = size_of::<Item>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_counts_tuples_and_anchors_and_is_never_zero() {
        let item = Item { origin: 0, stream: StreamId(0), values: Values::new(&["12345"]) };
        let parcel = |count| Load::Parcel(Parcel { anchors: vec![], items: vec![item.clone(); count] });
        let (one, two) = (parcel(1).size_bytes(), parcel(2).size_bytes());
        assert_eq!(two - one, (item.values.size_bytes() + ITEM_BYTES) as u64);
        assert!(Load::Close.size_bytes() > 0 && parcel(0).size_bytes() > 0);
    }
}
