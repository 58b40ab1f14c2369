//! A table: the slots of one keyspace in one stripe, as an extendible hash of pages.
//!
//! ```text
//! directory[top `depth` bits of the hash] -> page number     (several entries may name one page)
//! pages[number]                                              (a page of depth d serves 2^(depth-d) entries)
//! ```
//!
//! A full page splits alone, at the first hash bit that parts its slots: those above that bit leave it empty neighbours, which
//! keys yet to come will fill. So each slot is moved a few times at most, whatever the order in which hashes arrive (a
//! checkpoint has them sorted). Only the directory of 4-byte numbers ever doubles, so growth never stalls: 100 M keys
//! make directories of 32 KiB. Where few slots would need a large directory a page grows beyond its size instead.
//!
//! Pages do not merge one by one: when removals have left few slots for each page, the table is built anew.
//!
//! Invariant: the directory has at most [`DIRECTORY_ENTRIES_MIN`] entries, or [`ENTRIES_PER_SLOT`] for each slot that there was at once.
//!
//! Pages lie in hash order, so a hash position is a scan cursor that survives growth and restart: a range
//! that was passed never receives a slot from a range that was not.
//!
//! Source: Fagin et al. 1979, extendible hashing.

use std::cell::Cell;

use crate::evict::policy::Tracking;
use crate::hash::KeyHash;
use crate::index::page::{PAGE_SLOTS_MAX, Page, Slot};
use crate::object::Word;

/// Where a slot lies; valid until the table changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    page: u32,
    slot: u32,
}

/// The slots of one keyspace in one stripe.
#[derive(Debug)]
pub(crate) struct Table {
    directory: Vec<u32>,
    pages: Vec<Page>,
    depth: u8,
    /// Slots, pending removals included.
    slots: usize,
    /// Slots when a page was last added.
    slots_when_grown: usize,
    /// Keys that live: slots without pending removals.
    pub(crate) live: u64,
    tracking: Option<Tracking>,
    /// Some slots may have the same bits and the same tag as others.
    has_twins: bool,
    /// How often slots have moved: whoever knows a [`Spot`] knows whether it still holds.
    moves: u64,
    /// Makes the count of uses go up by chance.
    dice: Cell<u32>,
    /// Slots that were looked at and directory entries that were written, to split.
    #[cfg(test)]
    work: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            directory: vec![0],
            pages: vec![Page::default()],
            depth: 0,
            slots: 0,
            slots_when_grown: 0,
            live: 0,
            tracking: None,
            has_twins: false,
            moves: 0,
            dice: Cell::new(1),
            #[cfg(test)]
            work: 0,
        }
    }
}

impl Table {
    /// Adds a slot; returns where it lies and by how many bytes the table grew.
    pub(crate) fn insert(&mut self, hash: KeyHash, word: Word) -> (Spot, i64) {
        // used for the first time when it was never before: whoever makes a key says so by `touch`
        let stamp = self.tracking.map(|_| 0);
        let is_twin = self.candidates(hash).next().is_some();
        self.has_twins |= is_twin;
        self.add(hash.bits(), hash.tag(), Slot::new(hash, word), stamp)
    }

    /// Begins to track the use of keys, from `now_ms` on, or ends it; returns by how many bytes the table grew.
    pub(crate) fn track(&mut self, tracking: Option<Tracking>, now_ms: u64) -> i64 {
        let before = self.memory_bytes() as i64;
        self.tracking = tracking;
        let stamp = tracking.map(|tracking| tracking.fresh(now_ms));
        self.pages.iter_mut().for_each(|page| page.stamp_all(stamp));
        self.memory_bytes() as i64 - before
    }

    /// The key at `spot` is used now.
    pub(crate) fn touch(&self, spot: Spot, now_ms: u64) {
        let Some((tracking, stamp)) = self.stamp(spot) else { return };
        stamp.set(tracking.used(stamp.get(), now_ms, || self.roll()));
    }

    /// xorshift
    fn roll(&self) -> u32 {
        let mut dice = self.dice.get();
        dice ^= dice << 13;
        dice ^= dice >> 17;
        dice ^= dice << 5;
        self.dice.set(dice);
        dice
    }

    /// The key at `spot` was made now.
    pub(crate) fn stamp_fresh(&self, spot: Spot, now_ms: u64) {
        if let Some((tracking, stamp)) = self.stamp(spot) {
            stamp.set(tracking.fresh(now_ms));
        }
    }

