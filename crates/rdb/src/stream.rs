//! Streams: entries in listpacks, then groups with what is pending.
//!
//! ```text
//!  count (first id as string of 16 bytes, listpack) | entries | last id | [2: first id | greatest deleted id | added] | groups group...
//!  group     name | last id | [2: read] | pending (id16 | u64 ms | times) | consumers consumer... | [5: count id16...]: given back
//!  consumer  name | seen u64 ms | [3: active u64 ms] | pending id16...
//!  [4: seconds | most | producers (name | count (name | id)) | named | again]         names of entries, which are skipped
//!
//!  listpack  count | deleted | n | field... n | 0 | entry...
//!  entry     flags | ms more | seq more | [flag 2 is not set: n, then fields with values; else values] | elements of the entry
//! ```
//!
//! [2] is of type 19 and later, [3] of 21, [4] of 26, [5] of 27. An id is two lengths, an id16 has 16 bytes, big-endian. Flag 1: the entry is
//! deleted.

use std::io::Read;

use crate::blob::{Blob, Form, new_blob};
use crate::error::Error;
use crate::source::{Source, step};
use crate::{Id, Part, Pending, StreamState};

/// What was read of a stream.
#[derive(Debug)]
pub(crate) struct StreamDecoder {
    /// 1 to 5, see above.
    version: u8,
    phase: Phase,
    /// Listpacks, then groups, that follow.
    left: u64,
    node: Option<Node>,
    last: Option<Id>,
    /// Entries that were read.
    entries: u64,
    /// What is pending in the group that is being read, by id, and whether its consumer is known.
    pending: Vec<(Pending, bool)>,
    consumers_left: u64,
    consumer_pending_left: u64,
    free_left: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Entries,
    Groups,
    Consumers,
    Free,
    Done,
}

/// An entry, with its fields and values.
type Entry = (Id, Vec<Vec<u8>>);

/// A listpack of entries.
#[derive(Debug)]
struct Node {
    first: Id,
    blob: Blob,
    fields: Vec<Vec<u8>>,
    /// Entries that follow, deleted ones included.
    left: u64,
}

impl StreamDecoder {
    pub(crate) fn begin<R: Read>(version: u8, source: &mut Source<R>) -> Result<Self, Error> {
        Ok(Self {
            version,
            phase: Phase::Entries,
            left: source.length()?,
            node: None,
            last: None,
            entries: 0,
            pending: Vec::new(),
            consumers_left: 0,
            consumer_pending_left: 0,
            free_left: 0,
        })
    }

    /// The next part; `None` behind the last one.
    pub(crate) fn next_part<R: Read>(&mut self, source: &mut Source<R>) -> Result<Option<Part>, Error> {
        while self.phase != Phase::Done {
            let part = match self.phase {
                Phase::Entries => Some(self.entry(source)?),
                Phase::Groups => self.group(source)?,
                Phase::Consumers => self.consumer(source)?,
                Phase::Free => self.free(source)?,
                Phase::Done => None,
            };
            if part.is_some() {
                return Ok(part);
            }
        }
        Ok(None)
    }

    /// The next entry, or what is known of all.
    fn entry<R: Read>(&mut self, source: &mut Source<R>) -> Result<Part, Error> {
        loop {
            if let Some(node) = &mut self.node {
                match node.entry() {
                    Err(what) => return source.damaged(what),
                    Ok(Some((id, fields))) => {
                        if self.last.replace(id).is_some_and(|last| last >= id) {
                            return source.damaged("entries that do not ascend");
                        }
                        self.entries += 1;
                        return Ok(Part::Entry { id, fields });
                    }
                    Ok(None) => self.node = None,
                }
            }
            if !step(&mut self.left) {
                return self.state(source);
            }
            self.node = Some(Node::read(source)?);
        }
    }

    fn state<R: Read>(&mut self, source: &mut Source<R>) -> Result<Part, Error> {
        let (len, last) = (source.length()?, id(source)?);
        let mut state = StreamState { len, last, max_deleted: Id::default(), added: len };
        if self.version >= 2 {
            let _first = id(source)?;
            (state.max_deleted, state.added) = (id(source)?, source.length()?);
        }
        if len != self.entries || self.last.is_some_and(|entry| entry > last) {
            return source.damaged("a stream with other entries than it says");
        }
        (self.left, self.phase) = (source.length()?, Phase::Groups);
        Ok(Part::Stream(state))
    }

    /// The next group; `None`: there is none.
    fn group<R: Read>(&mut self, source: &mut Source<R>) -> Result<Option<Part>, Error> {
        if !step(&mut self.left) {
            if self.version >= 4 {
                skip_names(source)?;
            }
            self.phase = Phase::Done;
            return Ok(None);
        }
        let (name, last) = (source.string()?, id(source)?);
        // what is beyond a signed number stands for: not known
        let read = if self.version >= 2 { source.length()? } else { u64::MAX };
        let read = i64::try_from(read).is_ok().then_some(read);
        let mut left = source.length()?;
        self.pending.clear();
        while step(&mut left) {
            let (id, delivered_ms, times) = (raw_id(source)?, source.u64()?, source.length()?);
            if self.pending.last().is_some_and(|(last, _)| last.id >= id) {
                return source.damaged("pending entries that do not ascend");
            }
            self.pending.push((Pending { id, delivered_ms, times, is_free: false }, false));
        }
        (self.consumers_left, self.phase) = (source.length()?, Phase::Consumers);
        Ok(Some(Part::Group { name, last, read }))
    }

