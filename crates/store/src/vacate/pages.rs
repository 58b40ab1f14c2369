//! What each page of memory holds, and which ones are emptied with the least effort.
//!
//! ```text
//!  whole    all bytes of what touches the page: what is moved to empty it
//!  within   those of them that lie in it: what it gains is the rest
//!  rank     whole / gain
//! ```
//!
//! What moves takes room elsewhere. So a page that is three quarters full gains a quarter; whether that room was free before, nobody knows.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;

use crate::hash::WordHasher;

/// What each page of memory holds, in units of [`UNIT_BYTES`].
#[derive(Debug, Default)]
pub(super) struct Pages {
    regions: HashMap<u64, Box<[Load; REGION_PAGES]>, BuildHasherDefault<WordHasher>>,
}

/// What a page holds.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// All bytes of the values that touch it: what it takes to empty it. Or [`CHOSEN`], or [`STAYS`].
    whole: u16,
    /// Those that lie in it.
    within: u16,
}

impl Load {
    /// How much is to be moved for each byte that comes free, times [`RANK_ONE`]; `None` where it is not worth it, or the page stays.
    fn rank(self) -> Option<usize> {
        if self.whole >= CHOSEN || self.whole == 0 {
            return None;
        }
        let rank = usize::from(self.whole) * RANK_ONE / self.free_units().max(1);
        (rank <= RANK_MAX).then_some(rank)
    }

    /// What comes free when what is here lies elsewhere.
    fn free_units(self) -> usize {
        (PAGE_BYTES / UNIT_BYTES).saturating_sub(self.within.into())
    }
}

impl Pages {
    /// Counts what takes the addresses of `range`; if it `stays` where it is, so do its pages.
    pub(super) fn add(&mut self, range: Range<usize>, stays: bool) {
        let whole = u16::try_from(range.len().div_ceil(UNIT_BYTES)).unwrap_or(WHOLE_MAX);
        for page in pages_of(&range) {
            let region = self.regions.entry((page / REGION_PAGES) as u64);
            let load =
                &mut region.or_insert_with(|| Box::new([Load::default(); REGION_PAGES]))[page % REGION_PAGES];
            let within = range.start.max(page * PAGE_BYTES)..range.end.min((page + 1) * PAGE_BYTES);
            load.within = load.within.saturating_add(within.len().div_ceil(UNIT_BYTES) as u16);
            load.whole = if stays || load.whole == STAYS {
                STAYS
            } else {
                load.whole.saturating_add(whole).min(WHOLE_MAX)
            };
        }
    }

    /// Chooses the pages that are emptied with the least effort, until `bytes` would come free; those beyond three quarters full only if it `is_thorough`.
    pub(super) fn choose(&mut self, bytes: u64, is_thorough: bool) {
        let mut free = [0; RANK_MAX + 1];
        for load in self.regions.values().flat_map(|region| region.iter()) {
            if let Some(rank) = load.rank() {
                free[rank] += load.free_units();
            }
        }
        if !is_thorough {
            free[RANK_EASY..].fill(0);
        }
        let mut left = bytes.div_ceil(UNIT_BYTES as u64) as usize;
        for units in &mut free {
            *units = left.min(*units);
            left -= *units;
        }
        for load in self.regions.values_mut().flat_map(|region| region.iter_mut()) {
            if let Some(rank) = load.rank()
                && free[rank] > 0
            {
                free[rank] = free[rank].saturating_sub(load.free_units());
                load.whole = CHOSEN;
            }
        }
    }

    /// Whether what takes these bytes lies in a page that was chosen.
    pub(super) fn has_chosen(&self, range: Range<usize>) -> bool {
        pages_of(&range).any(|page| {
            let region = self.regions.get(&((page / REGION_PAGES) as u64));
            region.is_some_and(|region| region[page % REGION_PAGES].whole == CHOSEN)
        })
    }
}

/// The pages that a value touches which takes the addresses of `range`, at least one.
fn pages_of(range: &Range<usize>) -> impl Iterator<Item = usize> + use<> {
    range.start / PAGE_BYTES..=(range.end - 1) / PAGE_BYTES
}

