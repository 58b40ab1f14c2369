//! Which bit of some bytes is wrong whose CRC-32C does not hold, if it is one alone.
//!
//! A checksum is linear: the difference of what it is and what it must be depends only on which bits are wrong, not on the bytes. For one bit it
//! is a power of x by its distance from the end, and no two of these are equal for any length here. Damage of more bits looks like one wrong bit by chance,
//! once in 2^32 / 8n for n bytes: so it is asked of short records alone ([`LEN_MAX`]: less than once in 100,000).
//!
//! For salvage: nothing that runs or starts takes a record that was mended.

use super::crc32c;

/// Bytes that are mended, at most.
pub(crate) const LEN_MAX: usize = 4 << 10;
/// The polynomial of CRC-32C, lowest power first.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `bytes` with one bit changed so that their checksum is `wanted`; `None`: that takes more than one bit, or they are too long.
pub(crate) fn mended(bytes: &[u8], wanted: u32) -> Option<Vec<u8>> {
    if bytes.len() > LEN_MAX {
        return None;
    }
    let difference = crc32c(bytes) ^ wanted;
    // what the last bit of all makes of a checksum, then the one before it, and so on
    let mut made = 1;
    for at in (0..bytes.len()).rev() {
        for bit in (0..8).rev() {
            made = (made >> 1) ^ if made & 1 == 1 { POLYNOMIAL } else { 0 };
            if made == difference {
                let mut bytes = bytes.to_vec();
                bytes[at] ^= 1 << bit;
                return Some(bytes);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_one_wrong_bit_is_found_and_two_are_not() {
        let good: Vec<u8> = (0..300_u32).map(|at| (at * 31) as u8).collect();
        let sum = crc32c(&good);
        for at in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[at / 8] ^= 1 << (at % 8);
            assert_eq!(mended(&bad, sum).as_ref(), Some(&good), "bit {at}");
            let other = (at * 7 + 13) % (good.len() * 8);
            bad[other / 8] ^= 1 << (other % 8);
            assert_eq!(mended(&bad, sum), None, "bits {at} and {other}");
        }
        assert_eq!(mended(&[], sum), None);
        assert_eq!(mended(&vec![0; LEN_MAX + 1], 0), None);
    }
}
