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
use crate::value::Value;
use crate::{KeyRef, Store};

impl Store {
    /// The value kept as `name`.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    pub fn kept(&self, name: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let read =
            |access: &mut Access<'_>| Ok(access.peek(KEPT_DB, name)?.map(|found| found.value.to_vec()));
        match self.with_kept(&[name], 0, read) {
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

    /// Keeps each value by its name, and forgets what has none: all of that, or nothing; returns the ticket by which whoever is told of it waits.
    ///
    /// # Errors
    /// As [`Store::keep`].
    pub fn keep_all(&self, changes: &[(&[u8], Option<&[u8]>)]) -> Result<Ticket, Stop> {
        let names: Vec<&[u8]> = changes.iter().map(|(name, _)| *name).collect();
        let bytes = changes.iter().map(|(_, value)| value.map_or(0, <[u8]>::len) as u64).sum();
        self.with_kept(&names, bytes, |access| {
            for (name, value) in changes {
                match value {
                    Some(value) => access.put(KEPT_DB, name, Value::String(value), None),
                    None => drop(access.remove(KEPT_DB, name)?),
                }
            }
            access.commit()
        })
    }

    fn with_kept<T>(
        &self,
        names: &[&[u8]],
        bytes: u64,
        mut work: impl FnMut(&mut Access<'_>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let keys: Vec<KeyRef<'_>> = names.iter().map(|name| KeyRef { db: KEPT_DB, key: name }).collect();
        let mut prepared = Prepared::default();
        loop {
            let mut access = self.access(Scope::Keys(&keys), &prepared, bytes)?;
            let result = work(&mut access);
            let wanted = access.into_wanted();
            if !matches!(result, Err(Stop::Cold)) {
                return result;
            }
            self.read_wanted(wanted, &mut prepared);
        }
    }
}

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
    fn several_are_kept_and_forgotten_at_once() {
        let options = Options { engine: EngineKind::Memory, background: false, ..Options::default() };
        let store = Store::open(options).expect("a store in memory opens");
        store.keep_all(&[(b"a", Some(b"1")), (b"b", Some(b"2"))]).expect("there is room");
        store.keep_all(&[(b"a", None), (b"b", Some(b"3")), (b"never", None)]).expect("there is room");
        assert_eq!((store.kept(b"a"), store.kept(b"b")), (Ok(None), Ok(Some(b"3".to_vec()))));
    }
}
