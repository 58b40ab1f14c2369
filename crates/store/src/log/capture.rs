//! Capturing a checkpoint while commands run, in slices.
//!
//! ```text
//! begin: note the appended lsn, the mapping --> slices: stripe by stripe, at most SLICE_ENTRIES under one lock
//!   --> captured: note the appended lsn again --> durable up to there: publish
//! ```
//!
//! Invariants
//!   1. Whatever was appended before `begin` is in the capture: an effect is applied under its stripe's lock, and every
//!      stripe is visited after the lsn was noted.
//!   2. It is published only when everything in it is durable.
//!   3. It has met every place that the index held. New places are only ever in younger segments, but for copies that
//!      cleaning turns to: so a segment sealed before that it did not meet, and that no copy was turned into since, is empty.
//!
//! Out of scope: when to begin (`keeper`), bytes (`checkpoint`), files (`checkpoint_file`).

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use journal::Place;
use vfs::Vfs;

use super::checkpoint::{Area, Encoder, Entry, Expiry, Header, SegmentLive};
use super::checkpoint_file::{PIECE_SIZE_BYTES_MAX, Writer};
use crate::hash::STRIPES;
use crate::index::Index;
use crate::index::recover::{SnapshotAt, SnapshotItem};

/// A checkpoint under way.
#[derive(Debug)]
pub(crate) struct Capture {
    lsn: u64,
    began: u64,
    encoder: Encoder,
    writer: Writer,
    stripe: usize,
    at: SnapshotAt,
    /// Newest lsn that may be in it, once all stripes were visited.
    captured_lsn: Option<u64>,
    /// Segments that were sealed when it began, less those that something points into.
    unreferenced: BTreeSet<u32>,
}

/// A checkpoint that is durable under its name, and that the manifest should name now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Published {
    /// File name.
    pub(crate) name: String,
    /// All effects at or below this LSN are in it.
    pub(crate) lsn: u64,
    /// Which capture it was, from 1.
    pub(crate) began: u64,
    /// Size of the file.
    pub(crate) size_bytes: u64,
    /// Segments that were sealed when it began, and that nothing pointed into.
    pub(crate) unreferenced: BTreeSet<u32>,
}

impl Capture {
    /// Begins capture number `began` of an index in which everything up to `header.lsn` was appended.
    ///
    /// # Errors
    /// What the disk reports.
    pub(crate) fn begin(
        vfs: &Arc<dyn Vfs>,
        dir: &Path,
        index: &Index,
        header: &Header,
        began: u64,
        sealed: BTreeSet<u32>,
    ) -> io::Result<Self> {
        let mut encoder = Encoder::new(header);
        // the mapping changes only under all locks: with one held, its parts belong together
        let stripe = index.lock(0);
        encoder.mapping(index.mapping_seq(), index.next_keyspace(), &index.mapping());
        drop(stripe);
        let writer = Writer::create(vfs, dir)?;
        Ok(Self {
            lsn: header.lsn,
            began,
            encoder,
            writer,
            stripe: 0,
            at: SnapshotAt::START,
            captured_lsn: None,
            unreferenced: sealed,
        })
    }

    /// Captures at most about [`SLICE_ENTRIES`] entries and writes what is complete; returns whether that was all.
    ///
    /// `appended_lsn` is asked when the last stripe has been visited.
    ///
    /// # Errors
    /// What the disk reports; the attempt is over then.
    pub(crate) fn slice(
        &mut self,
        index: &Index,
        live: &dyn Fn() -> Vec<SegmentLive>,
        appended_lsn: &dyn Fn() -> u64,
    ) -> io::Result<bool> {
        let mut left = SLICE_ENTRIES;
        while self.stripe < STRIPES && left > 0 {
            let (encoder, unreferenced) = (&mut self.encoder, &mut self.unreferenced);
            let next = index.snapshot_slice(self.stripe, self.at, left, &mut |item| {
                left = left.saturating_sub(1);
                add(encoder, unreferenced, item);
            });
            // an empty stripe costs a lock
            left = left.saturating_sub(1);
            self.at = next.unwrap_or(SnapshotAt::START);
            self.stripe += usize::from(next.is_none());
        }
        if self.stripe == STRIPES && self.captured_lsn.is_none() {
            self.captured_lsn = Some(appended_lsn());
            self.encoder.segments(&live());
        }
        if self.encoder.ready_bytes() >= PIECE_SIZE_BYTES_MAX {
            let bytes = self.encoder.take();
            self.writer.write(&bytes)?;
        }
        Ok(self.captured_lsn.is_some())
    }

    /// Newest lsn that may be in it; `None` while stripes are left.
    pub(crate) fn captured_lsn(&self) -> Option<u64> {
        self.captured_lsn
    }

    /// Ends the file and gives it its name.
    ///
    /// # Errors
    /// What the disk reports; nothing refers to the file then.
    ///
    /// # Panics
    /// If stripes are left, or `durable_lsn` is below what was captured: a bug of the caller.
    pub(crate) fn publish(mut self, durable_lsn: u64) -> io::Result<Published> {
        let captured = self.captured_lsn.expect("published only when all stripes were captured");
        assert!(captured <= durable_lsn, "checkpoint of lsn {captured} while {durable_lsn} is durable");
        self.writer.write(&self.encoder.finish())?;
        let size_bytes = self.writer.written_bytes();
        let name = self.writer.publish(self.lsn)?;
        Ok(Published { name, lsn: self.lsn, began: self.began, size_bytes, unreferenced: self.unreferenced })
    }
}

fn add(encoder: &mut Encoder, unreferenced: &mut BTreeSet<u32>, item: SnapshotItem<'_>) {
    match item {
        SnapshotItem::Slot { keyspace, hash, place, shared, deltas } => {
            let area = Area { keyspace, stripe: hash.stripe() as u16 };
            let deltas = deltas.to_vec();
            for place in std::iter::once(place).chain(deltas.iter().map(|delta| delta.place)) {
                unreferenced.remove(&Place::unpack(place).segment().0);
            }
            encoder.entry(area, Entry { bits: hash.bits(), tag: hash.tag(), place, shared, deltas });
        }
        SnapshotItem::Expires { keyspace, hash, expiry_ms } => {
            let area = Area { keyspace, stripe: hash.stripe() as u16 };
            encoder.expiry(area, Expiry { bits: hash.bits(), tag: hash.tag(), expiry_ms });
        }
    }
}

/// Entries captured under one lock at most: about 0.2 ms.
const SLICE_ENTRIES: usize = 4_096;
const _: () = assert!(STRIPES <= u16::MAX as usize);
