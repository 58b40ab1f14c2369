//! The snapshots that are open, and what nodes were that have changed since (`snapshot`).
//!
//! What is kept counts as memory of the store. A snapshot is lost, and its reader told so, when more would be kept for it, or for all, than is
//! allowed, and when its leaves are to go and nobody has read on for a while: so a client that does not take its reply holds up
//! neither memory nor the disk.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use clock::Nanos;

use crate::index::stripe::{Seek, Stripe};
use crate::keyspaces::is_leaves;
use crate::large::Ledger;
use crate::locks::lock;
use crate::prepared::Prepared;
use collections::root::split_leaf_key;

use super::overlay::Staged;

/// The snapshots that are open, by the objects that they are of.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    count: AtomicUsize,
    /// What is kept for all of them.
    bytes: AtomicU64,
    ledger: Ledger,
    of_object: Mutex<HashMap<u64, Vec<Arc<Mutex<Kept>>>>>,
}

/// Nodes as they were, for one snapshot.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) nodes: HashMap<u32, Arc<[u8]>>,
    bytes: u64,
    /// Bytes of the largest node of them.
    largest_bytes: u64,
    /// When it was read last.
    pub(super) read_at: Nanos,
    /// Why it cannot be read any more.
    pub(super) lost: Option<&'static str>,
}

impl Snapshots {
    /// None; what is kept will be counted in `ledger`.
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self { ledger, ..Self::default() }
    }

    /// What is kept for all of them.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether somebody still reads `object`, whose leaves are to go.
    pub(crate) fn hold(&self, object: u64, now: Nanos) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let readers = self.objects().get(&object).cloned().unwrap_or_default();
        readers.iter().map(|kept| lock(kept)).fold(false, |is_held, mut kept| {
            if kept.lost.is_none() && now.since(kept.read_at) > STALL_MAX {
                self.lose(&mut kept, "it was removed, and the client took nothing for a minute");
            }
            is_held || kept.lost.is_none()
        })
    }

    /// Whether there is one of `object`.
    pub(crate) fn has(&self, object: u64) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.objects().contains_key(&object)
    }

    /// Keeps what a change of a node finds, where somebody reads it in parts. `stripe` has the node.
    ///
    /// For all snapshots together at most `bytes_max` are kept; it is asked only where there are some.
    pub(super) fn on_change(
        &self,
        staged: &Staged,
        stripe: &Stripe,
        prepared: &Prepared,
        bytes_max: impl FnOnce() -> u64,
    ) {
        if self.count.load(Ordering::Relaxed) == 0 || !is_leaves(staged.keyspace) {
            return;
        }
        let key = staged.object().view().key();
        let Some((object, number)) = split_leaf_key(key) else { return };
        let Some(readers) = self.objects().get(&object).cloned() else { return };
        match stripe.seek(staged.keyspace, staged.hash, key, prepared) {
            Seek::At { current, whole: true, .. } if !current.is_removed() => {
                // one copy for all, and none if all have one
                let bytes_max = bytes_max();
                let value: LazyCell<Arc<[u8]>, _> = LazyCell::new(|| current.value().slice().into());
                readers.iter().for_each(|kept| self.keep(&mut lock(kept), number, &value, bytes_max));
            }
            // a new one
            Seek::At { whole: true, .. } | Seek::Absent { .. } => {}
            _ => {
                let why = "a part of it that was changed could not be kept as it was";
                readers.iter().for_each(|kept| self.lose(&mut lock(kept), why));
            }
        }
    }

    /// Begins to keep nodes of `object` for one more.
    pub(super) fn begin(&self, object: u64, now: Nanos) -> Arc<Mutex<Kept>> {
        let kept = Arc::new(Mutex::new(Kept { read_at: now, ..Kept::default() }));
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
        let before = self.count.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "more snapshots end than began");
        self.forget(&mut lock(kept));
    }

    /// Keeps `value`; of a copy that several have each counts all bytes.
    fn keep(
        &self,
        kept: &mut Kept,
        number: u32,
        value: &LazyCell<Arc<[u8]>, impl FnOnce() -> Arc<[u8]>>,
        bytes_max: u64,
    ) {
        if kept.lost.is_some() || kept.nodes.contains_key(&number) {
            return;
        }
        let bytes = (value.len() + NODE_BYTES) as u64;
        let all_bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.ledger.add(bytes);
        kept.bytes += bytes;
        kept.largest_bytes = kept.largest_bytes.max(bytes);
        if kept.bytes > KEPT_BYTES_MAX + kept.largest_bytes || all_bytes > bytes_max {
            return self.lose(kept, "too much was changed meanwhile");
        }
        kept.nodes.insert(number, Arc::clone(value));
    }

    fn lose(&self, kept: &mut Kept, why: &'static str) {
        self.forget(kept);
        kept.lost = Some(why);
    }

    fn forget(&self, kept: &mut Kept) {
        kept.nodes = HashMap::new();
        let bytes = std::mem::take(&mut kept.bytes);
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} B forgotten of {before} that are kept");
        self.ledger.take(bytes);
    }

    fn objects(&self) -> MutexGuard<'_, HashMap<u64, Vec<Arc<Mutex<Kept>>>>> {
        lock(&self.of_object)
    }
}

/// So long leaves that are to go wait for who reads them.
const STALL_MAX: Duration = Duration::from_secs(60);
/// What is kept for a snapshot beside the largest node of it, at most.
const KEPT_BYTES_MAX: u64 = 64 << 20;
/// What a node that is kept takes beside its value.
const NODE_BYTES: usize = 48;
