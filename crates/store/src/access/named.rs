//! Changes of elements of a large hash or set that a command names, in several leaves: what is put together is these elements, not their leaves.

use std::collections::BTreeMap;

use crate::error::Stop;
use crate::hash::KeyHash;
use crate::packed::{self, Edit, Form, Packed};

use super::Access;
use super::here::Slice;
use super::nodes::Paged;

/// Elements with their hashes, by the leaf that has them, or would have.
pub(super) type Named<'e> = BTreeMap<u32, Vec<(&'e [u8], KeyHash)>>;

impl Access<'_> {
    /// Lets `change` change these elements, of which it sees no others.
    pub(super) fn edit_named<R>(
        &mut self,
        (db, key): (u16, &[u8]),
        paged: &Paged,
        named: &Named<'_>,
        change: impl FnOnce(&mut Edit<'_>) -> R,
    ) -> Result<R, Stop> {
        self.charge(named.values().map(Vec::len).sum())?;
        let before = self.named_elements(paged, named)?;
        let mut edit = Edit::of_key(Packed::new(paged.shape(), &before), paged.expiry);
        let done = change(&mut edit);
        if edit.is_changed() {
            let by_leaf = self.by_leaf(&paged.root, &edit.into_operations());
            drop(before);
            let changed = self.changed_leaves(paged, by_leaf)?;
            self.stage_leaves((db, key), paged, changed)?;
        }
        Ok(done)
    }

    /// Those of these elements that are there, as one collection.
    fn named_elements(&self, paged: &Paged, named: &Named<'_>) -> Result<Vec<u8>, Stop> {
        if !self.reads_here() {
            // all that are cold are missed together
            self.leaves(paged, named.keys().copied())?;
        }
        let mut parts = Vec::with_capacity(named.len());
        for (number, elements) in named {
            let slice = Slice::of(self);
            let leaf = Packed::new(paged.shape(), slice.node(paged, *number, paged.kind)?);
            let places = elements.iter().filter_map(|(element, hash)| leaf.find(hash.low_bits(), element));
            let mut places: Vec<usize> = places.collect();
            places.sort_unstable();
            places.dedup();
            parts.push(packed::select(leaf, Form::Table, &places));
        }
        let parts: Vec<Packed<'_>> = parts.iter().map(|part| Packed::new(paged.shape(), part)).collect();
        Ok(packed::concat(paged.shape(), Form::Table, &parts))
    }
}
