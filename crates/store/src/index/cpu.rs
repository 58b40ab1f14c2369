//! What the processor does and Rust has no word for: to fetch a cache line ahead, and to compare sixteen bytes at once.
//!
//! The intrinsics are unsafe; the functions around them are not: they take any address, and a whole chunk.
#![allow(unsafe_code, reason = "two instructions, on x86_64 alone; proofs beside each block")]

/// Fetches the cache line at `address`, if the processor feels like it.
#[inline]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
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
    // SAFETY: the load reads the 16 bytes of `chunk` and asks for no alignment; all four belong to SSE2, which every
    // x86_64 has.
    unsafe {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
        let chunk = _mm_loadu_si128(chunk.as_ptr().cast());
        _mm_movemask_epi8(_mm_cmpeq_epi8(chunk, _mm_set1_epi8(byte.cast_signed()))).cast_unsigned()
    }
    #[cfg(not(target_arch = "x86_64"))]
    equal_one_by_one(chunk, byte)
}

/// [`equal_bytes`] in plain Rust; LLVM does not find the one comparison in it.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn equal_one_by_one(chunk: &[u8; 16], byte: u8) -> u32 {
    chunk.iter().rev().fold(0, |mask, at| mask << 1 | u32::from(*at == byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_at_once_are_what_they_are_one_by_one() {
        proptest::proptest!(|(chunk in proptest::array::uniform16(0x7e_u8..0x82), byte in 0x7e_u8..0x82)| {
            proptest::prop_assert_eq!(equal_bytes(&chunk, byte), equal_one_by_one(&chunk, byte));
        });
    }
}
