//! What a changed node becomes, and what follows from it for the nodes above: split, put together, removed, a new top.
//!
//! ```text
//! change_to -> rebalance -> replace ... -> rebalance_top -> set_top
//!   a leaf      its parent's children      the levels above     levels that choose between nothing go
//! ```
//!
//! Invariants
//!   1. A node that is kept has at most two leaves' bytes, unless it has too few elements to be cut.
//!   2. Each child's count is that of the elements below it; its bound separates it from the child before.
//!   3. A node that is used by none is among the free ones.
//!
//! Out of scope: which leaf changes, and how (`tree_edit`).

use std::ops::Range;

use collections::tree::{
    CHILDREN_MIN, Child, NO_NODE, NODE, NODES_MAX, bound_between, cut_inner, cut_leaf, free_node, inner_node,
    next_free, part,
};
use collections::{Form, ListEdit, Packed, Shape};

use super::{LookedAt, TreeEdit};
use crate::access::nodes::{Leaf, damaged};
use crate::access::sequence::{Nodes, Path, Step, Steps, child_at, children};
use crate::error::{Stop, StoreError};
use crate::value::ValueKind;

/// A child that is to be.
#[derive(Debug)]
pub(super) struct NewChild {
    node: u32,
    count: u64,
    bound: Vec<u8>,
}

/// Children `at` of a node are to be these.
pub(super) struct Replaced {
    pub(super) at: Range<usize>,
    pub(super) by: Vec<NewChild>,
    /// How many elements there are more below the node than there were.
    pub(super) more: i64,
}

/// What a node becomes.
struct Changed {
    value: Vec<u8>,
    operations: Vec<u8>,
    /// How many elements there are more below it than there were.
    more: i64,
}

impl TreeEdit<'_, '_> {
    /// Keeps what a leaf has `ended` as, which had so many bytes and elements before.
    pub(super) fn change_to(
        &mut self,
        mut path: Path,
        before_bytes: usize,
        before_len: usize,
        ended: Option<(Option<Vec<u8>>, Vec<u8>)>,
    ) -> Result<(), Stop> {
        let Some((value, operations)) = ended else { return Ok(()) };
        self.settle()?;
        let value = value.unwrap_or_else(|| part(Packed::empty(self.paged.shape()), 0..0));
        let more = Packed::new(self.paged.shape(), &value).len() as i64 - before_len as i64;
        self.tree.bytes = self.tree.bytes.saturating_sub(before_bytes as u64);
        self.count = self.count.saturating_add_signed(more);
        let changed = Changed { value, operations, more };
        match path.steps.pop() {
            None => {
                let leaves = self.rebalance_top(path.leaf, changed, true)?;
                self.tree.depth = 0;
                self.set_top(leaves)?;
            }
            Some(step) => {
                let replaced = self.rebalance(step, path.leaf, changed, true)?;
                self.replace(path.steps, step.node, replaced)?;
            }
        }
        Ok(())
    }

    /// Replaces children of `node`, at which `steps` end, and what follows from it up to the top.
    pub(super) fn replace(
        &mut self,
        mut steps: Steps,
        mut node: u32,
        mut replaced: Replaced,
    ) -> Result<(), Stop> {
        loop {
            let Some(changed) = self.replaced(node, &replaced)? else { return Ok(()) };
            let Some(step) = steps.pop() else {
                let depth = self.tree.depth;
                let tops = self.rebalance_top(node, changed, false)?;
                self.tree.depth = if tops.is_empty() { 0 } else { depth };
                return self.set_top(tops);
            };
            replaced = self.rebalance(step, node, changed, false)?;
            node = step.node;
        }
    }

    /// What an inner node becomes by other children; `None`: they are those that it has.
    fn replaced(&self, node: u32, Replaced { at, by, more }: &Replaced) -> Result<Option<Changed>, Stop> {
        let before = Packed::new(Shape::List, self.node(node, false)?);
        let mut edit = ListEdit::new(before);
        let mut next = at.start;
        for child in by {
            let child = Child { node: child.node, count: child.count, bound: &child.bound }.encode();
            if next >= at.end {
                edit.insert(next, &child);
            } else if before.element(next).0 != child {
                edit.set(next, &child);
            }
            next += 1;
        }
        if next < at.end {
            edit.remove(next, at.end - next);
        }
        let changed = edit.is_changed();
        Ok(changed.then(|| Changed { value: edit.encode(), operations: edit.into_operations(), more: *more }))
    }

