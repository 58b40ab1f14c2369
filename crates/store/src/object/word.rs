//! The slot word: an address in the log, or a hot object that it owns.
//!
//! ```text
//! bit 63 HOT         the rest is a pointer, and the word owns the object
//! bit 62 SHARED      another live key had the same 48 bits when the record was written (`record`)
//! bit 61 DELTAS      the stripe lists deltas for this base (`index::stripe`)
//! hot: bits 59-60 level of use (`policy`), bits 0-47 pointer
//! cold: bit 60 mark of use (`policy`), bits 32-59 segment, bits 0-31 offset in units of 8 bytes
//! ```
//!
//! Invariants
//!   1. A word with HOT owns exactly one live object; dropping the word frees it.
//!   2. Others read the object through `&Word` alone; `&mut Word` excludes them.
//!
//! Out of scope: what an object consists of (`object`), when it becomes hot or cold (`access`, `memory`).

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use journal::{LogAddress, Seq};

use super::{
    FLAG_LARGE, FLAG_WIDE, OFFSET_VALUE_LEN, Object, ObjectRef, POINTER_MASK, Place, alloc_len, header_len,
};
use crate::index::cpu::prefetch;
use crate::large::{Bytes, LARGE_BYTES};
use crate::policy::{self, LEVEL_MAX};

/// A slot's word: an address, or a hot object that it owns. Two halves, so that a slot packs into 12 bytes.
pub(crate) struct Word(Halves);

/// A u64 that is aligned to 4.
struct Halves {
    low: Cell<u32>,
    high: Cell<u32>,
}

impl Halves {
    fn new(word: u64) -> Self {
        Self { low: Cell::new(word as u32), high: Cell::new((word >> 32) as u32) }
    }

    fn get(&self) -> u64 {
        u64::from(self.high.get()) << 32 | u64::from(self.low.get())
    }

    fn set(&self, word: u64) {
        self.low.set(word as u32);
        self.high.set((word >> 32) as u32);
    }
}

/// What a word holds.
pub(crate) enum View<'a> {
    /// The object is in memory.
    Hot(ObjectRef<'a>),
    /// The record lies at this address.
    Cold(LogAddress),
}

impl Word {
    /// A word that owns `object`.
    pub(crate) fn hot(object: Object, marks: u64) -> Self {
        debug_assert_eq!(marks & !MARKS_MASK, 0);
        Self(Halves::new(object.into_raw() | WORD_HOT | marks))
    }

    /// A word that names `address`.
    ///
    /// # Panics
    /// If the segment number needs more than 28 bits.
    pub(crate) fn cold(address: LogAddress, marks: u64) -> Self {
        assert_eq!(address.pack() & !PLACE_MASK, 0, "segment number beyond 28 bits");
        debug_assert_eq!(marks & !MARKS_MASK, 0);
        Self(Halves::new(address.pack() | marks))
    }

