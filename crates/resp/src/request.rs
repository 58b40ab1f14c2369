//! Requests, parsed in place and as far as they have arrived.
//!
//! The parser is a position in a frame. Its caller keeps the frame's bytes from the first one on and calls again
//! with more of them; nothing before the position is looked at again.
//!
//! ```text
//!            +-- '*' --> count line --> [ length line --> body CR LF ] x count --> complete
//!  fresh ----|                |                 |
//!            +-- other -----> inline line ------+--------------------------------> complete
//! ```
//!
//! Invariants
//!   1. `position <= searched`, and neither is beyond the bytes seen.
//!   2. Between calls the arguments found so far are in `found`; a fresh parser owns no memory.
//!   3. After `Complete` or an error the parser is fresh.
//!
//! A slow client costs what it has sent: the announced count reserves nothing, and a body that is still to
//! come is a number. Source of the limits and texts: `networking.c` of Redis 7.

use crate::args::{Args, FRAME_BYTES_MAX, Range};
use crate::error::ProtocolError;
use crate::inline;
use crate::number::parse_i64;

/// Parser of one connection's requests; 48 bytes when idle.
#[derive(Debug)]
pub struct RequestParser {
    /// Bytes of the frame that are understood.
    position: u32,
    /// Bytes of the frame that are known to hold no line end that we still look for.
    searched: u32,
    /// Arguments still to come, when `counted`.
    args_left: u32,
    /// Length of the argument whose body is next, or `NO_BULK` when its length line is next.
    bulk_len: u32,
    /// Whether the count line was read.
    counted: bool,
    /// Arguments found in an incomplete frame, between calls.
    found: Vec<Range>,
}

/// What a client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest inline request, and longest count or length line.
    pub inline_bytes_max: usize,
    /// Most arguments of one request, the command's name included.
    pub args_max: usize,
    /// Longest argument.
    pub bulk_bytes_max: usize,
    /// Largest request as a whole, framing included.
    pub query_bytes_max: usize,
    /// Whether the client may still have to authenticate: only the error text differs.
    pub unauthenticated: bool,
}

impl Limits {
    /// The limits of Redis for a client that has authenticated.
    pub const REDIS: Limits = Limits {
        inline_bytes_max: 64 << 10,
        args_max: i32::MAX as usize,
        bulk_bytes_max: 512 << 20,
        query_bytes_max: 1 << 30,
        unauthenticated: false,
    };

    /// The limits for a client that must authenticate first: what AUTH and HELLO need, and no more.
    pub const BEFORE_AUTH: Limits = Limits {
        inline_bytes_max: 64 << 10,
        args_max: 10,
        bulk_bytes_max: 16 << 10,
        query_bytes_max: 256 << 10,
        unauthenticated: true,
    };

    /// The number of arguments of a request, counted or inline, if it is allowed.
    #[inline]
    pub(crate) fn checked_count(&self, count: usize) -> Result<u32, ProtocolError> {
        match u32::try_from(count) {
            Ok(fits) if count <= self.args_max => Ok(fits),
            Ok(_) if self.unauthenticated && count <= Limits::REDIS.args_max => {
                Err(ProtocolError::UnauthenticatedCount)
            }
            _ => Err(ProtocolError::InvalidCount),
        }
    }
}

/// How far a parse got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The request has not arrived as a whole.
    Incomplete {
        /// With fewer bytes of the frame than this another call is useless. It comes from the client: a hint
        /// for how much to read, no reason to reserve memory.
        needed_bytes_min: usize,
    },
    /// The request is in the arguments; zero of them mean a blank line or an empty array, which is skipped.
    Complete {
        /// Bytes of the input that belong to it.
        consumed: usize,
    },
}

impl RequestParser {
    /// A parser at the start of a frame.
    pub const fn new() -> Self {
        RequestParser {
            position: 0,
            searched: 0,
            args_left: 0,
            bulk_len: NO_BULK,
            counted: false,
            found: Vec::new(),
        }
    }

    /// Parses the request that `input` starts with, going on where the previous call stopped.
    ///
    /// `input` must start with the same bytes as in the previous call if that returned `Incomplete`.
    /// `args` may be another value on each call; its former content is dropped.
    ///
    /// # Errors
    /// [`ProtocolError`] for what no client of Redis sends, or what exceeds `limits`. The place of the next
    /// request is unknown then: answer with the error's text and close.
    #[inline]
    pub fn parse(&mut self, input: &[u8], limits: &Limits, args: &mut Args) -> Result<Parsed, ProtocolError> {
        args.clear();
        if self.position == 0 {
            match input.first() {
                Some(b'*') => {}
                Some(_) => return self.parse_inline(input, limits, args),
                None => return Ok(Parsed::Incomplete { needed_bytes_min: 1 }),
            }
        } else {
            self.resume(args);
        }
        self.parse_multibulk(input, limits, args)
    }