    /// When and how often the key at `spot` was used, if that is tracked.
    pub(crate) fn stamp(&self, spot: Spot) -> Option<(Tracking, &Cell<u32>)> {
        Some((self.tracking?, self.pages[spot.page as usize].stamp(spot.slot as usize)?))
    }

    /// How often slots have moved so far.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// Removes the slot at `spot`, after which no other spot is valid; returns its word and by how many bytes the table shrank.
    pub(crate) fn remove(&mut self, spot: Spot) -> (Word, u64) {
        self.moves += 1;
        let page = &mut self.pages[spot.page as usize];
        let before = page.memory_bytes();
        let slot = page.swap_remove(spot.slot as usize);
        let mut freed = before - page.memory_bytes();
        self.slots -= 1;
        if self.slots < self.slots_when_grown / 2 && self.slots < self.pages.len() * REBUILD_SLOTS {
            freed += self.rebuild();
        }
        (slot.word, freed)
    }

    /// The candidates for `hash`: equal bits and tag, the key decides.
    pub(crate) fn candidates(&self, hash: KeyHash) -> impl Iterator<Item = Spot> {
        let page = self.page_of(hash);
        self.pages[page].candidates(hash).map(move |slot| Spot { page: page as u32, slot: slot as u32 })
    }

    /// The word at `spot`, of which nothing else has the bits; `None`: there is no such spot, or something else may have them.
    pub(crate) fn only_word(&self, spot: Spot) -> Option<&Word> {
        let page = self.pages.get(spot.page as usize).filter(|_| !self.has_twins)?;
        page.bits_at(spot.slot as usize)?;
        Some(self.word(spot))
    }

    /// The word at `spot`.
    pub(crate) fn word(&self, spot: Spot) -> &Word {
        &self.pages[spot.page as usize].get(spot.slot as usize).1.word
    }

    /// The word at `spot`, to change.
    pub(crate) fn word_mut(&mut self, spot: Spot) -> &mut Word {
        self.pages[spot.page as usize].word_mut(spot.slot as usize)
    }

    /// Visits every slot of the page that holds hash bits `bits`; returns where the next page begins, `None` at
    /// the end of the table.
    pub(crate) fn visit_page(&self, bits: u64, visit: &mut dyn FnMut(Spot, u8, &Slot)) -> Option<u64> {
        let number = self.number_at(bits);
        let page = &self.pages[number];
        (0..page.len()).for_each(|at| {
            let (tag, slot) = page.get(at);
            visit(Spot { page: number as u32, slot: at as u32 }, tag, slot);
        });
        next_range(bits, page.depth)
    }

    /// As [`Table::visit_page`], with words to change.
    pub(crate) fn visit_page_mut(&mut self, bits: u64, visit: &mut dyn FnMut(&mut Word)) -> Option<u64> {
        let number = self.number_at(bits);
        let page = &mut self.pages[number];
        (0..page.len()).for_each(|at| visit(page.word_mut(at)));
        next_range(bits, page.depth)
    }

    /// The page that holds hash bits `bits`.
    pub(crate) fn page_at(&self, bits: u64) -> &Page {
        &self.pages[self.number_at(bits)]
    }

    /// Where the page after that one begins.
    pub(crate) fn page_after(&self, bits: u64) -> Option<u64> {
        next_range(bits, self.page_at(bits).depth)
    }

    /// As [`Table::page_at`], to move what is in it.
    pub(crate) fn page_at_mut(&mut self, bits: u64) -> &mut Page {
        let number = self.number_at(bits);
        &mut self.pages[number]
    }

    /// Visits hash bits, tag and word of every slot.
    pub(crate) fn each(&self, visit: &mut dyn FnMut(u64, u8, &Word)) {
        for page in &self.pages {
            for at in 0..page.len() {
                let (tag, slot) = page.get(at);
                visit(slot.bits(), tag, &slot.word);
            }
        }
    }

    /// Looks whether directory, pages and counts fit each other: for simulations.
    ///
    /// # Panics
    /// If they do not: a bug.
    pub(crate) fn check(&self) {
        assert_eq!(self.directory.len(), 1 << self.depth, "entries of a directory of depth {}", self.depth);
        let (mut begin, mut served) = (0, vec![false; self.pages.len()]);
        while let Some(number) = self.directory.get(begin).map(|&number| number as usize) {
            let page = &self.pages[number];
            assert!(page.depth <= self.depth, "page {number} is deeper than the directory");
            let range = begin..begin + (1 << (self.depth - page.depth));
            let is_served = begin % range.len() == 0
                && self.directory[range.clone()].iter().all(|&other| other as usize == number);
            assert!(is_served, "page {number} of depth {} serves other entries than {range:?}", page.depth);
            assert!(!std::mem::replace(&mut served[number], true), "page {number} serves two ranges");
            page.check(self.tracking.is_some());
            let is_home = page.bits_at(0).is_none_or(|bits| self.number_at(bits) == number);
            assert!(is_home, "page {number} has slots of another range");
            begin = range.end;
        }
        assert!(!served.contains(&false), "a page that no entry names");
        assert_eq!(self.slots, self.pages.iter().map(Page::len).sum::<usize>(), "slots");
    }

