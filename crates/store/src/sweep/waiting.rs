//! Collections that are gone and whose leaves are not, and the notes that say so.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use journal::Keyspace;

use collections::root::{LEAF_KEY_BYTES, Root, leaf_key, split_leaf_key};
use collections::tree::NODE;

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
    /// How many there are by hash; behind them come nodes of a tree, or [`KEY_NODE`](collections::root::KEY_NODE).
    pub(super) hashed: u32,
    /// The next of them to go, and how many there were.
    pub(super) next: u32,
    pub(super) count: u32,
    /// Those that come next are there.
    pub(super) is_sure: bool,
    /// Where the note is: in the stripe of the key that had the collection last.
    pub(super) stripe: usize,
}

impl Sweep {
    /// The key of the leaf or node that is number `at` of them.
    pub(super) fn key(&self, at: u32) -> [u8; 12] {
        let number = at.checked_sub(self.hashed).map_or(at, |node| node | NODE);
        leaf_key(self.object, number)
    }
}

impl Sweeps {
    /// Takes up a note that was just logged (`is_sure`), or found at a start.
    pub(crate) fn add(&self, key: &[u8], value: &[u8], is_sure: bool) {
        let (Some((stripe, object, leaves)), (numbers, [])) = (split_note_key(key), value.as_chunks()) else {
            return;
        };
        let (hashed, nodes) = match numbers {
            [leaves] => (u32::from_le_bytes(*leaves), 0),
            [leaves, nodes] => (u32::from_le_bytes(*leaves), u32::from_le_bytes(*nodes)),
            _ => return,
        };
        self.push_front(Sweep {
            object,
            leaves,
            hashed,
            next: 0,
            count: hashed.saturating_add(nodes),
            is_sure,
            stripe,
        });
    }

    fn push_front(&self, sweep: Sweep) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push_front(sweep);
    }

    /// The next, but for those of objects that are still read.
    pub(super) fn pop(&self, is_read: impl Fn(u64) -> bool) -> Option<Sweep> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let at = waiting.iter().rposition(|sweep| !is_read(sweep.object))?;
        waiting.remove(at)
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

/// What a note says of the leaves that are to go: how many there are by hash, and of what else the collection has.
pub(crate) fn note_value(root: &Root) -> Vec<u8> {
    let mut value = root.leaves.to_le_bytes().to_vec();
    if root.numbered() > 0 {
        value.extend_from_slice(&root.numbered().to_le_bytes());
    }
    value
}

/// The key of a note in this stripe: one byte more if the collection was made in another, at a key that was renamed.
pub(crate) fn note_key(stripe: usize, object: u64, leaves: Keyspace) -> Vec<u8> {
    let (key, stripe) = (leaf_key(object, leaves.0), stripe as u8);
    if key[0] == stripe { key.to_vec() } else { [&[stripe][..], &key].concat() }
}

/// Stripe, object and keyspace in the key of a note.
pub(crate) fn split_note_key(key: &[u8]) -> Option<(usize, u64, Keyspace)> {
    let of_object = if key.len() > LEAF_KEY_BYTES { &key[1..] } else { key };
    let (object, leaves) = split_leaf_key(of_object)?;
    Some((key[0].into(), object, Keyspace(leaves)))
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
    /// Changes that lie on leaves in the log, and are not folded.
    pub changes: u64,
}
