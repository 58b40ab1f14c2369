//! What is left of a large collection, and which elements the new one has.
//!
//! - Hashes and sets: the elements of all leaves, with their deadlines. One that is not in the leaf of its hash comes from a leaf that was split since; it counts if
//!   its own leaf does not have it.
//! - Streams: the elements of all leaves, by key. Of a key that is there twice the newest leaf counts.
//! - Sorted sets: members are there twice. The leaves by hash say which score a member has; members that only the tree has are added to them,
//!   and those that only they have to the tree.
//! - Lists: the leaves as the nodes above them name them. Those that none names come last, by their numbers (`order`).
//!
//! Memory: the children of the new tree, the elements that are in leaves of another hash, and of a sorted set about forty bytes for each member.

use std::collections::{BTreeMap, HashMap};

use journal::{Keyspace, Seq};

use super::grown::Grown;
use super::runs::{Owned, Place, Run, merge};
use super::writer::Writer;
use crate::check::collections::{comes_before, is_entry};
use crate::check::nodes::{Found, Node, State};
use crate::error::StoreError;
use crate::hash::{KeyHash, KeyHasher};
use crate::record;
use crate::value::ValueKind;
use collections::root::{Root, leaf_of};
use collections::tree::{NODE, Tree};
use collections::{Deadline, Edit, Element, Form, Packed, Shape, by_score};

/// What is left of a collection.
pub(super) struct Remains<'r, 'a> {
    found: &'r mut Found<'a>,
    hasher: &'r KeyHasher,
    leaves: Keyspace,
    kind: ValueKind,
    pub(super) root: Root,
    /// By number, as those that follow.
    hashed: Vec<Node>,
    pub(super) nodes: Vec<Node>,
    /// Elements for leaves that they are not in, and when they end, by leaf.
    strays: BTreeMap<u32, Vec<(Owned, Option<Deadline>)>>,
    /// Of a sorted set: each member's score.
    scores: HashMap<u128, Score>,
    /// Leaves of a list that no node names.
    pub(super) unplaced: u64,
    /// Elements of a stream that are no entries.
    pub(super) others: u64,
}

/// The score of a member.
struct Score {
    score: [u8; 8],
    /// The tree has it, too.
    is_in_tree: bool,
}

impl<'r, 'a> Remains<'r, 'a> {
    /// Looks for what is left of the collection that is `root`, whose leaves are in keyspace `leaves`.
    pub(super) fn gather(
        found: &'r mut Found<'a>,
        hasher: &'r KeyHasher,
        leaves: Keyspace,
        kind: ValueKind,
        root: Root,
    ) -> Self {
        let of = |node: &Node| (node.leaves, node.object) == (leaves, root.object);
        let (hashed, nodes) = found.collected.nodes.of(leaves, root.object);
        // an older root has fewer
        let beyond = found.collected.loose.iter().map(|loose| loose.node).filter(of);
        let all = hashed.iter().chain(nodes).copied().chain(beyond);
        let (mut hashed, mut nodes): (Vec<Node>, Vec<Node>) = all.partition(|node| node.number & NODE == 0);
        hashed.sort_unstable_by_key(|node| node.number);
        nodes.sort_unstable_by_key(|node| node.number);
        // leaves that are not there are made empty: a count that no log had would make them without end
        let known = hashed.last().map_or(0, |leaf| leaf.number);
        let leaves_max = known.saturating_mul(4).saturating_add(LOST_MAX);
        let root = Root { leaves: root.leaves.min(leaves_max), ..root };
        let (strays, scores) = (BTreeMap::new(), HashMap::new());
        let mut remains =
            Self { found, hasher, leaves, kind, root, hashed, nodes, strays, scores, unplaced: 0, others: 0 };
        if remains.root.leaves > 0 {
            remains.gather_hashed();
        }
        remains
    }

