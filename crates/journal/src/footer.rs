//! Reading a segment's footer: chunk by chunk, every checksum verified, all or nothing.

use vfs::File;

use crate::format::Salt;
use crate::format::footer_chunk::{FooterEntry, decode_chunk};
use crate::format::manifest_entry::Footer;
use crate::segment::read_full;
use crate::types::{Lsn, SegmentId};

/// The entries of a footer in lsn order from `first_lsn` on; `None` when any of it does not verify.
///
/// # Errors
/// The system's.
pub(crate) fn read(
    file: &dyn File,
    (segment, salt): (SegmentId, Salt),
    place: Footer,
    first_lsn: Lsn,
) -> std::io::Result<Option<Vec<FooterEntry>>> {
    let len = file.len()?.saturating_sub(place.offset_bytes).min(place.len_bytes);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    let read = read_full(file, &mut bytes, place.offset_bytes)?;
    Ok(decode(&bytes[..read], (segment, salt), place.entries, first_lsn))
}

/// Decodes a whole footer.
pub(crate) fn decode(
    mut bytes: &[u8],
    (segment, salt): (SegmentId, Salt),
    count: u32,
    first_lsn: Lsn,
) -> Option<Vec<FooterEntry>> {
    // Bounded by what was read, not by what the manifest claims.
    let mut entries = Vec::with_capacity((count as usize).min(bytes.len() / 48));
    let mut index = 0;
    while entries.len() < count as usize {
        let before = entries.len();
        let size = decode_chunk(bytes, (segment, salt), index, &mut entries)?;
        let first = entries.get(before)?;
        if first.lsn.0 != first_lsn.0 + before as u64 {
            return None;
        }
        bytes = &bytes[size..];
        index += 1;
    }
    (entries.len() == count as usize).then_some(entries)
}
