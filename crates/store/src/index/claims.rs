//! Keys of one stripe that long commands have claimed (docs/adr/0017-commands-on-many-keys.md).
//!
//! A command on thousands of keys holds no stripe while it works. It claims its keys instead: who would change one of them waits
//! until it has ended, and who would read one waits from the moment on at which its changes are in the log.
//!
//! Invariants
//!   1. Of two claims on one slot of a keyspace both read.
//!   2. While anything is claimed no database gets another keyspace, so a claim names its keys for as long as it lasts.
//!
//! Keys of equal hash bits count as one: the other key waits as well, for nothing.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use journal::Keyspace;

use crate::hash::KeyHash;
use crate::index::locks::Locks;
use crate::index::stripe::Stripe;

/// What the stripes of one claim share.
#[derive(Debug)]
pub(crate) struct Claim {
    writes: bool,
    /// Its changes are in the log, or about to be: no key is to be read before all of them are in the index.
    applies: AtomicBool,
}

/// Slots that a claim has in one stripe, sorted, by database number or keyspace.
pub(crate) type Slots<Id> = Vec<(Id, Arc<[u64]>)>;

/// One claim's share of a stripe.
#[derive(Debug)]
pub(crate) struct Share {
    claim: Arc<Claim>,
    slots: Slots<Keyspace>,
    /// Slots that were claimed later, one by one.
    more: HashSet<(Keyspace, u64)>,
}

impl Claim {
    /// A claim to read keys, or (`writes`) to change them.
    pub(crate) fn new(writes: bool) -> Arc<Self> {
        Arc::new(Self { writes, applies: AtomicBool::new(false) })
    }

    /// From now on nobody else reads what is claimed.
    pub(crate) fn begin_to_apply(&self) {
        self.applies.store(true, Ordering::Release);
    }

    /// Whether another command has to wait for it.
    fn bars(&self, writes: bool) -> bool {
        writes || (self.writes && self.applies.load(Ordering::Acquire))
    }
}

impl Share {
    fn has(&self, keyspace: Keyspace, slot: u64) -> bool {
        self.slots.iter().any(|(id, slots)| *id == keyspace && slots.binary_search(&slot).is_ok())
            || (!self.more.is_empty() && self.more.contains(&(keyspace, slot)))
    }

    fn meets(&self, (keyspace, slots): &(Keyspace, Arc<[u64]>)) -> bool {
        slots.iter().any(|slot| self.has(*keyspace, *slot))
    }
}

impl Stripe {
    /// Gives `slots` to `claim`; returns false, and changes nothing, if another claim stands against it.
    pub(crate) fn claim(&mut self, claim: &Arc<Claim>, slots: Slots<Keyspace>) -> bool {
        let shares = self.locks.as_ref().map_or(&[][..], |locks| &locks.claims);
        let rivals = shares.iter().filter(|share| share.claim.writes || claim.writes);
        if rivals.into_iter().any(|share| slots.iter().any(|part| share.meets(part))) {
            return false;
        }
        let share = Share { claim: Arc::clone(claim), slots, more: HashSet::new() };
        self.locks.get_or_insert_default().claims.push(share);
        true
    }

    /// Gives one more slot to `claim`; returns false, and changes nothing, if another claim stands against it.
    pub(crate) fn claim_more(&mut self, claim: &Arc<Claim>, keyspace: Keyspace, slot: u64) -> bool {
        let shares = &mut self.locks.get_or_insert_default().claims;
        let is_own = |share: &Share| Arc::ptr_eq(&share.claim, claim);
        let bars = |share: &Share| !is_own(share) && (share.claim.writes || claim.writes);
        let is_free = !shares.iter().any(|share| bars(share) && share.has(keyspace, slot));
        if is_free {
            let own = match shares.iter().position(is_own) {
                Some(at) => &mut shares[at],
                None => {
                    let (claim, slots) = (Arc::clone(claim), Slots::new());
                    shares.push(Share { claim, slots, more: HashSet::new() });
                    shares.last_mut().expect("just added")
                }
            };
            own.more.insert((keyspace, slot));
        }
        self.drop_empty_locks();
        is_free
    }

