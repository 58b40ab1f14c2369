//! Writing the bytes of a collection of known size: entries one by one, and runs of entries that are somewhere already.
//!
//! A run is three copies (tags, offsets, entries), whatever its length: that is what most of a collection is when an element changes.

use std::ops::Range;

use super::entries::{
    Form, HEADER_BYTES, Packed, Shape, TAG_BYTES, WIDE, offset_bytes, put_timed_header, tag_bytes,
};
use super::times::Times;

/// What a collection begins with, and how large it is. Fields of it have no deadlines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) shape: Shape,
    pub(super) form: Form,
    pub(super) count: usize,
    pub(super) entries_bytes: usize,
}

impl Frame {
    /// Bytes of the collection.
    pub(super) fn bytes(&self) -> usize {
        let places_bytes = tag_bytes(self.shape) + offset_bytes(self.is_wide());
        HEADER_BYTES + self.count * places_bytes + self.entries_bytes
    }

    /// The collection, as `fill` puts its entries.
    ///
    /// # Panics
    /// As [`Frame::write`].
    pub(super) fn encode(&self, fill: impl FnOnce(&mut Filling<'_>)) -> Vec<u8> {
        let mut out = vec![0; self.bytes()];
        self.write(&mut out, fill);
        out
    }

    /// The same into `out`, which has as many bytes as it takes.
    ///
    /// # Panics
    /// If it has more than 4 GiB: `value.max` is below that. If `fill` puts less, or more.
    pub(super) fn write(&self, out: &mut [u8], fill: impl FnOnce(&mut Filling<'_>)) {
        let mut filling = self.begin(out);
        fill(&mut filling);
        assert_eq!((filling.count, filling.end), (self.count, self.entries_bytes), "all is put");
    }

    fn begin<'o>(&self, out: &'o mut [u8]) -> Filling<'o> {
        u32::try_from(self.entries_bytes).expect("value.max is below 4 GiB");
        let count = u32::try_from(self.count).expect("value.max bounds the number of elements");
        let is_wide = self.is_wide();
        let (head, rest) = out.split_at_mut(HEADER_BYTES);
        head[..4].copy_from_slice(&count.to_le_bytes());
        head[4..].copy_from_slice(&[self.form as u8, if is_wide { WIDE } else { 0 }, 0, 0]);
        let (tags, rest) = rest.split_at_mut(self.count * tag_bytes(self.shape));
        let (offsets, entries) = rest.split_at_mut(self.count * offset_bytes(is_wide));
        Filling { is_wide, tags, offsets, entries, count: 0, end: 0 }
    }

    fn is_wide(&self) -> bool {
        self.entries_bytes > usize::from(u16::MAX)
    }
}

/// An entry of a map, without its deadline, which stands beside it (0: none).
pub(super) struct TimedEntry<'a> {
    pub(super) tag: u16,
    pub(super) deadline: u64,
    pub(super) entry: &'a [u8],
}

impl<'a> TimedEntry<'a> {
    fn of(packed: &Packed<'a>, at: usize) -> Self {
        let (tag, whole) = packed.raw(at);
        let deadline = packed.parse(whole).expect("entries were checked").0;
        let mark_bytes = if packed.is_timed() { mark_bytes(deadline) } else { 0 };
        Self { tag, deadline, entry: &whole[mark_bytes..] }
    }
}

/// Bytes before an entry of a map whose fields have deadlines.
fn mark_bytes(deadline: u64) -> usize {
    if deadline == 0 { 1 } else { 9 }
}

