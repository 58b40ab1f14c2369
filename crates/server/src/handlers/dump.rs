//! DUMP and RESTORE: a value as bytes that outlive the server.
//!
//! ```text
//!  | "EVK" | version u8 = 1 | kind u8: 1 string | value | crc32c of all before, u32 little-endian |
//! ```
//!
//! Not Redis's RDB payload: neither server takes the other's, and the checksum says so.

use std::sync::Arc;

use clock::UnixMs;
use resp::{ArgsView, Writer};
use store::{Deadline, Found, Value, ValueKind};

use super::args::{integer, is, option_value};
use crate::call::{Attached, Data, Failure, Outcome, text};

pub(crate) fn dump(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let found = data.access.get(data.db, args.get(1))?;
    data.count_lookup(found.is_some());
    match found {
        None => out.null(),
        Some(found) if found.kind != ValueKind::String => return Err(text::WRONG_TYPE.into()),
        Some(Found { value, large: Some(large), .. }) => {
            // Nor is the checksum made while the key is locked.
            let at = out.bulk_around(&HEAD, value.len(), &[0; CRC_BYTES]);
            let (bytes, part) = (Arc::<store::Large>::clone(large), 0..value.len());
            data.lend(Attached { at, bytes, part, unsealed: true });
        }
        Some(found) => out.bulk(&encode(found.value)),
    }
    Ok(())
}

/// Options of RESTORE; those about eviction are checked and forgotten.
#[derive(Debug, Default)]
struct Options {
    replace: bool,
    absolute: bool,
}

impl Options {
    fn parse(args: ArgsView<'_>) -> Result<Self, Failure> {
        let mut options = Options::default();
        let (mut index, mut idle, mut frequency) = (4, false, false);
        while let Some(arg) = args.try_get(index) {
            if is(arg, "replace") {
                options.replace = true;
            } else if is(arg, "absttl") {
                options.absolute = true;
            } else if is(arg, "idletime") && args.len() > index + 1 && !frequency {
                idle = true;
                if integer(option_value(args, index)?)? < 0 {
                    return Err("ERR Invalid IDLETIME value, must be >= 0".into());
                }
                index += 1;
            } else if is(arg, "freq") && args.len() > index + 1 && !idle {
                frequency = true;
                if !(0..=255).contains(&integer(option_value(args, index)?)?) {
                    return Err("ERR Invalid FREQ value, must be >= 0 and <= 255".into());
                }
                index += 1;
            } else {
                return Err(text::SYNTAX.into());
            }
            index += 1;
        }
        Ok(options)
    }
}

pub(crate) fn restore(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let key = args.get(1);
    let options = Options::parse(args)?;
    if !options.replace && data.access.meta(data.db, key)?.is_some() {
        return Err("BUSYKEY Target key name already exists.".into());
    }
    let ttl = u64::try_from(integer(args.get(2))?).map_err(|_| "ERR Invalid TTL value, must be >= 0")?;
    let value = match data.copies.find(3) {
        Some(value) => value,
        None => {
            let value = decode(args.get(3)).ok_or("ERR DUMP payload version or checksum are wrong")?;
            Value::String(value)
        }
    };
    let deadline = || if options.absolute { Deadline::at(UnixMs(ttl)) } else { data.now.after(ttl) };
    let expiry = (ttl != 0).then(deadline);
    if expiry.is_some_and(|at| data.now.has_passed(at)) {
        data.access.remove(data.db, key)?;
    } else {
        data.access.put(data.db, key, value, expiry);
    }
    out.ok();
    Ok(())
}

pub(crate) fn encode(value: &[u8]) -> Vec<u8> {
    sealed([&HEAD, value].concat())
}

/// `payload` with its checksum behind it.
pub(crate) fn sealed(mut payload: Vec<u8>) -> Vec<u8> {
    let crc = crc(&payload);
    payload.extend_from_slice(&crc.to_le_bytes());
    payload
}

/// Writes the checksum of the payload of `value` to where `rest`, what follows the value, begins.
pub(crate) fn seal(value: &[u8], rest: &mut [u8]) {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&HEAD);
    digest.update(value);
    rest[..CRC_BYTES].copy_from_slice(&narrowed(digest.finalize()).to_le_bytes());
}

/// The value in a payload of DUMP; `None` for everything else, whatever its bytes.
pub(crate) fn decode(payload: &[u8]) -> Option<&[u8]> {
    let (body, stored) = payload.split_last_chunk::<CRC_BYTES>()?;
    let value = body.strip_prefix(&HEAD)?;
    (crc(body) == u32::from_le_bytes(*stored)).then_some(value)
}

fn crc(bytes: &[u8]) -> u32 {
    narrowed(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes))
}

fn narrowed(crc: u64) -> u32 {
    u32::try_from(crc).expect("CRC-32C has 32 bits")
}

/// Magic, version, and kind: a string.
const HEAD: [u8; 5] = *b"EVK\x01\x01";
const CRC_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_of_version_1_has_these_bytes() {
        assert_eq!(encode(b"hi"), b"EVK\x01\x01hir?\xe6m");
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_found() {
        let payload = encode(b"some value");
        assert_eq!(decode(&payload), Some(&b"some value"[..]));
        for cut in 0..payload.len() {
            assert_eq!(decode(&payload[..cut]), None);
        }
        for bit in 0..payload.len() * 8 {
            let mut damaged = payload.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&damaged), None, "bit {bit}");
        }
    }
}
