//! LEB128: numbers of 64 bits, seven bits a byte, the lowest first; the highest bit of a byte says that another follows.

use smallvec::SmallVec;

/// The bytes of `number`.
#[inline]
pub fn encode(mut number: u64) -> SmallVec<[u8; BYTES_MAX]> {
    let mut out = SmallVec::new();
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

/// Adds `number` to `out`.
pub fn put(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&encode(number));
}

/// Takes a number off the front of `bytes`; `None` if none is there.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Bytes of the largest number.
pub const BYTES_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_number_comes_back_and_no_part_of_it_does(number: u64) {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            let mut rest = &bytes[..];
            prop_assert_eq!((take(&mut rest), rest.len()), (Some(number), 0));
            prop_assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None);
        }
    }
}
