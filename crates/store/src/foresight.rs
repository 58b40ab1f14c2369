//! Keys that are looked up soon, as those of a pipeline are: what their lookups read is prefetched for all at once.
//!
//! Out of scope: how (`index::ahead`).

use journal::Keyspace;

use crate::hash::KeyHash;
use crate::index::ahead::AHEAD_KEYS_MAX;
use crate::{KeyRef, Store};

/// A list of keys to be looked up soon. A hint: it has no effect but on time, and costs about 0.1 us a key.
#[derive(Debug)]
pub struct Foresight<'s> {
    store: &'s Store,
    keys: [(Keyspace, KeyHash); AHEAD_KEYS_MAX],
    count: usize,
}

/// The hash of a key.
#[derive(Clone, Copy, Debug)]
pub struct Foreseen(pub(crate) KeyHash);

impl Foreseen {
    /// The bits of the hash: the same for the same key for as long as the folder lives, and told to nobody outside.
    #[must_use]
    pub fn bits(self) -> u128 {
        self.0.0
    }
}

impl<'s> Foresight<'s> {
    pub(crate) fn new(store: &'s Store) -> Self {
        Self { store, keys: [(Keyspace::NONE, KeyHash(0)); AHEAD_KEYS_MAX], count: 0 }
    }

    /// Adds `key`; returns what its lookup need not work out again.
    pub fn add(&mut self, key: KeyRef<'_>) -> Foreseen {
        let hash = self.store.hasher.hash(key.key);
        if let Some(keyspace) = self.store.index.keyspace(key.db) {
            self.keys[self.count] = (keyspace, hash);
            self.count += 1;
        }
        if self.count == AHEAD_KEYS_MAX {
            self.prefetch();
        }
        Foreseen(hash)
    }

    /// Prefetches what lookups of the listed keys read, and empties the list.
    pub fn prefetch(&mut self) {
        self.store.index.prefetch(&self.keys[..self.count]);
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::{EngineKind, Options, Prepared, Scope, Value};

    #[test]
    fn foresight_changes_nothing_and_waits_for_nobody() {
        let options = Options { engine: EngineKind::Memory, background: false, ..Options::default() };
        let store = Store::open(options).expect("in memory");
        let prepared = Prepared::default();
        let names: Vec<Vec<u8>> = (0..3 * AHEAD_KEYS_MAX + 1).map(|n| n.to_string().into_bytes()).collect();
        let key = |name| KeyRef { db: 0, key: name };
        let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
        let access =
            |keys| store.access_at(Scope::Keys(keys), &prepared, 0, store.now()).expect("there is room");
        for (name, key) in names.iter().zip(keys.chunks(1)) {
            let mut access = access(key);
            access.put(0, name, Value::String(name), None);
            access.commit().expect("there is room");
        }
        let held = store.index.lock(store.hasher.hash(&names[0]).stripe());
        let mut foresight = store.foresight().expect("the engine keeps keys");
        names.iter().for_each(|name| _ = foresight.add(key(name)));
        foresight.add(KeyRef { db: u16::MAX, key: b"no such database" });
        foresight.add(key(b"no such key"));
        foresight.prefetch();
        drop(held);
        for (name, key) in names.iter().zip(keys.chunks(1)) {
            let access = access(key);
            let found = access.get(0, name).expect("hot").map(|found| found.value);
            assert_eq!(found, Some(name.as_slice()));
        }
        assert!(access(&[key(b"no such key")]).get(0, b"no such key").expect("hot").is_none());
    }

    #[test]
    fn engine_without_keys_foresees_nothing() {
        let options = Options { engine: EngineKind::Noop, background: false, ..Options::default() };
        assert!(Store::open(options).expect("in memory").foresight().is_none());
    }
}