    /// Takes back what `claim` has.
    pub(crate) fn unclaim(&mut self, claim: &Arc<Claim>) {
        let Some(locks) = &mut self.locks else { return };
        locks.claims.retain(|share| !Arc::ptr_eq(&share.claim, claim));
        self.drop_empty_locks();
    }
}

impl Locks {
    /// Whether another claim than `own` keeps a command from reading the key, or (`writes`) from changing it.
    pub(crate) fn is_claimed(
        &self,
        keyspace: Keyspace,
        hash: KeyHash,
        writes: bool,
        own: Option<&Arc<Claim>>,
    ) -> bool {
        self.claims.iter().any(|share| {
            share.claim.bars(writes)
                && !own.is_some_and(|own| Arc::ptr_eq(own, &share.claim))
                && share.has(keyspace, hash.slot())
        })
    }

    /// Whether `claim` has the key.
    pub(crate) fn has_claim(&self, claim: &Arc<Claim>, keyspace: Keyspace, hash: KeyHash) -> bool {
        self.claims.iter().any(|share| Arc::ptr_eq(claim, &share.claim) && share.has(keyspace, hash.slot()))
    }

    /// Whether anything is claimed.
    pub(crate) fn has_claims(&self) -> bool {
        !self.claims.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(of: &[u64]) -> Slots<Keyspace> {
        vec![(Keyspace(1), of.into())]
    }

    #[test]
    fn slot_that_is_claimed_later_is_as_any_other_and_is_refused_where_another_has_it() {
        let mut stripe = Stripe::default();
        let (one, other) = (Claim::new(true), Claim::new(true));
        assert!(stripe.claim(&one, slots(&[1])));
        assert!(stripe.claim_more(&one, Keyspace(1), 2) && stripe.claim_more(&one, Keyspace(1), 2));
        assert!(!stripe.claim_more(&other, Keyspace(1), 1) && !stripe.claim_more(&other, Keyspace(1), 2));
        assert!(stripe.claim_more(&other, Keyspace(1), 3) && !stripe.claim_more(&one, Keyspace(1), 3));
        assert!(!stripe.claim(&other, slots(&[2])));
        stripe.unclaim(&one);
        assert!(stripe.claim_more(&other, Keyspace(1), 2));
        stripe.unclaim(&other);
        assert!(stripe.locks.is_none());
    }

    #[test]
    fn claims_to_read_share_keys_and_a_claim_to_write_shares_none() {
        let (mut stripe, hash) = (Stripe::default(), |slot: u64| KeyHash(u128::from(slot) << 80));
        let (one, two, third) = (Claim::new(false), Claim::new(false), Claim::new(true));
        assert!(stripe.claim(&one, slots(&[3, 5])) && stripe.claim(&two, slots(&[5, 7])));
        assert!(!stripe.claim(&third, slots(&[7])) && stripe.claim(&third, slots(&[8])));
        let bars = |stripe: &Stripe, slot, writes, own: Option<&Arc<Claim>>| {
            stripe.locks.as_ref().is_some_and(|locks| locks.is_claimed(Keyspace(1), hash(slot), writes, own))
        };
        assert!(bars(&stripe, 3, true, None) && !bars(&stripe, 3, false, None), "read claims bar writers");
        assert!(!bars(&stripe, 3, true, Some(&one)) && bars(&stripe, 5, true, Some(&one)));
        assert!(!bars(&stripe, 8, false, None), "nothing is in the log yet");
        third.begin_to_apply();
        assert!(bars(&stripe, 8, false, None) && !bars(&stripe, 8, false, Some(&third)));
        assert!(!bars(&stripe, 9, true, None));
        stripe.unclaim(&one);
        stripe.unclaim(&third);
        assert!(!bars(&stripe, 3, true, None) && bars(&stripe, 7, true, None));
        stripe.unclaim(&two);
        assert!(stripe.locks.is_none(), "the last one leaves nothing");
    }
}
