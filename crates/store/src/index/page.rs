//! A page: up to 128 slots whose hashes share a prefix; more only where nothing parts them.
//!
//! ```text
//! tags   | u8 x capacity |                        8 hash bits each: what a lookup scans
//! slots  | (bits u32, word u64) x capacity |      the other 32 hash bits, and address or object
//! stamps | u32 x capacity |                       when and how often the key was used, while that is tracked (`evict`)
//! ```
//!
//! The arrays grow together in steps of [`GROWTH_SLOTS`], so a page wastes half a step on average.
//!
//! Invariants
//!   1. `tags` and `slots` have the same length; entry i of both is one slot. `stamps` has it, too, or is empty.
//!   2. Several slots may have equal bits and tag: candidates, told apart by their keys.
//!
//! Out of scope: which hashes belong here and when to split (`table`).

use std::cell::Cell;
use std::ops::Range;

use crate::hash::KeyHash;
use crate::index::cpu::{equal_bytes, prefetch};
use crate::object::{ObjectRef, Word};

/// One entry of the index.
#[derive(Debug)]
pub(crate) struct Slot {
    bits: u32,
    /// LogAddress or hot object.
    pub(crate) word: Word,
}

impl Slot {
    /// A slot for a key of `hash`.
    pub(crate) fn new(hash: KeyHash, word: Word) -> Self {
        Self { bits: (hash.bits() >> 32) as u32, word }
    }

    /// [`KeyHash::bits`].
    pub(crate) fn bits(&self) -> u64 {
        u64::from(self.bits) << 32
    }
}

/// Slots whose hashes share the top `depth` bits.
#[derive(Debug, Default)]
pub(crate) struct Page {
    tags: Vec<u8>,
    slots: Vec<Slot>,
    stamps: Vec<Cell<u32>>,
    /// How many hash bits all slots of this page share.
    pub(crate) depth: u8,
    /// Number of slots when a split was last found to be impossible; 0: never.
    stuck_slots: u32,
}

impl Page {
    /// Adds a slot, with a stamp if they are tracked; the caller has split the page if it should not grow.
    pub(crate) fn push(&mut self, tag: u8, slot: Slot, stamp: Option<u32>) -> usize {
        if self.slots.len() == self.slots.capacity() {
            self.tags.reserve_exact(GROWTH_SLOTS);
            self.slots.reserve_exact(GROWTH_SLOTS);
        }
        self.tags.push(tag);
        self.slots.push(slot);
        if let Some(stamp) = stamp {
            self.stamps.reserve_exact(self.slots.capacity() - self.stamps.len());
            self.stamps.push(Cell::new(stamp));
        }
        self.slots.len() - 1
    }

    /// Removes slot `at`; the last slot takes its position.
    pub(crate) fn swap_remove(&mut self, at: usize) -> Slot {
        self.tags.swap_remove(at);
        let slot = self.slots.swap_remove(at);
        if !self.stamps.is_empty() {
            self.stamps.swap_remove(at);
        }
        if self.slots.capacity() - self.slots.len() > 3 * GROWTH_SLOTS {
            self.tags.shrink_to(self.slots.len() + GROWTH_SLOTS);
            self.slots.shrink_to(self.slots.len() + GROWTH_SLOTS);
            self.stamps.shrink_to(self.stamps.len() + if self.stamps.is_empty() { 0 } else { GROWTH_SLOTS });
        }
        slot
    }

    /// An empty page at `depth`.
    pub(crate) fn empty(depth: u8) -> Self {
        Self { depth, ..Self::default() }
    }

    /// Whether the page should be split before it takes another slot. Where that was impossible it is tried again at twice the
    /// size, so that the tries of a page look at each slot twice on average.
    pub(crate) fn is_full(&self) -> bool {
        self.slots.len() >= PAGE_SLOTS_MAX.max(2 * self.stuck_slots as usize)
    }

    /// Takes note that the page cannot be split.
    pub(crate) fn set_stuck(&mut self) {
        self.stuck_slots = self.slots.len() as u32;
    }

