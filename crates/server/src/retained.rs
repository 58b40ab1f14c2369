//! What a request that runs a script keeps from one attempt to the next.

use std::time::Duration;

use store::KeyRef;

use crate::acl::Permissions;

/// Kept while the request waits, and when it goes beside its loop.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    /// What its TIME answers, since 1970; 0 before the first attempt.
    pub(crate) time_us: u64,
    /// What its chance begins with.
    pub(crate) seed: u64,
    /// Keys that it touched without naming them.
    more: Vec<(u16, Box<[u8]>)>,
    /// All keys are locked for it.
    pub(crate) everything: bool,
    /// How often it began anew for keys.
    rounds: u32,
    /// How often the store has stopped it on its loop, mostly for records from disk.
    pub(crate) fetches: u32,
    /// How long it has run, beside its loop.
    pub(crate) spent: Duration,
    /// What its commands may do.
    pub(crate) permissions: Permissions,
}

impl Retained {
    /// Adds keys that an attempt has met; too many rounds lock all keys.
    pub(crate) fn add(&mut self, keys: Vec<(u16, Box<[u8]>)>) {
        self.rounds += 1;
        self.more.extend(keys);
        self.everything |= self.rounds >= ROUNDS_MAX || self.more.len() > KEYS_MAX;
    }

    /// The keys that it touched without naming them.
    pub(crate) fn keys(&self) -> impl Iterator<Item = KeyRef<'_>> {
        self.more.iter().map(|(db, key)| KeyRef { db: *db, key })
    }
}

/// Attempts that only find another key.
const ROUNDS_MAX: u32 = 32;
/// Keys that they find.
const KEYS_MAX: usize = 1_024;
