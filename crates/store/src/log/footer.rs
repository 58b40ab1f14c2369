//! Footers: what a start needs to know of a sealed segment, written after sealing by reading it again.
//!
//! Slices of 256 KiB are read and hashed; what fills a chunk goes to the journal at once, into the room that append
//! kept free, so a footer never holds more than a chunk and a slice in memory. Only starts read footers, and only of
//! segments above the checkpoint.
//!
//! `extra` of a delta's entry is how far its `since` lies below its seq; 0: farther than it can say, or not known;
//! [`IMPOSSIBLE`]: not below. An entry of CHANGES has, in place of hash and expiry, which parts it changes, and in `extra` how many bytes that
//! takes; 0: more than there is room for, and who needs it reads the record. An entry of REMOVALS has its payload in place of the hash. Out of scope: the bytes (`journal::format::footer_chunk`), when (`housekeeping`).

use journal::{
    FOOTER_CHUNK_ENTRIES_MAX, FooterEntry, FooterWriter, Journal, JournalError, RecordView, Scanner,
    SegmentId, Seq,
};

use crate::hash::KeyHasher;
use crate::record::{self, Named, Parts, Payload, Removals, SLOT_BYTES, node_code};
use collections::varint;

/// A segment whose footer is being built.
#[derive(Debug)]
pub(crate) struct Footing {
    segment: SegmentId,
    scanner: Scanner,
    writer: FooterWriter,
    /// Entries that fill no chunk yet.
    entries: Vec<FooterEntry>,
}

impl Footing {
    /// Begins with `segment`; `None` when that cannot be done now, for want of a descriptor.
    ///
    /// # Errors
    /// When the segment cannot be opened.
    pub(crate) fn begin(journal: &Journal, segment: SegmentId) -> Result<Option<Self>, JournalError> {
        let (scanner, writer) = (journal.scanner(segment)?, journal.footer(segment)?);
        Ok(writer.map(|writer| Self { segment, scanner, writer, entries: Vec::new() }))
    }

    /// The segment's number.
    pub(crate) fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Reads one slice and writes the chunks that it fills; returns whether there is more.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] when a record does not verify, [`JournalError::Failed`] when the disk fails; the
    /// journal stops then.
    pub(crate) fn slice(&mut self, hasher: &KeyHasher) -> Result<bool, JournalError> {
        let entries = &mut self.entries;
        let more = self.scanner.slice(SLICE_BYTES, &mut |view| entries.push(entry_of(&view, hasher)))?;
        while let Some(chunk) = self.entries.get(..FOOTER_CHUNK_ENTRIES_MAX) {
            self.writer.write(chunk)?;
            self.entries.drain(..FOOTER_CHUNK_ENTRIES_MAX);
        }
        Ok(more)
    }

    /// Writes what is left and states the footer.
    ///
    /// # Errors
    /// [`JournalError::Failed`] when the disk fails; the journal stops then.
    pub(crate) fn finish(mut self) -> Result<(), JournalError> {
        if !self.entries.is_empty() {
            self.writer.write(&self.entries)?;
        }
        self.writer.finish()
    }
}

/// What the footer says of a record.
pub(crate) fn entry_of(view: &RecordView<'_>, hasher: &KeyHasher) -> FooterEntry {
    let payload = record::decode(view.header.kind, view.payload);
    if let Some(Payload::Deltas(parts)) = payload {
        return named_in(view.footer_entry(0), parts);
    }
    if let Some(Payload::Removals(removals)) = payload {
        return view.footer_entry(u128::from_le_bytes(removals.encode()));
    }
    let key = payload.and_then(|payload| payload.key());
    let since = record::since(view.header.kind, view.payload);
    let entry = view.footer_entry(key.map_or(0, |key| hasher.hash_in(view.header.keyspace, key).0));
    // what lies on nothing older than itself is impossible, and has to look so
    let extra = match entry.seq.0.checked_sub(since.0) {
        _ if since == Seq::NONE => 0,
        None | Some(0) => IMPOSSIBLE,
        Some(below) => u16::try_from(below).ok().filter(|below| *below < IMPOSSIBLE).unwrap_or(0),
    };
    FooterEntry { extra, ..entry }
}

/// What [`entry_of`] noted: what the delta may lie on; NONE: not known.
pub(crate) fn since(entry: &FooterEntry) -> Seq {
    match entry.extra {
        0 => Seq::NONE,
        IMPOSSIBLE => Seq::MAX,
        below => Seq(entry.seq.0.saturating_sub(below.into()).max(1)),
    }
}

