//! Hot objects, and in `word` the slot word that owns them: the store's unsafe code, but for two instructions in `index::cpu`.
//!
//! A hot object is one allocation that holds header, key and value; its address and its seq stay with it, so
//! that dropping a clean value only turns the slot back into an address.
//!
//! ```text
//!  0 address u64            where the newest full record lies (0 in engine memory)
//!  8 seq u64              the effect that wrote it; WATCH, tickets and deltas name it
//! 16 flags u8             bits 0-4 kind, bit 5 WIDE, bit 6 EXPIRY, bit 7 LARGE
//! 17 key_len u8           (0 when WIDE)
//! 18 value_len u16        (0 when WIDE)
//! 20 [WIDE: key_len u32, value_len u32]
//!    [EXPIRY: expiry_ms u64]
//!    [LARGE: zeroes up to a multiple of 8, Arc of the value]
//!    key bytes, [value bytes, unless LARGE]
//! ```
//!
//! A key of 16 bytes with a value of 100 makes 136 bytes: exactly what a malloc chunk of 144 holds.
//!
//! Invariants
//!   1. Exactly one owner frees an object: an [`Object`], or the [`Word`] that it was put into.
//!   2. LARGE only beside WIDE. The object owns one count of its large value.
//!   3. Of the header fields that fix the size of the allocation only the length of the value ever changes, to one that has the same size ([`Word::rewrite`]).
//!
//! Checked by hand, not in CI: `cargo test -p store --lib --no-run`, then `valgrind BINARY object::` (memcheck). Miri is a
//! component of nightly toolchains alone.
//!
//! Out of scope: what kinds mean (`value`), when objects become hot or cold (`access`, `memory`).
#![allow(unsafe_code, reason = "one allocation for each hot key; proofs beside each block")]

#[cfg(test)]
mod tests;
mod word;

use collections::Deadline;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use journal::{LogAddress, Seq};

use crate::allocator::MAPPED_BYTES_MIN;
use crate::large::{Bytes, LARGE_BYTES, Large};
use crate::record::is_collection;

pub(crate) use word::{View, WORD_DELTAS, WORD_SHARED, Word};

/// A hot object that nobody else refers to.
pub(crate) struct Object(NonNull<u8>);

// SAFETY: an Object owns its allocation alone, and the bytes in it have no thread affinity.
unsafe impl Send for Object {}
// SAFETY: shared access only reads plain bytes; every mutation takes `&mut`.
unsafe impl Sync for Object {}

impl Object {
    /// An object of `kind` with address and seq 0; no `expiry`: it stays.
    ///
    /// # Panics
    /// If `kind` needs more than 5 bits or a length more than 32: callers check `value.max` first.
    pub(crate) fn new(kind: u8, key: &[u8], bytes: Bytes<'_>, expiry: Option<Deadline>) -> Self {
        let (value, large) = (bytes.slice(), bytes.large());
        let mut writer = FieldWriter::begin(kind, key, value.len(), large, expiry);
        if large.is_none() {
            writer.put(value);
        }
        Self(writer.base)
    }

    /// As [`Object::new`], with a value of `value_len` bytes, zeroes until `fill` writes them. They are no large value.
    ///
    /// # Panics
    /// As there.
    pub(crate) fn filled(
        kind: u8,
        key: &[u8],
        value_len: usize,
        expiry: Option<Deadline>,
        fill: impl FnOnce(&mut [u8]),
    ) -> Self {
        assert!(value_len < LARGE_BYTES, "large values are shared");
        let mut writer = FieldWriter::begin(kind, key, value_len, None, expiry);
        let value = writer.put_zeroes(value_len);
        // from here on it is whole, and goes with this if `fill` panics
        let object = Self(writer.base);
        fill(value);
        object
    }

    /// As [`Object::new`], with what `change` makes of a copy of `value`. It is no large value.
    ///
    /// # Panics
    /// As there.
    pub(crate) fn changed(
        kind: u8,
        key: &[u8],
        value: &[u8],
        expiry: Option<Deadline>,
        change: impl FnOnce(&mut [u8]),
    ) -> Self {
        assert!(value.len() < LARGE_BYTES, "large values are shared");
        let mut writer = FieldWriter::begin(kind, key, value.len(), None, expiry);
        let copy = writer.put_copy(value);
        let object = Self(writer.base);
        change(copy);
        object
    }

    /// Writes where the record lies and which effect it is.
    pub(crate) fn stamp(&mut self, address: LogAddress, seq: Seq) {
        // SAFETY: both fields lie within HEADER_BYTES of an allocation that `self` owns alone; the base is
        // aligned to 8 (`layout`).
        unsafe {
            self.0.as_ptr().add(OFFSET_PLACE).cast::<u64>().write(address.pack());
            self.0.as_ptr().add(OFFSET_SEQ).cast::<u64>().write(seq.0);
        }
    }

