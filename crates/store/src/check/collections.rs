//! Large collections under `check`: whether root, inner nodes and leaves count the same and have it in order.
//!
//! ```text
//! root     500 elements                  what the top has
//! node 9   61 below node 0, ...          what node 0 has: a leaf its elements, an inner node what it counts
//! ```
//!
//! Each count is compared with what stands one level below, so that one that is wrong is reported once. A tree is walked from its top, leaf by
//! leaf in order: in memory there is one node of each level. Leaves that are found by hash are read one after the other.
//!
//! A folder with damage is judged, too: what follows from it names the keys that are hurt.

use std::collections::BTreeSet;

use journal::LogAddress;

use super::leaves::RootRecord;
use super::nodes::{Found, Node, State};
use crate::hash::KeyHasher;
use crate::record;
use crate::value::ValueKind;
use collections::root::{Root, leaf_of};
use collections::tree::{Child, NO_NODE, NODE, Tree, element_at, next_free};
use collections::{Element, Packed, STREAM_ENTRY, Shape, by_score, score_of};

/// What is wrong, where each of it is: the first few, and how many more.
#[derive(Default)]
pub(super) struct Faults {
    pub(super) told: Vec<(LogAddress, String)>,
    pub(super) more: u64,
}

impl Faults {
    pub(super) fn add(&mut self, address: LogAddress, what: String) {
        if self.told.len() < FAULTS_MAX {
            self.told.push((address, what));
        } else {
            self.more += 1;
        }
    }
}

/// Judges all collections of `found`.
pub(super) fn judge(found: &mut Found<'_>, hasher: &KeyHasher, faults: &mut Faults) {
    let mut former: Option<(RootRecord, String)> = None;
    for at in 0..found.collected.roots.len() {
        let root = found.collected.roots[at];
        let Some(name) = judge_root(&root, found, hasher, faults) else { continue };
        if let Some((other, other_name)) = &former
            && (other.leaves, other.of.object) == (root.leaves, root.of.object)
        {
            faults.add(root.record.address, format!("{name} has the leaves of {other_name}"));
        }
        former = Some((root, name));
    }
}

/// What is wrong with the collection of a root.
pub(crate) fn faults_of(
    root: &RootRecord,
    found: &mut Found<'_>,
    hasher: &KeyHasher,
) -> Vec<(LogAddress, String)> {
    let mut faults = Faults::default();
    judge_root(root, found, hasher, &mut faults);
    faults.told
}

/// Judges the collection of `root`; returns how it is named.
fn judge_root(
    at: &RootRecord,
    found: &mut Found<'_>,
    hasher: &KeyHasher,
    faults: &mut Faults,
) -> Option<String> {
    let address = at.record.address;
    let state = match found.state(&at.record) {
        Ok(state) => state,
        Err(why) => {
            faults.add(address, format!("the root of object {:016x} cannot be read: {why}", at.of.object));
            return None;
        }
    };
    let root = record::root_of(state.kind, state.value())?;
    let (kind, name) = (ValueKind::of(state.kind), name_of(&state, &root));
    let mut judge = Judge { found, hasher, faults, at: *at, kind, root, name };
    if let Some(why) = &state.cut {
        judge.fault(address, &format!("its root is cut short: {why}"));
    }
    let hashed = judge.hashed();
    if root.is_timed {
        judge.key_node(state.key());
    }
    if let Some(tree) = judge.root.tree {
        let walked = judge.tree(&tree);
        judge.compare_orders(&hashed, &walked);
    }
    Some(judge.name)
}

/// A collection that is judged.
struct Judge<'j, 'a> {
    found: &'j mut Found<'a>,
    hasher: &'j KeyHasher,
    faults: &'j mut Faults,
    at: RootRecord,
    kind: ValueKind,
    root: Root,
    name: String,
}

/// What leaves have together.
#[derive(Default)]
struct Sum {
    count: u64,
    bytes: u64,
    /// Sum of the hashes of elements: the same in whatever order they come.
    prints: u128,
    /// Elements of a stream that are no entries.
    others: u64,
    /// Something was not there, or not as it must be.
    is_partial: bool,
}

/// A tree that is walked.
#[derive(Default)]
struct Walk {
    sum: Sum,
    /// Nodes that were met, and those that were named and are not there.
    met: BTreeSet<u32>,
    missing: BTreeSet<u32>,
}

/// Which elements a node may have: from the first bound on, those before the second.
type Bounds<'b> = (Option<&'b [u8]>, Option<&'b [u8]>);

impl Judge<'_, '_> {
    fn fault(&mut self, address: LogAddress, what: &str) {
        self.faults.add(address, format!("{}: {what}", self.name));
    }

    fn root_fault(&mut self, what: &str) {
        self.fault(self.at.record.address, what);
    }

