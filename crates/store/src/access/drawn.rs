//! Many elements of a large set by chance, and their removal: a leaf at a time, so that what is held is what was drawn.
//!
//! Out of scope: a few elements, of which each comes of another leaf (`paged`), sets that are one value.

use std::collections::BTreeMap;

use crate::error::Stop;
use crate::value::ValueKind;
use collections::{Form, Packed, Shape};

use super::here::{Slice, slices};
use super::nodes::Paged;
use super::{Access, WrongType};

/// Members that were drawn.
#[derive(Debug)]
pub struct Drawn(Vec<u8>);

impl Drawn {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packed().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The members.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.packed().iter().map(|(member, _)| member)
    }

    fn packed(&self) -> Packed<'_> {
        Packed::new(Shape::Set, &self.0)
    }
}

impl Access<'_> {
    /// As many members of the set at `key` as `wanted`, each once and as likely as any other; `None` if it is not paged, or if so few of its
    /// leaves have them that [`Access::sample`] looks at less.
    ///
    /// Source: selection sampling (Fan, Muller, Rezucha 1962).
    ///
    /// # Errors
    /// As [`Access::get`]; inside, [`WrongType`].
    pub fn draw(&self, db: u16, key: &[u8], wanted: usize) -> Result<Result<Option<Drawn>, WrongType>, Stop> {
        let Some(paged) = self.paged_to_change(db, key)? else { return Ok(Ok(None)) };
        if paged.kind != ValueKind::Set {
            return Ok(Err(WrongType));
        }
        if wanted <= paged.root.leaves as usize / 2 {
            return Ok(Ok(None));
        }
        self.charge(usize::try_from(paged.root.count).unwrap_or(usize::MAX))?;
        if !self.reads_here() {
            // all that are cold are missed together
            self.leaves(&paged, 0..paged.root.leaves)?;
        }
        let mut left = paged.root.count;
        let mut needed = left.min(wanted as u64);
        let mut chooses = || {
            let is_chosen = self.random_below(left.max(1)) < needed;
            left = left.saturating_sub(1);
            needed -= u64::from(is_chosen);
            is_chosen
        };
        let mut parts = Vec::new();
        for numbers in slices(0..paged.root.leaves) {
            let (slice, mut chosen) = (Slice::of(self), Vec::new());
            for number in numbers {
                self.charge(1)?;
                let leaf = Packed::new(Shape::Set, slice.node(&paged, number, ValueKind::Set)?);
                let places: Vec<usize> = (0..leaf.len()).filter(|_| chooses()).collect();
                chosen.push(collections::select(leaf, Form::Table, &places));
            }
            let part = together(&chosen);
            self.ask(part.len() as u64)?;
            parts.push(part);
        }
        // the parts are there until they are one
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.ask(bytes)?;
        let all = together(&parts);
        self.give_back(bytes);
        Ok(Ok(Some(Drawn(all))))
    }

    /// Removes the members that were `drawn` of the set at `key`, which has not changed since.
    ///
    /// # Errors
    /// As [`Access::get`].
    pub fn remove_drawn(&mut self, db: u16, key: &[u8], drawn: &Drawn) -> Result<(), Stop> {
        let Some(paged) = self.paged_to_change(db, key)? else { return Ok(()) };
        if drawn.len() as u64 == paged.root.count {
            return self.remove(db, key).map(drop);
        }
        self.charge(drawn.len())?;
        let mut by_leaf = BTreeMap::new();
        drawn.iter().for_each(|member| self.note_removal(&paged, member, &mut by_leaf));
        let changed = self.changed_leaves(&paged, by_leaf)?;
        self.stage_leaves(db, key, &paged, changed)
    }

    /// Adds the removal of `element` to the operations of its leaf.
    pub(super) fn note_removal(&self, paged: &Paged, element: &[u8], by_leaf: &mut BTreeMap<u32, Vec<u8>>) {
        let hash = self.store.hasher.hash(element);
        let operations = by_leaf.entry(paged.root.leaf_of(hash.0)).or_default();
        collections::note_map(operations, hash.low_bits(), element, None);
    }

    fn random_below(&self, len: u64) -> u64 {
        ((u128::from(self.random()) * u128::from(len)) >> 64) as u64
    }
}

fn together(parts: &[Vec<u8>]) -> Vec<u8> {
    let parts: Vec<Packed<'_>> = parts.iter().map(|part| Packed::new(Shape::Set, part)).collect();
    collections::concat(Shape::Set, Form::Table, &parts)
}
