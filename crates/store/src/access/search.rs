//! Looking for a value in a list that is a tree, part by part.
//!
//! ```text
//! part -> its leaves, from the nodes above -> in memory:  16 at a time where they are, their stripe locked meanwhile
//!                                             otherwise:  as any leaf
//! ```
//!
//! Out of scope: what is found in a leaf (`collections`), and what a command does with it.

use std::ops::{ControlFlow, Range};

use smallvec::SmallVec;

use super::nodes::{NodePlace, Paged, damaged};
use super::sequence::{Nodes, Place, leaf_of, leaves_in, places_in};
use super::state::State;
use super::{Access, Sequence};
use crate::error::Stop;
use crate::index::ahead::{self, AHEAD_KEYS_MAX};
use crate::large::Bytes;
use crate::record;
use collections::root::leaf_key;
use collections::tree::{NODE, Tree};
use collections::{Packed, Wanted};

use super::here::Slice;

/// Where a value is looked for.
pub(super) struct Search<'a> {
    pub(super) paged: &'a Paged,
    /// The tree as it is now, and how many elements there are.
    pub(super) tree: (Tree, u64),
    /// Whether leaves are others than those that are stored.
    pub(super) is_changed: bool,
    pub(super) range: Range<u64>,
    /// From the last of the range to the first.
    pub(super) from_back: bool,
}

/// What is looked for, and who is told.
struct Looker<F> {
    wanted: Wanted,
    /// Whether it has been fitted to the leaves of this part.
    is_fit: bool,
    part: Range<u64>,
    from_back: bool,
    /// Elements of the part that were looked at.
    looked_at: u64,
    found: F,
}

impl<F: FnMut(u64, usize) -> ControlFlow<()>> Looker<F> {
    fn begin(&mut self, part: Range<u64>) {
        (self.part, self.is_fit, self.looked_at) = (part, false, 0);
    }

    /// Looks at the leaf whose first element is number `first`.
    fn look(&mut self, first: u64, leaf: Packed<'_>) -> ControlFlow<()> {
        if !self.is_fit {
            self.wanted.fit(&leaf);
            self.is_fit = true;
        }
        let within = |at: u64| at.saturating_sub(first).min(leaf.len() as u64) as usize;
        let range = within(self.part.start)..within(self.part.end);
        self.looked_at += range.len() as u64;
        let mut equal: SmallVec<[usize; FOUND_FEW]> = leaf.places_of(&self.wanted, range).collect();
        if self.from_back {
            equal.reverse();
        }
        equal.into_iter().try_for_each(|at| (self.found)(first, at))
    }
}

impl<'a> Sequence<'a, '_> {
    /// Shows `found` which elements of a list number `at` are `value`, in their order or `from_back`, until it breaks. A large list is looked at
    /// in parts; where stripes are not locked, what is read for a part is forgotten with it.
    ///
    /// # Errors
    /// As [`Sequence::range`].
    pub fn search(
        &self,
        value: &[u8],
        at: Range<usize>,
        from_back: bool,
        mut found: impl FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        let at = at.start.min(self.len())..at.end.min(self.len());
        let Some(paged) = &self.paged else {
            let mut places: Vec<usize> = self.whole.places_of(&Wanted::new(value), at).collect();
            if from_back {
                places.reverse();
            }
            _ = places.into_iter().try_for_each(found);
            return Ok(());
        };
        self.access.check_part(paged, PART.min(at.len() as u64))?;
        let tree = (paged.tree(), paged.root.count);
        let range = at.start as u64..at.end as u64;
        let search = Search { paged, tree, is_changed: false, range, from_back };
        self.access.search(&search, || Slice::of(self.access), value, |first, at| found(first as usize + at))
    }
}

