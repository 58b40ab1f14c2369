//! Changing the tree of a list, a sorted set or a stream: a leaf, and the nodes above it, which count its elements.
//!
//! A leaf that has outgrown two leaves' bytes becomes several, and one that has less than half of a leaf's bytes is put together with the
//! one beside it; so do inner nodes. What changes is kept here until all of it is known (`paged`).

mod rebalance;
mod removal;

use std::cell::RefCell;
use std::collections::BTreeMap;

use collections::tree::{NO_NODE, NODE, Tree, element_at};
use collections::{Element, Form, ListChange, ListEdit, OrderedEdit, Packed, Shape, by_score};
use smallvec::{SmallVec, smallvec};

use super::counts::{self, Count, Counts, LEAVES_MAX};
use super::editing::Editing;
use super::here::Slice;
use super::nodes::{Leaf, LeafChanges, NodePlace, Paged, damaged};
use super::overlay::Staged;
use super::sequence::{Nodes, Path, child_at, leaves_in};
use super::state::State;
use super::{Access, COUNTS_MAX};
use crate::error::Stop;
use crate::large::LARGE_BYTES;
use crate::value::ValueKind;

/// A tree that is being changed.
pub(super) struct TreeEdit<'e, 's> {
    access: &'e Access<'s>,
    paged: &'e Paged,
    tree: Tree,
    /// Elements.
    count: u64,
    /// Nodes that have changed, by the numbers of their keys.
    nodes: BTreeMap<u32, Leaf>,
    /// What nodes above the leaves that have changed will count, while that is all that becomes of any node: then none of them is among `nodes`, and
    /// each is looked up as it was.
    counts: Counts,
    /// Leaves of which the same holds.
    leaves: LeafChanges,
    /// The first nodes that were looked up, as they were: the way to a leaf is gone down, and up again.
    met: RefCell<Mets<'e>>,
}

/// The ways to the leaves that changes are of, and those of each.
type Ways<'t, T> = SmallVec<[(Path, &'t [T]); WAYS_FEW]>;

/// A node as it was when the change began.
#[derive(Clone, Copy)]
struct Met<'e> {
    number: u32,
    place: NodePlace,
    state: State<'e>,
}

/// The first nodes that were met.
struct Mets<'e> {
    all: SmallVec<[Met<'e>; MET_FEW]>,
    /// Where one is, by the last bits of its number: most often.
    places: [u8; MET_MAX],
}

impl<'e> Mets<'e> {
    fn find(&self, number: u32) -> Option<&Met<'e>> {
        let likely = self.all.get(usize::from(self.places[number as usize % MET_MAX]));
        likely.filter(|met| met.number == number).or_else(|| self.all.iter().find(|met| met.number == number))
    }

    fn add(&mut self, met: Met<'e>) {
        if self.all.len() < MET_MAX {
            self.places[met.number as usize % MET_MAX] = self.all.len() as u8;
            self.all.push(met);
        }
    }
}

impl Nodes for TreeEdit<'_, '_> {
    fn value(&self, paged: &Paged, number: u32, is_leaf: bool) -> Result<&[u8], Stop> {
        if let Some(node) = self.nodes.get(&(number | NODE)) {
            return Ok(node.value().expect("nodes become free ones"));
        }
        match self.leaves.iter().find(|leaf| is_leaf && leaf.number == number | NODE) {
            Some(leaf) => self.access.leaf_value(self.paged, leaf),
            None => self.met(paged, number, is_leaf, |met| met.state.value.slice()),
        }
    }
}

/// Nodes of a tree that is being changed, of which many are looked at and few change.
struct LookedAt<'l, 'e, 's> {
    edit: &'l TreeEdit<'e, 's>,
    slice: Slice<'l, 's>,
}

impl<'l, 'e, 's> LookedAt<'l, 'e, 's> {
    fn of(edit: &'l TreeEdit<'e, 's>) -> Self {
        Self { edit, slice: Slice::of(edit.access) }
    }
}

impl Nodes for LookedAt<'_, '_, '_> {
    fn value(&self, paged: &Paged, number: u32, is_leaf: bool) -> Result<&[u8], Stop> {
        if self.edit.has_changed(number) {
            self.edit.value(paged, number, is_leaf)
        } else {
            self.slice.value(paged, number, is_leaf)
        }
    }
}

impl<'e, 's> TreeEdit<'e, 's> {
    /// Begins with the tree of `paged`.
    pub(super) fn new(access: &'e Access<'s>, paged: &'e Paged) -> Self {
        Self::begin(access, paged, paged.tree(), paged.root.count)
    }

