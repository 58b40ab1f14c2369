//! The counted tree of a large list, sorted set or stream: an element is found by its number or in its order, by a node of each level.
//!
//! ```text
//! root     top 3, depth 1
//! node 3   (node 0, 61 elements) (node 2, 58 elements, from "q")        an inner node: children in order
//! node 0   LIST { ... }          node 2   LIST { ... }                  leaves: values of the collection's type
//! node 1   (next 4294967295)                                            free: another will take its number
//! ```
//!
//! Nodes are values like any other, in the keyspace of leaves, by (object, number + 2^31). An inner node is a list whose elements are children:
//!
//! ```text
//! 0 node u32 | 4 count u64 | 12 bound
//! ```
//!
//! All elements of a child are at or behind its bound, and those of the children before it are before it; that of the first child says
//! nothing. The bound of a sorted set's child is score f64 | member, that of a stream's is a key; in a list there are none. Bounds are no
//! longer than is needed to tell the neighbours apart.
//!
//! Invariants
//!   1. Each number below `nodes` is a node of the tree or a free one: who removes all of them need not know which is which.
//!   2. An inner node has a child, and all leaves are at the same depth. Only the leaf that is the top may be empty.

use std::ops::Range;

use smallvec::SmallVec;

use crate::list::{SPLICE_BYTES_FEW, Spliced, splice_operation};
use crate::{Element, Form, Packed, Shape, range, score_of};

/// What the root says of the tree.
///
/// ```text
/// 0 bytes u64 | 8 nodes u32 | 12 top u32 | 16 free u32 | 20 depth u32
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// About how many bytes its leaves have.
    pub bytes: u64,
    /// Numbers in use, free ones included.
    pub nodes: u32,
    /// The node at which each way begins.
    pub top: u32,
    /// The free node whose number is taken next, or [`NO_NODE`].
    pub free: u32,
    /// Levels of inner nodes.
    pub depth: u32,
}

impl Tree {
    /// The tree in `bytes`, which are as many as [`Tree::encode`] makes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk()?;
        let bytes = u64::from_le_bytes(*head);
        let (numbers, []) = rest.as_chunks::<4>() else { return None };
        let [nodes, top, free, depth] = *<&[[u8; 4]; 4]>::try_from(numbers).ok()?;
        let [nodes, top, free, depth] = [nodes, top, free, depth].map(u32::from_le_bytes);
        let is_valid =
            nodes <= NODES_MAX && top < nodes && (free < nodes || free == NO_NODE) && depth <= DEPTH_MAX;
        is_valid.then_some(Self { bytes, nodes, top, free, depth })
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; TREE_BYTES] {
        let mut out = [0; TREE_BYTES];
        let (bytes, numbers) = out.split_at_mut(8);
        bytes.copy_from_slice(&self.bytes.to_le_bytes());
        for (to, number) in numbers.chunks_exact_mut(4).zip([self.nodes, self.top, self.free, self.depth]) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        out
    }
}

/// A child, as its parent has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child<'a> {
    /// Its number.
    pub node: u32,
    /// Elements below it.
    pub count: u64,
    /// Where its elements begin.
    pub bound: &'a [u8],
}

impl<'a> Child<'a> {
    /// The child that is this element of an inner node.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (node, rest) = bytes.split_first_chunk()?;
        let (count, bound) = rest.split_first_chunk()?;
        Some(Self { node: u32::from_le_bytes(*node), count: u64::from_le_bytes(*count), bound })
    }

    /// Its bytes, as an element of its parent.
    pub fn encode(&self) -> Vec<u8> {
        [&self.node.to_le_bytes()[..], &self.count.to_le_bytes(), self.bound].concat()
    }
}

/// Another count of a child, which overwrites the one that its parent has.
#[derive(Clone, Copy, Debug)]
pub struct Recount {
    index: usize,
    place: Spliced,
    count: u64,
    /// The first bytes of the count, which alone are others than before, are so many.
    len: usize,
}

impl Recount {
    /// Of child number `index` of `node`, below which there are so many elements `more`; `None` if this is no child.
    ///
    /// # Panics
    /// If there is no element of this number.
    #[must_use]
    pub fn of(node: &Packed<'_>, index: usize, more: i64) -> Option<Self> {
        let before = Child::decode(node.element(index).0)?.count;
        let count = before.saturating_add_signed(more);
        let changed_bits = u64::BITS - (before ^ count).leading_zeros();
        let len = (changed_bits.div_ceil(8) as usize).max(1);
        Some(Self { index, place: Spliced::at(node, index, COUNT_AT), count, len })
    }

    /// Writes it into the value that the node was read from.
    pub fn write(&self, value: &mut [u8]) {
        self.place.write(value, &self.count.to_le_bytes()[..self.len]);
    }

    /// The operation that it is.
    #[must_use]
    pub fn operation(&self) -> SmallVec<[u8; SPLICE_BYTES_FEW]> {
        splice_operation(self.index, COUNT_AT, &self.count.to_le_bytes()[..self.len])
    }
}

