//! WATCH: which keys some transaction looks at, and whether they changed.
//!
//! Versions would not do: an absent key has none, and a key that was set, deleted and set again must not look
//! unchanged. So a watched key has an entry in its stripe, every effect on it counts there, and a transaction
//! compares the count. Without watchers an effect pays one `is_empty`.
//!
//! Invariant: an entry lives as long as a [`Watch`] for it does.

use std::collections::HashMap;
use std::sync::Arc;

use crate::Store;

/// Watched keys of one stripe.
#[derive(Debug, Default)]
pub(crate) struct Watches(HashMap<(u16, Box<[u8]>), Entry>);

#[derive(Debug, Default)]
struct Entry {
    watchers: usize,
    state: WatchState,
}

/// How often a watched key changed since it was first watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WatchState {
    /// Effects of commands.
    pub(crate) changes: u64,
    /// Removals because its time had come.
    pub(crate) expiries: u64,
    /// The newest of all these effects.
    pub(crate) seq: u64,
}

impl Watches {
    /// Adds a watcher; returns how often the key has changed.
    pub(crate) fn add(&mut self, db: u16, key: &[u8]) -> WatchState {
        let entry = self.0.entry((db, key.into())).or_default();
        entry.watchers += 1;
        entry.state
    }

    /// Takes a watcher away.
    pub(crate) fn drop_watcher(&mut self, db: u16, key: &[u8]) {
        let id = (db, Box::from(key));
        let entry = self.0.get_mut(&id).expect("an entry lives as long as its watchers");
        entry.watchers -= 1;
        if entry.watchers == 0 {
            self.0.remove(&id);
            if self.0.len() < self.0.capacity() / 8 {
                self.0.shrink_to(self.0.len() * 2);
            }
        }
    }

    /// Notes an effect on a key; `expired` when it was a removal because its time had come.
    pub(crate) fn touch(&mut self, db: u16, key: &[u8], seq: u64, expired: bool) {
        if self.0.is_empty() {
            return;
        }
        if let Some(entry) = self.0.get_mut(&(db, Box::from(key))) {
            *if expired { &mut entry.state.expiries } else { &mut entry.state.changes } += 1;
            entry.state.seq = seq;
        }
    }

    /// How often a key has changed; `None` when nobody watches it.
    pub(crate) fn state(&self, db: u16, key: &[u8]) -> Option<WatchState> {
        self.0.get(&(db, Box::from(key))).map(|entry| entry.state)
    }

    /// Watched keys of database `db`.
    pub(crate) fn keys(&self, db: u16) -> Vec<Box<[u8]>> {
        self.0.keys().filter(|(d, _)| *d == db).map(|(_, key)| key.clone()).collect()
    }
}

/// A watched key; dropping it is UNWATCH.
#[derive(Debug)]
pub struct Watch {
    pub(crate) store: Arc<Store>,
    pub(crate) db: u16,
    pub(crate) key: Box<[u8]>,
    pub(crate) stripe: usize,
    pub(crate) state: WatchState,
    /// The key had expired, though not been removed, when the watch began: its removal is no change.
    pub(crate) expired: bool,
}

impl Watch {
    /// Database of the key.
    #[must_use]
    pub fn db(&self) -> u16 {
        self.db
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.store.unwatch(self.stripe, self.db, &self.key);
    }
}