    fn begin(access: &'e Access<'s>, paged: &'e Paged, tree: Tree, count: u64) -> Self {
        let (nodes, counts) = (BTreeMap::new(), Counts::new());
        let met = RefCell::new(Mets { all: SmallVec::new(), places: [0; MET_MAX] });
        Self { access, paged, tree, count, nodes, counts, leaves: LeafChanges::new(), met }
    }

    /// The tree of all elements of `packed`, for `paged`, which has none yet.
    pub(super) fn of(access: &'e Access<'s>, paged: &'e Paged, packed: Packed<'_>) -> Result<Self, Stop> {
        let tree = Tree { bytes: 0, nodes: 0, top: 0, free: NO_NODE, depth: 0 };
        let mut edit = Self::begin(access, paged, tree, packed.len() as u64);
        let leaves = edit.put_runs(None, packed, true, Vec::new())?;
        edit.set_top(leaves)?;
        Ok(edit)
    }

    /// The tree as it is now, and how many elements there are.
    pub(super) fn now(&self) -> (Tree, u64) {
        (self.tree, self.count)
    }

    /// The nodes that have changed by the numbers of their keys, what those count that have not changed but for that, and leaves above which nothing else has
    /// changed.
    pub(super) fn end(self) -> (BTreeMap<u32, Leaf>, Counts, LeafChanges) {
        (self.nodes, self.counts, self.leaves)
    }

    /// Whether a node is another than it was, but for what it counts.
    fn has_changed(&self, number: u32) -> bool {
        let number = number | NODE;
        self.nodes.contains_key(&number) || self.leaves.iter().any(|leaf| leaf.number == number)
    }

    /// Lets leaves and nodes be changes of their own: something else is to change.
    fn settle(&mut self) -> Result<(), Stop> {
        for leaf in std::mem::take(&mut self.leaves) {
            let staged = self.access.leaf_staged(self.paged, &leaf)?;
            self.nodes.insert(leaf.number, Leaf::Staged(Box::new(staged)));
        }
        for count in std::mem::take(&mut self.counts) {
            let number = count.number & !NODE;
            let staged = self.recounted(number, &count)?;
            self.nodes.insert(number | NODE, Leaf::Staged(Box::new(staged)));
        }
        Ok(())
    }

