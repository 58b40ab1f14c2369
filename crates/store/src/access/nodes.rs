//! A paged collection as an access meets it: its root and keyspace, and what becomes of its leaves and nodes.

use std::cell::{OnceCell, RefCell};
use std::ops::{Deref, Range};

use journal::Keyspace;
use smallvec::SmallVec;

use crate::error::{Stop, StoreError};
use crate::hash::KeyHash;
use crate::index::table::Spot;
use crate::keyspaces::HIDDEN_DB;
use crate::value::ValueKind;
use collections::root::{LEAF_KEY_BYTES, Root};
use collections::tree::Tree;
use collections::{Deadline, Shape};

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
    /// Where the root is in memory, if it may be overwritten there.
    pub(super) spot: Option<Spot>,
    /// Whether it may have its totals changed without being written whole.
    pub(super) takes_totals: bool,
}

/// A leaf of a large collection that becomes another value by `operations`, while nothing else is to be thought of: it was there before, and is neither split, put
/// together with another, nor removed.
pub(super) struct LeafChange {
    /// Of its key.
    pub(super) number: u32,
    pub(super) place: NodePlace,
    pub(super) kind: u8,
    /// Where it is in memory, if it may be overwritten there.
    pub(super) spot: Option<Spot>,
    pub(super) value: LeafValue,
    pub(super) operations: Vec<u8>,
    /// Whether it is logged by its operations.
    pub(super) is_delta: bool,
}

/// What a leaf becomes.
pub(super) enum LeafValue {
    Whole(Buffer),
    /// As it was, but for some bytes.
    Patched(Patched),
}

/// A leaf that stays as long as it was, with other bytes in one place. The rest of it is not even read, unless somebody asks for the whole
/// ([`Access::leaf_value`](super::Access::leaf_value)).
pub(super) struct Patched {
    pub(super) len: usize,
    /// Where the other bytes are.
    pub(super) from: usize,
    /// Where they lie in the operations.
    pub(super) patch: Range<usize>,
    pub(super) whole: OnceCell<Buffer>,
}

impl Patched {
    /// Writes the other bytes into the value.
    pub(super) fn write(&self, operations: &[u8], value: &mut [u8]) {
        value[self.from..][..self.patch.len()].copy_from_slice(&operations[self.patch.clone()]);
    }
}

/// Leaves that change so; of most commands one, or two.
pub(super) type LeafChanges = SmallVec<[LeafChange; 2]>;

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

impl LeafChange {
    /// Bytes of the value that it will have.
    pub(super) fn len(&self) -> usize {
        match &self.value {
            LeafValue::Whole(value) => value.len(),
            LeafValue::Patched(patched) => patched.len,
        }
    }

    /// What it takes in memory until it is staged, at most.
    pub(super) fn bytes(&self) -> u64 {
        (self.len() + self.operations.len()) as u64
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

/// Where a node of a tree is in memory.
#[derive(Clone, Copy)]
pub(super) struct NodeSpot {
    pub(super) object: u64,
    pub(super) number: u32,
    pub(super) hash: KeyHash,
    pub(super) spot: Spot,
}

/// The first nodes that reads of an access found: they look up the same ones again and again, and find them by these without hash and search. Who uses one
/// compares the key that is there.
#[derive(Default)]
pub(super) struct NodeSpots(RefCell<Vec<NodeSpot>>);

impl NodeSpots {
    pub(super) fn find(&self, object: u64, number: u32) -> Option<NodeSpot> {
        self.0.borrow().iter().find(|node| node.number == number && node.object == object).copied()
    }

    pub(super) fn add(&self, node: NodeSpot) {
        let mut all = self.0.borrow_mut();
        if all.capacity() == 0 {
            all.reserve_exact(NODE_SPOTS_MAX);
        }
        if all.len() < NODE_SPOTS_MAX {
            all.push(node);
        }
    }
}

/// What is paged is not as it must be.
pub(super) fn damaged(paged: &Paged, what: &str) -> Stop {
    let reason = format!("object {:016x}: {what}", paged.root.object);
    Stop::Damaged(StoreError::Damaged { segment: 0, offset: 0, reason })
}

/// Bytes on the heap, whose room is kept for the next ones of this thread.
pub(super) struct Buffer(Vec<u8>);

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

impl Buffer {
    /// So many bytes of whatever content, which `fill` writes over.
    pub(super) fn filled(len: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        let mut bytes = BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_default();
        bytes.resize(len, 0);
        fill(&mut bytes);
        Self(bytes)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.0.capacity() > BUFFER_BYTES_MAX {
            return;
        }
        let bytes = std::mem::take(&mut self.0);
        // a thread that ends keeps none
        _ = BUFFERS.try_with(|buffers| {
            let mut buffers = buffers.borrow_mut();
            if buffers.len() < BUFFERS_MAX {
                buffers.push(bytes);
            }
        });
    }
}

/// As many nodes as a reader of a stream's group looks at.
const NODE_SPOTS_MAX: usize = 16;
/// Buffers that a thread keeps, at most, and bytes of each: as many as a series changes leaves.
const BUFFERS_MAX: usize = 48;
const BUFFER_BYTES_MAX: usize = 8 << 10;