    /// How many leading hash bits all slots share, 32 if they are equal: the first bit that a split can go by. Looks at all slots.
    pub(crate) fn shared_bits(&self) -> u8 {
        let first = self.slots.first().map_or(0, |slot| slot.bits);
        let differing = self.slots.iter().fold(0, |differing, slot| differing | (slot.bits ^ first));
        differing.leading_zeros() as u8
    }

    /// Moves the slots whose hash bit number `depth` (from the top) is set into a new page; both go one deeper.
    pub(crate) fn split(&mut self) -> Self {
        let bit = 1_u64 << (63 - self.depth);
        let upper = self.slots.iter().filter(|slot| slot.bits() & bit != 0).count();
        let mut low = Self::with_room(self.slots.len() - upper, self.depth + 1);
        let mut high = Self::with_room(upper, self.depth + 1);
        for (tag, slot, stamp) in self.take_slots() {
            let half = if slot.bits() & bit == 0 { &mut low } else { &mut high };
            half.push(tag, slot, stamp);
        }
        *self = low;
        high
    }

    /// Takes all slots out, with their stamps.
    pub(crate) fn take_slots(&mut self) -> impl Iterator<Item = (u8, Slot, Option<u32>)> + use<> {
        let (tags, slots) = (std::mem::take(&mut self.tags), std::mem::take(&mut self.slots));
        let mut stamps = std::mem::take(&mut self.stamps).into_iter();
        tags.into_iter().zip(slots).map(move |(tag, slot)| (tag, slot, stamps.next().map(Cell::into_inner)))
    }

    /// Gives all slots this stamp, or none.
    pub(crate) fn stamp_all(&mut self, stamp: Option<u32>) {
        self.stamps = Vec::new();
        if let Some(stamp) = stamp {
            self.stamps.reserve_exact(self.slots.capacity());
            self.stamps.resize(self.slots.len(), Cell::new(stamp));
        }
    }

    /// The stamp of slot `at`, if they are tracked.
    pub(crate) fn stamp(&self, at: usize) -> Option<&Cell<u32>> {
        self.stamps.get(at)
    }

    /// Positions of the slots whose bits and tag equal `hash`'s, in order.
    pub(crate) fn candidates(&self, hash: KeyHash) -> impl Iterator<Item = usize> {
        let bits = hash.bits();
        Matches::of(hash.tag(), &self.tags).filter(move |at| self.slots[*at].bits() == bits)
    }

    /// Brings the tags near.
    pub(crate) fn bring_tags(&self) {
        self.tags.chunks(CACHE_LINE_BYTES).for_each(|line| prefetch(line.as_ptr()));
    }

    /// Brings the first slot with `tag` near; returns its position.
    pub(crate) fn bring_slot(&self, tag: u8) -> Option<usize> {
        let at = Matches::of(tag, &self.tags).next()?;
        prefetch(&raw const self.slots[at]);
        Some(at)
    }

    /// [`KeyHash::bits`] of the slot at `at`, if there is one.
    pub(crate) fn bits_at(&self, at: usize) -> Option<u64> {
        self.slots.get(at).map(Slot::bits)
    }

    /// Tag and slot at `at`.
    pub(crate) fn get(&self, at: usize) -> (u8, &Slot) {
        (self.tags[at], &self.slots[at])
    }

    /// Brings its objects near.
    pub(crate) fn bring_objects(&self) {
        self.slots.iter().for_each(|slot| slot.word.prefetch());
    }

