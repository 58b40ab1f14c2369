//! Copies of records that wait to be durable before the index turns to them: cleaning and folding make them.
//!
//! Invariants
//!   1. A copy is appended under the stripe's lock, while the key consists of what it is a copy of.
//!   2. The index turns to a copy only when it is durable.
//!
//! Out of scope: what is copied (`cleaner`, `folding`).

use collections::Deadline;
use std::collections::{BTreeSet, VecDeque};

use journal::{Class, Draft, JournalError, LogAddress, Refusal, Seq};

use super::LogEngine;
use super::capture::Survivor;
use crate::hash::KeyHasher;
use crate::index::Index;
use crate::index::recover::Owned;
use crate::record;

/// What a slice of work needs.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) engine: &'a LogEngine,
    pub(crate) index: &'a Index,
    pub(crate) hasher: &'a KeyHasher,
}

/// How a slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// So many bytes were read or written: more is to do.
    Worked(u64),
    /// Waits for copies to become durable, or for room in the journal.
    Waits,
    /// Nothing points into the segment.
    Done,
}

/// Copies that wait to be durable.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// In the order of the log.
    waiting: VecDeque<Copy>,
    /// Segments that the index was turned into.
    turned: BTreeSet<u32>,
}

/// A copy that waits. The record itself is not kept meanwhile: it may be long, and that may take.
#[derive(Debug)]
pub(crate) struct Copy {
    source: Survivor,
    source_bytes: u64,
    to: LogAddress,
    seq: Seq,
    lsn: u64,
    bytes: u64,
}

/// What a copy has: a record's payload, and the effect that it is the state of.
#[derive(Debug)]
pub(crate) struct Image<'a> {
    /// With SHARED.
    pub(crate) kind: u8,
    pub(crate) payload: &'a [u8],
    pub(crate) seq: Seq,
    pub(crate) expiry: Option<Deadline>,
}

/// What became of an attempt to append a copy.
#[derive(Debug)]
pub(crate) enum Appended {
    Copied(Copy),
    /// The key consists of something else by now.
    Changed,
    /// The journal has no room now.
    NoRoom,
}

impl Copy {
    /// Bytes of the copy in its segment.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Copies {
    /// Appends `image` as the copy of the record at `source`, which has `source_bytes`, if its key still consists of `owned`.
    ///
    /// # Errors
    /// When the journal takes no such record.
    pub(crate) fn append(
        source: Survivor,
        source_bytes: u64,
        owned: &Owned,
        image: &Image<'_>,
        class: Class,
        context: Context<'_>,
    ) -> Result<Appended, JournalError> {
        let Survivor { keyspace, hash, .. } = source;
        let journal = &context.engine.journal;
        let parts = [image.payload];
        let draft = Draft::new(image.kind, keyspace, &parts)
            .expiring(Deadline::raw_or_zero(image.expiry))
            .moved(image.seq);
        let credits = match journal.reserve(journal::footprint([draft.payload_len()]), class) {
            Ok(credits) => credits,
            Err(Refusal::Busy { .. } | Refusal::Full { .. }) => return Ok(Appended::NoRoom),
            Err(refusal) => return Err(JournalError::Invalid(refusal.to_string())),
        };
        let (mut addresses, mut lsn) = (Vec::with_capacity(1), 0);
        let appended = context.index.append_if(keyspace, hash, owned, || {
            lsn = journal.append(credits, &[draft], &mut addresses).last_lsn.0;
            addresses[0]
        });
        let bytes = record::HEADER_BYTES + (image.payload.len() as u64).next_multiple_of(8);
        Ok(appended.map_or(Appended::Changed, |to| {
            Appended::Copied(Copy { source, source_bytes, to, seq: image.seq, lsn, bytes })
        }))
    }

    /// Waits for `copy`.
    pub(crate) fn push(&mut self, copy: Copy) {
        self.waiting.push_back(copy);
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a copy in `segment` waits for the index to turn to it.
    pub(crate) fn awaits(&self, segment: u32) -> bool {
        self.waiting.iter().any(|copy| segment_of(copy.to) == segment)
    }

    /// Takes the list of segments that the index was turned into since the last call.
    pub(crate) fn take_turned(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.turned)
    }

    /// Turns the index to the copies that are durable; calls `end` for the source of each, and whether it was turned: else its key
    /// has changed.
    pub(crate) fn settle(&mut self, context: Context<'_>, mut end: impl FnMut(Survivor, bool)) {
        let durable = context.engine.journal.durable_lsn().0;
        let liveness = &context.engine.liveness;
        while let Some(copy) = self.waiting.pop_front_if(|copy| copy.lsn <= durable) {
            let Survivor { keyspace, hash, address } = copy.source;
            let turned = context.index.turn(keyspace, hash, address, copy.to, copy.bytes, copy.seq);
            let has_turned = turned.is_some();
            if has_turned {
                self.turned.insert(segment_of(copy.to));
                liveness.on_live(segment_of(copy.to), copy.bytes);
                if copy.source_bytes > 0 {
                    liveness.on_dead(segment_of(address), copy.source_bytes);
                }
            }
            turned.into_iter().flatten().for_each(|delta| liveness.on_dead_delta(&delta));
            end(copy.source, has_turned);
        }
    }
}

fn segment_of(address: LogAddress) -> u32 {
    address.segment().0
}

/// Bytes read or copied in one slice: background I/O never has more in flight.
pub(crate) const SLICE_BYTES: u64 = 256 * 1024;