    /// The next consumer, or what is pending at the one before; `None`: there is no more.
    fn consumer<R: Read>(&mut self, source: &mut Source<R>) -> Result<Option<Part>, Error> {
        if step(&mut self.consumer_pending_left) {
            return self.owned(false, source).map(Some);
        }
        if step(&mut self.consumers_left) {
            let (name, seen_ms) = (source.string()?, source.u64()?);
            let active_ms = if self.version >= 3 { source.u64()? } else { seen_ms };
            self.consumer_pending_left = source.length()?;
            let active_ms = Some(active_ms).filter(|ms| i64::try_from(*ms).is_ok());
            return Ok(Some(Part::Consumer { name, seen_ms, active_ms }));
        }
        self.free_left = if self.version >= 5 { source.length()? } else { 0 };
        self.phase = Phase::Free;
        Ok(None)
    }

    /// The next entry that was given back; `None`: there is no more, and the group ends.
    fn free<R: Read>(&mut self, source: &mut Source<R>) -> Result<Option<Part>, Error> {
        if step(&mut self.free_left) {
            return self.owned(true, source).map(Some);
        }
        if self.pending.iter().any(|(_, is_known)| !is_known) {
            return source.damaged("a pending entry that no consumer has");
        }
        self.phase = Phase::Groups;
        Ok(None)
    }

    fn owned<R: Read>(&mut self, is_free: bool, source: &mut Source<R>) -> Result<Part, Error> {
        let id = raw_id(source)?;
        let found = self.pending.binary_search_by_key(&id, |(pending, _)| pending.id).ok();
        let Some(at) = found.filter(|at| !self.pending[*at].1) else {
            return source.damaged("a consumer's entry that is not pending, or another's");
        };
        let (pending, is_known) = &mut self.pending[at];
        *is_known = true;
        Ok(Part::Pending(Pending { is_free, ..*pending }))
    }
}

impl Node {
    fn read<R: Read>(source: &mut Source<R>) -> Result<Self, Error> {
        let key = source.string()?;
        let Some(first) = key.try_into().ok().map(Id::from_bytes) else {
            return source.damaged("a part of a stream without an identifier");
        };
        let blob = new_blob(Form::Listpack, source)?;
        Self::new(first, blob).or_else(|what| source.damaged(what))
    }

    fn new(first: Id, mut blob: Blob) -> Result<Self, &'static str> {
        let (count, deleted) = (blob.number()?, blob.number()?);
        let fields = (0..blob.number()?).map(|_| blob.needed()).collect::<Result<_, _>>()?;
        let _none_before = blob.number()?;
        let counts = u64::try_from(count).ok().zip(u64::try_from(deleted).ok());
        let left = counts.and_then(|(count, deleted)| count.checked_add(deleted));
        Ok(Self { first, blob, fields, left: left.ok_or("a part of a stream with fewer than no entries")? })
    }

    /// The next entry that is not deleted.
    fn entry(&mut self) -> Result<Option<Entry>, &'static str> {
        while step(&mut self.left) {
            let flags = self.blob.number()?;
            let (ms, seq) = (self.blob.number()?, self.blob.number()?);
            // differences of seq wrap around
            let id = Id {
                ms: self.first.ms.wrapping_add_signed(ms),
                seq: self.first.seq.wrapping_add_signed(seq),
            };
            let mut parts = Vec::new();
            if flags & SAME_FIELDS != 0 {
                for field in &self.fields {
                    parts.extend([field.clone(), self.blob.needed()?]);
                }
            } else {
                for _ in 0..self.blob.number()? {
                    parts.extend([self.blob.needed()?, self.blob.needed()?]);
                }
            }
            let _elements = self.blob.number()?;
            if flags & DELETED == 0 {
                return Ok(Some((id, parts)));
            }
        }
        match self.blob.next()? {
            None => Ok(None),
            Some(_) => Err("more entries in a part of a stream than it says"),
        }
    }
}

impl Id {
    /// The id16 of these bytes.
    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        let whole = u128::from_be_bytes(bytes);
        Self { ms: (whole >> 64) as u64, seq: whole as u64 }
    }

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }
}

fn id<R: Read>(source: &mut Source<R>) -> Result<Id, Error> {
    Ok(Id { ms: source.length()?, seq: source.length()? })
}

fn raw_id<R: Read>(source: &mut Source<R>) -> Result<Id, Error> {
    source.array().map(Id::from_bytes)
}

fn skip_names<R: Read>(source: &mut Source<R>) -> Result<(), Error> {
    let (_seconds, _most) = (source.length()?, source.length()?);
    let mut producers = source.length()?;
    while step(&mut producers) {
        source.skip_string()?;
        let mut names = source.length()?;
        while step(&mut names) {
            source.skip_string()?;
            id(source)?;
        }
    }
    let (_named, _again) = (source.length()?, source.length()?);
    Ok(())
}

pub(crate) const DELETED: i64 = 1;
pub(crate) const SAME_FIELDS: i64 = 2;
