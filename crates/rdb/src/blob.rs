//! Small collections that are one string: listpack, ziplist, intset and zipmap, element by element.
//!
//! ```text
//!  listpack  bytes u32 | count u16 (65535: not known) | elements | FF
//!    element  0xxxxxxx  |  110xxxxx u8  |  F1 i16  |  F2 i24  |  F3 i32  |  F4 i64          a number
//!             10xxxxxx bytes  |  1110xxxx u8 bytes  |  F0 u32 bytes                         a string
//!             and behind it how many bytes that were, 7 bits a byte, the highest first, all but the first with bit 7
//!  ziplist   bytes u32 | offset of the last u32 | count u16 (65535: not known) | elements | FF
//!    element  length of the one before: u8, or FE u32
//!             00xxxxxx bytes  |  01xxxxxx u8 bytes  |  80 u32 big-endian bytes              a string
//!             C0 i16  |  D0 i32  |  E0 i64  |  F0 i24  |  FE i8  |  F1 to FD: 0 to 12        a number
//!  intset    bytes of a number u32 (2, 4, 8) | count u32 | numbers, ascending
//!  zipmap    count u8 | (length | field | length | free u8 | value | free bytes) ... | FF
//!    length   u8 below FE, or FE u32
//! ```
//!
//! All of the frame is checked before the first element, and each element where it is read: what a length says is in the string or refused.

use std::io::Read;
use std::ops::Range;

use crate::error::Error;
use crate::source::Source;

/// A small collection, and how much of it was read.
#[derive(Debug)]
pub(crate) struct Blob {
    bytes: Vec<u8>,
    form: Form,
    /// Where the next element begins.
    at: usize,
    /// Elements that were read, and how many there are if that is written.
    read: usize,
    count: Option<usize>,
    /// Bytes of the element before, in a ziplist.
    len_before: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Listpack,
    Ziplist,
    Intset,
    Zipmap,
}

/// An element.
#[derive(Debug, PartialEq, Eq)]
enum Atom {
    Number(i64),
    Bytes(Range<usize>),
}

type Wrong = &'static str;

impl Blob {
    /// The collection in a string.
    pub(crate) fn new(form: Form, bytes: Vec<u8>) -> Result<Self, Wrong> {
        let whole = |at: usize| bytes.get(at..)?.first_chunk().map(|four| u32::from_le_bytes(*four) as usize);
        let short = "a small collection without its head";
        let (at, count) = match form {
            Form::Listpack | Form::Ziplist => {
                let count_at = if form == Form::Listpack { 4 } else { 8 };
                let two = bytes.get(count_at..).and_then(<[u8]>::first_chunk).ok_or(short)?;
                if whole(0) != Some(bytes.len()) || bytes.last() != Some(&END) {
                    return Err("a small collection of another length than its head says");
                }
                let count = usize::from(u16::from_le_bytes(*two));
                (count_at + 2, (count != COUNT_UNKNOWN).then_some(count))
            }
            Form::Intset => {
                let (width, count) = (whole(0).ok_or(short)?, whole(4).ok_or(short)?);
                if ![2, 4, 8].contains(&width) || count.checked_mul(width) != bytes.len().checked_sub(8) {
                    return Err("an intset of another length than its head says");
                }
                (8, Some(count))
            }
            Form::Zipmap => {
                if bytes.len() < 2 || bytes.last() != Some(&END) {
                    return Err("a zipmap without an end");
                }
                (1, None)
            }
        };
        Ok(Self { bytes, form, at, read: 0, count, len_before: 0 })
    }

