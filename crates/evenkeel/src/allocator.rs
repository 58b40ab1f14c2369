//! How the system's allocator is told to work: freed buffers of clients go back to the system.
//!
//! By itself glibc raises the size from which on a block is mapped alone each time that such a block is freed, up to 32 MiB. From then
//! on the buffers of requests lie between others in its heaps, and what is freed there stays with the process.
//!
//! Blocks of up to 128 B that are freed go to lists ("fast bins") which are emptied all at once, by the next thread that asks for a large block:
//! after a long command freed a million of them, a loop stood still for a quarter of a second. Without these lists each is given back as it is freed.
#![allow(unsafe_code, reason = "mallopt(3) is a plain call, and has no safe wrapper")]

/// Fixes the size from which on a block is mapped alone, and switches fast bins off. Before the first thread starts.
pub(crate) fn tune() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the call reads two integers and changes parameters of the allocator, which is valid at any time; no other thread
        // runs that could call it as well.
        let fixed = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN) };
        // A refusal costs memory, nothing else.
        debug_assert_eq!(fixed, 1, "glibc knows this parameter");
        // SAFETY: as above.
        unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, TRIMMED_BYTES_MIN) };
        // SAFETY: as above.
        unsafe { libc::mallopt(libc::M_MXFAST, 0) };
    }
}

/// Has all threads share a few heaps, two more than `loops`. By itself glibc makes eight for each core, and each keeps free memory of its
/// own: that came to 6 MiB with two cores, and under the connector `threads` to a quarter of a small `memory.limit`. Before the first
/// thread starts.
pub(crate) fn share_heaps(loops: usize) {
    #[cfg(target_env = "gnu")]
    {
        let heaps = libc::c_int::try_from(loops).unwrap_or(libc::c_int::MAX).saturating_add(HEAPS_BESIDE);
        // SAFETY: as in `tune`; threads that have a heap keep it.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, heaps) };
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = loops;
}

/// Heaps for the threads that read, write, clean and count.
#[cfg(target_env = "gnu")]
const HEAPS_BESIDE: libc::c_int = 2;
/// Smaller blocks are cheap to reuse, and their heaps are trimmed.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: libc::c_int = store::MAPPED_BYTES_MIN as libc::c_int;
/// Free bytes at the end of a heap that are given back.
#[cfg(target_env = "gnu")]
const TRIMMED_BYTES_MIN: libc::c_int = 1 << 20;
