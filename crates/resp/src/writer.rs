//! Replies: one call for each type, written as the client's version of the protocol has it.
//!
//! | call | RESP2 | RESP3 |
//! |---|---|---|
//! | [`Writer::simple`] | `+text` | same |
//! | [`Writer::error`] | `-text` | same |
//! | [`Writer::integer`] | `:n` | same |
//! | [`Writer::bulk`] | `$len` bytes | same |
//! | [`Writer::null`] / [`Writer::null_array`] | `$-1` / `*-1` | `_` |
//! | [`Writer::array`] | `*n` | same |
//! | [`Writer::map`] | `*2n` | `%n` |
//! | [`Writer::set`] / [`Writer::push`] | `*n` | `~n` / `>n` |
//! | [`Writer::double`], [`Writer::double_as`] | bulk string | `,n` |
//! | [`Writer::boolean`] | `:1` `:0` | `#t` `#f` |
//! | [`Writer::big_number`] | bulk string | `(n` |
//! | [`Writer::verbatim`] | bulk string | `=len` `txt:` bytes |
//!
//! Text that goes into a line ([`Writer::simple`], [`Writer::error`]) loses its CR and LF here, so nothing that a client sent
//! can end the line and forge a reply.
//!
//! A buffer of more than 1 MiB grows by what is written, or by an eighth: one that doubles takes as much again, for which nobody has
//! asked the budget of memory.

/// Appends replies to a buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    resp3: bool,
}

impl<'a> Writer<'a> {
    /// Appends to `out`, in version 3 of the protocol if `resp3`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, resp3: bool) -> Self {
        Writer { out, resp3 }
    }

    /// Whether the client speaks version 3.
    #[inline]
    pub fn is_resp3(&self) -> bool {
        self.resp3
    }

    /// Switches the version for what follows (HELLO answers in the new one).
    pub fn set_resp3(&mut self, resp3: bool) {
        self.resp3 = resp3;
    }

    /// The end of the buffer, for [`Writer::rewind`].
    #[inline]
    pub fn position(&self) -> usize {
        self.out.len()
    }

    /// Appends once more what stands at `part` of the buffer: whole replies, written before.
    ///
    /// # Panics
    /// If the buffer does not reach so far: a bug in the caller.
    pub fn repeat(&mut self, part: std::ops::Range<usize>) {
        self.make_room(part.len());
        self.out.extend_from_within(part);
    }

    /// Takes back everything appended since `position`; an error then can take its place.
    pub fn rewind(&mut self, position: usize) {
        self.out.truncate(position);
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.raw(b"+OK\r\n");
    }

    /// A status, on one line.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error, on one line. `text` starts with its code: `ERR no such key`.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text.as_bytes());
    }

    /// An error whose text holds bytes of a client.
    pub fn error_bytes(&mut self, text: &[u8]) {
        self.line(b'-', text);
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, number: i64) {
        self.header(b':', number);
    }

    /// A string of any bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len() + HEADER_BYTES_MAX);
        self.count(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer as a string.
    pub fn bulk_i64(&mut self, number: i64) {
        self.bulk(itoa::Buffer::new().format(number).as_bytes());
    }

    /// A string of `before`, `len` bytes that others send, and `after`; returns the position before which those belong.
    pub fn bulk_around(&mut self, before: &[u8], len: usize, after: &[u8]) -> usize {
        self.count(b'$', before.len() + len + after.len());
        self.raw(before);
        let at = self.position();
        self.raw(after);
        self.raw(b"\r\n");
        at
    }

    /// A string, or null.
    #[inline]
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// The absent value.
    #[inline]
    pub fn null(&mut self) {
        self.raw(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// The absent array: what an aborted EXEC answers.
    pub fn null_array(&mut self) {
        self.raw(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// An array; its `len` elements follow.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.count(b'*', len);
    }

    /// A map; its `pairs` keys and values follow, in turns.
    pub fn map(&mut self, pairs: usize) {
        if self.resp3 { self.count(b'%', pairs) } else { self.count(b'*', pairs * 2) }
    }

    /// A set; its `len` elements follow.
    pub fn set(&mut self, len: usize) {
        self.count(if self.resp3 { b'~' } else { b'*' }, len);
    }

    /// Data that answers no request; its `len` elements follow.
    pub fn push(&mut self, len: usize) {
        self.count(if self.resp3 { b'>' } else { b'*' }, len);
    }

    /// A floating point number, as short as it can be read back exactly.
    pub fn double(&mut self, number: f64) {
        self.double_as(&double_text(number));
    }

    /// A floating point number with the digits of the caller.
    pub fn double_as(&mut self, text: &str) {
        if self.resp3 { self.line(b',', text.as_bytes()) } else { self.bulk(text.as_bytes()) }
    }

    /// True or false.
    pub fn boolean(&mut self, value: bool) {
        self.raw(match (self.resp3, value) {
            (true, true) => b"#t\r\n",
            (true, false) => b"#f\r\n",
            (false, true) => b":1\r\n",
            (false, false) => b":0\r\n",
        });
    }

    /// An integer of any size, in decimal.
    pub fn big_number(&mut self, digits: &str) {
        if self.resp3 { self.line(b'(', digits.as_bytes()) } else { self.bulk(digits.as_bytes()) }
    }

    /// Text for people; `format` is three bytes, `txt` or `mkd`.
    pub fn verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        if !self.resp3 {
            return self.bulk(text);
        }
        self.count(b'=', text.len() + 4);
        self.raw(&format);
        self.raw(b":");
        self.raw(text);
        self.raw(b"\r\n");
    }

    /// Appends bytes that are a reply already.
    #[inline]
    pub fn raw(&mut self, reply: &[u8]) {
        self.make_room(reply.len());
        self.out.extend_from_slice(reply);
    }

    #[inline]
    fn make_room(&mut self, bytes: usize) {
        if self.out.capacity() - self.out.len() < bytes {
            self.grow(bytes);
        }
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        let len = self.out.len();
        if len < DOUBLES_BYTES_MAX {
            self.out.reserve(bytes);
        } else {
            self.out.reserve_exact(bytes.max(len / 8));
        }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.make_room(text.len() + HEADER_BYTES_MAX);
        self.out.push(kind);
        self.out.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn count(&mut self, kind: u8, len: usize) {
        self.header(kind, i64::try_from(len).unwrap_or(i64::MAX));
    }

    #[inline]
    fn header(&mut self, kind: u8, number: i64) {
        if (0..10).contains(&number) {
            // Most headers and many integers are one digit.
            let digit = b'0' + number.to_le_bytes()[0];
            self.raw(&[kind, digit, b'\r', b'\n']);
            return;
        }
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number).as_bytes();
        let mut header = [0; HEADER_BYTES_MAX];
        header[0] = kind;
        header[1..=digits.len()].copy_from_slice(digits);
        header[digits.len() + 1..digits.len() + 3].copy_from_slice(b"\r\n");
        self.raw(&header[..digits.len() + 3]);
    }
}

/// `number` as Redis 7.2 prints it: shortest, `inf` and `nan` by name, an exponent only for very large or small ones.
#[must_use]
pub fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{number:e}");
        return if text.contains("e-") { text } else { text.replace('e', "e+") };
    }
    format!("{number}")
}

