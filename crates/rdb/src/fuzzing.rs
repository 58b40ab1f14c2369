//! Doors for fuzz targets. Not part of the interface.

use crate::{Item, Limits, Part, Reader, read_payload, verify};

/// Reads `bytes` as a file; returns how many keys came to their end.
///
/// # Panics
/// When reading took more steps than the bytes allow: a bug of the decoder.
#[must_use]
pub fn file(bytes: &[u8]) -> usize {
    let Ok(mut reader) = Reader::open(bytes, LIMITS) else { return 0 };
    let (mut keys, mut expanded) = (0, 0);
    let mut steps = 0;
    while expanded < EXPANDED_BYTES_MAX
        && let Ok(Some(item)) = reader.next_item()
    {
        steps += 1;
        assert!(steps <= 300 * bytes.len(), "{steps} steps for {} B", bytes.len());
        match item {
            Item::End => keys += 1,
            Item::Part(part) => expanded += size(&part),
            _ => {}
        }
    }
    keys
}

/// Reads `bytes` as a payload, its checksum aside; returns whether it is one.
///
/// # Panics
/// As [`file()`], and when the checksum that [`crate::footer`] makes is not right.
#[must_use]
pub fn payload(bytes: &[u8]) -> bool {
    let (body, version) =
        bytes.split_last_chunk::<1>().map_or((bytes, 9), |(body, [last])| (body, u16::from(*last)));
    let sealed = [body, &crate::footer(version, &[body])].concat();
    assert_eq!(verify(&sealed), Some((body, version)), "sealed by us");
    let Ok(mut value) = read_payload(body, version, LIMITS) else { return false };
    let (mut expanded, mut steps) = (0, 0);
    while expanded < EXPANDED_BYTES_MAX {
        match value.next_part() {
            Ok(Some(part)) => expanded += size(&part),
            Ok(None) => return true,
            Err(_) => return false,
        }
        steps += 1;
        assert!(steps <= 300 * body.len(), "{steps} steps for {} B", body.len());
    }
    false
}

fn size(part: &Part) -> usize {
    match part {
        Part::Entry { fields, .. } => fields.iter().map(Vec::len).sum(),
        Part::String(bytes) | Part::Element(bytes) => bytes.len(),
        _ => 0,
    }
}

const LIMITS: Limits = Limits { string_bytes_max: 1 << 20 };
const EXPANDED_BYTES_MAX: usize = 4 << 20;
