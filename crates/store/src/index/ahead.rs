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

/// Bit i is set where byte i of `chunk` is `byte`.
#[inline]
pub(crate) fn equal_bytes(chunk: &[u8; 16], byte: u8) -> u32 {
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "one comparison instead of sixteen; LLVM does not find it")]
    // SAFETY: the load reads the 16 bytes of `chunk` and asks for no alignment; all four belong to SSE2, which every
    // x86_64 has.
    unsafe {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
        let chunk = _mm_loadu_si128(chunk.as_ptr().cast());
        _mm_movemask_epi8(_mm_cmpeq_epi8(chunk, _mm_set1_epi8(byte.cast_signed()))).cast_unsigned()
    }
    #[cfg(not(target_arch = "x86_64"))]
    chunk.iter().rev().fold(0, |mask, at| mask << 1 | u32::from(*at == byte))
}

impl Index {
    /// Brings near what a lookup of each key will read: at most [`AHEAD_KEYS_MAX`] of `keyspace` and hash.
    pub(crate) fn bring_near(&self, keys: &[(u32, KeyHash)]) {
        let mut guesses = [None; AHEAD_KEYS_MAX];
        let guesses = &mut guesses[..keys.len()];
        keys.iter().for_each(|(_, hash)| self.bring_stripe(hash.stripe()));
        for key in keys {
            self.with_table(key, |table, hash| table.bring_tags(hash));
        }
        for (key, guess) in keys.iter().zip(guesses.iter_mut()) {
            *guess = self.with_table(key, |table, hash| table.bring_slot(hash)).flatten();
        }
        for (key, guess) in keys.iter().zip(guesses) {
            if let Some(guess) = *guess {
                self.with_table(key, |table, hash| table.bring_object(hash, guess));
            }
        }
    }

    /// Calls `step` with the table of a key, unless there is none or somebody holds its stripe.
    fn with_table<R>(
        &self,
        &(keyspace, hash): &(u32, KeyHash),
        step: impl FnOnce(&Table, KeyHash) -> R,
    ) -> Option<R> {
        let stripe = self.try_lock(hash.stripe())?;
        stripe.space(keyspace).map(|space| step(&space.table, hash))
    }
}
