//! What the lookups of an access have copied that keeps no stripe locked.
//!
//! A command that runs beside the loops on large collections has claimed its keys: nobody changes them. So it need not keep their stripes locked
//! while it works, which may take seconds: each lookup locks a stripe for itself, and copies the value that it finds, once. What was copied is lent
//! for as long as the access lives, or until it turns to another key; the memory for it is asked for before.

use collections::Deadline;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use journal::{Keyspace, Seq};

use super::lent::Lent;
use super::state::State;
use crate::hash::KeyHash;
use crate::index::delta::Delta;
use crate::large::{Bytes, Large};

/// Copies of what was found.
#[derive(Default)]
pub(super) struct Copied {
    /// Lookups lock their stripes for themselves.
    pub(super) is_on: bool,
    copies: OnceCell<Box<Copies>>,
}

#[derive(Default)]
struct Copies {
    found: Lent<Found>,
    /// Their numbers.
    known: RefCell<HashMap<(Keyspace, KeyHash), Vec<usize>>>,
    /// What they take.
    bytes: Cell<u64>,
}

/// A key's state, and what lies on its base in the log.
struct Found {
    key: Box<[u8]>,
    kind: u8,
    value: Value,
    expiry: Option<Deadline>,
    header_expiry: Option<Deadline>,
    seq: Seq,
    deltas: Box<[Delta]>,
    value_len: u64,
    has_value: bool,
    was_read: bool,
}

enum Value {
    Plain(Box<[u8]>),
    Large(Arc<Large>),
}

impl Copied {
    /// What was found of this key before.
    pub(super) fn find(&self, keyspace: Keyspace, hash: KeyHash, key: &[u8]) -> Option<State<'_>> {
        let copies = self.copies.get()?;
        let known = copies.known.borrow();
        let mut found = known.get(&(keyspace, hash))?.iter().map(|number| copies.found.get(*number));
        found.find(|found| *found.key == *key).map(Found::state)
    }

    /// The same state, which no lock is needed for.
    pub(super) fn keep<'c>(
        &'c self,
        keyspace: Keyspace,
        hash: KeyHash,
        key: &[u8],
        state: State<'_>,
    ) -> State<'c> {
        let State { kind, expiry, header_expiry, seq, value_len, has_value, was_read, .. } = state;
        let copies = self.copies.get_or_init(Box::default);
        copies.bytes.set(copies.bytes.get() + Self::bytes_of(key, &state));
        let value = match state.value {
            Bytes::Plain(value) => Value::Plain(value.into()),
            Bytes::Large(large) => Value::Large(Arc::clone(large)),
        };
        let (key, deltas) = (key.into(), state.deltas.into());
        copies.known.borrow_mut().entry((keyspace, hash)).or_default().push(copies.found.len());
        let found =
            Found { key, kind, value, expiry, header_expiry, seq, deltas, value_len, has_value, was_read };
        copies.found.push(found).state()
    }

    /// What a copy of this state takes.
    pub(super) fn bytes_of(key: &[u8], state: &State<'_>) -> u64 {
        let value_len = match state.value {
            Bytes::Plain(value) => value.len(),
            Bytes::Large(_) => 0,
        };
        (COPY_BYTES + key.len() + value_len + size_of_val(state.deltas)) as u64
    }

    /// Forgets all of them; returns what they took.
    #[must_use]
    pub(super) fn clear(&mut self) -> u64 {
        self.copies.take().map_or(0, |copies| copies.bytes.get())
    }
}

impl Found {
    fn state(&self) -> State<'_> {
        let Self { kind, expiry, header_expiry, seq, value_len, has_value, was_read, .. } = *self;
        let value = match &self.value {
            Value::Plain(value) => Bytes::Plain(value),
            Value::Large(large) => Bytes::Large(large),
        };
        let (object, spot, staged, deltas) = (None, None, false, &self.deltas[..]);
        State {
            kind,
            value,
            expiry,
            header_expiry,
            seq,
            object,
            spot,
            staged,
            deltas,
            value_len,
            has_value,
            was_read,
        }
    }
}

/// What a copy takes beside its bytes, with its place in the lists.
const COPY_BYTES: usize = size_of::<Found>() + 96;
