//! The bytes of a collection, to read: header, tags, offsets, entries. Layout and invariants are those of the module above.

use std::cmp::Ordering;
use std::ops::Range;

use super::times::{TIMES_BYTES, Times};
use crate::{Deadline, Moment};

/// What entries consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Keys with values.
    Map,
    /// Keys alone.
    Set,
    /// Keys with scores, by which they are ordered.
    Scored,
    /// Values alone, in an order of their own, and some perhaps several times.
    List,
    /// Keys with values, by which they are not found but by their order: that of their bytes.
    Ordered,
}

/// How Redis would keep a collection: what OBJECT ENCODING answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// A few integers, ascending.
    Integers,
    /// A few short elements.
    Listpack,
    /// Anything.
    Table,
}

/// A collection, to read.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    pub(super) shape: Shape,
    pub(super) form: Form,
    pub(super) is_wide: bool,
    pub(super) count: usize,
    pub(super) tags: &'a [u8],
    pub(super) offsets: &'a [u8],
    pub(super) entries: &'a [u8],
    /// Of a [`Shape::Map`] whose fields have deadlines.
    pub(super) times: Option<Times>,
}

/// An element: key and value. A [`Shape::Set`] and a [`Shape::List`] have the key alone; in a [`Shape::Scored`] the value is the score
/// ([`score_of`]).
pub type Element<'a> = (&'a [u8], &'a [u8]);

/// Where bytes lie in others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) at: u32,
    pub(crate) len: u32,
}

impl Span {
    /// The bytes of `all` that lie there.
    pub(crate) fn of(self, all: &[u8]) -> &[u8] {
        &all[self.at as usize..(self.at + self.len) as usize]
    }
}

/// Key, value and size of an entry.
type Parsed<'a> = (&'a [u8], &'a [u8], usize);

impl<'a> Packed<'a> {
    /// An empty collection.
    #[must_use]
    pub fn empty(shape: Shape) -> Self {
        let form = match shape {
            Shape::Set => Form::Integers,
            Shape::Ordered => Form::Table,
            Shape::Map | Shape::Scored | Shape::List => Form::Listpack,
        };
        Self { shape, form, is_wide: false, count: 0, tags: &[], offsets: &[], entries: &[], times: None }
    }

    /// The collection in `bytes`.
    ///
    /// # Panics
    /// When a later call reads what [`Packed::check`] would not have accepted. Values are checked when they are read from disk.
    #[must_use]
    pub fn new(shape: Shape, bytes: &'a [u8]) -> Self {
        Self::split(shape, bytes).expect("checked when it was read, or encoded here")
    }

    pub(super) fn split(shape: Shape, bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let count = usize::try_from(u32::from_le_bytes([head[0], head[1], head[2], head[3]])).ok()?;
        let form = match head[4] {
            0 => Form::Integers,
            1 => Form::Listpack,
            2 => Form::Table,
            _ => return None,
        };
        let is_wide = head[5] & WIDE != 0;
        let is_timed = head[5] & TIMED != 0;
        if head[5] & !(WIDE | TIMED) != 0 || head[6..] != [0, 0] || (is_timed && shape != Shape::Map) {
            return None;
        }
        let (times, rest) = match is_timed {
            true => Times::split(rest).map(|(times, rest)| (Some(times), rest))?,
            false => (None, rest),
        };
        let (tags, rest) = rest.split_at_checked(count.checked_mul(tag_bytes(shape))?)?;
        let (offsets, entries) = rest.split_at_checked(count.checked_mul(offset_bytes(is_wide))?)?;
        Some(Self { shape, form, is_wide, count, tags, offsets, entries, times })
    }

