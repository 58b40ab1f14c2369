//! What the store writes into the journal: record kinds and their payloads, byte by byte.
//!
//! The journal's record header carries kind, keyspace id, seq and expiry_ms (0: none). Payloads are
//! little-endian, without padding. An expiry with bit 63 is server time, one without it Unix time (`time`). Every kind that has a key begins with it:
//!
//! ```text
//! key_len u32 | key | body
//!
//! kind              body                                             meaning
//!  1 STRING         value                                            the key is this string
//!  2 REMOVED        (empty)                                          the key is gone (DEL, or its time had come)
//!  3 EXPIRY         base_seq u64 | since u64                         the value of effect base_seq, which is that of each
//!                                                                    effect from since on, stays (older: no since), the header's
//!                                                                    expiry replaces its own
//!  6 PART           base_seq u64 | offset u64 | bytes, one or more   the string of effect base_seq with these bytes from offset on, which is its
//!                                                                    length at most; the header's expiry replaces its own, unless 0
//!  7 HASH           packed entries (`collections`)                   the key is this hash
//!  8 SET            packed entries                                   the key is this set
//!  9 LIST           packed entries                                   the key is this list
//! 10 SORTED_SET     packed entries                                   the key is this sorted set
//! 11 STREAM         packed entries                                   the key is this stream
//! 24 PAGED_HASH     root (`collections`)                             the key is a hash in leaves
//! 25 PAGED_SET      root (`collections`)                             the key is a set in leaves
//! 26 PAGED_LIST     root (`collections`)                             the key is a list in a tree
//! 27 PAGED_ZSET     root (`collections`)                             the key is a sorted set in leaves and a tree
//! 28 PAGED_STREAM   root (`collections`)                             the key is a stream in a tree
//! 19 CHANGE         base_seq u64 | operations, one or more (`collections`)
//!                                                                    the collection of effect base_seq after these operations; the header's
//!                                                                    expiry replaces its own, unless 0
//!
//! 20 CHANGES        no key: object u64 | parts, one or more (`Part`)   parts of one large collection: operations on its leaves and other nodes,
//!                                                                    and what its root counts
//! 22 REMOVALS       no key: object u64 | first u32 | count u32          leaves or other nodes of one large collection are gone: those with
//!                                                                    these numbers, 1,024 at most
//!
//!  4 MAPPING        next_keyspace u32 | count u32 | keyspace u32 x count       no key: database n is keyspace [n]
//!  5 CLOCK          0 u32 | boot u128 | uptime_us u64 | server_us u64 | wall_us u64 | (wall_ms u64 | seq u64) x n, 16 at most
//!                                                                    no key: what the clocks show, and ceilings (`time`)
//! ```
//!
//! Kind bit 0x80 SHARED: when the record was written, another live key had the same 48 bits of hash. Where two
//! records with equal bits both lack it, the later one's writer saw no other key alive, so the earlier one is
//! dead whichever key it had: recovery reads no keys. Where one has it, the keys on disk decide.
//!
//! The expiry in the header of a hash whose fields have deadlines is the earliest of these and the key's own, which its value has (`collections`).
//!
//! EXPIRY, PART and CHANGE are deltas: dead as soon as their base is, and meaningless on any other base. Each part of CHANGES is one, too: of a leaf
//! or node a CHANGE, of the root a TOTALS, of which there are no records.
//!
//! [`KINDS`] says of each kind what it is for, and what follows from that: which bases a delta changes and how, what salvage keeps
//! of it, which type TYPE names. A new type is a row of it, and a codec. Other kinds up to 31 are free; a hot object keeps 5 bits of kind.
//!
//! Out of scope: headers, checksums, addresses (`journal`).

mod draft;
#[cfg(test)]
mod tests;

use journal::{ContentError, Keyspace, Seq};
use smallvec::{SmallVec, smallvec};

use crate::log::fold;
use crate::value::ValueKind;
use collections::root::{Root, leaf_key, split_leaf_key};
use collections::{Packed, Shape, varint};
pub(crate) use draft::{Draft, decode_clock, encode_clock, encode_mapping, mapping_ids};

