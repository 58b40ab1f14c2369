//! Pages of memory that hold few values are emptied, and go back to the system.
//!
//! ```text
//!  pages    |..v.|v..v|vvvv|v...|      v: a value that can leave memory
//!  cost      1    2    4    1          1 page is wanted: the first goes; 2: first and last; 3: these and the second
//! ```
//!
//! Values that leave memory in the order of the index leave holes between others. Larger values do not fit there, and as long as a page has one value the
//! system does not get it back. A walk over all slots adds up what each page holds; a second one drops what lies in the cheapest pages, until enough of them
//! are free. The reads of those values are not asked: a page has some of each kind.
//!
//! Invariants
//!   1. A page with a value that cannot leave memory now (`memory`, invariant 1) is not chosen.
//!   2. A step holds one stripe's lock at a time, for one page of the index, and a turn visits [`BUDGET_PAGES`] of them.
//!   3. A pass that did not help is followed by a pause (`resident`), and opens the gate as any other; one that takes long opens it before it ends.
//!
//! Measured and chosen: docs/adr/0060-pages-that-hold-little-are-emptied.md. Out of scope: how much may be resident (`resident`), and when a pass begins (`tend`).

pub(crate) mod gate;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use clock::Nanos;
use journal::Seq;

use crate::engine::Engine;
use crate::hash::STRIPES;
use crate::index::Index;
use crate::memory::{is_folded, pass};
use crate::object::{ObjectRef, Word};
use crate::policy::Round;
use crate::record;

/// What it costs to empty each page: the bytes of all values that touch it, in units of [`UNIT_BYTES`].
#[derive(Debug, Default)]
struct Pages {
    /// Costs by page, up to [`COST_MAX`]; or [`CHOSEN`], or [`STAYS`].
    regions: HashMap<usize, Box<[u16; REGION_PAGES]>>,
}

impl Pages {
    /// Counts a value that takes `bytes` from `start` on; if it `stays` in memory, so do its pages.
    fn add(&mut self, (start, bytes): (usize, usize), stays: bool) {
        let cost = u16::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(COST_MAX);
        for page in pages_of((start, bytes)) {
            let region =
                self.regions.entry(page / REGION_PAGES).or_insert_with(|| Box::new([0; REGION_PAGES]));
            let sum = &mut region[page % REGION_PAGES];
            *sum = if stays || *sum == STAYS { STAYS } else { sum.saturating_add(cost).min(COST_MAX) };
        }
    }

    /// Chooses the cheapest pages, until `bytes` would come free.
    fn choose(&mut self, bytes: u64) {
        let mut counts = vec![0; usize::from(COST_MAX) + 1];
        let costs = self.regions.values().flat_map(|region| region.iter());
        costs.filter(|cost| **cost <= COST_MAX).for_each(|cost| counts[usize::from(*cost)] += 1);
        counts[0] = 0;
        let mut left = bytes.div_ceil(PAGE_BYTES as u64);
        for count in &mut counts {
            *count = left.min(*count);
            left -= *count;
        }
        for cost in self.regions.values_mut().flat_map(|region| region.iter_mut()) {
            if *cost <= COST_MAX && counts[usize::from(*cost)] > 0 {
                counts[usize::from(*cost)] -= 1;
                *cost = CHOSEN;
            }
        }
    }

    /// Whether a value lies in a page that was chosen.
    fn has_chosen(&self, range: (usize, usize)) -> bool {
        pages_of(range).any(|page| {
            let region = self.regions.get(&(page / REGION_PAGES));
            region.is_some_and(|region| region[page % REGION_PAGES] == CHOSEN)
        })
    }
}

/// The pages that a value touches which takes so many bytes, at least one, from the first number on.
fn pages_of((start, bytes): (usize, usize)) -> impl Iterator<Item = usize> {
    start / PAGE_BYTES..=(start + bytes - 1) / PAGE_BYTES
}

/// A pass under way.
#[derive(Debug)]
pub(crate) struct Vacating {
    pub(crate) wanted_bytes: u64,
    pub(crate) begun_at: Nanos,
    pages: Pages,
    /// The second walk is under way.
    drops: bool,
    at: Position,
}

/// A page of the index.
#[derive(Debug, Default)]
struct Position {
    stripe: usize,
    space: usize,
    bits: u64,
}

impl Vacating {
    /// A pass that begins at `now` and is to empty pages of `wanted_bytes`.
    pub(crate) fn new(now: Nanos, wanted_bytes: u64) -> Self {
        Self { wanted_bytes, begun_at: now, pages: Pages::default(), drops: false, at: Position::default() }
    }

    /// Goes on for [`BUDGET_PAGES`]; returns whether there is more to do.
    pub(crate) fn step(&mut self, (index, engine): (&Index, &dyn Engine), folding_bytes_max: u64) -> bool {
        let released = engine.released().min(engine.newest());
        for _ in 0..BUDGET_PAGES {
            if self.at.stripe < STRIPES {
                self.visit((index, engine), released, folding_bytes_max);
            } else if self.drops {
                return false;
            } else {
                self.pages.choose(self.wanted_bytes);
                (self.drops, self.at) = (true, Position::default());
            }
        }
        true
    }