    /// What the word holds.
    pub(crate) fn view(&self) -> View<'_> {
        match self.object() {
            Some(object) => View::Hot(object),
            None => View::Cold(LogAddress::unpack(self.0.get() & PLACE_MASK)),
        }
    }

    /// The object, if hot.
    pub(crate) fn object(&self) -> Option<ObjectRef<'_>> {
        if self.0.get() & WORD_HOT == 0 {
            return None;
        }
        let pointer = std::ptr::with_exposed_provenance_mut::<u8>((self.0.get() & POINTER_MASK) as usize);
        let base = NonNull::new(pointer).expect("hot words come from `Word::hot`");
        Some(ObjectRef { base, owner: PhantomData })
    }

    /// Brings the object near, if hot: header, key and a short value.
    pub(crate) fn prefetch(&self) {
        if let Some(object) = self.object() {
            let base = object.base.as_ptr();
            [0, 64, 128].into_iter().for_each(|offset| prefetch(base.wrapping_add(offset)));
        }
    }

    /// Where the base record lies.
    pub(crate) fn address(&self) -> LogAddress {
        match self.view() {
            View::Hot(object) => object.address(),
            View::Cold(address) => address,
        }
    }

    /// Turns the word to another address of the same record.
    pub(crate) fn swing(&mut self, address: LogAddress) {
        if self.0.get() & WORD_HOT == 0 {
            let is_marked = self.is_marked();
            *self = Self::cold(address, self.marks());
            self.set_marked(is_marked);
            return;
        }
        // SAFETY: invariant 1: the word owns the object, and `&mut self` excludes readers. ManuallyDrop
        // leaves the ownership with the word.
        let mut object = ManuallyDrop::new(unsafe { Object::from_raw(self.0.get() & POINTER_MASK) });
        let seq = object.view().seq();
        object.stamp(address, seq);
    }

    /// Lets `write` overwrite bytes of the value of a hot word, as effect `seq` does.
    ///
    /// # Panics
    /// If the word is cold, or its value is large: others may hold that.
    pub(crate) fn overwrite(&mut self, seq: Seq, write: impl FnOnce(&mut [u8])) {
        let object = self.object().expect("cold words have nothing to overwrite");
        assert_eq!(object.flags() & FLAG_LARGE, 0, "a large value is not the word's alone");
        let ((key_len, value_len), address) = (object.lengths(), object.address());
        let at = header_len(object.flags()) + key_len;
        // SAFETY: these are the initialised bytes of the value (`bytes`), in an allocation that the word owns (invariant 1); `&mut self` excludes
        // readers for as long as the slice lives.
        write(unsafe { std::slice::from_raw_parts_mut(object.base.as_ptr().add(at), value_len) });
        // SAFETY: as in `swing`.
        let mut object = ManuallyDrop::new(unsafe { Object::from_raw(self.0.get() & POINTER_MASK) });
        object.stamp(address, seq);
    }

    /// Lets the object of a hot word have this value by effect `seq`: in its allocation, if that has room for it and needs no more, and else in a new one. Address,
    /// expiry, level and marks stay.
    ///
    /// # Panics
    /// If the word is cold, or a value is large.
    pub(crate) fn rewrite(&mut self, seq: Seq, value: &[u8]) {
        let object = self.object().expect("cold words have nothing to rewrite");
        let (flags, (key_len, _), address) = (object.flags(), object.lengths(), object.address());
        assert!(flags & FLAG_LARGE == 0 && value.len() < LARGE_BYTES, "large values are shared");
        if flags & FLAG_WIDE != 0 || alloc_len(flags, key_len + value.len()) != object.alloc_len() {
            let mut object = Object::new(object.kind(), object.key(), Bytes::Plain(value), object.expiry());
            object.stamp(address, seq);
            let of_word = self.0.get() & !POINTER_MASK;
            // SAFETY: as in `drop`; the word owns the new object from here on.
            let before = unsafe { Object::from_raw(self.0.get() & POINTER_MASK) };
            self.0.set(of_word | object.into_raw());
            drop(before);
            return;
        }
        let base = object.base.as_ptr();
        // SAFETY: header, key and a value of so many bytes lie within the allocation, whose size stays the same (invariant 3), and which the word owns
        // (invariant 1); `&mut self` excludes readers, and `value` is of somebody else. The header is not WIDE, so the length is a u16, aligned as in `lengths`.
        unsafe {
            base.add(OFFSET_VALUE_LEN).cast::<u16>().write(value.len() as u16);
            std::ptr::copy_nonoverlapping(value.as_ptr(), base.add(header_len(flags) + key_len), value.len());
        }
        // SAFETY: as in `swing`.
        let mut object = ManuallyDrop::new(unsafe { Object::from_raw(self.0.get() & POINTER_MASK) });
        object.stamp(address, seq);
    }

    /// Moves the object of a hot word to `place`; returns the place that it leaves. Level and marks stay.
    ///
    /// # Panics
    /// If the word is cold, or `place` is of another size.
    pub(crate) fn move_to(&mut self, place: Place) -> Place {
        let from = self.object().expect("cold words have nothing to move");
        let (base, len) = (from.base, from.alloc_len());
        assert_eq!(len, place.len, "a place of another size");
        // SAFETY: both allocations have `len` bytes, and a fresh one overlaps nothing; a copy need not be of initialised bytes alone. What the object
        // owns is owned by the copy from here on: the old bytes become a Place, which drops none of it. `&mut self` excludes readers.
        unsafe { std::ptr::copy_nonoverlapping(base.as_ptr(), place.base.as_ptr(), len) };
        let raw = Object(ManuallyDrop::new(place).base).into_raw();
        self.0.set(self.0.get() & !POINTER_MASK | raw);
        Place { base, len }
    }

    /// SHARED and DELTAS.
    pub(crate) fn marks(&self) -> u64 {
        self.0.get() & MARKS_MASK
    }

    /// Counts a read of the object; writes only where that changes its level.
    pub(crate) fn refer(&self) {
        let level = self.level();
        let touched = policy::touched(level);
        if touched != level {
            self.set_level(touched);
        }
    }

    /// The level of use of a hot word.
    pub(crate) fn level(&self) -> u8 {
        debug_assert_ne!(self.0.get() & WORD_HOT, 0, "cold words have a mark");
        ((self.0.get() & LEVEL_MASK) >> LEVEL_SHIFT) as u8
    }

    /// Sets the level of use of a hot word.
    pub(crate) fn set_level(&self, level: u8) {
        debug_assert!(self.0.get() & WORD_HOT != 0 && level <= LEVEL_MAX, "level {level}");
        self.0.set(self.0.get() & !LEVEL_MASK | u64::from(level) << LEVEL_SHIFT);
    }

    /// Whether a cold word has the mark of use.
    pub(crate) fn is_marked(&self) -> bool {
        self.0.get() & (WORD_HOT | MARKED) == MARKED
    }

    /// Sets or clears the mark of use of a cold word.
    pub(crate) fn set_marked(&self, is_marked: bool) {
        debug_assert_eq!(self.0.get() & WORD_HOT, 0, "hot words have a level");
        self.0.set(self.0.get() & !MARKED | if is_marked { MARKED } else { 0 });
    }

    /// Sets `mark`.
    pub(crate) fn set_mark(&mut self, mark: u64) {
        debug_assert_eq!(mark & !MARKS_MASK, 0);
        self.0.set(self.0.get() | mark);
    }

    /// Clears `mark`.
    pub(crate) fn clear_mark(&mut self, mark: u64) {
        debug_assert_eq!(mark & !MARKS_MASK, 0);
        self.0.set(self.0.get() & !mark);
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        if self.0.get() & WORD_HOT != 0 {
            // SAFETY: invariant 1: the word owns the object and is gone after this.
            drop(unsafe { Object::from_raw(self.0.get() & POINTER_MASK) });
        }
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Word({:#x})", self.0.get())
    }
}

/// Another live key had the same bits when the record was written.
pub(crate) const WORD_SHARED: u64 = 1 << 62;
/// The stripe lists deltas for this base.
pub(crate) const WORD_DELTAS: u64 = 1 << 61;
/// The largest segment number that a word can hold.
pub(super) const SEGMENT_MAX: u32 = (1 << 28) - 1;
const WORD_HOT: u64 = 1 << 63;
const MARKS_MASK: u64 = WORD_SHARED | WORD_DELTAS;
/// Of a hot word.
const LEVEL_SHIFT: u32 = 59;
const LEVEL_MASK: u64 = 3 << LEVEL_SHIFT;
/// Of a cold word.
const MARKED: u64 = 1 << 60;
const PLACE_MASK: u64 = (1 << 60) - 1;

const _: () = assert!((WORD_HOT | MARKED) & MARKS_MASK == 0 && (MARKS_MASK | MARKED) & PLACE_MASK == 0);
const _: () = assert!((WORD_HOT | MARKS_MASK | POINTER_MASK) & LEVEL_MASK == 0);
const _: () = assert!(LEVEL_MAX as u64 <= LEVEL_MASK >> LEVEL_SHIFT);
const _: () = assert!((SEGMENT_MAX as u64) << 32 | 0xffff_ffff == PLACE_MASK);