/// What the system takes back.
pub(super) const PAGE_BYTES: usize = 4 << 10;
/// Pages that are counted in one piece: 2 MiB.
const REGION_PAGES: usize = 512;
/// Chunks of the allocator are multiples of this.
const UNIT_BYTES: usize = 16;
/// As much is moved as comes free.
const RANK_ONE: usize = 64;
/// Seven times as much: pages that are fuller stay.
const RANK_MAX: usize = 7 * RANK_ONE;
/// Three times as much: where values can leave memory for what is lacked, fuller ones stay, too.
const RANK_EASY: usize = 3 * RANK_ONE;
/// A page that cannot be emptied; one that is to be; and the most that another may take.
const STAYS: u16 = u16::MAX;
const CHOSEN: u16 = STAYS - 1;
const WHOLE_MAX: u16 = CHOSEN - 1;

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_UNITS: usize = PAGE_BYTES / UNIT_BYTES;

    /// A value of so many units in each page; 0: one that stays.
    fn pages(units: &[usize]) -> Pages {
        let mut pages = Pages::default();
        for (page, units) in units.iter().enumerate() {
            pages.add(page * PAGE_BYTES..page * PAGE_BYTES + units.max(&1) * UNIT_BYTES, *units == 0);
        }
        pages
    }

    fn chosen(units: &[usize], wanted_units: usize) -> Vec<usize> {
        let mut pages = pages(units);
        pages.choose((wanted_units * UNIT_BYTES) as u64, true);
        (0..units.len()).filter(|page| pages.has_chosen(page * PAGE_BYTES..page * PAGE_BYTES + 1)).collect()
    }

    #[test]
    fn emptiest_pages_are_chosen_and_no_more_than_are_wanted() {
        let loads = [10, 20, 40, 10];
        assert_eq!(chosen(&loads, 1), [0]);
        assert_eq!(chosen(&loads, PAGE_UNITS - 10), [0]);
        assert_eq!(chosen(&loads, PAGE_UNITS), [0, 3], "what lies in the first takes room elsewhere");
        assert_eq!(chosen(&loads, 3 * PAGE_UNITS - 40), [0, 1, 3]);
        assert_eq!(chosen(&loads, 9 * PAGE_UNITS), [0, 1, 2, 3]);
        assert_eq!(
            chosen(&[16; 600], 550 * (PAGE_UNITS - 16)).len(),
            550,
            "of equal ones and over two regions"
        );
        assert!(chosen(&[], 9).is_empty());
    }

    #[test]
    fn page_of_a_value_that_stays_is_not_chosen_whatever_else_it_has() {
        assert_eq!(chosen(&[0, 5, 0], 3 * PAGE_UNITS), [1]);
        let mut pages = pages(&[0, 5]);
        pages.add(64..64 + 128, false);
        pages.add(PAGE_BYTES + 512..PAGE_BYTES + 512 + 128, true);
        pages.choose(u64::MAX, true);
        assert!(!pages.has_chosen(0..2 * PAGE_BYTES));
    }

    #[test]
    fn page_that_is_nearly_full_is_not_chosen_nor_one_that_takes_a_long_value_to_empty() {
        assert_eq!(chosen(&[PAGE_UNITS, PAGE_UNITS * 15 / 16, PAGE_UNITS * 3 / 4], usize::MAX >> 5), [2]);
        let mut pages = Pages::default();
        pages.add(PAGE_BYTES / 2..PAGE_BYTES / 2 + (64 << 10), false);
        pages.choose(u64::MAX, true);
        assert!(!pages.has_chosen(0..17 * PAGE_BYTES), "64 KiB for two half pages");
        let mut pages = Pages::default();
        pages.add(PAGE_BYTES - 16..PAGE_BYTES - 16 + PAGE_BYTES + 32, false);
        pages.choose(u64::MAX, true);
        assert!(pages.has_chosen(0..PAGE_BYTES) && !pages.has_chosen(PAGE_BYTES..PAGE_BYTES + PAGE_BYTES));
    }

    #[test]
    fn load_beyond_what_is_counted_is_neither_a_choice_nor_a_stay() {
        let mut pages = Pages::default();
        (0..40).for_each(|_| pages.add(0..64 << 10, false));
        assert_eq!(pages.regions[&0][0].whole, WHOLE_MAX);
        assert!(!pages.has_chosen(0..1));
    }
}
