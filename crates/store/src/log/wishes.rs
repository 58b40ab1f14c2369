//! Values that are to be folded before they leave memory (`folding`), on their way from who passes them to housekeeping.

use std::collections::{HashSet, VecDeque};
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
    /// Bases of those in the queue, and of those whose copies wait.
    under_way: HashSet<LogAddress>,
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
        if listed.under_way.contains(&base) {
            return true;
        }
        let wish = Wish::of(keyspace, object).filter(|_| listed.under_way.len() < WISHES_MAX);
        if wish.is_some() {
            listed.under_way.insert(base);
        }
        let is_listed = wish.is_some();
        listed.queue.extend(wish);
        is_listed
    }

    /// Whether there are so many that others had better wait.
    pub(super) fn are_many(&self) -> bool {
        self.listed().under_way.len() >= WISHES_MAX / 2
    }

    pub(super) fn next(&self) -> Option<Wish> {
        self.listed().queue.pop_front()
    }

    /// The copy of `base` is in the index, or there will be none.
    pub(super) fn end(&self, base: LogAddress) {
        self.listed().under_way.remove(&base);
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
/// Values that are to be folded, and that are not yet; 4 MiB of copies for leaves of 2 KiB.
const WISHES_MAX: usize = 2_048;
