//! Roots of the folder that is saved, also those that are not saved because a newer one took their place.
//!
//! Where the newest root of a collection is lost, its leaves are there and nothing says at which key. An older root does.

use collections::Deadline;
use std::collections::HashMap;

use journal::{Keyspace, RecordView, Seq};

use crate::check::nodes::State;
use crate::hash::KeyHasher;
use crate::keyspaces::{is_leaves, is_own, leaves_of};
use crate::record::{self, Payload};

/// The newest root of each collection that can be read, alive or not.
#[derive(Default)]
pub(crate) struct Roots {
    /// By the keyspace of leaves and the object.
    newest: HashMap<(Keyspace, u64), Root>,
}

struct Root {
    kind: u8,
    seq: Seq,
    expiry: Option<Deadline>,
    payload: Vec<u8>,
}

impl Roots {
    /// Notes a record, if it is a root.
    pub(crate) fn take(&mut self, view: &RecordView<'_>) {
        let (keyspace, kind) = (view.header.keyspace, view.header.kind & !record::SHARED);
        if is_own(keyspace) || is_leaves(keyspace) {
            return;
        }
        let Some(Payload::Whole { value, .. }) = record::decode(kind, view.payload) else { return };
        let Some(root) = record::root_of(kind, value) else { return };
        let place = (leaves_of(keyspace), root.object);
        if self.newest.get(&place).is_none_or(|known| known.seq < view.header.seq) {
            let (seq, expiry, payload) =
                (view.header.seq, Deadline::of(view.header.expiry_ms), view.payload.to_vec());
            self.newest.insert(place, Root { kind, seq, expiry, payload });
        }
    }

    /// The newest root of this object.
    pub(super) fn of(&self, leaves: Keyspace, object: u64) -> Option<State> {
        let Root { kind, seq, expiry, payload } = self.newest.get(&(leaves, object))?;
        Some(State::whole(*kind, payload.clone(), *seq, *expiry))
    }

    /// The keys of all roots, none of which was met yet in what was saved.
    pub(super) fn keys(&self, hasher: &KeyHasher) -> Keys {
        let key = |((leaves, object), _): (&(Keyspace, u64), &Root)| {
            let state = self.of(*leaves, *object)?;
            Some(((*leaves, hasher.uncut(state.key())), (Seq::NONE, false)))
        };
        Keys { met: self.newest.iter().filter_map(key).collect() }
    }
}

/// Which of some keys are there in what was saved.
pub(super) struct Keys {
    /// By the keyspace of leaves and the hash: the newest effect, and whether it is a value.
    met: HashMap<(Keyspace, u128), (Seq, bool)>,
}

impl Keys {
    /// Notes a record of what was saved.
    pub(super) fn take(&mut self, view: &RecordView<'_>, hasher: &KeyHasher) {
        let keyspace = view.header.keyspace;
        if self.met.is_empty() || is_own(keyspace) || is_leaves(keyspace) {
            return;
        }
        let Some(Payload::Whole { key, .. }) = record::decode(view.header.kind, view.payload) else { return };
        if let Some(known) = self.met.get_mut(&(leaves_of(keyspace), hasher.uncut(key)))
            && known.0 <= view.header.seq
        {
            *known = (view.header.seq, record::base(view.header.kind).is_some());
        }
    }

    /// Lets the key of these leaves have no value any more.
    pub(super) fn vacate(&mut self, leaves: Keyspace, key: &[u8], hasher: &KeyHasher) {
        if let Some((_, has_value)) = self.met.get_mut(&(leaves, hasher.uncut(key))) {
            *has_value = false;
        }
    }

    /// Lets the key of these leaves have a value; false if it has one.
    pub(super) fn occupy(&mut self, leaves: Keyspace, key: &[u8], hasher: &KeyHasher) -> bool {
        match self.met.get_mut(&(leaves, hasher.uncut(key))) {
            Some((_, has_value)) => !std::mem::replace(has_value, true),
            None => false,
        }
    }
}