    /// Keeps what `node`, child of `step`, has become, and says what the parent has instead of it.
    fn rebalance(
        &mut self,
        step: Step,
        node: u32,
        Changed { value, operations, more }: Changed,
        is_leaf: bool,
    ) -> Result<Replaced, Stop> {
        let at = step.at..step.at + 1;
        let packed = Packed::new(self.shape(is_leaf), &value);
        if packed.is_empty() {
            self.free(node);
            return Ok(Replaced { at, by: Vec::new(), more });
        }
        let parent = Packed::new(Shape::List, self.node(step.node, false)?);
        let child = child_at(self.paged, parent, step.at)?;
        let (bound, count) = (child.bound.to_vec(), child.count.saturating_add_signed(more));
        if self.is_too_large(packed.bytes(), packed.len(), is_leaf) {
            return Ok(Replaced { at, by: self.put_runs(Some(node), packed, is_leaf, bound)?, more });
        }
        if self.is_small(packed.bytes()) && parent.len() > 1 {
            let left = step.at - usize::from(step.at + 1 == parent.len());
            if let Some(replaced) = self.merge(step, left, node, packed, more, is_leaf)? {
                return Ok(replaced);
            }
        }
        self.put(node, value, Some(operations), is_leaf)?;
        Ok(Replaced { at, by: vec![NewChild { node, count, bound }], more })
    }

    /// Puts the children `left` and `left + 1` of `step`'s node together, of which `node` has become `packed` with so many elements `more`
    /// below it; `None`: they stay two.
    fn merge(
        &mut self,
        step: Step,
        left: usize,
        node: u32,
        packed: Packed<'_>,
        more: i64,
        is_leaf: bool,
    ) -> Result<Option<Replaced>, Stop> {
        let parent = Packed::new(Shape::List, self.node(step.node, false)?);
        let other = child_at(self.paged, parent, left + usize::from(left == step.at))?.node;
        if !self.may_use(other, is_leaf)? {
            return Ok(None);
        }
        let parent = Packed::new(Shape::List, self.node(step.node, false)?);
        let pair = [child_at(self.paged, parent, left)?, child_at(self.paged, parent, left + 1)?];
        let looked_at = LookedAt::of(self);
        let other_value = looked_at.value(self.paged, other, is_leaf)?;
        let other_packed = Packed::new(packed.shape(), other_value);
        if (packed.bytes() + other_packed.bytes()) as u64 > self.leaf_bytes() * 3 / 2 {
            return Ok(None);
        }
        let [first, second] = if left == step.at { [packed, other_packed] } else { [other_packed, packed] };
        let both = if is_leaf {
            collections::concat(packed.shape(), Form::Table, &[first, second])
        } else {
            // the bound of a first child says nothing until another is before it
            let child = child_at(self.paged, second, 0)?;
            let mut second = ListEdit::new(second);
            second.set(0, &Child { bound: pair[1].bound, ..child }.encode());
            collections::concat(
                Shape::List,
                Form::Table,
                &[first, Packed::new(Shape::List, &second.encode())],
            )
        };
        let (kept, bound) = (pair[0].node, pair[0].bound.to_vec());
        let count = pair[0].count.saturating_add(pair[1].count).saturating_add_signed(more);
        let other_bytes = other_value.len() as u64;
        drop(looked_at);
        if is_leaf {
            self.tree.bytes = self.tree.bytes.saturating_sub(other_bytes);
        }
        self.free(if kept == node { other } else { node });
        self.put(kept, both, None, is_leaf)?;
        Ok(Some(Replaced { at: left..left + 2, by: vec![NewChild { node: kept, count, bound }], more }))
    }

    /// Keeps what the top has become: it, or several nodes of its level.
    fn rebalance_top(
        &mut self,
        node: u32,
        Changed { value, operations, .. }: Changed,
        is_leaf: bool,
    ) -> Result<Vec<NewChild>, Stop> {
        let packed = Packed::new(self.shape(is_leaf), &value);
        if packed.is_empty() && !is_leaf {
            self.free(node);
            return Ok(Vec::new());
        }
        if self.is_too_large(packed.bytes(), packed.len(), is_leaf) {
            return self.put_runs(Some(node), packed, is_leaf, Vec::new());
        }
        self.put(node, value, Some(operations), is_leaf)?;
        Ok(vec![NewChild { node, count: self.count, bound: Vec::new() }])
    }

    /// Lets these nodes, all of one level, be the highest, and adds levels above until there is one top; drops levels that choose between
    /// nothing.
    pub(super) fn set_top(&mut self, mut nodes: Vec<NewChild>) -> Result<(), Stop> {
        if nodes.is_empty() {
            let node = self.take_number()?;
            let empty = part(Packed::empty(self.paged.shape()), 0..0);
            self.put(node, empty, None, true)?;
            nodes.push(NewChild { node, count: 0, bound: Vec::new() });
        }
        while nodes.len() > 1 {
            let encoded: Vec<Vec<u8>> = nodes
                .iter()
                .map(|child| Child { node: child.node, count: child.count, bound: &child.bound }.encode())
                .collect();
            let inner = inner_node(encoded.iter().map(|child| &child[..]));
            nodes = self.put_runs(None, Packed::new(Shape::List, &inner), false, Vec::new())?;
            self.tree.depth += 1;
        }
        assert!(nodes[0].node < self.tree.nodes, "the top is none of {} nodes", self.tree.nodes);
        self.tree.top = nodes[0].node;
        while self.tree.depth > 0 {
            let inner = Packed::new(Shape::List, self.node(self.tree.top, false)?);
            if inner.len() > 1 {
                break;
            }
            let only = child_at(self.paged, inner, 0)?.node;
            self.free(self.tree.top);
            self.tree.top = only;
            self.tree.depth -= 1;
        }
        Ok(())
    }

