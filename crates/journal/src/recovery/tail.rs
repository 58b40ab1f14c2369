//! The open segment as found at start: how far it is valid, and whether what follows is torn or damaged.
//!
//! ```text
//! | header | batch ok | batch ok | batch bad ............ | anything that verifies and says "bad was durable"? |
//!                                 ^ end                     yes: damage, start is refused     no: torn, cut here
//! ```
//!
//! Invariants
//!   1. Whatever verifies and states a `durable_lsn` at or above the first bad lsn is proof of damage: a batch, a
//!      stamp, a seal, or the manifest's `Closed` entry.
//!   2. The decision depends only on bytes: [`examine`] does no I/O.
//!
//! Source: docs/adr/0001-record-batch-segment-manifest-checkpoint-identity.md.

use vfs::File;

use crate::format::batch::{BATCH_HEADER_SIZE_BYTES, BATCH_MAGIC, BATCH_SEAL, BATCH_STAMP, BatchHeader};
use crate::format::{ALIGN_BYTES, SEGMENT_HEADER_SIZE_BYTES, Salt, crc32c};
use crate::manifest::{Closed, Facts};
use crate::segment::read_full;
use crate::types::{Lsn, SegmentId, Seq};

/// How far a segment is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// Where the last valid batch ends, the seal left out.
    pub(crate) end_bytes: u64,
    pub(crate) next_lsn: Lsn,
    /// The seq that the next record gets; `None` when there is no batch to say so.
    pub(crate) next_seq: Option<Seq>,
    pub(crate) records: u32,
    pub(crate) batches: u64,
    pub(crate) time_ms: u64,
    /// Header checksum of the last valid batch, the seal left out.
    pub(crate) prev_crc: u32,
    /// The last batch is a stamp that vouches for everything before it.
    pub(crate) stamped: bool,
    /// A seal ends it: the stop was clean.
    pub(crate) sealed: bool,
}

/// Bytes behind the last valid batch that look like a batch that never became durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The segment.
    pub segment: SegmentId,
    /// Where the valid part ends, in bytes.
    pub offset_bytes: u64,
    /// The lsn that the cut batch had, or would have had.
    pub lsn: Lsn,
}

/// A bad batch that was durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TailDamage {
    pub(crate) offset_bytes: u64,
    pub(crate) what: String,
}

/// Decides over the tail in `bytes` (the file from its start).
pub(crate) fn examine(
    bytes: &[u8],
    segment: SegmentId,
    salt: Salt,
    first_lsn: Lsn,
    closed: Option<Closed>,
) -> Result<(Tail, Option<Torn>), TailDamage> {
    let (tail, seal_end) = walk(bytes, segment, salt, first_lsn);
    if let Some(closed) = closed.filter(|closed| closed.segment == segment) {
        let whole = seal_end == Some(closed.end_bytes) && tail.next_lsn.0 == closed.last_lsn.0 + 1;
        let what = format!("the manifest says that a clean stop sealed it at offset {}", closed.end_bytes);
        return if whole { Ok((tail, None)) } else { Err(TailDamage { offset_bytes: tail.end_bytes, what }) };
    }
    if tail.sealed {
        return Ok((tail, None));
    }
    if let Some(witness) = witness(bytes, segment, salt, &tail) {
        let what = format!(
            "segment {segment}: batch of lsn {} does not verify, but offset {} states that lsn {} was durable",
            tail.next_lsn.0, witness.0, witness.1.0
        );
        return Err(TailDamage { offset_bytes: tail.end_bytes, what });
    }
    let rest = bytes.get(tail.end_bytes as usize..).unwrap_or_default();
    let torn = looks_written(rest, segment).then_some(Torn {
        segment,
        offset_bytes: tail.end_bytes,
        lsn: tail.next_lsn,
    });
    Ok((tail, torn))
}

/// Where the batches of an open segment end that are durable.
pub(crate) struct DurableEnd {
    pub(crate) end_bytes: u64,
    pub(crate) next_lsn: Lsn,
    /// Of the last of them; `None`: there is none.
    pub(crate) last: Option<(BatchHeader, u32)>,
}

