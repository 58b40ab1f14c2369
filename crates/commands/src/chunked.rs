//! Large collections as replies: sent in parts, each read when the client has taken those before it.
//!
//! ```text
//! HGETALL key     the number of elements, and a snapshot of the hash (`store::Snapshot`)
//! each turn       the elements of some leaves, until the output is full; what is cold is fetched first
//! at the end      the next request of the connection
//! ```
//!
//! So a reply of any size takes a bounded part of memory, and a loop a bounded time for each part of it. Other clients read and change the
//! collection meanwhile: the reply is of one moment.
//!
//! A reply that cannot be finished (too much was changed, the database was flushed, damage) ends the connection: what was sent is the
//! beginning of a reply, and nothing else can follow it.
//!
//! Within MULTI, scripts and TX.DO, and where messages may come between replies, replies are made whole, up to their limits.

use std::ops::Range;

use reactor::Output;
use resp::Writer;
use store::{Element, Part, Prepared, Snapshot, Stop, Store, StoreError, Wanted};
use ticket::Ticket;

/// Writes an element into a reply.
pub type WriteElement = fn(Element<'_>, &mut Writer<'_>);

/// A reply of which a part is still to be sent.
#[derive(Debug)]
pub struct ChunkedReply {
    snapshot: Snapshot,
    rest: Rest,
    write: WriteElement,
    resp3: bool,
    /// What all of it waits for.
    ticket: Ticket,
    /// Elements that are still to come.
    left: u64,
    /// So many elements, or leaves, are read at a time: about as many as had the bytes of a part so far.
    at_once: u64,
    /// What was read for the next part.
    pub prepared: Prepared,
    /// How often that was.
    fetches: u32,
}

/// What is still to be read.
#[derive(Clone, Debug)]
enum Rest {
    /// These leaves of a hash or a set.
    Leaves(Range<u32>),
    /// These elements in their order, or the last first.
    Elements { range: Range<u64>, is_reversed: bool },
}

impl Rest {
    /// So many leaves, or elements.
    fn len(&self) -> u64 {
        match self {
            Self::Leaves(leaves) => leaves.len() as u64,
            Self::Elements { range, .. } => range.end - range.start,
        }
    }
}

/// What an element takes beside its bytes.
const BULK_BYTES: u64 = 6;

/// Where a reply is.
#[derive(Debug)]
pub enum Progress {
    /// All of it is on its way.
    Done,
    /// The client has to take what there is.
    Full,
    /// Records are to be fetched.
    Fetch(Prepared),
    /// It cannot be finished.
    Broken,
}

impl ChunkedReply {
    /// The reply with all elements of a hash or a set.
    pub fn of_all(snapshot: Snapshot, write: WriteElement, resp3: bool) -> Box<Self> {
        let (rest, left) = (Rest::Leaves(0..snapshot.leaves()), snapshot.count());
        Self::new(snapshot, rest, left, write, resp3)
    }

    /// The reply with elements number `range`, in their order or from the last on.
    pub(crate) fn of_range(
        snapshot: Snapshot,
        range: &Range<usize>,
        is_reversed: bool,
        write: WriteElement,
        resp3: bool,
    ) -> Box<Self> {
        let range = range.start as u64..range.end as u64;
        let left = range.end - range.start;
        let rest = Rest::Elements { range, is_reversed };
        Self::new(snapshot, rest, left, write, resp3)
    }

    fn new(snapshot: Snapshot, rest: Rest, left: u64, write: WriteElement, resp3: bool) -> Box<Self> {
        let elements = READ_BYTES / snapshot.element_bytes().max(1) + 1;
        let at_once = match &rest {
            Rest::Leaves(leaves) => elements / (left / u64::from(leaves.end).max(1) + 1) + 1,
            Rest::Elements { .. } => elements,
        };
        Box::new(Self {
            snapshot,
            rest,
            write,
            resp3,
            ticket: Ticket::NOTHING,
            left,
            at_once,
            prepared: Prepared::default(),
            fetches: 0,
        })
    }

