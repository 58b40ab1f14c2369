//! What is pending in a group, in blocks of neighbours: identifiers and times as differences, a consumer as a number among the block's names.
//!
//! ```text
//!  key                              value
//!  p | group len u32 | group | id      1 u8 | names varint | (len varint | name) x names | entries
//!
//!  entry: flags u8 | [ms varint] | [seq varint] | [delivered varint] | [name varint] | [times varint]
//!    bit 0        so many ms more than the one before; seq counts from 0 then, else from behind that of the one before
//!    bit 1        seq is so many more than where it counts from
//!    bit 2        delivered so much later than the one before, or earlier: the lowest bit is the sign
//!    bit 3        another name than the one before
//!    bits 4 to 7  times, up to 14; 15: as many as follow
//! ```
//!
//! Before the first entry come the id in the key, less one, and 0 for all else. Entries ascend. A block has those from the id in its key, which may
//! be gone, up to the key of the next. A value that begins with 0 is of one entry, as older versions wrote it: `delivered u64 ms | times u64 | consumer`.
//!
//! A block has up to [`ENTRIES_MAX`] entries, so an entry that changes costs a search and a block of bounded size. Blocks that lose entries are not joined: an
//! entry that is left alone takes about what it took in older versions. Of what no server would write (RESTORE takes anything) what makes sense is read.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use store::{Element, Stop, varint};

use super::{Id, Reader, Stream, group_prefix, pending_key};

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) consumer: Vec<u8>,
    pub(crate) delivered_ms: u64,
    pub(crate) times: u64,
}

/// What becomes of entries: pending as this, or no more.
pub(super) type Repended = BTreeMap<Id, Option<Pending>>;

/// What changes of blocks, and how much is pending then.
#[derive(Debug, Default)]
pub(super) struct Folded {
    /// Keys of blocks with their values, or without if they go.
    pub(super) blocks: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// How many blocks more.
    pub(super) more: i64,
    /// How many entries more are given back.
    pub(super) free: i64,
    /// How many more each consumer has.
    pub(super) by_consumer: HashMap<Vec<u8>, i64>,
}

/// Some entries that are neighbours.
#[derive(Debug, Default, PartialEq, Eq)]
struct Block<'a> {
    names: Vec<Cow<'a, [u8]>>,
    /// By id.
    entries: Vec<Held>,
}

/// An entry of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    id: Id,
    delivered_ms: u64,
    times: u64,
    /// Which of the block's names its consumer has.
    name: usize,
}

impl Pending {
    /// Whether no consumer has it any more: XNACK gave it back.
    pub(crate) fn is_free(&self) -> bool {
        self.delivered_ms == 0 && self.consumer.is_empty()
    }

    /// Whether it is pending at the consumer `name`.
    pub(crate) fn is_of(&self, name: &[u8]) -> bool {
        self.consumer == name && !self.is_free()
    }

    /// How often it was delivered when it is once more.
    pub(crate) fn times_again(&self) -> u64 {
        self.times.saturating_add(1).min(i64::MAX.unsigned_abs())
    }

    /// How long ago it was delivered.
    pub(crate) fn idle_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.delivered_ms)
    }

    /// The same as clients are told: -1 if it was given back.
    pub(crate) fn idle_told(&self, now_ms: u64) -> i64 {
        if self.is_free() { -1 } else { self.idle_ms(now_ms).cast_signed() }
    }
}

impl<'a, 's> Stream<'a, 's> {
    pub(crate) fn pending(self, group: &[u8], id: Id) -> Result<Option<Pending>, Stop> {
        let Some((first, value)) =
            self.block_for(group, id)?.map(|(key, value)| (first_of(group, key), value))
        else {
            return Ok(None);
        };
        let block = Block::of(first, value);
        let at = block.entries.binary_search_by_key(&id, |held| held.id);
        Ok(at.ok().map(|at| block.pending(&block.entries[at])))
    }

    /// The places of a group's blocks.
    pub(super) fn blocks(self, group: &[u8]) -> Result<Range<usize>, Stop> {
        self.places(&group_prefix(b'p', group))
    }

