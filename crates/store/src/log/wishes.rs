//! Values that are to be folded before they leave memory (`folding`), on their way from who passes them to housekeeping.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use journal::{Keyspace, LogAddress};

use crate::locks::lock;
use crate::object::ObjectRef;

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
}

/// A value in memory.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) keyspace: Keyspace,
    pub(super) base: LogAddress,
    pub(super) key: Box<[u8]>,
}

impl Wishes {
    /// Wishes that `object` be folded; returns whether it will be, so that it should stay in memory until then.
    pub(crate) fn add(&self, keyspace: Keyspace, object: ObjectRef<'_>) -> bool {
        let mut listed = self.listed();
        let base = object.address();
        if listed.under_way.contains_key(&base) {
            return true;
        }
        let bytes = object.own_bytes();
        let has_room = listed.under_way.len() < WISHES_MAX && listed.bytes + bytes <= WISHES_BYTES_MAX;
        let Some(wish) = Wish::of(keyspace, object).filter(|_| has_room) else { return false };
        listed.under_way.insert(base, bytes);
        listed.bytes += bytes;
        listed.queue.push_back(wish);
        true
    }

    /// Whether there are so many that others had better wait.
    pub(super) fn are_many(&self) -> bool {
        let listed = self.listed();
        listed.under_way.len() >= WISHES_MAX / 2 || listed.bytes >= WISHES_BYTES_MAX / 2
    }

    pub(super) fn next(&self) -> Option<Wish> {
        self.listed().queue.pop_front()
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
        (!is_large).then(|| Self { keyspace, base: object.address(), key: object.key().into() })
    }
}

/// From so many changes on a value is folded before it leaves memory: with fewer it costs more to write than it saves to read.
pub(crate) const FOLD_CHANGES_MIN: usize = 3;
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
            let mut object = Object::new(1, b"key", Bytes::Plain(&value), 0);
            object.stamp(LogAddress::unpack(n << 8), Seq(n));
            wishes.add(Keyspace(0), object.view())
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
            let mut object = Object::new(1, b"key", Bytes::Plain(b"value"), 0);
            object.stamp(LogAddress::unpack(n << 8), Seq(n));
            wishes.add(Keyspace(0), object.view())
        };
        assert_eq!((1..100_000).take_while(|n| add(*n)).count(), WISHES_MAX);
    }
}