/// Where the batches of an open segment end that are durable by `durable_lsn`: reads headers only.
///
/// # Errors
/// The system's.
pub(crate) fn durable_end(
    file: &dyn File,
    segment: SegmentId,
    salt: Salt,
    facts: &Facts,
    durable_lsn: Lsn,
) -> std::io::Result<DurableEnd> {
    let mut end = DurableEnd { end_bytes: SEGMENT_HEADER_SIZE_BYTES, next_lsn: facts.first_lsn, last: None };
    let mut bytes = [0; BATCH_HEADER_SIZE_BYTES];
    while end.end_bytes + BATCH_HEADER_SIZE_BYTES as u64 <= facts.size_bytes {
        let read = read_full(file, &mut bytes, end.end_bytes)?;
        let Some((header, crc)) = BatchHeader::decode(&bytes[..read], segment, salt) else { break };
        let durable = header.record_count > 0 && header.next_lsn().0 <= durable_lsn.0 + 1;
        if header.first_lsn != end.next_lsn || !(durable || header.record_count == 0) {
            break;
        }
        end.end_bytes += header.total_bytes();
        (end.next_lsn, end.last) = (header.next_lsn(), Some((header, crc)));
    }
    end.end_bytes = end.end_bytes.min(facts.size_bytes);
    Ok(end)
}

/// Follows valid batches from the start; also returns where a seal ends.
fn walk(bytes: &[u8], segment: SegmentId, salt: Salt, first_lsn: Lsn) -> (Tail, Option<u64>) {
    let mut tail = Tail {
        end_bytes: SEGMENT_HEADER_SIZE_BYTES,
        next_lsn: first_lsn,
        next_seq: None,
        records: 0,
        batches: 0,
        time_ms: 0,
        prev_crc: 0,
        stamped: false,
        sealed: false,
    };
    while let Some((header, crc)) = valid_batch(bytes, segment, salt, &tail) {
        tail.next_seq = Some(header.next_seq);
        tail.time_ms = tail.time_ms.max(header.time_ms);
        if header.flags & BATCH_SEAL != 0 {
            tail.sealed = true;
            return (tail, Some(tail.end_bytes + header.total_bytes()));
        }
        tail.stamped = header.flags & BATCH_STAMP != 0
            && header.durable_lsn.0.checked_add(1) == Some(header.first_lsn.0);
        tail.end_bytes += header.total_bytes();
        tail.next_lsn = header.next_lsn();
        tail.records = tail.records.saturating_add(header.record_count);
        tail.batches += 1;
        tail.prev_crc = crc;
    }
    (tail, None)
}

/// The batch at the end of `tail`, if all of it verifies and follows.
fn valid_batch(bytes: &[u8], segment: SegmentId, salt: Salt, tail: &Tail) -> Option<(BatchHeader, u32)> {
    let rest = bytes.get(usize::try_from(tail.end_bytes).ok()?..)?;
    let (header, crc) = BatchHeader::decode(rest, segment, salt)?;
    let body =
        rest.get(header.total_bytes() as usize - header.body_len as usize..header.total_bytes() as usize)?;
    let follows = header.first_lsn == tail.next_lsn && header.prev_crc == tail.prev_crc;
    (follows && crc32c(body) == header.body_crc).then_some((header, crc))
}

/// A header behind the end of `tail` that verifies and states that the next lsn was durable.
fn witness(bytes: &[u8], segment: SegmentId, salt: Salt, tail: &Tail) -> Option<(u64, Lsn)> {
    let mut at = tail.end_bytes as usize + ALIGN_BYTES as usize;
    while at + 8 <= bytes.len() {
        if bytes[at..at + 4] == BATCH_MAGIC
            && let Some((header, _)) = BatchHeader::decode(&bytes[at..], segment, salt)
            && header.durable_lsn >= tail.next_lsn
        {
            return Some((at as u64, header.durable_lsn));
        }
        at += ALIGN_BYTES as usize;
    }
    None
}

