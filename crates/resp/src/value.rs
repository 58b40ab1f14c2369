//! The client's side: requests out, replies in. For tests, load generators and the command line.
//!
//! Not tuned as the server's side is: values own their bytes. A load generator that only counts replies uses
//! [`skip_value`], which allocates nothing.

use crate::error::DecodeError;
use crate::number::parse_i64;

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `+`: a status.
    Simple(Vec<u8>),
    /// `-`: an error, its code included.
    Error(Vec<u8>),
    /// `:`: an integer.
    Integer(i64),
    /// `$`: a string of any bytes.
    Bulk(Vec<u8>),
    /// `$-1`, `*-1` or `_`: absent.
    Null,
    /// `*`: an array.
    Array(Vec<Value>),
    /// `%`: a map, in the order received.
    Map(Vec<(Value, Value)>),
    /// `~`: a set, in the order received.
    Set(Vec<Value>),
    /// `>`: data that answers no request.
    Push(Vec<Value>),
    /// `,`: a floating point number.
    Double(f64),
    /// `#`: true or false.
    Boolean(bool),
    /// `(`: an integer of any size, in decimal.
    BigNumber(Vec<u8>),
    /// `=`: text with a three-byte format.
    Verbatim {
        /// `txt` or `mkd`.
        format: [u8; 3],
        /// The text itself.
        text: Vec<u8>,
    },
}

/// Appends a request: an array of bulk strings.
pub fn encode_command<A: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[A]) {
    let mut writer = crate::Writer::new(out, false);
    writer.array(args.len());
    for arg in args {
        writer.bulk(arg.as_ref());
    }
}

/// Decodes the value that `input` starts with, and how many bytes it took; `None` when it has not all arrived.
///
/// # Errors
/// [`DecodeError`] for bytes that no server of either version sends.
pub fn decode_value(input: &[u8]) -> Result<Option<(Value, usize)>, DecodeError> {
    let mut reader = Reader { input, position: 0 };
    Ok(reader.value(0)?.map(|value| (value, reader.position)))
}

/// Length of the value that `input` starts with; `None` when it has not all arrived. Allocates nothing.
///
/// # Errors
/// [`DecodeError`], as [`decode_value`].
pub fn skip_value(input: &[u8]) -> Result<Option<usize>, DecodeError> {
    ValueEnd::default().find(input)
}

/// Finds the end of a value that arrives in pieces, and looks at what has arrived once: a value of `n` bytes costs `n`, in however many pieces it
/// comes. Only a line whose end is not there is looked at again. Allocates nothing.
#[derive(Debug)]
pub struct ValueEnd {
    /// Behind the parts that have all arrived.
    position: usize,
    /// Values that are to follow there.
    values_left: u64,
}

impl Default for ValueEnd {
    /// Of a value of which nothing has been seen.
    fn default() -> Self {
        Self { position: 0, values_left: 1 }
    }
}

impl ValueEnd {
    /// Length of the value that `input` starts with; `None` when it has not all arrived. `input` is what was given before, and what has come since.
    ///
    /// # Errors
    /// [`DecodeError`], as [`decode_value`].
    pub fn find(&mut self, input: &[u8]) -> Result<Option<usize>, DecodeError> {
        let mut reader = Reader { input, position: self.position };
        while self.values_left > 0 {
            let Some((kind, line)) = reader.line() else { return Ok(None) };
            let more = match kind {
                b'+' | b'-' | b':' | b',' | b'(' | b'_' | b'#' => 0,
                b'$' | b'=' => {
                    if let Some(len) = length(line)?
                        && reader.body(len)?.is_none()
                    {
                        return Ok(None);
                    }
                    0
                }
                b'*' | b'~' | b'>' => length(line)?.unwrap_or(0) as u64,
                b'%' => 2 * length(line)?.unwrap_or(0) as u64,
                other => return Err(DecodeError::UnknownType(other)),
            };
            self.position = reader.position;
            self.values_left = (self.values_left - 1).saturating_add(more);
        }
        Ok(Some(self.position))
    }
}

