//! Replies as a load generator sees them: one look at each byte of a line, none at a value's, nothing allocated.

use resp::DecodeError;

/// A reply, borrowed from the input.
#[derive(Debug, PartialEq)]
pub(crate) enum Reply<'a> {
    /// `+OK`.
    Ok,
    Integer(i64),
    Bulk(&'a [u8]),
    Null,
    /// Its text.
    Error(&'a [u8]),
    /// Anything else.
    Other,
}

/// What the input starts with.
#[derive(Debug, PartialEq)]
pub(crate) enum Parsed<'a> {
    /// A reply and its length.
    Whole(Reply<'a>, usize),
    /// Part of one; its length as far as it is known.
    Part(usize),
}

/// Looks at the reply that `input` starts with.
///
/// # Errors
/// It is none.
pub(crate) fn parse(input: &[u8]) -> Result<Parsed<'_>, DecodeError> {
    if input.starts_with(b"+OK\r\n") {
        return Ok(Parsed::Whole(Reply::Ok, 5));
    }
    let Some(&kind) = input.first() else { return Ok(Parsed::Part(0)) };
    if !matches!(kind, b':' | b'$' | b'-') {
        return Ok(match resp::skip_value(input)? {
            Some(length) => Parsed::Whole(Reply::Other, length),
            None => Parsed::Part(input.len() + 1),
        });
    }
    let Some(end) = memchr::memchr(b'\n', input) else { return Ok(Parsed::Part(0)) };
    let line = input[1..end].strip_suffix(b"\r").ok_or(DecodeError::MissingLineEnd)?;
    match kind {
        b'-' => Ok(Parsed::Whole(Reply::Error(line), end + 1)),
        b':' => Ok(Parsed::Whole(Reply::Integer(number(line)?), end + 1)),
        _ => bulk(input, number(line)?, end + 1),
    }
}

fn bulk(input: &[u8], length: i64, start: usize) -> Result<Parsed<'_>, DecodeError> {
    if length == -1 {
        return Ok(Parsed::Whole(Reply::Null, start));
    }
    Ok(match value_end(input, start, length)? {
        Ok(end) => Parsed::Whole(Reply::Bulk(&input[start..end]), end + 2),
        Err(known) => Parsed::Part(known),
    })
}

/// Where the value of `length` ends that begins at `start`, with CR LF behind it; how long the input must be if that is not all there.
pub(super) fn value_end(
    input: &[u8],
    start: usize,
    length: i64,
) -> Result<Result<usize, usize>, DecodeError> {
    let length = usize::try_from(length).ok().filter(|length| *length <= VALUE_BYTES_MAX);
    let end = start + length.ok_or(DecodeError::BadNumber)?;
    match input.get(end..end + 2) {
        None => Ok(Err(end + 2)),
        Some(b"\r\n") => Ok(Ok(end)),
        Some(_) => Err(DecodeError::MissingLineEnd),
    }
}

fn number(line: &[u8]) -> Result<i64, DecodeError> {
    resp::parse_i64(line).ok_or(DecodeError::BadNumber)
}

/// Longer values than any server takes.
const VALUE_BYTES_MAX: usize = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_reply_is_recognised_with_its_length() {
        for (input, reply) in [
            (&b"+OK\r\n"[..], Reply::Ok),
            (b":-12\r\n", Reply::Integer(-12)),
            (b"$3\r\na\r\n\r\n", Reply::Bulk(b"a\r\n")),
            (b"$-1\r\n", Reply::Null),
            (b"-ERR no\r\n", Reply::Error(b"ERR no")),
            (b"*2\r\n$1\r\na\r\n:1\r\n", Reply::Other),
            (b"+PONG\r\n", Reply::Other),
        ] {
            let followed = [input, b"+OK\r\n"].concat();
            assert_eq!(parse(&followed), Ok(Parsed::Whole(reply, input.len())), "{followed:?}");
            for cut in 0..input.len() {
                assert!(matches!(parse(&input[..cut]), Ok(Parsed::Part(_))), "{:?}", &input[..cut]);
            }
        }
    }

    #[test]
    fn part_of_a_value_says_how_much_is_to_come() {
        assert_eq!(parse(b"$1000\r\nabc"), Ok(Parsed::Part(1_009)));
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for input in [&b"HTTP/1.1 400\r\n"[..], b":x\r\n", b"$-2\r\n", b"$1\r\nabc", b"$99999999999\r\n"] {
            assert!(parse(input).is_err(), "{input:?}");
        }
    }
}
