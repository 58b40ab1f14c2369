//! Changing a list: elements that are found by their places.
//!
//! ```text
//!  pieces   new 2..3 | base 0..500 | new 0..2        LPUSH, and before it two times RPUSH
//! ```
//!
//! An edit is a sequence of pieces, each a run of elements of what it began with or of what was added: what does not change is
//! copied without being looked at, so that a push to a long list takes the time of copying it.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::entries::{
    FORM_AT, Form, Packed, Shape, VARINT_BYTES_MAX, parse, put_varint, split_varint, varint_bytes,
};
use super::filling::{Filling, Frame};
use crate::varint;

/// A list that is being changed. What is done to it is noted as operations.
#[derive(Debug)]
pub struct ListEdit<'a> {
    base: Packed<'a>,
    /// What was done, and the bytes of what is new.
    operations: Vec<u8>,
    /// Where what was added lies in `operations`, as an entry.
    added: SmallVec<[(u32, u32); 1]>,
    pieces: VecDeque<Piece>,
    count: usize,
    entries_bytes: usize,
    form: Form,
}

/// A run of elements.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Of `added`, otherwise of the base.
    is_new: bool,
    from: usize,
    count: usize,
}

impl Piece {
    fn split(self, at: usize) -> (Self, Self) {
        (Self { count: at, ..self }, Self { from: self.from + at, count: self.count - at, ..self })
    }
}

impl<'a> ListEdit<'a> {
    /// Begins with `base`, a [`Shape::List`].
    #[must_use]
    pub fn new(base: Packed<'a>) -> Self {
        debug_assert_eq!(base.shape, Shape::List, "others are changed by Edit");
        // one change cuts it in two at most, and adds one
        let mut pieces = VecDeque::with_capacity(3);
        pieces.extend((!base.is_empty()).then_some(Piece { is_new: false, from: 0, count: base.count }));
        Self {
            operations: Vec::new(),
            added: SmallVec::new(),
            pieces,
            count: base.count,
            entries_bytes: base.entries.len(),
            form: base.form,
            base,
        }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds `value` before the first element.
    pub fn push_front(&mut self, value: &[u8]) {
        self.begin(PUSH_FRONT, value);
        let piece = self.add(value);
        self.pieces.push_front(piece);
        self.adapt_form();
    }

    /// Adds `value` behind the last element.
    pub fn push_back(&mut self, value: &[u8]) {
        self.begin(PUSH_BACK, value);
        let piece = self.add(value);
        match self.pieces.back_mut() {
            Some(last) if last.is_new && last.from + last.count == piece.from => last.count += 1,
            _ => self.pieces.push_back(piece),
        }
        self.adapt_form();
    }

    /// Adds `value` before the element at `index`.
    ///
    /// # Panics
    /// If there are fewer elements than `index`.
    pub fn insert(&mut self, index: usize, value: &[u8]) {
        self.operations.reserve(1 + 2 * VARINT_BYTES_MAX + value.len());
        self.operations.push(INSERT);
        put_varint(&mut self.operations, index as u32);
        let piece = self.add(value);
        let at = self.boundary(index);
        self.pieces.insert(at, piece);
        self.adapt_form();
    }

    /// Lets the element at `index` be `value`.
    ///
    /// # Panics
    /// If there is none.
    pub fn set(&mut self, index: usize, value: &[u8]) {
        self.operations.reserve(1 + 2 * VARINT_BYTES_MAX + value.len());
        self.operations.push(SET);
        put_varint(&mut self.operations, index as u32);
        let piece = self.add(value);
        let at = self.cut(index, 1);
        self.pieces.insert(at, piece);
        self.adapt_form();
    }

    /// Removes `count` elements, one at least, from `index` on.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn remove(&mut self, index: usize, count: usize) {
        self.operations.push(REMOVE);
        put_varint(&mut self.operations, index as u32);
        put_varint(&mut self.operations, count as u32);
        self.cut(index, count);
        self.adapt_form();
    }