    /// Writes the new collection of `key` as `object`; returns its root, `None` if no element is left.
    pub(super) fn write(
        &mut self,
        writer: &mut Writer,
        key: &[u8],
        object: u64,
    ) -> Result<Option<Root>, StoreError> {
        let (leaves, is_timed) = (self.root.leaves, self.root.is_timed);
        let mut root = Root { object, count: 0, bytes: 0, leaves, tree: None, is_timed };
        if self.root.tree.is_some() {
            let Some((tree, count)) = self.write_tree(writer, object)? else { return Ok(None) };
            (root.tree, root.count) = (Some(tree), count);
        }
        let is_hashed = !self.hashed.is_empty() || !self.strays.is_empty();
        if self.root.leaves > 0 && is_hashed {
            (root.count, root.bytes) = self.write_hashed(writer, object)?;
        }
        if is_timed && root.count > 0 {
            writer.put_key_node(self.leaves, object, key)?;
        }
        Ok(Some(root).filter(|root| root.count > 0))
    }

    /// What a node is, if it is of this type.
    pub(super) fn state(&mut self, node: &Node, kind: ValueKind) -> Option<State> {
        self.found.state(&node.record).ok().filter(|state| state.kind == record::kind_of(kind))
    }

    /// Hands out the elements of a leaf that is found by hash, with their deadlines, and whether each is where its hash says.
    fn each_hashed(
        &mut self,
        leaf: &Node,
        mut each: impl FnMut(&mut Self, (Element<'_>, Option<Deadline>), KeyHash, bool),
    ) {
        let kind = self.kind.hashed();
        let Some(state) = self.state(leaf, kind) else { return };
        let packed = Packed::new(kind.shape().expect("a type of collections"), state.value());
        for at in 0..packed.len() {
            let (key, value) = packed.element(at);
            if self.kind == ValueKind::SortedSet && !is_score(value) {
                continue;
            }
            let hash = self.hasher.hash(key);
            let is_own = leaf_of(hash.0, self.root.leaves) == leaf.number;
            each(self, ((key, value), packed.deadline(at)), hash, is_own);
        }
    }

    fn gather_hashed(&mut self) {
        for leaf in self.hashed.clone() {
            self.each_hashed(&leaf, |this, (element, deadline), hash, is_own| {
                this.note_score(element, is_own);
                if !is_own {
                    this.add_stray(element, deadline, hash);
                }
            });
        }
        if self.kind == ValueKind::SortedSet {
            self.match_tree();
        }
    }

    fn add_stray(&mut self, (key, value): Element<'_>, deadline: Option<Deadline>, hash: KeyHash) {
        let strays = self.strays.entry(leaf_of(hash.0, self.root.leaves)).or_default();
        strays.push(((key.to_vec(), value.to_vec()), deadline));
    }

    fn note_score(&mut self, (member, value): Element<'_>, is_own: bool) {
        let Ok(score) = value.try_into() else { return };
        if self.kind == ValueKind::SortedSet {
            let known = self.scores.entry(self.hasher.uncut(member));
            let known = known.or_insert(Score { score, is_in_tree: false });
            if is_own {
                known.score = score;
            }
        }
    }

    /// Compares the leaves of a sorted set's tree with those that are found by hash, and adds to these what they lack.
    fn match_tree(&mut self) {
        for leaf in self.nodes.clone() {
            let Some(state) = self.state(&leaf, self.kind) else { continue };
            for (member, value) in Packed::new(Shape::Scored, state.value()).iter() {
                let score = value.try_into().expect("a score");
                match self.scores.get_mut(&self.hasher.uncut(member)) {
                    Some(known) => known.is_in_tree |= known.score == score,
                    None => {
                        let print = self.hasher.uncut(member);
                        self.scores.insert(print, Score { score, is_in_tree: true });
                        self.add_stray((member, value), None, self.hasher.hash(member));
                    }
                }
            }
        }
    }

    /// The members that only leaves by hash have, by score.
    fn left_over(&mut self) -> Vec<Owned> {
        let mut members = Vec::new();
        for leaf in self.hashed.clone() {
            self.each_hashed(&leaf, |this, ((member, _), _), _, _| {
                if let Some(known) = this.scores.get_mut(&this.hasher.uncut(member))
                    && !known.is_in_tree
                {
                    known.is_in_tree = true;
                    members.push((member.to_vec(), known.score.to_vec()));
                }
            });
        }
        members.sort_unstable_by(|(a, a_score), (b, b_score)| by_score((a, a_score), (b, b_score)));
        members
    }

    /// Writes the leaves that are found by hash; returns how many elements and bytes they have.
    fn write_hashed(&mut self, writer: &mut Writer, object: u64) -> Result<(u64, u64), StoreError> {
        let (mut count, mut bytes) = (0, 0);
        let kind = self.kind.hashed();
        let shape = kind.shape().expect("a type of collections");
        for number in 0..self.root.leaves {
            let mut edit = Edit::new(Packed::empty(shape));
            if let Ok(at) = self.hashed.binary_search_by_key(&number, |leaf| leaf.number) {
                let leaf = self.hashed[at];
                self.each_hashed(&leaf, |_, element, hash, is_own| {
                    if is_own {
                        put(&mut edit, shape, element.0, element.1, hash);
                    }
                });
            }
            for ((key, value), deadline) in self.strays.remove(&number).unwrap_or_default() {
                put(&mut edit, shape, (&key, &value), deadline, self.hasher.hash(&key));
            }
            let value = edit.encode();
            let packed = Packed::new(shape, &value);
            let value = collections::concat(shape, Form::Table, &[packed]);
            writer.put_node(self.leaves, object, number, kind, &value)?;
            count += packed.len() as u64;
            bytes += value.len() as u64;
        }
        Ok((count, bytes))
    }

    /// Writes the tree; returns it, and how many elements it has.
    fn write_tree(&mut self, writer: &mut Writer, object: u64) -> Result<Option<(Tree, u64)>, StoreError> {
        let mut grown = Grown::new(self.hasher, self.leaves, object, self.kind);
        let shape = self.kind.shape().expect("a type of collections");
        if shape == Shape::List {
            for leaf in self.list_order() {
                let Some(state) = self.state(&leaf, ValueKind::List) else { continue };
                let leaf = Packed::new(shape, state.value());
                leaf.iter().try_for_each(|element| grown.push(writer, element))?;
            }
            return grown.end(writer);
        }
        let places = self.places(shape);
        let more = if shape == Shape::Scored { self.left_over() } else { Vec::new() };
        let more = Run::new(more, Seq::NONE).into_iter().collect();
        // leaves are read while elements are written
        let (scores, hasher) = (std::mem::take(&mut self.scores), self.hasher);
        let counts = |(member, score): Element<'_>| {
            shape != Shape::Scored
                || scores.get(&hasher.uncut(member)).is_some_and(|known| known.score == score)
        };
        let mut others = 0;
        let each = |element: Element<'_>| {
            others += u64::from(shape == Shape::Ordered && !is_entry(element));
            if counts(element) { grown.push(writer, element) } else { Ok(()) }
        };
        merge(shape, &places, more, |leaf| self.run(leaf), each)?;
        self.others = others;
        grown.end(writer)
    }

