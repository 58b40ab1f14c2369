//! Doors for fuzz targets: the decoders of this crate as functions of bytes. Not part of the interface.

use crate::handlers::dump;

/// Decodes a payload of RESTORE; returns whether it is one.
///
/// # Panics
/// When what was taken is not what DUMP writes for the same value: a bug of the decoder.
#[must_use]
pub fn dump_payload(payload: &[u8]) -> bool {
    let value = dump::decode(payload);
    if let Some(value) = value {
        assert_eq!(dump::encode(value), payload, "one value, two payloads");
    }
    value.is_some()
}

/// `body` with the checksum that makes it a payload, if the rest of it is one.
#[must_use]
pub fn with_checksum(body: &[u8]) -> Vec<u8> {
    dump::sealed(body.to_vec())
}
