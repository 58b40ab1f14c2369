//! Records about to be appended: header fields, and the payload in pieces that are borrowed.
//!
//! Invariants
//!   1. The pieces of a payload, put together, are what `record` describes for the kind.
//!   2. What is not of the kind takes no bytes: base and number are left out, not zero.
//!
//! Out of scope: what a payload means when it is read again (`record`).

use collections::Deadline;
use journal::{Keyspace, Seq};

use super::{CLOCK, EXPIRY, HEADER_BYTES, MAPPING, PART};
use crate::time::{CEILINGS_MAX, Ceiling, ClockRecord};

/// A record about to be appended; borrows key and value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft<'a> {
    /// Kind with SHARED.
    pub(crate) kind: u8,
    /// Keyspace id; 0 for MAPPING.
    pub(crate) keyspace: Keyspace,
    /// Absolute expiry, 0 for none.
    pub(crate) expiry: Option<Deadline>,
    head: [u8; 4],
    key: &'a [u8],
    base_seq: [u8; 8],
    has_base: bool,
    /// Of EXPIRY `since`, of PART the offset.
    number: [u8; 8],
    has_number: bool,
    body: &'a [u8],
}

impl<'a> Draft<'a> {
    /// A whole value, or a removal (`body` empty).
    pub(crate) fn whole(
        kind: u8,
        keyspace: Keyspace,
        key: &'a [u8],
        body: &'a [u8],
        expiry: Option<Deadline>,
    ) -> Self {
        let head = (key.len() as u32).to_le_bytes();
        Self {
            kind,
            keyspace,
            expiry,
            head,
            key,
            base_seq: [0; 8],
            has_base: false,
            number: [0; 8],
            has_number: false,
            body,
        }
    }

    /// A delta on the value of effect `base_seq`.
    pub(crate) fn delta(
        kind: u8,
        keyspace: Keyspace,
        key: &'a [u8],
        base_seq: Seq,
        body: &'a [u8],
        expiry: Option<Deadline>,
    ) -> Self {
        let base = Self::whole(kind, keyspace, key, body, expiry);
        Self { base_seq: base_seq.0.to_le_bytes(), has_base: true, ..base }
    }

    /// A delta that leaves the value of effects `since` to `base_seq` as it is, and changes its expiry.
    pub(crate) fn expiry(
        shared: u8,
        keyspace: Keyspace,
        key: &'a [u8],
        since: Seq,
        base_seq: Seq,
        expiry: Option<Deadline>,
    ) -> Self {
        let base = Self::delta(EXPIRY | shared, keyspace, key, base_seq, &[], expiry);
        Self { number: since.0.to_le_bytes(), has_number: true, ..base }
    }

    /// A delta that puts `bytes` over the string of effect `base_seq` from `offset` on, and changes its expiry unless that is 0.
    pub(crate) fn part(
        shared: u8,
        keyspace: Keyspace,
        key: &'a [u8],
        base_seq: Seq,
        offset: u64,
        bytes: &'a [u8],
        expiry: Option<Deadline>,
    ) -> Self {
        let base = Self::delta(PART | shared, keyspace, key, base_seq, bytes, expiry);
        Self { number: offset.to_le_bytes(), has_number: true, ..base }
    }

    /// A mapping, encoded by [`encode_mapping`].
    pub(crate) fn mapping(payload: &'a [u8]) -> Self {
        let (head, body) = payload.split_first_chunk::<4>().expect("encode_mapping writes 8 bytes at least");
        let base = Self::whole(MAPPING, Keyspace::NONE, &[], body, None);
        Self { head: *head, ..base }
    }

    /// The payload's parts, in order.
    pub(crate) fn parts(&self) -> [&[u8]; 5] {
        let base_seq: &[u8] = if self.has_base { &self.base_seq } else { &[] };
        let number: &[u8] = if self.has_number { &self.number } else { &[] };
        [&self.head, self.key, base_seq, number, self.body]
    }

