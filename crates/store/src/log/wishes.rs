//! Values that are to be folded before they leave memory (`folding`), on their way from who passes them to housekeeping.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use journal::{Keyspace, LogAddress};

use crate::index::delta::{Delta, weigh};
use crate::locks::lock;
use crate::object::ObjectRef;
use crate::prepared::{Fetched, Fold};

/// Values that are to be folded, on their way from who passes them to housekeeping.
#[derive(Debug, Default)]
pub(crate) struct Wishes(Mutex<Listed>);

#[derive(Debug, Default)]
struct Listed {
    queue: VecDeque<Wish>,
    /// Bases of those in the queue, and of those whose copies wait, with the bytes of their values.
    under_way: HashMap<LogAddress, u64>,
    /// Sum of the bytes of those under way.
    bytes: u64,
    /// Of these, of values in the queue that were read.
    read_bytes: u64,
}

/// A value that is to be one record.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) keyspace: Keyspace,
    pub(super) base: LogAddress,
    pub(super) key: Box<[u8]>,
    /// The value, if it was read for a command; otherwise it is in memory.
    pub(super) read: Option<Box<ReadValue>>,
}

/// A value as it was read and folded.
#[derive(Debug)]
pub(super) struct ReadValue {
    pub(super) value: Fetched,
    /// What lay on its base, and is in it.
    pub(super) deltas: Vec<Delta>,
}

impl Wishes {
    /// Wishes that `object` be folded; returns whether it will be, so that it should stay in memory until then. `bytes_max` of values wait
    /// for it at most.
    pub(crate) fn add(&self, keyspace: Keyspace, object: ObjectRef<'_>, bytes_max: u64) -> bool {
        let mut listed = self.listed();
        let base = object.address();
        if listed.under_way.contains_key(&base) {
            return true;
        }
        let bytes = object.own_bytes();
        let bytes_max = bytes_max.min(WISHES_BYTES_MAX);
        let has_room = listed.under_way.len() < WISHES_MAX && listed.bytes + bytes <= bytes_max;
        let Some(wish) = Wish::of(keyspace, object).filter(|_| has_room) else { return false };
        listed.under_way.insert(base, bytes);
        listed.bytes += bytes;
        listed.queue.push_back(wish);
        true
    }

    /// Wishes that a value be one record which was read from several, so that the next read of it is one. What leaves memory goes first.
    pub(super) fn add_read(&self, fold: &Fold, folded: &Fetched) {
        let changes = weigh(&fold.deltas);
        let (base, bytes) = (fold.base.address, folded.value.len() as u64);
        if changes < FOLD_CHANGES_MIN || folded.left_out_bytes > 0 || folded.value.bytes().large().is_some() {
            return;
        }
        let mut listed = self.listed();
        let has_room = listed.under_way.len() < WISHES_MAX / 2
            && listed.bytes + bytes <= WISHES_BYTES_MAX / 2
            && listed.read_bytes + bytes <= READ_BYTES_MAX;
        if !has_room || listed.under_way.contains_key(&base) {
            return;
        }
        listed.under_way.insert(base, bytes);
        (listed.bytes, listed.read_bytes) = (listed.bytes + bytes, listed.read_bytes + bytes);
        let read = Some(Box::new(ReadValue { value: folded.clone(), deltas: fold.deltas.clone() }));
        let (keyspace, key) = (fold.base.keyspace(), folded.key.clone());
        listed.queue.push_back(Wish { keyspace, base, key, read });
    }

    /// Whether there are so many that others had better wait.
    pub(super) fn are_many(&self) -> bool {
        let listed = self.listed();
        listed.under_way.len() >= WISHES_MAX / 2 || listed.bytes >= WISHES_BYTES_MAX / 2
    }

    pub(super) fn next(&self) -> Option<Wish> {
        let mut listed = self.listed();
        let wish = listed.queue.pop_front()?;
        listed.read_bytes -= wish.read.as_ref().map_or(0, |read| read.value.value.len() as u64);
        Some(wish)
    }

    /// The copy of `base` is in the index, or there will be none.
    pub(super) fn end(&self, base: LogAddress) {
        let mut listed = self.listed();
        let bytes = listed.under_way.remove(&base).unwrap_or(0);
        listed.bytes -= bytes;
    }

    fn listed(&self) -> MutexGuard<'_, Listed> {
        lock(&self.0)
    }
}

impl Wish {
    /// `object` is to be folded; `None` if it is a large value.
    pub(super) fn of(keyspace: Keyspace, object: ObjectRef<'_>) -> Option<Self> {
        let is_large = object.bytes().large().is_some();
        (!is_large).then(|| Self { keyspace, base: object.address(), key: object.key().into(), read: None })
    }
}

/// From so many changes on a value is folded before it leaves memory, and after it was read: so what is on disk alone is a base with one
/// change at most, and a read of it two. To fold a single change, too, would write a whole leaf for each.
pub(crate) const FOLD_CHANGES_MIN: usize = 2;
/// Bytes of values that were read, in memory until they are appended.
const READ_BYTES_MAX: u64 = 1 << 20;
/// Values that are to be folded, and that are not yet: about 250 B of lists each.
const WISHES_MAX: usize = 32_768;
/// Bytes of these values. With `durability` 1s a copy waits for the next sync, so this is what is folded in a second.
const WISHES_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::large::Bytes;
    use crate::object::Object;
    use journal::Seq;

    #[test]
    fn wishes_are_bounded_by_the_bytes_of_their_values_until_they_end() {
        let wishes = Wishes::default();
        let value = vec![b'v'; 32 * 1024];
        let add = |n: u64| {
            let mut object = Object::new(1, b"key", Bytes::Plain(&value), None);
            object.stamp(LogAddress::unpack(n << 8), Seq(n));
            wishes.add(Keyspace(0), object.view(), u64::MAX)
        };
        let taken = (1..1000).take_while(|n| add(*n)).count() as u64;
        assert!((WISHES_BYTES_MAX / 2..=WISHES_BYTES_MAX).contains(&(taken * value.len() as u64)));
        assert!(wishes.are_many());
        assert!(add(1), "under way already");
        let first = wishes.next().expect("a wish");
        assert!(!add(1000), "a wish that was taken counts until its copy is in the index");
        wishes.end(first.base);
        wishes.end(first.base);
        assert!(add(1000) && !add(1001));
    }

    #[test]
    fn wishes_for_small_values_are_bounded_by_their_number() {
        let wishes = Wishes::default();
        let add = |n: u64| {
            let mut object = Object::new(1, b"key", Bytes::Plain(b"value"), None);
            object.stamp(LogAddress::unpack(n << 8), Seq(n));
            wishes.add(Keyspace(0), object.view(), u64::MAX)
        };
        assert_eq!((1..100_000).take_while(|n| add(*n)).count(), WISHES_MAX);
    }
}
