//! Hashes some of whose fields have passed their deadlines, as an access sees them: without these fields.
//!
//! What was looked up is lent for as long as the access lives, so the list only grows, until the commit takes it. Who makes them is `fields`.

use std::cell::OnceCell;

use journal::Keyspace;

use super::overlay::Staged;
use crate::hash::KeyHash;
use crate::packed;
use crate::record;
use crate::time::{Deadline, Moment};

/// The hashes, in the order in which they were met.
#[derive(Debug, Default)]
pub(super) struct Purged(OnceCell<Box<Node>>);

#[derive(Debug)]
struct Node {
    purge: Purge,
    next: Purged,
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
    pub(super) object: u64,
    pub(super) db: u16,
    pub(super) keyspace: Keyspace,
    pub(super) hash: KeyHash,
    pub(super) key: Box<[u8]>,
}

impl Purged {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Purge> {
        let mut at = self;
        std::iter::from_fn(move || {
            let node = at.0.get()?;
            at = &node.next;
            Some(&node.purge)
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.get().is_none()
    }

    pub(super) fn find(&self, keyspace: Keyspace, hash: KeyHash, key: &[u8]) -> Option<&Purge> {
        self.iter().find(|Purge { staged, .. }| {
            staged.hash == hash && staged.keyspace == keyspace && staged.object().view().key() == key
        })
    }

    /// Adds one; returns it.
    pub(super) fn push(&self, purge: Purge) -> &Purge {
        let mut at = self;
        while let Some(node) = at.0.get() {
            at = &node.next;
        }
        &at.0.get_or_init(|| Box::new(Node { purge, next: Self::default() })).purge
    }

    /// Takes them out.
    pub(super) fn take(&mut self) -> Vec<Purge> {
        let (mut all, mut next) = (Vec::new(), self.0.take());
        while let Some(node) = next {
            let Node { purge, next: Self(mut rest) } = *node;
            all.push(purge);
            next = rest.take();
        }
        all
    }
}

/// When the first of a key and its fields ends: what is in its record's header. `own`: when the key expires, 0 if never.
pub(super) fn next_deadline(now: Moment, kind: u8, value: &[u8], own: u64) -> u64 {
    let times = if kind == record::HASH { packed::times_of(value) } else { None };
    let Some(times) = times else { return own };
    let all = [own, times.wall, times.server].into_iter().filter_map(Deadline::of);
    all.min_by_key(|at| now.server_ms_of(*at)).map_or(0, Deadline::raw)
}
