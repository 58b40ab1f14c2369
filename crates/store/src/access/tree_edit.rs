//! Changing the tree of a list, a sorted set or a stream: a leaf, and the nodes above it, which count its elements.
//!
//! A leaf that has outgrown two leaves' bytes becomes several, and one that has less than half of a leaf's bytes is put together with the
//! one beside it; so do inner nodes. What changes is kept here until all of it is known (`paged`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use smallvec::{SmallVec, smallvec};

use crate::error::{Stop, StoreError};
use crate::large::LARGE_BYTES;
use crate::value::ValueKind;
use collections::tree::{
    CHILDREN_MIN, Child, NO_NODE, NODE, NODES_MAX, Tree, bound_between, cut_inner, cut_leaf, element_at,
    free_node, inner_node, next_free, part,
};
use collections::{Edit, Element, Form, ListChange, ListEdit, OrderedEdit, Packed, Shape, by_score};

use super::counts::{self, Count, Counts, LEAVES_MAX};
use super::editing::Editing;
use super::here::Slice;
use super::nodes::{Leaf, LeafChanges, NodePlace, Paged, damaged};
use super::overlay::Staged;
use super::search::Search;
use super::sequence::{Nodes, Path, Step, Steps, child_at, children, leaves_in, places_in};
use super::state::State;
use super::{Access, COUNTS_MAX};

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

/// A child that is to be.
#[derive(Debug)]
struct NewChild {
    node: u32,
    count: u64,
    bound: Vec<u8>,
}

/// Children `at` of a node are to be these.
struct Replaced {
    at: Range<usize>,
    by: Vec<NewChild>,
    /// How many elements there are more below the node than there were.
    more: i64,
}

/// What a node becomes.
struct Changed {
    value: Vec<u8>,
    operations: Vec<u8>,
    /// How many elements there are more below it than there were.
    more: i64,
}

