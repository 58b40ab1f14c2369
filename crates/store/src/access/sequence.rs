//! Reading lists, sorted sets and streams by the parts that a command asks for: of large ones the nodes on the way to these.

use std::ops::Range;

use smallvec::SmallVec;

use crate::error::Stop;
use crate::index::stripe::Current;
use crate::record;
use crate::value::ValueKind;
use collections::root::leaf_key;
use collections::tree::{Child, NODE, Tree, element_at};
use collections::{Element, Packed, Shape, by_score};

use super::here::Slice;
use super::nodes::{NodePlace, NodeSpot, Paged, damaged};
use super::state::State;
use super::{Access, WrongType};

/// A list, a sorted set or a stream, to read: elements in order. Empty when there is none.
#[derive(Clone, Copy)]
pub struct Sequence<'a, 's> {
    pub(super) access: &'a Access<'s>,
    /// All of it, if it is one value.
    pub(super) whole: Packed<'a>,
    pub(super) paged: Option<Paged>,
}

impl<'a> Sequence<'a, '_> {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paged.map_or(self.whole.len(), |paged| paged.root.count as usize)
    }

    /// About how many bytes so many elements take on disk; 0 if all of it is one value.
    #[must_use]
    pub fn bytes_of(&self, count: usize) -> u64 {
        self.paged.map_or(0, |paged| {
            let bytes = u128::from(paged.tree().bytes) * count as u128 / u128::from(paged.root.count.max(1));
            u64::try_from(bytes).unwrap_or(u64::MAX)
        })
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element that comes `at`, from 0 on; `None` if there are no more.
    ///
    /// # Errors
    /// As [`Access::get`].
    pub fn element(&self, at: usize) -> Result<Option<Element<'a>>, Stop> {
        if at >= self.len() {
            return Ok(None);
        }
        Ok(self.range(at..at + 1)?.pop())
    }

    /// The elements that come `at`, from 0 on. Those beyond the last are left out.
    ///
    /// # Errors
    /// As [`Access::get`]; [`StoreError::ReadTooLarge`](crate::StoreError::ReadTooLarge) if they are more than may be read at once.
    pub fn range(&self, at: Range<usize>) -> Result<Vec<Element<'a>>, Stop> {
        let at = at.start..at.end.min(self.len());
        if at.is_empty() {
            return Ok(Vec::new());
        }
        // the list of them, and what is made of each to be told
        self.access.ask(at.len() as u64 * LISTED_BYTES)?;
        let Some(paged) = &self.paged else {
            return Ok(at.map(|at| self.whole.element(at)).collect());
        };
        self.access.check_part(paged, at.len() as u64)?;
        self.access.charge(at.len())?;
        let range = at.start as u64..at.end as u64;
        let leaves = self.access.tree_leaves(paged, range.clone());
        if matches!(leaves, Err(Stop::Cold)) {
            self.access.read_ahead(paged, &range);
        }
        elements_in(paged, &leaves?, at)
    }

    /// As [`Sequence::range`], for who looks at them and goes on: what was read for that is forgotten.
    ///
    /// # Errors
    /// As there.
    pub fn look_at<R>(&self, at: Range<usize>, look: impl FnOnce(&[Element<'_>]) -> R) -> Result<R, Stop> {
        let Some(paged) = self.paged.as_ref().filter(|_| self.access.reads_here()) else {
            let elements = self.range(at)?;
            self.access.give_back(elements.len() as u64 * LISTED_BYTES);
            return Ok(look(&elements));
        };
        let at = at.start..at.end.min(self.len());
        self.access.charge(at.len())?;
        let slice = Slice::of(self.access);
        let leaves =
            leaves_in(&slice, paged, &paged.tree(), paged.root.count, at.start as u64..at.end as u64)?;
        Ok(look(&elements_in(paged, &leaves, at)?))
    }

    /// Shows `visit` the elements that come `at`, from 0 on; what was read for that is forgotten.
    ///
    /// # Errors
    /// As [`Sequence::range`].
    pub fn visit(&self, at: Range<usize>, mut visit: impl FnMut(Element<'_>)) -> Result<(), Stop> {
        let at = at.start..at.end.min(self.len());
        // where stripes are locked all that are cold are missed together
        let step = if self.access.reads_here() { VISITED } else { at.len() };
        for first in at.clone().step_by(step.max(1)) {
            let some = first..at.end.min(first.saturating_add(step));
            self.look_at(some, |elements| elements.iter().for_each(|element| visit(*element)))?;
        }
        Ok(())
    }

    /// Whether a stream has an element with this key; its leaf is forgotten.
    ///
    /// # Errors
    /// As [`Access::get`].
    pub fn has(&self, key: &[u8]) -> Result<bool, Stop> {
        let Some(paged) = self.paged.as_ref().filter(|_| self.access.reads_here()) else {
            return Ok(self.value(key)?.is_some());
        };
        let path = Path::down(self.access, paged, &paged.tree(), |(other, _)| other <= key)?;
        let slice = Slice::of(self.access);
        Ok(path.leaf(&slice, paged)?.place_of(key).is_some())
    }

    /// The elements that come at these places, in this order; leaves that are cold are missed together.
    ///
    /// # Errors
    /// As [`Access::get`].
    ///
    /// # Panics
    /// If there are not so many elements.
    pub fn pick(&self, places: &[usize]) -> Result<Vec<Element<'a>>, Stop> {
        let (mut picked, mut is_cold) = (Vec::with_capacity(places.len()), false);
        for at in places {
            match self.element(*at) {
                Err(Stop::Cold) => is_cold = true,
                found => picked.push(found?.expect("there are so many")),
            }
        }
        if is_cold { Err(Stop::Cold) } else { Ok(picked) }
    }

    /// How many elements come before the first of which `is_before` is false; it must be true of all before that. `is_before` is asked
    /// of elements, and of what lies between two: beginnings of keys, which have no value, and of members.
    ///
    /// # Errors
    /// As [`Access::get`].
    pub fn partition_point(&self, is_before: impl Fn(Element<'_>) -> bool) -> Result<usize, Stop> {
        let Some(paged) = &self.paged else { return Ok(self.whole.partition_point(is_before)) };
        let path = Path::down(self.access, paged, &paged.tree(), &is_before)?;
        let leaf = path.leaf(self.access, paged)?;
        Ok(path.count_before(self.access, paged)? as usize + leaf.partition_point(is_before))
    }

    /// The elements of a stream whose keys are `first`, `last` or between them, in order, and `most` at most.
    ///
    /// # Errors
    /// As [`Sequence::range`].
    pub fn between(&self, first: &[u8], last: &[u8], most: usize) -> Result<Vec<Element<'a>>, Stop> {
        let start = match &self.paged {
            None => self.whole.partition_point(|(key, _)| key < first),
            Some(paged) => {
                let path = Path::down(self.access, paged, &paged.tree(), |(key, _)| key < first)?;
                let leaf = path.leaf(self.access, paged)?;
                let place = leaf.partition_point(|(key, _)| key < first);
                // most often all of them are in one leaf: then nobody need know how many come before it
                let end = place.saturating_add(most).min(leaf.len());
                let here = (place..end).map(|at| leaf.element(at)).take_while(|(key, _)| *key <= last);
                let count = here.clone().count();
                if count == most || place + count < leaf.len() {
                    self.access.charge(count)?;
                    self.access.ask(count as u64 * LISTED_BYTES)?;
                    return Ok(here.collect());
                }
                path.count_before(self.access, paged)? as usize + place
            }
        };
        let end = self.partition_point(|(key, _)| key <= last)?.max(start);
        self.range(start..end.min(start.saturating_add(most)))
    }

    /// The last element of a stream whose key is `key`, or before it.
    ///
    /// # Errors
    /// As [`Access::get`].
    pub fn last_up_to(&self, key: &[u8]) -> Result<Option<Element<'a>>, Stop> {
        let is_before = |(other, _): Element<'_>| other <= key;
        let count = match &self.paged {
            None => self.whole.partition_point(is_before),
            Some(paged) => {
                let path = Path::down(self.access, paged, &paged.tree(), is_before)?;
                let leaf = path.leaf(self.access, paged)?;
                match leaf.partition_point(is_before).checked_sub(1) {
                    Some(at) => return Ok(Some(leaf.element(at))),
                    None => path.count_before(self.access, paged)? as usize,
                }
            }
        };
        count.checked_sub(1).map_or(Ok(None), |at| self.element(at))
    }

    /// The value of the element of a stream that has this key.
    ///
    /// # Errors
    /// As [`Access::get`].
    pub fn value(&self, key: &[u8]) -> Result<Option<&'a [u8]>, Stop> {
        let leaf = match &self.paged {
            None => self.whole,
            Some(paged) => {
                let path = Path::down(self.access, paged, &paged.tree(), |(other, _)| other <= key)?;
                path.leaf(self.access, paged)?
            }
        };
        Ok(leaf.place_of(key).map(|at| leaf.element(at).1))
    }

    /// Which element of a sorted set is `member`, that has this `score`.
    ///
    /// # Errors
    /// As [`Access::get`].
    ///
    /// # Panics
    /// If `score` is none.
    pub fn rank(&self, member: &[u8], score: &[u8]) -> Result<usize, Stop> {
        self.partition_point(|element| by_score(element, (member, score)).is_lt())
    }
}

