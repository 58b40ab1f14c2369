//! Looking for a value in lists.
//!
//! An entry begins with the length of its value, so the bytes of a whole entry are looked for at once (`memmem`), and where they are not, no
//! element is looked at. Where they are they may be a part of an element, or of two: then the elements are compared one by one.

use std::ops::Range;

use memchr::arch::all::packedpair::HeuristicFrequencyRank;
use memchr::memmem::{Finder, FinderBuilder};

use super::entries::{Packed, Shape, put_varint, split_varint};

/// A value that is looked for in many lists, or in the leaves of one.
#[derive(Debug)]
pub struct Wanted {
    /// What finds it as an entry.
    finder: Finder<'static>,
}

impl Wanted {
    /// Looks for `value`.
    ///
    /// # Panics
    /// If it has more than 4 GiB: `value.max` is below that.
    #[must_use]
    pub fn new(value: &[u8]) -> Self {
        let mut entry = Vec::with_capacity(ENTRY_BYTES_MAX.max(value.len()));
        put_varint(&mut entry, u32::try_from(value.len()).expect("value.max is below 4 GiB"));
        entry.extend_from_slice(value);
        Self { finder: FinderBuilder::new().build_forward_owned(entry) }
    }

    /// Looks first for those of its bytes that `list` has seldom. Elements often begin alike, or have one length: the bytes that are seldom
    /// elsewhere would be met in each.
    pub fn fit(&mut self, list: &Packed<'_>) {
        let mut counts = Counts([0; 256]);
        for byte in list.entries.iter().take(SAMPLE_BYTES) {
            let count = &mut counts.0[usize::from(*byte)];
            *count = count.saturating_add(1);
        }
        let entry = self.finder.needle().to_vec();
        self.finder = FinderBuilder::new().build_forward_with_ranker_owned(counts, entry);
    }

    fn value(&self) -> &[u8] {
        split_varint(self.finder.needle()).expect("it was put so").1
    }
}

/// How often a sample has each byte.
struct Counts([u8; 256]);

impl HeuristicFrequencyRank for Counts {
    fn rank(&self, byte: u8) -> u8 {
        self.0[usize::from(byte)]
    }
}

impl Packed<'_> {
    /// Which of the elements number `at` of a [`Shape::List`] are the `wanted` value, ascending.
    ///
    /// # Panics
    /// If there are not so many elements.
    pub fn places_of<'w>(
        &self,
        wanted: &'w Wanted,
        at: Range<usize>,
    ) -> impl Iterator<Item = usize> + use<'_, 'w> {
        debug_assert_eq!(self.shape, Shape::List, "others have keys");
        let bytes = &self.entries[self.end(at.start)..self.end(at.end)];
        let is_worth_it =
            wanted.finder.needle().len() <= ENTRY_BYTES_MAX && bytes.len() <= at.len() * ELEMENT_BYTES_MAX;
        let end = if is_worth_it && wanted.finder.find(bytes).is_none() { at.start } else { at.end };
        let (value, among) = (wanted.value(), at.start..end);
        self.values(among.clone()).zip(among).filter(move |(other, _)| *other == value).map(|(_, at)| at)
    }
}

/// A longer entry is not looked for by its rare bytes alone, which takes longer than to compare lengths.
const ENTRY_BYTES_MAX: usize = 32;
/// Of larger elements it takes less time to go from one to the next than through their bytes.
const ELEMENT_BYTES_MAX: usize = 64;
/// Bytes that show which are seldom.
const SAMPLE_BYTES: usize = 512;
