//! Integers as the protocol and the commands of Redis accept them: strict, and without overflow.

/// Parses a decimal `i64` as Redis does; `None` for everything that is not exactly one.
///
/// No sign but `-`, no spaces, no leading zeros, no `-0`, nothing outside of the 64 bits.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] => return if negative { None } else { Some(0) },
        [b'1'..=b'9', ..] if digits.len() <= DIGITS_MAX => {}
        _ => return None,
    }
    let mut magnitude: u64 = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // 19 digits stay below 10^19 < 2^64: no overflow here.
        magnitude = magnitude * 10 + u64::from(digit);
    }
    if negative {
        (magnitude <= i64::MIN.unsigned_abs()).then(|| magnitude.wrapping_neg().cast_signed())
    } else {
        i64::try_from(magnitude).ok()
    }
}

/// Digits of `i64::MIN` and `i64::MAX`.
const DIGITS_MAX: usize = 19;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_integer_on_an_edge_survives_text_and_back() {
        let edges = [
            0,
            1,
            -1,
            9,
            10,
            i64::from(i32::MAX),
            i64::from(i32::MIN),
            1 << 31,
            1 << 32,
            i64::MAX,
            i64::MIN,
            i64::MIN + 1,
        ];
        for number in edges {
            assert_eq!(parse_i64(number.to_string().as_bytes()), Some(number));
        }
    }

    #[test]
    fn what_redis_refuses_is_refused() {
        let refused = [
            "",
            "-",
            "+1",
            " 1",
            "1 ",
            "01",
            "-0",
            "00",
            "1x",
            "x",
            "--1",
            "0x10",
            "1.0",
            "-01",
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551616",
            "99999999999999999999",
            "9999999999999999999",
            "1\0",
        ];
        for text in refused {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
    }
}