/// The elements number `at` of these leaves, which have all of them.
fn elements_in<'a>(
    paged: &Paged,
    leaves: &[(u64, Packed<'a>)],
    at: Range<usize>,
) -> Result<Vec<Element<'a>>, Stop> {
    let mut elements = Vec::with_capacity(at.len().min(ROOM_MAX));
    for (first, leaf) in leaves {
        let within = |place: usize| place.saturating_sub(*first as usize).min(leaf.len());
        elements.extend((within(at.start)..within(at.end)).map(|at| leaf.element(at)));
    }
    if elements.len() == at.len() {
        Ok(elements)
    } else {
        Err(damaged(paged, "its nodes count other elements than there are"))
    }
}

/// The nodes from the top to a leaf.
pub(super) struct Path {
    pub(super) steps: Steps,
    pub(super) leaf: u32,
    /// Elements before those of the leaf.
    pub(super) before: u64,
    /// Elements of the leaf, as its parent counts them.
    counted: Option<u64>,
}

/// One for each level above the leaf.
pub(super) type Steps = SmallVec<[Step; LEVELS_FEW]>;

/// From an inner node to its child number `at`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) node: u32,
    pub(super) at: usize,
}

/// Who knows the values of nodes: as they are, or as a change has made them.
pub(super) trait Nodes {
    fn value(&self, paged: &Paged, number: u32, is_leaf: bool) -> Result<&[u8], Stop>;
}

