//! Values between text and what the server sends: parameters go as text, results come binary, which is all that the driver asks for.
//!
//! ```text
//!  bool  t f                       int2 int4 int8 oid  decimal           float4 float8  shortest that reads back, as the server writes it
//!  bytea \x and hexadecimal        uuid  8-4-4-4-12                      numeric  decimal, with as many places as it was stored with
//!  text varchar bpchar name json enums  as they are                      jsonb  as it is, behind a byte 1          void  empty
//! ```
//!
//! Types whose text depends on settings of the session (times, money), or that are made of others (arrays, rows), are not decoded:
//! `column::text` has the server do it.
//!
//! Invariants
//!   1. A value of these types reads as the server would send it as text (with `bytea_output = hex`); a test compares them.
//!   2. Bytes that are no value of their type are an error, never a panic: they come from outside.

use std::fmt::Write as _;

use bytes::BytesMut;
use tokio_postgres::types::{Format, FromSql, IsNull, Kind, ToSql, Type, to_sql_checked};

type Trouble = Box<dyn std::error::Error + Sync + Send>;

/// A parameter: its text, whatever the type; the server reads it.
#[derive(Debug)]
pub(super) struct Text<'a>(pub(super) Option<&'a [u8]>);

impl ToSql for Text<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Trouble> {
        let Some(text) = self.0 else { return Ok(IsNull::Yes) };
        out.extend_from_slice(text);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

/// A value as it came.
#[derive(Debug)]
pub(super) struct Raw<'a>(pub(super) Option<&'a [u8]>);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Trouble> {
        Ok(Self(Some(raw)))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Trouble> {
        Ok(Self(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Whether values of this type can be told as text.
pub(super) fn is_known(kind: &Type) -> bool {
    matches!(kind.kind(), Kind::Enum(_)) || KNOWN.contains(kind)
}

/// A value of a known type as text; `None`: these bytes are none.
pub(super) fn decode(kind: &Type, raw: &[u8]) -> Option<Vec<u8>> {
    Some(match *kind {
        Type::BOOL => if read::<1>(raw)? == [0] { "f" } else { "t" }.into(),
        Type::INT2 => i16::from_be_bytes(read(raw)?).to_string().into(),
        Type::INT4 => i32::from_be_bytes(read(raw)?).to_string().into(),
        Type::INT8 => i64::from_be_bytes(read(raw)?).to_string().into(),
        Type::OID => u32::from_be_bytes(read(raw)?).to_string().into(),
        Type::FLOAT4 => {
            let value = f32::from_be_bytes(read(raw)?);
            float(f64::from(value), &format!("{value:e}"), FLOAT4_DIGITS).into()
        }
        Type::FLOAT8 => {
            let value = f64::from_be_bytes(read(raw)?);
            float(value, &format!("{value:e}"), FLOAT8_DIGITS).into()
        }
        Type::NUMERIC => numeric(raw)?.into(),
        Type::BYTEA => format!("\\x{}", hex(raw)).into(),
        Type::UUID => {
            let all = hex(&read::<16>(raw)?);
            [&all[..8], &all[8..12], &all[12..16], &all[16..20], &all[20..]].join("-").into()
        }
        Type::JSONB => raw.strip_prefix(&[JSONB_VERSION])?.into(),
        _ => raw.into(),
    })
}

fn read<const N: usize>(raw: &[u8]) -> Option<[u8; N]> {
    raw.try_into().ok()
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    text
}

/// A float whose shortest digits are in `scientific` (`d.ddde-x`): with an exponent below 10^-4, and from 10^`digits` on.
fn float(value: f64, scientific: &str, digits: i32) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if value.is_infinite() {
        return format!("{sign}Infinity");
    }
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the format's exponent is a number");
    let ciphers: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    if value == 0.0 {
        format!("{sign}0")
    } else if !(EXPONENT_LEAST..digits).contains(&exponent) {
        let way = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{way}{:02}", exponent.unsigned_abs())
    } else if exponent < 0 {
        format!("{sign}0.{}{ciphers}", "0".repeat(exponent.unsigned_abs() as usize - 1))
    } else {
        let whole = exponent as usize + 1;
        let padded = format!("{ciphers:0<whole$}");
        let (whole, rest) = padded.split_at(whole);
        if rest.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest}") }
    }
}

/// `| digits u16 | weight i16 of the first | sign u16 | decimal places u16 | digits of base 10,000, u16 each |`, big-endian.
fn numeric(raw: &[u8]) -> Option<String> {
    let words: Vec<u16> =
        raw.chunks(2).map(|pair| Some(u16::from_be_bytes(read(pair)?))).collect::<Option<_>>()?;
    let (&[count, weight, sign, places], digits) = words.split_first_chunk::<4>()?;
    if digits.len() != usize::from(count) || digits.iter().any(|digit| *digit > 9_999) {
        return None;
    }
    let sign = match sign {
        0 => "",
        NUMERIC_NEGATIVE => "-",
        NUMERIC_NAN => return Some("NaN".to_owned()),
        NUMERIC_INFINITE => return Some("Infinity".to_owned()),
        NUMERIC_MINUS_INFINITE => return Some("-Infinity".to_owned()),
        _ => return None,
    };
    let weight = i32::from(weight as i16);
    let at = |place: i32| usize::try_from(place).ok().and_then(|at| digits.get(at)).copied().unwrap_or(0);
    let mut text = String::from(sign);
    if weight < 0 {
        text.push('0');
    }
    for place in 0..=weight {
        let digit = at(place);
        let written = if place == 0 { write!(text, "{digit}") } else { write!(text, "{digit:04}") };
        written.expect("a string takes everything");
    }
    let places = usize::from(places);
    if places > 0 {
        let groups = places.div_ceil(4) as i32;
        let mut rest = String::with_capacity(places + 4);
        for place in weight + 1..=weight + groups {
            write!(rest, "{:04}", at(place)).expect("a string takes everything");
        }
        text.push('.');
        text.push_str(&rest[..places]);
    }
    Some(text)
}

/// Types whose values are told as text, beside enums.
pub(super) const KNOWN: [Type; 19] = [
    Type::BOOL,
    Type::INT2,
    Type::INT4,
    Type::INT8,
    Type::OID,
    Type::FLOAT4,
    Type::FLOAT8,
    Type::NUMERIC,
    Type::TEXT,
    Type::VARCHAR,
    Type::BPCHAR,
    Type::NAME,
    Type::CHAR,
    Type::UNKNOWN,
    Type::JSON,
    Type::JSONB,
    Type::BYTEA,
    Type::UUID,
    Type::VOID,
];
const JSONB_VERSION: u8 = 1;
/// The server writes so many digits in front of the point.
const FLOAT4_DIGITS: i32 = 6;
const FLOAT8_DIGITS: i32 = 15;
const EXPONENT_LEAST: i32 = -4;
const NUMERIC_NEGATIVE: u16 = 0x4000;
const NUMERIC_NAN: u16 = 0xC000;
const NUMERIC_INFINITE: u16 = 0xD000;
const NUMERIC_MINUS_INFINITE: u16 = 0xF000;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(kind: &Type, raw: &[u8]) -> Option<String> {
        decode(kind, raw).map(|text| String::from_utf8(text).expect("text"))
    }

    #[test]
    fn float_reads_as_the_server_writes_it() {
        let all = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (123_456_789_012_345.0, "123456789012345"),
            (1e15, "1e+15"),
            (1.25e300, "1.25e+300"),
            (-2.5e-7, "-2.5e-07"),
            (100.25, "100.25"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ];
        for (value, expected) in all {
            assert_eq!(text(&Type::FLOAT8, &f64::to_be_bytes(value)).as_deref(), Some(expected));
        }
        assert_eq!(text(&Type::FLOAT4, &1e6_f32.to_be_bytes()).as_deref(), Some("1e+06"));
        assert_eq!(text(&Type::FLOAT4, &0.1_f32.to_be_bytes()).as_deref(), Some("0.1"));
    }

    #[test]
    fn numeric_keeps_its_places() {
        let value = |weight: i16, sign: u16, places: u16, digits: &[u16]| {
            let head = [digits.len() as u16, weight as u16, sign, places];
            let raw: Vec<u8> = head.iter().chain(digits).flat_map(|word| word.to_be_bytes()).collect();
            text(&Type::NUMERIC, &raw)
        };
        assert_eq!(value(0, 0, 0, &[]).as_deref(), Some("0"));
        assert_eq!(value(0, 0, 2, &[12, 3_400]).as_deref(), Some("12.34"));
        assert_eq!(value(1, NUMERIC_NEGATIVE, 0, &[1]).as_deref(), Some("-10000"));
        assert_eq!(value(-2, 0, 9, &[1]).as_deref(), Some("0.000000010"));
        assert_eq!(value(0, NUMERIC_NAN, 0, &[]).as_deref(), Some("NaN"));
        assert_eq!(value(0, 7, 0, &[]), None);
        assert_eq!(value(0, 0, 0, &[10_000]), None);
    }

    #[test]
    fn bytes_that_are_no_value_are_none() {
        for (kind, raw) in [
            (Type::INT4, &[1, 2, 3][..]),
            (Type::BOOL, &[]),
            (Type::UUID, &[0; 15]),
            (Type::JSONB, b"{}"),
            (Type::NUMERIC, &[0, 1, 0, 0, 0, 0, 0]),
            (Type::NUMERIC, &[0, 9, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(decode(&kind, raw), None, "{kind}");
        }
    }

    #[test]
    fn bytes_and_identifiers_are_hexadecimal() {
        assert_eq!(text(&Type::BYTEA, &[0, 255]).as_deref(), Some("\\x00ff"));
        assert_eq!(text(&Type::UUID, &[0xAB; 16]).as_deref(), Some("abababab-abab-abab-abab-abababababab"));
        assert_eq!(text(&Type::JSONB, b"\x01{}").as_deref(), Some("{}"));
    }
}
