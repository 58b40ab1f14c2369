//! Buffers that the kernel picks from when bytes come, so that an idle connection needs none.
//!
//! ```text
//!  memory:  | entry 0 | entry 1 | ... (16 bytes each, one page) | buffer 0 | buffer 1 | ...
//!             tail lies in entry 0                                 16 KiB     16 KiB
//! ```
//!
//! A buffer is the kernel's from [`Buffers::give`] until a completion names it, and ours as long as its [`Lease`] lives.
//! A lease is made from a completion only and cannot be copied, so no buffer is looked at while the kernel may write
//! to it; one that is never given back is lost to the ring, no more.
//!
//! Source: io_uring_register_buf_ring(3).
#![allow(unsafe_code, reason = "memory shared with the kernel; each access is proved where it is made")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

/// Buffers of one ring: a megabyte, of which small requests touch the first bytes only.
pub(super) const COUNT: u16 = 64;
/// Bytes of each.
pub(super) const SIZE_BYTES: usize = 16 << 10;
/// The only group of buffers.
pub(super) const GROUP: u16 = 0;

const ENTRY_BYTES: usize = size_of::<BufRingEntry>();
/// What the entries take; the buffers begin behind.
const PAGE_BYTES: usize = 4_096;
const MEMORY_BYTES: usize = PAGE_BYTES + COUNT as usize * SIZE_BYTES;

const _: () = assert!(COUNT.is_power_of_two() && COUNT as usize * ENTRY_BYTES <= PAGE_BYTES);
const _: () = assert!(SIZE_BYTES <= u32::MAX as usize);

/// The buffers of one ring.
pub(super) struct Buffers {
    memory: NonNull<u8>,
    /// Entries published so far, modulo 2^16.
    tail: u16,
}

// SAFETY: the memory belongs to this value alone (and to the kernel), whichever thread has it.
unsafe impl Send for Buffers {}

/// A buffer that the kernel filled and that is ours until it is given back.
#[derive(Debug)]
pub(crate) struct Lease {
    id: u16,
    len: usize,
}

impl Buffers {
    /// Makes the buffers and registers them with `ring`, where they are all free.
    ///
    /// # Errors
    /// The kernel knows no rings of buffers (before 5.19), or refuses the memory.
    pub(super) fn register(ring: &IoUring) -> io::Result<Self> {
        // SAFETY: the layout has a size other than zero.
        let memory = unsafe { alloc_zeroed(layout()) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout()) };
        let mut buffers = Self { memory, tail: 0 };
        for id in 0..COUNT {
            buffers.publish(id);
        }
        let address = memory.as_ptr() as u64;
        // SAFETY: `COUNT` entries lie at `address`, aligned to a page and initialized; they live as long as `self`, which the
        // ring's owner keeps until nothing that could use them is under way (see `Ring::drop`).
        unsafe { ring.submitter().register_buf_ring_with_flags(address, COUNT, GROUP, 0)? };
        Ok(buffers)
    }

    /// What a completion that names buffer `id` and `len` bytes gives us.
    ///
    /// # Panics
    /// If there is no such buffer or it is shorter: the kernel broke its word.
    pub(super) fn lease(&self, id: u16, len: usize) -> Lease {
        assert!(id < COUNT && len <= SIZE_BYTES, "completion of {len} bytes in buffer {id}");
        Lease { id, len }
    }

    /// What came.
    pub(super) fn bytes<'a>(&'a self, lease: &'a Lease) -> &'a [u8] {
        let at = PAGE_BYTES + usize::from(lease.id) * SIZE_BYTES;
        // SAFETY: the range lies in our memory (checked by `lease`), was zeroed at first and written by the kernel since, which
        // does not touch it while the lease exists.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(at), lease.len) }
    }

    /// Gives a buffer back to the kernel.
    #[expect(clippy::needless_pass_by_value, reason = "a lease ends here")]
    pub(super) fn give(&mut self, lease: Lease) {
        self.publish(lease.id);
    }

    fn publish(&mut self, id: u16) {
        let index = usize::from(self.tail % COUNT);
        let at = PAGE_BYTES + usize::from(id) * SIZE_BYTES;
        // SAFETY: the entry lies in our memory; the kernel reads it only once the tail has passed it, and it has read what
        // stood here before, for no more than `COUNT` buffers exist. The fields are written one by one: the last of the first
        // entry is the tail.
        let entry = unsafe { &mut *self.memory.as_ptr().cast::<BufRingEntry>().add(index) };
        // SAFETY: `at` is inside of our memory.
        entry.set_addr(unsafe { self.memory.as_ptr().add(at) } as u64);
        entry.set_len(SIZE_BYTES as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the address is that of the first entry, which is initialized.
        let tail = unsafe { BufRingEntry::tail(self.memory.as_ptr().cast()) };
        // SAFETY: two aligned bytes of our memory, which the kernel only reads.
        unsafe { AtomicU16::from_ptr(tail.cast_mut()) }.store(self.tail, Ordering::Release);
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nobody else has it: see `Ring::drop`.
        unsafe { dealloc(self.memory.as_ptr(), layout()) }
    }
}

fn layout() -> Layout {
    Layout::from_size_align(MEMORY_BYTES, PAGE_BYTES)
        .expect("a page is a power of two, and the size is small")
}
