//! The journal's structures on disk, one by one.
//!
//! Random bytes never get past a checksum, so most inputs are **sealed** first: magic, number and checksum
//! are put right, and the fields behind them are whatever the mutation made. The last byte of the input
//! decides, so that unsealed bytes are tried as well.

use journal::format::batch::{BATCH_MAGIC, BatchHeader};
use journal::format::footer_chunk::{self, FOOTER_MAGIC};
use journal::format::manifest_entry::{Entry, MANIFEST_ENTRY_SIZE_BYTES, MANIFEST_MAGIC};
use journal::format::segment_header::{SEGMENT_MAGIC, SegmentHeader};
use journal::format::{Salt, crc32c};
use journal::{FileId, FooterEntry, Keyspace, LogAddress, Lsn, Origin, RecordHeader, SegmentId, Seq};

/// Bytes that mean something in the journal's files.
pub(super) const WORDS: &[&[u8]] = &[
    b"EKB1",
    b"EKF1",
    b"EVNKSEG1",
    b"EVNKMAN1",
    b"\0\0\0\0",
    b"\xFF\xFF\xFF\xFF",
    b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
];

const SEGMENT: SegmentId = SegmentId(7);
const FOLDER: u128 = 5;

fn salt() -> Salt {
    Salt::new(FOLDER, SEGMENT)
}

/// The salt of another life of the same file.
fn other_salt() -> Salt {
    Salt::new(FOLDER, SegmentId(8))
}

/// Whether to put the checksums right; and the bytes without the one that says so.
fn unpack(input: &[u8]) -> (bool, Vec<u8>) {
    match input.split_last() {
        None => (false, Vec::new()),
        Some((last, bytes)) => (last % 8 != 0, bytes.to_vec()),
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

pub(super) fn batch(input: &[u8]) {
    let (seal, mut bytes) = unpack(input);
    if seal && bytes.len() >= 64 {
        put(&mut bytes, 0, &BATCH_MAGIC);
        put(&mut bytes, 20, &SEGMENT.0.to_le_bytes());
        let crc = crc32c(&bytes[8..64]) ^ salt().0;
        put(&mut bytes, 4, &crc.to_le_bytes());
    }
    if let Some((header, crc)) = BatchHeader::decode(&bytes, SEGMENT, salt()) {
        let _ = (header.next_lsn(), header.total_bytes());
        let (again, crc_again) = header.encode(salt());
        assert_eq!((&again[..], crc_again), (&bytes[..64], crc), "every byte of the header has a meaning");
        assert_eq!(
            BatchHeader::decode(&bytes, SEGMENT, other_salt()),
            None,
            "under another number it does not verify"
        );
    }
}

pub(super) fn record(input: &[u8]) {
    let (seal, mut bytes) = unpack(input);
    if seal && bytes.len() >= 48 {
        let crc = crc32c(&bytes[4..48]) ^ salt().0;
        put(&mut bytes, 0, &crc.to_le_bytes());
    }
    if let Some(header) = RecordHeader::decode(&bytes, salt()) {
        assert!(header.stored_bytes() >= 48 + u64::from(header.payload_len));
        let again = header.encode(salt());
        assert_eq!(RecordHeader::decode(&again, salt()), Some(header));
        assert_eq!(
            RecordHeader::decode(&bytes, other_salt()),
            None,
            "under another number it does not verify"
        );
    }
}

pub(super) fn footer(input: &[u8]) {
    let (seal, mut bytes) = unpack(input);
    if seal && bytes.len() >= 64 {
        let count = u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]) as usize;
        bytes[32] &= 1;
        let entry_bytes = 48 + 7 * usize::from(bytes[32]);
        if let Some(body) = count.checked_mul(entry_bytes).and_then(|length| bytes[64..].get(..length)) {
            let crc = crc32c(body);
            put(&mut bytes, 8, &crc.to_le_bytes());
        }
        put(&mut bytes, 0, &FOOTER_MAGIC);
        put(&mut bytes, 12, &SEGMENT.0.to_le_bytes());
        put(&mut bytes, 20, &0_u32.to_le_bytes());
        let crc = crc32c(&bytes[8..64]) ^ salt().0;
        put(&mut bytes, 4, &crc.to_le_bytes());
    }
    let mut entries = Vec::new();
    if let Some(size) = footer_chunk::decode_chunk(&bytes, SEGMENT, salt(), 0, &mut entries) {
        assert_eq!(size, 64 + (48 + 7 * usize::from(bytes[32] != 0)) * entries.len());
        assert!(size <= bytes.len());
    }
}

