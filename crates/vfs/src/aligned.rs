//! A byte buffer that starts at a block boundary, as `O_DIRECT` asks.
//!
//! Allocates one block more than asked and starts at the first boundary inside: no `unsafe`, at the
//! price of at most 4 KiB.

use std::ops::{Deref, DerefMut};

use crate::BLOCK_SIZE_BYTES;

/// A fixed-size buffer whose address is a multiple of [`BLOCK_SIZE_BYTES`].
pub struct AlignedBuffer {
    storage: Vec<u8>,
    start: usize,
    size_bytes: usize,
}

impl AlignedBuffer {
    /// `size_bytes` zeroes.
    ///
    /// # Panics
    /// If the allocator refuses the memory.
    #[must_use]
    pub fn zeroed(size_bytes: usize) -> Self {
        let storage = vec![0_u8; size_bytes + BLOCK_SIZE_BYTES];
        let start = storage.as_ptr().align_offset(BLOCK_SIZE_BYTES);
        assert!(start < BLOCK_SIZE_BYTES, "a byte pointer always reaches the next boundary");
        Self { storage, start, size_bytes }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.size_bytes]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + self.size_bytes]
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlignedBuffer").field("size_bytes", &self.size_bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_starts_at_a_block_boundary() {
        for size_bytes in [0, 1, 512, BLOCK_SIZE_BYTES, 3 * BLOCK_SIZE_BYTES + 7] {
            let buffer = AlignedBuffer::zeroed(size_bytes);
            assert_eq!(buffer.as_ptr() as usize % BLOCK_SIZE_BYTES, 0);
            assert_eq!(buffer.len(), size_bytes);
        }
    }
}
