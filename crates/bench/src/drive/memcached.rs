//! Replies of memcached's text protocol, told in the terms of Redis's; requests are in `work`.
//!
//! | reply | stands for |
//! |---|---|
//! | `STORED` | OK |
//! | `DELETED`, `NOT_FOUND` | 1 or 0 keys removed |
//! | `VALUE key flags bytes`, the value, `END` | a value |
//! | `END` alone | no value |
//! | `ERROR`, `CLIENT_ERROR why`, `SERVER_ERROR why` | an error |
//!
//! Each line, and each value, ends with CR LF. Out of scope: the binary and the meta protocol, authentication.

use std::ops::Range;

use resp::DecodeError;

use super::reply::{Parsed, Reply, value_end};

/// Looks at the reply that `input` starts with.
///
/// # Errors
/// It is none.
pub(crate) fn parse(input: &[u8]) -> Result<Parsed<'_>, DecodeError> {
    let Some((line, start)) = line_at(input, 0)? else { return Ok(Parsed::Part(0)) };
    let reply = match line {
        b"STORED" => Reply::Ok,
        b"DELETED" => Reply::Integer(1),
        b"NOT_FOUND" => Reply::Integer(0),
        b"END" => Reply::Null,
        _ if line.starts_with(b"VALUE ") => return values(input),
        _ if is_error(line) => Reply::Error(line),
        _ => return Err(DecodeError::UnknownType(input[0])),
    };
    Ok(Parsed::Whole(reply, start))
}

/// Values until `END`: one is what a GET asks for, several answer an MGET.
fn values(input: &[u8]) -> Result<Parsed<'_>, DecodeError> {
    let mut at = 0;
    let mut first: Option<Range<usize>> = None;
    let mut count = 0;
    loop {
        let Some((line, start)) = line_at(input, at)? else { return Ok(Parsed::Part(0)) };
        if line == b"END" {
            let one = first.filter(|_| count == 1);
            let reply = one.map_or(Reply::Other, |value| Reply::Bulk(&input[value]));
            return Ok(Parsed::Whole(reply, start));
        }
        let length = line.strip_prefix(b"VALUE ").and_then(|rest| rest.split(|byte| *byte == b' ').nth(2));
        let length = length.and_then(resp::parse_i64).ok_or(DecodeError::BadNumber)?;
        let end = match value_end(input, start, length)? {
            Ok(end) => end,
            Err(known) => return Ok(Parsed::Part(known + b"END\r\n".len())),
        };
        first.get_or_insert(start..end);
        count += 1;
        at = end + 2;
    }
}

/// The line that begins at `at`, without its end, and where the next one begins.
fn line_at(input: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, DecodeError> {
    let Some(length) = memchr::memchr(b'\n', &input[at..]) else { return Ok(None) };
    let line = input[at..at + length].strip_suffix(b"\r").ok_or(DecodeError::MissingLineEnd)?;
    Ok(Some((line, at + length + 1)))
}

fn is_error(line: &[u8]) -> bool {
    let begins = |with: &[u8]| line.starts_with(with);
    line == b"ERROR" || begins(b"CLIENT_ERROR") || begins(b"SERVER_ERROR")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_reply_is_recognised_with_its_length() {
        for (input, reply) in [
            (&b"STORED\r\n"[..], Reply::Ok),
            (b"DELETED\r\n", Reply::Integer(1)),
            (b"NOT_FOUND\r\n", Reply::Integer(0)),
            (b"END\r\n", Reply::Null),
            (b"VALUE k 0 6\r\na\r\nEND\r\nEND\r\n", Reply::Bulk(b"a\r\nEND")),
            (b"VALUE k 0 0\r\n\r\nEND\r\n", Reply::Bulk(b"")),
            (b"VALUE a 0 1\r\n1\r\nVALUE b 0 1\r\n2\r\nEND\r\n", Reply::Other),
            (b"SERVER_ERROR out of memory\r\n", Reply::Error(b"SERVER_ERROR out of memory")),
            (b"ERROR\r\n", Reply::Error(b"ERROR")),
        ] {
            let followed = [input, b"STORED\r\n"].concat();
            assert_eq!(parse(&followed), Ok(Parsed::Whole(reply, input.len())), "{followed:?}");
            for cut in 0..input.len() {
                assert!(matches!(parse(&input[..cut]), Ok(Parsed::Part(_))), "{:?}", &input[..cut]);
            }
        }
    }

    #[test]
    fn part_of_a_value_says_how_much_is_to_come() {
        assert_eq!(parse(b"VALUE k 0 1000\r\nabc"), Ok(Parsed::Part(16 + 1_000 + 2 + 5)));
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for input in [
            &b"+OK\r\n"[..],
            b"\r\n",
            b"STORED\n",
            b"VALUE k 0\r\n",
            b"VALUE k 0 -1\r\n",
            b"VALUE k 0 99999999999\r\n",
            b"VALUE k 0 1\r\nabc",
            b"VALUE k 0 1\r\na\r\nSTORED\r\n",
        ] {
            assert!(parse(input).is_err(), "{input:?}");
        }
    }
}
