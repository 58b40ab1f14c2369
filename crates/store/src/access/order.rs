//! In which order a long command goes through its keys: stripe by stripe, so that what one lookup brings into the processor's
//! cache serves the next ones.
//!
//! ```text
//! keys of stripe 0:  a a a a a a    order:  a a b b a a b b a a
//! keys of stripe 1:  b b b b                (runs of two)
//! ```
//!
//! Two stripes take turns: whoever waits for one of them gets it while the other is locked. Equal keys keep their order.
//!
//! Changes nothing but the time that a command takes. Out of scope: claims (`claim`).

use super::claim::Claimed;
use super::{Access, KeyRef};
use crate::hash::{KeyHash, STRIPES};
use crate::index::ahead::AHEAD_KEYS_MAX;

impl Access<'_> {
    /// The order in which it is quickest to go through the keys of the scope, by their number there; `None` unless these are
    /// claimed and `count`.
    #[must_use]
    pub fn quick_order(&self, count: usize) -> Option<Vec<u32>> {
        self.known_hashes(count).map(quick_order)
    }

    /// The same for who needs them as they come.
    #[must_use]
    pub fn given_order(&self, count: usize) -> Option<Vec<u32>> {
        self.known_hashes(count).map(|hashes| (0..hashes.len() as u32).collect())
    }

    /// Turns to key number `order[at]` of the claimed scope, as [`Access::turn_to`] does; brings those behind it near.
    pub fn turn_to_next(&mut self, order: &[u32], at: usize) {
        self.forget_copied();
        self.expect_next(order, at);
        let (Some((_, hash)), Some(keys)) = (self.only, self.keys) else { return };
        if at.is_multiple_of(AHEAD_KEYS_MAX) {
            self.let_go();
            let hashes = self.claim.as_ref().map_or(&[][..], Claimed::hashes);
            let ahead = order[at..].iter().filter_map(|number| {
                let number = *number as usize;
                Some((self.store.index.keyspace(keys[number].db)?, hashes[number]))
            });
            self.near(ahead);
        }
        let key = keys[order[at] as usize];
        self.turn_to_stripe(hash.stripe());
        self.warm(&[key]);
        if self.reads_here() && self.prepared().has_records() && !self.is_hot(key, hash) {
            // its value is perhaps one of those that were left out, and then it is read
            self.let_go();
        }
    }

    /// Whether the value of `key`, whose stripe is locked, is in memory.
    fn is_hot(&self, key: KeyRef<'_>, hash: KeyHash) -> bool {
        let (Some(keyspace), Ok(stripe)) =
            (self.store.index.keyspace(key.db), self.guards.stripe(hash.stripe()))
        else {
            return true;
        };
        stripe.space(keyspace).is_none_or(|space| space.hot(hash, key.key).is_some())
    }

    /// Key number `order[at]` of the claimed scope comes next: its hash is known.
    pub fn expect_next(&mut self, order: &[u32], at: usize) {
        let hashes = self.claim.as_ref().map(Claimed::hashes);
        let (Some(hashes), Some(keys)) = (hashes, self.keys) else { return };
        let number = order[at] as usize;
        self.only = Some((keys[number].key, hashes[number]));
    }

    fn known_hashes(&self, count: usize) -> Option<&[KeyHash]> {
        let hashes = self.claim.as_ref().map(Claimed::hashes).filter(|hashes| hashes.len() == count);
        hashes.filter(|_| self.keys.is_some())
    }
}

fn quick_order(hashes: &[KeyHash]) -> Vec<u32> {
    let mut by_stripe: Vec<Vec<u32>> = vec![Vec::new(); STRIPES];
    for (number, hash) in (0..).zip(hashes) {
        by_stripe[hash.stripe()].push(number);
    }
    let mut order = Vec::with_capacity(hashes.len());
    for pair in by_stripe.chunks(2) {
        let mut turns = [pair[0].chunks(RUN), pair.get(1).map_or(&[][..], Vec::as_slice).chunks(RUN)];
        while turns.iter_mut().filter_map(Iterator::next).fold(false, |_, run| {
            order.extend_from_slice(run);
            true
        }) {}
    }
    order
}

/// Keys of one stripe before it is the other's turn: about 50 µs.
const RUN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_comes_once_and_those_of_a_stripe_as_they_were_given() {
        let stripes = [1, 0, 9, 255, 254, 0];
        let stripe_of = |number: usize| stripes[number * number % stripes.len()];
        let hashes: Vec<KeyHash> = (0..2_000).map(|n| KeyHash((stripe_of(n) as u128) << 120)).collect();
        let order = quick_order(&hashes);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..2_000).collect::<Vec<u32>>());
        for stripe in stripes {
            let of_stripe = order.iter().filter(|number| hashes[**number as usize].stripe() == stripe);
            assert!(of_stripe.is_sorted(), "equal keys keep their order");
        }
        let runs = order.chunk_by(|a, b| hashes[*a as usize].stripe() == hashes[*b as usize].stripe());
        let longest_beside_others = runs.clone().take(4).map(<[u32]>::len).max();
        assert_eq!(longest_beside_others, Some(RUN), "two stripes take turns");
        assert!(runs.count() < 2_000 / RUN + 2 * stripes.len());
        assert!(quick_order(&[]).is_empty());
    }
}
