//! Sums of decimal numbers, for INCRBYFLOAT.
//!
//! Redis adds in `long double` and prints 17 decimals without trailing zeros. Here numbers of up to 20 digits
//! before and 17 after the point are added exactly, which gives the same text wherever that type is exact enough
//! (below 64), and the expected text (`1000.2`, not `1000.20000000000000001`) where it is not. Larger ones are added
//! as `f64`.

/// `a + b` as text. The outer `None`: one is no number; the inner: the sum is not finite.
pub(crate) fn sum(a: &[u8], b: &[u8]) -> Option<Option<String>> {
    if let (Some(a), Some(b)) = (scaled(a), scaled(b))
        && let Some(sum) = a.checked_add(b)
    {
        return Some(Some(text(sum)));
    }
    let (a, b) = (float(a)?, float(b)?);
    let sum = a + b;
    Some(sum.is_finite().then(|| trimmed(format!("{sum:.DECIMALS$}"))))
}

/// The number in units of 10^-17, if it is plain decimal and fits.
fn scaled(text: &[u8]) -> Option<i128> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let point = rest.iter().position(|byte| *byte == b'.').unwrap_or(rest.len());
    let (whole, fraction) = (&rest[..point], rest.get(point + 1..).unwrap_or(&[]));
    if whole.len() + fraction.len() == 0 || whole.len() > WHOLE_DIGITS_MAX || fraction.len() > DECIMALS {
        return None;
    }
    let mut number: i128 = 0;
    for byte in whole.iter().chain(fraction) {
        if !byte.is_ascii_digit() {
            return None;
        }
        number = number * 10 + i128::from(byte - b'0');
    }
    // At most 20 + 17 digits: below 10^37, and i128 holds 10^38.
    number *= 10i128.pow(u32::try_from(DECIMALS - fraction.len()).ok()?);
    Some(if negative { -number } else { number })
}

/// A number as `strtold` reads it, without hexadecimal ones; infinities are numbers, NaN is none.
fn float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    if text.starts_with(|c: char| c.is_ascii_whitespace()) {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    let names_infinity = text.contains(['i', 'I']);
    (!number.is_nan() && (number.is_finite() || names_infinity)).then_some(number)
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

/// Decimals that Redis prints.
const DECIMALS: usize = 17;
/// Digits before the point of numbers that are added exactly.
const WHOLE_DIGITS_MAX: usize = 20;

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
        ] {
            assert_eq!(added(a, b), Some(Some(expected.to_owned())), "{a} + {b}");
        }
    }

    #[test]
    fn what_is_no_number_is_told_from_what_is_not_finite() {
        for text in ["", " 1", "1 ", "abc", "nan", "-", ".", "1x", "1e400", "--1"] {
            assert_eq!(added(text, "1"), None, "{text:?}");
        }
        assert_eq!(added("inf", "1"), Some(None));
        assert_eq!(added("1.7e308", "1.7e308"), Some(None));
    }
}
