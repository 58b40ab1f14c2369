//! Foresight: brings what the next lookups will touch into the processor's cache, for many keys at once.
//!
//! A lookup is a chain of dependent reads (tags, slot, object), and with more keys than the cache holds
//! each of them waits for memory. One step of the chain for all keys of a pipeline, then the next step for all, lets
//! the waits of different keys overlap.
//!
//! Changes nothing and promises nothing: a stripe that somebody holds is passed by, and what moves in between was
//! fetched in vain.

use journal::Keyspace;

use crate::hash::KeyHash;
use crate::index::Index;
use crate::index::table::Table;

/// Keys for which one round is made: about as many lines as a core has on their way at once.
pub(crate) const AHEAD_KEYS_MAX: usize = 16;

/// Prefetches what lookups of these keys of one table will read, at most [`AHEAD_KEYS_MAX`], for who has its stripe.
pub(crate) fn bring(table: &Table, hashes: &[KeyHash]) {
    debug_assert!(hashes.len() <= AHEAD_KEYS_MAX, "{} keys ahead", hashes.len());
    let mut guesses = [None; AHEAD_KEYS_MAX];
    hashes.iter().for_each(|hash| table.bring_tags(*hash));
    for (hash, guess) in hashes.iter().zip(&mut guesses) {
        *guess = table.bring_slot(*hash);
    }
    for (hash, guess) in hashes.iter().zip(guesses) {
        guess.into_iter().for_each(|guess| table.bring_object(*hash, guess));
    }
}

impl Index {
    /// Prefetches what a lookup of each key will read: at most [`AHEAD_KEYS_MAX`] of `keyspace` and hash.
    pub(crate) fn prefetch(&self, keys: &[(Keyspace, KeyHash)]) {
        debug_assert!(keys.len() <= AHEAD_KEYS_MAX, "{} keys ahead", keys.len());
        let mut guesses = [None; AHEAD_KEYS_MAX];
        keys.iter().for_each(|(_, hash)| self.bring_stripe(hash.stripe()));
        for key in keys {
            self.with_table(key, |table, hash| table.bring_tags(hash));
        }
        for (key, guess) in keys.iter().zip(&mut guesses) {
            *guess = self.with_table(key, |table, hash| table.bring_slot(hash)).flatten();
        }
        for (key, guess) in keys.iter().zip(guesses) {
            if let Some(guess) = guess {
                self.with_table(key, |table, hash| table.bring_object(hash, guess));
            }
        }
    }

    /// Calls `step` with the table of a key, unless there is none or somebody holds its stripe.
    fn with_table<R>(
        &self,
        &(keyspace, hash): &(Keyspace, KeyHash),
        step: impl FnOnce(&Table, KeyHash) -> R,
    ) -> Option<R> {
        let stripe = self.try_lock(hash.stripe())?;
        stripe.space(keyspace).map(|space| step(&space.table, hash))
    }
}
