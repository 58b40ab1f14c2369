//! Foresight: brings what the next lookups will touch into the processor's cache, for many keys at once.
//!
//! A lookup is a chain of dependent reads (tags, slot, object), and with more keys than the cache holds
//! each of them waits for memory. One step of the chain for all keys of a pipeline, then the next step for all, lets
//! the waits of different keys overlap.
//!
//! Changes nothing and promises nothing: a stripe that somebody holds is passed by, and what moves in between was
//! fetched in vain.

use crate::hash::KeyHash;
use crate::index::Index;
use crate::index::table::Table;

/// Keys for which one round is made: about as many lines as a core has on their way at once.
pub(crate) const AHEAD_KEYS_MAX: usize = 16;

/// Fetches the cache line at `address`, if the processor feels like it.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "an instruction without effect on memory, whatever the address")]
    // SAFETY: PREFETCHT0 reads nothing that the program sees and does not fault, not even on an invalid address;
    // it belongs to SSE, which every x86_64 has.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

impl Index {
    /// Brings near what a lookup of each key will read: at most [`AHEAD_KEYS_MAX`] of `keyspace` and hash.
    pub(crate) fn bring_near(&self, keys: &[(u32, KeyHash)]) {
        debug_assert!(keys.len() <= AHEAD_KEYS_MAX, "{} keys ahead", keys.len());
        let steps: [fn(&Table, KeyHash); 3] = [Table::bring_tags, Table::bring_slot, Table::bring_object];
        for (_, hash) in keys {
            self.bring_stripe(hash.stripe());
        }
        for step in steps {
            for (keyspace, hash) in keys {
                if let Some(stripe) = self.try_lock(hash.stripe())
                    && let Some(space) = stripe.space(*keyspace)
                {
                    step(&space.table, *hash);
                }
            }
        }
    }
}
