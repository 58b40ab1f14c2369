//! Where messages of a child end: a line `end` follows each.
//!
//! ```text
//!  {"command": "ack", "id": "7"}\n
//!  end\n
//! ```
//!
//! Invariants
//!   1. No more than the limit, the end of a message and one piece of input is kept, whatever comes.
//!   2. What was looked at is not looked at again, however small the pieces are.

use memchr::memchr;

use crate::message::Garbage;

/// Bytes that have come, and what of them is a message.
#[derive(Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    /// Where the next message begins.
    start: usize,
    /// Where the line begins that is not complete.
    line: usize,
    /// No end of a line is between `line` and here.
    seen: usize,
    limit: usize,
}

impl Frames {
    /// Nothing yet; a message may have `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), start: 0, line: 0, seen: 0, limit }
    }

    /// More bytes have come.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.line -= self.start;
            self.seen -= self.start;
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, without the line that ends it; `None` if it is not complete.
    ///
    /// # Errors
    /// [`Garbage::TooLong`]: nothing that follows can be read.
    pub fn read(&mut self) -> Result<Option<&[u8]>, Garbage> {
        while let Some(length) = memchr(b'\n', &self.bytes[self.seen..]) {
            let (begin, end) = (self.line, self.seen + length);
            (self.line, self.seen) = (end + 1, end + 1);
            let line = &self.bytes[begin..end];
            if line.strip_suffix(b"\r").unwrap_or(line) == END {
                let message = self.start..begin;
                self.start = end + 1;
                self.check(message.len(), self.limit)?;
                return Ok(Some(&self.bytes[message]));
            }
        }
        self.seen = self.bytes.len();
        self.check(self.seen - self.start, self.limit + END_BYTES_MAX)?;
        Ok(None)
    }

    /// Bytes of a message that is not complete.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.bytes.len() - self.start
    }

    fn check(&self, size_bytes: usize, most: usize) -> Result<(), Garbage> {
        if size_bytes > most {
            let begin = &self.bytes[self.start.min(self.bytes.len())..];
            return Err(Garbage::TooLong { limit: self.limit, begin: crate::message::excerpt(begin) });
        }
        Ok(())
    }
}

const END: &[u8] = b"end";
/// `end` with a carriage return, before its line is complete.
const END_BYTES_MAX: usize = END.len() + 1;

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages in `text` that comes in pieces of `size` bytes.
    fn messages(text: &str, size: usize) -> Vec<String> {
        let mut frames = Frames::new(64);
        let mut found = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            frames.push(piece);
            while let Some(message) = frames.read().expect("not too long") {
                found.push(String::from_utf8(message.to_vec()).expect("text"));
            }
        }
        found
    }

    #[test]
    fn messages_are_found_in_pieces_of_any_size() {
        let text = "{}\nend\n[1,\n2]\nend\r\nendless\n end\nend\nrest";
        for size in 1..text.len() {
            assert_eq!(messages(text, size), ["{}\n", "[1,\n2]\n", "endless\n end\n"], "pieces of {size}");
        }
    }

    #[test]
    fn message_beyond_the_limit_is_refused_before_it_is_complete() {
        let mut frames = Frames::new(64);
        frames.push(&[b'x'; 68]);
        assert_eq!(frames.read(), Ok(None), "its last bytes may be those of its end");
        frames.push(b"y");
        let Err(Garbage::TooLong { limit: 64, begin }) = frames.read() else { panic!("refused") };
        assert!(begin.starts_with("xxx"));
        let mut frames = Frames::new(4);
        frames.push(b"12345\nend\n");
        assert!(frames.read().is_err(), "also when it came with its end");
    }
}