    /// Whether the next call starts a new request.
    pub fn is_fresh(&self) -> bool {
        self.searched == 0
    }

    /// Bytes of memory held for an incomplete request.
    pub fn capacity_bytes(&self) -> usize {
        self.found.capacity() * size_of::<Range>()
    }

    fn parse_inline(
        &mut self,
        input: &[u8],
        limits: &Limits,
        args: &mut Args,
    ) -> Result<Parsed, ProtocolError> {
        let searched = self.searched as usize;
        if input.starts_with(TLS_HANDSHAKE) {
            return Err(self.fail(ProtocolError::Tls));
        }
        let Some(found) = memchr::memchr(b'\n', &input[searched..]) else {
            if input.len() > limits.inline_bytes_max {
                return Err(self.fail(ProtocolError::InlineTooBig));
            }
            self.searched = offset(input.len());
            return Ok(Parsed::Incomplete { needed_bytes_min: input.len() + 1 });
        };
        let line_len = searched + found;
        *self = RequestParser::new();
        if line_len > limits.inline_bytes_max {
            return Err(ProtocolError::InlineTooBig);
        }
        let line = &input[..line_len];
        inline::split(line.strip_suffix(b"\r").unwrap_or(line), limits, args)?;
        Ok(Parsed::Complete { consumed: line_len + 1 })
    }

    #[inline]
    fn parse_multibulk(
        &mut self,
        input: &[u8],
        limits: &Limits,
        args: &mut Args,
    ) -> Result<Parsed, ProtocolError> {
        let mut cursor = self.cursor();
        match cursor.run(input, limits, args) {
            Ok(Outcome::Complete) => {
                // Written only when a former call left something behind: a whole request touches no state.
                if self.searched != 0 {
                    *self = RequestParser::new();
                }
                Ok(Parsed::Complete { consumed: cursor.position })
            }
            Ok(Outcome::Needs(needed_bytes_min)) => {
                self.suspend(&cursor, args);
                Ok(Parsed::Incomplete { needed_bytes_min })
            }
            Err(error) => {
                args.clear();
                Err(self.fail(error))
            }
        }
    }

    fn cursor(&self) -> Cursor {
        Cursor {
            position: self.position as usize,
            searched: self.searched as usize,
            args_left: self.args_left,
            bulk_len: self.bulk_len,
            counted: self.counted,
        }
    }

    #[cold]
    fn suspend(&mut self, cursor: &Cursor, args: &mut Args) {
        debug_assert!(cursor.position <= cursor.searched, "{cursor:?}");
        self.position = offset(cursor.position);
        self.searched = offset(cursor.searched);
        self.args_left = cursor.args_left;
        self.bulk_len = cursor.bulk_len;
        self.counted = cursor.counted;
        // Few ranges are copied, so that the connection holds little and `args` stays warm; many are handed over.
        if args.ranges.len() <= COPIED_RANGES_MAX {
            self.found = args.ranges.as_slice().to_vec();
        } else {
            self.found = std::mem::take(&mut args.ranges);
        }
    }

    #[cold]
    fn resume(&mut self, args: &mut Args) {
        if self.found.len() <= COPIED_RANGES_MAX {
            args.ranges.extend_from_slice(&self.found);
        } else {
            args.ranges = std::mem::take(&mut self.found);
        }
    }

    #[cold]
    fn fail(&mut self, error: ProtocolError) -> ProtocolError {
        *self = RequestParser::new();
        error
    }
}

impl Default for RequestParser {
    fn default() -> Self {
        RequestParser::new()
    }
}

/// The parser's state in registers, while a call runs.
#[derive(Debug)]
struct Cursor {
    position: usize,
    searched: usize,
    args_left: u32,
    bulk_len: u32,
    counted: bool,
}

enum Outcome {
    Complete,
    Needs(usize),
}

impl Cursor {
    #[inline]
    fn run(&mut self, input: &[u8], limits: &Limits, args: &mut Args) -> Result<Outcome, ProtocolError> {
        if !self.counted {
            let Some(count) = self.number(input, limits, &COUNT_LINE)? else {
                return Ok(self.needs_line(input));
            };
            // A negative count is none, as Redis has it.
            self.args_left = limits.checked_count(usize::try_from(count).unwrap_or(0))?;
            self.counted = true;
        }
        while self.args_left > 0 {
            if self.bulk_len == NO_BULK {
                match input.get(self.position) {
                    Some(b'$') => {}
                    Some(got) => return Err(ProtocolError::ExpectedBulk { got: *got }),
                    None => return Ok(self.needs_line(input)),
                }
                let Some(len) = self.number(input, limits, &LENGTH_LINE)? else {
                    return Ok(self.needs_line(input));
                };
                self.bulk_len = self.checked_len(len, limits)?;
            }
            let end = self.position + self.bulk_len as usize;
            let Some(line_end) = input.get(end..end + 2) else {
                self.searched = self.searched.max(self.position);
                return Ok(Outcome::Needs(end + 2));
            };
            if line_end != b"\r\n" {
                return Err(ProtocolError::ExpectedLineEnd);
            }
            args.ranges.push(Range::new(self.position, end));
            self.position = end + 2;
            self.bulk_len = NO_BULK;
            self.args_left -= 1;
        }
        Ok(Outcome::Complete)
    }

