//! Removing elements from a tree: a run of them, or those of one value.
//!
//! Leaves that go as a whole are not read: their parent counts their elements, and their bytes are estimated from that.
//!
//! Out of scope: what becomes of nodes that have lost elements (`rebalance`).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use collections::{Edit, ListEdit, OrderedEdit, Packed, Shape};

use super::rebalance::Replaced;
use super::{LookedAt, TreeEdit};
use crate::access::nodes::damaged;
use crate::access::search::Search;
use crate::access::sequence::{Path, Step, children, places_in};
use crate::error::Stop;
use crate::value::ValueKind;

impl TreeEdit<'_, '_> {
    /// Removes the first elements that are `value`, or the last, `most` at most; returns how many there were.
    pub(super) fn remove_equal(&mut self, value: &[u8], most: usize, from_back: bool) -> Result<usize, Stop> {
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

    /// Removes `count` elements from number `from` on: of leaves that go as a whole nothing is read.
    pub(in crate::access) fn remove(&mut self, from: u64, count: u64) -> Result<(), Stop> {
        self.access.charge(count as usize)?;
        self.settle()?;
        // one alone is in one leaf
        if count > 1 && places_in(self, self.paged, &self.tree, from..from.saturating_add(count))?.1 {
            return Err(Stop::Cold);
        }
        let mut left = count;
        while left > 0 {
            self.settle()?;
            let mut path = Path::to(self, self.paged, &self.tree, self.count, from)?;
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
}