    /// A record of an object whose leaves are in `keyspace`: CHANGES, encoded by [`PartsEncoder`], or [`Removals`].
    pub(crate) fn of_object(kind: u8, keyspace: Keyspace, payload: &'a [u8]) -> Self {
        let (head, body) = payload.split_first_chunk::<4>().expect("the object is of 8 bytes");
        let base = Self::whole(kind, keyspace, &[], body, None);
        Self { head: *head, ..base }
    }

    /// What the clocks show, encoded by [`encode_clock`].
    pub(crate) fn clock(payload: &'a [u8]) -> Self {
        let (head, body) = payload.split_first_chunk::<4>().expect("encode_clock writes 44 bytes at least");
        let base = Self::whole(CLOCK, Keyspace::NONE, &[], body, None);
        Self { head: *head, ..base }
    }

    /// Bytes of the payload.
    pub(crate) fn payload_len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// Bytes of the record in its segment.
    pub(crate) fn record_bytes(&self) -> u64 {
        HEADER_BYTES + (self.payload_len() as u64).next_multiple_of(8)
    }
}

/// Payload of a MAPPING.
pub(crate) fn encode_mapping(next_keyspace: Keyspace, keyspaces: &[Keyspace]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(8 + 4 * keyspaces.len());
    payload.extend_from_slice(&next_keyspace.0.to_le_bytes());
    payload.extend_from_slice(&(keyspaces.len() as u32).to_le_bytes());
    keyspaces.iter().for_each(|id| payload.extend_from_slice(&id.0.to_le_bytes()));
    payload
}

/// The keyspaces of a [`Payload::Mapping`].
pub(crate) fn mapping_ids(keyspaces: &[u8]) -> Vec<Keyspace> {
    keyspaces.chunks_exact(4).map(|id| Keyspace(u32::from_le_bytes([id[0], id[1], id[2], id[3]]))).collect()
}

/// Payload of a CLOCK.
pub(crate) fn encode_clock(record: &ClockRecord) -> Vec<u8> {
    let mut payload = vec![0; 4];
    payload.extend_from_slice(&record.boot.to_le_bytes());
    for field in [record.uptime_us, record.server_us, record.wall_us] {
        payload.extend_from_slice(&field.to_le_bytes());
    }
    for ceiling in &record.ceilings {
        payload.extend_from_slice(&ceiling.wall_ms.to_le_bytes());
        payload.extend_from_slice(&ceiling.seq.0.to_le_bytes());
    }
    payload
}

/// The record in a [`Payload::Clock`], of which `seq` is not known yet.
pub(crate) fn decode_clock(payload: &[u8]) -> Option<ClockRecord> {
    let (head, rest) = payload.split_first_chunk::<4>()?;
    let (boot, rest) = rest.split_first_chunk::<16>()?;
    let (fields, _) = rest.as_chunks::<8>();
    let (&[uptime_us, server_us, wall_us], ceilings) = fields.split_first_chunk::<3>()?;
    let (pairs, odd) = ceilings.as_chunks::<2>();
    let fits = *head == [0; 4] && rest.len() % 8 == 0 && odd.is_empty() && pairs.len() <= CEILINGS_MAX;
    fits.then(|| ClockRecord {
        boot: u128::from_le_bytes(*boot),
        uptime_us: u64::from_le_bytes(uptime_us),
        server_us: u64::from_le_bytes(server_us),
        wall_us: u64::from_le_bytes(wall_us),
        ceilings: pairs.iter().map(|&[wall_ms, seq]| ceiling(wall_ms, seq)).collect(),
    })
}

fn ceiling(wall_ms: [u8; 8], seq: [u8; 8]) -> Ceiling {
    Ceiling { wall_ms: u64::from_le_bytes(wall_ms), seq: Seq(u64::from_le_bytes(seq)) }
}
