//! Records that the server keeps for itself: parts with their length in front, and a checksum of all at the end.
//!
//! ```text
//!  | body | crc32c of the body, u32 little-endian |        a part in the body: length u32 little-endian, bytes
//! ```

/// `body` with the checksum that makes it a record.
pub fn seal(mut body: Vec<u8>) -> Vec<u8> {
    let crc = crc(&body);
    body.extend(crc.to_le_bytes());
    body
}

/// The body of a record; `None` if its checksum is wrong.
pub fn unseal(record: &[u8]) -> Option<&[u8]> {
    let (body, stored) = record.split_last_chunk::<4>()?;
    (crc(body) == u32::from_le_bytes(*stored)).then_some(body)
}

/// Appends a part.
pub fn push_bytes(bytes: &[u8], record: &mut Vec<u8>) {
    record.extend((bytes.len() as u32).to_le_bytes());
    record.extend_from_slice(bytes);
}

/// Takes `N` bytes from the front.
pub fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(taken)
}

/// Takes a part from the front.
pub fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = u32::from_le_bytes(*take::<4>(rest)?) as usize;
    let (taken, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(taken)
}

fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_of_one_part_has_these_bytes() {
        let mut body = b"HEAD".to_vec();
        push_bytes(b"ab", &mut body);
        let record = seal(body);
        assert_eq!(&record[..10], b"HEAD\x02\0\0\0ab");
        assert_eq!(crc(b"123456789"), 0xE306_9283, "the check value of CRC-32C");
        assert_eq!(unseal(&record), Some(&record[..10]));
        assert_eq!(unseal(&record[..13]), None);
    }
}