    /// The leaves of a stream or a sorted set, by their first elements.
    fn places(&mut self, shape: Shape) -> Vec<Place<Node>> {
        let mut places: Vec<Place<Node>> = Vec::new();
        for leaf in self.nodes.clone() {
            let Some(state) = self.state(&leaf, self.kind) else { continue };
            if let Some((key, value)) = Packed::new(shape, state.value()).iter().next() {
                places.push(((key.to_vec(), value.to_vec()), leaf));
            }
        }
        places.sort_by(|((a, a_value), _), ((b, b_value), _)| {
            let (a, b): (Element<'_>, Element<'_>) = ((a, a_value), (b, b_value));
            comes_before(shape, b, a).cmp(&comes_before(shape, a, b))
        });
        places
    }

    fn run(&mut self, leaf: &Node) -> Option<Run> {
        let state = self.state(leaf, self.kind)?;
        let packed = Packed::new(self.kind.shape().expect("a type of collections"), state.value());
        let elements = packed.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        Run::new(elements, state.seq)
    }
}

/// Adds an element to a leaf, unless it has it.
fn put(
    edit: &mut Edit<'_>,
    shape: Shape,
    (key, value): Element<'_>,
    deadline: Option<Deadline>,
    hash: KeyHash,
) {
    let tag = hash.low_bits();
    match shape {
        Shape::Set => _ = edit.add(tag, key),
        _ if edit.get(tag, key).is_none() => {
            edit.put(tag, key, value);
            edit.set_deadline(tag, key, deadline);
        }
        _ => {}
    }
}

fn is_score(value: &[u8]) -> bool {
    value.try_into().is_ok_and(|bytes| !f64::from_le_bytes(bytes).is_nan())
}

/// A root may count so many leaves more than four times those that are left.
const LOST_MAX: u32 = 1 << 16;
