//! Numbers below 2^32 in one to five bytes, seven bits each, lowest first (LEB128).
//!
//! The shortest form is the only one: a last byte of zero is refused, so that equal values have equal bytes.

/// Most bytes that a number takes.
pub(super) const VARINT_BYTES_MAX: usize = 5;

/// Writes `value` at the start of `into`; returns how many bytes it took.
#[inline]
pub(super) fn encode(mut value: u32, into: &mut [u8; VARINT_BYTES_MAX]) -> usize {
    let mut count = 0;
    while value >= 0x80 {
        into[count] = value as u8 | 0x80;
        value >>= 7;
        count += 1;
    }
    into[count] = value as u8;
    count + 1
}

/// The number at the start of `bytes`, and how many bytes it took; `None` if it is cut, too large or longer than it has to be.
#[inline]
pub(super) fn decode(bytes: &[u8]) -> Option<(u32, usize)> {
    match *bytes.first()? {
        short @ 0..0x80 => Some((u32::from(short), 1)),
        _ => decode_long(bytes),
    }
}

fn decode_long(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        value |= u64::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            let is_shortest = *byte != 0 || index == 0;
            return u32::try_from(value).ok().filter(|_| is_shortest).map(|value| (value, index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(value: u32) -> Vec<u8> {
        let mut bytes = [0; VARINT_BYTES_MAX];
        let count = encode(value, &mut bytes);
        bytes[..count].to_vec()
    }

    #[test]
    fn edges_have_their_known_bytes() {
        let known: [(u32, &[u8]); 6] = [
            (0, &[0]),
            (127, &[0x7F]),
            (128, &[0x80, 1]),
            (16_383, &[0xFF, 0x7F]),
            (16_384, &[0x80, 0x80, 1]),
            (u32::MAX, &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F]),
        ];
        for (value, bytes) in known {
            assert_eq!(encoded(value), bytes);
            assert_eq!(decode(bytes), Some((value, bytes.len())));
        }
    }

    #[test]
    fn cut_overlong_and_too_large_numbers_are_refused() {
        let refused: [&[u8]; 6] = [
            &[],
            &[0x80],
            &[0x80, 0],
            &[0xFF, 0xFF, 0xFF, 0xFF, 0x1F],
            &[0x80, 0x80, 0x80, 0x80, 0x80, 1],
            &[0xFF; 5],
        ];
        for bytes in refused {
            assert_eq!(decode(bytes), None, "{bytes:02x?}");
        }
    }

    proptest! {
        #[test]
        fn every_number_comes_back_whatever_follows(value: u32, rest: Vec<u8>) {
            let mut bytes = encoded(value);
            let count = bytes.len();
            bytes.extend(rest);
            prop_assert_eq!(decode(&bytes), Some((value, count)));
        }

        #[test]
        fn what_decodes_encodes_to_the_same_bytes(bytes: Vec<u8>) {
            if let Some((value, count)) = decode(&bytes) {
                prop_assert_eq!(encoded(value), &bytes[..count]);
            }
        }
    }
}
