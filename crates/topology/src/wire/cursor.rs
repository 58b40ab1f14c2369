//! Reads numbers one after the other, and says what was missing where.

use bytes::Bytes;

use super::error::WireError;

/// A place in the bytes of an envelope.
pub(super) struct Cursor<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a Bytes) -> Self {
        Self { bytes, at: 0 }
    }

    /// Where it is.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, WireError> {
        Ok(u8::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u16(&mut self, what: &'static str) -> Result<u16, WireError> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u128(&mut self, what: &'static str) -> Result<u128, WireError> {
        Ok(u128::from_le_bytes(self.array(what)?))
    }

    /// The next `size` bytes, shared.
    pub(super) fn shared(&mut self, what: &'static str, size: usize) -> Result<Bytes, WireError> {
        self.need(what, size as u64)?;
        let start = self.at;
        self.at += size;
        Ok(self.bytes.slice(start..self.at))
    }

    /// The next `size` bytes.
    pub(super) fn slice(&mut self, what: &'static str, size: usize) -> Result<&'a [u8], WireError> {
        self.need(what, size as u64)?;
        let start = self.at;
        self.at += size;
        Ok(&self.bytes[start..self.at])
    }

    /// Whether `count` parts of at least `each` bytes can follow.
    pub(super) fn need_parts(&self, what: &'static str, count: u32, each: usize) -> Result<(), WireError> {
        self.need(what, u64::from(count) * each as u64)
    }

    /// Whether nothing follows.
    pub(super) fn end(&self) -> Result<(), WireError> {
        let (at, left) = (self.at, self.left());
        if left == 0 { Ok(()) } else { Err(WireError::TooLong { at, left }) }
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], WireError> {
        Ok(self.slice(what, N)?.try_into().expect("it has this length"))
    }

    fn need(&self, what: &'static str, needs: u64) -> Result<(), WireError> {
        let (at, left) = (self.at, self.left());
        if needs <= left as u64 { Ok(()) } else { Err(WireError::TooShort { what, at, needs, left }) }
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }
}

/// A count as it is written.
pub(super) fn count(count: usize) -> u32 {
    u32::try_from(count).expect("credits and max_spout_pending are below")
}