    /// The block that has the entry `id` if any has.
    fn block_for(self, group: &[u8], id: Id) -> Result<Option<Element<'a>>, Stop> {
        let last = pending_key(group, id);
        let prefix = &last[..last.len() - ID_BYTES];
        Ok(self.0.last_up_to(&last)?.filter(|(key, _)| key.starts_with(prefix)))
    }

    /// What is pending in a group from `first` on, in the order of the ids. Reads some at a time.
    pub(crate) fn pending_from(
        self,
        group: &[u8],
        first: Id,
    ) -> Result<impl Iterator<Item = Result<(Id, Pending), Stop>> + use<'a, 's>, Stop> {
        let found = self.block_for(group, first)?;
        let from = found.map_or_else(|| pending_key(group, first), |(key, _)| key.to_vec());
        let start = self.0.partition_point(|(key, _)| key < &from[..])?;
        let end = self.blocks(group)?.end;
        let begin = group_prefix(b'p', group).len();
        let parts = (start..end).step_by(BLOCKS_PART).map(move |at| at..end.min(at + BLOCKS_PART));
        let told = parts.flat_map(move |part| match self.0.range(part) {
            Ok(blocks) => {
                let blocks =
                    blocks.into_iter().map(|(key, value)| Block::of(Reader(&key[begin..]).id(), value));
                blocks.flat_map(|block| block.told().map(Ok).collect::<Vec<_>>()).collect()
            }
            Err(stop) => vec![Err(stop)],
        });
        Ok(told.filter(move |it| it.as_ref().map_or(true, |(id, _)| *id >= first)))
    }

    /// The first and the last of what is pending in a group.
    pub(crate) fn ends_of_pending(self, group: &[u8]) -> Result<Option<(Id, Id)>, Stop> {
        let places = self.blocks(group)?;
        if places.is_empty() {
            return Ok(None);
        }
        let at = |place| {
            let element = self.0.element(place)?;
            Ok::<_, Stop>(
                element.map_or_else(Block::default, |(key, value)| Block::of(first_of(group, key), value)),
            )
        };
        let (first, last) = (at(places.start)?, at(places.end - 1)?);
        Ok(first.entries.first().zip(last.entries.last()).map(|(first, last)| (first.id, last.id)))
    }

    /// The blocks of a group with some entries otherwise.
    pub(super) fn fold_pending(self, group: &[u8], changes: &Repended) -> Result<Folded, Stop> {
        let (mut folded, mut changes) = (Folded::default(), changes.iter().peekable());
        while let Some((id, pending)) = changes.next() {
            let (begin, found) = (*id, self.block_for(group, *id)?);
            let mut block =
                found.map_or_else(Block::default, |(key, value)| Block::of(first_of(group, key), value));
            let last = block.entries.last().map(|held| held.id);
            folded.change(&mut block, *id, pending.as_ref());
            // where the next block begins is read if it is asked for
            let mut end = None;
            while let Some((id, _)) = changes.peek() {
                if last.is_none_or(|last| **id > last) {
                    let end = match end {
                        Some(end) => end,
                        None => *end.insert(self.beginning_behind(group, begin)?),
                    };
                    if end.is_some_and(|end| **id >= end) {
                        break;
                    }
                }
                let (id, pending) = changes.next().expect("it was looked at");
                folded.change(&mut block, *id, pending.as_ref());
            }
            folded.put(group, &block, found, last);
        }
        Ok(folded)
    }

    /// Where the first block of the group begins behind that which has, or would have, the entry `id`.
    fn beginning_behind(self, group: &[u8], id: Id) -> Result<Option<Id>, Stop> {
        let Some(next) = id.after() else { return Ok(None) };
        let found = self.0.between(&pending_key(group, next), &pending_key(group, Id::MAX), 1)?;
        Ok(found.first().map(|(key, _)| first_of(group, key)))
    }
}

impl Folded {
    /// Lets an entry of a block be pending as this, or no more.
    fn change(&mut self, block: &mut Block<'_>, id: Id, pending: Option<&Pending>) {
        let place = block.entries.binary_search_by_key(&id, |held| held.id);
        if let Ok(at) = place {
            let held = &block.entries[at];
            self.count(&block.names[held.name], held.delivered_ms, -1);
        }
        let held = pending.map(|Pending { consumer, delivered_ms, times }| {
            self.count(consumer, *delivered_ms, 1);
            Held { id, delivered_ms: *delivered_ms, times: *times, name: block.name(consumer) }
        });
        match (place, held) {
            (Ok(at), Some(held)) => block.entries[at] = held,
            (Ok(at), None) => _ = block.entries.remove(at),
            (Err(at), Some(held)) => block.entries.insert(at, held),
            (Err(_), None) => {}
        }
    }