    /// Removes the first elements that are `value`, or the last if `from_back`, `most` at most; returns how many there were.
    pub fn remove_equal(&mut self, value: &[u8], most: usize, from_back: bool) -> usize {
        let found = self.places_of(value, most, from_back);
        if found.is_empty() {
            return 0;
        }
        self.operations.extend_from_slice(&[REMOVE_EQUAL, from_back.into()]);
        put_varint(&mut self.operations, u32::try_from(most).unwrap_or(u32::MAX));
        put_varint(&mut self.operations, value.len() as u32);
        self.operations.extend_from_slice(value);
        self.keep_others(&found);
        self.adapt_form();
        found.len()
    }

    /// The elements, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().flat_map(|piece| {
            (piece.from..piece.from + piece.count)
                .map(|at| if piece.is_new { self.new_value(at) } else { self.base.element(at).0 })
        })
    }

    /// Begins an operation that is followed by `value`.
    fn begin(&mut self, kind: u8, value: &[u8]) {
        self.operations.reserve(1 + VARINT_BYTES_MAX + value.len());
        self.operations.push(kind);
    }

    /// Adds an entry with `value` to the operations.
    fn add(&mut self, value: &[u8]) -> Piece {
        let at = self.operations.len();
        put_varint(&mut self.operations, value.len() as u32);
        self.operations.extend_from_slice(value);
        let bytes = self.operations.len() - at;
        self.added.push((at as u32, bytes as u32));
        self.count += 1;
        self.entries_bytes += bytes;
        Piece { is_new: true, from: self.added.len() - 1, count: 1 }
    }

    /// Where among the pieces the one with element `index` begins, which is split if it begins before.
    fn boundary(&mut self, index: usize) -> usize {
        let mut rest = index;
        for at in 0..self.pieces.len() {
            let piece = self.pieces[at];
            if rest == 0 {
                return at;
            }
            if rest < piece.count {
                let (left, right) = piece.split(rest);
                self.pieces[at] = left;
                self.pieces.insert(at + 1, right);
                return at + 1;
            }
            rest -= piece.count;
        }
        assert_eq!(rest, 0, "there are elements up to the index");
        self.pieces.len()
    }

    /// Takes out `count` elements from `index` on; returns where among the pieces they were.
    fn cut(&mut self, index: usize, count: usize) -> usize {
        let from = self.boundary(index);
        let to = self.boundary(index + count);
        let bytes: usize = self.pieces.range(from..to).map(|piece| self.piece_bytes(*piece)).sum();
        self.pieces.drain(from..to);
        self.count -= count;
        self.entries_bytes -= bytes;
        from
    }

    /// The indices of the first elements that are `value`, or the last, ascending.
    fn places_of(&self, value: &[u8], most: usize, from_back: bool) -> Vec<usize> {
        let all = self.iter().enumerate().filter(|(_, element)| *element == value).map(|(at, _)| at);
        if !from_back {
            return all.take(most).collect();
        }
        let mut found: Vec<usize> = all.collect();
        found.drain(..found.len().saturating_sub(most));
        found
    }

    /// Removes the elements at `gone`, ascending.
    fn keep_others(&mut self, gone: &[usize]) {
        let (mut kept, mut gone, mut index) = (VecDeque::new(), gone.iter().copied().peekable(), 0);
        for mut piece in std::mem::take(&mut self.pieces) {
            while let Some(at) = gone.next_if(|at| *at < index + piece.count) {
                let (left, rest) = piece.split(at - index);
                let (one, right) = rest.split(1);
                kept.extend((left.count > 0).then_some(left));
                self.count -= 1;
                self.entries_bytes -= self.piece_bytes(one);
                index = at + 1;
                piece = right;
            }
            index += piece.count;
            kept.extend((piece.count > 0).then_some(piece));
        }
        self.pieces = kept;
    }

    fn piece_bytes(&self, piece: Piece) -> usize {
        if piece.is_new {
            return self.added[piece.from..piece.from + piece.count]
                .iter()
                .map(|(_, bytes)| *bytes as usize)
                .sum();
        }
        self.base.end(piece.from + piece.count) - self.base.end(piece.from)
    }

    fn new_entry(&self, at: usize) -> &[u8] {
        let (from, bytes) = self.added[at];
        &self.operations[from as usize..(from + bytes) as usize]
    }

    fn new_value(&self, at: usize) -> &[u8] {
        parse(Shape::List, self.new_entry(at)).expect("it was added here").0
    }

    fn adapt_form(&mut self) {
        self.form = adapted(self.form, self.entries_bytes, self.count);
    }

    /// Makes these changes, one after the other; returns how many elements [`ListChange::RemoveEqual`] removed.
    ///
    /// # Panics
    /// As [`ListEdit::apply`].
    pub fn apply_all(&mut self, changes: &[ListChange<'_>]) -> usize {
        if changes.len() > 1 {
            // not grown step by step; what the last one asks for is more than it needs
            let bytes: usize = changes.iter().map(ListChange::pushed_bytes).sum();
            self.operations.reserve(bytes + VARINT_BYTES_MAX);
            self.added.reserve(changes.len());
            self.pieces.reserve(changes.len());
        }
        changes.iter().map(|change| self.apply(change)).sum()
    }

    /// Makes a change; returns how many elements [`ListChange::RemoveEqual`] removed.
    ///
    /// # Panics
    /// If it names an element that is not there.
    pub fn apply(&mut self, change: &ListChange<'_>) -> usize {
        match *change {
            ListChange::PushFront(value) => self.push_front(value),
            ListChange::PushBack(value) => self.push_back(value),
            ListChange::Insert(index, value) => self.insert(index, value),
            ListChange::Set(index, value) => self.set(index, value),
            ListChange::Remove(index, count) => self.remove(index, count),
            ListChange::RemoveEqual { value, most, from_back } => {
                return self.remove_equal(value, most, from_back);
            }
        }
        0
    }

    /// Whether anything was done.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        !self.operations.is_empty()
    }

    /// What was done, for the log.
    #[must_use]
    pub fn operations(&self) -> &[u8] {
        &self.operations
    }

    /// As [`ListEdit::operations`], to keep.
    #[must_use]
    pub fn into_operations(self) -> Vec<u8> {
        self.operations
    }

    /// The list as it is now.
    ///
    /// # Panics
    /// If it has more than 4 GiB: `value.max` is below that.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.frame().encode(|out| self.fill(out))
    }

    /// Bytes of the list as it is now.
    pub fn encoded_len(&self) -> usize {
        self.frame().bytes()
    }

    /// As [`ListEdit::encode`], into `out`, which has so many bytes.
    pub fn write(&self, out: &mut [u8]) {
        self.frame().write(out, |out| self.fill(out));
    }

    fn frame(&self) -> Frame {
        let (form, count, entries_bytes) = (self.form, self.count, self.entries_bytes);
        Frame { shape: Shape::List, form, count, entries_bytes }
    }

    /// Puts what it consists of now.
    fn fill(&self, out: &mut Filling<'_>) {
        for Piece { is_new, from, count } in &self.pieces {
            let run = *from..from + count;
            if *is_new {
                run.for_each(|at| out.put(0, self.new_entry(at)));
            } else {
                out.put_run(&self.base, run);
            }
        }
    }

    /// Whether the places are there that a change names.
    fn has_places_of(&self, change: &ListChange<'_>) -> bool {
        match *change {
            ListChange::Insert(index, _) => index <= self.count,
            ListChange::Set(index, _) => index < self.count,
            ListChange::Remove(index, count) => {
                count > 0 && index.checked_add(count).is_some_and(|end| end <= self.count)
            }
            ListChange::PushFront(_) | ListChange::PushBack(_) | ListChange::RemoveEqual { .. } => true,
        }
    }

    /// Does what `operations` say; `None` when they are none, or name elements, or bytes of them, that are not there.
    fn replay(&mut self, mut operations: &[u8]) -> Option<()> {
        while !operations.is_empty() {
            let (operation, rest) = split_operation(operations)?;
            match operation {
                Operation::Change(change) if self.has_places_of(&change) => _ = self.apply(&change),
                Operation::Change(_) => return None,
                Operation::Splice { index, from, bytes } => {
                    let mut value = self.value(index)?.to_vec();
                    value.get_mut(from..)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
                    self.set(index, &value);
                }
            }
            operations = rest;
        }
        Some(())
    }

    /// The element at `index`, if there is one.
    #[must_use]
    pub fn value(&self, mut index: usize) -> Option<&[u8]> {
        for piece in &self.pieces {
            if index < piece.count {
                let at = piece.from + index;
                return Some(if piece.is_new { self.new_value(at) } else { self.base.element(at).0 });
            }
            index -= piece.count;
        }
        None
    }
}