/// Version of what this code writes; the manifest states it. 1: from CLOCK on (the folders before state none). 2: from HASH, SET and
/// CHANGE on. 3: from LIST, SORTED_SET and
/// STREAM on. 4: from deadlines of fields, PAGED_HASH and PAGED_SET on. 5: from PAGED_LIST, PAGED_ZSET and PAGED_STREAM on. 6: a root may be
/// at another key than its leaves were made for. 7: checkpoints name deltas in LISTS. 8: fields of a PAGED_HASH may have deadlines. 9: CHANGES. 10: SPLICE.
/// 11: REMOVALS; and what is pending in a stream's groups may be in blocks, which are the server's.
const VERSION: u16 = 11;
/// The oldest version that understands it.
const READER_VERSION_MIN: u16 = 11;
/// The store's records, to the journal.
pub(crate) const CONTENT: journal::Content =
    journal::Content { version: VERSION, reader_version_min: READER_VERSION_MIN, check };

/// The key is a string.
pub(crate) const STRING: u8 = 1;
/// The key is gone.
pub(crate) const REMOVED: u8 = 2;
/// The value stays, its expiry changes.
pub(crate) const EXPIRY: u8 = 3;
/// Which keyspace serves which database.
pub(crate) const MAPPING: u8 = 4;
/// What the clocks show.
pub(crate) const CLOCK: u8 = 5;
/// Some bytes of a string.
pub(crate) const PART: u8 = 6;
/// The key is a hash.
pub(crate) const HASH: u8 = 7;
/// The key is a set.
pub(crate) const SET: u8 = 8;
/// The key is a list.
pub(crate) const LIST: u8 = 9;
/// The key is a sorted set.
pub(crate) const SORTED_SET: u8 = 10;
/// The key is a stream.
pub(crate) const STREAM: u8 = 11;
/// The key is a hash in leaves.
pub(crate) const PAGED_HASH: u8 = 24;
/// The key is a set in leaves.
pub(crate) const PAGED_SET: u8 = 25;
/// The key is a list in a tree.
pub(crate) const PAGED_LIST: u8 = 26;
/// The key is a sorted set in leaves and a tree.
pub(crate) const PAGED_ZSET: u8 = 27;
/// The key is a stream in a tree.
pub(crate) const PAGED_STREAM: u8 = 28;
/// Some elements of a collection.
pub(crate) const CHANGE: u8 = 19;
/// Changes of several parts of one large collection.
pub(crate) const CHANGES: u8 = 20;
/// What a root counts, by a part of [`CHANGES`]: no record is of this kind alone.
pub(crate) const TOTALS: u8 = 21;
/// Leaves or other nodes of one large collection are gone.
pub(crate) const REMOVALS: u8 = 22;
/// The oldest effect whose value totals may lie on: any before them.
pub(crate) const SINCE_TOTALS: Seq = Seq(1);
/// Another live key had the same 48 bits.
pub(crate) const SHARED: u8 = 0x80;

/// Bytes of the journal's record header.
pub(crate) const HEADER_BYTES: u64 = 48;

/// What a kind of record is for.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    /// The whole value of a key.
    Base(Base),
    /// A small change on top of a base.
    Delta(Changes),
    /// Small changes on top of several bases.
    Deltas,
    /// The key is gone.
    Removal,
    /// Several keys are.
    Removals,
    /// Something of the whole store: no key.
    State,
}

/// Makes of a value and the bodies of some deltas the value after them.
type Fold = fn(&[u8], &[&[u8]]) -> Option<Vec<u8>>;

/// A type of value.
#[derive(Clone, Copy)]
pub(crate) struct Base {
    /// The type.
    pub(crate) value: ValueKind,
    /// The deltas that change such a value.
    pub(crate) changes: Changes,
    /// Smaller values are written whole.
    pub(crate) delta_bytes_min: u64,
    /// The value after the bodies of some deltas, oldest first; `None` when one does not fit.
    pub(crate) fold: Fold,
    /// Whether these bytes are such a value.
    fits: fn(&[u8]) -> bool,
}

