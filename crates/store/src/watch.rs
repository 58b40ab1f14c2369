//! WATCH: which keys some transaction looks at, and whether they changed.
//!
//! Versions would not do: an absent key has none, and a key that was set, deleted and set again must not look
//! unchanged. So a watched key has an entry in its stripe, every effect on it counts there, and a transaction
//! compares the count. Without watchers an effect pays one `is_empty`.
//!
//! Invariant: an entry lives as long as a [`Watch`] for it does.

use std::collections::HashMap;
use std::sync::Arc;

use journal::Seq;

use crate::Store;

/// Watched keys of one stripe.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    keys: HashMap<(u16, Box<[u8]>), Entry>,
    /// Effects on whole databases while too many keys were watched to look at each; counted for every key of them.
    whole: HashMap<u16, WatchState>,
}

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
    pub(crate) seq: Seq,
}

impl Watches {
    /// Adds a watcher; returns how often the key has changed.
    pub(crate) fn add(&mut self, db: u16, key: &[u8]) -> WatchState {
        let entry = self.keys.entry((db, key.into())).or_default();
        entry.watchers += 1;
        let state = entry.state;
        self.with_whole(db, state)
    }

    /// Takes a watcher away.
    pub(crate) fn drop_watcher(&mut self, db: u16, key: &[u8]) {
        let id = (db, Box::from(key));
        let entry = self.keys.get_mut(&id).expect("an entry lives as long as its watchers");
        entry.watchers -= 1;
        if entry.watchers == 0 {
            self.keys.remove(&id);
            if self.keys.len() < self.keys.capacity() / 8 {
                self.keys.shrink_to(self.keys.len() * 2);
            }
        }
        if self.keys.is_empty() {
            *self = Self::default();
        }
    }

    /// Notes an effect on a key; `expired` when it was a removal because its time had come.
    pub(crate) fn touch(&mut self, db: u16, key: &[u8], seq: Seq, expired: bool) {
        if self.keys.is_empty() {
            return;
        }
        if let Some(entry) = self.keys.get_mut(&(db, Box::from(key))) {
            *if expired { &mut entry.state.expiries } else { &mut entry.state.changes } += 1;
            entry.state.seq = seq;
        }
    }

    /// How often a key has changed; `None` when nobody watches it.
    pub(crate) fn state(&self, db: u16, key: &[u8]) -> Option<WatchState> {
        self.keys.get(&(db, Box::from(key))).map(|entry| self.with_whole(db, entry.state))
    }

    /// Whether so many keys are watched that looking at each would hold others up.
    pub(crate) fn are_many(&self) -> bool {
        self.keys.len() > MANY
    }

    /// Notes an effect on all of database `db`, whether its keys were there or not.
    pub(crate) fn touch_all(&mut self, db: u16, seq: Seq) {
        if !self.keys.is_empty() {
            let whole = self.whole.entry(db).or_default();
            whole.changes += 1;
            whole.seq = seq;
        }
    }

    fn with_whole(&self, db: u16, state: WatchState) -> WatchState {
        match self.whole.get(&db) {
            Some(whole) => {
                WatchState { changes: state.changes + whole.changes, seq: state.seq.max(whole.seq), ..state }
            }
            None => state,
        }
    }

    /// Watched keys of database `db`.
    pub(crate) fn keys(&self, db: u16) -> Vec<Box<[u8]>> {
        self.keys.keys().filter(|(d, _)| *d == db).map(|(_, key)| key.clone()).collect()
    }
}

/// Watched keys of one stripe that are looked at one by one when a database is flushed or swapped: with 256 stripes some
/// milliseconds.
const MANY: usize = 64;

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
