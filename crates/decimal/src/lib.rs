//! Sums of decimal numbers, for INCRBYFLOAT and for components of topologies that add up: what the server adds and what a component adds has the same text.
//!
//! Redis adds in `long double` and prints 17 decimals without trailing zeros. Here numbers, with an exponent or without, are rounded to 17 decimals and added
//! exactly, which gives the same text wherever that type is exact enough (below 64), and the expected text (`3000.1`, not `3000.10000000000000009`) where it is
//! not. Below 10^20 that is a sum of two integers, above it one of `bigdecimal`. Numbers in hexadecimal digits, or with more than [`TEXT_BYTES_MAX`] bytes,
//! are added as `f64`.
//!
//! No number is beyond an `f64`'s range, whose largest has 309 digits.

use std::str::FromStr;

use bigdecimal::{BigDecimal, RoundingMode};

/// `a + b` as text. The outer `None`: one is no number; the inner: the sum is not finite.
#[must_use]
#[inline]
pub fn sum(a: &[u8], b: &[u8]) -> Option<Option<String>> {
    if let (Some(a), Some(b)) = (scaled(a), scaled(b))
        && let Some(sum) = a.checked_add(b)
    {
        return Some(Some(text(sum)));
    }
    let sum = float(a)? + float(b)?;
    let exact = || Some(large(a)? + large(b)?).map(|sum| trimmed(sum.to_plain_string()));
    Some(sum.is_finite().then(|| exact().unwrap_or_else(|| plain(sum))))
}

/// `a - b` in the same way.
#[must_use]
pub fn difference(a: &[u8], b: &[u8]) -> Option<Option<String>> {
    let opposite = match b {
        [b'-', rest @ ..] => [b"+", rest].concat(),
        [b'+', rest @ ..] => [b"-", rest].concat(),
        _ => [b"-", b].concat(),
    };
    sum(a, &opposite)
}

/// A number as `strtod` reads it, infinities included; `None` for all else, and for one that is so small that nothing is left of it.
#[must_use]
pub fn parse(text: &[u8]) -> Option<f64> {
    float(text).filter(|number| *number != 0.0 || is_zero(text))
}

/// As [`parse`]; what is too small is 0.
#[must_use]
pub fn parse_small(text: &[u8]) -> Option<f64> {
    float(text)
}

/// Whether a number, which is one, has no digit but 0.
fn is_zero(text: &[u8]) -> bool {
    let is_hexadecimal = text.iter().any(|byte| byte.eq_ignore_ascii_case(&b'x'));
    let ends = if is_hexadecimal { b'p' } else { b'e' };
    let mut digits = text.iter().take_while(|byte| !byte.eq_ignore_ascii_case(&ends));
    digits.all(|digit| matches!(digit, b'0' | b'.' | b'+' | b'-' | b'x' | b'X'))
}

/// `number` with as many decimals as [`sum`] gives.
#[must_use]
pub fn plain(number: f64) -> String {
    trimmed(format!("{number:.DECIMALS$}"))
}

/// The number, which is one, rounded to the decimals that count; `None` if it is not decimal, or has too many digits.
fn large(text: &[u8]) -> Option<BigDecimal> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= TEXT_BYTES_MAX)?;
    let number = BigDecimal::from_str(text).ok()?;
    Some(number.with_scale_round(DECIMALS as i64, RoundingMode::HalfUp))
}

/// The number in units of 10^-17, rounded to them, if it is decimal and fits.
fn scaled(text: &[u8]) -> Option<i128> {
    let (mantissa, exponent) = match text.iter().position(|byte| byte.eq_ignore_ascii_case(&b'e')) {
        Some(at) => (&text[..at], std::str::from_utf8(&text[at + 1..]).ok()?.parse::<i16>().ok()?),
        None => (text, 0),
    };
    let (negative, rest) = match mantissa {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, mantissa),
    };
    let point = rest.iter().position(|byte| *byte == b'.').unwrap_or(rest.len());
    let (whole, fraction) = (&rest[..point], rest.get(point + 1..).unwrap_or(&[]));
    if whole.len() + fraction.len() == 0 || whole.len() + fraction.len() > DIGITS_MAX {
        return None;
    }
    let mut number: i128 = 0;
    for byte in whole.iter().chain(fraction) {
        if !byte.is_ascii_digit() {
            return None;
        }
        number = number * 10 + i128::from(byte - b'0');
    }
    let number = shifted(number, i32::from(exponent) + DECIMALS as i32 - fraction.len() as i32)?;
    (number < SCALED_END).then_some(if negative { -number } else { number })
}

/// `number` times 10^`places`, rounded; `None` if that is too large.
fn shifted(number: i128, places: i32) -> Option<i128> {
    match places {
        _ if number == 0 => Some(0),
        0.. => number.checked_mul(10i128.checked_pow(places.unsigned_abs())?),
        _ => match 10i128.checked_pow(places.unsigned_abs()) {
            Some(unit) => Some((number + unit / 2) / unit),
            None => Some(0),
        },
    }
}

