//! The tree of a collection that is made anew: leaves as its elements come, then the levels above them.

use journal::Keyspace;

use super::runs::Owned;
use super::writer::Writer;
use crate::error::StoreError;
use crate::hash::KeyHasher;
use crate::options::Options;
use crate::value::ValueKind;
use collections::tree::{Child, NO_NODE, NODE, Tree, bound_between, cut_inner, inner_node, part};
use collections::{Edit, Element, ListEdit, OrderedEdit, Packed, Shape, score_of};

/// A tree that grows.
pub(super) struct Grown<'g> {
    hasher: &'g KeyHasher,
    leaves: Keyspace,
    object: u64,
    kind: ValueKind,
    /// Elements that make the next leaf, and about how many bytes they have.
    waiting: Vec<Owned>,
    waiting_bytes: u64,
    /// The last element of the leaf before.
    last: Option<Owned>,
    /// The leaves, as children.
    children: Vec<Vec<u8>>,
    tree: Tree,
    count: u64,
    leaf_bytes: u64,
}

impl<'g> Grown<'g> {
    /// An empty one.
    pub(super) fn new(hasher: &'g KeyHasher, leaves: Keyspace, object: u64, kind: ValueKind) -> Self {
        Self {
            hasher,
            leaves,
            object,
            kind,
            waiting: Vec::new(),
            waiting_bytes: 0,
            last: None,
            children: Vec::new(),
            tree: Tree { bytes: 0, nodes: 0, top: 0, free: NO_NODE, depth: 0 },
            count: 0,
            leaf_bytes: Options::default().leaf_bytes,
        }
    }

    /// Adds an element behind all others.
    pub(super) fn push(&mut self, writer: &mut Writer, (key, value): Element<'_>) -> Result<(), StoreError> {
        let bytes = (key.len() + value.len() + ENTRY_BYTES) as u64;
        if bytes > self.leaf_bytes {
            // what is larger than a leaf is one alone
            self.end_leaf(writer)?;
        }
        self.waiting.push((key.to_vec(), value.to_vec()));
        self.waiting_bytes += bytes;
        self.count += 1;
        if self.waiting_bytes >= self.leaf_bytes { self.end_leaf(writer) } else { Ok(()) }
    }

    /// The tree, and how many elements it has; `None`: there are none.
    pub(super) fn end(mut self, writer: &mut Writer) -> Result<Option<(Tree, u64)>, StoreError> {
        self.end_leaf(writer)?;
        if self.count == 0 {
            return Ok(None);
        }
        while self.children.len() > 1 {
            self.end_level(writer)?;
        }
        let top = Child::decode(&self.children[0]).expect("encoded here");
        self.tree.top = top.node;
        Ok(Some((self.tree, self.count)))
    }

    fn end_leaf(&mut self, writer: &mut Writer) -> Result<(), StoreError> {
        let (elements, shape) = (std::mem::take(&mut self.waiting), self.shape());
        self.waiting_bytes = 0;
        let (Some(first), Some(last)) = (elements.first(), elements.last()) else { return Ok(()) };
        let before = self.last.as_ref().map(|(key, value)| (&key[..], &value[..]));
        // the first child's bound says nothing
        let bound = before.map_or_else(Vec::new, |last| bound_between(shape, last, (&first.0, &first.1)));
        self.last = Some(last.clone());
        let value = self.packed(&elements);
        let value = part(Packed::new(shape, &value), 0..elements.len());
        let node = self.put(writer, self.kind, &value)?;
        self.children.push(Child { node, count: elements.len() as u64, bound: &bound }.encode());
        self.tree.bytes += value.len() as u64;
        Ok(())
    }

    fn packed(&self, elements: &[Owned]) -> Vec<u8> {
        let empty = Packed::empty(self.shape());
        match self.shape() {
            Shape::List => {
                let mut edit = ListEdit::new(empty);
                elements.iter().for_each(|(value, _)| edit.push_back(value));
                edit.encode()
            }
            Shape::Ordered => {
                let mut edit = OrderedEdit::new(empty);
                elements.iter().for_each(|(key, value)| edit.put(key, value));
                edit.encode()
            }
            _ => {
                let mut edit = Edit::new(empty);
                for (member, score) in elements {
                    edit.put_score(self.hasher.hash(member).low_bits(), member, score_of(score));
                }
                edit.encode()
            }
        }
    }

    /// Lets nodes be above the children that there are.
    fn end_level(&mut self, writer: &mut Writer) -> Result<(), StoreError> {
        let below = std::mem::take(&mut self.children);
        let all = inner_node(below.iter().map(|child| &child[..]));
        let all = Packed::new(Shape::List, &all);
        let child = |at: usize| Child::decode(&below[at]).expect("encoded here");
        for run in cut_inner(all, self.leaf_bytes) {
            let count = run.clone().map(|at| child(at).count).sum();
            let bound = child(run.start).bound;
            let node = self.put(writer, ValueKind::List, &part(all, run))?;
            self.children.push(Child { node, count, bound }.encode());
        }
        self.tree.depth += 1;
        Ok(())
    }

    fn put(&mut self, writer: &mut Writer, kind: ValueKind, value: &[u8]) -> Result<u32, StoreError> {
        let number = self.tree.nodes;
        writer.put_node(self.leaves, self.object, number | NODE, kind, value)?;
        self.tree.nodes += 1;
        Ok(number)
    }

    fn shape(&self) -> Shape {
        self.kind.shape().expect("a type of collections")
    }
}

/// About what an element takes beside its bytes.
const ENTRY_BYTES: usize = 6;