/// What a delta changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changes {
    /// When any key expires; the value stays.
    Expiry,
    /// Bytes of a string.
    Bytes,
    /// Elements of a collection.
    Elements,
    /// How many elements a root counts, and how many bytes.
    Totals,
}

/// The row of a type whose values are packed in this shape.
macro_rules! collection {
    ($value:expr, $shape:expr) => {
        Base {
            value: $value,
            changes: Changes::Elements,
            delta_bytes_min: collections::DELTA_BYTES_MIN,
            fold: |value, operations| collections::fold($shape, value, operations),
            fits: |value| Packed::check($shape, value),
        }
    };
}

/// The row of a type of which keys have roots.
const fn paged(value: ValueKind, fits: fn(&[u8]) -> bool) -> Base {
    Base { value, changes: Changes::Totals, delta_bytes_min: u64::MAX, fold: fold_totals, fits }
}

/// A root after the bodies of some TOTALS, the last of which says all; `None` when that is of another object.
fn fold_totals(root: &[u8], bodies: &[&[u8]]) -> Option<Vec<u8>> {
    let Some(last) = bodies.last() else { return Some(root.to_vec()) };
    let (root, (object, totals)) = (Root::decode(root)?, last.split_first_chunk()?);
    let is_its = u64::from_le_bytes(*object) == root.object;
    is_its.then(|| root.with_totals(totals))?.map(|root| root.encode().to_vec())
}

/// Whether `value` is the root of a hash.
fn fits_hashed(value: &[u8]) -> bool {
    Root::decode(value).is_some_and(|root| root.tree.is_none())
}

/// The same of a set.
fn fits_set(value: &[u8]) -> bool {
    Root::decode(value).is_some_and(|root| root.tree.is_none() && !root.is_timed)
}

/// Whether `value` is the root of a list or a stream.
fn fits_tree(value: &[u8]) -> bool {
    Root::decode(value).is_some_and(|root| root.tree.is_some() && root.leaves == 0)
}

/// Whether `value` is the root of a sorted set.
fn fits_both(value: &[u8]) -> bool {
    Root::decode(value).is_some_and(|root| root.tree.is_some() && root.leaves > 0)
}

/// Shorter strings are written whole: that costs no more than what a sync writes anyway.
const LONG_BYTES: u64 = 4 << 10;

/// What each kind is for; `None`: there is no such kind.
const KINDS: [Option<Role>; 32] = {
    let mut kinds = [None; 32];
    kinds[STRING as usize] = Some(Role::Base(Base {
        value: ValueKind::String,
        changes: Changes::Bytes,
        delta_bytes_min: LONG_BYTES,
        fold: fold::parts,
        fits: |_| true,
    }));
    kinds[HASH as usize] = Some(Role::Base(collection!(ValueKind::Hash, Shape::Map)));
    kinds[SET as usize] = Some(Role::Base(collection!(ValueKind::Set, Shape::Set)));
    kinds[PAGED_HASH as usize] = Some(Role::Base(paged(ValueKind::Hash, fits_hashed)));
    kinds[PAGED_SET as usize] = Some(Role::Base(paged(ValueKind::Set, fits_set)));
    kinds[PAGED_LIST as usize] = Some(Role::Base(paged(ValueKind::List, fits_tree)));
    kinds[PAGED_ZSET as usize] = Some(Role::Base(paged(ValueKind::SortedSet, fits_both)));
    kinds[PAGED_STREAM as usize] = Some(Role::Base(paged(ValueKind::Stream, fits_tree)));
    kinds[LIST as usize] = Some(Role::Base(collection!(ValueKind::List, Shape::List)));
    kinds[STREAM as usize] = Some(Role::Base(collection!(ValueKind::Stream, Shape::Ordered)));
    kinds[SORTED_SET as usize] = Some(Role::Base(collection!(ValueKind::SortedSet, Shape::Scored)));
    kinds[REMOVED as usize] = Some(Role::Removal);
    kinds[EXPIRY as usize] = Some(Role::Delta(Changes::Expiry));
    kinds[PART as usize] = Some(Role::Delta(Changes::Bytes));
    kinds[CHANGE as usize] = Some(Role::Delta(Changes::Elements));
    kinds[TOTALS as usize] = Some(Role::Delta(Changes::Totals));
    kinds[CHANGES as usize] = Some(Role::Deltas);
    kinds[REMOVALS as usize] = Some(Role::Removals);
    kinds[MAPPING as usize] = Some(Role::State);
    kinds[CLOCK as usize] = Some(Role::State);
    kinds
};

