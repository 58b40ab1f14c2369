//! What the server keeps for itself beside the keys of clients: values by name, in a keyspace that no database number leads to.
//!
//! They are ordinary records, so checkpoints, cleaning, backup and recovery keep them as they keep any key. They are few and
//! seldom change: reading and changing them may wait for a read from the disk.
//!
//! Out of scope: what the values mean (`server`: libraries of functions, definitions of topologies).

use ticket::Ticket;

use crate::access::{Access, Scope};
use crate::error::{Stop, StoreError};
use crate::keyspaces::KEPT_DB;
use crate::prepared::Prepared;
use crate::value::{Meta, Value};
use crate::{KeyRef, Store};

impl Store {
    /// The value kept as `name`.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    pub fn kept(&self, name: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let read =
            |access: &mut Access<'_>| Ok(access.peek(KEPT_DB, name)?.map(|found| found.value.to_vec()));
        let key = [KeyRef { db: KEPT_DB, key: name }];
        match self.with_keys(Scope::Keys(&key), 0, &mut Prepared::default(), read) {
            Ok(value) => Ok(value),
            Err(Stop::Refused(error) | Stop::Damaged(error)) => Err(error),
            Err(other) => Err(StoreError::Open(format!("what the server keeps cannot be read: {other:?}"))),
        }
    }

    /// Keeps `value` as `name`; returns the ticket by which whoever is told of it waits.
    ///
    /// # Errors
    /// [`Stop::Busy`] when the journal has no room now, [`Stop::Refused`] when there is none at all.
    pub fn keep(&self, name: &[u8], value: &[u8]) -> Result<Ticket, Stop> {
        self.keep_all(&[(name, Some(value))])
    }

    /// Keeps each value by its name, and forgets what has none: all of that, or nothing; returns the ticket by which whoever is told of it waits. On a full disk
    /// this works as removals do, if no value is larger than the one that it replaces: what is kept can always be ended, removed or switched.
    ///
    /// # Errors
    /// As [`Store::keep`].
    pub fn keep_all(&self, changes: &[(&[u8], Option<&[u8]>)]) -> Result<Ticket, Stop> {
        self.change_and_keep(&[], changes, 0, &mut Prepared::default(), |_| Ok(()))
    }

    /// Changes keys, and keeps values as [`Store::keep_all`] does: all of that, or nothing. Waits for reads from the disk: `prepared` has what was read before, by
    /// [`Store::rehearse`].
    ///
    /// `bytes` is about what keys and values of the changes hold; 0 if they only remove, which makes the whole one that a full disk takes.
    ///
    /// # Errors
    /// As [`Store::keep`], and what `change` says.
    pub fn change_and_keep(
        &self,
        keys: &[KeyRef<'_>],
        kept: &[(&[u8], Option<&[u8]>)],
        bytes: u64,
        prepared: &mut Prepared,
        mut change: impl FnMut(&mut Access<'_>) -> Result<(), Stop>,
    ) -> Result<Ticket, Stop> {
        let names = kept.iter().map(|(name, _)| KeyRef { db: KEPT_DB, key: name });
        let keys: Vec<KeyRef<'_>> = keys.iter().copied().chain(names).collect();
        let kept_bytes: usize = kept.iter().map(|(_, value)| value.map_or(0, <[u8]>::len)).sum();
        self.with_keys(Scope::Keys(&keys), bytes + kept_bytes as u64, prepared, |access| {
            change(access)?;
            if bytes == 0 && grows_by_none(access, kept)? {
                access.take_reserve();
            }
            for (name, value) in kept {
                match value {
                    Some(value) => access.put(KEPT_DB, name, Value::String(value), None),
                    None => drop(access.remove(KEPT_DB, name)?),
                }
            }
            access.commit()
        })
    }

    /// Makes changes and drops them: `prepared` has what they read from the disk then.
    ///
    /// # Errors
    /// As [`Store::change_and_keep`].
    pub fn rehearse(
        &self,
        keys: &[KeyRef<'_>],
        prepared: &mut Prepared,
        change: impl FnMut(&mut Access<'_>) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.with_keys(Scope::Keys(keys), 0, prepared, change)
    }

    /// Shows each key of database `db` that is there all the time. Waits for reads from the disk.
    ///
    /// # Errors
    /// [`Stop::Damaged`] when a key cannot be read.
    pub fn walk(&self, db: u16, visit: &mut dyn FnMut(&[u8], Meta)) -> Result<(), Stop> {
        let mut cursor = 0;
        loop {
            let mut part = Vec::new();
            cursor = self.with_keys(Scope::Walk, 0, &mut Prepared::default(), |access| {
                part.clear();
                access.scan(db, cursor, WALK_SLOTS, &mut |key, meta| part.push((key.to_vec(), meta)))
            })?;
            part.iter().for_each(|(key, meta)| visit(key, *meta));
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    fn with_keys<T>(
        &self,
        scope: Scope<'_>,
        bytes: u64,
        prepared: &mut Prepared,
        mut work: impl FnMut(&mut Access<'_>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        loop {
            let mut access = self.access(scope, prepared, bytes)?;
            let result = work(&mut access);
            let wanted = access.into_wanted();
            if !matches!(result, Err(Stop::Cold)) {
                return result;
            }
            self.read_wanted(wanted, prepared);
        }
    }
}

/// Whether no value is larger than the one that is kept by its name now.
fn grows_by_none(access: &Access<'_>, kept: &[(&[u8], Option<&[u8]>)]) -> Result<bool, Stop> {
    for (name, value) in kept {
        let Some(value) = value else { continue };
        let former = access.peek(KEPT_DB, name)?.map_or(0, |found| found.value.len());
        if value.len() > former {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Slots that a walk looks at between two others that want their locks.
const WALK_SLOTS: usize = 1_000;

#[cfg(test)]
mod tests {
    use crate::{EngineKind, Options, Store};

    #[test]
    fn what_is_kept_is_in_no_database_and_outlives_flushes() {
        let options = Options { engine: EngineKind::Memory, background: false, ..Options::default() };
        let store = Store::open(options).expect("a store in memory opens");
        assert_eq!(store.kept(b"name"), Ok(None));
        store.keep(b"name", b"old").expect("there is room");
        store.keep(b"name", b"new").expect("there is room");
        let prepared = crate::Prepared::default();
        let mut access = store.access(crate::Scope::Everything, &prepared, 0).expect("there is room");
        access.flush_all().expect("all stripes are locked");
        access.commit().expect("there is room");
        assert_eq!(store.kept(b"name"), Ok(Some(b"new".to_vec())));
        assert!(store.key_counts().iter().all(|(keys, _)| *keys == 0));
    }

    #[test]
    fn keys_and_what_is_kept_change_at_once_or_not_at_all() {
        let options = Options { engine: EngineKind::Memory, background: false, ..Options::default() };
        let store = Store::open(options).expect("a store in memory opens");
        let keys = [crate::KeyRef { db: 0, key: b"key" }];
        let mut prepared = crate::Prepared::default();
        let mut change = |is_refused: bool| {
            store.change_and_keep(&keys, &[(b"name", Some(b"1"))], 10, &mut prepared, |access| {
                access.put(0, b"key", crate::Value::String(b"value"), None);
                if is_refused { Err(crate::Stop::Busy) } else { Ok(()) }
            })
        };
        let walked = || {
            let mut keys = Vec::new();
            store.walk(0, &mut |key, _| keys.push(key.to_vec())).expect("all can be read");
            keys
        };
        assert!(change(true).is_err());
        assert_eq!((store.kept(b"name"), walked().len()), (Ok(None), 0));
        assert!(change(false).is_ok());
        assert_eq!((store.kept(b"name"), walked()), (Ok(Some(b"1".to_vec())), vec![b"key".to_vec()]));
    }

    #[test]
    fn several_are_kept_and_forgotten_at_once() {
        let options = Options { engine: EngineKind::Memory, background: false, ..Options::default() };
        let store = Store::open(options).expect("a store in memory opens");
        store.keep_all(&[(b"a", Some(b"1")), (b"b", Some(b"2"))]).expect("there is room");
        store.keep_all(&[(b"a", None), (b"b", Some(b"3")), (b"never", None)]).expect("there is room");
        assert_eq!((store.kept(b"a"), store.kept(b"b")), (Ok(None), Ok(Some(b"3".to_vec()))));
    }
}