    /// Number of slots, pending removals included.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// What directory and pages cost, beyond those of an empty table: what [`Table::insert`] and [`Table::remove`] have told.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let pages = self.pages.iter().map(Page::memory_bytes).sum::<u64>();
        pages + ((self.directory.len() - 1) * 4 + (self.pages.len() - 1) * size_of::<Page>()) as u64
    }

    /// First of three steps towards the object of `hash`, each of which prefetches what the next one reads. The pages'
    /// own 80 bytes are few enough to be near already.
    pub(crate) fn bring_tags(&self, hash: KeyHash) {
        self.pages[self.page_of(hash)].bring_tags();
    }

    /// Second step; returns the slot, to be given to the last one.
    pub(crate) fn bring_slot(&self, hash: KeyHash) -> Option<Spot> {
        let page = self.page_of(hash);
        let slot = self.pages[page].bring_slot(hash.tag())?;
        Some(Spot { page: page as u32, slot: slot as u32 })
    }

    /// Last step. The table may have changed since.
    pub(crate) fn bring_object(&self, hash: KeyHash, guess: Spot) {
        let holds = |spot: &Spot| {
            let page = self.pages.get(spot.page as usize)?;
            (page.bits_at(spot.slot as usize)? == hash.bits()).then_some(*spot)
        };
        if let Some(spot) = holds(&guess).or_else(|| self.candidates(hash).next()) {
            self.word(spot).prefetch();
        }
    }

    /// Brings near the objects of the page that holds hash bits `bits`.
    pub(crate) fn bring_page(&self, bits: u64) {
        self.page_at(bits).bring_objects();
    }

    fn page_of(&self, hash: KeyHash) -> usize {
        self.number_at(hash.bits())
    }

    fn number_at(&self, bits: u64) -> usize {
        let entry = if self.depth == 0 { 0 } else { bits >> (64 - self.depth) };
        self.directory[entry as usize] as usize
    }

    fn add(&mut self, bits: u64, tag: u8, slot: Slot, stamp: Option<u32>) -> (Spot, i64) {
        let (mut number, mut grown) = (self.number_at(bits), 0);
        if self.pages[number].is_full() {
            self.moves += 1;
            grown = self.split(number);
            number = self.number_at(bits);
        }
        let page = &mut self.pages[number];
        let before = page.memory_bytes();
        let at = page.push(tag, slot, stamp);
        grown += page.memory_bytes() as i64 - before as i64;
        self.slots += 1;
        (Spot { page: number as u32, slot: at as u32 }, grown)
    }

    /// Splits page `number` until none of what it becomes is full, as far as that is possible; returns the bytes that the table grew by.
    fn split(&mut self, number: usize) -> i64 {
        let (mut full, mut grown) = (vec![number], 0);
        while let Some(number) = full.pop() {
            let depth_max = self.depth_max();
            let page = &mut self.pages[number];
            #[cfg(test)]
            {
                self.work += page.len();
            }
            let shared = page.shared_bits();
            if shared >= depth_max {
                page.set_stuck();
                continue;
            }
            let bits = page.bits_at(0).expect("a full page has slots");
            while self.pages[number].depth < shared {
                let page = &mut self.pages[number];
                page.depth += 1;
                let empty = Page::empty(page.depth);
                grown += self.enter(number, bits, empty);
            }
            let page = &mut self.pages[number];
            let before = page.memory_bytes() as i64;
            let high = page.split();
            grown += page.memory_bytes() as i64 + high.memory_bytes() as i64 - before;
            let low_bits = bits & !(1 << (63 - shared));
            grown += self.enter(number, low_bits, high);
            full.extend(
                [number, self.pages.len() - 1].into_iter().filter(|page| self.pages[*page].is_full()),
            );
        }
        grown
    }

    /// Adds `page`, which takes the half of page `number`'s old range that does not hold `bits`; both are one deeper than that range.
    /// Returns by how many bytes directory and list of pages grew.
    fn enter(&mut self, number: usize, bits: u64, page: Page) -> i64 {
        let (depth, mut grown) = (page.depth, size_of::<Page>() as i64);
        if depth > self.depth {
            grown += self.directory.len() as i64 * 4;
            let mut directory = Vec::with_capacity(self.directory.len() * 2);
            directory.extend(self.directory.iter().flat_map(|&page| [page, page]));
            self.directory = directory;
            self.depth += 1;
            #[cfg(test)]
            {
                self.work += self.directory.len();
            }
        }
        let added = u32::try_from(self.pages.len()).expect("pages of one stripe");
        self.pages.push(page);
        let span = 1_usize << (self.depth - depth);
        let first = ((bits >> (64 - depth)) as usize ^ 1) * span;
        debug_assert_eq!(self.directory[first] as usize, number);
        self.directory[first..first + span].fill(added);
        self.slots_when_grown = self.slots;
        #[cfg(test)]
        {
            self.work += span;
        }
        grown
    }

    /// How many bits the directory may use.
    fn depth_max(&self) -> u8 {
        let entries = (self.slots * ENTRIES_PER_SLOT).max(DIRECTORY_ENTRIES_MIN);
        DEPTH_MAX.min(entries.ilog2() as u8)
    }

    /// Puts all slots into as few pages as they need; returns the bytes that this saves.
    ///
    /// At least as many slots were removed since pages were last added: that pays for it.
    fn rebuild(&mut self) -> u64 {
        let before = self.memory_bytes();
        let mut table =
            Self { live: self.live, tracking: self.tracking, moves: self.moves, ..Self::default() };
        for page in &mut self.pages {
            for (tag, slot, stamp) in page.take_slots() {
                table.add(slot.bits(), tag, slot, stamp);
            }
        }
        table.slots_when_grown = table.slots;
        #[cfg(test)]
        {
            table.work += self.work + self.pages.len() + table.slots;
        }
        *self = table;
        before - self.memory_bytes()
    }
}

