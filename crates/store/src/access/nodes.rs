//! A paged collection as an access meets it: its root and keyspace, and what becomes of its leaves and nodes.

use journal::Keyspace;

use crate::error::{Stop, StoreError};
use crate::packed::Shape;
use crate::paged::Root;
use crate::time::Deadline;
use crate::tree::Tree;
use crate::value::ValueKind;

/// A paged collection at a key.
#[derive(Clone, Copy)]
pub(super) struct Paged {
    pub(super) leaves: Keyspace,
    pub(super) kind: ValueKind,
    pub(super) root: Root,
    /// When the key expires.
    pub(super) expiry: Option<Deadline>,
}

/// What becomes of a leaf, or of another node.
pub(super) enum Leaf {
    /// It has this value, by these operations if it was there before.
    Is {
        kind: ValueKind,
        value: Vec<u8>,
        operations: Option<Vec<u8>>,
    },
    Gone,
}

impl Paged {
    pub(super) fn shape(&self) -> Shape {
        self.kind.shape().expect("a type of collections")
    }

    /// As [`ValueKind::hashed`].
    pub(super) fn hashed_kind(&self) -> ValueKind {
        self.kind.hashed()
    }

    pub(super) fn hashed_shape(&self) -> Shape {
        self.hashed_kind().shape().expect("a type of collections")
    }

    /// The tree of a list, a sorted set or a stream.
    pub(super) fn tree(&self) -> Tree {
        self.root.tree.expect("roots of such types are checked when they are read")
    }
}

impl Leaf {
    /// One that is found by hash, made anew.
    pub(super) fn whole(paged: &Paged, value: Vec<u8>) -> Self {
        Self::Is { kind: paged.hashed_kind(), value, operations: None }
    }

    /// What it takes in memory until it is staged.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Is { value, operations, .. } => {
                (value.len() + operations.as_ref().map_or(0, Vec::len)) as u64
            }
            Self::Gone => 0,
        }
    }
}

/// What is paged is not as it must be.
pub(super) fn damaged(paged: &Paged, what: &str) -> Stop {
    let reason = format!("object {:016x}: {what}", paged.root.object);
    Stop::Damaged(StoreError::Damaged { segment: 0, offset: 0, reason })
}