/// Type byte, sign and 19 digits, CR LF.
const HEADER_BYTES_MAX: usize = 24;
/// A buffer that holds as much no longer doubles.
const DOUBLES_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(resp3: bool, write: impl FnOnce(&mut Writer<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Writer::new(&mut out, resp3));
        String::from_utf8(out).expect("the tests write text")
    }

    #[test]
    fn line_ends_in_an_error_cannot_forge_a_reply() {
        let reply = written(false, |w| w.error_bytes(b"ERR unknown command 'x\r\n+OK\r\n'"));
        assert_eq!(reply, "-ERR unknown command 'x  +OK  '\r\n");
        assert_eq!(written(true, |w| w.simple("a\nb")), "+a b\r\n");
    }

    #[test]
    fn integers_on_their_edges_are_written_whole() {
        for number in [0, 9, 10, -1, i64::MAX, i64::MIN] {
            assert_eq!(written(false, |w| w.integer(number)), format!(":{number}\r\n"));
        }
    }

    #[test]
    fn doubles_are_short_and_exact() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (0.1, "0.1"),
            (-1.5, "-1.5"),
            (1e300, "1e+300"),
            (1.5e-9, "1.5e-9"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ];
        for (number, text) in cases {
            assert_eq!(written(true, |w| w.double(number)), format!(",{text}\r\n"));
            assert_eq!(written(false, |w| w.double(number)), format!("${}\r\n{text}\r\n", text.len()));
        }
    }

    /// MULTI with 200 HGETALL held twice the bytes of its replies.
    #[test]
    fn large_buffer_does_not_double() {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, false);
        while writer.position() < 5 << 20 {
            writer.bulk(&[b'x'; 100]);
            writer.integer(1_234_567);
        }
        writer.raw(&[b'x'; 3 << 20]);
        assert!(out.capacity() <= out.len() / 8 * 9, "{} of {}", out.len(), out.capacity());
    }

    #[test]
    fn a_reply_taken_back_leaves_nothing() {
        let reply = written(false, |w| {
            w.ok();
            let start = w.position();
            w.array(3);
            w.integer(1);
            w.rewind(start);
            w.error("ERR no");
        });
        assert_eq!(reply, "+OK\r\n-ERR no\r\n");
    }
}