    /// What a node is, if it can be read and is of this type.
    fn state(&mut self, node: &Node, kind: ValueKind) -> Option<State> {
        let (address, what) = (node.record.address, noun(node.number));
        match self.found.state(&node.record) {
            Ok(state) if state.kind == record::kind_of(kind) => {
                if let Some(why) = &state.cut {
                    self.fault(address, &format!("{what} is cut short: {why}"));
                }
                Some(state)
            }
            Ok(state) => {
                let (is, must) = (ValueKind::of(state.kind).name(), kind.name());
                self.fault(address, &format!("{what} is a {is}, it must be a {must}"));
                None
            }
            Err(why) => {
                self.fault(address, &format!("{what} cannot be read: {why}"));
                None
            }
        }
    }

    /// Judges the node that says at which key a hash is whose fields have deadlines.
    fn key_node(&mut self, key: &[u8]) {
        let (_, nodes) = self.found.collected.nodes.of(self.at.leaves, self.root.object);
        match nodes.first().copied() {
            None => self.root_fault("the node that names its key is missing"),
            Some(node) => {
                if let Some(told) = self.state(&node, ValueKind::String)
                    && told.value() != key
                {
                    let told = told.value().escape_ascii().to_string();
                    self.fault(node.record.address, &format!("a node names \"{told}\" as its key"));
                }
            }
        }
    }

    /// Judges the leaves that are found by hash.
    fn hashed(&mut self) -> Sum {
        let (leaves, _) = self.found.collected.nodes.of(self.at.leaves, self.root.object);
        let leaves = leaves.to_vec();
        let mut sum =
            Sum { is_partial: leaves.len() as u64 != u64::from(self.root.leaves), ..Sum::default() };
        let numbers = leaves.iter().map(|leaf| leaf.number);
        self.gaps(numbers, self.root.leaves, &BTreeSet::new());
        for leaf in &leaves {
            match self.state(leaf, self.kind.hashed()) {
                Some(state) => self.hashed_leaf(leaf, &state, &mut sum),
                None => sum.is_partial = true,
            }
        }
        if self.root.leaves > 0 && !sum.is_partial {
            let Root { count, bytes, leaves, .. } = self.root;
            if count != sum.count {
                let found = sum.count;
                self.root_fault(&format!(
                    "its root counts {count} elements, its {leaves} leaves have {found}"
                ));
            }
            if bytes != sum.bytes {
                let found = sum.bytes;
                self.root_fault(&format!("its root counts {bytes} bytes, its {leaves} leaves have {found}"));
            }
        }
        sum
    }

    fn hashed_leaf(&mut self, leaf: &Node, state: &State, sum: &mut Sum) {
        let shape = self.kind.hashed().shape().expect("a type of collections");
        let packed = Packed::new(shape, state.value());
        let is_scored = self.kind == ValueKind::SortedSet;
        let mut strays = 0;
        for at in 0..packed.len() {
            let (key, value) = packed.element(at);
            let hash = self.hasher.hash(key);
            let is_score = !is_scored || value.len() == size_of::<f64>();
            let is_found =
                leaf_of(hash.0, self.root.leaves) == leaf.number && packed.tag(at) == hash.low_bits();
            strays += u64::from(!is_found || !is_score);
            if is_scored && is_score {
                sum.prints = sum.prints.wrapping_add(self.print((key, value)));
            }
        }
        sum.count += packed.len() as u64;
        sum.bytes += state.value().len() as u64;
        if strays > 0 {
            let what = format!(
                "leaf {} has {} elements, {strays} of them are not found by their hash",
                leaf.number,
                packed.len()
            );
            self.fault(leaf.record.address, &what);
        }
    }

    /// A number by which a member with its score is told from others.
    fn print(&self, (member, score): Element<'_>) -> u128 {
        // both zeros are one score
        let score = (score_of(score) + 0.0).to_le_bytes();
        self.hasher.uncut(&[&score[..], member].concat())
    }

    /// Tells which of `count` numbers are not among those that are there, which are ascending.
    fn gaps(&mut self, numbers: impl Iterator<Item = u32>, count: u32, told: &BTreeSet<u32>) {
        let mut next = 0;
        let mut gaps = Vec::new();
        for number in numbers.map(|number| number & !NODE).chain([count]) {
            if next < number {
                gaps.push(next..number);
            }
            next = number.saturating_add(1);
        }
        let what = if self.kind == ValueKind::Hash || self.kind == ValueKind::Set { "leaf" } else { "node" };
        for gap in gaps.into_iter().filter(|gap| gap.len() > 1 || !told.contains(&gap.start)) {
            match gap.len() {
                1 => self.root_fault(&format!("{what} {} of {count} is missing", gap.start)),
                more => self.root_fault(&format!(
                    "{more} of {count}, {what} {} to {}, are missing",
                    gap.start,
                    gap.end - 1
                )),
            }
        }
    }