/// The element at which a bound of a collection of this shape is; `None`: it is none.
pub fn element_at(shape: Shape, bound: &[u8]) -> Option<Element<'_>> {
    match shape {
        Shape::Scored => {
            let (score, member) = bound.split_at_checked(size_of::<f64>())?;
            (!score_of(score).is_nan()).then_some((member, score))
        }
        _ => Some((bound, &[])),
    }
}

/// A bound between two elements that follow each other.
pub fn bound_between(shape: Shape, left: Element<'_>, right: Element<'_>) -> Vec<u8> {
    let shortest = |left: &[u8], right: &[u8]| {
        let common = left.iter().zip(right).take_while(|(a, b)| a == b).count();
        right[..right.len().min(common + 1)].to_vec()
    };
    match shape {
        Shape::Ordered => shortest(left.0, right.0),
        Shape::Scored if score_of(left.1) < score_of(right.1) => right.1.to_vec(),
        Shape::Scored => [right.1, &shortest(left.0, right.0)[..]].concat(),
        Shape::List | Shape::Map | Shape::Set => Vec::new(),
    }
}

/// The elements of a leaf in runs of about `run_bytes`: one run, if it has no more. An element that is larger is a run of its own, and leaves
/// those before and behind it together.
pub fn cut_leaf(packed: Packed<'_>, run_bytes: u64) -> Vec<Range<usize>> {
    let (mut cuts, mut from) = (Vec::new(), 0);
    for at in 0..packed.len() {
        if (packed.end(at + 1) - packed.end(at)) as u64 > run_bytes {
            if from < at {
                cuts.extend(cut(packed, from..at, run_bytes, 1));
            }
            cuts.push(at..at + 1);
            from = at + 1;
        }
    }
    if from < packed.len() || cuts.is_empty() {
        cuts.extend(cut(packed, from..packed.len(), run_bytes, 1));
    }
    cuts
}

/// The children of an inner node in runs of about `run_bytes` and of [`CHILDREN_MIN`] at least: one run, if it has no more.
pub fn cut_inner(packed: Packed<'_>, run_bytes: u64) -> Vec<Range<usize>> {
    cut(packed, 0..packed.len(), run_bytes, CHILDREN_MIN)
}

/// Elements number `all` in equal runs of about `run_bytes` and of `len_min` elements at least.
fn cut(packed: Packed<'_>, all: Range<usize>, run_bytes: u64, len_min: usize) -> Vec<Range<usize>> {
    let (begin, mut from) = (packed.end(all.start), all.start);
    let bytes = packed.end(all.end) - begin;
    let runs = (bytes as u64 / run_bytes.max(1)).clamp(1, (all.len() / len_min).max(1) as u64) as usize;
    let mut cuts = Vec::with_capacity(runs);
    for run in 1..runs {
        let until = begin + (bytes as u128 * run as u128 / runs as u128) as usize;
        let room = all.end - (runs - run) * len_min;
        let mut to = (from + len_min).min(room);
        while to < room && packed.end(to) < until {
            to += 1;
        }
        cuts.push(from..to);
        from = to;
    }
    cuts.push(from..all.end);
    cuts
}

/// The value of a free node, after which `next` is taken.
pub fn free_node(next: u32) -> Vec<u8> {
    inner_node([&next.to_le_bytes()[..]].into_iter())
}

/// The free node that is taken after the one with this value.
pub fn next_free(value: &[u8]) -> Option<u32> {
    let node = Packed::new(Shape::List, value);
    let next = (node.len() == 1).then(|| node.element(0).0)?;
    next.try_into().ok().map(u32::from_le_bytes)
}

/// The value of an inner node with these children.
pub fn inner_node<'a>(children: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut edit = crate::ListEdit::new(Packed::empty(Shape::List));
    children.for_each(|child| edit.push_back(child));
    edit.encode()
}

/// Elements number `at` of `packed`, by themselves.
pub fn part(packed: Packed<'_>, at: Range<usize>) -> Vec<u8> {
    range(packed, Form::Table, at)
}

