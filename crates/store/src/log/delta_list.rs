//! Keys with their deltas, as blocks of a checkpoint have them (`checkpoint`): bytes alone.
//!
//! ```text
//! head    bits u64, word u64, tag u8, n u8 x 3 (little-endian)
//! LISTS   n times: kind u8, flags u8, record_bytes, segment, place, seq, [since], [expiry_ms u64]     about 11 bytes
//! CHAINS  n times: address u64, seq u64, since u64, expiry_ms u64, record_bytes u32, kind u8, 0 u8 x 3
//! DELTAS  as CHAINS, without since
//! ```
//!
//! Of LISTS, numbers without a size are LEB128 of 64 bits. Segment and seq are differences, modulo 2^64, to those of the delta before,
//! of the first one to 0; place is the offset in units of 8 bytes. Flag 1: since is the seq of the delta before, and is not there; else it
//! is the difference from since to seq. Flag 2: there is an expiry.

use journal::{LogAddress, Seq};

use super::checkpoint::{Entry, FormatError};
use crate::index::delta::Delta;
use collections::{Deadline, varint};

/// How a block has its deltas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// What version 1 wrote.
    Deltas,
    /// What version 2 wrote.
    Chains,
    /// What version 3 writes.
    Lists,
}

/// Adds `entry`, whose base is at `word`, in the newest form.
pub(crate) fn encode(out: &mut Vec<u8>, entry: &Entry, word: u64) {
    out.extend(entry.bits.to_le_bytes());
    out.extend(word.to_le_bytes());
    let count = u32::try_from(entry.deltas.len()).expect("deltas are folded long before");
    out.extend((count << 8 | u32::from(entry.tag)).to_le_bytes());
    let (mut segment, mut seq) = (0, Seq::NONE);
    for delta in &entry.deltas {
        let packed = delta.address.pack();
        let follows = delta.since == seq && seq != Seq::NONE;
        let flags = if follows { FOLLOWS } else { 0 } | if delta.expiry.is_none() { 0 } else { EXPIRES };
        out.extend([delta.kind, flags]);
        varint::put(out, delta.record_bytes.into());
        varint::put(out, (packed >> 32).wrapping_sub(segment));
        varint::put(out, packed & LOW);
        varint::put(out, delta.seq.0.wrapping_sub(seq.0));
        if !follows {
            varint::put(out, delta.seq.0.wrapping_sub(delta.since.0));
        }
        if let Some(expiry) = delta.expiry {
            out.extend(expiry.raw().to_le_bytes());
        }
        (segment, seq) = (packed >> 32, delta.seq);
    }
}

/// The next entry of a block's body of `form`, with the word of its base, and the bytes behind it; `place` says what is at a word.
///
/// # Errors
/// [`FormatError::Content`] where the bytes end too early.
pub(crate) fn decode(
    body: &[u8],
    form: Form,
    place: impl FnOnce(u64) -> (LogAddress, bool),
) -> Result<(Entry, &[u8]), FormatError> {
    let short = FormatError::Content("deltas are cut short");
    let (head, rest) = body.split_first_chunk::<HEAD_BYTES>().ok_or(short.clone())?;
    let packed = u32::from_le_bytes([head[16], head[17], head[18], head[19]]);
    let count = (packed >> 8) as usize;
    let (deltas, rest) = match form {
        Form::Lists => list(count, rest),
        Form::Chains => chain(count, rest, CHAINED_BYTES),
        Form::Deltas => chain(count, rest, CHAINED_BYTES - 8),
    }
    .ok_or(short)?;
    let (address, shared) = place(u64_at(head, 8));
    Ok((Entry { bits: u64_at(head, 0), tag: packed as u8, address, shared, deltas }, rest))
}

fn list(count: usize, mut rest: &[u8]) -> Option<(Vec<Delta>, &[u8])> {
    let mut deltas: Vec<Delta> = Vec::with_capacity(count.min(rest.len() / LISTED_BYTES_MIN));
    let (mut segment, mut seq) = (0_u64, 0_u64);
    for _ in 0..count {
        let (&[kind, flags], after) = rest.split_first_chunk::<2>()?;
        rest = after;
        let record_bytes = u32::try_from(varint::take(&mut rest)?).ok()?;
        segment = segment.wrapping_add(varint::take(&mut rest)?);
        let place = varint::take(&mut rest)?;
        if segment > LOW || place > LOW {
            return None;
        }
        let before = seq;
        seq = seq.wrapping_add(varint::take(&mut rest)?);
        let follows = flags & FOLLOWS != 0;
        let since = if follows { before } else { seq.wrapping_sub(varint::take(&mut rest)?) };
        let expiry = if flags & EXPIRES == 0 {
            None
        } else {
            let (raw, after) = rest.split_first_chunk()?;
            rest = after;
            Deadline::of(u64::from_le_bytes(*raw))
        };
        let address = LogAddress::unpack(segment << 32 | place);
        deltas.push(Delta { address, seq: Seq(seq), since: Seq(since), kind, record_bytes, expiry });
    }
    Some((deltas, rest))
}