    /// The object, to read.
    pub(crate) fn view(&self) -> ObjectRef<'_> {
        ObjectRef { base: self.0, owner: PhantomData }
    }

    fn into_raw(self) -> u64 {
        let raw = ManuallyDrop::new(self).0.as_ptr().expose_provenance() as u64;
        assert_eq!(raw & !POINTER_MASK, 0, "user addresses have 48 bits");
        raw
    }

    /// # Safety
    /// `raw` came from [`Object::into_raw`], and its owner gives it up.
    unsafe fn from_raw(raw: u64) -> Self {
        let pointer = std::ptr::with_exposed_provenance_mut::<u8>(raw as usize);
        // SAFETY: `into_raw` took it from a NonNull.
        Self(unsafe { NonNull::new_unchecked(pointer) })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let (flags, size) = (self.view().flags(), self.view().alloc_len());
        if flags & FLAG_LARGE != 0 {
            // SAFETY: invariant 2: `new` wrote an Arc there, and the object that owns it is gone after this.
            unsafe { self.0.as_ptr().add(large_offset(flags)).cast::<Arc<Large>>().drop_in_place() }
        }
        // SAFETY: allocated in `new` with the layout of the same size (invariant 3).
        unsafe { dealloc(self.0.as_ptr(), layout(size)) }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view();
        write!(
            f,
            "Object(kind {}, seq {}, {} + {} B)",
            view.kind(),
            view.seq().0,
            view.key().len(),
            view.value().len()
        )
    }
}

/// A borrowed hot object.
#[derive(Clone, Copy)]
pub(crate) struct ObjectRef<'a> {
    base: NonNull<u8>,
    owner: PhantomData<&'a Object>,
}

impl<'a> ObjectRef<'a> {
    fn u64_at(self, offset: usize) -> u64 {
        // SAFETY: callers pass offsets of fields within the header, which is initialised; reads may be
        // unaligned (the expiry lies at 20 or 28).
        unsafe { self.base.as_ptr().add(offset).cast::<u64>().read_unaligned() }
    }

    fn u32_at(self, offset: usize) -> usize {
        // SAFETY: as `u64_at`; only called for WIDE headers, which have these fields.
        unsafe { self.base.as_ptr().add(offset).cast::<u32>().read_unaligned() as usize }
    }

    fn flags(self) -> u8 {
        // SAFETY: within HEADER_BYTES.
        unsafe { self.base.as_ptr().add(OFFSET_FLAGS).read() }
    }

    fn lengths(self) -> (usize, usize) {
        if self.flags() & FLAG_WIDE != 0 {
            return (self.u32_at(HEADER_BYTES), self.u32_at(HEADER_BYTES + 4));
        }
        // SAFETY: within HEADER_BYTES; 18 is even and the base aligned to 8, so the u16 is aligned.
        unsafe {
            let key_len = self.base.as_ptr().add(OFFSET_KEY_LEN).read();
            let value_len = self.base.as_ptr().add(OFFSET_VALUE_LEN).cast::<u16>().read();
            (key_len.into(), value_len.into())
        }
    }

    /// Bytes that were asked for its allocation.
    pub(crate) fn alloc_len(self) -> usize {
        let ((key_len, value_len), flags) = (self.lengths(), self.flags());
        alloc_len(flags, key_len + if flags & FLAG_LARGE == 0 { value_len } else { 0 })
    }