    /// About how many bytes the reply has.
    pub fn bytes_about(&self) -> u64 {
        self.left.saturating_mul(self.snapshot.element_bytes() + BULK_BYTES)
    }

    /// The same, which waits for `ticket`.
    pub fn waiting_for(mut self: Box<Self>, ticket: Ticket) -> Box<Self> {
        self.ticket = ticket;
        self
    }

    /// Appends what comes next.
    pub fn go_on(&mut self, store: &Store, output: &mut Output) -> Progress {
        let mut written = 0;
        while self.rest.len() > 0 {
            if written >= TURN_BYTES || output.is_full() {
                return Progress::Full;
            }
            let before = output.buffer().len();
            match self.append_part(store, output.buffer()) {
                Ok(()) => {
                    output.hold(self.ticket);
                    written += output.buffer().len() - before;
                    self.fetches = 0;
                }
                Err((Stop::Cold, wanted)) if self.fetches < FETCHES_MAX => {
                    self.fetches += 1;
                    let mut prepared = std::mem::take(&mut self.prepared);
                    prepared.want(wanted);
                    return Progress::Fetch(prepared);
                }
                // fewer at once
                Err((Stop::Refused(StoreError::ReadTooLarge { .. }), _)) if self.at_once > 1 => {
                    self.at_once /= 8;
                    self.prepared.clear();
                }
                Err((stop, _)) => return self.broken(&stop),
            }
        }
        Progress::Done
    }

    fn broken(&self, stop: &Stop) -> Progress {
        tracing::warn!(
            ?stop,
            elements_left = self.left,
            "closed: the rest of a reply with a large collection cannot be read"
        );
        Progress::Broken
    }

    /// Appends the elements of the next part, all or none of them.
    fn append_part(&mut self, store: &Store, out: &mut Vec<u8>) -> Result<(), (Stop, Wanted)> {
        let (mut count, begin, before) = (0, out.len(), self.rest.len());
        let mut writer = Writer::new(out, self.resp3);
        let write = |element: Element<'_>| {
            count += 1;
            (self.write)(element, &mut writer);
        };
        let part = Part { prepared: &self.prepared, bytes_max: PART_BYTES_MAX };
        let wanted = before.min(self.at_once.max(1));
        let is_whole = match &mut self.rest {
            Rest::Leaves(leaves) => {
                // a leaf may have no elements, and one all of them
                let these = leaves.start..leaves.start + wanted as u32;
                leaves.start = self.snapshot.read_leaves(store, part, these, write)?;
                if leaves.start == leaves.end { count == self.left } else { count <= self.left }
            }
            Rest::Elements { range, is_reversed } => {
                let (these, others) = match is_reversed {
                    true => (range.end - wanted..range.end, range.start..range.end - wanted),
                    false => (range.start..range.start + wanted, range.start + wanted..range.end),
                };
                let left = self.snapshot.read_range(store, part, these, *is_reversed, write)?;
                *range = match is_reversed {
                    true => others.start..left.end,
                    false => left.start..others.end,
                };
                true
            }
        };
        if !is_whole {
            let why = StoreError::SnapshotLost("the collection has other elements than are counted");
            return Err((why.into(), Wanted::default()));
        }
        self.left -= count;
        let (told, bytes) = (before - self.rest.len(), (out.len() - begin) as u64);
        if told == wanted {
            // what was fetched for this part was used
            self.prepared.clear();
            self.at_once = (wanted * READ_BYTES / bytes.max(1)).clamp(1, 2 * wanted);
        } else {
            self.at_once = told;
        }
        Ok(())
    }
}

/// About what is read at a time: locks are held for so long.
const READ_BYTES: u64 = 32 << 10;
/// No part is longer but by its last element, or the last leaf of a hash or a set.
const PART_BYTES_MAX: u64 = 4 * READ_BYTES;
/// What a turn appends before others get theirs.
const TURN_BYTES: usize = 256 << 10;
/// Reads from disk for one part: each but the first means that what was read moved.
const FETCHES_MAX: u32 = 100;