    /// The next element as text.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, Wrong> {
        Ok(self.atom()?.map(|atom| match atom {
            Atom::Number(number) => number.to_string().into_bytes(),
            Atom::Bytes(at) => self.bytes[at].to_vec(),
        }))
    }

    /// The next element, which is a number.
    pub(crate) fn number(&mut self) -> Result<i64, Wrong> {
        let wrong = "something else where a number belongs";
        match self.atom()?.ok_or(wrong)? {
            Atom::Number(number) => Ok(number),
            Atom::Bytes(at) => {
                std::str::from_utf8(&self.bytes[at]).ok().and_then(|text| text.parse().ok()).ok_or(wrong)
            }
        }
    }

    /// The next element, which belongs to the one before.
    pub(crate) fn needed(&mut self) -> Result<Vec<u8>, Wrong> {
        self.next()?.ok_or("a small collection that ends in the middle of a pair")
    }

    fn atom(&mut self) -> Result<Option<Atom>, Wrong> {
        let is_end = match self.form {
            Form::Intset => self.at == self.bytes.len(),
            _ => self.at + 1 == self.bytes.len(),
        };
        if is_end {
            if self.count.is_some_and(|count| count != self.read) {
                return Err("a small collection with another number of elements than its head says");
            }
            return Ok(None);
        }
        let atom = match self.form {
            Form::Listpack => self.of_listpack()?,
            Form::Ziplist => self.of_ziplist()?,
            Form::Intset => self.of_intset(),
            Form::Zipmap => self.of_zipmap()?,
        };
        self.read += 1;
        Ok(Some(atom))
    }

    /// Takes `count` bytes, which are not the end.
    fn take(&mut self, count: usize) -> Result<Range<usize>, Wrong> {
        let at = self.at..self.at.checked_add(count).ok_or(BEYOND)?;
        // the end is behind every element
        if at.end >= self.bytes.len() {
            return Err(BEYOND);
        }
        self.at = at.end;
        Ok(at)
    }

    fn take_byte(&mut self) -> Result<u8, Wrong> {
        let at = self.take(1)?.start;
        Ok(self.bytes[at])
    }

    /// Takes a number of `width` bytes, with its sign.
    fn take_number(&mut self, width: usize) -> Result<i64, Wrong> {
        let at = self.take(width)?;
        Ok(signed(&self.bytes[at]))
    }

    fn take_u32(&mut self) -> Result<[u8; 4], Wrong> {
        let at = self.take(4)?;
        Ok(*self.bytes[at].first_chunk().expect("four were taken"))
    }

    fn of_listpack(&mut self) -> Result<Atom, Wrong> {
        let begin = self.at;
        let first = self.take_byte()?;
        let atom = match first {
            0..0x80 => Atom::Number(first.into()),
            0x80..0xC0 => Atom::Bytes(self.take(usize::from(first & 0x3f))?),
            0xC0..0xE0 => {
                let number = i64::from(first & 0x1f) << 8 | i64::from(self.take_byte()?);
                Atom::Number(if number < 1 << 12 { number } else { number - (1 << 13) })
            }
            0xE0..0xF0 => {
                let len = usize::from(first & 0xf) << 8 | usize::from(self.take_byte()?);
                Atom::Bytes(self.take(len)?)
            }
            0xF0 => {
                let len = u32::from_le_bytes(self.take_u32()?) as usize;
                Atom::Bytes(self.take(len)?)
            }
            0xF1..=0xF3 => Atom::Number(self.take_number(usize::from(first - 0xEF))?),
            0xF4 => Atom::Number(self.take_number(8)?),
            _ => return Err("an element in an unknown form"),
        };
        let len = self.at - begin;
        let back = self.take(back_len_bytes(len))?;
        let written = self.bytes[back].iter().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7f));
        if written == len { Ok(atom) } else { Err("an element of another length than is written behind it") }
    }

    fn of_ziplist(&mut self) -> Result<Atom, Wrong> {
        let begin = self.at;
        let before = match self.take_byte()? {
            0xFE => u32::from_le_bytes(self.take_u32()?) as usize,
            END => return Err("an end before the end"),
            before => before.into(),
        };
        if before != self.len_before {
            return Err("an element of another length than the next one says");
        }
        let first = self.take_byte()?;
        let atom = match first {
            0..0x40 => Atom::Bytes(self.take(first.into())?),
            0x40..0x80 => {
                let len = usize::from(first & 0x3f) << 8 | usize::from(self.take_byte()?);
                Atom::Bytes(self.take(len)?)
            }
            0x80..0xC0 => {
                let len = u32::from_be_bytes(self.take_u32()?) as usize;
                Atom::Bytes(self.take(len)?)
            }
            0xC0 => Atom::Number(self.take_number(2)?),
            0xD0 => Atom::Number(self.take_number(4)?),
            0xE0 => Atom::Number(self.take_number(8)?),
            0xF0 => Atom::Number(self.take_number(3)?),
            0xFE => Atom::Number(self.take_number(1)?),
            0xF1..=0xFD => Atom::Number(i64::from(first & 0xf) - 1),
            _ => return Err("an element in an unknown form"),
        };
        self.len_before = self.at - begin;
        Ok(atom)
    }

    fn of_intset(&mut self) -> Atom {
        let width = usize::from(self.bytes[0]);
        self.at += width;
        Atom::Number(signed(&self.bytes[self.at - width..self.at]))
    }

    fn of_zipmap(&mut self) -> Result<Atom, Wrong> {
        let len = match self.take_byte()? {
            0xFE => u32::from_le_bytes(self.take_u32()?) as usize,
            END => return Err("an end before the end"),
            len => len.into(),
        };
        let is_value = self.read % 2 == 1;
        let free = if is_value { usize::from(self.take_byte()?) } else { 0 };
        let at = self.take(len)?;
        self.take(free)?;
        Ok(Atom::Bytes(at))
    }
}

/// The collection in the string that comes.
pub(crate) fn new_blob<R: Read>(form: Form, source: &mut Source<R>) -> Result<Blob, Error> {
    let bytes = source.string()?;
    Blob::new(form, bytes).or_else(|what| source.damaged(what))
}

/// A number of up to eight bytes.
fn signed(bytes: &[u8]) -> i64 {
    let sign = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xFF } else { 0 };
    let mut whole = [sign; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(whole)
}

/// How many bytes the length behind an element of a listpack has.
pub(crate) fn back_len_bytes(len: usize) -> usize {
    match len {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// The score in an element.
pub(crate) fn score(text: &[u8]) -> Result<f64, Wrong> {
    let score = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse::<f64>().ok());
    score.filter(|score| !score.is_nan()).ok_or("a score that is no number")
}

pub(crate) const END: u8 = 0xFF;
const COUNT_UNKNOWN: usize = 65_535;
const BEYOND: Wrong = "a length beyond the end of a small collection";