    fn visit(&mut self, (index, engine): (&Index, &dyn Engine), released: Seq, folding_bytes_max: u64) {
        let mut stripe = index.lock(self.at.stripe);
        let Some((keyspace, space)) = stripe.space_at_mut(self.at.space) else {
            self.at = Position { stripe: self.at.stripe + 1, ..Position::default() };
            return;
        };
        space.table.bring_page(self.at.bits);
        let Self { pages, drops, .. } = self;
        let (next, freed) = space.visit_words(self.at.bits, &mut |word, deltas| {
            let Some(object) = word.object() else { return };
            if !*drops {
                return count(pages, object, released);
            }
            if object.ranges().any(|range| pages.has_chosen(range)) {
                let folds =
                    |object: ObjectRef<'_>| is_folded(engine, (keyspace, object), deltas, folding_bytes_max);
                drop_value(word, released, folds);
            }
        });
        stripe.unreported_bytes -= freed;
        index.account(stripe.take_unreported());
        match next {
            Some(bits) => self.at.bits = bits,
            None => self.at = Position { space: self.at.space + 1, bits: 0, ..self.at },
        }
    }
}

/// Adds what `object` takes to its pages.
fn count(pages: &mut Pages, object: ObjectRef<'_>, released: Seq) {
    let stays = object.kind() == record::REMOVED || object.seq() > released;
    object.ranges().for_each(|range| pages.add(range, stays));
}

/// Drops the value whatever its level, unless it has to stay.
fn drop_value(word: &mut Word, released: Seq, folds: impl FnOnce(ObjectRef<'_>) -> bool) {
    let level = word.level();
    word.set_level(0);
    pass(word, released, &mut Round::default(), true, folds);
    if word.object().is_some() {
        word.set_level(level);
    }
}

/// Pages of the index that one turn visits: some ms.
const BUDGET_PAGES: usize = 512;
/// What the system takes back.
const PAGE_BYTES: usize = 4 << 10;
/// Pages that are counted in one piece: 2 MiB.
const REGION_PAGES: usize = 512;
/// Chunks of the allocator are multiples of this.
const UNIT_BYTES: usize = 16;
/// A page that cannot be emptied; one that is to be; and the most that another may cost.
const STAYS: u16 = u16::MAX;
const CHOSEN: u16 = STAYS - 1;
const COST_MAX: u16 = CHOSEN - 1;

#[cfg(test)]
mod pages_tests {
    use super::*;

    /// Costs in units by page; 0: a value that stays.
    fn pages(costs: &[usize]) -> Pages {
        let mut pages = Pages::default();
        for (page, cost) in costs.iter().enumerate() {
            pages.add((page * PAGE_BYTES, cost.max(&1) * UNIT_BYTES), *cost == 0);
        }
        pages
    }

    fn chosen(costs: &[usize], wanted_pages: usize) -> Vec<usize> {
        let mut pages = pages(costs);
        pages.choose((wanted_pages * PAGE_BYTES) as u64);
        (0..costs.len()).filter(|page| pages.has_chosen((page * PAGE_BYTES, 1))).collect()
    }

    #[test]
    fn cheapest_pages_are_chosen_and_no_more_than_are_wanted() {
        assert_eq!(chosen(&[1, 2, 4, 1], 1), [0]);
        assert_eq!(chosen(&[1, 2, 4, 1], 2), [0, 3]);
        assert_eq!(chosen(&[1, 2, 4, 1], 3), [0, 1, 3]);
        assert_eq!(chosen(&[1, 2, 4, 1], 9), [0, 1, 2, 3]);
        assert_eq!(chosen(&[9; 600], 550).len(), 550, "of equal ones and over two regions");
        assert!(chosen(&[], 9).is_empty());
    }

    #[test]
    fn page_of_a_value_that_stays_is_not_chosen_whatever_else_it_has() {
        assert_eq!(chosen(&[0, 5, 0], 3), [1]);
        let mut pages = pages(&[0, 5]);
        pages.add((64, 128), false);
        pages.add((PAGE_BYTES + 512, 128), true);
        pages.choose(u64::MAX);
        assert!(!pages.has_chosen((0, 2 * PAGE_BYTES)));
    }

    #[test]
    fn value_costs_all_pages_that_it_touches_what_it_takes() {
        let mut pages = Pages::default();
        pages.add((PAGE_BYTES - 16, 2 * PAGE_BYTES), false);
        pages.add((3 * PAGE_BYTES, 4_000), false);
        pages.choose(1);
        assert!(pages.has_chosen((3 * PAGE_BYTES + 100, 1)), "4,000 B for a page");
        assert!(!pages.has_chosen((0, 3 * PAGE_BYTES)));
        pages.choose(3 * PAGE_BYTES as u64);
        assert!((0..3).all(|page| pages.has_chosen((page * PAGE_BYTES, 1))));
    }

    #[test]
    fn cost_beyond_what_is_counted_is_neither_a_choice_nor_a_stay() {
        let mut pages = Pages::default();
        (0..40).for_each(|_| pages.add((0, 64 << 10), false));
        assert_eq!(pages.regions[&0][0], COST_MAX);
        assert!(!pages.has_chosen((0, 1)));
    }
}