/// What `kind`, with or without SHARED, is for.
pub(crate) fn role(kind: u8) -> Option<&'static Role> {
    KINDS.get(usize::from(kind & !SHARED))?.as_ref()
}

/// The row of a whole value's kind; `None` of other kinds.
pub(crate) fn base(kind: u8) -> Option<&'static Base> {
    match role(kind) {
        Some(Role::Base(base)) => Some(base),
        _ => None,
    }
}

/// Whether `bytes` are a value of `kind`, without SHARED.
pub(crate) fn is_value(kind: u8, bytes: &[u8]) -> bool {
    kind & SHARED == 0 && base(kind).is_some_and(|base| (base.fits)(bytes))
}

/// What a delta of `kind` changes; `None` of other kinds.
pub(crate) fn changes(kind: u8) -> Option<Changes> {
    match role(kind) {
        Some(Role::Delta(changes)) => Some(*changes),
        _ => None,
    }
}

/// Whether `kind` is a delta that changes a value, not only its expiry.
pub(crate) fn changes_value(kind: u8) -> bool {
    changes(kind).is_some_and(|changes| changes != Changes::Expiry)
}

/// The kind of whole values of this type.
pub(crate) fn kind_of(value: ValueKind) -> u8 {
    match value {
        ValueKind::String => STRING,
        ValueKind::Hash => HASH,
        ValueKind::Set => SET,
        ValueKind::List => LIST,
        ValueKind::SortedSet => SORTED_SET,
        ValueKind::Stream => STREAM,
    }
}

/// Whether a value of this kind is a collection, or a part of one, that is packed.
pub(crate) const fn is_collection(kind: u8) -> bool {
    matches!(kind, HASH..=STREAM)
}

/// The kind of roots of collections of this type; `None`: they have none.
pub(crate) fn paged_kind_of(value: ValueKind) -> Option<u8> {
    match value {
        ValueKind::String => None,
        ValueKind::Hash => Some(PAGED_HASH),
        ValueKind::Set => Some(PAGED_SET),
        ValueKind::List => Some(PAGED_LIST),
        ValueKind::SortedSet => Some(PAGED_ZSET),
        ValueKind::Stream => Some(PAGED_STREAM),
    }
}

/// The root in the value of a record of `kind`; `None`: it is none.
pub(crate) fn root_of(kind: u8, value: &[u8]) -> Option<Root> {
    is_root(kind).then(|| Root::decode(value))?
}

/// Whether records of `kind` are roots.
pub(crate) fn is_root(kind: u8) -> bool {
    (PAGED_HASH..=PAGED_STREAM).contains(&(kind & !SHARED))
}

/// Bytes in its segment of a record of `kind` with a base image of `value_len`.
pub(crate) fn bytes_of(_kind: u8, key_len: usize, value_len: usize) -> u64 {
    HEADER_BYTES + (4 + key_len as u64 + value_len as u64).next_multiple_of(8)
}

/// Bytes in its segment of a PART with `len` bytes of a string.
pub(crate) fn part_bytes(key_len: usize, len: usize) -> u64 {
    HEADER_BYTES + (4 + key_len as u64 + 16 + len as u64).next_multiple_of(8)
}

/// Bytes in its segment of a CHANGE with operations of `len` bytes.
pub(crate) fn change_bytes(key_len: usize, len: usize) -> u64 {
    HEADER_BYTES + (4 + key_len as u64 + 8 + len as u64).next_multiple_of(8)
}

