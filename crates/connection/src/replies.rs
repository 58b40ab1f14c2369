//! Replies out of the bytes of a connection, however they come.

use std::io::{self, Read};

use resp::{DecodeError, Value, ValueEnd};

/// What came and was not taken.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    input: Vec<u8>,
    /// Where the next reply begins.
    taken: usize,
    end: ValueEnd,
}

/// What is wrong with what came: nothing that follows can be read.
#[derive(Debug)]
pub(crate) enum Misfit {
    TooLong,
    Garbage(DecodeError),
}

impl Replies {
    /// One read; how many bytes came.
    pub(crate) fn read_from(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        self.input.drain(..self.taken);
        self.taken = 0;
        let have = self.input.len();
        // A long reply is read in pieces as long as what has come of it.
        self.input.resize(have + have.clamp(READ_BYTES_MIN, READ_BYTES_MAX), 0);
        let result = stream.read(&mut self.input[have..]);
        self.input.truncate(have + *result.as_ref().unwrap_or(&0));
        result
    }

    /// The next reply, if it has all come, and its length, which is to be at most `bytes_max`.
    pub(crate) fn next(&mut self, bytes_max: usize) -> Result<Option<(Value, usize)>, Misfit> {
        let input = &self.input[self.taken..];
        let length = self.end.find(input).map_err(Misfit::Garbage)?;
        if length.unwrap_or(input.len()) > bytes_max {
            return Err(Misfit::TooLong);
        }
        let Some(length) = length else { return Ok(None) };
        let value = resp::decode_value(&input[..length]).map_err(Misfit::Garbage)?;
        self.taken += length;
        self.end = ValueEnd::default();
        Ok(value)
    }
}

const READ_BYTES_MIN: usize = 64 << 10;
const READ_BYTES_MAX: usize = 16 << 20;