    fn slice(self, offset: usize, len: usize) -> &'a [u8] {
        // SAFETY: `new` and `rewrite` initialised header, key and value contiguously; the owner is borrowed for 'a, so nobody frees or writes
        // them, or their lengths, meanwhile.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), len) }
    }

    /// Where the newest full record lies.
    pub(crate) fn address(self) -> LogAddress {
        LogAddress::unpack(self.u64_at(OFFSET_PLACE))
    }

    /// The effect that wrote the object.
    pub(crate) fn seq(self) -> Seq {
        Seq(self.u64_at(OFFSET_SEQ))
    }

    /// The record kind.
    pub(crate) fn kind(self) -> u8 {
        self.flags() & KIND_MASK
    }

    /// When the key expires.
    pub(crate) fn expiry(self) -> Option<Deadline> {
        let flags = self.flags();
        if flags & FLAG_EXPIRY == 0 { None } else { Deadline::of(self.u64_at(fields_len(flags) - 8)) }
    }

    /// The key.
    pub(crate) fn key(self) -> &'a [u8] {
        self.slice(header_len(self.flags()), self.lengths().0)
    }

    /// The value's bytes.
    pub(crate) fn value(self) -> &'a [u8] {
        self.bytes().slice()
    }

    /// The value's bytes, by themselves or as a large value.
    pub(crate) fn bytes(self) -> Bytes<'a> {
        if self.flags() & FLAG_LARGE != 0 {
            return Bytes::Large(self.large());
        }
        let (key_len, value_len) = self.lengths();
        Bytes::Plain(self.slice(header_len(self.flags()) + key_len, value_len))
    }

    fn large(self) -> &'a Arc<Large> {
        // SAFETY: only called for LARGE headers: `new` wrote an Arc there, at an offset and in an allocation that are
        // aligned to 8. The owner is borrowed for 'a, so nobody drops it meanwhile.
        unsafe { &*self.base.as_ptr().add(large_offset(self.flags())).cast::<Arc<Large>>() }
    }

    /// What the allocation costs: glibc rounds size + 8 up to 16.
    pub(crate) fn own_bytes(self) -> u64 {
        chunk_bytes(self.alloc_len())
    }

    /// As [`ObjectRef::own_bytes`], with a value of so many bytes that is not large.
    pub(crate) fn own_bytes_with(self, value_len: usize) -> u64 {
        chunk_bytes(alloc_len(self.flags() & !FLAG_LARGE, self.lengths().0 + value_len))
    }

    /// Where its allocation begins.
    pub(crate) fn start(self) -> usize {
        self.base.as_ptr().addr()
    }

    /// Where its allocation begins, and how many bytes that takes.
    pub(crate) fn range(self) -> Range<usize> {
        self.start()..self.start() + self.own_bytes() as usize
    }

    /// As [`ObjectRef::range`], of a large value, unless the allocator maps it alone.
    pub(crate) fn large_range(self) -> Option<Range<usize>> {
        let large = if self.flags() & FLAG_LARGE == 0 { None } else { Some(self.value()) };
        let large = large.filter(|bytes| bytes.len() < MAPPED_BYTES_MIN);
        large.map(|bytes| bytes.as_ptr().addr()..bytes.as_ptr().addr() + chunk_bytes(bytes.len()) as usize)
    }

    /// What the object costs together with its large value.
    pub(crate) fn memory_bytes(self) -> u64 {
        let large = if self.flags() & FLAG_LARGE == 0 { 0 } else { chunk_bytes(self.lengths().1) };
        self.own_bytes() + large
    }
}

/// An allocation that an object can move to, or has moved from: bytes without a meaning.
pub(crate) struct Place {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a Place owns its allocation alone, and the bytes in it have no thread affinity.
unsafe impl Send for Place {}

impl Place {
    /// One of `len` bytes, at least those of a header.
    pub(crate) fn new(len: usize) -> Self {
        assert!(len >= HEADER_BYTES, "an object has a header");
        let layout = layout(len);
        // SAFETY: the layout's size is at least HEADER_BYTES, so not zero.
        let raw = unsafe { alloc(layout) };
        let Some(base) = NonNull::new(raw) else { handle_alloc_error(layout) };
        Self { base, len }
    }

    /// As [`ObjectRef::range`].
    pub(crate) fn range(&self) -> Range<usize> {
        let start = self.base.as_ptr().addr();
        start..start + chunk_bytes(self.len) as usize
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the layout of the same size, which an object that lay here had as well; what that owned went with it.
        unsafe { dealloc(self.base.as_ptr(), layout(self.len)) }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({} B)", self.len)
    }
}

/// What a malloc chunk for `len` bytes takes.
pub(crate) fn chunk_bytes(len: usize) -> u64 {
    ((len + 8).next_multiple_of(16)).max(32) as u64
}

/// Appends bytes to a fresh allocation.
struct FieldWriter {
    base: NonNull<u8>,
    at: usize,
}

impl FieldWriter {
    /// Allocates an object, and writes all of it but a value that is not large.
    fn begin(
        kind: u8,
        key: &[u8],
        value_len: usize,
        large: Option<&Arc<Large>>,
        expiry: Option<Deadline>,
    ) -> Self {
        assert!(kind <= KIND_MASK, "kind {kind} does not fit the header");
        let wide = key.len() > u8::MAX.into() || value_len > u16::MAX.into();
        let key_len = u32::try_from(key.len()).expect("keys are bounded by value.max");
        let value_bytes = u32::try_from(value_len).expect("values are bounded by value.max");
        assert!(wide || large.is_none(), "large values need the wide header");
        let marked = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = kind
            | marked(wide, FLAG_WIDE)
            | marked(expiry.is_some(), FLAG_EXPIRY)
            | marked(large.is_some(), FLAG_LARGE);
        let inline_len = if large.is_some() { 0 } else { value_len };
        let len = header_len(flags) + key.len() + inline_len;
        let base = ManuallyDrop::new(Place::new(alloc_len(flags, key.len() + inline_len))).base;
        let mut writer = Self { base, at: 0 };
        writer.put(&[0; OFFSET_FLAGS]);
        writer.put(&[flags]);
        if wide {
            writer.put(&[0; 3]);
            writer.put(&key_len.to_ne_bytes());
            writer.put(&value_bytes.to_ne_bytes());
        } else {
            writer.put(&[key_len as u8]);
            writer.put(&(value_bytes as u16).to_ne_bytes());
        }
        if let Some(expiry) = expiry {
            writer.put(&expiry.raw().to_ne_bytes());
        }
        if let Some(large) = large {
            writer.put(&[0; 8][..large_offset(flags) - writer.at]);
            writer.put_large(Arc::clone(large));
        }
        writer.put(key);
        debug_assert_eq!(writer.at + inline_len, len);
        writer
    }

