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
use std::sync::atomic::Ordering;

use reactor::Output;
use resp::Writer;
use store::{Element, Prepared, Snapshot, Stop, Store, StoreError, Wanted};
use ticket::Ticket;

use crate::stats::Stats;

/// Writes an element into a reply.
pub(crate) type WriteElement = fn(Element<'_>, &mut Writer<'_>);

/// A reply of which a part is still to be sent.
#[derive(Debug)]
pub(crate) struct ChunkedReply {
    snapshot: Snapshot,
    part: Part,
    write: WriteElement,
    resp3: bool,
    /// What all of it waits for.
    ticket: Ticket,
    /// Elements that are still to come.
    left: u64,
    /// So many bytes are read at a time.
    read_bytes: u64,
    /// What was read for the next part.
    pub(crate) prepared: Prepared,
    /// How often that was.
    fetches: u32,
}

/// What is still to be read.
#[derive(Clone, Debug)]
enum Part {
    /// These leaves of a hash or a set.
    Leaves(Range<u32>),
    /// These elements in their order.
    Forward(Range<u64>),
    /// These elements, the last first.
    Backward(Range<u64>),
}

/// Where a reply is.
#[derive(Debug)]
pub(crate) enum Progress {
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
    pub(crate) fn of_all(snapshot: Snapshot, write: WriteElement, resp3: bool) -> Box<Self> {
        let (part, left) = (Part::Leaves(0..snapshot.leaves()), snapshot.count());
        Self::new(snapshot, part, left, write, resp3)
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
        let part = if is_reversed { Part::Backward(range) } else { Part::Forward(range) };
        Self::new(snapshot, part, left, write, resp3)
    }

    fn new(snapshot: Snapshot, part: Part, left: u64, write: WriteElement, resp3: bool) -> Box<Self> {
        Box::new(Self {
            snapshot,
            part,
            write,
            resp3,
            ticket: Ticket::NOTHING,
            left,
            read_bytes: READ_BYTES,
            prepared: Prepared::default(),
            fetches: 0,
        })
    }

    /// The same, which waits for `ticket`.
    pub(crate) fn waiting_for(mut self: Box<Self>, ticket: Ticket) -> Box<Self> {
        self.ticket = ticket;
        self
    }

    /// Appends what comes next.
    pub(crate) fn go_on(&mut self, store: &Store, stats: &Stats, output: &mut Output) -> Progress {
        let mut written = 0;
        while self.left > 0 {
            if written >= TURN_BYTES || output.is_full() {
                return Progress::Full;
            }
            let before = output.buffer().len();
            match self.append_part(store, output.buffer()) {
                Ok(()) => {
                    output.hold(self.ticket);
                    written += output.buffer().len() - before;
                    self.fetches = 0;
                    self.prepared.clear();
                }
                Err((Stop::Cold, wanted)) if self.fetches < FETCHES_MAX => {
                    self.fetches += 1;
                    stats.fetches.fetch_add(1, Ordering::Relaxed);
                    let mut prepared = std::mem::take(&mut self.prepared);
                    prepared.want(wanted);
                    return Progress::Fetch(prepared);
                }
                // fewer at once
                Err((Stop::Refused(StoreError::ReadTooLarge { .. }), _)) if self.read_bytes > 1 => {
                    self.read_bytes /= 8;
                    self.prepared.clear();
                }
                Err((stop, _)) => return self.broken(stats, &stop),
            }
        }
        Progress::Done
    }

    fn broken(&self, stats: &Stats, stop: &Stop) -> Progress {
        stats.chunked_replies_broken.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            ?stop,
            elements_left = self.left,
            "closed: the rest of a reply with a large collection cannot be read"
        );
        Progress::Broken
    }

    /// Appends the elements of the next part, all or none of them.
    fn append_part(&mut self, store: &Store, out: &mut Vec<u8>) -> Result<(), (Stop, Wanted)> {
        let mut count = 0;
        let mut writer = Writer::new(out, self.resp3);
        let mut write = |element: Element<'_>| {
            count += 1;
            (self.write)(element, &mut writer);
        };
        let (prepared, snapshot) = (&self.prepared, &self.snapshot);
        let elements = self.read_bytes / snapshot.element_bytes().max(1) + 1;
        let is_whole = match &mut self.part {
            Part::Leaves(leaves) => {
                let per_leaf = snapshot.count() / u64::from(snapshot.leaves()) + 1;
                let to = leaves.start.saturating_add((elements / per_leaf) as u32 + 1).min(leaves.end);
                snapshot.read_leaves(store, prepared, leaves.start..to, write)?;
                leaves.start = to;
                if leaves.start == leaves.end { count == self.left } else { count < self.left }
            }
            Part::Forward(range) => {
                let to = range.end.min(range.start + elements);
                snapshot.read_range(store, prepared, range.start..to, write)?;
                let wanted = to - std::mem::replace(&mut range.start, to);
                count == wanted
            }
            Part::Backward(range) => {
                let from = range.start.max(range.end.saturating_sub(elements));
                let mut part = Vec::new();
                let keep = |(key, value): Element<'_>| part.push((key.to_vec(), value.to_vec()));
                snapshot.read_range(store, prepared, from..range.end, keep)?;
                part.iter().rev().for_each(|(key, value)| write((key, value)));
                let wanted = std::mem::replace(&mut range.end, from) - from;
                count == wanted
            }
        };
        if !is_whole {
            let why = StoreError::SnapshotLost("the collection has other elements than are counted");
            return Err((why.into(), Wanted::default()));
        }
        self.left -= count;
        Ok(())
    }
}

/// What is read at a time: locks are held for so long.
const READ_BYTES: u64 = 32 << 10;
/// What a turn appends before others get theirs.
const TURN_BYTES: usize = 256 << 10;
/// Reads from disk for one part: each but the first means that what was read moved.
const FETCHES_MAX: u32 = 100;
