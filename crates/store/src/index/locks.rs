//! Keys of one stripe that prepared transactions hold.
//!
//! A stripe without locks has no [`Locks`] at all: then a change pays one look at an empty pointer under a lock that it
//! holds anyway.
//!
//! Invariant: a key has one holder at most, but for a folder that was salvaged: then the first one found.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::hash::KeyHash;
use crate::index::stripe::Stripe;

/// Locked keys, by keyspace and the hash bits that slots keep.
#[derive(Debug, Default)]
pub(crate) struct Locks(BTreeMap<(u32, u64), Vec<Lock>>);

#[derive(Debug)]
struct Lock {
    key: Box<[u8]>,
    by: Arc<str>,
}

impl Locks {
    /// Who holds `key`.
    pub(crate) fn holder(&self, keyspace: u32, hash: KeyHash, key: &[u8]) -> Option<&Arc<str>> {
        let same_slot = self.0.get(&(keyspace, hash.slot()))?;
        same_slot.iter().find(|lock| *lock.key == *key).map(|lock| &lock.by)
    }

    /// Whether a key with these hash bits is held.
    pub(crate) fn has_slot(&self, keyspace: u32, hash: KeyHash) -> bool {
        self.0.contains_key(&(keyspace, hash.slot()))
    }

    /// Some held key of `keyspace`, and who holds it.
    pub(crate) fn any_of(&self, keyspace: u32) -> Option<(&[u8], &Arc<str>)> {
        let mut slots = self.0.range((keyspace, 0)..=(keyspace, u64::MAX));
        slots.next().and_then(|(_, locks)| locks.first()).map(|lock| (&*lock.key, &lock.by))
    }
}

impl Stripe {
    /// Who holds `key`; one look at a pointer where nobody holds anything.
    pub(crate) fn holder(&self, keyspace: u32, hash: KeyHash, key: &[u8]) -> Option<&Arc<str>> {
        self.locks.as_ref()?.holder(keyspace, hash, key)
    }

    /// Gives `key` to `by`; returns false, and changes nothing, when another has it.
    pub(crate) fn hold(&mut self, keyspace: u32, hash: KeyHash, key: &[u8], by: &Arc<str>) -> bool {
        if self.holder(keyspace, hash, key).is_some() {
            return false;
        }
        let locks = self.locks.get_or_insert_default();
        let lock = Lock { key: key.into(), by: Arc::clone(by) };
        locks.0.entry((keyspace, hash.slot())).or_default().push(lock);
        true
    }

    /// Takes `key` back from `by`; returns false when `by` does not have it.
    pub(crate) fn let_go(&mut self, keyspace: u32, hash: KeyHash, key: &[u8], by: &str) -> bool {
        let Some(locks) = &mut self.locks else { return false };
        let slot = (keyspace, hash.slot());
        let Some(same_slot) = locks.0.get_mut(&slot) else { return false };
        let before = same_slot.len();
        same_slot.retain(|lock| *lock.key != *key || *lock.by != *by);
        let held = same_slot.len() < before;
        if same_slot.is_empty() {
            locks.0.remove(&slot);
        }
        if locks.0.is_empty() {
            self.locks = None;
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_equal_bits_are_held_apart_and_the_last_one_leaves_nothing() {
        let (mut stripe, hash) = (Stripe::default(), KeyHash(7 << 120));
        let (one, two): (Arc<str>, Arc<str>) = ("one".into(), "two".into());
        assert!(stripe.hold(1, hash, b"a", &one) && stripe.hold(1, hash, b"b", &two));
        assert!(!stripe.hold(1, hash, b"a", &two), "another has it");
        assert_eq!(stripe.holder(1, hash, b"a"), Some(&one));
        assert_eq!(stripe.holder(2, hash, b"a"), None, "another keyspace");
        assert!(!stripe.let_go(1, hash, b"a", "two") && stripe.let_go(1, hash, b"a", "one"));
        let locks = stripe.locks.as_ref().expect("one is left");
        assert_eq!(locks.any_of(1), Some((&b"b"[..], &two)));
        assert!(locks.has_slot(1, hash) && !locks.has_slot(2, hash) && locks.any_of(2).is_none());
        assert!(stripe.let_go(1, hash, b"b", "two"));
        assert!(stripe.locks.is_none());
    }
}
