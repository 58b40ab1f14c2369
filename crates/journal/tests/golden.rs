//! The bytes on disk, as they were when version 1 was fixed: a change here breaks every folder there is.

use journal::format::Salt;
use journal::format::batch::BatchHeader;
use journal::format::footer_chunk::{decode_chunk, encode_chunk};
use journal::format::manifest_entry::{Checkpoint, Entry, Footer, Sealed};
use journal::format::segment_header::{Identity, SegmentHeader};
use journal::{FileId, FooterEntry, Keyspace, LogAddress, Lsn, Origin, RecordHeader, SegmentId, Seq};

const SEGMENT: SegmentId = SegmentId(0x0102_0304);
const FOLDER: u128 = 0x0f;

fn salt() -> Salt {
    Salt::new(FOLDER, SEGMENT)
}

fn other_salt() -> Salt {
    Salt::new(FOLDER, SegmentId(5))
}

#[test]
fn record_header_has_the_golden_bytes() {
    let header = RecordHeader {
        payload_crc: 0xe306_9283,
        payload_len: 9,
        kind: 7,
        flags: 0b1101,
        keyspace: Keyspace(0x11),
        origin: Origin::new(0x22, 0x33).expect("small"),
        seq: Seq(0x44),
        expiry_ms: 0x55,
    };
    let bytes = header.encode(salt());
    check(include_str!("golden/record_header.hex"), &bytes);
    assert_eq!(RecordHeader::decode(&bytes, salt()), Some(header));
    assert_eq!(RecordHeader::decode(&bytes, other_salt()), None, "another life of the file");
}

#[test]
fn batch_header_has_the_golden_bytes() {
    let header = BatchHeader {
        body_len: 64,
        record_count: 1,
        body_crc: 0xaabb_ccdd,
        segment: SEGMENT,
        first_lsn: Lsn(1_000),
        durable_lsn: Lsn(999),
        time_ms: 1_795_000_000_000,
        prev_crc: 0x1234_5678,
        flags: 2,
        next_seq: Seq(77),
    };
    let (bytes, crc) = header.encode(salt());
    check(include_str!("golden/batch_header.hex"), &bytes);
    assert_eq!(BatchHeader::decode(&bytes, SEGMENT, salt()), Some((header, crc)));
    assert_eq!(BatchHeader::decode(&bytes, SEGMENT, other_salt()), None, "another life of the file");
}

#[test]
fn segment_header_has_the_golden_bytes() {
    let header = SegmentHeader {
        identity: Identity { folder: FOLDER, hash_key: 0xf0, hash_bits: 128 },
        file: FileId(0x0102_0304),
        size_bytes: 64 << 20,
        created_ms: 1_795_000_000_000,
    };
    let bytes = header.encode();
    check(include_str!("golden/segment_header.hex"), &bytes[..80]);
    check(include_str!("golden/segment_header_crc.hex"), &bytes[4088..]);
    assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
}

#[test]
fn footer_chunk_has_the_golden_bytes() {
    check_footer_chunk(include_str!("golden/footer_chunk.hex"), &[footer_entry(500), footer_entry(501)]);
}

/// A chunk of these entries has the golden bytes, and these bytes are a chunk of these entries.
fn check_footer_chunk(golden: &str, entries: &[FooterEntry]) {
    let mut bytes = Vec::new();
    encode_chunk(&mut bytes, SEGMENT, salt(), 3, Lsn(500), entries);
    check(golden, &bytes);
    let mut out = Vec::new();
    assert_eq!(decode_chunk(&bytes, SEGMENT, salt(), 3, &mut out), Some(bytes.len()));
    assert_eq!(out, entries);
}

fn footer_entry(lsn: u64) -> FooterEntry {
    FooterEntry {
        hash: 0x00ff,
        seq: Seq(8),
        expiry_ms: 9,
        address: LogAddress::new(SEGMENT, 4096 + 64),
        payload_len: 10,
        keyspace: Keyspace(11),
        kind: 12,
        flags: 13,
        extra: 14,
        origin: Origin::ALONE,
        lsn: Lsn(lsn),
    }
}

#[test]
fn footer_chunk_with_origins_has_the_golden_bytes() {
    let origin = Origin::new(0xfffe, Origin::TERM_END - 2).expect("the largest but one");
    let entries = [footer_entry(500), FooterEntry { origin, ..footer_entry(501) }];
    check_footer_chunk(include_str!("golden/footer_chunk_origins.hex"), &entries);
}

#[test]
fn manifest_entries_have_the_golden_bytes() {
    let entries = manifest_entries();
    let bytes: Vec<u8> = entries
        .iter()
        .enumerate()
        .flat_map(|(n, entry)| entry.encode(n as u64, 1_795_000_000_000 + n as u64))
        .collect();
    check(include_str!("golden/manifest.hex"), &bytes);
    for (n, chunk) in bytes.as_chunks::<64>().0.iter().enumerate() {
        let decoded = Entry::decode(chunk, n as u64);
        assert_eq!(decoded, Ok((entries[n].clone(), 1_795_000_000_000 + n as u64)));
    }
}

#[test]
fn folder_entry_of_version_1_is_read_and_states_no_version_of_the_records() {
    let hex: String = include_str!("golden/manifest-v1.hex").split_whitespace().collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let bytes: Vec<u8> = hex.as_bytes().chunks(2).map(byte).collect();
    for (n, chunk) in bytes.as_chunks::<64>().0.iter().enumerate() {
        let mut wanted = manifest_entries()[n].clone();
        if let Entry::Folder { content, .. } = &mut wanted {
            *content = (0, 0);
        }
        assert_eq!(Entry::decode(chunk, n as u64), Ok((wanted, 1_795_000_000_000 + n as u64)));
    }
}

fn manifest_entries() -> Vec<Entry> {
    let segment = SEGMENT;
    vec![
        Entry::Folder {
            folder: FOLDER,
            next_segment: SegmentId(9),
            next_file: FileId(12),
            next_seq: Seq(13),
            content: (3, 2),
        },
        Entry::HashKey { hash_key: 0xf0, hash_bits: 128 },
        Entry::Prepared { file: FileId(2), size_bytes: 64 << 20, zeroed: true },
        Entry::Open { segment, file: FileId(2), first_lsn: Lsn(5), size_bytes: 64 << 20 },
        Entry::Sealed(Sealed {
            segment,
            records: 6,
            first_lsn: Lsn(5),
            last_lsn: Lsn(10),
            end_bytes: 8192,
            next_seq: Seq(11),
        }),
        Entry::Footed { segment, footer: Footer { entries: 6, offset_bytes: 8192, len_bytes: 352 } },
        Entry::Freed { segment },
        Entry::Checkpoint(Checkpoint { name: "0000000000000001.ckpt".into(), lsn: Lsn(4) }),
        Entry::Closed { segment, last_lsn: Lsn(10), end_bytes: 8256, next_seq: Seq(11) },
    ]
}

/// Compares with a golden file: hex, 16 bytes a line.
fn check(golden: &str, bytes: &[u8]) {
    let lines =
        bytes.chunks(16).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let actual = lines.collect::<Vec<_>>().join("\n");
    assert_eq!(actual.trim(), golden.trim(), "golden bytes differ; actual:\n{actual}");
}
