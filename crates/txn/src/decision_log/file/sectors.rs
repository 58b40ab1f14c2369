//! The bytes of the file log: the file of a record, and the file that says whose folder it is.
//!
//! All numbers are little-endian.
//!
//! ```text
//!  record  sector, sector, ...                    the file NUMBER.tx, in hexadecimal with zeroes
//!  sector  512 B | crc u32, CRC-32C of bytes 4..512 | epoch u32 | number u64 | version u64 | index u16 | count u16
//!                | length of its part of the record u16 | zero u16 | its part | zeroes
//!  NODE    magic `EVKNODE2` | epoch u32 | born u32, the first epoch | length of the name u8 | name | crc u32, CRC-32C of all before it
//!          `EVKNODE1` is read, too: without `born`
//! ```
//!
//! Invariants
//!   1. A file whose sync never returned is told from damage: each of its sectors is either as it was written, or missing (zeroes, or
//!      behind the end), or of the removed record that it takes the place of, and at least one is not as it was written. Anything else
//!      that does not verify is damage.
//!
//! What it cannot tell is a disk that loses a whole sector that it said was durable and reads zeroes, or what was there before, in its
//! place: nothing else in the folder vouches for the file. The journal's batches vouch for each other.

use crate::decision_log::{BORN_UNKNOWN, LogError};
use crate::id::TxId;

/// What the file of a record holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A whole record.
    Record(Stamp, Vec<u8>),
    /// Its sync never returned: nobody was told that it is there.
    Torn,
}

/// Which record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// Whose it is.
    pub tx: TxId,
    /// Which one of the folder; a later one replaces those of its transaction before it.
    pub version: u64,
}

/// The name of file `number` in the folder.
#[must_use]
pub fn file_name(number: u64) -> String {
    format!("{number:016x}{SUFFIX}")
}

/// The inverse of [`file_name`].
#[must_use]
pub fn file_number(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_suffix(SUFFIX)?, 16).ok()?;
    (number < VERSION_MAX && file_name(number) == name).then_some(number)
}

/// Whether a file of this name should be one of a record.
#[must_use]
pub fn is_record_name(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

/// The bytes of a file with `record` in it.
///
/// # Panics
/// If the record is larger than [`RECORD_BYTES_MAX`]: the log refuses such.
#[must_use]
pub fn encode(stamp: Stamp, record: &[u8]) -> Vec<u8> {
    assert!(record.len() <= RECORD_BYTES_MAX, "record of {} B", record.len());
    let count = record.len().div_ceil(PART_BYTES).max(1);
    let mut out = vec![0; count * SECTOR_BYTES];
    for (index, sector) in out.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        let from = index * PART_BYTES;
        let part = &record[from..record.len().min(from + PART_BYTES)];
        sector[4..28].copy_from_slice(&head(stamp, index, count));
        sector[28..30].copy_from_slice(&(part.len() as u16).to_le_bytes());
        sector[HEAD_BYTES..HEAD_BYTES + part.len()].copy_from_slice(part);
        let crc = crc_fast::crc32_iscsi(&sector[4..]);
        sector[..4].copy_from_slice(&crc.to_le_bytes());
    }
    out
}

/// What a file with these bytes holds.
///
/// # Errors
/// Offset in bytes of what no log has written there, and what is wrong with it.
pub fn decode(bytes: &[u8]) -> Result<Found, (usize, &'static str)> {
    let (mut record, mut first, mut is_torn) = (Vec::new(), None, bytes.is_empty());
    for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
        let fail = |what| Err((index * SECTOR_BYTES, what));
        if sector.iter().all(|byte| *byte == 0) {
            is_torn = true;
            continue;
        }
        let Some((stamp, count, part)) = part(sector, index) else { return fail("a sector does not verify") };
        let (known, of) = *first.get_or_insert((stamp, count));
        if count != of {
            // A file takes the place of one that is as long.
            return fail("a sector of another file");
        }
        if part.len() < PART_BYTES && index + 1 < count {
            return fail("a sector is not full and not the last");
        }
        if part.is_empty() && index > 0 {
            return fail("a sector without a part of the record");
        }
        is_torn |= stamp != known;
        record.extend_from_slice(part);
    }
    let sectors = bytes.len().div_ceil(SECTOR_BYTES);
    if first.is_some_and(|(_, count)| count < sectors) || sectors > SECTORS_MAX {
        return Err((bytes.len(), "the file is too long"));
    }
    match first {
        Some((stamp, count)) if count == sectors && !is_torn => Ok(Found::Record(stamp, record)),
        _ => Ok(Found::Torn),
    }
}

