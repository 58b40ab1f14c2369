//! Numbers of Lua as text: as `printf` of C writes them with `%.17g` and `%.14g`, which clients have come to rely on.

use mlua::Value;

/// `number` with `digits` significant digits, without zeroes at the end.
pub(crate) fn general(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let digits = digits.max(1);
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    if (-4..i32::try_from(digits).unwrap_or(i32::MAX)).contains(&exponent) {
        let behind = usize::try_from(i32::try_from(digits).unwrap_or(i32::MAX) - 1 - exponent).unwrap_or(0);
        return shortest(&format!("{number:.behind$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", shortest(mantissa), exponent.abs())
}

/// `text` without zeroes behind the point.
fn shortest(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// The number that `value` is; strings are none.
pub(crate) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// `number` cut to an integer as C does on the processors that Redis runs on: what does not fit becomes the smallest.
pub(crate) fn truncated(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}

/// The integer that `number` is, if it is one.
pub(crate) fn integer(number: f64) -> Option<i64> {
    let whole = truncated(number);
    (whole as f64 == number && number.is_finite()).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_format_is_that_of_c() {
        let cases = [
            (0.0, 17, "0"),
            (3.3, 17, "3.2999999999999998"),
            (0.1, 14, "0.1"),
            (1e15, 14, "1e+15"),
            (123_456_789_012_345_680.0, 14, "1.2345678901235e+17"),
            (1e14, 14, "1e+14"),
            (99_999_999_999_999.0, 14, "99999999999999"),
            (0.0001, 14, "0.0001"),
            (0.00001, 14, "1e-05"),
            (-2.5, 14, "-2.5"),
            (1e300, 17, "1.0000000000000001e+300"),
            (100.0, 17, "100"),
            (f64::INFINITY, 14, "inf"),
        ];
        for (number, digits, text) in cases {
            assert_eq!(general(number, digits), text);
        }
    }

    #[test]
    fn integers_are_cut_as_by_c() {
        assert_eq!(truncated(3.99), 3);
        assert_eq!(truncated(-3.99), -3);
        assert_eq!(truncated(1e20), i64::MIN);
        assert_eq!(truncated(f64::NAN), i64::MIN);
        assert_eq!(integer(2.0), Some(2));
        assert_eq!(integer(2.5), None);
    }
}