impl Nodes for Access<'_> {
    fn value(&self, paged: &Paged, number: u32, is_leaf: bool) -> Result<&[u8], Stop> {
        self.charge(1)?;
        let kind = tree_kind(paged, is_leaf);
        if let Some((_, state)) = self.node_at_spot(paged, number, kind) {
            return Ok(state.value.slice());
        }
        let ((_, hash), state) = self.node_state(&self.copied, paged, number | NODE, kind)?;
        if let Some(spot) = state.spot.filter(|_| !self.reads_here()) {
            self.node_spots.add(NodeSpot { object: paged.root.object, number, hash, spot });
        }
        Ok(state.value.slice())
    }
}

impl Path {
    /// To the leaf that has the first element of which `is_before` is false, or the last leaf before it. Does not say how many elements are
    /// before the leaf's.
    pub(super) fn down(
        nodes: &impl Nodes,
        paged: &Paged,
        tree: &Tree,
        is_before: impl Fn(Element<'_>) -> bool,
    ) -> Result<Self, Stop> {
        let shape = paged.shape();
        let mut path = Self { steps: Steps::new(), leaf: tree.top, before: 0, counted: None };
        for _ in 0..tree.depth {
            let inner = inner_node(nodes, paged, path.leaf)?;
            // the first child's bound says nothing
            let (mut low, mut high) = (1, inner.len());
            while low < high {
                let middle = low + (high - low) / 2;
                let bound = element_at(shape, child_at(paged, inner, middle)?.bound);
                if bound.is_some_and(&is_before) { low = middle + 1 } else { high = middle }
            }
            path.steps.push(Step { node: path.leaf, at: low - 1 });
            let child = child_at(paged, inner, low - 1)?;
            (path.leaf, path.counted) = (child.node, Some(child.count));
        }
        Ok(path)
    }

    /// The leaf at its end.
    pub(super) fn leaf<'n>(&self, nodes: &'n impl Nodes, paged: &Paged) -> Result<Packed<'n>, Stop> {
        self.counted_leaf(paged, nodes.value(paged, self.leaf, true)?)
    }

    /// Whether the leaf at its end has all elements number `range`.
    fn has(&self, range: &Range<u64>) -> bool {
        let end = self.counted.map(|counted| self.before.saturating_add(counted));
        self.before <= range.start && end.is_some_and(|end| range.end <= end)
    }

    /// The leaf at its end, which has this value.
    pub(super) fn counted_leaf<'n>(&self, paged: &Paged, value: &'n [u8]) -> Result<Packed<'n>, Stop> {
        leaf_of(paged, value, self.counted)
    }

    /// How many elements are before those of the leaf at the end of a way down.
    fn count_before(&self, nodes: &impl Nodes, paged: &Paged) -> Result<u64, Stop> {
        let (mut before, mut count) = (0_u64, paged.root.count);
        for step in &self.steps {
            let inner = inner_node(nodes, paged, step.node)?;
            let sum = |at: Range<usize>| {
                let mut counts = children(paged, inner, at).map(|child| child.map(|child| child.count));
                counts.try_fold(0_u64, |sum, count| Ok::<u64, Stop>(sum.saturating_add(count?)))
            };
            // from the nearer end
            let these = if step.at <= inner.len() / 2 {
                sum(0..step.at)?
            } else {
                count.saturating_sub(sum(step.at..inner.len())?)
            };
            before = before.saturating_add(these);
            count = child_at(paged, inner, step.at)?.count;
        }
        Ok(before)
    }

    /// To the leaf that has element number `index` of all `count`, or the last leaf if there are no more.
    pub(super) fn to(
        nodes: &impl Nodes,
        paged: &Paged,
        tree: &Tree,
        count: u64,
        index: u64,
    ) -> Result<Self, Stop> {
        let mut end = count;
        let mut path = Self { steps: Steps::new(), leaf: tree.top, before: 0, counted: Some(count) };
        for _ in 0..tree.depth {
            let inner = inner_node(nodes, paged, path.leaf)?;
            let nearer_to_end = end.saturating_sub(index) < index.saturating_sub(path.before);
            let (at, child) = if nearer_to_end {
                let mut at = inner.len() - 1;
                let mut child = child_at(paged, inner, at)?;
                while at > 0 && end.saturating_sub(child.count) > index {
                    end -= child.count;
                    at -= 1;
                    child = child_at(paged, inner, at)?;
                }
                path.before = end.saturating_sub(child.count);
                (at, child)
            } else {
                let mut next = children(paged, inner, 0..inner.len());
                let mut next = || next.next().expect("as many as there are");
                let (mut at, mut child) = (0, next()?);
                while at + 1 < inner.len() && path.before.saturating_add(child.count) <= index {
                    path.before += child.count;
                    at += 1;
                    child = next()?;
                }
                end = path.before.saturating_add(child.count);
                (at, child)
            };
            path.steps.push(Step { node: path.leaf, at });
            (path.leaf, path.counted) = (child.node, Some(child.count));
        }
        Ok(path)
    }
}

