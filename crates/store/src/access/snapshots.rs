//! The snapshots that are open, and what nodes were that have changed since (`snapshot`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::index::stripe::{Seek, Stripe};
use crate::keyspaces::is_leaves;
use crate::paged::split_leaf_key;
use crate::prepared::Prepared;

use super::overlay::Staged;

/// The snapshots that are open, by the objects that they are of.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    count: AtomicUsize,
    of_object: Mutex<HashMap<u64, Vec<Arc<Mutex<Kept>>>>>,
}

/// Nodes as they were, for one snapshot.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) nodes: HashMap<u32, Box<[u8]>>,
    pub(super) bytes: u64,
    /// Why it cannot be read any more.
    pub(super) lost: Option<&'static str>,
}

impl Snapshots {
    /// Whether there is one of `object`.
    pub(crate) fn has(&self, object: u64) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.objects().contains_key(&object)
    }

    /// Keeps what a change of a node finds, where somebody reads it in parts. `stripe` has the node.
    pub(super) fn on_change(&self, staged: &Staged, stripe: &Stripe, prepared: &Prepared) {
        if self.count.load(Ordering::Relaxed) == 0 || !is_leaves(staged.keyspace) {
            return;
        }
        let key = staged.object().view().key();
        let Some((object, number)) = split_leaf_key(key) else { return };
        let Some(readers) = self.objects().get(&object).cloned() else { return };
        match stripe.seek(staged.keyspace, staged.hash, key, prepared) {
            Seek::At { current, whole: true, .. } if !current.is_removed() => {
                readers.iter().for_each(|kept| lock(kept).keep(number, current.value().slice()));
            }
            // a new one
            Seek::At { whole: true, .. } | Seek::Absent { .. } => {}
            _ => {
                let why = "a part of it that was changed could not be kept as it was";
                readers.iter().for_each(|kept| lock(kept).lose(why));
            }
        }
    }

    /// Begins to keep nodes of `object` for one more.
    pub(super) fn begin(&self, object: u64) -> Arc<Mutex<Kept>> {
        let kept = Arc::default();
        self.objects().entry(object).or_default().push(Arc::clone(&kept));
        self.count.fetch_add(1, Ordering::Relaxed);
        kept
    }

    /// Keeps no more for the one that has `kept`.
    pub(super) fn end(&self, object: u64, kept: &Arc<Mutex<Kept>>) {
        let mut objects = self.objects();
        if let Some(readers) = objects.get_mut(&object) {
            readers.retain(|other| !Arc::ptr_eq(other, kept));
            if readers.is_empty() {
                objects.remove(&object);
            }
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    fn objects(&self) -> MutexGuard<'_, HashMap<u64, Vec<Arc<Mutex<Kept>>>>> {
        lock(&self.of_object)
    }
}

impl Kept {
    fn keep(&mut self, number: u32, value: &[u8]) {
        if self.lost.is_some() || self.nodes.contains_key(&number) {
            return;
        }
        self.bytes += (value.len() + NODE_BYTES) as u64;
        if self.bytes > KEPT_BYTES_MAX {
            return self.lose("too much of it was changed meanwhile");
        }
        self.nodes.insert(number, value.into());
    }

    fn lose(&mut self, why: &'static str) {
        *self = Self { lost: Some(why), ..Self::default() };
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is kept for a snapshot, at most.
const KEPT_BYTES_MAX: u64 = 64 << 20;
/// What a node that is kept takes beside its value.
const NODE_BYTES: usize = 48;