/// The form of a list that had this one. A list of more than 8 KiB is no longer kept as a listpack, and one of less than half of that again,
/// as in Redis 7.2 with its defaults.
fn adapted(form: Form, entries_bytes: usize, count: usize) -> Form {
    // a listpack has the length behind each element, too
    match entries_bytes + count {
        bytes if bytes > LISTPACK_BYTES_MAX => Form::Table,
        bytes if bytes <= LISTPACK_BYTES_MAX / 2 => Form::Listpack,
        _ => form,
    }
}

/// The operation that lets bytes of the element at `index` be these, from byte `from` of it on.
pub(crate) fn splice_operation(index: usize, from: usize, bytes: &[u8]) -> SmallVec<[u8; SPLICE_BYTES_FEW]> {
    let mut operation = SmallVec::new();
    operation.push(SPLICE);
    for number in [index, from, bytes.len()] {
        operation.extend_from_slice(&varint::encode(number as u64));
    }
    operation.extend_from_slice(bytes);
    operation
}

/// Where bytes of an element of a list are in its value, to be overwritten by as many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spliced {
    from: usize,
    form: Form,
}

impl Spliced {
    /// Byte `from` of the element at `index` of `list`.
    pub(crate) fn at(list: &Packed<'_>, index: usize, from: usize) -> Self {
        let end = list.begin() + list.end(index + 1);
        let from = end - list.element(index).0.len() + from;
        Self { from, form: adapted(list.form, list.entries.len(), list.count) }
    }