fn chain(count: usize, bytes: &[u8], delta_bytes: usize) -> Option<(Vec<Delta>, &[u8])> {
    let (list, rest) = bytes.split_at_checked(count.checked_mul(delta_bytes)?)?;
    Some((list.chunks_exact(delta_bytes).map(chained).collect(), rest))
}

fn chained(bytes: &[u8]) -> Delta {
    let tail = &bytes[bytes.len() - 16..];
    Delta {
        address: LogAddress::unpack(u64_at(bytes, 0)),
        seq: Seq(u64_at(bytes, 8)),
        since: if bytes.len() == CHAINED_BYTES { Seq(u64_at(bytes, 16)) } else { Seq::NONE },
        expiry: Deadline::of(u64_at(tail, 0)),
        record_bytes: u64_at(tail, 8) as u32,
        kind: tail[12],
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

const HEAD_BYTES: usize = 20;
const CHAINED_BYTES: usize = 40;
/// The least that a delta takes in a list.
const LISTED_BYTES_MIN: usize = 6;
const FOLLOWS: u8 = 1;
const EXPIRES: u8 = 2;
const LOW: u64 = 0xffff_ffff;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(deltas: Vec<Delta>) -> Entry {
        Entry { bits: 7 << 40, tag: 9, address: LogAddress::unpack(5 << 32 | 512), shared: true, deltas }
    }

    fn decoded(bytes: &[u8], form: Form) -> Result<(Entry, usize), FormatError> {
        decode(bytes, form, |word| (LogAddress::unpack(word), true)).map(|(entry, rest)| (entry, rest.len()))
    }

    fn delta() -> impl Strategy<Value = Delta> {
        let number = || prop_oneof![any::<u64>(), 0_u64..300, Just(u64::MAX), Just(0)];
        (number(), number(), number(), any::<u32>(), any::<u8>(), number()).prop_map(
            |(address, seq, since, record_bytes, kind, expiry)| Delta {
                address: LogAddress::unpack(address),
                seq: Seq(seq),
                since: Seq(since),
                kind,
                record_bytes,
                expiry: Deadline::of(expiry),
            },
        )
    }

    proptest! {
        #[test]
        fn any_list_comes_back_and_no_part_of_it_does(deltas in prop::collection::vec(delta(), 0..9)) {
            let (entry, mut bytes) = (entry(deltas), Vec::new());
            encode(&mut bytes, &entry, entry.address.pack());
            prop_assert_eq!(decoded(&bytes, Form::Lists), Ok((entry, 0)));
            for len in 0..bytes.len() {
                prop_assert!(decoded(&bytes[..len], Form::Lists).is_err(), "{} of {} bytes", len, bytes.len());
            }
        }

        #[test]
        fn any_bytes_are_refused_or_an_entry(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for form in [Form::Deltas, Form::Chains, Form::Lists] {
                _ = decoded(&bytes, form);
            }
        }
    }

    #[test]
    fn deltas_of_a_busy_key_take_few_bytes_each() {
        let delta = |n: u64| Delta {
            address: LogAddress::unpack((100 + n / 3) << 32 | (n * 77_777)),
            seq: Seq(5_000_000 + n * 60_000),
            since: if n == 0 { Seq(4_000_000) } else { Seq(5_000_000 + (n - 1) * 60_000) },
            kind: 9,
            record_bytes: 120,
            expiry: None,
        };
        let (entry, mut bytes) = (entry((0..32).map(delta).collect()), Vec::new());
        encode(&mut bytes, &entry, 0);
        assert!(bytes.len() < HEAD_BYTES + 32 * 11, "{} bytes", bytes.len());
    }

    #[test]
    fn what_older_versions_wrote_is_read() {
        let head = [&[1_u8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0][..], &[9, 1, 0, 0]].concat();
        let numbers = |numbers: &[u64]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        let tail = [[120, 0, 0, 0], [6, 0, 0, 0]].concat();
        let chained = [&head[..], &numbers(&[64, 8, 7, 1_000]), &tail].concat();
        let plain = [&head[..], &numbers(&[64, 8, 1_000]), &tail].concat();
        for (bytes, form, since) in [(chained, Form::Chains, 7), (plain, Form::Deltas, 0)] {
            let (entry, rest) = decoded(&bytes, form).expect("whole");
            let delta = Delta {
                address: LogAddress::unpack(64),
                seq: Seq(8),
                since: Seq(since),
                kind: 6,
                record_bytes: 120,
                expiry: Deadline::of(1_000),
            };
            assert_eq!((entry.deltas, entry.tag, entry.bits, rest), (vec![delta], 9, 1, 0), "{form:?}");
        }
    }
}