    fn count(&mut self, consumer: &[u8], delivered_ms: u64, by: i64) {
        if consumer.is_empty() && delivered_ms == 0 {
            self.free += by;
        } else if let Some(count) = self.by_consumer.get_mut(consumer) {
            *count += by;
        } else {
            self.by_consumer.insert(consumer.to_vec(), by);
        }
    }

    /// Notes what has become of the block `former`, whose last entry was `last`: one block, several or none.
    fn put(&mut self, group: &[u8], block: &Block<'_>, former: Option<Element<'_>>, last: Option<Id>) {
        let Some(Held { id, .. }) = block.entries.first() else {
            if let Some((key, _)) = former {
                self.blocks.push((key.to_vec(), None));
                self.more -= 1;
            }
            return;
        };
        let first = former.map_or(*id, |(key, _)| first_of(group, key));
        let key = former.map_or_else(|| pending_key(group, first), |(key, _)| key.to_vec());
        // those that are behind all others leave full blocks
        let count = block.entries.len();
        let had = block.entries.partition_point(|held| Some(held.id) <= last);
        let appends = block.entries.len() - had >= count.saturating_sub(ENTRIES_MAX);
        let most = if appends { ENTRIES_MAX } else { count.div_ceil(count.div_ceil(ENTRIES_MAX)) };
        self.more -= i64::from(former.is_some());
        let mut former = former.map(|(_, value)| value);
        let (mut key, mut first) = (key, first);
        for (nth, entries) in block.entries.chunks(most).enumerate() {
            if nth > 0 {
                (key, first) = (pending_key(group, entries[0].id), entries[0].id);
            }
            self.put_part(group, block, entries, key.clone(), first, former.take());
        }
    }

    /// Puts entries of a block at a key, in two blocks if their names are long.
    fn put_part(
        &mut self,
        group: &[u8],
        block: &Block<'_>,
        entries: &[Held],
        key: Vec<u8>,
        first: Id,
        former: Option<&[u8]>,
    ) {
        let value = block.encode(entries, first);
        if value.len() > BYTES_MAX && entries.len() > 1 {
            let (begin, end) = entries.split_at(entries.len() / 2);
            self.put_part(group, block, begin, key, first, former);
            return self.put_part(group, block, end, pending_key(group, end[0].id), end[0].id, None);
        }
        self.more += 1;
        if former != Some(&value[..]) {
            self.blocks.push((key, Some(value)));
        }
    }
}

impl<'a> Block<'a> {
    /// The block whose key has the id `first`.
    fn of(first: Id, value: &'a [u8]) -> Self {
        let mut block = Self::default();
        match value.split_first() {
            // what is behind the part that makes sense is none of it
            Some((&FORM, mut rest)) => _ = block.read(first, &mut rest),
            _ => {
                let mut reader = Reader(value);
                let (delivered_ms, times) = (reader.u64(), reader.u64());
                block.names.push(Cow::Borrowed(reader.0));
                block.entries.push(Held { id: first, delivered_ms, times, name: 0 });
            }
        }
        block
    }

