//! Walking a database in hash order: SCAN, KEYS, RANDOMKEY.
//!
//! A cursor is a hash position: 8 bits stripe, 32 bits of the slot's hash. A key's position never changes and
//! positions are visited in order, each whole, so a key that stays is met exactly once however the table grows,
//! and a cursor means the same after a restart. 0 begins and ends. It is below 2^40: most clients read it as a
//! signed number, some as one of 53 bits. Earlier releases had it 24 bits further to the left; such a cursor is still taken.
//!
//! Each page is looked at under its stripe's lock; a walk ([`super::Scope::Walk`]) holds no other meanwhile. What it
//! shows was there when its page was looked at; a key that is there from beginning to end is shown.

use journal::Keyspace;

use crate::error::Stop;
use crate::hash::{KeyHash, POSITION_BITS, STRIPES};
use crate::index::stripe::{Current, Space, Stripe};
use crate::index::table::Spot;
use crate::record;
use crate::sought::Sought;
use crate::value::Meta;

use super::overlay::Change;
use super::{Access, State};

impl Access<'_> {
    /// Visits keys of database `db` from `cursor` on, until at least `budget` slots were looked at; returns the next
    /// cursor, 0 when done.
    ///
    /// # Errors
    /// [`Stop::Cold`] when keys must be read first; [`Stop::Refused`] unless the scope is everything or a walk.
    pub fn scan(
        &self,
        db: u16,
        cursor: u64,
        budget: usize,
        visit: &mut dyn FnMut(&[u8], Meta),
    ) -> Result<u64, Stop> {
        self.scan_weighed(db, cursor, budget, &mut |key, meta| {
            visit(key, meta);
            0
        })
    }

    /// As [`Access::scan`]; `visit` returns as how many slots more a key counts that took long.
    ///
    /// # Errors
    /// As [`Access::scan`].
    pub fn scan_weighed(
        &self,
        db: u16,
        cursor: u64,
        budget: usize,
        visit: &mut dyn FnMut(&[u8], Meta) -> usize,
    ) -> Result<u64, Stop> {
        let Some(keyspace) = self.keyspace(db) else { return Ok(0) };
        let cursor = if cursor >> POSITION_BITS == 0 { cursor } else { cursor >> (64 - POSITION_BITS) };
        let (mut at, mut looked, mut cold) = (cursor, 0, Vec::new());
        loop {
            let (number, bits) = split(at);
            let mut page = Page::default();
            let left = budget.saturating_sub(looked).max(1);
            let next = self.guards.with_stripe(self.store, number, |stripe| {
                self.scan_page(stripe, keyspace, number, bits, left, &mut page)
            })?;
            looked += page.slots;
            cold.append(&mut page.cold);
            looked += page.keys.iter().map(|(key, meta)| visit(key, *meta)).sum::<usize>();
            at = join(number, next);
            if at == 0 || looked >= budget {
                break;
            }
        }
        // after the last page: whatever was seen was appended before
        self.look(self.store.engine.newest());
        if !cold.is_empty() {
            return Err(self.miss(cold));
        }
        self.scan_overlay(keyspace, cursor, at, visit);
        Ok(at)
    }

    /// Some key of database `db`, `None` when it is empty.
    ///
    /// # Errors
    /// As [`Access::scan`].
    pub fn random_key(&self, db: u16) -> Result<Option<Vec<u8>>, Stop> {
        // Run again after a fetch, it goes where it went before: elsewhere it would meet cold keys again, and again.
        let fetched = self.prepared().first_key().map(|key| self.store.hasher.hash(key).position());
        let start = fetched.unwrap_or_else(|| self.store.random() >> (64 - POSITION_BITS));
        for from in [start, 0] {
            let mut cursor = from;
            loop {
                let mut keys = Vec::new();
                cursor = self.scan(db, cursor, 1, &mut |key, _| keys.push(key.to_vec()))?;
                if !keys.is_empty() {
                    let pick = (start >> 7) as usize % keys.len();
                    return Ok(Some(keys.swap_remove(pick)));
                }
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Looks at about `left` slots from `bits` on; returns where to go on in this stripe.
    fn scan_page(
        &self,
        stripe: &Stripe,
        keyspace: Keyspace,
        number: usize,
        bits: u64,
        left: usize,
        page: &mut Page,
    ) -> Option<u64> {
        let space = stripe.space(keyspace)?;
        let (spots, next) = page_part(space, bits, left);
        let mut previous = None;
        for (bits, tag, spot) in spots {
            if page.bytes > PART_BYTES_MAX && previous != Some(bits) {
                return Some(bits);
            }
            previous = Some(bits);
            page.slots += 1;
            match space.current(spot, self.prepared()) {
                // one whose changes were not read: some of its fields may be left
                Ok(Some(current)) if Self::has_unread_fields(space, spot, current) => {
                    let hash = KeyHash::from_parts(number, bits, tag);
                    let base = Sought::base(space.table.word(spot).address(), keyspace, hash);
                    space.fold_of(base).into_iter().for_each(|fold| self.wanted.borrow_mut().add_fold(fold));
                    page.cold.push(base);
                }
                Ok(Some(current)) if self.is_visible(keyspace, current) => {
                    page.bytes += current.key().len();
                    page.keys.push((current.key().into(), State::current(current).meta()));
                }
                // A damaged record has no key to show; reading it by name answers with the error.
                Ok(Some(_)) | Err(_) => {}
                Ok(None) => {
                    let hash = KeyHash::from_parts(number, bits, tag);
                    page.cold.push(Sought::base(space.table.word(spot).address(), keyspace, hash));
                }
            }
        }
        next
    }

    /// Whether it is a hash whose fields may have deadlines that only changes tell which were not read.
    fn has_unread_fields(space: &Space, spot: Spot, current: Current<'_>) -> bool {
        let Current::Cold { fetched, .. } = current else { return false };
        let word = space.table.word(spot);
        space.changes(word, fetched.seq).next().is_some() && space.may_be_timed(word, current)
    }

    fn is_visible(&self, keyspace: Keyspace, current: Current<'_>) -> bool {
        let key = current.key();
        let has_ended = || {
            let Some(times) = current.times() else { return false };
            let (value, passed) = (current.value(), self.passed_for(current.seq()));
            let fields = collections::Packed::new(collections::Shape::Map, value.slice());
            Self::has_passed(times, passed) && !fields.has_left(passed)
        };
        // a hash whose value was left out is shown: nobody knows what of it has ended
        let gone = current.kind() == record::REMOVED || self.is_over(current, current.times()) || has_ended();
        let staged = || self.overlay.find(keyspace, self.store.hasher.hash(key), key).is_some();
        !gone && (self.overlay.len() == 0 || !staged())
    }

    fn scan_overlay(
        &self,
        keyspace: Keyspace,
        from: u64,
        to: u64,
        visit: &mut dyn FnMut(&[u8], Meta) -> usize,
    ) {
        for staged in self.overlay.iter().filter(|staged| staged.keyspace == keyspace) {
            let position = staged.hash.position();
            let in_range = position >= from && (to == 0 || position < to);
            if in_range && !matches!(staged.change, Change::Remove(_)) {
                let object = staged.object();
                visit(object.view().key(), State::staged(object).meta());
            }
        }
    }
}

/// What one look at a page gave.
#[derive(Default)]
struct Page {
    keys: Vec<(Box<[u8]>, Meta)>,
    /// Records to be read first.
    cold: Vec<Sought>,
    /// How many slots were looked at.
    slots: usize,
    /// What the keys are long together.
    bytes: usize,
}

/// Longer keys end a look at a page: they are copied while it is locked.
const PART_BYTES_MAX: usize = 64 << 10;

/// About `budget` slots of the page at `bits` in hash order, with bits and tag, and where to go on.
fn page_part(space: &Space, bits: u64, budget: usize) -> (Vec<(u64, u8, Spot)>, Option<u64>) {
    space.table.bring_page(bits);
    let mut spots = Vec::new();
    let next = space.table.visit_page(bits, &mut |spot, tag, slot| {
        if slot.bits() >= bits {
            spots.push((slot.bits(), tag, spot));
        }
    });
    spots.sort_unstable_by_key(|(bits, ..)| *bits);
    if spots.len() <= budget {
        return (spots, next);
    }
    // Slots of one position stay together.
    let last = spots[budget - 1].0;
    let end = spots.partition_point(|(bits, ..)| *bits <= last);
    let next = spots.get(end).map_or(next, |(bits, ..)| Some(*bits));
    spots.truncate(end);
    (spots, next)
}

/// Stripe and slot bits of a cursor.
fn split(cursor: u64) -> (usize, u64) {
    let hash = KeyHash::at_position(cursor);
    (hash.stripe(), hash.bits())
}

/// The cursor of `bits` in stripe `number`, or of the next stripe.
fn join(number: usize, bits: Option<u64>) -> u64 {
    match bits {
        Some(bits) => KeyHash::from_parts(number, bits, 0).position(),
        None if number + 1 < STRIPES => KeyHash::from_parts(number + 1, 0, 0).position(),
        None => 0,
    }
}
