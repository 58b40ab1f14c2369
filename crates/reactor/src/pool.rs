//! Buffers that a loop lends to the connections which have work, in two sizes.
//!
//! A turn takes a large buffer for input and one for output and gives both back, so that a busy loop with
//! ten thousand idle connections uses the same few buffers, warm in the cache. What must outlive a turn
//! (a short rest of a request, a held reply) moves to a small buffer.

/// Least capacity of a large buffer.
pub(crate) const LARGE_BYTES: usize = 16 << 10;
/// Least capacity of a small buffer.
pub(crate) const SMALL_BYTES: usize = 256;
/// A buffer that grew beyond this is freed.
const KEPT_BYTES_MAX: usize = 256 << 10;
/// Bytes of large buffers kept for reuse.
const LARGE_TOTAL_BYTES_MAX: usize = 2 << 20;
/// Small buffers kept for reuse: 256 KiB of them.
const SMALL_COUNT_MAX: usize = 1_024;

const _: () = assert!(SMALL_BYTES < LARGE_BYTES && LARGE_BYTES <= KEPT_BYTES_MAX);
const _: () = assert!(KEPT_BYTES_MAX <= LARGE_TOTAL_BYTES_MAX);

/// The same for a thread with a single connection, of which there may be thousands.
const WORKER_BYTES_MAX: usize = 64 << 10;

/// Empty buffers of one loop.
#[derive(Debug)]
pub(crate) struct Pool {
    large: Vec<Vec<u8>>,
    large_bytes: usize,
    large_bytes_max: usize,
    small: Vec<Vec<u8>>,
}

impl Default for Pool {
    fn default() -> Self {
        Self { large: Vec::new(), large_bytes: 0, large_bytes_max: LARGE_TOTAL_BYTES_MAX, small: Vec::new() }
    }
}

impl Pool {
    /// For a thread with a single connection.
    pub(crate) fn of_worker() -> Self {
        Self { large_bytes_max: WORKER_BYTES_MAX, ..Self::default() }
    }

    /// An empty buffer of at least [`LARGE_BYTES`]; the one given back last.
    pub(crate) fn take_large(&mut self) -> Vec<u8> {
        match self.large.pop() {
            Some(buffer) => {
                self.large_bytes -= buffer.capacity();
                buffer
            }
            None => Vec::with_capacity(LARGE_BYTES),
        }
    }

    /// An empty buffer of at least [`SMALL_BYTES`].
    pub(crate) fn take_small(&mut self) -> Vec<u8> {
        self.small.pop().unwrap_or_else(|| Vec::with_capacity(SMALL_BYTES))
    }

    /// Takes a buffer back, whatever is in it, or frees it.
    pub(crate) fn put(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        buffer.clear();
        if capacity >= LARGE_BYTES {
            if capacity <= KEPT_BYTES_MAX && self.large_bytes + capacity <= self.large_bytes_max {
                self.large_bytes += capacity;
                self.large.push(buffer);
            }
        } else if capacity >= SMALL_BYTES && self.small.len() < SMALL_COUNT_MAX {
            self.small.push(buffer);
        }
    }

    /// Whether it keeps no large buffer.
    pub(crate) fn is_empty(&self) -> bool {
        self.large.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn large_count(&self) -> usize {
        self.large.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_given_back_last_is_lent_first_and_empty() {
        let mut pool = Pool::default();
        let mut one = pool.take_large();
        one.extend_from_slice(b"secret");
        let address = one.as_ptr();
        pool.put(pool_other());
        pool.put(one);
        let again = pool.take_large();
        assert_eq!((again.as_ptr(), again.len()), (address, 0));
    }

    fn pool_other() -> Vec<u8> {
        Vec::with_capacity(LARGE_BYTES)
    }

    #[test]
    fn buffers_beyond_the_bounds_are_freed() {
        let mut pool = Pool::default();
        pool.put(Vec::with_capacity(KEPT_BYTES_MAX + 1));
        pool.put(Vec::with_capacity(SMALL_BYTES - 1));
        assert_eq!((pool.large.len(), pool.small.len()), (0, 0));
        for _ in 0..2_000 {
            pool.put(Vec::with_capacity(SMALL_BYTES));
            pool.put(Vec::with_capacity(LARGE_BYTES));
        }
        assert_eq!(pool.small.len(), SMALL_COUNT_MAX);
        assert!(pool.large_bytes <= LARGE_TOTAL_BYTES_MAX && pool.large_bytes > LARGE_TOTAL_BYTES_MAX / 2);
    }
}