/// A number as `strtold` reads it; infinities are numbers, NaN is none.
fn float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let digits = if negative { digits } else { digits.strip_prefix('+').unwrap_or(digits) };
    if let Some(digits) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        return hexadecimal(digits).map(|number| if negative { -number } else { number });
    }
    if text.starts_with(|c: char| c.is_ascii_whitespace()) {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    let names_infinity = text.contains(['i', 'I']);
    (!number.is_nan() && (number.is_finite() || names_infinity)).then_some(number)
}

/// Hexadecimal digits with a point and, after `p`, the power of two: `1.8p1` is 3. Those beyond the sixteenth are none of
/// an `f64`'s.
fn hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, power) = match text.split_once(['p', 'P']) {
        Some((mantissa, power)) => (mantissa, power.parse::<i16>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.chars().chain(fraction.chars());
    digits().next()?;
    let (mut number, mut places) = (0_f64, i32::from(power) - 4 * i32::try_from(fraction.len()).ok()?);
    for digit in digits() {
        number = number * 16.0 + f64::from(digit.to_digit(16)?);
    }
    // Two steps: a power beyond the range may still meet a mantissa that brings it back.
    if places < -1_000 {
        number *= 2_f64.powi(-1_000);
        places += 1_000;
    }
    let number = number * 2_f64.powi(places);
    number.is_finite().then_some(number)
}

fn text(scaled: i128) -> String {
    let magnitude = scaled.unsigned_abs();
    let unit = 10u128.pow(DECIMALS as u32);
    let sign = if scaled < 0 { "-" } else { "" };
    trimmed(format!("{sign}{}.{:0width$}", magnitude / unit, magnitude % unit, width = DECIMALS))
}

fn trimmed(mut text: String) -> String {
    if text.contains('.') {
        let kept = text.trim_end_matches('0').trim_end_matches('.').len();
        text.truncate(kept);
    }
    if text == "-0" { "0".to_owned() } else { text }
}

/// Texts of numbers that are added exactly: the largest number with all decimals that count, and more.
pub const TEXT_BYTES_MAX: usize = 400;
/// Decimals that Redis prints.
const DECIMALS: usize = 17;
/// Digits of numbers that are added exactly: i128 holds 38, and rounding needs one.
const DIGITS_MAX: usize = 37;
/// 10^20 in units: larger ones are not added as integers.
const SCALED_END: i128 = 10i128.pow(20 + DECIMALS as u32);

#[cfg(test)]
mod tests {
    use super::*;

    fn added(a: &str, b: &str) -> Option<Option<String>> {
        sum(a.as_bytes(), b.as_bytes())
    }

    #[test]
    fn sums_read_as_people_expect() {
        for (a, b, expected) in [
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3", "1.1", "4.1"),
            ("0.1", "0.2", "0.3"),
            ("-1.5", "1.5", "0"),
            ("1000.1", "0.1", "1000.2"),
            (".5", "5.", "5.5"),
            ("+1", "-0", "1"),
            ("999999999999999999", "1", "1000000000000000000"),
            ("0.00000000000000001", "0", "0.00000000000000001"),
            ("3.0e3", "0.1", "3000.1"),
            ("1e-1", "0.2", "0.3"),
            ("10.5", "1E-3", "10.501"),
            ("1e+17", "0.1", "100000000000000000.1"),
            ("3.141592653589793238", "0", "3.14159265358979324"),
            ("-0.000000000000000005", "0", "-0.00000000000000001"),
            ("1e-400", "2", "2"),
            ("0e400", "2", "2"),
            ("12345678901234567", "0.5", "12345678901234567.5"),
            ("100000000000000000000", "0.1", "100000000000000000000.1"),
            ("-123456789012345678901234567890.5", "1", "-123456789012345678901234567889.5"),
            ("1e30", "-1", "999999999999999999999999999999"),
            ("1e25", "0.000000000000000005", "10000000000000000000000000.00000000000000001"),
            ("9007199254740992", "1", "9007199254740993"),
        ] {
            assert_eq!(added(a, b), Some(Some(expected.to_owned())), "{a} + {b}");
        }
    }

    #[test]
    fn hexadecimal_numbers_and_infinities_are_read_as_strtold_reads_them() {
        for (text, expected) in
            [("0x1p4", "16"), ("0x10", "16"), ("-0X.8", "-0.5"), ("+0x1.8p1", "3"), ("0x1P-1", "0.5")]
        {
            assert_eq!(added(text, "0"), Some(Some(expected.to_owned())), "{text}");
        }
        for text in ["0x", "0xg", "0x1p", "0x.", "0x1p1.5", "--0x1", "+-0x1", "0x1p2000"] {
            assert_eq!(added(text, "0"), None, "{text}");
        }
        for text in ["inf", "-INF", "+Infinity"] {
            assert_eq!(added(text, "0"), Some(None), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_told_from_what_is_not_finite() {
        for text in ["", " 1", "1 ", "abc", "nan", "-", ".", "1x", "1e400", "--1", "1e", "e1", "1e1.5"] {
            assert_eq!(added(text, "1"), None, "{text:?}");
        }
        assert_eq!(added("inf", "1"), Some(None));
        assert_eq!(added("1.7e308", "1.7e308"), Some(None));
    }
}
