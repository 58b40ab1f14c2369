//! The closed set of value types, behind one seam: what a command puts in and what it finds.
//!
//! A type is a record kind for its base image (`record`) plus, for collections, kinds for small deltas on top.
//! Strings are the only type that commands reach; the test collection takes the same road so that log,
//! cleaning, restart and simulation are ready for hashes, lists, sets, sorted sets and streams.

use std::sync::Arc;

use crate::large::Large;
use crate::record;
use crate::time::Deadline;

/// A value to store.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// Bytes; copied.
    String(&'a [u8]),
    /// Bytes that are held already, by [`crate::Store::large`] or by another key; shared.
    Large(&'a Arc<Large>),
}

impl<'a> Value<'a> {
    /// Record kind of the base image.
    pub(crate) fn kind(self) -> u8 {
        match self {
            Self::String(_) | Self::Large(_) => record::STRING,
        }
    }

    /// The base image.
    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Self::String(bytes) => bytes,
            Self::Large(large) => large.as_ref().as_ref(),
        }
    }
}

/// Type of a stored value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Bytes.
    String,
    /// A map of fields that only tests reach.
    TestCollection,
}

impl ValueKind {
    /// The type whose base image has record kind `kind`.
    pub(crate) fn of(kind: u8) -> Self {
        if kind == record::IMAGE { Self::TestCollection } else { Self::String }
    }

    /// What TYPE answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::TestCollection => "testcollection",
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
    pub seq: u64,
}

/// What is known of a key without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Its type.
    pub kind: ValueKind,
    /// When it expires.
    pub expiry: Option<Deadline>,
    /// The effect that wrote it; 0 when this transaction did.
    pub seq: u64,
    /// Bytes of the value.
    pub value_len: u64,
    /// Bytes in memory for key and value, 0 when cold.
    pub memory_bytes: u64,
}
