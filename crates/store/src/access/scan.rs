//! Walking a database in hash order: SCAN, KEYS, RANDOMKEY.
//!
//! A cursor is a hash position: 8 bits stripe, 32 bits of the slot's hash. A key's position never changes and
//! positions are visited in order, each whole, so a key that stays is met exactly once however the table grows,
//! and a cursor means the same after a restart. 0 begins and ends.

use crate::error::Stop;
use crate::hash::{KeyHash, STRIPES};
use crate::index::stripe::{Current, Space};
use crate::index::table::Spot;
use crate::record;
use crate::value::Meta;

use super::overlay::Change;
use super::{Access, State};

impl Access<'_> {
    /// Visits keys of database `db` from `cursor` on, until at least `budget` slots were looked at; returns the next
    /// cursor, 0 when done.
    ///
    /// # Errors
    /// [`Stop::Cold`] when keys must be read first; [`Stop::Refused`] unless the scope is everything.
    pub fn scan(
        &self,
        db: u16,
        cursor: u64,
        budget: usize,
        visit: &mut dyn FnMut(&[u8], Meta),
    ) -> Result<u64, Stop> {
        let stripes = self.guards.everything()?;
        self.look(self.store.engine.newest());
        let Some(keyspace) = self.keyspace(db) else { return Ok(0) };
        let (mut at, mut looked, mut cold) = (cursor, 0, Vec::new());
        let mut states = Vec::new();
        loop {
            let (number, bits) = split(at);
            let space = stripes[number].1.space(keyspace);
            let next = space.and_then(|space| {
                let (spots, next) = page_part(space, bits, budget.saturating_sub(looked).max(1));
                looked += spots.len();
                self.scan_spots(space, spots, &mut states, &mut cold);
                next
            });
            at = join(number, next);
            if at == 0 || looked >= budget {
                break;
            }
        }
        if !cold.is_empty() {
            return Err(self.miss(cold));
        }
        for (key, state) in states {
            if self.overlay.len() == 0
                || self.overlay.find(keyspace, self.store.hasher.hash(key), key).is_none()
            {
                visit(key, state.meta());
            }
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
        let fetched = self.prepared.first_key().map(|key| self.store.hasher.hash(key).position());
        let start = fetched.unwrap_or_else(|| self.store.random());
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

    fn scan_spots<'a>(
        &'a self,
        space: &'a Space,
        spots: Vec<(u64, Spot)>,
        states: &mut Vec<(&'a [u8], State<'a>)>,
        cold: &mut Vec<u64>,
    ) {
        for (_, spot) in spots {
            match space.current(spot, self.prepared) {
                Ok(Some(current)) => states.extend(self.visible(current)),
                Ok(None) => cold.push(space.table.word(spot).place()),
                // A damaged record has no key to show; reading it by name answers with the error.
                Err(_) => {}
            }
        }
    }

    fn visible<'a>(&self, current: Current<'a>) -> Option<(&'a [u8], State<'a>)> {
        let gone = current.kind() == record::REMOVED || self.expires_by_now(current.expiry_ms());
        (!gone).then(|| (current.key(), State::current(current)))
    }

    fn scan_overlay(&self, keyspace: u32, from: u64, to: u64, visit: &mut dyn FnMut(&[u8], Meta)) {
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

/// About `budget` slots of the page at `bits` in hash order, and where to go on.
fn page_part(space: &Space, bits: u64, budget: usize) -> (Vec<(u64, Spot)>, Option<u64>) {
    let mut spots = Vec::new();
    let next = space.table.visit_page(bits, &mut |spot, _, slot| {
        if slot.bits() >= bits {
            spots.push((slot.bits(), spot));
        }
    });
    if spots.len() <= budget {
        return (spots, next);
    }
    spots.sort_unstable_by_key(|(bits, _)| *bits);
    // Slots of one position stay together.
    let last = spots[budget - 1].0;
    let end = spots.partition_point(|(bits, _)| *bits <= last);
    let next = spots.get(end).map_or(next, |(bits, _)| Some(*bits));
    spots.truncate(end);
    (spots, next)
}

/// Stripe and slot bits of a cursor.
fn split(cursor: u64) -> (usize, u64) {
    let hash = KeyHash(u128::from(cursor) << 64);
    (hash.stripe(), hash.bits())
}

/// The cursor of `bits` in stripe `number`, or of the next stripe.
fn join(number: usize, bits: Option<u64>) -> u64 {
    match bits {
        Some(bits) => (number as u64) << 56 | bits >> 8,
        None if number + 1 < STRIPES => (number as u64 + 1) << 56,
        None => 0,
    }
}
