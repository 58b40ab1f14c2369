//! Inline requests: a line of words, for people with `nc` and for health checks.
//!
//! Words are split as Redis's `sdssplitargs` does:
//!
//! ```text
//! plain       ends at space, tab, CR, LF or NUL; a quote inside it opens a quoted part
//! "quoted"    \xHH, \n \r \t \b \a, any other \c is c; must be followed by white space or the end
//! 'quoted'    only \' is special; must be followed by white space or the end
//! ```
//!
//! A NUL ends the line: what follows up to the line end is dropped, as a C string does.

use crate::args::Args;
use crate::error::ProtocolError;
use crate::request::Limits;

/// Splits `line` (without its line end) into `args`: at most `limits.args_max` words.
pub(crate) fn split(line: &[u8], limits: &Limits, args: &mut Args) -> Result<(), ProtocolError> {
    let mut rest = until_nul(line);
    loop {
        rest = rest.trim_ascii_start_c();
        if rest.is_empty() {
            return Ok(());
        }
        let start = args.own_bytes().len();
        rest = word(rest, args.own_bytes())?;
        args.end_own(start);
        limits.checked_count(args.len())?;
    }
}

/// Appends the word that `rest` starts with to `out`; returns what follows it.
fn word<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        match rest {
            [] | [b' ' | b'\t' | b'\r' | b'\n', ..] => return Ok(rest),
            [b'"', tail @ ..] => return after_quote(double_quoted(tail, out)?),
            [b'\'', tail @ ..] => return after_quote(single_quoted(tail, out)?),
            [byte, tail @ ..] => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'"', tail @ ..] => return Ok(tail),
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.push(hex(*high) << 4 | hex(*low));
                rest = tail;
            }
            [b'\\', escaped, tail @ ..] => {
                out.push(unescaped(*escaped));
                rest = tail;
            }
            [byte, tail @ ..] => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\'', tail @ ..] => return Ok(tail),
            [b'\\', b'\'', tail @ ..] => {
                out.push(b'\'');
                rest = tail;
            }
            [byte, tail @ ..] => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
}

/// A closing quote ends its word: white space or nothing must follow.
fn after_quote(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest.first() {
        Some(byte) if !is_c_space(*byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

fn until_nul(line: &[u8]) -> &[u8] {
    memchr::memchr(0, line).map_or(line, |nul| &line[..nul])
}

/// C's `isspace` in the C locale; Rust's `is_ascii_whitespace` lacks the vertical tab.
fn is_c_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

trait TrimC {
    fn trim_ascii_start_c(&self) -> &Self;
}

impl TrimC for [u8] {
    fn trim_ascii_start_c(&self) -> &[u8] {
        let first = self.iter().position(|byte| !is_c_space(*byte)).unwrap_or(self.len());
        &self[first..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
        let mut args = Args::new();
        split(line, &Limits::REDIS, &mut args)?;
        Ok(args.view(&[]).iter().map(<[u8]>::to_vec).collect())
    }

    fn assert_words(line: &[u8], expected: &[&[u8]]) {
        assert_eq!(
            words(line).as_deref().ok(),
            Some(expected.iter().map(|w| w.to_vec()).collect::<Vec<_>>().as_slice())
        );
    }

    #[test]
    fn words_are_split_at_white_space() {
        assert_words(b"", &[]);
        assert_words(b" \t \x0b ", &[]);
        assert_words(b"  SET\tkey  value ", &[b"SET", b"key", b"value"]);
        assert_words(b"a\x0bb", &[b"a\x0bb"]);
    }

    #[test]
    fn quotes_hold_white_space_and_escapes() {
        assert_words(br#"SET "a b" "\x41\n\r\t\b\a\q\"" "#, &[b"SET", b"a b", b"A\n\r\t\x08\x07q\""]);
        assert_words(br#"SET 'a "b' '\'\n'"#, &[b"SET", br#"a "b"#, br"'\n"]);
        assert_words(br#""" ''"#, &[b"", b""]);
        assert_words(br#""\xzz""#, &[b"xzz"]);
        assert_words(br#"a"b c""#, &[b"ab c"]);
        assert_words(b"a\\n", &[b"a\\n"]);
    }

    #[test]
    fn a_quote_that_does_not_end_its_word_is_refused() {
        for line in [r#"""#, "'", r#"SET "a"#, r#"SET "a"b"#, "SET 'a'b", r#"SET "a\""#, r"SET 'a\'"] {
            assert_eq!(words(line.as_bytes()), Err(ProtocolError::UnbalancedQuotes), "{line}");
        }
    }

    #[test]
    fn a_nul_ends_the_line() {
        assert_words(b"PING\0 x", &[b"PING"]);
        assert_eq!(words(b"\"a\0\""), Err(ProtocolError::UnbalancedQuotes));
    }
}