/// `entry` of a record with `parts`, as far as it has room for them.
fn named_in(entry: FooterEntry, parts: Parts<'_>) -> FooterEntry {
    let mut named = parts.object.to_le_bytes().to_vec();
    for part in parts {
        match part.named() {
            Named::Root(slot) => {
                named.push(0);
                named.extend_from_slice(&slot.to_le_bytes()[..SLOT_BYTES]);
            }
            Named::Node(number) => varint::put(&mut named, node_code(number)),
        }
    }
    if named.len() > NAMED_BYTES_MAX {
        return entry;
    }
    let extra = named.len() as u16;
    named.resize(NAMED_BYTES_MAX, 0);
    let (hash, rest) = named.split_first_chunk().expect("24 bytes");
    let expiry = rest.try_into().expect("the other eight");
    FooterEntry { hash: u128::from_le_bytes(*hash), expiry_ms: u64::from_le_bytes(expiry), extra, ..entry }
}

/// The object of an entry of CHANGES, and the parts that it names; `None` where it has no room for them.
pub(crate) fn named(entry: &FooterEntry) -> Option<(u64, Vec<Named>)> {
    let bytes = [&entry.hash.to_le_bytes()[..], &entry.expiry_ms.to_le_bytes()].concat();
    let (object, mut rest) = bytes.get(..usize::from(entry.extra))?.split_first_chunk()?;
    let mut parts = Vec::new();
    while !rest.is_empty() {
        parts.push(match varint::take(&mut rest)? {
            0 => {
                let (slot, behind) = rest.split_first_chunk()?;
                rest = behind;
                Named::Root(record::slot_of(slot))
            }
            code => Named::Node(record::node_of(code)?),
        });
    }
    Some((u64::from_le_bytes(*object), parts))
}

/// What an entry of REMOVALS says is gone; `None`: nothing that can be.
pub(crate) fn removals(entry: &FooterEntry) -> Option<Removals> {
    Removals::decode(&entry.hash.to_le_bytes())
}

/// Bytes of hash and expiry.
const NAMED_BYTES_MAX: usize = 24;
/// `extra` of a delta that names no state before it.
const IMPOSSIBLE: u16 = u16::MAX;
/// Bytes read in one slice.
const SLICE_BYTES: u64 = 256 * 1024;

#[cfg(test)]
mod tests {
    use journal::{Keyspace, LogAddress, Lsn};

    use super::*;
    use crate::record::PartsEncoder;

    /// Of a record of this kind, about which nothing else is known.
    fn entry(kind: u8) -> FooterEntry {
        FooterEntry {
            hash: 0,
            seq: Seq(9),
            expiry_ms: 0,
            address: LogAddress::default(),
            payload_len: 0,
            keyspace: Keyspace(1),
            kind,
            flags: 0,
            extra: 0,
            origin: journal::Origin::ALONE,
            lsn: Lsn(1),
        }
    }

    #[test]
    fn entry_of_removals_says_all_that_the_record_says() {
        let removals = Removals::one(77 << 40, 1 << 31).with(1 << 31 | 1).expect("it follows");
        let payload = removals.encode();
        let (kind, keyspace, seq) = (record::REMOVALS, Keyspace(1), Seq(9));
        let header = journal::RecordHeader { kind, keyspace, seq, ..journal::RecordHeader::default() };
        let view = RecordView { lsn: Lsn(1), address: LogAddress::default(), header, payload: &payload };
        let entry = entry_of(&view, &KeyHasher::new(&[1; 16], 128));
        assert_eq!((super::removals(&entry), entry.extra, entry.expiry_ms), (Some(removals), 0, 0));
        assert_eq!(super::removals(&self::entry(record::REMOVALS)), None, "none is none");
    }

    #[test]
    fn entry_names_the_parts_that_it_has_room_for() {
        let entry = entry(record::CHANGES);
        for (nodes, has_room) in [
            (vec![], true),
            (vec![0, 1 << 31], true),
            (vec![4_000, 4_000 | 1 << 31, 70 | 1 << 31, 1 << 31], true),
            (vec![u32::MAX, 1 << 31, 1], true),
            (vec![u32::MAX, u32::MAX - 1, 1], false),
        ] {
            let mut encoder = PartsEncoder::new(77 << 40);
            nodes.iter().for_each(|number| encoder.node(*number, Seq(5), b"\x01\x02\0\x01\x01fv"));
            encoder.root(0xabcd_ef01_2345, &[1, 2, 0]);
            let Some(Payload::Deltas(parts)) = record::decode(record::CHANGES, &encoder.payload) else {
                panic!("{nodes:?}");
            };
            let all = nodes.iter().map(|number| Named::Node(*number));
            let all = all.chain([Named::Root(0xabcd_ef01_2345)]).collect::<Vec<_>>();
            assert_eq!(named(&named_in(entry, parts)), has_room.then_some((77 << 40, all)), "{nodes:?}");
        }
    }
}
