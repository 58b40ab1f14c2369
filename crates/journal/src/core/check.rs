//! What holds of the core between any two calls: batches follow each other, and counts are those of what is there. For
//! simulations, after each step.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use super::{Core, POOLED_BATCHES_MAX, Work};
use crate::admission::{promise_bytes, usable_bytes};
use crate::batch_buffer::BatchBuffer;
use crate::format::SEGMENT_HEADER_SIZE_BYTES;
use crate::types::{Lsn, SegmentId};

/// Where the next batch has to begin, and with which record. Where it is not known everything fits.
struct Position {
    segment: Option<SegmentId>,
    offset: Option<u64>,
    lsn: Option<Lsn>,
}

impl Position {
    /// Looks whether `batch` begins here, and goes on to its end.
    fn pass(&mut self, batch: &BatchBuffer) {
        assert!(self.segment.is_none_or(|segment| segment == batch.segment), "a batch of another segment");
        assert!(self.offset.is_none_or(|offset| offset == batch.offset), "a gap before {}", batch.offset);
        assert!(self.lsn.is_none_or(|lsn| lsn == batch.first_lsn), "a gap before {:?}", batch.first_lsn);
        self.segment = Some(batch.segment);
        self.offset = Some(batch.end());
        self.lsn = Some(Lsn(batch.first_lsn.0 + u64::from(batch.records)));
    }
}

impl Core {
    /// Looks whether the core is as its header says.
    ///
    /// # Panics
    /// If it is not: a bug.
    pub(crate) fn check(&self) {
        self.check_batches();
        self.check_segment();
        assert!(self.next_lsn > Lsn(0) && self.next_seq.0 > 0, "nothing has number 0");
        assert!(self.next_segment > self.segment.id, "the next segment is {}", self.next_segment);
        let files: BTreeSet<_> = self.ready.iter().map(|file| file.id).collect();
        assert_eq!(files.len(), self.ready.len(), "a file is ready twice");
        assert!(self.pool.len() <= POOLED_BATCHES_MAX, "{} batches are kept", self.pool.len());
        assert_eq!(
            self.open_charge == 0,
            self.open.records == 0,
            "the open batch is charged for its records"
        );
    }

    /// Memory that what was appended and not taken is charged with.
    pub(crate) fn charged(&self) -> u64 {
        let queued =
            self.queue.iter().map(|work| if let Work::Batch { charge, .. } = work { *charge } else { 0 });
        self.open_charge + queued.sum::<u64>()
    }

    /// What is in flight, what is queued and what is open follow each other.
    fn check_batches(&self) {
        let mut at = Position { segment: None, offset: None, lsn: None };
        for batch in &self.flight {
            at.pass(&batch.read().unwrap_or_else(PoisonError::into_inner));
        }
        for work in &self.queue {
            match work {
                Work::Batch { batch, .. } => at.pass(batch),
                // how long it is, is known to who fills it
                Work::Filling(segment, offset) => {
                    let fits = at.segment.is_none_or(|it| it == *segment)
                        && at.offset.is_none_or(|it| it == *offset);
                    assert!(fits, "a gap before what is filled at {offset}");
                    at = Position { segment: Some(*segment), offset: None, lsn: None };
                }
                Work::Roll(roll) => {
                    let sealed = &roll.sealed;
                    assert!(at.segment.is_none_or(|it| it == sealed.segment), "a roll of another segment");
                    assert!(at.offset.is_none_or(|it| it == sealed.end_bytes), "a roll ends elsewhere");
                    assert!(at.lsn.is_none_or(|it| it == roll.first_lsn), "a roll leaves records out");
                    assert!(
                        roll.next > sealed.segment && roll.first_lsn.0 == sealed.last_lsn.0 + 1,
                        "{roll:?}"
                    );
                    let offset = Some(SEGMENT_HEADER_SIZE_BYTES);
                    at = Position { segment: Some(roll.next), offset, lsn: Some(roll.first_lsn) };
                }
            }
        }
        at.pass(&self.open);
        assert_eq!(at.segment, Some(self.segment.id), "the open batch is in the open segment");
        assert_eq!(at.lsn, Some(self.next_lsn), "the open batch ends with the newest record");
    }

    /// The open segment counts what it holds, and promises no more than it has.
    fn check_segment(&self) {
        let segment = &self.segment;
        let records = u64::from(segment.records);
        assert_eq!(segment.first_lsn.0 + records, self.next_lsn.0, "records of {segment:?}");
        let taken = self.end_bytes() - SEGMENT_HEADER_SIZE_BYTES;
        let usable = usable_bytes(segment.size_bytes);
        assert!(taken <= segment.used, "{taken} bytes are taken in {segment:?}");
        assert!(
            self.end_bytes() <= segment.size_bytes,
            "the segment ends at {}: {segment:?}",
            self.end_bytes()
        );
        assert!(segment.promise <= promise_bytes(segment.size_bytes), "promises too much: {segment:?}");
        assert!(segment.closed || segment.used + segment.promise <= usable, "promises too much: {segment:?}");
    }
}