/// Whether a record of `kind` is small and lies on top of another one.
pub(crate) fn is_delta(kind: u8) -> bool {
    changes(kind).is_some()
}

/// A decoded payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload<'a> {
    /// A base, or REMOVED: key and value.
    Whole { key: &'a [u8], value: &'a [u8] },
    /// EXPIRY, PART, CHANGE.
    Delta { key: &'a [u8], base_seq: Seq, body: &'a [u8] },
    /// CHANGES.
    Deltas(Parts<'a>),
    /// REMOVALS.
    Removals(Removals),
    /// MAPPING.
    Mapping { next_keyspace: Keyspace, keyspaces: &'a [u8] },
    /// CLOCK.
    Clock(&'a [u8]),
}

impl<'a> Payload<'a> {
    /// The key, if the kind has one.
    pub(crate) fn key(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Whole { key, .. } | Self::Delta { key, .. } => Some(key),
            Self::Deltas(_) | Self::Removals(_) | Self::Mapping { .. } | Self::Clock(_) => None,
        }
    }
}

/// The parts of a CHANGES, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    /// The number of the collection.
    pub(crate) object: u64,
    rest: &'a [u8],
}

/// What a CHANGES says of one part of its collection.
///
/// ```text
/// root  0 varint | slot of the key's hash u48 | len varint | totals (`Root::with_totals`)
/// node  code varint (`node_code`) | base_seq varint | len varint | operations
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// The root at the key with this [`crate::hash::KeyHash::slot`], which may lie on any older state of it.
    Root { slot: u64, totals: &'a [u8] },
    /// The leaf or other node with this number.
    Node { number: u32, base_seq: Seq, operations: &'a [u8] },
}

impl<'a> Parts<'a> {
    fn decode(payload: &'a [u8]) -> Option<Self> {
        let (object, rest) = payload.split_first_chunk()?;
        let parts = Self { object: u64::from_le_bytes(*object), rest };
        let mut left = rest;
        while !left.is_empty() {
            match Part::take(&mut left)? {
                Part::Root { totals, .. } => Root::take_totals(totals).map(drop)?,
                Part::Node { operations, .. } => collections::are_operations(operations).then_some(())?,
            }
        }
        (!rest.is_empty()).then_some(parts)
    }

    /// The part of the root if `is_root`, and of the node with this key if not.
    pub(crate) fn of(mut self, key: &[u8], is_root: bool) -> Option<Part<'a>> {
        let object = self.object;
        self.find(|part| match *part {
            Part::Root { .. } => is_root,
            Part::Node { number, .. } => !is_root && split_leaf_key(key) == Some((object, number)),
        })
    }

    /// The record of one of these parts alone: its kind, and its payload.
    pub(crate) fn alone(&self, part: &Part<'_>) -> (u8, Vec<u8>) {
        match *part {
            Part::Root { slot, totals } => {
                let mut encoder = PartsEncoder::new(self.object);
                encoder.root(slot, totals);
                (CHANGES, encoder.payload.to_vec())
            }
            Part::Node { number, base_seq, operations } => {
                let key = leaf_key(self.object, number);
                (
                    CHANGE,
                    Draft::delta(CHANGE, Keyspace::NONE, &key, base_seq, operations, None).parts().concat(),
                )
            }
        }
    }

    /// What a fold takes of a part: the kind of delta, and its body.
    pub(crate) fn body(&self, part: &Part<'a>) -> (u8, Vec<u8>) {
        match part {
            Part::Root { totals, .. } => (TOTALS, [&self.object.to_le_bytes()[..], totals].concat()),
            Part::Node { operations, .. } => (CHANGE, operations.to_vec()),
        }
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        Part::take(&mut self.rest)
    }
}

/// Which part of a collection a record changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// The root at the key with this [`crate::hash::KeyHash::slot`].
    Root(u64),
    /// The leaf or other node with this number.
    Node(u32),
}

