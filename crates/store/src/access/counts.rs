//! What is overwritten in place: leaves that change, and what the nodes above them and the root will count (`counted`).

use std::cell::OnceCell;

use journal::Keyspace;
use smallvec::SmallVec;

use crate::hash::KeyHash;
use crate::index::table::Spot;
use collections::root::Root;

use super::joined::PARTS_MAX;
use super::nodes::{LeafChanges, NodePlace, Paged};
use super::overlay::{KeyPlace, Staged};

/// A node, and the children below which there are more elements, or fewer: the number of each, and how many.
pub(super) struct Count {
    /// Of its key.
    pub(super) number: u32,
    pub(super) place: NodePlace,
    /// Where it is in memory, if it may be overwritten there.
    pub(super) spot: Option<Spot>,
    /// Whether one more change of it may be logged beside those that there are.
    pub(super) takes: bool,
    pub(super) children: SmallVec<[(usize, i64); CHILDREN_FEW]>,
}

/// What nodes above changed leaves will count.
pub(super) type Counts = SmallVec<[Count; NODES_FEW]>;

/// What the nodes above changed leaves, and the root, will count.
pub(super) struct Counted<'s> {
    pub(super) db: u16,
    pub(super) keyspace: Keyspace,
    pub(super) hash: KeyHash,
    pub(super) key: &'s [u8],
    pub(super) paged: Paged,
    pub(super) root: Root,
    pub(super) leaves: LeafChanges,
    pub(super) nodes: Counts,
    /// Each leaf and node, and behind them the root, as a change of its own, for who looks it up.
    pub(super) whole: OnceCell<Box<[OnceCell<Staged>]>>,
}

impl<'s> Counted<'s> {
    /// Where the root is.
    pub(super) fn place(&self) -> KeyPlace<'s> {
        let Self { db, keyspace, hash, key, .. } = *self;
        KeyPlace { db, keyspace, hash, key }
    }

    /// How many leaves, nodes and roots are overwritten.
    pub(super) fn len(&self) -> usize {
        self.leaves.len() + self.nodes.len() + usize::from(self.changes_root())
    }

    pub(super) fn changes_root(&self) -> bool {
        self.root != self.paged.root
    }

    /// The number of a leaf or node with this key, or behind them that of the root.
    pub(super) fn number_of(&self, keyspace: Keyspace, hash: KeyHash, key: &[u8]) -> Option<usize> {
        if keyspace == self.keyspace {
            let is_root = self.changes_root() && hash == self.hash && key == self.key;
            return is_root.then_some(self.len() - 1);
        }
        let leaves = self.leaves.iter().map(|leaf| &leaf.place);
        let mut places = leaves.chain(self.nodes.iter().map(|count| &count.place));
        let number = places.position(|place| place.1 == hash && place.0[..] == *key);
        number.filter(|_| keyspace == self.paged.leaves)
    }
}

/// Adds to `counts` one child of a node below which there are more elements, or fewer; returns it if there was no room for that.
pub(super) fn add(counts: &mut Counts, one: Count) -> Result<(), Count> {
    let Some(number) = counts.iter().position(|count| count.number == one.number) else {
        if counts.len() == NODES_MAX {
            return Err(one);
        }
        counts.push(one);
        return Ok(());
    };
    let (at, more) = one.children[0];
    let children = &mut counts[number].children;
    match children.iter().position(|child| child.0 == at) {
        Some(child) => children[child].1 += more,
        None if children.len() == CHILDREN_MAX => return Err(one),
        None => children.push((at, more)),
    }
    children.retain(|child| child.1 != 0);
    if children.is_empty() {
        counts.remove(number);
    }
    Ok(())
}

/// Nodes for which nothing is put on the heap: those above two leaves of a tree of two levels, or above one of four.
pub(super) const NODES_FEW: usize = 4;
/// Nodes that are overwritten for one change, at most: those above the leaves of a series.
const NODES_MAX: usize = 36;
/// Leaves that change with them, at most: a series of new scores changes as many for its members as in its tree.
pub(super) const LEAVES_MAX: usize = 48;
const _: () = assert!(NODES_MAX + 1 + LEAVES_MAX <= PARTS_MAX, "one record has them all");
/// Children of a node for which nothing is put on the heap, and that are overwritten at most.
pub(super) const CHILDREN_FEW: usize = 2;
const CHILDREN_MAX: usize = 48;