    /// Objects of hot slots.
    pub(crate) fn objects(&self) -> impl Iterator<Item = ObjectRef<'_>> {
        self.slots.iter().filter_map(|slot| slot.word.object())
    }

    /// The word whose object begins at `start`.
    pub(crate) fn word_with_object(&mut self, start: usize) -> Option<&mut Word> {
        let begins = |slot: &&mut Slot| slot.word.object().is_some_and(|object| object.start() == start);
        self.slots.iter_mut().find(begins).map(|slot| &mut slot.word)
    }

    /// The addresses that its arrays take.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let slots = (self.slots.as_ptr().addr(), self.slots.capacity() * size_of::<Slot>());
        let stamps = (self.stamps.as_ptr().addr(), self.stamps.capacity() * size_of::<Cell<u32>>());
        let arrays = [(self.tags.as_ptr().addr(), self.tags.capacity()), slots, stamps].into_iter();
        let arrays = arrays.filter(|(_, bytes)| *bytes > 0);
        arrays.map(|(start, bytes)| start..start + crate::object::chunk_bytes(bytes) as usize)
    }

    /// An empty page whose arrays have the same room.
    pub(crate) fn of_same_room(&self) -> Self {
        Self {
            tags: Vec::with_capacity(self.tags.capacity()),
            slots: Vec::with_capacity(self.slots.capacity()),
            stamps: Vec::with_capacity(self.stamps.capacity()),
            ..Self::empty(self.depth)
        }
    }

    /// Moves all slots to the arrays of `place`, which come from [`Page::of_same_room`]; returns those that they leave.
    pub(crate) fn move_to(&mut self, mut place: Self) -> Self {
        let room = |page: &Self| (page.tags.capacity(), page.slots.capacity(), page.stamps.capacity());
        assert_eq!(room(&place), room(self), "a place of another size");
        place.tags.append(&mut self.tags);
        place.slots.append(&mut self.slots);
        place.stamps.append(&mut self.stamps);
        place.stuck_slots = self.stuck_slots;
        std::mem::replace(self, place)
    }

    /// The word at `at`.
    pub(crate) fn word_mut(&mut self, at: usize) -> &mut Word {
        &mut self.slots[at].word
    }

    /// Number of slots.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Looks whether the page is as its header says, with stamps if the use of keys is tracked: for simulations.
    ///
    /// # Panics
    /// If it is not: a bug.
    pub(crate) fn check(&self, is_tracked: bool) {
        assert_eq!(self.tags.len(), self.slots.len(), "tags and slots");
        let stamps = if is_tracked { self.slots.len() } else { 0 };
        assert_eq!(self.stamps.len(), stamps, "stamps of {} slots", self.slots.len());
        assert!(
            self.shared_bits() >= self.depth,
            "slots share {} of {} bits",
            self.shared_bits(),
            self.depth
        );
    }

    /// What the two arrays cost.
    pub(crate) fn memory_bytes(&self) -> u64 {
        if self.slots.capacity() == 0 {
            return 0;
        }
        let slots = crate::object::chunk_bytes(self.slots.capacity() * size_of::<Slot>());
        let stamps = match self.stamps.capacity() {
            0 => 0,
            stamps => crate::object::chunk_bytes(stamps * size_of::<Cell<u32>>()),
        };
        slots + stamps + crate::object::chunk_bytes(self.tags.capacity())
    }

    fn with_room(slots: usize, depth: u8) -> Self {
        let room = slots.next_multiple_of(GROWTH_SLOTS);
        let (tags, slots) = (Vec::with_capacity(room), Vec::with_capacity(room));
        Self { tags, slots, stamps: Vec::new(), depth, stuck_slots: 0 }
    }
}

/// Positions of a byte in a page's tags. A search that calls out for each match costs more than looking at all tags here.
struct Matches<'a> {
    tags: &'a [u8],
    tag: u8,
    /// Where the tags begin that were not looked at: a whole number of chunks, the last of which may be short.
    next: usize,
    /// Bit i: tag i of the chunk before `next` equals, and was not told yet.
    found: u32,
}

impl<'a> Matches<'a> {
    fn of(tag: u8, tags: &'a [u8]) -> Self {
        Self { tags, tag, next: 0, found: 0 }
    }

