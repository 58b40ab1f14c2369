//! Doors for fuzz targets: the decoders of this crate as functions of bytes. Not part of the interface.

use crate::glob::Pattern;
use crate::payload;

/// Compiles `pattern` and matches `text`; returns whether it does.
///
/// # Panics
/// When that took more steps than it may, or when a text with each byte escaped does not match itself: bugs of the matcher.
#[must_use]
pub fn pattern(pattern: &[u8], text: &[u8], fold: bool) -> bool {
    let escaped: Vec<u8> = text.iter().flat_map(|byte| [b'\\', *byte]).collect();
    if let Ok(literal) = Pattern::new(&escaped, fold) {
        assert!(literal.matches(text, &mut 0), "a text does not match itself");
    }
    let Ok(pattern) = Pattern::new(pattern, fold) else { return false };
    let mut steps = 0;
    let is_match = pattern.matches(text, &mut steps);
    assert!(steps <= pattern.steps_max(text.len()), "{steps} steps for a text of {} B", text.len());
    is_match
}

/// Decodes a payload of RESTORE; returns whether it is one.
///
/// # Panics
/// When what was taken is not what DUMP writes for the same value: a bug of the decoder.
#[must_use]
pub fn dump_payload(payload: &[u8]) -> bool {
    let Some((kind, value)) = payload::decode(payload) else { return false };
    let Some(shape) = kind.shape() else {
        assert_eq!(payload::encode(value), payload, "one value, two payloads");
        return true;
    };
    let loaded = payload::load(shape, value, |_| 0);
    if let Some(loaded) = &loaded {
        assert_eq!(store::dump(store::Packed::new(shape, loaded)), value, "one value, two payloads");
    }
    loaded.is_some()
}

/// `body` with the checksum that makes it a payload, if the rest of it is one.
#[must_use]
pub fn with_checksum(body: &[u8]) -> Vec<u8> {
    payload::sealed(body.to_vec())
}
