//! Values and arrays of the index move out of pages that are to be emptied, page by page.
//!
//! ```text
//!  found   sorted by where it lies    |..v.|v..v|....|v...|        round 1: the first two pages; 2: the last
//!                                      left behind, freed with the round
//! ```
//!
//! Invariants
//!   1. Nothing moves to a page that is still to be emptied: the allocator's places in such a page are refused, and kept until its turn has come.
//!   2. What is left behind is freed at the end of a round, and then all of the page at once: before, the allocator would hand it out again.
//!   3. At most [`Moving::round_bytes`] are left behind in a round, and beyond that a value or an array; as many are listed, and twice as many refused.

use std::ops::Range;

use journal::Keyspace;

use super::Progress;
use super::pages::{PAGE_BYTES, Pages};
use crate::index::Index;
use crate::index::page::Page;
use crate::object::{Place, Word};

/// What is to be moved, and what is kept meanwhile.
#[derive(Debug)]
pub(super) struct Moving {
    round_bytes: u64,
    found: Vec<Found>,
    /// What begins behind this is left out: there was more than is listed.
    start_max: usize,
    /// So many of `found` were met.
    met: usize,
    left: Kept,
    refused: Kept,
}

/// Something in a page that is to be emptied, ordered by where that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    /// Where it begins: 48 bits; the stripe: 8; whether it is an array of a page of the index.
    packed: u64,
    /// Of the hashes in the page of the index.
    bits: u32,
    keyspace: Keyspace,
}

/// Allocations that go back later.
#[derive(Debug, Default)]
struct Kept {
    places: Vec<Place>,
    arrays: Vec<Page>,
    bytes: u64,
}

impl Found {
    /// What is in the page of the index that has `bits` in a keyspace of a stripe; where it lies is yet to be said.
    pub(super) fn of(stripe: usize, keyspace: Keyspace, bits: u64) -> Self {
        Self { packed: (stripe as u64) << 1, bits: (bits >> 32) as u32, keyspace }
    }

    /// An object there.
    pub(super) fn object(self, start: usize) -> Self {
        Self { packed: self.packed | (start as u64) << START_SHIFT, ..self }
    }

    /// An array of the page itself.
    pub(super) fn arrays(self, start: usize) -> Self {
        Self { packed: self.object(start).packed | 1, ..self }
    }

    fn start(self) -> usize {
        (self.packed >> START_SHIFT) as usize
    }

    fn stripe(self) -> usize {
        usize::from((self.packed >> 1) as u8)
    }
}

impl Kept {
    fn place(&mut self, place: Place) {
        self.bytes += place.range().len() as u64;
        self.places.push(place);
    }

    fn arrays(&mut self, page: Page) {
        self.bytes += page.memory_bytes();
        self.arrays.push(page);
    }

    /// Frees all that lies before `from`.
    fn free_before(&mut self, from: usize) {
        self.places.retain(|place| place.range().start >= from);
        self.arrays.retain(|page| page.ranges().any(|range| range.start >= from));
        let places: u64 = self.places.iter().map(|place| place.range().len() as u64).sum();
        self.bytes = places + self.arrays.iter().map(Page::memory_bytes).sum::<u64>();
    }
}

impl Moving {
    /// Nothing to move yet, in rounds that leave `round_bytes` behind each.
    pub(super) fn new(round_bytes: u64) -> Self {
        let (left, refused) = (Kept::default(), Kept::default());
        Self { round_bytes, found: Vec::new(), start_max: usize::MAX, met: 0, left, refused }
    }

    /// Takes note of something to move; of too much what lies first.
    pub(super) fn add(&mut self, found: Found) {
        if found.start() > self.start_max {
            return;
        }
        self.found.push(found);
        let listed_max = (self.round_bytes as usize / size_of::<Found>()).max(LISTED_MIN);
        if self.found.len() >= listed_max {
            let (_, middle, _) = self.found.select_nth_unstable(listed_max / 2);
            self.start_max = middle.start();
            self.found.truncate(listed_max / 2);
        }
    }

    /// All was found.
    pub(super) fn begin(&mut self) {
        self.found.sort_unstable();
    }

    /// Moves `budget` of what was found, unless the round ends before.
    pub(super) fn step(&mut self, index: &Index, pages: &Pages, budget: usize) -> Progress {
        for _ in 0..budget {
            if self.left.bytes >= self.round_bytes {
                return Progress::Round;
            }
            let Some(found) = self.found.get(self.met).copied() else { return Progress::Done };
            self.met += 1;
            self.move_found(index, pages, found);
        }
        Progress::More
    }

    /// Frees what was left behind, and what was refused in pages that are empty by now.
    pub(super) fn end_round(&mut self) {
        self.left = Kept::default();
        self.refused.free_before(self.from());
    }

    /// Pages before this have been emptied.
    fn from(&self) -> usize {
        self.found.get(self.met).map_or(usize::MAX, |next| next.start() / PAGE_BYTES * PAGE_BYTES)
    }

    fn move_found(&mut self, index: &Index, pages: &Pages, found: Found) {
        let mut stripe = index.lock(found.stripe());
        let Some(space) = stripe.existing_space_mut(found.keyspace) else { return };
        // it may lie elsewhere by now, or be gone
        let page = space.table.page_at_mut(u64::from(found.bits) << 32);
        if found.packed & 1 != 0 {
            if page.ranges().any(|range| range.start == found.start()) {
                self.move_arrays(pages, page, found);
            }
        } else if let Some(word) = page.word_with_object(found.start()) {
            self.move_object(pages, word, found);
        }
    }

    fn move_object(&mut self, pages: &Pages, word: &mut Word, found: Found) {
        let Some(len) = word.object().map(|object| object.alloc_len()) else { return };
        for _ in 0..TRIES_MAX {
            let place = Place::new(len);
            if !Self::is_refused(pages, place.range(), found) {
                return self.left.place(word.move_to(place));
            }
            self.refused.place(place);
            if self.refused.bytes > 2 * self.round_bytes {
                return;
            }
        }
    }

    fn move_arrays(&mut self, pages: &Pages, page: &mut Page, found: Found) {
        for _ in 0..TRIES_MAX {
            let place = page.of_same_room();
            if !place.ranges().any(|range| Self::is_refused(pages, range, found)) {
                return self.left.arrays(page.move_to(place));
            }
            self.refused.arrays(place);
            if self.refused.bytes > 2 * self.round_bytes {
                return;
            }
        }
    }

    /// Whether a place lies in a page that is to be emptied, when the turn of `found` has come.
    fn is_refused(pages: &Pages, range: Range<usize>, found: Found) -> bool {
        range.end > found.start() / PAGE_BYTES * PAGE_BYTES && pages.has_chosen(range)
    }
}

/// Below it the stripe and a mark.
const START_SHIFT: u32 = 9;
/// So many are listed whatever the limit.
const LISTED_MIN: usize = 1_024;
/// How many places are tried for one value.
const TRIES_MAX: usize = 64;
