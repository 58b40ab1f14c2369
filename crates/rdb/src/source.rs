//! Bytes that are read once, with their offset and checksum: numbers, lengths and strings.

use std::io::{ErrorKind, Read};

use crate::error::{Error, Problem};
use crate::{Limits, lzf};

/// What is read from.
pub(crate) struct Source<R> {
    input: R,
    buffer: Vec<u8>,
    /// How many bytes of the buffer were taken, and how many of those are in the checksum.
    taken: usize,
    digested: usize,
    /// Bytes before the buffer.
    before: u64,
    digest: Option<crc_fast::Digest>,
    pub(crate) limits: Limits,
}

/// A length, or the form of a string that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Plain(u64),
    Form(u8),
}

impl<R: Read> Source<R> {
    pub(crate) fn new(input: R, limits: Limits) -> Self {
        Self { input, buffer: Vec::new(), taken: 0, digested: 0, before: 0, digest: None, limits }
    }

    /// Has the checksum of what is read from now on.
    pub(crate) fn with_checksum(mut self) -> Self {
        self.digest = Some(crc_fast::Digest::new(crate::ALGORITHM));
        self
    }

    pub(crate) fn offset(&self) -> u64 {
        self.before + self.taken as u64
    }

    pub(crate) fn fail<T>(&self, problem: Problem) -> Result<T, Error> {
        Err(Error { offset: self.offset(), problem })
    }

    pub(crate) fn damaged<T>(&self, what: &'static str) -> Result<T, Error> {
        self.fail(Problem::Damaged(what))
    }

    /// The checksum of what was taken.
    pub(crate) fn checksum(&mut self) -> u64 {
        self.digest_taken();
        self.digest.as_ref().map_or(0, |digest| digest.clone().finalize())
    }

    /// What it reads from, and bytes that were read and not taken.
    pub(crate) fn into_parts(mut self) -> (R, Vec<u8>) {
        self.buffer.drain(..self.taken);
        (self.input, self.buffer)
    }

    fn digest_taken(&mut self) {
        if let Some(digest) = &mut self.digest {
            digest.update(&self.buffer[self.digested..self.taken]);
        }
        self.digested = self.taken;
    }

    /// Reads until `count` bytes can be taken, which are at most as many as the buffer has.
    fn fill(&mut self, count: usize) -> Result<(), Error> {
        debug_assert!(count <= BUFFER_BYTES, "{count} B are read in pieces");
        if self.buffer.len() - self.taken >= count {
            return Ok(());
        }
        self.digest_taken();
        self.before += self.taken as u64;
        self.buffer.drain(..self.taken);
        (self.taken, self.digested) = (0, 0);
        let mut len = self.buffer.len();
        self.buffer.resize(BUFFER_BYTES, 0);
        while len < count {
            match self.input.read(&mut self.buffer[len..]) {
                Ok(0) => {
                    self.buffer.truncate(len);
                    return self.fail(Problem::Ends);
                }
                Ok(more) => len += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.buffer.truncate(len);
                    return self.fail(Problem::Io(error));
                }
            }
        }
        self.buffer.truncate(len);
        Ok(())
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        self.fill(N)?;
        let bytes = self.buffer[self.taken..].first_chunk().copied();
        self.taken += N;
        Ok(bytes.expect("so many were read"))
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Error> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: u64) -> Result<Vec<u8>, Error> {
        let max = self.limits.string_bytes_max;
        let Some(mut left) = usize::try_from(len).ok().filter(|_| len <= max) else {
            return self.fail(Problem::TooLong { bytes: len, max });
        };
        let mut bytes = Vec::with_capacity(left.min(BUFFER_BYTES));
        while left > 0 {
            self.fill(1)?;
            let part = left.min(self.buffer.len() - self.taken);
            bytes.extend_from_slice(&self.buffer[self.taken..][..part]);
            self.taken += part;
            left -= part;
        }
        Ok(bytes)
    }

    fn any_length(&mut self) -> Result<Length, Error> {
        let first = self.byte()?;
        Ok(match (first >> 6, first) {
            (0, _) => Length::Plain(first.into()),
            (1, _) => Length::Plain(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            (3, _) => Length::Form(first & 0x3f),
            (_, 0x80) => Length::Plain(u32::from_be_bytes(self.array()?).into()),
            (_, 0x81) => Length::Plain(u64::from_be_bytes(self.array()?)),
            _ => return self.damaged("a length in an unknown form"),
        })
    }

    /// A length or another number.
    pub(crate) fn length(&mut self) -> Result<u64, Error> {
        match self.any_length()? {
            Length::Plain(len) => Ok(len),
            Length::Form(_) => self.damaged("a string where a number belongs"),
        }
    }

    pub(crate) fn string(&mut self) -> Result<Vec<u8>, Error> {
        Ok(match self.any_length()? {
            Length::Plain(len) => return self.bytes(len),
            Length::Form(0) => self.array().map(i8::from_le_bytes)?.to_string().into_bytes(),
            Length::Form(1) => self.array().map(i16::from_le_bytes)?.to_string().into_bytes(),
            Length::Form(2) => self.array().map(i32::from_le_bytes)?.to_string().into_bytes(),
            Length::Form(3) => return self.compressed(),
            Length::Form(_) => return self.damaged("a string in an unknown form"),
        })
    }

    fn compressed(&mut self) -> Result<Vec<u8>, Error> {
        let (packed, len) = (self.length()?, self.length()?);
        let max = self.limits.string_bytes_max;
        let Some(whole) = usize::try_from(len).ok().filter(|_| len <= max) else {
            return self.fail(Problem::TooLong { bytes: len, max });
        };
        let packed = self.bytes(packed)?;
        match lzf::decompress(&packed, whole) {
            Some(bytes) => Ok(bytes),
            None => self.damaged("a string that was not compressed so"),
        }
    }

    /// A string that is skipped, whatever its length.
    pub(crate) fn skip_string(&mut self) -> Result<(), Error> {
        match self.any_length()? {
            Length::Plain(len) => self.skip(len),
            Length::Form(form @ 0..3) => self.skip(1 << form),
            Length::Form(3) => {
                let (packed, _) = (self.length()?, self.length()?);
                self.skip(packed)
            }
            Length::Form(_) => self.damaged("a string in an unknown form"),
        }
    }

    pub(crate) fn skip(&mut self, mut count: u64) -> Result<(), Error> {
        while count > 0 {
            self.fill(1)?;
            let part = count.min((self.buffer.len() - self.taken) as u64);
            self.taken += part as usize;
            count -= part;
        }
        Ok(())
    }
}

/// Counts one down; whether there was one.
pub(crate) fn step(left: &mut u64) -> bool {
    let is_left = *left > 0;
    *left -= u64::from(is_left);
    is_left
}

/// What is read at once.
const BUFFER_BYTES: usize = 64 << 10;
