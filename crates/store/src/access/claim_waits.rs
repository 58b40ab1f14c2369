//! Who waits for keys that long commands have claimed: until one of these ends.

use std::sync::atomic::AtomicU64;
use std::sync::{Condvar, Mutex};

/// Who waits for claims of others, and how often.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// How many have ended.
    pub(super) ended: Mutex<u64>,
    pub(super) changed: Condvar,
    pub(super) begun: AtomicU64,
    pub(super) waits: AtomicU64,
}

/// Long commands so far, and how often one or another command waited for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimReport {
    /// Claims that were made.
    pub claims: u64,
    /// Commands that were held back because a key of theirs was claimed; each look again counts.
    pub waits: u64,
}
