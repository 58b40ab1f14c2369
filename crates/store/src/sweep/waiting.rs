//! Collections that are gone and whose leaves are not, and the notes that say so.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use journal::Keyspace;

use crate::paged::leaf_key;

/// What is still to go.
#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    waiting: Mutex<VecDeque<Sweep>>,
}

/// The leaves of a collection that is gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweep {
    pub(super) object: u64,
    pub(super) leaves: Keyspace,
    /// The next of them to go, and how many there were.
    pub(super) next: u32,
    pub(super) count: u32,
    /// Those that come next are there.
    pub(super) is_sure: bool,
}

impl Sweeps {
    /// Takes up a note that was just logged (`is_sure`), or found at a start.
    pub(crate) fn add(&self, key: &[u8], value: &[u8], is_sure: bool) {
        let numbers = (key.split_first_chunk(), value.try_into());
        let (Some((object, leaves)), Ok(count)) = numbers else { return };
        let Ok(leaves) = leaves.try_into() else { return };
        self.push_front(Sweep {
            object: u64::from_le_bytes(*object),
            leaves: Keyspace(u32::from_le_bytes(leaves)),
            next: 0,
            count: u32::from_le_bytes(count),
            is_sure,
        });
    }

    fn push_front(&self, sweep: Sweep) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push_front(sweep);
    }

    pub(super) fn pop(&self) -> Option<Sweep> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_back()
    }

    pub(super) fn put_back(&self, sweep: Sweep) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push_back(sweep);
    }

    /// Leaves that are still to go, and notes.
    pub(super) fn left(&self) -> u64 {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().map(|sweep| u64::from(sweep.count - sweep.next) + 1).sum()
    }
}

/// The key of a note.
pub(crate) fn note_key(object: u64, leaves: Keyspace) -> [u8; 12] {
    leaf_key(object, leaves.0)
}

/// Leaves of paged collections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafReport {
    /// Leaves in the index.
    pub leaves: u64,
    /// Bytes of those of them that are in memory, values of 64 KiB or more excluded.
    pub hot_bytes: u64,
    /// About how many of them, and of notes about them, are of collections that are gone, and go next.
    pub swept: u64,
}
