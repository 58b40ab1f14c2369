//! The keyed 128-bit hash of a key and how the index cuts it.
//!
//! SipHash-1-3 with 128 bits of output; its key is random for each data folder and stored there, so the
//! hash is stable for the life of the folder and nobody outside can aim collisions.
//!
//! ```text
//! | 8 bits stripe | 32 bits: directory and slot | 8 bits tag | 80 bits: only in footers |
//! ```
//!
//! The index tells keys apart by 48 bits: of 100 M keys, about 18 pairs share them and cost a read more.
//! SCAN's cursor is the top 40 bits, as a number below 2^40 ([`KeyHash::position`]). Out of scope: the hash decides nothing about
//! identity; equal bits make a candidate, and the key decides.

use std::hash::Hasher;

use journal::Keyspace;
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::keyspaces::{SWEPT_KEYSPACE, is_leaves};

/// Stripes of the index: independent locks chosen by the top bits of the hash.
pub(crate) const STRIPES: usize = 256;

/// Hashes keys; one for each data folder.
#[derive(Clone, Debug)]
pub(crate) struct KeyHasher {
    base: SipHasher13,
    mask: u128,
}

impl KeyHasher {
    /// A hasher with the folder's `key` that keeps only the top `bits` (1 to 128; tests cut it to 8).
    pub(crate) fn new(key: &[u8; 16], bits: u32) -> Self {
        assert!((1..=128).contains(&bits), "hash of {bits} bits");
        Self { base: SipHasher13::new_with_key(key), mask: u128::MAX << (128 - bits) }
    }

    /// The hash of `key`.
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let mut hasher = self.base;
        hasher.write(key);
        KeyHash(hasher.finish128().as_u128() & self.mask)
    }

    /// All bits of the hash of `bytes`, however few of them keys have.
    pub(crate) fn uncut(&self, bytes: &[u8]) -> u128 {
        let mut hasher = self.base;
        hasher.write(bytes);
        hasher.finish128().as_u128()
    }

    /// The hash of `key` in `keyspace`: leaves, and notes about them, are in the stripe that the first byte of their keys names.
    pub(crate) fn hash_in(&self, keyspace: Keyspace, key: &[u8]) -> KeyHash {
        let hash = self.hash(key);
        match key.first() {
            Some(stripe) if is_leaves(keyspace) || keyspace == SWEPT_KEYSPACE => {
                KeyHash(hash.0 & (u128::MAX >> 8) | u128::from(*stripe) << 120)
            }
            _ => hash,
        }
    }
}

/// 128 bits of a key's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyHash(pub(crate) u128);

impl KeyHash {
    /// Which stripe holds the key.
    pub(crate) fn stripe(self) -> usize {
        (self.0 >> 120) as usize
    }

    /// The 32 bits below the stripe's, left-aligned: the directory uses them from the top, the slot keeps them.
    pub(crate) fn bits(self) -> u64 {
        ((self.0 >> 56) as u64) & BITS_MASK
    }

    /// The 8 bits below those, kept beside the slot.
    pub(crate) fn tag(self) -> u8 {
        (self.0 >> 80) as u8
    }

    /// 16 bits that the index does not use.
    pub(crate) fn low_bits(self) -> u16 {
        self.0 as u16
    }

    /// Where SCAN meets the key, below 2^[`POSITION_BITS`].
    pub(crate) fn position(self) -> u64 {
        (self.0 >> (128 - POSITION_BITS)) as u64
    }

    /// The first hash at `position`.
    pub(crate) fn at_position(position: u64) -> Self {
        Self(u128::from(position) << (128 - POSITION_BITS))
    }

    /// Stripe, bits and tag: what an index slot can tell apart.
    pub(crate) fn slot(self) -> u64 {
        (self.0 >> 80) as u64
    }

    /// The hash as far as `slot` has it.
    pub(crate) fn of_slot(slot: u64) -> Self {
        Self(u128::from(slot) << 80)
    }

    /// The hash as far as stripe, slot and tag remember it.
    pub(crate) fn from_parts(stripe: usize, bits: u64, tag: u8) -> Self {
        Self((stripe as u128) << 120 | u128::from(bits) << 56 | u128::from(tag) << 80)
    }
}

/// Bits of stripe and slot.
pub(crate) const POSITION_BITS: u32 = 40;
/// What [`KeyHash::bits`] has.
pub(crate) const BITS_MASK: u64 = 0xffff_ffff_0000_0000;

/// Spreads words that nobody can choose: bits of a keyed hash, addresses in the log.
#[derive(Debug, Default)]
pub(crate) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("words are of 64 bits");
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_hash_put_it_together_again() {
        let hash = KeyHasher::new(&[7; 16], 48).hash(b"some key");
        assert_eq!(KeyHash::from_parts(hash.stripe(), hash.bits(), hash.tag()), hash);
        assert_eq!(hash.position(), (hash.0 >> 88) as u64);
        let at = KeyHash::at_position(hash.position());
        assert_eq!((at.stripe(), at.bits()), (hash.stripe(), hash.bits()));
    }

    #[test]
    fn hash_is_pinned_because_folders_depend_on_it() {
        let key: [u8; 16] = std::array::from_fn(|i| i as u8);
        let hash = KeyHasher::new(&key, 128).hash(b"evenkeel");
        assert_eq!(format!("{:032x}", hash.0), GOLDEN);
    }

    #[test]
    fn cut_hash_keeps_only_its_top_bits() {
        let hash = KeyHasher::new(&[0; 16], 8).hash(b"x");
        assert_eq!((hash.bits(), hash.tag()), (0, 0));
    }

    const GOLDEN: &str = "999c618bf73f72afbc37847f6f65a412";
}