    /// Keeps the elements of `packed` in nodes of about a leaf's bytes; the first is `node`, if there is one, and begins at `bound`.
    pub(super) fn put_runs(
        &mut self,
        node: Option<u32>,
        packed: Packed<'_>,
        is_leaf: bool,
        bound: Vec<u8>,
    ) -> Result<Vec<NewChild>, Stop> {
        let (mut first, mut bound) = (node, Some(bound));
        let mut nodes = Vec::new();
        let cut = if is_leaf { cut_leaf } else { cut_inner };
        for run in cut(packed, self.leaf_bytes()) {
            let bound = match bound.take() {
                Some(bound) => bound,
                None if is_leaf => {
                    bound_between(packed.shape(), packed.element(run.start - 1), packed.element(run.start))
                }
                None => child_at(self.paged, packed, run.start)?.bound.to_vec(),
            };
            let node = match first.take() {
                Some(node) => node,
                None => self.take_number()?,
            };
            let count = match is_leaf {
                true => run.len() as u64,
                false => {
                    let mut below = children(self.paged, packed, run.clone());
                    below.try_fold(0_u64, |sum, child| Ok::<u64, Stop>(sum.saturating_add(child?.count)))?
                }
            };
            self.put(node, part(packed, run), None, is_leaf)?;
            nodes.push(NewChild { node, count, bound });
        }
        let count_of = |nodes: &[NewChild]| nodes.iter().map(|node| node.count).sum::<u64>();
        debug_assert!(!is_leaf || count_of(&nodes) == packed.len() as u64, "each element is in one run");
        Ok(nodes)
    }

    /// Keeps the value of a node, after `operations` if it is what they made of it.
    fn put(
        &mut self,
        number: u32,
        value: Vec<u8>,
        operations: Option<Vec<u8>>,
        is_leaf: bool,
    ) -> Result<(), Stop> {
        let replaced = self.nodes.get(&(number | NODE));
        let operations = match (replaced, operations) {
            (Some(replaced), operations) => {
                replaced.operations().zip(operations).and_then(|(before, operations)| {
                    // what is as long as the value is written whole; a node whose children change one by one would copy them all each time
                    let is_short = before.len() + operations.len() < value.len();
                    is_short.then(|| [before, &operations].concat())
                })
            }
            (None, operations) => operations,
        };
        if is_leaf {
            self.tree.bytes += value.len() as u64;
        }
        let kind = if is_leaf { self.paged.kind } else { ValueKind::List };
        let replaced_bytes = replaced.map_or(0, Leaf::bytes);
        let node = Leaf::Is { kind, value, operations };
        self.access.ask(node.bytes().saturating_sub(replaced_bytes))?;
        self.nodes.insert(number | NODE, node);
        Ok(())
    }

    /// Whether a node with elements of so many bytes, and so many of them, becomes several.
    pub(super) fn is_too_large(&self, elements_bytes: usize, len: usize, is_leaf: bool) -> bool {
        let len_min = if is_leaf { 2 } else { 2 * CHILDREN_MIN };
        elements_bytes as u64 > 2 * self.leaf_bytes() && len >= len_min
    }

    /// Whether a node with elements of so many bytes is put together with the one beside it, if there is one.
    pub(super) fn is_small(&self, elements_bytes: usize) -> bool {
        (elements_bytes as u64) < self.leaf_bytes() / 2
    }

    /// Whether to use a node that can be done without: each that is cold costs a read that no other can go with, so there are a few of
    /// them at most in all commands of an access.
    fn may_use(&mut self, number: u32, is_leaf: bool) -> Result<bool, Stop> {
        let is_to_read = self.access.effort.use_extra();
        match LookedAt::of(self).value(self.paged, number, is_leaf) {
            Err(Stop::Cold) if !is_to_read => Ok(false),
            found => found.map(|_| true),
        }
    }

    /// A number for a new node.
    fn take_number(&mut self) -> Result<u32, Stop> {
        let free = self.tree.free;
        if free != NO_NODE && (self.tree.nodes == NODES_MAX || self.may_use(free, false)?) {
            let number = self.tree.free;
            let next = next_free(self.node(number, false)?);
            self.tree.free = next
                .filter(|next| *next < self.tree.nodes || *next == NO_NODE)
                .ok_or_else(|| damaged(self.paged, "a free node does not name the next"))?;
            return Ok(number);
        }
        if self.tree.nodes == NODES_MAX {
            let limit_bytes = self.tree.bytes;
            return Err(StoreError::ValueTooLarge { size_bytes: limit_bytes, limit_bytes }.into());
        }
        self.tree.nodes += 1;
        Ok(self.tree.nodes - 1)
    }

    /// Lets a node be free.
    pub(super) fn free(&mut self, number: u32) {
        let value = free_node(self.tree.free);
        self.nodes.insert(number | NODE, Leaf::Is { kind: ValueKind::List, value, operations: None });
        self.tree.free = number;
    }
}
