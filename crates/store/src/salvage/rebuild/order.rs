//! The order of the leaves of a list, as far as the nodes above them are left.
//!
//! Where a node above is lost, nothing says where what it named belongs. What is left below it comes behind the rest: first what inner
//! nodes that are left name, then other leaves by their numbers. What such a node is, is seen from what it has: children have twelve bytes and
//! numbers below that of all nodes, a free node has one number. Elements of clients that look so are not likely.

use std::collections::BTreeSet;

use super::remains::Remains;
use crate::check::nodes::{Node, State};
use crate::value::ValueKind;
use collections::tree::{Child, DEPTH_MAX, NO_NODE, NODE, next_free};
use collections::{Packed, Shape};

/// What a node looks like.
enum Seen {
    Leaf,
    Inner(Vec<u32>),
    Free,
}

/// Levels of inner nodes from a node on.
#[derive(Clone, Copy)]
enum Depth {
    Known(u32),
    /// So many at most.
    Unknown(u32),
}

/// Leaves in order, and all nodes that were met.
#[derive(Default)]
struct Walk {
    leaves: Vec<Node>,
    met: BTreeSet<u32>,
}

impl Remains<'_, '_> {
    /// The leaves of a list, in order; counts those of which it is not known.
    pub(super) fn list_order(&mut self) -> Vec<Node> {
        let tree = self.root.tree.expect("lists have trees");
        let mut walk = Walk::default();
        self.below(tree.top, Depth::Known(tree.depth), &mut walk);
        let mut free = tree.free;
        while free != NO_NODE && walk.met.insert(free) {
            let state = self.node(free).and_then(|node| self.state(&node, ValueKind::List));
            free = state.and_then(|state| next_free(state.value())).unwrap_or(NO_NODE);
        }
        let placed = walk.leaves.len();
        let mut behind = self.tops(&walk.met);
        behind.extend(self.nodes.iter().map(|node| node.number & !NODE));
        behind.into_iter().for_each(|number| self.below(number, Depth::Unknown(DEPTH_MAX), &mut walk));
        self.unplaced = (walk.leaves.len() - placed) as u64;
        walk.leaves
    }

    fn node(&self, number: u32) -> Option<Node> {
        let at = self.nodes.binary_search_by_key(&(number | NODE), |node| node.number).ok()?;
        Some(self.nodes[at]).filter(|_| number & NODE == 0)
    }

    /// Adds the leaves of a node.
    fn below(&mut self, number: u32, depth: Depth, walk: &mut Walk) {
        let Some(node) = self.node(number).filter(|_| walk.met.insert(number)) else { return };
        let Some(state) = self.state(&node, ValueKind::List) else { return };
        let (depth, seen) = match (depth, self.seen(&state)) {
            (Depth::Known(0) | Depth::Unknown(0), _) | (Depth::Unknown(_), Seen::Leaf) => {
                return walk.leaves.push(node);
            }
            (Depth::Known(depth), seen) => (Depth::Known(depth - 1), seen),
            (Depth::Unknown(depth), seen) => (Depth::Unknown(depth - 1), seen),
        };
        if let Seen::Inner(children) = seen {
            children.into_iter().for_each(|child| self.below(child, depth, walk));
        }
    }

    /// The inner nodes not in `met` that no other of them names.
    fn tops(&mut self, met: &BTreeSet<u32>) -> Vec<u32> {
        let (mut inner, mut named) = (Vec::new(), BTreeSet::new());
        for node in self.nodes.clone() {
            let number = node.number & !NODE;
            let state = if met.contains(&number) { None } else { self.state(&node, ValueKind::List) };
            if let Some(Seen::Inner(children)) = state.map(|state| self.seen(&state)) {
                inner.push(number);
                named.extend(children);
            }
        }
        inner.retain(|number| !named.contains(number));
        inner
    }

    fn seen(&self, state: &State) -> Seen {
        let nodes = self.root.tree.map_or(0, |tree| tree.nodes);
        let children = Packed::new(Shape::List, state.value()).iter().map(|(child, _)| Child::decode(child));
        let children: Option<Vec<u32>> = children
            .map(|child| child.filter(|child| child.bound.is_empty() && child.node < nodes))
            .map(|child| child.map(|child| child.node))
            .collect();
        match (children, next_free(state.value())) {
            (Some(children), _) if !children.is_empty() => Seen::Inner(children),
            (_, Some(next)) if next == NO_NODE || next < nodes => Seen::Free,
            _ => Seen::Leaf,
        }
    }
}