impl Access<'_> {
    /// Shows `found` which elements are `value`, each by the number of its leaf's first element and its place among those of the leaf, until it breaks.
    pub(super) fn search<N: Nodes>(
        &self,
        search: &Search<'_>,
        nodes: impl Fn() -> N,
        value: &[u8],
        found: impl FnMut(u64, usize) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        let Search { range, from_back, .. } = search;
        let mut looker = Looker {
            wanted: Wanted::new(value),
            is_fit: false,
            part: 0..0,
            from_back: *from_back,
            looked_at: 0,
            found,
        };
        let (mut left, most) = (range.clone(), if self.reads_here() { PART_HERE } else { PART });
        while !left.is_empty() {
            let count = most.min(left.end - left.start);
            let part = if *from_back { left.end - count..left.end } else { left.start..left.start + count };
            left = if *from_back { left.start..part.start } else { part.end..left.end };
            self.charge(count as usize)?;
            looker.begin(part);
            let flow = if self.reads_here() {
                self.search_here(search, &nodes, &mut looker)?
            } else {
                self.search_locked(search, &nodes(), &mut looker)?
            };
            if flow.is_break() {
                return Ok(());
            }
            if looker.looked_at != count {
                return Err(damaged(search.paged, "its nodes count other elements than there are"));
            }
        }
        Ok(())
    }

    /// Looks at the leaves of a part, which are lent by locked stripes: those that are cold are missed together.
    fn search_locked<F: FnMut(u64, usize) -> ControlFlow<()>>(
        &self,
        Search { paged, tree: (tree, count), from_back, .. }: &Search<'_>,
        nodes: &impl Nodes,
        looker: &mut Looker<F>,
    ) -> Result<ControlFlow<()>, Stop> {
        let leaves = leaves_in(nodes, paged, tree, *count, looker.part.clone());
        if matches!(leaves, Err(Stop::Cold)) {
            self.read_ahead(paged, &looker.part);
        }
        let mut leaves = leaves?;
        if *from_back {
            leaves.reverse();
        }
        Ok(leaves.into_iter().try_for_each(|(first, leaf)| looker.look(first, leaf)))
    }

    /// Looks at the leaves of a part, those that are in memory where they are.
    fn search_here<N: Nodes, F: FnMut(u64, usize) -> ControlFlow<()>>(
        &self,
        Search { paged, tree: (tree, _), is_changed, from_back, .. }: &Search<'_>,
        nodes: &impl Fn() -> N,
        looker: &mut Looker<F>,
    ) -> Result<ControlFlow<()>, Stop> {
        let (mut places, is_cold) = places_in(&nodes(), paged, tree, looker.part.clone())?;
        if is_cold {
            return Err(Stop::Cold);
        }
        if *from_back {
            places.reverse();
        }
        let mut rest = &places[..];
        while let Some((place, behind)) = rest.split_first() {
            let (seen, mut flow) = if *is_changed {
                (0, ControlFlow::Continue(()))
            } else {
                self.look_at_hot(paged, rest, looker)?
            };
            rest = &rest[seen..];
            if seen == 0 {
                let nodes = nodes();
                let leaf = leaf_of(paged, nodes.value(paged, place.node, true)?, place.counted)?;
                flow = looker.look(place.first, leaf);
                rest = behind;
            }
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Looks at the first of these leaves, as long as they are in memory and nothing else is to be thought of; returns at how many. Their stripe is locked
    /// meanwhile, so they are not copied.
    fn look_at_hot<F: FnMut(u64, usize) -> ControlFlow<()>>(
        &self,
        paged: &Paged,
        places: &[Place],
        looker: &mut Looker<F>,
    ) -> Result<(usize, ControlFlow<()>), Stop> {
        let places = &places[..places.len().min(AHEAD_KEYS_MAX)];
        let nodes: SmallVec<[NodePlace; AHEAD_KEYS_MAX]> = places
            .iter()
            .map(|place| {
                let key = leaf_key(paged.root.object, place.node | NODE);
                (key, self.store.hasher.hash_in(paged.leaves, &key))
            })
            .collect();
        // all leaves of a collection are in one stripe
        let stripe = nodes[0].1.stripe();
        let is_plain = self.overlay.is_untouched() && self.counted.is_none();
        if !is_plain || self.guards.stripe(stripe).is_ok() {
            return Ok((0, ControlFlow::Continue(())));
        }
        self.charge(places.len())?;
        let stripe = self.store.index.lock_after_others(stripe);
        if let Some(space) = stripe.space(paged.leaves) {
            let hashes: SmallVec<[_; AHEAD_KEYS_MAX]> = nodes.iter().map(|(_, hash)| *hash).collect();
            ahead::bring(&space.table, &hashes);
        }
        let (mut seen, mut flow) = (0, ControlFlow::Continue(()));
        // what is missed here is missed again where it is waited for
        let wanted = self.wanted.take();
        for (place, node) in places.iter().zip(&nodes) {
            let found = self.lookup_in(&stripe, self.prepared(), paged.key_place(node));
            let leaf = match found {
                Ok(Some(State { kind, value: Bytes::Plain(value), has_value: true, .. }))
                    if kind == record::kind_of(paged.kind) =>
                {
                    leaf_of(paged, value, place.counted)
                }
                _ => break,
            };
            // who looks at it by itself says what is wrong with it
            let Ok(leaf) = leaf else { break };
            flow = looker.look(place.first, leaf);
            seen += 1;
            if flow.is_break() {
                break;
            }
        }
        self.wanted.replace(wanted);
        Ok((seen, flow))
    }
}

/// Elements that are looked at before more are asked for, where others wait meanwhile.
const PART: u64 = 2_048;
/// The same beside the loops, where the list of their leaves is all that is held.
const PART_HERE: u64 = 8_192;
/// Elements of a leaf that are found and put on no heap.
const FOUND_FEW: usize = 8;
