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
//!   3. It has met every address that the index held. New addresses are only ever in younger segments, but for copies that
//!      cleaning turns to: so of a segment sealed before that no copy was turned into since, nothing lives but what it met.
//!
//! Out of scope: when to begin (`housekeeping`), bytes (`checkpoint`), files (`checkpoint_file`).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use journal::{Keyspace, LogAddress};
use vfs::Vfs;

use super::checkpoint::{Area, Encoder, Entry, Expiry, Header, SegmentLive};
use super::checkpoint_file::{PIECE_SIZE_BYTES_MAX, Writer};
use crate::hash::{KeyHash, STRIPES};
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
    survivors: Survivors,
}

/// A record that something pointed at when a checkpoint met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Survivor {
    /// Where the record lies.
    pub(crate) address: LogAddress,
    pub(crate) keyspace: Keyspace,
    /// As much of it as the index keeps.
    pub(crate) hash: KeyHash,
}

/// Segments that were sealed when a capture began, each with all that it met there; left out are those with more than
/// [`LISTED_MAX`], and some where [`ALL_LISTED_MAX`] would not do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survivors {
    segments: BTreeMap<u32, Vec<Survivor>>,
    listed: usize,
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
    /// What lives in segments where that is little.
    pub(crate) survivors: Survivors,
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
        sealed: impl Iterator<Item = u32>,
    ) -> io::Result<Self> {
        let mut encoder = Encoder::new(header);
        // the mapping changes only under all locks: with one held, its parts belong together
        let stripe = index.lock(0);
        encoder.mapping(index.mapping_seq(), index.next_keyspace(), &index.mapping());
        drop(stripe);
        // held while one is appended: all that lie at or below the lsn are known
        if let (seq, Some(record)) = &*index.clock() {
            encoder.clock(*seq, record);
        }
        let writer = Writer::create(vfs, dir)?;
        Ok(Self {
            lsn: header.lsn,
            began,
            encoder,
            writer,
            stripe: 0,
            at: SnapshotAt::START,
            captured_lsn: None,
            survivors: Survivors::of(sealed),
        })
    }

    /// Looks whether it is the newest of `begun` captures, and goes beyond the checkpoint that covers `covered`: for simulations.
    ///
    /// # Panics
    /// If it does not: a bug.
    pub(crate) fn check(&self, begun: u64, covered: u64) {
        assert_eq!(self.began, begun, "an older capture is under way");
        assert!(self.lsn >= covered, "a capture of {} under a checkpoint of {covered}", self.lsn);
        assert!(self.captured_lsn.is_none_or(|lsn| lsn >= self.lsn), "captured less than is appended");
        assert!(self.captured_lsn.is_none() || self.stripe == STRIPES, "stripe {} is left out", self.stripe);
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
            let (encoder, survivors) = (&mut self.encoder, &mut self.survivors);
            let next = index.snapshot_slice(self.stripe, self.at, left, &mut |item| {
                left = left.saturating_sub(1);
                add(encoder, survivors, item);
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
        Ok(Published { name, lsn: self.lsn, began: self.began, size_bytes, survivors: self.survivors })
    }
}

impl Survivors {
    /// Nothing was met in the segments `sealed` yet.
    fn of(sealed: impl Iterator<Item = u32>) -> Self {
        Self { segments: sealed.map(|segment| (segment, Vec::new())).collect(), listed: 0 }
    }

    fn meet(&mut self, survivor: Survivor) {
        let segment = survivor.address.segment().0;
        let Some(list) = self.segments.get_mut(&segment) else { return };
        list.push(survivor);
        self.listed += 1;
        if list.len() > LISTED_MAX || self.listed > ALL_LISTED_MAX {
            self.listed -= list.len();
            self.segments.remove(&segment);
        }
    }

    /// Takes out all segments, each with all that lives there.
    pub(crate) fn take(&mut self) -> BTreeMap<u32, Vec<Survivor>> {
        std::mem::take(self).segments
    }
}

fn add(encoder: &mut Encoder, survivors: &mut Survivors, item: SnapshotItem<'_>) {
    match item {
        SnapshotItem::Slot { keyspace, hash, address, shared, deltas } => {
            let area = Area { keyspace, stripe: hash.stripe() as u16 };
            let deltas = deltas.to_vec();
            for address in std::iter::once(address).chain(deltas.iter().map(|delta| delta.address)) {
                survivors.meet(Survivor { address, keyspace, hash });
            }
            encoder.entry(area, Entry { bits: hash.bits(), tag: hash.tag(), address, shared, deltas });
        }
        SnapshotItem::Expires { keyspace, hash, expiry } => {
            let area = Area { keyspace, stripe: hash.stripe() as u16 };
            encoder.expiry(area, Expiry { bits: hash.bits(), tag: hash.tag(), expiry_ms: expiry.raw() });
        }
    }
}

/// Entries captured under one lock at most: about 0.2 ms.
const SLICE_ENTRIES: usize = 4_096;
/// Survivors of a segment that are worth a list: to read them one by one costs less than to read the segment.
const LISTED_MAX: usize = 4_096;
/// Survivors in all lists: 2 MiB.
const ALL_LISTED_MAX: usize = 1 << 16;
const _: () = assert!(STRIPES <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    fn survivor(segment: u32, at: u32) -> Survivor {
        Survivor {
            address: LogAddress::unpack(u64::from(segment) << 32 | u64::from(at)),
            keyspace: Keyspace(1),
            hash: KeyHash(0),
        }
    }

    #[test]
    fn segment_where_much_lives_has_no_list_and_an_empty_one_says_that_nothing_does() {
        let mut survivors = Survivors::of([1, 2, 3].into_iter());
        (0..=LISTED_MAX as u32).for_each(|at| survivors.meet(survivor(1, at)));
        survivors.meet(survivor(2, 7));
        survivors.meet(survivor(9, 7));
        assert_eq!(survivors.listed, 1);
        assert_eq!(survivors.take(), BTreeMap::from([(2, vec![survivor(2, 7)]), (3, Vec::new())]));
    }

    #[test]
    fn all_lists_together_are_bounded() {
        const SEGMENTS: u32 = 40;
        let mut survivors = Survivors::of(1..=SEGMENTS);
        for at in 0..LISTED_MAX as u32 {
            (1..=SEGMENTS).for_each(|segment| survivors.meet(survivor(segment, at)));
        }
        let lists = survivors.take();
        assert!(!lists.is_empty() && lists.values().all(|list| list.len() == LISTED_MAX));
        assert!(lists.len() * LISTED_MAX <= ALL_LISTED_MAX);
    }
}