/// A map of these entries, of a key that ends at `own`.
pub(super) fn encode_map(form: Form, own: u64, entries: &[TimedEntry<'_>]) -> Vec<u8> {
    let times =
        entries.iter().fold(Times { own, ..Times::default() }, |times, entry| times.with(entry.deadline));
    if (times.wall, times.server) == (0, 0) {
        let entries_bytes = entries.iter().map(|it| it.entry.len()).sum();
        let frame = Frame { shape: Shape::Map, form, count: entries.len(), entries_bytes };
        return frame.encode(|out| entries.iter().for_each(|it| out.put(it.tag, it.entry)));
    }
    let sizes = entries.iter().map(|it| mark_bytes(it.deadline) + it.entry.len());
    let mut out = Vec::new();
    let is_wide = put_timed_header(&mut out, form, times, entries.len(), sizes.clone().sum());
    entries.iter().for_each(|it| out.extend_from_slice(&it.tag.to_le_bytes()));
    let mut offset = 0_u32;
    for size in sizes {
        out.extend_from_slice(&offset.to_le_bytes()[..offset_bytes(is_wide)]);
        offset += size as u32;
    }
    for it in entries {
        out.push(u8::from(it.deadline != 0));
        if it.deadline != 0 {
            out.extend_from_slice(&it.deadline.to_le_bytes());
        }
        out.extend_from_slice(it.entry);
    }
    out
}

/// The elements of `packed` that have these numbers. The key's own deadline is left out.
pub fn select(packed: Packed<'_>, form: Form, numbers: &[usize]) -> Vec<u8> {
    if packed.is_timed() {
        let entries: Vec<_> = numbers.iter().map(|at| TimedEntry::of(&packed, *at)).collect();
        return encode_map(form, 0, &entries);
    }
    let entries_bytes = numbers.iter().map(|at| packed.raw(*at).1.len()).sum();
    Frame { shape: packed.shape, form, count: numbers.len(), entries_bytes }.encode(|out| {
        for at in numbers {
            let (tag, entry) = packed.raw(*at);
            out.put(tag, entry);
        }
    })
}

/// Elements number `at` of `packed`, whose fields have no deadlines.
pub fn range(packed: Packed<'_>, form: Form, at: Range<usize>) -> Vec<u8> {
    debug_assert!(!packed.is_timed(), "its entries are longer");
    let entries_bytes = packed.end(at.end) - packed.end(at.start);
    Frame { shape: packed.shape, form, count: at.len(), entries_bytes }.encode(|out| out.put_run(&packed, at))
}

/// The elements of all of `parts`, which have no element twice, and are in the shape's order. The key's own deadline is left out.
pub fn concat(shape: Shape, form: Form, parts: &[Packed<'_>]) -> Vec<u8> {
    if parts.iter().any(Packed::is_timed) {
        let each = parts.iter().flat_map(|part| (0..part.len()).map(move |at| TimedEntry::of(part, at)));
        return encode_map(form, 0, &each.collect::<Vec<_>>());
    }
    let count = parts.iter().map(Packed::len).sum();
    let entries_bytes = parts.iter().map(Packed::bytes).sum();
    Frame { shape, form, count, entries_bytes }
        .encode(|out| parts.iter().for_each(|part| out.put_run(part, 0..part.len())))
}

/// A collection that is being written.
pub(super) struct Filling<'o> {
    is_wide: bool,
    /// Of shapes that have some.
    tags: &'o mut [u8],
    offsets: &'o mut [u8],
    entries: &'o mut [u8],
    /// Entries so far, and their bytes.
    count: usize,
    end: usize,
}

impl Filling<'_> {
    /// Adds an entry.
    pub(super) fn put(&mut self, tag: u16, entry: &[u8]) {
        if !self.tags.is_empty() {
            self.tags[TAG_BYTES * self.count..][..TAG_BYTES].copy_from_slice(&tag.to_le_bytes());
        }
        let bytes = offset_bytes(self.is_wide);
        let offset = (self.end as u32).to_le_bytes();
        self.offsets[bytes * self.count..][..bytes].copy_from_slice(&offset[..bytes]);
        self.entries[self.end..][..entry.len()].copy_from_slice(entry);
        self.count += 1;
        self.end += entry.len();
    }

    /// Adds the entries of `base` that have these numbers.
    pub(super) fn put_run(&mut self, base: &Packed<'_>, run: Range<usize>) {
        if run.is_empty() {
            return;
        }
        if !self.tags.is_empty() {
            let tags = &base.tags[TAG_BYTES * run.start..TAG_BYTES * run.end];
            self.tags[TAG_BYTES * self.count..][..tags.len()].copy_from_slice(tags);
        }
        let (from, to) = (base.end(run.start), base.end(run.end));
        let entries = &base.entries[from..to];
        self.entries[self.end..][..entries.len()].copy_from_slice(entries);
        // modulo 2^32 and, where all offsets are so narrow, 2^16
        self.put_offsets(base, &run, (self.end as u32).wrapping_sub(from as u32));
        self.count += run.len();
        self.end += entries.len();
    }

    /// Adds the offsets of these entries of `base`, moved by `shift`.
    fn put_offsets(&mut self, base: &Packed<'_>, run: &Range<usize>, shift: u32) {
        let (bytes, base_bytes) = (offset_bytes(self.is_wide), offset_bytes(base.is_wide));
        let out = &mut self.offsets[bytes * self.count..][..bytes * run.len()];
        let offsets = &base.offsets[base_bytes * run.start..base_bytes * run.end];
        match (base.is_wide, self.is_wide) {
            (false, false) => {
                for (out, offset) in out.as_chunks_mut::<2>().0.iter_mut().zip(offsets.as_chunks::<2>().0) {
                    *out = u16::from_le_bytes(*offset).wrapping_add(shift as u16).to_le_bytes();
                }
            }
            (true, true) => {
                for (out, offset) in out.as_chunks_mut::<4>().0.iter_mut().zip(offsets.as_chunks::<4>().0) {
                    *out = u32::from_le_bytes(*offset).wrapping_add(shift).to_le_bytes();
                }
            }
            _ => {
                for (out, at) in out.chunks_exact_mut(bytes).zip(run.clone()) {
                    let offset = (base.offset(at) as u32).wrapping_add(shift);
                    out.copy_from_slice(&offset.to_le_bytes()[..bytes]);
                }
            }
        }
    }
}