/// In the number of a node's key: it is one of the tree, and no leaf that is found by hash.
pub const NODE: u32 = 1 << 31;
/// No node has this number.
pub const NO_NODE: u32 = u32::MAX;
/// Nodes of a tree, at most.
pub const NODES_MAX: u32 = NODE - 1;
/// An inner node that is made has this many children at least.
pub const CHILDREN_MIN: usize = 2;
/// Of a tree with two children a node.
pub const DEPTH_MAX: u32 = 32;
/// Where a child has its count.
const COUNT_AT: usize = size_of::<u32>();
/// Bytes of a [`Tree`].
pub const TREE_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ListEdit, fold};

    #[test]
    fn tree_and_child_are_pinned_because_folders_depend_on_them() {
        let tree = Tree { bytes: 5_000, nodes: 4, top: 3, free: 1, depth: 1 };
        let bytes = tree.encode();
        assert_eq!(&bytes, b"\x88\x13\0\0\0\0\0\0\x04\0\0\0\x03\0\0\0\x01\0\0\0\x01\0\0\0");
        assert_eq!(Tree::decode(&bytes), Some(tree));
        assert_eq!(Tree::decode(&bytes[..23]), None);
        assert_eq!(Tree::decode(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(Tree::decode(&[0; TREE_BYTES]), None, "no node");
        let child = Child { node: 7, count: 300, bound: b"key" };
        let bytes = child.encode();
        assert_eq!(bytes, b"\x07\0\0\0\x2c\x01\0\0\0\0\0\0key");
        assert_eq!(Child::decode(&bytes), Some(child));
        assert_eq!(Child::decode(&bytes[..11]), None);
    }

    #[test]
    fn bounds_are_between_their_elements() {
        let [one, two] = [1.0_f64, 2.0].map(f64::to_le_bytes);
        for (left, right, bound) in [
            ((&b"a"[..], &one[..]), (&b"b"[..], &two[..]), two.to_vec()),
            ((b"abcd", &one), (b"abzz", &one), [&one[..], b"abz"].concat()),
            ((b"ab", &one), (b"abzz", &one), [&one[..], b"abz"].concat()),
        ] {
            assert_eq!(bound_between(Shape::Scored, left, right), bound);
        }
        assert_eq!(bound_between(Shape::Ordered, (b"e12", b""), (b"e2345", b"")), b"e2");
        assert_eq!(element_at(Shape::Scored, &one[..7]), None);
        assert_eq!(element_at(Shape::Scored, &f64::NAN.to_le_bytes()), None);
    }

    #[test]
    fn runs_have_all_elements_and_about_the_same_bytes() {
        for (len, value_bytes, run_bytes, len_min) in [
            (1, 10, 100, 1),
            (2, 500, 100, 1),
            (100, 10, 200, 1),
            (7, 100, 10, 2),
            (3, 0, 1, 2),
            (50, 30, 1, 2),
        ] {
            let mut edit = ListEdit::new(Packed::empty(Shape::List));
            (0..len).for_each(|at| edit.push_back(&vec![b'v'; at % 3 * value_bytes]));
            let value = edit.encode();
            let runs = cut(Packed::new(Shape::List, &value), 0..len, run_bytes, len_min);
            assert_eq!(runs.iter().flat_map(Clone::clone).collect::<Vec<_>>(), (0..len).collect::<Vec<_>>());
            assert!(runs.len() == 1 || runs.iter().all(|run| run.len() >= len_min), "{runs:?}");
        }
    }

    #[test]
    fn element_larger_than_a_run_is_one_alone_and_multiplies_no_others() {
        let list = |sizes: &[usize]| {
            let mut edit = ListEdit::new(Packed::empty(Shape::List));
            sizes.iter().for_each(|size| edit.push_back(&vec![b'v'; *size]));
            edit.encode()
        };
        let cut = |sizes: &[usize]| cut_leaf(Packed::new(Shape::List, &list(sizes)), 100);
        let lengths = |sizes: &[usize]| cut(sizes).iter().map(ExactSizeIterator::len).collect::<Vec<_>>();
        assert_eq!(lengths(&[]), [0]);
        assert_eq!(lengths(&[9_000]), [1]);
        assert_eq!(lengths(&[9_000, 5, 5, 5]), [1, 3]);
        assert_eq!(lengths(&[5, 5, 9_000, 5]), [2, 1, 1]);
        assert_eq!(lengths(&[9_000, 9_000, 9_000]), [1, 1, 1]);
        let many: Vec<usize> = [vec![9_000], vec![9; 100], vec![9_000], vec![9; 100]].concat();
        let runs = cut(&many);
        assert_eq!(
            runs.iter().flat_map(Clone::clone).collect::<Vec<_>>(),
            (0..many.len()).collect::<Vec<_>>()
        );
        assert_eq!(runs.len(), 22);
    }

    #[test]
    fn count_is_overwritten_and_logged_without_the_bound() {
        let child = |count: u64| Child { node: 7, count, bound: &[b'b'; 300] }.encode();
        for (count, more, logged) in
            [(3, 1, 1), (255, 1, 2), (1 << 40, -1, 6), (9, 0, 1), (u64::MAX, 5, 1), (0, -5, 1)]
        {
            let children = [child(1), child(count), child(2)];
            let mut value = inner_node(children.iter().map(Vec::as_slice));
            let before = value.clone();
            let recount = Recount::of(&Packed::new(Shape::List, &before), 1, more).expect("a child");
            recount.write(&mut value);
            let expected = child(count.saturating_add_signed(more));
            assert_eq!(Packed::new(Shape::List, &value).element(1).0, expected);
            let operation = recount.operation();
            assert_eq!(operation[..4], [16, 1, 4, logged]);
            assert_eq!(operation.len(), 4 + usize::from(logged));
            assert_eq!(fold(Shape::List, &before, &[&operation]), Some(value));
        }
        assert!(
            Recount::of(&Packed::new(Shape::List, &inner_node([&b"short"[..]].into_iter())), 0, 1).is_none()
        );
    }

    #[test]
    fn free_nodes_name_the_next() {
        assert_eq!(next_free(&free_node(9)), Some(9));
        assert_eq!(next_free(&inner_node([&b"no"[..]].into_iter())), None);
    }
}