pub(super) fn manifest(input: &[u8]) {
    let (seal, mut bytes) = unpack(input);
    bytes.resize(MANIFEST_ENTRY_SIZE_BYTES, 0);
    let index = u64::from(bytes[8] % 4);
    if seal {
        match index {
            0 => put(&mut bytes, 8, &MANIFEST_MAGIC),
            _ => put(&mut bytes, 8, &index.to_le_bytes()),
        }
        let crc = crc32c(&bytes[4..]);
        put(&mut bytes, 0, &crc.to_le_bytes());
    }
    let bytes = bytes.try_into().expect("resized to an entry");
    if let Ok((entry, time_ms)) = Entry::decode(&bytes, index) {
        let again = Entry::decode(&entry.encode(index, time_ms), index);
        if (index == 0) == matches!(entry, Entry::Folder { .. }) {
            assert_eq!(again, Ok((entry, time_ms)));
        }
    }
}

pub(super) fn segment_header(input: &[u8]) {
    let (seal, mut bytes) = unpack(input);
    if seal {
        bytes.resize(4_096, 0);
        put(&mut bytes, 0, &SEGMENT_MAGIC);
        let crc = crc32c(&bytes[..4_092]);
        put(&mut bytes, 4_092, &crc.to_le_bytes());
    }
    if let Ok(header) = SegmentHeader::decode(&bytes) {
        assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
    }
}

/// One valid structure of each kind, marked to be sealed: any target may start from any of them.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let batch = BatchHeader {
        body_len: 128,
        record_count: 2,
        segment: SEGMENT,
        first_lsn: Lsn(10),
        durable_lsn: Lsn(9),
        time_ms: 1_700_000_000_000,
        next_seq: Seq(12),
        ..BatchHeader::default()
    };
    let record = RecordHeader { payload_len: 20, kind: 1, flags: 8, seq: Seq(10), ..RecordHeader::default() };
    let entry = FooterEntry {
        hash: 1 << 100,
        seq: Seq(10),
        expiry_ms: 0,
        address: LogAddress::new(SEGMENT, 4_160),
        payload_len: 20,
        keyspace: Keyspace(1),
        kind: 1,
        flags: 8,
        extra: 0,
        origin: Origin::ALONE,
        lsn: Lsn(10),
    };
    let mut footer = Vec::new();
    footer_chunk::encode_chunk(
        &mut footer,
        SEGMENT,
        salt(),
        0,
        Lsn(10),
        &[entry, FooterEntry { lsn: Lsn(11), ..entry }],
    );
    let mut origins = Vec::new();
    let origin = Origin::new(3, 70_000).expect("small");
    footer_chunk::encode_chunk(
        &mut origins,
        SEGMENT,
        salt(),
        0,
        Lsn(10),
        &[entry, FooterEntry { lsn: Lsn(11), origin, ..entry }],
    );
    let (next_segment, next_file, next_seq) = (SegmentId(8), FileId(3), Seq(12));
    let folder = Entry::Folder { folder: FOLDER, next_segment, next_file, next_seq, content: (1, 1) };
    let open = Entry::Open { segment: SEGMENT, file: FileId(2), first_lsn: Lsn(1), size_bytes: 1 << 26 };
    let structures = [
        batch.encode(salt()).0.to_vec(),
        record.encode(salt()).to_vec(),
        footer,
        origins,
        folder.encode(0, 1).to_vec(),
        open.encode(1, 1).to_vec(),
    ];
    structures
        .into_iter()
        .map(|mut bytes| {
            bytes.push(1);
            bytes
        })
        .collect()
}