    /// Judges the tree.
    fn tree(&mut self, tree: &Tree) -> Sum {
        let mut walk = Walk::default();
        let counted = self.walk(tree.top, tree.depth, (None, None), &mut walk);
        if counted.is_none() && !walk.met.contains(&tree.top) {
            self.root_fault(&format!("its root names node {}, which is missing", tree.top));
        }
        if let Some(counted) = counted.filter(|counted| *counted != self.root.count) {
            let [count, counted] = [self.root.count, counted].map(|it| it.saturating_sub(walk.sum.others));
            self.root_fault(&format!("its root counts {count} elements, node {} has {counted}", tree.top));
        }
        self.free(tree, &mut walk);
        let (_, nodes) = self.found.collected.nodes.of(self.at.leaves, self.root.object);
        let numbers: Vec<u32> = nodes.iter().map(|node| node.number & !NODE).collect();
        self.gaps(numbers.iter().copied(), tree.nodes, &walk.missing);
        let strays: Vec<u32> = numbers.into_iter().filter(|number| !walk.met.contains(number)).collect();
        if let Some(first) = strays.first().filter(|_| !walk.sum.is_partial) {
            let count = strays.len();
            self.root_fault(&format!(
                "{count} of its {} nodes, node {first} the first, are neither in its tree nor free",
                tree.nodes
            ));
        }
        walk.sum
    }

    /// Judges a node, `depth` levels above leaves, and what is below it; returns how many elements it has, by what it says itself.
    fn walk(&mut self, number: u32, depth: u32, bounds: Bounds<'_>, walk: &mut Walk) -> Option<u64> {
        let node = self.node(number, walk)?;
        if !walk.met.insert(number) {
            self.fault(node.record.address, &format!("node {number} is named twice"));
            walk.sum.is_partial = true;
            return None;
        }
        let kind = if depth == 0 { self.kind } else { ValueKind::List };
        let Some(state) = self.state(&node, kind) else {
            walk.sum.is_partial = true;
            return None;
        };
        if depth == 0 {
            return Some(self.leaf(&node, &state, bounds, walk));
        }
        self.inner(&node, &state, depth, bounds, walk)
    }

    /// The node with this number, if it is there.
    fn node(&mut self, number: u32, walk: &mut Walk) -> Option<Node> {
        let (_, nodes) = self.found.collected.nodes.of(self.at.leaves, self.root.object);
        let at = nodes.binary_search_by_key(&(number | NODE), |node| node.number).ok();
        let node = at.filter(|_| number & NODE == 0).map(|at| nodes[at]);
        if node.is_none() {
            walk.missing.insert(number);
            walk.sum.is_partial = true;
        }
        node
    }

    fn leaf(&mut self, node: &Node, state: &State, (from, until): Bounds<'_>, walk: &mut Walk) -> u64 {
        let shape = self.kind.shape().expect("a type of collections");
        let packed = Packed::new(shape, state.value());
        let number = node.number & !NODE;
        let is_before =
            |element, bound| element_at(shape, bound).is_some_and(|at| comes_before(shape, element, at));
        if let (Some(first), Some(last)) = (packed.iter().next(), packed.len().checked_sub(1)) {
            let last = packed.element(last);
            let is_outside = from.is_some_and(|from| is_before(first, from))
                || until.is_some_and(|until| !is_before(last, until));
            if is_outside && shape != Shape::List {
                let (address, count) = (node.record.address, packed.len());
                self.fault(address, &format!("node {number} has {count} elements, some beyond its bounds"));
            }
        } else if walk.met.len() > 1 {
            self.fault(
                node.record.address,
                &format!("node {number} is a leaf of a tree, and has 0 elements"),
            );
        }
        if self.kind == ValueKind::SortedSet {
            let prints = packed.iter().map(|element| self.print(element));
            walk.sum.prints = prints.fold(walk.sum.prints, u128::wrapping_add);
        }
        if self.kind == ValueKind::Stream {
            walk.sum.others += packed.iter().filter(|element| !is_entry(*element)).count() as u64;
        }
        walk.sum.count += packed.len() as u64;
        packed.len() as u64
    }

