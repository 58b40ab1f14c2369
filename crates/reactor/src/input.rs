//! Bytes that came and wait for the protocol.
//!
//! ```text
//!  bytes:  | consumed | pending        | spare capacity: the next read goes here |
//!          0        start            len()                                 capacity
//! ```
//!
//! Invariants
//!   1. `start <= bytes.len()`; both are 0 when nothing is pending.
//!   2. The buffer belongs to the loop's pool whenever nothing is pending between two turns; a short rest
//!      of a request is kept in a buffer of about its size.

use std::fmt;

use crate::pool::{LARGE_BYTES, Pool};

/// Most that [`Input::expect`] makes room for before the bytes have come.
const EXPECT_BYTES_MAX: usize = 128 << 10;
/// A buffer grows by this part of itself, where the request needs less at a time.
const GROWTH_PART: usize = 4;
/// And by no more than this beyond what the request needs.
const GROWTH_BYTES_MAX: usize = 1 << 20;
/// A rest below this moves to a buffer of its size between turns.
const REST_BYTES_MAX: usize = 2 << 10;

/// Bytes that came and were not consumed.
pub struct Input {
    bytes: Vec<u8>,
    start: usize,
    limit_bytes: usize,
    /// What the request at the front takes in all, as far as it is known; 0 while nothing is.
    expected_bytes: usize,
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("pending", &self.len()).field("limit_bytes", &self.limit_bytes).finish()
    }
}

impl Input {
    /// An empty input that keeps at most about `limit_bytes`. For protocols' tests, too.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        Self { bytes: Vec::new(), start: 0, limit_bytes, expected_bytes: 0 }
    }

    /// Takes `bytes` as if they had been read; what a test of a protocol feeds it with.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes `count` bytes off the front.
    ///
    /// # Panics
    /// If fewer are pending: a bug in the protocol.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.len(), "consumed {count} of {} bytes", self.len());
        self.start += count;
        self.expected_bytes = 0;
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    /// Bounds the bytes kept while a request is not complete; one read more may be kept.
    pub fn set_limit(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
    }

    /// Says that the request at the front has `bytes` bytes in all, so that the next read makes room for
    /// it. Room is made for no more than 128 KiB ahead of the bytes.
    pub fn expect(&mut self, bytes: usize) {
        self.expected_bytes = bytes;
    }

    /// What is pending.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// How much is pending.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Whether nothing is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a request that is still not complete has reached the limit. A protocol that sees this
    /// should answer with its error and [`crate::Step::Close`]; else the connection is cut.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() >= self.limit_bytes
    }

    /// The buffer to read into, with spare capacity: the read appends.
    pub(crate) fn room(&mut self, pool: &mut Pool) -> &mut Vec<u8> {
        if self.bytes.capacity() < LARGE_BYTES {
            let mut large = pool.take_large();
            large.extend_from_slice(self.bytes());
            pool.put(std::mem::replace(&mut self.bytes, large));
            self.start = 0;
        }
        let ahead = self.expected_bytes.saturating_sub(self.len()).min(EXPECT_BYTES_MAX);
        let want = ahead.max(LARGE_BYTES / 4);
        if self.bytes.capacity() - self.bytes.len() < want {
            self.bytes.drain(..self.start);
            self.start = 0;
            // Not by doubling: what is granted to a request bounds what is reserved for it.
            self.bytes.reserve_exact(want.max(self.bytes.len() / GROWTH_PART).min(want + GROWTH_BYTES_MAX));
        }
        &mut self.bytes
    }

    /// Gives the buffer back when nothing is pending, and moves a short rest to a small one.
    pub(crate) fn settle(&mut self, pool: &mut Pool) {
        if self.is_empty() {
            if self.bytes.capacity() > 0 {
                pool.put(std::mem::take(&mut self.bytes));
            }
            self.start = 0;
        } else if self.len() <= REST_BYTES_MAX && self.bytes.capacity() >= LARGE_BYTES {
            let rest = self.bytes().to_vec();
            pool.put(std::mem::replace(&mut self.bytes, rest));
            self.start = 0;
        }
    }

    /// Bytes that the request at the front will take, as far as it is known: none when nothing is pending.
    pub(crate) fn wanted_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { self.expected_bytes.max(self.len() + LARGE_BYTES / 4) }
    }

    /// Bytes of memory kept.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(input: &mut Input, pool: &mut Pool, bytes: &[u8]) {
        let room = input.room(pool);
        assert!(room.capacity() - room.len() >= LARGE_BYTES / 4);
        room.extend_from_slice(bytes);
    }

    #[test]
    fn consumed_input_gives_its_buffer_back() {
        let (mut pool, mut input) = (Pool::default(), Input::new(100));
        arrive(&mut input, &mut pool, b"hello");
        assert_eq!(input.bytes(), b"hello");
        input.consume(5);
        input.settle(&mut pool);
        assert_eq!((input.capacity(), pool.large_count()), (0, 1));
    }

    #[test]
    fn short_rest_moves_to_a_small_buffer_and_back() {
        let (mut pool, mut input) = (Pool::default(), Input::new(100));
        arrive(&mut input, &mut pool, b"one two");
        input.consume(4);
        input.settle(&mut pool);
        assert!(input.capacity() < 64);
        assert_eq!(pool.large_count(), 1);
        arrive(&mut input, &mut pool, b" three");
        assert_eq!(input.bytes(), b"two three");
    }

    #[test]
    fn long_rest_keeps_its_buffer_and_grows_in_place() {
        let (mut pool, mut input) = (Pool::default(), Input::new(usize::MAX));
        let mut sent = Vec::new();
        for round in 0..100u8 {
            let part = vec![round; 4_000];
            arrive(&mut input, &mut pool, &part);
            sent.extend_from_slice(&part);
            input.settle(&mut pool);
        }
        assert_eq!(input.bytes(), sent);
        assert!(input.capacity() <= 2 * sent.len());
    }

    #[test]
    fn expected_bytes_make_room_at_once_but_not_without_bound() {
        let (mut pool, mut input) = (Pool::default(), Input::new(usize::MAX));
        arrive(&mut input, &mut pool, &[1; 8_000]);
        input.expect(100_000);
        let room = input.room(&mut pool);
        assert!(room.capacity() >= 100_000);
        input.expect(usize::MAX);
        input.room(&mut pool);
        assert!(input.capacity() <= 2 * EXPECT_BYTES_MAX);
    }

    #[test]
    fn input_at_its_limit_is_full() {
        let mut input = Input::new(4);
        input.feed(b"abc");
        assert!(!input.is_full());
        input.feed(b"d");
        assert!(input.is_full());
    }

    #[test]
    #[should_panic(expected = "consumed 2 of 1 bytes")]
    fn consuming_more_than_is_pending_panics() {
        let mut input = Input::new(4);
        input.feed(b"a");
        input.consume(2);
    }
}