impl<'a> Part<'a> {
    /// Which one it is.
    pub(crate) fn named(&self) -> Named {
        match *self {
            Self::Root { slot, .. } => Named::Root(slot),
            Self::Node { number, .. } => Named::Node(number),
        }
    }

    /// As [`since`].
    pub(crate) fn since(&self) -> Seq {
        match *self {
            Self::Root { .. } => SINCE_TOTALS,
            Self::Node { base_seq, .. } => base_seq,
        }
    }

    fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        let code = varint::take(bytes)?;
        if code == 0 {
            let (slot, rest) = bytes.split_first_chunk::<SLOT_BYTES>()?;
            *bytes = rest;
            return Some(Self::Root { slot: slot_of(slot), totals: take_counted(bytes)? });
        }
        let (number, base_seq) = (node_of(code)?, Seq(varint::take(bytes)?));
        Some(Self::Node { number, base_seq, operations: take_counted(bytes)? })
    }
}

/// Takes off the front what is preceded by its length.
fn take_counted<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(varint::take(bytes)?).ok()?;
    let (counted, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(counted)
}

/// The leaves and other nodes that a REMOVALS says are gone: one or more, whose numbers follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Removals {
    /// The number of the collection.
    pub(crate) object: u64,
    first: u32,
    last: u32,
}

impl Removals {
    /// Leaf or node `number` of `object`.
    pub(crate) fn one(object: u64, number: u32) -> Self {
        Self { object, first: number, last: number }
    }

    /// These and `number`, if it is the next one and a record has room for it.
    pub(crate) fn with(self, number: u32) -> Option<Self> {
        let follows = self.last.checked_add(1) == Some(number) && number - self.first < REMOVALS_MAX;
        follows.then_some(Self { last: number, ..self })
    }

    /// Their numbers.
    pub(crate) fn numbers(self) -> impl Iterator<Item = u32> {
        self.first..=self.last
    }

    /// Their payload.
    pub(crate) fn encode(self) -> [u8; REMOVALS_BYTES] {
        let count = self.last - self.first + 1;
        let fields = u128::from(self.object) | u128::from(self.first) << 64 | u128::from(count) << 96;
        fields.to_le_bytes()
    }

    /// Those of a payload.
    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let (object, rest) = payload.split_first_chunk()?;
        let ([first, count], []) = rest.as_chunks() else { return None };
        let (first, count) = (u32::from_le_bytes(*first), u32::from_le_bytes(*count));
        let last = first.checked_add(count.checked_sub(1)?).filter(|_| count <= REMOVALS_MAX)?;
        Some(Self { object: u64::from_le_bytes(*object), first, last })
    }
}

/// Bytes of the payload of a REMOVALS: as many as a footer has for a hash.
pub(crate) const REMOVALS_BYTES: usize = 16;
/// What one REMOVALS removes at most, so that no record makes its reader do more.
pub(crate) const REMOVALS_MAX: u32 = 1 << 10;

/// Writes the payload of a CHANGES.
pub(crate) struct PartsEncoder {
    pub(crate) payload: SmallVec<[u8; PARTS_BYTES_FEW]>,
}

impl PartsEncoder {
    /// One for parts of `object`.
    pub(crate) fn new(object: u64) -> Self {
        Self { payload: SmallVec::from_slice(&object.to_le_bytes()) }
    }

    /// Adds the root.
    pub(crate) fn root(&mut self, slot: u64, totals: &[u8]) {
        self.payload.push(0);
        self.payload.extend_from_slice(&slot.to_le_bytes()[..SLOT_BYTES]);
        self.counted(totals);
    }

    /// Adds a leaf or another node.
    pub(crate) fn node(&mut self, number: u32, base_seq: Seq, operations: &[u8]) {
        self.payload.extend_from_slice(&varint::encode(node_code(number)));
        self.payload.extend_from_slice(&varint::encode(base_seq.0));
        self.counted(operations);
    }

    fn counted(&mut self, bytes: &[u8]) {
        self.payload.extend_from_slice(&varint::encode(bytes.len() as u64));
        self.payload.extend_from_slice(bytes);
    }
}