    /// Reads what is behind the form; `None` where it is not what was written: of a value of any size no more than a block has is looked at.
    fn read(&mut self, first: Id, rest: &mut &'a [u8]) -> Option<()> {
        let names = varint::take(rest)?;
        for _ in 0..(names <= ENTRIES_MAX as u64).then_some(names)? {
            let len = usize::try_from(varint::take(rest)?).ok()?;
            let (name, behind) = rest.split_at_checked(len)?;
            self.names.push(Cow::Borrowed(name));
            *rest = behind;
        }
        let mut held = before(first);
        while let Some((flags, behind)) = rest.split_first() {
            if self.entries.len() == ENTRIES_MAX {
                return None;
            }
            *rest = behind;
            let mut number = |flag| if flags & flag == 0 { Some(0) } else { varint::take(rest) };
            let (ms, seq) = (number(MS)?, number(SEQ)?);
            let from = if flags & MS == 0 { held.id.seq.wrapping_add(1) } else { 0 };
            held.id = Id { ms: held.id.ms.checked_add(ms)?, seq: from.checked_add(seq)? };
            let later = number(DELIVERED)?;
            let later = (later >> 1).cast_signed() ^ -(later & 1).cast_signed();
            held.delivered_ms = held.delivered_ms.wrapping_add_signed(later);
            if flags & NAME != 0 {
                held.name = usize::try_from(number(NAME)?).ok()?;
            }
            held.times = match flags >> TIMES_SHIFT {
                TIMES_MORE => varint::take(rest)?,
                times => times.into(),
            };
            let ascends = self.entries.last().map_or(held.id >= first, |last| held.id > last.id);
            if !ascends || held.name >= self.names.len() {
                return None;
            }
            self.entries.push(held);
        }
        Some(())
    }

    /// Some of its entries as a block whose key has the id `first`.
    fn encode(&self, entries: &[Held], first: Id) -> Vec<u8> {
        let mut names = Vec::new();
        for held in entries {
            if !names.contains(&held.name) {
                names.push(held.name);
            }
        }
        let mut out = vec![FORM];
        varint::put(&mut out, names.len() as u64);
        for name in &names {
            varint::put(&mut out, self.names[*name].len() as u64);
            out.extend_from_slice(&self.names[*name]);
        }
        let mut former = before(first);
        for held in entries {
            let name = names.iter().position(|name| *name == held.name).expect("it was added above");
            let held = Held { name, ..*held };
            held.put(&former, &mut out);
            former = held;
        }
        out
    }

    /// The number of a name, which is one of the block's from now on.
    fn name(&mut self, name: &[u8]) -> usize {
        self.names.iter().position(|known| **known == *name).unwrap_or_else(|| {
            self.names.push(Cow::Owned(name.to_vec()));
            self.names.len() - 1
        })
    }

    fn pending(&self, held: &Held) -> Pending {
        let Held { delivered_ms, times, name, .. } = *held;
        Pending { consumer: self.names[name].to_vec(), delivered_ms, times }
    }

    fn told(&self) -> impl Iterator<Item = (Id, Pending)> {
        self.entries.iter().map(|held| (held.id, self.pending(held)))
    }
}

impl Held {
    /// Adds the entry behind `former`.
    fn put(&self, former: &Self, out: &mut Vec<u8>) {
        let ms = self.id.ms - former.id.ms;
        let seq = self.id.seq - if ms == 0 { former.id.seq.wrapping_add(1) } else { 0 };
        let later = self.delivered_ms.wrapping_sub(former.delivered_ms).cast_signed();
        let later = (later << 1 ^ later >> (i64::BITS - 1)).cast_unsigned();
        let name = if self.name == former.name { None } else { Some(self.name as u64) };
        let times = u8::try_from(self.times).ok().filter(|times| *times < TIMES_MORE);
        let flag = |is_there, flag| if is_there { flag } else { 0 };
        out.push(
            flag(ms > 0, MS)
                | flag(seq > 0, SEQ)
                | flag(later != 0, DELIVERED)
                | flag(name.is_some(), NAME)
                | times.unwrap_or(TIMES_MORE) << TIMES_SHIFT,
        );
        [ms, seq, later].into_iter().filter(|number| *number > 0).for_each(|number| varint::put(out, number));
        name.iter().for_each(|name| varint::put(out, *name));
        if times.is_none() {
            varint::put(out, self.times);
        }
    }
}

/// What the first entry of a block is told from.
fn before(first: Id) -> Held {
    Held { id: Id { ms: first.ms, seq: first.seq.wrapping_sub(1) }, ..Held::default() }
}

/// The id in the key of a block.
/// The entries of the block whose key has the id `first`.
pub(super) fn told_of(first: Id, value: &[u8]) -> Vec<(Id, Pending)> {
    Block::of(first, value).told().collect()
}

fn first_of(group: &[u8], key: &[u8]) -> Id {
    Reader(&key[group_prefix(b'p', group).len()..]).id()
}

