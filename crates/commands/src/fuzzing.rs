//! Doors for fuzz targets: the decoders of this crate as functions of bytes. Not part of the interface.

use crate::glob::Pattern;
use crate::hyperloglog::{self, Sketch};
use crate::payload;
use crate::stream::{Id, pending};

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

/// Decodes a payload of our own of RESTORE; returns whether it is one.
///
/// # Panics
/// When what was taken is not what DUMP writes for the same value: a bug of the decoder.
#[must_use]
pub fn dump_payload(payload: &[u8]) -> bool {
    let Some((kind, value)) = payload::decode(payload) else { return false };
    let Some(shape) = kind.shape() else {
        assert_eq!(payload::plain_string(payload), Some(value), "one payload, two values");
        return true;
    };
    let now = store::Moment::default();
    let loaded = payload::load(shape, value, now, |_| 0);
    if let Some(loaded) = &loaded {
        assert_eq!(store::dump(store::Packed::new(shape, loaded), now), value, "one value, two payloads");
    }
    loaded.is_some()
}

/// Reads the value of an element of a stream as a block of pending entries; returns how many it has.
///
/// # Panics
/// When they do not ascend, are more than a block has, or are others once they are written and read again: bugs of the decoder.
#[must_use]
pub fn pending_block(value: &[u8]) -> usize {
    pending::read_again(Id { ms: 1_000, seq: 2 }, value)
}

/// `body` with the checksum that makes it a payload, if the rest of it is one.
#[must_use]
pub fn with_checksum(body: &[u8]) -> Vec<u8> {
    payload::sealed(body.to_vec())
}

/// Takes `bytes` as a HyperLogLog that somebody wrote with SET; returns whether it is one.
///
/// # Panics
/// When one that is sound is none any more after something was added to it: a bug of the codec.
#[must_use]
pub fn sketch(bytes: &[u8]) -> bool {
    let found = hyperloglog::registers(bytes).inspect(|registers| {
        let _ = hyperloglog::estimate(registers);
    });
    let Ok(mut sketch) = Sketch::of(bytes) else { return false };
    let mut is_sound = found.is_ok();
    for element in 0..64_u8 {
        is_sound &= sketch.add(&[element]).is_ok();
    }
    if let Ok(registers) = &found {
        is_sound &= sketch.merge(registers, false).is_ok();
    }
    let written = hyperloglog::registers(&sketch.into_bytes());
    assert!(found.is_err() || (is_sound && written.is_ok()), "no HyperLogLog any more: {written:?}");
    found.is_ok()
}
