//! Collections as bytes, the same in memory and in the log: what they are, how they are read, and the operations that change them.
//!
//! A small collection is *packed entries*, one run of bytes (below). A large one is a root ([`root`]) and leaves, each packed entries
//! again; what has an order has a counted tree over its leaves ([`tree`]). All of it is pure: no log, no locks, no keys, no clock.
//!
//! ```text
//!  0 count u32
//!  4 form u8               how Redis would keep it: 0 integers, 1 listpack, 2 hash table, skip list or quicklist
//!  5 flags u8              bit 0 WIDE: offsets are u32; bit 1 TIMED, of a Map alone: fields have deadlines
//!  6 0 u16
//!    [TIMED: own u64, wall u64, server u64]   the key's own deadline (0: none), and the earliest of fields by each clock (0: none; not both)
//!    tags                  u16 x count, not in a List or an Ordered: bits of the keyed hash of the element, to look for it without reading entries
//!    offsets               u16 or u32 x count: where each entry begins in what follows, ascending, the first is 0
//!    entries               Map: key_len varint | value_len varint | key | value        Set: key_len varint | key
//!                          Scored: key_len varint | key | score f64                    List: value_len varint | value
//!                          Ordered: as a Map
//!                          Map with TIMED: is_timed u8, [deadline u64] before that
//! ```
//!
//! Entries of a Map and of a Set are in the order in which they were added, those of a List as the list has them, those of a Scored by score,
//! then by key, those of an Ordered by key. Numbers are little-endian; a varint has 7 bits a byte, the lowest first. A score is never NaN.
//! A change is logged as operations; those of one commit follow each other in one CHANGE:
//!
//! ```text
//! 1 PUT         tag u16 | key_len varint | value_len varint | key | value     of a Map: the element is this
//! 2 DELETE      tag u16 | key_len varint | key                                the element is gone; not of a List
//! 3 ADD         tag u16 | key_len varint | key                                of a Set: the element is there
//! 4 SCORE       tag u16 | key_len varint | key | score f64                    of a Scored: the element is there with this score
//!
//! 5 PUSH_FRONT  value_len varint | value                                      of a List, as those that follow
//! 6 PUSH_BACK   value_len varint | value
//! 7 INSERT      index varint | value_len varint | value                       before the element that had this index
//! 8 SET         index varint | value_len varint | value
//! 9 REMOVE      index varint | count varint                                   as many from this index on
//! 10 REMOVE_EQUAL  from_back u8 | count varint | value_len varint | value     the first elements, or the last, with this value
//!
//! 11 ENTRY      key_len varint | value_len varint | key | value               of an Ordered: the element is this
//! 12 DROP       key_len varint | key                                          of an Ordered: the element is gone
//!
//! 13 TIME       tag u16 | key_len varint | key | deadline u64                 of a Map: the field ends then (0: never); PUT lets it end never
//! 14 PURGE      wall u64 | server u64                                         of a Map: fields are gone whose deadlines are up to these
//! 15 OWN        deadline u64                                                  of a Map: the key's own deadline, where fields have some
//!
//! 16 SPLICE     index varint | from varint | len varint | bytes, one or more  of a List: these bytes of the element with this index are others
//! ```
//!
//! Invariants
//!   1. Elements are distinct, but in a List. What [`Packed::check`] accepts can be read without a panic; it does not look
//!      for doubles.
//!   2. Folding the operations of an [`Edit`] or a [`ListEdit`] into what it began with gives what it ended with, byte by byte.
//!
//! Weighed: sorted entries of sets (Redis shows the order of insertion of small collections), a map that is built when a value is read (a fold
//! and an eviction would each be a conversion, and memory would hold both).
//! Out of scope: where values live and when a change is logged as operations (`store`), what commands mean (`server`).

mod deadline;
mod edit;
mod entries;
mod filling;
#[doc(hidden)]
pub mod fuzzing;
mod list;
mod ordered;
pub mod root;
mod search;
mod times;
pub mod tree;
pub mod varint;

pub use deadline::{Deadline, Moment};

pub use edit::{Edit, note_map};
pub use entries::{Element, Form, Packed, Shape, by_score, elements_bytes, score_of, times_of, with_own};
pub use filling::{concat, range, select};
pub use list::{ListChange, ListEdit, ListEnd};
pub use ordered::OrderedEdit;
pub use search::Wanted;
pub use times::Times;

/// All elements as operations with tag 0: what means the same under any key of the hash. [`load`] reads it. Deadlines of fields are
/// times of the wall clock in it, those of the server with bit 63 beside, so that they mean the same elsewhere.
#[must_use]
pub fn dump(packed: Packed<'_>, now: Moment) -> Vec<u8> {
    match packed.shape() {
        Shape::List => list::dump(packed),
        Shape::Ordered => ordered::dump(packed),
        Shape::Map | Shape::Set | Shape::Scored => edit::dump(packed, now),
    }
}

/// The collection in `dump`, as [`dump`] made it, without fields whose time has come; `tag_of` is the tag that the store gives an element. `None` when it
/// is none, has an element twice, or has them in another order.
pub fn load(shape: Shape, dump: &[u8], now: Moment, tag_of: impl Fn(&[u8]) -> u16) -> Option<Vec<u8>> {
    match shape {
        Shape::List => list::load(dump),
        Shape::Ordered => ordered::load(dump),
        _ => edit::load(shape, dump, now, tag_of),
    }
}

/// What `value` becomes by some bodies of CHANGE, oldest first; `None` when one does not fit.
pub fn fold(shape: Shape, value: &[u8], changes: &[&[u8]]) -> Option<Vec<u8>> {
    let packed = Packed::split(shape, value)?;
    match shape {
        Shape::List => list::fold(packed, changes),
        Shape::Ordered => ordered::fold(packed, changes),
        _ => edit::fold(packed, changes),
    }
}

/// The operations of an [`Edit`] one by one, each with the key of its element; without those that are about the key itself.
pub fn elements_of(operations: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = operations;
    let each = std::iter::from_fn(move || {
        let (operation, behind) = edit::split_operation(rest)?;
        let bytes = &rest[..rest.len() - behind.len()];
        rest = behind;
        Some((operation, bytes))
    });
    each.filter(|(operation, _)| operation.has_element()).map(|(operation, bytes)| (operation.key, bytes))
}

/// Whether `bytes` are operations, one or more.
pub fn are_operations(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        let of_list = || list::split_operation(rest).map(|(_, behind)| behind);
        let of_ordered = || ordered::split_operation(rest).map(|(_, behind)| behind);
        let behind = edit::split_operation(rest).map(|(_, behind)| behind);
        match behind.or_else(of_list).or_else(of_ordered) {
            Some(behind) => rest = behind,
            None => return false,
        }
    }
    !bytes.is_empty()
}

/// What the keys of a stream's entries begin with: those that clients count.
pub const STREAM_ENTRY: &[u8] = b"e";
/// Changes of smaller collections are logged as the whole collection: that costs about as much, and is read at once.
pub const DELTA_BYTES_MIN: u64 = 512;

#[cfg(test)]
mod tests;