    /// Writes `bytes` there, in the value that the list was read from.
    pub(crate) fn write(self, value: &mut [u8], bytes: &[u8]) {
        value[self.from..][..bytes.len()].copy_from_slice(bytes);
        value[FORM_AT] = self.form as u8;
    }
}

/// What a list becomes by some bodies of CHANGE, oldest first; `None` when one does not fit.
pub(super) fn fold(packed: Packed<'_>, changes: &[&[u8]]) -> Option<Vec<u8>> {
    let mut edit = ListEdit::new(packed);
    changes.iter().try_for_each(|operations| edit.replay(operations))?;
    Some(edit.encode())
}

/// See [`super::dump`].
pub(super) fn dump(packed: Packed<'_>) -> Vec<u8> {
    let mut edit = ListEdit::new(Packed::empty(Shape::List));
    packed.iter().for_each(|(value, _)| edit.push_back(value));
    edit.operations
}

/// See [`super::load`].
pub(super) fn load(mut dump: &[u8]) -> Option<Vec<u8>> {
    let mut edit = ListEdit::new(Packed::empty(Shape::List));
    while !dump.is_empty() {
        let (ListChange::PushBack(value), rest) = split_change(dump)? else { return None };
        edit.push_back(value);
        dump = rest;
    }
    Some(edit.encode())
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListEnd {
    /// Where its first element is.
    Front,
    /// Where its last one is.
    Back,
}

/// A change of a list. Indices are from 0 on.
#[derive(Clone, Copy, Debug)]
pub enum ListChange<'a> {
    /// Adds the value before the first element.
    PushFront(&'a [u8]),
    /// Adds it behind the last one.
    PushBack(&'a [u8]),
    /// Adds it before the element with this index.
    Insert(usize, &'a [u8]),
    /// Lets the element with this index be the value.
    Set(usize, &'a [u8]),
    /// Removes as many elements, one at least, from this index on.
    Remove(usize, usize),
    /// Removes the first elements that are `value`, or the last, `most` at most.
    RemoveEqual {
        /// What they are.
        value: &'a [u8],
        /// How many of them go.
        most: usize,
        /// The last ones.
        from_back: bool,
    },
}

impl ListChange<'_> {
    /// Bytes by which it is noted, if it is a push.
    fn pushed_bytes(&self) -> usize {
        match self {
            Self::PushFront(value) | Self::PushBack(value) => {
                1 + varint_bytes(value.len() as u32) + value.len()
            }
            _ => 0,
        }
    }

    /// Whether both add a value at the same end.
    pub fn is_push_as(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Self::PushFront(_), Self::PushFront(_)) | (Self::PushBack(_), Self::PushBack(_))
        )
    }
}

/// What an operation does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation<'a> {
    /// A change.
    Change(ListChange<'a>),
    /// Lets bytes of the element with this index be these, from byte `from` of it on.
    Splice { index: usize, from: usize, bytes: &'a [u8] },
}

/// The operation at the front of `bytes`, and what is behind it.
pub(super) fn split_operation(bytes: &[u8]) -> Option<(Operation<'_>, &[u8])> {
    let (&kind, rest) = bytes.split_first()?;
    if kind != SPLICE {
        return split_change(bytes).map(|(change, rest)| (Operation::Change(change), rest));
    }
    let (index, rest) = split_varint(rest)?;
    let (from, rest) = split_varint(rest)?;
    let (len, rest) = split_varint(rest)?;
    let (bytes, rest) = rest.split_at_checked(len).filter(|_| len > 0)?;
    Some((Operation::Splice { index, from, bytes }, rest))
}

/// The change at the front of `bytes`, and what is behind it.
fn split_change(bytes: &[u8]) -> Option<(ListChange<'_>, &[u8])> {
    let value = |bytes| parse(Shape::List, bytes).map(|(value, _, len)| (value, len));
    let (&kind, rest) = bytes.split_first()?;
    match kind {
        PUSH_FRONT => value(rest).map(|(value, len)| (ListChange::PushFront(value), &rest[len..])),
        PUSH_BACK => value(rest).map(|(value, len)| (ListChange::PushBack(value), &rest[len..])),
        INSERT | SET => {
            let (index, rest) = split_varint(rest)?;
            let (value, len) = value(rest)?;
            let operation =
                if kind == INSERT { ListChange::Insert(index, value) } else { ListChange::Set(index, value) };
            Some((operation, &rest[len..]))
        }
        REMOVE => {
            let (index, rest) = split_varint(rest)?;
            let (count, rest) = split_varint(rest)?;
            Some((ListChange::Remove(index, count), rest))
        }
        REMOVE_EQUAL => {
            let (&from_back, rest) = rest.split_first()?;
            let (most, rest) = split_varint(rest)?;
            let (value, len) = value(rest)?;
            let from_back = match from_back {
                0 => false,
                1 => true,
                _ => return None,
            };
            Some((ListChange::RemoveEqual { value, most, from_back }, &rest[len..]))
        }
        _ => None,
    }
}

const PUSH_FRONT: u8 = 5;
const PUSH_BACK: u8 = 6;
const INSERT: u8 = 7;
const SET: u8 = 8;
const REMOVE: u8 = 9;
const REMOVE_EQUAL: u8 = 10;
const SPLICE: u8 = 16;
/// Bytes of a splice for which nothing is put on the heap: those of a number of 8 bytes in any element.
pub(crate) const SPLICE_BYTES_FEW: usize = 24;
/// `list-max-listpack-size -2`.
const LISTPACK_BYTES_MAX: usize = 8 << 10;
