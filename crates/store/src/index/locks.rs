//! Keys of one stripe that prepared transactions hold, and databases that they hold whole; with the claims of long commands
//! (`claims`).
//!
//! A stripe without locks has no [`Locks`] at all: then a change pays one look at an empty pointer under a lock that it
//! holds anyway.
//!
//! A database that is held whole has a mark in every stripe, so whoever has one stripe locked sees it where it looks for keys.
//!
//! Invariant: a key has one holder at most, but for a folder that was salvaged: then the first one found.

use std::collections::BTreeMap;
use std::sync::Arc;

use journal::Keyspace;

use crate::hash::KeyHash;
use crate::index::claims::Share;
use crate::index::stripe::Stripe;

/// What is held.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    /// Keys, by keyspace and the hash bits that slots keep.
    keys: BTreeMap<(Keyspace, u64), Vec<Lock>>,
    /// Keyspaces, and who holds each.
    whole: BTreeMap<Keyspace, Arc<str>>,
    /// What long commands have claimed.
    pub(crate) claims: Vec<Share>,
}

#[derive(Debug)]
struct Lock {
    key: Box<[u8]>,
    by: Arc<str>,
}

impl Locks {
    /// Who holds `key`.
    pub(crate) fn holder(&self, keyspace: Keyspace, hash: KeyHash, key: &[u8]) -> Option<&Arc<str>> {
        if let Some(by) = self.whole.get(&keyspace) {
            return Some(by);
        }
        let same_slot = self.keys.get(&(keyspace, hash.slot()))?;
        same_slot.iter().find(|lock| *lock.key == *key).map(|lock| &lock.by)
    }

    /// Whether a key with these hash bits is held.
    pub(crate) fn has_slot(&self, keyspace: Keyspace, hash: KeyHash) -> bool {
        self.whole.contains_key(&keyspace) || self.keys.contains_key(&(keyspace, hash.slot()))
    }

    /// Looks whether only what is held is listed, and each key once: for simulations.
    ///
    /// # Panics
    /// If it is not so: a bug.
    pub(crate) fn check(&self) {
        assert!(!self.is_empty(), "locks without any");
        for (slot, locks) in &self.keys {
            let is_distinct =
                (1..locks.len()).all(|at| locks[..at].iter().all(|lock| lock.key != locks[at].key));
            assert!(!locks.is_empty() && is_distinct, "{slot:?} is held by {locks:?}");
        }
    }

    /// Some held key of `keyspace`, and who holds it; without a key where that is the whole of it.
    pub(crate) fn any_of(&self, keyspace: Keyspace) -> Option<(Option<&[u8]>, &Arc<str>)> {
        if let Some(by) = self.whole.get(&keyspace) {
            return Some((None, by));
        }
        let mut slots = self.keys.range((keyspace, 0)..=(keyspace, u64::MAX));
        slots.next().and_then(|(_, locks)| locks.first()).map(|lock| (Some(&*lock.key), &lock.by))
    }

    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.whole.is_empty() && self.claims.is_empty()
    }
}

impl Stripe {
    /// Who holds `key`; one look at a pointer where nobody holds anything.
    pub(crate) fn holder(&self, keyspace: Keyspace, hash: KeyHash, key: &[u8]) -> Option<&Arc<str>> {
        self.locks.as_ref()?.holder(keyspace, hash, key)
    }

    /// Whether somebody holds all of `keyspace`.
    pub(crate) fn is_held_whole(&self, keyspace: Keyspace) -> bool {
        self.locks.as_ref().is_some_and(|locks| locks.whole.contains_key(&keyspace))
    }

    /// Gives `key` to `by`; returns false, and changes nothing, when another has it.
    pub(crate) fn hold(&mut self, keyspace: Keyspace, hash: KeyHash, key: &[u8], by: &Arc<str>) -> bool {
        if self.holder(keyspace, hash, key).is_some() {
            return false;
        }
        let locks = self.locks.get_or_insert_default();
        let lock = Lock { key: key.into(), by: Arc::clone(by) };
        locks.keys.entry((keyspace, hash.slot())).or_default().push(lock);
        true
    }