/// The type of the leaves of a tree, or of its inner nodes.
fn tree_kind(paged: &Paged, is_leaf: bool) -> ValueKind {
    if is_leaf { paged.kind } else { ValueKind::List }
}

/// A leaf, which must have as many elements as its parent counts: where a part of the log is lost it may not.
pub(super) fn leaf_of<'a>(paged: &Paged, value: &'a [u8], counted: Option<u64>) -> Result<Packed<'a>, Stop> {
    let leaf = Packed::new(paged.shape(), value);
    if counted.is_some_and(|counted| counted != leaf.len() as u64) {
        return Err(damaged(paged, "a leaf has other elements than are counted"));
    }
    Ok(leaf)
}

/// An inner node.
fn inner_node<'n>(nodes: &'n impl Nodes, paged: &Paged, number: u32) -> Result<Packed<'n>, Stop> {
    let inner = Packed::new(Shape::List, nodes.value(paged, number, false)?);
    if inner.is_empty() { Err(damaged(paged, "an inner node has no child")) } else { Ok(inner) }
}

/// Child number `at` of an inner node.
pub(super) fn child_at<'a>(paged: &Paged, inner: Packed<'a>, at: usize) -> Result<Child<'a>, Stop> {
    child_in(paged, inner.element(at).0)
}