    /// Whether `bytes` are a collection of this shape.
    #[must_use]
    pub fn check(shape: Shape, bytes: &'a [u8]) -> bool {
        let Some(packed) = Self::split(shape, bytes) else { return false };
        let (mut end, mut former) = (0, None);
        let mut times = Times { own: packed.times.map_or(0, |times| times.own), ..Times::default() };
        for at in 0..packed.len() {
            let parsed = (packed.offset(at) == end)
                .then(|| packed.entries.get(end..).and_then(|entry| packed.parse(entry)))
                .flatten();
            let Some((deadline, (key, value, entry_bytes))) = parsed else { return false };
            times = times.with(deadline);
            let element = (key, value);
            let is_behind = |former: Element<'_>| match shape {
                Shape::Scored => by_score(former, element).is_lt(),
                Shape::Ordered => former.0 < key,
                Shape::Map | Shape::Set | Shape::List => true,
            };
            if !former.is_none_or(is_behind) {
                return false;
            }
            former = Some(element);
            end += entry_bytes;
        }
        let has_times = packed.times.is_none_or(|told| told == times && (told.wall, told.server) != (0, 0));
        has_times && end == packed.entries.len()
    }

    /// The deadline (0: none), key, value and size of the entry at the front of `entry`.
    #[inline]
    pub(super) fn parse(&self, entry: &'a [u8]) -> Option<(u64, Parsed<'a>)> {
        if self.times.is_none() {
            return Some((0, parse(self.shape, entry)?));
        }
        let (deadline, rest) = match entry.split_first()? {
            (0, rest) => (0, rest),
            (1, rest) => {
                let (deadline, rest) = rest.split_first_chunk()?;
                (Some(u64::from_le_bytes(*deadline)).filter(|deadline| *deadline != 0)?, rest)
            }
            _ => return None,
        };
        let (key, value, bytes) = parse(self.shape, rest)?;
        Some((deadline, (key, value, entry.len() - rest.len() + bytes)))
    }

    /// When the field that is element number `at` ends, if it does.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn deadline(&self, at: usize) -> Option<Deadline> {
        self.times?;
        let (deadline, _) = self.parse(&self.entries[self.offset(at)..]).expect("entries were checked");
        Deadline::of(deadline)
    }

    /// Whether some field ends never, or later than these times of the wall clock and of the server.
    pub fn has_left(&self, [wall, server]: [u64; 2]) -> bool {
        (0..self.count).filter_map(|at| self.parse(&self.entries[self.offset(at)..])).any(|(deadline, _)| {
            let until = if deadline < Moment::SERVER { wall } else { server };
            deadline == 0 || deadline > until
        })
    }

    /// Whether fields have deadlines.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.times.is_some()
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

    /// What entries consist of.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Bytes of a list as a listpack, which has the length behind each element, too.
    pub fn listpack_bytes(&self) -> u64 {
        (self.entries.len() + self.count) as u64
    }

    /// Whether its elements are in an order that is not by chance.
    pub fn is_ordered(&self) -> bool {
        matches!(self.shape, Shape::Scored | Shape::List | Shape::Ordered)
    }

    /// How Redis would keep it.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Element number `at`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    #[inline]
    pub fn element(&self, at: usize) -> Element<'a> {
        let entry = &self.entries[self.offset(at)..];
        let (_, (key, value, _)) = self.parse(entry).expect("entries were checked");
        (key, value)
    }

    /// The tag of element number `at`: 16 bits of its keyed hash.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn tag(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.tags[TAG_BYTES * at], self.tags[TAG_BYTES * at + 1]])
    }

    /// All elements, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Element<'a>> + use<'a> {
        let packed = *self;
        (0..packed.len()).map(move |at| packed.element(at))
    }

    /// The values of these elements of a [`Shape::List`], which lie behind each other: none is looked up by its offset.
    ///
    /// # Panics
    /// If some are not there.
    pub fn values(&self, at: Range<usize>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        debug_assert_eq!(self.shape, Shape::List, "others have keys");
        let mut rest = &self.entries[self.end(at.start)..self.end(at.end)];
        std::iter::from_fn(move || {
            let (len, behind) = split_varint(rest)?;
            let (value, behind) = behind.split_at_checked(len)?;
            rest = behind;
            Some(value)
        })
    }

    /// Which element `key`, whose hash has `tag`, is. Time grows with the number of elements: 2 B of each are read.
    #[must_use]
    pub fn find(&self, tag: u16, key: &[u8]) -> Option<usize> {
        let wanted = tag.to_le_bytes();
        let (tags, _) = self.tags.as_chunks::<TAG_BYTES>();
        for (number, block) in tags.chunks(TAGS_AT_ONCE).enumerate() {
            // without a branch for each the compiler compares many at once
            if !block.iter().fold(false, |is_there, found| is_there | (*found == wanted)) {
                continue;
            }
            let equal = block.iter().enumerate().filter(|(_, found)| **found == wanted);
            let mut places = equal.map(|(at, _)| TAGS_AT_ONCE * number + at);
            if let Some(at) = places.find(|at| self.element(*at).0 == key) {
                return Some(at);
            }
        }
        None
    }

    /// How many elements come before the first of which `is_before` is false; it must be true of all before that. Looks at few elements.
    #[must_use]
    pub fn partition_point(&self, is_before: impl Fn(Element<'a>) -> bool) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(self.element(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// As [`Packed::partition_point`], and looks at fewer the nearer the place is to the end.
    pub(super) fn partition_point_from_back(&self, is_before: impl Fn(Element<'a>) -> bool) -> usize {
        let (mut low, mut high, mut step) = (0, self.count, 1);
        while high > 0 {
            let at = high.saturating_sub(step);
            if is_before(self.element(at)) {
                low = at + 1;
                break;
            }
            high = at;
            step *= 2;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(self.element(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Which element of a [`Shape::Ordered`] has this key. Looks at fewer elements the nearer it is to the end.
    #[must_use]
    pub fn place_of(&self, key: &[u8]) -> Option<usize> {
        self.place_for(key).ok()
    }

    /// The same; where there is none, the place that it would have.
    pub(super) fn place_for(&self, key: &[u8]) -> Result<usize, usize> {
        let at = self.partition_point_from_back(|(other, _)| other < key);
        let is_there = at < self.count && self.element(at).0 == key;
        if is_there { Ok(at) } else { Err(at) }
    }

    /// Tag (0 where there are none) and bytes of element number `at`.
    pub(super) fn raw(&self, at: usize) -> (u16, &'a [u8]) {
        let tag = if self.tags.is_empty() { 0 } else { self.tag(at) };
        (tag, &self.entries[self.offset(at)..self.end(at + 1)])
    }

    /// Where the first entry begins in the bytes of the collection.
    pub(super) fn begin(&self) -> usize {
        self.encoded_len() - self.entries.len()
    }

    /// Bytes of the collection.
    pub fn encoded_len(&self) -> usize {
        let times_bytes = if self.times.is_some() { TIMES_BYTES } else { 0 };
        HEADER_BYTES + times_bytes + self.tags.len() + self.offsets.len() + self.entries.len()
    }

    /// Bytes of all elements.
    pub fn bytes(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of all elements, one that is larger than `most_bytes` counted as so many; with what is kept beside each.
    pub fn bytes_up_to(&self, most_bytes: u64) -> u64 {
        let place_bytes = tag_bytes(self.shape) + offset_bytes(self.is_wide);
        let sizes = (0..self.count).map(|at| (self.end(at + 1) - self.end(at) + place_bytes) as u64);
        sizes.map(|bytes| bytes.min(most_bytes)).sum()
    }

    /// Where among the entries element number `at` begins, or the last one ends.
    pub fn end(&self, at: usize) -> usize {
        if at == self.count { self.entries.len() } else { self.offset(at) }
    }

    /// The score of element number `at` of a [`Shape::Scored`].
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn score(&self, at: usize) -> f64 {
        score_of(self.element(at).1)
    }

    pub(super) fn offset(&self, at: usize) -> usize {
        let bytes = offset_bytes(self.is_wide);
        let field = &self.offsets[bytes * at..bytes * (at + 1)];
        match *field {
            [a, b] => u16::from_le_bytes([a, b]).into(),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]) as usize,
            _ => unreachable!("offsets have 2 or 4 bytes"),
        }
    }
}

/// Key, value and size of the entry at the front of `bytes`.
#[inline]
pub(super) fn parse(shape: Shape, bytes: &[u8]) -> Option<Parsed<'_>> {
    let (key_len, rest) = split_varint(bytes)?;
    let (value_len, rest) = match shape {
        Shape::Map | Shape::Ordered => split_varint(rest)?,
        Shape::Scored => (SCORE_BYTES, rest),
        Shape::Set | Shape::List => (0, rest),
    };
    let (key, rest) = rest.split_at_checked(key_len)?;
    let (value, rest) = rest.split_at_checked(value_len)?;
    let is_number = shape != Shape::Scored || !score_of(value).is_nan();
    is_number.then_some((key, value, bytes.len() - rest.len()))
}

/// What the front of the map in `bytes` says of deadlines; `None`: its fields have none.
pub fn times_of(bytes: &[u8]) -> Option<Times> {
    let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    (head[5] & TIMED != 0).then(|| Times::split(rest).map(|(times, _)| times)).flatten()
}

/// The map in `bytes`, whose fields have deadlines, with another deadline of its own.
pub fn with_own(bytes: &[u8], own: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&own.to_le_bytes());
    bytes
}

/// The score that is the value of an element of a [`Shape::Scored`].
///
/// # Panics
/// If it is none.
#[must_use]
pub fn score_of(value: &[u8]) -> f64 {
    f64::from_le_bytes(value.try_into().expect("a score has 8 bytes"))
}

/// How the elements of a [`Shape::Scored`] are ordered: by score, then by key. Both zeros are the same score.
pub fn by_score((key_a, score_a): Element<'_>, (key_b, score_b): Element<'_>) -> Ordering {
    // 0.0 is added so that -0.0 is as 0.0
    let scores = (score_of(score_a) + 0.0).total_cmp(&(score_of(score_b) + 0.0));
    scores.then_with(|| key_a.cmp(key_b))
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(super) fn varint_bytes(number: u32) -> usize {
    (32 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

/// A number of 32 bits at most, in its shortest form.
#[inline]
pub(super) fn split_varint(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes {
        // what most lengths are
        [short @ 0..0x80, rest @ ..] => Some((usize::from(*short), rest)),
        _ => split_long_varint(bytes),
    }
}

fn split_long_varint(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (mut number, mut shift) = (0_u64, 0);
    for (at, byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            let number = u32::try_from(number).ok().filter(|number| varint_bytes(*number) == at + 1)?;
            return Some((number as usize, &bytes[at + 1..]));
        }
    }
    None
}

pub(super) fn offset_bytes(is_wide: bool) -> usize {
    if is_wide { 4 } else { 2 }
}

pub(super) fn tag_bytes(shape: Shape) -> usize {
    if matches!(shape, Shape::List | Shape::Ordered) { 0 } else { TAG_BYTES }
}

/// Bytes of all elements of a collection of `count` that has `encoded_bytes`; `None` if they are so many that their offsets are wide.
pub fn elements_bytes(shape: Shape, encoded_bytes: usize, count: usize) -> Option<usize> {
    let places_bytes = count * (tag_bytes(shape) + offset_bytes(false));
    let bytes = encoded_bytes.checked_sub(HEADER_BYTES + places_bytes)?;
    (bytes <= usize::from(u16::MAX)).then_some(bytes)
}

/// What a map begins with whose fields end at `times`; returns whether its offsets are wide.
///
/// # Panics
/// If it has more than 4 GiB: `value.max` is below that.
pub(super) fn put_timed_header(
    out: &mut Vec<u8>,
    form: Form,
    times: Times,
    count: usize,
    entries_bytes: usize,
) -> bool {
    let is_wide = entries_bytes > usize::from(u16::MAX);
    u32::try_from(entries_bytes).expect("value.max is below 4 GiB");
    let places_bytes = tag_bytes(Shape::Map) + offset_bytes(is_wide);
    out.reserve_exact(HEADER_BYTES + TIMES_BYTES + count * places_bytes + entries_bytes);
    let count = u32::try_from(count).expect("value.max bounds the number of elements");
    out.extend_from_slice(&count.to_le_bytes());
    let flags = if is_wide { WIDE } else { 0 } | TIMED;
    out.extend_from_slice(&[form as u8, flags, 0, 0]);
    out.extend_from_slice(&times.bytes());
    is_wide
}

pub(super) const HEADER_BYTES: usize = 8;
/// Where in the header the form is.
pub(super) const FORM_AT: usize = 4;
pub(super) const TAG_BYTES: usize = 2;
/// Tags that are compared together.
const TAGS_AT_ONCE: usize = 32;
pub(super) const WIDE: u8 = 1;
const TIMED: u8 = 2;
/// Of a number of 32 bits.
pub(super) const VARINT_BYTES_MAX: usize = 5;
const SCORE_BYTES: usize = 8;