    /// Takes `key` back from `by`; returns false when `by` does not have it.
    pub(crate) fn let_go(&mut self, keyspace: Keyspace, hash: KeyHash, key: &[u8], by: &str) -> bool {
        let Some(locks) = &mut self.locks else { return false };
        let slot = (keyspace, hash.slot());
        let Some(same_slot) = locks.keys.get_mut(&slot) else { return false };
        let before = same_slot.len();
        same_slot.retain(|lock| *lock.key != *key || *lock.by != *by);
        let held = same_slot.len() < before;
        if same_slot.is_empty() {
            locks.keys.remove(&slot);
        }
        self.drop_empty_locks();
        held
    }

    /// Gives this stripe's share of `keyspace` to `by`, unless another has it.
    pub(crate) fn hold_whole(&mut self, keyspace: Keyspace, by: &Arc<str>) {
        self.locks.get_or_insert_default().whole.entry(keyspace).or_insert_with(|| Arc::clone(by));
    }

    /// Takes this stripe's share of `keyspace` back from `by`.
    pub(crate) fn let_whole_go(&mut self, keyspace: Keyspace, by: &str) {
        let Some(locks) = &mut self.locks else { return };
        if locks.whole.get(&keyspace).is_some_and(|holder| **holder == *by) {
            locks.whole.remove(&keyspace);
        }
        self.drop_empty_locks();
    }

    /// A stripe in which nothing is held pays for no locks.
    pub(crate) fn drop_empty_locks(&mut self) {
        if self.locks.as_ref().is_some_and(|locks| locks.is_empty()) {
            self.locks = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Keyspace = Keyspace(1);
    const OTHER: Keyspace = Keyspace(2);

    #[test]
    fn keys_of_equal_bits_are_held_apart_and_the_last_one_leaves_nothing() {
        let (mut stripe, hash) = (Stripe::default(), KeyHash(7 << 120));
        let (one, two): (Arc<str>, Arc<str>) = ("one".into(), "two".into());
        assert!(stripe.hold(ONE, hash, b"a", &one) && stripe.hold(ONE, hash, b"b", &two));
        assert!(!stripe.hold(ONE, hash, b"a", &two), "another has it");
        assert_eq!(stripe.holder(ONE, hash, b"a"), Some(&one));
        assert_eq!(stripe.holder(OTHER, hash, b"a"), None, "another keyspace");
        assert!(!stripe.let_go(ONE, hash, b"a", "two") && stripe.let_go(ONE, hash, b"a", "one"));
        let locks = stripe.locks.as_ref().expect("one is left");
        assert_eq!(locks.any_of(ONE), Some((Some(&b"b"[..]), &two)));
        assert!(locks.has_slot(ONE, hash) && !locks.has_slot(OTHER, hash) && locks.any_of(OTHER).is_none());
        assert!(stripe.let_go(ONE, hash, b"b", "two"));
        assert!(stripe.locks.is_none());
    }

    #[test]
    fn keyspace_that_is_held_whole_holds_each_key_of_it_and_no_other() {
        let (mut stripe, hash, one): (_, _, Arc<str>) = (Stripe::default(), KeyHash(7 << 120), "one".into());
        stripe.hold_whole(ONE, &one);
        assert_eq!((stripe.holder(ONE, hash, b"a"), stripe.holder(OTHER, hash, b"a")), (Some(&one), None));
        assert!(!stripe.hold(ONE, hash, b"a", &"two".into()), "another has all of it");
        let locks = stripe.locks.as_ref().expect("it is held");
        assert!(locks.has_slot(ONE, hash) && !locks.has_slot(OTHER, hash));
        assert_eq!((locks.any_of(ONE), locks.any_of(OTHER)), (Some((None, &one)), None));
        assert!(stripe.is_held_whole(ONE) && !stripe.is_held_whole(OTHER));
        stripe.let_whole_go(ONE, "two");
        assert!(stripe.locks.is_some(), "two does not have it");
        stripe.let_whole_go(ONE, "one");
        assert!(stripe.locks.is_none());
    }
}
