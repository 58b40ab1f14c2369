//! Watched keys of one stripe, and how often each has changed.
//!
//! Versions would not do: an absent key has none, and a key that was set, deleted and set again must not look
//! unchanged. So a watched key has an entry in its stripe, every effect on it counts there, and a transaction
//! compares the count. Without watchers an effect pays one `is_empty`.
//!
//! Invariant: an entry lives as long as a watcher of it does.

use std::collections::HashMap;

use journal::Seq;

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
    /// Those of them that wait for a change.
    waiting: usize,
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
    pub(crate) fn add(&mut self, db: u16, key: &[u8], waits: bool) -> WatchState {
        let entry = self.keys.entry((db, key.into())).or_default();
        entry.watchers += 1;
        entry.waiting += usize::from(waits);
        let state = entry.state;
        self.with_whole(db, state)
    }

    /// Whether any key is watched.
    pub(crate) fn is_any(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Takes a watcher away.
    pub(crate) fn drop_watcher(&mut self, db: u16, key: &[u8], waits: bool) {
        let id = (db, Box::from(key));
        let entry = self.keys.get_mut(&id).expect("an entry lives as long as its watchers");
        entry.watchers -= 1;
        entry.waiting -= usize::from(waits);
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

    /// Notes an effect on a key; `expired` when it was a removal because its time had come. Returns whether somebody waits for it.
    pub(crate) fn touch(&mut self, db: u16, key: &[u8], seq: Seq, expired: bool) -> bool {
        if self.keys.is_empty() {
            return false;
        }
        let Some(entry) = self.keys.get_mut(&(db, Box::from(key))) else { return false };
        *if expired { &mut entry.state.expiries } else { &mut entry.state.changes } += 1;
        entry.state.seq = seq;
        entry.waiting > 0
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

    /// Whether somebody waits for a change of this key.
    pub(crate) fn is_waited(&self, db: u16, key: &[u8]) -> bool {
        !self.keys.is_empty() && self.keys.get(&(db, Box::from(key))).is_some_and(|entry| entry.waiting > 0)
    }

    /// Keys of database `db` that somebody waits for.
    pub(crate) fn waited(&self, db: u16) -> Vec<Box<[u8]>> {
        let waited = self.keys.iter().filter(|((d, _), entry)| *d == db && entry.waiting > 0);
        waited.map(|((_, key), _)| key.clone()).collect()
    }

    /// Whether somebody waits for a key of any database.
    pub(crate) fn is_any_waited(&self) -> bool {
        self.keys.values().any(|entry| entry.waiting > 0)
    }

    /// Looks whether only what is watched is listed: for simulations.
    ///
    /// # Panics
    /// If it is not so: a bug.
    pub(crate) fn check(&self) {
        assert!(self.keys.values().all(|entry| entry.watchers > 0), "nobody watches a key that is listed");
        let waiting = self.keys.values().all(|entry| entry.waiting <= entry.watchers);
        assert!(waiting, "more wait for a key than watch it");
        assert!(self.whole.is_empty() || !self.keys.is_empty(), "databases change for nobody");
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
