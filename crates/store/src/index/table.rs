//! A table: the slots of one keyspace in one stripe, as an extendible hash of pages.
//!
//! ```text
//! directory[top `depth` bits of the hash] -> page number     (several entries may name one page)
//! pages[number]                                              (a page of depth d serves 2^(depth-d) entries)
//! ```
//!
//! A full page splits alone by the next hash bit; only the directory of 4-byte numbers ever doubles, so growth
//! never stalls: 100 M keys make directories of 32 KiB. Pages never merge: an emptied page costs 56 bytes.
//!
//! Pages lie in hash order, so a hash position is a scan cursor that survives growth and restart: a range
//! that was passed never receives a slot from a range that was not.
//!
//! Source: Fagin et al. 1979, extendible hashing.

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
    /// Keys that live: slots without pending removals.
    pub(crate) live: u64,
}

impl Default for Table {
    fn default() -> Self {
        Self { directory: vec![0], pages: vec![Page::default()], depth: 0, live: 0 }
    }
}

impl Table {
    /// Adds a slot; returns where it lies and by how many bytes the table grew.
    pub(crate) fn insert(&mut self, hash: KeyHash, word: Word) -> (Spot, i64) {
        let before = self.page_of(hash);
        let mut number = before;
        let mut grown = -(self.pages[number].memory_bytes() as i64);
        while self.pages[number].len() >= PAGE_SLOTS_MAX {
            let Some(extra) = self.split(number, hash.bits()) else { break };
            grown += extra;
            number = self.page_of(hash);
        }
        if number != before {
            // the new page was counted whole by `split`; the old one has shrunk
            grown += self.pages[before].memory_bytes() as i64 - self.pages[number].memory_bytes() as i64;
        }
        let slot = self.pages[number].push(hash.tag(), Slot::new(hash, word));
        grown += self.pages[number].memory_bytes() as i64;
        (Spot { page: number as u32, slot: slot as u32 }, grown)
    }

    /// Removes the slot at `spot`; returns its word and by how many bytes the table shrank.
    pub(crate) fn remove(&mut self, spot: Spot) -> (Word, u64) {
        let page = &mut self.pages[spot.page as usize];
        let before = page.memory_bytes();
        let slot = page.swap_remove(spot.slot as usize);
        (slot.word, before - page.memory_bytes())
    }

    /// The candidates for `hash`: equal bits and tag, the key decides.
    pub(crate) fn candidates(&self, hash: KeyHash) -> impl Iterator<Item = Spot> {
        let page = self.page_of(hash);
        self.pages[page].candidates(hash).map(move |slot| Spot { page: page as u32, slot: slot as u32 })
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

    /// Number of slots, pending removals included.
    #[cfg(test)]
    pub(crate) fn slots(&self) -> usize {
        self.pages.iter().map(Page::len).sum()
    }

    /// What directory and pages cost.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let pages = self.pages.iter().map(Page::memory_bytes).sum::<u64>();
        pages + (self.directory.capacity() * 4 + self.pages.capacity() * size_of::<Page>()) as u64
    }

    /// First of three steps towards the object of `hash`, each of which brings near what the next one reads. The pages'
    /// own 56 bytes are few enough to be near already.
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
            self.word(spot).bring_near();
        }
    }

    /// Brings near the objects of the page that holds hash bits `bits`.
    pub(crate) fn bring_page(&self, bits: u64) {
        let page = &self.pages[self.number_at(bits)];
        (0..page.len()).for_each(|at| page.get(at).1.word.bring_near());
    }

    fn page_of(&self, hash: KeyHash) -> usize {
        self.number_at(hash.bits())
    }

    fn number_at(&self, bits: u64) -> usize {
        let entry = if self.depth == 0 { 0 } else { bits >> (64 - self.depth) };
        self.directory[entry as usize] as usize
    }

    /// Splits page `number`, which holds hash bits `bits`; returns the bytes of the new page and of the directory's growth.
    fn split(&mut self, number: usize, bits: u64) -> Option<i64> {
        let depth = self.pages[number].depth;
        if depth == DEPTH_MAX {
            return None;
        }
        let high = self.pages[number].split()?;
        let mut grown = high.memory_bytes() as i64 + size_of::<Page>() as i64;
        if depth == self.depth {
            self.directory = self.directory.iter().flat_map(|&page| [page, page]).collect();
            self.depth += 1;
            grown += self.directory.len() as i64 * 2;
        }
        let added = u32::try_from(self.pages.len()).expect("pages of one stripe");
        self.pages.push(high);
        let span = 1_usize << (self.depth - depth);
        let first = if depth == 0 { 0 } else { ((bits >> (64 - depth)) as usize) << (self.depth - depth) };
        debug_assert_eq!(self.directory[first] as usize, number);
        self.directory[first + span / 2..first + span].fill(added);
        Some(grown)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHasher;

    fn hashes(count: u32) -> Vec<KeyHash> {
        let hasher = KeyHasher::new(&[3; 16], 128);
        (0..count).map(|i| hasher.hash(&i.to_le_bytes())).collect()
    }

    #[test]
    fn every_inserted_slot_is_found_after_growth() {
        let mut table = Table::default();
        let mut bytes = 0;
        for (i, hash) in hashes(10_000).into_iter().enumerate() {
            bytes += table.insert(hash, Word::cold(i as u64, 0)).1;
        }
        for (i, hash) in hashes(10_000).into_iter().enumerate() {
            let mut candidates = table.candidates(hash);
            let spot = candidates.next().expect("inserted");
            assert_eq!(table.word(spot).place(), i as u64);
            assert_eq!(candidates.next(), None);
        }
        assert_eq!(table.slots(), 10_000);
        assert!(table.pages.len() > 80 && table.pages.len() < 260, "{} pages", table.pages.len());
        let exact = table.memory_bytes() as i64;
        assert!((bytes - exact).abs() < exact / 10, "accounted {bytes}, in use {exact}");
        assert!(exact < 10_000 * 20, "{exact} bytes");
    }

    #[test]
    fn walk_by_position_meets_each_slot_once_in_range_order() {
        let mut table = Table::default();
        let all = hashes(3_000);
        all.iter().for_each(|&hash| {
            table.insert(hash, Word::cold(0, 0));
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
            table.insert(hash, Word::cold(0, 0));
        });
        for &hash in &all[..1_000] {
            let spot = table.candidates(hash).next().expect("inserted");
            table.remove(spot);
        }
        assert!(all[..1_000].iter().all(|&hash| table.candidates(hash).next().is_none()));
        assert!(all[1_000..].iter().all(|&hash| table.candidates(hash).next().is_some()));
    }
}