    fn put(&mut self, bytes: &[u8]) {
        // SAFETY: `begin` sized the allocation as the sum of everything that is put, and a fresh
        // allocation overlaps no slice.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(self.at), bytes.len());
        }
        self.at += bytes.len();
    }

    /// Puts `len` zeroes; returns them, to be written over before anything else looks at the object.
    fn put_zeroes<'v>(&mut self, len: usize) -> &'v mut [u8] {
        // SAFETY: as `put`. The bytes are initialised here; nobody but the caller has a pointer to them.
        let zeroes = unsafe {
            let start = self.base.as_ptr().add(self.at);
            start.write_bytes(0, len);
            std::slice::from_raw_parts_mut(start, len)
        };
        self.at += len;
        zeroes
    }

    /// As [`FieldWriter::put`]; returns what was put, to be changed before anything else looks at the object.
    fn put_copy<'v>(&mut self, bytes: &[u8]) -> &'v mut [u8] {
        let at = self.at;
        self.put(bytes);
        // SAFETY: `put` has just initialised these bytes of the allocation; nobody but the caller has a pointer to them.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(at), bytes.len()) }
    }

    fn put_large(&mut self, large: Arc<Large>) {
        // SAFETY: as `put`; the caller padded up to `large_offset`, which is aligned as the base is.
        unsafe { self.base.as_ptr().add(self.at).cast::<Arc<Large>>().write(large) }
        self.at += size_of::<Arc<Large>>();
    }
}

/// Where the key begins.
fn header_len(flags: u8) -> usize {
    if flags & FLAG_LARGE != 0 { large_offset(flags) + size_of::<Arc<Large>>() } else { fields_len(flags) }
}

fn large_offset(flags: u8) -> usize {
    fields_len(flags).next_multiple_of(align_of::<Arc<Large>>())
}

fn fields_len(flags: u8) -> usize {
    HEADER_BYTES + if flags & FLAG_WIDE != 0 { 8 } else { 0 } + if flags & FLAG_EXPIRY != 0 { 8 } else { 0 }
}

/// Bytes of an allocation for a header with `flags` and so many bytes behind it. Those of a longer collection are rounded up: it changes by a few bytes at a time, and
/// stays where it is.
fn alloc_len(flags: u8, len: usize) -> usize {
    let len = header_len(flags) + len;
    if len < ROOM_FROM_BYTES || !is_collection(flags & KIND_MASK) {
        return len;
    }
    (len + MALLOC_BYTES).next_multiple_of(ROOM_BYTES) - MALLOC_BYTES
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, ALIGN_BYTES).expect("lengths are 32 bits each")
}
const POINTER_MASK: u64 = (1 << 48) - 1;
const ALIGN_BYTES: usize = 8;
const HEADER_BYTES: usize = 20;
/// Allocations of collections from so many bytes on are rounded up, to multiples of [`ROOM_BYTES`] with what malloc adds.
const ROOM_FROM_BYTES: usize = 512;
const ROOM_BYTES: usize = 128;
const MALLOC_BYTES: usize = 8;
const OFFSET_PLACE: usize = 0;
const OFFSET_SEQ: usize = 8;
const OFFSET_FLAGS: usize = 16;
const OFFSET_KEY_LEN: usize = 17;
const OFFSET_VALUE_LEN: usize = 18;
const KIND_MASK: u8 = 0x1f;
const FLAG_WIDE: u8 = 0x20;
const FLAG_EXPIRY: u8 = 0x40;
const FLAG_LARGE: u8 = 0x80;
const _: () = assert!(LARGE_BYTES > u16::MAX as usize, "large values have the wide header");
const _: () = assert!(align_of::<Arc<Large>>() <= ALIGN_BYTES);
