//! The closed set of value types, behind one seam: what a command puts in and what it finds.
//!
//! A type is a row of `record::KINDS`: its base image, and which small deltas lie on top.

use std::sync::Arc;

use journal::Seq;

use crate::large::Large;
use crate::record;
use collections::Deadline;

/// A value to store.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// Bytes; copied.
    String(&'a [u8]),
    /// Bytes that are held already, by [`crate::Store::large`] or by another key; shared.
    Large(&'a Arc<Large>),
    /// A whole collection of this type, as [`crate::Packed`] has it.
    Collection(ValueKind, &'a [u8]),
}

impl<'a> Value<'a> {
    /// Record kind of the base image.
    pub(crate) fn kind(self) -> u8 {
        match self {
            Self::String(_) | Self::Large(_) => record::STRING,
            Self::Collection(kind, _) => record::kind_of(kind),
        }
    }

    /// The base image.
    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Self::String(bytes) | Self::Collection(_, bytes) => bytes,
            Self::Large(large) => large.as_ref().as_ref(),
        }
    }
}

/// Type of a stored value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueKind {
    /// Bytes.
    String,
    /// Fields with values.
    Hash,
    /// Distinct members.
    Set,
    /// Values in an order of their own.
    List,
    /// Distinct members ordered by their scores.
    SortedSet,
    /// Entries ordered by their identifiers, and groups that read them.
    Stream,
}

impl ValueKind {
    /// The type whose base image has record kind `kind`.
    ///
    /// # Panics
    /// If `kind` is none of a base.
    pub(crate) fn of(kind: u8) -> Self {
        record::base(kind).expect("values have the kind of a base").value
    }

    /// The type of the leaves of a large collection of this type that are found by hash: those of a sorted set have the members' scores.
    pub(crate) fn hashed(self) -> Self {
        if self == Self::SortedSet { Self::Hash } else { self }
    }

    /// What TYPE answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash => "hash",
            Self::Set => "set",
            Self::List => "list",
            Self::SortedSet => "zset",
            Self::Stream => "stream",
        }
    }
}

/// A value as found, borrowed from the locked index or from what was fetched.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Its bytes.
    pub value: &'a [u8],
    /// The same bytes to keep beyond the access without a copy, if there are many.
    pub large: Option<&'a Arc<Large>>,
    /// Its type.
    pub kind: ValueKind,
    /// When it expires.
    pub expiry: Option<Deadline>,
    /// The effect that wrote it; 0 when this transaction did.
    pub seq: Seq,
}

/// What is known of a key without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Its type.
    pub kind: ValueKind,
    /// When it expires.
    pub expiry: Option<Deadline>,
    /// The effect that wrote it; 0 when this transaction did.
    pub seq: Seq,
    /// Bytes of the value.
    pub value_len: u64,
    /// Bytes in memory for key and value, 0 when cold.
    pub memory_bytes: u64,
}
