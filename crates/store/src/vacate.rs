//! Pages of memory that hold few values are emptied, and go back to the system.
//!
//! ```text
//!  pages    |..v.|v..v|vvvv|v...|      v: a value
//!                                      1 page is wanted: the first goes; 2: first and last; 3: these and the second
//!           |....|....|vvvv|....| |vvvv|
//! ```
//!
//! Values that leave memory leave holes between others. Larger values do not fit there, and as long as a page has one value the system does not get it
//! back. A walk over all slots adds up what each page holds; a second one moves what lies in the pages that hold least, until enough of them are free. So do
//! the arrays of the index, which lie between the values.
//!
//! What moves gets a new place from the allocator. A place in a page that is to be emptied is set aside, as is the place that a value leaves: given back at
//! once, the allocator would hand it out again. A round ends when these come to [`Vacating::round_bytes`]: they are freed then, and pages go back.
//!
//! Invariants
//!   1. A word owns its object alone, and nothing else points there unless it holds the stripe's lock: what moves, moves under that.
//!      Bytes of large values are lent (`large`), and stay, and so do their pages.
//!   2. A value that moves keeps all that it is, its level of use and its account.
//!   3. A step holds one stripe's lock at a time, for one page of the index, and a turn visits [`BUDGET_PAGES`] of them.
//!   4. A pass that did not help is followed by a pause (`resident`), and opens the gate as any other; one that takes long opens it before it ends.
//!
//! Measured and chosen: docs/adr/0016-resident-memory.md. Out of scope: how much may be resident (`resident`), and when a pass begins (`tend`).

pub(crate) mod gate;
mod moving;
mod pages;
#[cfg(test)]
mod tests;

use clock::Nanos;

use crate::hash::STRIPES;
use crate::index::Index;
use crate::object::ObjectRef;
use moving::{Found, Moving};
use pages::Pages;

/// A pass under way.
#[derive(Debug)]
pub(crate) struct Vacating {
    pub(crate) begun_at: Nanos,
    pub(crate) wanted_bytes: u64,
    /// What was resident when it began.
    pub(crate) resident_bytes: u64,
    /// Values cannot leave memory for what is lacked.
    is_thorough: bool,
    pages: Pages,
    phase: Phase,
    at: Position,
    moving: Moving,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first walk: what each page holds.
    Counts,
    /// The second: what lies in those that are to be emptied.
    Finds,
    Moves,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is more to do.
    More,
    /// As many bytes were left behind as may be: [`Vacating::end_round`].
    Round,
    /// All was moved; the last round is to be ended.
    Done,
}

/// A page of the index.
#[derive(Debug, Default)]
struct Position {
    stripe: usize,
    space: usize,
    bits: u64,
}

impl Vacating {
    /// A pass that begins at `now`, when `resident_bytes` are resident, and is to empty pages of `wanted_bytes`.
    pub(crate) fn new(
        now: Nanos,
        resident_bytes: u64,
        wanted_bytes: u64,
        limit_bytes: u64,
        is_thorough: bool,
    ) -> Self {
        Self {
            is_thorough,
            begun_at: now,
            wanted_bytes,
            resident_bytes,
            pages: Pages::default(),
            phase: Phase::Counts,
            at: Position::default(),
            moving: Moving::new(limit_bytes / ROUND_SHARE),
        }
    }

    /// Goes on for [`BUDGET_PAGES`], or [`BUDGET_MOVES`], or until a round ends.
    pub(crate) fn step(&mut self, index: &Index) -> Progress {
        if self.phase == Phase::Moves {
            return self.moving.step(index, &self.pages, BUDGET_MOVES);
        }
        for _ in 0..BUDGET_PAGES {
            if self.at.stripe < STRIPES {
                self.visit(index);
                continue;
            }
            self.at = Position::default();
            if self.phase == Phase::Counts {
                self.pages.choose(self.wanted_bytes, self.is_thorough);
                self.phase = Phase::Finds;
            } else {
                self.moving.begin();
                self.phase = Phase::Moves;
                break;
            }
        }
        Progress::More
    }

    /// Frees what was left behind.
    pub(crate) fn end_round(&mut self) {
        self.moving.end_round();
    }

    fn visit(&mut self, index: &Index) {
        let mut stripe = index.lock(self.at.stripe);
        let Some((keyspace, space)) = stripe.space_at_mut(self.at.space) else {
            self.at = Position { stripe: self.at.stripe + 1, ..Position::default() };
            return;
        };
        let Self { pages, phase, moving, at, .. } = self;
        let page = space.table.page_at(at.bits);
        if *phase == Phase::Counts {
            page.bring_objects();
            page.ranges().for_each(|range| pages.add(range, false));
            for object in page.objects() {
                pages.add(object.range(), object.own_bytes() > MOVED_BYTES_MAX);
                if let Some(range) = object.large_range() {
                    pages.add(range, true);
                }
            }
        } else if let Some(bits) = page.bits_at(0) {
            let at = Found::of(at.stripe, keyspace, bits);
            let arrays = page.ranges().filter(|range| pages.has_chosen(range.clone()));
            arrays.for_each(|range| moving.add(at.arrays(range.start)));
            // most lie in no such page: their headers are not looked at
            let reach = |it: &ObjectRef<'_>| it.start()..it.start() + MOVED_BYTES_MAX as usize;
            let near = page.objects().filter(|it| pages.has_chosen(reach(it)));
            let objects = near.filter(|object| pages.has_chosen(object.range()));
            objects.for_each(|object| moving.add(at.object(object.start())));
        }
        match space.table.page_after(at.bits) {
            Some(bits) => at.bits = bits,
            None => *at = Position { space: at.space + 1, bits: 0, ..*at },
        }
    }
}

/// Pages of the index that one turn visits, and values that it moves: some ms each.
const BUDGET_PAGES: usize = 512;
const BUDGET_MOVES: usize = 4_096;
/// Larger values stay where they are: others wait for the stripe while they are copied, and most of their pages hold nothing else.
const MOVED_BYTES_MAX: u64 = 16 << 10;
/// What is left behind in a round is this share of the limit: it is resident beside all else.
const ROUND_SHARE: u64 = 32;