/// Children number `at` of an inner node.
pub(super) fn children<'p, 'a>(
    paged: &'p Paged,
    inner: Packed<'a>,
    at: Range<usize>,
) -> impl Iterator<Item = Result<Child<'a>, Stop>> + use<'p, 'a> {
    inner.values(at).map(move |bytes| child_in(paged, bytes))
}

fn child_in<'a>(paged: &Paged, bytes: &'a [u8]) -> Result<Child<'a>, Stop> {
    Child::decode(bytes).ok_or_else(|| damaged(paged, "an inner node has no children but other bytes"))
}

/// A leaf as its parent has it.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The number of its first element.
    pub(super) first: u64,
    pub(super) node: u32,
    /// How many elements it has; the root alone does not say it.
    pub(super) counted: Option<u64>,
}

/// Where the leaves are that have elements number `range`, and whether some are not told because an inner node is cold: all that are cold are
/// missed together.
pub(super) fn places_in(
    nodes: &impl Nodes,
    paged: &Paged,
    tree: &Tree,
    range: Range<u64>,
) -> Result<(Vec<Place>, bool), Stop> {
    let mut is_cold = false;
    let mut level = vec![Place { first: 0, node: tree.top, counted: None }];
    for _ in 0..tree.depth {
        let mut below = Vec::new();
        for Place { mut first, node, .. } in level {
            let inner = match nodes.value(paged, node, false) {
                Err(Stop::Cold) => {
                    is_cold = true;
                    continue;
                }
                value => Packed::new(Shape::List, value?),
            };
            for child in children(paged, inner, 0..inner.len()) {
                if first >= range.end {
                    break;
                }
                let child = child?;
                let end = first.saturating_add(child.count);
                if end > range.start {
                    below.push(Place { first, node: child.node, counted: Some(child.count) });
                }
                first = end;
            }
        }
        level = below;
    }
    Ok((level, is_cold))
}

/// The leaves that have elements number `range`, each with the number of its first; all that are cold are missed together.
pub(super) fn leaves_in<'a>(
    nodes: &'a impl Nodes,
    paged: &Paged,
    tree: &Tree,
    count: u64,
    range: Range<u64>,
) -> Result<Vec<(u64, Packed<'a>)>, Stop> {
    if range.end.saturating_sub(range.start) <= IN_ONE_LEAF {
        match Path::to(nodes, paged, tree, count, range.start) {
            Ok(path) if path.has(&range) => return Ok(vec![(path.before, path.leaf(nodes, paged)?)]),
            Ok(_) | Err(Stop::Cold) => {}
            Err(stop) => return Err(stop),
        }
    }
    let (places, mut is_cold) = places_in(nodes, paged, tree, range)?;
    let mut leaves = Vec::with_capacity(places.len());
    for Place { first, node, counted } in places {
        match nodes.value(paged, node, true) {
            Err(Stop::Cold) => is_cold = true,
            value => leaves.push((first, leaf_of(paged, value?, counted)?)),
        }
    }
    if is_cold { Err(Stop::Cold) } else { Ok(leaves) }
}