    fn inner(
        &mut self,
        node: &Node,
        state: &State,
        depth: u32,
        (from, until): Bounds<'_>,
        walk: &mut Walk,
    ) -> Option<u64> {
        let (number, address) = (node.number & !NODE, node.record.address);
        let packed = Packed::new(Shape::List, state.value());
        let children: Option<Vec<Child<'_>>> = packed.iter().map(|(child, _)| Child::decode(child)).collect();
        let Some(children) = children.filter(|children| !children.is_empty()) else {
            self.fault(address, &format!("node {number} must name other nodes, and does not"));
            walk.sum.is_partial = true;
            return None;
        };
        self.judge_bounds(node, &children, (from, until));
        let mut sum = 0_u64;
        for (at, child) in children.iter().enumerate() {
            // the first child's bound says nothing
            let begin = if at == 0 { from } else { Some(child.bound) };
            let end = children.get(at + 1).map(|next| next.bound).or(until);
            let (below, counted) = (child.node, child.count);
            match self.walk(below, depth - 1, (begin, end), walk) {
                Some(found) if found != counted => {
                    let what =
                        format!("node {number} counts {counted} elements in node {below}, which has {found}");
                    self.fault(address, &what);
                }
                None if walk.missing.contains(&below) => {
                    let what =
                        format!("node {number} counts {counted} elements in node {below}, which is missing");
                    self.fault(address, &what);
                }
                _ => {}
            }
            sum = sum.saturating_add(counted);
        }
        Some(sum)
    }

    /// Judges whether the bounds of the children but the first are ascending, and within those of their node.
    fn judge_bounds(&mut self, node: &Node, children: &[Child<'_>], (from, until): Bounds<'_>) {
        let shape = self.kind.shape().expect("a type of collections");
        if shape == Shape::List {
            return;
        }
        let inner = children[1..].iter().map(|child| Some(child.bound));
        let all: Vec<Option<&[u8]>> = [from].into_iter().chain(inner).chain([until]).collect();
        let number = node.number & !NODE;
        for (at, pair) in all.windows(2).enumerate() {
            let [Some(left), Some(right)] = *pair else { continue };
            let is_ordered = match (element_at(shape, left), element_at(shape, right)) {
                (Some(left), Some(right)) => comes_before(shape, left, right),
                _ => false,
            };
            if !is_ordered {
                let what = format!("bounds {at} and {} of node {number} are not in order", at + 1);
                self.fault(node.record.address, &what);
            }
        }
    }

    /// Judges the nodes that are free.
    fn free(&mut self, tree: &Tree, walk: &mut Walk) {
        let (mut next, mut from) = (tree.free, None);
        while next != NO_NODE {
            let is_partial = walk.sum.is_partial;
            let node = self.node(next, walk);
            walk.sum.is_partial = is_partial;
            let Some(node) = node else {
                let who = from.map_or("its root".to_owned(), |from| format!("node {from}"));
                return self.root_fault(&format!("{who} names node {next} as free, which is missing"));
            };
            if !walk.met.insert(next) {
                let what = format!("node {next} is named as free, and is in use or free twice");
                return self.fault(node.record.address, &what);
            }
            let Some(state) = self.state(&node, ValueKind::List) else { return };
            from = Some(next);
            match next_free(state.value()) {
                Some(following) => next = following,
                None => {
                    let what = format!("node {next} is free, and does not name the next one");
                    return self.fault(node.record.address, &what);
                }
            }
        }
    }

    /// Compares the leaves of a sorted set that are found by hash with its tree.
    fn compare_orders(&mut self, hashed: &Sum, walked: &Sum) {
        if self.kind != ValueKind::SortedSet || hashed.is_partial || walked.is_partial {
            return;
        }
        let (by_hash, by_score) = (hashed.count, walked.count);
        if by_hash != by_score {
            self.root_fault(&format!("it has {by_hash} members by hash and {by_score} by score"));
        } else if hashed.prints != walked.prints {
            self.root_fault(&format!("its {by_hash} members by hash are not those that it has by score"));
        }
    }
}

/// Whether an element of a stream is an entry, as clients count them: all others belong to the stream itself and to its groups.
pub(crate) fn is_entry((key, _): Element<'_>) -> bool {
    key.starts_with(STREAM_ENTRY)
}

/// Whether `element` comes before `other`.
pub(crate) fn comes_before(shape: Shape, element: Element<'_>, other: Element<'_>) -> bool {
    match shape {
        Shape::Scored => by_score(element, other).is_lt(),
        _ => element.0 < other.0,
    }
}

/// A collection, to a reader: its type, its key and its object.
pub(crate) fn name_of(state: &State, root: &Root) -> String {
    let (kind, key) = (ValueKind::of(state.kind).name(), state.key());
    let (shown, more) = (&key[..key.len().min(KEY_BYTES_SHOWN)], key.len().saturating_sub(KEY_BYTES_SHOWN));
    let more = if more == 0 { String::new() } else { format!(" and {more} bytes more") };
    format!("{kind} \"{}\"{more} (object {:016x})", shown.escape_ascii(), root.object)
}

fn noun(number: u32) -> String {
    if number & NODE == 0 { format!("leaf {number}") } else { format!("node {}", number & !NODE) }
}

/// Faults that are told one by one.
const FAULTS_MAX: usize = 100;
/// Bytes of a key that are shown.
const KEY_BYTES_SHOWN: usize = 64;
