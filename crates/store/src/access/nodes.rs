//! A paged collection as an access meets it: its root and keyspace, and what becomes of its leaves and nodes.

use journal::Keyspace;

use crate::error::{Stop, StoreError};
use crate::hash::KeyHash;
use crate::keyspaces::HIDDEN_DB;
use crate::packed::Shape;
use crate::paged::{LEAF_KEY_BYTES, Root};
use crate::time::Deadline;
use crate::tree::Tree;
use crate::value::ValueKind;

use super::overlay::{KeyPlace, Staged};

/// Key and hash of a leaf or other node.
pub(super) type NodePlace = ([u8; LEAF_KEY_BYTES], KeyHash);

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
    /// It is what is staged so: what was made with the state at hand. It was there before.
    Staged(Box<Staged>),
    Gone,
}

impl Paged {
    pub(super) fn shape(&self) -> Shape {
        self.kind.shape().expect("a type of collections")
    }

    /// Where a leaf or other node of it is staged.
    pub(super) fn key_place<'k>(&self, (key, hash): &'k NodePlace) -> KeyPlace<'k> {
        KeyPlace { db: HIDDEN_DB, keyspace: self.leaves, hash: *hash, key }
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

    /// Its value, if it is to be there.
    pub(super) fn value(&self) -> Option<&[u8]> {
        match self {
            Self::Is { value, .. } => Some(value),
            Self::Staged(staged) => Some(staged.object().view().value()),
            Self::Gone => None,
        }
    }

    /// By which operations it has become that; `None`: it is logged as a whole.
    pub(super) fn operations(&self) -> Option<&[u8]> {
        match self {
            Self::Is { operations, .. } => operations.as_deref(),
            Self::Staged(staged) => staged.change.operations(),
            Self::Gone => None,
        }
    }

    /// What it takes in memory until it is staged.
    pub(super) fn bytes(&self) -> u64 {
        let lengths = [self.value(), self.operations()].map(|bytes| bytes.map_or(0, <[u8]>::len));
        lengths.iter().sum::<usize>() as u64
    }
}

/// What is paged is not as it must be.
pub(super) fn damaged(paged: &Paged, what: &str) -> Stop {
    let reason = format!("object {:016x}: {what}", paged.root.object);
    Stop::Damaged(StoreError::Damaged { segment: 0, offset: 0, reason })
}
