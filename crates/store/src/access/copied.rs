//! What the lookups of an access have copied that keeps no stripe locked.
//!
//! A command that runs beside the loops on large collections has claimed its keys: nobody changes them. So it need not keep their stripes locked
//! while it works, which may take seconds: each lookup locks a stripe for itself, and copies the value that it finds. What was copied is lent for
//! as long as the access lives, or until it turns to another key.

use std::sync::Arc;

use super::lent::Lent;
use super::state::State;
use crate::index::delta::Delta;
use crate::large::{Bytes, Large};

/// Copies of what was found.
#[derive(Default)]
pub(super) struct Copied {
    /// Lookups lock their stripes for themselves.
    pub(super) is_on: bool,
    found: Lent<Found>,
}

/// A value, and what lies on its base in the log.
struct Found {
    value: Value,
    deltas: Box<[Delta]>,
}

enum Value {
    Plain(Box<[u8]>),
    Large(Arc<Large>),
}

impl Copied {
    /// The same state, which no lock is needed for.
    pub(super) fn keep<'c>(&'c self, state: State<'_>) -> State<'c> {
        let value = match state.value {
            Bytes::Plain(value) => Value::Plain(value.into()),
            Bytes::Large(large) => Value::Large(Arc::clone(large)),
        };
        let Found { value, deltas } = self.found.push(Found { value, deltas: state.deltas.into() });
        let value = match value {
            Value::Plain(value) => Bytes::Plain(value),
            Value::Large(large) => Bytes::Large(large),
        };
        let State { kind, expiry_ms, header_ms, seq, staged, value_len, has_value, .. } = state;
        State { kind, value, expiry_ms, header_ms, seq, object: None, staged, deltas, value_len, has_value }
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.found = Lent::default();
    }
}