/// How a part names a leaf or node: small numbers are short, and 0 is the root.
pub(crate) fn node_code(number: u32) -> u64 {
    1 + u64::from(number.rotate_left(1))
}

/// The number that [`node_code`] stands for.
pub(crate) fn node_of(code: u64) -> Option<u32> {
    u32::try_from(code.checked_sub(1)?).ok().map(|code| code.rotate_right(1))
}

/// A slot as parts and footers have it.
pub(crate) fn slot_of(bytes: &[u8; SLOT_BYTES]) -> u64 {
    let mut slot = [0; 8];
    slot[..SLOT_BYTES].copy_from_slice(bytes);
    u64::from_le_bytes(slot)
}

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = 6;
/// Of the changes of one short element.
const PARTS_BYTES_FEW: usize = 128;

/// Takes a payload apart; `None` when it does not fit its kind.
pub(crate) fn decode(kind: u8, payload: &[u8]) -> Option<Payload<'_>> {
    let (role, (first, rest)) = (role(kind)?, split_u32(payload)?);
    match role {
        Role::State => return decode_state(kind & !SHARED, payload),
        Role::Deltas => return Parts::decode(payload).map(Payload::Deltas),
        Role::Removals => return Removals::decode(payload).map(Payload::Removals),
        Role::Base(_) | Role::Delta(_) | Role::Removal => {}
    }
    let (key, body) = rest.split_at_checked(usize::try_from(first).ok()?)?;
    match role {
        Role::Base(base) => (base.fits)(body).then_some(Payload::Whole { key, value: body }),
        Role::Removal => body.is_empty().then_some(Payload::Whole { key, value: body }),
        Role::Delta(changes) => {
            let (base_seq, body) = body.split_first_chunk::<8>()?;
            let fits = match changes {
                Changes::Expiry => body.is_empty() || body.len() == 8,
                Changes::Bytes => body.len() > 8,
                Changes::Elements => collections::are_operations(body),
                Changes::Totals => false,
            };
            fits.then_some(Payload::Delta { key, base_seq: Seq(u64::from_le_bytes(*base_seq)), body })
        }
        Role::State | Role::Deltas | Role::Removals => None,
    }
}

fn decode_state(kind: u8, payload: &[u8]) -> Option<Payload<'_>> {
    if kind == CLOCK {
        return decode_clock(payload).is_some().then_some(Payload::Clock(payload));
    }
    let (next_keyspace, rest) = split_u32(payload)?;
    let (count, keyspaces) = split_u32(rest)?;
    let whole = keyspaces.len() == usize::try_from(count).ok()?.checked_mul(4)?;
    whole.then_some(Payload::Mapping { next_keyspace: Keyspace(next_keyspace), keyspaces })
}

/// Of a delta of `kind`: the oldest effect whose value it may lie on; NONE of others.
pub(crate) fn since(kind: u8, payload: &[u8]) -> Seq {
    let Some(Payload::Delta { base_seq, body, .. }) = decode(kind, payload) else { return Seq::NONE };
    match body.first_chunk() {
        Some(since) if changes(kind) == Some(Changes::Expiry) => {
            Seq(u64::from_le_bytes(*since)).min(base_seq)
        }
        _ => base_seq,
    }
}

/// As [`since`], of a record with parts that of each.
pub(crate) fn each_since(kind: u8, payload: &[u8]) -> SmallVec<[Seq; 4]> {
    match decode(kind, payload) {
        Some(Payload::Deltas(parts)) => parts.map(|part| part.since()).collect(),
        _ => smallvec![since(kind, payload)],
    }
}

/// Whether a record of `kind` is one of the store's, and has a payload that fits; otherwise what is wrong.
pub(crate) fn check(kind: u8, payload: Option<&[u8]>) -> Result<(), ContentError> {
    if role(kind).is_none() {
        return Err(ContentError::UnknownKind { kind });
    }
    match payload {
        Some(payload) if decode(kind, payload).is_none() => Err(ContentError::Payload { kind }),
        _ => Ok(()),
    }
}

fn split_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*head), rest))
}
