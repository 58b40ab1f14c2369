//! Large values: held once and lent by count, so that whoever reads one copies nothing under a lock.
//!
//! ```text
//!  slot -> object -> Arc -> Large (bytes) <- Arc <- replies on their way, commands that fetched it
//! ```
//!
//! Invariants
//!   1. The bytes never change: a write makes another value.
//!   2. The ledger holds the bytes of every large value that anybody still holds, once each, however many do.
//!
//! Small values stay inside their object (`object`): a pointer and a count for each would cost more than the copy.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A value of at least 64 KiB.
pub struct Large {
    bytes: Box<[u8]>,
    ledger: Ledger,
}

impl Large {
    /// Fewer bytes are not shared.
    pub const BYTES_MIN: usize = LARGE_BYTES;

    /// Takes `bytes` into the ledger, without a copy.
    pub(crate) fn new(bytes: Box<[u8]>, ledger: &Ledger) -> Arc<Self> {
        ledger.add(bytes.len() as u64);
        Arc::new(Self { bytes, ledger: ledger.clone() })
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        self.ledger.take(self.bytes.len() as u64);
    }
}

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Large {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Large({} B)", self.bytes.len())
    }
}

/// Bytes of the large values that are alive, of values that commands have read from disk, and of what transactions stage
/// ([`Held`]).
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<AtomicU64>);

impl Ledger {
    /// Adds `bytes`.
    pub(crate) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes `bytes` out.
    pub(crate) fn take(&self, bytes: u64) {
        let before = self.0.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{bytes} B given back of {before}");
    }

    /// The sum.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bytes that stay counted in a ledger until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    ledger: Ledger,
    bytes: u64,
}

impl Held {
    /// Nothing held yet in `ledger`.
    pub(crate) fn new(ledger: &Ledger) -> Self {
        Self { ledger: ledger.clone(), bytes: 0 }
    }

    /// Bytes that are held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds `bytes` more.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.ledger.add(bytes);
        self.bytes += bytes;
    }

    /// Holds `bytes` less.
    pub(crate) fn take(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.bytes, "{bytes} B given back of {}", self.bytes);
        self.ledger.take(bytes);
        self.bytes -= bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.ledger.take(self.bytes);
    }
}

/// A value's bytes, by themselves or as part of a large value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bytes<'a> {
    Plain(&'a [u8]),
    Large(&'a Arc<Large>),
}

impl<'a> Bytes<'a> {
    /// `plain`, or the large value that was made of it.
    pub(crate) fn of(plain: &'a [u8], large: Option<&'a Arc<Large>>) -> Self {
        large.map_or(Self::Plain(plain), Self::Large)
    }

    /// The bytes.
    pub(crate) fn slice(self) -> &'a [u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Large(large) => &large.bytes,
        }
    }

    /// The large value, if it is one.
    pub(crate) fn large(self) -> Option<&'a Arc<Large>> {
        match self {
            Self::Plain(_) => None,
            Self::Large(large) => Some(large),
        }
    }
}

/// A value's bytes, owned.
#[derive(Clone, Debug)]
pub(crate) enum Owned {
    Plain(Box<[u8]>),
    Large(Arc<Large>),
}

impl Owned {
    /// The same bytes, shared from now on if there are many.
    pub(crate) fn shared(self, ledger: &Ledger) -> Self {
        match self {
            Self::Plain(bytes) if bytes.len() >= LARGE_BYTES => Self::Large(Large::new(bytes, ledger)),
            owned => owned,
        }
    }

    /// The bytes, borrowed.
    pub(crate) fn bytes(&self) -> Bytes<'_> {
        match self {
            Self::Plain(bytes) => Bytes::Plain(bytes),
            Self::Large(large) => Bytes::Large(large),
        }
    }
}

impl From<&[u8]> for Owned {
    fn from(bytes: &[u8]) -> Self {
        Self::Plain(bytes.into())
    }
}

impl Deref for Owned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes().slice()
    }
}

impl PartialEq for Owned {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Owned {}

/// Values of at least so many bytes are shared. To copy less takes a few microseconds, and that is what the lock of a
/// stripe may be held for; it is also where an object needs its wide header anyway.
pub(crate) const LARGE_BYTES: usize = 64 << 10;