    /// Lets `change` change the leaf with element number `index`, or the last one.
    pub(super) fn change_at<R>(
        &mut self,
        index: u64,
        change: impl FnOnce(&mut ListEdit<'_>) -> R,
    ) -> Result<R, Stop> {
        self.settle()?;
        let path = Path::to(self, self.paged, &self.tree, self.count, index)?;
        self.change_leaf::<ListEdit<'static>, R>(path, |leaf| change(leaf))
    }

    fn is_changed(&self) -> bool {
        !self.nodes.is_empty() || !self.leaves.is_empty()
    }

    /// The value of a list that is to be one again: by default when it is a listpack.
    pub(super) fn small_list(&mut self) -> Result<Option<Vec<u8>>, Stop> {
        let bytes_max = 2 * self.leaf_bytes();
        if self.paged.kind != ValueKind::List || !self.is_changed() || self.tree.bytes > 2 * bytes_max {
            return Ok(None);
        }
        self.settle()?;
        let leaves = leaves_in(self, self.paged, &self.tree, self.count, 0..u64::MAX)?;
        let parts: Vec<Packed<'_>> = leaves.into_iter().map(|(_, leaf)| leaf).collect();
        let bytes: u64 = parts.iter().map(Packed::listpack_bytes).sum();
        if (1..=bytes_max).contains(&bytes) {
            return Ok(Some(collections::concat(Shape::List, Form::Listpack, &parts)));
        }
        // where leaves of unequal sizes went unread it was an estimate
        self.tree.bytes = parts.iter().map(|leaf| leaf.encoded_len() as u64).sum();
        Ok(None)
    }

    /// Makes changes of a list: one, or several pushes at one end; returns how many elements [`ListChange::RemoveEqual`] removed.
    pub(super) fn change_list(&mut self, changes: &[ListChange<'_>]) -> Result<usize, Stop> {
        self.access.charge(changes.len())?;
        self.settle()?;
        match changes[0] {
            ListChange::PushFront(_) => {
                self.change_at(0, |leaf| _ = leaf.apply_all(changes))?;
            }
            ListChange::PushBack(_) => {
                self.change_at(u64::MAX, |leaf| _ = leaf.apply_all(changes))?;
            }
            ListChange::Insert(index, value) => {
                let (path, within) = self.path_to(index as u64, 1)?;
                self.change_leaf::<ListEdit<'static>, ()>(path, |leaf| leaf.insert(within, value))?;
            }
            ListChange::Set(index, value) => {
                let (path, within) = self.path_to(index as u64, 0)?;
                self.change_leaf::<ListEdit<'static>, ()>(path, |leaf| leaf.set(within, value))?;
            }
            ListChange::Remove(index, count) => self.remove(index as u64, count as u64)?,
            ListChange::RemoveEqual { value, most, from_back } => {
                return self.remove_equal(value, most, from_back);
            }
        }
        Ok(0)
    }

    /// The way to the leaf that has element number `index`, and which of its elements that is: one of it, or `beyond` the last.
    fn path_to(&self, index: u64, beyond: usize) -> Result<(Path, usize), Stop> {
        let path = Path::to(self, self.paged, &self.tree, self.count, index)?;
        let len = path.leaf(self, self.paged)?.len();
        let within = index.checked_sub(path.before).map(|within| within as usize);
        match within.filter(|within| *within < len + beyond) {
            Some(within) => Ok((path, within)),
            None => Err(damaged(self.paged, "its nodes count other elements than there are")),
        }
    }

    /// Lets `change` change keyed elements, which are ascending: each time those of one leaf. Leaves that are cold are missed together.
    pub(super) fn change_keyed<E: Editing, T>(
        &mut self,
        changes: &[T],
        element: impl for<'t> Fn(&'t T) -> Element<'t>,
        change: impl Fn(&mut E::Of<'_>, &[T]),
    ) -> Result<(), Stop> {
        self.access.charge(changes.len())?;
        // who reads here reads each when he comes to it
        if self.access.reads_here() || changes.len() == 1 {
            return self.change_behind::<E, T>(changes, &element, &change);
        }
        // those that change nothing above their leaf but counts come first: they find the nodes as they were
        let mut others = SmallVec::<[&[T]; 1]>::new();
        self.leaves.reserve(changes.len().min(LEAVES_MAX));
        for (path, these) in self.by_leaves(changes, &element)? {
            if !self.change_within::<E>(&path, |edit| change(edit, these))? {
                others.push(these);
            }
        }
        others.into_iter().try_for_each(|these| self.change_behind::<E, T>(these, &element, &change))
    }

    /// Lets `change` change the leaf of a stream that has this element, or would have.
    pub(super) fn change_around<R>(
        &mut self,
        element: Element<'_>,
        change: impl FnOnce(&mut OrderedEdit<'_>) -> R,
    ) -> Result<R, Stop> {
        let path = self.way_to(element)?;
        self.change_leaf::<OrderedEdit<'static>, R>(path, |leaf| change(leaf))
    }

    /// The ways to the leaves of these elements, and those of each.
    fn by_leaves<'t, T>(
        &self,
        mut changes: &'t [T],
        element: &impl for<'a> Fn(&'a T) -> Element<'a>,
    ) -> Result<Ways<'t, T>, Stop> {
        let (mut ways, mut is_cold) = (SmallVec::with_capacity(changes.len().min(MET_MAX)), false);
        self.met.borrow_mut().all.reserve(MET_MAX.min(2 * changes.len()));
        while let Some(first) = changes.first() {
            let way = self.way_to(element(first)).and_then(|path| {
                let count = self.count_of_leaf(&path, changes, element)?;
                self.node(path.leaf, true)?;
                Ok((path, count))
            });
            let count = match way {
                Ok((path, count)) => {
                    ways.push((path, &changes[..count]));
                    count
                }
                // the others of its leaf will be there with it
                Err(Stop::Cold) => {
                    is_cold = true;
                    1
                }
                Err(stop) => return Err(stop),
            };
            changes = &changes[count..];
        }
        if is_cold { Err(Stop::Cold) } else { Ok(ways) }
    }

    /// As [`TreeEdit::change_keyed`], one leaf after the other, whatever becomes of the nodes above them.
    fn change_behind<E: Editing, T>(
        &mut self,
        mut changes: &[T],
        element: &impl for<'a> Fn(&'a T) -> Element<'a>,
        change: &impl Fn(&mut E::Of<'_>, &[T]),
    ) -> Result<(), Stop> {
        while let Some(first) = changes.first() {
            let mut path = self.way_to(element(first))?;
            if self.has_changed(path.leaf) {
                // its parent is to say how many elements it has by now
                self.settle()?;
                path = self.way_to(element(first))?;
            }
            let count = self.count_of_leaf(&path, changes, element)?;
            let (these, rest) = changes.split_at(count);
            self.change_leaf::<E, _>(path, |edit| change(edit, these))?;
            changes = rest;
        }
        Ok(())
    }