impl Nodes for TreeEdit<'_, '_> {
    fn value(&self, paged: &Paged, number: u32, is_leaf: bool) -> Result<&[u8], Stop> {
        if let Some(node) = self.nodes.get(&(number | NODE)) {
            return Ok(node.value().expect("nodes become free ones"));
        }
        match self.leaves.iter().find(|leaf| is_leaf && leaf.number == number | NODE) {
            Some(leaf) => self.access.leaf_value(self.paged, leaf),
            None => self.met(paged, (number, is_leaf), |met| met.state.value.slice()),
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
        Self::begin(access, paged, (paged.tree(), paged.root.count))
    }

    fn begin(access: &'e Access<'s>, paged: &'e Paged, (tree, count): (Tree, u64)) -> Self {
        let (nodes, counts) = (BTreeMap::new(), Counts::new());
        let met = RefCell::new(Mets { all: SmallVec::new(), places: [0; MET_MAX] });
        Self { access, paged, tree, count, nodes, counts, leaves: LeafChanges::new(), met }
    }

    /// The tree of all elements of `packed`, for `paged`, which has none yet.
    pub(super) fn of(access: &'e Access<'s>, paged: &'e Paged, packed: Packed<'_>) -> Result<Self, Stop> {
        let tree = Tree { bytes: 0, nodes: 0, top: 0, free: NO_NODE, depth: 0 };
        let mut edit = Self::begin(access, paged, (tree, packed.len() as u64));
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
        let path = Path::to(self, self.paged, (&self.tree, self.count), index)?;
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
        let leaves = leaves_in(self, self.paged, (&self.tree, self.count), 0..u64::MAX)?;
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
        let path = Path::to(self, self.paged, (&self.tree, self.count), index)?;
        let len = path.leaf(self, self.paged)?.len();
        let within = index.checked_sub(path.before).map(|within| within as usize);
        match within.filter(|within| *within < len + beyond) {
            Some(within) => Ok((path, within)),
            None => Err(damaged(self.paged, "its nodes count other elements than there are")),
        }
    }

    /// Removes the first elements that are `value`, or the last, `most` at most; returns how many there were.
    fn remove_equal(&mut self, value: &[u8], most: usize, from_back: bool) -> Result<usize, Stop> {
        if most == 0 {
            return Ok(0);
        }
        // by the number of their leaf's first element
        let (mut found, mut total) = (BTreeMap::<u64, Vec<usize>>::new(), 0);
        let (tree, is_changed) = ((self.tree, self.count), self.is_changed());
        let search = Search { paged: self.paged, tree, is_changed, range: 0..self.count, from_back };
        self.access.search(
            &search,
            || LookedAt::of(self),
            value,
            |first, at| {
                found.entry(first).or_default().push(at);
                total += 1;
                if total == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        )?;
        // from the back, so that those before keep their numbers
        for (first, mut equal) in found.into_iter().rev() {
            equal.sort_unstable();
            self.change_at(first, |leaf| {
                for run in equal.chunk_by(|a, b| a + 1 == *b).rev() {
                    leaf.remove(run[0], run.len());
                }
            })?;
        }
        Ok(total)
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

    /// Removes `count` elements from number `from` on: of leaves that go as a whole nothing is read.
    pub(super) fn remove(&mut self, from: u64, count: u64) -> Result<(), Stop> {
        self.access.charge(count as usize)?;
        self.settle()?;
        // one alone is in one leaf
        if count > 1 && places_in(self, self.paged, &self.tree, from..from.saturating_add(count))?.1 {
            return Err(Stop::Cold);
        }
        let mut left = count;
        while left > 0 {
            self.settle()?;
            let mut path = Path::to(self, self.paged, (&self.tree, self.count), from)?;
            let whole = match path.steps.last() {
                Some(step) if path.before == from => self.whole_leaves(*step, left)?,
                _ => Vec::new(),
            };
            if whole.is_empty() {
                let within = from.saturating_sub(path.before) as usize;
                left -= self.remove_in_leaf(path, within, left)?;
                continue;
            }
            let step = path.steps.pop().expect("a leaf with a parent");
            let total = self.count.max(1);
            let gone: u64 = whole.iter().map(|(_, count)| count).sum();
            self.count = self.count.saturating_sub(gone);
            let bytes = (u128::from(self.tree.bytes) * u128::from(gone) / u128::from(total)) as u64;
            self.tree.bytes = self.tree.bytes.saturating_sub(bytes);
            let at = step.at..step.at + whole.len();
            whole.iter().for_each(|(node, _)| self.free(*node));
            left -= gone;
            let more = -gone.cast_signed();
            self.replace(path.steps, step.node, Replaced { at, by: Vec::new(), more })?;
        }
        Ok(())
    }

    /// Removes elements of a leaf from number `within` of it on, `most` at most; returns how many.
    fn remove_in_leaf(&mut self, path: Path, within: usize, most: u64) -> Result<u64, Stop> {
        let looked_at = LookedAt::of(self);
        let leaf = path.leaf(&looked_at, self.paged)?;
        let gone = within..leaf.len().min(within.saturating_add(most as usize));
        if gone.is_empty() {
            return Err(damaged(self.paged, "its nodes count other elements than there are"));
        }
        let count = gone.len();
        if self.paged.kind == ValueKind::List {
            drop(looked_at);
            self.change_leaf::<ListEdit<'static>, ()>(path, |edit| edit.remove(within, count))?;
            return Ok(count as u64);
        }
        let keys: Vec<Vec<u8>> = gone.map(|at| leaf.element(at).0.to_vec()).collect();
        drop(looked_at);
        if self.paged.kind == ValueKind::Stream {
            let delete = |edit: &mut OrderedEdit<'_>| keys.iter().for_each(|key| _ = edit.delete(key));
            self.change_leaf::<OrderedEdit<'static>, ()>(path, delete)?;
        } else {
            let access = self.access;
            let delete =
                |edit: &mut Edit<'_>| keys.iter().for_each(|key| _ = edit.delete(access.tag(key), key));
            self.change_leaf::<Edit<'static>, ()>(path, delete)?;
        }
        Ok(count as u64)
    }

    /// The leaves from `step` on under the same parent that have `most` elements at most, each with their number.
    fn whole_leaves(&self, step: Step, most: u64) -> Result<Vec<(u32, u64)>, Stop> {
        let (mut whole, mut sum) = (Vec::new(), 0);
        if self.access.store.snapshots.has(self.paged.root.object) {
            // who still reads them needs what they were
            return Ok(whole);
        }
        let inner = Packed::new(Shape::List, self.node(step.node, false)?);
        for child in children(self.paged, inner, step.at..inner.len()) {
            let child = child?;
            sum = child.count.saturating_add(sum);
            if sum > most {
                break;
            }
            whole.push((child.node, child.count));
        }
        Ok(whole)
    }

    /// What `tell` says of the node as it was when the change began.
    fn met<R>(
        &self,
        paged: &Paged,
        (number, is_leaf): (u32, bool),
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
            let size = (before.encoded_len(), before.len());
            let mut edit = E::begin(before, None);
            let done = change(&mut edit);
            let ended = E::end(edit);
            drop(looked_at);
            return self.change_to(path, size, ended).map(|()| done);
        }
        let (met, before) = self.leaf_at(&path)?;
        let mut edit = E::begin(before, None);
        let done = change(&mut edit);
        if !E::is_changed(&edit) {
            return Ok(done);
        }
        let size = (before.encoded_len(), before.len());
        match self.staying::<E>(&path, &met, &edit)? {
            Some(bytes) => self.keep::<E>(&path, (&met, size), (edit, bytes))?,
            None => self.change_to(path, size, E::end(edit))?,
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
        let size = (before.encoded_len(), before.len());
        let Some(bytes) = self.staying::<E>(path, &met, &edit)? else { return Ok(false) };
        self.keep::<E>(path, (&met, size), (edit, bytes))?;
        Ok(true)
    }

    /// The leaf at the end of `path`, as it was when the change began.
    fn leaf_at(&self, path: &Path) -> Result<(Met<'e>, Packed<'e>), Stop> {
        let met = self.met(self.paged, (path.leaf, true), |met| *met)?;
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
                    self.met(self.paged, (step.node, false), |met| is_plain(&met.state))?
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
        let is_split = self.is_too_large((elements_bytes, E::len(edit)), true);
        let is_merged = self.is_small(elements_bytes) && has_siblings;
        Ok((!is_split && !is_merged).then_some(bytes))
    }

    /// Keeps what `edit` makes of a leaf, which is as [`TreeEdit::staying`] says, and its count in the nodes above it.
    fn keep<E: Editing>(
        &mut self,
        path: &Path,
        (leaf, (before_bytes, before_len)): (&Met<'e>, (usize, usize)),
        (edit, bytes): (E::Of<'_>, usize),
    ) -> Result<(), Stop> {
        let more = E::len(&edit) as i64 - before_len as i64;
        for step in path.steps.iter().filter(|_| more != 0) {
            let one = self.met(self.paged, (step.node, false), |Met { place, state, .. }| {
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
            (leaf.number | NODE, self.paged.kind),
            (leaf.place, &leaf.state),
            (edit, bytes),
        );
        self.tree.bytes = (self.tree.bytes + bytes as u64).saturating_sub(before_bytes as u64);
        self.count = self.count.saturating_add_signed(more);
        self.leaves.push(leaf);
        Ok(())
    }

    /// Node `number` with another count.
    fn recounted(&self, number: u32, count: &Count) -> Result<Staged, Stop> {
        let met = self.met(self.paged, (number, false), |met| *met)?;
        let before = self.nodes.get(&(number | NODE));
        let value = self.node(number, false)?;
        self.access.recounted(self.paged, (&met.state, value), count, before)
    }

    /// Keeps what a leaf has `ended` as, which had so many bytes and elements before.
    fn change_to(
        &mut self,
        mut path: Path,
        (before_bytes, before_len): (usize, usize),
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
    fn replace(&mut self, mut steps: Steps, mut node: u32, mut replaced: Replaced) -> Result<(), Stop> {
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
        if self.is_too_large((packed.bytes(), packed.len()), is_leaf) {
            return Ok(Replaced { at, by: self.put_runs(Some(node), packed, is_leaf, bound)?, more });
        }
        if self.is_small(packed.bytes()) && parent.len() > 1 {
            let left = step.at - usize::from(step.at + 1 == parent.len());
            if let Some(replaced) = self.merge(step, left, (node, packed, more), is_leaf)? {
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
        (node, packed, more): (u32, Packed<'_>, i64),
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
        if self.is_too_large((packed.bytes(), packed.len()), is_leaf) {
            return self.put_runs(Some(node), packed, is_leaf, Vec::new());
        }
        self.put(node, value, Some(operations), is_leaf)?;
        Ok(vec![NewChild { node, count: self.count, bound: Vec::new() }])
    }

    /// Lets these nodes, all of one level, be the highest, and adds levels above until there is one top; drops levels that choose between
    /// nothing.
    fn set_top(&mut self, mut nodes: Vec<NewChild>) -> Result<(), Stop> {
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
    fn put_runs(
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
    fn free(&mut self, number: u32) {
        let value = free_node(self.tree.free);
        self.nodes.insert(number | NODE, Leaf::Is { kind: ValueKind::List, value, operations: None });
        self.tree.free = number;
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

    /// Whether a node with elements of so many bytes, and so many of them, becomes several.
    fn is_too_large(&self, (elements_bytes, len): (usize, usize), is_leaf: bool) -> bool {
        let len_min = if is_leaf { 2 } else { 2 * CHILDREN_MIN };
        elements_bytes as u64 > 2 * self.leaf_bytes() && len >= len_min
    }

    /// Whether a node with elements of so many bytes is put together with the one beside it, if there is one.
    fn is_small(&self, elements_bytes: usize) -> bool {
        (elements_bytes as u64) < self.leaf_bytes() / 2
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