    /// Looks at the last tags, fewer than a chunk: at those before them, too, if there are any.
    fn look_at_rest(&self) -> u32 {
        let rest = self.tags.len() - self.next;
        if let Some(chunk) = self.tags.last_chunk() {
            return equal_bytes(chunk, self.tag) >> (CHUNK_TAGS - rest);
        }
        let mut chunk = [!self.tag; CHUNK_TAGS];
        chunk[..rest].copy_from_slice(&self.tags[self.next..]);
        equal_bytes(&chunk, self.tag)
    }
}

impl Iterator for Matches<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.found == 0 {
            if self.next >= self.tags.len() {
                return None;
            }
            self.found = match self.tags[self.next..].first_chunk() {
                Some(chunk) => equal_bytes(chunk, self.tag),
                None => self.look_at_rest(),
            };
            self.next += CHUNK_TAGS;
        }
        let bit = self.found.trailing_zeros();
        self.found &= self.found - 1;
        Some(self.next - CHUNK_TAGS + bit as usize)
    }
}

/// Slots beyond which a page is split.
pub(crate) const PAGE_SLOTS_MAX: usize = 128;
const CACHE_LINE_BYTES: usize = 64;
/// Tags that are compared at once.
const CHUNK_TAGS: usize = 16;
/// How many slots a page grows by.
const GROWTH_SLOTS: usize = 8;
const _: () = assert!(size_of::<Slot>() == 12);

#[cfg(test)]
mod tests {
    use journal::LogAddress;

    use super::*;

    fn slot(bits: u64) -> Slot {
        Slot { bits: (bits >> 32) as u32, word: Word::cold(LogAddress::default(), 0) }
    }

    #[test]
    fn split_separates_by_the_next_bit_and_keeps_all_slots() {
        let mut page = Page::default();
        for i in 0..100_u64 {
            page.push(i as u8, slot(i << 57), None);
        }
        let high = page.split();
        assert_eq!((page.depth, high.depth), (1, 1));
        assert_eq!(page.len() + high.len(), 100);
        assert!((0..high.len()).all(|at| high.get(at).1.bits() >> 63 == 1));
        assert!((0..page.len()).all(|at| page.get(at).1.bits() >> 63 == 0));
    }

    #[test]
    fn matches_are_the_positions_of_a_byte() {
        proptest::proptest!(|(tags in proptest::collection::vec(0_u8..4, 0..140), tag in 0_u8..4, high: bool)| {
            let high = if high { 0x80 } else { 0 };
            let tags: Vec<u8> = tags.into_iter().map(|tag| tag | high).collect();
            let expected = (0..tags.len()).filter(|at| tags[*at] == tag | high);
            proptest::prop_assert!(Matches::of(tag | high, &tags).eq(expected));
        });
    }

    #[test]
    fn shared_bits_are_those_before_the_first_that_differs() {
        let mut page = Page::default();
        assert_eq!(page.shared_bits(), 32, "nothing differs in an empty page");
        page.push(0, slot(0xf0f0_0000_0000_0000), None);
        page.push(0, slot(0xf0f0_0000_0000_0000), None);
        assert_eq!(page.shared_bits(), 32);
        page.push(0, slot(0xf0f1_0000_0000_0000), None);
        assert_eq!(page.shared_bits(), 15);
    }

    #[test]
    fn page_that_cannot_be_split_is_tried_again_at_twice_the_size() {
        let mut page = Page::default();
        let mut tried_at = Vec::new();
        for _ in 0..1_000 {
            if page.is_full() {
                tried_at.push(page.len());
                page.set_stuck();
            }
            page.push(0, slot(0), None);
        }
        assert_eq!(tried_at, [128, 256, 512]);
    }

    #[test]
    fn removal_moves_the_last_slot_and_gives_memory_back() {
        let mut page = Page::default();
        (0..128).for_each(|i| {
            page.push(i as u8, slot(i), None);
        });
        let full = page.memory_bytes();
        (0..120).for_each(|_| {
            page.swap_remove(0);
        });
        assert_eq!(page.len(), 8);
        assert!(page.memory_bytes() < full / 3, "{} of {full}", page.memory_bytes());
    }
}