    /// The way to the leaf that has this element, or would have.
    fn way_to(&self, wanted: Element<'_>) -> Result<Path, Stop> {
        let shape = self.paged.shape();
        Path::down(self, self.paged, &self.tree, |other| !is_behind(shape, other, wanted))
    }

    /// How many of these changes, which are ascending, are of the leaf to which the first one leads.
    fn count_of_leaf<T>(
        &self,
        path: &Path,
        changes: &[T],
        element: &impl for<'a> Fn(&'a T) -> Element<'a>,
    ) -> Result<usize, Stop> {
        // one alone is of this leaf, and need not ask where the next begins
        let until = if changes.len() > 1 { self.until(path)? } else { None };
        let shape = self.paged.shape();
        let until = until.as_deref().and_then(|bound| element_at(shape, bound));
        let is_beyond = |it: &T| until.is_some_and(|until| !is_behind(shape, until, element(it)));
        Ok(changes.iter().take_while(|it| !is_beyond(it)).count().max(1))
    }

    /// What `tell` says of the node as it was when the change began.
    fn met<R>(
        &self,
        paged: &Paged,
        number: u32,
        is_leaf: bool,
        tell: impl FnOnce(&Met<'e>) -> R,
    ) -> Result<R, Stop> {
        if let Some(met) = self.met.borrow().find(number) {
            return Ok(tell(met));
        }
        let (place, state) = self.access.tree_node_state(paged, number, is_leaf)?;
        let met = Met { number, place, state };
        let told = tell(&met);
        self.met.borrow_mut().add(met);
        Ok(told)
    }

    /// Lets `change` change a leaf.
    fn change_leaf<E: Editing, R>(
        &mut self,
        path: Path,
        change: impl for<'l> FnOnce(&mut E::Of<'l>) -> R,
    ) -> Result<R, Stop> {
        if self.access.reads_here() || self.has_changed(path.leaf) {
            // what is copied for this leaf is forgotten with it
            let looked_at = LookedAt::of(self);
            let before = path.leaf(&looked_at, self.paged)?;
            let (before_bytes, before_len) = (before.encoded_len(), before.len());
            let mut edit = E::begin(before, None);
            let done = change(&mut edit);
            let ended = E::end(edit);
            drop(looked_at);
            return self.change_to(path, before_bytes, before_len, ended).map(|()| done);
        }
        let (met, before) = self.leaf_at(&path)?;
        let mut edit = E::begin(before, None);
        let done = change(&mut edit);
        if !E::is_changed(&edit) {
            return Ok(done);
        }
        let (before_bytes, before_len) = (before.encoded_len(), before.len());
        match self.staying::<E>(&path, &met, &edit)? {
            Some(bytes) => self.keep::<E>(&path, &met, before_bytes, before_len, edit, bytes)?,
            None => self.change_to(path, before_bytes, before_len, E::end(edit))?,
        }
        Ok(done)
    }

    /// Lets `change` change a leaf if that changes nothing above it but counts; returns whether it does.
    fn change_within<E: Editing>(
        &mut self,
        path: &Path,
        change: impl for<'l> FnOnce(&mut E::Of<'l>),
    ) -> Result<bool, Stop> {
        if self.has_changed(path.leaf) {
            return Ok(false);
        }
        let (met, before) = self.leaf_at(path)?;
        let mut edit = E::begin(before, None);
        change(&mut edit);
        if !E::is_changed(&edit) {
            return Ok(true);
        }
        let (before_bytes, before_len) = (before.encoded_len(), before.len());
        let Some(bytes) = self.staying::<E>(path, &met, &edit)? else { return Ok(false) };
        self.keep::<E>(path, &met, before_bytes, before_len, edit, bytes)?;
        Ok(true)
    }

    /// The leaf at the end of `path`, as it was when the change began.
    fn leaf_at(&self, path: &Path) -> Result<(Met<'e>, Packed<'e>), Stop> {
        let met = self.met(self.paged, path.leaf, true, |met| *met)?;
        // what it was lent from is as it was
        let value = met.state.value;
        Ok((met, path.counted_leaf(self.paged, value.slice())?))
    }

    /// Bytes of what `edit` makes of the leaf at the end of `path`, if the nodes above it stay as they are but for its count: it was not staged
    /// before, and is neither to be split, put together with another, nor removed.
    fn staying<E: Editing>(
        &self,
        path: &Path,
        leaf: &Met<'_>,
        edit: &E::Of<'_>,
    ) -> Result<Option<usize>, Stop> {
        let is_plain = |state: &State<'_>| !state.staged && (state.value_len as usize) < LARGE_BYTES;
        let bytes = E::bytes(edit).filter(|bytes| self.access.is_usual_leaf(*bytes));
        let Some(bytes) = bytes.filter(|_| is_plain(&leaf.state) && !self.access.reads_here()) else {
            return Ok(None);
        };
        let Some(elements_bytes) = collections::elements_bytes(self.paged.shape(), bytes, E::len(edit))
        else {
            return Ok(None);
        };
        for step in &path.steps {
            let is_as_it_was = match self.nodes.get(&(step.node | NODE)) {
                None | Some(Leaf::Staged(_)) => {
                    self.met(self.paged, step.node, false, |met| is_plain(&met.state))?
                }
                // perhaps it was not there before
                Some(_) => false,
            };
            if !is_as_it_was {
                return Ok(None);
            }
        }
        let has_siblings = match path.steps.last() {
            Some(step) => Packed::new(Shape::List, self.node(step.node, false)?).len() > 1,
            None => false,
        };
        let is_split = self.is_too_large(elements_bytes, E::len(edit), true);
        let is_merged = self.is_small(elements_bytes) && has_siblings;
        Ok((!is_split && !is_merged).then_some(bytes))
    }

    /// Keeps what `edit` makes of a leaf, which is as [`TreeEdit::staying`] says, and its count in the nodes above it.
    fn keep<E: Editing>(
        &mut self,
        path: &Path,
        leaf: &Met<'e>,
        before_bytes: usize,
        before_len: usize,
        edit: E::Of<'_>,
        bytes: usize,
    ) -> Result<(), Stop> {
        let more = E::len(&edit) as i64 - before_len as i64;
        for step in path.steps.iter().filter(|_| more != 0) {
            let one = self.met(self.paged, step.node, false, |Met { place, state, .. }| {
                let takes = state.deltas.len() < COUNTS_MAX;
                let (number, place, spot) = (step.node | NODE, *place, state.spot);
                Count { number, place, spot, takes, children: smallvec![(step.at, more)] }
            })?;
            let is_unsettled = self.nodes.is_empty();
            let others = if is_unsettled { counts::add(&mut self.counts, one) } else { Err(one) };
            if let Err(one) = others {
                self.settle()?;
                let staged = self.recounted(step.node, &one)?;
                self.nodes.insert(step.node | NODE, Leaf::Staged(Box::new(staged)));
            }
        }
        self.access.ask(bytes as u64)?;
        let leaf = self.access.leaf_change::<E>(
            leaf.number | NODE,
            self.paged.kind,
            leaf.place,
            &leaf.state,
            edit,
            bytes,
        );
        self.tree.bytes = (self.tree.bytes + bytes as u64).saturating_sub(before_bytes as u64);
        self.count = self.count.saturating_add_signed(more);
        self.leaves.push(leaf);
        Ok(())
    }

    /// Node `number` with another count.
    fn recounted(&self, number: u32, count: &Count) -> Result<Staged, Stop> {
        let met = self.met(self.paged, number, false, |met| *met)?;
        let before = self.nodes.get(&(number | NODE));
        let value = self.node(number, false)?;
        self.access.recounted(self.paged, &met.state, value, count, before)
    }

    /// The bound of what follows the leaf of `path`; `None`: it is the last.
    fn until(&self, path: &Path) -> Result<Option<Vec<u8>>, Stop> {
        for step in path.steps.iter().rev() {
            let inner = Packed::new(Shape::List, self.node(step.node, false)?);
            if step.at + 1 < inner.len() {
                return Ok(Some(child_at(self.paged, inner, step.at + 1)?.bound.to_vec()));
            }
        }
        Ok(None)
    }

    fn node(&self, number: u32, is_leaf: bool) -> Result<&[u8], Stop> {
        self.value(self.paged, number, is_leaf)
    }

    fn shape(&self, is_leaf: bool) -> Shape {
        if is_leaf { self.paged.shape() } else { Shape::List }
    }

    fn leaf_bytes(&self) -> u64 {
        self.access.store.options.leaf_bytes
    }
}

/// Whether one element of a collection comes behind another.
fn is_behind(shape: Shape, element: Element<'_>, other: Element<'_>) -> bool {
    match shape {
        Shape::Scored => by_score(element, other).is_gt(),
        _ => element.0 > other.0,
    }
}

/// Nodes that are met for which nothing is put on the heap: the ways to two leaves of a large tree.
const MET_FEW: usize = 6;
/// Nodes that are kept as they were met: the ways to the leaves of a series.
const MET_MAX: usize = 64;
/// Leaves of a change for which nothing is put on the heap.
const WAYS_FEW: usize = 2;