/// Reads a block, writes it and reads that; returns how many entries it has.
///
/// # Panics
/// When they are not as those of a block are, or others the second time.
pub(crate) fn read_again(first: Id, value: &[u8]) -> usize {
    let block = Block::of(first, value);
    let told: Vec<_> = block.told().collect();
    assert!(told.is_sorted_by(|(one, _), (next, _)| one < next) && told.iter().all(|(id, _)| *id >= first));
    assert!(block.entries.len() <= ENTRIES_MAX && block.names.len() <= ENTRIES_MAX);
    let bytes = block.encode(&block.entries, first);
    assert!(Block::of(first, &bytes).told().eq(told.iter().cloned()), "the same entries, two blocks");
    told.len()
}

/// Whether a key and its value are a block as older versions do not know them.
pub(crate) fn is_block((key, value): Element<'_>) -> bool {
    key.first() == Some(&b'p') && value.first() == Some(&FORM)
}

/// What a block begins with.
const FORM: u8 = 1;
const MS: u8 = 1;
const SEQ: u8 = 2;
const DELIVERED: u8 = 4;
const NAME: u8 = 8;
const TIMES_SHIFT: u32 = 4;
const TIMES_MORE: u8 = 15;
/// Entries of a block: the key is a part of 2 B of each, and one that changes rewrites and logs some 50 B.
const ENTRIES_MAX: usize = 16;
/// Bytes of a block that has more than one entry: names may be long.
const BYTES_MAX: usize = 1_024;
/// Blocks that are read at a time.
const BLOCKS_PART: usize = 16;
const ID_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(entries: impl Iterator<Item = (Id, u64, u64, u8)>) -> Block<'static> {
        let mut block = Block::default();
        for (id, delivered_ms, times, name) in entries {
            let name = block.name(&vec![b'n'; usize::from(name)]);
            block.entries.push(Held { id, delivered_ms, times, name });
        }
        block
    }

    #[test]
    fn block_has_these_bytes() {
        let id = |ms, seq| Id { ms, seq };
        let entries = [
            (id(1_000, 2), 900, 1, 1),
            (id(1_000, 3), 900, 1, 1),
            (id(1_001, 0), 899, 1, 2),
            (id(1_001, 7), 899, 20, 1),
        ];
        let golden = b"\x01\x02\x01n\x02nn\x14\x88\x0e\x10\x1d\x01\x01\x01\xfa\x06\0\x14";
        assert_eq!(
            block(entries.into_iter()).encode(&block(entries.into_iter()).entries, id(1_000, 2)),
            golden
        );
        // what older versions wrote
        let older = [&900_u64.to_be_bytes()[..], &1_u64.to_be_bytes(), b"n"].concat();
        assert_eq!(Block::of(id(1_000, 2), &older), block(entries.into_iter().take(1)));
    }

    proptest! {
        #[test]
        fn any_block_comes_back(
            first in (any::<u64>(), any::<u64>()),
            ids in proptest::collection::btree_set((any::<u64>(), 0..3_u64), 0..=ENTRIES_MAX),
            more in proptest::collection::vec((any::<u64>(), 0..30_u64, 0..3_u8), 20),
        ) {
            let first = Id { ms: first.0, seq: first.1 };
            let ids = ids.into_iter().map(|(ms, seq)| Id { ms, seq }).filter(|id| *id >= first);
            let block = block(ids.zip(more).map(|(id, (delivered, times, name))| (id, delivered, times, name)));
            let bytes = block.encode(&block.entries, first);
            prop_assert_eq!(Block::of(first, &bytes), block);
        }

        #[test]
        fn bytes_that_are_no_block_are_read_without_harm(first: u64, bytes: Vec<u8>) {
            let first = Id { ms: first, seq: 0 };
            let bytes = [&[FORM][..], &bytes].concat();
            let block = Block::of(first, &bytes);
            prop_assert!(block.entries.is_sorted_by(|one, next| one.id < next.id));
            prop_assert!(block.told().all(|(id, _)| id >= first));
            prop_assert!(block.entries.len() <= ENTRIES_MAX && block.names.len() <= ENTRIES_MAX);
        }
    }
}