struct Reader<'a> {
    input: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Result<Option<Value>, DecodeError> {
        if depth > DEPTH_MAX {
            return Err(DecodeError::TooDeep(DEPTH_MAX));
        }
        let Some((kind, line)) = self.line() else { return Ok(None) };
        Ok(Some(match kind {
            b'+' => Value::Simple(line.to_vec()),
            b'-' => Value::Error(line.to_vec()),
            b':' => Value::Integer(parse_i64(line).ok_or(DecodeError::BadNumber)?),
            b',' => Value::Double(double(line)?),
            b'(' => Value::BigNumber(line.to_vec()),
            b'_' => Value::Null,
            b'#' => Value::Boolean(line == b"t"),
            b'$' | b'=' => return self.string(kind, line),
            b'*' | b'~' | b'>' => {
                let Some(len) = length(line)? else { return Ok(Some(Value::Null)) };
                let Some(items) = self.values(len, depth)? else { return Ok(None) };
                match kind {
                    b'*' => Value::Array(items),
                    b'~' => Value::Set(items),
                    _ => Value::Push(items),
                }
            }
            b'%' => {
                let Some(pairs) = length(line)? else { return Ok(Some(Value::Null)) };
                let count = pairs.checked_mul(2).ok_or(DecodeError::BadNumber)?;
                let Some(items) = self.values(count, depth)? else { return Ok(None) };
                Value::Map(paired(items))
            }
            other => return Err(DecodeError::UnknownType(other)),
        }))
    }

    fn string(&mut self, kind: u8, line: &[u8]) -> Result<Option<Value>, DecodeError> {
        let Some(len) = length(line)? else { return Ok(Some(Value::Null)) };
        let Some(body) = self.body(len)? else { return Ok(None) };
        if kind == b'$' {
            return Ok(Some(Value::Bulk(body.to_vec())));
        }
        match body {
            [a, b, c, b':', text @ ..] => {
                Ok(Some(Value::Verbatim { format: [*a, *b, *c], text: text.to_vec() }))
            }
            _ => Err(DecodeError::BadNumber),
        }
    }

    fn values(&mut self, count: usize, depth: usize) -> Result<Option<Vec<Value>>, DecodeError> {
        let mut values = Vec::new();
        for _ in 0..count {
            let Some(value) = self.value(depth + 1)? else { return Ok(None) };
            values.push(value);
        }
        Ok(Some(values))
    }

    /// The type byte and the rest of the line at the position; moves behind its end.
    fn line(&mut self) -> Option<(u8, &'a [u8])> {
        let rest = self.input.get(self.position..)?;
        let end = memchr::memmem::find(rest, b"\r\n")?;
        self.position += end + 2;
        match &rest[..end] {
            [] => Some((b'\r', &[])),
            [kind, line @ ..] => Some((*kind, line)),
        }
    }

    /// `len` bytes and their CR LF; moves behind them.
    fn body(&mut self, len: usize) -> Result<Option<&'a [u8]>, DecodeError> {
        let end = self.position.checked_add(len).ok_or(DecodeError::BadNumber)?;
        let Some(line_end) = end.checked_add(2).and_then(|line_end| self.input.get(end..line_end)) else {
            return Ok(None);
        };
        if line_end != b"\r\n" {
            return Err(DecodeError::MissingLineEnd);
        }
        let body = &self.input[self.position..end];
        self.position = end + 2;
        Ok(Some(body))
    }
}

/// A length; `None` for -1.
fn length(line: &[u8]) -> Result<Option<usize>, DecodeError> {
    match parse_i64(line) {
        Some(-1) => Ok(None),
        Some(len) if (0..LENGTH_MAX).contains(&len) => Ok(usize::try_from(len).ok()),
        _ => Err(DecodeError::BadNumber),
    }
}

fn double(line: &[u8]) -> Result<f64, DecodeError> {
    let text = std::str::from_utf8(line).map_err(|_| DecodeError::BadNumber)?;
    text.parse().map_err(|_| DecodeError::BadNumber)
}

fn paired(items: Vec<Value>) -> Vec<(Value, Value)> {
    let mut pairs = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        pairs.push((key, value));
    }
    pairs
}

/// Deepest nesting that is decoded.
const DEPTH_MAX: usize = 32;

/// Lengths from here on are nonsense; far below an overflow of sums.
const LENGTH_MAX: i64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        let mut out = Vec::new();
        encode_command(&mut out, &["SET", "k", "v"]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n");
    }

    #[test]
    fn arrays_in_arrays_are_bounded() {
        let deep = b"*1\r\n".repeat(100);
        assert_eq!(decode_value(&deep), Err(DecodeError::TooDeep(DEPTH_MAX)));
        assert_eq!(skip_value(&deep), Ok(None));
    }

    #[test]
    fn end_of_a_value_is_found_in_pieces_and_no_part_is_looked_at_twice() {
        let reply = b"*3\r\n$5\r\nab\r\nc\r\n%1\r\n+k\r\n:7\r\n*0\r\nnext";
        let mut end = ValueEnd::default();
        let mut seen = reply.to_vec();
        for have in 0..reply.len() - 4 {
            assert_eq!(end.find(&seen[..have]), Ok(None), "{have} bytes");
            // what it has passed may be anything now
            seen[..end.position].fill(b'?');
        }
        assert_eq!(end.find(&seen), Ok(Some(reply.len() - 4)));
        assert_eq!(end.find(&seen), Ok(Some(reply.len() - 4)));
    }

    #[test]
    fn announced_lengths_reserve_nothing() {
        for reply in ["*1000000000\r\n", "%500000000000\r\n", "$1000000000000\r\n"] {
            assert_eq!(decode_value(reply.as_bytes()), Ok(None));
            assert_eq!(skip_value(reply.as_bytes()), Ok(None));
        }
        for reply in ["*-2\r\n", "$9223372036854775807\r\n", "$x\r\n", ":1.5\r\n"] {
            assert_eq!(decode_value(reply.as_bytes()), Err(DecodeError::BadNumber), "{reply:?}");
        }
    }
}