/// First hash bits after the range of depth `depth` that holds `bits`.
fn next_range(bits: u64, depth: u8) -> Option<u64> {
    if depth == 0 {
        return None;
    }
    let shift = 64 - depth;
    (bits >> shift)
        .checked_add(1)
        .and_then(|next| if next >> depth == 0 { Some(next << shift) } else { None })
}

/// Bits that a directory uses at most: 2^24 pages of one stripe hold more keys than memory does.
const DEPTH_MAX: u8 = 24;
/// Directory entries that any table may have: 16 KiB.
const DIRECTORY_ENTRIES_MIN: usize = 1 << 12;
/// Directory entries for each slot of a larger table. Hashes that are spread evenly need one for some 50 slots; while a checkpoint is
/// loaded in the order of hashes, a few for each of those that came first.
const ENTRIES_PER_SLOT: usize = 16;
/// Slots for each page, on average, below which the table is built anew. Growth leaves about 90: four of five have been removed by then.
const REBUILD_SLOTS: usize = PAGE_SLOTS_MAX / 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHasher;
    use crate::testlog::at;
    use journal::LogAddress;

    /// Makes so many hashes.
    type Order = fn(usize) -> Vec<KeyHash>;

    fn hashes(count: u32) -> Vec<KeyHash> {
        let hasher = KeyHasher::new(&[3; 16], 128);
        (0..count).map(|i| hasher.hash(&i.to_le_bytes())).collect()
    }

    #[test]
    fn every_inserted_slot_is_found_after_growth() {
        let mut table = Table::default();
        let mut bytes = 0;
        for (i, hash) in hashes(10_000).into_iter().enumerate() {
            bytes += table.insert(hash, Word::cold(at(i as u64), 0)).1;
        }
        for (i, hash) in hashes(10_000).into_iter().enumerate() {
            let mut candidates = table.candidates(hash);
            let spot = candidates.next().expect("inserted");
            assert_eq!(table.word(spot).address(), at(i as u64));
            assert_eq!(candidates.next(), None);
        }
        table.check();
        assert_eq!(table.slots, 10_000);
        assert!(table.pages.len() > 80 && table.pages.len() < 260, "{} pages", table.pages.len());
        let exact = table.memory_bytes() as i64;
        assert_eq!(bytes, exact);
        assert!(exact < 10_000 * 20, "{exact} bytes");
    }

    #[test]
    fn walk_by_position_meets_each_slot_once_in_range_order() {
        let mut table = Table::default();
        let all = hashes(3_000);
        all.iter().for_each(|&hash| {
            table.insert(hash, Word::cold(LogAddress::default(), 0));
        });
        let (mut seen, mut at) = (Vec::new(), Some(0));
        while let Some(bits) = at {
            let mut page = Vec::new();
            at = table.visit_page(bits, &mut |_, _, slot| page.push(slot.bits()));
            assert!(page.iter().all(|&b| b >= bits && at.is_none_or(|end| b < end)));
            seen.extend(page);
        }
        let mut expected: Vec<_> = all.iter().map(|hash| hash.bits()).collect();
        expected.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, expected);
    }

    #[test]
    fn removed_slots_are_gone_and_others_stay() {
        let mut table = Table::default();
        let all = hashes(2_000);
        all.iter().for_each(|&hash| {
            table.insert(hash, Word::cold(LogAddress::default(), 0));
        });
        for &hash in &all[..1_000] {
            let spot = table.candidates(hash).next().expect("inserted");
            table.remove(spot);
            table.check();
        }
        assert!(all[..1_000].iter().all(|&hash| table.candidates(hash).next().is_none()));
        assert!(all[1_000..].iter().all(|&hash| table.candidates(hash).next().is_some()));
    }

    /// Start-up time grew with the square of the keys: 1 M 0.1 s, 10 M 8.7 s. A checkpoint has its entries in the order of hashes, so all
    /// slots of a page lay in one half, the split gave up, and the next insert looked at all of them again.
    #[test]
    fn work_of_inserts_grows_with_the_slots_whatever_the_order_of_hashes() {
        let orders: [(&str, Order); 6] = [
            ("random", |count| hashes(count as u32)),
            ("sorted", |count| sorted(count, false)),
            ("reversed", |count| sorted(count, true)),
            ("halves by turns", |count| {
                let (up, down) = (sorted(count / 2, false), sorted(count, true));
                up.into_iter().zip(down).flat_map(|(a, b)| [a, b]).collect()
            }),
            ("equal bits", |count| (0..count).map(|_| KeyHash::from_parts(0, 7 << 40, 1)).collect()),
            ("clusters that part at the last bits", |count| {
                let bits =
                    |n: u64| (n / 200).wrapping_mul(0x9e37_79b9_7f4a_7c15) & !(0xff << 32) | (n % 200) << 32;
                (0..count).map(|n| KeyHash::from_parts(0, bits(n as u64), n as u8)).collect()
            }),
        ];
        for (order, make) in orders {
            for count in [10_000, 30_000, 100_000] {
                let mut table = Table::default();
                let hashes = make(count);
                for &hash in &hashes {
                    table.insert(hash, Word::cold(LogAddress::default(), 0));
                }
                table.check();
                let each = table.work / count;
                assert!(each <= 16, "{order}: {each} steps for each of {count}");
                let largest = table.pages.iter().map(Page::len).max();
                let entries = (count * ENTRIES_PER_SLOT).max(DIRECTORY_ENTRIES_MIN);
                assert!(table.directory.len() <= entries, "{order}: {} entries", table.directory.len());
                if ["random", "sorted", "reversed"].contains(&order) {
                    assert!(largest <= Some(PAGE_SLOTS_MAX), "{order}: {largest:?} slots in a page");
                    assert!(
                        table.pages.len() < count / 50,
                        "{order}: {} pages for {count}",
                        table.pages.len()
                    );
                }
            }
        }
    }

    #[test]
    fn work_of_removals_grows_with_the_slots_and_emptied_tables_give_their_memory_back() {
        for count in [10_000, 100_000] {
            let mut table = Table::default();
            let all = sorted(count, false);
            let mut bytes: i64 =
                all.iter().map(|&hash| table.insert(hash, Word::cold(LogAddress::default(), 0)).1).sum();
            let full = bytes;
            table.work = 0;
            for (n, &hash) in all.iter().enumerate() {
                let spot = table.candidates(hash).next().expect("inserted");
                bytes -= table.remove(spot).1 as i64;
                if n == count * 9 / 10 {
                    assert!(all[n + 1..].iter().all(|&hash| table.candidates(hash).next().is_some()));
                    assert!(bytes < full / 4, "{bytes} of {full} with a tenth of the keys");
                }
            }
            table.check();
            assert_eq!(bytes, table.memory_bytes() as i64);
            assert!(bytes < 2_000, "{bytes} bytes are left of {full}");
            assert!(table.work < count, "{} steps for {count}", table.work);
        }
    }

    /// Hashes of one stripe, spread evenly, in order.
    fn sorted(count: usize, reversed: bool) -> Vec<KeyHash> {
        let mut hashes = hashes(count as u32);
        hashes.sort_unstable_by_key(|hash| hash.bits());
        if reversed {
            hashes.reverse();
        }
        hashes
    }
}
