//! Hashes some of whose fields have passed their deadlines, as an access sees them: without these fields.
//!
//! What was looked up is lent for as long as the access lives, so each stays where it is, until the commit takes all. One command may meet as many as
//! a large hash has leaves. Who makes them is `fields`.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};

use journal::Keyspace;

use super::lent::Lent;
use super::overlay::{KeyPlace, Staged};
use crate::hash::KeyHash;
use crate::keyspaces::is_leaves;
use crate::record;
use collections::root::object_of;
use collections::{Deadline, Moment};

/// The hashes, in the order in which they were met.
#[derive(Debug, Default)]
pub(super) struct Purged(OnceCell<Box<Met>>);

#[derive(Debug, Default)]
struct Met {
    purges: Lent<Purge>,
    known: RefCell<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Their numbers, by keyspace and hash.
    numbers: HashMap<(Keyspace, KeyHash), Vec<usize>>,
    /// Of leaves: fields that are gone, by the object that they belong to.
    fields: HashMap<u64, u64>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Purge {
    pub(super) staged: Staged,
    /// What was done.
    pub(super) operations: Vec<u8>,
    /// Fields that are gone, and by how much the hash is shorter.
    pub(super) fields: u32,
    pub(super) bytes: u64,
}

/// A key that has the root of a large hash whose fields have deadlines.
#[derive(Clone, Debug)]
pub(super) struct TimedKey {
    pub(super) db: u16,
    pub(super) keyspace: Keyspace,
    pub(super) hash: KeyHash,
    pub(super) key: Box<[u8]>,
}

impl TimedKey {
    pub(super) fn place(&self) -> KeyPlace<'_> {
        KeyPlace { db: self.db, keyspace: self.keyspace, hash: self.hash, key: &self.key }
    }
}

/// Such keys, by their objects.
pub(super) type TimedKeys = RefCell<BTreeMap<u64, TimedKey>>;

impl Purged {
    pub(super) fn is_empty(&self) -> bool {
        self.0.get().is_none()
    }

    pub(super) fn find(&self, keyspace: Keyspace, hash: KeyHash, key: &[u8]) -> Option<&Purge> {
        let met = self.0.get()?;
        let known = met.known.borrow();
        let mut purges = known.numbers.get(&(keyspace, hash))?.iter().map(|number| met.purges.get(*number));
        purges.find(|purge| purge.staged.object().view().key() == key)
    }

    /// How many fields are gone of leaves of this object.
    pub(super) fn fields_of(&self, object: u64) -> u64 {
        let Some(met) = self.0.get() else { return 0 };
        met.known.borrow().fields.get(&object).copied().unwrap_or(0)
    }

    /// Adds one; returns it.
    pub(super) fn push(&self, purge: Purge) -> &Purge {
        let met = self.0.get_or_init(Box::default);
        let mut known = met.known.borrow_mut();
        let (number, Staged { keyspace, hash, .. }) = (met.purges.len(), &purge.staged);
        known.numbers.entry((*keyspace, *hash)).or_default().push(number);
        if is_leaves(*keyspace)
            && let Some(object) = object_of(purge.staged.object().view().key())
        {
            *known.fields.entry(object).or_default() += u64::from(purge.fields);
        }
        met.purges.push(purge)
    }

    /// Takes them out.
    pub(super) fn take(&mut self) -> Vec<Purge> {
        self.0.take().map_or_else(Vec::new, |mut met| met.purges.take())
    }
}

/// When the first of a key and its fields ends: what is in its record's header. `own`: when the key expires.
pub(super) fn next_deadline(now: Moment, kind: u8, value: &[u8], own: Option<Deadline>) -> Option<Deadline> {
    let times = if kind == record::HASH { collections::times_of(value) } else { None };
    let Some(times) = times else { return own };
    let all = own.into_iter().chain([times.wall, times.server].into_iter().filter_map(Deadline::of));
    all.min_by_key(|at| now.server_ms_of(*at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::overlay::{Cause, Change};
    use crate::keyspaces::leaves_of;
    use collections::root::leaf_key;

    fn purge(keyspace: Keyspace, hash: KeyHash, key: &[u8], fields: u32) -> Purge {
        let staged =
            Staged { db: 0, keyspace, hash, change: Change::removal(key), cause: Cause::Purged(fields) };
        Purge { staged, operations: Vec::new(), fields, bytes: 0 }
    }

    #[test]
    fn all_are_found_and_taken_in_the_order_in_which_they_were_met() {
        let (mut purged, leaves) = (Purged::default(), leaves_of(Keyspace(3)));
        assert!(purged.is_empty() && purged.fields_of(7) == 0);
        let first = purged.push(purge(Keyspace(3), KeyHash(1), b"small", 9));
        for number in 0..1_000 {
            // hashes are equal, as in tests that cut them
            let key = leaf_key(u64::from(number % 2), number);
            purged.push(purge(leaves, KeyHash(u128::from(number % 10)), &key, 1));
        }
        assert_eq!(first.fields, 9, "it stays where it is");
        for number in 0..1_000 {
            let key = leaf_key(u64::from(number % 2), number);
            let hash = KeyHash(u128::from(number % 10));
            assert!(purged.find(leaves, hash, &key).is_some_and(|it| it.staged.object().view().key() == key));
            assert!(purged.find(Keyspace(3), hash, &key).is_none());
        }
        assert_eq!((purged.fields_of(0), purged.fields_of(1), purged.fields_of(2)), (500, 500, 0));
        let taken = purged.take();
        let numbers = taken.iter().skip(1).map(|it| it.staged.object().view().key()[8..10].to_vec());
        assert!(numbers.eq((0..1_000_u16).map(|number| number.to_le_bytes().to_vec())));
        assert!(taken.len() == 1_001 && purged.is_empty());
    }
}
