//! A key as an access sees it: what is staged, or what is there.

use journal::Seq;

use crate::index::delta::Delta;
use crate::index::stripe::Current;
use crate::index::table::Spot;
use crate::large::Bytes;
use crate::log::checkpoint::BODY_SIZE_BYTES_MAX;
use crate::object::{Object, ObjectRef};
use crate::record;
use crate::value::{Meta, ValueKind};
use collections::{Deadline, Times};

/// A key's state as an access sees it.
#[derive(Clone, Copy)]
pub(super) struct State<'a> {
    pub(super) kind: u8,
    pub(super) value: Bytes<'a>,
    /// When the key expires.
    pub(super) expiry: Option<Deadline>,
    /// The same, or when the first of its fields does: what its records say.
    pub(super) header_expiry: Option<Deadline>,
    pub(super) seq: Seq,
    /// What it is in memory, if it is there.
    pub(super) object: Option<ObjectRef<'a>>,
    /// Where it is in memory, if it may be overwritten there.
    pub(super) spot: Option<Spot>,
    pub(super) staged: bool,
    /// What lies on its base in the log.
    pub(super) deltas: &'a [Delta],
    pub(super) value_len: u64,
    pub(super) has_value: bool,
    /// A lookup of its own has read it from disk.
    pub(super) was_read: bool,
}

impl<'a> State<'a> {
    pub(super) fn staged(object: &'a Object) -> Self {
        Self { seq: Seq::NONE, staged: true, ..Self::current(Current::Hot(object.view())) }
    }

    pub(super) fn current(current: Current<'a>) -> Self {
        Self::timed(current, current.times())
    }

    /// The same, whose fields end at `times`.
    pub(super) fn timed(current: Current<'a>, times: Option<Times>) -> Self {
        let (kind, value, header_expiry) = (current.kind(), current.value(), current.expiry());
        Self {
            kind,
            value,
            expiry: times.map_or(header_expiry, |times| Deadline::of(times.own)),
            header_expiry,
            seq: current.seq(),
            object: if let Current::Hot(object) = current { Some(object) } else { None },
            spot: None,
            staged: false,
            deltas: &[],
            value_len: current.value_len(),
            has_value: current.has_value(),
            was_read: false,
        }
    }

    /// Whether it is a hash whose fields have deadlines.
    pub(super) fn is_timed(&self) -> bool {
        self.kind == record::HASH && collections::times_of(self.value.slice()).is_some()
    }

    /// How many deltas its base has at most: of a long value as many as cost about as much to read as it does; of a short collection
    /// more, since it is folded before it leaves memory.
    pub(super) fn deltas_max(&self) -> usize {
        let value_len = self.value_len as usize;
        let many = if self.kind == record::STRING { 0 } else { value_len / BYTES_A_CHANGE };
        (value_len / BYTES_A_DELTA).max(many.min(CHANGES_MAX)).clamp(DELTAS_MAX, PARTS_MAX)
    }

    /// Bytes of the records of deltas on its base, at most.
    pub(super) fn deltas_bytes_max(&self) -> u64 {
        if self.kind == record::STRING { self.value_len / 2 } else { 2 * self.value_len }
    }

    pub(super) fn meta(&self) -> Meta {
        Meta {
            kind: ValueKind::of(self.kind),
            expiry: self.expiry,
            seq: self.seq,
            value_len: self.value_len,
            memory_bytes: self.object.map_or(0, ObjectRef::memory_bytes),
        }
    }
}
/// A collection may have as many deltas as it has this many bytes, about one for two elements, up to [`CHANGES_MAX`]: so the elements
/// that do not change are seldom written again.
const BYTES_A_CHANGE: usize = 64;
/// The most of them in a collection of few bytes: memory for each is [`Delta`].
const CHANGES_MAX: usize = 64;
/// Deltas on one base, at most: the next change writes the whole value. A large one may have more.
const DELTAS_MAX: usize = 8;
/// A value may have as many deltas as it has this many bytes: so a small change costs so much more when the value is written
/// anew at last, and the list of them in memory a twentieth of the value.
const BYTES_A_DELTA: usize = 1 << 10;
/// The most of them. They are read one by one.
const PARTS_MAX: usize = 1 << 10;
const _: () =
    assert!(PARTS_MAX * size_of::<Delta>() < BODY_SIZE_BYTES_MAX / 2, "a checkpoint's block has room");