impl<'s> Access<'s> {
    /// The list, sorted set or stream at `key`, to read.
    ///
    /// # Errors
    /// As [`Access::get`]; inside, [`WrongType`].
    ///
    /// # Panics
    /// If `kind` is another type.
    pub fn sequence(
        &self,
        db: u16,
        key: &[u8],
        kind: ValueKind,
    ) -> Result<Result<Sequence<'_, 's>, WrongType>, Stop> {
        let shape = kind.shape().expect("a type of collections");
        if let Some(paged) = self.paged(db, key)?.filter(|paged| paged.kind == kind) {
            assert!(paged.root.tree.is_some(), "hashes and sets have no order");
            return Ok(Ok(Sequence { access: self, whole: Packed::empty(shape), paged: Some(paged) }));
        }
        let whole = self.collection(db, key, kind)?;
        Ok(whole.map(|whole| Sequence { access: self, whole, paged: None }))
    }

    /// A collection of this type that nobody has: without elements.
    ///
    /// # Panics
    /// If `kind` has no shape.
    #[must_use]
    pub fn empty_sequence(&self, kind: ValueKind) -> Sequence<'_, 's> {
        let whole = Packed::empty(kind.shape().expect("a type of collections"));
        Sequence { access: self, whole, paged: None }
    }

    /// A node of the tree, with all that is known of it, and where it is.
    pub(super) fn tree_node_state(
        &self,
        paged: &Paged,
        number: u32,
        is_leaf: bool,
    ) -> Result<(NodePlace, State<'_>), Stop> {
        self.charge(1)?;
        let kind = tree_kind(paged, is_leaf);
        match self.node_at_spot(paged, number, kind) {
            Some(found) => Ok(found),
            None => self.node_state(&self.copied, paged, number | NODE, kind),
        }
    }

    /// The same, of one that a read of this access has found, where it is as it was.
    fn node_at_spot(&self, paged: &Paged, number: u32, kind: ValueKind) -> Option<(NodePlace, State<'_>)> {
        let NodeSpot { hash, spot, .. } = self.node_spots.find(paged.root.object, number)?;
        if !self.overlay.is_untouched() || self.counted.is_some() {
            return None;
        }
        let key = leaf_key(paged.root.object, number | NODE);
        let space = self.guards.stripe(hash.stripe()).ok()?.space(paged.leaves)?;
        let (word, object) = space.met(spot, &key)?;
        if object.kind() != record::kind_of(kind) || object.expiry().is_some() {
            return None;
        }
        let state = State::timed(Current::Hot(object), None);
        Some(((key, hash), State { deltas: space.deltas_on(word), spot: Some(spot), ..state }))
    }

    /// As [`leaves_in`].
    pub(super) fn tree_leaves(
        &self,
        paged: &Paged,
        range: Range<u64>,
    ) -> Result<Vec<(u64, Packed<'_>)>, Stop> {
        leaves_in(self, paged, &paged.tree(), paged.root.count, range)
    }

    /// Refuses a part of so many elements that is too much to be read at once.
    pub(super) fn check_part(&self, paged: &Paged, count: u64) -> Result<(), Stop> {
        let limit_bytes = self.store.memory.read_bytes_max().min(self.store.options.value_bytes_max);
        let bytes = u128::from(paged.tree().bytes) * u128::from(count) / u128::from(paged.root.count.max(1));
        self.check_at_once(u64::try_from(bytes).unwrap_or(u64::MAX), limit_bytes)
    }
}

/// Elements that are visited before what was read for them is forgotten.
const VISITED: usize = 1_024;
/// So few elements are looked for in one leaf before it is asked which leaves have them.
const IN_ONE_LEAF: u64 = 16;
/// Elements that room is made for before they are found.
const ROOM_MAX: usize = 1 << 16;
/// What an element takes in a list of them, and decoded.
const LISTED_BYTES: u64 = 64;
/// Levels of inner nodes for which nothing is put on the heap: with leaves of 2 KiB above some ten million elements.
const LEVELS_FEW: usize = 4;
