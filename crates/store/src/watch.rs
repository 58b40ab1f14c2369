//! WATCH: which keys some transaction looks at, and whether they changed; and keys that somebody waits for, with BLPOP and the like.
//!
//! Who waits for a key has a [`Watch`] that waits: an effect on the key puts it on a list ([`Changed`]), whoever made it.
//!
//! The count of changes is in the key's stripe (`index::watches`), and stays there as long as a [`Watch`] for it lives.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::index::Index;
use crate::index::watches::WatchState;

/// Keys that somebody waits for and that changed, until they are looked at.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    any: AtomicBool,
    waited: Mutex<ChangedWaited>,
}

/// Keys that changed and that somebody waits for ([`crate::Store::wait_for`]).
#[derive(Debug, Default)]
pub struct ChangedWaited {
    /// With their databases, in the order in which they changed.
    pub keys: Vec<(u16, Box<[u8]>)>,
    /// Databases of which all keys may have changed, while too many were waited for to tell each.
    pub databases: BTreeSet<u16>,
}

impl Changed {
    pub(crate) fn note(&self, db: u16, key: &[u8]) {
        let mut waited = self.lock();
        waited.keys.push((db, key.into()));
        self.any.store(true, Ordering::Release);
    }

    /// Notes that all keys of a database may have changed.
    pub(crate) fn note_all(&self, db: u16) {
        let mut waited = self.lock();
        waited.databases.insert(db);
        self.any.store(true, Ordering::Release);
    }

    /// Whether there are any that were not looked at. One load.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Takes the keys; when there are none, [`Changed::any`] says so from now on.
    pub(crate) fn take(&self) -> ChangedWaited {
        let mut waited = self.lock();
        let is_empty = waited.keys.is_empty() && waited.databases.is_empty();
        self.any.store(!is_empty, Ordering::Release);
        std::mem::take(&mut *waited)
    }

    fn lock(&self) -> MutexGuard<'_, ChangedWaited> {
        self.waited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watched key; dropping it is UNWATCH.
#[derive(Debug)]
pub struct Watch {
    pub(crate) index: Arc<Index>,
    pub(crate) db: u16,
    pub(crate) key: Box<[u8]>,
    pub(crate) stripe: usize,
    pub(crate) state: WatchState,
    /// The key had expired, though not been removed, when the watch began: its removal is no change.
    pub(crate) expired: bool,
    /// Fields of a hash whose deadlines are up to these had ended when the watch began, by the wall clock and the server's.
    pub(crate) passed: [u64; 2],
    /// Somebody waits for a change.
    pub(crate) waits: bool,
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
        self.index.lock(self.stripe).watches.drop_watcher(self.db, &self.key, self.waits);
    }
}