    /// The number of the line at `position`, which starts with a type byte; moves behind it.
    /// `None` when its end has not arrived.
    #[inline]
    fn number(
        &mut self,
        input: &[u8],
        limits: &Limits,
        line: &LineErrors,
    ) -> Result<Option<i64>, ProtocolError> {
        // Nearly every line is one to three digits and has arrived: no search, no loop.
        let digits = self.position + 1;
        let digit = |byte: u8| i64::from(byte - b'0');
        let (value, len) = match input.get(digits..) {
            Some([a @ b'0'..=b'9', b'\r', b'\n', ..]) => (digit(*a), 1),
            Some([a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', ..]) => (digit(*a) * 10 + digit(*b), 2),
            Some([a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', b'\r', b'\n', ..]) => {
                (digit(*a) * 100 + digit(*b) * 10 + digit(*c), 3)
            }
            _ => return self.number_slow(input, limits, line),
        };
        self.position = digits + len + 2;
        Ok(Some(value))
    }

    #[cold]
    fn number_slow(
        &mut self,
        input: &[u8],
        limits: &Limits,
        line: &LineErrors,
    ) -> Result<Option<i64>, ProtocolError> {
        let start = self.position;
        let from = self.searched.max(start).min(input.len());
        let Some(found) = memchr::memchr(b'\r', &input[from..]) else {
            self.searched = input.len();
            return if input.len() - start > limits.inline_bytes_max { Err(line.too_long) } else { Ok(None) };
        };
        let end = from + found;
        if end - start > limits.inline_bytes_max {
            return Err(line.too_long);
        }
        match input.get(end + 1) {
            None => {
                self.searched = end;
                Ok(None)
            }
            Some(b'\n') => {
                self.position = end + 2;
                parse_i64(&input[start + 1..end]).map(Some).ok_or(line.invalid)
            }
            Some(_) => Err(line.invalid),
        }
    }

    #[inline]
    fn checked_len(&self, len: i64, limits: &Limits) -> Result<u32, ProtocolError> {
        let len = usize::try_from(len).map_err(|_| ProtocolError::InvalidLength)?;
        if len > limits.bulk_bytes_max {
            let unauthenticated = limits.unauthenticated && len <= Limits::REDIS.bulk_bytes_max;
            return Err(if unauthenticated {
                ProtocolError::UnauthenticatedLength
            } else {
                ProtocolError::InvalidLength
            });
        }
        let limit_bytes = limits.query_bytes_max.min(FRAME_BYTES_MAX);
        if len > limit_bytes || self.position + len + 2 > limit_bytes {
            return Err(ProtocolError::RequestTooBig { limit_bytes });
        }
        Ok(offset(len))
    }

    #[cold]
    fn needs_line(&mut self, input: &[u8]) -> Outcome {
        self.searched = self.searched.max(self.position);
        Outcome::Needs(input.len() + 1)
    }
}

struct LineErrors {
    too_long: ProtocolError,
    invalid: ProtocolError,
}

const COUNT_LINE: LineErrors =
    LineErrors { too_long: ProtocolError::CountLineTooLong, invalid: ProtocolError::InvalidCount };
const LENGTH_LINE: LineErrors =
    LineErrors { too_long: ProtocolError::LengthLineTooLong, invalid: ProtocolError::InvalidLength };

/// Narrows a position within a frame.
#[expect(clippy::cast_possible_truncation, reason = "checked_len keeps frames below FRAME_BYTES_MAX")]
#[inline]
fn offset(bytes: usize) -> u32 {
    debug_assert!(bytes < NO_BULK as usize, "offset {bytes} leaves the frame");
    bytes as u32
}

/// No argument is announced: a length line comes next.
const NO_BULK: u32 = u32::MAX;

/// Ranges of an incomplete request that are copied rather than handed over.
const COPIED_RANGES_MAX: usize = 32;

const _: () = assert!(FRAME_BYTES_MAX < NO_BULK as usize);
const _: () = assert!(size_of::<RequestParser>() <= 48);

/// What a client of TLS begins with, and no word of a request: the type of the record, and the number that all versions have.
const TLS_HANDSHAKE: &[u8] = &[0x16, 3];