/// Whether a batch of this segment was begun here, as far as one can tell.
fn looks_written(rest: &[u8], segment: SegmentId) -> bool {
    rest.len() >= 24 && (rest[..4] == BATCH_MAGIC && rest[20..24] == segment.0.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch_buffer::BatchBuffer;
    use crate::types::Draft;
    use crate::types::Keyspace;

    const SEGMENT: SegmentId = SegmentId(3);
    const SALT: Salt = Salt(77);

    /// A segment of `batches` batches with one record each, every one stating what `durable` says; and their ends.
    fn segment(batches: u64, durable: impl Fn(u64) -> u64) -> (Vec<u8>, Vec<u64>) {
        let mut bytes = vec![0; SEGMENT_HEADER_SIZE_BYTES as usize];
        let (mut prev_crc, mut ends) = (0, vec![SEGMENT_HEADER_SIZE_BYTES]);
        let mut batch = BatchBuffer::with_capacity(4096);
        for lsn in 1..=batches {
            batch.start(SEGMENT, SALT, bytes.len() as u64, Lsn(lsn));
            let parts: [&[u8]; 1] = [b"a record"];
            let draft = Draft::new(1, Keyspace::NONE, &parts);
            let header =
                crate::RecordHeader { payload_len: draft.payload_len(), seq: Seq(lsn), ..Default::default() };
            batch.push(header, &draft);
            batch.next_seq = Seq(lsn + 1);
            prev_crc = batch.finish(batch.body_crc(), Lsn(durable(lsn)), 5, prev_crc);
            bytes.extend_from_slice(batch.bytes());
            ends.push(bytes.len() as u64);
        }
        bytes.resize(bytes.len() + 4096, 0);
        (bytes, ends)
    }

    fn decide(bytes: &[u8]) -> Result<(Tail, Option<Torn>), TailDamage> {
        examine(bytes, SEGMENT, SALT, Lsn(1), None)
    }

    #[test]
    fn whole_tail_ends_at_its_last_batch() {
        let (bytes, ends) = segment(4, |lsn| lsn - 1);
        let (tail, torn) = decide(&bytes).expect("no damage");
        assert_eq!((tail.end_bytes, tail.next_lsn, tail.next_seq), (ends[4], Lsn(5), Some(Seq(5))));
        assert_eq!(torn, None);
    }

    #[test]
    fn bad_batch_that_a_later_one_vouches_for_is_damage() {
        let (mut bytes, ends) = segment(4, |lsn| lsn - 1);
        bytes[ends[1] as usize + 70] ^= 1;
        let damage = decide(&bytes).expect_err("batch 2 was durable when batch 3 was written");
        assert_eq!(damage.offset_bytes, ends[1]);
    }

    #[test]
    fn bad_batch_that_nothing_vouches_for_is_torn_with_all_behind_it() {
        let (mut bytes, ends) = segment(4, |_| 1);
        bytes[ends[1] as usize + 70] ^= 1;
        let (tail, torn) = decide(&bytes).expect("only lsn 1 is stated durable");
        assert_eq!((tail.end_bytes, torn.map(|torn| torn.lsn)), (ends[1], Some(Lsn(2))));
    }

    #[test]
    fn remains_of_another_segment_are_no_batches() {
        let (bytes, _) = segment(4, |lsn| lsn - 1);
        let (tail, torn) = examine(&bytes, SegmentId(4), SALT, Lsn(1), None).expect("no damage");
        assert_eq!((tail.end_bytes, torn), (SEGMENT_HEADER_SIZE_BYTES, None));
        let (tail, _) = examine(&bytes, SEGMENT, Salt(78), Lsn(1), None).expect("no damage");
        assert_eq!(tail.records, 0);
    }

    proptest::proptest! {
        /// Any one flipped bit in a tail that is vouched for but for its last batch: damage, or the last batch is cut.
        #[test]
        fn one_flipped_bit_is_damage_or_cuts_the_last_batch(at in 4096_usize..4096 + 8 * 120, bit in 0_u8..8) {
            let (mut bytes, ends) = segment(8, |lsn| lsn - 1);
            bytes[at] ^= 1 << bit;
            match decide(&bytes) {
                Err(damage) => proptest::prop_assert!(damage.offset_bytes <= at as u64),
                Ok((tail, _)) => {
                    proptest::prop_assert_eq!(tail.end_bytes, ends[7]);
                    proptest::prop_assert!(at as u64 >= ends[7]);
                }
            }
        }

        /// Whatever bytes are there: a decision, never a panic, and nothing invented.
        #[test]
        fn any_bytes_give_a_decision(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..9000)) {
            if let Ok((tail, _)) = decide(&bytes) {
                proptest::prop_assert_eq!(tail.records, 0);
            }
        }
    }
}