/// The bytes of the file NODE.
///
/// # Panics
/// If the name is longer than 255 B: no [`crate::id::NodeName`] is.
#[must_use]
pub fn encode_node(name: &str, epoch: u32, born: u32) -> Vec<u8> {
    let mut out = NODE_MAGIC.to_vec();
    out.extend_from_slice(&epoch.to_le_bytes());
    out.extend_from_slice(&born.to_le_bytes());
    out.push(u8::try_from(name.len()).expect("names of nodes are short"));
    out.extend_from_slice(name.as_bytes());
    let crc = crc_fast::crc32_iscsi(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// Name, epoch and first epoch that the file NODE states; `None` if it does not verify.
#[must_use]
pub fn decode_node(bytes: &[u8]) -> Option<(&str, u32, u32)> {
    let (bytes, crc) = bytes.split_last_chunk()?;
    if crc_fast::crc32_iscsi(bytes) != u32::from_le_bytes(*crc) {
        return None;
    }
    let (magic, rest) = bytes.split_first_chunk()?;
    let (epoch, rest) = rest.split_first_chunk()?;
    let (born, rest) = match magic {
        NODE_MAGIC => rest.split_first_chunk().map(|(born, rest)| (u32::from_le_bytes(*born), rest))?,
        NODE_MAGIC_1 => (BORN_UNKNOWN, rest),
        _ => return None,
    };
    let (len, name) = rest.split_first()?;
    let name = std::str::from_utf8(name).ok().filter(|name| name.len() == usize::from(*len))?;
    Some((name, u32::from_le_bytes(*epoch), born))
}

/// What became of a record whose write went wrong before its sync, by whether its file is gone for good.
pub(super) fn after_failed_write(what: &str, is_gone: bool) -> LogError {
    if is_gone { LogError::Absent(what.to_owned()) } else { LogError::Unknown(what.to_owned()) }
}

/// Whose record a sector is of that verifies and is at this place, of how many sectors, and its part.
fn part(sector: &[u8], index: usize) -> Option<(Stamp, usize, &[u8])> {
    let (crc, rest) = sector.split_first_chunk()?;
    if sector.len() != SECTOR_BYTES || crc_fast::crc32_iscsi(rest) != u32::from_le_bytes(*crc) {
        return None;
    }
    let (epoch, rest) = rest.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let (version, rest) = rest.split_first_chunk()?;
    let tx = TxId { epoch: u32::from_le_bytes(*epoch), number: u64::from_le_bytes(*number) };
    let stamp = Stamp { tx, version: u64::from_le_bytes(*version) };
    let (_, rest) = rest.split_first_chunk::<2>()?;
    let (count, rest) = rest.split_first_chunk()?;
    let count = usize::from(u16::from_le_bytes(*count));
    let (len, _) = rest.split_first_chunk()?;
    let len = usize::from(u16::from_le_bytes(*len));
    let part = sector.get(HEAD_BYTES..HEAD_BYTES + len)?;
    let padding = &sector[HEAD_BYTES + len..];
    let is_padded = padding.iter().chain(&sector[30..HEAD_BYTES]).all(|byte| *byte == 0);
    let is_here = index < count && stamp.version < VERSION_MAX && sector[4..28] == head(stamp, index, count);
    (is_padded && is_here).then_some((stamp, count, part))
}

/// Bytes 4 to 28 of a sector.
fn head(stamp: Stamp, index: usize, count: usize) -> [u8; 24] {
    let mut head = [0; 24];
    head[..4].copy_from_slice(&stamp.tx.epoch.to_le_bytes());
    head[4..12].copy_from_slice(&stamp.tx.number.to_le_bytes());
    head[12..20].copy_from_slice(&stamp.version.to_le_bytes());
    head[20..22].copy_from_slice(&(index as u16).to_le_bytes());
    head[22..].copy_from_slice(&(count as u16).to_le_bytes());
    head
}

/// Largest record.
pub const RECORD_BYTES_MAX: usize = SECTORS_MAX * PART_BYTES;
/// The unit that a disk writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;
const HEAD_BYTES: usize = 32;
const PART_BYTES: usize = SECTOR_BYTES - HEAD_BYTES;
const SECTORS_MAX: usize = 128;
/// No folder counts as far: who counts on from one that was read need not fear the end.
const VERSION_MAX: u64 = 1 << 62;
const SUFFIX: &str = ".tx";
const NODE_MAGIC_1: &[u8; 8] = b"EVKNODE1";
const NODE_MAGIC: &[u8; 8] = b"EVKNODE2";
const _: () = assert!(SECTORS_MAX <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { tx: TxId { epoch: 3, number: 9 }, version: 1 };

    fn record() -> Vec<u8> {
        (0..1_200_u32).map(|n| n as u8).collect()
    }

    #[test]
    fn file_with_sectors_missing_is_torn_and_a_changed_bit_is_damage() {
        let bytes = encode(STAMP, &record());
        assert_eq!(decode(&bytes), Ok(Found::Record(STAMP, record())));
        for kept in 0..8 {
            let mut torn = bytes.clone();
            let sectors = torn.chunks_exact_mut(SECTOR_BYTES).enumerate();
            sectors.filter(|(n, _)| kept & (1 << n) == 0).for_each(|(_, sector)| sector.fill(0));
            assert_eq!(decode(&torn) == Ok(Found::Torn), kept != 7, "{kept}");
        }
        for cut in (0..bytes.len()).step_by(SECTOR_BYTES) {
            assert_eq!(decode(&bytes[..cut]), Ok(Found::Torn));
        }
        for bit in 0..bytes.len() * 8 {
            let mut hurt = bytes.clone();
            hurt[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&hurt).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn record_that_took_the_place_of_another_in_part_is_torn() {
        let old = Stamp { tx: TxId { epoch: 3, number: 2 }, version: 0 };
        let (before, after) = (encode(old, &[7; 1_200]), encode(STAMP, &record()));
        for kept in 0..8 {
            let mut mixed = after.clone();
            let sectors = mixed.chunks_exact_mut(SECTOR_BYTES).zip(before.chunks_exact(SECTOR_BYTES));
            let lost = sectors.enumerate().filter(|(n, _)| kept & (1 << n) == 0);
            lost.for_each(|(_, (sector, before))| sector.copy_from_slice(before));
            let expected = match kept {
                0 => Found::Record(old, vec![7; 1_200]),
                7 => Found::Record(STAMP, record()),
                _ => Found::Torn,
            };
            assert_eq!(decode(&mixed), Ok(expected), "{kept}");
        }
    }

    #[test]
    fn sector_in_another_place_or_of_a_longer_file_is_damage() {
        let bytes = encode(STAMP, &record());
        assert!(decode(&bytes[SECTOR_BYTES..]).is_err());
        assert!(decode(&[&bytes[..SECTOR_BYTES], &bytes[..SECTOR_BYTES]].concat()).is_err());
        let short = encode(STAMP, b"record");
        assert!(decode(&[short.clone(), short.clone()].concat()).is_err());
        assert!(decode(&[&short[..], &bytes[SECTOR_BYTES..]].concat()).is_err());
        let beyond = Stamp { version: VERSION_MAX, ..STAMP };
        assert!(decode(&encode(beyond, b"record")).is_err(), "who counts on from it comes to the end");
    }

    /// A long run of the fuzz target made one: nothing is lost by it, but no log writes so.
    #[test]
    fn last_sector_that_holds_nothing_is_damage() {
        let full = vec![7; 2 * PART_BYTES];
        let mut bytes = encode(STAMP, &[&full[..], b"x"].concat());
        let last = &mut bytes[2 * SECTOR_BYTES..];
        last[28..].fill(0);
        let crc = crc_fast::crc32_iscsi(&last[4..]);
        last[..4].copy_from_slice(&crc.to_le_bytes());
        let what = "a sector without a part of the record";
        assert_eq!(decode(&bytes), Err((2 * SECTOR_BYTES, what)));
        assert_eq!(decode(&encode(STAMP, &full)), Ok(Found::Record(STAMP, full)));
    }

    #[test]
    fn record_of_no_bytes_is_a_record() {
        assert_eq!(decode(&encode(STAMP, b"")), Ok(Found::Record(STAMP, Vec::new())));
        assert_eq!(decode(b""), Ok(Found::Torn));
    }

    #[test]
    fn names_are_read_back_and_others_are_none() {
        assert_eq!(file_number(&file_name(0x2F)), Some(0x2F));
        for name in
            ["", ".tx", "2f.tx", "000000000000002F.tx", "000000000000002f", "ffffffffffffffff.tx", "NODE"]
        {
            assert_eq!(file_number(name), None, "{name}");
        }
        assert_eq!(decode_node(&encode_node("a", 7, 3)), Some(("a", 7, 3)));
    }
}
